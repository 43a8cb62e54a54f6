use super::*;
use crate::decide::delivery::Delivery;
use crate::decide::time::Timestamp;
use crate::decide::verify::VerificationScheme;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

/// A request without its body.
struct FieldTestRequest<'a> {
    path: &'a str,
    query: &'a str,
    headers: &'a [(&'a str, &'a [u8])],
}

const NOTHING: FieldTestRequest<'_> = FieldTestRequest { path: "/in/x", query: "", headers: &[] };

fn field(at: &str) -> Field {
    let at = FieldLocation::parse(at).expect("a place");
    Field::at("it", at)
}

fn read(
    fields: &[Field],
    shape: Option<&[&str]>,
    body: &[u8],
    around: &FieldTestRequest<'_>,
) -> Result<ExtractedFields, DeliveryRejection> {
    let body = Bytes::copy_from_slice(body);
    let delivery = Delivery {
        path: around.path,
        query: around.query,
        headers: around.headers,
        body: &body,
        at: Timestamp(0),
        wall: Timestamp(0),
    };
    let shape = shape.map(|path| path.iter().map(|&part| part.to_owned()).collect());
    FieldSet::new(fields.to_vec(), shape).read(&VerificationScheme::none().verify(&delivery).expect("no scheme"))
}

fn slot(field: &Field, body: &[u8], around: &FieldTestRequest<'_>) -> Result<ExtractedField, DeliveryRejection> {
    read(std::slice::from_ref(field), None, body, around).map(|found| found.slot(FieldIndex(0)).clone())
}

fn check(at: &str, body: &str, expected: &ExtractedField) {
    assert_eq!(slot(&field(at), body.as_bytes(), &NOTHING).as_ref(), Ok(expected), "{at} in {body}");
}

fn check_malformed(at: &str, body: &[u8], expected: &str) {
    match slot(&field(at), body, &NOTHING) {
        Err(DeliveryRejection::Malformed(what)) => assert!(what.contains(expected), "{what}"),
        other => panic!("{}: {other:?}", String::from_utf8_lossy(body)),
    }
}

fn text(text: &str) -> ExtractedField {
    ExtractedField::Present(FieldValue::Text(text.into()))
}

fn number(raw: &str) -> ExtractedField {
    ExtractedField::Present(FieldValue::Number(raw.into()))
}

