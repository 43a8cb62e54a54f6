//! Output on a terminal: tables, colours, and questions. `script` makes the terminal; where it is missing, only the
//! unit tests of the renderer cover it.

use crate::support::House;
use crate::{delivered, numbers};
use std::io::Write;
use std::process::{Command, Stdio};

/// The output on a terminal of this width, and the exit code; `None` if no terminal can be made.
fn seen(house: &House, columns: u16, args: &str, typed: &str) -> Option<(i32, String)> {
    let binary = env!("CARGO_BIN_EXE_hookonce");
    let line = format!("stty cols {columns} rows 50; {binary} {args}");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(house.dir.path());
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env("SHELL", "/bin/sh");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    child.stdin.take()?.write_all(typed.as_bytes()).ok()?;
    let output = child.wait_with_output().unwrap();
    Some((output.status.code()?, String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")))
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[tokio::test]
async fn a_table_with_colours_fits_the_terminal() {
    let mut house = House::new(&numbers());
    let event = delivered(&house, "mine", 13).await;
    delivered(&house, "yours", 1).await;
    house.stop();
    for columns in [120, 80, 40] {
        let Some((code, screen)) = seen(&house, columns, "list", "") else { return };
        let plain = without_colours(&screen);
        assert_eq!(code, 0, "{screen}");
        assert!(screen.contains("\x1b[31mdead: failed\x1b[0m") && screen.contains("\x1b[32mdone\x1b[0m"), "{screen}");
        assert!(plain.starts_with("EVENT     STATE         RECEIVED"), "{plain}");
        assert!(plain.contains(&event[28..]) && !plain.contains(&event), "{plain}");
        assert!(plain.lines().all(|line| line.chars().count() <= usize::from(columns)), "{plain}");
        assert_eq!(plain.contains("WORD"), columns > 40, "{plain}");
    }
    let (_, screen) = seen(&house, 60, "show mine", "").unwrap();
    assert!(screen.contains("\x1b[31mdead\x1b[0m: it failed because"), "{screen}");
    let (_, plain) = seen(&house, 80, "list --json", "").unwrap();
    assert!(!plain.contains('\x1b'), "{plain}");
    assert!(without_colours(&seen(&house, 80, "list --limit 1", "").unwrap().1).contains("older events: --before "));
}

#[tokio::test]
async fn replaying_several_events_asks_first() {
    let mut house = House::new(&numbers());
    for n in 1..=2 {
        delivered(&house, &format!("id-{n}"), n).await;
    }
    house.stop();
    let Some((code, screen)) = seen(&house, 80, "replay --state done", "n\n") else { return };
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("This runs 2 events again. Go on? [y/N]"), "{screen}");
    assert_eq!(house.count("done"), 2);
    let (code, screen) = seen(&house, 80, "replay --state done", "y\n").unwrap();
    assert!(code == 0 && screen.matches("replayed ").count() == 2, "{screen}");
    assert_eq!(house.count("waiting"), 2);
}
