//! Fields: named values at declared locations in a delivery, declared once and used by that name everywhere.
//!
//! A body is walked once, along a trie of the declared paths (see `decide/json_walk.rs`). What no path points at is
//! skipped, and no tree is built. Numbers keep the text they were written with, so 9007199254740992 and
//! 9007199254740993 stay two values.

use super::delivery::DeliveryRejection;
use super::github_kind::{EventKindMatcher, EventKindUse};
use super::json_walk::{JsonMatch, JsonPathTrie, JsonScalar, PathInterest};
use super::limits;
use super::verify::VerifiedDelivery;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use elements::ElementPaths;
use std::borrow::Cow;
use std::sync::Arc;

pub use elements::DeliveryElements;
pub use location::FieldLocation;
pub use stored_fields::StoredFields;

/// The index of a declared field in its source's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldIndex(pub u16);

/// A scalar found in a delivery. A JSON `null`, an object and an array count as missing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FieldValue {
    /// Text.
    Text(Arc<str>),
    /// A number, as it was written.
    Number(Arc<str>),
    /// True or false.
    Bool(bool),
}

impl FieldValue {
    /// Whether it is a text without a visible character. Such a text identifies nothing: every sender that leaves the
    /// field empty shares it.
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Text(text) if is_blank(text))
    }
}

/// Whether this text is empty, or consists only of Unicode white space and invisible characters.
pub fn is_blank(text: &str) -> bool {
    let invisible = |c: char| {
        let ignorable = matches!(
            c,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{2800}' | '\u{3164}' | '\u{feff}'
        );
        c.is_whitespace() || c.is_control() || ignorable
    };
    text.chars().all(invisible)
}

/// A field as declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is.
    pub at: FieldLocation,
    /// Where it is otherwise: the first place with a value counts.
    pub or_at: Vec<FieldLocation>,
    /// The path of the value in the JSON document that the text there is, in base64.
    pub in_base64_json: Option<Vec<String>>,
    /// Whether white space is cut off both ends of a text; a text that is then blank is missing.
    pub trim: bool,
    /// A prefix that a text must have, which is cut off; a text without it is missing.
    pub after: Option<String>,
    /// Used in place of a missing value.
    pub default: Option<Arc<str>>,
}

/// The fields of a source, with the trie that finds them.
#[derive(Clone, Debug)]
pub struct FieldSet {
    fields: Vec<Field>,
    paths: JsonPathTrie,
    /// The trie nodes of each field's places; `None` for places outside the body.
    nodes: Vec<Vec<Option<usize>>>,
    /// Where the elements are that are events of their own. The paths of the fields are then those in an element, and
    /// `outer` ones, the shapes and the kinds have their nodes in its trie.
    each: Option<ElementPaths>,
    /// The trie nodes of the shapes' paths.
    shapes: Vec<usize>,
    /// Compares the kind of event with the body, where an unsigned header names the kind and it is used.
    kinds: Option<EventKindMatcher>,
}

/// The values of a [`FieldSet`] in one verified delivery.
#[derive(Clone, PartialEq, Debug)]
pub struct ExtractedFields {
    slots: Vec<ExtractedField>,
    /// The index of the only shape that the body has.
    shape: Option<usize>,
    kind: Result<(), String>,
}

/// The values of those fields of a [`FieldSet`] that are known of a delivery whose body is not.
#[derive(Clone, PartialEq, Debug)]
pub struct PartialFields {
    /// The values; fields that are not known are missing.
    pub(super) found: ExtractedFields,
    known: Vec<bool>,
}

/// The value of one field in a delivery.
#[derive(Clone, PartialEq, Debug)]
pub enum ExtractedField {
    /// Nothing, or nothing that is a scalar.
    Missing,
    /// Its value.
    Present(FieldValue),
    /// Nothing, so its default is used.
    Defaulted(FieldValue),
}

impl Field {
    /// A field that is its value at this place.
    pub fn at(name: &str, at: FieldLocation) -> Self {
        let (or_at, in_base64_json) = (Vec::new(), None);
        Self { name: name.into(), at, or_at, in_base64_json, trim: false, after: None, default: None }
    }

