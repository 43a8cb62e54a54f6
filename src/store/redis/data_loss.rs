//! Detection of lost data in Redis, by the store's marks: its epoch, created with it, the count of its writes, and the
//! last write of each writer. Only a writer advances its own mark: a write that the server lost is not hidden by what
//! others write.

use super::client::RedisClient;
use super::key_names::RedisKeyNames;
use super::script_args::ScriptArgs;
use super::url::RedisUrl;
use super::{RedisAccess, RedisInner, RedisStore, odd_answer, read};
use crate::decide::data_loss::{
    LastKnownStore, LossKind, ObservedStore, StoreCounter, StoreLoss, StoreMark, WriterMark,
};
use crate::decide::error_message::ErrorMessage;
use crate::store::{StoreError, StoreOpenError};
use ::redis::{Pipeline, Value};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many writers a store remembers: those that wrote last. A node is a new one at each start.
pub(super) const WRITERS_MAX: usize = 1_000;

/// The identity of one opened store that writes.
#[derive(Debug)]
pub(super) struct RedisWriterId {
    /// Random.
    pub(super) name: [u8; 16],
    /// The highest count of a write that was reported to us; with `wait` in the URL, of one that is confirmed.
    wrote: AtomicU64,
}

impl RedisWriterId {
    pub(super) fn new() -> Self {
        Self { name: by_chance(), wrote: AtomicU64::new(0) }
    }

    pub(super) fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::SeqCst)
    }

    pub(super) fn has_written(&self, count: u64) {
        self.wrote.fetch_max(count, Ordering::SeqCst);
    }
}

