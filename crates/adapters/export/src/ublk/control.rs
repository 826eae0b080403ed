//! Devices come and go: the commands of `/dev/ublk-control`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use syncline_device::Geometry;

use super::abi::{self, INFO_BYTES, IO_BYTES_MAX};
use super::server::UblkError;
use super::sys::ControlRing;

const CONTROL: &str = "/dev/ublk-control";
/// Inode of the first PID namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Devices that are looked at for those of killed processes.
const IDS: u32 = 64;
/// Time limit for udev to name the character device.
const APPEARS: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The control device.
pub(super) fn open() -> Result<File, UblkError> {
    let file = OpenOptions::new().read(true).write(true).open(CONTROL);
    file.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => UblkError::Missing,
        io::ErrorKind::PermissionDenied => UblkError::NotRoot,
        _ => UblkError::Command { what: "the control device", source },
    })
}

/// The control device, and the one device that it is for.
pub(super) struct Control {
    ring: ControlRing,
    id: u32,
}

/// True if the kernel knows no such process; /proc may hide one.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

impl Control {
    /// Adds a device with the limits of `geometry`, which the process `server` will serve; nobody
    /// sees it before [`Control::start`].
    pub(super) fn add(geometry: &Geometry, server: u32) -> Result<Control, UblkError> {
        let ring = ControlRing::new(open()?)?;
        let mut control = Control { ring, id: u32::MAX };
        control.bury();
        let bytes_max = geometry.max_request_bytes.clamp(4096, IO_BYTES_MAX.into()) as u32;
        let mut bytes = abi::new_info(bytes_max, server);
        control.command("ADD_DEV", abi::ADD_DEV, &mut bytes, 0)?;
        let made = abi::info(&bytes);
        control.id = made.id;
        let limited = if made.user_copy {
            let mut params = abi::params(geometry, made.io_bytes_max.min(bytes_max));
            control.command("SET_PARAMS", abi::SET_PARAMS, &mut params, 0)
        } else {
            Err(UblkError::Old)
        };
        match limited {
            Ok(()) => Ok(control),
            Err(err) => {
                // The first failure is the one to report.
                let _ = control.delete();
                Err(err)
            }
        }
    }

    fn command(
        &mut self,
        what: &'static str,
        number: u32,
        buffer: &mut [u8],
        data: u64,
    ) -> Result<(), UblkError> {
        let done = self.ring.command(number, self.id, buffer, data);
        done.map_err(|source| UblkError::Command { what, source })
    }

    /// Deletes the devices of our processes that are no more. Their numbers are those of the first
    /// PID namespace; in another one a live process can have none.
    fn bury(&mut self) {
        let namespace = std::fs::metadata("/proc/self/ns/pid").map(|of| of.ino());
        if !namespace.is_ok_and(|inode| inode == FIRST_PID_NAMESPACE) {
            return;
        }
        for id in 0..IDS {
            let mut bytes = [0; INFO_BYTES];
            if self.ring.command(abi::GET_DEV_INFO, id, &mut bytes, 0).is_err() {
                continue;
            }
            let maker = abi::info(&bytes).maker;
            if maker.is_some_and(is_gone) {
                // Somebody else may have been faster.
                let _ = self.ring.command(abi::DEL_DEV_ASYNC, id, &mut [], 0);
            }
        }
    }

    /// The character device. Its name may come a moment after it.
    pub(super) fn open(&self) -> Result<File, UblkError> {
        let path = format!("/dev/ublkc{}", self.id);
        let began = Instant::now();
        loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Err(err) if err.kind() == io::ErrorKind::NotFound && began.elapsed() < APPEARS => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                other => {
                    let what = "the character device";
                    return other.map_err(|source| UblkError::Command { what, source });
                }
            }
        }
    }

    /// The block device appears; every request is being fetched by now.
    pub(super) fn start(&mut self, server: u32) -> Result<(), UblkError> {
        self.command("START_DEV", abi::START_DEV, &mut [], server.into())
    }

    /// Returns when everything was answered and the block device has gone.
    pub(super) fn stop(&mut self) -> Result<(), UblkError> {
        self.command("STOP_DEV", abi::STOP_DEV, &mut [], 0)
    }

    /// Removes the device when nobody has it open any more. A kernel before 6.9 waits for that.
    pub(super) fn delete(&mut self) -> Result<(), UblkError> {
        match self.ring.command(abi::DEL_DEV_ASYNC, self.id, &mut [], 0) {
            Err(err) if err.kind() == io::ErrorKind::Unsupported => {
                self.command("DEL_DEV", abi::DEL_DEV, &mut [], 0)
            }
            other => other.map_err(|source| UblkError::Command { what: "DEL_DEV_ASYNC", source }),
        }
    }

    /// The block device.
    pub(super) fn node(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.id).into()
    }
}
