//! Single bits flipped in a store at rest: no panic, nothing runs with a wrong body, and damage is reported.

use crate::receiver::Receiver;
use crate::rounds;
use crate::seed::{self, Random};
use crate::support::House;
use hookonce::decide::id::{Digest, EventId};
use hookonce::decide::time::Timestamp;
use hookonce::store::clock::StoreClock;
use hookonce::store::conformance::making;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{Store, StoreBackend};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of waiting events: some for a command, some to be forwarded.
const EVENTS: usize = 8;
/// How long a node has for due events. It takes a few milliseconds, unless the machine is busy.
const SETTLES: Duration = Duration::from_mins(2);

fn config(receiver: u16) -> String {
    let retry = "retry = { attempts = 3, first = \"20ms\", longest = \"20ms\" }\n";
    format!(
        "store = \"sqlite:hookonce.db\"\n[source.source]\nverify = \"none\"\n[[source.source.route]]\n{retry}\
         run = {{ steps = ['echo $HOOKONCE_EVENT $(sha256sum) >> acted'] }}\n[source.sent]\nverify = \"none\"\n\
         [[source.sent.route]]\n{retry}forward = {{ url = \"http://127.0.0.1:{receiver}/\" }}\n"
    )
}

/// A store at rest: its files, and the body of each event.
struct AtRest {
    files: Vec<(&'static str, Vec<u8>)>,
    bodies: HashMap<EventId, Vec<u8>>,
}

/// Where the events are. `InLog`: nothing has been moved from the WAL into the database, as after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lies {
    InDatabase,
    InLog,
}

async fn at_rest(lies: Lies) -> AtRest {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hookonce.db");
    let mut bodies = HashMap::new();
    let store = SqliteStore::open(&path, SqliteAccess::Node).unwrap();
    for n in 0..EVENTS {
        let body: Vec<u8> = (0..1500 + 700 * n).map(|byte| (byte * 31 + byte / 97 + n).to_be_bytes()[7]).collect();
        let source = if n % 4 == 0 { "source" } else { "sent" };
        let one = making().source(source).delivery(&format!("d{n}")).carrying(body.clone());
        bodies.insert(one.id(), body);
        store.claim(vec![one.made(store.now()).into()]).await.unwrap();
    }
    let names = match lies {
        Lies::InDatabase => {
            drop(store);
            &["hookonce.db", "hookonce.db.lock"][..]
        }
        Lies::InLog => &["hookonce.db", "hookonce.db-wal", "hookonce.db.lock"],
    };
    AtRest { files: names.iter().map(|name| (*name, std::fs::read(dir.path().join(name)).unwrap())).collect(), bodies }
}

/// The results of the events of one damaged store.
#[derive(Default, Debug, Clone, Copy)]
struct Sums {
    refused: usize,
    broke: usize,
    acted: usize,
    damaged: usize,
    later: usize,
    postponed: usize,
    unheard_of: usize,
    twice: usize,
}

/// The state of one event.
#[derive(Debug)]
struct Standing {
    state: String,
    /// Whether it waits for a time far away, by the store's clock. That clock continues from the latest stored time,
    /// which a flipped bit may have made.
    postponed: bool,
}

impl Standing {
    fn is_over(&self) -> bool {
        self.state.starts_with('d')
    }
}

/// The states of all events; `None`: they cannot be read.
fn standing(path: &Path) -> Option<Vec<Standing>> {
    let db = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    let sql = "select state || coalesce(' ' || cause, ''), \
               coalesce(wake_at - max(?1, (select max(max(received_at), coalesce(max(ended_at), 0)) from events)), 0) \
               from events";
    let mut rows = db.prepare(sql).ok()?;
    let wall = StoreClock::wall(Timestamp::default()).now().0;
    let far = i64::try_from((2 * SETTLES).as_micros()).unwrap();
    let one = |row: &rusqlite::Row<'_>| Ok(Standing { state: row.get(0)?, postponed: row.get::<_, i64>(1)? > far });
    rows.query_map([wall], one).ok()?.collect::<Result<_, _>>().ok()
}

