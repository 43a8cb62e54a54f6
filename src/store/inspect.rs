//! Reads and changes of a store for operators and for setting up a node: lists of events, counts, details. The meaning
//! of an event filter is defined here once, for every store.

use super::{
    DeclaredFields, EventDetails, ImportCounts, RegisterEditResult, RemovalResult, SourceCount, Store, StoreError,
    StoreFuture,
};
use crate::decide::claim::{ClaimResult, NewEvent};
use crate::decide::data_loss::{LastKnownStore, ObservedStore};
#[cfg(feature = "durable-store")]
use crate::decide::event::DeathCause;
use crate::decide::event::{DoneReason, Event, EventState};
use crate::decide::field::FieldValue;
use crate::decide::id::{EventId, Key};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::{RegisterEdit, SubjectRegister};
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Changes and previews for operators that the rules decide.
pub trait Administer: Store {
    /// Deletes these events now, each on its own and with all its keys: the same delivery then acts again. Only ended
    /// events can be deleted; a register whose current event is deleted goes with it.
    fn remove_all(&self, ids: Vec<EventId>) -> StoreFuture<'_, Vec<RemovalResult>>;

    /// The same for one event.
    fn remove(&self, id: EventId) -> StoreFuture<'_, RemovalResult> {
        Box::pin(async move { Ok(self.remove_all(vec![id]).await?.pop().unwrap_or(RemovalResult::Unknown)) })
    }

    /// Removes what of this source's bodies is kept to compress others, in stores that keep such. The others stay.
    fn remove_dictionaries(&self, _: String) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Records for ever that these keys were handled before this store existed. Idempotent.
    fn import(&self, keys: Vec<Key>) -> StoreFuture<'_, ImportCounts>;

    /// The result that each of these would get if it were claimed now, alone. Writes nothing.
    fn preview_claim(&self, new: Vec<NewEvent>) -> StoreFuture<'_, Vec<ClaimResult>>;

    /// Corrects a subject's register. Nothing runs because of it.
    fn edit_register(&self, subject: Key, edit: RegisterEdit) -> StoreFuture<'_, RegisterEditResult>;

    /// Accepts the clock as it is, because an operator confirmed it: a pending jump counts from now on.
    fn confirm_time(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Reads and set-up of a store that no rule decides. Each store implements it directly.
pub trait Inspect: Administer {
    /// Events, newest first.
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>>;

    /// The same, one page at a time, scanning a bounded number of events. By default the store lists by the criteria it
    /// can, and the rest are filtered here.
    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        Box::pin(listing.page(self))
    }

    /// How many events there are.
    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        EventCounts::listed(self)
    }

    /// All that the store knows of one event.
    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>>;

    /// The events matching this name: an id, a suffix of one, or a delivery id. At most `limit`.
    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>>;

    /// The events an operator means by this name. A complete id means that event alone, even if it is also a delivery
    /// id.
    fn resolve(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        Box::pin(async move {
            let whole = match name.parse() {
                Ok(id) => self.get(id).await?,
                Err(_) => None,
            };
            match whole {
                Some(event) => Ok(vec![event]),
                None => self.find_by_name(name, limit).await,
            }
        })
    }

    /// The registers of subjects, sorted by key, from the first one after this key: at most `limit`.
    fn registers(&self, after: Option<Key>, limit: usize) -> StoreFuture<'_, Vec<(Key, SubjectRegister)>>;

    /// The register of this subject.
    fn register(&self, subject: Key) -> StoreFuture<'_, Option<SubjectRegister>> {
        Box::pin(async move {
            let found = self.registers(subject.predecessor(), 1).await?.pop();
            Ok(found.filter(|(key, _)| *key == subject).map(|(_, register)| register))
        })
    }

    /// The messages in quarantine, the newest first: at most `limit`.
    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>>;

    /// How many events there are of each source not in `known`, sorted by name. At most
    /// [`OTHER_SOURCES_MAX`](crate::decide::limits::OTHER_SOURCES_MAX) sources.
    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>>;

    /// What each scope's identities are made of, as last written by a node.
    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>>;

    /// Replaces the recipes.
    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()>;

    /// Adds columns named after the fields that sources declare, in stores that have columns. Returns messages about
    /// those that cannot be added.
    fn declare(&self, _: Vec<DeclaredFields>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// What this process knows of the store's history, for its state file. It may write a mark to the store first.
    /// `None` if it has written nothing yet, or if the store needs no fence.
    fn known(&self) -> StoreFuture<'_, Option<LastKnownStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Starts guarding against lost data: compares the store with what earlier processes knew of it, and writes a first
    /// mark. From then on a server that lacks any of this is not used.
    fn begin_fence(&self, _: Vec<LastKnownStore>) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How much of what is known of the store it still holds; with nothing known, how far its history goes. `None` if
    /// the store needs no fence.
    fn compare_history(&self, _: Option<LastKnownStore>) -> StoreFuture<'_, Option<ObservedStore>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Criteria for listing events. Omitted ones match everything.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventQuery {
    /// Of this source.
    pub source: Option<String>,
    /// On this route.
    pub route: Option<String>,
    /// In this state, by its name.
    pub state: Option<String>,
    /// Dead for this cause, or done in this way, by its name.
    pub cause: Option<String>,
    /// Claimed at this time or later.
    pub since: Option<Timestamp>,
    /// Claimed before this time.
    pub until: Option<Timestamp>,
    /// With these fields, each with this value as text.
    pub fields: Vec<(String, String)>,
    /// With this text in the delivery id or a field, ignoring case, or at the end of the id.
    pub text: Option<String>,
    /// Superseded by this event.
    pub superseded_by: Option<EventId>,
    /// Older than this one.
    pub before: Option<EventId>,
    /// Maximum number of events per page.
    pub limit: usize,
}

