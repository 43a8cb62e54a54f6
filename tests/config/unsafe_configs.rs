//! Configs that would trust, show or run what they must not.

use super::{check, route, source};

#[test]
fn credentials_of_a_sender_cannot_be_a_field() {
    check(
        "[source.s]\nverify = { scheme = \"bearer\", secret = { env = \"A\" } }\nfields = { tok = \"header.authorization\" }\n[[source.s.route]]\n",
        r#"
error: the field `tok` holds the sender's credentials
 --> hookonce.toml:3:1
  |
3 | fields = { tok = "header.authorization" }
  | ^^^^^^ header.authorization must not be logged, stored or passed on
  |
hint: use a value that is not a secret

1 error in hookonce.toml; nothing was started
"#,
    );
    for header in ["webhook-signature", "svix-signature"] {
        let text = format!(
            "[source.s]\nverify = {{ scheme = \"standard-webhooks\", secret = {{ env = \"WHSEC\" }} }}\n\
             fields = {{ sig = \"header.{header}\" }}\n[[source.s.route]]\n"
        );
        let told = super::parse(&text).unwrap_err().to_string();
        assert!(told.contains("the field `sig` holds the sender's credentials"), "{told}");
        assert!(told.contains(&format!("header.{header} must not be logged")), "{told}");
    }
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
hint: a delivery of one could be a duplicate of the other's; give each its own scope

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_cannot_be_a_program_or_part_of_a_script() {
    check(
        &route(
            r#"run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["bash", "{tag}"], ["echo", "-c", "{tag}"]] }"#,
        ),
        r#"
error: `{tag}` is the program itself
 --> hookonce.toml:6:31
  |
6 | run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["bash", "{tag}"], ["echo", "-c", "{tag}"]] }
  |                               ^^^^^ the sender could choose what runs
  |
hint: name the program, and pass the value as an argument: ["./deploy", "{tag}"]

error: `{sha}` is in text that `bash` runs as a program
 --> hookonce.toml:6:62
  |
6 | run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["bash", "{tag}"], ["echo", "-c", "{tag}"]] }
  |                                                              ^^^^^ the sender could inject commands
  |
hint: read the environment variable HOOKONCE_FIELD_SHA there, in a shell as "$HOOKONCE_FIELD_SHA"; or pass the value as an argument: ["sh", "-c", "deploy \"$1\"", "_", "{sha}"]

error: `{tag}` chooses what `bash` runs
 --> hookonce.toml:6:81
  |
6 | run = { dir = "/", steps = [["{tag}"], ["bash", "-lc", "echo {sha}"], ["bash", "{tag}"], ["echo", "-c", "{tag}"]] }
  |                                                                                 ^^^^^ the sender could choose what runs
  |
hint: name the file, and pass the value as an argument: ["bash", "deploy", "{tag}"]

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_cannot_be_in_a_remote_command_or_in_a_variable_that_is_code() {
    check(
        &route(r#"run = { dir = "/", steps = [["ssh", "host", "deploy {tag}"], ["env", "BASH_ENV={sha}", "./x"]] }"#),
        r#"
error: `{tag}` is in a line that `ssh` may pass to a shell
 --> hookonce.toml:6:53
  |
6 | run = { dir = "/", steps = [["ssh", "host", "deploy {tag}"], ["env", "BASH_ENV={sha}", "./x"]] }
  |                                                     ^^^^^ the sender could inject commands
  |
hint: run a script file instead: it gets the value as the environment variable HOOKONCE_FIELD_TAG, and can quote it for `ssh`

error: `{sha}` would set `BASH_ENV`, from which programs load code
 --> hookonce.toml:6:80
  |
6 | run = { dir = "/", steps = [["ssh", "host", "deploy {tag}"], ["env", "BASH_ENV={sha}", "./x"]] }
  |                                                                                ^^^^^ the sender could choose what runs
  |
hint: read the environment variable HOOKONCE_FIELD_SHA instead

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_body_cannot_be_a_program() {
    check(
        &route(r#"run = { dir = "/", steps = [["sudo", "-n", "bash", "-s", "--", "{tag}"]] }"#),
        r#"
error: `bash` would run the delivery's body as a program
 --> hookonce.toml:6:44
  |
6 | run = { dir = "/", steps = [["sudo", "-n", "bash", "-s", "--", "{tag}"]] }
  |                                            ^^^^^^ a command's standard input is the body
  |
hint: name a script file: ["bash", "deploy"]

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_field_named_like_a_column_is_reported() {
    let text = source("").replace("tag = \"body.tag\"", "state = \"body.tag\"");
    check(
        &text,
        r#"
warning: the field `state` gets no column of its own in the store
 --> hookonce.toml:3:12
  |
3 | fields = { state = "body.tag", sha = "body.sha" }
  |            ^^^^^ `events` has a column of that name
  |
hint: rename it if you want to select it by name
"#,
    );
}
