//! Deliveries with several events in them: each element is claimed, run and answered for.

use crate::IN;
use crate::rejections::raw;
use crate::support::{House, SECRET, Sent, until};

/// A source whose events are the elements of `events`.
fn pushes(keys: &str, route: &str) -> String {
    format!(
        r#"
[source.pushes]
path     = "{IN}"
verify   = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
each     = "body.events"
delivery = "body.id"
fields   = {{ of = "body.of", to = "body.to", account = "outer.account.id" }}
{keys}
[[source.pushes.route]]
{route}
"#
    )
}

const RUN: &str = "run = { steps = ['printf \"%s\\n\" \"$(cat)\" >> bodies; echo $HOOKONCE_FIELD_ACCOUNT $HOOKONCE_FIELD_TO >> runs'] }";
const RECORD: &str = "name = \"record\"";

fn push(id: &str, of: &str, to: &str) -> String {
    format!(r#"{{"id":"{id}", "of":"{of}", "to":"{to}"}}"#)
}

/// An envelope, under an id that is its own.
fn envelope(elements: &[String]) -> Sent {
    let id = format!("envelope-{}", elements.len());
    Sent::github("push", &id, &format!(r#"{{"account": {{"id": "acme"}}, "events": [ {} ]}}"#, elements.join(" , ")))
}

#[tokio::test]
async fn a_partly_repeated_envelope_runs_what_is_new() {
    let house = House::new(&pushes("", RUN));
    let [a, b, c] = ["a", "b", "c"].map(|id| push(id, "x", id));
    let first = house.deliver(IN, &envelope(&[a.clone(), b.clone()])).await;
    let told = first.json();
    assert_eq!((first.status, &told["new"], &told["duplicate"]), (202, &2.into(), &0.into()), "{first:?}");
    assert_eq!(told["events"].as_array().map(Vec::len), Some(2));
    house.quiet().await;
    let partly = house.deliver(IN, &envelope(&[b.clone(), c.clone()])).await;
    let told = partly.json();
    assert_eq!(
        (partly.status, &*partly.word(), &told["new"], &told["duplicate"]),
        (202, "accepted", &1.into(), &1.into())
    );
    house.quiet().await;
    let again = house.deliver(IN, &envelope(&[a.clone(), c.clone(), b.clone(), a.clone()])).await;
    let told = again.json();
    assert_eq!(
        (again.status, &*again.word(), &told["new"], &told["duplicate"]),
        (200, "duplicate", &0.into(), &4.into())
    );
    assert_eq!(told["isDuplicate"], true);
    // Each command got its element, byte for byte, and what is around it.
    let mut bodies = house.lines("bodies");
    bodies.sort();
    assert_eq!(bodies, [a, b, c]);
    let mut runs = house.lines("runs");
    runs.sort();
    assert_eq!(runs, ["acme a", "acme b", "acme c"]);
    assert_eq!(house.sql("select delivery_id from events order by 1"), ["a", "b", "c"]);
}

#[tokio::test]
async fn equal_elements_of_one_envelope_are_one_event() {
    let house = House::new(&pushes("", RUN));
    let answer = house.deliver(IN, &envelope(&[push("a", "x", "1"), push("a", "x", "1")])).await;
    let told = answer.json();
    assert_eq!((answer.status, &told["new"], &told["duplicate"]), (202, &1.into(), &1.into()), "{answer:?}");
    house.quiet().await;
    assert_eq!(house.lines("runs").len(), 1);
}

#[tokio::test]
async fn a_thousand_elements_are_taken_and_one_more_is_too_many() {
    let house = House::new(&pushes("", RECORD));
    let elements: Vec<_> = (0..1_001).map(|n| push(&format!("{n:04}"), &n.to_string(), "1")).collect();
    let refused = house.deliver(IN, &envelope(&elements)).await;
    assert_eq!((refused.status, &refused.json()["reason"]), (413, &"too_many_elements".into()), "{refused:?}");
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    let taken = house.deliver(IN, &envelope(&elements[1..])).await;
    assert_eq!((taken.status, &taken.json()["new"]), (202, &1_000.into()), "{taken:?}");
    assert_eq!(taken.json().get("events"), None, "too many to be named");
    assert_eq!(house.sql("select count(*) from events"), ["1000"]);
    let again = house.deliver(IN, &envelope(&elements[1..])).await;
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &1_000.into()));
}

#[tokio::test]
async fn one_bad_element_refuses_all_and_nothing_is_written() {
    let house = House::new(&pushes("", RUN));
    let good = || push("a", "x", "1");
    for (bad, status, reason) in [
        (r#"{"of":"x"}"#.to_owned(), 422, "missing_field"),
        ("5".to_owned(), 400, "malformed"),
        (r#"{"id":"b","id":"c"}"#.to_owned(), 400, "malformed"),
        (push(&"i".repeat(300), "x", "1"), 422, "field_too_long"),
    ] {
        let refused = house.deliver(IN, &envelope(&[good(), good(), good(), bad.clone()])).await;
        let told = refused.json();
        assert_eq!((refused.status, &told["reason"]), (status, &reason.into()), "{bad}: {refused:?}");
        assert_eq!(told["element"], "body.events.3");
    }
    let not_json = house.deliver(IN, &envelope(&[good(), "{".to_owned()])).await;
    assert_eq!((not_json.status, &not_json.json()["reason"]), (400, &"malformed".into()));
    let forged = Sent { body: envelope(&[push("b", "x", "1")]).body, ..envelope(&[good()]) };
    assert_eq!(house.deliver(IN, &forged).await.status, 401);
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    assert_eq!(house.lines("runs"), Vec::<String>::new());
    until("a log line", || house.log().contains("element=body.events.3")).await;
}

#[tokio::test]
async fn an_envelope_without_wanted_elements_is_ignored() {
    let house = House::new(&pushes("when = 'to == \"1\"'", RECORD));
    for elements in [vec![], vec![push("a", "x", "2")]] {
        let answer = house.deliver(IN, &envelope(&elements)).await;
        assert_eq!((answer.status, &*answer.word()), (200, "ignored"), "{answer:?}");
    }
    let some = house.deliver(IN, &envelope(&[push("a", "x", "2"), push("b", "x", "1")])).await;
    assert_eq!((some.status, &some.json()["new"]), (202, &1.into()));
    assert_eq!(house.sql("select delivery_id from events"), ["b"]);
}

#[tokio::test]
async fn elements_of_one_register_are_claimed_in_their_order() {
    let change = "once = { per = [\"delivery\"], change = { of = [\"of\"], to = [\"to\"] } }";
    let house = House::new(&pushes(change, RECORD));
    let mut elements = Vec::new();
    for n in 0..40 {
        elements.extend(["x", "y", "z"].map(|of| push(&format!("{of}{n}"), of, &n.to_string())));
    }
    let answer = house.deliver(IN, &envelope(&elements)).await;
    assert_eq!((answer.status, &answer.json()["new"]), (202, &120.into()), "{answer:?}");
    // Each register has the last value: that is no change, and the one before it is.
    let last = ["x", "y", "z"].map(|of| push(&format!("{of}-again"), of, "39"));
    let answer = house.deliver(IN, &envelope(&last)).await;
    assert_eq!((answer.status, &answer.json()["duplicate"]), (200, &3.into()), "{answer:?}");
    let answer = house.deliver(IN, &envelope(&[push("x-back", "x", "38"), push("x-forth", "x", "39")])).await;
    assert_eq!((answer.status, &answer.json()["new"]), (202, &2.into()), "{answer:?}");
}

#[tokio::test]
async fn elements_of_one_group_run_in_their_order() {
    let house = House::new(&pushes("", &format!("group = [\"of\"]\n{RUN}")));
    let elements: Vec<_> = (0..12).map(|n| push(&format!("id-{n}"), "x", &format!("{n:02}"))).collect();
    assert_eq!(house.deliver(IN, &envelope(&elements)).await.status, 202);
    house.quiet().await;
    let expected: Vec<_> = (0..12).map(|n| format!("acme {n:02}")).collect();
    assert_eq!(house.lines("runs"), expected);
}

#[tokio::test]
async fn while_the_store_is_locked_an_envelope_gets_503_and_its_repeat_finds_all() {
    let house = House::new(&pushes("", RUN));
    let (old, new) = (push("a", "x", "1"), push("b", "x", "2"));
    assert_eq!(house.deliver(IN, &envelope(std::slice::from_ref(&old))).await.status, 202);
    house.quiet().await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let refused = house.deliver(IN, &envelope(&[old.clone(), new.clone()])).await;
    assert_eq!((refused.status, &*refused.word()), (503, "unavailable"), "{refused:?}");
    other.execute_batch("rollback").unwrap();
    drop(other);
    let answer = house.deliver(IN, &envelope(&[old, new])).await;
    assert_eq!((answer.status, &answer.json()["new"], &answer.json()["duplicate"]), (202, &1.into(), &1.into()));
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["acme 1", "acme 2"]);
}

fn said(house: &House, args: &[&str]) -> String {
    let output = house.command(args).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn every_element_is_explained_and_so_is_the_event_of_one() {
    let house = House::new(&pushes("when = 'to != \"no\"'", RUN));
    let mut elements = vec![push("a", "x", "1"), push("b", "x", "no")];
    elements.extend((0..7).map(|n| push(&format!("c{n}"), "x", "1")));
    std::fs::write(house.path("saved.json"), envelope(&elements).body).unwrap();
    let text = said(&house, &["explain", "saved.json"]);
    for line in [
        "elements   9, of which the first 4 and the last one judged are shown",
        "element    body.events.0",
        "to != \"no\": false, to was \"no\"",
        "element    body.events.8",
        "and 4 more events, which are not shown",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("body.events.4"), "{text}");
    // Each element is followed by what becomes of it.
    let explained: Vec<_> = text.split("element    body.events.").skip(1).collect();
    for (element, (index, id)) in explained.iter().zip([("0", "a"), ("1", ""), ("2", "c0"), ("3", "c1"), ("8", "c6")]) {
        assert!(element.starts_with(index), "{text}");
        let verdict = if id.is_empty() { "it would   be ignored\n" } else { "it would   be a new event" };
        assert!(element.contains(verdict), "{element}\n{text}");
        assert_eq!(element.contains(&format!("id         {id}\n")), !id.is_empty(), "{element}\n{text}");
    }
    assert_eq!((explained.len(), text.matches("once per").count()), (5, 4), "{text}");
    std::fs::write(house.path("bad.json"), envelope(&[elements[0].clone(), "{}".to_owned()]).body).unwrap();
    let text = said(&house, &["explain", "bad.json"]);
    assert!(text.contains("be refused with 422, missing_field: `delivery`, in body.events.1"), "{text}");
    let answer = house.deliver(IN, &envelope(&elements[..1])).await;
    house.quiet().await;
    let event = answer.json()["events"][0].as_str().unwrap().to_owned();
    let text = said(&house, &["explain", &event]);
    for line in ["account  \"acme\"  at outer.account.id", "be a duplicate by its delivery", &event] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let text = said(&house, &["explain", "saved.json", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["elements"]["count"], json["events"].as_array().map(Vec::len)), (&9.into(), Some(8)));
    assert_eq!(json["elements"]["shown"][1]["at"], "body.events.1");
}

#[tokio::test]
async fn an_element_that_comes_twice_is_explained_as_one_event() {
    let house = House::new(&pushes("", RUN));
    std::fs::write(house.path("saved.json"), envelope(&["a", "a", "b"].map(|id| push(id, id, "1"))).body).unwrap();
    let text = said(&house, &["explain", "saved.json"]);
    assert_eq!(text.matches("be a new event").count(), 2, "{text}");
    assert_eq!(text.matches("be a duplicate by its delivery, of an element before it").count(), 1, "{text}");
}

#[tokio::test]
async fn the_event_of_a_single_element_is_in_the_header_where_the_answer_has_no_body() {
    let house = House::new(&pushes("accepted_status = 204", RUN));
    let one = house.deliver(IN, &envelope(&[push("a", "x", "1")])).await;
    let event = house.sql("select lower(hex(id)) from events").remove(0);
    assert_eq!((one.status, one.header("hookonce-event").map(|id| id.replace('-', ""))), (204, Some(event)));
    let two = house.deliver(IN, &envelope(&["b", "c"].map(|id| push(id, id, "1")))).await;
    assert_eq!((two.status, two.header("hookonce-event")), (204, None));
    house.quiet().await;
}

#[tokio::test]
async fn a_sample_is_sent_with_one_element() {
    let house = House::new(&pushes("", RUN));
    let text = said(&house, &["send", "--sample", "--set", "to=7", "--url", &house.url(IN)]);
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["sample 7"], "{text}");
}

#[tokio::test]
async fn the_senders_of_elements_find_their_endpoint() {
    let source = |name: &str| format!("[source.{name}]\npreset = \"{name}\"\nsecret = {{ env = \"SECRET\" }}\n");
    let house = House::new(&format!("\n{}{}{}", source("okta"), source("graph"), source("event-grid")));
    let okta = raw(&house, b"GET /in/okta HTTP/1.1\r\nhost: h\r\nx-okta-verification-challenge: abc\r\n\r\n").await;
    assert!(okta.starts_with("HTTP/1.1 200") && okta.ends_with("{\"verification\":\"abc\"}"), "{okta}");
    let text = [("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())];
    let graph = house.post("/in/graph?validationToken=Validation%3A+a%26b", &text, b"").await.unwrap();
    assert_eq!((graph.status, graph.header("content-type")), (200, Some("text/plain; charset=utf-8")), "{graph:?}");
    assert_eq!(String::from_utf8_lossy(&graph.body), "Validation: a&b");
    let headers = ["application/json", "SubscriptionValidation"];
    let headers = ["content-type", "aeg-event-type"].into_iter().zip(headers);
    let headers: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let body = br#"[{"id":"1","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6"}}]"#;
    let secret = SECRET.replace(' ', "+");
    let grid = house.post(&format!("/in/event-grid?secret={secret}"), &headers, body).await.unwrap();
    assert_eq!((grid.status, &*grid.body), (200, &b"{\"validationResponse\":\"512d38b6\"}"[..]), "{grid:?}");
    let forged = house.post("/in/event-grid?secret=x", &headers, body).await.unwrap();
    assert_eq!(forged.status, 401, "{forged:?}");
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    // What is checked is taken, too.
    let json = &headers[..1];
    let sent =
        house.post(&format!("/in/event-grid?secret={secret}"), json, br#"[{"id":"2"},{"id":"3"}]"#).await.unwrap();
    assert_eq!((sent.status, &sent.json()["new"]), (200, &2.into()), "{sent:?}");
    // The secret of the query is not kept with the event, which is explained without it.
    let event = sent.json()["events"][1].as_str().unwrap().to_owned();
    let text = said(&house, &["explain", &event]);
    assert!(text.contains("not checked, no query.secret was saved") && text.contains("be a duplicate"), "{text}");
    assert!(!text.contains(SECRET) && !house.log().contains(SECRET), "{text}");
    let element = |n: u8| format!(r#"{{"clientState":"{SECRET}","subscriptionId":"s","id":"{n}"}}"#);
    let body = format!(r#"{{"value":[{},{}]}}"#, element(1), element(2));
    let sent = house.post("/in/graph", json, body.as_bytes()).await.unwrap();
    assert_eq!((sent.status, &sent.json()["new"]), (202, &2.into()), "{sent:?}");
    let forged = body.replace(
        &format!("{SECRET}\",\"subscriptionId\":\"s\",\"id\":\"2\""),
        "x\",\"subscriptionId\":\"s\",\"id\":\"9\"",
    );
    assert_eq!(house.post("/in/graph", json, forged.as_bytes()).await.unwrap().status, 401, "{forged}");
}
