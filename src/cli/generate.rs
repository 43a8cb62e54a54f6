//! `hookonce man`, `completions`, `schema` and `presets`: texts generated from our own definitions.

use super::UNKNOWN;
use crate::cli::terminal::Terminal;
use crate::config::presets::{Preset, SenderFacts};
use crate::config::{self, EnvLookup, UserPreset, json_schema, presets, reference};
use crate::decide::nearest_name::nearest;
use crate::decide::time::duration_text;
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::{Map, Value, json};
use std::io;
use std::io::Write;
use std::path::Path;

/// The name of the man page of the config, without its section.
const CONFIG_PAGE: &str = "hookonce.toml";

/// Prints a man page: that of the program, of the config, or of a command. Or writes all of them into a folder.
pub(crate) fn man(
    program: &clap::Command,
    page: Option<&str>,
    dir: Option<&Path>,
    out: &mut impl Write,
) -> io::Result<u8> {
    let Some(dir) = dir else {
        let name = page.unwrap_or("hookonce");
        if name == CONFIG_PAGE {
            write!(out, "{}", reference::manual())?;
            return Ok(0);
        }
        let mut program = program.clone();
        program.build();
        let command = name.strip_prefix("hookonce-").and_then(|name| program.find_subcommand(name));
        let named = command.map(|command| command.clone().name(name.to_owned().leak() as &'static str));
        let Some(page) = named.or_else(|| (name == "hookonce").then_some(program)) else {
            eprintln!("error: there is no man page {name:?}\nhint: hookonce, {CONFIG_PAGE}, or hookonce-COMMAND");
            return Ok(UNKNOWN);
        };
        Man::new(page).render(out)?;
        return Ok(0);
    };
    let mut program = program.clone();
    program.build();
    let mut pages = vec![("hookonce.1".to_owned(), program.clone())];
    for command in program.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let name = format!("hookonce-{}", command.get_name());
        // Clap wants a static name; the process ends soon after.
        pages.push((format!("{name}.1"), command.clone().name(name.leak() as &'static str)));
    }
    let render = |(file, page): (String, clap::Command)| {
        let mut text = Vec::new();
        Man::new(page).render(&mut text).map(|()| (file, text))
    };
    let mut texts = pages.into_iter().map(render).collect::<io::Result<Vec<_>>>()?;
    texts.push((format!("{CONFIG_PAGE}.5"), reference::manual().into_bytes()));
    for (file, text) in texts {
        let path = dir.join(file);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("error: {} cannot be written: {error}", path.display());
            return Ok(UNKNOWN);
        }
        writeln!(out, "{}", path.display())?;
    }
    Ok(0)
}

/// Prints the help of the program, of a command, or of a topic.
pub(crate) fn help(mut program: clap::Command, topic: &[String], out: &mut impl Write) -> io::Result<u8> {
    if let [first, rest @ ..] = topic
        && first == "config"
    {
        let (terminal, section) = (Terminal::stdout(false), rest.first().map(String::as_str));
        let text = reference::text(section, &|text, indent| terminal.wrap(text, indent));
        let Some(text) = text.filter(|_| rest.len() < 2) else {
            let names = reference::section_names();
            let near = nearest(&rest.join(" "), names.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
            eprintln!(
                "error: the config has no section {:?}{}\nhint: {}",
                rest.join(" "),
                near.unwrap_or_default(),
                names.join(", ")
            );
            return Ok(UNKNOWN);
        };
        write!(out, "{text}")?;
        return Ok(0);
    }
    program.build();
    let mut command = &mut program;
    for name in topic {
        let Some(inner) = command.find_subcommand_mut(name) else {
            eprintln!("error: there is no command or topic {name:?}\nhint: `hookonce help` lists them");
            return Ok(UNKNOWN);
        };
        command = inner;
    }
    write!(out, "{}", command.render_long_help())?;
    Ok(0)
}

/// Prints the completion script of a shell.
pub(crate) fn completions(mut program: clap::Command, shell: Shell, out: &mut impl Write) -> io::Result<()> {
    // The generator panics when it cannot write, so it writes into memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, "hookonce", &mut text);
    out.write_all(&text)
}

/// Prints the JSON Schema of the config.
pub(crate) fn schema(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:#}", json_schema::schema())
}

/// A preset to be shown: a built-in one, or one of the user's own.
struct ShownPreset {
    name: String,
    about: String,
    sender: SenderFacts,
    signs: &'static str,
    text: String,
    sample: Option<&'static str>,
    example: Option<String>,
    file: Option<String>,
    is_built_in: bool,
}

impl From<&Preset> for ShownPreset {
    fn from(preset: &Preset) -> Self {
        let is_poll = preset.name == presets::POLL.name;
        Self {
            name: preset.name.to_owned(),
            about: preset.about().to_owned(),
            sender: preset.sender(),
            signs: if is_poll { "none" } else { preset.signs() },
            text: preset.text.to_owned(),
            sample: preset.sample,
            example: (!is_poll).then(|| preset.example()),
            file: None,
            is_built_in: true,
        }
    }
}

impl From<UserPreset> for ShownPreset {
    fn from(preset: UserPreset) -> Self {
        Self {
            about: preset.about(),
            sender: preset.sender(),
            signs: preset.signs(),
            sample: None,
            example: Some(preset.example()),
            is_built_in: false,
            name: preset.name,
            text: preset.text,
            file: preset.file,
        }
    }
}

/// The presets of the user's own, if there is a config. An error is what is wrong with them, in lines.
fn own_presets(explicit: Option<&Path>, env: EnvLookup<'_>) -> Result<Vec<UserPreset>, String> {
    let path = match (explicit, config::find(explicit, env)) {
        (_, Ok(path)) => path,
        (None, Err(_)) => return Ok(Vec::new()),
        (Some(_), Err(error)) => return Err(error.to_string()),
    };
    config::user_presets(&path, env).map_err(|error| error.to_string())
}

/// Lists the presets, or prints a source with one of them, and what the preset sets.
pub(crate) fn presets(
    explicit: Option<&Path>,
    name: Option<&str>,
    json: bool,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<u8> {
    let (own, error) = match own_presets(explicit, env) {
        Ok(own) => (own, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let Some(name) = name else {
        let shown: Vec<ShownPreset> =
            presets::shown().map(ShownPreset::from).chain(own.into_iter().map(ShownPreset::from)).collect();
        list_presets(&shown, json, out)?;
        return Ok(report(error));
    };
    let built_in = presets::shown().find(|preset| preset.name == name).map(ShownPreset::from);
    let names: Vec<_> = own.iter().map(|preset| preset.name.clone()).collect();
    let found = built_in.or_else(|| own.into_iter().find(|preset| preset.name == name).map(ShownPreset::from));
    let Some(preset) = found else {
        if error.is_some() {
            return Ok(report(error));
        }
        let all = presets::shown().map(|preset| preset.name).chain(names.iter().map(String::as_str));
        let hint = nearest(name, all).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        eprintln!("error: there is no preset `{name}`{hint}\nhint: `hookonce presets` lists them");
        return Ok(UNKNOWN);
    };
    if json {
        writeln!(out, "{:#}", preset_json(&preset))?;
        return Ok(0);
    }
    if let Some(example) = &preset.example {
        writeln!(out, "{example}")?;
        if preset.sender.needs.iter().any(|key| key == "path") {
            writeln!(out, "# Nothing is signed: whoever knows the path can send anything.")?;
        }
        // With an invalid preset of the user's own it is not known.
        if !preset.signs.is_empty() {
            writeln!(out, "# What is signed: {}.", preset.signs)?;
        }
        writeln!(out, "# The preset sets these keys; a key that you write replaces its own.")?;
    }
    for line in preset.text.trim_end().lines() {
        writeln!(out, "{}", format!("# {}", line.strip_prefix("# ").unwrap_or(line)).trim_end())?;
    }
    Ok(0)
}

/// Prints what is wrong with the user's presets.
fn report(error: Option<String>) -> u8 {
    let Some(error) = error else { return 0 };
    eprintln!("{error}");
    UNKNOWN
}

fn list_presets(shown: &[ShownPreset], json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        let all: Vec<_> = shown.iter().map(preset_json).collect();
        return writeln!(out, "{:#}", Value::from(all));
    }
    let width = |of: fn(&ShownPreset) -> usize| shown.iter().map(of).max().unwrap_or(0);
    let (wide, signs) = (width(|preset| preset.name.len()), width(|preset| preset.signs.len()));
    let (terminal, indent) = (Terminal::stdout(json), wide + signs + 4);
    for preset in shown {
        let mut lines = terminal.wrap(&preset.about, indent).into_iter();
        let about = lines.next().unwrap_or_default();
        writeln!(out, "{:<wide$}  {:<signs$}  {about}", preset.name, preset.signs)?;
        lines.try_for_each(|line| writeln!(out, "{:indent$}{line}", ""))?;
    }
    Ok(())
}

/// A preset, for programs.
fn preset_json(preset: &ShownPreset) -> Value {
    let sender = &preset.sender;
    let sample = preset.sample.and_then(|sample| serde_json::from_str::<Value>(sample).ok());
    // What it sets: the signature, identities, fields, handshakes. Its `sender` has members of its own here.
    let mut keys: Map<String, Value> = toml::from_str(&preset.text).unwrap_or_default();
    keys.remove("sender");
    json!({
        "preset": preset.name,
        "about": preset.about,
        "built_in": preset.is_built_in,
        "file": preset.file,
        "sender": sender.name,
        "version": sender.version,
        "signs": preset.signs,
        "needs": sender.needs,
        "secret": sender.secret,
        "claims": sender.claims,
        "order": sender.order,
        "retries": sender.retries.map(duration_text),
        "retry_count": sender.retry_count,
        "by_hand": sender.by_hand,
        "kind_headers": sender.kind_headers,
        "id_headers": sender.id_headers,
        "unchecked": sender.unchecked,
        "keys": keys,
        "config": preset.text,
        "sample": sample,
    })
}
