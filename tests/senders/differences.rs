//! What the operator is told of a delivery that is refused: which part was expected where, and what is there instead.

use super::sender_keys::{SignedWith, token};
use super::signed_samples::{ConfiguredPreset, SentDelivery, config_with, configured_presets, now};
use hookonce::internals::cli::SampleDelivery;
use hookonce::internals::config::presets::PRESETS;
use serde_json::{Value, json};

const MINUTE: i64 = 60;

fn preset(name: &str) -> ConfiguredPreset {
    let found = configured_presets().into_iter().find(|preset| preset.name() == name);
    found.unwrap_or_else(|| panic!("no preset {name}"))
}

/// Checks that the delivery is refused, and that this is told to be there instead.
fn check(preset: &ConfiguredPreset, sent: &SentDelivery, found: &str) {
    assert!(sent.verify(&preset.source).is_err(), "{found}");
    let told = sent.told(&preset.source);
    assert!(
        told.starts_with("expected ") && told.ends_with(&format!("; found: {found}")),
        "{found:?} is not in {told}"
    );
    assert!(!told.contains("long enough"), "a secret: {told}");
}

fn json_body(sent: &SentDelivery) -> Value {
    serde_json::from_slice(&sent.body).expect("JSON")
}

fn with_body(sent: &SentDelivery, change: impl FnOnce(&mut Value)) -> SentDelivery {
    let mut body = json_body(sent);
    change(&mut body);
    SentDelivery { body: body.to_string().into_bytes(), ..sent.clone() }
}

#[test]
fn of_every_preset_it_is_told_where_what_was_expected() {
    let silent: Vec<_> = configured_presets()
        .iter()
        .filter(|preset| !preset.source.verify.is_none())
        .filter(|preset| {
            let empty = SentDelivery { headers: Vec::new(), query: String::new(), body: b"{}".to_vec(), at: now() };
            let told =
                [empty.told(&preset.source), preset.forge(&preset.sample("id-1", now()), "id-1").told(&preset.source)];
            told.iter().any(|told| !told.starts_with("expected ") || !told.contains("; found: "))
        })
        .map(ConfiguredPreset::name)
        .collect();
    assert_eq!(silent, Vec::<&str>::new());
    assert!(PRESETS.len() > 60);
}

#[test]
fn a_wrong_token_tells_which_claim_is_wrong() {
    let preset = preset("github-actions");
    let seconds = now().0 / 1_000_000;
    let right = json!({
        "iss": "https://token.actions.githubusercontent.com", "aud": "https://hooks.example.com", "jti": "id-1",
        "repository": "owner/name", "iat": seconds, "nbf": seconds, "exp": seconds + 5 * MINUTE,
    });
    let sample = preset.sample("id-1", now());
    let bearer = |text: String| sample.with_header("authorization", format!("Bearer {text}"));
    let signed = |claims: &Value| bearer(token(claims, SignedWith::Published));
    assert_eq!(signed(&right).verify(&preset.source), Ok(()));
    let with = |name: &str, value: Value| {
        let mut claims = right.clone();
        claims[name] = value;
        signed(&claims)
    };
    let without = |name: &str| {
        let mut claims = right.clone();
        claims.as_object_mut().expect("an object").remove(name);
        signed(&claims)
    };
    for (sent, found) in [
        (with("aud", json!("https://hooks.example.org")), "another value of the claim aud"),
        (without("aud"), "no claim aud"),
        (with("iss", json!("https://token.example.org")), "another value of the claim iss"),
        (with("repository", json!("another/name")), "another value of the claim repository"),
        (without("repository"), "no claim repository"),
        (with("exp", json!(seconds - 65 * MINUTE)), "a token that expired 65m ago"),
        (with("exp", json!("soon")), "no time in the claim exp"),
        (without("exp"), "no claim exp"),
        (with("nbf", json!(seconds + 12 * MINUTE)), "a time that is 12m ahead in the claim nbf"),
        (bearer(token(&right, SignedWith::Forged)), "a signature of other bytes, or with another key"),
        (bearer("no.token".into()), "no whole token"),
        (sample.with_header("authorization", "Basic YTpi"), "no Bearer at its beginning"),
        (sample.with_header("authorization", ""), "an empty header"),
    ] {
        // Another key than the published ones may be a new one, which is fetched before it is refused.
        check(&preset, &sent, found);
    }
    // A token may be longer than any other signature.
    check(&preset, &with("aud", json!("x".repeat(6_000))), "another value of the claim aud");
    let told = with("aud", json!("x")).told(&preset.source);
    let expected = "expected header authorization with Bearer and a token (JWT), issuer \
                    https://token.actions.githubusercontent.com, audience https://hooks.example.com, repository owner/name;";
    assert!(told.starts_with(expected), "{told}");
}

