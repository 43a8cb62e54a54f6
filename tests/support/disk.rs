//! A small disk of a test's own.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::process::Command;

/// It is there as long as this lives.
pub struct Disk(pub tempfile::TempDir);

impl Disk {
    /// One with these options of tmpfs, where we may mount one.
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

    /// Takes all the room that is left, but for so many bytes.
    pub fn fill_but(&self, left: u64) {
        let room = rustix::fs::statvfs(self.0.path()).unwrap();
        let ballast = vec![0; usize::try_from((room.f_bavail * room.f_frsize).saturating_sub(left)).unwrap()];
        std::fs::write(self.0.path().join("ballast"), ballast).unwrap();
    }

    /// Gives it back.
    pub fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}
