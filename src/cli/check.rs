//! `hookonce check`: validates the config and prints what it means, defaults included.

pub mod live;

use crate::config;
pub use crate::config::describe::describe;
use crate::config::describe::{valid_config, wrong};
use crate::config::diagnostic::{ColorChoice, ConfigDiagnostic, ConfigError, ConfigErrorKind, count};
use crate::config::{Config, EnvLookup, SecretRequirement, StoreAddress};
use crate::decide::event::Event;
use crate::decide::identity::recipe;
use crate::decide::identity::recipe::IdentityRecipe;
use crate::store::status_text;
use std::io::{self, Write};
use std::path::Path;

/// Output format of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportFormat {
    /// Text for people.
    Text(ColorChoice),
    /// JSON for programs.
    Json,
}

/// Warnings that need the store: events that would act again because the identities changed, and events that wait for a
/// removed route. Only an SQLite store is read here; none if it cannot be.
fn store_warnings(config: &Config) -> Vec<ConfigDiagnostic> {
    #[cfg(feature = "sqlite")]
    if let StoreAddress::Sqlite(path) = &config.store
        && path.exists()
    {
        return compare(config, &crate::store::sqlite::remembered(path), &crate::store::sqlite::waiting(path));
    }
    Vec::new()
}

/// What differs between a config and its store: the identities that the store remembers, and the events that wait there.
fn compare(config: &Config, before: &[IdentityRecipe], waiting: &[Event]) -> Vec<ConfigDiagnostic> {
    let changes = recipe::changes(before, &config.recipes());
    let stranded = status_text::stranded(waiting, &config.sources);
    changes.into_iter().chain(stranded).map(ConfigDiagnostic::warning).collect()
}

/// What a check without `--live` leaves out, for a store on a server.
fn not_compared(config: &Config) -> &'static str {
    match config.store {
        StoreAddress::Memory | StoreAddress::Sqlite(_) => "",
        _ => "; only `check --live` compares it with the events in the store",
    }
}

/// The result; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CheckExit {
    /// The config is valid.
    Fine = 0,
    /// It has errors.
    Wrong = 1,
    /// It could not be read.
    Unread = 2,
}

/// Loads a config and prints what it means, or what is wrong with it.
pub fn check(
    explicit: Option<&Path>,
    form: ReportFormat,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<CheckExit> {
    let (file, config) = match load_config(explicit, SecretRequirement::Required, env) {
        Ok(found) => found,
        Err(problems) => return print_errors(&problems, form, out),
    };
    match form {
        ReportFormat::Text(ink) => {
            print_warnings(&config, ink, out)?;
            describe(&config, out)?;
            let warnings = match config.warnings.as_slice() {
                [] => String::new(),
                some => format!(", with {}", count(some)),
            };
            writeln!(out, "{file} is fine{warnings}{}", not_compared(&config))?;
        }
        ReportFormat::Json => writeln!(out, "{:#}", valid_config(&file, &config))?,
    }
    Ok(CheckExit::Fine)
}

/// The config and its file name, with the store's warnings added.
fn load_config(
    explicit: Option<&Path>,
    secrets: SecretRequirement,
    env: EnvLookup<'_>,
) -> Result<(String, Config), ConfigError> {
    let path = config::find(explicit, env).map_err(|problem| ConfigError {
        file: String::new(),
        nature: ConfigErrorKind::Unread,
        list: vec![problem],
        more: 0,
    })?;
    let mut config = config::load_with(&path, secrets, env)?;
    let renamed = store_warnings(&config);
    config.warnings.extend(renamed);
    Ok((path.display().to_string(), config))
}

fn print_warnings(config: &Config, ink: ColorChoice, out: &mut impl Write) -> io::Result<()> {
    config.warnings.iter().try_for_each(|warning| writeln!(out, "{}", warning.render(ink)))
}

fn print_errors(problems: &ConfigError, form: ReportFormat, out: &mut impl Write) -> io::Result<CheckExit> {
    match form {
        ReportFormat::Text(ink) => write!(out, "{}", problems.render(ink))?,
        ReportFormat::Json => writeln!(out, "{:#}", wrong(problems))?,
    }
    Ok(if problems.nature == ConfigErrorKind::Wrong { CheckExit::Wrong } else { CheckExit::Unread })
}
