//! The Redis store, also for Valkey: one server, or one slot of a cluster, shared by many nodes.
//!
//! ```text
//! records, lists     ─▶ one pipeline: TIME, the queries, the marks                      read.rs, list.rs
//! conditional writes ─▶ one script call: check all, then write; PUBLISH a hint          script_args.rs, write.lua, notify.rs
//!                       over one connection for all; the server is checked whenever
//!                       it is made, and periodically                                    client.rs, server_check.rs, sentinel.rs
//! ```
//!
//! The rules are not here but in [`ledger`](crate::decide::ledger), run over optimistic transactions (see
//! [`optimistic`]). No key has a TTL: the rules decide what may be forgotten, by the server's time.
//!
//! The whole store has one hash tag, `{prefix}`, and not one per source: a group, its queue and the order of turns may
//! span sources, and a script may only touch one slot. On a cluster it therefore lives on one of its nodes; several
//! stores, each with its own `prefix`, spread over it.
//!
//! Redis can lose confirmed writes: by a restart from an older file, a failover, or `FLUSHALL`. So the store has an
//! epoch, created with it, and a counter that every write increments. Both come with every reply. A node that sees
//! another epoch, or a counter lower than one it saw before it asked, stops for good: otherwise events would act again.
//! Other nodes may have raised the counter again by then: so each write also leaves its writer's mark, and the writer's
//! next write checks it. What a node knows outlives it in its state file, so that the next one compares, too
//! (`decide::data_loss`).

pub(crate) mod client;
pub(crate) mod codec;
pub(crate) mod data_loss;
mod dictionaries;
mod ends;
mod export;
pub(crate) mod key_names;
pub(crate) mod list;
pub(crate) mod notify;
mod read;
pub(crate) mod script_args;
mod sentinel;
pub(crate) mod server_check;
pub(crate) mod start_due;
pub(crate) mod url;

use super::clock::StoreClock;
use super::copy::{self, CopyLockCheck};
use super::inspect::QuarantinedMessage;
use super::optimistic;
use super::optimistic::{ClockAccess, ConditionalWrite, ReadBatch, RecordId, VersionedBackend};
use super::{
    BatchStart, ChangeHint, DueEvents, DueQuery, DuplicateNote, EventCounts, EventDetails, EventPage, EventQuery,
    Inspect, RetentionPolicies, SourceCount, SourceRetention, StartDueRequest, StartDueResult, StoreBackend,
    StoreError, StoreFuture, StoreOpenError, StoredValue, SweepPace, WriteProbe,
};
use crate::decide::claim::Payload;
use crate::decide::data_loss::{LastKnownStore, ObservedStore};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key, QueueTurn};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::SubjectRegister;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::{Duration, Timestamp};
use ::redis::{Pipeline, Value};
use client::{RedisClient, WriteScriptCall};
use data_loss::RedisWriterId;
use dictionaries::RedisDictionaries;
use export::ScannedKeys;
use key_names::RedisKeyNames;
use script_args::ScriptArgs;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tracing::error;
use url::RedisUrl;

/// The write script. It is refused as a whole if memory is full.
const WRITE: &str = concat!("#!lua\n", include_str!("write.lua"));
/// The same for writes that add nothing: they end or free something, and run even if memory is full.
const WRITE_ON: &str = concat!("#!lua flags=allow-oom\n", include_str!("write.lua"));
/// How long a duplicate note is buffered without another write.
const NOTE_HELD: Duration = Duration::from_secs(1);
/// Maximum number of buffered notes; further ones are dropped.
const NOTES_HELD: usize = 10_000;

/// Events deleted per write of the sweep. The server runs one command at a time: claims wait for it.
const SWEPT_AT_ONCE_MIN: usize = 125;
/// The same while the sweep is behind.
const SWEPT_AT_ONCE_MAX: usize = 500;
/// How often the server is checked while the connection lasts: its settings may change.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The purpose of opening a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedisAccess {
    /// A node, or a command that writes: it creates the store if there is none.
    Node,
    /// A copy from or into it: the same, but it does not count as a node.
    Copy,
    /// A reader.
    Read,
}

