//! Reads: what is due, what an action needs, and what operators query.

use super::{MINUTE, SECOND, StoreUnderTest, anywhere, delivered, failed, making, rejected, route, start};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{ClaimResult, MatchedBy};
use crate::decide::event::{Event, EventState, EventStep, Outcome, Receipt, RetryOwner, SucceededBlocks};
use crate::decide::id::{EventId, NodeId};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::limits;
use crate::decide::retry::Jitter;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::transition::AttemptRecord;
use crate::store::inspect::{QuarantinedMessage, head};
use crate::store::{
    AdvanceResult, DueQuery, DuplicateLookup, DuplicateNote, DuplicateSighting, EventQuery, KnownDuplicate,
    SourceEventCounts, StoredValue,
};

pub(super) async fn due_events_come_oldest_first_with_the_time_of_the_next(fresh: StoreUnderTest) {
    assert_eq!(fresh.store.due(anywhere(), 10).await.expect("it reads"), crate::store::DueEvents::default());
    let mut events = Vec::new();
    for _ in 0..3 {
        events.push(fresh.claimed(making()).await.id);
        fresh.wait(SECOND);
    }
    let now = fresh.store.now();
    fresh.claimed(making().group("g")).await;
    fresh.claimed(making().group("g")).await; // parked: never due
    fresh.claimed(making().recorded()).await;
    let due = fresh.store.due(anywhere(), 10).await.expect("it reads");
    assert_eq!(due.events.len(), 4);
    assert_eq!(due.events.iter().take(3).map(|event| event.id).collect::<Vec<_>>(), events);
    assert_eq!(due.next, None);
    let due = fresh.store.due(anywhere(), 2).await.expect("it reads");
    assert_eq!((due.events.len(), due.next), (2, Some(now - SECOND)), "the next is one that did not fit");
    fresh.start(events[0]).await; // a lease of 30 s
    fresh.attempt(events[1], failed()).await; // again in a second
    let due = fresh.store.due(anywhere(), 10).await.expect("it reads");
    assert!(due.events.iter().all(|event| event.id != events[0] && event.id != events[1]));
    assert!(due.next.is_some_and(|at| at > now && at <= now + SECOND), "{:?}", due.next);
    fresh.wait(30 * SECOND);
    let due = fresh.due().await;
    let place = |id| due.iter().position(|due| *due == id).expect("it is due");
    assert!(place(events[2]) < place(events[1]) && place(events[1]) < place(events[0]));
}

pub(super) async fn one_receivers_events_do_not_hide_anothers(fresh: StoreUnderTest) {
    let mut events = Vec::new();
    for part in [0, 0, 0, 1, 2, 0, 7] {
        events.push(fresh.claimed(making().part(part)).await);
    }
    for (parts, expected) in [(0..=0, vec![0, 1, 2, 5]), (1..=1, vec![3]), (2..=u16::MAX, vec![4, 6]), (3..=6, vec![])]
    {
        let look = DueQuery::Receiver(events[0].source.clone(), events[0].route.clone(), parts.clone());
        let due = fresh.store.due(look, 9).await.expect("the store reads").events;
        let due: Vec<_> = due.iter().map(|event| event.id).collect();
        assert_eq!(due, expected.iter().map(|n: &usize| events[*n].id).collect::<Vec<_>>(), "{parts:?}");
    }
    let other = DueQuery::Receiver(events[0].source.clone(), "another".into(), 0..=u16::MAX);
    assert!(fresh.store.due(other, 9).await.expect("the store reads").events.is_empty());
}

