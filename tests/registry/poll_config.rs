//! `poll` in a config: what loads, what the commands say about it, and what can never work.

use crate::IMAGE;
use crate::config_errors::{env, problems, wrong};
use crate::odd_answers::OddRegistry;
use crate::polling::{digest, points_to, polled};
use crate::support::{House, PATIENCE, until};
use hookonce::internals::config;
use std::path::Path;
use std::time::Instant;

const GOOD: &str = r#"registry = "ghcr.io", image = "o/app", tag = "latest""#;
const ROUTE: &str = "[[source.s.route]]\nrun = { dir = \"/\", steps = [\"x\"] }\n";

/// A source that polls with these keys, and has these lines.
fn source(keys: &str, lines: &str) -> String {
    format!("[source.s]\npoll = {{ {keys} }}\n{lines}\n{ROUTE}")
}

#[test]
fn every_key_is_understood_and_the_defaults_are_those_of_deploys() {
    assert_eq!(problems(&source(GOOD, "")), "");
    let keys = format!(
        "{GOOD}, every = \"10m\", min_age = \"24h\", timeout = \"20s\", user = \"bob\", password = {{ env = \"PASSWORD\" }}"
    );
    let config = config::parse(&source(&keys, ""), "hookonce.toml", Path::new("/etc"), &env).unwrap();
    let plan = config.polls.values().next().unwrap();
    let seconds = [plan.policy.every, plan.policy.min_age, plan.question.timeout].map(|length| length.as_secs());
    assert_eq!(seconds, [600, 86_400, 20]);
    assert!(config.secret_env_names.contains("PASSWORD"), "commands never get it");
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let source = &config.sources[0];
    let fields: Vec<_> = source.fields.iter().map(|field| &*field.name).collect();
    assert_eq!(fields, ["registry", "image", "tag", "digest", "seen_at"]);
    assert!(source.once.change.is_some() && source.routes[0].when_busy.replaces());
    assert!(!source.intake.listens());
}

#[test]
fn what_is_about_a_sender_cannot_be_combined_with_it() {
    for (lines, key) in [
        ("path = \"/x\"", "path"),
        ("from = { nats = \"nats://127.0.0.1:4222\", stream = \"S\" }", "from"),
        ("verify = \"none\"", "verify"),
        ("secret = { env = \"PASSWORD\" }", "secret"),
        ("preset = \"github-package\"", "preset"),
        ("respond = \"done\"", "respond"),
        ("delivery = \"header.x\"", "delivery"),
    ] {
        wrong(&source(GOOD, lines), &[&format!("error: `{key}` and `poll` cannot be combined"), "hookonce.toml:3:1"]);
    }
    let field = "fields = { digest = \"body.other\" }";
    wrong(&source(GOOD, field), &["the field `digest` is built in", "registry, image, tag, digest, seen_at"]);
    let misspelt = source(GOOD, "").replace("poll =", "pol =");
    wrong(&misspelt, &["did you mean `poll`?", "1 error in"]);
    assert_eq!(problems(&source(GOOD, "fields = { seen = \"body.seen_at\" }\nwhen = 'tag != \"x\"'")), "");
}

