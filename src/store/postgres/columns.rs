//! Declared fields as columns by their name: a view `events_<source>` for each source, so that `select delivery_id,
//! tag, sha from hookonce.events_ghcr` works in any shell. Fields of an identity have an index, which `indexes.rs`
//! builds.

use super::pool::{PgConn, PgError};
use crate::decide::id::Digest;
use crate::store::DeclaredFields;
use crate::store::row::columns;
use crate::store::schema::postgres::{LOCK, SchemaName, UNLOCK};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tracing::warn;

/// PostgreSQL's limit for names, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Characters of a field's value in its index; each has at most four bytes.
pub(super) const INDEXED_LETTERS: usize = 200;

/// Creates what is missing, one node at a time. Returns the names that cannot be columns.
pub(super) async fn declare(link: &mut PgConn, sources: &[DeclaredFields]) -> Result<Vec<String>, PgError> {
    link.client.batch_execute(LOCK).await?;
    let done = declare_alone(link, sources).await;
    link.client.batch_execute(UNLOCK).await?;
    let mut refused: Vec<String> = sources
        .iter()
        .flat_map(|one| &one.fields)
        .filter(|(name, _)| !fits(name))
        .map(|(name, _)| name.clone())
        .collect();
    refused.sort();
    refused.dedup();
    match done {
        Ok(()) => Ok(refused),
        Err(error) if is_bearable(&error) => {
            let why = format!(
                "cannot create views with fields as columns: {}",
                crate::store::postgres::error::server_message(&error)
            );
            warn!(target: "hookonce", why, "fields");
            Ok(refused)
        }
        Err(error) => Err(error.into()),
    }
}

/// Is a permission missing, or does another object depend on an older view? Both are for an operator to resolve.
pub(super) fn is_bearable(error: &Error) -> bool {
    let states =
        [&SqlState::INSUFFICIENT_PRIVILEGE, &SqlState::DEPENDENT_OBJECTS_STILL_EXIST, &SqlState::WRONG_OBJECT_TYPE];
    error.code().is_some_and(|state| states.contains(&state))
}

async fn declare_alone(link: &mut PgConn, sources: &[DeclaredFields]) -> Result<(), Error> {
    let schema = link.schema();
    for one in sources {
        let view = schema.relation(&name("events_", &one.source));
        let mut sql = format!("select {}", columns!());
        for (field, _) in one.fields.iter().filter(|(name, _)| fits(name)) {
            sql.extend([", ", &*value(field), " as ", &*quoted(field)]);
        }
        sql.extend([" from ", &*schema.relation("events"), " where source = ", &*literal(&one.source)]);
        let digest = hex::encode(Digest::of(sql.as_bytes()).0);
        let there = "select obj_description(to_regclass($1), 'pg_class')";
        let made: Option<String> = link.client.query_one(there, &[&view]).await?.try_get(0)?;
        if made.as_ref() != Some(&digest) {
            let tx = link.client.transaction().await?;
            tx.batch_execute(&format!(
                "drop view if exists {view}; create view {view} as {sql}; comment on view {view} is '{digest}'"
            ))
            .await?;
            tx.commit().await?;
        }
    }
    Ok(())
}

/// Is the name free? A built-in column may have it.
fn fits(name: &str) -> bool {
    let ours = columns!().split(',').any(|column| column.trim().eq_ignore_ascii_case(name));
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0') && !ours
}

/// The name of the index by a field, with its schema, if there may be one.
pub(super) fn index(schema: &SchemaName, field: &str) -> Option<String> {
    index_name(field).map(|name| schema.relation(&name))
}

/// The same without the schema.
pub(super) fn index_name(field: &str) -> Option<String> {
    fits(field).then(|| name("events_field_", field))
}

/// What that index holds: the beginning of the value, because a B-tree entry may not exceed a third of a page.
pub(super) fn indexed(field: &str) -> String {
    format!("left({}, {INDEXED_LETTERS})", value(field))
}

/// The expression for a field's value. A zero byte, valid in JSON but not in PostgreSQL's text, must not fail a claim.
pub(super) fn value(field: &str) -> String {
    format!("case when strpos(fields::text, '\\u0000') > 0 then null else fields ->> {} end", literal(field))
}

/// A name with this prefix, truncated to what PostgreSQL accepts, and still unique.
fn name(begin: &str, of: &str) -> String {
    let whole = format!("{begin}{of}");
    if whole.len() <= NAME_BYTES_MAX {
        return whole;
    }
    let digest = hex::encode(&Digest::of(of.as_bytes()).0[..8]);
    let room = NAME_BYTES_MAX - digest.len() - 1;
    let cut = (0..=room).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or_default();
    format!("{}_{digest}", &whole[..cut])
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A quoted literal. `standard_conforming_strings` may be off: backslashes are written so that it does not matter.
fn literal(text: &str) -> String {
    let text = text.replace('\0', "").replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_truncated_and_stays_unique() {
        assert_eq!(name("events_", "ghcr"), "events_ghcr");
        let (one, two) = (name("events_", &"é".repeat(60)), name("events_", &format!("{}x", "é".repeat(60))));
        assert!(one != two && one.len() <= NAME_BYTES_MAX && two.len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn names_and_texts_cannot_leave_their_quotes() {
        assert_eq!(quoted("a\"; drop table events; --"), "\"a\"\"; drop table events; --\"");
        assert_eq!(literal("a'b"), "'a''b'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
        assert!(!fits("state") && !fits("Turn") && !fits("") && fits("tag"));
    }
}
