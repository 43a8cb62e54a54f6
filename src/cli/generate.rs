//! `hookonce man`: manual pages, from the command line's own definition.

use super::UNKNOWN;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;

/// Prints the manual page of the program, or writes one for it and each of its commands into a folder.
pub fn man(program: &clap::Command, dir: Option<&Path>, out: &mut impl Write) -> io::Result<u8> {
    let Some(dir) = dir else {
        Man::new(program.clone()).render(out)?;
        return Ok(0);
    };
    let mut program = program.clone();
    program.build();
    let mut pages = vec![("hookonce.1".to_owned(), program.clone())];
    for command in program.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let name = format!("hookonce-{}", command.get_name());
        // Clap keeps names as long as the program runs, which is until here.
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
