//! Senders with a preset, as they behave: the first delivery, its repeat, a forgery, a redelivery after a failure.

use crate::support::{Answer, House, PATIENCE, SECRET, Sent};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hookonce::decide::time::Timestamp;

/// What a sender asks before it sends, and what it must hear.
#[derive(Clone, Copy)]
enum Question {
    /// Signed with this secret, or with its token; the answer.
    Signed(fn(secret: &str) -> (Sent, String)),
    /// A request that nothing proves, or that has a token; what the answer contains, and a request that is not answered.
    Raw(&'static str, &'static str, &'static str),
}

/// A sender: its preset, and how it sends an event under a delivery id with this secret.
struct KnownSender {
    preset: &'static str,
    send: fn(secret: &str, id: &str) -> Sent,
    /// What it asks before it sends.
    handshake: Option<Question>,
    /// The status of an event that is stored.
    accepted: u16,
    /// Whether it can wait for the end of an event.
    can_wait: bool,
}

const fn sender(preset: &'static str, send: fn(&str, &str) -> Sent) -> KnownSender {
    KnownSender { preset, send, handshake: None, accepted: 202, can_wait: true }
}

const STRIPE: KnownSender = sender("stripe", |secret, id| stripe(secret, &event(id)));
const SHOPIFY: KnownSender = sender("shopify", shopify);

/// The senders that most people know, and those with a handshake.
const SENDERS: [KnownSender; 19] = [
    sender("github", github),
    sender("gitlab", gitlab),
    STRIPE,
    KnownSender { handshake: Some(Question::Signed(slacks_question)), ..sender("slack", slack) },
    SHOPIFY,
    sender("standard-webhooks", standard),
    sender("docker-hub", docker_hub),
    sender("gitea", gitea),
    KnownSender { accepted: 200, can_wait: false, ..sender("linear", linear) },
    sender("pagerduty", pagerduty),
    KnownSender {
        handshake: Some(Question::Signed(twitchs_question)),
        ..sender("twitch", |secret, id| twitch(secret, id, &twitch_event(id)))
    },
    KnownSender {
        handshake: Some(Question::Signed(zooms_question)),
        accepted: 200,
        can_wait: false,
        ..sender("zoom", zoom)
    },
    KnownSender { handshake: Some(TRELLOS_QUESTION), ..sender("trello", trello) },
    KnownSender { handshake: Some(METAS_QUESTION), accepted: 200, can_wait: false, ..sender("meta", meta) },
    KnownSender { handshake: Some(OKTAS_QUESTION), accepted: 200, can_wait: false, ..sender("okta", okta) },
    KnownSender {
        handshake: Some(Question::Signed(event_grids_question)),
        accepted: 200,
        can_wait: false,
        ..sender("event-grid", event_grid)
    },
    KnownSender { handshake: Some(CLOUD_EVENTS_QUESTION), ..sender("cloudevents", cloud_event) },
    // Its preset waits for the end.
    KnownSender { handshake: Some(Question::Signed(discords_question)), accepted: 200, ..sender("discord", discord) },
    KnownSender {
        handshake: Some(Question::Signed(discord_events_question)),
        accepted: 204,
        can_wait: false,
        ..sender("discord-events", discord_event)
    },
];

const TRELLOS_QUESTION: Question = Question::Raw(
    "HEAD /in/trello HTTP/1.1\r\nhost: h\r\n\r\n",
    "HTTP/1.1 200 ",
    "GET /in/trello HTTP/1.1\r\nhost: h\r\n\r\n",
);

const METAS_QUESTION: Question = Question::Raw(
    "GET /in/meta?hub.mode=subscribe&hub.verify_token=a+token+of+ours&hub.challenge=1158201444 HTTP/1.1\r\nhost: h\r\n\r\n",
    "\r\n\r\n1158201444",
    "GET /in/meta?hub.mode=subscribe&hub.verify_token=theirs&hub.challenge=1158201444 HTTP/1.1\r\nhost: h\r\n\r\n",
);

const OKTAS_QUESTION: Question = Question::Raw(
    "GET /in/okta HTTP/1.1\r\nhost: h\r\nx-okta-verification-challenge: ask-me\r\n\r\n",
    r#"{"verification":"ask-me"}"#,
    "GET /in/okta HTTP/1.1\r\nhost: h\r\n\r\n",
);

const CLOUD_EVENTS_QUESTION: Question = Question::Raw(
    "OPTIONS /in/cloudevents HTTP/1.1\r\nhost: h\r\nWebHook-Request-Origin: eventemitter.example.com\r\n\r\n",
    "webhook-allowed-origin: eventemitter.example.com\r\n",
    "OPTIONS /in/cloudevents HTTP/1.1\r\nhost: h\r\n\r\n",
);

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

fn meta(secret: &str, id: &str) -> Sent {
    let body = format!(
        r#"{{"object":"page","entry":[{{"id":"{id}","time":1763454600,"changes":[{{"field":"feed","value":{{}}}}]}}]}}"#
    );
    sent(&body, &[("x-hub-signature-256", format!("sha256={}", hex::encode(mac(secret, &body))))])
}

fn okta(secret: &str, id: &str) -> Sent {
    let body = format!(
        r#"{{"eventId":"envelope-{id}","source":"https://example.okta.com","data":{{"events":[{{"uuid":"{id}","published":"2026-02-07T16:20:40Z","eventType":"user.lifecycle.create"}}]}}}}"#
    );
    sent(&body, &[("authorization", secret.to_owned())])
}

/// Its secret is in the query of its URL.
fn event_grid(_: &str, id: &str) -> Sent {
    let body = format!(
        r#"[{{"id":"{id}","topic":"t","subject":"s","eventType":"created","eventTime":"2026-02-07T16:20:40Z","data":{{}}}}]"#
    );
    sent(&body, &[("aeg-event-type", "Notification".to_owned())])
}

fn event_grids_question(_: &str) -> (Sent, String) {
    let body = r#"[{"id":"1","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6"}}]"#;
    let asked = sent(body, &[("aeg-event-type", "SubscriptionValidation".to_owned())]);
    (asked, r#"{"validationResponse":"512d38b6"}"#.to_owned())
}

fn cloud_event(secret: &str, id: &str) -> Sent {
    let body = format!(r#"{{"specversion":"1.0","type":"t","source":"/a","id":"{id}","data":{{}}}}"#);
    sent(&body, &[("authorization", format!("Bearer {secret}"))])
}

/// The key pair of an app of Discord.
fn discord_pair(secret: &str) -> Ed25519KeyPair {
    let seed = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, secret.as_bytes());
    Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).unwrap()
}

fn discord_signed(secret: &str, body: &str) -> Sent {
    let now = now();
    let signature = hex::encode(discord_pair(secret).sign(format!("{now}{body}").as_bytes()));
    sent(body, &[("x-signature-ed25519", signature), ("x-signature-timestamp", now.to_string())])
}

fn discord(secret: &str, id: &str) -> Sent {
    discord_signed(secret, &format!(r#"{{"application_id":"1","id":"{id}","type":2,"data":{{"name":"deploy"}}}}"#))
}

fn discords_question(secret: &str) -> (Sent, String) {
    (discord_signed(secret, r#"{"application_id":"1","id":"2","type":1}"#), r#"{"type":1}"#.to_owned())
}

/// It has no id.
fn discord_event(secret: &str, id: &str) -> Sent {
    let event = format!(r#"{{"type":"ENTITLEMENT_CREATE","timestamp":"2026-02-07T16:20:40Z","data":{{"id":"{id}"}}}}"#);
    discord_signed(secret, &format!(r#"{{"version":1,"application_id":"1","type":1,"event":{event}}}"#))
}

fn discord_events_question(secret: &str) -> (Sent, String) {
    (discord_signed(secret, r#"{"version":1,"application_id":"1","type":0}"#), String::new())
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
        "meta" => "secret = { env = \"SECRET\" }\nverify_token = { env = \"VERIFY_TOKEN\" }\n",
        "discord" | "discord-events" => "public_key = { env = \"PUBLIC_KEY\" }\n",
        _ => "secret = { env = \"SECRET\" }\n",
    };
    format!("\n[source.{name}]\npreset = \"{name}\"\n{needs}{keys}\n[[source.{name}.route]]\n{route}\n")
}

/// A node with this config, and [`KEY`] as its secret.
fn house(config: &str) -> House {
    let mut house = House::empty(config);
    let mut command = house.command(&["serve"]);
    command.env("SECRET", KEY).env("VERIFY_TOKEN", "a token of ours");
    command.env("PUBLIC_KEY", hex::encode(discord_pair(KEY).public_key()));
    house.try_start_by(command).unwrap();
    house
}

impl KnownSender {
    /// Where it sends with this secret.
    fn path(&self, secret: &str) -> String {
        match self.preset {
            "docker-hub" => "/in/docker-hub/5ec4e7c05ec4e7c0".to_owned(),
            "event-grid" => format!("/in/event-grid?secret={}", secret.replace('+', "%2B")),
            preset => format!("/in/{preset}"),
        }
    }

    async fn deliver(&self, house: &House, secret: &str, id: &str) -> Answer {
        house.deliver(&self.path(secret), &(self.send)(secret, id)).await
    }

    /// Checks that an event was stored; its id.
    fn check_accepted(&self, answer: &Answer) -> String {
        let name = self.preset;
        let word = if self.accepted == 204 { "" } else { self.done_word() };
        assert_eq!((answer.status, &*answer.word()), (self.accepted, word), "{name}: {answer:?}");
        answer.header("hookonce-event").unwrap_or_else(|| panic!("{name}: {answer:?}")).to_owned()
    }

    /// Checks that a delivery was a repeat of this event.
    fn check_repeat(&self, answer: &Answer, event: &str) {
        let (status, word) = match self.accepted {
            204 => (204, ""),
            _ => (200, "duplicate"),
        };
        assert_eq!((answer.status, &*answer.word()), (status, word), "{}: {answer:?}", self.preset);
        assert_eq!(answer.header("hookonce-event"), Some(event), "{}: {answer:?}", self.preset);
    }

    /// The word of an event that is stored, or has ended where the sender waits.
    fn done_word(&self) -> &'static str {
        if self.preset == "discord" { "done" } else { "accepted" }
    }

    /// Checks that it hears what it asks for, and a forger does not.
    async fn ask(&self, house: &House) {
        let name = self.preset;
        match self.handshake {
            None => {}
            Some(Question::Signed(question)) => {
                let (asked, heard) = question(KEY);
                let answer = house.deliver(&self.path(KEY), &asked).await;
                let status = if heard.is_empty() { 204 } else { 200 };
                assert_eq!((answer.status, &*String::from_utf8_lossy(&answer.body)), (status, &*heard), "{name}");
                let (forged, _) = question(OTHER_KEY);
                assert_eq!(house.deliver(&self.path(OTHER_KEY), &forged).await.status, 401, "{name}");
            }
            Some(Question::Raw(asked, heard, other)) => {
                let answer = crate::rejections::raw(house, asked.as_bytes()).await;
                assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(heard), "{name}: {answer}");
                let answer = crate::rejections::raw(house, other.as_bytes()).await;
                let status = if name == "meta" { "401" } else { "405" }; // only Meta's asks, with another token
                let is_refused = answer.starts_with(&format!("HTTP/1.1 {status} "));
                assert!(is_refused && !answer.contains(heard), "{name}: {answer}");
            }
        }
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
    sender.ask(&house).await;
    assert_eq!(house.sql("select count(*) from events"), ["0"], "{name}: a handshake is no event");
    let first = sender.check_accepted(&sender.deliver(&house, KEY, "evt_1").await);
    house.quiet().await;
    sender.check_repeat(&sender.deliver(&house, KEY, "evt_1").await, &first);
    sender.check_accepted(&sender.deliver(&house, KEY, "evt_2").await);
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
    // A preset with a status of its own for what is stored, or with elements, cannot wait for the end.
    let waits = if sender.can_wait { "respond = \"done\"" } else { "" };
    let route = if sender.can_wait { route.to_owned() } else { format!("rearm_after = \"0s\"\n{route}") };
    let house = house(&config(sender, waits, &route));
    let failed = sender.deliver(&house, KEY, "evt_1").await;
    house.quiet().await;
    let name = sender.preset;
    assert_eq!(house.count("dead"), 1, "{name}: {failed:?}");
    crate::touch(&house, "repaired");
    // A repeat of a signed id counts a few seconds after the failure, as a sender's next attempt comes.
    let begun = std::time::Instant::now();
    while house.lines("runs").len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "{name}: no repeat acts");
        let again = sender.deliver(&house, KEY, "evt_1").await;
        assert!((200..300).contains(&again.status), "{name}: {again:?}");
        assert_eq!(again.header("hookonce-event"), failed.header("hookonce-event"), "{name}");
        house.quiet().await;
    }
    sender.check_repeat(
        &sender.deliver(&house, KEY, "evt_1").await,
        failed.header("hookonce-event").unwrap_or_else(|| panic!("{name}: {failed:?}")),
    );
    assert_eq!((house.count("done"), house.lines("runs").len()), (1, 2), "{name}");
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
