//! The same random history gives the same answers in memory and in SQLite. Few keys, subjects and groups, so that
//! everything collides with everything.

use super::due;
use hookonce::decide::change::Tried;
use hookonce::decide::claim::{Claim, Counts, New, Same};
use hookonce::decide::event::{Blocks, Event, Outcome, Receipt, Step};
use hookonce::decide::id::{EventId, Node, Turn};
use hookonce::decide::retry::{Jitter, Retry};
use hookonce::decide::source::{InDoubt, Keep, Kept, Route};
use hookonce::decide::time::Duration;
use hookonce::store::clock::Clock;
use hookonce::store::contract::{Making, imported, making};
use hookonce::store::memory::Memory;
use hookonce::store::sqlite::{Access, Sqlite};
use hookonce::store::{Advance, Keeps, Listing, Note, Removal, Sighting, Store};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const STEPS: usize = 300;
const SEEDS: u64 = 40;

/// Xorshift: the same numbers from the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }
}

/// Whether SQLite is closed and opened on the way. A turn is then only worth its order.
#[derive(Clone, Copy, PartialEq)]
enum Reopens {
    Never,
    Sometimes,
}

struct Both {
    dice: Dice,
    reopens: Reopens,
    path: PathBuf,
    clock: Clock,
    memory: Memory,
    sqlite: Option<Sqlite>,
    ids: Vec<EventId>,
    made: Vec<New>,
    seen: Vec<Event>,
    answers: BTreeMap<&'static str, u32>,
}

/// Only a claim that is written is given a turn.
fn without_turn(mut claim: Claim) -> Claim {
    if let Claim::New { event, .. } | Claim::Duplicate { event, .. } = &mut claim {
        event.turn = Turn(0);
    }
    claim
}

impl Both {
    fn sqlite(&self) -> &Sqlite {
        self.sqlite.as_ref().unwrap()
    }

    fn count(&mut self, answer: &'static str) {
        *self.answers.entry(answer).or_default() += 1;
    }

    fn plain(&self, mut event: Event) -> Event {
        if self.reopens == Reopens::Sometimes {
            event.turn = Turn(0);
        }
        event
    }

    fn same_events(&self, ours: Vec<Event>, theirs: Vec<Event>) {
        let plain = |events: Vec<Event>| events.into_iter().map(|event| self.plain(event)).collect::<Vec<_>>();
        assert_eq!(plain(ours), plain(theirs));
    }

    fn making(&mut self) -> Making {
        let dice = &mut self.dice;
        let mut made = making().source(["a", "b"][dice.roll(2)]);
        if dice.roll(4) > 0 {
            made = made.delivery(["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"][dice.roll(8)]);
        }
        made = match dice.roll(3) {
            0 => made.body(dice.one(&["b1", "b2", "b3", "b4", "b5", "b6"])),
            1 => made.carrying("carried"),
            _ => made,
        };
        if dice.roll(4) == 0 {
            made = made.named(["n1", "n2", "n3"][dice.roll(3)]);
        }
        if dice.roll(8) == 0 {
            made = made.known_as(dice.one(&["i1", "i2"]), dice.one(&[Counts::Always, Counts::WhileRegisterEmpty]));
        }
        let group = ["g1", "g2"][dice.roll(2)];
        if dice.roll(2) == 0 {
            let order = dice.one(&[None, Some(1), Some(2), Some(3), Some(3), Some(4)]);
            made = made.change(["s1", "s2", "s3"][dice.roll(3)], ["A", "B", "C"][dice.roll(3)], order);
        }
        if dice.roll(2) == 0 {
            made = made.group(group);
        }
        if dice.roll(5) == 0 {
            made = made.recorded();
        }
        made.kept(self.kept())
    }

    fn kept(&mut self) -> Kept {
        let keys = self.dice.one(&[Keep::For(DAY), Keep::For(3 * DAY), Keep::Forever]);
        Kept { keys, body: self.dice.one(&[Duration::ZERO, DAY / 2, 2 * DAY]) }
    }

