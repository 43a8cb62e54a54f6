//! Indexes on tables that may be large, built while nodes work, after this one is up. No lock that a claim waits for is
//! held meanwhile.
//!
//! ```text
//! missing, or in another form ─▶ create index concurrently, under a temporary name
//!                                  └─▶ valid: renamed to the name of the old one, which is then dropped
//!                                  └─▶ left invalid by a crash: dropped, and built again
//! ```
//!
//! One is built at a time, by the node or command that holds the advisory lock. An index that cannot be built is
//! dropped at once, and tried again at growing intervals.

use super::columns;
use super::dictionaries;
use super::error;
use super::pool::{PgError, PgPool};
use crate::decide::id::Digest;
use crate::decide::time::Duration;
use crate::observe::log;
use crate::store::DeclaredFields;
use crate::store::open::MigrationMode;
use crate::store::schema::postgres::SchemaName;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};
use tracing::{info, warn};

/// The first number of the advisory lock of the builder; the second is [`SchemaName::number`].
const CLASS: i32 = 0x696e_6478; // "indx"
/// How often a node checks whether another has finished. It holds no connection in between.
const LOCK_LOOK: Duration = Duration::from_secs(10);
/// The same for a command, which an operator waits for.
const LOCK_LOOK_NOW: Duration = Duration::from_secs(1);
/// The wait before a retry. It doubles while the server refuses: each try may fill a disk.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest wait.
const AGAIN_MAX: Duration = Duration::from_hours(1);
/// No timeouts: a build may take long, and waits for transactions that still use the table as it was.
const TAKE_TIME: &str = "set statement_timeout = 0; set lock_timeout = 0";

/// An index that should exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexSpec {
    name: String,
    table: &'static str,
    /// The indexed columns and its condition.
    on: String,
    /// The number of columns or expressions: an index with another number, or that is not a B-tree, is from an earlier
    /// version.
    columns: i16,
}

/// The built-in indexes.
fn own() -> Vec<IndexSpec> {
    let index =
        |name: &str, on: &str, columns| IndexSpec { name: name.into(), table: "events", on: on.into(), columns };
    vec![
        index("events_due", "(state, source, route, wake_at, id) where wake_at is not null", 5),
        index(
            "events_due_part",
            "(source, route, part, wake_at, id) where state = 'waiting' and wake_at is not null",
            5,
        ),
        index("events_id_end", "((reverse(right(id::text, 12)) collate \"C\"))", 1),
    ]
}

/// The index of the bodies that need a dictionary, in stores that have dictionaries.
fn of_dictionaries() -> IndexSpec {
    let (name, on) = ("payloads_dictionary".into(), "(dictionary) where dictionary is not null".into());
    IndexSpec { name, table: "payloads", on, columns: 1 }
}

/// The built-in indexes, and one for each field that an identity uses.
fn wanted(sources: &[DeclaredFields]) -> Vec<IndexSpec> {
    let fields = sources.iter().flat_map(|source| &source.fields).filter(|(_, identity)| *identity);
    let by_field = fields.filter_map(|(field, _)| {
        Some(IndexSpec {
            name: columns::index_name(field)?,
            table: "events",
            on: format!("(({}))", columns::indexed(field)),
            columns: 1,
        })
    });
    let mut all: Vec<IndexSpec> = own().into_iter().chain(by_field).collect();
    let mut seen = std::collections::HashSet::new();
    all.retain(|index| seen.insert(index.name.clone()));
    all
}

/// Builds indexes in the background, until all exist or the store is closed.
#[derive(Default)]
pub(super) struct IndexBuilder(Mutex<Option<AbortHandle>>);

