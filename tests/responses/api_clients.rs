//! Clients of an API, with an `Idempotency-Key`.

use crate::IN;
use crate::backend::{Backend, Does};
use crate::support::{Answer, House, Sent};
use serde_json::Value as Json;
use std::sync::Arc;
use tokio::sync::Semaphore;

fn config(url: &str, keys: &str) -> String {
    format!(
        r#"
[source.api]
preset = "idempotency-key"
path   = "{IN}"
verify = {{ scheme = "bearer", secret = [{{ file = "alice" }}, {{ file = "bob" }}] }}
{keys}
[[source.api.route]]
forward = {{ url = "{url}" }}
"#
    )
}

fn house(url: &str, keys: &str) -> House {
    house_of(&config(url, keys))
}

fn house_of(config: &str) -> House {
    let mut house = House::empty(config);
    for name in ["alice", "bob"] {
        std::fs::write(house.path(name), format!("the token of {name}\n")).unwrap();
    }
    house.start();
    house
}

fn request(who: &str, key: Option<&str>, body: &str) -> Sent {
    let headers = [
        Some(("authorization".to_owned(), format!("Bearer the token of {who}"))),
        key.map(|key| ("idempotency-key".to_owned(), key.to_owned())),
        Some(("content-type".to_owned(), "application/json".to_owned())),
    ];
    Sent { headers: headers.into_iter().flatten().collect(), body: body.into() }
}

/// A problem of this status, whose type links to this heading of the docs page.
async fn check(house: &House, answer: &Answer, status: u16, heading: &str) -> Json {
    let said = answer.json();
    assert_eq!((answer.status, answer.header("content-type")), (status, Some("application/problem+json")), "{said}");
    assert_eq!(said["status"], status);
    assert!(said["title"].is_string(), "{said}");
    let (path, anchor) = said["type"].as_str().unwrap().split_once('#').unwrap();
    let page = reqwest::get(house.url(path)).await.unwrap();
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    assert!(page.contains(&format!("\n## {heading}\n")), "{page}");
    assert_eq!(anchor, heading.to_lowercase().replace(' ', "-"));
    said
}

#[tokio::test]
async fn a_request_acts_once_and_its_key_may_be_written_with_or_without_quotes() {
    let backend = Backend::answers(201, "{\"id\":7}").await;
    let house = house(&backend.url, "");
    let first = house.deliver(IN, &request("alice", Some("\"k-1\""), "{\"a\":1}")).await;
    assert_eq!((first.status, &*first.body, first.header("idempotent-replayed")), (201, &b"{\"id\":7}"[..], None));
    for key in ["\"k-1\"", "k-1", "\"k-1\";v=1"] {
        let again = house.deliver(IN, &request("alice", Some(key), "{\"a\":1}")).await;
        assert_eq!((again.status, &*again.body), (201, &b"{\"id\":7}"[..]), "{key}");
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
    }
    house.deliver(IN, &request("alice", Some("k-2"), "{\"a\":1}")).await;
    assert_eq!(backend.calls().len(), 2);
    assert_eq!(house.sql("select delivery_id from events order by id"), ["k-1", "k-2"]);
}

