use super::*;
use crate::decide::delivery::Delivery;
use crate::decide::field::{Field, FieldLocation};
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::decide::verify::VerificationScheme;
use bytes::Bytes;
use proptest::prelude::*;

const BODY: &str = r#"{"tag": "main", "package": "jamiec_ts", "id": 9007199254740993, "price": 1.50, "late": false}"#;

fn fields() -> FieldSet {
    let field = |name: &str| Field::at(name, FieldLocation::Body(vec![name.into()]));
    FieldSet::new(["tag", "package", "id", "price", "late", "sha", "digest"].map(field).to_vec(), None)
}

fn found(body: &str) -> ExtractedFields {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let delivery = Delivery { path: "", query: "", headers: &[], body: &body, at: Timestamp(0), wall: Timestamp(0) };
    fields().read(&VerificationScheme::none().verify(&delivery).expect("no scheme")).expect("JSON")
}

fn check(text: &str, expected: bool) {
    let filter = Filter::parse(text, &fields()).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let found = found(BODY);
    assert_eq!(filter.matches(&found), expected, "{text}");
    assert_eq!(filter.explain(&found, &fields()).is_empty(), expected, "{text}");
}

fn check_wrong(text: &str, marked: &str, what: &str, hint: &str) {
    let error = Filter::parse(text, &fields()).expect_err(text);
    assert_eq!(&text[error.at.clone()], marked, "{text}: {error:?}");
    assert!(error.what.contains(what), "{text}: {error:?}");
    assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{text}: {error:?}");
}

fn check_why(text: &str, body: &str, expected: &str) {
    let filter = Filter::parse(text, &fields()).expect(text);
    assert_eq!(filter.explain(&found(body), &fields()), expected, "{text}");
}

