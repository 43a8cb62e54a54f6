//! `hookonce init`: every kind is written, loads, and is not written over.

use super::house::House;
use super::{run, said};
use std::os::unix::fs::PermissionsExt as _;

const KINDS: [(&str, &str); 4] =
    [("ghcr-deploy", "/in/ghcr"), ("forward", "/in/github"), ("ci-ingestion", "/in/ci"), ("hmac", "/in/hook")];

/// A house without a config.
fn empty() -> House {
    let house = House::empty("");
    std::fs::remove_file(house.path("hookonce.toml")).unwrap();
    house
}

#[test]
fn every_kind_loads_without_a_warning_but_for_folders_that_do_not_exist() {
    for (kind, path) in KINDS {
        let house = empty();
        run(&house, &["init", kind]).has(
            0,
            &[
                "wrote hookonce.toml and hookonce.secret",
                &format!("https://YOUR-HOST{path} "),
                "application/json",
                "the line in hookonce.secret",
                "Then:\n  hookonce check\n  hookonce serve\n",
            ],
        );
        let checked = run(&house, &["check", "--json"]).has(0, &[]).json();
        for problem in checked["problems"].as_array().unwrap() {
            assert!(problem["title"].as_str().unwrap().starts_with("the folder "), "{problem}");
        }
        let url = checked["sources"][0]["path"].as_str().unwrap();
        assert_eq!(url, path, "what is said is what is written");
        let mode = std::fs::metadata(house.path("hookonce.secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let secret = std::fs::read_to_string(house.path("hookonce.secret")).unwrap();
        assert!(secret.len() == 65 && hex::decode(secret.trim()).is_ok_and(|bytes| bytes.len() == 32), "{secret:?}");
    }
}

#[test]
fn nothing_is_written_over_without_force() {
    for there in ["hookonce.toml", "hookonce.secret"] {
        let house = empty();
        std::fs::write(house.path(there), "mine").unwrap();
        run(&house, &["init", "hmac"]).has(1, &[&format!("{there} is already there; nothing was written")]);
        assert_eq!(std::fs::read_to_string(house.path(there)).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 1);
        run(&house, &["init", "hmac", "--force"]).has(0, &[]);
        run(&house, &["check"]).has(0, &["hookonce.toml is fine\n"]);
        assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn it_is_written_where_it_is_told_to_and_says_how_to_use_it_there() {
    let house = empty();
    std::fs::create_dir(house.path("etc")).unwrap();
    run(&house, &["init", "forward", "--out", "etc/h.toml"])
        .has(0, &["wrote etc/h.toml and etc/hookonce.secret", "hookonce check --config etc/h.toml"]);
    run(&house, &["check", "--config", "etc/h.toml"]).has(0, &["is fine\n"]);
}

#[test]
fn without_a_terminal_or_with_a_bad_kind_it_says_what_there_is() {
    let house = empty();
    run(&house, &["init"]).has(2, &["one of: ghcr-deploy, forward, ci-ingestion, hmac"]);
    said(house.command(&["init"]), b"1\n\n\n").has(2, &["what is it for?"]);
    run(&house, &["init", "forwrad"]).has(2, &["did you mean `forward`?"]);
    run(&house, &["init", "hmac", "--out", "no/h.toml"]).has(2, &["no/hookonce.secret cannot be written"]);
    run(&house, &["init", "hmac", "--out", "."]).has(1, &["already there"]);
    assert_eq!(std::fs::read_dir(house.dir.path()).unwrap().count(), 0);
}
