//! The connection pool. A connection whose query was abandoned or failed is dropped and never used again, because its
//! next response is unpredictable.

use super::data_loss::PgDataLossDetector;
use super::error;
use super::error::PgCommitStage;
use super::url::PostgresUrl;
use super::{pooling, sessions};
use crate::decide::time::Duration;
use crate::store::schema::postgres::SchemaName;
use crate::store::sql::SqlPermits;
use crate::store::{StoreError, StoreOpenError};
use futures_util::future::join_all;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

/// Connections of one node.
const LINKS: usize = 8;
/// How many of these may be used for reads: the others are for claims.
const LINKS_FOR_LOOKS: usize = 6;
/// Additional connections for the user's statements, so that slow ones delay no claim.
const LINKS_FOR_EFFECTS: usize = 4;
/// How long to wait for one of our own connections while the server has no other to spare.
const SPARE_TIME: Duration = Duration::from_secs(2);
/// How often a new one is tried meanwhile, at the start.
const SPARE_LOOK: Duration = Duration::from_millis(50);
/// Timeout of a response, after which the connection is dropped. A server that hangs does not respond at all. Shorter
/// in tests.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 20 });

/// The settings that durability depends on, and limits for what hangs. Plans are made once, for arrays of any length,
/// over tables that may have been empty then.
pub(super) const SESSION: &str = "set synchronous_commit = on; set statement_timeout = '15s'; set lock_timeout = '10s'; \
    set idle_in_transaction_session_timeout = '20s'; set client_min_messages = warning; \
    set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off; \
    set default_transaction_isolation = 'read committed'; set bytea_output = 'hex'; \
    select set_config('idle_session_timeout', '0', false) where current_setting('idle_session_timeout', true) is not null";
const READ_ONLY: &str = "set default_transaction_read_only = on";

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PgConnPurpose {
    /// Claims and transitions: a request waits for the response.
    Write,
    /// Everything else.
    Look,
    /// Transitions with the user's statement. What that may have set stays on separate connections.
    Effect,
}

/// Whether a session may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PgSessionMode {
    /// It may.
    Writes,
    /// It may, but is not a node's: it copies the store, as source or target.
    Copies,
    /// It only reads.
    Reads,
}

/// The pool.
pub(super) struct PgPool {
    pub(super) address: PostgresUrl,
    /// The schema of the store; empty until it was located.
    schema: Arc<OnceLock<SchemaName>>,
    session: PgSessionMode,
    idle: Mutex<Vec<PgConn>>,
    used: Mutex<Vec<PgConn>>,
    links: Semaphore,
    looks: Semaphore,
    /// Permits for the connections that run statements.
    pub(super) effects: SqlPermits,
    /// What is known of the database: a server that lacks it is not used.
    pub(super) fence: PgDataLossDetector,
    links_out: AtomicUsize,
    effects_out: AtomicUsize,
    freed: Notify,
}

impl PgPool {
    pub(super) fn new(address: PostgresUrl, session: PgSessionMode) -> Self {
        let (links, looks) = (Semaphore::new(LINKS), Semaphore::new(LINKS_FOR_LOOKS));
        let effects = SqlPermits::new(LINKS_FOR_EFFECTS);
        let (idle, used, freed) = (Mutex::default(), Mutex::default(), Notify::new());
        let (links_out, effects_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (schema, fence) = (Arc::default(), PgDataLossDetector::default());
        Self { address, schema, session, idle, used, links, looks, effects, fence, links_out, effects_out, freed }
    }

    /// Sets the schema for all statements, including those of open connections.
    pub(super) fn use_schema(&self, schema: SchemaName) {
        self.schema.set(schema).expect("a store is located once");
    }

    /// The schema of the store.
    pub(super) fn schema(&self) -> SchemaName {
        self.schema.get().expect("the store is located before it is used").clone()
    }

    /// An idle connection, or a new one.
    pub(super) async fn lend(&self, purpose: PgConnPurpose) -> Result<PooledConn<'_>, StoreError> {
        let closed = |_| StoreError::Down("the store is closed".into());
        self.fence.holds()?;
        let look = match purpose {
            PgConnPurpose::Look => Some(self.looks.acquire().await.map_err(closed)?),
            PgConnPurpose::Write | PgConnPurpose::Effect => None,
        };
        let permit = match purpose {
            PgConnPurpose::Look | PgConnPurpose::Write => Some(self.links.acquire().await.map_err(closed)?),
            PgConnPurpose::Effect => None,
        };
        let link = self.link(purpose).await.map_err(|failed| failed.classify(PgCommitStage::Before))?;
        self.out(purpose).fetch_add(1, Ordering::SeqCst);
        Ok(PooledConn { pool: self, purpose, link: Some(link), _permit: permit, _look: look })
    }

