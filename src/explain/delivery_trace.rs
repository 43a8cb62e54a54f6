//! The trace of one delivery: what each step of `judge` saw.

use super::assumptions;
use super::assumptions::AssumedHeaders;
use super::prediction::ArrivalTime;
use super::saved_delivery::SavedDelivery;
use crate::config::{ExternalValue, once_view};
use crate::decide::claim::{IdentityKey, NewEvent};
use crate::decide::delivery::{Delivery, DeliveryRejection, HeaderLookup, borrow_headers};
use crate::decide::field::{ExtractedField, ExtractedFields, FieldLocation};
use crate::decide::filter::{Filter, FilterTerm};
use crate::decide::handshake::{Handshake, HandshakeMethod};
use crate::decide::id::{EventId, Key};
use crate::decide::judge::{Verdict, WalkStep, walk};
use crate::decide::response;
use crate::decide::source::{Route, Source};
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::TimeDifference;
use bytes::Bytes;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// The record of how a delivery was evaluated without the store, for `explain`: signature, fields, filters, verdict.
pub(crate) struct DeliveryTrace {
    /// Its name.
    pub from: String,
    /// How many bytes its body has.
    pub bytes: usize,
    /// What was not in the file and is assumed.
    pub notes: Vec<String>,
    /// The source it is for.
    pub source: Arc<Source>,
    /// How the source was chosen.
    pub chosen: String,
    /// What is known of its signature.
    pub signature: SignatureCheck,
    /// The value of the event kind's header.
    pub kind: Option<String>,
    /// What was evaluated of the body; of a delivery with several elements the first few of them and the last one.
    pub contents: Vec<ContentTrace>,
    /// How many elements it has, where elements are events of their own.
    pub elements: Option<usize>,
    /// How the walk ended.
    pub verdict: Verdict,
    /// The status and the reason with which a request of this method is refused, if it is no delivery.
    pub not_allowed: Option<(u16, String)>,
    /// Whether it was rebuilt from a stored event, which was accepted when it arrived.
    pub is_stored: bool,
}

/// The record of how a body, or one element of it, was evaluated.
#[derive(Default)]
pub(crate) struct ContentTrace {
    /// The place of the element.
    pub place: Option<String>,
    /// The extracted fields, in the order of their declaration; `None` if the walk ended before.
    pub fields: Option<Vec<ExtractedField>>,
    /// The result of `require`, if it was evaluated.
    pub require: Option<FilterResult>,
    /// The result of `when`, if it was evaluated.
    pub when: Option<FilterResult>,
    /// The evaluated routes.
    pub routes: Vec<FilterResult>,
    /// Which of the delivery's events were made of it.
    pub events: Range<usize>,
}

/// Maximum number of elements whose evaluation is shown.
const ELEMENTS_SHOWN: usize = 5;

pub(crate) struct FilterResult {
    /// Of a route: its name.
    pub name: String,
    /// Its text; `None` if there is no filter.
    pub text: Option<String>,
    /// Whether the delivery passes.
    pub holds: bool,
    /// Each of its terms.
    pub terms: Vec<FilterTerm>,
}

/// What is known of a signature.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SignatureCheck {
    /// This source verifies nothing.
    None,
    /// Not checked, and why.
    Unchecked(String),
    /// It is right.
    Right,
    /// It is right, but its time does not count now: what there is instead, and by how much it is off.
    Untimely(Option<String>, Option<TimeDifference>),
    /// It is wrong: the delivery is refused. Which part was expected where, and what is there instead.
    Wrong(String),
    /// It is not looked at, and why.
    NotNeeded(String),
}

impl FilterResult {
    fn of(name: &str, filter: Option<&Filter>, found: &ExtractedFields, source: &Source, holds: bool) -> Self {
        Self {
            name: name.to_owned(),
            text: filter.map(|filter| filter.text().replace(char::is_control, " ")),
            holds,
            terms: filter.map(|filter| filter.terms(found, &source.fields)).unwrap_or_default(),
        }
    }
}

