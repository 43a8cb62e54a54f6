//! Reads the body of a request: bounded in size, in time, and in what all bodies of a node take together. Never waits
//! for room and never cuts a body short: it comes whole or not at all.

use crate::decide::limits;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Room taken for a body before its first byte, whatever length it announces: an announcement costs its sender nothing.
const FIRST_BYTES: usize = 16 << 10;

/// What one body may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Its bytes.
    pub bytes: usize,
    /// The rate it must keep.
    pub bytes_per_second: u64,
    /// How far it may fall behind that rate.
    pub behind: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            bytes: limits::BODY_BYTES_MAX,
            bytes_per_second: limits::BODY_BYTES_PER_SECOND_MIN,
            behind: limits::BODY_BEHIND_MAX,
        }
    }
}

/// Why there is no body. The connection it came on is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// It is, or says it is, larger than it may be.
    TooLarge,
    /// It came slower than it must.
    TooSlow,
    /// All bodies together have no room for it now.
    Busy,
    /// The sender hung up, or what came is no HTTP.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is too large",
            Self::TooSlow => "the body came too slowly",
            Self::Busy => "too many bodies at once",
            Self::Broken => "the body broke off",
        })
    }
}

impl std::error::Error for BodyError {}

/// Reads a body to its end. Its bytes stay counted in `flight` until the last clone of them is dropped, wherever that
/// is; who keeps them for longer than it takes to store them copies them.
///
/// A body that announces more than it may have is refused before it is read (a client that sent `Expect: 100-continue`
/// never sends it), and so is one for which there is no room. Room is taken as the bytes arrive, so that announcing
/// bytes takes none from others.
pub async fn read<B>(mut body: B, limits: BodyLimits, flight: &Arc<BodiesInFlight>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limits.bytes {
        return Err(BodyError::TooLarge);
    }
    let mut room = Room { flight: Arc::clone(flight), bytes: 0 };
    if !room.has(announced) {
        return Err(BodyError::Busy);
    }
    let mut bytes = Vec::with_capacity(announced.min(FIRST_BYTES));
    let mut pace = Pace::from_now(limits);
    loop {
        let frame = match timeout_at(pace.deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(None) => return Ok(room.hold(bytes)),
            Err(_) => return Err(BodyError::TooSlow),
        };
        // Trailers mean nothing to us.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limits.bytes - bytes.len() {
            return Err(BodyError::TooLarge);
        }
        room.grow(data.len())?;
        bytes.extend_from_slice(&data);
        pace.came(data.len());
    }
}

/// When a body is given up: every byte moves that away by what a byte may take, but never further than `behind`.
/// A body that keeps the rate is never given up, one that stalls is given up after `behind`, whatever came before.
struct Pace {
    limits: BodyLimits,
    deadline: Instant,
}

impl Pace {
    fn from_now(limits: BodyLimits) -> Self {
        Self { limits, deadline: Instant::now() + limits.behind }
    }

    fn came(&mut self, bytes: usize) {
        let micros = (bytes as u64).saturating_mul(1_000_000) / self.limits.bytes_per_second.max(1);
        let latest = Instant::now() + self.limits.behind;
        self.deadline = latest.min(self.deadline + Duration::from_micros(micros));
    }
}

/// The bytes of all bodies a node holds, and how many they may be.
///
/// A body larger than all the room there is (its source may allow that) is taken while it is the only one: `used` is
/// then above `most`, and others are turned away until it is gone.
#[derive(Debug)]
pub struct BodiesInFlight {
    most: usize,
    used: AtomicUsize,
}

impl Default for BodiesInFlight {
    fn default() -> Self {
        Self::new(limits::BODIES_IN_FLIGHT_BYTES)
    }
}

impl BodiesInFlight {
    /// Room for this many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, used: AtomicUsize::new(0) }
    }

    /// Holds a body that came another way than over HTTP, whole, if there is room for it.
    pub fn hold(self: &Arc<Self>, body: &[u8]) -> Result<Bytes, BodyError> {
        let mut room = Room { flight: Arc::clone(self), bytes: 0 };
        room.grow(body.len())?;
        Ok(room.hold(body.to_vec()))
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// What would be used with `more` bytes for a body that has `own`; none if there is no room.
    fn with(&self, used: usize, own: usize, more: usize) -> Option<usize> {
        used.checked_add(more).filter(|sum| *sum <= self.most || used == own)
    }
}

/// The room one body takes.
struct Room {
    flight: Arc<BodiesInFlight>,
    bytes: usize,
}

impl Room {
    fn has(&self, more: usize) -> bool {
        self.flight.with(self.flight.used(), self.bytes, more).is_some()
    }

    fn grow(&mut self, more: usize) -> Result<(), BodyError> {
        let with = |used| self.flight.with(used, self.bytes, more);
        // A counter and nothing else: it orders no other memory.
        match self.flight.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with) {
            Ok(_) => {
                self.bytes += more;
                Ok(())
            }
            Err(_) => Err(BodyError::Busy),
        }
    }

    fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes: bytes.into_boxed_slice(), _room: self })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.flight.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Held {
    bytes: Box<[u8]>,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
