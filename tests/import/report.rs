//! What is read, written and left alone, and the report about it.

use crate::support::House;
use crate::{BY_CHANGE, BY_ID, check, database, house, import, said};
use hookonce::internals::action::plan::{ActionPlan, CommandLine};
use std::fs;

const PLAIN: &str = "app:\n  run:\n    /tmp:\n      - echo a\n";

/// The steps of every block of every route, as parsed from the written config.
fn blocks(house: &House) -> Vec<(String, Vec<Vec<String>>)> {
    let text = fs::read_to_string(house.path("hookonce.toml")).unwrap();
    let env = |name: &str| Some(format!("a secret for {name}"));
    let config = hookonce::internals::config::parse(&text, "hookonce.toml", house.dir.path(), &env).unwrap();
    let source = &config.sources[0];
    let of = |plan: &ActionPlan| {
        match plan {
            ActionPlan::Run(blocks) => {
                blocks.iter().map(|block| block.steps.iter().map(CommandLine::to_string).collect())
            }
            other => panic!("{other:?}"),
        }
        .collect()
    };
    let routes = source
        .routes
        .iter()
        .map(|route| (route.name.to_string(), of(&config.actions[&(source.name.clone(), route.name.clone())])));
    routes.collect()
}

fn check_shape(yaml: &str, expected: &[(&str, &[&[&str]])]) {
    let house = house(yaml);
    check(&house, &["config.yml"], 0, &["wrote hookonce.toml"]);
    let found = blocks(&house);
    let found: Vec<(&str, Vec<Vec<&str>>)> = found
        .iter()
        .map(|(name, blocks)| (&**name, blocks.iter().map(|steps| steps.iter().map(|s| &**s).collect()).collect()))
        .collect();
    let expected: Vec<(&str, Vec<Vec<&str>>)> =
        expected.iter().map(|(name, blocks)| (*name, blocks.iter().map(|steps| steps.to_vec()).collect())).collect();
    assert_eq!(found, expected, "{yaml}");
}

#[test]
fn every_shape_that_steakpie_had_is_read() {
    check_shape(
        "a:\n  run:\n    /tmp:\n      - one\n      - - two\n        - three\n    /:\n      - four\nb-c/d:\n  run:\n    /: [five]\n",
        &[("a", &[&["one"], &["two", "three"], &["four"]]), ("b-c/d", &[&["five"]])],
    );
    check_shape(
        "a:\n  - one\n  - two:\n      - three\n  - true\n",
        &[("a", &[&["one"], &["two", "three"], &["true"]])],
    );
    check_shape("a:\n  /tmp:\n    - one\n", &[("a", &[&["one"]])]);
    check_shape("a:\n  dir: /tmp\n  commands:\n    - one\n", &[("a", &[&["one"]])]);
    check_shape(
        "a: &a\n  run:\n    /tmp: [one]\nb: *a\n'c \"d\\': *a\n",
        &[("a", &[&["one"]]), ("b", &[&["one"]]), ("c \"d\\", &[&["one"]])],
    );
}

#[test]
fn more_commands_than_there_may_be_blocks_run_in_one() {
    let many: Vec<_> = (0..70).map(|n| format!("      - echo {n} >> ran; test {n} != 3\n")).collect();
    let house = house("");
    let folder = house.dir.path().display().to_string();
    fs::write(house.path("config.yml"), format!("a:\n  run:\n    {folder}:\n{}", many.concat())).unwrap();
    check(&house, &["config.yml"], 0, &["70 commands"]);
    let blocks = blocks(&house);
    assert_eq!((blocks[0].1.len(), blocks[0].1[0].len()), (1, 1));
}

