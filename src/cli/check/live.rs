//! `hookonce check --live`: checks that everything the config refers to exists and can be used. It changes nothing: no
//! schema is migrated, no stream created, no command started; receivers are only connected to.

use super::{CheckExit, ReportFormat, compare, describe, load_config, print_errors, print_warnings};
#[cfg(feature = "nats")]
use crate::action::health_check::HealthCheckPlan;
use crate::action::publish::{self, NatsConnections};
use crate::action::{ActionPlan, LiveCheck, LiveCheckEnvironment, failed_check};
use crate::catch_up::{HookApi, HookApiCredentials};
use crate::config::diagnostic::ConfigDiagnostic;
use crate::config::{Config, EnvLookup, SecretRequirement, StoreAddress};
#[cfg(feature = "nats")]
use crate::config::{StreamPlan, UNKNOWN_URL};
use crate::decide::data_loss;
use crate::decide::data_loss::{LastKnownStore, ObservedStore};
use crate::decide::error_message::ErrorMessage;
#[cfg(feature = "nats")]
use crate::ingress::nats::check_consumer;
use crate::node::state_file;
use crate::node::state_file::{StateFile, StateFileContent, StateFileReadResult, UNREADABLE_HINT};
use crate::registry::LookupPlan;
use crate::registry::lookup_plan::check_live;
use crate::store::StoreOpenError;
use crate::store::open::{MigrationMode, OpenPurpose, StoreContents, contents, identity, is_empty, open_for};
use crate::store::schema::Migration;
use crate::store::status_text;
use crate::store::{Inspect, StoreError};
use futures_util::future::join_all;
#[cfg(feature = "sqlite")]
use rustix::fs::{Access, access};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Prints what the config means, and checks what it refers to.
pub fn check(
    explicit: Option<&Path>,
    form: ReportFormat,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<CheckExit> {
    let (file, mut config) = match load_config(explicit, SecretRequirement::Optional, env) {
        Ok(found) => found,
        Err(problems) => return print_errors(&problems, form, out),
    };
    let (store, differences) = store(&config);
    config.warnings.extend(differences);
    let all = run_checks(&config, store, env)?;
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

/// Checks everything but the store, each thing once. The result for the store comes after those for the secrets.
fn run_checks(config: &Config, store: LiveCheck, env: EnvLookup<'_>) -> io::Result<Vec<LiveCheck>> {
    let mut all = secrets(config);
    all.push(store);
    all.extend(lost_data(config));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        #[cfg(feature = "nats")]
        let servers = NatsConnections::default();
        let environment = LiveCheckEnvironment {
            variable: env,
            #[cfg(feature = "nats")]
            servers: &servers,
        };
        let actions = plans(config).into_iter().map(|plan| plan.check_live(&environment));
        all.extend(join_all(actions).await.into_iter().flatten());
        for plan in health_checks(config) {
            all.extend(plan.check_live(&environment).await);
        }
        let notifiers = config.sources.iter().filter_map(|source| config.notifiers.get(&source.name)).flatten();
        let notifiers = notifiers.map(|notifier| notifier.plan.check_live(&environment));
        all.extend(join_all(notifiers).await.into_iter().flatten());
        all.extend(check_live(lookups(config)).await);
        all.extend(join_all(hook_apis(config).map(HookApi::check)).await);
        #[cfg(feature = "nats")]
        for stream in streams(config) {
            all.push(LiveCheck::new("stream", stream.words(), check_stream(&servers, stream).await));
        }
    });
    let mut once: Vec<LiveCheck> = Vec::new();
    for tried in all {
        if !once.contains(&tried) {
            once.push(tried);
        }
    }
    Ok(once)
}

/// The plans of all routes, those of a kind together, each kind in the order of the file.
fn plans(config: &Config) -> Vec<&ActionPlan> {
    let routes = config.sources.iter().flat_map(|source| source.routes.iter().map(move |route| (source, route)));
    let mut plans: Vec<_> = routes.filter_map(|(source, route)| config.plan(source, route)).collect();
    plans.sort_by_key(|plan| plan.kind());
    plans
}

/// The health checks of all routes, in the order of the file.
fn health_checks(config: &Config) -> impl Iterator<Item = &HealthCheckPlan> {
    let routes = config.sources.iter().flat_map(|source| source.routes.iter().map(move |route| (source, route)));
    routes.filter_map(|(source, route)| config.health_check(source, route))
}

