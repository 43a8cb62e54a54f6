//! The clock of a store that is on a server, as one node sees it: the server's time plus an offset that all nodes of
//! the store have agreed on.
//!
//! A server's clock can be set. What was written while it was ahead must not wait until the clock gets there again, and
//! no node may take another's lease for expired because it shows a later time. So a node advances by its own uptime,
//! compares that with each response of the server, and where the server's clock was set, the nodes agree on how far the
//! store's clock is ahead of it. The agreement is stored and comes with every response.
//!
//! ```text
//!   the server's clock     what a node does
//!   ──────────────────     ────────────────────────────────────────────────────────────────────────────────
//!   is a little ahead      follows it
//!   is a little behind     runs at half speed until it is there
//!   is set back            advances as before; the store's clock is ahead by that much from now on
//!   is set forward         advances as before, as far as the store's clock is ahead; beyond that follows, and
//!                          leases from before end later by as much
//! ```

use super::limits;
use super::time::{Duration, Timestamp};

/// A reading of the server's clock, with this node's uptime at the request and at the response: the server read its
/// clock somewhere in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerTime {
    /// What the server's clock showed.
    pub time: Timestamp,
    /// When it was asked.
    pub asked: Duration,
    /// When the answer came.
    pub answered: Duration,
}

/// What the nodes of a store have agreed on, as it is stored. With every change `reached` grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgreedClock {
    /// How far the store's clock is ahead of the server's.
    pub ahead: Duration,
    /// A time that the store's clock has reached.
    pub reached: Timestamp,
    /// Leases from before it last jumped forward.
    pub held: Option<LeaseExtension>,
}

/// The extension of leases that were written before the clock jumped forward: they end later by the length of the jump,
/// since their nodes may not have renewed them yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseExtension {
    /// A lease that ends later than this was written after the jump.
    pub last: Timestamp,
    /// How much later they end.
    pub by: Duration,
    /// Applies while the store's clock shows less than this.
    pub until: Timestamp,
}

impl LeaseExtension {
    /// The leases held when the clock jumps from `from` to `to`. If the jump is small, leases from before and after it
    /// cannot be distinguished, and all of them end later. Leases that were held before are held for both jumps.
    fn new(from: Timestamp, to: Timestamp, before: Option<Self>) -> Self {
        let by = to.since(from);
        let last = if by > limits::CLOCK_JUMP { from + limits::CLOCK_JUMP } else { Timestamp(i64::MAX) };
        let before = before.filter(|before| from < before.until).map_or(Duration::ZERO, |before| before.by);
        Self { last, by: by + before, until: to + limits::CLOCK_JUMP_STANDS_FOR }
    }

    /// Whether another node has found a longer hold than `known`. Two nodes that saw the same jump differ only by a
    /// moment.
    fn exceeds(self, known: Option<Self>) -> bool {
        known.is_none_or(|known| {
            self.until.since(known.until) > limits::CLOCK_STANDS
                || self.by.saturating_sub(known.by) > limits::CLOCK_STEP
        })
    }

    /// What two nodes have found, combined.
    fn merged(self, known: Option<Self>) -> Self {
        let known = known.unwrap_or(self);
        Self { last: self.last.max(known.last), by: self.by.max(known.by), until: self.until.max(known.until) }
    }
}

/// The store's clock as one node sees it. Before the server's first response it shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeStoreClock(Option<RunningClock>);

#[derive(Clone, Copy, Debug)]
struct RunningClock {
    /// The time shown, minus the uptime.
    offset: i64,
    /// The latest time shown.
    shown: Timestamp,
    /// When the last useful response came.
    answered: Duration,
    agreed: AgreedClock,
    /// How far the store's clock must be ahead of the server's, where that differs from the agreement.
    needs: Option<Duration>,
    held: Option<LeaseExtension>,
}

