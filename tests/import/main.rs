//! Coming from steakpie (its config, its database, and a node that continues where it stopped) and from adnanh/webhook.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod command_trees;
mod document;
mod end_to_end;
mod from_webhook;
mod report;
#[path = "../support/seed.rs"]
mod seed;
#[path = "../support/mod.rs"]
mod support;
mod webhook_requests;

use std::path::Path;
use std::process::{Command, Output};
use support::{House, SECRET};

/// The older table: a delivery id.
const BY_ID: &str = "create table events (id text primary key, timestamp datetime not null, repository text not null);";
/// The newer one: with what was deployed.
const BY_CHANGE: &str = "create table events (delivery_id text primary key, tag text not null, \
    version_id integer not null, sha text not null, timestamp datetime not null, repository text not null);";

/// Creates a database as steakpie leaves it: its table, and these rows.
fn database(path: &Path, table: &str, rows: &[&str]) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    db.execute_batch(table).unwrap();
    for row in rows {
        let at = "'2026-02-07 16:20:40+00:00', 'jamiec_ts'";
        db.execute_batch(&format!("insert into events values ({row}, {at})")).unwrap();
    }
}

/// A folder with steakpie's config, and none of ours.
fn house(yaml: &str) -> House {
    let house = House::empty("");
    std::fs::remove_file(house.path("hookonce.toml")).unwrap();
    std::fs::write(house.path("config.yml"), yaml).unwrap();
    house
}

/// `hookonce import steakpie` with these arguments.
fn import(house: &House, args: &[&str]) -> Command {
    let mut command = house.command(&["import", "steakpie"]);
    command.args(args).env_remove("DB_PATH").env_remove("PORT").env_remove("WEBHOOK_SECRET");
    command
}

/// Its exit code and output.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs it, and expects this exit code and these words on standard output or error.
fn check(house: &House, args: &[&str], code: i32, words: &[&str]) -> String {
    let (ended, out, error) = said(&import(house, args).output().unwrap());
    let all = format!("{out}{error}");
    assert_eq!(ended, Some(code), "{all}");
    for word in words {
        assert!(all.contains(word), "no {word:?} in the output:\n{all}");
    }
    all
}

/// Starts a node on the imported config, on free ports.
fn start(house: &mut House) {
    let config = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
    let config = config.replace("listen = \"0.0.0.0:3142\"", "listen = \"127.0.0.1:0\"");
    std::fs::write(house.path("here.toml"), format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).unwrap();
    let mut command = house.command(&["serve", "--config", "here.toml"]);
    command.env("WEBHOOK_SECRET", SECRET);
    house.try_start_by(command).unwrap();
}
