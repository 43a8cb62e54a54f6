//! Attempts, doubts, blocks and lives.

use crate::receiver::Receiver;
use crate::support::{House, until};
use crate::{IN, number, numbers};
use serde_json::json;

const SAYS: &str = "echo $HOOKONCE_EVENT $HOOKONCE_ATTEMPT >> runs";

#[tokio::test]
async fn under_hold_a_command_that_timed_out_is_left_to_an_operator() {
    let step = format!("{SAYS}; test -e go || sleep 60");
    let route = format!("in_doubt = \"hold\"\nrun = {{ steps = [\"{step}\"], timeout = \"5s\" }}");
    // A sender that waits for the end may repeat at once: neither id nor time prevents a re-arm.
    let house = House::new(&numbers("respond = \"done\"\nonce = { per = [\"delivery\", \"body\"] }", &route));
    let first = house.deliver(IN, &number("a", 1)).await;
    assert_eq!((first.status, &first.json()["cause"]), (504, &json!("in_doubt")), "{first:?}");
    for id in ["a", "b"] {
        let again = house.deliver(IN, &number(id, 1)).await;
        assert_eq!((again.status, &again.json()["cause"]), (504, &json!("in_doubt")), "{again:?}");
        assert_eq!((again.word(), again.event()), ("dead".into(), first.event()));
    }
    let id = first.event();
    assert_eq!(house.lines("runs"), [format!("{id} 1")]);
    crate::touch(&house, "go");
    let replayed = house.ask("POST", &format!("/api/events/{id}/replay")).await;
    assert_eq!((replayed.status, &replayed.json()["life"]), (200, &json!(2)), "{replayed:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), [format!("{id} 1"), format!("{id}.2 1")]);
    assert_eq!(house.count("done"), 1);
}

/// The commands that were started for one event, and its cause of death.
async fn timed_out(attempts: u32) -> (Vec<String>, Vec<String>) {
    let route = format!(
        "retry = {{ attempts = {attempts}, first = \"1ms\" }}\n\
         run = {{ steps = [\"echo run >> runs; sleep 60\"], timeout = \"4s\" }}"
    );
    let house = House::new(&numbers("", &route));
    house.deliver(IN, &number("a", 1)).await;
    house.quiet().await;
    assert_eq!(house.sql("select doubts from events"), ["0"], "a timeout is no doubt");
    let outcomes = house.sql("select distinct outcome from attempts");
    assert_eq!(outcomes, ["unknown"]);
    (house.lines("runs"), house.sql("select cause from events"))
}

#[tokio::test]
async fn a_command_over_its_timeout_is_run_as_often_as_attempts_say_and_ends_in_doubt() {
    let both = tokio::join!(timed_out(1), timed_out(2));
    for (attempts, (runs, cause)) in [(1, both.0), (2, both.1)] {
        assert_eq!(runs.len(), attempts, "one attempt is one run");
        assert_eq!(cause, ["in_doubt"], "it may have acted, so the cause is not `failed`");
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_is_called_as_often_as_attempts_say() {
    for attempts in [1_usize, 2] {
        let silent = Receiver::new(&[(200, "late")]).await;
        let route = format!(
            "retry = {{ attempts = {attempts}, first = \"1ms\" }}\n\
             forward = {{ url = \"{}\", timeout = \"3s\" }}",
            silent.url
        );
        let house = House::new(&numbers("", &route));
        house.deliver(IN, &number("a", 1)).await;
        house.quiet().await;
        assert_eq!(silent.calls().len(), attempts);
        assert_eq!(house.sql("select cause from events"), ["in_doubt"]);
    }
}

#[tokio::test]
async fn a_failing_command_is_tried_as_often_as_the_config_says() {
    let route = format!("retry = {{ attempts = 3, first = \"1ms\" }}\nrun = {{ steps = [\"{SAYS}; exit 1\"] }}");
    let house = House::new(&numbers("", &route));
    let id = house.deliver(IN, &number("a", 1)).await.event();
    house.quiet().await;
    assert_eq!(house.lines("runs"), [1, 2, 3].map(|attempt| format!("{id} {attempt}")));
    assert_eq!(house.sql("select cause from events"), ["failed"]);
}

#[tokio::test]
async fn a_block_that_failed_is_retried_alone() {
    let route = "retry = { attempts = 3, first = \"1ms\" }\n\
        [[source.numbers.route.run]]\nsteps = [\"echo one >> runs\"]\n\
        [[source.numbers.route.run]]\nsteps = [\"echo two >> runs\", \"test $HOOKONCE_ATTEMPT = 3\", \"echo end >> runs\"]\n\
        [[source.numbers.route.run]]\nsteps = [\"echo three >> runs\"]\n";
    let house = House::new(&numbers("", route));
    house.deliver(IN, &number("a", 1)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["one", "two", "three", "two", "two", "end"]);
    assert_eq!(house.count("done"), 1);
    // A replay is another life: all blocks run again.
    house.ask("POST", "/api/events/a/replay").await;
    until("the second life", || house.lines("runs").len() > 9).await;
    assert_eq!(house.lines("runs")[6..9], ["one", "two", "three"]);
}

#[tokio::test]
async fn a_command_gets_the_body_the_fields_and_no_secret() {
    let step = "cat >> seen; env >> seen";
    let house = House::new(&numbers("", &format!("env = {{ OWN = \"yes\" }}\nrun = {{ steps = [\"{step}\"] }}")));
    let id = house.deliver(IN, &number("a", 41)).await.event();
    house.quiet().await;
    let seen = house.lines("seen").join("\n");
    assert!(seen.starts_with("{\"n\":41}"), "{seen}");
    for line in ["HOOKONCE_FIELD_N=41", "HOOKONCE_ATTEMPT=1", "OWN=yes", &format!("HOOKONCE_EVENT={id}")] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    assert!(!seen.contains(crate::support::SECRET) && !seen.contains("SECRET="), "{seen}");
}

#[tokio::test]
async fn redelivery_can_be_switched_off() {
    let route = format!("redelivery = \"ignore\"\nrun = {{ steps = [\"{SAYS}; exit 1\"] }}");
    let house = House::new(&numbers("respond = \"done\"", &route));
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 502);
    let again = house.deliver(IN, &number("a", 1)).await;
    assert_eq!((again.status, &again.json()["cause"]), (502, &json!("failed")), "{again:?}");
    assert_eq!(house.lines("runs").len(), 1);
}

#[tokio::test]
async fn each_of_several_receivers_is_called_once_and_retried_alone() {
    let one = Receiver::open(&[(200, "fine")]).await;
    let two = Receiver::open(&[(500, "not yet"), (200, "fine")]).await;
    let urls = format!("[{{ url = \"{}\" }}, {{ url = \"{}\" }}]", one.url, two.url);
    let house = House::new(&numbers("", &format!("retry = {{ attempts = 3, first = \"1ms\" }}\nforward = {urls}")));
    let new = house.deliver(IN, &number("a", 1)).await;
    let events = new.json()["events"].as_array().unwrap().len();
    assert_eq!((new.status, &*new.word(), events), (202, "accepted", 2), "{new:?}");
    house.quiet().await;
    let again = house.deliver(IN, &number("a", 1)).await;
    assert_eq!((again.status, &*again.word()), (200, "duplicate"), "{again:?}");
    assert_eq!((one.calls().len(), two.calls().len(), house.count("done")), (1, 2, 2));
}
