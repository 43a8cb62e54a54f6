//! Reads for operators: lists, events by their name, and all details of one.

use super::RedisInner;
use super::codec;
use super::key_names;
use super::key_names::RedisKeyKind;
use super::read::{PAGE, bytes, key, list, number, overwritten, pairs};
use crate::decide::claim::MatchedBy;
use crate::decide::event::{Event, EventState};
use crate::decide::id::EventId;
use crate::decide::transition::AttemptRecord;
use crate::store::StoreResult;
use crate::store::optimistic::{Record, RecordId};
use crate::store::{DuplicateSighting, EventCounts, EventDetails, EventPage, EventQuery};
use ::redis::{Pipeline, Value};

/// Maximum number of events scanned for one page. Each is transferred and decoded, so fewer than where the server
/// filters.
const LOOKED_THROUGH: usize = 5_000;

impl RedisInner {
    /// The shortest list, sorted by id, that holds all possible matches.
    fn list_of(&self, listing: &EventQuery) -> Vec<u8> {
        match listing.state.as_deref() {
            Some("waiting" | "running") => self.names.open(),
            _ if listing.means_dead() => self.names.dead(),
            _ => self.names.all(),
        }
    }

    pub(super) async fn listed(&self, listing: EventQuery) -> StoreResult<Vec<Event>> {
        let name = self.list_of(&listing);
        let wanted = |event: &Event| {
            listing.source.as_deref().is_none_or(|source| *event.source == *source)
                && listing.route.as_deref().is_none_or(|route| *event.route == *route)
                && listing.state.as_deref().is_none_or(|state| event.state.word() == state)
        };
        let mut events = Vec::new();
        let mut before = listing.before;
        while events.len() < listing.limit {
            let ids = self.before(&name, (None, before), PAGE.min(listing.limit.max(16))).await?;
            let Some(last) = ids.last() else { break };
            before = Some(*last);
            events.extend(self.events(&ids).await?.into_iter().filter(wanted));
        }
        events.truncate(listing.limit);
        Ok(events)
    }

    /// A page of matches, scanning a limited number of events; the next one continues from there.
    pub(super) async fn paged(&self, listing: EventQuery) -> StoreResult<EventPage> {
        if let Some(successor) = listing.superseded_by
            && self.events(&[successor]).await?.iter().any(|event| event.change.is_none())
        {
            return Ok(EventPage::default()); // without a change it cannot have superseded an event
        }
        let name = self.list_of(&listing);
        let (least, mut before) = listing.ids();
        let (mut page, mut looked, mut some) =
            (EventPage::default(), 0, listing.limit.saturating_add(1).clamp(16, PAGE));
        loop {
            let ids = self.before(&name, (least, before), some).await?;
            let over = ids.len() < some;
            before = ids.last().copied();
            looked += ids.len();
            for event in self.events(&ids).await?.into_iter().filter(|event| listing.finds(event)) {
                if page.events.len() == listing.limit {
                    page.next = page.events.last().map(|event| event.id);
                    return Ok(page);
                }
                page.events.push(event);
            }
            if over {
                return Ok(page);
            }
            if looked >= LOOKED_THROUGH {
                page.next = before;
                return Ok(page);
            }
            some = PAGE;
        }
    }

    /// The counts, by the lists. Neither duplicates nor the events of each source are counted.
    pub(super) async fn counted(&self) -> StoreResult<EventCounts> {
        let mut questions = Pipeline::new();
        for list in [self.names.all(), self.names.open(), self.names.leases(), self.names.dead()] {
            questions.cmd("ZCARD").arg(list);
        }
        let (answers, _) = self.ask(questions).await?;
        let count = |place: usize| answers.get(place).and_then(number).map_or(0, i64::unsigned_abs);
        let (all, open, running, dead) = (count(0), count(1), count(2), count(3));
        Ok(EventCounts {
            waiting: open.saturating_sub(running),
            running,
            done: all.saturating_sub(open + dead),
            dead,
            duplicates: None,
            by_source: None,
            oldest: self.oldest().await?,
            capped: false,
        })
    }

    /// The event that has waited longest. Those before it are running, and few.
    async fn oldest(&self) -> StoreResult<Option<Event>> {
        let mut after = b"-".to_vec();
        for _ in 0..LOOKED_THROUGH / PAGE {
            let mut questions = Pipeline::new();
            questions.cmd("ZRANGE").arg(self.names.open()).arg(after).arg("+").arg("BYLEX").arg("LIMIT").arg(0);
            questions.arg(PAGE);
            let ids = self.ids(questions).await?;
            let waits = |event: &Event| matches!(event.state, EventState::Waiting { .. });
            let found = self.events(&ids).await?.into_iter().find(waits);
            let Some(last) = ids.last().filter(|_| found.is_none()) else { return Ok(found) };
            after = [&b"("[..], &last.0].concat();
        }
        Ok(None)
    }

