//! Tokens, notifications and certificates that were made outside of hookonce, with the command `openssl` and Python's
//! standard library: those that are right are events, all others are refused.

use super::seed::{self, Random};
use super::signed_samples::{SentDelivery, config_with};
use hookonce::decide::delivery::{Delivery, DeliveryRejection, borrow_headers};
use hookonce::decide::field::FieldValue;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::verify::{
    JwtKeys, JwtScheme, KeyDirectory, KeyDocument, KeyRequest, PublishedKey, SourceSecrets, VerificationScheme,
};
use hookonce::internals::config::presets;
use hookonce::internals::key_fetch::FetchedKeys;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Deserialize)]
struct PublishedKeyVectors {
    /// When everything arrived.
    at: String,
    jwks: Value,
    /// An X.509 certificate in PEM.
    certificate: String,
    /// Tokens by what is said of them.
    good: BTreeMap<String, String>,
    bad: BTreeMap<String, String>,
    /// Tokens whose key is not known: whether they are genuine cannot be said.
    unknown: BTreeMap<String, String>,
    sns: BTreeMap<String, String>,
    paypal: PaypalVector,
}

#[derive(Deserialize)]
struct PaypalVector {
    webhook_id: String,
    body: String,
    headers: BTreeMap<String, String>,
}

const BAD: Result<(), DeliveryRejection> = Err(DeliveryRejection::BadSignature);
const MUTANTS: usize = 2_000;
const SNS_CERTIFICATE: &str = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem";

fn vectors() -> PublishedKeyVectors {
    serde_json::from_str(include_str!("published_keys.json")).expect("vectors")
}

impl PublishedKeyVectors {
    /// A source with this preset, which has learnt the keys.
    fn source(&self, preset: &str) -> Arc<Source> {
        let example = presets::find(preset).expect(preset).example().replace('…', &self.paypal.webhook_id);
        let config = config_with(&example, "").unwrap_or_else(|why| panic!("{preset}: {why}"));
        let keys = config.fetched_keys.values().next().expect("published keys");
        keys.learn_key_set(self.jwks.to_string().as_bytes()).expect("a key set");
        for url in [SNS_CERTIFICATE, &self.paypal.headers["paypal-cert-url"]] {
            keys.learn_certificate(url, self.certificate.as_bytes()).expect("a certificate");
        }
        config.sources[0].clone()
    }

    fn at(&self) -> Timestamp {
        Timestamp::parse(&self.at).expect("a time")
    }

    fn sent(&self, headers: &[(&str, &str)], body: &str) -> SentDelivery {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        SentDelivery { headers, query: String::new(), body: body.into(), at: self.at() }
    }

    fn with_token(&self, token: &str) -> SentDelivery {
        self.sent(&[("authorization", &format!("Bearer {token}"))], r#"{"image":"app"}"#)
    }

    fn notification(&self, body: &str) -> SentDelivery {
        self.sent(&[("content-type", "text/plain; charset=UTF-8")], body)
    }

    fn paypal(&self) -> SentDelivery {
        let headers: Vec<_> = self.paypal.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.sent(&headers, &self.paypal.body)
    }
}

/// Checks that each byte of a delivery that is another makes it a forgery.
fn check_mutants(source: &Source, genuine: &SentDelivery, text: &[u8], put: impl Fn(Vec<u8>) -> SentDelivery) {
    assert_eq!(genuine.verify(source), Ok(()));
    let mut random = Random::new(seed::given_or(15));
    for _ in 0..MUTANTS {
        let mut mutant = text.to_vec();
        let at = random.index(mutant.len());
        match random.below(4) {
            0 => mutant.insert(at, b'A' + u8::try_from(random.below(26)).expect("a letter")),
            1 => drop(mutant.remove(at)),
            2 => mutant.truncate(at),
            _ => mutant[at] = random.one(b"ABab01-_.+/= {}\"\\,:"),
        }
        if mutant != text {
            let verified = put(mutant.clone()).verify(source);
            assert!(verified.is_err(), "{}", String::from_utf8_lossy(&mutant));
        }
    }
}

#[test]
fn a_token_of_each_algorithm_is_an_event_with_its_claims_as_fields() {
    let vectors = vectors();
    let source = vectors.source("github-actions");
    for (what, token) in &vectors.good {
        let event = vectors.with_token(token).event(&source).event;
        assert_eq!(event.delivery_id.as_deref(), Some("jti-1"), "{what}");
        let field =
            |name: &str| event.fields.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.clone());
        assert_eq!(field("repository"), Some(FieldValue::Text("owner/name".into())), "{what}");
        assert_eq!(field("run_id"), Some(FieldValue::Text("123".into())), "{what}");
    }
}

