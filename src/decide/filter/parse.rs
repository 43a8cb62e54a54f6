//! The parser of filter expressions.
//!
//! ```text
//! any     = all ("||" all)*                 compare = value (sign value | "in" "[" value, … "]")?
//! all     = compare ("&&" compare)*         value   = "!" value | primary ("." method "(" value ")")?
//! primary = field | text | number | true | false | null | exists(field) | string(field) | "(" any ")"
//! ```

use super::lex::{FilterToken, FilterTokenKind, tokens};
use super::{CompareOp, FilterError, FilterExpr, FilterExprNode, RESERVED, SubstringOp};
use crate::decide::field::{FieldIndex, FieldSet};
use crate::decide::limits;
use crate::decide::nearest_name::nearest;
use regex::RegexBuilder;
use std::ops::Range;

const METHODS: [&str; 4] = ["startsWith", "endsWith", "contains", "matches"];

/// Words of other languages, and what to write instead.
const FOREIGN: [(&str, &str); 4] = [
    ("and", "\"and\" is written `&&`"),
    ("or", "\"or\" is written `||`"),
    ("not", "\"not\" is written `!`"),
    ("size", "there is no `size`; compare the text itself"),
];

/// Parses a whole expression.
pub(super) fn parse(text: &str, fields: &FieldSet) -> Result<FilterExpr, FilterError> {
    if text.len() > limits::FILTER_BYTES_MAX {
        let what = format!("an expression may be at most {} bytes long", limits::FILTER_BYTES_MAX);
        return Err(FilterError { at: 0..text.len(), what, hint: None });
    }
    let mut parser = FilterParser { tokens: tokens(text)?, next: 0, depth: 0, text, fields };
    let root = parser.any()?;
    if parser.peek().kind != FilterTokenKind::End {
        return Err(parser.leftover());
    }
    parser.must_be_bool(&root)?;
    Ok(root)
}

struct FilterParser<'t> {
    tokens: Vec<FilterToken>,
    next: usize,
    depth: usize,
    text: &'t str,
    fields: &'t FieldSet,
}

/// The type of an expression, where it is known without a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FilterExprType {
    Null,
    Text,
    Number,
    Bool,
}

impl FilterExprType {
    /// `None` for a field: it may have any type.
    fn of(expr: &FilterExpr) -> Option<Self> {
        match expr.node {
            FilterExprNode::Field(_) => None,
            FilterExprNode::Text(_) | FilterExprNode::AsText(_) => Some(Self::Text),
            FilterExprNode::Number(_) => Some(Self::Number),
            FilterExprNode::Null => Some(Self::Null),
            _ => Some(Self::Bool),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text => "a text",
            Self::Number => "a number",
            Self::Bool => "true or false",
        }
    }
}

