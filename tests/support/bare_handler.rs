//! A handler that reads a delivery and does nothing with it, to measure the cost of the connection alone.

use bytes::Bytes;
use hookonce::decide::response::HttpResponse;
use hookonce::internals::ingress::{BodiesInFlight, BodyLimits, http_response, read};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;

/// Reads the body under the default limits and responds with 200.
pub(crate) async fn bare(request: Request<Incoming>, flight: Arc<BodiesInFlight>) -> Response<Full<Bytes>> {
    let reply = match read(request.into_body(), BodyLimits::default(), &flight).await {
        Ok(_) => HttpResponse { status: 200, headers: Vec::new(), body: Vec::new(), word: "bare" },
        Err(error) => http_response::no_body(error),
    };
    http_response::response(reply)
}
