//! A store that is moved onto a shelf.

use super::*;
use crate::decide::claim::Same;
use crate::decide::limits;
use crate::store::copy::{self, CannotCopy, Stage};
use crate::store::sqlite::{Access, Sqlite};
use crate::store::{Sighting, StoreError};

/// A store with something of everything in it.
async fn filled(path: &std::path::Path) -> Sqlite {
    let store = Sqlite::open_by(path, Access::Node, Some(Clock::manual(START))).expect("it opens");
    for n in 0..600 {
        let mut one = making().delivery(&format!("d{n}")).body(format!("body {n}").repeat(1 + n % 400));
        if n % 3 == 0 {
            let subject = format!("s{}", n % 5);
            one = one.change(&subject, &format!("v{n}"), i64::try_from(n).ok()).group(&subject);
        }
        store.claim(vec![one.made(store.now())]).await.expect("it claims");
    }
    let due = store.due(Look::Strays(Arc::new([])), 50).await.expect("it reads").events;
    for event in due {
        let start = Step::Start { lasts: Duration::from_secs(30), by: Node("n".into()) };
        let change = event.change(start, &Route::default(), store.now()).expect("it starts");
        let Advance::Written { event, .. } = store.advance(vec![change]).await.expect("it writes").remove(0) else {
            panic!("lost")
        };
        let receipt = Receipt { status: 201, headers: Vec::new(), body: b"made".to_vec(), cut: false };
        let settle = Step::Settle { outcome: Outcome::Delivered(Some(receipt)), blocks: Blocks(1), jitter: Jitter(0) };
        let change = event.change(settle, &Route::default(), store.now()).expect("it settles");
        store.advance(vec![change]).await.expect("it writes");
        let sighting = Sighting { at: START, delivery_id: Some("again".into()), same: Same::Delivery };
        store.note(vec![Note { event: event.id, sighting }; 20]).await.expect("it notes");
    }
    store.import(vec![contract::imported("a"), contract::imported("b")]).await.expect("it imports");
    store.remember(vec![Recipe { scope: "s".into(), once: "o".into(), since: None }]).await.expect("it remembers");
    drop(store);
    Sqlite::open_by(path, Access::Tool, Some(Clock::manual(START))).expect("it opens again")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_moved_and_compared_and_the_target_is_marked_meanwhile() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = filled(&dir.path().join("a.db")).await;
    let to = Board::new(Clock::manual(START), 0);
    let mut stages = Vec::new();
    let copied = copy::copy(&from, "a.db", &to, |progress| {
        assert!(progress.done <= progress.of);
        if stages.last() != Some(&progress.stage) {
            stages.push(progress.stage);
        }
    });
    let copied = copied.await.expect("it is moved");
    assert_eq!((copied.events, copied.before, copied.others), (600, 0, 5 + 5 + 2), "{copied:?}");
    assert_eq!(stages, [Stage::Copies, Stage::Compares]);
    assert!(!copy::is_unfinished(&to).await.expect("it reads"));
    let to = Shared(to);
    let all = Listing { limit: 10_000, ..Listing::default() };
    let (there, here) = (to.list(all.clone()).await.expect("it reads"), from.list(all).await.expect("it reads"));
    assert_eq!(there, here);
    assert_eq!(to.recipes().await.expect("it reads"), Store::recipes(&from).await.expect("it reads"));
    let before = here.iter().map(|event| event.turn).max();
    let Claim::New { event, .. } = to.claim(vec![making().named("x").made(START)]).await.expect("it claims").remove(0)
    else {
        panic!("it is new")
    };
    assert!(Some(event.turn) > before, "turns go on where they were");
    let again = copy::copy(&from, "a.db", &to.0, |_| {}).await;
    assert!(matches!(again, Err(CannotCopy::NotEmpty)), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_interrupted_goes_on_and_nobody_elses_copy_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = filled(&dir.path().join("a.db")).await;
    let to = Board::new(Clock::manual(START), 0);
    to.fails_after.store(2, std::sync::atomic::Ordering::Relaxed);
    let cut = copy::copy(&from, "a.db", &to, |_| {}).await;
    assert!(matches!(cut, Err(CannotCopy::Store(StoreError::Down(_)))), "{cut:?}");
    assert!(copy::is_unfinished(&to).await.expect("it reads"));
    to.fails_after.store(usize::MAX, std::sync::atomic::Ordering::Relaxed);
    let other = copy::copy(&from, "b.db", &to, |_| {}).await;
    assert!(matches!(other, Err(CannotCopy::Other)), "{other:?}");
    let copied = copy::copy(&from, "a.db", &to, |_| {}).await.expect("it goes on");
    assert_eq!((copied.events, copied.before), (600, 256), "{copied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_afterwards_is_named_and_the_target_stays_marked() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = filled(&dir.path().join("a.db")).await;
    let to = Board::new(Clock::manual(START), 0);
    let copied = copy::copy(&from, "a.db", &to, |progress| {
        if progress.stage == Stage::Copies && progress.done == progress.of {
            let mut books = to.memory.books();
            let id = books.old_bodies(Of::Source("source"), START, 1)[0];
            books.remove_body(id);
        }
    });
    let differs = copied.await;
    assert!(matches!(&differs, Err(CannotCopy::Differs(what)) if what.starts_with("event ")), "{differs:?}");
    assert!(copy::is_unfinished(&to).await.expect("it reads"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_where_its_bodies_are_as_many_bytes_as_a_batch_takes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.db");
    let store = Sqlite::open_by(&path, Access::Node, Some(Clock::manual(START))).expect("it opens");
    for n in 0..10_u8 {
        let one = making().body(vec![n; limits::BATCH_BYTES_MAX / 3 + 1]);
        store.claim(vec![one.made(store.now())]).await.expect("it claims");
    }
    drop(store);
    let from = Sqlite::open_by(&path, Access::Tool, Some(Clock::manual(START))).expect("it opens again");
    let mut pages = Vec::new();
    let to = Board::new(Clock::manual(START), 0);
    let copied = copy::copy(&from, "a.db", &to, |progress| pages.push(progress.done)).await.expect("it is moved");
    assert_eq!(copied.events, 10);
    pages.dedup();
    assert_eq!(pages, [3, 6, 9, 10, 3, 6, 9, 10], "copied, then compared");
}
