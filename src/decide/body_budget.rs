//! The memory budget for the request bodies that one node holds: which body is admitted, and which one is displaced
//! when memory is short. Pure: time is an argument, counted from an arbitrary fixed origin.
//!
//! ```text
//! ├──────────── large bodies, and small ones while there is room ────────────┤──── small bodies only ────┤
//! 0                                                             max - reserved                         max
//! ```
//!
//! When memory is short, a body that is still arriving is displaced: first the slowest of the large ones, by bytes per
//! second; then the slowest of the small ones that have been arriving for longer than [`SLOW_AFTER`]. A complete body
//! is never displaced.

use super::limits;
use super::time::Duration;
use std::collections::HashMap;

/// The time over which a body's rate is measured. A small body that takes longer than this to arrive counts as slow.
pub const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Identifies one body in a budget.
pub type BodyId = u64;

/// Accounts for the bytes of all bodies. `W` wakes the task that reads a body.
#[derive(Debug)]
pub struct BodyMemoryBudget<W> {
    max: usize,
    reserved: usize,
    small: usize,
    large: usize,
    bodies: HashMap<BodyId, BudgetEntry<W>>,
    next: BodyId,
}

#[derive(Debug)]
struct BudgetEntry<W> {
    bytes: usize,
    arriving: bool,
    /// Time and bytes at the last two points from which the rate is measured.
    marks: [(Duration, usize); 2],
    waker: W,
}

/// The result of asking for more memory.
#[derive(PartialEq, Eq, Debug)]
pub enum BodyAdmission<W> {
    /// Granted. The bodies of these wakers were displaced.
    Granted(Vec<W>),
    /// This body is the slowest of several, or was displaced before: it has no memory any more.
    Displaced,
    /// There is no memory, and no slow body to displace.
    Full,
}

fn is_large(bytes: usize) -> bool {
    bytes > limits::SMALL_BODY_BYTES_MAX
}

impl<W: Clone> BodyMemoryBudget<W> {
    /// A budget of `max` bytes. A quarter of it is for small bodies only.
    pub fn new(max: usize) -> Self {
        let reserved = max / limits::SMALL_BODIES_SHARE;
        Self { max, reserved, small: 0, large: 0, bodies: HashMap::new(), next: 0 }
    }

    /// Bytes held by all bodies.
    pub fn used(&self) -> usize {
        self.small + self.large
    }

    /// Adds a new, empty body.
    pub fn begin(&mut self, waker: W, now: Duration) -> BodyId {
        let id = self.next;
        self.next += 1;
        self.bodies.insert(id, BudgetEntry { bytes: 0, arriving: true, marks: [(now, 0); 2], waker });
        id
    }

    /// Whether a body of this length could be admitted now if every displaceable body were displaced.
    pub fn could_take(&self, bytes: usize, now: Duration) -> bool {
        if self.fits(self.small, self.large, bytes) {
            return true;
        }
        let (mut small, mut large) = (self.small, self.large);
        for body in self.bodies.values().filter(|body| body.is_displaceable(now)) {
            *if is_large(body.bytes) { &mut large } else { &mut small } -= body.bytes;
        }
        self.fits(small, large, bytes)
    }

    /// Grants `more` bytes to a body, displacing slower ones if necessary.
    pub fn grow(&mut self, id: BodyId, more: usize, now: Duration) -> BodyAdmission<W> {
        let Some(body) = self.bodies.get_mut(&id) else { return BodyAdmission::Displaced };
        body.mark(now);
        let (own, whole) = (body.bytes, body.bytes.saturating_add(more));
        let mut gone = Vec::new();
        loop {
            let (mut small, mut large) = (self.small, self.large);
            *if is_large(own) { &mut large } else { &mut small } -= own;
            if self.fits(small, large, whole) {
                break;
            }
            match self.pick_victim(id, whole, now) {
                Some(victim) if victim == id => return BodyAdmission::Displaced,
                Some(victim) => gone.extend(self.end(victim)),
                None => return BodyAdmission::Full,
            }
        }
        *self.pool(own) -= own;
        *self.pool(whole) += whole;
        if let Some(body) = self.bodies.get_mut(&id) {
            body.bytes = whole;
        }
        BodyAdmission::Granted(gone)
    }

