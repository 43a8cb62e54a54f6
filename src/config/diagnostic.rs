//! Errors and warnings about a config: where, what is wrong in the user's words, and what to do.

use super::raw::{ConfigOrigin, ConfigSpan};
pub use super::snippet::DiagnosticSnippet;
use super::snippet::{show, without_passwords};
use crate::decide::nearest_name::nearest;
use std::fmt;
use std::fmt::Write as _;

/// Maximum number of problems printed; the rest are counted.
const PROBLEMS_MAX: usize = 40;

/// Error or warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiagnosticSeverity {
    /// Prevents the start.
    Error,
    /// Works, but probably not as intended.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigDiagnostic {
    /// Error or warning.
    pub level: DiagnosticSeverity,
    /// What is wrong.
    pub title: String,
    /// Where in the config it is.
    pub place: Option<Box<DiagnosticSnippet>>,
    /// What to do.
    pub hint: Option<String>,
}

/// All problems of one config.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// Whether the file could be read at all.
    pub nature: ConfigErrorKind,
    /// Each problem, in the order of the file.
    pub list: Vec<ConfigDiagnostic>,
    /// How many more there are beyond the printed ones.
    pub more: usize,
}

/// Whether a config is invalid or unreadable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigErrorKind {
    /// It was read and is invalid.
    Wrong,
    /// It could not be read.
    Unread,
}

/// Whether output is coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColorChoice {
    /// Plain text.
    Plain,
    /// ANSI colours.
    Colour,
}

impl ColorChoice {
    /// The text in the colour of this ANSI code, if colours are on.
    pub fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

impl ConfigDiagnostic {
    /// An error without a place.
    pub fn error(title: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { level: DiagnosticSeverity::Error, title: title.into(), place: None, hint: Some(hint.into()) }
    }

    /// A warning without a place.
    pub fn warning(title: impl Into<String>) -> Self {
        Self { level: DiagnosticSeverity::Warning, title: title.into(), place: None, hint: None }
    }

    /// The text to print; ends with a newline.
    pub fn render(&self, ink: ColorChoice) -> String {
        let (word, code) = match self.level {
            DiagnosticSeverity::Error => ("error", "1;31"),
            DiagnosticSeverity::Warning => ("warning", "1;33"),
        };
        let mut out = format!("{}: {}\n", ink.paint(code, word), self.title);
        if let Some(place) = &self.place {
            place.render(&mut out, ink, code, self.hint.is_some());
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "{}: {hint}", ink.paint("1;36", "hint"));
        }
        out
    }
}

impl fmt::Display for ConfigDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(ColorChoice::Plain).trim_end())
    }
}

impl ConfigError {
    /// The text to print; its last line counts the problems.
    pub fn render(&self, ink: ColorChoice) -> String {
        self.render_for(ink, "nothing was started")
    }

    /// The same, with what follows from the problems.
    pub(crate) fn render_for(&self, ink: ColorChoice, follows: &str) -> String {
        let mut out = String::new();
        for problem in &self.list {
            out += &problem.render(ink);
            out.push('\n');
        }
        if self.nature == ConfigErrorKind::Wrong {
            let more = if self.more > 0 { format!(", and {} more,", self.more) } else { String::new() };
            let _ = writeln!(out, "{}{more} in {}; {follows}", count(&self.list), self.file);
        } else {
            out.pop();
        }
        out
    }
}

/// "1 error", "2 errors and 1 warning".
pub fn count(problems: &[ConfigDiagnostic]) -> String {
    let of = |level, word: &str| match problems.iter().filter(|p| p.level == level).count() {
        0 => None,
        1 => Some(format!("1 {word}")),
        n => Some(format!("{n} {word}s")),
    };
    let parts: Vec<_> = [of(DiagnosticSeverity::Error, "error"), of(DiagnosticSeverity::Warning, "warning")]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() { "no problems".to_owned() } else { parts.join(" and ") }
}

impl ConfigError {
    /// The errors alone, for a message that begins with `error: ` itself. Warnings matter only to `check` and `serve`.
    pub(crate) fn errors_text(&self) -> String {
        let errors = self.list.iter().filter(|problem| problem.level == DiagnosticSeverity::Error).cloned().collect();
        let text = Self { list: errors, ..self.clone() }.to_string();
        text.strip_prefix("error: ").unwrap_or(&text).to_owned()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(ColorChoice::Plain).trim_end())
    }
}

impl std::error::Error for ConfigError {}

/// A problem whose place is still a byte range.
#[derive(Debug)]
pub(super) struct DiagnosticBuilder {
    level: DiagnosticSeverity,
    title: String,
    at: Option<ConfigSpan>,
    label: String,
    hint: Option<String>,
    /// Where it is sorted, if not by `at`.
    order: Option<ConfigSpan>,
    /// Not printed: it only follows from another problem.
    hidden: bool,
}

impl DiagnosticBuilder {
    pub(super) fn at(&mut self, span: ConfigSpan, label: impl Into<String>) -> &mut Self {
        self.at = Some(span);
        self.label = label.into();
        self
    }

