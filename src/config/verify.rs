//! `verify`: a scheme by name, with the keys that it has.

use super::Provenance;
use super::caller_folder::CallerFolder;
use super::external_value::{is_short, is_short_text};
use super::keys::{ConfigValueType, SectionKeys, key, one_of};
use super::once::provenance;
use super::presets::{self, SenderFacts};
use super::published_keys::FETCHING;
use super::raw::ConfigSpan;
use super::resolve::ConfigResolver;
use super::secret_file::SecretFile;
use super::section::ConfigSection;
use super::sender_credentials::has_public_key;
use crate::decide::field::{FieldLocation, FieldSet};
use crate::decide::verify::{
    DEFAULT_TOLERANCE, PerCallerScheme, PublicKeyAlgorithm, SecretEncoding, SourceSecrets, TwilioBodies,
    VerificationScheme,
};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) static VERIFY_KEYS: SectionKeys = SectionKeys {
    name: "verify",
    title: "`verify = { … }`",
    about: "How deliveries are verified.",
    keys: &[&[
        key("scheme", ConfigValueType::Word(SCHEMES), "required", "How the sender signs."),
        key(
            "of",
            ConfigValueType::Word(CARRIED),
            "required for carried",
            "The scheme of the signature that messages carry.",
        ),
        key("secret", ConfigValueType::Secrets, "required", "The secret, or a list of them while rotating."),
        key(
            "secret_encoding",
            ConfigValueType::Word(&["text", "base64", "base64url", "hex"]),
            "text; for standard-webhooks base64",
            "How the key of an HMAC is written in the secret.",
        ),
        key(
            "public_key",
            ConfigValueType::OneOrMoreOpen,
            "required for ed25519 and ecdsa-p256",
            "The sender's public key, in hex, base64 or PEM, or a list of them while rotating. With standard-webhooks it is \
             a whpk_… for its v1a signatures, instead of a secret.",
        ),
        key(
            "at",
            ConfigValueType::Place,
            "required for token",
            "Where the token is; or the signature, if it is not in a header.",
        ),
        key(
            "query",
            ConfigValueType::Text,
            "none",
            "With bearer: the parameter of the query that may have the token instead of the header.",
        ),
        key(
            "header",
            ConfigValueType::OneOrMoreTexts,
            "required for signatures",
            "The header with the signature; where a sender sets several, one good signature in one of them is enough.",
        ),
        key(
            "entry",
            ConfigValueType::Text,
            "the whole header",
            "The entry with the signature, if the header has several: \"v1\" of t=…,v1=….",
        ),
        key("separator", ConfigValueType::Word(&[",", ";"]), ",", "What separates the entries of the header."),
        key(
            "prefix",
            ConfigValueType::Text,
            "nothing",
            "The prefix of the signature. Without `entry`, a header may have several signatures, separated by commas, only \
             if each has one.",
        ),
        key(
            "several",
            ConfigValueType::Flag,
            "true with `entry` or `prefix`",
            "Whether a header may have several signatures, of which one must be right; false: a list is refused. Presets of \
             senders that send one say false.",
        ),
        key("hash", ConfigValueType::Word(&["sha1", "sha256", "sha512"]), "sha256", "The hash of the HMAC."),
        key(
            "encoding",
            ConfigValueType::Word(&["hex", "base64", "base64url"]),
            "hex",
            "The encoding of the signature.",
        ),
        key(
            "over",
            ConfigValueType::Text,
            "{body}",
            "The signed content, made of {id}, {timestamp}, {body}, {url}, {decoded_url} and {method}. An {id} directly \
             beside {body} or {timestamp}, with no text between them, must be a UUID in every delivery; before an RFC 3339 \
             {timestamp} it must have no colon. Others are refused. {decoded_url} is `url` with the escapes decoded that HubSpot decodes: %3A %2F %40 %26 %3D %2B %24 %60 %22 %2C %3B %3E %3C %3F.",
        ),
        key(
            "timestamp",
            ConfigValueType::Text,
            "none",
            "Where the sender's time is: a place, or an entry of the header, such as entry.t.",
        ),
        key(
            "timestamp_format",
            ConfigValueType::Word(&["seconds", "milliseconds", "rfc3339"]),
            "any of them",
            "The only form of the sender's time; needed where no fixed text separates it.",
        ),
        key(
            "issuer",
            ConfigValueType::Text,
            "required for jwt",
            "Who signs the tokens: the URL that their claim iss has.",
        ),
        key("keys", ConfigValueType::Text, "the issuer's OpenID configuration", "The URL of the issuer's keys (JWKS)."),
        key("audience", ConfigValueType::Text, "required for jwt", "Who the tokens are for: their claim aud."),
        key(
            "claims",
            ConfigValueType::Claims,
            "none",
            "Claims that a token must have, each with a value or a list of values of which one must fit.",
        ),
        key(
            "body_digest",
            ConfigValueType::Text,
            "none",
            "The claim with the SHA-256 of the body, in hex: the body is then signed.",
        ),
        key("topic", ConfigValueType::Text, "required for sns", "The ARN of the topic."),
        key("webhook_id", ConfigValueType::Text, "required for paypal", "The id of the webhook at PayPal."),
        key(
            "certificates",
            ConfigValueType::Text,
            "the sender's host",
            "The host that certificates are fetched from, such as https://api.sandbox.paypal.com.",
        ),
        key("tolerance", ConfigValueType::Duration, "5m", "Maximum difference between the sender's time and ours."),
    ]],
};

