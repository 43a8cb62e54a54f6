//! Reading a whole store, to copy it.
//!
//! Events have a list sorted by id. Registers, slots and imported keys have none: their names are collected once, by
//! scanning, and sorted here.

use super::codec;
use super::key_names::RedisKeyKind;
use super::list::{seen, tries};
use super::read::{bytes, key, list, number, overwritten, payload_as_kept};
use super::script_args::ScriptArgs;
use super::{RedisInner, RedisStore};
use crate::decide::id::{EventId, Key};
use crate::decide::ledger::{KeyOwner, SubjectRegister};
use crate::decide::limits;
use crate::store::StoreResult;
use crate::store::copy::copy_lock::is_own;
use crate::store::copy::{
    CompleteEvent, CopyCursor, CopyEntry, ExportBackend, ExportPage, ExportStore, PageContinuation, UnversionedCopyData,
};
use crate::store::optimistic::RecordVersion;
use crate::store::row::DecodedRow;
use crate::store::{Inspect, StoreBackend, StoreFuture, StoredValue};
use ::redis::{Pipeline, Value};

/// Names per step of a scan.
const SCANNED_AT_ONCE: usize = 1_000;
/// Events read at a time with all that belongs to them. Bodies are compressed: their length is known only after
/// decompression.
const EVENTS_AT_ONCE: usize = 16;

/// Names that have no order on the server, sorted.
#[derive(Debug, Default)]
pub(super) struct ScannedKeys {
    registers: Vec<Key>,
    slots: Vec<Key>,
    imported: Vec<Key>,
}

/// When names are collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyScanMode {
    /// Now: the first page of the first kind is read, and nothing is written until the last page of the last.
    Anew,
    /// They were already, unless a copy resumes in the middle.
    Before,
}

impl ExportStore for RedisStore {
    fn export(&self, from: CopyCursor, limit: usize) -> StoreFuture<'_, ExportPage> {
        Box::pin(async move {
            match from {
                CopyCursor::Events(after) => self.core.export_events(from, after, limit).await,
                CopyCursor::Registers(after) => {
                    let when = if after.is_none() { KeyScanMode::Anew } else { KeyScanMode::Before };
                    let (keys, more) = self.scanned(|scanned| &scanned.registers, after, limit, when).await?;
                    Ok(ExportPage::page(from, self.core.registers(&keys).await?, more))
                }
                CopyCursor::Slots(after) => {
                    let (keys, more) =
                        self.scanned(|scanned| &scanned.slots, after, limit, KeyScanMode::Before).await?;
                    Ok(ExportPage::page(from, self.core.slots(&keys).await?, more))
                }
                CopyCursor::Imported(after) => {
                    let (keys, more) =
                        self.scanned(|scanned| &scanned.imported, after, limit, KeyScanMode::Before).await?;
                    Ok(ExportPage::page(from, keys.into_iter().map(CopyEntry::Imported).collect(), more))
                }
                CopyCursor::Recipes => {
                    let recipes = self.recipes().await?.into_iter().map(CopyEntry::Recipe);
                    Ok(ExportPage::page(from, recipes.collect(), PageContinuation::No))
                }
                CopyCursor::Retention => {
                    let kept = self.retention().await?.into_iter().map(CopyEntry::Retention);
                    Ok(ExportPage::page(from, kept.collect(), PageContinuation::No))
                }
                CopyCursor::Quarantine => {
                    let newest = self.core.laid(limits::QUARANTINE_MAX).await?.into_iter().rev();
                    let oldest_first = newest.map(|one| CopyEntry::Quarantined(Box::new(one)));
                    Ok(ExportPage::page(from, oldest_first.collect(), PageContinuation::No))
                }
            }
        })
    }

    fn entries(&self) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut questions = Pipeline::new();
            questions.cmd("ZCARD").arg(self.core.names.all());
            questions.cmd("SCARD").arg(self.core.names.imported());
            let (answers, _) = self.core.ask(questions).await?;
            Ok(answers.iter().filter_map(number).map(i64::unsigned_abs).sum())
        })
    }
}

impl ExportBackend for RedisStore {
    fn fill_beside(&self, beside: UnversionedCopyData, mark: RecordVersion) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let mut words = ScriptArgs::new(&self.core.names);
            words.beside(&beside, mark);
            Ok(self.core.send(words).await?.first() == Some(&true))
        })
    }

    /// Nodes listen for hints as long as they run, those of the first release too. Without the permission to query
    /// that, only leases tell.
    fn connected(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(async move {
            let mut questions = Pipeline::new();
            questions.cmd("PUBSUB").arg("NUMSUB").arg(self.core.names.hints());
            let answers = self.core.link.ask(&questions).await.unwrap_or_default();
            let count = answers.first().map_or(&[][..], list).get(1).and_then(number).unwrap_or(0);
            Ok((count > 0).then(|| format!("{count} other hookonce processes are connected to it")))
        })
    }
}

