//! The config from outside: what loads, what it means, and the exact texts for what is wrong with it.

mod actions;
mod body_formats;
mod callers;
mod captured_delivery;
mod causes;
mod check;
mod elements;
mod event_kinds;
mod fuzz;
mod handshakes;
mod health;
mod identities;
mod key_publishers;
mod keys;
mod nats;
mod notifications;
mod receivers;
mod resolved;
mod schemes;
mod secret_paths;
mod secrets;
#[path = "../support/seed.rs"]
mod seed;
mod unsafe_configs;
mod unsigned;
mod user_presets;
mod value_types;
mod warnings;

use hookonce::internals::config::{self, Config};
use hookonce::internals::config::{ColorChoice, ConfigError};
use std::path::Path;

/// The whole config of the first user.
const SHORT: &str = r#"
[source.ghcr]
preset = "github-package"
path   = "/version/1"
secret = { env = "WEBHOOK_SECRET" }            # or a list while rotating

[[source.ghcr.route]]
name  = "jamiec_ts"
when  = 'package == "jamiec_ts"'
group = ["package"]
run   = { dir = "/", steps = ["docker compose pull", "docker compose up -d"], timeout = "10m" }
retry = { attempts = 3, first = "5s", longest = "1m" }
"#;

/// The same without the preset.
const LONG: &str = r#"
listen = "127.0.0.1:3142"
store  = "sqlite:hookonce.db"          # memory: · sqlite:PATH · postgres://… · redis://…
[admin]
listen = "127.0.0.1:3143"              # its own port; loopback by default
token  = { env = "HOOKONCE_ADMIN_TOKEN" }
[source.ghcr]
path   = "/version/1"                  # default: /in/<source name>
verify = { scheme = "github", secret = { env = "WEBHOOK_SECRET" } }   # "none" must be set explicitly
when   = 'tag == "latest"'             # false: ignored, 200, nothing stored. No route matches: the same
respond = "accepted"                   # or "done": wait (respond_within = "8s") and answer with the receipt
body_max = "25MB"
[source.ghcr.fields]
package    = "body.registry_package.name"
tag        = "body.registry_package.package_version.container_metadata.tag.name"
version_id = "body.registry_package.package_version.id"
sha        = "body.registry_package.package_version.version"
updated_at = "body.registry_package.updated_at"
namespace  = "body.registry_package.namespace"
repository = "body.repository.full_name"
commit     = "body.registry_package.package_version.target_oid"
[source.ghcr.once]
per    = ["delivery", "body"]          # each entry one identity: a name, or a list of names taken together
change = { of = ["package", "tag"], to = ["version_id", "sha"], order = "updated_at" }
keep   = "30d"
[[source.ghcr.route]]
name = "jamiec_ts"
[[source.ghcr.route.run]]
dir   = "/"
steps = ["docker compose pull", "docker compose up -d"]   # a string goes to the shell, a list is argv
"#;

fn env(name: &str) -> Option<String> {
    match name {
        "WEBHOOK_SECRET" | "A" => Some("s3cret-a-of-24-bytes-now".to_owned()),
        "B" => Some("s3cret-b-of-24-bytes-now".to_owned()),
        "HOOKONCE_ADMIN_TOKEN" => Some("t0ken-of-22-bytes-here".to_owned()),
        "URL" => Some("https://user:pass@example.com/hook".to_owned()),
        "TOKEN" => Some("Bearer s3cret-t".to_owned()),
        "WHSEC" => Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        "SECRET_PATH" => Some("/in/s/5ec4e7-n0-0ne-kn0ws\n".to_owned()),
        "SAME_PATH" => Some("/in/s/5ec4e7-n0-0ne-kn0ws".to_owned()),
        "SHORT_PATH" => Some("/in/s/5ec4e7-n0-0n".to_owned()),
        "RELATIVE_PATH" => Some("in/s/5ec4e7-n0-0ne-kn0ws".to_owned()),
        "QUERY_PATH" => Some("/in/s/5ec4e7-n0-0ne-kn0ws?5ec4e7".to_owned()),
        "SPACED_PATH" => Some("/in/s/5ec4e7-n0-0ne kn0ws".to_owned()),
        "LONG_PATH" => Some(format!("/in/s/{}", "5ec4e7".repeat(200))),
        "OWN_PATH" => Some("/healthz".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    config::parse(text, "hookonce.toml", Path::new("/etc"), &env)
}

#[track_caller]
fn fine(text: &str) -> Config {
    parse(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A config with one source that verifies nothing, has these fields, and these lines.
fn source(lines: &str) -> String {
    format!(
        "[source.s]\nverify = \"none\"\nfields = {{ tag = \"body.tag\", sha = \"body.sha\" }}\n{lines}\n[[source.s.route]]\n"
    )
}

/// A config with one route with these lines.
fn route(lines: &str) -> String {
    format!("{}{lines}\n", source(""))
}

/// Every problem of a config, as the user sees it.
#[track_caller]
fn check(text: &str, expected: &str) {
    let shown = match parse(text) {
        Err(problems) => problems.render(ColorChoice::Plain),
        Ok(config) => {
            config.warnings.iter().map(|warning| warning.render(ColorChoice::Plain)).collect::<Vec<_>>().join("\n")
        }
    };
    let expected = expected.strip_prefix('\n').unwrap_or(expected);
    assert!(shown == expected, "--- got\n{shown}--- expected\n{expected}---");
}
