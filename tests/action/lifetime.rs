//! Commands do not outlive their step, timeout, lease or node.

use super::*;
use hookonce::internals::action::LeaseEnd;
use rustix::process::Signal;
use std::process::{Command, Stdio};

/// A command that writes its own pid and its guard's, and then stays.
const STAYS: &str = "echo $PPID > guard; sleep 1000 & echo $! > grandchild; echo $$ > leader; wait";
/// Long enough to start on a busy machine.
const SOON: Duration = Duration::from_secs(3);
/// Like `STAYS`, but it ignores TERM.
const IGNORES_TERM: &str = "trap '' TERM; echo $PPID > guard; sleep 1000 & echo $! > grandchild; echo $$ > leader; \
                            while :; do sleep 1000; done";

struct Pids {
    leader: i32,
    grandchild: i32,
    guard: i32,
}

impl Bench {
    async fn pids(&self) -> Pids {
        let leader = self.pid("leader").await;
        let (grandchild, guard) = (self.pid("grandchild").await, self.pid("guard").await);
        Pids { leader, grandchild, guard }
    }

    /// Runs the command, does something to it once it runs, and checks that no process is left.
    async fn ends(&self, text: &str, timeout: Duration, meanwhile: impl AsyncFnOnce(&Pids)) -> Outcome {
        let action = run(vec![CommandBlock { timeout, ..self.block([sh(text)]) }]);
        let (outcome, pids) = tokio::join!(self.act(&*action), async {
            let pids = self.pids().await;
            meanwhile(&pids).await;
            pids
        });
        pids.are_gone().await;
        outcome
    }
}

impl Pids {
    async fn are_gone(&self) {
        until("all are gone", || ![self.leader, self.grandchild, self.guard].into_iter().any(lives)).await;
    }
}

fn says(outcome: &Outcome) -> (&str, &str) {
    (outcome.word(), outcome.why().split(": ").next().unwrap())
}

#[tokio::test]
async fn background_processes_end_with_their_step() {
    let bench = Bench::new();
    let outcome = bench.sh("sleep 1000 & echo $! > grandchild").await;
    assert_eq!(outcome.word(), "delivered");
    let grandchild = bench.pid("grandchild").await;
    until("the grandchild is gone", || !lives(grandchild)).await;
}

#[tokio::test]
async fn a_process_that_left_the_group_does_not_hold_up_the_attempt() {
    let bench = Bench::new();
    let start = Instant::now();
    let outcome =
        bench.sh("setsid sh -c 'echo $$ > escaped; exec sleep 1000' & until test -s escaped; do :; done").await;
    assert_eq!(outcome.word(), "delivered");
    assert!(start.elapsed() < crate::PATIENCE);
    signal(bench.pid("escaped").await, Signal::KILL);
}

#[tokio::test]
async fn a_command_that_times_out_gets_term_and_the_outcome_is_unknown() {
    let bench = Bench::new();
    let text = format!("trap 'echo bye > said; exit 0' TERM; {STAYS}");
    let outcome = bench.ends(&text, SOON, async |_| {}).await;
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 timed out after 3s"));
    assert!(matches!(outcome, Outcome::TimedOut { .. }), "our own timeout ended it: {outcome:?}");
    assert_eq!(bench.read("said"), "bye\n");
}

#[tokio::test]
async fn the_timeout_covers_all_steps_of_a_block_and_the_next_block_has_its_own() {
    let bench = Bench::new();
    let slow = || sh("echo x >> log; sleep 0.4");
    let blocks = vec![
        CommandBlock { timeout: Duration::from_secs(1), ..bench.block([slow(), slow(), slow(), slow()]) },
        bench.block([sh("touch second")]),
    ];
    let outcome = bench.act(&*run(blocks)).await;
    assert_eq!(outcome.word(), "unknown");
    assert!(outcome.why().contains("timed out after 1s"), "{}", outcome.why());
    assert!(bench.read("log").len() < 8 && bench.path("second").exists());
    assert_eq!(bench.blocks.blocks(), SucceededBlocks(0b10));
}

#[tokio::test]
async fn a_command_that_ignores_term_is_killed_after_five_seconds() {
    let bench = Bench::new();
    let start = Instant::now();
    let outcome = bench.ends(IGNORES_TERM, SOON, async |_| {}).await;
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 timed out after 3s"));
    assert!(start.elapsed() >= SOON + Duration::from_secs(5));
}

