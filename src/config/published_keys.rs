//! Schemes whose keys the sender publishes: `jwt`, `sns` and `paypal`. A `jwt` may also have a shared secret.

use super::Provenance;
use super::once::provenance;
use super::raw::{ConfigNode, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::verify::SchemeInput;
use crate::action::forward::ip_filter::{IpRange, check_address};
use crate::decide::field::FieldLocation;
use crate::decide::limits;
use crate::decide::time::Duration;
use crate::decide::verify::{
    DEFAULT_TOLERANCE, JwtKeys, JwtScheme, PaypalScheme, PinnedHost, RequiredClaim, SnsScheme, SourceSecrets,
    VerificationScheme,
};
use crate::key_fetch::{FetchedKeys, KeyFetchWay, KeyOrigin};
use std::net::IpAddr;
use std::sync::Arc;

/// The schemes that need no secret, because the sender publishes its keys.
pub(super) const FETCHING: &[&str] = &["jwt", "sns", "paypal"];

/// How old a message of SNS may be, if the config does not say: it is sent again under its first time.
const SNS_TOLERANCE: Duration = Duration::from_hours(24);
/// How old a delivery of PayPal may be, if the config does not say: it is sent again for three days.
const PAYPAL_TOLERANCE: Duration = Duration::from_hours(4 * 24);
const PAYPAL: &str = "https://api.paypal.com";

/// Issuers that sign for everyone, without what begins their URL: what pins the owner must be required.
const SHARED_ISSUERS: &[&str] = &[
    "token.actions.githubusercontent.com",
    "gitlab.com",
    "accounts.google.com",
    "login.microsoftonline.com",
    "sts.windows.net",
    "agent.buildkite.com",
    "oidc.circleci.com",
    "app.terraform.io",
    "oidc.vercel.com",
];
/// An error that has been reported.
struct ReportedError;

/// Claims that name an owner.
const OWNER_CLAIMS: &[&str] = &[
    "sub",
    "repository",
    "repository_id",
    "repository_owner",
    "repository_owner_id",
    "project_path",
    "project_id",
    "namespace_path",
    "namespace_id",
    "email",
    "appid",
    "azp",
    "oid",
    "organization_id",
    "owner_id",
    "terraform_organization_id",
];

/// Whether this URL may be fetched: over TLS, or from this machine.
fn is_fetchable(text: &str) -> Result<(), &'static str> {
    let url = reqwest::Url::parse(text).map_err(|_| "it is not a URL")?;
    let is_loopback = |address: IpAddr| address.is_loopback();
    let loopback = url.host_str() == Some("localhost") || literal_address(text).is_some_and(is_loopback);
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    match url.scheme() {
        "https" if plain => Ok(()),
        "http" if plain && loopback => Ok(()),
        "http" => Err("keys are fetched over https only"),
        _ => Err("expected a URL that begins with https://"),
    }
}