fn by_chance() -> [u8; 16] {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// The store's epoch and count. A node creates the store if there is none; it is never created where a part of one is
/// left.
pub(super) async fn begin(
    link: &RedisClient,
    names: &RedisKeyNames,
    access: RedisAccess,
) -> Result<(Vec<u8>, u64), StoreOpenError> {
    let yet = |error: StoreError| StoreOpenError::Temporary(ErrorMessage::of(error));
    let address = &link.address;
    let mut questions = Pipeline::new();
    questions.cmd("MGET").arg(&[names.epoch(), names.count()]);
    questions.cmd("EXISTS").arg(names.all());
    let answers = link.ask(&questions).await.map_err(yet)?;
    let [marks, events] = &answers[..] else {
        return Err(StoreOpenError::temporary(format!("{address} sends an unexpected reply")));
    };
    let [epoch, count] = read::list(marks) else {
        return Err(StoreOpenError::temporary(format!("{address} sends an unexpected reply")));
    };
    let number = |value: &Value| read::number(value).and_then(|number| u64::try_from(number).ok());
    if let Some(epoch) = read::bytes(epoch) {
        return Ok((epoch.to_vec(), number(count).unwrap_or(0)));
    }
    if access == RedisAccess::Read {
        return Err(StoreOpenError::permanent(format!(
            "{address} holds no store under the prefix `{}`; `hookonce serve` creates it, or check the URL",
            address.prefix
        )));
    }
    if number(count).is_some() || read::number(events) == Some(1) {
        return Err(StoreOpenError::permanent(format!(
            "{address} holds a part of a store under the prefix `{}`, but not its epoch: it was damaged. Restore a \
             backup, or use another `prefix` to start a new one",
            address.prefix
        )));
    }
    let mut questions = Pipeline::new();
    questions.cmd("SET").arg(names.epoch()).arg(hex::encode(by_chance())).arg("NX");
    questions.cmd("GET").arg(names.epoch());
    let answers = link.ask(&questions).await.map_err(yet)?;
    let epoch = answers
        .get(1)
        .and_then(read::bytes)
        .ok_or_else(|| StoreOpenError::temporary(format!("{address} did not keep what was written")))?;
    Ok((epoch.to_vec(), 0))
}

fn mark(epoch: &[u8], count: u64) -> StoreMark {
    StoreMark { epoch: Some(String::from_utf8_lossy(epoch).into_owned()), counter: StoreCounter::Writes(count) }
}

impl RedisInner {
    /// What this process knows of the store.
    pub(super) fn known(&self) -> LastKnownStore {
        let mark = mark(&self.epoch, self.count.load(Ordering::SeqCst));
        let own = WriterMark { name: self.writer.name, wrote: self.writer.wrote() };
        let writers = if own.wrote > 0 { vec![own] } else { Vec::new() };
        LastKnownStore { mark, writers, unmarked: Vec::new() }
    }

    /// How much of this the store holds.
    pub(super) async fn found(&self, known: Option<&LastKnownStore>) -> Result<ObservedStore, StoreError> {
        let writers = known.map_or(&[][..], |known| &known.writers);
        let mut questions = Pipeline::new();
        questions.cmd("MGET").arg(&[self.names.epoch(), self.names.count()]);
        questions.cmd("ZCARD").arg(self.names.writers());
        for writer in writers {
            questions.cmd("ZSCORE").arg(self.names.writers()).arg(&writer.name);
        }
        let (answers, _) = self.ask(questions).await?;
        let [marks, many, scores @ ..] = &answers[..] else { return Err(odd_answer()) };
        let [epoch, count] = read::list(marks) else { return Err(odd_answer()) };
        let number = |value: &Value| read::number(value).and_then(|number| u64::try_from(number).ok());
        Ok(ObservedStore {
            mark: read::bytes(epoch).map(|epoch| mark(epoch, number(count).unwrap_or(0))),
            writers: scores.iter().map(number).collect(),
            drops_writers: number(many).is_some_and(|many| many >= WRITERS_MAX as u64),
            marks_since: 0,
            missing: 0,
        })
    }

    /// Stops: the store has lost something while this process runs.
    pub(super) fn lost(&self, epoch: &[u8], count: u64, floor: u64) -> StoreError {
        let kind = match epoch {
            [] => LossKind::Gone,
            epoch if epoch != self.epoch => LossKind::OtherStore,
            _ if count < floor => LossKind::Behind,
            _ => LossKind::Overtaken,
        };
        let found = (kind != LossKind::Gone).then(|| mark(epoch, count));
        let loss = StoreLoss { kind, known: self.known().mark, found };
        self.stopped_by(StoreError::broken(format!("{}: {loss}", self.link.address)))
    }
}

impl RedisInner {
    /// Checks how many replicas have confirmed a write. If too few, it is written, but may be lost with the primary.
    /// That is not a loss to stop for, so it changes nothing that later replies are compared with.
    pub(super) fn has_confirmed(&self, replicas: Option<i64>) -> Result<(), StoreError> {
        let (Some(wanted), Some(replicas)) = (self.link.address.wait, replicas) else { return Ok(()) };
        if replicas < i64::from(wanted) {
            return Err(StoreError::unsure(format!(
                "{}: only {replicas} of {wanted} replicas confirmed a write in time (`wait={wanted}` in the URL)",
                self.link.address
            )));
        }
        Ok(())
    }

    /// What was read may have been written by another node, or by an earlier try of ours, without any replica having it
    /// yet. Before it is returned, replicas confirm a later write.
    pub(super) async fn confirm(&self, count: u64) -> Result<(), StoreError> {
        let is_due = self.link.address.wait.is_some() && count > self.count.load(Ordering::SeqCst);
        if !is_due || !self.may_write() {
            return Ok(());
        }
        let mut words = ScriptArgs::new(&self.names);
        words.probe();
        match self.send(words).await {
            Ok(_) => Ok(()),
            Err(StoreError::Unsure(why)) => Err(StoreError::Down(why)), // a write that changed nothing is harmless
            Err(error) => Err(error),
        }
    }
}

impl RedisStore {
    /// The server and the name of this store, independent of the user: the server's address and database, and the
    /// prefix.
    pub fn identity(url: &str) -> Result<(String, String), StoreOpenError> {
        let address = RedisUrl::parse(url)?;
        Ok((address.place(), address.prefix))
    }

    /// Does the server at this URL respond, and hold no store?
    pub async fn is_empty(url: &str) -> Result<bool, StoreOpenError> {
        let address = RedisUrl::parse(url)?;
        let names = RedisKeyNames::new(&address.prefix);
        let link = RedisClient::new(address, names.clone(), RedisAccess::Read);
        link.reach().await?;
        let mut questions = Pipeline::new();
        questions.cmd("EXISTS").arg(&[names.epoch(), names.count(), names.all()]);
        let answers = link.ask(&questions).await.map_err(|error| StoreOpenError::Temporary(ErrorMessage::of(error)))?;
        Ok(answers.first().and_then(read::number) == Some(0))
    }
}
