//! `hookonce serve`: runs a node until it gets a signal to stop.

use super::reloading::ConfigReloader;
use super::service_manager::{ServiceManager, inherited_sockets};
use crate::admin::reload::ReloadRequests;
use crate::config::diagnostic::{ColorChoice, ConfigDiagnostic, DiagnosticSeverity};
use crate::config::{self, Config, EnvLookup, TlsFiles};
use crate::decide::source::{Fanout, Intake, Source};
use crate::node::{InheritedSockets, NodeHandle, NodeRole, NodeStartOptions};
use crate::observe::log_layer::{LogFormat, Logger};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};
use tracing::field::display;
use tracing::{error, info, warn};

/// How a node stopped; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ServeExit {
    /// By a signal.
    Stopped = 0,
    /// It could not start, or its store failed.
    Failed = 2,
}

/// The options of `hookonce serve`.
#[derive(Clone, Debug)]
pub(crate) struct ServeOptions {
    /// What it does.
    pub does: NodeRole,
    /// How its log is written, if the command line says so.
    pub log: Option<LogFormat>,
    /// The loss of data that it goes on in spite of, as `EPOCH:COUNTER`.
    pub accepts: Option<String>,
}

/// Loads the config and runs a node. Prints its addresses on `out`, errors on standard error.
pub(crate) fn serve(
    explicit: Option<&Path>,
    how: &ServeOptions,
    ink: ColorChoice,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<ServeExit> {
    let asked = match how.log.map_or_else(|| log_of_environment(env), |log| Ok(Some(log))) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("error: {why}");
            return Ok(ServeExit::Failed);
        }
    };
    let end = find_and_run((explicit, asked), how, ink, env, out);
    Logger::flush();
    end
}

/// The format that `HOOKONCE_LOG` names.
fn log_of_environment(env: EnvLookup<'_>) -> Result<Option<LogFormat>, String> {
    let Some(name) = env("HOOKONCE_LOG").filter(|name| !name.is_empty()) else { return Ok(None) };
    let format = LogFormat::parse(&name);
    format.map(Some).ok_or_else(|| format!("HOOKONCE_LOG is {name:?}, which is no format of the log: use text or json"))
}

/// Writes the log as JSON, and panics with it: nothing else may be on its stream.
fn start_json_log() {
    Logger::start(LogFormat::Json, Box::new(io::stderr()));
    std::panic::set_hook(Box::new(|panic| error!(target: "hookonce", why = %panic, "panic")));
}

