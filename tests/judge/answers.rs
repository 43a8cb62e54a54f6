//! Every row of the table of answers.

use crate::sources::{Request, now, source};
use hookonce::decide::answer::{self, Reply};
use hookonce::decide::claim::Same;
use hookonce::decide::event::{Cause, Event, How, Receipt, State};
use hookonce::decide::id::{EventId, Node};
use hookonce::decide::refusal::Refusal;

const ID: &str = "01010101-0101-0101-0101-010101010101";

fn event(state: State) -> Event {
    let new = Request::json("{}").event(&source(Vec::new()));
    Event { state, ..new.event }
}

fn waiting() -> Event {
    event(State::Waiting { due: None })
}

fn running() -> Event {
    event(State::Running { until: now(), by: Node("n1".into()) })
}

fn done() -> Event {
    event(State::Done { how: How::Acted, at: now() })
}

fn dead(cause: Cause) -> Event {
    event(State::Dead { cause, at: now() })
}

fn receipt(status: u16) -> Receipt {
    let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
    Receipt { status, headers, body: b"thanks".to_vec(), cut: false }
}

const JSON: &str = "content-type: application/json";
const OF: &str = "hookonce-event: 01010101-0101-0101-0101-010101010101";
const LATER: &str = "retry-after: 5";

fn check(reply: &Reply, status: u16, headers: &[&str], body: &str) {
    let sent: Vec<_> = reply.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!((reply.status, sent.iter().map(String::as_str).collect()), (status, headers.to_vec()), "{text}");
    match serde_json::from_str::<serde_json::Value>(body) {
        Ok(expected) => {
            let got: serde_json::Value = serde_json::from_str(&text).expect("a JSON body");
            assert_eq!(got, expected);
            assert_eq!(got["status"], reply.word, "the log and the answer use one word");
        }
        Err(_) => assert_eq!(text, body),
    }
}

