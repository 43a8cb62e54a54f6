//! The dashboard in a real browser, against the real binary with real deliveries.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod assets;
mod browser;
mod budgets;
mod event;
mod events;
mod first_visit;
mod handshakes;
mod hostile_text;
mod layout;
mod login;
#[path = "../support/nginx.rs"]
mod nginx;
mod orphans;
mod polled_source;
mod proxy;
#[cfg(feature = "nats")]
mod quarantine;
mod reconnect;
#[path = "../support/redis.rs"]
mod redis;
mod registers;
mod screenshots;
#[cfg(feature = "nats")]
#[path = "../nats/server.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod server;
#[path = "../support/mod.rs"]
mod support;
mod two_nodes;

use browser::Browser;
use serde_json::json;
use support::{House, Sent};

/// Where deploys arrive.
const DEPLOY: &str = "/in/deploys";
/// Where orders arrive.
const ORDER: &str = "/in/orders";

/// A duplicate window longer than any test.
#[cfg(feature = "nats")]
const LONG: std::time::Duration = std::time::Duration::from_hours(2);

/// Two sources: deploys that run a command, orders that are only recorded.
fn config(step: &str) -> String {
    format!(
        r#"
[source.deploys]
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
when   = 'tag != "nightly"'
fields = {{ app = "body.app", tag = "body.tag", build = "body.build", at = "body.at" }}
[source.deploys.once]
per    = ["delivery", "body"]
change = {{ of = ["app", "tag"], to = ["build"], order = "at" }}
[[source.deploys.route]]
name = "run"
run  = {{ steps = [{step}] }}
[source.orders]
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ kind = "body.kind", customer = "body.customer" }}
[[source.orders.route]]
name = "record"
"#,
        step = json!(step)
    )
}

/// A build of an app to deploy; each delivery of it has its own bytes.
fn deploy(id: &str, app: &str, tag: &str, build: u64) -> Sent {
    let body = json!({ "app": app, "tag": tag, "build": build, "at": build, "as": id });
    Sent::github("push", id, &body.to_string())
}

fn order(id: &str, kind: &str, customer: &str) -> Sent {
    Sent::github("push", id, &json!({ "kind": kind, "customer": customer }).to_string())
}

/// A browser on this page of the node.
async fn visit(house: &House, path: &str) -> Browser {
    let browser = Browser::new(1280, 900).await;
    browser.open(&house.admin_url(path)).await;
    browser
}

/// The last digits of an event's id, as the page shows them.
fn short(event: &str) -> &str {
    &event[event.len() - 8..]
}

/// Lets commands continue that wait for this file.
fn touch(house: &House, name: &str) {
    std::fs::write(house.path(name), "").unwrap();
}
