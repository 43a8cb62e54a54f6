//! The PostgreSQL store, which many nodes share.
//!
//! ```text
//! claim, advance, … ─▶ optimistic (the rules) ─▶ read records              read.rs
//!                                             └▶ conditional writes        write.rs, batch_writes.rs, rows.rs
//! advance_with_sql  ─▶ the same with a statement ─▶ a transaction of its own   sql.rs
//! due, list, …      ─────────────────────────────▶ queries                 queries.rs, list.rs
//! other nodes       ◀──── listen, notify ────────▶ other nodes             notify.rs
//! ```
//!
//! Every statement of ours names the store's schema (`{schema}.events`); sessions keep the user's own `search_path`,
//! under which the user's statements run.
//!
//! No rule is written in SQL. The server's clock is the store's; a commit is on its disk before any response is sent.

pub(crate) mod batch_writes;
pub(crate) mod columns;
pub(crate) mod data_loss;
mod dictionaries;
mod dictionary_removal;
pub(crate) mod error;
mod export;
pub mod indexes;
pub(crate) mod list;
pub(crate) mod notify;
mod pool;
mod pooling;
pub(crate) mod queries;
mod read;
pub mod relocate;
mod retention;
mod rows;
pub mod sessions;
pub(crate) mod sql;
pub(crate) mod start_due;
#[cfg(test)]
pub(crate) mod unresponsive_server;
pub(crate) mod url;
mod write;

pub(super) use dictionary_removal::pack_all_anew;

use super::clock::StoreClock;
use super::copy::{CopyCursor, CopyLockCheck, ExportBackend, ExportPage, ExportStore, UnversionedCopyData};
use super::inspect::QuarantinedMessage;
use super::optimistic;
use super::optimistic::{
    ClockAccess, ConditionalWrite, ReadBatch, RecordId, RecordVersion, SqlWriteOutcome, VersionedBackend,
};
use super::schema::postgres::{SchemaLocation, SchemaName, StoreSchemaError};
use super::schema::{self, postgres as migrations};
use super::{
    ChangeHint, DeclaredFields, DueEvents, DueQuery, DuplicateNote, EventCounts, EventDetails, EventPage, EventQuery,
    Inspect, RetentionPolicies, SourceCount, SourceRetention, SqlPermitFuture, StartDueRequest, StartDueResult,
    StoreBackend, StoreError, StoreFuture, StoreOpenError, StoredValue, WriteProbe,
};
use crate::decide::claim::Payload;
use crate::decide::data_loss::{LastKnownStore, ObservedStore};
use crate::decide::error_message::ErrorMessage;
use crate::decide::event::{Event, Receipt};
use crate::decide::id::{EventId, Key};
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::ledger::SubjectRegister;
use crate::decide::sql_template::BoundStatement;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::{Duration, Timestamp};
use data_loss::{PgMarkTask, REPLACED};
use dictionaries::PgDictionaries;
use error::PgCommitStage;
use notify::PostgresNotifier;
use pool::{PgConn, PgConnPurpose, PgError, PgPool, PgSessionMode, PooledConn};
use relocate::RelocateError;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{broadcast, watch};
use tokio_postgres::Client;
use tracing::warn;
use url::{DurabilityCheck, PostgresUrl};

/// The oldest supported server: 13.
const SERVER_MIN: i32 = 130_000;
/// How long senders whose batch is written wait until the result of a trial of dictionaries is, too.
const SETTLE_TIME: Duration = Duration::from_millis(250);

/// The options for opening a PostgreSQL store, besides its URL.
#[derive(Clone, Debug)]
pub struct PostgresOpenOptions {
    /// The store's clock; [`StoreClock::server`] outside of tests.
    pub clock: StoreClock,
    /// How the schema is treated.
    pub schema: SchemaMode,
}

/// The treatment of a schema that is older than this binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaMode {
    /// It is migrated, and its indexes are built.
    Auto,
    /// It is left alone: an operator runs `hookonce migrate up`.
    Manual,
    /// The same, and nothing at all is written: for commands that only read.
    Read,
}

/// A store in tables of a PostgreSQL database.
pub struct PostgresStore {
    pool: Arc<PgPool>,
    clock: StoreClock,
    hints: PostgresNotifier,
    notes: Mutex<Vec<DuplicateNote>>,
    pen: tokio::sync::Mutex<()>,
    builder: indexes::IndexBuilder,
    dictionaries: PgDictionaries,
    schema: SchemaMode,
    /// Writes marks until the store is closed.
    _marker: Option<PgMarkTask>,
}