impl IndexBuilder {
    /// Starts, replacing an earlier run.
    pub(super) fn begin(&self, pool: Arc<PgPool>, sources: &[DeclaredFields]) {
        let wanted = wanted(sources);
        let task = tokio::spawn(async move {
            let mut again = AGAIN;
            loop {
                match build(&pool, &wanted).await {
                    Ok(IndexBuildOutcome::Built(_)) => return,
                    Ok(IndexBuildOutcome::Busy) => sleep(LOCK_LOOK).await,
                    Err(PgError::Said(error)) if columns::is_bearable(&error) => {
                        let why = format!("cannot build indexes: {}", error::server_message(&error));
                        return warn!(target: "hookonce", why, "index");
                    }
                    Err(failed) => {
                        again = if is_lasting(&failed) { again } else { AGAIN };
                        let why = failed.classify(error::PgCommitStage::Before).to_string();
                        let why = format!("{why}; next try in {} s", again.as_secs());
                        warn!(target: "hookonce", why, "index");
                        sleep(again).await;
                        again = longer(again);
                    }
                }
            }
        });
        let before = self.task().replace(task.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
    }

    fn task(&self) -> std::sync::MutexGuard<'_, Option<AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IndexBuilder {
    fn drop(&mut self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }
}

/// The wait after this one.
fn longer(wait: Duration) -> Duration {
    (wait * 2).min(AGAIN_MAX)
}

/// Would an immediate retry fail, too? Yes if the server refused, unless it went away, was shutting down, or had no
/// free connection.
fn is_lasting(failed: &PgError) -> bool {
    let PgError::Said(error) = failed else { return false };
    let passes = |code: &SqlState| {
        *code == SqlState::TOO_MANY_CONNECTIONS || matches!(&code.code()[..2], "08" | "40" | "55" | "57")
    };
    error.code().is_some_and(|code| !passes(code))
}

/// The result of a try.
enum IndexBuildOutcome {
    /// All indexes exist. These were built.
    Built(Vec<String>),
    /// Another process is building.
    Busy,
}

/// Builds what is missing, unless another process does.
async fn build(pool: &PgPool, wanted: &[IndexSpec]) -> Result<IndexBuildOutcome, PgError> {
    let link = pool.connect().await?;
    Ok(build_over(&link.client, &link.schema(), wanted).await?)
}

/// The same over this connection, which must not be used for anything else afterwards.
async fn build_over(db: &Client, schema: &SchemaName, wanted: &[IndexSpec]) -> Result<IndexBuildOutcome, Error> {
    let mut missing = Vec::new();
    let beside = dictionaries::are_there(db, schema).await?.then(of_dictionaries);
    for index in wanted.iter().chain(&beside) {
        if !is_finished(db, schema, index).await? {
            missing.push(index);
        }
    }
    if missing.is_empty() {
        return Ok(IndexBuildOutcome::Built(Vec::new()));
    }
    // Try the lock instead of waiting for it: a build waits for every statement that began before it.
    let lock = format!("select pg_try_advisory_lock({CLASS}, {})", schema.number());
    if !db.query_one(&lock, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(IndexBuildOutcome::Busy);
    }
    db.batch_execute(TAKE_TIME).await?;
    let mut built = Vec::new();
    for index in missing {
        if finish(db, schema, index).await? {
            built.push(index.name.clone());
        }
    }
    Ok(IndexBuildOutcome::Built(built))
}

/// Builds the missing indexes of these sources, for a command that waits for it. Returns the names of those built. The
/// connection must not be used for anything else afterwards.
pub async fn build_now(db: &Client, schema: &SchemaName, sources: &[DeclaredFields]) -> Result<Vec<String>, Error> {
    let wanted = wanted(sources);
    let mut said = false;
    loop {
        match build_over(db, schema, &wanted).await? {
            IndexBuildOutcome::Built(built) => return Ok(built),
            IndexBuildOutcome::Busy if said => {}
            IndexBuildOutcome::Busy => {
                said = true;
                info!(target: "hookonce", why = "waiting for another process that builds indexes", "index");
            }
        }
        sleep(LOCK_LOOK_NOW).await;
    }
}

/// The state of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IndexState {
    Missing,
    /// Its build was ended by a crash or an error.
    Invalid,
    /// As an earlier version built it.
    Other,
    Fits,
}

async fn form(db: &Client, schema: &SchemaName, name: &str, columns: i16) -> Result<IndexState, Error> {
    let sql = "select i.indisvalid, a.amname = 'btree' and i.indnkeyatts = $2 from pg_index i \
               join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam \
               where i.indexrelid = to_regclass($1)";
    let row = db.query_opt(sql, &[&schema.relation(name), &columns]).await?;
    let Some(row) = row else { return Ok(IndexState::Missing) };
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (false, _) => IndexState::Invalid,
        (true, true) => IndexState::Fits,
        (true, false) => IndexState::Other,
    })
}

/// The temporary names of an index: while it is built, and once it is replaced.
fn names_beside(index: &IndexSpec) -> [String; 2] {
    let digest = hex::encode(&Digest::of(index.name.as_bytes()).0[..8]);
    [format!("events_new_{digest}"), format!("events_old_{digest}")]
}

async fn is_finished(db: &Client, schema: &SchemaName, index: &IndexSpec) -> Result<bool, Error> {
    let [new, old] = names_beside(index);
    let mut finished = form(db, schema, &index.name, index.columns).await? == IndexState::Fits;
    for beside in [new, old] {
        finished &= form(db, schema, &beside, index.columns).await? == IndexState::Missing;
    }
    Ok(finished)
}

