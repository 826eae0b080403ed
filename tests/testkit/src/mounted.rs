//! A FUSE mount that a child of the test serves, in a scratch directory.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

use crate::{TempImage, e2fsck_clean, e2fsck_preen, scratch_dir};

/// Time limit of a mount or unmount in a test.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// An image, a directory, and the child that serves one in the other. Dropped, the child is killed
/// and the mount taken away.
pub struct Mounted {
    /// The image, mounted unless another source was given.
    pub image: TempImage,
    /// Directory of the mount.
    pub dir: PathBuf,
    /// Image or device that is mounted in place of `image`.
    source: Option<PathBuf>,
    _scratch: tempfile::TempDir,
    child: Option<Child>,
}

impl Mounted {
    /// Not mounted yet; `source` is what will be, the image where it is none.
    ///
    /// # Panics
    /// Without scratch space.
    pub fn prepared(image: TempImage, source: Option<PathBuf>) -> Mounted {
        let scratch = tempfile::tempdir_in(scratch_dir()).expect("scratch space");
        let dir = scratch.path().join("mnt");
        std::fs::create_dir(&dir).expect("scratch space");
        Mounted { image, dir, source, _scratch: scratch, child: None }
    }

    /// Image or device that is mounted.
    pub fn source(&self) -> &Path {
        self.source.as_deref().unwrap_or(self.image.path())
    }

    /// Starts the program that serves the mount, and waits until it does.
    ///
    /// # Panics
    /// If it ends, or does not within [`TIMEOUT`].
    pub fn serve(&mut self, command: &mut Command) {
        let child = self.child.insert(command.spawn().expect("the program runs"));
        let began = Instant::now();
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
        let above = device(self.dir.parent().expect("a scratch directory"));
        while device(&self.dir).is_none_or(|here| Some(here) == above) {
            assert!(child.try_wait().is_ok_and(|end| end.is_none()), "the mount ended at once");
            assert!(began.elapsed() < TIMEOUT, "no mount within {TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A path below the mount.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("a mount")
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Unmounts as `unmount` does, which is false while the mount is busy, and expects a clean
    /// image: a process that another test thread is just starting has our files open until its
    /// exec.
    ///
    /// # Panics
    /// If it stays busy, or the image is not clean.
    pub fn unmount_clean_by(&mut self, unmount: impl Fn(&Path) -> bool) {
        let began = Instant::now();
        while !unmount(&self.dir) {
            assert!(began.elapsed() < TIMEOUT, "{} stays busy", self.dir.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.reap();
        e2fsck_clean(self.image.path()).expect("a clean image");
    }

    /// Waits for the serving process, which ends by itself, and expects success.
    ///
    /// # Panics
    /// If it failed.
    pub fn reap(&mut self) {
        let status = self.child.take().expect("a mount").wait().expect("a child");
        assert!(status.success(), "{status}");
    }

    /// Asks the serving process to end, and expects success.
    ///
    /// # Panics
    /// If it failed.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
        self.reap();
    }

    /// Kills the serving process, as a crash of it would. The dead mount stays.
    pub fn kill_serving(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(self.child()), signal).expect("a child");
    }

    /// Takes the mount of a killed process away.
    ///
    /// # Panics
    /// If it is not mounted.
    pub fn bury(&mut self) {
        self.child.take().expect("a mount").wait().expect("a child");
        unmounted(&self.dir, UnmountFlags::DETACH);
    }

    /// Judges the image after [`Mounted::bury`]; it is recovered by e2fsck on a copy.
    pub fn recoverable(&self) -> Result<(), String> {
        e2fsck_preen(self.image.duplicate().path())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            unmounted(&self.dir, UnmountFlags::DETACH);
        }
    }
}

/// Unmounts as root, else by fusermount3; true if it is done. With `DETACH` also while it is used.
pub fn unmounted(dir: &Path, flags: UnmountFlags) -> bool {
    let lazily = flags.contains(UnmountFlags::DETACH);
    let mut helper = Command::new("fusermount3");
    helper.args(["-q", "-u"]).args(lazily.then_some("-z")).arg(dir);
    rustix::mount::unmount(dir, flags).is_ok() || helper.status().is_ok_and(|s| s.success())
}
