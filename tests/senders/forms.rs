//! Senders whose bodies are forms.

use super::signed_samples::{SentDelivery, config_with, configured, now};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::internals::config::presets;
use std::sync::Arc;

/// A source that reads forms, with any other keys.
fn form_source(lines: &str) -> Arc<Source> {
    let text = format!(
        "[source.s]\nverify = {{ scheme = \"hmac\", header = \"x-signature\", secret = {{ env = \"S\" }} }}\n\
         delivery = \"form.id\"\nfields = {{ tag = \"form.tag\", who = {{ at = \"form.who[name]\", default = \"nobody\" }} }}\n{lines}"
    );
    config_with(&text, "a secret that is long enough").unwrap_or_else(|why| panic!("{why}")).sources[0].clone()
}

/// A signed delivery with this body, under this content type.
fn sent(source: &Source, body: &str, content_type: Option<&str>) -> SentDelivery {
    let headers = source.verify.sign("", now(), body.as_bytes());
    let headers = headers.into_iter().filter(|(name, _)| name != "content-type");
    let typed = content_type.map(|text| ("content-type".to_owned(), text.to_owned()));
    let headers = headers.chain(typed).map(|(name, value)| (name, value.into_bytes())).collect();
    SentDelivery { headers, query: String::new(), body: body.into(), at: now() }
}

const FORM: Option<&str> = Some("application/x-www-form-urlencoded");

fn fields(source: &Source, body: &str) -> String {
    let event = sent(source, body, FORM).event(source).event;
    format!("{:?} {:?}", event.delivery_id.as_deref().unwrap_or(""), event.fields)
}

#[test]
fn the_values_of_a_form_are_fields() {
    let source = form_source("");
    let read = fields(&source, "id=7&tag=a%20b+c&who%5Bname%5D=%C3%A4&other=1&other=2&%zz=1");
    assert!(read.starts_with("\"7\""), "{read}");
    assert!(read.contains("a b c") && read.contains('ä'), "{read}");
    let read = fields(&source, "id=7&tag=");
    assert!(read.contains("nobody"), "{read}");
}

