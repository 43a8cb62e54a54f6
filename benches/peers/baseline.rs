//! The servers that others are compared with: one only reads the body, the other is the smallest that is not careless.
//! It verifies the signature of GitHub, and responds with 202. Neither recognises repeats or records anything.

use crate::bare_handler::bare;
use crate::measure::deck::PATH;
use aws_lc_rs::hmac;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hookonce::internals::ingress::{BodiesInFlight, ConnectionLimits, accept};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The largest body: GitHub's own limit, and that of the other servers here.
const BODY_BYTES_MAX: usize = 25 << 20;
/// The arguments that make this program a baseline.
pub const BARE: &str = "--bare-server";
pub const AXUM: &str = "--axum-server";

/// Serves until it is killed, if the arguments ask for that.
pub fn serve(args: &[String]) -> bool {
    let has = |name: &str| args.iter().any(|arg| arg == name);
    if !has(BARE) && !has(AXUM) {
        return false;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("http://{}/", listener.local_addr().expect("a port has an address"));
        if has(BARE) { serve_bare(listener).await } else { serve_axum(listener).await }
    });
    true
}

/// Our accept loop, and a handler that only reads the body.
async fn serve_bare(listener: TcpListener) {
    let flight = Arc::new(BodiesInFlight::default());
    let handler = move |request| bare(request, flight.clone());
    accept::serve(listener, handler, ConnectionLimits::default(), CancellationToken::new()).await;
}

async fn serve_axum(listener: TcpListener) {
    let secret = std::env::var("SECRET").expect("a secret");
    let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    let app =
        axum::Router::new().route(PATH, post(webhook)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(key);
    axum::serve(listener, app).await.expect("it serves");
}

async fn webhook(State(key): State<Arc<hmac::Key>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let signature = headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok()?.strip_prefix("sha256="));
    let signature = signature.and_then(|digits| hex::decode(digits).ok()).unwrap_or_default();
    match hmac::verify(&key, &body, &signature) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::UNAUTHORIZED,
    }
}
