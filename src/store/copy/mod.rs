//! Copying a store: everything that one holds is written into another, and both are compared.
//!
//! ```text
//! nobody uses them ─▶ target marked ─▶ source marked ─▶ pages, each with its place ─▶ both read and compared
//!                                                           ▲    │                         │
//!                                                           └────┘ killed: goes on there   ▼
//!                                       target unmarked ◀─ source retired ◀─ turns go on after the highest
//! ```
//!
//! A store that is marked ([`mark`]) is used by no node, so that at every moment at most one of the two can be: what was
//! done is not done again. Everything is idempotent: a copy that was killed is simply made again, and goes on where it was.

mod entry;
pub mod mark;
mod shelf;
#[cfg(all(test, feature = "sqlite"))]
mod tests;

pub use entry::{Cursor, Entry, Exported, More, Totals, Whole};
pub(super) use mark::MARK;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) use mark::under_way;
pub use mark::{CopyMark, Heeds};
pub use shelf::{Beside, ExportShelf, mark_of};

use super::clock_watch::in_words;
use super::ledger::Register;
use super::shared::draft;
use super::{Answer, StoreError};
use crate::decide::id::{Digest, Key, Turn};
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use mark::{PLACE, STORE_ID, own};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use tokio::time::Instant;

/// A store that can be copied: read to its end, or filled from another one. Each store implements it once.
pub trait CopyStore: Send + Sync {
    /// Up to `limit` entries from there on, and no more after [`limits::BATCH_BYTES_MAX`] of bodies. Registers of the
    /// copy's own are left out ([`mark::is_own`]).
    ///
    /// [`limits::BATCH_BYTES_MAX`]: crate::decide::limits::BATCH_BYTES_MAX
    fn export(&self, from: Cursor, limit: usize) -> Answer<'_, Exported>;

    /// How many entries there are, as nearly as can be told at once: for the progress bar.
    fn entries(&self) -> Answer<'_, u64>;

    /// Where all of these notes still read as they did, writes the entries that are not there yet, and then the notes. Says
    /// whether they did: if not, nothing was written. Durable when it returns.
    fn fill(&self, entries: Vec<Entry>, notes: Vec<Note>) -> Answer<'_, bool>;

    /// A register of the copy's own.
    fn noted(&self, key: Key) -> Answer<'_, Option<Register>>;

    /// Removes all recipes, and how long sources' events are kept: what a node left in a store that holds nothing else. Only
    /// where this is still its mark; says whether it was.
    fn clear_recipes(&self, mark: Register) -> Answer<'_, bool>;

    /// Waits until every write that may not have seen what is written by now is over.
    fn settled(&self) -> Answer<'_, ()>;

    /// Makes the next turn higher than this one.
    fn pass_turns(&self, highest: Turn) -> Answer<'_, ()>;

    /// What time the store has last seen and believed; of one that never wrote it down, when its newest event came.
    fn last_seen(&self) -> Answer<'_, Option<Timestamp>>;

    /// Writes down what time the store has last seen.
    fn set_last_seen(&self, time: Timestamp) -> Answer<'_, ()>;

    /// A sentence about who uses the store, if it can be told that somebody does.
    fn in_use(&self) -> Answer<'_, Option<String>>;

    /// This text as it comes back from here.
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// The store's clock.
    fn now(&self) -> Timestamp;

    /// Whether that clock goes on from the latest time that the store holds. A server's clock does not.
    fn clock_follows_events(&self) -> bool;

    /// How many events wait or run: their next time is written by the store's clock.
    fn open_events(&self) -> Answer<'_, u64>;
}

/// A change of a register of the copy's own, or that it stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The register.
    pub key: Key,
    /// As it must still be.
    pub was: Option<Register>,
    /// As it is then.
    pub is: Option<Register>,
}

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// What the source holds, as far as the target can hold it.
    pub source: Totals,
    /// What the target holds: the same.
    pub target: Totals,
    /// Whether an earlier copy had begun it.
    pub resumed: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Entries so far.
    pub done: u64,
    /// Of about so many.
    pub of: u64,
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Writing.
    Copies,
    /// Reading both.
    Compares,
}

