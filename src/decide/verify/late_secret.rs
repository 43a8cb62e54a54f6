//! A secret that a sender brings by its handshake: it may not be there when the node starts.

use super::VerificationScheme;
use std::fmt;
use std::sync::Arc;

/// Finds out how deliveries are verified, once the secret is there.
pub trait LateSecret: Send + Sync + fmt::Debug {
    /// How deliveries are verified. An error is a sentence that says why that is not known yet.
    fn scheme(&self) -> Result<Arc<VerificationScheme>, String>;
}
