//! `hookonce import`: what other systems were told, as a config of ours. `import webhook` is in `webhook`.
//!
//! `hookonce import steakpie`: turns its config into one of ours, and its database into keys of what it has done.
//!
//! Nothing is written before everything is read and the new config loads. Keys are written first, so that no config
//! exists without them. Running it again changes nothing.

pub mod generated_config;
mod go_pattern;
pub mod steakpie_config;
pub(crate) mod steakpie_events;
pub(crate) mod webhook;
mod webhook_config;
mod webhook_hooks;
mod webhook_rule;
mod webhook_secrets;
pub mod yaml;

use crate::config::{self, Config, EnvLookup, StoreAddress};
use crate::decide::id::Key;
use crate::decide::identity::key;
use crate::decide::source::Source;
use crate::store::ImportCounts;
use crate::store::open::{OpenPurpose, open_for};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use steakpie_config::{SkippedEntry, SteakpieConfig};
use steakpie_events::{SteakpieEvents, SteakpieSchema};

/// Maximum bytes of a config; a longer file is probably the wrong one.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Where steakpie listens, unless `PORT` says otherwise.
const PORT: u16 = 3142;
/// Steakpie's database, unless `DB_PATH` says otherwise.
const DATABASE: &str = "db.sqlite";

/// Maximum number of unreadable rows that are listed one by one.
const ODD_SHOWN: usize = 20;

/// What to import, and where to.
#[derive(Clone, Debug)]
pub(crate) struct ImportOptions {
    /// Steakpie's config.
    pub config: PathBuf,
    /// Its database; `None`: `DB_PATH`, or `db.sqlite` if it exists.
    pub db: Option<PathBuf>,
    /// The config to write.
    pub out: PathBuf,
    /// The store to write; `None`: the one of that config.
    pub store: Option<PathBuf>,
    /// What may be written.
    pub may: ImportWriteMode,
}

/// What may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImportWriteMode {
    /// Nothing: only print it.
    Nothing,
    /// Only what does not exist yet.
    Add,
    /// Also over an existing config.
    Replace,
}

impl ImportWriteMode {
    /// What `--dry-run` and `--force` allow.
    pub(crate) fn of(dry_run: bool, force: bool) -> Self {
        match (dry_run, force) {
            (true, _) => Self::Nothing,
            (false, false) => Self::Add,
            (false, true) => Self::Replace,
        }
    }
}

/// The result; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ImportExit {
    /// Everything was imported.
    Whole = 0,
    /// Something was not, and the report lists it.
    NotAll = 1,
    /// Reading or writing failed.
    Failed = 2,
}

/// Why the import failed, as a sentence.
struct ImportError(String);

impl<E: Display> From<(&Path, E)> for ImportError {
    fn from((path, error): (&Path, E)) -> Self {
        Self(format!("{}: {error}", path.display()))
    }
}

/// Checks that the folder of a file that will be written exists, before anything is.
fn folder_exists(file: &Path) -> Result<(), ImportError> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err((file, format!("there is no folder `{}`; make it first", folder.display())).into()),
        None => Ok(()),
    }
}

/// Imports, and reports on `out`.
pub(crate) fn steakpie(order: &ImportOptions, env: EnvLookup<'_>, out: &mut impl Write) -> io::Result<ImportExit> {
    match prepare(order, env).and_then(|plan| plan.apply(order).map(|done| (plan, done))) {
        Ok((plan, done)) => plan.print_summary(order, &done, out),
        Err(ImportError(why)) => {
            eprintln!("error: {why}");
            Ok(ImportExit::Failed)
        }
    }
}

/// Everything that will be written.
struct ImportPlan {
    steakpie: SteakpieConfig,
    text: String,
    there: ExistingConfig,
    config: Config,
    store: Option<StoreAddress>,
    events: Option<(PathBuf, SteakpieEvents)>,
    keys: Vec<Key>,
}

/// The file that exists at the config's path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExistingConfig {
    Nothing,
    Same,
    Other,
}

