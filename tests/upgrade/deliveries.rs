//! The deliveries that filled the stores, byte by byte, and the responses of the first release.

use crate::folder;
use crate::support::{Answer, Sent, payload, storm};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The time of all signatures: 2026-11-15T00:00:00Z.
const SIGNED_AT: u64 = 1_794_700_800;
const SECRET: &str = "It's a Secret to Everybody";

/// One delivery, its first response and that to its repeat.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    body: String,
    pub(crate) first: Told,
    pub(crate) repeat: Told,
}

/// The part of a response that is the same on every store.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    status: u16,
    /// Its `status` member, if it has one.
    word: String,
    /// The state of the event, if the response has it.
    pub(crate) state: String,
    /// The body, if it is a stored response.
    replayed: Option<String>,
}

impl Told {
    pub(crate) fn of(answer: &Answer) -> Self {
        let state = answer.json()["state"].as_str().unwrap_or("").to_owned();
        let replayed = answer.header("idempotent-replayed").is_some();
        let body = replayed.then(|| String::from_utf8(answer.body.clone()).unwrap());
        Self { status: answer.status, word: answer.word(), state, replayed: body }
    }
}

impl Kept {
    pub(crate) fn sent(&self) -> Sent {
        Sent { headers: self.headers.clone(), body: self.body.clone().into_bytes() }
    }

    /// Checks that a response is that of a repeat, as the first release gave it. Events that waited may have ended by
    /// now. How a waiting sender learns of a dead event may differ between releases, as long as it is not a new event.
    pub(crate) fn is_repeated_by(&self, answer: &Answer) {
        let told = Told::of(answer);
        match self.repeat.state.as_str() {
            "dead" => assert_ne!(told.word, "accepted", "{self:?}: {told:?}"),
            "waiting" | "running" => assert_eq!(told.word, self.repeat.word, "{self:?}"),
            _ => assert_eq!(told, self.repeat, "{self:?}"),
        }
    }
}

/// All deliveries that were sent, in order.
pub(crate) fn kept() -> Vec<Kept> {
    let text = std::fs::read_to_string(folder().join("deliveries.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes them into the fixtures.
pub(crate) fn keep(all: &[Kept]) {
    let lines: String = all.iter().map(|kept| serde_json::to_string(kept).unwrap() + "\n").collect();
    std::fs::write(folder().join("deliveries.jsonl"), lines).unwrap();
}

/// The deliveries to send to the first release, in order. Duplicates among them leave a sighting or an alias.
pub(crate) fn all() -> Vec<Kept> {
    let number = |n: u32| format!("{{\"n\":{n}}}");
    let number_of = |n: u32, of: &str| format!("{{\"n\":{n},\"of\":\"{of}\"}}");
    let mut all = Vec::new();
    let mut send = |path: &str, sent: Sent| {
        let body = String::from_utf8(sent.body).unwrap();
        all.push(Kept {
            path: path.into(),
            headers: sent.headers,
            body,
            first: Told::default(),
            repeat: Told::default(),
        });
    };
    for n in [1, 2, 3, 1] {
        send("/github", Sent::github("push", &format!("github-{n}"), &number(n)));
        send("/ids", signed(&number(n)).with("x-id", &format!("id-{n}")));
        send("/timed", timed(&number(n)).with("x-id", &format!("timed-{n}")));
        send("/standard", standard(&format!("msg_{n}"), &number(n)));
        send("/bodies", signed(&number(n)));
        send("/sports", sports(n));
        send("/ci", upload(n));
    }
    send("/github", Sent::github("push", "github-1-anew", &number(1))); // an equal body: the first release acted on it again
    send("/version/1", storm("storm_latest.jsonl")[2].clone()); // its id was imported
    for (id, version, second) in [("package-1", 1, 50), ("package-1-again", 1, 51), ("package-2", 2, 52)] {
        send("/version/1", Sent::package(id, "latest", version, second));
    }
    for (id, n, of) in [("to-1", 1, "a"), ("to-2", 2, "a"), ("back-to-1", 1, "a "), ("b-to-1", 1, "b")] {
        let body = number_of(n, of.trim()) + of.trim_start_matches(|c| c != ' '); // a space makes the bodies differ
        send("/changes", Sent::github("push", id, &body));
    }
    for (who, key) in [("alice", "key-1"), ("bob", "key-1"), ("alice", "key-2")] {
        let headers = [
            ("authorization", format!("Bearer the bearer token of {who}")),
            ("idempotency-key", format!("\"{key}\"")),
            ("content-type", "application/json".to_owned()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        send("/payments", Sent { headers, body: number(7).into_bytes() });
    }
    for n in [1, 2] {
        send("/fails", Sent::github("push", &format!("fails-{n}"), &number(n)));
        send("/doubts", Sent::github("push", &format!("doubts-{n}"), &number(n)));
    }
    for (n, of) in [(1, "a"), (2, "a"), (3, "b")] {
        send("/waits", Sent::github("push", &format!("waits-{n}"), &number_of(n, of)));
    }
    send("/runs", Sent::github("push", "runs-1", &number(1)));
    all
}

fn sign(secret: &[u8], over: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), over)
}

fn json() -> Sent {
    Sent { headers: vec![("content-type".into(), "application/json".into())], body: Vec::new() }
}

/// A body with its signature in a header of its own.
fn signed(body: &str) -> Sent {
    let signature = hex::encode(sign(SECRET.as_bytes(), body.as_bytes()));
    Sent { body: body.into(), ..json() }.with("x-signature", &signature)
}

/// A body that is signed together with the time.
fn timed(body: &str) -> Sent {
    let signature = hex::encode(sign(SECRET.as_bytes(), format!("{SIGNED_AT}.{body}").as_bytes()));
    Sent { body: body.into(), ..json() }.with("x-time", &SIGNED_AT.to_string()).with("x-signature", &signature)
}

/// A delivery of Standard Webhooks: id, time and body are signed.
fn standard(id: &str, body: &str) -> Sent {
    let signature = sign(b"A secret of twenty-four bytes", format!("{id}.{SIGNED_AT}.{body}").as_bytes());
    let sent = Sent { body: body.into(), ..json() }.with("webhook-id", id);
    sent.with("webhook-timestamp", &SIGNED_AT.to_string())
        .with("webhook-signature", &format!("v1,{}", STANDARD.encode(signature)))
}

fn sports(n: u32) -> Sent {
    let mut body: serde_json::Value = serde_json::from_str(&payload("sportsstack.json")).unwrap();
    body["event"]["hash"] = format!("hash-{n}").into();
    body["event"]["common_model_id"] = n.into();
    let body = body.to_string();
    let signature = hex::encode(sign(SECRET.as_bytes(), body.as_bytes()));
    Sent { body: body.into(), ..json() }.with("x-sportsstack-signature", &signature)
}

fn upload(n: u32) -> Sent {
    let mut body: serde_json::Value = serde_json::from_str(&payload("ci_ingestion.json")).unwrap();
    body["repo_id"] = "acme".into();
    body["run_id"] = format!("run-{n}").into();
    let body = body.to_string();
    let signature = hex::encode(sign(b"a secret of this repository alone", body.as_bytes()));
    Sent { body: body.into(), ..json() }.with("authorization", "Bearer acme").with("x-fr-sig", &signature)
}
