//! The time in which one node alone may act, as an action sees it: a deadline that the dispatcher moves on with each
//! renewal, and that ends the action when it is not moved.
//!
//! It stands on a clock that runs through suspend: a laptop or a virtual machine that slept through its lease must
//! not go on where it stopped.

use crate::decide::time::Duration;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// Timers stand still during suspend, so nobody sleeps longer than this without looking at the clock.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// The longest margin; see [`margin`].
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// A point in time: since the machine started, suspend included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BootInstant(pub Duration);

/// Now.
pub fn boottime() -> BootInstant {
    let now = clock_gettime(ClockId::Boottime);
    BootInstant(Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0)))
}

impl BootInstant {
    /// How long it is until this point; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(boottime().0)
    }

    /// Has this point passed?
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

/// How much before a lease's end its action is ended: room to kill a command and to be late.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 5).min(MARGIN_MAX)
}

/// A deadline that can be moved on, until it is cancelled or passes.
#[derive(Debug)]
pub struct Lease {
    term: watch::Sender<LeaseTerm>,
}

/// How a lease stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerm {
    /// When the action must have ended: the lease's end, less the margin.
    pub deadline: BootInstant,
    /// Whether it is to end now.
    pub call: LeaseSignal,
}

/// Whether an action may go on until its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseSignal {
    /// It may.
    GoOn,
    /// The lease was lost, or the node stops.
    Stop,
    /// A person ended the event.
    CallOff,
}

/// Why a lease is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseEnd {
    /// It was cancelled.
    Cancelled,
    /// Nobody renewed it in time.
    RanOut,
}

impl LeaseEnd {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Self::Cancelled => "the attempt was cancelled",
            Self::RanOut => "the lease ended",
        }
    }
}

impl LeaseTerm {
    /// Whether it is over, by the clock.
    pub fn over(self) -> Option<LeaseEnd> {
        match self.call {
            LeaseSignal::Stop | LeaseSignal::CallOff => Some(LeaseEnd::Cancelled),
            LeaseSignal::GoOn => self.deadline.passed().then_some(LeaseEnd::RanOut),
        }
    }
}

impl Lease {
    /// A lease that an action may use until this deadline.
    pub fn until(deadline: BootInstant) -> Self {
        Self { term: watch::Sender::new(LeaseTerm { deadline, call: LeaseSignal::GoOn }) }
    }

    /// It was renewed. What is cancelled stays cancelled.
    pub fn extend(&self, deadline: BootInstant) {
        self.term.send_if_modified(|term| {
            let moves = term.call == LeaseSignal::GoOn && term.deadline != deadline;
            if moves {
                term.deadline = deadline;
            }
            moves
        });
    }

    /// The action is to end now.
    pub fn cancel(&self) {
        self.term.send_modify(|term| term.call = LeaseSignal::Stop);
    }

    /// The action is to end now, and the event with it.
    pub fn cancel_event(&self) {
        self.term.send_modify(|term| term.call = LeaseSignal::CallOff);
    }

    /// How it stands.
    pub fn term(&self) -> LeaseTerm {
        *self.term.borrow()
    }

    /// Until when.
    pub fn deadline(&self) -> BootInstant {
        self.term().deadline
    }

    /// Waits until it stands otherwise than `seen`.
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
    async fn a_lease_nobody_renews_runs_out_and_a_renewed_one_does_not() {
        let lease = Lease::until(boottime() + SOON);
        assert_eq!(lease.ended().await, LeaseEnd::RanOut);
        assert!(lease.deadline().passed());

        let lease = Lease::until(boottime() + SOON);
        lease.extend(boottime() + FAR);
        assert!(tokio::time::timeout(SOON * 4, lease.ended()).await.is_err());
    }

    #[tokio::test]
    async fn what_is_cancelled_ends_at_once_and_cannot_be_extended() {
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
