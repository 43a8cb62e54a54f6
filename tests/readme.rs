//! The documents, kept true: every command in them is understood by the binary, and the picture shows what `demo` prints.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DOCUMENTS: [&str; 5] =
    ["README.md", "docs/start.md", "docs/guarantees.md", "docs/troubleshooting.md", "docs/from-steakpie.md"];

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
    command.args(args).current_dir(folder).env("WEBHOOK_SECRET", "a secret").env_remove("HOOKONCE_CONFIG");
    command.output().unwrap()
}

/// The words of every `$ hookonce …` line, without what follows a `#`.
fn commands(document: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
    let ours = lines.filter_map(|line| line.split("hookonce ").nth(1).filter(|_| line.contains("hookonce ")));
    ours.map(|line| line.split('#').next().unwrap().split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn every_command_in_the_documents_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for document in DOCUMENTS {
        for words in commands(document) {
            // Its own `--help` behind everything else: the arguments are read, and nothing is done.
            let args: Vec<_> = words.iter().map(String::as_str).chain(["--help"]).collect();
            let asked = run(folder.path(), &args);
            assert!(asked.status.success(), "{document}: hookonce {}\n{}", words.join(" "), text(&asked.stderr));
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} commands were found");
}

#[test]
fn the_first_ten_minutes_go_as_they_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for words in commands("docs/start.md") {
        let args: Vec<_> = words.iter().map(String::as_str).collect();
        // What runs on and what needs it is tested in tests/cli; here is what stands alone.
        if ["demo", "init", "check"].contains(&args[0]) {
            let done = run(folder.path(), &args);
            let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
            assert!(done.status.success(), "hookonce {}\n{said}", words.join(" "));
        }
    }
    assert!(folder.path().join("hookonce.toml").exists());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `demo` prints, with what differs each time made the same.
fn demo() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let played = run(folder.path(), &["demo"]);
    assert!(played.status.success(), "{}", text(&played.stderr));
    let shown = text(&played.stdout);
    let event = shown.split("event ").nth(1).and_then(|rest| rest.get(..8)).unwrap().to_owned();
    let same = |line: &str| match line.trim_start().strip_prefix("done after ") {
        Some(_) => "            done after 21 ms".to_owned(),
        None => line.replace(&event, "3fa9c01e"),
    };
    shown.lines().map(same).collect()
}

const PICTURE: &str = "docs/demo.svg";

/// The lines as a picture of a terminal.
fn picture(lines: &[String]) -> String {
    let height = 48 + 20 * lines.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" height=\"{height}\" font-family=\"ui-monospace, monospace\" \
         font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n<g fill=\"#d7dae0\" xml:space=\"preserve\">\n"
    );
    for (i, line) in lines.iter().enumerate() {
        let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let y = 36 + 20 * i;
        writeln!(svg, "<text x=\"20\" y=\"{y}\"{}>{escaped}</text>", ink(line)).unwrap();
    }
    svg + "</g>\n</svg>\n"
}

fn ink(line: &str) -> &'static str {
    let first = line.split_whitespace().nth(3).unwrap_or_default();
    match (line.starts_with(' '), first, line.trim_start()) {
        (true, "ignored", _) => " fill=\"#7f8592\"",
        (true, "duplicate", _) => " fill=\"#e0af68\"",
        (true, "accepted", _) => " fill=\"#9ece6a\"",
        (true, _, rest) if rest.starts_with("done") || rest.starts_with("running") || rest.starts_with("output") => {
            " fill=\"#7aa2f7\""
        }
        (false, ..) if !line.is_empty() => " font-weight=\"bold\"",
        _ => "",
    }
}

#[test]
fn the_picture_shows_what_demo_prints() {
    let drawn = picture(&demo());
    if std::env::var_os("HOOKONCE_BLESS").is_some() {
        std::fs::write(root().join(PICTURE), &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(root().join(PICTURE)).unwrap_or_default();
    assert!(kept == drawn, "{PICTURE} is out of date: HOOKONCE_BLESS=1 cargo test --test readme draws it anew");
}
