//! Verifies a token that comes with each delivery. A sender that knows it is trusted with everything in the request.

use super::expectation::header_found;
use super::scheme::{Scheme, SignedContent};
use super::signature::{MatchedKey, SourceSecrets};
use super::{credential, text_at};
use crate::decide::delivery::{Delivery, DeliveryRejection, HeaderLookup};
use crate::decide::field::FieldLocation;
use crate::decide::json_walk::{JsonMatch, JsonPathTrie, JsonScalar, PathInterest};
use crate::decide::limits;
use crate::decide::time::Timestamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::sync::Arc;

const AUTHORIZATION: &str = "authorization";

/// A token that a sender sends with each delivery.
#[derive(Clone, Debug)]
pub(super) struct TokenScheme {
    pub(super) secrets: SourceSecrets,
    pub(super) at: FieldLocation,
    pub(super) form: TokenForm,
    /// The array in each of whose elements the token must be; the place is then one in an element.
    pub(super) each: Option<Vec<String>>,
    /// Where it may be instead, as it is.
    pub(super) else_at: Option<FieldLocation>,
}

/// How a token is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenForm {
    /// As it is.
    Plain,
    /// `Bearer` and the token.
    Bearer,
    /// `Basic` and the base64 of `user:password`, which is the token.
    Basic,
}

impl TokenScheme {
    /// A token in `Authorization: Bearer …` or `Authorization: Basic …`.
    pub(super) fn authorization(secrets: SourceSecrets, form: TokenForm) -> Self {
        Self { secrets, at: FieldLocation::Header(AUTHORIZATION.into()), form, each: None, else_at: None }
    }

    fn plain(&self, place: &FieldLocation, delivery: &Delivery<'_>) -> Result<MatchedKey, DeliveryRejection> {
        let token = text_at(place, delivery)?;
        if token.is_empty() || token.len() > limits::SIGNATURE_BYTES_MAX {
            return Err(DeliveryRejection::BadSignature);
        }
        self.secrets.verify_token(token.as_bytes())
    }

    /// The token in every element. Each of them must have it: an element without it is not its sender's.
    fn in_elements(
        &self,
        delivery: &Delivery<'_>,
        each: &[String],
        path: &[String],
    ) -> Result<MatchedKey, DeliveryRejection> {
        let refused = || DeliveryRejection::BadSignature;
        let mut document = JsonPathTrie::new();
        let array = document.add(each, PathInterest::Elements);
        let mut element = JsonPathTrie::new();
        let token = element.add(path, PathInterest::Value);
        let seen = document.walk(delivery.body).map_err(|_| refused())?;
        let JsonMatch::Elements(elements) = &seen[array] else { return Err(refused()) };
        let mut matched = None;
        for text in elements {
            let found = element.walk_checked(text).map_err(|_| refused())?;
            let Some(JsonScalar::Text(token)) = found[token].scalar() else { return Err(refused()) };
            if token.is_empty() || token.len() > limits::SIGNATURE_BYTES_MAX {
                return Err(refused());
            }
            matched = Some(self.secrets.verify_token(token.as_bytes())?);
        }
        matched.ok_or_else(refused)
    }

    /// Why a delivery can never bring this token, as a sentence; `None`: it can.
    fn never_received(&self, token: &[u8]) -> Option<&'static str> {
        if self.form == TokenForm::Basic {
            return (!token.contains(&b':')).then_some("it has no colon, so it can never match");
        }
        if std::str::from_utf8(token).is_err() {
            return Some("it is not UTF-8");
        }
        let prefix = if self.form == TokenForm::Bearer { "Bearer ".len() } else { 0 };
        if token.len() + prefix > limits::SIGNATURE_BYTES_MAX {
            return Some("it is longer than any token that is read");
        }
        // The parameter of a query that may have it instead can be anything.
        if !matches!(self.at, FieldLocation::Header(_)) || self.else_at.is_some() {
            return None;
        }
        if token.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Some("it has a line break or another control character, which no header can have");
        }
        let blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
        let ends = blank(token.last()) || self.form == TokenForm::Plain && blank(token.first());
        ends.then_some("it has a blank at an end, which is not part of a header's value")
    }

    /// The other place, if the header is not there.
    fn elsewhere(&self, delivery: &Delivery<'_>) -> Option<&FieldLocation> {
        self.else_at.as_ref().filter(|_| delivery.header(AUTHORIZATION) == HeaderLookup::Missing)
    }

    fn authorized(&self, delivery: &Delivery<'_>, name: &str) -> Result<MatchedKey, DeliveryRejection> {
        let (scheme, token) =
            credential(delivery, AUTHORIZATION)?.split_once(' ').ok_or(DeliveryRejection::BadSignature)?;
        if !scheme.eq_ignore_ascii_case(name) {
            return Err(DeliveryRejection::BadSignature);
        }
        match self.form {
            TokenForm::Basic => {
                let token = STANDARD.decode(token).map_err(|_| DeliveryRejection::BadSignature)?;
                self.secrets.verify_token(&token)
            }
            TokenForm::Plain | TokenForm::Bearer => self.secrets.verify_token(token.as_bytes()),
        }
    }
}

