//! The schema version that has dictionaries: when a store gets it, and nodes that began before it.

use crate::START;
use crate::dictionaries::{check, claim, dictionaries, sweep};
use crate::postgres::open;
use crate::postgres_server::Server;
use crate::start_due::starts;
use hookonce::decide::id::EventId;
use hookonce::internals::cli::migrate::{self, DataLossConsent, MigrateError, MigrationSettings};
use hookonce::store::clock::StoreClock;
use hookonce::store::open::StoreUrl;
use hookonce::store::postgres::PostgresStore;
use hookonce::store::schema::postgres::{self as migrations, SchemaName};
use hookonce::store::url::ServerUrl;
use hookonce::store::{Administer, RemovalResult, StoreBackend, StoredValue};
use std::path::Path;
use tokio_postgres::{Client, NoTls};

/// The newest version that 0.1.0 can run beside.
const BEFORE: u32 = 8;

async fn version(db: &Client) -> i32 {
    db.query_one("select max(version) from hookonce.schema_migrations", &[]).await.unwrap().get(0)
}

fn address(url: &str) -> ServerUrl {
    let Ok(StoreUrl::Postgres(url)) = StoreUrl::parse(url, Path::new("")) else { panic!("{url}") };
    url
}

async fn up(server: &Server, database: &str, to: Option<u32>) -> Result<String, MigrateError> {
    let mut out = Vec::new();
    let config = MigrationSettings::default();
    migrate::postgres::up(&address(&server.url(database)), &config, None, to, &mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

async fn down(server: &Server, database: &str) -> Result<(), MigrateError> {
    let url = address(&server.url(database));
    migrate::postgres::down(&url, BEFORE, DataLossConsent::Given, &mut Vec::new()).await
}

/// A store of the version before.
async fn older(server: &Server) -> (String, Client) {
    let database = server.database().await;
    let mut db = server.client(&database).await;
    migrations::up(&mut db, &SchemaName::default(), Some(BEFORE)).await.unwrap();
    (database, db)
}

/// Has the store the index of bodies that need a dictionary?
async fn has_index(db: &Client) -> bool {
    let sql =
        "select exists (select from pg_indexes where schemaname = 'hookonce' and indexname = 'payloads_dictionary')";
    db.query_one(sql, &[]).await.unwrap().get(0)
}

async fn many(node: &PostgresStore, from: usize, to: usize, waits: bool) -> Vec<(usize, EventId)> {
    let mut each = Vec::new();
    for n in from..to {
        each.push((n, claim(node, n, waits).await));
    }
    each
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_operator_adds_dictionaries_to_a_store_and_nodes_that_run_read_what_others_pack_with_them() {
    let server = Server::start().await;
    let (database, db) = older(&server).await;
    let clock = StoreClock::manual(START);
    let early = open(&server, &database, clock.clone()).await;
    assert_eq!(version(&db).await, 8);
    let mut each = many(&early, 0, 20, true).await;
    check(&early, &each).await;
    let packed = "select count(*) from hookonce.payloads where unpacked is null and length(body) > 3000";
    assert_eq!(db.query_one(packed, &[]).await.unwrap().get::<_, i64>(0), 20, "each by itself");
    // One that begins later does not apply it, either.
    drop(open(&server, &database, clock.clone()).await);
    assert_eq!((version(&db).await, has_index(&db).await), (8, false));

    let said = up(&server, &database, None).await.unwrap();
    assert!(
        said.starts_with("0009 dictionaries applied\n") && said.contains("index payloads_dictionary: built"),
        "{said}"
    );
    assert_eq!((version(&db).await, has_index(&db).await), (9, true));
    assert_eq!(up(&server, &database, None).await.unwrap(), "nothing to do\n");
    each.extend(many(&early, 20, 40, true).await);
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0], "it does not know that it may");
    let late = open(&server, &database, clock).await;
    each.extend(many(&late, 40, 60, false).await);
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 11]);
    check(&early, &each).await;
    let started = early.start_due(starts(100)).await.unwrap();
    let brought = started.payloads.iter().filter(|(_, found)| matches!(found, StoredValue::Whole(_))).count();
    assert_eq!((started.events.len(), brought), (40, 40));
    // What it is to forget, it forgets everywhere.
    let origin = "select uuid_send(event) from hookonce.dictionaries";
    let origin: Vec<u8> = db.query_one(origin, &[]).await.unwrap().get(0);
    let at = each.iter().position(|(_, id)| origin == id.0).unwrap();
    let (_, forgotten) = each.remove(at);
    assert_eq!(early.remove(forgotten).await.unwrap(), RemovalResult::Removed);
    assert_eq!(dictionaries(&db).await, [0, 0, 0, 0]);
    sweep(&early).await;
    each.extend(many(&early, 60, 80, true).await);
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 11], "it has noticed");
    check(&late, &each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_version_is_applied_that_a_connected_node_of_the_first_release_cannot_read() {
    let server = Server::start().await;
    let (database, db) = older(&server).await;
    // As 0.1.0 connects: by this name, and with no lock that tells its schema.
    let url = format!("{}?application_name=hookonce", server.url(&database));
    let (first, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    first.batch_execute("select 1").await.unwrap();
    // Newer nodes, and commands that read, are none.
    let node = open(&server, &database, StoreClock::manual(START)).await;
    let refused = up(&server, &database, None).await.unwrap_err().to_string();
    assert!(refused.contains("0.1.0 is connected: 1 session from 127.0.0.1"), "{refused}");
    assert!(refused.contains("nothing was changed") && refused.contains("--to 8"), "{refused}");
    assert_eq!(version(&db).await, 8);
    assert_eq!(up(&server, &database, Some(BEFORE)).await.unwrap(), "nothing to do\n");
    drop(first);
    connection.await.unwrap().unwrap();
    assert!(up(&server, &database, None).await.unwrap().starts_with("0009"));
    drop(node);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_way_down_every_body_is_packed_without_dictionary_also_one_that_is_locked() {
    let server = Server::start().await;
    let database = server.database().await;
    let clock = StoreClock::manual(START);
    let node = open(&server, &database, clock.clone()).await;
    let each = many(&node, 0, 150, true).await;
    let (db, other) = (server.client(&database).await, server.client(&database).await);
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 141]);
    let refused = down(&server, &database).await.unwrap_err().to_string();
    assert!(refused.contains("a node is running"), "{refused}");
    assert_eq!(dictionaries(&db).await, [1, 1, 1, 141]);
    drop(node);
    other
        .batch_execute("begin; select 1 from hookonce.payloads where packed is not null limit 1 for update")
        .await
        .unwrap();
    let released = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(version(&db).await, 9);
        other.batch_execute("commit").await.unwrap();
    };
    let (went, ()) = tokio::join!(down(&server, &database), released);
    went.unwrap();
    assert_eq!(version(&db).await, 8);
    let plain = "select count(*) from hookonce.payloads where length(body) > 3000";
    assert_eq!(db.query_one(plain, &[]).await.unwrap().get::<_, i64>(0), 150);
    check(&open(&server, &database, clock.clone()).await, &each).await;
    up(&server, &database, None).await.unwrap();
    check(&open(&server, &database, clock).await, &each).await;
}
