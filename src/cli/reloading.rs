//! When a running node reads its config again: on SIGHUP, when an operator asks for it, and, with `reload = "auto"`, when
//! the file has changed. What follows is in the log, and in the answer to the operator.

use super::serve::{log_problem, status};
use super::service_manager::ServiceManager;
use crate::admin::reload::{ReloadError, ReloadRequest, ReloadResult};
use crate::config::diagnostic::{ColorChoice, count};
use crate::config::{self, Config, EnvLookup, LogFormat, ReloadMode};
use crate::decide::id::Digest;
use crate::node::NodeHandle;
use crate::observe::log;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

/// How often the config file is checked for changes. A change counts when the file is the same twice.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads the config of a running node again.
pub(super) struct ConfigReloader<'e> {
    path: PathBuf,
    env: EnvLookup<'e>,
    log: LogFormat,
    ink: ColorChoice,
    hangups: Signal,
    requests: mpsc::Receiver<ReloadRequest>,
    file: ConfigFileMonitor,
    mode: ReloadMode,
}

/// Why the config is read again.
pub(super) enum ReloadTrigger {
    Signal,
    Request(ReloadRequest),
    File,
}

impl ReloadTrigger {
    fn word(&self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Request(_) => "request",
            Self::File => "file",
        }
    }
}

impl<'e> ConfigReloader<'e> {
    /// For the config that was just read from this file.
    pub(super) fn new(
        (path, config): (&Path, &Config),
        env: EnvLookup<'e>,
        (log, ink): (LogFormat, ColorChoice),
        hangups: Signal,
        requests: mpsc::Receiver<ReloadRequest>,
    ) -> Self {
        let file = ConfigFileMonitor::new(path);
        Self { path: path.to_owned(), env, log, ink, hangups, requests, file, mode: config.reload }
    }

    /// Waits until the config is to be read again.
    pub(super) async fn next(&mut self) -> ReloadTrigger {
        loop {
            tokio::select! {
                Some(()) = self.hangups.recv() => return ReloadTrigger::Signal,
                Some(request) = self.requests.recv() => return ReloadTrigger::Request(request),
                () = self.file.changed() => match self.mode {
                    ReloadMode::Auto => return ReloadTrigger::File,
                    ReloadMode::Manual => {
                        let hint = "run `hookonce check`, then `hookonce reload`";
                        warn!(target: "hookonce", changed = %self.path.display(), hint, "config");
                    }
                },
            }
        }
    }

    /// Reads the config, has the node use it, and reports the result.
    pub(super) async fn reload(&mut self, node: &mut NodeHandle, trigger: ReloadTrigger, manager: &ServiceManager) {
        let began = Instant::now();
        manager.reloading();
        self.file.seen();
        let read = tokio::task::block_in_place(|| config::load(&self.path, self.env));
        let result = match read {
            Ok(config) => {
                let result = node.reload(&config).await;
                if result.is_ok() {
                    self.mode = config.reload;
                }
                result
            }
            Err(problems) => Err(ReloadError::Config(problems)),
        };
        self.report(&result, trigger.word(), began.elapsed());
        manager.ready(&match &result {
            Ok(summary) => status(summary.sources, summary.routes),
            Err(_) => "the last reload was refused; see the log".to_owned(),
        });
        if let ReloadTrigger::Request(request) = trigger {
            request.answer(result);
        }
    }

