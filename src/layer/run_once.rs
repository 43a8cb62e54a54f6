//! `once.run(key, async { … })`: the engine without HTTP.

use super::Once;
use super::acquire::{KeyAcquisition, failed};
use super::leased_attempt::EndedEventWithReceipt;
use super::request_identity;
use crate::decide::claim::{IdentityKey, MatchedBy};
use crate::decide::event::{Outcome, Receipt};
use crate::decide::field::StoredFields;
use crate::decide::id::Digest;
use crate::decide::limits;
use crate::store::StoreError;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// The value of the work, from now or from before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunOutcome<T> {
    /// It was done now.
    Now(T),
    /// It was done before; this is the kept value.
    Before(T),
}

impl<T> RunOutcome<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        match self {
            Self::Now(value) | Self::Before(value) => value,
        }
    }

    /// Whether it was done before.
    pub fn is_before(&self) -> bool {
        matches!(self, Self::Before(_))
    }
}

/// The value of the work, or its kept bytes.
enum StoredRunOutcome<T> {
    /// The work's own value.
    Now(T),
    /// The kept bytes.
    Before(Bytes),
}

/// Why there is no value.
#[derive(Debug)]
#[non_exhaustive]
pub enum OnceError<E> {
    /// The work failed now; nothing is kept, and the next caller does it again.
    Work(E),
    /// Another caller is still running the work after [`Once::wait`]. Try again later.
    Running,
    /// It was done before, but its value is not kept: it was too large, could not be serialized, has expired, or has
    /// another type.
    NotKept,
    /// The store did not respond. The work was not started, or its value could not be kept.
    Store(StoreError),
}

impl<E: fmt::Display> fmt::Display for OnceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(error) => write!(f, "the work failed: {error}"),
            Self::Running => f.write_str("another caller is still running the work; try again later"),
            Self::NotKept => f.write_str("the work was done before, but its result is not kept"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for OnceError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Work(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Running | Self::NotKept => None,
        }
    }
}

impl Once {
    /// Runs this work once per key; later callers with the same key get the kept value. An `Err` is not kept: the next
    /// caller runs the work again. So does the next caller after a crash, once the [lease](Once::lease) of the crashed
    /// process has expired.
    ///
    /// The value is kept as JSON. If it cannot be serialized, only the first caller gets it; the work is not repeated.
    /// Dropping the future ends the work; spawn it to let it continue.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use hookonce::Once;
    /// use hookonce::RunOutcome;
    ///
    /// let once = Once::new(hookonce::store::open("memory:").await?).scope("invoices");
    /// let send = |n: u32| async move { Ok::<_, std::io::Error>(format!("sent {n}")) };
    ///
    /// assert_eq!(once.run("invoice 7", send(1)).await.unwrap(), RunOutcome::Now("sent 1".to_owned()));
    /// assert_eq!(once.run("invoice 7", send(2)).await.unwrap(), RunOutcome::Before("sent 1".to_owned()));
    /// # Ok::<_, hookonce::store::StoreOpenError>(()) }).unwrap();
    /// ```
    pub async fn run<T, E, F>(&self, key: impl AsRef<str>, work: F) -> Result<RunOutcome<T>, OnceError<E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        let work = async {
            let done = work.await?;
            let written = serde_json::to_vec(&done).ok().map(Bytes::from);
            Ok((done, written))
        };
        match self.run_kept(key.as_ref(), work).await? {
            StoredRunOutcome::Now(value) => Ok(RunOutcome::Now(value)),
            StoredRunOutcome::Before(written) => match serde_json::from_slice(&written) {
                Ok(value) => Ok(RunOutcome::Before(value)),
                Err(_) => Err(OnceError::NotKept),
            },
        }
    }

    /// Like [`Once::run`], for bytes, which are kept unchanged.
    pub async fn run_bytes<E, F>(&self, key: impl AsRef<str>, work: F) -> Result<RunOutcome<Bytes>, OnceError<E>>
    where
        F: Future<Output = Result<Bytes, E>>,
    {
        let work = async {
            let done = work.await?;
            Ok((done.clone(), Some(done)))
        };
        Ok(match self.run_kept(key.as_ref(), work).await? {
            StoredRunOutcome::Now(bytes) => RunOutcome::Now(bytes),
            StoredRunOutcome::Before(bytes) => RunOutcome::Before(bytes),
        })
    }

    /// The work returns a value, and its bytes if it can be serialized.
    async fn run_kept<T, E, F>(&self, key: &str, work: F) -> Result<StoredRunOutcome<T>, OnceError<E>>
    where
        F: Future<Output = Result<(T, Option<Bytes>), E>>,
    {
        let once = self.resolved();
        let now = once.engine.store.now();
        let same = MatchedBy::Fields("key".into());
        let keys = vec![IdentityKey::new(same, request_identity::named(&once.settings.scope, key))];
        let name = (key.len() <= limits::DELIVERY_ID_BYTES_MAX).then(|| key.into());
        let new = once.event(keys, name, StoredFields::default(), Digest::of(b""), now);
        let mut held = match once.engine.acquire(new, &once.rules, |_| false).await.map_err(OnceError::Store)? {
            KeyAcquisition::Ours(held) => held,
            KeyAcquisition::Over(ended) => return kept(&ended).map(StoredRunOutcome::Before),
            KeyAcquisition::Failed(_) | KeyAcquisition::Busy(_) | KeyAcquisition::Conflict(_) => {
                return Err(OnceError::Running);
            }
        };
        let (done, written) = match held.act(work).await {
            Some(Ok(done)) => done,
            Some(Err(error)) => {
                // If this cannot be written, the lease expires.
                held.settle(failed("the work failed", None)).await.ok();
                return Err(OnceError::Work(error));
            }
            None => return Err(OnceError::Store(StoreError::Down("the lease could not be kept".into()))),
        };
        let body = written.filter(|written| written.len() <= once.settings.receipt_max);
        let (cut, body) = (body.is_none(), body.unwrap_or_default().to_vec());
        let receipt = Receipt { status: 200, headers: Vec::new(), body, truncated: cut };
        match held.settle(Outcome::Delivered(Some(receipt))).await {
            Ok(Some(_)) => Ok(StoredRunOutcome::Now(done)),
            Ok(None) => Err(OnceError::Running),
            Err(error) => Err(OnceError::Store(error)),
        }
    }
}

fn kept<E>(ended: &EndedEventWithReceipt) -> Result<Bytes, OnceError<E>> {
    match &ended.receipt {
        Some(receipt) if !receipt.truncated => Ok(Bytes::copy_from_slice(&receipt.body)),
        _ => Err(OnceError::NotKept),
    }
}

/// A duration in days.
pub const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}

/// A duration in hours.
pub const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 60 * 60)
}

/// A duration in minutes.
pub const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// A duration in seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
