//! Exactly one row per event, whatever fails: nodes killed at random under load, and connections cut at the commit.

use crate::cutter::Cutter;
use crate::failing_pooler::FailingPooler;
use crate::postgres::Server;
use crate::seed::{self, Random};
use crate::support::{House, Sent};
use crate::{IN, config, number, size};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Without a key, so that a second row of an event is not refused but counted.
const SINK: &str = "create table sink (delivery text, event uuid, n int)";
const ROUTE: &str = "lease = \"3s\"\nretry = { attempts = 50, first = \"20ms\", longest = \"200ms\" }\n\
    sql = { statement = \"insert into sink values (:delivery, :event_id, :n)\", timeout = \"2s\" }";
const PATIENCE: Duration = Duration::from_mins(3);

/// Sends a delivery to one node after another until one accepts it.
async fn send(client: &reqwest::Client, urls: &RwLock<Vec<String>>, delivery: &Sent, first: u64) {
    let until = Instant::now() + PATIENCE;
    for n in usize::try_from(first).unwrap().. {
        assert!(Instant::now() < until, "no node accepted it");
        let url = {
            let urls = urls.read().unwrap();
            urls[n % urls.len()].clone()
        };
        let mut request = client.post(url).body(delivery.body.clone()).timeout(Duration::from_secs(20));
        for (name, value) in &delivery.headers {
            request = request.header(name, value);
        }
        if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends all deliveries from this many senders, every fifth one twice.
async fn flood(urls: Arc<RwLock<Vec<String>>>, events: u64, senders: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..senders {
        let (next, urls) = (next.clone(), urls.clone());
        tasks.spawn(async move {
            let client = reqwest::Client::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= events {
                    return;
                }
                for again in 0..=u64::from(n % 5 == 0) {
                    send(&client, &urls, &number(&format!("d{n}"), n), n + again).await;
                }
            }
        });
    }
    tasks.join_all().await;
}

/// Waits until all events have ended, then counts events and rows.
async fn exactly(db: &Client, events: u64, what: &str) {
    let start = Instant::now();
    let open = "select count(*) from events where ended_at is null";
    while db.query_one(open, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(start.elapsed() < PATIENCE, "they do not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let counts = "select (select count(*) from events where state = 'done'), (select count(*) from events), count(*), \
                  count(distinct event), (select coalesce(max(attempt), 0)::bigint from events) from sink";
    let row = db.query_one(counts, &[]).await.unwrap();
    let counted: Vec<i64> = (0..5).map(|n| row.get(n)).collect();
    println!("{what}: {events} events: {} rows, at most {} attempts", counted[2], counted[4]);
    let n = i64::try_from(events).unwrap();
    assert_eq!(counted[..4], [n; 4], "{what}: done, events, rows, rows of different events");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_killed_at_random_make_exactly_one_row_for_each_event() {
    let events = size(10_000, 2_000);
    let server = Server::start().await;
    let database = server.database().await;
    let db = server.client(&database).await;
    db.batch_execute(SINK).await.unwrap();
    let config = config(&server.url(&database), "", ROUTE);
    let mut nodes: Vec<House> = (0..3).map(|_| House::new(&config)).collect();
    let urls = Arc::new(RwLock::new(nodes.iter().map(|node| node.url(IN)).collect::<Vec<_>>()));
    let flood = tokio::spawn(flood(urls.clone(), events, 16));
    let (mut kills, mut random) = (0, Random::new(seed::any()));
    while !flood.is_finished() {
        tokio::time::sleep(random.millis(200, 500)).await;
        let victim = random.index(nodes.len());
        nodes[victim].kill();
        nodes[victim].start();
        urls.write().unwrap()[victim] = nodes[victim].url(IN);
        kills += 1;
    }
    flood.await.unwrap();
    exactly(&db, events, &format!("{kills} nodes killed")).await;
    assert!(kills > 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_at_the_commit_make_exactly_one_row_for_each_event() {
    let events = size(10_000, 600);
    let server = Server::start().await;
    let database = server.database().await;
    let db = server.client(&database).await;
    db.batch_execute(SINK).await.unwrap();
    let proxy = Cutter::of_every(server.port, 13).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", proxy.port);
    let node = House::new(&config(&url, "", ROUTE));
    flood(Arc::new(RwLock::new(vec![node.url(IN)])), events, 16).await;
    exactly(&db, events, "cut at the commit").await;
    let cuts = proxy.cuts.load(Ordering::SeqCst);
    println!("{cuts} connections cut at the commit");
    assert!(cuts > events / 50, "{cuts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_fails_at_the_commit_makes_exactly_one_row_for_each_event() {
    let events = size(2_000, 60);
    let server = Server::start().await;
    let database = server.database().await;
    let db = server.client(&database).await;
    db.batch_execute(SINK).await.unwrap();
    let pooler = FailingPooler::of_every(server.port, 7).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", pooler.port);
    let node = House::new(&config(&url, "", ROUTE));
    flood(Arc::new(RwLock::new(vec![node.url(IN)])), events, 8).await;
    exactly(&db, events, "a pooler failed at the commit").await;
    let spoilt = pooler.spoilt.load(Ordering::SeqCst);
    println!("{spoilt} commits answered with an error of the pooler");
    assert!(spoilt > events / 20, "{spoilt}");
}
