//! One push of an image is many deliveries: which of them are wanted, and why the others are not.

use crate::sources::{Request, github_package, now, payload, storm};
use hookonce::decide::claim::{ClaimResult, MatchedBy};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::event::EventState;
use hookonce::decide::field::FieldValue;
use hookonce::decide::id::EventId;
use hookonce::decide::judge::Verdict;
use hookonce::store::Store;
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use std::task::{Context, Poll, Waker};

fn words(request: &Request) -> String {
    match request.judged(&github_package()) {
        Verdict::Refused(refusal) => format!("refused: {refusal:?}"),
        Verdict::Ignored(why) => format!("ignored: {why}"),
        Verdict::Events(events) => format!("{} event", events.len()),
    }
}

#[test]
fn of_a_push_with_three_tags_only_latest_is_wanted_and_the_others_are_ignored_with_a_reason() {
    let said: Vec<_> = storm("storm_tags.jsonl").iter().map(words).collect();
    let expected = [
        r#"ignored: tag was "", wanted tag == "latest""#,
        r#"ignored: tag was "", wanted tag == "latest""#,
        r#"ignored: tag was "sha-a911955", wanted tag == "latest""#,
        r#"ignored: tag was "main", wanted tag == "latest""#,
        "1 event",
    ];
    assert_eq!(said, expected);
}

#[test]
fn three_deliveries_of_latest_share_their_change_and_nothing_else() {
    let events: Vec<_> = storm("storm_latest.jsonl")[2..].iter().map(|one| one.event(&github_package())).collect();
    let changes: Vec<_> = events.iter().map(|new| new.event.change.expect("a change")).collect();
    assert!(changes.iter().all(|one| (one.subject, one.value) == (changes[0].subject, changes[0].value)));
    let orders: Vec<_> = changes.iter().map(|one| one.order.expect("an order")).collect();
    assert!(orders.is_sorted() && orders[0] < orders[2]);
    let mut keys: Vec<_> = events.iter().flat_map(|new| &new.keys).map(|one| one.key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "neither the delivery id nor the body's digest shows the repeat");
}

#[test]
fn a_burst_of_deliveries_is_one_event_in_the_store() {
    let store = MemoryStore::new(StoreClock::manual(now()));
    let latest: Vec<_> = storm("storm_latest.jsonl")[2..].to_vec();
    let mut said = Vec::new();
    for (n, request) in (1..).zip(latest.iter().chain(&latest)) {
        let mut new = request.event(&github_package());
        new.event.id = EventId([n; 16]);
        let mut answer = store.claim(vec![new.into()]);
        let Poll::Ready(Ok(mut claims)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("a memory store responds at once");
        };
        said.push(match claims.remove(0) {
            ClaimResult::New { .. } => "new".to_owned(),
            ClaimResult::Duplicate { event, same, .. } => format!("{} of {}", same.word(), event.id.0[0]),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(said, ["new", "change of 1", "change of 1", "delivery of 1", "delivery of 1", "delivery of 1"]);
}

#[test]
fn an_event_keeps_the_fields_for_its_command() {
    let new = Request::from_github("registry_package", "d1", &payload("ghcr_latest.json")).event(&github_package());
    let text = |name: &str| match new.event.fields.get(name) {
        Some(FieldValue::Text(text) | FieldValue::Number(text)) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!((text("package"), text("tag")), ("jamiec_ts".into(), "latest".into()));
    assert!(text("version_id").bytes().all(|byte| byte.is_ascii_digit()));
    assert!(text("sha").starts_with("sha256:"));
    assert_eq!((&*new.event.source, &*new.event.route), ("ghcr", "jamiec_ts"));
    assert_eq!(new.event.delivery_id.as_deref(), Some("d1"));
    assert_eq!(new.event.state, EventState::Waiting { due: Some(now()) });
    assert_eq!(new.event.digest, new.event.immutable_digest());
    assert_eq!(new.keys.iter().map(|one| one.matched_by.clone()).collect::<Vec<_>>(), [MatchedBy::Body]);
}

#[test]
fn a_ping_and_any_other_kind_are_ignored_by_name() {
    let ping = r#"{"zen":"Keep it logically awesome.","hook_id":1}"#;
    for kind in ["ping", "push", "package"] {
        let why = Request::from_github(kind, "d1", ping).ignored(&github_package());
        assert_eq!(why, format!(r#"x-github-event was "{kind}", wanted "registry_package""#));
    }
}

#[test]
fn a_captured_body_of_another_kind_under_a_forged_header_is_refused() {
    for body in
        [r#"{"action":"opened","issue":{}}"#, r#"{"registry_package":"latest"}"#, r#"{"registry_package":null}"#]
    {
        let refusal = Request::from_github("registry_package", "d1", body).refusal(&github_package());
        assert_eq!(refusal.reason(), "kind_mismatch", "{body}");
    }
}

#[test]
fn another_package_has_no_route_and_is_ignored_with_a_reason() {
    let body = payload("ghcr_latest.json").replace(r#""name": "jamiec_ts""#, r#""name": "other""#);
    let why = Request::from_github("registry_package", "d1", &body).ignored(&github_package());
    assert_eq!(why, r#"no route: jamiec_ts: package was "other", wanted package == "jamiec_ts""#);
}

#[test]
fn nothing_is_read_before_it_is_verified() {
    let good = storm("storm_latest.jsonl").remove(2);
    let mut bytes = good.body.to_vec();
    bytes.push(b' ');
    let longer = Request { body: bytes.into(), ..good.clone() };
    let unsigned = Request { headers: good.headers[..1].to_vec(), ..good.clone() };
    let broken = Request::from_github("ping", "d1", "{").with("x-hub-signature-256", "sha256=00");
    for request in [longer, unsigned, broken] {
        assert_eq!(request.refusal(&github_package()), DeliveryRejection::BadSignature);
    }
}

#[test]
fn a_missing_field_is_reported_only_after_the_filter_has_passed() {
    let whole = payload("ghcr_latest.json");
    let without = whole.replacen(r#""updated_at""#, r#""updated_when""#, usize::MAX);
    let refusal = Request::from_github("registry_package", "d1", &without).refusal(&github_package());
    assert_eq!(refusal, DeliveryRejection::MissingField("updated_at".into()));
    let main = without.replace(r#""name": "latest""#, r#""name": "main""#);
    let why = Request::from_github("registry_package", "d1", &main).ignored(&github_package());
    assert_eq!(why, r#"tag was "main", wanted tag == "latest""#);
}
