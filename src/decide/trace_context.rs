//! W3C trace context: the trace that a delivery belongs to, which is passed on to its receiver.
//!
//! A delivery with a valid `traceparent` is part of that trace, and its `tracestate` is passed on. Any other delivery
//! begins a trace of its own, with the event's id, so that all attempts at one event are one trace.

use super::id::EventId;
use super::limits::TRACESTATE_BYTES_MAX;
use std::fmt;

/// The header with the trace and its last span.
pub const PARENT: &str = "traceparent";
/// The header with vendors' additions.
pub const STATE: &str = "tracestate";

/// The flags we know: "sampled", and "the trace id is random". Others are not passed on.
const KNOWN_FLAGS: u8 = 0b11;
/// The flags of a trace that begins here: sampled, so that a receiver that records what it gets continues to do so.
const RECORDED: u8 = 0b01;

/// A position in a trace: a parsed `traceparent`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The span in it.
    pub span: u64,
    flags: u8,
}

impl TraceContext {
    /// Parses a `traceparent`; `None` if it is invalid.
    pub fn parse(parent: &str) -> Option<Self> {
        let mut parts = parent.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = number(version, 2)?;
        // Only a later version may have more parts.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (number(trace, 32)?, u64::try_from(number(span, 16)?).ok()?);
        let flags = u8::try_from(number(flags, 2)?).ok()? & KNOWN_FLAGS;
        (trace != 0 && span != 0).then_some(Self { trace, span, flags })
    }

    /// The context in these headers, whose names are in lower case.
    pub fn of(headers: &[(String, String)]) -> Option<Self> {
        headers.iter().find(|(name, _)| name == PARENT).and_then(|(_, parent)| Self::parse(parent))
    }

    /// A span that begins a trace.
    pub fn begins(trace: u128, span: u64) -> Self {
        Self { trace: trace.max(1), span: span.max(1), flags: RECORDED }
    }

    /// A span that begins the trace of an event: all attempts at it are one trace.
    pub fn begins_with(event: EventId, span: u64) -> Self {
        Self::begins(u128::from_be_bytes(event.0), span)
    }

    /// A span within this one.
    #[must_use]
    pub fn child(self, span: u64) -> Self {
        Self { span: span.max(1), ..self }
    }

    /// Whether the sender records it.
    pub fn is_recorded(self) -> bool {
        self.flags & RECORDED != 0
    }

    /// Sets it in these headers, replacing another.
    pub fn inject(self, headers: &mut Vec<(String, String)>) {
        headers.retain(|(name, _)| name != PARENT);
        headers.push((PARENT.into(), self.to_string()));
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Parses lower-case hex of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<u128> {
    let hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if hex { u128::from_str_radix(text, 16).ok() } else { None }
}

/// The `tracestate`, if it may be passed on.
pub fn state(text: &str) -> Option<&str> {
    is_state(text).then_some(text)
}

/// Whether it is visible ASCII, not empty and not too long. Its content is for vendors to read.
fn is_state(text: &str) -> bool {
    let visible = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t');
    !text.trim().is_empty() && text.len() <= TRACESTATE_BYTES_MAX && visible
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn check(parent: &str, expected: Option<&str>) {
        let child = TraceContext::parse(parent).map(|context| context.child(0xabcd).to_string());
        assert_eq!(child.as_deref(), expected, "{parent}");
    }

    #[test]
    fn a_valid_parent_is_continued_under_a_new_span() {
        let child = "00-4bf92f3577b34da6a3ce929d0e0e4736-000000000000abcd";
        check(PARENT, Some(&format!("{child}-01")));
        check(&PARENT.replace("-01", "-00"), Some(&format!("{child}-00")));
        check(&PARENT.replace("-01", "-ff"), Some(&format!("{child}-03")));
        check(&PARENT.replace("00-4", "01-4"), Some(&format!("{child}-01")));
        check(&format!("{}-more", PARENT.replace("00-4", "cc-4")), Some(&format!("{child}-01")));
    }

    #[test]
    fn anything_else_is_none() {
        for bad in [
            "",
            "00",
            "00-",
            &PARENT[1..],
            &PARENT[..54],
            &PARENT.to_uppercase(),
            &PARENT.replace("00-4", "ff-4"),
            &PARENT.replace("-01", "-0x"),
            &PARENT.replace('-', "_"),
            &format!("{PARENT}-more"),
            &format!("{}more", PARENT.replace("00-4", "01-4")),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473ü-00f067aa0ba902b7-1",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn a_state_goes_along_if_it_can_be_read() {
        assert_eq!(state("congo=t61rcWkgMzE,rojo=00f0"), Some("congo=t61rcWkgMzE,rojo=00f0"));
        for bad in ["", "  ", "a=\u{1}", &"a".repeat(TRACESTATE_BYTES_MAX + 1)] {
            assert_eq!(state(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn all_attempts_at_one_event_are_one_trace() {
        let first = TraceContext::begins_with(EventId([7; 16]), 1);
        assert_eq!(first.to_string(), "00-07070707070707070707070707070707-0000000000000001-01");
        assert_eq!(TraceContext::begins_with(EventId([7; 16]), 0), first, "no span is zero");
    }

    #[test]
    fn a_context_takes_the_place_of_another() {
        let mut headers = vec![(super::PARENT.to_owned(), "old".to_owned()), ("a".into(), "b".into())];
        let context = TraceContext::parse(PARENT).expect("it is one");
        context.inject(&mut headers);
        assert_eq!(headers, [("a".to_owned(), "b".to_owned()), (super::PARENT.to_owned(), PARENT.to_owned())]);
        assert_eq!(TraceContext::of(&headers), Some(context));
    }
}
