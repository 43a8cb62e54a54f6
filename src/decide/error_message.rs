//! The message of an error: what people read, and the error that caused it.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The message of an error, for people, and the error that caused it, which programs find through `source()`. The message
/// already says of the cause what people need to know: it is printed alone, never with the errors behind it.
#[derive(Clone, Debug)]
pub struct ErrorMessage {
    text: String,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl ErrorMessage {
    /// The message of this error, in its own words.
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

impl From<String> for ErrorMessage {
    fn from(text: String) -> Self {
        Self { text, cause: None }
    }
}

impl From<&str> for ErrorMessage {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Deref for ErrorMessage {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ErrorMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
