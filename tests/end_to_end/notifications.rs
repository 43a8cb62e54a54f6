//! `notify`: people are told how events ended, by messages that have retries of their own and hold nothing up.

use crate::receiver::Receiver;
use crate::support::{House, Sent, until};
use crate::{GHCR, IN, ghcr, number, numbers, touch};
use serde_json::{Value as Json, json};
use std::os::unix::fs::PermissionsExt;

/// The body of a request that a receiver noted, which is all in lower case.
fn body(call: &str) -> &str {
    call.split_once("\r\n\r\n").unwrap().1
}

/// The header of such a request.
fn header<'c>(call: &'c str, name: &str) -> Option<&'c str> {
    call.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

/// The events that this target is told about, with their states.
fn told(house: &House, route: &str) -> Vec<String> {
    house.sql(&format!("select state from events where route = '{route}' order by turn"))
}

async fn called(receiver: &Receiver, times: usize) -> Vec<String> {
    until("the target to be called", || receiver.calls().len() >= times).await;
    receiver.calls()
}

const COMMIT: &str = "a9119552e8f90bb950ac5c786bd517d49c1a1eda";

#[tokio::test]
async fn each_ready_made_message_has_its_own_form() {
    let [ntfy, slack, discord, status] = [
        Receiver::open(&[(200, "ok")]).await,
        Receiver::open(&[(200, "ok")]).await,
        Receiver::open(&[(204, "")]).await,
        Receiver::open(&[(201, "{}")]).await,
    ];
    let deployment = Receiver::open(&[(201, "{\"id\":42}"), (201, "{}")]).await;
    let api = |receiver: &Receiver| receiver.url.trim_end_matches("/receive").to_owned();
    let mut house = House::empty("");
    std::fs::write(house.path("slack-url"), &slack.url).unwrap();
    std::fs::write(house.path("discord-url"), format!("{}/hook", discord.url)).unwrap();
    std::fs::write(house.path("token"), "a-token-of-sixteen-bytes").unwrap();
    std::fs::write(house.path("sendmail"), "#!/bin/sh\necho \"$@\" > arguments; cat > mail.part; mv mail.part mail\n")
        .unwrap();
    std::fs::set_permissions(house.path("sendmail"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let route = format!(
        r#"
run = {{ steps = ["exit 7"] }}
notify = [
    {{ as = "ntfy", url = "{}", token = {{ file = "token" }} }},
    {{ as = "slack", url = {{ file = "slack-url" }} }},
    {{ as = "discord", url = {{ file = "discord-url" }} }},
    {{ as = "sendmail", to = ["ops@example.org"], from = "hookonce@example.org", sendmail = "{}" }},
    {{ as = "github-status", token = {{ file = "token" }}, api = "{}" }},
    {{ as = "github-deployment", token = {{ file = "token" }}, api = "{}", environment = "staging" }},
]
"#,
        ntfy.url,
        house.path("sendmail").display(),
        api(&status),
        api(&deployment),
    );
    house.configure(&ghcr(&route));
    house.start();
    let sent = Sent::package("one", "latest", 7, 1);
    let event = house.deliver(GHCR, &sent).await.event();
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from events where state = 'dead'"), ["1"], "only the deploy failed");

    let fields = format!(
        "package=jamiec_ts, tag=latest, version_id=7, sha=sha256:{:064x}, updated_at=2026-02-07t16:20:01z, \
         namespace=treejamie, repository=treejamie/jamiec_ts, commit={COMMIT}",
        7
    );
    let title = "ghcr/deploy: dead (failed)";
    let why = "it failed, and has no attempts left: step 1 of block 1 exited with 7: exit 7";
    let next = format!("see: hookonce show {event}; run it again: hookonce replay {event}");
    let text = format!("{fields}\n{why}\n{next}");

    let call = &ntfy.calls()[0];
    assert_eq!(body(call), text);
    assert_eq!(
        ["title", "tags", "priority"].map(|name| header(call, name)),
        [Some(title), Some("rotating_light"), Some("high")]
    );
    assert_eq!(header(call, "authorization"), Some("bearer a-token-of-sixteen-bytes"));

    let call = &slack.calls()[0];
    let json: Json = serde_json::from_str(body(call)).unwrap();
    let expected =
        json!({ "text": format!("{title}\n{text}"), "mrkdwn": false, "unfurl_links": false, "unfurl_media": false });
    assert_eq!(json, expected);

    let json: Json = serde_json::from_str(body(&discord.calls()[0])).unwrap();
    assert_eq!(json["allowed_mentions"], json!({ "parse": [] }));
    let content = json["content"].as_str().unwrap();
    assert!(content.starts_with("ghcr/deploy: dead (failed)\npackage=jamiec\\_ts, tag=latest"), "{content}");

    assert_eq!(house.lines("arguments"), ["-t -i"]);
    let mail = house.lines("mail");
    let (head, text64) = mail.split_at(mail.iter().position(String::is_empty).unwrap());
    let id = house.sql("select lower(hex(id)) from events where route = 'notify:deploy/sendmail'").remove(0);
    assert_eq!(head[..3], ["From: hookonce@example.org", "To: ops@example.org", "Subject: ghcr/deploy: dead (failed)"]);
    assert_eq!(head[3].replace('-', ""), format!("MessageID: <{id}@hookonce>"));
    assert!(head.contains(&"Content-Transfer-Encoding: base64".to_owned()), "{head:?}");
    let decoded = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text64.concat()).unwrap();
    assert_eq!(String::from_utf8(decoded).unwrap().to_lowercase().replace("\r\n", "\n").trim_end(), text);

    let call = &status.calls()[0];
    assert!(call.starts_with(&format!("post /repos/treejamie/jamiec_ts/statuses/{COMMIT} ")), "{call}");
    let expected = json!({ "state": "failure", "context": "hookonce/deploy", "description": why });
    assert_eq!(serde_json::from_str::<Json>(body(call)).unwrap(), expected);
    assert_eq!(header(call, "authorization"), Some("bearer a-token-of-sixteen-bytes"));

    let calls = deployment.calls();
    assert!(calls[0].starts_with("post /repos/treejamie/jamiec_ts/deployments "), "{calls:?}");
    let json: Json = serde_json::from_str(body(&calls[0])).unwrap();
    assert_eq!(
        (&json["ref"], &json["environment"], &json["auto_merge"]),
        (&json!(COMMIT), &json!("staging"), &json!(false))
    );
    assert!(calls[1].starts_with("post /repos/treejamie/jamiec_ts/deployments/42/statuses "), "{calls:?}");
    assert_eq!(serde_json::from_str::<Json>(body(&calls[1])).unwrap()["state"], "failure");

    // The token and the webhooks are in no log, and in nothing that is shown.
    let shown = house.command(&["check"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap() + &house.log();
    for secret in ["a-token-of-sixteen-bytes", &*slack.url, &*discord.url] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("notifies   ntfy on dead, rollback"), "{shown}");
}

#[tokio::test]
async fn a_command_and_a_receiver_get_the_whole_description_and_both_events_name_each_other() {
    let receiver = Receiver::open(&[(200, "")]).await;
    let step = "echo $HOOKONCE_NOTIFY $HOOKONCE_EVENT $HOOKONCE_SOURCE/$HOOKONCE_ROUTE $HOOKONCE_STATE $HOOKONCE_CAUSE $HOOKONCE_FIELD_N $(cat) >> told";
    let keys = format!(
        "notify = [{{ on = [\"done\", \"dead\"], run = {{ steps = ['{step}'] }} }}, {{ on = [\"done\"], forward = {{ url = \"{}\" }} }}]",
        receiver.url
    );
    let house = House::new(&numbers(&keys, "run = { steps = [\"test $HOOKONCE_FIELD_N = 1\"] }"));
    let good = house.deliver(IN, &number("one", 1)).await.event();
    house.quiet().await;
    let bad = house.deliver(IN, &number("two", 2)).await.event();
    house.quiet().await;
    let lines = house.lines("told");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with(&format!("done {good} numbers/act done acted 1 {{")), "{lines:?}");
    assert!(lines[1].starts_with(&format!("dead {bad} numbers/act dead failed 2 {{")), "{lines:?}");
    let json: Json =
        serde_json::from_str(lines[1].split_once('{').map(|(_, rest)| format!("{{{rest}")).unwrap().as_str()).unwrap();
    assert_eq!((&json["event"], &json["fields"]["n"], &json["more"]), (&json!(bad), &json!(2), &json!(0)));
    let calls = receiver.calls();
    assert_eq!(calls.len(), 1, "it is told only about what is done");
    let json: Json = serde_json::from_str(body(&calls[0])).unwrap();
    assert_eq!((&json["notification"], &json["event"]), (&json!("done"), &json!(good)));

    let parent = house.ask("GET", &format!("/api/events/{good}")).await.json();
    let ids: Vec<_> =
        parent["notifications"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 2, "{parent}");
    for id in ids {
        let child = house.ask("GET", &format!("/api/events/{id}")).await.json();
        assert_eq!(child["notification"], json!({ "of": good, "on": "done" }), "{child}");
        let shown = String::from_utf8(house.command(&["show", &id]).output().unwrap().stdout).unwrap();
        assert!(shown.contains("tells of") && shown.contains(&good), "{shown}");
        let explained = house.command(&["explain", &id]).output().unwrap();
        let err = String::from_utf8(explained.stderr).unwrap();
        let why = format!(
            "event {id} was not made by a delivery, so there is none to explain: it is a notification about {good} (done); it is done"
        );
        assert_eq!((explained.status.code(), err.starts_with(&format!("error: {why}"))), (Some(2), true), "{err}");
    }
    let shown = String::from_utf8(house.command(&["show", &good]).output().unwrap().stdout).unwrap();
    assert!(shown.contains("told by"), "{shown}");
}

#[tokio::test]
async fn a_target_that_does_not_answer_delays_no_event_and_is_asked_again() {
    let silent = Receiver::new(&[(200, "")]).await;
    let flaky = Receiver::open(&[(503, ""), (503, ""), (200, "")]).await;
    let keys = format!(
        "notify = [{{ on = [\"done\"], as = \"ntfy\", name = \"silent\", url = \"{}\" }}, \
         {{ on = [\"done\"], as = \"ntfy\", url = \"{}\", retry = {{ first = \"1ms\", longest = \"1ms\" }} }}]",
        silent.url, flaky.url
    );
    let house = House::new(&numbers(&keys, "group = \"g\"\nrun = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }"));
    for n in 1..=3 {
        house.deliver(IN, &number(&n.to_string(), n)).await;
    }
    until("every event to run", || house.lines("runs").len() == 3).await;
    until("them to be done", || {
        house.sql("select count(*) from events where route = 'act' and state = 'done'") == ["3"]
    })
    .await;
    called(&flaky, 5).await;
    until("the flaky target to have them", || told(&house, "notify:ntfy") == ["done", "done", "done"]).await;
    assert!(told(&house, "notify:silent").iter().all(|state| state != "done"));
    assert_eq!(house.sql("select count(*) from slots"), ["0"], "a notification holds no slot");
    silent.let_go();
    house.quiet().await;
    assert_eq!(house.sql("select count(*) from events where state = 'done'"), ["9"]);
}

#[tokio::test]
async fn a_message_is_sent_by_the_next_node_if_the_first_is_killed_right_after_the_end() {
    let step = "until test -e go; do sleep 0.01; done; echo $HOOKONCE_EVENT >> told";
    let keys =
        format!("notify = {{ run = {{ steps = [\"{step}\"] }}, retry = {{ first = \"1ms\", longest = \"1ms\" }} }}");
    let mut house = House::new(&numbers(&keys, "run = { steps = [\"exit 1\"] }"));
    let event = house.deliver(IN, &number("one", 1)).await.event();
    until("its end", || house.sql("select count(*) from events where route = 'act' and state = 'dead'") == ["1"]).await;
    house.kill_with_commands().await;
    assert_eq!(told(&house, "notify:run").len(), 1, "it was written together with the end");
    touch(&house, "go");
    house.start();
    house.quiet().await;
    assert_eq!(told(&house, "notify:run"), ["done"]);
    assert_eq!(house.lines("told"), [event]);
}

#[tokio::test]
async fn of_thirty_deaths_twenty_are_told_and_one_message_counts_the_others() {
    let receiver = Receiver::open(&[(200, "")]).await;
    let keys = format!("notify = {{ as = \"ntfy\", url = \"{}\" }}", receiver.url);
    let mut house = House::new(&numbers(&keys, "run = { steps = [\"exit 1\"] }"));
    for n in 1..=30 {
        house.deliver(IN, &number(&n.to_string(), n)).await;
    }
    until("every event to end", || house.count("dead") == 30).await;
    until("twenty messages", || {
        house.sql("select count(*) from events where route = 'notify:ntfy' and state = 'done'") == ["20"]
    })
    .await;
    assert_eq!(receiver.calls().len(), 20);
    assert_eq!(
        house.sql("select aside from events where state = 'waiting'"),
        ["budget"],
        "one waits for the hour to end"
    );
    let list = house.command(&["list", "--route", "notify:ntfy", "--state", "waiting"]).output().unwrap();
    assert_eq!(String::from_utf8(list.stdout).unwrap().lines().count(), 1);

    // The hour is over.
    house.stop();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    assert_eq!(db.execute("update events set wake_at = 1 where aside = 'budget'", []).unwrap(), 1);
    drop(db);
    house.start();
    house.quiet().await;
    let calls = receiver.calls();
    assert_eq!((calls.len(), header(&calls[20], "title")), (21, Some("hookonce: 10 more notifications")));
    assert_eq!(body(&calls[20]), "at most 20 an hour are sent; the last hour had 10 more.\nsee: hookonce list");
}

#[tokio::test]
async fn the_nearest_level_says_who_is_told_and_an_empty_list_means_nobody() {
    let say = |name: &str| {
        format!(
            "{{ name = \"{name}\", on = [\"done\"], run = {{ steps = [\"echo {name} $HOOKONCE_SOURCE/$HOOKONCE_ROUTE >> told\"] }} }}"
        )
    };
    let source = |name: &str, keys: &str, routes: &str| {
        format!(
            "\n[source.{name}]\npath = \"/{name}\"\nverify = {{ scheme = \"github\", secret = {{ env = \"SECRET\" }} }}\nfields = {{ n = \"body.n\" }}\n{keys}\n{routes}"
        )
    };
    let route = |of: &str, name: &str, keys: &str| {
        format!(
            "[[source.{of}.route]]\nname = \"{name}\"\nwhen = 'n == {}'\nrun = {{ steps = [\"true\"] }}\n{keys}\n",
            if name == "one" { 1 } else { 2 }
        )
    };
    let config = format!(
        "notify = [{}]\n{}{}",
        say("top"),
        source("a", "", &(route("a", "one", "") + &route("a", "two", "notify = []"))),
        source(
            "b",
            &format!("notify = [{}]", say("source")),
            &(route("b", "one", "") + &route("b", "two", &format!("notify = [{}]", say("route"))))
        ),
    );
    let house = House::new(&config);
    for (path, n) in [("/a", 1), ("/a", 2), ("/b", 1), ("/b", 2)] {
        assert_eq!(house.deliver(path, &number(&format!("{path}{n}"), n)).await.status, 202);
    }
    house.quiet().await;
    let mut lines = house.lines("told");
    lines.sort();
    assert_eq!(lines, ["route b/two", "source b/one", "top a/one"]);
}

#[tokio::test]
async fn an_unhealthy_deploy_and_its_roll_back_are_told() {
    let keys = "run = { steps = [\"true\"] }\non_unhealthy = \"rollback\"\n\
        health_check = { run = [\"sh\", \"check\"], within = \"5s\", every = \"100ms\" }\n\
        notify = { run = { steps = [\"echo $HOOKONCE_NOTIFY $HOOKONCE_CAUSE $HOOKONCE_FIELD_VERSION_ID >> told\"] } }";
    let mut house = House::empty(&ghcr(keys));
    std::fs::write(house.path("check"), "test $HOOKONCE_FIELD_VERSION_ID != 2\n").unwrap();
    house.start();
    for version in 1..=2 {
        let second = u32::try_from(version).unwrap();
        house.deliver(GHCR, &Sent::package(&version.to_string(), "latest", version, second)).await;
        house.quiet().await;
    }
    let mut told = house.lines("told"); // two messages, which may overtake each other
    told.sort();
    assert_eq!(told, ["dead unhealthy 2", "rollback acted 1"]);
}

#[tokio::test]
async fn a_message_whose_target_was_removed_waits_for_it() {
    let silent = Receiver::open(&[(503, "")]).await;
    let notify = |keys: &str| format!("notify = {{ as = \"ntfy\", url = \"{}\"{keys} }}", silent.url);
    let action = "run = { steps = [\"exit 1\"] }";
    let mut house =
        House::new(&numbers(&notify(", retry = { attempts = 1000, first = \"1ms\" }, name = \"old\""), action));
    house.deliver(IN, &number("one", 1)).await;
    called(&silent, 1).await;
    house.stop();
    house.configure(&numbers(&notify(""), action));
    house.start();
    until("it to be suspended", || house.sql("select passed from events where route = 'notify:old'") == ["1"]).await;
    let id = house.sql("select lower(hex(substr(id, 13))) from events where route = 'notify:old'").remove(0);
    let shown = String::from_utf8(house.command(&["show", &id]).output().unwrap().stdout).unwrap();
    assert!(shown.contains("no route `notify:old` of source `numbers` is configured now"), "{shown}");
    until("a warning", || house.log().contains("1 event waits for the route `notify:old`")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_message_is_sent_to_each_target_and_its_answer_is_printed() {
    let [good, bad] = [Receiver::open(&[(200, "ok")]).await, Receiver::open(&[(403, "no")]).await];
    let keys = format!(
        "notify = [{{ as = \"ntfy\", url = \"{}\" }}, {{ name = \"other\", on = [\"done\"], as = \"ntfy\", url = \"{}\" }}, \
         {{ on = [\"rollback\"], run = {{ steps = [\"echo $HOOKONCE_FIELD_N > tested\"] }} }}]",
        good.url, bad.url
    );
    let house = House::empty(&numbers(&keys, "run = { steps = [\"true\"] }"));
    let test = |args: &[&str]| {
        let done = house.command(&[&["notify", "test"], args].concat()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = tokio::task::block_in_place(|| test(&[]));
    assert_eq!((code, &*said), (Some(0), "ok     ntfy (ntfy) of numbers/act: answered 200\n"));
    assert!(good.calls()[0].contains("title: [test] numbers/act: dead (failed)"), "{:?}", good.calls());
    let (code, said) = tokio::task::block_in_place(|| test(&["--on", "done"]));
    assert_eq!((code, said.contains("failed other (ntfy) of numbers/act: ")), (Some(1), true), "{said}");
    let (code, _) = tokio::task::block_in_place(|| test(&["--on", "rollback", "--field", "n=seven"]));
    assert_eq!((code, house.lines("tested")), (Some(0), vec!["seven".to_owned()]));
    assert_eq!(good.calls().len(), 2, "`ntfy` is told about roll-backs, too");
    let wrong = [
        (["--source", "number"], "the config has no source `number`: numbers; did you mean `numbers`?"),
        (["--route", "nope"], "the config has no route `nope`: act"),
        (["--field", "m=1"], "no target uses a field `m`: n"),
        (["--field", "n"], "--field n: expected NAME=VALUE"),
    ];
    for (args, expected) in wrong {
        let (code, said) = tokio::task::block_in_place(|| test(&args));
        assert_eq!((code, said.contains(expected)), (Some(2), true), "{said}");
    }
    assert_eq!(good.calls().len(), 2, "nothing was sent");
    assert!(!house.path("hookonce.db").exists(), "no store is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_for_github_names_a_repository_and_a_commit() {
    let [good, bad] = [Receiver::open(&[(201, "{\"id\":42}")]).await, Receiver::open(&[(422, "{}")]).await];
    let house = House::empty("");
    std::fs::write(house.path("token"), "a-token-of-sixteen-bytes").unwrap();
    let target = |name: &str, on: &str, to: &Receiver| {
        let api = to.url.trim_end_matches("/receive");
        format!("{{ as = \"{name}\", on = [\"{on}\"], token = {{ file = \"token\" }}, api = \"{api}\" }}")
    };
    let targets = [target("github-deployment", "dead", &good), target("github-status", "done", &bad)].join(", ");
    house.configure(&ghcr(&format!("run = {{ steps = [\"true\"] }}\nnotify = [{targets}]")));
    let test = |args: &[&str]| {
        let done = house.command(&[&["notify", "test"], args].concat()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = tokio::task::block_in_place(|| test(&[]));
    assert_eq!(code, Some(0), "{said}");
    assert!(good.calls()[0].starts_with("post /repos/owner/name/deployments "), "{:?}", good.calls());
    assert!(body(&good.calls()[0]).contains(&format!("\"ref\":\"{:040}\"", 0)), "{:?}", good.calls());

    let (code, said) = tokio::task::block_in_place(|| test(&["--on", "done"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("; test with a real commit: --field repository=… --field commit=…\n"), "{said}");
    let real = ["--on", "done", "--field", "repository=octo/cat", "--field", &format!("commit={COMMIT}")];
    let (code, said) = tokio::task::block_in_place(|| test(&real));
    assert_eq!((code, said.contains("--field")), (Some(1), false), "{said}");
    assert!(bad.calls()[1].starts_with(&format!("post /repos/octo/cat/statuses/{COMMIT} ")), "{:?}", bad.calls());
    let (code, said) = tokio::task::block_in_place(|| test(&["--field", "tag=latest"]));
    assert_eq!((code, said.contains("no target uses a field `tag`: commit, repository")), (Some(2), true), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_cancelled_while_no_node_runs_is_told_when_one_starts() {
    let target = Receiver::open(&[(200, "ok")]).await;
    let keys = format!("once = {{ per = [\"delivery\"] }}\nnotify = [{{ as = \"ntfy\", url = \"{}\" }}]", target.url);
    let route = "run = { steps = [\"false\"] }\nretry = { attempts = 5, first = \"1h\" }";
    let mut house = House::new(&numbers(&keys, route));
    let mut events = Vec::new();
    for n in 1..=3 {
        events.push(house.deliver(IN, &number(&format!("d{n}"), n)).await.event());
    }
    let waiting = "select count(*) from events where state = 'waiting' and attempt = 1";
    until("each to fail once", || house.sql(waiting) == ["3"]).await;
    house.stop();
    let cancel = |args: &[&str]| {
        let mut command = house.command(&[&["cancel"], args].concat());
        let done = command.env_remove("SECRET").output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    cancel(&[&events[0]]);
    cancel(&[&events[1], "--store", "hookonce.db"]);
    std::fs::create_dir(house.path("elsewhere")).unwrap();
    std::fs::copy(house.path("hookonce.toml"), house.path("elsewhere/hookonce.toml")).unwrap();
    cancel(&[&events[2], "--store", "hookonce.db", "--config", "elsewhere/hookonce.toml"]);
    assert_eq!(house.count("dead"), 3);
    assert_eq!(told(&house, "notify:ntfy"), ["waiting", "waiting"], "another store's config does not count");
    house.start();
    let calls = called(&target, 2).await;
    assert!(calls.iter().all(|call| call.contains("title: numbers/act: dead (cancelled)")), "{calls:?}");
}
