//! Detection of lost data across restarts: compares the store with this machine's state file before anything is done,
//! and keeps the state file current while the node runs.

use super::state_file;
use super::state_file::{StateFile, StateFileContent, StateFileReadResult, UNREADABLE_HINT};
use crate::config::Config;
use crate::decide::data_loss::{LastKnownStore, ObservedStore, StoreLoss};
use crate::decide::{data_loss, limits};
use crate::observe::log;
use crate::store::open::{OpenPurpose, identity, is_empty, open_for};
use crate::store::{Inspect, StoreError, StoreOpenError};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tracing::warn;

/// The data loss check of one store.
#[derive(Debug, Default)]
pub(super) struct DataLossDetector {
    /// `None`: the store needs none, or the folder is not writable.
    file: Option<StateFile>,
    /// The loss that the operator accepts.
    accepts: Option<String>,
    /// Whether a loss was accepted in this start.
    accepted: bool,
}

impl DataLossDetector {
    /// The check for this config's store; warns if the state cannot be kept across restarts.
    pub(super) fn new(config: &Config, accepts: Option<&str>) -> Result<Self, StoreOpenError> {
        let accepts = accepts.map(str::to_owned);
        let Some((place, scope)) = identity(&config.store)? else { return Ok(Self { accepts, ..Self::default() }) };
        let file = match state_file::open(&config.state) {
            Ok(folder) => Some(StateFile::new(folder, place, scope)),
            Err(why) => {
                let hint = "until then lost data is detected only while the node runs, not after a restart; make the folder \
                            writable, name another with `state` in the config, or StateDirectory= in the unit";
                warn!(target: "hookonce", why, hint, "state");
                None
            }
        };
        Ok(Self { file, accepts, accepted: false })
    }

    /// Reads the store's state file. A damaged one is logged and ignored. An unreadable one is an error, because it may
    /// show that data was lost.
    fn own_record(&self) -> Result<Option<StateFileContent>, StoreOpenError> {
        match self.file.as_ref().map_or(StateFileReadResult::None, StateFile::read) {
            StateFileReadResult::None => Ok(None),
            StateFileReadResult::Record(record) => Ok(Some(record)),
            StateFileReadResult::Damaged(why) => {
                let hint = "what this machine knew of its store is lost; it is written again";
                log::rate_limited("state", &why, |times| warn!(target: "hookonce", why, hint, times, "state"));
                Ok(None)
            }
            StateFileReadResult::Unreadable(why) => Err(StoreOpenError::permanent(format!(
                "the state file {why}. It records what this machine knows of its store; without it, lost data would not be \
                 detected, and finished events could run again. {UNREADABLE_HINT}"
            ))),
        }
    }

    /// Reads the state files of the same store (same epoch) at other addresses. An unreadable one is only logged: it
    /// may belong to any store.
    fn others(&self, epoch: Option<&str>) -> Vec<StateFileContent> {
        let read = self.file.iter().flat_map(|file| file.others(epoch));
        read.filter_map(|read| match read {
            StateFileReadResult::Record(record) => Some(record),
            StateFileReadResult::Unreadable(why) => {
                let hint = "if it belongs to the same store at another address, it is not compared";
                log::rate_limited("state", &why, |times| warn!(target: "hookonce", why, hint, times, "state"));
                None
            }
            StateFileReadResult::None | StateFileReadResult::Damaged(_) => None,
        })
        .collect()
    }

    /// Checks, before the node opens the store, whether it is gone or was set back. Opening may create a store, and on
    /// Redis advances its counter; a refused node leaves it unchanged, however often it is started.
    pub(super) async fn check_before_open(&mut self, config: &Config) -> Result<(), DataLossCheckError> {
        if self.file.is_none() {
            return Ok(());
        }
        if is_empty(&config.store).await? {
            if let Some(record) = self.own_record()? {
                self.compare(&record, &ObservedStore::gone())?;
            }
            return Ok(());
        }
        if !config.store.has_schema() {
            self.compare_all(&*open_for(&config.store, OpenPurpose::Look).await?).await?;
        }
        Ok(())
    }

    /// Checks, after opening and before use, that the store has what was known. From then on the store checks itself.
    pub(super) async fn check_after_open(&mut self, store: &dyn Inspect) -> Result<(), DataLossCheckError> {
        let known = self.compare_all(store).await?;
        Ok(store.begin_fence(known).await?)
    }

