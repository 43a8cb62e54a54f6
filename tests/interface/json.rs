//! The schema of the config and the description of the admin API as lists of lines, independent of how they are
//! written.

use crate::check;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::process::Command;

/// How deep the schema of the config is followed, because it is recursive.
const CONFIG_DEPTH: usize = 13;
/// How deep the schemas of the API are followed: they refer to each other more often.
const API_DEPTH: usize = 17;

/// Every member that a schema describes, as a path, with its type and its possible words.
pub(crate) fn members(document: &Json, schema: &Json, path: &str, depth: usize, found: &mut BTreeSet<String>) {
    if depth == 0 {
        return;
    }
    if let Some(name) = schema["$ref"].as_str() {
        let target = document.pointer(name.trim_start_matches('#')).unwrap_or(&Json::Null);
        members(document, target, path, depth - 1, found);
    }
    for list in ["anyOf", "oneOf", "allOf"] {
        for one in schema[list].as_array().into_iter().flatten() {
            members(document, one, path, depth - 1, found);
        }
    }
    let words = schema["enum"].as_array().cloned().or_else(|| schema.get("const").map(|word| vec![word.clone()]));
    for word in words.into_iter().flatten() {
        found.insert(format!("{path} = {word}"));
    }
    match &schema["type"] {
        Json::String(kind) => drop(found.insert(format!("{path}: {kind}"))),
        Json::Array(kinds) => {
            found.extend(kinds.iter().filter_map(Json::as_str).map(|kind| format!("{path}: {kind}")));
        }
        _ => {}
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        members(document, member, &format!("{path}.{name}"), depth - 1, found);
    }
    for key in ["additionalProperties", "items"] {
        if schema[key].is_object() {
            let end = if key == "items" { "[]" } else { ".*" };
            members(document, &schema[key], &format!("{path}{end}"), depth - 1, found);
        }
    }
    for (_, member) in schema["patternProperties"].as_object().into_iter().flatten() {
        members(document, member, &format!("{path}.*"), depth - 1, found);
    }
}

#[test]
fn the_keys_of_the_config_are_as_they_were() {
    let printed = Command::new(env!("CARGO_BIN_EXE_hookonce")).arg("schema").output().unwrap();
    let schema: Json = serde_json::from_slice(&printed.stdout).unwrap();
    let mut found = BTreeSet::new();
    members(&schema, &schema, "", CONFIG_DEPTH, &mut found);
    check("config.txt", found);
}

#[test]
fn the_admin_api_is_as_it_was() {
    let document: Json = serde_json::from_str(hookonce::internals::admin::openapi_document()).unwrap();
    let mut found = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let at = format!("{} {path}", method.to_uppercase());
            found.insert(at.clone());
            let parameters = [&operations["parameters"], &operation["parameters"]];
            for parameter in parameters.into_iter().filter_map(Json::as_array).flatten() {
                let parameter = match parameter["$ref"].as_str() {
                    Some(name) => document.pointer(name.trim_start_matches('#')).unwrap(),
                    None => parameter,
                };
                let word = |name: &str| parameter[name].as_str().unwrap_or_default();
                found.insert(format!("{at} {} {}", word("in"), word("name")));
            }
            for (kind, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
                members(&document, &content["schema"], &format!("{at} body {kind} "), API_DEPTH, &mut found);
            }
            for (status, response) in operation["responses"].as_object().into_iter().flatten() {
                let response = match response["$ref"].as_str() {
                    Some(name) => document.pointer(name.trim_start_matches('#')).unwrap(),
                    None => response,
                };
                found.insert(format!("{at} {status}"));
                for (kind, content) in response["content"].as_object().into_iter().flatten() {
                    members(&document, &content["schema"], &format!("{at} {status} {kind} "), API_DEPTH, &mut found);
                }
            }
        }
    }
    check("api.txt", found);
}
