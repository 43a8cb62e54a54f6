//! Opening a database file: the locks, the checks that it is ours and intact, and the settings that durability depends
//! on.

use super::export::mark_in;
use super::integrity::IntegrityScope;
use super::lock::{DatabaseLock, LockFileGuard};
use super::{definitions, integrity, lock};
use crate::store::StoreError;
use crate::store::copy::CopyRole;
use crate::store::schema::MigrationRejection;
use crate::store::schema::sqlite::SqliteMigrationError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

/// How long to wait for another process's write, such as one made by hand in the `sqlite3` shell.
const BUSY: Duration = Duration::from_secs(5);
/// The first release without the bug in which a reset WAL could lose a commit.
const SQLITE_MIN: i32 = 3_051_003;
/// The size to which the WAL is truncated after a burst.
const WAL_BYTES_MAX: i64 = 64 << 20;
/// The writer's page cache: a negative number is in KiB.
const WRITER_CACHE: i64 = -(16 << 10);

/// The purpose of opening a database, which decides its locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqliteAccess {
    /// A node: the only writer; it migrates the schema and ends the leases of its predecessor.
    Node,
    /// A command that writes while no node runs.
    Tool,
    /// The same, for a copy from or into it: it ignores the marks of copies.
    Copy,
    /// A reader, concurrent with the writer.
    Read,
}

/// Why a database was not opened.
#[derive(Debug)]
pub struct SqliteOpenError {
    path: PathBuf,
    why: SqliteOpenErrorKind,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Debug)]
pub(super) enum SqliteOpenErrorKind {
    InUse,
    InUseByAnotherName,
    HardLinks(u64),
    MountPoint,
    Missing,
    Folder,
    NoFolder,
    Permission,
    ReadOnly,
    Full,
    Busy,
    Older,
    Gone,
    NotADatabase,
    Corrupt(String),
    Foreign,
    NoWal(String),
    Schema(MigrationRejection),
    Copied(CopyRole),
    TooOld(String),
    Other(String),
}

impl fmt::Display for SqliteOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            SqliteOpenErrorKind::InUse => write!(
                f,
                "{path} is in use by another hookonce (it holds {path}.lock); stop that one, or use another store for \
                 this one"
            ),
            SqliteOpenErrorKind::InUseByAnotherName => write!(
                f,
                "{path} is in use by another hookonce, which opened the same file under another name (a symlink or a bind \
                 mount), or whose {path}.lock was removed since; stop that one, or use another store for this one"
            ),
            SqliteOpenErrorKind::HardLinks(count) => write!(
                f,
                "{path} is one of {count} hard links to the same file. SQLite keeps a WAL beside each name, so what is \
                 written under one name is missing under the others. Stop what uses them, keep one name and remove the \
                 others; `find DIR -samefile {path}` finds them"
            ),
            SqliteOpenErrorKind::MountPoint => write!(
                f,
                "{path} is itself a mount point: a single file that was mounted, as by `-v` of a container. SQLite keeps \
                 its WAL {path}-wal beside this name, outside of the mount. There it is lost with the container, and it is \
                 missing under the file's other name. Stop what uses the file, mount the folder that it is in, and use the \
                 path of the file in that folder"
            ),
            SqliteOpenErrorKind::Missing => {
                write!(f, "there is no database at {path}; `hookonce serve` creates it, or check the path")
            }
            SqliteOpenErrorKind::Folder => {
                write!(f, "{path} is a folder; give the path of the database in it, such as {path}/hookonce.db")
            }
            SqliteOpenErrorKind::NoFolder => write!(f, "the folder of {path} does not exist; create it first"),
            SqliteOpenErrorKind::Permission => {
                write!(f, "no permission to open {path}; it and its folder must belong to the user that runs hookonce")
            }
            SqliteOpenErrorKind::ReadOnly => {
                write!(f, "{path} or its folder is read-only; hookonce writes to it and to files beside it")
            }
            SqliteOpenErrorKind::Full => {
                write!(f, "the disk that holds {path} is full; free some space and start again")
            }
            SqliteOpenErrorKind::Busy => {
                write!(f, "{path} is locked by another program, such as an open `sqlite3` shell; close it")
            }
            SqliteOpenErrorKind::Older => write!(
                f,
                "{path} is older than what hookonce last wrote to it: its WAL {path}-wal is damaged, truncated or gone, or an \
                 earlier copy was put in its place. Restore the right files; or, to continue without what is missing, \
                 remove {path}.lock"
            ),
            SqliteOpenErrorKind::Gone => write!(
                f,
                "{path} is gone, and {path}.lock says that hookonce has written to it. Restore it; or, to start over \
                 with an empty store, so that redelivered events act again, remove {path}.lock"
            ),
            SqliteOpenErrorKind::NotADatabase => {
                write!(f, "{path} is not an SQLite database; name a new file, or hookonce's own")
            }
            SqliteOpenErrorKind::Corrupt(what) => corrupt(f, &path, what),
            SqliteOpenErrorKind::Foreign => {
                write!(f, "{path} is another program's database; use another file for hookonce")
            }
            SqliteOpenErrorKind::NoWal(mode) => write!(
                f,
                "{path} cannot have a write-ahead log (journal mode stays \"{mode}\"): is it on a network file system? \
                 Put it on a local disk"
            ),
            SqliteOpenErrorKind::Schema(refused) => write!(f, "{path}: {refused}"),
            SqliteOpenErrorKind::Copied(mark) => f.write_str(&mark.refusal(&path)),
            SqliteOpenErrorKind::TooOld(version) => write!(
                f,
                "{path} was not opened: SQLite {version} can lose commits, hookonce needs 3.51.3 or later; build with \
                 the bundled one"
            ),
            SqliteOpenErrorKind::Other(why) => write!(f, "{path} could not be opened: {why}"),
        }
    }
}

