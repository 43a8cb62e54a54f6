//! `health_check` and `on_unhealthy`: what loads, what `check` shows, and what is refused.

use super::{fine, parse, route};
use hookonce::internals::config::ColorChoice;

const URL: &str = r#"url = "http://127.0.0.1:1/healthz""#;
const RUN: &str = r#"run = { steps = ["true"] }"#;

/// A config with a subject, and a route with these lines.
fn changing(lines: &str) -> String {
    super::source(r#"once = { per = ["body"], change = { of = ["tag"], to = ["sha"] } }"#) + lines + "\n"
}

#[track_caller]
fn refused(text: &str, title: &str, why: &str) {
    let shown = parse(text).expect_err("it is refused").render(ColorChoice::Plain);
    assert!(shown.starts_with(&format!("error: {title}\n")) && shown.contains(why), "{shown}");
    assert!(shown.ends_with("\n1 error in hookonce.toml; nothing was started\n"), "{shown}");
}

#[test]
fn a_health_check_is_one_url_or_one_command() {
    refused(
        &route(&format!("{RUN}\nhealth_check = {{}}")),
        "`health_check` has neither `url` nor `run`",
        "hint: health_check = {",
    );
    let both = format!("{RUN}\nhealth_check = {{ {URL}, run = [\"true\"] }}");
    refused(&route(&both), "`url` and `run` are both health checks", "one of them, not both");
    let wrong = format!("{RUN}\nhealth_check = {{ url = \"127.0.0.1\" }}");
    refused(&route(&wrong), "`url` is not a valid URL to send to", "http:// or https://");
    let inside = format!("{RUN}\nhealth_check = {{ url = \"http://127.0.0.1/{{tag}}\" }}");
    refused(&route(&inside), "`url` has a field in it, and its address is not allowed", "127.0.0.1 is loopback");
    let password = format!("{RUN}\nhealth_check = {{ url = \"http://a:secret-of-b@127.0.0.1/\" }}");
    refused(&route(&password), "`url` has a password and is written in the config file", "a secret must not be");
}

#[test]
fn a_field_is_never_the_program_or_its_text() {
    for (run, title) in [
        (r#"["{tag}"]"#, "`{tag}` is the program itself"),
        (r#"["sh", "-c", "echo {tag}"]"#, "`{tag}` is in text that `sh` runs as a program"),
        (r#"["sh"]"#, "`sh` would run the delivery's body as a program"),
        ("[]", "a step is empty"),
        (r#"["true", "{other}"]"#, "`{other}` is not a declared field"),
    ] {
        refused(&route(&format!("{RUN}\nhealth_check = {{ run = {run} }}")), title, "");
    }
    fine(&route(&format!("{RUN}\nhealth_check = {{ run = [\"./healthy\", \"{{tag}}\"] }}")));
}

#[test]
fn its_times_fit_together() {
    for (times, title, why) in [
        ("within = \"2h\"", "`within` is too long", "at most 1h"),
        ("within = \"0s\"", "`within` is zero", "longer than zero"),
        ("every = \"1ms\"", "`every` is too short", "at least 100ms"),
        ("every = \"3m\"", "`every` is longer than `within`", "`within` is 2m: it would be checked only once"),
        ("within = \"20s\", timeout = \"30s\"", "`timeout` is longer than `within`", "`within` is 20s"),
    ] {
        refused(&route(&format!("{RUN}\nhealth_check = {{ {URL}, {times} }}")), title, why);
    }
    fine(&route(&format!("{RUN}\nhealth_check = {{ {URL}, within = \"1s\" }}")));
}

#[test]
fn a_route_that_cannot_be_checked_or_rolled_back_is_refused() {
    let title = "`health_check` cannot work on this route";
    let check = format!("health_check = {{ {URL} }}");
    refused(&route(&check), title, "this route has no action");
    let several = r#"forward = [{ url = "http://a/" }, { url = "http://b/" }]"#;
    refused(&route(&format!("{several}\n{check}")), title, "several receivers");
    let publish = r#"publish = { nats = "nats://127.0.0.1", subject = "s" }"#;
    refused(&route(&format!("{publish}\n{check}")), title, "has not begun when the event is done");
    let waits = super::source("respond = \"done\"") + &format!("{RUN}\n{check}\n");
    refused(&waits, title, "the sender would wait for the check");
    let back = "on_unhealthy = \"rollback\"";
    refused(&changing(&format!("{RUN}\n{back}")), "`on_unhealthy` needs `health_check`", "");
    let title = "`on_unhealthy = \"rollback\"` needs `change`";
    refused(&route(&format!("{RUN}\n{check}\n{back}")), title, "which event was last good");
    fine(&changing(&format!("{RUN}\n{check}\n{back}")));
}
