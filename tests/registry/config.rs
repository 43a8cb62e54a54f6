//! `lookup` in a config: what loads, what `check` says, and what can never work.

use crate::config_errors::{env, problems, wrong};
use hookonce::internals::config;
use std::path::Path;

/// A source with a register, with one route with these lines.
fn route(lines: &str) -> String {
    format!(
        "[source.s]\nverify = \"none\"\nfields = {{ owner = \"body.owner\", tag = \"body.tag\", sha = \"body.sha\", open = \"header.x-open\" }}\n\
         once = {{ per = [\"body\"], change = {{ of = [\"tag\"], to = [\"sha\"] }} }}\n[[source.s.route]]\n{lines}\n"
    )
}

fn lookup(keys: &str) -> String {
    route(&format!("lookup = {{ {keys} }}\nrun = {{ dir = \"/\", steps = [\"x\"] }}"))
}

const GOOD: &str = r#"registry = "ghcr.io", image = "{owner}/app", tag = "{tag}""#;

#[test]
fn every_key_is_understood_and_nothing_shows_a_secret() {
    let keys =
        format!("{GOOD}, user = {{ env = \"USER_NAME\" }}, password = {{ env = \"PASSWORD\" }}, timeout = \"20s\"");
    let config = config::parse(&lookup(&keys), "hookonce.toml", Path::new("/etc"), &env).unwrap();
    let plan = config.lookups.values().next().unwrap();
    assert_eq!((plan.image.to_string(), plan.tag.to_string()), ("{owner}/app".into(), "{tag}".into()));
    assert_eq!((plan.registry.address.to_string(), plan.timeout.as_secs()), ("ghcr.io".into(), 20));
    let route = &config.sources[0].routes[0];
    assert_eq!((route.needs.len(), route.retry.attempts), (2, 5));
    assert!(config.secret_env_names.contains("PASSWORD"), "commands never get it");
    assert!(!format!("{config:?}").contains("s3cret-password"), "{config:?}");
}

