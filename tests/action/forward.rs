//! Every behaviour of a receiver, and the outcome of each.

use super::receiver::{Do, Fixture, status, write};
use super::*;
use hookonce::decide::event::Receipt;
use hookonce::decide::limits::RECEIPT_BYTES_MAX;
use hookonce::decide::response::outcome_for_waiting_sender;
use hookonce::decide::source::ResponseMode;
use hookonce::internals::action::plan::ReceiverPlan;

/// Long enough for every response that comes, short enough to wait for those that do not.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

fn forward(url: &str) -> Arc<dyn Action> {
    to(ReceiverPlan::new(url.into(), TIMEOUT))
}

pub(super) fn to(receiver: ReceiverPlan) -> Arc<dyn Action> {
    build_action(ActionPlan::Forward(vec![receiver]), &environment(&[], &[])).unwrap()
}

async fn sent(script: Vec<Do>) -> Outcome {
    let fixture = Fixture::serve(vec![script]).await;
    let outcome = Bench::body("{}").act(&*forward(&fixture.url())).await;
    assert_eq!(fixture.requests().len(), 1, "nothing is sent twice");
    outcome
}

async fn check(script: Vec<Do>, word: &str, why: &str) -> Outcome {
    let outcome = sent(script).await;
    assert_eq!((outcome.word(), outcome.why()), (word, why));
    outcome
}

fn asked(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Failed { retry_after, .. } => *retry_after,
        _ => None,
    }
}

fn receipt(outcome: &Outcome) -> &Receipt {
    outcome.receipt().expect("an answer leaves a receipt")
}

#[tokio::test]
async fn a_status_has_one_class() {
    for line in ["200 OK", "201 Created", "202 Accepted", "299 Whatever"] {
        assert_eq!(sent(status(line, "")).await.word(), "delivered", "{line}");
    }
    let no_content = vec![write("HTTP/1.1 204 No Content\r\n\r\n")];
    check(no_content, "delivered", "").await;
    let not_modified = vec![write("HTTP/1.1 304 Not Modified\r\n\r\n")];
    check(not_modified, "rejected", "the receiver responded with 304").await;
    for code in ["301", "302", "307", "308", "400", "401", "403", "404", "405", "409", "410", "413", "422", "451"] {
        check(status(code, ""), "rejected", &format!("the receiver responded with {code}")).await;
    }
    for code in ["408", "425", "429", "500", "501", "502", "503", "504", "599"] {
        check(status(code, ""), "failed", &format!("the receiver responded with {code}")).await;
    }
    check(status("700", ""), "unknown", "the receiver responded with 700, which is not a final status").await;
}

