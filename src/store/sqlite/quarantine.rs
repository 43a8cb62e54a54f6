//! Messages that can never become an event, in a table of their own.

use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::store::quarantine::QuarantinedMessage;
use bytes::Bytes;
use rusqlite::Result;
use rusqlite::{Connection, params};

/// Lays one there, and lets the oldest make way.
pub(super) fn lay(db: &Connection, one: &QuarantinedMessage) -> Result<()> {
    let bytes = i64::try_from(one.bytes).unwrap_or(i64::MAX);
    db.prepare_cached(
        "insert into quarantine (message, source, subject, at, why, bytes, head)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict do nothing",
    )?
    .execute(params![one.message, &*one.source, one.subject, one.at.0, one.why, bytes, &one.head[..]])?;
    db.prepare_cached("delete from quarantine where n <= (select max(n) from quarantine) - ?1")?
        .execute([number(limits::QUARANTINE_MAX)])?;
    Ok(())
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The newest of them.
pub(super) fn newest(db: &Connection, limit: usize) -> Result<Vec<QuarantinedMessage>> {
    let sql = "select source, message, subject, at, why, bytes, head from quarantine order by n desc limit ?1";
    let one = |row: &rusqlite::Row<'_>| {
        Ok(QuarantinedMessage {
            source: row.get::<_, String>(0)?.into(),
            message: row.get(1)?,
            subject: row.get(2)?,
            at: Timestamp(row.get(3)?),
            why: row.get(4)?,
            bytes: row.get::<_, i64>(5)?.unsigned_abs(),
            head: Bytes::from(row.get::<_, Vec<u8>>(6)?),
        })
    };
    db.prepare_cached(sql)?.query_map([number(limit)], one)?.collect()
}
