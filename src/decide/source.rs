//! A source and its routes, as resolved from the config: the data that `judge` and `Event::after` use.

use super::event::{DeathCause, RetryOwner};
use super::field::{FieldIndex, FieldLocation, FieldSet};
use super::filter::Filter;
use super::handshake::Handshake;
use super::id::Key;
use super::identity::key;
use super::ingest_path::IngestPath;
use super::limits;
use super::notification::NotificationTarget;
use super::retry::RetryPolicy;
use super::time::Duration;
use super::verify::VerificationScheme;
use std::collections::HashMap;
use std::sync::Arc;

/// Every source, found by its path.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    by_path: HashMap<Arc<str>, Arc<Source>>,
    /// Those whose path is a secret; compared in constant time.
    secret: Vec<Arc<Source>>,
    /// Those that read a stream or poll.
    elsewhere: Vec<Arc<Source>>,
}

impl Sources {
    /// These sources. Two that listen on one path are a config error.
    pub fn new(sources: impl IntoIterator<Item = Arc<Source>>) -> Self {
        let (listen, elsewhere): (Vec<_>, Vec<_>) = sources.into_iter().partition(|source| source.intake.listens());
        let (secret, open): (Vec<_>, Vec<_>) = listen.into_iter().partition(|source| source.path.is_secret());
        let by_path = open.into_iter().filter_map(|source| Some((source.path.expose()?.clone(), source)));
        Self { by_path: by_path.collect(), secret, elsewhere }
    }

    /// The source with this name that reads a stream or polls.
    pub fn named(&self, name: &str) -> Option<&Arc<Source>> {
        self.elsewhere.iter().find(|source| *source.name == *name)
    }

    /// The source that listens on this path.
    pub fn at(&self, path: &str) -> Option<&Arc<Source>> {
        self.by_path.get(path).or_else(|| self.secret.iter().find(|source| source.path.is(path)))
    }

    /// All that listen on a path, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.by_path.values().chain(&self.secret)
    }

    /// Whether the path of any source is a secret.
    pub fn have_secret_path(&self) -> bool {
        !self.secret.is_empty()
    }
}

/// A trusted sender: a path, and a way to verify its deliveries.
#[derive(Debug)]
pub struct Source {
    /// Its name.
    pub name: Arc<str>,
    /// The scope of its keys: its name, unless the config keeps an old one.
    pub scope: Arc<str>,
    /// The path it listens on. For a stream or a registry, only a display name: nothing can be sent there.
    pub path: IngestPath,
    /// How its deliveries arrive.
    pub intake: Intake,
    /// How it is verified.
    pub verify: VerificationScheme,
    /// The kind of event it is for, where the sender names the kind in an unsigned header.
    pub kind: Option<RequiredEventKind>,
    /// The headers that say what a delivery is, in lower case. They are not secret: where they are passed on, they are
    /// kept for a replay.
    pub kind_headers: Vec<String>,
    /// Where the sender's delivery id is; `None`: this sender sends none.
    pub delivery: Option<DeliveryIdLocation>,
    /// The handshakes of its sender.
    pub handshakes: Vec<Handshake>,
    /// The declared fields.
    pub fields: FieldSet,
    /// If false, the delivery gets a 403.
    pub require: Option<Filter>,
    /// If false, the delivery is ignored.
    pub when: Option<Filter>,
    /// What makes two deliveries the same event.
    pub once: DeduplicationPolicy,
    /// When the sender gets its response.
    pub respond: ResponseMode,
    /// The status of that response, where the sender does not wait for the end.
    pub accepted_status: AcceptedStatus,
    /// The protocol between it and its sender.
    pub api_style: ApiStyle,
    /// Whether a stored response that is returned again is marked, if it is a JSON object.
    pub mark_duplicates: bool,
    /// Maximum size of a body.
    pub body_max: usize,
    /// Its routes; the first whose filter passes the delivery wins.
    pub routes: Vec<Arc<Route>>,
}

/// How the deliveries of a source arrive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Intake {
    /// By HTTP, on the source's path.
    Path,
    /// As messages of a stream.
    Stream(StreamBinding),
    /// They are made here: a registry is asked what a tag points to, and each change is a delivery.
    Poll {
        /// The field with the digest that the registry named: what the event resolves to.
        digest: Option<FieldIndex>,
    },
}

impl Intake {
    /// Whether the source listens on a path.
    pub fn listens(&self) -> bool {
        *self == Self::Path
    }
}

/// A stream that messages are read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamBinding {
    /// Its name.
    pub name: Arc<str>,
    /// The consumer that all nodes share.
    pub consumer: Arc<str>,
}

