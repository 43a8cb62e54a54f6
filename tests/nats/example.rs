//! `examples/nats-workers` does what its README says.

use super::server::program;
use super::support::free_port;
use std::path::Path;
use std::process::Command;

/// The first of five free ports in a row.
fn five_ports() -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    std::iter::repeat_with(free_port).find(|first| (*first..first + 5).all(free)).unwrap()
}

#[test]
fn the_example_runs_and_makes_one_comment_and_one_sync() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/nats-workers/run.sh");
    let mut command = Command::new(script);
    command.env("HOOKONCE", env!("CARGO_BIN_EXE_hookonce")).env("NATS_SERVER", program());
    command.env("PORT", five_ports().to_string()).env_remove("HOOKONCE_CONFIG");
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success(), "{text}\n{}", String::from_utf8_lossy(&said.stderr));
    assert!(text.ends_with("--- comments\ncomment on octocat/hello #7\n--- syncs\nsync octocat/hello\n"), "{text}");
    assert!(text.contains("\"status\":\"duplicate\""), "{text}");
}