#[test]
fn a_wrong_notification_of_adyen_tells_which_value_is_wrong() {
    let preset = preset("adyen");
    let sample = preset.sample("id-1", now());
    assert_eq!(sample.verify(&preset.source), Ok(()));
    let item = |change: &dyn Fn(&mut Value)| {
        with_body(&sample, |body| change(&mut body["notificationItems"][0]["NotificationRequestItem"]))
    };
    let signature = |text: &str| {
        let text = text.to_owned();
        item(&move |item| item["additionalData"]["hmacSignature"] = json!(text))
    };
    for (sent, found) in [
        (item(&|item| item["amount"]["value"] = json!(1)), "a signature of other values, or with another secret"),
        (item(&|item| item["amount"]["value"] = json!("1")), "a value of another type in amount.value"),
        (item(&|item| item["eventCode"] = Value::Null), "no eventCode in the notification"),
        (item(&|item| item["pspReference"] = json!("a:b")), "a colon in pspReference"),
        (item(&|item| item["additionalData"] = json!({})), "no signature there"),
        (signature("no base64"), "a signature that is not base64"),
        (signature("AAAA"), "a signature of another length"),
        (SentDelivery { body: b"[".to_vec(), ..sample.clone() }, "a body that is not JSON"),
        (preset.forge(&sample, "id-1"), "a signature of other values, or with another secret"),
    ] {
        check(&preset, &sent, found);
    }
}

#[test]
fn a_wrong_form_of_twilio_tells_what_is_wrong_with_it() {
    const HEADER: &str = "x-twilio-signature";
    let preset = preset("twilio");
    let sample = preset.sample("id-1", now());
    assert_eq!(sample.verify(&preset.source), Ok(()));
    let other = "a signature of another URL or of other values, or with another secret";
    let body = |text: &str| SentDelivery { body: text.into(), ..sample.clone() };
    let query = |text: &str| SentDelivery { query: text.into(), ..sample.clone() };
    for (sent, found) in [
        (preset.forge(&sample, "id-1"), other),
        (body("AccountSid=ACother"), other),
        (body("From=x"), "a form that does not begin with AccountSid or CallSid"),
        (body("a=%zz"), "a body that is no form"),
        (query("step=1"), "a query that is not that of the signed URL"),
        (query("bodySHA256=00"), "the digest of another body in bodySHA256"),
        (sample.with_header(HEADER, "no base64"), "a signature that is not base64"),
        (sample.with_header(HEADER, "AAAA"), "a signature of another length"),
    ] {
        check(&preset, &sent, found);
    }
}

#[test]
fn a_wrong_message_of_sns_or_paypal_tells_what_is_wrong_with_it() {
    let sns = preset("sns");
    let sample = sns.sample("id-1", now());
    assert_eq!(sample.verify(&sns.source), Ok(()));
    let with = |name: &str, value: &str| with_body(&sample, |body| body[name] = json!(value));
    let without = |name: &str| with_body(&sample, |body| drop(body.as_object_mut().expect("an object").remove(name)));
    for (sent, found) in [
        (with("TopicArn", "arn:aws:sns:eu-west-1:123456789012:another"), "another topic in TopicArn"),
        (without("TopicArn"), "an unknown Type, or not all values that are signed with it"),
        (with("Timestamp", "2026-02-05T16:20:40Z"), "a time that is 2d ago, at most 1d"),
        (with("SignatureVersion", "3"), "another SignatureVersion than 1 and 2"),
        (
            with("SigningCertURL", "https://sns.example.com/a.pem"),
            "a certificate elsewhere than at https://sns.eu-west-1.amazonaws.com",
        ),
        (with("Message", "another"), "a signature of other values, or with another key"),
        (with("Signature", "no base64"), "a signature that is not base64"),
        (without("Signature"), "no Signature"),
        (sns.forge(&sample, "id-1"), "a signature of other values, or with another key"),
    ] {
        check(&sns, &sent, found);
    }
    let paypal = preset("paypal");
    let sample = paypal.sample("id-1", now());
    assert_eq!(sample.verify(&paypal.source), Ok(()));
    let with = |name: &str, value: &str| sample.with_header(&format!("paypal-{name}"), value);
    for (sent, found) in [
        (with("transmission-time", "2026-02-01T16:20:40Z"), "a time that is 6d ago, at most 4d"),
        (with("transmission-time", "now"), "no time in paypal-transmission-time"),
        (with("auth-algo", "SHA1withRSA"), "another way to sign in paypal-auth-algo than SHA256withRSA"),
        (with("cert-url", "https://evil.example"), "a certificate elsewhere than at https://api.paypal.com"),
        (with("transmission-id", ""), "no header paypal-transmission-id, or more than one"),
        (paypal.forge(&sample, "id-1"), "a signature of other values, or with another key"),
    ] {
        check(&paypal, &sent, found);
    }
}

#[test]
fn a_sample_of_a_token_with_a_shared_secret_has_the_claims_it_must_have() {
    let text = "[source.s]\nverify = { scheme = \"jwt\", secret = { env = \"S\" }, issuer = \"us\", audience = \"you\", \
                claims = { role = [\"writer\", \"admin\"], 'org.team.name' = \"a team\" } }\ndelivery = \"claim.jti\"\n";
    let config = config_with(text, "a secret that is long enough").expect("a config");
    let source = &config.sources[0];
    let SampleDelivery { headers, query, body } =
        SampleDelivery::new(source, None, "id-1", now()).expect("a sample can be made");
    let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    let sent = SentDelivery { headers, query, body, at: now() };
    assert_eq!(sent.verify(source), Ok(()), "{}", sent.told(source));
    assert_eq!(sent.event(source).event.delivery_id.as_deref(), Some("id-1"));
}
