//! Opening a database file: whether we may, whether it is one, and the settings that the promises rest on.

use super::definitions;
use super::export::mark_in;
use super::mark::Mark;
use super::mend::{self, Looks};
use crate::store::copy::CopyMark;
use crate::store::schema::Refused;
use crate::store::schema::sqlite::Problem;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::FlockOperation;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for another process's write, such as one made by hand in the `sqlite3` shell.
const BUSY: Duration = Duration::from_secs(5);
/// A node that was killed while it started a command leaves a child that holds its files for another moment: its
/// successor waits so long for the lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often it looks.
const LOCK_LOOK: Duration = Duration::from_millis(10);
/// The first release without the bug in which a reset WAL could lose a commit.
const SQLITE_MIN: i32 = 3_051_003;
/// How much of the log file is left standing after a burst.
const WAL_BYTES_MAX: i64 = 64 << 20;
/// The writer's cache of pages: a negative number counts KiB.
const WRITER_CACHE: i64 = -(16 << 10);

/// Who opens the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A node: it alone writes, brings the schema up to date and ends the leases of its predecessor.
    Node,
    /// A command that writes while no node runs.
    Tool,
    /// The same, for a copy from or into it: it heeds no mark of another.
    Copy,
    /// A reader, beside whoever writes.
    Read,
}

/// Why a database was not opened.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    InUse,
    Missing,
    Folder,
    NoFolder,
    Permission(io::Error),
    ReadOnly,
    Full,
    Busy,
    Older,
    Gone,
    NotADatabase,
    Corrupt(rusqlite::Error),
    Rotten(String),
    Foreign,
    NoWal(String),
    Schema(Refused),
    Copied(CopyMark),
    TooOld(String),
    Io(io::Error),
    Sqlite(rusqlite::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::InUse => write!(
                f,
                "{path} is in use by another hookonce (it holds {path}.lock); stop that one, or give this one a store of \
                 its own"
            ),
            Why::Missing => write!(f, "there is no database at {path}; `hookonce serve` makes it, or check the path"),
            Why::Folder => {
                write!(f, "{path} is a folder; give the path of the database in it, such as {path}/hookonce.db")
            }
            Why::NoFolder => write!(f, "the folder of {path} does not exist; make it first"),
            Why::Permission(_) => {
                write!(f, "no permission to open {path}; it and its folder must belong to the user that runs hookonce")
            }
            Why::ReadOnly => {
                write!(f, "{path} or its folder is read-only; hookonce writes there, also files beside it")
            }
            Why::Full => write!(f, "the disk that holds {path} is full; make room and start again"),
            Why::Busy => write!(f, "{path} is locked by another program, such as an open `sqlite3` shell; close it"),
            Why::Older => write!(
                f,
                "{path} is older than what hookonce last wrote to it: its log {path}-wal is damaged, cut or gone, or an \
                 earlier copy was put in its place. Put the right files back; or, to go on without what is missing, \
                 remove {path}.lock"
            ),
            Why::Gone => write!(
                f,
                "{path} is gone, and {path}.lock says that hookonce has written to it. Put it back; or, to begin anew \
                 with nothing known, so that what senders send again is done again, remove {path}.lock"
            ),
            Why::NotADatabase => {
                write!(f, "{path} is not an SQLite database; give the path of a new file, or of hookonce's own")
            }
            Why::Corrupt(error) => corrupt(f, &path, error),
            Why::Rotten(what) => corrupt(f, &path, what),
            Why::Foreign => {
                write!(f, "{path} is another program's database; give hookonce a file of its own")
            }
            Why::NoWal(mode) => write!(
                f,
                "{path} cannot have a write-ahead log (journal mode stays \"{mode}\"): is it on a network file system? \
                 Put it on a local disk"
            ),
            Why::Schema(refused) => write!(f, "{path}: {refused}"),
            Why::Copied(mark) => f.write_str(&mark.refusal(&path)),
            Why::TooOld(version) => write!(
                f,
                "{path} was not opened: SQLite {version} can lose commits, hookonce needs 3.51.3 or later; build with \
                 the bundled one"
            ),
            Why::Io(error) => write!(f, "{path} could not be opened: {error}"),
            Why::Sqlite(error) => write!(f, "{path} could not be opened: {error}"),
        }
    }
}