    /// Marks a body as complete: from now on it is not displaced. False: it was displaced already.
    pub fn complete(&mut self, id: BodyId) -> bool {
        let body = self.bodies.get_mut(&id);
        body.map(|body| body.arriving = false).is_some()
    }

    /// Removes a body and releases its memory.
    pub fn end(&mut self, id: BodyId) -> Option<W> {
        let body = self.bodies.remove(&id)?;
        *self.pool(body.bytes) -= body.bytes;
        Some(body.waker)
    }

    fn pool(&mut self, bytes: usize) -> &mut usize {
        if is_large(bytes) { &mut self.large } else { &mut self.small }
    }

    /// Whether a body of `bytes` fits beside this many bytes of small and large bodies. A body larger than its whole
    /// share (its source may allow that) is admitted while it is the only one.
    fn fits(&self, small: usize, large: usize, bytes: usize) -> bool {
        let all = small.saturating_add(large).saturating_add(bytes);
        if is_large(bytes) {
            let shared = large.saturating_add(bytes) <= self.max - self.reserved && all <= self.max;
            shared || (large == 0 && small <= self.reserved)
        } else {
            all <= self.max || small.saturating_add(bytes) <= self.reserved || all == bytes
        }
    }

    /// The body to displace next; `asking` itself if it is the slowest of several large ones.
    fn pick_victim(&self, asking: BodyId, whole: usize, now: Duration) -> Option<BodyId> {
        let rate = |body: &BudgetEntry<W>, id: BodyId| (body.rate(body.bytes, now), id);
        let large = self.bodies.iter().filter(|(_, body)| body.arriving && is_large(body.bytes));
        let others = large.filter(|(id, _)| **id != asking).map(|(id, body)| rate(body, *id)).min();
        // The bytes that it has just brought count too.
        let own = self.bodies.get(&asking).filter(|body| body.arriving && is_large(whole));
        let own = own.map(|body| body.rate(whole, now));
        match (others, own) {
            (Some((slowest, _)), Some(own)) if own < slowest => return Some(asking),
            (Some((_, id)), _) => return Some(id),
            (None, _) => {}
        }
        let small = self.bodies.iter().filter(|(id, body)| **id != asking && body.is_displaceable(now));
        small.map(|(id, body)| rate(body, *id)).min().map(|(_, id)| id)
    }
}

impl<W> BudgetEntry<W> {
    /// Moves the marks, so that the rate reflects the last seconds and not a fast beginning.
    fn mark(&mut self, now: Duration) {
        if now.saturating_sub(self.marks[1].0) >= SLOW_AFTER {
            self.marks = [self.marks[1], (now, self.bytes)];
        }
    }

    /// Recent bytes per second, given the bytes that it has now.
    fn rate(&self, bytes: usize, now: Duration) -> u128 {
        let [older, newer] = self.marks;
        let (since, had) = if now.saturating_sub(newer.0) >= SLOW_AFTER { newer } else { older };
        (bytes - had) as u128 * 1_000_000 / now.saturating_sub(since).as_micros().max(1)
    }

