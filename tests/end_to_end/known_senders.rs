//! Senders with a preset, as they behave: the first delivery, its repeat, a forgery, a redelivery after a failure.

use crate::support::{Answer, House, SECRET, Sent};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hookonce::decide::time::Timestamp;

/// A handshake that is signed with this secret, and the answer that it must get.
type Question = fn(secret: &str) -> (Sent, String);

/// A sender: its preset, and how it sends an event under a delivery id with this secret.
struct KnownSender {
    preset: &'static str,
    send: fn(secret: &str, id: &str) -> Sent,
    /// What it asks before it sends, and what it must hear.
    handshake: Option<Question>,
    /// The status of an event that is stored.
    accepted: u16,
}

const fn sender(preset: &'static str, send: fn(&str, &str) -> Sent) -> KnownSender {
    KnownSender { preset, send, handshake: None, accepted: 202 }
}

const STRIPE: KnownSender = sender("stripe", |secret, id| stripe(secret, &event(id)));
const SHOPIFY: KnownSender = sender("shopify", shopify);

/// The senders that most people know, and those with a handshake.
const SENDERS: [KnownSender; 13] = [
    sender("github", github),
    sender("gitlab", gitlab),
    STRIPE,
    KnownSender { handshake: Some(slacks_question), ..sender("slack", slack) },
    SHOPIFY,
    sender("standard-webhooks", standard),
    sender("docker-hub", docker_hub),
    sender("gitea", gitea),
    KnownSender { accepted: 200, ..sender("linear", linear) },
    sender("pagerduty", pagerduty),
    KnownSender {
        handshake: Some(twitchs_question),
        ..sender("twitch", |secret, id| twitch(secret, id, &twitch_event(id)))
    },
    KnownSender { handshake: Some(zooms_question), accepted: 200, ..sender("zoom", zoom) },
    sender("trello", trello), // its handshake is a HEAD request, see below
];

fn mac(secret: &str, message: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes())
}

/// A delivery with these headers.
fn sent(body: &str, headers: &[(&str, String)]) -> Sent {
    let json = ("content-type".to_owned(), "application/json".to_owned());
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Sent { headers: [json].into_iter().chain(headers).collect(), body: body.as_bytes().to_vec() }
}

fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Each delivery has a time and a signature of its own, repeats too; its id is in the body.
fn stripe(secret: &str, body: &str) -> Sent {
    let now = now();
    let signature = hex::encode(mac(secret, &format!("{now}.{body}")));
    sent(body, &[("stripe-signature", format!("t={now},v1={signature},v0={}", "0".repeat(64)))])
}

fn shopify(secret: &str, id: &str) -> Sent {
    let body = event(id);
    let headers = [
        ("x-shopify-hmac-sha256", STANDARD.encode(mac(secret, &body))),
        ("x-shopify-webhook-id", id.to_owned()),
        ("x-shopify-topic", "orders/paid".to_owned()),
        ("x-shopify-shop-domain", "ann.myshopify.com".to_owned()),
    ];
    sent(&body, &headers)
}

fn push(id: &str) -> String {
    format!(
        r#"{{"ref":"refs/heads/main","before":"{id}","after":"b","commits":[],"pusher":{{}},"repository":{{"full_name":"a/b"}},"sender":{{}}}}"#
    )
}

fn github(secret: &str, id: &str) -> Sent {
    let body = push(id);
    let headers = [
        ("x-hub-signature-256", format!("sha256={}", hex::encode(mac(secret, &body)))),
        ("x-github-delivery", id.to_owned()),
        ("x-github-event", "push".to_owned()),
    ];
    sent(&body, &headers)
}

