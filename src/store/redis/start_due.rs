//! Starting due events: one script call reserves the first that are not reserved, another starts them. The reservation
//! only avoids conflicts between nodes; that each event is started once is guaranteed by its version, as always.

use super::RedisInner;
use super::codec;
use super::key_names;
use super::key_names::RedisKeyKind;
use super::read::{bytes, list};
use super::script_args::ScriptArgs;
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use crate::store::copy::CopyLockCheck;
use crate::store::optimistic::txn::new_version;
use crate::store::optimistic::{ConditionalWrite, ExpectedVersion, RecordId, RecordWrite};
use crate::store::row::DecodedRow;
use crate::store::{StartDueRequest, StartDueResult, StoreError};
use ::redis::Pipeline;

/// Runs even if memory is full: it adds nothing.
const HOLD: &str = concat!("#!lua flags=allow-oom\n", include_str!("start.lua"));
/// How long other nodes skip what a node is about to start. Starting takes a moment; if the node dies, this is the
/// delay.
const HOLD_TIME: Duration = Duration::from_secs(1);

impl RedisInner {
    /// Starts due events that no other node is starting.
    pub(super) async fn start_due(&self, starts: &StartDueRequest) -> Result<StartDueResult, StoreError> {
        if !self.may_write() {
            return Err(StoreError::Down("the store was opened read-only".into()));
        }
        let queue = key_names::queue_of(starts.part, &starts.source, &starts.route.name);
        let (name, now) = (self.names.of(RedisKeyKind::Due, &queue), self.clock.now());
        let mut questions = Pipeline::new();
        questions.cmd("EVAL").arg(HOLD).arg(1).arg(&name).arg(now.0).arg((now + HOLD_TIME).0);
        questions.arg(starts.limit).arg(self.names.of(RedisKeyKind::Event, &[]));
        let (answers, marks) = self.ask(questions).await?;
        let mut words = ScriptArgs::new(&self.names).heeding(CopyLockCheck::Mark);
        let (mut was, mut started, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for pair in answers.first().map_or(&[][..], list).chunks_exact(2) {
            let Some(id) = bytes(&pair[0]).and_then(|id| id.try_into().ok()).map(EventId) else { continue };
            // Missing and unreadable events are left to the query for due events.
            let (DecodedRow::Whole(row), version) = codec::read_row(id, bytes(&pair[1]).unwrap_or_default()) else {
                continue;
            };
            let Some(now) = starts.row(&row, marks.now) else {
                others.push((row.event, ExpectedVersion::Version(version)));
                continue;
            };
            was.push(row.event.clone());
            started.push(now.event.clone());
            let (row, now) = (Some(Box::new(row)), Box::new(now));
            let put = RecordWrite::Put { was: row, row: now, version: new_version(), payload: None };
            let seen = vec![(RecordId::Event(id), ExpectedVersion::Version(version))];
            words.swap(ConditionalWrite { seen, ops: vec![put] }, &self.dictionaries);
        }
        for (event, seen) in &others {
            words.release_hold(event, *seen);
        }
        if started.is_empty() && others.is_empty() {
            return Ok(StartDueResult::default());
        }
        match self.send(words).await {
            Ok(written) => {
                let events = started.into_iter().zip(written).filter_map(|(event, written)| written.then_some(event));
                Ok(StartDueResult { events: events.collect(), ..StartDueResult::default() })
            }
            Err(StoreError::Unsure(_)) => Ok(StartDueResult { unsure: was, ..StartDueResult::default() }),
            Err(error) => Err(error),
        }
    }
}