    fn report(&self, result: &ReloadResult, by: &str, took: Duration) {
        let problems = match result {
            Ok(summary) => &summary.warnings,
            Err(ReloadError::Config(problems)) => &problems.list,
            Err(_) => &Vec::new(),
        };
        match (self.log, result) {
            (LogFormat::Json, _) => problems.iter().for_each(log_problem),
            (_, Ok(_)) => problems.iter().for_each(|problem| eprintln!("{}", problem.render(self.ink))),
            (_, Err(ReloadError::Config(error))) => eprint!("{}", error.render_for(self.ink, ReloadError::STAYS)),
            (_, Err(_)) => {}
        }
        match result {
            Ok(summary) => {
                let (sources, routes, took_ms) = (summary.sources, summary.routes, log::millis(took));
                info!(target: "hookonce", by, sources, routes, took_ms, "reloaded");
            }
            Err(ReloadError::Config(error)) => {
                let why = format!("{} in {}; {}", count(&error.list), error.file, ReloadError::STAYS);
                error!(target: "hookonce", by, why, "reload");
            }
            Err(error) => error!(target: "hookonce", by, why = %error, "reload"),
        }
    }
}

/// Notices that the config has changed: the file, or a preset beside it. It compares what is in them, so it notices a
/// file that another one was renamed to as well as one that is written in place, such as a single file that is mounted
/// into a container.
struct ConfigFileMonitor {
    path: PathBuf,
    /// What was last loaded, or reported as changed.
    known: Option<Digest>,
    /// What is there instead, if it may be half-written.
    changing: Option<Digest>,
}

impl ConfigFileMonitor {
    fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { known: content(&path), changing: None, path }
    }

    /// The file is loaded now.
    fn seen(&mut self) {
        (self.known, self.changing) = (content(&self.path).or(self.known), None);
    }

    /// Waits until it has changed, and is not being written any more.
    async fn changed(&mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.look() {
                return;
            }
        }
    }

    fn look(&mut self) -> bool {
        // A file that is gone is about to be replaced.
        let Some(now) = content(&self.path).filter(|now| Some(*now) != self.known) else {
            self.changing = None;
            return false;
        };
        let is_stable = self.changing == Some(now);
        if is_stable {
            (self.known, self.changing) = (Some(now), None);
        } else {
            self.changing = Some(now);
        }
        is_stable
    }
}

/// The digest of a config and the presets beside it; `None` if it cannot be read.
fn content(path: &Path) -> Option<Digest> {
    let mut whole = Digest::of(&std::fs::read(path).ok()?).0.to_vec();
    let presets = std::fs::read_dir(path.parent()?.join("presets"));
    let mut presets: Vec<_> = presets.into_iter().flatten().flatten().map(|file| file.path()).collect();
    presets.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    presets.sort();
    for file in presets {
        whole.extend(Digest::of(file.as_os_str().as_encoded_bytes()).0);
        whole.extend(Digest::of(&std::fs::read(file).unwrap_or_default()).0);
    }
    Some(Digest::of(&whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_change_counts_once_when_it_is_complete_however_the_file_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [file, new] = ["hookonce.toml", "new"].map(|name| folder.path().join(name));
        fs::write(&file, "a = 1").unwrap();
        let mut monitor = ConfigFileMonitor::new(&file);
        let looks = |monitor: &mut ConfigFileMonitor| [(); 3].map(|()| monitor.look());
        assert_eq!(looks(&mut monitor), [false; 3]);
        fs::write(&file, "a = ").unwrap();
        assert!(!monitor.look());
        fs::write(&file, "a = 2").unwrap(); // in place
        assert_eq!(looks(&mut monitor), [false, true, false]);
        fs::write(&new, "a = 3").unwrap();
        fs::rename(&new, &file).unwrap();
        assert_eq!(looks(&mut monitor), [false, true, false]);
        fs::remove_file(&file).unwrap();
        assert_eq!(looks(&mut monitor), [false; 3]);
        fs::write(&file, "a = 3").unwrap();
        assert_eq!(looks(&mut monitor), [false; 3], "it is as it was");
        fs::create_dir(folder.path().join("presets")).unwrap();
        fs::write(folder.path().join("presets/mine.toml"), "verify = 'none'").unwrap();
        assert_eq!(looks(&mut monitor), [false, true, false]);
        fs::write(&file, "a = 4").unwrap();
        monitor.seen();
        assert_eq!(looks(&mut monitor), [false; 3], "it was loaded");
    }
}
