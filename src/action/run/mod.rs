//! `run`: blocks of steps, each step through its guard. What is decided here is what an end means; how a command is
//! started and ended is `guard_client.rs`, what it is started with is `step.rs`.
pub(crate) mod guard;
pub(crate) mod guard_client;
pub(crate) mod guard_protocol;
pub(crate) mod output;
pub(crate) mod output_log;
pub(crate) mod step;

use super::plan::{CommandBlock, CommandLine, OutputDestination};
use super::{Action, ActionEnvironment, ActionFuture, Attempt};
use crate::action;
use crate::decide::action_kind::ActionKind;
use crate::decide::event::Outcome;
use crate::decide::time::duration_text;
use guard_client::{OutputSinks, StepEnd};
use output_log::OutputLog;
use tokio::time::Instant;

/// So much of a step's text is shown in the sentence behind an outcome.
const SHOWN_CHARS: usize = 200;

/// The action `run`.
pub(super) struct RunAction {
    blocks: Vec<CommandBlock>,
    environment: ActionEnvironment,
}

impl RunAction {
    pub(super) fn new(blocks: Vec<CommandBlock>, environment: ActionEnvironment) -> Self {
        Self { blocks, environment }
    }

    /// Blocks do not depend on each other: the outcome is the worst of those that have not succeeded before.
    async fn run(&self, attempt: Attempt<'_>) -> Outcome {
        let mut worst = Outcome::Delivered(None);
        for (i, block) in self.blocks.iter().enumerate() {
            if attempt.event.blocks.has(i) {
                continue;
            }
            if let Some(over) = attempt.lease.term().over() {
                let why = format!("{} before block {} began", over.why(), i + 1);
                return worst_outcome(worst, Outcome::Unknown { why });
            }
            let outcome = self.block(i + 1, block, attempt).await;
            if matches!(outcome, Outcome::Delivered(_)) {
                attempt.blocks.mark_done(i);
            }
            worst = worst_outcome(worst, outcome);
        }
        worst
    }

    /// A step runs only if the one before succeeded.
    async fn block(&self, number: usize, block: &CommandBlock, attempt: Attempt<'_>) -> Outcome {
        let limit = Instant::now() + block.timeout;
        let trace = action::trace_headers(&attempt);
        let log = match block.output {
            OutputDestination::Store => None,
            OutputDestination::StoreAndLog => Some(OutputLog::new(attempt.event)),
        };
        let mut sinks = OutputSinks { kept: attempt.output, log };
        for (i, line) in block.steps.iter().enumerate() {
            let place = StepLocation { block: number, step: i + 1, line };
            let step = match step::prepare(block, line, attempt.event, &self.environment.variables, &trace) {
                Ok(step) => step,
                Err(unfit) => return rejected(place.failure_message(&format!("cannot be started, {unfit}"))),
            };
            let (body, lease) = (&attempt.payload.body, attempt.lease);
            let end = guard_client::run(&self.environment.guard, step, body, limit, lease, &mut sinks).await;
            if end != StepEnd::Exit(0) {
                return place.outcome(end, block);
            }
        }
        Outcome::Delivered(None)
    }
}

impl Action for RunAction {
    fn act<'a>(&'a self, attempt: Attempt<'a>) -> ActionFuture<'a> {
        Box::pin(self.run(attempt))
    }

    fn kind(&self) -> ActionKind {
        ActionKind::Run
    }
}

/// Where in the plan a step stands.
struct StepLocation<'a> {
    block: usize,
    step: usize,
    line: &'a CommandLine,
}

impl StepLocation<'_> {
    /// What an end other than success means.
    fn outcome(&self, end: StepEnd, block: &CommandBlock) -> Outcome {
        match end {
            StepEnd::Exit(code) => outcome_of_exit_code(code, self.failure_message(&format!("exited with {code}"))),
            StepEnd::Signal(signal) => failed(self.failure_message(&format!("was ended by signal {signal}"))),
            StepEnd::NotStarted { why, code } => {
                outcome_of_exit_code(code, self.failure_message(&format!("could not be started, {why}")))
            }
            StepEnd::TimedOut => {
                let why = self.failure_message(&format!("timed out after {}", duration_text(block.timeout)));
                Outcome::TimedOut { why, answered: None }
            }
            StepEnd::LeaseEnded(over) => unknown(self.failure_message(&format!("was ended because {}", over.why()))),
            StepEnd::Lost => unknown(self.failure_message("ended in an unknown way: its guard is gone")),
        }
    }

    /// A sentence with the step as the config has it: never with a value of the payload.
    fn failure_message(&self, what: &str) -> String {
        let text = self.line.to_string();
        let (shown, rest) = match text.char_indices().nth(SHOWN_CHARS) {
            Some((cut, _)) => (&text[..cut], "…"),
            None => (text.as_str(), ""),
        };
        format!("step {} of block {} {what}: {shown}{rest}", self.step, self.block)
    }
}

/// 126 and 127 are what a shell ends with when it cannot start a program: that will not get better by itself.
fn outcome_of_exit_code(code: i32, why: String) -> Outcome {
    if matches!(code, 126 | 127) { rejected(why) } else { failed(why) }
}

fn failed(why: String) -> Outcome {
    Outcome::Failed { why, retry_after: None, receipt: None }
}

fn rejected(why: String) -> Outcome {
    Outcome::Rejected { why, receipt: None }
}

fn unknown(why: String) -> Outcome {
    Outcome::Unknown { why }
}

/// The worse of two; of two equally bad, the first. What was lost is worse than what we ended: it is tried again after a
/// crash even where a block before it timed out.
fn worst_outcome(one: Outcome, other: Outcome) -> Outcome {
    let badness = |outcome: &Outcome| match outcome {
        Outcome::Delivered(_) => 0,
        Outcome::Failed { .. } => 1,
        Outcome::Rejected { .. } => 2,
        Outcome::TimedOut { .. } => 3,
        Outcome::Unknown { .. } => 4,
    };
    if badness(&other) > badness(&one) { other } else { one }
}
