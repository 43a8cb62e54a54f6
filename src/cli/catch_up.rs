//! `hookonce catch-up`: lists the deliveries of a source's hook as far back as the sender keeps them, and asks for those
//! that were missed, or prints them. It uses the sender's API itself, and only reads the store.

use super::backend::{BackendArgs, BackendPurpose, EventBackend};
use super::error::{CommandError, print_error};
use super::terminal::{OutputFormat, Terminal, one_line};
use crate::catch_up::{HookApi, may_matter, perform};
use crate::config::{self, Config, EnvLookup};
use crate::decide::catch_up::{CatchUpResult, CatchUpState, CatchUpStep, MissedDelivery};
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::{Duration, Timestamp, approximate_duration};
use crate::engine::dispatcher::jitter;
use crate::store::clock::StoreClock;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use std::io::Write;

/// The longest wait for the sender's API to allow the next request.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// The name of this process in a state that nothing else sees.
const NAME: &str = "command line";

/// What to catch up.
#[derive(Args, Debug)]
pub(crate) struct CatchUpArgs {
    /// Only this source [default: all sources with `catch_up`]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    source: Option<String>,
    /// Print what would be asked for; ask for nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// The catch-up of one source.
struct CatchUpReport {
    source: String,
    listed: u64,
    had: u64,
    /// Those that were asked for, or would be, the oldest first.
    missed: Vec<MissedDelivery>,
    /// Those that the sender refused to deliver again.
    refused: Vec<MissedDelivery>,
    /// There are more than are asked for at once.
    more: bool,
}

pub(crate) async fn catch_up(
    asked: &CatchUpArgs,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> Result<u8, CommandError> {
    let config = config::load(&config::find(asked.at.config.as_deref(), env)?, env)?;
    let apis = apis(&config, asked.source.as_deref())?;
    let backend = asked.at.open(BackendPurpose::Read, env).await?;
    let terminal = Terminal::stdout(asked.json);
    let mut reports = Vec::new();
    for api in &apis {
        let report = one(api, &backend, asked.dry_run).await?;
        if terminal.form != OutputFormat::Json {
            print(&report, asked.dry_run, &terminal, out)?;
        }
        reports.push(report);
    }
    if terminal.form == OutputFormat::Json {
        let sources: Vec<_> = reports.iter().map(|report| document(report, asked.dry_run)).collect();
        writeln!(out, "{:#}", json!({ "dry_run": asked.dry_run, "sources": sources }))?;
    }
    Ok(u8::from(reports.iter().any(|report| !report.refused.is_empty())))
}

fn apis(config: &Config, source: Option<&str>) -> Result<Vec<HookApi>, CommandError> {
    let chosen = config.sources.iter().filter(|own| source.is_none_or(|name| *own.name == *name));
    let mut apis = Vec::new();
    for own in chosen {
        let Some(plan) = config.catch_ups.get(&own.name) else { continue };
        let api = HookApi::new(plan.clone(), own.clone());
        apis.push(api.map_err(|cannot| CommandError::unknown(ErrorMessage::of(cannot)))?);
    }
    match source {
        _ if !apis.is_empty() => Ok(apis),
        Some(name) if !config.sources.iter().any(|own| *own.name == *name) => {
            Err(CommandError::unknown(format!("the config has no source `{}`", one_line(name))))
        }
        Some(name) => {
            Err(CommandError::unknown(format!("the source `{}` has no `catch_up` in the config", one_line(name))))
        }
        None => Err(CommandError::unknown("no source of the config has `catch_up`")),
    }
}

/// Catches up one source by the rules of a node, with a state that nothing else sees.
async fn one(api: &HookApi, backend: &EventBackend, dry_run: bool) -> Result<CatchUpReport, CommandError> {
    let clock = StoreClock::wall(Timestamp::default());
    let (policy, source) = (api.plan().policy, api.source().name.to_string());
    let mut report = CatchUpReport { source, listed: 0, had: 0, missed: Vec::new(), refused: Vec::new(), more: false };
    let mut state = CatchUpState::default().taken_by(NAME, clock.now());
    loop {
        let now = clock.now();
        let step = state.next_step(&policy, NAME, now);
        let result = match &step {
            CatchUpStep::Wait(until) => {
                wait(*until, now, &report).await?;
                continue;
            }
            CatchUpStep::Redeliver(missed) if backend.has_delivery(&report.source, &missed.delivery).await? => {
                report.had += 1;
                CatchUpResult::Had
            }
            CatchUpStep::Redeliver(missed) if dry_run => {
                report.missed.push(missed.clone());
                CatchUpResult::Had
            }
            CatchUpStep::List { .. } | CatchUpStep::Redeliver(_) => {
                let (result, failed) = perform(api, &step, clock.wall_time()).await;
                match (&step, &result, failed) {
                    (CatchUpStep::Redeliver(missed), CatchUpResult::Asked, _) => report.missed.push(missed.clone()),
                    (CatchUpStep::Redeliver(missed), CatchUpResult::NotAgain, _) => report.refused.push(missed.clone()),
                    (_, CatchUpResult::Failed { retry_after: Some(_) }, _) | (_, _, None) => {}
                    (_, _, Some(error)) => {
                        let why = format!("{}: {}: {error}{}", report.source, api.plan().hook, so_far(&report));
                        return Err(CommandError::unknown(ErrorMessage::from(why).caused_by(error)));
                    }
                }
                result
            }
        };
        state = state.after(&policy, result, |attempt| may_matter(api, attempt), now, jitter());
        if let Some(last) = state.last() {
            (report.listed, report.more) = (last.counts.listed, state.has_more());
            return Ok(report);
        }
    }
}

/// Waits until the next request is allowed, if that is soon.
async fn wait(until: Timestamp, now: Timestamp, report: &CatchUpReport) -> Result<(), CommandError> {
    let time = until.since(now);
    if time > WAIT_MAX {
        return Err(CommandError::unknown(format!(
            "{}: no more requests are allowed now{}; run this again in {}",
            report.source,
            so_far(report),
            approximate_duration(time, 2)
        )));
    }
    tokio::time::sleep(time).await;
    Ok(())
}

fn so_far(report: &CatchUpReport) -> String {
    match report.missed.len() {
        0 => String::new(),
        many => format!("; {many} deliveries were asked for so far"),
    }
}

fn print(report: &CatchUpReport, dry_run: bool, terminal: &Terminal, out: &mut impl Write) -> Result<(), CommandError> {
    let would = if dry_run { "would be asked for" } else { "asked for" };
    let (source, many) = (&report.source, report.missed.len());
    writeln!(out, "{source}: {} attempts listed, {} had, {many} {would}", report.listed, report.had)?;
    for missed in &report.missed {
        writeln!(out, "  {}", line(missed, terminal))?;
    }
    for missed in &report.refused {
        print_error(format!("{source}: the sender does not deliver this one again: {}", line(missed, terminal)));
    }
    if report.more {
        writeln!(out, "{source}: there are more; run this again")?;
    }
    Ok(())
}

fn line(missed: &MissedDelivery, terminal: &Terminal) -> String {
    let at = missed.first.at.map(|at| format!("{}  ", terminal.format_time(&json!(at)))).unwrap_or_default();
    let kind = missed.kind.as_deref().unwrap_or_default();
    one_line(&format!("{at}{kind}  {}", missed.delivery))
}

fn document(report: &CatchUpReport, dry_run: bool) -> Value {
    let deliveries = |all: &[MissedDelivery]| -> Vec<Value> {
        let one = |missed: &MissedDelivery| json!({ "delivery": missed.delivery, "attempt": missed.attempt, "at": missed.first.at, "kind": missed.kind });
        all.iter().map(one).collect()
    };
    json!({
        "source": report.source,
        "listed": report.listed,
        "had": report.had,
        if dry_run { "would_ask" } else { "asked" }: deliveries(&report.missed),
        "refused": deliveries(&report.refused),
        "more": report.more,
    })
}