    /// Every place where it may be, in the order in which they count.
    pub fn places(&self) -> impl Iterator<Item = &FieldLocation> {
        [&self.at].into_iter().chain(&self.or_at)
    }

    /// Its places in words.
    pub fn places_text(&self) -> String {
        let all: Vec<_> = self.places().map(ToString::to_string).collect();
        all.join(" or ")
    }

    /// The place of its value in the document that is there in base64, as the config writes it.
    pub fn inner_path_text(&self) -> Option<String> {
        let place = FieldLocation::Body(self.in_base64_json.clone()?).to_string();
        Some(place.trim_start_matches("body.").to_owned())
    }

    /// The field's value, made from what was found at its location.
    pub(in crate::decide) fn slot(&self, found: Option<JsonScalar<'_>>) -> Result<ExtractedField, DeliveryRejection> {
        let (Some(path), Some(found)) = (&self.in_base64_json, &found) else { return self.value_slot(found) };
        let malformed = || DeliveryRejection::Malformed(format!("field `{}` is not in base64 of JSON", self.name));
        let JsonScalar::Text(text) = found else { return Err(malformed()) };
        let json = STANDARD.decode(&**text).map_err(|_| malformed())?;
        let mut paths = JsonPathTrie::new();
        let node = paths.add(path, PathInterest::Value);
        self.value_slot(paths.walk(&json).map_err(|_| malformed())?[node].scalar())
    }

    fn value_slot(&self, found: Option<JsonScalar<'_>>) -> Result<ExtractedField, DeliveryRejection> {
        let value = match found {
            None => None,
            Some(JsonScalar::Bool(value)) => Some(FieldValue::Bool(value)),
            Some(JsonScalar::Number(raw)) => Some(FieldValue::Number(self.bounded(raw)?)),
            Some(JsonScalar::Text(text)) if text.contains('\0') => {
                return Err(DeliveryRejection::Malformed(format!("field `{}` has a NUL character in it", self.name)));
            }
            Some(JsonScalar::Text(text)) => {
                self.cut(&text).map(|text| self.bounded(text)).transpose()?.map(FieldValue::Text)
            }
        };
        Ok(value.map_or_else(|| self.missing(), ExtractedField::Present))
    }

    /// The value of a field that was not found: its default, if it has one.
    fn missing(&self) -> ExtractedField {
        self.default
            .as_ref()
            .map_or(ExtractedField::Missing, |default| ExtractedField::Defaulted(FieldValue::Text(default.clone())))
    }

    /// The part of a text that is the value; `None` where the prefix is missing or nothing is left.
    fn cut<'t>(&self, text: &'t str) -> Option<&'t str> {
        let trim = |text: &'t str| if self.trim { text.trim() } else { text };
        let text = match &self.after {
            Some(after) => trim(trim(text).strip_prefix(after.as_str())?),
            None => trim(text),
        };
        if self.trim && text.is_empty() { None } else { Some(text) }
    }

    fn bounded(&self, text: &str) -> Result<Arc<str>, DeliveryRejection> {
        if text.len() > limits::FIELD_BYTES_MAX {
            return Err(DeliveryRejection::FieldTooLong(self.name.clone()));
        }
        Ok(text.into())
    }
}

impl FieldSet {
    /// A set of these fields, and the path that a body of the right kind has (see `source::RequiredEventKind`), such as
    /// `["registry_package"]`.
    pub fn new(fields: Vec<Field>, shape: Option<Vec<String>>) -> Self {
        let mut paths = JsonPathTrie::new();
        let mut node = |place: &FieldLocation| match place {
            FieldLocation::Body(path) => Some(paths.add(path, PathInterest::Value)),
            _ => None,
        };
        let nodes = fields.iter().map(|field| field.places().map(&mut node).collect()).collect();
        Self { fields, paths, nodes, each: None, shapes: Vec::new(), kinds: None }.with_shapes(shape)
    }

