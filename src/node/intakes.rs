//! The tasks that work for sources beside the webhook port: consumers of streams, pollers of registries, fetchers of
//! keys, catch-ups. When the config is loaded again, those whose plan is the same go on.

use super::parts::NodeParts;
use crate::catch_up::{self, CatchUpContext, HookApi, RunningCatchUps};
use crate::config::PollPlan;
#[cfg(feature = "nats")]
use crate::config::StreamPlan;
use crate::decide::id::Key;
#[cfg(feature = "nats")]
use crate::ingress::nats::{ConsumerContext, StreamIntake};
use crate::ingress::registry_poll::{PollContext, PollIntake};
use crate::key_fetch::KeyFetcher;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the tasks need of their node.
pub(super) struct IntakeContext {
    #[cfg(feature = "nats")]
    pub(super) streams: ConsumerContext,
    pub(super) polls: PollContext,
    pub(super) catch_ups: CatchUpContext,
    pub(super) draining: CancellationToken,
}

/// The running tasks.
pub(super) struct SourceIntakes {
    context: IntakeContext,
    #[cfg(feature = "nats")]
    streams: HashMap<Arc<str>, RunningIntake<StreamPlan>>,
    polls: HashMap<Arc<str>, RunningIntake<(PollPlan, Key)>>,
    /// Cancelled when the fetchers of another config begin.
    fetching: CancellationToken,
    /// Cancelled when the catch-ups of another config begin.
    catching_up: CancellationToken,
    catch_ups: RunningCatchUps,
    /// Tasks that have been told to end.
    ending: Vec<JoinHandle<()>>,
}

/// A task for one source.
struct RunningIntake<P> {
    plan: P,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What the tasks of a config need.
pub(super) struct WantedIntakes {
    #[cfg(feature = "nats")]
    streams: Vec<StreamIntake>,
    polls: Vec<PollIntake>,
    fetchers: Vec<KeyFetcher>,
    hook_apis: Vec<HookApi>,
}

impl WantedIntakes {
    /// Takes them out of the parts of a node.
    pub(super) fn take(parts: &mut NodeParts) -> Self {
        Self {
            #[cfg(feature = "nats")]
            streams: std::mem::take(&mut parts.streams),
            polls: std::mem::take(&mut parts.polls),
            fetchers: parts.key_fetchers.values().cloned().collect(),
            hook_apis: std::mem::take(&mut parts.hook_apis),
        }
    }
}

impl SourceIntakes {
    /// No tasks yet.
    pub(super) fn new(context: IntakeContext) -> Self {
        let (fetching, catching_up) = (context.draining.child_token(), context.draining.child_token());
        Self {
            context,
            #[cfg(feature = "nats")]
            streams: HashMap::new(),
            polls: HashMap::new(),
            fetching,
            catching_up,
            catch_ups: RunningCatchUps::new(),
            ending: Vec::new(),
        }
    }

    /// Starts the tasks that are wanted and do not run, and ends those that run and are not wanted.
    pub(super) async fn follow(&mut self, wanted: WantedIntakes) {
        let Self { context, ending, .. } = self;
        ending.retain(|task| !task.is_finished());
        #[cfg(feature = "nats")]
        {
            let wanted = wanted.streams.into_iter().map(|one| (one.source.clone(), one.plan.clone(), one)).collect();
            replace(&mut self.streams, wanted, &context.draining, ending, |one: StreamIntake, draining| {
                one.start(ConsumerContext { draining, ..context.streams.clone() })
            });
        }
        let polls = wanted.polls.into_iter().map(|one| (one.source.clone(), (one.plan.clone(), one.key), one));
        replace(&mut self.polls, polls.collect(), &context.draining, ending, |one: PollIntake, draining| {
            one.start(PollContext { draining, ..context.polls.clone() })
        });
        self.fetching.cancel();
        self.fetching = context.draining.child_token();
        for fetcher in wanted.fetchers {
            tokio::spawn(fetcher.run(self.fetching.clone()));
        }
        self.catching_up.cancel();
        self.catching_up = context.draining.child_token();
        let mut outages = HashMap::new();
        for (key, task) in std::mem::take(&mut self.catch_ups) {
            if let Ok(known) = task.await {
                outages.insert(key, known);
            }
        }
        let context = CatchUpContext { draining: self.catching_up.clone(), ..context.catch_ups.clone() };
        self.catch_ups = catch_up::start(wanted.hook_apis, &context, outages);
    }

    /// Waits until all tasks have ended, because the node drains.
    pub(super) async fn ended(self) {
        #[cfg(feature = "nats")]
        for (_, running) in self.streams {
            running.task.await.unwrap_or_default();
        }
        for (_, running) in self.polls {
            running.task.await.unwrap_or_default();
        }
        for task in self.ending {
            task.await.unwrap_or_default();
        }
        for (_, task) in self.catch_ups {
            task.await.map_or_else(drop, drop);
        }
    }
}

/// Ends the tasks that are not among `wanted` with the same plan, and starts those that are missing then.
fn replace<P: PartialEq, I>(
    running: &mut HashMap<Arc<str>, RunningIntake<P>>,
    wanted: Vec<(Arc<str>, P, I)>,
    draining: &CancellationToken,
    ending: &mut Vec<JoinHandle<()>>,
    start: impl Fn(I, CancellationToken) -> JoinHandle<()>,
) {
    let goes_on = |source: &Arc<str>, plan: &P| wanted.iter().any(|(name, wanted, _)| name == source && wanted == plan);
    let ended: Vec<_> = running.extract_if(|source, one| !goes_on(source, &one.plan)).collect();
    for (_, one) in ended {
        one.stop.cancel();
        ending.push(one.task);
    }
    for (source, plan, intake) in wanted {
        running.entry(source).or_insert_with(|| {
            let stop = draining.child_token();
            RunningIntake { plan, task: start(intake, stop.clone()), stop }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn a_task_goes_on_while_its_plan_is_the_same_and_a_changed_one_begins_anew() {
        let (mut running, mut ending, draining) = (HashMap::new(), Vec::new(), CancellationToken::new());
        let started = Mutex::new(Vec::new());
        let mut follow = |wanted: &[(&'static str, u8)]| {
            let wanted = wanted.iter().map(|(name, plan)| (Arc::from(*name), *plan, (*name, *plan))).collect();
            replace(&mut running, wanted, &draining, &mut ending, |one, stop| {
                started.lock().unwrap().push(one);
                tokio::spawn(async move { stop.cancelled().await })
            });
            (std::mem::take(&mut *started.lock().unwrap()), ending.len())
        };
        assert_eq!(follow(&[("a", 1), ("b", 1)]), (vec![("a", 1), ("b", 1)], 0));
        assert_eq!(follow(&[("b", 1), ("c", 1)]), (vec![("c", 1)], 1));
        assert_eq!(follow(&[("b", 2), ("c", 1)]), (vec![("b", 2)], 2));
        for task in ending {
            task.await.unwrap();
        }
        draining.cancel();
        for (_, one) in running {
            one.task.await.unwrap();
        }
    }
}