/// A page of events, newest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// Continue before this event; `None` if there are no more.
    pub next: Option<EventId>,
}

/// The result of one query for a page.
#[cfg(feature = "sql-store")]
pub(super) struct EventPageScan {
    /// The newest first; one more than fits if there are more.
    pub(super) found: Vec<Event>,
    /// Where the scan stopped, if that was before the end.
    pub(super) stopped: Option<EventId>,
}

/// The number of events by state.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventCounts {
    /// Events in this state.
    pub waiting: u64,
    /// Events in this state.
    pub running: u64,
    /// Events in this state.
    pub done: u64,
    /// Events in this state.
    pub dead: u64,
    /// Duplicates of the kept events; `None` if this store does not count them.
    pub duplicates: Option<u64>,
    /// Those that wait, run or are dead, by source; `None`: this store counts by state only. Where so many are dead that
    /// not all were looked at, the rest is in no source.
    pub by_source: Option<BTreeMap<Arc<str>, SourceEventCounts>>,
    /// The event that has waited longest.
    pub oldest: Option<Event>,
    /// The counts are lower bounds or estimates: not every event was counted.
    pub capped: bool,
}

/// How many events of one source wait, run or are dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceEventCounts {
    /// In this state.
    pub waiting: u64,
    /// In this state.
    pub running: u64,
    /// In this state.
    pub dead: u64,
}

/// Dead events that are looked at to count them by source: an index alone counts them all, but does not know their
/// sources.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) const DEAD_BY_SOURCE_MAX: i64 = 10_000;

/// Maximum number of events scanned for one page where no index helps.
pub const LOOKED_THROUGH_MAX: usize = 20_000;
/// Events read at a time by a store that cannot filter.
const CHUNK: usize = 500;
/// Maximum count in a store that can only list.
const COUNTED_MAX: usize = 1_000;
/// How far the clock of the node that made an id may be from the store's, for a list by time. Nothing else relies on
/// the time in an id.
const CLOCKS_APART: Duration = Duration::from_hours(1);

impl EventQuery {
    /// Does this event match?
    pub fn finds(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, word: &str| wanted.as_deref().is_none_or(|wanted| wanted == word);
        let (cause, by) = match &event.state {
            EventState::Done { how: how @ DoneReason::Superseded { by }, .. } => (how.word(), Some(*by)),
            EventState::Done { how, .. } => (how.word(), None),
            EventState::Dead { cause, .. } => (cause.word(), None),
            EventState::Waiting { .. } | EventState::Running { .. } => ("", None),
        };
        is(&self.source, &event.source)
            && is(&self.route, &event.route)
            && is(&self.state, event.state.word())
            && is(&self.cause, cause)
            && self.since.is_none_or(|since| event.received_at >= since)
            && self.until.is_none_or(|until| event.received_at < until)
            && self.superseded_by.is_none_or(|successor| by == Some(successor))
            && self.before.is_none_or(|before| event.id < before)
            && self.finds_inside(event)
    }

