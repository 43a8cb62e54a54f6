//! Parses one SQL statement of a route: finds its `:names`, and decides whether it may run inside our transaction. This
//! happens once, when the config is loaded; what is a name and what only looks like one is decided here, never when an
//! event runs.
//!
//! Values are bound to the statement and never written into it.

use super::claim::Payload;
use super::event::Event;
use super::field::FieldValue;
use super::limits;
use super::time::Duration;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// The SQL dialect. They differ in quotes, comments and the syntax of parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqlDialect {
    /// SQLite's.
    Sqlite,
    /// PostgreSQL's.
    Postgres,
}

/// A parsed statement that may be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlTemplate {
    /// As it was written.
    pub written: Arc<str>,
    /// The same with a number for each name: `$1` in PostgreSQL, `?1` in SQLite. Each occurrence has its own number,
    /// since a server that infers the type of a parameter may infer another one at each.
    pub numbered: Arc<str>,
    /// The placeholder of each number.
    pub names: Vec<SqlPlaceholder>,
    /// Its timeout.
    pub timeout: Duration,
}

/// A `:name` in a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlPlaceholder {
    /// The value that it is bound to.
    pub what: SqlParamSource,
    /// Its range in the text, including the colon.
    pub at: Range<usize>,
}

/// The value that a `:name` is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SqlParamSource {
    /// `:body`, the bytes that were verified.
    Body,
    /// `:delivery`, the sender's id.
    Delivery,
    /// `:event_id`
    EventId,
    /// `:attempt`, from 1.
    Attempt,
    /// The field of this name.
    Field(Arc<str>),
}

/// The names that always exist.
pub const OWN_NAMES: [&str; 4] = ["body", "delivery", "event_id", "attempt"];

impl SqlParamSource {
    /// Whether this is what `:name` is bound to.
    pub fn is(&self, name: &str) -> bool {
        *self == Self::of(name)
    }

    fn of(name: &str) -> Self {
        match name {
            "body" => Self::Body,
            "delivery" => Self::Delivery,
            "event_id" => Self::EventId,
            "attempt" => Self::Attempt,
            field => Self::Field(field.into()),
        }
    }
}

/// Why a statement cannot be run, and where in its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlTemplateError {
    /// The range in the text.
    pub at: Range<usize>,
    /// What is wrong.
    pub title: String,
    /// Why, or what to write instead.
    pub label: &'static str,
}

/// The words that a statement may begin with.
const VERBS: [&str; 8] = ["select", "insert", "update", "delete", "merge", "replace", "with", "values"];
/// The words that begin, end or change a transaction.
const CONTROL: [&str; 12] = [
    "abort",
    "begin",
    "checkpoint",
    "commit",
    "deallocate",
    "discard",
    "end",
    "prepare",
    "release",
    "rollback",
    "savepoint",
    "start",
];

impl SqlTemplate {
    /// Parses a statement.
    pub fn parse(written: &str, dialect: SqlDialect, timeout: Duration) -> Result<Self, SqlTemplateError> {
        let whole = 0..written.len();
        let wrong = |title: String, label| Err(SqlTemplateError { at: whole.clone(), title, label });
        if written.len() > limits::STATEMENT_BYTES_MAX {
            return wrong(
                format!("the statement has {} bytes", written.len()),
                "at most 64 KB; call a function instead",
            );
        }
        if written.contains('\0') {
            return wrong("the statement has a zero byte in it".to_owned(), "");
        }
        let tokens = SqlScanner { text: written, dialect, at: 0 }.read()?;
        let Some((verb, at)) = tokens.verb else {
            return wrong("the statement is empty".to_owned(), "one statement, such as insert into …");
        };
        let word = verb.to_ascii_lowercase();
        if CONTROL.contains(&&*word) || word == "set" {
            let label = "it runs in the transaction that moves the event to done, which is not yours to end or change";
            return Err(SqlTemplateError { at, title: format!("`{verb}` cannot be run here"), label });
        }
        if !VERBS.contains(&&*word) {
            let label = "a statement begins with select, insert, update, delete, merge, replace, values or with";
            return Err(SqlTemplateError { at, title: format!("`{verb}` cannot be run here"), label });
        }
        if tokens.names.len() > limits::STATEMENT_NAMES_MAX {
            return wrong(format!("the statement has {} names in it", tokens.names.len()), "at most 256");
        }
        let numbered = numbered(written, &tokens.names, dialect);
        Ok(Self { written: written.into(), numbered: numbered.into(), names: tokens.names, timeout })
    }

