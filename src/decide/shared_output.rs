//! The output of a running attempt, as its node shares it with the others through the store: the last part of it, as a
//! state, and how a follower on another node continues from one to the next.

use super::event::Event;
use super::id::{EventId, Key};
use super::identity::key::{KeyPart, key};
use super::limits::OUTPUT_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

/// The last part of an attempt's output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedOutput {
    /// The life and the attempt that wrote it.
    pub attempt: (u32, u32),
    /// How many bytes it has written.
    pub end: u64,
    /// The last of them.
    pub bytes: Vec<u8>,
}

impl SharedOutput {
    /// Where the output of this event is shared.
    pub fn key(event: EventId) -> Key {
        key("", "output", &[KeyPart::bytes("event", &event.0)])
    }

    /// As a state of the store.
    pub fn to_state(&self) -> String {
        let (life, attempt) = self.attempt;
        json!({ "life": life, "attempt": attempt, "end": self.end, "bytes": STANDARD.encode(&self.bytes) }).to_string()
    }

    /// Reads a state; `None` if it is something else.
    pub fn read(state: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(state).ok()?;
        let number = |name: &str| u32::try_from(json[name].as_u64()?).ok();
        let bytes = STANDARD.decode(json["bytes"].as_str()?).ok()?;
        Some(Self { attempt: (number("life")?, number("attempt")?), end: json["end"].as_u64()?, bytes })
    }
}

/// How much of an attempt's output a client has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputPosition {
    attempt: (u32, u32),
    end: u64,
}

/// The next piece of output for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextOutput {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// They are all that the client has of this attempt.
    pub is_first: bool,
}

impl OutputPosition {
    /// Nothing yet of the attempt that this event is at.
    pub fn of(event: &Event) -> Self {
        Self { attempt: (event.life, event.attempt), end: 0 }
    }

    /// Whether it belongs to the attempt that this event is at.
    pub fn is_of(&self, event: &Event) -> bool {
        self.attempt == (event.life, event.attempt)
    }

    /// What is new in a shared output. What was left out is said.
    pub fn next(&mut self, shared: &SharedOutput) -> Option<NextOutput> {
        if shared.attempt != self.attempt || shared.end <= self.end {
            return None;
        }
        let (is_first, new) = (self.end == 0, shared.end - self.end);
        let held = shared.bytes.len() as u64;
        let mut bytes = Vec::new();
        if new > held {
            bytes = format!("… {} bytes left out …\n", new - held).into_bytes();
        }
        let from = usize::try_from(held.saturating_sub(new)).unwrap_or(0);
        bytes.extend_from_slice(&shared.bytes[from..]);
        self.end = shared.end;
        Some(NextOutput { bytes, is_first })
    }

    /// What is new in the output of the attempt that has ended. `None` if there is nothing, or if some of it was left
    /// out: then it is unknown where the client is.
    pub fn rest(&mut self, output: &[u8]) -> Option<NextOutput> {
        let from = usize::try_from(self.end).ok().filter(|_| output.len() <= OUTPUT_BYTES_MAX)?;
        let rest = output.get(from..).filter(|rest| !rest.is_empty())?;
        let is_first = self.end == 0;
        self.end = output.len() as u64;
        Some(NextOutput { bytes: rest.to_vec(), is_first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(end: u64, bytes: &[u8]) -> SharedOutput {
        SharedOutput { attempt: (1, 2), end, bytes: bytes.to_vec() }
    }

    #[test]
    fn what_is_shared_survives_a_round_trip() {
        let output = shared(9_000_000_000, b"\0\xff text\n");
        assert_eq!(SharedOutput::read(&output.to_state()), Some(output));
        for odd in ["", "{}", "null", r#"{"life":1,"attempt":1,"end":1,"bytes":"%"}"#] {
            assert_eq!(SharedOutput::read(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_follower_gets_each_byte_once_and_hears_what_was_left_out() {
        let mut at = OutputPosition { attempt: (1, 2), end: 0 };
        let next = |at: &mut OutputPosition, shared: &SharedOutput| {
            at.next(shared).map(|next| (String::from_utf8(next.bytes).unwrap(), next.is_first))
        };
        assert_eq!(next(&mut at, &shared(0, b"")), None);
        assert_eq!(next(&mut at, &shared(3, b"abc")), Some(("abc".into(), true)));
        assert_eq!(next(&mut at, &shared(3, b"abc")), None);
        assert_eq!(next(&mut at, &shared(5, b"bcde")), Some(("de".into(), false)));
        assert_eq!(next(&mut at, &shared(20, b"xyz")), Some(("… 12 bytes left out …\nxyz".into(), false)));
        assert_eq!(next(&mut at, &SharedOutput { attempt: (2, 1), ..shared(30, b"q") }), None, "another attempt");
        assert_eq!(at.rest(&[b'o'; 22]).map(|rest| rest.bytes), Some(b"oo".to_vec()));
        assert_eq!(at.rest(&[b'o'; 22]), None);
        assert_eq!(at.rest(&vec![b'o'; OUTPUT_BYTES_MAX + 1]), None, "some of it was left out");
    }
}
