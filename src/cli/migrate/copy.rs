//! `hookonce migrate copy`: everything a file holds, moved into a store that nodes can share.

use crate::cli::trouble::Trouble;
use crate::config::Env;
use crate::store::address::Address;
use crate::store::copy::{CannotCopy, Copied, Progress, Stage, copy as copy_all};
use crate::store::open::shelf;
use crate::store::sqlite::{Access, Sqlite};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// How wide the bar is.
const BAR: u64 = 30;

/// Moves all of one store into another. No node may run on either.
pub async fn copy(from: &str, to: &str, env: Env<'_>, out: &mut impl Write) -> Result<u8, Trouble> {
    let path = match Address::parse(from, Path::new("")) {
        Ok(Address::Sqlite(path)) => path,
        Err(_) if Path::new(from).is_file() => from.into(),
        _ => return Err(Trouble::unknown(format!("`{from}` cannot be moved: expected sqlite:PATH"))),
    };
    // A password on the command line could be read by everybody on this machine.
    let target = match to.strip_prefix("env:") {
        Some(name) => {
            env(name).ok_or_else(|| Trouble::unknown(format!("the environment variable `{name}` is not set")))?
        }
        None => to.to_owned(),
    };
    let address = match Address::parse(&target, Path::new("")) {
        Ok(address) if address.is_shared() => address,
        _ => {
            let why = "a file is moved into postgres://HOST/DATABASE or redis://HOST";
            return Err(Trouble::unknown(format!("`{to}` cannot be the target: {why}")));
        }
    };
    // Read first: what is not there is not made. Then with its lock: nobody writes it meanwhile.
    drop(Sqlite::open(&path, Access::Read).map_err(|error| Trouble::unknown(error.to_string()))?);
    let source = Sqlite::open(&path, Access::Tool).map_err(|error| Trouble::unknown(error.to_string()))?;
    let target = shelf(&address).await.map_err(|error| Trouble::unknown(error.to_string()))?;
    let name = std::fs::canonicalize(&path).unwrap_or(path).display().to_string();
    let mut bar = Bar { shown: None, live: io::stderr().is_terminal() };
    let copied = copy_all(&source, &name, &*target, |progress| bar.show(progress)).await;
    bar.end();
    let Copied { events, keys, others, before, digest } = copied.map_err(|cannot| match cannot {
        CannotCopy::Store(error) => Trouble::unknown(format!("{error}\nhint: run the same command again to go on")),
        refused => Trouble::No(refused.to_string()),
    })?;
    writeln!(out, "moved {events} events with {keys} keys, and {others} registers, slots and imported keys")?;
    if before > 0 {
        writeln!(out, "{before} of them were there already")?;
    }
    let digest = digest.map_or(String::new(), |digest| format!("{digest:?}"));
    writeln!(out, "both hold the same: sha256 {digest}")?;
    writeln!(
        out,
        "next: write the new address into `store` of the config, and start the nodes; keep the file until then"
    )?;
    Ok(0)
}

/// How far it is, on standard error: a bar for people, every tenth part for a log.
struct Bar {
    shown: Option<(Stage, u64)>,
    live: bool,
}

impl Bar {
    fn show(&mut self, Progress { stage, done, of }: Progress) {
        let parts = if self.live { BAR } else { 10 };
        let part = done.saturating_mul(parts).checked_div(of).unwrap_or(parts);
        if self.shown == Some((stage, part)) {
            return;
        }
        if self.shown.is_some_and(|(before, _)| before != stage) {
            self.end();
        }
        self.shown = Some((stage, part));
        let word = match stage {
            Stage::Copies => "copying",
            Stage::Compares => "comparing",
        };
        let mut err = io::stderr();
        let told = if self.live {
            let full = usize::try_from(part).unwrap_or_default();
            let rest = usize::try_from(BAR - part.min(BAR)).unwrap_or_default();
            write!(err, "\r{word:<9} [{}{}] {done} of {of}", "#".repeat(full), " ".repeat(rest))
        } else {
            writeln!(err, "{word} {done} of {of}")
        };
        told.and_then(|()| err.flush()).unwrap_or_default(); // a bar that nobody sees stops nothing
    }

    fn end(&mut self) {
        if self.live && self.shown.take().is_some() {
            eprintln!();
        }
    }
}
