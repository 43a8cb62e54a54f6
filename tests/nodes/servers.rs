//! The stores that nodes can share, each a real server of the test's own.

use crate::postgres;
use crate::redis;

/// A server that nodes can share.
pub(crate) enum StoreServer {
    Postgres(postgres::Server),
    Redis(redis::Server),
    /// It is in somebody else's hands.
    None,
}

impl StoreServer {
    pub(crate) async fn postgres() -> Self {
        Self::Postgres(postgres::Server::start().await)
    }

    pub(crate) async fn redis() -> Self {
        Self::Redis(redis::Server::start())
    }

    /// The address of an empty store on it.
    pub(crate) async fn fresh(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(&server.database().await),
            Self::Redis(server) => server.url("fleet"),
            Self::None => unreachable!("it is in somebody else's hands"),
        }
    }

    /// Ends it as a crash does, and starts it again.
    pub(crate) async fn crash(&mut self) {
        match self {
            Self::Postgres(server) => {
                server.crash();
                assert!(server.start_again().await, "PostgreSQL did not come back");
            }
            Self::Redis(server) => {
                server.kill();
                server.run();
            }
            Self::None => unreachable!("it is in somebody else's hands"),
        }
    }
}
