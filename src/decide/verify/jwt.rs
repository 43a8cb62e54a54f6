//! Verifies JSON Web Tokens: signed by a pinned issuer with one of its published keys, or with a shared secret.
//!
//! The key decides the algorithm, never the token: a published key verifies only the algorithm of its own type, and a
//! secret only HS256. A token counts as a token does anywhere: it comes with any body, unless one of its claims is the
//! digest of the body.

use super::expectation::{ANOTHER_KEY, ANOTHER_SIGNATURE, header_within};
use super::fetched_key::{KeyDirectory, KeyDocument, KeyRequest, PublishedKey, PublishedKeyAlgorithm};
use super::scheme::{PublishedProof, PublishedSigner, Scheme, SignedContent};
use super::signature::{HmacHash, MatchedKey, SourceSecrets};
use super::strict_json;
use crate::decide::delivery::{Delivery, DeliveryRejection, HeaderLookup};
use crate::decide::field::FieldLocation;
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp, duration_text};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// A JSON Web Token in a header.
#[derive(Clone, Debug)]
pub struct JwtScheme {
    /// What verifies it.
    pub keys: JwtKeys,
    /// The header that it is in, in lower case.
    pub header: String,
    /// The text before it, such as `Bearer `; its case does not matter.
    pub prefix: String,
    /// The issuer: the claim `iss`.
    pub issuer: Option<String>,
    /// Who it must be for: the claim `aud`, or one of its entries.
    pub audience: Option<String>,
    /// Claims that it must have, each with one of these values.
    pub claims: Vec<RequiredClaim>,
    /// The claim with the SHA-256 of the body, in hex; `None`: the body is not signed.
    pub body_digest: Option<String>,
    /// Whether `exp` may be absent.
    pub without_expiry: bool,
    /// How far clocks may differ.
    pub tolerance: Duration,
}

/// What verifies a token.
#[derive(Clone, Debug)]
pub enum JwtKeys {
    /// The issuer's published keys.
    Published(Arc<dyn KeyDirectory>),
    /// Secrets that are shared with the issuer.
    Shared(SourceSecrets),
}

/// A claim that a token must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredClaim {
    /// Its path.
    pub path: Vec<String>,
    /// The accepted values, as texts.
    pub values: Vec<String>,
}

/// The parts of a token, decoded and not yet verified.
struct TokenParts<'t> {
    /// What is signed.
    message: &'t str,
    header: Map<String, Json>,
    claims: Map<String, Json>,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

const BAD: DeliveryRejection = DeliveryRejection::BadSignature;

/// Decodes a token: three parts in base64url without padding, of which two are JSON objects without doubled names. One
/// whose header has extensions that must be understood is none.
fn parse(token: &str) -> Option<TokenParts<'_>> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, payload) = message.split_once('.')?;
    if token.len() > limits::JWT_BYTES_MAX || payload.contains('.') {
        return None;
    }
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
    let header = strict_json::object(&header)?;
    let claims = strict_json::object(&payload)?;
    let plain = !header.contains_key("crit") && !header.contains_key("b64");
    plain.then_some(TokenParts { message, header, claims, payload, signature })
}

/// The ways in which Google writes its name in `iss`: it documents both.
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// Whether a token's claim `iss` names this issuer.
fn is_issuer(issuer: &str, claim: Option<&str>) -> bool {
    claim.is_some_and(|claim| claim == issuer || GOOGLE.contains(&issuer) && GOOGLE.contains(&claim))
}

/// A time in the claims of a token.
enum ClaimedTime {
    Absent,
    /// Something else than a time.
    Unreadable,
    At(Timestamp),
}

/// The time of this name: seconds since 1970, whole or not.
fn claimed_time(claims: &Map<String, Json>, name: &str) -> ClaimedTime {
    let Some(value) = claims.get(name) else { return ClaimedTime::Absent };
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    let micros = |time: f64| (0.0..1e11).contains(&time).then_some(Timestamp((time * 1e6) as i64));
    value.as_f64().and_then(micros).map_or(ClaimedTime::Unreadable, ClaimedTime::At)
}

