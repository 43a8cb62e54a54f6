//! The spans of `tracing` that follow a delivery or a request: `receive`, `claim` and `attempt`. The node begins them in the
//! trace of the sender's W3C context, the layer within the span of the service that it is part of.

use super::log::{VALUE_CHARS_MAX, cut};
#[cfg(feature = "otel")]
use super::otlp;
use crate::decide::event::Outcome;
use crate::decide::trace_context::TraceContext;
use tracing::field::Empty;
use tracing::instrument::{Instrument as _, Instrumented};
use tracing::{Span, info_span};

/// A span of a trace. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct TraceSpan {
    span: Span,
    parent: Option<TraceContext>,
}

macro_rules! span {
    ($name:literal, $kind:literal) => {
        info_span!(
            target: "hookonce",
            $name,
            otel.kind = $kind,
            otel.status_code = Empty,
            otel.status_description = Empty,
            hookonce.source = Empty,
            hookonce.verdict = Empty,
            hookonce.event = Empty,
            hookonce.route = Empty,
            hookonce.attempt = Empty,
            hookonce.node = Empty,
            hookonce.outcome = Empty,
        )
    };
}

impl TraceSpan {
    /// Begins a span within `parent`, else within the current span of `tracing`, else a trace. If the sender does not
    /// sample the trace, nothing is recorded.
    pub(crate) fn begin(name: &'static str, parent: Option<TraceContext>) -> Self {
        let span = match name {
            "receive" => span!("receive", "server"),
            "claim" => span!("claim", "internal"),
            _ => span!("attempt", "internal"),
        };
        #[cfg(feature = "otel")]
        if let Some(parent) = parent {
            otlp::set_parent(&span, parent);
        }
        Self { span, parent }
    }

    /// Runs this work within the span: what it logs and the spans that it begins belong to the span.
    pub(crate) fn run<F: Future>(&self, work: F) -> Instrumented<F> {
        work.instrument(self.span.clone())
    }

    /// Adds the attribute `hookonce.` plus this name.
    pub(crate) fn tell(&mut self, name: &'static str, value: &str) {
        if self.is_enabled() {
            self.span.record(&*format!("hookonce.{name}"), cut(value, VALUE_CHARS_MAX));
        }
    }

    /// Marks it as failed.
    pub(crate) fn failed(&mut self, why: &str) {
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", cut(why, VALUE_CHARS_MAX));
    }

    /// Adds the outcome of an attempt.
    pub(crate) fn settled(&mut self, outcome: &Outcome) {
        self.tell("outcome", outcome.word());
        if !outcome.why().is_empty() {
            self.failed(outcome.why());
        }
    }

    /// Whether a subscriber wants it.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.span.is_disabled()
    }

    /// The context for spans within it; `None` if it is not recorded.
    #[cfg(feature = "otel")]
    pub(crate) fn context(&self) -> Option<TraceContext> {
        let (trace, span) = otlp::ids(&self.span)?;
        Some(self.parent.map_or_else(|| TraceContext::begins(trace, span), |parent| parent.child(span)))
    }

    /// The context for spans within it: without the feature `otel` nothing is recorded.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.parent.filter(|_| false)
    }
}
