//! Catching up with a sender that does not redeliver by itself: which of its deliveries were missed, and what is asked of
//! its API next.
//!
//! ```text
//! due ─▶ listing ─ newest to oldest, back to the last complete catch-up ─▶ asking ─ oldest first ─▶ complete
//!          │ a page at a time                                               │ a delivery at a time
//!          └───────────── not before: rate limits, failures, pauses ────────┘
//! ```
//!
//! The state is a value that is kept in the store after each request, so that a restart or another node continues where
//! it stopped. What is asked for again arrives as any delivery does; nothing here makes an event.

mod listed_attempt;
mod missed_deliveries;
#[cfg(test)]
mod tests;

pub use listed_attempt::{DeliveryMark, ListedAttempt};
pub use missed_deliveries::{MissedDeliveries, MissedDelivery};

use super::limits::{
    CATCH_UP_ASKS_MAX, CATCH_UP_FOLLOW_UP, CATCH_UP_LEASE, CATCH_UP_PAGES_MAX, CATCH_UP_REMEMBERED_MAX,
    CATCH_UP_WAIT_FIRST, CATCH_UP_WAIT_LONGEST, RETRY_AFTER_MAX,
};
use super::retry::Jitter;
use super::time::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_hours(1);
/// A sender that asks for no wait after a failure gets this one.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// How a source is caught up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUpPolicy {
    /// How often, unless something happens.
    pub every: Duration,
    /// How far back at most: as long as the sender keeps its deliveries.
    pub back: Duration,
    /// Maximum number of requests in one hour.
    pub requests_per_hour: u32,
    /// The pause after each delivery that was asked for.
    pub pause: Duration,
}

/// A page of the sender's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedPage {
    /// The attempts, the newest first.
    pub attempts: Vec<ListedAttempt>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<String>,
    /// The version of the page, for a conditional request.
    pub etag: Option<String>,
}

/// The result of one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatchUpResult {
    /// A page of the list.
    Listed(ListedPage),
    /// The list is as it was when the last catch-up began.
    Unchanged,
    /// The sender delivers it again.
    Asked,
    /// The sender does not deliver this one again.
    NotAgain,
    /// The store has it; nothing was asked.
    Had,
    /// The sender no longer knows the position in its list.
    PositionLost,
    /// The request failed, or there were too many.
    Failed {
        /// How long the sender asked to wait.
        retry_after: Option<Duration>,
    },
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatchUpStep {
    /// Nothing until then.
    Wait(Timestamp),
    /// Read a page of the list.
    List {
        /// Where it begins.
        cursor: Option<String>,
        /// The version that is known.
        etag: Option<String>,
    },
    /// Ask for this delivery, unless the store has it.
    Redeliver(MissedDelivery),
}

/// How far the catch-up of a source is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CatchUpState {
    /// The node that alone may go on.
    lease: Option<CatchUpLease>,
    /// When a node last started, or got over an outage.
    requested_at: Option<Timestamp>,
    /// When it is due by the schedule.
    next_at: Option<Timestamp>,
    /// No request before this time.
    not_before: Option<Timestamp>,
    /// Requests in a row that failed.
    failures: u32,
    /// When the current hour began, and the requests in it.
    hour: Option<(Timestamp, u32)>,
    /// The newest attempt that the last complete catch-up has seen.
    complete: Option<DeliveryMark>,
    /// The version of the list's first page at that time.
    etag: Option<String>,
    /// How often deliveries were asked for of which it is not known that they arrived.
    asks: Vec<PastRequest>,
    run: Option<CatchUpRun>,
    last: Option<CatchUpSummary>,
}

/// The right of one node to go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct CatchUpLease {
    node: String,
    until: Timestamp,
}

/// Earlier requests for one delivery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct PastRequest {
    delivery: String,
    /// The attempt that was asked for last; the one that follows has a higher id.
    attempt: u64,
    times: u32,
    at: Timestamp,
}

impl PastRequest {
    /// Whether a listed attempt is no reason to ask again: its delivery is on its way, or fails each time.
    fn covers(&self, attempt: &ListedAttempt, now: Timestamp) -> bool {
        let is_on_its_way = attempt.id <= self.attempt && now.since(self.at) < CATCH_UP_FOLLOW_UP;
        self.delivery == attempt.delivery && (is_on_its_way || self.times >= CATCH_UP_ASKS_MAX)
    }
}

/// A catch-up that is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct CatchUpRun {
    began_at: Timestamp,
    cause: CatchUpCause,
    newest: Option<DeliveryMark>,
    etag: Option<String>,
    pages: u32,
    counts: CatchUpCounts,
    phase: CatchUpPhase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CatchUpCause {
    Schedule,
    /// A node started, or got over an outage.
    Outage,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CatchUpPhase {
    Listing {
        cursor: Option<String>,
        found: MissedDeliveries,
    },
    Asking {
        /// The oldest is at the end.
        left: Vec<MissedDelivery>,
        cut: Option<DeliveryMark>,
    },
}

/// What a catch-up has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CatchUpCounts {
    /// Attempts that were listed.
    pub listed: u64,
    /// Deliveries that were asked for.
    pub asked: u64,
    /// Deliveries that had failed by the list, but that the store has.
    pub had: u64,
    /// Deliveries that are no longer asked for, as long as the sender may keep them: it refuses, or they failed again
    /// each time.
    pub given_up: u64,
}