#[test]
fn check_shows_what_is_asked_and_how() {
    let folder = tempfile::tempdir().unwrap();
    let keys = format!("{GOOD}, user = \"bob\", password = {{ env = \"PASSWORD\" }}");
    std::fs::write(folder.path().join("hookonce.toml"), lookup(&keys)).unwrap();
    let check = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hookonce"));
        let output = command
            .args(args)
            .current_dir(folder.path())
            .env("PASSWORD", "s3cret-password-of-the-registry")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = check(&["check"]);
    assert!(
        said.contains("    asks for   {owner}/app:{tag} in the registry ghcr.io, as user bob, within 10s"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&check(&["check", "--json"])).unwrap();
    let shown = &json["sources"][0]["routes"][0]["lookup"];
    assert_eq!((&shown["registry"], &shown["timeout"]), (&"ghcr.io".into(), &"10s".into()), "{json:#}");
}

#[test]
fn what_can_never_work_is_an_error() {
    let lookup_line = format!("lookup = {{ {GOOD} }}");
    wrong(&route(&lookup_line), &["`lookup` cannot work on this route", "this route has no action"]);
    let publish = format!("{lookup_line}\npublish = {{ nats = \"nats://127.0.0.1:4222\", subject = \"a\" }}");
    wrong(&route(&publish), &["`lookup` cannot work on this route", "let the worker ask the registry"]);
    wrong(
        &route(&format!("{lookup_line}\nsql = \"select 1\"")),
        &["`lookup` cannot work on this route", "deploys nothing"],
    );
    let several = format!("{lookup_line}\nforward = [{{ url = \"http://a.test/\" }}, {{ url = \"http://b.test/\" }}]");
    wrong(&route(&several), &["`lookup` cannot work on this route", "several receivers"]);
    let unchanging = lookup(GOOD).replace(", change = { of = [\"tag\"], to = [\"sha\"] }", "");
    wrong(&unchanging, &["`lookup` needs `change`", "hint: once = "]);
    let waiting = lookup(GOOD).replace("verify = \"none\"", "verify = \"none\"\nrespond = \"done\"");
    wrong(&waiting, &["`lookup` and `respond = \"done\"` cannot be combined"]);
}

#[test]
fn a_registry_an_image_and_a_tag_are_needed_and_must_be_valid() {
    wrong(&lookup(r#"image = "a", tag = "b""#), &["`lookup` has no `registry`", "registry = \"ghcr.io\""]);
    wrong(&lookup(r#"registry = "ghcr.io", tag = "b""#), &["`lookup` has no `image`"]);
    wrong(&lookup(r#"registry = "ghcr.io", image = "a""#), &["`lookup` has no `tag`", "tag = \"{tag}\""]);
    for (registry, why) in [
        ("ghcr.io/o/app", "the name of the image belongs in `image`"),
        ("ftp://ghcr.io", "neither http nor https"),
        ("ghcr.io:http", "its port is not a number"),
        ("{owner}.io", "it is not the name or address of a host"),
        ("bob:s3cret@ghcr.io", "credentials do not belong in the address"),
    ] {
        let keys = GOOD.replace("ghcr.io", registry);
        wrong(&lookup(&keys), &["`registry` is not the address of a registry", why]);
    }
    for image in ["Owner/app", "{owner}//app", "/{owner}", "{owner}:{tag}", "", "a b", "{owner}."] {
        let keys = format!(r#"registry = "ghcr.io", image = "{image}", tag = "{{tag}}""#);
        wrong(&lookup(&keys), &["`image` cannot be asked for", "it is not the name of an image"]);
    }
    for image in ["ghcr.io/{owner}/app", "GHCR.io/{owner}/app"] {
        let keys = GOOD.replace("{owner}/app", image);
        wrong(
            &lookup(&keys),
            &["`image` begins with the name of the registry", "hint: image = \"{owner}/app\"", "1 error"],
        );
    }
    let local = GOOD.replace("ghcr.io", "http://127.0.0.1:5000").replace("{owner}/app", "127.0.0.1:5000/app");
    wrong(&lookup(&local), &["`image` begins with the name of the registry", "hint: image = \"app\""]);
    for tag in ["-{tag}", "a:b", "", "a/b", "sha256:{sha}"] {
        let keys = format!(r#"registry = "ghcr.io", image = "a", tag = "{tag}""#);
        wrong(&lookup(&keys), &["`tag` cannot be asked for", "it is not a tag"]);
    }
    wrong(&lookup(&GOOD.replace("{owner}", "{nobody}")), &["`{nobody}` is not a declared field"]);
    wrong(&lookup(&format!("{GOOD}, timeout = \"2m\"")), &["`timeout` is too long", "at most 1m"]);
    wrong(&lookup(&format!("{GOOD}, imgae = \"a\"")), &["did you mean `image`?"]);
}

#[test]
fn credentials_are_complete_and_not_in_the_file() {
    wrong(&lookup(&format!("{GOOD}, user = \"bob\"")), &["`user` and `password` belong together"]);
    wrong(&lookup(&format!("{GOOD}, password = {{ env = \"PASSWORD\" }}")), &["`user` and `password` belong together"]);
    wrong(
        &lookup(&format!("{GOOD}, user = \"bob\", password = \"hunter2\"")),
        &["`password` is written in the config file"],
    );
    wrong(
        &lookup(&format!("{GOOD}, user = \"bob\", password = {{ env = \"NOT_SET\" }}")),
        &["the environment variable `NOT_SET` is not set"],
    );
    wrong(
        &lookup(&format!("{GOOD}, credentials = \"\"")),
        &["`credentials` is empty", "expected \"docker\", or the path"],
    );
    let short = lookup(&format!("{GOOD}, user = \"bob\", password = {{ env = \"SHORT\" }}"));
    assert!(!problems(&short).contains("SHORT"), "how long it is was not chosen here: {}", problems(&short));
    let both = format!("{GOOD}, user = \"bob\", password = {{ env = \"PASSWORD\" }}, credentials = \"docker\"");
    wrong(&lookup(&both), &["`user` and `credentials` are both credentials"]);
    wrong(
        &lookup(&format!("{GOOD}, user = \"a:b\", password = {{ env = \"PASSWORD\" }}")),
        &["`user` has a colon in it"],
    );
    let passed =
        format!("lookup = {{ {GOOD}, user = \"bob\", password = {{ env = \"PASSWORD\" }} }}\nenv = [\"PASSWORD\"]");
    let passed = route(&format!("{passed}\nrun = {{ dir = \"/\", steps = [\"x\"] }}"));
    wrong(&passed, &["`PASSWORD` cannot be passed to a command"]);
}

#[test]
fn a_login_of_docker_is_looked_for_when_the_config_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let text = lookup(&format!("{GOOD}, credentials = \"{}\"", path.display()));
    wrong(&text, &["it cannot be read", "docker login ghcr.io"]);
    std::fs::write(&path, r#"{"auths":{"other.io":{"auth":"czNjcmV0OnMzY3JldA=="}}}"#).unwrap();
    wrong(&text, &["it has no login for ghcr.io", "docker login ghcr.io"]);
    std::fs::write(&path, r#"{"auths":{"ghcr.io":{}},"credsStore":"desktop"}"#).unwrap();
    wrong(&text, &["docker-credential-desktop", "which hookonce does not run", "password = { env"]);
    std::fs::write(&path, r#"{"auths":{"ghcr.io":{"auth":"Ym9iOnMzY3JldA=="}}}"#).unwrap();
    assert_eq!(problems(&text).matches("error: ").count(), 0, "{}", problems(&text));
    let docker = lookup(&format!("{GOOD}, credentials = \"docker\""));
    wrong(&docker, &["docker's config file cannot be found", "neither DOCKER_CONFIG nor HOME is set"]);
}

#[test]
fn what_is_risky_is_a_warning() {
    let shown = problems(&lookup(&GOOD.replace("ghcr.io", "http://registry.example.com:5000")));
    assert!(shown.contains("warning: the registry is asked without TLS"), "{shown}");
    assert!(!problems(&lookup(&GOOD.replace("ghcr.io", "http://127.0.0.1:5000"))).contains("without TLS"));
    let signed = lookup(&GOOD.replace("{owner}", "{open}"));
    let signed =
        signed.replace("verify = \"none\"", "verify = { scheme = \"github\", secret = { env = \"PASSWORD\" } }");
    let shown = problems(&signed);
    assert!(shown.contains("warning: `{open}` is not signed: it comes from header.x-open"), "{shown}");
}
