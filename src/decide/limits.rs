//! Everything has a limit, and every limit stands here, with its unit.

use super::time::Duration;

/// A body, unless its source says otherwise: GitHub's own cap.
pub const BODY_BYTES_MAX: usize = 25 << 20;
/// Bodies held by one node at once.
pub const BODIES_IN_FLIGHT_BYTES: usize = 64 << 20;
/// All headers of one request.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// How many headers one request may have.
pub const HEADERS_MAX: usize = 128;
/// The unfinished heads of all connections of a port: beyond this, one that is longer than [`SMALL_HEAD_BYTES_MAX`] is
/// cut off.
pub const HEADS_BYTES_MAX: usize = 16 << 20;
/// Request line and headers of nearly every sender fit into this.
pub const SMALL_HEAD_BYTES_MAX: usize = 8 << 10;
/// The time in which a request's headers must arrive.
pub const HEADER_TIME: Duration = Duration::from_secs(10);
/// A body that comes slower than this, counted after a first second of grace, is given up.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 1 << 10;
/// How far a body may fall behind that rate: the first second, and two more for packets that were lost. A body that
/// stalls is given up after this.
pub const BODY_BEHIND_MAX: Duration = Duration::from_secs(3);
/// A body must be whole within this, and a second more for each [`BODY_WHOLE_BYTES_PER_SECOND`] bytes that have arrived:
/// what is only announced gives it no time.
pub const BODY_WHOLE_TIME: Duration = Duration::from_secs(10);
/// The rate at which the time for a whole body grows.
pub const BODY_WHOLE_BYTES_PER_SECOND: u64 = 64 << 10;
/// A body up to this is a small one: a share of the room is for these alone.
pub const SMALL_BODY_BYTES_MAX: usize = 64 << 10;
/// That share: one in so many bytes.
pub const SMALL_BODIES_SHARE: usize = 4;
/// Connections to the port for webhooks at once. At the limit the longest idle one is closed.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Connections to the admin port at once.
pub const ADMIN_CONNECTIONS_MAX: usize = 1_000;
/// File descriptors for everything that is not a connection: the store, commands, receivers.
pub const FILES_BESIDE_CONNECTIONS: usize = 1_024;
/// A connection that is kept open between two requests, or that takes nothing of its answer, is closed after this.
pub const CONNECTION_IDLE: Duration = Duration::from_mins(1);
/// The rate at which an answer must be taken; it may fall behind by [`CONNECTION_IDLE`].
pub const ANSWER_BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// After an answer that was given before its request was read to the end: how long the rest is read and thrown away,
/// so that the sender sees the answer and not a reset.
pub const CONNECTION_LINGER: Duration = Duration::from_secs(2);
/// The time in which requests under way may finish when a node stops.
pub const DRAIN_TIME: Duration = Duration::from_secs(20);
/// The same for the requests of people, who may ask until all else is over.
pub const ADMIN_CLOSE_TIME: Duration = Duration::from_secs(2);
/// Objects and arrays inside each other.
pub const JSON_DEPTH_MAX: usize = 128;
/// One field's value.
pub const FIELD_BYTES_MAX: usize = 4 << 10;
/// Fields declared by one source.
pub const FIELDS_MAX: usize = 64;
/// Names on the way to a field in a body.
pub const PATH_PARTS_MAX: usize = 64;
/// The text of one expression.
pub const FILTER_BYTES_MAX: usize = 4 << 10;
/// Parentheses and `!` inside each other in one expression.
pub const FILTER_DEPTH_MAX: usize = 64;
/// One regular expression, compiled.
pub const REGEX_BYTES_MAX: usize = 1 << 20;
/// The name of a kind of event.
pub const KIND_BYTES_MAX: usize = 64;
/// A sender's delivery id.
pub const DELIVERY_ID_BYTES_MAX: usize = 256;
/// A signature header: room for several signatures of 64 bytes in hex.
pub const SIGNATURE_BYTES_MAX: usize = 4 << 10;
/// Signatures in one header.
pub const SIGNATURES_MAX: usize = 8;
/// Secrets of one source while rotating.
pub const SECRETS_MAX: usize = 8;
/// How long nodes of the version before may write to a store beside newer ones, while they are renewed one by one.
pub const UPGRADE_TAKES: Duration = Duration::from_hours(24);
/// A secret or token that is shorter is warned about, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;
/// The name of a caller: that of a file.
pub const CALLER_BYTES_MAX: usize = 255;
/// The file with a caller's secrets.
pub const CALLER_FILE_BYTES_MAX: u64 = 64 << 10;
/// Callers whose secrets a node keeps at hand; others are read again.
pub const CALLERS_AT_HAND: usize = 4096;
/// An `Idempotency-Key`, without its quotes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// How far ahead of the store's clock an `order` may be.
pub const ORDER_AHEAD_MAX: Duration = Duration::from_hours(24);
/// Output of one attempt; the head and the tail are kept.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// One line of a command's output in the log; what is longer is cut.
pub const LOGGED_LINE_BYTES_MAX: usize = 4 << 10;
/// Lines of one block's output that go to the log at once …
pub const LOGGED_LINES_BURST: u32 = 1000;
/// … and after those in each second. Less than what journald takes of one service (10,000 in 30 seconds).
pub const LOGGED_LINES_PER_SECOND: u32 = 100;
/// A kept answer.
pub const RECEIPT_BYTES_MAX: usize = 1 << 20;
/// Claims that wait for the batcher; one more is answered 503.
pub const CLAIMS_WAITING_MAX: usize = 4096;
/// A body that is handed from its request to its attempt; a larger one is read from the store.
pub const HAND_OVER_BYTES_MAX: usize = 64 << 10;
/// Claims in one batch.
pub const BATCH_CLAIMS_MAX: usize = 512;
/// Bodies in one batch.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Messages of a stream that one node has in hand at once.
pub const MESSAGES_AT_ONCE: usize = 64;
/// The longest wait before the stream is to deliver a message again that could not be taken; the first is a second.
pub const MESSAGE_AGAIN_MAX: Duration = Duration::from_mins(1);
/// Messages in quarantine; the oldest make way.
pub const QUARANTINE_MAX: usize = 1000;
/// What is kept of each.
pub const QUARANTINE_BODY_BYTES_MAX: usize = 16 << 10;
/// Duplicates of one event that are remembered one by one; after that they are only counted.
pub const SIGHTINGS_MAX: usize = 16;
/// Events whose duplicates are noted at once, before the notes are written.
pub const NOTED_EVENTS_MAX: usize = 16 << 10;
/// `run` blocks of one route: their successes are bits of one number.
pub const BLOCKS_MAX: usize = 64;
/// One SQL statement of a route.
pub const STATEMENT_BYTES_MAX: usize = 64 << 10;
/// Places in it that values are bound to.
pub const STATEMENT_NAMES_MAX: usize = 256;
/// How long it may take, unless its route says otherwise: it holds locks, in SQLite the only pen.
pub const STATEMENT_TIME: Duration = Duration::from_secs(5);
/// The longest that a route may give it.
pub const STATEMENT_TIME_MAX: Duration = Duration::from_mins(1);
/// Characters of what a database says of it that are kept: it may repeat what was bound.
pub const STATEMENT_SAID_MAX: usize = 400;
/// How often a statement that others got in the way of is run anew before that counts as a failed attempt.
pub const STATEMENT_TRIES: u32 = 3;
/// How long a receiver's `Retry-After` is believed.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Failures in a row after which a receiver is left alone.
pub const BREAKER_FAILURES: u32 = 5;
/// How long it is then left alone; it doubles with each try that fails.
pub const BREAKER_WAIT_FIRST: Duration = Duration::from_secs(5);
/// The longest it is left alone.
pub const BREAKER_WAIT_LONGEST: Duration = Duration::from_mins(1);
/// A sender's `tracestate`; a longer one is left out.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// Headers that one receiver is passed, and headers that are set for it.
pub const FORWARDED_HEADERS_MAX: usize = 64;
/// Doubts that end a life under `in_doubt = "retry"`, unless `attempts` is larger.
pub const DOUBTS_MIN: u32 = 3;
/// The earliest a redelivery under the same id re-arms a dead event.
pub const REDELIVERY_AFTER: Duration = Duration::from_secs(5);
/// How often an event whose route is gone is looked at again.
pub const ROUTE_GONE_LOOK: Duration = Duration::from_secs(10);
/// Claims repeated because the event changed under a re-arm; after that the sender is asked to come again.
pub const REARM_TRIES: usize = 3;
/// How often it is tried to write down that a sender is told 202, while others write the same event.
pub const ACCEPT_TRIES: usize = 5;
/// Messages of one life that are published again; after that a redelivery is a duplicate.
pub const PUBLISHED_AGAIN_MAX: u32 = 100;
/// How often a node looks for work that nobody told it about.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events forgotten in one go.
pub const FORGET_BATCH: usize = 500;
/// The same while the sweep is behind, on a store that frees them in many short writes.
pub const FORGET_BATCH_BEHIND: usize = 8_000;
/// The pause between two full batches of the sweep, so that claims go first.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(50);
/// Batches forgotten because somebody asks for it: ten million events.
pub const FORGET_BATCHES_MAX: usize = 20_000;
/// How often the sweep runs.
pub const FORGET_EVERY: Duration = Duration::from_mins(1);
/// A clock that jumps forward by more than this counts for expiry only once it has stood.
pub const CLOCK_JUMP: Duration = Duration::from_hours(1);
/// For so long, by a clock that cannot be set.
pub const CLOCK_JUMP_STANDS_FOR: Duration = Duration::from_mins(10);
/// A clock that moves by less than this beside one that cannot be set still stands; two clocks that are further apart are
/// worth a word.
pub const CLOCK_STANDS: Duration = Duration::from_mins(1);
/// A server's clock that is off by less than this beside one that cannot be set was not set: it drifts.
pub const CLOCK_STEP: Duration = Duration::from_secs(1);
/// How often a store writes down what time it has last seen.
pub const CLOCK_WRITTEN_EVERY: Duration = Duration::from_mins(1);
/// How often a node looks at its clocks; while it waits for one, also at what other nodes have seen.
pub const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// Events that are counted to say how many a jump of the clock would forget.
pub const WOULD_FORGET_MAX: usize = 10_000;
/// How often a node writes into a shared store which sources it has, and how long their events are kept.
pub const RETENTION_EVERY: Duration = Duration::from_mins(1);
/// After this long without such a write, no node has the source.
pub const SOURCE_UNSEEN_AFTER: Duration = Duration::from_mins(5);
/// Sources that no node has, as they are counted.
pub const OTHER_SOURCES_MAX: usize = 100;
/// As far as the events of one of them are counted.
pub const OTHER_EVENTS_MAX: usize = 100_000;
/// Deliveries of one source that were refused and are remembered by one node, and as many that were ignored.
pub const TURNED_AWAY_MAX: usize = 64;
/// The same of those that repeated an event, came too late, or could not be taken.
pub const REPEATS_REMEMBERED: usize = 256;
/// Characters of a text that is remembered of one.
pub const TURNED_AWAY_CHARS_MAX: usize = 400;
/// Pieces of output, of 16 KiB at most, that who looks on may fall behind by.
pub const OUTPUT_BEHIND_MAX: usize = 1024;
/// Who looks on at once.
pub const LISTENERS_MAX: usize = 64;
/// Sessions that a node knows to be logged out; one more, and the one that ends first is forgotten.
pub const LOGGED_OUT_MAX: usize = 4096;
/// How long a session lasts.
pub const SESSION_TIME: Duration = Duration::from_hours(12);
/// The longest that the refusal of a wrong token is held back.
pub const REFUSAL_DELAY_MAX: Duration = Duration::from_secs(2);
/// Refusals of one address that are held back at once; one more is not answered at all.
pub const REFUSALS_WAITING_PER_ADDRESS: usize = 16;
/// The same of all addresses.
pub const REFUSALS_WAITING_MAX: usize = 256;
/// Addresses whose wrong tokens are counted; the one that was quiet longest makes way.
pub const REFUSED_ADDRESSES_MAX: usize = 4096;
/// Events replayed by one call.
pub const REPLAY_MAX: usize = 1_000;
/// A request to the admin port, beside a delivery to explain.
pub const ADMIN_BODY_BYTES_MAX: usize = 16 << 10;
/// The time in which a peer must answer.
pub const PEER_TIME: Duration = Duration::from_secs(1);
/// The longest answer of a peer.
pub const PEER_BYTES_MAX: usize = 4 << 20;
/// Nodes asked for what they turned away.
pub const PEERS_MAX: usize = 64;
/// Spans that wait to be sent; one more is dropped and counted.
pub const SPANS_WAITING_MAX: usize = 4096;
/// Processes whose marks a state file remembers: those that wrote last.
pub const KNOWN_WRITERS_MAX: usize = 16;
/// Confirmed writes after the last mark that a node remembers: the newest.
pub const UNMARKED_WRITES_MAX: usize = 64;
/// How long such a write is remembered while the store answers but takes no mark: its event may be forgotten meanwhile.
pub const UNMARKED_WRITE_AGE_MAX: Duration = Duration::from_mins(1);
/// How often what a node knows of its store is written to its state file.
pub const STATE_EVERY: Duration = Duration::from_secs(1);
/// The size of a state file.
pub const STATE_FILE_BYTES_MAX: u64 = 64 << 10;
/// State files in one folder that are looked through.
pub const STATE_FILES_MAX: usize = 1_000;
