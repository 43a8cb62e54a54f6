//! Filters: `when` and `require`, written like CEL, over field names.
//!
//! What can be wrong is wrong when the config is read: a name, a type, a regular expression. Then a filter has an
//! answer for every delivery: a field that is missing is `null`, and values of different types are simply not equal.

mod explain;
mod lex;
mod parse;

use super::decimal;
use super::field::{FieldIx, FieldSet, Found, Value};
use regex::Regex;
use std::cmp::Ordering;
use std::ops::Range;

/// Words that no field can have as its name, since an expression reads them as something else.
pub const RESERVED: [&str; 4] = ["true", "false", "null", "in"];

/// A parsed expression whose result is true or false.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    root: Expr,
}

/// What is wrong with an expression, and where in its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterError {
    /// Bytes of the text.
    pub at: Range<usize>,
    /// What is wrong, in words.
    pub what: String,
    /// What to do.
    pub hint: Option<String>,
}

/// One term of an expression, for one delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// As it was written.
    pub text: String,
    /// What it saw: `tag was "main"`.
    pub saw: Vec<String>,
    /// Is it true?
    pub holds: bool,
}

/// A part of an expression, and where in the text it is.
#[derive(Clone, Debug)]
struct Expr {
    at: Range<usize>,
    node: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Field(FieldIx),
    Text(String),
    Number(String),
    Bool(bool),
    Null,
    Exists(FieldIx),
    Not(Box<Expr>),
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Compare(Box<Expr>, Compare, Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    Has(Box<Expr>, Has, Box<Expr>),
    Matches(Box<Expr>, Regex),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// Where in a text another one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Has {
    AtStart,
    AtEnd,
    Anywhere,
}

/// What a part of an expression comes to for one delivery.
#[derive(Clone, Copy, Debug)]
enum Operand<'v> {
    Null,
    Text(&'v str),
    Number(&'v str),
    Bool(bool),
}

impl Filter {
    /// Reads an expression over these fields.
    pub fn parse(text: &str, fields: &FieldSet) -> Result<Self, FilterError> {
        parse::parse(text, fields).map(|root| Self { text: text.into(), root })
    }

    /// Does it let this through? A missing field is `null`.
    pub fn matches(&self, found: &Found) -> bool {
        self.root.is_true(found)
    }

    /// Why not, in one line: `tag was "main", wanted tag == "latest"`. Empty if it does let it through.
    pub fn explain(&self, found: &Found, fields: &FieldSet) -> String {
        explain::explain(&self.text, &self.root, found, fields)
    }

    /// Each of its terms with what it saw: what stands between `&&`, `||` and `!`.
    pub fn terms(&self, found: &Found, fields: &FieldSet) -> Vec<Term> {
        explain::terms(&self.text, &self.root, found, fields)
    }

    /// The fields it looks at.
    pub fn fields(&self) -> Vec<FieldIx> {
        self.root.fields()
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Texts that fields must have for it to be true: what a made-up delivery is given.
    pub fn wanted(&self) -> Vec<(FieldIx, &str)> {
        self.must_hold().iter().filter_map(wanted).collect()
    }

    /// Fields that must be equal for it to be true.
    pub fn equal(&self) -> Vec<(FieldIx, FieldIx)> {
        self.must_hold().iter().filter_map(equal).collect()
    }

    fn must_hold(&self) -> &[Expr] {
        match &self.root.node {
            Node::All(terms) => terms.as_slice(),
            _ => std::slice::from_ref(&self.root),
        }
    }
}

fn equal(term: &Expr) -> Option<(FieldIx, FieldIx)> {
    let Node::Compare(left, Compare::Equal, right) = &term.node else { return None };
    match (&left.node, &right.node) {
        (Node::Field(one), Node::Field(other)) => Some((*one, *other)),
        _ => None,
    }
}

fn wanted(term: &Expr) -> Option<(FieldIx, &str)> {
    let Node::Compare(left, Compare::Equal, right) = &term.node else { return None };
    match (&left.node, &right.node) {
        (Node::Field(ix), Node::Text(text)) | (Node::Text(text), Node::Field(ix)) => Some((*ix, text)),
        _ => None,
    }
}

impl Expr {
    fn is_true(&self, found: &Found) -> bool {
        matches!(self.value(found), Operand::Bool(true))
    }

    fn value<'v>(&'v self, found: &'v Found) -> Operand<'v> {
        Operand::Bool(match &self.node {
            Node::Field(ix) => return found.value(*ix).map_or(Operand::Null, Operand::of),
            Node::Text(text) => return Operand::Text(text),
            Node::Number(raw) => return Operand::Number(raw),
            Node::Null => return Operand::Null,
            Node::Bool(value) => *value,
            Node::Exists(ix) => found.value(*ix).is_some(),
            Node::Not(inner) => !inner.is_true(found),
            Node::All(parts) => parts.iter().all(|part| part.is_true(found)),
            Node::Any(parts) => parts.iter().any(|part| part.is_true(found)),
            Node::Compare(left, how, right) => how.holds(left.value(found), right.value(found)),
            Node::In(left, list) => {
                let left = left.value(found);
                list.iter().any(|item| left.compare(item.value(found)) == Some(Ordering::Equal))
            }
            Node::Has(text, how, part) => match (text.value(found), part.value(found)) {
                (Operand::Text(text), Operand::Text(part)) => how.holds(text, part),
                _ => false,
            },
            Node::Matches(text, regex) => match text.value(found) {
                Operand::Text(text) => regex.is_match(text),
                _ => false,
            },
        })
    }

    /// The fields it looks at, each once, in the order in which they are named.
    fn fields(&self) -> Vec<FieldIx> {
        let mut fields = Vec::new();
        self.collect(&mut fields);
        fields
    }

    fn collect(&self, fields: &mut Vec<FieldIx>) {
        match &self.node {
            Node::Field(ix) | Node::Exists(ix) => {
                if !fields.contains(ix) {
                    fields.push(*ix);
                }
            }
            Node::Text(_) | Node::Number(_) | Node::Bool(_) | Node::Null => {}
            Node::Not(inner) | Node::Matches(inner, _) => inner.collect(fields),
            Node::All(parts) | Node::Any(parts) => {
                for part in parts {
                    part.collect(fields);
                }
            }
            Node::Compare(left, _, right) | Node::Has(left, _, right) => {
                left.collect(fields);
                right.collect(fields);
            }
            Node::In(left, list) => {
                left.collect(fields);
                for item in list {
                    item.collect(fields);
                }
            }
        }
    }
}

impl<'v> Operand<'v> {
    fn of(value: &'v Value) -> Self {
        match value {
            Value::Text(text) => Self::Text(text),
            Value::Number(raw) => Self::Number(raw),
            Value::Bool(value) => Self::Bool(*value),
        }
    }

    /// `None` for values of different types: they are not equal, and neither is more than the other.
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Null, Self::Null) => Some(Ordering::Equal),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Number(left), Self::Number(right)) => Some(decimal::compare(left, right)),
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(&right)),
            _ => None,
        }
    }
}

impl Compare {
    fn holds(self, left: Operand<'_>, right: Operand<'_>) -> bool {
        let order = left.compare(right);
        match (self, left) {
            (Self::Equal, _) => order == Some(Ordering::Equal),
            (Self::NotEqual, _) => order != Some(Ordering::Equal),
            // Nothing is not even at most nothing.
            (_, Operand::Null) => false,
            (Self::Less, _) => order == Some(Ordering::Less),
            (Self::LessOrEqual, _) => order.is_some_and(Ordering::is_le),
            (Self::More, _) => order == Some(Ordering::Greater),
            (Self::MoreOrEqual, _) => order.is_some_and(Ordering::is_ge),
        }
    }
}

impl Has {
    fn holds(self, text: &str, part: &str) -> bool {
        match self {
            Self::AtStart => text.starts_with(part),
            Self::AtEnd => text.ends_with(part),
            Self::Anywhere => text.contains(part),
        }
    }
}

#[cfg(test)]
mod tests;
