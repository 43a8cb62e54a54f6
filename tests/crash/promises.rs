//! A node with four sources, one for each guarantee, and the check that all guarantees were kept.
//!
//! `again`: a command, retried after a crash · `held`: a command, at most once · `noted`: only recorded · `sent`:
//! forwarded, one of each group at a time, to a receiver that honours `Idempotency-Key` and goes on when its caller
//! dies.

use crate::receiver::Receiver;
use crate::support::{House, PATIENCE};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The paths deliveries go to.
pub(crate) const SOURCES: [&str; 4] = ["again", "held", "noted", "sent"];

/// The number of groups among which deliveries are spread. A receiver works on one of each at a time.
const GROUPS: u64 = 6;

/// A command that records when it begins and ends, and whether an earlier command of its event is still running. A
/// process that has ended has no environment any more.
const ACT: &str = r#"me=$HOOKONCE_EVENT
for old in pids/$me.*; do
    [ -e "$old" ] && grep -qsa "HOOKONCE_EVENT=$me" "/proc/${old##*.}/environ" && echo "$me $$ ${old##*.}" >> overlaps
done
: > "pids/$me.$$"
echo "$HOOKONCE_FIELD_N $me $HOOKONCE_ATTEMPT $$" >> "begun.$1"
case $HOOKONCE_FIELD_N in
    again-*3) sleep 0.4 ;; # longer than a node takes to come back: it would be there still, if its guard let it
    *) sleep "$2" ;;
esac
echo "$HOOKONCE_FIELD_N $me $HOOKONCE_ATTEMPT $$" >> "ended.$1"
rm "pids/$me.$$"
"#;

/// The config of these sources.
pub(crate) fn config(receiver: u16, lease: &str, takes: &str) -> String {
    let source = |source: &str| {
        let retry = "retry = { attempts = 60, first = \"50ms\", longest = \"400ms\" }\n";
        let run = format!("at_once = 4\nrun = {{ steps = [\"sh ./act {source} {takes}\"] }}\n");
        let route = match source {
            "again" => format!("{retry}{run}"),
            "held" => format!("in_doubt = \"hold\"\n{run}"),
            "sent" => format!(
                "group = [\"g\"]\n{retry}forward = {{ url = \"http://127.0.0.1:{receiver}/\", timeout = \"5s\" }}\n"
            ),
            _ => String::new(),
        };
        format!(
            "[source.{source}]\npath = \"/{source}\"\nverify = \"none\"\ndelivery = \"header.x-id\"\n\
             [source.{source}.fields]\nn = \"body.n\"\ng = \"body.g\"\n[[source.{source}.route]]\nlease = \"{lease}\"\n{route}"
        )
    };
    format!("store = \"sqlite:hookonce.db\"\n{}", SOURCES.map(source).concat())
}

/// A delivery: its source and number, and the event in its response, if there was one.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) source: &'static str,
    pub(crate) number: u64,
    pub(crate) event: String,
}

impl Delivered {
    pub(crate) fn body(&self) -> String {
        format!("{{\"n\":\"{}-{}\",\"g\":\"{}\"}}", self.source, self.number, self.number % GROUPS)
    }
}

/// The node and its receiver.
pub(crate) struct World {
    pub(crate) house: House,
    pub(crate) receiver: Receiver,
}

/// The figures found. Every one that must be zero is checked.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) acked: usize,
    pub(crate) unacked_but_there: usize,
    pub(crate) held_done: usize,
    pub(crate) held_in_doubt: usize,
    pub(crate) again_starts: usize,
    pub(crate) again_events: usize,
    pub(crate) calls: usize,
    pub(crate) effects: usize,
}

impl World {
    pub(crate) async fn new(lease: &str, takes: &str) -> Self {
        let receiver = Receiver::new().await;
        let house = House::empty(&config(receiver.port, lease, takes));
        fs::create_dir(house.path("pids")).unwrap();
        fs::write(house.path("act"), ACT).unwrap();
        Self { house, receiver }
    }

