//! The node's side of a guard: starts one step through its guard and watches it until it ends.

use super::guard_protocol::{GuardInstruction, GuardReport, GuardStartRequest, STOP_GRACE, TerminationCause};
use super::output::AttemptOutput;
use super::output_log::OutputLog;
use super::step::PreparedStep;
use crate::decide::time::Duration;
use crate::lease::{Lease, LeaseEnd, LeaseSignal, LeaseTerm};
use futures_util::future::{Either, select};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long output is read after the command's end: a process that left its group may keep the pipe open.
const AFTER_END: Duration = Duration::from_secs(1);
/// How late a guard's report may be before the node gives it up.
const GUARD_LATE: Duration = Duration::from_secs(2);

/// The program started as a guard, with the argument `guard`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardProgram(pub PathBuf);

impl Default for GuardProgram {
    /// This program itself, even if its file was replaced.
    fn default() -> Self {
        Self("/proc/self/exe".into())
    }
}

/// How a step ended.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum StepEnd {
    Exit(i32),
    Signal(i32),
    /// The command was not started. The code is a shell's: 126, 127, or 1 if a retry may work.
    NotStarted {
        why: String,
        code: i32,
    },
    TimedOut,
    LeaseEnded(LeaseEnd),
    /// The guard exited without reporting how the command ended.
    Lost,
}

/// Where a command's output goes.
pub(super) struct OutputSinks<'a> {
    pub(super) kept: &'a AttemptOutput,
    pub(super) log: Option<OutputLog>,
}

/// Runs a step with this body as its input, until `limit` or the end of the lease.
pub(super) async fn run(
    program: &GuardProgram,
    step: PreparedStep,
    body: &[u8],
    limit: Instant,
    lease: &Lease,
    sinks: &mut OutputSinks<'_>,
) -> StepEnd {
    let mut guard = match GuardClient::start(program) {
        Ok(guard) => guard,
        Err(error) => return StepEnd::NotStarted { why: format!("its guard could not be started: {error}"), code: 1 },
    };
    let told = lease.term();
    let PreparedStep { argv, dir, env } = step;
    let order = GuardStartRequest { argv, dir, env, body: body.len(), deadline: told.deadline };
    // The guard starts the command only after it has the whole body, so an earlier failure has not acted.
    let sent = tokio::select! {
        biased;
        over = lease.ended() => return StepEnd::LeaseEnded(over),
        () = sleep_until(limit) => return StepEnd::TimedOut,
        sent = guard.send(&order, body) => sent,
    };
    if let Err(error) = sent {
        return StepEnd::NotStarted { why: format!("its guard exited: {error}"), code: 1 };
    }

    let copying = Box::pin(copy_output(guard.output.take(), sinks));
    let end = match select(pin!(guard.watch(limit, lease, told)), copying).await {
        Either::Left((end, copying)) => {
            let _ = timeout(AFTER_END, copying).await;
            end
        }
        Either::Right(((), watching)) => watching.await,
    };
    if let Some(log) = &mut sinks.log {
        log.end_step();
    }
    // Only to reap the process: its report has been read.
    let _ = timeout(AFTER_END, guard.child.wait()).await;
    end
}

async fn copy_output(from: Option<Receiver>, sinks: &mut OutputSinks<'_>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        sinks.kept.push(&buffer[..n]);
        if let Some(log) = &mut sinks.log {
            log.push(&buffer[..n]);
        }
    }
}

struct GuardClient {
    child: Child,
    /// Standard output and standard error of the command: one pipe, to keep the order.
    output: Option<Receiver>,
    reports: Lines<BufReader<OwnedReadHalf>>,
    instructions: OwnedWriteHalf,
    /// The command's process group, once it is started.
    group: Option<Pid>,
}

/// A command that was asked to stop.
#[derive(Clone, Copy)]
struct StopRequest {
    since: Instant,
    why: StopReason,
}

#[derive(Clone, Copy)]
enum StopReason {
    OutOfTime,
    Cancelled,
}

