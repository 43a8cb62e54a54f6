//! A NATS stream as a source: its messages take the same walk as any delivery, and are acknowledged.
//!
//! ```text
//! pull ─▶ StreamMessage ─▶ Gateway::receive_delivery ─┬▶ claimed, duplicate, stale, ignored ─▶ ack, or wait for its end
//!   ▲ bounded  │ can never be read                      ├▶ refused ──▶ quarantine ─▶ term
//!   └─ permits └▶ quarantine ─▶ term                    └▶ unavailable ─────────────▶ nak, later
//! ```
//!
//! All nodes share one durable consumer, and the stream gives each message to one of them. A message that is not
//! acknowledged comes again; the claim makes that harmless. While handling takes long, the stream is sent "in
//! progress". Nothing is ever dropped: a message that cannot be accepted is in quarantine before it is acknowledged.

use super::http::CurrentIngest;
use super::nats_consumer;
pub(crate) use super::nats_consumer::check_consumer;
use super::request_body::BodiesInFlight;
use crate::action::publish::{NatsConnection, NatsConnections, round_trip};
use crate::config::{AckTiming, Config, StreamPlan};
use crate::decide::delivery::borrow_headers;
use crate::decide::envelope::EnvelopeFormat;
use crate::decide::event::EventState;
use crate::decide::id::EventId;
use crate::decide::identity::key;
use crate::decide::source::Source;
use crate::decide::time::Duration;
use crate::decide::{envelope, limits};
use crate::engine::dispatcher::Dispatcher;
use crate::engine::gateway::DeliveryClient;
use crate::observe::log;
use crate::store::Store;
use crate::store::inspect::{QuarantinedMessage, head};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use futures_util::StreamExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

/// How long the stream holds a pull request for which it has no message.
const PULL_TIME: Duration = Duration::from_secs(5);
/// How long to wait for a connection before that is logged.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The delay before a failed stream is retried; it doubles.
const AGAIN: Duration = Duration::from_millis(500);
/// Upper limit of that delay.
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// How long a stopping node waits for messages that were already sent to it.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How long the server may take to receive the last acknowledgements.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How often a message that waits for its event checks whether the node is stopping.
const END_LOOK: Duration = Duration::from_millis(500);

/// What a stream consumer needs.
#[derive(Clone)]
pub(crate) struct ConsumerContext {
    /// The sources and the gateway that handles deliveries, as configured now.
    pub port: CurrentIngest,
    /// The dispatcher, which knows how events end.
    pub dispatcher: Dispatcher,
    /// The store of events and quarantined messages.
    pub store: Arc<dyn Store>,
    /// The memory budget for bodies.
    pub flight: Arc<BodiesInFlight>,
    /// The node is about to stop, or consumes this stream no more.
    pub draining: CancellationToken,
}

/// A stream to consume.
pub(crate) struct StreamIntake {
    /// The name of its source.
    pub source: Arc<str>,
    /// Which stream, and how.
    pub plan: StreamPlan,
    server: Arc<NatsConnection>,
}

impl StreamIntake {
    /// Every stream of the config. An error is a sentence.
    pub(crate) fn all(config: &Config, servers: &NatsConnections) -> Result<Vec<Self>, String> {
        let streams = config.sources.iter().filter_map(|source| Some((source, config.streams.get(&source.name)?)));
        let one = |(source, plan): (&Arc<Source>, &StreamPlan)| {
            let server = servers.connection(&plan.server);
            let server = server.map_err(|cannot| format!("source {}: {cannot}", source.name))?;
            Ok(Self { source: source.name.clone(), plan: plan.clone(), server })
        };
        streams.map(one).collect()
    }

    /// Consumes the stream until the node drains and its messages are acknowledged.
    pub(crate) fn start(self, hall: ConsumerContext) -> JoinHandle<()> {
        let taker = StreamConsumer {
            source: self.source,
            plan: self.plan,
            server: self.server,
            hall,
            in_flight: Arc::new(Semaphore::new(limits::MESSAGES_AT_ONCE)),
            quarantined: AtomicU64::new(0),
            closed: CancellationToken::new(),
        };
        tokio::spawn(Arc::new(taker).run())
    }
}

