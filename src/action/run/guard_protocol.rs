//! The words between a node and its guard, over one socket: the guard's standard input.
//!
//! ```text
//! node ─▶ guard   {"argv":[…],"dir":"…","env":{…},"body":3,"deadline":81000000000}⏎ then the body's 3 bytes
//!                 deadline 91000000000⏎      the lease was renewed: nanoseconds of the clock that runs through suspend
//!                 stop⏎
//! guard ─▶ node   {"started":4711}⏎
//!                 {"exit":0}⏎  or  {"signal":9}⏎  or  {"stopped":"deadline"}⏎
//!                 {"cannot_start":{"why":"…","code":127}}⏎      instead of both
//! ```
//!
//! That the socket closes is a word, too: each knows by it that the other is gone.

use crate::decide::time::Duration;
use crate::lease::BootInstant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How long a command has between the signals TERM and KILL, unless its deadline comes first.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(5);

/// What to start. The first line to the guard; the body follows it.
#[derive(Serialize, Deserialize)]
pub(super) struct GuardStartRequest {
    pub(super) argv: Vec<String>,
    pub(super) dir: String,
    pub(super) env: BTreeMap<String, String>,
    /// How many bytes.
    pub(super) body: usize,
    #[serde(with = "nanoseconds")]
    pub(super) deadline: BootInstant,
}

/// What the guard hears after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GuardInstruction {
    Deadline(BootInstant),
    Stop,
}

/// What the guard says.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum GuardReport {
    /// The command's process, which leads its group.
    Started(i32),
    Exit(i32),
    /// Ended by a signal that was not ours.
    Signal(i32),
    Stopped(TerminationCause),
    /// The code a shell would have ended with: 126, 127, or 1 if it may work later.
    CannotStart {
        why: String,
        code: i32,
    },
}

/// Why the guard ended a command. Its words stay as they are: a guard may be newer than its node.
#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum TerminationCause {
    #[serde(rename = "asked")]
    Requested,
    Deadline,
    /// The connection to the node has ended.
    #[serde(rename = "deaf")]
    NodeDisconnected,
}

impl GuardInstruction {
    /// The word of this line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.trim_end().split_once(' ') {
            None if line.trim_end() == "stop" => Some(Self::Stop),
            Some(("deadline", at)) => at.parse().ok().map(|at| Self::Deadline(BootInstant(Duration::from_nanos(at)))),
            _ => None,
        }
    }
}

impl fmt::Display for GuardInstruction {
    /// Its line, with the line's end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(at) => writeln!(f, "deadline {}", nanoseconds::of(*at)),
            Self::Stop => writeln!(f, "stop"),
        }
    }
}

mod nanoseconds {
    use super::{BootInstant, Duration};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn of(at: BootInstant) -> u64 {
        u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn serialize<S: Serializer>(at: &BootInstant, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(of(*at))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BootInstant, D::Error> {
        u64::deserialize(from).map(|at| BootInstant(Duration::from_nanos(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_understood_as_it_was_meant() {
        for word in
            [GuardInstruction::Stop, GuardInstruction::Deadline(BootInstant(Duration::from_nanos(81_000_000_001)))]
        {
            assert_eq!(GuardInstruction::parse(&word.to_string()), Some(word));
        }
        for noise in ["", "stop now", "deadline", "deadline x", "deadline -1", "STOP"] {
            assert_eq!(GuardInstruction::parse(noise), None, "{noise}");
        }
    }

    #[test]
    fn reports_are_lines_of_json() {
        let cannot = GuardReport::CannotStart { why: "no".into(), code: 127 };
        for (report, line) in [
            (GuardReport::Started(4711), r#"{"started":4711}"#),
            (GuardReport::Exit(0), r#"{"exit":0}"#),
            (GuardReport::Stopped(TerminationCause::Deadline), r#"{"stopped":"deadline"}"#),
            (cannot, r#"{"cannot_start":{"why":"no","code":127}}"#),
        ] {
            assert_eq!(serde_json::to_string(&report).unwrap(), line);
            assert_eq!(serde_json::from_str::<GuardReport>(line).unwrap(), report);
        }
    }
}
