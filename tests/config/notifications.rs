//! `notify`: what loads, what `check` says, and what can never work.

use super::{fine, parse, route, source};
use hookonce::internals::config::ColorChoice;

#[track_caller]
fn wrong(text: &str, words: &[&str]) {
    let shown = match parse(text) {
        Err(problems) => problems.render(ColorChoice::Plain),
        Ok(_) => panic!("it loads: {text}"),
    };
    for words in words {
        assert!(shown.contains(words), "{words}\n{text}\n{shown}");
    }
    assert!(!shown.contains("s3cret"), "{shown}");
}

fn notify(keys: &str) -> String {
    route(&format!("run = {{ dir = \"/\", steps = [\"x\"] }}\nnotify = {{ {keys} }}"))
}

#[test]
fn every_kind_of_target_is_understood_and_shows_no_secret() {
    let targets = r#"notify = [
        { as = "ntfy", url = "https://ntfy.sh/topic", token = { env = "A" }, on = ["dead", "rollback", "done"] },
        { as = "slack", url = { env = "URL" } },
        { as = "discord", url = { env = "URL" } },
        { as = "sendmail", to = ["root", "ops@example.org"], retry = { attempts = 2 } },
        { as = "github-status", token = { env = "A" }, repository = "octo/{tag}", commit = "{sha}" },
        { as = "github-deployment", token = { env = "B" }, repository = "octo/cat", commit = "{sha}", api = "https://ghes.example/api/v3" },
        { run = { dir = "/", steps = [["say", "{tag}"]] }, name = "say" },
        { forward = { url = "http://127.0.0.1:1/x" } },
    ]"#;
    let config = fine(&route(&format!("run = {{ dir = \"/\", steps = [\"x\"] }}\n{targets}")));
    let all = &config.notifiers["s"];
    let words: Vec<_> = all.iter().map(|one| format!("{} {}", one.plan.word(), one.target.route)).collect();
    assert_eq!(words[0], "ntfy notify:1/ntfy");
    assert_eq!((words.len(), words[6].as_str()), (8, "run notify:1/say"));
    assert_eq!((all[3].route.retry.attempts, all[0].route.retry.attempts), (2, 5));
    assert_eq!((all[0].target.per_hour, all[4].target.per_hour, all[4].target.summary), (20, 500, false));
    assert_eq!(all[4].target.needs.iter().map(|name| &**name).collect::<Vec<_>>(), ["tag", "sha"]);
    assert_eq!(config.sources[0].routes[0].notify.len(), 8);
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    assert!(!format!("{:?}", config.notifiers).contains("user:pass"), "{:?}", config.notifiers);
}

#[test]
fn a_token_that_goes_over_the_network_in_clear_is_a_warning() {
    let warned = |keys: &str| {
        let shown = |config: hookonce::internals::config::Config| {
            config.warnings.iter().map(|warning| warning.render(ColorChoice::Plain)).collect::<String>()
        };
        shown(fine(&notify(keys))).contains("without TLS")
    };
    let token = "token = { env = \"A\" }";
    for (host, expected) in [
        ("http://ghes.example", true),
        ("http://10.0.0.2:80", true),
        ("https://ghes.example", false),
        ("http://127.0.0.1:80", false),
        ("http://[::1]:80", false),
        ("http://localhost", false),
    ] {
        let github =
            format!("as = \"github-status\", repository = \"o/r\", commit = \"{{sha}}\", {token}, api = \"{host}\"");
        assert_eq!(warned(&github), expected, "{host}");
        let topic = format!("as = \"ntfy\", url = \"{host}/t\"");
        assert_eq!(warned(&format!("{topic}, {token}")), expected, "{host}");
        assert!(!warned(&topic), "there is no token");
    }
}