impl NodeStoreClock {
    /// Takes in a reading of the server's clock and the agreement that came with it. Returns the time shown now.
    pub fn tell(&mut self, said: ServerTime, agreed: AgreedClock) -> Timestamp {
        let mut running = self.0.unwrap_or_else(|| RunningClock::begin(said, agreed));
        // A request from before the last response may carry an older reading.
        if said.asked >= running.answered {
            running.follow(said, agreed);
        }
        self.0 = Some(running);
        self.now(said.answered)
    }

    /// The time shown; it never runs backwards.
    pub fn now(&mut self, uptime: Duration) -> Timestamp {
        let Some(running) = &mut self.0 else { return Timestamp::default() };
        running.shown = running.shown.max(running.at(uptime));
        running.shown
    }

    /// When a lease ends, by this clock, that was written as ending at `until`.
    pub fn lease_end(&self, until: Timestamp, uptime: Duration) -> Timestamp {
        let held = self.0.and_then(|running| running.held.filter(|held| running.at(uptime) < held.until));
        held.filter(|held| until <= held.last).map_or(until, |held| until + held.by)
    }

    /// The old and the new agreement, where the old one differs from what this node needs, or is out of date.
    pub fn to_agree(&mut self, uptime: Duration) -> Option<(AgreedClock, AgreedClock)> {
        let now = self.now(uptime);
        let RunningClock { agreed, needs, held, .. } = self.0?;
        let held = held.filter(|held| now < held.until);
        let old = now.since(agreed.reached) >= limits::CLOCK_WRITTEN_EVERY;
        let unknown = held.is_some_and(|held| held.exceeds(agreed.held));
        let reached = now.max(agreed.reached + Duration::from_micros(1));
        let is = AgreedClock { ahead: needs.unwrap_or(agreed.ahead), reached, held };
        (needs.is_some() || old || unknown).then_some((agreed, is))
    }

    /// Whether the agreement is plausible to a node that has just started. If not, nodes that know better may be about
    /// to change it.
    pub fn is_settled(&self) -> bool {
        self.0.is_none_or(|RunningClock { agreed, needs, shown, .. }| {
            let silent = shown.since(agreed.reached) > 2 * limits::CLOCK_WRITTEN_EVERY;
            needs.is_none() && (agreed.ahead.is_zero() || !silent)
        })
    }

    /// How long ago the last useful response came; `None`: there was none.
    pub fn silent_for(&self, uptime: Duration) -> Option<Duration> {
        self.0.map(|running| uptime.saturating_sub(running.answered))
    }
}

impl RunningClock {
    /// Starts at the store's clock, as far as the store knows it. If that is far from where the clock was, either no
    /// node ran for long, or the server's clock was set.
    fn begin(said: ServerTime, agreed: AgreedClock) -> Self {
        let target = said.time + agreed.ahead;
        let shown = target.max(agreed.reached);
        let far = agreed.reached > Timestamp::default() && target.since(agreed.reached) > limits::CLOCK_JUMP;
        let held = far.then(|| LeaseExtension::new(agreed.reached, target, agreed.held));
        let offset = shown.0.saturating_sub(micros(said.answered));
        Self { offset, shown, answered: Duration::ZERO, agreed, needs: None, held }
    }

    fn at(&self, uptime: Duration) -> Timestamp {
        Timestamp(self.offset.saturating_add(micros(uptime)))
    }

