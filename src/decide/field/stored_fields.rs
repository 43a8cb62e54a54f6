//! The fields that an event keeps, and their stored form: one JSON object.

use super::FieldValue;
use crate::decide::json_walk;
use crate::decide::json_walk::JsonScalar;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// The declared fields that were present, by name, in the order of their declaration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StoredFields(Arc<[(Arc<str>, FieldValue)]>);

impl FromIterator<(Arc<str>, FieldValue)> for StoredFields {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, FieldValue)>>(fields: I) -> Self {
        let fields = fields.into_iter();
        let mut kept = Vec::with_capacity(fields.size_hint().1.unwrap_or(0));
        kept.extend(fields);
        Self(kept.into())
    }
}

impl StoredFields {
    /// The value of the field with this name.
    pub fn get(&self, name: &str) -> Option<&FieldValue> {
        self.0.iter().find(|(n, _)| &**n == name).map(|(_, value)| value)
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FieldValue)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// As a JSON object, with numbers as they were written.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (name, value) in self.iter() {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&quoted(name));
            out.push(':');
            match value {
                FieldValue::Text(text) => out.push_str(&quoted(text)),
                FieldValue::Number(raw) => out.push_str(raw),
                FieldValue::Bool(true) => out.push_str("true"),
                FieldValue::Bool(false) => out.push_str("false"),
            }
        }
        out.push('}');
        out
    }

    /// Parses what `to_json` wrote; `None` if it is something else.
    pub fn from_json(text: &str) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = reader.deserialize_map(FieldsVisitor).ok()??;
        reader.end().ok().map(|()| read)
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("every text can be written as JSON")
}

struct FieldsVisitor;

impl<'j> Visitor<'j> for FieldsVisitor {
    type Value = Option<StoredFields>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'j>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields: Vec<(Arc<str>, FieldValue)> = Vec::new();
        let mut whole = true;
        while let Some(name) = map.next_key_seed(FieldNameSeed)? {
            let raw = map.next_value::<&'j RawValue>()?;
            let value = match json_walk::scalar(raw.get()) {
                Ok(Some(JsonScalar::Text(text))) => FieldValue::Text(text.into()),
                Ok(Some(JsonScalar::Number(raw))) => FieldValue::Number(raw.into()),
                Ok(Some(JsonScalar::Bool(value))) => FieldValue::Bool(value),
                _ => {
                    whole = false;
                    continue;
                }
            };
            whole &= !fields.iter().any(|(known, _)| *known == name);
            fields.push((name, value));
        }
        Ok(whole.then(|| fields.into_iter().collect()))
    }
}

/// Deserializes a member's name, without a copy between the text and the shared name.
struct FieldNameSeed;

impl<'j> DeserializeSeed<'j> for FieldNameSeed {
    type Value = Arc<str>;

    fn deserialize<D: Deserializer<'j>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldNameSeed {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Option<&[(&str, FieldValue)]>) {
        let expected = expected.map(|fields| fields.iter().map(|(n, v)| ((*n).into(), v.clone())).collect());
        assert_eq!(StoredFields::from_json(text), expected, "{text}");
    }

    #[test]
    fn an_object_of_values_is_read() {
        check("{}", Some(&[]));
        check(
            r#"{"tag":"a\nb","id":1e400,"late":false}"#,
            Some(&[
                ("tag", FieldValue::Text("a\nb".into())),
                ("id", FieldValue::Number("1e400".into())),
                ("late", FieldValue::Bool(false)),
            ]),
        );
    }

    #[test]
    fn anything_else_is_rejected() {
        for text in ["", "null", "[]", "5", r#""a""#, "{", r#"{"a":null}"#, r#"{"a":{}}"#, "{}x", r#"{"a":1,"a":1}"#] {
            check(text, None);
        }
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let fields = StoredFields::from_json(r#"{"a":1,"b":true}"#).expect("an object");
        assert_eq!(fields.get("b"), Some(&FieldValue::Bool(true)));
        assert_eq!(fields.get("c"), None);
        assert_eq!(fields.to_json(), r#"{"a":1,"b":true}"#);
    }

    fn values() -> impl Strategy<Value = FieldValue> {
        prop_oneof![
            any::<String>().prop_map(|text| FieldValue::Text(text.into())),
            "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,9})?([eE][-+]?[0-9]{1,3})?"
                .prop_map(|raw| FieldValue::Number(raw.into())),
            any::<bool>().prop_map(FieldValue::Bool),
        ]
    }

    proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn what_is_kept_comes_back_exactly(fields in prop::collection::btree_map(any::<String>(), values(), 0..8)) {
            let kept: StoredFields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
            prop_assert_eq!(StoredFields::from_json(&kept.to_json()), Some(kept));
        }
    }
}
