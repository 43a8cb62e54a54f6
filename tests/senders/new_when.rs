//! Senders whose equal deliveries are different events: what tells a repeat from a new one.

use super::event_kinds::claim;
use super::signed_samples::{ConfiguredPreset, SentDelivery, configured, now};
use hookonce::internals::config::presets;
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use serde_json::{Value, json};

fn preset(name: &str) -> ConfiguredPreset {
    configured(presets::find(name).expect(name), "")
}

/// A delivery with this body, under this id.
fn delivery(preset: &ConfiguredPreset, id: &str, body: &Value) -> SentDelivery {
    let sent = SentDelivery { body: body.to_string().into_bytes(), ..preset.sample(id, now()) };
    preset.sign(&sent, id)
}

/// What becomes of these deliveries, one after another.
fn claims(preset: &ConfiguredPreset, deliveries: &[SentDelivery]) -> Vec<String> {
    let store = MemoryStore::new(StoreClock::manual(now()));
    let each = (1..).zip(deliveries);
    each.map(|(number, delivery)| claim(&store, number, delivery.event(&preset.source))).collect()
}

#[test]
fn a_workflow_that_is_asked_for_twice_with_the_same_payload_runs_twice_and_its_redelivery_does_not() {
    let github = preset("github");
    let sender = json!({ "login": "octocat" });
    let dispatch = json!({ "action": "build", "branch": "main", "client_payload": {}, "sender": sender });
    let asked = |id: &str| delivery(&github, id, &dispatch).with_header("x-github-event", "repository_dispatch");
    let of = |id: &str| asked(id).with_header("x-github-delivery", id);
    assert_eq!(claims(&github, &[of("a"), of("b"), of("a")]), ["new", "new", "delivery of 1"]);
    let push = |id: &str| github.sample("x", now()).with_header("x-github-delivery", id);
    assert_eq!(claims(&github, &[push("a"), push("b")]), ["new", "body of 1"]);
    // A captured push does not become one by its header, which is not signed.
    let forged = push("c").with_header("x-github-event", "repository_dispatch");
    assert_eq!(claims(&github, &[push("a"), forged]), ["new", "body of 1"]);
}

#[test]
fn each_change_of_a_drive_acts_and_a_message_that_comes_again_does_not() {
    let graph = preset("graph");
    let sample: Value = serde_json::from_slice(&graph.sample("id", now()).body).expect("JSON");
    let drive = json!({ "value": [{
        "subscriptionId": "sub-1", "changeType": "updated", "resource": "me/drive/root",
        "clientState": sample["value"][0]["clientState"],
    }] });
    let [one, two] = ["a", "b"].map(|id| delivery(&graph, id, &drive));
    assert_eq!(claims(&graph, &[one, two]), ["new", "new"]);
    let [first, again] = ["a", "b"].map(|id| delivery(&graph, id, &sample));
    let [_, repeat] = &claims(&graph, &[first, again])[..] else { panic!("two claims") };
    assert!(repeat.ends_with(" of 1"), "{repeat}");
}

#[test]
fn a_folder_that_is_renamed_twice_acts_twice() {
    let clickup = preset("clickup");
    let renamed = json!({ "event": "folderUpdated", "folder_id": "790", "webhook_id": "wh-1" });
    let [one, two] = ["a", "b"].map(|id| delivery(&clickup, id, &renamed));
    assert_eq!(claims(&clickup, &[one, two]), ["new", "new"]);
    let task = || clickup.sample("a", now());
    assert_eq!(claims(&clickup, &[task(), task()]), ["new", "body of 1"]);
}