#[tokio::test]
async fn the_grace_ends_with_the_lease() {
    let bench = Bench { lease: Lease::until(boottime() + SOON + Duration::from_secs(2)), ..Bench::new() };
    let start = Instant::now();
    let outcome = bench.ends(IGNORES_TERM, SOON, async |_| {}).await;
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 timed out after 3s"));
    assert!(start.elapsed() < SOON + Duration::from_secs(5));
}

#[tokio::test]
async fn an_expired_lease_ends_the_command_and_no_further_block_starts() {
    let bench = Bench { lease: Lease::until(boottime() + SOON), ..Bench::new() };
    let blocks = vec![bench.block([sh(IGNORES_TERM), sh("touch next-step")]), bench.block([sh("touch next-block")])];
    let action = run(blocks);
    let (outcome, pids) = tokio::join!(bench.act(&*action), bench.pids());
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 was ended because the lease ended"));
    pids.are_gone().await;
    assert!(!bench.path("next-step").exists() && !bench.path("next-block").exists());
}

#[tokio::test]
async fn a_renewed_lease_lets_the_command_continue() {
    let first = boottime() + SOON;
    let bench = Bench { lease: Lease::until(first), ..Bench::new() };
    let action = run(vec![bench.block([sh("echo $$ > leader; until test -e go; do sleep 0.01; done")])]);
    let (outcome, ()) = tokio::join!(bench.act(&*action), async {
        let leader = bench.pid("leader").await;
        bench.lease.extend(boottime() + PATIENCE);
        until("the first deadline has passed", || (first + Duration::from_millis(200)).passed()).await;
        assert!(lives(leader));
        std::fs::write(bench.path("go"), "").unwrap();
    });
    assert_eq!(outcome.word(), "delivered", "{}", outcome.why());
}

#[tokio::test]
async fn a_cancelled_attempt_ends_its_command_and_starts_nothing() {
    let bench = Bench::new();
    let outcome = bench.ends(STAYS, PATIENCE, async |_| bench.lease.cancel()).await;
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 was ended because the attempt was cancelled"));
    assert_eq!(bench.lease.ended().await, LeaseEnd::Cancelled);
    let outcome = bench.sh("touch begun").await;
    assert_eq!(says(&outcome), ("unknown", "the attempt was cancelled before block 1 began"));
    assert!(!bench.path("begun").exists());
}

#[tokio::test]
async fn dropping_an_attempt_kills_its_command() {
    let bench = Bench::new();
    let action = run(vec![bench.block([sh(IGNORES_TERM)])]);
    let pids = tokio::select! {
        outcome = bench.act(&*action) => panic!("{outcome:?}"),
        pids = bench.pids() => pids,
    };
    pids.are_gone().await;
}

#[tokio::test]
async fn killing_a_guard_kills_its_command() {
    let bench = Bench::new();
    let outcome = bench.ends(IGNORES_TERM, PATIENCE, async |pids| signal(pids.guard, Signal::KILL)).await;
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 ended in an unknown way"));
}

#[tokio::test]
async fn a_guard_that_hangs_does_not_delay_the_end_of_the_lease() {
    let bench = Bench::new();
    let meanwhile = async |pids: &Pids| {
        signal(pids.guard, Signal::STOP);
        bench.lease.extend(boottime());
    };
    let outcome = bench.ends(IGNORES_TERM, PATIENCE, meanwhile).await;
    assert_eq!(says(&outcome), ("unknown", "step 1 of block 1 was ended because the lease ended"));
}

/// Started as a separate process by the test below.
#[tokio::test]
#[ignore = "it is the node that the next test kills"]
async fn a_node_that_is_to_be_killed() {
    let Ok(dir) = std::env::var("NODE_TO_BE_KILLED_IN") else { return };
    let bench = Bench::new();
    let block = CommandBlock { dir: WorkingDir::Fixed(dir.as_str().into()), ..bench.block([sh(IGNORES_TERM)]) };
    bench.act(&*run(vec![block])).await;
}

#[tokio::test]
async fn a_node_that_is_killed_leaves_no_command() {
    let bench = Bench::new();
    let mut node = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifetime::a_node_that_is_to_be_killed", "--ignored", "--nocapture"])
        .env("NODE_TO_BE_KILLED_IN", bench.dir.path())
        // Its own temporary folder is never removed, so it is created inside ours.
        .env("TMPDIR", bench.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pids = bench.pids().await;
    node.kill().unwrap();
    node.wait().unwrap();
    pids.are_gone().await;
}