/// Its token is no signature.
fn gitlab(secret: &str, id: &str) -> Sent {
    let headers = [
        ("x-gitlab-token", secret.to_owned()),
        ("idempotency-key", id.to_owned()),
        ("x-gitlab-event", "Push Hook".to_owned()),
    ];
    sent(&format!(r#"{{"object_kind":"push","ref":"refs/heads/main","checkout_sha":"{id}"}}"#), &headers)
}

fn slack_signed(secret: &str, body: &str) -> Sent {
    let now = now();
    let signature = format!("v0={}", hex::encode(mac(secret, &format!("v0:{now}:{body}"))));
    sent(body, &[("x-slack-signature", signature), ("x-slack-request-timestamp", now.to_string())])
}

fn slack(secret: &str, id: &str) -> Sent {
    let body = format!(r#"{{"type":"event_callback","event_id":"{id}","team_id":"T1","event":{{"type":"message"}}}}"#);
    slack_signed(secret, &body)
}

fn slacks_question(secret: &str) -> (Sent, String) {
    (slack_signed(secret, r#"{"type":"url_verification","challenge":"ask me"}"#), "ask me".to_owned())
}

/// Its key is in base64, after `whsec_`.
fn standard(secret: &str, id: &str) -> Sent {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let (body, now) = (event(id), now());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), format!("{id}.{now}.{body}").as_bytes());
    let headers = [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", now.to_string()),
        ("webhook-signature", format!("v1,{}", STANDARD.encode(tag))),
    ];
    sent(&body, &headers)
}

/// It signs nothing; each push has a later time.
fn docker_hub(_: &str, id: &str) -> Sent {
    let second: u64 = id.bytes().map(u64::from).sum();
    let body = format!(
        r#"{{"push_data":{{"pushed_at":{},"pusher":"ann","tag":"latest"}},"repository":{{"repo_name":"ann/app"}}}}"#,
        1_763_454_600 + second
    );
    sent(&body, &[])
}

fn gitea(secret: &str, id: &str) -> Sent {
    let body = push(id);
    let headers = [
        ("x-gitea-signature", hex::encode(mac(secret, &body))),
        ("x-gitea-delivery", id.to_owned()),
        ("x-gitea-event", "push".to_owned()),
    ];
    sent(&body, &headers)
}

fn linear(secret: &str, id: &str) -> Sent {
    let body = format!(
        r#"{{"action":"create","type":"Issue","createdAt":"2026-01-23T09:00:00Z","data":{{"id":"{id}"}},"webhookTimestamp":{}}}"#,
        now() * 1_000
    );
    sent(&body, &[("linear-signature", hex::encode(mac(secret, &body))), ("linear-delivery", id.to_owned())])
}

/// It may sign with two secrets while they are exchanged.
fn pagerduty(secret: &str, id: &str) -> Sent {
    let body = format!(r#"{{"event":{{"id":"{id}","event_type":"incident.triggered","data":{{"id":"P1"}}}}}}"#);
    let signatures = format!("v1={},v1={}", "0".repeat(64), hex::encode(mac(secret, &body)));
    sent(&body, &[("x-pagerduty-signature", signatures)])
}

fn twitch(secret: &str, id: &str, body: &str) -> Sent {
    let stamp = Timestamp(i64::try_from(now()).unwrap() * 1_000_000).to_string();
    let id = format!("{:0<8}-55c9-4987-8304-da1588d8988b", id.replace(|c: char| !c.is_ascii_hexdigit(), ""));
    let signature = hex::encode(mac(secret, &format!("{id}{stamp}{body}")));
    let headers = [
        ("twitch-eventsub-message-id", id),
        ("twitch-eventsub-message-timestamp", stamp),
        ("twitch-eventsub-message-signature", format!("sha256={signature}")),
    ];
    sent(body, &headers)
}

fn twitch_event(id: &str) -> String {
    format!(r#"{{"subscription":{{"type":"stream.online","status":"enabled"}},"event":{{"id":"{id}"}}}}"#)
}

fn twitchs_question(secret: &str) -> (Sent, String) {
    let body = r#"{"challenge":"ask me","subscription":{"status":"webhook_callback_verification_pending"}}"#;
    (twitch(secret, "a5", body), "ask me".to_owned())
}

/// It has no id: the same bytes are the same event.
fn zoom_signed(secret: &str, body: &str) -> Sent {
    let now = now();
    let signature = format!("v0={}", hex::encode(mac(secret, &format!("v0:{now}:{body}"))));
    sent(body, &[("x-zm-signature", signature), ("x-zm-request-timestamp", now.to_string())])
}

fn zoom(secret: &str, id: &str) -> Sent {
    let body =
        format!(r#"{{"event":"meeting.started","event_ts":1763454600,"payload":{{"object":{{"uuid":"{id}"}}}}}}"#);
    zoom_signed(secret, &body)
}

fn zooms_question(secret: &str) -> (Sent, String) {
    let body = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let answer = format!(
        r#"{{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"{}"}}"#,
        hex::encode(mac(secret, "qgg8vlvZRS6UYooatFL8Aw"))
    );
    (zoom_signed(secret, body), answer)
}

/// It signs with SHA-1, and its own URL after the body.
fn trello(secret: &str, id: &str) -> Sent {
    let body = format!(r#"{{"action":{{"id":"{id}","type":"createCard","data":{{}}}}}}"#);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{body}https://hooks.example.com/in/trello").as_bytes());
    sent(&body, &[("x-trello-webhook", STANDARD.encode(tag))])
}

fn event(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"invoice.paid","created":1763454600,"livemode":false,"data":{{"object":{{}}}}}}"#)
}

/// The secrets of all senders, and others.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A config with just the preset, what it needs, these keys and this route.
fn config(sender: &KnownSender, keys: &str, route: &str) -> String {
    let name = sender.preset;
    let needs = match name {
        "docker-hub" => "path = \"/in/docker-hub/5ec4e7c05ec4e7c0\"\n",
        "trello" => "secret = { env = \"SECRET\" }\nurl = \"https://hooks.example.com/in/trello\"\n",
        _ => "secret = { env = \"SECRET\" }\n",
    };
    format!("\n[source.{name}]\npreset = \"{name}\"\n{needs}{keys}\n[[source.{name}.route]]\n{route}\n")
}

/// A node with this config, and [`KEY`] as its secret.
fn house(config: &str) -> House {
    let mut house = House::empty(config);
    let mut command = house.command(&["serve"]);
    command.env("SECRET", KEY);
    house.try_start_by(command).unwrap();
    house
}

impl KnownSender {
    fn path(&self) -> String {
        match self.preset {
            "docker-hub" => "/in/docker-hub/5ec4e7c05ec4e7c0".to_owned(),
            preset => format!("/in/{preset}"),
        }
    }

    async fn deliver(&self, house: &House, secret: &str, id: &str) -> Answer {
        house.deliver(&self.path(), &(self.send)(secret, id)).await
    }
}

fn check(answer: &Answer, status: u16, word: &str) {
    assert_eq!((answer.status, &*answer.word()), (status, word), "{answer:?}");
}

/// Checks that the response has this status, no body, and the header with this event.
fn check_empty(answer: &Answer, event: Option<&str>) {
    assert_eq!((answer.status, answer.body.len()), (204, 0), "{answer:?}");
    assert_eq!(answer.header("content-type"), None, "{answer:?}");
    assert_eq!(answer.header("hookonce-event"), event, "{answer:?}");
}

/// The whole way of a sender: its question, the first delivery, its repeat, another one, and a forgery.
async fn walk(sender: &KnownSender) {
    let name = sender.preset;
    let house = house(&config(sender, "", "run = { steps = [\"echo run >> runs\"] }"));
    if let Some(question) = sender.handshake {
        let (asked, heard) = question(KEY);
        let answer = house.deliver(&sender.path(), &asked).await;
        assert_eq!((answer.status, &*String::from_utf8_lossy(&answer.body)), (200, &*heard), "{name}");
        let (forged, _) = question(OTHER_KEY);
        assert_eq!(house.deliver(&sender.path(), &forged).await.status, 401, "{name}");
    }
    assert_eq!(house.sql("select count(*) from events"), ["0"], "{name}: a handshake is no event");
    let first = sender.deliver(&house, KEY, "evt_1").await;
    check(&first, sender.accepted, "accepted");
    house.quiet().await;
    let repeat = sender.deliver(&house, KEY, "evt_1").await;
    check(&repeat, 200, "duplicate");
    assert_eq!(repeat.event(), first.event(), "{name}");
    check(&sender.deliver(&house, KEY, "evt_2").await, sender.accepted, "accepted");
    house.quiet().await;
    let forged = if name == "docker-hub" {
        // Nothing is signed: only its path is a secret.
        house.deliver("/in/docker-hub", &(sender.send)("", "evt_3")).await
    } else {
        sender.deliver(&house, OTHER_KEY, "evt_3").await
    };
    assert!(matches!(forged.status, 401 | 404), "{name}: {forged:?}");
    assert_eq!(house.sql("select count(*) from events"), ["2"], "{name}");
    assert_eq!(house.lines("runs").len(), 2, "{name}");
}

/// After a failure, the sender's next delivery of the same event acts again.
async fn walk_after_failure(sender: &KnownSender) {
    let route = "run = { steps = [\"echo run >> runs; test -e repaired\"] }";
    // A preset with a status of its own for what is stored cannot wait for the end.
    let waits = if sender.accepted == 200 { "" } else { "respond = \"done\"" };
    let route = if waits.is_empty() { format!("rearm_after = \"0s\"\n{route}") } else { route.to_owned() };
    let house = house(&config(sender, waits, &route));
    let failed = sender.deliver(&house, KEY, "evt_1").await;
    house.quiet().await;
    assert_eq!(house.count("dead"), 1, "{}: {failed:?}", sender.preset);
    crate::touch(&house, "repaired");
    let again = sender.deliver(&house, KEY, "evt_1").await;
    assert!((200..300).contains(&again.status), "{}: {again:?}", sender.preset);
    assert_eq!(again.event(), failed.event(), "{}", sender.preset);
    house.quiet().await;
    check(&sender.deliver(&house, KEY, "evt_1").await, 200, "duplicate");
    assert_eq!((house.count("done"), house.lines("runs").len()), (1, 2), "{}", sender.preset);
}

#[tokio::test]
async fn every_known_sender_is_answered_acts_once_and_cannot_be_forged() {
    for sender in &SENDERS {
        walk(sender).await;
    }
}

#[tokio::test]
async fn a_redelivery_after_a_failure_acts_again() {
    for sender in &SENDERS {
        walk_after_failure(sender).await;
    }
}

#[tokio::test]
async fn trello_asks_with_a_head_request() {
    let trello = SENDERS.iter().find(|sender| sender.preset == "trello").unwrap();
    let house = house(&config(trello, "", "run = { steps = [\"echo run >> runs\"] }"));
    let answer = crate::rejections::raw(&house, b"HEAD /in/trello HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
}

const WAITS: &str = "run = { steps = [\"until test -e go; do sleep 0.01; done\"] }";

#[tokio::test]
async fn a_sender_that_wants_200_gets_it_whatever_the_state_of_its_event() {
    let house = House::new(&config(&SHOPIFY, "accepted_status = 200", WAITS));
    check(&SHOPIFY.deliver(&house, SECRET, "evt_1").await, 200, "accepted");
    check(&SHOPIFY.deliver(&house, SECRET, "evt_1").await, 200, "duplicate");
    crate::touch(&house, "go");
    house.quiet().await;
    check(&SHOPIFY.deliver(&house, SECRET, "evt_1").await, 200, "duplicate");
    check(&SHOPIFY.deliver(&house, "another secret", "evt_2").await, 401, "refused");
}

#[tokio::test]
async fn a_sender_that_wants_204_gets_no_body_for_any_success() {
    let keys = "accepted_status = 204\nwhen = 'type == \"invoice.paid\"'";
    let house = House::new(&config(&STRIPE, keys, WAITS));
    let first = STRIPE.deliver(&house, SECRET, "evt_1").await;
    let id = first.header("hookonce-event").unwrap().to_owned();
    check_empty(&first, Some(&id));
    check_empty(&STRIPE.deliver(&house, SECRET, "evt_1").await, Some(&id));
    crate::touch(&house, "go");
    house.quiet().await;
    check_empty(&STRIPE.deliver(&house, SECRET, "evt_1").await, Some(&id));
    let other = event("evt_2").replace("invoice.paid", "invoice.voided");
    check_empty(&house.deliver("/in/stripe", &stripe(SECRET, &other)).await, None);
    check(&STRIPE.deliver(&house, "another secret", "evt_3").await, 401, "refused");
    assert_eq!(house.sql("select count(*) from events"), ["1"]);
}