/// Reports a corrupt file. Keys may be lost with it, and then duplicates would act again.
fn corrupt(f: &mut fmt::Formatter<'_>, path: &dyn fmt::Display, what: &str) -> fmt::Result {
    write!(
        f,
        "{path} is corrupt ({what}); keep a copy, then restore a backup, and remove the {path}-wal, {path}-shm and \
         {path}.lock that were there before it; or try `sqlite3 {path} .recover`"
    )
}

impl std::error::Error for SqliteOpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (&self.why, &self.cause) {
            (SqliteOpenErrorKind::Schema(refused), _) => Some(refused),
            (_, cause) => cause.as_deref().map(|cause| cause as _),
        }
    }
}

impl SqliteOpenError {
    /// Is it open for writing in another hookonce?
    pub fn is_in_use(&self) -> bool {
        matches!(self.why, SqliteOpenErrorKind::InUse | SqliteOpenErrorKind::InUseByAnotherName)
    }

    pub(super) fn new(path: &Path, why: SqliteOpenErrorKind) -> Self {
        Self { path: path.to_owned(), why, cause: None }
    }

    /// The error for this file from an error of the operating system.
    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => SqliteOpenErrorKind::NoFolder,
            io::ErrorKind::PermissionDenied => SqliteOpenErrorKind::Permission,
            io::ErrorKind::ReadOnlyFilesystem => SqliteOpenErrorKind::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqliteOpenErrorKind::Full,
            _ => SqliteOpenErrorKind::Other(error.to_string()),
        };
        Self { cause: Some(error.into()), ..Self::new(path, why) }
    }

    /// The error for this file from an SQLite error.
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let why = match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => SqliteOpenErrorKind::NotADatabase,
            Some(ErrorCode::DatabaseCorrupt) => SqliteOpenErrorKind::Corrupt(error.to_string()),
            Some(ErrorCode::ReadOnly) => SqliteOpenErrorKind::ReadOnly,
            Some(ErrorCode::DiskFull) => SqliteOpenErrorKind::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SqliteOpenErrorKind::Busy,
            Some(ErrorCode::PermissionDenied) => SqliteOpenErrorKind::Permission,
            _ => SqliteOpenErrorKind::Other(error.to_string()),
        };
        Self { cause: Some(error.into()), ..Self::new(path, why) }
    }

    /// The error for this file from a schema that does not fit.
    pub(super) fn schema(path: &Path, problem: SqliteMigrationError) -> Self {
        match problem {
            SqliteMigrationError::Refused(refused) => Self::new(path, SqliteOpenErrorKind::Schema(refused)),
            SqliteMigrationError::Sqlite(error) => Self::sqlite(path, error),
        }
    }
}

/// An open database, writable while the lock is held; a reader has no lock.
#[derive(Debug)]
pub struct OpenDatabase {
    /// The connection.
    pub db: Connection,
    /// The lock.
    pub lock: Option<DatabaseLock>,
}