impl Scheme for TokenScheme {
    fn matching_key(&self, delivery: &Delivery<'_>) -> Result<Option<MatchedKey>, DeliveryRejection> {
        let elsewhere = self.elsewhere(delivery);
        let matched = match (self.form, elsewhere.unwrap_or(&self.at)) {
            (_, place) if elsewhere.is_some() => self.plain(place, delivery),
            (TokenForm::Bearer, _) => self.authorized(delivery, "bearer"),
            (TokenForm::Basic, _) => self.authorized(delivery, "basic"),
            (TokenForm::Plain, FieldLocation::Header(name)) => {
                self.secrets.verify_token(credential(delivery, name)?.as_bytes())
            }
            (TokenForm::Plain, FieldLocation::Body(path)) if self.each.is_some() => {
                self.in_elements(delivery, self.each.as_deref().unwrap_or_default(), path)
            }
            (TokenForm::Plain, place) => self.plain(place, delivery),
        };
        matched.map(Some)
    }

    fn proof(&self, _: &str, _: Timestamp, _: &[u8]) -> Vec<(String, String)> {
        let (FieldLocation::Header(name), Some(token)) = (&self.at, self.secrets.token()) else { return Vec::new() };
        let value = match self.form {
            TokenForm::Plain => token.into_owned(),
            TokenForm::Bearer => format!("Bearer {token}"),
            TokenForm::Basic => format!("Basic {}", STANDARD.encode(token.as_bytes())),
        };
        vec![(name.clone(), value)]
    }

    fn covers(&self) -> SignedContent {
        SignedContent::Token
    }

    fn token_in_body(&self) -> Option<(&[String], Cow<'_, str>)> {
        let path = self.at.body_path()?;
        self.secrets.token().map(|token| (path, token))
    }

    fn token_in_query(&self) -> Option<(&str, Cow<'_, str>)> {
        let FieldLocation::Query(name) = &self.at else { return None };
        self.secrets.token().map(|token| (&**name, token))
    }

    fn words(&self) -> String {
        match self.form {
            TokenForm::Plain if self.each.is_some() && matches!(self.at, FieldLocation::Body(_)) => {
                format!("a token in {} of each element", self.at)
            }
            TokenForm::Plain => format!("a token in {}", self.at),
            TokenForm::Bearer => match &self.else_at {
                Some(place) => format!("a bearer token, or a token in {place}"),
                None => "a bearer token".into(),
            },
            TokenForm::Basic => "a user and a password".into(),
        }
    }

    fn expected(&self) -> Option<String> {
        Some(match self.form {
            TokenForm::Plain if self.each.is_some() && matches!(self.at, FieldLocation::Body(_)) => {
                format!("the token in {} of each element", self.at)
            }
            TokenForm::Plain => format!("the token in {}", self.at),
            TokenForm::Bearer => {
                let elsewhere = self.else_at.as_ref().map(|place| format!(", or the token in {place}"));
                format!("header {AUTHORIZATION} with Bearer and the token{}", elsewhere.unwrap_or_default())
            }
            TokenForm::Basic => format!("header {AUTHORIZATION} with Basic and the user and password in base64"),
        })
    }

    fn found(&self, delivery: &Delivery<'_>) -> Option<String> {
        let at = |place| {
            let there = text_at(place, delivery).is_ok_and(|token| !token.is_empty());
            Some(if there { "another token" } else { "nothing there" }.to_owned())
        };
        if let Some(place) = self.elsewhere(delivery) {
            return at(place);
        }
        let scheme = match self.form {
            TokenForm::Plain if self.each.is_some() && matches!(self.at, FieldLocation::Body(_)) => {
                return Some("an element with another token or none, or no elements".to_owned());
            }
            TokenForm::Plain => return at(&self.at),
            TokenForm::Bearer => "bearer",
            TokenForm::Basic => "basic",
        };
        let header = match header_found(delivery, AUTHORIZATION) {
            Ok(header) => header,
            Err(found) => return Some(found),
        };
        let same = header.split_once(' ').is_some_and(|(name, _)| name.eq_ignore_ascii_case(scheme));
        Some(if same { "another token".to_owned() } else { format!("no {scheme} at its beginning") })
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        [&self.at].into_iter().chain(&self.else_at).cloned().collect()
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        Some(&self.secrets)
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        match secrets.iter().find_map(|secret| self.never_received(secret)) {
            Some(why) => Err(why.to_owned()),
            None => Ok(Arc::new(Self { secrets: SourceSecrets::new(secrets), ..self.clone() })),
        }
    }
}
