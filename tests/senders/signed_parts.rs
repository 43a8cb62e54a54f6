//! Senders that sign only parts of a delivery, or other texts than its bytes: Adyen, Mailgun, Twilio, and the tokens of
//! Netlify and Monday. The signatures are published by the sender, or were made with Python's standard library.

use super::replays::shares_key;
use super::signed_samples::{SentDelivery, config_with, configured_presets, now};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::internals::config::presets;
use serde_json::{Value, json};
use std::sync::Arc;

const BAD: Result<(), DeliveryRejection> = Err(DeliveryRejection::BadSignature);
const AT: Timestamp = Timestamp(1_795_172_800_000_000);

/// The source that `hookonce presets NAME` prints, with this secret.
fn source(preset: &str, secret: &str) -> Arc<Source> {
    source_of(&presets::find(preset).expect(preset).example(), secret)
}

fn source_of(config: &str, secret: &str) -> Arc<Source> {
    config_with(config, secret).unwrap_or_else(|why| panic!("{config}: {why}")).sources[0].clone()
}

fn sent(headers: &[(&str, &str)], body: &(impl ToString + ?Sized)) -> SentDelivery {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
    SentDelivery { headers, query: String::new(), body: body.to_string().into_bytes(), at: AT }
}

/// Checks that this delivery, made from a captured one, is a duplicate of it.
fn check_same(source: &Source, captured: &SentDelivery, made: &SentDelivery) {
    let (first, second) = (captured.event(source), made.event(source));
    assert!(shares_key(&first, &second), "another event: {}", String::from_utf8_lossy(&made.body));
}

/// Of the tests of Adyen's own libraries.
const ADYEN_KEY: &str = "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00";

fn adyen(signature: &str, values: [&str; 5]) -> Value {
    let [psp, original, merchant, reference, code] = values;
    json!({ "live": "false", "notificationItems": [{ "NotificationRequestItem": {
        "additionalData": { "hmacSignature": signature },
        "amount": { "value": 1000, "currency": "EUR" }, "pspReference": psp, "originalReference": original,
        "merchantAccountCode": merchant, "merchantReference": reference, "eventCode": code, "success": "true",
        "reason": "033899:1111:03/2030", "eventDate": "2026-11-20T11:06:40+01:00",
    } }] })
}

fn changed(body: &Value, at: &str, value: Value) -> SentDelivery {
    let mut body = body.clone();
    *body.pointer_mut(&format!("/notificationItems/0/NotificationRequestItem/{at}")).expect(at) = value;
    sent(&[], &body)
}

#[test]
fn a_notification_of_adyen_is_verified_by_its_eight_signed_values() {
    let source = source("adyen", ADYEN_KEY);
    let published = "ipnxGCaUZ4l8TUW75a71/ghd2Fe5ffvX0pV4TLTntIc=";
    let body = adyen(published, ["pspReference", "originalReference", "merchantAccount", "reference", "EVENT"]);
    let genuine = sent(&[], &body);
    genuine.event(&source);
    for (at, value) in [
        ("pspReference", json!("pspReference2")),
        ("originalReference", json!("")),
        ("merchantAccountCode", json!("another")),
        ("merchantReference", json!("Reference")),
        ("amount/value", json!(1001)),
        ("amount/value", json!(1000.0)),
        ("amount/value", json!("1000")),
        ("amount/currency", json!("USD")),
        ("eventCode", json!("REFUND")),
        ("success", json!("false")),
        ("success", json!(true)),
        ("additionalData/hmacSignature", json!("")),
        ("additionalData/hmacSignature", json!(7)),
        ("additionalData", Value::Null),
    ] {
        assert_eq!(changed(&body, at, value.clone()).verify(&source), BAD, "{at}: {value}");
    }
    // What is not signed changes nothing of what it is.
    check_same(&source, &genuine, &changed(&body, "reason", json!("another")));
    check_same(&source, &genuine, &changed(&body, "eventDate", json!("2036-11-20T11:06:40+01:00")));
    assert_eq!(source.verify.signs(), "fields");
    let other = source_of(&presets::find("adyen").expect("a preset").example(), &ADYEN_KEY.replace('D', "E"));
    assert_eq!(genuine.verify(&other), BAD);
}