#[tokio::test]
async fn an_invalid_request_is_answered_with_a_problem() {
    let backend = Backend::answers(201, "{\"id\":7}").await;
    let house = house(&backend.url, "");
    let missing = house.deliver(IN, &request("alice", None, "{}")).await;
    let said = check(&house, &missing, 400, "Key missing").await;
    assert_eq!(said["title"], "Idempotency-Key is missing");
    for key in ["\"k", "a b", &"x".repeat(256)] {
        let malformed = house.deliver(IN, &request("alice", Some(key), "{}")).await;
        let said = check(&house, &malformed, 400, "Key malformed").await;
        assert!(said["detail"].is_string(), "{said}");
    }
    let nobody = house.deliver(IN, &request("mallory", None, "{}")).await;
    check(&house, &nobody, 401, "Not authenticated").await;
    assert_eq!((backend.calls().len(), house.sql("select count(*) from events")), (0, vec!["0".to_owned()]));
    house.deliver(IN, &request("alice", Some("k"), "{\"a\":1}")).await;
    let another = house.deliver(IN, &request("alice", Some("k"), "{\"a\":2}")).await;
    let said = check(&house, &another, 422, "Key reused").await;
    assert_eq!(said["title"], "Idempotency-Key is already used");
    assert_eq!(another.header("idempotent-replayed"), None);
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn another_body_is_refused_even_if_the_first_request_failed() {
    let does = vec![Does::Answers(500, "{}".into()), Does::Answers(200, "{\"fine\":1}".into())];
    let backend = Backend::new(does).await;
    let house = house(&backend.url, "");
    assert_eq!(house.deliver(IN, &request("alice", Some("k"), "{\"a\":1}")).await.status, 500);
    let another = house.deliver(IN, &request("alice", Some("k"), "{\"a\":2}")).await;
    check(&house, &another, 422, "Key reused").await;
    let again = house.deliver(IN, &request("alice", Some("k"), "{\"a\":1}")).await;
    assert_eq!((again.status, &*again.body), (200, &b"{\"fine\":1}"[..]));
    assert_eq!((backend.calls().len(), backend.effects()), (2, 1));
}

#[tokio::test]
async fn a_request_joins_an_outstanding_one_and_then_is_a_conflict() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![Does::Answers(200, "{\"id\":7}".into())], gate.clone()).await;
    let config = config(&backend.url, "respond_within = \"500ms\"");
    let house = house_of(&config.replace("forward = {", "forward = { timeout = \"20s\","));
    let first = house.deliver(IN, &request("alice", Some("k"), "{}")).await;
    assert_eq!(first.status, 202, "{first:?}");
    let again = house.deliver(IN, &request("alice", Some("k"), "{}")).await;
    let said = check(&house, &again, 409, "Key in use").await;
    assert_eq!(said["title"], "A request is outstanding for this Idempotency-Key");
    assert_eq!(again.header("retry-after"), Some("5"));
    gate.add_permits(1);
    house.quiet().await;
    let again = house.deliver(IN, &request("alice", Some("k"), "{}")).await;
    assert_eq!((again.status, &*again.body), (200, &b"{\"id\":7}"[..]));
}

#[tokio::test]
async fn one_caller_never_gets_anothers_response() {
    let does = vec![Does::Answers(200, "{\"for\":\"alice\"}".into()), Does::Answers(200, "{\"for\":\"bob\"}".into())];
    let backend = Backend::new(does).await;
    let house = house(&backend.url, "");
    for (who, replayed) in [("alice", None), ("bob", None), ("alice", Some("true")), ("bob", Some("true"))] {
        let answer = house.deliver(IN, &request(who, Some("k"), "{\"a\":1}")).await;
        assert_eq!((answer.json()["for"].as_str(), answer.header("idempotent-replayed")), (Some(who), replayed));
    }
    // Nor whether another caller has used the key: a body of bob's own does not conflict with alice's.
    let alice = house.deliver(IN, &request("alice", Some("k-2"), "{\"a\":1}")).await;
    let bob = house.deliver(IN, &request("bob", Some("k-2"), "{\"a\":2}")).await;
    assert_eq!((alice.status, bob.status), (200, 200));
    assert_ne!(alice.header("hookonce-event"), bob.header("hookonce-event"));
    assert_eq!(backend.calls().len(), 4);
}

#[tokio::test]
async fn a_duplicate_without_a_backend_gets_the_first_response_too() {
    let to_run = config("", "").replace("forward = { url = \"\" }", "run = { steps = [\"echo x >> ran\"] }");
    let mut house = House::empty(&to_run);
    std::fs::write(house.path("alice"), "the token of alice\n").unwrap();
    std::fs::write(house.path("bob"), "the token of bob\n").unwrap();
    house.start();
    let first = house.deliver(IN, &request("alice", Some("k"), "{}")).await;
    let again = house.deliver(IN, &request("alice", Some("k"), "{}")).await;
    assert_eq!((first.status, first.json()["how"].as_str()), (200, Some("acted")), "{first:?}");
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), (None, Some("true")));
    assert_eq!(house.lines("ran").len(), 1);
}

