//! The deliveries: one real body, whose version, digests and commits are others in each, signed before the measurement.
//!
//! What differs from one push of an image to the next is random, as it is from GitHub: bodies that were alike but for a
//! number would make a dictionary look better than it is.
//!
//! Delivery ids are random, as senders make them. Counted up, they would all land on one page of an index, and hide what
//! a random page costs.
//!
//! Whole requests would take gigabytes; only the numbers and signatures are kept, and written into a connection's own
//! copy of the request just before it is sent.

use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use std::path::Path;

/// The secret of the only source.
pub const SECRET: &str = "It's a Secret to Everybody";
/// The length of the body, to check that it is the one in the docs.
pub const BODY_BYTES: usize = 10_361;
/// The path of the only source.
pub const PATH: &str = "/version/1";
/// Digits of a source's number in its path.
const SOURCE_DIGITS: usize = 4;
/// Digits of a delivery id, hyphens not counted.
const ID_DIGITS: usize = 32;
/// Digits of the number in the body: one of its version ids.
const DIGITS: usize = 9;
const VERSION: &[u8] = b"675688875";
/// How far back a duplicate reaches, in distinct deliveries.
pub const REACH: u64 = 1_000;

/// All deliveries.
pub struct Deck {
    request: Request,
    signatures: Vec<[u8; 64]>,
}

/// The bytes of one request, and where they differ from one to the next.
#[derive(Clone)]
pub struct Request {
    pub bytes: Vec<u8>,
    head: usize,
    /// Where the digits of its source are, and among how many sources it chooses; 1: there is one path, [`PATH`].
    source: usize,
    sources: u64,
    delivery: usize,
    signature: usize,
    numbers: Vec<usize>,
    /// The digests and commits in the body: all places of each.
    digests: Vec<Places>,
}

/// Where one text is in the request, and how long it is.
#[derive(Clone)]
struct Places {
    at: Vec<usize>,
    length: usize,
}

/// The share of duplicates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    pub percent: u64,
    /// One in this many is new; 0: all are.
    one_in: u64,
    /// All are duplicates of this many sent before; 0: they are not.
    known: u64,
}

impl Repeats {
    pub const NONE: Self = Self { percent: 0, one_in: 0, known: 0 };
    pub const HALF: Self = Self { percent: 50, one_in: 2, known: 0 };
    pub const MOST: Self = Self { percent: 95, one_in: 20, known: 0 };
    pub const ALL: Self = Self { percent: 100, one_in: 0, known: REACH };

    /// Which distinct delivery is sent as the `turn`th.
    pub fn number(self, turn: u64) -> u64 {
        match self.one_in {
            0 if self.known > 0 => mix(turn) % self.known,
            0 => turn,
            one_in if turn.is_multiple_of(one_in) => turn / one_in,
            one_in => {
                let newest = turn / one_in;
                newest - mix(turn) % (newest.min(REACH) + 1)
            }
        }
    }

    /// How many distinct ones are among the first `turns`.
    pub fn distinct(self, turns: u64) -> u64 {
        if self.known > 0 {
            return 0;
        }
        turns.div_ceil(self.one_in.max(1))
    }
}

/// A pseudo-random number derived from another: `SplitMix64`, a bijection, so that no two are equal.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Deck {
    /// Signs this many, on both cores.
    pub fn new(count: usize) -> Self {
        Self::sized(count, BODY_BYTES)
    }

    /// The same with bodies of this many bytes: a real one with a text in front, or one with only the fields that are
    /// extracted.
    pub fn sized(count: usize, bytes: usize) -> Self {
        Self::to_sources(count, bytes, 1)
    }

    /// The same, for each of this many sources in turn; their paths are [`path_of`] their numbers.
    pub fn to_sources(count: usize, bytes: usize, sources: u64) -> Self {
        let request = Request::template(bytes, sources);
        let halves = [0..count / 2, count / 2..count];
        let signatures = std::thread::scope(|scope| {
            let sign = |range: std::ops::Range<usize>| {
                let mut request = request.clone();
                scope.spawn(move || range.map(|number| request.sign(number as u64)).collect::<Vec<_>>())
            };
            halves.map(sign).into_iter().flat_map(|half| half.join().expect("signing works")).collect()
        });
        Self { request, signatures }
    }

    pub fn len(&self) -> usize {
        self.signatures.len()
    }

    /// A copy of the request, to be filled before each use.
    pub fn request(&self) -> Request {
        self.request.clone()
    }

    /// Fills in the delivery of this number.
    pub fn fill(&self, request: &mut Request, number: u64) {
        request.number(number);
        let signature = &self.signatures[usize::try_from(number).expect("a number of this deck")];
        request.bytes[request.signature..][..64].copy_from_slice(signature);
    }
}

