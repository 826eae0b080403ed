//! Mounting, serving and ending.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
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
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("syncline-flash".into()),
            MountOption::Subtype("syncline-flash".into()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.acl = SessionACL::Owner;
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = Session::new(Files::new(self), dir, &config)
            .and_then(Session::spawn)
            .map_err(|source| ExportError::Mount { dir: dir.to_owned(), source })?;
        Ok(Served { dir: dir.to_owned(), session })
    }
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
