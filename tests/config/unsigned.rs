//! Values that no signature covers: where they are used, and the kind of event among them. The exact texts.

use super::{check, fine, source};
use hookonce::decide::github_kind::EventKindUse;

#[test]
fn a_value_that_is_not_signed_is_warned_about_wherever_it_is_used() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { where = "query.where", team = "header.x-team", to = "path", tag = "body.tag" }
[[source.g.route]]
group = ["team"]
run = { dir = "/{where}", steps = [["deploy", "{tag}", "--to={to}"]] }
[[source.g.route]]
publish = { nats = "nats://h:4222", subject = "a.{team}" }
[[source.g.route]]
forward = { url = "https://{team}.example.com/", set = { x-to = "{to}" } }
[[source.g.route]]
sql = "insert into t values (:where)"
"#,
        r#"
warning: `team` is not signed: it comes from header.x-team
 --> hookonce.toml:5:10
  |
5 | group = ["team"]
  |          ^^^^^^ anyone who has captured a delivery can send it again with another value
  |
hint: where it matters, take a value from the body

warning: `{where}` is not signed: it comes from query.where
 --> hookonce.toml:6:17
  |
6 | run = { dir = "/{where}", steps = [["deploy", "{tag}", "--to={to}"]] }
  |                 ^^^^^^^ anyone who has captured a delivery can send it again with another value
  |
hint: where it matters, take a value from the body

warning: `{to}` is not signed: it comes from path
 --> hookonce.toml:6:62
  |
6 | run = { dir = "/{where}", steps = [["deploy", "{tag}", "--to={to}"]] }
  |                                                              ^^^^ anyone who has captured a delivery can send it again with another value
  |
hint: where it matters, take a value from the body

warning: `{team}` is not signed: it comes from header.x-team
 --> hookonce.toml:8:50
  |
8 | publish = { nats = "nats://h:4222", subject = "a.{team}" }
  |                                                  ^^^^^^ anyone who has captured a delivery can send it again with another value
  |
hint: where it matters, take a value from the body

warning: `{team}` is not signed: it comes from header.x-team
  --> hookonce.toml:10:28
   |
10 | forward = { url = "https://{team}.example.com/", set = { x-to = "{to}" } }
   |                            ^^^^^^ anyone who has captured a delivery can send it again with another value
   |
hint: where it matters, take a value from the body

warning: `{to}` is not signed: it comes from path
  --> hookonce.toml:10:66
   |
10 | forward = { url = "https://{team}.example.com/", set = { x-to = "{to}" } }
   |                                                                  ^^^^ anyone who has captured a delivery can send it again with another value
   |
hint: where it matters, take a value from the body

warning: `:where` is not signed: it comes from query.where
  --> hookonce.toml:12:30
   |
12 | sql = "insert into t values (:where)"
   |                              ^^^^^^ anyone who has captured a delivery can send it again with another value
   |
hint: where it matters, take a value from the body
"#,
    );
}

#[test]
fn githubs_kind_is_compared_with_the_body_and_not_warned_about() {
    let text = r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { kind = "header.x-github-event" }
when = 'kind == "push"'
[[source.g.route]]
publish = { nats = "nats://h:4222", subject = "github.{kind}" }
"#;
    check(text, "");
    let used = |text: &str| fine(text).sources[0].fields.kind_use();
    assert_eq!(used(text), Some(EventKindUse::Decides));
    let forward = r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
[[source.g.route]]
forward = { url = "http://h/", headers = ["x-github-event"] }
"#;
    assert_eq!(used(forward), Some(EventKindUse::PassedOn));
    assert_eq!(used(&forward.replace(", headers = [\"x-github-event\"]", "")), None);
    assert_eq!(used(&forward.replace("github\", secret", "bearer\", secret")), None, "a token covers every header");
    let hmac = forward.replace("\"github\"", "\"hmac\", header = \"x-hub-signature-256\"");
    assert_eq!(used(&hmac), Some(EventKindUse::PassedOn));
}

#[test]
fn a_kind_is_not_described_by_a_member_that_many_kinds_have() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { kind = "header.x-github-event" }
kinds = { novelty = "body.repository.id" }
when = 'kind == "novelty"'
[[source.g.route]]
"#,
        r#"
error: `kinds.novelty` names a member that many kinds of events have
 --> hookonce.toml:4:21
  |
4 | kinds = { novelty = "body.repository.id" }
  |                     ^^^^^^^^^^^^^^^^^^^^ a captured delivery of another kind would pass for this one
  |
hint: name a member that only bodies of this kind have

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn unused_kinds_and_kinds_outside_the_body_are_reported() {
    check(
        &source(r#"kinds = { novelty = "body.novelty" }"#),
        r#"
warning: `kinds` has no effect
 --> hookonce.toml:4:1
  |
4 | kinds = { novelty = "body.novelty" }
  | ^^^^^ nothing in this source uses x-github-event
  |
hint: use a field such as kind = "header.x-github-event" in `when`, or remove it
"#,
    );
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { kind = "header.x-github-event" }
kinds = { novelty = "header.x-novelty", "Other Kind" = "body.a" }
when = 'kind == "novelty"'
[[source.g.route]]
"#,
        r#"
error: `kinds.novelty` is header.x-novelty, and only the body is signed
 --> hookonce.toml:4:21
  |
4 | kinds = { novelty = "header.x-novelty", "Other Kind" = "body.a" }
  |                     ^^^^^^^^^^^^^^^^^^ a member that every body of this kind has
  |
hint: novelty = "body.novelty"

error: `Other Kind` cannot be a kind of event
 --> hookonce.toml:4:41
  |
4 | kinds = { novelty = "header.x-novelty", "Other Kind" = "body.a" }
  |                                         ^^^^^^^^^^^^ lower-case letters, digits and _, as the header names it

2 errors in hookonce.toml; nothing was started
"#,
    );
}
