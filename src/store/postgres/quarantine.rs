//! Messages that can never become an event, in a table of their own.

use super::pool::{PgConn, PgQuery, PgResult, ask};
use super::rows::{counter, text};
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::store::quarantine::QuarantinedMessage;
use bytes::Bytes;
use tokio_postgres::Row;

const LAY: &str = "insert into {schema}.quarantine (message, source, subject, at, why, bytes, head) \
                   values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing";
/// Numbers have gaps here, so it is rows that are counted.
const MAKE_WAY: &str =
    "delete from {schema}.quarantine where n <= (select n from {schema}.quarantine order by n desc offset $1 limit 1)";
const NEWEST: &str =
    "select source, message, subject, at, why, bytes, head from {schema}.quarantine order by n desc limit $1";

/// 64 KiB that no packing makes smaller.
const PROBE: &str = "insert into {schema}.quarantine (message, source, subject, at, why, bytes, head) \
                     select 'probe ' || clock_timestamp() || ' ' || random(), '', '', 0, '', 0, \
                     string_agg(decode(md5(random()::text || n), 'hex'), '') from generate_series(1, 4096) as n";

/// Writes into the table and takes it back. The server finds room on its disk when a row is written, not when it is
/// committed.
pub(super) async fn probe(link: &mut PgConn) -> PgResult<()> {
    link.query_all(&[ask!("begin"), ask!(PROBE), ask!("rollback")]).await.map(drop)
}

/// Lays one there, and lets the oldest make way. One after another: nodes that lay at once would wait for each other's
/// rows in any order.
pub(super) async fn lay(link: &mut PgConn, one: &QuarantinedMessage) -> PgResult<()> {
    let mut asks = vec![ask!("begin")];
    asks.extend(to_lay(std::slice::from_ref(one)));
    asks.push(ask!("commit"));
    link.query_all(&asks).await.map(drop)
}

/// The statements that lay these there, in a transaction.
pub(super) fn to_lay(messages: &[QuarantinedMessage]) -> Vec<PgQuery<'_>> {
    let mut asks = vec![ask!("lock table {schema}.quarantine in share row exclusive mode")];
    for one in messages {
        asks.push(ask!(
            LAY,
            text(&one.message),
            text(&one.source),
            text(&one.subject),
            one.at.0,
            text(&one.why),
            counter(one.bytes),
            &one.head[..],
        ));
    }
    asks.push(ask!(MAKE_WAY, counter(limits::QUARANTINE_MAX as u64)));
    asks
}

/// The newest of them.
pub(super) async fn newest(link: &mut PgConn, limit: usize) -> PgResult<Vec<QuarantinedMessage>> {
    let rows = link.query_all(&[ask!(NEWEST, counter(limit as u64))]).await?.remove(0);
    rows.iter().map(quarantined).collect()
}

fn quarantined(row: &Row) -> PgResult<QuarantinedMessage> {
    Ok(QuarantinedMessage {
        source: row.try_get::<_, &str>(0)?.into(),
        message: row.try_get(1)?,
        subject: row.try_get(2)?,
        at: Timestamp(row.try_get(3)?),
        why: row.try_get(4)?,
        bytes: row.try_get::<_, i64>(5)?.unsigned_abs(),
        head: Bytes::copy_from_slice(row.try_get(6)?),
    })
}
