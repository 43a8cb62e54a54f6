//! Forgeries: of two thousand changes of a signed delivery, for each preset, none is verified.

use super::replays::shares_key;
use super::seed::{self, Random};
use super::signed_samples::{ConfiguredPreset, SentDelivery, configured_presets, now};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use hookonce::decide::claim::NewEvent;
use hookonce::decide::judge::Verdict;
use hookonce::decide::limits::SIGNATURES_MAX;
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::internals::config::presets;
use std::collections::BTreeSet;

const MUTANTS: usize = 2_000;
/// How many changes may turn out to be none before the test gives up.
const TRIES_MAX: usize = 100 * MUTANTS;

/// A genuine delivery, and what of it is covered by its signature.
struct GenuineDelivery {
    preset: ConfiguredPreset,
    sent: SentDelivery,
    /// The headers of the signature, and those that are signed with the body.
    proof: Vec<String>,
    /// Those of them that have the signature or token.
    credentials: Vec<String>,
    signs_body: bool,
    /// Whether other bytes may have the same signature.
    signs_parts: bool,
    /// Its event, where that is so.
    first: Option<NewEvent>,
}

/// Whether the sender may send several signatures in a header, such as one for each secret while one is rolled.
fn sends_lists(preset: &str) -> bool {
    let text = presets::find(preset).expect("a preset").text;
    text.contains("entry = ") || text.contains("\"standard-webhooks\"")
}

/// A change of a genuine delivery; `None` where it has no such part, or where nothing would change.
type DeliveryMutation = fn(&GenuineDelivery, &mut Random) -> Option<SentDelivery>;

const MUTATIONS: &[(&str, DeliveryMutation)] = &[
    ("another byte in a header", another_byte),
    ("one byte more in a header", inserted_byte),
    ("a header cut short", cut_header),
    ("no header", |genuine, random| {
        let name = genuine.one_of_proof(random)?;
        let mut sent = genuine.sent.clone();
        sent.headers.retain(|(known, _)| *known != name);
        Some(sent)
    }),
    ("an empty header", |genuine, random| {
        let name = genuine.one_of_proof(random)?;
        Some(genuine.sent.with_header(&name, ""))
    }),
    ("a long header", |genuine, random| {
        let name = genuine.one_of_proof(random)?;
        let long = format!("{}{}", genuine.text(&name), "0".repeat(1 + random.index(9_000)));
        Some(genuine.sent.with_header(&name, long))
    }),
    ("a header twice", doubled),
    ("the other case", other_case),
    ("other padding", other_padding),
    ("the right signature in another encoding", re_encoded),
    ("a prefix or name in upper case", upper_case_name),
    ("another version or hash", other_version),
    ("the right signature with a weaker hash", weaker_hash),
    ("a list of wrong signatures", wrong_list),
    ("the right signature in a list that is too long", long_list),
    ("the right signature in a list, of a sender that sends one", list_of_single),
    ("another token in the query", token_in_query),
    ("another token in the body", token_in_body),
    ("another secret", |genuine, random| {
        let verify = &genuine.preset.source.verify;
        if verify.token_in_query().is_some() || verify.token_in_body().is_some() {
            return None; // that is another token
        }
        Some(genuine.preset.forge(&genuine.sent, &format!("id-{}", random.below(100))))
    }),
    ("too old or too new", |genuine, random| {
        let off = genuine.preset.source.verify.tolerance()? + Duration::from_secs(1 + random.below(1_000_000));
        let sent = &genuine.sent;
        let at = if random.below(2) == 0 { sent.at + off } else { sent.at - off };
        Some(SentDelivery { at, ..sent.clone() })
    }),
    ("a refreshed time", refreshed_time),
    ("another body", other_body),
    ("another body", other_body),
    ("another body", other_body),
];

