//! The docs are true: the binary understands every command in them, and the picture shows what `demo` prints.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DOCUMENTS: [&str; 10] = [
    "README.md",
    "docs/install.md",
    "docs/start.md",
    "docs/guarantees.md",
    "docs/troubleshooting.md",
    "docs/from-steakpie.md",
    "docs/from-webhook.md",
    "docs/deploys.md",
    "docs/senders.md",
    "docs/presets.md",
];

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
    command.args(args).current_dir(folder).env_remove("WEBHOOK_SECRET").env_remove("HOOKONCE_CONFIG");
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
fn every_command_in_the_docs_exists() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for document in DOCUMENTS {
        for words in commands(document) {
            // With `--help` at the end: the arguments are parsed, and nothing is done.
            let args: Vec<_> = words.iter().map(String::as_str).chain(["--help"]).collect();
            let asked = run(folder.path(), &args);
            assert!(asked.status.success(), "{document}: hookonce {}\n{}", words.join(" "), text(&asked.stderr));
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} commands were found");
}

#[test]
fn the_commands_of_the_first_ten_minutes_work() {
    let folder = tempfile::tempdir().unwrap();
    for words in commands("docs/start.md") {
        let args: Vec<_> = words.iter().map(String::as_str).collect();
        // Long-running commands and those that need them are tested in tests/cli; these work alone.
        if ["demo", "init", "check"].contains(&args[0]) {
            let done = run(folder.path(), &args);
            let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
            assert!(done.status.success(), "hookonce {}\n{said}", words.join(" "));
        }
    }
    assert!(folder.path().join("hookonce.toml").exists());
}

/// The import on the page for users of webhook, as it is written there, with a hook to import.
#[test]
fn the_commands_for_users_of_webhook_work() {
    let folder = tempfile::tempdir().unwrap();
    let hooks = "[{\"id\": \"deploy\", \"execute-command\": \"/bin/true\"}]";
    std::fs::write(folder.path().join("hooks.json"), hooks).unwrap();
    let mut done = 0;
    for words in commands("docs/from-webhook.md").iter().filter(|words| words[0] != "serve") {
        let ran = run(folder.path(), &words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = format!("{}{}", text(&ran.stdout), text(&ran.stderr));
        assert!(ran.status.success(), "hookonce {}\n{said}", words.join(" "));
        done += 1;
    }
    assert!(done == 3 && folder.path().join("hookonce.toml").exists());
}

/// Every Rust file of ours, with its text in one line.
fn code(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            found.push((path, text.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
}

/// The string literals that directly follow one of these.
fn after<'c>(text: &'c str, before: &str) -> Vec<&'c str> {
    text.split(before).skip(1).filter_map(|rest| rest.strip_prefix('"')?.split('"').next()).collect()
}

/// Every word of the log is in the docs, whether it is new or old.
#[test]
fn every_log_word_is_in_the_troubleshooting_docs() {
    let mut all = Vec::new();
    code(&root().join("src"), &mut all);
    // `tests/interface` keeps this list true.
    let log_words = std::fs::read_to_string(root().join("tests/interface/log-words.txt")).unwrap();
    let mut words: Vec<_> = log_words.lines().map(|word| (word, "")).collect();
    for (path, text) in &all {
        let named = |end: &str| path.ends_with(end);
        if named("ingress/http.rs") {
            let turned_away = text.split("refused(4").skip(1).filter_map(|rest| rest.split('"').nth(1));
            words.extend(turned_away.map(|word| (word, "reason=")));
        }
        if named("ingress/request_body.rs") {
            let reasons = text.split("fn reason").nth(1).and_then(|rest| rest.split("\n    }").next()).unwrap();
            words.extend(after(reasons, "=> Some(").into_iter().map(|word| (word, "reason=")));
        }
        if named("decide/delivery.rs") {
            let reasons = text.split("fn reason").nth(1).and_then(|rest| rest.split("pub fn").next()).unwrap();
            words.extend(after(reasons, "=> ").into_iter().map(|word| (word, "reason=")));
        }
        if named("decide/event.rs") {
            let causes =
                text.split("impl DeathCause").nth(1).and_then(|rest| rest.split("pub fn parse").next()).unwrap();
            words.extend(after(causes, "=> ").into_iter().map(|word| (word, "cause=")));
        }
    }
    for some in [
        ("quarantined", ""),
        ("too_large", "reason="),
        ("unknown_path", "reason="),
        ("bad_order", "reason="),
        ("cancelled", "cause="),
    ] {
        assert!(words.contains(&some), "{some:?} was not found in the code: {words:?}");
    }
    let document = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let spans: Vec<_> = document.split('`').skip(1).step_by(2).collect();
    let told = |(word, of): &(&str, &str)| {
        let begins = format!("{word} ");
        let named = |span: &&str| !of.is_empty() && span.contains(&format!("{of}{word}"));
        spans.iter().any(|span| *span == *word || span.starts_with(&begins) || named(span))
    };
    let missing: Vec<_> = words.iter().filter(|word| !told(word)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md does not have {missing:?}");
}

/// The typed lines of a console block, without what follows a `#`; placeholders for a secret get one.
fn typed(block: &str) -> Vec<String> {
    let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split(" #").next().unwrap().trim().replace('…', "secret")).collect()
}

#[test]
fn the_first_config_of_the_readme_passes_check() {
    let folder = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let config = readme.split("```toml\n").nth(1).and_then(|rest| rest.split_once("```")).unwrap();
    std::fs::write(folder.path().join("hookonce.toml"), config.0).unwrap();
    let block = config.1.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines = typed(block);
    let ours = |line: &&String| !line.starts_with("cargo ");
    let before_serve = lines.iter().filter(ours).take_while(|line| !line.contains("hookonce serve"));
    let before_serve: Vec<_> = before_serve.map(String::as_str).collect();
    assert!(before_serve.contains(&"hookonce check"), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("hookonce serve"), "everything it needs comes before");
    let bin = Path::new(env!("CARGO_BIN_EXE_hookonce")).parent().unwrap().display().to_string();
    let script = before_serve.join("\n");
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script]).current_dir(folder.path()).env_remove("WEBHOOK_SECRET").env_remove("HOOKONCE_CONFIG");
    let done = shell.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap())).output().unwrap();
    assert!(done.status.success(), "{script}{}{}", text(&done.stdout), text(&done.stderr));
}

