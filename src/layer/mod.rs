//! The engine as a tower layer for your own axum, hyper or tonic service, and for code with no HTTP at all.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use axum::{Router, routing::post};
//! use hookonce::{Once, days, header};
//!
//! async fn ingest(body: String) -> String {
//!     format!("{} bytes are in\n", body.len())
//! }
//!
//! let store = hookonce::store::open("memory:").await?;
//! let app: Router = Router::new()
//!     .route("/ingest", post(ingest))
//!     .layer(Once::new(store).per(header("idempotency-key")).keep(days(1)));
//! # drop(app); Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
//! ```
//!
//! With tonic it wraps all services, and the key is the metadata of that name; with hyper alone, [`Layer::layer`] wraps
//! any service:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let once = hookonce::Once::new(hookonce::store::open("memory:").await?).optional();
//! let server = tonic::transport::Server::builder().layer(once); // .add_service(…)
//! # drop(server); Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
//! ```
//!
//! Every gRPC call is a `POST`, even if it only reads: without [`Once::optional`] such calls need a key, too, including
//! the health checks of a load balancer. A request with a key is buffered before it is looked up, and its response
//! before it is returned, up to their limits: bidirectional streams must come without a key, or use a server of their
//! own.
//!
//! The first request under a key is claimed in the store before the service is called. A repeat that arrives while it
//! runs waits for it; a later one gets the first response again, with `Idempotent-Replayed: true`. A failure is not
//! kept, and a repeat runs again. After a crash the next request runs, once the [lease](Once::lease) of the crashed
//! process has expired.
//!
//! | the request | what happens |
//! |---|---|
//! | `GET`, `HEAD`, `OPTIONS`, `TRACE`, `CONNECT` | passes through |
//! | new | the service is called; its response is kept, then returned |
//! | a repeat of a running one | waits for its response, also if that is a failure; after [`Once::wait`] 409 and `Retry-After` |
//! | a repeat of a finished one | status, body and chosen headers again, `Idempotent-Replayed: true` |
//! | a repeat of a failed one (5xx, 408, 425, 429; [`Once::fails`]) | the service is called again |
//! | the same key, another body | 422, unless the key is made of the body or of something in it |
//! | no key | 400, or passes through with [`Once::optional`] |
//! | the store does not respond | 503 and `Retry-After`; the service is not called |
//!
//! Every response that belongs to an event names it in `Hookonce-Event`. The service finds its [`RequestAttempt`] in
//! the request's extensions. If the client hangs up, the service continues, and its response is kept.
//!
//! If callers authenticate, set [`Once::by`]; otherwise anyone who sends the same request under the same key gets its
//! response. The store gets the keys of a request, the fields they are made of, and a digest of the body; of
//! credentials it gets only a digest.
//!
//! # Problems
//!
//! The layer explains a rejection as `application/problem+json`, and to gRPC clients in `grpc-status`.
//!
//! ## missing-key
//! Status 400. The request has no idempotency key. Send one, such as `Idempotency-Key: "8e03978e"`: a new value for
//! each operation, and the same value when the request is repeated.
//! ## malformed
//! Status 400. The body broke off, is not the JSON that the key is made of, a header occurs twice, or `Idempotency-Key`
//! is not what the IETF's draft says: a string in quotes, or a bare one without spaces and commas, up to 255
//! characters.
//! ## too-large
//! Status 413. The body is larger than [`Once::body_max`].
//! ## other-body
//! Status 422. The key was used with another body. A different request needs its own key.
//! ## running
//! Status 409. The first request under this key is still running. Repeat the request after `Retry-After`.
//! ## failed
//! Status 502. The request that this one waited for failed, with a response too large to share. Repeat the request: it
//! runs again.
//! ## not-kept
//! Status 200, `Hookonce-Receipt: too_large` or `forgotten`. The request was done and is not done again, but its
//! response was larger than [`Once::receipt_max`], or [`Once::keep_body`] has passed.
//! ## unavailable
//! Status 503. The store does not respond. Nothing was done, or its response could not be kept yet. Repeat the request
//! after `Retry-After`.

pub(crate) mod acquire;
pub(crate) mod leased_attempt;
pub(crate) mod once_body;
pub(crate) mod request_identity;
pub(crate) mod response;
pub(crate) mod run_once;
mod service;

pub use once_body::OnceBody;
pub use request_identity::{RequestIdentity, body, fields, header, json, query};
pub use run_once::{OnceError, RunOutcome, days, hours, minutes, seconds};
pub use service::{OnceService, RequestAttempt};

use crate::decide::claim::{IdentityKey, NewEvent, Payload};
use crate::decide::event::{Event, EventState, QueueState, RetryOwner, SucceededBlocks};
use crate::decide::field::StoredFields;
use crate::decide::id::{Digest, QueueTurn, Revision};
use crate::decide::limits;
use crate::decide::source::{SameChange, WhenBusy};
use crate::decide::time::{Duration, Timestamp};
use crate::store::event_id::new_event_id;
use crate::store::{ForgetCounts, Inspect, Store, StoreError};
use acquire::{OnceEngine, ScopeRules};
use http::{HeaderName, StatusCode};
use request_identity::RequestIdentities;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tower_layer::Layer;

