//! Fields, references to them, and expressions over them.

use super::keys::{ConfigValueType, SectionKeys, key};
use super::once::{provenance, signed_hint};
use super::presets::SenderFacts;
use super::raw::{ConfigEntry, ConfigNode, ConfigSpan, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::{Provenance, StreamPlan, diagnostic};
use crate::decide::field::{Field, FieldIndex, FieldLocation, FieldSet};
use crate::decide::filter::Filter;
use crate::decide::source::{DeliveryIdLocation, RequiredEventKind, Source};
use crate::decide::verify::VerificationScheme;
use crate::decide::{github_kind, limits};
use crate::store::is_event_column;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use utoipa::ToSchema;

pub(super) static FIELD_KEYS: SectionKeys = SectionKeys {
    name: "field",
    title: "`fields.NAME = { … }`",
    about: "A named value. A place or a list of places alone is short for `{ at = … }`.",
    keys: &[&[
        key(
            "at",
            ConfigValueType::OneOrMorePlaces,
            "required",
            "Where the value is; of a list, the first place with a value.",
        ),
        key(
            "base64_json",
            ConfigValueType::Text,
            "none",
            "Where the value is in the JSON document whose base64 is there, such as \"image.tag\".",
        ),
        key("trim", ConfigValueType::Flag, "false", "Trims white space; a blank value counts as missing."),
        key("after", ConfigValueType::Text, "nothing", "A prefix that the value must have; it is removed."),
        key(
            "default",
            ConfigValueType::Text,
            "none",
            "The value to use if it is missing; in an identity also if it is blank.",
        ),
    ]],
};

/// Words with another meaning where field names are allowed.
const RESERVED: [&str; 7] = ["delivery", "body", "exists", "in", "true", "false", "null"];

/// The fields that one source's config may name, with what decides which of them are signed.
#[derive(Clone, Copy)]
pub(super) struct SourceFieldScope<'a> {
    /// Its name; empty: the top level, which has no fields.
    pub(super) source: &'a str,
    pub(super) fields: &'a FieldSet,
    /// `None`: it is invalid, so what it covers is unknown.
    pub(super) scheme: Option<&'a VerificationScheme>,
    /// What its preset knows of its sender.
    pub(super) sender: Option<&'a SenderFacts>,
    pub(super) kind: Option<&'a RequiredEventKind>,
    pub(super) delivery: Option<&'a DeliveryIdLocation>,
    /// The stream it reads from, if any.
    pub(super) stream: Option<&'a StreamPlan>,
}

impl SourceFieldScope<'_> {
    pub(super) fn all(&self) -> Vec<&str> {
        self.fields.iter().map(|field| &*field.name).collect()
    }

    pub(super) fn label(&self) -> String {
        match self.all().as_slice() {
            [] if self.source.is_empty() => "fields belong to sources: use them in a source or a route".to_owned(),
            [] => format!("source `{}` declares no fields", self.source),
            names => format!("fields of source `{}`: {}", self.source, names.join(", ")),
        }
    }

    /// Whether the signature covers this location. What an invalid scheme covers is unknown.
    pub(super) fn covers(&self, at: &FieldLocation) -> bool {
        self.scheme.is_none_or(|scheme| scheme.covers(at))
    }

    /// Where the only values are that are signed, if not the whole body is.
    pub(super) fn signed_places(&self) -> Option<Vec<FieldLocation>> {
        self.scheme.and_then(VerificationScheme::signed_places)
    }

    /// What to take instead of a value that is not signed.
    fn signed_hint(&self, otherwise: &str) -> String {
        if self.scheme.is_some_and(VerificationScheme::signs_form) {
            return "no value of a joined form is proven by itself: what was signed is an identity already, so that one \
                    captured delivery is one event"
                .to_owned();
        }
        self.signed_places().map_or_else(|| otherwise.to_owned(), |places| signed_hint(&places))
    }

    /// Whether the signature does not cover this field.
    fn unsigned(&self, ix: FieldIndex) -> bool {
        self.scheme.is_some_and(|scheme| self.fields.get(ix).places().any(|at| !scheme.covers(at)))
    }

    /// Whether all that is not signed of this field is the event kind, which is compared with the shape of the body.
    fn is_event_kind(&self, ix: FieldIndex) -> bool {
        let is_kind = |at: &FieldLocation| match at {
            FieldLocation::Header(header) => {
                header == github_kind::HEADER || self.kind.is_some_and(|kind| kind.header == *header)
            }
            _ => false,
        };
        self.fields.get(ix).places().all(|at| is_kind(at) || self.covers(at))
    }
}

