//! `hookonce vacuum`: gives the room of an SQLite file that nothing needs any more back to the disk.

use super::trouble::Trouble;
use crate::store::address::Address;
use crate::store::sqlite::{Access, open_file, vacuum as vacuum_file};
use std::io::Write;
use std::path::Path;

/// Rewrites the file without its free pages. No node may run on it.
pub fn vacuum(address: &Address, out: &mut impl Write) -> Result<u8, Trouble> {
    match address {
        Address::Sqlite(path) => file(path, out),
        Address::Postgres(_) => Err(Trouble::no(
            "PostgreSQL frees room by itself (autovacuum), for new events; `VACUUM FULL` of the server gives it back to \
             the disk, and locks each table meanwhile",
        )),
        Address::Redis(_) | Address::Memory => Err(Trouble::no(format!(
            "{address} keeps nothing in a file of hookonce's own; there is nothing to give back"
        ))),
    }
}

fn file(path: &Path, out: &mut impl Write) -> Result<u8, Trouble> {
    let cannot = |error: crate::store::sqlite::OpenError| Trouble::unknown(error.to_string());
    // Read first: what is not there is not made, nor a lock beside it.
    drop(open_file(path, Access::Read).map_err(cannot)?);
    let opened = open_file(path, Access::Copy).map_err(cannot)?;
    let freed = vacuum_file(path, &opened.db).map_err(cannot)?;
    let saved = freed.before.saturating_sub(freed.after);
    writeln!(
        out,
        "{}: {} before, {} now; {} given back to the disk",
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
