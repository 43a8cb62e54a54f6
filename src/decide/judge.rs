//! Judges a delivery: verify, parse, fields, filter, route, keys. The order never changes.
//!
//! Nothing is read before it is verified, and nothing is looked up: the store is asked later.

use super::claim::{IdentityKey, ImportedKey, ImportedKeyValidity, MatchedBy, NewEvent, Payload};
use super::delivery::Delivery;
use super::delivery::DeliveryRejection;
use super::envelope;
use super::event::{DoneReason, Event, EventState, QueueState, RetryOwner, SubjectChange, SucceededBlocks};
use super::field::{DeliveryElements, ExtractedField, ExtractedFields, FieldIndex, FieldLocation, FieldValue};
use super::filter::Filter;
use super::id::{DeliveryIdDigest, Digest, EventId, Key, QueueTurn, Revision};
use super::identity::idempotency_key;
use super::identity::key;
use super::identity::key::KeyPart;
use super::limits;
use super::source::{ApiStyle, Fanout, Group, Identity, Intake, RequiredEventKind, ResponseMode, Route, Source};
use super::time::Timestamp;
use super::trace_context;
use super::trace_context::TraceContext;
use super::verify::{SenderCredential, VerifiedDelivery};
use bytes::Bytes;
use std::sync::Arc;

/// The result of judging a delivery.
#[derive(Debug)]
pub enum Verdict {
    /// It is not verified, or cannot be read.
    Refused(DeliveryRejection),
    /// It is verified, but not wanted; the reason in one line.
    Ignored(String),
    /// These events are to be claimed: one for each receiver of the route, and of each element, in the elements' order.
    Events(Vec<NewEvent>),
}

/// One step of the walk and its result, for `explain`.
#[derive(Debug)]
#[non_exhaustive]
pub enum WalkStep<'w> {
    /// The value of the header that names the kind of event; empty where it is missing.
    Kind(&'w RequiredEventKind, &'w str),
    /// An element of the delivery; the steps that follow are about it.
    Element(&'w DeliveryElements<'w>, usize),
    /// What was found of the declared fields, and whether the body has the shape of its kind.
    Fields(&'w ExtractedFields),
    /// Whether `require` is true.
    Require(&'w Filter, &'w ExtractedFields, bool),
    /// Whether the source's `when` is true.
    When(&'w Filter, &'w ExtractedFields, bool),
    /// Whether this route's filter is true. The first route whose filter is true is the last one tried.
    Route(&'w Route, &'w ExtractedFields, bool),
}

/// Judges one delivery to one source.
pub fn judge(source: &Source, delivery: &Delivery<'_>, ids: &mut dyn FnMut() -> EventId) -> Verdict {
    verify_and_judge(source, delivery, ids, |_| {})
}

/// Like [`judge`]; calls `believed` with the index of the secret that verified the delivery.
pub fn verify_and_judge(
    source: &Source,
    delivery: &Delivery<'_>,
    ids: &mut dyn FnMut() -> EventId,
    believed: impl FnOnce(usize),
) -> Verdict {
    match source.verify_delivery(delivery) {
        Ok(verified) => {
            believed(verified.secret());
            walk(source, &verified, ids, |_| {})
        }
        Err(refusal) => Verdict::Refused(refusal),
    }
}

