//! Receiving: judge, claim, answer.

use super::dispatcher::{Dispatcher, Lane};
use crate::action::boottime;
use crate::decide::claim::{self, Claim, MatchedBy, NewEvent, RepeatEffect};
use crate::decide::delivery::Delivery;
use crate::decide::delivery::DeliveryRejection;
use crate::decide::event::{Event, EventStep, Receipt, Retrier};
use crate::decide::id::EventId;
use crate::decide::judge::{Verdict, verify_and_judge};
use crate::decide::limits;
use crate::decide::response;
use crate::decide::response::HttpResponse;
use crate::decide::response::problem_json;
use crate::decide::source::{ApiStyle, Fanout, InDoubtPolicy, ResponseMode, Route, Source};
use crate::decide::time::{Duration, Timestamp};
use crate::decide::trace_context;
use crate::decide::trace_context::TraceContext;
use crate::observe::delivery_log;
use crate::observe::delivery_log::DeliveryRecord;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::otlp::TraceSpan;
use crate::store::batch::Batcher;
use crate::store::{
    AdvanceResult, DuplicateLookup, DuplicateNote, DuplicateSighting, KnownDuplicate, Store, StoreError,
};
use std::collections::HashMap;
use std::sync::Arc;
use tracing::{info, warn};

/// Receives deliveries.
#[derive(Clone)]
pub struct Gateway {
    store: Arc<dyn Store>,
    batch: Batcher,
    dispatcher: Dispatcher,
    former: FormerKeyLookup,
}

/// Whose deliveries are also looked for under keys that an earlier version or config made.
#[derive(Clone, Debug, Default)]
pub enum FormerKeyLookup {
    /// Everybody's: that is always right, and costs a look-up.
    #[default]
    All,
    /// The same, since other nodes may claim them at any time. Those of these sources are claimed as well until then:
    /// nodes of the version before may be there, which know no other keys.
    Shared(Arc<HashMap<Arc<str>, Timestamp>>),
    /// Only those of these sources, which are claimed as well until then.
    Of(Arc<HashMap<Arc<str>, Timestamp>>),
}

impl FormerKeyLookup {
    /// Leaves of the former keys of this delivery those that may be held, and claims those that others may look for.
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

/// A delivery that was looked at.
pub enum JudgedDelivery {
    /// It makes no event: this is its answer.
    Answered(HttpResponse),
    /// It makes these, if they are new.
    Events {
        /// Each with the bytes of the body.
        events: Vec<NewEvent>,
        /// When it arrived.
        at: Timestamp,
        /// How long its body is.
        bytes: usize,
        /// Its part of a trace.
        span: TraceSpan,
    },
}

/// What came of an event of a delivery: its name where it has one, and the answer.
struct ReceiveOutcome {
    event: Option<EventId>,
    reply: HttpResponse,
    verdict: delivery_log::DeliveryVerdict,
    same: Option<MatchedBy>,
    delivery: Option<Arc<str>>,
    /// All of its delivery's, where there are several.
    events: Vec<EventId>,
}

impl ReceiveOutcome {
    fn new(event: Option<EventId>, reply: HttpResponse, verdict: delivery_log::DeliveryVerdict) -> Self {
        Self { event, reply, verdict, same: None, delivery: None, events: Vec::new() }
    }

    /// The key of this event came with another body.
    fn reused(event: &Event) -> Self {
        Self::new(Some(event.id), problem_json::reused(event), delivery_log::DeliveryVerdict::Refused)
    }

    fn by(self, same: &MatchedBy) -> Self {
        Self { same: Some(same.clone()), ..self }
    }

    /// The word for why nothing came of it.
    fn reason(&self) -> Option<String> {
        match self.verdict {
            delivery_log::DeliveryVerdict::Refused => Some("key_reused".into()),
            delivery_log::DeliveryVerdict::Unavailable => Some("unavailable".into()),
            _ => None,
        }
    }
}

impl Gateway {
    /// A gateway to this store.
    pub fn new(store: Arc<dyn Store>, batch: Batcher, dispatcher: Dispatcher) -> Self {
        Self { store, batch, dispatcher, former: FormerKeyLookup::default() }
    }

    /// The same, which looks for former keys only where there may be any.
    #[must_use]
    pub fn looking_for(self, former: FormerKeyLookup) -> Self {
        Self { former, ..self }
    }

