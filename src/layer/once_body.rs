//! Bodies: buffered up to a limit, or streamed.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of requests to the inner service and of the layer's responses: a buffered part, then the rest as a stream.
pub struct OnceBody<B: Body> {
    read: VecDeque<Bytes>,
    rest: RemainingBody<B>,
}

enum RemainingBody<B: Body> {
    Nothing,
    Trailers(HeaderMap),
    Error(B::Error),
    Body(Pin<Box<B>>),
}

impl<B: Body> OnceBody<B> {
    /// Streams a body unchanged.
    pub(super) fn passed(body: B) -> Self {
        Self { read: VecDeque::new(), rest: RemainingBody::Body(Box::pin(body)) }
    }

    /// All of it.
    pub(super) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let read = if data.is_empty() { VecDeque::new() } else { VecDeque::from([data]) };
        Self { read, rest: trailers.map_or(RemainingBody::Nothing, RemainingBody::Trailers) }
    }
}

impl<B: Body> Body for OnceBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(data) = this.read.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let RemainingBody::Body(body) = &mut this.rest {
            let frame = std::task::ready!(body.as_mut().poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(bytes_of))));
        }
        match std::mem::replace(&mut this.rest, RemainingBody::Nothing) {
            RemainingBody::Trailers(trailers) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            RemainingBody::Error(error) => Poll::Ready(Some(Err(error))),
            RemainingBody::Nothing | RemainingBody::Body(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let rest = match &self.rest {
            RemainingBody::Nothing => true,
            RemainingBody::Body(body) => body.is_end_stream(),
            RemainingBody::Trailers(_) | RemainingBody::Error(_) => false,
        };
        rest && self.read.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.iter().map(|data| data.len() as u64).sum();
        let rest = match &self.rest {
            RemainingBody::Body(body) => body.size_hint(),
            RemainingBody::Nothing | RemainingBody::Trailers(_) => SizeHint::with_exact(0),
            RemainingBody::Error(_) => SizeHint::default(),
        };
        let mut hint = SizeHint::default();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

// Nothing in it is structurally pinned: foreign bodies are boxed.
impl<B: Body> Unpin for OnceBody<B> {}

/// The result of reading a body.
pub(super) enum BodyReadResult<B: Body> {
    /// All of it.
    Whole(Bytes, Option<HeaderMap>),
    /// It is larger than the limit: the buffered part, then the rest.
    Longer(OnceBody<B>),
    /// It broke off: the buffered part, then the error.
    Broken(OnceBody<B>),
}

/// Reads a body up to a limit. A body whose declared size exceeds it is not read at all.
pub(super) async fn read<B: Body>(body: B, most: usize) -> BodyReadResult<B> {
    if body.size_hint().lower() > most as u64 {
        return BodyReadResult::Longer(OnceBody::passed(body));
    }
    let mut body = Box::pin(body);
    let (mut read, mut bytes, mut trailers) = (VecDeque::new(), 0, None);
    loop {
        let frame = match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            None => return BodyReadResult::Whole(together(read, bytes), trailers),
            Some(Err(error)) => return BodyReadResult::Broken(OnceBody { read, rest: RemainingBody::Error(error) }),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => {
                let data = bytes_of(data);
                bytes += data.len();
                read.push_back(data);
                if bytes > most {
                    return BodyReadResult::Longer(OnceBody { read, rest: RemainingBody::Body(body) });
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
}

fn together(mut read: VecDeque<Bytes>, bytes: usize) -> Bytes {
    match (read.len(), read.pop_front()) {
        (1, Some(only)) => only,
        (_, first) => {
            let mut all = BytesMut::with_capacity(bytes);
            first.iter().chain(&read).for_each(|data| all.extend_from_slice(data));
            all.freeze()
        }
    }
}

fn bytes_of(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}
