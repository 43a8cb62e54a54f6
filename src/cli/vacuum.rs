//! `hookonce vacuum`: shrinks an SQLite file to the space it needs.

use super::error::CommandError;
use crate::decide::error_message::ErrorMessage;
use crate::store::open::StoreUrl;
use crate::store::sqlite::{SqliteAccess, open_file, vacuum as vacuum_file};
use std::io::Write;
use std::path::Path;

/// Rewrites the file without its free pages. No node may run on it.
pub(crate) fn vacuum(address: &StoreUrl, out: &mut impl Write) -> Result<u8, CommandError> {
    match address {
        StoreUrl::Sqlite(path) => file(path, out),
        other => Err(CommandError::no(other.vacuum_advice())),
    }
}

fn file(path: &Path, out: &mut impl Write) -> Result<u8, CommandError> {
    let cannot = |error: crate::store::sqlite::SqliteOpenError| CommandError::unknown(ErrorMessage::of(error));
    // Read first: a missing file must not be created, nor a lock beside it.
    drop(open_file(path, SqliteAccess::Read).map_err(cannot)?);
    let opened = open_file(path, SqliteAccess::Copy).map_err(cannot)?;
    let freed = vacuum_file(path, &opened.db).map_err(cannot)?;
    let saved = freed.before.saturating_sub(freed.after);
    writeln!(
        out,
        "{}: {} before, {} now; {} returned to the disk",
        path.display(),
        size(freed.before),
        size(freed.after),
        size(saved)
    )?;
    Ok(0)
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes >> 10),
        _ => format!("{}.{} MB", bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_the_unit_that_fits() {
        for (bytes, said) in [(0, "0 B"), (1023, "1023 B"), (4096, "4 KB"), (1 << 20, "1.0 MB"), (3 << 19, "1.5 MB")] {
            assert_eq!(size(bytes), said);
        }
    }
}
