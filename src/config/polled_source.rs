//! `poll`: a tag of a container registry that a source asks for, instead of receiving deliveries.

use super::describe::{LabelledTexts, labelled};
use super::keys::{ConfigValueType, SectionKeys, key};
use super::lookup::{self, CREDENTIAL_KEYS, REGISTRY_KEY};
use super::once::provenance;
use super::raw::{ConfigNode, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::{Provenance, StoreAddress};
use crate::decide::id::Key;
use crate::decide::identity;
use crate::decide::limits::{POLL_EVERY_MIN, POLL_TIME_MAX};
use crate::decide::poll_schedule::PollPolicy;
use crate::decide::time::{Duration, duration_text};
use crate::registry::LookupPlan;
use serde::Serialize;
use utoipa::ToSchema;

pub(super) static POLL_KEYS: SectionKeys = SectionKeys {
    name: "poll",
    title: "`poll = { … }`",
    about: "A tag of a container registry that is asked for, all nodes together. Each new digest is a delivery; the first one is, too.",
    keys: &[
        &[
            REGISTRY_KEY,
            key("image", ConfigValueType::Text, "required", "The name of the image in the registry."),
            key("tag", ConfigValueType::Text, "required", "The tag."),
            key(
                "every",
                ConfigValueType::Duration,
                "5m",
                "How often it is asked for, from 1s to 31d; up to a tenth later. A registry that does not answer is asked less and less often.",
            ),
            key(
                "min_age",
                ConfigValueType::Duration,
                "none",
                "How long a new digest waits before it is a delivery, counted from when it was first seen here.",
            ),
        ],
        &CREDENTIAL_KEYS,
        &[key(
            "timeout",
            ConfigValueType::Duration,
            "10s",
            "How long the registry may take, at most 1m; after that the question has failed.",
        )],
    ],
};

const EVERY: Duration = Duration::from_mins(5);

/// The fields that every polled source has.
const BUILT_IN: [&str; 5] = ["registry", "image", "tag", "digest", "seen_at"];

/// A tag that is polled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PollPlan {
    /// The question; its image and tag are fixed.
    pub question: LookupPlan,
    /// How often it is asked, and how long a new digest waits.
    pub policy: PollPolicy,
}

impl PollPlan {
    /// A description for people.
    pub fn words(&self) -> String {
        let LookupPlan { registry, image, tag, .. } = &self.question;
        let waits = match self.policy.min_age {
            Duration::ZERO => String::new(),
            min_age => format!(", waits {} with what is new", duration_text(min_age)),
        };
        format!("{}/{image}:{tag} every {}{waits}", registry.address, duration_text(self.policy.every))
    }

    /// Where the nodes keep what they know of the tag, for a source of this scope.
    pub(crate) fn state_key(&self, scope: &str) -> Key {
        let LookupPlan { registry, image, tag, .. } = &self.question;
        identity::key::polled(scope, &registry.address.to_string(), &image.to_string(), &tag.to_string())
    }
}

impl ConfigResolver<'_> {
    /// The tag that a source polls; `None` if it polls none or it is invalid.
    pub(super) fn poll(&mut self, source: &ConfigSection<'_>) -> Option<PollPlan> {
        let section = source.section("poll")?;
        self.no_sender(source);
        let question = self.question(&section, None);
        let every = self.positive(&section, "every").unwrap_or(EVERY);
        let min_age = section.duration("min_age").unwrap_or_default();
        if every < POLL_EVERY_MIN {
            self.diagnostics
                .error("`every` is too short")
                .at(section.place("every"), format!("at least {}", duration_text(POLL_EVERY_MIN)));
        }
        for (key, length) in [("every", every), ("min_age", min_age)] {
            if length > POLL_TIME_MAX {
                self.diagnostics
                    .error(format!("`{key}` is too long"))
                    .at(section.place(key), format!("at most {}", duration_text(POLL_TIME_MAX)));
            }
        }
        Some(PollPlan { question: question?, policy: PollPolicy { every, min_age } })
    }

    /// Reports keys that are about a sender: a polled source has none.
    fn no_sender(&mut self, source: &ConfigSection<'_>) {
        for (key, why) in [
            ("preset", "a polled source has fields and identities of its own"),
            ("path", "a source that polls has no path"),
            ("from", "a source polls a registry or reads a stream, not both"),
            ("verify", "nobody sends anything: hookonce asks the registry itself"),
            ("secret", "nobody signs anything; credentials for the registry belong in `poll`"),
            ("key_id", "there are no callers"),
            ("delivery", "there is no sender that numbers its deliveries"),
            ("signed", "there is no sender that signs"),
            ("respond", "nobody waits for a response"),
            ("respond_within", "nobody waits for a response"),
            ("accepted_status", "nobody waits for a response"),
            ("body_max", "the body is made here"),
            ("kinds", "these are not events of GitHub"),
        ] {
            if source.node(key).is_some_and(|node| provenance(node.at) == Provenance::Written) {
                self.diagnostics.error(format!("`{key}` and `poll` cannot be combined")).at(source.key_place(key), why);
            }
        }
        let fields = source.node("fields").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
        for entry in fields.iter().filter(|entry| provenance(entry.key_at) == Provenance::Written) {
            if BUILT_IN.contains(&entry.key.as_str()) {
                self.diagnostics
                    .error(format!("the field `{}` is built in", entry.key))
                    .at(entry.key_at, format!("a polled source has {}", BUILT_IN.join(", ")))
                    .hint("choose another name");
            }
        }
    }

    /// Warns about a store that forgets what was deployed.
    pub(super) fn remembers(&mut self, store: &StoreAddress, at: ConfigSpan) {
        if *store == StoreAddress::Memory {
            self.diagnostics
                .warning("the image is deployed again at each start")
                .at(at, "the store is memory:, so that a new process knows of no digest")
                .hint("use a durable store");
        }
    }
}

/// The tag that a source polls.
#[derive(Serialize, ToSchema)]
pub(super) struct PollView {
    registry: String,
    image: String,
    tag: String,
    /// In words; never a secret.
    credentials: String,
    every: String,
    #[schema(required)]
    min_age: Option<String>,
    timeout: String,
}

/// A polled tag as resolved.
pub(super) fn view(plan: &PollPlan) -> PollView {
    let LookupPlan { registry, image, tag, timeout } = &plan.question;
    let PollPolicy { every, min_age } = plan.policy;
    PollView {
        registry: registry.address.to_string(),
        image: image.to_string(),
        tag: tag.to_string(),
        credentials: registry.credentials.words(),
        every: duration_text(every),
        min_age: (!min_age.is_zero()).then(|| duration_text(min_age)),
        timeout: duration_text(*timeout),
    }
}

/// A polled tag in words.
pub(super) fn texts(plan: &PollPlan) -> Vec<LabelledTexts> {
    let PollPolicy { every, min_age } = plan.policy;
    let waits = (!min_age.is_zero())
        .then(|| labelled("waits", format!("until a digest was first seen {} ago", duration_text(min_age))));
    let polled = labelled("polls", format!("{}, every {}", lookup::words(&plan.question), duration_text(every)));
    [polled].into_iter().chain(waits).collect()
}
