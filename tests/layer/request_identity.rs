//! What makes two requests the same, the response to each, and what reaches the store.

use super::{Client, Kind, STORES, Said, Service, behind};
use axum::http::HeaderName;
use hookonce::store::{EventQuery, Inspect};
use hookonce::{Once, body, days, fields, header, json, query, seconds};

async fn ask(client: &Client, path: &str, headers: &[(&str, &str)], body: &str) -> Said {
    let mut request = client.http.post(format!("{}{path}", client.url)).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_gets_the_first_response_again_on_every_store() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::new();
        service.will_answer(&[201]);
        let once = Once::new(place.store.clone()).keep(days(1)).keep_header(HeaderName::from_static("x-mine"));
        let client = behind(&service, once).await;
        let first = client.post("k1", "a").await;
        assert_eq!((first.status, &*first.body), (201, "call 1 of nobody: a"), "{kind:?}");
        assert_eq!(first.header("set-cookie"), Some("session=secret"), "the first response has all its headers");
        let again = client.post("k1", "a").await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{kind:?}");
        assert!(again.replayed() && !first.replayed());
        assert_eq!(again.header("hookonce-event"), first.header("hookonce-event"));
        assert_eq!(again.header("content-type"), Some("text/x-told"));
        assert_eq!(again.header("x-mine"), Some("1"), "a configured header is kept");
        assert_eq!(again.header("set-cookie"), None, "cookies are not kept");
        let quoted = client.post("\"k1\"", "a").await;
        assert!(quoted.replayed(), "the quotes of the IETF's header are not part of the key");
        assert!(!client.post("k2", "a").await.replayed());
        assert_eq!(service.calls(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_body_under_the_same_key_is_refused_and_changes_nothing() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone())).await;
    client.post("k", "a").await;
    let other = client.post("k", "b").await;
    assert_eq!((other.status, &*other.problem()), (422, "other-body"));
    assert!(client.post("k", "a").await.replayed());
    service.will_answer(&[500]);
    client.post("failed", "a").await;
    assert_eq!(client.post("failed", "b").await.status, 422, "also after a failure");
    assert_eq!(service.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_key_is_refused_or_passes_as_configured() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone())).await;
    for headers in [&[][..], &[("idempotency-key", "")], &[("idempotency-key", "\"\"")], &[("idempotency-key", "  ")]] {
        let said = ask(&client, "/act", headers, "a").await;
        assert_eq!((said.status, &*said.problem()), (400, "missing-key"), "{headers:?}");
    }
    let twice = ask(&client, "/act", &[("idempotency-key", "a"), ("idempotency-key", "b")], "a").await;
    assert_eq!((twice.status, &*twice.problem()), (400, "malformed"));
    let long = "k".repeat(5000);
    assert_eq!(ask(&client, "/act", &[("idempotency-key", &long)], "a").await.status, 400);
    assert_eq!(service.calls(), 0);
    let client = behind(&service, Once::new(place.store.clone()).optional()).await;
    for calls in 1..=2 {
        let said = ask(&client, "/act", &[], "a").await;
        assert_eq!((said.status, service.calls(), said.header("hookonce-event")), (200, calls, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_safe_method_passes_through() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone())).await;
    for _ in 0..2 {
        let url = format!("{}/act", client.url);
        assert_eq!(client.send(client.http.get(&url)).await.status, 200);
        assert_eq!(client.send(client.http.head(&url)).await.status, 200);
        assert_eq!(client.send(client.http.get(&url).header("idempotency-key", "k")).await.status, 200);
    }
    assert_eq!(service.calls(), 6);
    assert!(place.store.list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_on_another_path_is_another_request() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone())).await;
    let other = behind(&service, Once::new(place.store.clone()).scope("other")).await;
    let key = [("idempotency-key", "k")];
    for (calls, path) in [(1, "/act"), (2, "/other"), (3, "/act?a=1"), (4, "/act?a=2")] {
        assert!(!ask(&client, path, &key, "a").await.replayed(), "{path}");
        assert!(ask(&client, path, &key, "a").await.replayed(), "{path}");
        assert_eq!(service.calls(), calls);
    }
    let put = client.http.put(format!("{}/act", client.url)).header("idempotency-key", "k").body("a");
    assert!(!client.send(put).await.replayed());
    assert!(!ask(&other, "/act", &key, "a").await.replayed());
    assert_eq!(service.calls(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_never_gets_anothers_response_and_no_credential_reaches_the_store() {
    for kind in STORES {
        let place = kind.fresh().await;
        let store = place.store.clone();
        let service = Service::new();
        let client = behind(&service, Once::new(store.clone()).by(header("authorization"))).await;
        let key = ("idempotency-key", "k");
        for caller in ["Bearer canary-anna", "Bearer canary-bert"] {
            let first = ask(&client, "/act", &[key, ("authorization", caller)], "a").await;
            assert!(!first.replayed() && first.body.contains(caller));
            let again = ask(&client, "/act", &[key, ("authorization", caller)], "a").await;
            assert!(again.replayed() && again.body.contains(caller));
        }
        assert!(ask(&client, "/act", &[key], "a").await.body.contains("nobody"));
        assert_eq!(service.calls(), 3);
        let events = store.list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(events[0].delivery_id.as_deref(), Some("k"));
        assert!(!format!("{events:?}").contains("canary"), "{events:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_identity_matches_the_same_requests() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let mut scopes = 0;
    let mut same = async |once: fn(Once) -> Once, one: (&str, &str), two: (&str, &str)| {
        scopes += 1;
        let client = behind(&service, once(Once::new(place.store.clone()).scope(format!("{scopes}")))).await;
        let first = ask(&client, one.0, &[("x-id", one.0)], one.1).await;
        assert_eq!(first.status, 200, "{first:?}");
        ask(&client, two.0, &[("x-id", two.0)], two.1).await.replayed()
    };
    let at = "/act";
    assert!(same(|once| once.per(body()), (at, "a"), (at, "a")).await);
    assert!(!same(|once| once.per(body()), (at, "a"), (at, "b")).await);
    let hash = |once: Once| once.per(json("event.hash"));
    assert!(same(hash, (at, r#"{"event":{"hash":"h"},"n":1}"#), (at, r#"{"n":2,"event":{"hash":"h"}}"#)).await);
    assert!(!same(hash, (at, r#"{"event":{"hash":"1"}}"#), (at, r#"{"event":{"hash":1}}"#)).await);
    let both = |once: Once| once.per(fields([json("a"), json("b")]));
    assert!(!same(both, (at, r#"{"a":"ab","b":"c"}"#), (at, r#"{"a":"a","b":"bc"}"#)).await);
    let any = |once: Once| once.per(json("a")).per(json("b"));
    assert!(same(any, (at, r#"{"a":1,"b":2}"#), (at, r#"{"a":9,"b":2}"#)).await);
    assert!(same(|once| once.per(query("q")), ("/act?q=1", "a"), ("/act?q=1", "a")).await);
    assert!(same(|once| once.per(fields([header("x-id"), body()])), (at, "a"), (at, "a")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_without_fields_may_be_anything_and_a_body_with_fields_must_be_json() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone())).await;
    let form = [("idempotency-key", "k"), ("content-type", "multipart/form-data; boundary=x")];
    assert_eq!(ask(&client, "/act", &form, "--x--").await.status, 200);
    let client = behind(&service, Once::new(place.store.clone()).per(json("id"))).await;
    for (body, problem) in [("{", "malformed"), ("{}", "missing-key"), ("{\"id\":null}", "missing-key")] {
        let said = ask(&client, "/act", &[("content-type", "application/json")], body).await;
        assert_eq!((said.status, &*said.problem()), (400, problem), "{body}");
    }
    assert_eq!(service.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_and_a_response_each_count_as_long_as_they_are_kept() {
    use hookonce::decide::time::Timestamp;
    use hookonce::store::clock::StoreClock;
    let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
    let store = hookonce::store::memory::MemoryStore::new(clock.clone());
    let service = Service::new();
    let once = Once::new(store.clone()).keep(seconds(100)).keep_body(seconds(50));
    let client = behind(&service, once.clone()).await;
    client.post("k", "a").await;
    clock.advance(seconds(60));
    assert_eq!(once.forget().await.unwrap().bodies, 1);
    let later = client.post("k", "a").await;
    assert_eq!((later.status, later.header("hookonce-receipt"), later.replayed()), (200, Some("forgotten"), true));
    assert!(later.body.contains("\"isDuplicate\":true"), "{later:?}");
    clock.advance(seconds(41));
    let new = client.post("k", "a").await;
    assert_eq!((new.replayed(), service.calls()), (false, 2));
    clock.advance(seconds(101));
    assert_eq!(once.forget().await.unwrap().events, 1);
    assert!(store.list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_scopes_sweep_leaves_anothers_events_alone() {
    use hookonce::decide::time::Timestamp;
    use hookonce::store::clock::StoreClock;
    let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
    let store = hookonce::store::memory::MemoryStore::new(clock.clone());
    let service = Service::new();
    let long = behind(&service, Once::new(store.clone()).scope("long").keep(days(365))).await;
    long.post("k", "a").await;
    clock.advance(days(100));
    let short = Once::new(store).scope("short").keep(days(1));
    assert_eq!(short.forget().await.unwrap().events, 0);
    assert!(long.post("k", "a").await.replayed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_is_read_as_the_gateway_reads_it() {
    let place = Kind::Memory.fresh().await;
    let service = Service::new();
    let client = behind(&service, Once::new(place.store.clone())).await;
    for (calls, same) in [(1, vec!["\"a b\"", "\"a b\";v=1"]), (2, vec![r#""a\"b""#, r#""a\"b";x"#])] {
        for key in same {
            assert_eq!((client.post(key, "a").await.status, service.calls()), (200, calls), "{key}");
        }
    }
    for key in ["\"a", "a b", "a,b", r#""a\n""#, "\"a\" b", &"x".repeat(256)] {
        let said = client.post(key, "a").await;
        assert_eq!((said.status, &*said.problem()), (400, "malformed"), "{key}");
    }
    for key in ["", "\"\""] {
        let said = client.post(key, "a").await;
        assert_eq!((said.status, &*said.problem()), (400, "missing-key"), "{key}");
    }
    assert_eq!(service.calls(), 2);
}
