//! Copies from and into stores on which an unnoticed node runs: the mark prevents it from writing.

use crate::{postgres_server, redis_server};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, MatchedBy};
use hookonce::decide::event::EventStep;
use hookonce::decide::id::{Digest, EventId, Key, NodeId, QueueTurn};
use hookonce::decide::identity::recipe::IdentityRecipe;
use hookonce::decide::ledger::SubjectRegister;
use hookonce::decide::source::{Keep, Retention, Route};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::store::conformance::making;
use hookonce::store::copy::{
    self, CopyCursor, CopyEntry, CopyError, CopySide, CopyStore, ExportPage, ExportStore, copy,
};
use hookonce::store::inspect::QuarantinedMessage;
use hookonce::store::open::StoreUrl;
use hookonce::store::open::open_to_copy;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{
    DuplicateNote, DuplicateSighting, EventQuery, Inspect, SourceRetention, Store, StoreBackend, StoreError,
    StoreFuture, open,
};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A delivery id that not every store can hold.
const ODD: &str = "a\0b";
/// The number of events that are copied.
const MOVED: usize = 20;

/// A file with waiting events, and duplicates of one of them.
async fn filled(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path, SqliteAccess::Node).unwrap();
    for n in 1..MOVED {
        let (id, body) = (format!("d{n}"), format!("b{n}"));
        let made = if n % 2 == 0 { making().unsigned(&id, body) } else { making().delivery(&id) };
        store.claim(vec![made.made(StoreBackend::now(&store)).into()]).await.unwrap();
    }
    let odd = making().delivery(ODD).made(StoreBackend::now(&store));
    let sighting =
        DuplicateSighting { at: StoreBackend::now(&store), delivery_id: Some(ODD.into()), same: MatchedBy::Delivery };
    let note = DuplicateNote { event: odd.event.id, sighting };
    store.claim(vec![odd.into()]).await.unwrap();
    store.note_duplicates(vec![note]).await.unwrap();
    drop(store);
    SqliteStore::open(path, SqliteAccess::Copy).unwrap()
}

fn is_under_way<T: std::fmt::Debug>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Down(why)) if why.contains("it is being copied"))
}

/// A store whose nodes cannot be noticed: only the mark is left as protection.
#[derive(Clone)]
struct Unnoticing(Arc<dyn CopyStore>);

impl Unnoticing {
    async fn open(url: &str, side: CopySide) -> Self {
        Self(open_to_copy(&StoreUrl::parse(url, Path::new("")).unwrap(), side).await.unwrap().into())
    }
}

impl ExportStore for Unnoticing {
    fn export(&self, from: CopyCursor, limit: usize) -> StoreFuture<'_, ExportPage> {
        self.0.export(from, limit)
    }

    fn entries(&self) -> StoreFuture<'_, u64> {
        self.0.entries()
    }

    fn settled(&self) -> StoreFuture<'_, ()> {
        self.0.settled()
    }

    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.text(text)
    }
}

impl CopyStore for Unnoticing {
    fn fill(&self, entries: Vec<CopyEntry>, notes: Vec<copy::CopyRegisterCas>) -> StoreFuture<'_, bool> {
        self.0.fill(entries, notes)
    }

    fn noted(&self, key: Key) -> StoreFuture<'_, Option<SubjectRegister>> {
        self.0.noted(key)
    }

    fn clear_recipes(&self, mark: SubjectRegister) -> StoreFuture<'_, bool> {
        self.0.clear_recipes(mark)
    }

    fn pass_turns(&self, highest: QueueTurn) -> StoreFuture<'_, ()> {
        self.0.pass_turns(highest)
    }

    fn last_seen(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.0.last_seen()
    }

    fn set_last_seen(&self, time: Timestamp) -> StoreFuture<'_, ()> {
        self.0.set_last_seen(time)
    }

    fn in_use(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn clock_follows_events(&self) -> bool {
        self.0.clock_follows_events()
    }

    fn open_events(&self) -> StoreFuture<'_, u64> {
        self.0.open_events()
    }
}

/// Copies, and runs `meanwhile` when the first page is written.
async fn copy_while<F: Future<Output = ()>>(
    from: Unnoticing,
    to: Unnoticing,
    meanwhile: F,
) -> Result<copy::CopyReport, CopyError> {
    let (at_it, is_at_it) = oneshot::channel();
    let (go, may_go) = oneshot::channel::<()>();
    let mut first = Some((at_it, may_go));
    let copied = tokio::spawn(async move {
        let copied = copy(&from, &to, |_| {
            if let Some((at_it, may_go)) = first.take() {
                at_it.send(()).unwrap();
                tokio::task::block_in_place(|| may_go.blocking_recv()).unwrap();
            }
        });
        copied.await
    });
    is_at_it.await.unwrap();
    meanwhile.await;
    go.send(()).unwrap();
    copied.await.unwrap()
}