    /// An idle connection, else a new one. If the server has none to spare, waits for one of ours to be returned.
    async fn link(&self, purpose: PgConnPurpose) -> Result<PgConn, PgError> {
        let patience = Instant::now() + SPARE_TIME;
        let mut refused = None;
        loop {
            let (freed, lent) = (self.freed.notified(), self.out(purpose).load(Ordering::SeqCst));
            let idle = std::iter::from_fn(|| self.idle(purpose).pop()).find(|link| self.is_usable(link));
            match (idle, refused) {
                (Some(link), _) => return Ok(link),
                (None, None) => match self.connect().await {
                    Ok(link) => return Ok(link),
                    Err(failed) if failed.is_full() => refused = Some(failed),
                    Err(failed) => return Err(failed),
                },
                (None, Some(full)) => {
                    if lent == 0 || timeout_at(patience, freed).await.is_err() {
                        return Err(full);
                    }
                    refused = Some(full);
                }
            }
        }
    }

    /// How many are in use.
    fn out(&self, purpose: PgConnPurpose) -> &AtomicUsize {
        if purpose == PgConnPurpose::Effect { &self.effects_out } else { &self.links_out }
    }

    /// The first connection, with errors for operators. Before anything is set on it, it is checked that it has a
    /// session of its own, as the URL requests it.
    pub(super) async fn open(&self) -> Result<PgConn, StoreOpenError> {
        let opened = tokio::time::timeout(ANSWER_TIME, self.open_now()).await;
        opened.unwrap_or_else(|_| Err(self.cannot_open(PgError::Silent)))
    }

    async fn open_now(&self) -> Result<PgConn, StoreOpenError> {
        let client =
            dial_at_start(&self.address, sessions::NAME).await.map_err(|error| self.cannot_open(error.into()))?;
        pooling::check(&self.address, &client).await?;
        pooling::check_search_path(&self.address, &client).await?;
        self.begin(client).await.map_err(|failed| self.cannot_open(failed))
    }

    pub(super) fn cannot_open(&self, failed: PgError) -> StoreOpenError {
        match failed {
            PgError::Said(error) => error::cannot_open(&self.address, error),
            PgError::Silent => {
                StoreOpenError::temporary(format!("{} cannot be reached: {}", self.address, no_answer()))
            }
            PgError::Lost(why) => StoreOpenError::Permanent(why.into()),
        }
    }

    /// A new connection, ready for queries. A server that hangs accepts the connection and does not respond.
    pub(super) async fn connect(&self) -> Result<PgConn, PgError> {
        let connected = async { self.begin(dial(&self.address, sessions::NAME).await?).await };
        tokio::time::timeout(ANSWER_TIME, connected).await.map_err(|_| PgError::Silent)?
    }

    /// Sets up the session of a new connection.
    async fn begin(&self, client: Client) -> Result<PgConn, PgError> {
        client.batch_execute(SESSION).await?;
        match self.session {
            PgSessionMode::Reads => {
                client.batch_execute(READ_ONLY).await?;
                sessions::tell_reader(&client).await?;
            }
            PgSessionMode::Copies => sessions::tell_copy(&client).await?,
            PgSessionMode::Writes => {}
        }
        if let (PgSessionMode::Writes | PgSessionMode::Copies, Some(schema)) = (self.session, self.schema.get()) {
            sessions::hold_schema_lock(&client, schema).await?;
        }
        let schema = self.schema.clone();
        let (statements, theirs) = (HashMap::new(), HashMap::new());
        let mut link = PgConn { client, schema, statements, user_statements: theirs, poisoned: false, timeline: None };
        self.fence.check(&mut link, &self.address).await?;
        Ok(link)
    }

    pub(super) fn put(&self, link: PgConn, purpose: PgConnPurpose) {
        if !link.poisoned && self.is_usable(&link) {
            self.idle(purpose).push(link);
        }
    }

    /// Whether this connection is open, and leads to the current primary.
    fn is_usable(&self, link: &PgConn) -> bool {
        !link.client.is_closed() && self.fence.is_current(link)
    }

    fn idle(&self, purpose: PgConnPurpose) -> MutexGuard<'_, Vec<PgConn>> {
        let idle = if purpose == PgConnPurpose::Effect { &self.used } else { &self.idle };
        idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection with this `application_name`, with nothing set on it.
async fn dial(address: &PostgresUrl, name: &str) -> Result<Client, Error> {
    let mut config = address.config.clone();
    let (client, connection) = config.application_name(name).connect(address.tls.clone()).await?;
    // It ends with its client; the queries on it report why it ended early.
    tokio::spawn(connection);
    Ok(client)
}

/// The same before this process has a connection to wait for. A full server may just be closing connections of this
/// process or its predecessor.
pub(super) async fn dial_at_start(address: &PostgresUrl, name: &str) -> Result<Client, Error> {
    let patience = Instant::now() + SPARE_TIME;
    loop {
        match dial(address, name).await {
            Err(error) if is_full(&error) && Instant::now() < patience => tokio::time::sleep(SPARE_LOOK).await,
            dialled => return dialled,
        }
    }
}

/// Has the server no connection to spare?
fn is_full(error: &Error) -> bool {
    error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS)
}

