//! `hookonce completions`: for bash, zsh, fish and others, from the command line's own definition.

use clap_complete::Shell;
use std::io::{self, Write};

/// Prints what a shell needs to complete the command line.
pub fn completions(mut program: clap::Command, shell: Shell, out: &mut impl Write) -> io::Result<()> {
    // The generator panics when it cannot write, so it writes where it always can.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, "hookonce", &mut text);
    out.write_all(&text)
}
