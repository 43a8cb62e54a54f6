//! `hookonce man`, `completions`, `schema` and `presets`: texts generated from our own definitions.

use super::UNKNOWN;
use crate::config::{json_schema as config, presets};
use crate::decide::nearest_name::nearest;
use clap_complete::Shell;
use clap_mangen::Man;
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

/// Lists the presets, or prints one as config.
pub(crate) fn presets(name: Option<&str>, out: &mut impl Write) -> io::Result<u8> {
    let Some(name) = name else {
        let wide = presets::shown().map(|preset| preset.name.len()).max().unwrap_or(0);
        for preset in presets::shown() {
            let about = preset.text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
            writeln!(out, "{:<wide$}  {about}", preset.name)?;
        }
        return Ok(0);
    };
    let Some(preset) = presets::shown().find(|preset| preset.name == name) else {
        let meant = nearest(name, presets::shown().map(|preset| preset.name));
        let hint = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        eprintln!("error: there is no preset `{name}`{hint}\nhint: `hookonce presets` lists them");
        return Ok(UNKNOWN);
    };
    writeln!(out, "{}", preset.text.trim_end())?;
    Ok(0)
}
