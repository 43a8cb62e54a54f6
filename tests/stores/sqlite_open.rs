//! Opening an SQLite file: when it is allowed, and the errors when it is not.

use crate::disk::Disk;
use crate::mounted::Mounted;
use crate::random_history::folder;
use crate::sqlite::{new, node};
use hookonce::internals::cli::migrate;
use hookonce::store::conformance::making;
use hookonce::store::sqlite::{SqliteAccess, SqliteStore};
use hookonce::store::{Store, StoreBackend, StoreError};
use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

fn check_refused(path: &Path, access: SqliteAccess, words: &str) {
    let said = match SqliteStore::open(path, access) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains(words) && said.contains(&*path.to_string_lossy()), "{said}");
}

#[tokio::test]
async fn one_node_holds_the_lock_and_readers_need_none() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let first = node(&path);
    check_refused(&path, SqliteAccess::Node, "in use by another hookonce");
    check_refused(&path, SqliteAccess::Tool, "in use by another hookonce");
    let event = new(&first, making().delivery("d1").carrying("body")).await;
    let reader = SqliteStore::open(&path, SqliteAccess::Read).unwrap();
    assert_eq!(reader.get(event.id).await.unwrap(), Some(event.clone()));
    let second = new(&first, making().delivery("d2")).await;
    assert_eq!(reader.get(second.id).await.unwrap(), Some(second), "a reader sees what was committed meanwhile");
    let refused = reader.claim(vec![making().made(reader.now()).into()]).await;
    assert!(matches!(refused, Err(StoreError::Down(_))), "{refused:?}");
    drop((first, reader));
    assert!(path.with_extension("db.lock").exists(), "the lock file stays");
    let tool = SqliteStore::open(&path, SqliteAccess::Tool).unwrap();
    assert_eq!(tool.get(event.id).await.unwrap(), Some(event));
}

#[tokio::test]
async fn a_file_is_locked_under_every_path_and_readers_need_no_lock() {
    let dir = folder();
    let (path, link) = (dir.path().join("a.db"), dir.path().join("link.db"));
    let first = node(&path);
    std::os::unix::fs::symlink("a.db", &link).unwrap();
    for access in [SqliteAccess::Node, SqliteAccess::Tool] {
        let refused = SqliteStore::open(&link, access).err().expect("it is in use").to_string();
        assert!(refused.contains("in use by another hookonce"), "{refused}");
    }
    let event = new(&first, making().delivery("d1")).await;
    let reader = SqliteStore::open(&link, SqliteAccess::Read).unwrap();
    assert_eq!(reader.get(event.id).await.unwrap(), Some(event.clone()));
    drop((reader, first));

    // The symlink is as good a path as any; the WAL and the note of the last write are beside the file itself.
    let second = node(&link);
    check_refused(&path, SqliteAccess::Node, "in use by another hookonce");
    let later = new(&second, making().delivery("d2")).await;
    assert!(dir.path().join("a.db-wal").exists() && !dir.path().join("link.db-wal").exists());
    drop(second);
    std::fs::remove_file(&link).unwrap();
    let third = node(&path);
    assert_eq!(third.get(later.id).await.unwrap(), Some(later));
    assert_eq!(third.get(event.id).await.unwrap(), Some(event));
}

#[tokio::test]
async fn the_note_of_the_last_write_may_be_beside_a_symlink_as_the_first_release_left_it() {
    let dir = folder();
    let (path, link) = (dir.path().join("a.db"), dir.path().join("link.db"));
    let (lock, links) = (dir.path().join("a.db.lock"), dir.path().join("link.db.lock"));
    std::os::unix::fs::symlink("a.db", &link).unwrap();
    let noted = async |delivery: &str| {
        let store = node(&path);
        let event = new(&store, making().delivery(delivery)).await;
        drop(store);
        (event.id, std::fs::read(&lock).unwrap())
    };
    let (gone, old) = noted("d1").await;
    let (_, newer) = noted("d2").await;
    let write = |path: &Path, note: &[u8], age: u64| {
        std::fs::write(path, note).unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000 - age)).unwrap();
    };
    Connection::open(&path).unwrap().execute("delete from events where id = ?1", [gone.0]).unwrap();

    // It was opened by its own path, then by the symlink; what it had written under its own path is removed since.
    write(&lock, &old, 60);
    write(&links, &newer, 30);
    drop(node(&link));
    assert!(std::fs::read(&lock).unwrap() == newer && std::fs::read(&links).unwrap().is_empty());
    drop(node(&path));

    // What was written last by the symlink is lost.
    write(&lock, &newer, 60);
    write(&links, &old, 30);
    let refused = SqliteStore::open(&link, SqliteAccess::Node).err().expect("it has lost a write").to_string();
    assert!(refused.contains("older than what hookonce last wrote"), "{refused}");
    assert_eq!(std::fs::read(&links).unwrap(), old, "its content is still needed");
    check_refused(&path, SqliteAccess::Node, "older than what hookonce last wrote");

    // The other way round: first by the symlink, then by its own path.
    write(&lock, &newer, 30);
    write(&links, &old, 60);
    drop(node(&link));
}

