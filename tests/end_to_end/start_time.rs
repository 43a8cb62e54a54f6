//! How soon a node is ready. The bounds are for an unoptimised binary on a busy machine; `cargo bench --bench growth` has the
//! real figures.

use crate::support::{House, Sent};
use crate::{IN, number, numbers};
use std::time::{Duration, Instant};

/// It takes less than half a second where nothing else runs.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// The largest number of keys that an optimised node leaves to be merged: `FRESH_ROWS_MAX`.
const FRESH_KEYS_MAX: i64 = 65_536;

/// How long a start takes until `/readyz` is 200.
async fn ready_after(house: &mut House) -> Duration {
    let begun = Instant::now();
    house.start();
    while house.ask("GET", "/readyz").await.status != 200 {
        assert!(begun.elapsed() < READY_WITHIN, "it is not ready");
    }
    begun.elapsed()
}

#[tokio::test]
async fn a_node_with_an_empty_store_is_ready_within_seconds() {
    let mut house = House::empty(&numbers("", ""));
    let took = ready_after(&mut house).await;
    assert!(took < READY_WITHIN, "it took {took:?}");
}

#[tokio::test]
async fn a_node_that_crashed_with_as_many_unmerged_keys_as_there_can_be_is_ready_within_seconds() {
    let mut house = House::new(&numbers("", ""));
    let known: Vec<Sent> = (0..3).map(|n| number(&format!("known-{n}"), n)).collect();
    for sent in &known {
        assert_eq!(house.deliver(IN, sent).await.status, 202);
    }
    house.kill();
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    // Entries of events that are gone: an entry is only a candidate.
    let sql = "with recursive c(n) as (select 1 union all select n + 1 from c where n < ?1)
               insert into fresh_keys (key, event, gone) select randomblob(16), randomblob(16), 0 from c";
    db.execute(sql, [FRESH_KEYS_MAX]).unwrap();
    drop(db);
    let took = ready_after(&mut house).await;
    assert!(took < READY_WITHIN, "it took {took:?}");
    for sent in &known {
        let again = house.deliver(IN, sent).await;
        assert_eq!(again.word(), "duplicate", "{again:?}");
    }
    let new = house.deliver(IN, &number("new", 9)).await;
    assert_eq!(new.word(), "accepted", "{new:?}");
}
