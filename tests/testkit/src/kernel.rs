//! The running kernel as a judge: loop devices and ext4 mounts that clean up after themselves.
//!
//! Both are guards: dropping them unmounts and detaches, also while a failed test unwinds. A mount
//! keeps its loop device; a [`LoopDevice`] can be mounted many times in a row, and the image file
//! may be rewritten between two mounts (the kernel drops the device's pages at its last close).
//!
//! Tests first ask `require(.., &[Need::Root, Need::Loop])`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::env::program;
use crate::image::{TempImage, copy_of};

/// Attempts to unmount a busy mount: 2 s in all.
const UNMOUNT_TRIES_MAX: u32 = 40;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// Runs a program; its output, or what it said when it failed.
fn run(name: &str, arguments: &[&std::ffi::OsStr]) -> Result<String, String> {
    let output = Command::new(program(name))
        .env("LC_ALL", "C")
        .args(arguments)
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} {arguments:?} ended with {}: {}", output.status, said.trim()))
}

/// An attached loop device.
#[derive(Debug)]
pub struct LoopDevice {
    node: PathBuf,
    image: PathBuf,
}

impl LoopDevice {
    /// Attaches `image` to a free loop device.
    pub fn attach(image: &Path) -> Result<Arc<Self>, String> {
        Self::attach_with(&[], image)
    }

    /// As [`LoopDevice::attach`], write-protected.
    pub fn attach_read_only(image: &Path) -> Result<Arc<Self>, String> {
        Self::attach_with(&["-r"], image)
    }

    /// As [`LoopDevice::attach`], past the page cache of the file.
    pub fn attach_direct(image: &Path) -> Result<Arc<Self>, String> {
        Self::attach_with(&["--direct-io=on"], image)
    }

