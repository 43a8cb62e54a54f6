//! `run`: runs blocks of steps, each step through its guard, and maps their ends to an outcome. `guard_client.rs`
//! starts and ends commands; `step.rs` builds their arguments and environment.
pub(crate) mod guard;
pub(crate) mod guard_client;
pub(crate) mod guard_protocol;
pub(crate) mod output;
pub(crate) mod output_log;
pub(crate) mod step;

use super::plan::{CommandBlock, CommandLine, EnvEntry, FieldTemplatePart, OutputDestination, WorkingDir};
use super::{Action, ActionEnvironment, ActionFuture, Attempt, LiveCheck, failed_check};
use crate::action;
use crate::decide::action_kind::ActionKind;
use crate::decide::event::Outcome;
use crate::decide::time::duration_text;
use guard_client::{OutputSinks, StepEnd};
use output_log::OutputLog;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// Maximum characters of a step's text in an outcome's message.
const SHOWN_CHARS: usize = 200;

/// Runs an event's commands.
pub(super) struct RunAction {
    blocks: Vec<CommandBlock>,
    environment: ActionEnvironment,
}

impl RunAction {
    pub(super) fn new(blocks: Vec<CommandBlock>, environment: ActionEnvironment) -> Self {
        Self { blocks, environment }
    }

    /// Runs all blocks that have not succeeded yet; they are independent, and the worst outcome counts.
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

    /// Runs the steps of a block, each only if the previous one succeeded.
    pub(super) async fn block(&self, number: usize, block: &CommandBlock, attempt: Attempt<'_>) -> Outcome {
        let limit = Instant::now() + block.timeout;
        let trace = action::trace_headers(&attempt);
        let log = match block.output {
            OutputDestination::Store => None,
            OutputDestination::StoreAndLog => Some(OutputLog::new(attempt.event)),
        };
        let mut sinks = OutputSinks { kept: attempt.output, log };
        for (i, line) in block.steps.iter().enumerate() {
            let place = StepLocation { block: number, step: i + 1, line };
            let step = match step::prepare(block, line, &attempt, &self.environment.variables, &trace) {
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

/// The position of a step in the plan.
struct StepLocation<'a> {
    block: usize,
    step: usize,
    line: &'a CommandLine,
}

impl StepLocation<'_> {
    /// The outcome of an end other than success.
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
            StepEnd::Lost => {
                unknown(self.failure_message("ended in an unknown way: its guard exited without a report"))
            }
        }
    }

    /// An error message with the step as the config writes it; never contains a value of the payload.
    fn failure_message(&self, what: &str) -> String {
        let text = self.line.to_string();
        let (shown, rest) = match text.char_indices().nth(SHOWN_CHARS) {
            Some((cut, _)) => (&text[..cut], "…"),
            None => (text.as_str(), ""),
        };
        format!("step {} of block {} {what}: {shown}{rest}", self.step, self.block)
    }
}

/// The outcome of an exit code. A shell exits with 126 or 127 if it cannot start a program: a retry would not help.
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

/// The worse of two outcomes; the first if they are equal. A lost attempt is worse than a timeout: it is retried after
/// a crash even if an earlier block timed out.
fn worst_outcome(one: Outcome, other: Outcome) -> Outcome {
    let badness = |outcome: &Outcome| match outcome {
        Outcome::Delivered(_) => 0,
        Outcome::Failed { .. } | Outcome::Unresolved { .. } => 1,
        Outcome::Rejected { .. } | Outcome::Unhealthy { .. } => 2,
        Outcome::TimedOut { .. } => 3,
        Outcome::Unknown { .. } => 4,
    };
    if badness(&other) > badness(&one) { other } else { one }
}

/// The search path for programs if `PATH` is not set.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Checks the folders and programs of blocks. Starts nothing.
pub(super) fn check_live(blocks: &[CommandBlock], variable: &dyn Fn(&str) -> Option<String>) -> Vec<LiveCheck> {
    let mut all = Vec::new();
    for block in blocks {
        all.push(folder(&block.dir));
        all.extend(block.steps.iter().map(|step| command(step, block, variable)));
    }
    all
}

fn folder(dir: &WorkingDir) -> LiveCheck {
    let (path, words) = match dir {
        WorkingDir::Fixed(path) => (path.clone(), ""),
        WorkingDir::Named(template) => match template.0.first() {
            Some(FieldTemplatePart::Text(first)) => {
                (PathBuf::from(first), "exists; the rest of the path depends on the event")
            }
            _ => return LiveCheck::new("folder", dir.to_string(), Ok("depends on the event; not checked".into())),
        },
    };
    let found = if !path.exists() {
        failed_check("it does not exist", "create it, or correct `dir`")
    } else if !path.is_dir() {
        failed_check("it is not a folder", "correct `dir`")
    } else if access(&path, Access::READ_OK | Access::EXEC_OK).is_err() {
        failed_check("it cannot be opened", "give hookonce's user read and execute permission")
    } else {
        Ok(words.to_owned())
    };
    LiveCheck::new("folder", dir.to_string(), found)
}

fn command(step: &CommandLine, block: &CommandBlock, variable: &dyn Fn(&str) -> Option<String>) -> LiveCheck {
    let program = match step {
        CommandLine::Shell { shell, .. } => shell.first().cloned().unwrap_or_default(),
        CommandLine::Argv(words) => match words.first().map(|word| word.0.as_slice()) {
            Some([FieldTemplatePart::Text(program)]) => program.clone(),
            _ => return LiveCheck::new("command", step.to_string(), Ok("depends on the event; not checked".into())),
        },
    };
    let path = block.env.iter().rev().find_map(|entry| match entry {
        EnvEntry::Set(name, value) if name == "PATH" => Some(value.clone()),
        _ => None,
    });
    let path = path.or_else(|| variable("PATH")).unwrap_or_else(|| PATH.to_owned());
    let found = executable(&program, &block.dir, &path);
    LiveCheck::new("command", program, found)
}

/// Finds a program the way the system would.
fn executable(program: &str, dir: &WorkingDir, path: &str) -> Result<String, (String, String)> {
    let runs = |file: &Path| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        let file = match dir {
            WorkingDir::Fixed(dir) => dir.join(program),
            WorkingDir::Named(_) if !program.starts_with('/') => return Ok("depends on the event; not checked".into()),
            WorkingDir::Named(_) => PathBuf::from(program),
        };
        return match () {
            () if runs(&file) => Ok(String::new()),
            () if file.exists() => failed_check("it is not executable", format!("chmod +x {}", file.display())),
            () => failed_check(format!("{} does not exist", file.display()), "install it, or correct the step"),
        };
    }
    let found = path.split(':').map(|folder| Path::new(folder).join(program)).find(|file| runs(file));
    match found {
        Some(file) => Ok(file.display().to_string()),
        None => failed_check("it is not in PATH", format!("install it, or add its folder to PATH ({path})")),
    }
}
