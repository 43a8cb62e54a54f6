//! Settings that work, but probably not as intended: the exact texts.

use super::{check, route, source};

#[test]
fn a_change_without_an_order_is_warned_about() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { tag = "body.t", sha = "body.s" }
once = { change = { of = ["tag"], to = ["sha"] }, keep = "9d" }
[[source.g.route]]
"#,
        r#"
warning: `change` has no `order`, so its keys are kept forever
 --> hookonce.toml:4:19
  |
4 | once = { change = { of = ["tag"], to = ["sha"] }, keep = "9d" }
  |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `keep` does not apply: a delivery repeated after `keep` would look like a rollback
  |
hint: name a field that orders the changes: an increasing number or time
"#,
    );
}

#[test]
fn a_keep_shorter_than_the_redelivery_window_is_warned_about() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
once = { keep = "1d" }
[[source.g.route]]
"#,
        r#"
warning: `keep` is shorter than GitHub's redelivery window
 --> hookonce.toml:3:17
  |
3 | once = { keep = "1d" }
  |                 ^^^^ GitHub can redeliver for 3d
  |
hint: keep = "3d" or longer
"#,
    );
}

#[test]
fn one_secret_for_two_sources_is_warned_about() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
[[source.g.route]]
[source.h]
verify = "bearer"
secret = { env = "WEBHOOK_SECRET" }
[[source.h.route]]
"#,
        r#"
warning: sources `g` and `h` have the same secret
 --> hookonce.toml:6:10
  |
6 | secret = { env = "WEBHOOK_SECRET" }
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^ a delivery signed for one is accepted by the other
  |
hint: give each sender its own secret
"#,
    );
}

#[test]
fn several_secrets_for_two_sources_are_warned_about_once() {
    check(
        r#"[source.g]
verify = { scheme = "bearer", secret = [{ env = "A" }, { env = "B" }] }
[[source.g.route]]
[source.h]
verify = { scheme = "bearer", secret = [{ env = "A" }, { env = "B" }] }
[[source.h.route]]
"#,
        r#"
warning: sources `g` and `h` have the same secret
 --> hookonce.toml:5:40
  |
5 | verify = { scheme = "bearer", secret = [{ env = "A" }, { env = "B" }] }
  |                                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a delivery signed for one is accepted by the other
  |
hint: give each sender its own secret
"#,
    );
}

#[test]
fn a_filter_on_a_header_that_is_not_signed_is_warned_about() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { kind = "header.x-kind" }
when = 'kind == "push"'
[[source.g.route]]
"#,
        r#"
warning: `when` uses `kind`, which is not signed
 --> hookonce.toml:4:8
  |
4 | when = 'kind == "push"'
  |        ^^^^^^^^^^^^^^^^ anyone who repeats a delivery could change it
  |
hint: where it matters, take a value from the body
"#,
    );
}

#[test]
fn a_folder_that_does_not_exist_is_warned_about() {
    check(
        &route(r#"run = { dir = "nowhere", steps = ["true"] }"#),
        r#"
warning: the folder /etc/nowhere does not exist
 --> hookonce.toml:6:15
  |
6 | run = { dir = "nowhere", steps = ["true"] }
  |               ^^^^^^^^^ the steps will fail until it does
"#,
    );
}

#[test]
fn a_source_without_a_route_is_warned_about() {
    check(
        r#"[source.s]
verify = "none"
"#,
        r"
warning: source `s` has no route, so its events are only recorded
 --> hookonce.toml:1:9
  |
1 | [source.s]
  |         ^
  |
hint: [[source.s.route]] with `run` or `forward`
",
    );
}

#[test]
fn a_key_without_effect_is_warned_about() {
    check(
        &source(r#"respond_within = "8s""#),
        r#"
warning: `respond_within` has no effect
 --> hookonce.toml:4:1
  |
4 | respond_within = "8s"
  | ^^^^^^^^^^^^^^ the sender gets its response as soon as the event is stored
  |
hint: respond = "done" makes the sender wait
"#,
    );
    check(
        &route(
            r#"redelivery = "ignore"
rearm_after = "1s"
env = ["X"]"#,
        ),
        r#"
warning: `rearm_after` has no effect
 --> hookonce.toml:7:1
  |
7 | rearm_after = "1s"
  | ^^^^^^^^^^^ `redelivery` is "ignore"

warning: `env` has no effect
 --> hookonce.toml:8:1
  |
8 | env = ["X"]
  | ^^^ this route has no `run`
"#,
    );
}

#[test]
fn a_once_that_silently_replaces_the_one_of_a_preset_is_warned_about() {
    check(
        r#"[source.s]
preset = "github-package"
secret = { env = "A" }
once.keep = "60d"
[[source.s.route]]
"#,
        r#"
warning: `once` replaces the preset's whole `once`, including the keys it does not set
 --> hookonce.toml:4:1
  |
4 | once.keep = "60d"
  | ^^^^ neither `per` nor `change`: the defaults apply
  |
hint: `hookonce presets github-package` shows the keys to repeat
"#,
    );
}

#[test]
fn a_timeout_longer_than_the_sender_waits_is_warned_about() {
    check(
        r#"[source.s]
verify = "none"
respond = "done"
[[source.s.route]]
forward = { url = "http://a/", timeout = "9s" }
"#,
        r#"
warning: `timeout` is longer than the sender waits
 --> hookonce.toml:5:42
  |
5 | forward = { url = "http://a/", timeout = "9s" }
  |                                          ^^^^ `respond_within` is 8s
  |
hint: the sender gets 202 before the attempt has ended; raise `respond_within`, or lower `timeout`
"#,
    );
    let source = "store = 'sqlite:a.db'\n[source.s]\nverify = 'none'\nrespond = 'done'\nrespond_within = '1s'\n[[source.s.route]]\n";
    for route in [
        "run = { dir = '/', steps = ['true'], timeout = '2s' }",
        "sql = { statement = 'select 1', timeout = '2s' }",
        "publish = { nats = 'nats://a', subject = 'x', timeout = '2s' }",
    ] {
        for (written, warned) in [(route.to_owned(), 1), (route.replace("'2s'", "'1s'"), 0)] {
            let warnings = super::fine(&format!("{source}{written}\n")).warnings;
            let told = warnings.iter().filter(|warning| warning.title == "`timeout` is longer than the sender waits");
            assert_eq!(told.count(), warned, "{written}");
        }
    }
}