impl FilterParser<'_> {
    fn any(&mut self) -> Result<FilterExpr, FilterError> {
        self.chain("||", Self::all, FilterExprNode::Any)
    }

    fn all(&mut self) -> Result<FilterExpr, FilterError> {
        self.chain("&&", Self::compare, FilterExprNode::All)
    }

    /// Parses parts with an operator between them into one flat node, so that a long chain is not a deep one.
    fn chain(
        &mut self,
        sign: &str,
        part: fn(&mut Self) -> Result<FilterExpr, FilterError>,
        node: fn(Vec<FilterExpr>) -> FilterExprNode,
    ) -> Result<FilterExpr, FilterError> {
        let start = self.peek().at.start;
        let first = part(self)?;
        if !self.sees(sign) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.takes(sign) {
            parts.push(part(self)?);
        }
        parts.iter().try_for_each(|part| self.must_be_bool(part))?;
        Ok(FilterExpr { at: self.since(start), node: node(parts) })
    }

    fn compare(&mut self) -> Result<FilterExpr, FilterError> {
        let start = self.peek().at.start;
        let left = self.value()?;
        let compared = match self.peek().kind {
            FilterTokenKind::Sign(sign) if let Some(how) = comparison(sign) => {
                self.next += 1;
                let right = self.value()?;
                let at = self.since(start);
                self.must_compare(&left, &right, &at)?;
                FilterExpr { at, node: FilterExprNode::Compare(Box::new(left), how, Box::new(right)) }
            }
            FilterTokenKind::Word(ref word) if word == "in" => {
                self.next += 1;
                let items = self.list(&left)?;
                FilterExpr { at: self.since(start), node: FilterExprNode::In(Box::new(left), items) }
            }
            _ => return Ok(left),
        };
        match self.peek() {
            FilterToken { at, kind: FilterTokenKind::Sign(sign) } if comparison(sign).is_some() => Err(FilterError {
                at: at.clone(),
                what: "comparisons cannot be chained".into(),
                hint: Some("write `a < b && b < c`, or put parentheses around one of them".into()),
            }),
            _ => Ok(compared),
        }
    }

    fn list(&mut self, left: &FilterExpr) -> Result<Vec<FilterExpr>, FilterError> {
        self.expect("[", "`in` is followed by a list: `tag in [\"a\", \"b\"]`")?;
        let mut items = Vec::new();
        while !self.sees("]") {
            let item = self.value()?;
            self.must_compare(left, &item, &item.at)?;
            items.push(item);
            if !self.takes(",") {
                break;
            }
        }
        self.expect("]", "a list ends with `]`")?;
        Ok(items)
    }

    fn value(&mut self) -> Result<FilterExpr, FilterError> {
        let start = self.peek().at.start;
        if self.takes("!") {
            let inner = self.deeper(Self::value)?;
            self.must_be_bool(&inner)?;
            return Ok(FilterExpr { at: self.since(start), node: FilterExprNode::Not(Box::new(inner)) });
        }
        let mut value = self.primary()?;
        while self.takes(".") {
            let node = self.method(value)?;
            value = FilterExpr { at: self.since(start), node };
        }
        Ok(value)
    }

    fn primary(&mut self) -> Result<FilterExpr, FilterError> {
        let FilterToken { at, kind } = self.take();
        let node = match kind {
            FilterTokenKind::Text(text) => FilterExprNode::Text(text),
            FilterTokenKind::Number(raw) => FilterExprNode::Number(raw),
            FilterTokenKind::Sign("-") => match self.take() {
                FilterToken { kind: FilterTokenKind::Number(raw), .. } => FilterExprNode::Number(format!("-{raw}")),
                token => return Err(self.unexpected(&token)),
            },
            FilterTokenKind::Sign("(") => {
                let inner = self.deeper(Self::any)?;
                self.expect(")", "a parenthesis is not closed")?;
                return Ok(inner);
            }
            FilterTokenKind::Word(word) if word == "exists" && self.sees("(") => {
                FilterExprNode::Exists(self.field_of("exists")?)
            }
            FilterTokenKind::Word(word) if word == "string" && self.sees("(") => {
                FilterExprNode::AsText(self.field_of("string")?)
            }
            FilterTokenKind::Word(word) => match word.as_str() {
                "true" => FilterExprNode::Bool(true),
                "false" => FilterExprNode::Bool(false),
                "null" => FilterExprNode::Null,
                _ => FilterExprNode::Field(self.field(&word, &at)?),
            },
            kind => return Err(self.unexpected(&FilterToken { at, kind })),
        };
        Ok(FilterExpr { at: self.since(at.start), node })
    }

    /// Parses the field in the parentheses of a function.
    fn field_of(&mut self, function: &str) -> Result<FieldIndex, FilterError> {
        let hint = format!("write `{function}(field)`");
        self.expect("(", &hint)?;
        let ix = match self.take() {
            FilterToken { at, kind: FilterTokenKind::Word(word) } => self.field(&word, &at)?,
            FilterToken { at, .. } => return Err(wrong(at, &format!("`{function}` asks about a field"), &hint)),
        };
        self.expect(")", &hint)?;
        Ok(ix)
    }

    /// Parses the method call after a value's dot.
    fn method(&mut self, text: FilterExpr) -> Result<FilterExprNode, FilterError> {
        let FilterToken { at, kind } = self.take();
        let name = match kind {
            FilterTokenKind::Word(name) if METHODS.contains(&name.as_str()) => name,
            _ => return Err(self.unknown_method(at)),
        };
        must_be_text(&text, &format!("`.{name}` is for texts"))?;
        self.expect("(", "a method has its argument in parentheses")?;
        let part = self.deeper(Self::value)?;
        self.expect(")", "a method has one argument, in parentheses")?;
        must_be_text(&part, &format!("`.{name}` looks for a text"))?;
        let how = match name.as_str() {
            "startsWith" => SubstringOp::AtStart,
            "endsWith" => SubstringOp::AtEnd,
            "contains" => SubstringOp::Anywhere,
            _ => return matches(text, &part),
        };
        Ok(FilterExprNode::Has(Box::new(text), how, Box::new(part)))
    }

    fn unknown_method(&self, at: Range<usize>) -> FilterError {
        let name = &self.text[at.clone()];
        let what = format!("`.{name}` is not a method; there are {}", METHODS.map(|m| format!("`.{m}`")).join(", "));
        let hint = nearest(name, METHODS).map(|meant| format!("did you mean `.{meant}`?"));
        FilterError { at, what, hint }
    }

    fn field(&self, name: &str, at: &Range<usize>) -> Result<FieldIndex, FilterError> {
        if let Some(ix) = self.fields.ix(name).filter(|_| !RESERVED.contains(&name)) {
            return Ok(ix);
        }
        let names: Vec<&str> = self.fields.iter().map(|field| &*field.name).collect();
        let known = if names.is_empty() { "none is declared".into() } else { format!("fields: {}", names.join(", ")) };
        let hint = match FOREIGN.iter().find(|(word, _)| *word == name) {
            Some((_, hint)) => Some((*hint).to_owned()),
            None => nearest(name, names).map(|meant| format!("did you mean `{meant}`?")),
        };
        Err(FilterError { at: at.clone(), what: format!("`{name}` is not a declared field; {known}"), hint })
    }

    /// Parses one level down, unless that is too deep.
    fn deeper(&mut self, part: fn(&mut Self) -> Result<FilterExpr, FilterError>) -> Result<FilterExpr, FilterError> {
        if self.depth == limits::FILTER_DEPTH_MAX {
            let what = format!("an expression may be at most {} levels deep", limits::FILTER_DEPTH_MAX);
            return Err(FilterError { at: self.peek().at.clone(), what, hint: None });
        }
        self.depth += 1;
        let inner = part(self);
        self.depth -= 1;
        inner
    }

    fn must_be_bool(&self, expr: &FilterExpr) -> Result<(), FilterError> {
        let text = &self.text[expr.at.clone()];
        match FilterExprType::of(expr) {
            Some(FilterExprType::Bool) => Ok(()),
            Some(other) => Err(wrong(
                expr.at.clone(),
                &format!("this is {}, not true or false", other.words()),
                "compare it with a field",
            )),
            None => Err(wrong(
                expr.at.clone(),
                &format!("`{text}` is a value, not true or false"),
                &format!("write `exists({text})`, or compare it: `{text} == …`"),
            )),
        }
    }

    fn must_compare(&self, left: &FilterExpr, right: &FilterExpr, at: &Range<usize>) -> Result<(), FilterError> {
        match (FilterExprType::of(left), FilterExprType::of(right)) {
            (Some(a), Some(b)) if a != b => Err(FilterError {
                at: at.clone(),
                what: format!("{} and {} cannot be compared", a.words(), b.words()),
                hint: self.fields.iter().next().map(|field| format!("compare with a field, such as `{}`", field.name)),
            }),
            _ => Ok(()),
        }
    }

    /// The range from `start` to the end of the last token taken, including parentheses.
    fn since(&self, start: usize) -> Range<usize> {
        start..self.tokens[self.next.saturating_sub(1)].at.end
    }

    fn peek(&self) -> &FilterToken {
        &self.tokens[self.next]
    }

    fn take(&mut self) -> FilterToken {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn sees(&self, sign: &str) -> bool {
        matches!(self.peek().kind, FilterTokenKind::Sign(seen) if seen == sign)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let seen = self.sees(sign);
        self.next += usize::from(seen);
        seen
    }

    fn expect(&mut self, sign: &str, otherwise: &str) -> Result<(), FilterError> {
        let at = self.peek().at.clone();
        if self.takes(sign) { Ok(()) } else { Err(wrong(at, &format!("`{sign}` is missing here"), otherwise)) }
    }

    fn unexpected(&self, token: &FilterToken) -> FilterError {
        let what = match &token.kind {
            FilterTokenKind::End => "the expression ends where a value should be".into(),
            _ => format!("`{}` is where a value should be", &self.text[token.at.clone()]),
        };
        FilterError { at: token.at.clone(), what, hint: None }
    }

    fn leftover(&self) -> FilterError {
        let FilterToken { at, kind } = self.peek();
        let hint = match kind {
            FilterTokenKind::Word(word) => {
                FOREIGN.iter().find(|(foreign, _)| foreign == word).map(|(_, hint)| (*hint).to_owned())
            }
            _ => None,
        };
        FilterError {
            at: at.start..self.text.len(),
            what: format!("the expression is over before `{}`", &self.text[at.clone()]),
            hint: hint.or_else(|| Some("join two conditions with `&&` or `||`".into())),
        }
    }
}