    fn is_displaceable(&self, now: Duration) -> bool {
        let began = self.marks[0].0;
        self.arriving && (is_large(self.bytes) || now.saturating_sub(began) >= SLOW_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1 << 10;
    const MB: usize = 1 << 20;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A body that has brought this many bytes by then.
    fn body(budget: &mut BodyMemoryBudget<&'static str>, name: &'static str, bytes: usize, when: u64) -> BodyId {
        let id = budget.begin(name, at(when));
        assert_eq!(budget.grow(id, bytes, at(when)), BodyAdmission::Granted(Vec::new()), "{name}");
        id
    }

    #[test]
    fn large_bodies_leave_a_quarter_to_the_small_ones() {
        let mut budget = BodyMemoryBudget::new(64 * MB);
        for _ in 0..2 {
            let held = body(&mut budget, "held", 24 * MB, 0);
            assert!(budget.complete(held));
        }
        let late = budget.begin("late", at(0));
        assert_eq!(budget.grow(late, 65 * KB, at(0)), BodyAdmission::Full);
        budget.end(late);
        for _ in 0..256 {
            let small = body(&mut budget, "small", 64 * KB, 0);
            budget.complete(small);
        }
        let one_more = budget.begin("one more", at(0));
        assert_eq!(budget.grow(one_more, 1, at(0)), BodyAdmission::Full);
        assert_eq!(budget.used(), 64 * MB);
    }

    #[test]
    fn the_large_body_with_the_fewest_bytes_per_second_of_late_goes_and_not_the_newcomer() {
        let mut budget = BodyMemoryBudget::new(64 * MB);
        let trickle = body(&mut budget, "trickle", 20 * MB, 0);
        let steady = body(&mut budget, "steady", MB, 0);
        for second in 1..=4 {
            assert_eq!(budget.grow(trickle, KB, at(second * 1000)), BodyAdmission::Granted(Vec::new()));
            assert_eq!(budget.grow(steady, MB, at(second * 1000)), BodyAdmission::Granted(Vec::new()));
        }
        let fast = budget.begin("fast", at(4100));
        assert_eq!(budget.grow(fast, 24 * MB, at(4200)), BodyAdmission::Granted(vec!["trickle"]));
        // A body that brought 20 MB at the start and little since is displaced: its next bytes are refused.
        assert_eq!(budget.grow(trickle, KB, at(5000)), BodyAdmission::Displaced);
        assert!(!budget.complete(trickle));
        assert_eq!(budget.used(), 29 * MB);
    }

    #[test]
    fn the_asking_body_is_displaced_if_it_is_the_slowest_and_refused_if_it_is_alone() {
        let mut budget = BodyMemoryBudget::new(MB);
        let fast = body(&mut budget, "fast", 700 * KB, 0);
        let slow = budget.begin("slow", at(0));
        assert_eq!(budget.grow(slow, 60 * KB, at(10)), BodyAdmission::Granted(Vec::new()));
        assert_eq!(budget.grow(slow, 10 * KB, at(20)), BodyAdmission::Displaced);
        budget.complete(fast);
        budget.end(slow);
        let alone = budget.begin("alone", at(30));
        assert_eq!(budget.grow(alone, 100 * KB, at(31)), BodyAdmission::Full);
    }

    #[test]
    fn small_bodies_that_trickle_make_way_too_and_those_that_just_came_do_not() {
        let mut budget = BodyMemoryBudget::new(64 * KB);
        for _ in 0..2 {
            body(&mut budget, "trickle", 32 * KB, 0);
        }
        let new = budget.begin("new", at(500));
        assert!(!budget.could_take(KB, at(500)));
        assert_eq!(budget.grow(new, KB, at(500)), BodyAdmission::Full);
        assert!(budget.could_take(KB, at(1000)));
        assert_eq!(budget.grow(new, KB, at(1000)), BodyAdmission::Granted(vec!["trickle"]));
        assert_eq!(budget.used(), 33 * KB);
    }

    #[test]
    fn a_body_larger_than_all_room_is_taken_while_it_is_the_only_one() {
        let mut budget = BodyMemoryBudget::new(4 * MB);
        let huge = body(&mut budget, "huge", 9 * MB, 0);
        budget.complete(huge);
        body(&mut budget, "small", 60 * KB, 0);
        let large = budget.begin("large", at(0));
        assert_eq!(budget.grow(large, 70 * KB, at(0)), BodyAdmission::Full);
        budget.end(huge);
        assert_eq!(budget.grow(large, 70 * KB, at(0)), BodyAdmission::Granted(Vec::new()));
    }
}
