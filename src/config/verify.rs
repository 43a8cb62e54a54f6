//! `verify`: a scheme by name, or an HMAC described by its keys.

use super::Provenance;
use super::caller_folder::CallerFolder;
use super::keys::{ConfigValueType, SectionKeys, key, one_of};
use super::once::provenance;
use super::raw::{ConfigNode, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::field::{FieldLocation, FieldSet};
use crate::decide::time::Duration;
use crate::decide::verify::{
    self, HmacHash, HmacScheme, PerCallerScheme, SignatureEncoding, SignedPiece, SourceSecrets, VerificationScheme,
};
use std::collections::BTreeSet;
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
        key("header", ConfigValueType::Text, "required for hmac", "The header with the signature."),
        key("prefix", ConfigValueType::Text, "nothing", "The prefix of the signature."),
        key("hash", ConfigValueType::Word(&["sha1", "sha256", "sha512"]), "sha256", "The hash of the HMAC."),
        key("encoding", ConfigValueType::Word(&["hex", "base64"]), "hex", "The encoding of the signature."),
        key("over", ConfigValueType::Text, "{body}", "The signed content, made of {id}, {timestamp} and {body}."),
        key("timestamp", ConfigValueType::Place, "none", "Where the sender's time is."),
        key("tolerance", ConfigValueType::Duration, "5m", "Maximum difference between the sender's time and ours."),
    ]],
};

/// The words of `scheme`.
pub(super) const SCHEMES: &[&str] = &["github", "standard-webhooks", "hmac", "bearer", "carried", "none"];
/// The schemes whose signature messages of a stream can carry.
pub(super) const CARRIED: &[&str] = &["github", "standard-webhooks", "hmac"];
const TOLERANCE: Duration = Duration::from_mins(5);

/// `verify` as written.
struct VerifySettings<'a> {
    scheme: &'a str,
    /// Whether messages of a stream carry the signature. Its age is then ignored: messages may wait in the stream.
    carried: bool,
    at: ConfigSpan,
    /// The keys beside `scheme`; none if `verify` is only a name.
    keys: Option<ConfigSection<'a>>,
}

/// A random secret to verify unknown callers with, so that response times do not reveal which callers exist.
fn decoy_secret() -> Vec<u8> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random bytes");
    hex::encode(bytes).into_bytes()
}

