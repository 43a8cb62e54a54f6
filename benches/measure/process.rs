//! What a process and all its descendants use: CPU time, memory and bytes written, from `/proc`.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

/// A process and all its descendants: a server with its workers and the commands that it runs.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTree(pub u32);

/// Between two looks at a server that may be quiet.
const LOOK: Duration = Duration::from_millis(150);
/// A server that uses less than this between two looks, twice, has nothing left to do.
const QUIET: Used = Used { cpu: Duration::from_millis(20), written: 128 << 10 };
/// How long to wait for that at most: a store's server may have work for minutes.
const QUIET_PATIENCE: Duration = Duration::from_secs(3);

/// What a server has used so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used {
    /// CPU time, of ended threads and children too.
    pub cpu: Duration,
    /// Bytes that it caused to be written to a disk, in whole pages; what goes into memory alone does not count.
    pub written: u64,
}

impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, written: self.written + other.written }
    }
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), written: self.written.saturating_sub(before.written) }
    }
}

/// What servers have used once they have nothing left to do: what they do behind, such as merging, counts too.
pub async fn used_when_quiet<const N: usize>(look: impl Fn() -> [Used; N]) -> [Used; N] {
    let (mut used, mut quiet, begun) = (look(), 0, Instant::now());
    while quiet < 2 && begun.elapsed() < QUIET_PATIENCE {
        tokio::time::sleep(LOOK).await;
        let now = look();
        let all = |used: [Used; N]| used.into_iter().fold(Used::default(), Used::add);
        let more = all(now) - all(used);
        quiet = if more.cpu < QUIET.cpu && more.written < QUIET.written { quiet + 1 } else { 0 };
        used = now;
    }
    used
}

/// What `/proc/PID/stat` says of one process.
struct ProcessStat {
    is_zombie: bool,
    parent: u32,
    /// Clock ticks of its own threads, the ended ones among them, and of its ended children.
    ticks: u64,
}

impl ProcessTree {
    /// What it has used so far.
    pub fn used(self) -> Used {
        let members = self.members();
        let ticks: u64 = members.values().map(|stat| stat.ticks).sum();
        let cpu = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
        Used { cpu, written: members.keys().map(|id| written(*id)).sum() }
    }

    /// Private memory, and the share of shared memory, in MiB.
    pub fn memory(self) -> f64 {
        self.members().keys().map(|id| pss(*id)).sum()
    }

    /// Whether its first process has ended.
    pub fn ended(self) -> bool {
        stat(self.0).is_none_or(|stat| stat.is_zombie)
    }

    fn members(self) -> BTreeMap<u32, ProcessStat> {
        let mut others = all();
        let mut members: BTreeMap<_, _> = others.remove_entry(&self.0).into_iter().collect();
        loop {
            let children: Vec<_> =
                others.iter().filter(|(_, stat)| members.contains_key(&stat.parent)).map(|(id, _)| *id).collect();
            if children.is_empty() {
                return members;
            }
            members.extend(children.iter().filter_map(|id| others.remove_entry(id)));
        }
    }
}

/// Private memory of one process, and its share of shared memory, in MiB.
pub fn pss(id: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    let pss = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: f64 = pss.and_then(|pss| pss.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}

/// Bytes that one process, its ended threads and its ended children caused to be written.
fn written(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(0)
}

fn all() -> BTreeMap<u32, ProcessStat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, stat(id)?))).collect()
}

/// `None` once it has ended.
fn stat(id: u32) -> Option<ProcessStat> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Its name is in brackets, and may hold anything.
    let words: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let ticks = [11, 12, 13, 14].into_iter().filter_map(number).sum();
    Some(ProcessStat { is_zombie: words.first() == Some(&"Z"), parent: words.get(1)?.parse().ok()?, ticks })
}
