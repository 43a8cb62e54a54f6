//! The input of a command, and the meaning of its exit.

use super::*;
use hookonce::decide::limits::{BODY_BYTES_MAX, OUTPUT_BYTES_MAX};
use hookonce::internals::action::plan::EnvEntry;

async fn check(step: CommandLine, word: &str, why: &str) {
    let bench = Bench::new();
    std::fs::write(bench.path("not-executable"), "").unwrap();
    let outcome = bench.act(&*run(vec![bench.block([step])])).await;
    assert_eq!((outcome.word(), outcome.why()), (word, why));
}

#[tokio::test]
async fn an_exit_code_has_the_meaning_of_a_shell() {
    check(sh("exit 0"), "delivered", "").await;
    check(sh("exit 1"), "failed", "step 1 of block 1 exited with 1: exit 1").await;
    check(sh("exit 255"), "failed", "step 1 of block 1 exited with 255: exit 255").await;
    check(sh("exit 126"), "rejected", "step 1 of block 1 exited with 126: exit 126").await;
    check(sh("no-such-program"), "rejected", "step 1 of block 1 exited with 127: no-such-program").await;
    check(sh("kill -9 $$"), "failed", "step 1 of block 1 was ended by signal 9: kill -9 $$").await;
    check(sh("kill $$"), "failed", "step 1 of block 1 was ended by signal 15: kill $$").await;
}

#[tokio::test]
async fn a_step_that_cannot_be_started_is_rejected() {
    let why =
        "step 1 of block 1 could not be started, No such file or directory (os error 2): [\"no-such-program\", \"x\"]";
    check(argv(["no-such-program", "x"]), "rejected", why).await;
    let why = "step 1 of block 1 could not be started, Permission denied (os error 13): [\"./not-executable\"]";
    check(argv(["./not-executable"]), "rejected", why).await;
    check(argv([]), "rejected", "step 1 of block 1 could not be started, there is no program to start: []").await;

    let bench = Bench::new();
    let block = CommandBlock { dir: WorkingDir::Fixed("/no/such/folder".into()), ..bench.block([sh("exit 0")]) };
    let outcome = bench.act(&*run(vec![block])).await;
    let why = "step 1 of block 1 could not be started, its `dir` is not a folder: exit 0";
    assert_eq!((outcome.word(), outcome.why()), ("rejected", why));
}

#[tokio::test]
async fn a_guard_that_cannot_be_started_is_a_failure_since_nothing_happened() {
    let bench = Bench::new();
    for program in ["/no/such/guard", "/bin/false"] {
        let environment = ActionEnvironment { guard: GuardProgram(program.into()), ..environment(&[], &[]) };
        bench.lease.extend(boottime() + PATIENCE);
        // More than a socket buffer holds, so that a guard that is gone is noticed during the write.
        let bench = Bench { payload: Payload { headers: vec![], body: vec![0; 4 << 20].into() }, ..Bench::new() };
        let plan = ActionPlan::Run(vec![bench.block([sh("exit 0")])]);
        let outcome = bench.act(&*build_action(plan, &environment).unwrap()).await;
        assert_eq!(outcome.word(), "failed", "{program}: {}", outcome.why());
    }
}

#[tokio::test]
async fn a_step_runs_only_if_the_one_before_succeeded_and_blocks_do_not_depend_on_each_other() {
    let mut bench = Bench::new();
    let blocks = || {
        vec![
            bench.block([sh("echo a >> log"), sh("test -e good"), sh("echo b >> log")]),
            bench.block([sh("echo c >> log")]),
            bench.block([sh("exit 127")]),
        ]
    };
    let blocks = blocks();
    let outcome = bench.act(&*run(blocks.clone())).await;
    assert_eq!(outcome.why(), "step 1 of block 3 exited with 127: exit 127", "the worst counts");
    assert_eq!(bench.read("log"), "a\nc\n");
    assert_eq!(bench.blocks.blocks(), SucceededBlocks(0b010));
    bench.blocks.changed().await;

    // A retry runs only the blocks that have not succeeded, each from its first step.
    bench.event.blocks = bench.blocks.blocks();
    std::fs::write(bench.path("good"), "").unwrap();
    let outcome = bench.act(&*run(blocks[..2].to_vec())).await;
    assert_eq!(outcome, Outcome::Delivered(None));
    assert_eq!(bench.read("log"), "a\nc\na\nb\n");
    assert_eq!(bench.blocks.blocks(), SucceededBlocks(0b011));
}

#[tokio::test]
async fn the_body_is_the_unchanged_input_up_to_its_limit() {
    let bench = Bench::body(&b"\0\xff{\"a\": 1}\r\n"[..]);
    assert_eq!(bench.sh("cat > copy").await.word(), "delivered");
    assert_eq!(std::fs::read(bench.path("copy")).unwrap(), bench.payload.body);

    let bench = Bench::body(vec![b'x'; BODY_BYTES_MAX]);
    assert_eq!(bench.sh("cat > copy").await.word(), "delivered");
    assert!(std::fs::read(bench.path("copy")).unwrap() == bench.payload.body);
}