    /// The time to give a delivery that arrives now.
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// What this machine's clock on the wall shows: the age of a delivery's signature is measured by it.
    pub fn wall_time(&self) -> Timestamp {
        self.store.wall_time()
    }

    /// Judges one delivery. What is judged holds nothing of it but what its events carry.
    pub fn judge(&self, source: &Source, delivery: &Delivery<'_>) -> JudgedDelivery {
        let mut span = TraceSpan::begin("receive", delivery.text(trace_context::PARENT).and_then(TraceContext::parse));
        span.tell("source", &source.name);
        let meter = self.batch.meter();
        JudgedDelivery::Answered(
            match verify_and_judge(source, delivery, &mut new_id, |secret| meter.secret_used(&source.name, secret)) {
                Verdict::Refused(refusal) => {
                    span.failed(refusal.reason());
                    self.refuse(source, delivery, &refusal)
                }
                Verdict::Ignored(why) => {
                    span.tell("verdict", "ignored");
                    let id = delivery_id(source, delivery);
                    info!(target: "hookonce", source = &*source.name, delivery = id, why, "ignored");
                    let reply = response::ignored(&why);
                    let heard = DeliveryRecord::new(
                        Some(source.name.clone()),
                        delivery_log::DeliveryVerdict::Ignored,
                        delivery.at,
                    );
                    let (reason, why, delivery_id) = (Some("filtered".into()), Some(why), some(id));
                    let (status, bytes) = (reply.status, delivery.body.len());
                    meter.turned_away(DeliveryRecord { reason, why, delivery: delivery_id, status, bytes, ..heard });
                    reply
                }
                Verdict::Events(events) => {
                    return JudgedDelivery::Events { events, at: delivery.at, bytes: delivery.body.len(), span };
                }
            },
        )
    }

    /// Takes what was judged; says its answer, and the events it made or repeats. Whoever waits for the end of an event
    /// does so without its body.
    pub async fn claim_and_respond(&self, source: &Source, judged: JudgedDelivery) -> (HttpResponse, Vec<EventId>) {
        let (events, at, bytes, mut span) = match judged {
            JudgedDelivery::Answered(reply) => return (reply, Vec::new()),
            JudgedDelivery::Events { events, at, bytes, span } => (events, at, bytes, span),
        };
        let came = self.claim_all(source, events, &mut span).await;
        span.tell("verdict", came.verdict.word());
        self.meter().delivery(&source.name, came.verdict, at, || DeliveryRecord {
            status: came.reply.status,
            event: came.event,
            reason: came.reason(),
            same: came.same.as_ref().map(|same| same.word().to_owned()),
            delivery: came.delivery.as_deref().map(str::to_owned),
            bytes,
            ..DeliveryRecord::new(Some(source.name.clone()), came.verdict, at)
        });
        (came.reply, came.events)
    }

    fn refuse(&self, source: &Source, delivery: &Delivery<'_>, refusal: &DeliveryRejection) -> HttpResponse {
        let reply = match source.api_style {
            ApiStyle::Webhook => response::refused(refusal),
            ApiStyle::Api => problem_json::refused(refusal),
        };
        let id = delivery_id(source, delivery);
        let mut why = if *refusal == DeliveryRejection::BadSignature {
            source.verify.rejection_reason(delivery)
        } else {
            String::new()
        };
        let detail = |name| refusal.detail().filter(|(found, _)| *found == name).map(|(_, value)| value);
        warn!(
            target: "hookonce",
            source = &*source.name,
            delivery = Some(&*id).filter(|id| !id.is_empty()),
            status = reply.status,
            reason = refusal.reason(),
            field = detail("field"),
            detail = detail("detail"),
            why = Some(&*why).filter(|why| !why.is_empty()),
            "refused"
        );
        if let Some((what, detail)) = refusal.detail() {
            why = if what == "field" { format!("the field `{detail}`") } else { detail.to_owned() };
        }
        let heard = DeliveryRecord::new(Some(source.name.clone()), delivery_log::DeliveryVerdict::Refused, delivery.at);
        let (status, bytes, reason) = (reply.status, delivery.body.len(), Some(refusal.reason().into()));
        let heard = DeliveryRecord { status, reason, why: some(why), delivery: some(id), bytes, ..heard };
        self.batch.meter().turned_away(heard);
        reply
    }

    /// What is counted.
    pub fn meter(&self) -> &Metrics {
        self.batch.meter()
    }

