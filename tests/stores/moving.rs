//! A file that is moved into a store on which a node already runs.

use crate::{postgres_server, redis_server};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{Claim, Same};
use hookonce::decide::event::Step;
use hookonce::decide::id::Node;
use hookonce::decide::source::Route;
use hookonce::decide::time::Duration;
use hookonce::store::address::Address;
use hookonce::store::contract::making;
use hookonce::store::copy::{CannotCopy, copy};
use hookonce::store::open::shelf;
use hookonce::store::sqlite::{Access, Sqlite};
use hookonce::store::{Listing, Note, Sighting, Store, StoreError, open};
use std::path::Path;
use tokio::sync::oneshot;

/// An id that not every store can hold.
const ODD: &str = "a\0b";
/// How many events are moved.
const MOVED: usize = 20;

/// A file with events that wait, and duplicates of one of them.
async fn filled(path: &Path) -> Sqlite {
    let store = Sqlite::open(path, Access::Node).unwrap();
    for n in 1..MOVED {
        let (id, body) = (format!("d{n}"), format!("b{n}"));
        let made = if n % 2 == 0 { making().unsigned(&id, body) } else { making().delivery(&id) };
        store.claim(vec![made.made(store.now())]).await.unwrap();
    }
    let odd = making().delivery(ODD).made(store.now());
    let sighting = Sighting { at: store.now(), delivery_id: Some(ODD.into()), same: Same::Delivery };
    let note = Note { event: odd.event.id, sighting };
    store.claim(vec![odd]).await.unwrap();
    store.note(vec![note]).await.unwrap();
    drop(store);
    Sqlite::open(path, Access::Tool).unwrap()
}

fn is_under_way<T: std::fmt::Debug>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Down(why)) if why.contains("is being moved into it"))
}

async fn a_node_that_runs_on_the_target_writes_nothing_until_it_is_moved(url: &str) {
    let dir = tempfile::tempdir().unwrap();
    let from = filled(&dir.path().join("a.db")).await;
    let node = open(url).await.unwrap();
    let to = shelf(&Address::parse(url, Path::new("")).unwrap()).await.unwrap();
    let (at_it, is_at_it) = oneshot::channel();
    let (go, may_go) = oneshot::channel::<()>();
    let mut first = Some((at_it, may_go));
    let target = to.clone();
    let copied = tokio::spawn(async move {
        let copied = copy(&from, "a.db", &*target, |_| {
            if let Some((at_it, may_go)) = first.take() {
                at_it.send(()).unwrap();
                tokio::task::block_in_place(|| may_go.blocking_recv()).unwrap();
            }
        });
        (copied.await, from)
    });
    is_at_it.await.unwrap();
    let new = making().delivery("new").made(node.now());
    let claimed = node.claim(vec![new.clone()]).await;
    assert!(is_under_way(&claimed), "{claimed:?}");
    let waits = node.list(Listing { limit: 1, ..Listing::default() }).await.unwrap().remove(0);
    let start = Step::Start { lasts: Duration::from_mins(1), by: Node("node".into()), action: ActionKind::Run };
    let start = waits.change(start, &Route::default(), node.now()).unwrap();
    let started = node.advance(vec![start]).await;
    assert!(is_under_way(&started), "{started:?}");
    go.send(()).unwrap();
    let (copied, from) = copied.await.unwrap();
    assert_eq!(copied.unwrap().events, MOVED as u64);

    let claims = node.claim(vec![new, making().delivery(ODD).made(node.now())]).await.unwrap();
    assert!(matches!(claims[..], [Claim::New { .. }, Claim::Duplicate { .. }]), "{claims:?}");
    for (id, told) in [("d2", Same::Delivery), ("x", Same::Body)] {
        let claims = node.claim(vec![making().unsigned(id, "b2").made(node.now())]).await.unwrap();
        assert!(matches!(&claims[..], [Claim::Duplicate { same, .. }] if *same == told), "{id}: {claims:?}");
    }
    let again = copy(&from, "a.db", &*to, |_| {}).await.unwrap_err();
    assert!(matches!(again, CannotCopy::NotEmpty) && again.to_string().contains("stop the nodes"), "{again}");
}

/// Says what came first: the node's claim, or the copy.
async fn claims_while_a_copy_begins(url: &str, from: &Sqlite, wait: Duration) -> bool {
    let node = open(url).await.unwrap();
    let to = shelf(&Address::parse(url, Path::new("")).unwrap()).await.unwrap();
    let new = making().delivery("new").made(node.now());
    let claim = async {
        tokio::time::sleep(wait).await;
        node.claim(vec![new]).await
    };
    let (claimed, copied) = tokio::join!(claim, copy(from, "a.db", &*to, |_| {}));
    let events = node.list(Listing { limit: 100, ..Listing::default() }).await.unwrap().len();
    match (claimed, copied) {
        (Ok(_), Err(CannotCopy::NotEmpty)) => assert_eq!(events, 1, "after {wait:?}"),
        (Ok(_), Ok(_)) => assert_eq!(events, MOVED + 1, "after {wait:?}: it was claimed afterwards"),
        (claimed, Ok(_)) if is_under_way(&claimed) => assert_eq!(events, MOVED, "after {wait:?}"),
        (claimed, copied) => panic!("after {wait:?}: {claimed:?}, {copied:?}"),
    }
    events == 1
}

async fn a_claim_comes_before_a_copy_or_not_at_all(urls: impl AsyncFn(u64) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let from = filled(&dir.path().join("a.db")).await;
    let mut first = 0;
    for n in 0..12 {
        let url = urls(n).await;
        first += u32::from(claims_while_a_copy_begins(&url, &from, Duration::from_micros(700 * n)).await);
    }
    println!("{first} of 12 claims came first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_node_on_postgres_and_a_copy_do_not_mix() {
    let server = postgres_server::Server::start().await;
    a_node_that_runs_on_the_target_writes_nothing_until_it_is_moved(&server.url(&server.database().await)).await;
    a_claim_comes_before_a_copy_or_not_at_all(async |_| server.url(&server.database().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_node_on_redis_and_a_copy_do_not_mix() {
    let server = redis_server::Server::start();
    a_node_that_runs_on_the_target_writes_nothing_until_it_is_moved(&server.url("a")).await;
    a_claim_comes_before_a_copy_or_not_at_all(async |n| server.url(&format!("b{n}"))).await;
}
