//! The file of a secret that a sender brings by its handshake: it may be written while the node runs, by
//! `hookonce handshake` or by an operator.

use super::cached_file::{CachedFile, FileFingerprint};
use super::external_value::{ExternalValue, SecretRequirement, io_words, is_useless, read};
use super::handshake;
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::verify::{LateSecret, VerificationScheme};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The file of a secret that may come or be replaced while the node runs. It is looked at with each delivery, and read
/// again when it has changed: a secret that was removed is no longer accepted.
pub(super) struct SecretFile {
    path: PathBuf,
    /// The scheme that the secret is put into.
    pattern: VerificationScheme,
    found: Mutex<Option<CachedFile<Arc<VerificationScheme>>>>,
}

/// A late secret as the config names it.
pub(super) struct LateSecretFile {
    pub(super) path: PathBuf,
    /// Whether there is no such file yet.
    pub(super) missing: bool,
}

impl SecretFile {
    pub(super) fn new(path: PathBuf, pattern: VerificationScheme) -> Self {
        Self { path, pattern, found: Mutex::default() }
    }

    fn read(&self) -> Result<Arc<VerificationScheme>, String> {
        let file = std::fs::metadata(&self.path).map_err(|error| io_words(&error))?;
        if !file.is_file() {
            return Err("it is not a file".to_owned()); // a pipe would block
        }
        let fingerprint = FileFingerprint::of(&file);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scheme) = found.as_ref().and_then(|known| known.current(fingerprint)) {
            return Ok(scheme.clone());
        }
        let now = Instant::now();
        let secret = read(&self.path).map_err(|error| io_words(&error))?;
        if is_useless(&secret) {
            return Err("it is empty".to_owned());
        }
        let scheme = Arc::new(self.pattern.with_secrets(vec![secret])?);
        *found = Some(CachedFile::new(fingerprint, now, scheme.clone(), found.as_ref()));
        Ok(scheme)
    }
}

impl LateSecret for SecretFile {
    fn scheme(&self) -> Result<Arc<VerificationScheme>, String> {
        self.read().map_err(|why| format!("there is no secret in {} yet: {why}", self.path.display()))
    }
}

impl ConfigResolver<'_> {
    /// The file of a secret that the sender brings by a handshake.
    pub(super) fn late_secret(
        &mut self,
        name: &str,
        source: &ConfigSection<'_>,
        inner: Option<&ConfigNode>,
    ) -> Option<LateSecretFile> {
        let brought = source.sections("handshake").iter().any(|handshake| handshake::brings(handshake));
        let node = inner.or_else(|| source.node("secret")).filter(|_| brought)?;
        let table = node.table().filter(|table| table.get("env").is_none())?;
        let path = self.base.join(table.get("file")?.text()?);
        self.secret_files.insert(name.into(), path.clone());
        let missing = std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let has_folder = path.parent().is_some_and(Path::is_dir);
        if (missing && !has_folder) || self.secrets == SecretRequirement::Optional {
            return None;
        }
        if !missing {
            return Some(LateSecretFile { path, missing });
        }
        self.elsewhere.push(ExternalValue {
            what: "secret".to_owned(),
            source: None,
            from: path.display().to_string(),
            error: None,
        });
        self.diagnostics
            .warning(format!("source `{name}` has no secret yet, so it accepts no delivery"))
            .at(node.at, format!("there is no file {}", path.display()))
            .hint(format!("its sender brings it: start the node, run `hookonce handshake {name}`, create the webhook"));
        Some(LateSecretFile { path, missing })
    }
}

/// Secrets are never printed.
impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretFile({})", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::verify::SourceSecrets;

    #[test]
    fn a_secret_is_used_from_when_it_is_there_and_what_is_no_secret_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let pattern = VerificationScheme::github(SourceSecrets::new(vec![b"a decoy".to_vec()]));
        let file = SecretFile::new(path.clone(), pattern);
        assert!(file.scheme().unwrap_err().ends_with("there is no such file"));
        for useless in ["", "\n", "\0\0"] {
            std::fs::write(&path, useless).unwrap();
            assert!(file.scheme().unwrap_err().ends_with("it is empty"), "{useless:?}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(file.scheme().unwrap_err().ends_with("it is not a file"));
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "the secret\n").unwrap();
        let scheme = file.scheme().unwrap();
        let known = VerificationScheme::github(SourceSecrets::new(vec![b"the secret".to_vec()]));
        let at = crate::decide::time::Timestamp(0);
        assert_eq!(scheme.proof("", at, b"{}"), known.proof("", at, b"{}"));
        assert!(!format!("{file:?}").contains("the secret"));
        std::fs::remove_file(&path).unwrap();
        assert!(file.scheme().unwrap_err().ends_with("there is no such file"));
        std::fs::write(&path, "another one\n").unwrap();
        let another = VerificationScheme::github(SourceSecrets::new(vec![b"another one".to_vec()]));
        assert_eq!(file.scheme().unwrap().proof("", at, b"{}"), another.proof("", at, b"{}"));
    }
    #[test]
    fn a_secret_that_replaces_another_counts_even_if_the_file_looks_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let scheme = |secret: &str| VerificationScheme::github(SourceSecrets::new(vec![secret.into()]));
        let signed = |scheme: &VerificationScheme| scheme.proof("", crate::decide::time::Timestamp(0), b"{}");
        let file = SecretFile::new(path.clone(), scheme("a decoy"));
        std::fs::write(&path, "secret 0").unwrap();
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        // At once, and after what was read counts as read.
        for (n, wait) in [(1, 0), (2, 150), (3, 150)] {
            assert_eq!(signed(&file.scheme().unwrap()), signed(&scheme(&format!("secret {}", n - 1))));
            std::thread::sleep(std::time::Duration::from_millis(wait));
            file.scheme().unwrap();
            std::fs::write(&path, format!("secret {n}")).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
            assert_eq!(signed(&file.scheme().unwrap()), signed(&scheme(&format!("secret {n}"))));
        }
    }
}
