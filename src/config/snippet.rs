//! A line of a file with a part underlined; handles tabs, wide characters and secrets.

use super::diagnostic::ColorChoice;
use std::fmt::Write as _;
use std::ops::Range;

/// Maximum columns shown of a line.
const LINE_COLUMNS_MAX: usize = 160;

/// The line of the config file that an error is about, with its underline and label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiagnosticSnippet {
    /// The file.
    pub file: String,
    /// The line number, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// The line to print: tabs as spaces, secrets hidden.
    pub text: String,
    /// Columns of `text` before the underline.
    pub indent: usize,
    /// Columns of the underline.
    pub width: usize,
    /// The text after the underline; may be empty.
    pub label: String,
}

impl DiagnosticSnippet {
    pub(super) fn render(&self, out: &mut String, ink: ColorChoice, code: &str, followed: bool) {
        let number = self.line.to_string();
        let pad = " ".repeat(number.len());
        let bar = ink.paint("1;34", "|");
        let arrow = ink.paint("1;34", "-->");
        let carets = ink.paint(code, "^".repeat(self.width.max(1)).as_str());
        let under = format!("{}{carets} {}", " ".repeat(self.indent), self.label);
        let _ = writeln!(out, "{pad}{arrow} {}:{}:{}", self.file, self.line, self.column);
        let _ = writeln!(out, "{pad} {bar}");
        let _ = writeln!(out, "{} {bar} {}", ink.paint("1;34", &number), self.text);
        let _ = writeln!(out, "{pad} {bar} {}", under.trim_end());
        if followed {
            let _ = writeln!(out, "{pad} {bar}");
        }
    }
}

/// The snippet for a byte range: its first line, and what to underline there.
pub(super) fn show(
    file: String,
    text: &str,
    bytes: Range<usize>,
    hidden: &[Range<usize>],
    label: String,
) -> DiagnosticSnippet {
    let start = floor(text, bytes.start);
    let from = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let until = text[start..].find('\n').map_or(text.len(), |i| start + i);
    let end = floor(text, bytes.end).clamp(start, until);
    let line = text[..from].matches('\n').count() + 1;
    let column = text[from..start].chars().count() + 1;

    let passwords: Vec<_> =
        passwords(&text[from..until]).into_iter().map(|range| from + range.start..from + range.end).collect();
    let mut shown = String::new();
    let mut columns = 0;
    let (mut indent, mut stop) = (None, None);
    let mut skip_to = from;
    for (i, c) in text[from..until].char_indices().map(|(i, c)| (from + i, c)) {
        let secret = hidden.iter().find(|range| range.contains(&i));
        let password = passwords.iter().find(|range| range.contains(&i));
        if i >= start && indent.is_none() {
            indent = Some(columns);
        }
        if i >= end && stop.is_none() && i >= skip_to {
            stop = Some(columns);
        }
        if i < skip_to || c == '\r' {
            continue;
        }
        let piece = match (secret, password, c) {
            (Some(range), _, _) => {
                skip_to = range.end;
                "\"•••\"".to_owned()
            }
            (None, Some(range), _) => {
                skip_to = range.end;
                HIDDEN.to_owned()
            }
            (None, None, '\t') => "    ".to_owned(),
            (None, None, c) if c.is_control() => "\u{fffd}".to_owned(),
            (None, None, c) => c.to_string(),
        };
        columns += piece.chars().map(width).sum::<usize>();
        shown += &piece;
    }
    let indent = indent.unwrap_or(columns);
    let width = stop.unwrap_or(columns).saturating_sub(indent);
    let (text, indent) = clip(shown, indent);
    DiagnosticSnippet { file, line, column, text, indent, width: width.clamp(1, LINE_COLUMNS_MAX), label }
}

/// What stands for a password.
const HIDDEN: &str = "•••";

/// The same text without the passwords of the URLs in it.
pub(super) fn without_passwords(mut text: String) -> String {
    for range in passwords(&text).into_iter().rev() {
        text.replace_range(range, HIDDEN);
    }
    text
}

/// The passwords of the URLs in a text, valid or not.
fn passwords(text: &str) -> Vec<Range<usize>> {
    let ends_word = |c: char| c.is_whitespace() || "\"'`".contains(c);
    let mut start = 0;
    let words = text.split_inclusive(ends_word).map(|word| {
        start += word.len();
        (start - word.len(), word.trim_end_matches(ends_word))
    });
    words.filter_map(|(start, word)| password(word).map(|range| start + range.start..start + range.end)).collect()
}

/// The password of this URL: what is before its last `@`, from its first colon on if it has one. A password may be what
/// makes it no URL, so more may be hidden than it is.
fn password(word: &str) -> Option<Range<usize>> {
    let scheme = word.find("://").map(|at| at + "://".len());
    let end = word.rfind('@').filter(|end| scheme.is_none_or(|scheme| scheme < *end))?;
    let colon = word[scheme.unwrap_or(0)..end].find(':').map(|at| scheme.unwrap_or(0) + at + 1);
    let has_user = || reqwest::Url::parse(word).map_or(true, |url| !url.username().is_empty());
    let start = match (colon, scheme) {
        (Some(colon), Some(_)) => colon,
        (None, Some(scheme)) if has_user() => scheme,
        // Without a scheme it may be an image with its digest.
        (Some(colon), None) if !word[end..].starts_with("@sha256:") => colon,
        _ => return None,
    };
    (start < end).then_some(start..end)
}

