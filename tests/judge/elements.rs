//! Deliveries with several events in them: one event for each element of an array.

use crate::sources::{Request, source};
use hookonce::decide::claim::{MatchedBy, NewEvent, claim_chains};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::field::{Field, FieldIndex, FieldLocation, FieldSet, FieldValue};
use hookonce::decide::filter::Filter;
use hookonce::decide::response;
use hookonce::decide::source::{
    ChangeRule, DeliveryIdLocation, Fanout, Group, Identity, RequiredEventKind, Route, Source, WantedKind,
};
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use proptest::prelude::*;
use std::sync::Arc;

fn field(name: &str, at: &str) -> Field {
    let at = FieldLocation::parse_in_element(at).expect(at);
    Field::at(name, at)
}

fn path(text: &str) -> Vec<String> {
    match FieldLocation::parse_in_element(text) {
        Ok(FieldLocation::Body(path)) => path,
        other => panic!("{text}: {other:?}"),
    }
}

/// A source with these fields whose events are the elements of an array, once per element's bytes.
fn each(at: &str, fields: Vec<Field>) -> Source {
    Source { fields: FieldSet::of_elements(fields, None, path(at)), ..source(Vec::new()) }
}

/// The same, once per `id`, with the subject `of` and its value `to`.
fn pushes() -> Source {
    let fields = vec![
        field("id", "body.id"),
        field("of", "body.of"),
        field("to", "body.to"),
        field("account", "outer.account.id"),
        field("who", "header.x-who"),
    ];
    let mut source = each("body.events", fields);
    source.delivery = Some(DeliveryIdLocation { at: FieldLocation::Body(vec!["id".into()]), signed: true });
    source.once.per = vec![Identity::Delivery];
    source
}

