//! One genuine delivery of each sender, signed outside of hookonce: it is an event, and a forgery of it is not.
//!
//! The signatures in `vectors.json` were made with another language's libraries, or are published by the sender.

use super::signed_samples::{SentDelivery, config_with, example};
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::decide::time::Timestamp;
use hookonce::internals::config::presets;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A genuine delivery.
#[derive(Deserialize)]
struct DeliveryVector {
    preset: String,
    /// As the sender shows it; none where nothing is signed.
    #[serde(default)]
    secret: String,
    /// When it arrived.
    at: String,
    headers: BTreeMap<String, String>,
    body: String,
    /// The header with a token that comes with any body.
    token: Option<String>,
    /// Where the sender's id is, as an event has it.
    delivery: Option<String>,
}

impl DeliveryVector {
    fn source(&self) -> Arc<Source> {
        let preset = presets::find(&self.preset).unwrap_or_else(|| panic!("there is no preset {}", self.preset));
        let config = config_with(&example(preset), &self.secret);
        config.unwrap_or_else(|why| panic!("{}: {why}", self.preset)).sources[0].clone()
    }

    fn sent(&self) -> SentDelivery {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
        let at = Timestamp::parse(&self.at).expect("a time");
        SentDelivery { headers: headers.collect(), query: String::new(), body: self.body.clone().into_bytes(), at }
    }

    /// The same delivery, forged: another token, or one other byte in the body.
    fn forged(&self) -> SentDelivery {
        let mut sent = self.sent();
        if let Some(name) = &self.token {
            let mut token = self.headers[name].clone().into_bytes();
            *token.last_mut().expect("a token") ^= 1;
            return sent.with_header(name, token);
        }
        let digit = sent.body.iter().position(u8::is_ascii_digit).expect("every body has a number");
        sent.body[digit] = if sent.body[digit] == b'7' { b'8' } else { b'7' };
        sent
    }
}

fn vectors() -> Vec<DeliveryVector> {
    let files = [include_str!("vectors.json"), include_str!("element_vectors.json")];
    files.iter().flat_map(|text| serde_json::from_str::<Vec<_>>(text).expect("a list of vectors")).collect()
}

#[test]
fn a_genuine_delivery_is_an_event_and_a_forged_one_is_refused() {
    for vector in vectors() {
        let source = vector.source();
        let event = vector.sent().event(&source).event;
        assert_eq!(event.delivery_id.as_deref(), vector.delivery.as_deref(), "{}", vector.preset);
        if source.verify.is_none() {
            continue;
        }
        let forged = vector.forged().judge(&source);
        assert!(
            matches!(forged, Verdict::Refused(DeliveryRejection::BadSignature)),
            "{}: a forged delivery is {forged:?}",
            vector.preset
        );
    }
}

/// The senders of code, images, builds and alerts each have one.
#[test]
fn no_vector_is_missing() {
    let there: BTreeSet<_> = vectors().into_iter().map(|vector| vector.preset).collect();
    let expected = "acr alertmanager artifactory asana azure-devops bitbucket bitbucket-dc buildkite buildkite-token \
        circleci clerk cloudevents cloudevents-binary discord discord-events distribution docker-hub dropbox \
        ecr forgejo gitea github github-package gitlab gitlab-signing gocardless grafana graph harbor \
        hubspot hugging-face launchdarkly line nexus notion okta openai pagerduty quay render replicate resend \
        sentry slack-command standard-webhooks stripe supabase tailscale terraform vercel";
    let missing: Vec<_> = expected.split_whitespace().filter(|name| !there.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
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
        let vector = vectors().into_iter().find(|vector| vector.preset == preset).expect("a vector");
        let both = list.replace("{}", &vector.headers[header]);
        vector.sent().with_header(header, both).event(&vector.source());
        let other = vector.headers[header].replace("v1=", "v0=");
        let refused = vector.sent().with_header(header, other).judge(&vector.source());
        assert!(matches!(refused, Verdict::Refused(DeliveryRejection::BadSignature)), "{preset}: {refused:?}");
    }
}
