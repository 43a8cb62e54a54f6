//! What an attacker can do with one captured signed delivery and no secret: send it again, under any id. For every
//! scheme, every example and every config in the docs it is one event.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use hookonce::decide::claim::ClaimResult;
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::field::FieldLocation;
use hookonce::decide::github_kind;
use hookonce::decide::id::EventId;
use hookonce::decide::identity::key;
use hookonce::decide::judge::{Verdict, judge};
use hookonce::decide::source::{ApiStyle, Route, Source};
use hookonce::decide::time::Timestamp;
use hookonce::internals::config::{self, Config};
use hookonce::store::Store;
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Builder;

const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Any secret, any secret path, and any URL.
fn env(name: &str) -> String {
    match name {
        "NATS_URL" => "nats://127.0.0.1:4222".to_owned(),
        "DATABASE_URL" => "postgres://127.0.0.1/hooks".to_owned(),
        "REDIS_URL" => "redis://127.0.0.1".to_owned(),
        name if name.contains("URL") => "http://127.0.0.1:8080/".to_owned(),
        name if name.ends_with("_PATH") => format!("/in/{WHSEC}"),
        _ => WHSEC.to_owned(),
    }
}

/// A body with a value at the location of every field.
fn body(source: &Source) -> Vec<u8> {
    let mut body = json!({});
    for field in source.fields.iter() {
        let FieldLocation::Body(path) = &field.at else { continue };
        let mut at = &mut body;
        for name in path {
            at = if let Ok(place) = name.parse::<usize>() {
                if !at.is_array() {
                    *at = Value::Array(vec![Value::Null; place + 1]);
                }
                &mut at[place]
            } else {
                if !at.is_object() {
                    *at = json!({});
                }
                &mut at[name]
            };
        }
        *at = json!(7);
    }
    if source.fields.kind_use().is_some() {
        for member in ["ref", "after", "commits"] {
            body[member] = json!("as in a push");
        }
    }
    if let Some(FieldLocation::Body(path)) = source.delivery.as_ref().map(|id| &id.at) {
        body[&path[0]] = json!("in the body");
    }
    if let Some(each) = source.fields.each() {
        // The fields are those of an element.
        body = each.iter().rev().fold(json!([body]), |inner, name| json!({ name: inner }));
    }
    body.to_string().into_bytes()
}

/// How many events five deliveries of the same signed bytes make, each under another id wherever there may be one, and
/// as another message if they come from a stream.
fn events(mut source: Source) -> usize {
    // Filters are not part of this test.
    (source.when, source.require, source.kind) = (None, None, None);
    source.routes = vec![Arc::new(Route::default())];
    if source.verify.lacks_secret().is_some() {
        source.verify = source.verify.with_secrets(vec![b"a secret that its sender brought".to_vec()]).unwrap();
    }
    let bytes = bytes::Bytes::from(body(&source));
    let at = Timestamp(1_770_000_000_000_000);
    let signed = source.verify.sign("id-0", at, &bytes);
    let store = MemoryStore::new(StoreClock::manual(at));
    let mut made = 0;
    for n in 0..5_u64 {
        let id = format!("id-{n}");
        let mut headers: Vec<_> =
            signed.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        let places = source.delivery.iter().map(|id| &id.at);
        for name in places.filter_map(|at| if let FieldLocation::Header(name) = at { Some(name) } else { None }) {
            headers.retain(|(other, _)| other != name);
            headers.push((name.clone(), id.clone().into_bytes()));
        }
        if source.fields.kind_use().is_some() {
            headers.push((github_kind::HEADER.into(), b"push".to_vec()));
        }
        if matches!(source.intake, hookonce::decide::source::Intake::Stream(_)) {
            headers.extend(key::stream_headers("HOOKS", i128::from(n), n));
        }
        let query = format!("id={id}");
        let delivery =
            Delivery { path: "/in", query: &query, headers: &borrow_headers(&headers), body: &bytes, at, wall: at };
        let mut next = || EventId(uuid::Uuid::now_v7().into_bytes());
        match judge(&source, &delivery, &mut next) {
            Verdict::Events(new) => {
                let new = new.into_iter().map(Arc::new).collect();
                let claims = Builder::new_current_thread().build().unwrap().block_on(store.claim(new)).unwrap();
                made += claims.iter().filter(|claim| matches!(claim, ClaimResult::New { .. })).count();
            }
            Verdict::Refused(refusal) => assert_ne!(n, 0, "{}: {refusal:?}", source.name),
            Verdict::Ignored(why) => panic!("{}: {why}", source.name),
        }
    }
    made
}

fn parse(text: &str, folder: &Path) -> Result<Config, String> {
    config::parse(text, "hookonce.toml", folder, &|name| Some(env(name))).map_err(|problems| problems.to_string())
}

/// Every source of this config with how many events a captured delivery makes.
fn each(config: Config) -> Vec<(String, bool, usize)> {
    let sources = config.sources.into_iter().filter_map(Arc::into_inner);
    sources.map(|source| (source.name.to_string(), source.api_style == ApiStyle::Api, events(source))).collect()
}

