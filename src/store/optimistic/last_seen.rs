//! What the nodes of a store write down of its server's clock: what time the store has last seen, for those that start and
//! those that wait for a jump; and what they agree on, so that the store's clock never runs backwards.

use super::{OptimisticStore, VersionedBackend};
use crate::decide::limits;
use crate::store::StoreError;

impl<S: VersionedBackend> OptimisticStore<S> {
    /// Writes down what time it is, where that is due, and takes what other nodes wrote while a jump is waited for.
    /// What fails is tried again.
    pub(super) async fn write_clock(&self) {
        if self.0.clock().is_to_be_looked_at(limits::CLOCK_LOOK) {
            self.write_last_seen().await.ok();
        }
        self.agree_on_clock().await;
    }

    /// The same, after the server was asked for its time, if nobody else did so lately.
    pub(super) async fn ask_clock(&self) -> Result<(), StoreError> {
        if self.0.clock().is_silent(limits::CLOCK_LOOK) {
            self.0.last_seen().await?;
        }
        self.write_clock().await;
        Ok(())
    }

    /// Writes down what the nodes are to agree on, where they do not yet. What fails is tried again.
    pub(super) async fn agree_on_clock(&self) {
        if let Some((was, is)) = self.0.clock().to_agree() {
            self.0.agree_on_clock(was, is).await.ok();
        }
    }

    /// A person says that the clock is right; the other nodes hear of it.
    pub(super) async fn confirm(&self) -> Result<(), StoreError> {
        // What the server shows now is confirmed, not what it showed when somebody last asked.
        self.0.last_seen().await?;
        self.0.clock().confirm();
        self.write_last_seen().await
    }

    async fn write_last_seen(&self) -> Result<(), StoreError> {
        write_last_seen(&self.0).await
    }
}

async fn write_last_seen(shelf: &impl VersionedBackend) -> Result<(), StoreError> {
    let clock = shelf.clock();
    clock.observe_last_seen(shelf.last_seen().await?);
    let Some((was, time)) = clock.to_write() else { return Ok(()) };
    shelf.set_last_seen(was, time).await?;
    clock.observe_last_seen(shelf.last_seen().await?);
    Ok(())
}

/// May whoever opens a store write down what it finds of its clocks?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) enum ClockAccess {
    /// It may: a node or a command.
    Writing,
    /// It only looks, or copies.
    Looking,
}

/// How often one who comes asks again, where what it finds of the store's clock is not plausible.
#[cfg(any(feature = "postgres", feature = "redis"))]
const ASKS: usize = 2;

/// Begins at what the store last saw; one that nobody wrote it down for saw its newest event, and that is written down
/// before anything else: an event that is stored under a wrong clock would be the newest.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) async fn begin(shelf: &impl VersionedBackend, begins: ClockAccess) -> Result<(), StoreError> {
    let seen = shelf.last_seen().await?;
    let newest = match seen {
        Some(_) => None,
        None => shelf
            .list(crate::store::EventQuery { limit: 1, ..crate::store::EventQuery::default() })
            .await?
            .first()
            .map(|event| event.received_at),
    };
    shelf.clock().last_seen(seen, newest);
    if begins == ClockAccess::Looking {
        return Ok(());
    }
    if newest.is_some() {
        write_last_seen(shelf).await?;
    }
    // Where nodes run and the server's clock was set a moment ago, they know better how far the store's is.
    for _ in 0..ASKS {
        if shelf.clock().is_settled() {
            break;
        }
        tokio::time::sleep(limits::CLOCK_LOOK).await;
        shelf.last_seen().await?;
    }
    if let Some((was, is)) = shelf.clock().to_agree() {
        shelf.agree_on_clock(was, is).await?;
        shelf.last_seen().await?;
    }
    Ok(())
}
