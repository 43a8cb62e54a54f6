//! Files that may change while the node runs: whether what was read of one still counts.

use crate::decide::time::Duration;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

/// Two writes this close together may leave the same metadata, so a file read in between is read again.
const MTIME_GRANULARITY: Duration = Duration::from_millis(100);

/// The metadata that shows whether a file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileFingerprint {
    file: (u64, u64),
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// What was read of a file.
pub(super) struct CachedFile<T> {
    fingerprint: FileFingerprint,
    /// When the file was first seen with this metadata.
    since: Instant,
    read_at: Instant,
    content: T,
}

impl FileFingerprint {
    pub(super) fn of(file: &Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            bytes: file.len(),
            written: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl<T> CachedFile<T> {
    /// What was read of a file with this metadata; `read_at` is a time before it was read, and `former` what was read
    /// before.
    pub(super) fn new(fingerprint: FileFingerprint, read_at: Instant, content: T, former: Option<&Self>) -> Self {
        let same = former.filter(|former| former.fingerprint == fingerprint);
        Self { fingerprint, since: same.map_or(read_at, |former| former.since), read_at, content }
    }

    /// What was read, if the file has this metadata and cannot have been written since.
    pub(super) fn current(&self, fingerprint: FileFingerprint) -> Option<&T> {
        let settled = self.read_at - self.since >= MTIME_GRANULARITY;
        (settled && self.fingerprint == fingerprint).then_some(&self.content)
    }
}