/// Which of the two stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that is read.
    Source,
    /// The one that is filled.
    Target,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// Why a store was not copied.
#[derive(Clone, Debug)]
pub enum CopyError {
    /// Both addresses lead to one store.
    Same,
    /// A node uses it, or may: this sentence says how that was noticed.
    InUse(Side, String),
    /// The source is itself part of another copy.
    Source(CopyMark),
    /// The target holds something that is not an unfinished copy.
    NotEmpty,
    /// The target is part of another copy.
    Target(CopyMark),
    /// Events of the source wait for a time that is far away by the target's clock.
    ClockBehind {
        /// What the source's clock shows.
        source: Timestamp,
        /// What the target's clock shows.
        target: Timestamp,
        /// How many wait or run.
        open: u64,
    },
    /// Another copy of the same stores runs.
    Overtaken,
    /// What the target holds is not what the source holds: this entry, as people name it.
    Differs(String),
    /// One of them did not answer.
    Store(Side, StoreError),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("source and target are the same store; give another target"),
            Self::InUse(side, who) => {
                write!(f, "the {side} is in use: {who}. Stop every node that runs on it, then copy again")
            }
            Self::Source(mark) => f.write_str(&mark.refusal(&"the source")),
            Self::NotEmpty => f.write_str(
                "the target already holds events or keys of its own; a store is copied only into an empty one: give a new \
                 file, another database, or another `prefix`",
            ),
            Self::Target(CopyMark::Target { .. }) => f.write_str(
                "the target holds an unfinished copy of another store; finish that one, or begin with an empty target",
            ),
            Self::Target(mark) => f.write_str(&mark.refusal(&"the target")),
            Self::ClockBehind { source, target, open } => {
                let behind = in_words(source.since(*target));
                write!(
                    f,
                    "the clock of the target is {behind} behind the clock of the source: it shows {target}, the source \
                     {source}. {open} events of the source wait or run by that clock, and would wait {behind} longer in \
                     the target. Nothing was copied. If the target's clock is wrong, set it right. If the source was once \
                     used under a clock that was ahead, start a node on it, copy when `hookonce list --state waiting` \
                     shows nothing more, or `hookonce cancel` what waits; or copy into an SQLite file, whose clock goes \
                     on from the time of the source"
                )
            }
            Self::Overtaken => f.write_str(
                "another `hookonce migrate copy` works on one of these stores, or has just finished; let that one finish, \
                 or stop it and copy again",
            ),
            Self::Differs(what) => write!(
                f,
                "{what} is not the same in both stores, and the target stays unusable. A node may have written to the \
                 source since an earlier copy was interrupted. Begin again with an empty target"
            ),
            Self::Store(side, error) => {
                write!(f, "the {side} failed: {error}\nhint: run the same command again to go on")
            }
        }
    }
}

impl std::error::Error for CopyError {}

/// Entries read and written in one go.
const PAGE: usize = 256;
/// How long a node that has just ended may still be taken for one that runs.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

type Result<T> = std::result::Result<T, CopyError>;