async fn start_on(files: &[(&str, Vec<u8>)], bodies: &HashMap<EventId, Vec<u8>>, what: &str) -> Sums {
    let receiver = Receiver::new().await;
    let mut house = House::empty(&config(receiver.port));
    for (name, bytes) in files {
        std::fs::write(house.path(name), bytes).unwrap();
    }
    let mut sums = Sums::default();
    if let Err(said) = house.try_start() {
        assert!(said.contains("exit status: 2") && said.contains("error: "), "{what}: {said}");
        assert!(!said.contains("panicked"), "{what}: {said}");
        sums.refused = 1;
        return sums;
    }
    let start = Instant::now();
    let path = house.path("hookonce.db");
    // Events that wait for a time far away are not waited for.
    let over = |rows: &[Standing]| rows.iter().all(|one| one.is_over() || one.postponed);
    while !house.has_ended() && start.elapsed() < SETTLES && !standing(&path).is_some_and(|rows| over(&rows)) {
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    let ended = house.has_ended();
    let rows = standing(&path).unwrap_or_default();
    let log = house.log();
    assert!(!log.contains("panicked"), "{what}: {log}");
    if ended {
        let (status, said) = house.wait();
        assert_eq!(status.code(), Some(2), "{what}: {said}");
        sums.broke = 1;
    } else {
        house.kill();
    }
    let took = receiver.took();
    assert_eq!(took.mixed_up, 0, "{what}");
    let mut acted: HashMap<String, usize> = HashMap::new();
    let known: HashMap<String, &Vec<u8>> = bodies.iter().map(|(id, body)| (id.to_string(), body)).collect();
    for line in house.lines("acted") {
        let (event, digest) = line.split_once(' ').unwrap();
        let body = known.get(event).unwrap_or_else(|| panic!("{what}: acted on {event}, which was not sent"));
        let sent = hex::encode(Digest::of(body).0);
        assert!(digest.starts_with(&sent), "{what}: acted on {event} with another body");
        *acted.entry(event.to_owned()).or_default() += 1;
    }
    for (event, body) in &took.effects {
        let sent = known.get(event).unwrap_or_else(|| panic!("{what}: acted on {event}, which was not sent"));
        assert!(*sent == body, "{what}: acted on {event} with another body");
        *acted.entry(event.clone()).or_default() += 1;
    }
    sums.acted = acted.len();
    sums.twice = acted.values().filter(|count| **count > 1).count();
    if !ended {
        sums.damaged = rows.iter().filter(|one| one.state == "dead damaged").count();
        let open: Vec<_> = rows.iter().filter(|one| !one.is_over()).collect();
        sums.postponed = open.iter().filter(|one| one.postponed).count();
        sums.later = open.len() - sums.postponed;
        sums.unheard_of = EVENTS.saturating_sub(sums.acted + sums.damaged + sums.later + sums.postponed);
        if sums.later + sums.unheard_of + sums.postponed > 0 {
            println!("{what}: {sums:?} {rows:?}\n{log}");
        }
    }
    sums
}

/// Flips this many bits, each in a copy of the store: any bit of the bytes that `may_be_hit` selects.
async fn flip(lies: Lies, flips: usize, may_be_hit: impl Fn(u8) -> bool) -> Sums {
    let mut random = Random::new(seed::any());
    let rest = Arc::new(at_rest(lies).await);
    let spoilt = rest.files.iter().position(|(name, _)| name.ends_with("wal") == (lies == Lies::InLog)).unwrap();
    let bytes: Vec<_> = (0..).zip(&rest.files[spoilt].1).filter(|(_, byte)| may_be_hit(**byte)).collect();
    let mut any = || (bytes[usize::try_from(random.below(bytes.len() as u64)).unwrap()].0, random.below(8));
    let places: Vec<(usize, u64)> = (0..flips).map(|_| any()).collect();
    let next = Arc::new(Mutex::new(places.into_iter()));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (next, rest) = (next.clone(), rest.clone());
            tokio::spawn(async move {
                let mut all = Vec::new();
                loop {
                    let Some((byte, bit)) = next.lock().unwrap().next() else { return all };
                    let mut files = rest.files.clone();
                    files[spoilt].1[byte] ^= 1 << bit;
                    let what = format!("bit {bit} of byte {byte} of {}", files[spoilt].0);
                    all.push(start_on(&files, &rest.bodies, &what).await);
                }
            })
        })
        .collect();
    let mut sums = Sums::default();
    for worker in workers {
        for one in worker.await.unwrap() {
            sums.refused += one.refused;
            sums.broke += one.broke;
            sums.acted += one.acted;
            sums.damaged += one.damaged;
            sums.later += one.later;
            sums.postponed += one.postponed;
            sums.unheard_of += one.unheard_of;
            sums.twice += one.twice;
        }
    }
    println!("N = {flips} bits flipped, {lies:?}, {EVENTS} events each: wrong body 0, panics 0; {sums:?}");
    sums
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_flipped_in_the_database_never_runs_the_wrong_thing() {
    let sums = flip(Lies::InDatabase, rounds(300, 2000), |_| true).await;
    assert_eq!((sums.unheard_of, sums.later, sums.postponed), (0, 0, 0), "{sums:?}");
    assert!(sums.damaged > 0 && sums.acted > 1000, "{sums:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_flipped_in_the_wal_never_loses_an_event_silently() {
    let sums = flip(Lies::InLog, rounds(100, 1000), |_| true).await;
    assert_eq!((sums.unheard_of, sums.later, sums.postponed), (0, 0, 0), "{sums:?}");
    assert!(sums.refused > 0, "{sums:?}");
}

/// SQLite keeps definitions as text: a line break that is lost may take the next column into a comment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_flipped_at_a_line_break_of_a_definition_never_acts_on_a_misread_row() {
    let sums = flip(Lies::InDatabase, rounds(60, 1000), |byte| byte == b'\n').await;
    assert_eq!((sums.unheard_of, sums.later, sums.postponed, sums.twice), (0, 0, 0, 0), "{sums:?}");
    assert!(sums.refused > 0, "{sums:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_source_or_route_is_corrupt_is_damaged_and_does_not_wait_for_that_route() {
    let rest = at_rest(Lies::InDatabase).await;
    for rot in ["source = 'sdurce'", "route = '3'"] {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &rest.files {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        let path = dir.path().join("hookonce.db");
        let one = rest.bodies.keys().min().unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(db.execute(&format!("update events set {rot} where id = ?1"), [one.0]).unwrap(), 1);
        drop(db);
        let files: Vec<_> =
            rest.files.iter().map(|(name, _)| (*name, std::fs::read(dir.path().join(name)).unwrap())).collect();
        let sums = start_on(&files, &rest.bodies, rot).await;
        assert_eq!((sums.damaged, sums.acted), (1, EVENTS - 1), "{rot}: {sums:?}");
    }
}
