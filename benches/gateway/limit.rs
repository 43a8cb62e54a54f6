//! The limit of SQLite on this disk: the rows of a claim and nothing else, 64 to a commit.

use crate::measure::deck::BODY_BYTES;
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::{Duration, Instant};

/// Claims in one commit.
const BATCH: u64 = 64;

const TABLES: &str = "
    create table events (id blob not null primary key, fields text not null, state text not null) without rowid;
    create table keys (key blob not null primary key, event blob not null) without rowid;
    create table payloads (event blob not null primary key, body blob not null);
";

/// Claims per second: a row, two keys and a body each.
pub fn claims_per_second(path: &Path, lasts: Duration) -> f64 {
    write(path, lasts).expect("SQLite writes")
}

fn write(path: &Path, lasts: Duration) -> Result<f64, rusqlite::Error> {
    let mut db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", 4096, |_| Ok(()))?;
    db.execute_batch(TABLES)?;
    let body = vec![b'x'; BODY_BYTES];
    let fields = "y".repeat(200);
    let (begun, mut written) = (Instant::now(), 0_u64);
    while begun.elapsed() < lasts {
        let tx = db.transaction()?;
        for number in written..written + BATCH {
            let id = (u128::from(number) << 64).to_be_bytes();
            let key = |kind: u64| {
                let mixed = (number * 2 + kind).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                [mixed.to_be_bytes(), number.to_be_bytes(), [0; 8], [1; 8]].concat()
            };
            for kind in 0..2 {
                tx.prepare_cached("insert into keys values (?1, ?2)")?.execute(params![key(kind), id])?;
            }
            tx.prepare_cached("insert into events values (?1, ?2, 'done')")?.execute(params![id, fields])?;
            tx.prepare_cached("insert into payloads values (?1, ?2)")?.execute(params![id, body])?;
        }
        tx.commit()?;
        written += BATCH;
    }
    Ok(written as f64 / begun.elapsed().as_secs_f64())
}
