//! Looks at the store's clocks once a second, so that a jump is noticed and said when it comes.

use super::Dispatcher;
use crate::decide::limits;
use crate::store::clock_monitor::ClockMonitor;

impl Dispatcher {
    /// Until the node stops.
    pub(super) async fn watch_clocks(self) {
        let mut watch = ClockMonitor::default();
        loop {
            watch.look(&*self.0.store, self.would_forget()).await;
            let rest = tokio::time::sleep(limits::CLOCK_LOOK);
            if self.0.stopping.run_until_cancelled(rest).await.is_none() {
                return;
            }
        }
    }
}