#[test]
fn no_byte_of_adyens_joined_values_moves_to_another() {
    let source = source("adyen", ADYEN_KEY);
    let signature = "b25F3YQRWUAMChY+w/gBPqGWgp+zFDm7HVZ8R2GggfU=";
    let genuine = adyen(signature, ["psp1", "", "merchant", "order:1:EU", "AUTHORISATION"]);
    let captured = sent(&[], &genuine);
    captured.event(&source);
    for moved in [
        ["psp1:", "merchant", "order", "1:EU", "AUTHORISATION"],
        ["psp1", ":merchant", "order", "1:EU", "AUTHORISATION"],
        ["psp1", "", "merchant:order", "1:EU", "AUTHORISATION"],
        ["psp1", "", "merchant:order:1", "EU", "AUTHORISATION"],
    ] {
        assert_eq!(sent(&[], &adyen(signature, moved)).verify(&source), BAD, "{moved:?}");
    }
    // An empty value and none are signed alike, and are the same event.
    let mut without = genuine.clone();
    without["notificationItems"][0]["NotificationRequestItem"].as_object_mut().unwrap().remove("originalReference");
    check_same(&source, &captured, &sent(&[], &without));
}

#[test]
fn a_delivery_of_adyen_with_a_second_notification_is_refused() {
    let source = source("adyen", ADYEN_KEY);
    let mut body =
        adyen("b25F3YQRWUAMChY+w/gBPqGWgp+zFDm7HVZ8R2GggfU=", ["psp1", "", "merchant", "order:1:EU", "AUTHORISATION"]);
    for second in [body["notificationItems"][0].clone(), json!({}), Value::Null, json!(7)] {
        body["notificationItems"].as_array_mut().expect("a list").truncate(1);
        body["notificationItems"].as_array_mut().expect("a list").push(second.clone());
        let verdict = sent(&[], &body).judge(&source);
        let Verdict::Refused(DeliveryRejection::Malformed(why)) = verdict else { panic!("{second}: {verdict:?}") };
        assert!(why.contains("more than one element"), "{why}");
    }
}

const TOKEN: &str = "a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0";

fn mailgun(timestamp: &Value, token: &str, event: &str) -> SentDelivery {
    let signature = "540e5c99ddbb6e2d3053fb550f8b5016329220d8406095968401f11c19bbb6d8";
    sent(
        &[],
        &json!({ "signature": { "timestamp": timestamp, "token": token, "signature": signature },
            "event-data": { "event": event, "id": event } }),
    )
}

#[test]
fn of_mailgun_the_token_alone_is_one_event() {
    let source = source("mailgun", "key-0123456789abcdef0123456789abcdef");
    let genuine = mailgun(&json!("1795172800"), TOKEN, "delivered");
    assert_eq!(genuine.event(&source).event.delivery_id.as_deref(), Some(TOKEN));
    assert_eq!(source.verify.signs(), "nonce");
    // Nothing of the event is signed, so a captured token comes with anything, and is the same event.
    check_same(&source, &genuine, &mailgun(&json!("1795172800"), TOKEN, "failed"));
    check_same(&source, &genuine, &mailgun(&json!(1_795_172_800), TOKEN, "failed"));
    for (timestamp, token) in [
        (json!("179517280"), format!("0{TOKEN}")),
        (json!("1795172800a"), TOKEN[1..].to_owned()),
        (json!("1795172801"), TOKEN.to_owned()),
        (json!("1795172800"), TOKEN.to_uppercase()),
        (json!("1795172800"), String::new()),
        (json!(1_795_172_800.0), TOKEN.to_owned()),
        (Value::Null, TOKEN.to_owned()),
    ] {
        assert_eq!(mailgun(&timestamp, &token, "delivered").verify(&source), BAD, "{timestamp} {token}");
    }
    let late = SentDelivery { at: AT + Duration::from_hours(10), ..genuine.clone() };
    assert_eq!(late.verify(&source), BAD);
    let twice =
        String::from_utf8(genuine.body.clone()).unwrap().replacen("\"token\":", "\"token\":\"other\",\"token\":", 1);
    assert_eq!(SentDelivery { body: twice.into_bytes(), ..genuine }.verify(&source), BAD);
}

