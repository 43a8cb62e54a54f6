//! The JSON Schema (draft 2020-12) of the config for editors, generated from the tables of keys. `check` finds more.

use super::external_value::EXTERNAL_KEYS;
use super::keys::{ConfigKey, ConfigValueType, SectionKeys, sections};
use super::resolve::TOP_KEYS;
use super::source::SOURCE_KEYS;
use super::verify::VERIFY_KEYS;
use serde_json::{Map, Value, json};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
const PLACE: &str = r"^(path|(body|form|header|query|claim)\..+)$";

/// The whole schema.
pub fn schema() -> Value {
    let shown = sections().into_iter().filter(|section| **section != TOP_KEYS && section.writable().next().is_some());
    let defs = shown.map(|section| (section.name.to_owned(), object(section))).collect();
    let mut root = object(&TOP_KEYS);
    root["$schema"] = json!(DRAFT);
    root["title"] = json!("hookonce.toml");
    root["$defs"] = Value::Object(defs);
    root
}

/// A table with the keys of this part, and no others.
fn object(part: &'static SectionKeys) -> Value {
    let properties: Map<String, Value> = part.writable().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> = part.writable().filter(|key| is_required(part, key)).map(|key| key.name).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if *part == SOURCE_KEYS {
        // A preset sets `verify`.
        object["anyOf"] = json!([{ "required": ["verify"] }, { "required": ["preset"] }]);
    } else if *part == EXTERNAL_KEYS {
        object["oneOf"] = json!([{ "required": ["env"] }, { "required": ["file"] }, { "required": ["dir"] }]);
    }
    object
}

/// Whether a key is always required. A secret may also be beside `verify`, and `verify` in a preset.
fn is_required(part: &SectionKeys, key: &ConfigKey) -> bool {
    let elsewhere = [(&VERIFY_KEYS, "secret"), (&SOURCE_KEYS, "verify")].contains(&(part, key.name));
    key.default == "required" && !elsewhere
}

fn property(key: &ConfigKey) -> Value {
    let mut value = takes(key.takes);
    let default = if key.default == "required" { String::new() } else { format!(" Default: {}.", key.default) };
    value["description"] = json!(format!("{}{default}", key.doc));
    value
}

fn part(part: &'static SectionKeys) -> Value {
    json!({ "$ref": format!("#/$defs/{}", part.name) })
}

/// The schema of a value type; always an object, so that a description can be added.
fn takes(takes: ConfigValueType) -> Value {
    let text = || json!({ "type": "string" });
    let written = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let list = |of: Value| json!({ "type": "array", "items": of });
    let any = |of: &[Value]| json!({ "anyOf": of });
    match takes {
        ConfigValueType::Text | ConfigValueType::Expression => text(),
        ConfigValueType::Name => written("^[A-Za-z_][A-Za-z0-9_]*$"),
        ConfigValueType::Flag => json!({ "type": "boolean" }),
        ConfigValueType::Count => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        ConfigValueType::Duration => written("^[0-9]+(ms|s|m|h|d)$"),
        ConfigValueType::Size => written("^[0-9]+(KB|MB|GB)$"),
        ConfigValueType::Address => written("^.*:[0-9]{1,5}$"),
        ConfigValueType::Rate => written("^[0-9]+/[smh]$"),
        ConfigValueType::Word(words) => json!({ "enum": words }),
        ConfigValueType::Number(numbers) => json!({ "enum": numbers }),
        ConfigValueType::Place => written(PLACE),
        ConfigValueType::OneOrMorePlaces => any(&[written(PLACE), list(written(PLACE))]),
        ConfigValueType::Open => any(&[text(), part(&EXTERNAL_KEYS)]),
        ConfigValueType::OneOrMoreOpen => {
            any(&[text(), part(&EXTERNAL_KEYS), list(any(&[text(), part(&EXTERNAL_KEYS)]))])
        }
        ConfigValueType::Secret => any(&[part(&EXTERNAL_KEYS)]),
        ConfigValueType::Secrets => any(&[part(&EXTERNAL_KEYS), list(part(&EXTERNAL_KEYS))]),
        ConfigValueType::Names | ConfigValueType::Texts => list(text()),
        ConfigValueType::Group | ConfigValueType::OneOrMoreTexts => any(&[text(), list(text())]),
        ConfigValueType::Identities | ConfigValueType::Steps => list(any(&[text(), list(text())])),
        ConfigValueType::Env => any(&[list(text()), json!({ "type": "object", "additionalProperties": text() })]),
        ConfigValueType::Headers => {
            json!({ "type": "object", "additionalProperties": any(&[text(), part(&EXTERNAL_KEYS)]) })
        }
        ConfigValueType::Claims => {
            json!({ "type": "object", "additionalProperties": any(&[text(), list(text())]) })
        }
        ConfigValueType::Values => json!({ "type": "object", "additionalProperties": text() }),
        ConfigValueType::Members => json!({ "type": "object", "additionalProperties": written(PLACE) }),
        ConfigValueType::TextOrMembers => {
            any(&[text(), json!({ "type": "object", "additionalProperties": written(PLACE) })])
        }
        ConfigValueType::Table(of) => any(&[part(of)]),
        ConfigValueType::Tables(of) => any(&[part(of), list(part(of))]),
        ConfigValueType::Named(of) => json!({ "type": "object", "additionalProperties": part(of), "minProperties": 1 }),
        ConfigValueType::PresetTables => json!({ "type": "object", "additionalProperties": { "type": "object" } }),
        ConfigValueType::TextOr(of) => any(&[text(), part(of)]),
        ConfigValueType::WordOr(words, of) => any(&[json!({ "enum": words }), part(of)]),
        ConfigValueType::Places(of) => {
            json!({ "type": "object", "additionalProperties": any(&[written(PLACE), list(written(PLACE)), part(of)]) })
        }
    }
}
