//! `forward`: sends the event's body unchanged to its receiver. One request, one response, one outcome:
//!
//! | what happened | outcome |
//! |---|---|
//! | 2xx, also if the response body breaks off or is too long | delivered |
//! | 408, 425, 429, 5xx | failed; `Retry-After` is honoured |
//! | any other 3xx, 4xx | rejected: redirects are not followed |
//! | a URL with a field in it that resolves to a forbidden address | rejected: nothing was sent |
//! | not connected: DNS, routing, refused, TLS | failed: nothing of the request was sent |
//! | reset, closed or not HTTP, before a status | unknown: it may have acted |
//! | our own timeout, before a status or after a 2xx without the rest of the response | timed out: it may have acted |
//!
//! The HTTP client retries a request on a new connection only if the pooled one was closed before any byte was written.
//!
//! The circuit breaker (`decide::circuit_breaker`) pauses a receiver that fails several times in a row. It is not
//! checked here: the dispatcher asks [`Action::ready`] before it starts an attempt, so that no attempt is wasted.
pub(crate) mod circuits;
pub(crate) mod ip_filter;
pub(crate) mod receiver_response;
pub(crate) mod request;
pub(crate) mod url_template;

use super::plan::{ReceiverPlan, UNKNOWN_URL};
use crate::decide::error_message::ErrorMessage;
use ip_filter::ForbiddenAddressError;

use super::{
    Action, ActionBuildError, ActionEnvironment, ActionFuture, Attempt, CircuitAdmission, LiveCheck, failed_check,
};
use crate::decide::action_kind::ActionKind;
use crate::decide::circuit_breaker::{CircuitBreaker, CircuitTransition, ReceiverHealth};
use crate::decide::event::Outcome;
use crate::decide::limits::BREAKER_FAILURES;
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::VerificationScheme;
use crate::lease::boottime;
use receiver_response::{ReceiverResponse, read_response};
use request::RequestTemplate;
use reqwest::{Client, Method, Request, Url};
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use tracing::{info, warn};

/// How much longer than its timeout the probe of a paused receiver may take.
const PROBE_LATE: Duration = Duration::from_secs(5);

/// Connect timeout of a live check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards an event to an HTTP receiver.
pub(super) struct ForwardAction {
    receivers: Vec<ReceiverClient>,
}

/// The HTTP client of one receiver.
pub(super) struct ReceiverClient {
    receiver: ReceiverPlan,
    template: RequestTemplate,
    client: Client,
    signs: Option<VerificationScheme>,
    /// `None`: a field chooses the host, so one event's failure says nothing about another's receiver.
    breaker: Option<Arc<Mutex<CircuitBreaker>>>,
}

/// The result of a request.
struct ForwardResult {
    outcome: Outcome,
    health: ReceiverHealth,
}

impl ForwardAction {
    pub(super) fn new(receivers: Vec<ReceiverPlan>, environment: &ActionEnvironment) -> Result<Self, ActionBuildError> {
        let to = |receiver| ReceiverClient::new(receiver, environment);
        Ok(Self { receivers: receivers.into_iter().map(to).collect::<Result<_, _>>()? })
    }

    async fn forward(&self, attempt: Attempt<'_>) -> Outcome {
        let Some(to) = self.receivers.get(usize::from(attempt.event.part)) else {
            return rejected(format!("its route no longer has a receiver {}", attempt.event.part + 1));
        };
        let ForwardResult { outcome, health: heard } = to.send(attempt).await.unwrap_or_else(ForwardResult::not_sent);
        to.record_health(heard);
        outcome
    }
}

impl Action for ForwardAction {
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(self.forward(attempt))
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Forward
    }

    fn open_circuits(&self) -> usize {
        self.receivers.iter().filter_map(|to| to.breaker.as_ref()).filter(|breaker| lock(breaker).is_open()).count()
    }

    fn ready(&self, part: u16) -> CircuitAdmission {
        let Some(to) = self.receivers.get(usize::from(part)) else { return CircuitAdmission::Now };
        let lasts = to.receiver.timeout + PROBE_LATE;
        to.breaker.as_ref().map_or(CircuitAdmission::Now, |breaker| lock(breaker).try_acquire(boottime().0, lasts))
    }

    fn release_probe(&self, part: u16) {
        if let Some(to) = self.receivers.get(usize::from(part)) {
            to.record_health(ReceiverHealth::Unknown);
        }
    }

    fn is_healthy(&self, part: u16) -> bool {
        let breaker = self.receivers.get(usize::from(part)).and_then(|to| to.breaker.as_ref());
        breaker.is_none_or(|breaker| lock(breaker).is_closed())
    }

    fn concurrency_limit(&self, part: u16) -> Option<usize> {
        self.receivers.get(usize::from(part))?.receiver.at_once
    }
}

