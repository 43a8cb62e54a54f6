//! Redis as a store: the contract, the same history as memory, and what only a server of its own can do to it.

use crate::START;
use crate::redis_server::{self as server, Server};
use hookonce::decide::id::EventId;
use hookonce::decide::time::Duration;
use hookonce::store::CannotOpen;
use hookonce::store::clock::Clock;
use hookonce::store::contract::{self, Fresh};
use hookonce::store::redis::{Access, Options, Redis};
use hookonce::store::shared::Shared;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) async fn open(url: &str) -> Result<Shared<Redis>, CannotOpen> {
    Redis::open(url, Options { clock: Clock::server(), access: Access::Node }).await.map(Shared)
}

async fn keeps_the_contract(program: &Path) {
    let server = Arc::new(Server::with(program, &[]));
    let count = AtomicU32::new(0);
    contract::run(async || {
        let prefix = format!("rule{}", count.fetch_add(1, Ordering::Relaxed));
        let clock = Clock::manual(START);
        let options = Options { clock: clock.clone(), access: Access::Node };
        let store = Shared(Redis::open(&server.url(&prefix), options).await.unwrap());
        let server = server.clone();
        let spoil = move |id: EventId| {
            let name = [format!("{{{prefix}}}b").as_bytes(), &id.0].concat();
            let mut client = server.client();
            let length: usize = ::redis::cmd("STRLEN").arg(&name).query(&mut client).unwrap();
            ::redis::cmd("SETRANGE").arg(name).arg(length - 1).arg("\u{1}").exec(&mut client).unwrap();
        };
        Fresh::of(store, move |length: Duration| clock.advance(length)).spoiled_by(spoil)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract() {
    keeps_the_contract(&server::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_keeps_the_contract() {
    match server::valkey() {
        Some(program) => keeps_the_contract(&program).await,
        None => println!("skipped: there is no valkey-server here, and HOOKONCE_VALKEY names none"),
    }
}
