//! A node that dies in the middle of an attempt.

use crate::receiver::Receiver;
use crate::support::{House, Sent, until};
use crate::{IN, number, numbers, touch};
use std::time::Duration;

#[tokio::test]
async fn a_command_dies_with_its_node_and_is_run_again_by_the_next() {
    let step = "echo $$ >> pid; until test -e go; do sleep 0.01; done; echo end $HOOKONCE_ATTEMPT >> runs";
    let retry = "retry = { attempts = 1, first = \"1ms\" }";
    let mut house = House::new(&numbers("", &format!("{retry}\nrun = {{ steps = [\"{step}\"] }}")));
    let id = house.deliver(IN, &number("a", 1)).await.event();
    until("the command", || !house.lines("pid").is_empty()).await;
    house.kill();
    let process = format!("/proc/{}", house.lines("pid")[0]);
    until("the command to be gone", || !std::path::Path::new(&process).exists()).await;
    touch(&house, "go");
    house.start();
    let again = house.deliver(IN, &number("a", 1)).await;
    assert_eq!((again.word(), again.event()), ("duplicate".into(), id), "{again:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["end 2"]);
}

#[tokio::test]
async fn under_hold_a_command_that_died_with_its_node_is_not_run_again() {
    let step = "echo run >> runs; sleep 60";
    let mut house = House::new(&numbers("", &format!("in_doubt = \"hold\"\nrun = {{ steps = [\"{step}\"] }}")));
    house.deliver(IN, &number("a", 1)).await;
    until("the command", || !house.lines("runs").is_empty()).await;
    house.kill();
    house.start();
    house.quiet().await;
    assert_eq!(house.sql("select cause from events"), ["in_doubt"]);
    assert_eq!(house.lines("runs").len(), 1);
}

#[tokio::test]
async fn the_attempt_that_died_with_its_node_is_shown_and_not_only_the_one_before_it() {
    let step = "test $HOOKONCE_ATTEMPT = 1 && exit 7; echo run >> runs; sleep 60";
    let retry = "retry = { attempts = 3, first = \"1ms\", longest = \"1ms\" }";
    let mut house =
        House::new(&numbers("", &format!("in_doubt = \"hold\"\n{retry}\nrun = {{ steps = [\"{step}\"] }}")));
    let event = house.deliver(IN, &number("a", 1)).await.event();
    until("the second attempt", || !house.lines("runs").is_empty()).await;
    house.kill();
    house.start();
    house.quiet().await;
    let told = house.ask("GET", &format!("/api/events/{event}")).await.json();
    let attempts: Vec<_> = told["attempts"].as_array().unwrap().iter().map(|tried| tried["outcome"].as_str()).collect();
    assert_eq!(attempts, [Some("failed"), Some("unknown")], "{told}");
    assert_eq!(told["why"], "dead: it is unknown whether it acted: its lease ran out: it may have acted");
}

#[tokio::test]
async fn an_accepted_event_that_had_not_begun_is_run_by_the_next_node() {
    let step = "echo $HOOKONCE_FIELD_N >> runs; until test -e go; do sleep 0.01; done";
    let route = format!("at_once = 1\nretry = {{ attempts = 1, first = \"1ms\" }}\nrun = {{ steps = [\"{step}\"] }}");
    let mut house = House::new(&numbers("", &route));
    for n in 1..=5 {
        assert_eq!(house.deliver(IN, &number("n", n)).await.status, 202);
    }
    until("the first", || house.lines("runs") == ["1"]).await;
    house.kill();
    std::fs::remove_file(house.path("runs")).unwrap();
    touch(&house, "go");
    house.start();
    house.quiet().await;
    let mut runs = house.lines("runs");
    runs.sort();
    assert_eq!(runs, ["1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn an_event_answered_2xx_before_a_crash_is_done_after_it() {
    let route = "retry = { attempts = 1, first = \"1ms\" }\nrun = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";
    let mut house = House::new(&numbers("", route));
    let all: Vec<_> = (0..300).map(|n| number(&format!("id-{n}"), n)).collect();
    let path = house.url(IN);
    let client = reqwest::Client::new();
    let mut sending = tokio::task::JoinSet::new();
    for (n, sent) in all.iter().enumerate() {
        let mut request = client.post(&path).body(sent.body.clone());
        for (name, value) in &sent.headers {
            request = request.header(name, value);
        }
        sending.spawn(async move { (n, request.send().await.is_ok_and(|answer| answer.status() == 202)) });
    }
    until("some of them", || house.sql("select count(*) > 20 from events") == ["1"]).await;
    house.kill();
    let accepted: Vec<_> = sending.join_all().await.into_iter().filter(|(_, ok)| *ok).map(|(n, _)| n).collect();
    house.start();
    for n in &accepted {
        let again = house.deliver(IN, &all[*n]).await;
        assert_eq!(again.word(), "duplicate", "{n} was accepted: {again:?}");
    }
    for sent in &all {
        house.deliver(IN, sent).await;
    }
    house.quiet().await;
    println!("{} were accepted before the crash", accepted.len());
    let mut runs = house.lines("runs");
    runs.sort();
    runs.dedup(); // commands that were running when the node died ran once more
    assert_eq!((runs.len(), house.count("done")), (300, 300));
}

/// A change of one subject to `n`.
fn change(n: u64) -> Sent {
    Sent::github("push", &format!("d-{n}"), &format!("{{\"of\":\"x\",\"n\":{n}}}"))
}

#[tokio::test]
async fn an_event_that_a_receiver_still_works_on_when_the_node_dies_is_not_overtaken_by_its_group() {
    let receiver = Receiver::working().await;
    let config = format!(
        r#"
[source.numbers]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ of = "body.of", n = "body.n" }}
once   = {{ change = {{ of = ["of"], to = ["n"] }} }}
[[source.numbers.route]]
group   = ["of"]
lease   = "10s"
retry   = {{ attempts = 3, first = "1ms", longest = "1ms" }}
forward = {{ url = "{}", timeout = "10s" }}
"#,
        receiver.url
    );
    let mut house = House::new(&config);
    assert_eq!(house.deliver(IN, &change(1)).await.status, 202);
    until("the receiver to begin", || !receiver.calls().is_empty()).await;
    house.kill();
    house.start();
    assert_eq!(house.deliver(IN, &change(2)).await.status, 202);
    // A node that considered the lease over would start the next one within this time.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    receiver.let_go();
    house.quiet().await;
    let calls = receiver.calls();
    let of = |n: u64| format!("{{\"of\":\"x\",\"n\":{n}}}");
    for pair in calls.chunks(2) {
        let who = pair[0].strip_prefix("begin ");
        assert!(who.is_some() && who == pair[1].strip_prefix("end "), "two of one group at once: {calls:#?}");
    }
    assert_eq!(*calls.first().unwrap(), format!("begin {}", of(1)));
    assert_eq!(*calls.last().unwrap(), format!("end {}", of(2)), "the last call is not the newest event: {calls:#?}");
    assert_eq!(house.count("done"), 2);
    assert!(house.log().contains("took over running=0 leased=1 slots=0"), "{}", house.log());
}
