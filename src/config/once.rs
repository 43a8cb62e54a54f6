//! `once`: what makes two deliveries the same event (identities, `change`), and for how long.

use super::fields::SourceFieldScope;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{ConfigNode, ConfigOrigin, ConfigSpan, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::{Provenance, SourceProvenance};
use crate::decide::field::{FieldIndex, FieldLocation};
use crate::decide::source::{ChangeRule, DeduplicationPolicy, DeliveryIdLocation, Identity, Keep};
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::VerificationScheme;

pub(super) static ONCE_KEYS: SectionKeys = SectionKeys {
    name: "once",
    title: "`[source.NAME.once]`",
    about: "What makes two deliveries the same event, and for how long.",
    keys: &[&[
        key(
            "per",
            ConfigValueType::Identities,
            "[\"delivery\"], else [\"body\"]",
            "A list of identities: a delivery is a duplicate if one of them matches.",
        ),
        key(
            "equal_bodies",
            ConfigValueType::Word(&["duplicate", "new"]),
            "duplicate",
            "What the same bytes under another delivery id are, if the signature does not cover the id.",
        ),
        key(
            "new_when",
            ConfigValueType::Expression,
            "never",
            "If true, the delivery is an event of its own, whatever its body and fields are equal to; the same delivery id \
             is still a repeat.",
        ),
        key(
            "change",
            ConfigValueType::Table(&CHANGE_KEYS),
            "none",
            "A register per subject: the same change again is a duplicate.",
        ),
        key("keep", ConfigValueType::Duration, "30d", "How long an event is kept after its end."),
        key("keep_body", ConfigValueType::Duration, "7d", "How long its body and receipt are kept after its end."),
        key(
            "keep_failures",
            ConfigValueType::Flag,
            "false: a repeat retries",
            "Whether a failure is kept as a response, too: a repeat gets it again.",
        ),
    ]],
};

pub(super) static CHANGE_KEYS: SectionKeys = SectionKeys {
    name: "change",
    title: "`change = { … }`",
    about: "A register per subject: the same change again is a duplicate.",
    keys: &[&[
        key("of", ConfigValueType::Names, "required", "The subject."),
        key("to", ConfigValueType::Names, "required", "What it is changed to."),
        key("order", ConfigValueType::Name, "the order of arrival", "The sender's order: an integer or a time."),
    ]],
};

const KEEP: Duration = Duration::from_hours(30 * 24);
const KEEP_BODY: Duration = Duration::from_hours(7 * 24);

/// The signed content as an identity, if the signature does not cover the delivery id: a captured delivery could be
/// sent again under another id.
fn signed_identity(scheme: &VerificationScheme, names: &SourceFieldScope<'_>) -> Option<Identity> {
    let id = names.delivery;
    // In a joined form a byte can move from one value to another: no value of it alone is what was signed.
    if scheme.signs_form() {
        return Some(Identity::SignedText);
    }
    if id.is_some_and(|id| scheme.covers(&id.at)) {
        return None;
    }
    if scheme.signs_other_than_bytes() {
        return Some(Identity::SignedText);
    }
    // An element that comes again, in an envelope that was signed again, is the same.
    let by_time = scheme.signs_time() && names.fields.each().is_none();
    let identity = if by_time { Identity::Signed } else { Identity::Body };
    scheme.signs_body().then_some(identity)
}

/// Whether this identity depends on the body alone, so that the same bytes are always the same event.
fn of_the_body(identity: &Identity, names: &SourceFieldScope<'_>) -> bool {
    let in_body = |ix: &FieldIndex| names.fields.get(*ix).places().all(FieldLocation::is_in_body);
    match identity {
        Identity::Body => true,
        Identity::Named(fields) => fields.iter().all(in_body),
        Identity::Delivery | Identity::Message | Identity::Signed | Identity::SignedText => false,
    }
}

/// The sender, how long it sends a delivery again that failed, and whether only a person makes it do so.
fn retries_of<'a>(names: &'a SourceFieldScope<'_>) -> Option<(&'a str, Duration, bool)> {
    let facts = names.sender.and_then(|sender| Some((sender.name.as_str(), sender.retries?, sender.by_hand)));
    let by_scheme = || {
        let (sender, window) = names.scheme?.redelivered_by_hand()?;
        Some((sender, window, true))
    };
    facts.or_else(by_scheme)
}

