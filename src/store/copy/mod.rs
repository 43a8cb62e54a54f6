//! Copying a store: all entries of the source are written into the target, and both are compared.
//!
//! ```text
//! no node uses them ─▶ target marked ─▶ source marked ─▶ pages, each with its position ─▶ both read and compared
//!                                                            ▲    │                            │
//!                                                            └────┘ killed: resumes there      ▼
//!                                        target unmarked ◀─ source retired ◀─ turns continue after the highest
//! ```
//!
//! A marked store ([`copy_lock`]) is used by no node, so at every moment at most one of the two is usable: what was
//! done is not done again. Everything is idempotent: a killed copy is simply started again, and resumes.

pub mod copy_lock;
mod entry;
pub(crate) mod optimistic;
#[cfg(all(test, feature = "sqlite"))]
mod tests;

pub(super) use copy_lock::MARK;
#[cfg(feature = "shared-store")]
pub(super) use copy_lock::under_way;
pub use copy_lock::{CopyLockCheck, CopyRole};
pub use entry::{CompleteEvent, CopyCursor, CopyEntry, CopyTotals, ExportPage, PageContinuation};
pub use optimistic::{ExportBackend, UnversionedCopyData, mark_of};

use super::optimistic::txn;
use super::{StoreError, StoreFuture};
use crate::decide::id::{Digest, Key, QueueTurn};
use crate::decide::ledger::SubjectRegister;
use crate::decide::limits;
use crate::decide::time::approximate_duration;
use crate::decide::time::{Duration, Timestamp};
use copy_lock::{PLACE, STORE_ID, own};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use tokio::time::Instant;

/// A store whose contents can be read completely.
pub trait ExportStore: Send + Sync {
    /// Up to `limit` entries from the cursor on, ending early once [`limits::BATCH_BYTES_MAX`] of bodies are read. The
    /// copy's own registers are left out (`copy_lock::is_own`).
    ///
    /// [`limits::BATCH_BYTES_MAX`]: crate::decide::limits::BATCH_BYTES_MAX
    fn export(&self, from: CopyCursor, limit: usize) -> StoreFuture<'_, ExportPage>;

    /// The approximate number of entries, for the progress bar.
    fn entries(&self) -> StoreFuture<'_, u64>;

    /// Waits until every write that may have missed what is written by now is over.
    fn settled(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// This text as this store would return it.
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text.into()
    }
}

/// The registers of subjects, sorted by key, from the first one after this key: at most `limit`.
pub(super) async fn registers(
    store: &(impl ExportStore + ?Sized),
    after: Option<Key>,
    limit: usize,
) -> Result<Vec<(Key, SubjectRegister)>, StoreError> {
    let (mut registers, mut next) = (Vec::new(), Some(CopyCursor::Registers(after)));
    while let Some(from @ CopyCursor::Registers(_)) = next
        && registers.len() < limit
    {
        let page = store.export(from, PAGE.min(limit)).await?;
        registers.extend(page.entries.into_iter().filter_map(|entry| match entry {
            CopyEntry::Register(key, register) if !register.is_state() => Some((key, register)),
            _ => None,
        }));
        next = page.next;
    }
    registers.truncate(limit);
    Ok(registers)
}

/// A store that can be copied: read completely, or filled from another one. SQLite implements it; a shared store gets
/// it through [`ExportBackend`].
pub trait CopyStore: ExportStore {
    /// If all of these registers still match, writes the entries that are missing, then the register updates. Returns
    /// whether they matched; if not, nothing was written. Durable when it returns.
    fn fill(&self, entries: Vec<CopyEntry>, notes: Vec<CopyRegisterCas>) -> StoreFuture<'_, bool>;

    /// One of the copy's own registers.
    fn noted(&self, key: Key) -> StoreFuture<'_, Option<SubjectRegister>>;

    /// Removes all recipes and retention rows: what a node leaves in an otherwise empty store. Only if this is still
    /// its mark; returns whether it was.
    fn clear_recipes(&self, mark: SubjectRegister) -> StoreFuture<'_, bool>;