/// The environment variable with a field's value.
pub(super) fn variable(field: &str) -> String {
    format!("HOOKONCE_FIELD_{}", field.to_uppercase())
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl ConfigResolver<'_> {
    /// Reports places that must not be read with this scheme, or cannot.
    pub(super) fn usable_places(
        &mut self,
        section: &ConfigSection<'_>,
        fields: &FieldSet,
        delivery: Option<&DeliveryIdLocation>,
        scheme: Option<&VerificationScheme>,
    ) {
        self.no_secret_field(section, fields, delivery, scheme);
        self.claims_of_a_token(section, fields, delivery, scheme);
    }

    /// Reports a field or delivery id that holds the sender's credentials: it would be logged, stored and passed on.
    fn no_secret_field(
        &mut self,
        section: &ConfigSection<'_>,
        fields: &FieldSet,
        delivery: Option<&DeliveryIdLocation>,
        scheme: Option<&VerificationScheme>,
    ) {
        let places = scheme.map(VerificationScheme::credential_places).unwrap_or_default();
        let secret = |at: &FieldLocation| places.contains(at);
        let places = fields.iter().flat_map(|field| field.places().map(move |at| (field, at)));
        let fields = places.filter(|(_, at)| secret(at));
        let fields = fields.map(|(field, at)| (format!("the field `{}`", field.name), "fields", at));
        let id = delivery.filter(|delivery| secret(&delivery.at));
        let id = id.map(|delivery| ("`delivery`".to_owned(), "delivery", &delivery.at));
        for (what, key, header) in fields.chain(id) {
            self.diagnostics
                .error(format!("{what} holds the sender's credentials"))
                .at(section.key_place(key), format!("{header} must not be logged, stored or passed on"))
                .hint("use a value that is not a secret");
        }
    }

    /// Reports claims among the places since this one: they are read before a token is verified.
    pub(super) fn no_claims(&mut self, since: usize) {
        for (place, at) in self.places[since..].iter().filter(|(place, _)| matches!(place, FieldLocation::Claim(_))) {
            self.diagnostics
                .error(format!("`{place}` cannot be read here, so nothing could match"))
                .at(*at, "claims are those of a token that was verified before");
        }
    }

    /// Reports claims that are read where deliveries have no token with claims.
    fn claims_of_a_token(
        &mut self,
        section: &ConfigSection<'_>,
        fields: &FieldSet,
        delivery: Option<&DeliveryIdLocation>,
        scheme: Option<&VerificationScheme>,
    ) {
        if scheme.is_none_or(VerificationScheme::has_claims) {
            return;
        }
        let claim = |at: &FieldLocation| matches!(at, FieldLocation::Claim(_));
        let places = fields.iter().flat_map(Field::places);
        let fields = places.filter(|at| claim(at)).map(|at| ("fields", at));
        let id = delivery.filter(|delivery| claim(&delivery.at)).map(|delivery| ("delivery", &delivery.at));
        for (key, at) in fields.chain(id) {
            self.diagnostics
                .error(format!("`{at}` is never there"))
                .at(section.key_place(key), "only tokens of scheme `jwt` have claims");
        }
    }

    pub(super) fn delivery(
        &mut self,
        section: &ConfigSection<'_>,
        at: Option<FieldLocation>,
        scheme: Option<&VerificationScheme>,
    ) -> Option<DeliveryIdLocation> {
        if let Some(at) = at {
            // What an invalid scheme covers is unknown.
            let covered = scheme.is_none_or(|scheme| scheme.covers(&at));
            let signed = section.flag("signed").unwrap_or(covered);
            if !covered && (signed || section.flag("api") == Some(true)) {
                self.does_not_cover(section, &at, scheme);
            }
            return Some(DeliveryIdLocation { at, signed });
        }
        if section.has("signed") {
            self.diagnostics
                .error("`signed` needs `delivery`, which is missing")
                .unless(self.unread.delivery)
                .at(section.key_place("signed"), "")
                .hint("set delivery = \"header.x-id\", or remove `signed`");
        }
        scheme.and_then(VerificationScheme::delivery_id)
    }

    /// Reports an unsigned id that is claimed to be signed: anyone could put it on a captured delivery.
    fn does_not_cover(&mut self, section: &ConfigSection<'_>, at: &FieldLocation, scheme: Option<&VerificationScheme>) {
        if section.flag("api") == Some(true) {
            self.diagnostics
                .error("the signature does not cover the `Idempotency-Key`")
                .at(section.place("verify"), "anyone who sees a request could send it again under another key")
                .hint("over = \"{id}.{body}\", if your clients sign both; or scheme = \"bearer\"");
            return;
        }
        let hint = if scheme.is_some_and(VerificationScheme::content_is_configured) {
            "over = \"{id}.{body}\", if the sender signs both; else remove `signed`"
        } else {
            "remove `signed`: the signed content is then part of the identity"
        };
        self.diagnostics
            .error("`signed` is true, but the signature does not cover the delivery id")
            .at(section.place("signed"), format!("anyone who repeats a delivery could change {at}"))
            .hint(hint);
    }

    pub(super) fn fields(
        &mut self,
        source: &ConfigSection<'_>,
        kind: Option<&RequiredEventKind>,
        each: Option<Vec<String>>,
    ) -> FieldSet {
        let entries = source.node("fields").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
        if entries.len() > limits::FIELDS_MAX {
            let label = format!("at most {} are allowed", limits::FIELDS_MAX);
            self.diagnostics
                .error(format!("{} fields are declared", entries.len()))
                .at(source.key_place("fields"), label);
        }
        let mut variables: HashMap<String, &str> = HashMap::new();
        let mut fields = Vec::new();
        for entry in entries.iter().take(limits::FIELDS_MAX) {
            self.field_name(entry);
            if let Some(other) = variables.insert(variable(&entry.key), &entry.key) {
                self.diagnostics
                    .error(format!("the fields `{other}` and `{}` would be one variable", entry.key))
                    .at(entry.key_at, format!("a command would get both as {}", variable(&entry.key)))
                    .hint("rename one of them");
            }
            let own = provenance(entry.key_at) == Provenance::Written;
            if own && is_event_column(&entry.key) && !RESERVED.contains(&entry.key.as_str()) {
                self.diagnostics
                    .warning(format!("the field `{}` gets no column of its own in the store", entry.key))
                    .at(entry.key_at, "`events` has a column of that name")
                    .hint("rename it if you want to select it by name");
            }
            fields.push(self.field(entry, each.as_deref()));
        }
        let set = match each {
            Some(each) => FieldSet::of_elements(fields, None, each),
            None => FieldSet::new(fields, None),
        };
        set.with_shapes(kind.iter().flat_map(|kind| &kind.any_of).map(|kind| &*kind.shape))
    }

    fn field_name(&mut self, entry: &ConfigEntry) {
        if !is_name(&entry.key) {
            self.diagnostics
                .error(format!("`{}` cannot be the name of a field", entry.key))
                .at(entry.key_at, "letters, digits and _, not beginning with a digit");
        } else if RESERVED.contains(&entry.key.as_str()) {
            self.diagnostics
                .error(format!("`{}` cannot be the name of a field", entry.key))
                .at(entry.key_at, "it is a reserved word in `once.per` and in expressions")
                .hint(format!("call it `{}_` or something else", entry.key));
        }
    }

    fn field(&mut self, entry: &ConfigEntry, each: Option<&[String]>) -> Field {
        let name = entry.key.as_str().into();
        let ConfigValue::Table(table) = &entry.node.value else {
            let (at, or_at) = self.field_places(&entry.node, each);
            return Field { or_at, ..Field::at(&entry.key, at) };
        };
        let section = ConfigSection::new(table, &FIELD_KEYS, entry.node.at);
        if !section.has("at") {
            self.diagnostics
                .error(format!("field `{}` does not say where it is", entry.key))
                .unless(section.misspells("at"))
                .at(entry.key_at, "`at` is missing")
                .hint("at = \"body.a.b\", or form.x, header.x, query.x, path");
        }
        let (at, or_at) =
            section.node("at").map_or_else(|| (unknown_place(), Vec::new()), |node| self.field_places(node, each));
        Field {
            name,
            at,
            or_at,
            in_base64_json: section.node("base64_json").and_then(|node| self.inner_path(node)),
            trim: section.flag("trim").unwrap_or(false),
            after: section.text("after").map(str::to_owned),
            default: section.text("default").map(Into::into),
        }
    }

    /// The path of a value in a document that is itself a value.
    fn inner_path(&mut self, node: &ConfigNode) -> Option<Vec<String>> {
        let text = node.text()?;
        match FieldLocation::parse(&format!("body.{text}")) {
            Ok(FieldLocation::Body(path)) => Some(path),
            Ok(_) => None,
            Err(why) => {
                self.diagnostics.error(format!("`{text}` is not a place in a document")).at(node.at, why);
                None
            }
        }
    }

    /// The places of a field: one, or a list of which the first with a value counts.
    fn field_places(&mut self, node: &ConfigNode, each: Option<&[String]>) -> (FieldLocation, Vec<FieldLocation>) {
        let Some(list) = node.list() else { return (self.content_place(node, each), Vec::new()) };
        if list.len() > limits::FIELD_PLACES_MAX {
            let label = format!("at most {} are allowed", limits::FIELD_PLACES_MAX);
            self.diagnostics.error(format!("a field has {} places", list.len())).at(node.at, label);
        }
        let mut places: Vec<FieldLocation> = Vec::new();
        for item in list.iter().take(limits::FIELD_PLACES_MAX) {
            let place = self.content_place(item, each);
            if places.contains(&place) && place != unknown_place() {
                self.diagnostics.error(format!("a field has the place {place} twice")).at(item.at, "");
            }
            places.push(place);
        }
        let mut places = places.into_iter();
        let Some(first) = places.next() else {
            self.diagnostics
                .error("a field has no place")
                .at(node.at, "the list is empty")
                .hint("[\"body.a.b\", \"body.c\"]: the first place with a value counts");
            return (unknown_place(), Vec::new());
        };
        (first, places.collect())
    }

    /// A location in a delivery. An invalid one is reported and replaced, so that its field is still declared.
    pub(super) fn place(&mut self, node: &ConfigNode) -> FieldLocation {
        let Some(text) = node.text() else { return unknown_place() };
        match FieldLocation::parse(text) {
            Ok(place) => {
                self.places.push((place.clone(), node.at));
                place
            }
            Err(why) => {
                self.diagnostics
                    .error(format!("`{text}` is not a place in a delivery"))
                    .at(node.at, why)
                    .hint("body.a.0.b, body.\"a.b\", form.x, header.x, query.x or path");
                unknown_place()
            }
        }
    }

    /// The field of this name, for `what`.
    pub(super) fn named(&mut self, what: &str, node: &ConfigNode, names: &SourceFieldScope<'_>) -> Option<FieldIndex> {
        let name = node.text()?;
        let found = names.fields.ix(name);
        if found.is_none() {
            self.diagnostics
                .error(format!("`{what}` names a field that is not declared: `{name}`"))
                .unless(self.unread.fields)
                .at(node.at, names.label())
                .hint_if(diagnostic::did_you_mean(name, names.all()));
        }
        found
    }

    /// The signed field of this name; an unsigned one is an error.
    pub(super) fn signed(&mut self, what: &str, node: &ConfigNode, names: &SourceFieldScope<'_>) -> Option<FieldIndex> {
        let ix = self.named(what, node, names)?;
        if names.unsigned(ix) {
            let field = &names.fields.get(ix).name;
            self.diagnostics
                .error(format!("`{what}` uses `{field}`, which is not signed"))
                .at(node.at, "anyone who repeats a delivery could change it")
                .hint(names.signed_hint("take a value from the body"));
        }
        Some(ix)
    }

    /// A list of signed fields without duplicates.
    pub(super) fn signed_list(
        &mut self,
        what: &str,
        nodes: &[ConfigNode],
        names: &SourceFieldScope<'_>,
    ) -> Vec<FieldIndex> {
        let mut list = Vec::new();
        for node in nodes {
            let Some(ix) = self.signed(what, node, names) else { continue };
            if list.contains(&ix) {
                self.report_repeated_field(what, node);
            } else {
                list.push(ix);
            }
        }
        list
    }

    pub(super) fn report_repeated_field(&mut self, what: &str, node: &ConfigNode) {
        self.diagnostics.error(format!("`{what}` lists the same thing twice")).at(node.at, "");
    }

    /// An expression over fields.
    pub(super) fn filter(
        &mut self,
        what: &str,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
    ) -> Option<Filter> {
        let node = section.node(what)?;
        match Filter::parse(node.text()?, names.fields) {
            Ok(filter) => {
                self.filter_is_signed(what, node, &filter, names);
                Some(filter)
            }
            Err(e) => {
                let at = self.inside(node.at, &e.at);
                // Without its fields an expression cannot be checked.
                let unread = self.unread.fields;
                let error = self.diagnostics.error(format!("`{what}` cannot be read"));
                error.unless(unread).at(at, e.what).hint_if(e.hint);
                None
            }
        }
    }

    fn filter_is_signed(&mut self, what: &str, node: &ConfigNode, filter: &Filter, names: &SourceFieldScope<'_>) {
        for ix in filter.fields() {
            let field = names.fields.get(ix);
            if !names.unsigned(ix) || names.is_event_kind(ix) {
                continue;
            }
            // What decides who may send must be signed; where only some values are, it would have been in the body.
            if let Some(places) = names.signed_places().filter(|_| what == "require") {
                self.diagnostics
                    .error(format!("`{what}` uses `{}`, which is not signed", field.name))
                    .at(node.at, "anyone who has captured a delivery could set it")
                    .hint(signed_hint(&places));
            } else if what == "new_when" {
                self.diagnostics
                    .error(format!("`{what}` uses `{}`, which is not signed", field.name))
                    .at(node.at, "anyone who has captured a delivery could make it act again")
                    .hint(names.signed_hint("take a value from the body"));
            } else {
                self.diagnostics
                    .warning(format!("`{what}` uses `{}`, which is not signed", field.name))
                    .at(node.at, "anyone who repeats a delivery could change it")
                    .hint(names.signed_hint("where it matters, take a value from the body"));
            }
        }
    }

    /// Warns about an unsigned field in a subject, URL, `dir`, argument, header, statement or group. `written` is how
    /// it is written there.
    pub(super) fn warn_if_unsigned(
        &mut self,
        written: &str,
        at: ConfigSpan,
        field: &str,
        names: &SourceFieldScope<'_>,
    ) {
        let unsigned = names.fields.ix(field).filter(|ix| names.unsigned(*ix) && !names.is_event_kind(*ix));
        if let Some(ix) = unsigned {
            self.diagnostics
                .warning(format!("`{written}` is not signed: it comes from {}", names.fields.get(ix).places_text()))
                .at(at, "anyone who has captured a delivery can send it again with another value")
                .hint(names.signed_hint("where it matters, take a value from the body"));
        }
    }
}

