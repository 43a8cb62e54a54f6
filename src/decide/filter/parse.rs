//! From a text to an expression that has an answer for every delivery.
//!
//! ```text
//! any     = all ("||" all)*                 compare = value (sign value | "in" "[" value, … "]")?
//! all     = compare ("&&" compare)*         value   = "!" value | primary ("." method "(" value ")")?
//! primary = field | text | number | true | false | null | exists(field) | "(" any ")"
//! ```

use super::lex::{Kind, Token, tokens};
use super::{Compare, Expr, FilterError, Has, Node, RESERVED};
use crate::decide::field::{FieldIx, FieldSet};
use crate::decide::limits;
use crate::decide::nearest::nearest;
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

/// Reads a whole expression.
pub(super) fn parse(text: &str, fields: &FieldSet) -> Result<Expr, FilterError> {
    if text.len() > limits::FILTER_BYTES_MAX {
        let what = format!("an expression may be at most {} bytes long", limits::FILTER_BYTES_MAX);
        return Err(FilterError { at: 0..text.len(), what, hint: None });
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, text, fields };
    let root = parser.any()?;
    if parser.peek().kind != Kind::End {
        return Err(parser.leftover());
    }
    parser.must_be_bool(&root)?;
    Ok(root)
}

struct Parser<'t> {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    text: &'t str,
    fields: &'t FieldSet,
}

/// What an expression comes to, where that is known before any delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    Null,
    Text,
    Number,
    Bool,
}

