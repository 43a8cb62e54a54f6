//! Handshakes as users describe them: those of known senders, and what is refused.

use crate::{fine, parse};
use bytes::Bytes;
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::handshake::HandshakeMethod;
use hookonce::decide::time::Timestamp;
use hookonce::internals::config::ColorChoice;

/// A request of a sender.
struct Asked<'a> {
    method: &'a str,
    query: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
}

const EMPTY: Asked<'_> = Asked { method: "GET", query: "", headers: &[], body: "" };

/// Every error of a config, as the user sees it.
fn errors(text: &str) -> String {
    parse(text).expect_err(text).render(ColorChoice::Plain)
}

/// The answer of a source with this handshake: status, content type and body; `None`: it is not one.
fn answer(handshake: &str, asked: &Asked<'_>) -> Option<(u16, Option<String>, String)> {
    let text = format!(
        "[source.s]\nverify = {{ scheme = \"token\", at = \"header.authorization\", secret = {{ env = \"A\" }} }}\n\
         [[source.s.handshake]]\n{handshake}\n[[source.s.route]]\n"
    );
    let config = fine(&text);
    let headers: Vec<_> =
        asked.headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
    let body = Bytes::copy_from_slice(asked.body.as_bytes());
    let (at, wall) = (Timestamp(0), Timestamp(0));
    let delivery =
        Delivery { path: "/in/s", query: asked.query, headers: &borrow_headers(&headers), body: &body, at, wall };
    let method = HandshakeMethod::parse(asked.method).expect("a method");
    let response = config.sources[0].answer_handshake(method, &delivery)?.ok()?.response;
    let header = |name: &str| response.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"));
    let typed = header("content-type");
    Some((response.status, typed.map(String::from), String::from_utf8(response.body).expect("text")))
}

