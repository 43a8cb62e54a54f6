//! `sql` on SQLite: the statement runs on the only writing connection, in a transaction of its own.

use crate::support::{House, Sent, until};
use crate::{IN, INJECTIONS, config, number};

const STORE: &str = "sqlite:hookonce.db";

/// A node whose database has these tables besides Hookonce's own.
fn house(tables: &str, keys: &str, route: &str) -> House {
    let mut house = House::new(&config(STORE, keys, "when = 'n == 0'"));
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.execute_batch(tables).unwrap();
    drop(db);
    house.configure(&config(STORE, keys, route));
    house.start();
    house
}

const SINK: &str = "create table sink (delivery text unique, n integer check (n < 100), body text, event text, attempt int, \
                    flag int, none text)";
const INSERT: &str = r#"sql = "insert into sink values (:delivery, :n, :body, :event_id, :attempt, :flag, :none)""#;

#[tokio::test]
async fn the_effect_and_the_end_are_one_commit_and_duplicates_make_one_row() {
    let house = house(SINK, "respond = \"done\"", INSERT);
    let first = house.deliver(IN, &number("a", 7)).await;
    assert_eq!((first.status, &*first.word()), (200, "done"), "{first:?}");
    let again = house.deliver(IN, &number("a", 7)).await;
    assert_eq!(again.word(), "duplicate", "{again:?}");
    let row = "select delivery || '|' || n || '|' || json_extract(body, '$.text') || '|' || event || '|' || attempt || '|' \
               || flag || '|' || coalesce(none, 'null') || '|' || typeof(n) from sink";
    assert_eq!(house.sql(row), [format!("a|7|t7|{}|1|1|null|integer", first.event())]);
    assert_eq!(house.count("done"), 1);
}

#[tokio::test]
async fn a_violated_constraint_rejects_its_event_alone_and_writes_nothing() {
    let retry = "retry = { attempts = 5, first = \"10ms\", longest = \"20ms\" }";
    let house = house(SINK, "", &format!("{retry}\n{INSERT}"));
    let all: Vec<_> = (0..40).map(|n| number(&format!("d{n}"), if n % 4 == 0 { 500 + n } else { n })).collect();
    futures_util::future::join_all(all.iter().map(|sent| house.deliver(IN, sent))).await;
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from sink"), ["30"]);
    assert_eq!((house.count("done"), house.count("dead")), (30, 10));
    assert_eq!(house.sql("select distinct cause || attempt from events where state = 'dead'"), ["rejected1"]);
    until("the reason in the log", || house.log().contains("CHECK constraint failed")).await;
}

