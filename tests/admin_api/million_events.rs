//! A million events in SQLite: how long a page takes, and which index it uses. `HOOKONCE_FULL=1 cargo nextest run
//! --release --test admin_api million --no-capture` prints it.

use hookonce::decide::time::Timestamp;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{DeclaredFields, EventQuery, Inspect, Store, StoreBackend};
use std::time::{Duration, Instant};

/// Fills the store with this many events, by SQL: nine in ten done, some dead, a few waiting.
fn fill(path: &std::path::Path, many: u64) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.pragma_update(None, "synchronous", "off").unwrap();
    let sql = format!(
        "insert into events (id, revision, source, route, part, delivery_id, fields, state, cause, superseded_by, \
         wake_at, received_at, ended_at, keep_from, node, life, attempt, doubts, blocks_done, passed, grp, turn, \
         subject, value, ord, body, body_digest, digest) \
         with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < {many}) \
         select unhex(printf('%012x', 1770000000000 + i * 600) || '7000' || '8000' || printf('%012x', i * 2654435761 % 281474976710656)), 3, \
         case when i % 1000 = 7 then 'rare' else 'often' || (i % 4) end, case when i % 5 = 0 then 'slow' else 'fast' end, 0, \
         'delivery-' || i, json_object('n', i, 'tag', case when i % 3 = 0 then 'latest' else 'v' || (i % 100000) end, 'sha', hex(randomblob(32))), \
         case when i % 1000 < 990 then 'done' when i % 1000 < 998 then 'dead' else 'waiting' end, \
         case when i % 1000 < 890 then 'acted' when i % 1000 < 990 then 'superseded' when i % 1000 < 998 then 'failed' end, \
         case when i % 1000 between 890 and 989 then randomblob(16) end, \
         case when i % 1000 >= 998 then 1800000000000000 end, 1770000000000000 + i * 600000, \
         case when i % 1000 < 998 then 1770000000000000 + i * 600000 + 900000 end, \
         case when i % 1000 < 998 then 1770000000000000 + i * 600000 + 900000 end, null, 1, 1, 0, 0, 0, null, i, null, null, null, 0, \
         randomblob(32), randomblob(32) from n"
    );
    db.execute_batch(&format!(
        "begin; {sql}; insert into duplicates select id, 3 from events where state = 'dead'; commit;"
    ))
    .unwrap();
    db.pragma_update(None, "wal_checkpoint", "truncate").ok();
}

