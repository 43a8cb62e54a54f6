//! Messages that can never become an event.

use super::StoreUnderTest;
use crate::decide::limits;
use crate::store::quarantine::{QuarantinedMessage, head};

/// A message that this source could not take.
fn one(fresh: &StoreUnderTest, source: &str, message: &str) -> QuarantinedMessage {
    QuarantinedMessage {
        source: source.into(),
        message: message.into(),
        subject: "github.push".into(),
        at: fresh.store.now(),
        why: "the envelope has no payload".into(),
        bytes: 7,
        head: head(b"no json"),
    }
}

pub(super) async fn each_source_lays_a_message_into_quarantine_once(fresh: StoreUnderTest) {
    let all = [("a", "bc"), ("b", "bc"), ("a", "d"), ("ab", "c")];
    let all = all.map(|(source, message)| one(&fresh, source, message));
    for laid in all.iter().chain(&all) {
        fresh.store.quarantine(laid.clone()).await.expect("the store takes it");
    }
    let mut lie = fresh.store.quarantined(10).await.expect("the store answers");
    lie.reverse();
    assert_eq!(lie, all);
}

pub(super) async fn a_message_lies_in_quarantine_once_and_the_oldest_make_way(fresh: StoreUnderTest) {
    let one = |n: usize| one(&fresh, "hooks", &format!("HOOKS:{n}"));
    assert_eq!(fresh.store.quarantined(10).await.expect("the store answers"), []);
    for n in [1, 1, 2, 1] {
        fresh.store.quarantine(one(n)).await.expect("the store takes it");
    }
    assert_eq!(fresh.store.quarantined(10).await.expect("the store answers"), [one(2), one(1)]);
    for n in 3..limits::QUARANTINE_MAX + 12 {
        fresh.store.quarantine(one(n)).await.expect("the store takes it");
    }
    let all = fresh.store.quarantined(2 * limits::QUARANTINE_MAX).await.expect("the store answers");
    let (first, last) = (all.first().map(|m| &*m.message), all.last().map(|m| &*m.message));
    assert_eq!(all.len(), limits::QUARANTINE_MAX);
    assert_eq!((first, last), (Some("HOOKS:1011"), Some("HOOKS:12")));
}