/// The words of `scheme`.
pub(super) const SCHEMES: &[&str] = &[
    "github",
    "standard-webhooks",
    "hmac",
    "ed25519",
    "ecdsa-p256",
    "token",
    "bearer",
    "basic",
    "jwt",
    "sns",
    "paypal",
    "adyen",
    "twilio",
    "twilio-json",
    "carried",
    "none",
];
/// The schemes whose signature messages of a stream can carry.
pub(super) const CARRIED: &[&str] = &["github", "standard-webhooks", "hmac", "ed25519", "ecdsa-p256"];

/// The keys that describe a signature.
const DESCRIPTION: &[&str] = &[
    "header",
    "at",
    "entry",
    "separator",
    "prefix",
    "several",
    "encoding",
    "over",
    "timestamp",
    "timestamp_format",
    "tolerance",
];

/// A scheme as the config names it: its keys, and how it is made of them.
struct NamedScheme {
    name: &'static str,
    /// Its keys, beside `scheme` and its credential.
    keys: &'static [&'static [&'static str]],
    /// Whether it verifies with the sender's public key instead of a secret.
    public: bool,
    make: fn(&mut ConfigResolver<'_>, &SchemeInput<'_>) -> Option<VerificationScheme>,
}

/// What a scheme is made of.
pub(super) struct SchemeInput<'a> {
    pub(super) name: &'static str,
    pub(super) source: &'a ConfigSection<'a>,
    /// The keys beside `scheme`; those of the source if `verify` is only a name.
    pub(super) keys: ConfigSection<'a>,
    /// Whether `verify` has keys.
    pub(super) described: bool,
    pub(super) at: ConfigSpan,
    /// The secrets, or the public keys.
    pub(super) secrets: Vec<Vec<u8>>,
    /// Whether they are public keys.
    by_public_key: bool,
    pub(super) delivery: Option<&'a FieldLocation>,
    /// The array whose elements are events.
    pub(super) each: Option<&'a [String]>,
    /// What the source's preset knows of its sender.
    pub(super) sender: Option<&'a SenderFacts>,
}