    /// Makes the next turn higher than this one.
    fn pass_turns(&self, highest: QueueTurn) -> StoreFuture<'_, ()>;

    /// The last time that the store has seen and accepted; if it never recorded one, the time of its newest event.
    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>>;

    /// Sets the last-seen time.
    fn set_last_seen(&self, time: Timestamp) -> StoreFuture<'_, ()>;

    /// A sentence about what uses the store, if something is known to.
    fn in_use(&self) -> StoreFuture<'_, Option<String>>;

    /// The store's time.
    fn now(&self) -> Timestamp;

    /// Whether that clock continues from the latest time in the store. A server's clock does not.
    fn clock_follows_events(&self) -> bool;

    /// How many events wait or run: their next time is by the store's clock.
    fn open_events(&self) -> StoreFuture<'_, u64>;
}

/// A compare-and-swap of one of a copy's own registers: its mark or its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRegisterCas {
    /// The register.
    pub key: Key,
    /// The expected value.
    pub was: Option<SubjectRegister>,
    /// The new value.
    pub is: Option<SubjectRegister>,
}

/// The result of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyReport {
    /// The contents of the source, as far as the target can hold them.
    pub source: CopyTotals,
    /// The contents of the target: the same.
    pub target: CopyTotals,
    /// Whether it resumed an earlier copy.
    pub resumed: bool,
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyProgress {
    /// The current stage.
    pub stage: CopyStage,
    /// Entries so far.
    pub done: u64,
    /// The approximate total.
    pub of: u64,
}

/// The stage of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyStage {
    /// Writing.
    Copies,
    /// Reading both.
    Compares,
}

/// One of the two stores of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopySide {
    /// The one that is read.
    Source,
    /// The one that is filled.
    Target,
}

impl fmt::Display for CopySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// The result of one step of a copy.
type CopyResult<T> = Result<T, CopyError>;

