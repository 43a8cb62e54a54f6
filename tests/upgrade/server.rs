//! A store of each kind for one test: a file, or a real server.

use crate::{postgres, redis};
use std::path::Path;

/// The store of a test.
pub(crate) enum StoreServer {
    /// A file in this folder.
    Sqlite(tempfile::TempDir),
    Postgres(postgres::Server, String),
    Redis(redis::Server),
}

impl StoreServer {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub(crate) async fn postgres() -> Self {
        let server = postgres::Server::start().await;
        let database = server.database().await;
        Self::Postgres(server, database)
    }

    pub(crate) fn redis(program: &Path) -> Self {
        Self::Redis(redis::Server::with(program, &[]))
    }

    /// The address of the store.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(dir) => format!("sqlite:{}", dir.path().join("hookonce.db").display()),
            Self::Postgres(server, database) => server.url(database),
            Self::Redis(server) => server.url("first"),
        }
    }
}
