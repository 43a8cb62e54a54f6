//! What anyone may send, and what people may write: the parsers of signature headers, tokens, certificates, key sets,
//! forms, places and JSON get changed pieces of a corpus. None of them panics, and nothing is accepted that is not signed.
//!
//! The numbers are small here and large with `HOOKONCE_FULL`. A failing input is printed with its seed.

use super::seed::{self, Random};
use super::signed_samples::{ConfiguredPreset, SentDelivery, config_of, configured_presets, now};
use hookonce::decide::field::FieldLocation;
use hookonce::decide::judge::Verdict;
use hookonce::decide::source::Source;
use hookonce::decide::verify::{PublishedKey, SignedText, TimestampFormat};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// The pieces of a file of the corpus: its lines, and the whole.
fn corpus(file: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/senders/corpus").join(file);
    let whole = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec);
    let mut pieces: Vec<_> = lines.collect();
    pieces.push(whole);
    pieces
}

fn rounds(usual: usize) -> usize {
    if std::env::var_os("HOOKONCE_FULL").is_some() { usual * 200 } else { usual }
}

/// Bytes that mean something to one of the parsers.
const MARKS: &[u8] = b"=,;.:+/%&\"\\{}[] \t\r\n\0-_0aZ\xc3\x80\xff";

/// One of the pieces after a few changes: bytes replaced, inserted, removed, repeated, or another piece spliced in.
fn mutant(pieces: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.one(pieces);
    for _ in 0..=random.below(6) {
        let at = random.index(bytes.len() + 1);
        let byte = if random.below(2) == 0 { random.one(MARKS) } else { random.next().to_le_bytes()[0] };
        match random.below(7) {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => bytes[at] = byte,
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let run = vec![byte; random.index(300)];
                bytes.splice(at..at, run);
            }
            5 => {
                let other = random.one(pieces);
                let from = random.index(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let copy = bytes[at..].to_vec();
                bytes.extend(copy.into_iter().take(2_000));
            }
        }
    }
    bytes
}

/// Runs this with mutants; a panic names the input.
fn fuzz(name: &str, pieces: &[Vec<u8>], rounds: usize, mut target: impl FnMut(&[u8], &mut Random)) {
    let seed = seed::given_or(15);
    let mut random = Random::new(seed);
    for _ in 0..rounds {
        let input = mutant(pieces, &mut random);
        let ran = catch_unwind(AssertUnwindSafe(|| target(&input, &mut random)));
        assert!(ran.is_ok(), "{name}, with seed {seed}: {:?}", String::from_utf8_lossy(&input));
    }
}

/// Sources whose proofs cannot be made here, or are tokens of an issuer.
fn other_sources() -> Vec<Arc<Source>> {
    let configs = [
        "verify = { scheme = \"jwt\", issuer = \"https://token.example.com\", audience = \"hookonce\" }",
        "verify = { scheme = \"jwt\", issuer = \"netlify\", header = \"x-token\", prefix = \"\", body_digest = \"sha256\" }\nsecret = { env = \"S\" }",
        "verify = { scheme = \"sns\", topic = \"arn:aws:sns:eu-west-1:1:a\" }",
        "verify = { scheme = \"paypal\", webhook_id = \"1\" }",
        "verify = { scheme = \"ed25519\", header = \"x-signature\", timestamp = \"header.x-time\", over = \"{timestamp}{body}\", timestamp_format = \"seconds\" }\npublic_key = \"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"",
        "verify = { scheme = \"hmac\", header = \"x-signature\", entry = \"v1\", separator = \";\", timestamp = \"entry.t\", over = \"{timestamp}.{body}\" }\nsecret = { env = \"S\" }",
    ];
    configs.iter().map(|text| config_of(&format!("[source.x]\n{text}\n")).0.sources[0].clone()).collect()
}

fn check_refused(source: &Source, sent: &SentDelivery) {
    if let Verdict::Events(_) = sent.judge(source) {
        let headers: Vec<_> = sent.headers.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))).collect();
        panic!("{} took {headers:?} {:?}", source.name, String::from_utf8_lossy(&sent.body));
    }
}

/// A delivery with this in every place where a proof may be.
fn with_proof(source: &Source, input: &[u8], body: &[u8]) -> SentDelivery {
    let names = source.verify.proof_headers();
    let known = ["authorization", "x-token", "paypal-transmission-sig", "paypal-cert-url"].map(str::to_owned);
    let headers = names.into_iter().chain(known).map(|name| (name, input.to_vec())).collect();
    SentDelivery { headers, query: String::from_utf8_lossy(input).into_owned(), body: body.to_vec(), at: now() }
}

#[test]
fn no_header_of_a_signature_or_token_panics_or_is_accepted() {
    let presets: Vec<_> = configured_presets().into_iter().filter(|it| it.source.verify.signs() != "none").collect();
    let sources: Vec<_> = presets.iter().map(|preset| preset.source.clone()).chain(other_sources()).collect();
    let pieces: Vec<_> = ["signatures.txt", "tokens.txt"].into_iter().flat_map(corpus).collect();
    let body = br#"{"id":"a","type":"b"}"#;
    fuzz("signature", &pieces, rounds(400), |input, _| {
        for source in &sources {
            check_refused(source, &with_proof(source, input, body));
        }
    });
}

