//! A path that is the only secret of a sender that signs nothing: deliveries arrive there, and nothing shows it.

use crate::support::{House, PATIENCE, Sent, until};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// The random word of the path; no text has even its beginning.
const WORD: &str = "9b1f6c2e7a5d4083";
const BEGINNING: &str = "9b1f";

fn config() -> &'static str {
    "[source.hub]\npreset = \"docker-hub\"\npath = { env = \"HUB_PATH\" }\n\
     [[source.hub.route]]\nrun = { steps = [\"env >> variables\"] }\n"
}

fn path() -> String {
    format!("/in/hub/{WORD}")
}

fn command(house: &House, args: &[&str]) -> Command {
    let mut command = house.command(args);
    command.env("HUB_PATH", path() + "\n");
    command
}

fn pushed() -> Sent {
    let body =
        r#"{"push_data":{"pushed_at":1763454600,"pusher":"ann","tag":"latest"},"repository":{"repo_name":"ann/app"}}"#;
    Sent { headers: vec![("content-type".into(), "application/json".into())], body: body.into() }
}

#[track_caller]
fn check_masked(what: &str, text: &str) {
    assert!(!text.contains(BEGINNING), "{what}: {text}");
}

/// The output of a command, which contains this and not the path.
fn run(house: &House, args: &[&str], expected: &str) -> String {
    let output = command(house, args).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(text.contains(expected), "{args:?}: {text}");
    check_masked(&format!("{args:?}"), &text);
    text
}

/// What a stream of server-sent events has sent, once this is in it.
async fn streamed(mut answer: reqwest::Response, expected: &str) -> String {
    let mut text = String::new();
    while !text.contains(expected) {
        let chunk = tokio::time::timeout(PATIENCE, answer.chunk()).await.expect("news in time").unwrap();
        text += &String::from_utf8_lossy(&chunk.expect("the stream goes on"));
    }
    text
}

/// Sends to the path, and to others that are almost the same.
async fn deliver(house: &House) -> String {
    let first = house.deliver(&path(), &pushed()).await;
    assert_eq!((first.status, &*first.word()), (202, "accepted"), "{first:?}");
    house.quiet().await;
    let repeat = house.deliver(&path(), &pushed()).await;
    assert_eq!((repeat.status, &*repeat.word()), (200, "duplicate"), "{repeat:?}");
    for near in ["/in/hub".to_owned(), "/in/docker-hub".into(), path() + "/", path()[..path().len() - 1].into()] {
        let answer = house.deliver(&near, &pushed()).await;
        assert_eq!(answer.status, 404, "{near}: {answer:?}");
        check_masked(&near, &String::from_utf8_lossy(&answer.body));
    }
    // Rejected before and after it is read.
    let wrong = Sent { body: "not JSON".into(), ..pushed() };
    assert_eq!(house.deliver(&path(), &wrong).await.status, 400);
    let got = reqwest::get(house.url(&path())).await.unwrap();
    assert_eq!(got.status(), 405);
    first.event()
}

