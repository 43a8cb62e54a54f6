//! The headers sent to a receiver, and its HTTP client.

use super::ip_filter::{DnsResolver, FilteringResolver};
use crate::action;
use crate::action::Attempt;
use crate::action::plan::{FieldTemplateError, Http2Mode, ReceiverPlan, SigningKey};
use crate::decide::event::Event;
use crate::decide::time::Duration;
use crate::decide::verify::VerificationScheme;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use std::fmt;
use std::sync::Arc;

/// Connect timeout: DNS, TCP and TLS.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Idle timeout of pooled connections: shorter than the 5 s of Node.js, because a request that races with the close is
/// in doubt.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The HTTP client of a receiver. Connecting takes at most half of the timeout, so that "never connected" (failed) can
/// be distinguished from "never responded" (unknown).
pub(super) fn client(to: &ReceiverPlan, resolver: &DnsResolver) -> reqwest::Result<Client> {
    let mut builder = Client::builder()
        .user_agent(concat!("hookonce/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIME.min(to.timeout / 2))
        .pool_idle_timeout(IDLE_TIME);
    if to.http2 == Http2Mode::Prior {
        builder = builder.http2_prior_knowledge();
    }
    if to.url.fields().next().is_some() {
        let allow = to.allow.clone().into();
        builder = builder.dns_resolver(Arc::new(FilteringResolver { resolver: resolver.clone(), allow }));
    }
    // Plain HTTP must work on a machine without CA certificates.
    if to.url.to_string().starts_with("http://") { builder.tls_certs_only([]).build() } else { builder.build() }
}

/// Signs a request as Standard Webhooks does.
pub(super) fn signing(key: &SigningKey) -> Result<VerificationScheme, String> {
    VerificationScheme::standard_webhooks(std::slice::from_ref(&key.0), Duration::ZERO)
}

/// Why a header could not be built from an event's fields. Names the header or field, never a value.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum RequestHeaderError {
    Field(FieldTemplateError),
    Header(String),
}

impl fmt::Display for RequestHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(unfilled) => fmt::Display::fmt(unfilled, f),
            Self::Header(name) => write!(f, "the value for `{name}` is not allowed in a header"),
        }
    }
}

/// All headers of a request: content type and encoding, the sender's headers that the route passes on, those it sets,
/// and our own. Nothing else of the delivery is sent.
pub(super) fn headers(
    to: &ReceiverPlan,
    signs: Option<&VerificationScheme>,
    attempt: &Attempt<'_>,
) -> Result<HeaderMap, RequestHeaderError> {
    let Attempt { event, payload, .. } = attempt;
    let mut headers = HeaderMap::new();
    let passed = to.pass.iter().flat_map(|name| payload.all(name).map(move |value| (&**name, value)));
    let told = [&CONTENT_TYPE, &CONTENT_ENCODING].map(HeaderName::as_str);
    let told = told.iter().filter_map(|name| Some((*name, payload.header(name)?)));
    for (name, value) in passed.chain(told) {
        // An incoming header that is not valid for sending is dropped.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    for (name, text) in &to.set {
        let value = HeaderValue::try_from(text.fill(&event.fields).map_err(RequestHeaderError::Field)?);
        let (Ok(header), Ok(value)) = (HeaderName::try_from(&**name), value) else {
            return Err(RequestHeaderError::Header(name.clone()));
        };
        headers.insert(header, value);
    }
    for (name, value) in hookonce_headers(signs, attempt) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

/// The headers that hookonce itself writes.
fn hookonce_headers(signs: Option<&VerificationScheme>, attempt: &Attempt<'_>) -> Vec<(String, String)> {
    let Attempt { event, payload, at, digest, .. } = attempt;
    let mut own = vec![
        ("idempotency-key".to_owned(), event.idempotency_key()),
        ("hookonce-event".to_owned(), event.id.to_string()),
        ("hookonce-attempt".to_owned(), event.attempt.to_string()),
    ];
    own.extend(digest.map(|digest| ("hookonce-digest".to_owned(), digest.to_owned())));
    own.extend(event.is_rollback().then(|| ("hookonce-rollback".to_owned(), "1".to_owned())));
    own.extend(action::trace_headers(attempt).into_iter().map(|(name, value)| (name.to_owned(), value)));
    own.extend(signs.into_iter().flat_map(|scheme| scheme.proof(&message_id(event), *at, &payload.body)));
    own
}

/// The message id, the same for all attempts of one life. The standard forbids dots, which would make the signed
/// content ambiguous.
fn message_id(event: &Event) -> String {
    event.idempotency_key().replace('.', "_")
}