/// Minimum lease: it must last until it is renewed.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// Maximum retention, as in a config.
const KEEP_MAX: Duration = days(36_500);

/// Acts once per key: a tower [`Layer`] for services, [`Once::run`] for everything else. Cheap to clone; clones share
/// their store. See the [module](self) for its responses.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use hookonce::{Once, fields, header, hours, json, seconds};
///
/// let once = Once::new(hookonce::store::open("memory:").await?)
///     .scope("uploads")
///     .per(fields([json("repo_id"), json("commit")]))
///     .by(header("authorization"))
///     .keep(hours(24))
///     .wait(seconds(20))
///     .body_max(50 << 20);
/// # drop(once); Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Once {
    engine: Arc<OnceEngine>,
    settings: OnceSettings,
    resolved: OnceLock<Arc<ResolvedOnce>>,
}

/// The settings of a layer.
#[derive(Clone)]
struct OnceSettings {
    scope: Arc<str>,
    per: Vec<RequestIdentity>,
    by: Vec<RequestIdentity>,
    without: MissingKeyPolicy,
    keep: Duration,
    keep_body: Option<Duration>,
    lease: Duration,
    wait: Duration,
    body_max: usize,
    receipt_max: usize,
    keep_failures: bool,
    kept_headers: Vec<HeaderName>,
    fails: Arc<dyn Fn(StatusCode) -> bool + Send + Sync>,
}

/// The policy for requests without a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MissingKeyPolicy {
    Refused,
    Passes,
}

/// A layer, ready to use.
struct ResolvedOnce {
    engine: Arc<OnceEngine>,
    settings: OnceSettings,
    rules: Arc<ScopeRules>,
    identities: RequestIdentities,
}

/// A store: your own, or one that was [opened](crate::store::open()).
pub trait IntoStore {
    /// The store.
    fn into_store(self) -> Arc<dyn Store>;
}