#[tokio::test]
async fn a_secret_path_receives_and_is_shown_nowhere() {
    let mut house = House::empty(config());
    house.try_start_by(command(&house, &["serve"])).unwrap();
    let event = deliver(&house).await;
    check_masked("the variables of a command", &house.lines("variables").join("\n"));
    let pages = ["/metrics", "/api/sources", "/api/deliveries", "/api/overview", "/api/events"];
    for page in pages.map(str::to_owned).into_iter().chain([format!("/api/events/{event}")]) {
        let answer = house.ask("GET", &page).await;
        assert_eq!(answer.status, 200, "{page}");
        check_masked(&page, &String::from_utf8_lossy(&answer.body));
    }
    let sources = house.ask("GET", "/api/sources").await.json();
    assert_eq!(sources["sources"][0]["path"], "/•••");
    let log = house.log();
    assert!(log.contains("unknown_path") && log.contains("their paths are /•••"), "{log}");
    check_masked("the log", &log);
    for file in ["hookonce.db", "hookonce.db-wal"] {
        let bytes = std::fs::read(house.path(file)).unwrap_or_default();
        assert!(!bytes.windows(WORD.len()).any(|part| part == WORD.as_bytes()), "{file}");
    }

    run(&house, &["check"], "/•••");
    run(&house, &["check", "--json"], "\"path\": \"/•••\"");
    run(&house, &["explain", &event], "hub");
    let request = |path: &str| {
        let body = String::from_utf8(pushed().body).unwrap();
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    std::fs::write(house.path("request"), request(&path())).unwrap();
    run(&house, &["explain", "request"], "listens on /•••");
    std::fs::write(house.path("request"), request(&(path() + "0"))).unwrap();
    run(&house, &["explain", "request"], "no source listens on the path of the request");
    // `send` knows the path; where there is no node, its error does not show it.
    run(&house, &["send", "--sample", "--url", &house.url("")], " accepted ");
    let url = format!("http://127.0.0.1:1{}", path());
    run(&house, &["send", "--sample", "--url", "http://127.0.0.1:1"], "could not send to http://127.0.0.1:1/•••");
    run(&house, &["send", "--sample", "--url", &url], "could not send to http://127.0.0.1:1/•••");
    run(
        &house,
        &["send", "--preset", "docker-hub", "--sample", "--url", &url],
        "could not send to http://127.0.0.1:1/•••",
    );
}

#[tokio::test]
async fn a_log_in_json_does_not_have_it_either() {
    let mut house = House::empty(config());
    house.start_with_json_log(command(&house, &["serve", "--log", "json"]));
    deliver(&house).await;
    assert!(house.log().contains("\"path\":\"/•••\""), "{}", house.log());
    check_masked("the log", &house.log());
}

#[tokio::test]
async fn a_path_in_a_file_is_a_secret_too() {
    let config = config().replace("{ env = \"HUB_PATH\" }", "{ file = \"hub.path\" }");
    let mut house = House::empty(&config);
    std::fs::write(house.path("hub.path"), path() + "\n").unwrap();
    house.start();
    deliver(&house).await;
    assert_eq!(house.ask("GET", "/api/sources").await.json()["sources"][0]["path"], "/•••");
    until("the log tells of the other paths", || house.log().contains("their paths are /•••")).await;
    check_masked("the log", &house.log());
    run(&house, &["check"], "/•••");
    std::fs::remove_file(house.path("hub.path")).unwrap();
    house.stop();
    let said = house.try_start().unwrap_err();
    assert!(said.contains("hub.path"), "{said}");
    check_masked("what a node says that cannot start", &said);
}

#[tokio::test]
async fn what_is_streamed_and_explained_does_not_have_it_either() {
    let mut house = House::empty(config());
    house.try_start_by(command(&house, &["serve"])).unwrap();
    let client = reqwest::Client::new();
    let live = client.get(house.admin_url("/api/live")).send().await.unwrap();
    assert_eq!(live.status(), 200);
    let admin = house.admin_url("");
    let mut tail = command(&house, &["tail", "--admin", &admin]);
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // It prints nothing before it is connected: what it may have missed is sent again.
    let told = std::thread::spawn(move || lines.next().map(Result::unwrap).unwrap_or_default());
    let mut n = 0;
    while !told.is_finished() {
        n += 1;
        let body = String::from_utf8(pushed().body).unwrap().replace("1763454600", &(1_763_454_600 + n).to_string());
        house.deliver(&path(), &Sent { body: body.into(), ..pushed() }).await;
        house.quiet().await;
        assert!(n < 2_000, "tail prints nothing");
    }
    let printed = told.join().unwrap();
    tail.kill().unwrap();
    tail.wait().unwrap();
    assert!(printed.contains("hub"), "{printed}");
    check_masked("tail", &printed);
    check_masked("/api/live", &streamed(live, "hub").await);
    let body = String::from_utf8(pushed().body).unwrap();
    for asked in [
        serde_json::json!({ "raw": format!("POST {} HTTP/1.1\r\ncontent-type: application/json\r\n\r\n{body}", path()) }),
        serde_json::json!({ "source": "hub", "body": body }),
    ] {
        let answer = client
            .post(house.admin_url("/api/explain"))
            .header("content-type", "application/json")
            .body(asked.to_string())
            .send()
            .await
            .unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status == 200 && text.contains("\"hub\""), "{text}");
        check_masked("/api/explain", &text);
    }
}