/// The last catch-up that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CatchUpSummary {
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What it has done.
    pub counts: CatchUpCounts,
}

impl CatchUpState {
    /// The state that was kept; a new one if there is none, or if it cannot be read.
    pub fn read(text: Option<&str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The text that is kept.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a state has only members that JSON can hold")
    }

    /// The last catch-up that ended.
    pub fn last(&self) -> Option<&CatchUpSummary> {
        self.last.as_ref()
    }

    /// Whether the last catch-up left some for the next one, or another was asked for.
    pub fn has_more(&self) -> bool {
        self.run.is_none() && self.requested_at.is_some()
    }

    /// Whether this node may go on alone.
    pub fn is_held_by(&self, node: &str, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.node == node && lease.until > now)
    }

    /// The same state once a node has started or got over an outage: it is due at once.
    #[must_use]
    pub fn requested(self, now: Timestamp) -> Self {
        Self { requested_at: Some(now), ..self }
    }

    /// The same state without the lease of a node that is known to be gone.
    #[must_use]
    pub fn released(self) -> Self {
        Self { lease: None, ..self }
    }

    /// The same state, in which this node goes on alone.
    #[must_use]
    pub fn taken_by(mut self, node: &str, now: Timestamp) -> Self {
        let cause = if self.requested_at.is_some() { CatchUpCause::Outage } else { CatchUpCause::Schedule };
        self.run.get_or_insert_with(|| CatchUpRun {
            began_at: now,
            cause,
            newest: None,
            etag: None,
            pages: 0,
            counts: CatchUpCounts::default(),
            phase: CatchUpPhase::Listing { cursor: None, found: MissedDeliveries::default() },
        });
        self.lease = Some(CatchUpLease { node: node.to_owned(), until: now });
        self.renewed(now)
    }

    fn renewed(mut self, now: Timestamp) -> Self {
        if let Some(lease) = &mut self.lease {
            lease.until = now.max(self.not_before.unwrap_or(now)) + CATCH_UP_LEASE;
        }
        self
    }

    /// What this node is to do now.
    pub fn next_step(&self, policy: &CatchUpPolicy, node: &str, now: Timestamp) -> CatchUpStep {
        let others = self.lease.as_ref().filter(|lease| lease.node != node).map(|lease| lease.until);
        let due = match (&self.run, self.requested_at) {
            (None, None) => self.next_at,
            (Some(_), _) | (None, Some(_)) => None,
        };
        let rate = self.hour.filter(|(_, count)| *count >= policy.requests_per_hour).map(|(since, _)| since + HOUR);
        let latest = [others, due, rate, self.not_before].into_iter().flatten().max();
        if let Some(until) = latest.filter(|until| *until > now) {
            return CatchUpStep::Wait(until);
        }
        match self.run.as_ref().map(|run| (&run.phase, run.pages)) {
            None | Some((CatchUpPhase::Listing { cursor: None, .. }, 0)) => {
                CatchUpStep::List { cursor: None, etag: self.etag.clone() }
            }
            Some((CatchUpPhase::Listing { cursor, .. }, _)) => CatchUpStep::List { cursor: cursor.clone(), etag: None },
            Some((CatchUpPhase::Asking { left, .. }, _)) => match left.last() {
                Some(oldest) => CatchUpStep::Redeliver(oldest.clone()),
                None => CatchUpStep::Wait(now),
            },
        }
    }

    /// The state after a step. `matters` says whether a route could want a listed delivery.
    #[must_use]
    pub fn after(
        mut self,
        policy: &CatchUpPolicy,
        result: CatchUpResult,
        matters: impl Fn(&ListedAttempt) -> bool,
        now: Timestamp,
        jitter: Jitter,
    ) -> Self {
        if result != CatchUpResult::Had {
            self.count_request(now);
        }
        self.failures = match result {
            CatchUpResult::Failed { .. } | CatchUpResult::PositionLost => self.failures.saturating_add(1),
            _ => 0,
        };
        match result {
            CatchUpResult::Listed(page) => self.add_page(policy, page, matters, now),
            CatchUpResult::Unchanged => self.finish(policy, None, now),
            CatchUpResult::Asked | CatchUpResult::NotAgain | CatchUpResult::Had => self.settle(policy, &result, now),
            CatchUpResult::PositionLost => {
                if let Some(CatchUpRun { phase: CatchUpPhase::Listing { cursor, .. }, pages, .. }) = &mut self.run {
                    (*cursor, *pages) = (None, (*pages).max(1));
                }
                self.wait_after_failure(None, now, jitter);
            }
            CatchUpResult::Failed { retry_after } => self.wait_after_failure(retry_after, now, jitter),
        }
        self.renewed(now)
    }

    fn count_request(&mut self, now: Timestamp) {
        let (since, count) = self.hour.filter(|(since, _)| now.since(*since) < HOUR).unwrap_or((now, 0));
        self.hour = Some((since, count + 1));
    }

    fn wait_after_failure(&mut self, retry_after: Option<Duration>, now: Timestamp, jitter: Jitter) {
        let doubled = CATCH_UP_WAIT_FIRST.saturating_mul(2_u32.saturating_pow(self.failures.saturating_sub(1)));
        let wait = doubled.min(CATCH_UP_WAIT_LONGEST);
        let wait = wait + jitter.share(wait / 10);
        self.not_before = Some(now + retry_after.map_or(wait, |asked| asked.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)));
    }

    /// Takes a page of the list; at its end the deliveries are known that are asked for.
    fn add_page(
        &mut self,
        policy: &CatchUpPolicy,
        page: ListedPage,
        matters: impl Fn(&ListedAttempt) -> bool,
        now: Timestamp,
    ) {
        let (complete, asks) = (self.complete, &self.asks);
        let was_asked = |attempt: &ListedAttempt| asks.iter().any(|past| past.covers(attempt, now));
        let is_old = |attempt: &ListedAttempt| {
            complete.is_some_and(|mark| attempt.is_behind(mark)) || attempt.at.is_some_and(|at| at < now - policy.back)
        };
        let Some(run) = &mut self.run else { return };
        let CatchUpPhase::Listing { cursor, found } = &mut run.phase else { return };
        if run.pages == 0 {
            run.etag = page.etag;
        }
        run.newest = page.attempts.iter().map(ListedAttempt::mark).chain(run.newest).max();
        run.pages += 1;
        for attempt in page.attempts.iter().filter(|attempt| !is_old(attempt)) {
            run.counts.listed += 1;
            if matters(attempt) && (attempt.is_accepted || !was_asked(attempt)) {
                found.add(attempt);
            }
        }
        let more = page.next.filter(|_| !page.attempts.iter().any(is_old) && run.pages < CATCH_UP_PAGES_MAX);
        if more.is_some() {
            *cursor = more;
            return;
        }
        let delivered = found.delivered();
        self.asks.retain(|past| !delivered.contains(&past.delivery) && now.since(past.at) < policy.back);
        let (left, cut) = std::mem::take(found).into_newest_first();
        if left.is_empty() {
            return self.finish(policy, cut, now);
        }
        run.phase = CatchUpPhase::Asking { left, cut };
    }

    /// Goes on to the next delivery.
    fn settle(&mut self, policy: &CatchUpPolicy, result: &CatchUpResult, now: Timestamp) {
        let Some(run) = &mut self.run else { return };
        let CatchUpPhase::Asking { left, cut } = &mut run.phase else { return };
        let Some(missed) = left.pop() else { return };
        let (over, cut) = (left.is_empty(), *cut);
        match result {
            CatchUpResult::Had => run.counts.had += 1,
            CatchUpResult::NotAgain => self.remember(missed, CATCH_UP_ASKS_MAX, now),
            _ => {
                run.counts.asked += 1;
                self.remember(missed, 1, now);
                self.not_before = Some(now + policy.pause);
            }
        }
        if over {
            self.finish(policy, cut, now);
        }
    }

    fn remember(&mut self, missed: MissedDelivery, times: u32, now: Timestamp) {
        let MissedDelivery { delivery, attempt, .. } = missed;
        if let Some(past) = self.asks.iter_mut().find(|past| past.delivery == delivery) {
            (past.attempt, past.times, past.at) = (attempt, past.times.saturating_add(times), now);
            return;
        }
        if self.asks.len() >= CATCH_UP_REMEMBERED_MAX {
            self.asks.remove(0);
        }
        self.asks.push(PastRequest { delivery, attempt, times, at: now });
    }

    /// Ends the run. If there were too many deliveries, the next one goes on at once.
    fn finish(&mut self, policy: &CatchUpPolicy, cut: Option<DeliveryMark>, now: Timestamp) {
        let Some(mut run) = self.run.take() else { return };
        let given_up = self.asks.iter().filter(|past| past.times >= CATCH_UP_ASKS_MAX).count();
        run.counts.given_up = given_up as u64;
        self.lease = None;
        self.complete = cut.or(run.newest).or(self.complete);
        if cut.is_some() {
            self.etag = None;
        } else if run.pages > 0 {
            self.etag = run.etag;
        }
        self.last = Some(CatchUpSummary { began_at: run.began_at, ended_at: now, counts: run.counts });
        self.requested_at = match cut {
            Some(_) => Some(now),
            None => self.requested_at.filter(|at| *at > run.began_at),
        };
        let wait = match run.cause {
            CatchUpCause::Schedule => policy.every,
            CatchUpCause::Outage => policy.every.min(CATCH_UP_FOLLOW_UP),
        };
        self.next_at = Some(run.began_at + wait);
    }
}
