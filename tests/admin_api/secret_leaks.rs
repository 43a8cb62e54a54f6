//! Secrets that must never be shown: eight canaries, searched for in all output.

use crate::request;
use crate::support::{House, PATIENCE, Sent, until};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use serde_json::json;
use std::time::Duration;

/// Each is used where it belongs, and must appear nowhere else.
const SECRET_NOW: &str = "canary-secret-now-1a2b";
const SECRET_NEXT: &str = "canary-secret-next-3c4d";
const ADMIN_TOKEN: &str = "canary-admin-token-5e6f";
const READ_TOKEN: &str = "canary-read-token-7a8b";
const PEER_TOKEN: &str = "canary-peer-token-9c0d";
const AUTHORIZATION: &str = "canary-authorization-1e2f";
const COOKIE: &str = "canary-cookie-3a4b";
const BAD_SIGNATURE: &str = "canary-signature-5c6d";
const CANARIES: [&str; 8] =
    [SECRET_NOW, SECRET_NEXT, ADMIN_TOKEN, READ_TOKEN, PEER_TOKEN, AUTHORIZATION, COOKIE, BAD_SIGNATURE];

const CONFIG: &str = r#"
listen = "127.0.0.1:0"
[admin]
listen     = "127.0.0.1:0"
token      = { env = "ADMIN_TOKEN" }
tokens     = [{ token = { env = "READ_TOKEN" }, may = "read" }]
peers      = ["http://127.0.0.1:9"]
peer_token = { env = "PEER_TOKEN" }
[source.a]
path   = "/in"
verify = { scheme = "github", secret = [{ env = "SECRET_NOW" }, { env = "SECRET_NEXT" }] }
fields = { n = "body.n", kind = "header.x-github-event" }
[[source.a.route]]
name = "act"
run  = { steps = ["env; cat", "test $HOOKONCE_FIELD_N != 13"] }
"#;

/// A signed delivery with headers that must not be stored.
fn sent(id: &str, n: u64, secret: &str) -> Sent {
    let scheme = VerificationScheme::github(SourceSecrets::new(vec![secret.as_bytes().to_vec()]));
    let body = format!("{{\"n\":{n},\"ref\":\"r\",\"after\":\"a\",\"commits\":[]}}");
    let mut headers = scheme.sign(id, Timestamp(0), body.as_bytes());
    headers.push(("x-github-event".into(), "push".into()));
    headers.push(("authorization".into(), format!("Bearer {AUTHORIZATION}")));
    headers.push(("cookie".into(), format!("session={COOKIE}")));
    Sent { headers, body: body.into_bytes() }
}

fn signature(sent: &Sent) -> String {
    sent.headers.iter().find(|(name, _)| name == "x-hub-signature-256").unwrap().1.replace("sha256=", "")
}

