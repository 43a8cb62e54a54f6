//! What a node on SQLite does behind, observed from outside: when it merged keys into their index, and when it moved the
//! WAL into the database.

use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// A merge begins when a fresh table has this many rows: half of `FRESH_ROWS_MAX` in `store/sqlite/fresh_index.rs`.
const MERGED_AT: i64 = if cfg!(debug_assertions) { 32 } else { 32_768 };
/// The fresh tables.
const FRESH: [&str; 2] = ["fresh_keys", "fresh_names"];
/// The name of the thread that moves the WAL into the database.
const CHECKPOINTER: &str = "sqlite-log";

/// What the node did between two looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Behind {
    pub merges: bool,
    pub checkpoints: bool,
}

/// Looks at a node until it is asked for what it saw.
pub struct Observer {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Duration, Behind)>>,
}

/// What was observed, in order: until then, this.
pub struct Phases(Vec<(Duration, Behind)>);

impl Observer {
    /// Observes the node with this process id and this file. Times count from `begun`.
    pub fn start(process: u32, file: &Path, begun: Instant) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (file, told) = (file.to_owned(), over.clone());
        Self { over, thread: std::thread::spawn(move || observe(process, &file, begun, &told)) }
    }

    pub fn end(self) -> Phases {
        self.over.store(true, Ordering::Relaxed);
        Phases(self.thread.join().expect("the observer ends"))
    }
}

impl Phases {
    /// What it did at some time between these two.
    pub fn between(&self, from: Duration, to: Duration) -> Behind {
        let first = self.0.partition_point(|(until, _)| *until < from);
        let last = self.0.partition_point(|(until, _)| *until < to).min(self.0.len().saturating_sub(1));
        let met = self.0.get(first..=last).unwrap_or_default();
        met.iter().fold(Behind::default(), |all, (_, behind)| Behind {
            merges: all.merges || behind.merges,
            checkpoints: all.checkpoints || behind.checkpoints,
        })
    }

    /// The share of the looks at which it did this.
    pub fn share(&self, what: fn(Behind) -> bool) -> f64 {
        self.0.iter().filter(|(_, behind)| what(*behind)).count() as f64 / self.0.len().max(1) as f64
    }
}

fn observe(process: u32, file: &Path, begun: Instant, over: &AtomicBool) -> Vec<(Duration, Behind)> {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the database opens");
    let checkpointer = thread(process, CHECKPOINTER).expect("the node has a thread for checkpoints");
    let (mut merges, mut used, mut seen) = ([None; 2], String::new(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        for (table, merge) in FRESH.iter().zip(&mut merges) {
            look_at_merge(&db, table, merge);
        }
        let now = std::fs::read_to_string(checkpointer.join("schedstat")).unwrap_or_default();
        let checkpoints = now != used && !used.is_empty() || waits_for_the_disk(&checkpointer);
        used = now;
        seen.push((begun.elapsed(), Behind { merges: merges.iter().any(Option::is_some), checkpoints }));
        std::thread::sleep(LOOK);
    }
    seen
}

/// A merge lasts from when the table has enough rows until all that there were then are gone from it.
fn look_at_merge(db: &Connection, table: &str, merge: &mut Option<i64>) {
    let sql = format!("select coalesce(min(n), 1), coalesce(max(n), 0) from {table}");
    // A table that cannot be read now is looked at again.
    let bounds = db.prepare_cached(&sql).and_then(|mut rows| rows.query_row([], |row| Ok((row.get(0)?, row.get(1)?))));
    let Ok((first, last)) = bounds else { return };
    let _: (i64, i64) = (first, last);
    match *merge {
        None if last - first + 1 >= MERGED_AT => *merge = Some(last),
        // An empty table begins anew.
        Some(up_to) if first > up_to || last < up_to => *merge = None,
        _ => {}
    }
}

/// Whether a thread is in an uninterruptible wait.
fn waits_for_the_disk(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D'))
}

/// The folder in `/proc` of a thread of this name.
fn thread(process: u32, name: &str) -> Option<PathBuf> {
    let mut threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten().map(|entry| entry.path());
    threads.find(|thread| std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name))
}