impl GenuineDelivery {
    fn new(preset: ConfiguredPreset) -> Self {
        let sent = preset.sample("id-1", now());
        let verify = &preset.source.verify;
        let there =
            |names: Vec<String>| names.into_iter().filter(|name| sent.header(name).is_some()).collect::<Vec<_>>();
        let (proof, credentials) = (there(verify.proof_headers()), there(verify.signature_headers()));
        let signs_body = verify.signs_body();
        let signs_parts = verify.signs_other_than_bytes();
        let first = signs_parts.then(|| sent.event(&preset.source));
        Self { preset, sent, proof, credentials, signs_body, signs_parts, first }
    }

    fn text(&self, header: &str) -> &str {
        self.sent.header(header).expect("it is there")
    }

    fn one_of_proof(&self, random: &mut Random) -> Option<String> {
        (!self.proof.is_empty()).then(|| random.one(&self.proof))
    }

    fn one_of_credentials(&self, random: &mut Random) -> Option<String> {
        (!self.credentials.is_empty()).then(|| random.one(&self.credentials))
    }

    /// Whether a changed delivery is accepted: where other bytes may have the same signature, as another event.
    fn accepts(&self, mutant: &SentDelivery) -> bool {
        let source = &self.preset.source;
        let Some(first) = self.first.as_ref() else { return mutant.verify(source).is_ok() };
        match mutant.judge(source) {
            Verdict::Events(events) => events.iter().any(|event| !shares_key(first, event)),
            Verdict::Refused(_) | Verdict::Ignored(_) => false,
        }
    }

    /// The same delivery with another value of this header; `None` if that says the same.
    fn with_value(&self, header: &str, value: Vec<u8>) -> Option<SentDelivery> {
        let was = self.text(header);
        if !self.credentials.iter().any(|name| name == header) {
            return (was.as_bytes() != value).then(|| self.sent.with_header(header, value));
        }
        let hex = is_hex(signature(was)) && self.signs_body;
        let word = |text: &[u8]| text.iter().position(|byte| *byte == b' ').map_or(0, |blank| blank + 1);
        // Hex has no case, and neither have the words Bearer and Basic.
        let same = value.eq_ignore_ascii_case(was.as_bytes())
            && (hex || value[word(&value)..] == was.as_bytes()[word(was.as_bytes())..]);
        (!same).then(|| self.sent.with_header(header, value))
    }
}

/// The longest run of letters, digits, `+` and `/`: the signature or token itself.
fn signature(value: &str) -> &str {
    let runs = value.split(|c: char| !(c.is_ascii_alphanumeric() || "+/".contains(c)));
    runs.max_by_key(|run| run.len()).unwrap_or_default()
}