impl PostgresStore {
    /// Opens the database that this URL names: `postgres://user:password@host:5432/database?sslmode=…`.
    pub async fn open(url: &str, options: PostgresOpenOptions) -> Result<Self, StoreOpenError> {
        let session = match options.schema {
            SchemaMode::Auto | SchemaMode::Manual => PgSessionMode::Writes,
            SchemaMode::Read => PgSessionMode::Reads,
        };
        Self::open_as(url, options, session).await
    }

    /// Opens it as the source or target of a copy.
    pub async fn open_to_copy(url: &str, options: PostgresOpenOptions) -> Result<Self, StoreOpenError> {
        Self::open_as(url, options, PgSessionMode::Copies).await
    }

    async fn open_as(url: &str, options: PostgresOpenOptions, session: PgSessionMode) -> Result<Self, StoreOpenError> {
        let address = PostgresUrl::parse(url).map_err(StoreOpenError::permanent)?;
        let pool = Arc::new(PgPool::new(address, session));
        let mut link = pool.open().await?;
        fit_server(&pool, &mut link, options.schema).await?;
        let schema = locate(&pool, &link).await?;
        // Before the version is read: from here on no migration can be undone.
        if session != PgSessionMode::Reads {
            let told = sessions::hold_schema_lock(&link.client, &schema).await;
            told.map_err(|error| error::cannot_tell(&pool.address, error))?;
        }
        fit_schema(&pool, &mut link, &schema, options.schema).await?;
        pool.fence.learn(&mut link).await;
        pool.use_schema(schema);
        if link.timeline.is_none() {
            pool.fence.check(&mut link, &pool.address).await.map_err(|failed| pool.cannot_open(failed))?;
        }
        let dictionaries = PgDictionaries::default();
        dictionaries.notice(&link).await.map_err(|failed| pool.cannot_open(failed))?;
        pool.put(link, PgConnPurpose::Write);
        let (clock, hints) = (options.clock, PostgresNotifier::start(pool.clone()));
        let (notes, pen, builder) = (Mutex::default(), tokio::sync::Mutex::default(), indexes::IndexBuilder::default());
        let marker = (session == PgSessionMode::Writes).then(|| PgMarkTask::start(pool.clone()));
        let schema = options.schema;
        let opened = Self { pool, clock, hints, notes, pen, builder, dictionaries, schema, _marker: marker };
        let cannot =
            |error: StoreError| StoreOpenError::temporary(format!("{}: {error}", opened.pool.address)).caused_by(error);
        let begins = if session == PgSessionMode::Writes { ClockAccess::Writing } else { ClockAccess::Looking };
        optimistic::begin(&opened, begins).await.map_err(cannot)?;
        Ok(opened)
    }

    /// Logs that the store lacks the version that nodes do not apply.
    pub(super) fn log_missing_version(&self) {
        self.dictionaries.log_if_missing();
    }

