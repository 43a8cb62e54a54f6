//! Verification and fields together cost at most 1.3 times what an HMAC over the body and one borrowed parse of it cost,
//! in instructions, which do not depend on how busy this machine is. valgrind counts them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

const CASES: [&str; 4] = ["github", "stripe", "standard-webhooks", "entries"];
const RATIO_MAX: f64 = 1.3;
/// Rounds of a short and of a long run: what happens once, such as starting, is in both.
const ROUNDS: [u64; 2] = [20, 120];

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds the program that is counted, optimized.
fn program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/instructions");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--quiet", "--locked", "--manifest-path"]);
    build.arg(root.join("tests/instructions/Cargo.toml")).arg("--target-dir").arg(&target);
    // Flags of this run, such as those of a coverage, are not for it.
    build.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTC_WRAPPER");
    assert!(build.status().unwrap().success(), "it does not build");
    target.join("release/instructions")
}

/// The instructions of one round.
fn instructions(program: &Path, case: &str, what: &str) -> f64 {
    let counts = ROUNDS.map(|rounds| {
        let mut run = Command::new("valgrind");
        run.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
        let output = run.args([case, what, &rounds.to_string()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let count = said.lines().find_map(|line| line.split("Collected :").nth(1)).unwrap_or_else(|| panic!("{said}"));
        count.trim().parse::<u32>().unwrap()
    });
    f64::from(counts[1] - counts[0]) / f64::from(u32::try_from(ROUNDS[1] - ROUNDS[0]).unwrap())
}

#[test]
fn verification_and_fields_cost_little_more_than_a_signature_and_a_parse() {
    if !has("valgrind") {
        assert!(std::env::var_os("HOOKONCE_TOOLS").is_none(), "valgrind is missing; ./test installs it");
        eprintln!("not counted: valgrind is missing; ./test installs it");
        return;
    }
    let program = program();
    let mut over = Vec::new();
    for case in CASES {
        let [ours, baseline] = ["ours", "baseline"].map(|what| instructions(&program, case, what));
        let ratio = ours / baseline;
        println!("{case}: {ours:.0} instructions, {ratio:.2} times {baseline:.0}");
        if ratio > RATIO_MAX {
            over.push(format!("{case}: {ratio:.2}"));
        }
    }
    assert!(over.is_empty(), "more than {RATIO_MAX} times the baseline: {}", over.join(", "));
}
