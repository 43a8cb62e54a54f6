//! Failures, panics, disconnects, and a store that does not respond.

use super::flaky::{Flaky, Mood};
use super::{PATIENCE, STORES, Service, behind};
use hookonce::decide::source::Keep;
use hookonce::{Once, seconds};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_not_kept_and_a_repeat_runs_again_unless_failures_are_kept() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::new();
        let client = behind(&service, Once::new(place.store.clone())).await;
        for status in [500, 503, 408, 425, 429] {
            let (key, before) = (format!("{status}"), service.calls());
            service.will_answer(&[status, status]);
            for _ in 0..2 {
                let said = client.post(&key, "b").await;
                assert_eq!((said.status, said.replayed()), (status, false), "{kind:?}");
            }
            assert!(client.post(&key, "b").await.status == 200 && client.post(&key, "b").await.replayed());
            assert_eq!(service.calls() - before, 3, "{kind:?}");
        }
        for status in [200, 204, 303, 400, 404, 409] {
            service.will_answer(&[status]);
            let key = format!("kept-{status}");
            client.post(&key, "b").await;
            let again = client.post(&key, "b").await;
            assert_eq!((again.status, again.replayed()), (status, true), "{kind:?}");
        }
        let client = behind(&service, Once::new(place.store.clone()).scope("all").keep_failures()).await;
        service.will_answer(&[500]);
        client.post("k", "b").await;
        let again = client.post("k", "b").await;
        assert_eq!((again.status, again.replayed()), (500, true));
        let strict = Once::new(place.store.clone()).scope("strict").fails(|status| !status.is_success());
        let client = behind(&service, strict).await;
        service.will_answer(&[404]);
        client.post("k", "b").await;
        assert_eq!(client.post("k", "b").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_waits_and_then_gets_that_the_first_still_runs() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::slow();
        let (wait, lease) = (Duration::from_millis(50), seconds(4));
        let client = behind(&service, Once::new(place.store.clone()).wait(wait).lease(lease)).await;
        let elsewhere = behind(&service, Once::new(place.store.clone()).wait(wait)).await;
        let (begun, first) = (
            Instant::now(),
            tokio::spawn({
                let client = client.clone();
                async move { client.post("k", "b").await }
            }),
        );
        service.entered(1).await;
        // Longer than the lease: it is renewed, so no other request takes it over.
        while begun.elapsed() < lease * 5 / 4 {
            for client in [&client, &elsewhere] {
                let said = client.post("k", "b").await;
                assert_eq!((said.status, &*said.problem()), (409, "running"), "{kind:?}");
                assert_eq!(said.header("retry-after"), Some("5"));
            }
        }
        service.let_go();
        assert_eq!(first.await.unwrap().status, 200);
        assert!(client.post("k", "b").await.replayed() && elsewhere.post("k", "b").await.replayed());
        assert_eq!(service.calls(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_panics_panics_and_the_next_request_runs_at_once() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::new();
        let client = behind(&service, Once::new(place.store.clone())).await;
        service.will_answer(&[0]);
        let broken = client.http.post(format!("{}/act", client.url)).header("idempotency-key", "k").body("b").send();
        assert!(broken.await.is_err(), "the connection ends, as it would without the layer");
        // Well before the lease of 30 s ends.
        let said = tokio::time::timeout(seconds(10), client.post("k", "b")).await.unwrap();
        assert_eq!((said.status, service.calls()), (200, 2), "{kind:?}");
    }
}

/// There is no response to share: the waiting request runs next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_one_that_panics_runs_next() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::slow();
        let client = behind(&service, Once::new(place.store.clone()).wait(PATIENCE)).await;
        service.will_answer(&[0]);
        let url = format!("{}/act", client.url);
        let panics = tokio::spawn(client.http.post(url).header("idempotency-key", "k").body("b").send());
        service.entered(1).await;
        let copies: Vec<_> = (0..20)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.post("k", "b").await })
            })
            .collect();
        service.let_go();
        assert!(panics.await.unwrap().is_err());
        for copy in copies {
            let said = copy.await.unwrap();
            assert_eq!((said.status, &*said.body), (200, "call 2 of nobody: b"), "{kind:?}");
        }
        assert_eq!(service.calls(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_ends_nothing_and_its_response_is_kept() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::slow();
        let client = behind(&service, Once::new(place.store.clone()).wait(PATIENCE)).await;
        let hangs_up = tokio::spawn({
            let client = client.clone();
            async move { client.post("k", "b").await }
        });
        service.entered(1).await;
        hangs_up.abort();
        assert!(hangs_up.await.unwrap_err().is_cancelled());
        service.let_go();
        let said = client.post("k", "b").await;
        assert_eq!((said.replayed(), &*said.body), (true, "call 1 of nobody: b"), "{kind:?}");
        assert_eq!(service.ended.load(Ordering::SeqCst), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_store_is_down_the_service_is_not_called_and_later_it_acts_once() {
    let store = Flaky::new();
    let service = Service::new();
    let client = behind(&service, Once::new(store.clone())).await;
    store.claims.all(Mood::Down);
    for _ in 0..3 {
        let said = client.post("k", "b").await;
        assert_eq!((said.status, &*said.problem()), (503, "unavailable"));
        assert_eq!(said.header("retry-after"), Some("5"));
    }
    assert_eq!(service.calls(), 0);
    store.claims.all(Mood::Fine);
    assert_eq!(client.post("k", "b").await.status, 200);
    store.reads.all(Mood::Down);
    assert_eq!(client.post("k", "b").await.status, 503, "without the store there is no kept response");
    store.reads.all(Mood::Fine);
    assert!(client.post("k", "b").await.replayed());
    assert_eq!(service.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_that_waits_here_needs_no_store_meanwhile() {
    for mood in [Mood::Down, Mood::Hangs] {
        let store = Flaky::new();
        let service = Service::slow();
        let client = behind(&service, Once::new(store.clone()).wait(PATIENCE)).await;
        let post = || {
            let client = client.clone();
            tokio::spawn(async move { client.post("k", "b").await })
        };
        let first = post();
        service.entered(1).await;
        store.reads.all(mood);
        let asked = store.reads.asked.load(Ordering::SeqCst);
        let second = post();
        super::support::until("the store is asked", || store.reads.asked.load(Ordering::SeqCst) > asked).await;
        service.let_go();
        assert_eq!(first.await.unwrap().status, 200);
        let second = second.await.unwrap();
        assert!(second.status == 200 && second.replayed(), "{mood:?}: {second:?}");
        assert_eq!(service.calls(), 1, "{mood:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_that_waited_here_long_enough_is_told_so_also_if_the_store_is_down() {
    for mood in [Mood::Down, Mood::Hangs] {
        let store = Flaky::new();
        let service = Service::slow();
        let client = behind(&service, Once::new(store.clone()).wait(Duration::from_millis(50))).await;
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.post("k", "b").await }
        });
        service.entered(1).await;
        store.reads.all(mood);
        let said = client.post("k", "b").await;
        assert_eq!((said.status, &*said.problem()), (409, "running"), "{mood:?}");
        service.let_go();
        assert_eq!(first.await.unwrap().status, 200);
    }
}

/// A subscriber of the service's own. It keeps the target, the message and the fields of each event, and of each span that
/// has ended the names of the spans around it and its fields.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

/// The fields of a span.
struct Fields(String);

impl Seen {
    async fn until(&self, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !self.0.lock().unwrap().iter().any(|line| wanted(line)) {
            assert!(begun.elapsed() < PATIENCE, "{:#?}", self.0.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut line = format!("{} {}", event.metadata().target(), event.metadata().level());
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            let _ = write!(line, " {}={value:?}", field.name());
        });
        self.0.lock().unwrap().push(line);
    }

    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        context.span(id).unwrap().extensions_mut().insert(Fields(String::new()));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut extensions = span.extensions_mut();
        let Fields(line) = extensions.get_mut().unwrap();
        values.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            let _ = write!(line, " {}={value:?}", field.name());
        });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let names: Vec<_> = span.scope().from_root().map(|span| span.name()).collect();
        let Fields(fields) = span.extensions_mut().remove().unwrap();
        self.0.lock().unwrap().push(format!("{}{fields}", names.join(">")));
    }
}

#[tokio::test]
async fn a_service_gets_spans_and_store_errors_in_its_own_subscriber() {
    let seen = Seen::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(seen.clone())).unwrap();
    let store = Flaky::new();
    let once = Once::new(store.clone()).scope("seen");
    let client = behind(&Service::new(), once.clone()).await;
    store.claims.all(Mood::Down);
    assert_eq!(client.post("k", "b").await.status, 503);
    seen.until(|line| line.starts_with("hookonce ERROR message=store why=")).await;
    let receive = |verdict: &str| format!("receive hookonce.source=\"seen\" hookonce.verdict=\"{verdict}\"");
    seen.until(|line| line == receive("unavailable")).await;
    store.claims.all(Mood::Fine);
    assert_eq!(client.post("k", "b").await.status, 200);
    assert!(client.post("k", "b").await.replayed());
    for verdict in ["accepted", "duplicate"] {
        seen.until(|line| line.starts_with(&format!("{} hookonce.event=", receive(verdict)))).await;
    }
    seen.until(|line| line == "receive>claim").await;
    let attempt = |line: &str, around: &str, outcome: &str| {
        let begins = format!("{around}>attempt hookonce.event=");
        let ends = format!(" hookonce.outcome=\"{outcome}\"");
        line.starts_with(&begins) && line.contains(" hookonce.source=\"seen\" ") && line.contains(&ends)
    };
    seen.until(|line| attempt(line, "receive", "delivered")).await;
    let work = async { Err::<(), _>(std::io::Error::other("no")) };
    let ran = once.run("job", work).instrument(tracing::info_span!("job")).await;
    assert!(ran.is_err());
    seen.until(|line| line == "job>claim").await;
    seen.until(|line| attempt(line, "job", "failed")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_response_of_the_store_changes_nothing() {
    for mood in [Mood::Written, Mood::NotWritten] {
        let store = Flaky::new();
        let service = Service::new();
        let client = behind(&service, Once::new(store.clone())).await;
        store.claims.once(&[mood]);
        store.advances.once(&[mood]);
        assert_eq!(client.post("k", "b").await.status, 200, "{mood:?}");
        assert!(client.post("k", "b").await.replayed(), "{mood:?}");
        assert_eq!(service.calls(), 1, "{mood:?}");
    }
}

/// The service has acted, but the store is down: no client gets the response before it is stored, and no request acts
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_retried_until_the_store_accepts_it() {
    let store = Flaky::new();
    let service = Service::new();
    let once = Once::new(store.clone()).lease(Duration::from_millis(200)).wait(Duration::from_millis(20));
    let client = behind(&service, once).await;
    store.advances.all(Mood::Down);
    assert_eq!(client.post("k", "b").await.status, 503);
    // The lease has long expired, but this process still knows that it has the result.
    assert_eq!(client.post("k", "b").await.status, 409);
    store.advances.all(Mood::Fine);
    let said = tokio::time::timeout(PATIENCE, async {
        loop {
            let said = client.post("k", "b").await;
            if said.status != 409 {
                return said;
            }
        }
    });
    let said = said.await.unwrap();
    assert_eq!((said.status, said.replayed(), service.calls()), (200, true, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_lease_cannot_be_renewed_is_ended_with_it() {
    let store = Flaky::new();
    let service = Service::slow();
    let client = behind(&service, Once::new(store.clone()).lease(Duration::from_millis(300))).await;
    store.advances.all(Mood::Down);
    assert_eq!(client.post("k", "b").await.status, 503);
    assert_eq!(service.ended.load(Ordering::SeqCst), 0, "it was dropped while it waited");
    store.advances.all(Mood::Fine);
    service.let_go();
    let said = client.post("k", "b").await;
    assert_eq!((said.status, service.calls()), (200, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_ends_the_service_with_its_lease() {
    let store = Flaky::new();
    let service = Service::slow();
    let client = behind(&service, Once::new(store.clone()).lease(Duration::from_millis(300))).await;
    store.advances.all(Mood::Hangs);
    let said =
        tokio::time::timeout(PATIENCE, client.post("k", "b")).await.expect("the request waits for the store for ever");
    assert_eq!((said.status, service.ended.load(Ordering::SeqCst)), (503, 0));
    store.advances.all(Mood::Fine);
    service.let_go();
    let said = client.post("k", "b").await;
    assert_eq!((said.status, service.calls()), (200, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlimited_durations_are_clamped() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::slow();
        let (ever, never) = (Duration::MAX, Duration::ZERO);
        let once = Once::new(place.store.clone()).keep(ever).keep_body(ever).lease(ever).wait(ever);
        let client = behind(&service, once.clone()).await;
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.post("k", "b").await }
        });
        service.entered(1).await;
        let second = tokio::spawn({
            let client = client.clone();
            async move { client.post("k", "b").await }
        });
        let hasty = behind(&service, Once::new(place.store.clone()).wait(never)).await;
        assert_eq!(hasty.post("k", "b").await.status, 409, "{kind:?}");
        service.let_go();
        assert_eq!((first.await.unwrap().status, second.await.unwrap().status), (200, 200), "{kind:?}");
        assert_eq!(once.forget().await.unwrap().events, 0, "{kind:?}");
        assert!(client.post("k", "b").await.replayed(), "{kind:?}");
        assert_eq!(service.calls(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_is_in_the_store_from_the_first_request_on() {
    for kind in STORES {
        let place = kind.fresh().await;
        let service = Service::new();
        let client = behind(&service, Once::new(place.store.clone()).scope("mine").keep(seconds(7))).await;
        assert_eq!(client.post("k", "b").await.status, 200, "{kind:?}");
        let begun = Instant::now();
        loop {
            let rows = place.store.retention().await.unwrap();
            if rows.iter().any(|row| *row.source == *"mine" && row.kept.keys == Keep::For(seconds(7))) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE.min(seconds(30)), "{kind:?}: {rows:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
