//! `sql` on PostgreSQL: the same guarantees on a server that many nodes share.

use crate::postgres::Server;
use crate::support::{House, Sent, until};
use crate::{IN, INJECTIONS, config, number};
use tokio_postgres::Client;

/// A server with these tables, a node with this route, and a client that looks into the database.
struct Bench {
    house: House,
    db: Client,
    _server: Server,
}

impl Bench {
    async fn new(tables: &str, keys: &str, route: &str) -> Self {
        let server = Server::start().await;
        let database = server.database().await;
        let db = server.client(&database).await;
        db.batch_execute(tables).await.unwrap();
        let house = House::new(&config(&server.url(&database), keys, route));
        Self { house, db, _server: server }
    }

    async fn text(&self, sql: &str) -> String {
        self.db.query_one(sql, &[]).await.unwrap().get::<_, Option<String>>(0).unwrap_or_default()
    }

    /// Waits until every event has ended.
    async fn quiet(&self, events: usize) {
        let ended = format!("select count(*) = {events} and bool_and(ended_at is not null) from events");
        let start = std::time::Instant::now();
        while self.db.query_one(&ended, &[]).await.unwrap().get::<_, Option<bool>>(0) != Some(true) {
            assert!(start.elapsed() < crate::support::PATIENCE, "they do not end: {}", self.house.log());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn states(&self) -> String {
        let sql = "select string_agg(state || ' ' || coalesce(cause, '') || ' ' || n, ', ' order by state, cause) \
                   from (select state, cause, count(*) as n from events group by 1, 2) s";
        self.text(sql).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effect_and_the_end_are_one_commit_and_every_type_gets_its_value() {
    let tables = "create table sink (delivery text, n int, big numeric, flag boolean, j json, jb jsonb, raw bytea, t text, \
                  e uuid, a smallint, none timestamptz, nt text)";
    let insert = r#"sql = "insert into sink values (:delivery, :n, :n, :flag, :body, :body::jsonb, :body, :body, :event_id, :attempt, :none, :n)""#;
    let bench = Bench::new(tables, "respond = \"done\"", insert).await;
    let first = bench.house.deliver(IN, &number("a", 7)).await;
    assert_eq!((first.status, &*first.word()), (200, "done"), "{first:?} {}", bench.house.log());
    assert_eq!(bench.house.deliver(IN, &number("a", 7)).await.word(), "duplicate");
    let row = "select concat_ws('|', count(*) over (), delivery, n, big, flag, j ->> 'text', jb ->> 'text', \
               convert_from(raw, 'UTF8') = t, e::text, a, none is null, nt) from sink";
    assert_eq!(bench.text(row).await, format!("1|a|7|7|t|t7|t7|t|{}|1|t|7", first.event()));
    assert_eq!(bench.states().await, "done acted 1", "{}", bench.house.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violated_constraint_rejects_its_event_alone_and_writes_nothing() {
    let tables = "create table p (id int primary key); insert into p select generate_series(0, 99); \
                  create table sink (n int references p deferrable initially deferred, delivery text unique)";
    let route = "retry = { attempts = 5, first = \"10ms\", longest = \"20ms\" }\n\
                 sql = \"insert into sink values (:n, :delivery)\"";
    let bench = Bench::new(tables, "", route).await;
    let all: Vec<_> = (0..40).map(|n| number(&format!("d{n}"), if n % 4 == 0 { 500 + n } else { n })).collect();
    futures_util::future::join_all(all.iter().map(|sent| bench.house.deliver(IN, sent))).await;
    bench.quiet(40).await;
    assert_eq!(bench.text("select count(*)::text from sink").await, "30");
    assert_eq!(bench.states().await, "dead rejected 10, done acted 30", "{}", bench.house.log());
    assert_eq!(bench.text("select max(attempt)::text from events").await, "1");
    until("the reason in the log", || bench.house.log().contains("violates foreign key constraint")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_or_misses_its_table_fails_and_leaves_nothing() {
    let route = r#"sql = { statement = "with w as (insert into sink values (:n)) select pg_sleep(:n)", timeout = "2s" }
retry = { attempts = 2, first = "10ms", longest = "20ms" }"#;
    let bench = Bench::new("create table sink (n int)", "", route).await;
    bench.house.deliver(IN, &number("slow", 30)).await;
    bench.house.deliver(IN, &number("quick", 0)).await;
    bench.quiet(2).await;
    assert_eq!(bench.states().await, "dead failed 1, done acted 1", "{}", bench.house.log());
    assert_eq!(bench.text("select string_agg(n::text, ',') from sink").await, "0");
    until("the reason in the log", || bench.house.log().contains("longer than 2000 ms")).await;
    bench.db.batch_execute("drop table sink").await.unwrap();
    bench.house.deliver(IN, &number("gone", 0)).await;
    until("a failure", || bench.house.log().contains("does not exist")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serialization_failure_is_retried_and_a_statement_that_ends_its_connection_not_for_ever() {
    let tables = "create table tries (n serial); create table sink (n int); create sequence calls; \
        create function f(n int) returns void language plpgsql as $$ begin \
        if n = 1 and nextval('calls') < 3 then raise exception 'in the way' using errcode = '40001'; end if; \
        if n = 2 then perform pg_terminate_backend(pg_backend_pid()); end if; \
        if n = 3 then perform set_config('synchronous_commit', 'off', false), set_config('search_path', 'nowhere', false); end if; \
        insert into public.sink values (n); end $$";
    let route = "retry = { attempts = 2, first = \"10ms\", longest = \"20ms\" }\nsql = \"select public.f(:n)\"";
    let bench = Bench::new(tables, "", route).await;
    for (id, n) in [("way", 1), ("ends", 2), ("sets", 3), ("after", 4), ("and", 5)] {
        bench.house.deliver(IN, &number(id, n)).await;
    }
    bench.quiet(5).await;
    assert_eq!(bench.states().await, "dead failed 1, done acted 4", "{}", bench.house.log());
    assert_eq!(bench.text("select string_agg(n::text, ',' order by n) from sink").await, "1,3,4,5");
    assert_eq!(bench.text("select attempt::text from events where delivery_id = 'way'").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_not_interpreted_as_sql() {
    let insert = r#"sql = "insert into sink values (:text)""#;
    let bench = Bench::new("create table sink (t text)", "respond = \"done\"", insert).await;
    for (n, text) in INJECTIONS.into_iter().enumerate() {
        let body = serde_json::json!({ "n": n, "text": text }).to_string();
        let answer = bench.house.deliver(IN, &Sent::github("push", &format!("i{n}"), &body)).await;
        assert_eq!(answer.status, 200, "{text}: {}", bench.house.log());
    }
    let rows = bench.db.query("select t from sink order by t collate \"C\"", &[]).await.unwrap();
    let kept: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let mut expected = INJECTIONS.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(kept, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_nodes_never_take_each_others_statements_for_lost() {
    let tables = "create table sink (n int); create sequence calls; \
        create function f(n int) returns void language plpgsql as $$ begin \
        perform pg_sleep(0.4); \
        if nextval('calls') % 2 = 0 then raise exception 'in the way' using errcode = '40001'; end if; \
        insert into sink values (n); end $$";
    let route = "lease = \"5s\"\nretry = { attempts = 30, first = \"10ms\", longest = \"20ms\" }\n\
        sql = { statement = \"select f(:n)\", timeout = \"4s\" }";
    let bench = Bench::new(tables, "", route).await;
    let other = House::new(&std::fs::read_to_string(bench.house.path("hookonce.toml")).unwrap());
    // Each node runs four at once: the last ones wait for longer than their lease.
    let all: Vec<_> = (0..72).map(|n| number(&format!("d{n}"), n)).collect();
    let deliver = |(n, sent)| if n % 2 == 0 { bench.house.deliver(IN, sent) } else { other.deliver(IN, sent) };
    futures_util::future::join_all(all.iter().enumerate().map(deliver)).await;
    bench.quiet(72).await;
    assert_eq!(bench.states().await, "done acted 72", "{}", bench.house.log());
    assert_eq!(bench.text("select count(*) || '|' || count(distinct n) from sink").await, "72|72");
    assert_eq!(bench.text("select max(doubts)::text from events").await, "0", "{}", bench.house.log());
    for log in [bench.house.log(), other.log()] {
        assert!(!log.contains("lease ran out") && !log.contains(" lost "), "{log}");
    }
}
