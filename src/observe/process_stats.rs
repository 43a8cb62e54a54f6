//! Statistics of this process from the system, for the standard process metrics.

use crate::decide::time::Duration;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// The statistics now; `None` for what the system does not report.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ProcessStats {
    /// CPU time used.
    pub cpu: Option<Duration>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Virtual memory.
    pub virtual_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// The limit of open files.
    pub files_max: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// When it started, in seconds since the Unix epoch.
    pub started: Option<f64>,
}

impl ProcessStats {
    pub(super) fn read() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = u64::try_from(cpu.tv_sec).ok().zip(u32::try_from(cpu.tv_nsec).ok());
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let bytes = |name: &str| field(name).map(|kib| kib * 1024);
        Self {
            cpu: cpu.map(|(seconds, nanos)| Duration::new(seconds, nanos)),
            resident_bytes: bytes("VmRSS"),
            virtual_bytes: bytes("VmSize"),
            // The folder itself is open while it is read.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as u64),
            files_max: getrlimit(Resource::Nofile).current,
            threads: field("Threads"),
            started: started(),
        }
    }
}

/// When the process started: the boot time, plus the ticks since then.
fn started() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may contain any character.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some(boot + ticks / f64::from(per_second))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_reports_every_statistic_of_this_process() {
        let stats = ProcessStats::read();
        let counts = [stats.resident_bytes, stats.virtual_bytes, stats.open_files, stats.threads];
        assert!(counts.iter().all(|count| count.is_some_and(|count| count > 0)), "{stats:?}");
        assert!(stats.cpu.is_some() && stats.started.is_some_and(|at| at > 1e9), "{stats:?}");
    }
}
