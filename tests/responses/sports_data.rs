//! Sports data, once per `event.hash`: `preset = "sports-stack"`, on every store, also when it fails in between.

use crate::backend::Backend;
use crate::support::{House, PATIENCE, SECRET, Sent, payload};
use crate::{IN, postgres, redis, signed};

/// A store, and how it is made to fail for a while.
enum Kept {
    /// In the node: it cannot fail alone.
    Memory,
    /// In a file, which another writer locks for as long as this connection is open.
    Sqlite(Option<rusqlite::Connection>),
    Redis(redis::Server),
    Postgres(postgres::Server, String),
}

impl Kept {
    async fn postgres() -> Self {
        let server = postgres::Server::start().await;
        let database = server.database().await;
        Self::Postgres(server, database)
    }

    fn address(&self) -> String {
        match self {
            Self::Memory => "memory:".into(),
            Self::Sqlite(_) => "sqlite:hookonce.db".into(),
            Self::Redis(server) => server.url("sports"),
            Self::Postgres(server, database) => server.url(database),
        }
    }

    /// Makes it fail; `false` if that is impossible.
    fn fails(&mut self, house: &House) -> bool {
        match self {
            Self::Memory => return false,
            Self::Sqlite(held) => {
                let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
                other.execute_batch("begin exclusive").unwrap();
                *held = Some(other);
            }
            Self::Redis(server) => server.kill(),
            Self::Postgres(server, _) => server.crash(),
        }
        true
    }

    async fn is_back(&mut self) {
        match self {
            Self::Memory => {}
            Self::Sqlite(held) => held.take().unwrap().execute_batch("rollback").unwrap(),
            Self::Redis(server) => server.run(),
            Self::Postgres(server, _) => assert!(server.start_again().await, "PostgreSQL did not come back"),
        }
    }

    /// Hash, type and model of all events, oldest first, by their columns' names; `None` if it has no columns.
    async fn columns(&self, house: &House) -> Option<Vec<String>> {
        let select = "select hash || ' ' || resource_type || ' ' || common_model_id";
        match self {
            Self::Memory | Self::Redis(_) => None,
            Self::Sqlite(_) => Some(house.sql(&format!("{select} from events order by id"))),
            Self::Postgres(server, database) => {
                let query = format!("{select} from events_sports order by received_at");
                let rows = server.client(database).await.query(&query, &[]).await.unwrap();
                Some(rows.iter().map(|row| row.get(0)).collect())
            }
        }
    }
}

fn change(hash: &str, seen: u32) -> Sent {
    let mut body: serde_json::Value = serde_json::from_str(&payload("sportsstack.json")).unwrap();
    body["event"]["hash"] = hash.into();
    body["delivered"] = seen.into();
    signed("x-sportsstack-signature", SECRET, &body.to_string())
}

/// The same test for each store.
async fn check(mut kept: Kept) {
    let backend = Backend::answers(200, "{\"status\":\"ok\"}").await;
    let house = House::new(&format!(
        "store = \"{}\"\n[source.sports]\npreset = \"sports-stack\"\npath = \"{IN}\"\nsecret = {{ env = \"SECRET\" }}\n\
         [[source.sports.route]]\nforward = {{ url = \"{}\" }}\n",
        kept.address(),
        backend.url
    ));
    // The first and its duplicates get 200, whatever else is in their bodies.
    for seen in 0..3 {
        let answer = house.deliver(IN, &change("first", seen)).await;
        assert_eq!((answer.status, &*answer.body), (200, &b"{\"status\":\"ok\"}"[..]), "{answer:?}");
        assert_eq!(answer.header("idempotent-replayed"), (seen > 0).then_some("true"));
    }
    assert_eq!(backend.calls().len(), 1);
    let forged = change("first", 9).with("x-sportsstack-signature", &"0".repeat(64));
    assert_eq!(house.deliver(IN, &forged).await.status, 401);
    let none = signed("x-sportsstack-signature", SECRET, "{\"event\":{}}");
    assert_eq!(house.deliver(IN, &none).await.status, 422, "a change without a hash is refused");
    if kept.fails(&house) {
        for _ in 0..2 {
            let away = house.deliver(IN, &change("second", 0)).await;
            assert_eq!((away.status, away.header("retry-after")), (503, Some("5")), "{away:?}");
        }
        // A store that can still be read may answer a duplicate; nothing acts on it.
        let repeat = house.deliver(IN, &change("first", 3)).await;
        assert!(repeat.status == 503 || repeat.header("idempotent-replayed") == Some("true"), "{repeat:?}");
        assert_eq!(backend.calls().len(), 1, "nothing is done without its store");
        kept.is_back().await;
        let ready = async { while house.ask("GET", "/readyz").await.status != 200 {} };
        tokio::time::timeout(PATIENCE, ready).await.expect("the store is back, and its node is not ready");
    }
    for seen in 0..3 {
        assert_eq!(house.deliver(IN, &change("second", seen)).await.status, 200);
    }
    assert_eq!(house.deliver(IN, &change("first", 3)).await.status, 200);
    assert_eq!((backend.calls().len(), backend.effects()), (2, 2));
    if let Some(columns) = kept.columns(&house).await {
        let model = "player 550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(columns, [format!("first {model}"), format!("second {model}")]);
    }
}

/// One test per store.
mod each_change_acts_once_even_if_the_store_fails_in_between {
    use super::{Kept, check, redis};

    #[tokio::test]
    async fn in_memory() {
        check(Kept::Memory).await;
    }

    #[tokio::test]
    async fn on_sqlite() {
        check(Kept::Sqlite(None)).await;
    }

    #[tokio::test]
    async fn on_redis() {
        check(Kept::Redis(redis::Server::start())).await;
    }

    #[tokio::test]
    async fn on_postgres() {
        check(Kept::postgres().await).await;
    }
}