/// What to take instead of a value that is not signed.
pub(super) fn signed_hint(places: &[FieldLocation]) -> String {
    let all: Vec<_> = places.iter().map(ToString::to_string).collect();
    format!("take what is signed: {}", all.join(", "))
}

/// Adds the message identity of a stream source; the delivery identity is the carried id, if there is one.
fn with_message(
    per: Vec<Identity>,
    from: &[Provenance],
    id: Option<&DeliveryIdLocation>,
) -> (Vec<Identity>, Vec<Provenance>) {
    let both = per.into_iter().zip(from.iter().copied()).flat_map(|(identity, from)| {
        let message = (identity == Identity::Delivery).then_some((Identity::Message, from));
        let own = (message.is_none() || id.is_some()).then_some((identity, from));
        own.into_iter().chain(message)
    });
    both.unzip()
}

pub(super) fn provenance(at: ConfigSpan) -> Provenance {
    match at.origin {
        ConfigOrigin::Config => Provenance::Written,
        ConfigOrigin::Preset(_) | ConfigOrigin::PresetTable | ConfigOrigin::PresetFile(_) => Provenance::Preset,
    }
}

impl ConfigResolver<'_> {
    pub(super) fn once(
        &mut self,
        source: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        delivery: Option<&DeliveryIdLocation>,
    ) -> (DeduplicationPolicy, SourceProvenance) {
        let section = source.section("once");
        let key = |name: &str| section.and_then(|s| s.node(name));
        let from = |name: &str| key(name).map_or(Provenance::Default, |node| provenance(node.at));
        let change = section.and_then(|s| self.change(&s, names));
        let new_when = section.and_then(|s| self.filter("new_when", &s, names));

        let (mut per, mut per_from) = match key("per").and_then(ConfigNode::list) {
            Some(list) => {
                let per = self.per(list, names, delivery);
                (per.clone(), vec![from("per"); per.len()])
            }
            // Of the body too little is signed for it to be an identity, and of an id that is not signed nothing is.
            // In a joined form no value alone is signed.
            None if names.signed_places().is_some() && !delivery.is_some_and(|id| names.covers(&id.at))
                || names.scheme.is_some_and(VerificationScheme::signs_form) =>
            {
                (vec![Identity::SignedText], vec![Provenance::Default])
            }
            None if delivery.is_some() || names.scheme.is_none() || names.stream.is_some() => {
                (vec![Identity::Delivery], vec![Provenance::Default])
            }
            None => (vec![Identity::Body], vec![Provenance::Default]),
        };
        if names.stream.is_some() {
            (per, per_from) = with_message(per, &per_from, delivery);
        }
        let all_new = section.is_some_and(|once| once.text("equal_bodies") == Some("new"));
        if let Some(node) = key("per").filter(|node| node.list().is_some_and(<[_]>::is_empty))
            && !(all_new && names.signed_places().is_none())
            && (!section.is_some_and(|s| s.has("change")) || names.signed_places().is_some())
        {
            self.diagnostics
                .error("`once.per` is empty")
                .at(node.at, "no delivery would ever be a duplicate")
                .hint("equal_bodies = \"new\", if the sender's equal deliveries must act each time");
        }
        let body_only = names.scheme.is_some_and(VerificationScheme::signs_only_the_body);
        // Without the sender's order, a captured delivery that is sent again later looks like a rollback.
        let replayable = body_only || names.scheme.is_some_and(VerificationScheme::signs_other_than_bytes);
        let implied = self.implied(source, section.as_ref(), names, &per, change.is_some() && body_only);
        let by_signature = implied.as_ref().is_some_and(|(_, whence)| *whence == Provenance::ImpliedBySignature);
        let (identity, by) = implied.unzip();
        per.extend(identity.clone());
        per_from.extend(by);
        let ordered = key("change").and_then(ConfigNode::table).is_some_and(|table| table.get("order").is_some());
        let for_ever = replayable && change.is_some() && !ordered;
        let (keep, keep_body) = self.keep(section.as_ref(), names, for_ever);
        if for_ever && let Some(node) = key("change") {
            let label = if key("keep").is_some() { "`keep` does not apply: " } else { "" };
            self.diagnostics
                .warning("`change` has no `order`, so its keys are kept forever")
                .at(node.at, format!("{label}a delivery repeated after `keep` would look like a rollback"))
                .hint(match names.sender.and_then(|sender| sender.order.as_deref()) {
                    Some(order) => format!("order = \"{order}\", as the preset's sender orders its deliveries"),
                    None => "name a field that orders the changes: an increasing number or time".to_owned(),
                });
        }
        let imported = source.node("imported").and_then(ConfigNode::list);
        let imported = imported.map(|list| self.signed_list("imported", list, names));
        let keep_from = if for_ever { Provenance::Implied } else { from("keep") };
        let notes = SourceProvenance {
            preset: None,
            preset_version: 1,
            per: per_from,
            change: from("change"),
            keep: keep_from,
            keep_body: from("keep_body"),
        };
        let keep_failures = section.and_then(|s| s.flag("keep_failures")).unwrap_or(false);
        let implied = identity.filter(|_| by_signature);
        (DeduplicationPolicy { per, implied, change, new_when, imported, keep, keep_body, keep_failures }, notes)
    }

    /// Implied identities: the signed content, if the signature does not cover the delivery id and no identity is made
    /// of the body alone; and the body, if only the body is signed and there is a `change`.
    fn implied(
        &mut self,
        source: &ConfigSection<'_>,
        once: Option<&ConfigSection<'_>>,
        names: &SourceFieldScope<'_>,
        per: &[Identity],
        changes_by_body: bool,
    ) -> Option<(Identity, Provenance)> {
        // For API clients equal bodies under two keys are two requests, and a signature covers the key.
        let scheme = names.scheme.filter(|_| source.flag("api") != Some(true));
        let of_body = per.iter().any(|identity| of_the_body(identity, names));
        let signed = scheme.and_then(|scheme| signed_identity(scheme, names));
        // The same bytes are the same event already. What was signed may have come in other bytes.
        let signed = signed.filter(|identity| *identity == Identity::SignedText || !of_body);
        let signed = signed.filter(|identity| !per.contains(identity));
        let by_change =
            (changes_by_body && !per.contains(&Identity::Body)).then_some((Identity::Body, Provenance::Implied));
        let implied = signed.map(|identity| (identity, Provenance::ImpliedBySignature)).or(by_change);
        let written = once.and_then(|once| Some((once.text("equal_bodies")?, once)));
        match (written, &implied) {
            (Some(("new", once)), _) if per.contains(&Identity::Body) => {
                let no_id = names.delivery.is_none() && names.stream.is_none();
                let hint = if no_id {
                    "name the sender's id with delivery = \"header.x-id\""
                } else {
                    "leave one of them out"
                };
                self.diagnostics
                    .error("`equal_bodies` is \"new\", but `per` makes equal bodies one event")
                    .at(once.place("equal_bodies"), "the body is an identity")
                    .hint(hint);
                None
            }
            (Some(("new", _)), None) if per.is_empty() => None,
            (Some((word, once)), None) => {
                let why = if of_body {
                    "an identity is made of fields of the body"
                } else {
                    "the signature covers the delivery id, or there is no delivery id"
                };
                let hint = match word {
                    "duplicate" => "per = [\"delivery\", \"body\"], if equal bodies are one event",
                    _ => "leave it out",
                };
                self.diagnostics
                    .warning("`equal_bodies` has no effect")
                    .unless(self.unread.delivery)
                    .at(once.place("equal_bodies"), why)
                    .hint(hint);
                None
            }
            (Some(("new", once)), Some(_)) if provenance(once.place("equal_bodies")) == Provenance::Preset => None,
            (Some(("new", once)), Some(_)) => {
                let age =
                    scheme.and_then(VerificationScheme::tolerance).map(|age| format!(" within {}", duration_text(age)));
                let age = age.unwrap_or_default();
                self.diagnostics
                    .warning("anyone who captures a delivery can make it act again")
                    .at(once.place("equal_bodies"), format!("the same bytes under another id{age} are a new event, since the signature does not cover the id"))
                    .hint("remove it, unless the sender sends equal bodies that must act each time");
                None
            }
            _ => implied,
        }
    }

    fn keep(
        &mut self,
        section: Option<&ConfigSection<'_>>,
        names: &SourceFieldScope<'_>,
        for_ever: bool,
    ) -> (Keep, Duration) {
        // A sender that sends again for longer is remembered for as long.
        let retries = retries_of(names).map_or(KEEP, |(_, window, _)| window.max(KEEP));
        let keep = section.and_then(|s| self.positive(s, "keep")).unwrap_or(retries);
        let body = section.and_then(|s| s.duration("keep_body"));
        if let (Some(section), Some(body)) = (section, body)
            && body > keep
            && !for_ever
        {
            self.diagnostics
                .error("`keep_body` is longer than `keep`")
                .at(section.place("keep_body"), format!("the event itself is kept for {}", duration_text(keep)))
                .hint("make `keep` longer or `keep_body` shorter");
        }
        if for_ever {
            return (Keep::Forever, body.unwrap_or(KEEP_BODY));
        }
        self.keeps_what_was_captured(section, names, keep);
        if let Some((sender, window, by_hand)) = retries_of(names)
            && let Some(section) = section
            && keep < window
        {
            let window = duration_text(window);
            let (what, label) = if by_hand {
                ("redelivery window", format!("{sender} can redeliver for {window}"))
            } else {
                ("retries", format!("{sender} sends a failed delivery again for {window}"))
            };
            self.diagnostics
                .warning(format!("`keep` is shorter than {sender}'s {what}"))
                .at(section.place("keep"), label)
                .hint(format!("keep = \"{window}\" or longer"));
        }
        (Keep::For(keep), body.unwrap_or(KEEP_BODY.min(keep)))
    }

    /// Reports events that are forgotten while what was captured of them still counts: where the bytes are not signed,
    /// it could then act again, with anything in it.
    fn keeps_what_was_captured(
        &mut self,
        section: Option<&ConfigSection<'_>>,
        names: &SourceFieldScope<'_>,
        keep: Duration,
    ) {
        let scheme = names.scheme.filter(|scheme| scheme.signs_other_than_bytes());
        let Some(age) = scheme.and_then(VerificationScheme::tolerance) else { return };
        // A delivery may come that long before its time, and as long after it.
        let least = age.saturating_mul(2);
        if let (Some(section), true) = (section, keep < least) {
            self.diagnostics
                .error("`keep` is too short for this sender's signatures")
                .at(section.place("keep"), format!("a captured delivery counts for {}", duration_text(least)))
                .hint(format!("keep = \"{}\" or longer", duration_text(least)));
        }
    }

    fn per(
        &mut self,
        list: &[ConfigNode],
        names: &SourceFieldScope<'_>,
        delivery: Option<&DeliveryIdLocation>,
    ) -> Vec<Identity> {
        let mut per = Vec::new();
        for node in list {
            let identity = match &node.value {
                ConfigValue::Text(word) if word == "delivery" => {
                    self.has_delivery(node, names, delivery);
                    Identity::Delivery
                }
                ConfigValue::Text(word) if word == "body" => {
                    self.body_is_signed(node, names);
                    Identity::Body
                }
                ConfigValue::Text(_) => match self.signed("once.per", node, names) {
                    Some(ix) => Identity::Named(vec![ix]),
                    None => continue,
                },
                ConfigValue::List(list) => match self.together(node, list, names) {
                    Some(identity) => identity,
                    None => continue,
                },
                _ => continue,
            };
            if per.contains(&identity) {
                self.report_repeated_field("once.per", node);
            }
            per.push(identity);
        }
        per
    }

    fn together(&mut self, node: &ConfigNode, list: &[ConfigNode], names: &SourceFieldScope<'_>) -> Option<Identity> {
        if let Some(alone) = list.iter().find(|item| matches!(item.text(), Some("delivery" | "body"))) {
            let word = alone.text().unwrap_or_default();
            self.diagnostics
                .error(format!("`{word}` cannot be taken together with fields"))
                .at(alone.at, "it is an identity of its own")
                .hint(format!("write it outside the inner list: per = [\"{word}\", […]]"));
            return None;
        }
        if list.is_empty() {
            self.diagnostics
                .error("an identity of `once.per` is empty")
                .at(node.at, "every delivery would be the same event");
            return None;
        }
        Some(Identity::Named(self.signed_list("once.per", list, names)))
    }

    fn has_delivery(&mut self, node: &ConfigNode, names: &SourceFieldScope<'_>, delivery: Option<&DeliveryIdLocation>) {
        // The key of an unsigned id is bound to the body. Here that is not signed either.
        if let Some((places, id)) = names.signed_places().zip(delivery.filter(|id| !names.covers(&id.at))) {
            self.diagnostics
                .error("`once.per` uses the delivery id, which is not signed")
                .at(node.at, format!("anyone who has captured a delivery could change {}", id.at))
                .hint(signed_hint(&places));
        }
        if delivery.is_none() && names.scheme.is_some() && names.stream.is_none() {
            self.diagnostics
                .error("`once.per` names the delivery id, but this source has none")
                .unless(self.unread.delivery)
                .at(node.at, "")
                .hint(if names.fields.each().is_some() {
                    "set delivery = \"body.id\", the id of an element, or use \"body\" or fields"
                } else {
                    "set delivery = \"header.x-id\", or use \"body\" or fields"
                });
        }
    }

    /// Reports the identity `body` where the signature does not cover the body.
    fn body_is_signed(&mut self, node: &ConfigNode, names: &SourceFieldScope<'_>) {
        if let Some(places) = names.signed_places() {
            self.diagnostics
                .error("`once.per` uses the body, which is not signed")
                .at(node.at, "anyone who has captured a delivery could change it")
                .hint(signed_hint(&places));
        }
    }

    fn change(&mut self, once: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> Option<ChangeRule> {
        let section = once.section("change")?;
        let mut side = |key: &str| {
            let what = format!("change.{key}");
            match section.node(key) {
                None => {
                    self.diagnostics
                        .error(format!("`change` has no `{key}`"))
                        .unless(section.misspells(key))
                        .at(section.at, "both `of` and `to` are needed");
                    Vec::new()
                }
                Some(node) => {
                    let list = node.list().unwrap_or(&[]);
                    if list.is_empty() && node.list().is_some() {
                        self.diagnostics
                            .error(format!("`{what}` is empty"))
                            .at(node.at, "at least one field is needed");
                    }
                    self.signed_list(&what, list, names)
                }
            }
        };
        let (of, to) = (side("of"), side("to"));
        self.unread.subject = section.node("of").and_then(ConfigNode::list).is_none_or(|list| list.len() > of.len());
        let order = section.node("order").and_then(|node| self.signed("change.order", node, names));
        Some(ChangeRule { of, to, order })
    }

    /// A duration, which must not be zero.
    pub(super) fn positive(&mut self, section: &ConfigSection<'_>, key: &str) -> Option<Duration> {
        let length = section.duration(key)?;
        if length.is_zero() {
            self.diagnostics.error(format!("`{key}` is zero")).at(section.place(key), "it must be longer than zero");
            return None;
        }
        Some(length)
    }
}
