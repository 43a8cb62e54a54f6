//! The lease of an attempt, as an action sees it: a deadline that the dispatcher extends with each renewal, and that
//! ends the action when it passes.
//!
//! Uses a clock that includes suspend: a machine that slept through its lease must not continue.

pub(crate) mod renewal;

use crate::decide::time::Duration;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// Maximum sleep between two reads of the clock: timers stop during suspend.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// Maximum margin; see [`margin`].
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// A point in time: the duration since boot, suspend included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BootInstant(pub Duration);

/// Now.
pub fn boottime() -> BootInstant {
    let now = clock_gettime(ClockId::Boottime);
    BootInstant(Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0)))
}

impl BootInstant {
    /// The time until this point; zero if it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(boottime().0)
    }

    /// Whether this point has passed.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

/// How long before a lease's end its action is ended: time to kill a command, and for delays.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 5).min(MARGIN_MAX)
}

/// When the work under a lease must have ended: counted from before the write was sent, never from the response.
pub(crate) fn deadline(sent: BootInstant, lease: Duration) -> BootInstant {
    sent + lease.saturating_sub(margin(lease))
}

/// A deadline that can be extended until it passes or is cancelled.
#[derive(Debug)]
pub struct Lease {
    term: watch::Sender<LeaseTerm>,
}

/// The current state of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerm {
    /// When the action must have ended: the lease's end, less the margin.
    pub deadline: BootInstant,
    /// Whether it was cancelled.
    pub call: LeaseSignal,
}

/// Whether an action may continue until its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseSignal {
    /// It may continue.
    GoOn,
    /// The lease was lost, or the node stops.
    Stop,
    /// An operator cancelled the event.
    CallOff,
}

/// Why a lease is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseEnd {
    /// It was cancelled.
    Cancelled,
    /// It was not renewed in time.
    RanOut,
}

impl LeaseEnd {
    /// The reason in words.
    pub fn why(self) -> &'static str {
        match self {
            Self::Cancelled => "the attempt was cancelled",
            Self::RanOut => "the lease ended",
        }
    }
}

impl LeaseTerm {
    /// Why it is over, if it is.
    pub fn over(self) -> Option<LeaseEnd> {
        match self.call {
            LeaseSignal::Stop | LeaseSignal::CallOff => Some(LeaseEnd::Cancelled),
            LeaseSignal::GoOn => self.deadline.passed().then_some(LeaseEnd::RanOut),
        }
    }
}

impl Lease {
    /// A lease with this deadline.
    pub fn until(deadline: BootInstant) -> Self {
        Self { term: watch::Sender::new(LeaseTerm { deadline, call: LeaseSignal::GoOn }) }
    }

    /// Extends the deadline. A cancelled lease stays cancelled.
    pub fn extend(&self, deadline: BootInstant) {
        self.term.send_if_modified(|term| {
            let moves = term.call == LeaseSignal::GoOn && term.deadline != deadline;
            if moves {
                term.deadline = deadline;
            }
            moves
        });
    }

    /// Ends the action now.
    pub fn cancel(&self) {
        self.term.send_modify(|term| term.call = LeaseSignal::Stop);
    }

    /// Ends the action now, and the event with it.
    pub fn cancel_event(&self) {
        self.term.send_modify(|term| term.call = LeaseSignal::CallOff);
    }

    /// Its current state.
    pub fn term(&self) -> LeaseTerm {
        *self.term.borrow()
    }

    /// The deadline.
    pub fn deadline(&self) -> BootInstant {
        self.term().deadline
    }

    /// Waits until its state differs from `seen`.
    pub async fn changed(&self, seen: LeaseTerm) -> LeaseTerm {
        let mut terms = self.term.subscribe();
        let term = terms.wait_for(|term| *term != seen).await;
        *term.expect("the sender lives as long as the lease that is borrowed here")
    }

    /// Waits until it is over.
    pub async fn ended(&self) -> LeaseEnd {
        loop {
            let term = self.term();
            if let Some(over) = term.over() {
                return over;
            }
            tokio::select! {
                _ = self.changed(term) => {}
                () = tokio::time::sleep(term.deadline.left().min(LOOK)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(30);
    const FAR: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_lease_that_is_not_renewed_expires_and_a_renewed_one_does_not() {
        let lease = Lease::until(boottime() + SOON);
        assert_eq!(lease.ended().await, LeaseEnd::RanOut);
        assert!(lease.deadline().passed());

        let lease = Lease::until(boottime() + SOON);
        lease.extend(boottime() + FAR);
        assert!(tokio::time::timeout(SOON * 4, lease.ended()).await.is_err());
    }

    #[tokio::test]
    async fn a_cancelled_lease_ends_at_once_and_cannot_be_extended() {
        let lease = Lease::until(boottime() + FAR);
        let seen = lease.term();
        let (over, changed) = tokio::join!(lease.ended(), async {
            lease.cancel();
            lease.changed(seen).await
        });
        assert_eq!((over, changed.call), (LeaseEnd::Cancelled, LeaseSignal::Stop));
        lease.extend(boottime() + FAR * 2);
        assert_eq!(lease.term().over(), Some(LeaseEnd::Cancelled));
        assert_eq!(lease.deadline(), seen.deadline);
    }

    #[test]
    fn the_margin_is_a_fifth_and_at_most_five_seconds() {
        assert_eq!(margin(Duration::from_secs(1)), Duration::from_millis(200));
        assert_eq!(margin(Duration::from_secs(30)), Duration::from_secs(5));
    }
}
