//! A device from its start to its end.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use syncline_device::{BlockDevice, Geometry};

use super::control::{self, Control};
use super::queue;
use super::requests::UblkRequests;
use super::sys::UblkRing;

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

/// A block device of the kernel, whose requests a [`UblkQueue`] of any process answers.
pub struct UblkDevice {
    control: Mutex<Control>,
    node: PathBuf,
    server: u32,
}

impl UblkDevice {
    /// Checks that this process may make devices, before anything is made for one.
    ///
    /// # Errors
    /// [`UblkError::Missing`], [`UblkError::NotRoot`], or the control device is broken.
    pub fn check() -> Result<(), UblkError> {
        control::open().map(drop)
    }

    /// A device like `geometry` that the process `server` will serve, and the file of its requests.
    ///
    /// # Errors
    /// All of [`UblkError`] but [`UblkError::Ended`].
    pub fn add(geometry: &Geometry, server: u32) -> Result<(UblkDevice, File), UblkError> {
        let mut control = Control::add(geometry, server)?;
        match control.open() {
            Ok(file) => {
                let node = control.node();
                Ok((UblkDevice { control: Mutex::new(control), node, server }, file))
            }
            Err(err) => {
                // The first failure is the one to report.
                let _ = control.delete();
                Err(err)
            }
        }
    }

    /// The block device appears. Its requests are being fetched: the kernel waits for that.
    ///
    /// # Errors
    /// [`UblkError::Command`].
    pub fn start(&self) -> Result<(), UblkError> {
        self.control.lock().start(self.server)
    }

    /// Returns when everything was answered and the block device has gone, in use or not. Nothing
    /// is flushed that was not: the device's owner does that.
    ///
    /// # Errors
    /// [`UblkError::Command`].
    pub fn stop(&self) -> Result<(), UblkError> {
        self.control.lock().stop()
    }

    /// Removes the device when nobody has it open any more.
    ///
    /// # Errors
    /// [`UblkError::Command`].
    pub fn delete(&self) -> Result<(), UblkError> {
        self.control.lock().delete()
    }

    /// The block device.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// True if a file system is mounted from the device, or another device of the kernel lies over
    /// it.
    pub fn in_use(&self) -> bool {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = open(&self.node, flags, Mode::empty());
        opened.is_err_and(|err| err == rustix::io::Errno::BUSY)
    }
}

/// A thread that will answer the requests of a device.
pub struct UblkQueue {
    give: Sender<UblkRequests>,
    fetching: Receiver<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl UblkQueue {
    /// Starts the thread. It calls `fetching` when it has begun to fetch, before it sees a request.
    ///
    /// # Errors
    /// [`UblkError::Thread`].
    pub fn start(
        ring: UblkRing,
        fetching: impl FnOnce() + Send + 'static,
    ) -> Result<UblkQueue, UblkError> {
        let (give, given) = channel::<UblkRequests>();
        let (say, said) = channel();
        let run = move || match given.recv() {
            Ok(requests) => queue::serve(&requests, ring, move || {
                fetching();
                // Who asked may have given up.
                let _ = say.send(());
            }),
            Err(_) => Ok(()),
        };
        let thread = thread::Builder::new().name("ublk".into()).spawn(run)?;
        Ok(UblkQueue { give, fetching: said, thread })
    }

    /// Serves `device` through the file of its requests. The block device can be started when this
    /// returns.
    ///
    /// # Errors
    /// [`UblkError::Thread`]: the kernel does not take it.
    pub fn serve(self, device: Arc<dyn BlockDevice>, file: File) -> Result<UblkServing, UblkError> {
        let UblkQueue { give, fetching, thread } = self;
        // A thread that has ended says why.
        let _ = give.send(UblkRequests::new(device, file));
        let serving = UblkServing { thread: Mutex::new(Some(thread)) };
        match fetching.recv() {
            Ok(()) => Ok(serving),
            Err(_) => Err(serving.end().err().unwrap_or(UblkError::Ended)),
        }
    }
}

/// A device whose requests are being answered, until it is stopped.
pub struct UblkServing {
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl UblkServing {
    /// True if serving has ended or failed; the block device is of no use any more.
    pub fn finished(&self) -> bool {
        self.thread.lock().as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end, which comes when the device is stopped.
    ///
    /// # Errors
    /// [`UblkError::Thread`] if serving failed.
    pub fn end(&self) -> Result<(), UblkError> {
        let thread = self.thread.lock().take();
        let ended = thread.map_or(Ok(Ok(())), JoinHandle::join);
        Ok(ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?)
    }
}

/// A device that is to become a block device of the kernel, served by this process.
pub struct UblkServer {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

/// A block device, until it is stopped or dropped.
pub struct UblkServed {
    device: UblkDevice,
    serving: UblkServing,
    stopped: AtomicBool,
}

impl UblkServer {
    /// Makes the block device and serves it in threads of its own. It can be used when this
    /// returns.
    ///
    /// # Errors
    /// All of [`UblkError`].
    pub fn serve(self) -> Result<UblkServed, UblkError> {
        let (device, file) = UblkDevice::add(&self.device.geometry(), std::process::id())?;
        let served = UblkRing::new().map_err(UblkError::from);
        let served = served.and_then(|ring| UblkQueue::start(ring, || {}));
        let serving = match served.and_then(|queue| queue.serve(self.device, file)) {
            Ok(serving) => serving,
            Err(err) => {
                // The first failure is the one to report.
                let _ = device.delete();
                return Err(err);
            }
        };
        let started = device.start();
        let served = UblkServed { device, serving, stopped: AtomicBool::new(false) };
        if started.is_ok() && !served.finished() {
            return Ok(served);
        }
        let ended = served.stop();
        Err(started.err().or(ended.err()).unwrap_or(UblkError::Ended))
    }
}

impl UblkServed {
    /// The block device.
    pub fn node(&self) -> &Path {
        self.device.node()
    }

    /// As [`UblkServing::finished`].
    pub fn finished(&self) -> bool {
        self.serving.finished()
    }

    /// As [`UblkDevice::in_use`].
    pub fn in_use(&self) -> bool {
        self.device.in_use()
    }

    /// Answers what is under way and removes the block device, in use or not. Nothing is flushed
    /// that was not: the device's owner does that.
    ///
    /// # Errors
    /// [`UblkError::Command`] of the kernel's commands, [`UblkError::Thread`] if serving failed.
    pub fn stop(&self) -> Result<(), UblkError> {
        if self.stopped.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let stopped = self.device.stop();
        let served = self.serving.end();
        let deleted = self.device.delete();
        stopped.and(deleted).and(served)
    }
}

impl Drop for UblkServed {
    fn drop(&mut self) {
        // Who wants to know calls it.
        let _ = self.stop();
    }
}
