//! The walk from outside: real deliveries to the real binary over a real socket, with its database in a temporary
//! folder.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

mod admin_port;
mod attempts;
mod brought_secrets;
mod captured_delivery;
mod commands;
mod concurrent_copies;
mod drain;
mod elements;
#[path = "../support/faketime.rs"]
mod faketime;
mod fetched_keys;
mod flood;
mod forged_delivery_id;
mod forward;
mod groups;
mod handshakes;
mod health_check;
mod image_push;
mod known_senders;
mod log_format;
mod missing_route;
#[path = "../support/nginx.rs"]
mod nginx;
mod node_crash;
mod notifications;
mod receiver;
mod rejections;
mod reload;
mod retention;
mod rollback;
mod secret_path;
#[path = "../support/seed.rs"]
mod seed;
mod sender_responses;
mod service_manager;

mod start_time;
mod startup_config;
mod store_unavailable;
#[path = "../support/mod.rs"]
mod support;
mod unsigned_headers;
mod when_busy;

use support::{Answer, House, Sent};

/// The path of the package source.
const GHCR: &str = "/version/1";
/// The path of the other sources.
const IN: &str = "/in";

/// A config with a source of packages, with one route.
fn ghcr(route: &str) -> String {
    format!(
        r#"
[source.ghcr]
preset = "github-package"
path   = "{GHCR}"
secret = {{ env = "SECRET" }}
[[source.ghcr.route]]
name = "deploy"
{route}
"#
    )
}

/// A config with a source of bodies such as `{"n":1}`, with one route.
fn numbers(keys: &str, route: &str) -> String {
    format!(
        r#"
[source.numbers]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n" }}
{keys}
[[source.numbers.route]]
name = "act"
{route}
"#
    )
}

/// A delivery for [`numbers`].
fn number(id: &str, n: u64) -> Sent {
    Sent::github("push", id, &format!("{{\"n\":{n}}}"))
}

/// Sends all of these concurrently.
async fn at_once(house: &House, path: &str, all: &[Sent]) -> Vec<Answer> {
    futures_util::future::join_all(all.iter().map(|sent| house.deliver(path, sent))).await
}

/// Creates a file that commands wait for: `until test -e go; do sleep 0.01; done`.
fn touch(house: &House, name: &str) {
    std::fs::write(house.path(name), "").unwrap();
}