    async fn lend(&self, purpose: PgConnPurpose) -> Result<PooledConn<'_>, StoreError> {
        self.pool.lend(purpose).await
    }

    /// The server and the name of this store, independent of the user: every server that the URL names, the database,
    /// and the schema if it is not the default.
    pub fn identity(url: &str) -> Result<(String, String), StoreOpenError> {
        let address = PostgresUrl::parse(url).map_err(StoreOpenError::permanent)?;
        let other = address.schema.as_ref().filter(|schema| **schema != SchemaName::default());
        let of = other.map_or(String::new(), |schema| format!(" schema {}", schema.as_str()));
        Ok((format!("{}{of}", address.place()), format!("{}{of}", address.database())))
    }

    /// A separate connection to the database that this URL names, and the schema of the store there: for commands that
    /// change its tables.
    pub async fn connect(url: &str) -> Result<(Client, SchemaName), StoreOpenError> {
        let address = PostgresUrl::parse(url).map_err(StoreOpenError::permanent)?;
        let pool = PgPool::new(address, PgSessionMode::Writes);
        let link = pool.open().await?;
        let schema = locate(&pool, &link).await?;
        Ok((link.client, schema))
    }

    /// Moves the store of the database that this URL names to another schema. Returns the connection and the former
    /// schema, or `None` if it is there already. No node may run.
    pub async fn relocate(url: &str, to: &SchemaName) -> Result<(Client, Option<SchemaName>), StoreOpenError> {
        let address = PostgresUrl::parse(url).map_err(StoreOpenError::permanent)?;
        let pool = PgPool::new(address, PgSessionMode::Writes);
        let mut client = pool.open().await?.client;
        let said = |why: String| StoreOpenError::permanent(format!("{}: {why}", pool.address));
        let from = match migrations::locate(&client, pool.address.schema.as_ref()).await {
            Ok(located) => located.schema,
            // A URL that already names the new schema means the store that is to be moved there.
            Err(migrations::PgMigrationError::Conflict(StoreSchemaError::Elsewhere { named, found }))
                if named == *to =>
            {
                found
            }
            Err(problem) => return Err(left(&pool, problem)),
        };
        if from == *to {
            return Ok((client, None));
        }
        let applied = migrations::applied(&client, &from).await;
        if applied.map_err(|error| error::cannot_open(&pool.address, error))?.is_empty() {
            return Err(said(format!(
                "there is no store to move; to create one in schema {to}, add `schema={}` to the URL and run \
                 `hookonce migrate up`",
                to.as_str()
            )));
        }
        match relocate::relocate(&mut client, &from, to).await {
            Ok(()) => Ok((client, Some(from))),
            Err(RelocateError::Problem(problem)) => Err(left(&pool, problem)),
            Err(refused) => Err(said(refused.to_string()).caused_by(refused)),
        }
    }

    /// Does this URL name the schema, explicitly or by default?
    pub fn names(url: &str, schema: &SchemaName) -> bool {
        PostgresUrl::parse(url).is_ok_and(|address| address.schema.unwrap_or_default() == *schema)
    }

    /// The migrations that a starting node applies to the store of this URL. Changes nothing.
    pub async fn behind(url: &str) -> Result<Vec<&'static schema::Migration>, StoreOpenError> {
        let address = PostgresUrl::parse(url).map_err(StoreOpenError::permanent)?;
        let pool = PgPool::new(address, PgSessionMode::Reads);
        let link = pool.open().await?;
        let schema = locate(&pool, &link).await?;
        let applied = migrations::applied(&link.client, &schema).await;
        let applied = applied.map_err(|error| error::cannot_open(&pool.address, error))?;
        let way = migrations::way_at_start(&applied);
        way.map_err(|refused| left(&pool, refused.into()))
    }

    async fn swap(&self, swaps: Vec<ConditionalWrite>, heeds: CopyLockCheck) -> Result<Vec<bool>, StoreError> {
        let mut lent = self.lend(PgConnPurpose::Write).await?;
        let learned = self.dictionaries.learn(lent.link(), &swaps).await;
        learned.map_err(|failed| failed.classify(PgCommitStage::Before))?;
        let (written, hints) = write::write(lent.link(), &swaps, heeds, &self.dictionaries).await?;
        let over = lent.give_back();
        let all = swaps.iter().zip(&written);
        self.pool.fence.confirmed(over, all.filter(|(_, written)| **written).map(|(swap, _)| swap))?;
        self.hints.tell(hints);
        if self.dictionaries.has_changes() {
            // What is written stays written, and its senders wait; a dictionary that cannot be is chosen again later.
            let settle = self.look(PgConnPurpose::Write, async |link| self.dictionaries.settle(link).await);
            let _ = tokio::time::timeout(SETTLE_TIME, settle).await;
        }
        Ok(written)
    }

    /// Runs a query that writes nothing, or whose repetition is harmless.
    async fn look<T>(
        &self,
        purpose: PgConnPurpose,
        ask: impl AsyncFnOnce(&mut PgConn) -> Result<T, PgError>,
    ) -> Result<T, StoreError> {
        let mut lent = self.lend(purpose).await?;
        let found = ask(lent.link()).await.map_err(|failed| failed.classify(PgCommitStage::Before))?;
        if !self.pool.fence.is_current(lent.link()) {
            return Err(StoreError::Down(REPLACED.into()));
        }
        lent.give_back();
        Ok(found)
    }
}

