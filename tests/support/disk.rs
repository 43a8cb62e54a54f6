//! A small tmpfs disk, mounted for one test.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::process::Command;

/// Unmounted on drop.
pub struct Disk(pub tempfile::TempDir);

impl Disk {
    /// Mounts a disk with these tmpfs options; `None` without the right to mount.
    pub fn mount(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(dir)),
            _ => {
                println!("skipped: only root may mount a disk");
                None
            }
        }
    }

    /// Fills the disk, except for this many bytes.
    pub fn fill_but(&self, left: u64) {
        let room = rustix::fs::statvfs(self.0.path()).unwrap();
        let ballast = vec![0; usize::try_from((room.f_bavail * room.f_frsize).saturating_sub(left)).unwrap()];
        std::fs::write(self.0.path().join("ballast"), ballast).unwrap();
    }

    /// Frees what `fill_but` took.
    pub fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}
