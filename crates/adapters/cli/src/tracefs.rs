//! An instance of the kernel's trace of our own, removed when it is dropped.
//!
//! tracefs is used through a mount that is attached nowhere, so that nobody has to mount it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::plain;

/// A directory under `instances`, and the mount that it is on.
pub(crate) struct Instance {
    dir: PathBuf,
    _mount: OwnedFd,
}

impl Instance {
    /// Makes one; why that is not possible is part of a sentence.
    pub(crate) fn new() -> Result<Instance, String> {
        let mount = mount().map_err(|err| match err {
            rustix::io::Errno::NODEV => "this kernel has no tracefs".to_owned(),
            err => refused(&err.into()),
        })?;
        let root = Path::new("/proc/self/fd").join(mount.as_raw_fd().to_string());
        let dir = root.join("instances").join(format!("syncline-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|err| refused(&err))?;
        Ok(Instance { dir, _mount: mount })
    }

    /// Writes one of its files.
    pub(crate) fn set(&self, file: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.dir.join(file), text)
            .map_err(|err| format!("tracefs: {file}: {}", plain(&err)))
    }

    /// The events so far.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        std::fs::read(self.dir.join("trace"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The kernel removes what is in it; nothing else can be done about a failure.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// The filter of events of one block device, `device` as of stat(2). The
/// kernel's dev_t has 20 bits for the minor number.
pub(crate) fn kernel_filter(device: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("dev == {}", u64::from(major) << 20 | u64::from(minor))
}

fn mount() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn refused(err: &io::Error) -> String {
    format!("tracefs: {}; run as root", plain(err))
}
