//! `mark_duplicates`: adds `isDuplicate: true` to a stored response that is returned again. Only if it is a JSON
//! object, and nothing else of it changes: no white space, not the order of its members, not how a number is written.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

const NAME: &str = "isDuplicate";

/// The body with its mark; `None`: it is not a JSON object and stays as it is.
pub(super) fn mark_duplicate(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let JsonMembers(members) = serde_json::from_str(text).ok()?;
    let place = |value: &RawValue| {
        // The value is a slice of the text: the difference of their addresses is its position.
        let start = value.get().as_ptr().addr() - text.as_ptr().addr();
        (start, start + value.get().len())
    };
    let mut out = String::with_capacity(text.len() + NAME.len() + 8);
    let mut from = 0;
    let mut there = false;
    for (_, value) in members.iter().filter(|(name, _)| name == NAME) {
        let (start, end) = place(value);
        out.push_str(&text[from..start]);
        out.push_str("true");
        (from, there) = (end, true);
    }
    if !there {
        let (at, comma) = match members.last() {
            Some((_, value)) => (place(value).1, ","),
            None => (text.find('{')? + 1, ""),
        };
        out.push_str(&text[..at]);
        out.extend([comma, "\"", NAME, "\":true"]);
        from = at;
    }
    out.push_str(&text[from..]);
    Some(out.into_bytes())
}

/// The members of an object, in their order, each value as it is written.
struct JsonMembers<'t>(Vec<(Cow<'t, str>, &'t RawValue)>);

/// A name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct JsonMemberName<'t>(#[serde(borrow)] Cow<'t, str>);

impl<'de> Deserialize<'de> for JsonMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonMembersVisitor;
        impl<'de> Visitor<'de> for JsonMembersVisitor {
            type Value = JsonMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((JsonMemberName(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(JsonMembers(members))
            }
        }
        deserializer.deserialize_map(JsonMembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Option<&str>) {
        let marked = mark_duplicate(body.as_bytes()).map(|body| String::from_utf8(body).expect("text stays text"));
        assert_eq!(marked.as_deref(), expected, "{body}");
    }

    #[test]
    fn an_object_is_marked_and_nothing_else_of_it_changes() {
        check("{}", Some("{\"isDuplicate\":true}"));
        check(" { } \n", Some(" {\"isDuplicate\":true } \n"));
        check("{\"b\":1.0,\"a\":9007199254740993}", Some("{\"b\":1.0,\"a\":9007199254740993,\"isDuplicate\":true}"));
        check("{\n  \"a\": [1, {}]\n}\n", Some("{\n  \"a\": [1, {}],\"isDuplicate\":true\n}\n"));
        check("{\"x\":{\"isDuplicate\":false}}", Some("{\"x\":{\"isDuplicate\":false},\"isDuplicate\":true}"));
        check("{\"a\":\"}\\\"{ä😀\"}", Some("{\"a\":\"}\\\"{ä😀\",\"isDuplicate\":true}"));
    }

    #[test]
    fn an_existing_mark_is_set_in_place() {
        check("{\"isDuplicate\":false,\"a\":1}", Some("{\"isDuplicate\":true,\"a\":1}"));
        check("{\"isDuplicate\" : {\"why\":[]} }", Some("{\"isDuplicate\" : true }"));
        check("{\"isDuplicate\":0,\"isDup\\u006cicate\":1}", Some("{\"isDuplicate\":true,\"isDup\\u006cicate\":true}"));
        check("{\"isDuplicate\":true}", Some("{\"isDuplicate\":true}"));
    }

    #[test]
    fn what_is_no_object_stays_as_it_is() {
        for body in ["", "[]", "[{}]", "\"{}\"", "1", "null", "ok", "{", "{} {}", "{\"a\":}", "<p>{}</p>"] {
            check(body, None);
        }
        assert_eq!(mark_duplicate(b"{\"a\":\"\xff\"}"), None);
    }

    proptest::proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn a_marked_object_reads_as_before_and_is_marked(names in proptest::collection::vec("[a-c\"\\\\é]{0,3}", 0..6)) {
            let before: serde_json::Map<_, _> =
                names.iter().enumerate().map(|(at, name)| (name.clone(), serde_json::json!([at, name]))).collect();
            let text = serde_json::to_string_pretty(&before).expect("an object is JSON");
            let mut after: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(&mark_duplicate(text.as_bytes()).expect("an object")).expect("still JSON");
            proptest::prop_assert_eq!(after.remove(NAME), Some(true.into()));
            proptest::prop_assert_eq!(after, before);
        }
    }
}