/// Opens the file with all its settings, without migrating its schema.
pub fn open_file(path: &Path, access: SqliteAccess) -> Result<OpenDatabase, SqliteOpenError> {
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::TooOld(rusqlite::version().into())));
    }
    if path.is_dir() {
        return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Folder));
    }
    let real = &lock::real_name(path);
    // The lock is declared first, so that it is dropped last: see `lock.rs`.
    let (lock, db, is_new) = match access {
        SqliteAccess::Node | SqliteAccess::Tool | SqliteAccess::Copy => {
            lock::has_one_name(real)?;
            let names = LockFileGuard::take(path, real)?;
            let is_new = !real.exists();
            if is_new && names.mark(real)?.is_of_a_write() {
                return Err(SqliteOpenError::new(real, SqliteOpenErrorKind::Gone));
            }
            create(real)?;
            let lock = names.and_database(real)?;
            (Some(lock), connect(real, OpenFlags::SQLITE_OPEN_READ_WRITE)?, is_new)
        }
        SqliteAccess::Read if !real.exists() => return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Missing)),
        SqliteAccess::Read => {
            lock::has_one_name(real)?;
            (None, reader(real)?, false)
        }
    };
    let path = real;
    if too_short(path)? {
        return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::NotADatabase));
    }
    let ours = is_ours(&db).map_err(|error| SqliteOpenError::sqlite(path, error))?;
    if !ours {
        return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Foreign));
    }
    if let Some(lock) = &lock {
        if !is_new && !lock.mark(path)?.is_in(&db).map_err(|error| SqliteOpenError::sqlite(path, error))? {
            leave_log(&db);
            return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Older));
        }
        lock.drop_links_note(path)?;
        apply_pragmas(path, &db)?;
    }
    Ok(OpenDatabase { db, lock })
}

/// Checks that the tables are defined as expected, before any of them is used.
pub(super) fn defined(path: &Path, db: &Connection) -> Result<(), SqliteOpenError> {
    let why = match definitions::damaged(db) {
        Ok(None) => return Ok(()),
        Ok(Some(what)) => SqliteOpenError::new(path, SqliteOpenErrorKind::Corrupt(what)),
        Err(problem) => SqliteOpenError::schema(path, problem),
    };
    leave_log(db);
    Err(why)
}

/// Refuses a file that is part of a copy. The source of a finished copy may still be read.
pub(super) fn not_copied(path: &Path, db: &Connection, access: SqliteAccess) -> Result<(), SqliteOpenError> {
    let mark = match access {
        SqliteAccess::Copy => None,
        SqliteAccess::Node | SqliteAccess::Tool | SqliteAccess::Read => {
            mark_in(db).map_err(|error| SqliteOpenError::sqlite(path, error))?
        }
    };
    match mark {
        None => Ok(()),
        Some(CopyRole::Source { .. } | CopyRole::Retired { .. }) if access == SqliteAccess::Read => Ok(()),
        Some(mark) => Err(SqliteOpenError::new(path, SqliteOpenErrorKind::Copied(mark))),
    }
}

/// Checks that the file is intact enough to use. A WAL without a note of the last write may have been left beside
/// another database file: then the whole file is checked, however large. So it is after damage was met.
pub(super) fn sound(path: &Path, db: &Connection, lock: &DatabaseLock) -> Result<(), SqliteOpenError> {
    let log = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    let request = beside(path, CHECK);
    let is_asked_for = request.exists() || log > 0 && !lock.mark(path)?.is_of_a_write();
    let looks = if is_asked_for { IntegrityScope::However } else { IntegrityScope::IfSmall };
    let why = match integrity::check_and_repair(db, looks) {
        Ok(None) => {
            let _ = fs::remove_file(request); // left behind, it costs one more check
            return Ok(());
        }
        Ok(Some(what)) => SqliteOpenError::new(path, SqliteOpenErrorKind::Corrupt(what)),
        Err(error) => SqliteOpenError::sqlite(path, error),
    };
    leave_log(db);
    Err(why)
}

/// The end of the name of a file that asks the next node to check the whole database.
const CHECK: &str = "-check";

/// Lets the next node check the whole database, and repair what can be: damage was met.
pub(super) fn ask_for_check(path: &Path) {
    let mut options = OpenOptions::new();
    let _ = options.write(true).create(true).truncate(false).mode(0o600).open(beside(path, CHECK)); // a hint
}

