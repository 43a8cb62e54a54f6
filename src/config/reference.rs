//! Generates `docs/config.md` from the table of keys. A test keeps the file up to date.

use super::keys::{ConfigKey, ConfigKeyAvailability, KEYS, SectionKind};
use super::presets::PRESETS;
use std::fmt::Write as _;

/// The sections in the order of a typical config, each with its heading and description.
const PARTS: &[(SectionKind, &str, &str)] = &[
    (SectionKind::Top, "The top level", "Outside of every table."),
    (SectionKind::Admin, "`[admin]`", "The admin port: API, metrics, dashboard."),
    (SectionKind::Token, "`tokens = [{ … }]`", "An entry of `admin.tokens`."),
    (SectionKind::Source, "`[source.NAME]`", "A sender. NAME consists of lower-case letters, digits, `_` and `-`."),
    (SectionKind::From, "`from = { … }`", "A NATS stream that deliveries are read from."),
    (SectionKind::Verify, "`verify = { … }`", "How deliveries are verified."),
    (SectionKind::Field, "`fields.NAME = { … }`", "A named value. A place alone is short for `{ at = \"…\" }`."),
    (SectionKind::Once, "`[source.NAME.once]`", "What makes two deliveries the same event, and for how long."),
    (SectionKind::Change, "`change = { … }`", "A register per subject: the same change again is a duplicate."),
    (
        SectionKind::Route,
        "`[[source.NAME.route]]`",
        "Where events go. The first route that lets a delivery through wins.",
    ),
    (
        SectionKind::Block,
        "`run = { … }`",
        "Commands. Blocks are independent of each other; inside a block, a step runs only if the previous one succeeded.",
    ),
    (
        SectionKind::Forward,
        "`forward = { … }`",
        "A receiver to forward deliveries to, or a list: one event for each. See docs/forward.md.",
    ),
    (
        SectionKind::Sql,
        "`sql = { … }`",
        "One statement, run in the transaction that moves the event to done. A string is short for `{ statement = \"…\" }`. See docs/sql.md.",
    ),
    (SectionKind::Sign, "`sign = { … }`", "Signs what is sent, so that the receiver can verify it."),
    (SectionKind::Publish, "`publish = { … }`", "A NATS subject to publish deliveries to."),
    (SectionKind::Retry, "`retry = { … }`", "When a failed attempt is retried. Each wait is random, up to its length."),
    (SectionKind::External, "`{ env = \"…\" }` or `{ file = \"…\" }`", "A value from outside of the config file."),
];

const HEAD: &str = "\
# The config

Generated from the table of keys in `src/config/keys.rs`; `HOOKONCE_BLESS=1 cargo test --test cli_setup` updates it.

`hookonce.toml` is found by `--config`, else `HOOKONCE_CONFIG`, else in the current folder, else in `/etc/hookonce/`.
Paths in it are relative to it. `hookonce init` writes one, `hookonce check` explains one, and
`hookonce schema` prints a JSON Schema for editors.

Durations are whole numbers with `ms`, `s`, `m`, `h` or `d`; sizes with `KB`, `MB` or `GB`, counted in 1024. Anything
secret is `{ env = \"…\" }` or `{ file = \"…\" }`, never a text in the file.

A place in a delivery is `body.a.0.b`, `body.\"a.b\"`, `header.x`, `query.x` or `path`. An expression is written like
CEL, over names of fields: `== != < <= > >= && || ! ( ) in [..]`, `exists(x)`, `x.startsWith(\"…\")`, `.endsWith`,
`.contains`, `.matches(\"regex\")`. A missing field is `null`.
";

/// The whole page, as Markdown.
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    for (part, title, about) in PARTS {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n## {title}\n\n{about}\n\n| Key | Type | Default | |\n|---|---|---|---|\n");
        for key in KEYS.iter().filter(|key| key.part == *part && key.since == ConfigKeyAvailability::Now) {
            out += &row(key);
        }
    }
    out += "\n## Presets\n\nA key beside `preset` replaces that key completely; fields are added.\n";
    for preset in PRESETS {
        let _ = write!(out, "\n### `{}`\n\n```toml\n{}\n```\n", preset.name, preset.text.trim_end());
    }
    out
}

fn row(key: &ConfigKey) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    format!("| `{}` | {} | {} | {} |\n", key.name, cell(&key.takes.expected()), cell(key.default), cell(key.doc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_can_be_written_is_in_the_reference() {
        let page = markdown();
        for key in KEYS.iter().filter(|key| key.since == ConfigKeyAvailability::Now) {
            assert!(PARTS.iter().any(|(part, ..)| *part == key.part), "{key:?} has no chapter");
            assert!(page.contains(&row(key)), "{key:?}");
        }
    }
}