/// Copies all of it.
pub async fn copy(from: &dyn CopyStore, to: &dyn CopyStore, mut tell: impl FnMut(Progress)) -> Result<Copied> {
    check_unused(from, Side::Source).await?;
    check_unused(to, Side::Target).await?;
    let source = Marked::read(from, Side::Source).await?;
    source.write_id().await?; // before the target's is read: it may be the same store
    let target = Marked::read(to, Side::Target).await?;
    let earlier = check_marks(&source, &target)?;
    match earlier {
        Earlier::None => {
            check_clocks(from, to).await?;
            mark_target(&source, &target).await?;
            mark_source(&source, &target).await?;
        }
        Earlier::Unfinished => mark_source(&source, &target).await?,
        // Nodes may be about to use the target: the source stays retired, whatever comes of this.
        Earlier::Retired => {}
    }
    let (source_totals, target_totals) = match copy_and_compare(&source, to, &mut tell).await {
        Ok(totals) => totals,
        Err(error) => return Err(give_up(&source, &target, error).await),
    };
    if earlier != Earlier::Retired {
        // From here on the source is not used any more, and only then may the target be.
        let retired = CopyMark::Retired { to: target.id, at: from.now() };
        if !source.set(Some(CopyMark::Source { to: target.id }), Some(retired)).await? {
            return Err(CopyError::Overtaken);
        }
    }
    let place = noted(to, Side::Target, PLACE).await?;
    let mark = CopyMark::Target { from: source.id }.register();
    let notes = vec![Note { key: MARK, was: Some(mark), is: None }, Note { key: PLACE, was: place, is: None }];
    if !fill(to, Side::Target, Vec::new(), notes).await? {
        return Err(CopyError::Overtaken);
    }
    Ok(Copied { source: source_totals, target: target_totals, resumed: earlier != Earlier::None })
}

/// Leaves the source as it was before, so that nodes may use it, and says why. A source that is retired stays so. If even
/// that fails, a node that starts on it says what to do.
async fn give_up(source: &Marked<'_>, target: &Marked<'_>, error: CopyError) -> CopyError {
    if matches!(error, CopyError::Overtaken) {
        return error; // the mark is the other's, too
    }
    let ours = Some(CopyMark::Target { from: source.id });
    match mark_of_side(target.store, Side::Target).await {
        // Another copy has finished: nodes use the target, and what differs is what they have done since.
        Ok(mark) if mark != ours => CopyError::Overtaken,
        _ => {
            source.set(Some(CopyMark::Source { to: target.id }), None).await.unwrap_or_default();
            error
        }
    }
}

/// Makes a store usable again that was copied, or whose copy was given up. Says what it was marked as.
pub async fn reopen(store: &dyn CopyStore) -> Result<Option<CopyMark>> {
    check_unused(store, Side::Source).await?;
    let Some(register) = noted(store, Side::Source, MARK).await? else { return Ok(None) };
    let mark = CopyMark::of(&register);
    if let CopyMark::Target { .. } = mark {
        return Err(CopyError::Source(mark));
    }
    let notes = vec![Note { key: MARK, was: Some(register), is: None }];
    if fill(store, Side::Source, Vec::new(), notes).await? { Ok(Some(mark)) } else { Err(CopyError::Overtaken) }
}

/// The mark that a store has, if it has one.
pub async fn mark_on(store: &dyn CopyStore) -> Result<Option<CopyMark>> {
    mark_of_side(store, Side::Source).await
}

async fn mark_of_side(store: &dyn CopyStore, side: Side) -> Result<Option<CopyMark>> {
    Ok(noted(store, side, MARK).await?.map(|register| CopyMark::of(&register)))
}

/// A store with its id and its mark as they were read.
struct Marked<'s> {
    store: &'s dyn CopyStore,
    side: Side,
    id: Digest,
    /// The id is not written yet.
    is_new: bool,
    mark: Option<CopyMark>,
}

impl<'s> Marked<'s> {
    async fn read(store: &'s dyn CopyStore, side: Side) -> Result<Self> {
        let id = noted(store, side, STORE_ID).await?.map(|register| register.value);
        let mark = mark_of_side(store, side).await?;
        Ok(Self { store, side, id: id.unwrap_or_else(new_id), is_new: id.is_none(), mark })
    }

    /// Sets the mark, and the id where there was none; says whether the store was still marked as it was.
    async fn set(&self, was: Option<CopyMark>, is: Option<CopyMark>) -> Result<bool> {
        let mark = Note { key: MARK, was: was.map(CopyMark::register), is: is.map(CopyMark::register) };
        fill(self.store, self.side, Vec::new(), vec![mark]).await
    }

    async fn write_id(&self) -> Result<()> {
        let note = Note { key: STORE_ID, was: None, is: Some(own(self.id, None)) };
        if self.is_new && !fill(self.store, self.side, Vec::new(), vec![note]).await? {
            return Err(CopyError::Overtaken);
        }
        Ok(())
    }
}

