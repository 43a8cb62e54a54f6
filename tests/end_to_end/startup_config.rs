//! Errors in the config that are reported before anything starts.

use crate::support::{House, SECRET};
use crate::{ghcr, numbers};
use std::process::Output;

fn run(house: &House, args: &[&str]) -> (Option<i32>, String, String) {
    said(&house.command(args).output().unwrap())
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Checks that `serve` exits with 2, prints this on standard error, and leaves no database.
fn check(house: &House, says: &str) {
    let (code, out, err) = run(house, &["serve"]);
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains(says), "{says:?} in {err:?}, standard output: {out:?}");
    assert_eq!(out, "");
    assert!(!house.path("hookonce.db").exists());
}

#[test]
fn check_exits_with_0_1_or_2_for_valid_invalid_or_unreadable() {
    let house = House::empty(&ghcr("run = { steps = [\"true\"] }"));
    let (code, out, _) = run(&house, &["check"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("ghcr") && !out.contains(SECRET), "{out}");
    house.configure(&ghcr("run = { stepz = [\"true\"] }"));
    let (code, out, err) = run(&house, &["check"]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("hookonce.toml:") && out.contains("steps"), "{out}");
    assert_eq!(run(&house, &["check", "--config", "nowhere.toml"]).0, Some(2));
    assert!(!house.path("hookonce.db").exists());
}

#[test]
fn serve_does_not_start_on_a_config_that_is_wrong() {
    let house = House::empty(&ghcr("run = { steps = [\"true\"] }\nwhenn = 'true'"));
    check(&house, "nothing was started");
    check(&house, "did you mean `when`?");
}

#[test]
fn serve_does_not_start_without_its_secret() {
    let house = House::empty(&ghcr("run = { steps = [\"true\"] }").replace("\"SECRET\"", "\"NOT_SET\""));
    check(&house, "NOT_SET");
}

#[test]
fn serve_does_not_start_on_a_port_in_use() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let house = House::empty(&format!("listen = \"{address}\"{}", numbers("", "run = { steps = [\"true\"] }")));
    check(&house, &address);
    check(&house, "hint: something else listens there");
}

#[test]
fn serve_does_not_start_beside_another_node() {
    let house = House::new(&numbers("", "run = { steps = [\"true\"] }"));
    let (code, out, err) = run(&house, &["serve"]);
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("hookonce.db"), "{err}");
}

#[test]
fn migrate_shows_the_version_of_the_store_and_changes_it() {
    let mut house = House::new(&numbers("", "run = { steps = [\"true\"] }"));
    // Reading is possible beside a running node, writing is not.
    let (code, out, err) = run(&house, &["migrate", "status"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.lines().count() >= 3 && out.lines().all(|line| line.contains("applied 2")), "{out}");
    assert_eq!(run(&house, &["migrate", "down", "--to", "0", "--yes"]).0, Some(2));
    assert!(house.stop().success());

    let (code, _, err) = run(&house, &["migrate", "down", "--to", "0"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("--yes"), "{err}");
    assert_eq!(run(&house, &["migrate", "down", "--to", "0", "--yes"]).0, Some(0));
    assert!(run(&house, &["migrate", "status"]).1.lines().all(|line| line.contains("not applied")));
    assert_eq!(run(&house, &["migrate", "up"]).0, Some(0));
    assert_eq!(run(&house, &["migrate", "up"]).1, "nothing to do\n");
    house.start();
}
