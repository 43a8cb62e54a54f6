//! `hookonce guard`: stands between a node and one command, so that the command does not outlive the node or its
//! lease. Its standard input is the lifeline (see `guard_protocol.rs`); it is started by a node and by nobody else.
//!
//! ```text
//!             ┌─ stop ──────────────▶ TERM ─ 5 s or the deadline ─▶ KILL ─┐
//! started ────┼─ deadline passed ─────────────────────────────────▶ KILL ─┼─▶ the leader is gone ─▶ KILL what is left
//!             ├─ the node is gone ────────────────────────────────▶ KILL ─┤     of its group, report, end
//!             └─ the leader exits ────────────────────────────────────────┘
//! ```
//!
//! Signals go to the command's whole process group. What a step leaves behind in its group ends with it: a step that
//! wants to leave a daemon must hand it to something that keeps daemons. A process that makes a session of its own
//! (`setsid`) has left the group and is not followed.
//!
//! No tokio: three threads that each wait for one thing, and one that listens to them.

use super::guard_protocol::{GuardInstruction, GuardReport, GuardStartRequest, STOP_GRACE, TerminationCause};
use crate::lease::{BootInstant, LOOK, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

/// What the hidden subcommand `guard` does.
pub fn run() -> ExitCode {
    match guard() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hookonce guard: {error} (only hookonce itself starts a guard)");
            ExitCode::from(2)
        }
    }
}

/// Something the guard waits for.
enum GuardEvent {
    Word(GuardInstruction),
    NodeGone,
    LeaderGone,
}

fn guard() -> io::Result<()> {
    // A command gets its input and its output, and no descriptor that the node was started with: those may be open on
    // anything. They are closed when the command is started.
    close_fds::set_fds_cloexec(3, &[]);
    let node = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lifeline = BufReader::new(node.try_clone()?);
    let mut line = String::new();
    lifeline.read_line(&mut line)?;
    let order: GuardStartRequest = serde_json::from_str(&line)?;
    let mut body = vec![0; order.body];
    lifeline.read_exact(&mut body)?;

    if order.deadline.passed() {
        return send_report(&node, &GuardReport::Stopped(TerminationCause::Deadline));
    }
    // A guard may be slow to begin, and its node's successor quick: what is started now would run beside its retry.
    if is_disconnected(&node) {
        return Ok(());
    }
    let mut leader = match start(&order) {
        Ok(leader) => leader,
        Err(report) => return send_report(&node, &report),
    };
    let group = Pid::from_child(&leader);
    // From here on a node that does not listen is no error: it is gone, and `listen` will say so.
    let _ = send_report(&node, &GuardReport::Started(group.as_raw_pid()));
    write_stdin(&mut leader, body);
    let (tell, heard) = channel();
    read_instructions(lifeline, tell.clone());
    wait_for_exit(group, tell);

    let mut watch =
        CommandWatchdog { group, deadline: order.deadline, kill_at: order.deadline, stopped: None, killed: false };
    watch.run_until_exit(&heard);
    // The leader is not reaped yet, so its number cannot have become somebody else's.
    watch.signal(Signal::KILL);
    let status = leader.wait()?;
    let _ = send_report(&node, &watch.stopped.map_or_else(|| exit_report(status), GuardReport::Stopped));
    Ok(())
}

/// Has the node closed its end?
fn is_disconnected(node: &UnixStream) -> bool {
    let mut ends = [PollFd::new(node, PollFlags::RDHUP)];
    let looked = retry_on_intr(|| poll(&mut ends, Some(&Timespec::default())));
    looked.is_ok() && ends[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Starts the command as the leader of its own group, with the guard's output and a pipe for the body.
fn start(order: &GuardStartRequest) -> Result<Child, GuardReport> {
    let cannot = |why: String, code| GuardReport::CannotStart { why, code };
    let Some((program, arguments)) = order.argv.split_first() else {
        return Err(cannot("there is no program to start".into(), 127));
    };
    if !Path::new(&order.dir).is_dir() {
        return Err(cannot("its `dir` is not a folder".into(), 126));
    }
    Command::new(program)
        .args(arguments)
        .current_dir(&order.dir)
        .env_clear()
        .envs(&order.env)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| {
            let code = match error.kind() {
                ErrorKind::NotFound => 127,
                ErrorKind::OutOfMemory | ErrorKind::WouldBlock | ErrorKind::ExecutableFileBusy => 1,
                _ => 126,
            };
            cannot(error.to_string(), code)
        })
}

/// A command may leave its input unread: the thread then ends with the guard.
fn write_stdin(leader: &mut Child, body: Vec<u8>) {
    if let Some(mut input) = leader.stdin.take() {
        thread::spawn(move || {
            let _ = input.write_all(&body);
        });
    }
}

/// Tells what the node says. A line that is no word of ours, and the end of all lines, mean that nobody is left who
/// could stop the command.
fn read_instructions(lifeline: BufReader<UnixStream>, tell: Sender<GuardEvent>) {
    thread::spawn(move || {
        for line in lifeline.lines() {
            let Some(word) = line.ok().as_deref().and_then(GuardInstruction::parse) else { break };
            if tell.send(GuardEvent::Word(word)).is_err() {
                return;
            }
        }
        let _ = tell.send(GuardEvent::NodeGone);
    });
}

/// Tells when the leader is gone, and leaves it to be reaped.
fn wait_for_exit(leader: Pid, tell: Sender<GuardEvent>) {
    thread::spawn(move || {
        let gone = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = retry_on_intr(|| waitid(WaitId::Pid(leader), gone));
        let _ = tell.send(GuardEvent::LeaderGone);
    });
}

struct CommandWatchdog {
    group: Pid,
    /// The lease's.
    deadline: BootInstant,
    /// The deadline, or earlier: the end of the grace after `stop`.
    kill_at: BootInstant,
    stopped: Option<TerminationCause>,
    killed: bool,
}

impl CommandWatchdog {
    fn run_until_exit(&mut self, heard: &Receiver<GuardEvent>) {
        loop {
            let look = if self.killed { LOOK } else { self.kill_at.left().min(LOOK) };
            match heard.recv_timeout(look) {
                Ok(GuardEvent::Word(word)) => self.on_instruction(word),
                Ok(GuardEvent::NodeGone) => self.kill(TerminationCause::NodeDisconnected),
                Ok(GuardEvent::LeaderGone) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.killed && self.kill_at.passed() {
                self.kill(TerminationCause::Deadline);
            }
        }
    }

    fn on_instruction(&mut self, word: GuardInstruction) {
        match word {
            GuardInstruction::Stop if self.stopped.is_none() => {
                self.stopped = Some(TerminationCause::Requested);
                self.kill_at = self.deadline.min(boottime() + STOP_GRACE);
                self.signal(Signal::TERM);
            }
            GuardInstruction::Deadline(deadline) if self.stopped.is_none() => {
                (self.deadline, self.kill_at) = (deadline, deadline);
            }
            GuardInstruction::Stop | GuardInstruction::Deadline(_) => {}
        }
    }

    fn kill(&mut self, why: TerminationCause) {
        self.stopped.get_or_insert(why);
        self.killed = true;
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // It fails only when nobody is left.
        let _ = kill_process_group(self.group, signal);
    }
}

fn exit_report(status: ExitStatus) -> GuardReport {
    match (status.code(), status.signal()) {
        (Some(code), _) => GuardReport::Exit(code),
        (None, signal) => GuardReport::Signal(signal.unwrap_or_default()),
    }
}

fn send_report(mut node: &UnixStream, report: &GuardReport) -> io::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    node.write_all(line.as_bytes())
}
