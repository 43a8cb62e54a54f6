//! Filters: the expressions of `when` and `require`, in CEL's syntax, over field names.
//!
//! All errors (a name, a type, a regular expression) are found when the config is read. After that a filter has a
//! result for every delivery: a missing field is `null`, and values of different types are not equal.

mod lex;
pub(crate) mod mismatch;
mod parse;
mod partial_match;

use super::decimal;
use super::field::{ExtractedFields, FieldIndex, FieldSet, FieldValue, PartialFields};
use regex::Regex;
use std::cmp::Ordering;
use std::ops::Range;

/// Words that cannot be field names, because an expression reads them as something else.
pub const RESERVED: [&str; 4] = ["true", "false", "null", "in"];

/// A parsed expression whose result is true or false.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    root: FilterExpr,
}

/// What is wrong with an expression, and where in its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterError {
    /// Byte range in the text.
    pub at: Range<usize>,
    /// What is wrong, as a sentence.
    pub what: String,
    /// What to do.
    pub hint: Option<String>,
}

/// One term of an expression, evaluated for one delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterTerm {
    /// As it was written.
    pub text: String,
    /// The values of its fields: `tag was "main"`.
    pub saw: Vec<String>,
    /// Whether it is true.
    pub holds: bool,
}

/// A part of an expression, and its position in the text.
#[derive(Clone, Debug)]
struct FilterExpr {
    at: Range<usize>,
    node: FilterExprNode,
}

#[derive(Clone, Debug)]
enum FilterExprNode {
    Field(FieldIndex),
    Text(String),
    Number(String),
    Bool(bool),
    Null,
    Exists(FieldIndex),
    /// The value as text: of a number its digits as they were sent.
    AsText(FieldIndex),
    Not(Box<FilterExpr>),
    All(Vec<FilterExpr>),
    Any(Vec<FilterExpr>),
    Compare(Box<FilterExpr>, CompareOp, Box<FilterExpr>),
    In(Box<FilterExpr>, Vec<FilterExpr>),
    Has(Box<FilterExpr>, SubstringOp, Box<FilterExpr>),
    Matches(Box<FilterExpr>, Regex),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CompareOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// Where one text must occur in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SubstringOp {
    AtStart,
    AtEnd,
    Anywhere,
}

/// The value of a part of an expression for one delivery.
#[derive(Clone, Copy, Debug)]
enum FilterOperand<'v> {
    Null,
    Text(&'v str),
    Number(&'v str),
    Bool(bool),
}

/// Expressions are equal if they are written alike.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Filter {
    /// Parses an expression over these fields.
    pub fn parse(text: &str, fields: &FieldSet) -> Result<Self, FilterError> {
        parse::parse(text, fields).map(|root| Self { text: text.into(), root })
    }

    /// Whether the delivery passes. A missing field is `null`.
    pub fn matches(&self, found: &ExtractedFields) -> bool {
        self.root.is_true(found)
    }

    /// Whether a delivery could pass of which only some fields are known.
    pub fn may_match(&self, known: &PartialFields) -> bool {
        partial_match::truth(&self.root, known) != Some(false)
    }

    /// Why the delivery does not pass, in one line: `tag was "main", wanted tag == "latest"`. Empty if it does.
    pub fn explain(&self, found: &ExtractedFields, fields: &FieldSet) -> String {
        mismatch::explain(&self.text, &self.root, found, fields)
    }

    /// Each of its terms (the parts between `&&`, `||` and `!`) with the values of its fields.
    pub fn terms(&self, found: &ExtractedFields, fields: &FieldSet) -> Vec<FilterTerm> {
        mismatch::terms(&self.text, &self.root, found, fields)
    }

    /// The fields it reads.
    pub fn fields(&self) -> Vec<FieldIndex> {
        self.root.fields()
    }

    /// The text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Texts that fields must have for it to be true: used to make up a delivery.
    pub fn required_values(&self) -> Vec<(FieldIndex, &str)> {
        self.required_terms().iter().filter_map(wanted).collect()
    }

    /// Pairs of fields that must be equal for it to be true.
    pub fn equal(&self) -> Vec<(FieldIndex, FieldIndex)> {
        self.required_terms().iter().filter_map(equal).collect()
    }

    fn required_terms(&self) -> &[FilterExpr] {
        match &self.root.node {
            FilterExprNode::All(terms) => terms.as_slice(),
            _ => std::slice::from_ref(&self.root),
        }
    }
}

fn equal(term: &FilterExpr) -> Option<(FieldIndex, FieldIndex)> {
    let FilterExprNode::Compare(left, CompareOp::Equal, right) = &term.node else { return None };
    match (&left.node, &right.node) {
        (FilterExprNode::Field(one), FilterExprNode::Field(other)) => Some((*one, *other)),
        _ => None,
    }
}

