//! What an attempt tells whoever it calls about the trace it is part of.

use super::Attempt;
use crate::decide::trace_context;
use crate::decide::trace_context::{PARENT, STATE, TraceContext};

/// The headers with an attempt's place in its trace: its own span, else a new one of the sender's trace or of its event's.
pub(super) fn trace_headers(attempt: &Attempt<'_>) -> Vec<(&'static str, String)> {
    let payload = attempt.payload;
    let sender = TraceContext::of(&payload.headers);
    let own = attempt.span.unwrap_or_else(|| {
        let mut span = [0; 8];
        aws_lc_rs::rand::fill(&mut span).expect("the system has random bytes");
        let span = u64::from_be_bytes(span);
        sender.map_or_else(|| TraceContext::begins_with(attempt.event.id, span), |sender| sender.child(span))
    });
    let state = sender.and(payload.header(STATE)).and_then(trace_context::state);
    let state = state.map(|state| (STATE, state.to_owned()));
    [(PARENT, own.to_string())].into_iter().chain(state).collect()
}
