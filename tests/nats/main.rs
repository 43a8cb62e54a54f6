//! NATS from outside: real servers with JetStream, the real binary at the edge and as a worker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]
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

/// Where GitHub's deliveries arrive at the edge.
const IN: &str = "/github";
/// A duplicate window that no test outlives.
const LONG: Duration = Duration::from_hours(2);

/// An edge that publishes what it receives, with these keys of `publish` and of the route besides.
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

/// A push with this number, under this id.
fn push(id: &str, n: u64) -> Sent {
    let members = r#""ref":"refs/heads/main","after":"6dcb09b","commits":[]"#;
    let repository = r#""action":"pushed","repository":{"full_name":"octocat/x"}"#;
    Sent::github("push", id, &format!("{{\"n\":{n},{members},{repository}}}"))
}

/// A worker that takes from the stream, with these keys of `from` and of its route besides.
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

/// A delivery's headers as a message carries them. An empty delivery id is left out, as a sender would.
fn message(sent: &Sent) -> Vec<(String, String)> {
    let titled = |name: &str| name.split('-').map(|w| w[..1].to_uppercase() + &w[1..]).collect::<Vec<_>>().join("-");
    sent.headers.iter().map(|(name, value)| (titled(name), value.clone())).collect()
}

/// The numbers for a release, not those for every day.
fn full() -> bool {
    std::env::var_os("HOOKONCE_FULL").is_some()
}
