//! Headers of a delivery that goes over a stream: the signature under either of its names, and an event type that the
//! body must match.

use super::server::Nats;
use super::support::{House, Sent, until};
use super::{LONG, edge, push, worker};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::VerificationScheme;
use std::time::Duration;

/// A secret in the format of Standard Webhooks.
const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The action of a worker that writes a line for each event it acts on.
const LINES: &str = r#"run = { steps = ["echo \"$HOOKONCE_FIELD_N\" >> lines"] }"#;

/// A delivery of Standard Webhooks with the body `{"n":1}` and this prefix in its header names.
fn standard(prefix: &str, id: &str) -> Sent {
    let scheme = VerificationScheme::standard_webhooks(&[WHSEC.as_bytes().to_vec()], Duration::from_mins(5)).unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let body = br#"{"n":1}"#;
    let headers = scheme.sign(id, Timestamp(i64::try_from(now).unwrap()), body);
    let named = |(name, value): (String, String)| (name.replace("webhook-", prefix), value);
    Sent { headers: headers.into_iter().map(named).collect(), body: body.to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_webhooks_under_either_header_name_are_verified_again_by_a_worker() {
    for prefix in ["svix-", "webhook-"] {
        let nats = Nats::start();
        nats.stream("GITHUB", LONG).await;
        nats.consumer("GITHUB", Duration::from_secs(30)).await;
        let config = edge(&nats.url(), "", "").replace("github.{kind}", "github.all");
        let config = config.replace(r#"fields = { kind = "header.x-github-event" }"#, "");
        let config = config.replace(r#"scheme = "github""#, r#"scheme = "standard-webhooks""#);
        let mut edge = House::empty(&config);
        let mut command = edge.command(&["serve"]);
        command.env("SECRET", WHSEC);
        edge.try_start_by(command).unwrap();
        let config = worker(&nats.url(), "", LINES).replace(r#"of = "github""#, r#"of = "standard-webhooks""#);
        let mut worker = House::empty(&config);
        let mut command = worker.command(&["serve"]);
        command.env("SECRET", WHSEC);
        worker.try_start_by(command).unwrap();
        let answer = edge.deliver(super::IN, &standard(prefix, "msg_1")).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        until("the line", || !worker.lines("lines").is_empty()).await;
        edge.quiet().await;
        // After its end the signature is removed, and a replay is signed again under the standard's own header names.
        let event = answer.event();
        assert_eq!(edge.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
        until("the repeat", || worker.log().contains("duplicate")).await;
        worker.quiet().await;
        assert_eq!(worker.lines("lines"), ["1"], "{prefix}");
        assert_eq!(worker.sql("select count(*) from quarantine"), ["0"], "{prefix}");
        assert_eq!(worker.sql("select delivery_id from events"), ["msg_1"], "{prefix}");
        // Forged under the same header names: the log of the edge names the header that was there.
        let header = format!("{prefix}signature");
        let forged = standard(prefix, "msg_2").with(&header, "v1,AAAA");
        assert_eq!(edge.deliver(super::IN, &forged).await.status, 401);
        until("the header to be named", || edge.log().contains(&format!("{header}: "))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_in_an_envelope_becomes_its_json_and_a_worker_verifies_it() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let edge = House::new(&edge(&nats.url(), r#", envelope = "patchwork""#, ""));
    let worker = House::new(&worker(&nats.url(), r#", envelope = "patchwork""#, LINES));
    let json = push("", 4).body.iter().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    let form = Sent::github("push", "d-1", &format!("payload={json}"));
    let answer = edge.deliver(super::IN, &form.with("content-type", "application/x-www-form-urlencoded")).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    until("the line", || worker.lines("lines") == ["4"]).await;
    assert_eq!(worker.sql("select count(*) from quarantine"), ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_type_chooses_a_subject_only_if_the_body_has_its_shape() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    let house = House::new(&edge(&nats.url(), "", ""));
    for (n, kind) in ["registry_package", "pull_request", "unheard_of", "a.b", "*", "push.>"].into_iter().enumerate() {
        let answer = house.deliver(super::IN, &push(&format!("f-{n}"), 1).with("x-github-event", kind)).await;
        assert_eq!((answer.status, &answer.json()["reason"]), (422, &"kind_mismatch".into()), "{kind}: {answer:?}");
    }
    house.deliver(super::IN, &push("d-1", 1)).await;
    house.quiet().await;
    let subjects: Vec<_> = nats.messages("GITHUB").await.into_iter().map(|message| message.subject).collect();
    assert_eq!(subjects, ["github.push"]);
}