fn check(handshake: &str, asked: &Asked<'_>, content_type: &str, body: &str) {
    assert_eq!(answer(handshake, asked), Some((200, Some(content_type.to_owned()), body.to_owned())), "{handshake}");
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

#[test]
fn mondays_challenge_is_echoed_as_json() {
    let monday = "signed = false\nwhen = { \"body.challenge\" = \"*\" }\nmembers = { challenge = \"body.challenge\" }";
    let asked = Asked { method: "POST", body: r#"{"challenge":"3eZ\"brw"}"#, ..EMPTY };
    check(monday, &asked, JSON, r#"{"challenge":"3eZ\"brw"}"#);
    for body in ["{}", r#"{"challenge":""}"#, r#"{"challenge":{"a":1}}"#, r#"{"event":{"challenge":"a"}}"#, "not JSON"]
    {
        assert_eq!(answer(monday, &Asked { body, ..asked }), None, "{body}");
    }
    // Signed, it needs what a delivery needs.
    let signed = monday.replace("signed = false\n", "");
    assert_eq!(answer(&signed, &asked), None);
    let token = [("authorization", "s3cret-a-of-24-bytes-now")];
    check(&signed, &Asked { headers: &token, ..asked }, JSON, r#"{"challenge":"3eZ\"brw"}"#);
}

#[test]
fn oktas_challenge_in_a_header_is_echoed_as_json() {
    let okta = "method = \"GET\"\nwhen = { \"header.x-okta-verification-challenge\" = \"*\" }\n\
                members = { verification = \"header.x-okta-verification-challenge\" }";
    let asked = Asked { headers: &[("x-okta-verification-challenge", "a-challenge")], ..EMPTY };
    check(okta, &asked, JSON, r#"{"verification":"a-challenge"}"#);
    assert_eq!(answer(okta, &EMPTY), None);
    assert_eq!(answer(okta, &Asked { method: "POST", ..asked }), None);
}

#[test]
fn graphs_validation_token_is_echoed_as_text() {
    let graph = "signed = false\nwhen = { \"query.validationToken\" = \"*\" }\ntext = \"query.validationToken\"";
    let asked = Asked { method: "POST", query: "validationToken=Validation%3A+Testing%20%3Cb%3E", ..EMPTY };
    check(graph, &asked, TEXT, "Validation: Testing <b>");
    for query in ["", "validationToken=", "validationToken=a&validationToken=b", "validationToken=%0d%0a"] {
        assert_eq!(answer(graph, &Asked { query, ..asked }), None, "{query}");
    }
    let long = format!("validationToken={}", "x".repeat(4097));
    assert_eq!(answer(graph, &Asked { query: &long, ..asked }), None);
}

#[test]
fn event_grids_code_is_found_in_the_first_element_of_the_body() {
    let grid = "signed = false\nwhen = { \"header.aeg-event-type\" = \"SubscriptionValidation\" }\n\
                members = { validationResponse = \"body.0.data.validationCode\" }";
    let body = r#"[{"id":"1","data":{"validationCode":"512d38b6-c7b8-40c8-89fe-f46f9e9622b6","validationUrl":"https://x"},"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent"}]"#;
    let asked = Asked { method: "POST", headers: &[("aeg-event-type", "SubscriptionValidation")], body, ..EMPTY };
    check(grid, &asked, JSON, r#"{"validationResponse":"512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}"#);
    assert_eq!(answer(grid, &Asked { headers: &[("aeg-event-type", "Notification")], ..asked }), None);
    assert_eq!(answer(grid, &Asked { body: "[]", ..asked }), None);
}

/// The first message about a source with this handshake.
fn check_refused(handshake: &str, expected: &str) {
    let text = format!(
        "[source.s]\nverify = {{ scheme = \"hmac\", header = \"x\", secret = {{ env = \"A\" }} }}\n\
         [[source.s.handshake]]\n{handshake}\n[[source.s.route]]\n"
    );
    let shown = errors(&text);
    assert!(shown.contains(&format!("error: {expected}\n")), "{text}{shown}");
}

#[test]
fn a_value_is_brought_by_one_unsigned_post() {
    let when = "when = { \"body.a\" = \"*\" }\n";
    check_refused(&format!("{when}shows = \"body.a\"\ntakes = \"body.a\""), "a handshake brings two values");
    check_refused(
        &format!("{when}shows = \"body.a\"\nsigned = true"),
        "`shows` is only for a handshake that is not signed",
    );
    check_refused("method = \"GET\"\ntakes = \"query.a\"", "`takes` is only for a handshake by POST");
    check_refused(&format!("{when}takes = \"nowhere\""), "`nowhere` is not a place in a delivery");
    check_refused(
        &format!("{when}shows = \"body.a\"\n[[source.s.handshake]]\n{when}takes = \"body.b\""),
        "two handshakes of a source bring a value",
    );
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let text = format!(
        "[source.s]\nverify = {{ scheme = \"ed25519\", header = \"x\", public_key = \"{key}\" }}\n\
         [[source.s.handshake]]\n{when}takes = \"body.a\"\n[[source.s.route]]\n"
    );
    assert!(errors(&text).contains("error: `takes` needs a scheme that signs with a secret\n"), "{}", errors(&text));
}

#[test]
fn a_fixed_header_of_an_answer_can_be_sent_and_does_nothing_in_a_browser() {
    let with = |header: &str| format!("method = \"OPTIONS\"\nheaders = {{ {header} }}");
    check_refused(&with("Set-Cookie = \"a\""), "the header `set-cookie` cannot be the answer to a handshake");
    check_refused(&with("\"a b\" = \"c\""), "`a b` cannot be the name of a header");
    check_refused(&with("a = \"b\\r\\nc: d\""), "the value of the header `a` cannot be sent");
    check_refused(&with("a = \"\""), "the value of the header `a` cannot be sent");
    assert_eq!(answer(&with("a = \"b, c\""), &Asked { method: "OPTIONS", ..EMPTY }).map(|told| told.0), Some(200));
}

#[test]
fn a_handshake_that_can_never_be_answered_is_refused() {
    for status in ["199", "300", "65736", "1000000"] {
        check_refused(&format!("method = \"GET\"\nstatus = {status}"), "`status` is not a success");
    }
    for (method, place) in [("GET", "body.c"), ("HEAD", "body.c"), ("OPTIONS", "form.c")] {
        let expected = format!("`{place}` is never there in a handshake by {method}");
        check_refused(&format!("method = \"{method}\"\nwhen = {{ \"{place}\" = \"1\" }}"), &expected);
        check_refused(&format!("method = \"{method}\"\ntext = \"{place}\"\nheader = \"a\""), &expected);
    }
    check_refused(
        "method = \"GET\"\nmembers = { a = \"hmac.hex(body.c)\" }",
        "`body.c` is never there in a handshake by GET",
    );
    let when = "when = { \"body.a\" = \"*\" }\n";
    check_refused(&format!("{when}text = \"claim.x\""), "`claim.x` is never there in a handshake");
    check_refused("when = { \"body.a\" = \"\" }", "`body.a` never has this value in a handshake");
    check_refused("method = \"HEAD\"\ntext = \"query.a\"", "the answer to a handshake by HEAD has no content");
    for header in ["content-length", "Transfer-Encoding", "connection", "keep-alive", "trailer", "upgrade", "date"] {
        let expected = format!("the header `{}` cannot be the answer to a handshake", header.to_ascii_lowercase());
        check_refused(&format!("{when}text = \"body.a\"\nheader = \"{header}\""), &expected);
        check_refused(&format!("{when}headers = {{ {header} = \"1\" }}"), &expected);
    }
    // What is like them, and works.
    for fine in
        ["method = \"HEAD\"\ntext = \"query.a\"\nheader = \"a\"", "method = \"GET\"\nstatus = 299\njson = \"1\""]
    {
        assert!(
            answer(fine, &Asked { query: "a=1", method: fine.split('"').nth(1).expect("a method"), ..EMPTY }).is_some(),
            "{fine}"
        );
    }
}

#[test]
fn a_secret_may_be_missing_only_where_its_sender_brings_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = |preset: &str, secret: &str| {
        let path = folder.path().join(secret);
        format!("[source.s]\npreset = \"{preset}\"\nsecret = {{ file = \"{}\" }}\n[[source.s.route]]\n", path.display())
    };
    for preset in ["asana", "notion"] {
        let config = fine(&source(preset, "missing"));
        assert!(config.sources[0].verify.lacks_secret().is_some(), "{preset}");
        let told: Vec<_> = config.warnings.iter().map(|warning| warning.title.as_str()).collect();
        assert_eq!(told, ["source `s` has no secret yet, so it accepts no delivery"], "{preset}");
        // Its folder must be there.
        let shown = errors(&source(preset, "nowhere/missing"));
        assert!(shown.contains("cannot be used: there is no such file"), "{shown}");
    }
    let shown = errors(&source("dropbox", "missing"));
    assert!(shown.contains("missing cannot be used: there is no such file"), "{shown}");
    std::fs::write(folder.path().join("empty"), "").expect("a file");
    let shown = errors(&source("asana", "empty"));
    assert!(shown.contains("empty cannot be used: it is empty"), "{shown}");
    std::fs::write(folder.path().join("there"), "a secret that is long enough").expect("a file");
    assert_eq!(fine(&source("asana", "there")).sources[0].verify.lacks_secret(), None);
    let shown = errors("[source.s]\npreset = \"asana\"\n");
    assert!(shown.contains("scheme `hmac` needs a secret"), "{shown}");
}

#[test]
fn no_identity_at_all_must_be_written_out() {
    let with = |once: &str| {
        format!(
            "[source.s]\nverify = {{ scheme = \"hmac\", header = \"x\", secret = {{ env = \"A\" }} }}\nonce = {{ {once} }}\n[[source.s.route]]\n"
        )
    };
    let shown = errors(&with("per = []"));
    assert!(shown.contains("error: `once.per` is empty\n") && shown.contains("equal_bodies = \"new\""), "{shown}");
    let config = fine(&with("per = [], equal_bodies = \"new\""));
    assert!(config.sources[0].once.per.is_empty());
    let told: Vec<_> = config.warnings.iter().map(|warning| warning.title.as_str()).collect();
    assert_eq!(told, ["anyone who captures a delivery can make it act again"]);
}

#[test]
fn a_bearer_token_in_the_query_needs_a_name_and_is_for_no_other_scheme() {
    let with = |scheme: &str| {
        errors(&format!(
            "[source.s]\nverify = {{ scheme = \"{scheme}\", secret = {{ env = \"A\" }} }}\n[[source.s.route]]\n"
        ))
    };
    assert!(with("bearer\", query = \"").contains("error: `query` is empty\n"));
    assert!(with("github\", query = \"a").contains("error: `query` has no meaning for scheme `github`\n"));
}

/// Anyone can have a nonce signed: with another source that has the secret, it would be a delivery.
#[test]
fn a_secret_that_signs_answers_is_for_no_other_source() {
    let x = "[source.x]\npreset = \"x\"\nsecret = { env = \"A\" }\n[[source.x.route]]\n";
    let other = |secret: &str| {
        format!("[source.o]\nverify = {{ scheme = \"hmac\", header = \"x\", secret = {secret} }}\n[[source.o.route]]\n")
    };
    for text in
        [format!("{x}{}", other("{ env = \"A\" }")), format!("{}{x}", other("[{ env = \"B\" }, { env = \"A\" }]"))]
    {
        let shown = errors(&text);
        assert!(shown.contains("have the same secret, and one of them signs handshakes\n"), "{shown}");
        assert!(shown.contains("the handshakes of `x` sign texts for anyone who asks\n"), "{shown}");
    }
    fine(&format!("{x}{}", other("{ env = \"B\" }")));
    // Where both do, both refuse as a delivery what either signs.
    let two = fine(&format!("{x}{}", x.replace("source.x", "source.y")));
    assert_eq!(two.warnings[0].title, "sources `x` and `y` have the same secret");
}