fn prepare(order: &ImportOptions, env: EnvLookup<'_>) -> Result<ImportPlan, ImportError> {
    folder_exists(&order.out)?;
    let steakpie = read(&order.config)?;
    let from = order.config.file_name().unwrap_or_default().to_string_lossy();
    let port = env("PORT").and_then(|port| port.parse().ok()).unwrap_or(PORT);
    let store = match &order.store {
        Some(path) => format!("sqlite:{}", std::path::absolute(path).unwrap_or_else(|_| path.clone()).display()),
        None => "sqlite:hookonce.db".to_owned(),
    };
    let text = generated_config::config(
        &steakpie,
        generated_config::GeneratedConfigOptions { from: &from, port, store: &store },
    );
    let old = match fs::read(&order.out) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err((&*order.out, error).into()),
    };
    let there = match &old {
        None => ExistingConfig::Nothing,
        Some(old) if old == text.as_bytes() => ExistingConfig::Same,
        Some(_) => ExistingConfig::Other,
    };
    let stays = there == ExistingConfig::Other && order.may != ImportWriteMode::Replace;
    let counts = match old {
        Some(old) if stays => {
            String::from_utf8(old).map_err(|_| ImportError::from((&*order.out, "it is not UTF-8")))?
        }
        _ => text.clone(),
    };
    let config = parse_config(&counts, &order.out, env)?;
    let store = match (&order.store, &config.store) {
        (Some(path), _) => Some(StoreAddress::Sqlite(path.clone())),
        (None, StoreAddress::Memory) => None,
        (None, address) => Some(address.clone()),
    };
    let events = match database(order, env) {
        Some(path) => {
            Some((path.clone(), steakpie_events::read(&path).map_err(|unread| ImportError(unread.to_string()))?))
        }
        None => None,
    };
    let mut plan = ImportPlan { steakpie, text, there, config, store, events, keys: Vec::new() };
    plan.keys = plan.keys();
    Ok(plan)
}

fn read(path: &Path) -> Result<SteakpieConfig, ImportError> {
    let cannot = |what: &str| ImportError(format!("steakpie's config {} {what}", path.display()));
    if path.is_dir() {
        return Err(cannot("is a folder\nhint: name the file in it, config.yml or config.yaml"));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(cannot("does not exist\nhint: name the file that steakpie is started with"));
        }
        Err(error) => return Err(cannot(&format!("cannot be read: {error}"))),
        Ok(read) if read as u64 > FILE_BYTES_MAX => {
            return Err(cannot("is longer than 1 MB\nhint: is it the right file?"));
        }
        Ok(_) => {}
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| cannot("is not text\nhint: is it the right file?"))?;
    let document = yaml::parse(&text).map_err(|yaml::YamlError { line, what, hint }| {
        let hint = hint.map_or(String::new(), |hint| format!("\nhint: {hint}"));
        ImportError(format!("{}:{line}: it is not YAML: {what}{hint}", path.display()))
    })?;
    let root = document.root.ok_or_else(|| cannot("is empty"))?;
    let mut steakpie = steakpie_config::read(&root);
    if let Some(line) = document.second {
        steakpie.left.push(SkippedEntry { line, what: "a second document begins; steakpie never reads it".into() });
    }
    skip_folders_with_braces(&mut steakpie);
    if steakpie.packages.is_empty() {
        let left: Vec<_> = steakpie.left.iter().map(|left| format!("\n  line {}: {}", left.line, left.what)).collect();
        return Err(cannot(&format!("names no package with commands{}", left.concat())));
    }
    Ok(steakpie)
}

/// Rejects folder names with braces: `{x}` means a field to us, and there is no escape for it.
fn skip_folders_with_braces(steakpie: &mut SteakpieConfig) {
    let braces = |dir: &str| dir.contains('{') && dir.contains('}');
    for package in &mut steakpie.packages {
        for folder in package.folders.extract_if(.., |folder| folder.dir.as_deref().is_some_and(braces)) {
            let dir = folder.dir.unwrap_or_default();
            let what = format!("the folder `{dir}` has braces in its name, which stand for a field here; rename it");
            steakpie.left.push(SkippedEntry { line: package.line, what });
        }
    }
    steakpie.packages.retain(|package| !package.folders.is_empty());
    steakpie.left.sort();
}

/// Loads the new config, without its secrets.
fn parse_config(text: &str, path: &Path, env: EnvLookup<'_>) -> Result<Config, ImportError> {
    let with_secrets = |name: &str| env(name).or_else(|| Some("not needed to import".to_owned()));
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ImportError(format!("{} would be longer than 1 MB", path.display())));
    }
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
    config::parse(text, &path.display().to_string(), &folder, &with_secrets)
        .map_err(|problems| ImportError(problems.errors_text()))
}

