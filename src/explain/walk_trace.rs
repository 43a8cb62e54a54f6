//! One delivery, walked: what each step saw. The steps themselves are `judge`'s.

use super::assumptions;
use super::assumptions::AssumedHeaders;
use super::prediction::ArrivalTime;
use super::saved_delivery::SavedDelivery;
use crate::config::{ExternalValue, view};
use crate::decide::claim::{IdentityKey, NewEvent};
use crate::decide::delivery::DeliveryRejection;
use crate::decide::delivery::{Delivery, HeaderLookup};
use crate::decide::field::{ExtractedField, ExtractedFields};
use crate::decide::filter::{Filter, FilterTerm};
use crate::decide::id::{EventId, Key};
use crate::decide::judge::{Verdict, WalkStep, walk};
use crate::decide::response;
use crate::decide::source::{Route, Source};
use std::sync::Arc;

/// A delivery that was walked.
pub(crate) struct WalkTrace {
    /// What it is called.
    pub from: String,
    /// How many bytes its body has.
    pub bytes: usize,
    /// What was not in the file, and is taken for granted.
    pub notes: Vec<String>,
    /// The source it is for.
    pub source: Arc<Source>,
    /// How that is known.
    pub chosen: String,
    /// What is known of its signature.
    pub signature: SignatureCheck,
    /// What the header that names the kind says.
    pub kind: Option<String>,
    /// What was found of each field, in the order of their declaration; `None`: nobody came to look.
    pub fields: Option<Vec<ExtractedField>>,
    /// `require`, where it was asked.
    pub require: Option<FilterResult>,
    /// `when`, where it was asked.
    pub when: Option<FilterResult>,
    /// The routes that were asked.
    pub routes: Vec<FilterResult>,
    /// How the walk ended.
    pub verdict: Verdict,
}

/// A filter that was asked.
pub(crate) struct FilterResult {
    /// Of a route: its name.
    pub name: String,
    /// As it is written; `None`: there is none, so everything is let through.
    pub text: Option<String>,
    /// Did it let the delivery through?
    pub holds: bool,
    /// Each of its terms.
    pub terms: Vec<FilterTerm>,
}

/// What is known of a signature.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SignatureCheck {
    /// This source verifies nothing.
    None,
    /// Not checked, because of this.
    Unchecked(String),
    /// It is right.
    Right,
    /// It is right, and too old to be believed now.
    Old,
    /// It is wrong: the delivery is refused, and the rest is what would be if it were not.
    Wrong,
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

impl WalkTrace {
    /// What makes this event of it the same as another, in words, each with its key. An id that is known by its body has
    /// that body's key.
    pub(crate) fn identities(&self, new: &NewEvent) -> impl Iterator<Item = (String, Key)> {
        let key = |word: &str| {
            let is =
                |key: &&IdentityKey| key.matched_by.word() == word || (word == "delivery" && key.id_digest.is_some());
            new.keys.iter().find(is).map(|found| found.key)
        };
        let all = view::identities(&self.source).into_iter().filter_map(|(word, text)| Some((text, key(&word)?)));
        all.collect::<Vec<_>>().into_iter()
    }

    /// Walks a delivery. What the store knows is another question.
    pub(crate) fn walk(
        source: &Arc<Source>,
        chosen: String,
        saved: &SavedDelivery,
        elsewhere: &[ExternalValue],
        now: ArrivalTime,
    ) -> Self {
        let path = saved.path.as_deref().unwrap_or(&source.path);
        let ArrivalTime { at, wall } = now;
        let sent = Delivery { path, query: &saved.query, headers: &saved.headers, body: &saved.body, at, wall };
        let find = |delivery: &Delivery<'_>| source.fields.read(&source.verify.assume_verified(delivery).ok()?).ok();
        let AssumedHeaders { headers, notes } = match saved.source {
            Some(_) => AssumedHeaders::default(), // what is kept of an event is all there was to keep
            None => assumptions::assume_missing_headers(source, &sent, find),
        };
        let headers = [&*saved.headers, &headers].concat();
        let delivery = Delivery { headers: &headers, ..sent };
        let mut told = Self {
            from: saved.from.clone(),
            bytes: saved.body.len(),
            notes: [&*saved.notes, &notes].concat(),
            signature: signature(source, &sent, elsewhere),
            source: source.clone(),
            chosen,
            kind: None,
            fields: None,
            require: None,
            when: None,
            routes: Vec::new(),
            verdict: Verdict::Events(Vec::new()),
        };
        if told.is_too_large() {
            return told;
        }
        told.verdict = match source.verify.assume_verified(&delivery) {
            Ok(verified) => walk(source, &verified, &mut ids(), |step| told.record_step(&step)),
            Err(refusal) => Verdict::Refused(refusal),
        };
        told
    }