/// Consumes the messages of one stream.
struct StreamConsumer {
    source: Arc<str>,
    plan: StreamPlan,
    server: Arc<NatsConnection>,
    hall: ConsumerContext,
    /// One permit for each message handled at once.
    in_flight: Arc<Semaphore>,
    quarantined: AtomicU64,
    /// The node is stopping, and the stream knows that none of our pull requests is open any more.
    closed: CancellationToken,
}

/// How a message is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckDecision {
    /// Acknowledge it: it was accepted.
    Taken,
    /// End it: it must not be redelivered, and an operator can see it.
    Never,
    /// Have it redelivered later.
    Later,
}

impl StreamConsumer {
    async fn run(self: Arc<Self>) {
        let tasks = TaskTracker::new();
        let (mut wait, mut said) = (AGAIN, String::new());
        while !self.hall.draining.is_cancelled() {
            let Err(why) = self.take(&tasks).await else { break };
            // The same error is logged once, until it is over.
            if why == said {
                wait = (wait * 2).min(AGAIN_MAX);
            } else {
                self.warn(&why);
                (wait, said) = (AGAIN, why);
            }
            self.hall.draining.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        self.closed.cancel();
        tasks.close();
        tasks.wait().await;
        // The last acknowledgements are on their way: if the process exited now, they could be lost.
        if let Ok(client) = self.server.connected(Duration::ZERO).await {
            timeout(LAST_ANSWERS, round_trip(&client)).await.ok();
        }
    }

    fn warn(&self, why: &str) {
        warn!(target: "hookonce", source = &*self.source, stream = &*self.plan.name, why, "stream");
    }

    /// Consumes messages until the node drains; an error says why it could not go on.
    async fn take(self: &Arc<Self>, tasks: &TaskTracker) -> Result<(), String> {
        let draining = &self.hall.draining;
        let Some(client) = draining.run_until_cancelled(self.server.connected(CONNECT_TIME)).await else {
            return Ok(());
        };
        let client = client?;
        let Some(found) = draining.run_until_cancelled(nats_consumer::consumer(&client, &self.plan)).await else {
            return Ok(());
        };
        let found = found?;
        for why in nats_consumer::consumer_warnings(&client, &self.plan, &found) {
            self.warn(&why);
        }
        let (source, stream, consumer) = (&*self.source, &*self.plan.name, &*self.plan.consumer);
        info!(target: "hookonce", source, stream, consumer, "taking");
        // A pull never brings more than fits into the body budget.
        let most = (limits::BODIES_IN_FLIGHT_BYTES / client.max_payload().max(1)).max(1);
        while let Some(Ok(first)) = draining.run_until_cancelled(self.in_flight.clone().acquire_owned()).await {
            let others = std::iter::from_fn(|| self.in_flight.clone().try_acquire_owned().ok());
            let free = std::iter::once(first).chain(others).take(most).collect();
            self.pull(&found.consumer, free, tasks).await?;
        }
        Ok(())
    }

    /// One pull: a message for each free permit, or as many as arrive in its time.
    async fn pull(
        self: &Arc<Self>,
        consumer: &PullConsumer,
        mut free: Vec<OwnedSemaphorePermit>,
        tasks: &TaskTracker,
    ) -> Result<(), String> {
        let broken = self.server.disconnected();
        tokio::pin!(broken);
        let pull = consumer.batch().max_messages(free.len()).expires(PULL_TIME).messages();
        let mut messages = pull.await.map_err(|error| format!("cannot consume messages: {error}"))?;
        let patience = consumer.cached_info().config.ack_wait / 3;
        loop {
            let next = tokio::select! {
                biased;
                next = messages.next() => next,
                () = self.hall.draining.cancelled() => break,
                () = &mut broken => return Err("the connection broke".into()),
            };
            match (next, free.pop()) {
                (Some(Ok(message)), Some(hand)) => {
                    tasks.spawn(self.clone().process_and_ack(message, patience, hand));
                }
                (Some(Err(error)), _) => return Err(format!("cannot consume messages: {error}")),
                (None, _) | (_, None) => return Ok(()),
            }
        }
        // Messages that are already on their way to us are for another node, at once: but not before the stream has
        // forgotten this pull request, or they come to us again.
        let mut back = Vec::new();
        while let Ok(Some(Ok(message))) = timeout(LAST_LOOK, messages.next()).await {
            back.push(message);
        }
        drop(messages);
        self.flush_pull_requests(consumer).await;
        for message in back {
            self.ack(&message, AckKind::Nak(None)).await;
        }
        Ok(())
    }

    /// Makes the server drop pull requests that no client waits for. It does so when it counts them, which it does when
    /// asked for information about the consumer. A server before 2.10 that has a message for such a pull request takes
    /// it off its list of messages to redeliver, finds no client, and remembers the message only after its `ack_wait`.
    async fn flush_pull_requests(&self, consumer: &PullConsumer) {
        match timeout(LAST_ANSWERS, consumer.get_info()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.warn(&format!("the consumer cannot be queried: {error}")),
            Err(_) => self.warn("the server does not respond"),
        }
    }

    /// Handles one message, and acknowledges it accordingly.
    async fn process_and_ack(self: Arc<Self>, message: Message, patience: Duration, hand: OwnedSemaphorePermit) {
        let mut fate = Box::pin(self.process(&message));
        let fate = loop {
            tokio::select! {
                fate = &mut fate => break fate,
                () = tokio::time::sleep(patience) => self.ack(&message, AckKind::Progress).await,
            }
        };
        let told = match fate {
            AckDecision::Taken => AckKind::Ack,
            AckDecision::Never => AckKind::Term,
            AckDecision::Later if self.hall.draining.is_cancelled() => {
                self.closed.cancelled().await;
                AckKind::Nak(None)
            }
            AckDecision::Later => AckKind::Nak(Some(redelivery_delay(message.info().map_or(1, |info| info.delivered)))),
        };
        self.ack(&message, told).await;
        drop(hand);
    }

    /// Sends an acknowledgement. If it is lost, the message comes again.
    async fn ack(&self, message: &Message, what: AckKind) {
        if let Err(error) = message.ack_with(what).await {
            self.warn(&format!("a message could not be acknowledged: {error}"));
        }
    }

    async fn process(&self, message: &Message) -> AckDecision {
        let port = self.hall.port.get();
        let Some(source) = port.sources.named(&self.source) else { return AckDecision::Later };
        let letter = match StreamMessage::open(message, self.plan.envelope, source.body_max) {
            Ok(letter) => letter,
            Err(why) => return self.quarantine(message, &why).await,
        };
        let Ok(body) = self.hall.flight.hold(&letter.body) else { return AckDecision::Later };
        let (path, headers) = ((message.subject.as_str(), ""), borrow_headers(&letter.headers));
        let received = port.gateway.receive_delivery(source, path, &headers, body, DeliveryClient::default()).await;
        match (received.response.status, received.response.word) {
            (500.., _) => AckDecision::Later,
            (_, "refused") => self.quarantine(message, &received.refusal()).await,
            _ if self.plan.ack == AckTiming::Claimed => AckDecision::Taken,
            _ => self.wait_until_ended(&received.events).await,
        }
    }

    /// Waits until these events have ended. A dead event has ended too: it is in the store, and an operator decides
    /// about it.
    async fn wait_until_ended(&self, events: &[EventId]) -> AckDecision {
        let mut fate = AckDecision::Taken;
        for id in events {
            loop {
                match self.hall.dispatcher.wait_for_end(*id, END_LOOK).await.map(|event| event.map(|event| event.state))
                {
                    Ok(Some(EventState::Dead { .. })) => {
                        fate = AckDecision::Never;
                        break;
                    }
                    Ok(Some(EventState::Done { .. }) | None) => break,
                    // A waiting event may wait for long, and another node may continue it.
                    Ok(Some(EventState::Waiting { .. })) if self.hall.draining.is_cancelled() => {
                        return AckDecision::Later;
                    }
                    Ok(Some(EventState::Waiting { .. } | EventState::Running { .. })) => {}
                    Err(_) => return AckDecision::Later,
                }
            }
        }
        fate
    }

    /// Puts a message that can never become an event into quarantine; until it is there, it is redelivered.
    async fn quarantine(&self, message: &Message, why: &str) -> AckDecision {
        let name = name(message);
        let one = QuarantinedMessage {
            source: self.source.clone(),
            message: name.clone(),
            subject: message.subject.to_string(),
            at: self.hall.store.now(),
            why: why.to_owned(),
            bytes: message.payload.len() as u64,
            head: head(&message.payload),
        };
        if let Err(error) = self.hall.store.quarantine(one).await {
            let (why, source) = (error.to_string(), &*self.source);
            log::rate_limited("store", &why, |times| error!(target: "hookonce", why, source, times, "store"));
            return AckDecision::Later;
        }
        let count = self.quarantined.fetch_add(1, Ordering::Relaxed) + 1;
        let (source, stream) = (&*self.source, &*self.plan.name);
        warn!(target: "hookonce", source, stream, message_id = name, why, count, "quarantined");
        AckDecision::Never
    }
}

/// The redelivery delay of a message that has been delivered this often.
fn redelivery_delay(delivered: i64) -> Duration {
    let times = u32::try_from(delivered.saturating_sub(1).max(0)).unwrap_or(u32::MAX);
    let doubled = Duration::from_secs(1).saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX));
    doubled.min(limits::MESSAGE_AGAIN_MAX)
}

