//! Bad input: a sentence and the right code, never a panic.

use crate::support::House;
use crate::{delivered, end, numbers, run, run_knowing};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

#[tokio::test]
async fn bad_arguments_are_reported_in_a_sentence() {
    let house = House::empty(&numbers());
    std::fs::create_dir(house.path("folder")).unwrap();
    std::fs::write(house.path("binary"), [0xffu8; 4096]).unwrap();
    let foreign = rusqlite::Connection::open(house.path("foreign.db")).unwrap();
    foreign.execute_batch("create table theirs (a)").unwrap();
    drop(foreign);
    for (store, part) in [
        ("missing.db", "there is no database at missing.db"),
        ("folder", "folder is a folder; give the path of the database in it"),
        ("binary", "binary is not an SQLite database"),
        ("foreign.db", "another program's database"),
        ("mysql://x", "expected memory:, sqlite:PATH, postgres://HOST/DATABASE or redis://HOST"),
        ("memory:", "a memory store exists only inside its node"),
        ("", "it is empty"),
    ] {
        for args in [&["list"][..], &["show", "a"], &["replay", "a"], &["cancel", "a"], &["forget", "a", "--yes"]] {
            run(&house, &[args, &["--store", store]].concat()).check(2, part);
        }
    }
    let left: Vec<_> = std::fs::read_dir(house.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "nothing was created: {left:?}");
    for (args, part) in [
        (&["list"][..], "there is no database at"),
        (&["list", "-c", "no.toml"], "there is no config at no.toml"),
        (&["list", "-c", "folder"], "the config folder is a folder"),
        (&["list", "-c", "binary"], "is not UTF-8"),
        (&["list", "--admin", "not an address"], "is not the address of an admin port"),
        (&["list", "--store", "a", "--admin", "b"], "cannot be used with"),
        (&["list", "--state", "tired"], "[possible values: waiting, running, done, dead]"),
        (&["list", "--limit", "0"], "0 is not in 1.."),
        (&["show"], "required"),
        (&["tell"], "unrecognized subcommand"),
    ] {
        run(&house, args).check(2, part);
    }
    house.configure("store = \"memory:\"\n[source.x]\nverify = \"none\"\n");
    run(&house, &["list"]).check(2, "the config keeps events in memory, and no node responds at");
    house.configure("store = 5\n[source.x]\nverify = \"none\"\n");
    run(&house, &["list"]).check(2, "hookonce.toml:2:9");
}

#[tokio::test]
async fn an_address_of_another_server_is_distinguished_from_a_node() {
    let house = House::new(&numbers());
    let ingest = house.url("");
    run(&house, &["list", "--admin", &ingest]).check(2, "does not respond like an admin port of hookonce");
    run(&house, &["show", "a", "--admin", &ingest]).check(2, "does not respond like an admin port of hookonce");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = silent.accept() {
            drop(stream);
        }
    });
    run(&house, &["list", "--admin", &address]).check(2, "no node responds at");
}

#[tokio::test]
async fn a_closed_pipe_is_no_error() {
    let house = House::new(&numbers());
    for n in 1..=3 {
        delivered(&house, &format!("id-{n}"), n).await;
    }
    for args in [&["list"][..], &["list", "--json"], &["show", "id-1"], &["show", "id-1", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = house.command(args);
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap());
        let said = end_of(command);
        assert_eq!(said, (Some(0), String::new()), "{args:?}");
        let mut both = house.command(&["show", "nobody"]);
        both.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        assert_eq!(both.status().unwrap().code(), Some(1), "even if nothing can be printed");
    }
}

fn end_of(mut command: std::process::Command) -> (Option<i32>, String) {
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn an_interrupt_ends_a_waiting_command_and_is_reported() {
    let house = House::empty(&numbers());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut command = house.command(&["list", "--admin", &address]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (_connection, _) = silent.accept().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
}

#[test]
fn every_command_explains_itself() {
    let house = House::empty(&numbers());
    for name in ["list", "show", "tail", "replay", "cancel", "forget", "send"] {
        let help = end(house.command(&[name, "--help"])).fine();
        assert!(help.contains("--json") && help.contains("--admin"), "{help}");
        assert!(name == "send" || help.contains("Read this store directly: `sqlite:PATH`"), "{help}");
        assert_eq!(help.contains("listed beside the event that made it"), name == "list", "{help}");
    }
}

/// What prints a config's problems behind `error: ` prints no warning there.
#[tokio::test]
async fn a_warning_of_a_config_is_not_printed_as_its_error() {
    let house = House::empty(
        "[source.quiet]\nverify = \"none\"\n[source.typo]\npreset = \"strip\"\nsecret = { env = \"SECRET\" }\n",
    );
    std::fs::write(house.path("j.json"), "{}").unwrap();
    for args in
        [&["explain", "j.json"][..], &["send", "--sample"], &["migrate", "status"], &["notify", "test"], &["catch-up"]]
    {
        let said = run_knowing(&house, args);
        said.check(2, "error: there is no preset `strip`");
        assert!(!said.err.contains("warning") && said.err.matches("error:").count() == 1, "{args:?}: {said:?}");
    }
}
