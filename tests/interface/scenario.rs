//! A node that receives every kind of delivery, and its output: responses, log, metrics, keys.

use crate::check;
use crate::support::{House, SECRET, Sent, until};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// A source per kind of identity, and routes that act, fail, wait for each other and do nothing.
const CONFIG: &str = r#"store = "sqlite:hookonce.db"
[source.pushes]
path   = "/pushes"
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { n = "body.n", tag = "body.tag" }
when   = 'n != 13'
once   = { change = { of = ["tag"], to = ["n"] } }
[[source.pushes.route]]
group = ["tag"]
run   = { steps = ["test $HOOKONCE_FIELD_N != 7"] }
retry = { attempts = 2, first = "1s" }

[source.notes]
path     = "/notes"
verify   = { scheme = "hmac", header = "x-signature", secret = { env = "SECRET" } }
delivery = "body.id"
once     = { per = ["delivery", ["note", "room"]] }
fields   = { note = "body.id", room = "body.room" }

[source.numbers]
path   = "/numbers"
verify = "none"
once   = { per = ["body"] }
"#;

fn hmac(body: &str) -> Sent {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hex::encode(aws_lc_rs::hmac::sign(&key, body.as_bytes()));
    let headers = [("x-signature", &*signature), ("content-type", "application/json")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Sent { headers, body: body.as_bytes().to_vec() }
}

fn plain(body: &str) -> Sent {
    Sent { headers: vec![("content-type".into(), "application/json".into())], body: body.as_bytes().to_vec() }
}

/// Every path of members in a JSON value.
fn members(value: &Json, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Json::Object(object) => {
            for (name, member) in object {
                members(member, &format!("{path}.{name}"), found);
            }
        }
        Json::Array(list) => list.iter().for_each(|one| members(one, &format!("{path}[]"), found)),
        _ => drop(found.insert(path.to_owned())),
    }
}

/// Deliveries of every kind, and the response to each.
async fn deliveries(house: &House) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let push = |id: &str, body: &str| Sent::github("push", id, body);
    let forged = push("d-9", r#"{"n": 9, "tag": "a"}"#).with("x-hub-signature-256", "sha256=00");
    let all = [
        ("new", "/pushes", push("d-1", r#"{"n": 1, "tag": "a"}"#)),
        ("duplicate", "/pushes", push("d-1", r#"{"n": 1, "tag": "a"}"#)),
        ("changed to the same", "/pushes", push("d-2", r#"{"n": 1, "tag": "a", "x": 2}"#)),
        ("ignored", "/pushes", push("d-3", r#"{"n": 13, "tag": "a"}"#)),
        ("fails", "/pushes", push("d-4", r#"{"n": 7, "tag": "b"}"#)),
        ("forged", "/pushes", forged),
        ("not JSON", "/pushes", push("d-5", "{")),
        ("nothing there", "/nowhere", plain("{}")),
        ("recorded", "/notes", hmac(r#"{"id": "n-1", "room": 1}"#)),
        ("per", "/notes", hmac(r#"{"id": "n-1", "room": 1, "more": true}"#)),
        ("body", "/numbers", plain("1")),
        ("body again", "/numbers", plain("1")),
    ];
    for (what, path, sent) in all {
        let answer = house.deliver(path, &sent).await;
        // The response to a duplicate depends on whether the first has ended.
        house.quiet().await;
        found.insert(format!("{what}: {} {}", answer.status, answer.header("content-type").unwrap_or_default()));
        let ours =
            answer.headers.iter().filter(|(name, _)| !["date", "content-length", "content-type"].contains(&&**name));
        found.extend(ours.map(|(name, _)| format!("{what}: header {name}")));
        members(&answer.json(), &format!("{what}: "), &mut found);
        if let Some(word) = answer.json()["status"].as_str() {
            found.insert(format!("{what}: .status = {word}"));
        }
    }
    found
}

/// The words of the log with the names of their fields.
fn log_lines(log: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in log.lines() {
        let mut parts = line.splitn(4, ' ');
        let (Some(date), Some(_), Some(level @ ("INFO" | "WARN" | "ERROR")), Some(rest)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        assert!(date.len() == "2026-11-15".len() && date.starts_with("20"), "{line}");
        let word = rest.split_whitespace().next().unwrap_or_default();
        found.insert(format!("{level} {word}"));
        let (mut quote, mut name) = (None, String::new());
        for c in rest.chars() {
            match (quote, c) {
                (Some(end), c) if c == end => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, ' ') => name.clear(),
                (None, '=') => drop(found.insert(format!("{word} {name}="))),
                (None, c) => name.push(c),
            }
        }
    }
    found
}

/// The metrics: names, types, and the names of their labels.
fn metrics(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            found.insert(format!("type {kind}"));
        } else if !line.starts_with('#') && !line.is_empty() {
            let name = line.split(['{', ' ']).next().unwrap();
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(labels, _)| labels);
            let labels: Vec<_> = labels.split("\",").filter_map(|label| label.split('=').next()).collect();
            found.insert(format!("{name}{{{}}}", labels.join(",")));
        }
    }
    found
}

#[tokio::test]
async fn answers_log_metrics_and_keys_are_as_they_were() {
    let mut house = House::new(CONFIG);
    let answers = deliveries(&house).await;
    let scraped = house.ask("GET", "/metrics").await;
    let keys = house
        .sql("select k.identity || ' ' || e.source || ' ' || hex(k.key) from keys k join events e on e.id = k.event");
    let states = house.sql("select state || ' ' || coalesce(cause, '') from events");
    let lock = std::fs::read(house.path("hookonce.db.lock")).unwrap_or_default();
    until("the end is logged", || house.log().contains("dead")).await;
    house.signal(rustix::process::Signal::TERM);
    let (_, log) = house.wait();
    check("answers.txt", answers);
    check("log-fields.txt", log_lines(&log));
    check("metrics.txt", metrics(&String::from_utf8_lossy(&scraped.body)));
    check("keys.txt", keys);
    check("states.txt", states);
    check("lock-file.txt", [lock_shape(&lock)]);
}

/// The shape of a lock file, without ids and numbers.
fn lock_shape(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shape = BTreeMap::new();
    for (place, line) in text.lines().enumerate() {
        let words =
            line.split_whitespace().map(|word| if word.chars().any(|c| c.is_ascii_digit()) { "…" } else { word });
        shape.insert(place, words.collect::<Vec<_>>().join(" "));
    }
    shape.into_values().collect::<Vec<_>>().join(" / ")
}
