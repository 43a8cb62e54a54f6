//! A captured delivery: the same signed bytes sent again, under any id.

use crate::support::{House, SECRET, Sent, until};
use crate::{IN, number, numbers};
use aws_lc_rs::hmac;

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The status word and the matched identity of each response, one after another.
async fn told(house: &House, all: &[Sent]) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for sent in all {
        let answer = house.deliver(IN, sent).await;
        told.push((answer.word(), answer.json()["same"].as_str().unwrap_or("").to_owned()));
        house.quiet().await;
    }
    told
}

fn words(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(word, same)| ((*word).to_owned(), (*same).to_owned())).collect()
}

/// Regression: five ids used to cause five runs.
#[tokio::test]
async fn one_signed_body_under_five_ids_runs_once() {
    for keys in ["", "once = { per = [\"delivery\"] }"] {
        let mut house = House::new(&numbers(keys, RUN));
        let all = IDS.map(|id| number(id, 1));
        let again = ("duplicate", "body");
        assert_eq!(told(&house, &all).await, words(&[("accepted", ""), again, again, again, again]), "{keys}");
        assert_eq!(
            told(&house, &all[..1]).await,
            words(&[("duplicate", "delivery")]),
            "the id that it first came under"
        );
        assert_eq!(house.lines("runs"), ["1"], "{keys}");
        // One key, which represents both; operators are shown both.
        assert_eq!(house.sql("select identity from keys"), ["body"]);
        let event = house.sql("select lower(hex(id)) from events").remove(0);
        let shown = house.ask("GET", &format!("/api/events/{event}")).await.json();
        assert_eq!(shown["identities"], serde_json::json!(["delivery", "body"]), "{shown}");
        house.stop();
        house.start();
        assert_eq!(told(&house, &all[..2]).await, words(&[("duplicate", "delivery"), again]), "after a restart");
        let said = house.command(&["check"]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains("the body, implied: the signature does not cover the delivery id\n"), "{said}");
        assert!(said.contains("under another id is a repeat for 30d after its event ended\n"), "{said}");
    }
}

#[tokio::test]
async fn with_equal_bodies_new_equal_bodies_act_each_time_and_a_redelivery_still_does_not() {
    let mut house = House::new(&numbers("", RUN));
    let all = IDS.map(|id| number(id, 1));
    assert_eq!(told(&house, &all[..2]).await, words(&[("accepted", ""), ("duplicate", "body")]));
    house.stop();
    house.configure(&numbers("once = { equal_bodies = \"new\" }", RUN));
    house.start();
    // What was claimed by its body is still found by its id.
    let duplicate = ("duplicate", "delivery");
    assert_eq!(told(&house, &all[..2]).await, words(&[duplicate, ("accepted", "")]));
    assert_eq!(told(&house, &all[..2]).await, words(&[duplicate, duplicate]));
    assert!(!house.log().contains("may act again"), "{}", house.log());
    assert!(house.log().contains("warning: anyone who captures a delivery can make it act again"), "{}", house.log());
    house.stop();
    house.configure(&numbers("", RUN));
    house.start();
    assert_eq!(told(&house, &all[..2]).await, words(&[duplicate, duplicate]), "with the old config again");
    assert!(!house.log().contains("may act again"), "{}", house.log());
}

/// A delivery signed over time and body, as by many senders, with an unsigned id.
fn timed(id: &str, time: u64, n: u64) -> Sent {
    let body = format!("{{\"n\":{n}}}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hex::encode(hmac::sign(&key, format!("{time}.{body}").as_bytes()));
    let headers =
        [("content-type", "application/json"), ("x-id", id), ("x-time", &time.to_string()), ("x-sig", &signature)];
    Sent { headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(), body: body.into_bytes() }
}

#[tokio::test]
async fn where_a_time_is_signed_the_same_bytes_signed_at_another_time_are_another_event() {
    let github = "verify = { scheme = \"github\", secret = { env = \"SECRET\" } }";
    let hmac = "delivery = \"header.x-id\"\nverify = { scheme = \"hmac\", header = \"x-sig\", secret = { env = \"SECRET\" }, \
                over = \"{timestamp}.{body}\", timestamp = \"header.x-time\" }";
    let house = House::new(&numbers("", RUN).replace(github, hmac));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let captured = IDS.map(|id| timed(id, now, 1));
    let again = ("duplicate", "time+body");
    assert_eq!(told(&house, &captured).await, words(&[("accepted", ""), again, again, again, again]));
    let second = [timed("f", now - 1, 1), timed("g", now - 1, 1), timed("a", now - 2, 1)];
    let own = ("duplicate", "delivery");
    assert_eq!(told(&house, &second).await, words(&[("accepted", ""), again, own]), "a retry is signed again");
    assert_eq!(house.lines("runs"), ["1", "1"]);
    until("it to be logged", || house.log().contains("same=time+body")).await;
}
