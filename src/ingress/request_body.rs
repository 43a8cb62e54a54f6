//! Reads the body of a request, bounded in size, in time, and in the memory of all bodies of a node together. It never
//! waits for memory and never truncates a body: the body arrives completely or not at all.

use crate::decide::body_budget::{BodyAdmission, BodyId, BodyMemoryBudget};
use crate::decide::limits;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Size of the pieces in which the bytes of an arriving body are kept. All have the same size, so that the memory of a
/// piece that is freed fits the next one: buffers that grow leave gaps of every size, and with them a flood of bodies
/// took three times the memory that it was granted.
const PIECE_BYTES: usize = 8 << 10;

/// A body smaller than a piece has a buffer that grows by a quarter at a time: one that doubles would take up to twice
/// what is counted.
const GROWTH: usize = 4;

/// The limits of one body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Maximum size.
    pub bytes: usize,
    /// Minimum rate at any time.
    pub bytes_per_second: u64,
    /// How far it may fall behind that rate.
    pub behind: Duration,
    /// The time in which it must be complete.
    pub whole_time: Duration,
    /// Bytes that, once arrived, extend that time by a second.
    pub whole_bytes_per_second: u64,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            bytes: limits::BODY_BYTES_MAX,
            bytes_per_second: limits::BODY_BYTES_PER_SECOND_MIN,
            behind: limits::BODY_BEHIND_MAX,
            whole_time: limits::BODY_WHOLE_TIME,
            whole_bytes_per_second: limits::BODY_WHOLE_BYTES_PER_SECOND,
        }
    }
}

/// Why the body of a request could not be read. Its connection cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// It is, or announces that it is, larger than allowed.
    TooLarge,
    /// It came slower than required.
    TooSlow,
    /// Memory was short, and it was the slowest body.
    Displaced,
    /// All bodies together leave no memory for it now.
    Busy,
    /// The sender disconnected, or sent invalid HTTP.
    Broken,
}

impl BodyError {
    /// The reason in the response; none where the sender is only to retry.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::TooLarge => Some("too_large"),
            Self::TooSlow | Self::Displaced => Some("too_slow"),
            Self::Broken => Some("malformed"),
            Self::Busy => None,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is too large",
            Self::TooSlow => "the body came too slowly",
            Self::Displaced => "memory for bodies was short, and this one was the slowest",
            Self::Busy => "too many bodies at once",
            Self::Broken => "the body broke off",
        })
    }
}

impl std::error::Error for BodyError {}

/// Reads a body to its end. Its bytes stay counted in `flight` until the last clone of them is dropped; code that keeps
/// them for longer than it takes to store them must copy them.
///
/// A body that announces more than is allowed is refused before it is read (a client that sent `Expect: 100-continue`
/// never sends it), and so is one for which no memory can be freed. Memory is reserved as the bytes arrive, so that
/// announcing bytes takes none from others. While memory is short, the slowest body is displaced: see
/// [`body_budget`](crate::decide::body_budget).
pub async fn read<B>(mut body: B, limits: BodyLimits, flight: &Arc<BodiesInFlight>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limits.bytes {
        return Err(BodyError::TooLarge);
    }
    if !flight.has_room_for(announced) {
        return Err(BodyError::Busy);
    }
    let room = BodyReservation::in_flight(flight);
    room.arriving.bytes().reserve(announced);
    let mut pace = BodyDeadline::from_now(limits);
    loop {
        let next = tokio::select! {
            biased;
            () = room.displaced() => return Err(BodyError::Displaced),
            next = timeout_at(pace.deadline(), body.frame()) => next,
        };
        let frame = match next {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(None) => return room.complete(),
            Err(_) => return Err(BodyError::TooSlow),
        };
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limits.bytes - room.arriving.bytes().len {
            return Err(BodyError::TooLarge);
        }
        room.add(&data)?;
        pace.on_bytes(data.len());
    }
}

/// When a body is given up. Every byte moves `stalled` later by what a byte may take, but never further than `behind`:
/// a body that stalls is given up after `behind`, whatever came before. `whole` moves later at a rate that no trickle
/// keeps up with.
struct BodyDeadline {
    limits: BodyLimits,
    stalled: Instant,
    whole: Instant,
}

impl BodyDeadline {
    fn from_now(limits: BodyLimits) -> Self {
        let now = Instant::now();
        Self { limits, stalled: now + limits.behind, whole: now + limits.whole_time }
    }

    fn deadline(&self) -> Instant {
        self.stalled.min(self.whole)
    }

    fn on_bytes(&mut self, bytes: usize) {
        let time = |rate: u64| Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / rate.max(1));
        let latest = Instant::now() + self.limits.behind;
        self.stalled = latest.min(self.stalled + time(self.limits.bytes_per_second));
        self.whole += time(self.limits.whole_bytes_per_second);
    }
}

/// The bodies that a node holds, and their memory budget.
#[derive(Debug)]
pub struct BodiesInFlight {
    budget: Mutex<BodyMemoryBudget<Arc<ArrivingBody>>>,
    since: Instant,
}

/// The bytes of a body that have arrived. When it is displaced, the bytes are freed at once, and then its reader is
/// notified.
#[derive(Debug, Default)]
struct ArrivingBody {
    bytes: Mutex<Pieces>,
    displaced: Notify,
}

/// Bytes in pieces of [`PIECE_BYTES`]; only the last one may be shorter.
#[derive(Debug, Default)]
struct Pieces {
    pieces: Vec<Vec<u8>>,
    len: usize,
}

