//! What would be believed, shown or run though it must not be.

use super::{check, route, source};

#[test]
fn what_a_sender_authenticates_itself_with_is_no_field() {
    check(
        "[source.s]\nverify = { scheme = \"bearer\", secret = { env = \"A\" } }\nfields = { tok = \"header.authorization\" }\n[[source.s.route]]\n",
        r#"
error: the field `tok` is what the sender authenticates itself with
 --> hookonce.toml:3:1
  |
3 | fields = { tok = "header.authorization" }
  | ^^^^^^ header.authorization must not be logged, stored or passed on
  |
hint: take a value that is no secret

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn two_sources_do_not_share_a_scope() {
    check(
        "[source.a]\nverify = \"none\"\n[[source.a.route]]\n[source.b]\nverify = \"none\"\nscope = \"a\"\n[[source.b.route]]\n",
        r#"
error: two sources have the scope `a`
 --> hookonce.toml:6:9
  |
6 | scope = "a"
  |         ^^^ also the scope of source `a`
  |
hint: a delivery of one would be a duplicate of the other's; give each a scope of its own

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_is_neither_a_program_nor_the_text_of_one() {
    check(
        &route(
            r#"run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["python3.11", "-c", "{tag}"], ["echo", "-c", "{tag}"]] }"#,
        ),
        r#"
error: `{tag}` is the program itself
 --> hookonce.toml:6:31
  |
6 | run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["python3.11", "-c", "{tag}"], ["echo", "-c", "{tag}"]] }
  |                               ^^^^^ the sender could run what it likes
  |
hint: write the text without it, and read "$HOOKONCE_FIELD_TAG" there

error: `{sha}` stands in a text that is run
 --> hookonce.toml:6:62
  |
6 | run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["python3.11", "-c", "{tag}"], ["echo", "-c", "{tag}"]] }
  |                                                              ^^^^^ the sender could run what it likes
  |
hint: write the text without it, and read "$HOOKONCE_FIELD_SHA" there

error: `{tag}` stands in a text that is run
 --> hookonce.toml:6:93
  |
6 | run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["python3.11", "-c", "{tag}"], ["echo", "-c", "{tag}"]] }
  |                                                                                             ^^^^^ the sender could run what it likes
  |
hint: write the text without it, and read "$HOOKONCE_FIELD_TAG" there

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_named_like_a_column_is_told() {
    let text = source("").replace("tag = \"body.tag\"", "state = \"body.tag\"");
    check(
        &text,
        r#"
warning: the field `state` is no column of its own in the store
 --> hookonce.toml:3:12
  |
3 | fields = { state = "body.tag", sha = "body.sha" }
  |            ^^^^^ `events` has a column of that name
  |
hint: call it something else, if you want to select it by name
"#,
    );
}
