//! Senders under load: they send, repeat, and record every 2xx.

use crate::promises::{Delivered, SOURCES};
use crate::seed::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Percentage of deliveries that repeat an earlier one.
const REPEATS: u64 = 20;

/// Running senders.
pub(crate) struct Load {
    shared: Arc<Shared>,
    senders: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The URL of the running node.
    to: Mutex<String>,
    stop: AtomicBool,
    numbers: AtomicU64,
    sent: AtomicU64,
    acked: Mutex<Vec<Delivered>>,
    odd: Mutex<Vec<String>>,
}

/// The result of a load.
pub(crate) struct Sent {
    pub(crate) acked: Vec<Delivered>,
    pub(crate) sent: u64,
}

impl Load {
    /// Starts this many senders, each with a pause of up to `pause` milliseconds between two deliveries.
    pub(crate) fn start(senders: usize, pause: u64, random: &mut Random) -> Self {
        let shared = Arc::<Shared>::default();
        let senders = (0..senders).map(|_| tokio::spawn(send(shared.clone(), pause, random.split()))).collect();
        Self { shared, senders }
    }

    /// Sends to this URL from now on.
    pub(crate) fn aim(&self, at: String) {
        *self.shared.to.lock().unwrap() = at;
    }

    /// Stops, once all requests in progress have been answered or have failed.
    pub(crate) async fn stop(self) -> Sent {
        self.shared.stop.store(true, Ordering::Relaxed);
        for sender in self.senders {
            sender.await.unwrap();
        }
        let odd = std::mem::take(&mut *self.shared.odd.lock().unwrap());
        assert!(odd.is_empty(), "responses that are neither 2xx nor 503: {odd:?}");
        let acked = std::mem::take(&mut *self.shared.acked.lock().unwrap());
        Sent { acked, sent: self.shared.sent.load(Ordering::Relaxed) }
    }
}

async fn send(shared: Arc<Shared>, pause: u64, mut random: Random) {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
    let mut earlier: Vec<Delivered> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(random.millis(0, pause)).await;
        let to = shared.to.lock().unwrap().clone();
        if to.is_empty() {
            continue;
        }
        let repeats = !earlier.is_empty() && random.below(100) < REPEATS;
        let one = if repeats {
            // Mostly a recent one: that one may still be in progress, or its response was lost with the node.
            let back = random.below(earlier.len().min(10) as u64);
            earlier[earlier.len() - 1 - usize::try_from(back).unwrap()].clone()
        } else {
            let source = match random.below(10) {
                0 | 1 => SOURCES[0],
                2 | 3 => SOURCES[1],
                4..=6 => SOURCES[2],
                _ => SOURCES[3],
            };
            let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
            Delivered { source, number, event: String::new() }
        };
        shared.sent.fetch_add(1, Ordering::Relaxed);
        if let Some(event) = deliver(&client, &to, &one, &shared.odd).await {
            shared.acked.lock().unwrap().push(Delivered { event, ..one.clone() });
        }
        if !repeats {
            earlier.push(one);
        }
    }
}

/// Sends a delivery; the event if the response was 2xx.
pub(crate) async fn deliver(
    client: &reqwest::Client,
    to: &str,
    one: &Delivered,
    odd: &Mutex<Vec<String>>,
) -> Option<String> {
    let request = client.post(format!("{to}/{}", one.source)).body(one.body());
    let id = format!("{}-{}", one.source, one.number);
    let answer = request.header("x-id", id).header("content-type", "application/json").send().await.ok()?;
    let status = answer.status();
    // A response counts from its first line: a sender needs no more.
    let event = answer.headers().get("hookonce-event").map(|event| event.to_str().unwrap().to_owned());
    if !status.is_success() {
        if status.as_u16() != 503 {
            odd.lock().unwrap().push(format!("{one:?}: {status}"));
        }
        return None;
    }
    Some(event.unwrap_or_else(|| panic!("{one:?} was answered {status} without its event")))
}