#[test]
fn a_token_that_is_wrong_in_any_way_is_refused_without_asking_for_a_key() {
    let vectors = vectors();
    let source = vectors.source("github-actions");
    for (what, token) in &vectors.bad {
        assert_eq!(vectors.with_token(token).verify(&source), Err(DeliveryRejection::BadSignature), "{what}");
    }
    let good = &vectors.good["RS256"];
    let long = format!("{}{good}", "A".repeat(17_000));
    for token in ["", ".", "..", "a.b.c", &good[..good.len() - 1], &format!("{good}."), &format!("{good}="), &long] {
        assert_eq!(vectors.with_token(token).verify(&source), Err(DeliveryRejection::BadSignature), "{token}");
    }
    for scheme in ["", "Basic ", "Bearer  ", "Bearer\t"] {
        let sent = vectors.sent(&[("authorization", &format!("{scheme}{good}"))], "{}");
        assert_eq!(sent.verify(&source), Err(DeliveryRejection::BadSignature), "{scheme:?}");
    }
    let twice = [("authorization", &*format!("Bearer {good}")), ("authorization", &*format!("Bearer {good}"))];
    assert_eq!(vectors.sent(&twice, "{}").verify(&source), Err(DeliveryRejection::BadSignature));
    let late = SentDelivery { at: vectors.at() + Duration::from_mins(11), ..vectors.with_token(good) };
    assert_eq!(late.verify(&source), Err(DeliveryRejection::BadSignature));
}

/// Google documents both spellings; no other issuer has two.
#[test]
fn google_is_the_issuer_of_a_token_in_both_of_its_spellings() {
    let scheme = |issuer: &str| {
        VerificationScheme::new(JwtScheme {
            keys: JwtKeys::Shared(SourceSecrets::new(vec![b"a secret that is long enough".to_vec()])),
            header: "authorization".into(),
            prefix: "Bearer ".into(),
            issuer: Some(issuer.into()),
            audience: Some("me".into()),
            claims: Vec::new(),
            body_digest: None,
            without_expiry: false,
            tolerance: Duration::from_mins(5),
        })
    };
    let at = vectors().at();
    let verifies = |issuer: &str, of: &str| {
        let headers = scheme(of).proof("id-1", at, b"{}");
        let headers: Vec<_> = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let body = bytes::Bytes::from_static(b"{}");
        let headers = borrow_headers(&headers);
        let delivery = Delivery { path: "/", query: "", headers: &headers, body: &body, at, wall: at };
        scheme(issuer).verify(&delivery).is_ok()
    };
    let (google, bare) = ("https://accounts.google.com", "accounts.google.com");
    for (issuer, of, right) in [
        (google, google, true),
        (google, bare, true),
        (bare, google, true),
        (google, "https://accounts.google.com/", false),
        (google, "http://accounts.google.com", false),
        (google, "https://accounts.google.com.evil.example", false),
        ("https://gitlab.com", "gitlab.com", false),
        ("https://gitlab.com", google, false),
        (google, "https://gitlab.com", false),
    ] {
        assert_eq!(verifies(issuer, of), right, "{issuer} {of}");
    }
}

#[test]
fn a_token_of_an_unknown_key_asks_for_it_unless_its_claims_are_wrong() {
    let vectors = vectors();
    let source = vectors.source("github-actions");
    for (what, token) in &vectors.unknown {
        let refused = vectors.with_token(token).verify(&source);
        assert!(matches!(refused, Err(DeliveryRejection::KeyUnavailable(_))), "{what}: {refused:?}");
        // Once it has expired, no key could make it right.
        let late = SentDelivery { at: vectors.at() + Duration::from_hours(1), ..vectors.with_token(token) };
        assert_eq!(late.verify(&source), Err(DeliveryRejection::BadSignature), "{what}");
    }
}

/// Trying each of them would be work that anyone can cause.
#[test]
fn a_token_without_a_key_id_is_refused_where_there_are_many_keys() {
    let vectors = vectors();
    let key = &vectors.jwks["keys"][1];
    let example = presets::find("github-actions").expect("a preset").example();
    for (count, right) in [(4, true), (5, false)] {
        let config = config_with(&example, "").expect("a config");
        let keys = json!({ "keys": vec![key; count] });
        config.fetched_keys["github-actions"].learn_key_set(keys.to_string().as_bytes()).expect("a key set");
        let sent = vectors.with_token(&vectors.good["without kid, ES256"]);
        assert_eq!(sent.verify(&config.sources[0]).is_ok(), right, "{count} keys");
    }
}

#[test]
fn of_two_thousand_mutants_of_a_token_none_is_verified() {
    let vectors = vectors();
    let source = vectors.source("github-actions");
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let token = &vectors.good[algorithm];
        check_mutants(&source, &vectors.with_token(token), token.as_bytes(), |mutant| {
            vectors.with_token(&String::from_utf8_lossy(&mutant))
        });
    }
}