impl RedisStore {
    /// Has the names collected again if a list begins at a register that was not among them.
    pub(super) async fn rescan_unless_listed(&self, register: Option<Key>) {
        let mut scanned = self.scanned.lock().await;
        let is_listed = |names: &ScannedKeys| register.is_none_or(|key| names.registers.binary_search(&key).is_ok());
        if !scanned.as_ref().is_some_and(is_listed) {
            *scanned = None;
        }
    }

    /// Up to `limit` of these names after this one, and whether there are more.
    async fn scanned(
        &self,
        which: impl Fn(&ScannedKeys) -> &Vec<Key>,
        after: Option<Key>,
        limit: usize,
        when: KeyScanMode,
    ) -> StoreResult<(Vec<Key>, PageContinuation)> {
        let mut scanned = self.scanned.lock().await;
        if when == KeyScanMode::Anew || scanned.is_none() {
            *scanned = Some(self.core.scan().await?);
        }
        let keys = scanned.as_ref().map_or(&[][..], |scanned| which(scanned));
        let from = after.map_or(0, |after| keys.partition_point(|key| *key <= after));
        let page: Vec<Key> = keys[from..].iter().take(limit).copied().collect();
        let more = if from + page.len() < keys.len() { PageContinuation::Maybe } else { PageContinuation::No };
        Ok((page, more))
    }
}

impl RedisInner {
    async fn export_events(&self, from: CopyCursor, after: Option<EventId>, limit: usize) -> StoreResult<ExportPage> {
        let begin = after.map_or(b"-".to_vec(), |id| [&b"("[..], &id.0].concat());
        let mut questions = Pipeline::new();
        questions.cmd("ZRANGE").arg(self.names.all()).arg(begin).arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(limit);
        let ids = self.ids(questions).await?;
        let mut more = if ids.len() == limit { PageContinuation::Maybe } else { PageContinuation::No };
        let (mut entries, mut size, mut left) = (Vec::new(), 0, &ids[..]);
        while !left.is_empty() {
            let (some, rest) = left.split_at(left.len().min(EVENTS_AT_ONCE));
            for whole in self.wholes(some).await? {
                size += whole.bytes();
                entries.push(CopyEntry::Event(Box::new(whole)));
            }
            left = rest;
            if size >= limits::BATCH_BYTES_MAX && !left.is_empty() {
                more = PageContinuation::Maybe;
                break;
            }
        }
        Ok(ExportPage::page(from, entries, more))
    }

    /// These events with all that belongs to them.
    async fn wholes(&self, ids: &[EventId]) -> StoreResult<Vec<CompleteEvent>> {
        let mut questions = Pipeline::new();
        for id in ids {
            let kinds = [
                RedisKeyKind::Event,
                RedisKeyKind::KeysOf,
                RedisKeyKind::Receipt,
                RedisKeyKind::Payload,
                RedisKeyKind::Passed,
            ];
            questions.cmd("MGET").arg(kinds.map(|kind| self.names.event(kind, *id)).as_slice());
            questions.cmd("LRANGE").arg(self.names.event(RedisKeyKind::Attempts, *id)).arg(0).arg(-1);
            questions.cmd("HGETALL").arg(self.names.event(RedisKeyKind::Output, *id));
            questions.cmd("HGETALL").arg(self.names.event(RedisKeyKind::Sightings, *id));
        }
        let (answers, _) = self.ask(questions).await?;
        let (mut wholes, mut keys) = (Vec::new(), Vec::new());
        for (id, answers) in ids.iter().zip(answers.chunks_exact(4)) {
            let [strings, attempts, outputs, sightings] = answers else { return Err(overwritten("event")) };
            let [row, keys_of, receipt, payload, passed] = list(strings) else { return Err(overwritten("event")) };
            let Some(row) = bytes(row) else { return Err(overwritten("list of events")) };
            let (DecodedRow::Whole(row) | DecodedRow::Damaged(row, _)) = codec::read_row(*id, row).0;
            let digest = Some(row.event.body_digest);
            let payload = match bytes(payload).and_then(codec::dictionary_of) {
                None => payload_as_kept(digest, bytes(payload), bytes(passed), None),
                Some(needed) => match self.dictionary_for_reading(needed, &row.event.source).await? {
                    Some(with) => payload_as_kept(digest, bytes(payload), bytes(passed), Some(&with)),
                    None => self.payload_of(*id).await?, // it may have been packed anew since
                },
            };
            let payload = match payload {
                StoredValue::Whole(payload) => Some(payload),
                StoredValue::Damaged | StoredValue::Forgotten => None,
            };
            let (sightings, duplicates) = seen(sightings);
            let mut own: Vec<Key> = bytes(keys_of).unwrap_or_default().chunks_exact(32).filter_map(key).collect();
            own.sort_unstable();
            own.dedup();
            keys.push(own);
            wholes.push(CompleteEvent {
                row,
                keys: Vec::new(),
                payload,
                receipt: bytes(receipt).and_then(codec::read_receipt),
                tried: tries(attempts, outputs),
                duplicates,
                sightings,
            });
        }
        for (whole, held) in wholes.iter_mut().zip(self.held(&keys).await?) {
            let id = whole.row.event.id;
            whole.keys = held.into_iter().filter(|(_, held)| held.event == id).collect();
        }
        Ok(wholes)
    }

