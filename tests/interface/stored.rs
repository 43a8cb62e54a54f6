//! The contents of stores: tables and columns, and the names of keys in Redis.

use crate::check;
use crate::support::{House, Sent};
use std::collections::BTreeSet;

const CONFIG: &str = r#"
[source.pushes]
path   = "/pushes"
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { n = "body.n" }
once   = { change = { of = ["n"], to = ["n"] } }
[[source.pushes.route]]
group = ["n"]
run   = { steps = ["echo ran; test $HOOKONCE_FIELD_N != 7"] }
retry = { attempts = 1 }
"#;

fn config(store: &str) -> String {
    format!("store = \"{store}\"\n{CONFIG}")
}

/// Two new events, one of which fails, and a duplicate.
async fn deliver(house: &House) {
    for (id, n) in [("d-1", 1), ("d-1", 1), ("d-2", 7)] {
        let answer = house.deliver("/pushes", &Sent::github("push", id, &format!("{{\"n\": {n}}}"))).await;
        assert!(answer.status < 300, "{answer:?}");
    }
}

#[tokio::test]
async fn the_tables_of_sqlite_are_as_they_were() {
    let house = House::new(&config("sqlite:hookonce.db"));
    let columns = "select t.name || '.' || c.name || ' ' || c.type from sqlite_schema t, pragma_table_info(t.name) c \
                   where t.type in ('table', 'view') and t.name not like 'sqlite_%'";
    check("sqlite.txt", house.sql(columns));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_of_postgresql_are_as_they_were() {
    let server = crate::postgres::Server::start().await;
    let database = server.database().await;
    let _house = House::new(&config(&server.url(&database)));
    let db = server.client(&database).await;
    let columns = "select table_schema || '.' || table_name || '.' || column_name || ' ' || data_type \
                   from information_schema.columns where table_schema not in ('pg_catalog', 'information_schema')";
    let rows = db.query(columns, &[]).await.unwrap();
    check("postgres.txt", rows.iter().map(|row| row.get::<_, String>(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_redis_are_as_they_were() {
    let server = crate::redis::Server::start();
    let mut house = House::new(&config(&server.url("frozen")));
    deliver(&house).await;
    // So many alike that one becomes the dictionary of the others.
    let word = |n: u32| format!("{:08x}", n.wrapping_mul(2_654_435_761));
    let text: String = (0..300).map(word).collect();
    for n in 100..110 {
        let body = format!("{{\"n\": {n}, \"text\": \"{text}\"}}");
        let answer = house.deliver("/pushes", &Sent::github("push", &format!("d-{n}"), &body)).await;
        assert!(answer.status < 300, "{answer:?}");
    }
    let started = std::time::Instant::now();
    let ended = async || house.ask("GET", "/api/events").await.json().to_string().matches("ended_at").count();
    while ended().await < 12 {
        assert!(started.elapsed() < crate::support::PATIENCE, "the events do not end: {}", house.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    house.stop();
    let client = ::redis::Client::open(format!("redis://127.0.0.1:{}/", server.port)).unwrap();
    let mut db = client.get_multiplexed_async_connection().await.unwrap();
    let names: Vec<Vec<u8>> = ::redis::cmd("KEYS").arg("*").query_async(&mut db).await.unwrap();
    let mut found = BTreeSet::new();
    for name in names {
        let kind: String = ::redis::cmd("TYPE").arg(&name).query_async(&mut db).await.unwrap();
        let rest = name.strip_prefix(b"{frozen}").expect("every key has the hash tag of its store");
        // One letter and an id, or a word.
        let plain = rest.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_:".contains(byte));
        let text = String::from_utf8_lossy(rest).replace("pushes", "SOURCE");
        let shown = if plain { text } else { format!("{}…", text.chars().next().unwrap_or_default()) };
        found.insert(format!("{shown} {kind}"));
    }
    check("redis.txt", found);
}
