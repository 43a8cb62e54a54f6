//! A node that lost its lease: another took the event over, or it was stopped past the lease and continues; and a guard
//! whose node is gone before it begins.

use crate::flaky_store::{Desk, Does, Flaky, Mood, Stub, route};
use crate::promises::processes_in;
use crate::rounds;
use crate::seed::{self, Random};
use crate::support::{House, PATIENCE, until};
use hookonce::decide::source::InDoubtPolicy;
use hookonce::store::Inspect;
use rustix::process::Signal;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

fn config(in_doubt: &str, lease: &str) -> String {
    format!(
        "store = \"sqlite:hookonce.db\"\n[source.a]\npath = \"/a\"\nverify = \"none\"\ndelivery = \"header.x-id\"\n\
         [[source.a.route]]\nlease = \"{lease}\"\nin_doubt = \"{in_doubt}\"\nretry = {{ first = \"50ms\" }}\n\
         run = {{ steps = [\"echo $HOOKONCE_ATTEMPT $$ >> begun; if [ -e fast ]; then exit 0; fi; sleep 1000\"] }}\n"
    )
}

async fn send(house: &House, id: &str) -> u16 {
    let headers = [("x-id".to_owned(), id.to_owned()), ("content-type".to_owned(), "application/json".to_owned())];
    house.post("/a", &headers, b"{}").await.unwrap().status
}

#[tokio::test]
async fn a_node_that_lost_its_lease_writes_nothing_and_the_second_nodes_result_stays() {
    let store = Flaky::new();
    // The first node has claimed, and its action does nothing for long: as if the node were stopped.
    let slow = Stub::new(Does::Ignores(Duration::from_millis(3500)));
    let one = Desk::new(&store, route(Duration::from_millis(1500), InDoubtPolicy::Retry, 4), slow.clone());
    let id = one.new_event("paused").await;
    let fast = Stub::new(Does::Takes(Duration::from_millis(1)));
    let other = Flaky { advances: Flaky::new().advances, ..store.clone() };
    until("the first node acts", || slow.begun() == 1).await;
    store.advances.all(Mood::Hangs);
    let two = Desk::new(&other, route(Duration::from_millis(1500), InDoubtPolicy::Retry, 4), fast.clone());
    two.dispatcher.run();
    let event = two.ended(id).await;
    let done = event.revision;
    assert_eq!((fast.begun(), event.attempt, event.doubts), (1, 2, 1), "{event:?}");
    // Now the first node continues, with a result.
    store.advances.all(Mood::Fine);
    one.dispatcher.stop(PATIENCE).await;
    assert_eq!(two.stands(id).await.revision, done, "a stale node wrote");
    let told = store.memory.details(id).await.unwrap().unwrap();
    let outcomes: Vec<_> = told.attempts.iter().map(|tried| &*tried.outcome).collect();
    assert_eq!(outcomes, ["unknown", "delivered"], "the lost attempt left its result: {told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stopped_past_its_lease_does_not_record_a_killed_command_as_done() {
    let trials = rounds(4, 40);
    for (in_doubt, end, runs) in [("hold", "dead in_doubt", 1), ("retry", "done acted", 2)] {
        let trial = async |trial: usize| {
            let house = House::new(&config(in_doubt, "3s"));
            assert_eq!(send(&house, "x").await, 202);
            until("the command runs", || house.lines("begun").len() == 1).await;
            house.signal(Signal::STOP);
            let command: i32 = house.lines("begun")[0].split(' ').nth(1).unwrap().parse().unwrap();
            let alive = || std::fs::read(format!("/proc/{command}/environ")).is_ok_and(|env| !env.is_empty());
            // The guard kills it at the lease's deadline, although its node is stopped.
            until("the guard has killed the command", || !alive()).await;
            tokio::time::sleep(Duration::from_millis(800)).await; // the lease itself ends later, by a fifth of its length
            std::fs::write(house.path("fast"), "").unwrap();
            house.signal(Signal::CONT);
            house.quiet().await;
            let ends = house.sql("select state || ' ' || cause from events");
            assert_eq!(ends, [end], "trial {trial}");
            assert_eq!(house.lines("begun").len(), runs, "trial {trial}");
            assert_eq!(house.sql("select doubts from events"), ["1"]);
        };
        for some in (0..trials).collect::<Vec<_>>().chunks(4) {
            futures_util::future::join_all(some.iter().map(|n| trial(*n))).await;
        }
        println!("N = {trials} nodes stopped past the lease under {in_doubt}: killed commands recorded as done 0");
    }
}

/// A node that is stopped at any moment of an attempt: what it does when it continues is done once, or in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stopped_at_any_moment_does_not_act_twice_under_hold() {
    let mut random = Random::new(seed::any());
    let trials = rounds(12, 150);
    let house = House::new(&config("hold", "1s"));
    std::fs::write(house.path("fast"), "").unwrap();
    for trial in 0..trials {
        assert_eq!(send(&house, &format!("x{trial}")).await, 202);
        tokio::time::sleep(random.millis(0, 40)).await;
        house.signal(Signal::STOP);
        tokio::time::sleep(random.millis(0, 1800)).await;
        house.signal(Signal::CONT);
    }
    house.quiet().await;
    let (done, held) = (house.count("done"), house.count("dead"));
    assert_eq!(done + held, trials);
    let begun = house.lines("begun").len();
    assert!(done <= begun && begun <= trials, "{begun} commands for {trials} events");
    println!("N = {trials} pauses under hold: done {done}, in doubt {held}, double 0");
}

#[test]
fn a_guard_whose_node_is_gone_before_it_begins_starts_nothing() {
    let house = House::empty("");
    for _ in 0..20 {
        let (mut node, guard) = UnixStream::pair().unwrap();
        let order = format!(
            "{{\"argv\":[\"sh\",\"-c\",\"echo >> began\"],\"dir\":{:?},\"env\":{{\"PATH\":\"/usr/bin:/bin\"}},\
             \"body\":2,\"deadline\":{}}}\nhi",
            house.dir.path(),
            u64::MAX / 2
        );
        node.write_all(order.as_bytes()).unwrap();
        drop(node);
        let mut guard = Command::new(env!("CARGO_BIN_EXE_hookonce"))
            .arg("guard")
            .current_dir(house.dir.path())
            .stdin(Stdio::from(OwnedFd::from(guard)))
            .spawn()
            .unwrap();
        guard.wait().unwrap();
    }
    assert_eq!(house.lines("began").len(), 0, "a command began after its node was gone");
    assert_eq!(processes_in(house.dir.path()), [""; 0]);
}