/// Leaves the WAL in place on close, so that the damage can be inspected and repaired.
fn leave_log(db: &Connection) {
    let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
}

pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Another writing connection, for the holder of the lock.
pub(super) fn writer(path: &Path) -> Result<Connection, SqliteOpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    apply_pragmas(path, &db)?;
    Ok(db)
}

/// A read-only connection.
pub(super) fn reader(path: &Path) -> Result<Connection, SqliteOpenError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Creates the file if it is missing, accessible to its owner alone: it holds what senders sent.
fn create(path: &Path) -> Result<(), SqliteOpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(SqliteOpenError::io(path, error)),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, SqliteOpenError> {
    // Absolute, so that no name is parsed as a URI.
    let whole = std::path::absolute(path).map_err(|error| SqliteOpenError::io(path, error))?;
    let open = || {
        let db = Connection::open_with_flags(whole, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(BUSY)?;
        db.set_prepared_statement_cache_capacity(64);
        // Otherwise a statement whose plan might depend on a parameter, such as that for the owner of a key, is parsed and
        // planned anew each time.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.pragma_update(None, "cell_size_check", true)?; // detects a damaged page before it is used
        Ok(db)
    };
    open().map_err(|error: rusqlite::Error| match error.sqlite_error_code() {
        // Checked without opening the file: closing it would release the locks that this process holds on it.
        Some(ErrorCode::CannotOpen) => match rustix::fs::access(path, rustix::fs::Access::READ_OK) {
            Err(cause) => SqliteOpenError::io(path, cause.into()),
            Ok(()) => SqliteOpenError::sqlite(path, error),
        },
        _ => SqliteOpenError::sqlite(path, error),
    })
}

/// Is the file too short to be a database? SQLite would take a few bytes for an empty database, and overwrite them.
/// Only the length is checked: opening and closing the file would release the locks that this process holds on it.
fn too_short(path: &Path) -> Result<bool, SqliteOpenError> {
    let length = std::fs::metadata(path).map_err(|error| SqliteOpenError::io(path, error))?.len();
    Ok((1..512).contains(&length))
}

/// Is the database empty, or created by us? Any other is left alone.
fn is_ours(db: &Connection) -> Result<bool, rusqlite::Error> {
    let sql = "select count(*), count(*) filter (where name = 'schema_migrations') from sqlite_schema";
    let (things, ours): (i64, i64) = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(things == 0 || ours == 1)
}

/// Applies the settings that "2xx means durable" depends on.
fn apply_pragmas(path: &Path, db: &Connection) -> Result<(), SqliteOpenError> {
    let mode = db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
    match mode {
        Ok(mode) if mode == "wal" => {}
        Ok(mode) => return Err(SqliteOpenError::new(path, SqliteOpenErrorKind::NoWal(mode))),
        Err(error) => return Err(SqliteOpenError::sqlite(path, error)),
    }
    let set = || {
        db.pragma_update(None, "synchronous", "full")?;
        // Nothing that a body is packed with may be removed before it.
        db.pragma_update(None, "foreign_keys", true)?;
        db.pragma_update(None, "cache_size", WRITER_CACHE)?;
        db.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_MAX, |_| Ok(()))?;
        // We run checkpoints ourselves, so that failures are noticed.
        db.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))
    };
    set().map_err(|error| SqliteOpenError::sqlite(path, error))
}

/// A disk with less free space counts as full.
const ROOM_MIN: u64 = 1 << 20;
/// Bytes written by the probe: more than the WAL may have left over from a failed write.
const PROBE_BYTES: usize = 256 << 10;

/// Is there free space on its disk?
pub(super) fn has_room(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A file system that does not report its free space may be writable nevertheless.
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let room = disk.f_bavail.saturating_mul(disk.f_frsize);
    if room >= ROOM_MIN {
        return Ok(());
    }
    Err(StoreError::down(format!("the disk of {} is full: {} KiB left", path.display(), room >> 10)))
}

/// Writes a file next to the database, syncs it, and removes it.
pub(super) fn write_beside(path: &Path) -> Result<(), StoreError> {
    let mut beside = path.to_owned().into_os_string();
    beside.push("-probe");
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(&vec![0xa5; PROBE_BYTES])?;
        file.sync_all()
    });
    fs::remove_file(&beside).unwrap_or_default();
    written.map_err(|error| {
        StoreError::down(format!("cannot write a file next to {}: {error}", path.display())).caused_by(error)
    })
}