/// Checks that a claim and a start are refused.
async fn check_writes_nothing(node: &dyn Inspect) {
    let claimed = node.claim(vec![making().delivery("refused").made(node.now()).into()]).await;
    assert!(is_under_way(&claimed), "{claimed:?}");
    let waits = node.list(EventQuery { limit: 1, ..EventQuery::default() }).await.unwrap().remove(0);
    let start = EventStep::Start { lasts: Duration::from_mins(1), by: NodeId("node".into()), action: ActionKind::Run };
    let start = waits.transition(start, &Route::default(), node.now()).unwrap();
    let started = node.advance(vec![start]).await;
    assert!(is_under_way(&started), "{started:?}");
}

async fn a_node_writes_nothing_while_its_store_is_filled_nor_while_it_is_copied_nor_after(url: &str) {
    let dir = tempfile::tempdir().unwrap();
    let from = Unnoticing(Arc::new(filled(&dir.path().join("a.db")).await));
    let node = open(url).await.unwrap();
    let to = Unnoticing::open(url, CopySide::Target).await;
    let noticed = to.0.in_use().await.unwrap();
    assert!(noticed.is_some(), "the server shows the node");
    let copied = copy_while(from.clone(), to.clone(), check_writes_nothing(&*node)).await.unwrap();
    assert_eq!(copied.target.events, MOVED as u64);

    // The node continues by itself.
    let new = making().delivery("new").made(node.now());
    let claims = node.claim(vec![new.into(), making().delivery(ODD).made(node.now()).into()]).await.unwrap();
    assert!(matches!(claims[..], [ClaimResult::New { .. }, ClaimResult::Duplicate { .. }]), "{claims:?}");
    for (id, told) in [("d2", MatchedBy::Delivery), ("x", MatchedBy::Body)] {
        let claims = node.claim(vec![making().unsigned(id, "b2").made(node.now()).into()]).await.unwrap();
        assert!(matches!(&claims[..], [ClaimResult::Duplicate { same, .. }] if *same == told), "{id}: {claims:?}");
    }
    copy::reopen(&from).await.unwrap();
    assert!(matches!(copy(&from, &to, |_| {}).await, Err(CopyError::NotEmpty)));

    let back = Unnoticing::open(&format!("sqlite:{}", dir.path().join("b.db").display()), CopySide::Target).await;
    let copied = copy_while(to.clone(), back, check_writes_nothing(&*node)).await.unwrap();
    assert_eq!(copied.target.events, MOVED as u64 + 1);
    check_writes_nothing(&*node).await;
    copy::reopen(&to).await.unwrap();
    let claims = node.claim(vec![making().delivery("later").made(node.now()).into()]).await.unwrap();
    assert!(matches!(claims[..], [ClaimResult::New { .. }]), "{claims:?}");
}

