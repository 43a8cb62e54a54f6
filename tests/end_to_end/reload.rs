//! The config is read again while the node runs: on SIGHUP, by `hookonce reload`, when the file has changed.

use super::receiver::Receiver;
use super::support::{Answer, House, SECRET, Sent, until};
use super::{IN, number, numbers, touch};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Reloads under load: everyday, and with `HOOKONCE_FULL`.
const RELOADS: (usize, usize) = (40, 500);

async fn reload(house: &House) -> Answer {
    house.ask("POST", "/api/reload").await
}

/// `hookonce reload` of this node.
fn command(house: &House) -> Output {
    house.command(&["reload", "--admin", &house.admin_url("")]).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output.status.code(), out + &err)
}

/// A config that sends even and odd numbers to these URLs, and differs from the one before in everything else.
fn parity(round: usize, even: &str, odd: &str) -> String {
    let of = |name: &str, when: &str, url: &str| {
        let (at_once, timeout) = (1 + round % 7, 5 + round % 3);
        format!(
            "[[source.numbers.route]]\nname = \"{name}\"\nwhen = '{when}'\nat_once = {at_once}\n\
             forward = {{ url = \"{url}\", timeout = \"{timeout}s\" }}\n"
        )
    };
    let mut routes = [of("even", "even == true", even), of("odd", "even == false", odd)];
    routes.rotate_left(round % 2);
    let more =
        if round.is_multiple_of(3) { "[source.more]\nverify = \"none\"\ndelivery = \"header.x-id\"\n" } else { "" };
    format!(
        "[source.numbers]\npath = \"{IN}\"\nverify = {{ scheme = \"github\", secret = {{ env = \"SECRET\" }} }}\n\
         [source.numbers.fields]\nn = \"body.n\"\neven = \"body.even\"\nround{} = {{ at = \"body.x\", default = \"-\" }}\n{}{more}",
        round % 2,
        routes.concat()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_reloads_refuse_drop_and_misroute_nothing() {
    let reloads = if std::env::var_os("HOOKONCE_FULL").is_some() { RELOADS.1 } else { RELOADS.0 };
    let [even, odd] = [Receiver::open(&[(200, "")]).await, Receiver::open(&[(200, "")]).await];
    let [to_even, to_odd] = [format!("{}/even", even.url), format!("{}/odd", odd.url)];
    let house = House::new(&parity(1, &to_even, &to_odd));
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = async |_| {
        while !over.load(Ordering::SeqCst) {
            let n = sent.fetch_add(1, Ordering::SeqCst);
            let delivery = Sent::github("push", &n.to_string(), &format!("{{\"n\":{n},\"even\":{}}}", n % 2 == 0));
            let answer = house.deliver(IN, &delivery).await;
            assert_eq!(answer.status, 202, "{n}: {answer:?}\n{}", house.log());
        }
    };
    let reloading = async {
        for round in 0..reloads {
            house.configure(&parity(round, &to_even, &to_odd));
            if round % 10 == 9 {
                house.signal(Signal::HUP);
                let done = |house: &House| house.log().matches(" INFO reloaded ").count() == round + 1;
                until("the reload", || done(&house)).await;
            } else {
                let answer = reload(&house).await;
                let sources = 1 + usize::from(round.is_multiple_of(3));
                assert_eq!((answer.status, &answer.json()["sources"]), (200, &sources.into()), "{answer:?}");
            }
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(futures_util::future::join_all((0..4).map(load)), reloading);
    house.quiet().await;
    let total = sent.load(Ordering::SeqCst);
    assert!(total > reloads as u64, "hardly any load: {total}");
    let seen = |receiver: &Receiver| {
        let mut seen = BTreeMap::new();
        for call in receiver.calls() {
            let body = call.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
            *seen.entry(body).or_insert(0) += 1;
        }
        seen
    };
    let expected = |parity: u64| -> BTreeMap<String, i32> {
        let own = (0..total).filter(|n| n % 2 == parity);
        own.map(|n| (format!("{{\"n\":{n},\"even\":{}}}", parity == 0), 1)).collect()
    };
    assert_eq!((seen(&even), seen(&odd)), (expected(0), expected(1)));
    assert_eq!(house.sql("select count(*) from events where state = 'done' and attempt = 1"), [total.to_string()]);
    // Counters live on.
    let total = format!("hookonce_deliveries_total{{source=\"numbers\",verdict=\"accepted\"}} {total}");
    house.counted(&[&total]).await;
}

#[tokio::test]
async fn a_config_with_errors_changes_nothing_and_the_answer_has_its_place() {
    let good = numbers("", "run = { steps = [\"echo good >> runs\"] }");
    let mut house = House::new(&good);
    house.configure(&good.replace("route]]", "route]]\npriority = 1"));
    let (line, text) = (11, std::fs::read_to_string(house.path("hookonce.toml")).unwrap());
    let line = text.lines().position(|line| line.starts_with("priority")).map_or(line, |at| at + 1);
    let answer = reload(&house).await;
    assert_eq!((answer.status, &answer.json()["reason"]), (422, &"config".into()), "{answer:?}");
    assert_eq!(answer.json()["problems"][0]["line"], line);
    let (code, told) = said(&command(&house));
    assert_eq!(code, Some(1), "{told}");
    for part in ["priority", &format!("hookonce.toml:{line}:"), "the config in use stays"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    house.signal(Signal::HUP);
    let log = || house.log();
    until("the log lines", || log().matches(" ERROR reload ").count() == 3).await;
    assert!(log().contains("by=signal") && log().contains(&format!("hookonce.toml:{line}:")), "{}", log());
    // Not TOML, and gone.
    std::fs::write(house.path("hookonce.toml"), "[source").unwrap();
    assert_eq!(reload(&house).await.status, 422);
    std::fs::remove_file(house.path("hookonce.toml")).unwrap();
    assert_eq!(reload(&house).await.status, 422);
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 202);
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["good"]);
    house.configure(&good.replace("good", "better"));
    let (code, told) = said(&command(&house));
    assert_eq!((code, &*told), (Some(0), "reloaded: 1 source, 1 route\n"));
    house.deliver(IN, &number("b", 2)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["good", "better"]);
    assert!(house.stop().success());
}

#[tokio::test]
async fn what_is_read_only_at_the_start_refuses_the_whole_reload_and_is_named() {
    let good = numbers("", "run = { steps = [\"echo good >> runs\"] }");
    let house = House::new(&good);
    let other = good.replace("good", "other");
    house.configure(&format!("listen = \"127.0.0.1:1\"\nstore = \"sqlite:other.db\"\n{other}"));
    let answer = reload(&house).await;
    assert_eq!((answer.status, &answer.json()["reason"]), (409, &"needs_restart".into()), "{answer:?}");
    assert_eq!(answer.json()["keys"], serde_json::json!(["listen", "store"]));
    let (code, told) = said(&command(&house));
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("`listen` and `store` need a restart"), "{told}");
    house.deliver(IN, &number("a", 1)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["good"]);
    assert!(!house.path("other.db").exists());
}

const WAITS: &str = "until test -e go; do sleep 0.01; done";

#[tokio::test]
async fn a_hangup_in_the_middle_of_a_deploy_ends_nothing_and_the_next_one_runs_as_configured_now() {
    let route = |word: &str, at_once: usize| {
        let step = format!("echo begin {word} >> runs; {WAITS}; echo end {word} >> runs");
        numbers("", &format!("at_once = {at_once}\nrun = {{ steps = [\"{step}\"] }}"))
    };
    let mut house = House::new(&route("first", 2));
    for n in 0..2 {
        house.deliver(IN, &number(&n.to_string(), n)).await;
    }
    until("commands that run", || house.lines("runs").len() == 2).await;
    house.configure(&route("second", 1));
    house.signal(Signal::HUP);
    until("the reload", || house.log().contains(" INFO reloaded ")).await;
    for n in 2..4 {
        assert_eq!(house.deliver(IN, &number(&n.to_string(), n)).await.status, 202);
    }
    // Both attempts of the former config count: one at a time means that none begins now.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((house.lines("runs").len(), house.has_ended()), (2, false));
    touch(&house, "go");
    house.quiet().await;
    let runs = house.lines("runs");
    let (first, second): (Vec<_>, Vec<_>) = runs.iter().partition(|line| line.ends_with("first"));
    assert_eq!(first, ["begin first", "begin first", "end first", "end first"], "as they began");
    assert_eq!(second, ["begin second", "end second", "begin second", "end second"], "one at a time");
    assert_eq!(house.sql("select distinct attempt from events"), ["1"]);
    assert!(house.stop().success());
}

#[tokio::test]
async fn an_event_whose_route_is_removed_while_it_runs_ends_as_it_began_and_others_wait_for_the_route() {
    let step = format!("echo begin >> runs; {WAITS}; echo end >> runs");
    let retry = "retry = { attempts = 3, first = \"1s\", longest = \"1s\" }";
    let with = numbers("", &format!("at_once = 1\n{retry}\nrun = {{ steps = [\"{step}\"] }}"));
    let without = with.replace("name = \"act\"", "name = \"other\"").replace("echo ", "echo other ");
    let house = House::new(&with);
    house.deliver(IN, &number("a", 1)).await;
    until("the command", || house.lines("runs") == ["begin"]).await;
    house.deliver(IN, &number("b", 2)).await;
    house.configure(&without);
    assert_eq!(reload(&house).await.status, 200);
    touch(&house, "go");
    until("the first event's end", || house.count("done") == 1).await;
    assert_eq!(house.lines("runs"), ["begin", "end"]);
    assert_eq!(house.sql("select route || ' ' || state from events where delivery_id = 'a'"), ["act done"]);
    until("the log line", || house.log().contains("route gone: act")).await;
    house.deliver(IN, &number("c", 3)).await;
    until("the other route's event", || house.count("done") == 2).await;
    assert_eq!(house.lines("runs"), ["begin", "end", "other begin", "other end"]);
    house.configure(&with);
    assert_eq!(reload(&house).await.status, 200);
    house.quiet().await;
    assert_eq!(house.lines("runs")[4..], ["begin", "end"]);
    assert_eq!(house.sql("select state from events where delivery_id = 'b'"), ["done"]);
}

#[tokio::test]
async fn secrets_are_read_again_with_the_config_or_not_at_all() {
    let config = numbers("", "").replace("env = \"SECRET\"", "file = \"secret\"");
    let house = House::empty(&config);
    let secret = |text: &str| std::fs::write(house.path("secret"), text).unwrap();
    secret("an older secret of the sender");
    let mut house = house;
    house.start();
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 401);
    std::fs::write(house.path("secret"), SECRET).unwrap();
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 401, "not before the reload");
    house.configure(&format!("{config}\nunknown = 1\n"));
    assert_eq!(reload(&house).await.status, 422);
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 401, "all or nothing");
    house.configure(&config);
    assert_eq!(reload(&house).await.status, 200);
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 202);
    std::fs::remove_file(house.path("secret")).unwrap();
    let answer = reload(&house).await;
    assert_eq!(answer.status, 422);
    assert!(answer.json()["why"].as_str().unwrap().contains("secret"), "{answer:?}");
    assert_eq!(house.deliver(IN, &number("b", 2)).await.status, 202, "the last one is known");
}

