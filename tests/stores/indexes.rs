//! Indexes and migrations of a PostgreSQL store while others write to it.

use crate::postgres_server::Server;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::event::EventStep;
use hookonce::decide::id::NodeId;
use hookonce::decide::source::Route;
use hookonce::decide::time::Duration;
use hookonce::internals::cli::migrate::{self, MigrationSettings};
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::open::MigrationMode;
use hookonce::store::open::StoreUrl;
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::schema::postgres::{self as migrations, SchemaName};
use hookonce::store::url::ServerUrl;
use hookonce::store::{DeclaredFields, DueQuery, EventQuery, Inspect, StartDueRequest, Store, StoreBackend};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// The schema of the first release.
const FIRST: u32 = 7;
/// How long building an index may take.
const PATIENCE: Duration = Duration::from_mins(20);

fn size(full: i32, small: i32) -> i32 {
    if std::env::var_os("HOOKONCE_FULL").is_some() { full } else { small }
}

/// A store as the first release created it, with this many events that are done; three values of one field.
async fn first_store(server: &Server, events: i32) -> (String, Client) {
    let database = server.database().await;
    let mut db = server.client(&database).await;
    migrations::up(&mut db, &SchemaName::default(), Some(FIRST)).await.unwrap();
    let sql = "insert into hookonce.events (id, revision, version, source, route, part, fields, state, cause, received_at, \
               ended_at, life, attempt, doubts, blocks_done, passed, turn, body, body_digest, digest) \
               select md5(n::text)::uuid, 1, n, 'source', '1', 0, json_build_object('tag', 'tag' || n % 3), 'done', \
               'recorded', 1, 1, 1, 0, 0, 0, 0, n, false, '', '' from generate_series(1, $1::integer) n";
    db.execute(sql, &[&events]).await.unwrap();
    (database, db)
}

async fn open(server: &Server, database: &str) -> PostgresStore {
    open_as(&server.url(database), SchemaMode::Auto).await
}

async fn open_as(url: &str, schema: SchemaMode) -> PostgresStore {
    PostgresStore::open(url, PostgresOpenOptions { clock: StoreClock::server(), schema }).await.unwrap()
}

fn address(url: &str) -> ServerUrl {
    let Ok(StoreUrl::Postgres(url)) = StoreUrl::parse(url, Path::new(".")) else { panic!("{url} is not a server") };
    url
}