/// Refuses servers that cannot guarantee durability, and reads their clock.
async fn fit_server(pool: &PgPool, link: &mut PgConn, schema: SchemaMode) -> Result<(), StoreOpenError> {
    let sql = "select current_setting('server_version_num')::int, current_setting('fsync'), \
               current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('server_version')";
    let address = &pool.address;
    let row = link.client.query_one(sql, &[]).await.map_err(|error| error::cannot_open(address, error))?;
    let ever = |why: String| Err(StoreOpenError::permanent(format!("{address}: {why}")));
    if row.get::<_, i32>(0) < SERVER_MIN {
        return ever(format!("it is PostgreSQL {}; hookonce needs 13 or newer", row.get::<_, &str>(4)));
    }
    if row.get::<_, bool>(3) && schema != SchemaMode::Read {
        return ever("it is a read-only replica; use the URL of the primary".into());
    }
    for (place, name, loses) in [(1, "fsync", "a crash can lose"), (2, "full_page_writes", "a crash can corrupt")] {
        if row.get::<_, &str>(place) != "off" || schema == SchemaMode::Read {
            continue;
        }
        if address.durability == DurabilityCheck::Operator {
            let why = format!(
                "{address} runs with `{name} = off`: {loses} what was acknowledged to senders, unless the service is \
                 durable by other means, as `durable=yes` in the URL says"
            );
            warn!(target: "hookonce", why, "store");
            continue;
        }
        return ever(format!(
            "it runs with `{name} = off`: {loses} what was acknowledged to senders; set `{name} = on` in \
             postgresql.conf and reload it. Where the service keeps what it has committed by other means, add \
             `durable=yes` to the URL"
        ));
    }
    Ok(())
}

/// Migrates the store's schema, or checks it.
async fn fit_schema(
    pool: &PgPool,
    link: &mut PgConn,
    name: &SchemaName,
    schema: SchemaMode,
) -> Result<(), StoreOpenError> {
    let fits = match schema {
        SchemaMode::Auto => migrations::up_at_start(&mut link.client, name).await.map(drop),
        SchemaMode::Manual | SchemaMode::Read => match migrations::applied(&link.client, name).await {
            Ok(applied) => migrations::fits(&applied).map_err(Into::into),
            Err(error) => Err(error.into()),
        },
    };
    fits.map_err(|problem| left(pool, problem))
}

async fn locate(pool: &PgPool, link: &PgConn) -> Result<SchemaName, StoreOpenError> {
    let located = migrations::locate(&link.client, pool.address.schema.as_ref()).await;
    let SchemaLocation { schema, others } = located.map_err(|problem| left(pool, problem))?;
    for other in others {
        let why = format!("schema {other} holds another store, which is not used; this one is in schema {schema}");
        warn!(target: "hookonce", why, "schema");
    }
    Ok(schema)
}

/// The error for a schema that was not migrated.
fn left(pool: &PgPool, problem: migrations::PgMigrationError) -> StoreOpenError {
    match problem {
        migrations::PgMigrationError::Postgres(error) => error::cannot_open(&pool.address, error),
        refused => StoreOpenError::permanent(format!("{}: {refused}", pool.address)).caused_by(refused),
    }
}

