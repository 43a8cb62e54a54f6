//! Deliveries that fail verification, or cannot be read: the response, and that nothing is written.

use crate::support::{Answer, House, Sent, package, until};
use crate::{GHCR, IN, ghcr, number, numbers};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const RUN: &str = "run = { steps = [\"echo run >> runs\"] }";

/// Checks for this status, reason and field, and that nothing was stored.
fn check(house: &House, answer: &Answer, status: u16, reason: &str, field: Option<&str>) {
    let said = answer.json();
    assert_eq!(answer.status, status, "{answer:?} {said}");
    assert_eq!((said["status"].as_str(), said["reason"].as_str()), (Some("refused"), Some(reason)), "{said}");
    assert_eq!(said["field"].as_str(), field, "{said}");
    assert_eq!(answer.header("hookonce-event"), None);
    for table in ["events", "keys", "registers", "payloads"] {
        assert_eq!(house.sql(&format!("select count(*) from {table}")), ["0"], "{table}");
    }
}

#[tokio::test]
async fn whatever_is_wrong_with_a_signature_the_response_is_the_same() {
    let house = House::new(&numbers("", RUN));
    let good = number("a", 1);
    let signature = |sent: &Sent| sent.headers.iter().find(|(n, _)| n == "x-hub-signature-256").unwrap().1.clone();
    let mut none = good.clone();
    none.headers.retain(|(name, _)| name != "x-hub-signature-256");
    let mut doubled = good.clone();
    doubled.headers.push(("x-hub-signature-256".into(), signature(&good)));
    let other_secret =
        VerificationScheme::github(SourceSecrets::new(vec![b"another".to_vec()])).sign("a", Timestamp(0), &good.body);
    let wrong = |value: &str| good.clone().with("x-hub-signature-256", value);
    let cases = [
        ("none", none),
        ("empty", wrong("")),
        ("of another body", wrong(&signature(&number("a", 2)))),
        ("cut", wrong(&signature(&good)[..40])),
        ("without its prefix", wrong(signature(&good).trim_start_matches("sha256="))),
        ("doubled", doubled),
        ("with another secret", Sent { headers: other_secret, body: good.body.clone() }),
    ];
    let mut answers = Vec::new();
    let digits = |(_, sent): &(&str, Sent)| {
        let theirs = sent.headers.iter().filter(|(name, _)| name == "x-hub-signature-256");
        theirs.map(|(_, value)| value.trim_start_matches("sha256=").to_owned()).collect::<Vec<_>>()
    };
    let digits: Vec<_> = cases.iter().flat_map(digits).filter(|digits| !digits.is_empty()).collect();
    for (what, sent) in cases {
        let mut answer = house.deliver(IN, &sent).await;
        check(&house, &answer, 401, "bad_signature", None);
        answer.headers.retain(|(name, _)| name != "date");
        answers.push((what, answer));
    }
    for (what, answer) in &answers {
        assert_eq!(*answer, answers[0].1, "{what}");
    }
    assert_eq!(digits.len(), 6);
    for digits in digits {
        assert!(!house.log().contains(&digits[..16]), "{}", house.log());
    }
}

