//! The truth of a filter for a delivery of which only some fields are known: true, false, or not known.

use super::{FilterExpr, FilterExprNode};
use crate::decide::field::PartialFields;

/// Whether the expression is true; `None` if that depends on a field that is not known.
pub(super) fn truth(expr: &FilterExpr, known: &PartialFields) -> Option<bool> {
    match &expr.node {
        FilterExprNode::Not(inner) => truth(inner, known).map(|holds| !holds),
        FilterExprNode::All(parts) => combined(parts, known, true),
        FilterExprNode::Any(parts) => combined(parts, known, false),
        _ => expr.fields().iter().all(|ix| known.is_known(*ix)).then(|| expr.is_true(&known.found)),
    }
}

/// The truth of several parts: one part that differs from `neutral` decides.
fn combined(parts: &[FilterExpr], known: &PartialFields, neutral: bool) -> Option<bool> {
    let truths: Vec<_> = parts.iter().map(|part| truth(part, known)).collect();
    if truths.contains(&Some(!neutral)) {
        return Some(!neutral);
    }
    if truths.contains(&None) { None } else { Some(neutral) }
}
