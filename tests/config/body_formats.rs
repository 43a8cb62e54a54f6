//! Bodies that are forms, or JSON under another name: the exact texts.

use super::{check, fine};
use hookonce::decide::verify::BodyFormat;

const VERIFY: &str = "verify = { scheme = \"hmac\", header = \"x-sig\", secret = { env = \"A\" } }";

#[test]
fn a_source_that_names_a_value_of_a_form_reads_forms() {
    for lines in ["fields = { a = \"form.a\" }", "delivery = \"form.id\""] {
        let config = fine(&format!("[source.s]\n{VERIFY}\n{lines}\n[[source.s.route]]\n"));
        assert_eq!(*config.sources[0].verify.format(), BodyFormat::Form, "{lines}");
    }
    let config = fine(&format!("[source.s]\n{VERIFY}\nfields = {{ a = \"body.a\" }}\n[[source.s.route]]\n"));
    assert_eq!(*config.sources[0].verify.format(), BodyFormat::Json);
}

#[test]
fn forms_and_json_are_not_mixed() {
    check(
        r#"[source.s]
verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" } }
delivery = "body.id"
fields = { a = "form.a", b = "header.b" }
[[source.s.route]]
"#,
        r#"
error: a source reads its bodies as forms or as JSON, not as both
 --> hookonce.toml:4:16
  |
4 | fields = { a = "form.a", b = "header.b" }
  |                ^^^^^^^^ body.id is used, too
  |
hint: form.x is a value of application/x-www-form-urlencoded, body.x one of JSON

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
preset = "slack-command"
secret = { env = "A" }
fields = { a = "body.a" }
[[source.s.route]]
"#,
        r#"
error: a source reads its bodies as forms or as JSON, not as both
 --> hookonce.toml:4:16
  |
4 | fields = { a = "body.a" }
  |                ^^^^^^^^ form.trigger_id is used, too
  |
hint: form.x is a value of application/x-www-form-urlencoded, body.x one of JSON

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn the_form_of_github_is_json() {
    check(
        r#"[source.s]
verify = { scheme = "github", secret = { env = "A" } }
fields = { a = "form.payload" }
[[source.s.route]]
"#,
        r#"
error: `form.payload` is never there
 --> hookonce.toml:3:16
  |
3 | fields = { a = "form.payload" }
  |                ^^^^^^^^^^^^^^ a form of this sender has one value, `payload`, which is JSON
  |
hint: body.x is a value of that JSON

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_content_type_is_one() {
    check(
        r#"[source.s]
verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" } }
content_type = ["application/csp-report", "json"]
[[source.s.route]]
"#,
        r#"
error: `json` is not a content type
 --> hookonce.toml:3:16
  |
3 | content_type = ["application/csp-report", "json"]
  |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ expected a type and a subtype, or */* for any
  |
hint: content_type = "application/csp-report"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" } }
content_type = "application/csp-report; charset=utf-8"
fields = { a = "form.a" }
[[source.s.route]]
"#,
        r#"
error: `content_type` is for JSON, and this source reads forms
 --> hookonce.toml:3:1
  |
3 | content_type = "application/csp-report; charset=utf-8"
  | ^^^^^^^^^^^^ form.a is used

error: `application/csp-report; charset=utf-8` is not a content type
 --> hookonce.toml:3:16
  |
3 | content_type = "application/csp-report; charset=utf-8"
  |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ without what follows the `;`
  |
hint: content_type = "application/csp-report"

2 errors in hookonce.toml; nothing was started
"#,
    );
}