    fn follow(&mut self, said: ServerTime, agreed: AgreedClock) {
        let agreed = if agreed.reached < self.agreed.reached { self.agreed } else { agreed };
        let same = agreed.ahead == self.agreed.ahead;
        let passed = said.answered.saturating_sub(self.answered);
        (self.agreed, self.answered, self.needs) = (agreed, said.answered, None);
        let target = said.time + agreed.ahead;
        // When the server read its clock, this clock showed a time between these two.
        let (least, most) = (self.at(said.asked), self.at(said.answered));
        if agreed.reached.since(target.max(most)) > limits::CLOCK_STEP {
            // Other nodes have seen a later time, and may have stopped since.
            self.go_forward(agreed.reached, said.answered);
            self.needs = Some(agreed.reached.since(said.time));
        } else if target.since(most) > limits::CLOCK_STEP {
            if same && !agreed.ahead.is_zero() {
                self.needs = Some(least.since(said.time));
                self.go_forward(said.time.max(most), said.answered);
            } else if same || target.since(most) > limits::CLOCK_JUMP {
                self.go_forward(target, said.answered);
            } else {
                // The others are there already: this node started from the time that they had stored.
                self.offset = target.0.saturating_sub(micros(said.answered));
            }
        } else if target >= most {
            self.offset = self.offset.saturating_add(target.0.saturating_sub(most.0));
        } else if least.since(target) > limits::CLOCK_STEP {
            self.needs = Some(least.since(said.time));
        } else {
            self.offset = self.offset.saturating_sub(micros(least.since(target).min(passed / 2)));
        }
        // Other nodes may have seen a jump while this node did not run.
        if let Some(known) = agreed.held
            && known.exceeds(self.held)
        {
            self.held = Some(known.merged(self.held));
        }
    }

    /// Jumps to this time at once.
    fn go_forward(&mut self, to: Timestamp, uptime: Duration) {
        let from = self.at(uptime);
        if to.since(from) > limits::CLOCK_STEP {
            self.held = Some(LeaseExtension::new(from, to, self.held));
        }
        self.offset = to.0.saturating_sub(micros(uptime));
    }
}

fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;
    const DAY: i64 = 24 * HOUR;
    /// The real time at which a simulation begins.
    const T: i64 = 1_750_000_000 * SECOND;
    /// How often a node asks.
    const TICK: i64 = SECOND / 2;
    /// How late a node may notice that a clock was set, and how far it may follow one that was not.
    const SLACK: i64 = 3 * SECOND;

    fn secs(seconds: i64) -> Duration {
        Duration::from_secs(seconds.unsigned_abs())
    }

    /// Something that is to end: the time that was written, and the real time.
    #[derive(Clone, Copy, Debug)]
    struct PlannedEnd {
        node: usize,
        written: Timestamp,
        really: i64,
        /// How much later it may end, because no node ran meanwhile.
        late: i64,
    }

    /// A server whose clock is off by `wrong`, the stored agreement, and nodes.
    struct ClockSimulation {
        time: i64,
        wrong: i64,
        stands: AgreedClock,
        nodes: Vec<Option<(NodeStoreClock, Timestamp)>>,
        leases: Vec<PlannedEnd>,
        waits: Vec<PlannedEnd>,
        /// How long a response takes; different each time.
        delay: i64,
        /// When the clock was last set, or a node started.
        upset: i64,
    }

    impl ClockSimulation {
        fn new(nodes: usize) -> Self {
            let stands = AgreedClock::default();
            let (leases, waits) = (Vec::new(), Vec::new());
            let mut world =
                Self { time: T, wrong: 0, stands, nodes: vec![None; nodes], leases, waits, delay: 0, upset: T };
            for n in 0..nodes {
                world.start(n);
            }
            world
        }

        /// The uptime of a node's machine: each has its own.
        fn uptime(n: usize, time: i64) -> Duration {
            Duration::from_micros((time - T).unsigned_abs()) + secs(1_000) * u32::try_from(n + 1).unwrap()
        }

        fn ask(&mut self, n: usize) {
            self.delay = (self.delay * 7 + 30_011) % 300_000;
            let (asked, looked) = (self.time - self.delay, self.time - self.delay / 3);
            let said = ServerTime {
                time: Timestamp(looked + self.wrong),
                asked: Self::uptime(n, asked),
                answered: Self::uptime(n, self.time),
            };
            let stands = self.stands;
            let (clock, last) = self.nodes[n].as_mut().unwrap();
            let now = clock.tell(said, stands);
            assert!(now >= *last, "node {n} runs backwards: {last} {now}");
            *last = now;
        }

        fn agree(&mut self, n: usize) {
            let uptime = Self::uptime(n, self.time);
            let (clock, _) = self.nodes[n].as_mut().unwrap();
            if let Some((was, is)) = clock.to_agree(uptime)
                && was == self.stands
            {
                assert!(is.reached > was.reached);
                self.stands = is;
            }
        }

        fn start(&mut self, n: usize) {
            self.nodes[n] = Some((NodeStoreClock::default(), Timestamp::default()));
            self.ask(n);
            for _ in 0..2 {
                if self.nodes[n].unwrap().0.is_settled() {
                    break;
                }
                let starts = self.nodes[n].take();
                self.pass(1);
                self.nodes[n] = starts;
                self.ask(n);
            }
            self.agree(n);
            self.ask(n);
        }

        fn now(&mut self, n: usize) -> Timestamp {
            let uptime = Self::uptime(n, self.time);
            self.nodes[n].as_mut().unwrap().0.now(uptime)
        }

        /// Lets this many seconds pass, in which each node asks, agrees and is checked.
        fn pass(&mut self, seconds: i64) {
            for _ in 0..seconds * SECOND / TICK {
                self.time += TICK;
                for n in 0..self.nodes.len() {
                    if self.nodes[n].is_some() {
                        self.ask(n);
                        self.agree(n);
                        self.check(n);
                    }
                }
            }
        }

        fn check(&mut self, n: usize) {
            let (now, uptime) = (self.now(n), Self::uptime(n, self.time));
            let clock = self.nodes[n].unwrap().0;
            for lease in self.leases.iter().filter(|lease| lease.node != n) {
                let over = clock.lease_end(lease.written, uptime) <= now;
                let early = self.time < lease.really - SLACK;
                assert!(!(over && early), "node {n} ends {lease:?} early, at {}: {clock:?}", self.time);
                let late = self.time > (lease.really + SLACK + lease.late).max(self.upset + 11 * 60 * SECOND);
                assert!(over || !late, "node {n} ends {lease:?} late, at {}: {clock:?}", self.time);
            }
            for wait in &self.waits {
                let late = self.time > wait.really + SLACK + wait.late;
                assert!(wait.written <= now || !late, "node {n} waits for {wait:?} at {}: {clock:?}", self.time);
            }
        }

        /// A node starts something with a lease of this many seconds, and something is to be retried after as many.
        fn write(&mut self, n: usize, seconds: i64) {
            let written = self.now(n) + secs(seconds);
            let until = PlannedEnd { node: n, written, really: self.time + seconds * SECOND, late: 0 };
            self.leases.push(until);
            self.waits.push(until);
        }

        /// No node runs for this long, and meanwhile the clock is set.
        fn outage(&mut self, seconds: i64, wrong: i64) {
            let many = self.nodes.len();
            self.nodes = vec![None; many];
            self.wrong = wrong;
            self.time += seconds * SECOND;
            for until in self.leases.iter_mut().chain(&mut self.waits) {
                until.late += (seconds + 62) * SECOND; // what the store's clock had reached is written once a minute
            }
            for n in 0..many {
                self.start(n);
            }
        }

        fn apart(&mut self) -> i64 {
            let shown: Vec<_> = (0..self.nodes.len()).map(|n| self.now(n).0).collect();
            shown.iter().max().unwrap() - shown.iter().min().unwrap()
        }
    }

    #[test]
    fn a_clock_that_was_ahead_for_four_seconds_leaves_nothing_waiting() {
        let mut world = ClockSimulation::new(2);
        world.pass(5);
        world.wrong = 31 * DAY;
        world.pass(4);
        world.write(0, 30);
        world.wrong = 0;
        world.start(1);
        world.pass(3);
        world.write(1, 20);
        assert!(world.apart() < SECOND);
        world.pass(40);
        for n in 0..2 {
            let (now, uptime) = (world.now(n), ClockSimulation::uptime(n, world.time));
            for lease in &world.leases {
                assert!(world.nodes[n].unwrap().0.lease_end(lease.written, uptime) <= now, "{n} {lease:?}");
            }
        }
        assert!((world.now(0).0 - world.time - 31 * DAY).abs() < 2 * SECOND, "it continues from there");
    }

    #[test]
    fn the_store_is_as_far_ahead_as_it_must_be_and_no_further() {
        let mut world = ClockSimulation::new(2);
        for _ in 0..3 {
            world.wrong = 31 * DAY;
            world.pass(5);
            world.wrong = 0;
            world.pass(5);
        }
        let ahead = |world: &ClockSimulation| i64::try_from(world.stands.ahead.as_micros()).unwrap();
        assert!((ahead(&world) - 31 * DAY).abs() < 2 * SECOND, "they do not add up: {:?}", world.stands);
        world.wrong = 31 * DAY;
        world.pass(5);
        assert!(ahead(&world) < 2 * SECOND, "the server is there: {:?}", world.stands);
    }

    #[test]
    fn drift_adds_up_to_nothing() {
        let mut world = ClockSimulation::new(2);
        for _ in 0..2_000 {
            world.wrong -= SECOND / 1_000; // five hundred times as much as a bad quartz
            world.pass(1);
        }
        assert_eq!(world.stands.ahead, Duration::ZERO);
        assert!((world.now(0).0 - world.time - world.wrong).abs() < SECOND);
    }

    #[test]
    fn a_node_that_starts_after_hours_without_nodes_grants_the_rest_of_a_lease() {
        let mut world = ClockSimulation::new(1);
        world.pass(5);
        world.write(0, 30);
        world.outage(2 * 3_600, 0);
        let (lease, uptime) = (world.leases[0].written, ClockSimulation::uptime(0, world.time));
        let left = |world: &mut ClockSimulation, uptime| {
            world.nodes[0].unwrap().0.lease_end(lease, uptime).since(world.now(0))
        };
        assert!(left(&mut world, uptime) <= secs(40), "{:?}", left(&mut world, uptime));
    }

    /// Wherever the server's clock is set, whichever node is restarted, and even if no node runs for a while: no node's
    /// clock runs backwards, no node takes another's lease for expired too early, nothing waits longer than it should,
    /// and in the end all nodes show the same time, which advances as time does.
    fn check_history(steps: &[(u8, usize, i64, i64)]) {
        let mut world = ClockSimulation::new(3);
        for (what, node, amount, seconds) in steps.iter().copied() {
            match what {
                0 => world.wrong = amount * 5 * HOUR,
                1 => world.wrong = 0,
                2 => world.start(node),
                3 => world.outage(seconds, if amount % 2 == 0 { world.wrong } else { amount * 5 * HOUR }),
                _ => world.write(node, 1 + amount.abs() % 60),
            }
            world.upset = world.time;
            world.pass(seconds);
        }
        world.pass(5);
        assert!(world.apart() < 2 * SECOND, "{}", world.apart());
        let (before, time) = (world.now(0), world.time);
        world.pass(700);
        let (passed, showed) = (world.time - time, world.now(0).0 - before.0);
        assert!((passed - showed).abs() < SLACK, "{passed} {showed}");
    }

    #[test]
    fn a_node_learns_of_a_jump_soon_after_one_that_it_saw_itself() {
        check_history(&[(3, 0, -91, 2), (1, 0, 0, 1), (3, 0, -1, 5), (4, 0, 4, 0), (1, 0, 0, 0)]);
    }

    proptest! {
        #[test]
        fn a_servers_clock_may_be_set_anywhere(
            steps in proptest::collection::vec((0u8..6, 0usize..3, -200i64..200, 0i64..40), 1..25)
        ) {
            check_history(&steps);
        }

        /// The same for small steps of the server's clock, either way, while the same nodes run.
        #[test]
        fn small_steps_of_a_servers_clock_end_no_lease_early(
            steps in proptest::collection::vec((-300i64..300, 0usize..3, 0i64..20), 1..25)
        ) {
            let mut world = ClockSimulation::new(3);
            for (step, node, seconds) in steps {
                world.wrong += step * SECOND;
                world.pass(2);
                world.write(node, 1 + seconds);
                world.pass(seconds);
            }
            prop_assert!(world.apart() < 2 * SECOND);
        }
    }
}
