//! What a process and all its descendants use: CPU time and memory, from `/proc`.

use std::collections::BTreeMap;
use std::time::Duration;

/// A process and all its descendants: a server with its workers and the commands that it runs.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTree(pub u32);

/// What `/proc/PID/stat` says of one process.
struct ProcessStat {
    is_zombie: bool,
    parent: u32,
    /// Clock ticks of its own threads, the ended ones among them, and of its ended children.
    ticks: u64,
}

impl ProcessTree {
    /// CPU time used so far, of ended children too.
    pub fn cpu(self) -> Duration {
        let ticks: u64 = self.members().values().map(|stat| stat.ticks).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
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
