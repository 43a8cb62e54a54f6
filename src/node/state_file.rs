//! The state folder: what nodes of this machine know about their stores, one small file per store.
//!
//! Nodes of one machine may share the folder and a store's file: each merges what it knows while it holds a lock on the
//! folder. A file is replaced atomically (written beside, synced, renamed), and its last line is a digest of the
//! others, so that damage is detected.

use crate::config::StateFolder;
use crate::decide::data_loss::{LastKnownStore, UnmarkedWrite, WriterMark};
use crate::decide::id::{Digest, Revision};
use crate::decide::limits;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The first line of a state file.
const FIRST_LINE: &str = "hookonce state 1";
const ENDING: &str = ".state";
/// The hint for an unreadable state file.
pub(crate) const UNREADABLE_HINT: &str = "Give hookonce's user read permission; or remove it to continue without it";

/// The file of one store.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    /// The store's address: `redis 127.0.0.1:6379/0`.
    pub place: String,
    /// Its name there: a prefix, a database.
    scope: String,
}

/// The content of a state file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StateFileContent {
    place: String,
    scope: String,
    /// What is known about the store.
    pub known: LastKnownStore,
}

/// The result of reading a state file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StateFileReadResult {
    /// No file.
    None,
    /// A valid file.
    Record(StateFileContent),
    /// A changed or truncated file, and a message.
    Damaged(String),
    /// A file that exists but cannot be read, such as for lack of permission, and why.
    Unreadable(String),
}

/// Finds the state folder, and creates it if the config or systemd names it; the error says why it is not writable.
pub(crate) fn open(folder: &StateFolder) -> Result<PathBuf, String> {
    let path = folder.path();
    if matches!(folder, StateFolder::Named(_)) {
        fs::create_dir_all(path)
            .map_err(|error| format!("the state folder {} cannot be created: {error}", path.display()))?;
    }
    let probe = path.join(format!(".probe-{}", std::process::id()));
    match File::create(&probe) {
        Ok(_) => {
            fs::remove_file(&probe).unwrap_or_default();
            Ok(path.to_owned())
        }
        Err(error) => Err(format!("the state folder {} cannot be written: {error}", path.display())),
    }
}

/// Checks that the folder can be written or created, without changing anything.
pub(crate) fn can_be_written(folder: &StateFolder) -> Result<(), String> {
    let path = folder.path();
    let mut there = path;
    if matches!(folder, StateFolder::Named(_)) {
        while let (false, Some(parent)) = (there.exists(), there.parent()) {
            there = parent;
        }
    }
    rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| format!("the state folder {} cannot be written: {}", path.display(), io::Error::from(error)))
}

impl StateFile {
    /// The file of the store with this address and name.
    pub(crate) fn new(folder: PathBuf, place: String, scope: String) -> Self {
        Self { folder, place, scope }
    }

    /// Its path: a readable name of the store, and a digest that makes it unique.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.folder, &self.place, &self.scope)
    }

    /// Reads this store's file.
    pub(crate) fn read(&self) -> StateFileReadResult {
        read(&self.path())
    }

    /// Reads files of other addresses that may belong to the same store: same epoch, same name. An unreadable file may
    /// be one of them.
    pub(crate) fn others(&self, epoch: Option<&str>) -> Vec<StateFileReadResult> {
        let own = self.path();
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|file| file.path());
        let files = files.filter(|path| path.to_string_lossy().ends_with(ENDING) && *path != own);
        let is_same = |read: &StateFileReadResult| match read {
            StateFileReadResult::Record(record) => {
                epoch.is_some() && record.known.mark.epoch.as_deref() == epoch && record.scope == self.scope
            }
            StateFileReadResult::Unreadable(_) => true,
            StateFileReadResult::None | StateFileReadResult::Damaged(_) => false,
        };
        files.take(limits::STATE_FILES_MAX).map(|path| read(&path)).filter(is_same).collect()
    }

    /// The file of this record.
    pub(crate) fn path_of(&self, record: &StateFileContent) -> PathBuf {
        path_of(&self.folder, &record.place, &record.scope)
    }

    /// Merges what a process knows into the file. Ignores it if it is about another epoch: that loss was accepted
    /// since.
    pub(crate) fn merge(&self, known: &LastKnownStore) -> io::Result<()> {
        let _lock = lock(&self.folder)?;
        let merged = match self.read() {
            StateFileReadResult::Record(record) => record.known.merged(known),
            StateFileReadResult::None | StateFileReadResult::Damaged(_) => Some(known.clone()),
            StateFileReadResult::Unreadable(why) => return Err(io::Error::other(why)),
        };
        match merged {
            Some(known) => self.write(&self.record(known)),
            None => Ok(()),
        }
    }

    /// Replaces this record.
    pub(crate) fn replace(&self, was: &StateFileContent, known: Option<LastKnownStore>) -> io::Result<()> {
        let _lock = lock(&self.folder)?;
        match known {
            Some(known) => self.write(&StateFileContent { known, ..was.clone() }),
            None => fs::remove_file(self.path_of(was)),
        }
    }

    fn record(&self, known: LastKnownStore) -> StateFileContent {
        StateFileContent { place: self.place.clone(), scope: self.scope.clone(), known }
    }

    fn write(&self, record: &StateFileContent) -> io::Result<()> {
        let path = self.path_of(record);
        let beside = path.with_extension(format!("tmp-{}", std::process::id()));
        let written = (|| {
            let mut file = File::create(&beside)?;
            file.write_all(text(record).as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.folder)?.sync_all()
        })();
        if written.is_err() {
            fs::remove_file(&beside).unwrap_or_default();
        }
        written
    }
}

