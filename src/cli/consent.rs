//! Asking a person before something happens that cannot be taken back, or happens many times.

use super::error::CommandError;
use std::io::{self, IsTerminal, Write};

/// Whether a person wants this: they said so before, or say so now. Where nobody can be asked, the answer is no.
pub async fn confirm(question: &str, said_before: bool) -> Result<(), CommandError> {
    if said_before {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CommandError::no(format!("{question} Say --yes to go on; nothing was done")));
    }
    write!(io::stderr(), "{question} Go on? [y/N] ").and_then(|()| io::stderr().flush()).unwrap_or_default();
    // On a thread of its own, so that Ctrl-C is heard meanwhile.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.ok().and_then(Result::ok).unwrap_or_default();
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CommandError::no("nothing was done")),
    }
}