pub(super) async fn transient_headers_are_removed_when_the_event_ends(fresh: StoreUnderTest) {
    let kept = |fresh: &StoreUnderTest, id| {
        let store = fresh.store.clone();
        async move {
            match store.payload(id).await.expect("the store reads") {
                StoredValue::Whole(payload) => {
                    (payload.transient_header_names().count(), payload.headers.len(), payload.body.len())
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let body = "{\"n\":1}".repeat(2_000);
    let made = |value: &str, change: &str| {
        let made = making().carrying(body.clone()).passing("x-token", value).passing("x-token", value);
        made.change("app", change, None)
    };
    let whole = (2, 4, body.len());
    let after = (0, 2, body.len());
    // Delivered, after a retry.
    let one = fresh.claimed(made("short", "A")).await.id;
    assert_eq!(kept(&fresh, one).await, whole);
    fresh.attempt(one, failed()).await;
    assert_eq!(kept(&fresh, one).await, whole, "it will be retried");
    fresh.wait(MINUTE);
    fresh.attempt(one, delivered()).await;
    assert_eq!(kept(&fresh, one).await, after);
    // Cancelled by an operator; longer than a page.
    let two = fresh.claimed(made(&"long".repeat(2_000), "B")).await.id;
    fresh.step(two, EventStep::Cancel).await;
    assert_eq!(kept(&fresh, two).await, after);
    // Superseded by the claim that replaces it.
    let three = fresh.claimed(made("short", "C")).await.id;
    fresh.attempt(three, failed()).await;
    let four = fresh.claimed(made("short", "D")).await.id;
    assert_eq!((kept(&fresh, three).await, kept(&fresh, four).await), (after, whole));
}

pub(super) async fn payload_receipt_and_attempts_survive_a_round_trip(fresh: StoreUnderTest) {
    let made = making().delivery("d1").body("the \0 body").named("n1");
    let event = fresh.claimed(made.clone()).await.id;
    assert_eq!(fresh.store.payload(event).await.expect("it reads"), StoredValue::Whole(made.payload().clone()));
    assert_eq!(fresh.store.receipt(event).await.expect("it reads"), None);
    let mut told = Vec::new();
    for (status, output) in [(500, ""), (204, "two lines\nof \u{fe} output")] {
        fresh.wait(SECOND);
        let running = fresh.start(event).await;
        let headers = vec![("location".into(), "/\"1\"".into())];
        let receipt = Receipt { status, headers, body: vec![0, 255, b'"'], truncated: status == 500 };
        let outcome = match status {
            204 => Outcome::Delivered(Some(receipt.clone())),
            _ => Outcome::Failed { why: "500".into(), retry_after: None, receipt: Some(receipt.clone()) },
        };
        let tried = AttemptRecord {
            life: running.life,
            attempt: running.attempt,
            started_at: fresh.store.now(),
            ended_at: fresh.store.now() + SECOND,
            outcome: outcome.word().into(),
            why: outcome.why().into(),
            output: output.into(),
        };
        let step = EventStep::Settle { outcome, blocks: SucceededBlocks(1 << 63 | 1), jitter: Jitter(0) };
        let mut change = running.transition(step, &route(), fresh.store.now()).expect("it runs");
        change.attempt = Some(tried.clone());
        told.push(tried);
        fresh.store.advance(vec![change]).await.expect("it writes");
        assert_eq!(fresh.store.receipt(event).await.expect("it reads"), Some(receipt));
        assert_eq!(fresh.get(event).await.blocks, SucceededBlocks(1 << 63 | 1));
    }
    let story = fresh.store.details(event).await.expect("it reads").expect("it is there");
    assert_eq!(story.event, fresh.get(event).await);
    assert_eq!(story.attempts, told);
    assert_eq!(story.identities, [MatchedBy::Delivery, MatchedBy::Body, MatchedBy::Fields("hash".into())]);
    assert!(story.has_body && story.receipt.is_some_and(|receipt| receipt.status == 204));
    assert_eq!(fresh.store.details(making().id()).await.expect("it reads"), None);
}

pub(super) async fn an_attempt_without_a_response_removes_the_earlier_one(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1")).await.id;
    let answer = Receipt { status: 500, headers: Vec::new(), body: b"no".to_vec(), truncated: false };
    for receipt in [Some(answer), None] {
        fresh.wait(SECOND);
        let running = fresh.start(event).await;
        let outcome = Outcome::Failed { why: "no".into(), retry_after: None, receipt: receipt.clone() };
        let step = EventStep::Settle { outcome, blocks: SucceededBlocks::default(), jitter: Jitter(0) };
        let change = running.transition(step, &route(), fresh.store.now()).expect("it runs");
        fresh.store.advance(vec![change]).await.expect("it writes");
        assert_eq!(fresh.store.receipt(event).await.expect("it reads"), receipt);
    }
}

pub(super) async fn the_retrier_is_stored_and_the_running_attempt_continues(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1")).await.id;
    let running = fresh.start(event).await;
    assert_eq!(running.retrier, RetryOwner::Sender);
    let accepted = fresh.step(event, EventStep::Accept).await;
    assert_eq!((accepted.retrier, accepted.state.word()), (RetryOwner::Node, "running"));
    assert_eq!(fresh.get(event).await, accepted);
    assert!(running.was_only_accepted(&accepted));
    let settle = |event: &Event| {
        let outcome = Outcome::Delivered(None);
        let step = EventStep::Settle { outcome, blocks: SucceededBlocks::default(), jitter: Jitter(0) };
        event.transition(step, &route(), fresh.store.now()).expect("it runs")
    };
    let advances = fresh.store.advance(vec![settle(&running)]).await.expect("it answers");
    assert_eq!(advances, [AdvanceResult::Lost], "the revision is the fencing token");
    fresh.store.advance(vec![settle(&accepted)]).await.expect("it writes");
    let done = fresh.get(event).await;
    assert_eq!((done.retrier, done.state.word()), (RetryOwner::Node, "done"));
}

pub(super) async fn the_kind_of_action_is_stored_as_long_as_the_lease(fresh: StoreUnderTest) {
    let kind = async |event: EventId| match fresh.get(event).await.state {
        EventState::Running { action, .. } => action,
        state => panic!("{state:?}"),
    };
    let by = || NodeId("node".into());
    for action in ActionKind::ALL {
        let made = making().delivery(action.word()).made(fresh.store.now());
        let event = made.event.id;
        fresh.store.claim(vec![made.into()]).await.expect("it claims");
        fresh.step(event, EventStep::Start { lasts: MINUTE, by: by(), action }).await;
        assert_eq!(kind(event).await, Some(action));
        fresh.step(event, EventStep::Renew { lasts: MINUTE, blocks: SucceededBlocks::default() }).await;
        fresh.step(event, EventStep::Accept).await;
        fresh.step(event, EventStep::CancelRemote).await;
        assert_eq!(kind(event).await, Some(action));
        fresh.step(event, EventStep::Cancel).await;
        assert_eq!(fresh.get(event).await.state.word(), "dead");
        let mut made = making().delivery(&format!("{} at once", action.word())).made(fresh.store.now());
        made.event.start_at_claim(MINUTE, by(), action);
        let event = made.event.id;
        fresh.store.claim(vec![made.into()]).await.expect("it claims");
        assert_eq!(kind(event).await, Some(action));
    }
}

/// A store that never finds duplicates passes too: the lookup may return `None`, but nothing wrong.
pub(super) async fn a_duplicate_lookup_returns_what_a_claim_would(fresh: StoreUnderTest) {
    let made = || making().delivery("d1").made(fresh.store.now());
    let recalled = async || fresh.store.find_duplicate(&made(), DuplicateLookup::Receipt).await.expect("it reads");
    let told = async |receipt: Option<&Receipt>| {
        let Some(found) = recalled().await else { return };
        let mut claims = fresh.store.claim(vec![made().into()]).await.expect("it claims");
        let KnownDuplicate { event, same, target: stands, receipt: kept, now } = found;
        assert_eq!(claims.pop(), Some(ClaimResult::Duplicate { event, same, target: stands, now }));
        assert_eq!(kept.as_ref(), receipt);
    };
    assert_eq!(recalled().await, None, "nothing was claimed");
    let event = fresh.claimed(making().delivery("d1")).await.id;
    told(None).await;
    let answer = Receipt { status: 201, headers: Vec::new(), body: b"yes".to_vec(), truncated: false };
    let settled = async |outcome: Outcome| {
        fresh.wait(SECOND);
        let running = fresh.start(event).await;
        told(None).await;
        let step = EventStep::Settle { outcome, blocks: SucceededBlocks::default(), jitter: Jitter(0) };
        let change = running.transition(step, &route(), fresh.store.now()).expect("it runs");
        fresh.store.advance(vec![change]).await.expect("it writes");
    };
    let no = Some(Receipt { status: 503, ..answer.clone() });
    settled(Outcome::Failed { why: "no".into(), retry_after: None, receipt: no }).await;
    told(None).await; // it will be retried
    settled(Outcome::Delivered(Some(answer.clone()))).await;
    told(Some(&answer)).await;
    fresh.wait(Duration::from_hours(24 * 365));
    assert_eq!(recalled().await, None, "it has expired");
}

pub(super) async fn a_large_body_survives_a_round_trip(fresh: StoreUnderTest) {
    let body: Vec<u8> = (0..3_u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let made = making().delivery("d1").carrying(body);
    let event = fresh.claimed(made.clone()).await.id;
    let found = fresh.store.payload(event).await.expect("it reads");
    assert!(found == StoredValue::Whole(made.payload().clone()));
}

pub(super) async fn duplicates_are_all_counted_and_the_first_few_stored(fresh: StoreUnderTest) {
    let event = fresh.claimed(making().delivery("d1")).await.id;
    let sighting = |n: u64| DuplicateSighting {
        at: fresh.store.now() + n.try_into().map_or(SECOND, |n: u32| n * SECOND),
        delivery_id: n.is_multiple_of(2).then(|| format!("d{n}").into()),
        same: MatchedBy::Body,
    };
    let notes = (0..20).map(|n| DuplicateNote { event, sighting: sighting(n) });
    let of_nobody = DuplicateNote { event: making().id(), sighting: sighting(0) };
    fresh.store.note_duplicates(notes.chain([of_nobody]).collect()).await.expect("it notes");
    fresh.claimed(making().delivery("d2")).await; // written with the next write
    let story = fresh.store.details(event).await.expect("it reads").expect("it is there");
    assert_eq!(story.duplicates, 20);
    assert_eq!(story.sightings, (0..limits::SIGHTINGS_MAX as u64).map(sighting).collect::<Vec<_>>());
    let counted = fresh.store.counts().await.expect("it counts").duplicates;
    assert!(counted.is_none_or(|many| many == 20), "{counted:?}");
}

pub(super) async fn events_are_listed_newest_first_and_filtered(fresh: StoreUnderTest) {
    let mut all = Vec::new();
    for n in 0..8 {
        let made = making().source(["a", "b"][n % 2]).route(["x", "y"][n / 4]);
        all.push(fresh.claimed(made).await.id);
    }
    fresh.attempt(all[1], delivered()).await;
    fresh.attempt(all[2], rejected()).await;
    fresh.start(all[3]).await;
    let list = async |listing: EventQuery| {
        let events = fresh.store.list(EventQuery { limit: listing.limit.max(1), ..listing }).await.expect("it lists");
        events.iter().filter_map(|event: &Event| all.iter().position(|id| *id == event.id)).collect::<Vec<_>>()
    };
    let listing = EventQuery { limit: 100, ..EventQuery::default() };
    assert_eq!(list(listing.clone()).await, [7, 6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(list(EventQuery { limit: 3, ..listing.clone() }).await, [7, 6, 5]);
    assert_eq!(list(EventQuery { before: Some(all[2]), ..listing.clone() }).await, [1, 0]);
    assert_eq!(list(EventQuery { source: Some("a".into()), ..listing.clone() }).await, [6, 4, 2, 0]);
    let both = EventQuery { source: Some("b".into()), route: Some("x".into()), ..listing.clone() };
    assert_eq!(list(both).await, [3, 1]);
    for (state, expected) in
        [("waiting", vec![7, 6, 5, 4, 0]), ("running", vec![3]), ("done", vec![1]), ("dead", vec![2]), ("odd", vec![])]
    {
        assert_eq!(list(EventQuery { state: Some(state.into()), ..listing.clone() }).await, expected, "{state}");
    }
}

pub(super) async fn events_are_found_page_by_page_by_cause_field_and_text(fresh: StoreUnderTest) {
    let mut all = Vec::new();
    for n in 0..6 {
        all.push(fresh.claimed(making().delivery(&format!("Delivery-{n}")).source(["a", "b"][n % 2])).await.id);
    }
    fresh.attempt(all[1], delivered()).await;
    fresh.attempt(all[2], rejected()).await;
    let pages = async |listing: EventQuery| {
        let (mut listing, mut found) = (EventQuery { limit: 2, ..listing }, Vec::new());
        loop {
            let page = fresh.store.page(listing.clone()).await.expect("it lists");
            assert!(page.events.len() <= 2 && page.events.iter().all(|event| listing.finds(event)));
            found.extend(page.events.iter().filter_map(|event| all.iter().position(|id| *id == event.id)));
            match page.next {
                Some(next) => listing.before = Some(next),
                None => return found,
            }
        }
    };
    let fields = |all: &[(&str, &str)]| EventQuery {
        fields: all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..EventQuery::default()
    };
    let text = |text: &str| EventQuery { text: Some(text.into()), ..EventQuery::default() };
    let cause = |cause: &str| EventQuery { cause: Some(cause.into()), ..EventQuery::default() };
    let (every, none): (_, [usize; 0]) = ([5, 4, 3, 2, 1, 0], []);
    assert_eq!(pages(EventQuery::default()).await, every);
    assert_eq!(pages(EventQuery { source: Some("b".into()), ..EventQuery::default() }).await, [5, 3, 1]);
    assert_eq!(pages(cause("rejected")).await, [2]);
    assert_eq!(pages(cause("acted")).await, [1]);
    assert_eq!(pages(EventQuery { state: Some("done".into()), ..cause("rejected") }).await, none);
    assert_eq!(pages(fields(&[("tag", "latest"), ("draft", "false")])).await, every);
    assert_eq!(pages(fields(&[("size", "9007199254740993")])).await, every);
    for other in [("size", "9007199254740992"), ("tag", "late"), ("draft", "0"), ("other", ""), ("\"", "1")] {
        assert_eq!(pages(fields(&[other])).await, none, "{other:?}");
    }
    assert_eq!(pages(text("delivery-3")).await, [3]);
    assert_eq!(pages(text("LATEST")).await, every);
    assert_eq!(pages(text(&all[4].short())).await, [4]);
    assert_eq!(pages(text("%")).await, none);
    assert_eq!(pages(text("tag")).await, none, "a field's name is not its value");
    assert_eq!(pages(EventQuery { superseded_by: Some(all[0]), ..EventQuery::default() }).await, none);
}

pub(super) async fn events_are_counted_by_state(fresh: StoreUnderTest) {
    assert_eq!(fresh.store.counts().await.expect("it counts").oldest, None);
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(fresh.claimed(making()).await.id);
    }
    fresh.attempt(all[0], delivered()).await;
    fresh.attempt(all[1], rejected()).await;
    fresh.start(all[2]).await;
    let census = fresh.store.counts().await.expect("it counts");
    assert_eq!((census.waiting, census.running, census.done, census.dead, census.capped), (3, 1, 1, 1, false));
    assert_eq!(census.oldest.map(|event| event.id), Some(all[3]));
}

pub(super) async fn events_are_counted_by_source_and_state(fresh: StoreUnderTest) {
    let counted = async || {
        let census = fresh.store.counts().await.expect("it counts");
        let by_source =
            census.by_source.map(|all| all.into_iter().filter(|(_, count)| *count != SourceEventCounts::default()));
        by_source.map(Iterator::collect::<Vec<_>>)
    };
    if !fresh.counts_by_source {
        return assert_eq!(counted().await, None);
    }
    assert_eq!(counted().await, Some(Vec::new()));
    let mut all = Vec::new();
    for source in ["a", "a", "a", "b", "b", "b"] {
        all.push(fresh.claimed(making().source(source)).await.id);
    }
    fresh.start(all[1]).await;
    fresh.attempt(all[2], rejected()).await;
    fresh.attempt(all[3], rejected()).await;
    fresh.attempt(all[4], delivered()).await;
    let a = SourceEventCounts { waiting: 1, running: 1, dead: 1 };
    let b = SourceEventCounts { waiting: 1, running: 0, dead: 1 };
    assert_eq!(counted().await, Some(vec![("a".into(), a), ("b".into(), b)]));
}

pub(super) async fn an_event_is_found_by_its_id_a_suffix_of_it_or_its_delivery_id(fresh: StoreUnderTest) {
    let first = fresh.claimed(making().delivery("F2")).await;
    let second = fresh.claimed(making().delivery("d2")).await;
    let named = async |name: &str| {
        let events = fresh.store.find_by_name(name.into(), 10).await.expect("it reads");
        events.iter().map(|event| event.id).collect::<Vec<EventId>>()
    };
    assert_eq!(named(&first.id.to_string()).await, [first.id]);
    assert_eq!(named(&first.id.short().to_uppercase()).await, [first.id]);
    assert_eq!(named(&first.id.to_string()[30..]).await, [first.id]);
    assert_eq!(named("d2").await, [second.id]);
    assert_eq!(named("").await, []);
    assert_eq!(named("%").await, []);
    assert_eq!(named("nothing like it").await, []);
    let common = &first.id.to_string()[20..24];
    assert_eq!(fresh.store.find_by_name(format!("{common}-zz"), 10).await.expect("it reads"), []);
}

pub(super) async fn a_damaged_body_is_reported_as_damaged(fresh: StoreUnderTest) {
    let Some(spoil) = &fresh.spoil else { return };
    let event = fresh.claimed(making().delivery("d1").carrying("as it came")).await.id;
    let other = making().delivery("d2").carrying("another");
    let payload = other.payload().clone();
    let other = fresh.claimed(other).await.id;
    spoil(event);
    assert_eq!(fresh.store.payload(event).await.expect("it reads"), StoredValue::Damaged);
    assert_eq!(fresh.store.payload(other).await.expect("it reads"), StoredValue::Whole(payload));
    let change = fresh.get(event).await.transition(EventStep::Damage, &route(), fresh.store.now()).expect("it waits");
    fresh.store.advance(vec![change]).await.expect("it writes");
    assert!(fresh.get(event).await.transition(start(), &route(), fresh.store.now()).is_err());
}

pub(super) async fn recipes_are_stored_until_they_are_replaced(fresh: StoreUnderTest) {
    let recipe = |scope: &str, once: &str| {
        let since = (once == "delivery").then_some(Timestamp(1_700_000_000_000_001));
        IdentityRecipe { scope: scope.into(), once: once.into(), since }
    };
    assert_eq!(fresh.store.recipes().await.expect("it reads"), []);
    for recipes in [vec![recipe("a", "body"), recipe("b", "delivery")], vec![recipe("a", "delivery")]] {
        fresh.store.set_recipes(recipes.clone()).await.expect("it writes");
        assert_eq!(fresh.store.recipes().await.expect("it reads"), recipes);
    }
}

/// A message that this source rejected.
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

pub(super) async fn each_source_quarantines_a_message_once(fresh: StoreUnderTest) {
    let all = [("a", "bc"), ("b", "bc"), ("a", "d"), ("ab", "c")];
    let all = all.map(|(source, message)| one(&fresh, source, message));
    for laid in all.iter().chain(&all) {
        fresh.store.quarantine(laid.clone()).await.expect("the store takes it");
    }
    let mut lie = fresh.store.quarantined(10).await.expect("the store answers");
    lie.reverse();
    assert_eq!(lie, all);
}

pub(super) async fn a_message_is_quarantined_once_and_the_oldest_are_evicted(fresh: StoreUnderTest) {
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