fn is_hex(text: &str) -> bool {
    [40, 64, 128].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn printable(random: &mut Random) -> u8 {
    b'!' + u8::try_from(random.below(94)).expect("below 94")
}

fn another_byte(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_proof(random)?;
    let mut value = genuine.text(&name).as_bytes().to_vec();
    let at = random.index(value.len());
    value[at] = printable(random);
    genuine.with_value(&name, value)
}

fn inserted_byte(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_proof(random)?;
    let mut value = genuine.text(&name).as_bytes().to_vec();
    let at = random.index(value.len() + 1);
    let byte = printable(random);
    // A separator at an end, or beside another one, adds an empty entry, which is skipped.
    let beside = at == 0 || at == value.len() || value[at - 1] == byte || value[at] == byte;
    if matches!(byte, b',' | b';') && beside {
        return None;
    }
    value.insert(at, byte);
    genuine.with_value(&name, value)
}

fn cut_header(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_proof(random)?;
    let value = genuine.text(&name);
    let kept = random.index(value.len());
    let cut = if random.below(2) == 0 { &value[..kept] } else { &value[value.len() - kept..] };
    genuine.with_value(&name, cut.as_bytes().to_vec())
}

fn doubled(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_proof(random)?;
    let mut second = genuine.text(&name).as_bytes().to_vec();
    if random.below(2) == 0 {
        let at = random.index(second.len());
        second[at] = printable(random);
    }
    let mut sent = genuine.sent.clone();
    let at = random.index(sent.headers.len() + 1);
    sent.headers.insert(at, (name, second));
    Some(sent)
}

fn other_case(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let value = genuine.text(&name);
    let other = if random.below(2) == 0 { value.to_ascii_uppercase() } else { value.to_ascii_lowercase() };
    // Upper-case words around a signature in hex: its name and prefix are read as they are written.
    if is_hex(signature(value)) {
        return None;
    }
    genuine.with_value(&name, other.into_bytes())
}

fn other_padding(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let value = genuine.text(&name);
    let other = match (value.strip_suffix('='), random.below(2)) {
        (Some(cut), 0) => cut.to_owned(),
        _ => format!("{value}{}", "=".repeat(1 + random.index(3))),
    };
    genuine.with_value(&name, other.into_bytes())
}

/// The bytes of a right signature, written in a way that its sender does not use.
fn re_encoded(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let value = genuine.text(&name);
    let right = signature(value);
    let (before, rest) = value.split_once(right)?;
    let after = rest.trim_start_matches('=');
    let padded = &value[before.len()..value.len() - after.len()];
    let bytes = if is_hex(right) { hex::decode(right).ok() } else { STANDARD.decode(padded).ok() }?;
    let written = match random.below(6) {
        0 => hex::encode(&bytes),
        1 => hex::encode_upper(&bytes),
        2 => format!("0x{}", hex::encode(&bytes)),
        3 => STANDARD.encode(&bytes),
        4 => STANDARD_NO_PAD.encode(&bytes),
        _ => URL_SAFE.encode(&bytes),
    };
    genuine.with_value(&name, format!("{before}{written}{after}").into_bytes())
}

/// The names and prefixes of a header are read as they are written; only the word Bearer has no case.
fn upper_case_name(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let value = genuine.text(&name);
    let (before, rest) = value.split_once(signature(value))?;
    let other = before.to_ascii_uppercase();
    if !genuine.signs_body || other == before || before.eq_ignore_ascii_case("bearer ") {
        return None;
    }
    Some(genuine.sent.with_header(&name, format!("{other}{}{rest}", signature(value))))
}

fn other_version(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let swaps = [
        ("v1=", "v0="),
        ("v1=", "v2="),
        ("v1,", "v0,"),
        ("v1,", "v1a,"),
        ("v0=", "v1="),
        ("sha256=", "sha1="),
        ("sha256=", ""),
        ("sha1=", "sha256="),
        ("signature=", "signature0="),
        ("Bearer ", "Basic "),
        ("Basic ", "Bearer "),
    ];
    let (from, to) = random.one(&swaps);
    let other = genuine.text(&name).replacen(from, to, 1);
    genuine.with_value(&name, other.into_bytes())
}

fn wrong_list(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let value = genuine.text(&name);
    let right = signature(value);
    let wrong = |random: &mut Random| {
        let mut text = right.as_bytes().to_vec();
        let at = random.index(text.len());
        text[at] = if text[at] == b'0' { b'1' } else { b'0' };
        value.replace(right, std::str::from_utf8(&text).expect("ASCII"))
    };
    let list: Vec<_> = (0..2 + random.index(20)).map(|_| wrong(random)).collect();
    let separator = random.one(&[",", ", ", " ", ";"]);
    genuine.with_value(&name, list.join(separator).into_bytes())
}

/// The right signature among wrong ones.
fn with_wrong_ones(value: &str, separator: &str, wrong: usize, random: &mut Random) -> String {
    let right = signature(value);
    let bad = if right.starts_with('0') { right.replacen('0', "1", 1) } else { format!("0{}", &right[1..]) };
    // A list has the time, or what else stands before the signature, once.
    let begin = value.find(right).map_or(0, |at| value[..at].rfind(separator.trim()).map_or(0, |comma| comma + 1));
    let (before, own) = value.split_at(begin);
    let mut list = vec![own.trim().replace(right, &bad); wrong];
    list.insert(random.index(list.len() + 1), own.trim().to_owned());
    format!("{before}{}", list.join(separator))
}

/// One right signature among more than are read: a flood of them would be too much work.
fn long_list(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let separator = random.one(&[",", ", ", " ", ";"]);
    let wrong = SIGNATURES_MAX + random.index(20);
    let value = with_wrong_ones(genuine.text(&name), separator, wrong, random);
    Some(genuine.sent.with_header(&name, value))
}

/// One right signature among few, where the sender never sends a list.
fn list_of_single(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let value = genuine.text(&name);
    if !genuine.preset.source.verify.signs_body() || sends_lists(genuine.preset.name()) || value.contains("v1,") {
        return None;
    }
    let separator = random.one(&[",", ", ", " ", ";"]);
    let wrong = 1 + random.index(SIGNATURES_MAX - 1);
    Some(genuine.sent.with_header(&name, with_wrong_ones(value, separator, wrong, random)))
}

/// A correct proof with SHA-1, and where a sender puts that.
fn weaker_hash(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let name = genuine.one_of_credentials(random)?;
    let verify = &genuine.preset.source.verify;
    if !verify.has_shared_hmac_key() {
        return None;
    }
    let value = genuine.text(&name);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, genuine.preset.secret.as_bytes());
    let body = &genuine.sent.body[..];
    let time = verify_time(genuine).unwrap_or_default();
    let message = match random.below(3) {
        0 => body.to_vec(),
        1 => [time.as_bytes(), b".", body].concat(),
        _ => [b"v0:", time.as_bytes(), b":", body].concat(),
    };
    let mac = hmac::sign(&key, &message);
    let written = if random.below(2) == 0 { hex::encode(mac) } else { STANDARD.encode(mac) };
    let right = signature(value);
    let without = |sent: &SentDelivery| {
        let mut sent = sent.clone();
        sent.headers.retain(|(known, _)| *known != name);
        sent
    };
    let weak = match random.below(5) {
        0 => genuine.sent.with_header(&name, value.replace(right, &written)),
        1 => genuine.sent.with_header(&name, format!("sha1={written}")),
        2 => without(&genuine.sent).with_header("x-hub-signature", format!("sha1={written}")),
        3 => genuine.sent.with_header(&name, format!("v0={written}")),
        _ => genuine.sent.with_header(&name, written),
    };
    // Of a sender that signs with SHA-1 it may be the right one.
    let uses_sha1 = verify.words().contains("SHA-1");
    (!uses_sha1).then_some(weak)
}