#[test]
fn the_nearest_level_counts() {
    let say = |name: &str| format!("{{ name = \"{name}\", run = {{ dir = \"/\", steps = [\"x\"] }} }}");
    let top = format!("notify = [{}]\n", say("top"));
    let names = |text: &str| {
        let config = fine(text);
        let route = &config.sources[0].routes[0];
        route.notify.iter().map(|target| target.route.to_string()).collect::<Vec<_>>()
    };
    let action = "run = { dir = \"/\", steps = [\"x\"] }\n";
    assert_eq!(names(&format!("{top}{}", route(action))), ["notify:top"]);
    let in_source = format!("{top}{}{action}", source(&format!("notify = [{}]", say("source"))));
    assert_eq!(names(&in_source), ["notify:source"]);
    assert_eq!(names(&format!("{in_source}notify = [{}]", say("own"))), ["notify:1/own"]);
    assert!(names(&format!("{in_source}notify = []")).is_empty());
}

#[test]
fn a_target_that_cannot_work_is_an_error() {
    wrong(&notify("on = [\"dead\"]"), &["does not say how to tell", "`run`, `forward`, or `as` with \"ntfy\""]);
    wrong(&notify("as = \"ntfy\", run = { steps = [\"x\"] }"), &["an entry of `notify` has `run` and `as`"]);
    wrong(&notify("as = \"ntfy\""), &["`notify` has no `url`"]);
    for url in ["https://ntfy.sh", "https://ntfy.sh/"] {
        wrong(&notify(&format!("as = \"ntfy\", url = \"{url}\"")), &["`url` names no topic of ntfy"]);
    }
    wrong(
        &notify("as = \"ntfy\", url = \"http://a/t\", on = [\"ded\"]"),
        &["`ded` is nothing that can be told", "did you mean `dead`?"],
    );
    wrong(&notify("as = \"ntfy\", url = \"http://a/t\", on = []"), &["`on` is empty"]);
    wrong(
        &notify("as = \"ntfy\", url = \"http://a/t\", to = [\"x\"]"),
        &["`to` does not belong to \"ntfy\"", "url, token, timeout"],
    );
    wrong(
        &notify("as = \"slack\", url = \"https://hooks.slack.com/s3cret\""),
        &["`url` is written in the config file"],
    );
    wrong(&notify("as = \"discord\", url = { env = \"NO\" }"), &["the environment variable `NO` is not set"]);
    wrong(&notify("as = \"sendmail\""), &["`notify` has no `to`"]);
    for to in
        ["a@b\\nBcc: c@d", "a@b\\t", "", "Ops Team", "ops example.org", "@example.org", "ops@", "a@b, c@d", "|prog"]
    {
        let to = notify(&format!("as = \"sendmail\", to = [\"{to}\"]"));
        wrong(&to, &["this cannot be an address of a mail"]);
    }
    for repository in ["cat", "octo/", "octo/cat/x", "octo/c at", "https://github.com/octo/cat"] {
        let keys = format!("token = {{ env = \"A\" }}, commit = \"{{sha}}\", repository = \"{repository}\"");
        for word in ["github-status", "github-deployment"] {
            let shown = [&*format!("`{repository}` is not a repository of GitHub"), "expected \"owner/name\""];
            wrong(&notify(&format!("as = \"{word}\", {keys}")), &shown);
        }
    }
    wrong(&notify("as = \"github-status\", repository = \"o/r\", commit = \"{sha}\""), &["`notify` has no `token`"]);
    wrong(
        &notify("as = \"github-status\", token = { env = \"A\" }, commit = \"{sha}\""),
        &["no `repository`, and there is no field of that name"],
    );
    wrong(&notify("as = \"ntfy\", url = \"http://a/t\", name = \"A b\""), &["`A b` cannot be the name of a target"]);
    wrong(&notify("run = { dir = \"/\", steps = [\"echo {tag}\"] }"), &["`{tag}` is in a shell command"]);
    let twice = "{ as = \"ntfy\", url = \"http://a/t\" }";
    wrong(
        &route(&format!("notify = [{twice}, {twice}]")),
        &["two targets of `notify` are called `ntfy`", "give each its own `name`"],
    );
    wrong(
        &format!("notify = {{ run = {{ steps = [[\"say\", \"{{tag}}\"]] }} }}\n{}", route("")),
        &["fields belong to sources"],
    );
    wrong(&route("name = \"notify:x\""), &["the name of a route cannot begin with `notify:`"]);
}
