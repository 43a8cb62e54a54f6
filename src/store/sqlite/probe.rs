//! Whether the disk of a database takes more.

use crate::store::StoreError;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// A disk with less room than this counts as full.
const ROOM_MIN: u64 = 1 << 20;
/// What is written to find out: more than the database's log may have left over from a write that failed.
const PROBE_BYTES: usize = 256 << 10;

/// Is there room on its disk?
pub(super) fn has_room(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // What does not say how full it is may be written nevertheless.
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let room = disk.f_bavail.saturating_mul(disk.f_frsize);
    if room >= ROOM_MIN {
        return Ok(());
    }
    Err(StoreError::Down(format!("the disk of {} is full: {} KiB are left", path.display(), room >> 10)))
}

/// Writes a file beside the database, syncs it, and removes it.
pub(super) fn write_beside(path: &Path) -> Result<(), StoreError> {
    let mut beside = path.to_owned().into_os_string();
    beside.push("-probe");
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(&vec![0xa5; PROBE_BYTES])?;
        file.sync_all()
    });
    fs::remove_file(&beside).unwrap_or_default();
    written.map_err(|error| StoreError::Down(format!("cannot write beside {}: {error}", path.display())))
}
