//! What an attempt tells whoever it calls about the trace it is part of.

use super::Attempt;
use crate::decide::trace::{PARENT, STATE, Trace};

/// Where an attempt stands in a trace.
pub(super) struct Context {
    /// `traceparent`, with a span of the attempt's own.
    pub(super) parent: String,
    /// `tracestate`, if there is one.
    pub(super) state: Option<String>,
}

/// Of the sender's trace, or of a new one.
pub(super) fn context(attempt: &Attempt<'_>) -> Context {
    let payload = attempt.payload;
    let theirs = payload.header(PARENT).and_then(|parent| Trace::parse(parent, payload.header(STATE)));
    let trace = theirs.unwrap_or_else(|| Trace::of(attempt.event.id));
    let mut span = [0; 8];
    aws_lc_rs::rand::fill(&mut span).expect("the system has random bytes");
    Context { parent: trace.parent(u64::from_be_bytes(span)), state: trace.state().map(str::to_owned) }
}