/// Why a store was not copied.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CopyError {
    /// Both addresses lead to one store.
    Same,
    /// A node uses it, or may; the text says how that was noticed.
    InUse(CopySide, String),
    /// The source is itself part of another copy.
    Source(CopyRole),
    /// The target holds something other than an unfinished copy.
    NotEmpty,
    /// The target is part of another copy.
    Target(CopyRole),
    /// Events of the source wait for a time that is far away by the target's clock.
    ClockBehind {
        /// What the source's clock shows.
        source: Timestamp,
        /// What the target's clock shows.
        target: Timestamp,
        /// How many wait or run.
        open: u64,
    },
    /// Another copy of the same stores is running.
    Overtaken,
    /// The stores differ in this entry.
    Differs(String),
    /// A store call failed.
    Store(CopySide, StoreError),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("source and target are the same store; name another target"),
            Self::InUse(side, who) => {
                write!(f, "the {side} is in use: {who}. Stop every node that runs on it, then copy again")
            }
            Self::Source(mark) => f.write_str(&mark.refusal(&"the source")),
            Self::NotEmpty => f.write_str(
                "the target already holds events or keys; a store is copied only into an empty one: name a new \
                 file, another database, or another `prefix`",
            ),
            Self::Target(CopyRole::Target { .. }) => f.write_str(
                "the target holds an unfinished copy of another store; finish that one, or start with an empty target",
            ),
            Self::Target(mark) => f.write_str(&mark.refusal(&"the target")),
            Self::ClockBehind { source, target, open } => {
                let behind = approximate_duration(source.since(*target), 2);
                write!(
                    f,
                    "the clock of the target is {behind} behind the clock of the source: it shows {target}, the source \
                     {source}. {open} events of the source wait or run by that clock, and would wait {behind} longer in \
                     the target. Nothing was copied. If the target's clock is wrong, correct it. If the source was once \
                     used under a clock that was ahead, start a node on it, copy when `hookonce list --state waiting` \
                     shows nothing more, or `hookonce cancel` what waits; or copy into an SQLite file, whose clock goes \
                     on from the time of the source"
                )
            }
            Self::Overtaken => f.write_str(
                "another `hookonce migrate copy` is working on one of these stores, or has just finished; let it finish, \
                 or stop it and copy again",
            ),
            Self::Differs(what) => write!(
                f,
                "{what} differs between the two stores, so the target stays unusable. A node may have written to the \
                 source since an earlier copy was interrupted. Start again with an empty target"
            ),
            Self::Store(side, error) => {
                write!(f, "the {side} failed: {error}\nhint: run the same command again to resume")
            }
        }
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Entries read and written at a time.
const PAGE: usize = 256;
/// How long to wait for a node that has just ended but still looks alive.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// How often that is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Copies everything.
pub async fn copy(
    from: &dyn CopyStore,
    to: &dyn CopyStore,
    mut tell: impl FnMut(CopyProgress),
) -> CopyResult<CopyReport> {
    check_unused(from, CopySide::Source).await?;
    check_unused(to, CopySide::Target).await?;
    let source = CopyEndpoint::read(from, CopySide::Source).await?;
    source.write_id().await?; // before the target's id is read: it may be the same store
    let target = CopyEndpoint::read(to, CopySide::Target).await?;
    let earlier = check_marks(&source, &target)?;
    match earlier {
        EarlierCopy::None => {
            check_clocks(from, to).await?;
            mark_target(&source, &target).await?;
            mark_source(&source, &target).await?;
        }
        EarlierCopy::Unfinished => mark_source(&source, &target).await?,
        // Nodes may be about to use the target: the source stays retired, whatever happens here.
        EarlierCopy::Retired => {}
    }
    let (source_totals, target_totals) = match copy_and_compare(&source, to, &mut tell).await {
        Ok(totals) => totals,
        Err(error) => return Err(give_up(&source, &target, error).await),
    };
    if earlier != EarlierCopy::Retired {
        // From here on the source is unusable; only then may the target become usable.
        let retired = CopyRole::Retired { to: target.id, at: from.now() };
        if !source.set(Some(CopyRole::Source { to: target.id }), Some(retired)).await? {
            return Err(CopyError::Overtaken);
        }
    }
    let place = noted(to, CopySide::Target, PLACE).await?;
    let mark = CopyRole::Target { from: source.id }.register();
    let notes = vec![
        CopyRegisterCas { key: MARK, was: Some(mark), is: None },
        CopyRegisterCas { key: PLACE, was: place, is: None },
    ];
    if !fill(to, CopySide::Target, Vec::new(), notes).await? {
        return Err(CopyError::Overtaken);
    }
    Ok(CopyReport { source: source_totals, target: target_totals, resumed: earlier != EarlierCopy::None })
}

/// Unmarks the source, so that nodes may use it, and returns the error. A retired source stays retired. If even that
/// fails, a node that starts on it says what to do.
async fn give_up(source: &CopyEndpoint<'_>, target: &CopyEndpoint<'_>, error: CopyError) -> CopyError {
    if matches!(error, CopyError::Overtaken) {
        return error; // the mark also belongs to the other copy
    }
    let ours = Some(CopyRole::Target { from: source.id });
    match mark_of_side(target.store, CopySide::Target).await {
        // Another copy has finished: nodes use the target, and the differences are what they have done since.
        Ok(mark) if mark != ours => CopyError::Overtaken,
        _ => {
            source.set(Some(CopyRole::Source { to: target.id }), None).await.unwrap_or_default();
            error
        }
    }
}

/// Makes a store usable again that was copied, or whose copy was given up. Returns its former mark.
pub async fn reopen(store: &dyn CopyStore) -> CopyResult<Option<CopyRole>> {
    check_unused(store, CopySide::Source).await?;
    let Some(register) = noted(store, CopySide::Source, MARK).await? else { return Ok(None) };
    let mark = CopyRole::of(&register);
    if let CopyRole::Target { .. } = mark {
        return Err(CopyError::Source(mark));
    }
    let notes = vec![CopyRegisterCas { key: MARK, was: Some(register), is: None }];
    if fill(store, CopySide::Source, Vec::new(), notes).await? { Ok(Some(mark)) } else { Err(CopyError::Overtaken) }
}