#[test]
fn a_failed_open_releases_the_lock_only_after_the_database_is_closed() {
    let dir = folder();
    let path = dir.path().join("a.db");
    drop(node(&path));
    let latest = u32::try_from(hookonce::store::schema::sqlite::MIGRATIONS.len()).unwrap();
    for round in 0..5 {
        // A WAL that takes a while to be moved into the database when that is closed.
        let db = Connection::open(&path).unwrap();
        db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        db.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        let fill = "insert or replace into schema_migrations values (?1, 'later', hex(zeroblob(10000000)), 0, ?1)";
        db.execute(fill, [latest + 1]).unwrap();
        drop(db);
        let log = dir.path().join("a.db-wal");
        assert!(log.exists(), "no WAL was left");
        let lock = std::fs::File::open(dir.path().join("a.db.lock")).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let refused = SqliteStore::open(&path, SqliteAccess::Tool).is_err();
                is_over.store(true, Ordering::SeqCst);
                refused
            });
            // The lock is tried until the other thread has it, then waited for.
            while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && !is_over.load(Ordering::SeqCst) {
                flock(&lock, FlockOperation::Unlock).unwrap();
                std::thread::yield_now();
            }
            flock(&lock, FlockOperation::LockExclusive).unwrap();
            assert!(!log.exists(), "the lock was free while the database was open (round {round})");
            assert!(opening.join().unwrap(), "it was opened");
        });
    }
}

#[tokio::test]
async fn our_lock_on_a_file_does_not_release_sqlites_own() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = node(&path);
    new(&store, making().delivery("d1")).await;
    assert!(SqliteStore::open(&path, SqliteAccess::Node).is_err());
    let elsewhere = |sql: &str| {
        let done = std::process::Command::new("sqlite3").arg(&path).arg(sql).output();
        let done = done.expect("sqlite3 is installed: ./test does that");
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    // Another process could do this only if, by SQLite's locks, no process had the file open.
    let said = elsewhere("pragma journal_mode = delete");
    assert!(said.contains("locked") || said.trim() == "wal", "{said}");
    assert_eq!(elsewhere("select count(*) from events").trim(), "1");
    assert!(dir.path().join("a.db-wal").exists(), "another process removed the WAL of an open database");
    new(&store, making().delivery("d2")).await;
    drop(store);
    assert_eq!(elsewhere("select count(*) from events").trim(), "2");
}

#[test]
fn a_file_with_several_hard_links_is_refused_under_each_of_them() {
    let dir = folder();
    let (path, other) = (dir.path().join("a.db"), dir.path().join("b.db"));
    drop(node(&path));
    std::fs::hard_link(&path, &other).unwrap();
    for name in [&path, &other] {
        for access in [SqliteAccess::Node, SqliteAccess::Tool, SqliteAccess::Read] {
            check_refused(name, access, "is one of 2 hard links to the same file");
        }
    }
    assert!(!dir.path().join("b.db-wal").exists());
    std::fs::remove_file(&other).unwrap();
    drop(node(&path));
}

#[test]
fn a_file_that_is_itself_mounted_is_refused_and_nothing_is_created_beside_it() {
    let dir = folder();
    let (path, place) = (dir.path().join("a.db"), dir.path().join("mounted.db"));
    let first = node(&path);
    let Some(mounted) = Mounted::at(place.clone(), &path) else { return };
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink("mounted.db", &link).unwrap();
    let check = || {
        for access in [SqliteAccess::Node, SqliteAccess::Tool, SqliteAccess::Copy, SqliteAccess::Read] {
            check_refused(&mounted.0, access, "mount the folder that it is in");
            let by_link = SqliteStore::open(&link, access).err().expect("it leads to the mount").to_string();
            assert!(by_link.contains("is itself a mount point"), "{by_link}");
        }
    };
    check();
    drop(first);
    check();
    for end in ["-wal", "-shm", ".lock"] {
        assert!(!dir.path().join(format!("mounted.db{end}")).exists(), "{end}");
    }
    drop(mounted);
    drop(node(&path));
}

#[test]
fn a_folder_mounted_at_another_path_works_and_is_locked() {
    let dir = folder();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    let first = node(&here.join("a.db"));
    let Some(mounted) = Mounted::folder(there, &here) else { return };
    let path = mounted.0.join("a.db");
    check_refused(&path, SqliteAccess::Node, "in use by another hookonce");
    drop(first);
    drop(node(&path));
}

