//! The reason for an event's state, in one sentence for operators.

use super::{EventDetails, EventQuery};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState, QueueState};
use crate::decide::source::{Route, Source};
use crate::decide::time::{Timestamp, approximate_duration};
use crate::decide::transition::AttemptRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of waiting events checked for missing routes.
const WAITING_LOOKED_AT: usize = 500;

/// One sentence that begins with the name of the state.
pub fn status_text(story: &EventDetails, now: Timestamp) -> String {
    let event = &story.event;
    let why = match &event.state {
        EventState::Waiting { due } => waiting(story, *due, now),
        EventState::Running { until, .. } if *until <= now => {
            format!(
                "attempt {} lost its node {} ago; the next node to check decides",
                event.attempt,
                rough(now, *until)
            )
        }
        EventState::Running { until, .. } if event.is_called_off() => {
            let rest = rough(*until, now);
            format!(
                "an operator cancelled it; the node running attempt {} ends it, in {rest} at the latest",
                event.attempt
            )
        }
        EventState::Running { by, .. } if event.blocks.acted() => {
            format!("attempt {} has acted, and node {by} checks the health of what it deployed", event.attempt)
        }
        EventState::Running { by, .. } => format!("attempt {}, by node {by}", event.attempt),
        EventState::Done { how: DoneReason::Acted, .. } => match last(story) {
            Some(tried) => format!("attempt {} acted", tried.attempt),
            None => "it acted".into(),
        },
        EventState::Done { how: DoneReason::Recorded, .. } => "recorded; its route has no action".into(),
        EventState::Done { how: DoneReason::Superseded { by }, .. } => {
            // An attempt that found its digest deployed leaves no record.
            let ran = last(story).is_some_and(|tried| tried.attempt == event.attempt);
            if event.resolved.is_some() && *by < event.id && !ran {
                format!("superseded by {}, which had deployed the same digest", by.short())
            } else {
                format!("superseded by {}, which changed the same subject after it", by.short())
            }
        }
        EventState::Dead { cause, .. } => dead(story, *cause),
    };
    format!("{}: {why}{}{}", event.state.word(), tried_again(story), published_again(event, now))
}

/// How many attempts of this life may have acted and were followed by another one.
fn tried_again(story: &EventDetails) -> String {
    let Event { life, attempt, .. } = story.event;
    let in_doubt = |tried: &&AttemptRecord| tried.outcome == "unknown" && tried.life == life && tried.attempt < attempt;
    match story.attempts.iter().filter(in_doubt).count() {
        0 => String::new(),
        1 => "; 1 attempt in doubt was tried again".into(),
        count => format!("; {count} attempts in doubt were tried again"),
    }
}

/// A note about re-published messages, if there are any.
fn published_again(event: &Event, now: Timestamp) -> String {
    let Some(again) = event.published_again else { return String::new() };
    let message = event.idempotency_key();
    match event.state {
        EventState::Waiting { .. } | EventState::Running { .. } => {
            format!("; it will be published again, as message {message}")
        }
        EventState::Done { .. } => {
            let times = if again.times == 1 { "once".to_owned() } else { format!("{} times", again.times) };
            format!("; published again {times}, last {} ago as message {message}", rough(now, again.last_at))
        }
        EventState::Dead { .. } => {
            let ago = rough(now, again.last_at);
            format!("; it had been published before, and this was message {message}, {ago} ago")
        }
    }
}

/// Is the route of this event configured?
pub fn has_route(sources: &[Arc<Source>], event: &Event) -> bool {
    let source = sources.iter().find(|source| source.name == event.source);
    source.is_some_and(|source| {
        let tells = |route: &Route| route.notify.iter().any(|target| target.route == event.route);
        source.routes.iter().any(|route| route.name == event.route || tells(route))
    })
}

/// A query for the newest waiting events, as input of [`stranded`].
pub fn those_that_wait() -> EventQuery {
    EventQuery { state: Some("waiting".into()), limit: WAITING_LOOKED_AT, ..EventQuery::default() }
}

