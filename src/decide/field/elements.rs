//! The elements of a delivery that has several events in it: each is read like a body of its own.
//!
//! The document is walked once: it gives the text of each element and the values around them. Each element is then
//! walked by itself. Nothing is copied: the bytes of an element are a part of the bytes that were received.

use super::{ExtractedField, ExtractedFields, Field, FieldLocation, FieldSet, PartialFields};
use crate::decide::delivery::DeliveryRejection;
use crate::decide::json_walk::{JsonMatch, JsonPathTrie, PathInterest};
use crate::decide::limits;
use crate::decide::verify::VerifiedDelivery;
use bytes::Bytes;

/// Where the elements are, and the trie that finds them and the values around them.
#[derive(Clone, Debug)]
pub(super) struct ElementPaths {
    /// The path of the array; empty: the document itself.
    path: Vec<String>,
    /// The paths in the document.
    pub(super) around: JsonPathTrie,
    /// The trie node of the array.
    node: usize,
}

impl ElementPaths {
    pub(super) fn new(path: Vec<String>) -> Self {
        let mut around = JsonPathTrie::new();
        let node = around.add(&path, PathInterest::Elements);
        Self { path, around, node }
    }

    pub(super) fn path(&self) -> &[String] {
        &self.path
    }
}

/// The elements of one verified delivery.
#[derive(Debug)]
pub struct DeliveryElements<'d> {
    set: &'d FieldSet,
    each: &'d ElementPaths,
    /// The document that the elements are parts of.
    document: Bytes,
    /// Where each element is in the document.
    spans: Vec<std::ops::Range<usize>>,
    /// The value of each field at each place that is not in an element; `None` for those that are.
    shared: Vec<Vec<Option<ExtractedField>>>,
    shape: Option<usize>,
    kind: Result<(), String>,
}

impl FieldSet {
    /// The path of the array whose elements are events of their own; empty: the document itself is the array. `None`:
    /// the delivery is one event.
    pub fn each(&self) -> Option<&[String]> {
        self.each.as_ref().map(ElementPaths::path)
    }

    /// Whether a delivery has no array of elements at all: its fields that are not in elements. `None`: it has one, or
    /// something else there.
    pub fn around_no_elements(&self, verified: &VerifiedDelivery<'_>) -> Option<PartialFields> {
        let each = self.each.as_ref()?;
        let seen = each.around.walk(verified.json().ok()?).ok()?;
        if !matches!(seen[each.node], JsonMatch::Nowhere) {
            return None;
        }
        let read = |(field, nodes): (&Field, &Vec<Option<usize>>)| {
            let mut slot = None;
            for (place, node) in field.places().zip(nodes) {
                let found = match (place, node) {
                    (FieldLocation::Body(_), _) => return None,
                    (FieldLocation::Outer(_), Some(node)) => seen[*node].scalar(),
                    (FieldLocation::Claim(path), _) => verified.claim(path).ok()?,
                    (place, _) => place.read(verified.delivery(), &[]).ok()?,
                };
                slot = Some(field.slot(found).ok()?);
                if matches!(slot, Some(ExtractedField::Present(_))) {
                    break;
                }
            }
            slot
        };
        Some(PartialFields::of(self.fields.iter().zip(&self.nodes).map(read).collect()))
    }

    /// Finds the elements of a delivery, and reads the fields that are not in them. `None`: the delivery is one event.
    pub fn elements<'d>(
        &'d self,
        verified: &VerifiedDelivery<'_>,
    ) -> Result<Option<DeliveryElements<'d>>, DeliveryRejection> {
        let Some(each) = &self.each else { return Ok(None) };
        let json = verified.json()?;
        let seen = each.around.walk(json).map_err(DeliveryRejection::Malformed)?;
        let JsonMatch::Elements(texts) = &seen[each.node] else {
            let place = FieldLocation::Body(each.path.clone());
            return Err(DeliveryRejection::Malformed(format!("{place} is not an array")));
        };
        if texts.len() > limits::ELEMENTS_MAX {
            return Err(DeliveryRejection::TooManyElements);
        }
        let start = json.as_ptr().addr();
        let span = |text: &&str| {
            let from = text.as_ptr().addr() - start;
            from..from + text.len()
        };
        let mut shared = Vec::with_capacity(self.fields.len());
        for (field, nodes) in self.fields.iter().zip(&self.nodes) {
            let mut slots = Vec::with_capacity(nodes.len());
            for (place, node) in field.places().zip(nodes) {
                let found = match (place, node) {
                    (FieldLocation::Body(_), _) => {
                        slots.push(None);
                        continue;
                    }
                    (FieldLocation::Outer(_), Some(node)) => seen[*node].scalar(),
                    (FieldLocation::Claim(path), _) => verified.claim(path)?,
                    (place, _) => place.read(verified.delivery(), &[])?,
                };
                slots.push(Some(field.slot(found)?));
            }
            shared.push(slots);
        }
        let kinds = self.kinds.as_ref().filter(|kinds| kinds.needs_body_check(verified.delivery()));
        Ok(Some(DeliveryElements {
            set: self,
            each,
            document: document(verified.delivery().body, json),
            spans: texts.iter().map(span).collect(),
            shared,
            shape: self.only_shape(&seen),
            kind: kinds.map_or(Ok(()), |kinds| kinds.compare(verified.delivery(), &seen)),
        }))
    }
}

/// The JSON of a delivery as shared bytes: a part of the body where it is one.
fn document(body: &Bytes, json: &[u8]) -> Bytes {
    let (outside, inside) = (body.as_ptr_range(), json.as_ptr_range());
    if outside.start <= inside.start && inside.end <= outside.end {
        body.slice_ref(json)
    } else {
        Bytes::copy_from_slice(json)
    }
}

impl DeliveryElements<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes of an element, as they are in the delivery.
    pub fn bytes(&self, index: usize) -> Bytes {
        self.document.slice(self.spans[index].clone())
    }

    /// The place of an element, such as `body.events.3`.
    pub fn place(&self, index: usize) -> String {
        format!("{}.{index}", FieldLocation::Body(self.each.path.clone()))
    }

    /// The fields of an element, and of what is around it.
    pub fn fields(&self, index: usize) -> Result<ExtractedFields, DeliveryRejection> {
        let malformed = |what: &str| DeliveryRejection::Malformed(what.to_owned());
        let bytes = &self.document[self.spans[index].clone()];
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("the element is not UTF-8"))?;
        let inside = |place: &FieldLocation| matches!(place, FieldLocation::Body(path) if !path.is_empty());
        if self.set.fields.iter().any(|field| field.places().any(inside)) && !text.starts_with(['{', '[']) {
            return Err(malformed("the element is a single value, but this source has fields inside of its elements"));
        }
        let seen = self.set.paths.walk_checked(text).map_err(DeliveryRejection::Malformed)?;
        let mut slots = Vec::with_capacity(self.shared.len());
        for ((field, nodes), shared) in self.set.fields.iter().zip(&self.set.nodes).zip(&self.shared) {
            let mut slot = ExtractedField::Missing;
            for (node, shared) in nodes.iter().zip(shared) {
                slot = match shared {
                    Some(slot) => slot.clone(),
                    None => field.slot(node.and_then(|node| seen[node].scalar()))?,
                };
                if matches!(slot, ExtractedField::Present(_)) {
                    break;
                }
            }
            slots.push(slot);
        }
        Ok(ExtractedFields { slots, shape: self.shape, kind: self.kind.clone() })
    }
}
