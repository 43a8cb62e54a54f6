//! What is kept of a response, for how long, and which requests get it.

use crate::backend::{Backend, Does};
use crate::support::{Answer, House, PATIENCE, SECRET, Sent, until};
use crate::{IN, signed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// A source of bodies such as `{"n":1}`, once per `n`, whose sender waits for the response of this receiver.
fn config(url: &str, keys: &str, once: &str) -> String {
    format!(
        r#"
[source.s]
path    = "{IN}"
verify  = {{ scheme = "hmac", header = "x-sig", secret = {{ env = "SECRET" }} }}
respond = "done"
{keys}
fields  = {{ n = "body.n" }}
once    = {{ per = ["n"]{once} }}
[[source.s.route]]
forward = {{ url = "{url}" }}
"#
    )
}

fn number(n: u64) -> Sent {
    signed("x-sig", SECRET, &format!("{{\"n\":{n}}}"))
}

fn told(answer: &Answer) -> (u16, String, Option<&str>) {
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned(), answer.header("idempotent-replayed"))
}

#[tokio::test]
async fn a_repeated_response_is_marked_if_it_is_an_object_and_otherwise_unchanged() {
    let object = "{\n  \"z\": 1.0,\n  \"a\": [9007199254740993, \"é\"]\n}\n";
    let marked = "{\n  \"z\": 1.0,\n  \"a\": [9007199254740993, \"é\"],\"isDuplicate\":true\n}\n";
    for (keys, first, again) in [
        ("mark_duplicates = true", object, marked),
        ("mark_duplicates = true", "{\"isDuplicate\":false,\"id\":7}", "{\"isDuplicate\":true,\"id\":7}"),
        ("mark_duplicates = true", "[1, 2]", "[1, 2]"),
        ("mark_duplicates = true", "made {}", "made {}"),
        ("", object, object),
    ] {
        let backend = Backend::answers(201, first).await;
        let house = House::new(&config(&backend.url, keys, ""));
        let answers = [house.deliver(IN, &number(1)).await, house.deliver(IN, &number(1)).await];
        assert_eq!(told(&answers[0]), (201, first.to_owned(), None));
        assert_eq!(told(&answers[1]), (201, again.to_owned(), Some("true")));
        let length = answers[1].header("content-length").unwrap().parse::<usize>().unwrap();
        assert_eq!(length, again.len());
        assert_eq!(answers[1].header("content-type"), Some("application/json"));
        assert_eq!(answers[0].header("hookonce-event"), answers[1].header("hookonce-event"));
        assert_eq!(backend.calls().len(), 1);
    }
}

#[tokio::test]
async fn a_failure_is_repeated_only_if_failures_are_kept() {
    for (keys, once, marked) in
        [("", "", ""), ("mark_duplicates = true", ", keep_failures = true", ",\"isDuplicate\":true")]
    {
        let answers = [(422, "{\"no\":1}"), (200, "{\"fine\":1}")];
        let does = answers.map(|(status, body)| Does::Answers(status, body.into())).to_vec();
        let backend = Backend::new(does).await;
        let house = House::new(&config(&backend.url, keys, once));
        assert_eq!(told(&house.deliver(IN, &number(1)).await), (422, "{\"no\":1}".into(), None));
        let again = house.deliver(IN, &number(1)).await;
        if once.is_empty() {
            assert_eq!(told(&again), (200, "{\"fine\":1}".into(), None));
        } else {
            assert_eq!(told(&again), (422, format!("{{\"no\":1{marked}}}"), Some("true")));
            assert_eq!(backend.calls().len(), 1);
        }
    }
}

#[tokio::test]
async fn an_unreachable_receiver_is_a_bad_gateway_even_if_failures_are_kept() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", nobody.local_addr().unwrap());
    drop(nobody);
    let house = House::new(&config(&url, "", ", keep_failures = true"));
    for replayed in [None, Some("true")] {
        let answer = house.deliver(IN, &number(1)).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (502, replayed), "{answer:?}");
        assert_eq!(answer.json()["cause"], "failed");
    }
    assert_eq!(house.sql("select attempt from events"), ["1"]);
}