impl StoreBackend for PostgresStore {
    fn sql_permit(&self) -> SqlPermitFuture<'_> {
        self.pool.effects.next()
    }

    fn payload(&self, id: EventId) -> StoreFuture<'_, StoredValue<Payload>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            queries::payload(link, id, &self.dictionaries).await
        }))
    }

    fn receipt(&self, id: EventId) -> StoreFuture<'_, Option<Receipt>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::receipt(link, id).await))
    }

    fn start_due(&self, starts: StartDueRequest) -> StoreFuture<'_, StartDueResult> {
        Box::pin(async move {
            let mut lent = self.lend(PgConnPurpose::Write).await?;
            let (fence, dictionaries) = (&self.pool.fence, &self.dictionaries);
            let started = start_due::start_due(lent.link(), &starts, &self.clock, fence, dictionaries).await?;
            lent.give_back();
            Ok(started)
        })
    }

    /// Notes that arrive during a write are collected and written together.
    fn note_duplicates(&self, notes: Vec<DuplicateNote>) -> StoreFuture<'_, ()> {
        let held = || self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        held().extend(notes);
        Box::pin(async move {
            let _pen = self.pen.lock().await;
            let notes = std::mem::take(&mut *held());
            if notes.is_empty() {
                return Ok(());
            }
            self.look(PgConnPurpose::Look, async |link| queries::note(link, &notes).await).await
        })
    }

    fn retention(&self) -> StoreFuture<'_, Vec<SourceRetention>> {
        Box::pin(self.look(PgConnPurpose::Look, async |link: &mut PgConn| retention::retention(link).await))
    }

    fn set_retention(&self, rows: Vec<SourceRetention>) -> StoreFuture<'_, ()> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| retention::retain(link, &rows).await))
    }

    fn quarantine(&self, message: QuarantinedMessage) -> StoreFuture<'_, ()> {
        Box::pin(self.look(PgConnPurpose::Write, async move |link: &mut PgConn| queries::lay(link, &message).await))
    }

    fn probe(&self, probe: WriteProbe) -> StoreFuture<'_, ()> {
        match probe {
            WriteProbe::Alive | WriteProbe::Look => Box::pin(std::future::ready(Ok(()))),
            WriteProbe::Write => {
                Box::pin(self.look(PgConnPurpose::Write, async |link: &mut PgConn| queries::probe(link).await))
            }
        }
    }

    fn failed(&self) -> watch::Receiver<Option<ErrorMessage>> {
        self.pool.fence.failed()
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn hints(&self) -> Option<broadcast::Receiver<ChangeHint>> {
        Some(self.hints.listen())
    }

    fn send_hint(&self, hint: ChangeHint) -> StoreFuture<'_, ()> {
        self.hints.tell(vec![hint]);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl VersionedBackend for PostgresStore {
    fn read(&self, cells: Vec<RecordId>, turns: usize) -> StoreFuture<'_, ReadBatch> {
        Box::pin(async move {
            read::fits(turns)?;
            self.look(PgConnPurpose::Write, async |link| read::read(link, &cells, turns, &self.clock).await).await
        })
    }

    fn write(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(self.swap(swaps, CopyLockCheck::Mark))
    }

    fn fill(&self, swaps: Vec<ConditionalWrite>) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(self.swap(swaps, CopyLockCheck::Nothing))
    }

    fn write_with<'a>(
        &'a self,
        swap: ConditionalWrite,
        statement: &'a BoundStatement,
    ) -> StoreFuture<'a, SqlWriteOutcome> {
        Box::pin(async move {
            let mut lent = self.lend(PgConnPurpose::Effect).await?;
            let learned = self.dictionaries.learn(lent.link(), std::slice::from_ref(&swap)).await;
            learned.map_err(|failed| failed.classify(PgCommitStage::Before))?;
            let (swapped, hints) = sql::write(lent.link(), &swap, statement, &self.dictionaries).await?;
            let over = lent.give_back();
            if matches!(swapped, SqlWriteOutcome::Written) {
                self.pool.fence.confirmed(over, std::iter::once(&swap))?;
            }
            self.hints.tell(hints);
            Ok(swapped)
        })
    }

    fn shares_commits(&self) -> bool {
        true
    }

    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> StoreFuture<'a, Vec<EventId>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            queries::forgettable(link, source, before, limit).await
        }))
    }

    fn with_old_bodies<'a>(
        &'a self,
        source: &'a str,
        before: Timestamp,
        limit: usize,
    ) -> StoreFuture<'a, Vec<EventId>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            queries::with_old_bodies(link, source, before, limit).await
        }))
    }

    fn sweep_dictionaries(&self, keeps: Arc<RetentionPolicies>) -> StoreFuture<'_, ()> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            self.dictionaries.sweep(link, &keeps, self.clock.expiry().time).await
        }))
    }

    fn remove_dictionaries_of_events(&self, events: Vec<EventId>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let remove = async |link: &mut PgConn| self.dictionaries.remove_of_events(link, &events).await;
            self.look(PgConnPurpose::Look, remove).await?.is_complete()
        })
    }

    fn remove_dictionaries_of_source(&self, source: String) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let remove = async |link: &mut PgConn| self.dictionaries.remove_of_source(link, &source).await;
            self.look(PgConnPurpose::Look, remove).await?.is_complete()
        })
    }

    fn due_or_damaged(&self, look: DueQuery, limit: usize) -> StoreFuture<'_, DueEvents> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            queries::due(link, &look, limit, &self.clock).await
        }))
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(self.look(PgConnPurpose::Look, async |link: &mut PgConn| queries::last_seen(link, &self.clock).await))
    }

    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(
            self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
                queries::set_last_seen(link, was, time).await
            }),
        )
    }

    fn agree_on_clock(&self, was: AgreedClock, is: AgreedClock) -> StoreFuture<'_, ()> {
        Box::pin(
            self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::agree_on_clock(link, was, is).await),
        )
    }
}