/// A decoded message.
pub(super) struct StreamMessage {
    /// Names in lower case; with headers for the message's position in its stream.
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// The body of the original delivery.
    pub(super) body: Bytes,
}

impl StreamMessage {
    /// Decodes a message; an error says why that will never be possible.
    pub(super) fn open(message: &Message, envelope: EnvelopeFormat, body_max: usize) -> Result<Self, String> {
        let info = message.info().map_err(|error| format!("it is not a message of a stream: {error}"))?;
        let mut headers = carried(message)?;
        let body = match envelope {
            EnvelopeFormat::Raw => message.payload.clone(),
            EnvelopeFormat::Patchwork => {
                let opened = envelope::open_patchwork(&message.payload)?;
                let inside = [
                    (envelope::DELIVERY_HEADER, opened.delivery_id.as_str()),
                    (envelope::KIND_HEADER, opened.event.as_str()),
                    ("content-type", "application/json"),
                ];
                headers.retain(|(name, _)| inside.iter().all(|(inside, _)| inside != name));
                headers.extend(inside.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())));
                opened.body
            }
        };
        if body.len() > body_max {
            return Err(format!("its body has {} bytes, and at most {body_max} are accepted (body_max)", body.len()));
        }
        let stored = info.published.unix_timestamp_nanos();
        headers.extend(key::stream_headers(info.stream, stored, info.stream_sequence));
        Ok(Self { headers, body })
    }
}

