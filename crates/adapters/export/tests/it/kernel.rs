//! A kernel's ext4 over a loop device over an exported device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::BlockDevice;
use syncline_export::{Export, Served};
use syncline_testkit::{KernelMount, LoopDevice};

/// A mount, until it is dropped.
pub struct ExportMount {
    mount: Option<KernelMount>,
    served: Option<Served>,
    _dir: tempfile::TempDir,
}

impl ExportMount {
    /// Mounts the file system on `device` with these options.
    pub fn new(device: Arc<dyn BlockDevice>, options: &str) -> ExportMount {
        let dir = tempfile::tempdir().unwrap();
        let export = Export { device, name: "device", controls: Vec::new() };
        let served = export.serve(dir.path()).unwrap();
        let node = LoopDevice::attach_direct(&dir.path().join("device")).unwrap();
        let mount = node.mount(options).unwrap();
        ExportMount { mount: Some(mount), served: Some(served), _dir: dir }
    }

    /// A path below the root of the file system.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.as_ref().unwrap().path().join(name)
    }
}

impl Drop for ExportMount {
    fn drop(&mut self) {
        self.mount = None;
        if let Some(served) = self.served.take() {
            let _ = served.unmount();
        }
    }
}

/// Lets the kernel recover an image. False: it refuses.
pub fn mounts_once(image: &Path) -> bool {
    LoopDevice::attach(image).unwrap().mount("").is_ok()
}
