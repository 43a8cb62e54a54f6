//! Roll-backs: an unhealthy deploy is followed by the last good one, unless another event of its subject comes next.

use super::deploys::{only_register, resolve, resolved, settle, step_on};
use super::{DAY, SECOND, StoreUnderTest, dead_of, delivered, making, parked, rejected, route, start, superseded_by};
use crate::decide::event::{DeathCause, EventStep, Origin, Outcome, SucceededBlocks};
use crate::decide::ledger::SubjectRegister;
use crate::decide::retry::Jitter;
use crate::decide::source::{Keep, OnUnhealthy, Retention, Route};
use crate::store::RetentionPolicies;
use std::sync::Arc;

fn unhealthy() -> Outcome {
    Outcome::Unhealthy { why: "no answer".into(), receipt: None }
}

pub(super) async fn an_unhealthy_deploy_is_followed_by_the_last_good_one_before_anything_else_of_its_group(
    fresh: StoreUnderTest,
) {
    let rolls_back = Route { on_unhealthy: OnUnhealthy::Rollback, ..route() };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app").fields(&format!("{{\"v\":{to}}}"));
    let deploy = EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND };
    let good = fresh.claimed(new("1").carrying("body 1")).await;
    fresh.start(good.id).await;
    fresh.step(good.id, resolve("sha256:1")).await;
    fresh.settle(good.id, delivered()).await;

    let bad = fresh.claimed(new("2")).await;
    let other = fresh.claimed(making().delivery("other").group("app")).await.id;
    fresh.start(bad.id).await;
    let deployed = fresh.step(bad.id, deploy).await;
    assert!(deployed.blocks.acted() && deployed.state.word() == "running", "{deployed:?}");
    let (_, register) = only_register(&fresh).await;
    let of = |register: &SubjectRegister| [register.deployed(), register.good()].map(|one| one.map(|one| one.event));
    assert_eq!(of(&register), [Some(bad.id), Some(good.id)], "it is deployed, and not yet good");

    let dead = step_on(&fresh, bad.id, settle(unhealthy()), &rolls_back).await;
    assert_eq!(dead_of(&dead), Some(DeathCause::Unhealthy));
    let due = fresh.due().await;
    assert_eq!(due.len(), 1, "the other event of its group waits for the roll-back");
    let back = fresh.get(due[0]).await;
    assert_eq!(back.origin, Some(Origin::Rollback { from: bad.id, to: good.id }));
    assert_eq!((back.change, back.resolved.as_deref(), &back.fields), (None, Some("sha256:1"), &good.fields));
    assert_eq!((back.body_digest, back.immutable_digest()), (good.body_digest, back.digest));
    assert!(parked(&fresh.get(other).await));
    assert_eq!(fresh.duplicate(making().delivery("3").change("app", "2", None)).await.0, bad.id);

    fresh.start(back.id).await;
    step_on(&fresh, back.id, settle(unhealthy()), &rolls_back).await;
    assert_eq!(fresh.due().await, [other], "a roll-back is not followed by another");
    assert_eq!(of(&only_register(&fresh).await.1), [Some(bad.id), Some(good.id)], "and touches no register");
}

pub(super) async fn a_newer_event_that_would_deploy_the_unhealthy_again_is_followed_by_the_last_good_one(
    fresh: StoreUnderTest,
) {
    let rolls_back = Route { on_unhealthy: OnUnhealthy::Rollback, ..route() };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let good = fresh.claimed(new("1")).await.id;
    fresh.start(good).await;
    fresh.step(good, resolve("sha256:1")).await;
    fresh.settle(good, delivered()).await;
    let bad = fresh.claimed(new("2")).await.id;
    fresh.start(bad).await;
    fresh.step(bad, resolve("sha256:2")).await;
    fresh.step(bad, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND }).await;
    let newer = fresh.claimed(new("3")).await.id;
    step_on(&fresh, bad, settle(unhealthy()), &rolls_back).await;
    assert_eq!(fresh.due().await, [newer], "it comes next: it may deploy something else");
    let ended = resolved(&fresh, newer, "sha256:2", &rolls_back).await;
    assert_eq!(superseded_by(&ended), Some(bad));
    let due = fresh.due().await;
    assert_eq!(due.len(), 1, "it does not, so the bad one is rolled back");
    assert_eq!(fresh.get(due[0]).await.origin, Some(Origin::Rollback { from: bad, to: good }));
    fresh.attempt(due[0], delivered()).await;
    let another = fresh.claimed(new("4")).await.id;
    assert_eq!(superseded_by(&resolved(&fresh, another, "sha256:2", &rolls_back).await), Some(bad));
    assert_eq!(fresh.due().await, [], "once");
}

pub(super) async fn if_the_event_after_an_unhealthy_one_dies_the_last_good_one_follows(fresh: StoreUnderTest) {
    let rolls_back = Route { on_unhealthy: OnUnhealthy::Rollback, ..route() };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let good = fresh.claimed(new("1")).await.id;
    fresh.attempt(good, delivered()).await;
    let bad = fresh.claimed(new("2")).await.id;
    fresh.start(bad).await;
    step_on(&fresh, bad, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND }, &rolls_back)
        .await;
    let next = fresh.claimed(new("3")).await.id;
    step_on(&fresh, bad, settle(unhealthy()), &rolls_back).await;
    assert_eq!(fresh.due().await, [next], "it comes next");
    fresh.start(next).await;
    let blocks = SucceededBlocks::default();
    step_on(&fresh, next, EventStep::Settle { outcome: rejected(), blocks, jitter: Jitter(0) }, &rolls_back).await;
    let [back] = fresh.due().await[..] else { panic!("one event is due") };
    assert_eq!(fresh.get(back).await.origin, Some(Origin::Rollback { from: bad, to: good }));
}

