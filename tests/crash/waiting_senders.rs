//! Senders that wait for the end of their event, while the store cannot be read: the end of an attempt of this process
//! and its receipt come from the write, not from a look at the store.

use crate::flaky_store::{Flaky, Mood, route};
use crate::support::{PATIENCE, until};
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::event::{Outcome, Receipt};
use hookonce::decide::ingest_path::IngestPath;
use hookonce::decide::source::{DeduplicationPolicy, Identity, InDoubtPolicy, ResponseMode, Source, Sources};
use hookonce::decide::time::Duration;
use hookonce::decide::verify::VerificationScheme;
use hookonce::internals::action::{Action, ActionFuture, Attempt};
use hookonce::internals::engine::{Dispatcher, Gateway, Lane};
use hookonce::internals::ingress::{BodiesInFlight, ConnectionLimits, IngestState, Readiness, accept};
use hookonce::store::Store;
use hookonce::store::batch::Batcher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A receiver that responds when the test lets it.
struct HeldReceiver {
    begun: AtomicUsize,
    go_on: Semaphore,
}

impl Action for HeldReceiver {
    fn act<'a>(&'a self, _: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(async move {
            let number = self.begun.fetch_add(1, Ordering::SeqCst);
            self.go_on.acquire().await.unwrap().forget();
            let body = format!("response {number} of the receiver").into_bytes();
            Outcome::Delivered(Some(Receipt { status: 200, headers: Vec::new(), body, truncated: false }))
        })
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Forward
    }
}

/// A node on this store whose senders wait; returns its URL.
async fn serve(store: &Flaky, receiver: Arc<HeldReceiver>) -> String {
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let batch = Batcher::start(shared.clone(), Arc::default());
    let route = Arc::new(route(Duration::from_mins(1), InDoubtPolicy::Retry, 4));
    let source = Arc::new(Source {
        path: IngestPath::open("/in"),
        once: DeduplicationPolicy { per: vec![Identity::Body], ..DeduplicationPolicy::default() },
        respond: ResponseMode::WhenDone { within: Duration::from_mins(1) },
        body_max: 1 << 20,
        routes: vec![route.clone()],
        ..Source::new("source", VerificationScheme::none())
    });
    let lane = Lane::new(source.clone(), route, Some(receiver));
    let dispatcher = Dispatcher::new(shared.clone(), batch.clone(), vec![lane], Arc::default());
    dispatcher.run();
    let ingest = Arc::new(IngestState {
        sources: Arc::new(Sources::new([source])),
        health: Readiness::new(CancellationToken::new(), shared.clone(), &batch),
        gateway: Gateway::new(shared, batch, dispatcher, Arc::default()),
        flight: Arc::new(BodiesInFlight::default()),
        clients: Arc::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let answer = move |request, peer| ingest.clone().answer(request, peer);
    tokio::spawn(accept::serve_with_peers(listener, answer, ConnectionLimits::default(), CancellationToken::new()));
    url
}

async fn post(url: &str, body: &'static str) -> (u16, String) {
    let answer = reqwest::Client::new().post(url).body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_sender_and_its_repeats_get_the_response_of_an_attempt_of_this_process_without_a_look_at_the_store() {
    let store = Flaky::new();
    let receiver = Arc::new(HeldReceiver { begun: AtomicUsize::new(0), go_on: Semaphore::new(0) });
    let url = serve(&store, receiver.clone()).await;
    store.reads.all(Mood::Hangs);
    let first = tokio::spawn({
        let url = url.clone();
        async move { post(&url, "{}").await }
    });
    until("the receiver is called", || receiver.begun.load(Ordering::SeqCst) == 1).await;
    let repeat = tokio::spawn(async move { post(&url, "{}").await });
    // Each of them looks once, and that look never ends.
    until("both wait", || store.reads.asked.load(Ordering::SeqCst) == 2).await;
    receiver.go_on.add_permits(1);
    let (first, repeat) = timeout(PATIENCE, async { (first.await.unwrap(), repeat.await.unwrap()) }).await.unwrap();
    assert_eq!(first, (200, "response 0 of the receiver".to_owned()));
    assert_eq!(repeat, first);
    assert_eq!(receiver.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_sender_whose_event_another_node_ends_gets_what_is_in_the_store() {
    let store = Flaky::new();
    let receivers = [0, 1].map(|_| Arc::new(HeldReceiver { begun: AtomicUsize::new(0), go_on: Semaphore::new(0) }));
    let one = serve(&store, receivers[0].clone()).await;
    let other = serve(&store, receivers[1].clone()).await;
    let first = tokio::spawn(async move { post(&one, "{}").await });
    until("the receiver is called", || receivers[0].begun.load(Ordering::SeqCst) == 1).await;
    let repeat = tokio::spawn(async move { post(&other, "{}").await });
    until("the repeat waits", || store.reads.asked.load(Ordering::SeqCst) > 0).await;
    receivers[0].go_on.add_permits(1);
    let (first, repeat) = timeout(PATIENCE, async { (first.await.unwrap(), repeat.await.unwrap()) }).await.unwrap();
    assert_eq!(first, (200, "response 0 of the receiver".to_owned()));
    assert_eq!(repeat, first);
    assert_eq!(receivers[1].begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_attempt_that_ends_while_nothing_waits_does_not_make_its_node_look_for_due_events() {
    let store = Flaky::new();
    let receiver = Arc::new(HeldReceiver { begun: AtomicUsize::new(0), go_on: Semaphore::new(1_000) });
    let url = serve(&store, receiver.clone()).await;
    let client = reqwest::Client::new();
    for number in 0..100 {
        let answer = client.post(&url).body(format!("[{number}]")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }
    assert_eq!(receiver.begun.load(Ordering::SeqCst), 100);
    // It looks by itself once a second.
    let looks = store.looks.load(Ordering::SeqCst);
    assert!(looks < 50, "{looks} looks for 100 attempts");
}