impl Request {
    fn template(bytes: usize, sources: u64) -> Self {
        let body = padded(if bytes < BODY_BYTES { small_body() } else { body() }, bytes);
        let path = if sources == 1 { PATH.to_owned() } else { path_of(0) };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: GitHub-Hookshot/95f2ac2\r\naccept: */*\r\n\
             content-type: application/json\r\nx-github-event: registry_package\r\nx-github-hook-id: 594934832\r\n\
             x-github-delivery: 00000000-0000-4000-8000-000000000000\r\nx-hub-signature-256: sha256={:064}\r\n\
             content-length: {}\r\n\r\n",
            0,
            body.len()
        );
        let place = |of: &str| head.find(of).expect("the header is there") + of.len();
        let (delivery, signature) = (place("x-github-delivery: "), place("sha256="));
        let found = body.windows(DIGITS).enumerate().filter(|(_, window)| *window == VERSION);
        let numbers: Vec<_> = found.map(|(at, _)| head.len() + at).collect();
        assert!(!numbers.is_empty(), "the body has its version in it");
        let digests = hex_digests(&body).into_iter().map(|text| {
            let found = body.windows(text.len()).enumerate().filter(|(_, window)| *window == text);
            Places { at: found.map(|(at, _)| head.len() + at).collect(), length: text.len() }
        });
        let digests: Vec<_> = digests.collect();
        let source = "POST ".len() + path.len() - SOURCE_DIGITS;
        let bytes = [head.as_bytes(), &body].concat();
        Self { head: head.len(), bytes, source, sources, delivery, signature, numbers, digests }
    }

    fn number(&mut self, number: u64) {
        self.delivery_id(number);
        if self.sources > 1 {
            let path = path_of(number % self.sources);
            let digits = &path.as_bytes()[path.len() - SOURCE_DIGITS..];
            self.bytes[self.source..][..SOURCE_DIGITS].copy_from_slice(digits);
        }
        let digits = format!("{number:012}");
        for at in &self.numbers {
            // A JSON number does not begin with a zero.
            self.bytes[*at..][..DIGITS].copy_from_slice(&digits.as_bytes()[12 - DIGITS..]);
            self.bytes[*at] = b'6';
        }
        for (n, Places { at, length }) in (1_u64..).zip(&self.digests) {
            let random = [0, 1, 2, 3].map(|part| format!("{:016x}", mix(number ^ (n << 48) ^ (part << 56)))).concat();
            for at in at {
                self.bytes[*at..][..*length].copy_from_slice(&random.as_bytes()[..*length]);
            }
        }
    }

    /// Writes the random id of this number: a version 4 UUID.
    fn delivery_id(&mut self, number: u64) {
        let digits = format!("{:016x}{:016x}", mix(number), mix(!number));
        debug_assert_eq!(digits.len(), ID_DIGITS);
        let places = self.bytes[self.delivery..].iter_mut().filter(|place| **place != b'-');
        for (at, (place, digit)) in places.zip(digits.bytes()).enumerate() {
            // Its version and its variant.
            *place = if at == 12 {
                b'4'
            } else if at == 16 {
                b'8'
            } else {
                digit
            };
        }
    }

    fn sign(&mut self, number: u64) -> [u8; 64] {
        self.number(number);
        let scheme = VerificationScheme::github(SourceSecrets::new(vec![SECRET.as_bytes().to_vec()]));
        let headers = scheme.sign("", Timestamp(0), &self.bytes[self.head..]);
        let signature = headers.iter().find_map(|(_, value)| value.strip_prefix("sha256=")).expect("a signature");
        signature.as_bytes().try_into().expect("64 digits")
    }
}

/// The digests and commits in a body, each once: all of 40 to 64 hexadecimal digits.
fn hex_digests(body: &[u8]) -> Vec<&[u8]> {
    let runs = body.split(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let found: std::collections::BTreeSet<_> = runs.filter(|run| (40..=64).contains(&run.len())).collect();
    found.into_iter().collect()
}

/// The path of one of many sources.
pub fn path_of(source: u64) -> String {
    format!("/source/{source:04}")
}

/// The body with a long text in front of its other values, so that it has this many bytes.
fn padded(body: Vec<u8>, bytes: usize) -> Vec<u8> {
    const FRAME: usize = r#""pad":"","#.len();
    let Some(missing) = bytes.checked_sub(body.len() + FRAME) else { return body };
    let text: String =
        (0..).flat_map(|n| format!("{:016x} ", mix(n)).into_bytes()).take(missing).map(char::from).collect();
    [br#"{"pad":""#, text.as_bytes(), br#"","#, &body[1..]].concat()
}

/// The members from which fields are extracted, and no other.
fn small_body() -> Vec<u8> {
    let body = r#"{"action":"published","registry_package":{"name":"jamiec_ts","updated_at":"2026-02-07T16:20:40Z",
        "package_version":{"id":675688875,"version":"sha256:3d5a","container_metadata":{"tag":{"name":"latest"}}}}}"#;
    body.into()
}

/// The first user's push of `latest`, as GitHub sent it.
fn body() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/payloads/storm_latest.jsonl");
    let lines = std::fs::read_to_string(path).expect("the payloads are there");
    let bodies = lines.lines().filter_map(|line| {
        let saved: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        Some(saved["body"].as_str()?.as_bytes().to_vec())
    });
    bodies.into_iter().find(|body| body.len() == BODY_BYTES).expect("one body has that length")
}