/// The time that was signed, as it is written.
fn verify_time(genuine: &GenuineDelivery) -> Option<String> {
    let text = (genuine.sent.at.0 / 1_000_000).to_string();
    let has = |name: &String| genuine.text(name).contains(&text);
    genuine.proof.iter().any(has).then_some(text)
}

/// A value that is not this one.
fn other_token(right: &str, random: &mut Random) -> Option<String> {
    let at = random.index(right.len());
    let other = match random.below(7) {
        0 => String::new(),
        1 => right[..at].to_owned(),
        2 => right[at..].to_owned(),
        3 => right.to_ascii_uppercase(),
        4 => format!("{right} "),
        5 => format!("{}x{}", &right[..at], &right[at..]),
        _ => format!("{}~{}", &right[..at], &right[at + 1..]),
    };
    (other != right).then_some(other)
}

fn token_in_query(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let (name, right) = genuine.preset.source.verify.token_in_query()?;
    let other = other_token(&right, random)?.replace(' ', "%20");
    let right = right.replace(' ', "%20");
    let query = match random.below(7) {
        0 => String::new(),
        1 => format!("{name}={other}&{name}={right}"),
        2 => format!("{name}={right}&{name}={other}"),
        3 => format!("{}={right}", name.to_ascii_uppercase()),
        4 => format!("{name}%00={right}"),
        5 => format!("x={right}&{name}={other}"),
        _ => format!("{name}={other}"),
    };
    Some(SentDelivery { query, ..genuine.sent.clone() })
}

