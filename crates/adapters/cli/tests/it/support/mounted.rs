//! An image mounted by the binary, for tests through the mount.

use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use syncline_testkit::TempImage;

use super::binary;

/// A mount served in the foreground by a child of the test.
pub struct Mounted(syncline_testkit::Mounted);

impl Deref for Mounted {
    type Target = syncline_testkit::Mounted;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Mounted {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Mounted {
    /// Mounts with these `-o` options; empty: none.
    pub fn new(image: TempImage, options: &str) -> Mounted {
        let mut mounted = Mounted::prepared(image, None);
        mounted.mount(options);
        mounted
    }

    /// Not mounted yet; `source` is what will be, the image where it is none.
    pub fn prepared(image: TempImage, source: Option<PathBuf>) -> Mounted {
        Mounted(syncline_testkit::Mounted::prepared(image, source))
    }

    /// Mounts the image again.
    pub fn mount(&mut self, options: &str) {
        let mut command = binary();
        command.args(["mount", "-f"]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        self.mount_by(command);
    }

    /// Mounts with another program, which stays in the foreground.
    pub fn mount_by(&mut self, mut command: Command) {
        command.arg(self.source()).arg(&self.dir).stdin(Stdio::null());
        self.serve(&mut command);
    }

    /// Unmounts as a user would and expects a clean image.
    pub fn unmount_clean(&mut self) {
        self.unmount_clean_by(|dir| {
            let ran = super::run(&[OsStr::new("umount"), dir.as_os_str()]);
            let busy = ran.err.contains("busy");
            // A test beside this one has made a mount namespace, which holds the mount until it
            // ends.
            let elsewhere = ran.code == 0 && ran.err.contains("another mount namespace has it");
            let said = busy || elsewhere || (ran.code, ran.err.as_str()) == (0, "");
            assert!(said, "{}: {}", ran.code, ran.err);
            !busy
        });
    }
}
