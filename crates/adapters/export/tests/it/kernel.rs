//! A kernel's ext4 over a loop device over an exported device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_export::{Export, Served};

/// A mount, until it is dropped.
pub struct KernelMount {
    served: Option<Served>,
    dir: tempfile::TempDir,
    node: String,
}

fn sh(command: &str) -> String {
    let done = Command::new("sh").args(["-c", command]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command}: {said}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// Lets the kernel recover an image. False: it refuses.
pub fn mounts_once(image: &Path) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t ext4 -o loop \"$0\" \"$1\" && umount \"$1\"";
    let ran = Command::new("sh").args(["-c", script]).arg(image).arg(dir.path()).output();
    ran.unwrap().status.success()
}

impl KernelMount {
    /// Mounts the file system on `device` with these options.
    pub fn new(device: Arc<dyn BlockDevice>, options: &str) -> KernelMount {
        let dir = tempfile::tempdir().unwrap();
        for name in ["served", "mnt"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let export = Export { device, name: "device", controls: Vec::new() };
        let served = export.serve(&dir.path().join("served")).unwrap();
        let at = dir.path().display();
        let node = sh(&format!("losetup -f --show --direct-io=on {at}/served/device"));
        let mount = KernelMount { served: Some(served), dir, node };
        sh(&format!("mount -t ext4 -o {options} {} {}", mount.node, mount.path("").display()));
        mount
    }

    /// A path below the root of the file system.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mnt").join(name)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path("")).status();
        let _ = Command::new("losetup").args(["-d", &self.node]).status();
        if let Some(served) = self.served.take() {
            let _ = served.unmount();
        }
    }
}