/// The kinds of event that a source is for. The header that names them is not signed, so the body must have the shape of
/// the kind that the header names, and not that of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredEventKind {
    /// The header that names the kind, in lower case.
    pub header: String,
    /// The kinds that are wanted; others are ignored.
    pub any_of: Vec<WantedKind>,
}

/// A kind of event that a source is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedKind {
    /// Its name.
    pub is: String,
    /// The path that a body of this kind has, such as `registry_package`.
    pub shape: Vec<String>,
}

impl RequiredEventKind {
    /// The index of the kind of this name, if it is wanted.
    pub fn index_of(&self, named: &str) -> Option<usize> {
        self.any_of.iter().position(|kind| kind.is == named)
    }

    /// The name of the first kind: the one that samples have.
    pub fn first(&self) -> &str {
        self.any_of.first().map_or("", |kind| &kind.is)
    }

    /// The name of the kind that this body has, as far as its shape tells.
    pub fn of_body(&self, json: &[u8]) -> Option<&str> {
        let shapes = self.any_of.iter().map(|kind| &*kind.shape);
        let ix = FieldSet::new(Vec::new(), None).with_shapes(shapes).shape_of(json)?;
        self.any_of.get(ix).map(|kind| &*kind.is)
    }

    /// The names of the kinds: `"a"`, or `"a" or "b"`.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.any_of.iter().map(|kind| format!("{:?}", kind.is)).collect();
        names.join(" or ")
    }

    /// A sentence for a body that does not have the shape of this kind.
    pub(super) fn differs(&self, named: &str) -> String {
        format!("{} says {named:?}, but the body does not have the shape of that kind", self.header)
    }
}

/// Where the sender's delivery id is, and whether the signature covers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryIdLocation {
    /// Where.
    pub at: FieldLocation,
    /// Whether it is signed: then the id alone is the key; otherwise the body's digest is part of the key.
    pub signed: bool,
}

/// What makes two deliveries the same event, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct DeduplicationPolicy {
    /// Identities: a delivery is a duplicate if any one of them is claimed.
    pub per: Vec<Identity>,
    /// The identity that was added without being configured: what was signed, since the signature does not cover the
    /// delivery id.
    pub implied: Option<Identity>,
    /// The subject that an event changes, and its value.
    pub change: Option<ChangeRule>,
    /// Deliveries of which this is true are events of their own: neither equal bodies nor equal fields make them one.
    pub new_when: Option<Filter>,
    /// The fields that identify an imported change; set by a preset.
    pub imported: Option<Vec<FieldIndex>>,
    /// How long an event's keys are kept, from its end.
    pub keep: Keep,
    /// How long its body and receipt are kept.
    pub keep_body: Duration,
    /// Whether a failure is kept as a response: a repeat gets it again, and causes no attempt.
    pub keep_failures: bool,
}

/// What kind of client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ApiStyle {
    /// A sender of webhooks. Its several secrets belong to one sender, and it may send the same content in different
    /// bytes.
    #[default]
    Webhook,
    /// The client of an HTTP API, with an `Idempotency-Key`. Each secret belongs to another client, another body under
    /// the same key is an error, and errors are reported as RFC 9457 problems.
    Api,
}

/// How long something is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// This long.
    For(Duration),
    /// For ever: a captured delivery that is replayed later would look like a rollback.
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
    /// The longer of both, for each part.
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
    /// The retention of a source that configures none.
    fn default() -> Self {
        Self { keys: Keep::For(Duration::from_hours(30 * 24)), body: Duration::from_hours(7 * 24) }
    }
}

impl Source {
    /// A source of this name that records each body once.
    pub fn new(name: &str, verify: VerificationScheme) -> Self {
        Self {
            name: name.into(),
            scope: name.into(),
            path: IngestPath::open(&format!("/in/{name}")),
            intake: Intake::Path,
            verify,
            kind: None,
            kind_headers: Vec::new(),
            delivery: None,
            handshakes: Vec::new(),
            fields: FieldSet::new(Vec::new(), None),
            require: None,
            when: None,
            once: DeduplicationPolicy::default(),
            respond: ResponseMode::Accepted,
            accepted_status: AcceptedStatus::default(),
            api_style: ApiStyle::Webhook,
            mark_duplicates: false,
            body_max: limits::BODY_BYTES_MAX,
            routes: vec![Arc::new(Route::default())],
        }
    }

    /// Whether anyone may know where its deliveries go: it listens on a path that is no secret.
    pub fn has_public_path(&self) -> bool {
        self.intake.listens() && !self.path.is_secret()
    }

