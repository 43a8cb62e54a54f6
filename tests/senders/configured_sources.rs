//! What a user writes: a preset, what it needs, and a route.

use super::signed_samples::{SentDelivery, config_with, configured, now, presets_signed_here};
use hookonce::decide::claim::NewEvent;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::field::{Field, FieldLocation, FieldValue};
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::WhenBusy;
use hookonce::internals::config::presets::{self, PRESETS};
use serde_json::{Value, json};

/// A route that gets every field.
const RUN: &str = "run = { steps = [\"true\"] }";

#[test]
fn no_preset_causes_a_warning_but_for_a_token_that_its_sender_puts_into_the_body() {
    // The callers of ci-ingestion have a folder of secrets; with one secret it warns.
    let presets = presets_signed_here().filter(|preset| preset.name != "ci-ingestion");
    let warnings: Vec<_> = presets
        .flat_map(|preset| configured(preset, RUN).warnings.into_iter().map(|warning| (preset.name, warning)))
        .collect();
    let (of_tokens, others): (Vec<_>, Vec<_>) =
        warnings.into_iter().partition(|(_, warning)| warning.contains("the token is in the body"));
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(of_tokens.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["figma", "graph"]);
}

/// What is shown of a preset is what its sources do.
#[test]
fn what_a_sender_signs_is_known_of_each_preset() {
    for preset in presets_signed_here() {
        let source = configured(preset, "").source;
        assert_eq!(preset.signs(), source.verify.signs(), "{}", preset.name);
    }
    let of = |name: &str| presets::find(name).expect(name).signs();
    let signs = ["github", "stripe", "clerk", "gitlab", "docker-hub", "slack-command"].map(of);
    assert_eq!(signs, ["body", "time+body", "id+time+body", "token", "none", "time+body"]);
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

/// A service behind `forward` learns what it got and under which id, and nothing that it could send with.
#[test]
fn a_receiver_gets_what_a_sender_says_in_headers_but_no_credentials() {
    let mut passing = 0;
    for preset in presets_signed_here() {
        let configured = configured(preset, "forward = { url = \"http://127.0.0.1:9/\" }");
        let source = &configured.source;
        let passed = &source.routes[0].forwarded_headers;
        let secret = source.verify.signature_headers();
        assert!(passed.iter().all(|name| !secret.contains(name)), "{}: {passed:?}", preset.name);
        // `idempotency-key` is set anew for every receiver.
        let names = |place: &FieldLocation| match place {
            FieldLocation::Header(name) if name != "idempotency-key" && !secret.contains(name) => Some(name.clone()),
            _ => None,
        };
        let id = source.delivery.as_ref().and_then(|id| names(&id.at));
        let fields = source.fields.iter().flat_map(Field::places).filter_map(names);
        // There it names the caller.
        let fields = fields.filter(|_| preset.name != "ci-ingestion");
        for name in id.into_iter().chain(fields) {
            assert!(passed.contains(&name), "{} does not pass {name} on: {passed:?}", preset.name);
        }
        passing += usize::from(!passed.is_empty());
    }
    assert!(passing > 30, "only {passing} presets pass headers on");
}

#[test]
fn of_the_images_that_wait_only_the_newest_is_kept() {
    for name in ["github-package", "acr", "artifactory", "distribution", "docker-hub", "ecr", "harbor", "quay"] {
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
    let example = presets::find("docker-hub").expect("a preset").example();
    assert!(example.contains("path = { env = \"DOCKER_HUB_PATH\" }   # the only secret"), "{example}");
    let preset = configured(presets::find("docker-hub").expect("a preset"), "");
    assert!(preset.source.path.is_secret());
    for guessable in ["/", "/in/g", "/in/images", "/in/images/0123456789abcd", "/in/images-hook"] {
        let text = format!("[source.images]\npreset = \"docker-hub\"\npath = \"{guessable}\"\n");
        let error = config_with(&text, "").unwrap_err();
        assert!(error.contains("it could be guessed: 16 characters are needed, after /in/images"), "{error}");
        let verified =
            format!("{text}verify = {{ scheme = \"token\", at = \"query.token\", secret = {{ env = \"S\" }} }}\n");
        config_with(&verified, "a secret that is long enough").expect("its path need not be a secret");
    }
    let open = config_with("[source.images]\npreset = \"docker-hub\"\npath = \"/in/a-long-random-word\"\n", "");
    assert_eq!(open.expect("a text is allowed").sources[0].path.shown(), "/in/a-long-random-word");
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
        ("harbor", "/event_data/resources/0/tag", json!("sha256:00")),
        ("harbor-cloudevents", "/data/resources/0/tag", json!("sha256:00")),
        ("artifact-registry", "/message/data", json!("eyJhY3Rpb24iOiJERUxFVEUiLCJ0YWciOiJhcHA6bGF0ZXN0In0=")),
        ("acr", "/action", json!("ping")),
        ("acr", "/target/tag", Value::Null),
        ("ecr", "/detail/action-type", json!("DELETE")),
        ("ecr", "/detail/result", json!("FAILURE")),
        ("ecr", "/detail/image-tag", Value::Null),
        ("distribution", "/events/0/action", json!("pull")),
        ("distribution", "/events/0/target/tag", Value::Null),
        ("distribution", "/events", json!([])),
        ("line", "/events", json!([])),
        ("artifactory", "/domain", json!("artifact")),
        ("artifactory", "/event_type", json!("deleted")),
    ] {
        let verdict = sent(name, at, value);
        assert!(matches!(verdict, Verdict::Ignored(_)), "{name} {at}: {verdict:?}");
    }
}

/// Harbor sends other kinds of events without any resource to the same place.
#[test]
fn each_resource_of_harbor_is_an_event_and_a_message_without_one_is_ignored() {
    for (name, list, kind) in [("harbor", "/event_data", "/type"), ("harbor-cloudevents", "/data", "/type")] {
        let preset = configured(presets::find(name).expect(name), "");
        let sample = preset.sample("id-1", now());
        let body: Value = serde_json::from_slice(&sample.body).expect("JSON");
        let judge =
            |body: &Value| SentDelivery { body: body.to_string().into_bytes(), ..sample.clone() }.judge(&preset.source);
        let mut two = body.clone();
        let resources = two.pointer_mut(list).and_then(|data| data["resources"].as_array_mut()).expect("resources");
        let mut other = resources[0].clone();
        other["tag"] = json!("v2");
        resources.push(other);
        let Verdict::Events(events) = judge(&two) else { panic!("{name}: {:?}", judge(&two)) };
        let keys = |new: &NewEvent| new.keys.iter().map(|identity| identity.key).collect::<Vec<_>>();
        assert!(events.len() == 2 && keys(&events[0]) != keys(&events[1]), "{name}");
        // The first alone is the same event.
        let Verdict::Events(alone) = judge(&body) else { panic!("{name}") };
        assert_eq!(keys(&alone[0]), keys(&events[0]), "{name}");
        let mut without = body.clone();
        without.pointer_mut(list).and_then(Value::as_object_mut).expect("data").remove("resources");
        assert!(
            matches!(judge(&without), Verdict::Refused(DeliveryRejection::Malformed(_))),
            "{name}: a push has some"
        );
        *without.pointer_mut(kind).expect("a kind") = json!("REPLICATION");
        assert!(matches!(judge(&without), Verdict::Ignored(_)), "{name}: {:?}", judge(&without));
    }
}

/// A `change` that a user adds can take it.
#[test]
fn the_order_of_each_preset_is_a_field_that_is_signed_or_none() {
    let mut ordered = 0;
    for preset in presets_signed_here() {
        assert!(preset.text.contains("\norder "), "{} does not say what orders its deliveries", preset.name);
        let (source, sender) = (configured(preset, "").source, preset.sender());
        let own = source.once.change.as_ref().and_then(|change| change.order);
        let own = own.map(|ix| source.fields.get(ix).name.to_string());
        assert!(own.is_none() || own == sender.order, "{}: {own:?}, {:?}", preset.name, sender.order);
        let Some(order) = sender.order else { continue };
        let ix = source.fields.ix(&order).unwrap_or_else(|| panic!("{} has no field {order}", preset.name));
        for place in source.fields.get(ix).places() {
            assert!(source.verify.covers(place), "{}: {place} is not signed", preset.name);
        }
        ordered += 1;
    }
    assert!(ordered > 50, "only {ordered}");
}

/// What a sender sends when the webhook is set up runs nothing, and is not refused.
#[test]
fn a_test_of_the_sender_is_ignored() {
    for (name, at, value) in [
        ("terraform", "/notifications/0/trigger", json!("verification")),
        ("pagerduty", "/event/event_type", json!("pagey.ping")),
        ("bitbucket-dc", "/eventKey", Value::Null),
        ("tailscale", "/0/type", json!("test")),
        ("figma", "/event_type", json!("PING")),
        ("intercom", "/topic", json!("ping")),
        ("twitch", "/subscription/status", json!("authorization_revoked")),
        ("slack", "/type", json!("app_rate_limited")),
    ] {
        let verdict = sent(name, at, value);
        assert!(matches!(verdict, Verdict::Ignored(_)), "{name} {at}: {verdict:?}");
    }
    let github = configured(presets::find("github").expect("a preset"), "");
    let body = json!({ "zen": "Keep it logically awesome.", "hook_id": 7, "hook": { "id": 7 } }).to_string();
    let ping = SentDelivery { body: body.into_bytes(), ..github.sample("id-1", now()) };
    let ping = github.sign(&ping, "id-1").with_header("x-github-event", "ping").judge(&github.source);
    assert!(matches!(ping, Verdict::Ignored(_)), "{ping:?}");
}

/// Bodies in which a sender leaves out what other bodies have.
#[test]
fn a_body_without_some_of_its_values_is_accepted() {
    for (name, at, value) in [
        ("terraform", "/run_id", Value::Null),
        ("gitlab", "/ref", Value::Null),
        ("alertmanager", "/alerts", json!([])),
        ("sentry", "/data", json!({})),
        ("pagerduty", "/event/data", json!({ "message": "Hello", "type": "note" })),
    ] {
        let verdict = sent(name, at, value);
        assert!(matches!(verdict, Verdict::Events(_)), "{name} {at}: {verdict:?}");
    }
}

/// `check` warns about a short `keep` only where this is known; otherwise the user must know that it is not.
#[test]
fn each_preset_says_how_long_its_sender_sends_again_or_that_this_is_not_known() {
    for preset in PRESETS {
        let sender = preset.sender();
        // Their clients are programs, which do as they like.
        let is_client = ["sports-stack", "ci-ingestion", "idempotency-key", "github-actions", "gitlab-ci"];
        let known = sender.retries.is_some() || sender.by_hand || is_client.contains(&preset.name);
        // A person who waits for the answer sends again.
        let awaited = ["slack-command", "discord"].contains(&preset.name);
        let said = sender.unchecked.iter().any(|what| what.contains("again") || what.contains("retry"));
        assert!(known || awaited || said, "{}: {:?}", preset.name, sender.unchecked);
    }
}

/// Where the time is signed, a late repeat is refused if it has the time of the first attempt.
#[test]
fn each_preset_says_whether_the_signed_time_of_a_late_repeat_is_new() {
    // Their documents say that each attempt is signed at its own time.
    let known = ["stripe", "slack", "standard-webhooks"];
    for preset in presets_signed_here() {
        let (sender, verify) = (preset.sender(), &configured(preset, "").source.verify);
        let (Some(retries), Some(tolerance)) = (sender.retries, verify.tolerance()) else { continue };
        let said = sender.unchecked.iter().any(|what| what.contains("time"));
        let known = known.contains(&preset.name) || preset.text.contains("scheme = \"standard-webhooks\"");
        assert!(retries <= tolerance || known || said, "{}: {:?}", preset.name, sender.unchecked);
    }
}

#[test]
fn the_image_of_artifact_registry_is_read_from_its_message() {
    let preset = configured(presets::find("artifact-registry").expect("a preset"), "");
    let event = preset.sample("id-1", now()).event(&preset.source).event;
    let tag = event.fields.iter().find(|(name, _)| *name == "tag").map(|(_, value)| value);
    let expected = FieldValue::Text("europe-docker.pkg.dev/sample/images/app:latest".into());
    assert_eq!(tag, Some(&expected));
    for broken in [json!("not base64!"), json!("bm8ganNvbg=="), json!(7)] {
        let verdict = sent("artifact-registry", "/message/data", broken);
        assert!(matches!(verdict, Verdict::Refused(DeliveryRejection::Malformed(_))), "{verdict:?}");
    }
}