impl GuardClient {
    /// Starts the guard in its own process group, so that a terminal's signals to the node do not reach it. Dropping it
    /// does not kill it: the socket closes, and the guard kills its command before it exits.
    fn start(program: &GuardProgram) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (reports, words) = UnixStream::from_std(ours)?.into_split();
        let (written, writes) = io::pipe()?;
        let written = Some(Receiver::from_owned_fd(written.into())?);
        let child = Command::new(&program.0)
            .arg0("hookonce")
            .arg("guard")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(writes.try_clone()?)
            .stderr(writes)
            .process_group(0)
            .spawn()?;
        Ok(Self { child, output: written, reports: BufReader::new(reports).lines(), instructions: words, group: None })
    }

    async fn send(&mut self, order: &GuardStartRequest, body: &[u8]) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        self.instructions.write_all(&line).await?;
        self.instructions.write_all(body).await
    }

    /// Sends an instruction; a guard that does not receive it is noticed by its missing report.
    async fn send_instruction(&mut self, word: GuardInstruction) {
        let _ = self.instructions.write_all(word.to_string().as_bytes()).await;
    }

    async fn watch(&mut self, limit: Instant, lease: &Lease, mut told: LeaseTerm) -> StepEnd {
        let mut stopping = None;
        loop {
            tokio::select! {
                line = self.reports.next_line() => {
                    let report = line.ok().flatten().and_then(|line| serde_json::from_str(&line).ok());
                    if let Some(end) = self.on_report(report, stopping) {
                        return end;
                    }
                }
                term = lease.changed(told) => {
                    told = term;
                    match term.call {
                        LeaseSignal::GoOn => self.send_instruction(GuardInstruction::Deadline(term.deadline)).await,
                        LeaseSignal::Stop | LeaseSignal::CallOff => {
                            stopping.get_or_insert(StopRequest { since: Instant::now(), why: StopReason::Cancelled });
                            self.send_instruction(GuardInstruction::Stop).await;
                        }
                    }
                }
                () = sleep_until(limit), if stopping.is_none() => {
                    stopping = Some(StopRequest { since: Instant::now(), why: StopReason::OutOfTime });
                    self.send_instruction(GuardInstruction::Stop).await;
                }
                () = report_deadline(lease, stopping) => {
                    self.kill();
                    return stopping.map_or(StepEnd::LeaseEnded(LeaseEnd::RanOut), StopRequest::end);
                }
            }
        }
    }

    fn on_report(&mut self, report: Option<GuardReport>, stopping: Option<StopRequest>) -> Option<StepEnd> {
        Some(match report {
            Some(GuardReport::Started(leader)) => {
                self.group = Pid::from_raw(leader);
                return None;
            }
            Some(GuardReport::Exit(code)) => StepEnd::Exit(code),
            Some(GuardReport::Signal(signal)) => StepEnd::Signal(signal),
            Some(GuardReport::CannotStart { why, code }) => StepEnd::NotStarted { why, code },
            Some(GuardReport::Stopped(TerminationCause::Requested)) => stopping.map_or(StepEnd::Lost, StopRequest::end),
            Some(GuardReport::Stopped(TerminationCause::Deadline)) => StepEnd::LeaseEnded(LeaseEnd::RanOut),
            Some(GuardReport::Stopped(TerminationCause::NodeDisconnected)) | None => {
                self.kill();
                StepEnd::Lost
            }
        })
    }

    /// Kills the command in place of its guard.
    fn kill(&mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.start_kill();
    }
}

impl StopRequest {
    fn end(self) -> StepEnd {
        match self.why {
            StopReason::OutOfTime => StepEnd::TimedOut,
            StopReason::Cancelled => StepEnd::LeaseEnded(LeaseEnd::Cancelled),
        }
    }
}

/// Waits until a working guard would have reported.
async fn report_deadline(lease: &Lease, stopping: Option<StopRequest>) {
    if let Some(StopRequest { since, .. }) = stopping {
        sleep_until(since + STOP_GRACE).await;
    } else {
        lease.ended().await;
    }
    sleep(GUARD_LATE).await;
}