/// The nearest character boundary at or before this byte.
fn floor(text: &str, byte: usize) -> usize {
    text.floor_char_boundary(byte.min(text.len()))
}

/// Cuts a long line to the part around its underline.
fn clip(line: String, indent: usize) -> (String, usize) {
    let total: usize = line.chars().map(width).sum();
    if total <= LINE_COLUMNS_MAX {
        return (line, indent);
    }
    let first = if indent < LINE_COLUMNS_MAX / 2 { 0 } else { indent - LINE_COLUMNS_MAX / 4 };
    let mut columns = 0;
    let mut left = None;
    let mut kept = String::new();
    for c in line.chars() {
        if columns >= first && columns < first + LINE_COLUMNS_MAX {
            left.get_or_insert(columns);
            kept.push(c);
        }
        columns += width(c);
    }
    let left = left.unwrap_or(0);
    let (before, dots) = if left > 0 { ("…", 1) } else { ("", 0) };
    let after = if columns > first + LINE_COLUMNS_MAX { "…" } else { "" };
    (format!("{before}{kept}{after}"), indent.saturating_sub(left) + dots)
}

/// The display width of a character: 2 for East Asian wide characters and emoji, 0 for combining ones.
fn width(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfeff => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, word: &str, expected: &str) {
        let start = text.find(word).unwrap();
        let place = show("f".into(), text, start..start + word.len(), &[], "here".into());
        let mut out = String::new();
        place.render(&mut out, ColorChoice::Plain, "", false);
        assert_eq!(out, expected);
    }

    #[test]
    fn the_underline_stands_under_the_word_after_tabs_and_wide_characters() {
        check("\ta = bad", "bad", " --> f:1:6\n  |\n1 |     a = bad\n  |         ^^^ here\n");
        check("x\nä = bad\n", "bad", " --> f:2:5\n  |\n2 | ä = bad\n  |     ^^^ here\n");
        check("日本 = \"語\"\r\n", "\"語\"", " --> f:1:6\n  |\n1 | 日本 = \"語\"\n  |        ^^^^ here\n");
        check("e\u{301} = 🦀", "🦀", " --> f:1:6\n  |\n1 | e\u{301} = 🦀\n  |     ^^ here\n");
    }

    #[test]
    fn a_place_at_the_end_of_the_file_still_has_a_caret() {
        let place = show("f".into(), "a = ", 4..9, &[], String::new());
        assert_eq!((place.line, place.column, place.indent, place.width), (1, 5, 4, 1));
        assert_eq!(show("f".into(), "", 0..0, &[], String::new()).width, 1);
    }

    #[test]
    fn a_secret_on_the_line_is_not_shown_and_the_underline_stays_under_its_word() {
        let text = "s = \"pa55word\", bad = 1";
        let place = show("f".into(), text, 16..19, std::slice::from_ref(&(4..14)), String::new());
        assert_eq!((place.text.as_str(), place.indent, place.width), ("s = \"•••\", bad = 1", 11, 3));
        let itself = show("f".into(), text, 4..14, std::slice::from_ref(&(4..14)), String::new());
        assert_eq!((itself.indent, itself.width), (4, 5));
    }

    #[test]
    fn a_password_in_a_url_is_not_shown_whether_the_url_is_valid_or_not() {
        for (text, expected) in [
            ("p = \"ftp://user:pa55word@host:21\"", "p = \"ftp://user:•••@host:21\""),
            ("p = \"http://user:pa@55/wo:rd?#@host:x\"", "p = \"http://user:•••@host:x\""),
            ("p = \"http://pa55word@host\"", "p = \"http://•••@host\""),
            ("p = \"user:pa55word@10.0.0.1:3128\"", "p = \"user:•••@10.0.0.1:3128\""),
            ("p = [\"nats://a:pa55word@b\", 'nats://c:pa55word@d'", "p = [\"nats://a:•••@b\", 'nats://c:•••@d'"),
            ("`postgres://a:pa55word@b/c` is wrong", "`postgres://a:•••@b/c` is wrong"),
            ("\"http://user:55/word@host\"", "\"http://user:•••@host\""),
        ] {
            assert_eq!(without_passwords(text.to_owned()), expected);
            let place = show("f".into(), text, 0..1, &[], String::new());
            assert_eq!(place.text, expected);
        }
        for plain in ["https://host/pkg@1.2", "image = \"host:5000/app@sha256:00\"", "a@b", "when = 'mail == \"a@b\"'"]
        {
            assert_eq!(without_passwords(plain.to_owned()), plain);
        }
        let text = "p = \"ftp://user:pa55word@host\", bad = 1";
        let place = show("f".into(), text, 34..37, &[], String::new());
        assert_eq!((place.indent, place.width, &*place.text), (29, 3, "p = \"ftp://user:•••@host\", bad = 1"));
    }

    #[test]
    fn escapes_of_a_terminal_in_the_file_are_not_passed_on() {
        let place = show("f".into(), "a = \"\x1b[2J\"", 0..1, &[], String::new());
        assert_eq!(place.text, "a = \"\u{fffd}[2J\"");
    }

    #[test]
    fn a_very_long_line_is_shown_around_its_underline() {
        let text = format!("{}bad{}", "x".repeat(500), "y".repeat(500));
        let place = show("f".into(), &text, 500..503, &[], String::new());
        assert_eq!(place.column, 501);
        let shown: String = place.text.chars().skip(place.indent).take(place.width).collect();
        assert_eq!(shown, "bad");
        assert!(place.text.chars().count() <= LINE_COLUMNS_MAX + 2);
    }
}
