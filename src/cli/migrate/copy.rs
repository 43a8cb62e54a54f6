//! `hookonce migrate copy`: copies a whole store into another one; `hookonce migrate reopen`: makes the old one usable
//! again.

use crate::cli::error::CommandError;
use crate::cli::terminal::confirm;
use crate::config::EnvLookup;
use crate::decide::error_message::ErrorMessage;
use crate::store::copy::{
    self, CopyError, CopyProgress, CopyReport, CopyRole, CopySide, CopyStage, CopyStore, CopyTotals,
};
use crate::store::open::{StoreUrl, StoreUrlError, durable_addresses, open_to_copy};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Width of the progress bar.
const BAR: u64 = 30;

/// Copies one store into another. No node may run on either.
pub async fn copy(from: &str, to: &str, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let (source, target) = (address(from, env, CopySide::Source)?, address(to, env, CopySide::Target)?);
    if source == target || is_one_file(&source, &target) {
        return Err(CommandError::unknown(CopyError::Same.to_string()));
    }
    let (from, to) = (open(&source, CopySide::Source).await?, open(&target, CopySide::Target).await?);
    let mut bar = ProgressBar { shown: None, live: io::stderr().is_terminal() };
    let copied = copy::copy(&*from, &*to, |progress| bar.show(progress)).await;
    bar.end();
    let CopyReport { source: here, target: there, resumed } = copied.map_err(trouble)?;
    let again = if resumed { ", finishing an earlier copy" } else { "" };
    writeln!(out, "copied {} events from {source} to {target}{again}", here.events)?;
    table(&here, &there, out)?;
    writeln!(
        out,
        "next: set `store` in the config to the new address, and start the nodes\n\
         {source} is unchanged, but nodes refuse to start on it (`hookonce migrate reopen` undoes that)"
    )?;
    Ok(0)
}

/// Makes a store usable again after it was copied.
pub async fn reopen(address: &StoreUrl, yes: bool, out: &mut impl Write) -> Result<u8, CommandError> {
    let store = open(address, CopySide::Source).await?;
    let what = match copy::mark_on(&*store).await.map_err(trouble)? {
        None => {
            writeln!(out, "{address} can be used: it is not part of a copy")?;
            return Ok(0);
        }
        Some(mark @ CopyRole::Target { .. }) => return Err(CommandError::no(mark.refusal(address))),
        Some(CopyRole::Source { .. }) => {
            "this aborts its copy, which must then start again with an empty target.".to_owned()
        }
        Some(CopyRole::Retired { at, .. }) => {
            format!("it was copied on {at}; everything the other store has done since will be done again.")
        }
    };
    confirm(&format!("{address}: {what}"), yes).await?;
    copy::reopen(&*store).await.map_err(trouble)?;
    writeln!(out, "{address} can be used again")?;
    Ok(0)
}

/// The store named on the command line: an address, `env:NAME`, or an existing file.
pub fn address(given: &str, env: EnvLookup<'_>, side: CopySide) -> Result<StoreUrl, CommandError> {
    // A password on the command line is visible to every user of the machine.
    let text = match given.strip_prefix("env:") {
        Some(name) => {
            env(name).ok_or_else(|| CommandError::unknown(format!("the environment variable `{name}` is not set")))?
        }
        None => given.to_owned(),
    };
    match StoreUrl::parse(&text, Path::new("")) {
        Ok(address) => Ok(address),
        Err(_) if Path::new(&text).is_file() => Ok(StoreUrl::Sqlite(text.into())),
        Err(StoreUrlError) => Err(CommandError::unknown(format!(
            "`{}` cannot be the {side}: expected {}, or env:NAME",
            shown(given),
            durable_addresses().replace(" or ", ", ")
        ))),
    }
}

async fn open(address: &StoreUrl, side: CopySide) -> Result<Box<dyn CopyStore>, CommandError> {
    open_to_copy(address, side).await.map_err(|cannot| CommandError::unknown(ErrorMessage::of(cannot)))
}

/// An unreachable server means unknown; every other failure is a definite no.
fn trouble(error: CopyError) -> CommandError {
    match error {
        CopyError::Store(..) | CopyError::InUse(..) | CopyError::Overtaken => {
            CommandError::unknown(ErrorMessage::of(error))
        }
        refused => CommandError::no(ErrorMessage::of(refused)),
    }
}

/// Whether both addresses are the same file.
fn is_one_file(one: &StoreUrl, other: &StoreUrl) -> bool {
    match (one, other) {
        (StoreUrl::Sqlite(one), StoreUrl::Sqlite(other)) => match (one.canonicalize(), other.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        },
        _ => false,
    }
}

/// Prints the counts and digests of both sides.
fn table(here: &CopyTotals, there: &CopyTotals, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:<14} {:>12} {:>12}", "", "source", "target")?;
    for ((name, here), (_, there)) in here.lines().into_iter().zip(there.lines()) {
        writeln!(out, "{name:<14} {here:>12} {there:>12}")?;
    }
    writeln!(out, "sha256 of the source {:?}\nsha256 of the target {:?}", here.digest, there.digest)
}

/// The given store for messages, without a password.
fn shown(given: &str) -> String {
    if given.contains('@') { format!("{}:…", given.split(':').next().unwrap_or_default()) } else { given.to_owned() }
}

/// Progress on standard error: a bar on a terminal, a line per 10 % otherwise.
struct ProgressBar {
    shown: Option<(CopyStage, u64)>,
    live: bool,
}

impl ProgressBar {
    fn show(&mut self, CopyProgress { stage, done, of }: CopyProgress) {
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
            CopyStage::Copies => "copying",
            CopyStage::Compares => "comparing",
        };
        let mut err = io::stderr();
        let told = if self.live {
            let full = usize::try_from(part).unwrap_or_default();
            let rest = usize::try_from(BAR - part.min(BAR)).unwrap_or_default();
            write!(err, "\r{word:<9} [{}{}] {done} of {of}", "#".repeat(full), " ".repeat(rest))
        } else {
            writeln!(err, "{word} {done} of {of}")
        };
        told.and_then(|()| err.flush()).unwrap_or_default(); // a closed standard error does not stop the copy
    }

    fn end(&mut self) {
        if self.live && self.shown.take().is_some() {
            eprintln!();
        }
    }
}