#[test]
fn what_cannot_be_imported_is_reported_with_its_line_and_the_rest_is_imported() {
    let yaml = "a:\n  run:\n    /tmp:\n      - one\n      - echo b: c\n      -\n      - []\n      - - [x]\n        - y\n  \
                setup: z\n    \nb:\n  run: text\nc:\n<<: {d: 1}\ne:\n  run:\n    /tmp/{tag}: [f]\n    /tmp: g\n";
    let house = house(yaml);
    check(
        &house,
        &["config.yml"],
        1,
        &[
            "config.yml:5: a command is a table",
            "config.yml:6: a command is empty",
            "config.yml:7: a list of commands is empty",
            "config.yml:8: a parent command is not a text",
            "config.yml:10: `setup` is not a key that steakpie knows",
            "`run` is not a key that steakpie knows",
            "`b` has no commands",
            "`c` has no commands",
            "a merge (`<<`) is not supported",
            "`/tmp/{tag}` has braces",
            "`/tmp` has no list of commands",
            "wrote hookonce.toml",
        ],
    );
    assert_eq!(blocks(&house), [("a".to_owned(), vec![vec!["one".to_owned()]])]);
    assert!(fs::read_to_string(house.path("hookonce.toml")).unwrap().contains("# not imported, line 5: a command"));
}

#[test]
fn a_second_import_changes_nothing_and_says_so() {
    let house = house(PLAIN);
    database(&house.path("db.sqlite"), BY_CHANGE, &["'d1', 'latest', 1, 'x'", "'d2', 'latest', 2, 'y'"]);
    let first =
        check(&house, &["config.yml", "--db", "db.sqlite"], 0, &["4 keys", "stop steakpie", "stay as they are"]);
    assert!(!first.contains("nothing was changed"), "{first}");
    let written = fs::read(house.path("hookonce.toml")).unwrap();
    let same = ["4 keys already there", "it has the same content", "nothing was changed"];
    check(&house, &["config.yml", "--db", "db.sqlite"], 0, &same);
    assert_eq!(fs::read(house.path("hookonce.toml")).unwrap(), written);
    assert_eq!(house.sql("select count(*) from imported"), ["4"]);

    database(&house.path("db2.sqlite"), BY_ID, &["'d2'", "'d3'"]);
    check(&house, &["config.yml", "--db", "db2.sqlite"], 0, &["1 key, besides 1 already there"]);
}

#[test]
fn an_existing_config_is_replaced_only_with_force() {
    let house = house(PLAIN);
    let mine = "[source.mine]\npreset = \"github-package\"\nsecret = { env = \"X\" }\n[[source.mine.route]]\n";
    fs::write(house.path("hookonce.toml"), mine).unwrap();
    database(&house.path("db.sqlite"), BY_ID, &["'d1'"]);
    check(&house, &["config.yml"], 1, &["--force", "hookonce.db: 1 key\n", "not overwritten"]);
    assert_eq!(fs::read_to_string(house.path("hookonce.toml")).unwrap(), mine);
    check(&house, &["config.yml", "--force"], 0, &["overwrote hookonce.toml"]);
    assert!(fs::read_to_string(house.path("hookonce.toml")).unwrap().contains("echo a"));
    // The keys are made under the scope of the config in use, so the new one has its own.
    assert_eq!(house.sql("select count(*) from imported"), ["2"]);
    fs::write(house.path("hookonce.toml"), "[source.mine\n").unwrap();
    check(&house, &["config.yml"], 2, &["hookonce.toml:1"]);
}

#[test]
fn a_dry_run_shows_everything_and_writes_nothing() {
    let house = house(PLAIN);
    database(&house.path("db.sqlite"), BY_ID, &["'d1'"]);
    let words = ["would write hookonce.toml", "steps   = [\"echo a\"]", "hookonce.db: 1 key\n", "nothing was written"];
    check(&house, &["config.yml", "--dry-run"], 0, &words);
    assert!(!house.path("hookonce.toml").exists() && !house.path("hookonce.db").exists());
    assert!(!house.path("hookonce.db.lock").exists());
}

#[test]
fn the_database_is_found_where_steakpie_finds_it() {
    let house = house(PLAIN);
    check(&house, &["config.yml"], 0, &["no steakpie database was given"]);
    database(&house.path("elsewhere.sqlite"), BY_ID, &["'d1'"]);
    let (code, out, _) = said(&import(&house, &["config.yml"]).env("DB_PATH", "elsewhere.sqlite").output().unwrap());
    assert!(code == Some(0) && out.contains("read elsewhere.sqlite: 1 event"), "{out}");
    database(&house.path("db.sqlite"), BY_ID, &["'d2'"]);
    check(&house, &["config.yml"], 0, &["read db.sqlite: 1 event"]);
    let before = fs::read(house.path("db.sqlite")).unwrap();
    check(&house, &["config.yml", "--db", "elsewhere.sqlite"], 0, &["read elsewhere.sqlite"]);
    assert_eq!(fs::read(house.path("db.sqlite")).unwrap(), before);
}

