//! What a command gets from a delivery and from its node, and what it does not get.

use super::support::{House, SECRET, Sent, until};
use super::{IN, numbers, touch};
use std::process::Command;

/// A config with a source of bodies such as `{"f":"…"}`, with one route.
fn texts(route: &str) -> String {
    numbers("", route).replace("fields = { n = \"body.n\" }", "fields = { f = \"body.f\" }")
}

fn text(id: &str, value: &str) -> Sent {
    Sent::github("push", id, &serde_json::json!({ "f": value }).to_string())
}

/// A value that creates a file if a shell, perl, python, node or ruby reads it as a program.
const HOSTILE: &str = "$(touch pwned)`touch pwned`;touch pwned;'\";system('touch pwned')\n";

#[test]
fn a_value_that_would_be_program_text_is_an_error_that_shows_the_safe_form() {
    let refused = [
        r#"["env", "sh", "-c", "deploy {f}"]"#,
        r#"["sudo", "-u", "web", "sh", "-c", "deploy {f}"]"#,
        r#"["timeout", "5m", "bash", "-lc", "deploy {f}"]"#,
        r#"["busybox", "sh", "-c", "deploy {f}"]"#,
        r#"["nice", "-n", "5", "sh", "-ec", "deploy {f}"]"#,
        r#"["docker", "exec", "web", "sh", "-c", "deploy {f}"]"#,
        r#"["docker", "compose", "exec", "-T", "web", "sh", "-c", "deploy {f}"]"#,
        r#"["nsenter", "-t", "1", "-m", "sh", "-c", "deploy {f}"]"#,
        r#"["bash", "-o", "pipefail", "-c", "deploy {f}"]"#,
        r#"["env", "-S", "sh -c 'deploy {f}'"]"#,
        r#"["su", "-c", "{f}"]"#,
        r#"["ssh", "host", "deploy {f}"]"#,
        r#"["xargs", "deploy", "{f}"]"#,
        r#"["watch", "deploy {f}"]"#,
        r#"["/usr/bin/python3.11", "-c", "{f}"]"#,
        r#"["perl", "-ne", "{f}"]"#,
        r#"["node", "--eval={f}"]"#,
        r#"["awk", "{f}"]"#,
        r#"["find", ".", "-exec", "sh", "-c", "deploy {f}", ";"]"#,
    ];
    for step in refused {
        let house = House::empty(&texts(&format!("run = {{ steps = [{step}] }}")));
        let output = house.command(&["check"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{step}: {said}");
        assert!(said.contains("HOOKONCE_FIELD_F"), "{step}: {said}");
        assert!(House::empty(&texts(&format!("run = {{ steps = [{step}] }}"))).try_start().is_err(), "{step}");
    }
}

#[tokio::test]
async fn a_hostile_value_runs_nothing_in_any_form_that_is_legal() {
    let steps = [
        r#"["sh", "-c", "printf '%s\\n' \"$1\" >> seen", "_", "{f}"]"#,
        r#"["env", "TAG={f}", "sh", "-c", "printf '%s\\n' \"$TAG\" >> seen"]"#,
        r#"["timeout", "5m", "sh", "script.sh", "{f}"]"#,
        r#"["./script.sh", "{f}"]"#,
        r#"["nice", "-n", "1", "./script.sh", "{f}"]"#,
        r#"'printf "%s\n" "$HOOKONCE_FIELD_F" >> seen'"#,
        r#"["awk", "-v", "f={f}", "BEGIN { exit 0 }"]"#,
    ];
    let mut house = House::empty(&texts(&format!("run = {{ steps = [{}] }}", steps.join(", "))));
    let script = house.path("script.sh");
    std::fs::write(&script, "#!/bin/sh\nprintf '%s\\n' \"$1\" >> seen\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&script).status().unwrap().success());
    house.start();
    house.deliver(IN, &text("1", HOSTILE)).await;
    house.quiet().await;
    assert_eq!(house.count("done"), 1, "{}", house.log());
    assert!(!house.path("pwned").exists());
    assert_eq!(std::fs::read_to_string(house.path("seen")).unwrap(), format!("{HOSTILE}\n").repeat(6));
    // A value that would be read as an option is not given to a command.
    house.deliver(IN, &text("2", "--version")).await;
    house.quiet().await;
    assert_eq!(house.count("dead"), 1);
}

#[tokio::test]
async fn a_command_knows_its_delivery_its_source_and_its_route() {
    let house = House::new(&numbers("", "run = { steps = [\"env | grep ^HOOKONCE_ | sort > got\"] }"));
    let event = house.deliver(IN, &super::number("7d1c-delivery", 5)).await.event();
    house.quiet().await;
    let event = format!("HOOKONCE_EVENT={event}");
    let expected = [
        "HOOKONCE_ATTEMPT=1",
        "HOOKONCE_DELIVERY=7d1c-delivery",
        &event,
        "HOOKONCE_FIELD_N=5",
        "HOOKONCE_ROUTE=act",
        "HOOKONCE_SOURCE=numbers",
    ];
    assert_eq!(house.lines("got"), expected);
}

#[tokio::test]
async fn descriptors_that_the_node_inherited_do_not_reach_a_command() {
    let step = "ls -l /proc/$$/fd > fds; { cat <&7; } > stolen 2> error; touch end";
    let mut house = House::empty(&numbers("", &format!("run = {{ steps = [\"{step}\"] }}")));
    std::fs::write(house.path("private"), "a secret").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" serve 7< private", env!("CARGO_BIN_EXE_hookonce")]);
    command.current_dir(house.dir.path()).env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG");
    house.try_start_by(command).unwrap();
    let inherited = format!("/proc/{}/fd/7", house.pid().as_raw_pid());
    assert!(std::fs::read_link(inherited).unwrap().ends_with("private"), "the node has it");
    house.deliver(IN, &super::number("1", 1)).await;
    house.quiet().await;
    assert!(house.path("end").exists());
    assert!(!std::fs::read_to_string(house.path("fds")).unwrap().contains("private"));
    assert_eq!(std::fs::read_to_string(house.path("stolen")).unwrap(), "");
}

#[tokio::test]
async fn a_command_cannot_read_the_nodes_environment() {
    let step = "cat /proc/$(cat pid)/comm > comm; cat /proc/$(cat pid)/environ > stolen 2> error; touch end";
    let mut house = House::empty(&numbers("", &format!("run = {{ steps = [\"{step}\"] }}")));
    // Root's capabilities allow it to read everything: neither the node nor the command has them here.
    let node = [env!("CARGO_BIN_EXE_hookonce"), "serve"];
    let without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", node[0], node[1]];
    let argv = if rustix::process::geteuid().is_root() { &without[..] } else { &node[..] };
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]);
    command.current_dir(house.dir.path()).env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG");
    house.try_start_by(command).unwrap();
    std::fs::write(house.path("pid"), house.pid().as_raw_pid().to_string()).unwrap();
    house.deliver(IN, &super::number("1", 1)).await;
    house.quiet().await;
    assert!(house.path("end").exists(), "{}", house.log());
    assert_eq!(house.lines("comm"), ["hookonce"], "the command sees its node");
    // Not shown if the assertion fails: it would be the environment of this test.
    assert!(std::fs::read(house.path("stolen")).unwrap().is_empty(), "the command read its node's environment");
    assert!(!std::fs::read(house.path("error")).unwrap().is_empty());
}

