//! A wrong clock forgets nothing: not in a claim, a lookup, a preview, or the sweep.

use super::{DAY, KEPT, MINUTE, SECOND, StoreUnderTest, delivered, making};
use crate::decide::claim::ClaimResult;
use crate::decide::time::Duration;
use crate::store::{DuplicateLookup, ForgetCounts, RetentionPolicies};
use std::sync::Arc;

const HOUR: Duration = Duration::from_hours(1);

impl StoreUnderTest {
    /// One done event, under `d1`.
    async fn done(&self) {
        let first = self.claimed(making().delivery("d1").carrying("body")).await.id;
        self.attempt(first, delivered()).await;
    }

    /// Sets the clock ahead, or back again.
    fn jump(&self, by: Duration) {
        self.set_clock(self.store.wall_time() + by);
    }

    fn jump_back(&self, by: Duration) {
        self.set_clock(self.store.wall_time() - by);
    }

    fn keeps() -> Arc<RetentionPolicies> {
        Arc::new(RetentionPolicies { sources: [("source".into(), KEPT)].into() })
    }

    async fn sweep(&self) -> ForgetCounts {
        self.store.forget(Self::keeps(), 100).await.expect("the store forgets")
    }

    /// The claim of `d1`, previewed and looked up.
    async fn foreseen(&self) -> ClaimResult {
        let new = making().delivery("d1").made(self.store.now());
        let told = self.store.find_duplicate(&new, DuplicateLookup::Standing).await.expect("the store reads");
        let claim = self.store.preview_claim(vec![new]).await.expect("the store reads").remove(0);
        assert!(told.is_none() || matches!(claim, ClaimResult::Duplicate { .. }), "{told:?} {claim:?}");
        claim
    }

    /// `d1` is still a duplicate, by every way of asking.
    async fn check_kept(&self, why: &str) {
        assert!(matches!(self.foreseen().await, ClaimResult::Duplicate { .. }), "previewed: {why}");
        assert_eq!(self.sweep().await, ForgetCounts::default(), "{why}");
        self.duplicate(making().delivery("d1")).await;
    }
}

pub(super) async fn a_clock_jump_forgets_nothing_before_it_has_lasted_ten_minutes(fresh: StoreUnderTest) {
    if !fresh.can_be_set() {
        return;
    }
    fresh.done().await;
    fresh.check_kept("before the jump").await;
    fresh.jump(31 * DAY);
    fresh.check_kept("at the jump").await;
    let waiting = fresh.store.expiry().waiting.expect("it waits");
    assert_eq!((waiting.jump, waiting.left), (31 * DAY, 10 * MINUTE));
    let would = fresh.store.would_forget(StoreUnderTest::keeps(), 100).await.expect("the store counts");
    assert_eq!(would, 1, "what would be deleted");
    fresh.wait(9 * MINUTE + 59 * SECOND);
    fresh.check_kept("just before it has lasted").await;
    fresh.wait(SECOND);
    assert_eq!(fresh.store.expiry().waiting, None);
    assert!(matches!(fresh.foreseen().await, ClaimResult::New { .. }));
    assert_eq!(fresh.sweep().await, ForgetCounts { events: 1, bodies: 1 });
    fresh.claimed(making().delivery("d1")).await;
}

pub(super) async fn a_clock_that_is_corrected_forgets_nothing_and_proves_nothing(fresh: StoreUnderTest) {
    if !fresh.can_be_set() {
        return;
    }
    fresh.done().await;
    fresh.jump(31 * DAY);
    fresh.wait(4 * SECOND);
    fresh.claimed(making().delivery("meanwhile").recorded()).await;
    fresh.jump_back(31 * DAY);
    fresh.check_kept("set right again").await;
    assert_eq!(fresh.store.expiry().waiting, None);
    fresh.wait(HOUR);
    fresh.jump(31 * DAY);
    fresh.check_kept("the same jump again").await;
    assert!(fresh.store.expiry().waiting.is_some(), "an event of that time proves nothing");
    fresh.jump_back(31 * DAY);
    fresh.wait(30 * DAY);
    assert!(matches!(fresh.foreseen().await, ClaimResult::New { .. }), "time that really passed counts");
    fresh.claimed(making().delivery("d1")).await;
}

pub(super) async fn an_operator_may_confirm_a_jump_and_that_is_dropped_when_the_clock_is_set_back(
    fresh: StoreUnderTest,
) {
    if !fresh.can_be_set() {
        return;
    }
    fresh.done().await;
    fresh.jump(31 * DAY);
    fresh.check_kept("before it is confirmed").await;
    fresh.store.confirm_time().await.expect("the store writes");
    assert_eq!(fresh.store.expiry().waiting, None);
    assert_eq!(fresh.sweep().await, ForgetCounts { events: 1, bodies: 1 });
    fresh.jump_back(31 * DAY);
    fresh.claimed(making().delivery("d1").recorded()).await;
    fresh.wait(SECOND);
    fresh.jump(100 * DAY);
    fresh.check_kept("another time was confirmed").await;
}
