//! Kills the node with SIGKILL at random, under load.

use crate::promises::World;
use crate::rounds;
use crate::seed::{self, Random};
use crate::senders::Load;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Kills the node before it has printed where it listens.
fn kill_while_starting(world: &World, after: Duration) {
    let mut command = world.house.command(&["serve"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_under_load_lose_nothing_and_double_nothing() {
    let mut random = Random::new(seed::any());
    let kills = rounds(100, 500);
    let mut world = World::new("2s", "0.03").await;
    let load = Load::start(6, 60, &mut random);
    let start = Instant::now();
    for kill in 0..kills {
        if kill % 5 == 4 {
            kill_while_starting(&world, random.millis(0, 60));
        }
        world.house.start();
        load.aim(world.house.url(""));
        tokio::time::sleep(random.millis(20, 500)).await;
        world.house.kill();
    }
    let deserted = world.deserted().await;
    world.house.start();
    load.aim(world.house.url(""));
    let sent = load.stop().await;
    let loaded = start.elapsed();
    world.settle().await;
    let figures = world.check(&sent.acked);
    assert!(figures.acked > kills * 5 && figures.held_done > 0 && figures.effects > 0, "too little load: {figures:?}");
    println!(
        "N = {kills} kills in {loaded:.0?}, {} deliveries: lost 0, stuck 0, double under hold 0, overlaps 0, effects \
         per key 1; no process left {deserted:.0?} after the last kill\n{figures:?}",
        sent.sent
    );
}
