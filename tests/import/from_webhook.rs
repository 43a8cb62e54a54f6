//! Coming from adnanh/webhook: files of hooks, the configs that they become, and a node that runs what they ran.

use crate::said;
use crate::support::{House, SECRET, Sent};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder without a config.
pub(crate) fn house() -> House {
    let house = House::empty("");
    fs::remove_file(house.path("hookonce.toml")).unwrap();
    house
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/webhook").join(name)
}

/// Imports with these arguments, and expects this exit code; returns what was printed.
pub(crate) fn import(house: &House, args: &[&str], code: i32) -> String {
    let mut command = house.command(&["import", "webhook"]);
    let (ended, out, error) = said(&command.args(args).output().unwrap());
    assert_eq!(ended, Some(code), "{out}{error}");
    format!("{out}{error}")
}

/// Compares with a file of ours; `HOOKONCE_BLESS=1` writes it.
fn check_golden(name: &str, found: &str) {
    let path = golden(name);
    if std::env::var_os("HOOKONCE_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, kept, "{}: HOOKONCE_BLESS=1 cargo test --test import writes it anew", path.display());
}

/// Imports a file, compares config and report with the kept ones, and checks the config.
fn check_import(file: &str, code: i32) -> House {
    let house = house();
    fs::copy(golden(file), house.path(file)).unwrap();
    let report = import(&house, &[file], code);
    let name = file.split('.').next().unwrap();
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    check_golden(&format!("{name}.toml"), &config);
    check_golden(&format!("{name}.txt"), &report);
    let checked = house.command(&["check"]).env("NEW_SECRET", SECRET).output().unwrap();
    let (code, out, error) = said(&checked);
    assert_eq!(code, Some(0), "{out}{error}");
    house
}

/// The secrets of a file are in files that only their owner can read, and nowhere else.
fn check_secrets(house: &House, files: &[(&str, &str)], hidden: &[&str]) {
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    for (file, secret) in files {
        let path = house.path("webhook-secrets").join(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), *secret, "{file}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    let folder = house.path("webhook-secrets");
    let found = fs::read_dir(&folder).map_or(0, Iterator::count);
    assert_eq!(found, files.len());
    if found > 0 {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
    for secret in files.iter().map(|(_, secret)| secret).chain(hidden) {
        assert!(!config.contains(secret), "{secret} is in the config");
    }
}

#[test]
fn hooks_of_github_keep_their_rules_arguments_and_secrets() {
    let house = check_import("github.json", 0);
    let files = [
        ("deploy", "a-secret-of-the-first-hook"),
        ("older-one", "old-secret-old-secret"),
        ("events", "a-secret-of-the-third-hook"),
    ];
    check_secrets(&house, &files, &["not-to-be-copied"]);
}

#[test]
fn hooks_in_yaml_with_tokens_files_and_forms_are_imported() {
    let house = check_import("tokens.yaml", 1);
    let files = [
        ("gitlab", "a-token-of-gitlab-that-is-long"),
        ("by-hand-2", "another-token-in-the-url"),
        ("signed-form", "a-secret-of-a-form"),
        ("unnamed", "a-secret-that-no-name-tells"),
    ];
    check_secrets(&house, &files, &[]);
}

#[test]
fn a_hook_that_would_get_less_or_run_for_more_is_not_imported_and_says_why() {
    let house = check_import("refused.json", 1);
    check_secrets(&house, &[], &["scalr-secret", "hidden-"]);
}

#[test]
fn a_second_import_changes_nothing_and_other_content_is_not_overwritten() {
    let house = house();
    fs::copy(golden("github.json"), house.path("hooks.json")).unwrap();
    let would = import(&house, &["hooks.json", "--dry-run", "--port", "4000", "--url-prefix", "/in/"], 0);
    assert!(
        would.contains("listen = \"0.0.0.0:4000\"") && would.contains("path            = \"/in/deploy\""),
        "{would}"
    );
    assert!(would.contains("nothing was written") && !would.contains("a-secret-of-the-first-hook"), "{would}");
    assert!(!house.path("hookonce.toml").exists() && !house.path("webhook-secrets").exists());

    import(&house, &["hooks.json"], 0);
    let again = import(&house, &["hooks.json"], 0);
    assert_eq!(again.matches("it has the same content").count(), 4, "{again}");
    fs::write(house.path("webhook-secrets/deploy"), "mine").unwrap();
    let refused = import(&house, &["hooks.json"], 2);
    assert!(refused.contains("webhook-secrets/deploy: it exists with other content"), "{refused}");
    assert_eq!(fs::read_to_string(house.path("webhook-secrets/deploy")).unwrap(), "mine");
    import(&house, &["hooks.json", "--force"], 0);
    assert_eq!(fs::read_to_string(house.path("webhook-secrets/deploy")).unwrap(), "a-secret-of-the-first-hook");
}

#[test]
fn webhook_secrets_of_two_hooks_never_share_a_file() {
    let house = house();
    let signed = |secret: &str| {
        format!(
            r#"{{"match": {{"type": "payload-hmac-sha256", "secret": "{secret}-secret-of-a-hook",
                "parameter": {{"source": "header", "name": "X-Hub-Signature-256"}}}}}}"#
        )
    };
    let hook = |id: &str, rule: &str| {
        format!(
            r#"{{"id": "{id}", "execute-command": "/bin/true", "trigger-signature-soft-failures": true, "trigger-rule": {rule}}}"#
        )
    };
    let two = format!(r#"{{"or": [{}, {}]}}"#, signed("first"), signed("second"));
    let hooks = [hook("a", &two), hook("A", &signed("large")), hook("a-2", &signed("third"))];
    fs::write(house.path("hooks.json"), format!("[{}]", hooks.join(","))).unwrap();
    import(&house, &["hooks.json"], 0);
    let files = [
        ("a", "first-secret-of-a-hook"),
        ("a.2", "second-secret-of-a-hook"),
        ("a-2", "large-secret-of-a-hook"),
        ("a-2-2", "third-secret-of-a-hook"),
    ];
    check_secrets(&house, &files, &[]);
}

