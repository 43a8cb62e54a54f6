//! A source with each preset, and deliveries as its sender would sign them.

use super::sender_keys::{self, SignedWith};
use bytes::Bytes;
use hookonce::decide::claim::NewEvent;
use hookonce::decide::delivery::{Delivery, DeliveryRejection, borrow_headers};
use hookonce::decide::id::EventId;
use hookonce::decide::judge::{Verdict, judge};
use hookonce::decide::source::Source;
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{BodyFormat, VerificationScheme};
use hookonce::internals::cli::SampleDelivery;
use hookonce::internals::config::presets::{PRESETS, Preset};
use hookonce::internals::config::{self, Config};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Secrets in the forms that senders give them, and another one of each form.
const SECRETS: [[&str; 2]; 5] = [
    ["a secret that is long enough", "another secret that is long enough"],
    ["user:a password that is long enough", "user:another password that is long enough"],
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"],
    ["YSBzZWNyZXQgdGhhdCBpcyBsb25nIGVub3VnaA==", "YW5vdGhlciBzZWNyZXQgdGhhdCBpcyBsb25nIQ=="],
    ["6120736563726574207468617420697320", "616e6f74686572207365637265742e2e2e"],
];

/// The path of a sender that signs nothing.
const PATH: &str = "/in/5ec4e7c05ec4e7c0";

/// A preset in a config of what it needs and nothing else.
pub(crate) struct ConfiguredPreset {
    pub(crate) preset: &'static Preset,
    pub(crate) source: Arc<Source>,
    /// Another secret in the form of this sender's.
    pub(crate) other_secret: &'static str,
    /// What `check` would warn about.
    pub(crate) warnings: Vec<String>,
}

/// A delivery that can be changed before it is judged.
#[derive(Clone)]
pub(crate) struct SentDelivery {
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Timestamp,
}

pub(crate) fn now() -> Timestamp {
    Timestamp::parse("2026-02-07T16:20:40Z").expect("a time")
}

/// This config, with this value for each variable but a path. An error is its text.
pub(crate) fn config_with(text: &str, secret: &str) -> Result<Config, String> {
    let env = |name: &str| Some(if name.ends_with("_PATH") { PATH.to_owned() } else { secret.to_owned() });
    config::parse(text, "hookonce.toml", Path::new("/"), &env).map_err(|error| error.to_string())
}

/// This config with a secret or public key of a form that it accepts, and another one of that form.
pub(crate) fn config_of(text: &str) -> (Config, &'static str) {
    let mut errors = Vec::new();
    for [secret, other] in SECRETS.into_iter().chain(sender_keys::public_keys()) {
        match config_with(text, secret) {
            Ok(config) => return (config, other),
            Err(error) => errors.push(error),
        }
    }
    panic!("no form of a secret fits {text}: {}", errors.join("\n"));
}

/// A source with this preset as a user would write it. A secret that the sender brings is not in a file here.
pub(crate) fn example(preset: &Preset) -> String {
    preset.example().replace(&format!("{{ file = \"{}.secret\" }}", preset.name), "{ env = \"SECRET\" }")
}

/// The presets whose deliveries can be signed with what is in their configs. Others need the sender's private key.
pub(crate) fn presets_signed_here() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(|preset| !preset.sender().needs.iter().any(|key| key == "public_key"))
}

/// Every preset, each in a config of its own.
pub(crate) fn configured_presets() -> Vec<ConfiguredPreset> {
    PRESETS.iter().map(|preset| configured(preset, "")).collect()
}

/// The preset with what it needs, and a route of these keys; without keys there is none.
pub(crate) fn configured(preset: &'static Preset, route: &str) -> ConfiguredPreset {
    let header = if route.is_empty() { String::new() } else { format!("[[source.{}.route]]\n", preset.name) };
    let (config, other_secret) = config_of(&format!("{}{header}{route}\n", example(preset)));
    let warnings = config.warnings.iter().map(ToString::to_string).collect();
    config.fetched_keys.values().for_each(|keys| sender_keys::publish(keys));
    ConfiguredPreset { preset, source: config.sources[0].clone(), other_secret, warnings }
}

