//! What is wrong with the store, or with another server. While it is away every delivery and every look has the same to
//! tell: a sentence is said at once, and after that now and then, with how often it came.

use super::{LogLevel, log};
use crate::decide::time::Duration;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// For how long the same sentence is not said again.
const HELD: Duration = Duration::from_secs(10);
/// Sentences that are told apart; the one that was said longest ago makes room for the next.
const SENTENCES_MAX: usize = 16;

static SAID: Mutex<LogRateLimiter> = Mutex::new(LogRateLimiter(Vec::new()));

/// Says why the store did not do what it was asked.
pub fn log_store_error(level: LogLevel, why: &str, more: &[(&str, &str)]) {
    log_rate_limited(level, "store", why, &[&[("why", why)], more].concat());
}

/// Says one word with its details; what is `same` as before only now and then.
pub fn log_rate_limited(level: LogLevel, word: &str, same: &str, details: &[(&str, &str)]) {
    let sentence = format!("{word} {same}");
    let times = SAID.lock().unwrap_or_else(PoisonError::into_inner).should_log(&sentence, Instant::now());
    let Some(times) = times else { return };
    let count = times.to_string();
    let counted: &[(&str, &str)] = if times > 1 { &[("times", &count)] } else { &[] };
    log(level, word, &[details, counted].concat());
}

/// What was said, and when; how often it came since.
struct LogRateLimiter(Vec<(String, Instant, u64)>);

impl LogRateLimiter {
    /// How often this came since it was last said, with this time; `None`: it is not to be said now.
    fn should_log(&mut self, why: &str, now: Instant) -> Option<u64> {
        if let Some((_, at, since)) = self.0.iter_mut().find(|(said, ..)| said == why) {
            *since += 1;
            if now.saturating_duration_since(*at) < HELD {
                return None;
            }
            *at = now;
            return Some(std::mem::take(since));
        }
        if self.0.len() == SENTENCES_MAX {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, (_, at, _))| *at).map(|(place, _)| place);
            oldest.map(|place| self.0.swap_remove(place));
        }
        self.0.push((why.to_owned(), now, 0));
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_said_at_once_and_then_now_and_then_with_how_often_it_came() {
        let (mut said, begun) = (LogRateLimiter(Vec::new()), Instant::now());
        assert_eq!(said.should_log("away", begun), Some(1));
        assert!((0..5_000).all(|n| said.should_log("away", begun + Duration::from_millis(n)).is_none()));
        assert_eq!(said.should_log("full", begun + Duration::from_secs(6)), Some(1), "another is not held back");
        assert_eq!(said.should_log("away", begun + HELD), Some(5_001));
        assert_eq!(said.should_log("away", begun + HELD + HELD), Some(1));
    }

    #[test]
    fn so_many_sentences_are_kept_and_no_more() {
        let (mut said, begun) = (LogRateLimiter(Vec::new()), Instant::now());
        for n in 0..1_000 {
            assert_eq!(said.should_log(&n.to_string(), begun + Duration::from_millis(n)), Some(1));
        }
        assert_eq!(said.0.len(), SENTENCES_MAX);
    }
}