/// Keys may be lost with it, and what was done would be done again.
fn corrupt(f: &mut fmt::Formatter<'_>, path: &dyn fmt::Display, what: &dyn fmt::Display) -> fmt::Result {
    write!(
        f,
        "{path} is corrupt ({what}); keep a copy, then restore a backup, and remove the {path}-wal, {path}-shm and \
         {path}.lock that were there before it; or try `sqlite3 {path} .recover`"
    )
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Why::Permission(error) | Why::Io(error) => Some(error),
            Why::Corrupt(error) | Why::Sqlite(error) => Some(error),
            Why::Schema(refused) => Some(refused),
            _ => None,
        }
    }
}

impl OpenError {
    /// Another hookonce has it open to write.
    pub fn is_in_use(&self) -> bool {
        matches!(self.why, Why::InUse)
    }

    fn new(path: &Path, why: Why) -> Self {
        Self { path: path.to_owned(), why }
    }

    /// What the operating system said, as a sentence about this file.
    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => Why::NoFolder,
            io::ErrorKind::PermissionDenied => Why::Permission(error),
            io::ErrorKind::ReadOnlyFilesystem => Why::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Why::Full,
            _ => Why::Io(error),
        };
        Self::new(path, why)
    }

    /// What SQLite said, as a sentence about this file.
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let why = match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Why::NotADatabase,
            Some(ErrorCode::DatabaseCorrupt) => Why::Corrupt(error),
            Some(ErrorCode::ReadOnly) => Why::ReadOnly,
            Some(ErrorCode::DiskFull) => Why::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Why::Busy,
            Some(ErrorCode::PermissionDenied) => Why::Permission(io::ErrorKind::PermissionDenied.into()),
            _ => Why::Sqlite(error),
        };
        Self::new(path, why)
    }

    /// Why the schema does not fit.
    pub(super) fn schema(path: &Path, problem: Problem) -> Self {
        match problem {
            Problem::Refused(refused) => Self::new(path, Why::Schema(refused)),
            Problem::Sqlite(error) => Self::sqlite(path, error),
        }
    }
}

/// The lock file beside a database: held as long as this lives. The file stays.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// The note of the last write, which stands in the lock file.
    pub(super) fn mark(&self, path: &Path) -> Result<Mark, OpenError> {
        self.file.try_clone().map(Mark::read).map_err(|error| OpenError::io(path, error))
    }

    /// Takes that note back, before data is removed on purpose.
    pub fn forget_last_write(&self, path: &Path) -> Result<(), OpenError> {
        self.mark(path).map(|mut mark| mark.forget())
    }
}

/// An open database, ours to write as long as the lock lives; a reader has none.
#[derive(Debug)]
pub struct Opened {
    /// The connection.
    pub db: Connection,
    /// The lock.
    pub lock: Option<Lock>,
}

/// Opens the file with all its settings, and leaves its schema as it is.
pub fn open_file(path: &Path, access: Access) -> Result<Opened, OpenError> {
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(OpenError::new(path, Why::TooOld(rusqlite::version().into())));
    }
    if path.is_dir() {
        return Err(OpenError::new(path, Why::Folder));
    }
    let lock = match access {
        Access::Node | Access::Tool | Access::Copy => Some(take_lock(path)?),
        Access::Read => None,
    };
    let is_new = !path.exists();
    if let (true, Some(lock)) = (is_new, &lock)
        && lock.mark(path)?.is_of_a_write()
    {
        return Err(OpenError::new(path, Why::Gone));
    }
    let db = match access {
        Access::Node | Access::Tool | Access::Copy => {
            create(path)?;
            connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?
        }
        Access::Read if is_new => return Err(OpenError::new(path, Why::Missing)),
        Access::Read => reader(path)?,
    };
    if too_short(path)? {
        return Err(OpenError::new(path, Why::NotADatabase));
    }
    let ours = is_ours(&db).map_err(|error| OpenError::sqlite(path, error))?;
    if !ours {
        return Err(OpenError::new(path, Why::Foreign));
    }
    if let Some(lock) = &lock {
        if !is_new && !lock.mark(path)?.is_in(&db).map_err(|error| OpenError::sqlite(path, error))? {
            leave_log(&db);
            return Err(OpenError::new(path, Why::Older));
        }
        settle(path, &db)?;
    }
    Ok(Opened { db, lock })
}