fn new_id() -> Digest {
    let random: Vec<u8> = (0..4).flat_map(|_| draft::new_version().0.to_be_bytes()).collect();
    Digest::of(&random)
}

async fn noted(store: &dyn CopyStore, side: Side, key: Key) -> Result<Option<Register>> {
    store.noted(key).await.map_err(|error| CopyError::Store(side, error))
}

async fn fill(store: &dyn CopyStore, side: Side, entries: Vec<Entry>, notes: Vec<Note>) -> Result<bool> {
    store.fill(entries, notes).await.map_err(|error| CopyError::Store(side, error))
}

/// A sentence about a store in which a lease has not run out.
pub(super) fn under_a_lease(until: Timestamp) -> String {
    format!("an event runs under a lease until {until}; after a crash, wait until that has passed")
}

/// Waits a moment for a node that has just ended.
async fn check_unused(store: &dyn CopyStore, side: Side) -> Result<()> {
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
enum Earlier {
    /// There was none.
    None,
    /// The target is not whole, or was not compared.
    Unfinished,
    /// It is whole, and only its mark is left: the earlier copy was killed between its last two writes, or is about to make
    /// the last one.
    Retired,
}

/// How far an earlier copy came; an error where the target may not be filled from this source.
fn check_marks(source: &Marked<'_>, target: &Marked<'_>) -> Result<Earlier> {
    if source.id == target.id {
        return Err(CopyError::Same);
    }
    let earlier = match target.mark {
        Some(CopyMark::Target { from }) if from == source.id => Earlier::Unfinished,
        Some(other) => return Err(CopyError::Target(other)),
        None => Earlier::None,
    };
    match source.mark {
        None | Some(CopyMark::Source { .. }) => Ok(earlier),
        Some(CopyMark::Retired { to, .. }) if earlier == Earlier::Unfinished && to == target.id => Ok(Earlier::Retired),
        Some(other) => Err(CopyError::Source(other)),
    }
}

/// A retry that waits for a minute must not wait for a month because the target goes by another clock.
async fn check_clocks(from: &dyn CopyStore, to: &dyn CopyStore) -> Result<()> {
    let (source, target) = (from.now(), to.now());
    if to.clock_follows_events() || source.since(target) <= limits::CLOCK_STANDS {
        return Ok(());
    }
    match from.open_events().await.map_err(|error| CopyError::Store(Side::Source, error))? {
        0 => Ok(()),
        open => Err(CopyError::ClockBehind { source, target, open }),
    }
}

/// Marks the target, which must be empty, also after every write to it has seen the mark.
async fn mark_target(source: &Marked<'_>, target: &Marked<'_>) -> Result<()> {
    let failed = |error| CopyError::Store(Side::Target, error);
    if !is_empty(target.store).await.map_err(failed)? {
        return Err(CopyError::NotEmpty);
    }
    target.write_id().await?;
    let mark = CopyMark::Target { from: source.id };
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
    Err(in_use.map_or(CopyError::NotEmpty, |who| CopyError::InUse(Side::Target, who)))
}

/// Marks the source: from here on no node writes to it, and none was at anything when it could still write.
async fn mark_source(source: &Marked<'_>, target: &Marked<'_>) -> Result<()> {
    let failed = |error| CopyError::Store(Side::Source, error);
    let mark = CopyMark::Source { to: target.id };
    if !source.set(source.mark, Some(mark)).await? {
        return Err(CopyError::Overtaken);
    }
    source.store.settled().await.map_err(failed)?;
    match source.store.in_use().await.map_err(failed)? {
        None => Ok(()),
        Some(who) => {
            source.set(Some(mark), None).await?;
            Err(CopyError::InUse(Side::Source, who))
        }
    }
}

/// Whether a store holds nothing but what a node writes when it starts.
async fn is_empty(store: &dyn CopyStore) -> std::result::Result<bool, StoreError> {
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let Exported { entries, next } = store.export(at, 1).await?;
        if !entries.iter().all(|entry| matches!(entry, Entry::Recipe(_) | Entry::Retention(_))) {
            return Ok(false);
        }
        cursor = next;
    }
    Ok(true)
}

