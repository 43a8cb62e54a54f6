//! Genuine deliveries of each sender, signed outside of hookonce: each is an event, and a forgery of it is not.
//!
//! The signatures in `vectors.json` were made with another language's libraries, or are published by the sender.

use super::signed_samples::{SentDelivery, config_of, config_with, example};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::internals::config::Config;
use hookonce::internals::config::presets::{self, PRESETS};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A genuine delivery.
#[derive(Deserialize)]
struct DeliveryVector {
    preset: String,
    /// As the sender shows it; none where nothing is signed, or where the sender publishes its keys.
    #[serde(default)]
    secret: String,
    /// When it arrived.
    at: String,
    headers: BTreeMap<String, String>,
    #[serde(default)]
    query: String,
    body: String,
    /// Where a token is that comes with any body: a header, `body` or `query`.
    token: Option<String>,
    /// Where the sender's id is, as an event has it.
    delivery: Option<String>,
    /// The URL that is set at the sender, if it is not the one of the example.
    url: Option<String>,
    /// The keys that the sender publishes.
    key_set: Option<Value>,
}

/// Presets whose genuine deliveries are elsewhere, because they need more than a preset and a secret.
const ELSEWHERE: [(&str, &str); 3] = [
    ("adyen mailgun mailgun-form twilio twilio-json", "signed_parts.rs: parts of them are signed, or a URL"),
    ("github-actions", "published_keys.rs: tokens of each algorithm"),
    ("paypal sns", "published_keys.rs: signed with a certificate"),
];

impl DeliveryVector {
    fn config(&self) -> String {
        let preset = presets::find(&self.preset).unwrap_or_else(|| panic!("there is no preset {}", self.preset));
        let text = example(preset);
        match &self.url {
            Some(url) => text.replace(&format!("https://hooks.example.com/in/{}", self.preset), url),
            None => text,
        }
    }

    /// The source of this config, which has learnt the keys that the sender publishes.
    fn source_of(&self, config: &Config) -> Arc<Source> {
        for (keys, set) in config.fetched_keys.values().zip(&self.key_set) {
            keys.learn_key_set(set.to_string().as_bytes()).expect("a key set");
        }
        config.sources[0].clone()
    }

    fn source(&self) -> Arc<Source> {
        let config = config_with(&self.config(), &self.secret);
        self.source_of(&config.unwrap_or_else(|why| panic!("{}: {why}", self.preset)))
    }

    fn sent(&self) -> SentDelivery {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
        let at = Timestamp::parse(&self.at).expect("a time");
        SentDelivery { headers: headers.collect(), query: self.query.clone(), body: self.body.clone().into_bytes(), at }
    }

    /// The same delivery, forged: another token, or one other byte in the body.
    fn forged(&self) -> SentDelivery {
        let mut sent = self.sent();
        match self.token.as_deref() {
            Some("body") => return self.with_secret_as("another secret"),
            Some("query") => sent.query.push('1'),
            Some(name) => {
                let mut token = self.headers[name].clone().into_bytes();
                // Not the last one: some of its bits may be of no byte.
                let at = token.len() - 2;
                token[at] = if token[at] == b'x' { b'y' } else { b'x' };
                return sent.with_header(name, token);
            }
            None => {
                let digit = sent.body.iter().position(u8::is_ascii_digit).expect("every body has a number");
                sent.body[digit] = if sent.body[digit] == b'7' { b'8' } else { b'7' };
            }
        }
        sent
    }

    /// The same with another secret in the body.
    fn with_secret_as(&self, other: &str) -> SentDelivery {
        let body = self.body.replace(&self.secret, other).into_bytes();
        SentDelivery { body, ..self.sent() }
    }

    fn check_refused(&self, what: &str, source: &Source, sent: &SentDelivery) {
        let verdict = sent.judge(source);
        let refused = matches!(verdict, Verdict::Refused(DeliveryRejection::BadSignature));
        assert!(refused, "{}: {what} is {verdict:?}", self.preset);
    }
}

