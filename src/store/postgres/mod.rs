//! PostgreSQL: a store that many nodes share.
//!
//! ```text
//! claim, advance, … ─▶ Shared (the rules, in Rust) ─▶ read cells      read.rs
//!                                                  └▶ write swaps     write.rs, swap.rs, rows.rs, beside.rs, mark.rs
//! effect             ─▶ the same with a statement    ▶ a transaction of its own      effect.rs
//! get, due, list, …  ─────────────────────────────────▶ look          look.rs, listed.rs
//! other nodes        ◀───── listen, notify ────────────▶ other nodes  hints.rs
//! ```
//!
//! Every statement of ours names the schema that the store lives in (`{schema}.events`); sessions keep the user's own
//! `search_path`, under which the user's statements run.
//!
//! No rule stands in SQL. The server's clock is the store's; a commit is on its disk before anybody is answered.

mod address;
mod beside;
mod declare;
mod effect;
mod export;
mod fence;
mod hints;
pub mod indexes;
mod listed;
mod look;
mod mark;
mod pool;
mod pooling;
mod quarantine;
mod read;
pub mod relocate;
mod retention;
mod rows;
pub mod running;
#[cfg(test)]
mod silence;
mod start;
mod swap;
mod trouble;
mod write;

use super::clock::Clock;
use super::copy::{Beside, Cursor, ExportShelf, Exported, Heeds};
use super::quarantine::Quarantined;
use super::schema::postgres::{Located, SchemaConflict, SchemaName};
use super::schema::{self, postgres as migrations};
use super::shared::{self, Begins, Cell, Reading, Shelf, Swap, Swapped, Version};
use super::{
    Answer, CannotOpen, Census, Declared, Due, Hint, Listing, Look, Note, Page, Placing, Probe, SourceCount,
    SourceRetention, Started, Starts, StoreError, Stored, Story,
};
use crate::decide::claim::Payload;
use crate::decide::event::{Event, Receipt};
use crate::decide::fence::{FoundStore, KnownStore};
use crate::decide::id::EventId;
use crate::decide::recipe::Recipe;
use crate::decide::statement::Bound;
use crate::decide::store_clock::AgreedClock;
use crate::decide::time::Timestamp;
use crate::telemetry::{self, Level};
use address::{Address, Durability};
use fence::{Marker, REPLACED};
use hints::Hints;
use pool::{Failed, Lent, Link, Pool, Purpose, Session};
use relocate::RelocateError;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{broadcast, watch};
use tokio_postgres::Client;
use trouble::Stage;

/// The oldest server there may be: 13.
const SERVER_MIN: i32 = 130_000;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's clock; [`Clock::server`] outside of tests.
    pub clock: Clock,
    /// What is done about the schema.
    pub schema: Schema,
}

/// What is done about a schema that is older than this binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schema {
    /// It is brought up to date, and its indexes are built.
    Auto,
    /// It is left alone: a person runs `hookonce migrate up`.
    Manual,
    /// The same, and nothing at all is written: for commands that only look.
    Read,
}

/// Cells in tables of a PostgreSQL database. The store is [`Shared`](super::shared::Shared) over it.
pub struct Postgres {
    pool: Arc<Pool>,
    clock: Clock,
    hints: Hints,
    notes: Mutex<Vec<Note>>,
    pen: tokio::sync::Mutex<()>,
    builder: indexes::Builder,
    schema: Schema,
    /// Leaves marks until the store is closed.
    _marker: Option<Marker>,
}

impl Postgres {
    /// Opens the database that this URL names: `postgres://user:password@host:5432/database?sslmode=…`.
    pub async fn open(url: &str, options: Options) -> Result<Self, CannotOpen> {
        let session = match options.schema {
            Schema::Auto | Schema::Manual => Session::Writes,
            Schema::Read => Session::Reads,
        };
        Self::open_as(url, options, session).await
    }

    /// Opens it to copy from it, or into it.
    pub async fn open_to_copy(url: &str, options: Options) -> Result<Self, CannotOpen> {
        Self::open_as(url, options, Session::Copies).await
    }

