//! `lookup`: a route asks a registry before it acts; `poll`: a source asks one. Real deliveries to the real binary, and Debian's docker-registry.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

mod config;
#[path = "../support/config_errors.rs"]
mod config_errors;
mod credentials;
mod day_of_pushes;
mod deploys;
#[path = "../support/docker_registry.rs"]
mod docker_registry;
mod example;
mod lagging;
mod odd_answers;
mod poll_config;
mod polling;
mod polling_nodes;
mod recipes;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/mod.rs"]
mod support;
mod tokens;

use support::House;

/// The path of the package source.
const GHCR: &str = "/version/1";
/// The image of the deliveries.
const IMAGE: &str = "treejamie/jamiec_ts";
/// The name of the same image, made of the delivery's fields.
const NAMED: &str = r#"image = "{namespace}/{package}", tag = "{tag}""#;

/// A config with a source of packages, whose one route has these keys.
fn source(route: &str) -> String {
    format!(
        r#"
[source.ghcr]
preset = "github-package"
path   = "{GHCR}"
secret = {{ env = "SECRET" }}
[[source.ghcr.route]]
name = "deploy"
retry = {{ attempts = 1000, first = "50ms", longest = "200ms" }}
{route}
"#
    )
}

/// A route that asks this registry for the image of the delivery, with these further keys, and writes the digest to
/// `runs`.
fn deploy(registry: &str, keys: &str) -> String {
    source(&format!(
        "lookup = {{ registry = \"{registry}\", {NAMED}{keys} }}\nrun = {{ steps = [\"echo $HOOKONCE_DIGEST >> runs; env >> environment\"] }}"
    ))
}

/// Why the last attempt at the only event ended.
fn last_why(house: &House) -> String {
    house.sql("select why from attempts order by started_at desc limit 1").pop().unwrap_or_default()
}
