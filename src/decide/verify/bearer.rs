//! Verifies the token in `Authorization: Bearer …`. A client that knows it is trusted with everything in the request.

use super::signature;
use super::signature::{MatchedSecret, SourceSecrets};
use crate::decide::delivery::Delivery;
use crate::decide::delivery::DeliveryRejection;

pub(super) const HEADER: &str = "authorization";

/// The secret that matches the token.
pub(super) fn verify(secrets: &SourceSecrets, delivery: &Delivery<'_>) -> Result<MatchedSecret, DeliveryRejection> {
    let (scheme, token) = signature(delivery, HEADER)?.split_once(' ').ok_or(DeliveryRejection::BadSignature)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        secrets.verify_token(token.as_bytes())
    } else {
        Err(DeliveryRejection::BadSignature)
    }
}

/// The header that a client would set.
pub(super) fn sign(secrets: &SourceSecrets) -> Vec<(String, String)> {
    secrets.token().map(|token| (HEADER.to_owned(), format!("Bearer {token}"))).into_iter().collect()
}