/// Whether the node's claim came before the copy.
async fn claims_while_a_copy_begins(url: &str, from: &SqliteStore, wait: Duration) -> bool {
    let node = open(url).await.unwrap();
    let to = Unnoticing::open(url, CopySide::Target).await;
    let new = making().delivery("new").made(node.now());
    let claim = async {
        tokio::time::sleep(wait).await;
        node.claim(vec![new.into()]).await
    };
    let (claimed, copied) = tokio::join!(claim, copy(from, &to, |_| {}));
    let events = node.list(EventQuery { limit: 100, ..EventQuery::default() }).await.unwrap().len();
    match (claimed, copied) {
        (Ok(_), Err(CopyError::NotEmpty)) => assert_eq!(events, 1, "after {wait:?}"),
        (Ok(_), Ok(_)) => assert_eq!(events, MOVED + 1, "after {wait:?}: it was claimed afterwards"),
        (claimed, Ok(_)) if is_under_way(&claimed) => assert_eq!(events, MOVED, "after {wait:?}"),
        (claimed, copied) => panic!("after {wait:?}: {claimed:?}, {copied:?}"),
    }
    copy::reopen(from).await.unwrap();
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
    a_node_writes_nothing_while_its_store_is_filled_nor_while_it_is_copied_nor_after(
        &server.url(&server.database().await),
    )
    .await;
    a_claim_comes_before_a_copy_or_not_at_all(async |_| server.url(&server.database().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_node_on_redis_and_a_copy_do_not_mix() {
    let server = redis_server::Server::start();
    a_node_writes_nothing_while_its_store_is_filled_nor_while_it_is_copied_nor_after(&server.url("a")).await;
    a_claim_comes_before_a_copy_or_not_at_all(async |n| server.url(&format!("b{n}"))).await;
}

/// The register that marks a store as part of a copy.
const MARK: Key = Key(*b"hookonce: an unfinished copy    ");
/// The register with the position up to which a target was filled.
const PLACE: Key = Key(*b"hookonce: the place of a copy   ");

fn own(value: Digest) -> SubjectRegister {
    SubjectRegister::new(value, None, EventId([0; 16]))
}

async fn entries(store: &dyn CopyStore) -> Vec<CopyEntry> {
    let (mut all, mut cursor) = (Vec::new(), Some(CopyCursor::START));
    while let Some(at) = cursor {
        let ExportPage { mut entries, next } = store.export(at, 100).await.unwrap();
        all.append(&mut entries);
        cursor = next;
    }
    all
}

/// Checks a page of a copy that was delayed until another copy had finished.
async fn check_a_late_page_writes_nothing(url: &str) {
    let dir = tempfile::tempdir().unwrap();
    let event = entries(&filled(&dir.path().join("a.db")).await).await.swap_remove(0);
    let store = Unnoticing::open(url, CopySide::Target).await;
    let (at, source) = (Timestamp(1_750_000_000_000_000), Arc::<str>::from("s"));
    let kept = Retention { keys: Keep::Forever, body: Duration::from_secs(1) };
    let (message, subject, why) = ("m".to_owned(), "x".to_owned(), "odd".to_owned());
    let head = b"head".to_vec().into();
    let page = vec![
        event,
        CopyEntry::Register(Key([1; 32]), own(Digest([2; 32]))),
        CopyEntry::Slot(Key([3; 32]), EventId([4; 16])),
        CopyEntry::Imported(Key([5; 32])),
        CopyEntry::Recipe(IdentityRecipe { scope: "s".into(), once: "o".into(), since: None }),
        CopyEntry::Retention(SourceRetention { source: source.clone(), kept, seen_at: at }),
        CopyEntry::Quarantined(Box::new(QuarantinedMessage { source, message, subject, at, why, bytes: 4, head })),
    ];
    let (mark, place) = (own(Digest([6; 32])), own(Digest([7; 32])));
    let marked = copy::CopyRegisterCas { key: MARK, was: Some(mark.clone()), is: Some(mark.clone()) };
    let notes = vec![marked.clone(), copy::CopyRegisterCas { key: PLACE, was: None, is: Some(place) }];
    assert!(!store.fill(page.clone(), notes.clone()).await.unwrap(), "{url}");
    assert_eq!(entries(&store).await, [], "{url}");
    assert!(!store.clear_recipes(mark.clone()).await.unwrap(), "{url}");
    assert!(store.fill(Vec::new(), vec![copy::CopyRegisterCas { was: None, ..marked }]).await.unwrap(), "{url}");
    assert!(store.fill(page.clone(), notes).await.unwrap(), "{url}");
    assert_eq!(entries(&store).await, page, "{url}");
    assert!(store.clear_recipes(mark).await.unwrap(), "{url}");
    assert_eq!(entries(&store).await.len(), page.len() - 2, "{url}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_page_of_a_copy_that_comes_too_late_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    check_a_late_page_writes_nothing(&format!("sqlite:{}", dir.path().join("b.db").display())).await;
    check_a_late_page_writes_nothing(&redis_server::Server::start().url("a")).await;
    let server = postgres_server::Server::start().await;
    check_a_late_page_writes_nothing(&server.url(&server.database().await)).await;
}

/// One copy is delayed in the middle of a write. Meanwhile another one finishes, and nodes use the target.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_copy_delayed_in_a_write_writes_nothing_once_nodes_use_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let from = filled(&dir.path().join("a.db")).await;
    let grouped = making().delivery("grouped").change("subject", "v", Some(1)).group("g");
    from.claim(vec![grouped.made(StoreBackend::now(&from)).into()]).await.unwrap();
    let server = postgres_server::Server::start().await;
    let database = server.database().await;
    let to = Unnoticing::open(&server.url(&database), CopySide::Target).await;
    let (nodes, looks) = (server.client(&database).await, server.client(&database).await);
    // The first page, with all events, is written. The next one has the subject's register.
    let finish = async {
        // The copy and the nodes wait for each other's row, and it is the copy that must give way.
        let hold = "set deadlock_timeout = '1min'; \
                    begin; select from hookonce.registers where key = 'hookonce: the place of a copy   ' for update";
        nodes.batch_execute(hold).await.unwrap();
        tokio::spawn(async move {
            let waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%registers%' and pid <> pg_backend_pid()";
            while looks.query(waits, &[]).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let end = "delete from hookonce.registers where key in ('hookonce: an unfinished copy    ', \
                       'hookonce: the place of a copy   '); commit";
            nodes.batch_execute(end).await.unwrap();
        });
    };
    let copied = copy_while(Unnoticing(Arc::new(from)), to.clone(), finish).await;
    assert!(matches!(copied, Err(CopyError::Overtaken)), "{copied:?}");
    let written = entries(&to).await;
    assert!(written.iter().all(|entry| matches!(entry, CopyEntry::Event(_))), "{written:?}");
    assert_eq!(written.len(), MOVED + 1);
}
