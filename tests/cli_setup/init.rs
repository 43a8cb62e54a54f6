//! `hookonce init`: every template is written, loads, and is not overwritten.

use super::support::{House, PATIENCE};
use super::{run, said};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use hookonce::internals::config::presets;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

/// Each template, its path, and its file with a secret.
const KINDS: [(&str, &str, &str); 4] = [
    ("ghcr-deploy", "/in/ghcr", "hookonce.secret"),
    ("forward", "/in/github", "hookonce.secret"),
    ("ci-ingestion", "/in/ci", "callers/my-repo"),
    ("hmac", "/in/hook", "hookonce.secret"),
];

/// A folder without a config.
fn empty() -> House {
    let house = House::empty("");
    std::fs::remove_file(house.path("hookonce.toml")).unwrap();
    house
}

#[test]
fn every_template_loads_without_warnings_except_for_missing_folders() {
    for (kind, path, secret) in KINDS {
        let house = empty();
        run(&house, &["init", kind]).has(
            0,
            &[
                &format!("wrote hookonce.toml and {secret}"),
                &format!("https://YOUR-HOST{path} "),
                "application/json",
                &format!("the line in {secret}"),
                "Then:\n  hookonce check\n  hookonce serve\n",
            ],
        );
        let checked = run(&house, &["check", "--json"]).has(0, &[]).json();
        for problem in checked["problems"].as_array().unwrap() {
            assert!(problem["title"].as_str().unwrap().starts_with("the folder "), "{problem}");
        }
        let url = checked["sources"][0]["path"].as_str().unwrap();
        assert_eq!(url, path, "the printed path is the written one");
        let mode = std::fs::metadata(house.path(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let secret = std::fs::read_to_string(house.path(secret)).unwrap();
        assert!(secret.len() == 65 && hex::decode(secret.trim()).is_ok_and(|bytes| bytes.len() == 32), "{secret:?}");
    }
}

/// What is known about a sender is written once, in its preset: a template that repeats it would drift apart.
#[test]
fn a_template_for_a_sender_with_a_preset_uses_that_preset() {
    for (kind, ..) in KINDS {
        let house = empty();
        run(&house, &["init", kind]).has(0, &[]);
        let preset = match kind {
            "ghcr-deploy" => "github-package",
            _ if presets::find(kind).is_some() => kind,
            _ => continue,
        };
        let written = run(&house, &["check", "--json"]).has(0, &[]).json()["sources"].clone();
        let text = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
        let name = written[0]["name"].as_str().unwrap();
        let secret = text.lines().find(|line| line.starts_with("secret")).unwrap();
        let route = &text[text.find("[[source.").unwrap()..];
        let alone = format!("[source.{name}]\npreset = \"{preset}\"\n{secret}\n{route}");
        std::fs::write(house.path("hookonce.toml"), alone).unwrap();
        assert_eq!(written, run(&house, &["check", "--json"]).has(0, &[]).json()["sources"], "{kind}");
    }
}

/// With the config of `hookonce init`: two uploads that differ only in their framework are two events.
#[tokio::test]
async fn uploads_of_two_frameworks_to_a_fresh_config_both_run() {
    let mut house = empty();
    run(&house, &["init", "ci-ingestion"]).has(0, &["Authorization: Bearer my-repo"]);
    let text = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
    let (source, forward) = text.split_at(text.find("forward =").unwrap());
    let behind = forward.split_once('\n').unwrap().1;
    house.configure(&format!("{source}run = {{ steps = [\"cat >> uploads\"] }}\n{behind}"));
    house.start();
    for framework in ["jest", "pytest", "jest"] {
        let body = format!(r#"{{"repo_id":"my-repo","commit_sha":"c0ffee","framework":"{framework}"}}"#);
        let mut send = house.command(&["send", "--url", &house.url("/in/ci"), "-"]);
        send.stdin(std::process::Stdio::piped());
        said(send, body.as_bytes()).has(0, &[]);
    }
    house.quiet().await;
    let uploads = std::fs::read_to_string(house.path("uploads")).unwrap();
    assert_eq!(uploads.matches("framework").count(), 2, "{uploads}");
}

#[test]
fn an_existing_folder_of_callers_stays_and_gets_one_more() {
    let house = empty();
    std::fs::create_dir(house.path("callers")).unwrap();
    std::fs::write(house.path("callers/acme"), "mine").unwrap();
    run(&house, &["init", "ci-ingestion"]).has(0, &[]);
    assert_eq!(std::fs::read_to_string(house.path("callers/acme")).unwrap(), "mine");
    run(&house, &["init", "ci-ingestion", "--out", "none/h.toml"]).has(2, &["none/callers/my-repo cannot be written"]);
    assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 2);
}

#[test]
fn nothing_is_overwritten_without_force() {
    for there in ["hookonce.toml", "hookonce.secret"] {
        let house = empty();
        std::fs::write(house.path(there), "mine").unwrap();
        run(&house, &["init", "hmac"]).has(1, &[&format!("{there} already exists; nothing was written")]);
        assert_eq!(std::fs::read_to_string(house.path(there)).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 1);
        run(&house, &["init", "hmac", "--force"]).has(0, &[]);
        run(&house, &["check"]).has(0, &["hookonce.toml is fine\n"]);
        assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn the_config_is_written_to_the_given_path_and_the_output_says_how_to_use_it() {
    let house = empty();
    std::fs::create_dir(house.path("etc")).unwrap();
    run(&house, &["init", "forward", "--out", "etc/h.toml"])
        .has(0, &["wrote etc/h.toml and etc/hookonce.secret", "hookonce check --config etc/h.toml"]);
    run(&house, &["check", "--config", "etc/h.toml"]).has(0, &["is fine\n"]);
}

#[test]
fn without_a_terminal_or_with_an_unknown_template_the_templates_are_listed() {
    let house = empty();
    run(&house, &["init"]).has(2, &["one of: ghcr-deploy, forward, ci-ingestion, hmac"]);
    said(house.command(&["init"]), b"1\n\n\n").has(2, &["which kind of config?"]);
    run(&house, &["init", "forwrad"]).has(2, &["did you mean `forward`?"]);
    run(&house, &["init", "hmac", "--out", "no/h.toml"]).has(2, &["no/hookonce.secret cannot be written"]);
    run(&house, &["init", "hmac", "--out", "."]).has(1, &["already exists"]);
    assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 0);
}

/// A service that records the headers of its requests and responds with 200, on a free port.
fn service() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/webhook", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok();
            (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok();
            if tell.send(head.to_lowercase()).is_err() {
                break;
            }
        }
    });
    (url, told)
}