pub(super) async fn if_the_event_after_an_unhealthy_one_fails_in_its_action_the_last_good_one_follows(
    fresh: StoreUnderTest,
) {
    let kept = Retention { keys: Keep::For(DAY), body: DAY };
    let rolls_back = Route { on_unhealthy: OnUnhealthy::Rollback, ..route() };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app").kept(kept);
    let fails = || EventStep::Settle { outcome: rejected(), blocks: SucceededBlocks::default(), jitter: Jitter(0) };
    let good = fresh.claimed(new("1")).await.id;
    resolved(&fresh, good, "sha256:1", &rolls_back).await;
    fresh.settle(good, delivered()).await;
    let bad = fresh.claimed(new("2")).await.id;
    resolved(&fresh, bad, "sha256:2", &rolls_back).await;
    step_on(&fresh, bad, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND }, &rolls_back)
        .await;
    let next = fresh.claimed(new("3")).await.id;
    step_on(&fresh, bad, settle(unhealthy()), &rolls_back).await;
    assert_eq!(resolved(&fresh, next, "sha256:3", &rolls_back).await.state.word(), "running");
    assert_eq!(only_register(&fresh).await.1.deployed(), None, "it has begun to act");
    let newest = fresh.claimed(new("4")).await.id;
    assert_eq!(superseded_by(&step_on(&fresh, next, fails(), &rolls_back).await), Some(newest));
    assert_eq!(fresh.due().await, [newest], "it comes next: it may deploy something else");
    resolved(&fresh, newest, "sha256:4", &rolls_back).await;
    step_on(&fresh, newest, fails(), &rolls_back).await;
    let [back] = fresh.due().await[..] else { panic!("one event is due") };
    let rollback = fresh.get(back).await;
    assert_eq!(rollback.origin, Some(Origin::Rollback { from: bad, to: good }));
    assert_eq!(rollback.resolved.as_deref(), Some("sha256:1"));
    assert_eq!(fresh.attempt(back, delivered()).await.state.word(), "done", "nothing has outdated it");

    let another = fresh.claimed(new("5")).await.id;
    resolved(&fresh, another, "sha256:5", &rolls_back).await;
    step_on(&fresh, another, fails(), &rolls_back).await;
    assert_eq!(fresh.due().await, [], "the bad one is rolled back already");
    let mut keeps = RetentionPolicies::default();
    keeps.sources.insert("source".into(), kept);
    let keeps = Arc::new(keeps);
    fresh.wait(3 * DAY);
    fresh.store.forget(keeps.clone(), 10).await.expect("the store forgets");
    assert!(fresh.store.get(bad).await.expect("the store reads").is_some(), "what may still run is kept");
    let last = fresh.claimed(new("6")).await.id;
    resolved(&fresh, last, "sha256:6", &rolls_back).await;
    fresh.settle(last, delivered()).await;
    fresh.wait(3 * DAY);
    fresh.store.forget(keeps, 10).await.expect("the store forgets");
    assert!(fresh.store.get(bad).await.expect("the store reads").is_none(), "and forgotten after the next deploy");
}

pub(super) async fn a_roll_back_that_waited_while_something_else_became_good_does_not_run(fresh: StoreUnderTest) {
    let rolls_back = Route { on_unhealthy: OnUnhealthy::Rollback, ..route() };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let good = fresh.claimed(new("1")).await.id;
    fresh.attempt(good, delivered()).await;
    let bad = fresh.claimed(new("2")).await.id;
    fresh.start(bad).await;
    step_on(&fresh, bad, EventStep::Deploy { blocks: SucceededBlocks::default(), lasts: 30 * SECOND }, &rolls_back)
        .await;
    step_on(&fresh, bad, settle(unhealthy()), &rolls_back).await;
    let [back] = fresh.due().await[..] else { panic!("one event is due") };
    fresh.step(back, EventStep::Suspend { lasts: SECOND }).await; // its route is gone for a while
    let newer = fresh.claimed(new("3")).await.id;
    fresh.attempt(newer, delivered()).await;
    fresh.step(back, EventStep::Unsuspend).await;
    let started = step_on(&fresh, back, start(), &rolls_back).await;
    assert_eq!(superseded_by(&started), Some(newer));
    assert_eq!(fresh.due().await, [], "its slot is free again");
}

pub(super) async fn an_unhealthy_deploy_is_not_followed_by_another_if_there_is_none_or_a_newer_event_waits(
    fresh: StoreUnderTest,
) {
    let rolls_back = Route { on_unhealthy: OnUnhealthy::Rollback, ..route() };
    let new = |to: &str| making().delivery(to).change("app", to, None).group("app");
    let first = fresh.claimed(new("1")).await.id;
    fresh.start(first).await;
    step_on(&fresh, first, settle(unhealthy()), &rolls_back).await;
    assert_eq!(fresh.due().await, []);
    let good = fresh.claimed(new("2")).await.id;
    fresh.attempt(good, delivered()).await;
    let bad = fresh.claimed(new("3")).await.id;
    fresh.start(bad).await;
    let newer = fresh.claimed(new("4")).await.id;
    let dead = step_on(&fresh, bad, settle(unhealthy()), &rolls_back).await;
    assert_eq!(dead_of(&dead), Some(DeathCause::Unhealthy));
    assert_eq!(fresh.due().await, [newer]);
}