/// Held until it is dropped.
fn lock(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn path_of(folder: &Path, place: &str, scope: &str) -> PathBuf {
    let tame = |text: &str| -> String {
        let mut text: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        text.truncate(80);
        text
    };
    let digest = Digest::of(format!("{place}\n{scope}").as_bytes());
    folder.join(format!("{}-{}{ENDING}", tame(place), hex::encode(&digest.0[..4])))
}

fn read(path: &Path) -> StateFileReadResult {
    let mut bytes = Vec::new();
    let file = File::open(path);
    match file.and_then(|file| file.take(limits::STATE_FILE_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return StateFileReadResult::None;
        }
        Err(error) => return StateFileReadResult::Unreadable(format!("{} cannot be read: {error}", path.display())),
    }
    match std::str::from_utf8(&bytes).ok().and_then(parse) {
        Some(record) => StateFileReadResult::Record(record),
        None => StateFileReadResult::Damaged(format!("{} is damaged", path.display())),
    }
}

fn text(record: &StateFileContent) -> String {
    let StateFileContent { place, scope, known } = record;
    let mut lines =
        vec![FIRST_LINE.to_owned(), format!("store {place}"), format!("name {scope}"), format!("mark {}", known.mark)];
    lines.extend(known.writers.iter().map(|writer| format!("writer {} {}", hex::encode(writer.name), writer.wrote)));
    lines.extend(
        known
            .unmarked
            .iter()
            .map(|write| format!("write {} {} {}", write.event, write.revision.0, hex::encode(write.by))),
    );
    let text = lines.join("\n") + "\n";
    let digest = hex::encode(Digest::of(text.as_bytes()).0);
    format!("{text}digest {digest}\n")
}

fn parse(text: &str) -> Option<StateFileContent> {
    let at = text.rfind("digest ")?;
    let (body, digest) = text.split_at(at);
    if digest != format!("digest {}\n", hex::encode(Digest::of(body.as_bytes()).0)) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let place = lines.next()?.strip_prefix("store ")?.to_owned();
    let scope = lines.next()?.strip_prefix("name ")?.to_owned();
    let mut known = LastKnownStore::at(lines.next()?.strip_prefix("mark ")?.parse().ok()?);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["writer", name, wrote] => {
                known.writers.push(WriterMark { name: name_of(name)?, wrote: wrote.parse().ok()? });
            }
            ["write", event, revision, by] => known.unmarked.push(UnmarkedWrite {
                event: event.parse().ok()?,
                revision: Revision(revision.parse().ok()?),
                by: name_of(by)?,
            }),
            _ => return None,
        }
    }
    Some(StateFileContent { place, scope, known })
}

