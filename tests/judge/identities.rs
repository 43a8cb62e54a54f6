//! What makes two deliveries the same event, and what does not.

use crate::sources::{DAY, Request, field, github, id_in_header, now, source};
use hookonce::decide::claim::{IdentityKey, MatchedBy, NewEvent};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::event::{DoneReason, EventState};
use hookonce::decide::field::{Field, FieldIndex, FieldLocation, FieldValue};
use hookonce::decide::filter::Filter;
use hookonce::decide::id::Key;
use hookonce::decide::identity::key::{KeyPart, KeyPartType, key, value};
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::{ChangeRule, DeliveryIdLocation, Fanout, Group, Identity, Route, Source};
use hookonce::decide::time::Duration;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;

fn named(names: &[&str]) -> Source {
    let fields = names.iter().map(|name| field(name, &format!("body.{name}"))).collect();
    let mut source = source(fields);
    source.once.per = vec![Identity::Named((0..).map(FieldIndex).take(names.len()).collect())];
    source
}

fn keys(source: &Source, body: &str) -> Vec<Key> {
    Request::json(body).event(source).keys.into_iter().map(|one| one.key).collect()
}

fn ordered() -> Source {
    let mut source = source(vec![field("subject", "body.subject"), field("to", "body.to"), field("at", "body.at")]);
    let [of, to, order] = [0, 1, 2].map(FieldIndex);
    source.once.change = Some(ChangeRule { of: vec![of], to: vec![to], order: Some(order) });
    source
}