#[tokio::test]
async fn a_page_and_an_overview_of_a_million_events_come_quickly() {
    let full = std::env::var_os("HOOKONCE_FULL").is_some();
    let many = if full { 1_000_000 } else { 20_000 };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let declared = || {
        vec![DeclaredFields {
            source: "often0".into(),
            fields: vec![("tag".into(), true), ("n".into(), true), ("sha".into(), false)],
        }]
    };
    let store = SqliteStore::open(&path, SqliteAccess::Node).unwrap();
    store.declare(declared()).await.unwrap();
    drop(store);
    fill(&path, many);
    // The note of the last write is older than what was inserted.
    for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
        if entry.path() != path && entry.file_name().to_string_lossy().contains("lock") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let store = SqliteStore::open(&path, SqliteAccess::Node).unwrap();
    let all = EventQuery { limit: 100, ..EventQuery::default() };
    let of = |text: &str| Some(text.to_owned());
    let middle = Timestamp(1_770_000_000_000_000 + i64::try_from(many).unwrap() * 300_000);
    let field = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let asked = [
        ("newest", all.clone()),
        ("dead", EventQuery { state: of("dead"), ..all.clone() }),
        ("waiting", EventQuery { state: of("waiting"), ..all.clone() }),
        ("failed of a source", EventQuery { cause: of("failed"), source: of("often1"), ..all.clone() }),
        ("superseded", EventQuery { cause: of("superseded"), ..all.clone() }),
        ("a source", EventQuery { source: of("often2"), ..all.clone() }),
        ("a rare source", EventQuery { source: of("rare"), ..all.clone() }),
        ("a route of a source", EventQuery { source: of("often0"), route: of("slow"), ..all.clone() }),
        ("a route", EventQuery { route: of("slow"), ..all.clone() }),
        ("a common tag", EventQuery { fields: field("tag", "latest"), ..all.clone() }),
        ("a rare tag", EventQuery { fields: field("tag", "v7"), ..all.clone() }),
        ("one number", EventQuery { fields: field("n", "1234"), ..all.clone() }),
        ("no such number", EventQuery { fields: field("n", "-1"), ..all.clone() }),
        ("a field without an index", EventQuery { fields: field("sha", "00"), ..all.clone() }),
        ("a text", EventQuery { text: of("delivery-12"), ..all.clone() }),
        ("a text that is nowhere", EventQuery { text: of("nowhere"), ..all.clone() }),
        (
            "an hour in the middle",
            EventQuery { since: Some(middle), until: Some(middle + Duration::from_hours(1)), ..all.clone() },
        ),
        ("before the middle", EventQuery { until: Some(middle), ..all.clone() }),
    ];
    let (mut slowest, most) = (Duration::ZERO, Duration::from_millis(if full { 150 } else { 1_500 }));
    for (name, listing) in asked {
        let mut times = Vec::new();
        let mut page = hookonce::store::EventPage::default();
        for _ in 0..5 {
            let start = Instant::now();
            page = store.page(listing.clone()).await.unwrap();
            times.push(start.elapsed());
        }
        times.sort();
        assert!(page.events.iter().all(|event| listing.finds(event) || event.state.word() == "dead"), "{name}");
        println!(
            "{name:<26} {:>8.2?} (first {:>8.2?}) {:>4} events{}",
            times[2],
            times[4],
            page.events.len(),
            if page.next.is_some() { ", more" } else { "" }
        );
        slowest = slowest.max(times[2]);
    }
    let mut times: Vec<_> = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let census = store.counts().await.unwrap();
        times.push(start.elapsed());
        assert_eq!(census.waiting + census.running + census.done + census.dead, many);
        assert_eq!((census.waiting, census.dead), (many / 500, many / 125));
        assert_eq!(census.duplicates, Some(census.dead * 3));
        assert!(census.oldest.is_some());
    }
    times.sort();
    println!("{:<26} {:>8.2?} (slowest {:>8.2?})", "overview's count", times[2], times[4]);
    if full {
        plans(&path);
        indexes(&store, &path).await;
        assert!(times[2] < Duration::from_millis(100), "the overview takes {:?}", times[2]);
    }
    assert!(slowest < most, "a page takes {slowest:?}");
}

/// Prints the query plans of the pages.
fn plans(path: &std::path::Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    for sql in [
        "select id from events order by id desc limit 100",
        "select id, fields from events where state = 'dead' order by id desc limit 100",
        "select id, fields from events where ended_at is null and state = 'waiting' order by id desc limit 100",
        "select id, fields from events where source = 'rare' order by id desc limit 100",
        "select id, fields from events where tag = 'latest' order by id desc limit 100",
        "select id, fields from events where superseded_by = x'00' order by id desc limit 16",
        "select count(*) from events",
        "select count(*) from events where state = 'dead'",
    ] {
        let mut plan = db.prepare(&format!("explain query plan {sql}")).unwrap();
        let lines: Vec<String> = plan.query_map([], |row| row.get(3)).unwrap().flatten().collect();
        println!("{sql}\n    {}", lines.join("\n    "));
    }
}

/// Prints what the indexes for lists cost a claim: the same claims with and without them, in turns.
async fn indexes(store: &SqliteStore, path: &std::path::Path) {
    use hookonce::store::conformance::making;
    const DROP: &str = "drop index if exists events_source; drop index if exists events_superseded";
    const MAKE: &str = "create index if not exists events_source on events (source); \
                        create index if not exists events_superseded on events (superseded_by) where superseded_by is not null";
    let db = rusqlite::Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_mins(1)).unwrap();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..10 {
        let with = round % 2;
        db.execute_batch(if with == 1 { MAKE } else { DROP }).unwrap();
        // The checkpoint after creating an index is not part of a claim's cost.
        db.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).unwrap();
        let start = Instant::now();
        for batch in 0..20 {
            let claims = (0..100).map(|n| making().delivery(&format!("{round}-{batch}-{n}")).made(store.now()));
            store.claim(claims.map(Into::into).collect()).await.unwrap();
        }
        times[with].push(start.elapsed() / 2_000);
    }
    for times in &mut times {
        times.sort();
    }
    println!(
        "a claim, in batches of 100, with a million kept: {:?} with the indexes, {:?} without",
        times[1][2], times[0][2]
    );
}