/// How many of these wait for each route that is not configured, in sentences for operators.
pub fn stranded(waiting: &[Event], sources: &[Arc<Source>]) -> Vec<String> {
    let mut gone: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for event in waiting.iter().filter(|event| !has_route(sources, event)) {
        *gone.entry((&event.source, &event.route)).or_default() += 1;
    }
    let told = |((source, route), count): ((&str, &str), usize)| {
        let waits = if count == 1 { "1 event waits".to_owned() } else { format!("{count} events wait") };
        format!(
            "{waits} for the route `{route}` of source `{source}`, which is not configured; put it back, or cancel them"
        )
    };
    gone.into_iter().map(told).collect()
}

fn waiting(story: &EventDetails, due: Option<Timestamp>, now: Timestamp) -> String {
    let event = &story.event;
    let next = event.attempt + 1;
    if event.queue_state == QueueState::Suspended {
        return format!("no route `{}` of source `{}` is configured now", event.route, event.source);
    }
    match (event.queue_state, due) {
        (QueueState::Debouncing, Some(due)) if due > now => {
            return format!(
                "for the end of a burst; it starts in {} unless a newer event replaces it",
                rough(due, now)
            );
        }
        (QueueState::OverBudget, Some(due)) if due > now => {
            return format!("its route's budget is used up; the next attempt may begin in {}", rough(due, now));
        }
        _ => {}
    }
    if let (true, Some(_)) = (event.blocks.acted(), due) {
        return "it has acted; the health of what it deployed is checked again".into();
    }
    match (due, story.behind, last(story)) {
        (None, Some(holder), _) => format!("its group is busy with {}", holder.short()),
        (None, None, _) => "for its turn in its group".into(),
        (Some(due), _, Some(tried)) if due > now => {
            format!("{}; attempt {next} is due in {}", attempt_text(tried), rough(due, now))
        }
        (Some(due), ..) if due > now => format!("attempt {next} is due in {}", rough(due, now)),
        (Some(_), ..) => format!("attempt {next} is due, and starts when a node has a free slot"),
    }
}

fn dead(story: &EventDetails, cause: DeathCause) -> String {
    let of_life = |tried: &&AttemptRecord| tried.life == story.event.life;
    let failed = story.attempts.iter().filter(of_life).filter(|tried| tried.outcome == "failed").count();
    let why = last(story).map(|tried| tried.why.as_str()).filter(|why| !why.is_empty());
    match (cause, why) {
        (DeathCause::Failed, Some(why)) if failed > 1 => {
            format!("it failed {failed} times, the last time because {why}")
        }
        (DeathCause::Failed, Some(why)) => format!("it failed because {why}"),
        (DeathCause::Failed, None) => "it failed and has no attempts left".into(),
        (DeathCause::Rejected, Some(why)) => format!("it was rejected because {why}"),
        (DeathCause::Rejected, None) => "it was rejected".into(),
        (DeathCause::InDoubt, Some(why)) => format!("it is unknown whether it acted: {why}"),
        (DeathCause::InDoubt, None) => "it is unknown whether it acted: its node was gone".into(),
        (DeathCause::Damaged, _) => "what is stored is not what was received".into(),
        (DeathCause::Cancelled, _) => "an operator cancelled it".into(),
        (DeathCause::Unhealthy, Some(why)) => format!("what it deployed is not healthy: {why}"),
        (DeathCause::Unhealthy, None) => "what it deployed is not healthy".into(),
        (DeathCause::OverBudget, _) => "its route had no budget left for it".into(),
    }
}

/// The last attempt of this life that ended.
fn last(story: &EventDetails) -> Option<&AttemptRecord> {
    let Event { life, .. } = story.event;
    story.attempts.iter().rev().find(|tried| tried.life == life)
}

fn attempt_text(tried: &AttemptRecord) -> String {
    let because = if tried.why.is_empty() { String::new() } else { format!(" because {}", tried.why) };
    match tried.outcome.as_str() {
        "unknown" => format!("attempt {} may have acted{because}", tried.attempt),
        word => format!("attempt {} {word}{because}", tried.attempt),
    }
}