/// Placeholder for an invalid location: every signature covers it, so it causes no further errors.
fn unknown_place() -> FieldLocation {
    FieldLocation::Body(Vec::new())
}

/// A declared field.
#[derive(Serialize, ToSchema)]
pub(super) struct FieldView {
    name: String,
    /// Where it is read from.
    at: String,
    /// Where it is read from if it is not there: the first place with a value counts.
    or_at: Vec<String>,
    /// Where it is in the JSON document that is there in base64.
    #[schema(required)]
    base64_json: Option<String>,
    /// White space is cut off.
    trim: bool,
    /// What is cut off its beginning.
    #[schema(required)]
    after: Option<String>,
    /// The value of a missing one.
    #[schema(required)]
    default: Option<String>,
}

/// A source's fields as declared.
pub(super) fn view(source: &Source) -> Vec<FieldView> {
    source
        .fields
        .iter()
        .map(|field| FieldView {
            name: field.name.to_string(),
            at: field.at.to_string(),
            or_at: field.or_at.iter().map(ToString::to_string).collect(),
            base64_json: field.inner_path_text(),
            trim: field.trim,
            after: field.after.clone(),
            default: field.default.as_deref().map(str::to_owned),
        })
        .collect()
}

/// A source's fields in words.
pub(super) fn texts(source: &Source) -> Vec<String> {
    let width = source.fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0);
    source
        .fields
        .iter()
        .map(|field| {
            let mut text = format!("{:<width$}  {}", field.name, field.places_text());
            if field.trim {
                text += ", trimmed";
            }
            if let Some(after) = &field.after {
                let _ = write!(text, ", after {after:?}");
            }
            if let Some(path) = field.inner_path_text() {
                let _ = write!(text, ", {path} in its base64");
            }
            if let Some(default) = &field.default {
                let _ = write!(text, ", else {default:?}");
            }
            text
        })
        .collect()
}

/// The names of fields.
pub(super) fn field_names(source: &Source, fields: &[FieldIndex]) -> Vec<String> {
    fields.iter().map(|ix| source.fields.get(*ix).name.to_string()).collect()
}

/// The names of fields, joined by `+`.
pub(super) fn joined_names(source: &Source, fields: &[FieldIndex]) -> String {
    let names: Vec<_> = fields.iter().map(|ix| &*source.fields.get(*ix).name).collect();
    names.join(" + ")
}
