//! What a receiver's answer means, and what is kept of it.

use crate::action::plan::ReceiverPlan;
use crate::decide::circuit_breaker::ReceiverHealth;
use crate::decide::event::{Outcome, Receipt};
use crate::decide::limits::RECEIPT_BYTES_MAX;
use crate::decide::outcome::kept_headers;
use crate::decide::time::Duration;
use crate::decide::time::duration_text;
use crate::lease::{Lease, LeaseEnd};
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

/// An answer, read as far as it is kept.
pub(super) struct ReceiverResponse {
    pub(super) outcome: Outcome,
    /// What it says about the receiver's health.
    pub(super) health: ReceiverHealth,
    /// Why the receipt is not whole.
    pub(super) cut: Option<ReceiptTruncation>,
}

/// Why a receipt is not whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiptTruncation {
    TooLong,
    BrokeOff,
    /// Our own timeout ended the reading.
    TimedOut,
    Over(LeaseEnd),
}

impl ReceiptTruncation {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "it is longer than 1 MiB",
            Self::BrokeOff => "it broke off",
            Self::TimedOut => "it timed out",
            Self::Over(over) => over.why(),
        }
    }
}

/// Reads an answer.
pub(super) async fn read_response(
    response: Response,
    receiver: &ReceiverPlan,
    until: Instant,
    lease: &Lease,
) -> ReceiverResponse {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let (receipt, cut) = receipt(response, &receiver.receipt_headers, until, lease).await;
    let receipt = Some(receipt);
    let why = format!("the receiver answered {}", status.as_u16());
    let heard = if status.is_server_error() { ReceiverHealth::Down } else { ReceiverHealth::Up };
    let outcome = match status.as_u16() {
        200..=299 if cut == Some(ReceiptTruncation::TimedOut) => {
            let why = format!("{why}, and the rest did not come within {}", duration_text(receiver.timeout));
            Outcome::TimedOut { why, answered: receipt }
        }
        200..=299 => Outcome::Delivered(receipt),
        408 | 425 | 429 | 500..=599 => Outcome::Failed { why, retry_after, receipt },
        300..=499 => Outcome::Rejected { why, receipt },
        _ => Outcome::Unknown { why: format!("{why}, which means nothing") },
    };
    ReceiverResponse { outcome, health: heard, cut }
}

/// The status is known by now, so whatever ends the reading only cuts the body.
async fn receipt(
    mut response: Response,
    also: &[String],
    until: Instant,
    lease: &Lease,
) -> (Receipt, Option<ReceiptTruncation>) {
    let headers = kept(response.headers(), also);
    let status = response.status();
    let mut body = Vec::new();
    let reading = timeout_at(until, read(&mut response, &mut body));
    let cut = tokio::select! {
        cut = reading => cut.unwrap_or(Some(ReceiptTruncation::TimedOut)),
        over = lease.ended() => Some(ReceiptTruncation::Over(over)),
    };
    (Receipt { status: StatusCode::as_u16(&status), headers, body, truncated: cut.is_some() }, cut)
}

/// Reads up to the limit; says why it is not all.
async fn read(response: &mut Response, body: &mut Vec<u8>) -> Option<ReceiptTruncation> {
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = RECEIPT_BYTES_MAX - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    return Some(ReceiptTruncation::TooLong);
                }
            }
            Ok(None) => return None,
            Err(_) => return Some(ReceiptTruncation::BrokeOff),
        }
    }
}

fn kept(headers: &HeaderMap, also: &[String]) -> Vec<(String, String)> {
    let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    kept_headers(all, |name| also.iter().any(|also| also == name))
}

/// Seconds, or a date: which counts from the receiver's own `Date`, since our clock may differ. How long at most is not
/// said here; more seconds than can be counted are as many as can be.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    if !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(after.parse().unwrap_or(u64::MAX)));
    }
    let date = |text| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let wait = date(after)?.duration_since(date(text(DATE)?)?);
    Some(Duration::try_from(wait).unwrap_or_default())
}
