//! Forgetting all that may be forgotten, a batch after another.

use super::{Forgotten, Keeps, Store, StoreError};
use crate::decide::limits;
use crate::telemetry::{self, Level};
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
        all.add(some);
    }
    Ok(all)
}

impl Forgotten {
    /// Counts more of it.
    pub fn add(&mut self, more: Self) {
        self.events += more.events;
        self.bodies += more.bodies;
    }

    /// Says how much a sweep forgot, if it was anything.
    pub fn say(self) {
        if self != Self::default() {
            let (events, bodies) = (self.events.to_string(), self.bodies.to_string());
            telemetry::say(Level::Info, "forgot", &[("events", &events), ("bodies", &bodies)]);
        }
    }
}