    /// The statement with the values of an attempt at an event. A missing field is null.
    pub fn bind(self: &Arc<Self>, event: &Event, payload: &Payload) -> BoundStatement {
        let one = |named: &SqlPlaceholder| match &named.what {
            SqlParamSource::Body => BoundValue::Bytes(payload.body.clone()),
            SqlParamSource::Delivery => event.delivery_id.clone().map_or(BoundValue::Null, BoundValue::Text),
            SqlParamSource::EventId => BoundValue::Text(event.id.to_string().into()),
            SqlParamSource::Attempt => BoundValue::Number(event.attempt.to_string().into()),
            SqlParamSource::Field(name) => match event.fields.get(name) {
                None => BoundValue::Null,
                Some(FieldValue::Text(text)) => BoundValue::Text(text.clone()),
                Some(FieldValue::Number(text)) => BoundValue::Number(text.clone()),
                Some(FieldValue::Bool(flag)) => BoundValue::Bool(*flag),
            },
        };
        BoundStatement { statement: self.clone(), values: self.names.iter().map(one).collect() }
    }
}

/// A statement with a value for each of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundStatement {
    /// The statement.
    pub statement: Arc<SqlTemplate>,
    /// The values, in the order of its names.
    pub values: Vec<BoundValue>,
}

/// A bound value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BoundValue {
    /// SQL null.
    Null,
    /// Text.
    Text(Arc<str>),
    /// A number, as it was written.
    Number(Arc<str>),
    /// True or false.
    Bool(bool),
    /// A body.
    Bytes(Bytes),
}

fn numbered(text: &str, names: &[SqlPlaceholder], dialect: SqlDialect) -> String {
    let sign = match dialect {
        SqlDialect::Sqlite => '?',
        SqlDialect::Postgres => '$',
    };
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (number, named) in (1..).zip(names) {
        out += &text[done..named.at.start];
        out.push(sign);
        out.push_str(&number.to_string());
        // `:a2` must become neither a longer number nor a name that continues.
        if text[named.at.end..].starts_with(|c: char| c.is_alphanumeric()) {
            out.push(' ');
        }
        done = named.at.end;
    }
    out + &text[done..]
}

/// What was found in a text.
#[derive(Default)]
struct ScannedSql<'t> {
    verb: Option<(&'t str, Range<usize>)>,
    names: Vec<SqlPlaceholder>,
}

struct SqlScanner<'t> {
    text: &'t str,
    dialect: SqlDialect,
    at: usize,
}