impl Inspect for PostgresStore {
    fn list(&self, listing: EventQuery) -> StoreFuture<'_, Vec<Event>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::list(link, &listing).await))
    }

    fn page(&self, listing: EventQuery) -> StoreFuture<'_, EventPage> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| list::page(link, &listing).await))
    }

    fn counts(&self) -> StoreFuture<'_, EventCounts> {
        Box::pin(self.look(PgConnPurpose::Look, async |link: &mut PgConn| list::census(link).await))
    }

    fn details(&self, id: EventId) -> StoreFuture<'_, Option<EventDetails>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::story(link, id).await))
    }

    fn find_by_name(&self, name: String, limit: usize) -> StoreFuture<'_, Vec<Event>> {
        Box::pin(
            self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::named(link, &name, limit).await),
        )
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> StoreFuture<'_, Vec<SourceCount>> {
        Box::pin(
            self.look(PgConnPurpose::Look, async move |link: &mut PgConn| retention::other_sources(link, &known).await),
        )
    }

    fn recipes(&self) -> StoreFuture<'_, Vec<IdentityRecipe>> {
        Box::pin(self.look(PgConnPurpose::Look, async |link: &mut PgConn| queries::recipes(link).await))
    }

    fn set_recipes(&self, recipes: Vec<IdentityRecipe>) -> StoreFuture<'_, ()> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::remember(link, &recipes).await))
    }

    fn registers(&self, after: Option<Key>, limit: usize) -> StoreFuture<'_, Vec<(Key, SubjectRegister)>> {
        Box::pin(super::copy::registers(self, after, limit))
    }

    fn quarantined(&self, limit: usize) -> StoreFuture<'_, Vec<QuarantinedMessage>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| queries::newest(link, limit).await))
    }

    fn declare(&self, sources: Vec<DeclaredFields>) -> StoreFuture<'_, Vec<String>> {
        // A node that may change the schema may also build its indexes; otherwise `hookonce migrate up` does.
        if self.schema == SchemaMode::Auto {
            self.builder.begin(self.pool.clone(), &sources);
        }
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| columns::declare(link, &sources).await))
    }

    fn known(&self) -> StoreFuture<'_, Option<LastKnownStore>> {
        Box::pin(async move { Ok(self.pool.fence.marked(&self.pool).await) })
    }

    fn begin_fence(&self, known: Vec<LastKnownStore>) -> StoreFuture<'_, ()> {
        Box::pin(self.pool.fence.begin(&self.pool, known))
    }

    fn compare_history(&self, known: Option<LastKnownStore>) -> StoreFuture<'_, Option<ObservedStore>> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            Ok(Some(self.pool.fence.found(link, known).await?))
        }))
    }
}

impl ExportStore for PostgresStore {
    fn export(&self, from: CopyCursor, limit: usize) -> StoreFuture<'_, ExportPage> {
        Box::pin(self.look(PgConnPurpose::Look, async move |link: &mut PgConn| {
            export::export(link, from, limit, &self.dictionaries).await
        }))
    }

    fn entries(&self) -> StoreFuture<'_, u64> {
        Box::pin(self.look(PgConnPurpose::Look, async |link: &mut PgConn| export::entries(link).await))
    }

    fn settled(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.look(PgConnPurpose::Write, async |link: &mut PgConn| write::settled(link).await))
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        rows::text(text)
    }
}

impl ExportBackend for PostgresStore {
    fn connected(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(self.look(PgConnPurpose::Look, async |link: &mut PgConn| {
            let nodes = sessions::nodes_beside_a_copy(&link.client, &link.schema()).await?;
            Ok((!nodes.is_empty()).then(|| format!("hookonce has {}", sessions::NodeSessionList(&nodes))))
        }))
    }

    fn fill_beside(&self, beside: UnversionedCopyData, mark: RecordVersion) -> StoreFuture<'_, bool> {
        Box::pin(
            self.look(PgConnPurpose::Write, async move |link: &mut PgConn| {
                write::fill_beside(link, &beside, mark).await
            }),
        )
    }
}
