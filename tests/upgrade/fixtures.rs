//! The stores in the fixtures: a database file, a dump of PostgreSQL, and the commands that fill a Redis.

use crate::folder;
use crate::postgres::program;
use crate::server::StoreServer;
use redis::{Connection, Value};
use std::process::{Command, Stdio};

/// Bytes as text: each becomes the character with its number.
fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a character is a byte")).collect()
}

/// Fills an empty store from the fixtures.
pub(crate) async fn load(server: &StoreServer) {
    match server {
        StoreServer::Sqlite(dir) => {
            std::fs::copy(folder().join("sqlite.db"), dir.path().join("hookonce.db")).unwrap();
        }
        StoreServer::Postgres(server, database) => {
            let dump = std::fs::File::open(folder().join("postgres.sql")).unwrap();
            let mut psql = Command::new(program("psql"));
            psql.args(["-q", "-v", "ON_ERROR_STOP=1", &server.url(database)]).stdin(dump).stdout(Stdio::null());
            let done = tokio::task::spawn_blocking(move || psql.output().unwrap()).await.unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        StoreServer::Redis(server) => {
            let mut client = server.client();
            for line in std::fs::read_to_string(folder().join("redis.jsonl")).unwrap().lines() {
                let words: Vec<String> = serde_json::from_str(line).unwrap();
                let mut command = redis::cmd(&words[0]);
                for word in &words[1..] {
                    command.arg(bytes(word));
                }
                command.query::<Value>(&mut client).unwrap();
            }
        }
    }
}

/// Writes a store into the fixtures.
pub(crate) async fn dump(server: &StoreServer) {
    match server {
        StoreServer::Sqlite(dir) => {
            let path = dir.path().join("hookonce.db");
            let db = rusqlite::Connection::open(&path).unwrap();
            db.pragma_update_and_check(None, "wal_checkpoint", "truncate", |_| Ok(())).unwrap();
            drop(db);
            std::fs::copy(path, folder().join("sqlite.db")).unwrap();
        }
        StoreServer::Postgres(server, database) => {
            let mut pg_dump = Command::new(program("pg_dump"));
            pg_dump.args(["--no-owner", "--no-privileges", &server.url(database)]);
            let done = tokio::task::spawn_blocking(move || pg_dump.output().unwrap()).await.unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let lines = String::from_utf8(done.stdout).unwrap();
            // These lines guard against dumps of untrusted origin; an older psql does not know them.
            let guards = |line: &&str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
            let lines: Vec<_> = lines.lines().filter(|line| !guards(line)).collect();
            std::fs::write(folder().join("postgres.sql"), lines.join("\n") + "\n").unwrap();
        }
        StoreServer::Redis(server) => {
            let mut client = server.client();
            let mut names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut client).unwrap();
            names.sort();
            let lines: String = names.iter().map(|name| line(&mut client, name) + "\n").collect();
            std::fs::write(folder().join("redis.jsonl"), lines).unwrap();
        }
    }
}

/// The command that creates this key with its value.
fn line(client: &mut Connection, name: &[u8]) -> String {
    let kind: String = redis::cmd("TYPE").arg(name).query(client).unwrap();
    let (make, ask): (&str, &[&str]) = match kind.as_str() {
        "string" => ("SET", &["GET"]),
        "hash" => ("HSET", &["HGETALL"]),
        "set" => ("SADD", &["SMEMBERS"]),
        "list" => ("RPUSH", &["LRANGE", "0", "-1"]),
        "zset" => ("ZADD", &["ZRANGE", "0", "-1", "WITHSCORES"]),
        other => panic!("cannot dump a {other} yet"),
    };
    let mut command = redis::cmd(ask[0]);
    command.arg(name).arg(&ask[1..]);
    let mut words: Vec<Vec<u8>> = match kind.as_str() {
        "string" => vec![command.query(client).unwrap()],
        _ => command.query(client).unwrap(),
    };
    if kind == "zset" {
        words.chunks_mut(2).for_each(|pair| pair.swap(0, 1)); // ZADD wants the score first
    }
    let words: Vec<_> = [make.as_bytes(), name].into_iter().chain(words.iter().map(|word| &**word)).map(text).collect();
    let escape = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
    serde_json::to_string(&words).unwrap().chars().map(escape).collect()
}