#[tokio::test]
async fn no_secret_signature_cookie_or_authorization_is_in_any_response_log_command_or_file() {
    let mut house = House::empty(CONFIG);
    let env = [
        ("SECRET_NOW", SECRET_NOW),
        ("SECRET_NEXT", SECRET_NEXT),
        ("ADMIN_TOKEN", ADMIN_TOKEN),
        ("READ_TOKEN", READ_TOKEN),
        ("PEER_TOKEN", PEER_TOKEN),
        ("HOOKONCE_ADMIN_TOKEN", ADMIN_TOKEN),
    ];
    let mut serve = house.command(&["serve"]);
    serve.envs(env);
    house.try_start_by(serve).unwrap();
    let bearer = format!("Bearer {ADMIN_TOKEN}");
    let auth = [("authorization", &*bearer)];
    let live = reqwest::Client::new().get(house.admin_url("/api/live")).bearer_auth(ADMIN_TOKEN).send().await.unwrap();
    let live = tokio::spawn(async move {
        let (mut live, mut heard) = (live, String::new());
        while let Ok(Some(chunk)) = live.chunk().await {
            heard += &String::from_utf8_lossy(&chunk);
        }
        heard
    });

    let all =
        [sent("d1", 1, SECRET_NOW), sent("d2", 2, SECRET_NEXT), sent("d1", 1, SECRET_NOW), sent("d3", 13, SECRET_NOW)];
    let mut answers = Vec::new();
    for one in &all {
        answers.push(house.deliver("/in", one).await);
    }
    answers.push(house.deliver("/in", &sent("d4", 1, SECRET_NOW).with("x-hub-signature-256", BAD_SIGNATURE)).await);
    answers.push(house.deliver("/nowhere?key=canary-cookie-3a4b", &sent("d5", 1, SECRET_NOW)).await);
    house.quiet().await;
    let event = answers[0].event();
    let login = request(
        &house,
        "POST",
        "/login",
        &[("content-type", "application/json")],
        &json!({ "token": ADMIN_TOKEN }).to_string(),
    )
    .await;
    answers.push(login);
    let wrong = json!({ "token": COOKIE }).to_string();
    answers.push(request(&house, "POST", "/login", &[("content-type", "application/json")], &wrong).await);
    let headers: serde_json::Map<_, _> = all[0].headers.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
    let pasted = json!({ "headers": headers, "body": "{\"n\":1}" }).to_string();
    answers.push(request(&house, "POST", "/api/explain", &auth, &pasted).await);
    for (method, path) in [
        ("GET", "/api/events".to_owned()),
        ("GET", format!("/api/events/{event}")),
        ("GET", format!("/api/events/{event}/body")),
        ("GET", format!("/api/events/{event}/headers")),
        ("GET", "/api/overview".into()),
        ("GET", "/api/sources".into()),
        ("GET", "/api/turned-away".into()),
        ("GET", "/api/deliveries".into()),
        ("GET", "/api/session".into()),
        ("GET", "/api/openapi.json".into()),
        ("GET", "/metrics".into()),
        ("POST", "/api/replay?state=dead&dry=1".into()),
        ("POST", format!("/api/events/{event}/replay")),
        ("POST", "/api/forget".into()),
    ] {
        let answer = request(&house, method, &path, &auth, "").await;
        assert_eq!(answer.status, 200, "{path}");
        answers.push(answer);
    }
    house.quiet().await;

    let mut seen: Vec<(String, String)> = Vec::new();
    for answer in &answers {
        seen.push(("an answer".into(), format!("{:?}\n{}", answer.headers, String::from_utf8_lossy(&answer.body))));
    }
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["show", &event, "--output"],
        &["show", &event, "--json"],
        &["check"],
        &["check", "--json"],
        &["explain", &event],
        &["explain", &event, "--json"],
        &["forget", "--json"],
    ] {
        let output = house.command(args).envs(env).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(said.len() > 10, "{args:?} prints nothing");
        seen.push((format!("{args:?}"), said));
    }
    house.stop();
    let heard = tokio::time::timeout(PATIENCE, live).await.unwrap().unwrap();
    assert!(heard.contains("event: delivery") && heard.contains("event: output"), "{heard}");
    seen.push(("the live stream".into(), heard));
    for entry in std::fs::read_dir(house.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        seen.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    search(&seen, &all);
}

/// Searches for every canary and every signature in all collected output.
fn search(seen: &[(String, String)], all: &[Sent]) {
    let signatures: Vec<String> = all.iter().map(signature).collect();
    for (place, text) in seen {
        for canary in CANARIES.iter().copied().chain(signatures.iter().map(String::as_str)) {
            assert!(!text.contains(canary), "{canary} is in {place}:\n{text}");
        }
    }
    assert!(seen.iter().any(|(_, text)| text.contains("d1")), "the test searches nothing");
}

#[tokio::test]
async fn no_secret_is_in_the_log() {
    let mut house = House::empty(CONFIG);
    let mut serve = house.command(&["serve"]);
    serve.env("SECRET_NOW", SECRET_NOW).env("SECRET_NEXT", SECRET_NEXT).env("ADMIN_TOKEN", ADMIN_TOKEN);
    serve.env("READ_TOKEN", READ_TOKEN).env("PEER_TOKEN", PEER_TOKEN);
    house.try_start_by(serve).unwrap();
    let one = sent("d1", 13, SECRET_NOW);
    house.deliver("/in", &one).await;
    house.deliver("/in", &one).await;
    house.deliver("/in", &sent("d4", 1, SECRET_NOW).with("x-hub-signature-256", BAD_SIGNATURE)).await;
    request(&house, "GET", "/api/events", &[("authorization", &format!("Bearer {COOKIE}"))], "").await;
    until("the log", || house.log().contains("refused") && house.log().contains("dead")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let log = house.log();
    for canary in CANARIES.iter().copied().chain([&*signature(&one)]) {
        assert!(!log.contains(canary), "{canary} is in the log:\n{log}");
    }
}