/// One header of a genuine delivery is another, beside those that are right: so the parsers behind a check of the time, or
/// of a first header, are reached. Tokens and certificates have their keys.
#[test]
fn no_header_beside_genuine_ones_panics_or_is_accepted() {
    let presets: Vec<_> = configured_presets().into_iter().filter(|it| it.source.verify.signs() != "none").collect();
    let sent: Vec<_> = presets.iter().map(|preset| (preset, preset.sample("id-1", now()))).collect();
    let published = ["github-actions", "gitlab-ci", "pubsub", "sns", "paypal"];
    assert!(published.iter().all(|name| presets.iter().any(|preset| preset.name() == *name)));
    for (preset, genuine) in &sent {
        assert_eq!(genuine.verify(&preset.source), Ok(()), "{}", preset.name());
    }
    let pieces: Vec<_> = ["signatures.txt", "tokens.txt"].into_iter().flat_map(corpus).collect();
    let mut changed = 0;
    fuzz("header beside others", &pieces, rounds(60), |input, random| {
        for (preset, genuine) in &sent {
            for name in preset.source.verify.proof_headers() {
                let Some(value) = genuine.header(&name) else { continue };
                changed += 1;
                let other = genuine.with_header(&name, input);
                assert!(other.verify(&preset.source).is_err(), "{} took another {name}", preset.name());
                // A change of the genuine value may say the same; whatever the verdict is, there is one.
                let near = mutant(&[value.as_bytes().to_vec()], random);
                drop(genuine.with_header(&name, near).judge(&preset.source));
            }
        }
    });
    assert!(changed > 60 * 90, "{changed}");
}

/// The same of what is signed in a body or in the query.
#[test]
fn no_notification_with_a_changed_member_panics_or_is_accepted() {
    let presets: Vec<_> = configured_presets().into_iter().filter(|it| it.name() == "sns").collect();
    let [sns] = &presets[..] else { panic!("there is one") };
    let genuine = sns.sample("id-1", now());
    let body: Value = serde_json::from_slice(&genuine.body).expect("JSON");
    let names: Vec<_> = body.as_object().expect("an object").keys().cloned().collect();
    let signed = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type", "Signature", "SigningCertURL"];
    fuzz("notification", &corpus("signatures.txt"), rounds(300), |input, random| {
        let name = random.one(&names);
        let mut body = body.clone();
        body[&name] = String::from_utf8_lossy(input).into();
        let sent = SentDelivery { body: body.to_string().into_bytes(), ..genuine.clone() };
        let verified = sent.verify(&sns.source);
        assert!(verified.is_err() || !signed.contains(&name.as_str()), "another {name} is accepted");
    });
}

#[test]
fn no_body_panics_or_is_accepted_without_its_signature() {
    let presets: Vec<ConfiguredPreset> =
        configured_presets().into_iter().filter(|it| it.source.verify.signs_body()).collect();
    let signed: Vec<_> =
        presets.iter().map(|preset| (preset, preset.sample("e76c6bd4-55c9-4987-8304-da1588d8988b", now()))).collect();
    let others = other_sources();
    let pieces: Vec<_> = ["json.txt", "forms.txt"].into_iter().flat_map(corpus).collect();
    fuzz("body", &pieces, rounds(150), |input, _| {
        for (preset, genuine) in &signed {
            let sent = SentDelivery { body: input.to_vec(), ..genuine.clone() };
            if sent.body != genuine.body {
                check_refused(&preset.source, &sent);
            }
        }
        for source in &others {
            check_refused(source, &with_proof(source, b"v1=00", input));
        }
    });
}

/// The same parsers behind a proof that is right: fields are read from anything that a sender may sign.
#[test]
fn no_signed_body_panics() {
    let presets: Vec<ConfiguredPreset> =
        configured_presets().into_iter().filter(|it| it.source.verify.signs() != "none").collect();
    let pieces: Vec<_> = ["json.txt", "forms.txt"].into_iter().flat_map(corpus).collect();
    fuzz("signed body", &pieces, rounds(150), |input, _| {
        for preset in &presets {
            let headers = preset.source.verify.sign("an-id", now(), input);
            let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
            let sent = SentDelivery { headers, query: String::new(), body: input.to_vec(), at: now() };
            // Whatever the verdict is, there is one.
            drop(sent.judge(&preset.source));
        }
    });
}

#[test]
fn no_certificate_or_key_set_panics() {
    fuzz("certificate", &corpus("certificate.pem"), rounds(3_000), |input, _| {
        drop(PublishedKey::of_certificate(input));
    });
    fuzz("key set", &corpus("json.txt"), rounds(3_000), |input, _| {
        drop(PublishedKey::of_key_set(input));
    });
}

/// A place that is read is written back as a place that is the same.
#[test]
fn no_place_or_template_panics_and_a_place_is_read_as_it_is_written() {
    fuzz("place", &corpus("places.txt"), rounds(5_000), |input, _| {
        let text = String::from_utf8_lossy(input);
        if let Ok(place) = FieldLocation::parse(&text) {
            assert_eq!(FieldLocation::parse(&place.to_string()), Ok(place));
        }
        for format in [None, Some(TimestampFormat::Seconds), Some(TimestampFormat::Rfc3339)] {
            drop(SignedText::parse(&text, format));
        }
    });
}
