//! What causes a catch-up: an outage of the store, and the schedule.

use crate::sender_api::{SenderApi, Style, now};
use crate::support::{House, until};
use crate::{GHCR, KIND, ended, id, push, runs, source, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_got_503_while_the_store_was_locked_is_asked_for_afterwards() {
    let api = SenderApi::start(Style::Github).await;
    let mut house = House::empty(&source(&api, ""));
    start(&mut house);
    api.send_to(&house.url(GHCR));
    until("the first catch-up", || ended(&house) == 1).await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let answer = house.deliver(GHCR, &push(1)).await;
    assert_eq!(answer.status, 503);
    api.missed(&id(1), KIND, now(), push(1));
    other.execute_batch("rollback").unwrap();
    until("the run", || !house.lines("runs").is_empty()).await;
    assert_eq!((api.asked(), runs(&house)), (vec![id(1)], vec![1]));
    until("its answer", || api.made_again() == [202]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_has_is_not_asked_for_although_its_response_was_lost() {
    let api = SenderApi::start(Style::Github).await;
    let mut house = House::empty(&source(&api, "every = \"100ms\""));
    start(&mut house);
    api.send_to(&house.url(GHCR));
    assert_eq!(house.deliver(GHCR, &push(1)).await.status, 202);
    api.missed(&id(1), KIND, now(), push(1));
    api.missed(&id(2), KIND, now(), push(2));
    until("the run of the other", || runs(&house).len() == 2).await;
    assert_eq!((api.asked(), runs(&house)), (vec![id(2)], vec![1, 2]));
    until("a log line", || house.log().contains("had=1")).await;
}