#[test]
fn a_config_from_private_webhook_hooks_is_private() {
    for (hooks, config) in [(0o644, 0o644), (0o640, 0o600), (0o600, 0o600)] {
        let house = house();
        fs::copy(golden("github.json"), house.path("open.json")).unwrap();
        fs::write(house.path("hooks.json"), r#"[{"id": "other", "execute-command": "/bin/true"}]"#).unwrap();
        fs::set_permissions(house.path("open.json"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(house.path("hooks.json"), fs::Permissions::from_mode(hooks)).unwrap();
        import(&house, &["open.json", "hooks.json"], 0);
        let mode = || fs::metadata(house.path("hookonce.toml")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), config, "{hooks:o}");
        // What was made private stays so.
        fs::set_permissions(house.path("hookonce.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        import(&house, &["open.json", "--force"], 0);
        assert_eq!(mode(), 0o600, "{hooks:o}");
    }
}

#[test]
fn unreadable_hooks_are_reported_and_nothing_is_written() {
    let house = house();
    let bad = |name: &str, bytes: &[u8]| fs::write(house.path(name), bytes).unwrap();
    bad("binary.json", &[0x7f, b'E', 0xff]);
    bad("long.json", &vec![b' '; 2 << 20]);
    bad("template.json", b"[{{ if true }}]");
    bad("none.json", b"[]");
    bad("all.json", br#"[{"id": "a"}, {"id": "b", "execute-command": "x", "http-methods": ["GET"]}]"#);
    bad("types.json", br#"[{"id": "a", "success-http-response-code": "many"}]"#);
    fs::create_dir(house.path("folder")).unwrap();
    for (file, words) in [
        ("missing.json", &["there is no such file", "hint:"][..]),
        ("folder", &["folder: "]),
        ("binary.json", &["is not text"]),
        ("long.json", &["longer than 1 MB"]),
        ("template.json", &["it is not JSON", "hint: it is a template"]),
        ("none.json", &["it has no hooks"]),
        ("all.json", &["no hook can be imported", "hook `a`: it has no", "hook `b`: it takes only GET"]),
        ("types.json", &["`success-http-response-code` of hook `a` is not the number of a status"]),
    ] {
        let said = import(&house, &[file], 2);
        for word in words {
            assert!(said.contains(word), "no {word:?} in:\n{said}");
        }
        assert!(!house.path("hookonce.toml").exists() && !house.path("webhook-secrets").exists(), "{file}");
    }
}

/// Two hooks that record what they get: one that GitHub signs, and one that gets the whole body and a file.
const RECORDING: &str = r#"[
  { "id": "deploy", "execute-command": "./record", "command-working-directory": "FOLDER",
    "pass-arguments-to-command": [
      { "source": "payload", "name": "head_commit.id" }, { "source": "payload", "name": "nowhere" },
      { "source": "string", "name": "fixed $(text)" } ],
    "pass-environment-to-command": [ { "source": "payload", "name": "pusher.name", "envname": "PUSHER" } ],
    "trigger-rule": { "and": [
      { "match": { "type": "payload-hmac-sha256", "secret": "SECRET",
                   "parameter": { "source": "header", "name": "X-Hub-Signature-256" } } },
      { "match": { "type": "value", "value": "refs/heads/main", "parameter": { "source": "payload", "name": "ref" } } } ] } },
  { "id": "whole", "execute-command": "FOLDER/whole",
    "pass-arguments-to-command": [ { "source": "raw-request-body" }, { "source": "string", "name": "end" } ],
    "pass-file-to-command": [
      { "source": "payload", "name": "data", "envname": "DATA_FILE", "base64decode": true },
      { "source": "entire-payload", "name": "all" } ],
    "trigger-rule": { "match": { "type": "value", "value": "TOKEN-OF-THE-URL", "parameter":
      { "source": "url", "name": "token" } } } }
]"#;

/// Writes a program.
pub(crate) fn script(house: &House, name: &str, text: &str) {
    fs::write(house.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(house.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn an_imported_hook_runs_its_command_once_with_what_it_got_from_webhook() {
    let mut house = house();
    let folder = house.dir.path().display().to_string();
    let hooks = RECORDING.replace("FOLDER", &folder).replace("\"SECRET\"", &format!("\"{SECRET}\""));
    fs::write(house.path("hooks.json"), hooks).unwrap();
    script(&house, "record", "printf '%s|' \"$#\" \"$@\" \"$PUSHER\" >> runs; echo >> runs");
    let read = "printf '%s|' \"$#\" \"$@\" >> wholes; cat \"$DATA_FILE\" \"$HOOK_ALL\" >> wholes; echo >> wholes";
    script(&house, "whole", &format!("{read}\necho \"$DATA_FILE\" > left"));
    let report = import(&house, &["hooks.json"], 0);
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    let config = config.replace("0.0.0.0:9000", "127.0.0.1:0");
    fs::write(house.path("hookonce.toml"), format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).unwrap();
    house.try_start_by(house.command(&["serve"])).unwrap();

    let push = |branch: &str| {
        format!(
            r#"{{"ref":"refs/heads/{branch}","before":"a","after":"b","head_commit":{{"id":"$(touch hacked)"}},"pusher":{{"name":"ann; id"}}}}"#
        )
    };
    let first = Sent::github("push", "d1", &push("main"));
    for (sent, status, word) in [
        (&first, 200, "accepted"),
        (&first, 200, "duplicate"),
        (&Sent::github("push", "d2", &push("other")), 200, "ignored"),
        (
            &Sent {
                body: push("main").replace("ann", "eve").into_bytes(),
                ..Sent::github("push", "d3", &push("main"))
            },
            401,
            "refused",
        ),
    ] {
        let answer = house.deliver("/hooks/deploy", sent).await;
        assert_eq!((answer.status, &*answer.word()), (status, word), "{answer:?}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), ["3|$(touch hacked)||fixed $(text)|ann; id|"]);
    assert!(!house.path("hacked").exists());

    let json = [("content-type".to_owned(), "application/json".to_owned())];
    let body = br#"{"data":"aGVsbG8="}"#;
    let wrong = house.post("/hooks/whole?token=other", &json, body).await.unwrap();
    assert_eq!(wrong.status, 401);
    let right = house.post("/hooks/whole?token=TOKEN-OF-THE-URL", &json, body).await.unwrap();
    assert_eq!((right.status, &*right.word()), (200, "accepted"), "{right:?}");
    house.quiet().await;
    assert_eq!(house.lines("wholes"), [r#"2|{"data":"aGVsbG8="}|end|hello{"data":"aGVsbG8="}"#]);
    // What webhook took and a node does not is in the report.
    let long = format!(r#"{{"data":"{}"}}"#, "aGVs".repeat(1025));
    let refused = house.post("/hooks/whole?token=TOKEN-OF-THE-URL", &json, long.as_bytes()).await.unwrap();
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (422, Some("field_too_long")), "{refused:?}");
    let noted = "`field_too_long` if one of these is longer than 4096 bytes: `body.data`;";
    assert!(report.contains(noted), "{report}");
    let file = house.lines("left");
    assert!(file.len() == 1 && !Path::new(&file[0]).exists(), "{file:?}");
    assert!(!house.log().contains("TOKEN-OF-THE-URL"), "{}", house.log());
}