    async fn open_as(url: &str, options: Options, session: Session) -> Result<Self, CannotOpen> {
        let address = Address::parse(url).map_err(CannotOpen::Ever)?;
        let pool = Arc::new(Pool::new(address, session));
        let mut link = pool.open().await?;
        fit_server(&pool, &mut link, options.schema).await?;
        let schema = locate(&pool, &link).await?;
        // Before the version is read: from here on nobody takes a version back.
        if session != Session::Reads {
            let told = running::tell(&link.client, &schema).await;
            told.map_err(|error| trouble::cannot_tell(&pool.address, &error))?;
        }
        fit_schema(&pool, &mut link, &schema, options.schema).await?;
        pool.fence.learn(&mut link).await;
        pool.use_schema(schema);
        if link.timeline.is_none() {
            pool.fence.check(&mut link, &pool.address).await.map_err(|failed| pool.cannot_open(failed))?;
        }
        pool.put(link, Purpose::Write);
        let (clock, hints) = (options.clock, Hints::start(pool.clone()));
        let (notes, pen, builder) = (Mutex::default(), tokio::sync::Mutex::default(), indexes::Builder::default());
        let marker = (session == Session::Writes).then(|| Marker::start(pool.clone()));
        let opened = Self { pool, clock, hints, notes, pen, builder, schema: options.schema, _marker: marker };
        let cannot = |error| CannotOpen::Yet(format!("{}: {error}", opened.pool.address));
        let begins = if session == Session::Writes { Begins::Writing } else { Begins::Looking };
        shared::begin(&opened, begins).await.map_err(cannot)?;
        Ok(opened)
    }

    async fn lend(&self, purpose: Purpose) -> Result<Lent<'_>, StoreError> {
        self.pool.lend(purpose).await
    }

    /// What tells this store from others, whoever connects to it: every server that the URL names, the database, and the
    /// schema if it is not the usual one.
    pub fn identity(url: &str) -> Result<(String, String), CannotOpen> {
        let address = Address::parse(url).map_err(CannotOpen::Ever)?;
        let other = address.schema.as_ref().filter(|schema| **schema != SchemaName::default());
        let of = other.map_or(String::new(), |schema| format!(" schema {}", schema.as_str()));
        Ok((format!("{}{of}", address.place()), format!("{}{of}", address.database())))
    }

    /// A connection of one's own to the database that this URL names, and the schema of the store there: for commands
    /// that change its tables.
    pub async fn connect(url: &str) -> Result<(Client, SchemaName), CannotOpen> {
        let address = Address::parse(url).map_err(CannotOpen::Ever)?;
        let pool = Pool::new(address, Session::Writes);
        let link = pool.open().await?;
        let schema = locate(&pool, &link).await?;
        Ok((link.client, schema))
    }

    /// Moves the store of the database that this URL names to another schema. Brings the connection, and where the store
    /// was; `None`: it is there already. No node may run.
    pub async fn relocate(url: &str, to: &SchemaName) -> Result<(Client, Option<SchemaName>), CannotOpen> {
        let address = Address::parse(url).map_err(CannotOpen::Ever)?;
        let pool = Pool::new(address, Session::Writes);
        let mut client = pool.open().await?.client;
        let said = |why: String| CannotOpen::Ever(format!("{}: {why}", pool.address));
        let from = match migrations::locate(&client, pool.address.schema.as_ref()).await {
            Ok(located) => located.schema,
            // Whoever names the new schema in the URL already means the store that is to be moved there.
            Err(migrations::Problem::Conflict(SchemaConflict::Elsewhere { named, found })) if named == *to => found,
            Err(problem) => return Err(left(&pool, problem)),
        };
        if from == *to {
            return Ok((client, None));
        }
        let applied = migrations::applied(&client, &from).await;
        if applied.map_err(|error| trouble::cannot_open(&pool.address, &error))?.is_empty() {
            return Err(said(format!(
                "there is no store to move; to begin one in schema {to}, add `schema={}` to the URL and run \
                 `hookonce migrate up`",
                to.as_str()
            )));
        }
        match relocate::relocate(&mut client, &from, to).await {
            Ok(()) => Ok((client, Some(from))),
            Err(RelocateError::Problem(problem)) => Err(left(&pool, problem)),
            Err(refused) => Err(said(refused.to_string())),
        }
    }

    /// Does this URL name the schema, or mean it where it names none?
    pub fn names(url: &str, schema: &SchemaName) -> bool {
        Address::parse(url).is_ok_and(|address| address.schema.unwrap_or_default() == *schema)
    }

    /// What the schema of the database that this URL names lacks; nothing of it is changed.
    pub async fn behind(url: &str) -> Result<Vec<&'static schema::Migration>, CannotOpen> {
        let address = Address::parse(url).map_err(CannotOpen::Ever)?;
        let pool = Pool::new(address, Session::Reads);
        let link = pool.open().await?;
        let schema = locate(&pool, &link).await?;
        let applied = migrations::applied(&link.client, &schema).await;
        let applied = applied.map_err(|error| trouble::cannot_open(&pool.address, &error))?;
        let way = schema::way_up(migrations::MIGRATIONS, &applied, None);
        way.map_err(|refused| CannotOpen::Ever(format!("{}: {refused}", pool.address)))
    }

    async fn swap(&self, swaps: Vec<Swap>, heeds: Heeds) -> Result<Vec<bool>, StoreError> {
        let mut lent = self.lend(Purpose::Write).await?;
        let (written, hints) = write::write(lent.link(), &swaps, heeds).await?;
        let over = lent.give_back();
        let all = swaps.iter().zip(&written);
        self.pool.fence.confirmed(over, all.filter(|(_, written)| **written).map(|(swap, _)| swap))?;
        self.hints.tell(hints);
        Ok(written)
    }

    /// Asks something of one connection that writes nothing, or what does no harm if it is written again.
    async fn look<T>(
        &self,
        purpose: Purpose,
        ask: impl AsyncFnOnce(&mut Link) -> Result<T, Failed>,
    ) -> Result<T, StoreError> {
        let mut lent = self.lend(purpose).await?;
        let found = ask(lent.link()).await.map_err(|failed| failed.classify(Stage::Before))?;
        if !self.pool.fence.is_current(lent.link()) {
            return Err(StoreError::Down(REPLACED.into()));
        }
        lent.give_back();
        Ok(found)
    }
}