#[test]
fn notifications_of_sns_in_both_versions_are_events_and_other_messages_are_verified() {
    let vectors = vectors();
    let source = vectors.source("sns");
    for (what, body) in &vectors.sns {
        let sent = vectors.notification(body);
        assert_eq!(sent.verify(&source), Ok(()), "{what}");
        let is_event = matches!(sent.judge(&source), Verdict::Events(_));
        assert_eq!(is_event, !["confirmation", "unsubscribe"].contains(&&**what), "{what}");
    }
}

#[test]
fn a_notification_with_another_signed_value_is_refused() {
    let vectors = vectors();
    let source = vectors.source("sns");
    let changed = |of: &str, change: &dyn Fn(&mut Value)| {
        let mut body: Value = serde_json::from_str(&vectors.sns[of]).expect("JSON");
        change(&mut body);
        vectors.notification(&body.to_string()).verify(&source)
    };
    for (name, value) in [
        ("Message", json!("Hello")),
        ("MessageId", json!("other")),
        ("Subject", json!("Another")),
        ("Subject", Value::Null),
        ("Timestamp", json!("2026-11-20T11:06:41.104Z")),
        ("TopicArn", json!("arn:aws:sns:eu-west-1:123456789012:other")),
        ("Type", json!("SubscriptionConfirmation")),
        ("Type", json!("Other")),
        ("SignatureVersion", json!("1")),
        ("SignatureVersion", json!(2)),
        ("Signature", json!("")),
        ("SigningCertURL", json!("https://sns.eu-west-1.amazonaws.com.evil.org/a.pem")),
        ("SigningCertURL", json!("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123.pem")),
        ("SigningCertURL", json!("http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem")),
    ] {
        assert_eq!(changed("version 2", &|body| body[name] = value.clone()), BAD, "{name}: {value}");
    }
    // What is not signed cannot be added as a field that would be.
    for value in [json!(7), json!(true), json!("A subject")] {
        assert_eq!(changed("no subject", &|body| body["Subject"] = value.clone()), BAD, "{value}");
    }
    // A line of the message that looks like the next value does not become one.
    let moved = |body: &mut Value| {
        body["Message"] = json!("Hello");
        body["MessageId"] = json!("world ü\nMessageId\n22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324");
    };
    assert_eq!(changed("version 2", &moved), BAD);
    let other = changed("version 2", &|body| {
        body["SigningCertURL"] = json!("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-4567.pem");
    });
    assert!(matches!(other, Err(DeliveryRejection::KeyUnavailable(_))), "{other:?}");
    let sent = vectors.notification(&vectors.sns["version 2"]);
    let late = SentDelivery { at: vectors.at() + Duration::from_hours(25), ..sent };
    assert_eq!(late.verify(&source), BAD);
    let twice = vectors.sns["version 2"].replacen('{', r#"{"MessageId":"other","#, 1);
    assert_eq!(vectors.notification(&twice).verify(&source), BAD);
}

#[test]
fn a_delivery_of_paypal_is_an_event_and_any_other_byte_of_it_is_not() {
    let vectors = vectors();
    let source = vectors.source("paypal");
    let genuine = vectors.paypal();
    let event = genuine.event(&source).event;
    assert_eq!(event.delivery_id.as_deref(), Some(&*vectors.paypal.headers["paypal-transmission-id"]));
    for name in ["paypal-transmission-id", "paypal-transmission-time", "paypal-transmission-sig", "paypal-auth-algo"] {
        let value = vectors.paypal.headers[name].as_bytes();
        check_mutants(&source, &genuine, value, |mutant| genuine.with_header(name, mutant));
    }
    let moved = genuine.with_header("paypal-transmission-id", "a|b");
    assert_eq!(moved.verify(&source), Err(DeliveryRejection::BadSignature));
    let body = vectors.paypal.body.as_bytes();
    check_mutants(&source, &genuine, body, |body| SentDelivery { body, ..genuine.clone() });
    // After its events are forgotten, a captured id with a made-up body of the same checksum must not count.
    let late = SentDelivery { at: vectors.at() + Duration::from_hours(5 * 24), ..genuine };
    assert_eq!(late.verify(&source), Err(DeliveryRejection::BadSignature));
    assert_eq!(vectors.source("paypal").verify.signs(), "nonce");
}

#[test]
fn a_certificate_that_is_not_valid_now_verifies_nothing() {
    let vectors = vectors();
    let source = vectors.source("paypal");
    // Its sender may have published another one at the same URL, which no delivery that is too old asks for.
    let asks = |checked| matches!(checked, Err(DeliveryRejection::KeyUnavailable(_)));
    for (at, is_too_old) in [("2026-11-17T11:06:40Z", false), ("2037-11-20T11:06:40Z", true)] {
        let at = Timestamp::parse(at).expect("a time");
        let sent = SentDelivery { at, ..vectors.paypal() };
        assert_eq!(sent.verify(&source) == BAD, is_too_old, "{at}");
        assert_eq!(asks(sent.verify(&source)), !is_too_old, "{at}");
        assert!(asks(sent.verify_at_any_age(&source)), "{at}");
    }
}

/// A source whose issuer has published these keys some time ago, or just now.
fn with_keys(jwks: &Value, old: bool) -> Arc<Source> {
    let example = presets::find("github-actions").expect("a preset").example();
    let config = config_with(&example, "").expect("a config");
    let learnt = config.fetched_keys["github-actions"].clone();
    learnt.learn_key_set(jwks.to_string().as_bytes()).expect("a key set");
    let scheme = JwtScheme {
        keys: JwtKeys::Published(Arc::new(KeysOfAge { learnt, old })),
        header: "authorization".into(),
        prefix: "Bearer ".into(),
        issuer: None,
        audience: None,
        claims: Vec::new(),
        body_digest: None,
        without_expiry: false,
        tolerance: Duration::from_mins(5),
    };
    let mut source = config.sources[0].clone();
    drop(config);
    Arc::get_mut(&mut source).expect("the only one").verify = VerificationScheme::new(scheme);
    source
}

#[derive(Debug)]
struct KeysOfAge {
    learnt: Arc<FetchedKeys>,
    old: bool,
}

impl KeyDirectory for KeysOfAge {
    fn find(&self, request: &KeyRequest, now: Timestamp) -> Vec<Arc<PublishedKey>> {
        self.learnt.find(request, now)
    }

    fn may_have_changed(&self) -> bool {
        self.old
    }

    fn address(&self, document: &KeyDocument) -> String {
        self.learnt.address(document)
    }
}

/// A genuine token must not be refused for good because its issuer has rotated its keys.
#[test]
fn a_signature_of_no_known_key_is_wrong_only_if_its_key_was_published_just_now() {
    let vectors = vectors();
    let keys = |ids: [Option<&str>; 2]| {
        let mut keys = vec![vectors.jwks["keys"][0].clone(), vectors.jwks["keys"][1].clone()];
        for (key, id) in keys.iter_mut().zip(ids) {
            key["kid"] = json!(id);
            // Another key of this kind.
            let name = if key["kty"] == "RSA" { "n" } else { "x" };
            key[name] = json!(format!("z{}", &key[name].as_str().expect("a number")[1..]));
        }
        json!({ "keys": keys })
    };
    let unavailable = |source: &Source, token: &str| {
        let refused = vectors.with_token(token).verify(source);
        assert!(refused.is_err(), "{refused:?}");
        refused != BAD
    };
    let kid = |index: usize| vectors.jwks["keys"][index]["kid"].as_str();
    for token in [&vectors.good["RS256"], &vectors.good["ES256"]] {
        let replaced = keys([kid(0), kid(1)]);
        assert!(unavailable(&with_keys(&replaced, true), token));
        assert!(!unavailable(&with_keys(&replaced, false), token));
        // An issuer whose keys have no ids gives no sign of a rotation.
        for old in [true, false] {
            assert!(unavailable(&with_keys(&keys([None, None]), old), token));
            assert!(unavailable(&with_keys(&keys([Some("x"), None]), old), token));
        }
    }
    // It may also have begun to sign in another way.
    let only_rsa = json!({ "keys": [keys([None, None])["keys"][0]] });
    assert!(unavailable(&with_keys(&only_rsa, false), &vectors.good["ES256"]));
}

/// Whatever a server answers, nothing panics, and what was learnt before is kept.
#[test]
fn broken_documents_are_not_learnt() {
    let vectors = vectors();
    let config = config_with(&presets::find("sns").expect("a preset").example(), "").expect("a config");
    let keys = config.fetched_keys.values().next().expect("published keys");
    let pem = vectors.certificate.as_bytes();
    let mut random = Random::new(seed::given_or(15));
    for _ in 0..MUTANTS {
        let mut broken = pem.to_vec();
        let at = random.index(broken.len());
        match random.below(3) {
            0 => broken.truncate(at),
            1 => broken[at] = random.one(b"ABab019+/=-\n"),
            _ => drop(broken.remove(at)),
        }
        let _ = keys.learn_certificate(SNS_CERTIFICATE, &broken);
    }
    for broken in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, "\0"] {
        assert!(keys.learn_key_set(broken.as_bytes()).is_err(), "{broken}");
    }
    let many = json!({ "keys": vec![vectors.jwks["keys"][0].clone(); 65] });
    assert!(keys.learn_key_set(many.to_string().as_bytes()).is_err());
}
