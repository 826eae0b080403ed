//! An image mounted by another process of this test binary, for tests through the kernel.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use syncline_device::{Clock, FileDevice, FileOptions, WallClock};
use syncline_fs::Volume;
use syncline_fuse::{FuseOptions, Mount, Setup};
use syncline_testkit::{TempImage, e2fsck_clean, scratch_dir};

/// Limit for a mount or its end, against hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Variables that make a process of this binary serve a mount: image, directory, options.
const SERVED: [&str; 3] = ["SYNCLINE_IT_IMAGE", "SYNCLINE_IT_DIR", "SYNCLINE_IT_OPTIONS"];

/// A directory for one test.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(scratch_dir()).expect("scratch space")
}

/// A mount served by a child of the test.
pub struct Mounted {
    pub image: TempImage,
    pub dir: PathBuf,
    _scratch: tempfile::TempDir,
    child: Option<Child>,
}

impl Mounted {
    /// Mounts with these `-o` options; empty: none.
    pub fn new(image: TempImage, options: &str) -> Mounted {
        let scratch = scratch();
        let dir = scratch.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let mut mounted = Mounted { image, dir, _scratch: scratch, child: None };
        mounted.mount(options);
        mounted
    }

    /// Mounts the image again.
    pub fn mount(&mut self, options: &str) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "mounted::the_serving_process", "--nocapture"]);
        let served = [self.image.path().as_os_str(), self.dir.as_os_str(), options.as_ref()];
        command.envs(SERVED.into_iter().zip(served));
        // It ends the mount when this end of its standard input goes, with the test or before.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let child = self.child.insert(child);
        let began = Instant::now();
        let above = std::fs::metadata(self.dir.parent().unwrap()).unwrap().dev();
        while !std::fs::metadata(&self.dir).is_ok_and(|here| here.dev() != above) {
            assert!(child.try_wait().unwrap().is_none(), "the mount ended at once");
            assert!(began.elapsed() < PATIENCE, "no mount within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A path below the mount.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
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
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(unmounted(&self.dir, true), "{} stays", self.dir.display());
    }

    /// Unmounts and expects a clean image.
    pub fn unmount_clean(&mut self) {
        // A process that another test thread is just starting has our files open until its exec.
        let began = Instant::now();
        while !unmounted(&self.dir, false) {
            assert!(began.elapsed() < PATIENCE, "{} stays busy", self.dir.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.child.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}");
        e2fsck_clean(self.image.path()).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            unmounted(&self.dir, true);
        }
    }
}

/// Unmounts; true if it is done. `lazily`: whoever uses it.
fn unmounted(dir: &Path, lazily: bool) -> bool {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let mut helper = Command::new("fusermount3");
    helper.args(["-q", "-u"]).args(lazily.then_some("-z")).arg(dir);
    rustix::mount::unmount(dir, flags).is_ok() || helper.status().is_ok_and(|s| s.success())
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
    let mount = Setup::new(volume, clock, options, image.into());
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