/// Fills the target from where it was left, then reads both.
async fn copy_and_compare(
    source: &Marked<'_>,
    to: &dyn CopyStore,
    tell: &mut impl FnMut(Progress),
) -> Result<(Totals, Totals)> {
    let (from, mark) = (source.store, Some(CopyMark::Target { from: source.id }.register()));
    let of = from.entries().await.map_err(|error| CopyError::Store(Side::Source, error))?;
    let mut place = noted(to, Side::Target, PLACE).await?;
    let mut cursor = place.map_or(Some(Cursor::START), |place| Cursor::of(&place));
    let before = to.entries().await.map_err(|error| CopyError::Store(Side::Target, error))?;
    let mut done = if place.is_some() { before } else { 0 };
    while let Some(at) = cursor {
        let Exported { mut entries, next } =
            from.export(at, PAGE).await.map_err(|error| CopyError::Store(Side::Source, error))?;
        for entry in &mut entries {
            entry.fit(to);
        }
        done += entries.len() as u64;
        let was = place.replace(Cursor::register(next));
        // A copy that was held up writes nothing once another one has finished: nodes use the target then.
        let notes = vec![Note { key: MARK, was: mark, is: mark }, Note { key: PLACE, was, is: place }];
        if !fill(to, Side::Target, entries, notes).await? {
            return Err(CopyError::Overtaken);
        }
        tell(Progress { stage: Stage::Copies, done, of: of.max(done) });
        cursor = next;
    }
    let compared = compare(from, to, of, tell).await?;
    carry_last_seen(from, to).await?;
    Ok(compared)
}

/// Nodes on the target expire events by the time that the source has seen. What the clock shows while it is copied proves
/// nothing: it may be wrong.
async fn carry_last_seen(from: &dyn CopyStore, to: &dyn CopyStore) -> Result<()> {
    match from.last_seen().await.map_err(|error| CopyError::Store(Side::Source, error))? {
        Some(time) => to.set_last_seen(time).await.map_err(|error| CopyError::Store(Side::Target, error)),
        None => Ok(()),
    }
}

/// Reads everything on both sides, and compares it.
async fn compare(
    from: &dyn CopyStore,
    to: &dyn CopyStore,
    of: u64,
    tell: &mut impl FnMut(Progress),
) -> Result<(Totals, Totals)> {
    let (mut source, mut target) = (Entries::of(from, Side::Source), Entries::of(to, Side::Target));
    let (mut here, mut there, mut highest) = (Totals::default(), Totals::default(), Turn(0));
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
        if let Entry::Event(whole) = &entry {
            highest = highest.max(whole.row.event.turn);
        }
        here.add(&entry);
        there.add(&other);
        let done = here.entries();
        if done.is_multiple_of(PAGE as u64) {
            tell(Progress { stage: Stage::Compares, done, of: of.max(done) });
        }
    }
    tell(Progress { stage: Stage::Compares, done: here.entries(), of: here.entries() });
    to.pass_turns(highest).await.map_err(|error| CopyError::Store(Side::Target, error))?;
    Ok((here, there))
}

/// The entries of a store, one after another.
struct Entries<'s> {
    store: &'s dyn CopyStore,
    side: Side,
    page: VecDeque<Entry>,
    cursor: Option<Cursor>,
}

impl<'s> Entries<'s> {
    fn of(store: &'s dyn CopyStore, side: Side) -> Self {
        Self { store, side, page: VecDeque::new(), cursor: Some(Cursor::START) }
    }

    async fn next(&mut self) -> Result<Option<Entry>> {
        while self.page.is_empty() {
            let Some(at) = self.cursor else { return Ok(None) };
            let page = self.store.export(at, PAGE).await.map_err(|error| CopyError::Store(self.side, error))?;
            (self.page, self.cursor) = (page.entries.into(), page.next);
        }
        Ok(self.page.pop_front())
    }
}
