//! Receives deliveries: judges, claims, responds.

use super::dispatcher::{Dispatcher, EndWaiter, Lane, LaneTable, WrittenEnd};
use super::handover::Handovers;
use super::received::{DeliveryObserver, Received, ReceivedEvent};
use crate::action::boottime;
use crate::decide::claim::{self, ClaimResult, MatchedBy, NewEvent, RepeatEffect};
use crate::decide::delivery::{Delivery, DeliveryRejection, HeaderRef};
use crate::decide::event::{Event, EventStep, Receipt, RetryOwner};
use crate::decide::handshake::{AnsweredHandshake, HandshakeMethod, HandshakeProof, RefusedHandshake};
use crate::decide::judge::{Verdict, verify_and_judge};
use crate::decide::limits;
use crate::decide::response;
use crate::decide::response::HttpResponse;
use crate::decide::response::problem_json;
use crate::decide::source::{Fanout, InDoubtPolicy, ResponseMode, Route, Source};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::trace_context::TraceContext;
use crate::decide::transition::ReceiptUpdate;
use crate::key_fetch::KeyFetcher;
use crate::observe::delivery_log::DeliveryVerdict;
use crate::observe::metrics::Metrics;
use crate::observe::trace_span::TraceSpan;
use crate::store::batch::Batcher;
use crate::store::completion::Completion;
use crate::store::event_id::new_event_id;
use crate::store::{AdvanceResult, DuplicateLookup, DuplicateNote, KnownDuplicate, Store, StoreError};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use http::request::Parts;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Receives deliveries.
#[derive(Clone)]
pub struct Gateway {
    store: Arc<dyn Store>,
    batch: Batcher,
    dispatcher: Dispatcher,
    /// The lanes of the config by which deliveries are judged: the dispatcher may have others by the time of the claim.
    lanes: Arc<LaneTable>,
    observer: DeliveryObserver,
    former: FormerKeyPolicy,
    key_fetchers: Arc<HashMap<Arc<str>, KeyFetcher>>,
    handovers: Arc<Handovers>,
}

/// The client that a delivery comes from.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DeliveryClient {
    /// Its address, if it came over HTTP.
    pub(crate) address: Option<IpAddr>,
    /// Until when refusals of that address are not answered one by one.
    pub(crate) limited_for: Option<Duration>,
}

/// What was sent to a source.
enum Arrival {
    /// A question of its sender.
    Handshake(AnsweredHandshake),
    /// Anything else.
    Delivery(Verdict),
}

/// An event after a wait for its end, with its receipt if it has ended.
enum WaitedEvent {
    /// As this process wrote its end.
    Written(Arc<WrittenEnd>),
    /// As it was read.
    Read(Box<Event>, Option<Receipt>),
}

impl WaitedEvent {
    fn event(&self) -> &Event {
        match self {
            Self::Written(end) => &end.event,
            Self::Read(event, _) => event,
        }
    }

    fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Written(end) => end.receipt.written(),
            Self::Read(_, receipt) => receipt.as_ref(),
        }
    }
}

/// For which deliveries the keys of an earlier version or config are also looked up.
#[derive(Clone, Debug, Default)]
pub enum FormerKeyPolicy {
    /// All deliveries: always correct, and costs a lookup.
    #[default]
    All,
    /// All deliveries, since other nodes may claim such keys at any time. For these sources the keys are also claimed
    /// until the given time: nodes of the previous version may be running, which know no other keys.
    Shared(Arc<HashMap<Arc<str>, Timestamp>>),
    /// Only deliveries of these sources, for which the keys are also claimed until the given time.
    Of(Arc<HashMap<Arc<str>, Timestamp>>),
}

impl FormerKeyPolicy {
    /// Keeps those former keys of this event that may have an owner, and claims those that other nodes may look up.
    fn select_keys(&self, source: &str, new: &mut NewEvent, now: Timestamp) {
        let until = match self {
            Self::All => None,
            Self::Shared(sources) => sources.get(source),
            Self::Of(sources) => {
                let until = sources.get(source);
                if until.is_none() {
                    new.former_keys.retain(|identity| matches!(identity.matched_by, MatchedBy::Fields(_)));
                }
                until
            }
        };
        let Some(until) = until else { return };
        if now < *until {
            let ids: Vec<_> =
                new.former_keys.extract_if(.., |identity| identity.matched_by == MatchedBy::Delivery).collect();
            new.keys.splice(0..0, ids);
        }
    }
}

