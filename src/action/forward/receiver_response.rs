//! A receiver's response: its outcome, and what is kept of it.

use crate::action::plan::ReceiverPlan;
use crate::decide::circuit_breaker::ReceiverHealth;
use crate::decide::event::{Outcome, Receipt};
use crate::decide::limits::RECEIPT_BYTES_MAX;
use crate::decide::outcome::kept_headers;
use crate::decide::time::{Duration, duration_text};
use crate::lease::{Lease, LeaseEnd};
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

/// A response, read as far as it is kept.
pub(super) struct ReceiverResponse {
    pub(super) outcome: Outcome,
    /// What it means for the receiver's health.
    pub(super) health: ReceiverHealth,
    /// Why the receipt is incomplete.
    pub(super) cut: Option<ReceiptTruncation>,
}

/// Why a receipt is incomplete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiptTruncation {
    TooLong,
    BrokeOff,
    /// Our own timeout.
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
    let why = format!("the receiver responded with {}", status.as_u16());
    let heard = if status.is_server_error() { ReceiverHealth::Down } else { ReceiverHealth::Up };
    let outcome = match status.as_u16() {
        200..=299 if cut == Some(ReceiptTruncation::TimedOut) => {
            let why = format!("{why}, but the rest did not arrive within {}", duration_text(receiver.timeout));
            Outcome::TimedOut { why, answered: receipt }
        }
        200..=299 => Outcome::Delivered(receipt),
        408 | 425 | 429 | 500..=599 => Outcome::Failed { why, retry_after, receipt },
        300..=499 => Outcome::Rejected { why, receipt },
        _ => Outcome::Unknown { why: format!("{why}, which is not a final status") },
    };
    ReceiverResponse { outcome, health: heard, cut }
}

/// Reads the body. The status is known, so a failure only truncates it.
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

/// Reads up to the limit; returns why the body is incomplete, if it is.
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

/// Parses `Retry-After`: seconds, or a date relative to the receiver's own `Date`, because clocks differ. The maximum
/// is applied elsewhere; a number that overflows is capped.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    if !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(after.parse().unwrap_or(u64::MAX)));
    }
    let date = |text| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let wait = date(after)?.duration_since(date(text(DATE)?)?);
    Some(Duration::try_from(wait).unwrap_or_default())
}
