//! `hookonce check --live`: checks that everything the config refers to exists and can be used. It changes nothing: no
//! schema is migrated, no stream created, no command started; receivers are only connected to.

mod fence;
#[cfg(feature = "nats")]
mod nats;
mod receiver;

use super::{CheckExit, ReportFormat, describe, load_config, print_errors, print_warnings};
use crate::action::plan::{ActionPlan, CommandBlock, CommandLine, EnvEntry, FieldTemplatePart, WorkingDir};
use crate::config::{Config, EnvLookup, SecretRequirement, StoreAddress};
use crate::store::StoreOpenError;
use crate::store::open::{MigrationMode, OpenPurpose, open_for};
use crate::store::schema::Migration;
use rustix::fs::{Access, access};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The search path for programs if `PATH` is not set.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The check of one thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LiveCheck {
    /// The kind of thing: secret, folder, …
    pub(super) what: &'static str,
    /// Which one.
    pub(super) name: String,
    /// A remark; or what is wrong, and what to do.
    pub(super) found: Result<String, (String, String)>,
}

impl LiveCheck {
    fn new(what: &'static str, name: impl Into<String>, found: Result<String, (String, String)>) -> Self {
        Self { what, name: name.into(), found }
    }
}

/// What is wrong, and what to do.
fn failed_check<T>(why: impl Into<String>, hint: impl Into<String>) -> Result<T, (String, String)> {
    Err((why.into(), hint.into()))
}

/// Prints what the config means, and checks what it refers to.
pub fn check(
    explicit: Option<&Path>,
    form: ReportFormat,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<CheckExit> {
    let (file, config) = match load_config(explicit, SecretRequirement::Optional, env) {
        Ok(found) => found,
        Err(problems) => return print_errors(&problems, form, out),
    };
    let all = run_checks(&config, env)?;
    let bad = all.iter().filter(|tried| tried.found.is_err()).count();
    match form {
        ReportFormat::Json => {
            let mut told = crate::config::describe::valid_config(&file, &config);
            told["status"] = if bad == 0 { "fine" } else { "wrong" }.into();
            told["live"] = all.iter().map(json).collect();
            writeln!(out, "{told:#}")?;
        }
        ReportFormat::Text(ink) => {
            print_warnings(&config, ink, out)?;
            describe(&config, out)?;
            for tried in &all {
                writeln!(out, "{}", line(tried))?;
            }
            match bad {
                0 => writeln!(out, "\n{file} is fine, and all {} live checks passed", all.len())?,
                _ => writeln!(out, "\n{bad} of {} live checks failed", all.len())?,
            }
        }
    }
    Ok(if bad == 0 { CheckExit::Fine } else { CheckExit::Wrong })
}

fn line(tried: &LiveCheck) -> String {
    let (word, words) = match &tried.found {
        Ok(words) => ("ok", words.clone()),
        Err((why, hint)) if hint.is_empty() => ("wrong", why.clone()),
        Err((why, hint)) => ("wrong", format!("{why}; {hint}")),
    };
    let rest = if words.is_empty() { String::new() } else { format!(": {words}") };
    format!("{word:<6} {:<9} {}{rest}", tried.what, tried.name)
}

/// Checks everything, each thing once.
fn run_checks(config: &Config, env: EnvLookup<'_>) -> io::Result<Vec<LiveCheck>> {
    let mut all = secrets(config);
    all.push(store(&config.store, config.migrate));
    all.extend(fence::tried(config));
    for plan in plans(config) {
        if let ActionPlan::Run(blocks) = plan {
            for block in blocks {
                all.push(folder(&block.dir));
                all.extend(block.steps.iter().map(|step| command(step, block, env)));
            }
        }
    }
    let receivers = plans(config).into_iter().filter_map(|plan| match plan {
        ActionPlan::Forward(receivers) => Some(receivers.iter()),
        ActionPlan::Run(_) | ActionPlan::Sql(_) | ActionPlan::Publish(_) => None,
    });
    all.extend(receiver::tried(receivers.flatten())?);
    #[cfg(feature = "nats")]
    all.extend(nats::tried(config)?);
    let mut once: Vec<LiveCheck> = Vec::new();
    for tried in all {
        if !once.contains(&tried) {
            once.push(tried);
        }
    }
    Ok(once)
}

/// The plans of all routes, in the order of the file.
fn plans(config: &Config) -> Vec<&ActionPlan> {
    let routes = config.sources.iter().flat_map(|source| source.routes.iter().map(move |route| (source, route)));
    routes.filter_map(|(source, route)| config.plan(source, route)).collect()
}

fn secrets(config: &Config) -> Vec<LiveCheck> {
    let one = |value: &crate::config::ExternalValue| {
        let what = if matches!(value.what.as_str(), "secret" | "token") { "secret" } else { "value" };
        LiveCheck::new(what, &value.from, value.error.clone().map_or(Ok("set".into()), Err))
    };
    config.elsewhere.iter().map(one).collect()
}

fn store(address: &StoreAddress, migrate: MigrationMode) -> LiveCheck {
    match address {
        StoreAddress::Memory => LiveCheck::new("store", "memory:", Ok("lost when the node stops".into())),
        StoreAddress::Sqlite(path) => LiveCheck::new("store", path.display().to_string(), sqlite(path, migrate)),
        StoreAddress::Postgres(_) | StoreAddress::Redis(_) => {
            LiveCheck::new("store", address.to_string(), server(address, migrate))
        }
    }
}

/// Opens the store of a server for reading. An empty server has no store to open.
fn server(address: &StoreAddress, migrate: MigrationMode) -> Result<String, (String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (error.to_string(), String::new()))?;
    let found = runtime.block_on(async {
        Ok(match store_contents(address).await? {
            StoreContents::Store => {
                open_for(address, OpenPurpose::Look).await?;
                Ok("responds".into())
            }
            StoreContents::OlderSchema(behind) => older_schema_text(&behind, migrate),
            StoreContents::NoSchema if migrate == MigrationMode::Manual => failed_check(
                "it responds, but it is empty, and the config says migrate = \"manual\"",
                "run `hookonce migrate up`",
            ),
            StoreContents::NoSchema => Ok("responds; it is empty, and the first node creates its schema".into()),
            StoreContents::NoKeys => Ok("responds; it is empty, and the first node creates a store in it".into()),
        })
    });
    found.unwrap_or_else(|cannot: StoreOpenError| {
        let why = cannot.to_string();
        let (why, hint) = why.split_once("\nhint: ").unwrap_or((&why, ""));
        failed_check(why, hint)
    })
}

