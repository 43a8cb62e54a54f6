//! The error of a command: a definite no, or a failure to find out.

use crate::config::diagnostic::{ConfigDiagnostic, ConfigError};
use crate::decide::error_message::ErrorMessage;
use crate::store::{StoreError, SweepError};
use std::fmt;
use std::io::{self, Write};

/// Why a command failed.
#[derive(Debug)]
pub enum CommandError {
    /// The answer is no.
    No(ErrorMessage),
    /// The command could not find out.
    Unknown(ErrorMessage),
    /// The result could not be printed.
    Print(io::Error),
}

impl CommandError {
    /// A definite no, as a sentence.
    pub fn no(why: impl Into<ErrorMessage>) -> Self {
        Self::No(why.into())
    }

    /// A failure to find out, as a sentence.
    pub fn unknown(why: impl Into<ErrorMessage>) -> Self {
        Self::Unknown(why.into())
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(why) | Self::Unknown(why) => f.write_str(why),
            Self::Print(error) => write!(f, "could not print: {error}"),
        }
    }
}

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Print(error) => Some(error),
            Self::No(why) | Self::Unknown(why) => why.source(),
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Print(error)
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::Unknown(ErrorMessage::of(error))
    }
}

impl From<SweepError> for CommandError {
    fn from(failed: SweepError) -> Self {
        Self::Unknown(ErrorMessage::of(failed))
    }
}

impl From<ConfigDiagnostic> for CommandError {
    fn from(problem: ConfigDiagnostic) -> Self {
        let hint = problem.hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        Self::Unknown(format!("{}{hint}", problem.title).into())
    }
}

impl From<ConfigError> for CommandError {
    fn from(problems: ConfigError) -> Self {
        Self::Unknown(problems.errors_text().into())
    }
}

/// Prints a line on standard error; ignores a closed one.
pub(crate) fn print_error(what: impl fmt::Display) {
    writeln!(io::stderr(), "{what}").unwrap_or_default();
}
