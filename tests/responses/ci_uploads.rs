//! CI jobs that retry their uploads: `preset = "ci-ingestion"`.

use crate::backend::{Backend, Does};
use crate::support::{Answer, House, Sent, payload, until};
use crate::{IN, signed};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const REPO: &str = "8c1f9a52-6e0e-4a0c-9d0e-4f1a2b3c4d5e";

fn config(url: &str, keys: &str) -> String {
    format!(
        r#"
[source.ci]
preset = "ci-ingestion"
path   = "{IN}"
secret = {{ dir = "callers" }}
{keys}
[[source.ci.route]]
forward = {{ url = "{url}" }}
"#
    )
}

/// A node with these callers, each with its file.
fn house(config: &str, callers: &[(&str, &str)]) -> House {
    let mut house = House::empty(config);
    std::fs::create_dir(house.path("callers")).unwrap();
    for (name, secrets) in callers {
        write(&house, name, secrets);
    }
    house.start();
    house
}

fn write(house: &House, caller: &str, secrets: &str) {
    std::fs::write(house.path("callers").join(caller), secrets).unwrap();
}

/// An upload by this caller, signed with this secret.
fn upload(caller: &str, secret: &str, body: &Json) -> Sent {
    signed("x-fr-sig", secret, &body.to_string()).with("authorization", &format!("Bearer {caller}"))
}

