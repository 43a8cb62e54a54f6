//! Wrong clocks for nodes and servers that tests start: libfaketime, for the wall clock only.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARIES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"];

fn library() -> &'static str {
    let library = LIBRARIES.into_iter().find(|path| Path::new(path).exists());
    library.expect("faketime is installed: ./test does that")
}

/// Runs a command with a clock that is off by this, in faketime's syntax: `+31d`.
pub fn wrong_clock(command: &mut Command, by: &str) {
    command.env("LD_PRELOAD", library()).env("FAKETIME", by).env("DONT_FAKE_MONOTONIC", "1");
}

/// A clock that can be set while a server uses it.
pub struct Dial {
    dir: tempfile::TempDir,
}

impl Dial {
    /// A clock that is right.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let dial = Self { dir };
        dial.set("+0");
        dial
    }

    /// Sets the clock, in faketime's syntax.
    pub fn set(&self, by: &str) {
        let (new, file) = (self.dir.path().join("new"), self.file());
        std::fs::write(&new, format!("{by}\n")).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    /// A program that runs this one with the clock.
    pub fn wrap(&self, program: &Path) -> PathBuf {
        let wrapper = self.dir.path().join("wrapped");
        let script = format!(
            "#!/bin/sh\nexport LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1 \
             FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DISABLE_SHM=1\nexec {} \"$@\"\n",
            library(),
            self.file().display(),
            program.display()
        );
        std::fs::write(&wrapper, script).unwrap();
        std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
        wrapper
    }
}
