//! Fields, expressions and identities: the exact texts.

use super::{check, route, source};
use hookonce::decide::source::Identity;

#[test]
fn an_undeclared_field_is_reported_with_a_suggestion() {
    check(
        &source(r#"once = { per = [["tag", "shaa"]] }"#),
        r#"
error: `once.per` names a field that is not declared: `shaa`
 --> hookonce.toml:4:25
  |
4 | once = { per = [["tag", "shaa"]] }
  |                         ^^^^^^ fields of source `s`: tag, sha
  |
hint: did you mean `sha`?

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"once = { change = { of = ["tag"], to = ["sha"], order = "tme" } }"#),
        r#"
error: `change.order` names a field that is not declared: `tme`
 --> hookonce.toml:4:57
  |
4 | once = { change = { of = ["tag"], to = ["sha"], order = "tme" } }
  |                                                         ^^^^^ fields of source `s`: tag, sha
  |
hint: did you mean `tag`?

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"group = ["tagg"]"#),
        r#"
error: `group` names a field that is not declared: `tagg`
 --> hookonce.toml:6:10
  |
6 | group = ["tagg"]
  |          ^^^^^^ fields of source `s`: tag, sha
  |
hint: did you mean `tag`?

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_unknown_name_in_an_expression_is_underlined_inside_the_string() {
    check(
        &source(r#"when = 'tag == "latest" && shaa == "1"'"#),
        r#"
error: `when` cannot be read
 --> hookonce.toml:4:28
  |
4 | when = 'tag == "latest" && shaa == "1"'
  |                            ^^^^ `shaa` is not a declared field; fields: tag, sha
  |
hint: did you mean `sha`?

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"when = "tag == \"é\" && tga == \"x\"""#),
        r#"
error: `when` cannot be read
 --> hookonce.toml:6:25
  |
6 | when = "tag == \"é\" && tga == \"x\""
  |                         ^^^ `tga` is not a declared field; fields: tag, sha
  |
hint: did you mean `tag`?

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_identity_on_a_header_that_is_not_signed_is_refused() {
    check(
        r#"[source.g]
verify = { scheme = "github", secret = { env = "A" } }
fields = { kind = "header.x-kind", no = "body.no" }
once = { per = ["kind"], change = { of = ["no"], to = ["kind"], order = "kind" } }
[[source.g.route]]
"#,
        r#"
error: `once.per` uses `kind`, which is not signed
 --> hookonce.toml:4:17
  |
4 | once = { per = ["kind"], change = { of = ["no"], to = ["kind"], order = "kind" } }
  |                 ^^^^^^ anyone who repeats a delivery could change it
  |
hint: take a value from the body

error: `change.to` uses `kind`, which is not signed
 --> hookonce.toml:4:56
  |
4 | once = { per = ["kind"], change = { of = ["no"], to = ["kind"], order = "kind" } }
  |                                                        ^^^^^^ anyone who repeats a delivery could change it
  |
hint: take a value from the body

error: `change.order` uses `kind`, which is not signed
 --> hookonce.toml:4:73
  |
4 | once = { per = ["kind"], change = { of = ["no"], to = ["kind"], order = "kind" } }
  |                                                                         ^^^^^^ anyone who repeats a delivery could change it
  |
hint: take a value from the body

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn delivery_cannot_be_an_identity_without_a_delivery_id() {
    check(
        &source(r#"once = { per = ["delivery"] }"#),
        r#"
error: `once.per` names the delivery id, but this source has none
 --> hookonce.toml:4:17
  |
4 | once = { per = ["delivery"] }
  |                 ^^^^^^^^^^
  |
hint: set delivery = "header.x-id", or use "body" or fields

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn delivery_and_body_are_not_taken_together_with_fields() {
    check(
        &source(r#"once = { per = [["body", "tag"], []] }"#),
        r#"
error: `body` cannot be taken together with fields
 --> hookonce.toml:4:18
  |
4 | once = { per = [["body", "tag"], []] }
  |                  ^^^^^^ it is an identity of its own
  |
hint: write it outside the inner list: per = ["body", […]]

error: an identity of `once.per` is empty
 --> hookonce.toml:4:34
  |
4 | once = { per = [["body", "tag"], []] }
  |                                  ^^ every delivery would be the same event

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_repeated_identity_or_field_is_refused() {
    check(
        &source(r#"once = { per = ["tag", ["tag"], ["sha", "sha"]] }"#),
        r#"
error: `once.per` lists the same thing twice
 --> hookonce.toml:4:24
  |
4 | once = { per = ["tag", ["tag"], ["sha", "sha"]] }
  |                        ^^^^^^^

error: `once.per` lists the same thing twice
 --> hookonce.toml:4:41
  |
4 | once = { per = ["tag", ["tag"], ["sha", "sha"]] }
  |                                         ^^^^^

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_source_without_identities_is_refused() {
    check(
        &source("once = { per = [] }"),
        r#"
error: `once.per` is empty
 --> hookonce.toml:4:16
  |
4 | once = { per = [] }
  |                ^^ no delivery would ever be a duplicate
  |
hint: equal_bodies = "new", if the sender's equal deliveries must act each time

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source("once = { change = { of = [] } }"),
        r"
error: `change` has no `to`
 --> hookonce.toml:4:19
  |
4 | once = { change = { of = [] } }
  |                   ^^^^^^^^^^^ both `of` and `to` are needed

error: `change.of` is empty
 --> hookonce.toml:4:26
  |
4 | once = { change = { of = [] } }
  |                          ^^ at least one field is needed

2 errors in hookonce.toml; nothing was started
",
    );
}

#[test]
fn two_fields_that_would_be_one_variable_are_refused() {
    check(
        r#"[source.s]
verify = "none"
[source.s.fields]
tag = "body.a"
Tag = "body.b"
[[source.s.route]]
"#,
        r#"
error: the fields `tag` and `Tag` would be one variable
 --> hookonce.toml:5:1
  |
5 | Tag = "body.b"
  | ^^^ a command would get both as HOOKONCE_FIELD_TAG
  |
hint: rename one of them

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_must_have_a_name_that_can_be_written_everywhere() {
    check(
        r#"[source.s]
verify = "none"
[source.s.fields]
ver-sion = "body.a"
body = "body.b"
no = { trim = true }
x = "$.c"
[[source.s.route]]
"#,
        r#"
error: `ver-sion` cannot be the name of a field
 --> hookonce.toml:4:1
  |
4 | ver-sion = "body.a"
  | ^^^^^^^^ letters, digits and _, not beginning with a digit

error: `body` cannot be the name of a field
 --> hookonce.toml:5:1
  |
5 | body = "body.b"
  | ^^^^ it is a reserved word in `once.per` and in expressions
  |
hint: call it `body_` or something else

error: field `no` does not say where it is
 --> hookonce.toml:6:1
  |
6 | no = { trim = true }
  | ^^ `at` is missing
  |
hint: at = "body.a.b", or form.x, header.x, query.x, path

error: `$.c` is not a place in a delivery
 --> hookonce.toml:7:5
  |
7 | x = "$.c"
  |     ^^^^^ `$.c` must begin with `body.`, `form.`, `header.` or `query.`, or be `path`
  |
hint: body.a.0.b, body."a.b", form.x, header.x, query.x or path

4 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_problem_in_a_preset_points_into_the_preset() {
    check(
        r#"[source.s]
preset = "github-package"
secret = { env = "A" }
fields = { updated_at = "header.date" }
[[source.s.route]]
"#,
        r#"
error: `change.order` uses `updated_at`, which is not signed
  --> preset github-package:20:73
   |
20 | change = { of = ["package", "tag"], to = ["version_id", "sha"], order = "updated_at" }
   |                                                                         ^^^^^^^^^^^^ anyone who repeats a delivery could change it
   |
hint: take a value from the body

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_id_that_the_signature_does_not_cover_is_not_signed_whatever_the_config_says() {
    check(
        r#"[source.s]
verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" } }
delivery = "header.x-id"
signed = true
[[source.s.route]]
"#,
        r#"
error: `signed` is true, but the signature does not cover the delivery id
 --> hookonce.toml:4:10
  |
4 | signed = true
  |          ^^^^ anyone who repeats a delivery could change header.x-id
  |
hint: over = "{id}.{body}", if the sender signs both; else remove `signed`

1 error in hookonce.toml; nothing was started
"#,
    );
    for covered in [
        "verify = \"bearer\"\nsecret = { env = \"A\" }\ndelivery = \"header.x-id\"",
        "verify = \"none\"\ndelivery = \"header.x-id\"",
        "verify = \"github\"\nsecret = { env = \"A\" }\ndelivery = \"body.id\"",
    ] {
        super::fine(&format!("[source.s]\n{covered}\nsigned = true\n[[source.s.route]]\n"));
    }
}

#[test]
fn unauthenticated_callers_cannot_be_distinguished_by_values_outside_their_keys() {
    let config = |verify: &str, header: &str| {
        format!(
            "[source.s]\npreset = \"idempotency-key\"\n{verify}\n[[source.s.route]]\n\
             forward = {{ url = \"http://127.0.0.1:1/\", headers = [\"{header}\"] }}\n"
        )
    };
    for header in ["cookie", "x-api-key", "X-Auth-Token", "private-token", "x-forwarded-user", "dpop"] {
        let problems = super::parse(&config("verify = \"none\"", header)).expect_err("it is refused").to_string();
        let told = format!("callers with different `header.{}` would share their keys", header.to_lowercase());
        assert!(problems.contains(&told), "{problems}");
        super::fine(&config("verify = \"bearer\"\nsecret = { env = \"A\" }", header));
    }
    super::fine(&config("verify = \"none\"", "authorization"));
    super::fine(&config("verify = \"none\"", "accept-language"));
    for (field, action) in [
        ("header.x-api-key", "forward = { url = \"http://127.0.0.1:1/\", set = { x-api-key = \"{k}\" } }"),
        ("header.cookie", "run = { steps = [\"true\"] }"),
        ("query.token", "forward = { url = \"http://127.0.0.1:1/?token={k}\" }"),
    ] {
        let lines = format!("verify = \"none\"\nfields = {{ k = \"{field}\" }}");
        let text = format!("[source.s]\npreset = \"idempotency-key\"\n{lines}\n[[source.s.route]]\n{action}\n");
        let problems = super::parse(&text).expect_err("it is refused").to_string();
        assert!(problems.contains(&format!("callers with different `{field}` would share their keys")), "{problems}");
    }
}

/// The identities of a source, and which of them is implied.
fn implied(lines: &str) -> (Vec<Identity>, Option<Identity>) {
    let text = format!("[source.s]\nsecret = {{ env = \"A\" }}\n{lines}\n[[source.s.route]]\n");
    let once = super::fine(&text).sources[0].once.clone();
    (once.per, once.implied)
}

#[test]
fn the_signed_content_is_an_implied_identity_if_the_id_is_unsigned_and_no_identity_uses_the_body() {
    use Identity::{Body, Delivery, Named, Signed};
    let hmac = |over: &str, rest: &str| {
        format!("verify = {{ scheme = \"hmac\", header = \"x-sig\"{over} }}\ndelivery = \"header.x-id\"\n{rest}")
    };
    let timed = ", over = \"{timestamp}.{body}\", timestamp = \"header.x-time\"";
    let in_body = ", over = \"{timestamp}.{body}\", timestamp = \"body.at\"";
    let hash = "fields = { hash = \"body.hash\" }\nonce = { per = [\"delivery\", \"hash\"] }";
    let time = "fields = { t = \"header.x-time\" }\nonce = { per = [\"delivery\", [\"t\"]] }";
    let ix = hookonce::decide::field::FieldIndex(0);
    for (lines, per, added) in [
        ("verify = \"github\"".to_owned(), vec![Delivery, Body], Some(Body)),
        ("verify = \"github\"\nonce = { per = [\"delivery\", \"body\"] }".to_owned(), vec![Delivery, Body], None),
        (hmac("", ""), vec![Delivery, Body], Some(Body)),
        (hmac("", hash), vec![Delivery, Named(vec![ix])], None),
        (hmac(timed, ""), vec![Delivery, Signed], Some(Signed)),
        (hmac(timed, time), vec![Delivery, Named(vec![ix]), Signed], Some(Signed)),
        (hmac(in_body, ""), vec![Delivery, Body], Some(Body)),
        (hmac(", over = \"{id}.{body}\"", ""), vec![Delivery], None),
        ("verify = \"bearer\"\ndelivery = \"header.x-id\"".to_owned(), vec![Delivery], None),
        ("verify = { scheme = \"hmac\", header = \"x-sig\" }".to_owned(), vec![Body], None),
        ("verify = \"github\"\nonce = { equal_bodies = \"new\" }".to_owned(), vec![Delivery], None),
    ] {
        assert_eq!(implied(&lines), (per, added), "{lines}");
    }
}

#[test]
fn equal_bodies_set_to_new_is_warned_about_and_refused_without_effect() {
    check(
        r#"[source.s]
verify = { scheme = "github", secret = { env = "A" } }
once = { equal_bodies = "new" }
[[source.s.route]]
"#,
        r#"
warning: anyone who captures a delivery can make it act again
 --> hookonce.toml:3:25
  |
3 | once = { equal_bodies = "new" }
  |                         ^^^^^ the same bytes under another id are a new event, since the signature does not cover the id
  |
hint: remove it, unless the sender sends equal bodies that must act each time
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "github", secret = { env = "A" } }
once = { per = ["delivery", "body"], equal_bodies = "new" }
[[source.s.route]]
"#,
        r#"
error: `equal_bodies` is "new", but `per` makes equal bodies one event
 --> hookonce.toml:3:53
  |
3 | once = { per = ["delivery", "body"], equal_bodies = "new" }
  |                                                     ^^^^^ the body is an identity
  |
hint: leave one of them out

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "standard-webhooks", secret = { env = "WHSEC" } }
once = { equal_bodies = "duplicate" }
[[source.s.route]]
"#,
        r#"
warning: `equal_bodies` has no effect
 --> hookonce.toml:3:25
  |
3 | once = { equal_bodies = "duplicate" }
  |                         ^^^^^^^^^^^ the signature covers the delivery id, or there is no delivery id
  |
hint: per = ["delivery", "body"], if equal bodies are one event
"#,
    );
}