    /// A set of these fields of each element of the array at this path; an empty path is the document itself. The shape
    /// is that of the document.
    pub fn of_elements(fields: Vec<Field>, shape: Option<Vec<String>>, each: Vec<String>) -> Self {
        let mut each = ElementPaths::new(each);
        let mut paths = JsonPathTrie::new();
        let mut node = |place: &FieldLocation| match place {
            FieldLocation::Body(path) => Some(paths.add(path, PathInterest::Value)),
            FieldLocation::Outer(path) => Some(each.around.add(path, PathInterest::Value)),
            _ => None,
        };
        let nodes = fields.iter().map(|field| field.places().map(&mut node).collect()).collect();
        Self { fields, paths, nodes, each: Some(each), shapes: Vec::new(), kinds: None }.with_shapes(shape)
    }

    /// The same set for bodies of several kinds: each has exactly one of these paths, counted in this order.
    #[must_use]
    pub fn with_shapes(mut self, shapes: impl IntoIterator<Item = impl AsRef<[String]>>) -> Self {
        let paths = self.each.as_mut().map_or(&mut self.paths, |each| &mut each.around);
        self.shapes = shapes.into_iter().map(|path| paths.add(path.as_ref(), PathInterest::Shape)).collect();
        self
    }

    /// The same set, which also compares the kind of event with the body's shape. `own` are kinds that the config
    /// describes, each by a path that its bodies have.
    #[must_use]
    pub fn comparing_kinds(mut self, used: EventKindUse, own: &[(String, Vec<String>)]) -> Self {
        let paths = self.each.as_mut().map_or(&mut self.paths, |each| &mut each.around);
        self.kinds = Some(EventKindMatcher::new(used, own, paths));
        self
    }

    /// What the kind of event is used for, where it is compared with the body's shape.
    pub fn kind_use(&self) -> Option<EventKindUse> {
        self.kinds.as_ref().map(EventKindMatcher::used)
    }

    /// The field of this name.
    pub fn ix(&self, name: &str) -> Option<FieldIndex> {
        let at = self.fields.iter().position(|field| &*field.name == name)?;
        u16::try_from(at).ok().map(FieldIndex)
    }

    /// The field at this place in the list.
    pub fn get(&self, ix: FieldIndex) -> &Field {
        &self.fields[usize::from(ix.0)]
    }

    /// Whether a field may be in this header.
    pub fn reads_header(&self, name: &str) -> bool {
        let is_it = |place: &FieldLocation| matches!(place, FieldLocation::Header(header) if header == name);
        self.fields.iter().any(|field| field.places().any(is_it))
    }

    /// All of them, in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }

    /// Reads all fields at once. The body is not even parsed if no location is in it. Where elements are events,
    /// [`FieldSet::elements`] reads them.
    pub fn read(&self, verified: &VerifiedDelivery<'_>) -> Result<ExtractedFields, DeliveryRejection> {
        let kinds = self.kinds.as_ref().filter(|kinds| kinds.needs_body_check(verified.delivery()));
        let into_body = kinds.is_some() || !self.shapes.is_empty() || self.nodes.iter().flatten().any(Option::is_some);
        let seen = if into_body {
            self.paths.walk(verified.json()?).map_err(DeliveryRejection::Malformed)?
        } else {
            Vec::new()
        };
        let shape = self.only_shape(&seen);
        let mut slots = Vec::with_capacity(self.fields.len());
        for (field, nodes) in self.fields.iter().zip(&self.nodes) {
            let mut slot = ExtractedField::Missing;
            for (place, node) in field.places().zip(nodes) {
                let found = match (node, place) {
                    (Some(node), _) => seen[*node].scalar(),
                    (None, FieldLocation::Claim(path)) => verified.claim(path)?,
                    (None, place) => place.read(verified.delivery(), &[])?,
                };
                slot = field.slot(found)?;
                if matches!(slot, ExtractedField::Present(_)) {
                    break;
                }
            }
            slots.push(slot);
        }
        let kind = kinds.map_or(Ok(()), |kinds| kinds.compare(verified.delivery(), &seen));
        Ok(ExtractedFields { slots, shape, kind })
    }

    /// The index of the shape that this JSON has, if it has exactly one.
    pub(in crate::decide) fn shape_of(&self, json: &[u8]) -> Option<usize> {
        self.only_shape(&self.paths.walk(json).ok()?)
    }

