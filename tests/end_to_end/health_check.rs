//! `health_check` and `on_unhealthy`: what happens after a deploy, healthy or not.

use crate::support::{Answer, House, Sent, until};
use crate::{GHCR, ghcr, touch};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Deploys a version: notes it, whether it is a roll-back, and its body.
const DEPLOY: &str = "echo $HOOKONCE_FIELD_VERSION_ID rollback=$HOOKONCE_ROLLBACK >> runs; \
    echo $HOOKONCE_FIELD_VERSION_ID > live; cat > body-$HOOKONCE_FIELD_VERSION_ID-$HOOKONCE_ROLLBACK";
/// What is healthy says so within this time, also on a busy machine.
const WITHIN: &str = "5s";
/// Whether the live version is healthy: if `bad` does not contain it. Waits for the file `go`, if there is a file `wait`.
const CHECK: &str = "echo \"$HOOKONCE_FIELD_VERSION_ID $1\" >> checks\ncat >> checked-body\n\
    test -e wait && ! test -e go && exit 3\n! grep -qxf live bad\n";

/// A node that deploys and checks so, with these keys.
fn house(on_unhealthy: &str, within: &str) -> House {
    let check = format!("{{ run = [\"sh\", \"check\", \"{{tag}}\"], within = \"{within}\", every = \"100ms\" }}");
    let keys = format!(
        "run = {{ steps = ['''{DEPLOY}'''] }}\nhealth_check = {check}\non_unhealthy = \"{on_unhealthy}\"\nin_doubt = \"hold\"\nretry = {{ first = \"10ms\" }}"
    );
    let mut house = House::empty(&ghcr(&keys));
    std::fs::write(house.path("check"), CHECK).unwrap();
    std::fs::write(house.path("bad"), "none\n").unwrap();
    house.start();
    house
}

/// Nothing is healthy from now on: what is checked need not have the time to say so.
fn expect_nothing_healthy(house: &mut House) {
    assert!(house.stop().success());
    let config = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
    let within = |time: &str| format!("within = \"{time}\"");
    std::fs::write(house.path("hookonce.toml"), config.replace(&within(WITHIN), &within("500ms"))).unwrap();
    house.start();
}

/// A push of this version.
fn push(version: u64) -> Sent {
    Sent::package(&format!("push-{version}"), "latest", version, u32::try_from(version).unwrap())
}