#[test]
fn values_of_one_type_are_compared() {
    check(r#"tag == "main""#, true);
    check("tag == 'main'", true);
    check(r#"tag == "latest""#, false);
    check(r#"tag != "latest""#, true);
    check(r#""main" == tag"#, true);
    check(r#"tag < "maio" && tag >= "main" && tag > "a" && tag <= "main""#, true);
    check(r#"tag > "main""#, false);
    check("late == false", true);
    check("late != true && late < true", true);
    check("tag == package", false);
    check(r#""a" == "a""#, true);
    check("(tag == 'main') == true", true);
}

#[test]
fn numbers_are_compared_by_their_digits() {
    check("id == 9007199254740993", true);
    check("id == 9007199254740992", false);
    check("id > 9007199254740992 && id < 9007199254740994", true);
    check("price == 1.5 && price == 15e-1 && price < 2 && price > -2", true);
    check("price == -1.5", false);
}

#[test]
fn different_types_are_not_equal_and_have_no_order() {
    check("tag == 5", false);
    check("tag != 5", true);
    check("id == '9007199254740993'", false);
    check("tag < 5 || tag >= 5 || late < 5 || id.contains('9')", false);
}

#[test]
fn a_value_as_text_is_what_was_sent() {
    check("string(id) == '9007199254740993' && string(price) == '1.50' && string(late) == 'false'", true);
    check("string(price) == '1.5' || string(price) == '1.500'", false);
    check("string(tag) == 'main' && string(id).matches('^[0-9]+$') && string(late).startsWith('f')", true);
    check("string(sha) == '' || string(sha).matches('')", false);
    check("!(string(sha) == 'x')", true);
    check_wrong("string(tag) == 5", "string(tag) == 5", "a text and a number cannot be compared", "");
    check_wrong("string('a') == 'a'", "'a'", "`string` asks about a field", "write `string(field)`");
    check_wrong("string(tag)", "string(tag)", "a text, not true or false", "compare it");
    check_why("string(price) == '2'", BODY, "price was 1.50, wanted string(price) == '2'");
}

#[test]
fn a_missing_field_is_null() {
    check("sha == null && tag != null", true);
    check("sha != null", false);
    check("sha == 'x' || sha < 'x' || sha >= sha || sha <= null || null <= sha", false);
    check("sha == digest", true);
    check("sha != 'x'", true);
    check("sha.startsWith('')", false);
    check("sha.matches('')", false);
    check("exists(sha)", false);
    check("exists(tag) && !exists(sha)", true);
    check("sha in [null]", true);
}

#[test]
fn lists_methods_and_signs_do_what_they_say() {
    check("tag in ['latest', 'main']", true);
    check("tag in ['latest', 'main',]", true);
    check("tag in []", false);
    check("tag in ['latest', package, 5]", false);
    check("tag.startsWith('ma') && tag.endsWith('in') && tag.contains('ai')", true);
    check("tag.startsWith('in')", false);
    check("package.contains(tag)", false);
    check(r#"package.matches("^[a-z]+_ts$")"#, true);
    check(r"package.matches(r'^\w+$')", true);
    check("tag.matches('^a')", false);
    check("'main'.contains(tag)", true);
    check("!(tag == 'main')", false);
    check("!!(tag == 'main')", true);
    check("true", true);
    check("false || true && false", false);
    check("(false || true) && !false", true);
    check(" \n\ttag\n==\n'main' ", true);
    check(r#"tag != "\\\"\'\n\r\t\u00e4""#, true);
}

#[test]
fn escapes_in_a_text_are_decoded() {
    let filter = Filter::parse(r#"tag == "a\"\n\u00e4\\""#, &fields()).expect("an expression");
    assert!(filter.matches(&found(r#"{"tag": "a\"\nä\\"}"#)));
}

#[test]
fn the_error_for_an_unknown_name_suggests_the_nearest_one() {
    check_wrong("tga == 'x'", "tga", "fields: tag, package, id", "did you mean `tag`?");
    check_wrong("exists(shaa)", "shaa", "not a declared field", "`sha`");
    check_wrong("zzzzzz == 1", "zzzzzz", "`zzzzzz`", "");
    check_wrong("not exists(tag)", "not", "`not`", "`!`");
    check_wrong("in == 1", "in", "`in`", "");
    let none = FieldSet::new(Vec::new(), None);
    assert!(Filter::parse("tag == 'x'", &none).expect_err("no fields").what.contains("none is declared"));
}

#[test]
fn a_result_that_is_not_true_or_false_is_an_error() {
    check_wrong("tag", "tag", "not true or false", "exists(tag)");
    check_wrong("\"x\"", "\"x\"", "a text", "");
    check_wrong("5", "5", "a number", "");
    check_wrong("null", "null", "null", "");
    check_wrong("late && tag == 'x'", "late", "not true or false", "late == …");
    check_wrong("tag == 'x' || (tag)", "tag", "not true or false", "");
    check_wrong("!tag == 'x'", "tag", "not true or false", "");
}

#[test]
fn what_can_never_be_equal_is_an_error() {
    check_wrong("'a' == 1", "'a' == 1", "a text and a number", "such as `tag`");
    check_wrong("(tag == 'x') == 'x'", "(tag == 'x') == 'x'", "true or false and a text", "");
    check_wrong("1 in [2, 'a']", "'a'", "a number and a text", "");
    check_wrong("null < 1", "null < 1", "null and a number", "");
}

#[test]
fn the_error_for_an_unknown_method_lists_the_known_ones() {
    check_wrong("tag.startswith('x')", "startswith", "`.endsWith`", "did you mean `.startsWith`?");
    check_wrong("tag.name == 'x'", "name", "not a method", "");
    check_wrong("tag.5", "5", "not a method", "");
    check_wrong("5.contains('x')", "5", "a number", "");
    check_wrong("tag.contains(5)", "5", "looks for a text", "");
    check_wrong("tag.contains 'x'", "'x'", "`(` is missing", "in parentheses");
    check_wrong("tag.contains('x', 'y')", ",", "`)` is missing", "one argument");
    check_wrong("exists(tag).contains('x')", "exists(tag)", "true or false", "");
    check_wrong("tag.matches(package)", "package", "literal text", "");
    check_wrong("tag.matches('(')", "'('", "unclosed group", "");
    check_wrong(r"tag.matches('(\\w{1000}){1000}')", r"'(\\w{1000}){1000}'", "too large", "");
}

#[test]
fn a_syntax_error_marks_its_position() {
    check_wrong("", "", "ends where a value", "");
    check_wrong("tag ==", "", "ends where a value", "");
    check_wrong("tag == )", ")", "`)` is where", "");
    check_wrong("tag = 'x'", "=", "`=`", "`==`");
    check_wrong("tag == 'x' & true", "&", "`&`", "`&&`");
    check_wrong("tag == 'x' and true", "and true", "is over before `and`", "`&&`");
    check_wrong("tag == 'x' 'y'", "'y'", "is over before", "join two");
    check_wrong("tag == 'x", "'x", "does not end", "closing '");
    check_wrong("tag == r\"x", "r\"x", "does not end", "closing \"");
    check_wrong(r"tag == '\d'", r"\d", "after a backslash", "r\"");
    check_wrong(r"tag == '\ud800'", r"\u", "after a backslash", "");
    check_wrong("tag == '\\", "\\", "after a backslash", "");
    check_wrong("(tag == 'x'", "", "`)` is missing", "not closed");
    check_wrong("tag in 'x'", "'x'", "`[` is missing", "followed by a list");
    check_wrong("tag in ['x'", "", "`]` is missing", "");
    check_wrong("1 < 2 < 3", "<", "cannot be chained", "&&");
    check_wrong("-tag == 5", "tag", "`tag` is where", "");
    check_wrong("exists('x')", "'x'", "asks about a field", "");
    check_wrong("exists(tag", "", "`)` is missing", "");
    check_wrong("tag == 1e", "e", "is over before `e`", "");
    check_wrong("tag == ü", "ü", "not a declared field", "");
    check_wrong("tag == §", "§", "`§` is not a sign", "");
}

#[test]
fn an_expression_has_its_limits() {
    let long = format!("tag == '{}'", "x".repeat(limits::FILTER_BYTES_MAX));
    assert!(Filter::parse(&long, &fields()).expect_err("long").what.contains("4096 bytes"));
    for (open, close) in [("(", ")"), ("!", ""), ("tag.contains(", ")")] {
        let deep = format!("{}true{}", open.repeat(200), close.repeat(200));
        assert!(Filter::parse(&deep, &fields()).expect_err("deep").what.contains("64 levels"), "{open}");
    }
    check(&format!("{}true{}", "(".repeat(64), ")".repeat(64)), true);
    check(&format!("{}true", "true && ".repeat(500)), true);
}

#[test]
fn a_mismatch_is_explained_by_the_terms_that_caused_it() {
    check_why(r#"tag == "latest""#, BODY, r#"tag was "main", wanted tag == "latest""#);
    check_why(r#"tag == "latest""#, "{}", r#"tag was missing, wanted tag == "latest""#);
    check_why(r#"package == "jamiec_ts" && tag == "latest""#, BODY, r#"tag was "main", wanted tag == "latest""#);
    check_why(
        "tag == 'a' || (late == true && id == 9007199254740993)",
        BODY,
        "tag was \"main\", wanted tag == 'a'; late was false, wanted late == true",
    );
    check_why("!(tag == 'main')", BODY, "tag was \"main\", wanted !(tag == 'main')");
    check_why("!(tag == 'x' || exists(id))", BODY, "id was 9007199254740993, wanted !(exists(id))");
    check_why(
        "!(tag == 'main' && !exists(sha))",
        BODY,
        "tag was \"main\", wanted !(tag == 'main'); sha was missing, wanted exists(sha)",
    );
    check_why("tag == package", BODY, r#"tag was "main", package was "jamiec_ts", wanted tag == package"#);
    check_why("(tag == 'x') == true", BODY, "tag was \"main\", wanted (tag == 'x') == true");
    check_why("tag in ['a',\n'b']", BODY, "tag was \"main\", wanted tag in ['a', 'b']");
    check_why("tag == 'main' && false", BODY, "never true: false");
    check_why("tag == 'main'", BODY, "");
}

#[test]
fn explained_values_are_truncated_and_escaped() {
    let long = format!(r#"{{"tag": "{}", "id": {}}}"#, "ä".repeat(81), "1".repeat(81));
    check_why("tag == 'x'", &long, &format!("tag was \"{}\"…, wanted tag == 'x'", "ä".repeat(80)));
    check_why("id == 1", &long, &format!("id was {}…, wanted id == 1", "1".repeat(80)));
    check_why("tag == 'x'", r#"{"tag": "a\n\"\u001b[31m"}"#, r#"tag was "a\n\"\u{1b}[31m", wanted tag == 'x'"#);
}

#[test]
fn a_filter_says_which_fields_it_looks_at() {
    let filter = Filter::parse("exists(sha) && (tag in ['x', package] || !tag.matches('x'))", &fields());
    let filter = filter.expect("an expression");
    let set = fields();
    let names: Vec<&str> = filter.fields().into_iter().map(|ix| &*set.get(ix).name).collect();
    assert_eq!(names, ["sha", "tag", "package"]);
    assert_eq!(filter.text(), "exists(sha) && (tag in ['x', package] || !tag.matches('x'))");
}

proptest! {
    #![proptest_config(crate::seed::cases(256))]

    #[test]
    fn any_text_is_parsed_or_rejected_with_a_position(text in "([a-z]{1,3}|tag|id|==|&&|\\|\\||!|\\(|\\)|in|\\[|\\]|,|'|\"|\\\\|[0-9.e-]{1,3}|exists|\\.|contains|matches| |\\PC){0,20}") {
        match Filter::parse(&text, &fields()) {
            Ok(filter) => {
                let found = found(BODY);
                prop_assert_eq!(filter.matches(&found), filter.explain(&found, &fields()).is_empty());
            }
            Err(error) => prop_assert!(text.get(error.at.clone()).is_some(), "{:?}", error),
        }
    }

    #[test]
    fn a_value_is_equal_to_itself_and_to_nothing_else(seen: String, wanted: String) {
        let literal = format!("{wanted:?}");
        prop_assume!(!literal.contains("\\u{") && !literal.contains("\\0") && !seen.contains('\0') && literal.len() < 4000);
        let filter = Filter::parse(&format!("tag == {literal}"), &fields()).expect("an expression");
        let body = |text: &str| format!(r#"{{"tag": {}}}"#, serde_json::to_string(text).expect("JSON"));
        prop_assert_eq!(filter.matches(&found(&body(&seen))), seen == wanted);
        prop_assert!(filter.matches(&found(&body(&wanted))));
    }
}

#[test]
fn every_term_is_listed_with_its_values_whatever_the_result() {
    let filter = Filter::parse(r#"tag == "latest" || !(id > 5 && exists(sha))"#, &fields()).expect("an expression");
    let term = |text: &str, saw: &str, holds| FilterTerm { text: text.into(), saw: vec![saw.into()], holds };
    assert_eq!(
        filter.terms(&found(BODY), &fields()),
        [
            term(r#"tag == "latest""#, r#"tag was "main""#, false),
            term("id > 5", "id was 9007199254740993", true),
            term("exists(sha)", "sha was missing", false),
        ]
    );
}
