//! A store that does not answer: nothing is accepted, nothing is done, and afterwards all is as before.

use crate::house::House;
use crate::{IN, number, numbers};

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";

#[tokio::test]
async fn while_the_store_is_locked_deliveries_are_sent_away_and_nothing_is_done() {
    let house = House::new(&numbers("", RUN));
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 202);
    house.quiet().await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let (new, repeat) = (number("b", 2), number("a", 1));
    let (new, repeat) = tokio::join!(house.deliver(IN, &new), house.deliver(IN, &repeat));
    for answer in [&new, &repeat] {
        assert_eq!((answer.status, &*answer.word()), (503, "unavailable"), "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert_eq!(answer.header("hookonce-event"), None);
    }
    assert_eq!(house.lines("runs"), ["1"]);
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
    crate::house::until("it to run", || house.lines("runs").len() == 1).await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    crate::touch(&house, "go");
    crate::house::until("it to end", || house.lines("runs").len() == 2).await;
    crate::house::until("a complaint", || house.log().contains("locked")).await;
    other.execute_batch("rollback").unwrap();
    house.quiet().await;
    assert_eq!((house.lines("runs"), house.count("done")), (vec!["1".into(), "end".into()], 1));
}