fn push(id: &str, of: &str, to: &str) -> String {
    format!(r#"{{"id":"{id}","of":"{of}","to":"{to}"}}"#)
}

fn envelope(elements: &[String]) -> Request {
    Request::json(&format!(r#"{{"account":{{"id":7}},"events":[{}]}}"#, elements.join(","))).with("x-who", "ann")
}

fn text<'e>(new: &'e NewEvent, name: &str) -> Option<&'e str> {
    match new.event.fields.get(name)? {
        FieldValue::Text(text) | FieldValue::Number(text) => Some(text),
        FieldValue::Bool(_) => None,
    }
}

fn in_element(place: &str, rejection: DeliveryRejection) -> DeliveryRejection {
    DeliveryRejection::InElement { place: place.into(), rejection: Box::new(rejection) }
}

#[test]
fn each_element_is_an_event_with_its_own_bytes_and_what_is_around_it() {
    let first = "{ \"id\" : \"a\",\n\t\"of\":\"x\", \"to\": \"\\u0031\" }";
    let request = envelope(&[first.to_owned(), push("b", "y", "2")]);
    let events = request.events(&pushes());
    let bodies: Vec<_> = events.iter().map(|new| &new.payload.body[..]).collect();
    assert_eq!(bodies, [first.as_bytes(), push("b", "y", "2").as_bytes()]);
    let ids: Vec<_> = events.iter().map(|new| new.event.delivery_id.as_deref()).collect();
    assert_eq!(ids, [Some("a"), Some("b")]);
    for new in &events {
        assert_eq!((text(new, "account"), text(new, "who")), (Some("7"), Some("ann")));
        assert_eq!(new.payload.header("content-type"), Some("application/json"));
    }
    assert_eq!(text(&events[0], "to"), Some("1"));
    assert_ne!(events[0].event.body_digest, events[1].event.body_digest);
}

#[test]
fn an_element_is_a_part_of_the_received_bytes_and_no_copy() {
    let request = envelope(&[push("a", "x", "1"), push("b", "x", "2")]);
    let all = request.body.as_ptr_range();
    for new in request.events(&pushes()) {
        let own = new.payload.body.as_ptr_range();
        assert!(all.start <= own.start && own.end <= all.end);
        let copy = new.payload.detached();
        assert_eq!(copy, new.payload);
        assert!(!all.contains(&copy.body.as_ptr()));
    }
}

#[test]
fn the_body_may_be_the_array_and_an_element_may_be_a_single_value() {
    let mut source = each("body", vec![field("tag", "body")]);
    source.once.per = vec![Identity::Named(vec![FieldIndex(0)])];
    let events = Request::json(r#" [ "latest" , "v1" ] "#).events(&source);
    let bodies: Vec<_> = events.iter().map(|new| &new.payload.body[..]).collect();
    assert_eq!(bodies, [&b"\"latest\""[..], b"\"v1\""]);
    assert_eq!(events.iter().map(|new| text(new, "tag")).collect::<Vec<_>>(), [Some("latest"), Some("v1")]);
    let refusal = Request::json(r#"["latest",{"tag":1}]"#).refusal(&source);
    assert_eq!(refusal, in_element("body.1", DeliveryRejection::MissingField("tag".into())));
}

#[test]
fn one_bad_element_refuses_the_whole_delivery_with_its_place() {
    let good = push("a", "x", "1");
    let refused = |bad: &str| envelope(&[good.clone(), good.clone(), bad.to_owned()]).refusal(&pushes());
    let at = "body.events.2";
    assert_eq!(refused("{}"), in_element(at, DeliveryRejection::MissingField("delivery".into())));
    assert_eq!(refused(r#"{"id":"\u0000"}"#).reason(), "malformed");
    for single in ["1", "null", "\"x\"", "true"] {
        let refusal = refused(single);
        assert_eq!((refusal.reason(), refusal.element()), ("malformed", Some(at)), "{single}");
    }
    let twice = refused(r#"{"id":"b","id":"c"}"#);
    assert_eq!(twice.element(), Some(at));
    assert!(twice.detail().is_some_and(|(_, detail)| detail.contains("occurs twice")), "{twice:?}");
    let long = refused(&push(&"i".repeat(300), "x", "1"));
    assert_eq!(long, in_element(at, DeliveryRejection::FieldTooLong("delivery".into())));
    let answer = response::refused(&refused("{}"));
    let body = r#"{"status":"refused","reason":"missing_field","field":"delivery","element":"body.events.2"}"#;
    assert_eq!((answer.status, std::str::from_utf8(&answer.body)), (422, Ok(body)));
    // What is nested too deep, or is not JSON at all, is so for the whole delivery.
    for bad in ["[".repeat(200), "{\"id\":}".to_owned(), "\u{1}".to_owned()] {
        let refusal = envelope(&[good.clone(), bad]).refusal(&pushes());
        assert_eq!((refusal.reason(), refusal.element()), ("malformed", None));
    }
}

#[test]
fn what_is_not_an_array_is_refused_and_an_empty_one_is_ignored() {
    for bad in [r#"{"events":{}}"#, r#"{"events":null}"#, r#"{"events":"x"}"#, r#"{"events":1}"#, "{}", "[]", "5"] {
        let refusal = Request::json(bad).refusal(&pushes());
        assert_eq!(refusal, DeliveryRejection::Malformed("body.events is not an array".into()), "{bad}");
    }
    let twice = Request::json(r#"{"events":[],"events":[]}"#).refusal(&pushes());
    assert_eq!(twice.reason(), "malformed");
    assert_eq!(envelope(&[]).ignored(&pushes()), "it has no elements");
    assert_eq!(Request::json("[]").ignored(&each("body", Vec::new())), "it has no elements");
}

/// A registry sends other kinds of messages to the same place, which have no list of images.
#[test]
fn a_message_without_elements_is_ignored_only_if_no_element_could_make_it_wanted() {
    let with = |when: &str| {
        let mut source = each("body.events", vec![field("kind", "outer.kind"), field("tag", "body.tag")]);
        source.when = Some(Filter::parse(when, &source.fields).expect(when));
        source
    };
    let of_kind = with("kind == \"push\" && exists(tag)");
    let why = Request::json(r#"{"kind":"replicated"}"#).ignored(&of_kind);
    assert_eq!(why, "it has no elements, and kind == \"push\" && exists(tag) is not true of it");
    assert!(Request::json("{}").ignored(&of_kind).starts_with("it has no elements"));
    let refused = DeliveryRejection::Malformed("body.events is not an array".into());
    for (source, body) in [
        (&of_kind, r#"{"kind":"push"}"#),
        // What is there is no list, or is not JSON that can be read.
        (&of_kind, r#"{"kind":"replicated","events":null}"#),
        (&of_kind, r#"{"kind":"replicated","events":{}}"#),
        // An element would decide.
        (&with("exists(tag)"), r#"{"kind":"replicated"}"#),
        (&with("kind == \"push\" || exists(tag)"), r#"{"kind":"replicated"}"#),
    ] {
        assert_eq!(Request::json(body).refusal(source), refused, "{body}");
    }
    let mut strict = with("kind == \"push\"");
    strict.require = Some(Filter::parse("kind != \"\"", &strict.fields).expect("a filter"));
    assert_eq!(Request::json(r#"{"kind":"replicated"}"#).refusal(&strict), refused);
}

#[test]
fn a_thousand_elements_are_events_and_one_more_is_too_many() {
    let elements = |count: usize| (0..count).map(|i| push(&i.to_string(), "x", "1")).collect::<Vec<_>>();
    assert_eq!(envelope(&elements(1_000)).events(&pushes()).len(), 1_000);
    let refusal = envelope(&elements(1_001)).refusal(&pushes());
    assert_eq!((&refusal, response::refused(&refusal).status), (&DeliveryRejection::TooManyElements, 413));
}

#[test]
fn elements_that_are_not_wanted_are_left_out_and_one_that_is_forbidden_refuses_all() {
    let mut source = pushes();
    source.when = Some(Filter::parse("to == \"1\"", &source.fields).expect("a filter"));
    let events = envelope(&[push("a", "x", "1"), push("b", "x", "2"), push("c", "y", "1")]).events(&source);
    let ids: Vec<_> = events.iter().filter_map(|new| new.event.delivery_id.as_deref()).collect();
    assert_eq!(ids, ["a", "c"]);
    let why = envelope(&[push("a", "x", "2"), push("b", "x", "3")]).ignored(&source);
    assert_eq!(why, "none of its 2 elements is wanted; body.events.0: to was \"2\", wanted to == \"1\"");
    source.require = source.when.take();
    let refusal = envelope(&[push("a", "x", "1"), push("b", "x", "2")]).refusal(&source);
    assert_eq!(refusal, in_element("body.events.1", DeliveryRejection::Forbidden));
}

#[test]
fn elements_may_take_different_routes_and_have_several_receivers() {
    let mut source = pushes();
    let when = |text| Some(Filter::parse(text, &source.fields).expect("a filter"));
    let route = |name: &str, when, fanout| Arc::new(Route { name: name.into(), when, fanout, ..Route::default() });
    source.routes = vec![route("x", when("of == \"x\""), Fanout::Actions(2)), route("rest", None, Fanout::Record)];
    let events = envelope(&[push("a", "x", "1"), push("b", "y", "1")]).events(&source);
    let made: Vec<_> = events.iter().map(|new| (&*new.event.route, new.event.part)).collect();
    assert_eq!(made, [("x", 0), ("x", 1), ("rest", 0)]);
}

#[test]
fn equal_elements_are_one_event_and_so_are_elements_of_other_envelopes() {
    let source = each("body.events", Vec::new());
    let key = |new: &NewEvent| match new.keys.as_slice() {
        [one] if one.matched_by == MatchedBy::Body => one.key,
        other => panic!("{other:?}"),
    };
    let one = Request::json(r#"{"n":1,"events":[{"a":1},{"a":2},{"a":1}]}"#).events(&source);
    let other = Request::json(r#"{"n":2,"events":[{"a":2}]}"#).events(&source);
    assert_eq!(key(&one[0]), key(&one[2]));
    assert_eq!(key(&one[1]), key(&other[0]));
    assert_ne!(key(&one[0]), key(&one[1]));
    // The same bytes as a whole body are another thing only in what they are part of.
    let whole = Request::json(r#"{"a":2}"#).event(&crate::sources::source(Vec::new()));
    assert_eq!(key(&whole), key(&other[0]));
}

/// The indices of the events in each chain.
fn chains(events: Vec<NewEvent>) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<_>> =
        claim_chains(events).iter().map(|chain| chain.iter().map(|(index, _)| *index).collect()).collect();
    chains.sort();
    chains
}

#[test]
fn elements_that_share_a_key_a_register_or_a_group_are_claimed_in_their_order() {
    let elements =
        [push("a", "x", "1"), push("b", "y", "1"), push("c", "x", "2"), push("b", "z", "9"), push("d", "w", "1")];
    assert_eq!(chains(envelope(&elements).events(&pushes())), [vec![0], vec![1, 3], vec![2], vec![4]]);
    let mut registers = pushes();
    registers.once.change = Some(ChangeRule { of: vec![FieldIndex(1)], to: vec![FieldIndex(2)], order: None });
    assert_eq!(chains(envelope(&elements).events(&registers)), [vec![0, 2], vec![1, 3], vec![4]]);
    // The fourth has the id of one and the subject of others: all of them are one chain.
    let joining =
        [push("a", "x", "1"), push("b", "y", "1"), push("c", "z", "1"), push("b", "x", "2"), push("c", "y", "2")];
    assert_eq!(chains(envelope(&joining).events(&registers)), [vec![0, 1, 2, 3, 4]]);
    let mut grouped = pushes();
    let group = Some(Group::Fixed("one".into()));
    grouped.routes = vec![Arc::new(Route { group, fanout: Fanout::Actions(1), ..Route::default() })];
    assert_eq!(chains(envelope(&elements).events(&grouped)), [vec![0, 1, 2, 3, 4]]);
}

#[test]
fn a_token_must_be_in_every_element() {
    let secrets = SourceSecrets::new(vec![b"the token".to_vec()]);
    let at = FieldLocation::Body(vec!["state".into()]);
    let source = Source {
        verify: VerificationScheme::token_in_elements(secrets, at, path("body.value")),
        ..each("body.value", Vec::new())
    };
    let with = |states: &[&str]| {
        let elements: Vec<_> = states.iter().map(|state| format!(r#"{{"state":{state}}}"#)).collect();
        Request::json(&format!(r#"{{"state":"the token","value":[{}]}}"#, elements.join(",")))
    };
    assert_eq!(with(&["\"the token\"", "\"the token\""]).events(&source).len(), 2);
    for bad in [
        &["\"the token\"", "\"another\""][..],
        &["\"another\"", "\"the token\""],
        &["\"the token\"", "null"],
        &["\"the token\"", "[\"the token\"]"],
        &["\"\""],
        &[],
    ] {
        assert_eq!(with(bad).refusal(&source), DeliveryRejection::BadSignature, "{bad:?}");
    }
    assert_eq!(Request::json("{}").refusal(&source), DeliveryRejection::BadSignature);
}

#[test]
fn the_kind_of_event_is_that_of_the_delivery() {
    let mut source = pushes();
    let fields = source.fields.iter().cloned().collect();
    let shape = vec!["account".to_owned()];
    source.fields = FieldSet::of_elements(fields, Some(shape.clone()), path("body.events"));
    source.kind =
        Some(RequiredEventKind { header: "x-kind".into(), any_of: vec![WantedKind { is: "pushes".into(), shape }] });
    let request = envelope(&[push("a", "x", "1")]).with("x-kind", "pushes");
    assert_eq!(request.events(&source).len(), 1);
    assert_eq!(request.with("x-kind", "pulls").ignored(&source), "x-kind was \"pulls\", wanted \"pushes\"");
    let without = Request::json(&format!(r#"{{"events":[{}]}}"#, push("a", "x", "1"))).with("x-kind", "pushes");
    assert_eq!(without.refusal(&source).reason(), "kind_mismatch");
}

#[test]
fn the_response_counts_what_is_new_and_what_was_known() {
    let id = |n| hookonce::decide::id::EventId([n; 16]);
    let repeat = || response::imported();
    let answer = response::combine_elements(vec![response::accepted(id(1)), repeat(), repeat()], &[id(1)]);
    let json: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((answer.status, &json["new"], &json["duplicate"]), (202, &1.into(), &2.into()));
    let answer = response::combine_elements(vec![repeat(), response::stale(id(2))], &[id(2)]);
    let json: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(
        (answer.status, &json["new"], &json["duplicate"], &json["stale"]),
        (200, &0.into(), &1.into(), &1.into())
    );
    let answer = response::combine_elements(vec![response::accepted(id(1)), response::unavailable()], &[id(1)]);
    assert_eq!(answer.status, 503);
}

fn json(depth: u32) -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        any::<i32>().prop_map(|n| n.to_string()),
        "[a-z\\]\\[{},: ]{0,6}".prop_map(|text| serde_json::Value::from(text).to_string()),
    ];
    scalar.prop_recursive(depth, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[ {} ]", all.join(" ,\n"))),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|all| {
                let all: Vec<_> = all.iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
                format!("{{{}}}", all.join(", "))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(crate::seed::cases(256))]

    #[test]
    fn any_elements_are_found_as_they_were_written(
        elements in prop::collection::vec(json(3), 1..6),
        space in "[ \n\t]{0,3}",
        before in json(2),
    ) {
        let array = elements.iter().map(|one| format!("{space}{one}{space}")).collect::<Vec<_>>().join(",");
        let body = format!("{{\"before\":{before},\"events\":[{array}],\"after\":[1]}}");
        let events = Request::json(&body).events(&each("body.events", Vec::new()));
        let found: Vec<_> = events.iter().map(|new| String::from_utf8_lossy(&new.payload.body).into_owned()).collect();
        prop_assert_eq!(found, elements.clone());
        let root = Request::json(&format!("{space}[{array}]")).events(&each("body", Vec::new()));
        prop_assert_eq!(root.len(), elements.len());
    }
}
