//! `hookonce explain`: why did it not run? Evaluates a delivery step by step with the code that judges and claims,
//! without a server and without secrets. Verifies no signature and writes nothing.

use super::check::ReportFormat;
use crate::config::diagnostic::ConfigError;
use crate::config::{self, Config, EnvLookup, SecretRequirement, StoreAddress};
use crate::decide::time::Timestamp;
use crate::explain::delivery_trace::DeliveryTrace;
use crate::explain::prediction::{DeliveryPrediction, ExplainHistory};
use crate::explain::{
    ExplainError, ExplainErrorKind, ExplainExit, prediction, rebuild_delivery, report_json, report_text,
    saved_delivery, walk,
};
use crate::store::clock::StoreClock;
use crate::store::open::{OpenPurpose, open_for};
use std::io::{self, Write};
use std::path::Path;

/// Arguments of `explain`.
#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Saved delivery (a file, or - for standard input), or an event or delivery id in the store
    ///
    /// A file is one of these: the body alone; a raw request, that is its request line or headers, an empty line and the
    /// body; or JSON, one delivery per line: {"headers": {"Name": "value"}, "body": "text", "path": "/in/name"}, of which
    /// `path` may be left out.
    #[arg(value_name = "FILE|EVENT")]
    what: String,
    /// Source that receives it [default: the one with its path, or the only one]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Header to add to the delivery, or to replace in it
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Store to look for duplicates in, instead of the config's
    #[arg(long, value_name = "PATH")]
    store: Option<String>,
    /// Print JSON: one object per delivery
    #[arg(long)]
    json: bool,
}

impl ExplainArgs {
    /// Whether JSON was asked for.
    pub(crate) fn is_for_programs(&self) -> bool {
        self.json
    }
}

/// Explains a delivery on `out`. Errors go to standard error.
pub(crate) fn explain(
    ask: &ExplainArgs,
    explicit: Option<&Path>,
    form: ReportFormat,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<ExplainExit> {
    let all = match all(ask, explicit, env) {
        Ok(all) => all,
        Err(ExplainError { why, answer, lack }) => {
            eprintln!("error: {}", why.trim_start_matches("error: "));
            if lack == ExplainErrorKind::Source {
                eprintln!("hint: name it with --source NAME");
            }
            return Ok(answer);
        }
    };
    for (i, (told, would)) in all.iter().enumerate() {
        match form {
            ReportFormat::Json => {
                let report = serde_json::to_string_pretty(&report_json::explained(told, would));
                writeln!(out, "{}", report.expect("a report has only members that JSON can hold"))?;
            }
            ReportFormat::Text(_) => {
                if i > 0 {
                    writeln!(out)?;
                }
                report_text::explained(told, would, out)?;
            }
        }
    }
    Ok(all.iter().map(|(_, would)| prediction::answer(would)).min().unwrap_or(ExplainExit::Unknown))
}

/// The trace of each delivery, and whether it would act.
fn all(
    ask: &ExplainArgs,
    explicit: Option<&Path>,
    env: EnvLookup<'_>,
) -> Result<Vec<(DeliveryTrace, DeliveryPrediction)>, ExplainError> {
    let path = config::find(explicit, env).map_err(|problem| problem.to_string())?;
    let config = config::load_with(&path, SecretRequirement::Optional, env).map_err(|problems| unread(&problems))?;
    let given = ask.headers.iter().map(|header| saved_delivery::header(header)).collect::<Result<Vec<_>, _>>()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let store = runtime.block_on(open(ask, &config))?;
    let is_file = ask.what == "-" || Path::new(&ask.what).exists();
    let mut deliveries = if is_file {
        saved_delivery::read(&ask.what)?
    } else {
        vec![runtime.block_on(rebuild_delivery(&ask.what, &store, &config.sources))?]
    };
    let mut all = Vec::new();
    for delivery in &mut deliveries {
        delivery.replace(&given);
        let source = ask.source.as_deref();
        all.push(runtime.block_on(walk(&config.sources, &config.elsewhere, source, delivery, &store))?);
    }
    Ok(all)
}

/// The config's errors, for a command that starts nothing.
fn unread(problems: &ConfigError) -> String {
    problems.errors_text().replace("; nothing was started", "; nothing can be explained")
}

/// The store to look for duplicates in.
async fn open(ask: &ExplainArgs, config: &Config) -> Result<ExplainHistory, ExplainError> {
    let wall = || StoreClock::wall(Timestamp::default()).now();
    let address = match (&ask.store, &config.store) {
        (Some(store), _) => StoreAddress::parse(store, Path::new("")).unwrap_or(StoreAddress::Sqlite(store.into())),
        (None, StoreAddress::Sqlite(path)) if !path.exists() => {
            return Ok(ExplainHistory::Nothing(format!("there is no store yet at {}", path.display()), wall()));
        }
        (None, StoreAddress::Memory) => {
            return Ok(ExplainHistory::Nothing("a memory store cannot be read from outside its node".into(), wall()));
        }
        (None, address) => address.clone(),
    };
    let shown = match &address {
        StoreAddress::Sqlite(path) => path.display().to_string(),
        other => other.to_string(),
    };
    let store = open_for(&address, OpenPurpose::Look).await.map_err(|error| ExplainError::from(error.to_string()))?;
    Ok(ExplainHistory::Store(store, shown))
}
