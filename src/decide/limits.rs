//! Every limit of the program, with its unit.

use super::time::Duration;

/// Maximum size of a body, unless its source says otherwise: GitHub's own limit.
pub const BODY_BYTES_MAX: usize = 25 << 20;
/// Maximum size of all bodies that one node holds at once.
pub const BODIES_IN_FLIGHT_BYTES: usize = 64 << 20;
/// Maximum size of all headers of one request.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// Maximum number of headers of one request.
pub const HEADERS_MAX: usize = 128;
/// Maximum size of the unfinished request heads of all connections of a port. Beyond it, a connection whose head is
/// longer than [`SMALL_HEAD_BYTES_MAX`] is closed.
pub const HEADS_BYTES_MAX: usize = 16 << 20;
/// A size into which the request line and headers of nearly every sender fit.
pub const SMALL_HEAD_BYTES_MAX: usize = 8 << 10;
/// The time in which a request's headers must arrive.
pub const HEADER_TIME: Duration = Duration::from_secs(10);
/// Minimum rate of a body, after a first second of grace; a slower one is rejected.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 1 << 10;
/// How far a body may fall behind that rate: the first second, and two more for lost packets. A body that stalls is
/// rejected after this time.
pub const BODY_BEHIND_MAX: Duration = Duration::from_secs(3);
/// The time in which a body must be complete, plus one second for each [`BODY_WHOLE_BYTES_PER_SECOND`] bytes that have
/// arrived. Announced bytes (Content-Length) give no extra time.
pub const BODY_WHOLE_TIME: Duration = Duration::from_secs(10);
/// The rate at which the time for a complete body grows.
pub const BODY_WHOLE_BYTES_PER_SECOND: u64 = 64 << 10;
/// Maximum size of a small body. A share of the memory is reserved for small bodies.
pub const SMALL_BODY_BYTES_MAX: usize = 64 << 10;
/// The divisor of that share: one quarter.
pub const SMALL_BODIES_SHARE: usize = 4;
/// Maximum number of connections to the webhook port. At the limit the connection that has been idle longest is closed.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Maximum number of connections to the admin port.
pub const ADMIN_CONNECTIONS_MAX: usize = 1_000;
/// File descriptors reserved for everything that is not a connection: the store, commands, receivers.
pub const FILES_BESIDE_CONNECTIONS: usize = 1_024;
/// A connection that is idle between two requests, or that accepts nothing of its response, is closed after this time.
pub const CONNECTION_IDLE: Duration = Duration::from_mins(1);
/// Minimum rate at which a client must accept a response; it may fall behind by [`CONNECTION_IDLE`].
pub const ANSWER_BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// How long the rest of a request is read and discarded after a response that was sent before the request was read
/// completely, so that the sender gets the response and not a reset.
pub const CONNECTION_LINGER: Duration = Duration::from_secs(2);
/// The time in which requests under way may finish when a node stops.
pub const DRAIN_TIME: Duration = Duration::from_secs(20);
/// The same for admin requests, which are served until everything else has stopped.
pub const ADMIN_CLOSE_TIME: Duration = Duration::from_secs(2);
/// Maximum number of requests at once on one connection of HTTP/2: what clients take for granted until they are told. All
/// those of a port are at most as many as it may have connections.
pub const HTTP2_STREAMS_MAX: u32 = 100;
/// Maximum size of all headers of one request of HTTP/2: as many connections as there may be can each have one under way.
pub const HTTP2_HEADER_BYTES_MAX: u32 = 16 << 10;
/// Bytes of bodies that a client of HTTP/2 may send before they are read, for one request and for its connection.
pub const HTTP2_WINDOW_BYTES: u32 = 64 << 10;
/// Maximum number of bytes of one response that wait in the connection of HTTP/2 for the client to accept them.
pub const HTTP2_SEND_BYTES_MAX: usize = 64 << 10;
/// Maximum number of requests of HTTP/2 that a client resets before they are looked at.
pub const HTTP2_RESETS_MAX: usize = 20;
/// Maximum number of requests of one connection of HTTP/2 that are reset because its client broke a rule.
pub const HTTP2_ERRORS_MAX: usize = 1_024;
/// How long a connection of HTTP/2 that is closed may take to tell its client so.
pub const HTTP2_GOODBYE_TIME: Duration = Duration::from_secs(1);
/// How often the files of a certificate are looked at.
pub const TLS_FILES_EVERY: Duration = Duration::from_secs(1);
/// Maximum size of a file with a certificate or its key.
pub const TLS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum nesting of objects and arrays.
pub const JSON_DEPTH_MAX: usize = 128;
/// Maximum number of elements of one delivery that are events of their own.
pub const ELEMENTS_MAX: usize = 1_000;
/// Elements of one delivery whose claims are under way at once.
pub const ELEMENTS_AT_ONCE: usize = 256;
/// Maximum number of events that the response to a delivery with many elements names.
pub const ELEMENTS_NAMED_MAX: usize = 100;
/// Maximum size of one field's value.
pub const FIELD_BYTES_MAX: usize = 4 << 10;
/// Maximum number of fields of one source.
pub const FIELDS_MAX: usize = 64;
/// Maximum number of places of one field.
pub const FIELD_PLACES_MAX: usize = 8;
/// Maximum number of kinds of event that a source is for.
pub const WANTED_KINDS_MAX: usize = 32;
/// Maximum number of names in the path of a field in a body.
pub const PATH_PARTS_MAX: usize = 64;
/// Maximum size of one filter expression.
pub const FILTER_BYTES_MAX: usize = 4 << 10;
/// Maximum nesting of parentheses and `!` in one expression.
pub const FILTER_DEPTH_MAX: usize = 64;
/// Maximum size of one compiled regular expression.
pub const REGEX_BYTES_MAX: usize = 1 << 20;
/// Maximum length of the name of a kind of event.
pub const KIND_BYTES_MAX: usize = 64;
/// Maximum length of a sender's delivery id.
pub const DELIVERY_ID_BYTES_MAX: usize = 256;
/// Maximum length of a signature header: enough for several signatures of 64 bytes in hex.
pub const SIGNATURE_BYTES_MAX: usize = 4 << 10;
/// Maximum length of a body that may be a handshake.
pub const HANDSHAKE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of content types under which a sender sends JSON.
pub const CONTENT_TYPES_MAX: usize = 16;
/// Maximum length of what a handshake gets back.
pub const HANDSHAKE_ECHO_BYTES_MAX: usize = 4 << 10;
/// How long an operator waits for what a handshake brings, and how long it is kept for one.
pub const HANDSHAKE_WAIT_MAX: Duration = Duration::from_mins(10);
/// Maximum length of what is signed for a handshake.
pub const HANDSHAKE_NONCE_BYTES_MAX: usize = 256;
/// Maximum number of signatures in one header.
pub const SIGNATURES_MAX: usize = 8;
/// Maximum number of secrets of one source while rotating.
pub const SECRETS_MAX: usize = 8;
/// How long nodes of the previous version may write to a store beside newer ones, during a rolling upgrade.
pub const UPGRADE_TAKES: Duration = Duration::from_hours(24);
/// Minimum length of a secret or token, in bytes; a shorter one causes a warning.
pub const SECRET_BYTES_MIN: usize = 16;
/// Maximum length of a path that is a secret.
pub const SECRET_PATH_BYTES_MAX: usize = 1024;
/// Maximum length of a caller's name, which is a file name.
pub const CALLER_BYTES_MAX: usize = 255;
/// Maximum size of the file with a caller's secrets.
pub const CALLER_FILE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of callers whose secrets a node caches; others are read again.
pub const CALLERS_AT_HAND: usize = 4096;
/// Maximum length of an `Idempotency-Key`, without its quotes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// How far an `order` may be ahead of the store's clock.
pub const ORDER_AHEAD_MAX: Duration = Duration::from_hours(24);
/// Maximum size of one attempt's output; its head and tail are kept.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Maximum length of one line of a command's output in the log; a longer line is truncated.
pub const LOGGED_LINE_BYTES_MAX: usize = 4 << 10;
/// Lines that may be logged at once of one block's output, or with one word that anyone can cause.
pub const LOGGED_LINES_BURST: u32 = 1000;
/// Lines logged per second after that burst. Less than journald accepts of one service (10,000 in 30 seconds).
pub const LOGGED_LINES_PER_SECOND: u32 = 100;
/// Maximum size of a stored response.
pub const RECEIPT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of claims that wait for the batcher; a further one is answered 503. One for each connection: a burst over
/// all of them is accepted, because not every sender tries again.
pub const CLAIMS_WAITING_MAX: usize = CONNECTIONS_MAX;
/// Maximum size of a body that is handed directly from its request to its attempt; a larger one is read from the store.
pub const HAND_OVER_BYTES_MAX: usize = 64 << 10;
/// Maximum number of claims in one batch.
pub const BATCH_CLAIMS_MAX: usize = 512;
/// Maximum size of the bodies in one batch.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Maximum number of messages of a stream that one node handles at once.
pub const MESSAGES_AT_ONCE: usize = 64;
/// Maximum delay before a stream redelivers a message that could not be accepted; the first delay is one second.
pub const MESSAGE_AGAIN_MAX: Duration = Duration::from_mins(1);
/// Maximum number of messages in quarantine; the oldest are removed.
pub const QUARANTINE_MAX: usize = 1000;
/// Maximum number of bytes kept of each quarantined message.
pub const QUARANTINE_BODY_BYTES_MAX: usize = 16 << 10;
/// Duplicates of one event that are recorded individually; further ones are only counted.
pub const SIGHTINGS_MAX: usize = 16;
/// Maximum number of events whose duplicates are buffered before they are written.
pub const NOTED_EVENTS_MAX: usize = 16 << 10;
/// Maximum number of `run` blocks of one route: their successes are bits of one number.
pub const BLOCKS_MAX: usize = 63;
/// Maximum size of one SQL statement of a route.
pub const STATEMENT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of placeholders in a statement.
pub const STATEMENT_NAMES_MAX: usize = 256;
/// Default timeout of a statement. It holds locks, on SQLite the only writer.
pub const STATEMENT_TIME: Duration = Duration::from_secs(5);
/// Maximum timeout that a route may set.
pub const STATEMENT_TIME_MAX: Duration = Duration::from_mins(1);
/// Maximum number of characters kept of a database's message about a statement: it may repeat bound values.
pub const STATEMENT_SAID_MAX: usize = 400;
/// How often a statement that conflicted with others is run before that counts as a failed attempt.
pub const STATEMENT_TRIES: u32 = 3;
/// Maximum `Retry-After` of a receiver that is honoured.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Failures in a row that open a receiver's circuit.
pub const BREAKER_FAILURES: u32 = 5;
/// How long the circuit is open at first; doubles with each failed probe.
pub const BREAKER_WAIT_FIRST: Duration = Duration::from_secs(5);
/// Maximum time for which a circuit is open.
pub const BREAKER_WAIT_LONGEST: Duration = Duration::from_mins(1);
/// Maximum size of a sender's `tracestate`; a longer one is dropped.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// Maximum number of headers that are forwarded to one receiver, and of headers that are set for it.
pub const FORWARDED_HEADERS_MAX: usize = 64;
/// Number of unknown outcomes that end a life under `in_doubt = "retry"`, unless `attempts` is larger.
pub const DOUBTS_MIN: u32 = 3;
/// Minimum time before a redelivery under the same id re-arms a dead event.
pub const REDELIVERY_AFTER: Duration = Duration::from_secs(5);
/// How often an event whose route is gone is checked again.
pub const ROUTE_GONE_LOOK: Duration = Duration::from_secs(10);
/// How often a claim is repeated because the event changed during a re-arm; after that the sender gets a 503.
pub const REARM_TRIES: usize = 3;
/// How often a node tries to record that a sender gets a 202, while others write the same event.
pub const ACCEPT_TRIES: usize = 5;
/// Maximum number of further messages of one life; after that a redelivery is a duplicate.
pub const PUBLISHED_AGAIN_MAX: u32 = 100;
/// How often a node polls for work that it was not notified of.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events removed in one write.
pub const FORGET_BATCH: usize = 500;
/// The same while the sweep is behind, on a store that removes them in many short writes.
pub const FORGET_BATCH_BEHIND: usize = 8_000;
/// Maximum number of events removed in one write of the only writer: claims wait for a few milliseconds.
pub const FORGET_BATCH_OF_ONE_WRITER: usize = 64;
/// How many times as long as it works the sweep of a store with one writer rests.
pub const SWEEP_RESTS: u32 = 3;
/// The pause between two full batches of the sweep, so that claims go first.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of events and bodies that one request to forget may remove.
pub const FORGOTTEN_AT_ONCE_MAX: u64 = 10_000_000;
/// How often the sweep runs.
pub const FORGET_EVERY: Duration = Duration::from_mins(1);
/// A clock that jumps forward by more than this counts for expiry only after [`CLOCK_JUMP_STANDS_FOR`].
pub const CLOCK_JUMP: Duration = Duration::from_hours(1);
/// How long a jump must last, by a clock that cannot be set.
pub const CLOCK_JUMP_STANDS_FOR: Duration = Duration::from_mins(10);
/// A clock that moves by less than this, compared with one that cannot be set, counts as unchanged. Two clocks that
/// differ by more cause a warning.
pub const CLOCK_STANDS: Duration = Duration::from_mins(1);
/// A server's clock that moves by less than this, compared with one that cannot be set, was not set: it drifts.
pub const CLOCK_STEP: Duration = Duration::from_secs(1);
/// How often a store writes the time that it has last seen.
pub const CLOCK_WRITTEN_EVERY: Duration = Duration::from_mins(1);
/// How often a node reads its clocks; while a jump is pending, also the time that other nodes have seen.
pub const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// Maximum number of events counted to report how many a clock jump would remove.
pub const WOULD_FORGET_MAX: usize = 10_000;
/// How often a node writes to a shared store which sources it has, and their retention.
pub const RETENTION_EVERY: Duration = Duration::from_mins(1);
/// A source counts as served by no node after this long without such a write.
pub const SOURCE_UNSEEN_AFTER: Duration = Duration::from_mins(5);
/// Maximum number of registers looked at for one page of a list.
pub const REGISTERS_LOOKED_AT_MAX: usize = 1000;
/// Maximum number of sources without a node that are listed.
pub const OTHER_SOURCES_MAX: usize = 100;
/// Maximum number of events counted for each of them.
pub const OTHER_EVENTS_MAX: usize = 100_000;
/// Maximum number of refused deliveries of one source that a node remembers, and as many ignored ones.
pub const TURNED_AWAY_MAX: usize = 64;
/// The same for deliveries that repeated an event, came too late, or could not be accepted.
pub const REPEATS_REMEMBERED: usize = 256;
/// Maximum number of characters of a text in such a record.
pub const TURNED_AWAY_CHARS_MAX: usize = 400;
/// Pieces of output, of at most 16 KiB, by which a live-stream client may fall behind.
pub const OUTPUT_BEHIND_MAX: usize = 1024;
/// Maximum number of bytes of a running attempt's output that its node shares with clients of other nodes: the last ones.
pub const OUTPUT_SHARED_BYTES_MAX: usize = 32 << 10;
/// How often it shares them, at most.
pub const OUTPUT_SHARED_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events whose output a node shares at once.
pub const OUTPUT_SHARED_EVENTS_MAX: usize = 64;
/// How long a node shares output after a client said that it watches.
pub const OUTPUT_WATCH_LASTS: Duration = Duration::from_secs(15);
/// Maximum number of concurrent live-stream clients.
pub const LISTENERS_MAX: usize = 64;
/// Maximum number of logged-out sessions that a node remembers; beyond it, the one that expires first is forgotten.
pub const LOGGED_OUT_MAX: usize = 4096;
/// How long a session lasts.
pub const SESSION_TIME: Duration = Duration::from_hours(12);
/// Maximum delay of the response to a wrong token.
pub const REFUSAL_DELAY_MAX: Duration = Duration::from_secs(2);
/// Maximum number of delayed refusals per address; a further one is not answered at all.
pub const REFUSALS_WAITING_PER_ADDRESS: usize = 16;
/// The same for all addresses together.
pub const REFUSALS_WAITING_MAX: usize = 256;
/// Maximum number of ranges in one list of addresses.
pub const ADDRESS_RANGES_MAX: usize = 1_000;
/// How long a link that logs a browser in can be used.
pub const LOGIN_LINK_TIME: Duration = Duration::from_mins(1);
/// Maximum number of such links that have not been used; a further one replaces the oldest.
pub const LOGIN_LINKS_MAX: usize = 16;
/// Maximum number of addresses whose wrong tokens are counted, or the refused deliveries of one source; the one that was
/// quiet longest is forgotten.
pub const REFUSED_ADDRESSES_MAX: usize = 4096;
/// Maximum number of events replayed by one call.
pub const REPLAY_MAX: usize = 1_000;
/// Maximum size of an admin request, other than a delivery to explain.
pub const ADMIN_BODY_BYTES_MAX: usize = 16 << 10;
/// The time in which another node must respond.
pub const PEER_TIME: Duration = Duration::from_secs(1);
/// Maximum size of another node's response.
pub const PEER_BYTES_MAX: usize = 4 << 20;
/// Maximum number of nodes that are asked for their rejected deliveries.
pub const PEERS_MAX: usize = 64;
/// Maximum number of spans that wait to be sent; a further one is dropped and counted.
pub const SPANS_WAITING_MAX: usize = 4096;
/// Maximum number of processes whose marks a state file remembers: those that wrote last.
pub const KNOWN_WRITERS_MAX: usize = 16;
/// Maximum number of confirmed writes after the last mark that a node remembers: the newest.
pub const UNMARKED_WRITES_MAX: usize = 64;
/// How long such a write is remembered while the store responds but accepts no mark: its event may be removed
/// meanwhile.
pub const UNMARKED_WRITE_AGE_MAX: Duration = Duration::from_mins(1);
/// How often a node writes what it knows of its store to its state file.
pub const STATE_EVERY: Duration = Duration::from_secs(1);
/// Maximum size of a state file.
pub const STATE_FILE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of state files that are read in one folder.
pub const STATE_FILES_MAX: usize = 1_000;
/// How long an event may wait for the end of a burst.
pub const DEBOUNCE_MAX: Duration = Duration::from_hours(24);
/// Maximum number of attempts in a budget: when each of them began is kept.
pub const BUDGET_RUNS_MAX: u32 = 1_000;
/// The longest time of a budget.
pub const BUDGET_WITHIN_MAX: Duration = Duration::from_hours(31 * 24);
/// Maximum number of notifications that one target gets in an hour; one more says how many others there were.
pub const NOTIFICATIONS_PER_HOUR: u32 = 20;
/// The same for statuses and deployments of commits: as much as GitHub accepts. Nothing says how many others there were.
pub const COMMIT_STATUSES_PER_HOUR: u32 = 500;
/// Maximum number of notifications that are kept of one event, all lives together; the oldest are removed.
pub const NOTIFICATIONS_PER_EVENT_MAX: usize = 32;
/// Maximum number of targets of one route.
pub const NOTIFICATION_TARGETS_MAX: usize = 16;
/// Maximum number of characters of the reason in a notification.
pub const NOTIFICATION_WHY_CHARS_MAX: usize = 500;
/// Maximum number of characters of a field's value in the text of a notification.
pub const NOTIFICATION_VALUE_CHARS_MAX: usize = 100;
/// Maximum number of fields in the text of a notification.
pub const NOTIFICATION_FIELDS_MAX: usize = 8;
/// Default time in which a target must answer.
pub const NOTIFICATION_TIME: Duration = Duration::from_secs(10);
/// Attempts to send a notification, unless its target says otherwise.
pub const NOTIFICATION_ATTEMPTS: u32 = 5;
/// Maximum concurrent attempts to send notifications to one target.
pub const NOTIFICATIONS_AT_ONCE: usize = 4;
/// Maximum length of an image's name: the limit that the distribution specification advises.
pub const IMAGE_NAME_BYTES_MAX: usize = 255;
/// Maximum length of a tag, by the same specification.
pub const IMAGE_TAG_BYTES_MAX: usize = 128;
/// Default time in which a registry must answer, with everything that this takes: tokens, redirects.
pub const LOOKUP_TIME: Duration = Duration::from_secs(10);
/// How often a registry may fail to answer for an event, at least: an hour or two with the default waits. As often as
/// an attempt may fail, if that is more.
pub const FAILED_LOOKUPS_MIN: u32 = 12;
/// How often a registry is asked again that, for an event that arrived after a deploy, still has what was deployed then:
/// it may lag behind its own webhook. Lookups that failed count too, because time has passed.
pub const UNMOVED_LOOKUPS: u32 = 2;
/// Maximum wait before each of them.
pub const UNMOVED_WAIT: Duration = Duration::from_secs(3);
/// Maximum time until what an action deployed must be healthy.
pub const HEALTH_WITHIN_MAX: Duration = Duration::from_hours(1);
/// Minimum time between two probes of its health.
pub const HEALTH_EVERY_MIN: Duration = Duration::from_millis(100);
/// Maximum time that a route may set for it.
pub const LOOKUP_TIME_MAX: Duration = Duration::from_mins(1);
/// Maximum size of a manifest; registries accept at least this much.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Maximum number of redirects that are followed to a manifest.
pub const MANIFEST_REDIRECTS_MAX: usize = 3;
/// Maximum length of a `WWW-Authenticate` header.
pub const AUTH_CHALLENGE_BYTES_MAX: usize = 4 << 10;
/// Maximum number of challenges in such a header.
pub const AUTH_CHALLENGES_MAX: usize = 8;
/// Maximum number of parameters of one challenge.
pub const AUTH_CHALLENGE_PARAMS_MAX: usize = 16;
/// Maximum size of the response that contains a registry's token.
pub const REGISTRY_TOKEN_BYTES_MAX: usize = 64 << 10;
/// Maximum number of tokens that a node keeps for one registry; beyond it, the one that expires first is dropped.
pub const REGISTRY_TOKENS_MAX: usize = 256;
/// Maximum time for which a token is used, whatever its server says.
pub const REGISTRY_TOKEN_AGE_MAX: Duration = Duration::from_hours(1);
/// Maximum time between two questions to a registry that fails, unless it is polled less often or asks for more.
pub const POLL_WAIT_LONGEST: Duration = Duration::from_hours(1);
/// Minimum time between two questions about a polled tag.
pub const POLL_EVERY_MIN: Duration = Duration::from_secs(1);
/// Maximum of that time, and of the time for which a new digest waits.
pub const POLL_TIME_MAX: Duration = Duration::from_hours(31 * 24);
/// How long, beyond the time in which the registry must answer, one node alone asks or acts. Then another node does.
pub const POLL_LEASE: Duration = Duration::from_secs(3);
/// Maximum time after which a node looks again at what all nodes know of a polled tag.
pub const POLL_LOOK: Duration = Duration::from_mins(1);
/// Maximum number of digests of one polled tag whose first sight is remembered.
pub const POLL_DIGESTS_MAX: usize = 16;
/// Maximum size of docker's config file.
pub const DOCKER_CONFIG_BYTES_MAX: u64 = 1 << 20;
/// How often a source is caught up, unless its config says so.
pub const CATCH_UP_EVERY: Duration = Duration::from_hours(1);
/// How soon after a catch-up that a start or an outage caused the next one follows: attempts that were under way are
/// listed only when they have timed out.
pub const CATCH_UP_FOLLOW_UP: Duration = Duration::from_mins(2);
/// How long an outage must be over before the sender's list is read.
pub const CATCH_UP_AFTER_OUTAGE: Duration = Duration::from_secs(2);
/// The part of the list that the next catch-up looks at again, where the sender states times.
pub const CATCH_UP_OVERLAP: Duration = Duration::from_mins(10);
/// Default number of requests to a sender's API in one hour.
pub const CATCH_UP_REQUESTS_PER_HOUR: u32 = 1_000;
/// How long a node alone catches up, after each of its requests.
pub const CATCH_UP_LEASE: Duration = Duration::from_mins(1);
/// The time in which a sender's API must respond; less than the lease.
pub const CATCH_UP_REQUEST_TIME: Duration = Duration::from_secs(30);
/// The first delay after a request that failed; it doubles.
pub const CATCH_UP_WAIT_FIRST: Duration = Duration::from_secs(10);
/// Maximum delay after a request that failed, unless the API asks for more.
pub const CATCH_UP_WAIT_LONGEST: Duration = Duration::from_hours(1);
/// Maximum size of one page of the list: some senders list the bodies, too.
pub const CATCH_UP_PAGE_BYTES_MAX: usize = 32 << 20;
/// Maximum number of pages of one list.
pub const CATCH_UP_PAGES_MAX: u32 = 10_000;
/// Maximum number of deliveries that one catch-up asks for: the oldest. The others are asked for by the next one.
pub const CATCH_UP_DELIVERIES_MAX: usize = 1_000;
/// Maximum number of deliveries of which it is remembered that they arrived, or how often they were asked for.
pub const CATCH_UP_REMEMBERED_MAX: usize = 2_000;
/// How often a delivery is asked for that fails again each time.
pub const CATCH_UP_ASKS_MAX: u32 = 3;
/// Maximum length of the sender's id of a delivery, and of a position in its list.
pub const CATCH_UP_TEXT_BYTES_MAX: usize = 512;
/// Maximum number of names and values of a form that are listed. Twilio sends some forty.
pub const FORM_PAIRS_MAX: usize = 1_000;
/// Maximum length of a JWT. Those of CI jobs have some forty claims.
pub const JWT_BYTES_MAX: usize = 16 << 10;
/// Maximum number of claims that a source may require, and of values of each.
pub const REQUIRED_CLAIMS_MAX: usize = 32;
/// Maximum length of the id of a published key.
pub const KEY_ID_BYTES_MAX: usize = 256;
/// Maximum number of keys that a token without the id of its key is tried with.
pub const KEYS_WITHOUT_ID_MAX: usize = 4;
/// Maximum size of a document with published keys.
pub const KEY_DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of keys in such a document.
pub const PUBLISHED_KEYS_MAX: usize = 64;
/// Maximum number of certificates that a node keeps for one source; beyond it, the one used longest ago is dropped.
pub const CERTIFICATES_MAX: usize = 16;
/// Maximum length of the URL of a certificate or of a confirmation.
pub const KEY_URL_BYTES_MAX: usize = 2 << 10;
/// The time in which the server of a document with keys must answer.
pub const KEY_FETCH_TIME: Duration = Duration::from_secs(5);
/// How long a delivery waits for its key to be fetched.
pub const KEY_WAIT: Duration = Duration::from_secs(6);
/// Deliveries with an unknown key cause at most one fetch in this time, for each source.
pub const UNKNOWN_KEY_EVERY: Duration = Duration::from_mins(1);
/// Minimum time for which fetched keys are used before they are fetched again, whatever their server says.
pub const KEY_AGE_MIN: Duration = Duration::from_mins(5);
/// Maximum of that time.
pub const KEY_AGE_MAX: Duration = Duration::from_hours(24);
/// The first delay before keys that could not be fetched are asked for again; it doubles.
pub const KEY_RETRY_FIRST: Duration = Duration::from_millis(500);
/// Maximum of that delay.
pub const KEY_RETRY_LONGEST: Duration = Duration::from_mins(1);
/// URLs of verified deliveries that ask for a confirmation are visited at most once in this time, for each source.
pub const CONFIRMATION_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of confirmed URLs that a node remembers for each source, to visit each once.
pub const CONFIRMATIONS_MAX: usize = 16;