impl<S: Store> IntoStore for S {
    fn into_store(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl IntoStore for Arc<dyn Inspect> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl Once {
    /// Acts once per `Idempotency-Key`, kept in this store for a day. Do not share a store with a gateway, which sweeps
    /// it by its own rules.
    pub fn new(store: impl IntoStore) -> Self {
        let settings = OnceSettings {
            scope: "once".into(),
            per: Vec::new(),
            by: Vec::new(),
            without: MissingKeyPolicy::Refused,
            keep: days(1),
            keep_body: None,
            lease: seconds(30),
            wait: seconds(10),
            body_max: limits::BODY_BYTES_MAX,
            receipt_max: limits::RECEIPT_BYTES_MAX,
            keep_failures: false,
            kept_headers: Vec::new(),
            fails: Arc::new(|status| status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)),
        };
        Self { engine: OnceEngine::new(store.into_store()), settings, resolved: OnceLock::new() }
    }

    fn with(mut self, set: impl FnOnce(&mut OnceSettings)) -> Self {
        set(&mut self.settings);
        self.resolved = OnceLock::new();
        self
    }

    /// The namespace of keys: the same key in another scope is a different key. Default `once`; two services on one
    /// store need different scopes.
    #[must_use]
    pub fn scope(self, scope: impl Into<Arc<str>>) -> Self {
        self.with(|set| set.scope = scope.into())
    }

    /// An identity: what makes two requests the same. If called several times, a request is a repeat if *any one* of
    /// them matches. Default: [`header`]`("idempotency-key")`. Method, path and query are part of every key: the path
    /// as the layer sees it, which inside a router nested by axum is the part after the prefix. To distinguish
    /// `/v1/act` from `/v2/act` there, wrap the outer router, or give each its own [`Once::scope`].
    ///
    /// The values are stored and shown to operators, unless they come from a header that holds a secret.
    #[must_use]
    pub fn per(self, identity: RequestIdentity) -> Self {
        self.with(|set| set.per.push(identity))
    }

    /// The caller's identity: part of every key, so that one caller never gets another's response. Only a digest is
    /// stored.
    #[must_use]
    pub fn by(self, caller: RequestIdentity) -> Self {
        self.with(|set| set.by.push(caller))
    }

    /// Lets requests without a key pass through, without deduplication; by default they get 400. If the key may be in
    /// the body, the body is read first and must not be larger than [`Once::body_max`].
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|set| set.without = MissingKeyPolicy::Passes)
    }

    /// How long a key is kept after its event's end; then the same key acts again. Default: a day. At most a hundred
    /// years, which is what `Duration::MAX` means.
    #[must_use]
    pub fn keep(self, length: Duration) -> Self {
        self.with(|set| set.keep = length.min(KEEP_MAX))
    }

    /// How long responses are kept. Default: as long as keys. After that a repeat still does nothing, and gets
    /// `not-kept`.
    #[must_use]
    pub fn keep_body(self, length: Duration) -> Self {
        self.with(|set| set.keep_body = Some(length.min(KEEP_MAX)))
    }

    /// How long one process may act alone, renewed while the service runs. Default: 30 seconds. After a crash the key
    /// is held for at most this long; a service that could not renew its lease is ended with it. At least 100
    /// milliseconds, at most a day.
    #[must_use]
    pub fn lease(self, length: Duration) -> Self {
        self.with(|set| set.lease = length.clamp(LEASE_MIN, days(1)))
    }

    /// How long a repeat waits for the first response. Default: 10 seconds; at most a day.
    #[must_use]
    pub fn wait(self, length: Duration) -> Self {
        self.with(|set| set.wait = length.min(days(1)))
    }

    /// Maximum size of a request body. Default: 25 MiB.
    #[must_use]
    pub fn body_max(self, bytes: usize) -> Self {
        self.with(|set| set.body_max = bytes)
    }

    /// Maximum size of a kept response. Default and maximum: 1 MiB. A larger one is streamed to the first caller, with
    /// `Hookonce-Receipt: too_large`.
    #[must_use]
    pub fn receipt_max(self, bytes: usize) -> Self {
        self.with(|set| set.receipt_max = bytes.min(limits::RECEIPT_BYTES_MAX))
    }

    /// Which responses are failures: they are not kept, so that a repeat runs again. Default: 5xx, 408, 425 and 429.
    /// The equivalent gRPC codes always are.
    #[must_use]
    pub fn fails(self, fails: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|set| set.fails = Arc::new(fails))
    }

    /// Keeps failures like any other response: a repeat gets them again.
    #[must_use]
    pub fn keep_failures(self) -> Self {
        self.with(|set| set.keep_failures = true)
    }

    /// Also keeps this response header. Always kept: the type, encoding, language and disposition of the content,
    /// `Location`, `ETag`, `Retry-After`, `X-Request-Id` and `X-Correlation-Id`.
    #[must_use]
    pub fn keep_header(self, name: HeaderName) -> Self {
        self.with(|set| set.kept_headers.push(name))
    }

    /// Deletes expired events now. A background task does so every minute; whether a key has expired never depends on
    /// it.
    pub async fn forget(&self) -> Result<ForgetCounts, StoreError> {
        self.resolved().engine.forget().await
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }

    fn resolved(&self) -> Arc<ResolvedOnce> {
        let make = || {
            let settings = self.settings.clone();
            let kept = acquire::kept(settings.keep, settings.keep_body.unwrap_or(settings.keep));
            let rules = Arc::new(ScopeRules::new(&settings.scope, settings.lease, settings.wait, kept));
            self.engine.register_scope(&rules);
            let identities = RequestIdentities::new(&settings.scope, &settings.per, &settings.by);
            Arc::new(ResolvedOnce { engine: self.engine.clone(), settings, rules, identities })
        };
        self.resolved.get_or_init(make).clone()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OnceSettings { scope, per, keep, .. } = &self.settings;
        f.debug_struct("Once").field("scope", scope).field("per", per).field("keep", keep).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for Once {
    type Service = OnceService<S>;

    fn layer(&self, inner: S) -> OnceService<S> {
        OnceService::new(inner, self.resolved())
    }
}

impl ResolvedOnce {
    /// A new event of this scope. Its body is not stored: a repeat sends it again.
    fn event(
        &self,
        keys: Vec<IdentityKey>,
        name: Option<Arc<str>>,
        fields: StoredFields,
        body_digest: Digest,
        now: Timestamp,
    ) -> NewEvent {
        let mut event = Event {
            id: new_event_id(),
            revision: Revision::FIRST,
            source: self.rules.scope.clone(),
            route: self.rules.route.name.clone(),
            part: 0,
            delivery_id: name,
            fields,
            received_at: now,
            state: EventState::Waiting { due: Some(now) },
            life: 1,
            attempt: 0,
            doubts: 0,
            failed_lookups: 0,
            blocks: SucceededBlocks::default(),
            queue_state: QueueState::Queued,
            retrier: RetryOwner::Sender,
            group: None,
            turn: QueueTurn::default(),
            change: None,
            published_again: None,
            burst_since: None,
            resolved: None,
            origin: None,
            notifications: Vec::new(),
            body_digest,
            digest: body_digest,
        };
        event.digest = event.immutable_digest();
        NewEvent {
            event,
            keys,
            former_keys: Vec::new(),
            imported: Vec::new(),
            payload: Payload::default(),
            kept: self.rules.kept,
            when_busy: WhenBusy::Queue,
            same_change: SameChange::Duplicate,
        }
    }
}