/// Each config on the page about deploys; one that begins with a route belongs to the source of the first.
#[test]
fn every_config_of_the_deploys_page_passes_check() {
    let page = std::fs::read_to_string(root().join("docs/deploys.md")).unwrap();
    let configs: Vec<_> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let source = configs[0].split("[[").next().unwrap();
    assert!(configs.len() >= 6 && source.contains("github-package"), "{configs:?}");
    for config in configs {
        let whole = if config.starts_with("[[") { format!("{source}{config}") } else { config.to_owned() };
        check_passes(&whole);
    }
}

/// Each config on the pages for those who come from something else, or keep it.
#[test]
fn every_config_of_the_from_pages_passes_check() {
    for (page, many) in [("from-watchtower", 2), ("from-a-table", 1), ("from-a-gateway", 1)] {
        let page = std::fs::read_to_string(root().join(format!("docs/{page}.md"))).unwrap();
        let configs: Vec<_> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert_eq!(configs.len(), many);
        configs.into_iter().for_each(check_passes);
    }
}

/// This config passes `hookonce check`, in a folder that has what its commands need.
fn check_passes(config: &str) {
    let folder = tempfile::tempdir().unwrap();
    let here = ["app", "db", "{package}"].iter().fold(config.to_owned(), |config, name| {
        config.replace(&format!("\"/opt/{name}\""), if *name == "{package}" { "\"./{package}\"" } else { "\".\"" })
    });
    std::fs::write(folder.path().join("hookonce.toml"), here).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_hookonce"));
    check.arg("check").current_dir(folder.path()).env_remove("HOOKONCE_CONFIG");
    for secret in ["WEBHOOK_SECRET", "GITHUB_TOKEN", "STRIPE_SECRET", "SVIX_SECRET"] {
        check.env(secret, "whsec_QSBzZWNyZXQgb2Ygc3VmZmljaWVudCBsZW5ndGg=");
    }
    let done = check.output().unwrap();
    let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
    assert!(done.status.success() && said.contains("hookonce.toml is fine\n"), "{config}\n{said}");
}

