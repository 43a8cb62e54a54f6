//! Any text at all gives a config or problems; never a panic, and within reasonable time.

use super::{LONG, SHORT, fine, parse};
use hookonce::internals::config::ColorChoice;
use proptest::prelude::*;

/// Whatever the text, there is a config or there are problems, and they can be printed.
fn survives(text: &str) {
    match parse(text) {
        Ok(config) => {
            hookonce::internals::cli::check::describe(&config, &mut Vec::new()).expect("a vector takes everything");
        }
        Err(problems) => {
            assert!(!problems.list.is_empty());
            problems.render(ColorChoice::Colour);
        }
    }
}

#[test]
fn a_truncated_config_never_panics() {
    for text in [SHORT, LONG] {
        for (i, _) in text.char_indices() {
            survives(&text[..i]);
        }
    }
}

#[test]
fn a_text_full_of_problems_is_reported_quickly() {
    let megabyte = |line: &str| line.repeat((1 << 20) / line.len());
    for line in ["a\n", "a = 1\n", "[[[[", "{a=", "\"", "[source.x]\nverify = 1\n", "ä = \"\\u00\"\n"] {
        survives(&megabyte(line));
    }
    let many: Vec<_> = (0..30_000).map(|i| format!("key{i} = 1\n")).collect();
    let problems = parse(&many.concat()).unwrap_err();
    let last = problems.render(ColorChoice::Plain).lines().last().map(str::to_owned);
    assert_eq!(last.as_deref(), Some("40 errors, and 29961 more, in hookonce.toml; nothing was started"));
    let sources: Vec<_> = (0..5_000).map(|i| format!("[source.s{i}]\nverify = 'none'\n")).collect();
    assert_eq!(fine(&sources.concat()).sources.len(), 5_000);
}

/// Values to put in place of another one.
const ODD: [&str; 14] = [
    "1",
    "-1",
    "1.5",
    "true",
    "''",
    "'x'",
    "[]",
    "{}",
    "[[]]",
    "[{}]",
    "{ env = 1 }",
    "1979-05-27",
    "'{tag}'",
    "'日本\\'",
];

#[test]
fn another_value_anywhere_never_panics() {
    for (i, line) in LONG.lines().enumerate().chain(SHORT.lines().enumerate()) {
        let Some((key, _)) = line.split_once(" = ") else { continue };
        for text in [SHORT, LONG] {
            for odd in ODD {
                let lines = text.lines().enumerate();
                let changed: Vec<_> =
                    lines.map(|(j, l)| if i == j { format!("{key} = {odd}") } else { l.to_owned() }).collect();
                survives(&changed.join("\n"));
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::seed::cases(400))]

    #[test]
    fn any_text_never_panics(text in "\\PC*") {
        survives(&text);
    }

    #[test]
    fn any_tables_and_values_never_panic(
        lines in prop::collection::vec(
            ("(\\[{1,2}source(\\.s(\\.(route|once|fields|verify|route\\.run))?)?\\]{1,2}|listen|store|admin|per|change|run|steps|tag|verify|when|group|secret|retry|forward|env|dir)",
             prop::sample::select(&ODD[..])), 0..12)
    ) {
        let text: Vec<_> = lines
            .iter()
            .map(|(key, value)| if key.starts_with('[') { key.clone() } else { format!("{key} = {value}") })
            .collect();
        survives(&text.join("\n"));
    }

    #[test]
    fn a_config_with_a_few_bytes_changed_never_panics(
        long: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = if long { LONG } else { SHORT }.as_bytes().to_vec();
        for (index, byte) in changes {
            let i = index.index(bytes.len());
            bytes[i] = byte;
        }
        survives(&String::from_utf8_lossy(&bytes));
    }
}
