//! The commands of an operator: the real binary, on a real store, over a real socket.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bad_input;
mod healthcheck;
mod list_and_show;
mod registers;
mod replay_cancel_forget;
mod send;
mod send_presets;
mod send_samples;
#[path = "../support/mod.rs"]
mod support;
mod tail;
mod terminal;

use serde_json::Value as Json;
use std::process::{Command, Stdio};
use support::{House, Sent, free_port};

/// Where the numbers arrive.
const IN: &str = "/in";
/// Fails for 13, waits for a file for 7, and prints what it does meanwhile.
const STEP: &str = "echo acting on $HOOKONCE_FIELD_N; test $HOOKONCE_FIELD_N != 13 || exit 3; \
                    test $HOOKONCE_FIELD_N != 7 || until test -e go; do echo still; sleep 0.02; done; echo $HOOKONCE_FIELD_N >> runs";

/// A source of bodies such as `{"n":1}`, on ports that the system chooses.
fn numbers() -> String {
    with_ports(0, 0, "")
}

fn with_ports(listen: u16, admin: u16, more: &str) -> String {
    format!(
        r#"
listen = "127.0.0.1:{listen}"
[admin]
listen = "127.0.0.1:{admin}"
{more}
[source.numbers]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n", word = "body.word" }}
once   = {{ per = ["delivery", "body"] }}
[[source.numbers.route]]
name = "act"
run  = {{ steps = ["{STEP}"] }}
"#
    )
}

/// The same on ports named in the config, so that commands find the node by it.
fn on_known_ports(more: &str) -> House {
    House::new(&with_ports(free_port(), free_port(), more))
}

/// Delivers a number under this id, and waits until nothing runs; returns its event.
async fn delivered(house: &House, id: &str, n: u64) -> String {
    let event = begun(house, id, n).await;
    house.quiet().await;
    event
}

/// The same without waiting.
async fn begun(house: &House, id: &str, n: u64) -> String {
    house.deliver(IN, &Sent::github("push", id, &format!("{{\"n\":{n},\"word\":\"w{n}\"}}"))).await.event()
}

/// The output of a command, and its exit code.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn of(output: std::process::Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// It succeeded.
    fn fine(self) -> String {
        assert_eq!((self.code, &*self.err), (Some(0), ""), "{self:?}");
        self.plain()
    }

    /// It exited with this code, and printed this to standard error.
    fn check(&self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(part), "{part:?} is not in {self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
    }

    fn plain(self) -> String {
        assert!(!self.out.contains('\x1b'), "escapes in a pipe: {self:?}");
        self.out
    }

    fn json(self) -> Json {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn end(mut command: Command) -> Said {
    Said::of(command.output().unwrap())
}

/// Runs the binary in the folder of this node, without its secret.
fn run(house: &House, args: &[&str]) -> Said {
    let mut command = house.command(args);
    command.stdin(Stdio::null()).env_remove("SECRET").env_remove("HOOKONCE_ADMIN_TOKEN");
    end(command)
}

/// Runs it with its secret.
fn run_knowing(house: &House, args: &[&str]) -> Said {
    let mut command = house.command(args);
    command.stdin(Stdio::null());
    end(command)
}
