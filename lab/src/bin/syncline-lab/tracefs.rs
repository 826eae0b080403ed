//! An instance of the kernel's trace of our own, removed when it is dropped.
//!
//! tracefs is used through a mount that is attached nowhere, so that nobody has to mount it. Root
//! without the right to mount, as under systemd's unit, uses that of the system.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use syncline_cli::error::plain;

/// Start of an instance's name; the number of its process follows.
const PREFIX: &str = "syncline-";

/// Where systemd has it.
const SYSTEMS: &str = "/sys/kernel/tracing";

/// A directory under `instances`, and the mount that it is on.
pub(crate) struct Instance {
    dir: PathBuf,
    _mount: OwnedFd,
}

impl Instance {
    /// Makes one; why that is not possible is part of a sentence.
    pub(crate) fn new() -> Result<Instance, String> {
        let mount = mount().map_err(explained)?;
        let root = Path::new("/proc/self/fd").join(mount.as_raw_fd().to_string());
        let instances = root.join("instances");
        remove_left_over(&instances);
        let dir = instances.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|err| refused(&err))?;
        Ok(Instance { dir, _mount: mount })
    }

    /// Writes one of its files.
    pub(crate) fn set(&self, file: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.dir.join(file), text)
            .map_err(|err| format!("tracefs: {file}: {}", plain(&err)))
    }

    /// Path of one of its files.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
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
    let context = match fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::PERM) if Path::new(SYSTEMS).join("instances").exists() => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            return openat(CWD, SYSTEMS, flags, Mode::empty());
        }
        context => context?,
    };
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// Removes instances whose process was killed: the kernel would go on to record for them. It
/// refuses to remove one whose files are open.
fn remove_left_over(instances: &Path) {
    for entry in std::fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else { continue };
        if !Path::new("/proc").join(owner.to_string()).exists() {
            // Another process may be faster.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Why there is no tracefs, with the next step.
fn explained(err: Errno) -> String {
    match err {
        Errno::NODEV => {
            "this kernel has no tracefs; run one that is built with CONFIG_FTRACE".to_owned()
        }
        err => refused(&err.into()),
    }
}

fn refused(err: &io::Error) -> String {
    format!("tracefs: {}; run as root", plain(err))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::explained;

    #[test]
    fn each_reason_names_the_next_step() {
        assert!(explained(Errno::NODEV).starts_with("this kernel has no tracefs; "));
        assert_eq!(explained(Errno::PERM), "tracefs: operation not permitted; run as root");
    }
}
