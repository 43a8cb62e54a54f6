//! Detection of lost data in PostgreSQL: what this process knows of the cluster and of its own last writes, and whether
//! a server that it connects to has them.
//!
//! ```text
//! begin    ─▶ on one connection: compare with what earlier processes knew, and write a first mark
//! a commit ─▶ remembered in memory as an unmarked write: no round trip
//! a second ─▶ after commits: a mark in `writers`, with the position in the WAL
//! connect  ─▶ is it the same system, not before that position, with our mark and what was written after it?
//! ```
//!
//! A position alone is not enough: a standby that was behind, once promoted, soon writes past it. The mark is a row of
//! ours, so a server that lost what came before it has lost the mark, too. A mark is written by a transaction that
//! begins after the commits that it covers were confirmed; its position is never after its own commit, which every
//! synchronous standby has confirmed.
//!
//! After a failover the old primary may continue to answer. Each connection knows the timeline of its server; once a
//! newer one was seen and has everything, connections of older timelines are dropped, and what was committed over them
//! does not count as written.

use super::error::PgCommitStage;
use super::pool::{PgConn, PgConnPurpose, PgError, PgPool, PgQuery, ask};
use super::rows::PgUuid;
use super::url::PostgresUrl;
use crate::decide::data_loss;
use crate::decide::data_loss::{
    LastKnownStore, ObservedStore, StoreCounter, StoreLoss, StoreMark, UnmarkedWrite, WriterMark,
};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::Event;
use crate::decide::limits;
use crate::decide::time::Duration;
use crate::store::StoreError;
use crate::store::optimistic::{ConditionalWrite, RecordWrite};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::Row;
use tracing::error;

/// How many writers the store remembers: those that wrote last. A node is a new one at each start.
const WRITERS_MAX: i64 = 1_000;

const SYSTEM: &str = "select system_identifier::text from pg_control_system()";
/// The name of a WAL file begins with its timeline, in eight hexadecimal digits.
const POSITION: &str = "select pg_walfile_name(pg_current_wal_insert_lsn()), pg_current_wal_insert_lsn()::text";
/// Writes this writer's mark: the server's time, so that the newest writers have the highest marks.
macro_rules! mark {
    ($returning:literal) => {
        concat!(
            "insert into {schema}.writers (name, wrote) values ($1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) \
             on conflict (name) do update set wrote = greatest(writers.wrote + 1, excluded.wrote) returning wrote",
            $returning
        )
    };
}
const MARK: &str = mark!("");
const MARK_WITH_POSITION: &str =
    mark!(", pg_walfile_name(pg_current_wal_insert_lsn()), pg_current_wal_insert_lsn()::text");
const DROP_WRITERS: &str = "delete from {schema}.writers where wrote < (select wrote from {schema}.writers order by wrote desc offset $1 limit 1)";
/// Also returns when the table of marks was created: by the server's time, like a mark.
const WRITERS: &str = "select (select count(*) from {schema}.writers), (select max(wrote) from {schema}.writers), \
     array(select w.wrote from unnest($1::bytea[]) with ordinality n (name, place) \
     left join {schema}.writers w on w.name = n.name order by n.place), \
     (select applied_at from {schema}.schema_migrations where version = $2)";
/// The migration that creates the table of marks.
const MARKS_VERSION: i32 = 8;
const REVISIONS: &str = "select count(*) from unnest($1::uuid[], $2::bigint[]) as n (id, revision) \
     join {schema}.events e on e.id = n.id and e.revision >= n.revision";

/// The error for a connection whose server is no longer the primary.
pub(super) const REPLACED: &str = "this connection leads to the former primary; another server has been promoted";

/// Detects lost data: holds what this process knows of its database.
pub(super) struct PgDataLossDetector {
    name: [u8; 16],
    state: Mutex<PgDataLossDetectorState>,
    failed: watch::Sender<Option<ErrorMessage>>,
}

/// What a [`PgDataLossDetector`] knows: the server's identity, the last mark, and the writes confirmed since.
#[derive(Default)]
struct PgDataLossDetectorState {
    tells: PgServerIdentity,
    /// As of the last mark.
    known: Option<LastKnownStore>,
    /// Confirmed after it; the newest last.
    unmarked: VecDeque<PgUnmarkedWrite>,
    /// How many commits were confirmed.
    commits: u64,
    /// How many of these the last mark covers.
    marked: u64,
    /// When the last mark was written.
    marked_at: Option<Instant>,
}

/// A confirmed write that no mark covers yet.
struct PgUnmarkedWrite {
    /// The number of its commit.
    commit: u64,
    at: Instant,
    write: UnmarkedWrite,
}