    /// Do its fields and text match?
    pub fn finds_inside(&self, event: &Event) -> bool {
        let has = |(name, wanted): &(String, String)| event.fields.get(name).is_some_and(|value| said(value) == wanted);
        self.fields.iter().all(has) && self.text.as_deref().is_none_or(|text| holds(event, text))
    }

    /// The range of ids of the requested times: from the first, before the second.
    pub fn ids(&self) -> (Option<EventId>, Option<EventId>) {
        let least = self.since.map(|since| earliest(since - CLOCKS_APART));
        let most = self.until.map(|until| earliest(until + CLOCKS_APART));
        (least, [self.before, most].into_iter().flatten().min())
    }

    /// Can only dead events match?
    #[cfg(feature = "durable-store")]
    pub(super) fn means_dead(&self) -> bool {
        match &self.state {
            Some(state) => state == "dead",
            None => self.cause.as_deref().is_some_and(|word| DeathCause::parse(word).is_some()),
        }
    }

    /// The page made of these scans, whether they cover different events or the same. Nothing is known of the events
    /// behind the last one of a scan that came back full but was thinned out by the filter here.
    #[cfg(feature = "sql-store")]
    pub(super) fn gathered(&self, looks: Vec<EventPageScan>) -> EventPage {
        let (mut all, mut stopped) = (Vec::new(), None::<EventId>);
        for EventPageScan { found, stopped: at } in looks {
            let full = (found.len() > self.limit).then(|| found.last().map(|event| event.id)).flatten();
            let some: Vec<_> = found.into_iter().filter(|event| self.finds_inside(event)).collect();
            stopped = stopped.max(at).max(full.filter(|_| some.len() <= self.limit));
            all.extend(some);
        }
        if let Some(stopped) = stopped {
            all.retain(|event: &Event| event.id >= stopped);
        }
        all.sort_by_key(|event| std::cmp::Reverse(event.id));
        all.dedup_by_key(|event| event.id);
        let more = all.len() > self.limit;
        all.truncate(self.limit);
        let next = if more { all.last().map(|event| event.id) } else { stopped };
        EventPage { events: all, next }
    }

    /// One page of a store that filters by some of the criteria, or by all.
    pub(super) async fn page(mut self, store: &(impl Inspect + ?Sized)) -> Result<EventPage, StoreError> {
        let (wanted, mut page, mut looked) = (self.clone(), EventPage::default(), 0);
        self.limit = wanted.limit.max(CHUNK);
        loop {
            let some = store.list(self.clone()).await?;
            let (over, last) = (some.len() < self.limit, some.last().map(|event| event.id));
            looked += some.len();
            for event in some.into_iter().filter(|event| wanted.finds(event)) {
                if page.events.len() == wanted.limit {
                    page.next = page.events.last().map(|event| event.id);
                    return Ok(page);
                }
                page.events.push(event);
            }
            if over || last.zip(wanted.ids().0).is_some_and(|(last, least)| last < least) {
                return Ok(page);
            }
            if looked >= LOOKED_THROUGH_MAX {
                page.next = last;
                return Ok(page);
            }
            self.before = last;
        }
    }
}

impl EventCounts {
    /// The counts of a store that can only list.
    pub(super) fn listed(store: &(impl Inspect + ?Sized)) -> StoreFuture<'_, Self> {
        Box::pin(async move {
            let mut census = Self { by_source: Some(BTreeMap::new()), ..Self::default() };
            for state in ["waiting", "running", "done", "dead"] {
                let listing = EventQuery { state: Some(state.into()), limit: COUNTED_MAX, ..EventQuery::default() };
                let events = store.list(listing).await?;
                census.capped |= events.len() == COUNTED_MAX;
                let count = events.len() as u64;
                for event in &events {
                    census.add_to_source(&event.source, state, 1);
                }
                match state {
                    "waiting" => (census.waiting, census.oldest) = (count, events.into_iter().next_back()),
                    "running" => census.running = count,
                    "done" => census.done = count,
                    _ => census.dead = count,
                }
            }
            Ok(census)
        })
    }

    /// Counts events of a source. Those that are done are not counted by source.
    pub(super) fn add_to_source(&mut self, source: &str, state: &str, many: u64) {
        let count = self.by_source.get_or_insert_default().entry(source.into()).or_default();
        match state {
            "waiting" => count.waiting += many,
            "running" => count.running += many,
            "dead" => count.dead += many,
            _ => {}
        }
    }
}

