//! The stores that nodes can share, each a real server that the test starts.

use crate::cutter::Cutter;
use crate::postgres;
use crate::redis;

/// A server that nodes can share.
pub(crate) enum StoreServer {
    Postgres(postgres::Server),
    Redis(redis::Server),
    /// PostgreSQL, behind a proxy that cuts connections.
    Cut(postgres::Server, Cutter),
    /// Taken: the test has moved the server elsewhere.
    None,
}

impl StoreServer {
    pub(crate) async fn postgres() -> Self {
        Self::Postgres(postgres::Server::start().await)
    }

    #[expect(clippy::unused_async, reason = "the same signature as for PostgreSQL")]
    pub(crate) async fn redis() -> Self {
        Self::Redis(redis::Server::start())
    }

    /// The address of an empty store on it.
    pub(crate) async fn fresh(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(&server.database().await),
            Self::Redis(server) => server.url("fleet"),
            Self::Cut(server, cutter) => {
                format!("postgres://postgres@127.0.0.1:{}/{}", cutter.port, server.database().await)
            }
            Self::None => unreachable!("the server was taken"),
        }
    }

    /// Kills it, as a crash would, and starts it again.
    pub(crate) async fn crash(&mut self) {
        self.end();
        self.start_again().await;
    }

    /// Kills it, as a crash would.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Postgres(server) | Self::Cut(server, _) => server.crash(),
            Self::Redis(server) => server.kill(),
            Self::None => unreachable!("the server was taken"),
        }
    }

    /// Starts it on its old data.
    pub(crate) async fn start_again(&mut self) {
        match self {
            Self::Postgres(server) | Self::Cut(server, _) => {
                assert!(server.start_again().await, "PostgreSQL did not come back");
            }
            Self::Redis(server) => server.run(),
            Self::None => unreachable!("the server was taken"),
        }
    }
}