impl PgDataLossDetectorState {
    /// Records a write of the last commit.
    fn wrote(&mut self, write: UnmarkedWrite) {
        self.unmarked.retain(|other| other.write.event != write.event);
        self.unmarked.push_back(PgUnmarkedWrite { commit: self.commits, at: Instant::now(), write });
    }

    fn keep_few(&mut self) {
        while self.unmarked.len() > limits::UNMARKED_WRITES_MAX {
            self.unmarked.pop_front();
        }
        self.drop_old();
    }

    /// Drops old writes. Called only while the server responds: the writes before an outage stay, however long it
    /// lasts.
    fn drop_old(&mut self) {
        self.unmarked.retain(|unmarked| unmarked.at.elapsed() <= limits::UNMARKED_WRITE_AGE_MAX);
    }
}

/// How the server identifies itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct PgServerIdentity {
    system: Option<String>,
    /// The newest timeline that was seen, if the server reports WAL positions.
    timeline: Option<u32>,
}

impl PgServerIdentity {
    /// A mark from before any write.
    fn beginning(&self) -> StoreMark {
        let counter = match self.timeline {
            Some(timeline) => StoreCounter::Wal { timeline, lsn: 0 },
            None => StoreCounter::Writes(0),
        };
        StoreMark { epoch: self.system.clone(), counter }
    }
}

impl Default for PgDataLossDetector {
    fn default() -> Self {
        let mut name = [0; 16];
        aws_lc_rs::rand::fill(&mut name).expect("the system gives random bytes");
        Self { name, state: Mutex::default(), failed: watch::Sender::new(None) }
    }
}

