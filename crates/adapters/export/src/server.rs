//! Mounting, serving and ending.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{getegid, geteuid};
use syncline_device::BlockDevice;

use crate::Control;
use crate::filesystem::Files;

/// Threads that serve requests: as many commands as reach the device at once.
const THREADS: usize = 4;
/// Seconds in which [`Served::unmount`] tries a busy directory again.
const BUSY_S_MAX: u64 = 2;
/// Time between two tries.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// Device and files to serve.
pub struct Export {
    /// The device behind the file.
    pub device: Arc<dyn BlockDevice>,
    /// Name of the file.
    pub name: &'static str,
    /// Texts beside it.
    pub controls: Vec<Control>,
}

/// Why a directory is not served.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The mount failed.
    #[error(
        "cannot serve in {dir}: {source}; it must be an existing directory, and FUSE must be \
         usable (/dev/fuse, fusermount3)"
    )]
    Mount {
        /// Directory of the mount.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Serving ended with an error.
    #[error("serving ended: {0}; unmount the directory and start again")]
    Session(#[from] io::Error),
}

/// A mount that another process made.
pub struct Mounted<'a> {
    /// Directory of the mount.
    pub dir: &'a Path,
    /// The device of its requests.
    pub device: OwnedFd,
    /// User and group of the files.
    pub owner: (u32, u32),
    /// Each thread has a queue of its own: this process may open /dev/fuse.
    pub own_queues: bool,
}

/// A directory that is being served, until it is dropped or unmounted.
pub struct Served {
    dir: PathBuf,
    session: BackgroundSession,
}

impl Export {
    /// Mounts at `dir` and serves in threads of its own. Ready when this returns.
    ///
    /// # Errors
    /// [`ExportError::Mount`].
    pub fn serve(self, dir: &Path) -> Result<Served, ExportError> {
        let mut config = config(true);
        config.mount_options = vec![
            MountOption::FSName("syncline-flash".into()),
            MountOption::Subtype("syncline-flash".into()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.acl = SessionACL::Owner;
        let owner = (geteuid().as_raw(), getegid().as_raw());
        let session = Session::new(Files::new(self, owner), dir, &config);
        served(dir, session)
    }

    /// As [`Export::serve`], where another process has mounted, which unmounts it too.
    ///
    /// # Errors
    /// [`ExportError::Mount`].
    pub fn serve_mounted(self, mounted: Mounted<'_>) -> Result<Served, ExportError> {
        let Mounted { dir, device, owner, own_queues } = mounted;
        let files = Files::new(self, owner);
        // The kernel keeps others out; who mounted is not who serves.
        served(dir, Session::from_fd(files, device, SessionACL::All, config(own_queues)))
    }
}

fn config(own_queues: bool) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.clone_fd = own_queues;
    config
}

fn served(dir: &Path, session: io::Result<Session<Files>>) -> Result<Served, ExportError> {
    let session = session.and_then(Session::spawn);
    let session = session.map_err(|source| ExportError::Mount { dir: dir.to_owned(), source })?;
    Ok(Served { dir: dir.to_owned(), session })
}

impl Served {
    /// True if somebody unmounted the directory, or serving failed; [`Served::wait`] returns at
    /// once then.
    pub fn finished(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Returns when the directory was unmounted by another program.
    ///
    /// # Errors
    /// [`ExportError::Session`].
    pub fn wait(self) -> Result<(), ExportError> {
        Ok(self.session.join()?)
    }

    /// Unmounts and waits for the requests under way. A directory that is busy is tried again for
    /// two seconds: a program that was just started has the files of its parent until it execs.
    ///
    /// # Errors
    /// [`ExportError::Session`].
    pub fn unmount(self) -> Result<(), ExportError> {
        // Fuser's own call gives up the session when it fails.
        let until = Instant::now() + Duration::from_secs(BUSY_S_MAX);
        loop {
            match unmount(&self.dir, UnmountFlags::empty()) {
                Ok(()) => return self.wait(),
                Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(BUSY_INTERVAL),
                // Without root it calls fusermount3.
                Err(_) => return Ok(self.session.umount_and_join()?),
            }
        }
    }
}
