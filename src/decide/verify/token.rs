//! Verifies a token that comes with each delivery. A sender that knows it is trusted with everything in the request.

use super::scheme::{Scheme, SignedContent};
use super::signature::{MatchedKey, SourceSecrets};
use super::{credential, text_at};
use crate::decide::delivery::{Delivery, DeliveryRejection};
use crate::decide::field::FieldLocation;
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
        Self { secrets, at: FieldLocation::Header(AUTHORIZATION.into()), form }
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
        let matched = match (self.form, &self.at) {
            (TokenForm::Bearer, _) => self.authorized(delivery, "bearer"),
            (TokenForm::Basic, _) => self.authorized(delivery, "basic"),
            (TokenForm::Plain, FieldLocation::Header(name)) => {
                self.secrets.verify_token(credential(delivery, name)?.as_bytes())
            }
            (TokenForm::Plain, place) => {
                let token = text_at(place, delivery)?;
                if token.is_empty() || token.len() > limits::SIGNATURE_BYTES_MAX {
                    return Err(DeliveryRejection::BadSignature);
                }
                self.secrets.verify_token(token.as_bytes())
            }
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
        let FieldLocation::Body(path) = &self.at else { return None };
        self.secrets.token().map(|token| (&**path, token))
    }

    fn words(&self) -> String {
        match self.form {
            TokenForm::Plain => format!("a token in {}", self.at),
            TokenForm::Bearer => "a bearer token".into(),
            TokenForm::Basic => "a user and a password".into(),
        }
    }

    fn credential_places(&self) -> Vec<FieldLocation> {
        vec![self.at.clone()]
    }

    fn secrets(&self) -> Option<&SourceSecrets> {
        Some(&self.secrets)
    }

    fn with_secrets(&self, secrets: Vec<Vec<u8>>) -> Result<Arc<dyn Scheme>, String> {
        Ok(Arc::new(Self { secrets: SourceSecrets::new(secrets), ..self.clone() }))
    }
}