    /// The owners of these keys, if they have one.
    async fn held(&self, keys: &[Vec<Key>]) -> StoreResult<Vec<Vec<(Key, KeyOwner)>>> {
        let names: Vec<_> = keys.iter().flatten().map(|key| self.names.key(RedisKeyKind::Key, key)).collect();
        let values = self.strings(names).await?;
        let mut values = values.iter().map(|value| bytes(value).and_then(codec::read_held));
        let mut one = |key: &Key| values.next().flatten().map(|held| (*key, held));
        Ok(keys.iter().map(|keys| keys.iter().filter_map(&mut one).collect()).collect())
    }

    async fn registers(&self, keys: &[Key]) -> StoreResult<Vec<CopyEntry>> {
        let values = self.strings(keys.iter().map(|key| self.names.key(RedisKeyKind::Register, key)).collect()).await?;
        let one = |(key, value): (&Key, &Value)| {
            let register = codec::read_register(bytes(value)?).ok_or_else(|| overwritten("register"));
            Some(register.map(|(register, _)| CopyEntry::Register(*key, register)))
        };
        keys.iter().zip(&values).filter_map(one).collect()
    }

    /// The register of one subject.
    pub(super) async fn register(&self, subject: Key) -> StoreResult<Option<SubjectRegister>> {
        Ok(self.registers(&[subject]).await?.pop().and_then(|entry| match entry {
            CopyEntry::Register(_, register) if !register.is_state() => Some(register),
            _ => None,
        }))
    }

    async fn slots(&self, groups: &[Key]) -> StoreResult<Vec<CopyEntry>> {
        let values =
            self.strings(groups.iter().map(|group| self.names.key(RedisKeyKind::Slot, group)).collect()).await?;
        let one = |(group, value): (&Key, &Value)| {
            let slot = codec::read_slot(bytes(value)?).ok_or_else(|| overwritten("slot"));
            Some(slot.map(|(holder, _)| CopyEntry::Slot(*group, holder)))
        };
        groups.iter().zip(&values).filter_map(one).collect()
    }

    async fn strings(&self, names: Vec<Vec<u8>>) -> StoreResult<Vec<Value>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        questions.cmd("MGET").arg(names);
        let (answers, _) = self.ask(questions).await?;
        Ok(answers.first().map_or(&[][..], list).to_vec())
    }

    /// Every register, slot and imported key. A scan may return one twice.
    async fn scan(&self) -> StoreResult<ScannedKeys> {
        let mut scanned = ScannedKeys::default();
        let [registers, slots] = [RedisKeyKind::Register, RedisKeyKind::Slot].map(|kind| self.names.of(kind, &[]));
        let pattern =
            [&registers[..registers.len() - 1], &[b'[', RedisKeyKind::Register as u8, RedisKeyKind::Slot as u8], b"]*"]
                .concat();
        let mut cursor = b"0".to_vec();
        loop {
            let mut questions = Pipeline::new();
            questions.cmd("SCAN").arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCANNED_AT_ONCE);
            let (answers, _) = self.ask(questions).await?;
            let [next, names] = answers.first().map_or(&[][..], list) else { return Err(overwritten("scan")) };
            for name in list(names).iter().filter_map(bytes) {
                let of = |begin: &[u8]| name.strip_prefix(begin).and_then(key);
                scanned.registers.extend(of(&registers).filter(|key| !is_own(key)));
                scanned.slots.extend(of(&slots));
            }
            cursor = bytes(next).unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                break;
            }
        }
        let mut cursor = b"0".to_vec();
        loop {
            let mut questions = Pipeline::new();
            questions.cmd("SSCAN").arg(self.names.imported()).arg(&cursor).arg("COUNT").arg(SCANNED_AT_ONCE);
            let (answers, _) = self.ask(questions).await?;
            let [next, keys] = answers.first().map_or(&[][..], list) else { return Err(overwritten("scan")) };
            scanned.imported.extend(list(keys).iter().filter_map(|name| key(bytes(name)?)));
            cursor = bytes(next).unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                break;
            }
        }
        for keys in [&mut scanned.registers, &mut scanned.slots, &mut scanned.imported] {
            keys.sort_unstable();
            keys.dedup();
        }
        Ok(scanned)
    }
}
