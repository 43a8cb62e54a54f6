//! The outside interface, frozen: config keys, commands and their flags, exit codes, log words and their fields,
//! members of responses and of the API, metrics, tables and columns, Redis keys, `HOOKONCE_*` variables, NATS headers,
//! stored words, the lock file, the bytes of keys, and what the identities of presets are made of.
//!
//! Each test compares the current state with a file under `tests/interface/`. An intended change is written there with
//! `HOOKONCE_BLESS=1 cargo test --test interface` and described in CHANGELOG.md.
#![expect(clippy::unwrap_used, reason = "these are tests, their helpers too")]

#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/mod.rs"]
mod support;

mod commands;
mod json;
mod presets;
mod scenario;
mod stored;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// Compares these lines, sorted, with the file of this name, or writes it on request.
#[track_caller]
fn check(name: &str, lines: impl IntoIterator<Item = String>) {
    let lines: BTreeSet<String> = lines.into_iter().collect();
    assert!(!lines.is_empty(), "{name}: nothing was found");
    let path = root().join("tests/interface").join(name);
    if std::env::var_os("HOOKONCE_BLESS").is_some() {
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let frozen = std::fs::read_to_string(&path).unwrap_or_default();
    let frozen: BTreeSet<String> = frozen.lines().map(str::to_owned).collect();
    let gone: Vec<_> = frozen.difference(&lines).collect();
    let new: Vec<_> = lines.difference(&frozen).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "{} is out of date.\ngone: {gone:#?}\nnew: {new:#?}\n\
         Intended? HOOKONCE_BLESS=1 cargo test --test interface, and describe it in CHANGELOG.md.",
        path.display()
    );
}

/// The text of every Rust file under `src/`, without the tests at its end.
fn sources() -> Vec<String> {
    fn collect(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    collect(&root().join("src"), &mut found);
    found
}