/// The options for opening a Redis store, besides its URL.
#[derive(Clone, Debug)]
pub struct RedisOpenOptions {
    /// The clock: [`StoreClock::server`], except in tests.
    pub clock: StoreClock,
    /// The purpose.
    pub access: RedisAccess,
}

/// A store in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    core: Arc<RedisInner>,
    tasks: Vec<JoinHandle<()>>,
    /// Names without an order, collected for a copy.
    scanned: tokio::sync::Mutex<Option<ScannedKeys>>,
}

/// The state shared with its tasks.
pub(super) struct RedisInner {
    link: Arc<RedisClient>,
    names: RedisKeyNames,
    clock: StoreClock,
    access: RedisAccess,
    epoch: Vec<u8>,
    /// The highest count seen: a store with a lower one has lost data. With `wait` in the URL, the highest that enough
    /// replicas have confirmed, because nothing after it was reported to a caller.
    count: AtomicU64,
    writer: RedisWriterId,
    failed: watch::Sender<Option<ErrorMessage>>,
    hints: broadcast::Sender<ChangeHint>,
    notes: Mutex<Vec<DuplicateNote>>,
    dictionaries: RedisDictionaries,
    /// The hashes of both scripts: the one for writes that add something, and the one for those that do not.
    scripts: [String; 2],
}

impl std::fmt::Debug for RedisInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisInner").field("address", &self.link.address.to_string()).finish_non_exhaustive()
    }
}

/// The time and marks that come with every reply.
#[derive(Clone, Copy, Debug)]
struct ReplyStamp {
    count: u64,
    turn: QueueTurn,
    now: Timestamp,
}

impl RedisStore {
    /// Opens the store at this URL: `redis://`, `rediss://`, `valkey://`, `valkeys://` or `redis+unix://`, with the
    /// parameters `prefix`, `roots` (a file of certificates to trust), `durable=no` and `evicts=yes`.
    pub async fn open(url: &str, options: RedisOpenOptions) -> Result<Self, StoreOpenError> {
        let address = RedisUrl::parse(url)?;
        let names = RedisKeyNames::new(&address.prefix);
        let RedisOpenOptions { clock, access } = options;
        let link = Arc::new(RedisClient::new(address, names.clone(), access));
        link.reach().await?;
        let (epoch, seen) = data_loss::begin(&link, &names, access).await?;
        let count = if link.address.wait.is_some() { 0 } else { seen };
        let core = Arc::new(RedisInner {
            link,
            names,
            clock,
            access,
            epoch,
            count: AtomicU64::new(count),
            writer: RedisWriterId::new(),
            failed: watch::Sender::new(None),
            hints: broadcast::Sender::new(notify::HINTS_HELD),
            notes: Mutex::default(),
            dictionaries: RedisDictionaries::default(),
            scripts: [WRITE, WRITE_ON].map(|script| ::redis::Script::new(script).get_hash().to_owned()),
        });
        core.ask(Pipeline::new()).await.map_err(|error| StoreOpenError::Temporary(ErrorMessage::of(error)))?; // reads the time
        let mut tasks = Vec::new();
        if core.may_write() {
            let mut words = ScriptArgs::new(&core.names);
            words.probe();
            core.send(words).await.map_err(|error| core.cannot_write(error))?;
        }
        if access == RedisAccess::Node {
            tasks.push(tokio::spawn(notify::listen(core.link.clone(), core.names.clone(), core.hints.clone())));
            tasks.push(tokio::spawn(write_notes(core.clone())));
            tasks.push(tokio::spawn(look_again(core.link.clone())));
            tasks.push(tokio::spawn(ends::fill(core.clone())));
        }
        let opened = Self { core, tasks, scanned: tokio::sync::Mutex::default() };
        let begins = if access == RedisAccess::Node { ClockAccess::Writing } else { ClockAccess::Looking };
        optimistic::begin(&opened, begins).await.map_err(|error| StoreOpenError::Temporary(ErrorMessage::of(error)))?;
        Ok(opened)
    }
}

impl Drop for RedisStore {
    /// Writes the buffered notes, if there is time.
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        let core = self.core.clone();
        if !core.notes().is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { core.flush().await });
        }
    }
}