impl ReceiverClient {
    pub(super) fn new(receiver: ReceiverPlan, environment: &ActionEnvironment) -> Result<Self, ActionBuildError> {
        let cannot = |why: String| ErrorMessage::from(format!("cannot forward by HTTP: {why}"));
        let client = request::client(&receiver, &environment.resolver);
        let client = client.map_err(|error| ActionBuildError(cannot(root_cause(&error)).caused_by(error)))?;
        let signs = receiver.sign.as_ref().map(request::signing).transpose();
        let signs = signs.map_err(|why| ActionBuildError(cannot(why)))?;
        let breaker = || environment.circuits.breaker(&receiver.url.to_string());
        let breaker = (!url_template::names_host(&receiver.url)).then(breaker);
        Ok(Self { template: RequestTemplate::of(&receiver), receiver, client, signs, breaker })
    }

    /// Sends GET without a body and ignores the response's; `Err` says why it was not a 2xx, without the URL.
    pub(super) async fn get(&self, attempt: Attempt<'_>) -> Result<(), String> {
        let request = self.client.get(self.url(attempt)?).timeout(self.receiver.timeout);
        match request.send().await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!("its URL responded with {}", response.status().as_u16())),
            Err(error) if error.is_timeout() => {
                Err(format!("its URL did not respond within {}", duration_text(self.receiver.timeout)))
            }
            Err(error) => classify_send_error(&error).and_then(|sent| Err(format!("its URL: {}", sent.outcome.why()))),
        }
    }

    /// Sends the request; `Err` says why nothing was sent.
    async fn send(&self, attempt: Attempt<'_>) -> Result<ForwardResult, String> {
        let Self { receiver, template, client, signs, .. } = self;
        let Attempt { payload, lease, .. } = attempt;
        let url = self.url(attempt)?;
        let mut request = Request::new(Method::POST, url);
        *request.headers_mut() = template.headers(signs.as_ref(), &attempt).map_err(|unfit| unfit.to_string())?;
        *request.body_mut() = Some(payload.body.clone().into());
        let until = Instant::now() + receiver.timeout;
        let answer = tokio::select! {
            biased;
            over = lease.ended() => {
                let outcome = Outcome::Unknown { why: format!("{} before the receiver responded", over.why()) };
                return Ok(ForwardResult { outcome, health: ReceiverHealth::Unknown });
            }
            answer = timeout_at(until, client.execute(request)) => answer,
        };
        match answer {
            Ok(Ok(response)) => {
                let ReceiverResponse { outcome, health: heard, cut } =
                    read_response(response, receiver, until, lease).await;
                if let Some(why) = cut {
                    let why = format!("the response is not kept completely: {}", why.reason());
                    warn!(target: "hookonce", event = %attempt.event.id, why, "receipt");
                }
                Ok(ForwardResult { outcome, health: heard })
            }
            Ok(Err(error)) => classify_send_error(&error),
            Err(_) => {
                let why = format!("no response within {}", duration_text(receiver.timeout));
                Ok(ForwardResult { outcome: Outcome::TimedOut { why, answered: None }, health: ReceiverHealth::Down })
            }
        }
    }

    /// The URL of an event. If it has a field in it, an IP address is checked here, a name when it is resolved.
    fn url(&self, attempt: Attempt<'_>) -> Result<Url, String> {
        if let Some(url) = self.template.url() {
            return url;
        }
        let url =
            url_template::fill(&self.receiver.url, &attempt.event.fields).map_err(|unfilled| unfilled.to_string())?;
        // A URL has an IPv6 address in brackets.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(address) = host.parse::<IpAddr>() {
            ip_filter::check_address(address, &self.receiver.allow).map_err(|forbidden| forbidden.to_string())?;
        }
        Ok(url)
    }

    /// Records the receiver's health, and logs a change.
    fn record_health(&self, heard: ReceiverHealth) {
        let Some(breaker) = &self.breaker else { return };
        let turned = lock(breaker).on_result(heard, boottime().0);
        let url = &*self.receiver.display;
        match turned {
            Some(CircuitTransition::Opened(wait)) => {
                let why = format!(
                    "{BREAKER_FAILURES} failures in a row: the circuit is open, next attempt after {}; its events wait",
                    duration_text(wait)
                );
                warn!(target: "hookonce", url, why, "receiver");
            }
            Some(CircuitTransition::Closed) => {
                info!(target: "hookonce", url, why = "the circuit is closed: it responds again", "receiver");
            }
            None => {}
        }
    }
}

