//! `sql`: a statement and the event's end in one commit, on SQLite and PostgreSQL, tested from outside: real deliveries
//! to the real binary, real servers, and nodes that are killed.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

mod config;
#[path = "../support/cutter.rs"]
mod cutter;
#[path = "../support/failing_pooler.rs"]
mod failing_pooler;
mod kills;
mod on_postgres;
mod on_sqlite;
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
#[path = "../support/seed.rs"]
mod seed;
mod statement;
#[path = "../support/mod.rs"]
mod support;

use support::Sent;

/// The path of deliveries.
const IN: &str = "/in";

/// The config of a source with bodies such as `{"n":1,"text":"a"}` and a route with this action, in a store at this
/// URL. Equal bodies under two ids are two events here: tests send few different bodies and count rows.
fn config(store: &str, keys: &str, route: &str) -> String {
    format!(
        r#"store = "{store}"
[source.s]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n", text = "body.text", flag = "body.flag", none = "body.none" }}
{keys}
[source.s.once]
per = ["delivery"]
equal_bodies = "new"
[[source.s.route]]
name = "r"
{route}
"#
    )
}

fn number(id: &str, n: u64) -> Sent {
    Sent::github("push", id, &format!("{{\"n\":{n},\"text\":\"t{n}\",\"flag\":true}}"))
}

/// Values that would inject SQL if they were written into a statement.
const INJECTIONS: [&str; 12] = [
    "'; drop table sink; --",
    "' or '1'='1",
    "\\'; commit; --",
    "$1",
    "$$; drop table sink; $$",
    ":body",
    "?1",
    "\"; delete from events; --",
    "/* */; rollback",
    "' || (select id from events limit 1) || '",
    "%s {0} ${x}",
    "ü',''); vacuum; --",
];

/// A number that grows with `HOOKONCE_FULL`.
fn size(full: u64, small: u64) -> u64 {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { small }
}