fn find_and_run(
    (explicit, asked): (Option<&Path>, Option<LogFormat>),
    how: &ServeOptions,
    ink: ColorChoice,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> io::Result<ServeExit> {
    let sockets = inherited_sockets(env);
    let path = match config::find(explicit, env) {
        Ok(path) => path,
        Err(problem) if asked == Some(LogFormat::Json) => {
            start_json_log();
            log_problem(&problem);
            return Ok(ServeExit::Failed);
        }
        Err(problem) => {
            eprint!("{}", problem.render(ink));
            return Ok(ServeExit::Failed);
        }
    };
    let config = match config::load(&path, env) {
        Ok(config) => config,
        Err(problems) if asked == Some(LogFormat::Json) => {
            start_json_log();
            problems.list.iter().for_each(log_problem);
            return Ok(ServeExit::Failed);
        }
        Err(problems) => {
            eprint!("{}", problems.render(ink));
            return Ok(ServeExit::Failed);
        }
    };
    let log = asked.unwrap_or(config.log);
    let log_traces = start_traces(&config, env);
    if log == LogFormat::Json {
        start_json_log();
        config.warnings.iter().for_each(log_problem);
    } else {
        config.warnings.iter().for_each(|warning| eprintln!("{}", warning.render(ink)));
        let dated = if io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::DatedText };
        Logger::start(dated, Box::new(io::stderr()));
    }
    hide_environment(log);
    log_traces();
    let how = &ServeOptions { log: Some(log), ..how.clone() };
    let (requests, received) = ReloadRequests::channel();
    let manager = ServiceManager::of(env);
    let sockets = match sockets {
        Ok(sockets) => sockets,
        Err(why) => {
            log_start_error(log, &why);
            return Ok(ServeExit::Failed);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let end = runtime.block_on(async {
        let hangups = signal(SignalKind::hangup())?;
        let reloader = ConfigReloader::new((&path, &config), env, (log, ink), hangups, received);
        run(&config, how, (reloader, requests), (manager, sockets), out).await
    });
    // A blocked read must not keep the process alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    #[cfg(feature = "otel")]
    crate::observe::otlp::flush();
    end
}

/// Keeps other processes of the same user, commands among them, from reading the secrets in this one's environment and
/// memory through `/proc`. The system writes no core dump of it then.
fn hide_environment(log: LogFormat) {
    let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) else { return };
    let why = format!("commands may be able to read the node's environment: {error}");
    if log == LogFormat::Json {
        warn!(target: "hookonce", why, "environment");
    } else {
        eprintln!("warning: {why}");
    }
}

/// Logs why the node does not start.
fn log_start_error(log: LogFormat, why: &str) {
    if log == LogFormat::Json {
        error!(target: "hookonce", why, "start");
    } else {
        eprintln!("error: {why}");
    }
}

/// What a node is, in a few words.
pub(super) fn status(sources: usize, routes: usize) -> String {
    format!("sources: {sources}, routes: {routes}")
}

/// Logs a problem of the config.
pub(super) fn log_problem(problem: &ConfigDiagnostic) {
    let ConfigDiagnostic { level, title: why, place, hint } = problem;
    let (file, line) = (place.as_ref().map(|place| &*place.file), place.as_ref().map(|place| place.line));
    let (label, hint) = (place.as_ref().map(|place| &*place.label), hint.as_deref());
    match level {
        DiagnosticSeverity::Error => error!(target: "hookonce", file, line, why, label, hint, "config"),
        DiagnosticSeverity::Warning => warn!(target: "hookonce", file, line, why, label, hint, "config"),
    }
}

async fn run(
    config: &Config,
    how: &ServeOptions,
    (mut reloader, reloads): (ConfigReloader<'_>, ReloadRequests),
    (manager, sockets): (ServiceManager, InheritedSockets),
    out: &mut impl Write,
) -> io::Result<ServeExit> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // A node may wait long for its store; it can be stopped meanwhile, because it has received nothing yet.
    let options = NodeStartOptions {
        does: how.does,
        accepts: how.accepts.clone(),
        reloads: Some(reloads),
        sockets,
        ..NodeStartOptions::default()
    };
    manager.starting();
    let started = tokio::select! {
        started = NodeHandle::start_as(config, options) => started,
        _ = term.recv() => return Ok(stopped()),
        _ = int.recv() => return Ok(stopped()),
    };
    let mut node = match started {
        Ok(node) => node,
        Err(cannot) => {
            log_start_error(how.log.unwrap_or_default(), &cannot.to_string());
            return Ok(ServeExit::Failed);
        }
    };
    if how.log == Some(LogFormat::Json) {
        log_sources(config, &node);
    } else {
        print_sources(config, &node, out)?;
    }
    let routes = config.sources.iter().map(|source| source.routes.len()).sum();
    tokio::spawn(manager.clone().watch(node.readiness(), status(config.sources.len(), routes)));
    let end = loop {
        let trigger = tokio::select! {
            _ = term.recv() => break ServeExit::Stopped,
            _ = int.recv() => break ServeExit::Stopped,
            why = node.store_failed() => {
                error!(target: "hookonce", why, "broken");
                break ServeExit::Failed;
            }
            trigger = reloader.next() => trigger,
        };
        reloader.reload(&mut node, trigger, &manager).await;
    };
    manager.stopping();
    drop(reloader); // who asks now is told that the node is about to stop
    info!(target: "hookonce", hint = "send the signal again to stop at once", "draining");
    node.stop(async {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            // A failed store accepts no result, so there is nothing to wait for.
            () = std::future::ready(()), if end == ServeExit::Failed => {}
        }
    })
    .await;
    stopped();
    Ok(end)
}

