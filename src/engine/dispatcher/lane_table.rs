//! The lanes of one config, and what lives on when a reload replaces them: the permits of each queue.
//!
//! An attempt keeps the lane with which it began. The table only says how events begin from now on.

use super::lane::Lane;
use crate::store::RetentionPolicies;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The lanes of a config.
pub(crate) struct LaneTable {
    /// By source, then by route: looked up for every delivery, without allocating a pair of names.
    lanes: HashMap<Arc<str>, HashMap<Arc<str>, Arc<Lane>>>,
    /// The retention of their sources.
    pub(super) keeps: Arc<RetentionPolicies>,
    /// Cancelled when another table replaces this one, or the node stops: its queues start nothing more.
    pub(super) retired: CancellationToken,
    /// The loops of its queues.
    pub(super) queues: TaskTracker,
}

impl LaneTable {
    /// The table of these lanes; their permits are those of `permits`.
    pub(super) fn new(lanes: Vec<Lane>, permits: &mut QueuePermits, stopping: &CancellationToken) -> Self {
        let keeps = Arc::new(RetentionPolicies::of_sources(lanes.iter().map(|lane| &*lane.source)));
        let mut by_name: HashMap<_, HashMap<_, _>> = HashMap::new();
        for mut lane in lanes {
            lane.share_permits(permits);
            by_name.entry(lane.source.name.clone()).or_default().insert(lane.route.name.clone(), Arc::new(lane));
        }
        permits.drop_unused();
        Self { lanes: by_name, keeps, retired: stopping.child_token(), queues: TaskTracker::new() }
    }

    /// The lane of this route.
    pub(crate) fn lane(&self, source: &str, route: &str) -> Option<&Arc<Lane>> {
        self.lanes.get(source)?.get(route)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.lanes.values().flat_map(HashMap::values)
    }
}

/// The permits of all queues, by the names of source and route and the number of the queue. They outlive their lanes:
/// attempts that began under an earlier config count.
#[derive(Default)]
pub(super) struct QueuePermits(HashMap<(Arc<str>, Arc<str>, u16), PermitPool>);

/// The permits of one queue.
struct PermitPool {
    permits: Arc<Semaphore>,
    /// How many there are, or will be once those that a smaller config has too many of are released.
    size: usize,
}

impl QueuePermits {
    /// The permits of a queue of which so many attempts may run at once.
    pub(super) fn resized(&mut self, source: &Arc<str>, route: &Arc<str>, part: u16, size: usize) -> Arc<Semaphore> {
        let new = || PermitPool { permits: Arc::new(Semaphore::new(size)), size };
        let pool = self.0.entry((source.clone(), route.clone(), part)).or_insert_with(new);
        if size > pool.size {
            pool.permits.add_permits(size - pool.size);
        } else {
            remove(&pool.permits, pool.size - size);
        }
        pool.size = size;
        pool.permits.clone()
    }

    /// Drops those that neither a lane nor an attempt holds.
    fn drop_unused(&mut self) {
        self.0.retain(|_, pool| Arc::strong_count(&pool.permits) > 1);
    }
}

/// Removes permits: the free ones now, the others when their attempts release them, before another attempt gets them.
fn remove(permits: &Arc<Semaphore>, count: usize) {
    let left = count - permits.forget_permits(count);
    if left > 0 {
        let permits = permits.clone();
        tokio::spawn(async move {
            for _ in 0..left {
                if let Ok(permit) = permits.acquire().await {
                    permit.forget();
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn attempts_of_an_earlier_config_count_against_the_limit_of_the_next_one() {
        let (mut all, name) = (QueuePermits::default(), Arc::<str>::from("a"));
        let permits = all.resized(&name, &name, 0, 3);
        let running: Vec<_> = (0..3).map(|_| permits.clone().try_acquire_owned().expect("one of three")).collect();
        let same = all.resized(&name, &name, 0, 1);
        assert!(Arc::ptr_eq(&permits, &same));
        tokio::task::yield_now().await;
        for (ended, permit) in running.into_iter().enumerate() {
            drop(permit);
            tokio::task::yield_now().await;
            assert_eq!(same.available_permits(), usize::from(ended == 2));
        }
        assert_eq!(all.resized(&name, &name, 0, 4).available_permits(), 4);
        assert_eq!(all.resized(&name, &name, 1, 2).available_permits(), 2, "another queue has its own");
    }

    #[tokio::test]
    async fn a_limit_that_goes_down_and_up_again_is_as_it_was() {
        let (mut all, name) = (QueuePermits::default(), Arc::<str>::from("a"));
        let permits = all.resized(&name, &name, 0, 2);
        let running = [(); 2].map(|()| permits.clone().try_acquire_owned().expect("one of two"));
        all.resized(&name, &name, 0, 1);
        all.resized(&name, &name, 0, 2);
        drop(running);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(permits.available_permits(), 2);
    }

    #[test]
    fn permits_that_nothing_holds_are_dropped() {
        let (mut all, name) = (QueuePermits::default(), Arc::<str>::from("a"));
        let held = all.resized(&name, &name, 0, 1);
        drop(all.resized(&name, &name, 1, 1));
        all.drop_unused();
        assert_eq!(all.0.len(), 1);
        drop(held);
        all.drop_unused();
        assert!(all.0.is_empty());
    }
}