    /// Whether an attacker who captured a delivery could send it again under another id and pass verification: the
    /// signature covers no id.
    pub fn has_unsigned_ids(&self) -> bool {
        let covers = |id: &DeliveryIdLocation| self.verify.covers(&id.at);
        (self.verify.signs_body() && !self.delivery.as_ref().is_some_and(covers))
            || self.verify.signs_other_than_bytes()
    }

    /// Whether the same bytes are the same event, whatever id they come under.
    pub fn dedups_by_body(&self) -> bool {
        let in_body = |ix: &FieldIndex| self.fields.get(*ix).places().all(FieldLocation::is_in_body);
        self.once.per.iter().any(|identity| match identity {
            Identity::Body | Identity::Signed | Identity::SignedText => true,
            Identity::Named(fields) => fields.iter().all(in_body),
            Identity::Delivery => self.verify.signed_places().is_some(),
            Identity::Message => false,
        })
    }

    /// Whether the delivery id's own key is left out. Where the signature does not cover the id, that key is made from
    /// the id and the body, so that beside the identity `body` it never matches what `body` does not.
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

/// One kind of identity: what makes two deliveries the same.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Identity {
    /// The sender's delivery id.
    Delivery,
    /// The position of a message in its stream.
    Message,
    /// The verified bytes.
    Body,
    /// The time that was signed with the bytes, and the bytes. Added where the signature does not cover the delivery
    /// id: the same bytes signed at another time are a second act of the sender.
    Signed,
    /// What was signed, where the bytes are not: all deliveries that one signature fits.
    SignedText,
    /// These fields, taken together.
    Named(Vec<FieldIndex>),
}

/// A register per `of`: a delivery with another `to` than the current one is new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeRule {
    /// The subject.
    pub of: Vec<FieldIndex>,
    /// What it is changed to.
    pub to: Vec<FieldIndex>,
    /// The sender's order.
    pub order: Option<FieldIndex>,
}

/// When the sender gets its response.
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

/// The status of a response that says that an event is durable: some senders take only theirs for success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AcceptedStatus {
    /// 200.
    Ok,
    /// 202.
    #[default]
    Accepted,
    /// 204: every success has no body.
    NoContent,
}

impl AcceptedStatus {
    /// The number.
    pub fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::Accepted => 202,
            Self::NoContent => 204,
        }
    }
}

/// A route of a source: a name, a filter, and the policies for its events. The action itself is known to `action`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// The filter; without one every delivery passes.
    pub when: Option<Filter>,
    /// The group whose events must not overlap.
    pub group: Option<Group>,
    /// What happens to events that wait while another of their subject arrives.
    pub when_busy: WhenBusy,
    /// What a newer delivery of its subject's current change counts as.
    pub same_change: SameChange,
    /// How many attempts may begin in a given time.
    pub budget: Option<AttemptBudget>,
    /// What happens if what an event deployed is not healthy.
    pub on_unhealthy: OnUnhealthy,
    /// Who is told about the ends of its events.
    pub notify: Arc<[NotificationTarget]>,
    /// How failures are retried.
    pub retry: RetryPolicy,
    /// How many attempts may fail once a sender that waited for the end got a 202 and no longer retries. `None`: as
    /// many as `retry` says.
    pub attempts_once_accepted: Option<u32>,
    /// Whether an event that may have acted is retried or held for an operator.
    pub in_doubt: InDoubtPolicy,
    /// What an attempt that our own timeout ended is counted as.
    pub timeouts: TimeoutAccounting,
    /// What a repeat of an event that has ended does.
    pub redelivery: RedeliveryPolicy,
    /// How long one node alone may act.
    pub lease: Duration,
    /// Maximum concurrent attempts of this route on one node.
    pub max_concurrency: usize,
    /// How many events one delivery makes.
    pub fanout: Fanout,
    /// Fields that its action uses as parameters.
    pub needs: Vec<FieldIndex>,
    /// Headers of the sender that its action passes on, in lower case.
    pub forwarded_headers: Vec<String>,
}

/// How many events one delivery makes on a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fanout {
    /// One, which is done as soon as it is claimed: there is no action.
    Record,
    /// One for each receiver, claimed together.
    Actions(u16),
}

/// Events that must not overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// One group for the whole store.
    Fixed(String),
    /// One group for each combination of these fields.
    Fields(Vec<FieldIndex>),
}

/// What happens to the events of a subject that wait while a newer one arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenBusy {
    /// They all run, one after another.
    #[default]
    Queue,
    /// Only the newest is kept; the others end as superseded.
    Replace {
        /// How long the newest waits for a still newer one.
        debounce: Option<Debounce>,
    },
}

impl WhenBusy {
    /// Whether the newest event replaces the others.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Replace { .. })
    }

    /// How long a new event waits for the next one.
    pub fn debounce(self) -> Option<Debounce> {
        match self {
            Self::Queue => None,
            Self::Replace { debounce } => debounce,
        }
    }
}

