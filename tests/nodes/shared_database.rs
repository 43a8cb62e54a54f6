//! A store in an application's own PostgreSQL database: beside its tables, and beside another store.

use crate::postgres::Server;
use crate::server_refusals::{RECORDS, check_refused, node, on};
use crate::support::{House, Sent, until};

/// What applications have in their database: each has a `schema_migrations` that is not ours, and `events` of its own.
const APPLICATIONS: [(&str, &str); 4] = [
    (
        "golang_migrate",
        "create table schema_migrations (version bigint not null primary key, dirty boolean not null); \
         insert into schema_migrations values (20240501, false)",
    ),
    (
        "rails",
        "create table schema_migrations (version varchar not null primary key); \
         insert into schema_migrations values ('20240501120000'); \
         create table ar_internal_metadata (key varchar primary key, value varchar)",
    ),
    (
        "ecto",
        "create table schema_migrations (version bigint not null primary key, inserted_at timestamp(0)); \
         insert into schema_migrations values (20240501120000, now())",
    ),
    (
        "dbmate",
        "create table schema_migrations (version varchar(128) primary key); \
         insert into schema_migrations values ('20240501120000')",
    ),
];

/// The application's own tables, with the same names as ours.
const OWN: &str = "create table events (id bigserial primary key, name text not null, created_at timestamptz default now()); \
     insert into events (name) values ('signup'); create table keys (id int); create table attempts (id int); \
     create view events_s as select name from events";

/// Everything in the application's schemas: columns, and how many rows its tables have.
async fn inside(db: &tokio_postgres::Client) -> Vec<String> {
    let sql = "select table_name || '.' || column_name || ' ' || data_type from information_schema.columns \
               where table_schema not in ('pg_catalog', 'information_schema', 'hookonce') union all \
               select 'index ' || indexname from pg_indexes where schemaname = 'public' union all \
               select 'migrations ' || string_agg(m::text, ' ') from public.schema_migrations m order by 1";
    db.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

fn delivery(n: usize) -> Sent {
    Sent::github("push", &format!("d{n}"), &format!(r#"{{"key":"k{n}"}}"#))
}

async fn number(db: &tokio_postgres::Client, sql: &str) -> i64 {
    db.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_coexists_with_an_applications_tables_and_sql_uses_the_applications() {
    let server = Server::start().await;
    let route = "[[source.s.route]]\nsql = \"insert into events (name) values (:key)\"\n";
    let config = format!("{RECORDS}{route}");
    for (name, tables) in APPLICATIONS {
        let database = server.database().await;
        let db = server.client(&database).await;
        db.batch_execute(&format!("create role {name} login; alter database {database} owner to {name}"))
            .await
            .unwrap();
        db.batch_execute(&format!("grant all on schema public to {name}; set role {name}; {tables}; {OWN}"))
            .await
            .unwrap();
        let before = inside(&db).await;
        let url = server.url_of(name, &database);
        let mut house = node(&config, &url);
        assert_eq!(house.deliver("/in", &delivery(1)).await.word(), "accepted", "{name}");
        assert_eq!(house.deliver("/in", &delivery(1)).await.word(), "duplicate", "{name}");
        until(&format!("{name}: it to be done"), || house.log().contains(" done ")).await;
        assert_eq!(number(&db, "select count(*) from public.events where name = 'k1'").await, 1, "{name}");
        assert_eq!(number(&db, "select count(*) from hookonce.events_s where key = 'k1'").await, 1, "{name}");
        assert!(house.stop().success(), "{name}");
        drop(node(&config, &url));
        let list = on(&House::empty(&config), &url, &["list", "--json"]).output().unwrap();
        assert!(list.status.success() && String::from_utf8_lossy(&list.stdout).contains("k1"), "{name}: {list:?}");
        assert_eq!(inside(&db).await, before, "{name}: nothing of the application's was changed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_in_one_database_are_independent() {
    let server = Server::start().await;
    let database = server.database().await;
    let db = server.client(&database).await;
    let url = |schema: &str| format!("{}?schema={schema}", server.url(&database));
    let (one, two) = (node(RECORDS, &url("one")), node(RECORDS, &url("tw%27o")));
    for house in [&one, &two] {
        assert_eq!(house.deliver("/in", &delivery(1)).await.word(), "accepted");
        assert_eq!(house.deliver("/in", &delivery(1)).await.word(), "duplicate");
    }
    assert_eq!(one.deliver("/in", &delivery(2)).await.word(), "accepted");
    assert_eq!(number(&db, "select count(*) from one.events").await, 2);
    assert_eq!(number(&db, "select count(*) from \"tw'o\".events_s").await, 1);
    assert_eq!(number(&db, "select count(*) from pg_namespace where nspname = 'hookonce'").await, 0);
    // A command that needs one of them exclusively does not wait for the other.
    drop(two);
    let house = House::empty(RECORDS);
    let away = ["migrate", "up", "--schema", "three"];
    until("the second store to be free", || on(&house, &url("tw%27o"), &away).output().unwrap().status.success()).await;
    assert_eq!(number(&db, "select count(*) from three.events_s").await, 1);
    check_refused(RECORDS, &url("tw%27o"), &["serve"], &["moved", "schema=three"]);
    assert_eq!(one.deliver("/in", &delivery(2)).await.word(), "duplicate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_another_programs_is_left_alone() {
    let server = Server::start().await;
    let database = server.database().await;
    let db = server.client(&database).await;
    db.batch_execute("create schema hookonce; create table hookonce.schema_migrations (version bigint, dirty boolean)")
        .await
        .unwrap();
    check_refused(RECORDS, &server.url(&database), &["serve"], &["not hookonce's", "schema=NAME"]);
    let url = format!("{}?schema=mine", server.url(&database));
    let house = node(RECORDS, &url);
    assert_eq!(house.deliver("/in", &delivery(1)).await.word(), "accepted");
    drop(house);
    let house = House::empty(RECORDS);
    let moved = on(&house, &url, &["migrate", "up", "--schema", "hookonce"]).output().unwrap();
    assert!(!moved.status.success() && String::from_utf8_lossy(&moved.stderr).contains("not hookonce's"), "{moved:?}");
    assert_eq!(number(&db, "select count(*) from hookonce.schema_migrations").await, 0, "it is still there");
    assert_eq!(number(&db, "select count(*) from mine.events").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_confirmation_for_a_server_without_fsync_is_logged_at_each_start() {
    let server = Server::start_with(&["fsync=off", "full_page_writes=off"]).await;
    let database = server.database().await;
    check_refused(RECORDS, &server.url(&database), &["serve"], &["fsync = off", "durable=yes"]);
    let url = format!("{}?durable=yes", server.url(&database));
    for _ in 0..2 {
        let house = node(RECORDS, &url);
        for setting in ["fsync = off", "full_page_writes = off"] {
            let said = |line: &&str| line.contains("WARN") && line.contains(setting) && line.contains("durable=yes");
            until(&format!("{setting} to be logged once"), || house.log().lines().filter(said).count() == 1).await;
        }
    }
}
