//! `secret = { dir = "callers" }`: a folder with one file per caller, named like the caller, with one secret per line.
//! It is read while the node runs: a new, changed or removed file takes effect with the next delivery.
//!
//! Each delivery checks the file's metadata, which costs about a microsecond; the file is read only if it has changed.

use super::cached_file::{CachedFile, FileFingerprint};
use crate::decide::limits::{CALLER_FILE_BYTES_MAX, CALLERS_AT_HAND, SECRETS_MAX};
use crate::decide::verify::{CallerDirectory, VerificationScheme};
use std::collections::HashMap;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::warn;

/// The folder of a source's callers: one file for each, with its secret.
pub(super) struct CallerFolder {
    path: PathBuf,
    /// The scheme that a caller's secrets are put into.
    pattern: VerificationScheme,
    at_hand: Mutex<HashMap<Arc<str>, CachedCallerFile>>,
}

/// The scheme of a caller's file; `None`: it has no usable secret.
type CachedCallerFile = CachedFile<Option<Arc<VerificationScheme>>>;

impl CallerFolder {
    pub(super) fn new(path: PathBuf, pattern: VerificationScheme) -> Self {
        Self { path, pattern, at_hand: Mutex::default() }
    }

    /// The names of all callers.
    pub(super) fn names(path: &Path) -> std::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            let file = std::fs::metadata(entry.path()).is_ok_and(|file| file.is_file());
            if file && !name.is_empty() && !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether one of this caller's secrets is short. Unreadable files are reported when they are used.
    pub(super) fn has_short(path: &Path, caller: &str, short: fn(&[u8]) -> bool) -> bool {
        let all = open(&path.join(caller)).map_err(|error| error.to_string()).and_then(secrets);
        all.is_ok_and(|all| all.iter().any(|secret| short(secret)))
    }

    /// Reads a caller's file. An invalid one is logged and treated as empty.
    fn read(&self, caller: &str) -> Option<(FileFingerprint, Option<Arc<VerificationScheme>>)> {
        let path = self.path.join(caller);
        let file = open(&path).ok()?;
        let look = FileFingerprint::of(&file.metadata().ok()?);
        let scheme = self.inside(&path).and_then(|()| secrets(file)).and_then(|all| self.pattern.with_secrets(all));
        if let Err(why) = &scheme {
            warn!(target: "hookonce", file = %path.display(), why, "caller");
        }
        Some((look, scheme.ok().map(Arc::new)))
    }

    /// Rejects a symlink that leaves the folder; links inside it are common for mounted secrets.
    fn inside(&self, path: &Path) -> Result<(), String> {
        let unread = |error: std::io::Error| format!("it cannot be read: {error}");
        let (folder, file) = (self.path.canonicalize().map_err(unread)?, path.canonicalize().map_err(unread)?);
        if file.starts_with(folder) { Ok(()) } else { Err("it is a symlink that leaves its folder".into()) }
    }
}

impl CallerDirectory for CallerFolder {
    fn scheme(&self, caller: &str) -> Option<Arc<VerificationScheme>> {
        let there = std::fs::metadata(self.path.join(caller)).ok().filter(Metadata::is_file);
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(there) = there else {
            at_hand.remove(caller);
            return None;
        };
        let known = at_hand.get(caller);
        if let Some(scheme) = known.and_then(|known| known.current(FileFingerprint::of(&there))) {
            return scheme.clone();
        }
        let now = Instant::now();
        let Some((fingerprint, scheme)) = self.read(caller) else {
            at_hand.remove(caller);
            return None;
        };
        let file = CachedFile::new(fingerprint, now, scheme.clone(), known);
        if at_hand.len() >= CALLERS_AT_HAND && !at_hand.contains_key(caller) {
            at_hand.clear();
        }
        at_hand.insert(caller.into(), file);
        scheme
    }

    fn anyone(&self) -> Option<Arc<str>> {
        Self::names(&self.path).ok()?.into_iter().next().map(Into::into)
    }
}

/// Secrets are never printed.
impl fmt::Debug for CallerFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.path.display())
    }
}

/// Opens a file without blocking: a pipe of that name would block forever.
fn open(path: &Path) -> std::io::Result<File> {
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    OpenOptions::new().read(true).custom_flags(nonblock).open(path)
}

/// The secrets in a file, one per line.
fn secrets(file: File) -> Result<Vec<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    let read = file.take(CALLER_FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > CALLER_FILE_BYTES_MAX {
        return Err("it is longer than 64 KB".into());
    }
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let all: Vec<_> = lines.filter(|line| !line.trim_ascii().is_empty()).map(<[u8]>::to_vec).collect();
    match all.len() {
        0 => Err("it has no secret".into()),
        1..=SECRETS_MAX => Ok(all),
        many => Err(format!("it has {many} secrets; at most {SECRETS_MAX} are allowed while rotating")),
    }
}
