//! Hand-written histories that random ones would rarely produce: no faults, and the effects are counted.

use crate::plan::{Changes, Grouped, Per, Plan, seconds};
use crate::rng::Rng;
use crate::world::World;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::limits;
use hookonce::decide::source::{InDoubtPolicy, Keep, RedeliveryPolicy};

fn plan(changes: Changes, grouped: Grouped) -> Plan {
    Plan {
        changes,
        signed: false,
        per: vec![Per::Delivery, Per::Body],
        grouped,
        redelivery: RedeliveryPolicy::Retry { same_after: limits::REDELIVERY_AFTER, other_after: seconds(60) },
        attempts: 1,
        waits: None,
        in_doubt: InDoubtPolicy::Retry,
        keep: Keep::Forever,
        fails: 0,
        rejects: 0,
        unknown: 0,
        timeouts: 0,
        faults: 0,
        blows: 0,
        route_stays_gone: false,
        alone: false,
        checks: false,
        action: ActionKind::Run,
        subjects: 1,
        values: 2,
        news: 100,
    }
}

fn world(plan: Plan) -> World {
    let mut world = World::new(plan, Rng::new(7), None, false);
    world.rough = false;
    world
}

/// Sends these, one after another or all before anything is done, and counts the effects.
fn acts(world: &mut World, sent: &[usize], queued: bool) -> u64 {
    for one in sent {
        world.receive(0, *one).expect("no law is broken");
        if queued {
            world.work(0, world.nodes[0].tasks.len() - 1).expect("no law is broken");
        } else {
            world.finish().expect("no law is broken");
        }
    }
    world.finish().expect("no law is broken");
    world.oracle.tally.effects
}

#[test]
fn a_rollback_acts_three_times_unless_it_is_a_repeat_of_the_first_bytes() {
    for changes in [Changes::Unordered, Changes::Ordered] {
        for grouped in [Grouped::BySubject, Grouped::Together] {
            for queued in [false, true] {
                for (differs, expected) in [(true, 3), (false, 2)] {
                    let mut world = world(plan(changes, grouped));
                    let order = |n| (changes == Changes::Ordered).then_some(n);
                    let a = world.sender.make(1, 0, 0, order(1), 1);
                    let b = world.sender.make(2, 0, 1, order(2), 2);
                    let again = if differs { (order(3), 3) } else { (order(1), 1) };
                    let third = world.sender.make(3, 0, 0, again.0, again.1);
                    let acts = acts(&mut world, &[a, b, third], queued);
                    assert_eq!(acts, expected, "{changes:?} {grouped:?} queued {queued} differs {differs}");
                }
            }
        }
    }
}

#[test]
fn a_burst_of_copies_is_one_attempt_even_when_it_fails() {
    let mut world = world(Plan { fails: 100, ..plan(Changes::Ordered, Grouped::BySubject) });
    let siblings: Vec<_> = (1..=5).map(|n| world.sender.make(n, 0, 0, Some(7), n)).collect();
    acts(&mut world, &siblings, true);
    for one in &siblings {
        world.receive(1, *one).expect("no law is broken");
        world.work(1, 0).expect("no law is broken");
    }
    assert_eq!((world.oracle.tally.events, world.oracle.tally.attempts), (1, 1));
    world.pass(seconds(61)).expect("no law is broken");
    let late = world.sender.make(9, 0, 0, Some(7), 9);
    acts(&mut world, &[late], false);
    assert_eq!((world.oracle.tally.events, world.oracle.tally.attempts), (1, 2));
}

#[test]
fn a_forged_id_does_not_suppress_the_real_delivery() {
    let mut world = world(plan(Changes::No, Grouped::No));
    let captured = world.sender.make(1, 0, 0, None, 1);
    let real = world.sender.make(2, 1, 1, None, 2);
    let forged = world.sender.forge(captured, 2);
    assert_eq!(acts(&mut world, &[captured, forged, real], false), 2);
    assert_eq!(world.oracle.tally.duplicates, 1);
}

#[test]
fn a_burst_of_redeliveries_publishes_one_more_message() {
    let again = RedeliveryPolicy::Again {
        same_after: limits::REDELIVERY_AFTER,
        other_after: seconds(60),
        published_after: seconds(60),
    };
    for changes in [Changes::No, Changes::Ordered] {
        let mut world = world(Plan { redelivery: again, ..plan(changes, Grouped::BySubject) });
        let sent = world.sender.make(1, 0, 0, Some(7), 1);
        assert_eq!(acts(&mut world, &[sent; 5], true), 1, "too soon: each of them is a duplicate");
        for messages in 2..=3 {
            world.pass(seconds(61)).expect("no law is broken");
            assert_eq!(acts(&mut world, &[sent; 20], true), messages, "{changes:?}");
        }
        assert_eq!((world.oracle.tally.events, world.oracle.tally.replays), (1, 0));
    }
}
