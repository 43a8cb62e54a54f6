//! Faults of a Redis store: the server dies, loses data, is full, or does not confirm a write.

use crate::redis::{act, claim, new, open};
use crate::redis_server::Server;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::source::{Keep, Retention};
use hookonce::decide::time::Duration;
use hookonce::store::conformance::making;
use hookonce::store::{EventQuery, Inspect, RetentionPolicies, Store, StoreBackend, StoreError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn full() -> bool {
    std::env::var_os("HOOKONCE_FULL").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_confirmed_is_lost_when_the_server_is_killed_under_load() {
    let mut server = Server::start();
    let store = Arc::new(open(&server.url("a")).await.unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (store, stop) = (store.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut acked, mut n) = (Vec::new(), 0);
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let one = making().delivery(&format!("{task}-{n}")).carrying(vec![b'x'; 2_000]);
                    let (id, one) = (one.id(), one.made(store.now()));
                    loop {
                        match store.claim(vec![one.clone().into()]).await {
                            Ok(claims) => {
                                assert!(
                                    matches!(&claims[0], ClaimResult::New { event, .. } if event.id == id),
                                    "{claims:?}"
                                );
                                acked.push((id, Instant::now()));
                                break;
                            }
                            Err(StoreError::Broken(why)) => panic!("{why}"),
                            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await, // the sender retries
                        }
                    }
                }
                acked
            })
        })
        .collect();
    let rounds = if full() { 100 } else { 5 };
    let mut back = Vec::new();
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(100 + 37 * (round % 5))).await;
        server.kill();
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.run();
        back.push(Instant::now());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::Relaxed);
    let mut acked = Vec::new();
    for task in tasks {
        acked.extend(task.await.unwrap());
    }
    let waits = back.iter().map(|at| acked.iter().map(|(_, done)| *done).filter(|done| done > at).min().unwrap() - *at);
    let longest = waits.max().unwrap();
    for (id, _) in &acked {
        assert!(store.get(*id).await.unwrap().is_some(), "{id} was confirmed and is lost");
    }
    println!("{} claims confirmed, {rounds} kills, back after at most {longest:?}", acked.len());
    assert!(acked.len() > 100 && longest < Duration::from_secs(15), "{} {longest:?}", acked.len());
}

#[tokio::test]
async fn a_node_whose_store_was_emptied_stops_with_a_reason() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let event = new(&store, making().delivery("d1")).await;
    let mut failed = store.failed();
    server.order(&["FLUSHALL"]);
    let again = store.claim(vec![making().delivery("d1").made(store.now()).into()]).await;
    let Err(StoreError::Broken(why)) = again else { panic!("{again:?}") };
    assert!(why.contains("the store is gone"), "{why}");
    assert_eq!(failed.wait_for(Option::is_some).await.unwrap().as_deref(), Some(&*why));
    assert!(matches!(store.get(event.id).await, Err(StoreError::Broken(_))));
    // Another node creates a new store there; the first still writes nothing into it.
    let other = open(&server.url("a")).await.unwrap();
    new(&other, making().delivery("d1")).await;
    assert!(matches!(store.get(event.id).await, Err(StoreError::Broken(_))));
}

#[tokio::test]
async fn a_node_that_finds_another_store_under_its_prefix_stops() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    server.order(&["FLUSHALL"]);
    let other = open(&server.url("a")).await.unwrap();
    for n in 0..5 {
        new(&other, making().delivery(&format!("d{n}"))).await;
    }
    let answer = store.claim(vec![making().delivery("d1").made(store.now()).into()]).await;
    assert!(matches!(&answer, Err(StoreError::Broken(why)) if why.contains("another store")), "{answer:?}");
}

