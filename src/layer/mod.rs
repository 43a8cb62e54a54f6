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
//! With tonic it stands around all services, and the key is the metadata of that name; with hyper alone,
//! [`Layer::layer`] wraps any service:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let once = hookonce::Once::new(hookonce::store::open("memory:").await?).optional();
//! let server = tonic::transport::Server::builder().layer(once); // .add_service(…)
//! # drop(server); Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
//! ```
//!
//! Every call of gRPC is a `POST`, also one that only reads: without [`Once::optional`] those need a key too, the checks of
//! a load balancer among them. A request with a key is read whole before it is recognised, and its answer before it is
//! given, up to their limits: calls that stream both ways come without a key, or belong on a server of their own.
//!
//! The first request under a key is claimed in the store before the service is called. A repeat that comes while it
//! runs waits for it; one that comes later gets the first answer again, with `Idempotent-Replayed: true`. What failed is
//! not kept, and a repeat runs again. After a crash the next request runs, once the [lease](Once::lease) of the process
//! that is gone has ended.
//!
//! | the request | what happens |
//! |---|---|
//! | `GET`, `HEAD`, `OPTIONS`, `TRACE`, `CONNECT` | passes |
//! | new | the service is called; its answer is kept, then given |
//! | a repeat of one that runs | waits for its answer, also if that is a failure; after [`Once::wait`] 409 and `Retry-After` |
//! | a repeat of one that is done | status, body and chosen headers again, `Idempotent-Replayed: true` |
//! | a repeat of one that failed (5xx, 408, 425, 429; [`Once::fails`]) | the service is called again |
//! | the same key, another body | 422, unless the key is made of the body or of something in it |
//! | no key | 400, or it passes: [`Once::optional`] |
//! | the store does not answer | 503 and `Retry-After`; the service is not called |
//!
//! Every answer that belongs to an event names it in `Hookonce-Event`. The service finds its [`RequestAttempt`] among the
//! request's extensions. A client that hangs up ends nothing: the service goes on, and its answer is kept.
//!
//! Where callers authenticate, say so ([`Once::by`]): else whoever sends the same request under the same key gets its
//! answer. Of a request the store gets keys, the fields they are made of and a digest of the body; of what a caller
//! authenticates with, nothing but a digest.
//!
//! # Problems
//!
//! What the layer refuses it explains as `application/problem+json`; to gRPC it says the same in `grpc-status`.
//!
//! ## missing-key
//! Status 400. The request lacks what makes two requests the same. Send it, such as `Idempotency-Key: "8e03978e"`: a value of
//! its own for each thing to be done, and the same value when it is sent again.
//! ## malformed
//! Status 400. The body broke off, is not the JSON that the key is made of, a header occurs twice, or `Idempotency-Key` is
//! not what the IETF's draft says: a string in quotes, or a bare one without spaces and commas, up to 255 characters.
//! ## too-large
//! Status 413. The body is larger than [`Once::body_max`].
//! ## other-body
//! Status 422. The key was used with another body. What is different is another request and needs a key of its own.
//! ## running
//! Status 409. The first request under this key is still running. Send the same again after `Retry-After`.
//! ## failed
//! Status 502. The request that this one waited for failed, with an answer too large to share. Send the same again: it is
//! tried again.
//! ## not-kept
//! Status 200, `Hookonce-Receipt: too_large` or `forgotten`. It was done, and is not done again, but its answer was larger than
//! [`Once::receipt_max`], or [`Once::keep_body`] is over.
//! ## unavailable
//! Status 503. The store does not answer. Nothing was done, or its answer could not be kept yet. Send the same again after
//! `Retry-After`.

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
use crate::decide::event::{Event, EventState, QueueState, Retrier, SucceededBlocks};
use crate::decide::field::Fields;
use crate::decide::id::{Digest, EventId, QueueTurn, Revision};
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use crate::store::{ForgetCounts, Inspect, Store, StoreError};
use acquire::{OnceEngine, ScopeRules};
use http::{HeaderName, StatusCode};
use request_identity::RequestIdentities;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tower_layer::Layer;

/// The shortest lease: it must last until it has been renewed.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// The longest time to keep anything, as in a config.
const KEEP_MAX: Duration = days(36_500);

/// Acts once per key: a tower [`Layer`] for services, [`Once::run`] for everything else. Cheap to clone; clones share
/// their store. See the [module](self) for what it answers when.
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

/// What is said of a layer.
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

/// What happens to a request without a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MissingKeyPolicy {
    Refused,
    Passes,
}

/// The same, ready to be used.
struct ResolvedOnce {
    engine: Arc<OnceEngine>,
    settings: OnceSettings,
    rules: Arc<ScopeRules>,
    identities: RequestIdentities,
}