/// The address that is the host of this URL, if it is no name.
fn literal_address(text: &str) -> Option<IpAddr> {
    let url = reqwest::Url::parse(text).ok()?;
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// The ranges of addresses that are not public, from which keys may be fetched nevertheless.
fn key_hosts(input: &SchemeInput<'_>) -> Vec<IpRange> {
    let list = input.source.node("allow_keys_from").and_then(ConfigNode::list).unwrap_or(&[]);
    list.iter().filter_map(|item| item.text()?.parse().ok()).collect()
}

impl ConfigResolver<'_> {
    /// The short form of a key in the source, or the key of `verify`, which may be a preset's.
    fn either<'n>(input: &'n SchemeInput<'_>, key: &str) -> Option<&'n ConfigNode> {
        let inner = || if input.described { input.keys.node(key) } else { None };
        input.source.node(key).or_else(inner)
    }

    fn either_text<'n>(input: &'n SchemeInput<'_>, key: &str) -> Option<&'n str> {
        Self::either(input, key).and_then(ConfigNode::text)
    }

    /// Where a missing key is reported: at the source, if the scheme is a preset's.
    fn missing(&mut self, input: &SchemeInput<'_>, key: &str, what: &str, hint: &str) {
        self.diagnostics
            .error(format!("scheme `{}` needs `{key}`: {what}", input.name))
            .unless(input.source.misspells(key))
            .at(input.secret_place(input.source.at), "")
            .hint(hint);
    }

    /// Reports a blank text, which no delivery has.
    fn not_blank(&mut self, input: &SchemeInput<'_>, key: &str, why: &str) {
        if let Some(node) =
            Self::either(input, key).filter(|node| node.text().is_some_and(|text| text.trim().is_empty()))
        {
            self.diagnostics.error(format!("`{key}` is empty")).at(node.at, why);
        }
    }

    fn fetchable(&mut self, input: &SchemeInput<'_>, text: &str, at: ConfigSpan) -> bool {
        if let Err(why) = is_fetchable(text) {
            self.diagnostics.error(format!("keys cannot be fetched from `{text}`")).at(at, why);
            return false;
        }
        // A name is looked up, and its addresses are checked, when the keys are fetched.
        let address = literal_address(text).filter(|_| text.starts_with("https://"));
        if let Some(address) = address
            && let Err(forbidden) = check_address(address, &key_hosts(input))
        {
            self.diagnostics
                .error(format!("keys cannot be fetched from `{text}`"))
                .at(at, format!("{}, and no public address", forbidden.why()))
                .hint(format!("allow_keys_from = [\"{address}\"], if this is intended"));
            return false;
        }
        true
    }

    /// Reports addresses in `allow_keys_from` that cannot be read, and the key where no keys are fetched.
    pub(super) fn check_key_hosts(&mut self, source: &ConfigSection<'_>, fetches: bool) {
        let Some(node) = source.node("allow_keys_from") else { return };
        for item in node.list().unwrap_or(&[]) {
            if let Some(Err(why)) = item.text().map(str::parse::<IpRange>) {
                self.diagnostics.error("`allow_keys_from` cannot be read").at(item.at, why);
            }
        }
        if !fetches {
            self.diagnostics
                .warning("`allow_keys_from` has no effect")
                .at(source.key_place("allow_keys_from"), "this source fetches no keys");
        } else if self.proxy.is_some() {
            self.diagnostics.warning("`allow_keys_from` has no effect").at(
                source.key_place("allow_keys_from"),
                "keys are fetched through `proxy`, which looks up names itself",
            );
        }
    }

    fn fetched_from(&mut self, input: &SchemeInput<'_>, origin: KeyOrigin) -> Arc<FetchedKeys> {
        let way = KeyFetchWay { proxy: self.proxy.clone(), allow: key_hosts(input).into() };
        let keys = FetchedKeys::new(origin, way);
        self.keys_made = Some(keys.clone());
        keys
    }

    pub(super) fn jwt(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let word = |key: &str| input.keys.text(key).filter(|_| input.described);
        let shared = Self::either(input, "secret").is_some();
        let issuer = Self::either_text(input, "issuer").map(str::to_owned);
        let audience = Self::either_text(input, "audience").map(str::to_owned);
        self.not_blank(input, "audience", "no token is for that");
        let claims = self.required_claims(input);
        let header = match word("header") {
            Some(name) => self.header_name(name, input.keys.place("header"))?,
            None => "authorization".to_owned(),
        };
        if input.described {
            self.prefix_of_a_header(&input.keys);
        }
        let prefix = if header == "authorization" { "Bearer " } else { "" };
        let prefix = word("prefix").unwrap_or(prefix).to_owned();
        if let Some(keys) = Self::either(input, "keys").filter(|_| shared) {
            self.diagnostics
                .error("a token is verified with a secret or with the issuer's keys, not with both")
                .at(keys.at, "`secret` is set, too")
                .hint("remove one of them");
        }
        let for_one_body = word("body_digest").is_some();
        let keys = if shared {
            JwtKeys::Shared(SourceSecrets::new(input.secrets.clone()))
        } else {
            JwtKeys::Published(self.issuer_keys(input, issuer.as_deref(), &claims)?)
        };
        self.needs_audience(input, shared && for_one_body);
        let tolerance = if input.described { self.positive(&input.keys, "tolerance") } else { None };
        Some(VerificationScheme::new(JwtScheme {
            keys,
            header,
            prefix,
            issuer,
            audience,
            claims,
            // A token for one body needs no end of its own: what was signed is an identity.
            without_expiry: shared && for_one_body,
            body_digest: word("body_digest").map(str::to_owned),
            tolerance: tolerance.unwrap_or(DEFAULT_TOLERANCE),
        }))
    }

    /// Reports a missing audience, unless the token is for one body.
    fn needs_audience(&mut self, input: &SchemeInput<'_>, is_for_one_body: bool) {
        if Self::either_text(input, "audience").is_none() && !is_for_one_body {
            let what = "a token for another service would count here";
            self.missing(input, "audience", what, "audience = \"https://hooks.example.com\", as the sender sets it");
        }
    }

    /// The keys of a token's issuer, after what pins its owner is known to be required.
    fn issuer_keys(
        &mut self,
        input: &SchemeInput<'_>,
        issuer: Option<&str>,
        claims: &[RequiredClaim],
    ) -> Option<Arc<FetchedKeys>> {
        let Some(issuer) = issuer else {
            let asks = input.sender.is_some_and(|sender| sender.needs.iter().any(|key| key == "issuer"));
            if provenance(input.at) == Provenance::Preset && !asks {
                self.missing(input, "secret", "the sender signs with it", "secret = { env = \"WEBHOOK_SECRET\" }");
                self.needs_audience(input, input.described && input.keys.has("body_digest"));
                return None;
            }
            self.missing(input, "issuer", "who signs the tokens, or `secret`", "issuer = \"https://…\"");
            return None;
        };
        if !issuer.contains("://") && Self::either(input, "keys").is_none() {
            self.missing(input, "secret", "the issuer publishes no keys", "secret = { env = \"WEBHOOK_SECRET\" }");
            return None;
        }
        let owned = claims.iter().any(|claim| claim.path.first().is_some_and(|name| OWNER_CLAIMS.contains(&&**name)));
        // Google writes its name in both ways, with and without what begins a URL.
        let host = issuer.strip_prefix("https://").unwrap_or(issuer);
        let is_at =
            |shared: &&str| host.strip_prefix(shared).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let shared = SHARED_ISSUERS.iter().any(is_at);
        // An installation of one's own signs for all of its users, too.
        let asked = input.sender.is_some_and(|sender| sender.needs.iter().any(|key| key == "claims"));
        // What a preset of the user's own needs, and a source has not at all, is reported for every key.
        let asked = asked && (!claims.is_empty() || input.is_of_built_in_preset());
        if (shared || asked) && !owned {
            let whom = if shared { "everyone" } else { "all of its users" };
            let what = format!("this issuer signs for {whom}, and only a claim pins the owner");
            let known = input.sender.and_then(|sender| sender.claims.clone());
            let example =
                known.unwrap_or_else(|| "{ repository = \"owner/name\" }, or sub, project_path, email".into());
            self.missing(input, "claims", &what, &format!("claims = {example}"));
        }
        let named = Self::either(input, "keys");
        let (url, at) = match named.and_then(|node| Some((node.text()?, node.at))) {
            Some(named) => named,
            None => (issuer, Self::either(input, "issuer").map_or(input.at, |node| node.at)),
        };
        if !self.fetchable(input, url, at) {
            return None;
        }
        let origin = if named.is_some() { KeyOrigin::KeySet(url.into()) } else { KeyOrigin::Issuer(url.into()) };
        Some(self.fetched_from(input, origin))
    }

    /// The claims that a token must have: those of the scheme and those of the source.
    fn required_claims(&mut self, input: &SchemeInput<'_>) -> Vec<RequiredClaim> {
        let inner = if input.described { input.keys.node("claims") } else { None };
        let mut claims: Vec<RequiredClaim> = Vec::new();
        for node in inner.into_iter().chain(input.source.node("claims")) {
            let Some(table) = node.table() else { continue }; // validation has reported its type
            for entry in &table.entries {
                let one = entry.node.text().map(|text| vec![text.to_owned()]);
                let several = || {
                    let list = entry.node.list()?;
                    list.iter().map(|item| item.text().map(str::to_owned)).collect::<Option<Vec<_>>>()
                };
                let values = one.or_else(several).filter(|values| !values.is_empty());
                let values = values.filter(|values| !values.iter().any(|value| value.trim().is_empty()));
                let Some(values) = values.filter(|values| values.len() <= limits::REQUIRED_CLAIMS_MAX) else {
                    self.diagnostics
                        .error(format!("the claim `{}` has no value", entry.key))
                        .at(entry.node.at, "expected a string, or a list of strings of which one must fit");
                    continue;
                };
                match FieldLocation::parse(&format!("claim.{}", entry.key)) {
                    Ok(FieldLocation::Claim(path)) => claims.push(RequiredClaim { path, values }),
                    _ => {
                        self.diagnostics.error(format!("`{}` is not the name of a claim", entry.key)).at(
                            entry.key_at,
                            "a name, or several joined with dots; one with a dot is quoted: '\"a.b\"'",
                        );
                    }
                }
            }
        }
        if claims.len() > limits::REQUIRED_CLAIMS_MAX {
            let label = format!("at most {} are allowed", limits::REQUIRED_CLAIMS_MAX);
            self.diagnostics.error("too many claims are required").at(input.at, label);
        }
        claims
    }

    /// The host of certificates that the config names; an error if it is none.
    fn certificate_host(&mut self, input: &SchemeInput<'_>) -> Result<Option<String>, ReportedError> {
        let Some(node) = Self::either(input, "certificates") else { return Ok(None) };
        let text = node.text().ok_or(ReportedError)?.trim_end_matches('/');
        if !self.fetchable(input, text, node.at) {
            return Err(ReportedError);
        }
        if text.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?'])) {
            self.diagnostics
                .error("`certificates` is not the address of a host")
                .at(node.at, "expected a scheme and a host, such as https://api.sandbox.paypal.com");
            return Err(ReportedError);
        }
        Ok(Some(text.to_owned()))
    }

    pub(super) fn sns(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let named = self.certificate_host(input).ok()?;
        let Some(node) = Self::either(input, "topic") else {
            let what = "anyone can have a topic, which SNS signs for as well";
            self.missing(input, "topic", what, "topic = \"arn:aws:sns:REGION:ACCOUNT:NAME\"");
            return None;
        };
        let topic = node.text()?;
        if topic.contains(['*', '?']) {
            self.diagnostics
                .error("`topic` has a wildcard, so nothing could be verified")
                .at(node.at, "SNS signs the whole name of one topic")
                .hint("use one source for each topic");
            return None;
        }
        let host = match (named, PinnedHost::of_topic(topic)) {
            (Some(origin), _) => PinnedHost::sns(origin),
            (None, Ok(host)) => host,
            (None, Err(why)) => {
                self.diagnostics.error(format!("`{topic}` is not a topic of SNS")).at(node.at, why);
                return None;
            }
        };
        let tolerance = if input.described { self.positive(&input.keys, "tolerance") } else { None };
        let keys = self.fetched_from(input, KeyOrigin::Certificates(host.origin().to_owned()));
        let tolerance = tolerance.unwrap_or(SNS_TOLERANCE);
        Some(VerificationScheme::new(SnsScheme { topic: topic.to_owned(), host, keys, tolerance }))
    }

    pub(super) fn paypal(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let host = self.certificate_host(input).ok()?.unwrap_or_else(|| PAYPAL.to_owned());
        let host = PinnedHost::paypal(host);
        self.not_blank(input, "webhook_id", "PayPal signs the id of each webhook");
        let Some(webhook_id) = Self::either_text(input, "webhook_id") else {
            let what = "without it, what PayPal signed for any other webhook would count";
            self.missing(input, "webhook_id", what, "webhook_id = \"…\", as PayPal shows it");
            return None;
        };
        let tolerance = if input.described { self.positive(&input.keys, "tolerance") } else { None };
        let tolerance = tolerance.unwrap_or(PAYPAL_TOLERANCE);
        let keys = self.fetched_from(input, KeyOrigin::Certificates(host.origin().to_owned()));
        Some(VerificationScheme::new(PaypalScheme { webhook_id: webhook_id.to_owned(), host, keys, tolerance }))
    }
}
