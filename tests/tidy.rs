//! Rules that can be tests: the direction of `use`, no clock where none belongs, files of one idea, true comments.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};

/// The allowed dependencies: a part, and the parts it may name.
const DIRECTION: &[(&str, &[&str])] = &[
    ("decide", &["decide"]),
    ("observe", &["decide", "observe"]),
    ("store", &["decide", "store", "observe"]),
    ("lease", &["decide", "store", "observe", "lease"]),
    ("layer", &["decide", "store", "observe", "lease", "layer"]),
    ("action", &["decide", "lease", "action", "observe"]),
    ("registry", &["decide", "action", "registry"]),
    ("key_fetch", &["decide", "action", "observe", "key_fetch"]),
    ("engine", &["decide", "store", "action", "registry", "observe", "lease", "key_fetch", "engine"]),
    ("catch_up", &["decide", "store", "action", "observe", "engine", "catch_up"]),
    ("config", &["decide", "store", "action", "registry", "catch_up", "key_fetch", "observe", "config"]),
    ("explain", &["decide", "store", "config", "explain"]),
    ("ingress", &["decide", "store", "action", "registry", "observe", "engine", "config", "ingress"]),
    ("admin", &["decide", "store", "action", "observe", "engine", "config", "explain", "ingress", "admin"]),
    (
        "node",
        &[
            "decide",
            "store",
            "action",
            "registry",
            "observe",
            "engine",
            "catch_up",
            "key_fetch",
            "config",
            "ingress",
            "admin",
            "node",
        ],
    ),
];

/// A longer file probably has a second idea in it.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Every file under `src/`, with its part and its text.
fn sources() -> Vec<(String, String, String)> {
    let src = root().join("src");
    let named = |path: PathBuf| {
        let inside = path.strip_prefix(&src).unwrap().display().to_string();
        let part = inside.split(['/', '.']).next().unwrap().to_owned();
        (inside, part, std::fs::read_to_string(&path).unwrap())
    };
    rust_files(&src).into_iter().map(named).collect()
}

/// The text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_part_depends_only_on_allowed_parts() {
    let mut named = 0;
    for (file, part, text) in sources() {
        let Some((_, may)) = DIRECTION.iter().find(|(of, _)| *of == part) else { continue };
        for (at, _) in text.match_indices("crate::") {
            let other: String = text[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            named += 1;
            if other == "seed" {
                continue; // only in tests
            }
            assert!(may.contains(&&*other), "{file} names `{other}`, which `{part}` must not depend on");
        }
    }
    assert!(named > 100, "the test checks nothing");
}

#[test]
fn decide_has_no_clock_no_randomness_no_io_and_does_not_wait() {
    for (file, _, text) in sources().into_iter().filter(|(_, part, _)| part == "decide") {
        let code = code(&text);
        let strange =
            ["now()", "::rand::", "std::fs", "std::net", "std::env", "tokio", "async ", "std::thread", "now_v7"];
        for word in strange {
            assert!(!code.contains(word), "{file} has `{word}`");
        }
    }
}

#[test]
fn no_unwrap_in_src() {
    for (file, _, text) in sources() {
        let tests = file.ends_with("tests.rs") || file.contains("/tests/");
        assert!(tests || !code(&text).contains(".unwrap()"), "{file} unwraps");
    }
}

#[test]
fn only_a_step_changes_an_events_state() {
    // A store's queue may say that an event is parked whose row cannot be read; a test builds events as it needs them.
    let reads = |file: &str| file == "store/optimistic/txn.rs" || file.starts_with("store/conformance/");
    let mut steps = 0;
    for (file, part, text) in sources() {
        let code = code(&text);
        for word in [".state = EventState", ".queue_state = ", ".attempt += ", ".attempt -= ", ".life += "] {
            let count = code.matches(word).count();
            let shown = part == "admin" && word == ".queue_state = "; // an event without a route is shown as suspended
            if file == "decide/event_step.rs" {
                steps += count;
            } else {
                assert!(count == 0 || shown || reads(&file), "{file} has `{word}`: make it a step of `Event::after`");
            }
        }
    }
    assert!(steps > 10, "the test checks nothing");
}