#[tokio::test]
async fn an_old_signature_is_a_bad_one() {
    let secret = "whsec_SXQncyBhIFNlY3JldCB0byBFdmVyeWJvZHk=";
    let house = House::empty(
        "\n[source.numbers]\npath = \"/in\"\n\
         verify = { scheme = \"standard-webhooks\", secret = { file = \"secret\" } }\n\
         [[source.numbers.route]]\nrun = { steps = [\"echo run >> runs\"] }\n",
    );
    std::fs::write(house.path("secret"), secret).unwrap();
    let mut house = house;
    house.start();
    let scheme = VerificationScheme::standard_webhooks(&[secret.into()], Duration::from_mins(5)).unwrap();
    let now = i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    let sent = |at: i64| Sent { headers: scheme.sign("a", Timestamp(at), b"{}"), body: b"{}".to_vec() };
    for minutes in [-10, 10] {
        check(&house, &house.deliver(IN, &sent(now + minutes * 60_000_000)).await, 401, "bad_signature", None);
    }
    let answer = house.deliver(IN, &sent(now)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[tokio::test]
async fn an_unusable_delivery_is_refused_with_a_reason() {
    let missing = |name: &str| package("latest", 1, 1).replace(&format!("\"{name}\""), "\"renamed\"");
    let keys = "body_max = \"64KB\"\nrequire = 'package != \"evil\"'\n[[source.ghcr.route]]\n";
    let house = House::new(&ghcr(RUN).replace("[[source.ghcr.route]]\n", keys));
    let sent = |body: &str| Sent::github("registry_package", "a", body);
    let whole = package("latest", 1, 1);
    let future = whole.replace("2026-02-07T16:20:01Z", "2126-02-07T16:20:01Z");
    for (sent, status, reason, field) in [
        (sent(&whole.replace("\"jamiec_ts\"", "\"evil\"")), 403, "forbidden", None),
        (sent("{\"registry_package\":"), 400, "malformed", None),
        (sent("{\"registry_package\":{\"name\":\"a\",\"name\":\"b\"}}"), 400, "malformed", None),
        (sent(&whole).with("content-type", "text/plain"), 415, "content_type", None),
        (sent(&"x".repeat(65 << 10)), 413, "too_large", None),
        (sent(&missing("updated_at")), 422, "missing_field", Some("updated_at")),
        (sent(&missing("version")), 422, "missing_field", Some("sha")),
        (sent(&whole.replace("\"jamiec_ts\"", "null")), 422, "missing_field", Some("package")),
        (sent(&future), 422, "bad_order", Some("updated_at")),
        (sent(&whole).with("x-much", &"x".repeat(70 << 10)), 431, "", None),
    ] {
        let answer = house.deliver(GHCR, &sent).await;
        if status == 431 {
            assert_eq!(answer.status, 431, "{answer:?}"); // hyper's own response, before there is a request
        } else {
            check(&house, &answer, status, reason, field);
        }
    }
    let unnamed = Sent { headers: sent(&whole).headers, body: whole.clone().into_bytes() };
    let headers: Vec<_> = unnamed.headers.into_iter().filter(|(name, _)| name != "x-github-delivery").collect();
    let answer = house.post(GHCR, &headers, &unnamed.body).await.unwrap();
    check(&house, &answer, 422, "missing_field", Some("delivery"));
}

/// Regression: `{"hash":""}` of one sender and `{"hash":""}` of the next were one event, and all but the first were
/// lost.
#[tokio::test]
async fn a_blank_text_is_not_an_identity() {
    let keys = "delivery = \"body.id\"\n\
                once = { per = [\"delivery\", \"hash\"], change = { of = [\"hash\"], to = [\"n\"], order = \"at\" } }";
    let fields = "fields = { n = \"body.n\", hash = \"body.hash\", at = \"body.at\" }";
    let house = House::new(&numbers(keys, RUN).replace("fields = { n = \"body.n\" }", fields));
    let body = |id: &str, hash: &str, n: &str, at: &str| {
        let text = format!("{{\"id\":\"{id}\",\"hash\":\"{hash}\",\"n\":\"{n}\",\"at\":\"{at}\"}}");
        Sent::github("push", "a", &text)
    };
    for blank in ["", "  ", "\u{2003}\u{a0}"] {
        for (sent, field) in [
            (body(blank, "h", "1", "5"), "delivery"),
            (body("i", blank, "1", "5"), "hash"),
            (body("i", "h", blank, "5"), "n"),
            (body("i", "h", "1", blank), "at"),
        ] {
            check(&house, &house.deliver(IN, &sent).await, 422, "missing_field", Some(field));
        }
    }
    assert_eq!(house.deliver(IN, &body("i", "h", "1", "5")).await.status, 202);
}

/// The response to these bytes.
pub(crate) async fn raw(house: &House, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(house.url("").trim_start_matches("http://")).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = String::new();
    let mut part = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut part).await {
        answer += &String::from_utf8_lossy(&part[..n]);
        if answer.contains('}') {
            break;
        }
    }
    answer
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_rejected() {
    let house = House::new(&numbers("", RUN));
    let answer = raw(&house, b"POST /in HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nsome of it").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with("{\"status\":\"refused\",\"reason\":\"too_slow\"}"), "{answer}");
    until("it to be logged", || house.log().contains("WARN refused   source=numbers status=408 reason=too_slow")).await;
}

/// The most common mistake of a sender is its URL: the log must show it.
#[tokio::test]
async fn requests_rejected_before_judging_are_logged() {
    let house = House::new(&numbers("body_max = \"1KB\"", RUN));
    house.deliver("/inn", &number("an-id", 1)).await;
    raw(&house, b"GET /in HTTP/1.1\r\nhost: h\r\n\r\n").await;
    raw(&house, b"POST /in HTTP/1.1\r\nhost: h\r\ncontent-length: 4096\r\n\r\n").await;
    for told in [
        "WARN refused   path=/inn delivery=an-id status=404 reason=unknown_path why=\"no source listens there; their paths are /in\"",
        "WARN refused   source=numbers status=405 reason=method why=\"a delivery is a POST, this was a GET\"",
        "WARN refused   source=numbers status=413 reason=too_large why=\"the body is too large: `body_max` is 1024 bytes\"",
    ] {
        until(told, || house.log().contains(told)).await;
    }
}

#[tokio::test]
async fn unknown_paths_and_other_methods_are_rejected() {
    let house = House::new(&numbers("", RUN));
    let sent = number("a", 1);
    for path in ["/", "/in/", "/IN", "/in/x", "/api/events", "/metrics"] {
        check(&house, &house.deliver(path, &sent).await, 404, "unknown_path", None);
    }
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let answer = raw(&house, format!("{method} /in HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: POST\r\n"), "{answer}");
        assert!(answer.ends_with("{\"status\":\"refused\",\"reason\":\"method\"}"), "{answer}");
    }
}