/// One connection, with its prepared statements.
pub(super) struct PgConn {
    pub(super) client: Client,
    schema: Arc<OnceLock<SchemaName>>,
    statements: HashMap<&'static str, Statement>,
    /// The same for the user's statements.
    pub(super) user_statements: HashMap<Arc<str>, Statement>,
    /// A query is unfinished: the connection is not used again.
    pub(super) poisoned: bool,
    /// The timeline of its server at connect time, if the server reports it.
    pub(super) timeline: Option<u32>,
}

/// A statement with its parameters. It names our tables as `{schema}.events`.
pub(super) struct PgQuery<'a> {
    pub(super) sql: &'static str,
    pub(super) params: Vec<PgParam<'a>>,
}

/// One parameter, such as an array of a column's cells.
pub(super) type PgParam<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement with parameters, boxed.
macro_rules! ask {
    ($sql:expr $(, $param:expr)* $(,)?) => {
        crate::store::postgres::pool::PgQuery { sql: $sql, params: vec![$(Box::new($param)),*] }
    };
}
pub(super) use ask;

/// The result of a query to PostgreSQL.
pub(super) type PgResult<T> = Result<T, PgError>;

/// Why a query failed.
#[derive(Debug)]
pub(super) enum PgError {
    /// The server reported an error, or is gone.
    Said(Error),
    /// It did not respond.
    Silent,
    /// It has lost data.
    Lost(String),
}

fn no_answer() -> String {
    format!("no response within {} s", ANSWER_TIME.as_secs())
}

impl From<Error> for PgError {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl PgError {
    pub(super) fn classify(self, stage: PgCommitStage) -> StoreError {
        match (self, stage) {
            (Self::Said(error), _) => error::classify(error, stage),
            (Self::Lost(why), _) => StoreError::Broken(why.into()),
            (Self::Silent, PgCommitStage::Before) => StoreError::down(no_answer()),
            (Self::Silent, PgCommitStage::Commit) => StoreError::unsure(no_answer()),
        }
    }

    /// Has the server no connection to spare?
    fn is_full(&self) -> bool {
        matches!(self, Self::Said(error) if is_full(error))
    }

    pub(super) fn is_contention(&self) -> bool {
        matches!(self, Self::Said(error) if error::is_contention(error))
    }
}

impl PgConn {
    /// The schema of the store, for statements built with `format!`.
    pub(super) fn schema(&self) -> SchemaName {
        self.schema.get().expect("the store is located before it is queried").clone()
    }

    /// Runs all of these in one pipeline, in this order, and returns the rows of each. If one fails, returns its error;
    /// later ones in the same transaction fail too, but are not the cause.
    pub(super) async fn query_all(&mut self, asks: &[PgQuery<'_>]) -> Result<Vec<Vec<Row>>, PgError> {
        tokio::time::timeout(ANSWER_TIME, self.ask_now(asks)).await.unwrap_or(Err(PgError::Silent))
    }

    async fn ask_now(&mut self, asks: &[PgQuery<'_>]) -> Result<Vec<Vec<Row>>, PgError> {
        let mut missing: Vec<&'static str> = asks.iter().map(|ask| ask.sql).collect();
        missing.retain(|sql| !self.statements.contains_key(sql));
        missing.dedup();
        let prepared = join_all(missing.iter().map(|sql| async {
            match self.schema.get() {
                Some(schema) => self.client.prepare(&schema.qualify(sql)).await,
                None => self.client.prepare(sql).await,
            }
        }));
        let prepared = prepared.await;
        for (sql, statement) in missing.into_iter().zip(prepared) {
            self.statements.insert(sql, statement?);
        }
        // Each is sent when it is first polled, and they are polled in this order.
        let (client, statements) = (&self.client, &self.statements);
        let answers = join_all(asks.iter().map(|ask| async move {
            let params: Vec<&(dyn ToSql + Sync)> = ask.params.iter().map(|param| &**param as _).collect();
            client.query(&statements[ask.sql], &params).await
        }));
        Ok(answers.await.into_iter().collect::<Result<_, _>>()?)
    }
}

/// A connection in use. It returns to the pool only by [`PooledConn::give_back`].
pub(super) struct PooledConn<'p> {
    pool: &'p PgPool,
    purpose: PgConnPurpose,
    link: Option<PgConn>,
    _permit: Option<SemaphorePermit<'p>>,
    _look: Option<SemaphorePermit<'p>>,
}

impl PooledConn<'_> {
    pub(super) fn link(&mut self) -> &mut PgConn {
        self.link.as_mut().expect("a connection is held until it is given back")
    }

    /// Returns it to the pool, with no query or transaction open. Returns the timeline of its server.
    pub(super) fn give_back(mut self) -> Option<u32> {
        let link = self.link.take()?;
        let timeline = link.timeline;
        self.pool.put(link, self.purpose);
        timeline
    }
}

impl Drop for PooledConn<'_> {
    fn drop(&mut self) {
        self.pool.out(self.purpose).fetch_sub(1, Ordering::SeqCst);
        self.pool.freed.notify_waiters();
    }
}