    async fn claim_all(&self, source: &Source, mut events: Vec<NewEvent>, span: &mut TraceSpan) -> ReceiveOutcome {
        if let Some(context) = span.context() {
            for new in &mut events {
                context.inject(&mut new.payload.headers);
            }
        }
        let signed = source.delivery.as_ref().is_some_and(|id| id.signed);
        let delivery = events.first().and_then(|new| new.event.delivery_id.clone());
        if let (Some(id), Some(new), false) = (&delivery, events.first(), signed) {
            self.meter().check_id_conflict(&source.name, id, &new.event.body_digest);
        }
        let each = events.into_iter().map(|new| self.claim_one(source, new));
        let mut all = futures_util::future::join_all(each).await;
        if let [one] = all.as_slice() {
            span.tell("event", &one.event.map(|id| id.to_string()).unwrap_or_default());
        }
        let ids: Vec<_> = all.iter().filter_map(|came| came.event).collect();
        // What went wrong first, else what is new, else the first: as the answer has it.
        let told = all.iter().position(|came| came.verdict == delivery_log::DeliveryVerdict::Unavailable);
        let told = told
            .or_else(|| all.iter().position(|came| came.verdict == delivery_log::DeliveryVerdict::Accepted))
            .unwrap_or(0);
        let replies = all.iter_mut().map(|came| std::mem::replace(&mut came.reply, response::healthy())).collect();
        let reply = response::combine_responses(replies, &ids);
        ReceiveOutcome { reply, delivery, events: ids, ..all.swap_remove(told) }
    }

    async fn claim_one(&self, source: &Source, mut new: NewEvent) -> ReceiveOutcome {
        self.former.select_keys(&source.name, &mut new, self.store.now());
        let Some(lane) = self.dispatcher.lane(&new.event.source, &new.event.route) else {
            return ReceiveOutcome::new(None, unavailable(source), delivery_log::DeliveryVerdict::Unavailable);
        };
        let (mut recalled, mut receipt) = self.find_duplicate(source, &new).await;
        let judged = (new.event.attempt, new.event.state.clone());
        let mut new = Arc::new(new);
        let mut first_look = true;
        for tries in 0..limits::REARM_TRIES {
            if tries > 0 {
                // The claim before may have been one that starts it.
                let event = &mut Arc::make_mut(&mut new).event;
                (event.attempt, event.state) = judged.clone();
            }
            let claim = match recalled.take() {
                Some(claim) => Ok(claim),
                None => self.claim(lane, &mut new).await,
            };
            match claim {
                Ok(Claim::New { event, .. }) => {
                    drop(new);
                    return self.answer_new(source, &event).await;
                }
                Ok(Claim::Stale { of }) => {
                    info!(target: "hookonce", source = &*source.name, event = %of, delivery = id_of(&new), "stale");
                    return ReceiveOutcome::new(Some(of), response::stale(of), delivery_log::DeliveryVerdict::Stale);
                }
                Ok(Claim::Duplicate { event, same, relation: stands, now }) => {
                    if first_look {
                        self.note_duplicate(source, &event, &same, &new, now).await;
                    }
                    first_look = false;
                    if claim::is_key_reuse(source, &event, &new) {
                        return ReceiveOutcome::reused(&event).by(&same);
                    }
                    // What the event is to do is its own route's to say, not that of the delivery that repeats it.
                    let own = self.dispatcher.lane(&event.source, &event.route).unwrap_or(lane);
                    let does = claim::repeat_effect(&event, &new, &same, stands, &own.route, own.source.respond, now);
                    match does {
                        RepeatEffect::ReportOnly => {
                            self.meter().duplicate(&source.name, &same);
                            drop(new);
                            let repeat = (&same, stands, now);
                            return self.answer_repeat(source, &event, repeat, receipt.take()).await;
                        }
                        RepeatEffect::Rearms | RepeatEffect::Resumes | RepeatEffect::PublishesAgain => {
                            match self.apply_repeat(own, does, &event, &new, now).await {
                                Ok(Some(event)) => {
                                    drop(new);
                                    return self.answer_new(source, &event).await;
                                }
                                Ok(None) => {}
                                Err(error) => return failed(source, &error),
                            }
                        }
                    }
                }
                Ok(Claim::Imported { same }) => {
                    let (source_name, delivery) = (&*source.name, id_of(&new));
                    info!(target: "hookonce", source = source_name, delivery, same = same.word(), of = "imported", "duplicate");
                    self.meter().duplicate(&source.name, &same);
                    return ReceiveOutcome::new(None, response::imported(), delivery_log::DeliveryVerdict::Duplicate)
                        .by(&same);
                }
                Ok(Claim::Undecided) => {}
                Err(error) => return failed(source, &error),
            }
        }
        ReceiveOutcome::new(None, unavailable(source), delivery_log::DeliveryVerdict::Unavailable)
    }