/// Delivers a push; returns its event.
async fn pushed(house: &House, version: u64) -> String {
    let answer = house.deliver(GHCR, &push(version)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.event()
}

/// Makes these versions unhealthy.
fn make_bad(house: &House, versions: &[u64]) {
    let lines: Vec<_> = versions.iter().map(|version| format!("{version}\n")).collect();
    std::fs::write(house.path("bad"), lines.concat()).unwrap();
}

async fn shown(house: &House, event: &str) -> Json {
    house.ask("GET", &format!("/api/events/{event}")).await.json()
}

/// The events that the register has as current, deployed and good.
fn register(house: &House) -> [Json; 3] {
    let text = |hex: &str| {
        let bytes = hex::decode(hex).unwrap();
        uuid::Uuid::from_slice(&bytes).unwrap().to_string()
    };
    let current = text(&house.sql("select event from registers")[0]);
    let note: Json = serde_json::from_str(&house.sql("select note from registers")[0]).unwrap();
    [current.into(), note["deployed"]["event"].clone(), note["good"]["event"].clone()]
}

fn runs(expected: &[&str]) -> Vec<String> {
    expected.iter().map(|run| format!("{} rollback={}", &run[..1], &run[1..])).collect()
}

#[tokio::test]
async fn what_is_healthy_becomes_the_last_good_one() {
    let house = house("rollback", "20s");
    touch(&house, "wait");
    let event = pushed(&house, 1).await;
    until("a check", || house.lines("checks").len() >= 2).await;
    let why = shown(&house, &event).await["why"].as_str().unwrap().to_owned();
    assert!(
        why.starts_with("running: attempt 1 has acted, and node ") && why.contains(" checks the health of"),
        "{why}"
    );
    assert_eq!(register(&house), [json!(event), json!(event), Json::Null], "it is deployed, and not yet good");
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(register(&house), [json!(event), json!(event), json!(event)]);
    assert_eq!(house.lines("runs"), runs(&["1"]));
    assert_eq!(house.lines("checks")[0], "1 latest", "a check has fields as variables and as arguments");
    assert_eq!(house.lines("checked-body"), [""; 0], "and no standard input");
    let story = shown(&house, &event).await;
    let output = story["attempts"][0]["output"].as_str().unwrap();
    assert!(
        output.starts_with("health check 1: its command exited with 3: [\"sh\", \"check\", \"{tag}\"]\n"),
        "{output}"
    );
    assert!(output.ends_with(": healthy\n"), "{output}");
    until("its log", || house.log().contains(&format!("INFO deployed  event={} source=ghcr\n", &event[28..]))).await;
}

#[tokio::test]
async fn what_is_not_healthy_is_followed_by_the_last_good_one() {
    let house = house("rollback", WITHIN);
    make_bad(&house, &[2]);
    let good = pushed(&house, 1).await;
    house.quiet().await;
    let bad = pushed(&house, 2).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), runs(&["1", "2", "11"]));
    assert_eq!(std::fs::read(house.path("body-1-1")).unwrap(), push(1).body, "the last good event's body is its input");
    let story = shown(&house, &bad).await;
    assert_eq!((&story["state"], &story["cause"]), (&json!("dead"), &json!("unhealthy")), "{story}");
    let why = story["why"].as_str().unwrap();
    assert!(why.starts_with("dead: what it deployed is not healthy: not healthy within 5s, checked "), "{why}");
    assert!(story["attempts"][0]["output"].as_str().unwrap().contains("its command exited with 1"), "{story}");

    let back = house.sql("select lower(hex(id)) from events where origin is not null").pop().unwrap();
    let back = uuid::Uuid::parse_str(&back).unwrap().to_string();
    let story = shown(&house, &back).await;
    assert_eq!(story["rollback"], json!({ "from": bad, "to": good }));
    assert_eq!((&story["state"], &story["how"], &story["delivery"]), (&json!("done"), &json!("acted"), &Json::Null));
    assert!(story["attempts"][0]["output"].as_str().unwrap().ends_with("health check 1: healthy\n"), "{story}");
    assert_eq!(register(&house), [json!(bad), json!(bad), json!(good)], "a roll-back touches no register");
    let page = |args: &[&str]| String::from_utf8(house.command(args).output().unwrap().stdout).unwrap();
    let told = page(&["show", &back]);
    assert!(
        told.contains(&format!("rolls back  from {bad}, which is not healthy, to {good}, the last good one")),
        "{told}"
    );
    assert!(page(&["list", "--json"]).contains(&format!("\"from\": \"{bad}\"")));
    let by = json!({ "event": back, "state": "done", "how": "acted" });
    assert_eq!(shown(&house, &bad).await["rolled_back_by"], by);
    assert_eq!(shown(&house, &good).await["rolled_back_by"], Json::Null);
    let told = page(&["show", &bad]);
    assert!(told.contains(&format!("roll-back   rolled back by {} (done)\n", &back[28..])), "{told}");
    let told = page(&["registers", "show", &bad]);
    let deployed = told.lines().find(|line| line.starts_with("deployed ")).unwrap();
    assert!(deployed.ends_with(&format!(", rolled back by {}", &back[28..])), "{told}");
    let registered = house.ask("GET", &format!("/api/registers/{bad}")).await.json();
    assert_eq!(
        ["current", "deployed", "good"].map(|one| registered[one].get("rolled_back_by")),
        [None, Some(&json!(back)), None]
    );

    let why = format!(
        "event {back} was not made by a delivery, so there is none to explain: \
         it is a roll-back from {bad}, which is not healthy, to {good}, the last good one; it is done"
    );
    let explained = house.command(&["explain", &back]).output().unwrap();
    let err = String::from_utf8(explained.stderr).unwrap();
    assert_eq!((explained.status.code(), err.starts_with(&format!("error: {why}"))), (Some(2), true), "{err}");
    let line = format!("WARN rollback  event={} bad={} good={}\n", &back[28..], &bad[28..], &good[28..]);
    until("the log to name both", || house.log().contains(&line)).await;

    // A person can have the last good one deployed once more.
    assert_eq!(house.ask("POST", &format!("/api/events/{back}/replay")).await.status, 200);
    house.quiet().await;
    assert_eq!(house.lines("runs"), runs(&["1", "2", "11", "11"]));
    assert_eq!(register(&house), [json!(bad), json!(bad), json!(good)]);

    // Its siblings and its repeats stay duplicates, and do not deploy it again.
    let again: [Answer; 2] =
        [house.deliver(GHCR, &push(2)).await, house.deliver(GHCR, &Sent::package("sibling", "latest", 2, 3)).await];
    assert_eq!(
        again.each_ref().map(|answer| (answer.status, answer.event())),
        [(200, bad.clone()), (200, bad.clone())]
    );
    assert_eq!((house.lines("runs").len(), house.sql("select count(*) from events")), (4, vec!["3".to_owned()]));
    // A person can replay it.
    make_bad(&house, &[]);
    assert_eq!(house.ask("POST", &format!("/api/events/{bad}/replay")).await.status, 200);
    house.quiet().await;
    assert_eq!(register(&house), [json!(bad), json!(bad), json!(bad)]);
    assert_eq!(shown(&house, &bad).await["rolled_back_by"], Json::Null, "of this life there is no roll-back");
}

