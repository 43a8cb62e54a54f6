//! How a source reads bodies: as JSON or as a form. The places that the config names decide, and never a header of a
//! delivery: it is not signed.

use super::raw::{ConfigOrigin, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::field::FieldLocation;
use crate::decide::limits;
use crate::decide::verify::{BodyFormat, VerificationScheme, content_type};

impl ConfigResolver<'_> {
    /// How bodies are read. Called when every place of the source is known.
    pub(super) fn body_format(
        &mut self,
        section: &ConfigSection<'_>,
        scheme: Option<&VerificationScheme>,
    ) -> BodyFormat {
        let types = self.json_types(section);
        let first = |wanted: fn(&FieldLocation) -> bool| self.places.iter().find(|(at, _)| wanted(at)).cloned();
        let Some((form, form_at)) = first(|at| matches!(at, FieldLocation::Form(_))) else {
            return if types.is_empty() { BodyFormat::Json } else { BodyFormat::JsonAs(types.into()) };
        };
        if let Some((json, json_at)) = first(|at| matches!(at, FieldLocation::Body(_))) {
            // What the user wrote is wrong, not the preset; of two, the second.
            let rank = |at: ConfigSpan| (at.origin == ConfigOrigin::Config, at.start);
            let (at, other) = if rank(form_at) > rank(json_at) { (form_at, json) } else { (json_at, form.clone()) };
            self.diagnostics
                .error("a source reads its bodies as forms or as JSON, not as both")
                .at(at, format!("{other} is used, too"))
                .hint("form.x is a value of application/x-www-form-urlencoded, body.x one of JSON");
        } else if scheme.is_some_and(VerificationScheme::reads_json_forms) {
            self.diagnostics
                .error(format!("`{form}` is never there"))
                .at(form_at, "a form of this sender has one value, `payload`, which is JSON")
                .hint("body.x is a value of that JSON");
        }
        if section.has("content_type") {
            self.diagnostics
                .error("`content_type` is for JSON, and this source reads forms")
                .at(section.key_place("content_type"), format!("{form} is used"));
        }
        BodyFormat::Form
    }

    /// The media types under which a sender sends JSON, beside the usual ones.
    fn json_types(&mut self, section: &ConfigSection<'_>) -> Vec<String> {
        let mut types = Vec::new();
        for text in section.texts("content_type") {
            let media_type = text.trim().to_ascii_lowercase();
            if let Err(why) = media_type_error(&media_type) {
                self.diagnostics
                    .error(format!("`{text}` is not a content type"))
                    .at(section.place("content_type"), why)
                    .hint("content_type = \"application/csp-report\"");
            }
            types.push(media_type);
        }
        if types.len() > limits::CONTENT_TYPES_MAX {
            self.diagnostics
                .error(format!("`content_type` has more than {} entries", limits::CONTENT_TYPES_MAX))
                .at(section.place("content_type"), "");
        }
        types
    }
}

/// Checks that this is a media type without parameters. An error is what is wrong with it.
fn media_type_error(text: &str) -> Result<(), &'static str> {
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    match text.split_once('/') {
        _ if text == content_type::ANY => Ok(()),
        _ if text.contains(';') => Err("without what follows the `;`"),
        Some((family, kind)) if token(family) && token(kind) => Ok(()),
        _ => Err("expected a type and a subtype, or */* for any"),
    }
}