impl<'t> SqlScanner<'t> {
    fn read(mut self) -> Result<ScannedSql<'t>, SqlTemplateError> {
        let mut read = ScannedSql::default();
        let mut ended = false;
        while let Some(next) = self.peek(0) {
            let start = self.at;
            match (next, self.peek(1)) {
                (b'-', Some(b'-')) => self.skip_to("\n"),
                (b'/', Some(b'*')) => self.comment()?,
                (c, _) if c.is_ascii_whitespace() => self.at += 1,
                (b';', _) => {
                    ended = true;
                    self.at += 1;
                }
                _ if ended => {
                    let label = "one statement alone is one commit; put several into a function, or into `with`";
                    return Err(self.wrong(start, "there are several statements", label));
                }
                (b'\'', _) => self.quoted(b'\'', BackslashEscapes::No)?,
                (b'"', _) => self.quoted(b'"', BackslashEscapes::No)?,
                (b'`', _) if self.dialect == SqlDialect::Sqlite => self.quoted(b'`', BackslashEscapes::No)?,
                (b'[', _) if self.dialect == SqlDialect::Sqlite => self.until("]", start)?,
                (b'$', _) => self.dollar()?,
                (b'?' | b'@' | b'#', after) if self.dialect == SqlDialect::Sqlite => {
                    if next == b'?' || after.is_some_and(is_letter) {
                        return Err(self.not_a_name(start));
                    }
                    self.at += 1;
                }
                (b':', _) => read.names.extend(self.colon()?),
                (c, _) if is_letter(c) => {
                    let word = self.word()?;
                    read.verb.get_or_insert((word, start..start + word.len()));
                }
                (c, _) if c.is_ascii_digit() => {
                    while self.peek(0).is_some_and(|c| is_letter(c) || c.is_ascii_digit() || c == b'.') {
                        self.at += 1;
                    }
                }
                _ => self.at += 1,
            }
        }
        Ok(read)
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'t str {
        // Every step ends before an ASCII character or at the end, so this is a character boundary.
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, start: usize, title: &str, label: &'static str) -> SqlTemplateError {
        let mut end = (start + 1).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        SqlTemplateError { at: start..end, title: title.to_owned(), label }
    }

    fn not_a_name(&self, start: usize) -> SqlTemplateError {
        self.wrong(start, "this parameter has no name", "values are bound by name, such as :delivery or :body")
    }

    fn skip_to(&mut self, end: &str) {
        self.at = self.rest().find(end).map_or(self.text.len(), |found| self.at + found + end.len());
    }

    /// Skips to the end of what began at `start`.
    fn until(&mut self, end: &str, start: usize) -> Result<(), SqlTemplateError> {
        match self.rest().find(end) {
            Some(found) => {
                self.at += found + end.len();
                Ok(())
            }
            None => Err(self.wrong(start, "this never ends", "the end of the statement is inside of it")),
        }
    }

    /// Skips a comment. PostgreSQL's comments nest, SQLite's do not.
    fn comment(&mut self) -> Result<(), SqlTemplateError> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) if depth == 0 || self.dialect == SqlDialect::Postgres => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => {
                    return Err(self.wrong(start, "this never ends", "the end of the statement is inside of it"));
                }
            }
        }
    }

    fn quoted(&mut self, quote: u8, escapes: BackslashEscapes) -> Result<(), SqlTemplateError> {
        let start = self.at;
        self.at += 1;
        while let Some(next) = self.peek(0) {
            if next == b'\\' && escapes == BackslashEscapes::Backslash {
                self.at += 2;
            } else if next != quote {
                self.at += 1;
            } else if self.peek(1) == Some(quote) {
                self.at += 2;
            } else {
                self.at += 1;
                return Ok(());
            }
        }
        Err(self.wrong(start, "this never ends", "the end of the statement is inside of it"))
    }

    /// Skips `$tag$ … $tag$`. `$1` is a parameter of the user's own, which would collide with ours.
    fn dollar(&mut self) -> Result<(), SqlTemplateError> {
        let start = self.at;
        let length = self.rest()[1..].bytes().take_while(|c| is_letter(*c) || c.is_ascii_digit()).count();
        let tag = &self.rest()[..=length];
        let quotes = self.dialect == SqlDialect::Postgres
            && self.peek(length + 1) == Some(b'$')
            && !tag[1..].starts_with(|c: char| c.is_ascii_digit());
        if quotes {
            let end = &self.rest()[..length + 2];
            self.at += end.len();
            return self.until(end, start);
        }
        if length > 0 {
            return Err(self.not_a_name(start));
        }
        self.at += 1;
        Ok(())
    }

    fn colon(&mut self) -> Result<Option<SqlPlaceholder>, SqlTemplateError> {
        let start = self.at;
        match self.peek(1) {
            Some(b':' | b'=') => self.at += 2,
            Some(c) if c.is_ascii_alphabetic() || c == b'_' => {
                let length = self.rest()[1..].bytes().take_while(|c| c.is_ascii_alphanumeric() || *c == b'_').count();
                self.at += 1 + length;
                let what = SqlParamSource::of(&self.text[start + 1..self.at]);
                return Ok(Some(SqlPlaceholder { what, at: start..self.at }));
            }
            Some(c) if self.dialect == SqlDialect::Sqlite && c.is_ascii_digit() => return Err(self.not_a_name(start)),
            _ => self.at += 1,
        }
        Ok(None)
    }

    /// A word; in PostgreSQL `e'…'` is a string with backslash escapes.
    fn word(&mut self) -> Result<&'t str, SqlTemplateError> {
        let start = self.at;
        let part = |c: u8| is_letter(c) || c.is_ascii_digit() || c == b'$';
        while self.peek(0).is_some_and(part) {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        if self.dialect == SqlDialect::Postgres && word.eq_ignore_ascii_case("e") && self.peek(0) == Some(b'\'') {
            self.quoted(b'\'', BackslashEscapes::Backslash)?;
        }
        Ok(word)
    }
}

/// Whether a backslash in a string escapes the next character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BackslashEscapes {
    Backslash,
    No,
}

/// Whether this byte may begin a name: letters, `_`, and anything beyond ASCII.
fn is_letter(c: u8) -> bool {
    c.is_ascii_alphabetic() || c == b'_' || c >= 0x80
}
