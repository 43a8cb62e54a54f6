//! Callers with their own secrets, and settings for kept responses: the exact texts.

use super::{check, fine, source};
use hookonce::decide::source::{ApiStyle, RedeliveryPolicy, ResponseMode};
use std::os::unix::fs::PermissionsExt as _;

/// A source whose callers are files in this folder.
fn callers(dir: &str, lines: &str) -> String {
    format!(
        "[source.s]\nverify = \"github\"\nsecret = {{ dir = \"{dir}\" }}\nfields = {{ who = \"header.x-who\", tag = \"body.tag\" }}\n{lines}\n[[source.s.route]]\n"
    )
}

#[test]
fn a_folder_of_callers_needs_a_field_that_names_the_caller() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("acme"), "the secret of acme\n").expect("a file");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("it may");
    let folder = dir.path().display().to_string();
    let config = fine(&callers(&folder, "key_id = \"who\""));
    assert!(config.sources[0].verify.callers().is_some());
    let line = format!("secret = {{ dir = \"{folder}\" }}");
    check(
        &callers(&folder, ""),
        &format!(
            "
error: a folder of callers needs `key_id`, the field that names the caller
 --> hookonce.toml:3:10
  |
3 | {line}
  |          {}
  |
hint: key_id = \"caller\", a field such as caller = \"header.x-client-id\"

1 error in hookonce.toml; nothing was started
",
            "^".repeat(line.len() - 9)
        ),
    );
    check(
        &callers(&folder, "key_id = \"tag\""),
        r#"
error: `key_id` must be in a header or in the query, but `tag` is body.tag
 --> hookonce.toml:5:10
  |
5 | key_id = "tag"
  |          ^^^^^ the body is not parsed before it is verified
  |
hint: require = 'a == b' compares it with what the body says

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &callers(&folder, "key_id = \"whom\""),
        r#"
error: `key_id` names a field that is not declared: `whom`
 --> hookonce.toml:5:10
  |
5 | key_id = "whom"
  |          ^^^^^^ fields: who, tag

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_missing_folder_is_an_error_and_an_empty_one_a_warning() {
    check(
        &callers("nowhere", "key_id = \"who\""),
        r#"
error: the folder /etc/nowhere cannot be used: there is no such folder
 --> hookonce.toml:3:10
  |
3 | secret = { dir = "nowhere" }
  |          ^^^^^^^^^^^^^^^^^^^ needed for `secret`
  |
hint: create the folder with a file for each caller, one secret per line

1 error in hookonce.toml; nothing was started
"#,
    );
    let dir = tempfile::tempdir().expect("a folder");
    let config = fine(&callers(&dir.path().display().to_string(), "key_id = \"who\""));
    assert!(config.warnings.iter().any(|warning| warning.title.contains("has no callers in it yet")));
}

#[test]
fn a_folder_is_only_for_the_secret_of_a_source() {
    check(
        r#"[admin]
token = { dir = "tokens" }
[source.s]
verify = "github"
secret = [{ dir = "callers" }, { env = "A" }]
key_id = "who"
fields = { who = "header.x-who" }
[[source.s.route]]
"#,
        r#"
error: `token` cannot be a folder here
 --> hookonce.toml:2:17
  |
2 | token = { dir = "tokens" }
  |                 ^^^^^^^^ only the secret of a source can be one, and not in a list
  |
hint: secret = { dir = "callers" } with key_id = "caller", or { env = "…" }, { file = "…" }

error: `secret` cannot be a folder here
 --> hookonce.toml:5:19
  |
5 | secret = [{ dir = "callers" }, { env = "A" }]
  |                   ^^^^^^^^^ only the secret of a source can be one, and not in a list
  |
hint: secret = { dir = "callers" } with key_id = "caller", or { env = "…" }, { file = "…" }

error: `key_id` needs a folder of callers
 --> hookonce.toml:6:10
  |
6 | key_id = "who"
  |          ^^^^^
  |
hint: secret = { dir = "callers" }, with a file for each caller

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn settings_for_kept_responses_are_refused_if_no_sender_waits() {
    check(
        &source("mark_duplicates = true\nonce = { keep_failures = true }"),
        r#"
warning: `mark_duplicates` has no effect
 --> hookonce.toml:4:1
  |
4 | mark_duplicates = true
  | ^^^^^^^^^^^^^^^ the sender gets its response as soon as the event is stored
  |
hint: respond = "done" makes the sender wait for a response, and keeps it

warning: `keep_failures` has no effect
 --> hookonce.toml:5:10
  |
5 | once = { keep_failures = true }
  |          ^^^^^^^^^^^^^ the sender gets its response as soon as the event is stored
  |
hint: respond = "done" makes the sender wait for a response, and keeps it
"#,
    );
    let config = fine(&source("respond = \"done\"\nonce = { keep_failures = true }"));
    assert_eq!(config.sources[0].routes[0].redelivery, RedeliveryPolicy::Ignore);
    assert!(config.sources[0].once.keep_failures);
}

#[test]
fn the_presets_with_responses_wait_for_them() {
    for (name, verify, speaks) in [
        ("sports-stack", "secret = { env = \"A\" }", ApiStyle::Webhook),
        ("ci-ingestion", "secret = { env = \"A\" }", ApiStyle::Webhook),
        ("idempotency-key", "verify = \"bearer\"\nsecret = { env = \"A\" }", ApiStyle::Api),
        ("idempotency-key", "verify = \"none\"", ApiStyle::Api),
    ] {
        let config = fine(&format!("[source.s]\npreset = \"{name}\"\n{verify}\n[[source.s.route]]\n"));
        let source = &config.sources[0];
        assert!(matches!(source.respond, ResponseMode::WhenDone { .. }), "{name}");
        assert_eq!((source.api_style, source.mark_duplicates), (speaks, name == "ci-ingestion"), "{name}");
    }
}

#[test]
fn an_idempotency_key_that_is_not_signed_is_refused() {
    let config = |over: &str| {
        format!(
            "[source.s]\npreset = \"idempotency-key\"\nverify = {{ scheme = \"hmac\", header = \"x-sig\", secret = {{ env = \"A\" }}{over} }}\n[[source.s.route]]\n"
        )
    };
    for bad in [config(""), config("").replace("[[", "signed = false\n[[")] {
        let problems = crate::parse(&bad).expect_err("it is refused").to_string();
        assert!(problems.contains("error: the signature does not cover the `Idempotency-Key`"), "{problems}");
        assert!(problems.contains("hint: over = \"{id}.{body}\""), "{problems}");
    }
    fine(&config(", over = \"{id}.{body}\""));
    check(
        "[source.s]\npreset = \"idempotency-key\"\n[[source.s.route]]\n",
        r#"
error: source `s` has no `verify`
 --> hookonce.toml:1:9
  |
1 | [source.s]
  |         ^ `verify` is required unless a preset sets it
  |
hint: verify = { scheme = "github", secret = { env = "WEBHOOK_SECRET" } }; "none" must be set explicitly

1 error in hookonce.toml; nothing was started
"#,
    );
}
