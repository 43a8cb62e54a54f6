//! Detection of lost data: compares this machine's state file with the store.

use super::{LiveCheck, failed_check};
use crate::config::Config;
use crate::decide::data_loss;
use crate::decide::data_loss::{KnownStore, ObservedStore};
use crate::decide::error_reason::ErrorReason;
use crate::node::state_file;
use crate::node::state_file::{StateFile, StateRead, StateRecord, UNREADABLE_HINT};
use crate::store::StoreOpenError;
use crate::store::open::{OpenPurpose, identity, is_empty, open_for};
use std::path::PathBuf;

/// Checks the state files of the store, if it has any. Changes nothing, creates no folder.
pub(super) fn tried(config: &Config) -> Option<LiveCheck> {
    let (place, scope) = identity(&config.store).ok().flatten()?;
    let folder = config.state.path();
    let file = StateFile::new(folder.to_owned(), place, scope);
    let tried = |path: PathBuf, words| Some(LiveCheck::new("state", path.display().to_string(), words));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let own = match file.read() {
        StateRead::None => None,
        StateRead::Record(record) => Some(record),
        StateRead::Damaged(why) => {
            let hint = "what this machine knew of its store is lost; a node writes it again when it starts";
            return tried(file.path(), failed_check(why, hint));
        }
        StateRead::Unreadable(why) => return tried(file.path(), failed_check(why, UNREADABLE_HINT)),
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
    compared: Vec<(StateRecord, ObservedStore)>,
}

/// Compares the store with its state file and with those of the same store at other addresses, as a node does at start.
async fn look(config: &Config, file: &StateFile, own: Option<StateRecord>) -> Result<StoreComparison, StoreOpenError> {
    if is_empty(&config.store).await? {
        let compared = own.into_iter().map(|record| (record, ObservedStore::gone())).collect();
        return Ok(StoreComparison { has: ObservedStore::gone(), compared });
    }
    let store = open_for(&config.store, OpenPurpose::Look).await?;
    let found = async |known| match store.compare_history(known).await {
        Ok(found) => Ok(found.unwrap_or_else(ObservedStore::gone)),
        Err(error) => Err(StoreOpenError::Temporary(ErrorReason::of(error))),
    };
    let has = found(None).await?;
    let epoch = has.mark.as_ref().and_then(|mark| mark.epoch.as_deref());
    let others = file.others(epoch).into_iter().filter_map(|read| match read {
        StateRead::Record(record) => Some(record),
        StateRead::None | StateRead::Damaged(_) | StateRead::Unreadable(_) => None,
    });
    let mut compared = Vec::new();
    for record in own.into_iter().chain(others) {
        let found = found(Some(record.known.clone())).await?;
        compared.push((record, found));
    }
    Ok(StoreComparison { has, compared })
}

fn both(known: Option<&KnownStore>, found: &ObservedStore) -> String {
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
