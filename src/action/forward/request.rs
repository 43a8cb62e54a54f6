//! The requests to a receiver: what of them is the same for every event, and the HTTP client.

use super::ip_filter::{DnsResolver, FilteringResolver};
use crate::action;
use crate::action::Attempt;
use crate::action::plan::{
    FieldTemplate, FieldTemplateError, Http2Mode, ReceiverHeaderValue, ReceiverPlan, SigningKey,
};
use crate::decide::event::Event;
use crate::decide::time::Duration;
use crate::decide::verify::VerificationScheme;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
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

/// The part of a receiver's requests that is the same for every event.
pub(super) struct RequestTemplate {
    /// The URL, or why it is none; `None`: it has a field in it.
    url: Option<Result<Url, String>>,
    /// Headers of the sender that it is passed: as they are kept, and as they are sent.
    pass: Vec<(String, HeaderName)>,
    set: Vec<SetHeader>,
}

/// A header that is set for a receiver.
enum SetHeader {
    /// With the same value for every event.
    Fixed(HeaderName, HeaderValue),
    /// With fields in its value.
    Filled(HeaderName, FieldTemplate),
    /// It cannot be sent.
    Unfit(String),
}

impl SetHeader {
    fn of((name, value): &(String, ReceiverHeaderValue)) -> Self {
        let Ok(header) = HeaderName::try_from(&**name) else { return Self::Unfit(name.clone()) };
        let text = match value {
            ReceiverHeaderValue::Template(template) if template.fields().next().is_some() => {
                return Self::Filled(header, template.clone());
            }
            ReceiverHeaderValue::Template(template) => template.to_string(),
            ReceiverHeaderValue::Secret(text) => text.clone(),
        };
        HeaderValue::try_from(text).map_or_else(|_| Self::Unfit(name.clone()), |value| Self::Fixed(header, value))
    }

    fn add(&self, event: &Event, to: &mut HeaderMap) -> Result<(), RequestHeaderError> {
        let (name, value) = match self {
            Self::Fixed(name, value) => (name, value.clone()),
            Self::Filled(name, template) => {
                let text = template.fill(&event.fields).map_err(RequestHeaderError::Field)?;
                let unfit = |_| RequestHeaderError::Header(name.as_str().to_owned());
                (name, HeaderValue::try_from(text).map_err(unfit)?)
            }
            Self::Unfit(name) => return Err(RequestHeaderError::Header(name.clone())),
        };
        to.insert(name.clone(), value);
        Ok(())
    }
}

impl RequestTemplate {
    pub(super) fn of(to: &ReceiverPlan) -> Self {
        let fixed = to.url.fields().next().is_none();
        let parsed =
            || Url::parse(&to.url.to_string()).map_err(|error| format!("the receiver's URL is invalid: {error}"));
        let header = |name: &String| Some((name.clone(), HeaderName::try_from(&**name).ok()?));
        Self {
            url: fixed.then(parsed),
            pass: to.pass.iter().filter_map(header).collect(),
            set: to.set.iter().map(SetHeader::of).collect(),
        }
    }

    /// The URL, if it is the same for every event.
    pub(super) fn url(&self) -> Option<Result<Url, String>> {
        self.url.clone()
    }

    /// All headers of a request: content type and encoding, the sender's headers that the route passes on, those it
    /// sets, and our own. Nothing else of the delivery is sent.
    pub(super) fn headers(
        &self,
        signs: Option<&VerificationScheme>,
        attempt: &Attempt<'_>,
    ) -> Result<HeaderMap, RequestHeaderError> {
        let mut headers = HeaderMap::with_capacity(HEADERS_USUAL);
        let passed =
            self.pass.iter().flat_map(|(kept, name)| attempt.payload.all(kept).map(move |value| (name, value)));
        let framing = [&CONTENT_TYPE, &CONTENT_ENCODING];
        let framing = framing.into_iter().filter_map(|name| Some((name, attempt.payload.header(name.as_str())?)));
        for (name, value) in passed.chain(framing) {
            // An incoming header that is not valid for sending is dropped.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(name.clone(), value);
            }
        }
        for header in &self.set {
            header.add(attempt.event, &mut headers)?;
        }
        add_hookonce_headers(signs, attempt, &mut headers);
        Ok(headers)
    }
}

/// How many headers a request usually has room for before its map grows.
const HEADERS_USUAL: usize = 16;

/// Adds the headers that hookonce itself writes.
fn add_hookonce_headers(signs: Option<&VerificationScheme>, attempt: &Attempt<'_>, to: &mut HeaderMap) {
    let Attempt { event, payload, at, digest, .. } = attempt;
    let mut add = |name, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            to.insert(name, value);
        }
    };
    add(HeaderName::from_static("idempotency-key"), event.idempotency_key());
    add(HeaderName::from_static("hookonce-event"), event.id.to_string());
    add(HeaderName::from_static("hookonce-attempt"), event.attempt.to_string());
    if let Some(digest) = digest {
        add(HeaderName::from_static("hookonce-digest"), (*digest).to_owned());
    }
    if event.is_rollback() {
        add(HeaderName::from_static("hookonce-rollback"), "1".to_owned());
    }
    for (name, value) in action::trace_headers(attempt) {
        add(HeaderName::from_static(name), value);
    }
    for (name, value) in signs.into_iter().flat_map(|scheme| scheme.proof(&message_id(event), *at, &payload.body)) {
        if let Ok(name) = HeaderName::try_from(name) {
            add(name, value);
        }
    }
}

/// The message id, the same for all attempts of one life. The standard forbids dots, which would make the signed
/// content ambiguous.
fn message_id(event: &Event) -> String {
    event.idempotency_key().replace('.', "_")
}
