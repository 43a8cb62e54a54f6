//! Every crash point: the unmodified binary is killed at the nth write or sync of a short run.

use crate::promises::{Delivered, SOURCES, World, deserted};
use crate::rounds;
use crate::senders::deliver;
use crate::support::{House, SECRET};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// System calls that bring something to the disk, a guard, a receiver or a sender.
const CALLS: [&str; 8] = ["pwrite64", "fsync", "fdatasync", "ftruncate", "write", "writev", "sendto", "unlink"];
/// How long the short run may take under strace.
const RUN: Duration = Duration::from_mins(1);

/// A crash point: the nth call of this name in a thread.
#[derive(Clone, Copy, Debug)]
struct Point {
    call: &'static str,
    nth: usize,
}

/// `serve` under strace, as a grandchild (`-D`): the child process is the node itself.
pub(crate) fn traced(house: &House, options: &[String]) -> Command {
    let serve = house.command(&["serve"]);
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-q", "-o", "trace"]).args(options);
    command.arg(serve.get_program()).args(serve.get_args()).current_dir(house.dir.path());
    command.env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG");
    command
}

/// `serve` under strace, which kills it at the nth call of this name.
fn killed_at(house: &House, call: &str, nth: usize) -> Command {
    traced(house, &[format!("-etrace={call}"), format!("-einject={call}:signal=KILL:when={nth}")])
}

/// Starts a node that is killed at the nth call of this name, at the latest after `work` with it; then starts another, and
/// waits until that is quiet. Returns what the work returned, if it began, and whether the node died at the call.
pub(crate) async fn crash<T>(
    house: &mut House,
    call: &str,
    nth: usize,
    work: impl AsyncFnOnce(&mut House) -> T,
) -> (Option<T>, bool) {
    let (mut worked, mut died) = (None, true);
    if house.try_start_by(killed_at(house, call, nth)).is_ok() {
        worked = Some(work(house).await);
        died = house.has_ended();
        if !died {
            house.signal(rustix::process::Signal::KILL);
        }
        house.wait();
    }
    deserted(house).await;
    house.start();
    house.quiet().await;
    (worked, died)
}

/// Crashes at `many` calls of each of these names, which are given with the first of them after the node's start and the
/// distance between two. At `deaths` of them, the node must have died there.
pub(crate) async fn crash_at_each(
    calls: &[(&str, usize, usize)],
    many: usize,
    deaths: usize,
    crash_at: impl AsyncFn(&str, usize) -> bool,
) {
    let (mut died, all) = (0, calls.len() * many);
    for (call, first, step) in calls {
        for n in 0..many {
            died += usize::from(crash_at(call, first + n * step).await);
        }
    }
    println!("N = {all} crash points, the node died at {died}");
    assert!(died >= deaths, "only {died} of {all} points killed anything");
}

/// The short run: a few deliveries to each source, some twice; ends when the node does, or when all events have ended.
pub(crate) async fn short_run(world: &mut World) -> Vec<Delivered> {
    let (client, odd) = (reqwest::Client::builder().timeout(RUN).build().unwrap(), Mutex::default());
    let (to, mut acked) = (world.house.url(""), Vec::new());
    for number in [0, 1, 0] {
        for source in SOURCES {
            let one = Delivered { source, number, event: String::new() };
            if let Some(event) = deliver(&client, &to, &one, &odd).await {
                acked.push(Delivered { event, ..one });
            }
        }
    }
    let start = Instant::now();
    while !world.house.has_ended() && !world.house.sql("select 1 from events where ended_at is null").is_empty() {
        assert!(start.elapsed() < RUN, "a traced node is stuck: {}", world.house.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(odd.lock().unwrap().is_empty(), "{odd:?}");
    acked
}

/// How often the node's threads make each of the calls in a whole run, including start and exit.
async fn survey() -> Vec<Point> {
    let mut world = World::new("2s", "0.01").await;
    let command = traced(&world.house, &[format!("-etrace={}", CALLS.join(","))]);
    world.house.try_start_by(command).unwrap_or_else(|said| panic!("strace is needed, and it did not run: {said}"));
    let pid = world.house.pid().as_raw_nonzero().to_string();
    short_run(&mut world).await;
    world.check(&[]);
    world.house.stop();
    let mut most: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in world.house.lines("trace") {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim().split_once('(') else { continue };
        *most.entry((call.to_owned(), thread.to_owned())).or_default() += 1;
    }
    let most_of = |call: &str| most.iter().filter(|((of, _), _)| of == call).map(|(_, count)| *count).max();
    assert!(most.keys().any(|(_, thread)| *thread == pid), "the trace is not the node's");
    CALLS.into_iter().flat_map(|call| (1..=most_of(call).unwrap_or(0)).map(move |nth| Point { call, nth })).collect()
}

/// Kills the node there, starts another, and checks. Returns whether the node died there.
async fn crash_at(point: Point) -> bool {
    let mut world = World::new("2s", "0.01").await;
    let Point { call, nth } = point;
    let mut acked = Vec::new();
    if world.house.try_start_by(killed_at(&world.house, call, nth)).is_ok() {
        acked = short_run(&mut world).await;
        if !world.house.has_ended() {
            world.house.signal(rustix::process::Signal::TERM);
        }
        world.house.wait();
    }
    let died = world.house.lines("trace").iter().any(|line| line.contains("killed by SIGKILL"));
    world.deserted().await;
    world.house.start();
    world.settle().await;
    println!("{call} {nth}: {} acked", acked.len()); // shown if the test fails
    world.check(&acked);
    died
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_or_sync_loses_nothing_and_doubles_nothing() {
    let start = Instant::now();
    let points = survey().await;
    let wanted = rounds(120, points.len()).min(points.len());
    // Spread evenly over all of them.
    let chosen: Vec<Point> = (0..wanted).map(|i| points[i * points.len() / wanted]).collect();
    let next = std::sync::Arc::new(Mutex::new(chosen.into_iter()));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let next = next.clone();
            tokio::spawn(async move {
                let mut died = 0;
                loop {
                    let Some(point) = next.lock().unwrap().next() else { return died };
                    died += usize::from(crash_at(point).await);
                }
            })
        })
        .collect();
    let mut died = 0;
    for worker in workers {
        died += worker.await.unwrap();
    }
    println!(
        "N = {wanted} of {} crash points, a process died at {died}, in {:.0?}: lost 0, stuck 0, double under hold 0",
        points.len(),
        start.elapsed()
    );
    assert!(died * 10 >= wanted * 8, "only {died} of {wanted} points killed anything");
}
