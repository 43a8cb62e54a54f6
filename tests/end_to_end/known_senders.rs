//! Senders with a preset, as they behave: the first delivery, its repeat, a forgery, a redelivery after a failure.

use crate::support::{Answer, House, SECRET, Sent};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A sender: its preset, and how it sends a body under a delivery id with this secret.
struct KnownSender {
    preset: &'static str,
    send: fn(secret: &str, id: &str, body: &str) -> Sent,
}

const STRIPE: KnownSender = KnownSender { preset: "stripe", send: stripe };
const SHOPIFY: KnownSender = KnownSender { preset: "shopify", send: shopify };

fn mac(secret: &str, message: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes())
}

/// A delivery with these headers.
fn sent(body: &str, headers: &[(&str, String)]) -> Sent {
    let json = ("content-type".to_owned(), "application/json".to_owned());
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Sent { headers: [json].into_iter().chain(headers).collect(), body: body.as_bytes().to_vec() }
}

/// Each delivery has a time and a signature of its own, repeats too; its id is in the body.
fn stripe(secret: &str, _: &str, body: &str) -> Sent {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let signature = hex::encode(mac(secret, &format!("{now}.{body}")));
    sent(body, &[("stripe-signature", format!("t={now},v1={signature},v0={}", "0".repeat(64)))])
}

fn shopify(secret: &str, id: &str, body: &str) -> Sent {
    let headers = [
        ("x-shopify-hmac-sha256", STANDARD.encode(mac(secret, body))),
        ("x-shopify-webhook-id", id.to_owned()),
        ("x-shopify-topic", "orders/paid".to_owned()),
        ("x-shopify-shop-domain", "ann.myshopify.com".to_owned()),
    ];
    sent(body, &headers)
}

fn event(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"invoice.paid","created":1763454600,"livemode":false,"data":{{"object":{{}}}}}}"#)
}

/// A config with just the preset, its secret, these keys and this route.
fn config(sender: &KnownSender, keys: &str, route: &str) -> String {
    let name = sender.preset;
    format!(
        "\n[source.{name}]\npreset = \"{name}\"\nsecret = {{ env = \"SECRET\" }}\n{keys}\n[[source.{name}.route]]\n{route}\n"
    )
}

impl KnownSender {
    async fn deliver(&self, house: &House, secret: &str, id: &str) -> Answer {
        house.deliver(&format!("/in/{}", self.preset), &(self.send)(secret, id, &event(id))).await
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

async fn walk(sender: &KnownSender) {
    let house = House::new(&config(sender, "", "run = { steps = [\"echo run >> runs\"] }"));
    let first = sender.deliver(&house, SECRET, "evt_1").await;
    check(&first, 202, "accepted");
    house.quiet().await;
    let repeat = sender.deliver(&house, SECRET, "evt_1").await;
    check(&repeat, 200, "duplicate");
    assert_eq!(repeat.event(), first.event());
    check(&sender.deliver(&house, SECRET, "evt_2").await, 202, "accepted");
    house.quiet().await;
    check(&sender.deliver(&house, "another secret", "evt_3").await, 401, "refused");
    assert_eq!(house.sql("select count(*) from events"), ["2"]);
    assert_eq!(house.lines("runs").len(), 2);
}

#[tokio::test]
async fn stripe_sends_an_event_again_and_it_acts_once() {
    walk(&STRIPE).await;
}

#[tokio::test]
async fn shopify_sends_an_event_again_and_it_acts_once() {
    walk(&SHOPIFY).await;
}

#[tokio::test]
async fn a_redelivery_after_a_failure_acts_again() {
    for sender in [STRIPE, SHOPIFY] {
        let route = "run = { steps = [\"echo run >> runs; test -e repaired\"] }";
        let house = House::new(&config(&sender, "respond = \"done\"", route));
        let failed = sender.deliver(&house, SECRET, "evt_1").await;
        check(&failed, 502, "dead");
        crate::touch(&house, "repaired");
        let again = sender.deliver(&house, SECRET, "evt_1").await;
        check(&again, 200, "done");
        assert_eq!(again.event(), failed.event());
        check(&sender.deliver(&house, SECRET, "evt_1").await, 200, "duplicate");
        assert_eq!((house.count("done"), house.lines("runs").len()), (1, 2));
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
    check_empty(&house.deliver("/in/stripe", &stripe(SECRET, "", &other)).await, None);
    check(&STRIPE.deliver(&house, "another secret", "evt_3").await, 401, "refused");
    assert_eq!(house.sql("select count(*) from events"), ["1"]);
}
