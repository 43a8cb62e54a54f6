//! Generates the reference of the config from the tables of keys: `docs/config.md` (a test keeps it up to date), the text of
//! `hookonce help config`, and the man page hookonce.toml(5).

use super::keys::{ConfigKey, SectionKeys, sections};
use super::presets;
use std::fmt::Write as _;

const HEAD: &str = "\
# The config

Generated from the tables of keys in `src/config`; `HOOKONCE_BLESS=1 cargo test --test cli_setup` updates it. The binary has
it, too: `hookonce help config`.

";

const INTRODUCTION: &str = "\
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
    let mut out = format!("{HEAD}{INTRODUCTION}");
    for section in written_sections() {
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

fn written_sections() -> impl Iterator<Item = &'static SectionKeys> {
    sections().into_iter().filter(|section| section.writable().next().is_some())
}

/// The names of the sections, by which one of them can be asked for.
pub(crate) fn section_names() -> Vec<&'static str> {
    written_sections().map(|section| section.name).collect()
}

/// The reference as plain text: of one section, or all of it. `wrap` breaks a text into lines that leave room for an
/// indentation. `None`: there is no such section.
pub(crate) fn text(name: Option<&str>, wrap: &dyn Fn(&str, usize) -> Vec<String>) -> Option<String> {
    let mut out = String::new();
    let mut write = |indent: usize, text: &str| {
        for line in wrap(text, indent) {
            let _ = writeln!(out, "{}", format!("{:indent$}{line}", "").trim_end());
        }
    };
    if name.is_none() {
        for paragraph in INTRODUCTION.trim_end().split("\n\n") {
            write(0, &paragraph.replace('\n', " "));
            write(0, "");
        }
    }
    let mut found = false;
    for section in written_sections().filter(|section| name.is_none_or(|name| name == section.name)) {
        found = true;
        write(0, &format!("{}  ({})", section.title.replace('`', ""), section.name));
        write(2, section.about);
        for key in section.writable() {
            write(0, "");
            write(2, key.name);
            write(6, key.doc);
            write(6, &format!("Type: {}. Default: {}.", key.takes.expected(), key.default));
        }
        write(0, "");
    }
    found.then_some(out)
}

/// The man page hookonce.toml(5).
pub fn manual() -> String {
    let mut out = format!(
        ".TH hookonce.toml 5 \"\" \"hookonce {}\" \"File formats\"\n.SH NAME\nhookonce.toml \\- the config of hookonce(1)\n\
         .SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    for paragraph in INTRODUCTION.trim_end().split("\n\n") {
        let _ = writeln!(out, ".PP\n{}", roff(paragraph));
    }
    for section in written_sections() {
        let _ =
            writeln!(out, ".SH \"{}\"\n{}", roff(&section.title.replace('`', "")).to_uppercase(), roff(section.about));
        for key in section.writable() {
            let (name, doc) = (roff(key.name), roff(key.doc));
            let (takes, default) = (roff(&key.takes.expected()), roff(key.default));
            let _ = writeln!(out, ".TP\n\\fB{name}\\fR\n{doc}\n.br\nType: {takes}. Default: {default}.");
        }
    }
    out += ".SH SEE ALSO\n.BR hookonce (1)\n";
    out
}

/// A text of a man page. No line of it is a request.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    let safe = |line: &str| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() };
    escaped.lines().map(safe).collect::<Vec<_>>().join("\n")
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

To try a preset, put what `hookonce presets NAME` prints into the config, start the node, and send as its sender would:

```console
$ STRIPE_SECRET=… hookonce send --preset stripe --sample
$ hookonce send --preset discord --sample --key discord.pem
$ hookonce send --preset github-actions --sample --key ci.pem
```

For a sender that signs with a private key, `send` makes a pair and prints the line with the public half. A sender that
publishes its keys (tokens of an issuer, SNS, PayPal) needs one more line in its source, so that the node on this machine
fetches the key of `send`: `keys = \"http://127.0.0.1:3144/keys\"`, or `certificates = \"http://127.0.0.1:3144\"`; `send` prints
the whole source, serves the key while it runs (`--keys-port` is another port), and sends again until the node has fetched
it, which takes up to a minute where the node has run for a while. With values of your own, name the source of your config:
`hookonce send --source NAME --sample --key ci.pem`. Remove the line afterwards: with it, only your key counts.

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
