//! The live stream.

use crate::support::{House, PATIENCE};
use crate::{IN, get, number, numbers, postgres, redis};
use hookonce::decide::time::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A reader of server-sent events.
struct Reader {
    response: reqwest::Response,
    text: String,
}

impl Reader {
    async fn open(house: &House, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = reqwest::Client::new().get(house.admin_url(&format!("/api/live{query}")));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next message: its kind, its document, and its id.
    async fn next(&mut self) -> Option<(String, Value, String)> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let of =
                    |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim().to_owned();
                if !of("event:").is_empty() {
                    return Some((of("event:"), serde_json::from_str(&of("data:")).unwrap(), of("id:")));
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("something happens");
            self.text += std::str::from_utf8(&chunk.unwrap()?).unwrap();
        }
    }

    /// All messages until the event of this number has ended.
    async fn until_ended(&mut self, n: u64) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        while let Some((kind, document, _)) = self.next().await {
            let ended = kind == "state" && document["fields"]["n"] == json!(n) && document["ended_at"].is_string();
            all.push((kind, document));
            if ended {
                return all;
            }
        }
        panic!("the stream ended before: {all:?}");
    }
}

#[tokio::test]
async fn states_deliveries_and_output_are_streamed_live() {
    let house = House::new(&numbers(""));
    let mut reader = Reader::open(&house, "", &[]).await;
    house.deliver(IN, &number("d0", 1, "no")).await;
    house.deliver(IN, &number("d1", 1, "a").with("x-hub-signature-256", "sha256=00")).await;
    let event = house.deliver(IN, &number("d2", 7, "a")).await.event();
    let mut all = reader.until_ended(7).await;
    // Its end and the response to its sender do not wait for each other.
    while !all.iter().any(|(kind, document)| kind == "delivery" && document["event"] == json!(event)) {
        let (kind, document, _) = reader.next().await.unwrap();
        all.push((kind, document));
    }
    let of = |kind: &str| all.iter().filter(|(k, _)| k == kind).map(|(_, document)| document).collect::<Vec<_>>();
    let verdicts: Vec<_> = of("delivery").iter().map(|heard| heard["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["ignored", "refused", "accepted"]);
    assert_eq!(of("delivery")[1]["reason"], json!("bad_signature"));
    assert_eq!(of("delivery")[2]["event"], json!(event));
    let output: String = of("output").iter().map(|chunk| chunk["text"].as_str().unwrap()).collect();
    assert_eq!(output, "out of 7\n");
    let states: Vec<_> = of("state").iter().map(|event| event["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["running", "done"]);
    house.deliver(IN, &number("d2", 7, "a")).await;
    let (kind, heard, id) = reader.next().await.unwrap();
    assert_eq!((&*kind, &heard["verdict"], &heard["same"]), ("delivery", &json!("duplicate"), &json!("delivery")));
    assert!(id.parse::<i64>().is_ok());
}

#[tokio::test]
async fn every_stream_asks_proxies_not_to_buffer() {
    let house = House::new(&numbers(""));
    let client = reqwest::Client::new();
    for path in ["/api/live", "/api/live?output=0&few=1", "/api/live?tail=1", "/api/tail"] {
        let response = client.get(house.admin_url(path)).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream", "{path}");
        assert_eq!(response.headers()["x-accel-buffering"], "no", "{path}");
    }
}

#[tokio::test]
async fn a_client_gets_only_what_it_asked_for_and_one_that_reconnects_is_told_to_reload() {
    let house = House::new(&numbers(""));
    let first = house.deliver(IN, &number("d1", 1, "a")).await.event();
    house.quiet().await;
    let mut of_event = Reader::open(&house, &format!("?event={first}&output=0"), &[("last-event-id", "5")]).await;
    assert_eq!(of_event.next().await.unwrap().0, "missed");
    let mut of_nobody = Reader::open(&house, "?source=others", &[]).await;
    house.deliver(IN, &number("d2", 2, "a")).await;
    house.quiet().await;
    house.ask("POST", &format!("/api/events/{first}/replay")).await;
    let all = of_event.until_ended(1).await;
    assert!(all.iter().all(|(kind, document)| kind == "state" && document["event"] == json!(first)), "{all:?}");
    let silent = tokio::time::timeout(std::time::Duration::from_millis(300), of_nobody.next()).await;
    assert!(silent.is_err(), "{silent:?}");
}

#[tokio::test]
async fn a_tail_says_why_an_event_is_dead_and_leaves_accepted_deliveries_out() {
    let house = House::new(&numbers(""));
    let mut tail = Reader::open(&house, "?tail=1", &[]).await;
    house.deliver(IN, &number("d1", 13, "a")).await;
    let all = tail.until_ended(13).await;
    assert!(all.iter().all(|(kind, _)| kind != "delivery"), "{all:?}");
    let (_, dead) = all.last().unwrap();
    assert_eq!(dead["state"], json!("dead"), "{dead}");
    assert!(dead["why"].as_str().unwrap().contains("exited with 1"), "{dead}");
    house.deliver(IN, &number("d1", 1, "no")).await;
    let (kind, delivery, _) = tail.next().await.unwrap();
    assert_eq!((&*kind, &delivery["verdict"]), ("delivery", &json!("ignored")));
}

#[tokio::test]
async fn a_slow_client_is_disconnected_and_too_many_clients_are_refused() {
    let house = House::new(&numbers(""));
    // A socket with a small buffer, which is not read while more is sent than it and the node hold.
    let address = house.admin_url("").replace("http://", "");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(address.parse().unwrap()).await.unwrap();
    slow.write_all(format!("GET /api/live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let sent = number(&"d".repeat(250), 1, "no");
    // As much as the kernel may buffer for it, in messages of more than 500 bytes, and more than the node buffers.
    let most = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let most: usize = most.split_whitespace().last().unwrap().parse().unwrap();
    for _ in 0..=(most / 500 + 2_000) / 500 {
        let all = futures_util::future::join_all((0..500).map(|_| house.deliver(IN, &sent))).await;
        assert!(all.iter().all(|answer| answer.status == 200));
    }
    let mut heard = Vec::new();
    slow.read_to_end(&mut heard).await.ok();
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.matches("event: delivery").count() > 100);
    assert_eq!(heard.matches("event: missed").count(), 1);
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(Reader::open(&house, "", &[]).await);
    }
    let refused = house.ask("GET", "/api/live").await;
    assert_eq!((refused.status, &refused.json()["reason"]), (503, &json!("too many live streams are open (limit 64)")));
    assert_eq!(house.ask("GET", "/api/tail").await.status, 503);
    drop(all);
}

#[tokio::test]
async fn a_client_that_wants_few_messages_gets_more_and_stays_connected() {
    let house = House::new(&numbers(""));
    let mut reader = Reader::open(&house, "?output=0&few=1", &[]).await;
    let sent = number("d1", 1, "no");
    let all = futures_util::future::join_all((0..400).map(|_| house.deliver(IN, &sent))).await;
    assert!(all.iter().all(|answer| answer.status == 200));
    let mut told = 0;
    while reader.next().await.expect("the stream goes on").0 != "more" {
        told += 1;
    }
    assert!((1..=80).contains(&told), "{told} of 400 were sent in about a second");
    let last = house.deliver(IN, &number("d2", 2, "a")).await.event();
    loop {
        let (_, document, _) = reader.next().await.expect("the stream goes on");
        if document["event"] == json!(last) {
            break;
        }
    }
}

#[tokio::test]
async fn a_client_of_a_running_command_gets_its_output_from_the_beginning_and_once() {
    let wait = "until test -e more; do sleep 0.02; done; printf '\\\\303'; sleep 0.2; printf '\\\\251 late\\\\n'; \
                until test -e go; do sleep 0.02; done";
    let config = numbers("").replace("test $HOOKONCE_FIELD_N != 13", wait);
    let house = House::new(&config);
    let event = house.deliver(IN, &number("d1", 7, "a")).await.event();
    let mut first = Reader::open(&house, &format!("?event={event}"), &[]).await;
    let mut heard = String::new();
    while heard != "out of 7\n" {
        let (kind, document, _) = first.next().await.unwrap();
        if kind == "output" {
            heard += document["text"].as_str().unwrap();
        }
    }
    let mut second = Reader::open(&house, &format!("?event={event}"), &[]).await;
    let (kind, document, _) = second.next().await.unwrap();
    let expected = json!({ "event": event, "text": "out of 7\n", "so_far": true });
    assert_eq!((&*kind, document), ("output", expected));
    std::fs::write(house.path("more"), "").unwrap();
    let mut late = String::new();
    while !late.ends_with('\n') {
        let (kind, document, _) = second.next().await.unwrap();
        assert_eq!((&*kind, document.get("so_far")), ("output", None));
        late += document["text"].as_str().unwrap();
    }
    assert_eq!(late, "é late\n", "a character written in two pieces is one");
    std::fs::write(house.path("go"), "").unwrap();
    house.quiet().await;
    // It has ended: its output is with its attempt, and nothing is sent as new.
    let mut third = Reader::open(&house, &format!("?event={event}"), &[]).await;
    house.ask("POST", &format!("/api/events/{event}/replay")).await;
    let (kind, document, _) = third.next().await.unwrap();
    assert_eq!((&*kind, &document["state"]), ("state", &json!("waiting")));
}

/// One node receives and another acts; a client of the first is told to load again, but not continuously.
async fn writes_of_another_node_cause_more(store: &str) {
    let wait = "until test -e go; do sleep 0.02; done";
    let config =
        format!("store = {{ env = \"STORE\" }}\n{}", numbers("").replace("test $HOOKONCE_FIELD_N != 13", wait));
    let [ingest, work] = ["ingest", "work"].map(|half| {
        let mut house = House::empty(&config);
        let mut serve = house.command(&["serve", "--only", half]);
        serve.env("STORE", store);
        house.try_start_by(serve).unwrap();
        house
    });
    let mut page = Reader::open(&ingest, "?output=0&few=1", &[]).await;
    let mut own = Reader::open(&ingest, "?source=numbers", &[]).await;
    let event = ingest.deliver(IN, &number("d0", 0, "a")).await.event();
    let stands = async || get(&ingest, &format!("/api/events/{event}")).await;
    while stands().await["state"] != json!("running") {}
    std::fs::write(work.path("go"), "").unwrap();
    while stands().await["state"] != json!("done") {}
    let ended = Timestamp::parse(stands().await["ended_at"].as_str().unwrap()).unwrap();
    for reader in [&mut page, &mut own] {
        while !matches!(reader.next().await.unwrap(), (kind, _, id) if kind == "more" && id.parse::<i64>().unwrap() > ended.0)
        {
        }
    }
    let (mut told, begun) = (Vec::new(), std::time::Instant::now());
    let mut n = 0;
    while told.len() < 3 {
        n += 1;
        assert!(begun.elapsed() < PATIENCE);
        ingest.deliver(IN, &number(&format!("d{n}"), n, "a")).await;
        while let Ok(next) = tokio::time::timeout(std::time::Duration::from_millis(50), page.next()).await {
            let (kind, _, id) = next.expect("the stream goes on");
            told.extend((kind == "more").then(|| id.parse::<i64>().unwrap()));
        }
    }
    // The store's clock is read by nodes only from time to time, so a second of it may seem a little shorter.
    assert!(told.windows(2).all(|pair| pair[1] - pair[0] > 900_000), "{told:?}");
}

#[tokio::test]
async fn writes_of_another_node_to_postgresql_cause_more() {
    let server = postgres::Server::start().await;
    writes_of_another_node_cause_more(&server.url(&server.database().await)).await;
}

#[tokio::test]
async fn writes_of_another_node_to_redis_cause_more() {
    let server = redis::Server::start();
    writes_of_another_node_cause_more(&server.url("live")).await;
}
