//! The lexer of filter expressions.

use super::FilterError;
use std::ops::Range;

/// A token, and its position in the text.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FilterToken {
    pub(super) at: Range<usize>,
    pub(super) kind: FilterTokenKind,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum FilterTokenKind {
    Word(String),
    Text(String),
    Number(String),
    /// One of [`SIGNS`].
    Sign(&'static str),
    End,
}

/// Operators and punctuation, longer ones first.
const SIGNS: [&str; 16] = ["==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", "[", "]", ",", ".", "-"];

/// Operators of other languages, and what to write instead.
const FOREIGN: [(&str, &str); 5] = [
    ("=", "two values are compared with `==`"),
    ("&", "\"and\" is written `&&`"),
    ("|", "\"or\" is written `||`"),
    ("~", "write `field.matches(\"…\")` for a regular expression"),
    ("$", "fields are written by their bare names"),
];

/// Splits a text into tokens. The last one is always [`FilterTokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<FilterToken>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let (kind, length) = token(text, at)?;
        let end = kind == FilterTokenKind::End;
        tokens.push(FilterToken { at: at..at + length, kind });
        if end {
            return Ok(tokens);
        }
        at += length;
    }
}

/// The token that begins here, and its length in bytes.
fn token(text: &str, at: usize) -> Result<(FilterTokenKind, usize), FilterError> {
    let rest = &text[at..];
    let mut chars = rest.chars();
    match (chars.next(), chars.next()) {
        (None, _) => Ok((FilterTokenKind::End, 0)),
        (Some(quote @ ('"' | '\'')), _) => quoted(text, at, quote),
        (Some('r'), Some(quote @ ('"' | '\''))) => raw(text, at, quote),
        (Some(first), _) if first.is_ascii_digit() => Ok(number(rest)),
        (Some(first), _) if is_letter(first) => {
            let length = rest.find(|c| !is_letter(c) && !c.is_ascii_digit()).unwrap_or(rest.len());
            Ok((FilterTokenKind::Word(rest[..length].into()), length))
        }
        (Some(first), _) => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Ok((FilterTokenKind::Sign(sign), sign.len())),
            None => Err(foreign(rest, at..at + first.len_utf8())),
        },
    }
}

fn is_letter(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn foreign(rest: &str, at: Range<usize>) -> FilterError {
    let hint = FOREIGN.iter().find(|(sign, _)| rest.starts_with(sign)).map(|(_, hint)| (*hint).to_owned());
    let sign: String = rest.chars().take(1).collect();
    FilterError { at, what: format!("`{}` is not a sign that expressions know", sign.escape_debug()), hint }
}

/// A number as JSON writes it, but without the minus.
fn number(rest: &str) -> (FilterTokenKind, usize) {
    let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(0);
    if rest[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if rest[length..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[length + 1..].starts_with(['-', '+']));
        match digits(length + 1 + sign) {
            0 => {}
            more => length += 1 + sign + more,
        }
    }
    (FilterTokenKind::Number(rest[..length].into()), length)
}

/// `r"…"`: a text without escapes.
fn raw(text: &str, at: usize, quote: char) -> Result<(FilterTokenKind, usize), FilterError> {
    let inner = &text[at + 2..];
    let length = inner.find(quote).ok_or_else(|| unterminated(text, at, quote))?;
    Ok((FilterTokenKind::Text(inner[..length].into()), length + 3))
}

fn quoted(text: &str, at: usize, quote: char) -> Result<(FilterTokenKind, usize), FilterError> {
    let mut out = String::new();
    let mut chars = text[at + 1..].char_indices();
    while let Some((offset, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((FilterTokenKind::Text(out), offset + 2)),
            '\\' => {
                let escape = chars.as_str();
                let (meant, length) = unescape(escape).ok_or_else(|| unknown_escape(escape, at + 1 + offset))?;
                out.push(meant);
                chars.nth(length - 1);
            }
            _ => out.push(c),
        }
    }
    Err(unterminated(text, at, quote))
}

/// The character of the escape after a backslash, and how many characters the escape takes.
fn unescape(text: &str) -> Option<(char, usize)> {
    Some(match text.chars().next()? {
        c @ ('\\' | '"' | '\'') => (c, 1),
        'n' => ('\n', 1),
        'r' => ('\r', 1),
        't' => ('\t', 1),
        'u' => {
            let digits = text.get(1..5).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            (u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?, 5)
        }
        _ => return None,
    })
}

fn unterminated(text: &str, at: usize, quote: char) -> FilterError {
    let hint = Some(format!("it is missing the closing {quote}"));
    FilterError { at: at..text.len(), what: "this text does not end".into(), hint }
}

fn unknown_escape(escape: &str, at: usize) -> FilterError {
    let length = 1 + escape.chars().next().map_or(0, char::len_utf8);
    FilterError {
        at: at..at + length,
        what: "after a backslash only \\ \" ' n r t and uXXXX are allowed".into(),
        hint: Some("write two backslashes for one, or r\"…\", which has no escapes".into()),
    }
}