impl RedisInner {
    fn works(&self) -> Result<(), StoreError> {
        match &*self.failed.borrow() {
            Some(why) => Err(StoreError::Broken(why.clone())),
            None => Ok(()),
        }
    }

    fn may_write(&self) -> bool {
        self.access != RedisAccess::Read
    }

    /// Runs a read, with the time before it and the marks after it.
    async fn ask(&self, questions: Pipeline) -> Result<(Vec<Value>, ReplyStamp), StoreError> {
        self.works()?;
        let floor = self.count.load(Ordering::SeqCst);
        let mut all = Pipeline::with_capacity(questions.len() + 2);
        all.cmd("TIME");
        for question in questions.cmd_iter() {
            all.add_command(question.clone());
        }
        let marks = [self.names.epoch(), self.names.count(), self.names.turn(), self.names.store_clock()];
        all.cmd("MGET").arg(&marks);
        let asked = StoreClock::asks();
        let mut answers = self.link.ask(&all).await.map_err(|error| self.stopped_by(error))?;
        let marks = answers.pop().unwrap_or(Value::Nil);
        let [epoch, count, turn, agreed] = read::list(&marks) else { return Err(odd_answer()) };
        let number = |value: &Value| read::number(value).and_then(|number| u64::try_from(number).ok());
        let count = number(count).unwrap_or(0);
        self.compare(read::bytes(epoch).unwrap_or_default(), count, floor)?;
        let time = answers.drain(..1).next();
        let now = time.as_ref().and_then(server_time).ok_or_else(odd_answer)?;
        let agreed = read::bytes(agreed).and_then(codec::read_agreed_clock).unwrap_or_default();
        let now = self.clock.observe_server_time(asked, now, agreed);
        let marks = ReplyStamp { count, turn: QueueTurn(number(turn).unwrap_or(0).max(1)), now };
        Ok((answers, marks))
    }

    /// Runs the write script; returns which conditional writes were applied.
    async fn send(&self, words: ScriptArgs<'_>) -> Result<Vec<bool>, StoreError> {
        self.works()?;
        if !self.may_write() {
            return Err(StoreError::Down("the store was opened read-only".into()));
        }
        let floor = self.count.load(Ordering::SeqCst);
        let [to_add, to_go_on] = &self.scripts;
        let script = if words.adds() { to_add } else { to_go_on };
        let (keys, words) = (words.keys(), words.all(&self.epoch, floor, &self.writer));
        let script = WriteScriptCall::new(script, &keys, &words);
        let (answer, confirmed) = self.link.write(&script).await.map_err(|error| self.stopped_by(error))?;
        let [word, what, count] = read::list(&answer) else { return Err(odd_answer()) };
        let count = read::number(count).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let what = read::bytes(what).unwrap_or_default();
        match read::bytes(word) {
            Some(b"written") => {
                self.has_confirmed(confirmed)?;
                // A call that wrote nothing only shows what it has seen.
                let has_written = what.contains(&b'1');
                if has_written || self.link.address.wait.is_none() {
                    self.count.fetch_max(count, Ordering::SeqCst);
                }
                if has_written {
                    self.writer.has_written(count);
                }
                Ok(what.iter().map(|written| *written == b'1').collect())
            }
            Some(b"marked") => Err(copy::under_way()),
            Some(b"lost") => Err(self.lost(what, count, floor)),
            _ => Err(self.stopped_by(StoreError::broken(format!(
                "{}: another program has overwritten {} with a value of another type",
                self.link.address,
                String::from_utf8_lossy(what)
            )))),
        }
    }

    /// Applies conditional writes, together with the buffered notes.
    async fn swap(&self, swaps: Vec<ConditionalWrite>, heeds: CopyLockCheck) -> Result<Vec<bool>, StoreError> {
        let many = swaps.len();
        self.learn_dictionaries(&swaps).await?;
        let mut words = ScriptArgs::new(&self.names).heeding(heeds);
        for swap in swaps {
            words.swap(swap, &self.dictionaries);
        }
        let packed = words.packed();
        let notes = std::mem::take(&mut *self.notes());
        if !notes.is_empty() {
            words.notes(&notes);
        }
        let mut written = self.send(words).await?;
        written.truncate(many);
        let refused = packed.into_iter().filter(|(place, _)| written.get(*place) == Some(&false));
        self.forget_retired(refused.map(|(_, source)| source).collect()).await;
        self.settle_trials(heeds).await;
        Ok(written)
    }