    /// What a claim would say, where it need not be made: a repeat, and the kept answer if that is wanted.
    async fn find_duplicate(&self, source: &Source, new: &NewEvent) -> (Option<Claim>, Option<Receipt>) {
        let needs = match source.respond {
            ResponseMode::Accepted => DuplicateLookup::Standing,
            ResponseMode::WhenDone { .. } => DuplicateLookup::Receipt,
        };
        match self.store.find_duplicate(new, needs).await {
            Ok(Some(KnownDuplicate { event, same, stands, receipt, now })) => {
                (Some(Claim::Duplicate { event, same, relation: stands, now }), receipt)
            }
            Ok(None) | Err(_) => (None, None), // the claim will tell
        }
    }

    /// Claims an event: running by this node if it has a free spot and may act again after a crash.
    async fn claim(&self, lane: &Lane, new: &mut Arc<NewEvent>) -> Result<Claim, StoreError> {
        let at_once = lane.route.fanout != Fanout::Record && lane.route.in_doubt != InDoubtPolicy::Hold;
        let spot = if at_once { self.dispatcher.free_spot(lane, new.event.part) } else { None };
        // What has no action is recorded, and takes no spot.
        let spot = spot.zip(lane.action_kind()).map(|(spot, action)| {
            let event = &mut Arc::make_mut(new).event; // not shared yet
            event.start_at_claim(lane.route.lease, self.dispatcher.node().clone(), action);
            spot
        });
        // A body that is handed over stays counted among those in flight; a large one is read from the store again.
        let small = new.payload.body.len() <= limits::HAND_OVER_BYTES_MAX;
        let to_run = spot.map(|spot| (spot, small.then(|| new.payload.clone())));
        let (dispatcher, sent) = (self.dispatcher.clone(), boottime());
        let _span = TraceSpan::begin("claim", TraceContext::of(&new.payload.headers));
        self.batch.claim(new.clone(), Box::new(move |event| dispatcher.adopt(event, to_run, sent))).await
    }

