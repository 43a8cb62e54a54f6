//! The tower service: reads the request, computes its keys, claims it, calls the inner service, keeps its response.

use super::acquire::{KeyAcquisition, failed};
use super::leased_attempt::LeasedAttempt;
use super::once_body::{BodyReadResult, OnceBody, read};
use super::response;
use super::response::{OnceRejection, RequestProtocol};
use super::{MissingKeyPolicy, ResolvedOnce};
use crate::decide::claim::NewEvent;
use crate::decide::delivery::DeliveryRejection;
use crate::decide::event::Outcome;
use crate::decide::id::EventId;
use crate::observe::delivery_log::DeliveryVerdict;
use crate::observe::log;
use crate::observe::trace_span::TraceSpan;
use crate::store::StoreError;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, request};
use http_body::Body;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service that acts once per key. Created by the layer [`super::Once`].
#[derive(Clone)]
pub struct OnceService<S> {
    inner: S,
    once: Arc<ResolvedOnce>,
}

/// The attempt that serves a request, in its extensions. Pass its key on to the services you call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestAttempt {
    /// The event.
    pub event: EventId,
    /// The number of the attempt.
    pub number: u32,
    /// The `Idempotency-Key` for other services: the same for every attempt.
    pub idempotency_key: String,
}

impl<S> OnceService<S> {
    pub(super) fn new(inner: S, once: Arc<ResolvedOnce>) -> Self {
        Self { inner, once }
    }
}

impl<S, In, Out> Service<Request<In>> for OnceService<S>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    In: Body + Send + 'static,
    In::Data: Send,
    In::Error: Send,
    Out: Body + Send + 'static,
    Out::Data: Send,
    Out::Error: Send,
{
    type Response = Response<OnceBody<Out>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        // Call the instance that was polled ready.
        let inner = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, inner);
        let once = self.once.clone();
        Box::pin(async move {
            match classify_request(&once, request).await {
                RequestDisposition::Passes(request) => pass(inner, *request).await,
                RequestDisposition::Answered(response) => Ok(*response),
                RequestDisposition::Recognised(asked) => run_detached(once, inner, *asked).await,
            }
        })
    }
}

/// The result of reading a request.
enum RequestDisposition<In: Body, Out: Body> {
    Passes(Box<Request<OnceBody<In>>>),
    Answered(Box<Response<OnceBody<Out>>>),
    Recognised(Box<RecognisedRequest<In>>),
}

/// A request with its keys and buffered body.
struct RecognisedRequest<In: Body> {
    new: NewEvent,
    request: Request<OnceBody<In>>,
    speaks: RequestProtocol,
}

/// Reads a request and computes its keys. Safe methods pass through.
async fn classify_request<In: Body, Out: Body>(
    once: &ResolvedOnce,
    request: Request<In>,
) -> RequestDisposition<In, Out> {
    let speaks = RequestProtocol::of(request.headers());
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::CONNECT) {
        return RequestDisposition::Passes(Box::new(request.map(OnceBody::passed)));
    }
    let (parts, body) = request.into_parts();
    // A request that passes through is streamed, whatever its size.
    if once.settings.without == MissingKeyPolicy::Passes && once.identities.lacks_key(&parts, once.engine.store.now()) {
        return RequestDisposition::Passes(Box::new(Request::from_parts(parts, OnceBody::passed(body))));
    }
    let no = |problem: OnceRejection| RequestDisposition::Answered(Box::new(problem.response(speaks)));
    let (body, trailers) = match read(body, once.settings.body_max).await {
        BodyReadResult::Whole(body, trailers) => (body, trailers),
        BodyReadResult::Longer(_) => return no(OnceRejection::TooLarge(once.settings.body_max)),
        BodyReadResult::Broken(_) => return no(OnceRejection::Malformed("the body broke off".into())),
    };
    match (recognised(once, &parts, &body), once.settings.without) {
        (Ok(new), _) => {
            let request = Request::from_parts(parts, OnceBody::whole(body, trailers));
            RequestDisposition::Recognised(Box::new(RecognisedRequest { new, request, speaks }))
        }
        (Err(DeliveryRejection::MissingField(_)), MissingKeyPolicy::Passes) => {
            RequestDisposition::Passes(Box::new(Request::from_parts(parts, OnceBody::whole(body, trailers))))
        }
        (Err(refusal), _) => no(OnceRejection::refused(&refusal)),
    }
}

/// The event of a request: stores only its keys, their fields and the digest of its body.
fn recognised(once: &ResolvedOnce, parts: &request::Parts, body: &Bytes) -> Result<NewEvent, DeliveryRejection> {
    let now = once.engine.store.now();
    let found = once.identities.recognise(parts, body, now)?;
    Ok(once.event(found.keys, found.name, found.fields, found.digest, now))
}

async fn pass<S, In, Out>(mut inner: S, request: Request<OnceBody<In>>) -> Result<Response<OnceBody<Out>>, S::Error>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>>,
    In: Body,
    Out: Body,
{
    inner.call(request).await.map(|response| response.map(OnceBody::passed))
}

