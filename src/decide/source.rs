//! A source and its routes, as resolved from the config: what `judge` and `after` go by. Data, no behaviour.

use super::event::{DeathCause, Retrier};
use super::field::{FieldIndex, FieldLocation, FieldSet};
use super::filter::Filter;
use super::limits;
use super::retry::RetryPolicy;
use super::time::Duration;
use super::verify::VerificationScheme;
use std::collections::HashMap;
use std::sync::Arc;

/// Every source, found by its path.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    by_path: HashMap<Arc<str>, Arc<Source>>,
}

impl Sources {
    /// Those of these that listen. Two on one path are refused by the config.
    pub fn new(sources: impl IntoIterator<Item = Arc<Source>>) -> Self {
        let listen = sources.into_iter().filter(|source| source.stream.is_none());
        Self { by_path: listen.map(|s| (s.path.clone(), s)).collect() }
    }

    /// The source that listens on this path.
    pub fn at(&self, path: &str) -> Option<&Arc<Source>> {
        self.by_path.get(path)
    }

    /// Each of them, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.by_path.values()
    }
}

/// A sender we believe: a path and a way to verify.
#[derive(Debug)]
pub struct Source {
    /// Its name.
    pub name: Arc<str>,
    /// What its keys are made under; its name, unless the config keeps an old one.
    pub scope: Arc<str>,
    /// Where it listens. Of a stream, what people call it: nothing can be sent there.
    pub path: Arc<str>,
    /// The stream it takes from, in place of listening.
    pub stream: Option<StreamBinding>,
    /// How it is verified.
    pub verify: VerificationScheme,
    /// The kind of event it is for, where the sender says the kind in an unsigned header.
    pub kind: Option<RequiredEventKind>,
    /// Where the sender's delivery id is; `None`: this sender has none.
    pub delivery: Option<DeliveryIdLocation>,
    /// The declared fields.
    pub fields: FieldSet,
    /// False: 403.
    pub require: Option<Filter>,
    /// False: ignored.
    pub when: Option<Filter>,
    /// What makes two deliveries the same event.
    pub once: DeduplicationPolicy,
    /// When the sender is answered.
    pub respond: ResponseMode,
    /// How it is spoken to.
    pub api_style: ApiStyle,
    /// A kept answer that is given again is marked, where it is a JSON object.
    pub mark_duplicates: bool,
    /// The longest body.
    pub body_max: usize,
    /// Where to go; the first that lets the delivery through wins.
    pub routes: Vec<Arc<Route>>,
}

/// A stream that messages are taken from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamBinding {
    /// Its name.
    pub name: Arc<str>,
    /// The consumer that all nodes share.
    pub consumer: Arc<str>,
}

/// The kind of event a preset is for. The header that names it is not signed, so the body must have its shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredEventKind {
    /// The header that names the kind, in lower case.
    pub header: String,
    /// The kind that counts; others are ignored.
    pub is: String,
    /// The path a body of that kind has, such as `registry_package`.
    pub shape: Vec<String>,
}

impl RequiredEventKind {
    /// A body of another kind came under this one, in a sentence.
    pub(super) fn differs(&self) -> String {
        format!("{} says {:?}, and the body does not have the shape of that kind", self.header, self.is)
    }
}

/// Where the sender's delivery id is, and whether the signature covers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryIdLocation {
    /// Where.
    pub at: FieldLocation,
    /// Signed: the id alone is the key. Not signed: the body's digest is part of it.
    pub signed: bool,
}

/// What makes two deliveries the same event, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct DeduplicationPolicy {
    /// Identities: a delivery is a duplicate if any one of them is claimed.
    pub per: Vec<Identity>,
    /// The one of them that nobody wrote: what was signed, since the signature does not cover the delivery id.
    pub implied: Option<Identity>,
    /// A subject that is changed to something.
    pub change: Option<ChangeRule>,
    /// What an imported change is known by; a preset says so.
    pub imported: Option<Vec<FieldIndex>>,
    /// How long an event's keys are remembered, from its end.
    pub keep: Keep,
    /// How long its body and receipt are.
    pub keep_body: Duration,
    /// A failure is kept as an answer: a repeat hears it again, and does not try again.
    pub keep_failures: bool,
}

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ApiStyle {
    /// A sender of webhooks: its several secrets are one sender's, and it may write the same thing in other bytes.
    #[default]
    Webhook,
    /// The client of an HTTP API, with an `Idempotency-Key`: each secret is somebody else's, another body under a key is
    /// a mistake, and problems are told as RFC 9457 says.
    Api,
}

