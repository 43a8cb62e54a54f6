//! Errors of the server, translated for the caller and for operators who start a node.

use super::url::PostgresUrl;
use crate::store::schema::postgres::SchemaName;
use crate::store::{StoreError, StoreOpenError};
use std::error::Error as _;
use std::io;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// The stage of a write at which an error occurred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PgCommitStage {
    /// Before the commit was sent, or while only reading: nothing is written.
    Before,
    /// After the commit was sent.
    Commit,
}

/// The store error for an error of the server.
pub(super) fn classify(error: Error, stage: PgCommitStage) -> StoreError {
    meaning(&error, stage).caused_by(error)
}

fn meaning(error: &Error, stage: PgCommitStage) -> StoreError {
    let why = server_message(error).into();
    let Some(code) = error.code() else {
        // No response: the connection is gone, or what came over it was invalid.
        return match stage {
            PgCommitStage::Before => StoreError::Down(why),
            PgCommitStage::Commit => StoreError::Unsure(why),
        };
    };
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    match stage {
        PgCommitStage::Commit if may_have_committed(code, severity) => StoreError::Unsure(why),
        // Any other error means that nothing was written, and an operator may fix it while we run: a password, a
        // permission, a table being restored. Never `Broken`: then the outcomes of attempts would not be written any
        // more.
        _ => StoreError::Down(why),
    }
}

/// Whether a transaction may have been committed although its commit returned this error. PostgreSQL rolls back what it
/// answers with an error. But these errors mean that something happened to the server or on the way to it, perhaps just
/// after the commit: a pooler (class 08 or 58) or the server (57) ended the connection, the server failed (58, XX), or
/// the session was ended for another reason.
fn may_have_committed(code: &SqlState, severity: Option<Severity>) -> bool {
    let ended = matches!(severity, Some(Severity::Fatal | Severity::Panic));
    let unknown = *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
    ended || unknown || matches!(&code.code()[..2], "08" | "57" | "58" | "XX")
}

/// Is it a conflict with another transaction? Then the write is prepared again.
pub(super) fn is_contention(error: &Error) -> bool {
    let ours = [&SqlState::T_R_DEADLOCK_DETECTED, &SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::UNIQUE_VIOLATION];
    error.code().is_some_and(|state| ours.contains(&state))
}

/// The server's own message.
pub(super) fn server_message(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// Why a node cannot start with this server.
pub(super) fn cannot_open(address: &PostgresUrl, error: Error) -> StoreOpenError {
    advice(address, &error).caused_by(error)
}

fn advice(address: &PostgresUrl, error: &Error) -> StoreOpenError {
    let why = server_message(error);
    let Some(state) = error.code() else { return unanswered(address, error) };
    let user = address.user();
    let ever = |hint: String| StoreOpenError::permanent(format!("{address}: {why}; {hint}"));
    match &state.code()[..2] {
        _ if *state == SqlState::INVALID_PASSWORD => ever(format!("check the password of user {user} in the URL")),
        "28" if why.contains("no encryption") => {
            ever("the server wants TLS: add `sslmode=require` or `sslmode=verify-full` to the URL".into())
        }
        "28" => ever(format!("check the user and the password in the URL, and that pg_hba.conf allows {user}")),
        _ if *state == SqlState::INVALID_CATALOG_NAME => {
            ever(format!("create it with `createdb {}`, or name another in the URL", address.database()))
        }
        _ if *state == SqlState::INSUFFICIENT_PRIVILEGE => ever(rights(address, &why)),
        "26" => pooled(address),
        _ if *state == SqlState::DUPLICATE_PSTATEMENT => pooled(address),
        _ if *state == SqlState::DUPLICATE_TABLE || *state == SqlState::UNDEFINED_TABLE => {
            ever("its tables are not hookonce's; use another schema for hookonce: add `schema=NAME` to the URL".into())
        }
        _ if *state == SqlState::TOO_MANY_CONNECTIONS => {
            StoreOpenError::temporary(format!("{address}: {why}; raise max_connections, or run fewer nodes"))
        }
        "08" if why.contains("unsupported startup parameter") => ever(
            "a pooler is in front of it: remove that parameter from the URL, and set it with `alter role … set …`. Do \
             not name it in `ignore_startup_parameters` of pgbouncer.ini: it would be dropped silently"
                .into(),
        ),
        "08" | "40" | "53" | "55" | "57" | "58" => StoreOpenError::temporary(format!("{address}: {why}")),
        _ => StoreOpenError::permanent(format!("{address}: {why}")),
    }
}

/// The error for a session that could not take the schema lock.
pub(super) fn cannot_tell(address: &PostgresUrl, error: Error) -> StoreOpenError {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        let why =
            format!("{address}: `hookonce migrate` is changing the store; no node can start until it has finished");
        return StoreOpenError::Temporary(why.into()).caused_by(error);
    }
    cannot_open(address, error)
}

