//! Traces, against a collector of our own.

use crate::support::{House, PATIENCE};
use crate::{IN, number, numbers};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Takes OTLP/JSON over HTTP and keeps the spans.
async fn collector() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, spans) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(Mutex::new(Vec::new())));
    let kept = spans.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                loop {
                    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
                    if let Some(head) = head {
                        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
                        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                        let length: usize = length.trim().parse().unwrap();
                        if bytes.len() >= head + 4 + length {
                            assert!(text.starts_with("post /v1/traces http/1.1"), "{text}");
                            let body: Value = serde_json::from_slice(&bytes[head + 4..head + 4 + length]).unwrap();
                            bytes.drain(..head + 4 + length);
                            let all = body["resourceSpans"][0].clone();
                            assert_eq!(all["resource"]["attributes"][0]["value"]["stringValue"], "hookonce");
                            let some = all["scopeSpans"][0]["spans"].as_array().unwrap().clone();
                            kept.lock().unwrap().extend(some);
                            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                            continue;
                        }
                    }
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
            });
        }
    });
    (url, spans)
}

fn told<'s>(span: &'s Value, name: &str) -> &'s str {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|one| one["key"] == format!("hookonce.{name}"));
    found.and_then(|one| one["value"]["stringValue"].as_str()).unwrap_or("")
}

#[tokio::test]
async fn a_delivery_is_one_trace_from_its_sender_to_its_command() {
    let (url, spans) = collector().await;
    let mut house = House::empty(&numbers("").replace("echo out of", "echo within $TRACEPARENT; echo out of"));
    let mut serve = house.command(&["serve"]);
    serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    house.try_start_by(serve).unwrap();
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let sent = number("d1", 1, "a").with("traceparent", &format!("00-{trace}-{parent}-01"));
    let event = house.deliver(IN, &sent).await.event();
    house.deliver(IN, &number("d2", 13, "a")).await;
    house.deliver(IN, &number("d3", 1, "a").with("traceparent", &format!("00-{}-{parent}-00", "1".repeat(32)))).await;
    house.quiet().await;
    let shown = house.ask("GET", &format!("/api/events/{event}")).await.json().to_string();
    house.stop();
    let start = std::time::Instant::now();
    while spans.lock().unwrap().iter().filter(|span| span["name"] == "attempt").count() < 2 {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let all = spans.lock().unwrap().clone();
    let of = |trace: &str, name: &str| {
        let mut found = all.iter().filter(|span| span["traceId"] == *trace && span["name"] == *name);
        found.next().cloned().unwrap_or_else(|| panic!("no {name} in {trace}: {all:#?}"))
    };
    let receive = of(trace, "receive");
    assert_eq!((receive["parentSpanId"].as_str(), told(&receive, "verdict")), (Some(parent), "accepted"));
    for name in ["claim", "attempt"] {
        assert_eq!(of(trace, name)["parentSpanId"], receive["spanId"], "{name}");
    }
    let attempt = of(trace, "attempt");
    assert_eq!((told(&attempt, "event"), told(&attempt, "outcome")), (&*event, "delivered"));
    let handed_on = format!("within 00-{trace}-{}-01", attempt["spanId"].as_str().unwrap());
    assert!(shown.contains(&handed_on), "a command's parent is the attempt that the collector has: {shown}");
    let nanos = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
    assert!(nanos(&receive, "startTimeUnixNano") <= nanos(&attempt, "endTimeUnixNano"));
    let failed = all.iter().find(|span| span["name"] == "attempt" && span["traceId"] != *trace).unwrap();
    assert_eq!((failed["status"]["code"].as_u64(), told(failed, "outcome")), (Some(2), "failed"));
    assert!(all.iter().all(|span| span["traceId"] != *"1".repeat(32)), "a sender that does not sample is obeyed");
}
