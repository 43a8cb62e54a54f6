//! What other nodes say they wrote: a reason to look now instead of in a moment.

use super::Dispatcher;
use crate::decide::id::EventId;
use crate::store::ChangeHint;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

impl Dispatcher {
    /// Wakes the lanes that others say have something to do.
    pub(super) async fn listen(self, mut hints: Receiver<ChangeHint>) {
        while let Some(hint) = self.0.stopping.run_until_cancelled(hints.recv()).await {
            match hint {
                Ok(ChangeHint::Due { source, route }) => {
                    self.lane(&source, &route).into_iter().for_each(|lane| lane.wake_all());
                }
                Ok(ChangeHint::Ended(_)) => {}
                Ok(ChangeHint::Missed) | Err(RecvError::Lagged(_)) => self.lanes().for_each(|lane| lane.wake_all()),
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// Waits until others say that this event may be over; for ever where nobody says anything.
pub(super) async fn may_be_over(hints: &mut Option<Receiver<ChangeHint>>, id: EventId) {
    while let Some(heard) = hints {
        match heard.recv().await {
            Ok(ChangeHint::Ended(ended)) if ended != id => {}
            Ok(ChangeHint::Due { .. }) => {}
            Ok(ChangeHint::Ended(_) | ChangeHint::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => *hints = None,
        }
    }
    std::future::pending::<()>().await;
}
