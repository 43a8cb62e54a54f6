//! The output of commands: streamed live to subscribers, and its head and tail kept.

use crate::decide::id::EventId;
use crate::decide::limits::{OUTPUT_BYTES_MAX, OUTPUT_SHARED_BYTES_MAX};
use crate::decide::shared_output::SharedOutput;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

const HEAD_BYTES: usize = OUTPUT_BYTES_MAX / 2;
const TAIL_BYTES: usize = OUTPUT_BYTES_MAX - HEAD_BYTES;

/// A piece of output, as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputChunk {
    /// The event whose command wrote it.
    pub event: EventId,
    /// The steps.
    pub bytes: Bytes,
}

/// The output of one attempt: standard output and standard error, in the order in which they arrived.
#[derive(Debug)]
pub struct AttemptOutput {
    event: EventId,
    /// Its life and attempt.
    attempt: (u32, u32),
    live: broadcast::Sender<OutputChunk>,
    kept: Mutex<OutputBuffer>,
}

#[derive(Debug, Default)]
struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
    /// The start of an incomplete character, not streamed yet.
    begun: Vec<u8>,
}

impl AttemptOutput {
    /// The output of this event's attempt, also sent to `live`.
    pub fn new(event: EventId, attempt: (u32, u32), live: broadcast::Sender<OutputChunk>) -> Self {
        Self { event, attempt, live, kept: Mutex::default() }
    }

    /// Appends output.
    pub fn push(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        kept.push(bytes);
        let mut piece = std::mem::take(&mut kept.begun);
        piece.extend_from_slice(bytes);
        kept.begun = piece.split_off(piece.len() - incomplete_utf8_len(&piece));
        if self.live.receiver_count() > 0 && !piece.is_empty() {
            // The last subscriber may leave between the check and the send.
            let _ = self.live.send(OutputChunk { event: self.event, bytes: Bytes::from(piece) });
        }
    }

    /// The output so far and a subscription to the rest, without gap or overlap.
    pub fn subscribe(&self) -> (Vec<u8>, broadcast::Receiver<OutputChunk>) {
        let kept = self.lock();
        let mut so_far = kept.join();
        so_far.truncate(so_far.len() - kept.begun.len());
        (so_far, self.live.subscribe())
    }

    /// The last part of the output so far, for clients of other nodes.
    pub fn shared(&self) -> SharedOutput {
        let kept = self.lock();
        let (mut bytes, mut end) = kept.last(OUTPUT_SHARED_BYTES_MAX);
        bytes.truncate(bytes.len().saturating_sub(kept.begun.len()));
        end -= kept.begun.len() as u64;
        SharedOutput { attempt: self.attempt, end, bytes }
    }

    /// The whole output, or its head and tail with a line that says how much was dropped.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.lock().join()
    }

    /// Ignores poisoning: a panic can only have lost bytes.
    fn lock(&self) -> MutexGuard<'_, OutputBuffer> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputBuffer {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let last = &rest[rest.len().saturating_sub(TAIL_BYTES)..];
        let over = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
        self.tail.extend(last);
        self.left_out += (rest.len() - last.len() + over) as u64;
    }

    /// The last bytes, and how many were written in all.
    fn last(&self, most: usize) -> (Vec<u8>, u64) {
        let end = (self.head.len() + self.tail.len()) as u64 + self.left_out;
        let of_tail = self.tail.len().min(most);
        let of_head = if self.left_out > 0 { 0 } else { self.head.len().min(most - of_tail) };
        let mut bytes = self.head[self.head.len() - of_head..].to_vec();
        bytes.extend(self.tail.range(self.tail.len() - of_tail..));
        (bytes, end)
    }

    fn join(&self) -> Vec<u8> {
        let mut out = self.head.clone();
        if self.left_out > 0 {
            out.extend_from_slice(format!("\n… {} bytes left out …\n", self.left_out).as_bytes());
        }
        out.extend(&self.tail);
        out
    }
}