fn database(order: &ImportOptions, env: EnvLookup<'_>) -> Option<PathBuf> {
    let named = order.db.clone().or_else(|| env("DB_PATH").filter(|path| !path.is_empty()).map(PathBuf::from));
    named.or_else(|| Some(PathBuf::from(DATABASE)).filter(|path| path.exists()))
}

/// The store's address for messages: a file is its path alone.
fn shown(store: &StoreAddress) -> String {
    match store {
        StoreAddress::Sqlite(path) => path.display().to_string(),
        other => other.to_string(),
    }
}

/// What the import wrote.
struct ImportSummary {
    imported: ImportCounts,
    config: ConfigWrite,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigWrite {
    New,
    Over,
    Nothing,
}

impl ImportPlan {
    /// The source that receives what steakpie received.
    fn source(&self) -> Option<&Source> {
        self.config.sources.iter().find(|source| source.once.imported.is_some()).map(|source| &**source)
    }

    fn keys(&self) -> Vec<Key> {
        let (Some(source), Some((_, events))) = (self.source(), &self.events) else { return Vec::new() };
        let fields = source.once.imported.as_deref().unwrap_or_default();
        let names: Vec<&str> = fields.iter().map(|ix| &*source.fields.get(*ix).name).collect();
        let of = |row: &steakpie_events::SteakpieEvent| {
            let delivery = key::imported_delivery(&source.scope, &row.delivery_id);
            let parts = key::parts(names.iter().copied(), &row.change).ok();
            [Some(delivery), parts.map(|parts| key::imported_change(&source.scope, &parts))]
        };
        events.rows.iter().flat_map(of).flatten().collect()
    }

    fn apply(&self, order: &ImportOptions) -> Result<ImportSummary, ImportError> {
        let mut done = ImportSummary { imported: ImportCounts::default(), config: ConfigWrite::Nothing };
        if order.may == ImportWriteMode::Nothing {
            return Ok(done);
        }
        if let Some(store) = self.store.as_ref().filter(|_| !self.keys.is_empty()) {
            done.imported = self.import(store)?;
        }
        done.config = match (self.there, order.may) {
            (ExistingConfig::Nothing, _) => {
                let file = OpenOptions::new().write(true).create_new(true).open(&order.out);
                file.and_then(|mut file| file.write_all(self.text.as_bytes()))
                    .map_err(|e| ImportError::from((&*order.out, e)))?;
                ConfigWrite::New
            }
            (ExistingConfig::Other, ImportWriteMode::Replace) => {
                let mut beside = order.out.clone().into_os_string();
                beside.push(".new");
                let moved = fs::write(&beside, &self.text).and_then(|()| fs::rename(&beside, &order.out));
                moved.map_err(|error| ImportError::from((&*order.out, error)))?;
                ConfigWrite::Over
            }
            (ExistingConfig::Same | ExistingConfig::Other, _) => ConfigWrite::Nothing,
        };
        Ok(done)
    }