impl Gateway {
    /// A gateway to this store, for the config of the dispatcher's lanes.
    pub fn new(store: Arc<dyn Store>, batch: Batcher, dispatcher: Dispatcher, metrics: Arc<Metrics>) -> Self {
        let observer = DeliveryObserver::new(metrics);
        let (former, key_fetchers, handovers) = (FormerKeyPolicy::default(), Arc::default(), Arc::default());
        let lanes = dispatcher.lanes();
        Self { store, batch, dispatcher, lanes, observer, former, key_fetchers, handovers }
    }

    /// The same gateway, which looks up former keys only where there may be any.
    #[must_use]
    pub fn looking_for(self, former: FormerKeyPolicy) -> Self {
        Self { former, ..self }
    }

    /// The same gateway, which fetches the keys that senders publish, by the names of their sources.
    #[must_use]
    pub(crate) fn fetching(self, key_fetchers: HashMap<Arc<str>, KeyFetcher>) -> Self {
        Self { key_fetchers: Arc::new(key_fetchers), ..self }
    }

    /// The same gateway, which hands over what senders bring by their handshakes.
    #[must_use]
    pub(crate) fn handing_over(self, handovers: Arc<Handovers>) -> Self {
        Self { handovers, ..self }
    }

    /// The same gateway for the config of the dispatcher's lanes as they are now.
    #[must_use]
    pub(crate) fn reconfigured(&self) -> Self {
        Self { lanes: self.dispatcher.lanes(), ..self.clone() }
    }

    /// The store's time, for a delivery that arrives now.
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// The observer of deliveries, for those that are rejected before they reach the gateway.
    pub(crate) fn observer(&self) -> &DeliveryObserver {
        &self.observer
    }

    /// Handles one delivery, from the request to the response.
    pub(crate) async fn receive(
        &self,
        source: &Source,
        request: &Parts,
        body: Bytes,
        client: DeliveryClient,
    ) -> Received {
        let (path, query) = (request.uri.path(), request.uri.query().unwrap_or(""));
        let headers: Vec<_> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let began = Instant::now();
        let received = self.receive_delivery(source, (path, query), &headers, body, client).await;
        self.observer.responded(source, began.elapsed());
        received
    }

    /// Answers a request that is no delivery, if it is a handshake of the source's sender.
    pub(crate) fn answer_handshake(
        &self,
        source: &Source,
        method: HandshakeMethod,
        request: &Parts,
        from: IpAddr,
    ) -> Option<HttpResponse> {
        let headers: Vec<_> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let (path, query, body) = (request.uri.path(), request.uri.query().unwrap_or(""), Bytes::new());
        let (at, wall) = (self.store.now(), self.store.wall_time());
        let delivery = Delivery { path, query, headers: &headers, body: &body, at, wall };
        let answered = source.answer_handshake(method, &delivery)?.ok()?;
        let answer = (answered.response, answered.proof);
        let received = Received::handshake(source, &delivery, method, answer).from(Some(from));
        self.observer.delivery(Some(source), &received);
        Some(received.response)
    }

    /// Why a request that is no delivery and was not answered is no handshake, if it asks for one.
    pub(crate) fn refused_handshake(
        &self,
        source: &Source,
        method: HandshakeMethod,
        request: &Parts,
    ) -> Option<RefusedHandshake> {
        let headers: Vec<_> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let (path, query, body) = (request.uri.path(), request.uri.query().unwrap_or(""), Bytes::new());
        let (at, wall) = (self.store.now(), self.store.wall_time());
        source.refused_handshake(method, &Delivery { path, query, headers: &headers, body: &body, at, wall })
    }