impl DeliveryTrace {
    /// The identities of an event in words, each with its key. A delivery id that is stored with the body has its key.
    pub(crate) fn identities(&self, new: &NewEvent) -> impl Iterator<Item = (String, Key)> {
        let key = |word: &str| {
            let is =
                |key: &&IdentityKey| key.matched_by.word() == word || (word == "delivery" && key.id_digest.is_some());
            new.keys.iter().find(is).map(|found| found.key)
        };
        let all = once_view::identities(&self.source).into_iter().filter_map(|(word, text)| Some((text, key(&word)?)));
        all.collect::<Vec<_>>().into_iter()
    }

    /// Evaluates a delivery without the store.
    pub(crate) fn walk(
        source: &Arc<Source>,
        chosen: String,
        saved: &SavedDelivery,
        elsewhere: &[ExternalValue],
        now: ArrivalTime,
    ) -> Self {
        let path = saved.path.as_deref().unwrap_or(source.path.shown());
        let ArrivalTime { at, wall } = now;
        let sent_headers = borrow_headers(&saved.headers);
        let sent = Delivery { path, query: &saved.query, headers: &sent_headers, body: &saved.body, at, wall };
        let find = |delivery: &Delivery<'_>| {
            let verified = source.verify.assume_verified(delivery).ok()?;
            match source.fields.elements(&verified).ok()? {
                Some(elements) if elements.is_empty() => None,
                Some(elements) => elements.fields(0).ok(),
                None => source.fields.read(&verified).ok(),
            }
        };
        let AssumedHeaders { headers, notes } = match saved.source {
            Some(_) => AssumedHeaders::default(), // a stored event needs no assumptions
            None => assumptions::assume_missing_headers(source, &sent, find),
        };
        let headers = [sent_headers.as_slice(), &borrow_headers(&headers)].concat();
        let delivery = Delivery { headers: &headers, ..sent };
        let mut told = Self {
            from: saved.from.clone(),
            bytes: saved.body.len(),
            notes: [&*saved.notes, &notes].concat(),
            signature: signature(source, &sent, elsewhere, saved.method.is_some()),
            source: source.clone(),
            chosen,
            kind: None,
            contents: vec![ContentTrace::default()],
            elements: None,
            verdict: Verdict::Events(Vec::new()),
            not_allowed: None,
            is_stored: saved.source.is_some(),
        };
        if let Some(method) = saved.method.as_deref().filter(|method| *method != HandshakeMethod::Post.word()) {
            told.record_method(method, &delivery);
            return told;
        }
        if told.is_too_large() {
            return told;
        }
        if let Some(handshake) = source.handshake(HandshakeMethod::Post, &delivery) {
            if !handshake.signed {
                told.signature = SignatureCheck::NotNeeded(UNSIGNED_HANDSHAKE.into());
            }
            let why = answered_handshake(handshake);
            told.verdict = handshake.rejection(&delivery).map_or(Verdict::Ignored(why), Verdict::Refused);
            return told;
        }
        told.verdict = match source.verify.assume_verified(&delivery) {
            Ok(verified) => {
                let made = Cell::new(0);
                let verdict = walk(source, &verified, &mut ids(&made), |step| told.record_step(&step, made.get()));
                told.end_content(made.get());
                verdict
            }
            Err(refusal) => Verdict::Refused(refusal),
        };
        told
    }

    /// A request of another method than POST: a handshake, or none that is answered.
    fn record_method(&mut self, method: &str, sent: &Delivery<'_>) {
        let source = self.source.clone();
        let body = Bytes::new(); // of these a node reads no body
        let sent = Delivery { body: &body, ..*sent };
        let known = HandshakeMethod::parse(method);
        let handshake = known.and_then(|method| source.handshake(method, &sent));
        // Without the secret it is only known that it looks like one.
        let answered = known.and_then(|method| source.answer_handshake(method, &sent));
        let is_answered = matches!(answered, Some(Ok(_))) || !source.verify.has_secret();
        if let Some(handshake) = handshake.filter(|_| is_answered) {
            if !handshake.signed {
                self.signature = SignatureCheck::NotNeeded(UNSIGNED_HANDSHAKE.into());
            }
            self.verdict = Verdict::Ignored(answered_handshake(handshake));
            return;
        }
        self.signature = SignatureCheck::NotNeeded("this is no delivery".into());
        if let Some(refused) = known.and_then(|method| source.refused_handshake(method, &sent)) {
            self.not_allowed = Some((refused.status, format!("handshake: {}", refused.why)));
            return;
        }
        let allowed = source.methods().join(", ");
        let none = if known.is_some() && source.methods().contains(&method) {
            " with nothing of a handshake in it"
        } else {
            ""
        };
        let why = format!("method: a delivery is a POST, this is a {method}{none}; allowed: {allowed}");
        self.not_allowed = Some((405, why));
    }

    /// What was evaluated last has made all events up to this one.
    fn end_content(&mut self, made: usize) {
        if let Some(content) = self.contents.last_mut() {
            content.events.end = made;
        }
    }

    fn record_step(&mut self, step: &WalkStep<'_>, made: usize) {
        let source = self.source.clone();
        if let WalkStep::Element(elements, index) = step {
            self.elements = Some(elements.len());
            self.end_content(made);
            // The first of them takes the place that was kept for a body; the last one that was judged is always kept.
            if *index == 0 || self.contents.len() == ELEMENTS_SHOWN {
                self.contents.pop();
            }
            self.contents.push(ContentTrace {
                place: Some(elements.place(*index)),
                events: made..made,
                ..ContentTrace::default()
            });
        }
        let Some(content) = self.contents.last_mut() else { return };
        match step {
            WalkStep::Kind(_, named) => self.kind = Some((*named).to_owned()),
            WalkStep::Element(..) => {}
            WalkStep::Fields(found) => {
                let slots = source.fields.iter().filter_map(|field| source.fields.ix(&field.name));
                content.fields = Some(slots.map(|ix| found.slot(ix).clone()).collect());
            }
            WalkStep::Require(filter, found, holds) => {
                content.require = Some(FilterResult::of("", Some(filter), found, &source, *holds));
            }
            WalkStep::When(filter, found, holds) => {
                content.when = Some(FilterResult::of("", Some(filter), found, &source, *holds));
            }
            WalkStep::Route(route, found, holds) => {
                content.routes.push(FilterResult::of(&route.name, route.when.as_ref(), found, &source, *holds));
            }
        }
    }

    /// The route that lets this content through.
    pub(crate) fn route(&self, content: &ContentTrace) -> Option<&Arc<Route>> {
        let asked = content.routes.iter().find(|route| route.holds)?;
        self.source.routes.iter().find(|route| *route.name == *asked.name)
    }

    /// The route of an event.
    pub(crate) fn route_of(&self, new: &NewEvent) -> Option<&Arc<Route>> {
        self.source.routes.iter().find(|route| route.name == new.event.route)
    }

    /// Whether the body is larger than the source allows: the first check.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > self.source.body_max
    }

    /// Why a node would refuse it now with 401, although its signature is right: its time; and which time would count. A
    /// stored event was accepted when it arrived. What is refused before its signature is looked at has no reason here.
    pub(crate) fn untimely(&self) -> Option<(String, &'static str)> {
        let SignatureCheck::Untimely(found, off) = &self.signature else { return None };
        if self.is_stored || self.not_allowed.is_some() || self.is_too_large() {
            return None;
        }
        // Whole seconds: more would only be noise.
        let shown = |off: &Duration| duration_text(Duration::from_secs(off.as_secs()));
        Some(match (off, found) {
            (Some(TimeDifference::Old(by, most)), _) => {
                (format!("its time is {} old, at most {} count", shown(by), duration_text(*most)), WHEN_NEW)
            }
            (Some(TimeDifference::Ahead(by, most)), _) => {
                let most = duration_text(*most);
                let why = format!(
                    "its time is too far in the future: is a clock wrong? It is {} ahead, at most {most} count",
                    shown(by)
                );
                (why, "with a right time")
            }
            (None, Some(found)) => (format!("its time does not count: {found}"), WHEN_NEW),
            (None, None) => ("it is too old".to_owned(), WHEN_NEW),
        })
    }

    /// Why it is refused: the status, the reason and its details.
    pub(crate) fn refused(&self) -> Option<(u16, String)> {
        if let Some(refused) = &self.not_allowed {
            return Some(refused.clone());
        }
        if self.is_too_large() {
            return Some((413, format!("too_large: {} bytes, at most {}", self.bytes, self.source.body_max)));
        }
        if matches!(self.signature, SignatureCheck::Wrong(_)) {
            return Some((401, "bad_signature".into()));
        }
        let Verdict::Refused(refusal) = &self.verdict else { return None };
        let detail = refusal.detail().map(|(what, detail)| match what {
            "field" => format!(": `{detail}`"),
            _ => format!(": {detail}"),
        });
        let element = refusal.element().map(|place| format!(", in {place}")).unwrap_or_default();
        let words = format!("{}{}{element}", refusal.reason(), detail.unwrap_or_default());
        Some((response::refused(refusal).status, words))
    }
}

