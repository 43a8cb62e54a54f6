//! PostgreSQL servers and schemas that are refused, with what to do about it; and the schema, up and down.

use crate::START;
use crate::pooler;
use crate::postgres::open;
use crate::postgres_server::Server;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::schema::postgres::{self as migrations, SchemaName};
use hookonce::store::{DeclaredFields, Inspect, Store, StoreBackend, StoreOpenError};
use std::process::Command;
use tokio_postgres::Client;

async fn try_open(url: &str, schema: SchemaMode) -> Result<PostgresStore, StoreOpenError> {
    PostgresStore::open(url, PostgresOpenOptions { clock: StoreClock::server(), schema }).await
}

/// Checks that it cannot be opened, with these words about what to do.
async fn check(url: &str, words: &[&str]) {
    match try_open(url, SchemaMode::Auto).await.err() {
        Some(StoreOpenError::Permanent(said)) => {
            assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        other => panic!("{words:?}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_for_a_store_that_cannot_be_opened_says_what_to_do() {
    let server = Server::start_with(&["max_connections=8", "superuser_reserved_connections=3"]).await;
    let (database, db) = (server.database().await, server.client("postgres").await);
    db.batch_execute("create role locked login password 'right'; create role poor login; create role tlsonly login")
        .await
        .unwrap();
    db.batch_execute("revoke create on schema public from public").await.unwrap();

    check(&server.url_of("locked:hunter2", &database), &["password", "locked"]).await;
    check(
        &server.url_of("poor", &database),
        &["permission denied", "create schema \"hookonce\" authorization \"poor\""],
    )
    .await;
    let inside = server.client(&database).await;
    inside.batch_execute("create schema hookonce").await.unwrap();
    let grant = "grant usage, create on schema \"hookonce\" to \"poor\"";
    check(&server.url_of("poor", &database), &["permission denied", grant]).await;
    inside.batch_execute(&format!("{grant}; create table hookonce.events ()")).await.unwrap();
    check(&server.url_of("poor", &database), &["not hookonce's", "schema=NAME"]).await;
    inside.batch_execute("drop schema hookonce cascade; create schema authorization poor").await.unwrap();
    drop(try_open(&format!("{}?schema=poor", server.url_of("poor", &database)), SchemaMode::Auto).await.unwrap());
    drop(inside);
    check(&server.url("nowhere"), &["nowhere", "createdb"]).await;
    check(&server.url_of("tlsonly", &database), &["sslmode=require"]).await;
    check(&format!("{}?sslmode=require", server.url(&database)), &["does not offer TLS", "sslmode"]).await;
    check("postgres://u:hunter2@127.0.0.1:1/d?sslmode=perhaps", &["sslmode=perhaps", "verify-full"]).await;

    let yet = try_open("postgres://u:hunter2@127.0.0.1:1/d", SchemaMode::Auto).await.err();
    assert!(
        matches!(&yet, Some(StoreOpenError::Temporary(said)) if said.contains("127.0.0.1:1") && !said.contains("hunter2")),
        "{yet:?}"
    );
    // Reserved connections are only for superusers.
    let mut others = Vec::new();
    let full = loop {
        match tokio_postgres::connect(&server.url_of("poor", &database), tokio_postgres::NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                others.push(client);
            }
            Err(_) => break try_open(&server.url_of("poor", &database), SchemaMode::Read).await.err(),
        }
    };
    assert!(matches!(&full, Some(StoreOpenError::Temporary(said)) if said.contains("max_connections")), "{full:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_lose_writes_and_a_replica_are_refused() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::manual(START)).await;
    let made = making().delivery("d1");
    store.claim(vec![made.clone().made(START).into()]).await.unwrap();
    let replica = server.replica().await;
    check(&replica.url(&database), &["replica", "primary"]).await;
    let looks = try_open(&replica.url(&database), SchemaMode::Read).await.unwrap();
    let seen = async {
        while looks.get(made.id()).await.unwrap().is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), seen).await.unwrap();
    drop(replica);
    for setting in ["fsync", "full_page_writes"] {
        let careless = Server::start_with(&[&format!("{setting}=off")]).await;
        check(&careless.url("postgres"), &[setting, "= on", "durable=yes"]).await;
        let believed = format!("{}?durable=yes", careless.url("postgres"));
        assert!(try_open(&believed, SchemaMode::Auto).await.is_ok(), "{setting}: the operator's confirmation counts");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pooler_is_refused() {
    let server = Server::start().await;
    let database = server.database().await;
    let port = pooler::before(server.port).await;
    check(&format!("postgres://postgres@127.0.0.1:{port}/{database}"), &["pooler", "pool_mode = session", "pool_size"])
        .await;
    let tables = "select count(*) from pg_tables where schemaname in ('public', 'hookonce')";
    let made: i64 = server.client(&database).await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(made, 0, "nothing was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_used_as_the_url_says_and_verify_full_verifies_the_server() {
    let mut server = Server::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (key, certificate) = (dir.path().join("key.pem"), dir.path().join("certificate.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=the test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    assert!(openssl.output().unwrap().status.success());
    server.use_tls(&key, &certificate).await;
    let database = server.database().await;
    let certificate = certificate.display().to_string().replace('/', "%2F");
    let url = |mode: &str| format!("{}?sslmode={mode}", server.url(&database));
    for mode in
        ["disable".to_owned(), "prefer".into(), "require".into(), format!("verify-full&sslrootcert={certificate}")]
    {
        let store = try_open(&url(&mode), SchemaMode::Auto).await.unwrap_or_else(|error| panic!("{mode}: {error}"));
        store.claim(vec![making().delivery(&mode).made(store.now()).into()]).await.unwrap();
        let sql = "select bool_or(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'hookonce'";
        let encrypted: bool = server.client(&database).await.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(encrypted, mode != "disable", "{mode}");
        drop(store);
        gone(&server.client(&database).await).await;
    }
    check(&url("verify-full"), &["no TLS", "sslrootcert"]).await;
    let by_name = url(&format!("verify-full&sslrootcert={certificate}")).replace("127.0.0.1", "localhost");
    check(&by_name, &["no TLS", "certificate"]).await;
}

/// Waits until none of our connections is left.
async fn gone(db: &Client) {
    let sql = "select count(*) from pg_stat_activity where application_name = 'hookonce'";
    while db.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A description of everything in the schema.
async fn schema(db: &Client) -> Vec<String> {
    let sql = "select 'column ' || table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' \
               || coalesce(column_default, '') || ' ' || is_identity from information_schema.columns \
               where table_schema = 'hookonce' union all \
               select indexdef from pg_indexes where schemaname = 'hookonce' union all \
               select 'sequence ' || sequencename || ' ' || increment_by from pg_sequences where schemaname = 'hookonce' \
               union all select 'options ' || relname || ' ' || array_to_string(reloptions, ',') from pg_class \
               where relnamespace = (select oid from pg_namespace where nspname = 'hookonce') and reloptions is not null order by 1";
    db.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_messages_stay_on_the_way_up_and_once_per_message_on_the_way_down() {
    let server = Server::start().await;
    let mut db = server.client(&server.database().await).await;
    let lay = async |db: &Client, message: &str, source: &str| {
        let sql = "insert into quarantine (message, source, subject, at, why, bytes, head) \
                   values ($1, $2, '', 0, '', 0, '') on conflict do nothing";
        db.execute(sql, &[&message, &source]).await.unwrap();
    };
    let lie = async |db: &Client| {
        let rows = db.query("select source || ' ' || message from quarantine order by n", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    migrations::up(&mut db, &SchemaName::default(), Some(6)).await.unwrap();
    lay(&db, "m1", "a").await;
    migrations::up(&mut db, &SchemaName::default(), Some(7)).await.unwrap();
    // The same statement as of a binary of version 6, which may still run.
    for (message, source) in [("m1", "a"), ("m1", "b"), ("m2", "b")] {
        lay(&db, message, source).await;
    }
    assert_eq!(lie(&db).await, ["a m1", "b m1", "b m2"]);
    migrations::down(&mut db, &SchemaName::default(), 6).await.unwrap();
    assert_eq!(lie(&db).await, ["a m1", "b m2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_goes_up_and_down_and_one_version_ahead_is_fine() {
    let server = Server::start().await;
    for migration in migrations::MIGRATIONS {
        let mut db = server.client(&server.database().await).await;
        migrations::up(&mut db, &SchemaName::default(), Some(migration.version - 1)).await.unwrap();
        let before = schema(&db).await;
        migrations::up(&mut db, &SchemaName::default(), Some(migration.version)).await.unwrap();
        let there = schema(&db).await;
        assert_ne!(before, there);
        migrations::down(&mut db, &SchemaName::default(), migration.version - 1).await.unwrap();
        if migration.version > 1 {
            assert_eq!(schema(&db).await, before, "{}", migration.name);
        }
        migrations::up(&mut db, &SchemaName::default(), Some(migration.version)).await.unwrap();
        assert_eq!(schema(&db).await, there, "{}", migration.name);
    }

    let database = server.database().await;
    let older = try_open(&server.url(&database), SchemaMode::Manual).await.err();
    assert!(
        matches!(&older, Some(StoreOpenError::Permanent(said)) if said.contains("hookonce migrate up")),
        "{older:?}"
    );
    // Nodes that start together: one migrates, the others wait for it.
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = server.url(&database);
        nodes.spawn(async move { try_open(&url, SchemaMode::Auto).await.map(drop) });
    }
    assert!(nodes.join_all().await.iter().all(Result::is_ok));
    let mut db = server.client(&database).await;
    let latest = i32::try_from(migrations::MIGRATIONS.len()).unwrap();
    let newer = "insert into schema_migrations values ($1, 'newer', 'x', 0)";
    db.execute(newer, &[&(latest + 1)]).await.unwrap();
    for schema in [SchemaMode::Auto, SchemaMode::Manual, SchemaMode::Read] {
        assert!(try_open(&server.url(&database), schema).await.is_ok(), "{schema:?}");
    }
    assert_eq!(migrations::status(&db, &SchemaName::default()).await.unwrap().len(), migrations::MIGRATIONS.len() + 1);
    assert!(
        migrations::down(&mut db, &SchemaName::default(), 0).await.is_err(),
        "this version cannot migrate down from there"
    );
    db.execute(newer, &[&(latest + 2)]).await.unwrap();
    check(&server.url(&database), &["newer hookonce"]).await;
    db.batch_execute("delete from schema_migrations where name = 'newer'; update schema_migrations set checksum = 'x' where version = 1").await.unwrap();
    check(&server.url(&database), &["another form"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declared_fields_are_columns_of_a_view_and_nothing_in_them_fails_a_claim() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database, StoreClock::manual(START)).await;
    let source = "so\"ur'ce \\";
    let fields = |names: &[(&str, bool)]| {
        vec![DeclaredFields {
            source: source.into(),
            fields: names.iter().map(|(n, i)| ((*n).to_owned(), *i)).collect(),
        }]
    };
    let declared = fields(&[("tag", true), ("size", false), ("state", false), ("it's \"x\"", true)]);
    assert_eq!(store.declare(declared.clone()).await.unwrap(), ["state"]);
    assert_eq!(store.declare(declared.clone()).await.unwrap(), ["state"], "the second time there is nothing to do");
    let with = |fields: &str| {
        let mut new = making().source(source).made(START);
        new.event.fields = hookonce::decide::field::StoredFields::from_json(fields).unwrap();
        new.event.digest = new.event.immutable_digest();
        new
    };
    let long = format!(r#"{{"tag":"{}","size":9007199254740993}}"#, "é\u{1f980}x".repeat(600));
    for fields in [r#"{"tag":"latest","size":1,"it's \"x\"":"y"}"#, r#"{"tag":"zero\u0000byte"}"#, &*long] {
        let new = with(fields);
        let id = new.event.id;
        store.claim(vec![new.into()]).await.unwrap();
        let event = store.get(id).await.unwrap().unwrap();
        assert_eq!(event.immutable_digest(), event.digest, "it comes back as it was");
    }
    let db = server.client(&database).await;
    let sql = r#"select size, "it's ""x""" from "events_so""ur'ce \" where tag = 'latest'"#;
    let row = db.query_one(sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("1", "y"));
    // The index holds the beginning of a value, and is built in the background.
    let valid =
        "select exists (select from pg_index where indexrelid = to_regclass('events_field_tag') and indisvalid)";
    while !db.query_one(valid, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    db.batch_execute("set enable_seqscan = off").await.unwrap();
    let sql = sql.replace("where tag = 'latest'", "where left(tag, 200) = 'latest'");
    let plan = db.query(&format!("explain {sql}"), &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("events_field_tag")), "{plan:?}");
    assert_eq!(store.declare(fields(&[("tag", true)])).await.unwrap(), [""; 0], "another view replaces it");

    // A role that may only read and write rows works without the views.
    db.batch_execute("create role poor login; grant usage on schema hookonce to poor").await.unwrap();
    db.batch_execute(
        "grant all on all tables in schema hookonce to poor; grant all on all sequences in schema hookonce to poor",
    )
    .await
    .unwrap();
    let poor = try_open(&server.url_of("poor", &database), SchemaMode::Manual).await.unwrap();
    assert_eq!(poor.declare(fields(&[("size", false)])).await.unwrap(), [""; 0]);
    poor.claim(vec![making().delivery("poor").made(START).into()]).await.unwrap();
}
