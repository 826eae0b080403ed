//! An image mounted by another process of this test binary, for tests through the kernel.

use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use syncline_device::{Clock, FileDevice, FileOptions, WallClock};
use syncline_fs::Volume;
use syncline_fuse::{FuseOptions, Mount, Rings, Setup};
use syncline_testkit::{TempImage, scratch_dir, unmounted};

/// Variables that make a process of this binary serve a mount: image, directory, options.
const SERVED: [&str; 3] = ["SYNCLINE_IT_IMAGE", "SYNCLINE_IT_DIR", "SYNCLINE_IT_OPTIONS"];

/// A directory for one test.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(scratch_dir()).expect("scratch space")
}

/// A mount served by a child of the test.
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
        let mut mounted = Mounted(syncline_testkit::Mounted::prepared(image, None));
        mounted.mount(options);
        mounted
    }

    /// Mounts the image again.
    pub fn mount(&mut self, options: &str) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "mounted::the_serving_process", "--nocapture"]);
        let served = [self.source().as_os_str(), self.dir.as_os_str(), options.as_ref()];
        command.envs(SERVED.into_iter().zip(served));
        // It ends the mount when this end of its standard input goes, with the test or before.
        self.serve(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    }

    /// The status document.
    pub fn status(&self) -> serde_json::Value {
        let mut buffer = vec![0; 1 << 16];
        let name = syncline_fuse::STATUS_XATTR;
        let len = rustix::fs::getxattr(&self.dir, name, &mut buffer[..]).unwrap();
        serde_json::from_slice(&buffer[..len]).unwrap()
    }

    /// Ends the serving process at once and takes the dead mount away.
    pub fn kill(&mut self) {
        self.kill_serving();
        self.bury();
    }

    /// Unmounts and expects a clean image.
    pub fn unmount_clean(&mut self) {
        self.unmount_clean_by(|dir| unmounted(dir, UnmountFlags::empty()));
    }
}

/// Not a test: the process that serves a mount of another test.
#[test]
fn the_serving_process() {
    let [image, dir, options] = SERVED.map(std::env::var_os);
    let (Some(image), Some(dir), Some(options)) = (image, dir, options) else { return };
    let mut options = FuseOptions::parse(&[options.to_str().unwrap()]).unwrap();
    options.volume.privileged = rustix::process::geteuid().is_root() && !options.allow_other;
    options.volume.set_id_by_caller = true;
    let read_only = options.volume.read_only;
    let device = FileOptions { read_only, ..FileOptions::default() };
    let device = FileDevice::open(Path::new(&image), device).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let volume = options.volume.clone();
    let volume = Volume::mount(Arc::new(device), Arc::clone(&clock), volume).unwrap();
    let rings = Rings::of(&options).unwrap();
    let mount = Setup::new(Path::new(&dir), volume, clock, options, image.into());
    let mount = Setup { rings, ..mount };
    let mount = Mount::start(mount, Path::new(&dir)).unwrap();
    let abandoned = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&abandoned);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Release);
    });
    while !mount.is_over() && !abandoned.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(5));
    }
    mount.end().volume.unwrap();
}