/// The questions to registries, of all sources and routes, in the order of the file.
fn lookups(config: &Config) -> impl Iterator<Item = &LookupPlan> {
    config.sources.iter().flat_map(|source| {
        let polled = config.polls.get(&source.name).map(|plan| &plan.question);
        polled.into_iter().chain(source.routes.iter().filter_map(|route| config.lookup(source, route)))
    })
}

/// The APIs at which missed deliveries are asked for, without those whose credentials are not known.
fn hook_apis(config: &Config) -> impl Iterator<Item = HookApi> {
    let planned = config.sources.iter().filter_map(|source| Some((source, config.catch_ups.get(&source.name)?)));
    let known = planned.filter(|(_, plan)| !matches!(plan.credentials, HookApiCredentials::Unknown));
    known.filter_map(|(source, plan)| HookApi::new(plan.clone(), source.clone()).ok())
}

/// The streams that are read, without those whose server is not known.
#[cfg(feature = "nats")]
fn streams(config: &Config) -> impl Iterator<Item = &StreamPlan> {
    let all = config.sources.iter().filter_map(|source| config.streams.get(&source.name));
    all.filter(|stream| stream.server.url != UNKNOWN_URL)
}

/// Checks that a stream and its consumer exist. Creates none.
#[cfg(feature = "nats")]
async fn check_stream(servers: &NatsConnections, plan: &StreamPlan) -> Result<String, (String, String)> {
    let client = publish::connected(servers, &plan.server).await?;
    match check_consumer(&client, plan).await {
        Ok(said) if said.is_empty() => Ok("can be read".into()),
        Ok(said) => Ok(said),
        Err(why) => failed_check(why, ""),
    }
}

fn secrets(config: &Config) -> Vec<LiveCheck> {
    let one = |value: &crate::config::ExternalValue| {
        let what = if matches!(value.what.as_str(), "secret" | "token") { "secret" } else { "value" };
        LiveCheck::new(what, &value.from, value.error.clone().map_or(Ok("set".into()), Err))
    };
    config.elsewhere.iter().map(one).collect()
}

/// Checks the store. With it the warnings about what differs between the config and a store on a server; SQLite's are
/// those of a check without `--live`.
fn store(config: &Config) -> (LiveCheck, Vec<ConfigDiagnostic>) {
    let address = &config.store;
    match address {
        StoreAddress::Memory => (LiveCheck::new("store", "memory:", Ok("lost when the node stops".into())), Vec::new()),
        StoreAddress::Sqlite(path) => {
            (LiveCheck::new("store", path.display().to_string(), sqlite(path, config.migrate)), Vec::new())
        }
        _ => {
            let (found, differences) = match server(config) {
                Ok((words, differences)) => (Ok(words), differences),
                Err(failed) => (Err(failed), Vec::new()),
            };
            (LiveCheck::new("store", address.to_string(), found), differences)
        }
    }
}

/// Opens the store of a server for reading, and compares the config with it. An empty server has no store to open.
fn server(config: &Config) -> Result<(String, Vec<ConfigDiagnostic>), (String, String)> {
    let (address, migrate) = (&config.store, config.migrate);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (error.to_string(), String::new()))?;
    let found = runtime.block_on(async {
        let words = match contents(address).await? {
            StoreContents::Store => {
                let store = open_for(address, OpenPurpose::Look).await?;
                let differences = differences(config, &*store).await;
                return Ok(differences.map(|differences| ("responds".to_owned(), differences)));
            }
            StoreContents::OlderSchema(behind) => older_schema_text(&behind, migrate),
            StoreContents::Empty if address.has_schema() && migrate == MigrationMode::Manual => failed_check(
                "it responds, but it is empty, and the config says migrate = \"manual\"",
                "run `hookonce migrate up`",
            ),
            StoreContents::Empty if address.has_schema() => {
                Ok("responds; it is empty, and the first node creates its schema".into())
            }
            StoreContents::Empty => Ok("responds; it is empty, and the first node creates a store in it".into()),
        };
        Ok(words.map(|words| (words, Vec::new())))
    });
    found.unwrap_or_else(|cannot: StoreOpenError| {
        let why = cannot.to_string();
        let (why, hint) = why.split_once("\nhint: ").unwrap_or((&why, ""));
        Err((why.to_owned(), hint.to_owned()))
    })
}

