//! Why a filter said no: one line for logs, answers and the dashboard.

use super::{Expr, Node, Term};
use crate::decide::field::{FieldIx, FieldSet, Found, Value};

/// Characters of a value that are shown.
const SHOWN_MAX: usize = 80;

/// What was seen of the terms that made it false, and what was wanted instead.
pub(super) fn explain(text: &str, root: &Expr, found: &Found, fields: &FieldSet) -> String {
    let mut reasons = Vec::new();
    if !root.is_true(found) {
        Why { text, found, fields }.collect(root, Wanted::True, &mut reasons);
    }
    reasons.join("; ")
}

/// Every term, in the order in which they stand.
pub(super) fn terms(text: &str, root: &Expr, found: &Found, fields: &FieldSet) -> Vec<Term> {
    let mut terms = Vec::new();
    Why { text, found, fields }.list(root, &mut terms);
    terms
}

/// What a part should have been, and was not. Behind each `!` it turns round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    True,
    False,
}

struct Why<'e> {
    text: &'e str,
    found: &'e Found,
    fields: &'e FieldSet,
}

impl Why<'_> {
    fn collect(&self, expr: &Expr, wanted: Wanted, reasons: &mut Vec<String>) {
        match &expr.node {
            Node::Not(inner) => {
                let other = if wanted == Wanted::True { Wanted::False } else { Wanted::True };
                self.collect(inner, other, reasons);
            }
            Node::All(parts) | Node::Any(parts) => {
                let is = |part: &Expr| if part.is_true(self.found) { Wanted::True } else { Wanted::False };
                parts.iter().filter(|part| is(part) != wanted).for_each(|part| self.collect(part, wanted, reasons));
            }
            _ => reasons.push(self.term(expr, wanted)),
        }
    }

    fn list(&self, expr: &Expr, terms: &mut Vec<Term>) {
        match &expr.node {
            Node::Not(inner) => self.list(inner, terms),
            Node::All(parts) | Node::Any(parts) => parts.iter().for_each(|part| self.list(part, terms)),
            _ => terms.push(Term {
                text: self.written(expr),
                saw: expr.fields().into_iter().map(|ix| self.seen(ix)).collect(),
                holds: expr.is_true(self.found),
            }),
        }
    }

    fn written(&self, expr: &Expr) -> String {
        self.text[expr.at.clone()].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    fn term(&self, expr: &Expr, wanted: Wanted) -> String {
        let written = self.written(expr);
        let seen: Vec<String> = expr.fields().into_iter().map(|ix| self.seen(ix)).collect();
        let wanted = match wanted {
            Wanted::True => written,
            Wanted::False => format!("!({written})"),
        };
        if seen.is_empty() { format!("never true: {wanted}") } else { format!("{}, wanted {wanted}", seen.join(", ")) }
    }

    fn seen(&self, ix: FieldIx) -> String {
        let name = &self.fields.get(ix).name;
        match self.found.value(ix) {
            None => format!("{name} was missing"),
            Some(Value::Text(text)) => format!("{name} was {}", shown(text, |text| format!("{text:?}"))),
            Some(Value::Number(raw)) => format!("{name} was {}", shown(raw, str::to_owned)),
            Some(Value::Bool(value)) => format!("{name} was {value}"),
        }
    }
}

/// The beginning of a value, marked where more follows.
fn shown(value: &str, write: fn(&str) -> String) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", write(&value[..end])),
        None => write(value),
    }
}
