//! `PgBouncer` before the server: a pool of sessions works, a pool of transactions is refused with what to set.

use crate::postgres_server::{Server, as_owner, write_as_owner};
use hookonce::store::clock::Clock;
use hookonce::store::contract::making;
use hookonce::store::postgres::{Options, Postgres, Schema};
use hookonce::store::shared::Shared;
use hookonce::store::{CannotOpen, Hint, Store};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// A pooler that runs until this is dropped, or the test ends.
struct PgBouncer {
    port: u16,
    watcher: Child,
    _dir: tempfile::TempDir,
}

impl PgBouncer {
    /// One before this server, with these lines in its file.
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

    async fn open(&self, database: &str, parameters: &str) -> Result<Postgres, CannotOpen> {
        let url = format!("postgres://postgres@127.0.0.1:{}/{database}{parameters}", self.port);
        Postgres::open(&url, Options { clock: Clock::server(), schema: Schema::Auto }).await
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        self.watcher.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_a_pool_of_sessions_and_hear_of_each_other() {
    let server = Server::start().await;
    let database = server.database().await;
    let pool = PgBouncer::before(&server, "pool_mode = session\ndefault_pool_size = 26").await;
    let here = Shared(pool.open(&database, "").await.unwrap());
    let there = Shared(pool.open(&database, "").await.unwrap());
    let mut heard = here.hints().unwrap();
    let one = making().source("so").route("ro").delivery("d1");
    there.claim(vec![one.clone().made(there.now())]).await.unwrap();
    assert!(here.get(one.id()).await.unwrap().is_some());
    // The first hints may be before the other listens: each claim sends another.
    let mut n = 1;
    let heard = async {
        loop {
            n += 1;
            let other = making().source("so").route("ro").delivery(&format!("d{n}")).body(format!("b{n}"));
            there.claim(vec![other.made(there.now())]).await.unwrap();
            let told = tokio::time::timeout(Duration::from_millis(200), heard.recv()).await;
            if let Ok(Ok(Hint::Due { source, .. })) = told {
                return assert_eq!(&*source, "so");
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();

    // A parameter that it does not pass on is named; newer ones take this one.
    match pool.open(&database, "?options=-c%20search_path%3Dpublic").await.err() {
        Some(CannotOpen::Ever(said)) => assert!(said.contains("ignore_startup_parameters"), "{said}"),
        other => assert!(minor().is_some_and(|minor| minor >= 20), "{other:?}"),
    }
}

/// Its version's second number.
fn minor() -> Option<u32> {
    let version = std::process::Command::new("pgbouncer").arg("--version").output().unwrap();
    String::from_utf8_lossy(&version.stdout).split('.').nth(1)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_transactions_is_refused_with_the_settings_that_work() {
    let server = Server::start().await;
    let database = server.database().await;
    // From 1.21 it can carry prepared statements over; settings, locks and LISTEN it cannot.
    let statements = if minor().is_some_and(|minor| minor >= 21) { "max_prepared_statements = 200" } else { "" };
    let pool = PgBouncer::before(&server, &format!("pool_mode = transaction\n{statements}")).await;
    match pool.open(&database, "").await.err() {
        Some(CannotOpen::Ever(said)) => {
            assert!(said.contains("pool_mode = session") && said.contains("pool_size"), "{said}");
        }
        other => panic!("{:?}: {other:?}", minor()),
    }
    let tables = "select count(*) from pg_tables where schemaname in ('public', 'hookonce')";
    let made: i64 = server.client(&database).await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(made, 0, "nothing was written");
}