fn rough(later: Timestamp, earlier: Timestamp) -> String {
    approximate_duration(later.since(earlier), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::id::{EventId, NodeId};
    use crate::decide::time::Duration;
    use crate::store::conformance::making;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn story(state: EventState, tried: &[(u32, &str, &str)]) -> EventDetails {
        let made = making().made(NOW).event;
        let attempts = tried.iter().enumerate().map(|(i, (life, outcome, why))| AttemptRecord {
            life: *life,
            attempt: u32::try_from(i).expect("a few") + 1,
            started_at: NOW,
            ended_at: NOW,
            outcome: (*outcome).into(),
            why: (*why).into(),
            output: Vec::new(),
        });
        let attempts: Vec<_> = attempts.collect();
        let attempt = u32::try_from(attempts.len()).expect("a few");
        EventDetails {
            event: Event { state, attempt, ..made },
            identities: Vec::new(),
            sightings: Vec::new(),
            duplicates: 0,
            attempts,
            receipt: None,
            has_body: true,
            behind: None,
        }
    }

    fn check(state: EventState, tried: &[(u32, &str, &str)], expected: &str) {
        assert_eq!(status_text(&story(state, tried), NOW), expected);
    }

    #[test]
    fn every_state_has_its_reason() {
        let dead = |cause| EventState::Dead { cause, at: NOW };
        let no = (1, "failed", "step 2 exited with 1");
        check(
            dead(DeathCause::Failed),
            &[no, no],
            "dead: it failed 2 times, the last time because step 2 exited with 1",
        );
        check(dead(DeathCause::Failed), &[(0, "failed", "old"), no], "dead: it failed because step 2 exited with 1");
        check(dead(DeathCause::Failed), &[], "dead: it failed and has no attempts left");
        check(dead(DeathCause::Rejected), &[(1, "rejected", "410")], "dead: it was rejected because 410");
        check(dead(DeathCause::Rejected), &[], "dead: it was rejected");
        check(
            dead(DeathCause::InDoubt),
            &[(1, "unknown", "it timed out")],
            "dead: it is unknown whether it acted: it timed out",
        );
        check(dead(DeathCause::InDoubt), &[], "dead: it is unknown whether it acted: its node was gone");
        check(dead(DeathCause::Damaged), &[], "dead: what is stored is not what was received");
        check(dead(DeathCause::Cancelled), &[], "dead: an operator cancelled it");
        let done = |how| EventState::Done { how, at: NOW };
        check(done(DoneReason::Acted), &[(1, "delivered", "")], "done: attempt 1 acted");
        check(done(DoneReason::Acted), &[], "done: it acted");
        check(done(DoneReason::Recorded), &[], "done: recorded; its route has no action");
        let by = EventId([0xab; 16]);
        let superseded = "done: superseded by abababab, which changed the same subject after it";
        check(done(DoneReason::Superseded { by }), &[], superseded);
        let by = NodeId("n1".into());
        let running = |until| EventState::Running { until, by: by.clone(), action: None };
        check(running(NOW + Duration::from_secs(9)), &[(1, "failed", "")], "running: attempt 1, by node n1");
        let late = "running: attempt 0 lost its node 3m ago; the next node to check decides";
        check(running(NOW - Duration::from_mins(3)), &[], late);
    }

    #[test]
    fn a_waiting_event_says_what_it_waits_for() {
        let due = |due| EventState::Waiting { due };
        let soon = Some(NOW + Duration::from_secs(5));
        check(due(soon), &[], "waiting: attempt 1 is due in 5s");
        let failed = "waiting: attempt 1 failed because no; attempt 2 is due in 5s";
        check(due(soon), &[(1, "failed", "no")], failed);
        check(due(soon), &[(1, "unknown", "")], "waiting: attempt 1 may have acted; attempt 2 is due in 5s");
        check(due(Some(NOW)), &[], "waiting: attempt 1 is due, and starts when a node has a free slot");
        check(due(None), &[], "waiting: for its turn in its group");
        let mut parked = story(due(None), &[]);
        parked.behind = Some(EventId([0xcd; 16]));
        assert_eq!(status_text(&parked, NOW), "waiting: its group is busy with cdcdcdcd");
        parked.event.queue_state = QueueState::Suspended;
        assert_eq!(status_text(&parked, NOW), "waiting: no route `1` of source `source` is configured now");
    }
}