impl SchemeInput<'_> {
    pub(super) fn secrets(&self) -> SourceSecrets {
        SourceSecrets::new(self.secrets.clone())
    }

    /// Where a secret that cannot be used is reported: at the secret, unless this place is in the config, too.
    pub(super) fn secret_place(&self, written: ConfigSpan) -> ConfigSpan {
        if provenance(written) == Provenance::Preset { self.source.place("secret") } else { written }
    }

    /// Whether the source has one of our presets.
    pub(super) fn is_of_built_in_preset(&self) -> bool {
        self.source.text("preset").is_some_and(|name| presets::find(name).is_some())
    }

    /// How the key is written in a secret, if the config says so.
    pub(super) fn secret_encoding(&self) -> Option<SecretEncoding> {
        if !self.described {
            return None;
        }
        match self.keys.text("secret_encoding")? {
            "base64" => Some(SecretEncoding::Base64),
            "base64url" => Some(SecretEncoding::Base64Url),
            "hex" => Some(SecretEncoding::Hex),
            _ => Some(SecretEncoding::Text),
        }
    }
}

/// Every scheme.
static NAMED_SCHEMES: &[NamedScheme] = &[
    NamedScheme {
        name: "github",
        keys: &[],
        public: false,
        make: |_, input| Some(VerificationScheme::github(input.secrets())),
    },
    NamedScheme {
        name: STANDARD,
        keys: &[&["secret_encoding", "tolerance"]],
        public: false,
        make: |config, input| config.standard_webhooks(input),
    },
    NamedScheme {
        name: "hmac",
        keys: &[DESCRIPTION, &["hash", "secret_encoding"]],
        public: false,
        make: |config, input| config.hmac_signature(input),
    },
    NamedScheme {
        name: "ed25519",
        keys: &[DESCRIPTION],
        public: true,
        make: |config, input| config.public_key_signature(PublicKeyAlgorithm::Ed25519, input),
    },
    NamedScheme {
        name: "ecdsa-p256",
        keys: &[DESCRIPTION],
        public: true,
        make: |config, input| config.public_key_signature(PublicKeyAlgorithm::EcdsaP256, input),
    },
    NamedScheme { name: "token", keys: &[&["at"]], public: false, make: |config, input| config.token(input) },
    NamedScheme {
        name: "bearer",
        keys: &[&["query"]],
        public: false,
        make: |config, input| Some(config.bearer(input)),
    },
    NamedScheme { name: "basic", keys: &[], public: false, make: |config, input| Some(config.basic(input)) },
    NamedScheme {
        name: "jwt",
        keys: &[&["secret", "issuer", "keys", "audience", "claims", "header", "prefix", "body_digest", "tolerance"]],
        public: false,
        make: |config, input| config.jwt(input),
    },
    NamedScheme {
        name: "sns",
        keys: &[&["topic", "certificates", "tolerance"]],
        public: false,
        make: |config, input| config.sns(input),
    },
    NamedScheme {
        name: "paypal",
        keys: &[&["webhook_id", "certificates", "tolerance"]],
        public: false,
        make: |config, input| config.paypal(input),
    },
    NamedScheme { name: "adyen", keys: &[], public: false, make: |config, input| config.adyen(input) },
    NamedScheme {
        name: "twilio",
        keys: &[],
        public: false,
        make: |config, input| config.twilio(input, TwilioBodies::Forms),
    },
    NamedScheme {
        name: "twilio-json",
        keys: &[],
        public: false,
        make: |config, input| config.twilio(input, TwilioBodies::ByDigest),
    },
    NamedScheme { name: "none", keys: &[], public: false, make: |_, _| Some(VerificationScheme::none()) },
];

/// `verify` as written.
pub(super) struct VerifySettings<'a> {
    pub(super) scheme: &'a str,
    /// Whether messages of a stream carry the signature. Its age is then ignored: messages may wait in the stream.
    carried: bool,
    pub(super) at: ConfigSpan,
    /// The keys beside `scheme`; none if `verify` is only a name.
    pub(super) keys: Option<ConfigSection<'a>>,
}

impl VerifySettings<'_> {
    /// Whether a secret is short for this scheme, which signs with what `whsec_` stands before, or with all of it.
    pub(super) fn shortness(&self) -> fn(&[u8]) -> bool {
        let encoding = self.keys.and_then(|keys| keys.text("secret_encoding"));
        if self.scheme == STANDARD && matches!(encoding, None | Some("base64")) { is_short } else { is_short_text }
    }
}