fn wanted(term: &FilterExpr) -> Option<(FieldIndex, &str)> {
    let FilterExprNode::Compare(left, CompareOp::Equal, right) = &term.node else { return None };
    match (&left.node, &right.node) {
        (FilterExprNode::Field(ix) | FilterExprNode::AsText(ix), FilterExprNode::Text(text))
        | (FilterExprNode::Text(text), FilterExprNode::Field(ix) | FilterExprNode::AsText(ix)) => Some((*ix, text)),
        _ => None,
    }
}

impl FilterExpr {
    fn is_true(&self, found: &ExtractedFields) -> bool {
        matches!(self.value(found), FilterOperand::Bool(true))
    }

    fn value<'v>(&'v self, found: &'v ExtractedFields) -> FilterOperand<'v> {
        FilterOperand::Bool(match &self.node {
            FilterExprNode::Field(ix) => return found.value(*ix).map_or(FilterOperand::Null, FilterOperand::of),
            FilterExprNode::AsText(ix) => return found.value(*ix).map_or(FilterOperand::Null, FilterOperand::text_of),
            FilterExprNode::Text(text) => return FilterOperand::Text(text),
            FilterExprNode::Number(raw) => return FilterOperand::Number(raw),
            FilterExprNode::Null => return FilterOperand::Null,
            FilterExprNode::Bool(value) => *value,
            FilterExprNode::Exists(ix) => found.value(*ix).is_some(),
            FilterExprNode::Not(inner) => !inner.is_true(found),
            FilterExprNode::All(parts) => parts.iter().all(|part| part.is_true(found)),
            FilterExprNode::Any(parts) => parts.iter().any(|part| part.is_true(found)),
            FilterExprNode::Compare(left, how, right) => how.holds(left.value(found), right.value(found)),
            FilterExprNode::In(left, list) => {
                let left = left.value(found);
                list.iter().any(|item| left.compare(item.value(found)) == Some(Ordering::Equal))
            }
            FilterExprNode::Has(text, how, part) => match (text.value(found), part.value(found)) {
                (FilterOperand::Text(text), FilterOperand::Text(part)) => how.holds(text, part),
                _ => false,
            },
            FilterExprNode::Matches(text, regex) => match text.value(found) {
                FilterOperand::Text(text) => regex.is_match(text),
                _ => false,
            },
        })
    }

    /// The fields it reads, each once, in the order in which they are named.
    fn fields(&self) -> Vec<FieldIndex> {
        let mut fields = Vec::new();
        self.collect(&mut fields);
        fields
    }

    fn collect(&self, fields: &mut Vec<FieldIndex>) {
        match &self.node {
            FilterExprNode::Field(ix) | FilterExprNode::Exists(ix) | FilterExprNode::AsText(ix) => {
                if !fields.contains(ix) {
                    fields.push(*ix);
                }
            }
            FilterExprNode::Text(_) | FilterExprNode::Number(_) | FilterExprNode::Bool(_) | FilterExprNode::Null => {}
            FilterExprNode::Not(inner) | FilterExprNode::Matches(inner, _) => inner.collect(fields),
            FilterExprNode::All(parts) | FilterExprNode::Any(parts) => {
                for part in parts {
                    part.collect(fields);
                }
            }
            FilterExprNode::Compare(left, _, right) | FilterExprNode::Has(left, _, right) => {
                left.collect(fields);
                right.collect(fields);
            }
            FilterExprNode::In(left, list) => {
                left.collect(fields);
                for item in list {
                    item.collect(fields);
                }
            }
        }
    }
}

impl<'v> FilterOperand<'v> {
    fn of(value: &'v FieldValue) -> Self {
        match value {
            FieldValue::Text(text) => Self::Text(text),
            FieldValue::Number(raw) => Self::Number(raw),
            FieldValue::Bool(value) => Self::Bool(*value),
        }
    }

    fn text_of(value: &'v FieldValue) -> Self {
        Self::Text(match value {
            FieldValue::Text(text) | FieldValue::Number(text) => text,
            FieldValue::Bool(true) => "true",
            FieldValue::Bool(false) => "false",
        })
    }

    /// `None` for values of different types: they are not equal, and neither is greater.
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

impl CompareOp {
    fn holds(self, left: FilterOperand<'_>, right: FilterOperand<'_>) -> bool {
        let order = left.compare(right);
        match (self, left) {
            (Self::Equal, _) => order == Some(Ordering::Equal),
            (Self::NotEqual, _) => order != Some(Ordering::Equal),
            // `null` has no order, not even with itself.
            (_, FilterOperand::Null) => false,
            (Self::Less, _) => order == Some(Ordering::Less),
            (Self::LessOrEqual, _) => order.is_some_and(Ordering::is_le),
            (Self::More, _) => order == Some(Ordering::Greater),
            (Self::MoreOrEqual, _) => order.is_some_and(Ordering::is_ge),
        }
    }
}

impl SubstringOp {
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