    /// The index of the shape that a body has, if it has exactly one. The first one's if none is required.
    fn only_shape(&self, seen: &[JsonMatch<'_>]) -> Option<usize> {
        let mut there = self.shapes.iter().enumerate().filter(|(_, node)| seen[**node] != JsonMatch::Nowhere);
        match (there.next(), there.next()) {
            _ if self.shapes.is_empty() => Some(0),
            (Some((ix, node)), None) if is_shape(&seen[*node]) => Some(ix),
            _ => None,
        }
    }

    /// The values of the fields at those locations whose texts are known. A text that no field may have is not known.
    pub fn read_partly<'t>(&self, text: impl Fn(&FieldLocation) -> Option<&'t str>) -> PartialFields {
        let read = |field: &Field| {
            let mut slot = None;
            for place in field.places() {
                slot = Some(field.slot(Some(JsonScalar::Text(text(place)?.into()))).ok()?);
                if matches!(slot, Some(ExtractedField::Present(_))) {
                    break;
                }
            }
            slot
        };
        PartialFields::of(self.fields.iter().map(read).collect())
    }
}

/// Whether this marks the kind of a body: an object or an array. A single value could be there by chance.
fn is_shape(found: &JsonMatch<'_>) -> bool {
    matches!(found, JsonMatch::Object | JsonMatch::Array | JsonMatch::Elements(_))
}

impl PartialFields {
    /// The fields of a set; `None`: it is not known.
    fn of(slots: Vec<Option<ExtractedField>>) -> Self {
        let known = slots.iter().map(Option::is_some).collect();
        let slots = slots.into_iter().map(|slot| slot.unwrap_or(ExtractedField::Missing)).collect();
        Self { found: ExtractedFields { slots, shape: Some(0), kind: Ok(()) }, known }
    }

    /// Whether the value of this field is known.
    pub fn is_known(&self, ix: FieldIndex) -> bool {
        self.known[usize::from(ix.0)]
    }
}

impl ExtractedFields {
    /// The value of this field, or that it is missing.
    pub fn slot(&self, ix: FieldIndex) -> &ExtractedField {
        &self.slots[usize::from(ix.0)]
    }

    /// Its value in the delivery, or its default.
    pub fn value(&self, ix: FieldIndex) -> Option<&FieldValue> {
        self.slot(ix).value()
    }

    /// The fields as identities, changes and orders read them: a blank text counts as missing, and the field's default
    /// is used. All other readers get the blank text.
    pub fn without_blanks(&self, set: &FieldSet) -> Cow<'_, Self> {
        let blank = |slot: &ExtractedField| matches!(slot, ExtractedField::Present(value) if value.is_blank());
        if !self.slots.iter().any(blank) {
            return Cow::Borrowed(self);
        }
        let both = self.slots.iter().zip(&set.fields);
        let slots = both.map(|(slot, field)| if blank(slot) { field.missing() } else { slot.clone() }).collect();
        Cow::Owned(Self { slots, kind: self.kind.clone(), ..*self })
    }

    /// Whether the body has an object or an array at the path of this one of the source's kinds, and nothing at the
    /// others'. True of the first if the source requires no kind.
    pub fn has_shape(&self, kind: usize) -> bool {
        self.shape == Some(kind)
    }

    /// Checks that the body has the shape of the kind in the header. Always passes if the kind is not used.
    pub fn kind_fits(&self) -> Result<(), DeliveryRejection> {
        self.kind.clone().map_err(DeliveryRejection::KindMismatch)
    }

    /// The fields to store with the event: all that have a value.
    pub fn keep(&self, set: &FieldSet) -> StoredFields {
        let values = self.slots.iter().map(ExtractedField::value);
        let both = set.fields.iter().zip(values);
        both.filter_map(|(field, value)| Some((field.name.clone(), value?.clone()))).collect()
    }
}

impl ExtractedField {
    fn value(&self) -> Option<&FieldValue> {
        match self {
            Self::Missing => None,
            Self::Present(value) | Self::Defaulted(value) => Some(value),
        }
    }
}

pub(crate) mod elements;
pub(crate) mod location;
pub(crate) mod stored_fields;
#[cfg(test)]
mod tests;
