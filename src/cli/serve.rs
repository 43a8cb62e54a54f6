//! `hookonce serve`: run a node until it is told to stop.

use crate::action::GuardProgram;
use crate::config::problem::Ink;
use crate::config::{self, Config, Env};
use crate::decide::source::{Makes, Source};
use crate::node::{Does, Node};
use crate::telemetry::{self, Format, Level, Log};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How a node ended; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum End {
    /// It was told to.
    Stopped = 0,
    /// It could not start, or its store broke.
    Failed = 2,
}

/// How a node is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// What it does.
    pub does: Does,
    /// How its log is written.
    pub format: Format,
    /// The loss of data that it goes on in spite of, as `EPOCH:COUNTER`.
    pub accepts: Option<String>,
}

/// Loads the config and runs a node. Where it listens is said on `out`, what is wrong on standard error.
pub fn serve(explicit: Option<&Path>, how: &Start, ink: Ink, env: Env<'_>, out: &mut impl Write) -> io::Result<End> {
    hide_environment();
    let path = match config::find(explicit, env) {
        Ok(path) => path,
        Err(problem) => {
            eprint!("{}", problem.render(ink));
            return Ok(End::Failed);
        }
    };
    let config = match config::load(&path, env) {
        Ok(config) => config,
        Err(problems) => {
            eprint!("{}", problems.render(ink));
            return Ok(End::Failed);
        }
    };
    for warning in &config.warnings {
        eprintln!("{}", warning.render(ink));
    }
    Log::start(how.format, Box::new(io::stderr()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let end = runtime.block_on(async {
        let hangups = signal(SignalKind::hangup())?;
        tokio::select! {
            end = run(&config, how, env, out) => end,
            never = watch(&path) => match never {},
            never = refuse_to_reload(hangups) => match never {},
        }
    });
    // A read that hangs must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    Log::flush();
    end
}

/// Keeps other processes of the same user, commands among them, from reading the secrets in this one's environment and
/// memory through `/proc`. The system writes no core dump of it then.
fn hide_environment() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("warning: commands may be able to read the node's environment: {error}");
    }
}

/// Ignores SIGHUP: the config is read only at the start.
async fn refuse_to_reload(mut hangups: Signal) -> std::convert::Infallible {
    loop {
        if hangups.recv().await.is_none() {
            return std::future::pending().await;
        }
        let why = "there is no reload: SIGHUP does nothing";
        let hint = "run `hookonce check`, then restart";
        telemetry::say(Level::Warn, "hangup", &[("why", why), ("hint", hint)]);
    }
}

async fn run(config: &Config, how: &Start, env: Env<'_>, out: &mut impl Write) -> io::Result<End> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // A node may wait long for its store, and can be told to stop meanwhile too: nothing was taken yet.
    let started = tokio::select! {
        started = Node::start_as(config, how.does, GuardProgram::default(), how.accepts.as_deref()) => started,
        _ = term.recv() => return Ok(stopped()),
        _ = int.recv() => return Ok(stopped()),
    };
    let node = match started {
        Ok(node) => node,
        Err(cannot) => {
            eprintln!("error: {cannot}");
            return Ok(End::Failed);
        }
    };
    trace(&node, env);
    greet(config, &node, out)?;
    let end = tokio::select! {
        _ = term.recv() => End::Stopped,
        _ = int.recv() => End::Stopped,
        why = node.broken() => {
            telemetry::say(Level::Error, "broken", &[("why", &why)]);
            End::Failed
        }
    };
    telemetry::say(Level::Info, "draining", &[("hint", "once more to stop at once")]);
    node.stop(async {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            // A store that broke takes no result any more: nothing is worth waiting for.
            () = std::future::ready(()), if end == End::Failed => {}
        }
    })
    .await;
    #[cfg(feature = "otel")]
    telemetry::trace::flush().await;
    stopped();
    Ok(end)
}

/// Says that it was told to stop, and did.
fn stopped() -> End {
    telemetry::say(Level::Info, "stopped", &[]);
    End::Stopped
}

/// Sends traces where the environment says so.
#[cfg(feature = "otel")]
fn trace(node: &Node, env: Env<'_>) {
    if let Some(to) = telemetry::trace::start(env, &node.dispatcher.node().0) {
        telemetry::say(Level::Info, "traces", &[("to", &to)]);
    }
}

/// Says when the environment asks for traces that this binary cannot send.
#[cfg(not(feature = "otel"))]
fn trace(_: &Node, env: Env<'_>) {
    if env("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")).is_some() {
        let why = "OTEL_EXPORTER_OTLP_ENDPOINT is set, and this binary was built without the feature otel";
        telemetry::say(Level::Warn, "traces", &[("why", why)]);
    }
}

/// How often the config is looked at.
const WATCH_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// Says when the config on the disk is no longer the one that was read. It is read at the start, and only there.
async fn watch(path: &Path) -> std::convert::Infallible {
    let read = || std::fs::read(path).ok();
    let mut known = read();
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        let now = read();
        if now != known && now.is_some() {
            let shown = path.display().to_string();
            let hint = "it was not read; check it, then restart";
            telemetry::say(Level::Warn, "config", &[("changed", &shown), ("hint", hint)]);
        }
        known = now.or(known);
    }
}

/// One line per source: where it listens, who signs, what it acts on, where it goes.
fn greet(config: &Config, node: &Node, out: &mut impl Write) -> io::Result<()> {
    match node.ingest {
        Some(at) => config.sources.iter().try_for_each(|source| writeln!(out, "{}", line(source, at)))?,
        None => writeln!(out, "only acts: deliveries arrive on other nodes")?,
    }
    writeln!(out, "admin on http://{}, node {}", node.admin, node.dispatcher.node())?;
    out.flush()
}

fn line(source: &Source, at: SocketAddr) -> String {
    let routes: Vec<_> = source
        .routes
        .iter()
        .map(|route| match (&route.when, route.makes) {
            (Some(when), _) => format!("{} when {}", route.name, when.text()),
            (None, Makes::Record) => format!("{} (only recorded)", route.name),
            (None, _) => route.name.to_string(),
        })
        .collect();
    let when = source.when.as_ref().map_or(String::new(), |when| format!(", acts when {}", when.text()));
    let signed = source.verify.words();
    let from = match &source.stream {
        Some(_) => source.path.to_string(),
        None => format!("http://{at}{}", source.path),
    };
    format!("{}: {from}, signed by {signed}{when}, routes: {}", source.name, routes.join("; "))
}