#[test]
fn only_explain_skips_verification() {
    let who: Vec<_> = sources()
        .into_iter()
        .filter(|(_, _, text)| code(text).contains("assume_verified"))
        .map(|(file, ..)| file)
        .collect();
    assert_eq!(who, ["decide/verify/mod.rs", "explain/delivery_trace.rs"]);
}

/// What `Where to add something` in ARCHITECTURE.md says: elsewhere the type is asked, not matched.
#[test]
fn schemes_actions_and_stores_are_told_apart_in_few_files() {
    let kinds: [(&str, &[&str], &[&str]); 4] = [
        (
            "VerificationScheme",
            &["github", "standard_webhooks", "bearer", "basic", "token"],
            &[
                "action/forward/",
                "cli/demo.rs",
                "config/action/forward.rs",
                "config/token_scheme.rs",
                "config/verify.rs",
                "decide/verify/",
            ],
        ),
        ("ActionPlan", &["Run", "Forward", "Publish", "Sql"], &["action/mod.rs", "config/action/mod.rs"]),
        ("StoreUrl", &["Postgres", "Redis"], &["store/open.rs"]),
        ("StoreAddress", &["Postgres", "Redis"], &["cli/mod.rs"]),
    ];
    for (kind, variants, files) in kinds {
        let mut found = 0;
        for (file, _, text) in sources() {
            let text = code(&text);
            for variant in variants.iter().filter(|variant| text.contains(&format!("{kind}::{variant}"))) {
                found += 1;
                let may = files.iter().any(|name| file.starts_with(name));
                assert!(may, "{file} names `{kind}::{variant}`: make it a question that the type answers");
            }
        }
        assert!(found > 0, "the test looks at nothing: {kind}");
    }
}

#[test]
fn no_node_runs_on_a_config_without_its_secrets() {
    for (file, part, text) in sources() {
        let may = part == "config" || (part == "cli" && file != "cli/serve.rs");
        assert!(
            may || !code(&text).contains("SecretRequirement::Optional"),
            "{file} loads a config without its secrets"
        );
    }
}

/// What is not reachable from here is `pub(crate)`: rustc's lint `unreachable_pub` enforces it.
#[test]
fn the_public_interface_is_the_layer_the_store_and_the_rules() {
    let lib = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules: Vec<_> = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(modules, ["decide", "internals", "layer", "store"]);
    assert!(lib.contains("#[doc(hidden)]\npub mod internals;"), "`internals` is not for others");
    assert!(std::fs::read_to_string(root().join("Cargo.toml")).unwrap().contains("unreachable_pub = \"warn\""));
}

/// The same idea in several folders may have the same file name in each; other files may not.
#[test]
fn a_file_name_means_one_thing() {
    const IDEAS: &[(&str, &str)] = &[
        ("catch_up.rs", "asking for missed deliveries"),
        ("columns.rs", "declared fields as columns of a database"),
        ("data_loss.rs", "detection of lost data"),
        ("dictionaries.rs", "bodies that others are packed with"),
        ("error.rs", "the errors of that part"),
        ("export.rs", "reading a whole store to copy it"),
        ("github.rs", "GitHub's signature"),
        ("described.rs", "a described signature"),
        ("handshake.rs", "the questions of a sender before it sends"),
        ("list.rs", "lists of events"),
        ("mod.rs", "the folder"),
        ("nats.rs", "a stream as a source"),
        ("notify.rs", "hints between nodes"),
        ("open.rs", "opening a store"),
        ("postgres.rs", "migrations of PostgreSQL"),
        ("queries.rs", "reads of a store"),
        ("read.rs", "how records are read"),
        ("registers.rs", "the registers of subjects"),
        ("reload.rs", "loading the config again"),
        ("retention.rs", "how long events are kept"),
        ("rows.rs", "an event as rows of a database"),
        ("run.rs", "the settings of `run`"),
        ("source.rs", "a source"),
        ("sql.rs", "the action `sql`"),
        ("standard.rs", "the signature of Standard Webhooks"),
        ("start_due.rs", "starting due events"),
        ("tail.rs", "the live stream"),
        ("tests.rs", "tests of the folder"),
        ("url.rs", "the URL of a store"),
        ("vacuum.rs", "returning free space of an SQLite file"),
        ("view.rs", "JSON documents"),
    ];
    let mut folders = std::collections::BTreeMap::<String, Vec<String>>::new();
    for (file, ..) in sources() {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", &file));
        folders.entry(name.to_owned()).or_default().push(folder.to_owned());
    }
    let twice: Vec<_> = folders
        .iter()
        .filter(|(name, folders)| folders.len() > 1 && !IDEAS.iter().any(|(idea, _)| idea == name))
        .collect();
    assert!(twice.is_empty(), "{twice:#?}");
}

