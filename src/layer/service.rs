//! The tower service: read the request, recognise it, claim it, call the service behind, keep its answer.

use super::answer::{self, Problem, Speaks};
use super::body::{OnceBody, Read, read};
use super::engine::{Taken, failed};
use super::held::Held;
use super::{Resolved, Without};
use crate::decide::claim::New;
use crate::decide::event::Outcome;
use crate::decide::id::EventId;
use crate::decide::refusal::Refusal;
use crate::store::StoreError;
use crate::telemetry::{self, Level};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, request, response};
use http_body::Body;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service whose requests act once. Made by the layer [`super::Once`].
#[derive(Clone)]
pub struct OnceService<S> {
    inner: S,
    once: Arc<Resolved>,
}

/// The attempt that a request is served in, among its extensions: what a service passes on to those it calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The event.
    pub event: EventId,
    /// Which try of it this is.
    pub number: u32,
    /// What others get as `Idempotency-Key`: the same for every try.
    pub idempotency_key: String,
}

impl<S> OnceService<S> {
    pub(super) fn new(inner: S, once: Arc<Resolved>) -> Self {
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
        // The one that was found ready is the one to call.
        let inner = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, inner);
        let once = self.once.clone();
        Box::pin(async move {
            match asked(&once, request).await {
                Asked::Passes(request) => pass(inner, *request).await,
                Asked::Answered(response) => Ok(*response),
                Asked::Recognised(asked) => once_only(once, inner, *asked).await,
            }
        })
    }
}

/// What is asked for.
enum Asked<In: Body, Out: Body> {
    Passes(Box<Request<OnceBody<In>>>),
    Answered(Box<Response<OnceBody<Out>>>),
    Recognised(Box<Recognised<In>>),
}

/// A request that was read and recognised.
struct Recognised<In: Body> {
    new: New,
    request: Request<OnceBody<In>>,
    speaks: Speaks,
}

/// Reads and recognises a request. What only reads passes: to do it twice does no harm.
async fn asked<In: Body, Out: Body>(once: &Resolved, request: Request<In>) -> Asked<In, Out> {
    let speaks = Speaks::of(request.headers());
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::CONNECT) {
        return Asked::Passes(Box::new(request.map(OnceBody::passed)));
    }
    let (parts, body) = request.into_parts();
    // What passes anyway passes as it comes, however long it is.
    if once.settings.without == Without::Passes && once.identities.lacks_key(&parts, once.engine.store.now()) {
        return Asked::Passes(Box::new(Request::from_parts(parts, OnceBody::passed(body))));
    }
    let no = |problem: Problem| Asked::Answered(Box::new(problem.response(speaks)));
    let (body, trailers) = match read(body, once.settings.body_max).await {
        Read::Whole(body, trailers) => (body, trailers),
        Read::Longer(_) => return no(Problem::TooLarge(once.settings.body_max)),
        Read::Broken(_) => return no(Problem::Malformed("the body broke off".into())),
    };
    match (recognised(once, &parts, &body), once.settings.without) {
        (Ok(new), _) => {
            let request = Request::from_parts(parts, OnceBody::whole(body, trailers));
            Asked::Recognised(Box::new(Recognised { new, request, speaks }))
        }
        (Err(Refusal::MissingField(_)), Without::Passes) => {
            Asked::Passes(Box::new(Request::from_parts(parts, OnceBody::whole(body, trailers))))
        }
        (Err(refusal), _) => no(Problem::refused(&refusal)),
    }
}

/// Of a request nothing is stored but its keys, the fields they are made of and the digest of its body.
fn recognised(once: &Resolved, parts: &request::Parts, body: &Bytes) -> Result<New, Refusal> {
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

/// Goes its way in a task of its own: a client that hangs up ends nothing, and its answer is kept.
async fn once_only<S, In, Out>(
    once: Arc<Resolved>,
    inner: S,
    asked: Recognised<In>,
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
    match tokio::spawn(walk(once, inner, asked)).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            // As it would be without the layer.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Ok(Problem::Unavailable.response(speaks)),
        },
    }
}

async fn walk<S, In, Out>(
    once: Arc<Resolved>,
    inner: S,
    asked: Recognised<In>,
) -> Result<Response<OnceBody<Out>>, S::Error>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>>,
    In: Body,
    Out: Body,
{
    let Recognised { new, request, speaks } = asked;
    let taken = once.engine.take(&new, &once.rules, |same| once.identities.minds_body(same)).await;
    Ok(match taken {
        Ok(Taken::Ours(held)) => return serve(&once, held, inner, request, speaks).await,
        Ok(Taken::Over(ended)) => answer::replayed(&ended, speaks),
        Ok(Taken::Failed(ended)) => answer::joined(&ended, speaks),
        Ok(Taken::Busy(event)) => Problem::Running(event).response(speaks),
        Ok(Taken::Conflict(event)) => Problem::OtherBody(event).response(speaks),
        Err(error) => unavailable(&error, speaks),
    })
}

/// One attempt: calls the service behind, and answers when its answer is kept.
async fn serve<S, In, Out>(
    once: &Resolved,
    mut held: Held,
    mut inner: S,
    mut request: Request<OnceBody<In>>,
    speaks: Speaks,
) -> Result<Response<OnceBody<Out>>, S::Error>
where
    S: Service<Request<OnceBody<In>>, Response = Response<Out>>,
    In: Body,
    Out: Body,
{
    let event = held.event().clone();
    let attempt = Attempt { event: event.id, number: event.attempt, idempotency_key: event.idempotency_key() };
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
        Ok(Some(ended)) => answer::stamp(&mut parts.headers, &ended.event),
        // Somebody else took it over, and this answer is not the one that is kept.
        Ok(None) => return Ok(Problem::Running(event).response(speaks)),
        Err(error) => return Ok(unavailable(&error, speaks)),
    }
    let body = match body {
        Read::Whole(body, trailers) => OnceBody::whole(body, trailers),
        Read::Longer(body) => {
            parts.headers.insert(answer::RECEIPT, HeaderValue::from_static("too_large"));
            body
        }
        Read::Broken(body) => body,
    };
    Ok(Response::from_parts(parts, body))
}

/// What an answer means for its event.
fn outcome<B: Body>(once: &Resolved, parts: &response::Parts, body: &Read<B>) -> Outcome {
    let whole = match body {
        Read::Whole(body, trailers) => Some((body, trailers.as_ref())),
        Read::Longer(_) => None,
        Read::Broken(_) => return failed("its answer broke off", None),
    };
    let settings = &once.settings;
    let receipt = answer::receipt(parts.status, &parts.headers, &settings.kept_headers, whole);
    let trailers: Option<&HeaderMap> = whole.and_then(|(_, trailers)| trailers);
    let fails = (settings.fails)(parts.status) || answer::grpc_failed(&parts.headers, trailers);
    if fails && !settings.keep_failures {
        failed(&format!("the service answered {}", parts.status.as_u16()), Some(receipt))
    } else {
        Outcome::Delivered(Some(receipt))
    }
}

fn unavailable<B: Body>(error: &StoreError, speaks: Speaks) -> Response<OnceBody<B>> {
    telemetry::trouble(Level::Error, &error.to_string(), &[]);
    Problem::Unavailable.response(speaks)
}
