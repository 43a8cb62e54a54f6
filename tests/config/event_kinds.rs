//! `kind`, the places of a field, `imported` and `api`, as users write them: the exact texts.

use super::{check, fine, source};
use hookonce::decide::github_kind::EventKindUse;
use hookonce::decide::source::ApiStyle;

#[test]
fn a_kind_is_written_in_one_of_two_ways() {
    for written in [
        r#"kind = { header = "X-Event", is = "push", shape = "body.commits" }"#,
        r#"kind = { header = "X-Event", is = { push = "body.commits", tag = "body.tag_name" } }"#,
    ] {
        let config = fine(&source(written));
        let kind = config.sources[0].kind.clone().expect("a kind");
        assert_eq!((kind.header.as_str(), kind.first()), ("x-event", "push"), "{written}");
        assert_eq!(config.sources[0].fields.kind_use(), None, "{written}");
    }
}

/// A member that the config names is not enough to tell GitHub's kinds apart.
#[test]
fn a_kind_of_github_that_the_config_describes_is_compared_with_all_of_them() {
    let text = "[source.s]\nverify = { scheme = \"github\", secret = { env = \"A\" } }\n\
        kind = { header = \"x-github-event\", is = { pull_request = \"body.pull_request\", novelty = \"body.novelty\" } }\n\
        [[source.s.route]]\n";
    assert_eq!(fine(text).sources[0].fields.kind_use(), Some(EventKindUse::Decides));
}

#[test]
fn a_kind_that_would_decide_nothing_or_too_much_is_refused() {
    check(
        &source(r#"kind = { header = "x-event" }"#),
        r#"
error: `kind` has no `is`
 --> hookonce.toml:4:8
  |
4 | kind = { header = "x-event" }
  |        ^^^^^^^^^^^^^^^^^^^^^^
  |
hint: kind = { header = "x-event", is = { push = "body.commits" } }

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"kind = { header = "x event", is = "push" }"#),
        r#"
error: `x event` cannot be the name of a header
 --> hookonce.toml:4:19
  |
4 | kind = { header = "x event", is = "push" }
  |                   ^^^^^^^^^ letters, digits and -, such as "x-github-event"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"kind = { header = "x-event", is = "push" }"#),
        r#"
error: `kind` does not say what only bodies of the kind `push` have
 --> hookonce.toml:4:35
  |
4 | kind = { header = "x-event", is = "push" }
  |                                   ^^^^^^ the header is not signed: the body must show its kind
  |
hint: shape = "body.push"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"kind = { header = "x-event", is = { a = "body.x", b = "body.x.y" } }"#),
        r#"
error: a body of the kind `b` would also have the shape of `a`
 --> hookonce.toml:4:55
  |
4 | kind = { header = "x-event", is = { a = "body.x", b = "body.x.y" } }
  |                                                       ^^^^^^^^^^ the header is not signed: it must not decide between them
  |
hint: name an object or array that only bodies of this kind have

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"kind = { header = "x-event", is = { a = "header.x" } }"#),
        r#"
error: the shape of the kind `a` is header.x, which is not in a JSON body
 --> hookonce.toml:4:41
  |
4 | kind = { header = "x-event", is = { a = "header.x" } }
  |                                         ^^^^^^^^^^ the header is not signed: the body must show its kind
  |
hint: "body.a"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"kind = { header = "x-github-event", is = { push = "body.repository" } }"#),
        r#"
error: the shape of the kind `push` is a member that many kinds of events have
 --> hookonce.toml:4:51
  |
4 | kind = { header = "x-github-event", is = { push = "body.repository" } }
  |                                                   ^^^^^^^^^^^^^^^^^ a captured delivery of another kind would pass for this one
  |
hint: name a member that only bodies of this kind have

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"kind = { header = "x-event", is = {}, shape = "body.a" }"#),
        r#"
error: `shape` is for one kind, and `is` has the shape of each
 --> hookonce.toml:4:39
  |
4 | kind = { header = "x-event", is = {}, shape = "body.a" }
  |                                       ^^^^^
  |
hint: remove it

1 error in hookonce.toml; nothing was started
"#,
    );
}

const SIGNED: &str = "[source.s]\nverify = { scheme = \"github\", secret = { env = \"A\" } }\n";

#[test]
fn a_field_is_signed_if_all_of_its_places_are() {
    check(
        &format!(
            "{SIGNED}fields = {{ tag = [\"body.a\", \"header.x-tag\"] }}\nonce = {{ per = [[\"tag\"]] }}\n[[source.s.route]]\n"
        ),
        r#"
error: `once.per` uses `tag`, which is not signed
 --> hookonce.toml:4:18
  |
4 | once = { per = [["tag"]] }
  |                  ^^^^^ anyone who repeats a delivery could change it
  |
hint: take a value from the body

1 error in hookonce.toml; nothing was started
"#,
    );
    fine(&format!(
        "{SIGNED}fields = {{ tag = {{ at = [\"body.a\", \"body.b\"], trim = true }} }}\nonce = {{ per = [[\"tag\"]] }}\n[[source.s.route]]\n"
    ));
}

#[test]
fn the_places_of_a_field_are_some_and_differ() {
    check(
        &format!(
            "{SIGNED}fields = {{ a = [], b = [\"body.b\", \"body.b\"], c = [\"body.c\", \"c\"] }}\n[[source.s.route]]\n"
        ),
        r#"
error: a field has no place
 --> hookonce.toml:3:16
  |
3 | fields = { a = [], b = ["body.b", "body.b"], c = ["body.c", "c"] }
  |                ^^ the list is empty
  |
hint: ["body.a.b", "body.c"]: the first place with a value counts

error: a field has the place body.b twice
 --> hookonce.toml:3:35
  |
3 | fields = { a = [], b = ["body.b", "body.b"], c = ["body.c", "c"] }
  |                                   ^^^^^^^^

error: `c` is not a place in a delivery
 --> hookonce.toml:3:61
  |
3 | fields = { a = [], b = ["body.b", "body.b"], c = ["body.c", "c"] }
  |                                                             ^^^ `c` must begin with `body.`, `form.`, `header.` or `query.`, or be `path`
  |
hint: body.a.0.b, body."a.b", form.x, header.x, query.x or path

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn imported_names_signed_fields() {
    let config = fine(&source("imported = [\"tag\", \"sha\"]"));
    assert_eq!(config.sources[0].once.imported.as_ref().map(Vec::len), Some(2));
    check(
        &source("imported = [\"tag\", \"shaa\"]"),
        r#"
error: `imported` names a field that is not declared: `shaa`
 --> hookonce.toml:4:20
  |
4 | imported = ["tag", "shaa"]
  |                    ^^^^^^ fields of source `s`: tag, sha
  |
hint: did you mean `sha`?

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_api_has_its_key_in_a_header() {
    let verify = "[source.s]\nverify = { scheme = \"bearer\", secret = { env = \"A\" } }\n";
    let lines = "api = true\ndelivery = \"header.x-key\"\nrespond = \"done\"\n[[source.s.route]]\n";
    assert_eq!(fine(&format!("{verify}{lines}")).sources[0].api_style, ApiStyle::Api);
    check(
        &format!("{verify}api = true\nrespond = \"done\"\n[[source.s.route]]\n"),
        r#"
error: `api` needs `delivery`, the header with the key of a request
 --> hookonce.toml:3:1
  |
3 | api = true
  | ^^^
  |
hint: delivery = "header.idempotency-key"

1 error in hookonce.toml; nothing was started
"#,
    );
}