/// The types that a file defines at module level, including its tests.
fn types(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let mut words = line.split_whitespace().peekable();
        words.next_if(|word| word.starts_with("pub"));
        // `pub(in a::b)` is two words.
        words.next_if(|word| word.ends_with(')') && word.contains("::"));
        let kind = words.next().unwrap_or_default();
        // An indented `type` belongs to a trait or an impl.
        if matches!(kind, "struct" | "enum" | "trait") || (kind == "type" && indent == 0) {
            // A macro's `$name` is not a type.
            let Some(name) = words.next().filter(|name| !name.starts_with('$')) else { continue };
            found.push(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

#[test]
fn no_two_types_share_a_name() {
    let mut by_name: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for (file, _, text) in sources() {
        for name in types(&text) {
            by_name.entry(name).or_default().push(file.clone());
        }
    }
    assert!(by_name.len() > 500, "the test checks nothing");
    // A span is one of two types, with and without the feature `otel`.
    by_name.remove("TraceSpan");
    let shared: Vec<_> = by_name.into_iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

#[test]
fn errors_are_called_errors_or_rejections() {
    let mut seen = 0;
    for (file, _, text) in sources() {
        for (at, _) in text.match_indices("Error for ") {
            let before = text[..at].rsplit('\n').next().unwrap_or_default();
            if !before.trim_start().starts_with("impl") {
                continue;
            }
            seen += 1;
            let name: String = text[at + 10..].chars().take_while(|c| c.is_alphanumeric()).collect();
            assert!(name.ends_with("Error") || name.ends_with("Rejection"), "{file}: {name}");
        }
    }
    assert!(seen > 5, "the test checks nothing");
}

/// What precedes the name of a table in a statement.
const BEFORE_A_TABLE: [&str; 7] = ["from ", "into ", "update ", "join ", "table ", " on ", "nextval('"];

#[test]
fn every_statement_names_the_schema_of_our_tables() {
    let migrations = root().join("src/store/schema/postgres");
    let mut tables = vec!["schema_migrations".to_owned()];
    for file in std::fs::read_dir(migrations).unwrap() {
        let path = file.unwrap().path();
        let text = if path.extension().is_some_and(|end| end == "sql") {
            std::fs::read_to_string(path).unwrap()
        } else {
            continue;
        };
        let made = text.lines().filter_map(|line| {
            let line = line.strip_prefix("create table ").or(line.strip_prefix("create sequence "))?;
            line.split([' ', '(']).next().map(str::to_owned)
        });
        tables.extend(made);
    }
    assert!(tables.len() > 10, "{tables:?}");
    for (file, _, text) in sources().into_iter().filter(|(file, ..)| file.starts_with("store/postgres/")) {
        let code = code(&text);
        for (before, table) in BEFORE_A_TABLE.iter().flat_map(|before| tables.iter().map(move |table| (before, table)))
        {
            let unqualified = format!("{before}{table}");
            let ends = |at: usize| !code[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let found = code.match_indices(&unqualified).find(|(at, _)| ends(at + unqualified.len()));
            assert!(found.is_none(), "{file} says `{unqualified}`: write `{before}{{schema}}.{table}`");
        }
    }
}

#[test]
fn a_file_is_one_idea() {
    let mut long = Vec::new();
    for (file, _, text) in sources() {
        let lines = code(&text).lines().count();
        if lines > LINES_MAX {
            long.push(format!("{file}: {lines} lines"));
        }
    }
    assert!(long.is_empty(), "is there a second idea in them?\n{}", long.join("\n"));
}

#[test]
fn every_dependency_has_its_reason() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let dependencies = text.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    for line in dependencies.lines().filter(|line| line.contains(" = ")) {
        assert!(line.contains('#'), "why is this there? {line}");
    }
}

/// Dependencies that a user of only the layer does not want to build: a command line, a server, a client.
const NOT_IN_A_LAYER: [&str; 9] = ["axum", "clap", "h2", "hyper", "hyper-util", "reqwest", "rustls", "toml", "tower"];

#[test]
fn the_layer_brings_no_command_line_no_server_and_no_client() {
    let root = root();
    let tree = |features: &str| {
        let args = ["tree", "--locked", "--offline", "-e", "normal", "--prefix", "none", "--no-default-features"];
        let mut cargo = std::process::Command::new(env!("CARGO"));
        let output = cargo.current_dir(&root).args(args).args(["-F", features]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    for features in ["layer", "layer,sqlite"] {
        let names = tree(features);
        assert!(names.iter().any(|name| name == "tower-service"), "the test checks nothing: {names:?}");
        let strange: Vec<_> = names.iter().filter(|name| NOT_IN_A_LAYER.contains(&name.as_str())).collect();
        assert!(strange.is_empty(), "{features} brings {strange:?}");
    }
    assert!(tree("node").iter().any(|name| name == "axum"));
    let alone = tree("");
    assert!(!alone.iter().any(|name| name == "tokio"), "decide alone brings {alone:?}");
}

/// The fenced blocks of this language in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_configs_in_the_documents_are_right() {
    let env = |name: &str| match name {
        "NATS_URL" => Some("nats://127.0.0.1:4222".to_owned()),
        "DATABASE_URL" => Some("postgres://127.0.0.1/hooks".to_owned()),
        "SLACK_URL" => Some("https://slack.example/hook".to_owned()),
        _ => Some(format!("a secret for {name}")),
    };
    for document in ["README.md", "docs/nats.md", "docs/notify.md", "docs/run.md"] {
        let blocks = blocks(document, "toml");
        assert!(!blocks.is_empty(), "{document}");
        for block in blocks {
            let config = hookonce::internals::config::parse(&block, document, &root(), &env);
            config.unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
}

#[test]
fn comments_name_only_existing_files() {
    let mut named = 0;
    for (file, _, text) in sources() {
        let path = root().join("src").join(&file);
        let beside: Vec<_> = rust_files(path.parent().unwrap());
        for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '/')));
            let is_file = |word: &&str| Path::new(word).extension().is_some_and(|extension| extension == "rs");
            for word in words.map(|word| word.trim_end_matches('.')).filter(is_file) {
                named += 1;
                let there = beside.iter().any(|found| found.ends_with(word)) || root().join("src").join(word).exists();
                assert!(there || root().join(word).exists(), "{file} names {word}: {line}");
            }
        }
    }
    assert!(named > 20, "the test checks nothing");
}

#[test]
fn the_docs_name_only_existing_files() {
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let quoted =
            text.split('`').skip(1).step_by(2).filter(|word| word.starts_with("src/") || word.starts_with("tests/"));
        for path in linked.chain(quoted).filter(|path| !path.starts_with("http")) {
            assert!(root().join(path).exists(), "{document} names {path}");
        }
    }
}

#[test]
fn every_promise_names_existing_tests() {
    let read = |document| std::fs::read_to_string(root().join(document)).unwrap();
    let (text, commands) = (read("docs/guarantees.md"), read("docs/run.md"));
    let is_test = |word: &&str| {
        word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && word.matches('_').count() > 2
    };
    let fences = commands.split("```").step_by(2).collect::<String>();
    let quoted = text.split('`').skip(1).step_by(2).chain(fences.split('`').skip(1).step_by(2));
    let named: Vec<_> = quoted.filter(is_test).collect();
    assert!(named.len() > 40, "{named:?}");
    let tests: Vec<_> =
        rust_files(&root().join("tests")).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    for name in named {
        let begins = format!("fn {name}(");
        assert!(tests.iter().any(|text| text.contains(&begins)), "no test is called {name}");
    }
    // Every row of a table of promises has its test.
    let promises = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("shown by |"));
    for line in promises {
        let shown = line.trim_end_matches('|').rsplit('|').next().unwrap();
        assert!(shown.split('`').skip(1).step_by(2).any(|word| is_test(&word)), "no test shows: {line}");
    }
}