/// Something that is a store: one of your own, or one that was [opened](crate::store::open()).
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
    /// Once per `Idempotency-Key`, kept in this store for a day. A store that a gateway uses too is swept by the
    /// gateway's rules, which do not know this one's: give each its own.
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

    /// What keys are made under: the same key under another scope is another one. `once` unless set; two services on
    /// one store need one each.
    #[must_use]
    pub fn scope(self, scope: impl Into<Arc<str>>) -> Self {
        self.with(|set| set.scope = scope.into())
    }

    /// What makes two requests the same; several times: a request is a repeat if *any one* of them was seen. Without
    /// it, [`header`]`("idempotency-key")`. Method, path and query are part of every key: the path as the layer sees it,
    /// which inside a router nested by axum is the part behind the prefix. To tell `/v1/act` from `/v2/act` there, lay it
    /// around the outer router, or give each its [`Once::scope`].
    ///
    /// What is named here is stored and shown to people, unless it is a header that holds a secret.
    #[must_use]
    pub fn per(self, identity: RequestIdentity) -> Self {
        self.with(|set| set.per.push(identity))
    }

    /// Who asks: part of every key, so that one caller never gets another's answer. Only a digest of it is stored.
    #[must_use]
    pub fn by(self, caller: RequestIdentity) -> Self {
        self.with(|set| set.by.push(caller))
    }

    /// Requests without a key pass, and are not recognised when they come again. Without this they are answered 400.
    /// One whose key may be in its body is looked through first, and still must not be larger than [`Once::body_max`].
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|set| set.without = MissingKeyPolicy::Passes)
    }

    /// How long a key is remembered, counted from its event's end: a day unless set. Then the same key acts again.
    /// At most a hundred years, which is what `Duration::MAX` means.
    #[must_use]
    pub fn keep(self, length: Duration) -> Self {
        self.with(|set| set.keep = length.min(KEEP_MAX))
    }

    /// How long answers are kept: as long as keys unless set. After that a repeat still does nothing, and hears so.
    #[must_use]
    pub fn keep_body(self, length: Duration) -> Self {
        self.with(|set| set.keep_body = Some(length.min(KEEP_MAX)))
    }

    /// The time in which one process alone may act: 30 seconds unless set, renewed while the service runs. After a
    /// crash the key is held for this long at most; a service that could not renew it is ended with it. At least 100
    /// milliseconds, at most a day.
    #[must_use]
    pub fn lease(self, length: Duration) -> Self {
        self.with(|set| set.lease = length.clamp(LEASE_MIN, days(1)))
    }

    /// How long a repeat waits for the first answer: 10 seconds unless set, at most a day.
    #[must_use]
    pub fn wait(self, length: Duration) -> Self {
        self.with(|set| set.wait = length.min(days(1)))
    }

    /// The longest body that is read: 25 MiB unless set.
    #[must_use]
    pub fn body_max(self, bytes: usize) -> Self {
        self.with(|set| set.body_max = bytes)
    }

    /// The longest answer that is kept: 1 MiB unless set, and no more than that. A longer one passes to the first
    /// caller as it comes, with `Hookonce-Receipt: too_large`.
    #[must_use]
    pub fn receipt_max(self, bytes: usize) -> Self {
        self.with(|set| set.receipt_max = bytes.min(limits::RECEIPT_BYTES_MAX))
    }

    /// Which answers are failures: not kept, so that a repeat runs again. 5xx, 408, 425 and 429 unless set, and gRPC's
    /// codes that mean the same, which always are.
    #[must_use]
    pub fn fails(self, fails: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|set| set.fails = Arc::new(fails))
    }

    /// Failures are kept like any other answer, and a repeat gets them again.
    #[must_use]
    pub fn keep_failures(self) -> Self {
        self.with(|set| set.keep_failures = true)
    }

    /// Gives this header of an answer again too. Kept without being named: the type, encoding, language and disposition
    /// of the content, `Location`, `ETag`, `Retry-After`, `X-Request-Id` and `X-Correlation-Id`.
    #[must_use]
    pub fn keep_header(self, name: HeaderName) -> Self {
        self.with(|set| set.kept_headers.push(name))
    }

    /// Frees the space of what is old, now. A task does so every minute while this is in use; whether a key still counts
    /// never depends on it.
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
    /// A new event of this scope. Its body is not stored: who repeats it brings it along.
    fn event(
        &self,
        keys: Vec<IdentityKey>,
        name: Option<Arc<str>>,
        fields: Fields,
        body_digest: Digest,
        now: Timestamp,
    ) -> NewEvent {
        let mut event = Event {
            id: EventId(uuid::Uuid::now_v7().into_bytes()),
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
            blocks: SucceededBlocks::default(),
            queue_state: QueueState::Queued,
            retrier: Retrier::Sender,
            group: None,
            turn: QueueTurn::default(),
            change: None,
            published_again: None,
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
        }
    }
}