/// Mails of a route come as forms; the key and the signature are those of the events above.
#[test]
fn of_a_mail_of_mailgun_the_token_alone_is_one_event() {
    let source = source("mailgun-form", "key-0123456789abcdef0123456789abcdef");
    let form = |timestamp: &str, token: &str, subject: &str| {
        let signature = "540e5c99ddbb6e2d3053fb550f8b5016329220d8406095968401f11c19bbb6d8";
        let body = format!(
            "recipient=a%40mg.example.com&subject={subject}&timestamp={timestamp}&token={token}&signature={signature}"
        );
        sent(&[("content-type", "application/x-www-form-urlencoded")], &body)
    };
    let genuine = form("1795172800", TOKEN, "hello");
    assert_eq!(genuine.event(&source).event.delivery_id.as_deref(), Some(TOKEN));
    assert_eq!(source.verify.signs(), "nonce");
    check_same(&source, &genuine, &form("1795172800", TOKEN, "forged"));
    check_same(&source, &genuine, &form("1795172800", &TOKEN.replacen('a', "%61", 1), "hello"));
    for (timestamp, token) in [
        ("179517280", format!("0{TOKEN}")),
        ("1795172801", TOKEN.to_owned()),
        ("1795172800", TOKEN.to_uppercase()),
        ("1795172800", String::new()),
        ("1795172800", format!("{TOKEN}&token=other")),
        ("1795172800&timestamp=1", TOKEN.to_owned()),
        ("1795172800", format!("{TOKEN}&signature=00")),
        ("%", TOKEN.to_owned()),
    ] {
        assert_eq!(form(timestamp, &token, "hello").verify(&source), BAD, "{timestamp} {token}");
    }
    let late = SentDelivery { at: AT + Duration::from_hours(10), ..genuine };
    assert_eq!(late.verify(&source), BAD);
}

/// `HubSpot` decodes some escapes of its URL before it signs it, and sends to the URL as it is set.
#[test]
fn a_url_of_hubspot_is_signed_with_its_escapes_decoded() {
    let source = |url: &str| {
        let text = format!("[source.s]\npreset = \"hubspot\"\nsecret = {{ env = \"S\" }}\nurl = \"{url}\"\n");
        source_of(&text, "a secret that is long enough")
    };
    let body = r#"[{"eventId":1,"subscriptionId":2,"portalId":3,"occurredAt":1795172799000,"subscriptionType":"contact.creation","attemptNumber":0,"objectId":4}]"#;
    let signed = sent(
        &[
            ("x-hubspot-request-timestamp", "1795172800000"),
            ("x-hubspot-signature-v3", "dHeF+1MYgrDO1Z9MPZ5z0uL89jD6W1/SIUBWLCrOhKA="),
        ],
        body,
    );
    let at = |query: &str| SentDelivery { query: query.to_owned(), ..signed.clone() };
    let escaped = source("https://hooks.example.com/in/hub%3Aspot?x=a%2Fb%20c%3dd");
    at("x=a%2Fb%20c%3dd").event(&escaped);
    // The query is the one that is set.
    assert_eq!(at("x=a/b%20c=d").verify(&escaped), BAD);
    assert_eq!(at("x=a/b%20c=d").verify(&source("https://hooks.example.com/in/hub:spot?x=a/b%20c=d")), Ok(()));
    // What is not in HubSpot's list stays as it is.
    let other = source("https://hooks.example.com/in/hub%3Aspot?x=a%2Fb%20c%3d%64");
    assert_eq!(at("x=a%2Fb%20c%3d%64").verify(&other), BAD);
}

