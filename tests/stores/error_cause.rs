//! What a service finds behind an error of a store: the driver's own error, in the chain of `source()`.

use crate::postgres_server;
use crate::redis_server;
use hookonce::Once;
use hookonce::store;
use hookonce::store::StoreError;
use hookonce::store::conformance::making;
use std::error::Error;
use std::io;
use tokio_postgres::error::{DbError, SqlState};

/// The first error of this type behind an error.
fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    std::iter::successors(error.source(), |error| (*error).source()).find_map(|error| error.downcast_ref())
}

async fn open_error(address: &str) -> store::StoreOpenError {
    store::open(address).await.err().expect("it was opened")
}

/// What a claim fails with.
async fn claim_error(store: &dyn store::Inspect, delivery: &str) -> StoreError {
    store.claim(vec![making().delivery(delivery).made(store.now()).into()]).await.expect_err("it was claimed")
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_leads_to_the_error_of_sqlite_or_of_the_system() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    std::fs::write(&path, "no database ".repeat(1000)).unwrap();
    let error = open_error(&format!("sqlite:{}", path.display())).await;
    let code = cause::<rusqlite::Error>(&error).and_then(rusqlite::Error::sqlite_error_code);
    assert_eq!(code, Some(rusqlite::ErrorCode::NotADatabase), "{error:?}");

    let error = open_error(&format!("sqlite:{}", dir.path().join("none/a.db").display())).await;
    assert_eq!(cause::<io::Error>(&error).map(io::Error::kind), Some(io::ErrorKind::NotFound), "{error:?}");
}

#[tokio::test]
async fn a_failed_write_to_sqlite_leads_every_caller_to_the_error_of_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = store::open(&format!("sqlite:{}", path.display())).await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute("drop table payloads", []).unwrap();
    let (one, other) = tokio::join!(claim_error(&*store, "d1"), claim_error(&*store, "d2"));
    let later = claim_error(&*store, "d3").await;
    for error in [one, other, later] {
        let said = cause::<rusqlite::Error>(&error).expect("an error of SQLite").to_string();
        assert_eq!(error.to_string().matches(&said).count(), 1, "the cause is said once: {error}");
    }
    let ran = Once::new(store).run("key", async { Ok::<_, io::Error>(1) }).await.expect_err("it ran");
    assert!(cause::<rusqlite::Error>(&ran).is_some(), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_postgres_leads_to_the_error_of_the_driver_and_of_the_server() {
    let error = open_error("postgres://u@127.0.0.1:1/d").await;
    assert!(cause::<tokio_postgres::Error>(&error).is_some(), "{error:?}");
    assert_eq!(cause::<io::Error>(&error).map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused), "{error:?}");

    let server = postgres_server::Server::start().await;
    let error = open_error(&server.url("nowhere")).await;
    assert_eq!(cause::<DbError>(&error).map(DbError::code), Some(&SqlState::INVALID_CATALOG_NAME), "{error:?}");

    let database = server.database().await;
    let store = store::open(&server.url(&database)).await.unwrap();
    let db = server.client(&database).await;
    db.batch_execute("alter table hookonce.payloads rename to elsewhere").await.unwrap();
    let error = claim_error(&*store, "d1").await;
    assert!(matches!(error, StoreError::Down(_)), "{error:?}");
    let said = cause::<DbError>(&error).expect("an error of the server");
    assert_eq!(said.code(), &SqlState::UNDEFINED_TABLE);
    assert_eq!(error.to_string().matches(said.message()).count(), 1, "the cause is said once: {error}");
}

#[tokio::test]
async fn a_failure_of_redis_leads_to_the_error_of_the_driver() {
    let error = open_error("redis://127.0.0.1:1/").await;
    let refused = cause::<::redis::RedisError>(&error);
    assert!(refused.is_some_and(::redis::RedisError::is_connection_refusal), "{error:?}");

    let server = redis_server::Server::start();
    let store = store::open(&server.url("a")).await.unwrap();
    server.order(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let error = claim_error(&*store, "d1").await;
    assert!(matches!(error, StoreError::Down(_)), "{error:?}");
    assert_eq!(cause::<::redis::RedisError>(&error).and_then(::redis::RedisError::code), Some("OOM"), "{error:?}");
}
