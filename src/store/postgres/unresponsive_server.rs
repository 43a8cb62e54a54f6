//! A server that hangs: it accepts connections and bytes, responds a given number of times, and then stays silent.

use super::dictionaries::PgDictionaries;
use super::pool::{ANSWER_TIME, PgConnPurpose, PgPool, PgSessionMode};
use super::sql;
use super::url::PostgresUrl;
use crate::decide::claim::Payload;
use crate::decide::sql_template::{SqlDialect, SqlTemplate};
use crate::decide::time::{Duration, Timestamp};
use crate::store::StoreError;
use crate::store::conformance::making;
use crate::store::optimistic::ConditionalWrite;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// `AuthenticationOk`, then `ReadyForQuery`.
const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
/// `CommandComplete`, then `ReadyForQuery`.
const DONE: &[u8] = b"C\0\0\0\x08SET\0Z\0\0\0\x05I";

/// Accepts one connection, responds `answers` times, and then reads until the client is gone.
fn serve(listener: &TcpListener, answers: usize) -> std::io::Result<()> {
    let (mut client, _) = listener.accept()?;
    for answer in [GREETING, DONE, DONE].into_iter().take(answers) {
        let tag = usize::from(answer != GREETING); // the startup message has no tag
        question(&mut client, tag)?;
        client.write_all(answer)?;
    }
    std::io::copy(&mut client, &mut std::io::sink()).map(drop)
}

fn question(client: &mut TcpStream, tag: usize) -> std::io::Result<()> {
    let mut head = [0; 5];
    client.read_exact(&mut head[..tag + 4])?;
    let length = u32::from_be_bytes([head[tag], head[tag + 1], head[tag + 2], head[tag + 3]]);
    client.read_exact(&mut vec![0; length as usize - 4])
}

/// Runs a statement.
async fn run(pool: &PgPool) -> Result<(), StoreError> {
    let statement =
        SqlTemplate::parse("select :delivery", SqlDialect::Postgres, Duration::from_secs(1)).expect("a statement");
    let bound = Arc::new(statement).bind(&making().made(Timestamp(0)).event, &Payload::default());
    let mut lent = pool.lend(PgConnPurpose::Effect).await?;
    sql::write(lent.link(), &ConditionalWrite::default(), &bound, &PgDictionaries::default()).await.map(drop)
}

#[tokio::test]
async fn a_server_that_hangs_at_any_moment_before_a_statement_holds_the_permit_for_a_limited_time() {
    // Before its greeting, during session set-up, before the statement, and while it is prepared.
    for answers in 0..=3 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || serve(&listener, answers));
        let address = PostgresUrl::parse(&format!("postgres://u@127.0.0.1:{port}/d")).expect("a URL");
        let pool = PgPool::new(address, PgSessionMode::Writes);
        let came = tokio::time::timeout(ANSWER_TIME * 5, run(&pool)).await;
        assert!(matches!(&came, Ok(Err(StoreError::Down(why))) if why.contains("no response")), "{answers}: {came:?}");
        drop((pool, server));
    }
}