fn vectors() -> Vec<DeliveryVector> {
    let files = [include_str!("vectors.json"), include_str!("element_vectors.json")];
    files.iter().flat_map(|text| serde_json::from_str::<Vec<_>>(text).expect("a list of vectors")).collect()
}

/// Those that prove who sends.
fn proven() -> impl Iterator<Item = (DeliveryVector, Arc<Source>)> {
    let with_source = |vector: DeliveryVector| {
        let source = vector.source();
        (vector, source)
    };
    vectors().into_iter().map(with_source).filter(|(_, source)| !source.verify.is_none())
}

#[test]
fn a_genuine_delivery_is_an_event_and_a_forged_one_is_refused() {
    for vector in vectors() {
        let source = vector.source();
        let event = vector.sent().event(&source).event;
        assert_eq!(event.delivery_id.as_deref(), vector.delivery.as_deref(), "{}", vector.preset);
        if !source.verify.is_none() {
            vector.check_refused("a forged delivery", &source, &vector.forged());
        }
    }
}

#[test]
fn a_delivery_that_was_changed_in_one_byte_is_refused() {
    for (vector, source) in proven().filter(|(_, source)| source.verify.signs_body()) {
        for at in [0, vector.body.len() / 2, vector.body.len() - 1] {
            let mut sent = vector.sent();
            sent.body[at] ^= 1;
            vector.check_refused("another byte", &source, &sent);
        }
    }
}

#[test]
fn a_delivery_that_is_signed_with_another_secret_is_refused() {
    // Published keys have no secret here.
    for (vector, _) in proven().filter(|(vector, _)| vector.key_set.is_none()) {
        let (_, [_, other]) = config_of(&vector.config());
        let config = config_with(&vector.config(), other).expect("another secret of this form");
        vector.check_refused("one of another secret", &config.sources[0], &vector.sent());
    }
}

#[test]
fn a_delivery_without_its_signature_or_token_is_refused() {
    for (vector, source) in proven() {
        let proof = source.verify.signature_headers();
        let mut sent = match vector.token.as_deref() {
            Some("body") => vector.with_secret_as(""),
            _ => vector.sent(),
        };
        sent.headers.retain(|(name, _)| !proof.contains(name));
        sent.query.clear();
        if proof.is_empty() && !vector.token.as_deref().is_some_and(|place| ["body", "query"].contains(&place)) {
            sent = vector.with_secret_as(""); // in each element
        }
        vector.check_refused("one without proof", &source, &sent);
    }
}

#[test]
fn a_delivery_that_is_too_old_is_refused_where_its_time_is_signed() {
    let mut timed = BTreeSet::new();
    for (vector, source) in proven() {
        let Some(tolerance) = source.verify.tolerance() else { continue };
        let at = Timestamp::parse(&vector.at).expect("a time");
        let off = tolerance + Duration::from_mins(1);
        for at in [at + off, at - off] {
            vector.check_refused("one of another time", &source, &SentDelivery { at, ..vector.sent() });
        }
        timed.insert(vector.preset);
    }
    assert!(timed.len() > 25, "{timed:?}");
}

#[test]
fn a_repeat_of_linear_counts_until_its_last_retry() {
    let (vector, source) = proven().find(|(vector, _)| vector.preset == "linear").expect("a vector");
    let at = Timestamp::parse("2026-11-18T15:31:10Z").expect("a time");
    SentDelivery { at, ..vector.sent() }.event(&source);
}

#[test]
fn no_vector_is_missing() {
    let there: BTreeSet<_> = vectors().into_iter().map(|vector| vector.preset).collect();
    let elsewhere: BTreeSet<_> = ELSEWHERE.iter().flat_map(|(names, _)| names.split(' ')).collect();
    let missing: Vec<_> = PRESETS.iter().map(|preset| preset.name).filter(|name| !there.contains(*name)).collect();
    assert_eq!(missing.iter().copied().collect::<BTreeSet<_>>(), elsewhere);
}

