//! What a user writes: a preset, what it needs, and a route.

use super::signed_samples::{SentDelivery, config_of, config_with, configured_presets, now};
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::WhenBusy;
use hookonce::internals::config::presets;
use serde_json::{Value, json};

#[test]
fn no_preset_causes_a_warning() {
    let mut warnings = Vec::new();
    // The callers of ci-ingestion have a folder of secrets; with one secret it warns.
    for preset in presets::PRESETS.iter().filter(|preset| preset.name != "ci-ingestion") {
        let route = format!("[[source.{}.route]]\nrun = {{ steps = [\"true\"] }}\n", preset.name);
        let (config, _) = config_of(&format!("{}{route}", preset.example()));
        warnings.extend(config.warnings.iter().map(|warning| format!("{}: {warning}", preset.name)));
    }
    assert!(warnings.is_empty(), "{}", warnings.join("\n"));
}

#[test]
fn of_the_images_that_wait_only_the_newest_is_kept() {
    for name in ["github-package", "acr", "artifactory", "docker-hub", "ecr", "harbor"] {
        let preset = presets::find(name).expect(name);
        let route = format!("[[source.{name}.route]]\nrun = {{ steps = [\"true\"] }}\n");
        let (config, _) = config_of(&format!("{}{route}", preset.example()));
        let busy = &config.sources[0].routes[0].when_busy;
        assert!(matches!(busy, WhenBusy::Replace { .. }), "{name}: {busy:?}");
    }
}

#[test]
fn a_sender_that_signs_nothing_needs_a_path_of_its_own() {
    let error = config_with("[source.images]\npreset = \"docker-hub\"\n", "").unwrap_err();
    assert!(error.contains("source `images` needs a `path` that nobody can guess"), "{error}");
    assert!(error.contains("Docker Hub signs nothing"), "{error}");
}

/// A genuine delivery of this preset, with this value in its body.
fn sent(name: &str, at: &str, value: Value) -> Verdict {
    let preset = configured_presets().into_iter().find(|preset| preset.name() == name).expect(name);
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
