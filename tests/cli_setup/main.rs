//! The set-up commands, from outside: the real binary on real files, beside a real node.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod check_live;
mod explain;
mod explain_prediction;
mod generated_docs;
mod init;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::House;

/// The output of a command, and its exit code.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// Its output contains all of these words, and it did not panic.
    #[track_caller]
    fn has(&self, code: i32, words: &[&str]) -> &Self {
        let all = format!("{}{}", self.out, self.err);
        assert_eq!(self.code, code, "{all}");
        assert!(!all.contains("panicked"), "{all}");
        for word in words {
            assert!(all.contains(word), "no {word:?} in:\n{all}");
        }
        self
    }
}

/// Runs the binary in this folder, with empty standard input.
fn run(house: &House, args: &[&str]) -> Said {
    said(house.command(args), b"")
}

/// Runs a command with this on its standard input.
fn said(mut command: Command, input: &[u8]) -> Said {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read may have exited already.
    child.stdin.take().unwrap().write_all(input).ok();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// The full path of a test payload.
fn payload(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/payloads").join(name).display().to_string()
}

/// A source of the first user, with this route.
fn ghcr(route: &str) -> String {
    format!(
        r#"
[source.ghcr]
preset = "github-package"
path   = "/version/1"
secret = {{ env = "SECRET" }}
[[source.ghcr.route]]
name = "deploy"
{route}
"#
    )
}
