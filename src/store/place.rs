//! The few places for those who run a statement of the user's. Who waits for one has written nothing, holds no
//! connection, and can still renew its lease.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place, later.
pub type Placing<'a> = Pin<Box<dyn Future<Output = Place> + Send + 'a>>;

/// Leave to run a statement, until it is dropped.
#[derive(Debug)]
pub struct Place {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// In a store that runs no statements, where nobody is in the way.
    pub(super) fn anywhere<'a>() -> Placing<'a> {
        Box::pin(std::future::ready(Self { _permit: None }))
    }
}

/// The places of one store, given in the order in which they were asked for.
#[derive(Debug)]
pub struct Places(Arc<Semaphore>);

impl Places {
    /// So many.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// The next that is free.
    pub fn next(&self) -> Placing<'static> {
        let places = self.0.clone();
        // Nobody closes it.
        Box::pin(async move { Place { _permit: places.acquire_owned().await.ok() } })
    }
}
