//! Many copies of a delivery at once.

use crate::receiver::Receiver;
use crate::support::{House, Sent, until};
use crate::{GHCR, IN, at_once, ghcr, number, numbers};

const COPIES: u32 = 200;

#[tokio::test]
async fn two_hundred_copies_at_once_are_one_run_twenty_times() {
    let house = House::new(&ghcr("run = { steps = [\"echo $HOOKONCE_FIELD_VERSION_ID >> runs\"] }"));
    for round in 1..=20 {
        // A third are the delivery itself, the others have ids of their own.
        let copy =
            |i: u32| Sent::package(&format!("{round}-{}", if i.is_multiple_of(3) { 0 } else { i }), "latest", round, 1);
        let copies: Vec<_> = (0..COPIES).map(copy).collect();
        let answers = at_once(&house, GHCR, &copies).await;
        let new = answers.iter().filter(|answer| answer.word() == "accepted").count();
        assert_eq!(new, 1, "round {round}");
        for answer in &answers {
            assert!((200..300).contains(&answer.status), "round {round}: {answer:?}");
            assert_eq!(answer.event(), answers[0].event(), "round {round}");
        }
    }
    house.quiet().await;
    let rounds: Vec<_> = (1..=20).map(|round| round.to_string()).collect();
    assert_eq!(house.lines("runs"), rounds);
    assert_eq!(house.count("done"), 20);
}

#[tokio::test]
async fn two_hundred_copies_that_wait_for_a_slow_receiver_get_its_one_response() {
    let receiver = Receiver::new(&[(201, "stored as 7")]).await;
    let keys = "respond = \"done\"\nrespond_within = \"25s\"";
    let house = House::new(&numbers(keys, &format!("forward = {{ url = \"{}\", timeout = \"25s\" }}", receiver.url)));
    let copies = vec![number("one", 1); COPIES as usize];
    let duplicates = || house.sql("select coalesce(sum(count), 0) from duplicates")[0] == "199";
    let (answers, ()) = tokio::join!(at_once(&house, IN, &copies), async {
        until("all copies to wait", duplicates).await;
        receiver.let_go();
    });
    assert_eq!(receiver.calls().len(), 1);
    for answer in &answers {
        assert_eq!((answer.status, &*answer.body), (201, &b"stored as 7"[..]), "{answer:?}");
        assert_eq!(answer.header("hookonce-event"), answers[0].header("hookonce-event"));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
    let again = answers.iter().filter(|answer| answer.header("idempotent-replayed") == Some("true")).count();
    assert_eq!(again, 199);
}

#[tokio::test]
async fn concurrent_repeats_of_a_failure_get_one_more_attempt_and_its_response() {
    let receiver = Receiver::open(&[(503, "later"), (200, "fine"), (500, "once too often")]).await;
    let house = House::new(&numbers("respond = \"done\"", &format!("forward = {{ url = \"{}\" }}", receiver.url)));
    assert_eq!(house.deliver(IN, &number("one", 1)).await.status, 503);
    for answer in at_once(&house, IN, &vec![number("one", 1); 50]).await {
        assert_eq!((answer.status, &*answer.body), (200, &b"fine"[..]), "{answer:?}");
    }
    assert_eq!(receiver.calls().len(), 2);
}