/// The text of a scalar claim.
fn text_of(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(value) => Some(value.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

impl RequiredClaim {
    fn at<'c>(&self, claims: &'c Map<String, Json>) -> Option<&'c Json> {
        let mut parts = self.path.iter();
        let first = parts.next().and_then(|part| claims.get(part))?;
        parts.try_fold(first, |at, part| at.as_object()?.get(part))
    }

    fn holds(&self, claims: &Map<String, Json>) -> bool {
        self.at(claims).and_then(text_of).is_some_and(|text| self.values.contains(&text))
    }

    /// Adds it with the first of its values.
    fn put(&self, claims: &mut Json) {
        let mut at = claims;
        for part in &self.path {
            if !at.is_object() {
                *at = json!({});
            }
            at = &mut at[part];
        }
        *at = json!(self.values.first());
    }
}

impl JwtScheme {
    fn token<'d>(&self, delivery: &Delivery<'d>) -> Option<&'d str> {
        let HeaderLookup::One(value) = delivery.header(&self.header) else { return None };
        let value = std::str::from_utf8(value).ok()?;
        let (prefix, token) = value.split_at_checked(self.prefix.len())?;
        prefix.eq_ignore_ascii_case(&self.prefix).then_some(token)
    }

    fn check_signature(&self, token: &TokenParts<'_>, now: Timestamp) -> Result<MatchedKey, DeliveryRejection> {
        let algorithm = token.header.get("alg").and_then(Json::as_str).ok_or(BAD)?;
        match &self.keys {
            JwtKeys::Shared(secrets) => {
                if algorithm != "HS256" {
                    return Err(BAD);
                }
                let signatures = std::slice::from_ref(&token.signature);
                secrets.verify_signature(HmacHash::Sha256, &[token.message.as_bytes()], signatures)
            }
            JwtKeys::Published(directory) => {
                let algorithm = PublishedKeyAlgorithm::of_jwt(algorithm).ok_or(BAD)?;
                let id = match token.header.get("kid") {
                    None => None,
                    Some(id) => Some(id.as_str().filter(|id| id.len() <= limits::KEY_ID_BYTES_MAX).ok_or(BAD)?),
                };
                let request = KeyRequest { document: KeyDocument::KeySet, id: id.map(str::to_owned) };
                let keys = directory.find(&request, now);
                let fitting: Vec<_> = keys.iter().filter(|key| key.fits(algorithm)).collect();
                // Without an id each key is tried. With many of them a forged token would be too much work.
                if fitting.len() > limits::KEYS_WITHOUT_ID_MAX {
                    return Err(BAD);
                }
                // The key that signed it may not be known yet, unless the token names one that was published just now.
                let named = id.is_some() && keys.iter().any(|key| key.id.is_some());
                let known = named && !directory.may_have_changed();
                let right =
                    |key: &&&Arc<PublishedKey>| key.verifies(algorithm, token.message.as_bytes(), &token.signature);
                match fitting.iter().find(right) {
                    Some(key) => Ok(MatchedKey::new(0, key.mark())),
                    None if known => Err(BAD),
                    None => Err(DeliveryRejection::KeyUnavailable(Box::new(request))),
                }
            }
        }
    }

    /// Checks what does not depend on the key. It comes first: a token that would be refused anyway asks for no key.
    fn check_claims(&self, claims: &Map<String, Json>, delivery: &Delivery<'_>) -> Result<(), DeliveryRejection> {
        if self.claims_difference(claims, delivery).is_none() { Ok(()) } else { Err(BAD) }
    }

    /// The first claim that is not as it should be.
    fn claims_difference(&self, claims: &Map<String, Json>, delivery: &Delivery<'_>) -> Option<String> {
        let text = |name: &str| claims.get(name).and_then(Json::as_str);
        if self.issuer.as_deref().is_some_and(|issuer| !is_issuer(issuer, text("iss"))) {
            return Some(another(claims, "iss"));
        }
        let meant = self.audience.as_deref().is_none_or(|audience| match claims.get("aud") {
            Some(Json::String(one)) => one == audience,
            Some(Json::Array(all)) => all.iter().any(|one| one.as_str() == Some(audience)),
            _ => false,
        });
        if !meant {
            return Some(another(claims, "aud"));
        }
        if let Some(claim) = self.claims.iter().find(|claim| !claim.holds(claims)) {
            let there = claim.at(claims).is_some();
            let what = if there { "another value of the claim" } else { "no claim" };
            return Some(format!("{what} {}", claim.path.join(".")));
        }
        if let Some(name) = &self.body_digest {
            let theirs = text(name).and_then(|text| hex::decode(text).ok()).unwrap_or_default();
            if verify_slices_are_equal(digest(&SHA256, delivery.body).as_ref(), &theirs).is_err() {
                return Some(format!("the digest of another body in the claim {name}, or none"));
            }
        }
        self.time_difference(claims, delivery.wall)
    }

    fn time_difference(&self, claims: &Map<String, Json>, now: Timestamp) -> Option<String> {
        if self.tolerance == Duration::MAX {
            return None;
        }
        // Whole seconds: more would only be noise.
        let shown = |off: Duration| duration_text(Duration::from_secs(off.as_secs()));
        match claimed_time(claims, "exp") {
            ClaimedTime::Absent if self.without_expiry => {}
            ClaimedTime::Absent => return Some("no claim exp".to_owned()),
            ClaimedTime::Unreadable => return Some("no time in the claim exp".to_owned()),
            ClaimedTime::At(time) if time + self.tolerance <= now => {
                return Some(format!("a token that expired {} ago", shown(now.since(time))));
            }
            ClaimedTime::At(_) => {}
        }
        ["nbf", "iat"].into_iter().find_map(|name| match claimed_time(claims, name) {
            ClaimedTime::Unreadable => Some(format!("no time in the claim {name}")),
            ClaimedTime::At(time) if time > now + self.tolerance => {
                Some(format!("a time that is {} ahead in the claim {name}", shown(time.since(now))))
            }
            ClaimedTime::Absent | ClaimedTime::At(_) => None,
        })
    }

    /// The claims of a genuine token; a required one counts more than one of these others.
    fn claims_of_sender(&self, id: &str, at: Timestamp, body: &[u8], others: &[RequiredClaim]) -> Json {
        let now = at.0.div_euclid(1_000_000);
        let mut claims = json!({});
        for claim in others {
            claim.put(&mut claims);
        }
        for (name, value) in [("iat", json!(now)), ("exp", json!(now + 300)), ("jti", json!(id))] {
            claims[name] = value;
        }
        for (name, value) in [("iss", &self.issuer), ("aud", &self.audience)] {
            if let Some(value) = value {
                claims[name] = json!(value);
            }
        }
        if let Some(name) = &self.body_digest {
            claims[name] = json!(hex::encode(digest(&SHA256, body)));
        }
        self.claims.iter().for_each(|claim| claim.put(&mut claims));
        claims
    }

    /// The header with a token.
    fn signed_token(
        &self,
        header: &Json,
        claims: &Json,
        sign: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Option<(String, String)> {
        let encode = |json: &Json| URL_SAFE_NO_PAD.encode(json.to_string());
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes())?);
        Some((self.header.clone(), format!("{}{message}.{signature}", self.prefix)))
    }

    /// What is wrong with a token whose claims are right.
    fn signature_difference(&self, token: &TokenParts<'_>, now: Timestamp) -> String {
        let algorithm = token.header.get("alg").and_then(Json::as_str).unwrap_or_default();
        let known = match &self.keys {
            JwtKeys::Shared(_) => algorithm == "HS256",
            JwtKeys::Published(_) => PublishedKeyAlgorithm::of_jwt(algorithm).is_some(),
        };
        if !known {
            return "a token that is signed in another way (alg)".to_owned();
        }
        let (JwtKeys::Published(directory), Some(algorithm)) = (&self.keys, PublishedKeyAlgorithm::of_jwt(algorithm))
        else {
            return ANOTHER_SIGNATURE.to_owned();
        };
        let id = token.header.get("kid").and_then(Json::as_str).map(str::to_owned);
        let named = id.is_some();
        let keys = directory.find(&KeyRequest { document: KeyDocument::KeySet, id }, now);
        let fitting = keys.iter().filter(|key| key.fits(algorithm)).count();
        match (named, fitting) {
            (true, 0) => "a key that the issuer has not published, or not for this way to sign (kid)".to_owned(),
            (false, 0) => "no key of the issuer for this way to sign".to_owned(),
            (false, many) if many > limits::KEYS_WITHOUT_ID_MAX => "no key named (kid), and too many to try".to_owned(),
            _ => ANOTHER_KEY.to_owned(),
        }
    }
}

