//! `tail`: the live stream on the command line.

use crate::support::{House, PATIENCE, until};
use crate::{Sent, begun, delivered, numbers, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running command, and its output and errors so far.
struct Going {
    child: Child,
    heard: [Arc<Mutex<String>>; 2],
    readers: Vec<JoinHandle<()>>,
}

impl Going {
    fn start(house: &House, args: &[&str]) -> Self {
        let mut command = house.command(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let heard = <[Arc<Mutex<String>>; 2]>::default();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        let reader = |(stream, heard): (Box<dyn Read + Send>, &Arc<Mutex<String>>)| {
            let (mut stream, heard) = (BufReader::new(stream), heard.clone());
            std::thread::spawn(move || {
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                    heard.lock().unwrap().push_str(&std::mem::take(&mut line));
                }
            })
        };
        let readers = streams.into_iter().zip(&heard).map(reader).collect();
        Self { child, heard, readers }
    }

    /// The lines so far.
    fn heard(&self) -> String {
        self.heard.each_ref().map(|heard| heard.lock().unwrap().clone()).concat()
    }

    async fn hears(&self, part: &str) {
        until(part, || self.heard().contains(part)).await;
    }

    /// Waits until it has ended, and all of its output is read.
    async fn code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.readers.drain(..).for_each(|reader| reader.join().unwrap());
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "the command does not end: {}", self.heard());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Delivers numbers until one is printed: it takes a moment until `tail` is connected.
async fn listening(house: &House, tail: &Going, word: &str) {
    for n in 100..3000 {
        begun(house, &format!("probe-{n}"), n).await;
        if tail.heard().contains(word) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{}", tail.heard());
}

#[tokio::test]
async fn changes_and_output_are_printed_until_the_node_stops() {
    let mut house = House::new(&numbers());
    let mut tail = Going::start(&house, &["tail", "--admin", &house.admin_url("")]);
    listening(&house, &tail, "running").await;
    let event = delivered(&house, "mine", 13).await;
    let short = &event[28..];
    tail.hears(&format!("{short} | acting on 13\n")).await;
    let why = "why=\"it failed because step 1 of block 1 exited with 3: echo acting on $HOOKONCE_FIELD_N; ";
    tail.hears(&format!("dead    {short} source=numbers route=act cause=failed attempt=1 {why}")).await;
    assert!(tail.heard().contains(&format!("running {short} source=numbers route=act n=13 word=w13 attempt=1")));
    house.stop();
    assert_eq!(tail.code().await, Some(0));
    tail.hears("the node has stopped").await;
}

#[tokio::test]
async fn one_event_is_followed_to_its_end_and_json_output_is_documents() {
    let house = House::new(&numbers());
    let event = begun(&house, "w", 7).await;
    let admin = house.admin_url("");
    let mut tail = Going::start(&house, &["tail", "--admin", &admin, "--event", &event[28..], "--json"]);
    tail.hears("still").await;
    begun(&house, "other", 1).await;
    std::fs::write(house.path("go"), "").unwrap();
    assert_eq!(tail.code().await, Some(0));
    let lines: Vec<Json> = tail.heard().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.iter().all(|line| line["event"] == *event), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!((&last["kind"], &last["state"]), (&json!("state"), &json!("done")), "{lines:?}");
    house.quiet().await;
    run(&house, &["tail", "--admin", &admin, "--event", "w"]).check(0, "has ended: see `hookonce show");
}

#[tokio::test]
async fn only_the_source_is_followed_and_an_interrupt_is_no_error() {
    let house = House::new(&numbers());
    let mut other = Going::start(&house, &["tail", "--admin", &house.admin_url(""), "--source", "others"]);
    let mut tail = Going::start(&house, &["tail", "--admin", &house.admin_url(""), "--source", "numbers"]);
    listening(&house, &tail, " | acting on ").await;
    house.counted(&["hookonce_live_clients 2"]).await;
    for going in [&mut tail, &mut other] {
        kill_process(Pid::from_child(&going.child), Signal::INT).unwrap();
        assert_eq!(going.code().await, Some(0), "{}", going.heard());
    }
    assert_eq!(other.heard(), "");
}

#[tokio::test]
async fn deliveries_without_an_event_are_printed_with_their_reason_and_only_those_of_the_source() {
    let house = House::new(&format!(
        "{}\n[source.others]\nverify = {{ scheme = \"github\", secret = {{ env = \"SECRET\" }} }}\n\
         when = 'kind == \"a\"'\nfields = {{ kind = \"body.kind\" }}\n[[source.others.route]]\n",
        numbers()
    ));
    let admin = house.admin_url("");
    let all = Going::start(&house, &["tail", "--admin", &admin]);
    let others = Going::start(&house, &["tail", "--admin", &admin, "--source", "others"]);
    let programs = Going::start(&house, &["tail", "--admin", &admin, "--source", "others", "--json"]);
    listening(&house, &all, "running").await;
    let other = |id: &str, kind: &str| Sent::github("push", id, &json!({ "kind": kind }).to_string());
    for n in 0..3000 {
        house.deliver("/in/others", &other(&format!("probe-{n}"), "b")).await;
        if [&others, &programs].iter().all(|tail| tail.heard().contains("ignored")) {
            break;
        }
    }
    let event = delivered(&house, "mine", 1).await;
    begun(&house, "mine", 1).await;
    house.deliver(crate::IN, &Sent::github("push", "forged", "{}").with("x-hub-signature-256", "sha256=00")).await;
    house.deliver("/astray", &other("lost", "a")).await;
    house.deliver("/in/others", &other("theirs", "no\nnews")).await;
    let short = &event[28..];
    all.hears(&format!(" duplicate {short} source=numbers delivery=mine same=delivery\n")).await;
    all.hears(" refused - source=numbers delivery=forged status=401 reason=bad_signature").await;
    all.hears(" refused - path=/astray delivery=lost status=404 reason=unknown_path").await;
    let ignored = " ignored - source=others delivery=theirs ";
    for tail in [&all, &others] {
        tail.hears(ignored).await;
        let heard = tail.heard();
        let line = heard.lines().find(|line| line.contains(ignored)).unwrap();
        assert!(line.contains("kind was ") && line.contains("news"), "{line}");
        assert!(!heard.contains(" accepted "), "the event itself is shown: {heard}");
    }
    programs.hears("theirs").await;
    assert!(!others.heard().contains("numbers") && !others.heard().contains("astray"), "{}", others.heard());
    let heard = programs.heard();
    let lines: Vec<Json> = heard.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["kind"] == "delivery" && line["source"] == "others"), "{lines:?}");
}

#[tokio::test]
async fn a_waiting_event_is_printed_with_its_reason() {
    let retry = "retry = { attempts = 2, first = \"1h\", longest = \"1h\" }\nin_doubt";
    let house = House::new(&numbers().replace("name = \"act\"", &format!("name = \"act\"\n{retry} = \"hold\"")));
    let tail = Going::start(&house, &["tail", "--admin", &house.admin_url("")]);
    listening(&house, &tail, "running").await;
    let event = begun(&house, "mine", 13).await;
    tail.hears(&format!("waiting {} source=numbers route=act attempt=1 why=\"attempt 1 failed because ", &event[28..]))
        .await;
    tail.hears("; attempt 2 is due in ").await;
}

#[tokio::test]
async fn without_a_node_there_is_nothing_to_follow() {
    let house = House::empty(&numbers());
    run(&house, &["tail"]).check(2, "no node responds at 127.0.0.1:0");
    run(&house, &["tail", "--store", "hookonce.db"]).check(2, "only a running node can be followed");
}