fn comparison(sign: &str) -> Option<CompareOp> {
    Some(match sign {
        "==" => CompareOp::Equal,
        "!=" => CompareOp::NotEqual,
        "<" => CompareOp::Less,
        "<=" => CompareOp::LessOrEqual,
        ">" => CompareOp::More,
        ">=" => CompareOp::MoreOrEqual,
        _ => return None,
    })
}

fn must_be_text(expr: &FilterExpr, what: &str) -> Result<(), FilterError> {
    match FilterExprType::of(expr) {
        None | Some(FilterExprType::Text) => Ok(()),
        Some(other) => {
            Err(FilterError { at: expr.at.clone(), what: format!("{what}, and this is {}", other.words()), hint: None })
        }
    }
}

fn matches(text: FilterExpr, pattern: &FilterExpr) -> Result<FilterExprNode, FilterError> {
    let FilterExprNode::Text(regex) = &pattern.node else {
        return Err(wrong(pattern.at.clone(), "`.matches` takes a literal text", "write `.matches(\"…\")`"));
    };
    let built =
        RegexBuilder::new(regex).size_limit(limits::REGEX_BYTES_MAX).dfa_size_limit(limits::REGEX_BYTES_MAX).build();
    match built {
        Ok(regex) => Ok(FilterExprNode::Matches(Box::new(text), regex)),
        Err(regex::Error::CompiledTooBig(_)) => Err(wrong(
            pattern.at.clone(),
            "this regular expression is too large",
            "repeat less: `{1,10}`, not `{1,1000}`",
        )),
        Err(error) => {
            // The last line says what is wrong; the lines above it show the position.
            let what = error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Err(FilterError { at: pattern.at.clone(), what: format!("not a regular expression: {what}"), hint: None })
        }
    }
}

fn wrong(at: Range<usize>, what: &str, hint: &str) -> FilterError {
    FilterError { at, what: what.into(), hint: Some(hint.into()) }
}
