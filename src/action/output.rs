//! What a command wrote: shown to whoever looks on, and its head and tail kept.

use crate::decide::id::EventId;
use crate::decide::limits::OUTPUT_BYTES_MAX;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

const HEAD_BYTES: usize = OUTPUT_BYTES_MAX / 2;
const TAIL_BYTES: usize = OUTPUT_BYTES_MAX - HEAD_BYTES;

/// A piece of output, as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Whose command wrote it.
    pub event: EventId,
    /// What.
    pub bytes: Bytes,
}

/// The output of one attempt: standard output and standard error, in the order in which they arrived.
#[derive(Debug)]
pub struct Output {
    event: EventId,
    live: broadcast::Sender<Chunk>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Output {
    /// Of this event; what arrives also goes to `live`.
    pub fn new(event: EventId, live: broadcast::Sender<Chunk>) -> Self {
        Self { event, live, kept: Mutex::default() }
    }

    /// Takes what arrived.
    pub fn push(&self, bytes: &[u8]) {
        self.lock().push(bytes);
        if self.live.receiver_count() > 0 {
            // The last one may leave between the question and the sending: then nobody looks on.
            let _ = self.live.send(Chunk { event: self.event, bytes: Bytes::copy_from_slice(bytes) });
        }
    }

    /// All of it, or its head and tail with a line between them that says how much is left out.
    pub fn kept(&self) -> Vec<u8> {
        self.lock().join()
    }

    /// A panic between two bytes leaves nothing worse than fewer bytes.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let last = &rest[rest.len().saturating_sub(TAIL_BYTES)..];
        let over = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
        self.tail.extend(last);
        self.left_out += (rest.len() - last.len() + over) as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> (Output, broadcast::Receiver<Chunk>) {
        let (live, looks_on) = broadcast::channel(8);
        (Output::new(EventId([7; 16]), live), looks_on)
    }

    fn check(total: usize, chunk: usize, left_out: usize) {
        let (output, _looks_on) = output();
        let all: Vec<u8> = (0..total).map(|i| b'a' + u8::try_from(i % 23).unwrap()).collect();
        all.chunks(chunk).for_each(|bytes| output.push(bytes));
        let kept = output.kept();
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
        assert_eq!(output.kept(), b"one two");
    }
}