/// Replaces a folder's files by those of another.
fn copied(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a_node_whose_store_was_set_back_stops_with_a_reason() {
    let mut server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let first = new(&store, making().delivery("d1")).await;
    act(&store, &first).await;
    let (data, copy) = (server.dir.path().join("appendonlydir"), server.dir.path().join("copy"));
    copied(&data, &copy);
    for n in 0..3 {
        new(&store, making().delivery(&format!("later{n}"))).await;
    }
    server.kill();
    copied(&copy, &data);
    server.run();
    let again = store.claim(vec![making().delivery("later1").made(store.now()).into()]).await;
    assert!(matches!(&again, Err(StoreError::Broken(why)) if why.contains("forgotten writes")), "{again:?}");
    // A node that starts now cannot know, and continues with what is there.
    let restarted = open(&server.url("a")).await.unwrap();
    assert!(matches!(claim(&restarted, making().delivery("d1")).await, ClaimResult::Duplicate { .. }));
    assert!(matches!(claim(&restarted, making().delivery("later1")).await, ClaimResult::New { .. }));
}

#[tokio::test]
async fn a_node_whose_writes_were_lost_stops_also_where_others_have_written_more_since() {
    let mut server = Server::start();
    let (here, there) = (open(&server.url("a")).await.unwrap(), open(&server.url("a")).await.unwrap());
    let (data, copy) = (server.dir.path().join("appendonlydir"), server.dir.path().join("copy"));
    copied(&data, &copy);
    let acted = new(&here, making().delivery("d1")).await;
    act(&here, &acted).await;
    server.kill();
    copied(&copy, &data);
    server.run();
    for n in 0..10 {
        new(&there, making().delivery(&format!("other{n}"))).await;
    }
    let again = here.claim(vec![making().delivery("d1").made(here.now()).into()]).await;
    assert!(
        matches!(&again, Err(StoreError::Broken(why)) if why.contains("forgotten what this node wrote")),
        "{again:?}"
    );
    new(&there, making().delivery("last")).await;
}

#[tokio::test]
async fn full_memory_counts_as_down_and_leaves_nothing_half_written() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let first = new(&store, making().delivery("d0").carrying("body")).await;
    server.order(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let batch = (1..20).map(|n| making().delivery(&format!("d{n}")).made(store.now()).into()).collect();
    let claimed = store.claim(batch).await;
    assert!(matches!(&claimed, Err(StoreError::Down(why)) if why.contains("memory is full")), "{claimed:?}");
    let all = EventQuery { limit: 100, ..EventQuery::default() };
    assert_eq!(store.list(all).await.unwrap().len(), 1);
    assert!(
        matches!(claim(&store, making().delivery("d0")).await, ClaimResult::Duplicate { .. }),
        "it can still be read"
    );
    server.order(&["CONFIG", "SET", "maxmemory", "0"]);
    act(&store, &first).await;
    new(&store, making().delivery("d1")).await;
}

/// A body that cannot be compressed.
fn noise(mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_be_bytes()
    };
    (0..2_500).flat_map(|_| next()).collect()
}

#[tokio::test]
async fn with_full_memory_events_end_and_expire_and_then_more_are_accepted() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let waits = new(&store, making().delivery("waits")).await;
    let used = || -> usize {
        let info: String = ::redis::cmd("INFO").arg("memory").query(&mut server.client()).unwrap();
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
    };
    server.order(&["CONFIG", "SET", "maxmemory", &(used() + (4 << 20)).to_string()]);
    let mut taken = 0;
    let full = loop {
        let one = making().delivery(&format!("d{taken}")).carrying(noise(taken + 1)).recorded();
        match store.claim(vec![one.made(store.now()).into()]).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&full, StoreError::Down(why) if why.contains("memory is full")), "{full:?}");
    assert!(taken > 5, "{taken}");
    server.order(&["CONFIG", "SET", "maxmemory", &(used() - (1 << 20)).to_string()]);
    // Accepted events continue to their end, a node starts, and nothing more is accepted.
    act(&store, &waits).await;
    let other = open(&server.url("a")).await.unwrap();
    for store in [&store, &other] {
        let more = store.claim(vec![making().delivery("more").made(store.now()).into()]).await;
        assert!(matches!(&more, Err(StoreError::Down(why)) if why.contains("memory is full")), "{more:?}");
    }
    let kept = Retention { keys: Keep::For(Duration::from_hours(1)), body: Duration::ZERO };
    let keeps = Arc::new(RetentionPolicies { sources: [("source".into(), kept)].into() });
    assert_eq!(store.forget(keeps, 1_000_000).await.unwrap().bodies, taken + 1, "the one that waited had a body, too");
    new(&store, making().delivery("more")).await;
    assert!(
        matches!(claim(&store, making().delivery("d0")).await, ClaimResult::Duplicate { .. }),
        "only bodies were removed"
    );
}

#[tokio::test]
async fn a_script_that_was_flushed_is_loaded_again() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    server.order(&["SCRIPT", "FLUSH"]);
    new(&store, making().delivery("d1")).await;
}

