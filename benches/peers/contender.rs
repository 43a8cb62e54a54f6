//! Who takes part, and what each is compared with.

/// A server that receives the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    /// Our accept loop, and a handler that only reads the body: what the others are compared with.
    Bare,
    /// An axum handler that verifies the signature, and remembers nothing: what verification alone costs.
    Axum,
    /// Debian's package of adnanh/webhook, which runs a command for each delivery.
    Webhook,
    StdlibSqlite,
    FlaskTutorial,
    FlaskPooled,
    Express,
    FastApi,
    Hookonce(StoreServer, Bodies),
}

/// Where deliveries are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreServer {
    /// In the memory of the process.
    Memory,
    /// In a file of the process.
    Sqlite,
    Postgres,
    Redis,
}

/// What Hookonce keeps of a delivery, besides its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bodies {
    Kept,
    /// `keep_body = "0s"`: the ids alone, as the peers do.
    NotKept,
}

use Bodies::{Kept, NotKept};
use StoreServer::{Memory, Postgres, Redis, Sqlite};

impl Contender {
    pub const ALL: [Self; 15] = [
        Self::Bare,
        Self::Axum,
        Self::Hookonce(Memory, NotKept),
        Self::Hookonce(Sqlite, NotKept),
        Self::Hookonce(Sqlite, Kept),
        Self::Hookonce(Postgres, NotKept),
        Self::Hookonce(Postgres, Kept),
        Self::Hookonce(Redis, NotKept),
        Self::Hookonce(Redis, Kept),
        Self::Webhook,
        Self::StdlibSqlite,
        Self::FlaskTutorial,
        Self::FlaskPooled,
        Self::Express,
        Self::FastApi,
    ];

    /// Those that need no network: for the quick check.
    pub const OFFLINE: [Self; 7] = [
        Self::Bare,
        Self::Axum,
        Self::Hookonce(Memory, NotKept),
        Self::Hookonce(Sqlite, Kept),
        Self::Hookonce(Postgres, NotKept),
        Self::Hookonce(Redis, NotKept),
        Self::StdlibSqlite,
    ];

    /// Those that a user might choose instead.
    pub const PEERS: [Self; 6] =
        [Self::FlaskTutorial, Self::FlaskPooled, Self::Express, Self::FastApi, Self::Webhook, Self::StdlibSqlite];

    pub fn words(self) -> &'static str {
        match self {
            Self::Bare => "bare handler",
            Self::Axum => "bare axum, signature only",
            Self::Webhook => "adnanh/webhook, /bin/true",
            Self::StdlibSqlite => "Python stdlib, SQLite",
            Self::FlaskTutorial => "Flask, tutorial, PostgreSQL",
            Self::FlaskPooled => "Flask, pooled, PostgreSQL",
            Self::Express => "Express, PostgreSQL",
            Self::FastApi => "FastAPI, Redis",
            Self::Hookonce(Memory, Kept) => "Hookonce, memory, with body",
            Self::Hookonce(Memory, NotKept) => "Hookonce, memory",
            Self::Hookonce(Sqlite, Kept) => "Hookonce, SQLite, with body",
            Self::Hookonce(Sqlite, NotKept) => "Hookonce, SQLite",
            Self::Hookonce(Postgres, Kept) => "Hookonce, PostgreSQL, with body",
            Self::Hookonce(Postgres, NotKept) => "Hookonce, PostgreSQL",
            Self::Hookonce(Redis, Kept) => "Hookonce, Redis, with body",
            Self::Hookonce(Redis, NotKept) => "Hookonce, Redis",
        }
    }

    /// Its name as a folder, and for `--only`.
    pub fn name(self) -> String {
        let words = self.words().replace(", ", "-").replace([' ', '/'], "-");
        words.to_lowercase()
    }

    pub fn is_hookonce(self) -> bool {
        matches!(self, Self::Hookonce(..))
    }

    /// Whether it recognises a repeat.
    pub fn remembers(self) -> bool {
        !matches!(self, Self::Bare | Self::Axum | Self::Webhook)
    }

    /// Whether it is a baseline that acts on nothing.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Bare | Self::Axum)
    }

    /// The store on which Hookonce is compared with it: its own, or SQLite if it has none.
    pub fn compared_on(self) -> StoreServer {
        if self.store() == Memory { Sqlite } else { self.store() }
    }

    /// Where it records.
    pub fn store(self) -> StoreServer {
        match self {
            Self::Bare | Self::Axum | Self::Webhook => Memory,
            Self::StdlibSqlite => Sqlite,
            Self::FlaskTutorial | Self::FlaskPooled | Self::Express => Postgres,
            Self::FastApi => Redis,
            Self::Hookonce(store, _) => store,
        }
    }
}