    fn import(&self, address: &StoreAddress) -> Result<ImportCounts, ImportError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ImportError(error.to_string()))?;
        runtime.block_on(async {
            let store = open_for(address, OpenPurpose::Tool).await.map_err(|error| ImportError(error.to_string()))?;
            store.import(self.keys.clone()).await.map_err(|error| ImportError(format!("{}: {error}", shown(address))))
        })
    }

    /// Prints what was read, what was written, what was left out, and what to do next.
    fn print_summary(
        &self,
        order: &ImportOptions,
        done: &ImportSummary,
        out: &mut impl Write,
    ) -> io::Result<ImportExit> {
        let (from, to) = (order.config.display(), order.out.display());
        let commands: usize = self.steakpie.packages.iter().flat_map(|package| &package.folders).map(count).sum();
        writeln!(
            out,
            "read {from}: {}, {}",
            counted(self.steakpie.packages.len(), "package"),
            counted(commands, "command")
        )?;
        if let Some((path, SteakpieEvents { shape, rows, .. })) = &self.events {
            let known = match shape {
                SteakpieSchema::Id => "delivery id",
                SteakpieSchema::Change => "delivery id, tag, version id and sha",
            };
            writeln!(out, "read {}: {}, known by {known}", path.display(), counted(rows.len(), "event"))?;
        }
        let left = self.skipped(order);
        if order.may == ImportWriteMode::Nothing {
            match self.there {
                ExistingConfig::Nothing => writeln!(out, "would write {to}:\n\n{}", self.text)?,
                ExistingConfig::Same => writeln!(out, "would leave {to} unchanged: it has the same content")?,
                ExistingConfig::Other => {
                    writeln!(out, "would leave {to} unchanged; --force would write:\n\n{}", self.text)?;
                }
            }
            if let Some(store) = self.store.as_ref().filter(|_| !self.keys.is_empty()) {
                writeln!(out, "would write {}: {}", shown(store), counted(self.keys.len(), "key"))?;
            }
        } else {
            self.tell_written(order, done, out)?;
        }
        if self.events.is_none() {
            writeln!(out, "no steakpie database was given, so its past deployments are unknown; name it with --db")?;
        }
        if !left.is_empty() {
            writeln!(out, "\nnot imported:")?;
            left.iter().try_for_each(|left| writeln!(out, "  {left}"))?;
        }
        if order.may == ImportWriteMode::Nothing {
            writeln!(out, "\nnothing was written")?;
        } else {
            writeln!(
                out,
                "\nnext:\n  1. read {to}, and see what `hookonce check --config {to}` says\n  2. stop steakpie\n  \
                 3. start `hookonce serve --config {to}`, with WEBHOOK_SECRET as steakpie had it\n\
                 GitHub's URL and secret stay as they are."
            )?;
        }
        Ok(if left.is_empty() { ImportExit::Whole } else { ImportExit::NotAll })
    }

    fn tell_written(&self, order: &ImportOptions, done: &ImportSummary, out: &mut impl Write) -> io::Result<()> {
        let to = order.out.display();
        if let Some(store) = self.store.as_ref().filter(|_| !self.keys.is_empty()) {
            let (store, ImportCounts { new, known }) = (shown(store), done.imported);
            match (new, known) {
                (0, known) => writeln!(out, "left {store} unchanged: {} already there", counted(known, "key"))?,
                (new, 0) => writeln!(out, "wrote {store}: {}", counted(new, "key"))?,
                (new, known) => writeln!(out, "wrote {store}: {}, besides {known} already there", counted(new, "key"))?,
            }
        }
        match (done.config, self.there) {
            (ConfigWrite::New, _) => writeln!(out, "wrote {to}")?,
            (ConfigWrite::Over, _) => writeln!(out, "overwrote {to}")?,
            (ConfigWrite::Nothing, ExistingConfig::Same) => {
                writeln!(out, "left {to} unchanged: it has the same content")?;
            }
            (ConfigWrite::Nothing, _) => {
                writeln!(out, "left {to} unchanged: its content differs; --force overwrites it")?;
            }
        }
        if done.config == ConfigWrite::Nothing && done.imported.new == 0 {
            writeln!(out, "nothing was changed")?;
        }
        Ok(())
    }

    fn skipped(&self, order: &ImportOptions) -> Vec<String> {
        let from = order.config.display();
        let mut left: Vec<_> =
            self.steakpie.left.iter().map(|SkippedEntry { line, what }| format!("{from}:{line}: {what}")).collect();
        if let Some((path, events)) = &self.events {
            left.extend(events.odd.iter().take(ODD_SHOWN).map(|odd| format!("{}: {odd}", path.display())));
            if let Some(more @ 1..) = events.odd.len().checked_sub(ODD_SHOWN) {
                left.push(format!("{}: {more} more rows", path.display()));
            }
            if self.source().is_none() && !events.rows.is_empty() {
                let what = "has no source with the preset `github-package` that the events could belong to";
                left.push(format!("{} {what}", order.out.display()));
            }
            if self.store.is_none() && !events.rows.is_empty() {
                left.push(format!("{} keeps events in memory, so they cannot be imported", order.out.display()));
            }
        }
        if self.there == ExistingConfig::Other && order.may != ImportWriteMode::Replace {
            left.push(format!("{} already exists and is not overwritten without --force", order.out.display()));
        }
        left
    }
}

fn count(folder: &steakpie_config::SteakpieFolder) -> usize {
    fn of(command: &steakpie_config::SteakpieCommand) -> usize {
        1 + command.children.iter().map(of).sum::<usize>()
    }
    folder.commands.iter().map(of).sum()
}

fn counted<N: Display + PartialEq + From<u8> + Copy>(number: N, word: &str) -> String {
    if number == N::from(1) { format!("1 {word}") } else { format!("{number} {word}s") }
}
