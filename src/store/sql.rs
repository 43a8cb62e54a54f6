//! The few places for those who run a statement of the user's. Who waits for one has written nothing, holds no
//! connection, and can still renew its lease.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place, later.
pub type SqlPermitFuture<'a> = Pin<Box<dyn Future<Output = SqlPermit> + Send + 'a>>;

/// Leave to run a statement, until it is dropped.
#[derive(Debug)]
pub struct SqlPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl SqlPermit {
    /// In a store that runs no statements, where nobody is in the way.
    pub(super) fn anywhere<'a>() -> SqlPermitFuture<'a> {
        Box::pin(std::future::ready(Self { _permit: None }))
    }
}

/// The places of one store, given in the order in which they were asked for.
#[derive(Debug)]
pub struct SqlPermits(Arc<Semaphore>);

impl SqlPermits {
    /// So many.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// The next that is free.
    pub fn next(&self) -> SqlPermitFuture<'static> {
        let places = self.0.clone();
        // Nobody closes it.
        Box::pin(async move { SqlPermit { _permit: places.acquire_owned().await.ok() } })
    }
}
