//! Secrets: the exact texts.

use super::{check, route};

#[test]
fn a_literal_secret_is_refused_and_not_shown() {
    check(
        r#"[source.s]
verify = { scheme = "github", secret = "hunter2" }
[[source.s.route]]
"#,
        r#"
error: `secret` is written in the config file
 --> hookonce.toml:2:40
  |
2 | verify = { scheme = "github", secret = "•••" }
  |                                        ^^^^^ a secret must not be in the config file
  |
hint: put it in an environment variable and write secret = { env = "NAME" }, or in a file and write secret = { file = "PATH" }

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "githb", secret = "hunter2", secrt = "hunter3" }
[[source.s.route]]
"#,
        r#"
error: `scheme` cannot be read
 --> hookonce.toml:2:21
  |
2 | verify = { scheme = "githb", secret = "•••", secrt = "•••" }
  |                     ^^^^^^^ expected "github", "standard-webhooks", "hmac", "ed25519", "ecdsa-p256", "token", "bearer", "basic", "jwt", "sns", "paypal", "adyen", "twilio", "twilio-json", "carried" or "none"
  |
hint: did you mean `github`?

error: `secret` is written in the config file
 --> hookonce.toml:2:39
  |
2 | verify = { scheme = "githb", secret = "•••", secrt = "•••" }
  |                                       ^^^^^ a secret must not be in the config file
  |
hint: put it in an environment variable and write secret = { env = "NAME" }, or in a file and write secret = { file = "PATH" }

error: unknown key `secrt` in `verify`
 --> hookonce.toml:2:50
  |
2 | verify = { scheme = "githb", secret = "•••", secrt = "•••" }
  |                                              ^^^^^
  |
hint: did you mean `secret`?

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_unset_variable_is_distinguished_from_an_empty_one() {
    check(
        r#"[source.s]
verify = "github"
secret = { env = "NOPE" }
[[source.s.route]]
"#,
        r#"
error: the environment variable `NOPE` is not set
 --> hookonce.toml:3:18
  |
3 | secret = { env = "NOPE" }
  |                  ^^^^^^ needed for `secret`
  |
hint: set `NOPE` where hookonce is started, or use { file = "…" }

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = "github"
secret = [{ env = "A" }, { env = "EMPTY" }]
[[source.s.route]]
"#,
        r#"
error: the environment variable `EMPTY` is empty
 --> hookonce.toml:3:34
  |
3 | secret = [{ env = "A" }, { env = "EMPTY" }]
  |                                  ^^^^^^^ needed for `secret`
  |
hint: set `EMPTY` to a value where hookonce is started

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn secrets_while_rotating_are_few_and_differ() {
    check(
        r#"[source.s]
verify = "github"
secret = [{ env = "A" }, { env = "WEBHOOK_SECRET" }]
[[source.s.route]]
"#,
        r#"
error: `secret` has the same secret twice
 --> hookonce.toml:3:26
  |
3 | secret = [{ env = "A" }, { env = "WEBHOOK_SECRET" }]
  |                          ^^^^^^^^^^^^^^^^^^^^^^^^^^ the same as one before it

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = "github"
secret = []
[[source.s.route]]
"#,
        r"
error: `secret` is an empty list
 --> hookonce.toml:3:10
  |
3 | secret = []
  |          ^^ at least one secret is needed

1 error in hookonce.toml; nothing was started
",
    );
    check(
        r#"[source.s]
verify = "github"
secret = [{ env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }]
[[source.s.route]]
"#,
        r#"
error: `secret` has 9 secrets
 --> hookonce.toml:3:10
  |
3 | secret = [{ env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }, { env = "A" }]
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ at most 8 while rotating

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_secret_comes_from_exactly_one_place() {
    check(
        r#"[source.s]
verify = "github"
secret = { env = "A", file = "a" }
[[source.s.route]]
"#,
        r#"
error: `secret` has two origins
 --> hookonce.toml:3:10
  |
3 | secret = { env = "A", file = "a" }
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^ either `env` or `file`, not both

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = "github"
secret = { }
[[source.s.route]]
"#,
        r"
error: `secret` has no origin
 --> hookonce.toml:3:10
  |
3 | secret = { }
  |          ^^^ `env` or `file` is needed

1 error in hookonce.toml; nothing was started
",
    );
    check(
        r#"[source.s]
verify = { scheme = "github", secret = { env = "A" } }
secret = { env = "B" }
[[source.s.route]]
"#,
        r#"
error: source `s` has two secrets
 --> hookonce.toml:3:10
  |
3 | secret = { env = "B" }
  |          ^^^^^^^^^^^^^ short for `verify.secret`, which is set, too
  |
hint: while rotating, write a list: secret = [{ env = "NEW" }, { env = "OLD" }]

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_missing_secret_file_is_reported_with_its_full_path() {
    check(
        r#"[source.s]
verify = "github"
secret = { file = "nowhere/secret" }
[[source.s.route]]
"#,
        r#"
error: the file /etc/nowhere/secret cannot be used: there is no such file
 --> hookonce.toml:3:19
  |
3 | secret = { file = "nowhere/secret" }
  |                   ^^^^^^^^^^^^^^^^ needed for `secret`

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_password_in_a_url_is_a_literal_secret() {
    check(
        &route(r#"forward = { url = "http://u:hunter2@a/" }"#),
        r#"
error: `url` has a password and is written in the config file
 --> hookonce.toml:6:19
  |
6 | forward = { url = "•••" }
  |                   ^^^^^ a secret must not be in the config file
  |
hint: put the URL in an environment variable and write url = { env = "NAME" }

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_missing_secret_of_a_preset_is_reported_in_the_source() {
    check(
        r#"[source.s]
preset = "github-package"
[[source.s.route]]
"#,
        r#"
error: scheme `github` needs a secret
 --> hookonce.toml:1:9
  |
1 | [source.s]
  |         ^
  |
hint: secret = { env = "WEBHOOK_SECRET" }

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_command_never_gets_a_variable_that_holds_a_secret() {
    check(
        r#"[source.s]
verify = "github"
secret = { env = "A" }
[[source.s.route]]
env = ["A", "HOOKONCE_X"]
run = { dir = "/", steps = ["true"], env = { "B=" = "1" } }
"#,
        r#"
error: `A` cannot be passed to a command
 --> hookonce.toml:5:8
  |
5 | env = ["A", "HOOKONCE_X"]
  |        ^^^ the config reads it, so commands never get it
  |
hint: use a separate variable for the command

error: `HOOKONCE_X` cannot be passed to a command
 --> hookonce.toml:5:13
  |
5 | env = ["A", "HOOKONCE_X"]
  |             ^^^^^^^^^^^^ variables that begin with HOOKONCE_ are set by hookonce itself

error: `B=` cannot be the name of a variable
 --> hookonce.toml:6:46
  |
6 | run = { dir = "/", steps = ["true"], env = { "B=" = "1" } }
  |                                              ^^^^

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn without_its_secrets_a_config_can_be_read_and_verifies_nothing() {
    use hookonce::internals::config::{SecretRequirement, load_with};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hookonce.toml");
    let text = r#"
[source.a]
verify = { scheme = "github", secret = [{ env = "NONE" }, { file = "none" }] }
[[source.a.route]]
forward = [{ url = { env = "NO_URL" } }, { url = "http://127.0.0.1:1/" }]
[source.b]
verify = { scheme = "bearer", secret = [{ env = "A" }, { env = "EMPTY" }] }
[[source.b.route]]
"#;
    std::fs::write(&file, text).unwrap();
    let config = load_with(&file, SecretRequirement::Optional, &super::env).unwrap();
    assert_eq!(config.sources.iter().map(|s| s.verify.has_secret()).collect::<Vec<_>>(), [false, true]);
    let lacking: Vec<_> = config.elsewhere.iter().map(|value| (value.what.as_str(), value.error.is_some())).collect();
    let secret = |lacks| ("secret", lacks);
    assert_eq!(lacking, [secret(true), secret(true), ("url", true), secret(false), secret(true)]);
    let body = bytes::Bytes::from_static(b"{}");
    let headers = [("x-hub-signature-256".to_owned(), format!("sha256={}", "0".repeat(64)).into_bytes())];
    let at = hookonce::decide::time::Timestamp(0);
    let delivery = hookonce::decide::delivery::Delivery {
        path: "",
        query: "",
        headers: &hookonce::decide::delivery::borrow_headers(&headers),
        body: &body,
        at,
        wall: at,
    };
    assert!(config.sources[0].verify.verify(&delivery).is_err());
    let problems = load_with(&file, SecretRequirement::Required, &super::env).unwrap_err();
    assert_eq!(problems.list.len(), 4, "{problems}");
    std::fs::write(&file, format!("store = {{ env = \"NONE\" }}\n{text}")).unwrap();
    assert_eq!(load_with(&file, SecretRequirement::Optional, &super::env).unwrap_err().list.len(), 1);
}

#[test]
fn a_short_or_world_readable_secret_is_warned_about() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(path.join(name), text).expect("it writes");
        std::fs::set_permissions(path.join(name), std::fs::Permissions::from_mode(mode)).expect("it may");
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it may");
    std::fs::create_dir(path.join("callers")).expect("a folder");
    for (name, text, mode) in [
        ("short", "fifteen bytes..", 0o600),
        ("good", "sixteen bytes...", 0o640),
        ("open", "sixteen bytes and more", 0o644),
        ("short-whsec", "whsec_MTIzNDU2Nzg5MDEyMzQ=", 0o600),
        ("blank", "                    ", 0o600),
        ("callers/acme", "sixteen bytes and more", 0o644),
        ("callers/beta", "short", 0o600),
    ] {
        write(name, text, mode);
    }
    let warnings = |text: &str| -> Vec<String> {
        let parsed = hookonce::internals::config::parse(text, "f", path, &|_| None);
        let config = parsed.unwrap_or_else(|problems| panic!("{problems}"));
        config.warnings.iter().map(|warning| warning.title.clone()).collect()
    };
    let source = |secret: &str| format!("[source.s]\nverify = \"github\"\nsecret = {secret}\n[[source.s.route]]\n");
    let file = |name: &str| source(&format!("{{ file = \"{name}\" }}"));
    let open = |name: &str| format!("every user of this machine can read {}", path.join(name).display());
    assert_eq!(warnings(&file("short")), ["`secret` is shorter than 16 bytes"]);
    let standard = file("short-whsec").replace("github", "standard-webhooks");
    assert_eq!(warnings(&standard), ["`secret` is shorter than 16 bytes"], "it signs with what is decoded");
    assert_eq!(warnings(&file("short-whsec")), Vec::<String>::new(), "it signs with the text");
    assert_eq!(warnings(&file("good")), Vec::<String>::new());
    let blank = hookonce::internals::config::parse(&file("blank"), "f", path, &|_| None);
    let blank = blank.map(drop).expect_err("everyone can guess it").to_string();
    assert!(blank.contains("`secret` consists of white space"), "{blank}");
    assert_eq!(warnings(&file("open")), [open("open")]);
    let good = file("good");
    let token =
        format!("[admin]\ntoken = {{ file = \"short\" }}\ntokens = [{{ token = {{ file = \"open\" }} }}]\n{good}");
    assert_eq!(warnings(&token), ["`token` is shorter than 16 bytes".to_owned(), open("open")]);
    let callers = source("{ dir = \"callers\" }")
        .replace("secret", "key_id = \"who\"\nfields = { who = \"header.x-who\" }\nsecret");
    assert_eq!(
        warnings(&callers),
        [
            "every user of this machine can read the secret of caller `acme`",
            "the secret of caller `beta` is shorter than 16 bytes"
        ]
    );
    std::fs::set_permissions(path.join("callers"), std::fs::Permissions::from_mode(0o700)).expect("it may");
    assert_eq!(
        warnings(&callers),
        ["the secret of caller `beta` is shorter than 16 bytes"],
        "no other user can open the folder"
    );
    let forward = "forward = { url = \"http://127.0.0.1:1/\", sign = { secret = { file = \"open\" } } }\n";
    let told = hookonce::internals::config::parse(&format!("{good}{forward}"), "f", path, &|_| None);
    let told = told.map_or_else(|problems| problems.to_string(), |config| format!("{:?}", config.warnings));
    assert!(told.contains(&open("open")), "{told}");
}
