//! Sources for several kinds of event, each with its shape, and fields with several places.

use super::signed_samples::{SentDelivery, config_with, configured, now};
use hookonce::decide::claim::{ClaimResult, NewEvent};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::id::EventId;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::internals::config::presets;
use hookonce::store::Store;
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use serde_json::{Value, json};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const HEADER: &str = "x-github-event";

fn packages() -> Arc<Source> {
    configured(presets::find("github-package").expect("a preset"), "").source
}

/// A delivery of this kind under this id, with this body.
fn sent(source: &Source, kind: &str, id: &str, body: &Value) -> SentDelivery {
    let body = body.to_string().into_bytes();
    let headers = source.verify.sign(id, now(), &body).into_iter().map(|(name, value)| (name, value.into_bytes()));
    SentDelivery { headers: headers.collect(), query: String::new(), body, at: now() }.with_header(HEADER, kind)
}

/// The sample of a push, as `registry_package` and as `package`.
fn push() -> [Value; 2] {
    let sample = presets::find("github-package").and_then(|preset| preset.sample).expect("a sample");
    let one: Value = serde_json::from_str(sample).expect("JSON");
    let mut other = one.clone();
    let package = other.as_object_mut().and_then(|members| members.remove("registry_package")).expect("its package");
    other["package"] = package;
    [one, other]
}

/// What became of this event: `new`, or what it is a duplicate of.
pub(crate) fn claim(store: &MemoryStore, number: u8, mut new: NewEvent) -> String {
    new.event.id = EventId([number; 16]);
    let mut answer = store.claim(vec![new.into()]);
    let Poll::Ready(Ok(mut claims)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("a memory store responds at once");
    };
    match claims.remove(0) {
        ClaimResult::New { .. } => "new".to_owned(),
        ClaimResult::Duplicate { event, same, .. } => format!("{} of {}", same.word(), event.id.0[0]),
        other => panic!("{other:?}"),
    }
}

/// The hint of `check` names a list, and a list shows a kind as an object does; a single value shows none.
#[test]
fn a_list_shows_the_kind_of_a_body_and_a_single_value_does_not() {
    let text = "[source.s]\nverify = { scheme = \"hmac\", secret = { env = \"S\" }, header = \"x-signature\" }\n\
        kind = { header = \"x-event\", is = { push = \"body.commits\", tag = \"body.tag\" } }\n\
        fields = { first = \"body.commits.0.id\" }\n";
    let source = config_with(text, "a secret that is long enough").expect("fine").sources[0].clone();
    let judged = |kind: &str, body: &Value| {
        let body = body.to_string().into_bytes();
        let headers = source.verify.sign("", now(), &body).into_iter().map(|(name, value)| (name, value.into_bytes()));
        let sent = SentDelivery { headers: headers.collect(), query: String::new(), body, at: now() };
        sent.with_header("x-event", kind).judge(&source)
    };
    for shown in [json!([]), json!([{ "id": "a" }]), json!({}), json!(["a"])] {
        let verdict = judged("push", &json!({ "commits": shown }));
        assert!(matches!(&verdict, Verdict::Events(events) if events.len() == 1), "{shown}: {verdict:?}");
    }
    for (kind, body) in [
        ("tag", json!({ "commits": [] })),
        ("push", json!({ "commits": [], "tag": {} })),
        ("push", json!({ "commits": [], "tag": null })),
        ("push", json!({ "commits": null })),
        ("push", json!({ "commits": 3 })),
        ("push", json!({ "commits": "[]" })),
        ("push", json!({})),
    ] {
        let verdict = judged(kind, &body);
        assert!(matches!(verdict, Verdict::Refused(DeliveryRejection::KindMismatch(_))), "{kind} {body}: {verdict:?}");
    }
}

/// A webhook may send both kinds for one push.
#[test]
fn a_push_that_is_sent_as_two_kinds_is_one_event() {
    let source = packages();
    for kinds in [[0, 1], [1, 0]] {
        let store = MemoryStore::new(StoreClock::manual(now()));
        let names = ["registry_package", "package"];
        let claims = (1..).zip(kinds).map(|(number, kind)| {
            let event = sent(&source, names[kind], &format!("id-{number}"), &push()[kind]).event(&source);
            claim(&store, number, event)
        });
        assert_eq!(claims.collect::<Vec<_>>(), ["new", "change of 1"]);
    }
}

