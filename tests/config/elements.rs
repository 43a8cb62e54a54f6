//! `each`: what a source whose events are elements may have, and the exact texts for what it may not.

use super::{check, fine, parse};
use hookonce::decide::field::FieldLocation;
use hookonce::decide::source::Identity;
use hookonce::internals::config::ColorChoice;

const STANDARD: &str = "verify = { scheme = \"standard-webhooks\", secret = { env = \"WHSEC\" } }";
const GITHUB: &str = "verify = { scheme = \"github\", secret = { env = \"A\" } }";

/// A config with one source with these lines, and a route with these.
fn with(lines: &str, route: &str) -> String {
    format!("[source.s]\n{lines}\n[[source.s.route]]\n{route}\n")
}

/// Checks that a config is refused with exactly one error, in these words.
#[track_caller]
fn wrong(text: &str, words: &[&str]) {
    let shown = match parse(text) {
        Err(problems) => problems.render(ColorChoice::Plain),
        Ok(_) => panic!("it loads:\n{text}"),
    };
    for words in words {
        assert!(shown.contains(words), "{words}\n{text}\n{shown}");
    }
    assert!(shown.contains("\n1 error in hookonce.toml"), "{text}\n{shown}");
}

#[test]
fn the_id_of_a_delivery_is_no_identity_of_its_elements() {
    let source = fine(&with(&format!("{STANDARD}\neach = \"body.events\""), "")).sources[0].clone();
    assert_eq!((source.delivery.as_ref(), &source.once.per[..]), (None, &[Identity::Body][..]));
    assert_eq!(source.fields.each(), Some(&["events".to_owned()][..]));
    let source = fine(&with(&format!("{GITHUB}\neach = \"body\"\ndelivery = \"body.id\""), "")).sources[0].clone();
    let id = source.delivery.as_ref().expect("an id");
    assert_eq!((&id.at, id.signed), (&FieldLocation::Body(vec!["id".into()]), true));
    // The signature covers the element, so nothing is added to what identifies it.
    assert_eq!(source.once.per, [Identity::Delivery]);
    check(
        &with(&format!("{GITHUB}\neach = \"body.events\"\ndelivery = \"header.x-github-delivery\""), ""),
        r#"
error: `delivery` is not in the element
 --> hookonce.toml:4:12
  |
4 | delivery = "header.x-github-delivery"
  |            ^^^^^^^^^^^^^^^^^^^^^^^^^^ every element of a delivery has the same header.x-github-delivery
  |
hint: delivery = "body.id", if each element has an id; else remove it

1 error in hookonce.toml; nothing was started
"#,
    );
    for outside in ["outer.id", "query.id", "path"] {
        wrong(
            &with(&format!("verify = \"none\"\neach = \"body.events\"\ndelivery = \"{outside}\""), ""),
            &["`delivery` is not in the element"],
        );
    }
    wrong(
        &with(&format!("{STANDARD}\neach = \"body.events\"\nonce = {{ per = [\"delivery\"] }}"), ""),
        &["`once.per` names the delivery id, but this source has none", "delivery = \"body.id\", the id of an element"],
    );
}

#[test]
fn a_time_that_is_signed_again_is_not_part_of_an_element() {
    let hmac = "verify = { scheme = \"hmac\", secret = { env = \"A\" }, header = \"x-s\", timestamp = \"header.x-t\", over = \"{timestamp}.{body}\" }";
    let change = "fields = { of = \"body.of\", to = \"body.to\", at = \"body.at\" }\nonce = { per = [], change = { of = [\"of\"], to = [\"to\"], order = \"at\" } }";
    let implied = |each: &str| fine(&with(&format!("{hmac}\n{each}\n{change}"), "")).sources[0].once.per.clone();
    assert_eq!(implied(""), [Identity::Signed]);
    assert_eq!(implied("each = \"body\""), [Identity::Body]);
}

#[test]
fn each_is_an_array_in_the_body() {
    for (place, words) in [
        ("header.x", "`each` is header.x, which is not in the body"),
        ("outer.x", "`each` is outer.x, which is not in the body"),
        ("path", "`each` is path, which is not in the body"),
        ("events", "`events` is not a place in a delivery"),
        ("body.", "`body.` is not a place in a delivery"),
    ] {
        wrong(&with(&format!("verify = \"none\"\neach = \"{place}\""), ""), &[words, "each = \"body.events\""]);
    }
}

#[test]
fn places_around_an_element_are_for_sources_with_elements() {
    let field =
        |each: &str, place: &str| with(&format!("verify = \"none\"\n{each}\nfields = {{ f = \"{place}\" }}"), "");
    fine(&field("each = \"body.events\"", "outer.account.id"));
    fine(&field("each = \"body.events\"", "body"));
    wrong(&field("", "outer.account.id"), &["`outer.account.id` is not a place", "the source needs `each`"]);
    wrong(&field("", "body"), &["`body` needs a name after it"]);
    wrong(&field("each = \"body\"", "outer.x"), &["there is nothing around an element at `outer.x`"]);
    for inside in ["outer.events", "outer.events.0.id"] {
        wrong(&field("each = \"body.events\"", inside), &["is not around the elements", "are in body.events"]);
    }
    wrong(
        &with(
            "verify = { scheme = \"token\", secret = { env = \"A\" }, at = \"outer.token\" }\neach = \"body.events\"",
            "",
        ),
        &["a token cannot be around the elements"],
    );
    // What is signed or answered is a matter of the whole delivery.
    wrong(
        &with("verify = \"none\"\neach = \"body.e\"\nhandshake = { method = \"GET\", text = \"outer.x\" }", ""),
        &["`outer.x` is not a place in a delivery"],
    );
}

