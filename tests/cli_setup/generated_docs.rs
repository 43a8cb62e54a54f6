//! What is made from what the program knows of itself: schema, reference, completions, manual, presets.

use super::run;
use super::support::House;
use hookonce::internals::config::{json_schema, reference};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a config matches the schema.
fn matches(text: &str) -> bool {
    let config: Value = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    jsonschema::draft202012::new(&json_schema::schema()).unwrap().is_valid(&config)
}

#[test]
fn the_schema_takes_every_example() {
    jsonschema::meta::validate(&json_schema::schema()).unwrap_or_else(|error| panic!("{error}"));
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<_> = readme.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        assert!(matches(block), "{block}");
    }
    let house = House::empty("");
    for kind in ["ghcr-deploy", "forward", "ci-ingestion", "hmac"] {
        run(&house, &["init", kind, "--force"]).has(0, &[]);
        let text = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
        assert!(matches(&text), "{text}");
    }
    let long = "listen = '127.0.0.1:1'\nstore = { env = 'S' }\n[admin]\ntokens = [{ token = { file = 't' }, may = 'all' }]\n\
                [source.s]\nverify = { scheme = 'github', secret = [{ env = 'A' }, { file = 'B' }] }\nbody_max = '1MB'\n\
                respond = 'done'\nrespond_within = '8s'\nwhen = 'exists(a)'\n\
                fields = { a = 'path', b = { at = 'body.\"x.y\"', trim = true, default = '' } }\n\
                once = { per = ['body', ['a', 'b']], change = { of = ['a'], to = ['b'] }, keep = '30d' }\n\
                [[source.s.route]]\ngroup = ['a']\nat_once = 4\nenv = ['A']\n\
                run = [{ steps = ['x', ['y', '{a}']], env = { B = 'c' }, shell = ['sh', '-c'] }]\n\
                [[source.s.route]]\ngroup = 'fixed'\nforward = { url = 'http://h/' }\n";
    assert!(matches(long));
}

#[test]
fn the_schema_refuses_what_check_refuses() {
    let source = |lines: &str| format!("[source.s]\nverify = 'none'\n{lines}\n");
    for wrong in [
        String::new(),
        "source = {}".into(),
        "[source.s]\npath = '/'".into(),
        source("whne = 'x'"),
        source("secret = 'literal'"),
        source("secret = { env = 'A', file = 'B' }"),
        source("secret = {}"),
        source("respond = 'later'"),
        source("body_max = '25'"),
        source("respond_within = '8 s'"),
        source("fields = { a = 'nowhere' }"),
        source("fields = { a = { trim = true } }"),
        source("once = { per = 'body' }"),
        source("once = { change = { of = ['a'] } }"),
        source("kind = { header = 'x' }"),
        source("from = 'nats'"),
        source("[[source.s.route]]\nrun = { timeout = '1s' }"),
        source("[[source.s.route]]\nat_once = 0"),
        source("[[source.s.route]]\nforward = { url = 5 }"),
        format!("listen = 'x'\n{}", source("")),
    ] {
        assert!(!matches(&wrong), "{wrong}");
    }
    assert!(matches(&source("")));
}

#[test]
fn the_schema_is_printed() {
    let said = run(&House::empty(""), &["schema"]);
    assert_eq!(said.has(0, &[]).json(), json_schema::schema());
}

#[test]
fn the_reference_is_up_to_date() {
    let path = root().join("docs/config.md");
    let made = reference::markdown();
    if std::env::var_os("HOOKONCE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "docs/config.md is out of date: HOOKONCE_BLESS=1 cargo test --test cli_setup writes it anew"
    );
}

#[test]
fn every_shell_gets_its_completions() {
    let house = House::empty("");
    for shell in ["bash", "zsh", "fish"] {
        run(&house, &["completions", shell]).has(0, &["explain", "live"]);
    }
    run(&house, &["completions", "tcsh"]).has(2, &["invalid value"]);
}

#[test]
fn there_is_a_manual_page_for_the_program_and_for_each_command() {
    let house = House::empty("");
    run(&house, &["man"]).has(0, &[".TH hookonce 1"]);
    run(&house, &["man", "--dir", "."]).has(0, &["./hookonce.1\n", "./hookonce-explain.1\n"]);
    let page = std::fs::read_to_string(house.path("hookonce-explain.1")).unwrap();
    assert!(page.contains("hookonce\\-explain") && page.contains("\\-\\-source"), "{page}");
    run(&house, &["man", "--dir", "gone"]).has(2, &["gone/hookonce.1 cannot be written"]);
}

#[test]
fn presets_are_listed_and_printed_with_their_comments() {
    let house = House::empty("");
    let first_lines = [
        "github-package   Packages of GitHub's container registry",
        "sports-stack     Sports Stack: each change once",
        "ci-ingestion     Results of CI runs",
        "idempotency-key  Clients of an HTTP API",
    ];
    run(&house, &["presets"]).has(0, &first_lines);
    let said = run(&house, &["presets", "github-package"]);
    said.has(0, &["# Packages of GitHub's container registry", "kind   = {"]);
    toml::from_str::<Value>(&said.out).unwrap();
    run(&house, &["presets", "github-pakage"]).has(2, &["did you mean `github-package`?"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let house = House::empty(&super::ghcr("run = { steps = ['true'] }"));
    let file = super::payload("storm_tags.jsonl");
    for args in
        [&["schema"][..], &["completions", "zsh"], &["man"], &["presets"], &["explain", &file], &["check", "--live"]]
    {
        let mut child = house.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert!(output.status.success(), "{args:?}: {:?}", output.status);
    }
}
