//! PostgreSQL after a failover, while the old primary still answers its open connections.

use crate::postgres_server::Server;
use futures_util::future::join_all;
use hookonce::decide::claim::ClaimResult;
use hookonce::decide::id::EventId;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::postgres::{PostgresOpenOptions, PostgresStore, SchemaMode};
use hookonce::store::{Inspect, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_mins(1);

/// An address whose new connections go to another server once it is switched; open connections stay.
struct Switch {
    port: u16,
    to: Arc<AtomicU16>,
}

impl Switch {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = Arc::new(AtomicU16::new(server));
        let target = to.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let target = target.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { port, to }
    }
}

/// Waits until the replica has everything.
async fn caught_up(primary: &Server) {
    let db = primary.client("postgres").await;
    let all = "select coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) from pg_stat_replication";
    let patience = Instant::now() + PATIENCE;
    while !db.query_one(all, &[]).await.unwrap().get::<_, bool>(0) {
        assert!(Instant::now() < patience, "the replica never catches up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Claims it until that is confirmed.
async fn claim(store: &dyn Store, name: &str) -> EventId {
    let new = making().delivery(name).made(store.now());
    let patience = Instant::now() + PATIENCE;
    loop {
        match store.claim(vec![new.clone().into()]).await.map(|mut claims| claims.remove(0)) {
            Ok(ClaimResult::New { event, .. } | ClaimResult::Duplicate { event, .. }) => return event.id,
            Err(StoreError::Down(_) | StoreError::Unsure(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < patience, "{name} is not claimed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_no_write_to_the_old_primary_counts() {
    let mut old = Server::start().await;
    let database = old.database().await;
    let new = old.replica().await;
    let switch = Switch::to(old.port).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", switch.port);
    let options = PostgresOpenOptions { clock: StoreClock::server(), schema: SchemaMode::Auto };
    let store = PostgresStore::open(&url, options).await.unwrap();
    let before = claim(&store, "before").await;
    store.known().await.unwrap(); // its mark is written
    caught_up(&old).await;
    let promoted: bool = new.client("postgres").await.query_one("select pg_promote()", &[]).await.unwrap().get(0);
    assert!(promoted);
    switch.to.store(new.port, Ordering::SeqCst);
    // More concurrent queries than there are connections: some go to the new primary.
    let _ = join_all((0..6).map(|_| store.get(before))).await;
    let mut claimed = vec![before];
    for round in 0..3 {
        let names: Vec<_> = (0..6).map(|n| format!("{round} {n}")).collect();
        claimed.extend(join_all(names.iter().map(|name| claim(&store, name))).await);
        store.known().await.unwrap();
    }
    old.crash();
    for id in claimed {
        let patience = Instant::now() + PATIENCE;
        let found = loop {
            match store.get(id).await {
                Ok(found) => break found,
                Err(StoreError::Down(_)) if Instant::now() < patience => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert!(found.is_some(), "{id} was confirmed, but is lost");
    }
}