const TWILIO_URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
const FORM: &str = "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212";

fn twilio(signature: &str, query: &str, body: &str) -> SentDelivery {
    let headers =
        [("content-type", "application/x-www-form-urlencoded; charset=UTF-8"), ("x-twilio-signature", signature)];
    SentDelivery { query: query.to_owned(), ..sent(&headers, body) }
}

fn twilio_source(url: &str) -> Arc<Source> {
    source_of(&format!("[source.twilio]\npreset = \"twilio\"\nsecret = {{ env = \"S\" }}\nurl = \"{url}\"\n"), "12345")
}

/// A source of Twilio that reads no value of a form: its bodies may be anything.
fn twilio_source_of_any_body(url: &str) -> Arc<Source> {
    source_of(&format!("[source.twilio]\nverify = \"twilio\"\nsecret = {{ env = \"S\" }}\nurl = \"{url}\"\n"), "12345")
}

/// The example of Twilio's documentation.
#[test]
fn twilios_joined_form_is_one_event_however_it_is_written() {
    let source = twilio_source(TWILIO_URL);
    let signature = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";
    let captured = twilio(signature, "foo=1&bar=2", FORM);
    captured.event(&source);
    let newer = FORM.replace("14158675309", "12349013030");
    twilio("0/KCTR6DLpKmkAf8muzZqo1nDgQ=", "foo=1&bar=2", &newer).event(&source);
    // The same values in another order, twice, in other escapes, or cut at other places have the same signature.
    for same in [
        "To=%2B18005551212&From=%2B14158675309&Digits=1234&Caller=%2B14158675309&CallSid=CA1234567890ABCDE",
        &format!("{FORM}&Digits=1234"),
        &FORM.replace("1234&", "123%34&"),
        &FORM.replace("Digits=1234", "Digits1=234"),
        &FORM.replace("CallSid=CA1234567890ABCDE&Caller=", "CallSidCA1234567890ABCDECaller="),
    ] {
        check_same(&source, &captured, &twilio(signature, "foo=1&bar=2", same));
    }
    for (query, body) in [
        ("foo=1&bar=2", &*FORM.replace("1234&", "1235&")),
        ("foo=1&bar=2", &*format!("{FORM}&More=1")),
        ("foo=1&bar=2", &*FORM.replace("%2B1800", "+1800")),
        ("foo=1&bar=2", &*FORM.replace("1234&", "123%3&")),
        ("foo=1&bar=2", "{}"),
        ("foo=1&bar=2", ""),
        ("foo=1&bar=3", FORM),
        ("bar=2&foo=1", FORM),
        ("foo=1&bar=2&x=1", FORM),
        ("", FORM),
    ] {
        assert_eq!(twilio(signature, query, body).verify(&source), BAD, "{query} {body}");
    }
    for wrong in ["", "RSOYDt4T1cUTdK1PDd93/VVr8B8", "rsOYDt4T1cUTdK1PDd93/VVr8B8=", "0/KCTR6DLpKmkAf8muzZqo1nDgQ="] {
        assert_eq!(twilio(wrong, "foo=1&bar=2", FORM).verify(&source), BAD, "{wrong}");
    }
}

