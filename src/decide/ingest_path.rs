//! The path that a source listens on, which may be a secret.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::fmt;
use std::sync::Arc;

/// What is shown instead of a secret path.
const MASK: &str = "/•••";

/// The path of a source. If its sender signs nothing, the path can be the only secret between them; such a path is
/// masked wherever it is formatted.
#[derive(Clone, PartialEq, Eq)]
pub struct IngestPath {
    /// `None`: a secret path that is not known here, so that no request has it.
    text: Option<Arc<str>>,
    is_secret: bool,
}

impl IngestPath {
    /// A path that anyone may see.
    pub fn open(path: &str) -> Self {
        Self { text: Some(path.into()), is_secret: false }
    }

    /// A path that is a secret.
    pub fn secret(path: &str) -> Self {
        Self { text: Some(path.into()), is_secret: true }
    }

    /// A secret path that could not be read.
    pub fn unknown() -> Self {
        Self { text: None, is_secret: true }
    }

    /// Whether it is a secret.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// The path for people: of a secret one, a mask.
    pub fn shown(&self) -> &str {
        match &self.text {
            Some(path) if !self.is_secret => path,
            _ => MASK,
        }
    }

    /// The path itself, if it is known: to send a delivery there. Never print it.
    pub fn expose(&self) -> Option<&Arc<str>> {
        self.text.as_ref()
    }

    /// Whether a request has this path; of a secret one, the time tells nothing but its length.
    pub fn is(&self, asked: &str) -> bool {
        match &self.text {
            Some(path) if self.is_secret => verify_slices_are_equal(path.as_bytes(), asked.as_bytes()).is_ok(),
            Some(path) => **path == *asked,
            None => false,
        }
    }
}

impl fmt::Display for IngestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl fmt::Debug for IngestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_path_is_masked_and_only_the_whole_of_it_matches() {
        let path = IngestPath::secret("/in/hub/0123456789abcdef");
        assert_eq!(format!("{path} {path:?} {}", path.shown()), "/••• \"/•••\" /•••");
        assert!(path.is("/in/hub/0123456789abcdef"));
        for other in
            ["", "/", "/•••", "/in/hub/0123456789abcde", "/in/hub/0123456789abcdef/", "/in/hub/0123456789abcdeF"]
        {
            assert!(!path.is(other), "{other}");
        }
    }

    #[test]
    fn an_unknown_path_matches_nothing() {
        for asked in ["", "/", "*", "/•••"] {
            assert!(!IngestPath::unknown().is(asked), "{asked}");
        }
    }
}
