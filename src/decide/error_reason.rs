//! The reason of a failure: what people read, and the error behind it.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The reason of a failure: a sentence that people read, and the error that caused it, which programs find in the
/// `source()` of the error that holds this reason. The sentence already says of the cause what people need to know: it
/// is printed alone, never with the errors behind it.
#[derive(Clone, Debug)]
pub struct ErrorReason {
    text: String,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl ErrorReason {
    /// The reason that this error is, in its own words.
    pub fn of(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::from(cause.to_string()).caused_by(cause)
    }

    /// The same sentence with this error behind it.
    #[must_use]
    pub fn caused_by(self, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { cause: Some(Arc::new(cause)), ..self }
    }

    /// Another sentence with the same error behind it.
    #[must_use]
    pub fn reworded(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    /// The error behind it.
    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

impl From<String> for ErrorReason {
    fn from(text: String) -> Self {
        Self { text, cause: None }
    }
}

impl From<&str> for ErrorReason {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Deref for ErrorReason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
