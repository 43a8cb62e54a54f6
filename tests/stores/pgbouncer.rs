//! `PgBouncer` in front of the server: session pooling works, transaction pooling is refused with the settings to use.

use crate::postgres_server::{Server, as_owner, write_as_owner};
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::schema::postgres::{self as migrations, SchemaName};
use hookonce::store::{ChangeHint, Store, StoreBackend, StoreOpenError};
use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long it may take to respond.
const PATIENCE: Duration = Duration::from_mins(1);

/// A pooler; stopped on drop, or when the test ends.
struct PgBouncer {
    port: u16,
    watcher: Child,
    _dir: tempfile::TempDir,
}

impl PgBouncer {
    /// A pooler for this server, with these lines in its config file.
    async fn before(server: &Server, lines: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = dir.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\nmax_client_conn = 200\n{lines}\n",
            server.port
        );
        write_as_owner(&file, &text);
        let mut watcher = as_owner(Path::new("sh"));
        let script = r#""$@" >/dev/null 2>&1 </dev/null & pooler=$!; read -r _; kill $pooler; wait $pooler"#;
        watcher.args(["-c", script, "sh", "pgbouncer"]).arg(&file);
        let watcher = watcher.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "PgBouncer did not start:\n{text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { port, watcher, _dir: dir }
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    async fn open(&self, database: &str, parameters: &str) -> Result<PostgresStore, StoreOpenError> {
        let url = format!("{}{parameters}", self.url(database));
        PostgresStore::open(&url, PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Auto }).await
    }

    /// A connection of the application, which shares the pool.
    async fn client(&self, database: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        self.watcher.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_a_session_pool_and_notify_each_other() {
    let server = Server::start().await;
    let database = server.database().await;
    let pool = PgBouncer::before(&server, "pool_mode = session\ndefault_pool_size = 28").await;
    let here = pool.open(&database, "").await.unwrap();
    let there = pool.open(&database, "").await.unwrap();
    let mut heard = here.hints().unwrap();
    let one = making().source("so").route("ro").delivery("d1");
    there.claim(vec![one.clone().made(there.now()).into()]).await.unwrap();
    assert!(here.get(one.id()).await.unwrap().is_some());
    // The first hints may come before the other listens: each claim sends another.
    let mut n = 1;
    let heard = async {
        loop {
            n += 1;
            let other = making().source("so").route("ro").delivery(&format!("d{n}")).body(format!("b{n}"));
            there.claim(vec![other.made(there.now()).into()]).await.unwrap();
            let told = tokio::time::timeout(Duration::from_millis(200), heard.recv()).await;
            if let Ok(Ok(ChangeHint::Due { source, .. })) = told {
                return assert_eq!(&*source, "so");
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();

    // A parameter that it does not pass on is named in the error; newer versions accept this one.
    match pool.open(&database, "?options=-c%20search_path%3Dpublic").await.err() {
        Some(StoreOpenError::Permanent(said)) => assert!(said.contains("alter role"), "{said}"),
        other => assert!(minor().is_some_and(|minor| minor >= 20), "{other:?}"),
    }
}

/// The minor version of the installed `pgbouncer`.
fn minor() -> Option<u32> {
    let version = std::process::Command::new("pgbouncer").arg("--version").output().unwrap();
    String::from_utf8_lossy(&version.stdout).split('.').nth(1)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pool_is_refused_with_the_settings_that_work() {
    let server = Server::start().await;
    let database = server.database().await;
    // From 1.21 on it supports prepared statements; settings, locks and LISTEN it does not.
    let statements = if minor().is_some_and(|minor| minor >= 21) { "max_prepared_statements = 200" } else { "" };
    let pool = PgBouncer::before(&server, &format!("pool_mode = transaction\n{statements}")).await;
    match pool.open(&database, "").await.err() {
        Some(StoreOpenError::Permanent(said)) => {
            assert!(said.contains("pool_mode = session") && said.contains("pool_size"), "{said}");
        }
        other => panic!("{:?}: {other:?}", minor()),
    }
    let tables = "select count(*) from pg_tables where schemaname in ('public', 'hookonce')";
    let made: i64 = server.client(&database).await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(made, 0, "nothing was written");
}

/// Checks for the error about poolers.
#[track_caller]
fn check_refused<T>(what: &str, came: Result<T, impl Display>) {
    let said = came.err().unwrap_or_else(|| panic!("{what}: it was not refused")).to_string();
    assert!(said.contains("pool_mode = session"), "{what}: {said}");
}

/// The first column of the first row.
async fn one(client: &Client, sql: &str) -> String {
    let said = client.simple_query(sql).await.unwrap();
    let cell = said.iter().find_map(|said| match said {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    cell.unwrap()
}

/// Everything that hookonce does with a store, through a transaction pool that an application shares.
async fn check_nothing_is_left(server: &Server, mode: &str, size: usize) {
    let database = server.database().await;
    let lines = format!("pool_mode = {mode}\ndefault_pool_size = {size}\nquery_wait_timeout = 30");
    let pool = PgBouncer::before(server, &lines).await;
    let url = pool.url(&database);
    for schema in [SchemaMode::Auto, SchemaMode::Manual, SchemaMode::Read] {
        let opened = PostgresStore::open(&url, PostgresOpenOptions { clock: StoreClock::server(), schema }).await;
        check_refused(&format!("{schema:?}"), opened);
    }
    let options = || PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Auto };
    check_refused("copy", PostgresStore::open_to_copy(&url, options()).await);
    check_refused("behind", PostgresStore::behind(&url).await);
    let name = SchemaName::parse("other").unwrap();
    check_refused("relocate", PostgresStore::relocate(&url, &name).await);
    #[cfg(feature = "node")]
    {
        use hookonce::internals::cli::migrate::{DataLossConsent, MigrationSettings, postgres as migrate};
        use hookonce::store::open::StoreUrl;
        let Ok(StoreUrl::Postgres(url)) = StoreUrl::parse(&url, Path::new("")) else { panic!("{url}") };
        let (config, out) = (MigrationSettings::default(), &mut Vec::new());
        check_refused("status", migrate::status(&url, &config, out).await);
        check_refused("up", migrate::up(&url, &config, None, None, out).await);
        check_refused("down", migrate::down(&url, 0, DataLossConsent::Given, out).await);
    }

    // Each of these is in a transaction, so that together they have every server connection of the pool.
    let mut application = Vec::new();
    let begin = if mode == "statement" { "" } else { "begin; " };
    for n in 0..size {
        let client = pool.client(&database).await;
        let shows = [
            ("default_transaction_read_only", "off"),
            ("statement_timeout", "0"),
            ("lock_timeout", "0"),
            ("enable_seqscan", "on"),
            ("plan_cache_mode", "auto"),
        ];
        for (setting, expected) in shows {
            let begin = if setting == shows[0].0 { begin } else { "" };
            assert_eq!(one(&client, &format!("{begin}show {setting}")).await, expected, "{setting} of {n} of {size}");
        }
        application.push(client);
    }
    let locks = one(&server.client(&database).await, "select count(*) from pg_locks where locktype = 'advisory'").await;
    assert_eq!(locks, "0", "an advisory lock is left in the pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pool_is_left_as_it_was_by_everything_that_is_refused() {
    let server = Server::start().await;
    for (mode, size) in [("transaction", 1), ("transaction", 3), ("statement", 2)] {
        check_nothing_is_left(&server, mode, size).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pool_is_recognised_while_an_application_keeps_it_busy() {
    const SIZE: usize = 8;
    let server = Server::start().await;
    let database = server.database().await;
    let pool = PgBouncer::before(&server, &format!("pool_mode = transaction\ndefault_pool_size = {SIZE}")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut application = tokio::task::JoinSet::new();
    for _ in 0..SIZE - 2 {
        let (client, stop) = (pool.client(&database).await, stop.clone());
        application.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                client.simple_query("begin; select pg_sleep(random() / 500); commit").await.unwrap();
            }
        });
    }
    for _ in 0..10 {
        check_refused("busy", pool.open(&database, "").await);
    }
    stop.store(true, Ordering::SeqCst);
    application.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_second_store_is_created_where_a_pooler_drops_the_search_path_of_the_url() {
    const PATH: &str = "?options=-c%20search_path%3Dapp";
    let server = Server::start().await;
    let database = server.database().await;
    // As the first release created it: in the first schema of its user's search path.
    let mut db = server.client(&database).await;
    migrations::up(&mut db, &SchemaName::parse("app").unwrap(), Some(7)).await.unwrap();
    let pool = PgBouncer::before(&server, "pool_mode = session\nignore_startup_parameters = options").await;
    match pool.open(&database, PATH).await.err() {
        Some(StoreOpenError::Permanent(said)) => {
            assert!(said.contains("`app`") && said.contains("alter role \"postgres\" set search_path = app"), "{said}");
        }
        other => panic!("{other:?}"),
    }
    let others = "select count(*) from pg_class where relname = 'events' and relnamespace <> 'app'::regnamespace";
    assert_eq!(one(&db, others).await, "0", "another store was created");

    // The settings that the message recommends; then the server itself, which drops nothing.
    db.batch_execute("alter role postgres set search_path = app").await.unwrap();
    let again = PgBouncer::before(&server, "pool_mode = session").await;
    drop(again.open(&database, "").await.unwrap());
    let direct = format!("{}{PATH}", server.url(&database));
    drop(
        PostgresStore::open(&direct, PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Auto })
            .await
            .unwrap(),
    );
    assert_eq!(one(&db, others).await, "0", "another store was created");
}
