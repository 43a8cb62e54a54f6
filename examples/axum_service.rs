//! An axum service that accepts each upload once: a client that retries gets the first response again.
//!
//! ```text
//! cargo run --example axum_service
//! curl -i http://127.0.0.1:3000/ingest -H 'Idempotency-Key: "8e03978e"' -d 'hello'
//! ```
//! The second time the same command shows `idempotent-replayed: true` and the same number.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use hookonce::{Once, days, header};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

async fn ingest(State(uploads): State<Arc<AtomicU64>>, body: String) -> String {
    let number = uploads.fetch_add(1, Ordering::Relaxed) + 1;
    format!("upload {number} has {} bytes\n", body.len())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:3000".into());
    let store = args.next().unwrap_or_else(|| "sqlite:uploads.db".into());

    let once = Once::new(hookonce::store::open(&store).await?)
        .scope("uploads")
        .per(header("idempotency-key"))
        .by(header("authorization"))
        .keep(days(1));
    let app = Router::new().route("/ingest", post(ingest)).layer(once).with_state(Arc::default());

    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