/// The number of trailing bytes that are an incomplete UTF-8 character.
fn incomplete_utf8_len(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let needs = match last.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 0,
    };
    if bytes.ends_with(last) && last.len() < needs { last.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> (AttemptOutput, broadcast::Receiver<OutputChunk>) {
        let (live, looks_on) = broadcast::channel(32);
        (AttemptOutput::new(EventId([7; 16]), (1, 1), live), looks_on)
    }

    fn check(total: usize, chunk: usize, left_out: usize) {
        let (output, _looks_on) = output();
        let all: Vec<u8> = (0..total).map(|i| b'a' + u8::try_from(i % 23).unwrap()).collect();
        all.chunks(chunk).for_each(|bytes| output.push(bytes));
        let kept = output.to_bytes();
        if left_out == 0 {
            assert!(kept == all);
        } else {
            let line = format!("\n… {left_out} bytes left out …\n");
            assert!(kept[..HEAD_BYTES] == all[..HEAD_BYTES]);
            assert_eq!(&kept[HEAD_BYTES..HEAD_BYTES + line.len()], line.as_bytes());
            assert!(kept[HEAD_BYTES + line.len()..] == all[total - TAIL_BYTES..]);
        }
    }

    #[test]
    fn the_head_and_the_tail_are_kept_and_the_rest_is_counted() {
        for chunk in [4096, 7001, 3 << 20] {
            check(0, chunk, 0);
            check(OUTPUT_BYTES_MAX, chunk, 0);
            check(OUTPUT_BYTES_MAX + 1, chunk, 1);
            check(3 << 20, chunk, 2 << 20);
        }
    }

    #[test]
    fn who_looks_on_sees_every_chunk_and_nobody_needs_to() {
        let (output, mut looks_on) = output();
        output.push(b"one");
        assert_eq!(looks_on.try_recv().unwrap().bytes, "one");
        drop(looks_on);
        output.push(b" two");
        assert_eq!(output.to_bytes(), b"one two");
    }

    #[test]
    fn the_last_part_is_shared_with_its_position_and_whole_characters() {
        let (output, _looks_on) = output();
        output.push("begin é".as_bytes());
        output.push(&"é".as_bytes()[..1]);
        assert_eq!(output.shared(), SharedOutput { attempt: (1, 1), end: 8, bytes: "begin é".into() });
        for total in [HEAD_BYTES - 3, HEAD_BYTES + 3, OUTPUT_BYTES_MAX + 9] {
            let (output, _looks_on) = super::tests::output();
            let all: Vec<u8> = (0..total).map(|n| b'a' + u8::try_from(n % 26).expect("a letter")).collect();
            output.push(&all);
            let shared = output.shared();
            assert_eq!((shared.end, shared.bytes.len()), (total as u64, OUTPUT_SHARED_BYTES_MAX));
            assert_eq!(shared.bytes, all[total - OUTPUT_SHARED_BYTES_MAX..]);
        }
    }

    #[test]
    fn a_character_that_arrives_in_pieces_is_shown_whole() {
        let (output, mut looks_on) = output();
        let text = "a é → 𝄞 z".as_bytes();
        for byte in text {
            output.push(&[*byte]);
        }
        output.push(b"\xff\xe2");
        output.push(b"no");
        let mut shown = Vec::new();
        while let Ok(chunk) = looks_on.try_recv() {
            shown.push(String::from_utf8_lossy(&chunk.bytes).into_owned());
        }
        assert_eq!(shown, ["a", " ", "é", " ", "→", " ", "𝄞", " ", "z", "\u{fffd}", "\u{fffd}no"]);
        assert_eq!(output.to_bytes(), [text, b"\xff\xe2no"].concat());
    }

    #[test]
    fn who_joins_late_has_every_byte_once() {
        let (output, _looks_on) = output();
        output.push("before é".as_bytes());
        output.push(&"é".as_bytes()[..1]);
        let (so_far, mut from_now) = output.subscribe();
        output.push(&"é".as_bytes()[1..]);
        output.push(b" after");
        let mut all = so_far;
        while let Ok(chunk) = from_now.try_recv() {
            all.extend_from_slice(&chunk.bytes);
        }
        assert_eq!(all, "before éé after".as_bytes());
    }
}
