//! Every row of the table of responses.

use crate::sources::{Request, now, source};
use hookonce::decide::claim::MatchedBy;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::event::{DeathCause, DoneReason, Event, EventState, Outcome, Receipt};
use hookonce::decide::id::{EventId, NodeId};
use hookonce::decide::limits;
use hookonce::decide::response;
use hookonce::decide::response::{HttpResponse, RepeatTiming};
use hookonce::decide::source::{ApiStyle, ResponseMode, Source};
use hookonce::decide::time::Duration;

const ID: &str = "01010101-0101-0101-0101-010101010101";

fn event(state: EventState) -> Event {
    let new = Request::json("{}").event(&source(Vec::new()));
    Event { state, ..new.event }
}

fn waiting() -> Event {
    event(EventState::Waiting { due: None })
}

fn running() -> Event {
    event(EventState::Running { until: now(), by: NodeId("n1".into()), action: None })
}

fn done() -> Event {
    event(EventState::Done { how: DoneReason::Acted, at: now() })
}

fn dead(cause: DeathCause) -> Event {
    event(EventState::Dead { cause, at: now() })
}

fn receipt(status: u16) -> Receipt {
    let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
    Receipt { status, headers, body: b"thanks".to_vec(), truncated: false }
}

const JSON: &str = "content-type: application/json";
const OF: &str = "hookonce-event: 01010101-0101-0101-0101-010101010101";
const LATER: &str = "retry-after: 5";

fn check(reply: &HttpResponse, status: u16, headers: &[&str], body: &str) {
    let sent: Vec<_> = reply.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!((reply.status, sent.iter().map(String::as_str).collect()), (status, headers.to_vec()), "{text}");
    match serde_json::from_str::<serde_json::Value>(body) {
        Ok(expected) => {
            let got: serde_json::Value = serde_json::from_str(&text).expect("a JSON body");
            assert_eq!(got, expected);
            assert_eq!(got["status"], reply.word, "the log and the response use the same word");
        }
        Err(_) => assert_eq!(text, body),
    }
}

