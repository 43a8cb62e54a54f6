//! The index of events by the last digits of their ids, which is the short id shown to users: a sorted set of ids with
//! their bytes reversed.
//!
//! Stores of earlier versions lack it. It is complete if it has as many entries as there are events; until then all ids
//! are scanned. A node completes it in the background after its start.

use super::RedisInner;
use super::read::{PAGE, bytes, list, number};
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use crate::store::StoreError;
use crate::store::StoreResult;
use ::redis::Pipeline;
use std::sync::Arc;

/// Digits that match few events. With fewer, the newest matches are found soon.
const DIGITS_MIN: usize = 4;
/// Entries read at once. Where more match, the newest are found soon, too.
const ENDS_MAX: usize = 5_000;
/// Refused if memory is full.
const FILL: &str = concat!("#!lua\n", include_str!("ends.lua"));
/// Events indexed per call. The server runs one command at a time: claims wait for it.
const FILLED_AT_ONCE: usize = 500;
/// The wait before a retry.
const AGAIN: Duration = Duration::from_mins(1);

fn reversed(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes.reverse();
    bytes
}

/// An event's entry in the index.
pub(super) fn end(id: EventId) -> Vec<u8> {
    reversed(id.0).to_vec()
}

/// The common prefix of entries for these digits: as many complete bytes as they have.
fn begin(digits: &[u8]) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.rchunks_exact(2).map_while(byte).collect()
}

impl RedisInner {
    /// The newest ids with this suffix, as users write them.
    pub(super) async fn ending(&self, suffix: &str, limit: usize) -> StoreResult<Vec<EventId>> {
        let digits: Vec<u8> = suffix.bytes().filter(|byte| *byte != b'-').collect();
        if !(1..=32).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Ok(Vec::new());
        }
        if let Ok(id) = suffix.parse::<EventId>() {
            return Ok(Vec::from([id]));
        }
        let known = if digits.len() < DIGITS_MIN { None } else { self.by_end(&begin(&digits)).await? };
        let Some(mut found) = known else { return self.among_all(suffix, limit).await };
        found.retain(|id| id.to_string().ends_with(suffix));
        found.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        found.truncate(limit);
        Ok(found)
    }

    /// The ids whose entries have this prefix; `None` if the index is incomplete, or if there are too many.
    async fn by_end(&self, begin: &[u8]) -> StoreResult<Option<Vec<EventId>>> {
        let (least, most) = ([b"[", begin].concat(), [b"[", begin, &[u8::MAX; 16]].concat());
        let mut questions = Pipeline::new();
        questions.cmd("ZCARD").arg(self.names.all());
        questions.cmd("ZCARD").arg(self.names.ends());
        questions.cmd("ZRANGE").arg(self.names.ends()).arg(least).arg(most).arg("BYLEX");
        questions.arg("LIMIT").arg(0).arg(ENDS_MAX);
        let (answers, _) = self.ask(questions).await?;
        let [all, ends, entries] = &answers[..] else { return Ok(None) };
        let entries = list(entries);
        if number(all) != number(ends) || entries.len() == ENDS_MAX {
            return Ok(None);
        }
        let id = |entry: &[u8]| <[u8; 16]>::try_from(entry).ok().map(|bytes| EventId(reversed(bytes)));
        Ok(Some(entries.iter().filter_map(bytes).filter_map(id).collect()))
    }

    /// The same by scanning all ids.
    async fn among_all(&self, suffix: &str, limit: usize) -> StoreResult<Vec<EventId>> {
        let (mut found, mut before) = (Vec::new(), None);
        while found.len() < limit {
            let ids = self.before(&self.names.all(), (None, before), PAGE * 10).await?;
            let Some(last) = ids.last() else { break };
            before = Some(*last);
            found.extend(ids.into_iter().filter(|id| id.to_string().ends_with(suffix)));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Adds missing entries. Returns whether the index is complete now.
    async fn fill_ends(&self) -> StoreResult<bool> {
        let (all, ends) = (self.names.all(), self.names.ends());
        let count = async || {
            let mut questions = Pipeline::new();
            questions.cmd("ZCARD").arg(&all);
            questions.cmd("ZCARD").arg(&ends);
            let (answers, _) = self.ask(questions).await?;
            Ok::<_, StoreError>([0, 1].map(|place| answers.get(place).and_then(number).unwrap_or(0)))
        };
        let [events, entries] = count().await?;
        if events == entries {
            return Ok(true);
        }
        // There may be entries of events that an earlier version has forgotten.
        let mut anew = entries > events;
        let mut after = b"-".to_vec();
        loop {
            let mut questions = Pipeline::new();
            questions.cmd("EVAL").arg(FILL).arg(2).arg(&all).arg(&ends);
            questions.arg(after).arg(FILLED_AT_ONCE).arg(u8::from(anew));
            let (answers, _) = self.ask(questions).await?;
            let last = answers.first().and_then(bytes).unwrap_or_default();
            if last.is_empty() {
                return count().await.map(|[events, entries]| events == entries);
            }
            (after, anew) = ([b"(", last].concat(), false);
        }
    }
}

/// Completes the index. Failures are retried: until then finding an event only takes longer.
pub(super) async fn fill(core: Arc<RedisInner>) {
    while !matches!(core.fill_ends().await, Ok(true)) {
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_begins_with_the_last_whole_bytes() {
        let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().expect("an id");
        assert_eq!(begin(b"8057"), [0x57, 0x80]);
        assert_eq!(begin(b"a8057"), [0x57, 0x80], "a half byte is compared later");
        assert!(end(id).starts_with(&begin(b"099a8057")));
    }
}
