//! Permits for running the user's SQL statements. An attempt that waits for one has written nothing, holds no
//! connection, and can still renew its lease.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The future of a [`SqlPermit`].
pub type SqlPermitFuture<'a> = Pin<Box<dyn Future<Output = SqlPermit> + Send + 'a>>;

/// A permit to run one SQL statement; released on drop.
#[derive(Debug)]
pub struct SqlPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl SqlPermit {
    /// A permit in a store that runs no statements, so that there is nothing to limit.
    pub(super) fn anywhere<'a>() -> SqlPermitFuture<'a> {
        Box::pin(std::future::ready(Self { _permit: None }))
    }
}

/// The permits of one store, granted in the order of the requests.
#[derive(Debug)]
pub struct SqlPermits(Arc<Semaphore>);

impl SqlPermits {
    /// This number of permits.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for the next free permit.
    pub fn next(&self) -> SqlPermitFuture<'static> {
        let places = self.0.clone();
        // The semaphore is never closed.
        Box::pin(async move { SqlPermit { _permit: places.acquire_owned().await.ok() } })
    }
}
