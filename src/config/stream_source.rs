//! `from`: a stream that a source takes its deliveries from.

use super::StoreAddress;
use super::keys::SectionKind;
use super::raw::{ConfigNode, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::action::plan::NatsServer;
use crate::decide::envelope::{self, EnvelopeFormat};
use crate::decide::field::FieldLocation;
use crate::decide::source::{DeliveryIdLocation, StreamBinding};
use crate::decide::verify::VerificationScheme;
use std::sync::Arc;

const CONSUMER: &str = "hookonce";
/// What NATS allows.
const REPLICAS_MAX: u32 = 5;

/// A stream, and how its messages are taken.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamPlan {
    /// Where it is.
    pub server: NatsServer,
    /// Its name.
    pub name: Arc<str>,
    /// The durable consumer that all nodes share.
    pub consumer: Arc<str>,
    /// When a message is acknowledged.
    pub ack: AckTiming,
    /// Whether what is missing is made.
    pub create: bool,
    /// What is taken of it; nothing: all.
    pub subjects: Vec<String>,
    /// How many servers of a cluster keep a stream that is made.
    pub replicas: usize,
    /// How a message carries its delivery.
    pub envelope: EnvelopeFormat,
}

/// When a message is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckTiming {
    /// When its events are stored.
    Claimed,
    /// When they are over.
    Done,
}

impl StreamPlan {
    /// As people read it.
    pub fn words(&self) -> String {
        format!("stream {} at {}, consumer {}", self.name, self.server.shown, self.consumer)
    }

    pub(super) fn stream(&self) -> StreamBinding {
        StreamBinding { name: self.name.clone(), consumer: self.consumer.clone() }
    }

    /// Where an envelope puts the sender's delivery id.
    pub(super) fn delivery_id(&self, scheme: &VerificationScheme) -> Option<DeliveryIdLocation> {
        let at = FieldLocation::Header(envelope::DELIVERY_HEADER.into());
        let signed = scheme.covers(&at);
        (self.envelope == EnvelopeFormat::Patchwork).then_some(DeliveryIdLocation { at, signed })
    }
}

impl ConfigResolver<'_> {
    pub(super) fn from(&mut self, source: &ConfigSection<'_>) -> Option<StreamPlan> {
        let section = source.section("from", SectionKind::From)?;
        for (key, why) in [
            ("path", "a stream has no path"),
            ("respond", "nobody waits for an answer; `from.ack` says when a message is acknowledged"),
            ("respond_within", "nobody waits for an answer"),
        ] {
            // A preset was written for a path.
            let written = source
                .node(key)
                .filter(|node| crate::config::once::provenance(node.at) == crate::config::Provenance::Written);
            if let Some(node) = written {
                self.diagnostics.error(format!("`{key}` and `from` cannot stand together")).at(node.at, why);
            }
        }
        if source.flag("api") == Some(true) {
            self.diagnostics
                .error("a preset for clients of an HTTP API and `from` cannot stand together")
                .at(source.place("preset"), "nobody waits for an answer");
        }
        let server = self.nats_server(&section);
        if !section.has("stream") {
            self.diagnostics.error("`from` has no `stream`").at(section.at, "").hint("stream = \"GITHUB\"");
        }
        let name = self.stream_name(&section, "stream");
        let consumer = match section.text("consumer") {
            Some(_) => self.stream_name(&section, "consumer"),
            None => Some(CONSUMER.into()),
        };
        let subjects = section.node("subjects").and_then(ConfigNode::list).unwrap_or(&[]);
        for node in subjects {
            let text = node.text().unwrap_or_default();
            if text.split('.').any(str::is_empty) || text.contains(char::is_whitespace) {
                self.diagnostics
                    .error(format!("`{text}` is no subject"))
                    .at(node.at, "tokens with dots between them; * is one token, > all that follow");
            }
        }
        Some(StreamPlan {
            server: server?,
            name: name?,
            consumer: consumer?,
            ack: if section.text("ack") == Some("done") { AckTiming::Done } else { AckTiming::Claimed },
            create: section.flag("create").unwrap_or_default(),
            subjects: subjects.iter().filter_map(ConfigNode::text).map(str::to_owned).collect(),
            replicas: self.replicas(&section).unwrap_or(1),
            envelope: crate::config::publish::envelope(&section),
        })
    }

    /// Only a stream that is made here is given replicas.
    fn replicas(&mut self, section: &ConfigSection<'_>) -> Option<usize> {
        let replicas = section.count("replicas")?;
        if replicas > REPLICAS_MAX {
            self.diagnostics
                .error(format!("a stream has at most {REPLICAS_MAX} replicas"))
                .at(section.place("replicas"), "");
        }
        if section.flag("create") != Some(true) || !section.has("subjects") {
            self.diagnostics
                .error("`replicas` is for a stream that hookonce makes")
                .at(section.place("replicas"), "")
                .hint("write create = true and the stream's `subjects`, or leave `replicas` out");
        }
        usize::try_from(replicas).ok()
    }

    fn stream_name(&mut self, section: &ConfigSection<'_>, key: &str) -> Option<Arc<str>> {
        let text = section.text(key)?;
        let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
        if text.is_empty() || text.contains(bad) {
            self.diagnostics
                .error(format!("`{text}` cannot be the name of a {key}"))
                .at(section.place(key), "no spaces, dots, slashes, * or >");
            return None;
        }
        Some(text.into())
    }

    /// A message that is acknowledged must be kept by somebody.
    pub(super) fn outlives(&mut self, stream: &StreamPlan, store: &StoreAddress, at: ConfigSpan) {
        if stream.ack == AckTiming::Claimed && *store == StoreAddress::Memory {
            self.diagnostics
                .error("a message would be lost with the node: it is acknowledged when it is stored, and the store is memory:")
                .at(at, "`ack` is \"claimed\"")
                .hint("ack = \"done\", or a store that lasts");
        }
    }
}