#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_rejects_its_event_alone() {
    let tables = "create table p (id integer primary key); insert into p values (1); \
                  create table sink (n int references p (id) deferrable initially deferred)";
    let house = house(tables, "", r#"sql = "insert into sink values (:n)""#);
    for n in [1, 2, 1, 3, 1] {
        house.deliver(IN, &number(&format!("d{n}{}", uuid::Uuid::now_v7()), n)).await;
    }
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from sink"), ["3"]);
    assert_eq!(house.sql("select cause from events where state = 'dead'"), ["rejected", "rejected"]);
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended_and_leaves_nothing() {
    let slow = r#"sql = { statement = "insert into sink (n) with recursive c (x) as (select 1 union all select x + 1 from c) select count(*) from c where :n = 1 union all select :n", timeout = "200ms" }
retry = { attempts = 2, first = "10ms", longest = "20ms" }"#;
    let house = house(SINK, "", slow);
    house.deliver(IN, &number("slow", 1)).await;
    until("the slow one to end", || house.count("dead") == 1).await;
    assert_eq!(house.sql("select cause || attempt from events where state = 'dead'"), ["failed2"]);
    assert_eq!(house.sql("select count(*) from sink"), ["0"]);
    until("the reason in the log", || house.log().contains("longer than 200 ms")).await;
    // The writing connection is free again, and the next statement is not affected.
    assert_eq!(house.deliver(IN, &number("quick", 1)).await.status, 202);
}

#[tokio::test]
async fn a_statement_that_rolls_back_the_transaction_affects_no_other_event() {
    let house = house(SINK, "", r#"sql = "insert or rollback into sink (delivery, n) values ('one', :n)""#);
    let all: Vec<_> = (0..20).map(|n| number(&format!("d{n}"), n)).collect();
    futures_util::future::join_all(all.iter().map(|sent| house.deliver(IN, sent))).await;
    house.quiet().await;
    assert_eq!((house.count("done"), house.count("dead")), (1, 19));
    assert_eq!(house.sql("select count(*) from sink"), ["1"]);
}

#[tokio::test]
async fn a_missing_table_fails_until_it_exists() {
    let retry = "retry = { attempts = 50, first = \"50ms\", longest = \"100ms\" }";
    let house = house("", "", &format!("{retry}\nsql = \"insert into later values (:n)\""));
    house.deliver(IN, &number("a", 1)).await;
    until("a failure", || house.log().contains("no such table")).await;
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.busy_timeout(crate::support::PATIENCE).unwrap();
    db.execute_batch("create table later (n int)").unwrap();
    house.quiet().await;
    assert_eq!((house.count("done"), house.sql("select count(*) from later")), (1, vec!["1".to_owned()]));
}

#[tokio::test]
async fn values_are_not_interpreted_as_sql() {
    let house = house(SINK, "respond = \"done\"", r#"sql = "insert into sink (delivery, body) values (:text, :body)""#);
    for (n, text) in INJECTIONS.into_iter().enumerate() {
        let body = serde_json::json!({ "n": n, "text": text }).to_string();
        assert_eq!(house.deliver(IN, &Sent::github("push", &format!("i{n}"), &body)).await.status, 200, "{text}");
    }
    let mut kept = house.sql("select delivery from sink");
    kept.sort_unstable();
    let mut expected = INJECTIONS.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn a_killed_node_has_done_all_of_an_event_or_nothing() {
    let all = crate::size(2_000, 300);
    let mut house = house(SINK, "", r#"sql = "insert into sink (delivery, event) values (:delivery, :event_id)""#);
    for n in 0..all {
        if n % 60 == 37 {
            house.kill();
            house.start();
        }
        house.deliver(IN, &number(&format!("d{n}"), n % 100)).await;
    }
    house.quiet().await;
    let apart = "select count(*) from events e left join sink s on s.delivery = e.delivery_id where s.delivery is null";
    assert_eq!(house.sql(apart), ["0"]);
    assert_eq!(house.sql("select count(*) || '|' || count(distinct event) from sink"), [format!("{all}|{all}")]);
}

/// A statement that runs until its timeout if `n` is 1.
const COUNTS: &str = "insert into sink (n) with recursive c (x) as (select 1 union all select x + 1 from c) \
    select count(*) from c where :n = 1 union all select :n";

#[tokio::test]
async fn statements_that_wait_for_the_writing_connection_do_not_delay_claims() {
    let route = format!("retry = {{ attempts = 1 }}\nsql = {{ statement = \"{COUNTS}\", timeout = \"400ms\" }}");
    let house = house(SINK, "", &route);
    let slow: Vec<_> = (0..30).map(|n| number(&format!("d{n}"), 1)).collect();
    futures_util::future::join_all(slow.iter().map(|sent| house.deliver(IN, sent))).await;
    for n in 0..3 {
        assert_eq!(house.deliver(IN, &number(&format!("next{n}"), 0)).await.status, 202);
    }
    let over = house.count("dead");
    assert!(over < 20, "they waited until {over} statements had ended");
    // A waiting statement can be cancelled, and has then not run.
    let waits = house.sql("select id from events where state = 'running' and delivery_id like 'd%' order by id desc");
    let cancelled = house.ask("POST", &format!("/api/events/{}/cancel", waits[0])).await;
    assert_eq!((cancelled.status, &cancelled.json()["cause"]), (200, &"cancelled".into()), "{cancelled:?}");
    house.quiet().await;
    assert_eq!((house.count("dead"), house.count("done")), (30, 3), "{}", house.log());
    assert_eq!(house.sql("select count(*) from events where cause = 'cancelled'"), ["1"]);
}

#[tokio::test]
async fn a_statement_of_a_killed_node_was_not_run_and_is_never_in_doubt() {
    let route = format!(
        "retry = {{ attempts = 1, first = \"10ms\" }}\nsql = {{ statement = \"{COUNTS}\", timeout = \"20s\" }}"
    );
    let mut house = house(SINK, "", &route);
    house.deliver(IN, &number("a", 1)).await;
    // As often as one payload may kill its node.
    for attempt in 1..=3 {
        let runs = format!("select count(*) from events where state = 'running' and attempt = {attempt}");
        until("the attempt", || house.sql(&runs) == ["1"]).await;
        house.kill();
        house.start();
    }
    house.quiet().await;
    assert_eq!(house.sql("select state || ' ' || cause || ' ' || doubts from events"), ["dead failed 3"]);
    assert_eq!(house.sql("select count(*) from sink"), ["0"]);
    until("the reason in the log", || house.log().contains("its lease ran out: nothing was written")).await;
}
