//! `hookonce man`, `completions`, `schema` and `presets`: texts generated from our own definitions.

use super::UNKNOWN;
use crate::config::presets::Preset;
use crate::config::{json_schema as config, presets};
use crate::decide::nearest_name::nearest;
use crate::decide::time::duration_text;
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::{Value, json};
use std::io;
use std::io::Write;
use std::path::Path;

/// Prints the man page of the program, or writes one for it and each command into a folder.
pub(crate) fn man(program: &clap::Command, dir: Option<&Path>, out: &mut impl Write) -> io::Result<u8> {
    let Some(dir) = dir else {
        Man::new(program.clone()).render(out)?;
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
    for (file, page) in pages {
        let mut text = Vec::new();
        Man::new(page).render(&mut text)?;
        let path = dir.join(file);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("error: {} cannot be written: {error}", path.display());
            return Ok(UNKNOWN);
        }
        writeln!(out, "{}", path.display())?;
    }
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
    writeln!(out, "{:#}", config::schema())
}

/// Lists the presets, or prints a source with one of them, and what the preset sets.
pub(crate) fn presets(name: Option<&str>, json: bool, out: &mut impl Write) -> io::Result<u8> {
    let Some(name) = name else {
        if json {
            let all: Vec<_> = presets::shown().map(preset_json).collect();
            writeln!(out, "{:#}", Value::from(all))?;
            return Ok(0);
        }
        let wide = presets::shown().map(|preset| preset.name.len()).max().unwrap_or(0);
        for preset in presets::shown() {
            writeln!(out, "{:<wide$}  {}", preset.name, preset.about())?;
        }
        return Ok(0);
    };
    let Some(preset) = presets::shown().find(|preset| preset.name == name) else {
        let meant = nearest(name, presets::shown().map(|preset| preset.name));
        let hint = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        eprintln!("error: there is no preset `{name}`{hint}\nhint: `hookonce presets` lists them");
        return Ok(UNKNOWN);
    };
    if json {
        writeln!(out, "{:#}", preset_json(preset))?;
        return Ok(0);
    }
    if preset.name != presets::POLL.name {
        writeln!(out, "{}\n# The preset sets these keys; a key that you write replaces its own.", preset.example())?;
    }
    for line in preset.text.trim_end().lines() {
        writeln!(out, "{}", format!("# {}", line.strip_prefix("# ").unwrap_or(line)).trim_end())?;
    }
    Ok(0)
}

/// A preset, for programs.
fn preset_json(preset: &Preset) -> Value {
    let sender = preset.sender();
    let sample = preset.sample.and_then(|sample| serde_json::from_str::<Value>(sample).ok());
    json!({
        "preset": preset.name,
        "about": preset.about(),
        "sender": sender.name,
        "needs": sender.needs,
        "retries": sender.retries.map(duration_text),
        "by_hand": sender.by_hand,
        "unchecked": sender.unchecked,
        "config": preset.text,
        "sample": sample,
    })
}
