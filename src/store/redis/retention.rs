//! How long each source's events are kept, and which sources there are.

use super::key_names;
use super::key_names::RedisKeyKind;
use super::read::{bytes, list, number, pairs};
use super::script_args::ScriptArgs;
use super::{RedisInner, codec};
use crate::decide::limits;
use crate::store::StoreResult;
use crate::store::{SourceCount, SourceRetention};
use ::redis::Pipeline;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl RedisInner {
    pub(super) async fn retention(&self) -> StoreResult<Vec<SourceRetention>> {
        let mut questions = Pipeline::new();
        questions.cmd("HGETALL").arg(self.names.retention());
        let (answers, _) = self.ask(questions).await?;
        let pairs = answers.first().map(pairs).unwrap_or_default().into_iter();
        let mut rows: Vec<_> = pairs.filter_map(|(source, row)| codec::read_retention(source, row)).collect();
        rows.sort_by(|one, other| one.source.cmp(&other.source));
        Ok(rows)
    }

    pub(super) async fn retain(&self, rows: &[SourceRetention]) -> StoreResult<()> {
        let mut words = ScriptArgs::new(&self.names);
        words.retention(rows);
        self.send(words).await.map(drop)
    }

    /// As the lists know it: what waits for its time, and what is over and may once be forgotten, or has its body. What
    /// is on none of them, such as the last event of a subject without its body, is not counted: there may be more.
    pub(super) async fn other_sources(&self, known: &BTreeSet<Arc<str>>) -> StoreResult<Vec<SourceCount>> {
        let mut questions = Pipeline::new();
        questions.cmd("SMEMBERS").arg(self.names.sources());
        questions.cmd("SMEMBERS").arg(self.names.routes());
        let (answers, _) = self.ask(questions).await?;
        let [sources, queues] = [0, 1].map(|place| answers.get(place).map_or(&[][..], list).iter().filter_map(bytes));
        let mut waiting = BTreeMap::<String, Vec<Vec<u8>>>::new();
        for name in sources.filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| !known.contains(*name)) {
            waiting.entry(name.to_owned()).or_default();
        }
        for queue in queues {
            let Some((_, source, _)) = key_names::parse_queue(queue).filter(|(_, source, _)| !known.contains(*source))
            else {
                continue;
            };
            waiting.entry(source.to_owned()).or_default().push(self.names.of(RedisKeyKind::Due, queue));
        }
        let mut questions = Pipeline::new();
        for (name, queues) in waiting.iter().take(limits::OTHER_SOURCES_MAX) {
            let over = [RedisKeyKind::Keep, RedisKeyKind::Bodies].map(|kind| self.names.of(kind, name.as_bytes()));
            for list in over.iter().chain(queues) {
                questions.cmd("ZCARD").arg(list);
            }
        }
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let (answers, _) = self.ask(questions).await?;
        let mut answers = answers.iter().map(|count| number(count).map_or(0, i64::unsigned_abs));
        let mut next = || answers.next().unwrap_or(0);
        let (mut counts, mut gone) = (Vec::new(), Vec::new());
        for (name, queues) in waiting.iter().take(limits::OTHER_SOURCES_MAX) {
            let over = next().max(next());
            let events = over + queues.iter().map(|_| next()).sum::<u64>();
            if events > 0 {
                counts.push(SourceCount { source: name.as_str().into(), events, capped: true });
            }
            if over == 0 {
                gone.push(name.clone());
            }
        }
        self.drop_names(gone.iter(), |words, name| words.drop_source(name)).await?;
        Ok(counts)
    }
}