/// How long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// This long.
    For(Duration),
    /// A capture replayed later would look like a roll-back.
    Forever,
}

/// How long an event's parts are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// The event and its keys.
    pub keys: Keep,
    /// Its body, receipt and output.
    pub body: Duration,
}

impl Retention {
    /// The longer of both, of each part.
    #[must_use]
    pub fn longest(self, other: Self) -> Self {
        let keys = match (self.keys, other.keys) {
            (Keep::For(one), Keep::For(other)) => Keep::For(one.max(other)),
            (Keep::Forever, _) | (_, Keep::Forever) => Keep::Forever,
        };
        Self { keys, body: self.body.max(other.body) }
    }
}

impl Default for Retention {
    /// What a config that says nothing means.
    fn default() -> Self {
        Self { keys: Keep::For(Duration::from_hours(30 * 24)), body: Duration::from_hours(7 * 24) }
    }
}

impl Source {
    /// Could whoever captured a delivery send it again under another id, and be believed? The signature covers no id.
    pub fn has_unsigned_ids(&self) -> bool {
        let covers = |id: &DeliveryIdLocation| self.verify.covers(&id.at);
        let signs = !matches!(self.verify.shared_scheme(), VerificationScheme::Bearer(_) | VerificationScheme::None);
        signs && !self.delivery.as_ref().is_some_and(covers)
    }

    /// Are the same bytes the same event, whatever id they come under?
    pub fn dedups_by_body(&self) -> bool {
        let in_body = |ix: &FieldIndex| matches!(self.fields.get(*ix).at, FieldLocation::Body(_));
        self.once.per.iter().any(|identity| match identity {
            Identity::Body | Identity::Signed => true,
            Identity::Named(fields) => fields.iter().all(in_body),
            Identity::Delivery | Identity::Message => false,
        })
    }

    /// Is the delivery id's own key left out? Where the signature does not cover the id, that key is made of the id and
    /// the body, so that beside the identity `body` it never matches what `body` does not.
    pub fn stores_id_with_body_key(&self) -> bool {
        let signed = self.delivery.as_ref().is_some_and(|delivery| delivery.signed);
        !signed && self.once.per.contains(&Identity::Delivery) && self.once.per.contains(&Identity::Body)
    }
}

impl DeduplicationPolicy {
    /// How long this source's events are kept.
    pub fn kept(&self) -> Retention {
        Retention { keys: self.keep, body: self.keep_body }
    }
}

/// One thing that makes two deliveries the same.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Identity {
    /// The sender's delivery id.
    Delivery,
    /// Of a stream's message: where it stands in its stream.
    Message,
    /// The verified bytes.
    Body,
    /// The time that was signed with the bytes, and the bytes. Implied where the signature does not cover the delivery
    /// id: the same bytes signed anew are the sender's second act.
    Signed,
    /// These fields, taken together.
    Named(Vec<FieldIndex>),
}

/// A register per `of`: another `to` than the current one is new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeRule {
    /// The subject.
    pub of: Vec<FieldIndex>,
    /// What it is changed to.
    pub to: Vec<FieldIndex>,
    /// The sender's order.
    pub order: Option<FieldIndex>,
}

/// When the sender is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseMode {
    /// When the event is durable.
    Accepted,
    /// When it is done, with the receipt; at the latest after `within`.
    WhenDone {
        /// This long.
        within: Duration,
    },
}