#[tokio::test]
async fn what_is_done_with_a_removed_token_ends_and_the_others_go_on() {
    let tokens = |names: &[&str]| {
        let one = |name: &&str| format!("{{ token = {{ file = \"{name}\" }}, may = \"all\" }}");
        let tokens = names.iter().map(one).collect::<Vec<_>>().join(", ");
        format!("[admin]\nlisten = \"127.0.0.1:0\"\ntokens = [{tokens}]\n{}", numbers("", ""))
    };
    let mut house = House::empty(&tokens(&["kept", "removed"]));
    for name in ["kept", "removed"] {
        std::fs::write(house.path(name), format!("a token that is {name}, long enough to be one")).unwrap();
    }
    house.start();
    let client = reqwest::Client::new();
    let token = |name: &str| format!("a token that is {name}, long enough to be one");
    let login = async |name: &str| {
        let login = client.post(house.admin_url("/login")).header("accept", "application/json");
        let body = serde_json::json!({ "token": token(name) }).to_string();
        let login = login.header("content-type", "application/json").body(body).send().await.unwrap();
        let cookie: &str = login.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    };
    let [kept, removed] = [login("kept").await, login("removed").await];
    let asked = async |header: (&str, &str)| {
        let asked = client.get(house.admin_url("/api/events")).header(header.0, header.1).send().await;
        asked.unwrap().status().as_u16()
    };
    let stream =
        async |cookie: &str| client.get(house.admin_url("/api/live")).header("cookie", cookie).send().await.unwrap();
    let [mut going_on, mut ended] = [stream(&kept).await, stream(&removed).await];
    assert_eq!([asked(("cookie", &kept)).await, asked(("cookie", &removed)).await], [200, 200]);
    house.configure(&tokens(&["kept"]));
    let own = format!("Bearer {}", token("removed"));
    let answer = client.post(house.admin_url("/api/reload")).header("authorization", &own).send().await.unwrap();
    assert_eq!(answer.status(), 200, "it is answered, although it has removed its own token");
    assert_eq!([asked(("cookie", &kept)).await, asked(("cookie", &removed)).await], [200, 401]);
    assert_eq!(asked(("authorization", &own)).await, 401);
    while let Ok(Some(_)) = ended.chunk().await {}
    house.deliver(IN, &number("a", 1)).await;
    let mut heard = String::new();
    while !heard.contains("event: state") {
        heard += &String::from_utf8_lossy(&going_on.chunk().await.unwrap().expect("the stream goes on"));
    }
}