    /// Is this the store that we know, with all that we saw in it before we asked?
    fn compare(&self, epoch: &[u8], count: u64, floor: u64) -> Result<(), StoreError> {
        if epoch != self.epoch || count < floor {
            return Err(self.lost(epoch, count, floor));
        }
        if self.link.address.wait.is_none() {
            self.count.fetch_max(count, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Stops the store for good if it is broken.
    fn stopped_by(&self, error: StoreError) -> StoreError {
        if let StoreError::Broken(why) = &error {
            self.failed.send_if_modified(|was| {
                let first = was.is_none();
                if first {
                    error!(target: "hookonce", why = &**why, "broken");
                    *was = Some(why.clone());
                }
                first
            });
        }
        error
    }

    fn cannot_write(&self, error: StoreError) -> StoreOpenError {
        match error {
            StoreError::Broken(ref why) => StoreOpenError::Permanent(
                format!(
                    "{why}. The store writes with a script: its user needs +@read +@write +@scripting on ~{{{}}}*",
                    self.link.address.prefix
                )
                .into(),
            )
            .caused_by(error),
            other => StoreOpenError::Temporary(ErrorMessage::of(other)),
        }
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Vec<DuplicateNote>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the buffered notes. Failures are not retried: the notes are only displayed.
    async fn flush(&self) {
        let notes = std::mem::take(&mut *self.notes());
        if !notes.is_empty() {
            let mut words = ScriptArgs::new(&self.names);
            words.notes(&notes);
            let _ = self.send(words).await;
        }
    }
}

/// Writes notes that no other write took along.
async fn write_notes(core: Arc<RedisInner>) {
    loop {
        tokio::time::sleep(NOTE_HELD).await;
        core.flush().await;
    }
}

/// Notices a server that begins to evict keys, before the next connection.
async fn look_again(link: Arc<RedisClient>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        link.look_again().await;
    }
}

fn odd_answer() -> StoreError {
    StoreError::Down("the server sent an unexpected reply".into())
}

/// Seconds and microseconds.
fn server_time(value: &Value) -> Option<Timestamp> {
    let [seconds, micros] = read::list(value) else { return None };
    Some(Timestamp(read::number(seconds)?.checked_mul(1_000_000)?.checked_add(read::number(micros)?)?))
}

impl StoreBackend for RedisStore {
    fn sweep_pace(&self) -> SweepPace {
        SweepPace::SHORT_WRITES
    }

    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        Box::pin(self.core.payload_of(id))
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        Box::pin(self.core.receipt_of(id))
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(async move { self.core.start_due(&starts).await })
    }

    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        let mut held = self.core.notes();
        let room = NOTES_HELD.saturating_sub(held.len());
        held.extend(notes.into_iter().take(room));
        drop(held);
        Box::pin(std::future::ready(self.core.works()))
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        Box::pin(self.core.retention())
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.core.retain(&rows).await })
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.core.lay(&message).await })
    }

    fn probe(&self, probe: WriteProbe) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if probe == WriteProbe::Write {
                let mut words = ScriptArgs::new(&self.core.names);
                words.probe();
                self.core.send(words).await?;
            }
            Ok(())
        })
    }

    fn failed(&self) -> watch::Receiver<Option<ErrorMessage>> {
        self.core.failed.subscribe()
    }

    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        Some(self.core.hints.subscribe())
    }

    fn send_hint(&self, hint: ChangeHint) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut publish = Pipeline::new();
            publish.cmd("PUBLISH").arg(self.core.names.hints()).arg(hint.bytes());
            self.core.link.ask(&publish).await.map(drop)
        })
    }

    fn clock(&self) -> &StoreClock {
        &self.core.clock
    }
}

