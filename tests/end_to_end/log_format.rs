//! The log: text for people, or JSON and nothing else.

use crate::support::{House, until};
use crate::{IN, number, numbers};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;

fn config() -> String {
    let act = "run = { steps = [\"echo out of $HOOKONCE_FIELD_N\"], log_output = true }";
    format!("log = \"json\"\n{}", numbers("", act))
}

fn objects(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
}

#[tokio::test]
async fn with_json_every_line_is_an_object_with_whole_ids_and_numbers() {
    let mut house = House::empty(&config());
    let mut serve = house.command(&["serve", "--log", "json"]);
    serve.env("HOOKONCE_LOG", "text");
    house.start_with_json_log(serve);
    let event = house.deliver(IN, &number("1", 7)).await.event();
    until("the end in the log", || house.log().contains("\"done\"")).await;
    house.signal(Signal::TERM);
    let lines = objects(&house.wait().1);
    let of =
        |message: &str| lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("{message}"));
    let done = of("done");
    assert_eq!((&done["event"], &done["attempt"], &done["level"]), (&event.as_str().into(), &1.into(), &"info".into()));
    assert!(done["took_ms"].is_u64(), "{done}");
    assert!(done["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{done}");
    assert_eq!((&of("running")["fields"]["n"], &of("output")["line"]), (&7.into(), &"out of 7".into()));
    assert!(lines.iter().all(|line| line["message"].is_string()), "{lines:?}");
}

#[tokio::test]
async fn a_long_field_is_cut_in_the_json_log_as_it_is_in_text() {
    let config = "log = \"json\"\n[source.a]\npath = \"/a\"\nverify = \"none\"\nfields = { n = \"body.n\", long = \"body.long\" }\n\
                  [[source.a.route]]\nrun = { steps = [\"true\"] }\n";
    let mut house = House::empty(config);
    let serve = house.command(&["serve"]);
    house.start_with_json_log(serve);
    let (digits, letters) = ("7".repeat(1_000), "x\\n".repeat(1_000));
    let body = format!("{{\"n\":{digits},\"long\":\"{letters}\"}}");
    let headers = [("content-type".to_owned(), "application/json".to_owned())];
    assert_eq!(house.post("/a", &headers, body.as_bytes()).await.unwrap().status, 202);
    until("the end in the log", || house.log().contains("\"done\"")).await;
    house.signal(Signal::TERM);
    let lines = objects(&house.wait().1);
    let running = lines.iter().find(|line| line["message"] == "running").unwrap();
    let chars = |name: &str| running["fields"][name].as_str().unwrap().chars().count();
    assert!((300..500).contains(&chars("n")) && (300..500).contains(&chars("long")), "{running}");
}

#[tokio::test]
async fn the_command_line_overrides_the_environment_and_that_overrides_the_config() {
    let mut house = House::empty(&config());
    let mut serve = house.command(&["serve"]);
    serve.env("HOOKONCE_LOG", "text");
    house.try_start_by(serve).unwrap();
    house.deliver(IN, &number("1", 7)).await;
    until("the end in the log", || house.log().contains(" INFO done ")).await;
    house.stop();
    house.start_with_json_log(house.command(&["serve"]));
    house.stop();
    let mut wrong = house.command(&["serve"]);
    let said = wrong.env("HOOKONCE_LOG", "xml").output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(2) && errors.contains("HOOKONCE_LOG is \"xml\""), "{errors}");
}

#[test]
fn errors_that_prevent_a_start_are_json_too() {
    let house = House::empty("nonsense = 1\n");
    let said = house.command(&["serve", "--log", "json"]).stdin(Stdio::null()).output().unwrap();
    let lines = objects(&String::from_utf8(said.stderr).unwrap());
    assert_eq!((said.status.code(), said.stdout.len()), (Some(2), 0));
    assert!(lines.iter().any(|line| line["level"] == "error" && line["message"] == "config"), "{lines:?}");
}