/// A store's mark, if it has one.
pub async fn mark_on(store: &dyn CopyStore) -> CopyResult<Option<CopyRole>> {
    mark_of_side(store, CopySide::Source).await
}

async fn mark_of_side(store: &dyn CopyStore, side: CopySide) -> CopyResult<Option<CopyRole>> {
    Ok(noted(store, side, MARK).await?.map(|register| CopyRole::of(&register)))
}

/// A store with its id and mark as they were read.
struct CopyEndpoint<'s> {
    store: &'s dyn CopyStore,
    side: CopySide,
    id: Digest,
    /// The id is not written yet.
    is_new: bool,
    mark: Option<CopyRole>,
}

impl<'s> CopyEndpoint<'s> {
    async fn read(store: &'s dyn CopyStore, side: CopySide) -> CopyResult<Self> {
        let id = noted(store, side, STORE_ID).await?.map(|register| register.value);
        let mark = mark_of_side(store, side).await?;
        Ok(Self { store, side, id: id.unwrap_or_else(new_id), is_new: id.is_none(), mark })
    }

    /// Sets the mark, and the id if there was none; returns whether the mark was still as expected.
    async fn set(&self, was: Option<CopyRole>, is: Option<CopyRole>) -> CopyResult<bool> {
        let mark = CopyRegisterCas { key: MARK, was: was.map(CopyRole::register), is: is.map(CopyRole::register) };
        fill(self.store, self.side, Vec::new(), vec![mark]).await
    }

    async fn write_id(&self) -> CopyResult<()> {
        let note = CopyRegisterCas { key: STORE_ID, was: None, is: Some(own(self.id, None)) };
        if self.is_new && !fill(self.store, self.side, Vec::new(), vec![note]).await? {
            return Err(CopyError::Overtaken);
        }
        Ok(())
    }
}

fn new_id() -> Digest {
    let random: Vec<u8> = (0..4).flat_map(|_| txn::new_version().0.to_be_bytes()).collect();
    Digest::of(&random)
}

async fn noted(store: &dyn CopyStore, side: CopySide, key: Key) -> CopyResult<Option<SubjectRegister>> {
    store.noted(key).await.map_err(|error| CopyError::Store(side, error))
}

async fn fill(
    store: &dyn CopyStore,
    side: CopySide,
    entries: Vec<CopyEntry>,
    notes: Vec<CopyRegisterCas>,
) -> CopyResult<bool> {
    store.fill(entries, notes).await.map_err(|error| CopyError::Store(side, error))
}

/// A sentence about a store with an unexpired lease.
pub(super) fn under_a_lease(until: Timestamp) -> String {
    format!("an event runs under a lease until {until}; after a crash, wait until that has passed")
}

