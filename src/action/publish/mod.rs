//! `publish`: sends the event's body, unchanged or in an envelope, to a NATS subject. One message, one reply, one
//! outcome:
//!
//! | what happened | outcome |
//! |---|---|
//! | the stream has it, now or from an earlier attempt (`duplicate`) | delivered |
//! | not connected: nothing was sent | failed |
//! | no stream has the subject, or the stream refuses the message | failed: it was not stored |
//! | too large for the server or the stream, a field that is not one token | rejected |
//! | sent, and no reply in time | unknown: the stream may have it |
//!
//! Every attempt of one life has the same `Nats-Msg-Id`, so the stream stores one message, as long as its duplicate
//! window covers the first.
pub(crate) mod nats_connection;
pub(crate) mod stream_check;

pub(crate) use nats_connection::{NatsConnection, NatsConnections, NatsServerVersion, round_trip};
pub(crate) use stream_check::{check_live, connected};

use super::plan::{PublishMode, PublishPlan};
use super::{Action, ActionBuildError, ActionFuture, Attempt};
use crate::action;
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::Payload;
use crate::decide::envelope::{self, EnvelopeFormat};
use crate::decide::event::{Event, Outcome};
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::VerificationScheme;
use async_nats::client::{PublishErrorKind, Request, RequestErrorKind};
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use async_nats::{Client, Message};
use bytes::Bytes;
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};
use tracing::info;

/// Waiting for a connection takes at most half of the timeout, so that "never sent" (failed) can be distinguished from
/// "never acknowledged" (unknown).
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// JetStream's error code for a message that is too large.
const TOO_LARGE: u64 = 10_054;

/// Publishes an event to a NATS subject.
pub(crate) struct PublishAction {
    plan: Arc<PublishPlan>,
    server: Arc<NatsConnection>,
}

/// A stream's reply.
#[derive(Deserialize)]
struct PublishAck {
    stream: Option<String>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    error: Option<PublishAckError>,
}

#[derive(Deserialize)]
struct PublishAckError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl PublishAction {
    /// Creates the action. Checks the stream's settings in the background, and logs warnings.
    pub(crate) fn new(plan: PublishPlan, servers: &NatsConnections) -> Result<Self, ActionBuildError> {
        let server = servers.connection(&plan.server)?;
        let plan = Arc::new(plan);
        tokio::spawn(stream_check::warn_about_stream(plan.clone(), server.clone()));
        Ok(Self { plan, server })
    }

    async fn publish(&self, attempt: Attempt<'_>) -> Outcome {
        let Attempt { event, payload, lease, .. } = attempt;
        let (subject, body) = match self.encode(event, payload) {
            Ok(letter) => letter,
            Err(why) => return Outcome::Rejected { why, receipt: None },
        };
        let until = Instant::now() + self.plan.timeout;
        let client = match self.server.connected(CONNECT_TIME.min(self.plan.timeout / 2)).await {
            Ok(client) => client,
            Err(why) => return Outcome::Failed { why, retry_after: None, receipt: None },
        };
        let headers = self.headers(&attempt);
        let sending = async {
            match self.plan.keeper {
                PublishMode::Stream => self.publish_jetstream(&client, &subject, headers, body, event).await,
                PublishMode::Core => publish_core(&client, subject, headers, body).await,
            }
        };
        tokio::select! {
            biased;
            over = lease.ended() => Outcome::Unknown { why: format!("{} before the stream replied", over.why()) },
            sent = timeout_at(until, sending) => sent.unwrap_or_else(|_| Outcome::TimedOut {
                why: format!("sent, but not acknowledged within {}", duration_text(self.plan.timeout)),
                answered: None,
            }),
        }
    }

    /// The subject and the body of the message.
    fn encode(&self, event: &Event, payload: &Payload) -> Result<(String, Bytes), String> {
        let subject = self.plan.subject(&event.fields).map_err(|unfilled| unfilled.to_string())?;
        let body = match self.plan.envelope {
            EnvelopeFormat::Raw => payload.body.clone(),
            EnvelopeFormat::Patchwork => {
                let id = event.delivery_id.as_deref().filter(|id| !id.is_empty());
                let id = id.ok_or("it has no delivery id, which the envelope needs")?;
                envelope::patchwork(id, self.kind(payload), &payload.body)?.into()
            }
        };
        Ok((subject, body))
    }

    fn kind<'p>(&'p self, payload: &'p Payload) -> &'p str {
        self.plan.kind.as_deref().and_then(|name| payload.header(name)).unwrap_or_default()
    }