/// The lines of a command's output in the log, without their time.
fn logged(house: &House) -> Vec<String> {
    let log = house.log();
    let lines = log.lines().filter(|line| line.contains(" INFO output "));
    lines.filter_map(|line| line.split_once(" source=numbers ")).map(|(_, rest)| rest.to_owned()).collect()
}

#[tokio::test]
async fn each_line_of_a_commands_output_is_logged_while_it_runs_if_asked() {
    let step = "echo first line; echo second >&2; until test -e go; do sleep 0.01; done; \
                printf '\\\\033[31mred\\\\n'; printf last";
    let house = House::new(&numbers("", &format!("run = {{ steps = [\"{step}\"], log_output = true }}")));
    let event = house.deliver(IN, &super::number("1", 1)).await.event();
    until("the first lines in the log", || logged(&house).len() == 2).await;
    touch(&house, "go");
    until("the end in the log", || house.log().contains(" INFO done ")).await;
    let expected = ["line=\"first line\"", "line=second", "line=\"\\u{1b}[31mred\"", "line=last"];
    assert_eq!(logged(&house), expected);
    let log = house.log();
    let first = log.lines().find(|line| line.contains(" INFO output ")).unwrap();
    let short = first.split("event=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(event.replace('-', "").contains(short), "{first}: {event}");
    let kept = house.ask("GET", &format!("/api/events/{event}")).await;
    assert!(String::from_utf8_lossy(&kept.body).contains("first line"), "the output is kept, too");
}

#[tokio::test]
async fn output_is_not_logged_unless_asked() {
    let house = House::new(&numbers("", "run = { steps = [\"echo quiet-canary\"] }"));
    house.deliver(IN, &super::number("1", 1)).await;
    until("the end in the log", || house.log().contains(" INFO done ")).await;
    assert!(!house.log().contains("quiet-canary"));
}

#[tokio::test]
async fn a_flood_of_output_is_logged_in_part_in_order_and_counted() {
    let house = House::new(&numbers("", "run = { steps = [\"seq 1 200000\"], log_output = true }"));
    house.deliver(IN, &super::number("1", 1)).await;
    until("the end in the log", || house.log().contains(" INFO done ")).await;
    let (mut last, mut shown, mut dropped) = (0, 0, 0);
    for line in logged(&house) {
        if let Some(number) = line.strip_prefix("line=") {
            let number: u64 = number.parse().unwrap();
            assert!(number > last, "{number} after {last}");
            (last, shown) = (number, shown + 1);
        } else {
            let count = line.strip_prefix("dropped=\"").and_then(|rest| rest.strip_suffix(" lines\"")).unwrap();
            dropped += count.parse::<u64>().unwrap();
        }
    }
    assert!((1000..10_000).contains(&shown), "{shown}");
    assert_eq!(shown + dropped, 200_000);
}

#[tokio::test]
async fn a_log_pipe_that_is_not_read_does_not_block_a_command() {
    let step = "i=0; while test $i -lt 900; do printf '%0900d\\\\n' $i; i=$((i+1)); done; echo end >> ends";
    let mut house = House::empty(&numbers("", &format!("run = {{ steps = [\"{step}\"], log_output = true }}")));
    assert!(Command::new("mkfifo").arg(house.path("log")).status().unwrap().success());
    let mut command = Command::new("sh");
    // Opened for reading and writing, so that opening does not block and the pipe fills up.
    command.args(["-c", "exec \"$0\" serve 2<> log", env!("CARGO_BIN_EXE_hookonce")]);
    command.current_dir(house.dir.path()).env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG");
    house.try_start_by(command).unwrap();
    for n in 0..12 {
        house.deliver(IN, &super::number(&n.to_string(), n)).await;
    }
    house.quiet().await;
    assert_eq!(house.lines("ends").len(), 12);
    house.kill();
}
