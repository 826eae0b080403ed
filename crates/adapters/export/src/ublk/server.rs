//! A device from its start to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use syncline_device::BlockDevice;

use super::control::{self, Control};
use super::queue;
use super::requests::UblkRequests;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel has no ublk.
    #[error(
        "this kernel has no ublk: /dev/ublk-control is not there; load it with `modprobe \
         ublk_drv` (Linux 6.5 or later), or use a loop device or NBD"
    )]
    Missing,
    /// It cannot copy as we do.
    #[error(
        "this kernel's ublk is too old: it needs Linux 6.5 (UBLK_F_USER_COPY); use a loop device \
         or NBD"
    )]
    Old,
    /// Not permitted.
    #[error("a ublk device needs root; run it as root, or use NBD")]
    NotRoot,
    /// A command failed.
    #[error("ublk: {what} failed: {source}; the kernel's log may say more")]
    Command {
        /// Command that failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It was stopped while it began.
    #[error("ublk: the device was removed during its start; try again")]
    Ended,
    /// No thread, or its end.
    #[error("cannot serve: {0}; end other programs and try again")]
    Thread(#[from] io::Error),
}

/// A device that is to become a block device of the kernel.
pub struct UblkServer {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

/// A block device, until it is stopped or dropped.
pub struct UblkServed {
    node: PathBuf,
    running: Mutex<Option<(Control, JoinHandle<io::Result<()>>)>>,
}

impl UblkServer {
    /// Checks that this process may make devices, before anything is made for one.
    ///
    /// # Errors
    /// [`UblkError::Missing`], [`UblkError::NotRoot`], or the control device is broken.
    pub fn check() -> Result<(), UblkError> {
        control::open().map(drop)
    }

    /// Makes the block device and serves it in threads of its own. It can be used when this
    /// returns.
    ///
    /// # Errors
    /// All of [`UblkError`].
    pub fn serve(self) -> Result<UblkServed, UblkError> {
        let mut control = Control::add(&self.device.geometry())?;
        let (send, ready) = channel();
        let began = control.open().and_then(|file| {
            let requests = UblkRequests::new(self.device, file);
            let run = move || queue::serve(&requests, send);
            Ok(thread::Builder::new().name("ublk".into()).spawn(run)?)
        });
        let thread = match began {
            Ok(thread) => thread,
            Err(err) => {
                // The first failure is the one to report.
                let _ = control.delete();
                return Err(err);
            }
        };
        let node = control.node();
        // The kernel would wait for a queue that does not fetch; that one says why it does not.
        let started = if ready.recv().is_ok() { control.start() } else { Ok(()) };
        if started.is_ok() && !thread.is_finished() {
            return Ok(UblkServed { node, running: Mutex::new(Some((control, thread))) });
        }
        let ended = end(control, thread);
        Err(started.err().or(ended.err()).unwrap_or(UblkError::Ended))
    }
}

fn end(mut control: Control, thread: JoinHandle<io::Result<()>>) -> Result<(), UblkError> {
    let stopped = control.stop();
    let served = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    let deleted = control.delete();
    stopped?;
    deleted?;
    Ok(served?)
}

impl UblkServed {
    /// The block device.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// True if serving failed; the block device is of no use any more.
    pub fn finished(&self) -> bool {
        self.running.lock().as_ref().is_none_or(|(_, thread)| thread.is_finished())
    }

    /// True if a file system is mounted from the device, or another device of the kernel lies over
    /// it.
    pub fn in_use(&self) -> bool {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = open(&self.node, flags, Mode::empty());
        opened.is_err_and(|err| err == rustix::io::Errno::BUSY)
    }

    /// Answers what is under way and removes the block device, in use or not. Nothing is flushed
    /// that was not: the device's owner does that.
    ///
    /// # Errors
    /// [`UblkError::Command`] of the kernel's commands, [`UblkError::Thread`] if serving failed.
    pub fn stop(&self) -> Result<(), UblkError> {
        let running = self.running.lock().take();
        running.map_or(Ok(()), |(control, thread)| end(control, thread))
    }
}

impl Drop for UblkServed {
    fn drop(&mut self) {
        // Who wants to know calls it.
        let _ = self.stop();
    }
}