/// Handles a request in its own task: if the client hangs up, the service continues, and its response is kept.
async fn run_detached<S, In, Out>(
    once: Arc<ResolvedOnce>,
    inner: S,
    asked: RecognisedRequest<In>,
) -> Result<Response<OnceBody<Out>>, S::Error>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    In: Body + Send + 'static,
    In::Data: Send,
    In::Error: Send,
    Out: Body + Send + 'static,
    Out::Data: Send,
    Out::Error: Send,
{
    let speaks = asked.speaks;
    let span = TraceSpan::begin("receive", None);
    match tokio::spawn(span.clone().run(walk(once, inner, asked, span))).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            // A panic propagates, as without the layer.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Ok(OnceRejection::Unavailable.response(speaks)),
        },
    }
}

async fn walk<S, In, Out>(
    once: Arc<ResolvedOnce>,
    inner: S,
    asked: RecognisedRequest<In>,
    mut span: TraceSpan,
) -> Result<Response<OnceBody<Out>>, S::Error>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>>,
    In: Body,
    Out: Body,
{
    let RecognisedRequest { new, request, speaks } = asked;
    let taken = once.engine.acquire(new, &once.rules, |same| once.identities.compares_body(same)).await;
    if span.is_enabled() {
        let (verdict, event) = match &taken {
            Ok(KeyAcquisition::Ours(held)) => (DeliveryVerdict::Accepted, Some(held.event())),
            Ok(KeyAcquisition::Over(ended) | KeyAcquisition::Failed(ended)) => {
                (DeliveryVerdict::Duplicate, Some(&ended.event))
            }
            Ok(KeyAcquisition::Busy(event)) => (DeliveryVerdict::Duplicate, Some(event)),
            Ok(KeyAcquisition::Conflict(event)) => (DeliveryVerdict::Refused, Some(event)),
            Err(_) => (DeliveryVerdict::Unavailable, None),
        };
        span.tell("source", &once.rules.scope);
        span.tell("verdict", verdict.word());
        if let Some(event) = event {
            span.tell("event", &event.id.to_string());
        }
    }
    Ok(match taken {
        Ok(KeyAcquisition::Ours(held)) => return serve(&once, held, inner, request, speaks).await,
        Ok(KeyAcquisition::Over(ended)) => response::replayed(&ended, speaks),
        Ok(KeyAcquisition::Failed(ended)) => response::joined(&ended, speaks),
        Ok(KeyAcquisition::Busy(event)) => OnceRejection::Running(event).response(speaks),
        Ok(KeyAcquisition::Conflict(event)) => OnceRejection::OtherBody(event).response(speaks),
        Err(error) => unavailable(&error, speaks),
    })
}

/// Makes one attempt: calls the inner service, keeps its response, then returns it.
async fn serve<S, In, Out>(
    once: &ResolvedOnce,
    mut held: LeasedAttempt,
    mut inner: S,
    mut request: Request<OnceBody<In>>,
    speaks: RequestProtocol,
) -> Result<Response<OnceBody<Out>>, S::Error>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>>,
    In: Body,
    Out: Body,
{
    let event = held.event().clone();
    let attempt = RequestAttempt { event: event.id, number: event.attempt, idempotency_key: event.idempotency_key() };
    request.extensions_mut().insert(attempt);
    let work = async {
        let (parts, body) = inner.call(request).await?.into_parts();
        Ok((parts, read(body, once.settings.receipt_max).await))
    };
    let answered = match held.act(work).await {
        Some(Ok(answered)) => answered,
        Some(Err(error)) => {
            held.settle(failed("the service failed", None)).await.ok();
            return Err(error);
        }
        None => return Ok(unavailable(&StoreError::Down("the lease could not be kept".into()), speaks)),
    };
    let (mut parts, body) = answered;
    let outcome = outcome(once, &parts, &body);
    let kept = held.settle(outcome).await;
    match kept {
        Ok(Some(ended)) => response::stamp(&mut parts.headers, &ended.event),
        // Another process took it over: this response is not the kept one.
        Ok(None) => return Ok(OnceRejection::Running(event).response(speaks)),
        Err(error) => return Ok(unavailable(&error, speaks)),
    }
    let body = match body {
        BodyReadResult::Whole(body, trailers) => OnceBody::whole(body, trailers),
        BodyReadResult::Longer(body) => {
            parts.headers.insert(response::RECEIPT, HeaderValue::from_static("too_large"));
            body
        }
        BodyReadResult::Broken(body) => body,
    };
    Ok(Response::from_parts(parts, body))
}

/// The outcome of a response.
fn outcome<B: Body>(once: &ResolvedOnce, parts: &http::response::Parts, body: &BodyReadResult<B>) -> Outcome {
    let whole = match body {
        BodyReadResult::Whole(body, trailers) => Some((body, trailers.as_ref())),
        BodyReadResult::Longer(_) => None,
        BodyReadResult::Broken(_) => return failed("its response broke off", None),
    };
    let settings = &once.settings;
    let receipt = response::receipt(parts.status, &parts.headers, &settings.kept_headers, whole);
    let trailers: Option<&HeaderMap> = whole.and_then(|(_, trailers)| trailers);
    let fails = (settings.fails)(parts.status) || response::grpc_failed(&parts.headers, trailers);
    if fails && !settings.keep_failures {
        failed(&format!("the service responded with {}", parts.status.as_u16()), Some(receipt))
    } else {
        Outcome::Delivered(Some(receipt))
    }
}

fn unavailable<B: Body>(error: &StoreError, speaks: RequestProtocol) -> Response<OnceBody<B>> {
    log::store_error(error);
    OnceRejection::Unavailable.response(speaks)
}