/// A random secret or public key to verify unknown callers with, so that response times do not reveal which callers
/// exist.
fn decoy_secret(scheme: &str) -> Vec<u8> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).expect(RANDOM);
    let secret = match scheme {
        "basic" => format!("{0}:{0}", hex::encode(bytes)),
        "ed25519" => hex::encode(Ed25519KeyPair::generate().expect(RANDOM).public_key()),
        "ecdsa-p256" => {
            hex::encode(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect(RANDOM).public_key())
        }
        _ => hex::encode(bytes),
    };
    secret.into_bytes()
}

/// The scheme whose senders have either a secret or a private key.
pub(super) const STANDARD: &str = "standard-webhooks";

const RANDOM: &str = "the system has random bytes";

impl ConfigResolver<'_> {
    /// The scheme; `None` if it is invalid, so that what it covers is unknown.
    pub(super) fn verify(
        &mut self,
        name: &str,
        source: &ConfigSection<'_>,
        delivery: Option<&FieldLocation>,
        fields: &FieldSet,
        sender: Option<&SenderFacts>,
    ) -> Option<VerificationScheme> {
        let written = self.scheme(name, source)?;
        let written = self.carried(source, written)?;
        let folder = self.folder(source, &written);
        let Some(named) = NAMED_SCHEMES.iter().find(|named| named.name == written.scheme) else {
            // Validation has reported the scheme. Which keys it needs is unknown; its secret is still read.
            let inner = written.keys.and_then(|keys| keys.node("secret"));
            if let (None, Some(node)) = (folder, inner.or_else(|| source.node("secret"))) {
                self.read_unshared_secrets(name, source, node, is_short);
            }
            return None;
        };
        let by_public_key = named.public || named.name == STANDARD && has_public_key(source, &written);
        self.foreign_keys(&written, named, by_public_key);
        let inner = written.keys.and_then(|keys| keys.node("secret"));
        let late = if folder.is_none() { self.late_secret(name, source, inner) } else { None };
        let secrets = match &folder {
            _ if late.as_ref().is_some_and(|late| late.missing) => Some(vec![decoy_secret(named.name)]),
            Some(_) => Some(vec![decoy_secret(named.name)]),
            None if by_public_key => self.public_keys(source, &written),
            None if FETCHING.contains(&named.name) => self.optional_secrets(name, source, &written),
            None => self.source_secrets(name, source, &written),
        };
        let input = SchemeInput {
            name: named.name,
            source,
            keys: written.keys.unwrap_or(*source),
            described: written.keys.is_some(),
            at: written.at,
            secrets: if named.name == "none" { Vec::new() } else { secrets? },
            by_public_key,
            delivery,
            each: fields.each(),
            sender,
        };
        let made = (named.make)(self, &input);
        self.check_key_hosts(source, made.is_none() || self.keys_made.is_some());
        let scheme = made?;
        if let Some(keys) = self.keys_made.take() {
            self.fetched_keys.insert(name.into(), keys);
        }
        let ages = !written.keys.is_some_and(|keys| keys.has("tolerance"));
        let scheme = if written.carried && ages { scheme.ignoring_age() } else { scheme };
        if let Some(late) = late {
            let file = SecretFile::new(late.path, scheme.clone());
            return Some(scheme.awaiting(Arc::new(file)));
        }
        self.per_caller(source, folder, scheme, fields)
    }

    /// The scheme of a stream source: its messages carry the sender's signature. A preset's scheme is then a carried
    /// one.
    fn carried<'a>(&mut self, source: &ConfigSection<'a>, written: VerifySettings<'a>) -> Option<VerifySettings<'a>> {
        match (source.has("from"), written.scheme) {
            (true, "none") => Some(written),
            (false, "carried") => {
                self.diagnostics
                    .error("scheme `carried` is only for stream sources")
                    .at(written.at, "this source has no `from`")
                    .hint("use the sender's own scheme");
                None
            }
            (true, "carried") => {
                let keys = written.keys.filter(|keys| keys.has("of"));
                let Some(keys) = keys else {
                    self.diagnostics
                        .error("scheme `carried` needs the scheme of the carried signature")
                        .unless(written.keys.is_some_and(|keys| keys.misspells("of")))
                        .at(written.at, "`of` is missing")
                        .hint(
                            "verify = { scheme = \"carried\", of = \"github\", secret = { env = \"WEBHOOK_SECRET\" } }",
                        );
                    return None;
                };
                Some(VerifySettings { scheme: keys.text("of")?, carried: true, ..written })
            }
            (true, scheme) if CARRIED.contains(&scheme) && provenance(written.at) == Provenance::Preset => {
                Some(VerifySettings { carried: true, ..written })
            }
            (false, _) => Some(written),
            (true, scheme) if !SCHEMES.contains(&scheme) => Some(written),
            (true, scheme) => {
                self.diagnostics
                    .error(format!("scheme `{scheme}` is not for stream sources"))
                    .at(written.at, "this source reads messages of a stream")
                    .hint("scheme = \"carried\" with `of` verifies the signature that the messages carry; \"none\" must be set explicitly");
                None
            }
        }
    }

    /// The folder of callers, if the secret is one.
    fn folder(&mut self, source: &ConfigSection<'_>, written: &VerifySettings<'_>) -> Option<(PathBuf, ConfigSpan)> {
        let inner = written.keys.and_then(|keys| keys.node("secret"));
        let node = inner.or_else(|| source.node("secret"))?;
        let dir = node.table()?.get("dir")?;
        if written.scheme == "none" || (inner.is_some() && source.has("secret")) {
            return None;
        }
        let path = self.base.join(dir.text()?);
        self.folder_of("secret", node, &path, written.shortness());
        Some((path, node.at))
    }

    /// The scheme with one secret per caller, if the secret is a folder.
    fn per_caller(
        &mut self,
        source: &ConfigSection<'_>,
        folder: Option<(PathBuf, ConfigSpan)>,
        scheme: VerificationScheme,
        fields: &FieldSet,
    ) -> Option<VerificationScheme> {
        let key_id = source.node("key_id").and_then(|node| Some((node.text()?, node.at)));
        let ((path, at), (who, who_at)) = match (folder, key_id) {
            (None, None) => return Some(scheme),
            (Some((_, at)), None) => {
                self.diagnostics
                    .error("a folder of callers needs `key_id`, the field that names the caller")
                    .unless(self.unread.preset || source.misspells("key_id"))
                    .at(at, "")
                    .hint("key_id = \"caller\", a field such as caller = \"header.x-client-id\"");
                return None;
            }
            (None, Some((_, key_at))) if provenance(key_at) == Provenance::Preset => return Some(scheme),
            (None, Some((_, key_at))) => {
                self.diagnostics
                    .error("`key_id` needs a folder of callers")
                    .unless(source.misspells("secret"))
                    .at(key_at, "")
                    .hint("secret = { dir = \"callers\" }, with a file for each caller");
                return None;
            }
            (Some(folder), Some(key_id)) => (folder, key_id),
        };
        let Some(field) = fields.ix(who).map(|ix| fields.get(ix)) else {
            let all: Vec<_> = fields.iter().map(|field| &*field.name).collect();
            self.diagnostics
                .error(format!("`key_id` names a field that is not declared: `{who}`"))
                .unless(self.unread.fields)
                .at(who_at, format!("fields: {}", all.join(", ")));
            return None;
        };
        if !matches!(field.at, FieldLocation::Header(_) | FieldLocation::Query(_)) {
            self.diagnostics
                .error(format!("`key_id` must be in a header or in the query, but `{who}` is {}", field.at))
                .at(who_at, "the body is not parsed before it is verified")
                .hint("require = 'a == b' compares it with what the body says");
        }
        if matches!(field.at, FieldLocation::Query(_)) && source.has("url") {
            self.diagnostics
                .error(format!("`key_id` is `{who}`, which is in the query, but the sender signs its URL"))
                .at(who_at, "the query must be the one in `url`, and nothing else");
        }
        if !field.or_at.is_empty() {
            self.diagnostics
                .error(format!("`key_id` is `{who}`, which has several places"))
                .at(who_at, "one place names the caller");
        }
        if scheme.credential_places().contains(&field.at) {
            self.diagnostics
                .error(format!("`key_id` is `{who}`, which holds the caller's credentials"))
                .at(at, "it must be a name, not a secret");
        }
        let book = Arc::new(CallerFolder::new(path, scheme.clone()));
        Some(scheme.per_caller(PerCallerScheme { who: field.clone(), book }))
    }

    fn scheme<'a>(&mut self, name: &str, source: &ConfigSection<'a>) -> Option<VerifySettings<'a>> {
        let Some(node) = source.node("verify") else {
            self.diagnostics
                .error(format!("source `{name}` has no `verify`")).unless(self.unread.preset || source.misspells("verify") || source.misspells("poll"))
                .at(source.at, "`verify` is required unless a preset sets it")
                .hint("verify = { scheme = \"github\", secret = { env = \"WEBHOOK_SECRET\" } }; \"none\" must be set explicitly");
            return None;
        };
        if let Some(scheme) = node.text() {
            return Some(VerifySettings { scheme, carried: false, at: node.at, keys: None });
        }
        let keys = source.section("verify")?;
        if !keys.has("scheme") {
            self.diagnostics
                .error("`verify` has no `scheme`")
                .unless(keys.misspells("scheme"))
                .at(node.at, format!("expected {}", one_of(SCHEMES)));
        }
        Some(VerifySettings {
            scheme: keys.text("scheme")?,
            carried: false,
            at: keys.place("scheme"),
            keys: Some(keys),
        })
    }

    fn foreign_keys(&mut self, written: &VerifySettings<'_>, named: &NamedScheme, by_public_key: bool) {
        let credential = if by_public_key { "public_key" } else { "secret" };
        let of = if written.carried { "of" } else { "scheme" };
        for entry in written.keys.map_or(&[][..], |keys| keys.entries()) {
            let key = entry.key.as_str();
            let own = ["scheme", credential, of].contains(&key) || named.keys.iter().any(|keys| keys.contains(&key));
            if VERIFY_KEYS.find(key).is_some() && !own {
                self.diagnostics
                    .error(format!("`{key}` has no meaning for scheme `{}`", named.name))
                    .at(entry.key_at, "")
                    .hint("remove it, or describe the signature with scheme = \"hmac\"");
            }
        }
    }

    fn standard_webhooks(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let tolerance = if input.described { self.positive(&input.keys, "tolerance") } else { None };
        let tolerance = tolerance.unwrap_or(DEFAULT_TOLERANCE);
        if input.by_public_key {
            let made = VerificationScheme::standard_webhooks_public(&input.secrets, tolerance);
            return made.map_err(|why| self.bad_public_key(input, why)).ok();
        }
        let encoding = input.secret_encoding().unwrap_or(SecretEncoding::Base64);
        VerificationScheme::standard_webhooks_encoded(&input.secrets, encoding, tolerance)
            .map_err(|why| {
                self.diagnostics
                    .error("the secret is not a Standard Webhooks secret")
                    .at(input.secret_place(input.at), why);
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_names_a_scheme() {
        let named: Vec<_> = NAMED_SCHEMES.iter().map(|named| named.name).collect();
        let words: Vec<_> = SCHEMES.iter().copied().filter(|word| *word != "carried").collect();
        assert_eq!(named, words);
        assert!(CARRIED.iter().all(|word| named.contains(word)));
    }

    #[test]
    fn every_key_of_a_scheme_is_in_the_table() {
        for key in NAMED_SCHEMES.iter().flat_map(|named| named.keys.iter().copied().flatten()) {
            assert!(VERIFY_KEYS.find(key).is_some(), "{key}");
        }
    }
}