/// Within a source: a name, a filter, and how to treat what it lets through. What is done is known to `action`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// Lets a delivery through; none lets everything through.
    pub when: Option<Filter>,
    /// Events that must not overlap.
    pub group: Option<Group>,
    /// What failed is tried again.
    pub retry: RetryPolicy,
    /// How many attempts may fail once a sender that waited for the end was told 202, and no longer retries. `None`: as
    /// many as `retry` says.
    pub attempts_once_accepted: Option<u32>,
    /// What may have acted is tried again, or held for a person.
    pub in_doubt: InDoubtPolicy,
    /// What an attempt that our own timeout ended is counted as.
    pub timeouts: TimeoutAccounting,
    /// What a repeat of an event that is over does.
    pub redelivery: RedeliveryPolicy,
    /// How long one node alone may act.
    pub lease: Duration,
    /// Attempts of this route at once on one node.
    pub max_concurrency: usize,
    /// How many events one delivery makes.
    pub fanout: Fanout,
    /// Fields its action uses as parameters.
    pub needs: Vec<FieldIndex>,
    /// Headers of the sender that its action passes on, in lower case.
    pub forwarded_headers: Vec<String>,
}

/// How many events one delivery makes on a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fanout {
    /// One, done as soon as it is claimed: there is no action.
    Record,
    /// One for each receiver, claimed together.
    Actions(u16),
}

/// Events that must not overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// One group of the whole store.
    Fixed(String),
    /// One for each combination of these fields.
    Fields(Vec<FieldIndex>),
}

/// What to do when the outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InDoubtPolicy {
    /// Try again: at least once.
    Retry,
    /// Leave it to a person: at most once.
    Hold,
    /// It never is: what was not written together with the event's end was not done, and is done again.
    Never,
}

impl InDoubtPolicy {
    /// What an event dies of when the last permitted attempt has an unknown outcome.
    pub fn cause(self) -> DeathCause {
        match self {
            Self::Retry | Self::Hold => DeathCause::InDoubt,
            Self::Never => DeathCause::Failed,
        }
    }
}

/// Which limit an attempt with an unknown outcome is counted against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeoutAccounting {
    /// `attempts`, as a failure is.
    Attempts,
    /// The limit of doubts. Where a second copy is harmless: a stream drops a message whose id it has seen.
    Doubts,
}

impl Route {
    /// How many attempts may fail or time out.
    pub fn attempts(&self, retrier: Retrier) -> u32 {
        match retrier {
            Retrier::Sender => self.retry.attempts,
            Retrier::Node => self.attempts_once_accepted.unwrap_or(self.retry.attempts),
        }
    }

    /// How many attempts of one life may be left without an outcome. The last of them ends it.
    pub fn doubts_max(&self, retrier: Retrier) -> u32 {
        match self.in_doubt {
            InDoubtPolicy::Hold => 1,
            InDoubtPolicy::Retry | InDoubtPolicy::Never => self.attempts(retrier).max(limits::DOUBTS_MIN),
        }
    }
}

/// What a repeat of an event that is over does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedeliveryPolicy {
    /// It gives the event another attempt, if it has been dead for long enough.
    Retry {
        /// For a delivery under an id the event already has.
        same_after: Duration,
        /// For any other delivery of the event.
        other_after: Duration,
    },
    /// The same, and a repeat of the delivery of an event that was published has it published once more: the worker
    /// behind the stream knows what became of it, and decides. Only on a route that publishes.
    Again {
        /// For a delivery under an id that a dead event already has.
        same_after: Duration,
        /// For any other delivery of a dead event.
        other_after: Duration,
        /// For the delivery of an event that was published: since it ended, or was last published.
        published_after: Duration,
    },
    /// Nothing.
    Ignore,
}

impl Default for Route {
    /// A route named "1" that only records.
    fn default() -> Self {
        Self {
            name: "1".into(),
            when: None,
            group: None,
            retry: RetryPolicy { attempts: 1, first: Duration::from_secs(10), longest: Duration::from_hours(1) },
            attempts_once_accepted: None,
            in_doubt: InDoubtPolicy::Retry,
            timeouts: TimeoutAccounting::Attempts,
            redelivery: RedeliveryPolicy::Retry {
                same_after: limits::REDELIVERY_AFTER,
                other_after: Duration::from_mins(1),
            },
            lease: Duration::from_secs(30),
            max_concurrency: 64,
            fanout: Fanout::Record,
            needs: Vec::new(),
            forwarded_headers: Vec::new(),
        }
    }
}