/// Checks that no node uses the store, waiting a moment for one that has just ended.
async fn check_unused(store: &dyn CopyStore, side: CopySide) -> CopyResult<()> {
    let patience = Instant::now() + GONE_WITHIN;
    loop {
        match store.in_use().await.map_err(|error| CopyError::Store(side, error))? {
            None => return Ok(()),
            Some(who) if Instant::now() >= patience => return Err(CopyError::InUse(side, who)),
            Some(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// How far an earlier copy from this source into this target came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EarlierCopy {
    /// There was none.
    None,
    /// The target is incomplete, or was not compared.
    Unfinished,
    /// It is complete, and only its mark is left: the earlier copy was killed between its last two writes, or is about
    /// to make the last one.
    Retired,
}

/// How far an earlier copy came; an error if the target may not be filled from this source.
fn check_marks(source: &CopyEndpoint<'_>, target: &CopyEndpoint<'_>) -> CopyResult<EarlierCopy> {
    if source.id == target.id {
        return Err(CopyError::Same);
    }
    let earlier = match target.mark {
        Some(CopyRole::Target { from }) if from == source.id => EarlierCopy::Unfinished,
        Some(other) => return Err(CopyError::Target(other)),
        None => EarlierCopy::None,
    };
    match source.mark {
        None | Some(CopyRole::Source { .. }) => Ok(earlier),
        Some(CopyRole::Retired { to, .. }) if earlier == EarlierCopy::Unfinished && to == target.id => {
            Ok(EarlierCopy::Retired)
        }
        Some(other) => Err(CopyError::Source(other)),
    }
}

/// Refuses a copy between clocks so far apart that a retry due in a minute would wait for a month.
async fn check_clocks(from: &dyn CopyStore, to: &dyn CopyStore) -> CopyResult<()> {
    let (source, target) = (from.now(), to.now());
    if to.clock_follows_events() || source.since(target) <= limits::CLOCK_STANDS {
        return Ok(());
    }
    match from.open_events().await.map_err(|error| CopyError::Store(CopySide::Source, error))? {
        0 => Ok(()),
        open => Err(CopyError::ClockBehind { source, target, open }),
    }
}

/// Marks the target, which must be empty, also after every write to it has seen the mark.
async fn mark_target(source: &CopyEndpoint<'_>, target: &CopyEndpoint<'_>) -> CopyResult<()> {
    let failed = |error| CopyError::Store(CopySide::Target, error);
    if !is_empty(target.store).await.map_err(failed)? {
        return Err(CopyError::NotEmpty);
    }
    target.write_id().await?;
    let mark = CopyRole::Target { from: source.id };
    if !target.set(None, Some(mark)).await? {
        return Err(CopyError::Overtaken);
    }
    target.store.settled().await.map_err(failed)?;
    let in_use = target.store.in_use().await.map_err(failed)?;
    let is_empty = is_empty(target.store).await.map_err(failed)?;
    if in_use.is_none() && is_empty {
        let cleared = target.store.clear_recipes(mark.register()).await.map_err(failed)?;
        return if cleared { Ok(()) } else { Err(CopyError::Overtaken) };
    }
    target.set(Some(mark), None).await?;
    Err(in_use.map_or(CopyError::NotEmpty, |who| CopyError::InUse(CopySide::Target, who)))
}

/// Marks the source: from here on no node writes to it, and no node was running an attempt while it still could.
async fn mark_source(source: &CopyEndpoint<'_>, target: &CopyEndpoint<'_>) -> CopyResult<()> {
    let failed = |error| CopyError::Store(CopySide::Source, error);
    let mark = CopyRole::Source { to: target.id };
    if !source.set(source.mark, Some(mark)).await? {
        return Err(CopyError::Overtaken);
    }
    source.store.settled().await.map_err(failed)?;
    match source.store.in_use().await.map_err(failed)? {
        None => Ok(()),
        Some(who) => {
            source.set(Some(mark), None).await?;
            Err(CopyError::InUse(CopySide::Source, who))
        }
    }
}

/// Whether a store holds nothing but what a node writes when it starts.
async fn is_empty(store: &dyn CopyStore) -> Result<bool, StoreError> {
    let mut cursor = Some(CopyCursor::START);
    while let Some(at) = cursor {
        let ExportPage { entries, next } = store.export(at, 1).await?;
        if !entries.iter().all(|entry| matches!(entry, CopyEntry::Recipe(_) | CopyEntry::Retention(_))) {
            return Ok(false);
        }
        cursor = next;
    }
    Ok(true)
}

/// Fills the target from where it was left, then reads both.
async fn copy_and_compare(
    source: &CopyEndpoint<'_>,
    to: &dyn CopyStore,
    tell: &mut impl FnMut(CopyProgress),
) -> CopyResult<(CopyTotals, CopyTotals)> {
    let (from, mark) = (source.store, Some(CopyRole::Target { from: source.id }.register()));
    let of = from.entries().await.map_err(|error| CopyError::Store(CopySide::Source, error))?;
    let mut place = noted(to, CopySide::Target, PLACE).await?;
    let mut cursor = place.as_ref().map_or(Some(CopyCursor::START), CopyCursor::of);
    let before = to.entries().await.map_err(|error| CopyError::Store(CopySide::Target, error))?;
    let mut done = if place.is_some() { before } else { 0 };
    while let Some(at) = cursor {
        let ExportPage { mut entries, next } =
            from.export(at, PAGE).await.map_err(|error| CopyError::Store(CopySide::Source, error))?;
        for entry in &mut entries {
            entry.fit(to);
        }
        done += entries.len() as u64;
        let was = place.replace(CopyCursor::register(next));
        // A delayed copy writes nothing once another one has finished: nodes use the target then.
        let notes = vec![
            CopyRegisterCas { key: MARK, was: mark.clone(), is: mark.clone() },
            CopyRegisterCas { key: PLACE, was, is: place.clone() },
        ];
        if !fill(to, CopySide::Target, entries, notes).await? {
            return Err(CopyError::Overtaken);
        }
        tell(CopyProgress { stage: CopyStage::Copies, done, of: of.max(done) });
        cursor = next;
    }
    let compared = compare(from, to, of, tell).await?;
    carry_last_seen(from, to).await?;
    Ok(compared)
}

/// Copies the last-seen time: nodes on the target expire events by the time that the source has seen. What the clock
/// shows during the copy proves nothing: it may be wrong.
async fn carry_last_seen(from: &dyn CopyStore, to: &dyn CopyStore) -> CopyResult<()> {
    match from.last_seen().await.map_err(|error| CopyError::Store(CopySide::Source, error))? {
        Some(time) => to.set_last_seen(time).await.map_err(|error| CopyError::Store(CopySide::Target, error)),
        None => Ok(()),
    }
}

/// Reads everything on both sides and compares it.
async fn compare(
    from: &dyn CopyStore,
    to: &dyn CopyStore,
    of: u64,
    tell: &mut impl FnMut(CopyProgress),
) -> CopyResult<(CopyTotals, CopyTotals)> {
    let (mut source, mut target) =
        (CopyEntryReader::of(from, CopySide::Source), CopyEntryReader::of(to, CopySide::Target));
    let (mut here, mut there, mut highest) = (CopyTotals::default(), CopyTotals::default(), QueueTurn(0));
    loop {
        let (mut entry, other) = (source.next().await?, target.next().await?);
        if let Some(entry) = &mut entry {
            entry.fit(to);
        }
        if entry != other {
            let first = entry.or(other).map(|entry| entry.name());
            return Err(CopyError::Differs(first.unwrap_or_default()));
        }
        let (Some(entry), Some(other)) = (entry, other) else { break };
        if let CopyEntry::Event(whole) = &entry {
            highest = highest.max(whole.row.event.turn);
        }
        here.add(&entry);
        there.add(&other);
        let done = here.entries();
        if done.is_multiple_of(PAGE as u64) {
            tell(CopyProgress { stage: CopyStage::Compares, done, of: of.max(done) });
        }
    }
    tell(CopyProgress { stage: CopyStage::Compares, done: here.entries(), of: here.entries() });
    to.pass_turns(highest).await.map_err(|error| CopyError::Store(CopySide::Target, error))?;
    Ok((here, there))
}

/// Iterates over the entries of a store.
struct CopyEntryReader<'s> {
    store: &'s dyn CopyStore,
    side: CopySide,
    page: VecDeque<CopyEntry>,
    cursor: Option<CopyCursor>,
}

impl<'s> CopyEntryReader<'s> {
    fn of(store: &'s dyn CopyStore, side: CopySide) -> Self {
        Self { store, side, page: VecDeque::new(), cursor: Some(CopyCursor::START) }
    }

    async fn next(&mut self) -> CopyResult<Option<CopyEntry>> {
        while self.page.is_empty() {
            let Some(at) = self.cursor else { return Ok(None) };
            let page = self.store.export(at, PAGE).await.map_err(|error| CopyError::Store(self.side, error))?;
            (self.page, self.cursor) = (page.entries.into(), page.next);
        }
        Ok(self.page.pop_front())
    }
}
