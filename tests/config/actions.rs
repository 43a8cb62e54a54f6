//! Routes and their actions: the exact texts.

use super::{check, route};

#[test]
fn two_routes_of_one_name_are_refused() {
    check(
        &route(
            r#"name = "2"
[[source.s.route]]"#,
        ),
        r"
error: source `s` has two routes named `2`
 --> hookonce.toml:7:1
  |
7 | [[source.s.route]]
  | ^^^^^^^^^^^^^^^^^^ also the name of route number 1

1 error in hookonce.toml; nothing was started
",
    );
}

#[test]
fn an_invalid_receiver_url_is_reported() {
    check(
        &route(r#"forward = { url = "127.0.0.1:8080" }"#),
        r#"
error: `url` is not a valid URL to send to
 --> hookonce.toml:6:19
  |
6 | forward = { url = "127.0.0.1:8080" }
  |                   ^^^^^^^^^^^^^^^^ it must begin with http:// or https://
  |
hint: url = "http://127.0.0.1:8080/ingest"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"forward = { url = "ftp://a/b" }"#),
        r#"
error: `url` is not a valid URL to send to
 --> hookonce.toml:6:19
  |
6 | forward = { url = "ftp://a/b" }
  |                   ^^^^^^^^^^^ `ftp` is neither http nor https
  |
hint: url = "http://127.0.0.1:8080/ingest"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"forward = { timeout = "8s" }"#),
        r#"
error: `forward` has no `url`
 --> hookonce.toml:6:11
  |
6 | forward = { timeout = "8s" }
  |           ^^^^^^^^^^^^^^^^^^

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_route_has_one_action() {
    check(
        &route(
            r#"run = { dir = "/", steps = ["true"] }
forward = { url = "http://a/" }"#,
        ),
        r#"
error: a route has one action, but this one has `run` and `forward`
 --> hookonce.toml:7:1
  |
7 | forward = { url = "http://a/" }
  | ^^^^^^^
  |
hint: keep one of them; a command can also send, and `forward` may be a list

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn several_receivers_need_a_sender_that_does_not_wait() {
    check(
        r#"[source.s]
verify = "none"
respond = "done"
[[source.s.route]]
forward = [{ url = "http://a/" }, { url = "http://b/" }]
"#,
        r#"
error: `forward` has several receivers, but the sender waits for one response
 --> hookonce.toml:5:1
  |
5 | forward = [{ url = "http://a/" }, { url = "http://b/" }]
  | ^^^^^^^
  |
hint: use one receiver, or respond = "accepted"

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_in_a_text_for_the_shell_is_refused() {
    check(
        &route(r#"run = { dir = "/", steps = ["deploy {tag} ${sha} {other}"] }"#),
        r#"
error: `{tag}` is in a shell command
 --> hookonce.toml:6:37
  |
6 | run = { dir = "/", steps = ["deploy {tag} ${sha} {other}"] }
  |                                     ^^^^^ the sender could inject commands
  |
hint: write "$HOOKONCE_FIELD_TAG", or make the step a list

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_undeclared_field_in_a_list_is_reported() {
    check(
        &route(r#"run = { dir = "/", steps = [["deploy", "v{tga}", "{{other}}"]] }"#),
        r#"
error: `{tga}` is not a declared field
 --> hookonce.toml:6:42
  |
6 | run = { dir = "/", steps = [["deploy", "v{tga}", "{{other}}"]] }
  |                                          ^^^^^ fields of source `s`: tag, sha
  |
hint: did you mean `tag`?

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_in_dir_is_one_whole_folder() {
    check(
        &route(r#"run = { dir = "/v{tag}/{tga}", steps = ["true"] }"#),
        r#"
error: `{tag}` is only part of a folder's name
 --> hookonce.toml:6:18
  |
6 | run = { dir = "/v{tag}/{tga}", steps = ["true"] }
  |                  ^^^^^ in `dir` a field is one whole folder name
  |
hint: dir = "/opt/{tag}"

error: `{tga}` is not a declared field
 --> hookonce.toml:6:24
  |
6 | run = { dir = "/v{tag}/{tga}", steps = ["true"] }
  |                        ^^^^^ fields of source `s`: tag, sha
  |
hint: did you mean `tag`?

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_block_has_steps() {
    check(
        &route(r#"run = { dir = "/" }"#),
        r#"
error: `run` has no `steps`
 --> hookonce.toml:6:7
  |
6 | run = { dir = "/" }
  |       ^^^^^^^^^^^^^
  |
hint: steps = ["docker compose pull", "docker compose up -d"]

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"run = { dir = "/", steps = [] }"#),
        r#"
error: `steps` is empty
 --> hookonce.toml:6:28
  |
6 | run = { dir = "/", steps = [] }
  |                            ^^ at least one step is needed

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"run = { dir = "/", steps = ["", [""]], shell = [] }"#),
        r#"
error: a step is empty
 --> hookonce.toml:6:29
  |
6 | run = { dir = "/", steps = ["", [""]], shell = [] }
  |                             ^^

error: a step is empty
 --> hookonce.toml:6:33
  |
6 | run = { dir = "/", steps = ["", [""]], shell = [] }
  |                                 ^^^^

error: `shell` is empty
 --> hookonce.toml:6:48
  |
6 | run = { dir = "/", steps = ["", [""]], shell = [] }
  |                                                ^^ the shell and its option, such as ["sh", "-c"]

3 errors in hookonce.toml; nothing was started
"#,
    );
    check(
        &route("run = []"),
        r"
error: `run` has 0 entries
 --> hookonce.toml:6:1
  |
6 | run = []
  | ^^^ from 1 to 63

1 error in hookonce.toml; nothing was started
",
    );
}

#[test]
fn a_group_stays_within_the_subject_of_change() {
    check(
        r#"[source.s]
verify = "none"
fields = { tag = "body.t", sha = "body.s" }
once = { change = { of = ["tag"], to = ["sha"] } }
[[source.s.route]]
group = ["tag", "sha"]
"#,
        r#"
error: `group` uses `sha`, which is not in `change.of`
 --> hookonce.toml:6:17
  |
6 | group = ["tag", "sha"]
  |                 ^^^^^ `change.of`: tag
  |
hint: two events of one subject would be in two groups; remove `group`, or use one fixed name

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route("group = []"),
        r"
error: `group` is empty
 --> hookonce.toml:6:9
  |
6 | group = []
  |         ^^ expected a name, or a list of fields

1 error in hookonce.toml; nothing was started
",
    );
}
