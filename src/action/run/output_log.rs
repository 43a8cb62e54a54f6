//! A command's output as lines of the node's log, for `log_output = true`.
//!
//! Lines are logged when they are complete, the last one of a step also without a newline. Limits apply to the length
//! of a line, the lines per second of a block, and the share of the log's queue. A command never waits for the log;
//! dropped lines are counted, and the count is logged.

use crate::decide::event::Event;
use crate::decide::id::EventId;
use crate::decide::limits::LOGGED_LINE_BYTES_MAX;
use crate::observe::log::TokenBucket;
use crate::observe::log_layer::{self, OUTPUT_TARGET};
use std::sync::Arc;
use std::time::Instant;
use tracing::info;

/// The lines that one block of one attempt writes to the log.
pub(super) struct OutputLog {
    event: EventId,
    source: Arc<str>,
    lines: LineBuffer,
    bucket: TokenBucket,
    dropped: u64,
}

impl OutputLog {
    pub(super) fn new(event: &Event) -> Self {
        Self {
            event: event.id,
            source: event.source.clone(),
            lines: LineBuffer::default(),
            bucket: TokenBucket::full(now()),
            dropped: 0,
        }
    }

    /// Logs the lines that these bytes complete.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut complete = Vec::new();
        self.lines.push(bytes, &mut complete);
        for line in complete {
            self.log(&line);
        }
    }

    /// Logs the rest when a step ends: a line without a newline, and the number of dropped lines.
    pub(super) fn end_step(&mut self) {
        if let Some(line) = self.lines.rest() {
            self.log(&line);
        }
        self.log_dropped();
    }

    fn log(&mut self, line: &str) {
        if !self.bucket.take(now()) {
            self.dropped += 1;
            return;
        }
        self.log_dropped();
        if self.dropped > 0 || !log_layer::has_room_for_output() {
            self.dropped += 1;
            return;
        }
        info!(target: OUTPUT_TARGET, event = %self.event, source = &*self.source, line, "output");
    }

    fn log_dropped(&mut self) {
        if self.dropped > 0 && log_layer::has_room_for_output() {
            let dropped = format_args!("{} lines", self.dropped);
            info!(target: OUTPUT_TARGET, event = %self.event, source = &*self.source, %dropped, "output");
            self.dropped = 0;
        }
    }
}

impl Drop for OutputLog {
    /// Logs the last count if the attempt is dropped in the middle of a step, outside of the queue's share for output.
    fn drop(&mut self) {
        self.end_step();
        if self.dropped > 0 {
            let dropped = format_args!("{} lines", self.dropped);
            info!(target: "hookonce", event = %self.event, source = &*self.source, %dropped, "output");
        }
    }
}

/// Splits bytes into lines.
#[derive(Default)]
struct LineBuffer {
    line: Vec<u8>,
    /// The number of bytes of the line that did not fit.
    left_out: usize,
}

impl LineBuffer {
    fn push(&mut self, bytes: &[u8], complete: &mut Vec<String>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            let room = LOGGED_LINE_BYTES_MAX - self.line.len();
            let (fits, over) = text.split_at(text.len().min(room));
            self.line.extend_from_slice(fits);
            self.left_out += over.len();
            if text.len() < piece.len() {
                complete.push(self.take());
            }
        }
    }

    /// The last line, if it has no newline.
    fn rest(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
        match std::mem::take(&mut self.left_out) {
            0 => line,
            left_out => {
                let end = format!(" … {left_out} bytes left out");
                let room = LOGGED_LINE_BYTES_MAX - end.len();
                let cut = (0..=room.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
                format!("{}{end}", &line[..cut])
            }
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&[u8]], lines: &[&str], rest: Option<&str>) {
        let (mut buffer, mut complete) = (LineBuffer::default(), Vec::new());
        for piece in pieces {
            buffer.push(piece, &mut complete);
        }
        assert_eq!((complete, buffer.rest().as_deref()), (lines.iter().map(ToString::to_string).collect(), rest));
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        check(&[b"one\ntwo\n"], &["one", "two"], None);
        check(&[b"o", b"ne", b"\n", b"two"], &["one"], Some("two"));
        check(&["é".as_bytes().split_at(1).0, "é".as_bytes().split_at(1).1, b"\n"], &["é"], None);
        check(&[b"a\r\n\nb"], &["a", ""], Some("b"));
        check(&[b"\xff\n"], &["\u{fffd}"], None);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_says_so() {
        let (mut buffer, mut complete) = (LineBuffer::default(), Vec::new());
        for _ in 0..3 {
            buffer.push(&vec![b'x'; LOGGED_LINE_BYTES_MAX], &mut complete);
        }
        buffer.push(b"\nnext\n", &mut complete);
        assert_eq!(complete.len(), 2);
        let end = format!("x … {} bytes left out", 2 * LOGGED_LINE_BYTES_MAX);
        assert!(complete[0].ends_with(&end) && complete[0].len() <= LOGGED_LINE_BYTES_MAX, "{}", complete[0].len());
        assert_eq!(complete[1], "next");
    }
}