/// Signatures that senders publish, over bodies that are no events.
#[test]
fn what_senders_publish_is_verified_by_their_presets() {
    const ATLASSIAN: &str = "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9";
    let hubspot_url = "https://www.example.com/webhook_uri";
    let hubspot = [
        ("x-hubspot-request-timestamp", "1614265330000"),
        ("x-hubspot-signature-v3", "tpCufWLOupRpVXpoJy1Cdw0BOVgWjilpkfjxyo2w2OQ="),
    ];
    let atlassian = [("x-hub-signature", ATLASSIAN)];
    for (preset, secret, url, headers, body, at) in [
        ("bitbucket", "It's a Secret to Everybody", None, &atlassian[..], "Hello World!", "2026-02-07T16:20:40Z"),
        ("jira", "It's a Secret to Everybody", None, &atlassian[..], "Hello World!", "2026-02-07T16:20:40Z"),
        (
            "hubspot",
            "yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy",
            Some(hubspot_url),
            &hubspot[..],
            r#"{"example_field":"example_value"}"#,
            "2021-02-25T15:02:11Z",
        ),
    ] {
        let vector = DeliveryVector {
            preset: preset.to_owned(),
            secret: secret.to_owned(),
            at: at.to_owned(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            query: String::new(),
            body: body.to_owned(),
            token: None,
            delivery: None,
            url: url.map(str::to_owned),
            key_set: None,
        };
        let source = vector.source();
        let genuine = vector.sent();
        let json = genuine.with_header("content-type", "application/json");
        assert_eq!(json.verify(&source), Ok(()), "{preset}");
        let mut forged = json.clone();
        forged.body[5] ^= 1;
        vector.check_refused("another byte", &source, &forged);
        if preset == "hubspot" {
            // No digit moves from the time to the body.
            let moved = json.with_header("x-hubspot-request-timestamp", "614265330000");
            let body = [&genuine.body[..], b"1"].concat();
            vector.check_refused("a moved digit", &source, &SentDelivery { body, ..moved });
        }
    }
}

/// A secret that is rolled at the sender: the old and the new one both count, and a list of signatures too.
#[test]
fn a_header_with_a_signature_of_another_secret_beside_the_right_one_is_an_event() {
    let wrong = "0".repeat(64);
    for (preset, header, list) in [
        ("pagerduty", "x-pagerduty-signature", format!("v1={wrong},{{}}")),
        ("circleci", "circleci-signature", format!("{{}},v2={wrong}")),
        ("stripe", "stripe-signature", format!("{{}},v1={wrong},v0={wrong}")),
    ] {
        let (vector, source) = proven().find(|(vector, _)| vector.preset == preset).expect("a vector");
        let both = list.replace("{}", &vector.headers[header]);
        vector.sent().with_header(header, both).event(&source);
        let other = vector.headers[header].replace("v1=", "v0=");
        vector.check_refused("another version", &source, &vector.sent().with_header(header, other));
    }
}

/// A sender that signs once never sends a list, so that a list is nobody's.
#[test]
fn a_list_with_the_right_signature_is_refused_of_senders_that_send_one() {
    let mut checked = 0;
    for (vector, source) in proven() {
        let text = presets::find(&vector.preset).expect("a preset").text;
        if !text.contains("prefix = ") || text.contains("\"jwt\"") {
            continue;
        }
        checked += 1;
        assert!(text.contains("several = false"), "{}", vector.preset);
        let header = &source.verify.signature_headers()[0];
        let right = &vector.headers[header];
        for list in [format!("{right},{right}"), format!("{right}, {right}"), format!("v0=00,{right}")] {
            vector.check_refused("a list", &source, &vector.sent().with_header(header, list));
        }
    }
    assert!(checked > 12, "{checked}");
}