/// A claim that is there with another value, or not there.
fn another(claims: &Map<String, Json>, name: &str) -> String {
    if claims.contains_key(name) { format!("another value of the claim {name}") } else { format!("no claim {name}") }
}

impl Scheme for JwtScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let token = self.token(delivery).and_then(parse).ok_or(BAD)?;
        self.check_claims(&token.claims, delivery)?;
        self.check_signature(&token, delivery.wall).map(Some)
    }

    fn proof(&self, id: &str, at: Timestamp, body: &[u8]) -> Vec<(String, String)> {
        let JwtKeys::Shared(secrets) = &self.keys else { return Vec::new() };
        let claims = self.claims_of_sender(id, at, body, &[]);
        let sign = |message: &[u8]| Some(secrets.sign(HmacHash::Sha256, &[message])?.as_ref().to_vec());
        self.signed_token(&json!({ "alg": "HS256", "typ": "JWT" }), &claims, &sign).into_iter().collect()
    }

    fn published_proof(
        &self,
        id: &str,
        at: Timestamp,
        body: &[u8],
        by: &PublishedSigner<'_>,
    ) -> Option<PublishedProof> {
        let JwtKeys::Published(_) = &self.keys else { return None };
        let claims = self.claims_of_sender(id, at, body, by.claims);
        let header = json!({ "alg": "RS256", "kid": by.key, "typ": "JWT" });
        let headers = vec![self.signed_token(&header, &claims, by.sign)?];
        Some(PublishedProof { headers, members: Vec::new() })
    }

    fn covers(&self) -> SignedContent {
        if self.body_digest.is_some() { SignedContent::Body } else { SignedContent::Token }
    }

    fn words(&self) -> String {
        match (&self.issuer, &self.keys) {
            (Some(issuer), JwtKeys::Published(_)) => format!("a token (JWT) of {issuer}"),
            _ => format!("a token (JWT, HS256) in `{}`", self.header),
        }
    }

    fn expected(&self) -> Option<String> {
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{} and ", self.prefix.trim_end()) };
        let issuer = self.issuer.iter().map(|issuer| format!(", issuer {issuer}"));
        let audience = self.audience.iter().map(|audience| format!(", audience {audience}"));
        let claims =
            self.claims.iter().map(|claim| format!(", {} {}", claim.path.join("."), claim.values.join(" or ")));
        let digest = self.body_digest.iter().map(|name| format!(", {name} the digest of the body"));
        let parts: String = issuer.chain(audience).chain(claims).chain(digest).collect();
        Some(format!("header {} with {prefix}a token (JWT){parts}", self.header))
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let most = self.prefix.len() + limits::JWT_BYTES_MAX;
        if let Err(found) = header_within(delivery, &self.header, most) {
            return Some(found);
        }
        let Some(token) = self.token(delivery) else {
            return Some(format!("no {} at its beginning", self.prefix.trim_end()));
        };
        let Some(token) = parse(token) else { return Some("no whole token".to_owned()) };
        let difference = self.claims_difference(&token.claims, delivery);
        Some(difference.unwrap_or_else(|| self.signature_difference(&token, delivery.wall)))
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![FieldLocation::Header(self.header.clone())]
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        match &self.keys {
            JwtKeys::Shared(secrets) => Some(secrets),
            JwtKeys::Published(_) => None,
        }
    }

    fn has_key(&self) -> bool {
        self.secrets().is_none_or(SourceSecrets::any)
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        match &self.keys {
            JwtKeys::Shared(_) => {
                Ok(Arc::new(Self { keys: JwtKeys::Shared(SourceSecrets::new(secrets)), ..self.clone() }))
            }
            JwtKeys::Published(_) => Err("its tokens are signed by the issuer, not with a secret".into()),
        }
    }

    fn ignoring_age(&self) -> Option<Arc<dyn Scheme>> {
        Some(Arc::new(Self { tolerance: Duration::MAX, ..self.clone() }))
    }

    fn has_claims(&self) -> bool {
        true
    }

    fn claims(&self, delivery: &Delivery<'_>) -> Option<Vec<u8>> {
        Some(parse(self.token(delivery)?)?.payload)
    }
}
