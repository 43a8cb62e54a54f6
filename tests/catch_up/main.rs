//! `catch_up`: a node asks its senders for what it has missed. Real deliveries to the real binary; the senders' APIs are
//! servers of ours that behave as documented.
#![expect(clippy::unwrap_used, reason = "a failing `unwrap` says where a test failed")]

mod backlog;
mod command;
mod config;
#[path = "../support/config_errors.rs"]
mod config_errors;
mod credentials;
mod gitlab;
mod outages;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/sender_api.rs"]
mod sender_api;
#[path = "../support/mod.rs"]
mod support;

use hookonce::decide::time::{Duration, Timestamp};
use sender_api::{SenderApi, TOKEN, now};
use serde_json::Value as Json;
use support::{House, Sent, payload};

/// The path of the package source.
const GHCR: &str = "/version/1";
const KIND: &str = "registry_package";

/// A config with a source of packages that is caught up at this API, with these further keys of `catch_up`.
fn source(api: &SenderApi, keys: &str) -> String {
    format!(
        r#"
[source.ghcr]
preset = "github-package"
path   = "{GHCR}"
secret = {{ env = "SECRET" }}
[source.ghcr.catch_up]
repository = "octo/app"
hook       = 17
token      = {{ env = "CATCH_UP_TOKEN" }}
api        = "{}"
pause      = "0s"
{keys}
[[source.ghcr.route]]
name = "deploy"
when_busy = "queue"
at_once = 8
run = {{ steps = ["echo $HOOKONCE_FIELD_VERSION_ID >> runs"] }}
"#,
        api.address
    )
}

/// Starts the node, with the token in its environment.
fn start(house: &mut House) {
    let mut command = house.command(&["serve"]);
    command.env("CATCH_UP_TOKEN", TOKEN);
    house.try_start_by(command).unwrap();
}

/// The delivery id of the nth push.
fn id(n: u64) -> String {
    format!("{n:08x}-0000-4000-8000-00000000cafe")
}

/// The nth push of an image, each later than the one before.
fn push(n: u64) -> Sent {
    let mut body: Json = serde_json::from_str(&payload("ghcr_latest.json")).unwrap();
    let package = &mut body["registry_package"];
    let at = Timestamp::parse("2026-02-07T16:20:00Z").unwrap() + Duration::from_secs(n);
    package["updated_at"] = at.to_string().into();
    package["package_version"]["id"] = n.into();
    package["package_version"]["version"] = format!("sha256:{n:064x}").into();
    Sent::github(KIND, &id(n), &body.to_string())
}

/// Records pushes that no node received, one each minute until this long ago.
fn miss(api: &SenderApi, pushes: std::ops::Range<u64>, ago: Duration) {
    let many = pushes.end;
    for n in pushes {
        let at = now() - ago - Duration::from_mins(many - n);
        api.missed(&id(n), KIND, at, push(n));
    }
}

/// How often a catch-up has ended, by the log.
fn ended(house: &House) -> usize {
    house.log().lines().filter(|line| line.contains("catch_up") && line.contains("listed=")).count()
}

/// The numbers of the runs, in ascending order.
fn runs(house: &House) -> Vec<u64> {
    let mut runs: Vec<_> = house.lines("runs").iter().map(|line| line.parse().unwrap()).collect();
    runs.sort_unstable();
    runs
}
