//! Forgetting beside others who forget the same.

use super::{Cell, Shared, Shelf};
use crate::decide::id::EventId;
use crate::decide::source::{Keep, Kept};
use crate::decide::time::{Duration, Timestamp};
use crate::store::ledger::{self, Of};
use crate::store::{Forgotten, Keeps, StoreError};

/// The pause between two writes of a sweep on a shelf that takes only a few at a time: what waits there goes first.
const PAUSE: Duration = Duration::from_millis(2);

/// What is freed.
#[derive(Clone, Copy)]
enum Frees {
    Bodies,
    Events(Duration),
}

impl<S: Shelf> Shared<S> {
    pub(super) async fn sweep(&self, keeps: &Keeps, limit: usize) -> Result<Forgotten, StoreError> {
        let (mut bodies, mut events, now) = (0, 0, self.0.now());
        let known = keeps.sources.iter().map(|(name, kept)| (Of::Source(name), *kept));
        for (of, kept) in known.chain(keeps.others.map(|kept| (Of::Unknown(keeps), kept))) {
            bodies += self.free(Frees::Bodies, of, kept, now, limit - bodies).await?;
            if let Keep::For(length) = kept.keys {
                events += self.free(Frees::Events(length), of, kept, now, limit - events).await?;
            }
        }
        Ok(Forgotten { events: events as u64, bodies: bodies as u64 })
    }

    /// Frees up to `limit` of these. Others may free the same meanwhile: what they took is not counted here, and then it
    /// is looked again, so that 0 means that nothing is left.
    async fn free(
        &self,
        what: Frees,
        of: Of<'_>,
        kept: Kept,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let (mut freed, mut seen) = (0, Vec::new());
        while freed < limit {
            let old = match what {
                Frees::Bodies => self.0.with_old_bodies(of, now - kept.body, limit - freed).await?,
                Frees::Events(length) => self.0.forgettable(of, now - length, limit - freed).await?,
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

    async fn free_these(&self, what: Frees, old: &[EventId], kept: Kept) -> Result<usize, StoreError> {
        let mut freed = 0;
        for (n, some) in old.chunks(self.0.swept_at_once()).enumerate() {
            if n > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let cells = |id: &EventId| vec![Cell::Event(*id)];
            let gone = match what {
                Frees::Bodies => {
                    self.run(some, cells, |draft, id, now| draft.remove_body(*id, now - kept.body)).await?
                }
                Frees::Events(_) => {
                    self.run(some, cells, |draft, id, now| ledger::forget_one(draft, *id, kept.keys, now)).await?
                }
            };
            freed += gone.into_iter().filter(|gone| *gone == Some(true)).count();
        }
        Ok(freed)
    }
}
