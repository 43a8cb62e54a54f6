//! Bodies and their headers, as rows of a table of their own.

use super::rows::SqliteLedger;
use crate::decide::claim::Payload;
use crate::decide::id::{Digest, EventId};
use crate::store::compression::CompressedBody;
use crate::store::row;
use rusqlite::Result;
use rusqlite::{ErrorCode, params};

impl SqliteLedger<'_> {
    /// Removes what was only kept to be passed on.
    pub(super) fn shed_headers(&self, id: EventId) -> Result<()> {
        let cell = self.find("select headers from payloads where event = ?1", [id.0], |row| {
            Ok(row::shed(row.get_ref(0)?.as_str().unwrap_or_default()))
        });
        match cell {
            Ok(Some(Some(headers))) => self.write_headers(id, &headers),
            // A body on a page that cannot be read must not keep its event from ending.
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseCorrupt) => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes zeros over what was there before.
    fn write_headers(&self, id: EventId, headers: &str) -> Result<()> {
        let overwrite = |on: bool| self.db.pragma_update_and_check(None, "secure_delete", on, |_| Ok(()));
        overwrite(true)?;
        let written = self.execute(
            "update payloads set headers = ?2, headers_digest = ?3 where event = ?1",
            params![id.0, headers, Digest::of(headers.as_bytes()).0],
        );
        overwrite(false)?;
        written.map(drop)
    }

    pub(super) fn write_payload(&self, id: EventId, payload: &Payload) -> Result<()> {
        let headers = row::headers_cell(&payload.headers);
        let packed = CompressedBody::of(&payload.body);
        self.execute(
            "insert or replace into payloads (event, headers, headers_digest, body, unpacked) \
             values (?1, ?2, ?3, ?4, ?5)",
            params![id.0, headers, Digest::of(headers.as_bytes()).0, packed.bytes(), packed.unpacked()],
        )?;
        Ok(())
    }
}