#[tokio::test]
async fn retry_after_of_a_receiver_is_respected() {
    let date = "Date: Sat, 07 Feb 2026 15:20:40 GMT\r\n";
    for (headers, seconds) in [
        ("Retry-After: 7\r\n".to_owned(), Some(7)),
        ("Retry-After: 0\r\n".to_owned(), Some(0)),
        ("Retry-After: 99999999999999999999999\r\n".to_owned(), Some(u64::MAX)),
        (format!("{date}Retry-After: Sat, 07 Feb 2026 15:22:10 GMT\r\n"), Some(90)),
        (format!("{date}Retry-After: Sat, 07 Feb 2026 15:00:00 GMT\r\n"), Some(0)),
        ("Retry-After: Sat, 07 Feb 2026 15:22:10 GMT\r\n".to_owned(), None),
        (format!("{date}Retry-After: soon\r\n"), None),
        (format!("{date}Retry-After: -5\r\n"), None),
        (String::new(), None),
    ] {
        for code in ["429", "503"] {
            let outcome = sent(status(code, &headers)).await;
            assert_eq!(asked(&outcome), seconds.map(Duration::from_secs), "{code} {headers}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_status_is_unknown() {
    for (name, script) in [
        ("reset before the answer", vec![Do::Reset]),
        ("closed before the answer", vec![Do::Close]),
        ("reset within the head", vec![write("HTTP/1.1 200 OK\r\nContent-Le"), Do::Reset]),
        ("closed within the head", vec![write("HTTP/1.1 200 OK\r\nContent-Le"), Do::Close]),
        ("100 and then nothing", vec![write("HTTP/1.1 100 Continue\r\n\r\n"), Do::Close]),
        ("no HTTP", vec![write("SSH-2.0-OpenSSH_9.2p1\r\n"), Do::Close]),
        ("noise", vec![write("\0\u{1}\u{2}\r\n\r\n"), Do::Close]),
    ] {
        let outcome = sent(script).await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{name}: {outcome:?}");
        assert!(outcome.why().starts_with("sent, but no response: "), "{name}: {}", outcome.why());
    }
    for script in [vec![Do::Hang], vec![write("HTTP/1.1 200 OK\r\nX: "), Do::Drip]] {
        let outcome = check(script, "unknown", "no response within 3s").await;
        assert!(matches!(outcome, Outcome::TimedOut { .. }), "our own timeout ended it: {outcome:?}");
    }
}

#[tokio::test]
async fn a_status_counts_even_if_the_rest_of_the_response_breaks_off() {
    let head = "Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nfive!";
    let ok = || write(&format!("HTTP/1.1 200 OK\r\n{head}"));
    for (name, script) in
        [("reset after headers", vec![ok(), Do::Reset]), ("closed after headers", vec![ok(), Do::Close])]
    {
        let outcome = sent(script).await;
        assert_eq!((outcome.word(), receipt(&outcome).truncated), ("delivered", true), "{name}");
        assert!(b"five!".starts_with(&receipt(&outcome).body), "{name}");
    }
    let slow = vec![write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n"), Do::Drip];
    for (name, script) in [("a body that never ends", vec![ok(), Do::Hang]), ("a slow one", slow)] {
        let outcome = sent(script).await;
        let late = "the receiver responded with 200, but the rest did not arrive within 3s";
        assert!(matches!(&outcome, Outcome::TimedOut { why, .. } if why == late), "{name}: {outcome:?}");
        let waits = ResponseMode::WhenDone { within: TIMEOUT };
        assert!(
            matches!(outcome_for_waiting_sender(outcome.clone(), waits), Outcome::TimedOut { .. }),
            "{name}: a waiting client gets no response"
        );
        let outcome = outcome_for_waiting_sender(outcome, ResponseMode::Accepted);
        assert_eq!((outcome.word(), receipt(&outcome).truncated), ("delivered", true), "{name}");
        assert!(!receipt(&outcome).body.is_empty(), "{name}");
    }
    let outcome = sent(vec![write(&format!("HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n{head}")), Do::Reset]).await;
    assert_eq!((outcome.word(), asked(&outcome)), ("failed", Some(Duration::from_secs(3))));
}

#[tokio::test]
async fn a_receipt_keeps_what_may_be_replayed() {
    let headers =
        "Content-Type: application/json\r\nX-Request-Id: 7\r\nSet-Cookie: a=b\r\nServer: x\r\nConnection: close\r\n";
    let script = vec![write("HTTP/1.1 100 Continue\r\n\r\n")];
    let outcome = sent([script, status("201 Created", headers)].concat()).await;
    let headers = [("content-type", "application/json"), ("x-request-id", "7")];
    let expected = Receipt {
        status: 201,
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        body: b"ok".to_vec(),
        truncated: false,
    };
    assert_eq!(outcome, Outcome::Delivered(Some(expected)));
}

#[tokio::test]
async fn a_response_is_kept_up_to_its_limit() {
    for (extra, cut) in [(0, false), (1, true), (1 << 20, true)] {
        let length = RECEIPT_BYTES_MAX + extra;
        let body = Do::Write(vec![b'x'; length]);
        let script = vec![write(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")), body];
        let outcome = sent(script).await;
        assert_eq!((receipt(&outcome).body.len(), receipt(&outcome).truncated), (RECEIPT_BYTES_MAX, cut));
    }
}

#[tokio::test]
async fn an_unreachable_receiver_has_not_acted() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let plain = Fixture::serve(vec![status("200 OK", "")]).await;
    for (url, why) in [
        (format!("http://127.0.0.1:{closed}/"), "not connected: Connection refused"),
        ("http://no-such-host.invalid/".to_owned(), "not connected: "),
        (plain.url().replace("http:", "https:"), "not connected: "),
    ] {
        let outcome = Bench::body("{}").act(&*forward(&url)).await;
        assert_eq!(outcome.word(), "failed", "{url}: {}", outcome.why());
        assert!(outcome.why().starts_with(why), "{url}: {}", outcome.why());
    }
    assert_eq!(plain.requests().len(), 0);
}

#[tokio::test]
async fn a_connect_timeout_is_distinguished_from_a_response_timeout() {
    // A listener that accepts nothing, with its queue full: the next connection gets no reply to its first packet.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = full.listen(1).unwrap();
    let at = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(at)).await {
        waiting.push(stream.unwrap());
    }
    let outcome = Bench::body("{}").act(&*forward(&format!("http://{at}/"))).await;
    assert_eq!(outcome.word(), "failed", "{}", outcome.why());
}

#[tokio::test]
async fn a_reused_connection_that_closes_before_the_response_is_in_doubt_and_nothing_is_resent() {
    let fixture = Fixture::serve(vec![status("200 OK", ""), vec![Do::Close], status("200 OK", "")]).await;
    let action = forward(&fixture.url());
    assert_eq!(Bench::body("1").act(&*action).await.word(), "delivered");
    let outcome = Bench::body("2").act(&*action).await;
    assert_eq!(outcome.word(), "unknown", "{}", outcome.why());
    assert_eq!(fixture.requests().len(), 2);
    assert_eq!(Bench::body("3").act(&*action).await.word(), "delivered");
    let bodies: Vec<u8> = fixture.requests().iter().map(|request| *request.last().unwrap()).collect();
    assert_eq!(bodies, b"123");
}

#[tokio::test]
async fn only_the_body_its_type_and_our_own_headers_are_sent() {
    let fixture = Fixture::serve(vec![status("200 OK", "")]).await;
    let mut bench = Bench::body(&b"payload=%7B%7D\0\xff"[..]);
    (bench.event.life, bench.event.attempt) = (2, 3);
    let foreign = ["host", "authorization", "cookie", "x-hub-signature-256", "x-forwarded-for", "transfer-encoding"];
    let kind = ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned());
    bench.payload.headers = foreign.iter().map(|&name| (name.to_owned(), "canary".to_owned())).chain([kind]).collect();
    assert_eq!(bench.act(&*forward(&fixture.url())).await.word(), "delivered");

    let request = fixture.requests().remove(0);
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    assert_eq!(&request[end + 4..], &bench.payload.body[..]);
    let head = String::from_utf8(request[..end].to_vec()).unwrap();
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /in HTTP/1.1");
    lines.sort_unstable();
    let trace = lines.iter().position(|line| line.starts_with("traceparent: ")).map(|at| lines.remove(at));
    assert!(trace.is_some(), "{lines:?}");
    let host = fixture.url().replace("http://", "host: ").replace("/in", "");
    let id = bench.event.id;
    let expected = [
        "accept: */*".to_owned(),
        "content-length: 16".to_owned(),
        "content-type: application/x-www-form-urlencoded".to_owned(),
        "hookonce-attempt: 3".to_owned(),
        format!("hookonce-event: {id}"),
        host,
        format!("idempotency-key: {id}.2"),
        format!("user-agent: hookonce/{}", env!("CARGO_PKG_VERSION")),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Fixture::serve(vec![status("200 OK", "")]).await;
    let location = format!("Location: {}\r\n", other.url());
    let outcome =
        check(status("307 Temporary Redirect", &location), "rejected", "the receiver responded with 307").await;
    assert_eq!(receipt(&outcome).headers, [("location".to_owned(), other.url())]);
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn an_expired_lease_ends_the_wait() {
    let fixture = Fixture::serve(vec![vec![Do::Hang]]).await;
    let bench = Bench { lease: Lease::until(boottime() + PATIENCE), ..Bench::body("{}") };
    let action = to(ReceiverPlan::new(fixture.url().as_str().into(), PATIENCE));
    let (outcome, ()) = tokio::join!(bench.act(&*action), async {
        while fixture.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench.lease.extend(boottime());
    });
    assert_eq!((outcome.word(), outcome.why()), ("unknown", "the lease ended before the receiver responded"));

    let bench = Bench::body("{}");
    bench.lease.cancel();
    let outcome = bench.act(&*forward(&fixture.url())).await;
    assert_eq!(outcome.why(), "the attempt was cancelled before the receiver responded");
    assert_eq!(fixture.requests().len(), 1, "a lease that is over sends nothing");
}

#[tokio::test]
async fn each_part_has_its_receiver_and_one_that_is_gone_is_rejected() {
    let (one, two) = (Fixture::serve(vec![status("200", "")]).await, Fixture::serve(vec![status("410", "")]).await);
    let receivers = [one.url(), two.url(), "not a url, with a secret".to_owned()];
    let receivers = receivers.map(|url| ReceiverPlan::new((&*url).into(), TIMEOUT)).to_vec();
    let action = build_action(ActionPlan::Forward(receivers), &environment(&[], &[])).unwrap();
    let mut bench = Bench::body("{}");
    for (part, says) in [
        (0, "delivered: "),
        (1, "rejected: the receiver responded with 410"),
        (2, "rejected: the receiver's URL is invalid: relative URL without a base"),
        (3, "rejected: its route no longer has a receiver 4"),
    ] {
        bench.event.part = part;
        let outcome = bench.act(&*action).await;
        assert_eq!(format!("{}: {}", outcome.word(), outcome.why()), says);
    }
}