/// The missing permission, and the statement that grants it.
fn rights(address: &PostgresUrl, why: &str) -> String {
    let user = quoted_user(address);
    let named = why.split_once("for schema ").map(|(_, name)| SchemaName::parse(name).unwrap_or_default());
    let schema = named.clone().or(address.schema.clone()).unwrap_or_default();
    if why.contains("for database ") {
        return format!("as a user who may create schemas, run `create schema {schema} authorization {user}`");
    }
    if named.is_some() {
        return format!(
            "as the owner of the schema, run `grant usage, create on schema {schema} to {user}`, or transfer \
             it: `alter schema {schema} owner to {user}`"
        );
    }
    format!(
        "its tables belong to another user: connect as that user, or grant {user} the rights with `grant all on all \
         tables in schema {schema} to {user}` and the same for its sequences"
    )
}

/// The session has another `search_path` than the URL sets.
pub(super) fn dropped_path(address: &PostgresUrl, asked: &str, has: &str) -> StoreOpenError {
    StoreOpenError::permanent(format!(
        "{address}: the URL sets `search_path` to `{asked}` by `options`, but the session has `{has}`: a pooler dropped it, \
         so the wrong schema would be used. Use the server's own address; or remove `options` from the \
         URL, run `alter role {} set search_path = {asked}` and make the pooler reconnect",
        quoted_user(address)
    ))
}

fn quoted_user(address: &PostgresUrl) -> String {
    format!("\"{}\"", address.user().replace('"', "\"\""))
}

/// A pooler lends each server session for one transaction.
pub(super) fn pooled(address: &PostgresUrl) -> StoreOpenError {
    StoreOpenError::permanent(format!(
        "{address}: a pooler in front of it uses transaction pooling, but hookonce needs sessions \
         of its own, with settings, prepared statements, locks and LISTEN; use the server's own address, or set \
         `pool_mode = session` for this database, with `pool_size` at 14 for each node"
    ))
}

/// The error for no response, or an invalid one.
fn unanswered(address: &PostgresUrl, error: &Error) -> StoreOpenError {
    let cause = error.source();
    let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    let text = error.to_string();
    if text.contains("TLS") {
        let cause = cause.map_or(String::new(), ToString::to_string);
        let why = if cause.contains("does not support TLS") { "the server does not offer TLS" } else { &*cause };
        return StoreOpenError::permanent(format!(
            "{address}: no TLS ({why}); check `sslmode` in the URL: `verify-full` needs a certificate for this host that \
             is trusted here or by `sslrootcert`, `disable` needs none"
        ));
    }
    if text.contains("authentication") || text.contains("configuration") {
        let cause = cause.map_or(text, ToString::to_string);
        return StoreOpenError::permanent(format!("{address}: {cause}; check the user and the password in the URL"));
    }
    match io {
        Some(error) if error.to_string().contains("does not allow writes") => {
            StoreOpenError::temporary(format!("{address} is read-only; it may be a replica"))
        }
        _ => StoreOpenError::temporary(format!("{address} cannot be reached: {}", server_message(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_interrupted_by_the_server_or_a_pooler_may_be_written_and_a_refused_one_is_not() {
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
