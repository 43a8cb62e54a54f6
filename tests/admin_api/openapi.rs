//! The `OpenAPI` document is true: by its own examples, by a node's responses, and by schemathesis.

use crate::registers::changing;
use crate::support::{House, Sent};
use crate::{IN, number, request};
use serde_json::{Value, json};
use std::process::Command;

fn document() -> Value {
    serde_json::from_str(hookonce::internals::admin::openapi_document()).unwrap()
}

/// The violations of this schema: supports the part of JSON Schema that the document uses.
fn wrong(all: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(path) = schema["$ref"].as_str() {
        return wrong(all, all.pointer(&path[1..]).unwrap(), value, at);
    }
    if let Some(any) = schema["oneOf"].as_array() {
        let each: Vec<_> = any.iter().map(|one| wrong(all, one, value, at)).collect();
        return match each.iter().filter(|found| found.is_empty()).count() {
            0 => each.concat(),
            1 => Vec::new(),
            several => vec![format!("{at} is {several} of those it may be one of")],
        };
    }
    if schema["allOf"].is_array() {
        return wrong(all, &merged(all, schema), value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(some) => some.iter().map(|one| one.as_str().unwrap()).collect(),
        _ => vec![],
    };
    let fits = types.is_empty() || types.contains(&kind) || (kind == "integer" && types.contains(&"number"));
    let mut found = Vec::new();
    if !fits {
        found.push(format!("{at} is {kind}, not {types:?}: {value}"));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        found.push(format!("{at} is {value}"));
    }
    if let (Some("date-time"), Some(text)) = (schema["format"].as_str(), value.as_str()) {
        let time = hookonce::decide::time::Timestamp::parse(text);
        found.extend(time.is_none().then(|| format!("{at} is no time: {text}")));
    }
    if let Value::Object(members) = value {
        for name in schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()) {
            found.extend((!members.contains_key(name)).then(|| format!("{at} has no {name}")));
        }
        for (name, member) in members {
            let (own, others) = (&schema["properties"][name], &schema["additionalProperties"]);
            match (own, others) {
                (Value::Object(_), _) => found.extend(wrong(all, own, member, &format!("{at}.{name}"))),
                (_, Value::Object(_)) => found.extend(wrong(all, others, member, &format!("{at}.{name}"))),
                (_, Value::Bool(false)) => found.push(format!("{at} has {name}, which is not described")),
                _ if schema["properties"].is_object() => found.push(format!("{at}.{name} is not described")),
                _ => {}
            }
        }
    }
    if let (Value::Array(items), Value::Object(_)) = (value, &schema["items"]) {
        for (n, item) in items.iter().enumerate() {
            found.extend(wrong(all, &schema["items"], item, &format!("{at}[{n}]")));
        }
    }
    found
}

/// The object with the members of all parts of this one.
fn merged(all: &Value, schema: &Value) -> Value {
    if let Some(path) = schema["$ref"].as_str() {
        return merged(all, all.pointer(&path[1..]).unwrap());
    }
    let Some(parts) = schema["allOf"].as_array() else { return schema.clone() };
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for part in parts.iter().map(|part| merged(all, part)) {
        properties.extend(part["properties"].as_object().unwrap().clone());
        required.extend(part["required"].as_array().cloned().unwrap_or_default());
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let each = paths.flat_map(|(path, of)| {
        of.as_object()
            .unwrap()
            .iter()
            .map(move |(method, operation)| (path.clone(), method.to_uppercase(), operation.clone()))
    });
    each.collect()
}

#[test]
fn every_example_fits_its_schema() {
    let all = document();
    let mut looked = 0;
    for (path, method, operation) in operations(&all) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let told = &response["content"]["application/json"];
            if let Some(example) = told.get("example") {
                let found = wrong(&all, &told["schema"], example, &format!("{method} {path} {status}"));
                assert!(found.is_empty(), "{found:#?}");
                looked += 1;
            }
        }
    }
    assert!(looked > 50, "only {looked} examples");
}

#[tokio::test]
async fn every_response_of_a_node_fits_the_document_and_every_operation_exists() {
    let house = House::new(&changing(""));
    let event = house.deliver(IN, &number("d1", 13, "a")).await.event();
    house.deliver(IN, &number("d1", 13, "a")).await;
    house.deliver(IN, &number("d2", 1, "no")).await;
    house.deliver("/nowhere", &Sent { headers: vec![], body: vec![] }).await;
    house.quiet().await;
    let all = document();
    let mut asked = 0;
    for (path, method, operation) in operations(&all) {
        if path == "/api/tail" {
            continue; // a stream never ends
        }
        let streams = operation["responses"]["200"]["content"]["text/event-stream"].is_object();
        // Deleting comes last in the document's order of methods, and is tried with an unknown event.
        let name = if method == "DELETE" { "nobody" } else { &event };
        let mut url = path.replace("{event}", name).replace("{register}", name);
        if path == "/api/replay" {
            url += "?dry=1";
        }
        if streams {
            url += "?nonsense=1";
        }
        let body = if path == "/api/explain" { json!({ "event": event }).to_string() } else { "{}".into() };
        let answer = request(&house, &method, &url, &[("content-type", "application/json")], &body).await;
        assert_ne!((answer.status, answer.json()["reason"].clone()), (404, json!("unknown_path")), "{method} {url}");
        assert_ne!(answer.status, 405, "{method} {url}");
        let response = &operation["responses"][answer.status.to_string()];
        assert!(response.is_object(), "{method} {url} answers {}, which is not described", answer.status);
        let kind = answer.header("content-type").unwrap_or("").split(';').next().unwrap().to_owned();
        assert!(response["content"][&kind].is_object(), "{method} {url} answers {kind}");
        if kind == "application/json" {
            let found = wrong(&all, &response["content"][&kind]["schema"], &answer.json(), &url);
            assert!(found.is_empty(), "{found:#?}");
        }
        asked += 1;
    }
    assert!(asked > 18, "only {asked}");
}

/// Where `./test` installs it.
fn schemathesis() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/schemathesis/bin/schemathesis")
}

#[tokio::test]
async fn schemathesis_finds_nothing() {
    if !schemathesis().exists() {
        assert!(std::env::var_os("HOOKONCE_TOOLS").is_none(), "schemathesis is missing; ./test installs it");
        eprintln!("schemathesis is missing; ./test installs it");
        return;
    }
    let house = House::new(&changing(""));
    for n in 0..5 {
        house.deliver(IN, &number(&format!("d{n}"), 10 + n, "a")).await;
    }
    house.quiet().await;
    // Endless responses are left out: streams have their own tests.
    let examples = if std::env::var_os("HOOKONCE_FULL").is_some() { "50" } else { "8" };
    let seed = crate::seed::given_or(7).to_string();
    let run = Command::new(schemathesis())
        .current_dir(house.dir.path())
        .args(["run", &house.admin_url("/api/openapi.json"), "--max-examples", examples, "--seed", &seed])
        .args(["--exclude-path", "/api/live", "--exclude-path", "/api/tail", "--phases", "examples,coverage,fuzzing"])
        .args(["--exclude-checks", "ignored_auth,positive_data_acceptance", "--no-color", "--request-timeout", "20"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    let tail = said.lines().rev().take(150).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
    assert!(run.status.success(), "{tail}");
}
