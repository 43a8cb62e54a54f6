//! What an error of the server means: for whoever asked, and for whoever starts a node.

use super::url::PostgresUrl;
use crate::store::schema::postgres::SchemaName;
use crate::store::{StoreError, StoreOpenError};
use std::error::Error as _;
use std::io;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Where in a write it went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PgCommitStage {
    /// Before the commit was sent, or while only reading: nothing is written.
    Before,
    /// After.
    Commit,
}

/// What an error means for whoever asked.
pub(super) fn classify(error: &Error, stage: PgCommitStage) -> StoreError {
    let why = server_message(error);
    let Some(code) = error.code() else {
        // No answer: the connection is gone, or what came over it was none.
        return match stage {
            PgCommitStage::Before => StoreError::Down(why),
            PgCommitStage::Commit => StoreError::Unsure(why),
        };
    };
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    match stage {
        PgCommitStage::Commit if may_have_committed(code, severity) => StoreError::Unsure(why),
        // Whatever else it says, it wrote nothing, and somebody may set it right while we run: a password, a right, a
        // table that is being restored. Never `Broken`: what an attempt came to would not be written any more.
        _ => StoreError::Down(why),
    }
}

/// Whether a transaction may be committed although its commit was answered with this error. PostgreSQL rolls back what it
/// answers with an error. But these say that something happened to the server or on the way to it, which may have been
/// just after the commit: a pooler (class 08 or 58) or the server (57) ended the connection, the server broke (58, XX), or
/// the session was ended, for whatever reason.
fn may_have_committed(code: &SqlState, severity: Option<Severity>) -> bool {
    let ended = matches!(severity, Some(Severity::Fatal | Severity::Panic));
    let unknown = *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
    ended || unknown || matches!(&code.code()[..2], "08" | "57" | "58" | "XX")
}

/// Did others get in the way? Then it is drafted anew.
pub(super) fn is_contention(error: &Error) -> bool {
    let ours = [&SqlState::T_R_DEADLOCK_DETECTED, &SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::UNIQUE_VIOLATION];
    error.code().is_some_and(|state| ours.contains(&state))
}

/// The server's own words.
pub(super) fn server_message(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// Why a node cannot begin with this server.
pub(super) fn cannot_open(address: &PostgresUrl, error: &Error) -> StoreOpenError {
    let why = server_message(error);
    let Some(state) = error.code() else { return unanswered(address, error) };
    let user = address.user();
    let ever = |hint: String| StoreOpenError::Permanent(format!("{address}: {why}; {hint}"));
    match &state.code()[..2] {
        _ if *state == SqlState::INVALID_PASSWORD => ever(format!("check the password of user {user} in the URL")),
        "28" if why.contains("no encryption") => {
            ever("the server wants TLS: add `sslmode=require` or `sslmode=verify-full` to the URL".into())
        }
        "28" => ever(format!("check the user and the password in the URL, and that pg_hba.conf lets {user} in")),
        _ if *state == SqlState::INVALID_CATALOG_NAME => {
            ever(format!("make it with `createdb {}`, or name another in the URL", address.database()))
        }
        _ if *state == SqlState::INSUFFICIENT_PRIVILEGE => ever(rights(address, &why)),
        "26" => pooled(address),
        _ if *state == SqlState::DUPLICATE_PSTATEMENT => pooled(address),
        _ if *state == SqlState::DUPLICATE_TABLE || *state == SqlState::UNDEFINED_TABLE => {
            ever("its tables are not ours; give hookonce a schema of its own: add `schema=NAME` to the URL".into())
        }
        _ if *state == SqlState::TOO_MANY_CONNECTIONS => {
            StoreOpenError::Temporary(format!("{address}: {why}; raise max_connections, or let fewer nodes connect"))
        }
        "08" if why.contains("unsupported startup parameter") => ever(
            "a pooler stands before it: take that parameter out of the URL, and set the same with `alter role … set …`. Do \
             not name it in `ignore_startup_parameters` of pgbouncer.ini: it would be dropped without a word"
                .into(),
        ),
        "08" | "40" | "53" | "55" | "57" | "58" => StoreOpenError::Temporary(format!("{address}: {why}")),
        _ => StoreOpenError::Permanent(format!("{address}: {why}")),
    }
}

/// Why a session could not tell which store it works with.
pub(super) fn cannot_tell(address: &PostgresUrl, error: &Error) -> StoreOpenError {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        return StoreOpenError::Temporary(format!(
            "{address}: `hookonce migrate` is changing the store; no node starts meanwhile"
        ));
    }
    cannot_open(address, error)
}

