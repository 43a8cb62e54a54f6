//! A JSON Schema (draft 2020-12) of the config, made from the table of keys: for editors. What it lets through may still
//! be wrong in ways that only `check` finds.

use super::keys::{KEYS, Key, Part, Since, Takes};
use serde_json::{Map, Value, json};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
const PLACE: &str = r"^(path|(body|header|query)\..+)$";

/// The whole schema.
pub fn schema() -> Value {
    let mut defs = Map::new();
    for key in KEYS.iter().filter(|key| key.since == Since::Now && key.part != Part::Top) {
        defs.entry(name(key.part)).or_insert_with(|| object(key.part));
    }
    let mut root = object(Part::Top);
    root["$schema"] = json!(DRAFT);
    root["title"] = json!("hookonce.toml");
    root["$defs"] = Value::Object(defs);
    root
}

fn name(part: Part) -> String {
    format!("{part:?}").to_lowercase()
}

/// A table with the keys of this part, and no others.
fn object(part: Part) -> Value {
    let keys = || KEYS.iter().filter(move |key| key.part == part && key.since == Since::Now);
    let properties: Map<String, Value> = keys().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> = keys().filter(|key| is_required(key)).map(|key| key.name).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    match part {
        // A preset knows how its sender is verified.
        Part::Source => object["anyOf"] = json!([{ "required": ["verify"] }, { "required": ["preset"] }]),
        Part::Elsewhere => {
            object["oneOf"] = json!([{ "required": ["env"] }, { "required": ["file"] }, { "required": ["dir"] }]);
        }
        _ => {}
    }
    object
}

/// Always needed, and nowhere else to be had: a secret may also stand beside `verify`, and `verify` in a preset.
fn is_required(key: &Key) -> bool {
    let elsewhere = matches!((key.part, key.name), (Part::Verify, "secret") | (Part::Source, "verify"));
    key.default == "required" && !elsewhere
}

fn property(key: &Key) -> Value {
    let mut value = takes(key.takes);
    let default = if key.default == "required" { String::new() } else { format!(" Without it: {}.", key.default) };
    value["description"] = json!(format!("{}{default}", key.doc));
    value
}

fn part(part: Part) -> Value {
    json!({ "$ref": format!("#/$defs/{}", name(part)) })
}

/// Values of this kind. Each is an object of its own, so that a description can be put beside.
fn takes(takes: Takes) -> Value {
    let text = || json!({ "type": "string" });
    let written = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let list = |of: Value| json!({ "type": "array", "items": of });
    let any = |of: &[Value]| json!({ "anyOf": of });
    match takes {
        Takes::Text | Takes::Expression => text(),
        Takes::Name => written("^[A-Za-z_][A-Za-z0-9_]*$"),
        Takes::Flag => json!({ "type": "boolean" }),
        Takes::Count => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        Takes::Duration => written("^[0-9]+(ms|s|m|h|d)$"),
        Takes::Size => written("^[0-9]+(KB|MB|GB)$"),
        Takes::Address => written("^.+:[0-9]{1,5}$"),
        Takes::Word(words) => json!({ "enum": words }),
        Takes::Place => written(PLACE),
        Takes::Open => any(&[text(), part(Part::Elsewhere)]),
        Takes::Secret => any(&[part(Part::Elsewhere)]),
        Takes::Secrets => any(&[part(Part::Elsewhere), list(part(Part::Elsewhere))]),
        Takes::Names | Takes::Texts => list(text()),
        Takes::Group => any(&[text(), list(text())]),
        Takes::Identities | Takes::Steps => list(any(&[text(), list(text())])),
        Takes::Env => any(&[list(text()), json!({ "type": "object", "additionalProperties": text() })]),
        Takes::Headers => {
            json!({ "type": "object", "additionalProperties": any(&[text(), part(Part::Elsewhere)]) })
        }
        Takes::Members => json!({ "type": "object", "additionalProperties": written(PLACE) }),
        Takes::Table(of) => any(&[part(of)]),
        Takes::Tables(of) => any(&[part(of), list(part(of))]),
        Takes::Named(of) => json!({ "type": "object", "additionalProperties": part(of), "minProperties": 1 }),
        Takes::TextOr(of) => any(&[text(), part(of)]),
        Takes::WordOr(words, of) => any(&[json!({ "enum": words }), part(of)]),
        Takes::Places(of) => {
            json!({ "type": "object", "additionalProperties": any(&[written(PLACE), part(of)]) })
        }
    }
}
