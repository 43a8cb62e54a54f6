//! SQLite: the statement runs on the only writing connection, in a transaction that it shares with nobody.

use crate::support::{House, Sent, until};
use crate::{IN, INJECTIONS, config, number};

const STORE: &str = "sqlite:hookonce.db";

/// A house whose database has these tables beside hookonce's own.
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
async fn a_constraint_is_rejected_with_nothing_written_and_others_go_through() {
    let retry = "retry = { attempts = 5, first = \"10ms\", longest = \"20ms\" }";
    let house = house(SINK, "", &format!("{retry}\n{INSERT}"));
    let all: Vec<_> = (0..40).map(|n| number(&format!("d{n}"), if n % 4 == 0 { 500 + n } else { n })).collect();
    futures_util::future::join_all(all.iter().map(|sent| house.deliver(IN, sent))).await;
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from sink"), ["30"]);
    assert_eq!((house.count("done"), house.count("dead")), (30, 10));
    assert_eq!(house.sql("select distinct cause || attempt from events where state = 'dead'"), ["rejected1"]);
    assert!(house.log().contains("CHECK constraint failed"), "{}", house.log());
}

#[tokio::test]
async fn what_is_deferred_to_the_commit_is_rejected_and_holds_nobody_up() {
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
    assert!(house.log().contains("longer than 200 ms"), "{}", house.log());
    // The pen is free again, and nothing of it hangs on to the next one.
    assert_eq!(house.deliver(IN, &number("quick", 1)).await.status, 202);
}

#[tokio::test]
async fn a_statement_that_rolls_back_by_itself_takes_nobody_along() {
    let house = house(SINK, "", r#"sql = "insert or rollback into sink (delivery, n) values ('one', :n)""#);
    let all: Vec<_> = (0..20).map(|n| number(&format!("d{n}"), n)).collect();
    futures_util::future::join_all(all.iter().map(|sent| house.deliver(IN, sent))).await;
    house.quiet().await;
    assert_eq!((house.count("done"), house.count("dead")), (1, 19));
    assert_eq!(house.sql("select count(*) from sink"), ["1"]);
}

#[tokio::test]
async fn a_table_that_is_not_there_fails_until_it_is() {
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
async fn values_stay_values() {
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
async fn a_node_that_is_killed_has_done_all_of_an_event_or_nothing_of_it() {
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

/// Counts to the time limit for `n = 1`.
const COUNTS: &str = "insert into sink (n) with recursive c (x) as (select 1 union all select x + 1 from c) \
    select count(*) from c where :n = 1 union all select :n";

#[tokio::test]
async fn statements_that_wait_for_the_pen_keep_no_claim_waiting() {
    let route = format!("retry = {{ attempts = 1 }}\nsql = {{ statement = \"{COUNTS}\", timeout = \"400ms\" }}");
    let house = house(SINK, "", &route);
    let slow: Vec<_> = (0..30).map(|n| number(&format!("d{n}"), 1)).collect();
    futures_util::future::join_all(slow.iter().map(|sent| house.deliver(IN, sent))).await;
    for n in 0..3 {
        assert_eq!(house.deliver(IN, &number(&format!("next{n}"), 0)).await.status, 202);
    }
    let over = house.count("dead");
    assert!(over < 20, "they had to wait until {over} had ended");
    // Who waits can be cancelled, and has then not run.
    let waits = house.sql("select id from events where state = 'running' and delivery_id like 'd%' order by id desc");
    let cancelled = house.ask("POST", &format!("/api/events/{}/cancel", waits[0])).await;
    assert_eq!((cancelled.status, &cancelled.json()["cause"]), (200, &"cancelled".into()), "{cancelled:?}");
    house.quiet().await;
    assert_eq!((house.count("dead"), house.count("done")), (30, 3), "{}", house.log());
    assert_eq!(house.sql("select count(*) from events where cause = 'cancelled'"), ["1"]);
}

#[tokio::test]
async fn what_a_killed_node_was_at_was_not_done_and_is_never_in_doubt() {
    let route = format!(
        "retry = {{ attempts = 1, first = \"10ms\" }}\nsql = {{ statement = \"{COUNTS}\", timeout = \"20s\" }}"
    );
    let mut house = house(SINK, "", &route);
    house.deliver(IN, &number("a", 1)).await;
    // As often as a payload may end its node.
    for attempt in 1..=3 {
        let runs = format!("select count(*) from events where state = 'running' and attempt = {attempt}");
        until("the attempt", || house.sql(&runs) == ["1"]).await;
        house.kill();
        house.start();
    }
    house.quiet().await;
    assert_eq!(house.sql("select state || ' ' || cause || ' ' || doubts from events"), ["dead failed 3"]);
    assert_eq!(house.sql("select count(*) from sink"), ["0"]);
    until("it to be told", || house.log().contains("its lease ran out: nothing was written")).await;
}