#[tokio::test]
async fn a_command_need_not_read_its_input() {
    let bench = Bench::body(vec![b'x'; BODY_BYTES_MAX]);
    assert_eq!(bench.sh("exit 0").await.word(), "delivered");
    assert_eq!(
        bench.sh("head -c 3 > few; exit 4").await.why(),
        "step 1 of block 1 exited with 4: head -c 3 > few; exit 4"
    );
    assert_eq!(bench.read("few"), "xxx");
}

#[tokio::test]
async fn the_environment_is_what_is_listed_and_nothing_else() {
    let own = [
        ("HOME", "/home/me"),
        ("LC_ALL", "C.UTF-8"),
        ("DOCKER_HOST", "unix:///run/docker.sock"),
        ("DOCKER_TOKEN", "canary-1"),
        ("WEBHOOK_SECRET", "canary-2"),
        ("LD_PRELOAD", "/tmp/evil.so"),
        ("BASH_ENV", "/tmp/evil.sh"),
        ("REGION", "north"),
        ("HOOKONCE_FIELD_GONE", "old"),
    ];
    let environment = environment(&own, &["WEBHOOK_SECRET", "DOCKER_TOKEN"]);
    let mut bench = Bench::with([("tag", "latest".into()), ("version-id.x", "7".into()), ("blank", String::new())]);
    (bench.event.life, bench.event.attempt) = (2, 3);
    bench.event.delivery_id = Some("f168a0a0-0440".into());
    let pass = |name: &str| EnvEntry::Pass(name.into());
    let env = vec![
        pass("REGION"),
        pass("WEBHOOK_SECRET"),
        pass("NOT_THERE"),
        pass("HOOKONCE_FIELD_GONE"),
        EnvEntry::Set("LC_ALL".into(), "C".into()),
    ];
    let block = CommandBlock { env, ..bench.block([argv(["env"])]) };
    let outcome = bench.act(&*build_action(ActionPlan::Run(vec![block]), &environment).unwrap()).await;
    assert_eq!(outcome.word(), "delivered");
    let shown = bench.shown();
    let mut lines: Vec<_> = shown.lines().collect();
    lines.sort_unstable();
    let trace = lines.iter().position(|line| line.starts_with("TRACEPARENT=")).map(|at| lines.remove(at)).unwrap();
    assert!(trace.starts_with(&format!("TRACEPARENT=00-{}-", hex::encode(bench.event.id.0))), "{trace}");
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let event = format!("HOOKONCE_EVENT={}.2", bench.event.id);
    let expected = [
        "DOCKER_HOST=unix:///run/docker.sock",
        "HOME=/home/me",
        "HOOKONCE_ATTEMPT=3",
        "HOOKONCE_DELIVERY=f168a0a0-0440",
        event.as_str(),
        "HOOKONCE_FIELD_BLANK=",
        "HOOKONCE_FIELD_TAG=latest",
        "HOOKONCE_FIELD_VERSION_ID_X=7",
        "HOOKONCE_ROUTE=1",
        "HOOKONCE_SOURCE=ghcr",
        "LC_ALL=C",
        path.as_str(),
        "REGION=north",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn two_hundred_hostile_values_run_nothing() {
    let evils = [
        "$(touch canary)",
        "`touch canary`",
        "; touch canary",
        "& touch canary &",
        "| touch canary",
        "|| touch canary",
        "\ntouch canary\n",
        "'; touch canary; '",
        "\"; touch canary; \"",
        "${IFS}touch${IFS}canary",
        "\\\ntouch canary",
        "%n%s%x",
        "() { :;}; touch canary",
        "<(touch canary)",
        "> canary",
        ">>canary",
        "-rf",
        "--exec=touch canary",
        "-e touch canary",
        "*",
        "../../canary",
        "{touch,canary}",
        "ünïcødé ☃ \u{202e}yranac",
        "#!/bin/sh\ntouch canary",
        "\u{1b}]0;x\u{7}",
    ];
    let prefixes = ["", "a", " ", "'", "\"", "\\", "$", "x\n"];
    let mut count = 0;
    for value in evils.iter().flat_map(|evil| prefixes.map(|prefix| format!("{prefix}{evil}"))) {
        let bench = Bench::with([("x", value.clone())]);
        let by_env = r#"printf %s "$HOOKONCE_FIELD_X"; : $HOOKONCE_FIELD_X"#;
        let block = |step| bench.block([sh(by_env), sh("printf '|'"), step]);
        let outcome = bench.act(&*run(vec![block(argv(["printf", "%s", "{x}"]))])).await;
        if value.starts_with('-') {
            assert_eq!(outcome.word(), "rejected", "{value:?}");
            let outcome = bench.act(&*run(vec![block(argv(["printf", "--", "%s", "{x}"]))])).await;
            assert_eq!(outcome.word(), "delivered", "{value:?}: options have ended");
            assert_eq!(bench.shown(), format!("{value}|{value}|{value}"));
        } else {
            assert_eq!(outcome.word(), "delivered", "{value:?}");
            assert_eq!(bench.shown(), format!("{value}|{value}"));
        }
        assert_eq!(std::fs::read_dir(bench.dir.path()).unwrap().count(), 0, "{value:?} left something");
        count += 1;
    }
    assert_eq!(count, 200);
}

#[tokio::test]
async fn a_field_that_does_not_fit_is_rejected_by_name_and_never_shown() {
    let says = async |fields: &[(&'static str, &str)], step: CommandLine, dir: &str| {
        let bench = Bench::with(fields.iter().map(|&(name, value)| (name, value.to_owned())));
        std::fs::create_dir(bench.path("app")).unwrap();
        let mut block = bench.block([step]);
        let last =
            if dir.is_empty() { FieldTemplatePart::Text("app".into()) } else { FieldTemplatePart::Field(dir.into()) };
        block.dir = WorkingDir::Named(FieldTemplate(vec![FieldTemplatePart::Text(format!("{}/", block.dir)), last]));
        let outcome = bench.act(&*run(vec![block])).await;
        assert_eq!(bench.shown(), "");
        format!("{}: {}", outcome.word(), outcome.why())
    };
    let fine = || sh("exit 0");
    for value in ["..", ".", "", "a/b", "/etc", "app\0"] {
        let why = "rejected: step 1 of block 1 cannot be started, the field `x` is not one segment of a path: exit 0";
        assert_eq!(says(&[("x", value)], fine(), "x").await, why, "{value:?}");
    }
    assert_eq!(says(&[("x", "app")], fine(), "x").await, "delivered: ");
    let why = "rejected: step 1 of block 1 could not be started, its `dir` is not a folder: exit 0";
    assert_eq!(says(&[("x", "other")], fine(), "x").await, why);
    let why = "rejected: step 1 of block 1 cannot be started, the field `y` is missing: [\"echo\", \"{y}\"]";
    assert_eq!(says(&[], argv(["echo", "{y}"]), "").await, why);
    let why = "rejected: step 1 of block 1 cannot be started, `{y}` would be taken for an option: it begins with `-`: [\"echo\", \"{y}\"]";
    assert_eq!(says(&[("y", "-n")], argv(["echo", "{y}"]), "").await, why);
    let why = "rejected: step 1 of block 1 cannot be started, `{y}` has a NUL byte, which cannot be passed to a command: [\"echo\", \"{y}\"]";
    assert_eq!(says(&[("y", "a\0b")], argv(["echo", "{y}"]), "").await, why);
    let why = "rejected: step 1 of block 1 cannot be started, `HOOKONCE_FIELD_Y` has a NUL byte, which cannot be passed to a command: exit 0";
    assert_eq!(says(&[("y", "a\0b")], fine(), "").await, why);
    let why = "rejected: step 1 of block 1 cannot be started, the field `y` is not one segment of a path: [\"{y}\"]";
    assert_eq!(says(&[("y", "/bin/true")], argv(["{y}"]), "").await, why);
}

#[tokio::test]
async fn the_head_and_the_tail_of_what_a_command_wrote_are_kept() {
    let bench = Bench::new();
    let text = "echo first >&2; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last";
    assert_eq!(bench.sh(text).await.word(), "delivered");
    let shown = bench.shown();
    assert!(shown.starts_with("first\nxxx"), "{:?}", &shown[..20]);
    assert!(shown.ends_with("xxx\nlast\n"));
    let left_out = 3_000_012 - OUTPUT_BYTES_MAX;
    assert!(shown.contains(&format!("\n… {left_out} bytes left out …\n")));
}

#[tokio::test]
async fn stdout_and_stderr_are_kept_in_the_order_of_a_terminal() {
    let bench = Bench::new();
    let text = "n=0; while test $n -lt 200; do echo out $n; echo error $n >&2; n=$((n + 1)); done";
    assert_eq!(bench.sh(text).await.word(), "delivered");
    let expected: Vec<_> = (0..200).flat_map(|n| [format!("out {n}"), format!("error {n}")]).collect();
    assert_eq!(bench.shown().lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_live_stream_shows_output_while_the_command_runs() {
    let mut bench = Bench::new();
    let action = run(vec![bench.block([sh("echo now; until test -e go; do sleep 0.01; done; echo then")])]);
    let mut live = std::mem::replace(&mut bench.live, broadcast::channel(1).1);
    let go = bench.path("go");
    let looking = async {
        let first = live.recv().await.unwrap();
        std::fs::write(go, "").unwrap();
        first
    };
    let (outcome, first) = tokio::join!(bench.act(&*action), looking);
    assert_eq!((outcome.word(), first.event, &first.bytes[..]), ("delivered", bench.event.id, &b"now\n"[..]));
    assert_eq!(bench.shown(), "now\nthen\n");
}

#[tokio::test]
async fn a_command_gets_its_trace_context() {
    let mut bench = Bench::new();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    bench.payload.headers =
        [("traceparent", parent), ("tracestate", "a=1")].map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    assert_eq!(bench.sh("echo $TRACEPARENT $TRACESTATE").await.word(), "delivered");
    let shown = bench.shown();
    assert!(shown.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{shown}");
    assert!(shown.ends_with("-01 a=1\n") && !shown.contains("00f067aa0ba902b7"), "{shown}");
}
