//! A handler that takes a delivery in and does nothing with it: what the road itself costs, for the benchmark.

use super::http_response;
use super::request_body::{BodiesInFlight, BodyLimits, read};
use crate::decide::response::HttpResponse;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;

/// Reads the body under the default limits and answers 200.
pub async fn bare(request: Request<Incoming>, flight: Arc<BodiesInFlight>) -> Response<Full<Bytes>> {
    let reply = match read(request.into_body(), BodyLimits::default(), &flight).await {
        Ok(_) => HttpResponse { status: 200, headers: Vec::new(), body: Vec::new(), word: "bare" },
        Err(error) => http_response::no_body(error),
    };
    http_response::response(reply)
}
