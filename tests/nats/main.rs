//! NATS from outside: real servers with JetStream, the real binary at the edge and as a worker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![cfg(feature = "nats")]

#[path = "../house/mod.rs"]
mod house;
mod proxy;
mod publish;
mod server;

use house::{House, SECRET, Sent};
use server::Nats;
use std::time::Duration;

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
    Sent::github("push", id, &format!(r#"{{"n":{n},"action":"pushed","repository":{{"full_name":"octocat/x"}}}}"#))
}