fn order(at: &str) -> Result<i64, DeliveryRejection> {
    let request = Request::json(&format!(r#"{{"subject":"s","to":"v","at":{at}}}"#));
    match request.judged(&ordered()) {
        Verdict::Events(events) => Ok(events[0].event.change.and_then(|c| c.order).expect("an order")),
        Verdict::Refused(refusal) => Err(refusal),
        Verdict::Ignored(why) => panic!("ignored: {why}"),
    }
}

#[test]
fn an_order_is_an_integer_or_a_time_and_not_more_than_a_day_ahead() {
    assert_eq!(order("5"), Ok(5));
    assert_eq!(order(r#""-7""#), Ok(-7));
    assert_eq!(order(r#""2026-02-07T16:25:00Z""#), Ok(now().0));
    assert_eq!(order(r#""2026-02-07T17:25:00+01:00""#), Ok(now().0));
    assert_eq!(order(&format!(r#""{}""#, now() + DAY)), Ok((now() + DAY).0));
    let ahead = format!(r#""{}""#, now() + DAY + Duration::from_micros(1));
    for bad in
        [ahead.as_str(), r#""9999-01-01T00:00:00Z""#, r#""yesterday""#, "1.5", "1e3", "true", "99999999999999999999"]
    {
        assert_eq!(order(bad), Err(DeliveryRejection::BadOrder("at".into())), "{bad}");
    }
    for missing in ["null", r#""""#, r#"" ""#] {
        assert_eq!(order(missing), Err(DeliveryRejection::MissingField("at".into())), "{missing}");
    }
}

#[test]
fn ids_that_floating_point_confuses_are_two_keys() {
    let source = named(&["id"]);
    let around = ["9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994"];
    let made: HashSet<_> = around.iter().flat_map(|id| keys(&source, &format!(r#"{{"id":{id}}}"#))).collect();
    assert_eq!(made.len(), around.len());
}

#[test]
fn the_number_5_the_text_5_and_the_name_of_a_field_are_in_the_key() {
    let made = [
        keys(&named(&["a"]), r#"{"a":5}"#),
        keys(&named(&["a"]), r#"{"a":"5"}"#),
        keys(&named(&["a"]), r#"{"a":5.0}"#),
        keys(&named(&["b"]), r#"{"b":5}"#),
        keys(&Source { scope: "other".into(), ..named(&["a"]) }, r#"{"a":5}"#),
    ];
    assert_eq!(made.iter().flatten().collect::<HashSet<_>>().len(), made.len());
    let renamed = Source { name: "renamed".into(), ..named(&["a"]) };
    assert_eq!(keys(&renamed, r#"{"a":5}"#), made[0], "a source may be renamed while its scope stays");
}

#[test]
fn the_kind_of_an_identity_is_in_the_key() {
    let mut source = named(&["id"]);
    source.delivery = Some(id_in_header(true));
    source.once.per.push(Identity::Delivery);
    source.once.per.push(Identity::Body);
    let new = Request::json(r#"{"id":"x"}"#).with("x-id", "x").event(&source);
    let made: HashSet<_> = new.keys.iter().map(|one| one.key).collect();
    assert_eq!(made.len(), 3);
    let kinds: HashSet<_> = ["delivery", "body", "fields", "register", "group"]
        .map(|kind| key("s", kind, &[KeyPart::text("id", "x")]))
        .into_iter()
        .collect();
    assert_eq!(kinds.len(), 5);
    assert_eq!(new.keys[0].matched_by, MatchedBy::Fields("id".into()));
}

#[test]
fn an_identity_made_only_of_defaults_is_a_missing_field() {
    let default = |name: &str| Field { default: Some("none".into()), ..field(name, &format!("body.{name}")) };
    let mut source = source(vec![default("run"), default("repo")]);
    source.once.per = vec![Identity::Named(vec![FieldIndex(0), FieldIndex(1)])];
    assert_eq!(Request::json("{}").refusal(&source), DeliveryRejection::MissingField("run".into()));
    assert_eq!(Request::json(r#"{"repo":null}"#).refusal(&source), DeliveryRejection::MissingField("run".into()));
    let one = keys(&source, r#"{"repo":"a"}"#);
    assert_ne!(one, keys(&source, r#"{"repo":"b"}"#));
    assert_eq!(one, keys(&source, r#"{"repo":"a","run":"none"}"#), "a default counts as its text");
}

/// U+00A0, U+2003 and U+3000 are white space too.
const BLANKS: [&str; 7] =
    ["", " ", "\\t\\n", "\u{a0}\u{2003}", "\u{3000}", "\u{200b}\u{feff}", "\u{ad}\u{2060}\u{2800}\u{3164}"];

#[test]
fn a_blank_text_in_an_identity_a_change_an_order_or_an_id_is_a_missing_field() {
    for blank in BLANKS {
        let missing = |source: &Source, body: &str| match Request::json(body).refusal(source) {
            DeliveryRejection::MissingField(name) => name.to_string(),
            other => panic!("{blank:?}: {other:?}"),
        };
        assert_eq!(missing(&named(&["hash"]), &format!(r#"{{"hash":"{blank}"}}"#)), "hash");
        assert_eq!(missing(&named(&["repo", "run"]), &format!(r#"{{"repo":"a","run":"{blank}"}}"#)), "run");
        assert_eq!(missing(&ordered(), &format!(r#"{{"subject":"{blank}","to":"v","at":1}}"#)), "subject");
        assert_eq!(missing(&ordered(), &format!(r#"{{"subject":"s","to":"{blank}","at":1}}"#)), "to");
        assert_eq!(missing(&ordered(), &format!(r#"{{"subject":"s","to":"v","at":"{blank}"}}"#)), "at");
        let mut in_body = by_id(true);
        in_body.delivery =
            Some(DeliveryIdLocation { at: FieldLocation::parse("body.id").expect("a place"), signed: true });
        assert_eq!(missing(&in_body, &format!(r#"{{"id":"{blank}"}}"#)), "delivery");
    }
    assert_eq!(
        Request::json("{}").with("x-id", "  ").refusal(&by_id(true)),
        DeliveryRejection::MissingField("delivery".into())
    );
}

#[test]
fn the_default_replaces_a_blank_text_but_a_filter_still_sees_the_text() {
    let run = Field { default: Some("none".into()), ..field("run", "body.run") };
    let mut source = source(vec![field("repo", "body.repo"), run]);
    source.once.per = vec![Identity::Named(vec![FieldIndex(0), FieldIndex(1)])];
    source.when = Some(Filter::parse("run != \"none\"", &source.fields).expect("an expression"));
    let blank = Request::json(r#"{"repo":"a","run":" "}"#).event(&source);
    assert_eq!(blank.event.fields.get("run"), Some(&FieldValue::Text(" ".into())));
    source.when = None;
    assert_eq!(blank.keys, Request::json(r#"{"repo":"a"}"#).event(&source).keys);
    source.once.per = vec![Identity::Named(vec![FieldIndex(1)])];
    let refusal = Request::json(r#"{"repo":"a","run":" "}"#).refusal(&source);
    assert_eq!(
        refusal,
        DeliveryRejection::MissingField("run".into()),
        "a value that every delivery shares identifies nothing"
    );
}

#[test]
fn a_group_beside_a_change_reads_a_blank_text_as_its_subject_does() {
    let tag = Field { default: Some("latest".into()), ..field("tag", "body.tag") };
    let mut source = source(vec![field("repo", "body.repo"), tag]);
    source.once.change =
        Some(ChangeRule { of: vec![FieldIndex(0), FieldIndex(1)], to: vec![FieldIndex(0)], order: None });
    let group = Some(Group::Fields(vec![FieldIndex(0), FieldIndex(1)]));
    source.routes = vec![Arc::new(Route { group, fanout: Fanout::Actions(1), ..Route::default() })];
    let event = |body: &str| Request::json(body).event(&source).event;
    let (lacks, blank) = (event(r#"{"repo":"a"}"#), event(r#"{"repo":"a","tag":""}"#));
    assert_eq!((blank.change, blank.group), (lacks.change, lacks.group));
}

#[test]
fn every_field_that_is_needed_is_named_when_it_is_missing() {
    let missing = |source: &Source, body: &str| match Request::json(body).refusal(source) {
        DeliveryRejection::MissingField(name) => name.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(&named(&["a", "b"]), r#"{"a":1}"#), "b");
    assert_eq!(missing(&named(&["a", "b"]), r#"{"a":{},"b":1}"#), "a");
    assert_eq!(missing(&ordered(), r#"{"subject":"s","to":"v"}"#), "at");
    assert_eq!(missing(&ordered(), r#"{"to":"v","at":1}"#), "subject");
    assert_eq!(missing(&ordered(), r#"{"subject":"s","at":1}"#), "to");
    let with = |route: Route| Source { routes: vec![Arc::new(route)], ..source(vec![field("x", "body.x")]) };
    let grouped =
        Route { group: Some(Group::Fields(vec![FieldIndex(0)])), fanout: Fanout::Actions(1), ..Route::default() };
    assert_eq!(missing(&with(grouped), "{}"), "x");
    assert_eq!(missing(&with(Route { needs: vec![FieldIndex(0)], ..Route::default() }), "{}"), "x");
    assert_eq!(missing(&by_id(false), "{}"), "delivery");
}

fn by_id(signed: bool) -> Source {
    let mut source = source(Vec::new());
    source.delivery = Some(id_in_header(signed));
    source.once.per = vec![Identity::Delivery];
    source
}

fn id_key(source: &Source, id: &str, body: &str) -> IdentityKey {
    Request::json(body).with("x-id", id).event(source).keys.remove(0)
}

#[test]
fn an_unsigned_id_is_bound_to_its_body_and_a_signed_one_is_not() {
    let (unsigned, signed) = (by_id(false), by_id(true));
    assert_ne!(id_key(&unsigned, "d1", r#"{"a":1}"#), id_key(&unsigned, "d1", r#"{"a":2}"#));
    assert_eq!(id_key(&unsigned, "d1", r#"{"a":1}"#), id_key(&unsigned, "d1", r#"{"a":1}"#));
    assert_ne!(id_key(&unsigned, "d1", "{}"), id_key(&unsigned, "d2", "{}"));
    assert_eq!(id_key(&signed, "d1", r#"{"a":1}"#), id_key(&signed, "d1", r#"{"a":2}"#));
    assert_ne!(id_key(&signed, "d1", "{}"), id_key(&signed, "d2", "{}"));
    assert_ne!(id_key(&signed, "d1", "{}").key, id_key(&unsigned, "d1", "{}").key);
    assert_eq!(github().delivery_id().map(|id| id.signed), Some(false));
}

#[test]
fn an_id_that_is_too_long_is_refused() {
    let long = "d".repeat(257);
    let refusal = Request::json("{}").with("x-id", &long).refusal(&by_id(true));
    assert_eq!(refusal, DeliveryRejection::FieldTooLong("delivery".into()));
    assert_eq!(id_key(&by_id(true), &long[..256], "{}").matched_by, MatchedBy::Delivery);
}

#[test]
fn each_receiver_gets_an_event_and_the_first_keeps_the_key_it_would_have_alone() {
    let with = |count| {
        let mut source = ordered();
        let group = Some(Group::Fields(vec![FieldIndex(0)]));
        source.routes = vec![Arc::new(Route { fanout: Fanout::Actions(count), group, ..Route::default() })];
        source
    };
    let request = Request::json(r#"{"subject":"s","to":"v","at":1}"#);
    let alone = request.event(&with(1));
    let three = request.events(&with(3));
    assert_eq!(three.iter().map(|new| new.event.part).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(three[0].keys, alone.keys);
    assert_eq!((three[0].event.change, three[0].event.group), (alone.event.change, alone.event.group));
    let distinct = |of: &dyn Fn(&NewEvent) -> Key| three.iter().map(of).collect::<HashSet<_>>().len();
    assert_eq!(distinct(&|new| new.keys[0].key), 3);
    assert_eq!(distinct(&|new| new.event.change.expect("a change").subject), 3);
    assert_eq!(distinct(&|new| new.event.group.expect("a group")), 3);
    let ids: HashSet<_> = three.iter().map(|new| new.event.id).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_fixed_group_is_one_for_all_sources_and_a_group_of_fields_is_one_for_each_value() {
    let group = |source: Source, group: Group, body: &str| {
        let route = Route { group: Some(group), fanout: Fanout::Actions(1), ..Route::default() };
        Request::json(body).event(&Source { routes: vec![Arc::new(route)], ..source }).event.group.expect("a group")
    };
    let fixed = || Group::Fixed("backend".into());
    let fields = || Group::Fields(vec![FieldIndex(0)]);
    let other = || Source { scope: "other".into(), ..named(&["a"]) };
    assert_eq!(group(named(&["a"]), fixed(), r#"{"a":1}"#), group(other(), fixed(), r#"{"a":2}"#));
    assert_ne!(
        group(named(&["a"]), fixed(), r#"{"a":1}"#),
        group(named(&["a"]), Group::Fixed("b".into()), r#"{"a":1}"#)
    );
    assert_eq!(group(named(&["a"]), fields(), r#"{"a":1}"#), group(named(&["a"]), fields(), r#"{"a":1,"b":2}"#));
    assert_ne!(group(named(&["a"]), fields(), r#"{"a":1}"#), group(named(&["a"]), fields(), r#"{"a":2}"#));
    assert_ne!(group(named(&["a"]), fields(), r#"{"a":1}"#), group(other(), fields(), r#"{"a":1}"#));
}

#[test]
fn an_event_without_an_action_is_done_as_soon_as_it_is_claimed() {
    let mut source = source(Vec::new());
    source.routes = vec![Arc::new(Route::default())];
    let new = Request::json("{}").event(&source);
    assert_eq!(new.event.state, EventState::Done { how: DoneReason::Recorded, at: now() });
}

/// The parts of a key, owned.
type Parts = Vec<(String, KeyPartType, Vec<u8>)>;

fn made(parts: &Parts) -> (Key, [u8; 32]) {
    let parts: Vec<_> = parts.iter().map(|(name, kind, bytes)| KeyPart { name, kind: *kind, bytes }).collect();
    (key("scope", "fields", &parts), value(&parts).0)
}

fn parts() -> impl Strategy<Value = Parts> {
    let kind = prop_oneof![
        Just(KeyPartType::Text),
        Just(KeyPartType::Number),
        Just(KeyPartType::Bool),
        Just(KeyPartType::Bytes),
    ];
    let bytes = prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'a'), any::<u8>()], 0..4);
    prop::collection::vec(("[ab]{0,2}", kind, bytes), 0..4)
}

/// The same parts with one byte moved across the border between two neighbours, wherever that is possible.
fn shifted(parts: &Parts) -> Vec<Parts> {
    let mut all = Vec::new();
    for at in 1..parts.len() {
        let mut forward = parts.clone();
        if let Some(byte) = forward[at - 1].2.pop() {
            forward[at].2.insert(0, byte);
            all.push(forward);
        }
        let mut back = parts.clone();
        if !back[at].2.is_empty() {
            let byte = back[at].2.remove(0);
            back[at - 1].2.push(byte);
            all.push(back);
        }
    }
    for at in 0..parts.len() {
        let mut into_bytes = parts.clone();
        if let Some(letter) = into_bytes[at].0.pop() {
            into_bytes[at].2.insert(0, letter as u8);
            all.push(into_bytes);
        }
        let mut less = parts.clone();
        less.remove(at);
        all.push(less);
    }
    all
}

proptest! {
    #![proptest_config(crate::seed::cases(40_000))]

    #[test]
    fn a_byte_that_moves_between_two_parts_changes_the_key(parts in parts(), other in parts()) {
        for moved in shifted(&parts).into_iter().chain([other]) {
            if moved == parts {
                prop_assert_eq!(made(&moved), made(&parts));
            } else {
                prop_assert_ne!(made(&moved).0, made(&parts).0, "{:?} and {:?}", moved, &parts);
                prop_assert_ne!(made(&moved).1, made(&parts).1);
            }
        }
    }
}
