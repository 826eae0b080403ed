//! `syncline-lab flash serve`: a device model in real time whose power can be cut.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{done, scratch};

/// A served directory; unmounted at the end, so that the server of a failed test goes away.
pub struct Serving(tempfile::TempDir);

impl Serving {
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file that is the device.
    pub fn flash(&self) -> PathBuf {
        self.path().join("flash")
    }

    pub fn start(arguments: &[&str]) -> (Serving, String) {
        let dir = scratch();
        let path = dir.path().to_str().unwrap().to_owned();
        let mut all = vec!["flash", "serve", "nexus7-emmc:streams=4", &path];
        all.extend(arguments);
        let said = done(&all);
        (Serving(dir), said.trim().to_owned())
    }

    pub fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.flash()).unwrap()
    }

    /// `cut` or `on`.
    pub fn power(&self, state: &str) {
        done(&["flash", state, self.path().to_str().unwrap()]);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Lazily: the process of a mount of its flash may be ending yet, and has it open till then.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