/// Waiting until a burst of events is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debounce {
    /// The burst is over when no event has arrived for this long.
    pub quiet: Duration,
    /// An event starts at the latest this long after the first one of its burst.
    pub max: Duration,
}

/// How many attempts of a route may begin in a given time, all nodes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttemptBudget {
    /// Maximum number of attempts that begin within the time.
    pub runs: u32,
    /// The time, counted back from each attempt.
    pub within: Duration,
    /// What happens to an event that would exceed it.
    pub exceeded: BudgetExceeded,
    /// What it is counted for.
    pub per: BudgetScope,
}

impl AttemptBudget {
    /// Where the attempts of a whole route are counted; `None` if each of its groups has a count of its own.
    pub fn route_key(&self, source: &str, route: &str) -> Option<Key> {
        (self.per == BudgetScope::Route).then(|| key::budget(source, route, None))
    }
}

/// What happens to an event that would exceed its route's budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BudgetExceeded {
    /// It waits until there is room.
    Wait,
    /// It is dead of `over_budget`.
    Drop,
}

/// What a budget is counted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BudgetScope {
    /// The route.
    Route,
    /// Each group of the route.
    Group,
}

/// What a newer delivery of its subject's current change counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SameChange {
    /// A duplicate: that change has an event.
    Duplicate,
    /// A hint, where a registry says what is deployed: the tag may have been moved away and back since it was asked.
    Hint,
}

/// What happens after a deploy that is not healthy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnUnhealthy {
    /// It is left to an operator.
    #[default]
    Hold,
    /// The last good event is deployed again.
    Rollback,
}

/// What to do when the outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InDoubtPolicy {
    /// Retry it: at least once.
    Retry,
    /// Leave it to an operator: at most once.
    Hold,
    /// There is no doubt: what was not written together with the event's end was not done, and is done again.
    Never,
}

impl InDoubtPolicy {
    /// The cause of death when the last permitted attempt has an unknown outcome.
    pub fn cause(self) -> DeathCause {
        match self {
            Self::Retry | Self::Hold => DeathCause::InDoubt,
            Self::Never => DeathCause::Failed,
        }
    }
}

/// What an attempt that our own timeout ended is counted as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeoutAccounting {
    /// `attempts`, as a failure is.
    Attempts,
    /// The limit of doubts. For actions where a second copy is harmless: a stream drops a message whose id it has seen.
    Doubts,
}

impl Route {
    /// How many attempts may fail or time out.
    pub fn attempts(&self, retrier: RetryOwner) -> u32 {
        match retrier {
            RetryOwner::Sender => self.retry.attempts,
            RetryOwner::Node => self.attempts_once_accepted.unwrap_or(self.retry.attempts),
        }
    }

    /// How many attempts of one life may have an unknown outcome. The last of them ends the life.
    pub fn doubts_max(&self, retrier: RetryOwner) -> u32 {
        match self.in_doubt {
            InDoubtPolicy::Hold => 1,
            InDoubtPolicy::Retry | InDoubtPolicy::Never => self.attempts(retrier).max(limits::DOUBTS_MIN),
        }
    }
}

/// What a repeat of an event that has ended does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedeliveryPolicy {
    /// It gives the event another attempt, if it has been dead for long enough.
    Retry {
        /// Minimum wait for a delivery under an id that the event already has.
        same_after: Duration,
        /// Minimum wait for any other delivery of the event.
        other_after: Duration,
    },
    /// The same, and a repeat of the delivery of an event that was published has it published once more: the worker
    /// behind the stream knows the result and decides. Only on a route that publishes.
    Again {
        /// Minimum wait for a delivery under an id that a dead event already has.
        same_after: Duration,
        /// Minimum wait for any other delivery of a dead event.
        other_after: Duration,
        /// Minimum wait for the delivery of an event that was published, since it ended or was last published.
        published_after: Duration,
    },
    /// Nothing.
    Ignore,
}

impl Default for DeduplicationPolicy {
    /// Once per body.
    fn default() -> Self {
        let Retention { keys: keep, body: keep_body } = Retention::default();
        Self {
            per: vec![Identity::Body],
            implied: None,
            change: None,
            new_when: None,
            imported: None,
            keep,
            keep_body,
            keep_failures: false,
        }
    }
}

impl Default for Route {
    /// A route named "1" that only records.
    fn default() -> Self {
        Self {
            name: "1".into(),
            when: None,
            group: None,
            when_busy: WhenBusy::Queue,
            same_change: SameChange::Duplicate,
            budget: None,
            on_unhealthy: OnUnhealthy::Hold,
            notify: Arc::default(),
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