    /// Ids of a list sorted by id, from the first of these on and before the second, newest first.
    pub(super) async fn before(
        &self,
        name: &[u8],
        (least, before): (Option<EventId>, Option<EventId>),
        limit: usize,
    ) -> StoreResult<Vec<EventId>> {
        let from = before.map_or(b"+".to_vec(), |id| [&b"("[..], &id.0].concat());
        let to = least.map_or(b"-".to_vec(), |id| [&b"["[..], &id.0].concat());
        let mut questions = Pipeline::new();
        questions.cmd("ZRANGE").arg(name).arg(from).arg(to).arg("BYLEX").arg("REV").arg("LIMIT").arg(0).arg(limit);
        self.ids(questions).await
    }

    pub(super) async fn called(&self, name: &str, limit: usize) -> StoreResult<Vec<Event>> {
        let begin = key_names::delivery(name);
        let (least, most) = ([&b"["[..], &begin, &[0; 16]].concat(), [&b"["[..], &begin, &[255; 16]].concat());
        let mut questions = Pipeline::new();
        questions.cmd("ZRANGE").arg(self.names.deliveries()).arg(most).arg(least).arg("BYLEX").arg("REV");
        questions.arg("LIMIT").arg(0).arg(limit);
        let (answers, _) = self.ask(questions).await?;
        let entries = answers.first().map_or(&[][..], list).iter();
        let mut ids: Vec<_> =
            entries.filter_map(|entry| bytes(entry)?.get(16..)?.try_into().ok().map(EventId)).collect();
        for id in self.ending(&name.to_ascii_lowercase(), limit).await? {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let mut found = self.events(&ids).await?;
        found.sort_by_key(|event| std::cmp::Reverse(event.id));
        found.truncate(limit);
        Ok(found)
    }

    pub(super) async fn story_of(&self, id: EventId) -> StoreResult<Option<EventDetails>> {
        let mut questions = Pipeline::new();
        let kinds = [RedisKeyKind::Event, RedisKeyKind::KeysOf, RedisKeyKind::Receipt];
        questions.cmd("MGET").arg(kinds.map(|kind| self.names.event(kind, id)).as_slice());
        questions.cmd("EXISTS").arg(self.names.event(RedisKeyKind::Payload, id));
        questions.cmd("LRANGE").arg(self.names.event(RedisKeyKind::Attempts, id)).arg(0).arg(-1);
        questions.cmd("HGETALL").arg(self.names.event(RedisKeyKind::Output, id));
        questions.cmd("HGETALL").arg(self.names.event(RedisKeyKind::Sightings, id));
        let (answers, _) = self.ask(questions).await?;
        let [strings, body, attempts, outputs, sightings] = &answers[..] else { return Err(overwritten("story")) };
        let [row, keys, receipt] = list(strings) else { return Ok(None) };
        let Some(row) = bytes(row) else { return Ok(None) };
        let event = codec::read_row(id, row).0.event();
        let (sightings, duplicates) = seen(sightings);
        let group = event.group.filter(|_| event.state == EventState::Waiting { due: None });
        let mut cells: Vec<_> =
            bytes(keys).unwrap_or_default().chunks_exact(32).filter_map(key).map(RecordId::Key).collect();
        cells.extend(group.map(RecordId::Slot));
        let (mut identities, mut behind): (Vec<MatchedBy>, _) = (Vec::new(), None);
        for (_, found) in self.read_cells(cells).await?.cells {
            match found {
                Record::Key(held) if held.event == id => identities.extend(held.identities()),
                Record::Slot(slot, _) => behind = Some(slot.holder),
                _ => {}
            }
        }
        identities.sort();
        identities.dedup();
        Ok(Some(EventDetails {
            event,
            identities,
            sightings,
            duplicates,
            attempts: tries(attempts, outputs),
            receipt: bytes(receipt).and_then(codec::read_receipt),
            has_body: number(body) == Some(1),
            behind,
        }))
    }
}

/// The first sightings, in order, and how many there were.
pub(super) fn seen(value: &Value) -> (Vec<DuplicateSighting>, u64) {
    let (mut sightings, mut count) = (Vec::new(), 0);
    for (name, value) in pairs(value) {
        match std::str::from_utf8(name).ok().map(str::parse::<u64>) {
            Some(Ok(place)) => sightings.extend(codec::read_sighting(value).map(|sighting| (place, sighting))),
            _ => count = std::str::from_utf8(value).ok().and_then(|count| count.parse().ok()).unwrap_or(0),
        }
    }
    sightings.sort_by_key(|(place, _)| *place);
    (sightings.into_iter().map(|(_, sighting)| sighting).collect(), count)
}

/// Attempts with their output, as far as it is stored.
pub(super) fn tries(attempts: &Value, outputs: &Value) -> Vec<AttemptRecord> {
    let outputs: std::collections::HashMap<_, _> = pairs(outputs).into_iter().collect();
    let read = |value: &Value| {
        let tried = codec::read_tried(bytes(value)?)?;
        let output = outputs.get(&codec::output_name(&tried)[..]).copied().unwrap_or_default().to_vec();
        Some(AttemptRecord { output, ..tried })
    };
    list(attempts).iter().filter_map(read).collect()
}
