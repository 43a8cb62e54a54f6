//! A file mounted at another path, as containers do with `-v file:file`.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounted on drop.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts the file at this path; `None` without the right to mount.
    pub fn at(place: PathBuf, file: &Path) -> Option<Self> {
        std::fs::write(&place, "").unwrap();
        Self::over(place, file)
    }

    /// The same for a folder.
    pub fn folder(place: PathBuf, folder: &Path) -> Option<Self> {
        std::fs::create_dir(&place).unwrap();
        Self::over(place, folder)
    }

    fn over(place: PathBuf, file: &Path) -> Option<Self> {
        let mounted = Command::new("mount").arg("--bind").arg(file).arg(&place).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            println!("skipped: only root may mount a file");
            return None;
        }
        Some(Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