fn token_in_body(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let verify = &genuine.preset.source.verify;
    let (path, right) = verify.token_in_body()?;
    let name = path.last()?;
    let other = other_token(&right, random)?;
    let body = String::from_utf8(genuine.sent.body.clone()).expect("JSON is text");
    let own = format!("\"{name}\":\"{right}\"");
    assert!(body.contains(&own), "{body}");
    let written = match random.below(8) {
        0 => format!("\"{name}\":null"),
        1 => format!("\"{name}\":[\"{right}\"]"),
        2 => format!("\"{name}\":{{\"a\":\"{right}\"}}"),
        3 => format!("\"{name}\":\"{other}\",{own}"),
        4 => format!("{own},\"{name}\":\"{other}\""),
        5 => format!("\"{}\":\"{right}\"", name.to_ascii_uppercase()),
        6 => "\"another\":true".to_owned(),
        _ => format!("\"{name}\":\"{other}\""),
    };
    let mut sent = genuine.sent.clone();
    sent.body = body.replacen(&own, &written, 1).into_bytes();
    if genuine.preset.source.fields.each().is_some() && random.below(4) == 0 {
        // An element without a token beside one that has it.
        let begin = body.find('[')?;
        sent.body = format!("{}{{\"{name}\":\"{other}\"}},{}", &body[..=begin], &body[begin + 1..]).into_bytes();
    }
    Some(sent)
}

/// The time of a captured delivery is brought up to date.
fn refreshed_time(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    let written = |at: Timestamp| (at.0 / 1_000_000).to_string();
    let sent = &genuine.sent;
    let at = sent.at + Duration::from_secs(1 + random.below(1_000_000));
    let name = genuine.proof.iter().find(|name| genuine.text(name).contains(&written(sent.at)))?;
    let value = genuine.text(name).replace(&written(sent.at), &written(at));
    Some(SentDelivery { at, ..sent.with_header(name, value) })
}

fn other_body(genuine: &GenuineDelivery, random: &mut Random) -> Option<SentDelivery> {
    if !genuine.signs_body && !genuine.signs_parts {
        return None;
    }
    let mut sent = genuine.sent.clone();
    let at = random.index(sent.body.len());
    match random.below(5) {
        0 => sent.body[at] ^= 1 << random.below(8),
        1 => sent.body.insert(at, printable(random)),
        2 => drop(sent.body.remove(at)),
        3 => sent.body.truncate(at),
        _ => sent.body.push(random.one(b"\n \0}")),
    }
    Some(sent)
}

#[test]
fn of_two_thousand_mutants_of_each_preset_none_is_verified() {
    let mut random = Random::new(seed::given_or(15));
    let (mut accepted, mut applied) = (Vec::new(), BTreeSet::new());
    for preset in configured_presets() {
        if preset.source.verify.is_none() {
            assert!(["docker-hub", "quay"].contains(&preset.name()), "{} has nothing to change", preset.name());
            continue;
        }
        let genuine = GenuineDelivery::new(preset);
        let source = &genuine.preset.source;
        assert_eq!(genuine.sent.verify(source), Ok(()), "{}", genuine.preset.name());
        let (mut judged, mut tries) = (0, 0);
        while judged < MUTANTS {
            tries += 1;
            assert!(tries < TRIES_MAX, "{}: hardly anything of it can be changed", genuine.preset.name());
            let (what, mutate) = random.one(MUTATIONS);
            let Some(mutant) = mutate(&genuine, &mut random) else { continue };
            judged += 1;
            applied.insert(what);
            if genuine.accepts(&mutant) {
                let headers = mutant.headers.iter().map(|(name, value)| (name, String::from_utf8_lossy(value)));
                accepted.push(format!("{}: {what}: {:?}", genuine.preset.name(), headers.collect::<Vec<_>>()));
            }
        }
    }
    let shown = accepted.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(accepted.is_empty(), "{} were verified:\n{shown}", accepted.len());
    let unused: Vec<_> = MUTATIONS.iter().map(|(what, _)| *what).filter(|what| !applied.contains(what)).collect();
    assert!(unused.is_empty(), "no delivery was changed in this way: {unused:?}");
}
