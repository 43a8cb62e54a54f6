//! A node that gets a signal to stop: what runs may end, nothing new begins.

use crate::nginx::Nginx;
use crate::support::{House, until};
use crate::{IN, number, numbers, touch};
use rustix::process::Signal;

const WAITS: &str =
    "run = { steps = [\"echo begin >> runs; until test -e go; do sleep 0.01; done; echo end >> runs\"] }";

#[tokio::test]
async fn a_running_command_may_end_and_nothing_new_is_accepted() {
    let mut house = House::new(&numbers("", WAITS));
    house.deliver(IN, &number("a", 1)).await;
    until("it to run", || house.lines("runs").len() == 1).await;
    house.signal(Signal::TERM);
    until("it to drain", || house.log().contains("draining")).await;
    let sent = number("b", 2);
    let late = house.post(IN, &sent.headers, &sent.body).await;
    assert!(late.as_ref().map_or(true, |answer| answer.status == 503), "{late:?}");
    touch(&house, "go");
    let (status, said) = house.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(house.lines("runs"), ["begin", "end"]);
    assert_eq!(house.sql("select state from events"), ["done"]);
}

#[tokio::test]
async fn a_draining_node_can_be_watched_until_it_exits_and_accepts_no_sender_connections() {
    let mut house = House::new(&numbers("", WAITS));
    let event = house.deliver(IN, &number("a", 1)).await.event();
    until("it to run", || house.lines("runs").len() == 1).await;
    let mut streams = Vec::new();
    for path in ["/api/live?tail=1", "/api/live"] {
        streams.push((reqwest::get(house.admin_url(path)).await.unwrap(), String::new()));
    }
    house.signal(Signal::TERM);
    until("it to drain", || house.log().contains("draining")).await;
    // A sender's proxy is refused at once, and uses another node.
    let sender = house.url("").replace("http://", "");
    until("the port to close", || std::net::TcpStream::connect(&sender).is_err()).await;
    let ask = async |path: &str| house.ask("GET", path).await;
    assert_eq!(ask("/healthz").await.status, 200);
    assert_eq!(ask("/readyz").await.status, 503);
    assert_eq!(ask(&format!("/api/events/{event}")).await.json()["state"], "running");
    assert_eq!(ask("/").await.status, 200);
    touch(&house, "go");
    for (stream, heard) in &mut streams {
        while let Ok(Some(chunk)) = stream.chunk().await {
            *heard += &String::from_utf8_lossy(&chunk);
        }
        assert!(heard.contains("\"done\""), "{heard}");
    }
    let (status, said) = house.wait();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[tokio::test]
async fn behind_nginx_a_draining_node_loses_no_delivery() {
    let (mut drains, other) = (House::new(&numbers("", WAITS)), House::new(&numbers("", WAITS)));
    let [here, there] = [&drains, &other].map(|house| house.url("").replace("http://", ""));
    let beside = format!("upstream nodes {{ server {here}; server {there}; }}");
    let proxy = Nginx::start_beside(&beside, "location / { proxy_pass http://nodes; }");
    drains.deliver(IN, &number("a", 1)).await;
    until("it to run", || drains.lines("runs").len() == 1).await;
    drains.signal(Signal::TERM);
    until("the port to close", || std::net::TcpStream::connect(&here).is_err()).await;
    for n in 2..12 {
        let sent = number(&format!("n-{n}"), n);
        let mut request = reqwest::Client::new().post(proxy.url(IN)).body(sent.body);
        for (name, value) in &sent.headers {
            request = request.header(name, value);
        }
        assert_eq!(request.send().await.unwrap().status(), 202, "{n}");
    }
    touch(&drains, "go");
    assert_eq!(drains.wait().0.code(), Some(0));
    assert_eq!(other.sql("select count(*) from events"), ["10"]);
    touch(&other, "go");
    other.quiet().await;
}

#[tokio::test]
async fn a_sender_that_waits_for_a_response_still_gets_it() {
    let mut house = House::new(&numbers("respond = \"done\"", WAITS));
    let sent = number("a", 1);
    let (answer, ()) = tokio::join!(house.deliver(IN, &sent), async {
        until("it to run", || house.lines("runs").len() == 1).await;
        house.signal(Signal::TERM);
        until("it to drain", || house.log().contains("draining")).await;
        touch(&house, "go");
    });
    assert_eq!((answer.status, &*answer.word()), (200, "done"), "{answer:?}");
    assert_eq!(house.wait().0.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_command_and_its_outcome_is_unknown() {
    for (in_doubt, state) in [("retry", "waiting "), ("hold", "dead in_doubt")] {
        let step = "echo $$ >> pid; sleep 60";
        let route = format!("in_doubt = \"{in_doubt}\"\nrun = {{ steps = [\"{step}\"] }}");
        let mut house = House::new(&numbers("", &route));
        house.deliver(IN, &number("a", 1)).await;
        until("the command", || !house.lines("pid").is_empty()).await;
        house.signal(Signal::TERM);
        until("it to drain", || house.log().contains("draining")).await;
        house.signal(Signal::TERM);
        let (status, said) = house.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        assert_eq!(house.sql("select state || ' ' || coalesce(cause, '') from events"), [state]);
        assert_eq!(house.sql("select outcome from attempts"), ["unknown"]);
        assert!(!std::path::Path::new(&format!("/proc/{}", house.lines("pid")[0])).exists(), "{said}");
    }
}

#[tokio::test]
async fn a_live_stream_client_does_not_keep_a_node_running() {
    let mut house = House::new(&numbers("", WAITS));
    let mut tail = reqwest::get(house.admin_url("/api/live?tail=1")).await.unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(house.stop().code(), Some(0));
    assert!(begun.elapsed() < hookonce::decide::limits::DRAIN_TIME, "{:?}", begun.elapsed());
    while let Ok(Some(_)) = tail.chunk().await {}
}
