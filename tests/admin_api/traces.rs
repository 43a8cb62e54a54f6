//! Traces, against a collector of our own.

use crate::support::{House, PATIENCE, until};
use crate::{IN, number, numbers};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The fields of a protobuf message: number, and a number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (number, length) = match tag & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (u64::from_le_bytes(bytes[..8].try_into().unwrap()), 8),
            2 => (0, usize::try_from(varint(&mut bytes)).unwrap()),
            5 => (0, 4),
            other => panic!("no wire type of protobuf: {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        bytes = rest;
        all.push((tag >> 3, number, value));
    }
    all
}

/// The messages or bytes of a field.
fn each<'b>(message: &'b [u8], field: u64) -> impl Iterator<Item = &'b [u8]> {
    fields(message).into_iter().filter(move |(found, ..)| *found == field).map(|(_, _, value)| value)
}

fn text(message: &[u8], field: u64) -> String {
    each(message, field).next().map(|text| String::from_utf8(text.to_vec()).unwrap()).unwrap_or_default()
}

fn number_of(message: &[u8], field: u64) -> u64 {
    fields(message).iter().find(|(found, ..)| *found == field).map_or(0, |(_, number, _)| *number)
}

/// Text attributes, by name.
fn attributes(message: &[u8], field: u64) -> Value {
    let one =
        |pair: &[u8]| (text(pair, 1), each(pair, 2).next().map(|value| text(value, 1)).unwrap_or_default().into());
    Value::Object(each(message, field).map(one).collect())
}

/// A span, as OTLP/JSON has it.
fn span(message: &[u8]) -> Value {
    let id = |field| each(message, field).next().map(hex::encode);
    let status = each(message, 15).next().unwrap_or_default();
    json!({
        "traceId": id(1), "spanId": id(2), "parentSpanId": id(4), "name": text(message, 5), "kind": number_of(message, 6),
        "start": number_of(message, 7), "end": number_of(message, 8), "attributes": attributes(message, 9),
        "status": { "message": text(status, 2), "code": number_of(status, 3) },
    })
}

/// Accepts OTLP over HTTP and keeps the spans.
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
                            assert!(
                                text.contains("\r\nauthorization: basic dtpwxnc=\r\n"),
                                "u:p^w, in lower case: {text}"
                            );
                            for all in each(&bytes[head + 4..head + 4 + length], 1) {
                                let resource = attributes(each(all, 1).next().unwrap(), 1);
                                assert_eq!(resource["service.name"], "hookonce", "{resource}");
                                let spans = each(all, 2).flat_map(|scope| each(scope, 2));
                                kept.lock().unwrap().extend(spans.map(span));
                            }
                            bytes.drain(..head + 4 + length);
                            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
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
    span["attributes"][format!("hookonce.{name}")].as_str().unwrap_or("")
}

#[tokio::test(flavor = "multi_thread")] // the collector answers while the node stops
async fn a_delivery_is_one_trace_from_its_sender_to_its_command() {
    let (url, spans) = collector().await;
    let mut house = House::empty(&numbers("").replace("echo out of", "echo within $TRACEPARENT; echo out of"));
    let mut serve = house.command(&["serve"]);
    serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", url.replace("//", "//u:p^w@"));
    serve.env("HTTP_PROXY", "http://127.0.0.1:9").env("http_proxy", "http://127.0.0.1:9");
    house.try_start_by(serve).unwrap();
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let sent = number("d1", 1, "a").with("traceparent", &format!("00-{trace}-{parent}-01"));
    let event = house.deliver(IN, &sent).await.event();
    house.deliver(IN, &number("d2", 13, "a")).await;
    house.deliver(IN, &number("d3", 1, "a").with("traceparent", &format!("00-{}-{parent}-00", "1".repeat(32)))).await;
    house.quiet().await;
    let shown = house.ask("GET", &format!("/api/events/{event}")).await.json().to_string();
    let log = house.log();
    assert!(log.contains("/v1/traces") && !log.contains("p^w") && !log.contains("p%5Ew"), "{log}");
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
    assert!(receive["start"].as_u64() > Some(0) && receive["start"].as_u64() <= attempt["end"].as_u64());
    assert_eq!((receive["kind"].as_u64(), attempt["kind"].as_u64()), (Some(2), Some(1)), "server and internal");
    let failed = all.iter().find(|span| span["name"] == "attempt" && span["traceId"] != *trace).unwrap();
    assert_eq!((failed["status"]["code"].as_u64(), told(failed, "outcome")), (Some(2), "failed"));
    assert!(
        all.iter().all(|span| span["traceId"] != *"1".repeat(32)),
        "a trace that the sender does not sample is not recorded"
    );
}

#[tokio::test]
async fn an_address_that_is_no_url_is_named_without_its_password() {
    for address in ["u:canary@localhost:4318", "http://u:canary@", "canary"] {
        let mut house = House::empty(&numbers(""));
        let mut serve = house.command(&["serve"]);
        serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
        house.try_start_by(serve).unwrap();
        until("the log says so", || house.log().contains("cannot send traces")).await;
        let log = house.log();
        assert!(!log.contains("canary"), "{log}");
        house.stop();
    }
}
