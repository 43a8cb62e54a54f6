//! The socket of a connection, with or without TLS: reports its reads and writes to the deadlines (`conn_timeout.rs`).
//!
//! What is read counts as it leaves TLS, because it is what requests are made of; what is written counts as it leaves the
//! machine.

use super::conn_timeout::ConnTimeoutTracker;
use crate::decide::limits;
use bytes::{Buf as _, Bytes};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Bytes discarded at a time while lingering.
const LINGER_BYTES: usize = 8 << 10;

/// Bytes read from a socket at a time. hyper doubles the buffer of a connection that fills it, up to the maximum size
/// of headers, and keeps it: a buffer that is never filled does not grow.
const READ_BYTES: usize = (8 << 10) - 1;

/// A head that is arriving grows by this much at a time, never to twice its size.
const HEAD_GROWTH: usize = 512;

/// A TCP socket that reports its writes to the deadlines. Under TLS it sees what really leaves.
pub(super) struct TimedSocket {
    stream: TcpStream,
    watch: ConnTimeoutTracker,
}

impl TimedSocket {
    pub(super) fn new(stream: TcpStream, watch: ConnTimeoutTracker) -> Self {
        Self { stream, watch }
    }

    /// Whether the client begins with a letter, as HTTP does and TLS never. Reads nothing.
    pub(super) async fn begins_as_http(&self) -> bool {
        let mut first = [0];
        matches!(self.stream.peek(&mut first).await, Ok(1) if first[0].is_ascii_uppercase())
    }
}

impl AsyncRead for TimedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for TimedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch.on_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch.on_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What the bytes of a connection go through.
pub(super) enum Transport {
    /// Nothing.
    Plain(TimedSocket),
    /// TLS.
    Tls(Box<TlsStream<TimedSocket>>),
}

macro_rules! over {
    ($transport:expr, $stream:ident => $call:expr) => {
        match $transport {
            Transport::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

/// A connection that reports the bytes of its requests to the deadlines.
pub(super) struct TimedStream {
    stream: Transport,
    /// Bytes of the next request that hyper has not read yet.
    unread: Bytes,
    watch: ConnTimeoutTracker,
    closing: LingerState,
}

/// Whether a socket that is shut down still reads and discards what its peer sends.
#[derive(Clone, Copy)]
enum LingerState {
    NotYet,
    Lingering,
}

impl TimedStream {
    pub(super) fn new(stream: Transport, watch: ConnTimeoutTracker) -> Self {
        Self { stream, unread: Bytes::new(), watch, closing: LingerState::NotYet }
    }

    /// The same socket with bytes that were read and not parsed yet. They are copied: a slice would keep the whole
    /// buffer alive.
    pub(super) fn with_unread(self, unread: &[u8]) -> Self {
        if !unread.is_empty() {
            self.watch.on_read(unread.len());
        }
        Self { unread: Bytes::copy_from_slice(unread), ..self }
    }

    /// Reads until hyper is needed. Until then an unfinished head takes only as much memory as was sent of it; hyper
    /// would allocate two buffers of 8 KiB for its first byte.
    pub(super) async fn read_head(&mut self) -> io::Result<()> {
        let longest = self.watch.limits().header_bytes.min(limits::SMALL_HEAD_BYTES_MAX);
        let mut head = Vec::from(std::mem::take(&mut self.unread));
        let mut looked = 0;
        while head.len() < longest && !is_whole(&head, looked) {
            looked = head.len();
            match poll_fn(|cx| self.poll_read_some(cx, &mut head)).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.watch.on_read(bytes),
            }
        }
        self.unread = head.into();
        Ok(())
    }

    /// Reads into a buffer that takes no memory while nothing comes.
    fn poll_read_some(&mut self, cx: &mut Context<'_>, head: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let mut some = [0; READ_BYTES];
        let mut into = ReadBuf::new(&mut some);
        ready!(over!(&mut self.stream, stream => stream.poll_read(cx, &mut into)))?;
        let read = into.filled();
        if head.capacity() - head.len() < read.len() {
            head.reserve_exact(read.len().max(HEAD_GROWTH));
        }
        head.extend_from_slice(read);
        Poll::Ready(Ok(read.len()))
    }
}

/// Whether a head is complete. Its first `looked` bytes were checked before. What cannot become a head, such as the
/// first bytes of TLS, counts as complete, so that hyper refuses it.
fn is_whole(head: &[u8], looked: usize) -> bool {
    let Some(start) = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) else { return false };
    // An end may have begun in the bytes checked before.
    let new = &head[looked.saturating_sub(2).max(start)..];
    let ends = |end: &[u8]| new.windows(end.len()).any(|bytes| bytes == end);
    !head[start].is_ascii_graphic() || ends(b"\n\r\n") || ends(b"\n\n")
}

impl AsyncRead for TimedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.watch.is_closed() {
            return Poll::Ready(Ok(())); // EOF: a request that comes now is not begun
        }
        if !self.unread.is_empty() {
            let some = self.unread.len().min(into.remaining()).min(READ_BYTES);
            into.put_slice(&self.unread[..some]);
            self.unread.advance(some);
            return Poll::Ready(Ok(()));
        }
        let most = into.remaining().min(READ_BYTES);
        let mut some = ReadBuf::new(into.initialize_unfilled_to(most));
        let read = over!(&mut self.stream, stream => stream.poll_read(cx, &mut some));
        let filled = some.filled().len();
        if filled > 0 {
            into.advance(filled);
            self.watch.on_read(filled);
        }
        read
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        over!(&mut self.stream, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        over!(&mut self.stream, stream => stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    /// hyper flushes when it has nothing more to write. Under TLS some of it may still have to leave.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(over!(&mut self.stream, stream => stream.poll_flush(cx)));
        self.watch.flushed();
        Poll::Ready(flushed)
    }

    /// Shuts down our side, then reads until the peer has closed its own: a socket that is closed with unread bytes is
    /// reset, and the reset destroys our response before the peer has read it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let LingerState::NotYet = self.closing {
            ready!(over!(&mut self.stream, stream => stream.poll_shutdown(cx)))?;
            if !self.watch.starts_to_linger() {
                return Poll::Ready(Ok(()));
            }
            self.closing = LingerState::Lingering;
        }
        let mut scrap = [0; LINGER_BYTES];
        loop {
            let mut into = ReadBuf::new(&mut scrap);
            let read = ready!(over!(&mut self.stream, stream => stream.poll_read(cx, &mut into)));
            if read.is_err() || into.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_complete_at_its_empty_line_and_what_cannot_become_one_at_once() {
        for (head, expected) in [
            ("", false),
            ("\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nhost: t\r\n", false),
            ("GET / HTTP/1.1\r\nhost: t\r\n\r", false),
            ("GET / HTTP/1.1\r\nhost: t\r\n\r\n", true),
            ("\r\nGET / HTTP/1.1\r\n\r\nbody", true),
            ("GET / HTTP/1.1\nhost: t\n\n", true),
            ("\u{16}\u{3}\u{1}", true),
            ("\r\n\0", true),
        ] {
            for looked in 0..head.len().max(1) {
                let before = is_whole(&head.as_bytes()[..looked], 0);
                assert_eq!(before || is_whole(head.as_bytes(), looked), expected, "{head:?} from {looked}");
            }
        }
    }
}