/// The walk after the signature check. `see` is called with each step as it is taken; a node passes a function that
/// does nothing and costs nothing.
pub fn walk(
    source: &Source,
    verified: &VerifiedDelivery<'_>,
    ids: &mut dyn FnMut() -> EventId,
    see: impl FnMut(WalkStep<'_>),
) -> Verdict {
    steps(source, verified, ids, see).unwrap_or_else(Verdict::Refused)
}

fn steps(
    source: &Source,
    verified: &VerifiedDelivery<'_>,
    ids: &mut dyn FnMut() -> EventId,
    mut see: impl FnMut(WalkStep<'_>),
) -> Result<Verdict, DeliveryRejection> {
    if let Some(kind) = &source.kind {
        let named = verified.delivery().text(&kind.header).unwrap_or("");
        see(WalkStep::Kind(kind, named));
        if kind.index_of(named).is_none() {
            return Ok(Verdict::Ignored(format!("{} was {named:?}, wanted {}", kind.header, kind.names())));
        }
    }
    match source.fields.elements(verified) {
        Ok(None) => {}
        Ok(Some(elements)) => return judge_elements(source, verified, &elements, ids, see),
        Err(rejection) => return unwanted_without_elements(source, verified).ok_or(rejection),
    }
    let found = source.fields.read(verified)?;
    let content = EventContent { bytes: verified.delivery().body, element: false };
    judge_content(source, verified, &content, &found, ids, &mut see)
}

/// The verdict on a delivery without elements that no element could have made wanted: another kind of message, which has
/// none. `None`: elements decide, so that they are missing.
fn unwanted_without_elements(source: &Source, verified: &VerifiedDelivery<'_>) -> Option<Verdict> {
    let when = source.when.as_ref().filter(|_| source.require.is_none())?;
    let around = source.fields.around_no_elements(verified)?;
    if when.may_match(&around) {
        return None;
    }
    Some(Verdict::Ignored(format!("it has no elements, and {} is not true of it", when.text())))
}

/// The bytes that one event is made of.
struct EventContent<'a> {
    /// The body, or an element of it.
    bytes: &'a Bytes,
    /// Whether they are an element.
    element: bool,
}

/// Judges each element like a body of its own. One that is rejected rejects the delivery; those that are not wanted are
/// left out.
fn judge_elements(
    source: &Source,
    verified: &VerifiedDelivery<'_>,
    elements: &DeliveryElements<'_>,
    ids: &mut dyn FnMut() -> EventId,
    mut see: impl FnMut(WalkStep<'_>),
) -> Result<Verdict, DeliveryRejection> {
    let mut events = Vec::new();
    let mut ignored = None;
    for index in 0..elements.len() {
        see(WalkStep::Element(elements, index));
        let bytes = elements.bytes(index);
        let content = EventContent { bytes: &bytes, element: true };
        let judged = elements
            .fields(index)
            .and_then(|found| judge_content(source, verified, &content, &found, ids, &mut see))
            .map_err(|rejection| DeliveryRejection::InElement {
                place: elements.place(index),
                rejection: Box::new(rejection),
            })?;
        match judged {
            Verdict::Events(mut new) => events.append(&mut new),
            Verdict::Ignored(why) => ignored = ignored.or(Some((index, why))),
            Verdict::Refused(rejection) => return Err(rejection),
        }
    }
    Ok(match ignored {
        _ if !events.is_empty() => Verdict::Events(events),
        Some((_, why)) if elements.len() == 1 => Verdict::Ignored(why),
        Some((index, why)) => Verdict::Ignored(format!(
            "none of its {} elements is wanted; {}: {why}",
            elements.len(),
            elements.place(index)
        )),
        None => Verdict::Ignored("it has no elements".into()),
    })
}

/// Judges what one event is made of.
fn judge_content(
    source: &Source,
    verified: &VerifiedDelivery<'_>,
    content: &EventContent<'_>,
    found: &ExtractedFields,
    ids: &mut dyn FnMut() -> EventId,
    see: &mut impl FnMut(WalkStep<'_>),
) -> Result<Verdict, DeliveryRejection> {
    see(WalkStep::Fields(found));
    if let Some(kind) = &source.kind {
        let named = verified.delivery().text(&kind.header).unwrap_or("");
        if !kind.index_of(named).is_some_and(|kind| found.has_shape(kind)) {
            return Err(DeliveryRejection::KindMismatch(kind.differs(named)));
        }
    }
    found.kind_fits()?;
    if let Some(require) = &source.require {
        let holds = require.matches(found);
        see(WalkStep::Require(require, found, holds));
        if !holds {
            return Err(DeliveryRejection::Forbidden);
        }
    }
    if let Some(when) = &source.when {
        let holds = when.matches(found);
        see(WalkStep::When(when, found, holds));
        if !holds {
            return Ok(Verdict::Ignored(when.explain(found, &source.fields)));
        }
    }
    let through = |route: &&Arc<Route>| {
        let through = route.when.as_ref().is_none_or(|when| when.matches(found));
        see(WalkStep::Route(route, found, through));
        through
    };
    let Some(route) = source.routes.iter().find(through) else {
        return Ok(Verdict::Ignored(no_route(source, found)));
    };
    let made = EventBuilder { source, route, verified, content, found, telling: &found.without_blanks(&source.fields) };
    made.events(ids).map(Verdict::Events)
}

fn no_route(source: &Source, found: &ExtractedFields) -> String {
    let whys = source.routes.iter().filter_map(|route| {
        let when = route.when.as_ref()?;
        Some(format!("{}: {}", route.name, when.explain(found, &source.fields)))
    });
    let whys: Vec<_> = whys.collect();
    if whys.is_empty() { "the source has no route".into() } else { format!("no route: {}", whys.join("; ")) }
}

/// Keys that are claimed, and keys that are only looked up.
type ClaimAndLookupKeys = (Vec<IdentityKey>, Vec<IdentityKey>);

/// Builds the events of a delivery on its route.
struct EventBuilder<'a> {
    source: &'a Source,
    route: &'a Route,
    verified: &'a VerifiedDelivery<'a>,
    content: &'a EventContent<'a>,
    found: &'a ExtractedFields,
    /// The same fields as identities, changes and orders read them: a blank text is a missing field.
    telling: &'a ExtractedFields,
}

impl EventBuilder<'_> {
    fn events(&self, ids: &mut dyn FnMut() -> EventId) -> Result<Vec<NewEvent>, DeliveryRejection> {
        for ix in &self.route.needs {
            self.value(self.found, *ix)?;
        }
        let delivery = self.verified.delivery();
        let digest = if self.content.element { Digest::of(self.content.bytes) } else { self.verified.body_digest() };
        let delivery_id = self.delivery_id()?;
        let payload = self.payload();
        let (count, state) = match self.route.fanout {
            Fanout::Record => (1, EventState::Done { how: DoneReason::Recorded, at: delivery.at }),
            Fanout::Actions(count) => (count, EventState::Waiting { due: Some(delivery.at) }),
        };
        let (mut events, mut payload) = (Vec::with_capacity(count.into()), payload);
        for part in 0..count {
            let own = if part + 1 == count { std::mem::take(&mut payload) } else { payload.clone() };
            events.push(self.event(part, ids(), delivery_id.clone(), digest, state.clone(), own)?);
        }
        Ok(events)
    }

    fn event(
        &self,
        part: u16,
        id: EventId,
        delivery_id: Option<Arc<str>>,
        body_digest: Digest,
        state: EventState,
        payload: Payload,
    ) -> Result<NewEvent, DeliveryRejection> {
        let (keys, former) = self.keys(part, delivery_id.as_deref(), &body_digest)?;
        let imported = self.imported(delivery_id.as_deref());
        let mut event = Event {
            id,
            revision: Revision::FIRST,
            source: self.source.name.clone(),
            route: self.route.name.clone(),
            part,
            delivery_id,
            fields: self.found.keep(&self.source.fields),
            received_at: self.verified.delivery().at,
            state,
            life: 1,
            attempt: 0,
            doubts: 0,
            failed_lookups: 0,
            blocks: SucceededBlocks::default(),
            queue_state: QueueState::Queued,
            retrier: match self.source.respond {
                ResponseMode::Accepted => RetryOwner::Node,
                ResponseMode::WhenDone { .. } => RetryOwner::Sender,
            },
            group: self.group(part)?,
            turn: QueueTurn::default(),
            change: self.change(part, id)?,
            published_again: None,
            burst_since: None,
            resolved: self.polled_digest(),
            origin: None,
            notifications: Vec::new(),
            body_digest,
            digest: body_digest,
        };
        event.digest = event.immutable_digest();
        let (kept, Route { when_busy, same_change, .. }) = (self.source.once.kept(), self.route);
        let (when_busy, same_change) = (*when_busy, *same_change);
        Ok(NewEvent { event, keys, former_keys: former, imported, payload, kept, when_busy, same_change })
    }

    /// What a registry that was polled said the image is.
    fn polled_digest(&self) -> Option<Arc<str>> {
        let Intake::Poll { digest } = self.source.intake else { return None };
        match self.found.value(digest?) {
            Some(FieldValue::Text(digest)) => Some(digest.clone()),
            _ => None,
        }
    }

    /// A key in this source's scope. Only the second and further receivers of a route are part of their keys, so that
    /// adding one does not make the first one's events new.
    fn key<'p>(&self, kind: &str, part: u16, parts: impl Iterator<Item = KeyPart<'p>> + Clone) -> Key {
        let receiver = part.to_be_bytes();
        let receiver = (part > 0).then(|| KeyPart::bytes("receiver", &receiver));
        key::key_of(&self.source.scope, kind, parts.map(|part| KeyPart { ..part }).chain(receiver))
    }

    /// The sender, where a source has several: one sender's deliveries never match another's events.
    fn sender(&self) -> Option<KeyPart<'_>> {
        match (self.verified.by(), self.source.api_style) {
            (SenderCredential::Caller(name), _) => Some(KeyPart::text("caller", name)),
            (SenderCredential::Secret(mark), ApiStyle::Api) => Some(KeyPart::bytes("credential", &mark.0)),
            // The backend authenticates callers by this header, so it is part of the key: one caller must not get
            // another's response.
            (SenderCredential::None, ApiStyle::Api) => {
                let mut headers = self.verified.delivery().headers.iter();
                let (_, value) = headers.find(|(name, _)| *name == "authorization")?;
                Some(KeyPart::bytes("authorization", value))
            }
            (SenderCredential::Secret(_) | SenderCredential::None, ApiStyle::Webhook) => None,
        }
    }

    /// The key of an identity, which includes the sender.
    fn identity_key<'p>(&self, part: u16, kind: &str, parts: impl Iterator<Item = KeyPart<'p>> + Clone) -> Key {
        self.key(kind, part, parts.map(|part| KeyPart { ..part }).chain(self.sender()))
    }

    /// The keys of a delivery, and those that an earlier version or config claimed for the same one.
    ///
    /// An id that is not signed is bound to its body. Beside the identity `body` its key cannot match anything that
    /// `body` does not: it is only looked up, and the body's key keeps the id's digest instead. Where `body` is no
    /// longer an identity, a body's key that was claimed under this same id still counts.
    fn keys(
        &self,
        part: u16,
        delivery_id: Option<&str>,
        digest: &Digest,
    ) -> Result<ClaimAndLookupKeys, DeliveryRejection> {
        let signed = self.source.delivery.as_ref().is_some_and(|delivery| delivery.signed);
        let policy = &self.source.once;
        let is_always_new = policy.new_when.as_ref().is_some_and(|when| when.matches(self.found));
        // What was signed stays an identity: a captured delivery is not a new one.
        let counts = |identity: &&Identity| !(is_always_new && matches!(identity, Identity::Body | Identity::Named(_)));
        let per = &policy.per;
        let claims_body = per.iter().filter(counts).any(|identity| *identity == Identity::Body);
        let by_body = claims_body && self.source.stores_id_with_body_key();
        let id_digest = delivery_id.map(DeliveryIdDigest::of).filter(|_| !signed && per.contains(&Identity::Delivery));
        let body = || [KeyPart::bytes("body", &digest.0)].into_iter();
        let (mut keys, mut former) = (Vec::new(), Vec::new());
        for identity in per.iter().filter(counts) {
            let one = match identity {
                Identity::Delivery => {
                    let id = delivery_id.ok_or_else(|| DeliveryRejection::MissingField("delivery".into()))?;
                    let bound = (!signed).then(body).into_iter().flatten();
                    let parts = [KeyPart::text("id", id)].into_iter().chain(bound);
                    IdentityKey::new(MatchedBy::Delivery, self.identity_key(part, "delivery", parts))
                }
                Identity::Message => match key::stream_position(self.verified.delivery()) {
                    Some(parts) => {
                        let parts = parts.iter().copied();
                        IdentityKey::new(MatchedBy::Message, self.identity_key(part, "message", parts))
                    }
                    // `explain` may not have the message; a delivery from a stream always has it.
                    None if per.len() > 1 => continue,
                    None => return Err(DeliveryRejection::MissingField("message".into())),
                },
                Identity::Body => IdentityKey {
                    id_digest,
                    ..IdentityKey::new(MatchedBy::Body, self.identity_key(part, "body", body()))
                },
                Identity::Signed => match self.source.verify.signed_time(self.verified.delivery()) {
                    Some(time) => {
                        let parts = [KeyPart::text("time", &time)].into_iter().chain(body());
                        IdentityKey::new(MatchedBy::Signed, self.identity_key(part, "signed", parts))
                    }
                    // `explain` may not have the header; a verified delivery has it.
                    None => continue,
                },
                Identity::SignedText => match self.source.verify.signed_text(self.verified.delivery()) {
                    Some(text) => {
                        let digest = Digest::of(&text);
                        let key =
                            self.identity_key(part, "signed text", [KeyPart::bytes("text", &digest.0)].into_iter());
                        IdentityKey::new(MatchedBy::SignedText, key)
                    }
                    None => return Err(DeliveryRejection::MissingField("signed".into())),
                },
                Identity::Named(fields) => {
                    let same = || MatchedBy::Fields(self.names(fields).into());
                    former.extend(self.legacy_blank_parts(fields).map(|parts| {
                        IdentityKey::new(same(), self.identity_key(part, "fields", parts.iter().copied()))
                    }));
                    let parts = self.parts(self.telling, fields)?;
                    IdentityKey::new(same(), self.identity_key(part, "fields", parts.iter().copied()))
                }
            };
            let list = if by_body && *identity == Identity::Delivery { &mut former } else { &mut keys };
            list.push(one);
        }
        if let (Some(_), false) = (id_digest, claims_body) {
            former.push(IdentityKey {
                id_digest,
                ..IdentityKey::new(MatchedBy::Body, self.identity_key(part, "body", body()))
            });
        }
        Ok((keys, former))
    }

    /// The parts that the first release used where a blank text has a default: the text as it was.
    fn legacy_blank_parts(&self, fields: &[FieldIndex]) -> Option<Vec<KeyPart<'_>>> {
        let differs = fields.iter().any(|ix| self.found.slot(*ix) != self.telling.slot(*ix));
        if differs { self.parts(self.found, fields).ok() } else { None }
    }

    /// The keys under which `import` would have written this delivery, the same for every receiver. What lacks a field
    /// was not imported.
    fn imported(&self, delivery_id: Option<&str>) -> Vec<ImportedKey> {
        let scope = &self.source.scope;
        let delivery = delivery_id.map(|id| {
            let key = key::imported_delivery(scope, id);
            ImportedKey { same: MatchedBy::Delivery, key, counts: ImportedKeyValidity::Always }
        });
        let parts = self.source.once.imported.as_deref().and_then(|fields| self.parts(self.found, fields).ok());
        let change = parts.map(|parts| {
            let key = key::imported_change(scope, &parts);
            ImportedKey { same: MatchedBy::Change, key, counts: ImportedKeyValidity::WhileRegisterEmpty }
        });
        delivery.into_iter().chain(change).collect()
    }

    fn change(&self, part: u16, event: EventId) -> Result<Option<SubjectChange>, DeliveryRejection> {
        let Some(change) = &self.source.once.change else { return self.queue_change(part, event) };
        let order = change.order.map(|ix| self.order(ix)).transpose()?;
        let of = self.parts(self.telling, &change.of)?;
        let subject = self.identity_key(part, "register", of.iter().copied());
        Ok(Some(SubjectChange { subject, value: key::value(&self.parts(self.telling, &change.to)?), order }))
    }

    /// Where only the newest waiting event is kept and the source names no subject, the subject is the route and its
    /// group's fields.
    fn queue_change(&self, part: u16, event: EventId) -> Result<Option<SubjectChange>, DeliveryRejection> {
        let (true, Some(Group::Fields(fields))) = (self.route.when_busy.replaces(), &self.route.group) else {
            return Ok(None);
        };
        let (route, fields) = (KeyPart::text("route", &self.route.name), self.parts(self.found, fields)?);
        let parts = [route].into_iter().chain(fields.iter().copied());
        Ok(Some(SubjectChange::of_queue(self.key("queue", part, parts), event)))
    }

    fn group(&self, part: u16) -> Result<Option<Key>, DeliveryRejection> {
        Ok(match &self.route.group {
            None => None,
            Some(Group::Fixed(name)) => Some(key::key("", "group", &[KeyPart::text("name", name)])),
            Some(Group::Fields(fields)) => {
                // Beside a change, a group is made of its subject's fields, and reads them as the subject does.
                let found = if self.source.once.change.is_some() { self.telling } else { self.found };
                Some(self.key("group", part, self.parts(found, fields)?.iter().copied()))
            }
        })
    }

    /// These fields, all present, and not all of them defaults: a value that every delivery shares identifies nothing.
    fn parts<'f>(
        &'f self,
        found: &'f ExtractedFields,
        fields: &[FieldIndex],
    ) -> Result<Vec<KeyPart<'f>>, DeliveryRejection> {
        let defaults = fields.iter().all(|ix| matches!(found.slot(*ix), ExtractedField::Defaulted(_)));
        if let (true, Some(first)) = (defaults, fields.first()) {
            return Err(DeliveryRejection::MissingField(self.name(*first)));
        }
        fields.iter().map(|ix| Ok(KeyPart::field(&self.source.fields.get(*ix).name, self.value(found, *ix)?))).collect()
    }

    fn value<'f>(&self, found: &'f ExtractedFields, ix: FieldIndex) -> Result<&'f FieldValue, DeliveryRejection> {
        found.value(ix).ok_or_else(|| DeliveryRejection::MissingField(self.name(ix)))
    }

    fn name(&self, ix: FieldIndex) -> Arc<str> {
        self.source.fields.get(ix).name.clone()
    }

    fn names(&self, fields: &[FieldIndex]) -> String {
        let names: Vec<_> = fields.iter().map(|ix| &*self.source.fields.get(*ix).name).collect();
        names.join("+")
    }

    fn order(&self, ix: FieldIndex) -> Result<i64, DeliveryRejection> {
        let bad = || DeliveryRejection::BadOrder(self.name(ix));
        match self.value(self.telling, ix)? {
            FieldValue::Number(raw) => raw.parse().map_err(|_| bad()),
            FieldValue::Text(text) => match (text.parse(), Timestamp::parse(text)) {
                (Ok(number), _) => Ok(number),
                (_, Some(time)) if time <= self.verified.delivery().at + limits::ORDER_AHEAD_MAX => Ok(time.0),
                _ => Err(bad()),
            },
            FieldValue::Bool(_) => Err(bad()),
        }
    }

    fn delivery_id(&self) -> Result<Option<Arc<str>>, DeliveryRejection> {
        let Some(at) = &self.source.delivery else {
            return Ok(key::message_name(self.verified.delivery()).filter(|_| !self.content.element));
        };
        if let (ApiStyle::Api, FieldLocation::Header(name)) = (self.source.api_style, &at.at) {
            return idempotency_key::key(self.verified.delivery(), name).map(Some);
        }
        let id = if self.content.element {
            self.verified.element_id(at, self.content.bytes)?
        } else {
            self.verified.delivery_id(at)?
        };
        let Some(id) = id else { return Ok(None) };
        if id.len() > limits::DELIVERY_ID_BYTES_MAX {
            return Err(DeliveryRejection::FieldTooLong("delivery".into()));
        }
        Ok(Some(id))
    }

    /// The body, with the headers that are needed to read it, that fields were read from, and that the route passes on.
    /// An element is JSON, whatever the sender calls the document around it.
    fn payload(&self) -> Payload {
        let framing = |name: &str| matches!(name, "content-type" | "content-encoding");
        let used = |name: &str| (framing(name) && !self.content.element) || self.source.fields.reads_header(name);
        let delivery = self.verified.delivery();
        let mut payload = Payload { headers: self.traced(), body: self.content.bytes.clone() };
        if self.content.element && !used("content-type") {
            payload.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        for &(name, value) in delivery.headers {
            let passed = self.route.forwarded_headers.iter().any(|passed| passed == name);
            let Ok(value) = std::str::from_utf8(value) else { continue };
            if used(name) || (passed && self.is_kind_header(name)) {
                payload.headers.push((name.to_owned(), value.to_owned()));
            } else if passed {
                payload.push_transient_header(name, value.to_owned());
            }
        }
        payload
    }

    /// Whether this header says what kind of event it is. It is not secret: if it is passed on, it is kept for a replay.
    fn is_kind_header(&self, name: &str) -> bool {
        let own = self.source.kind.as_ref().map(|kind| &*kind.header);
        [own, self.source.verify.kind_header(), Some(envelope::KIND_HEADER)].contains(&Some(name))
            || self.source.kind_headers.iter().any(|header| header == name)
    }

    /// The trace context, for the receiver of the event.
    fn traced(&self) -> Vec<(String, String)> {
        let delivery = self.verified.delivery();
        let Some(parent) = delivery.text(trace_context::PARENT).filter(|_| self.route.fanout != Fanout::Record) else {
            return Vec::new();
        };
        let states = delivery.headers.iter().filter(|(name, _)| *name == trace_context::STATE);
        let states: Option<Vec<_>> = states.map(|(_, value)| std::str::from_utf8(value).ok()).collect();
        let states = states.unwrap_or_default().join(",");
        if TraceContext::parse(parent).is_none() {
            return Vec::new();
        }
        let state = trace_context::state(&states).map(|state| (trace_context::STATE.to_owned(), state.to_owned()));
        [(trace_context::PARENT.to_owned(), parent.to_owned())].into_iter().chain(state).collect()
    }
}