/// Logs a stop by signal.
fn stopped() -> ServeExit {
    info!(target: "hookonce", "stopped");
    ServeExit::Stopped
}

/// Sends traces where the environment says so. Returns what is logged of it once there is a log.
#[cfg(feature = "otel")]
fn start_traces(config: &Config, env: EnvLookup<'_>) -> impl FnOnce() {
    let started = crate::observe::otlp::start(env, &crate::observe::node_name(config.admin.listen.first));
    move || match started {
        Some(Ok(to)) => info!(target: "hookonce", to, "traces"),
        Some(Err(why)) => warn!(target: "hookonce", why, "traces"),
        None => {}
    }
}

/// Returns what is logged when the environment asks for traces that this binary cannot send.
#[cfg(not(feature = "otel"))]
fn start_traces(_: &Config, env: EnvLookup<'_>) -> impl FnOnce() {
    let asked = env("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")).is_some();
    move || {
        if asked {
            let why = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but this binary was built without the feature otel";
            warn!(target: "hookonce", why, "traces");
        }
    }
}

/// Logs where each source and the admin port listen.
fn log_sources(config: &Config, node: &NodeHandle) {
    for source in config.sources.iter().filter(|_| node.ingest.is_some()) {
        let ingest = node.ingest.filter(|_| source.intake.listens()).map(display);
        info!(target: "hookonce", source = &*source.name, ingest, path = source.path.shown(), "listening");
    }
    info!(target: "hookonce", admin = %node.admin, node = %node.dispatcher.node(), "listening");
}

/// One line per source: where it listens, who signs, what it acts on, where it goes.
fn print_sources(config: &Config, node: &NodeHandle, out: &mut impl Write) -> io::Result<()> {
    match node.ingest {
        Some(at) => {
            let scheme = port_scheme(config.tls.as_ref());
            config.sources.iter().try_for_each(|source| writeln!(out, "{}", line(source, scheme, at)))?;
        }
        None => writeln!(out, "this node only acts: deliveries arrive on other nodes")?,
    }
    let scheme = port_scheme(config.admin.tls.as_ref());
    writeln!(out, "dashboard {scheme}://{}, node {}", node.admin, node.dispatcher.node())?;
    if node.admin.ip().is_loopback() {
        let port = node.admin.port();
        writeln!(
            out,
            "from your own machine: ssh -L {port}:{}:{port} THIS-HOST, then {scheme}://localhost:{port}",
            host(node.admin)
        )?;
    }
    if !config.admin.tokens.is_empty() {
        writeln!(out, "`hookonce open` prints a link that logs your browser in")?;
    }
    out.flush()
}

/// The scheme of a port's URLs.
fn port_scheme(tls: Option<&TlsFiles>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

/// The address without its port, as a URL has it.
fn host(address: SocketAddr) -> String {
    if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() }
}

fn line(source: &Source, scheme: &str, at: SocketAddr) -> String {
    let routes: Vec<_> = source
        .routes
        .iter()
        .map(|route| match (&route.when, route.fanout) {
            (Some(when), _) => format!("{} when {}", route.name, when.text()),
            (None, Fanout::Record) => format!("{} (only recorded)", route.name),
            (None, _) => route.name.to_string(),
        })
        .collect();
    let when = source.when.as_ref().map_or(String::new(), |when| format!(", acts when {}", when.text()));
    let signed = source.verify.words();
    let from = match &source.intake {
        Intake::Path => format!("{scheme}://{at}{}, signed by {signed}", source.path),
        Intake::Stream(_) => format!("{}, signed by {signed}", source.path),
        Intake::Poll { .. } => format!("polls {}", source.path),
    };
    format!("{}: {from}{when}, routes: {}", source.name, routes.join("; "))
}