impl ForwardResult {
    /// The outcome if nothing was sent and a retry would not help.
    fn not_sent(why: String) -> Self {
        Self { outcome: rejected(why), health: ReceiverHealth::Unknown }
    }
}

fn lock(breaker: &Mutex<CircuitBreaker>) -> std::sync::MutexGuard<'_, CircuitBreaker> {
    breaker.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rejected(why: String) -> Outcome {
    Outcome::Rejected { why, receipt: None }
}

/// The outcome of a failed request, without the URL, which may contain a secret.
fn classify_send_error(error: &reqwest::Error) -> Result<ForwardResult, String> {
    if let Some(forbidden) = causes(error).find_map(|cause| cause.downcast_ref::<ForbiddenAddressError>()) {
        return Err(forbidden.to_string());
    }
    let cause = root_cause(error);
    let outcome = if error.is_builder() {
        return Err(format!("the request could not be built: {cause}"));
    } else if error.is_connect() {
        Outcome::Failed { why: format!("not connected: {cause}"), retry_after: None, receipt: None }
    } else {
        Outcome::Unknown { why: format!("sent, but no response: {cause}") }
    };
    Ok(ForwardResult { outcome, health: ReceiverHealth::Down })
}

/// An error and its sources.
pub(crate) fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The innermost cause, which is the informative one.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let innermost = causes(error).last().filter(|cause| !cause.is::<reqwest::Error>());
    innermost.map_or_else(|| "it could not be built".into(), ToString::to_string)
}

/// Connects to all receivers at once. Sends nothing.
pub(super) async fn check_live(receivers: &[ReceiverPlan]) -> Vec<LiveCheck> {
    // A URL with a field in it is known only with an event.
    let fixed = receivers.iter().filter(|receiver| receiver.url.fields().next().is_none());
    let known = fixed.filter(|receiver| receiver.url.to_string() != UNKNOWN_URL);
    let all = known.map(|receiver| async move {
        let found = tokio::time::timeout(CHECK_TIMEOUT, reach(&receiver.url.to_string())).await;
        let late = || {
            let why = format!("no answer within {} s", CHECK_TIMEOUT.as_secs());
            failed_check(why, "is it running, and is the port open?")
        };
        LiveCheck::new("receiver", &receiver.display, found.unwrap_or_else(|_| late()))
    });
    futures_util::future::join_all(all).await
}

/// Checks that a server accepts connections and that its certificate is trusted.
async fn reach(url: &str) -> Result<String, (String, String)> {
    let Ok(url) = Url::parse(url) else { return failed_check("it is not a URL", "correct it") };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return failed_check("it has no host", "correct it");
    };
    // A URL has an IPv6 address in brackets; `lookup_host` wants none.
    let host = host.trim_matches(['[', ']']);
    let addresses = match tokio::net::lookup_host((host, port)).await {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => return failed_check(format!("its name cannot be resolved: {error}"), "is the name right?"),
    };
    let stream = match TcpStream::connect(addresses.as_slice()).await {
        Ok(stream) => stream,
        Err(error) => return failed_check(format!("cannot connect: {error}"), "is it running, and is the port right?"),
    };
    if url.scheme() != "https" {
        return Ok("can be connected to".into());
    }
    match tls_handshake(host, stream).await {
        Ok(()) => Ok("can be connected to, and its certificate is trusted".into()),
        Err(error) => {
            failed_check(format!("TLS failed: {error}"), "does it speak HTTPS, and is its certificate trusted?")
        }
    }
}

async fn tls_handshake(host: &str, stream: TcpStream) -> io::Result<()> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(other)?;
    let config = builder.with_platform_verifier().map_err(other)?.with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop)
}

fn other(error: rustls::Error) -> io::Error {
    io::Error::other(error)
}