#[tokio::test]
async fn a_receipt_is_returned_while_it_is_kept_and_then_a_plain_200() {
    let backend = Backend::answers(201, "{\"id\":7}").await;
    let house = House::new(&config(&backend.url, "", ", keep = \"1h\", keep_body = \"5s\""));
    let begun = Instant::now();
    house.deliver(IN, &number(1)).await;
    let mut answer = house.deliver(IN, &number(1)).await;
    assert_eq!(told(&answer), (201, "{\"id\":7}".into(), Some("true")));
    while answer.status == 201 {
        assert!(begun.elapsed() < PATIENCE, "the receipt is not forgotten");
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = house.deliver(IN, &number(1)).await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(5), "forgotten after {:?}", begun.elapsed());
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, None), "{answer:?}");
    assert_eq!((answer.word().as_str(), &answer.json()["state"]), ("duplicate", &"done".into()));
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_response_too_large_to_keep_says_so_to_every_client() {
    let backend = Backend::answers(200, &format!("{{\"x\":\"{}\"}}", "x".repeat(1 << 20))).await;
    let house = House::new(&config(&backend.url, "", ""));
    let (first, again) = (house.deliver(IN, &number(1)).await, house.deliver(IN, &number(1)).await);
    for (answer, word) in [(&first, "done"), (&again, "duplicate")] {
        assert_eq!((answer.status, answer.word().as_str()), (200, word), "{answer:?}");
        assert_eq!(answer.json()["receipt"], "not whole");
    }
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn another_body_under_a_signed_id_gets_the_first_response_and_is_noticed() {
    let backend = Backend::answers(201, "{\"id\":7}").await;
    let bearer = config(&backend.url, "delivery = \"header.x-id\"", "")
        .replace("scheme = \"hmac\", header = \"x-sig\"", "scheme = \"bearer\"")
        .replace("per = [\"n\"]", "per = [\"delivery\"]");
    let house = House::new(&bearer);
    let sent = |body: &str| {
        let headers = [("authorization", format!("Bearer {SECRET}")), ("x-id", "a".to_owned())];
        Sent { headers: headers.map(|(name, value)| (name.to_owned(), value)).to_vec(), body: body.into() }
    };
    house.deliver(IN, &sent("{\"n\":1}")).await;
    let again = house.deliver(IN, &sent("{\"n\":2}")).await;
    assert_eq!(told(&again), (201, "{\"id\":7}".into(), Some("true")));
    until("it to be told", || house.log().contains("body=another")).await;
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn duplicates_of_a_failed_event_share_the_next_attempt_with_the_first_body() {
    let gate = Arc::new(Semaphore::new(1));
    let does = vec![Does::Answers(500, "{\"no\":1}".into()), Does::Answers(200, "{\"fine\":1}".into())];
    let backend = Backend::gated(does, gate.clone()).await;
    let house = House::new(&config(&backend.url, "respond_within = \"30s\"", ""));
    assert_eq!(house.deliver(IN, &number(1)).await.status, 500);
    let first = signed("x-sig", SECRET, "{\"n\":1,\"again\":true}");
    let (others, one) = ((0..20).map(|_| number(1)).collect::<Vec<_>>(), house.deliver(IN, &first));
    let others = async {
        until("the second attempt", || backend.calls().len() == 2).await;
        let all = futures_util::future::join_all(others.iter().map(|sent| house.deliver(IN, sent)));
        let (all, ()) = tokio::join!(all, async {
            until("all of them", || house.log().matches("duplicate").count() >= 21).await;
            gate.add_permits(1);
        });
        all
    };
    let (one, others) = tokio::join!(one, others);
    assert_eq!(told(&one), (200, "{\"fine\":1}".into(), None));
    for other in &others {
        assert_eq!(told(other), (200, "{\"fine\":1}".into(), Some("true")));
    }
    let bodies: Vec<_> = backend.calls().into_iter().map(|call| call.body).collect();
    assert_eq!(bodies, ["{\"n\":1}", "{\"n\":1,\"again\":true}"]);
    assert_eq!(backend.effects(), 1, "both attempts have the same key");
}

#[tokio::test]
async fn a_duplicate_that_waits_in_vain_is_told_to_retry() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![Does::Answers(200, "{}".into())], gate.clone()).await;
    let config = config(&backend.url, "respond_within = \"500ms\"", "");
    let house = House::new(&config.replace("forward = {", "forward = { timeout = \"20s\","));
    let first = house.deliver(IN, &number(1)).await;
    assert_eq!((first.status, first.header("retry-after")), (202, Some("5")), "{first:?}");
    let again = house.deliver(IN, &number(1)).await;
    assert_eq!((again.status, again.header("retry-after")), (409, Some("5")), "{again:?}");
    gate.add_permits(1);
    house.quiet().await;
    assert_eq!(told(&house.deliver(IN, &number(1)).await), (200, "{}".into(), Some("true")));
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_response_has_the_content_type_of_its_receiver() {
    for (headers, kind, location) in [
        (
            "location: /caf\u{e9}\r\ncontent-type: text/plain; of=\u{e9}\r\n",
            Some("text/plain; of=\u{e9}"),
            Some("/caf\u{e9}"),
        ),
        ("", None, None),
    ] {
        let said = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 2\r\n\r\nhi");
        let backend = Backend::new(vec![Does::Says(said.into())]).await;
        let house = House::new(&config(&backend.url, "", ""));
        for _ in 0..2 {
            let answer = reqwest::Client::new().post(house.url(IN)).body(number(1).body);
            let answer = number(1).headers.iter().fold(answer, |answer, (name, value)| answer.header(name, value));
            let answer = answer.send().await.unwrap();
            let text = |name| answer.headers().get(name).map(|value| std::str::from_utf8(value.as_bytes()).unwrap());
            assert_eq!((answer.status().as_u16(), text("content-type"), text("location")), (200, kind, location));
        }
        assert_eq!(backend.calls().len(), 1);
    }
}

#[tokio::test]
async fn duplicates_answered_from_a_receipt_are_counted_like_all_others() {
    let backend = Backend::answers(200, "{}").await;
    let house = House::new(&config(&backend.url, "", ""));
    for _ in 0..3 {
        house.deliver(IN, &number(1)).await;
    }
    let told = house.metrics().await;
    for line in [
        r#"hookonce_deliveries_total{source="s",verdict="duplicate"} 2"#,
        r#"hookonce_duplicates_total{source="s",same="n"} 2"#,
    ] {
        assert!(told.lines().any(|found| found == line), "{line}\n{told}");
    }
}