fn name_of(text: &str) -> Option<[u8; 16]> {
    let mut name = [0; 16];
    hex::decode_to_slice(text, &mut name).ok()?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::id::EventId;

    fn known(mark: &str) -> LastKnownStore {
        LastKnownStore {
            writers: vec![WriterMark { name: [7; 16], wrote: 42 }],
            unmarked: vec![UnmarkedWrite { event: EventId([9; 16]), revision: Revision(3), by: [8; 16] }],
            ..LastKnownStore::at(mark.parse().expect("a mark"))
        }
    }

    fn file(folder: &Path, place: &str, scope: &str) -> StateFile {
        StateFile::new(folder.to_owned(), place.to_owned(), scope.to_owned())
    }

    fn read_known(file: &StateFile) -> Option<LastKnownStore> {
        match file.read() {
            StateFileReadResult::Record(record) => Some(record.known),
            StateFileReadResult::None | StateFileReadResult::Damaged(_) | StateFileReadResult::Unreadable(_) => None,
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().expect("a folder");
        for (place, mark) in
            [("redis h:1/0", "ab:5"), ("postgres h:1,i:2/db", "7:1-0/5"), ("postgres x/y", "unknown:3")]
        {
            let file = file(dir.path(), place, "name");
            assert_eq!(file.read(), StateFileReadResult::None);
            file.merge(&known(mark)).expect("written");
            assert_eq!(read_known(&file), Some(known(mark)));
        }
        let names: Vec<_> = fs::read_dir(dir.path()).expect("a folder").flatten().map(|file| file.path()).collect();
        assert!(names.len() == 3 && names.iter().all(|name| name.to_string_lossy().ends_with(ENDING)), "{names:?}");
    }

    #[test]
    fn a_file_that_was_changed_or_cut_is_damaged_and_not_believed() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(dir.path(), "redis h:1/0", "a");
        file.merge(&known("ab:5")).expect("written");
        let whole = fs::read(file.path()).expect("a file");
        for cut in 0..whole.len() {
            fs::write(file.path(), &whole[..cut]).expect("written");
            assert!(matches!(file.read(), StateFileReadResult::Damaged(_)), "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(file.path(), changed).expect("written");
            assert!(matches!(file.read(), StateFileReadResult::Damaged(_)), "{at}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_neither_missing_nor_written_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(dir.path(), "redis h:1/0", "a");
        fs::create_dir(file.path()).expect("a folder in its place");
        assert!(matches!(file.read(), StateFileReadResult::Unreadable(_)));
        assert!(file.merge(&known("ab:5")).is_err() && file.path().is_dir());
        let other = self::file(dir.path(), "redis i:1/0", "a");
        assert!(matches!(other.others(Some("ab"))[..], [StateFileReadResult::Unreadable(_)]), "it may be of any store");
        fs::remove_dir(file.path()).expect("removed");
        file.merge(&known("ab:5")).expect("written");
    }

    #[test]
    fn two_stores_never_share_a_file_and_one_store_is_known_by_its_epoch_elsewhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let one = file(dir.path(), "redis h:1/0", "a");
        for (place, scope) in [("redis h:1/0", "b"), ("redis h-1/0", "a"), ("redis h:1/1", "a")] {
            assert_ne!(file(dir.path(), place, scope).path(), one.path(), "{place} {scope}");
        }
        one.merge(&known("ab:5")).expect("written");
        let moved = file(dir.path(), "redis i:1/0", "a");
        assert_eq!(moved.read(), StateFileReadResult::None);
        assert_eq!(moved.others(Some("ab")).len(), 1);
        assert!(moved.others(Some("cd")).is_empty() && moved.others(None).is_empty());
        assert!(file(dir.path(), "redis i:1/0", "b").others(Some("ab")).is_empty());
    }

    #[test]
    fn nodes_that_share_a_file_lose_nothing_of_each_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(dir.path(), "redis h:1/0", "a");
        std::thread::scope(|scope| {
            for node in 0..4_u8 {
                let file = &file;
                scope.spawn(move || {
                    for wrote in 1..=20 {
                        let writers = vec![WriterMark { name: [node; 16], wrote }];
                        let mark = format!("ab:{}", u64::from(node) * 100 + wrote).parse().expect("a mark");
                        file.merge(&LastKnownStore { writers, ..LastKnownStore::at(mark) }).expect("written");
                    }
                });
            }
        });
        let known = read_known(&file).expect("a record");
        assert_eq!(known.mark.to_string(), "ab:320");
        assert!(known.writers.len() == 4 && known.writers.iter().all(|writer| writer.wrote == 20), "{known:?}");
    }
}