/// Are its tables what they were? Asked before anything of them is used.
pub(super) fn defined(path: &Path, db: &Connection) -> Result<(), OpenError> {
    let why = match definitions::damaged(db) {
        Ok(None) => return Ok(()),
        Ok(Some(what)) => OpenError::new(path, Why::Rotten(what)),
        Err(problem) => OpenError::schema(path, problem),
    };
    leave_log(db);
    Err(why)
}

/// Refuses a file that is part of a copy. One that was copied away may still be looked at.
pub(super) fn not_copied(path: &Path, db: &Connection, access: Access) -> Result<(), OpenError> {
    let mark = match access {
        Access::Copy => None,
        Access::Node | Access::Tool | Access::Read => mark_in(db).map_err(|error| OpenError::sqlite(path, error))?,
    };
    match mark {
        None => Ok(()),
        Some(CopyMark::Source { .. } | CopyMark::Retired { .. }) if access == Access::Read => Ok(()),
        Some(mark) => Err(OpenError::new(path, Why::Copied(mark))),
    }
}

/// Is the file whole enough to act on? A log without a note of the last write may have been left beside a copy that was
/// put in the place of its database: then the whole file is looked through, however large.
pub(super) fn sound(path: &Path, db: &Connection, lock: &Lock) -> Result<(), OpenError> {
    let log = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    let looks = if log > 0 && !lock.mark(path)?.is_of_a_write() { Looks::However } else { Looks::IfSmall };
    let why = match mend::mend(db, looks) {
        Ok(None) => return Ok(()),
        Ok(Some(what)) => OpenError::new(path, Why::Rotten(what)),
        Err(error) => OpenError::sqlite(path, error),
    };
    leave_log(db);
    Err(why)
}

/// The log is left as it is: for who wants to look, and to be put right.
fn leave_log(db: &Connection) {
    let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// One more connection that writes, for who holds the lock.
pub(super) fn writer(path: &Path) -> Result<Connection, OpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    settle(path, &db)?;
    Ok(db)
}

/// A connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, OpenError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn take_lock(path: &Path) -> Result<Lock, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(beside(path, ".lock")).map_err(|error| OpenError::io(path, error))?;
    let patience = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { file }),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < patience => std::thread::sleep(LOCK_LOOK),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(OpenError::new(path, Why::InUse)),
            Err(error) => return Err(OpenError::io(path, error.into())),
        }
    }
}

/// Makes the file if there is none, for its owner alone: it holds what senders sent.
fn create(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::io(path, error)),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    // Absolute, so that no name is taken for a URI.
    let whole = std::path::absolute(path).map_err(|error| OpenError::io(path, error))?;
    let open = || {
        let db = Connection::open_with_flags(whole, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(BUSY)?;
        db.set_prepared_statement_cache_capacity(64);
        db.pragma_update(None, "cell_size_check", true)?; // finds a rotten page before it is believed
        Ok(db)
    };
    open().map_err(|error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => match File::open(path) {
            Err(cause) => OpenError::io(path, cause),
            Ok(_) => OpenError::sqlite(path, error),
        },
        _ => OpenError::sqlite(path, error),
    })
}

/// SQLite would take a file of a few bytes for an empty database, and write over it. Only its length is looked at:
/// to open and close the file would give back locks that this process holds on it.
fn too_short(path: &Path) -> Result<bool, OpenError> {
    let length = std::fs::metadata(path).map_err(|error| OpenError::io(path, error))?.len();
    Ok((1..512).contains(&length))
}

/// Empty, or made by us: everything else is left alone.
fn is_ours(db: &Connection) -> Result<bool, rusqlite::Error> {
    let sql = "select count(*), count(*) filter (where name = 'schema_migrations') from sqlite_schema";
    let (things, ours): (i64, i64) = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(things == 0 || ours == 1)
}

/// The settings that "2xx means durable" rests on.
fn settle(path: &Path, db: &Connection) -> Result<(), OpenError> {
    let mode = db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
    match mode {
        Ok(mode) if mode == "wal" => {}
        Ok(mode) => return Err(OpenError::new(path, Why::NoWal(mode))),
        Err(error) => return Err(OpenError::sqlite(path, error)),
    }
    let set = || {
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "cache_size", WRITER_CACHE)?;
        db.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_MAX, |_| Ok(()))?;
        // We move the log into the database ourselves, and hear when that fails.
        db.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))
    };
    set().map_err(|error| OpenError::sqlite(path, error))
}
