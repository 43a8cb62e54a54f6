//! What the deliveries of a source are verified with: its secrets, or its sender's public keys.

use super::Provenance;
use super::external_value::{ConfigSecret, UNKNOWN_URL};
use super::handshake;
use super::once::provenance;
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::verify::{STANDARD, VerifySettings};
use crate::decide::limits;
use std::collections::BTreeSet;

/// A secret of a source that was resolved before.
pub(super) struct SeenSecret {
    secret: ConfigSecret,
    source: String,
    /// Whether something in the answers to its handshakes is signed.
    signs_answers: bool,
}

/// Whether the config names the sender's public key.
pub(super) fn has_public_key(source: &ConfigSection<'_>, written: &VerifySettings<'_>) -> bool {
    source.has("public_key") || written.keys.is_some_and(|keys| keys.has("public_key"))
}

impl ConfigResolver<'_> {
    /// The sender's public keys, from `verify` or from the source.
    pub(super) fn public_keys(
        &mut self,
        source: &ConfigSection<'_>,
        written: &VerifySettings<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        let inner = written.keys.and_then(|keys| keys.node("public_key"));
        let Some(node) = inner.or_else(|| source.node("public_key")) else {
            let at = if provenance(written.at) == Provenance::Preset { source.at } else { written.at };
            self.diagnostics
                .error(format!("scheme `{}` needs the sender's public key", written.scheme))
                .unless(source.misspells("public_key"))
                .at(at, "")
                .hint("public_key = \"…\", as the sender shows it");
            return Some(Vec::new());
        };
        if let Some(secret) = source.node("secret") {
            let what = if written.scheme == STANDARD {
                "there are a public key and a secret".to_owned()
            } else {
                format!("scheme `{}` has no secret", written.scheme)
            };
            self.diagnostics
                .error(what)
                .at(secret.at, "it would not be used: the sender's public key verifies")
                .hint("remove it");
        }
        let several = node.list().unwrap_or_else(|| std::slice::from_ref(node));
        if several.is_empty() || several.len() > limits::SECRETS_MAX {
            let label = format!("expected one key, or up to {} while rotating", limits::SECRETS_MAX);
            self.diagnostics.error(format!("`public_key` has {} keys", several.len())).at(node.at, label);
            return None;
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for item in several {
            let found = self.text_or_external("public_key", item)?;
            let key = found.text.trim().as_bytes().to_vec();
            if found.text == UNKNOWN_URL {
                continue; // its value need not be here
            }
            if keys.contains(&key) {
                self.diagnostics.error("`public_key` has the same key twice").at(item.at, "the same as one before it");
                return None;
            }
            keys.push(key);
        }
        Some(keys)
    }

    /// The secrets. A missing one has been reported; what the scheme covers is known without it.
    pub(super) fn source_secrets(
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
            (Some(node), _) => Some(self.read_unshared_secrets(name, source, node, written.shortness())),
        }
    }

    /// The secrets of a scheme whose keys may be published instead. A secret beside published keys alone is an error.
    pub(super) fn optional_secrets(
        &mut self,
        name: &str,
        source: &ConfigSection<'_>,
        written: &VerifySettings<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        let inner = written.keys.and_then(|keys| keys.node("secret"));
        let Some(node) = inner.or_else(|| source.node("secret")) else { return Some(Vec::new()) };
        if written.scheme != "jwt" {
            self.diagnostics
                .error(format!("scheme `{}` has no secret", written.scheme))
                .at(node.at, "it would not be used: the sender publishes its keys")
                .hint("remove it");
        }
        self.source_secrets(name, source, written)
    }

    pub(super) fn read_unshared_secrets(
        &mut self,
        name: &str,
        source: &ConfigSection<'_>,
        node: &ConfigNode,
        is_short: fn(&[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        let secrets = self.secrets("secret", node, is_short).unwrap_or_default();
        let signs_answers = handshake::signs_answers(source);
        let seen = |secret: &ConfigSecret| self.secrets_seen.iter().find(|seen| seen.secret == *secret);
        let others: BTreeSet<(String, bool)> =
            secrets.iter().filter_map(seen).map(|other| (other.source.clone(), other.signs_answers)).collect();
        for (other, other_signs) in others {
            let same = format!("sources `{other}` and `{name}` have the same secret");
            if signs_answers == other_signs {
                self.diagnostics.warning(same).at(node.at, "a delivery signed for one is accepted by the other")
            } else {
                let signer = if signs_answers { name } else { &other };
                let why = format!("the handshakes of `{signer}` sign texts for anyone who asks");
                self.diagnostics.error(format!("{same}, and one of them signs handshakes")).at(node.at, why)
            }
            .hint("give each sender its own secret");
        }
        let all = secrets.iter().cloned();
        let seen = all.map(|secret| SeenSecret { secret, source: name.to_owned(), signs_answers });
        self.secrets_seen.extend(seen);
        secrets.iter().map(|secret| secret.expose().to_vec()).collect()
    }
}
