//! PostgreSQL as a store, against a real server.

use crate::START;
use crate::postgres_server::Server;
use hookonce::decide::id::EventId;
use hookonce::decide::time::Duration;
use hookonce::store::clock::Clock;
use hookonce::store::contract::{self, Fresh};
use hookonce::store::postgres::{Options, Postgres, Schema};
use hookonce::store::shared::Shared;

/// A store in this database, by this clock.
pub(crate) async fn open(server: &Server, database: &str, clock: Clock) -> Shared<Postgres> {
    let options = Options { clock, schema: Schema::Auto };
    Shared(Postgres::open(&server.url(database), options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_contract() {
    let server = Server::start().await;
    contract::run(async || {
        let (clock, database) = (Clock::manual(START), server.database().await);
        let store = open(&server, &database, clock.clone()).await;
        let url = server.url(&database);
        let spoil = move |id: EventId| {
            let sql = format!("update payloads set body = 'As it came' where event = '{id}'");
            let url = url.clone();
            let done =
                std::thread::spawn(move || std::process::Command::new("psql").args([&url, "-qc", &sql]).status());
            assert!(done.join().unwrap().unwrap().success());
        };
        Fresh::of(store, move |length: Duration| clock.advance(length)).spoiled_by(spoil)
    })
    .await;
}