#[test]
fn a_file_whose_lock_file_was_removed_is_still_locked() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let first = node(&path);
    std::fs::remove_file(dir.path().join("a.db.lock")).unwrap();
    for access in [SqliteAccess::Node, SqliteAccess::Tool] {
        check_refused(&path, access, "a.db.lock was removed since");
    }
    drop(first);
    drop(node(&path));
}

#[test]
fn a_new_file_belongs_to_its_owner_alone() {
    let dir = folder();
    let path = dir.path().join("a.db");
    let store = node(&path);
    for name in ["a.db", "a.db-wal", "a.db.lock"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(store);
}

#[test]
fn the_error_for_a_file_that_cannot_be_opened_is_a_sentence() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    check_refused(&at("none.db"), SqliteAccess::Read, "there is no database");
    assert!(!at("none.db").exists());
    check_refused(&at("no/folder.db"), SqliteAccess::Node, "does not exist");
    std::fs::write(at("text.db"), "this is not a database, but it is long enough to be taken for one".repeat(40))
        .unwrap();
    std::fs::write(at("short.db"), "x").unwrap();
    for access in [SqliteAccess::Node, SqliteAccess::Tool, SqliteAccess::Read] {
        check_refused(&at("text.db"), access, "not an SQLite database");
        check_refused(&at("short.db"), access, "not an SQLite database");
    }
    Connection::open(at("other.db")).unwrap().execute_batch("create table users (name)").unwrap();
    check_refused(&at("other.db"), SqliteAccess::Node, "another program's database");
    std::fs::create_dir(at("folder.db")).unwrap();
    check_refused(&at("folder.db"), SqliteAccess::Node, "is a folder");

    drop(node(&at("cut.db")));
    let whole = std::fs::read(at("cut.db")).unwrap();
    std::fs::write(at("cut.db"), &whole[..8_192]).unwrap();
    check_refused(&at("cut.db"), SqliteAccess::Node, "corrupt");
}

#[test]
fn a_database_locked_by_another_program_is_reported() {
    let dir = folder();
    let path = dir.path().join("a.db");
    drop(node(&path));
    let shell = Connection::open(&path).unwrap();
    shell.execute_batch("begin immediate").unwrap();
    check_refused(&path, SqliteAccess::Node, "locked by another program");
}

#[test]
fn a_schema_that_is_too_new_too_old_or_edited_is_reported() {
    let latest = u32::try_from(hookonce::store::schema::sqlite::MIGRATIONS.len()).unwrap();
    let needs = format!("needs version {latest}; run `hookonce migrate up`");
    let dir = folder();
    let path = dir.path().join("a.db");
    migrate::up(&path, Some(2), &mut Vec::new()).unwrap();
    check_refused(&path, SqliteAccess::Tool, &needs);
    check_refused(&path, SqliteAccess::Read, &needs);
    drop(node(&path));
    let ahead = |version: u32, oldest: Option<u32>| {
        let db = Connection::open(&path).unwrap();
        db.execute("insert into schema_migrations values (?1, 'later', 'x', 0, ?2)", (version, oldest)).unwrap();
    };
    // Without an oldest version, the one before is meant; versions that only add may be many.
    for (version, oldest) in [(latest + 1, None), (latest + 2, Some(latest)), (latest + 3, Some(1))] {
        ahead(version, oldest);
        for access in [SqliteAccess::Node, SqliteAccess::Tool, SqliteAccess::Read] {
            SqliteStore::open(&path, access).unwrap();
        }
    }
    ahead(latest + 4, Some(latest + 1));
    let knows = format!(
        "schema is version {}, which needs a hookonce that knows version {}, and this hookonce knows version {latest}",
        latest + 4,
        latest + 1
    );
    for access in [SqliteAccess::Node, SqliteAccess::Tool, SqliteAccess::Read] {
        check_refused(&path, access, &knows);
    }
    let db = Connection::open(&path).unwrap();
    db.execute("delete from schema_migrations where version > ?1", [latest]).unwrap();
    db.execute_batch("update schema_migrations set checksum = 'x' where version = 2").unwrap();
    check_refused(&path, SqliteAccess::Node, "applied in another form");
}

#[test]
fn a_full_disk_is_reported() {
    let Some(disk) = Disk::mount("size=64k") else { return };
    let path = disk.0.path().join("a.db");
    let _ = std::fs::write(disk.0.path().join("ballast"), vec![0; 60 << 10]);
    check_refused(&path, SqliteAccess::Node, "is full");
    std::fs::remove_file(disk.0.path().join("ballast")).unwrap();
}

#[test]
fn a_read_only_folder_is_reported() {
    let Some(disk) = Disk::mount("ro,size=1m") else { return };
    check_refused(&disk.0.path().join("a.db"), SqliteAccess::Node, "read-only");
}
