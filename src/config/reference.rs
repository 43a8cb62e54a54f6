//! Generates `docs/config.md` from the tables of keys. A test keeps the file up to date.

use super::keys::{ConfigKey, sections};
use super::presets;
use std::fmt::Write as _;

const HEAD: &str = "\
# The config

Generated from the tables of keys in `src/config`; `HOOKONCE_BLESS=1 cargo test --test cli_setup` updates it.

`hookonce.toml` is found by `--config`, else `HOOKONCE_CONFIG`, else in the current folder, else in `/etc/hookonce/`.
Paths in it are relative to it. `hookonce init` writes one, `hookonce check` explains one, and
`hookonce schema` prints a JSON Schema for editors.

Durations are whole numbers with `ms`, `s`, `m`, `h` or `d`; sizes with `KB`, `MB` or `GB`, counted in 1024. Anything
secret is `{ env = \"…\" }` or `{ file = \"…\" }`, never a text in the file.

A place in a delivery is `body.a.0.b`, `body.\"a.b\"`, `form.x`, `header.x`, `query.x`, `claim.x` or `path`: `form.x` is a
value of a form (`application/x-www-form-urlencoded`), `claim.x` one of the token of scheme `jwt`. An expression is written
like CEL, over names of fields: `== != < <= > >= && || ! ( ) in [..]`, `exists(x)`, `x.startsWith(\"…\")`, `.endsWith`,
`.contains`, `.matches(\"regex\")`, and `string(x)`, the text of a number or flag as it was sent. A missing field is
`null`.
";

/// The whole page, as Markdown.
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    for section in sections().into_iter().filter(|section| section.writable().next().is_some()) {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\n## {}\n\n{}\n\n| Key | Type | Default | |\n|---|---|---|---|\n",
            section.title, section.about
        );
        out.extend(section.writable().map(row));
    }
    out += "\n## Presets\n\nA key beside `preset` replaces that key completely; fields are added. [senders.md](senders.md) has \
            every preset.\n";
    out
}

const SENDERS_HEAD: &str = "\
# Senders

Generated from `src/config/presets`; `HOOKONCE_BLESS=1 cargo test --test cli_setup` updates it.

`hookonce presets NAME` prints a source for one of these senders. A key beside `preset` replaces that key completely; fields
are added. Every identity is made of what the sender signs; `hookonce check` says what that is. A field may be something else,
such as the header with the kind of event. One that is not signed is in no identity; where it is used, `check` warns, or the
node compares it with the body.

What is signed is `id+time+body`, `id+body`, `time+body`, `body`, `fields` (only some values, or the values of a form), `nonce`
(nothing of the body), `token` (a secret that comes with each delivery) or `none`. A captured delivery can be sent again with
other content only where the content is not signed.

Order is the field that says in which order deliveries happened, where it is signed, or comes with a token: a time, or a number
that rises. Deliveries need not arrive in that order. A `change` takes it as its `order`.

Some senders ask a question before they send anything: they want a text back, or a signature of it. Their presets answer it
(`handshake`). Such an answer is in the log and on the dashboard, but it is no event.

| Preset | Sender | Signs | Order | Sends again | Needs | |
|---|---|---|---|---|---|---|
";

/// The page of all presets, as Markdown.
pub fn senders_markdown() -> String {
    let mut out = SENDERS_HEAD.to_owned();
    for preset in presets::PRESETS {
        let sender = preset.sender();
        let needs: Vec<_> = sender.needs.iter().map(|key| format!("`{key}`")).collect();
        let again = presets::retries_text(&sender);
        let about = preset.about();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {again} | {} | {about} |",
            preset.name,
            sender.name,
            preset.signs(),
            sender.order.as_ref().map(|field| format!("`{field}`")).unwrap_or_default(),
            needs.join(", ")
        );
    }
    out += "\nWhat every source with `poll` begins with is called `poll` here; no source names it.\n";
    for preset in presets::shown() {
        let _ = write!(out, "\n## `{}`\n\n```toml\n{}\n```\n", preset.name, preset.text.trim_end());
    }
    out
}

fn row(key: &ConfigKey) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    format!("| `{}` | {} | {} | {} |\n", key.name, cell(&key.takes.expected()), cell(key.default), cell(key.doc))
}
