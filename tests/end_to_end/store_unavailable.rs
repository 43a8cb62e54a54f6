//! A store that does not respond: nothing is accepted, nothing is done, and afterwards all is as before.

use crate::support::House;
use crate::{IN, number, numbers};

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";

#[tokio::test]
async fn while_the_store_is_locked_new_deliveries_get_503_and_duplicates_are_answered_and_nothing_runs() {
    let house = House::new(&numbers("", RUN));
    let first = house.deliver(IN, &number("a", 1)).await;
    assert_eq!(first.status, 202);
    house.quiet().await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let (new, repeat) = (number("b", 2), number("a", 1));
    let (new, repeat) = tokio::join!(house.deliver(IN, &new), house.deliver(IN, &repeat));
    assert_eq!((new.status, &*new.word()), (503, "unavailable"), "{new:?}");
    assert_eq!((new.header("retry-after"), new.header("hookonce-event")), (Some("5"), None));
    // That it is done can be read, and was synced long ago.
    assert_eq!(
        (repeat.status, &*repeat.word(), &repeat.json()["state"]),
        (200, "duplicate", &"done".into()),
        "{repeat:?}"
    );
    assert_eq!((repeat.event(), house.lines("runs")), (first.event(), vec!["1".to_owned()]));
    other.execute_batch("rollback").unwrap();
    drop(other);
    let answer = house.deliver(IN, &number("b", 2)).await;
    assert_eq!((answer.status, &*answer.word()), (202, "accepted"), "{answer:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["1", "2"]);
}

#[tokio::test]
async fn a_command_that_ends_while_the_store_is_locked_is_settled_afterwards_and_not_run_again() {
    let step = "echo $HOOKONCE_FIELD_N >> runs; until test -e go; do sleep 0.01; done; echo end >> runs";
    let house = House::new(&numbers("", &format!("run = {{ steps = [\"{step}\"] }}")));
    house.deliver(IN, &number("a", 1)).await;
    crate::support::until("it to run", || house.lines("runs").len() == 1).await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    crate::touch(&house, "go");
    crate::support::until("it to end", || house.lines("runs").len() == 2).await;
    crate::support::until("a log line", || house.log().contains("locked")).await;
    other.execute_batch("rollback").unwrap();
    house.quiet().await;
    assert_eq!((house.lines("runs"), house.count("done")), (vec!["1".into(), "end".into()], 1));
}
