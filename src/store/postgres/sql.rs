//! A conditional write and the user's statement in one transaction: first the write, then the statement, then the
//! commit.
//!
//! ```text
//! fresh session settings ─ begin · lock ─▶ settle ─▶ the write ─▶ the statement, its constraints ─▶ commit
//!                                  changed ─┘         refused, too slow, conflict ─┘ rolled back
//! ```
//!
//! A failure before the commit is sent has left nothing behind; after a failure of the commit itself it may have been
//! written, and the event's revision tells.

use super::batch_writes;
use super::dictionaries::PgDictionaries;
use super::error;
use super::error::PgCommitStage;
use super::pool::{ANSWER_TIME, PgConn, PgError, SESSION, ask};
use super::write;
use super::write::{COMMIT, ROLLBACK, drop_events, lock, put_cells, put_events};
use crate::decide::event::Outcome;
use crate::decide::limits;
use crate::decide::sql_template::{BoundStatement, BoundValue};
use crate::decide::time::Duration;
use crate::store::optimistic::{ConditionalWrite, SqlWriteOutcome};
use crate::store::{ChangeHint, StoreError};
use bytes::BytesMut;
use std::error::Error;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// How long the server may take to report the timeout.
const GRACE: Duration = Duration::from_secs(5);
/// For the statement the server's own settings apply, except for the timeout.
const FOR_THEIRS: &str = "select set_config('statement_timeout', $1, true), \
     set_config('enable_seqscan', 'on', true), set_config('plan_cache_mode', 'auto', true)";
/// Deferred constraints are checked now, while their errors can still be told from those of the commit.
const CHECK: &str = "set constraints all immediate";
/// Restores our settings for the commit, whatever a function has set.
const FOR_OURS: &str =
    "select set_config('statement_timeout', '15s', true), set_config('synchronous_commit', 'on', true)";

/// The outcome, and hints for other nodes.
type SqlWriteReport = (SqlWriteOutcome, Vec<ChangeHint>);

/// Applies the write and runs the statement, both or neither. `Err` if nothing was written, or if that is unknown.
pub(super) async fn write(
    link: &mut PgConn,
    swap: &ConditionalWrite,
    bound: &BoundStatement,
    dictionaries: &PgDictionaries,
) -> Result<SqlWriteReport, StoreError> {
    let before = |failed: PgError| failed.classify(PgCommitStage::Before);
    begin_anew(link).await.map_err(before)?;
    match tokio::time::timeout(ANSWER_TIME, prepare(link, bound)).await {
        Ok(Ok(())) => {}
        Ok(Err(swapped)) => return Ok((swapped, Vec::new())),
        Err(_) => return Err(before(PgError::Silent)),
    }
    let swaps = std::slice::from_ref(swap);
    let mut locked = match lock(link, swaps, &batch_writes::first_seen(swaps)).await {
        Ok(locked) => locked,
        Err(failed) if failed.is_contention() => return undone(link, SqlWriteOutcome::Changed).await,
        Err(failed) => return Err(before(failed)),
    };
    let (written, effect) = batch_writes::settle(swaps, &mut locked.actual);
    if !written.contains(&true) {
        return undone(link, SqlWriteOutcome::Changed).await;
    }
    let mut asks = Vec::new();
    drop_events(&effect, &mut asks);
    put_cells(&effect, &locked, &mut asks);
    put_events(&effect, dictionaries, &mut asks);
    asks.push(write::heed());
    match link.query_all(&asks).await {
        Ok(_) => {}
        Err(failed) if failed.is_contention() || write::doubts(&failed, &asks, dictionaries) => {
            return undone(link, SqlWriteOutcome::Changed).await;
        }
        Err(failed) => return Err(write::refused(&failed).unwrap_or_else(|| before(failed))),
    }
    if let Err(swapped) = run(link, bound).await {
        link.user_statements.clear(); // a plan may be outdated
        return undone(link, swapped).await;
    }
    link.query_all(&[ask!(FOR_OURS)]).await.map_err(before)?;
    match link.query_all(&[ask!(COMMIT)]).await {
        Ok(_) => Ok((SqlWriteOutcome::Written, effect.hints())),
        Err(failed) if failed.is_contention() => undone(link, SqlWriteOutcome::Changed).await,
        Err(failed) => Err(failed.classify(PgCommitStage::Commit)),
    }
}