/// Builds an index if it is missing, and drops leftovers. Returns whether it was built.
async fn finish(db: &Client, schema: &SchemaName, index: &IndexSpec) -> Result<bool, Error> {
    let [new, old] = names_beside(index);
    let drop = async |name: &str| db.batch_execute(&format!("drop index concurrently if exists {name}")).await;
    let missing = form(db, schema, &index.name, index.columns).await? != IndexState::Fits;
    if missing {
        let began = std::time::Instant::now();
        let made = form(db, schema, &new, index.columns).await?;
        if made != IndexState::Fits {
            info!(target: "hookonce", name = index.name, why = "building", "index");
            drop(&schema.relation(&new)).await?;
            let IndexSpec { table, on, .. } = index;
            let create = format!("create index concurrently \"{new}\" on {schema}.{table} {on}");
            if let Err(error) = db.batch_execute(&create).await {
                // What exists of it takes disk space, and every write maintains it. If the connection is gone, the next
                // try drops it.
                drop(&schema.relation(&new)).await.unwrap_or_default();
                return Err(error);
            }
        }
        take_place(db, schema, index, [&new, &old]).await?;
        let took_ms = log::millis(began.elapsed());
        info!(target: "hookonce", name = index.name, why = "built", took_ms, "index");
    }
    drop(&schema.relation(&new)).await?;
    drop(&schema.relation(&old)).await?;
    Ok(missing)
}

/// Renames the new index to the name of the old one. This blocks no statement, and there is always one of them.
async fn take_place(db: &Client, schema: &SchemaName, index: &IndexSpec, [new, old]: [&str; 2]) -> Result<(), Error> {
    db.batch_execute(&format!("drop index concurrently if exists {}", schema.relation(old))).await?;
    let [name, new] = [&index.name, new].map(|name| schema.relation(name));
    let called = index.name.replace('"', "\"\"");
    db.batch_execute(&format!(
        "begin; alter index if exists {name} rename to \"{old}\"; alter index {new} rename to \"{called}\"; commit"
    ))
    .await
}

/// One line for each index of these sources that is being built, invalid, or missing.
pub async fn unfinished(
    db: &Client,
    schema: &SchemaName,
    sources: &[DeclaredFields],
    migrate: MigrationMode,
) -> Result<Vec<String>, Error> {
    let sql = "select c.relname, p.phase, \
               coalesce(100 * p.blocks_done / nullif(p.blocks_total, 0), 0)::bigint, c.oid from pg_index i \
               join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid \
               join pg_namespace n on n.oid = t.relnamespace \
               left join pg_stat_progress_create_index p on p.index_relid = i.indexrelid \
               where n.nspname = $1 and t.relname in ('events', 'keys', 'payloads') and not i.indisvalid order by c.relname";
    let who = match migrate {
        MigrationMode::Auto => "a running node, or the next one to start, builds it; so does `hookonce migrate up`",
        MigrationMode::Manual => "run `hookonce migrate up` to build it",
    };
    let mut lines = Vec::new();
    let beside = dictionaries::are_there(db, schema).await?.then(of_dictionaries);
    let wanted: Vec<_> = wanted(sources).into_iter().chain(beside).collect();
    let called = |name: &str| wanted.iter().find(|index| names_beside(index)[0] == name).map(|index| &*index.name);
    let mut being_built = Vec::new();
    for row in db.query(sql, &[&schema.as_str()]).await? {
        let name: &str = row.try_get(0)?;
        let name = called(name).unwrap_or(name).to_owned();
        lines.push(match row.try_get::<_, Option<String>>(1)? {
            Some(phase) => format!("index {name}: being built, {phase}, {} %", row.try_get::<_, i64>(2)?),
            None => format!("index {name}: invalid; {who}"),
        });
        being_built.push(name);
    }
    for index in wanted.iter().filter(|index| !being_built.contains(&index.name)) {
        if form(db, schema, &index.name, index.columns).await? != IndexState::Fits {
            lines.push(format!("index {}: not built yet; {who}", index.name));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_wanted_once_for_each_field_of_an_identity() {
        let of = |source: &str, fields: &[(&str, bool)]| DeclaredFields {
            source: source.into(),
            fields: fields.iter().map(|(name, identity)| ((*name).to_owned(), *identity)).collect(),
        };
        let sources = [of("a", &[("tag", true), ("sha", false), ("state", true)]), of("b", &[("tag", true)])];
        let names: Vec<_> = wanted(&sources).into_iter().map(|index| index.name).collect();
        assert_eq!(
            names,
            ["events_due", "events_due_part", "events_id_end", "events_field_tag"],
            "`state` is a built-in column"
        );
    }

    #[test]
    fn no_two_indexes_have_one_name_while_they_are_built() {
        let names: std::collections::HashSet<_> = own().iter().flat_map(names_beside).collect();
        assert_eq!(names.len(), 2 * own().len());
    }

    #[test]
    fn an_index_that_cannot_be_built_is_retried_less_and_less_often() {
        let waits: Vec<_> = std::iter::successors(Some(AGAIN), |wait| Some(longer(*wait))).take(11).collect();
        let seconds: Vec<_> = waits.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600]);
        assert!(!is_lasting(&PgError::Silent));
    }
}