#[test]
fn a_form_that_could_be_read_in_two_ways_is_refused_with_the_name() {
    let source = form_source("");
    for (body, why) in [
        ("id=1&tag=a&tag=a", "`tag` in the form occurs more than once"),
        ("id=1&tag=a&t%61g=b", "`tag` in the form occurs more than once"),
        ("id=1&tag=%4", "`tag` in the form is not percent-encoded properly"),
        ("id=1&tag=%ff", "`tag` in the form is not UTF-8"),
        ("id=1&id=2&tag=a", "`id` in the form occurs more than once"),
    ] {
        match sent(&source, body, FORM).judge(&source) {
            Verdict::Refused(DeliveryRejection::Malformed(what)) => assert_eq!(what, why, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

/// The content type is not signed: it may get a delivery refused, but it never decides how it is read.
#[test]
fn no_header_decides_whether_a_body_is_a_form() {
    let source = form_source("");
    let body = "id=1&tag=a";
    for fits in [None, FORM, Some("Application/X-WWW-Form-Urlencoded; charset=UTF-8")] {
        sent(&source, body, fits).event(&source);
    }
    for other in ["application/json", "multipart/form-data; boundary=x", "text/plain", ""] {
        let refused = sent(&source, body, Some(other)).judge(&source);
        let Verdict::Refused(refusal @ DeliveryRejection::NoForm) = refused else { panic!("{other}: {refused:?}") };
        assert!(refusal.detail().is_some_and(|(_, text)| text.contains("multipart/form-data is not read")));
    }
    let utf16 = sent(&source, body, Some("application/x-www-form-urlencoded; charset=utf-16")).judge(&source);
    let Verdict::Refused(refusal @ DeliveryRejection::NoForm) = utf16 else { panic!("{utf16:?}") };
    let detail = refusal.detail().map(|(_, text)| text).unwrap_or_default();
    assert!(detail.contains("send it as application/x-www-form-urlencoded, in UTF-8"), "{detail}");
    // JSON under the type of a form is no form with these names.
    let json = sent(&source, r#"{"id":"1","tag":"a"}"#, FORM).judge(&source);
    assert!(matches!(json, Verdict::Refused(DeliveryRejection::MissingField(_))), "{json:?}");
}

#[test]
fn a_forged_form_is_refused_and_a_signed_one_is_an_identity() {
    let source = form_source("once = { per = [[\"tag\"]] }");
    let genuine = sent(&source, "id=1&tag=a", FORM);
    let first = genuine.event(&source);
    let forged = SentDelivery { body: "id=1&tag=b".into(), ..genuine }.judge(&source);
    assert!(matches!(forged, Verdict::Refused(DeliveryRejection::BadSignature)), "{forged:?}");
    let same = sent(&source, "id=2&tag=a", FORM).event(&source);
    assert_eq!(first.keys[0].key, same.keys[0].key);
}

#[test]
fn a_token_may_be_in_a_form() {
    let text = "[source.s]\nverify = { scheme = \"token\", at = \"form.token\", secret = { env = \"S\" } }\n\
                fields = { tag = \"form.tag\" }";
    let source = config_with(text, "a-long-token-1").unwrap_or_else(|why| panic!("{why}")).sources[0].clone();
    sent(&source, "token=a-long-token-1&tag=a", FORM).event(&source);
    for body in ["token=a-long-token-2&tag=a", "tag=a", "token=a-long-token-1&token=a-long-token-1", ""] {
        let refused = sent(&source, body, FORM).judge(&source);
        assert!(matches!(refused, Verdict::Refused(DeliveryRejection::BadSignature)), "{body}: {refused:?}");
    }
}

#[test]
fn a_command_of_slack_is_its_trigger() {
    let preset = configured(presets::find("slack-command").expect("a preset"), "");
    let sample = preset.sample("13.5.x", now());
    assert_eq!(sample.header("content-type"), FORM);
    let event = sample.event(&preset.source).event;
    assert_eq!(event.delivery_id.as_deref(), Some("13.5.x"));
    let fields = format!("{:?}", event.fields);
    assert!(fields.contains("/deploy") && fields.contains("web latest"), "{fields}");
    assert!(!fields.contains("hooks.slack.com"), "{fields}");
}

/// JSON under a type that is not JSON's is taken where the config says so, and refused elsewhere.
#[test]
fn what_a_sender_calls_json_is_said_by_the_config() {
    let source = |lines: &str| {
        let text = format!(
            "[source.s]\nverify = {{ scheme = \"hmac\", header = \"x-signature\", secret = {{ env = \"S\" }} }}\n\
             fields = {{ tag = \"body.tag\" }}\n{lines}"
        );
        config_with(&text, "a secret that is long enough").unwrap_or_else(|why| panic!("{why}")).sources[0].clone()
    };
    let body = r#"{"tag":"a"}"#;
    let (usual, report, any) =
        (source(""), source("content_type = \"application/csp-report\""), source("content_type = [\"*/*\"]"));
    for (content_type, taken) in [
        ("application/json", [true, true, true]),
        ("application/cloudevents+json; charset=utf-8", [true, true, true]),
        ("text/plain; charset=UTF-8", [true, true, true]),
        ("application/csp-report", [false, true, true]),
        ("Application/CSP-Report", [false, true, true]),
        ("application/x-www-form-urlencoded", [false, false, true]),
        ("multipart/form-data", [false, false, true]),
        ("application/json; charset=utf-16", [false, false, false]),
        ("application/csp-report; charset=utf-7", [false, false, false]),
    ] {
        for (source, taken) in [&usual, &report, &any].into_iter().zip(taken) {
            match sent(source, body, Some(content_type)).judge(source) {
                Verdict::Events(_) => assert!(taken, "{content_type}"),
                Verdict::Refused(DeliveryRejection::ContentType) => assert!(!taken, "{content_type}"),
                other => panic!("{content_type}: {other:?}"),
            }
        }
    }
}