    /// The headers: the event's id, and what a consumer needs to verify the delivery again.
    fn headers(&self, attempt: &Attempt<'_>) -> HeaderMap {
        let Attempt { event, payload, .. } = *attempt;
        let own = [
            ("Nats-Msg-Id", event.idempotency_key()),
            ("Hookonce-Event", event.id.to_string()),
            ("Hookonce-Attempt", event.attempt.to_string()),
            ("Hookonce-Delivery", event.delivery_id.as_deref().unwrap_or_default().to_owned()),
            ("Hookonce-Kind", self.kind(payload).to_owned()),
        ];
        let own = own.into_iter().chain(action::trace_headers(attempt)).map(|(name, value)| (name.to_owned(), value));
        let names = self.plan.carries.iter().map(String::as_str).chain(["content-type"]);
        let signed = self.resign(attempt);
        // Our own signature replaces the sender's: with both, a worker could not tell which one to verify.
        let proof = self
            .plan
            .signs
            .as_ref()
            .filter(|_| !signed.is_empty())
            .map_or_else(Vec::new, VerificationScheme::proof_headers);
        let is_new = |name: &str| proof.iter().any(|proof| proof == name) || signed.iter().any(|(new, _)| new == name);
        let kept = names.filter(|name| !is_new(name));
        let kept =
            kept.flat_map(|name| payload.all(name).map(move |value| (title_case_header(name), value.to_owned())));
        let signed = signed.iter().map(|(name, value)| (title_case_header(name), value.clone()));
        let mut headers = HeaderMap::new();
        for (name, value) in own.chain(kept).chain(signed).filter(|(_, value)| !value.is_empty()) {
            // A value that is not valid in a header is dropped; the body has it, too.
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                headers.append(name, value);
            }
        }
        headers
    }

    /// Signs the verified bytes as the sender would, if the sender's signature is deleted (its event has ended) or does
    /// not cover the JSON that an envelope carries of a form. Otherwise a consumer could not verify them.
    fn resign(&self, attempt: &Attempt<'_>) -> Vec<(String, String)> {
        let Attempt { event, payload, at, .. } = *attempt;
        let Some(scheme) = &self.plan.signs else { return Vec::new() };
        let carried = match self.plan.envelope {
            EnvelopeFormat::Raw => Cow::Borrowed(&payload.body[..]),
            EnvelopeFormat::Patchwork => envelope::inside(&payload.body).unwrap_or_default(),
        };
        let here = scheme.signature_headers().iter().any(|name| payload.header(name).is_some());
        if here && *carried == *payload.body {
            return Vec::new();
        }
        let signed = scheme.proof(event.delivery_id.as_deref().unwrap_or_default(), at, &carried);
        signed.into_iter().filter(|(name, _)| self.plan.carries.contains(name)).collect()
    }

    async fn publish_jetstream(
        &self,
        client: &Client,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
        event: &Event,
    ) -> Outcome {
        let request = Request::new().headers(headers).payload(body).timeout(None);
        match client.send_request(subject.to_owned(), request).await {
            Ok(answer) => parse_ack(&answer, event),
            Err(error) => match error.kind() {
                RequestErrorKind::NoResponders => {
                    let why = format!(
                        "no stream has the subject `{subject}`; create one: {}",
                        self.plan.create_stream_command()
                    );
                    Outcome::Failed { why, retry_after: None, receipt: None }
                }
                RequestErrorKind::InvalidSubject => {
                    Outcome::Rejected { why: format!("`{subject}` is not a valid subject"), receipt: None }
                }
                RequestErrorKind::MaxPayloadExceeded => too_large(client),
                RequestErrorKind::TimedOut | RequestErrorKind::Other => {
                    Outcome::Unknown { why: format!("sent, but not acknowledged: {error}") }
                }
            },
        }
    }
}

impl Action for PublishAction {
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(self.publish(attempt))
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Publish
    }
}

fn parse_ack(answer: &Message, event: &Event) -> Outcome {
    match serde_json::from_slice(&answer.payload) {
        Ok(PublishAck { error: Some(no), .. }) => {
            let why = format!("the stream refused it: {} ({})", no.description, no.err_code);
            if no.err_code == TOO_LARGE {
                return Outcome::Rejected { why, receipt: None };
            }
            Outcome::Failed { why, retry_after: None, receipt: None }
        }
        Ok(PublishAck { stream: Some(stream), seq: Some(seq), duplicate, .. }) => {
            if duplicate {
                info!(target: "hookonce", event = %event.id, message_id = %format_args!("{stream}:{seq}"), "published before");
            }
            Outcome::Delivered(None)
        }
        _ => Outcome::Unknown { why: "the reply is not from a stream".into() },
    }
}

/// Publishes on core NATS. The server has the message once it replies to a later request; whether a subscriber got it
/// is never known.
async fn publish_core(client: &Client, subject: String, headers: HeaderMap, body: Bytes) -> Outcome {
    if let Err(error) = client.publish_with_headers(subject, headers, body).await {
        return match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => too_large(client),
            _ => Outcome::Rejected { why: format!("cannot be published: {error}"), receipt: None },
        };
    }
    match round_trip(client).await {
        Ok(()) => Outcome::Delivered(None),
        Err(error) => Outcome::Unknown { why: format!("sent, but the server did not reply: {error}") },
    }
}

fn too_large(client: &Client) -> Outcome {
    let why = format!("it is too large for the server: at most {} bytes (max_payload)", client.max_payload());
    Outcome::Rejected { why, receipt: None }
}

/// A header name in title case, as HTTP libraries write it: `X-Github-Event`. NATS headers are case-sensitive.
fn title_case_header(name: &str) -> String {
    let word = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::title_case_header;

    #[test]
    fn a_header_is_written_as_others_write_it() {
        assert_eq!(title_case_header("x-hub-signature-256"), "X-Hub-Signature-256");
        assert_eq!(title_case_header("content-type"), "Content-Type");
    }
}