#[tokio::test]
async fn with_hold_or_without_a_last_good_one_nothing_follows() {
    for (on_unhealthy, first_is_good) in [("hold", true), ("rollback", false)] {
        let mut house = house(on_unhealthy, WITHIN);
        make_bad(&house, if first_is_good { &[2] } else { &[1, 2] });
        let mut expected = Vec::new();
        let mut last = String::new();
        for version in 1..=2 {
            if first_is_good == (version == 2) {
                expect_nothing_healthy(&mut house);
            }
            last = pushed(&house, version).await;
            house.quiet().await;
            expected.push(version.to_string());
        }
        let told = String::from_utf8(house.command(&["show", &last]).output().unwrap().stdout).unwrap();
        assert!(told.contains("roll-back   not rolled back\n"), "{told}");
        assert_eq!(shown(&house, &last).await["rolled_back_by"], Json::Null);
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        assert_eq!(house.lines("runs"), runs(&expected));
        assert_eq!(house.count("dead"), if first_is_good { 1 } else { 2 });
        let is_logged = || house.log().contains("why=\"not rolled back: no other event of its subject was good");
        if on_unhealthy == "rollback" {
            until("the reason in the log", is_logged).await;
        }
        assert_eq!(is_logged(), on_unhealthy == "rollback", "{}", house.log());
    }
}

#[tokio::test]
async fn a_newer_push_that_arrives_during_the_check_comes_next_instead_of_a_roll_back() {
    let house = house("rollback", WITHIN);
    make_bad(&house, &[2]);
    pushed(&house, 1).await;
    house.quiet().await;
    let bad = pushed(&house, 2).await;
    until("a check of the bad one", || house.lines("checks").iter().any(|check| check.starts_with('2'))).await;
    let newer = pushed(&house, 3).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), runs(&["1", "2", "3"]));
    assert_eq!(shown(&house, &bad).await["cause"], "unhealthy");
    assert_eq!(register(&house), [json!(newer), json!(newer), json!(newer)]);
}

#[tokio::test]
async fn a_roll_back_that_is_not_healthy_is_not_followed_by_another() {
    let mut house = house("rollback", WITHIN);
    let good = pushed(&house, 1).await;
    house.quiet().await;
    make_bad(&house, &[1, 2]);
    expect_nothing_healthy(&mut house);
    let bad = pushed(&house, 2).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), runs(&["1", "2", "11"]));
    assert_eq!(house.sql("select cause from events order by cause"), ["acted", "unhealthy", "unhealthy"]);
    assert_eq!(register(&house), [json!(bad), json!(bad), json!(good)]);
}

