//! Reads a JSON object in which no name occurs twice, at any depth: two readers of it see the same.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};
use std::fmt;

/// The object of this text; `None` if it is none, or if a name occurs twice.
pub(super) fn object(text: &[u8]) -> Option<Map<String, Json>> {
    match serde_json::from_slice::<StrictValue>(text).ok()?.0 {
        Json::Object(object) => Some(object),
        _ => None,
    }
}

/// A JSON value without doubled names.
struct StrictValue(Json);

impl<'j> Deserialize<'j> for StrictValue {
    fn deserialize<D: Deserializer<'j>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'j> Visitor<'j> for StrictVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'j>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut object = Map::new();
        while let Some((name, StrictValue(value))) = map.next_entry::<String, StrictValue>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(Json::Object(object))
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(StrictValue(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(Json::Array(list))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }
}
