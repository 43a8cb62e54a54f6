//! Makes the ids of new events: each is later than all that this process made before.
//!
//! ```text
//! 48 bits milliseconds since 1970 │ version 7 │ 12 bits of the millisecond │ variant │ 62 random bits
//! ```

use super::clock::wall;
use crate::decide::id::EventId;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Random bytes of one id.
const ID_BYTES: usize = 8;
/// Random bytes that a thread draws at once, since drawing costs the same for eight: those of 64 ids.
const DRAWN_BYTES: usize = 64 * ID_BYTES;
/// The bits below the milliseconds.
const FRACTION_BITS: u32 = 12;

/// The time of the last id, in fractions of a millisecond.
static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static RANDOM: RefCell<RandomBytes> = const { RefCell::new(RandomBytes::none()) };
}

/// The id of a new event.
pub(crate) fn new_event_id() -> EventId {
    event_id(next_time(&LAST, wall().0), RANDOM.with_borrow_mut(RandomBytes::draw))
}

/// The time of an id that is made at this time, in microseconds: later than the last one's, also while the clock is set
/// back.
fn next_time(last: &AtomicU64, micros: i64) -> u64 {
    let micros = u64::try_from(micros).unwrap_or(0);
    let now = ((micros / 1000) << FRACTION_BITS) | (((micros % 1000) << FRACTION_BITS) / 1000);
    let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
    before.map_or(now, |last| now.max(last + 1))
}

fn event_id(time: u64, random: [u8; ID_BYTES]) -> EventId {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&(time >> FRACTION_BITS).to_be_bytes()[2..]);
    id[6..8].copy_from_slice(&time.to_be_bytes()[6..]);
    id[8..].copy_from_slice(&random);
    // The version and the variant of a UUIDv7.
    (id[6], id[8]) = (0x70 | id[6] & 0x0f, 0x80 | id[8] & 0x3f);
    EventId(id)
}

/// Random bytes, drawn for many ids at once. That a process is not a copy of another which drew the same bytes is not
/// checked, since that takes a system call for each id: the threads of a runtime, which make the ids, are in no copy, and
/// a command is started as another program.
struct RandomBytes {
    bytes: [u8; DRAWN_BYTES],
    used: usize,
}

impl RandomBytes {
    const fn none() -> Self {
        Self { bytes: [0; DRAWN_BYTES], used: DRAWN_BYTES }
    }

    fn draw(&mut self) -> [u8; ID_BYTES] {
        if self.used == DRAWN_BYTES {
            aws_lc_rs::rand::fill(&mut self.bytes).expect("the system has random bytes");
            self.used = 0;
        }
        let mut drawn = [0; ID_BYTES];
        drawn.copy_from_slice(&self.bytes[self.used..][..ID_BYTES]);
        self.used += ID_BYTES;
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_id_is_a_uuid_of_version_7_with_the_time() {
        let id = uuid::Uuid::from_bytes(event_id(next_time(&AtomicU64::new(0), 1_770_481_240_123_999), [0xff; 8]).0);
        assert_eq!(id.to_string(), "019c38e7-c83b-7ffb-bfff-ffffffffffff");
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
        assert_eq!(id.get_timestamp().map(|time| time.to_unix()), Some((1_770_481_240, 123_000_000)));
    }

    #[test]
    fn ids_of_all_threads_differ_and_those_of_one_thread_ascend() {
        let ids = || (0..10_000).map(|_| new_event_id()).collect::<Vec<_>>();
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ids)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        assert!(all.iter().all(|ids| ids.is_sorted()));
        assert_eq!(all.iter().flatten().collect::<HashSet<_>>().len(), 40_000);
    }

    #[test]
    fn the_time_of_an_id_is_later_than_the_last_one_even_if_the_clock_is_set_back() {
        let last = AtomicU64::new(0);
        let times = [5_000, 5_000, 4_000, 5_001, 9_000].map(|micros| next_time(&last, micros));
        assert!(times.is_sorted_by(|earlier, later| earlier < later), "{times:?}");
        assert_eq!((times[0], times[4]), (5 << 12, 9 << 12));
    }

    #[test]
    fn random_bytes_are_drawn_anew_when_all_are_used() {
        let mut random = RandomBytes::none();
        let drawn: HashSet<_> = (0..4 * DRAWN_BYTES / ID_BYTES).map(|_| random.draw()).collect();
        assert_eq!(drawn.len(), 4 * DRAWN_BYTES / ID_BYTES);
    }
}