#[test]
fn a_body_of_twilio_that_is_no_form_is_verified_by_its_digest_in_the_url() {
    let digest = "6a3121d9d840cdc1f52112ef3fb72e6aa683a84dd976609959779810489b0910";
    let body = r#"{"event":"delivered"}"#;
    for (url, before, signature) in [
        (TWILIO_URL, "foo=1&bar=2&", "yoUGovcnG5gYyMvJ1QekQkafjrQ="),
        ("https://mycompany.com/myapp.php", "", "9xbyPNDLEwtCsia563UgAXFRTEE="),
    ] {
        let source = twilio_source_of_any_body(url);
        let query = format!("{before}bodySHA256={digest}");
        let json =
            |query: &str, body: &str| twilio(signature, query, body).with_header("content-type", "application/json");
        json(&query, body).event(&source);
        assert_eq!(json(&query, r#"{"event":"deliverer"}"#).verify(&source), BAD);
        assert_eq!(json(&query.to_uppercase(), body).verify(&source), BAD);
        assert_eq!(json(&format!("{query}&x=1"), body).verify(&source), BAD);
        // Nobody makes a form of it, whose first name would be the end of the URL.
        let separator = if before.is_empty() { "%3F" } else { "%26" };
        let form = format!("{separator}bodySHA256%3D{digest}");
        assert_eq!(twilio(signature, before.trim_end_matches('&'), &form).verify(&source), BAD);
    }
}

/// Twilio's own libraries try both; the signatures are Python's.
#[test]
fn twilios_url_counts_with_and_without_its_port() {
    let (https, port_443) = ("RSOYDt4T1cUTdK1PDd93/VVr8B8=", "kvajT1Ptam85bY51eRf/AJRuM3w=");
    let (port_8443, port_444) = ("ZOaJEsozlsUyzk5k5fpaCxTxXDA=", "2zWmQRLfQp/yKtBKp/CVnmZqWoI=");
    let http_80 = "0ZXoZLH/DfblKGATFgpif+LLRf4=";
    let with = |port: &str| TWILIO_URL.replace("mycompany.com", &format!("mycompany.com{port}"));
    for (url, right, wrong) in [
        (with(""), &[https, port_443][..], &[port_8443, port_444, http_80][..]),
        (with(":443"), &[https, port_443], &[port_8443, port_444, http_80]),
        (with(":8443"), &[https, port_8443], &[port_443, port_444, http_80]),
        (with("").replace("https", "http"), &[http_80], &[https, port_443, port_8443]),
    ] {
        let source = twilio_source(&url);
        for signature in right {
            assert_eq!(twilio(signature, "foo=1&bar=2", FORM).verify(&source), Ok(()), "{url}: {signature}");
            assert_eq!(twilio(signature, "foo=1&bar=2", &format!("{FORM}&a=1")).verify(&source), BAD, "{url}");
        }
        for signature in wrong {
            assert_eq!(twilio(signature, "foo=1&bar=2", FORM).verify(&source), BAD, "{url}: {signature}");
        }
    }
    // However it is signed, it is one event.
    check_same(&twilio_source(TWILIO_URL), &twilio(https, "foo=1&bar=2", FORM), &twilio(port_443, "foo=1&bar=2", FORM));
}

#[test]
fn a_json_body_of_twilio_is_read_where_its_digest_is_signed() {
    let url = "https://mycompany.com/myapp.php";
    let preset = format!("[source.twilio]\npreset = \"twilio-json\"\nsecret = {{ env = \"S\" }}\nurl = \"{url}\"\n");
    let source = source_of(&preset, "12345");
    let digest = "6a3121d9d840cdc1f52112ef3fb72e6aa683a84dd976609959779810489b0910";
    let query = format!("bodySHA256={digest}");
    let body = r#"{"event":"delivered"}"#;
    let json = |signature: &str, query: &str, body: &str| {
        twilio(signature, query, body).with_header("content-type", "application/json")
    };
    // With and without the port.
    for signature in ["9xbyPNDLEwtCsia563UgAXFRTEE=", "MQYsHd8d2h31CM1e9l/lPxjKfSE="] {
        json(signature, &query, body).event(&source);
        for (query, body) in [
            (&*query, r#"{"event":"deliverer"}"#),
            ("", body),
            (&query.to_uppercase(), body),
            (&format!("{query}&x=1"), body),
            (&format!("x=1&{query}"), body),
        ] {
            assert_eq!(json(signature, query, body).verify(&source), BAD, "{query} {body}");
        }
    }
    // A form has no digest, and what is signed of it is not its bytes.
    let form = twilio_source(url).verify.proof("", AT, FORM.as_bytes()).into_iter().next().expect("a signature").1;
    assert_eq!(twilio(&form, "", FORM).verify(&source), BAD);
    assert_eq!(source.verify.signs(), "body");
}

/// The URL and the form are joined with nothing between them, and all receivers of an account have one token.
#[test]
fn what_twilio_signed_for_a_longer_url_is_no_form_for_this_one() {
    let source = twilio_source("https://mycompany.com/in/tw");
    let form = "AccountSid=AC00000000000000000000000000000000&Body=a&MessageSid=SM1";
    let signed = |url: &str, form: &str| {
        let proof = twilio_source(url).verify.proof("", AT, form.as_bytes());
        proof.into_iter().next().expect("a signature").1
    };
    twilio(&signed("https://mycompany.com/in/tw", form), "", form).event(&source);
    for (rest, forged) in [
        ("ilio", format!("ilio{form}")),
        ("A", format!("A{form}")),
        ("From15005550006", format!("From=15005550006&{form}")),
        ("ABC", format!("ABC=&{form}")),
        ("/x", format!("%2Fx{form}")),
        ("?x", format!("%3Fx{form}")),
    ] {
        let signature = signed(&format!("https://mycompany.com/in/tw{rest}"), form);
        assert_eq!(twilio(&signature, "", &forged).verify(&source), BAD, "{rest}");
    }
    // Another sender of the account may name its own values with any letters, after Twilio's.
    let own = format!("{form}&_a=1&a%5B0%5D=2");
    twilio(&signed("https://mycompany.com/in/tw", &own), "", &own).event(&source);
}

#[test]
fn a_form_of_twilio_with_too_many_values_is_refused_before_it_is_read() {
    let source = twilio_source("https://mycompany.com/in/tw");
    let form = |count: usize| {
        let more = (0..count).fold(String::new(), |all, n| all + &format!("&b{n}=1"));
        format!("AccountSid=AC00000000000000000000000000000000{more}")
    };
    let scheme = &source.verify;
    let proof = |count: usize| scheme.proof("", AT, form(count).as_bytes()).into_iter().next().map(|proof| proof.1);
    twilio(&proof(999).expect("a signature"), "", &form(999)).event(&source);
    assert_eq!(proof(1_000), None);
    let began = std::time::Instant::now();
    for signature in ["AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="] {
        assert_eq!(twilio(signature, "", &"a&".repeat(12 << 20)).verify(&source), BAD);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_token_of_netlify_is_for_one_body() {
    let source = source("netlify", "a JWS secret of ours");
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiAibmV0bGlmeSIsICJzaGEyNTYiOiAiMDZiNWE3ZmMzMDQyMDEyOTg5YTdhMDBmMzk3YTExYTVhNTRlNzliMTYyZWE1MjFjOTAzMmJhZjFhMTI1OTgwOSJ9.NiHOTJPTmuO3JMWKovp9ae99hDXPjYKOgov5NIxvqu8";
    let body = r#"{"id":"65c3","name":"sample","state":"ready"}"#;
    sent(&[("x-webhook-signature", token)], body).event(&source);
    assert_eq!(source.verify.signs(), "body");
    assert_eq!(sent(&[("x-webhook-signature", token)], &body.replace("ready", "error")).verify(&source), BAD);
    assert_eq!(sent(&[], body).verify(&source), BAD);
    let of_another = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiAibmV0dGxpZnkiLCAic2hhMjU2IjogIjA2YjVhN2ZjMzA0MjAxMjk4OWE3YTAwZjM5N2ExMWE1YTU0ZTc5YjE2MmVhNTIxYzkwMzJiYWYxYTEyNTk4MDkifQ.7eJD6K-0BbDkkZbkgg26MjbdYQEPm85uniG8E6HTSck";
    assert_eq!(sent(&[("x-webhook-signature", of_another)], body).verify(&source), BAD);
    let unsigned = format!("{}.", token.rsplit_once('.').expect("a token").0)
        .replace("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "eyJhbGciOiJub25lIn0");
    assert_eq!(sent(&[("x-webhook-signature", &unsigned)], body).verify(&source), BAD);
}

#[test]
fn a_token_of_monday_comes_with_any_body_until_it_expires() {
    let source = source("monday", "a signing secret of ours");
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJhY2NvdW50SWQiOiAxODI1NTI5LCAidXNlcklkIjogNDAxMjY4OSwgImF1ZCI6ICJodHRwczovL2hvb2tzLmV4YW1wbGUuY29tIiwgImV4cCI6IDE3OTUxNzMxMDAsICJpYXQiOiAxNzk1MTcyODAwfQ.lEhBH2RnzEmwVT0j2nS-hPetVjAgDjei4JzC65HSpWU";
    let body =
        json!({ "event": { "type": "create_pulse", "boardId": 1, "pulseId": 2, "userId": 3, "triggerUuid": "t-1" } });
    let genuine = sent(&[("authorization", token)], &body);
    assert_eq!(genuine.event(&source).event.delivery_id.as_deref(), Some("t-1"));
    assert_eq!(source.verify.signs(), "token");
    assert_eq!(sent(&[("authorization", &format!("Bearer {token}"))], &body).verify(&source), BAD);
    assert_eq!(SentDelivery { at: AT + Duration::from_mins(11), ..genuine }.verify(&source), BAD);
}

/// A token for another endpoint of the app, and one that never ends, would come with any body.
#[test]
fn a_token_of_monday_is_for_this_endpoint_and_has_an_end() {
    let jwt = |body_digest: &str| {
        source_of(
            &format!(
                "[source.s]\nverify = {{ scheme = \"jwt\", header = \"authorization\", prefix = \"\"{body_digest} }}\nsecret = {{ env = \"S\" }}\naudience = \"https://hooks.example.com\"\n"
            ),
            "a signing secret of ours",
        )
    };
    let monday = source("monday", "a signing secret of ours");
    let signed = |claims: Value| {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&json!({ "alg": "HS256" })), part(&claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"a signing secret of ours");
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes())));
        sent(&[("authorization", &token)], &json!({ "event": { "triggerUuid": "t-1" } }))
    };
    let now = AT.0 / 1_000_000;
    let claims = json!({ "aud": "https://hooks.example.com", "exp": now + 300, "iat": now });
    let but = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        signed(claims)
    };
    for source in [&monday, &jwt("")] {
        assert_eq!(signed(claims.clone()).verify(source), Ok(()));
        for (name, value) in [
            ("aud", json!("https://hooks.example.org")),
            ("aud", Value::Null),
            ("exp", Value::Null),
            ("exp", json!(now - 301)),
            ("iat", json!(now + 301)),
        ] {
            assert_eq!(but(name, value.clone()).verify(source), BAD, "{name}: {value}");
        }
        let endless = signed(json!({ "aud": "https://hooks.example.com", "iat": now }));
        assert_eq!(endless.verify(source), BAD);
    }
    // With the digest of its body, it is for one delivery.
    let digest = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &signed(claims.clone()).body));
    let endless = signed(json!({ "aud": "https://hooks.example.com", "sha256": digest }));
    assert_eq!(endless.verify(&jwt(", body_digest = \"sha256\"")), Ok(()));
}

#[test]
fn headers_that_contradict_signed_json_are_refused_for_every_sender() {
    for preset in configured_presets() {
        let verify = &preset.source.verify;
        let sample = preset.sample("id-1", now());
        if verify.signs() == "token" || verify.is_none() || !sample.body.starts_with(b"{") {
            continue;
        }
        assert_eq!(sample.verify(&preset.source), Ok(()), "{}", preset.name());
        for (name, value) in [
            ("content-type", "application/json; charset=utf-16"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-type", "text/csv"),
            ("content-encoding", "gzip"),
        ] {
            let refused = sample.with_header(name, value).verify(&preset.source);
            let json_forms = verify.reads_json_forms();
            let right = match refused {
                Err(DeliveryRejection::ContentType) => !json_forms,
                Err(DeliveryRejection::NeitherJsonNorForm) => json_forms,
                Err(DeliveryRejection::Malformed(_)) => true,
                _ => false,
            };
            assert!(right, "{}: {value}: {refused:?}", preset.name());
        }
    }
}
