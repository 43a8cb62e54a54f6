//! Lists: whichever index a store uses, it finds what checking every event would find.

use super::{MINUTE, StoreUnderTest, delivered, failed, making, rejected};
use crate::decide::event::{Event, EventStep};
use crate::decide::id::EventId;
use crate::store::{DeclaredFields, EventQuery};

/// Pseudo-random numbers, the same for the same seed.
struct SeededRandom(u64);

impl SeededRandom {
    /// Seeded by `HOOKONCE_SEED`, else always the same. The seed is printed.
    fn seeded() -> Self {
        let given = std::env::var("HOOKONCE_SEED").ok();
        let given = given.map(|text| text.trim().parse().expect("HOOKONCE_SEED is a whole number"));
        let seed: u64 = given.unwrap_or(1);
        println!("seed {seed}; to repeat: HOOKONCE_SEED={seed}");
        // Nearby seeds start far apart, and none at 0, where this generator would stay.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 33) % sides as u64).expect("so few sides")
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }

    /// One of these in one of five cases.
    fn some_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (self.roll(5) == 0).then(|| self.one_of(all))
    }
}

const MANY: usize = 80;
const ASKED: usize = 250;
const SOURCES: &[&str] = &["a", "b", "ö'\"%_"];
const ROUTES: &[&str] = &["1", "two"];
const STATES: &[&str] = &["waiting", "running", "done", "dead"];
const CAUSES: &[&str] = &["acted", "recorded", "superseded", "failed", "rejected", "cancelled", "odd"];
/// Values as written in JSON: some that read alike, some that are escaped, and some that no PostgreSQL text can hold.
const VALUES: &[&str] = &[
    r#""latest""#,
    r#""LATEST É""#,
    r#""1""#,
    "1",
    "1.0",
    "true",
    r#""true""#,
    "9007199254740993",
    r#""say \"hi\" \\ 100%""#,
    r#""zero\u0000byte""#,
    r#""""#,
];
/// The same as text, and values that no event has.
const WRITTEN: &[&str] = &[
    "latest",
    "LATEST É",
    "latest é",
    "1",
    "1.0",
    "0",
    "true",
    "9007199254740993",
    "9007199254740992",
    "say \"hi\" \\ 100%",
    "zero\0byte",
    "",
    "%",
];
const TEXTS: &[&str] =
    &["latest", "TEST é", "1", "0074", "hi\" \\", "\"", "%", "_", "o\0b", "delivery-1", "-", "tag", "", "true"];
const NAMES: &[&str] = &["tag", "size", "it's \"x\"", "none"];

impl StoreUnderTest {
    /// Events of every kind, over some hours.
    async fn anything(&self, rolls: &mut SeededRandom) {
        for n in 0..MANY {
            self.wait(MINUTE * u32::try_from(rolls.roll(9)).expect("so few"));
            let json = format!(
                r#"{{"tag":{},"size":{},"it's \"x\"":{}}}"#,
                rolls.one_of(VALUES),
                rolls.one_of(VALUES),
                rolls.one_of(VALUES)
            );
            let mut made = making().dated(self.store.now()).fields(&json);
            made = made.source(rolls.one_of(SOURCES)).route(rolls.one_of(ROUTES));
            if rolls.roll(3) > 0 {
                made = made.delivery(&format!("Delivery-{n}\"%\\"));
            }
            if rolls.roll(3) == 0 {
                made = made.change(rolls.one_of(&["x", "y"]), &n.to_string(), None);
            }
            let recorded = rolls.roll(6) == 0;
            let id = self.claimed(if recorded { made.recorded() } else { made }).await.id;
            match rolls.roll(if recorded { 1 } else { 8 }) {
                1 => drop(self.attempt(id, delivered()).await),
                2 => drop(self.attempt(id, rejected()).await),
                3 => drop(self.attempt(id, failed()).await), // it waits; or is superseded by the next of its subject
                4 => drop(self.start(id).await),
                5 => drop(self.step(id, EventStep::Cancel).await),
                _ => {}
            }
        }
    }

    /// All pages, one after another.
    async fn paged(&self, mut listing: EventQuery) -> Vec<EventId> {
        let mut found = Vec::new();
        for _ in 0..10 * MANY {
            let page = self.store.page(listing.clone()).await.expect("it lists");
            assert!(page.events.len() <= listing.limit, "{listing:?}");
            found.extend(page.events.iter().map(|event| event.id));
            match page.next {
                Some(next) => listing.before = Some(next),
                None => return found,
            }
        }
        panic!("{listing:?}: paging never ends");
    }
}

pub(super) async fn every_page_holds_what_checking_each_event_finds(fresh: StoreUnderTest) {
    let mut rolls = SeededRandom::seeded();
    let fields = [("tag", true), ("size", false), ("it's \"x\"", true)].map(|(name, is)| (name.to_owned(), is));
    let declared = |source: &&str| DeclaredFields { source: (*source).into(), fields: fields.to_vec() };
    fresh.store.declare(SOURCES.iter().map(declared).collect()).await.expect("it declares");
    fresh.anything(&mut rolls).await;
    let all = fresh.store.list(EventQuery { limit: 10 * MANY, ..EventQuery::default() }).await.expect("it lists");
    assert_eq!(all.len(), MANY);
    let mut matched = 0;
    for _ in 0..ASKED {
        let listing = asked(&mut rolls, &all);
        let expected: Vec<_> = all.iter().filter(|event| listing.finds(event)).map(|event| event.id).collect();
        matched += expected.len();
        assert_eq!(fresh.paged(listing.clone()).await, expected, "{listing:?}");
    }
    assert!(matched > ASKED, "only {matched} matches: the queries test nothing");
}

/// A query with a few random conditions.
fn asked(rolls: &mut SeededRandom, all: &[Event]) -> EventQuery {
    let owned = |word: Option<&str>| word.map(str::to_owned);
    let (times, ids): (Vec<_>, Vec<_>) = all.iter().map(|event| (event.received_at, event.id)).unzip();
    let mut fields = Vec::new();
    for _ in 0..rolls.roll(6).saturating_sub(3) {
        fields.push((rolls.one_of(NAMES).to_owned(), rolls.one_of(WRITTEN).to_owned()));
    }
    let text = match rolls.roll(8) {
        0 => Some(rolls.one_of(TEXTS).to_owned()),
        1 => Some(rolls.one_of(&ids).short().to_uppercase()),
        _ => None,
    };
    EventQuery {
        source: owned(rolls.some_of(SOURCES)),
        route: owned(rolls.some_of(ROUTES)),
        state: owned(rolls.some_of(STATES)),
        cause: owned(rolls.some_of(CAUSES)),
        since: rolls.some_of(&times),
        until: rolls.some_of(&times),
        fields,
        text,
        superseded_by: rolls.some_of(&ids).filter(|_| rolls.roll(2) == 0),
        before: rolls.some_of(&ids),
        limit: 1 + rolls.roll(20),
    }
}