#[test]
fn another_port_and_another_store_are_written_into_the_config() {
    let house = house(PLAIN);
    database(&house.path("db.sqlite"), BY_ID, &["'d1'"]);
    fs::create_dir(house.path("sub")).unwrap();
    let args = ["config.yml", "--out", "sub/our.toml", "--store", "events.db"];
    let (code, out, error) = said(&import(&house, &args).env("PORT", "4000").output().unwrap());
    assert!(code == Some(0), "{out}{error}");
    let text = fs::read_to_string(house.path("sub/our.toml")).unwrap();
    assert!(text.contains("listen = \"0.0.0.0:4000\"") && text.contains("/events.db\""), "{text}");
    assert!(house.path("events.db").exists() && !house.path("sub/hookonce.db").exists());
}

#[test]
fn an_unreadable_row_is_reported_and_the_others_are_known() {
    let house = house(PLAIN);
    let table = BY_CHANGE.replace(" not null", "").replace("integer", "");
    let rows =
        ["'d1', 'latest', '5', 'x'", "'d2', null, null, null", "'d3', 'latest', 'five', 'x'", "x'00', '', 1, ''"];
    database(&house.path("db.sqlite"), &table, &rows);
    let words = ["2 events", "row 3 of `events`: its version_id", "row 4 of `events`: its delivery id", "3 keys"];
    check(&house, &["config.yml"], 1, &words);
}

#[test]
fn unreadable_input_is_reported_and_nothing_is_written() {
    let house = house(PLAIN);
    let bad = |name: &str, bytes: &[u8]| fs::write(house.path(name), bytes).unwrap();
    bad("binary.yml", &[0x7f, b'E', b'L', b'F', 0, 0xff]);
    bad("nul.yml", b"a: [b\0]");
    bad("tab.yml", b"a:\n\t- b\n");
    bad("open.yml", b"a:\n  - \"b\nc: d\n");
    bad("empty.yml", b"# nothing\n");
    bad("list.yml", b"- a\n");
    bad("long.yml", &vec![b'#'; 2 << 20]);
    bad(
        "text.sqlite",
        b"not a database, and longer than the header of one, which has a hundred bytes and says so at once",
    );
    database(&house.path("other.sqlite"), "create table events (a, b, c);", &["1"]);
    database(&house.path("none.sqlite"), "create table things (a);", &[]);
    fs::create_dir(house.path("folder")).unwrap();
    for (args, words) in [
        (&["missing.yml"][..], &["missing.yml does not exist", "hint:"][..]),
        (&["folder"], &["is a folder"]),
        (&["binary.yml"], &["is not text"]),
        (&["nul.yml"], &["is not text"]),
        (&["tab.yml"], &["tab.yml:2: it is not YAML", "hint: YAML does not allow tabs for indentation"]),
        (&["open.yml"], &["open.yml:", "it is not YAML", "quote a command"]),
        (&["empty.yml"], &["is empty"]),
        (&["list.yml"], &["line 1: the config is not a table of packages"]),
        (&["long.yml"], &["longer than 1 MB"]),
        (&["config.yml", "--db", "missing.sqlite"], &["there is no database at missing.sqlite"]),
        (&["config.yml", "--db", "folder"], &["folder is a folder"]),
        (&["config.yml", "--db", "text.sqlite"], &["is not an SQLite database"]),
        (&["config.yml", "--db", "other.sqlite"], &["it has a, b, c"]),
        (&["config.yml", "--db", "none.sqlite"], &["no table `events`"]),
        (&["config.yml", "--out", "folder"], &["folder"]),
        (&["config.yml", "--out", "nowhere/our.toml"], &["nowhere/our.toml"]),
    ] {
        check(&house, args, 2, words);
        assert!(!house.path("hookonce.toml").exists() && !house.path("hookonce.db").exists(), "{args:?}");
    }
}