impl Pieces {
    /// Reserves the first piece, for a body that announces this many bytes. Memory for more is not reserved: an
    /// announcement costs its sender nothing.
    fn reserve(&mut self, announced: usize) {
        self.pieces.push(Vec::with_capacity(announced.min(PIECE_BYTES)));
    }

    fn extend(&mut self, mut data: &[u8]) {
        self.len += data.len();
        while !data.is_empty() {
            if self.pieces.last().is_none_or(|last| last.len() == PIECE_BYTES) {
                self.pieces.push(Vec::with_capacity(if self.pieces.is_empty() { 0 } else { PIECE_BYTES }));
            }
            let Some(last) = self.pieces.last_mut() else { return };
            let (now, later) = data.split_at(data.len().min(PIECE_BYTES - last.len()));
            if last.capacity() - last.len() < now.len() {
                last.reserve_exact(now.len().max(last.len() / GROWTH).min(PIECE_BYTES - last.len()));
            }
            last.extend_from_slice(now);
            data = later;
        }
    }

    /// All bytes together. Each piece is freed as soon as it was copied; a single one is not copied.
    fn into_bytes(self) -> Box<[u8]> {
        let mut pieces = self.pieces.into_iter();
        let mut whole = pieces.next().unwrap_or_default();
        if self.len > whole.len() {
            whole.reserve_exact(self.len - whole.len());
            pieces.for_each(|piece| whole.extend_from_slice(&piece));
        }
        whole.into_boxed_slice()
    }
}

impl ArrivingBody {
    fn bytes(&self) -> MutexGuard<'_, Pieces> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn displace(&self) {
        drop(std::mem::take(&mut *self.bytes()));
        self.displaced.notify_one();
    }
}

impl Default for BodiesInFlight {
    fn default() -> Self {
        Self::new(limits::BODIES_IN_FLIGHT_BYTES)
    }
}

impl BodiesInFlight {
    /// A budget of this many bytes.
    pub fn new(most: usize) -> Self {
        Self { budget: Mutex::new(BodyMemoryBudget::new(most)), since: Instant::now() }
    }

    /// Holds a complete body that did not come over HTTP, if there is memory for it or some can be freed.
    pub fn hold(self: &Arc<Self>, body: &[u8]) -> Result<Bytes, BodyError> {
        let room = BodyReservation::in_flight(self);
        room.add(body)?;
        room.complete()
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.budget().used()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.budget().could_take(bytes, self.since.elapsed())
    }

    fn budget(&self) -> MutexGuard<'_, BodyMemoryBudget<Arc<ArrivingBody>>> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory reserved for one body.
struct BodyReservation {
    flight: Arc<BodiesInFlight>,
    id: BodyId,
    arriving: Arc<ArrivingBody>,
}

impl BodyReservation {
    fn in_flight(flight: &Arc<BodiesInFlight>) -> Self {
        let arriving = Arc::<ArrivingBody>::default();
        let id = flight.budget().begin(arriving.clone(), flight.since.elapsed());
        Self { flight: Arc::clone(flight), id, arriving }
    }

    /// Returns when this body was displaced by another.
    async fn displaced(&self) {
        self.arriving.displaced.notified().await;
    }

    /// Adds bytes that have arrived, if there is memory for them.
    fn add(&self, data: &[u8]) -> Result<(), BodyError> {
        let admission = self.flight.budget().grow(self.id, data.len(), self.flight.since.elapsed());
        match admission {
            BodyAdmission::Granted(displaced) => displaced.iter().for_each(|body| body.displace()),
            BodyAdmission::Displaced => return Err(BodyError::Displaced),
            BodyAdmission::Full => return Err(BodyError::Busy),
        }
        self.arriving.bytes().extend(data);
        Ok(())
    }

    fn complete(self) -> Result<Bytes, BodyError> {
        if !self.flight.budget().complete(self.id) {
            return Err(BodyError::Displaced);
        }
        let bytes = std::mem::take(&mut *self.arriving.bytes());
        Ok(Bytes::from_owner(ReservedBody { bytes: bytes.into_bytes(), _room: self }))
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.flight.budget().end(self.id);
    }
}

/// A complete request body that holds its share of the memory for bodies until it is dropped.
struct ReservedBody {
    bytes: Box<[u8]>,
    _room: BodyReservation,
}

impl AsRef<[u8]> for ReservedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However a body is cut into frames, and whatever it announces, its bytes are what was sent, and its buffers
        /// hold at most a piece more.
        #[test]
        fn pieces_give_back_what_was_put_in(
            announced in 0..3 * PIECE_BYTES,
            frames in prop::collection::vec(0..2 * PIECE_BYTES, 0..12),
        ) {
            let mut sent = Vec::new();
            let mut pieces = Pieces::default();
            pieces.reserve(announced);
            for (n, length) in frames.into_iter().enumerate() {
                let frame: Vec<u8> = (0..=250).cycle().skip(n).take(length).collect();
                pieces.extend(&frame);
                sent.extend_from_slice(&frame);
                let capacity: usize = pieces.pieces.iter().map(Vec::capacity).sum();
                prop_assert!(capacity <= sent.len() + PIECE_BYTES, "{capacity} bytes for {}", sent.len());
            }
            prop_assert_eq!(pieces.len, sent.len());
            let whole = pieces.into_bytes();
            prop_assert_eq!(&whole[..], &sent[..]);
        }
    }
}
