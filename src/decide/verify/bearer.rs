//! A token in `Authorization: Bearer …`: who knows it is trusted with everything in the request.

use super::secrets::{Matched, Secrets};
use super::signature;
use crate::decide::delivery::Delivery;
use crate::decide::refusal::Refusal;

pub(super) const HEADER: &str = "authorization";

/// Which secret the caller knows.
pub(super) fn verify(secrets: &Secrets, delivery: &Delivery<'_>) -> Result<Matched, Refusal> {
    let (scheme, token) = signature(delivery, HEADER)?.split_once(' ').ok_or(Refusal::BadSignature)?;
    if scheme.eq_ignore_ascii_case("bearer") { secrets.equal(token.as_bytes()) } else { Err(Refusal::BadSignature) }
}

/// The header a caller would set.
pub(super) fn sign(secrets: &Secrets) -> Vec<(String, String)> {
    secrets.token().map(|token| (HEADER.to_owned(), format!("Bearer {token}"))).into_iter().collect()
}