/// The preset on the page about presets, as a file and as a table.
#[test]
fn the_preset_of_the_presets_page_works_as_a_file_and_as_a_table() {
    let page = std::fs::read_to_string(root().join("docs/presets.md")).unwrap();
    let blocks: Vec<_> = page.split("\n```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [file, config] = blocks[..] else { panic!("{blocks:?}") };
    let without_table = config.split("[preset.acme]").next().unwrap();
    for (preset, config) in [(Some(file), without_table), (None, config)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("presets")).unwrap();
        if let Some(preset) = preset {
            std::fs::write(folder.path().join("presets/acme.toml"), preset).unwrap();
        }
        std::fs::write(folder.path().join("hookonce.toml"), config).unwrap();
        let run = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
            command.args(args).current_dir(folder.path()).env_remove("HOOKONCE_CONFIG");
            let done = command.env("ACME_SECRET", "a-secret-of-sufficient-length").output().unwrap();
            let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
            assert!(done.status.success(), "{args:?}\n{config}\n{said}");
            said
        };
        assert!(run(&["check"]).contains("hookonce.toml is fine\n"), "{}", run(&["check"]));
        assert!(run(&["presets", "acme"]).contains("# What is signed: time+body."));
        let json: serde_json::Value = serde_json::from_str(&run(&["presets", "acme", "--json"])).unwrap();
        assert_eq!(json["order"], if preset.is_some() { "created_at".into() } else { serde_json::Value::Null });
        assert!(run(&["check", "--json"]).contains("\"preset\": \"acme\""));
    }
}

/// The config on the page about installing, and those of the packages.
#[test]
fn the_configs_that_are_installed_pass_check() {
    let page = std::fs::read_to_string(root().join("docs/install.md")).unwrap();
    let page = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned();
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    for config in [page, read("contrib/compose/config/hookonce.toml"), read("contrib/debian/hookonce.toml")] {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("github.secret");
        std::fs::write(&secret, "a-secret-of-sufficient-length").unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        std::fs::write(folder.path().join("hookonce.toml"), config.replace("/etc/hookonce/", "")).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_hookonce"));
        check.arg("check").current_dir(folder.path()).env_remove("HOOKONCE_CONFIG");
        let done = check.env("WEBHOOK_SECRET", "a-secret-of-sufficient-length").output().unwrap();
        let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
        assert!(done.status.success() && said.contains("hookonce.toml is fine\n"), "{config}\n{said}");
    }
}

/// What units, images and packages start is a command of this binary, and the version that is named is this one.
#[test]
fn what_the_packages_start_exists_and_has_this_version() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (unit, image) = (read("contrib/hookonce.service"), read("contrib/Containerfile"));
    let starts = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/hookonce ")).unwrap();
    let list = |word: &str| {
        let line = image.lines().find(|line| line.contains(word) && line.contains('[')).unwrap();
        let words: Vec<String> = serde_json::from_str(&line[line.find('[').unwrap()..]).unwrap();
        words
    };
    assert_eq!(list("ENTRYPOINT"), ["/usr/bin/hookonce"]);
    let health = list("HEALTHCHECK");
    assert_eq!(health[0], "/usr/bin/hookonce");
    let folder = tempfile::tempdir().unwrap();
    let owned = |words: &[String]| words.join(" ");
    for words in [starts.to_owned(), owned(&list("CMD [\"serve")), owned(&health[1..])] {
        let args: Vec<_> = words.split_whitespace().chain(["--help"]).collect();
        assert!(run(folder.path(), &args).status.success(), "{words}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let compose = read("contrib/compose/compose.yaml");
    assert!(compose.contains(&format!("hookonce/hookonce:{version}\n")), "{compose}");
    let page = read("docs/install.md");
    let named = ["hookonce_", "hookonce-", "hookonce:", "download/v", "checkout v"];
    for before in named {
        for rest in page.split(before).skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            assert!(rest.starts_with(version), "docs/install.md has {before}{}", &rest[..8]);
        }
    }
    let manifest = read("Cargo.toml");
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"')).unwrap();
    assert!(page.contains(&format!("Rust {wanted} or newer")), "docs/install.md names another Rust than {wanted}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of `demo`, with varying parts replaced.
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
    assert!(kept == drawn, "{PICTURE} is out of date: HOOKONCE_BLESS=1 cargo test --test readme redraws it");
}