    pub(super) fn hint(&mut self, hint: impl Into<String>) -> &mut Self {
        self.hint = Some(hint.into());
        self
    }

    /// Hides a problem that only follows from another one, which is reported.
    pub(super) fn unless(&mut self, follows: bool) -> &mut Self {
        self.hidden |= follows;
        self
    }

    /// Sorts the problem as if it were at this place: a cause comes before its consequences.
    pub(super) fn sort_at(&mut self, span: ConfigSpan) -> &mut Self {
        self.order = Some(span);
        self
    }

    pub(super) fn hint_if(&mut self, hint: Option<String>) -> &mut Self {
        self.hint = hint.or(self.hint.take());
        self
    }
}

/// Collects the problems of a config.
#[derive(Default, Debug)]
pub(super) struct DiagnosticCollector {
    drafts: Vec<DiagnosticBuilder>,
    secrets: Vec<ConfigSpan>,
}

impl DiagnosticCollector {
    pub(super) fn error(&mut self, title: impl Into<String>) -> &mut DiagnosticBuilder {
        self.add(DiagnosticSeverity::Error, title.into())
    }

    pub(super) fn warning(&mut self, title: impl Into<String>) -> &mut DiagnosticBuilder {
        self.add(DiagnosticSeverity::Warning, title.into())
    }

    /// Hides these bytes in every message.
    pub(super) fn conceal(&mut self, span: ConfigSpan) {
        self.secrets.push(span);
    }

    /// The bytes that are hidden.
    pub(super) fn concealed(&self) -> &[ConfigSpan] {
        &self.secrets
    }

    pub(super) fn has_errors(&self) -> bool {
        self.drafts.iter().any(|draft| draft.level == DiagnosticSeverity::Error && !draft.hidden)
    }

    fn add(&mut self, level: DiagnosticSeverity, title: String) -> &mut DiagnosticBuilder {
        let label = String::new();
        self.drafts.push(DiagnosticBuilder { level, title, at: None, label, hint: None, order: None, hidden: false });
        self.drafts.last_mut().expect("pushed in the line above")
    }

    /// The problems with their lines, in the order of the file, and how many more there are.
    pub(super) fn finish<'t>(
        mut self,
        text: &dyn Fn(ConfigOrigin) -> (String, &'t str),
    ) -> (Vec<ConfigDiagnostic>, usize) {
        self.drafts.retain(|draft| !draft.hidden);
        let total = self.drafts.len();
        if total > PROBLEMS_MAX && self.has_errors() {
            self.drafts.retain(|draft| draft.level == DiagnosticSeverity::Error);
        }
        self.drafts.sort_by_key(|draft| draft.order.or(draft.at).map(|span| (span.origin, span.start)));
        self.drafts.truncate(PROBLEMS_MAX);
        let more = if total > PROBLEMS_MAX { total - self.drafts.len() } else { 0 };
        let secrets = self.secrets;
        let place = |span: ConfigSpan, label| {
            let (file, text) = text(span.origin);
            let hidden: Vec<_> = secrets.iter().filter(|s| s.origin == span.origin).map(|s| s.start..s.end).collect();
            Box::new(show(file, text, span.start..span.end, &hidden, label))
        };
        let problem = |draft: DiagnosticBuilder| ConfigDiagnostic {
            level: draft.level,
            title: without_passwords(draft.title),
            place: draft.at.map(|span| place(span, without_passwords(draft.label))),
            hint: draft.hint.map(without_passwords),
        };
        (self.drafts.into_iter().map(problem).collect(), more)
    }
}

/// The hint for a typo, if one of these words is close enough.
pub(super) fn did_you_mean<'w>(wrong: &str, words: impl IntoIterator<Item = &'w str>) -> Option<String> {
    nearest(wrong, words).map(|meant| format!("did you mean `{meant}`?"))
}

#[cfg(test)]
mod nearest_tests {
    use super::*;
    use crate::config::source::SOURCE_KEYS;

    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, SOURCE_KEYS.names()), expected, "{word}");
    }

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_another_word_is_not() {
        check("rotue", Some("route"));
        check("routes", Some("route"));
        check("Secret", Some("secret"));
        check("respondwithin", Some("respond_within"));
        check("colour", None);
        check("", None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_only_there_when_asked_for() {
        let problem = ConfigDiagnostic::error("a", "b");
        assert_eq!(problem.render(ColorChoice::Plain), "error: a\nhint: b\n");
        assert_eq!(problem.render(ColorChoice::Colour), "\x1b[1;31merror\x1b[0m: a\n\x1b[1;36mhint\x1b[0m: b\n");
    }

    #[test]
    fn the_last_line_counts_errors_and_warnings() {
        let error = ConfigDiagnostic::error("a", "b");
        let warning = ConfigDiagnostic { level: DiagnosticSeverity::Warning, ..error.clone() };
        assert_eq!(count(std::slice::from_ref(&error)), "1 error");
        assert_eq!(count(&[error.clone(), error, warning]), "2 errors and 1 warning");
    }
}
