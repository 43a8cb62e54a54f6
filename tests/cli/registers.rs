//! `registers`: what each subject was last changed to, deployed as and good as, through a node or directly in its store.

use crate::support::{House, Sent, free_port, until};
use crate::{Said, run, with_ports};
use serde_json::json;

/// Deploys of apps: a build fails if its number is 13.
fn deploys() -> House {
    let more = r#"
[source.deploys]
path   = "/deploys"
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { app = "body.app", tag = "body.tag", build = "body.build", at = "body.at" }
once   = { per = ["delivery"], change = { of = ["app", "tag"], to = ["build"], order = "at" } }
[[source.deploys.route]]
name  = "run"
retry = { attempts = 1 }
run   = { steps = ["echo $HOOKONCE_FIELD_APP $HOOKONCE_FIELD_BUILD >> runs; test $HOOKONCE_FIELD_BUILD != 13"] }
"#;
    House::new(&with_ports(free_port(), free_port(), more))
}

async fn deployed(house: &House, app: &str, tag: &str, build: u64) -> String {
    let at = format!("2026-01-01T00:00:{build:02}Z");
    let body = json!({ "app": app, "tag": tag, "build": build, "at": at });
    let sent = Sent::github("push", &format!("{app}-{tag}-{build}"), &body.to_string());
    let event = house.deliver("/deploys", &sent).await.event();
    house.quiet().await;
    event
}

fn registers(house: &House, args: &[&str]) -> Said {
    run(house, &[&["registers"], args].concat())
}

#[tokio::test]
async fn a_register_is_named_by_its_fields_its_key_or_an_event_with_a_node_and_without() {
    let mut house = deploys();
    let (one, two) = (deployed(&house, "shop", "latest", 1).await, deployed(&house, "shop", "latest", 2).await);
    let bad = deployed(&house, "shop", "latest", 13).await;
    deployed(&house, "shop", "next", 1).await;
    deployed(&house, "desk", "latest", 1).await;

    let shown = registers(&house, &["show", "app=shop", "tag=latest"]).fine();
    for part in [
        "subject     app=shop tag=latest\n",
        "source      deploys, route run\n",
        "order       2026-01-01T00:00:13.000000Z (at)\n",
        &format!("current     {}  dead: failed, received ", &bad[28..]),
        "            build=13\n",
        &format!("deployed    {}  done, deployed ", &two[28..]),
        &format!("good        {}  done, good ", &two[28..]),
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let of_node = registers(&house, &["show", "app=shop", "tag=latest", "--json"]).json();
    assert_eq!(of_node["subject"], json!({ "app": "shop", "tag": "latest" }));
    let names: [(&str, &str, &str); 3] =
        [("current", &bad, "failed"), ("deployed", &two, "acted"), ("good", &two, "acted")];
    for (which, event, how) in names {
        let told = &of_node[which];
        assert_eq!((&told["event"], told["cause"] == how || told["how"] == how), (&json!(event), true), "{told}");
    }
    let key = of_node["register"].as_str().unwrap();
    for name in [key, &key[..8], &one, &one[28..], &bad[28..], "shop-latest-2"] {
        assert_eq!(registers(&house, &["show", name, "--json"]).json(), of_node, "{name}");
    }
    let several = registers(&house, &["show", "app=shop"]);
    several.check(1, "several registers have these fields; name more of them:");
    assert!(several.err.contains("app=shop tag=latest") && several.err.contains("app=shop tag=next"), "{several:?}");
    registers(&house, &["show", "app=nobody"]).check(1, "no register has these fields");
    registers(&house, &["show", "nobody"]).check(1, "there is no register `nobody`");
    registers(&house, &["show", "app=shop", &one]).check(2, "name a register by the values of its fields");
    registers(&house, &["show"]).check(2, "required");

    let lines = registers(&house, &[]).fine();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert_eq!(registers(&house, &["list"]).fine(), lines);
    let line = lines.lines().find(|line| line.starts_with(key)).unwrap();
    let cells: Vec<_> = line.split('\t').collect();
    assert_eq!(cells[1..5], ["deploys", "run", r#"{"app":"shop","tag":"latest"}"#, r#"{"build":13}"#]);
    assert_eq!(cells[5..], [&*bad, "dead", &two, &two]);
    let desk = registers(&house, &["list", "app=desk", "--source", "deploys", "--json"]).json();
    assert_eq!((desk["registers"].as_array().unwrap().len(), &desk["more"]), (1, &json!(false)));
    assert_eq!(registers(&house, &["--limit", "2", "--json"]).json()["more"], json!(true));
    registers(&house, &["list", "desk"]).check(2, "expected a field and its value");

    house.stop();
    assert_eq!(registers(&house, &["show", &bad[28..], "--json"]).json(), of_node, "the store tells the same");
    assert_eq!(registers(&house, &[]).fine(), lines);
}

#[tokio::test]
async fn a_register_is_corrected_only_with_consent_and_nothing_runs() {
    let mut house = deploys();
    let (one, two) = (deployed(&house, "shop", "latest", 1).await, deployed(&house, "shop", "latest", 2).await);
    let other = deployed(&house, "desk", "latest", 1).await;
    let (first, name) = (&one[28..], ["app=shop", "tag=latest"]);
    let set = |more: &[&str]| registers(&house, &[&["set"], &name[..], more].concat());
    set(&["--current", first]).check(1, "This changes the register of app=shop tag=latest: current becomes");
    set(&["--current", &other, "--yes"]).check(1, "belongs to another register");
    set(&["--current", "nobody", "--yes"]).check(1, "there is no event `nobody`");
    set(&["--yes"]).check(2, "required");
    let shows = |which: &str| registers(&house, &["show", name[0], name[1], "--json"]).json()[which]["event"].clone();
    assert_eq!(shows("current"), json!(two));

    let said = set(&["--current", first, "--good", first, "--yes"]).fine();
    assert!(said.ends_with(&format!("app=shop tag=latest: current becomes {first}, good becomes {first}\n")), "{said}");
    assert_eq!((shows("current"), shows("deployed"), shows("good")), (json!(one), json!(two), json!(one)));
    until("its log", || house.log().contains("edit=set")).await;

    registers(&house, &["clear", "--deployed", name[0]]).check(1, "This forgets what was deployed of app=shop");
    let cleared = registers(&house, &["clear", "--deployed", name[0], "--yes", "--json"]).json();
    assert_eq!((&cleared["left"]["deployed"], &cleared["left"]["current"]["event"]), (&json!(null), &json!(one)));
    house.stop();
    let runs = house.lines("runs").len();
    let set_back = registers(&house, &["set", name[0], "--deployed", &two, "--yes", "--json"]).json();
    assert_eq!(set_back["deployed"]["event"], json!(two), "without a node, in the store");
    registers(&house, &["clear", name[0]]).check(1, "the next delivery of it acts, whatever its value and order");
    assert_eq!(registers(&house, &["clear", name[0], "--yes"]).fine(), "cleared the register of app=shop tag=latest\n");
    registers(&house, &["show", name[0]]).check(1, "no register has these fields");
    house.start();
    house.quiet().await;
    assert_eq!(house.lines("runs").len(), runs, "nothing ran");
    let body = json!({ "app": "shop", "tag": "latest", "build": 1, "at": "2026-01-01T00:00:00Z" }).to_string();
    assert_eq!(house.deliver("/deploys", &Sent::github("push", "again", &body)).await.status, 202);
    house.quiet().await;
    assert_eq!(house.lines("runs").last().unwrap(), "shop 1", "an older order counts again");
}