/// Refuses servers that cannot keep what is promised; brings their clock.
async fn fit_server(pool: &Pool, link: &mut Link, schema: Schema) -> Result<(), CannotOpen> {
    let sql = "select current_setting('server_version_num')::int, current_setting('fsync'), \
               current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('server_version')";
    let address = &pool.address;
    let row = link.client.query_one(sql, &[]).await.map_err(|error| trouble::cannot_open(address, &error))?;
    let ever = |why: String| Err(CannotOpen::Ever(format!("{address}: {why}")));
    if row.get::<_, i32>(0) < SERVER_MIN {
        return ever(format!("it is PostgreSQL {}; hookonce needs 13 or newer", row.get::<_, &str>(4)));
    }
    if row.get::<_, bool>(3) && schema != Schema::Read {
        return ever("it is a replica, which cannot be written to; give the URL of the primary".into());
    }
    for (place, name, loses) in [(1, "fsync", "a crash can lose"), (2, "full_page_writes", "a crash can tear")] {
        if row.get::<_, &str>(place) != "off" || schema == Schema::Read {
            continue;
        }
        if address.durability == Durability::Operator {
            let why = format!(
                "{address} runs with `{name} = off`: {loses} what senders were told is safe, unless the service is \
                 durable by other means, as `durable=yes` in the URL says"
            );
            telemetry::say(Level::Warn, "store", &[("why", &why)]);
            continue;
        }
        return ever(format!(
            "it runs with `{name} = off`: {loses} what senders were told is safe; set `{name} = on` in \
             postgresql.conf and reload it. Where the service keeps what it has committed by other means, add \
             `durable=yes` to the URL"
        ));
    }
    Ok(())
}

/// Brings the store's schema up to date, or sees that it is.
async fn fit_schema(pool: &Pool, link: &mut Link, name: &SchemaName, schema: Schema) -> Result<(), CannotOpen> {
    let fits = match schema {
        Schema::Auto => migrations::up(&mut link.client, name, None).await.map(drop),
        Schema::Manual | Schema::Read => match migrations::applied(&link.client, name).await {
            Ok(applied) => schema::fits(migrations::MIGRATIONS, &applied).map_err(Into::into),
            Err(error) => Err(error.into()),
        },
    };
    fits.map_err(|problem| left(pool, problem))
}

