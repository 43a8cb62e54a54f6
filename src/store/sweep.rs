//! Forgetting all that may be forgotten, a batch after another.

use super::{Forgotten, Keeps, Store, StoreError};
use crate::decide::limits;
use std::sync::Arc;

/// Frees everything that may be forgotten when it is asked, and says how much that was. What another sweep frees
/// meanwhile is its to count.
pub async fn everything(store: &dyn Store, keeps: &Arc<Keeps>) -> Result<Forgotten, StoreError> {
    let mut all = Forgotten::default();
    for _ in 0..limits::FORGET_BATCHES_MAX {
        let some = store.forget(keeps.clone(), limits::FORGET_BATCH).await?;
        if some == Forgotten::default() {
            break;
        }
        all.events += some.events;
        all.bodies += some.bodies;
    }
    Ok(all)
}
