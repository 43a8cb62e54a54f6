//! `each`: one event for each element of an array in the body, and what cannot be combined with that.

use super::fields::SourceFieldScope;
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::field::{FieldIndex, FieldLocation};
use crate::decide::source::{ChangeRule, DeduplicationPolicy, Identity, Source};
use crate::decide::verify::VerificationScheme;

/// What a source with `each` cannot have: the key, and why.
const NOT_WITH_ELEMENTS: &[(&str, &str)] = &[
    ("from", "a message of a stream has one place there, which its elements would share"),
    ("poll", "what is polled is one event"),
    ("catch_up", "a sender lists its deliveries, not their elements"),
    ("api", "a request of an API is one event"),
    ("kind", "a header names one kind for all elements, and only the document around them could show it"),
];

impl ConfigResolver<'_> {
    /// The path of the array whose elements are events; empty: the body itself.
    pub(super) fn each(&mut self, source: &ConfigSection<'_>) -> Option<Vec<String>> {
        let node = source.node("each")?;
        let text = node.text()?;
        match FieldLocation::parse_in_element(text) {
            Ok(FieldLocation::Body(path)) => Some(path),
            Ok(other) => {
                self.diagnostics
                    .error(format!("`each` is {other}, which is not in the body"))
                    .at(node.at, "an array in the body")
                    .hint("each = \"body.events\"; each = \"body\" if the body itself is the array");
                None
            }
            Err(why) => {
                self.diagnostics
                    .error(format!("`{text}` is not a place in a delivery"))
                    .at(node.at, why)
                    .hint("each = \"body.events\"; each = \"body\" if the body itself is the array");
                None
            }
        }
    }

    /// A location of a field or an id; where elements are events, one in an element or around it.
    pub(super) fn content_place(&mut self, node: &ConfigNode, each: Option<&[String]>) -> FieldLocation {
        let (Some(each), Some(text)) = (each, node.text()) else { return self.place(node) };
        let Ok(place) = FieldLocation::parse_in_element(text) else { return self.place(node) };
        if let FieldLocation::Outer(path) = &place {
            let array = FieldLocation::Body(each.to_vec());
            if each.is_empty() {
                self.diagnostics
                    .error(format!("there is nothing around an element at `{place}`"))
                    .at(node.at, "`each` is the whole body, an array")
                    .hint("take a value of the element, or from a header");
            } else if path.starts_with(each) {
                self.diagnostics
                    .error(format!("`{place}` is not around the elements"))
                    .at(node.at, format!("the elements are in {array}"))
                    .hint("write `body.` for a value in the element");
            }
        }
        if let FieldLocation::Form(_) = place {
            self.diagnostics
                .error(format!("`{place}` is in a form, but `each` is for JSON"))
                .at(node.at, "the elements are those of an array in the body")
                .hint("write `body.` for a value in the element, or `outer.` for one around it");
        }
        if matches!(place, FieldLocation::Path | FieldLocation::Claim(_)) {
            self.places.push((place.clone(), node.at));
        }
        place
    }

    /// Reports what a source with `each` cannot have.
    pub(super) fn check_elements(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        once: &DeduplicationPolicy,
    ) {
        if names.fields.each().is_none() {
            return;
        }
        for (key, why) in NOT_WITH_ELEMENTS.iter().filter(|(key, _)| section.has(key)) {
            self.diagnostics
                .error(format!("`each` and `{key}` cannot be combined"))
                .at(section.key_place("each"), *why)
                .hint("remove one of them");
        }
        if section.text("respond") == Some("done") {
            self.diagnostics
                .error("`each` and respond = \"done\" cannot be combined")
                .at(section.key_place("respond"), "one response cannot be that of many events")
                .hint("remove one of them");
        }
        if names.scheme.is_some_and(VerificationScheme::signs_other_than_bytes) {
            self.diagnostics
                .error("`each` needs a signature over the whole body")
                .at(section.key_place("each"), "only some values are signed, and no element is among them")
                .hint("remove `each`");
        }
        if let Some(id) = names.delivery.filter(|id| !matches!(id.at, FieldLocation::Body(_))) {
            self.diagnostics
                .error("`delivery` is not in the element")
                .at(section.place("delivery"), format!("every element of a delivery has the same {}", id.at))
                .hint("delivery = \"body.id\", if each element has an id; else remove it");
        }
        let in_element =
            |ix: &FieldIndex| names.fields.get(*ix).places().all(|place| matches!(place, FieldLocation::Body(_)));
        let shared =
            |identity: &Identity| matches!(identity, Identity::Named(fields) if !fields.iter().any(in_element));
        let once_place = section.section("once").map_or(section.at, |once| once.at);
        if once.per.iter().any(shared) {
            self.diagnostics
                .error("an identity of `once.per` has nothing of the element")
                .at(once_place, "all elements of a delivery would be one event")
                .hint("add a field that is in the element, such as id = \"body.id\"");
        }
        if let Some(ChangeRule { of, to, .. }) = &once.change
            && !of.iter().chain(to).any(in_element)
        {
            self.diagnostics
                .error("`change` has nothing of the element")
                .at(once_place, "all elements of a delivery would be the same change")
                .hint("add a field that is in the element");
        }
    }
}

/// The place of the array whose elements are events.
pub(super) fn each_text(source: &Source) -> Option<String> {
    source.fields.each().map(|path| FieldLocation::Body(path.to_vec()).to_string())
}
