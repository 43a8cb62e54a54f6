//! NATS in the config: what is accepted, and the texts for what is not.

use super::route;
use hookonce::decide::source::{Identity, RedeliveryPolicy};
use hookonce::decide::time::Duration;
use hookonce::internals::action::plan::ActionPlan;
use hookonce::internals::config::{AckTiming, Config, parse};
use std::path::Path;

fn read(text: &str) -> Result<Config, String> {
    let env = |name: &str| {
        Some(match name {
            "NATS_URL" => "nats://hook:once@h:4222".to_owned(),
            "SEED" => "SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY".to_owned(),
            name => format!("a secret for {name}"),
        })
    };
    parse(text, "hookonce.toml", Path::new("/"), &env).map_err(|problems| problems.to_string())
}

/// A stream with these keys, verified like this, in this store.
fn stream(store: &str, keys: &str, verify: &str) -> String {
    format!(
        "{store}\n[source.s]\nfrom = {{ nats = \"nats://h:4222\", stream = \"GITHUB\"{keys} }}\nverify = {verify}\n[[source.s.route]]\n"
    )
}

const CARRIED: &str = r#"{ scheme = "carried", of = "github", secret = { env = "S" } }"#;

fn check(text: &str, expected: &str) {
    let said = read(text).map(drop).expect_err("it is refused");
    assert!(said.contains(expected), "{text}\n{said}");
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn a_stream_is_known_by_its_message_beside_the_carried_id() {
    let config = read(&stream("", "", CARRIED)).unwrap();
    let source = &config.sources[0];
    assert_eq!(source.once.per, [Identity::Delivery, Identity::Message, Identity::Body], "the id is not signed");
    assert_eq!(source.once.implied, Some(Identity::Body));
    let plan = &config.streams["s"];
    assert_eq!((&*plan.name, &*plan.consumer, plan.ack), ("GITHUB", "hookonce", AckTiming::Claimed));
    let config = read(&stream("", "", "\"none\"")).unwrap();
    assert_eq!(config.sources[0].once.per, [Identity::Message]);
    let config =
        read(&stream("store = \"memory:\"", ", ack = \"done\", envelope = \"patchwork\"", "\"none\"")).unwrap();
    assert_eq!(config.sources[0].once.per, [Identity::Delivery, Identity::Message]);
}

#[test]
fn invalid_stream_sources_are_reported() {
    check(&stream("store = \"memory:\"", "", CARRIED), "hint: use ack = \"done\", or a durable store");
    check(
        &stream("", "", r#"{ scheme = "github", secret = { env = "S" } }"#),
        "scheme = \"carried\" with `of` verifies",
    );
    check(&stream("", "", r#"{ scheme = "carried", secret = { env = "S" } }"#), "`of` is missing");
    check(&stream("", ", token = \"s3cret\"", CARRIED), "`token` is written in the config file");
    check(&stream("", ", consumer = \"a.b\"", CARRIED), "`a.b` cannot be the name of a consumer");
    check(&stream("", ", subjects = [\"a..b\"]", CARRIED), "`a..b` is not a subject");
    let made = ", create = true, subjects = [\"a.>\"]";
    check(&stream("", &format!("{made}, replicas = 6"), CARRIED), "at most 5 replicas");
    check(&stream("", ", replicas = 3", CARRIED), "`replicas` applies only to a stream that hookonce creates");
    let config = read(&stream("", &format!("{made}, replicas = 3"), CARRIED)).unwrap();
    assert_eq!(config.streams["s"].replicas, 3);
    check(&stream("", ", ca = \"nowhere.pem\"", CARRIED), "there is no /nowhere.pem");
    check(&stream("", "", CARRIED).replace("from =", "path = \"/x\"\nfrom ="), "`path` and `from` cannot be combined");
    check(
        &stream("", "", CARRIED).replace("from =", "respond = \"done\"\nfrom ="),
        "`respond` and `from` cannot be combined",
    );
    check(
        &stream("", "", CARRIED).replace("nats://h:4222", "nats://u:s3cret@h"),
        "has credentials and is written in the config file",
    );
    check(&stream("", "", CARRIED).replace("nats://h:4222", "http://h"), "`http` is neither nats nor tls");
    check(&stream("", "", CARRIED).replace(", stream = \"GITHUB\"", ""), "`from` has no `stream`");
    let path = "[source.s]\nverify = { scheme = \"carried\", of = \"github\", secret = { env = \"S\" } }\n";
    check(path, "scheme `carried` is only for stream sources");
}

#[test]
fn invalid_publish_actions_are_reported() {
    let publish = |keys: &str| route(&format!("publish = {{ {keys} }}"));
    let url = "nats = \"nats://h\"";
    check(&publish(url), "`publish` has no `subject`");
    check(&publish("subject = \"a\""), "`nats` is missing");
    check(&publish(&format!("{url}, subject = \"a.{{nothing}}\"")), "`{nothing}` is not a declared field");
    for subject in ["", "a..b", "a.*", "a.>", "a b", "$SYS.x"] {
        check(&publish(&format!("{url}, subject = \"{subject}\"")), "`subject` cannot be published to");
    }
    check(&publish(&format!("{url}, subject = \"a\", user = \"u\"")), "`user` and `password` belong together");
    let both = format!("{url}, subject = \"a\", token = {{ env = \"T\" }}, creds = {{ env = \"C\" }}");
    check(&publish(&both), "are both credentials");
    check(&publish(&format!("{url}, subject = \"a\", nkey = {{ env = \"T\" }}")), "not the seed of a user");
    check(
        &format!("{}\nforward = {{ url = \"http://h\" }}", publish(&format!("{url}, subject = \"a\""))),
        "one action",
    );
}

#[test]
fn a_plan_never_shows_credentials_and_knows_its_retry_horizon() {
    let text = route("publish = { nats = { env = \"NATS_URL\" }, subject = \"a.b\", nkey = { env = \"SEED\" } }");
    let config = read(&text).unwrap();
    let Some(ActionPlan::Publish(plan)) = config.actions.values().next() else { panic!("{config:?}") };
    let shown = format!("{config:?}");
    assert!(!shown.contains("hook:once") && !shown.contains("SUAM"), "{shown}");
    // Four failed attempts and five in doubt, each up to 35 s, with waits that double from 10 s.
    assert_eq!(plan.retry_horizon.as_secs() / 60, 47, "{:?}", plan.retry_horizon);
}

#[test]
fn a_preset_for_clients_of_an_api_accepts_no_stream() {
    let preset = r#"preset = "idempotency-key""#;
    let text = stream("", "", r#""none""#).replace("[source.s]", &format!("[source.s]\n{preset}"));
    check(&text, "a preset for clients of an HTTP API and `from` cannot be combined");
}

#[test]
fn headers_that_publish_carries_are_transient() {
    let text = r#"
[source.s]
verify = { scheme = "github", secret = { env = "S" } }
fields = { caller = "header.x-client-id" }
[[source.s.route]]
publish = { nats = "nats://h:4222", subject = "github" }
"#;
    let config = read(text).unwrap();
    let passes = &config.sources[0].routes[0].forwarded_headers;
    assert_eq!(passes, &["x-github-delivery", "x-github-event", "x-hub-signature-256"]);
    let folder = tempfile::tempdir().unwrap();
    let callers = format!("{{ dir = \"{}\" }} }}\nkey_id = \"caller\"", folder.path().display());
    let config = read(&text.replace("{ env = \"S\" } }", &callers)).unwrap();
    let passes = &config.sources[0].routes[0].forwarded_headers;
    assert!(passes.contains(&"x-client-id".to_owned()), "the sender is verified again, too: {passes:?}");
}

/// A route that publishes, from a source verified like this, with these keys of the source and of the route.
fn publishing(verify: &str, source: &str, publish: &str, route: &str) -> String {
    format!(
        "[source.s]\nverify = {verify}\n{source}\n[[source.s.route]]\n\
         publish = {{ nats = \"nats://h:4222\", subject = \"a\"{publish} }}\n{route}\n"
    )
}

const GITHUB: &str = r#"{ scheme = "github", secret = { env = "S" } }"#;

/// How long after it was published this route's message is published again; `None` if it is not.
fn published_after(text: &str) -> Option<Duration> {
    let config = read(text).unwrap_or_else(|said| panic!("{text}\n{said}"));
    match config.sources[0].routes[0].redelivery {
        RedeliveryPolicy::Again { published_after, .. } => Some(published_after),
        RedeliveryPolicy::Retry { .. } | RedeliveryPolicy::Ignore => None,
    }
}

#[test]
fn only_manual_redeliveries_are_published_again_by_default() {
    let minute = Some(Duration::from_mins(1));
    assert_eq!(published_after(&publishing(GITHUB, "", "", "")), minute);
    assert_eq!(published_after(&publishing(GITHUB, "", "", "rearm_after = \"5m\"")), Some(Duration::from_mins(5)));
    assert_eq!(published_after(&publishing(GITHUB, "respond = \"done\"", "", "")), minute, "not at once");
    let folder = tempfile::tempdir().unwrap();
    let callers = format!("{{ scheme = \"github\", secret = {{ dir = \"{}\" }} }}", folder.path().display());
    let who = "key_id = \"caller\"\nfields = { caller = \"header.x-client-id\" }";
    assert_eq!(published_after(&publishing(&callers, who, "", "")), minute, "each caller is a GitHub");
    let bearer = r#"{ scheme = "bearer", secret = { env = "S" } }"#;
    let id = "delivery = \"header.x-id\"";
    for (verify, source, publish, route) in [
        (GITHUB, "", ", core = true", ""),
        (GITHUB, "", "", "redelivery = \"retry\""),
        (GITHUB, "", "", "redelivery = \"ignore\""),
        (GITHUB, "once = { per = [\"body\"] }", "", ""),
        (bearer, id, "", ""),
        ("\"none\"", "", "", ""),
    ] {
        assert_eq!(
            published_after(&publishing(verify, source, publish, route)),
            None,
            "{verify} {source}{publish}{route}"
        );
    }
    let again = "redelivery = \"again\"";
    assert_eq!(published_after(&publishing(bearer, id, "", again)), minute);
    assert_eq!(published_after(&publishing(GITHUB, "", ", core = true", again)), minute);
}

#[test]
fn again_is_an_error_where_it_cannot_work() {
    let again = "redelivery = \"again\"";
    let cannot = "`redelivery = \"again\"` cannot work here";
    for action in ["run = { steps = [\"true\"] }", "forward = { url = \"http://h/\" }", ""] {
        let text = format!("[source.s]\nverify = {GITHUB}\n[[source.s.route]]\n{action}\n{again}\n");
        check(&text, cannot);
        check(&text, "this route has no `publish`, so there is nothing to publish again");
    }
    let publish = format!("publish = {{ nats = \"nats://h:4222\", subject = \"a\" }}\n{again}\n");
    check(&format!("{}{publish}", stream("", "", CARRIED)), "a stream redelivers its messages automatically");
    check(&publishing("\"none\"", "", "", again), "this source has no delivery id");
    check(&publishing(GITHUB, "once = { per = [\"body\"] }", "", again), "`once.per` does not contain");
}
