//! Forgetting beside others who forget the same.

use super::{Cell, Shared, Shelf};
use crate::decide::expiry::ExpiryTime;
use crate::decide::id::EventId;
use crate::decide::source::{Keep, Kept};
use crate::decide::time::Duration;
use crate::store::ledger;
use crate::store::{Forgotten, Keeps, StoreError};

/// Writes of one sweep under way at once, on a shelf that takes only a few events in each.
const LANES: usize = 4;

/// What is freed.
#[derive(Clone, Copy)]
enum Frees {
    Bodies,
    Events(Duration),
}

impl<S: Shelf> Shared<S> {
    pub(super) async fn sweep(&self, keeps: &Keeps, limit: usize) -> Result<Forgotten, StoreError> {
        let (mut bodies, mut events, by) = (0, 0, self.expiry_time());
        for (of, &kept) in &keeps.sources {
            bodies += self.free(Frees::Bodies, of, kept, by, limit - bodies).await?;
            if let Keep::For(length) = kept.keys {
                events += self.free(Frees::Events(length), of, kept, by, limit - events).await?;
            }
        }
        Ok(Forgotten { events: events as u64, bodies: bodies as u64 })
    }

    /// The time by which events expire, as it is now: whoever swept for long looks again before each write.
    fn expiry_time(&self) -> ExpiryTime {
        self.0.clock().expiry().time
    }

    /// How many events the sweep would forget by this time: at most `limit`.
    pub(super) async fn count_forgettable(
        &self,
        keeps: &Keeps,
        limit: usize,
        by: ExpiryTime,
    ) -> Result<u64, StoreError> {
        let mut many = 0;
        for (of, kept) in &keeps.sources {
            if let Keep::For(length) = kept.keys {
                many += self.0.forgettable(of, by.less(length), limit - many).await?.len();
            }
        }
        Ok(many as u64)
    }

    /// Frees up to `limit` of these. Others may free the same meanwhile: what they took is not counted here, and then it
    /// is looked again, so that 0 means that nothing is left.
    async fn free(&self, what: Frees, of: &str, kept: Kept, by: ExpiryTime, limit: usize) -> Result<usize, StoreError> {
        let (mut freed, mut seen) = (0, Vec::new());
        while freed < limit {
            let old = match what {
                Frees::Bodies => self.0.with_old_bodies(of, by.less(kept.body), limit - freed).await?,
                Frees::Events(length) => self.0.forgettable(of, by.less(length), limit - freed).await?,
            };
            if old.is_empty() || old == seen {
                break; // what is still there was left there by the rules
            }
            let ours = self.free_these(what, &old, kept).await?;
            freed += ours;
            if ours == old.len() {
                break; // nobody got in the way: there were no more, or the next batch has them
            }
            seen = old;
        }
        Ok(freed)
    }

    /// Frees these in a few lanes: while one write waits for the disk, the next is drafted.
    async fn free_these(&self, what: Frees, old: &[EventId], kept: Kept) -> Result<usize, StoreError> {
        let writes: Vec<_> = old.chunks(self.0.swept_at_once(old.len())).collect();
        let lane = async |first: usize| {
            let mut freed = 0;
            for some in writes.iter().skip(first).step_by(LANES) {
                freed += self.free_some(what, some, kept).await?;
            }
            Ok::<_, StoreError>(freed)
        };
        let [a, b, c, d] = std::array::from_fn(|first: usize| lane(first));
        let (a, b, c, d) = tokio::try_join!(a, b, c, d)?;
        Ok(a + b + c + d)
    }

    /// Frees these in one write.
    async fn free_some(&self, what: Frees, some: &[EventId], kept: Kept) -> Result<usize, StoreError> {
        let cells = |id: &EventId| vec![Cell::Event(*id)];
        let gone = match what {
            Frees::Bodies => {
                self.run(some, cells, |draft, id, _| draft.remove_body(*id, self.expiry_time().less(kept.body))).await?
            }
            Frees::Events(_) => {
                self.run(some, cells, |draft, id, _| ledger::forget_one(draft, *id, kept.keys, self.expiry_time()))
                    .await?
            }
        };
        Ok(gone.into_iter().filter(|gone| *gone == Some(true)).count())
    }
}