#[test]
fn a_value_is_found_along_its_path() {
    check("body.a.b", r#"{"x":[1,{"b":2}],"a":{"c":0,"b":"v"},"y":null}"#, &text("v"));
    check("body.a.1.b", r#"{"a":[0,{"b":"v"},2]}"#, &text("v"));
    check("body.a.1", r#"{"a":{"1":"v"}}"#, &text("v"));
    check("body.a.01", r#"{"a":["x","y"]}"#, &ExtractedField::Missing);
    check("body.0", "[true]", &ExtractedField::Present(FieldValue::Bool(true)));
    check("body.\"a.b\"", r#"{"a":{"b":1},"a.b":false}"#, &ExtractedField::Present(FieldValue::Bool(false)));
    check("body.a", r#"{"\u0061":"\u00e4\ud83d\ude00\n\\"}"#, &text("ä😀\n\\"));
    check("body.a", " \n{\t\"a\" : \"\" } ", &text(""));
}

#[test]
fn a_number_keeps_the_text_it_was_written_with() {
    for raw in ["9007199254740992", "9007199254740993", "1e400", "-0.0", "1.50", "0", "123456789012345678901234567890"]
    {
        check("body.a", &format!(r#"{{"a": {raw} }}"#), &number(raw));
    }
}

#[test]
fn what_is_no_scalar_is_missing() {
    for body in [r#"{"a":null}"#, r#"{"a":{}}"#, r#"{"a":[1]}"#, "{}", "[]", "5", "\"a\"", "null", "true", "-1", "1.5"]
    {
        check("body.a", body, &ExtractedField::Missing);
    }
    for body in
        [r#"{"a":1}"#, r#"{"a":-1}"#, r#"{"a":1.5}"#, r#"{"a":"b"}"#, r#"{"a":false}"#, r#"{"a":null}"#, r#"{"a":[]}"#]
    {
        check("body.a.b", body, &ExtractedField::Missing);
    }
}

#[test]
fn paths_may_share_their_beginning_and_their_end() {
    let fields = ["body.a.b", "body.a", "body.a.b.c", "body.a.b"].map(field);
    let found = |body: &str| {
        let found = read(&fields, None, body.as_bytes(), &NOTHING).expect("JSON");
        [0, 1, 2, 3].map(|ix| found.slot(FieldIndex(ix)).clone())
    };
    assert_eq!(found(r#"{"a":{"b":1}}"#), [number("1"), ExtractedField::Missing, ExtractedField::Missing, number("1")]);
    assert_eq!(
        found(r#"{"a":2}"#),
        [ExtractedField::Missing, number("2"), ExtractedField::Missing, ExtractedField::Missing]
    );
    assert_eq!(
        found(r#"{"a":{"b":{"c":3}}}"#),
        [ExtractedField::Missing, ExtractedField::Missing, number("3"), ExtractedField::Missing]
    );
    let twice = read(&fields, None, br#"{"a":{"b":1,"b":1}}"#, &NOTHING);
    assert!(matches!(twice, Err(DeliveryRejection::Malformed(what)) if what.contains("\"b\" occurs twice")));
}

#[test]
fn a_body_that_parsers_could_read_differently_is_refused() {
    check_malformed("body.a", br#"{"a":1,"a":1}"#, "\"a\" occurs twice");
    check_malformed("body.a", br#"{"a":null,"\u0061":1}"#, "\"a\" occurs twice");
    check_malformed("body.a.b", br#"{"a":{},"a":{"b":1}}"#, "\"a\" occurs twice");
    check("body.a", r#"{"x":1,"x":2,"y":{"a":1,"a":2},"a":1}"#, &number("1"));
    for lone in [r"\ud800", r"\uDFFF", r"\ud800\ud800", r"\ud800\u0041", r"\ud800x", r"\udc00\ud800", r"\\\ud800"] {
        check_malformed("body.a", format!(r#"{{"a":1,"x":"{lone}"}}"#).as_bytes(), "half a surrogate pair");
        check_malformed("body.a", format!(r#"{{"a":1,"{lone}":1}}"#).as_bytes(), "half a surrogate pair");
    }
    check("body.a", r#"{"x":"\ud83d\ude00 \\ud800 \uD83D\uDE00 \u00e4","a":1}"#, &number("1"));
}

#[test]
fn what_is_not_json_is_refused() {
    for body in [
        "",
        " ",
        "{",
        "{}}",
        "{} x",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":NaN}",
        "\u{feff}{}",
        "{\"x\":\"\n\"}",
        "{a:1}",
        "{\"x\":\"\\ug000\"}",
        "{\"x\":\"\\ud8",
    ] {
        check_malformed("body.a", body.as_bytes(), "");
    }
    check_malformed("body.a", b"{\"x\":\"\xff\"}", "not UTF-8");
    // Refused only because a path leads through it: serde cannot say that it is no object without reading it.
    check_malformed("body.a.b", br#"{"a":1e400}"#, "out of range");
    check_malformed("body.a", br#"{"a":"x\u0000y"}"#, "NUL");
    check("body.a", r#"{"a":1,"x":"\u0000"}"#, &number("1"));
}

#[test]
fn depth_has_its_limit_wherever_it_is() {
    let nested = |depth: usize| format!(r#"{{"x":{}{},"a":1}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    check("body.a", &nested(128), &number("1"));
    check_malformed("body.a", nested(129).as_bytes(), "more than 128");
    check_malformed("body.a", nested(100_000).as_bytes(), "more than 128");
    check_malformed("body.a", "[".repeat(100_000).as_bytes(), "more than 128");
    check("body.a", &format!(r#"{{"x":"{}\"[[","a":1}}"#, "[".repeat(1000)), &number("1"));
    check("body.a", &format!(r#"{{"x":[{}1],"a":1}}"#, "[],{},".repeat(1000)), &number("1"));
    let path = format!("body{}", ".0".repeat(64));
    check(&path, &format!("{}7{}", "[".repeat(64), "]".repeat(64)), &number("7"));
}

#[test]
fn a_body_without_declared_fields_is_not_parsed() {
    assert_eq!(slot(&field("path"), b"{not json", &NOTHING), Ok(text("/in/x")));
}

#[test]
fn the_shape_is_an_object_or_an_array_at_its_path() {
    let shape = |body: &str, fields: &[Field]| {
        read(fields, Some(&["registry_package"]), body.as_bytes(), &NOTHING).expect("JSON").has_shape(0)
    };
    for fields in [&[][..], &[field("body.registry_package.name")], &[field("body.registry_package")]] {
        assert!(shape(r#"{"registry_package":{"name":"x"}}"#, fields));
        assert!(shape(r#"{"registry_package":[{"name":"x"}]}"#, fields));
        for other in [r#"{"package":{}}"#, r#"{"package":[]}"#, r#"{"registry_package":"x"}"#, "[]", "null"] {
            assert!(!shape(other, fields), "{other}");
        }
    }
    assert!(read(&[], None, b"", &NOTHING).expect("not read").has_shape(0));
    assert!(read(&[], Some(&[]), b"{}", &NOTHING).expect("JSON").has_shape(0));
    assert!(read(&[], Some(&[]), b"[]", &NOTHING).expect("JSON").has_shape(0));
    assert!(!read(&[], Some(&[]), b"null", &NOTHING).expect("JSON").has_shape(0));
    assert!(read(&[], Some(&["a"]), b"{", &NOTHING).is_err());
}

#[test]
fn headers_queries_and_the_path_have_values_too() {
    let headers: [(&str, &[u8]); 6] = [
        ("x-a", b"1"),
        ("x-two", b"1"),
        ("x-two", b"1"),
        ("x-bell", b"\x07"),
        ("x-bad", b"\xff"),
        ("x-ok", "ä".as_bytes()),
    ];
    let around = FieldTestRequest { path: "/p", query: "a=x%20y&b=1&b=2&c=%zz&d=%ff&e&f=%00&g=1", headers: &headers };
    let slot = |at: &str| slot(&field(at), b"", &around);
    assert_eq!(slot("header.X-A"), Ok(text("1")));
    assert_eq!(slot("header.x-ok"), Ok(text("ä")));
    assert_eq!(slot("header.x-none"), Ok(ExtractedField::Missing));
    assert_eq!(slot("query.a"), Ok(text("x y")));
    assert_eq!(slot("query.e"), Ok(text("")));
    assert_eq!(slot("query.g"), Ok(text("1")));
    assert_eq!(slot("query.none"), Ok(ExtractedField::Missing));
    assert_eq!(slot("path"), Ok(text("/p")));
    for (at, what) in [
        ("header.x-two", "header `x-two` occurs more than once"),
        ("header.x-bell", "header `x-bell` is not plain text"),
        ("header.x-bad", "header `x-bad` is not plain text"),
        ("query.b", "`b` in the query occurs more than once"),
        ("query.c", "`c` in the query is not percent-encoded properly"),
        ("query.d", "`d` in the query is not UTF-8"),
        ("query.f", "field `it` has a NUL character in it"),
    ] {
        assert_eq!(slot(at), Err(DeliveryRejection::Malformed(what.into())), "{at}");
    }
}

#[test]
fn a_value_is_trimmed_and_cut_before_it_counts() {
    let at = |trim: bool, after: Option<&str>, default: Option<&str>, value: &str| {
        let cut = Field { trim, after: after.map(Into::into), default: default.map(Into::into), ..field("body.a") };
        slot(&cut, format!(r#"{{"a":{value}}}"#).as_bytes(), &NOTHING).expect("JSON")
    };
    let default = || ExtractedField::Defaulted(FieldValue::Text("d".into()));
    assert_eq!(at(true, None, None, r#"" x y\n""#), text("x y"));
    assert_eq!(at(true, None, None, r#"" \t""#), ExtractedField::Missing);
    assert_eq!(at(false, None, None, r#"" ""#), text(" "));
    assert_eq!(at(false, Some("v"), None, r#""v1""#), text("1"));
    assert_eq!(at(false, Some("v"), None, r#""v""#), text(""));
    assert_eq!(at(false, Some("v"), None, r#""1""#), ExtractedField::Missing);
    assert_eq!(at(true, Some("Bearer "), None, r#""  Bearer   x ""#), text("x"));
    assert_eq!(at(true, Some("Bearer"), None, r#""Bearer ""#), ExtractedField::Missing);
    assert_eq!(at(true, Some("v"), None, "5"), number("5"));
    assert_eq!(at(false, None, Some("d"), "null"), default());
    assert_eq!(at(false, None, Some("d"), r#""""#), text(""));
    assert_eq!(at(true, None, Some("d"), r#"" ""#), default());
    assert_eq!(at(false, Some("v"), Some("d"), r#""1""#), default());
    assert_eq!(at(false, None, Some("d"), "[]"), default());
    assert_eq!(at(false, None, Some("d"), "7"), number("7"));
}

#[test]
fn a_value_has_its_limit() {
    let fits = "x".repeat(limits::FIELD_BYTES_MAX);
    check("body.a", &format!(r#"{{"a":"{fits}"}}"#), &text(&fits));
    let too_long = Err(DeliveryRejection::FieldTooLong("it".into()));
    assert_eq!(slot(&field("body.a"), format!(r#"{{"a":"{fits}x"}}"#).as_bytes(), &NOTHING), too_long);
    assert_eq!(slot(&field("body.a"), format!(r#"{{"a":1{}}}"#, "0".repeat(4096)).as_bytes(), &NOTHING), too_long);
    check("body.b", &format!(r#"{{"a":"{fits}x"}}"#), &ExtractedField::Missing);
}

#[test]
fn an_event_keeps_every_field_that_has_a_value() {
    let named = |name: &str, default: Option<&str>| Field {
        name: name.into(),
        default: default.map(Into::into),
        ..field(&format!("body.{name}"))
    };
    let set = FieldSet::new(vec![named("b", None), named("a", None), named("c", Some("d"))], None);
    assert_eq!(set.ix("a"), Some(FieldIndex(1)));
    assert_eq!(set.ix("z"), None);
    let body = Bytes::from_static(br#"{"b":1.0}"#);
    let delivery = Delivery { path: "", query: "", headers: &[], body: &body, at: Timestamp(0), wall: Timestamp(0) };
    let found = set.read(&VerificationScheme::none().verify(&delivery).expect("no scheme")).expect("JSON");
    assert_eq!(found.keep(&set).to_json(), r#"{"b":1.0,"c":"d"}"#);
    assert_eq!(found.value(FieldIndex(1)), None);
}

/// JSON with few different names, so that random paths lead somewhere.
fn trees() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        any::<f64>().prop_map(|value| json!(value)),
        "[^\0]{0,6}".prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(5, 64, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map("[ab01]", inner, 0..4).prop_map(|fields| json!(fields)),
        ]
    })
}

/// The value at a path, looked up in a parsed tree.
fn looked_up(tree: &serde_json::Value, path: &[String]) -> ExtractedField {
    let step = |value: &serde_json::Value, part: &String| match value {
        serde_json::Value::Object(fields) => fields.get(part).cloned(),
        serde_json::Value::Array(items) => part.parse::<usize>().ok().and_then(|at| items.get(at).cloned()),
        _ => None,
    };
    match path.iter().try_fold(tree.clone(), |value, part| step(&value, part)) {
        Some(serde_json::Value::Bool(value)) => ExtractedField::Present(FieldValue::Bool(value)),
        Some(serde_json::Value::Number(value)) => number(&value.to_string()),
        Some(serde_json::Value::String(value)) => text(&value),
        _ => ExtractedField::Missing,
    }
}

proptest! {
    #![proptest_config(crate::seed::cases(256))]

    #[test]
    fn a_field_has_the_value_that_a_parsed_tree_has(
        tree in trees(),
        paths in prop::collection::vec(prop::collection::vec("[ab01]", 1..5), 1..8),
    ) {
        let fields: Vec<_> = paths.iter().map(|path| Field { at: FieldLocation::Body(path.clone()), ..field("path") }).collect();
        for body in [tree.to_string(), serde_json::to_string_pretty(&tree).expect("JSON")] {
            let found = read(&fields, None, body.as_bytes(), &NOTHING).expect("JSON");
            for (ix, path) in (0..).zip(&paths) {
                prop_assert_eq!(found.slot(FieldIndex(ix)), &looked_up(&tree, path), "{:?} in {}", path, body);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(body: Vec<u8>, query: String) {
        let around = FieldTestRequest { path: "", query: &query, headers: &[("x", &body)] };
        for at in ["body.a", "body.0.a", "header.x", "query.a", "path"] {
            drop(slot(&field(at), &body, &around));
        }
    }

    #[test]
    fn almost_json_is_read_or_refused(body in "([{}\\[\\]\",:\\\\]|\\\\ud8|\\\\u[0-9a-f]{4}|\"a\"|null|-?[0-9.e]{1,3}| ){0,40}") {
        let ours = slot(&field("body.a"), body.as_bytes(), &NOTHING);
        let theirs = serde_json::from_str::<serde_json::Value>(&body);
        prop_assert!(theirs.is_ok() || ours.is_err() || body.contains('e'), "{} {:?}", body, ours);
    }
}
