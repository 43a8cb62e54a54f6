//! W3C trace context: which trace a delivery belongs to, and what whoever acts on it is told.
//!
//! A delivery that comes with a valid `traceparent` is part of that trace, and its `tracestate` goes along. Any other
//! begins one of its own, named by the event, so that all attempts at one event are one trace.

use super::id::EventId;
use super::limits::TRACESTATE_BYTES_MAX;
use std::fmt::Write as _;

/// The header with the trace and its last span.
pub const PARENT: &str = "traceparent";
/// The header with what vendors add.
pub const STATE: &str = "tracestate";

/// What may be recorded, and that the id is random: the flags we know. Others are not passed on.
const KNOWN_FLAGS: u8 = 0b11;
/// Of a trace that begins here. Recorded: a receiver that records what it is sent goes on doing so.
const NEW_FLAGS: u8 = 0b01;

/// A trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    id: [u8; 16],
    flags: u8,
    state: Option<String>,
}

impl Trace {
    /// The trace that these headers name; `None` if they do not say so as they should.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let (version, rest) = parent.split_once('-')?;
        let (version, rest) = (bytes::<1>(version)?[0], rest.as_bytes());
        // A later version may say more behind another dash.
        let whole = rest.len() == 52 || (version > 0 && rest.get(52) == Some(&b'-'));
        if version == 0xff || !whole || rest[32] != b'-' || rest[49] != b'-' {
            return None;
        }
        let text = |range: std::ops::Range<usize>| std::str::from_utf8(&rest[range]).ok();
        let (id, span) = (bytes::<16>(text(0..32)?)?, bytes::<8>(text(33..49)?)?);
        let flags = bytes::<1>(text(50..52)?)?[0];
        if id == [0; 16] || span == [0; 8] {
            return None;
        }
        let state = state.filter(|state| is_state(state)).map(str::to_owned);
        Some(Self { id, flags: flags & KNOWN_FLAGS, state })
    }

    /// The trace that begins with this event.
    pub fn of(event: EventId) -> Self {
        Self { id: event.0, flags: NEW_FLAGS, state: None }
    }

    /// `traceparent` for this span, which must not be zero.
    pub fn parent(&self, span: u64) -> String {
        let mut text = String::from("00-");
        for byte in self.id {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, "-{:016x}-{:02x}", span.max(1), self.flags);
        text
    }

    /// `tracestate`, as it came.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// Lower-case hex of exactly so many bytes.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut found = [0; N];
    (lower && text.len() == 2 * N && hex::decode_to_slice(text, &mut found).is_ok()).then_some(found)
}

/// Visible ASCII, not empty, not too long. What it says is for vendors to read.
fn is_state(text: &str) -> bool {
    let visible = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t');
    !text.trim().is_empty() && text.len() <= TRACESTATE_BYTES_MAX && visible
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn check(parent: &str, expected: Option<&str>) {
        assert_eq!(Trace::parse(parent, None).map(|trace| trace.parent(0xabcd)).as_deref(), expected, "{parent}");
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
        let state = |text: &str| Trace::parse(PARENT, Some(text)).and_then(|trace| trace.state);
        assert_eq!(state("congo=t61rcWkgMzE,rojo=00f0").as_deref(), Some("congo=t61rcWkgMzE,rojo=00f0"));
        for bad in ["", "  ", "a=\u{1}", &"a".repeat(TRACESTATE_BYTES_MAX + 1)] {
            assert_eq!(state(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn all_attempts_at_one_event_are_one_trace() {
        let trace = Trace::of(EventId([7; 16]));
        assert_eq!(trace.parent(1), "00-07070707070707070707070707070707-0000000000000001-01");
        assert_eq!(trace.parent(0), trace.parent(1));
    }
}