/// Resets whatever a function has set on this connection.
async fn begin_anew(link: &mut PgConn) -> Result<(), PgError> {
    let reset = format!("reset all; {SESSION}");
    let done = tokio::time::timeout(ANSWER_TIME, link.client.batch_execute(&reset)).await;
    Ok(done.map_err(|_| PgError::Silent)??)
}

/// Rolls back. A connection that does not respond is dropped, which rolls back, too.
async fn undone(link: &mut PgConn, swapped: SqlWriteOutcome) -> Result<SqlWriteReport, StoreError> {
    link.poisoned |= link.query_all(&[ask!(ROLLBACK)]).await.is_err();
    Ok((swapped, Vec::new()))
}

async fn prepare(link: &mut PgConn, bound: &BoundStatement) -> Result<(), SqlWriteOutcome> {
    let text = &bound.statement.numbered;
    if !link.user_statements.contains_key(text) {
        let prepared = link.client.prepare(text).await.map_err(|error| refused(&error, bound))?;
        link.user_statements.insert(text.clone(), prepared);
    }
    Ok(())
}

async fn run(link: &mut PgConn, bound: &BoundStatement) -> Result<(), SqlWriteOutcome> {
    let limit = bound.statement.timeout;
    let told = |failed: &PgError| match failed {
        PgError::Said(error) => refused(error, bound),
        PgError::Silent => failed_because("the server did not respond while the statement ran".into()),
        PgError::Lost(why) => failed_because(why.clone()),
    };
    link.query_all(&[ask!(FOR_THEIRS, limit.as_millis().to_string())]).await.map_err(|failed| told(&failed))?;
    let statement = &link.user_statements[&bound.statement.numbered];
    let values: Vec<&(dyn ToSql + Sync)> = bound.values.iter().map(|value| value as _).collect();
    match tokio::time::timeout(limit + GRACE, link.client.execute(statement, &values)).await {
        Ok(ran) => ran.map_err(|error| refused(&error, bound))?,
        Err(_) => return Err(failed_because("the server did not respond while the statement ran".into())),
    };
    link.query_all(&[ask!(CHECK)]).await.map(drop).map_err(|failed| told(&failed))
}

/// The outcome of the attempt for an error of the statement.
fn refused(error: &tokio_postgres::Error, bound: &BoundStatement) -> SqlWriteOutcome {
    let said: String = error::server_message(error).chars().take(limits::STATEMENT_SAID_MAX).collect();
    let Some(code) = error.code() else {
        // The statement itself may be what ends the connection: it is not retried at once.
        return failed_because(format!("the connection ended while the statement ran: {said}"));
    };
    match &code.code()[..2] {
        // A constraint violation, or an invalid value: a retry would fail the same way.
        "22" | "23" => SqlWriteOutcome::Refused(Outcome::Rejected { why: said, receipt: None }),
        "40" => SqlWriteOutcome::Again(said),
        "57" if code.code() == "57014" => {
            let limit = bound.statement.timeout.as_millis();
            failed_because(format!("the statement took longer than {limit} ms and was interrupted"))
        }
        _ => failed_because(said),
    }
}

fn failed_because(why: String) -> SqlWriteOutcome {
    SqlWriteOutcome::Refused(Outcome::Failed { why, retry_after: None, receipt: None })
}

/// A value is sent as text, which the server parses as the type of its parameter; a body for a `bytea` is sent as it
/// is.
impl ToSql for BoundValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Text(text) | Self::Number(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bool(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, ty: &Type) -> Format {
        if *ty == Type::BYTEA { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}