    /// Waits until every event has ended; otherwise reports which has not.
    pub(crate) async fn settle(&self) {
        let start = Instant::now();
        let open = "select source || ' ' || state || ' ' || hex(id) from events where ended_at is null";
        loop {
            let left = self.house.sql(open);
            if left.is_empty() {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{} events are stuck: {left:?}\n{}", left.len(), self.house.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until no process runs in the folder any more; returns how long that took.
    pub(crate) async fn deserted(&self) -> Duration {
        deserted(&self.house).await
    }

    /// Checks that every guarantee was kept; `acked` is every 2xx response.
    pub(crate) fn check(&self, acked: &[Delivered]) -> Figures {
        let ends = self.ends();
        let mut figures = Figures { acked: acked.len(), ..Figures::default() };
        let answered: HashSet<String> = acked.iter().map(|one| format!("{}-{}", one.source, one.number)).collect();
        for one in acked {
            let (event, end) = ends
                .get(&format!("{}-{}", one.source, one.number))
                .unwrap_or_else(|| panic!("lost: {one:?} got a 2xx"));
            assert_eq!(*event, one.event, "{one:?} is another event than in its response");
            let held = one.source == "held" && *end == "dead in_doubt";
            assert!(end.starts_with("done") || held, "{one:?} ended {end}");
        }
        figures.unacked_but_there = ends.keys().filter(|number| !answered.contains(*number)).count();
        assert_eq!(self.house.lines("overlaps"), [""; 0], "two commands of one event ran at once");
        self.check_held(&ends, &mut figures);
        self.check_again(&ends, &mut figures);
        self.check_sent(&ends, &mut figures);
        assert_eq!(self.house.sql("pragma integrity_check"), ["ok"]);
        figures
    }

    /// By `n`: the event and how it ended. No two events have the same `n`.
    fn ends(&self) -> HashMap<String, (String, String)> {
        let rows = self.house.sql("select n || ' ' || lower(hex(id)) || ' ' || state || ' ' || cause from events");
        let mut ends = HashMap::new();
        for row in rows {
            let (n, rest) = row.split_once(' ').unwrap();
            let (id, end) = rest.split_once(' ').unwrap();
            let event = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
            let earlier = ends.insert(n.to_owned(), (event, end.to_owned()));
            assert!(earlier.is_none(), "{n} is two events");
        }
        ends
    }

    /// How often each `n` occurs in this file.
    fn counted(&self, file: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.house.lines(file) {
            *counts.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
        counts
    }

    fn check_held(&self, ends: &HashMap<String, (String, String)>, figures: &mut Figures) {
        let (begun, ended) = (self.counted("begun.held"), self.counted("ended.held"));
        let twice: Vec<_> = begun.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "acted on twice under hold: {twice:?}");
        for (n, (_, end)) in ends.iter().filter(|(n, _)| n.starts_with("held")) {
            match &**end {
                "done acted" => {
                    figures.held_done += 1;
                    assert!(ended.contains_key(n), "{n} is done, but its command did not end");
                }
                _ => figures.held_in_doubt += 1,
            }
        }
    }

    fn check_again(&self, ends: &HashMap<String, (String, String)>, figures: &mut Figures) {
        let (begun, ended) = (self.counted("begun.again"), self.counted("ended.again"));
        figures.again_starts = begun.values().sum();
        for (n, (_, end)) in ends.iter().filter(|(n, _)| n.starts_with("again")) {
            figures.again_events += 1;
            assert_eq!(end, "done acted", "{n}");
            assert!(ended.contains_key(n), "{n} is done, but its command did not end");
        }
    }

    fn check_sent(&self, ends: &HashMap<String, (String, String)>, figures: &mut Figures) {
        let took = self.receiver.took();
        (figures.calls, figures.effects) = (took.calls, took.effects.len());
        assert_eq!(took.mixed_up, 0, "one key came with two bodies");
        assert_eq!(took.overlaps, [""; 0], "the receiver got two of one group at once");
        let mut effects: HashMap<String, usize> = HashMap::new();
        for body in took.effects.values() {
            let body: serde_json::Value = serde_json::from_slice(body).unwrap();
            *effects.entry(body["n"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        for (n, (event, end)) in ends.iter().filter(|(n, _)| n.starts_with("sent")) {
            assert_eq!(end, "done acted", "{n}");
            assert_eq!(effects.get(n), Some(&1), "effects of {n}");
            assert!(took.effects.contains_key(event), "{n} was sent under another key");
        }
    }
}

/// The processes with their working directory in this folder, without zombies.
pub(crate) fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().unwrap();
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.flatten()
        .filter(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder)))
        .map(|process| {
            let line = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            format!("{} {}", process.file_name().to_string_lossy(), line.replace('\0', " "))
        })
        .collect()
}

/// Waits until no process runs in this folder; returns how long that took.
pub(crate) async fn deserted(house: &House) -> Duration {
    let start = Instant::now();
    loop {
        let left = processes_in(house.dir.path());
        if left.is_empty() {
            return start.elapsed();
        }
        assert!(start.elapsed() < PATIENCE, "processes outlive their node: {left:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