impl PgDataLossDetector {
    fn state(&self) -> MutexGuard<'_, PgDataLossDetectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failed(&self) -> watch::Receiver<Option<ErrorMessage>> {
        self.failed.subscribe()
    }

    /// Fails if the database must not be used any more.
    pub(super) fn holds(&self) -> Result<(), StoreError> {
        match &*self.failed.borrow() {
            Some(why) => Err(StoreError::Broken(why.clone())),
            None => Ok(()),
        }
    }

    /// Reads the server's identity. A managed service may refuse these functions: then the fence works without them.
    pub(super) async fn learn(&self, link: &mut PgConn) {
        let system = one(link, ask!(SYSTEM)).await.ok().and_then(|row| row.get(0));
        let timeline = position(link).await.ok().flatten().map(|(timeline, _)| timeline);
        link.timeline = timeline;
        self.state().tells = PgServerIdentity { system, timeline };
    }

    /// Whether this connection leads to the newest server that was seen.
    pub(super) fn is_current(&self, link: &PgConn) -> bool {
        link.timeline == self.state().tells.timeline
    }

    /// Records writes confirmed over this connection. Fails if that server was replaced meanwhile.
    pub(super) fn confirmed<'a>(
        &self,
        timeline: Option<u32>,
        written: impl Iterator<Item = &'a ConditionalWrite>,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        if timeline != state.tells.timeline {
            return Err(StoreError::Unsure(REPLACED.into()));
        }
        state.commits += 1;
        for op in written.flat_map(|swap| &swap.ops) {
            match op {
                RecordWrite::Put { row, .. } => {
                    state.wrote(UnmarkedWrite { event: row.event.id, revision: row.event.revision, by: self.name });
                }
                RecordWrite::Remove(id, _) => state.unmarked.retain(|other| other.write.event != *id),
                _ => {}
            }
        }
        state.keep_few();
        Ok(())
    }

    /// The same for started events.
    pub(super) fn started(&self, timeline: Option<u32>, events: &[Event]) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        if timeline != state.tells.timeline {
            return Err(StoreError::Unsure(REPLACED.into()));
        }
        state.commits += 1;
        for event in events {
            state.wrote(UnmarkedWrite { event: event.id, revision: event.revision, by: self.name });
        }
        state.keep_few();
        Ok(())
    }

    /// What is known now.
    fn known(&self) -> Option<LastKnownStore> {
        let state = self.state();
        if state.known.is_none() && state.unmarked.is_empty() {
            return None;
        }
        let known = state.known.clone().unwrap_or_else(|| LastKnownStore::at(state.tells.beginning()));
        Some(LastKnownStore { unmarked: state.unmarked.iter().map(|unmarked| unmarked.write).collect(), ..known })
    }

    /// Whether there are unmarked commits, and the last mark is at least this old.
    fn is_unmarked(&self, for_at_least: Duration) -> bool {
        let state = self.state();
        state.commits > state.marked && state.marked_at.is_none_or(|at| at.elapsed() >= for_at_least)
    }

    /// Compares the store with what earlier processes of this machine knew, and writes a first mark, both over one
    /// connection: a server with the mark has what was compared. From then on a server that lacks it is not used.
    pub(super) async fn begin(&self, pool: &PgPool, known: Vec<LastKnownStore>) -> Result<(), StoreError> {
        let mut lent = pool.lend(PgConnPurpose::Look).await?;
        let begun = async {
            for known in known {
                let found = self.found(lent.link(), Some(known.clone())).await?;
                if let Some(loss) = data_loss::loss(&known, &found) {
                    return Err(PgError::Lost(self.lost(&loss, &pool.address)));
                }
            }
            self.mark(lent.link()).await
        };
        begun.await.map_err(|failed| failed.classify(PgCommitStage::Before))?;
        lent.give_back();
        Ok(())
    }

    /// Writes a mark that covers what was confirmed until now.
    async fn mark(&self, link: &mut PgConn) -> Result<(), PgError> {
        let (commits, tells, first) = {
            let state = self.state();
            (state.commits, state.tells.clone(), state.known.is_none())
        };
        let statement = if tells.timeline.is_some() { MARK_WITH_POSITION } else { MARK };
        let row = one(link, ask!(statement, &self.name[..])).await?;
        let wrote = u64::try_from(row.get::<_, i64>(0)).unwrap_or_default();
        let counter = match tells.timeline {
            Some(_) => wal(row.get(1), row.get(2)).map(|(timeline, lsn)| StoreCounter::Wal { timeline, lsn }),
            None => Some(StoreCounter::Writes(wrote)),
        };
        {
            let mut state = self.state();
            // A mark on a server that was replaced meanwhile does not count.
            if link.timeline != state.tells.timeline {
                return Ok(());
            }
            let mark = StoreMark { counter: counter.unwrap_or(state.tells.beginning().counter), epoch: tells.system };
            let writers = vec![WriterMark { name: self.name, wrote }];
            state.known = Some(LastKnownStore { mark, writers, unmarked: Vec::new() });
            state.marked = commits;
            state.marked_at = Some(Instant::now());
            state.unmarked.retain(|unmarked| unmarked.commit > commits);
        }
        if first {
            link.query_all(&[ask!(DROP_WRITERS, WRITERS_MAX)]).await?;
        }
        Ok(())
    }

    /// Writes a mark if there are unmarked commits and the last mark is old enough; returns whether it did. Does
    /// nothing if the server cannot be reached.
    async fn mark_if_due(&self, pool: &PgPool, age: Duration) -> bool {
        if !self.is_unmarked(age) || self.holds().is_err() {
            return false;
        }
        let Ok(mut lent) = pool.lend(PgConnPurpose::Look).await else { return false };
        match self.mark(lent.link()).await {
            Ok(()) => {
                lent.give_back();
                true
            }
            Err(failed) => {
                if matches!(failed, PgError::Said(error) if error.as_db_error().is_some()) {
                    self.state().drop_old();
                }
                false
            }
        }
    }

    /// What is known, after writing a mark.
    pub(super) async fn marked(&self, pool: &PgPool) -> Option<LastKnownStore> {
        let is_marked = self.mark_if_due(pool, Duration::ZERO).await;
        let known = self.known();
        if !is_marked {
            return known;
        }
        // What was confirmed meanwhile is left to the next mark. It is remembered only if no mark can be written: an
        // event looked for much later may have been forgotten rightly.
        known.map(|known| LastKnownStore { unmarked: Vec::new(), ..known })
    }

    /// Compares a server, on a new connection, with what is known.
    pub(super) async fn check(&self, link: &mut PgConn, address: &PostgresUrl) -> Result<(), PgError> {
        loop {
            let (tells, commits) = {
                let state = self.state();
                (state.tells.clone(), state.commits)
            };
            let known = self.known();
            if known.is_none() && tells.timeline.is_none() {
                return Ok(());
            }
            let mark = current(link, &tells).await?;
            link.timeline = match mark.counter {
                StoreCounter::Wal { timeline, .. } => Some(timeline),
                StoreCounter::Writes(_) => tells.timeline,
            };
            let (known, found) = match known {
                // Without a known mark, only an older server can be noticed.
                None => (
                    LastKnownStore::at(tells.beginning()),
                    ObservedStore { mark: Some(mark.clone()), ..ObservedStore::gone() },
                ),
                Some(mut known) => {
                    // Only a failover can have lost what no mark covers; otherwise an event may be missing because it
                    // was forgotten.
                    if tells.timeline.is_some() && link.timeline == tells.timeline {
                        known.unmarked.clear();
                    }
                    let found = find(link, &known, mark.clone()).await?;
                    (known, found)
                }
            };
            if let Some(loss) = data_loss::loss(&known, &found) {
                return Err(PgError::Lost(self.lost(&loss, address)));
            }
            let mut state = self.state();
            if link.timeline == state.tells.timeline {
                return Ok(());
            }
            // A new server. What was committed on the old one while this one was queried is checked, too. A mark that
            // was written to the old one meanwhile does not count.
            if state.tells != tells || state.commits != commits {
                continue;
            }
            state.tells.timeline = link.timeline;
            state.known = Some(known.on_timeline(link.timeline));
            (state.marked, state.marked_at) = (0, None);
            return Ok(());
        }
    }

    /// How much of this the server holds.
    pub(super) async fn found(
        &self,
        link: &mut PgConn,
        known: Option<LastKnownStore>,
    ) -> Result<ObservedStore, PgError> {
        let tells = self.state().tells.clone();
        let mark = current(link, &tells).await?;
        let known = known.unwrap_or_else(|| LastKnownStore::at(mark.clone()));
        find(link, &known, mark).await
    }

    /// Stops the store for good.
    fn lost(&self, loss: &StoreLoss, address: &PostgresUrl) -> String {
        let why = format!("{address}: {loss}");
        self.failed.send_if_modified(|was| {
            let first = was.is_none();
            if first {
                error!(target: "hookonce", why, "broken");
                *was = Some(why.as_str().into());
            }
            first
        });
        why
    }
}

