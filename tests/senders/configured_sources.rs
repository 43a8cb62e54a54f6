//! What a user writes: a preset, what it needs, and a route.

use super::signed_samples::{SentDelivery, config_with, configured, now, presets_signed_here};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::WhenBusy;
use hookonce::internals::config::presets;
use serde_json::{Value, json};

/// A route that gets every field.
const RUN: &str = "run = { steps = [\"true\"] }";

#[test]
fn no_preset_causes_a_warning() {
    // The callers of ci-ingestion have a folder of secrets; with one secret it warns.
    let presets = presets_signed_here().filter(|preset| preset.name != "ci-ingestion");
    let warnings: Vec<_> = presets
        .flat_map(|preset| configured(preset, RUN).warnings.into_iter().map(|warning| (preset.name, warning)))
        .map(|(name, warning)| format!("{name}: {warning}"))
        .collect();
    assert!(warnings.is_empty(), "{}", warnings.join("\n"));
}

/// The kind of event is compared with the body where a command gets it.
#[test]
fn a_captured_push_under_another_kind_is_refused() {
    let github = configured(presets::find("github").expect("a preset"), RUN);
    let push = github.sample("id-1", now());
    assert_eq!(push.header("x-github-event"), Some("push"));
    push.event(&github.source);
    let forged = push.with_header("x-github-event", "release").judge(&github.source);
    assert!(matches!(forged, Verdict::Refused(DeliveryRejection::KindMismatch(_))), "{forged:?}");
}

#[test]
fn of_the_images_that_wait_only_the_newest_is_kept() {
    for name in ["github-package", "acr", "artifactory", "docker-hub", "ecr", "harbor"] {
        let preset = configured(presets::find(name).expect(name), RUN);
        let busy = &preset.source.routes[0].when_busy;
        assert!(matches!(busy, WhenBusy::Replace { .. }), "{name}: {busy:?}");
        preset.sample("id-1", now()).event(&preset.source);
    }
}

#[test]
fn a_sender_that_signs_nothing_needs_a_path_of_its_own() {
    let error = config_with("[source.images]\npreset = \"docker-hub\"\n", "").unwrap_err();
    assert!(error.contains("source `images` needs a `path` that cannot be guessed"), "{error}");
    assert!(error.contains("Docker Hub signs nothing"), "{error}");
}

/// A genuine delivery of this preset, with this value in its body.
fn sent(name: &str, at: &str, value: Value) -> Verdict {
    let preset = configured(presets::find(name).expect(name), "");
    let sample = preset.sample("id-1", now());
    let mut body: Value = serde_json::from_slice(&sample.body).expect("JSON");
    *body.pointer_mut(at).unwrap_or_else(|| panic!("{name} has no {at}")) = value;
    let body = body.to_string().into_bytes();
    let signed = preset.source.verify.sign("id-1", now(), &body);
    let changed = SentDelivery { body, ..sample };
    let changed = signed.iter().fold(changed, |sent, (name, value)| sent.with_header(name, value.as_str()));
    changed.judge(&preset.source)
}

/// A refusal would be counted as a failure by the sender, which may then switch the webhook off.
#[test]
fn other_events_of_a_registry_are_ignored_and_not_refused() {
    for (name, at, value) in [
        ("harbor", "/type", json!("DELETE_ARTIFACT")),
        ("harbor", "/event_data/resources/0/tag", json!("")),
        ("acr", "/action", json!("ping")),
        ("acr", "/target/tag", Value::Null),
        ("ecr", "/detail/action-type", json!("DELETE")),
        ("ecr", "/detail/result", json!("FAILURE")),
        ("ecr", "/detail/image-tag", Value::Null),
        ("artifactory", "/domain", json!("artifact")),
        ("artifactory", "/event_type", json!("deleted")),
    ] {
        let verdict = sent(name, at, value);
        assert!(matches!(verdict, Verdict::Ignored(_)), "{name} {at}: {verdict:?}");
    }
}

/// What a sender sends when the webhook is set up has none of the usual values.
#[test]
fn a_test_of_the_sender_is_accepted() {
    for (name, at, value) in [
        ("terraform", "/run_id", Value::Null),
        ("gitlab", "/ref", Value::Null),
        ("alertmanager", "/alerts", json!([])),
        ("sentry", "/data", json!({})),
        ("pagerduty", "/event/data", json!({ "message": "Hello", "type": "ping" })),
    ] {
        let verdict = sent(name, at, value);
        assert!(matches!(verdict, Verdict::Events(_)), "{name} {at}: {verdict:?}");
    }
}
