//! A closed loop of requests through the batcher, as the gateway makes them, and the processor time that it costs.

use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::decide::event::{Event, EventStep, Outcome, SucceededBlocks};
use hookonce::decide::id::NodeId;
use hookonce::decide::retry::Jitter;
use hookonce::decide::source::{Retention, Route};
use hookonce::store::batch::Batcher;
use hookonce::store::conformance::making;
use hookonce::store::{AdvanceResult, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Requests in flight.
const REQUESTS: usize = 32;
/// What a clock tick of `/proc` is, in microseconds.
const TICK: f64 = 10_000.0;

/// What becomes of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It is only recorded, and its body is not kept.
    Recorded,
    /// The same with its body, of 10 KB.
    WithBody,
    /// It is running once it is claimed, and then settled: a claim and a transition.
    Acted,
}

/// The cost of one request.
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    pub(crate) ours: f64,
    pub(crate) servers: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

fn event(store: &dyn Store, kind: Kind, n: usize) -> NewEvent {
    let body = include_str!("../../tests/payloads/ghcr_latest.json");
    // Ids as senders make them, in no order.
    let id = (n as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let made = making().delivery(&format!("{id:032x}")).named(&n.to_string());
    let bare = Retention { body: hookonce::decide::time::Duration::ZERO, ..Retention::default() };
    match kind {
        Kind::Recorded => made.recorded().kept(bare).made(store.now()),
        Kind::WithBody => made.recorded().carrying(format!("{{\"n\":{n},{}", &body[1..])).made(store.now()),
        Kind::Acted => {
            let mut new = made.made(store.now());
            new.event.start_at_claim(
                hookonce::decide::time::Duration::from_mins(5),
                NodeId("n".into()),
                ActionKind::Run,
            );
            new
        }
    }
}

fn settled(event: &Event, store: &dyn Store) -> hookonce::decide::transition::Transition {
    let outcome = Outcome::Delivered(None);
    let step = EventStep::Settle { outcome, blocks: SucceededBlocks(0), jitter: Jitter(0) };
    event.transition(step, &Route::default(), store.now()).unwrap()
}

/// Runs `many` requests, counted from `from`; `servers` says how many microseconds the server has used.
pub(crate) async fn run(
    store: &Arc<dyn Store>,
    batch: &Batcher,
    kind: Kind,
    from: usize,
    many: usize,
    servers: impl Fn() -> f64,
) -> Cost {
    let mut prepared: Vec<Vec<Arc<NewEvent>>> = (0..REQUESTS).map(|_| Vec::new()).collect();
    for n in 0..many {
        prepared[n % REQUESTS].push(Arc::new(event(&**store, kind, from + n)));
    }
    let new = Arc::new(AtomicUsize::new(0));
    let (begun, ours, theirs) = (Instant::now(), processor_time("self"), servers());
    let mut tasks = JoinSet::new();
    for requests in prepared {
        let (store, batch, new) = (store.clone(), batch.clone(), new.clone());
        tasks.spawn(async move {
            let mut took = Vec::with_capacity(requests.len());
            for request in requests {
                let begun = Instant::now();
                let (tell, told) = oneshot::channel();
                let claim =
                    batch.claim(request, Box::new(|event| tell.send(event.clone()).unwrap_or_default())).await.unwrap();
                assert!(matches!(claim, ClaimResult::New { .. }));
                if kind == Kind::Acted {
                    let change = settled(&told.await.unwrap(), &*store);
                    assert!(matches!(batch.advance(change).await.unwrap(), AdvanceResult::Written { .. }));
                }
                new.fetch_add(1, Ordering::Relaxed);
                took.push(begun.elapsed());
            }
            took
        });
    }
    let mut took: Vec<Duration> = tasks.join_all().await.concat();
    took.sort();
    assert_eq!(new.load(Ordering::Relaxed), many);
    let all = many as f64;
    Cost {
        per_second: all / begun.elapsed().as_secs_f64(),
        ours: (processor_time("self") - ours) / all,
        servers: (servers() - theirs) / all,
        p50_ms: took[took.len() / 2].as_secs_f64() * 1e3,
        p99_ms: took[took.len() * 99 / 100].as_secs_f64() * 1e3,
    }
}

/// The processor time of this process, in microseconds.
pub(crate) fn processor_time(pid: &str) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    fields(&stat)[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() * TICK).sum()
}

/// The same of the children of a process, with those that have ended.
#[allow(dead_code, reason = "each bench uses a part of it")]
pub(crate) fn processor_time_of_children(parent: &str) -> f64 {
    let ended: f64 = std::fs::read_to_string(format!("/proc/{parent}/stat"))
        .map_or(0.0, |stat| fields(&stat)[13..15].iter().map(|ticks| ticks.parse::<f64>().unwrap() * TICK).sum());
    let is_child = |pid: &String| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| fields(&stat)[1] == parent)
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    ended + all.filter(|name| name.parse::<u32>().is_ok()).filter(is_child).map(|pid| processor_time(&pid)).sum::<f64>()
}

/// The fields after the name of the program, which may have spaces in it; the first is the state.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').unwrap().1.split_whitespace().collect()
}