/// What a server contains of a store.
enum StoreContents {
    Store,
    OlderSchema(Vec<&'static Migration>),
    /// A database without our tables.
    NoSchema,
    /// A Redis without our keys; it needs no schema.
    NoKeys,
}

async fn store_contents(address: &StoreAddress) -> Result<StoreContents, StoreOpenError> {
    match address {
        #[cfg(feature = "postgres")]
        StoreAddress::Postgres(url) => {
            let behind = crate::store::postgres::PostgresStore::behind(url.expose()).await?;
            Ok(match behind.first() {
                None => StoreContents::Store,
                Some(first) if first.version == 1 => StoreContents::NoSchema,
                Some(_) => StoreContents::OlderSchema(behind),
            })
        }
        #[cfg(feature = "redis")]
        StoreAddress::Redis(url) if crate::store::redis::RedisStore::is_empty(url.expose()).await? => {
            Ok(StoreContents::NoKeys)
        }
        _ => Ok(StoreContents::Store),
    }
}

/// The result for an outdated schema.
fn older_schema_text(behind: &[&Migration], migrate: MigrationMode) -> Result<String, (String, String)> {
    let names: Vec<_> = behind.iter().map(|step| format!("{:04} {}", step.version, step.name)).collect();
    let names = names.join(", ");
    match migrate {
        MigrationMode::Auto => Ok(format!("opens; the next node to start migrates its schema: {names}")),
        MigrationMode::Manual => failed_check(
            format!("its schema lacks {names}, and the config says migrate = \"manual\""),
            "run `hookonce migrate up`",
        ),
    }
}

/// Opens the file for reading, beside a running node if there is one, and checks that it is writable.
#[cfg(feature = "sqlite")]
fn sqlite(path: &Path, migrate: MigrationMode) -> Result<String, (String, String)> {
    use crate::store::schema::{self, sqlite as migrations};
    use crate::store::sqlite::{SqliteAccess, open_file};
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return failed_check(format!("the folder {} does not exist", folder.display()), "create it");
    }
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return failed_check(
            format!("the folder {} is not writable", folder.display()),
            "give hookonce's user write permission",
        );
    }
    if !path.exists() {
        return Ok("does not exist yet; it is created when a node starts".into());
    }
    if access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
        return failed_check("it is not writable", "give hookonce's user write permission");
    }
    let db = open_file(path, SqliteAccess::Read).map_err(|error| (error.to_string(), String::new()))?.db;
    let applied = migrations::applied(&db).map_err(|error| (error.to_string(), String::new()))?;
    let way = schema::way_up(migrations::MIGRATIONS, &applied, None);
    match way.map_err(|refused| (refused.to_string(), String::new()))?.as_slice() {
        [] => Ok("opens, and its schema is up to date".into()),
        way => older_schema_text(way, migrate),
    }
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &Path, _: MigrationMode) -> Result<String, (String, String)> {
    failed_check("this hookonce was built without SQLite", "")
}