/// The name of a message for operators and the quarantine: its stream, its sequence number, and when it was stored.
pub(super) fn name(message: &Message) -> String {
    match message.info() {
        Ok(info) => format!("{}:{}@{}", info.stream, info.stream_sequence, info.published.unix_timestamp_nanos()),
        Err(_) => "unknown".into(),
    }
}

/// The headers of a message, within the limits of a request.
fn carried(message: &Message) -> Result<Vec<(String, Vec<u8>)>, String> {
    let all = message.headers.iter().flat_map(|headers| headers.iter());
    let headers: Vec<_> = all
        .flat_map(|(name, values)| {
            let name = name.to_string().to_ascii_lowercase();
            values.iter().map(move |value| (name.clone(), value.as_str().as_bytes().to_vec()))
        })
        .collect();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > limits::HEADERS_MAX || bytes > limits::HEADER_BYTES_MAX {
        return Err(format!("it has {} headers with {bytes} bytes: more than a delivery may have", headers.len()));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_could_not_be_accepted_waits_longer_each_time() {
        let seconds: Vec<_> = [0, 1, 2, 3, 7, 100, i64::MAX].map(|n| redelivery_delay(n).as_secs()).into();
        assert_eq!(seconds, [1, 1, 2, 4, 60, 60, 60]);
    }
}