#[test]
fn what_cannot_fit_an_element_is_refused() {
    let each = |lines: &str| with(&format!("{GITHUB}\neach = \"body.events\"\n{lines}"), "");
    wrong(&each("respond = \"done\""), &["`each` and respond = \"done\" cannot be combined"]);
    for header in ["x-hub-signature-256", "X-Hub-Signature-256"] {
        let forward =
            format!("forward = {{ url = \"https://example.com\", headers = [\"{header}\", \"x-request-id\"] }}");
        wrong(
            &with(&format!("{GITHUB}\neach = \"body.events\""), &forward),
            &["`x-hub-signature-256` cannot be passed on from a source with `each`", "the receiver gets one element"],
        );
        fine(&with(GITHUB, &forward));
    }
    let id = "webhook-id";
    let forward = format!("forward = {{ url = \"https://example.com\", headers = [\"{id}\"] }}");
    wrong(&with(&format!("{STANDARD}\neach = \"body\""), &forward), &["`webhook-id` cannot be passed on"]);
    // A token is no signature over the delivery: it proves as much for an element.
    let bearer = "verify = { scheme = \"bearer\", secret = { env = \"A\" } }\neach = \"body\"";
    fine(&with(bearer, "forward = { url = \"https://example.com\", headers = [\"authorization\"] }"));
    // A message carries the signature of a whole delivery, and none of an element.
    let publish = "publish = { nats = \"nats://127.0.0.1\", subject = \"x\" }";
    let carried = |lines: &str| fine(&with(lines, publish)).sources[0].routes[0].forwarded_headers.clone();
    assert!(carried(GITHUB).contains(&"x-hub-signature-256".to_owned()));
    assert_eq!(carried(&format!("{GITHUB}\neach = \"body.events\"")), ["x-github-event"]);
    let catch_up = "catch_up = { repository = \"o/r\", hook = 1, token = { env = \"TOKEN\" } }";
    let shown = parse(&each(catch_up)).expect_err("it loads").to_string();
    assert!(shown.contains("`each` and `catch_up` cannot be combined"), "{shown}");
    let from = "[source.s]\nverify = \"none\"\neach = \"body\"\nfrom = { nats = \"nats://127.0.0.1\", stream = \"S\", consumer = \"c\" }\n[[source.s.route]]\n";
    let shown = parse(from).expect_err("it loads").to_string();
    assert!(shown.contains("`each` and `from` cannot be combined"), "{shown}");
    let carried = from.replace("\"none\"", "{ scheme = \"carried\", of = \"github\", secret = { env = \"A\" } }");
    let shown = parse(&carried).expect_err("it loads").to_string();
    assert!(shown.contains("`each` and `from` cannot be combined"), "{shown}");
    let api =
        "[source.s]\npreset = \"idempotency-key\"\nsecret = { env = \"A\" }\neach = \"body\"\n[[source.s.route]]\n";
    let shown = parse(api).expect_err("it loads").to_string();
    assert!(shown.contains("`each` and `api` cannot be combined"), "{shown}");
    let kind = each("kind = { header = \"x-kind\", is = { a = \"body.x\" } }");
    wrong(&kind, &["`each` and `kind` cannot be combined", "a header names one kind for all elements"]);
    let sns =
        "verify = { scheme = \"sns\", topic = \"arn:aws:sns:eu-central-1:123456789012:t\" }\neach = \"body.Records\"";
    let shown = parse(&with(sns, "")).expect_err("it loads").to_string();
    assert!(shown.contains("`each` needs a signature over the whole body"), "{shown}");
    let over_id = "verify = { scheme = \"hmac\", secret = { env = \"A\" }, header = \"x-s\", over = \"{id}.{body}\" }\neach = \"body\"\ndelivery = \"body.id\"";
    wrong(&with(over_id, ""), &["`over` has an {id}, but `each` makes an event of each element"]);
}

#[test]
fn an_identity_and_a_change_need_something_of_the_element() {
    let once = |once: &str| {
        with(
            &format!(
                "{GITHUB}\neach = \"body.events\"\nfields = {{ a = \"outer.a\", b = \"body.b\", c = \"outer.c\" }}\nonce = {once}"
            ),
            "",
        )
    };
    wrong(&once("{ per = [\"a\"] }"), &["an identity of `once.per` has nothing of the element"]);
    wrong(&once("{ per = [[\"a\", \"c\"], \"b\"] }"), &["an identity of `once.per` has nothing of the element"]);
    let source = fine(&once("{ per = [[\"a\", \"b\"]] }")).sources[0].clone();
    assert_eq!(source.once.per.len(), 1, "both are signed, so nothing is implied");
    let change = |to: &str| once(&format!("{{ change = {{ of = [\"a\"], to = [\"{to}\"], order = \"c\" }} }}"));
    wrong(&change("c"), &["`change` has nothing of the element"]);
    fine(&change("b"));
}