    /// Gives a dead event another attempt, or has one published again, with the body that has just arrived. `None`: it
    /// changed meanwhile.
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
                    let (delivery, message_id) = (id_of(new), event.idempotency_key());
                    info!(target: "hookonce", event = %event.id, delivery, message_id, "publishing again");
                    self.meter().published_again(&event.source);
                }
                Ok(Some(*event))
            }
            AdvanceResult::Written { .. } | AdvanceResult::Lost => Ok(None),
        }
    }

    /// Notes a duplicate beside its event, and says so.
    async fn note_duplicate(&self, source: &Source, event: &Event, same: &MatchedBy, new: &NewEvent, now: Timestamp) {
        // An id that is not signed is bound to its body: under the same id there is no other.
        let signed = source.delivery.as_ref().is_some_and(|id| id.signed);
        let conflicts = signed && *same == MatchedBy::Delivery && event.body_digest != new.event.body_digest;
        if conflicts {
            self.meter().conflict(&event.source);
        }
        let delivery_id = new.event.delivery_id.clone();
        info!(
            target: "hookonce",
            event = %event.id,
            delivery = id_of(new),
            same = same.word(),
            of = event.state.word(),
            age_seconds = now.since(event.received_at).as_secs_f64(),
            body = conflicts.then_some("another"),
            "duplicate"
        );
        let note =
            DuplicateNote { event: event.id, sighting: DuplicateSighting { at: now, delivery_id, same: same.clone() } };
        // Not durable, and not worth an error to the sender.
        self.store.note_duplicates(vec![note]).await.ok();
    }

    async fn answer_new(&self, source: &Source, event: &Event) -> ReceiveOutcome {
        let reply = match source.respond {
            ResponseMode::Accepted => response::accepted(event.id),
            ResponseMode::WhenDone { within } => match self.answer_in_time(source, event, within).await {
                Ok(reply) => reply,
                Err(error) => return failed(source, &error),
            },
        };
        ReceiveOutcome::new(Some(event.id), reply, delivery_log::DeliveryVerdict::Accepted)
    }

    /// The end, or 202 when the sender has waited long enough.
    async fn answer_in_time(
        &self,
        source: &Source,
        event: &Event,
        within: Duration,
    ) -> Result<HttpResponse, StoreError> {
        let (mut stands, mut receipt) = self.wait(event, within).await?;
        for _ in 0..limits::ACCEPT_TRIES {
            if stands.state.ended().is_some() {
                return Ok(response::ended(source.api_style, &stands, receipt.as_ref()));
            }
            if self.accept(&stands).await? {
                return Ok(response::unfinished(&stands));
            }
            (stands, receipt) = self.wait(&stands, Duration::ZERO).await?;
        }
        Err(StoreError::Down("others wrote the event each time it was to be accepted".into()))
    }

    /// Writes down that a node tries this event again from now on: whoever hears 202 does not. `false`: it was written by
    /// another meanwhile, and may be over.
    async fn accept(&self, event: &Event) -> Result<bool, StoreError> {
        if event.retrier == Retrier::Node {
            return Ok(true);
        }
        let Ok(change) = event.transition(EventStep::Accept, &Route::default(), self.store.now()) else {
            return Ok(false);
        };
        let written = matches!(self.batch.advance(change).await?, AdvanceResult::Written { .. });
        if written {
            let why = "the sender was told 202 and is no longer waited for: a node tries it again";
            info!(target: "hookonce", event = %event.id, why, "accepted");
        }
        Ok(written)
    }

    async fn answer_repeat(
        &self,
        source: &Source,
        event: &Event,
        (same, stands, now): (&MatchedBy, claim::MatchRelation, Timestamp),
        kept: Option<Receipt>,
    ) -> ReceiveOutcome {
        let reply = match source.respond {
            ResponseMode::Accepted => response::duplicate(event, same),
            ResponseMode::WhenDone { within } => {
                let came = match event.state.ended() {
                    Some(_) => response::RepeatTiming::AfterEnd,
                    None => response::RepeatTiming::WhileRunning,
                };
                let waited = match kept {
                    Some(receipt) => Ok((event.clone(), Some(receipt))),
                    None => self.wait(event, within).await,
                };
                match waited {
                    Ok((event, _)) if stands == claim::MatchRelation::ViaSuccessor && event.is_dead() => {
                        response::superseded(&event, same)
                    }
                    Ok((event, receipt)) => {
                        response::repeat_response(source, &event, receipt.as_ref(), same, came, now)
                    }
                    Err(error) => return failed(source, &error),
                }
            }
        };
        ReceiveOutcome::new(Some(event.id), reply, delivery_log::DeliveryVerdict::Duplicate).by(same)
    }

    /// Waits for an event to end; brings it as it stands, and its receipt if it did.
    async fn wait(&self, event: &Event, within: Duration) -> Result<(Event, Option<Receipt>), StoreError> {
        let stands = match event.state.ended() {
            Some(_) => event.clone(),
            None => self.dispatcher.wait_for_end(event.id, within).await?.unwrap_or_else(|| event.clone()),
        };
        let receipt = match stands.state.ended() {
            Some(_) => self.store.receipt(event.id).await?,
            None => None,
        };
        Ok((stands, receipt))
    }
}

fn failed(source: &Source, error: &StoreError) -> ReceiveOutcome {
    log::store_error(error);
    ReceiveOutcome::new(None, unavailable(source), delivery_log::DeliveryVerdict::Unavailable)
}

fn unavailable(source: &Source) -> HttpResponse {
    match source.api_style {
        ApiStyle::Webhook => response::unavailable(),
        ApiStyle::Api => problem_json::unavailable(),
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn new_id() -> EventId {
    EventId(uuid::Uuid::now_v7().into_bytes())
}

fn id_of(new: &NewEvent) -> &str {
    new.event.delivery_id.as_deref().unwrap_or("")
}

/// What the sender calls a delivery that was not for us or not believed, for the log alone.
fn delivery_id(source: &Source, delivery: &Delivery<'_>) -> String {
    let at = source.delivery.as_ref().map(|delivery| &delivery.at);
    match at {
        Some(crate::decide::field::FieldLocation::Header(name)) => delivery.text(name).unwrap_or("").into(),
        _ => String::new(),
    }
}
