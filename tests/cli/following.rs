//! `tail`: what happens, while it happens.

use crate::house::{House, until};
use crate::{begun, delivered, numbers, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

/// A command that goes on, and what it has said so far.
struct Going {
    child: Child,
    heard: Arc<Mutex<String>>,
}

impl Going {
    fn start(house: &House, args: &[&str]) -> Self {
        let mut command = house.command(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let heard = Arc::new(Mutex::new(String::new()));
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut stream in streams {
            let heard = heard.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    heard.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
                }
            });
        }
        Self { child, heard }
    }

    fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }

    async fn hears(&self, part: &str) {
        until(part, || self.heard().contains(part)).await;
    }

    async fn code(&mut self) -> Option<i32> {
        for _ in 0..3000 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("it does not end: {}", self.heard());
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Delivers numbers until the follower has heard one: it takes a moment until it listens.
async fn listening(house: &House, tail: &Going, word: &str) {
    for n in 100..3000 {
        begun(house, &format!("probe-{n}"), n).await;
        if tail.heard().contains(word) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{}", tail.heard());
}

#[tokio::test]
async fn changes_and_output_are_told_until_the_node_stops() {
    let mut house = House::new(&numbers());
    let mut tail = Going::start(&house, &["tail", "--admin", &house.admin_url("")]);
    listening(&house, &tail, "running").await;
    let event = delivered(&house, "mine", 13).await;
    let short = &event[28..];
    tail.hears(&format!("{short} | acting on 13\n")).await;
    tail.hears(&format!("dead    {short} source=numbers route=act cause=failed attempt=1\n")).await;
    assert!(tail.heard().contains(&format!("running {short} source=numbers route=act n=13 word=w13 attempt=1")));
    house.stop();
    assert_eq!(tail.code().await, Some(0));
    tail.hears("the node has stopped").await;
}

#[tokio::test]
async fn one_event_is_followed_to_its_end_and_news_for_programs_are_documents() {
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
    run(&house, &["tail", "--admin", &admin, "--event", "w"]).check(0, "is over: `hookonce show");
}

#[tokio::test]
async fn only_a_source_is_followed_and_an_interrupt_is_a_fine_end() {
    let house = House::new(&numbers());
    let mut other = Going::start(&house, &["tail", "--admin", &house.admin_url(""), "--source", "others"]);
    let mut tail = Going::start(&house, &["tail", "--admin", &house.admin_url(""), "--source", "numbers"]);
    listening(&house, &tail, " | acting on ").await;
    for going in [&mut tail, &mut other] {
        kill_process(Pid::from_child(&going.child), Signal::INT).unwrap();
        assert_eq!(going.code().await, Some(0), "{}", going.heard());
    }
    assert_eq!(other.heard(), "");
}

#[tokio::test]
async fn without_a_node_there_is_nothing_to_follow() {
    let house = House::empty(&numbers());
    run(&house, &["tail"]).check(2, "no node answers at 127.0.0.1:0");
    run(&house, &["tail", "--store", "hookonce.db"]).check(2, "only a running node tells what happens");
}
