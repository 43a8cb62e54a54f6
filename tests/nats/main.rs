//! NATS: real servers with JetStream, and the real binary as the edge that publishes and as a worker.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]
#![cfg(feature = "nats")]

mod authentication;
mod check_live;
mod cluster;
mod example;
mod failures;
mod headers;
mod lossy_proxy;
mod patchwork;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
mod publish;
#[cfg(feature = "redis")]
#[path = "../support/redis.rs"]
mod redis;
mod reload;
mod republish;
mod server;
mod server_versions;
mod stream_source;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "postgres")]
mod workers;

use std::time::Duration;
use support::Sent;

/// The path of GitHub's deliveries at the edge.
const IN: &str = "/github";
/// A duplicate window that is longer than any test.
const LONG: Duration = Duration::from_hours(2);

/// The config of an edge that publishes what it receives, with additional keys of `publish` and of the route.
fn edge(url: &str, publish: &str, route: &str) -> String {
    format!(
        r#"
[source.github]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ kind = "header.x-github-event" }}
[[source.github.route]]
name    = "publish"
publish = {{ nats = "{url}", subject = "github.{{kind}}"{publish} }}
{route}
"#
    )
}

/// A push with this number and this delivery id.
fn push(id: &str, n: u64) -> Sent {
    let members = r#""ref":"refs/heads/main","after":"6dcb09b","commits":[]"#;
    let repository = r#""action":"pushed","repository":{"full_name":"octocat/x"}"#;
    Sent::github("push", id, &format!("{{\"n\":{n},{members},{repository}}}"))
}

/// The config of a worker that reads from the stream, with additional keys of `from` and its route.
fn worker(url: &str, from: &str, route: &str) -> String {
    format!(
        r#"
[source.hooks]
from     = {{ nats = "{url}", stream = "GITHUB"{from} }}
verify   = {{ scheme = "carried", of = "github", secret = {{ env = "SECRET" }} }}
body_max = "2KB"
fields   = {{ n = "body.n" }}
[[source.hooks.route]]
name = "act"
{route}
"#
    )
}

/// The headers of a delivery as a message carries them. An empty delivery id is left out, as a sender would.
fn message(sent: &Sent) -> Vec<(String, String)> {
    let titled = |name: &str| name.split('-').map(|w| w[..1].to_uppercase() + &w[1..]).collect::<Vec<_>>().join("-");
    sent.headers.iter().map(|(name, value)| (titled(name), value.clone())).collect()
}

/// Whether the long tests run, as before a release.
fn full() -> bool {
    std::env::var_os("HOOKONCE_FULL").is_some()
}