#[test]
fn both_kinds_have_the_same_fields() {
    let source = packages();
    let [one, other] = push();
    let one = sent(&source, "registry_package", "id", &one).event(&source).event;
    let other = sent(&source, "package", "id", &other).event(&source).event;
    assert_eq!(one.fields, other.fields);
    assert_eq!(one.fields.iter().count(), 8);
}

/// The header is not signed: under a forged kind, a captured delivery is refused or ignored.
#[test]
fn a_body_must_have_the_shape_of_the_kind_that_the_header_names_and_no_other() {
    let source = packages();
    let [one, other] = push();
    let mut both = one.clone();
    both["package"] = other["package"].clone();
    let mut empty = one.clone();
    empty["package"] = Value::Null;
    for (kind, body) in [
        ("package", &one),
        ("registry_package", &other),
        ("package", &both),
        ("registry_package", &both),
        ("registry_package", &empty),
        ("package", &json!({ "action": "published" })),
        ("package", &json!({ "package": "jamiec_ts" })),
    ] {
        let verdict = sent(&source, kind, "id", body).judge(&source);
        assert!(matches!(verdict, Verdict::Refused(DeliveryRejection::KindMismatch(_))), "{kind} {body}: {verdict:?}");
    }
    for kind in ["ping", "", "Package", "package,registry_package"] {
        let verdict = sent(&source, kind, "id", &one).judge(&source);
        let Verdict::Ignored(why) = verdict else { panic!("{kind}: {verdict:?}") };
        assert!(why.ends_with("wanted \"registry_package\" or \"package\""), "{why}");
    }
    let twice = sent(&source, "package", "id", &other);
    let headers = twice.headers.iter().cloned().chain([(HEADER.to_owned(), b"package".to_vec())]).collect();
    let twice = SentDelivery { headers, ..twice }.judge(&source);
    assert!(matches!(twice, Verdict::Ignored(_)), "{twice:?}");
}

/// What was claimed before the second kind was accepted has the same keys.
#[test]
fn the_keys_of_the_first_kind_are_those_of_the_first_release() {
    let text = "[source.github-package]\nverify = { scheme = \"github\", secret = { env = \"S\" } }\nwhen = 'tag == \"latest\"'\n\
        [source.github-package.fields]\npackage = \"body.registry_package.name\"\n\
        tag = \"body.registry_package.package_version.container_metadata.tag.name\"\n\
        version_id = \"body.registry_package.package_version.id\"\nsha = \"body.registry_package.package_version.version\"\n\
        updated_at = \"body.registry_package.updated_at\"\n\
        [source.github-package.once]\nper = [\"delivery\", \"body\"]\n\
        change = { of = [\"package\", \"tag\"], to = [\"version_id\", \"sha\"], order = \"updated_at\" }\n";
    let before = config_with(text, "a secret that is long enough").unwrap_or_else(|why| panic!("{why}"));
    let (before, now) = (&before.sources[0], packages());
    let delivery = sent(&now, "registry_package", "id", &push()[0]);
    let (old, new) = (delivery.event(before), delivery.event(&now));
    let keys = |event: &NewEvent| event.keys.iter().map(|key| key.key).collect::<Vec<_>>();
    assert_eq!((keys(&old), old.event.change), (keys(&new), new.event.change));
    assert_eq!(before.recipe().once, now.recipe().once);
}

#[test]
fn the_first_place_with_a_value_counts() {
    let text = "[source.s]\nverify = \"none\"\n\
        fields = { tag = { at = [\"body.a\", \"header.x-tag\", \"body.b.0\"], after = \"v\", default = \"none\" } }\n";
    let source = config_with(text, "").unwrap_or_else(|why| panic!("{why}")).sources[0].clone();
    let tag = |body: Value, header: Option<&str>| {
        let sent = sent(&source, "", "", &body);
        let sent = header.map_or(sent.clone(), |value| sent.with_header("x-tag", value));
        format!("{:?}", sent.event(&source).event.fields.get("tag"))
    };
    for (body, header, expected) in [
        (json!({ "a": "v1", "b": ["v3"] }), Some("v2"), "1"),
        (json!({ "a": null, "b": ["v3"] }), Some("v2"), "2"),
        (json!({ "a": "1", "b": ["v3"] }), Some("v2"), "2"),
        (json!({ "a": {}, "b": ["v3"] }), None, "3"),
        (json!({ "b": [] }), None, "none"),
    ] {
        let found = tag(body.clone(), header);
        assert!(found.contains(&format!("{expected:?}")), "{body}: {found}");
    }
}
