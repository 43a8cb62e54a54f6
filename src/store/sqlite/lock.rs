//! The lock of a database: on a file next to it, and on the database file itself.
//!
//! The lock file holds the note of the last write, and is what every version locks. The lock on the database is on its
//! inode, so it also applies under other names: through a symlink, another path, or after the lock file was removed.
//!
//! SQLite locks parts of the same file with `fcntl`. The kernel releases all of these as soon as the process closes any
//! descriptor of the file. So the descriptor here is opened before the first connection and closed after the last one.

use super::last_write;
use super::last_write::LastWriteMark;
use super::open::{SqliteOpenError, SqliteOpenErrorKind, beside};
use rustix::fs::{AtFlags, CWD, FlockOperation, StatxAttributes, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::warn;

/// A node killed while it started a command leaves a child that holds its files for another moment: its successor waits
/// this long for the lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often it retries.
const LOCK_LOOK: Duration = Duration::from_millis(10);
/// The network file systems NFS, SMB, CIFS and SMB2, by their `statfs` numbers. There `flock` locks ranges of bytes,
/// which conflict with SQLite's own locks.
const NETWORK_FILE_SYSTEMS: [i64; 4] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42];

/// The locks of a database, released on drop. The files stay.
#[derive(Debug)]
pub struct DatabaseLock {
    /// The lock file.
    file: File,
    /// The lock file next to the symlink that the database was opened by.
    link: Option<File>,
    /// The database itself; `None` if its file system cannot lock it.
    _database: Option<File>,
}

/// The locked lock files of a database: the first half of a [`DatabaseLock`].
pub(super) struct LockFileGuard {
    file: File,
    link: Option<File>,
}

impl DatabaseLock {
    /// The note of the last write, from the lock file.
    pub(super) fn mark(&self, path: &Path) -> Result<LastWriteMark, SqliteOpenError> {
        read_mark(&self.file, path)
    }

    /// Empties the note next to the symlink: the main note was verified, and the other one would only become outdated.
    pub(super) fn drop_links_note(&self, path: &Path) -> Result<(), SqliteOpenError> {
        let emptied = self.link.as_ref().map_or(Ok(()), |link| link.set_len(0));
        emptied.map_err(|error| SqliteOpenError::io(path, error))
    }

    /// Deletes the note, before data is removed on purpose.
    pub fn forget_last_write(&self, path: &Path) -> Result<(), SqliteOpenError> {
        self.mark(path).map(|mut mark| mark.forget())
    }
}

fn read_mark(file: &File, path: &Path) -> Result<LastWriteMark, SqliteOpenError> {
    file.try_clone().map(LastWriteMark::read).map_err(|error| SqliteOpenError::io(path, error))
}

/// The real path, where this is a symlink. SQLite keeps its WAL there.
pub(super) fn real_name(path: &Path) -> PathBuf {
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let real = if is_link { std::fs::canonicalize(path).ok() } else { None };
    real.unwrap_or_else(|| path.to_owned())
}

/// Refuses a file with other names in other folders: hard links, or a mount of the file itself. SQLite keeps a WAL next
/// to each name, and what is written under one name is missing under the others.
pub(super) fn has_one_name(path: &Path) -> Result<(), SqliteOpenError> {
    match std::fs::metadata(path) {
        Ok(found) if found.nlink() > 1 => {
            Err(SqliteOpenError::new(path, SqliteOpenErrorKind::HardLinks(found.nlink())))
        }
        Ok(_) if is_mount_point(path) => Err(SqliteOpenError::new(path, SqliteOpenErrorKind::MountPoint)),
        Ok(_) | Err(_) => Ok(()), // opening the file reports what is wrong with it
    }
}

/// Whether the file itself is mounted here, not a folder above it. Kernels before Linux 5.8 do not report it: then
/// `false`.
fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| (found.stx_attributes & found.stx_attributes_mask).contains(StatxAttributes::MOUNT_ROOT))
}

impl LockFileGuard {
    /// Locks the lock file, and the one next to the symlink that the database was opened by: nodes of earlier versions
    /// lock only that, and leave their note there.
    pub(super) fn take(given: &Path, real: &Path) -> Result<Self, SqliteOpenError> {
        let link = if given == real { None } else { Some(lock_beside(given)?) };
        let file = lock_beside(real)?;
        if let Some(link) = &link {
            last_write::adopt_newer(&file, link).map_err(|error| SqliteOpenError::io(real, error))?;
        }
        Ok(Self { file, link })
    }

    /// The note of the last write.
    pub(super) fn mark(&self, path: &Path) -> Result<LastWriteMark, SqliteOpenError> {
        read_mark(&self.file, path)
    }

    /// Locks the database itself, which must exist. No connection to it may be open yet.
    pub(super) fn and_database(self, path: &Path) -> Result<DatabaseLock, SqliteOpenError> {
        has_one_name(path)?;
        let Self { file, link } = self;
        Ok(DatabaseLock { file, link, _database: lock_database(path)? })
    }
}

fn lock_beside(path: &Path) -> Result<File, SqliteOpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(beside(path, ".lock")).map_err(|error| SqliteOpenError::io(path, error))?;
    match lock(&file) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(SqliteOpenError::new(path, SqliteOpenErrorKind::InUse)),
        Err(error) => Err(SqliteOpenError::io(path, error.into())),
    }
}

fn lock_database(path: &Path) -> Result<Option<File>, SqliteOpenError> {
    let file = File::open(path).map_err(|error| SqliteOpenError::io(path, error))?;
    let on_network = fstatfs(&file).is_ok_and(|stat| NETWORK_FILE_SYSTEMS.contains(&(stat.f_type & 0xFFFF_FFFF)));
    let locked = if on_network { Err(Errno::OPNOTSUPP) } else { lock(&file) };
    match locked {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => {
            // This process may have the file open under another name: closing this descriptor would release SQLite's
            // locks.
            std::mem::forget(file);
            Err(SqliteOpenError::new(path, SqliteOpenErrorKind::InUseByAnotherName))
        }
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS | Errno::INVAL) => {
            let why = format!(
                "the file system of {} cannot lock a file under all its names; open it by one name only, or put it on a \
                 local disk",
                path.display()
            );
            warn!(target: "hookonce", why, "lock");
            Ok(None)
        }
        Err(error) => Err(SqliteOpenError::io(path, io::Error::from(error))),
    }
}

/// Locks a file for this process alone, waiting a moment if it is locked.
fn lock(file: &File) -> Result<(), Errno> {
    let patience = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < patience => std::thread::sleep(LOCK_LOOK),
            locked => return locked,
        }
    }
}
