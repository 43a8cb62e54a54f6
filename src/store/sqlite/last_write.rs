//! A note of the last write, kept outside the database, in its lock file, written after each commit and before any
//! reply.
//!
//! SQLite treats a WAL that is truncated, missing or damaged as one that ends there: later commits are lost silently,
//! and their events would act again. So the next process that opens the file checks whether the last write is in it.
//! The note is not synced: after a power failure it may be older than the database, never newer.

use crate::decide::id::{EventId, Revision};
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The event that was written last, at its revision then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LastWrittenEvent {
    event: EventId,
    revision: Revision,
}

/// The note, always of the same length.
#[derive(Debug)]
pub(super) struct LastWriteMark {
    file: Option<File>,
    noted: Option<LastWrittenEvent>,
    /// From the transaction in progress.
    pending: Option<LastWrittenEvent>,
}

/// `last `, the id, a space, twenty digits.
const LENGTH: usize = 5 + 32 + 1 + 20;
/// Written in place of a note that was deleted.
const NONE: &str = "none";

impl LastWriteMark {
    /// The note in this file.
    pub(super) fn read(file: File) -> Self {
        let mut line = [0; LENGTH];
        let noted = file.read_exact_at(&mut line, 0).ok().and_then(|()| parse(std::str::from_utf8(&line).ok()?));
        Self { file: Some(file), noted, pending: None }
    }

    /// No note, for readers.
    pub(super) fn none() -> Self {
        Self { file: None, noted: None, pending: None }
    }

    /// Whether it names a write, not deleted since.
    pub(super) fn is_of_a_write(&self) -> bool {
        self.noted.is_some()
    }

    /// Whether the last write is in this database. A database without our tables has lost it, too.
    pub(super) fn is_in(&self, db: &Connection) -> Result<bool, rusqlite::Error> {
        let Some(LastWrittenEvent { event, revision }) = self.noted else { return Ok(true) };
        let found = db.query_row("select revision from events where id = ?1", [event.0], |row| row.get::<_, i64>(0));
        match found.optional() {
            Ok(found) => Ok(found.and_then(|found| u64::try_from(found).ok()).is_some_and(|found| found >= revision.0)),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes the note: the event it names is about to be removed.
    pub(super) fn forget(&mut self) {
        self.note(None);
    }

    /// Records a write of the transaction in progress.
    pub(super) fn written(&mut self, event: EventId, revision: Revision) {
        self.pending = Some(LastWrittenEvent { event, revision });
    }

    /// Records a removal in the transaction in progress: the note is deleted before, so that it never names a missing
    /// event.
    pub(super) fn removed(&mut self, event: EventId) {
        let is_this = |last: Option<LastWrittenEvent>| last.is_some_and(|last| last.event == event);
        if is_this(self.noted) {
            self.forget();
        }
        if is_this(self.pending) {
            self.pending = None;
        }
    }

    /// The transaction was committed.
    pub(super) fn committed(&mut self) {
        if let Some(last) = self.pending.take() {
            self.note(Some(last));
        }
    }

    /// The transaction was rolled back.
    pub(super) fn rolled_back(&mut self) {
        self.pending = None;
    }

    /// Writes the note. On a full disk the earlier note remains, which is still true.
    fn note(&mut self, last: Option<LastWrittenEvent>) {
        if self.noted != last && self.write(last).is_ok() {
            self.noted = last;
        }
    }

    fn write(&self, last: Option<LastWrittenEvent>) -> io::Result<()> {
        let line = match last {
            Some(LastWrittenEvent { event, revision }) => format!("last {} {:020}", hex::encode(event.0), revision.0),
            None => format!("{NONE:LENGTH$}"),
        };
        self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(line.as_bytes(), 0))
    }
}

/// Copies the note of the other file into this one if it is newer. The first release leaves its note next to the name
/// that it was given: it may be in either file, and the one in the other file may name a write that was deleted since.
/// A file without a note is ignored.
pub(super) fn adopt_newer(file: &File, other: &File) -> io::Result<()> {
    let read = |file: &File| {
        let mut line = [0; LENGTH];
        file.read_exact_at(&mut line, 0).ok().map(|()| line).filter(|line| is_note(line))
    };
    let Some(line) = read(other) else { return Ok(()) };
    let is_newer = other.metadata()?.modified()? > file.metadata()?.modified()?;
    if is_newer || read(file).is_none() { file.write_all_at(&line, 0) } else { Ok(()) }
}

/// Whether this was written by [`LastWriteMark::write`], including `none`.
fn is_note(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|line| line.trim_end() == NONE || parse(line).is_some())
}

fn parse(line: &str) -> Option<LastWrittenEvent> {
    let (id, revision) = line.strip_prefix("last ")?.split_once(' ')?;
    let mut event = EventId([0; 16]);
    hex::decode_to_slice(id, &mut event.0).ok()?;
    Some(LastWrittenEvent { event, revision: Revision(revision.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_noted_until_it_is_deleted_and_anything_else_is_no_note() {
        let file = tempfile::tempfile().unwrap();
        let open = || LastWriteMark::read(file.try_clone().unwrap());
        assert_eq!(open().noted, None);
        let event = EventId([7; 16]);
        let mut mark = open();
        for revision in [1, 42, u64::MAX].map(Revision) {
            mark.written(event, revision);
            mark.committed();
            mark.written(EventId([8; 16]), revision);
            mark.rolled_back();
            mark.committed();
            assert_eq!(open().noted, Some(LastWrittenEvent { event, revision }));
        }
        mark.removed(EventId([8; 16]));
        assert!(open().noted.is_some());
        mark.removed(event);
        assert_eq!(open().noted, None);
        file.write_all_at(&[0; LENGTH], 0).unwrap();
        assert_eq!(open().noted, None);
    }

    #[test]
    fn the_newer_of_two_notes_counts_and_a_file_without_one_is_ignored() {
        let last = |n| Some(LastWrittenEvent { event: EventId([n; 16]), revision: Revision(1) });
        let made = |note: Option<Option<LastWrittenEvent>>, seconds| {
            let file = tempfile::tempfile().unwrap();
            if let Some(note) = note {
                let mark = LastWriteMark { file: Some(file.try_clone().unwrap()), noted: None, pending: None };
                mark.write(note).unwrap();
            }
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
            file
        };
        let check = |ours, theirs, expected| {
            let (file, other) = (made(ours, 100), made(theirs, 200));
            adopt_newer(&file, &other).unwrap();
            assert_eq!(LastWriteMark::read(file).noted, expected, "{ours:?} {theirs:?}");
            let (file, other) = (made(theirs, 200), made(ours, 100));
            adopt_newer(&file, &other).unwrap();
            assert_eq!(LastWriteMark::read(file).noted, expected, "{theirs:?} {ours:?}");
        };
        check(None, None, None);
        check(Some(last(1)), None, last(1));
        check(None, Some(last(2)), last(2));
        check(Some(last(1)), Some(last(2)), last(2));
        check(Some(last(1)), Some(None), None);
        check(Some(None), Some(last(2)), last(2));
    }
}
