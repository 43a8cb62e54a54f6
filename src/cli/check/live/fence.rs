//! Both sides of the fence: what this machine knows of its store, and what the store has.

use super::{Tried, wrong};
use crate::config::Config;
use crate::decide::fence::{self, FoundStore, KnownStore};
use crate::node::state::{self, StateFile, StateRead, UNREADABLE_HINT};
use crate::store::CannotOpen;
use crate::store::open::{Use, identity, is_empty, open_for};

/// The state file of a store that has one. Nothing is changed, and no folder is made.
pub(super) fn tried(config: &Config) -> Option<Tried> {
    let (place, scope) = identity(&config.store).ok().flatten()?;
    let folder = config.state.path();
    let file = StateFile::new(folder.to_owned(), place, scope);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let known = match file.read() {
        StateRead::None => None,
        StateRead::Record(record) => Some(record.known),
        StateRead::Damaged(why) => {
            let hint = "what this machine knew of its store is unknown; a node that starts writes it anew";
            return Some(Tried::new("state", file.path().display().to_string(), wrong(why, hint)));
        }
        StateRead::Unreadable(why) => {
            return Some(Tried::new("state", file.path().display().to_string(), wrong(why, UNREADABLE_HINT)));
        }
    };
    // A store that cannot be opened is told of elsewhere.
    let found = runtime.block_on(found(config, known.clone())).ok()?;
    let words = match known.as_ref().and_then(|known| fence::loss(known, &found)) {
        Some(loss) => wrong(loss.to_string(), ""),
        None => Ok(format!("{}{}", both(known.as_ref(), &found), lasts(config))),
    };
    Some(Tried::new("state", file.path().display().to_string(), words))
}

async fn found(config: &Config, known: Option<KnownStore>) -> Result<FoundStore, CannotOpen> {
    if is_empty(&config.store).await? {
        return Ok(FoundStore::gone());
    }
    let store = open_for(&config.store, Use::Look).await?;
    let found = store.found(known).await.map_err(|error| CannotOpen::Yet(error.to_string()))?;
    Ok(found.unwrap_or_else(FoundStore::gone))
}

fn both(known: Option<&KnownStore>, found: &FoundStore) -> String {
    let known = known.map_or("nothing yet".to_owned(), |known| known.mark.to_string());
    let has = match &found.mark {
        None => "nothing yet".to_owned(),
        Some(mark) if mark.epoch.is_none() => format!("{mark} (its server does not tell its system identifier)"),
        Some(mark) => mark.to_string(),
    };
    format!("this machine knows {known}, the store has {has}")
}

/// Whether what is known lasts.
fn lasts(config: &Config) -> String {
    match state::can_be_written(&config.state) {
        Ok(()) => String::new(),
        Err(why) => format!("; {why}, so that lost data is noticed only while a node runs"),
    }
}