#[test]
fn the_registry_the_image_the_tag_and_the_times_must_be_valid() {
    wrong(&source(r#"image = "a", tag = "b""#, ""), &["`poll` has no `registry`", "registry = \"ghcr.io\""]);
    wrong(&source(r#"registry = "ghcr.io", tag = "b""#, ""), &["`poll` has no `image`", "image = \"octocat/app\""]);
    wrong(&source(r#"registry = "ghcr.io", image = "a""#, ""), &["`poll` has no `tag`", "tag = \"latest\""]);
    wrong(&source(&GOOD.replace("o/app", "{owner}/app"), ""), &["`image` cannot be asked for"]);
    let named = GOOD.replace("o/app", "ghcr.io/o/app");
    wrong(&source(&named, ""), &["`image` begins with the name of the registry", "hint: image = \"o/app\""]);
    wrong(&source(&GOOD.replace("latest", "{tag}"), ""), &["`tag` cannot be asked for", "it is not a tag"]);
    for (keys, words) in [
        ("every = \"999ms\"", ["`every` is too short", "at least 1s"]),
        ("every = \"0s\"", ["`every` is zero", ""]),
        ("every = \"32d\"", ["`every` is too long", "at most 31d"]),
        ("min_age = \"32d\"", ["`min_age` is too long", "at most 31d"]),
        ("timeout = \"2m\"", ["`timeout` is too long", "at most 1m"]),
        ("evry = \"5m\"", ["did you mean `every`?", "1 error in"]),
        ("user = \"bob\"", ["`user` and `password` belong together", ""]),
        ("user = \"bob\", password = \"hunter2\"", ["`password` is written in the config file", ""]),
    ] {
        wrong(&source(&format!("{GOOD}, {keys}"), ""), &words);
    }
}

#[test]
fn the_example_of_the_docs_is_valid() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/poll.md")).unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let shown = problems(&example.replace("/srv/app", "/"));
    assert!(!shown.starts_with("error"), "{shown}");
}

#[test]
fn a_store_that_forgets_is_a_warning_and_two_sources_may_poll_one_tag() {
    let shown = problems(&format!("store = \"memory:\"\n{}", source(GOOD, "")));
    assert!(shown.contains("warning: the image is deployed again at each start"), "{shown}");
    let second = source(GOOD, "").replace("source.s", "source.t");
    assert_eq!(problems(&format!("{}{second}", source(GOOD, ""))), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_says_what_is_polled() {
    let registry = OddRegistry::start(None, |_| points_to(5)).await;
    let at = &registry.address;
    let house = House::new(&polled(at, ", min_age = \"1h\""));
    let run = |args: &[&str]| {
        let output = house.command(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["check"]);
    let asked = format!("polls      {IMAGE}:latest in the registry {at}, without credentials, within 10s, every 1s");
    for words in [
        &*asked,
        "waits      until a digest was first seen 1h ago",
        "a change of registry + image + tag to digest, ordered by seen_at",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
    for words in ["signed by", "answers", "url "] {
        assert!(!said.contains(words), "{words}\n{said}");
    }
    let json: serde_json::Value = serde_json::from_str(&run(&["check", "--json"])).unwrap();
    let shown = &json["sources"][0]["poll"];
    assert_eq!((&shown["image"], &shown["every"], &shown["min_age"]), (&IMAGE.into(), &"1s".into(), &"1h".into()));
    let live = run(&["check", "--live"]);
    assert!(live.contains(&format!("{IMAGE}:latest is {}", digest(5))), "{live}");
    let listed = run(&["presets"]);
    assert!(listed.contains("poll "), "{listed}");
    assert!(run(&["presets", "poll"]).contains("digest   = \"body.digest\""));
    let sent = run(&["send", "--sample"]);
    assert!(sent.contains(&format!("the source app polls {at}/{IMAGE}:latest every 1s")), "{sent}");

    until("the state", || house.log().contains("INFO polled")).await;
    let (begun, mut known) = (Instant::now(), serde_json::Value::Null);
    while known["digest"].is_null() {
        assert!(begun.elapsed() < PATIENCE, "{known:#}");
        known = house.ask("GET", "/api/polled").await.json()["polled"][0].clone();
    }
    let digest = digest(5).into();
    assert_eq!(
        (&known["source"], &known["digest"], &known["acted_on"]),
        (&"app".into(), &digest, &serde_json::Value::Null)
    );
    let text = |key: &str| known[key].as_str().unwrap().to_owned();
    assert!(text("acts_at") > text("next_at") && text("next_at") > text("asked_at"), "{known:#}");
    let api = house.ask("GET", "/api/sources").await.json();
    let one = &api["sources"][0];
    assert_eq!((&one["url"], &one["poll"]["tag"]), (&serde_json::Value::Null, &"latest".into()), "{api:#}");
}
