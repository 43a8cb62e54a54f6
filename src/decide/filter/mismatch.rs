//! Explains why a filter is false, in one line, for logs, responses and the dashboard.

use super::{FilterExpr, FilterExprNode, FilterTerm};
use crate::decide::field::{ExtractedFields, FieldIndex, FieldSet, FieldValue};

/// Maximum number of characters of a value that are shown.
const SHOWN_MAX: usize = 80;

/// The values of the terms that made the filter false, and what was wanted instead.
pub(super) fn explain(text: &str, root: &FilterExpr, found: &ExtractedFields, fields: &FieldSet) -> String {
    let mut reasons = Vec::new();
    if !root.is_true(found) {
        FilterExplainer { text, found, fields }.collect(root, ExpectedTruth::True, &mut reasons);
    }
    reasons.join("; ")
}

/// Every term, in the order of the text.
pub(super) fn terms(text: &str, root: &FilterExpr, found: &ExtractedFields, fields: &FieldSet) -> Vec<FilterTerm> {
    let mut terms = Vec::new();
    FilterExplainer { text, found, fields }.list(root, &mut terms);
    terms
}

/// The truth that a part should have had, and did not. Each `!` inverts it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedTruth {
    True,
    False,
}

struct FilterExplainer<'e> {
    text: &'e str,
    found: &'e ExtractedFields,
    fields: &'e FieldSet,
}

impl FilterExplainer<'_> {
    fn collect(&self, expr: &FilterExpr, wanted: ExpectedTruth, reasons: &mut Vec<String>) {
        match &expr.node {
            FilterExprNode::Not(inner) => {
                let other = if wanted == ExpectedTruth::True { ExpectedTruth::False } else { ExpectedTruth::True };
                self.collect(inner, other, reasons);
            }
            FilterExprNode::All(parts) | FilterExprNode::Any(parts) => {
                let is = |part: &FilterExpr| {
                    if part.is_true(self.found) { ExpectedTruth::True } else { ExpectedTruth::False }
                };
                parts.iter().filter(|part| is(part) != wanted).for_each(|part| self.collect(part, wanted, reasons));
            }
            _ => reasons.push(self.term(expr, wanted)),
        }
    }

    fn list(&self, expr: &FilterExpr, terms: &mut Vec<FilterTerm>) {
        match &expr.node {
            FilterExprNode::Not(inner) => self.list(inner, terms),
            FilterExprNode::All(parts) | FilterExprNode::Any(parts) => {
                for part in parts {
                    self.list(part, terms);
                }
            }
            _ => terms.push(FilterTerm {
                text: self.written(expr),
                saw: expr.fields().into_iter().map(|ix| self.seen(ix)).collect(),
                holds: expr.is_true(self.found),
            }),
        }
    }

    fn written(&self, expr: &FilterExpr) -> String {
        self.text[expr.at.clone()].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    fn term(&self, expr: &FilterExpr, wanted: ExpectedTruth) -> String {
        let written = self.written(expr);
        let seen: Vec<String> = expr.fields().into_iter().map(|ix| self.seen(ix)).collect();
        let wanted = match wanted {
            ExpectedTruth::True => written,
            ExpectedTruth::False => format!("!({written})"),
        };
        if seen.is_empty() { format!("never true: {wanted}") } else { format!("{}, wanted {wanted}", seen.join(", ")) }
    }

    fn seen(&self, ix: FieldIndex) -> String {
        let name = &self.fields.get(ix).name;
        match self.found.value(ix) {
            None => format!("{name} was missing"),
            Some(FieldValue::Text(text)) => format!("{name} was {}", shown(text, |text| format!("{text:?}"))),
            Some(FieldValue::Number(raw)) => format!("{name} was {}", shown(raw, str::to_owned)),
            Some(FieldValue::Bool(value)) => format!("{name} was {value}"),
        }
    }
}

/// The beginning of a value, with `…` if more follows.
fn shown(value: &str, write: fn(&str) -> String) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", write(&value[..end])),
        None => write(value),
    }
}
