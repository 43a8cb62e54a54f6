//! Verification and fields together cost at most 1.3 times what an HMAC over the body and one borrowed parse of it cost,
//! in instructions, which do not depend on how busy this machine is. valgrind counts them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each way to sign, and how many times the baseline it may take.
const CASES: [(&str, f64); 6] = [
    ("github", RATIO_MAX),
    ("stripe", RATIO_MAX),
    ("standard-webhooks", RATIO_MAX),
    ("entries", RATIO_MAX),
    // Of a small body, what does not depend on its size is more.
    ("github-1k", RATIO_MAX_OF_1_KB),
    ("stripe-1k", RATIO_MAX_OF_1_KB),
];
const RATIO_MAX: f64 = 1.3;
const RATIO_MAX_OF_1_KB: f64 = 1.6;
/// Rounds of a short and of a long run: what happens once, such as starting, is in both.
const ROUNDS: [u64; 2] = [20, 120];

/// Whether valgrind is here; `./test` has installed it.
fn has_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("HOOKONCE_TOOLS").is_none(), "valgrind is missing; ./test installs it");
        eprintln!("not counted: valgrind is missing; ./test installs it");
    }
    found
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

/// The instructions that the steps of a delivery take (`tests/instructions/src/steps.rs`), small or with a body of 10 KB,
/// as counted with this compiler: a change that makes one dearer shows here. The case, the step, and the one before it.
const STEPS: [(&str, &str, &str, f64); 6] = [
    ("steps", "judge", "sign", 74_689.0),
    ("steps", "claim", "judge", 18_239.0),
    ("steps", "repeat", "judge", 2_157.0),
    ("steps", "answer", "judge", 3_890.0),
    ("steps-10k", "judge", "sign", 917_530.0),
    ("steps-10k", "claim", "judge", 17_668.0),
];
const COUNTED_WITH: &str = "rustc 1.95.0";
/// How much dearer a step may be. Another compiler makes other instructions of the same.
const ROOM: f64 = 1.03;
const ROOM_OF_ANOTHER_COMPILER: f64 = 1.15;

#[test]
fn verification_and_fields_cost_little_more_than_a_signature_and_a_parse() {
    if !has_valgrind() {
        return;
    }
    let program = program();
    let mut over = Vec::new();
    for (case, ratio_max) in CASES {
        // The digest of the body is made on the way, which belongs to the identities.
        let [ours, digest, baseline] = ["ours", "digest", "baseline"].map(|what| instructions(&program, case, what));
        let ratio = (ours - digest) / baseline;
        println!("{case}: {ours:.0} instructions without the digest's {digest:.0}, {ratio:.2} times {baseline:.0}");
        if ratio > ratio_max {
            over.push(format!("{case}: {ratio:.2}, not {ratio_max}"));
        }
    }
    assert!(over.is_empty(), "more times the baseline than they may: {}", over.join(", "));
}

#[test]
fn a_judgement_a_claim_a_repeat_and_an_answer_take_no_more_instructions_than_before() {
    if !has_valgrind() {
        return;
    }
    let program = program();
    let version = Command::new("rustc").arg("--version").output().unwrap();
    let same = String::from_utf8_lossy(&version.stdout).starts_with(COUNTED_WITH);
    let room = if same { ROOM } else { ROOM_OF_ANOTHER_COMPILER };
    let mut over = Vec::new();
    for (case, step, after, counted) in STEPS {
        let [whole, before] = [step, after].map(|step| instructions(&program, case, step));
        let own = whole - before;
        println!("{case} {step}: {own:.0} instructions, {:.3} times {counted:.0}", own / counted);
        if own > counted * room {
            over.push(format!("{case} {step}: {own:.0} instead of {counted:.0}"));
        }
    }
    assert!(over.is_empty(), "dearer by more than {room}; if that is meant, change the counts: {}", over.join(", "));
}
