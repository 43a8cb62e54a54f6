//! Hooks of adnanh/webhook, imported and served: what webhook ran runs, and what it refused does not.

use crate::from_webhook::{house, import, script};
use crate::support::{Answer, House, SECRET, Sent};
use serde_json::{Value as Json, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Imports these hooks, whose command `record` writes its arguments to `runs`, and starts a node on the config.
fn served(hooks: &[Json]) -> House {
    let mut house = house();
    write_hooks(&house, hooks);
    import(&house, &["hooks.json"], 0);
    let checked = house.command(&["check"]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap().replace("0.0.0.0:9000", "127.0.0.1:0");
    fs::write(house.path("hookonce.toml"), format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).unwrap();
    house.try_start_by(house.command(&["serve"])).unwrap();
    house
}

/// Writes the file of these hooks, each with the command `record` unless it has another.
fn write_hooks(house: &House, hooks: &[Json]) {
    script(house, "record", "{ printf '%s|' \"$#\" \"$@\"; echo; } >> runs");
    let with_command = |hook: &Json| {
        let mut hook = hook.clone();
        let of_hook = hook.as_object_mut().unwrap();
        of_hook.entry("execute-command").or_insert(json!("./record"));
        of_hook.insert("command-working-directory".to_owned(), json!(house.dir.path()));
        hook
    };
    let hooks: Vec<_> = hooks.iter().map(with_command).collect();
    fs::write(house.path("hooks.json"), Json::from(hooks).to_string()).unwrap();
}

/// The hook `refused` is not imported, for this reason, and nothing of it is generated or printed.
fn check_refused(hook: &Json, why: &str) {
    let house = house();
    write_hooks(&house, &[json!({ "id": "plain" }), hook.clone()]);
    let report = import(&house, &["hooks.json"], 1);
    assert!(report.contains(&format!("hook `refused`: {why}")), "no {why:?} in:\n{report}");
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    assert!(!config.contains("[source.refused]") && !config.contains("s3cr3t"), "{config}");
    assert!(!report.contains("s3cr3t") && !house.path("webhook-secrets").exists(), "{report}");
}

fn parameter(source: &str, name: &str) -> Json {
    json!({ "source": source, "name": name })
}

/// Parameters of a hook.
fn parameters(of: &[(&str, &str)]) -> Json {
    of.iter().map(|(source, name)| parameter(source, name)).collect()
}

fn value(source: &str, name: &str, value: &str) -> Json {
    json!({ "match": { "type": "value", "value": value, "parameter": parameter(source, name) } })
}

fn regex(source: &str, name: &str, regex: &str) -> Json {
    json!({ "match": { "type": "regex", "regex": regex, "parameter": parameter(source, name) } })
}

fn signature(kind: &str, header: &str) -> Json {
    json!({ "match": { "type": kind, "secret": SECRET, "parameter": parameter("header", header) } })
}

fn github() -> Json {
    signature("payload-hmac-sha256", "X-Hub-Signature-256")
}

/// A request of JSON with these headers.
fn request(headers: &[(&str, &str)], body: &str) -> Sent {
    let mut headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    headers.push(("content-type".into(), "application/json".into()));
    Sent { headers, body: body.into() }
}

/// A request that a script signs as GitHub does, without GitHub's other headers.
fn signed(body: &str) -> Sent {
    let mut sent = Sent::github("push", "x", body);
    sent.headers.retain(|(name, _)| !name.starts_with("x-github-"));
    sent
}

const RUNS: (u16, &str) = (200, "accepted");
const IGNORED: (u16, &str) = (200, "ignored");
const AGAIN: (u16, &str) = (200, "duplicate");
const REFUSED: (u16, &str) = (401, "refused");

/// Sends it, and expects this status and word.
async fn check(house: &House, path: &str, sent: &Sent, expected: (u16, &str)) -> Answer {
    let answer = house.deliver(path, sent).await;
    assert_eq!((answer.status, &*answer.word()), expected, "{path} {answer:?}");
    house.quiet().await;
    answer
}

#[tokio::test]
async fn a_webhook_secret_under_any_name_is_asked_for_and_told_to_nobody() {
    let secret = "s3cr3t-deploy-code";
    let places = [
        ("k", "url", "k"),
        ("pwd", "query", "pwd"),
        ("deploy", "header", "X-DeployToken"),
        ("lab", "header", "X-Gitlab-Tok"),
    ];
    let hooks = places.map(|(id, source, name)| json!({ "id": id, "trigger-rule": value(source, name, secret) }));
    let house = served(&hooks);
    for (id, source, name) in places {
        let with = |text: &str| match source {
            "header" => (format!("/hooks/{id}"), request(&[(name, text)], "{}")),
            _ => (format!("/hooks/{id}?{name}={text}"), request(&[], "{}")),
        };
        let nothing = check(&house, &format!("/hooks/{id}"), &request(&[], "{}"), REFUSED).await;
        let (path, wrong) = with("wrong");
        let wrong = check(&house, &path, &wrong, REFUSED).await;
        for answer in [nothing, wrong] {
            assert!(!String::from_utf8_lossy(&answer.body).contains("s3cr3t"), "{answer:?}");
        }
        let (path, right) = with(secret);
        check(&house, &path, &right, RUNS).await;
        assert_eq!(fs::read_to_string(house.path("webhook-secrets").join(id)).unwrap(), secret);
    }
    assert_eq!(house.lines("runs").len(), places.len());
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    assert!(!config.contains(secret) && !house.log().contains(secret), "{config}{}", house.log());
}

#[tokio::test]
async fn what_an_open_webhook_hook_wants_is_told_to_no_sender() {
    let house = served(&[json!({ "id": "open", "trigger-rule": value("payload", "code", "s3cr3t-deploy-code") })]);
    let answer = check(&house, "/hooks/open", &request(&[], r#"{"code":"x"}"#), IGNORED).await;
    assert_eq!(String::from_utf8_lossy(&answer.body), r#"{"status":"ignored","reason":"filtered"}"#);
    check(&house, "/hooks/open", &request(&[], r#"{"code":"s3cr3t-deploy-code"}"#), RUNS).await;
    let mode = fs::metadata(house.path("hookonce.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its expression may hold a secret");
}

#[test]
fn a_webhook_secret_that_would_stand_in_an_expression_is_not_imported() {
    let rule = |rule: Json| json!({ "id": "refused", "trigger-rule": rule });
    check_refused(&rule(regex("header", "X-Token", "^(s3cr3t-a|s3cr3t-b)$")), "`X-Token` of header is matched");
    let two = json!({ "and": [value("url", "k", "s3cr3t-a"), value("url", "j", "s3cr3t-b")] });
    check_refused(&rule(two), "`k` of url is compared with what may be a secret");
    let either = json!({ "or": [value("url", "k", "s3cr3t-a"), value("payload", "ref", "main")] });
    check_refused(&rule(either), "`k` of url is compared with what may be a secret");
}

#[test]
fn what_a_template_fills_in_is_never_taken_for_the_secret() {
    let hook = |key: &str, text: &str| {
        let mut hook = json!({ "id": "refused", "trigger-rule": github() });
        hook["trigger-rule"]["match"][key] = json!(text);
        hook
    };
    for (key, text) in [
        ("secret", "{{ cat `/run/secrets/s3cr3t` }}"),
        ("secret", "a{{ getenv `X` | printf }}"),
        ("secret", "{{ credential `s3cr3t` }}"),
        ("value", "{{ cat `x` }}"),
        ("regex", "{{ cat `x` }}"),
    ] {
        check_refused(&hook(key, text), &format!("a template fills in `{key}`; render the file first"));
    }
    let mut command = hook("type", "payload-hmac-sha256");
    command["execute-command"] = json!("{{ .Command }}");
    check_refused(&command, "a template fills in `execute-command`");

    let house = house();
    let yaml = "- id: refused\n  execute-command: ./run\n  trigger-rule:\n    match:\n      type: value\n      value: \
                '{{ credential \"webhook-secret\" }}'\n      parameter: {source: header, name: X-Token}\n";
    fs::write(house.path("hooks.yaml"), yaml).unwrap();
    let report = import(&house, &["hooks.yaml"], 2);
    assert!(report.contains("a template fills in `value`; render the file first"), "{report}");
    // A variable of the environment may be a whole secret, and nothing else.
    fs::write(house.path("hooks.json"), r#"[{"id": "{{ getenv "ID" }}", "execute-command": "x"}]"#).unwrap();
    let report = import(&house, &["hooks.json"], 2);
    assert!(report.contains("a template fills in something other than a secret"), "{report}");
}

#[tokio::test]
async fn deliveries_without_an_id_run_as_in_webhook() {
    let house = served(&[
        json!({ "id": "script", "trigger-rule": { "and": [github(), value("payload", "ref", "main")] } }),
        json!({ "id": "gitlab", "pass-arguments-to-command": parameters(&[("payload", "ref")]),
                "trigger-rule": value("header", "X-Gitlab-Token", SECRET) }),
        json!({ "id": "standard", "trigger-rule": value("header", "Webhook-Token", SECRET) }),
        json!({ "id": "kind", "trigger-rule": value("header", "X-Token", SECRET),
                "pass-arguments-to-command": parameters(&[("header", "X-GitHub-Event")]) }),
    ]);
    let body = r#"{"ref":"main"}"#;
    check(&house, "/hooks/script", &signed(body), RUNS).await;
    check(&house, "/hooks/script", &signed(body), AGAIN).await;
    check(&house, "/hooks/gitlab", &request(&[("x-gitlab-token", SECRET)], body), RUNS).await;
    check(&house, "/hooks/standard", &request(&[("webhook-token", SECRET)], body), RUNS).await;
    check(&house, "/hooks/kind", &request(&[("x-token", SECRET)], body), RUNS).await;
    assert_eq!(house.lines("runs"), ["0|", "1|main|", "0|", "1||"]);
}

#[tokio::test]
async fn requests_that_differ_outside_the_body_all_run_as_in_webhook() {
    let by_query = json!({ "id": "qarg", "pass-arguments-to-command": parameters(&[("url", "branch")]),
        "trigger-rule": value("url", "token", SECRET) });
    let by_header = json!({ "id": "harg", "pass-environment-to-command": parameters(&[("header", "X-Branch")]),
        "trigger-rule": github() });
    let trigger = json!({ "id": "trigger", "trigger-rule": value("url", "token", SECRET) });
    let house = served(&[by_query, by_header, trigger]);
    for branch in ["a", "b", "c"] {
        let empty = Sent { headers: Vec::new(), body: Vec::new() };
        check(&house, &format!("/hooks/qarg?token={SECRET}&branch={branch}"), &empty, RUNS).await;
        check(&house, &format!("/hooks/trigger?token={SECRET}"), &empty, RUNS).await;
        check(&house, "/hooks/harg", &signed("{}").with("x-branch", branch), RUNS).await;
    }
    assert_eq!(house.lines("runs"), ["1|a|", "0|", "0|", "1|b|", "0|", "0|", "1|c|", "0|", "0|"]);
}

#[tokio::test]
async fn where_an_id_is_certain_only_the_same_delivery_is_a_duplicate() {
    let house = served(&[
        json!({ "id": "signed", "trigger-rule": { "and": [github(), value("header", "X-GitHub-Event", "push")] } }),
        json!({ "id": "open", "trigger-rule": value("header", "X-Gitea-Event", "push") }),
    ]);
    for (id, expected) in [("d1", RUNS), ("d2", RUNS), ("d1", AGAIN), ("d3", RUNS)] {
        let push = r#"{"ref":"main","after":"a","commits":[]}"#;
        check(&house, "/hooks/signed", &Sent::github("push", id, push), expected).await;
        let gitea = request(&[("x-gitea-event", "push"), ("x-gitea-delivery", id)], "{}");
        check(&house, "/hooks/open", &gitea, expected).await;
    }
    assert_eq!(house.lines("runs").len(), 6);
    let report = import(&house, &["hooks.json", "--dry-run"], 0);
    for note in [
        "hook `signed`: a delivery is a duplicate if an earlier one has the same `x-github-delivery`",
        "hook `signed`: `X-GitHub-Event` is not signed, so a delivery without it",
        "hook `open`: a delivery is a duplicate if an earlier one has the same `x-gitea-delivery`",
    ] {
        assert!(report.contains(note), "no {note:?} in:\n{report}");
    }
}

#[tokio::test]
async fn a_form_with_json_runs_where_it_is_read_and_its_hook_is_not_imported_elsewhere() {
    let hook = |id: &str, proof: &[Json]| {
        let rules: Vec<_> = proof.iter().cloned().chain([value("payload", "payload.ref", "main")]).collect();
        json!({ "id": id, "parse-parameters-as-json": parameters(&[("payload", "payload")]),
                "pass-arguments-to-command": parameters(&[("payload", "payload.ref")]),
                "trigger-rule": { "and": rules } })
    };
    let house = served(&[hook("form", &[github()])]);
    let form = signed("payload=%7B%22ref%22%3A%22main%22%7D").with("content-type", "application/x-www-form-urlencoded");
    check(&house, "/hooks/form", &form, RUNS).await;
    assert_eq!(house.lines("runs"), ["1|main|"]);
    for proof in [
        vec![],
        vec![value("header", "X-Token", "s3cr3t-s3cr3t-s3cr3t")],
        vec![signature("payload-hmac-sha256", "X-Sig")],
        vec![signature("payload-hmac-sha1", "X-Hub-Signature")],
    ] {
        check_refused(&hook("refused", &proof), "it reads JSON in a form, which is read here only where");
    }
}

#[tokio::test]
async fn a_rule_sees_numbers_and_flags_as_webhook_did() {
    let hook = |id: &str, rule: Json| json!({ "id": id, "trigger-rule": { "and": [github(), rule] } });
    let house = served(&[
        hook("number", regex("payload", "number", "^[0-9]+$")),
        hook("merged", regex("payload", "merged", "true")),
        hook("five", value("payload", "n", "5")),
        hook("flag", value("payload", "n", "true")),
    ]);
    for (path, body, expected) in [
        ("number", r#"{"number":12}"#, RUNS),
        ("number", r#"{"number":"12"}"#, RUNS),
        ("number", r#"{"number":1.5}"#, IGNORED),
        ("number", "{}", IGNORED),
        ("merged", r#"{"merged":true}"#, RUNS),
        ("merged", r#"{"merged":false}"#, IGNORED),
        ("five", r#"{"n":5}"#, RUNS),
        ("five", r#"{"n":"5"}"#, RUNS),
        ("five", r#"{"n":5.0}"#, IGNORED),
        ("five", r#"{"n":50e-1}"#, IGNORED),
        ("flag", r#"{"n":true}"#, RUNS),
        ("flag", r#"{"n":1}"#, IGNORED),
    ] {
        check(&house, &format!("/hooks/{path}"), &signed(body), expected).await;
    }
    assert_eq!(house.lines("runs").len(), 6);
    // A list is no value here, and that is said.
    let house = self::house();
    write_hooks(&house, &[hook("labels", regex("payload", "labels", "urgent"))]);
    let report = import(&house, &["hooks.json"], 0);
    assert!(report.contains("a list, an object or null never fits the expression for `labels` of payload"), "{report}");
}

#[test]
fn a_value_that_webhook_finds_elsewhere_is_not_imported() {
    let hook = |rule: Json| json!({ "id": "refused", "trigger-rule": { "and": [github(), rule] } });
    let not = |name: &str| json!({ "not": value("payload", name, "skip") });
    for name in ["root.0.action", "root", "0.action"] {
        for rule in [not(name), value("payload", name, "skip")] {
            check_refused(&hook(rule), &format!("`{name}` of payload may be in a list at the top of the body"));
        }
    }
    check_refused(&hook(not("a.b")), "`a.b` of payload stands under a `not`; webhook looks for a key with that dot");
    let argument = json!({ "id": "refused", "pass-arguments-to-command": parameters(&[("payload", "root.0.id")]) });
    check_refused(&argument, "`root.0.id` of payload may be in a list");
}

#[tokio::test]
async fn a_condition_on_a_plain_member_is_no_token() {
    let house = served(&[
        json!({ "id": "pass", "trigger-rule": value("payload", "status.pass", "true") }),
        json!({ "id": "key", "trigger-rule": value("payload", "data.key", "PROJ") }),
    ]);
    assert!(!house.path("webhook-secrets").exists());
    for (path, body, expected) in [
        ("pass", r#"{"status":{"pass":true}}"#, RUNS),
        ("pass", r#"{"status":{"pass":"true"}}"#, RUNS),
        ("pass", r#"{"status":{"pass":false}}"#, IGNORED),
        ("key", r#"{"data":{"key":"PROJ"}}"#, RUNS),
        ("key", r#"{"data":{"key":"OTHER"}}"#, IGNORED),
    ] {
        check(&house, &format!("/hooks/{path}"), &request(&[], body), expected).await;
    }
    assert_eq!(house.lines("runs").len(), 3);
}

#[tokio::test]
async fn a_file_of_broken_base64_does_not_keep_the_command_from_running() {
    let file = |name: &str| json!({ "source": "payload", "name": name, "envname": name, "base64decode": true });
    let house = served(&[json!({ "id": "files", "execute-command": "./read", "trigger-rule": github(),
        "pass-file-to-command": [file("GOOD"), file("BROKEN"), { "source": "raw-request-body", "name": "raw" }] })]);
    script(
        &house,
        "read",
        r#"printf '%s|' "$(cat "$GOOD")" "$(head -c3 "$BROKEN")" "$(cat "$HOOK_RAW")" >> runs; echo >> runs"#,
    );
    let body = r#"{"GOOD":"aGVsbG8=","BROKEN":"aGVs!G8"}"#;
    check(&house, "/hooks/files", &signed(body), RUNS).await;
    assert_eq!(house.lines("runs"), [format!("hello|hel|{body}|")]);
    assert_eq!((house.count("done"), house.count("dead")), (1, 0));
}

#[test]
fn output_on_error_alone_changes_nothing_as_in_webhook() {
    let house = house();
    write_hooks(&house, &[json!({ "id": "a", "include-command-output-in-response-on-error": true })]);
    let report = import(&house, &["hooks.json"], 0);
    assert!(report.contains("`include-command-output-in-response-on-error` has no effect alone"), "{report}");
    assert!(!fs::read_to_string(house.path("hookonce.toml")).unwrap().contains("respond "));
}

#[test]
fn a_rule_for_get_is_refused_for_what_it_is() {
    for rule in [value("request", "method", "GET"), json!({ "not": value("request", "Method", "POST") })] {
        let hook = json!({ "id": "refused", "trigger-rule": { "and": [github(), rule] } });
        check_refused(&hook, "its rule is never true of a POST, and every delivery is a POST here");
    }
}

#[test]
fn a_missing_folder_of_the_config_is_named_before_anything_is_written() {
    let house = house();
    write_hooks(&house, &[json!({ "id": "gl", "trigger-rule": github() })]);
    for args in [&["hooks.json", "--out", "sub/x.toml"][..], &["hooks.json", "--out", "sub/x.toml", "--dry-run"]] {
        let report = import(&house, args, 2);
        assert!(report.contains("error: sub/x.toml: there is no folder `sub`; make it first"), "{report}");
    }
    assert!(!house.path("sub").exists() && !house.path("webhook-secrets").exists());
    fs::create_dir(house.path("sub")).unwrap();
    import(&house, &["hooks.json", "--out", "sub/x.toml"], 0);
    assert!(house.path("sub/webhook-secrets/gl").exists());
}

#[tokio::test]
async fn the_values_of_a_form_are_read_where_webhook_read_them() {
    let form = "application/x-www-form-urlencoded";
    let hook = |id: &str, more: Json| {
        let mut hook = json!({ "id": id, "incoming-payload-content-type": form,
            "pass-arguments-to-command": parameters(&[("payload", "text"), ("payload", "a.b")]) });
        hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hook
    };
    let branch = json!({ "not": value("payload", "n", "5") });
    let hooks = [
        hook("token", json!({ "trigger-rule": value("payload", "token", "s3cr3t-of-a-form") })),
        hook("signed", json!({ "trigger-rule": { "and": [signature("payload-hmac-sha1", "X-Signature"), branch] } })),
    ];
    let house = served(&hooks);
    let config = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    assert!(
        config.contains("\"form.text\"") && config.contains("\"form.token\"") && !config.contains("s3cr3t"),
        "{config}"
    );
    let request = |body: &str| Sent { headers: vec![("content-type".into(), form.into())], body: body.into() };
    check(&house, "/hooks/token", &request("text=a+b&token=s3cr3t-of-a-form&a.b=%C3%A9"), RUNS).await;
    check(&house, "/hooks/token", &request("text=a&token=wrong"), REFUSED).await;
    check(&house, "/hooks/token", &request("text=a"), REFUSED).await;
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
    let signed = |body: &str| {
        let signature = hex::encode(aws_lc_rs::hmac::sign(&key, body.as_bytes()));
        request(body).with("x-signature", &signature)
    };
    check(&house, "/hooks/signed", &signed("text=x&n=6"), RUNS).await;
    check(&house, "/hooks/signed", &signed("text=x&n=5"), IGNORED).await;
    check(&house, "/hooks/signed", &request("text=x&n=6").with("x-signature", "00"), REFUSED).await;
    assert_eq!(house.lines("runs"), ["2|a b|é|", "2|x||"]);
}

#[test]
fn a_form_with_json_in_a_value_is_not_guessed() {
    let hook = json!({ "id": "refused", "incoming-payload-content-type": "application/x-www-form-urlencoded",
        "parse-parameters-as-json": parameters(&[("payload", "data")]),
        "pass-arguments-to-command": parameters(&[("payload", "data.ref")]) });
    check_refused(&hook, "`data` of form is parsed as JSON, and only the body is read here");
}