#[test]
fn every_refusal_has_its_status_and_names_no_secret() {
    for (refusal, status, body) in [
        (Refusal::BadSignature, 401, r#"{"status":"refused","reason":"bad_signature"}"#),
        (Refusal::Forbidden, 403, r#"{"status":"refused","reason":"forbidden"}"#),
        (Refusal::Malformed("no".into()), 400, r#"{"status":"refused","reason":"malformed","detail":"no"}"#),
        (Refusal::ContentType, 415, r#"{"status":"refused","reason":"content_type"}"#),
        (Refusal::MissingField("tag".into()), 422, r#"{"status":"refused","reason":"missing_field","field":"tag"}"#),
        (Refusal::FieldTooLong("tag".into()), 422, r#"{"status":"refused","reason":"field_too_long","field":"tag"}"#),
        (Refusal::BadOrder("at".into()), 422, r#"{"status":"refused","reason":"bad_order","field":"at"}"#),
        (Refusal::KindMismatch, 422, r#"{"status":"refused","reason":"kind_mismatch"}"#),
    ] {
        check(&answer::refused(&refusal), status, &[JSON], body);
    }
    for (status, reason) in
        [(404, "unknown_path"), (405, "method"), (408, "too_slow"), (413, "too_large"), (431, "headers")]
    {
        let body = format!(r#"{{"status":"refused","reason":"{reason}"}}"#);
        check(&answer::turned_away(status, reason), status, &[JSON], &body);
    }
    check(&answer::unavailable(), 503, &[JSON, LATER], r#"{"status":"unavailable"}"#);
}

#[test]
fn what_is_not_for_us_stale_or_new_says_so() {
    let id = waiting().id;
    assert_eq!(id, EventId([1; 16]));
    let why = r#"tag was "main", wanted tag == "latest""#;
    let ignored = serde_json::json!({ "status": "ignored", "reason": why }).to_string();
    check(&answer::ignored(why), 200, &[JSON], &ignored);
    check(&answer::stale(id), 200, &[JSON, OF], &format!(r#"{{"status":"stale","event":"{ID}"}}"#));
    check(&answer::accepted(id), 202, &[JSON, OF], &format!(r#"{{"status":"accepted","event":"{ID}"}}"#));
}

#[test]
fn who_waits_for_the_end_hears_the_receiver_or_how_it_ended() {
    let text = "content-type: text/plain";
    let body = |rest: &str| format!(r#"{{"event":"{ID}",{rest}}}"#);
    check(&answer::ended(&done(), Some(&receipt(201))), 201, &[text, OF], "thanks");
    check(&answer::ended(&done(), None), 200, &[JSON, OF], &body(r#""status":"done","how":"acted""#));
    let recorded = event(State::Done { how: How::Recorded, at: now() });
    check(&answer::ended(&recorded, None), 200, &[JSON, OF], &body(r#""status":"done","how":"recorded""#));
    let rejected = dead(Cause::Rejected);
    check(&answer::ended(&rejected, Some(&receipt(410))), 410, &[text, OF], "thanks");
    check(&answer::ended(&dead(Cause::Failed), None), 502, &[JSON, OF], &body(r#""status":"dead","cause":"failed""#));
    let doubt = body(r#""status":"dead","cause":"in_doubt""#);
    check(&answer::ended(&dead(Cause::InDoubt), None), 504, &[JSON, OF], &doubt);
    check(&answer::ended(&dead(Cause::InDoubt), Some(&receipt(200))), 504, &[JSON, OF], &doubt);
    let cancelled = body(r#""status":"dead","cause":"cancelled""#);
    check(&answer::ended(&dead(Cause::Cancelled), Some(&receipt(200))), 502, &[JSON, OF], &cancelled);
    let unfinished = body(r#""status":"accepted","state":"running""#);
    check(&answer::unfinished(&running()), 202, &[JSON, OF, LATER], &unfinished);
    check(&answer::ended(&running(), None), 202, &[JSON, OF, LATER], &unfinished);
}

#[test]
fn a_repeat_hears_of_the_first_and_how_that_stands() {
    let body = |state: &str, same: &str, rest: &str| {
        format!(r#"{{"status":"duplicate","event":"{ID}","state":"{state}","same":"{same}","isDuplicate":true{rest}}}"#)
    };
    let (delivery, fields) = (Same::Delivery, Same::Fields("package+tag".into()));
    check(&answer::duplicate(&waiting(), &delivery), 202, &[JSON, OF], &body("waiting", "delivery", ""));
    check(&answer::duplicate(&running(), &Same::Body), 202, &[JSON, OF], &body("running", "body", ""));
    check(&answer::duplicate(&done(), &Same::Change), 200, &[JSON, OF], &body("done", "change", ""));
    let rejected = body("dead", "package+tag", r#","cause":"rejected""#);
    check(&answer::duplicate(&dead(Cause::Rejected), &fields), 200, &[JSON, OF], &rejected);
    check(&answer::outstanding(&running(), &delivery), 409, &[JSON, OF, LATER], &body("running", "delivery", ""));
    let replayed = answer::replayed(&done(), &receipt(201));
    check(&replayed, 201, &["content-type: text/plain", OF, "idempotent-replayed: true"], "thanks");
}

#[test]
fn several_events_get_one_answer_and_what_went_wrong_comes_first() {
    let [first, second] = [EventId([1; 16]), EventId([2; 16])];
    let ids = [first, second];
    let names = format!(r#"["{first}","{second}"]"#);
    let new = || answer::accepted(first);
    let repeat = || answer::duplicate(&done(), &Same::Body);
    check(&answer::together(vec![repeat()], &ids[..1]), 200, &[JSON, OF], &String::from_utf8_lossy(&repeat().body));
    let accepted = format!(r#"{{"status":"accepted","events":{names}}}"#);
    check(&answer::together(vec![repeat(), new()], &ids), 202, &[JSON], &accepted);
    let duplicate = format!(r#"{{"status":"duplicate","events":{names},"isDuplicate":true}}"#);
    check(&answer::together(vec![repeat(), repeat()], &ids), 200, &[JSON], &duplicate);
    let wrong = answer::together(vec![new(), answer::unavailable()], &ids[..1]);
    check(&wrong, 503, &[JSON, LATER], r#"{"status":"unavailable"}"#);
}