const WHEN_NEW: &str = "when it was new";
const UNSIGNED_HANDSHAKE: &str = "the sender does not sign this handshake";

fn answered_handshake(handshake: &Handshake) -> String {
    format!("it is a handshake of the sender, which is answered without an event, with {}", handshake.status)
}

/// Ids that no event has; counts them.
fn ids(made: &Cell<usize>) -> impl FnMut() -> EventId {
    move || {
        made.set(made.get() + 1);
        EventId((made.get() as u128).to_be_bytes())
    }
}

/// Checks the signature, if there is one and the secret is available.
fn signature(source: &Source, delivery: &Delivery<'_>, elsewhere: &[ExternalValue], is_whole: bool) -> SignatureCheck {
    let places = source.verify.credential_places();
    if places.is_empty() {
        return SignatureCheck::None;
    }
    let absent = |place: &FieldLocation| match place {
        FieldLocation::Header(name) => delivery.header(name) == HeaderLookup::Missing,
        FieldLocation::Query(_) => delivery.query.is_empty(),
        _ => false,
    };
    let wrong = || {
        let scheme = source.verify.ignoring_age();
        let reason = || source.verify.rejection_reason(delivery);
        SignatureCheck::Wrong(scheme.expectation(delivery).unwrap_or_else(reason))
    };
    if places.iter().all(absent) {
        // What is not in a whole request was not sent; others may have been saved without it.
        if is_whole {
            return wrong();
        }
        let name = |place: &FieldLocation| match place {
            FieldLocation::Header(name) => name.clone(),
            other => other.to_string(),
        };
        let names: Vec<_> = places.iter().map(name).collect();
        return SignatureCheck::Unchecked(format!("no {} was saved", names.join(" or ")));
    }
    if !source.verify.has_secret() {
        let its = |value: &&ExternalValue| value.source.as_ref() == Some(&source.name) && value.what == "secret";
        let lack = elsewhere.iter().filter(its).find_map(|value| value.error.as_ref());
        return SignatureCheck::Unchecked(
            lack.map_or_else(|| "the secret is not available".into(), |(why, _)| why.clone()),
        );
    }
    // A saved delivery may be old: its signature is checked without its age first.
    match (source.verify.verify(delivery), source.verify.ignoring_age().verify(delivery)) {
        _ if source.signs_for_anyone(delivery.body) => {
            SignatureCheck::Wrong("the body is a text that a handshake signs for anyone who asks".into())
        }
        (Err(DeliveryRejection::KeyUnavailable(request)), _) | (_, Err(DeliveryRejection::KeyUnavailable(request))) => {
            SignatureCheck::Unchecked(request.words())
        }
        (Err(DeliveryRejection::SecretMissing), _) => SignatureCheck::Unchecked("the secret is not available".into()),
        (Err(DeliveryRejection::BadSignature), Ok(_)) => {
            SignatureCheck::Untimely(source.verify.difference(delivery), source.verify.time_difference(delivery))
        }
        (_, Err(DeliveryRejection::BadSignature)) => wrong(),
        // Any other rejection comes after the signature check and is part of the trace.
        _ => SignatureCheck::Right,
    }
}
