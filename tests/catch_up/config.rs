//! `catch_up` in a config: what loads, what `check` says, and what can never work.

use crate::config_errors::{env, problems, wrong};
use hookonce::internals::config;
use std::path::Path;

fn source(lines: &str, keys: &str) -> String {
    format!(
        "[source.s]\nverify = \"none\"\ndelivery = \"header.x-github-delivery\"\nfields = {{ tag = \"body.tag\", sha = \"body.sha\", at = \"body.at\" }}\n{lines}\n\
         [source.s.catch_up]\n{keys}\n[[source.s.route]]\nrun = {{ dir = \"/\", steps = [\"x\"] }}\n"
    )
}

const GOOD: &str = "repository = \"octo/app\"\nhook = 4000000000\ntoken = { env = \"TOKEN\" }";

#[test]
fn every_key_is_understood_and_nothing_shows_a_secret() {
    let keys = format!(
        "{GOOD}\nevery = \"2h\"\nback = \"7d\"\nrequests_per_hour = 5\npause = \"2s\"\napi = \"https://ghe/api/v3/\""
    );
    let config = config::parse(&source("", &keys), "hookonce.toml", Path::new("/etc"), &env).unwrap();
    let plan = config.catch_ups.values().next().unwrap();
    assert_eq!(
        (&*plan.api, plan.hook.to_string()),
        ("https://ghe/api/v3", "hook 4000000000 of the repository octo/app".into())
    );
    assert_eq!((plan.policy.every.as_secs(), plan.policy.back.as_secs()), (7_200, 7 * 86_400));
    assert_eq!((plan.policy.requests_per_hour, plan.policy.pause.as_secs()), (5, 2));
    assert!(config.secret_env_names.contains("TOKEN"), "commands never get it");
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
}

#[test]
fn a_source_whose_changes_have_no_order_is_caught_up_only_if_that_is_accepted() {
    let once = "once = { per = [\"body\"], change = { of = [\"tag\"], to = [\"sha\"] } }";
    wrong(&source(once, GOOD), &["`catch_up` needs `change.order`", "unordered = true"]);
    assert_eq!(problems(&source(once, &format!("{GOOD}\nunordered = true"))), problems(&source("", GOOD)));
    let ordered = once.replace("to = [\"sha\"]", "to = [\"sha\"], order = \"at\"");
    assert!(!problems(&source(&ordered, GOOD)).contains("error"), "{}", problems(&source(&ordered, GOOD)));
}

#[test]
fn what_can_never_work_is_an_error_that_says_what_to_do() {
    let token = "token = { env = \"TOKEN\" }";
    wrong(&source("", token), &["does not say whose hook it is", "repository = \"owner/name\""]);
    wrong(&source("", &format!("{GOOD}\nproject = \"a/b\"")), &["names several hooks"]);
    wrong(
        &source("", &format!("repository = \"octo/app\"\n{token}")),
        &["has no `hook`", "gh api repos/octo/app/hooks"],
    );
    wrong(&source("", "repository = \"octo/app\"\nhook = 1"), &["has no `token`", "token = { env = \"NAME\" }"]);
    wrong(&source("", &format!("repository = \"../app\"\nhook = 1\n{token}")), &["`repository` cannot be read"]);
    wrong(&source("", &format!("project = \"a/../b\"\nhook = 1\n{token}")), &["`project` cannot be read"]);
    wrong(
        &source("", "app = \"1\"\ntoken = { env = \"TOKEN\" }"),
        &["`token` is not used here", "has no `private_key`"],
    );
    wrong(&source("", "app = \"1\"\nprivate_key = { env = \"PEM\" }"), &["not the private key of an App", "RSA"]);
    let no_id = |keys: &str| source("", keys).replace("delivery = \"header.x-github-delivery\"\n", "");
    wrong(&no_id(GOOD), &["`catch_up` needs `delivery`", "delivery = \"header.x-github-delivery\""]);
    let project = GOOD.replace("repository", "project");
    wrong(&no_id(&project), &["`catch_up` needs `delivery`", "delivery = \"header.idempotency-key\""]);
    assert!(!problems(&no_id(GOOD).replace("verify =", "delivry = \"header.x\"\nverify =")).contains("needs"));
    wrong(&source("", &GOOD.replace("TOKEN", "SPACES")), &["`token` is not a token"]);
    wrong(&source("", &GOOD.replace("{ env = \"TOKEN\" }", "\"s3cret-in-the-file\"")), &["written in the config file"]);
    wrong(&source("", &format!("{GOOD}\napi = \"https://u:s3cret@host\"")), &["`api` is not the address of an API"]);
    assert!(problems(&source("", &format!("{GOOD}\napi = \"http://host\""))).contains("asked without TLS"));
}