impl ConfiguredPreset {
    pub(crate) fn name(&self) -> &'static str {
        self.preset.name
    }

    /// A new delivery of this sender, signed at this time.
    pub(crate) fn sample(&self, id: &str, at: Timestamp) -> SentDelivery {
        let made = SampleDelivery::new(&self.source, Some(self.name()), id, at);
        let SampleDelivery { headers, query, body } = made.unwrap_or_else(|why| panic!("{}: {why}", self.name()));
        let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let sent = SentDelivery { headers, query, body, at };
        self.sign_privately(&sent, id, SignedWith::Published).unwrap_or(sent)
    }

    /// The same delivery, signed with a private key of the sender, if it has one.
    fn sign_privately(&self, sent: &SentDelivery, id: &str, with: SignedWith) -> Option<SentDelivery> {
        let verify = &self.source.verify;
        let Some(algorithm) = verify.private_key() else {
            return sender_keys::sign(self.name(), sent, id, sent.at, with);
        };
        let sign = |message: &[u8]| Some(sender_keys::signature(algorithm, message, with));
        let headers = verify.sign_by(id, sent.at, &sent.body, &sign);
        Some(headers.iter().fold(sent.clone(), |sent, (name, value)| sent.with_header(name, value.as_str())))
    }

    /// The same delivery with the sender's signature of its body.
    pub(crate) fn sign(&self, sent: &SentDelivery, id: &str) -> SentDelivery {
        if let Some(signed) = self.sign_privately(sent, id, SignedWith::Published) {
            return signed;
        }
        sent.signed(&self.source.verify, id)
    }

    /// The same delivery, signed by someone who does not have the sender's secret or private key.
    pub(crate) fn forge(&self, sent: &SentDelivery, id: &str) -> SentDelivery {
        if let Some(signed) = self.sign_privately(sent, id, SignedWith::Forged) {
            return signed;
        }
        let scheme = self.source.verify.with_secrets(vec![self.other_secret.into()]);
        sent.signed(&scheme.expect("a secret of this form"), id)
    }
}

impl SentDelivery {
    /// The same delivery, signed with the secret of this scheme.
    fn signed(&self, scheme: &VerificationScheme, id: &str) -> Self {
        let mut sent = self.clone();
        if let Some((path, signature)) = scheme.signature_in_body(&sent.body)
            && *scheme.format() == BodyFormat::Form
        {
            let form = String::from_utf8(sent.body).expect("a form is text");
            let begins = format!("{}=", path[0]);
            let signed = |pair: &str| {
                if pair.starts_with(&begins) { format!("{begins}{signature}") } else { pair.to_owned() }
            };
            sent.body = form.split('&').map(signed).collect::<Vec<_>>().join("&").into_bytes();
        } else if let Some((path, signature)) = scheme.signature_in_body(&sent.body) {
            let mut body: Value = serde_json::from_slice(&sent.body).expect("JSON");
            let at = format!("/{}", path.join("/"));
            *body.pointer_mut(&at).unwrap_or_else(|| panic!("no {at}")) = signature.into();
            sent.body = body.to_string().into_bytes();
        }
        if let Some((name, digest)) = scheme.digest_in_query(&sent.body) {
            sent.query = format!("{name}={digest}");
        }
        let headers = scheme.sign(id, sent.at, &sent.body);
        headers.iter().fold(sent, |sent, (name, value)| sent.with_header(name, value.as_str()))
    }

    /// Calls this with the delivery as it arrives.
    fn arrive<T>(&self, source: &Source, then: impl FnOnce(&Delivery<'_>) -> T) -> T {
        let body = Bytes::from(self.body.clone());
        let headers = borrow_headers(&self.headers);
        then(&Delivery {
            path: source.path.shown(),
            query: &self.query,
            headers: &headers,
            body: &body,
            at: self.at,
            wall: self.at,
        })
    }

    pub(crate) fn verify(&self, source: &Source) -> Result<(), DeliveryRejection> {
        self.arrive(source, |delivery| source.verify.verify(delivery).map(|_| ()))
    }

    /// What the operator is told of a delivery that is refused.
    pub(crate) fn told(&self, source: &Source) -> String {
        self.arrive(source, |delivery| source.verify.expectation(delivery)).unwrap_or_default()
    }

    /// As if it had no time.
    pub(crate) fn verify_at_any_age(&self, source: &Source) -> Result<(), DeliveryRejection> {
        self.arrive(source, |delivery| source.verify.ignoring_age().verify(delivery).map(|_| ()))
    }

    pub(crate) fn judge(&self, source: &Source) -> Verdict {
        let mut ids = || EventId([1; 16]);
        self.arrive(source, |delivery| judge(source, delivery, &mut ids))
    }

    /// The event of a delivery that must be one.
    pub(crate) fn event(&self, source: &Source) -> NewEvent {
        match self.judge(source) {
            Verdict::Events(mut events) if events.len() == 1 => events.remove(0),
            other => panic!("{}: {other:?}: {}", source.name, String::from_utf8_lossy(&self.body)),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| std::str::from_utf8(value).expect("a header of ours is text"))
    }

    /// The same with another value of this header.
    pub(crate) fn with_header(&self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        let mut sent = self.clone();
        sent.headers.retain(|(known, _)| known != name);
        sent.headers.push((name.to_owned(), value.into()));
        sent
    }
}