    /// Compares the store with each state file; returns what the store has of it.
    async fn compare_all(&mut self, store: &dyn Inspect) -> Result<Vec<LastKnownStore>, DataLossCheckError> {
        let mut all = Vec::new();
        if self.file.is_none() {
            return Ok(all);
        }
        let Some(now) = store.compare_history(None).await? else { return Ok(all) };
        let epoch = now.mark.and_then(|mark| mark.epoch);
        let records = self.own_record()?.into_iter().chain(self.others(epoch.as_deref()));
        for record in records.collect::<Vec<_>>() {
            if let Some(found) = store.compare_history(Some(record.known.clone())).await? {
                all.extend(self.compare(&record, &found)?);
            }
        }
        Ok(all)
    }

    /// What is known from now on: as before, or the store's current content after an accepted loss.
    fn compare(
        &mut self,
        record: &StateFileContent,
        found: &ObservedStore,
    ) -> Result<Option<LastKnownStore>, StoreOpenError> {
        let Some(file) = &self.file else { return Ok(None) };
        let Some(loss) = data_loss::loss(&record.known, found) else {
            if !record.known.unmarked.is_empty() {
                let known = LastKnownStore { unmarked: Vec::new(), ..record.known.clone() };
                file.replace(record, Some(known)).unwrap_or_else(|error| not_written(file, &error));
            }
            return Ok(Some(record.known.clone()));
        };
        if self.accepts.as_deref() != Some(&*loss.known.to_string()) {
            let other = self
                .accepts
                .as_ref()
                .map_or(String::new(), |accepts| format!("\nhint: --accept-loss {accepts} is a different loss"));
            return Err(StoreOpenError::permanent(format!("{}: {loss}{other}", file.place)));
        }
        said(&loss);
        self.accepted = true;
        let known = found.mark.clone().map(LastKnownStore::at);
        file.replace(record, known.clone()).map_err(|error| {
            StoreOpenError::permanent(format!("the state file {} cannot be written: {error}", file.path().display()))
                .caused_by(error)
        })?;
        Ok(known)
    }

    /// Warns if `--accept-loss` was given although there is no such loss.
    pub(super) fn starts(self, store: Arc<dyn Inspect>) -> Option<StateFileWriter> {
        if let (Some(accepts), false) = (&self.accepts, self.accepted) {
            let why = format!("there is no loss {accepts}: --accept-loss has no effect; remove it");
            warn!(target: "hookonce", why, "accept_loss");
        }
        let file = self.file?;
        let task = tokio::spawn(keep(store.clone(), file.clone()));
        Some(StateFileWriter { store, file, task })
    }
}

fn said(loss: &StoreLoss) {
    let found = loss.found.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    let why = "the operator accepted that the store has lost data: lost events run again if they are delivered again";
    warn!(target: "hookonce", known = %loss.known, found, why, "accept_loss");
}

/// Why the check failed, or that data was lost.
pub(super) enum DataLossCheckError {
    Store(StoreError),
    Closed(StoreOpenError),
}

impl From<StoreError> for DataLossCheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<StoreOpenError> for DataLossCheckError {
    fn from(cannot: StoreOpenError) -> Self {
        Self::Closed(cannot)
    }
}

/// A task that keeps recording what the node knows of its store, so that the next start notices lost data.
pub(super) struct StateFileWriter {
    store: Arc<dyn Inspect>,
    file: StateFile,
    task: JoinHandle<()>,
}

impl StateFileWriter {
    /// Writes the file a last time; the store must not be used after this.
    pub(super) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
        write(&*self.store, &self.file, None).await;
    }
}

async fn keep(store: Arc<dyn Inspect>, file: StateFile) {
    let mut last = None;
    loop {
        last = write(&*store, &file, last).await;
        tokio::time::sleep(limits::STATE_EVERY).await;
    }
}

/// Writes what is known, if it has changed; returns what the file then contains.
async fn write(store: &dyn Inspect, file: &StateFile, last: Option<LastKnownStore>) -> Option<LastKnownStore> {
    let Ok(Some(known)) = store.known().await else { return last };
    if last.as_ref() == Some(&known) {
        return last;
    }
    let (to, what) = (file.clone(), known.clone());
    match tokio::task::spawn_blocking(move || to.merge(&what)).await {
        Ok(Ok(())) => Some(known),
        Ok(Err(error)) => {
            not_written(file, &error);
            last
        }
        Err(_) => last,
    }
}

fn not_written(file: &StateFile, error: &std::io::Error) {
    let path = file.path().display().to_string();
    let why = format!("the state file {path} cannot be written: {error}");
    log::rate_limited("state", &why, |times| warn!(target: "hookonce", why, times, "state"));
}
