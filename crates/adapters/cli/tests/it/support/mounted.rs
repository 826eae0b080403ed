//! An image mounted by the binary, for tests through the mount.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use syncline_testkit::{TempImage, e2fsck_clean, e2fsck_preen};

use super::binary;

/// Time limit of a mount or unmount in a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A mount served in the foreground by a child of the test.
pub struct Mounted {
    pub image: TempImage,
    pub dir: PathBuf,
    /// Image or device that is mounted in place of `image`.
    source: Option<PathBuf>,
    _scratch: tempfile::TempDir,
    child: Option<Child>,
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
        let scratch = super::scratch();
        let dir = scratch.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        Mounted { image, dir, source, _scratch: scratch, child: None }
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
        let source = self.source.as_deref().unwrap_or(self.image.path());
        command.arg(source).arg(&self.dir).stdin(Stdio::null());
        let child = self.child.insert(command.spawn().unwrap());
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

    /// Unmounts as a user would and expects a clean image.
    pub fn unmount_clean(&mut self) {
        // A process that another test thread is just starting has our files open until its exec.
        let began = Instant::now();
        loop {
            let ran = super::run(&[OsStr::new("umount"), self.dir.as_os_str()]);
            if !ran.err.contains("busy") || began.elapsed() > PATIENCE {
                assert_eq!((ran.code, ran.err.as_str()), (0, ""));
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.child.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}");
        e2fsck_clean(self.image.path()).unwrap();
    }

    /// Waits for the serving process, which ends by itself, and expects success.
    pub fn reap(&mut self) {
        let status = self.child.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Asks the serving process to end, and expects success.
    pub fn terminate(&mut self) {
        let mut child = self.child.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Kills the serving process, as a crash of it would. The dead mount stays.
    pub fn kill_serving(&self) {
        let child = self.child.as_ref().unwrap();
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// Takes the mount of a killed process away.
    pub fn bury(&mut self) {
        self.child.take().unwrap().wait().unwrap();
        detach(&self.dir);
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
            detach(&self.dir);
        }
    }
}

fn detach(dir: &Path) {
    if rustix::mount::unmount(dir, UnmountFlags::DETACH).is_err() {
        let _ = std::process::Command::new("fusermount3").args(["-u", "-z"]).arg(dir).status();
    }
}