fn folder(dir: &WorkingDir) -> LiveCheck {
    let (path, words) = match dir {
        WorkingDir::Fixed(path) => (path.clone(), ""),
        WorkingDir::Named(template) => match template.0.first() {
            Some(FieldTemplatePart::Text(first)) => {
                (PathBuf::from(first), "exists; the rest of the path depends on the event")
            }
            _ => return LiveCheck::new("folder", dir.to_string(), Ok("depends on the event; not checked".into())),
        },
    };
    let found = if !path.exists() {
        failed_check("it does not exist", "create it, or correct `dir`")
    } else if !path.is_dir() {
        failed_check("it is not a folder", "correct `dir`")
    } else if access(&path, Access::READ_OK | Access::EXEC_OK).is_err() {
        failed_check("it cannot be opened", "give hookonce's user read and execute permission")
    } else {
        Ok(words.to_owned())
    };
    LiveCheck::new("folder", dir.to_string(), found)
}

fn command(step: &CommandLine, block: &CommandBlock, env: EnvLookup<'_>) -> LiveCheck {
    let program = match step {
        CommandLine::Shell { shell, .. } => shell.first().cloned().unwrap_or_default(),
        CommandLine::Argv(words) => match words.first().map(|word| word.0.as_slice()) {
            Some([FieldTemplatePart::Text(program)]) => program.clone(),
            _ => return LiveCheck::new("command", step.to_string(), Ok("depends on the event; not checked".into())),
        },
    };
    let path = block.env.iter().rev().find_map(|entry| match entry {
        EnvEntry::Set(name, value) if name == "PATH" => Some(value.clone()),
        _ => None,
    });
    let path = path.or_else(|| env("PATH")).unwrap_or_else(|| PATH.to_owned());
    let found = executable(&program, &block.dir, &path);
    LiveCheck::new("command", program, found)
}

/// Finds a program the way the system would.
fn executable(program: &str, dir: &WorkingDir, path: &str) -> Result<String, (String, String)> {
    let runs = |file: &Path| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        let file = match dir {
            WorkingDir::Fixed(dir) => dir.join(program),
            WorkingDir::Named(_) if !program.starts_with('/') => return Ok("depends on the event; not checked".into()),
            WorkingDir::Named(_) => PathBuf::from(program),
        };
        return match () {
            () if runs(&file) => Ok(String::new()),
            () if file.exists() => failed_check("it is not executable", format!("chmod +x {}", file.display())),
            () => failed_check(format!("{} does not exist", file.display()), "install it, or correct the step"),
        };
    }
    let found = path.split(':').map(|folder| Path::new(folder).join(program)).find(|file| runs(file));
    match found {
        Some(file) => Ok(file.display().to_string()),
        None => failed_check("it is not in PATH", format!("install it, or add its folder to PATH ({path})")),
    }
}

/// The result of one check as JSON.
fn json(tried: &LiveCheck) -> serde_json::Value {
    let (ok, (words, hint)) = match &tried.found {
        Ok(words) => (true, (words.as_str(), "")),
        Err((why, hint)) => (false, (why.as_str(), hint.as_str())),
    };
    serde_json::json!({ "what": tried.what, "name": tried.name, "ok": ok, "words": words, "hint": hint })
}