#[tokio::test]
async fn with_authentication_in_the_backend_no_caller_gets_anothers_response() {
    let does = vec![Does::Answers(200, "{\"for\":\"alice\"}".into()), Does::Answers(200, "{\"for\":\"bob\"}".into())];
    let backend = Backend::new(does).await;
    let open = config(&backend.url, "").replace(
        r#"verify = { scheme = "bearer", secret = [{ file = "alice" }, { file = "bob" }] }"#,
        r#"verify = "none""#,
    );
    let house = House::new(&open.replace("forward = { ", "forward = { headers = [\"authorization\"], "));
    for (who, replayed) in [("alice", None), ("bob", None), ("alice", Some("true")), ("bob", Some("true"))] {
        let answer = house.deliver(IN, &request(who, Some("k"), "{\"a\":1}")).await;
        assert_eq!((answer.json()["for"].as_str(), answer.header("idempotent-replayed")), (Some(who), replayed));
    }
    assert_eq!(backend.calls().len(), 2);
    assert!(house.log().contains("callers are distinguished by the `Authorization` header alone"), "{}", house.log());
}

#[tokio::test]
async fn while_the_store_is_down_a_client_gets_a_problem_and_nothing_is_done() {
    let backend = Backend::answers(200, "{}").await;
    let house = house(&backend.url, "");
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let away = house.deliver(IN, &request("alice", Some("k"), "{}")).await;
    check(&house, &away, 503, "Unavailable").await;
    assert_eq!(away.header("retry-after"), Some("5"));
    other.execute_batch("rollback").unwrap();
    assert_eq!(house.deliver(IN, &request("alice", Some("k"), "{}")).await.status, 200);
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_request_refused_before_it_is_judged_is_answered_with_a_problem_too() {
    let backend = Backend::answers(200, "{}").await;
    let house = house(&backend.url, "body_max = \"1KB\"");
    let large = house.deliver(IN, &request("alice", Some("k"), &"x".repeat(1025))).await;
    check(&house, &large, 413, "Too large").await;
    let client = reqwest::Client::new();
    for method in [reqwest::Method::GET, reqwest::Method::PUT, reqwest::Method::PATCH, reqwest::Method::DELETE] {
        let other = client.request(method, house.url(IN)).send().await.unwrap();
        assert_eq!(other.headers()["allow"], "POST");
        let headers = vec![("content-type".to_owned(), other.headers()["content-type"].to_str().unwrap().to_owned())];
        let status = other.status().as_u16();
        let answer = Answer { status, headers, body: other.bytes().await.unwrap().to_vec() };
        check(&house, &answer, 405, "Method").await;
    }
    assert_eq!(backend.calls().len(), 0);
}

#[tokio::test]
async fn a_request_without_a_response_gets_a_problem_and_in_doubt_never_a_success() {
    let nobody = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", free.local_addr().unwrap())
    };
    let unreached = house(&nobody, "");
    for _ in 0..2 {
        let answer = unreached.deliver(IN, &request("alice", Some("k"), "{}")).await;
        check(&unreached, &answer, 502, "Not answered").await;
    }
    let dies = Backend::new(vec![Does::Dies(200, "{\"id\":7}".into())]).await;
    let config = config(&dies.url, "").replace("forward =", "in_doubt = \"hold\"\nforward =");
    let held = house_of(&config);
    for _ in 0..3 {
        let answer = held.deliver(IN, &request("alice", Some("k"), "{}")).await;
        let said = check(&held, &answer, 504, "Not answered").await;
        assert!(said["detail"].as_str().unwrap().contains("unknown whether"), "{said}");
        assert_eq!((answer.header("hookonce-event").is_some(), dies.calls().len()), (true, 1));
    }
}

#[tokio::test]
async fn a_body_without_fields_may_have_any_type_and_encoding_and_is_passed_on_unchanged() {
    let backend = Backend::answers(200, "{}").await;
    let house = house(&backend.url, "");
    let kinds = ["application/x-www-form-urlencoded", "text/xml", "multipart/form-data; boundary=b"];
    for (n, kind) in kinds.iter().enumerate() {
        let sent = request("alice", Some(&format!("k-{n}")), "amount=10&to=bob").with("content-type", kind);
        let sent = sent.with("content-encoding", "gzip");
        for again in [None, Some("true")] {
            let answer = house.deliver(IN, &sent).await;
            assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, again), "{kind}");
        }
        let call = backend.calls().pop().unwrap();
        assert_eq!((call.body.as_str(), backend.calls().len()), ("amount=10&to=bob", n + 1));
        for line in [format!("content-type: {kind}"), "content-encoding: gzip".into()] {
            assert!(call.head.lines().any(|found| found == line), "{line}: {}", call.head);
        }
    }
}