#[tokio::test]
async fn after_a_crash_or_a_stop_only_the_check_is_repeated() {
    let mut house = house("rollback", "50s");
    touch(&house, "wait");
    let event = pushed(&house, 1).await;
    for crash in [true, false, true] {
        // One more may be of the node before.
        let before = house.lines("checks").len();
        until("a check", || house.lines("checks").len() > before + 1).await;
        if crash {
            house.kill();
        } else {
            let begun = Instant::now();
            assert!(house.stop().success());
            assert!(begun.elapsed() < Duration::from_secs(15), "it does not wait: {:?}", begun.elapsed());
            assert_eq!(house.sql("select state from events"), ["waiting"]);
            let page = house.command(&["show", &event]).output().unwrap().stdout;
            let page = String::from_utf8(page).unwrap();
            assert!(page.contains("waiting: it has acted; the health of what it deployed is checked again"), "{page}");
        }
        house.start();
    }
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(house.lines("runs"), runs(&["1"]));
    let story = shown(&house, &event).await;
    assert_eq!((&story["state"], &story["doubts"]), (&json!("done"), &json!(2)), "{story}");
    assert_eq!(register(&house), [json!(event), json!(event), json!(event)]);
}

#[tokio::test]
async fn an_operator_can_cancel_a_check() {
    let house = house("rollback", "50s");
    touch(&house, "wait");
    let event = pushed(&house, 1).await;
    until("a check", || !house.lines("checks").is_empty()).await;
    let begun = Instant::now();
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/cancel")).await.status, 200);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(shown(&house, &event).await["cause"], "cancelled");
    assert_eq!(register(&house)[1..], [json!(event), Json::Null]);
}

#[tokio::test]
async fn a_check_that_outlives_its_lease_renews_it() {
    let mut house = house("hold", "50s");
    let config = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
    house.signal(Signal::TERM);
    house.wait();
    std::fs::write(house.path("hookonce.toml"), config.replace("in_doubt =", "lease = \"6s\"\nin_doubt =")).unwrap();
    house.start();
    touch(&house, "wait");
    pushed(&house, 1).await;
    until("a check", || !house.lines("checks").is_empty()).await;
    let begun = Instant::now();
    until("its lease to be over", || begun.elapsed() > Duration::from_millis(6200)).await;
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(house.lines("runs"), runs(&["1"]));
    assert_eq!(house.sql("select attempt || ' ' || doubts || ' ' || state from events"), ["1 0 done"]);
}

#[tokio::test]
async fn a_receiver_is_checked_by_its_url_and_told_that_it_is_rolled_back() {
    let (seen, live) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0_u64)));
    let (noted, set) = (seen.clone(), live.clone());
    let deploy = move |headers: HeaderMap, axum::Json(body): axum::Json<Json>| {
        let version = body["registry_package"]["package_version"]["id"].as_u64().unwrap();
        let rollback = headers.get("hookonce-rollback").map(|value| value.to_str().unwrap().to_owned());
        noted.lock().unwrap().push((version, rollback));
        *set.lock().unwrap() = version;
        std::future::ready("")
    };
    let health = move || {
        let bad = *live.lock().unwrap() == 2;
        std::future::ready(if bad { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT })
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(deploy)).route("/latest/healthz", get(health));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let check = format!("allow = [\"127.0.0.1\"], within = \"{WITHIN}\", every = \"100ms\"");
    let house = House::new(&ghcr(&format!(
        "forward = {{ url = \"{url}/\" }}\nhealth_check = {{ url = \"{url}/{{tag}}/healthz\", {check} }}\non_unhealthy = \"rollback\""
    )));
    for version in 1..=2 {
        pushed(&house, version).await;
        house.quiet().await;
    }
    assert_eq!(*seen.lock().unwrap(), [(1, None), (2, None), (1, Some("1".to_owned()))]);
    let why = house.sql("select why from attempts where outcome = 'unhealthy'").pop().unwrap();
    assert!(why.ends_with(": its URL responded with 503"), "{why}");
}