/// A field's value as text.
pub(super) fn said(value: &FieldValue) -> &str {
    match value {
        FieldValue::Text(text) | FieldValue::Number(text) => text,
        FieldValue::Bool(true) => "true",
        FieldValue::Bool(false) => "false",
    }
}

fn holds(event: &Event, text: &str) -> bool {
    let wanted = text.to_ascii_lowercase();
    let inside = |value: &str| value.to_ascii_lowercase().contains(&wanted);
    event.delivery_id.as_deref().is_some_and(inside)
        || event.fields.iter().any(|(_, value)| inside(said(value)))
        || event.id.to_string().ends_with(&wanted)
}

/// The smallest id that can be made at this time.
fn earliest(at: Timestamp) -> EventId {
    let millis = u64::try_from(at.0.div_euclid(1000)).unwrap_or(0).to_be_bytes();
    let mut id = [0; 16];
    id[..6].copy_from_slice(&millis[2..]);
    EventId(id)
}

/// A message in quarantine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuarantinedMessage {
    /// The source that rejected it.
    pub source: Arc<str>,
    /// The message's identity: its stream, its sequence number and when the stream stored it. Unique per source.
    pub message: String,
    /// Its subject.
    pub subject: String,
    /// When it was put here, by the store's clock.
    pub at: Timestamp,
    /// Why.
    pub why: String,
    /// Its full length.
    pub bytes: u64,
    /// Its first bytes, at most [`limits::QUARANTINE_BODY_BYTES_MAX`]. Unverified.
    pub head: Bytes,
}

/// The first bytes of a message, as many as are kept.
pub fn head(body: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&body[..body.len().min(limits::QUARANTINE_BODY_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreBackend as _;
    use crate::store::clock::StoreClock;
    use crate::store::conformance::making;
    use crate::store::memory::MemoryStore;

    #[test]
    fn an_id_made_at_a_time_is_not_before_the_first_of_that_time() {
        let at = Timestamp::parse("2026-02-07T15:20:40Z").unwrap();
        let stamp = uuid::Timestamp::from_unix(uuid::NoContext, at.0.unsigned_abs() / 1_000_000, 0);
        let id = EventId(uuid::Uuid::new_v7(stamp).into_bytes());
        assert!(earliest(at) <= id && id < earliest(at + Duration::from_millis(1)));
        assert_eq!(earliest(Timestamp(-5)), EventId([0; 16]));
    }

    #[tokio::test]
    async fn a_store_that_only_lists_has_the_same_pages_and_goes_on_where_it_stopped() {
        let store = MemoryStore::new(StoreClock::wall(Timestamp::default()));
        for n in 0..1_200 {
            let made = making().delivery(&format!("d{n}")).source(if n % 100 == 7 { "rare" } else { "often" });
            store.claim(vec![made.made(store.now()).into()]).await.unwrap();
        }
        let (mut listing, mut found) = (EventQuery { limit: 5, ..EventQuery::default() }, Vec::new());
        listing.source = Some("rare".into());
        loop {
            let page = listing.clone().page(&store).await.unwrap();
            assert!(page.events.len() <= 5);
            found.extend(page.events.iter().map(|event| event.delivery_id.clone().unwrap().to_string()));
            match page.next {
                Some(next) => listing.before = Some(next),
                None => break,
            }
        }
        let expected: Vec<_> = (0..12).rev().map(|n| format!("d{}", n * 100 + 7)).collect();
        assert_eq!(found, expected);
        let census = store.counts().await.unwrap();
        assert_eq!((census.waiting, census.done, census.capped), (1_000, 0, true));
        assert_eq!(census.oldest.map(|event| event.state.word()), Some("waiting"));
    }
}
