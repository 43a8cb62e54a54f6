//! What time the store has last seen: written down by its nodes, and read by those that start, and by those that wait for
//! a jump of the server's clock.

use super::{Shared, Shelf};
use crate::decide::limits;
use crate::store::StoreError;

impl<S: Shelf> Shared<S> {
    /// Writes down what time it is, where that is due, and takes what other nodes wrote while a jump is waited for.
    /// What fails is tried again.
    pub(super) async fn look_at_clock(&self) {
        if self.0.clock().is_to_be_looked_at(limits::CLOCK_LOOK) {
            self.write_last_seen().await.ok();
        }
    }

    /// A person says that the clock is right; the other nodes hear of it.
    pub(super) async fn confirm(&self) -> Result<(), StoreError> {
        self.0.clock().confirm();
        self.write_last_seen().await
    }

    async fn write_last_seen(&self) -> Result<(), StoreError> {
        let clock = self.0.clock();
        clock.heard(self.0.last_seen().await?);
        let Some((was, time)) = clock.to_write() else { return Ok(()) };
        self.0.set_last_seen(was, time).await?;
        clock.heard(self.0.last_seen().await?);
        Ok(())
    }
}

/// Begins at what the store last saw; one that nobody wrote it down for saw its newest event.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) async fn begin(shelf: &impl Shelf) -> Result<(), StoreError> {
    let seen = shelf.last_seen().await?;
    let newest = match seen {
        Some(_) => None,
        None => shelf
            .list(crate::store::Listing { limit: 1, ..crate::store::Listing::default() })
            .await?
            .first()
            .map(|event| event.received_at),
    };
    shelf.clock().last_seen(seen, newest);
    Ok(())
}