/// Which right is missing, and the statement that gives it.
fn rights(address: &PostgresUrl, why: &str) -> String {
    let user = quoted_user(address);
    let named = why.split_once("for schema ").map(|(_, name)| SchemaName::parse(name).unwrap_or_default());
    let schema = named.clone().or(address.schema.clone()).unwrap_or_default();
    if why.contains("for database ") {
        return format!("let one who may make the schema: `create schema {schema} authorization {user}`");
    }
    if named.is_some() {
        return format!(
            "let the owner of the schema give the right: `grant usage, create on schema {schema} to {user}`, or give it \
             away: `alter schema {schema} owner to {user}`"
        );
    }
    format!(
        "its tables belong to another user: connect as that one, or give {user} the rights with `grant all on all \
         tables in schema {schema} to {user}` and the same for its sequences"
    )
}

/// The session has another `search_path` than the URL sets.
pub(super) fn dropped_path(address: &PostgresUrl, asked: &str, has: &str) -> StoreOpenError {
    StoreOpenError::Permanent(format!(
        "{address}: the URL sets `search_path` to `{asked}` by `options`, but the session has `{has}`: a pooler dropped it, \
         and the store would be looked for in the wrong schema. Give the server's own address; or take `options` out of the \
         URL, run `alter role {} set search_path = {asked}` and let the pooler connect anew",
        quoted_user(address)
    ))
}

fn quoted_user(address: &PostgresUrl) -> String {
    format!("\"{}\"", address.user().replace('"', "\"\""))
}

/// A pooler between lends each session of the server for one transaction.
pub(super) fn pooled(address: &PostgresUrl) -> StoreOpenError {
    StoreOpenError::Permanent(format!(
        "{address}: a pooler stands before it that lends a session for one transaction only, and hookonce needs sessions \
         of its own, with settings, prepared statements, locks and LISTEN; give the server's own address, or set \
         `pool_mode = session` for this database, with `pool_size` at 14 for each node"
    ))
}

/// No answer, or none of PostgreSQL's.
fn unanswered(address: &PostgresUrl, error: &Error) -> StoreOpenError {
    let cause = error.source();
    let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    let text = error.to_string();
    if text.contains("TLS") {
        let cause = cause.map_or(String::new(), ToString::to_string);
        let why = if cause.contains("does not support TLS") { "the server does not offer TLS" } else { &*cause };
        return StoreOpenError::Permanent(format!(
            "{address}: no TLS ({why}); check `sslmode` in the URL: `verify-full` wants a certificate for this host that \
             is trusted here or by `sslrootcert`, `disable` wants none"
        ));
    }
    if text.contains("authentication") || text.contains("configuration") {
        let cause = cause.map_or(text, ToString::to_string);
        return StoreOpenError::Permanent(format!("{address}: {cause}; check the user and the password in the URL"));
    }
    match io {
        Some(error) if error.to_string().contains("does not allow writes") => {
            StoreOpenError::Temporary(format!("{address} is read-only; it may be a replica"))
        }
        _ => StoreOpenError::Temporary(format!("{address} cannot be reached: {}", server_message(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_the_server_or_a_pooler_broke_off_may_be_written_and_one_that_was_refused_is_not() {
        for code in ["08000", "08006", "08P01", "57P01", "57P02", "58000", "58030", "XX000", "40003"] {
            assert!(may_have_committed(&SqlState::from_code(code), Some(Severity::Error)), "{code}");
        }
        for code in ["22012", "23505", "25P02", "40001", "40P01", "42501", "42P01", "53100", "55P03", "P0001"] {
            assert!(!may_have_committed(&SqlState::from_code(code), Some(Severity::Error)), "{code}");
            assert!(!may_have_committed(&SqlState::from_code(code), None), "{code}");
            assert!(may_have_committed(&SqlState::from_code(code), Some(Severity::Fatal)), "{code}");
        }
    }
}
