//! Verification with one secret per caller: a field names the caller, and that caller's secret must have signed. The
//! secrets are fetched elsewhere. This module only decides which caller to look up, and makes an unknown caller
//! indistinguishable from one that signs wrongly.

use super::VerificationScheme;
use crate::decide::delivery::Delivery;
use crate::decide::field::{ExtractedField, Field, FieldLocation, FieldValue};
use crate::decide::limits;
use std::fmt;
use std::sync::Arc;

/// Finds how a caller's deliveries are verified. The result may change from one delivery to the next.
pub trait CallerDirectory: Send + Sync + fmt::Debug {
    /// How this caller's deliveries are verified; `None`: there is no such caller.
    fn scheme(&self, caller: &str) -> Option<Arc<VerificationScheme>>;

    /// Any caller, to sign a test delivery as.
    fn anyone(&self) -> Option<Arc<str>>;
}

/// The callers of a source, each with a secret of its own.
#[derive(Clone, Debug)]
pub struct PerCallerScheme {
    /// The field that names the caller; it is outside of the body.
    pub who: Field,
    /// The known callers.
    pub book: Arc<dyn CallerDirectory>,
}

impl PerCallerScheme {
    /// The caller that the delivery names; not verified yet.
    pub(super) fn caller(&self, delivery: &Delivery<'_>) -> Option<Arc<str>> {
        let found = self.who.at.read(delivery, b"").ok()?;
        match self.who.slot(found) {
            Ok(ExtractedField::Present(FieldValue::Text(name))) if is_plain(&name) => Some(name),
            _ => None,
        }
    }

    /// How this caller's deliveries are verified; `None`: it is unknown.
    pub(super) fn scheme(&self, caller: Option<&str>) -> Option<Arc<VerificationScheme>> {
        caller.and_then(|caller| self.book.scheme(caller))
    }

    /// The header that names this caller, if a header does.
    pub(super) fn header(&self, caller: &str) -> Option<(String, String)> {
        let FieldLocation::Header(name) = &self.who.at else { return None };
        Some((name.clone(), format!("{}{caller}", self.who.after.as_deref().unwrap_or_default())))
    }
}

/// Whether this may be a caller's name. Callers are files in a folder: a name that leads elsewhere, or is hidden, is
/// not one.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= limits::CALLER_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(|c: char| c == '/' || c == '\\' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_the_name_of_one_file_and_not_a_hidden_one() {
        for good in ["a", "8c1f9a52-6e0e-4a0c", "acme.web", "ä b", "a..b"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", ".", "..", ".hidden", "../a", "a/b", "/etc/passwd", "a\\b", "a\0b", "a\nb", &"x".repeat(256)] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
