//! Starting due events: lock the first that are not locked, decide here, write and commit. Two round trips for all of
//! them, and no waiting: nodes that drain the same backlog get different events.

use super::batch_writes::EventWrites;
use super::data_loss::PgDataLossDetector;
use super::dictionaries::PgDictionaries;
use super::error::PgCommitStage;
use super::pool::{PgConn, PgError, ask};
use super::queries::{self, payloads};
use super::read::{CLOCK, told};
use super::rows::{self, PgEventWrite, PgUuid};
use super::write::ROLLBACK;
use super::write::{commit, not_committed};
use crate::decide::event::Event;
use crate::decide::ledger::EventRow;
use crate::store::clock::StoreClock;
use crate::store::copy::CopyLockCheck;
use crate::store::optimistic::txn::new_version;
use crate::store::row::columns;
use crate::store::{StartDueRequest, StartDueResult, StoreError, StoredValue};

/// Only events are locked, without waiting: so there can be no deadlock with transactions that take locks in the usual
/// order. `part` is given twice, as in `queries.rs`.
const HOLD: &str = concat!(
    "select ",
    columns!(),
    ", version from {schema}.events where wake_at is not null and wake_at <= $5 and state = 'waiting' and source = $2 \
     and route = $3 and part = $4 and part between $4 and $4 order by wake_at, id limit $1 for no key update skip locked"
);

/// Payloads read along with the started events, instead of one by one afterwards. A transaction that writes a payload
/// locks its event first, so these cannot change before the commit.
const SMALL_PAYLOADS: &str = concat!(
    "select p.event, p.headers, p.headers_digest, p.body, p.unpacked, e.body_digest, p.packed, p.dictionary from ",
    payloads!(
        "event = any($1) and coalesce(octet_length(body), 0) <= $2::bigint and coalesce(unpacked, 0) <= $2::bigint"
    ),
    " join {schema}.events e on e.id = p.event"
);
/// The largest body, compressed and uncompressed, that is read along.
const BROUGHT_ALONG_MAX: i64 = 64 << 10;

/// Starts due events that no other node is starting.
pub(super) async fn start_due(
    link: &mut PgConn,
    starts: &StartDueRequest,
    clock: &StoreClock,
    fence: &PgDataLossDetector,
    dictionaries: &PgDictionaries,
) -> Result<StartDueResult, StoreError> {
    let (was, rows) = match hold(link, starts, clock).await {
        Ok(held) => held,
        Err(failed) if failed.is_contention() => return nothing(link).await,
        Err(failed) => return Err(failed.classify(PgCommitStage::Before)),
    };
    if rows.is_empty() {
        return nothing(link).await;
    }
    let fate = EventWrites::default();
    let written: Vec<PgEventWrite<'_>> = rows.iter().map(|row| (row, new_version(), &fate)).collect();
    let ids: Vec<PgUuid> = rows.iter().map(|row| PgUuid(row.event.id)).collect();
    let mut asks = vec![ask!(SMALL_PAYLOADS, ids, BROUGHT_ALONG_MAX), rows::update_events(&written)];
    commit(&mut asks, CopyLockCheck::Mark);
    let came = link.query_all(&asks).await;
    drop(asks);
    match came {
        Ok(answers) => {
            let payloads = answers[0].iter().filter_map(|row| {
                let PgUuid(id) = row.try_get(0).ok()?;
                let found = queries::unpacked(row, 1, dictionaries).ok()?;
                // It may be packed with a dictionary that is not known here: it is read by itself, together with that.
                (found != StoredValue::Damaged).then_some((id, found))
            });
            let payloads = payloads.collect();
            let events: Vec<Event> = rows.into_iter().map(|row| row.event).collect();
            match fence.started(link.timeline, &events) {
                Ok(()) => Ok(StartDueResult { events, payloads, unsure: Vec::new() }),
                Err(_) => Ok(StartDueResult { unsure: was, ..StartDueResult::default() }),
            }
        }
        Err(failed) if failed.is_contention() => nothing(link).await,
        Err(failed) => match not_committed(failed) {
            StoreError::Unsure(_) => {
                link.poisoned = true;
                Ok(StartDueResult { unsure: was, ..StartDueResult::default() })
            }
            error => Err(error),
        },
    }
}

/// The first due events, before and after being started. Those that need an ordinary step are left alone.
async fn hold(
    link: &mut PgConn,
    starts: &StartDueRequest,
    clock: &StoreClock,
) -> Result<(Vec<Event>, Vec<EventRow>), PgError> {
    let (limit, part) = (queries::limit_cell(starts.limit), i32::from(starts.part));
    let due = ask!(HOLD, limit, &*starts.source, &*starts.route.name, part, clock.now().0);
    let asked = StoreClock::asks();
    let answers = link.query_all(&[ask!("begin"), ask!(CLOCK), due]).await?;
    let now = told(clock, asked, &answers[1][0], 0)?;
    let held = answers[2].iter().filter_map(|row| rows::event(row, 0));
    Ok(held.filter_map(|(row, _)| starts.row(&row, now).map(|started| (row.event, started))).unzip())
}

async fn nothing(link: &mut PgConn) -> Result<StartDueResult, StoreError> {
    link.query_all(&[ask!(ROLLBACK)]).await.map_err(|failed| failed.classify(PgCommitStage::Before))?;
    Ok(StartDueResult::default())
}