/// The task that writes marks while the store is open; aborted on drop.
pub(super) struct PgMarkTask(AbortHandle);

impl PgMarkTask {
    pub(super) fn start(pool: Arc<PgPool>) -> Self {
        let leave = async move {
            loop {
                tokio::time::sleep(limits::STATE_EVERY).await;
                pool.fence.mark_if_due(&pool, limits::STATE_EVERY).await;
            }
        };
        Self(tokio::spawn(leave).abort_handle())
    }
}

impl Drop for PgMarkTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Timeline and position, from the name of a WAL file and the position as text.
fn wal(file: &str, position: &str) -> Option<(u32, u64)> {
    Some((u32::from_str_radix(file.get(..8)?, 16).ok()?, data_loss::lsn(position)?))
}

/// The single row that this statement returns.
async fn one(link: &mut PgConn, ask: PgQuery<'_>) -> Result<Row, PgError> {
    let rows = link.query_all(&[ask]).await?;
    rows.into_iter().flatten().next().ok_or(PgError::Silent)
}

async fn position(link: &mut PgConn) -> Result<Option<(u32, u64)>, PgError> {
    let row = one(link, ask!(POSITION)).await?;
    Ok(wal(row.get(0), row.get(1)))
}

/// How far the history of this server goes, as far as it reports it.
async fn current(link: &mut PgConn, tells: &PgServerIdentity) -> Result<StoreMark, PgError> {
    let epoch = match tells.system {
        Some(_) => one(link, ask!(SYSTEM)).await?.get(0),
        None => None,
    };
    let counter = match tells.timeline {
        Some(_) => position(link).await?.map(|(timeline, lsn)| StoreCounter::Wal { timeline, lsn }),
        None => None,
    };
    Ok(StoreMark { epoch, counter: counter.unwrap_or(StoreCounter::Writes(0)) })
}

async fn find(link: &mut PgConn, known: &LastKnownStore, mut mark: StoreMark) -> Result<ObservedStore, PgError> {
    let names: Vec<&[u8]> = known.writers.iter().map(|writer| &writer.name[..]).collect();
    let row = one(link, ask!(WRITERS, names, MARKS_VERSION)).await?;
    let wrote = |wrote: i64| u64::try_from(wrote).unwrap_or_default();
    if let StoreCounter::Writes(count) = &mut mark.counter {
        *count = row.get::<_, Option<i64>>(1).map_or(0, wrote);
    }
    let mut missing = 0;
    if !known.unmarked.is_empty() {
        let ids: Vec<_> = known.unmarked.iter().map(|write| PgUuid(write.event)).collect();
        let revisions: Vec<_> =
            known.unmarked.iter().map(|write| i64::try_from(write.revision.0).unwrap_or(i64::MAX)).collect();
        let there: i64 = one(link, ask!(REVISIONS, ids, revisions)).await?.get(0);
        missing = known.unmarked.len().saturating_sub(usize::try_from(there).unwrap_or_default());
    }
    Ok(ObservedStore {
        mark: Some(mark),
        writers: row.get::<_, Vec<Option<i64>>>(2).into_iter().map(|found| found.map(wrote)).collect(),
        drops_writers: row.get::<_, i64>(0) >= WRITERS_MAX,
        marks_since: row.get::<_, Option<i64>>(3).map_or(0, wrote),
        missing,
    })
}