/// The output of `hookonce migrate status` with this `migrate` setting.
async fn status(url: &str, migrate: MigrationMode) -> String {
    let (config, mut out) = (MigrationSettings { migrate, fields: declared() }, Vec::new());
    migrate::postgres::status(&address(url), &config, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

fn declared() -> Vec<DeclaredFields> {
    vec![DeclaredFields { source: "source".into(), fields: vec![("tag".into(), true)] }]
}

/// Writes one event again and again, as a claim or a transition does, until told to stop; returns how often it waited
/// longer than 100 ms for a lock.
fn write_on(db: Client, id: &str, stop: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let (stop, sql) = (stop.clone(), format!("update hookonce.events set revision = revision where id = '{id}'"));
    tokio::spawn(async move {
        db.batch_execute("set lock_timeout = '100ms'").await.unwrap();
        let mut waited = 0;
        while !stop.load(Ordering::SeqCst) {
            match db.batch_execute(&sql).await {
                Ok(()) => {}
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => waited += 1,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        waited
    })
}

/// An index of the events: its method, its number of columns, and whether it is valid.
async fn index(db: &Client, name: &str) -> Option<(String, i16, bool)> {
    let sql = "select a.amname::text, i.indnkeyatts, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid \
               join pg_am a on a.oid = c.relam where i.indexrelid = to_regclass('hookonce.' || $1)";
    db.query_opt(sql, &[&name]).await.unwrap().map(|row| (row.get(0), row.get(1), row.get(2)))
}

/// Waits until the indexes are as they should be, and no temporary one is left.
async fn built(db: &Client) {
    let until = Instant::now() + PATIENCE;
    let tree = |columns| Some(("btree".to_owned(), columns, true));
    loop {
        let mut all = Vec::new();
        for name in ["events_due", "events_due_part", "events_id_end", "events_field_tag"] {
            all.push(index(db, name).await);
        }
        let left = "select count(*) from pg_class where relkind = 'i' and (relname like 'events\\_new\\_%' \
                    or relname like 'events\\_old\\_%')";
        let left: i64 = db.query_one(left, &[]).await.unwrap().get(0);
        if all == [tree(5), tree(5), tree(1), tree(1)] && left == 0 {
            return;
        }
        assert!(Instant::now() < until, "{all:?}, {left} left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_claim_waits_while_a_large_store_is_upgraded_and_its_indexes_are_built() {
    let server = Server::start().await;
    let (database, db) = first_store(&server, size(5_000_000, 100_000)).await;
    let id: String = db.query_one("select md5('7')::uuid::text", &[]).await.unwrap().get(0);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write_on(server.client(&database).await, &id, &stop);
    let store = open(&server, &database).await;
    let asked = Instant::now();
    store.declare(declared()).await.unwrap();
    println!("declared after {:?}", asked.elapsed());
    // The node is up before its indexes exist.
    let claim = store.claim(vec![making().delivery("new").made(store.now()).into()]).await.unwrap().remove(0);
    assert!(matches!(claim, ClaimResult::New { .. }), "{claim:?}");
    built(&db).await;
    println!("built after {:?}", asked.elapsed());
    stop.store(true, Ordering::SeqCst);
    // A busy machine may delay the holder of a lock; an index that is built in the foreground takes much longer.
    let waited = writer.await.unwrap();
    assert!(waited <= size(0, 3).unsigned_abs(), "a write waited {waited} times longer than 100 ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_waits_for_a_lock_does_not_block_other_writes() {
    let server = Server::start().await;
    let (database, db) = first_store(&server, 10).await;
    let (mut slow, id): (_, Vec<String>) = (server.client(&database).await, {
        let rows = db.query("select id::text from hookonce.events limit 2", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    });
    let work = slow.transaction().await.unwrap();
    let sql = format!("update hookonce.events set revision = revision where id = '{}'", id[0]);
    work.batch_execute(&sql).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write_on(server.client(&database).await, &id[1], &stop);
    let mut ours = server.client(&database).await;
    let up =
        tokio::spawn(async move { migrations::up(&mut ours, &SchemaName::default(), None).await.map(|way| way.len()) });
    tokio::time::sleep(Duration::from_millis(1_500)).await; // the slow transaction: longer than a write may be delayed
    assert!(!up.is_finished(), "a migration cannot be done while another transaction uses the table");
    work.commit().await.unwrap();
    assert_eq!(up.await.unwrap().unwrap(), migrations::MIGRATIONS.len() - 7);
    stop.store(true, Ordering::SeqCst);
    let waited = writer.await.unwrap();
    assert!(waited <= 3, "a write waited {waited} times longer than 100 ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_does_not_wait_for_an_autovacuum_that_takes_hours() {
    // The autovacuum sleeps 100 ms for each page.
    let slow = ["autovacuum_naptime=1", "autovacuum_vacuum_cost_delay=100", "autovacuum_vacuum_cost_limit=1"];
    let server = Server::start_with(&slow).await;
    let (database, db) = first_store(&server, 20_000).await;
    db.batch_execute("update hookonce.events set revision = revision + 1").await.unwrap();
    let vacuums = "select count(*) from pg_stat_progress_vacuum where relid = 'hookonce.events'::regclass";
    let until = Instant::now() + Duration::from_mins(2);
    while db.query_one(vacuums, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(Instant::now() < until, "no autovacuum began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let id: String = db.query_one("select md5('7')::uuid::text", &[]).await.unwrap().get(0);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write_on(server.client(&database).await, &id, &stop);
    let mut ours = server.client(&database).await;
    let schema = SchemaName::default();
    let up = tokio::time::timeout(Duration::from_secs(20), migrations::up(&mut ours, &schema, None)).await;
    let way = up.expect("it waits for the autovacuum").unwrap();
    assert_eq!(way.len(), migrations::MIGRATIONS.len() - 7);
    stop.store(true, Ordering::SeqCst);
    let waited = writer.await.unwrap();
    assert!(waited <= 3, "a write waited {waited} times longer than 100 ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_an_earlier_version_or_an_invalid_one_is_built_again_and_status_shows_it() {
    let server = Server::start().await;
    let (database, db) = first_store(&server, 100).await;
    let hash = "create index events_field_tag on hookonce.events using hash ((fields ->> 'tag'))";
    db.batch_execute(hash).await.unwrap();
    let store = open(&server, &database).await;
    let status = async || status(&server.url(&database), MigrationMode::Auto).await;
    let said = status().await;
    assert!(said.contains("index events_due: not built yet") && said.contains("index events_id_end: not"), "{said}");
    store.declare(declared()).await.unwrap();
    built(&db).await;
    let said = status().await;
    assert!(!said.contains("index"), "{said}");
    // As an interrupted build leaves it.
    let broken = "update pg_index set indisvalid = false where indexrelid = to_regclass('hookonce.events_field_tag')";
    db.batch_execute(broken).await.unwrap();
    let said = status().await;
    assert!(said.contains("index events_field_tag: invalid"), "{said}");
    drop(store);
    // Two nodes that start together build it once.
    let (one, two) = tokio::join!(open(&server, &database), open(&server, &database));
    one.declare(declared()).await.unwrap();
    two.declare(declared()).await.unwrap();
    built(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_migrated_down_only_if_no_node_runs() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&server, &database).await;
    store.claim(vec![making().delivery("1").made(store.now()).into()]).await.unwrap();
    let url = address(&server.url(&database));
    let down = async || migrate::postgres::down(&url, 0, migrate::DataLossConsent::Given, &mut Vec::new()).await;
    let refused = down().await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("a node is running") && refused.contains("nothing was changed"), "{refused}");
    assert_eq!(store.counts().await.unwrap().waiting, 1, "it is unchanged");
    drop(store);
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = down().await {
        assert!(Instant::now() < until, "{error}"); // its sessions end when the server has noticed
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a session waits for an advisory lock with this many numbers: one is the migrations', two are the nodes'.
async fn waits_for(db: &Client, numbers: i16) {
    let sql = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objsubid = $1";
    let until = Instant::now() + Duration::from_secs(30);
    while db.query_one(sql, &[&numbers]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(Instant::now() < until, "no session waits for a lock of {numbers}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_during_a_migration_down_waits_and_then_sees_the_remaining_version() {
    const MIGRATION: i64 = 7_525_476_853_281_449_829;
    let server = Server::start().await;
    let database = server.database().await;
    let mut db = server.client(&database).await;
    migrations::up(&mut db, &SchemaName::default(), None).await.unwrap();
    let StoreUrl::Postgres(url) = StoreUrl::parse(&server.url(&database), Path::new(".")).unwrap() else {
        panic!("a server")
    };
    // `down` has checked for nodes, and waits for another migration to end.
    db.execute("select pg_advisory_lock($1)", &[&MIGRATION]).await.unwrap();
    let down = tokio::spawn(async move {
        migrate::postgres::down(&url, FIRST, migrate::DataLossConsent::Given, &mut Vec::new()).await
    });
    waits_for(&db, 1).await;
    let options = PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Manual };
    let url = server.url(&database);
    let node = tokio::spawn(async move { PostgresStore::open(&url, options).await.err() });
    let waits = waits_for(&db, 2);
    tokio::select! {
        () = waits => {}
        () = async { while !node.is_finished() { tokio::time::sleep(Duration::from_millis(20)).await } } => {
            panic!("a node started during the migration down: {:?}", node.await.unwrap());
        }
    }
    db.execute("select pg_advisory_unlock($1)", &[&MIGRATION]).await.unwrap();
    down.await.unwrap().unwrap();
    let refused = node.await.unwrap().expect("its schema is too old").to_string();
    assert!(refused.contains("hookonce migrate up"), "{refused}");
}

/// Waits until a condition is true.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_mins(1);
    while !holds().await {
        assert!(Instant::now() < patience, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until this session is the only one: then the server's statistics are complete.
async fn alone(db: &Client) {
    let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    until("sessions end", async || db.query_one(others, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
}

/// The same, and resets the statistics.
async fn count_anew(db: &Client) {
    alone(db).await;
    db.batch_execute("select pg_stat_reset()").await.unwrap();
}

/// Prevents others from building indexes, as a node that builds does.
async fn build_elsewhere(server: &Server, database: &str) -> Client {
    let db = server.client(database).await;
    let lock = format!("select pg_advisory_lock({}, {})", 0x696e_6478, SchemaName::default().number());
    db.batch_execute(&lock).await.unwrap();
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_backlog_of_one_receiver_is_not_read_to_find_due_events_of_another() {
    let server = Server::start_with(&["autovacuum=off"]).await;
    let database = server.database().await;
    let (mut filling, db) = (server.client(&database).await, server.client(&database).await);
    migrations::up(&mut filling, &SchemaName::default(), None).await.unwrap();
    // On `down` the first receiver has nothing and the second much; on `last` the first has much and the last nothing.
    let sql = "insert into hookonce.events (id, revision, version, source, route, part, fields, state, wake_at, \
               received_at, life, attempt, doubts, blocks_done, passed, turn, body, body_digest, digest) \
               select md5(route || n)::uuid, 1, n, 'source', route, part, '{}', 'waiting', n, 1, 1, 0, 0, 0, 0, n, false, \
               '', '' from generate_series(1, 50000) n, (values ('down', 1), ('last', 0)) routes (route, part)";
    filling.batch_execute(sql).await.unwrap();
    // Otherwise opening the store looks for the newest event.
    filling.batch_execute("insert into hookonce.last_seen values (1, 1)").await.unwrap();
    drop(filling);
    let step = EventStep::Start { lasts: Duration::from_secs(30), by: NodeId("node".into()), action: ActionKind::Run };
    let look = |route: &str, parts| DueQuery::Receiver("source".into(), route.into(), parts);
    for analyze in ["", "analyze hookonce.events"] {
        server.client(&database).await.batch_execute(analyze).await.unwrap();
        count_anew(&db).await;
        let store = open(&server, &database).await;
        let route = Arc::new(Route { name: "down".into(), ..Route::default() });
        let starts = StartDueRequest { source: "source".into(), route, part: 0, step: step.clone(), limit: 64 };
        assert!(store.start_due(starts).await.unwrap().events.is_empty());
        assert!(store.due(look("down", 0..=0), 64).await.unwrap().events.is_empty());
        assert!(store.due(look("last", 1..=u16::MAX), 64).await.unwrap().events.is_empty());
        drop(store);
        alone(&db).await;
        let read = "select (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint \
                    from pg_statio_user_tables where relname = 'events'";
        let read: i64 = db.query_one(read, &[]).await.unwrap().get(0);
        assert!((1..150).contains(&read), "three queries read {read} pages ({analyze})");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_does_not_fit_on_the_disk_is_dropped_at_once() {
    // As if the disk were full during the sort.
    let settings = ["temp_file_limit=64kB", "maintenance_work_mem=1MB", "max_parallel_maintenance_workers=0"];
    let server = Server::start_with(&settings).await;
    let (database, db) = first_store(&server, 50_000).await;
    let store = open(&server, &database).await;
    store.declare(declared()).await.unwrap();
    let full = "temporary file size exceeds";
    until("the server says that it does not fit", async || server.log().contains(full)).await;
    let failed = Instant::now();
    let invalid = "select count(*) from pg_index where not indisvalid";
    until("it is dropped", async || db.query_one(invalid, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
    assert!(failed.elapsed() < Duration::from_secs(8), "it was left until the next try: {:?}", failed.elapsed());
    assert_eq!(server.log().matches(full).count(), 1, "it is tried again at once");
    drop(store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_another_node_builds_a_list_by_field_scans_no_table_and_the_schema_goes_down_without_indexes() {
    let server = Server::start_with(&["autovacuum=off"]).await;
    let (database, first) = first_store(&server, 1_000).await;
    let mut db = server.client(&database).await;
    // As the first release created it.
    let hash = "create index events_field_tag on hookonce.events using hash \
                ((case when strpos(fields::text, '\\u0000') > 0 then null else fields ->> 'tag' end))";
    first.batch_execute(hash).await.unwrap();
    drop((first, open(&server, &database).await));
    count_anew(&db).await;
    let other = build_elsewhere(&server, &database).await;
    let store = open(&server, &database).await;
    store.declare(declared()).await.unwrap();
    let fields = vec![("tag".to_owned(), "rare".to_owned())];
    let page = store.page(EventQuery { fields, limit: 10, ..EventQuery::default() }).await.unwrap();
    assert!(page.events.is_empty());
    drop((store, other));
    alone(&db).await;
    let scans = "select seq_scan from pg_stat_user_tables where relname = 'events'";
    let scans: i64 = db.query_one(scans, &[]).await.unwrap().get(0);
    assert_eq!(scans, 0, "the whole table was read");

    let url = server.url(&database);
    let config = MigrationSettings { migrate: MigrationMode::Manual, fields: declared() };
    migrate::postgres::up(&address(&url), &config, None, None, &mut Vec::new()).await.unwrap();
    built(&db).await;
    db.batch_execute("create index events_new_0123456789abcdef on hookonce.events (id)").await.unwrap();
    migrations::down(&mut db, &SchemaName::default(), FIRST).await.unwrap();
    let ours = "select count(*) from pg_indexes where indexname ~ '^events_(field|new|old)_'";
    assert_eq!(db.query_one(ours, &[]).await.unwrap().get::<_, i64>(0), 0, "0.1.0 creates its own");
    assert_eq!(index(&db, "events_due").await, Some(("btree".to_owned(), 4, true)), "as 0.1.0 has it");
    assert_eq!(index(&db, "events_due_part").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_keeps_no_connection_open_while_it_waits_for_another_to_build() {
    let server = Server::start_with(&["log_statement=all"]).await;
    let (database, db) = first_store(&server, 10).await;
    let other = build_elsewhere(&server, &database).await;
    let store = open(&server, &database).await;
    store.declare(declared()).await.unwrap();
    let asks = "select pg_try_advisory_lock(";
    until("the node asks whether it may build", async || server.log().contains(asks)).await;
    let waits = format!("select count(*) from pg_stat_activity where query like '{asks}%'");
    until("it is disconnected", async || db.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
    drop((store, other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_manual_migrations_no_node_builds_and_the_owner_builds_everything_with_the_migration() {
    let server = Server::start().await;
    let (database, db) = first_store(&server, 100).await;
    db.batch_execute(&format!(
        "create role owns login; create role works login; alter schema hookonce owner to owns; \
         do $$ declare name text; begin for name in select format('%I', relname) from pg_class \
         where relnamespace = 'hookonce'::regnamespace and (relkind = 'r' or relname = 'turns') loop \
         execute 'alter table hookonce.' || name || ' owner to owns'; end loop; end $$; \
         grant create on database {database} to owns"
    ))
    .await
    .unwrap();
    let [owner, worker] = ["owns", "works"].map(|role| server.url_of(role, &database));
    let config = MigrationSettings { migrate: MigrationMode::Manual, fields: declared() };
    let up = async || {
        let mut out = Vec::new();
        migrate::postgres::up(&address(&owner), &config, None, None, &mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    };
    let said = up().await;
    assert!(said.contains("index events_due: built") && said.contains("index events_field_tag: built"), "{said}");
    built(&db).await;
    assert_eq!(up().await, "nothing to do\n");
    let said = status(&owner, MigrationMode::Manual).await;
    assert!(!said.contains("index"), "{said}");

    // Roles that only work need no right to build.
    db.batch_execute(
        "grant usage on schema hookonce to works; grant all on all tables in schema hookonce to works; \
         grant all on all sequences in schema hookonce to works; drop index hookonce.events_id_end",
    )
    .await
    .unwrap();
    for url in [&owner, &worker] {
        let store = open_as(url, SchemaMode::Manual).await;
        store.declare(declared()).await.unwrap();
        for n in 0..10 {
            store.claim(vec![making().delivery(&format!("{url} {n}")).made(store.now()).into()]).await.unwrap();
        }
        assert_eq!(index(&db, "events_id_end").await, None, "{url} built it");
    }
    let said = status(&worker, MigrationMode::Manual).await;
    assert!(said.contains("events_id_end: not built yet; run `hookonce migrate up` to build it"), "{said}");
    let said = up().await;
    assert_eq!(said, "index events_id_end: built\n");
}