    fn attach_with(flags: &[&str], image: &Path) -> Result<Arc<Self>, String> {
        let flags = flags.iter().chain(&["-f", "--show"]).map(std::ffi::OsStr::new);
        let arguments: Vec<_> = flags.chain([image.as_os_str()]).collect();
        let mut last = String::new();
        // Somebody else may take the free device between the question and the attachment.
        for _ in 0..10 {
            match run("losetup", &arguments) {
                Ok(node) => {
                    return Ok(Arc::new(Self { node: node.into(), image: image.to_owned() }));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The device node, `/dev/loopN`.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Mounts it as ext4. `options` as for `mount -o`, may be empty.
    pub fn mount(self: &Arc<Self>, options: &str) -> Result<KernelMount, String> {
        let dir = tempfile::Builder::new()
            .prefix("syncline-mnt-")
            .tempdir()
            .map_err(|error| format!("no directory to mount on: {error}"))?;
        let options = if options.is_empty() { "defaults" } else { options };
        run(
            "mount",
            &[
                "-t".as_ref(),
                "ext4".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                self.node.as_os_str(),
                dir.path().as_os_str(),
            ],
        )?;
        Ok(KernelMount { dir: Some(dir), device: self.clone() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let name = self.node.file_name().unwrap_or_default().to_string_lossy();
        let backing = || std::fs::read(format!("/sys/block/{name}/loop/backing_file")).ok();
        let before = backing();
        if let Err(error) = run("losetup", &["-d".as_ref(), self.node.as_os_str()]) {
            eprintln!("a loop device stays attached: {error}");
            return;
        }
        // A program that looks at the device at this moment keeps it attached until it closes it.
        for _ in 0..UNMOUNT_TRIES_MAX {
            if before.is_none() || backing() != before {
                return;
            }
            std::thread::sleep(UNMOUNT_PAUSE);
        }
        eprintln!("a loop device stays attached: {} is in use", self.node.display());
    }
}

/// An image mounted by the running kernel.
#[derive(Debug)]
pub struct KernelMount {
    /// None once unmounted.
    dir: Option<tempfile::TempDir>,
    device: Arc<LoopDevice>,
}

impl KernelMount {
    /// Mounts `image` through a loop device of its own. `options` as for `mount -o`.
    pub fn new(image: &Path, options: &str) -> Result<Self, String> {
        LoopDevice::attach(image)?.mount(options)
    }

    /// The directory where it is mounted.
    ///
    /// # Panics
    /// Never: only `unmount` takes the directory away, and it consumes the guard.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.as_ref().expect("unmount() consumes the guard").path()
    }

    /// A copy of the image as it is now on the device, while it is mounted: what a power cut right
    /// now, with everything so far written reaching the medium, leaves. Nothing may be written
    /// meanwhile, also not by the kernel's write-back (sync first, or be quicker than 5 s), or the
    /// copy shows a state that never was.
    #[must_use]
    pub fn copy_live(&self) -> TempImage {
        copy_of(&self.device.image)
    }

    /// Unmounts, with an answer; dropping does the same and can only print.
    pub fn unmount(mut self) -> Result<(), String> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), String> {
        let Some(dir) = self.dir.take() else { return Ok(()) };
        let mut result = run("umount", &[dir.path().as_os_str()]);
        // A program that another test starts at this moment has a copy of our open files between
        // its fork and its exec; the mount is busy for so long.
        for _ in 0..UNMOUNT_TRIES_MAX {
            if !result.as_ref().is_err_and(|error| error.contains("busy")) {
                break;
            }
            std::thread::sleep(UNMOUNT_PAUSE);
            result = run("umount", &[dir.path().as_os_str()]);
        }
        if let Err(error) = result {
            // A lazy unmount ends the mount once its last user is gone. The directory is kept:
            // removing it now would remove the tree on the image.
            let kept = dir.keep();
            let _ = run("umount", &["-l".as_ref(), kept.as_os_str()]);
            return Err(error);
        }
        Ok(())
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            eprintln!("the mount was given up: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageSpec, Need, e2fsck_clean, e2fsck_preen, mkfs, require};

    const NEEDS: [Need; 3] = [Need::E2fsck, Need::Root, Need::Loop];

    #[test]
    fn a_loop_device_shows_what_was_written_to_its_image() {
        if !require("a_loop_device_shows_what_was_written_to_its_image", &NEEDS) {
            return;
        }
        let spec = ImageSpec::with_size(8 << 20);
        let (image, other) = (mkfs(&spec), mkfs(&spec));
        let mount = KernelMount::new(other.path(), "").unwrap();
        std::fs::write(mount.path().join("file"), "from the other").unwrap();
        mount.unmount().unwrap();
        e2fsck_clean(other.path()).unwrap();

        let device = LoopDevice::attach(image.path()).unwrap();
        let mount = device.mount("").unwrap();
        assert!(!mount.path().join("file").exists());
        mount.unmount().unwrap();
        std::fs::write(image.path(), other.bytes()).unwrap();
        let mount = device.mount("ro").unwrap();
        assert_eq!(std::fs::read(mount.path().join("file")).unwrap(), b"from the other");
    }

    #[test]
    fn guards_clean_up_when_a_test_panics() {
        if !require("guards_clean_up_when_a_test_panics", &NEEDS) {
            return;
        }
        let image = mkfs(&ImageSpec::with_size(8 << 20));
        let path = image.path().to_owned();
        let (node, dir) = std::thread::spawn(move || {
            let mount = KernelMount::new(&path, "").unwrap();
            let names = (mount.device.node.clone(), mount.path().to_owned());
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _mount = mount;
                std::panic::resume_unwind(Box::new("a failing test"));
            }));
            assert!(caught.is_err());
            names
        })
        .join()
        .unwrap();
        assert!(!dir.exists());
        let attached = run("losetup", &["-n".as_ref(), "-O".as_ref(), "NAME,BACK-FILE".as_ref()]);
        let ours = format!("{} {}", node.display(), image.path().display());
        assert!(
            !attached
                .unwrap_or_default()
                .lines()
                .any(|l| { l.split_whitespace().collect::<Vec<_>>().join(" ") == ours })
        );
    }

    #[test]
    fn a_live_copy_needs_recovery_and_recovers() {
        if !require("a_live_copy_needs_recovery_and_recovers", &NEEDS) {
            return;
        }
        let image = mkfs(&ImageSpec::with_size(16 << 20));
        let mount = KernelMount::new(image.path(), "").unwrap();
        let file = std::fs::File::create(mount.path().join("file")).unwrap();
        file.sync_all().unwrap();
        let copy = mount.copy_live();
        drop(file);
        assert!(
            e2fsck_clean(copy.path()).is_err()
                || crate::debugfs(copy.path(), "stats -h\n").contains("needs_recovery")
        );
        e2fsck_preen(copy.path()).unwrap();
        assert!(crate::debugfs(copy.path(), "ls /\n").contains("file"));
    }

    #[test]
    fn a_mount_that_is_busy_for_a_moment_is_unmounted() {
        if !require("a_mount_that_is_busy_for_a_moment_is_unmounted", &NEEDS) {
            return;
        }
        let image = mkfs(&ImageSpec::with_size(8 << 20));
        let mount = KernelMount::new(image.path(), "").unwrap();
        let held = std::fs::File::create(mount.path().join("held")).unwrap();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        mount.unmount().unwrap();
        holder.join().unwrap();
        e2fsck_clean(image.path()).unwrap();
    }
}
