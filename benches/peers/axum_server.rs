//! The smallest server that is not careless: it verifies the signature of GitHub, and responds with 202.
//!
//! It does not recognise repeats, and records nothing.

use crate::measure::deck::PATH;
use aws_lc_rs::hmac;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use std::sync::Arc;

/// The largest body: GitHub's own limit, and that of the other servers here.
const BODY_BYTES_MAX: usize = 25 << 20;

/// Serves until it is killed.
pub fn serve() {
    let secret = std::env::var("SECRET").expect("a secret");
    let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("http://{}/", listener.local_addr().expect("a port has an address"));
        let app =
            axum::Router::new().route(PATH, post(webhook)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(key);
        axum::serve(listener, app).await.expect("it serves");
    });
}

async fn webhook(State(key): State<Arc<hmac::Key>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let signature = headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok()?.strip_prefix("sha256="));
    let signature = signature.and_then(|digits| hex::decode(digits).ok()).unwrap_or_default();
    match hmac::verify(&key, &body, &signature) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::UNAUTHORIZED,
    }
}