/// Compares the config with a store, as a node does when it starts.
async fn differences(config: &Config, store: &dyn Inspect) -> Result<Vec<ConfigDiagnostic>, (String, String)> {
    let failed = |error: StoreError| (ErrorMessage::of(error).to_string(), String::new());
    let before = store.recipes().await.map_err(failed)?;
    let waiting = store.page(status_text::those_that_wait()).await.map_err(failed)?.events;
    Ok(compare(config, &before, &waiting))
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

/// Checks the state files of the store, if it has any. Changes nothing, creates no folder.
fn lost_data(config: &Config) -> Option<LiveCheck> {
    let (place, scope) = identity(&config.store).ok().flatten()?;
    let folder = config.state.path();
    let file = StateFile::new(folder.to_owned(), place, scope);
    let tried = |path: PathBuf, words| Some(LiveCheck::new("state", path.display().to_string(), words));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let own = match file.read() {
        StateFileReadResult::None => None,
        StateFileReadResult::Record(record) => Some(record),
        StateFileReadResult::Damaged(why) => {
            let hint = "what this machine knew of its store is lost; a node writes it again when it starts";
            return tried(file.path(), failed_check(why, hint));
        }
        StateFileReadResult::Unreadable(why) => return tried(file.path(), failed_check(why, UNREADABLE_HINT)),
    };
    // A store that cannot be opened is reported by the store's own check.
    let StoreComparison { has, compared } = runtime.block_on(look(config, &file, own.clone())).ok()?;
    let losses = compared.iter().filter_map(|(record, found)| Some((record, data_loss::loss(&record.known, found)?)));
    if let Some((record, loss)) = losses.into_iter().next() {
        return tried(file.path_of(record), failed_check(loss.to_string(), ""));
    }
    let known = own.map(|record| record.known);
    tried(file.path(), Ok(format!("{}{}", both(known.as_ref(), &has), state_folder_status(config))))
}

/// A store and what this machine knows about it.
struct StoreComparison {
    /// The store's own mark.
    has: ObservedStore,
    /// What each state file says, and what the store still has of it.
    compared: Vec<(StateFileContent, ObservedStore)>,
}

/// Compares the store with its state file and with those of the same store at other addresses, as a node does at start.
async fn look(
    config: &Config,
    file: &StateFile,
    own: Option<StateFileContent>,
) -> Result<StoreComparison, StoreOpenError> {
    if is_empty(&config.store).await? {
        let compared = own.into_iter().map(|record| (record, ObservedStore::gone())).collect();
        return Ok(StoreComparison { has: ObservedStore::gone(), compared });
    }
    let store = open_for(&config.store, OpenPurpose::Look).await?;
    let found = async |known| match store.compare_history(known).await {
        Ok(found) => Ok(found.unwrap_or_else(ObservedStore::gone)),
        Err(error) => Err(StoreOpenError::Temporary(ErrorMessage::of(error))),
    };
    let has = found(None).await?;
    let epoch = has.mark.as_ref().and_then(|mark| mark.epoch.as_deref());
    let others = file.others(epoch).into_iter().filter_map(|read| match read {
        StateFileReadResult::Record(record) => Some(record),
        StateFileReadResult::None | StateFileReadResult::Damaged(_) | StateFileReadResult::Unreadable(_) => None,
    });
    let mut compared = Vec::new();
    for record in own.into_iter().chain(others) {
        let found = found(Some(record.known.clone())).await?;
        compared.push((record, found));
    }
    Ok(StoreComparison { has, compared })
}

fn both(known: Option<&LastKnownStore>, found: &ObservedStore) -> String {
    let known = known.map_or("nothing yet".to_owned(), |known| known.mark.to_string());
    let has = match &found.mark {
        None => "nothing yet".to_owned(),
        Some(mark) if mark.epoch.is_none() => format!("{mark} (its server does not reveal its system identifier)"),
        Some(mark) => mark.to_string(),
    };
    format!("this machine knows {known}, the store has {has}")
}

/// Whether the state folder survives a restart.
fn state_folder_status(config: &Config) -> String {
    match state_file::can_be_written(&config.state) {
        Ok(()) => String::new(),
        Err(why) => format!("; {why}, so lost data is detected only while a node runs"),
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
