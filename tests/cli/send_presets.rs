//! `send --preset` and `send FILE` to senders whose proof is not only in a header.

use crate::support::{House, SECRET, free_port};
use crate::{Said, end};
use serde_json::{Value as Json, json};

/// A secret in the query of a URL.
const QUERY_SECRET: &str = "QUERYSECRET-long-enough-xyz";

/// Runs `send` with the secret of the node in `SECRET`.
fn send(house: &House, args: &[&str]) -> Said {
    let mut command = house.command(&["send"]);
    command.args(args).stdin(std::process::Stdio::null());
    end(command)
}

#[tokio::test]
async fn a_url_in_an_error_has_no_query_and_no_password() {
    let house = House::empty("");
    let sample = |preset: &str, url: &str| {
        let mut command =
            house.command(&["send", "--preset", preset, "--sample", "--secret-env", "MINE", "--url", url]);
        command.env("MINE", QUERY_SECRET);
        end(command)
    };
    let nowhere = sample("event-grid", "http://127.0.0.1:1");
    nowhere.check(2, "could not send to http://127.0.0.1:1/in/event-grid: ");
    let given = format!("http://ann:{QUERY_SECRET}@127.0.0.1:1/in?secret={QUERY_SECRET}");
    for preset in ["event-grid", "stripe"] {
        let said = sample(preset, &given);
        said.check(2, "could not send to http://127.0.0.1:1/in: ");
        assert!(!said.err.contains(QUERY_SECRET), "{said:?}");
        for bad in [format!("http://:/?secret={QUERY_SECRET}"), format!("ftp://ann:{QUERY_SECRET}@127.0.0.1/")] {
            let said = sample(preset, &bad);
            said.check(2, "`--url` is not a URL to send to");
            assert!(!said.err.contains(QUERY_SECRET), "{said:?}");
        }
    }
    assert!(!nowhere.err.contains(QUERY_SECRET), "{nowhere:?}");
}

/// Whichever way the URL is given, it is the one that the delivery is sent to.
#[tokio::test]
async fn a_sender_that_signs_its_url_signs_the_one_it_sends_to() {
    const PRESETS: [&str; 4] = ["square", "trello", "twilio", "hubspot"];
    let port = free_port();
    let source = |name: &str| {
        let url = format!("http://127.0.0.1:{port}/in/{name}");
        format!("[source.{name}]\npreset = \"{name}\"\nsecret = {{ env = \"SECRET\" }}\nurl = \"{url}\"\n")
    };
    let sources: String = PRESETS.iter().map(|name| source(name)).collect();
    let house = House::new(&format!("listen = \"127.0.0.1:{port}\"\n{sources}"));
    for preset in PRESETS {
        let given = [
            format!("http://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{port}/"),
            format!("127.0.0.1:{port}"),
            format!("127.0.0.1:{port}/in/{preset}"),
            format!("http://127.0.0.1:{port}/in/{preset}"),
        ];
        for url in given {
            let said = send(&house, &["--preset", preset, "--sample", "--secret-env", "SECRET", "--url", &url]).fine();
            assert!(said.starts_with("20"), "{preset} {url}: {said}");
        }
        let url = house.url("");
        let bad = ["--preset", preset, "--sample", "--secret-env", "SECRET", "--url", &url, "--signed-url", "hooks"];
        let said = send(&house, &bad);
        said.check(2, &format!("--signed-url is not a URL, and `{preset}` signs its URL"));
    }
}

/// What is wrong with a secret is said without a place in a config that nobody wrote.
#[tokio::test]
async fn what_is_wrong_with_a_preset_is_told_without_a_place() {
    let house = House::empty("");
    let said = send(&house, &["--preset", "standard-webhooks", "--sample", "--secret-env", "SECRET"]);
    said.check(2, "cannot sign as `standard-webhooks`: the secret is not a Standard Webhooks secret: ");
    assert!(!said.err.contains("-->"), "{said:?}");
}

#[tokio::test]
async fn a_file_is_sent_with_what_proves_its_sender_in_the_query_or_in_the_body() {
    let house = House::new(
        "[source.event-grid]\npreset = \"event-grid\"\nsecret = { env = \"SECRET\" }\n\
         [source.figma]\npreset = \"figma\"\nsecret = { env = \"SECRET\" }\n\
         [source.graph]\npreset = \"graph\"\nsecret = { env = \"SECRET\" }\n\
         [source.mailgun]\npreset = \"mailgun\"\nsecret = { env = \"SECRET\" }\n\
         [source.ids]\nverify = { scheme = \"token\", secret = { env = \"SECRET\" }, at = \"query.secret\" }\n\
         delivery = \"query.id\"\n",
    );
    let url = house.url("");
    let element = |id: &str| json!({ "id": id, "eventType": "a", "subject": "s", "topic": "t", "eventTime": "now" });
    let change = |id: &str| json!({ "id": id, "subscriptionId": id, "clientState": "theirs", "resource": id });
    for (name, body) in [
        ("event-grid", json!([element("1")])),
        ("figma", json!({ "event_type": "FILE_UPDATE", "passcode": "theirs", "webhook_id": "22", "file_key": "a" })),
        ("graph", json!({ "value": [change("1"), change("2")] })),
        (
            "mailgun",
            json!({ "signature": { "timestamp": "1529006854", "token": "a8ce0edb2dd8301dee6c2405235584" },
            "event-data": { "event": "delivered", "id": "DACSsAdVSeGpLid7TN03WA" } }),
        ),
        ("ids", json!({})),
    ] {
        let file = format!("{name}.json");
        std::fs::write(house.path(&file), body.to_string()).unwrap();
        let said = send(&house, &[&file, "--source", name, "--url", &url]).fine();
        assert!(said.starts_with("20") && !said.contains("duplicate"), "{name}: {said}");
    }
    // Each event is named once, though the header names the first one, too.
    for (first, count) in [("3", 1), ("4", 2)] {
        let body: Vec<_> = (0..count).map(|more| element(&format!("{first}-{more}"))).collect();
        std::fs::write(house.path("grid.json"), json!(body).to_string()).unwrap();
        let args = ["--preset", "event-grid", "grid.json", "--secret-env", "SECRET", "--url", &url, "--json"];
        let sent: Json = send(&house, &args).json();
        assert_eq!(sent["events"].as_array().map(Vec::len), Some(count), "{sent}");
    }
    // A token that is in the URL already is not added to it.
    let forged = format!("{}?secret=another", house.url("/in/event-grid"));
    let said = send(&house, &["event-grid.json", "--source", "event-grid", "--url", &forged]);
    assert_eq!((said.code, &*said.out), (Some(1), "401 refused: bad_signature\n"), "{SECRET}");
}
