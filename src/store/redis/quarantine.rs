//! Messages that can never become an event: a list of their names, the newest last, and a hash of what they were.

use super::RedisInner;
use super::codec;
use super::read;
use super::script_args::ScriptArgs;
use crate::store::StoreError;
use crate::store::quarantine::QuarantinedMessage;
use ::redis::Pipeline;

impl RedisInner {
    /// Lays one there, and lets the oldest make way.
    pub(super) async fn lay(&self, one: &QuarantinedMessage) -> Result<(), StoreError> {
        let mut words = ScriptArgs::new(&self.names);
        words.quarantine(one);
        self.send(words).await.map(drop)
    }

    /// The newest of them, the newest first.
    pub(super) async fn laid(&self, limit: usize) -> Result<Vec<QuarantinedMessage>, StoreError> {
        let first = isize::try_from(limit).map_or(isize::MIN, |limit| -limit);
        if first == 0 {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        questions.cmd("LRANGE").arg(self.names.quarantine()).arg(first).arg(-1);
        let (answers, _) = self.ask(questions).await?;
        let names: Vec<_> = answers.first().map_or(&[][..], read::list).iter().rev().filter_map(read::bytes).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        questions.cmd("HMGET").arg(self.names.quarantined()).arg(names);
        let (answers, _) = self.ask(questions).await?;
        let found = answers.first().map_or(&[][..], read::list).iter().filter_map(read::bytes);
        Ok(found.filter_map(codec::read_quarantined).collect())
    }
}