    fn record_step(&mut self, step: &WalkStep<'_>) {
        let source = self.source.clone();
        match step {
            WalkStep::Kind(_, named) => self.kind = Some((*named).to_owned()),
            WalkStep::Fields(found) => {
                let slots = source.fields.iter().filter_map(|field| source.fields.ix(&field.name));
                self.fields = Some(slots.map(|ix| found.slot(ix).clone()).collect());
            }
            WalkStep::Require(filter, found, holds) => {
                self.require = Some(FilterResult::of("", Some(filter), found, &source, *holds));
            }
            WalkStep::When(filter, found, holds) => {
                self.when = Some(FilterResult::of("", Some(filter), found, &source, *holds));
            }
            WalkStep::Route(route, found, holds) => {
                self.routes.push(FilterResult::of(&route.name, route.when.as_ref(), found, &source, *holds));
            }
        }
    }

    /// The route that lets it through.
    pub(crate) fn route(&self) -> Option<&Arc<Route>> {
        let asked = self.routes.iter().find(|route| route.holds)?;
        self.source.routes.iter().find(|route| *route.name == *asked.name)
    }

    /// The first step of all: no sender is heard for longer than this.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > self.source.body_max
    }

    /// Why it is refused: the status, the word, and what more there is to say.
    pub(crate) fn refused(&self) -> Option<(u16, String)> {
        if self.is_too_large() {
            return Some((413, format!("too_large: {} bytes, at most {}", self.bytes, self.source.body_max)));
        }
        if self.signature == SignatureCheck::Wrong {
            return Some((401, "bad_signature".into()));
        }
        let Verdict::Refused(refusal) = &self.verdict else { return None };
        let detail = refusal.detail().map(|(what, detail)| match what {
            "field" => format!(": `{detail}`"),
            _ => format!(": {detail}"),
        });
        let words = format!("{}{}", refusal.reason(), detail.unwrap_or_default());
        Some((response::refused(refusal).status, words))
    }
}

/// Ids that no event has.
fn ids() -> impl FnMut() -> EventId {
    let mut next = 0_u128;
    move || {
        next += 1;
        EventId(next.to_be_bytes())
    }
}

/// Checks what can be checked here. Without a secret, or without a signature, nothing can.
fn signature(source: &Source, delivery: &Delivery<'_>, elsewhere: &[ExternalValue]) -> SignatureCheck {
    let headers = source.verify.signature_headers();
    if headers.is_empty() {
        return SignatureCheck::None;
    }
    if headers.iter().all(|name| delivery.header(name) == HeaderLookup::Missing) {
        return SignatureCheck::Unchecked(format!("there is no {} here", headers.join(" or ")));
    }
    if !source.verify.has_secret() {
        let its = |value: &&ExternalValue| value.source.as_ref() == Some(&source.name) && value.what == "secret";
        let lack = elsewhere.iter().filter(its).find_map(|value| value.error.as_ref());
        return SignatureCheck::Unchecked(
            lack.map_or_else(|| "there is no secret here".into(), |(why, _)| why.clone()),
        );
    }
    // A file has its time too: what was right when it was sent is not wrong now.
    match (source.verify.verify(delivery), source.verify.ignoring_age().verify(delivery)) {
        (Err(DeliveryRejection::BadSignature), Ok(_)) => SignatureCheck::Old,
        (_, Err(DeliveryRejection::BadSignature)) => SignatureCheck::Wrong,
        // Another refusal comes after the signature was right, and is told by the walk.
        _ => SignatureCheck::Right,
    }
}
