//! A full disk, and a disk whose syncs fail.

use crate::crash_points::{short_run, traced};
use crate::promises::World;
use crate::rounds;
use crate::support::{House, PATIENCE, until};
use std::process::Command;
use std::time::{Duration, Instant};

/// A small tmpfs disk, mounted over a test's folder and unmounted before that is removed.
pub(crate) struct Disk {
    at: std::path::PathBuf,
}

impl Disk {
    /// `None`: only root may mount.
    pub(crate) fn over(house: &House, config: &str, size: &str) -> Option<Self> {
        let at = house.dir.path().to_owned();
        let size = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            println!("skipped: only root may mount a disk");
            return None;
        }
        house.configure(config);
        Some(Self { at })
    }

    pub(crate) fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.at).status().unwrap();
        assert!(done.success(), "cannot remount {how}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

const FULL: &str = r#"store = "sqlite:hookonce.db"
[source.noted]
path = "/noted"
verify = "none"
delivery = "header.x-id"
[source.held]
path = "/held"
verify = "none"
delivery = "header.x-id"
[[source.held.route]]
lease = "5s"
in_doubt = "hold"
run = { steps = ["until [ -e go ]; do sleep 0.02; done"] }
"#;

async fn send(house: &House, path: &str, id: &str, body: &str) -> u16 {
    let headers = [("x-id".to_owned(), id.to_owned()), ("content-type".to_owned(), "application/json".to_owned())];
    house.post(path, &headers, body.as_bytes()).await.unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_rejects_deliveries_loses_nothing_and_works_again_without_a_restart() {
    let mut house = House::empty(FULL);
    let Some(_disk) = Disk::over(&house, FULL, "12m") else { return };
    std::fs::write(house.path("filler"), vec![7; 8 << 20]).unwrap();
    house.start();
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(30_000));
    // These events wait for as long as the disk is full; the first few run meanwhile.
    for n in 0..20 {
        assert_eq!(send(&house, "/held", &format!("h{n}"), "{}").await, 202);
    }
    until("a command runs", || house.count("running") > 0).await;
    let (mut acked, mut refused) = (Vec::new(), Vec::new());
    for n in 0..400 {
        let id = format!("n{n}");
        match send(&house, "/noted", &id, &body).await {
            202 => acked.push(id),
            503 => {
                // Running commands end now: within their lease, which can no longer be renewed.
                std::fs::write(house.path("go"), "").unwrap();
                refused.push(id);
            }
            other => panic!("answered {other}"),
        }
        if refused.len() == 30 {
            break;
        }
    }
    assert!(acked.len() > 20 && refused.len() == 30, "{} accepted, {} not", acked.len(), refused.len());
    let ready = async || {
        let answer = house.ask("GET", "/readyz").await;
        (answer.status, answer.json()["reason"].as_str().unwrap_or("").to_owned())
    };
    assert_eq!(ready().await, (503, "store_not_writable".to_owned()));
    let full_since = Instant::now();
    tokio::time::sleep(Duration::from_secs(6)).await; // longer than the lease, with results that cannot be written
    assert_eq!(send(&house, "/noted", "still", &body).await, 503);
    let complaints = house.log().lines().filter(|line| line.contains("ERROR store")).count();
    std::fs::remove_file(house.path("filler")).unwrap();
    let full_for = full_since.elapsed();
    until("it accepts writes again", || house.sql("select 1").len() == 1).await;
    // No delivery has arrived yet: a load balancer waits for this before it sends any.
    let patience = Instant::now() + PATIENCE;
    while ready().await.0 != 200 {
        assert!(Instant::now() < patience, "it does not become ready again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(send(&house, "/noted", "after", &body).await, 202);
    house.quiet().await;
    assert_eq!(house.count("dead"), 0, "{}", house.log());
    assert_eq!(house.sql("select count(*) from events where source = 'held' and attempt = 1 and doubts = 0"), ["20"]);
    acked.push("after".into());
    let there = house.sql("select delivery_id from events where source = 'noted' order by id");
    assert_eq!(there, acked);
    assert!(complaints < 200, "{complaints} log lines in {full_for:.0?}");
    println!(
        "N = {} accepted, {} rejected while full for {full_for:.1?}: lost 0, half-written 0, {complaints} log lines",
        acked.len(),
        refused.len() + 1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_is_full_is_not_ready_before_anything_was_refused() {
    let mut house = House::empty(FULL);
    let Some(_disk) = Disk::over(&house, FULL, "12m") else { return };
    house.start();
    assert_eq!(house.ask("GET", "/readyz").await.status, 200);
    let mut filler = std::fs::File::create(house.path("filler")).unwrap();
    assert!(std::io::copy(&mut std::io::repeat(7), &mut filler).is_err(), "the disk does not fill up");
    drop(filler);
    let answer = house.ask("GET", "/readyz").await;
    assert_eq!((answer.status, &answer.json()["reason"]), (503, &"store_not_writable".into()));
    assert_eq!(house.ask("GET", "/healthz").await.status, 200);
    std::fs::remove_file(house.path("filler")).unwrap();
    assert_eq!(house.ask("GET", "/readyz").await.status, 200);
}

/// The nth sync fails, and all after it.
async fn sync_fails_at(nth: usize) -> usize {
    let mut world = World::new("2s", "0.01").await;
    let inject = format!("-einject=fsync,fdatasync:error=EIO:when={nth}+");
    let mut acked = Vec::new();
    let command = traced(&world.house, &["-etrace=fsync,fdatasync".into(), inject]);
    match world.house.try_start_by(command) {
        Ok(()) => {
            acked = short_run(&mut world).await;
            let start = Instant::now();
            if world.house.lines("trace").iter().any(|line| line.contains("INJECTED")) {
                let (status, said) = world.house.wait();
                assert_eq!(status.code(), Some(2), "sync {nth}: {said}");
                assert!(said.contains("ERROR broken") && said.contains("disk I/O error"), "sync {nth}: {said}");
                assert!(start.elapsed() < Duration::from_mins(1), "sync {nth}: it took {:?} to end", start.elapsed());
            } else {
                world.house.kill(); // the run was over before
            }
        }
        Err(said) => assert!(said.contains("exit status: 2") && said.contains("error: "), "sync {nth}: {said}"),
    }
    world.deserted().await;
    world.house.start();
    world.settle().await;
    world.check(&acked);
    acked.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_ends_the_node_and_nothing_that_was_acked_is_lost() {
    let points = rounds(24, 40);
    let mut acked = 0;
    for nth in 1..=points {
        acked += sync_fails_at(nth).await;
    }
    println!("N = {points} failing syncs, {acked} 2xx responses before them: lost 0, double under hold 0, stuck 0");
    assert!(acked > points, "{acked}");
}
