//! `from`: a stream that a source reads its deliveries from.

use super::action::publish::ENVELOPES;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{ConfigNode, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::{StoreAddress, action};
use crate::action::plan::NatsServer;
use crate::decide::envelope::{self, EnvelopeFormat};
use crate::decide::field::FieldLocation;
use crate::decide::source::{DeliveryIdLocation, StreamBinding};
use crate::decide::verify::VerificationScheme;
use std::sync::Arc;

pub(super) static FROM_KEYS: SectionKeys = SectionKeys {
    name: "from",
    title: "`from = { … }`",
    about: "A NATS stream that deliveries are read from.",
    keys: &[
        &action::publish::SERVER_KEYS,
        &[
            key("stream", ConfigValueType::Text, "required", "The stream."),
            key("consumer", ConfigValueType::Text, "hookonce", "The durable consumer that all nodes share."),
            key(
                "ack",
                ConfigValueType::Word(&["claimed", "done"]),
                "claimed",
                "When a message is acknowledged: when its event is stored, or when it has ended. `memory:` needs \"done\".",
            ),
            key(
                "create",
                ConfigValueType::Flag,
                "false",
                "Whether to create a missing consumer, and with `subjects` a missing stream.",
            ),
            key(
                "subjects",
                ConfigValueType::Texts,
                "all of the stream",
                "The subjects to read, and those of a created stream.",
            ),
            key("replicas", ConfigValueType::Count, "1", "Replicas of a created stream, at most 5."),
            key(
                "envelope",
                ConfigValueType::Word(ENVELOPES),
                "none",
                "The format in which a message carries its delivery.",
            ),
        ],
    ],
};

const CONSUMER: &str = "hookonce";
/// Maximum replicas that NATS allows.
const REPLICAS_MAX: u32 = 5;

/// A stream, and how its messages are read.
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
    /// Whether a missing consumer or stream is created.
    pub create: bool,
    /// The subjects to read; empty: all.
    pub subjects: Vec<String>,
    /// The replicas of a created stream.
    pub replicas: usize,
    /// The envelope format of messages.
    pub envelope: EnvelopeFormat,
}

/// When a message is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckTiming {
    /// When its events are stored.
    Claimed,
    /// When its events have ended.
    Done,
}

impl StreamPlan {
    /// A description for people.
    pub fn words(&self) -> String {
        format!("stream {} at {}, consumer {}", self.name, self.server.shown, self.consumer)
    }

    pub(super) fn stream(&self) -> StreamBinding {
        StreamBinding { name: self.name.clone(), consumer: self.consumer.clone() }
    }

    /// Where an envelope carries the sender's delivery id.
    pub(super) fn delivery_id(&self, scheme: &VerificationScheme) -> Option<DeliveryIdLocation> {
        let at = FieldLocation::Header(envelope::DELIVERY_HEADER.into());
        let signed = scheme.covers(&at);
        (self.envelope == EnvelopeFormat::Patchwork).then_some(DeliveryIdLocation { at, signed })
    }
}

impl ConfigResolver<'_> {
    pub(super) fn from(&mut self, source: &ConfigSection<'_>) -> Option<StreamPlan> {
        let section = source.section("from")?;
        for (key, why) in [
            ("path", "a stream has no path"),
            ("respond", "a stream expects no response; `from.ack` decides when a message is acknowledged"),
            ("respond_within", "a stream expects no response"),
            ("accepted_status", "a stream expects no response"),
        ] {
            // Presets are written for HTTP.
            let written = source
                .node(key)
                .filter(|node| crate::config::once::provenance(node.at) == crate::config::Provenance::Written);
            if let Some(node) = written {
                self.diagnostics.error(format!("`{key}` and `from` cannot be combined")).at(node.at, why);
            }
        }
        if source.flag("api") == Some(true) {
            self.diagnostics
                .error("a preset for clients of an HTTP API and `from` cannot be combined")
                .at(source.place("preset"), "a stream expects no response");
        }
        let server = self.nats_server(&section);
        if !section.has("stream") {
            self.diagnostics
                .error("`from` has no `stream`")
                .unless(section.misspells("stream"))
                .at(section.at, "")
                .hint("stream = \"GITHUB\"");
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
                    .error(format!("`{text}` is not a subject"))
                    .at(node.at, "tokens separated by dots; * is one token, > all that follow");
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
            envelope: action::publish::envelope(&section),
        })
    }

    /// The replicas, which need `create`.
    fn replicas(&mut self, section: &ConfigSection<'_>) -> Option<usize> {
        let replicas = section.count("replicas")?;
        if replicas > REPLICAS_MAX {
            self.diagnostics
                .error(format!("a stream has at most {REPLICAS_MAX} replicas"))
                .at(section.place("replicas"), "");
        }
        if section.flag("create") != Some(true) || !section.has("subjects") {
            self.diagnostics
                .error("`replicas` applies only to a stream that hookonce creates")
                .at(section.place("replicas"), "")
                .hint("set create = true and the stream's `subjects`, or remove `replicas`");
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

    /// Checks that an acknowledged message is stored durably.
    pub(super) fn outlives(&mut self, stream: &StreamPlan, store: &StoreAddress, at: ConfigSpan) {
        if stream.ack == AckTiming::Claimed && *store == StoreAddress::Memory {
            self.diagnostics
                .error("messages could be lost: they are acknowledged when they are stored, but the store is memory:")
                .at(at, "`ack` is \"claimed\"")
                .hint("use ack = \"done\", or a durable store");
        }
    }
}