impl VersionedBackend for RedisStore {
    fn read(&self, cells: Vec<RecordId>, _turns: usize) -> StoreFuture<'_, ReadBatch> {
        // Turns are not taken but only read: an event that joins a queue writes the slot and advances the turn in the
        // same write, so that another write of that slot based on the same turn fails. A read writes nothing.
        Box::pin(self.core.read_cells(cells))
    }

    fn write(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(self.core.swap(swaps, CopyLockCheck::Mark))
    }

    fn fill(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(self.core.swap(swaps, CopyLockCheck::Nothing))
    }

    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> StoreFuture<'a, Vec<EventId>> {
        Box::pin(self.core.forgettable_ids(source, before, limit))
    }

    fn with_old_bodies<'a>(
        &'a self,
        source: &'a str,
        before: Timestamp,
        limit: usize,
    ) -> StoreFuture<'a, Vec<EventId>> {
        Box::pin(self.core.old_bodies(source, before, limit))
    }

    fn sweep_dictionaries(&self, keeps: Arc<RetentionPolicies>) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.core.sweep_dictionaries(&keeps).await })
    }

    fn remove_dictionaries_of_events(&self, events: Vec<EventId>) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.core.remove_dictionaries_of_events(&events).await })
    }

    fn remove_dictionaries_of_source(&self, source: String) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.core.remove_dictionaries_of_source(&source).await })
    }

    /// The server syncs once for all scripts that have come, so a batch beside another costs little.
    fn batch_start(&self) -> BatchStart {
        BatchStart::AtOnce
    }

    /// One read and one script call do both.
    fn shares_commits(&self) -> bool {
        true
    }

    /// A sweep that is behind deletes more in each write: it must keep up with claims, which come up to 512 in each.
    fn swept_at_once(&self, many: usize) -> usize {
        (many / 4).clamp(SWEPT_AT_ONCE_MIN, SWEPT_AT_ONCE_MAX)
    }

    fn due_or_damaged(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        Box::pin(self.core.due_at(look, limit))
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(self.core.last_seen())
    }

    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if self.core.may_write() {
                let mut words = ScriptArgs::new(&self.core.names);
                words.last_seen(was, time);
                self.core.send(words).await?;
            }
            Ok(())
        })
    }

    fn agree_on_clock(&self, was: AgreedClock, is: AgreedClock) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if self.core.may_write() {
                let mut words = ScriptArgs::new(&self.core.names);
                words.agree_on_clock(was, is);
                self.core.send(words).await?;
            }
            Ok(())
        })
    }
}

impl Inspect for RedisStore {
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        Box::pin(self.core.listed(listing))
    }

    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        Box::pin(self.core.paged(listing))
    }

    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        Box::pin(self.core.counted())
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        Box::pin(self.core.story_of(id))
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        Box::pin(async move { self.core.called(&name, limit).await })
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        Box::pin(async move { self.core.other_sources(&known).await })
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        Box::pin(async move {
            let mut questions = Pipeline::new();
            questions.cmd("HGETALL").arg(self.core.names.scopes());
            let (answers, _) = self.core.ask(questions).await?;
            let pairs = answers.first().map(read::pairs).unwrap_or_default();
            let mut recipes: Vec<_> = pairs.into_iter().map(|(scope, once)| codec::read_recipe(scope, once)).collect();
            recipes.sort();
            Ok(recipes)
        })
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut words = ScriptArgs::new(&self.core.names);
            words.recipes(&recipes);
            self.core.send(words).await.map(drop)
        })
    }

    fn registers(&self, after: Option<Key>, limit: usize) -> StoreFuture<'_, Vec<(Key, SubjectRegister)>> {
        Box::pin(async move {
            self.rescan_unless_listed(after).await;
            super::copy::registers(self, after, limit).await
        })
    }

    fn register(&self, subject: Key) -> StoreFuture<'_, Option<SubjectRegister>> {
        Box::pin(async move { self.core.register(subject).await })
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        Box::pin(self.core.laid(limit))
    }

    fn known(&self) -> StoreFuture<'_, Option<LastKnownStore>> {
        Box::pin(std::future::ready(Ok(Some(self.core.known()))))
    }

    fn compare_history(&self, known: Option<LastKnownStore>) -> StoreFuture<'_, Option<ObservedStore>> {
        Box::pin(async move { self.core.found(known.as_ref()).await.map(Some) })
    }
}
