//! Runs every command of the document, in order, in a folder as steakpie left it.

use crate::{BY_CHANGE, database, house};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The commands of the document: lines after `$ ` in its console blocks.
fn commands() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/from-steakpie.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    let lines: Vec<String> = blocks.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_document_works() {
    let house = house("jamiec_ts:\n  run:\n    /tmp:\n      - - echo pull\n        - echo up\n");
    database(&house.path("db.sqlite"), BY_CHANGE, &["'d1', 'latest', 1, 'x'"]);
    let bin = house.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hookonce"), bin.join("hookonce")).unwrap();
    for program in ["systemctl", "sudo"] {
        fs::write(bin.join(program), "#!/bin/sh\necho \"$@\" >> \"${0%/*}/../asked\"\n").unwrap();
        fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let (mut ran, mut exports) = (0, String::new());
    for command in commands() {
        // As typed one after the other in one shell; placeholders for a secret get one.
        let command = command.replace('…', "secret");
        if command.starts_with("export ") {
            exports = format!("{exports}{command}\n");
            continue;
        }
        // The port may be taken, and the test must not wait until the node is stopped.
        let serves = command.ends_with("hookonce serve");
        if serves {
            let config =
                fs::read_to_string(house.path("hookonce.toml")).unwrap().replace("0.0.0.0:3142", "127.0.0.1:0");
            fs::write(house.path("hookonce.toml"), format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).unwrap();
        }
        let script = if serves {
            format!("{exports}{command} & sleep 2; kill $!; wait $!")
        } else {
            format!("{exports}{command}")
        };
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(house.dir.path()).env("PATH", &path).env_remove("WEBHOOK_SECRET");
        let output = shell.env_remove("DB_PATH").env_remove("PORT").stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        assert!(!serves || String::from_utf8_lossy(&output.stdout).contains("/version/1"), "{command}: {output:?}");
        ran += 1;
    }
    assert!(ran >= 5, "the document has only {ran} commands");
    assert!(house.lines("asked").iter().any(|line| line.contains("stop steakpie")));
}