    async fn claim(&mut self) {
        let mut batch = Vec::new();
        for _ in 0..=self.dice.roll(3) {
            let again = self.dice.roll(10) == 0 && !self.made.is_empty();
            let new = if again { self.dice.one(&self.made) } else { self.making().made(self.clock.now()) };
            self.made.push(new.clone());
            batch.push(new);
        }
        let foreseen = self.sqlite().foresee(vec![batch[0].clone()]).await.unwrap();
        let ours = self.memory.claim(batch.clone()).await.unwrap();
        let theirs = self.sqlite().claim(batch).await.unwrap();
        assert_eq!(ours.len(), theirs.len());
        assert_eq!(foreseen.into_iter().map(without_turn).next(), theirs.first().cloned().map(without_turn));
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            let (word, event) = match &ours {
                Claim::New { event, .. } => ("new", Some(event.clone())),
                Claim::Duplicate { instead: true, event, .. } => ("instead", Some(event.clone())),
                Claim::Duplicate { event, .. } => ("duplicate", Some(event.clone())),
                Claim::Imported { .. } => ("imported", None),
                Claim::Stale { .. } => ("stale", None),
                Claim::Again => ("again", None),
            };
            self.count(word);
            assert_eq!(self.plain_claim(ours), self.plain_claim(theirs));
            if let Some(event) = event {
                self.ids.push(event.id);
                self.seen.push(*event);
            }
        }
    }

    fn plain_claim(&self, claim: Claim) -> Claim {
        match claim {
            Claim::New { event, now } => Claim::New { event: Box::new(self.plain(*event)), now },
            Claim::Duplicate { event, same, instead, now } => {
                Claim::Duplicate { event: Box::new(self.plain(*event)), same, instead, now }
            }
            other => other,
        }
    }

    fn step(&mut self) -> Step {
        let dice = &mut self.dice;
        let blocks = Blocks(dice.roll(4) as u64);
        let jitter = Jitter(u32::try_from(dice.roll(1 << 20)).unwrap() << 12);
        let receipt = Some(Receipt { status: 418, headers: vec![], body: vec![b'x'; dice.roll(9)], cut: false });
        let outcome = match dice.roll(4) {
            0 => Outcome::Delivered(receipt),
            1 => Outcome::Failed { why: "no".into(), retry_after: None, receipt: None },
            2 => Outcome::Rejected { why: "never".into(), receipt },
            _ => Outcome::Unknown { why: "who knows".into() },
        };
        match dice.roll(16) {
            0..5 => Step::Start { lasts: Duration::from_secs(30), by: Node("n".into()) },
            5..9 => Step::Settle { outcome, blocks, jitter },
            9 => Step::Renew { lasts: Duration::from_secs(30), blocks },
            10 => Step::HandBack,
            11 => Step::Expire { jitter },
            12 => Step::Rearm,
            13 => Step::Replay,
            14 => dice.one(&[Step::Cancel, Step::Damage]),
            _ => dice.one(&[Step::SetAside { lasts: DAY }, Step::Rejoin]),
        }
    }

    async fn advance(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let id = self.dice.one(&self.ids);
        let now = self.memory.get(id).await.unwrap();
        self.same_events(now.iter().cloned().collect(), self.sqlite().get(id).await.unwrap().into_iter().collect());
        let slept = self.dice.roll(8) == 0; // a node that slept writes over an old revision
        let Some(event) = (if slept { Some(self.dice.one(&self.seen)) } else { now }) else { return };
        let route = Route {
            retry: Retry { attempts: 2, first: Duration::from_secs(10), longest: Duration::from_mins(1) },
            in_doubt: self.dice.one(&[InDoubt::Retry, InDoubt::Hold]),
            ..Route::default()
        };
        let step = self.step();
        let settles = matches!(step, Step::Settle { .. } | Step::Expire { .. });
        let rearms = matches!(step, Step::Rearm);
        let Ok(mut change) = event.change(step, &route, self.clock.now()) else { return self.count("impossible") };
        if settles {
            change.attempt = Some(Tried {
                life: event.life,
                attempt: event.attempt,
                started_at: event.received_at,
                ended_at: self.clock.now(),
                outcome: "failed".into(),
                why: "no".into(),
                output: self.dice.one(&["", "output"]).into(),
            });
        }
        if rearms && self.dice.roll(2) == 0 {
            let arriving = making().carrying(self.dice.one(&["x", "y"])).made(self.clock.now());
            change.event.body_digest = arriving.event.body_digest;
            change.event.digest = change.event.seal();
            change.payload = Some(arriving.payload);
        }
        let ours = self.memory.advance(vec![change.clone()]).await.unwrap().remove(0);
        let theirs = self.sqlite().advance(vec![change]).await.unwrap().remove(0);
        match (ours, theirs) {
            (Advance::Written { event: ours, now: at }, Advance::Written { event: theirs, now }) => {
                assert_eq!(at, now);
                self.seen.push((*ours).clone());
                self.count(if ours.state.ended().is_some() { "ended" } else { "went on" });
                self.same_events(vec![*ours], vec![*theirs]);
            }
            (Advance::Lost, Advance::Lost) => self.count("lost"),
            (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
        }
    }

    async fn forget(&mut self) {
        let sources = [("a".into(), self.kept()), ("b".into(), self.kept())];
        let sources = sources.into_iter().take(1 + self.dice.roll(2)).collect();
        let keeps = Arc::new(Keeps { sources });
        let ours = self.memory.forget(keeps.clone(), 10_000).await.unwrap();
        assert_eq!(ours, self.sqlite().forget(keeps, 10_000).await.unwrap());
        for _ in 0..ours.events {
            self.count("forgotten");
        }
    }

    async fn remove(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let id = self.dice.one(&self.ids);
        let ours = self.memory.remove(id).await.unwrap();
        assert_eq!(ours, self.sqlite().remove(id).await.unwrap());
        if ours == Removal::Removed {
            self.count("removed");
        }
    }

    async fn look(&mut self) {
        let limit = self.dice.roll(20);
        let (ours, theirs) = (due(&self.memory, limit).await.unwrap(), due(self.sqlite(), limit).await.unwrap());
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            assert_eq!(ours.next, theirs.next);
            self.same_events(ours.events, theirs.events);
        }
        let listing = Listing {
            source: self.dice.one(&[None, Some("a".to_owned())]),
            state: self.dice.one(&[None, Some("waiting"), Some("done"), Some("dead")]).map(str::to_owned),
            before: if self.ids.is_empty() { None } else { Some(self.dice.one(&self.ids)) },
            limit: self.dice.roll(40),
            route: None,
            ..Listing::default()
        };
        let ours = self.memory.list(listing.clone()).await.unwrap();
        self.same_events(ours, self.sqlite().list(listing).await.unwrap());
        if self.ids.is_empty() {
            return;
        }
        let id = self.dice.one(&self.ids);
        let (mut ours, mut theirs) = (self.memory.story(id).await.unwrap(), self.sqlite().story(id).await.unwrap());
        for story in [&mut ours, &mut theirs].into_iter().flatten() {
            // Notes are written with the next write: both have seen the same, but not yet at the same time.
            (story.sightings, story.duplicates) = (Vec::new(), 0);
            story.event.turn = Turn(0);
        }
        assert_eq!(ours, theirs);
        assert_eq!(self.memory.payload(id).await.unwrap(), self.sqlite().payload(id).await.unwrap());
        let name = if self.dice.roll(2) == 0 { id.short() } else { "d1".into() };
        let ours = self.memory.named(name.clone(), 5).await.unwrap();
        self.same_events(ours, self.sqlite().named(name, 5).await.unwrap());
    }

    async fn note(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let sighting = Sighting { at: self.clock.now(), delivery_id: None, same: Same::Body };
        let note = vec![Note { event: self.dice.one(&self.ids), sighting }];
        self.memory.note(note.clone()).await.unwrap();
        self.sqlite().note(note).await.unwrap();
    }

    async fn import(&mut self) {
        let keys = vec![imported(self.dice.one(&["i1", "i2", "i3"]))];
        let ours = self.memory.import(keys.clone()).await.unwrap();
        assert_eq!(ours, self.sqlite().import(keys).await.unwrap());
    }

    fn open(&mut self) {
        drop(self.sqlite.take());
        self.sqlite = Some(Sqlite::open_by(&self.path, Access::Tool, Some(self.clock.clone())).unwrap());
    }

    async fn live(&mut self) {
        for _ in 0..STEPS {
            match self.dice.roll(32) {
                0..10 => self.claim().await,
                10..24 => self.advance().await,
                24 => self.forget().await,
                25..27 => self.look().await,
                27 => self.note().await,
                29 => self.import().await,
                28 if self.dice.roll(4) == 0 => self.remove().await,
                28 if self.reopens == Reopens::Sometimes => self.open(),
                _ => {
                    let length = [1, 1_000_000, 31_000_000, 3_600_000_000, 30_000_000_000][self.dice.roll(5)];
                    self.clock.advance(Duration::from_micros(length));
                }
            }
        }
    }
}

const DAY: Duration = Duration::from_hours(24);

/// A folder in memory where there is one: these tests sync thousands of times.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_same_history_gives_the_same_answers_in_memory_and_in_sqlite() {
    let dir = folder();
    let mut answers = BTreeMap::new();
    for seed in 1..=SEEDS {
        println!("seed {seed}"); // shown when it fails
        let clock = Clock::manual(crate::START);
        let mut both = Both {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            reopens: if seed % 2 == 0 { Reopens::Never } else { Reopens::Sometimes },
            path: dir.path().join(format!("{seed}.db")),
            memory: Memory::new(clock.clone()),
            clock,
            sqlite: None,
            ids: Vec::new(),
            made: Vec::new(),
            seen: Vec::new(),
            answers: BTreeMap::default(),
        };
        both.open();
        both.live().await;
        for (word, count) in both.answers {
            *answers.entry(word).or_insert(0) += count;
        }
    }
    println!("{answers:?}");
    for word in ["new", "duplicate", "instead", "imported", "stale", "ended", "went on", "lost", "forgotten", "removed"]
    {
        assert!(answers.get(word).is_some_and(|count| *count > 20), "the histories are too tame: {answers:?}");
    }
}
