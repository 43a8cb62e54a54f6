//! Indexes on tables that may be large: built while nodes work, after this one is up. No lock that a claim waits for is
//! held meanwhile.
//!
//! ```text
//! missing, or in another form ─▶ create index concurrently, under a name of its own
//!                                  └─▶ valid: takes the name of the one before, which is then dropped
//!                                  └─▶ left invalid by a crash: dropped, and built again
//! ```
//!
//! One is built at a time, by one node: whoever has the advisory lock.

use super::declare;
use super::pool::{Failed, Pool};
use super::trouble;
use crate::decide::id::Digest;
use crate::decide::time::Duration;
use crate::store::Declared;
use crate::store::schema::postgres::SchemaName;
use crate::telemetry::{self, Level};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_postgres::{Client, Error};

/// The first number of the advisory lock of whoever builds; the second is [`SchemaName::number`].
const CLASS: i32 = 0x696e_6478; // "indx"
/// How often a node asks whether another has finished.
const LOCK_LOOK: Duration = Duration::from_secs(1);
/// The wait before it is tried again after the server went away.
const AGAIN: Duration = Duration::from_secs(10);
/// A build takes as long as it takes, and waits for whoever still uses the table as it was.
const TAKE_TIME: &str = "set statement_timeout = 0; set lock_timeout = 0";

/// An index on `events` that should be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Index {
    name: String,
    /// What it is made of.
    on: String,
    /// How many columns or expressions that is: another number, or another method than a B-tree, is an index of an
    /// earlier version.
    columns: i16,
}