#[test]
fn every_refusal_has_its_status_and_names_no_secret() {
    for (refusal, status, body) in [
        (DeliveryRejection::BadSignature, 401, r#"{"status":"refused","reason":"bad_signature"}"#),
        (
            DeliveryRejection::Forbidden,
            403,
            r#"{"status":"refused","reason":"forbidden","detail":"`require` is not true of it"}"#,
        ),
        (DeliveryRejection::Malformed("no".into()), 400, r#"{"status":"refused","reason":"malformed","detail":"no"}"#),
        (
            DeliveryRejection::ContentType,
            415,
            r#"{"status":"refused","reason":"content_type","detail":"send JSON as application/json, in UTF-8"}"#,
        ),
        (
            DeliveryRejection::NeitherJsonNorForm,
            415,
            r#"{"status":"refused","reason":"content_type","detail":"send JSON as application/json, or a form as application/x-www-form-urlencoded, in UTF-8"}"#,
        ),
        (
            DeliveryRejection::NoForm,
            415,
            r#"{"status":"refused","reason":"content_type","detail":"send it as application/x-www-form-urlencoded, in UTF-8; multipart/form-data is not read"}"#,
        ),
        (
            DeliveryRejection::MissingField("tag".into()),
            422,
            r#"{"status":"refused","reason":"missing_field","field":"tag"}"#,
        ),
        (
            DeliveryRejection::FieldTooLong("tag".into()),
            422,
            r#"{"status":"refused","reason":"field_too_long","field":"tag"}"#,
        ),
        (DeliveryRejection::BadOrder("at".into()), 422, r#"{"status":"refused","reason":"bad_order","field":"at"}"#),
        (DeliveryRejection::KeyMissing, 400, r#"{"status":"refused","reason":"key_missing"}"#),
        (DeliveryRejection::KeyMalformed("no"), 400, r#"{"status":"refused","reason":"key_malformed","detail":"no"}"#),
        (
            DeliveryRejection::KindMismatch("it is another".into()),
            422,
            r#"{"status":"refused","reason":"kind_mismatch","detail":"it is another"}"#,
        ),
    ] {
        check(&response::refused(&refusal), status, &[JSON], body);
    }
    for (status, reason) in
        [(404, "unknown_path"), (405, "method"), (408, "too_slow"), (413, "too_large"), (431, "headers")]
    {
        let body = format!(r#"{{"status":"refused","reason":"{reason}"}}"#);
        check(&response::rejected_before_judging(status, reason), status, &[JSON], &body);
    }
    check(&response::unavailable(), 503, &[JSON, LATER], r#"{"status":"unavailable"}"#);
}

#[test]
fn ignored_stale_and_new_deliveries_are_reported_as_such() {
    let id = waiting().id;
    assert_eq!(id, EventId([1; 16]));
    let why = r#"tag was "main", wanted tag == "latest""#;
    let ignored = serde_json::json!({ "status": "ignored", "reason": why }).to_string();
    check(&response::ignored(why), 200, &[JSON], &ignored);
    check(&response::ignored_unverified(), 200, &[JSON], r#"{"status":"ignored","reason":"filtered"}"#);
    check(&response::stale(id), 200, &[JSON, OF], &format!(r#"{{"status":"stale","event":"{ID}"}}"#));
    check(&response::accepted(id), 202, &[JSON, OF], &format!(r#"{{"status":"accepted","event":"{ID}"}}"#));
}

#[test]
fn a_sender_that_waits_gets_the_receivers_response_or_how_the_event_ended() {
    let text = "content-type: text/plain";
    let body = |rest: &str| format!(r#"{{"event":"{ID}",{rest}}}"#);
    check(&response::ended(ApiStyle::Webhook, &done(), Some(&receipt(201))), 201, &[text, OF], "thanks");
    check(
        &response::ended(ApiStyle::Webhook, &done(), None),
        200,
        &[JSON, OF],
        &body(r#""status":"done","how":"acted""#),
    );
    let recorded = event(EventState::Done { how: DoneReason::Recorded, at: now() });
    check(
        &response::ended(ApiStyle::Webhook, &recorded, None),
        200,
        &[JSON, OF],
        &body(r#""status":"done","how":"recorded""#),
    );
    let rejected = dead(DeathCause::Rejected);
    check(&response::ended(ApiStyle::Webhook, &rejected, Some(&receipt(410))), 410, &[text, OF], "thanks");
    check(
        &response::ended(ApiStyle::Webhook, &dead(DeathCause::Failed), None),
        502,
        &[JSON, OF],
        &body(r#""status":"dead","cause":"failed""#),
    );
    let doubt = body(r#""status":"dead","cause":"in_doubt""#);
    check(&response::ended(ApiStyle::Webhook, &dead(DeathCause::InDoubt), None), 504, &[JSON, OF], &doubt);
    check(
        &response::ended(ApiStyle::Webhook, &dead(DeathCause::InDoubt), Some(&receipt(200))),
        504,
        &[JSON, OF],
        &doubt,
    );
    let cancelled = body(r#""status":"dead","cause":"cancelled""#);
    check(
        &response::ended(ApiStyle::Webhook, &dead(DeathCause::Cancelled), Some(&receipt(200))),
        502,
        &[JSON, OF],
        &cancelled,
    );
    let unfinished = body(r#""status":"accepted","state":"running""#);
    check(&response::unfinished(&running()), 202, &[JSON, OF, LATER], &unfinished);
    check(&response::ended(ApiStyle::Webhook, &running(), None), 202, &[JSON, OF, LATER], &unfinished);
}

#[test]
fn a_repeat_gets_the_first_event_and_its_state() {
    let body = |state: &str, same: &str, rest: &str| {
        format!(r#"{{"status":"duplicate","event":"{ID}","state":"{state}","same":"{same}","isDuplicate":true{rest}}}"#)
    };
    let (delivery, fields) = (MatchedBy::Delivery, MatchedBy::Fields("package+tag".into()));
    check(&response::duplicate(&waiting(), &delivery), 202, &[JSON, OF], &body("waiting", "delivery", ""));
    check(&response::duplicate(&running(), &MatchedBy::Body), 202, &[JSON, OF], &body("running", "body", ""));
    check(&response::duplicate(&done(), &MatchedBy::Change), 200, &[JSON, OF], &body("done", "change", ""));
    let rejected = body("dead", "package+tag", r#","cause":"rejected""#);
    check(&response::duplicate(&dead(DeathCause::Rejected), &fields), 200, &[JSON, OF], &rejected);
}

#[test]
fn a_repeat_that_waits_gets_the_first_response_while_it_is_kept() {
    let mut source = source(Vec::new());
    source.respond = ResponseMode::WhenDone { within: Duration::from_secs(8) };
    let body = |state: &str, rest: &str| {
        format!(
            r#"{{"status":"duplicate","event":"{ID}","state":"{state}","same":"delivery","isDuplicate":true{rest}}}"#
        )
    };
    let again = |source: &Source, event: &Event, receipt: Option<&Receipt>, came, later: Duration| {
        response::repeat_response(source, event, receipt, &MatchedBy::Delivery, came, now() + later)
    };
    let (text, replayed) = ("content-type: text/plain", "idempotent-replayed: true");
    let (at_once, week) = (Duration::ZERO, Duration::from_hours(7 * 24));
    let (ok, gone) = (receipt(201), receipt(410));
    check(
        &again(&source, &running(), None, RepeatTiming::WhileRunning, at_once),
        409,
        &[JSON, OF, LATER],
        &body("running", ""),
    );
    check(&again(&source, &done(), Some(&ok), RepeatTiming::AfterEnd, at_once), 201, &[text, OF, replayed], "thanks");
    check(
        &again(&source, &done(), Some(&ok), RepeatTiming::WhileRunning, at_once),
        201,
        &[text, OF, replayed],
        "thanks",
    );
    check(&again(&source, &done(), Some(&ok), RepeatTiming::AfterEnd, week), 200, &[JSON, OF], &body("done", ""));
    check(&again(&source, &done(), None, RepeatTiming::AfterEnd, at_once), 200, &[JSON, OF], &body("done", ""));
    let rejected = dead(DeathCause::Rejected);
    check(&again(&source, &rejected, Some(&gone), RepeatTiming::WhileRunning, at_once), 410, &[text, OF], "thanks");
    let dead_body = format!(r#"{{"status":"dead","event":"{ID}","cause":"rejected"}}"#);
    for keep_failures in [false, true] {
        source.once.keep_failures = keep_failures;
        check(
            &again(&source, &rejected, Some(&gone), RepeatTiming::AfterEnd, at_once),
            410,
            &[text, OF, replayed],
            "thanks",
        );
        check(&again(&source, &rejected, Some(&gone), RepeatTiming::AfterEnd, week), 502, &[JSON, OF], &dead_body);
    }
    let failed = format!(r#"{{"status":"dead","event":"{ID}","cause":"failed"}}"#);
    check(
        &again(&source, &dead(DeathCause::Failed), None, RepeatTiming::AfterEnd, at_once),
        502,
        &[JSON, OF, replayed],
        &failed,
    );
    source.mark_duplicates = true;
    let object = Receipt { body: b"{\"id\": 7}".to_vec(), ..receipt(200) };
    let marked = again(&source, &done(), Some(&object), RepeatTiming::AfterEnd, at_once);
    assert_eq!(String::from_utf8_lossy(&marked.body), "{\"id\": 7,\"isDuplicate\":true}");
    check(&again(&source, &done(), Some(&ok), RepeatTiming::AfterEnd, at_once), 201, &[text, OF, replayed], "thanks");
}

#[test]
fn a_sender_that_waits_never_gets_2xx_for_a_dead_event() {
    let mut source = source(Vec::new());
    source.respond = ResponseMode::WhenDone { within: Duration::from_secs(8) };
    let week = Duration::from_hours(7 * 24);
    for cause in DeathCause::ALL {
        let event = dead(cause);
        for receipt in [None, Some(receipt(200)), Some(receipt(410)), Some(Receipt { truncated: true, ..receipt(503) })]
        {
            let receipt = receipt.as_ref();
            let given = matches!(cause, DeathCause::Failed | DeathCause::Rejected).then_some(receipt).flatten();
            let given = given.map(|receipt| receipt.status).filter(|status| *status != 200);
            let ours = if cause == DeathCause::InDoubt { 504 } else { 502 };
            for speaks in [ApiStyle::Webhook, ApiStyle::Api] {
                source.api_style = speaks;
                let first = response::ended(speaks, &event, receipt);
                assert_eq!(first.status, given.unwrap_or(ours), "{cause:?} {speaks:?}");
                for keep_failures in [false, true] {
                    source.once.keep_failures = keep_failures;
                    for (came, later) in [
                        (RepeatTiming::WhileRunning, week),
                        (RepeatTiming::AfterEnd, Duration::ZERO),
                        (RepeatTiming::AfterEnd, week),
                    ] {
                        let kept = given.filter(|_| came == RepeatTiming::WhileRunning || later.is_zero());
                        let again =
                            response::repeat_response(&source, &event, receipt, &MatchedBy::Body, came, now() + later);
                        assert_eq!(again.status, kept.unwrap_or(ours), "{cause:?} {speaks:?} {came:?} {later:?}");
                        let two = response::combine_responses(
                            vec![response::duplicate(&done(), &MatchedBy::Body), again],
                            &[event.id],
                        );
                        assert!(two.status >= 400, "one of several is dead");
                    }
                }
            }
        }
    }
    let superseded = event(EventState::Done { how: DoneReason::Superseded { by: EventId([2; 16]) }, at: now() });
    let said = format!(r#"{{"status":"done","event":"{ID}","how":"superseded"}}"#);
    check(&response::ended(ApiStyle::Webhook, &superseded, None), 200, &[JSON, OF], &said);
    let said = format!(
        r#"{{"status":"duplicate","event":"{ID}","state":"dead","cause":"failed","same":"change","isDuplicate":true,"how":"superseded"}}"#
    );
    check(&response::superseded(&dead(DeathCause::Failed), &MatchedBy::Change), 200, &[JSON, OF], &said);
}

#[test]
fn a_truncated_response_is_not_returned_as_if_it_were_complete() {
    let cut = Receipt { truncated: true, ..receipt(201) };
    let said = |word: &str| format!(r#"{{"status":"{word}","event":"{ID}","receipt":"not whole"}}"#);
    check(&response::ended(ApiStyle::Webhook, &done(), Some(&cut)), 201, &[JSON, OF], &said("done"));
    check(
        &response::ended(ApiStyle::Webhook, &dead(DeathCause::Failed), Some(&Receipt { status: 500, ..cut })),
        500,
        &[JSON, OF],
        &said("dead"),
    );
}

#[test]
fn a_response_that_broke_off_does_not_count_for_a_sender_that_waits() {
    let done = ResponseMode::WhenDone { within: Duration::from_secs(8) };
    let whole = Outcome::Delivered(Some(receipt(201)));
    let broken = Outcome::Delivered(Some(Receipt { truncated: true, ..receipt(201) }));
    let long = Receipt { truncated: true, body: vec![b'x'; limits::RECEIPT_BYTES_MAX], ..receipt(201) };
    let long = Outcome::Delivered(Some(long));
    let half = Receipt { truncated: true, ..receipt(201) };
    let late = Outcome::TimedOut { why: "no more within 8s".into(), answered: Some(half) };
    for (outcome, respond, word) in [
        (&whole, done, "delivered"),
        (&broken, done, "unknown"),
        (&broken, ResponseMode::Accepted, "delivered"),
        (&long, done, "delivered"),
        (&late, done, "unknown"),
        (&late, ResponseMode::Accepted, "delivered"),
    ] {
        assert_eq!(response::outcome_for_waiting_sender(outcome.clone(), respond).word(), word, "{respond:?}");
    }
}

#[test]
fn several_events_get_one_response_and_errors_come_first() {
    let [first, second] = [EventId([1; 16]), EventId([2; 16])];
    let ids = [first, second];
    let names = format!(r#"["{first}","{second}"]"#);
    let new = || response::accepted(first);
    let repeat = || response::duplicate(&done(), &MatchedBy::Body);
    check(
        &response::combine_responses(vec![repeat()], &ids[..1]),
        200,
        &[JSON, OF],
        &String::from_utf8_lossy(&repeat().body),
    );
    let accepted = format!(r#"{{"status":"accepted","events":{names}}}"#);
    check(&response::combine_responses(vec![repeat(), new()], &ids), 202, &[JSON], &accepted);
    let duplicate = format!(r#"{{"status":"duplicate","events":{names},"isDuplicate":true}}"#);
    check(&response::combine_responses(vec![repeat(), repeat()], &ids), 200, &[JSON], &duplicate);
    let wrong = response::combine_responses(vec![new(), response::unavailable()], &ids[..1]);
    check(&wrong, 503, &[JSON, LATER], r#"{"status":"unavailable"}"#);
}