async fn locate(pool: &Pool, link: &Link) -> Result<SchemaName, CannotOpen> {
    let located = migrations::locate(&link.client, pool.address.schema.as_ref()).await;
    let Located { schema, others } = located.map_err(|problem| left(pool, problem))?;
    for other in others {
        let why = format!("schema {other} holds another store, which is not used; this one is in schema {schema}");
        telemetry::say(Level::Warn, "schema", &[("why", &why)]);
    }
    Ok(schema)
}

/// Why a schema was left as it is.
fn left(pool: &Pool, problem: migrations::Problem) -> CannotOpen {
    match problem {
        migrations::Problem::Postgres(error) => trouble::cannot_open(&pool.address, &error),
        refused => CannotOpen::Ever(format!("{}: {refused}", pool.address)),
    }
}

impl Shelf for Postgres {
    fn read(&self, cells: Vec<Cell>, turns: usize) -> Answer<'_, Reading> {
        Box::pin(async move {
            read::fits(turns)?;
            self.look(Purpose::Write, async |link| read::read(link, &cells, turns, &self.clock).await).await
        })
    }

    fn write(&self, swaps: Vec<Swap>) -> Answer<'_, Vec<bool>> {
        Box::pin(self.swap(swaps, Heeds::Mark))
    }

    fn fill(&self, swaps: Vec<Swap>) -> Answer<'_, Vec<bool>> {
        Box::pin(self.swap(swaps, Heeds::Nothing))
    }

    fn settled(&self) -> Answer<'_, ()> {
        Box::pin(self.look(Purpose::Write, async |link: &mut Link| mark::settled(link).await))
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        rows::text(text)
    }

    fn place(&self) -> Placing<'_> {
        self.pool.effects.next()
    }

    fn write_with<'a>(&'a self, swap: Swap, statement: &'a Bound) -> Answer<'a, Swapped> {
        Box::pin(async move {
            let mut lent = self.lend(Purpose::Effect).await?;
            let (swapped, hints) = effect::write(lent.link(), &swap, statement).await?;
            let over = lent.give_back();
            if matches!(swapped, Swapped::Written) {
                self.pool.fence.confirmed(over, std::iter::once(&swap))?;
            }
            self.hints.tell(hints);
            Ok(swapped)
        })
    }

    fn forgettable<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> Answer<'a, Vec<EventId>> {
        Box::pin(
            self.look(Purpose::Look, async move |link: &mut Link| look::forgettable(link, source, before, limit).await),
        )
    }

    fn with_old_bodies<'a>(&'a self, source: &'a str, before: Timestamp, limit: usize) -> Answer<'a, Vec<EventId>> {
        Box::pin(
            self.look(Purpose::Look, async move |link: &mut Link| {
                look::with_old_bodies(link, source, before, limit).await
            }),
        )
    }

    fn payload(&self, id: EventId) -> Answer<'_, Stored<Payload>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::payload(link, id).await))
    }

    fn receipt(&self, id: EventId) -> Answer<'_, Option<Receipt>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::receipt(link, id).await))
    }

    fn due(&self, look: Look, limit: usize) -> Answer<'_, Due> {
        Box::pin(
            self.look(Purpose::Look, async move |link: &mut Link| look::due(link, &look, limit, &self.clock).await),
        )
    }

    fn start_due(&self, starts: Starts) -> Answer<'_, Started> {
        Box::pin(async move {
            let mut lent = self.lend(Purpose::Write).await?;
            let started = start::start_due(lent.link(), &starts, &self.clock, &self.pool.fence).await?;
            lent.give_back();
            Ok(started)
        })
    }

    fn list(&self, listing: Listing) -> Answer<'_, Vec<Event>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::list(link, &listing).await))
    }

    fn page(&self, listing: Listing) -> Answer<'_, Page> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| listed::page(link, &listing).await))
    }

    fn census(&self) -> Answer<'_, Census> {
        Box::pin(self.look(Purpose::Look, async |link: &mut Link| listed::census(link).await))
    }

    fn story(&self, id: EventId) -> Answer<'_, Option<Story>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::story(link, id).await))
    }

    fn named(&self, name: String, limit: usize) -> Answer<'_, Vec<Event>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::named(link, &name, limit).await))
    }

    /// Those that come while others are written wait, and are written together.
    fn note(&self, notes: Vec<Note>) -> Answer<'_, ()> {
        let held = || self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        held().extend(notes);
        Box::pin(async move {
            let _pen = self.pen.lock().await;
            let notes = std::mem::take(&mut *held());
            if notes.is_empty() {
                return Ok(());
            }
            self.look(Purpose::Look, async |link| look::note(link, &notes).await).await
        })
    }

    fn retention(&self) -> Answer<'_, Vec<SourceRetention>> {
        Box::pin(self.look(Purpose::Look, async |link: &mut Link| retention::retention(link).await))
    }

    fn retain(&self, rows: Vec<SourceRetention>) -> Answer<'_, ()> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| retention::retain(link, &rows).await))
    }

    fn other_sources(&self, known: BTreeSet<Arc<str>>) -> Answer<'_, Vec<SourceCount>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| retention::other_sources(link, &known).await))
    }

    fn recipes(&self) -> Answer<'_, Vec<Recipe>> {
        Box::pin(self.look(Purpose::Look, async |link: &mut Link| look::recipes(link).await))
    }

    fn remember(&self, recipes: Vec<Recipe>) -> Answer<'_, ()> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::remember(link, &recipes).await))
    }

    fn quarantine(&self, message: Quarantined) -> Answer<'_, ()> {
        Box::pin(self.look(Purpose::Write, async move |link: &mut Link| quarantine::lay(link, &message).await))
    }

    fn quarantined(&self, limit: usize) -> Answer<'_, Vec<Quarantined>> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| quarantine::newest(link, limit).await))
    }

    fn probe(&self, probe: Probe) -> Answer<'_, ()> {
        match probe {
            Probe::Look => Box::pin(std::future::ready(Ok(()))),
            Probe::Write => Box::pin(self.look(Purpose::Write, async |link: &mut Link| quarantine::probe(link).await)),
        }
    }

    fn declare(&self, sources: Vec<Declared>) -> Answer<'_, Vec<String>> {
        // Who may change the schema by itself may also build its indexes; else `hookonce migrate up` does.
        if self.schema == Schema::Auto {
            self.builder.begin(self.pool.clone(), &sources);
        }
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| declare::declare(link, &sources).await))
    }

    fn failed(&self) -> watch::Receiver<Option<String>> {
        self.pool.fence.failed()
    }

    fn known(&self) -> Answer<'_, Option<KnownStore>> {
        Box::pin(async move { Ok(self.pool.fence.marked(&self.pool).await) })
    }

    fn begin_fence(&self, known: Vec<KnownStore>) -> Answer<'_, ()> {
        Box::pin(self.pool.fence.begin(&self.pool, known))
    }

    fn found(&self, known: Option<KnownStore>) -> Answer<'_, Option<FoundStore>> {
        Box::pin(
            self.look(Purpose::Look, async move |link: &mut Link| Ok(Some(self.pool.fence.found(link, known).await?))),
        )
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn last_seen(&self) -> Answer<'_, Option<Timestamp>> {
        Box::pin(self.look(Purpose::Look, async |link: &mut Link| look::last_seen(link, &self.clock).await))
    }

    fn set_last_seen(&self, was: Option<Timestamp>, time: Timestamp) -> Answer<'_, ()> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::set_last_seen(link, was, time).await))
    }

    fn agree_on_clock(&self, was: AgreedClock, is: AgreedClock) -> Answer<'_, ()> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| look::agree_on_clock(link, was, is).await))
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        Some(self.hints.listen())
    }
}

impl ExportShelf for Postgres {
    fn export(&self, from: Cursor, limit: usize) -> Answer<'_, Exported> {
        Box::pin(self.look(Purpose::Look, async move |link: &mut Link| export::export(link, from, limit).await))
    }

    fn entries(&self) -> Answer<'_, u64> {
        Box::pin(self.look(Purpose::Look, async |link: &mut Link| export::entries(link).await))
    }

    fn connected(&self) -> Answer<'_, Option<String>> {
        Box::pin(self.look(Purpose::Look, async |link: &mut Link| {
            let nodes = running::nodes_beside_a_copy(&link.client, &link.schema()).await?;
            Ok((!nodes.is_empty()).then(|| format!("hookonce has {}", running::Sessions(&nodes))))
        }))
    }

    fn fill_beside(&self, beside: Beside, mark: Version) -> Answer<'_, bool> {
        Box::pin(self.look(Purpose::Write, async move |link: &mut Link| mark::fill_beside(link, &beside, mark).await))
    }
}