/// Those of our own.
fn own() -> Vec<Index> {
    let index = |name: &str, on: &str, columns| Index { name: name.into(), on: on.into(), columns };
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

/// Those of our own, and one for each field that an identity is made of.
fn wanted(sources: &[Declared]) -> Vec<Index> {
    let fields = sources.iter().flat_map(|source| &source.fields).filter(|(_, identity)| *identity);
    let by_field = fields.filter_map(|(field, _)| {
        Some(Index { name: declare::index_name(field)?, on: format!("(({}))", declare::indexed(field)), columns: 1 })
    });
    let mut all: Vec<Index> = own().into_iter().chain(by_field).collect();
    let mut seen = std::collections::HashSet::new();
    all.retain(|index| seen.insert(index.name.clone()));
    all
}

/// Builds in the background, until everything is there or the store is closed.
#[derive(Default)]
pub(super) struct Builder(Mutex<Option<AbortHandle>>);

impl Builder {
    /// Begins, in place of what was begun before.
    pub(super) fn begin(&self, pool: Arc<Pool>, sources: &[Declared]) {
        let wanted = wanted(sources);
        let task = tokio::spawn(async move {
            while let Err(failed) = build(&pool, &wanted).await {
                match failed {
                    Failed::Said(error) if declare::is_bearable(&error) => {
                        let why = format!("indexes were not built: {}", trouble::said(&error));
                        return telemetry::say(Level::Warn, "index", &[("why", &why)]);
                    }
                    failed => {
                        let why = failed.classify(trouble::Stage::Before).to_string();
                        telemetry::say(Level::Warn, "index", &[("why", &why)]);
                    }
                }
                sleep(AGAIN).await;
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

impl Drop for Builder {
    fn drop(&mut self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }
}

/// Builds what is missing, once no other node does.
async fn build(pool: &Pool, wanted: &[Index]) -> Result<(), Failed> {
    let link = pool.connect().await?;
    let (db, schema) = (&link.client, link.schema());
    let mut missing = false;
    for index in wanted {
        missing |= !is_finished(db, &schema, index).await?;
    }
    if !missing {
        return Ok(());
    }
    // Asked for again and again, not waited for: a build waits for every statement that was there before it.
    let lock = format!("select pg_try_advisory_lock({CLASS}, {})", schema.number());
    while !db.query_one(&lock, &[]).await?.try_get::<_, bool>(0)? {
        sleep(LOCK_LOOK).await;
    }
    db.batch_execute(TAKE_TIME).await?;
    for index in wanted {
        finish(db, &schema, index).await?;
    }
    Ok(())
}

/// An index as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Missing,
    /// A crash, or an error, ended its build.
    Invalid,
    /// As an earlier version made it.
    Other,
    Fits,
}

async fn form(db: &Client, schema: &SchemaName, name: &str, columns: i16) -> Result<Form, Error> {
    let sql = "select i.indisvalid, a.amname = 'btree' and i.indnkeyatts = $2 from pg_index i \
               join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam \
               where i.indexrelid = to_regclass($1)";
    let row = db.query_opt(sql, &[&schema.relation(name), &columns]).await?;
    let Some(row) = row else { return Ok(Form::Missing) };
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (false, _) => Form::Invalid,
        (true, true) => Form::Fits,
        (true, false) => Form::Other,
    })
}

/// The names of an index while it is built, and once another has taken its place.
fn names_beside(index: &Index) -> [String; 2] {
    let digest = hex::encode(&Digest::of(index.name.as_bytes()).0[..8]);
    [format!("events_new_{digest}"), format!("events_old_{digest}")]
}

async fn is_finished(db: &Client, schema: &SchemaName, index: &Index) -> Result<bool, Error> {
    let [new, old] = names_beside(index);
    let mut finished = form(db, schema, &index.name, index.columns).await? == Form::Fits;
    for beside in [new, old] {
        finished &= form(db, schema, &beside, index.columns).await? == Form::Missing;
    }
    Ok(finished)
}

async fn finish(db: &Client, schema: &SchemaName, index: &Index) -> Result<(), Error> {
    let [new, old] = names_beside(index);
    let drop = async |name: &str| db.batch_execute(&format!("drop index concurrently if exists {name}")).await;
    if form(db, schema, &index.name, index.columns).await? != Form::Fits {
        let began = std::time::Instant::now();
        let made = form(db, schema, &new, index.columns).await?;
        if made != Form::Fits {
            telemetry::say(Level::Info, "index", &[("name", &index.name), ("why", "it is being built")]);
            drop(&schema.relation(&new)).await?;
            let Index { on, .. } = index;
            db.batch_execute(&format!("create index concurrently \"{new}\" on {schema}.events {on}")).await?;
        }
        take_place(db, schema, index, [&new, &old]).await?;
        let took = format!("{}ms", began.elapsed().as_millis());
        telemetry::say(Level::Info, "index", &[("name", &index.name), ("why", "it is built"), ("took", &took)]);
    }
    drop(&schema.relation(&new)).await?;
    drop(&schema.relation(&old)).await
}

/// Gives the new index the name of the one before. Nobody waits for this, and at no time is there none.
async fn take_place(db: &Client, schema: &SchemaName, index: &Index, [new, old]: [&str; 2]) -> Result<(), Error> {
    db.batch_execute(&format!("drop index concurrently if exists {}", schema.relation(old))).await?;
    let [name, new] = [&index.name, new].map(|name| schema.relation(name));
    let called = index.name.replace('"', "\"\"");
    db.batch_execute(&format!(
        "begin; alter index if exists {name} rename to \"{old}\"; alter index {new} rename to \"{called}\"; commit"
    ))
    .await
}

/// One line for each index on the store's tables that is being built, is not valid, or is not there yet: for people.
pub async fn unfinished(db: &Client, schema: &SchemaName) -> Result<Vec<String>, Error> {
    let sql = "select c.relname, p.phase, \
               coalesce(100 * p.blocks_done / nullif(p.blocks_total, 0), 0)::bigint, c.oid from pg_index i \
               join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid \
               join pg_namespace n on n.oid = t.relnamespace \
               left join pg_stat_progress_create_index p on p.index_relid = i.indexrelid \
               where n.nspname = $1 and t.relname in ('events', 'keys') and not i.indisvalid order by c.relname";
    let mut lines = Vec::new();
    let own = own();
    let called = |name: &str| own.iter().find(|index| names_beside(index)[0] == name).map(|index| index.name.clone());
    let mut being_built = Vec::new();
    for row in db.query(sql, &[&schema.as_str()]).await? {
        let name: String = row.try_get(0)?;
        let name = called(&name).unwrap_or(name);
        lines.push(match row.try_get::<_, Option<String>>(1)? {
            Some(phase) => format!("index {name}: being built, {phase}, {} %", row.try_get::<_, i64>(2)?),
            None => format!("index {name}: invalid; a node that runs, or the next that starts, builds it again"),
        });
        being_built.push(name);
    }
    for index in own.iter().filter(|index| !being_built.contains(&index.name)) {
        if form(db, schema, &index.name, index.columns).await? != Form::Fits {
            lines.push(format!("index {}: not built yet; the next node that starts builds it", index.name));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_wanted_once_for_each_field_of_an_identity() {
        let of = |source: &str, fields: &[(&str, bool)]| Declared {
            source: source.into(),
            fields: fields.iter().map(|(name, identity)| ((*name).to_owned(), *identity)).collect(),
        };
        let sources = [of("a", &[("tag", true), ("sha", false), ("state", true)]), of("b", &[("tag", true)])];
        let names: Vec<_> = wanted(&sources).into_iter().map(|index| index.name).collect();
        assert_eq!(
            names,
            ["events_due", "events_due_part", "events_id_end", "events_field_tag"],
            "`state` is a column of its own"
        );
    }

    #[test]
    fn no_two_indexes_have_one_name_while_they_are_built() {
        let names: std::collections::HashSet<_> = own().iter().flat_map(names_beside).collect();
        assert_eq!(names.len(), 2 * own().len());
    }
}