impl ConfigResolver<'_> {
    /// The scheme; `None` if it is invalid, so that what it covers is unknown.
    pub(super) fn verify(
        &mut self,
        name: &str,
        source: &ConfigSection<'_>,
        delivery: Option<&FieldLocation>,
        fields: &FieldSet,
    ) -> Option<VerificationScheme> {
        let written = self.scheme(name, source)?;
        let written = self.carried(source, written)?;
        let folder = self.folder(source, &written);
        if !SCHEMES.contains(&written.scheme) {
            // Validation has reported the scheme. Which keys it needs is unknown; its secret is still read.
            let inner = written.keys.and_then(|keys| keys.node("secret"));
            if let (None, Some(node)) = (folder, inner.or_else(|| source.node("secret"))) {
                self.read_unshared_secrets(name, node);
            }
            return None;
        }
        self.foreign_keys(&written);
        let secrets = match &folder {
            Some(_) => Some(vec![decoy_secret()]),
            None => self.source_secrets(name, source, &written),
        };
        let scheme = match written.scheme {
            "github" => Some(VerificationScheme::Github(SourceSecrets::new(secrets?))),
            "bearer" => Some(VerificationScheme::Bearer(SourceSecrets::new(secrets?))),
            "none" => Some(VerificationScheme::None),
            "standard-webhooks" => {
                let tolerance = written.keys.and_then(|k| self.positive(&k, "tolerance")).unwrap_or(TOLERANCE);
                self.standard_webhooks(&secrets?, tolerance, written.at)
            }
            "hmac" => {
                let keys = written.keys.unwrap_or(*source);
                self.hmac(&keys, written.keys.is_some(), SourceSecrets::new(secrets?), delivery)
            }
            _ => None,
        }?;
        let ages = !written.keys.is_some_and(|keys| keys.has("tolerance"));
        let scheme = if written.carried && ages { scheme.ignoring_age() } else { scheme };
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
        self.folder_of("secret", node, &path);
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
        if scheme.signature_headers().iter().any(|name| field.at == FieldLocation::Header((*name).to_owned())) {
            self.diagnostics
                .error(format!("`key_id` is `{who}`, which holds the caller's credentials"))
                .at(at, "it must be a name, not a secret");
        }
        let book = Arc::new(CallerFolder::new(path, scheme.clone()));
        Some(VerificationScheme::Callers(Box::new(PerCallerScheme { who: field.clone(), decoy: scheme, book })))
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

    fn foreign_keys(&mut self, written: &VerifySettings<'_>) {
        let own: &[&str] = match written.scheme {
            "hmac" if written.carried => return,
            "hmac" => &["scheme", "secret", "header", "prefix", "hash", "encoding", "over", "timestamp", "tolerance"],
            "standard-webhooks" if written.carried => &["scheme", "of", "secret", "tolerance"],
            "standard-webhooks" => &["scheme", "secret", "tolerance"],
            _ if written.carried => &["scheme", "of", "secret"],
            _ => &["scheme", "secret"],
        };
        for entry in written.keys.map_or(&[][..], |keys| keys.entries()) {
            if VERIFY_KEYS.find(&entry.key).is_some() && !own.contains(&entry.key.as_str()) {
                self.diagnostics
                    .error(format!("`{}` has no meaning for scheme `{}`", entry.key, written.scheme))
                    .at(entry.key_at, "")
                    .hint("remove it, or describe the signature with scheme = \"hmac\"");
            }
        }
    }

    /// The secrets. A missing one has been reported; what the scheme covers is known without it.
    fn source_secrets(
        &mut self,
        name: &str,
        source: &ConfigSection<'_>,
        written: &VerifySettings<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        let inner = written.keys.and_then(|keys| keys.node("secret"));
        let node = match (inner, source.node("secret")) {
            (Some(_), Some(outer)) => {
                self.diagnostics
                    .error(format!("source `{name}` has two secrets"))
                    .at(outer.at, "short for `verify.secret`, which is set, too")
                    .hint("while rotating, write a list: secret = [{ env = \"NEW\" }, { env = \"OLD\" }]");
                return None;
            }
            (inner, outer) => inner.or(outer),
        };
        match (node, written.scheme) {
            (None, "none") => None,
            (Some(node), "none") => {
                self.diagnostics
                    .error("`verify` is \"none\", but there is a secret")
                    .at(node.at, "it would not be used");
                None
            }
            (None, scheme) => {
                // Point at the source, not into the preset.
                let at = if provenance(written.at) == Provenance::Preset { source.at } else { written.at };
                self.diagnostics
                    .error(format!("scheme `{scheme}` needs a secret"))
                    .unless(source.misspells("secret") || written.keys.is_some_and(|keys| keys.misspells("secret")))
                    .at(at, "")
                    .hint("secret = { env = \"WEBHOOK_SECRET\" }");
                Some(Vec::new())
            }
            (Some(node), _) => Some(self.read_unshared_secrets(name, node)),
        }
    }

    fn read_unshared_secrets(&mut self, name: &str, node: &ConfigNode) -> Vec<Vec<u8>> {
        let secrets = self.secrets("secret", node).unwrap_or_default();
        let others: BTreeSet<_> = secrets
            .iter()
            .filter_map(|secret| self.secrets_seen.iter().find(|(seen, _)| seen == secret))
            .map(|(_, other)| other.clone())
            .collect();
        for other in others {
            self.diagnostics
                .warning(format!("sources `{other}` and `{name}` have the same secret"))
                .at(node.at, "a delivery signed for one is accepted by the other")
                .hint("give each sender its own secret");
        }
        self.secrets_seen.extend(secrets.iter().map(|secret| (secret.clone(), name.to_owned())));
        secrets.iter().map(|secret| secret.expose().to_vec()).collect()
    }

    fn standard_webhooks(
        &mut self,
        secrets: &[Vec<u8>],
        tolerance: Duration,
        at: ConfigSpan,
    ) -> Option<VerificationScheme> {
        VerificationScheme::standard_webhooks(secrets, tolerance)
            .map_err(|why| {
                self.diagnostics.error("the secret is not a Standard Webhooks secret").at(at, why);
            })
            .ok()
    }

    fn hmac(
        &mut self,
        keys: &ConfigSection<'_>,
        described: bool,
        secrets: SourceSecrets,
        delivery: Option<&FieldLocation>,
    ) -> Option<VerificationScheme> {
        if !described || !keys.has("header") {
            self.diagnostics
                .error("scheme `hmac` needs the header with the signature")
                .unless(described && keys.misspells("header"))
                .at(keys.at, "`header` is missing")
                .hint("verify = { scheme = \"hmac\", secret = …, header = \"x-signature\" }");
            return None;
        }
        let header = keys.text("header")?.to_ascii_lowercase();
        let over = self.over(keys)?;
        let timestamp = keys.node("timestamp").map(|node| self.place(node));
        self.signed_time(keys, &over, timestamp.as_ref());
        if over.contains(&SignedPiece::Id) && delivery.is_none() {
            self.diagnostics
                .error("`over` has an {id}, but `delivery` is missing")
                .unless(self.unread.delivery)
                .at(keys.place("over"), "")
                .hint("set delivery = \"header.x-id\" in the source");
        }
        let id = delivery.filter(|_| over.contains(&SignedPiece::Id)).cloned();
        Some(VerificationScheme::Hmac(Box::new(HmacScheme {
            secrets,
            header,
            prefix: keys.text("prefix").unwrap_or_default().to_owned(),
            hash: match keys.text("hash") {
                Some("sha1") => HmacHash::Sha1,
                Some("sha512") => HmacHash::Sha512,
                _ => HmacHash::Sha256,
            },
            encoding: match keys.text("encoding") {
                Some("base64") => SignatureEncoding::Base64,
                _ => SignatureEncoding::Hex,
            },
            over,
            timestamp,
            id,
            tolerance: self.positive(keys, "tolerance").unwrap_or(TOLERANCE),
        })))
    }

    /// The signed content.
    fn over(&mut self, keys: &ConfigSection<'_>) -> Option<Vec<SignedPiece>> {
        let Some(node) = keys.node("over") else { return Some(vec![SignedPiece::Body]) };
        match verify::parse_over(node.text()?) {
            Ok(over) => Some(over),
            Err(why) => {
                self.diagnostics.error("`over` cannot be read").at(node.at, why).hint("over = \"{timestamp}.{body}\"");
                None
            }
        }
    }

    /// Checks that `timestamp` is signed, and that a signed timestamp has a location.
    fn signed_time(&mut self, keys: &ConfigSection<'_>, over: &[SignedPiece], timestamp: Option<&FieldLocation>) {
        match (over.contains(&SignedPiece::Timestamp), timestamp) {
            (true, None) => {
                self.diagnostics
                    .error("`over` has a {timestamp}, but `timestamp` is missing")
                    .unless(keys.misspells("timestamp"))
                    .at(keys.place("over"), "")
                    .hint("set timestamp = \"header.x-time\"");
            }
            (false, Some(place)) if !matches!(place, FieldLocation::Body(_)) => {
                self.diagnostics
                    .error("`timestamp` is not part of `over`")
                    .at(keys.place("timestamp"), "anyone who repeats a delivery could change it")
                    .hint("over = \"{timestamp}.{body}\", if the sender signs both");
            }
            (false, None) if keys.has("tolerance") => {
                self.diagnostics
                    .error("`tolerance` needs a `timestamp`")
                    .unless(keys.misspells("timestamp"))
                    .at(keys.place("tolerance"), "there is no time to compare with");
            }
            _ => {}
        }
    }
}