#[tokio::test]
async fn the_service_behind_init_forward_can_tell_a_push_from_a_pull_request() {
    let (url, told) = service();
    let mut house = empty();
    run(&house, &["init", "forward"]).has(0, &[]);
    let text = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
    house.configure(&text.replace("http://127.0.0.1:8080/webhook", &url));
    house.start();
    let secret = std::fs::read_to_string(house.path("hookonce.secret")).unwrap();
    let scheme = VerificationScheme::github(SourceSecrets::new(vec![secret.trim().as_bytes().to_vec()]));
    let push = r#"{"ref":"refs/heads/main","after":"6dcb09b","commits":[]}"#;
    let pull = r#"{"action":"opened","number":1,"pull_request":{}}"#;
    for (kind, body, status) in [("push", push, 202), ("pull_request", pull, 202), ("pull_request", push, 422)] {
        let mut headers = scheme.sign(&format!("id-{kind}"), Timestamp(0), body.as_bytes());
        headers.push(("x-github-event".into(), kind.into()));
        let answer = house.post("/in/github", &headers, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, status, "{kind}: {answer:?}");
        if status == 202 {
            let head = told.recv_timeout(PATIENCE).unwrap();
            for (name, value) in headers {
                assert!(head.contains(&format!("{name}: {}\r\n", value.to_lowercase())), "no {name} in {head}");
            }
        }
    }
    // A sample delivery has a kind, too.
    run(&house, &["send", "--sample", "--url", &house.url("/")]).has(0, &["202"]);
    let head = told.recv_timeout(PATIENCE).unwrap();
    assert!(head.contains("x-github-event: push\r\n"), "{head}");
}
