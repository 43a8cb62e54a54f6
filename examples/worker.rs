//! A worker that does each job once, even if it is restarted or a queue delivers the same job twice.
//!
//! ```text
//! cargo run --example worker
//! ```
//! The second run finds every job done.

use hookonce::{Once, days};
use hookonce::{OnceError, RunOutcome};
use std::fmt;
use std::time::Duration;

/// Jobs as a queue would deliver them: two of them twice.
const JOBS: [&str; 6] = ["invoice-1", "invoice-2", "invoice-1", "invoice-3", "broken", "invoice-3"];

#[derive(Debug)]
struct NoSuchInvoice;

impl fmt::Display for NoSuchInvoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such invoice")
    }
}

async fn send(job: &str) -> Result<String, NoSuchInvoice> {
    tokio::time::sleep(Duration::from_millis(10)).await; // the mail server
    if job == "broken" { Err(NoSuchInvoice) } else { Ok(format!("{job} is sent")) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "sqlite:jobs.db".into());
    let once = Once::new(hookonce::store::open(&store).await?).scope("invoices").keep(days(30));
    for job in JOBS {
        match once.run(job, send(job)).await {
            Ok(RunOutcome::Now(said)) => println!("now: {said}"),
            Ok(RunOutcome::Before(said)) => println!("before: {said}"),
            Err(OnceError::Work(error)) => println!("failed: {error}"),
            Err(other) => println!("later: {other}"),
        }
    }
    Ok(())
}