/// The body of the test payload, with these members set.
fn results(set: &Json) -> Json {
    let mut body: Json = serde_json::from_str(&payload("ci_ingestion.json")).unwrap();
    for (name, value) in set.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn is_new(answer: &Answer) -> bool {
    assert_eq!(answer.status, 201, "{answer:?}");
    let replayed = answer.header("idempotent-replayed").is_some();
    assert_eq!(answer.json()["isDuplicate"] == true, replayed, "{answer:?}");
    assert_eq!(answer.json()["ingested"], 12);
    !replayed
}

const ANSWER: &str = "{\"ingested\":12,\"isDuplicate\":false}";

#[tokio::test]
async fn a_retried_upload_gets_the_first_response_again_marked_as_a_duplicate() {
    let backend = Backend::answers(201, ANSWER).await;
    let house = house(&config(&backend.url, ""), &[(REPO, "s3cret\n")]);
    let new = |set: Json| upload(REPO, "s3cret", &results(&set));
    assert!(is_new(&house.deliver(IN, &new(json!({}))).await));
    let again = house.deliver(IN, &new(json!({}))).await;
    assert_eq!(String::from_utf8_lossy(&again.body), "{\"ingested\":12,\"isDuplicate\":true}");
    // The same run with other bytes: its id trimmed, its tests in another order.
    for same in [json!({ "run_id": "9912345678" }), json!({ "run_id": "\t9912345678\n", "tests": [] })] {
        assert!(!is_new(&house.deliver(IN, &new(same)).await));
    }
    // Another commit, run or framework is another event.
    for other in [json!({ "commit_sha": "b" }), json!({ "run_id": "2" }), json!({ "framework": "vitest" })] {
        assert!(is_new(&house.deliver(IN, &new(other)).await));
    }
    // Without a run id there is one run per commit.
    assert!(is_new(&house.deliver(IN, &new(json!({ "run_id": Json::Null }))).await));
    for blank in [json!({ "run_id": "" }), json!({ "run_id": "  " }), json!({ "run_id": "no-run-id" })] {
        assert!(!is_new(&house.deliver(IN, &new(blank)).await));
    }
    assert_eq!(backend.calls().len(), 5);
    assert_eq!(house.sql("select distinct repo || ' ' || framework from events order by 1").len(), 2);
}

#[tokio::test]
async fn an_unauthenticated_caller_is_refused_and_no_caller_uploads_for_another() {
    let backend = Backend::answers(201, ANSWER).await;
    let house = house(&config(&backend.url, ""), &[(REPO, "s3cret\n"), ("acme", "theirs\n")]);
    let good = upload(REPO, "s3cret", &results(&json!({})));
    let without = |name: &str| Sent {
        headers: good.headers.iter().filter(|(n, _)| n != name).cloned().collect(),
        ..good.clone()
    };
    for (what, sent) in [
        ("another's secret", upload(REPO, "theirs", &results(&json!({})))),
        ("an unknown caller", upload("nobody", "s3cret", &results(&json!({ "repo_id": "nobody" })))),
        ("no signature", without("x-fr-sig")),
        ("no caller", without("authorization")),
        ("another scheme", good.clone().with("authorization", &format!("Basic {REPO}"))),
        ("an empty caller", good.clone().with("authorization", "Bearer ")),
        ("a bent signature", good.clone().with("x-fr-sig", &"0".repeat(64))),
    ] {
        let answer = house.deliver(IN, &sent).await;
        assert_eq!((answer.status, &answer.json()["reason"]), (401, &"bad_signature".into()), "{what}: {answer:?}");
    }
    let answer = house.deliver(IN, &upload("acme", "theirs", &results(&json!({})))).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    let answer = house.deliver(IN, &upload("acme", "theirs", &results(&json!({ "repo_id": Json::Null })))).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!((backend.calls().len(), house.sql("select count(*) from events")), (0, vec!["0".to_owned()]));
    assert_eq!(house.deliver(IN, &good).await.status, 201);
}

#[tokio::test]
async fn a_callers_name_cannot_escape_the_folder() {
    let backend = Backend::answers(201, ANSWER).await;
    let house = house(
        &config(&backend.url, ""),
        &[(".hidden", "s3cret\n"), ("empty", "\n\n"), ("long", &"x\n".repeat(40_000))],
    );
    std::fs::write(house.path("outside"), "s3cret\n").unwrap();
    let callers = house.path("callers");
    std::fs::create_dir(callers.join("inner")).unwrap();
    std::fs::write(callers.join("inner").join("deep"), "s3cret\n").unwrap();
    std::os::unix::fs::symlink("../outside", callers.join("link")).unwrap();
    std::os::unix::fs::symlink(".hidden", callers.join("mounted")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, callers.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let status = async |caller: &str| {
        let sent = upload(caller, "s3cret", &results(&json!({ "repo_id": caller })));
        house.deliver(IN, &sent).await.status
    };
    for caller in ["../outside", ".hidden", "..", ".", "inner/deep", "inner", "link", "empty", "long", "pipe"] {
        assert_eq!(status(caller).await, 401, "{caller}");
    }
    // A link within the folder is how mounted secrets are made.
    assert_eq!(status("mounted").await, 201);
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn callers_are_added_rotated_and_removed_without_a_restart() {
    let backend = Backend::answers(201, ANSWER).await;
    let house = house(&config(&backend.url, ""), &[]);
    let mut run = 0;
    let mut check = async |secret: &str, expected: u16| {
        run += 1;
        let sent = upload(REPO, secret, &results(&json!({ "run_id": run.to_string() })));
        assert_eq!(house.deliver(IN, &sent).await.status, expected, "{secret}, run {run}");
    };
    check("one", 401).await;
    write(&house, REPO, "one\n");
    check("one", 201).await;
    check("two", 401).await;
    write(&house, REPO, "two\r\none");
    check("two", 201).await;
    check("one", 201).await;
    write(&house, REPO, "two\n");
    check("one", 401).await;
    check("two", 201).await;
    // Files of one length, written one after the other as fast as possible.
    for n in 0..50 {
        write(&house, REPO, &format!("{n:03}\n"));
        check(&format!("{n:03}"), 201).await;
        check(&format!("{:03}", n + 900), 401).await;
    }
    std::fs::remove_file(house.path("callers").join(REPO)).unwrap();
    check("049", 401).await;
}

#[tokio::test]
async fn a_failed_upload_is_not_kept_and_the_retry_gets_its_own_response() {
    let does = vec![Does::Answers(503, "{\"busy\":1}".into()), Does::Answers(201, ANSWER.into())];
    let backend = Backend::new(does).await;
    let house = house(&config(&backend.url, ""), &[(REPO, "s3cret\n")]);
    let sent = upload(REPO, "s3cret", &results(&json!({})));
    assert_eq!(house.deliver(IN, &sent).await.status, 503);
    assert!(is_new(&house.deliver(IN, &sent).await));
    assert!(!is_new(&house.deliver(IN, &sent).await));
    assert_eq!((backend.calls().len(), backend.effects()), (2, 1));
}

#[tokio::test]
async fn an_upload_may_have_fifty_megabytes() {
    let backend = Backend::answers(201, ANSWER).await;
    let house = house(&config(&backend.url, "respond_within = \"60s\""), &[(REPO, "s3cret\n")]);
    let of = |megabytes: usize| upload(REPO, "s3cret", &results(&json!({ "log": "x".repeat(megabytes << 20) })));
    assert_eq!(house.deliver(IN, &of(51)).await.status, 413);
    assert!(is_new(&house.deliver(IN, &of(49)).await));
    assert!(backend.calls()[0].body.len() > 49 << 20);
}

/// The response of the admin port to a client with this token.
async fn ask(house: &House, method: reqwest::Method, path: &str, token: &str) -> (u16, Json) {
    let request = reqwest::Client::new().request(method, house.admin_url(path)).bearer_auth(token);
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status().as_u16(), answer.bytes().await.unwrap());
    (status, serde_json::from_slice(&text).unwrap_or(Json::Null))
}

#[tokio::test]
async fn a_token_for_cron_may_only_forget_and_a_shorter_keep_counts_at_its_next_call() {
    let backend = Backend::answers(201, ANSWER).await;
    let admin = "\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { file = \"all\" }\ntokens = [{ token = { file = \"cron\" }, may = \"forget\" }]\n";
    let with = |once: &str| format!("{admin}{}", config(&backend.url, once));
    let mut house = House::empty(&with(""));
    std::fs::create_dir(house.path("callers")).unwrap();
    for (file, text) in [("callers/".to_owned() + REPO, "s3cret"), ("all".into(), "t0ken"), ("cron".into(), "cr0n")] {
        std::fs::write(house.path(&file), text).unwrap();
    }
    house.start();
    for run in 0..3 {
        let sent = upload(REPO, "s3cret", &results(&json!({ "run_id": run.to_string() })));
        assert!(is_new(&house.deliver(IN, &sent).await));
    }
    let forget = async |house: &House, token: &str| ask(house, reqwest::Method::POST, "/api/forget", token).await;
    let (status, said) = forget(&house, "cr0n").await;
    assert_eq!((status, &said["forgotten"]), (200, &json!(0)));
    assert_eq!(forget(&house, "wrong").await.0, 401);
    assert_eq!(ask(&house, reqwest::Method::GET, "/api/events", "cr0n").await.0, 403);
    house.stop();
    let short = "once = { per = [[\"repo\", \"commit\", \"run\", \"framework\"]], keep = \"8s\" }";
    house.configure(&with(short));
    house.start();
    // The node sweeps when it starts, and then once a minute: what it has deleted by then is not counted here.
    let there = || house.sql("select count(*) from events")[0].parse::<u64>().unwrap();
    let (before, begun) = (there(), std::time::Instant::now());
    let mut forgotten = 0;
    while there() > 0 {
        assert!(begun.elapsed() < crate::support::PATIENCE, "the events are not forgotten");
        let (status, said) = forget(&house, "cr0n").await;
        assert_eq!(status, 200);
        forgotten += said["forgotten"].as_u64().unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(forgotten, before);
    let (status, said) = forget(&house, "cr0n").await;
    assert_eq!((status, &said["forgotten"]), (200, &json!(0)), "{said}");
    let sent = upload(REPO, "s3cret", &results(&json!({ "run_id": "0" })));
    assert!(is_new(&house.deliver(IN, &sent).await));
}

#[test]
fn an_unknown_caller_takes_as_long_as_a_known_one() {
    use hookonce::decide::delivery::{Delivery, borrow_headers};
    use hookonce::decide::time::Timestamp;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("callers")).unwrap();
    std::fs::write(dir.path().join("callers/known"), "s3cret").unwrap();
    let config =
        hookonce::internals::config::parse(&config("http://127.0.0.1:1/", ""), "x", dir.path(), &|_| None).unwrap();
    let body = bytes::Bytes::from(vec![b'x'; 4 << 20]);
    let took = |caller: &str| {
        let sent = signed("x-fr-sig", "wrong", "").with("authorization", &format!("Bearer {caller}"));
        let headers: Vec<_> = sent.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let delivery = Delivery {
            path: IN,
            query: "",
            headers: &borrow_headers(&headers),
            body: &body,
            at: Timestamp(0),
            wall: Timestamp(0),
        };
        let begun = std::time::Instant::now();
        assert!(config.sources[0].verify.verify(&delivery).is_err());
        begun.elapsed()
    };
    let fastest = |caller: &str| (0..15).map(|_| took(caller)).min().unwrap().as_secs_f64();
    for nobody in ["unknown", "../known", ""] {
        let ratio = fastest(nobody) / fastest("known");
        assert!((0.5..2.0).contains(&ratio), "{nobody:?}: {ratio}");
    }
}

#[tokio::test]
async fn a_service_that_takes_nine_seconds_is_called_once_and_its_response_is_returned() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![Does::Answers(201, "{\"ingested\":12}".into())], gate.clone()).await;
    let house = house(&config(&backend.url, ""), &[(REPO, "s3cret")]);
    let sent = upload(REPO, "s3cret", &results(&json!({})));
    let takes = async {
        until("the call", || backend.calls().len() == 1).await;
        tokio::time::sleep(Duration::from_secs(9)).await; // the duration of the service
        gate.add_permits(1);
    };
    let (answer, ()) = tokio::join!(house.deliver(IN, &sent), takes);
    assert!(is_new(&answer), "{answer:?}");
    assert_eq!(backend.calls().len(), 1);
    assert_eq!(house.count("done"), 1);
}