#[tokio::test]
async fn a_key_overwritten_with_another_type_stops_the_store_before_it_writes() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    server.order(&["DEL", "{a}:all"]);
    server.order(&["SET", "{a}:all", "x"]);
    let claimed = store.claim(vec![making().delivery("d1").made(store.now()).into()]).await;
    assert!(matches!(&claimed, Err(StoreError::Broken(why)) if why.contains("{a}:all")), "{claimed:?}");
    let keys = format!("{:?}", server.order(&["KEYS", "{a}[ek]*"]));
    assert_eq!(keys, "array([])", "nothing of it was written");
}

#[tokio::test]
async fn a_claim_whose_future_is_dropped_does_no_harm() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    let (mut dropped, mut made) = (0, 0);
    for n in 0..200 {
        let one = making().delivery(&format!("d{n}")).made(store.now());
        let patience = async {
            for _ in 0..n {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            claimed = store.claim(vec![one.clone().into()]) => drop(claimed.unwrap()),
            () = patience => dropped += 1,
        }
        let again = store.claim(vec![one.into()]).await.unwrap();
        made += u32::from(matches!(again[0], ClaimResult::New { .. }));
    }
    assert_eq!(made, 200);
    println!("{dropped} of 200 claims were dropped half-way");
    assert!(dropped > 10, "{dropped}");
}

/// A proxy that, when told to, cuts the connection instead of passing on the response to a write.
struct Proxy {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), cut: Arc::default() };
        let cut = proxy.cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(pass(client, server, cut.clone()));
            }
        });
        proxy
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, cut: Arc<AtomicBool>) {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut cutting = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let writes = asked[..length].windows(7).any(|word| word == b"EVALSHA");
                cutting |= writes && cut.swap(false, Ordering::SeqCst);
                if server.write_all(&asked[..length]).await.is_err() { return }
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if cutting { return } // it was written, and the response is lost
                if client.write_all(&answered[..length]).await.is_err() { return }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_response_is_unsure_and_the_same_claim_again_is_new_and_one_event() {
    let server = Server::start();
    let proxy = Proxy::before(server.port).await;
    let store = open(&format!("redis://127.0.0.1:{}/?prefix=a", proxy.port)).await.unwrap();
    let times = if full() { 1_000 } else { 50 };
    for n in 0..times {
        let one = making().delivery(&format!("d{n}")).made(store.now());
        proxy.cut.store(true, Ordering::SeqCst);
        let lost = store.claim(vec![one.clone().into()]).await;
        assert!(matches!(lost, Err(StoreError::Unsure(_))), "{lost:?}");
        let again = store.claim(vec![one.clone().into()]).await.unwrap();
        assert!(matches!(&again[0], ClaimResult::New { event, .. } if event.id == one.event.id), "{again:?}");
        assert_eq!(store.find_by_name(format!("d{n}"), 5).await.unwrap().len(), 1);
    }
    println!("{times} responses cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_times_out_and_is_used_again_later() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    new(&store, making().delivery("d1")).await;
    server.pause(true);
    let begun = Instant::now();
    let one = making().delivery("d2").made(store.now());
    let claimed = store.claim(vec![one.clone().into()]).await;
    assert!(matches!(claimed, Err(StoreError::Down(_))), "only read so far: {claimed:?}");
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    server.pause(false);
    let begun = Instant::now();
    while store.claim(vec![one.clone().into()]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_to_evict_keys_is_not_written_to_until_it_stops() {
    let server = Server::start();
    let store = open(&server.url("a")).await.unwrap();
    new(&store, making().delivery("before")).await;
    let until = async |wanted: bool| {
        let begun = Instant::now();
        for n in 0.. {
            let one = making().delivery(&format!("{wanted} {n}")).made(store.now());
            match store.claim(vec![one.into()]).await {
                Ok(_) if wanted => return String::new(),
                Err(StoreError::Down(why)) if !wanted => return why.to_string(),
                Err(StoreError::Broken(why)) => panic!("{why}"),
                Ok(_) | Err(_) => assert!(begun.elapsed() < Duration::from_mins(1), "it is not noticed"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        String::new()
    };
    server.order(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let why = until(false).await;
    assert!(why.contains("maxmemory-policy allkeys-lru") && why.contains("noeviction"), "{why}");
    server.order(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    until(true).await;
    assert!(matches!(claim(&store, making().delivery("before")).await, ClaimResult::Duplicate { .. }));
}
