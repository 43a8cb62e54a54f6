//! Fields: named values pointed at inside a delivery, declared once and used by that name everywhere.
//!
//! A body is walked once, along a trie of the declared paths: what nobody points at is skipped, and no tree is built.
//! Numbers keep the text they were written with, so 9007199254740992 and 9007199254740993 stay two values.

use super::refusal::Refusal;
use super::verify::Verified;
use std::sync::Arc;

/// A declared field, by its place in its source's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldIx(pub u16);

/// A scalar found in a delivery. A JSON `null`, an object and an array count as missing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// Text.
    Text(Arc<str>),
    /// A number, as it was written.
    Number(Arc<str>),
    /// True or false.
    Bool(bool),
}

/// Where a value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the JSON body: names, or positions in an array.
    Body(Vec<String>),
    /// In a header, its name in lower case.
    Header(String),
    /// In the query.
    Query(String),
    /// The path itself.
    Path,
}

/// A field as declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is.
    pub at: Place,
    /// Cut white space off both ends; what is then blank is missing.
    pub trim: bool,
    /// The value must begin with this, which is cut off; otherwise it is missing.
    pub after: Option<String>,
    /// Stands in for a missing value.
    pub default: Option<Arc<str>>,
}

/// The fields of a source, ready to be looked for.
#[derive(Clone, Debug)]
pub struct FieldSet {
    fields: Vec<Field>,
}

/// What was found of a [`FieldSet`] in one verified delivery.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    slots: Vec<Slot>,
    shape: bool,
}

/// What was found of one field.
#[derive(Clone, PartialEq, Debug)]
pub enum Slot {
    /// Nothing, or nothing that is a scalar.
    Missing,
    /// Its value.
    Present(Value),
    /// Nothing, and its default stands in.
    Defaulted(Value),
}

/// The declared fields that were there, by name, in the order of their declaration: what an event keeps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fields(Arc<[(Arc<str>, Value)]>);

impl Place {
    /// Reads `body.a.0.b`, `body."a.b"`, `header.x`, `query.x`, `path`. An error is a sentence for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        todo!("{text}")
    }
}

impl FieldSet {
    /// These fields, and the path a body of the right kind has (see `source::Kind`), such as `["registry_package"]`.
    pub fn new(fields: Vec<Field>, shape: Option<Vec<String>>) -> Self {
        let _ = shape;
        Self { fields }
    }

    /// The field of this name.
    pub fn ix(&self, name: &str) -> Option<FieldIx> {
        todo!("{name}")
    }

    /// The field at this place in the list.
    pub fn get(&self, ix: FieldIx) -> &Field {
        &self.fields[usize::from(ix.0)]
    }

    /// All of them, in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }

    /// Looks for all of them at once.
    pub fn read(&self, verified: &Verified<'_>) -> Result<Found, Refusal> {
        todo!("{verified:?}")
    }
}

impl Found {
    /// What was found of this field.
    pub fn slot(&self, ix: FieldIx) -> &Slot {
        &self.slots[usize::from(ix.0)]
    }

    /// Its value: what was there, or its default.
    pub fn value(&self, ix: FieldIx) -> Option<&Value> {
        match self.slot(ix) {
            Slot::Missing => None,
            Slot::Present(value) | Slot::Defaulted(value) => Some(value),
        }
    }

    /// Does the body have the shape that its kind says?
    pub fn has_shape(&self) -> bool {
        self.shape
    }

    /// What an event keeps of it: every field that has a value.
    pub fn keep(&self, set: &FieldSet) -> Fields {
        todo!("{set:?}")
    }
}

impl Fields {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| &**n == name).map(|(_, value)| value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// As a JSON object, numbers as they were written.
    pub fn to_json(&self) -> String {
        todo!()
    }

    /// From what `to_json` wrote; `None` if it is something else.
    pub fn from_json(text: &str) -> Option<Self> {
        todo!("{text}")
    }
}