impl Type {
    /// `None` for a field: it may be anything.
    fn of(expr: &Expr) -> Option<Self> {
        match expr.node {
            Node::Field(_) => None,
            Node::Text(_) => Some(Self::Text),
            Node::Number(_) => Some(Self::Number),
            Node::Null => Some(Self::Null),
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

impl Parser<'_> {
    fn any(&mut self) -> Result<Expr, FilterError> {
        self.chain("||", Self::all, Node::Any)
    }

    fn all(&mut self) -> Result<Expr, FilterError> {
        self.chain("&&", Self::compare, Node::All)
    }

    /// Parts with a sign between them, kept side by side: a long chain is not a deep one.
    fn chain(
        &mut self,
        sign: &str,
        part: fn(&mut Self) -> Result<Expr, FilterError>,
        node: fn(Vec<Expr>) -> Node,
    ) -> Result<Expr, FilterError> {
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
        Ok(Expr { at: self.since(start), node: node(parts) })
    }

    fn compare(&mut self) -> Result<Expr, FilterError> {
        let start = self.peek().at.start;
        let left = self.value()?;
        let compared = match self.peek().kind {
            Kind::Sign(sign) if let Some(how) = comparison(sign) => {
                self.next += 1;
                let right = self.value()?;
                let at = self.since(start);
                self.must_compare(&left, &right, &at)?;
                Expr { at, node: Node::Compare(Box::new(left), how, Box::new(right)) }
            }
            Kind::Word(ref word) if word == "in" => {
                self.next += 1;
                let items = self.list(&left)?;
                Expr { at: self.since(start), node: Node::In(Box::new(left), items) }
            }
            _ => return Ok(left),
        };
        match self.peek() {
            Token { at, kind: Kind::Sign(sign) } if comparison(sign).is_some() => Err(FilterError {
                at: at.clone(),
                what: "comparisons cannot be chained".into(),
                hint: Some("write `a < b && b < c`, or put parentheses around one of them".into()),
            }),
            _ => Ok(compared),
        }
    }

    fn list(&mut self, left: &Expr) -> Result<Vec<Expr>, FilterError> {
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

    fn value(&mut self) -> Result<Expr, FilterError> {
        let start = self.peek().at.start;
        if self.takes("!") {
            let inner = self.deeper(Self::value)?;
            self.must_be_bool(&inner)?;
            return Ok(Expr { at: self.since(start), node: Node::Not(Box::new(inner)) });
        }
        let mut value = self.primary()?;
        while self.takes(".") {
            let node = self.method(value)?;
            value = Expr { at: self.since(start), node };
        }
        Ok(value)
    }

    fn primary(&mut self) -> Result<Expr, FilterError> {
        let Token { at, kind } = self.take();
        let node = match kind {
            Kind::Text(text) => Node::Text(text),
            Kind::Number(raw) => Node::Number(raw),
            Kind::Sign("-") => match self.take() {
                Token { kind: Kind::Number(raw), .. } => Node::Number(format!("-{raw}")),
                token => return Err(self.unexpected(&token)),
            },
            Kind::Sign("(") => {
                let inner = self.deeper(Self::any)?;
                self.expect(")", "a parenthesis is not closed")?;
                return Ok(inner);
            }
            Kind::Word(word) if word == "exists" && self.sees("(") => self.exists()?,
            Kind::Word(word) => match word.as_str() {
                "true" => Node::Bool(true),
                "false" => Node::Bool(false),
                "null" => Node::Null,
                _ => Node::Field(self.field(&word, &at)?),
            },
            kind => return Err(self.unexpected(&Token { at, kind })),
        };
        Ok(Expr { at: self.since(at.start), node })
    }

    fn exists(&mut self) -> Result<Node, FilterError> {
        self.expect("(", "write `exists(field)`")?;
        let ix = match self.take() {
            Token { at, kind: Kind::Word(word) } => self.field(&word, &at)?,
            Token { at, .. } => return Err(wrong(at, "`exists` asks about a field", "write `exists(field)`")),
        };
        self.expect(")", "write `exists(field)`")?;
        Ok(Node::Exists(ix))
    }

    /// What follows the dot behind a value.
    fn method(&mut self, text: Expr) -> Result<Node, FilterError> {
        let Token { at, kind } = self.take();
        let name = match kind {
            Kind::Word(name) if METHODS.contains(&name.as_str()) => name,
            _ => return Err(self.unknown_method(at)),
        };
        must_be_text(&text, &format!("`.{name}` is for texts"))?;
        self.expect("(", "a method has its argument in parentheses")?;
        let part = self.deeper(Self::value)?;
        self.expect(")", "a method has one argument, in parentheses")?;
        must_be_text(&part, &format!("`.{name}` looks for a text"))?;
        let how = match name.as_str() {
            "startsWith" => Has::AtStart,
            "endsWith" => Has::AtEnd,
            "contains" => Has::Anywhere,
            _ => return matches(text, &part),
        };
        Ok(Node::Has(Box::new(text), how, Box::new(part)))
    }

    fn unknown_method(&self, at: Range<usize>) -> FilterError {
        let name = &self.text[at.clone()];
        let what = format!("`.{name}` is not a method; there are {}", METHODS.map(|m| format!("`.{m}`")).join(", "));
        let hint = nearest(name, METHODS).map(|meant| format!("did you mean `.{meant}`?"));
        FilterError { at, what, hint }
    }

    fn field(&self, name: &str, at: &Range<usize>) -> Result<FieldIx, FilterError> {
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

    /// One level down, unless that is too deep.
    fn deeper(&mut self, part: fn(&mut Self) -> Result<Expr, FilterError>) -> Result<Expr, FilterError> {
        if self.depth == limits::FILTER_DEPTH_MAX {
            let what = format!("an expression may be at most {} levels deep", limits::FILTER_DEPTH_MAX);
            return Err(FilterError { at: self.peek().at.clone(), what, hint: None });
        }
        self.depth += 1;
        let inner = part(self);
        self.depth -= 1;
        inner
    }

    fn must_be_bool(&self, expr: &Expr) -> Result<(), FilterError> {
        let text = &self.text[expr.at.clone()];
        match Type::of(expr) {
            Some(Type::Bool) => Ok(()),
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

    fn must_compare(&self, left: &Expr, right: &Expr, at: &Range<usize>) -> Result<(), FilterError> {
        match (Type::of(left), Type::of(right)) {
            (Some(a), Some(b)) if a != b => Err(FilterError {
                at: at.clone(),
                what: format!("{} and {} cannot be compared", a.words(), b.words()),
                hint: self.fields.iter().next().map(|field| format!("compare with a field, such as `{}`", field.name)),
            }),
            _ => Ok(()),
        }
    }

    /// From there to the end of what was taken last, parentheses and all.
    fn since(&self, start: usize) -> Range<usize> {
        start..self.tokens[self.next.saturating_sub(1)].at.end
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.next]
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn sees(&self, sign: &str) -> bool {
        matches!(self.peek().kind, Kind::Sign(seen) if seen == sign)
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

    fn unexpected(&self, token: &Token) -> FilterError {
        let what = match &token.kind {
            Kind::End => "the expression ends where a value should stand".into(),
            _ => format!("`{}` stands where a value should", &self.text[token.at.clone()]),
        };
        FilterError { at: token.at.clone(), what, hint: None }
    }

    fn leftover(&self) -> FilterError {
        let Token { at, kind } = self.peek();
        let hint = match kind {
            Kind::Word(word) => FOREIGN.iter().find(|(foreign, _)| foreign == word).map(|(_, hint)| (*hint).to_owned()),
            _ => None,
        };
        FilterError {
            at: at.start..self.text.len(),
            what: format!("the expression is over before `{}`", &self.text[at.clone()]),
            hint: hint.or_else(|| Some("join two conditions with `&&` or `||`".into())),
        }
    }
}

fn comparison(sign: &str) -> Option<Compare> {
    Some(match sign {
        "==" => Compare::Equal,
        "!=" => Compare::NotEqual,
        "<" => Compare::Less,
        "<=" => Compare::LessOrEqual,
        ">" => Compare::More,
        ">=" => Compare::MoreOrEqual,
        _ => return None,
    })
}

fn must_be_text(expr: &Expr, what: &str) -> Result<(), FilterError> {
    match Type::of(expr) {
        None | Some(Type::Text) => Ok(()),
        Some(other) => {
            Err(FilterError { at: expr.at.clone(), what: format!("{what}, and this is {}", other.words()), hint: None })
        }
    }
}

fn matches(text: Expr, pattern: &Expr) -> Result<Node, FilterError> {
    let Node::Text(regex) = &pattern.node else {
        return Err(wrong(pattern.at.clone(), "`.matches` takes a text that stands here", "write `.matches(\"…\")`"));
    };
    let built =
        RegexBuilder::new(regex).size_limit(limits::REGEX_BYTES_MAX).dfa_size_limit(limits::REGEX_BYTES_MAX).build();
    match built {
        Ok(regex) => Ok(Node::Matches(Box::new(text), regex)),
        Err(regex::Error::CompiledTooBig(_)) => Err(wrong(
            pattern.at.clone(),
            "this regular expression is too large",
            "repeat less: `{1,10}`, not `{1,1000}`",
        )),
        Err(error) => {
            // The last line says what is wrong; those above it draw the place.
            let what = error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Err(FilterError { at: pattern.at.clone(), what: format!("not a regular expression: {what}"), hint: None })
        }
    }
}

fn wrong(at: Range<usize>, what: &str, hint: &str) -> FilterError {
    FilterError { at, what: what.into(), hint: Some(hint.into()) }
}