    /// Handles one delivery: judges it, claims its events, and returns the result.
    pub(crate) async fn receive_delivery(
        &self,
        source: &Source,
        (path, query): (&str, &str),
        headers: &[HeaderRef<'_>],
        body: Bytes,
        client: DeliveryClient,
    ) -> Received {
        let (at, wall) = (self.store.now(), self.store.wall_time());
        let delivery = Delivery { path, query, headers, body: &body, at, wall };
        let mut span = self.observer.begin(source, &delivery);
        let judge = || {
            match source.answer_handshake(HandshakeMethod::Post, &delivery) {
                Some(Ok(answered)) => return Arrival::Handshake(answered),
                Some(Err(rejection)) => return Arrival::Delivery(Verdict::Refused(rejection)),
                None => {}
            }
            let on_verified = |secret| self.observer.verified(source, secret);
            Arrival::Delivery(verify_and_judge(source, &delivery, &mut new_event_id, on_verified))
        };
        let mut arrival = judge();
        if let Arrival::Delivery(Verdict::Refused(DeliveryRejection::KeyUnavailable(request))) = &arrival
            && let Some(fetcher) = self.key_fetchers.get(&source.name)
            && fetcher.obtain(request, wall).await
        {
            arrival = judge();
        }
        let verdict = match arrival {
            Arrival::Delivery(verdict) => verdict,
            Arrival::Handshake(AnsweredHandshake { response, brings, proof }) => {
                let answer = (response, proof);
                let received = Received::handshake(source, &delivery, HandshakeMethod::Post, answer);
                let received = match brings {
                    Some(value) => received.handed_over(source, self.handovers.bring(&source.name, value, at).await),
                    None => received,
                };
                return self.observer.finish(source, received.from(client.address), span);
            }
        };
        if let Some(received) = self.confirm_subscription(source, &delivery, &verdict).await {
            return self.observer.finish(source, received.from(client.address), span);
        }
        let received = match verdict {
            Verdict::Refused(DeliveryRejection::BadSignature) if client.limited_for.is_some() => {
                Received::limited(at, client.limited_for.unwrap_or_default())
            }
            Verdict::Refused(rejection) => Received::refused(source, &delivery, &rejection),
            Verdict::Ignored(why) => Received::ignored(source, &delivery, why),
            Verdict::Events(events) => {
                let arrived = (at, body.len());
                drop(body); // a sender that waits for the end of its event must not hold the body budget
                self.claim_all(source, events, arrived, &mut span).await
            }
        };
        self.observer.finish(source, received.from(client.address), span)
    }

    /// Confirms a subscription, if the verified delivery asks for it. Nothing is written.
    async fn confirm_subscription(
        &self,
        source: &Source,
        delivery: &Delivery<'_>,
        verdict: &Verdict,
    ) -> Option<Received> {
        if let Verdict::Refused(
            DeliveryRejection::BadSignature | DeliveryRejection::KeyUnavailable(_) | DeliveryRejection::SecretMissing,
        ) = verdict
        {
            return None;
        }
        let url = source.verify.confirmation_url(delivery)?;
        // A verdict may be a refusal for other reasons; only the scheme says that it is verified.
        source.verify_delivery(delivery).ok()?;
        let confirmed = match self.key_fetchers.get(&source.name) {
            Some(fetcher) => fetcher.confirm(&url).await,
            None => false,
        };
        let answer = if confirmed { response::healthy() } else { response::unavailable() };
        let answer = (answer, HandshakeProof::Secret);
        Some(Received::handshake(source, delivery, HandshakeMethod::Post, answer))
    }

    /// Claims the events of a delivery: those of its receivers concurrently, those of its elements in their order as far
    /// as it matters.
    async fn claim_all(
        &self,
        source: &Source,
        mut events: Vec<NewEvent>,
        arrived: (Timestamp, usize),
        span: &mut TraceSpan,
    ) -> Received {
        if let Some(context) = span.context() {
            for new in &mut events {
                context.inject(&mut new.payload.headers);
            }
        }
        if let Some(first) = events.first() {
            self.observer.check_id_conflict(source, first);
        }
        let delivery_id = events.first().and_then(|new| new.event.delivery_id.clone());
        let all = match source.fields.each() {
            Some(_) => self.claim_elements(source, events).await,
            None if events.len() > 1 => join_all(events.into_iter().map(|new| self.claim_one(source, new))).await,
            None => match events.pop() {
                Some(only) => vec![self.claim_one(source, only).await],
                None => Vec::new(),
            },
        };
        if let [one] = all.as_slice() {
            span.tell("event", &one.event.map(|id| id.to_string()).unwrap_or_default());
        }
        Received::claimed(source, arrived, delivery_id, all)
    }

    /// Claims the elements of a delivery. Those that have nothing in common are claimed concurrently.
    async fn claim_elements(&self, source: &Source, events: Vec<NewEvent>) -> Vec<ReceivedEvent> {
        let chains = claim::claim_chains(events).into_iter().map(|chain| self.claim_chain(source, chain));
        let claimed = stream::iter(chains).buffer_unordered(limits::ELEMENTS_AT_ONCE).concat().await;
        let all: BTreeMap<usize, ReceivedEvent> = claimed.into_iter().collect();
        all.into_values().collect()
    }

    /// Claims elements one after another. If one could not be claimed, the later ones are not: the sender's repeat must
    /// find them in their order.
    async fn claim_chain(&self, source: &Source, chain: Vec<(usize, NewEvent)>) -> Vec<(usize, ReceivedEvent)> {
        let mut claimed: Vec<(usize, ReceivedEvent)> = Vec::with_capacity(chain.len());
        for (index, new) in chain {
            let failed = claimed.last().is_some_and(|(_, last)| last.verdict == DeliveryVerdict::Unavailable);
            let one = if failed { ReceivedEvent::unavailable(source) } else { self.claim_one(source, new).await };
            claimed.push((index, one));
        }
        claimed
    }

    /// Claims one event of a delivery, and makes the response for it.
    async fn claim_one(&self, source: &Source, mut new: NewEvent) -> ReceivedEvent {
        self.former.select_keys(&source.name, &mut new, self.store.now());
        let Some(lane) = self.lanes.lane(&new.event.source, &new.event.route) else {
            return ReceivedEvent::unavailable(source);
        };
        let (mut recalled, mut receipt) = self.find_duplicate(source, &new).await;
        let unstarted = (new.event.attempt, new.event.state.clone());
        let mut new = Arc::new(new);
        let mut first_look = true;
        // Registered before the claim, so that the end is told however soon it comes.
        let mut waiter = match source.respond {
            ResponseMode::WhenDone { .. } => Some(self.dispatcher.register_wait(new.event.id)),
            ResponseMode::Accepted => None,
        };
        for tries in 0..limits::REARM_TRIES {
            if tries > 0 {
                // The previous claim may have started it.
                let event = &mut Arc::make_mut(&mut new).event;
                (event.attempt, event.state) = unstarted.clone();
            }
            let claim = match recalled.take() {
                Some(claim) => Ok(claim),
                None => self.claim(lane, &mut new).await,
            };
            match claim {
                Ok(ClaimResult::New { event, .. }) => {
                    drop(new);
                    return self.answer_new(source, &event, waiter.take()).await;
                }
                Ok(ClaimResult::Stale { of }) => {
                    self.observer.stale(source, &new, of);
                    return ReceivedEvent::new(DeliveryVerdict::Stale, Some(of), response::stale(of));
                }
                Ok(ClaimResult::Duplicate { event, same, target: stands, now }) => {
                    if first_look {
                        self.note_duplicate(source, &event, &same, &new, now).await;
                    }
                    first_look = false;
                    if claim::is_key_reuse(source, &event, &new) {
                        let response = problem_json::reused(&event);
                        return ReceivedEvent::new(DeliveryVerdict::Refused, Some(event.id), response)
                            .matched_by(&same);
                    }
                    // The policies of the event's own route apply, not those of the delivery that repeats it.
                    let own = self.dispatcher.lane(&event.source, &event.route);
                    let own = own.as_ref().unwrap_or(lane);
                    let does = claim::repeat_effect(&event, &new, &same, stands, &own.route, own.source.respond, now);
                    match does {
                        RepeatEffect::ReportOnly => {
                            self.observer.repeat_reported(source, &same);
                            drop(new);
                            let repeat = (&same, stands, now);
                            return self.answer_repeat(source, event, repeat, receipt.take()).await;
                        }
                        RepeatEffect::Rearms | RepeatEffect::Resumes | RepeatEffect::PublishesAgain => {
                            match self.apply_repeat(own, does, &event, &new, now).await {
                                Ok(Some(event)) => {
                                    drop(new);
                                    return self.answer_new(source, &event, None).await;
                                }
                                Ok(None) => {}
                                Err(error) => return self.failed(source, &error),
                            }
                        }
                    }
                }
                Ok(ClaimResult::Imported { same }) => {
                    self.observer.imported(source, &new, &same);
                    return ReceivedEvent::new(DeliveryVerdict::Duplicate, None, response::imported())
                        .matched_by(&same);
                }
                Ok(ClaimResult::Undecided) => {}
                Err(error) => return self.failed(source, &error),
            }
        }
        ReceivedEvent::unavailable(source)
    }

    /// The duplicate that a claim would find, if the claim is unnecessary, and the stored response if that is needed.
    async fn find_duplicate(&self, source: &Source, new: &NewEvent) -> (Option<ClaimResult>, Option<Receipt>) {
        let needs = match source.respond {
            ResponseMode::Accepted => DuplicateLookup::Standing,
            ResponseMode::WhenDone { .. } => DuplicateLookup::Receipt,
        };
        match self.store.find_duplicate(new, needs).await {
            Ok(Some(KnownDuplicate { event, same, target: stands, receipt, now })) => {
                (Some(ClaimResult::Duplicate { event, same, target: stands, now }), receipt)
            }
            Ok(None) | Err(_) => (None, None), // the claim will find out
        }
    }

    /// Claims an event: as running on this node, if there is a free permit, the event may act again after a crash, and
    /// nothing else decides when it starts.
    async fn claim(&self, lane: &Arc<Lane>, new: &mut Arc<NewEvent>) -> Result<ClaimResult, StoreError> {
        let Route { fanout, in_doubt, when_busy, budget, .. } = &*lane.route;
        let at_once = *fanout != Fanout::Record
            && *in_doubt != InDoubtPolicy::Hold
            && when_busy.debounce().is_none()
            && budget.is_none();
        let spot = if at_once { self.dispatcher.free_spot(lane, new.event.part) } else { None };
        // An event without an action is recorded, and needs no permit.
        let spot = spot.zip(lane.action_kind()).map(|(spot, action)| {
            let event = &mut Arc::make_mut(new).event; // not shared yet
            event.start_at_claim(lane.route.lease, self.dispatcher.node().clone(), action);
            spot
        });
        // A body that is handed over stays counted in the body budget; a large one is read from the store again.
        let small = new.payload.body.len() <= limits::HAND_OVER_BYTES_MAX;
        // An element is handed over as a copy: a part of its delivery's bytes would hold all of them.
        let payload = || match lane.source.fields.each() {
            Some(_) => new.payload.detached(),
            None => new.payload.clone(),
        };
        let to_run = spot.map(|spot| (lane.clone(), spot, small.then(payload)));
        let (dispatcher, sent) = (self.dispatcher.clone(), boottime());
        let _span = TraceSpan::begin("claim", TraceContext::of(&new.payload.headers));
        self.batch.claim(new.clone(), Box::new(move |event| dispatcher.adopt(event, to_run, sent))).await
    }

    /// Re-arms a dead event, or has an event published again, with the body that has just arrived. `None`: it changed
    /// meanwhile.
    async fn apply_repeat(
        &self,
        lane: &Lane,
        does: RepeatEffect,
        event: &Event,
        new: &NewEvent,
        now: Timestamp,
    ) -> Result<Option<Event>, StoreError> {
        let (change, why) = match does {
            RepeatEffect::PublishesAgain => (event.publish_again(new, &lane.route, now), ""),
            RepeatEffect::Resumes => (event.resume(new, &lane.route, now), "in doubt, and its sender tries again"),
            RepeatEffect::Rearms | RepeatEffect::ReportOnly => (event.rearm(new, &lane.route, now), ""),
        };
        let Ok(change) = change else { return Ok(None) };
        match self.dispatcher.write_because(change, why.to_owned()).await? {
            AdvanceResult::Written { event, .. } if event.state.ended().is_none() => {
                if does == RepeatEffect::PublishesAgain {
                    self.observer.published_again(&event, new);
                }
                Ok(Some(*event))
            }
            AdvanceResult::Written { .. } | AdvanceResult::Lost => Ok(None),
        }
    }

    /// Notes a repeat beside its event. The note is not durable, and a failure to write it is not reported to the
    /// sender.
    async fn note_duplicate(&self, source: &Source, event: &Event, same: &MatchedBy, new: &NewEvent, now: Timestamp) {
        self.observer.repeat(source, event, same, new, now);
        self.store.note_duplicates(vec![DuplicateNote::new(event, same, new, now)]).await.ok();
    }

    /// The response for an event that this delivery made or revived. `waiter`: registered before it was written.
    async fn answer_new(&self, source: &Source, event: &Event, waiter: Option<EndWaiter<'_>>) -> ReceivedEvent {
        let response = match source.respond {
            ResponseMode::Accepted => response::accepted(event.id),
            ResponseMode::WhenDone { within } => match self.answer_in_time(source, event, waiter, within).await {
                Ok(response) => response,
                Err(error) => return self.failed(source, &error),
            },
        };
        ReceivedEvent::new(DeliveryVerdict::Accepted, Some(event.id), response)
    }

    /// The final response, or 202 when the sender has waited long enough.
    async fn answer_in_time(
        &self,
        source: &Source,
        event: &Event,
        waiter: Option<EndWaiter<'_>>,
        within: Duration,
    ) -> Result<HttpResponse, StoreError> {
        let mut last_wait = match waiter {
            Some(waiter) => self.wait_registered(waiter, event, Some(event), within).await?,
            None => self.wait(event, within).await?,
        };
        for _ in 0..limits::ACCEPT_TRIES {
            let stands = last_wait.event();
            if stands.state.ended().is_some() {
                return Ok(response::ended(source.api_style, stands, last_wait.receipt()));
            }
            if self.accept(stands).await? {
                return Ok(response::unfinished(stands));
            }
            last_wait = self.wait(stands, Duration::ZERO).await?;
        }
        Err(StoreError::Down("others wrote the event each time it was to be accepted".into()))
    }

    /// Records that a node retries this event from now on, because a sender that gets a 202 does not. `false`: another
    /// node has written the event meanwhile, and it may have ended.
    async fn accept(&self, event: &Event) -> Result<bool, StoreError> {
        if event.retrier == RetryOwner::Node {
            return Ok(true);
        }
        let Ok(change) = event.transition(EventStep::Accept, &Route::default(), self.store.now()) else {
            return Ok(false);
        };
        let written = matches!(self.batch.advance(change).await?, AdvanceResult::Written { .. });
        if written {
            self.observer.accepted(event);
        }
        Ok(written)
    }

    async fn answer_repeat(
        &self,
        source: &Source,
        event: Box<Event>,
        (same, stands, now): (&MatchedBy, claim::DuplicateTarget, Timestamp),
        kept: Option<Receipt>,
    ) -> ReceivedEvent {
        let id = event.id;
        let response = match source.respond {
            ResponseMode::Accepted => response::duplicate(&event, same),
            ResponseMode::WhenDone { within } => {
                let came = match event.state.ended() {
                    Some(_) => response::RepeatTiming::AfterEnd,
                    None => response::RepeatTiming::WhileRunning,
                };
                let waited = match kept {
                    Some(receipt) => Ok(WaitedEvent::Read(event, Some(receipt))),
                    None => self.wait(&event, within).await,
                };
                match waited {
                    Ok(waited) if stands == claim::DuplicateTarget::ViaSuccessor && waited.event().is_dead() => {
                        response::superseded(waited.event(), same)
                    }
                    Ok(waited) => response::repeat_response(source, waited.event(), waited.receipt(), same, came, now),
                    Err(error) => return self.failed(source, &error),
                }
            }
        };
        ReceivedEvent::new(DeliveryVerdict::Duplicate, Some(id), response).matched_by(same)
    }

    /// Waits for an event to end.
    async fn wait(&self, event: &Event, within: Duration) -> Result<WaitedEvent, StoreError> {
        if event.state.ended().is_some() {
            return self.read_receipt(event.clone()).await;
        }
        self.wait_registered(self.dispatcher.register_wait(event.id), event, None, within).await
    }

    /// The same with a wait that is registered. `known`: the event as it was written after that.
    async fn wait_registered(
        &self,
        waiter: EndWaiter<'_>,
        event: &Event,
        known: Option<&Event>,
        within: Duration,
    ) -> Result<WaitedEvent, StoreError> {
        match Dispatcher::wait_registered(waiter, known, within).await? {
            Completion::Told(end) => match end.receipt {
                ReceiptUpdate::Replace(_) => Ok(WaitedEvent::Written(end)),
                ReceiptUpdate::Unchanged => self.read_receipt(end.event.clone()).await,
            },
            Completion::Stored(Some(stands)) => self.read_receipt(*stands).await,
            Completion::Stored(None) => self.read_receipt(event.clone()).await,
        }
    }

    /// This event, with its receipt if it has ended.
    async fn read_receipt(&self, event: Event) -> Result<WaitedEvent, StoreError> {
        let receipt = match event.state.ended() {
            Some(_) => self.store.receipt(event.id).await?,
            None => None,
        };
        Ok(WaitedEvent::Read(Box::new(event), receipt))
    }

    fn failed(&self, source: &Source, error: &StoreError) -> ReceivedEvent {
        self.observer.store_failed(error);
        ReceivedEvent::unavailable(source)
    }
}
