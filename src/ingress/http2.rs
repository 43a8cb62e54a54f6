//! A connection of HTTP/2: many requests at once, under the same limits as one of HTTP/1.1.
//!
//! Each request is a task of its own. The connection may have a hundred of them, small windows and short headers, so that it
//! takes about as much memory as one of HTTP/1.1; all requests of a port together are bounded as its connections are.
//! Resets, pings and settings that a client sends to cause work end the connection (h2 counts them).

use super::accept::{ConnectionContext, PeerAddress};
use super::conn_timeout::{ConnTimeoutTracker, InFlightRequest, ResponseDeadline, StreamPermit};
use super::timed_stream::TimedStream;
use crate::decide::limits;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

/// Serves a connection until it ends, is idle for too long, or is drained.
pub(super) async fn serve_streams<H, F, B>(
    socket: TimedStream,
    context: ConnectionContext,
    handler: H,
    tasks: TaskTracker,
) where
    H: Fn(Request<Incoming>, PeerAddress) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let ConnectionContext { watch, peer, limits, drain } = context;
    watch.multiplex();
    let service = service_fn(|mut request: Request<Incoming>| {
        let admission = admit(&watch, &request, limits.headers);
        let response = admission.is_ok().then(|| {
            name_host(&mut request);
            handler(request, PeerAddress(peer))
        });
        let watch = watch.clone();
        async move {
            let (response, guard) = match (response, admission) {
                (Some(response), Ok(guard)) => (response.await.map(Some), Some(guard)),
                (_, admission) => (refusal(admission.err()), None),
            };
            let deadline = watch.track_response();
            Ok::<_, Infallible>(response.map(|body| StreamBody { body, deadline, _guard: guard }))
        }
    });
    let mut connection = pin!(builder(tasks).serve_connection(TokioIo::new(socket), service));
    let mut overdue = pin!(watch.overdue());
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            // A client that disconnects or breaks the protocol is not our error.
            _ = connection.as_mut() => return,
            () = watch.closed() => break,
            () = overdue.as_mut() => break,
            () = watch.changed() => {}
            () = drain.cancelled(), if !draining => {
                draining = true;
                watch.end_by(Instant::now() + limits.drain_time);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    // A request that is on its way is not lost: the client is told that it was not begun.
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits::HTTP2_GOODBYE_TIME, connection).await;
}

fn builder(tasks: TaskTracker) -> http2::Builder<StreamTasks> {
    let mut builder = http2::Builder::new(StreamTasks(tasks));
    builder
        .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
        .max_header_list_size(limits::HTTP2_HEADER_BYTES_MAX)
        .initial_stream_window_size(limits::HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(limits::HTTP2_WINDOW_BYTES)
        .max_send_buf_size(limits::HTTP2_SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(limits::HTTP2_RESETS_MAX)
        .max_local_error_reset_streams(limits::HTTP2_ERRORS_MAX);
    builder
}

/// A request in progress, and its permit.
type StreamGuard = (InFlightRequest, StreamPermit);

/// Admits a request, or says with which status it is refused.
fn admit<T>(watch: &ConnTimeoutTracker, request: &Request<T>, headers_max: usize) -> Result<StreamGuard, StatusCode> {
    let permit = watch.begin_stream().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    if request.headers().len() > headers_max {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    Ok((watch.busy(), permit))
}

fn refusal<B>(status: Option<StatusCode>) -> Response<Option<B>> {
    let mut response = Response::new(None);
    *response.status_mut() = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

/// Names the host as HTTP/1.1 does. What decides by it must not see another one beside it.
fn name_host<T>(request: &mut Request<T>) {
    let authority = request.uri().authority().and_then(|authority| HeaderValue::try_from(authority.as_str()).ok());
    if let Some(authority) = authority {
        request.headers_mut().insert(header::HOST, authority);
    }
}

/// Runs the requests of a connection as tasks that a drain waits for.
#[derive(Clone)]
struct StreamTasks(TaskTracker);

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}

/// The body of a response; its request is in progress until it is dropped. `None`: an empty one.
struct StreamBody<B> {
    body: Option<B>,
    deadline: ResponseDeadline,
    _guard: Option<StreamGuard>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for StreamBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                self.deadline.waits_for_client(frame.data_ref().map_or(0, Bytes::len));
            }
            Poll::Ready(_) | Poll::Pending => self.deadline.waits_for_us(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