#[tokio::test]
async fn a_changed_file_is_loaded_if_the_config_says_so_and_otherwise_reported() {
    let config = |mode: &str, word: &str| {
        format!("reload = \"{mode}\"\n{}", numbers("", &format!("run = {{ steps = [\"echo {word} >> runs\"] }}")))
    };
    let house = House::new(&config("manual", "one"));
    house.configure(&config("auto", "two"));
    until("the warning", || house.log().contains(" changed=")).await;
    assert!(!house.log().contains(" INFO reloaded "), "{}", house.log());
    assert_eq!(reload(&house).await.status, 200);
    // As editors, git and Kubernetes replace a file.
    house.configure(&config("auto", "three"));
    std::fs::rename(house.path("hookonce.toml"), house.path("new")).unwrap();
    std::fs::rename(house.path("new"), house.path("hookonce.toml")).unwrap();
    until("the reload", || house.log().contains("by=file")).await;
    house.deliver(IN, &number("a", 1)).await;
    house.quiet().await;
    house.configure("reload = \"auto\"\n[source.x]\n");
    until("the refusal", || house.log().contains(" ERROR reload ")).await;
    house.deliver(IN, &number("b", 2)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["three", "three"]);
}

#[tokio::test]
async fn a_receiver_that_is_left_alone_is_left_alone_after_a_reload_too() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let retry = "retry = { attempts = 100, first = \"1ms\", longest = \"10ms\" }";
    let route = |timeout: u8| {
        let forward = format!("forward = {{ url = \"http://{closed}/\", timeout = \"{timeout}s\" }}");
        numbers("", &format!("{retry}\n{forward}"))
    };
    let house = House::new(&route(1));
    for n in 0..10 {
        house.deliver(IN, &number(&n.to_string(), n)).await;
    }
    let open = "hookonce_receivers_circuit_open{source=\"numbers\",route=\"act\"} 1";
    house.counted(&[open]).await;
    house.configure(&route(2));
    assert_eq!(reload(&house).await.status, 200);
    assert!(house.metrics().await.lines().any(|line| line == open), "{}", house.metrics().await);
}