/// A signature that covers the id rejects any other; otherwise the bytes identify the delivery.
const SCHEMES: [(&str, &str, usize); 12] = [
    ("github", r#"verify = { scheme = "github", secret = { env = "A" } }"#, 1),
    (
        "an HMAC over the body",
        r#"verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" } }
        delivery = "header.x-id""#,
        1,
    ),
    (
        "an HMAC over the body, id in the query",
        r#"verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" } }
        delivery = "query.id""#,
        1,
    ),
    (
        "an HMAC over time and body",
        r#"verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" },
            over = "{timestamp}.{body}", timestamp = "header.x-time" }
        delivery = "header.x-id""#,
        1,
    ),
    (
        "an HMAC over time and body, time in the body",
        r#"verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" },
            over = "{body}" }
        fields = { at = "body.at" }
        delivery = "header.x-id""#,
        1,
    ),
    (
        "an HMAC over id and body",
        r#"verify = { scheme = "hmac", header = "x-sig", secret = { env = "A" }, over = "{id}.{body}" }
        delivery = "header.x-id""#,
        1,
    ),
    ("Standard Webhooks", r#"verify = { scheme = "standard-webhooks", secret = { env = "A" } }"#, 1),
    (
        "Standard Webhooks, another id",
        r#"verify = { scheme = "standard-webhooks", secret = { env = "A" } }
        delivery = "header.x-id""#,
        1,
    ),
    (
        "callers",
        r#"verify = { scheme = "hmac", header = "x-sig", secret = { dir = "examples/ci-ingestion/callers" } }
        key_id = "who"
        fields = { who = "header.x-who" }
        delivery = "header.x-id""#,
        1,
    ),
    (
        "carried",
        r#"from = { nats = "nats://127.0.0.1:4222", stream = "HOOKS" }
        verify = { scheme = "carried", of = "github", secret = { env = "A" } }"#,
        1,
    ),
    // A client with the token, or with write access, may use any id.
    (
        "bearer",
        r#"verify = { scheme = "bearer", secret = { env = "A" } }
        delivery = "header.x-id""#,
        5,
    ),
    ("none", "verify = \"none\"\n delivery = \"header.x-id\"", 5),
];

#[test]
fn the_same_signed_bytes_under_five_ids_are_one_event_in_every_scheme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (what, lines, wanted) in SCHEMES {
        for once in ["", "once = { per = [\"delivery\"] }", "once = { keep = \"30d\" }"] {
            let text = format!("store = \"sqlite:x.db\"\n[source.s]\n{lines}\n{once}\n[[source.s.route]]\n");
            let config = parse(&text, root).unwrap_or_else(|problems| panic!("{what}: {problems}"));
            assert_eq!(each(config), [("s".to_owned(), false, wanted)], "{what}, {once}");
        }
    }
}

#[test]
fn equal_bodies_act_each_time_only_where_the_config_says_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (what, lines, _) in &SCHEMES[..4] {
        let once = "once = { equal_bodies = \"new\" }";
        let config = parse(&format!("[source.s]\n{lines}\n{once}\n[[source.s.route]]\n"), root).unwrap();
        let told = config.warnings.iter().any(|warning| warning.title.contains("captures a delivery can make it act"));
        assert!(told, "{what}: {:?}", config.warnings);
        assert_eq!(each(config)[0].2, 5, "{what}");
    }
}

#[test]
fn the_same_signed_bytes_under_five_ids_are_one_event_in_every_example() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut seen = 0;
    for folder in std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|end| end != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let config = parse(&text, &folder).unwrap_or_else(|problems| panic!("{}: {problems}", file.display()));
            seen += check(&file.display().to_string(), config);
        }
    }
    assert!(seen >= 6, "only {seen} sources were found");
}

/// A source that verifies signatures accepts no other id than the signed one, or recognises the bytes.
fn check(of: &str, config: Config) -> usize {
    let trusting: Vec<_> = config.sources.iter().map(|source| !source.verify.has_secret()).collect();
    let all = each(config);
    for ((name, api, events), trusts) in all.iter().zip(trusting) {
        assert!(*events == 1 || *api || trusts, "{of}: a captured delivery to {name} makes {events} events");
    }
    all.len()
}

#[test]
fn the_same_signed_bytes_under_five_ids_are_one_event_in_every_config_of_the_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("callers")).unwrap();
    std::fs::write(folder.path().join("callers/acme"), WHSEC).unwrap();
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for page in pages.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            // A part of a config, such as a route alone, is skipped.
            if block.lines().any(|line| line.starts_with("[source.") && line.matches('.').count() == 1) {
                let config = parse(block, folder.path());
                let config = config.unwrap_or_else(|problems| panic!("{}: {problems}", page.display()));
                seen += check(&page.display().to_string(), config);
            }
        }
    }
    assert!(seen >= 5, "only {seen} sources were found");
}
