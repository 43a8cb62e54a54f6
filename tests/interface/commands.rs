//! The command line.

use crate::check;
use crate::support::House;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
    command.args(args).current_dir(folder.path()).env_remove("HOOKONCE_CONFIG").output().unwrap()
}

/// The subcommands of this command, recursively, and their flags.
fn flags(of: &[&str], found: &mut Vec<String>) {
    let help = String::from_utf8(run(&[of, &["--help"]].concat()).stdout).unwrap();
    let mut section = "";
    for line in help.lines() {
        match line {
            "Commands:" | "Options:" | "Arguments:" => section = line,
            _ if !line.starts_with(' ') && line.ends_with(':') => section = "",
            _ => {}
        }
        let indent = line.len() - line.trim_start().len();
        let mut words = line.split_whitespace().map(|word| word.trim_end_matches(','));
        let Some(first) = words.next() else { continue };
        match section {
            "Commands:" if indent == 2 && first != "help" => {
                found.push([of, &[first]].concat().join(" "));
                flags(&[of, &[first]].concat(), found);
            }
            "Options:" if indent <= 6 && first.starts_with('-') => {
                let names = line.split_whitespace().map(|word| word.trim_end_matches(','));
                let names = names.take_while(|word| word.starts_with(['-', '<']) || word.ends_with('>'));
                found.push(format!("{} {}", of.join(" "), names.collect::<Vec<_>>().join(" ")));
            }
            "Arguments:" if indent == 2 => found.push(format!("{} {first}", of.join(" "))),
            _ => {}
        }
    }
}

#[test]
fn the_commands_and_their_flags_are_as_they_were() {
    let mut found = Vec::new();
    flags(&[], &mut found);
    check("commands.txt", found);
}

#[test]
fn the_exit_codes_are_as_they_were() {
    let config = "[source.a]\npath = \"/a\"\nverify = \"none\"\ndelivery = \"header.x-id\"\n";
    let (right, wrong) = (House::empty(config), House::empty("[source.a]\nverify = \"nothing\"\n"));
    let code = |house: &House, args: &[&str]| {
        let output = house.command(args).output().unwrap();
        format!("{}: {}", args.join(" "), output.status.code().unwrap())
    };
    std::fs::write(right.path("delivery.json"), r#"{"headers": {"x-id": "1"}, "body": "{}"}"#).unwrap();
    let mut found = vec![
        code(&right, &["check"]),
        code(&right, &["list"]),
        code(&right, &["explain", "--source", "a", "delivery.json"]),
        code(&right, &["no-such-command"]),
        code(&right, &["migrate", "up"]),
        code(&right, &["show", "ffffffff"]),
    ];
    found.extend([&["check"][..], &["serve"]].map(|args| format!("a wrong config: {}", code(&wrong, args))));
    check("exit-codes.txt", found);
}
