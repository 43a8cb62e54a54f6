//! Events whose route differs from that of a repeat, or no longer exists.

use super::support::{House, Sent, until};
use super::{IN, number, numbers};

/// Two routes that are chosen by a field, and an id that the sender signs.
const TWO_WAYS: &str = r#"
[source.s]
path     = "/in"
verify   = { scheme = "bearer", secret = { env = "SECRET" } }
delivery = "body.id"
fields   = { env = "body.env" }
[[source.s.route]]
name = "staging"
when = 'env == "staging"'
run  = { steps = ["echo staging $HOOKONCE_FIELD_ENV $(cat) >> runs; exit 1"] }
[[source.s.route]]
name = "prod"
run  = { steps = ["echo prod $HOOKONCE_FIELD_ENV $(cat) >> runs"] }
"#;

fn bearer(body: &str) -> Sent {
    let headers = vec![("authorization".into(), format!("Bearer {}", super::support::SECRET))];
    Sent { headers, body: body.into() }
}

#[tokio::test]
async fn a_repeat_on_another_route_does_not_replace_the_body() {
    let house = House::new(TWO_WAYS);
    let staging = r#"{"id":"1","env":"staging"}"#;
    let first = house.deliver(IN, &bearer(staging)).await.event();
    house.quiet().await;
    // Once it has been dead for five seconds, the same id re-arms it.
    let mut answer = house.deliver(IN, &bearer(r#"{"id":"1","env":"prod"}"#)).await;
    while answer.word() == "duplicate" {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        answer = house.deliver(IN, &bearer(r#"{"id":"1","env":"prod"}"#)).await;
    }
    assert_eq!((answer.word().as_str(), answer.event()), ("accepted", first));
    until("another run", || house.lines("runs").len() == 2).await;
    let ran = format!("staging staging {staging}");
    assert_eq!(house.lines("runs"), [ran.clone(), ran]);
}

#[tokio::test]
async fn an_event_whose_action_was_removed_is_recorded_and_releases_its_slot() {
    let retry = "retry = { attempts = 9, first = \"1s\", longest = \"1s\" }\ngroup = \"g\"";
    let mut house = House::new(&numbers("", &format!("run = {{ steps = [\"exit 1\"] }}\n{retry}")));
    house.deliver(IN, &number("a", 1)).await;
    let waits = "select count(*) from events where state = 'waiting' and attempt > 0";
    until("a failed attempt", || house.sql(waits) == ["1"]).await;
    house.stop();
    house.configure(&numbers("", "group = \"g\""));
    house.start();
    house.quiet().await;
    assert_eq!(house.sql("select state || ' ' || cause from events"), ["done recorded"]);
    assert_eq!(house.sql("select count(*) from slots"), ["0"]);
}

#[tokio::test]
async fn a_recorded_event_that_is_replayed_is_recorded_again() {
    let house = House::new(&numbers("", ""));
    let id = house.deliver(IN, &number("a", 1)).await.event();
    assert_eq!(house.ask("POST", &format!("/api/events/{id}/replay")).await.status, 200);
    until("its second end", || house.sql("select state || life from events") == ["done2"]).await;
}

#[tokio::test]
async fn a_renamed_source_that_keeps_its_scope_keeps_its_events_as_long_as_configured() {
    let keys = "once = { keep = \"365d\" }";
    let mut house = House::new(&numbers(keys, ""));
    house.deliver(IN, &number("a", 1)).await;
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    let forty_days = 40_i64 * 86_400 * 1_000_000;
    db.execute("update events set ended_at = ended_at - ?1, keep_from = keep_from - ?1", [forty_days]).unwrap();
    drop(db);
    let renamed = numbers(&format!("{keys}\nscope = \"numbers\""), "").replace("source.numbers", "source.renamed");
    house.configure(&renamed);
    house.start();
    assert_eq!(house.ask("POST", "/api/forget").await.json()["forgotten"], 0);
    assert_eq!(house.deliver(IN, &number("a", 1)).await.word(), "duplicate");
}

#[tokio::test]
async fn large_bodies_of_running_commands_do_not_use_up_the_body_budget() {
    let slow =
        numbers("body_max = \"25MB\"", "at_once = 3\nrun = { steps = [\"until test -e go; do sleep 0.01; done\"] }");
    let house = House::new(&slow);
    for n in 0..3 {
        let body = format!("{{\"n\":{n},\"x\":\"{}\"}}", "x".repeat(21 << 20));
        assert_eq!(house.deliver(IN, &Sent::github("push", &format!("large-{n}"), &body)).await.status, 202);
    }
    until("all of them run", || house.count("running") == 3).await;
    let body = format!("{{\"n\":9,\"x\":\"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(house.deliver(IN, &Sent::github("push", "small", &body)).await.status, 202);
    super::touch(&house, "go");
    house.quiet().await;
}
