//! Opening, closing and asking volumes; errors.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use syncline::{Disk, Error, OpenOptions, Result};

use crate::callbacks::Callbacks;
pub use crate::callbacks::CallerDevice;
use crate::pointers::{bytes_of, count, exports, null, status, store, text_of};
use crate::table::{self, Object, on_volume, without};

/// `struct syncline_report` of the header.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Report {
    transactions_replayed: u32,
    blocks_replayed: u32,
    orphans: u32,
    in_memory: u32,
}

impl Report {
    pub(crate) fn of(report: &syncline::MountReport, in_memory: bool) -> Report {
        Report {
            transactions_replayed: report.transactions_replayed,
            blocks_replayed: report.blocks_replayed,
            orphans: report.orphans,
            in_memory: in_memory.into(),
        }
    }
}

/// `struct syncline_statfs` of the header.
#[repr(C)]
pub struct Space {
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    block_size: u32,
    name_len: u32,
}

exports! {
    fn syncline_version() -> *const c_char {
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
    }

    fn syncline_error(handle: u64, text: *mut c_char, size: usize) -> usize {
        let said = table::error_text(handle);
        if !text.is_null() && size > 0 {
            let len = said.len().min(size - 1);
            // SAFETY: the caller promises the room; `len` and the zero byte fit.
            unsafe {
                text.cast::<u8>().copy_from_nonoverlapping(said.as_ptr(), len);
                text.add(len).write(0);
            }
        }
        said.len()
    }
}

/// # Safety
/// `path` is null or a C string that lives as long as the result.
pub(crate) unsafe fn host_path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller promises it.
    let path = unsafe { bytes_of(path) }?;
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// # Safety
/// `options` is null or a C string.
unsafe fn options_of(options: *const c_char) -> Result<OpenOptions> {
    // SAFETY: the caller promises it.
    OpenOptions::parse(unsafe { text_of(options) }?.unwrap_or(""))
}

exports! {
    fn syncline_open(path: *const c_char, options: *const c_char, volume: *mut u64) -> c_int {
        status(without(|| {
            // SAFETY: the caller promises all three.
            let (path, options) = unsafe { (host_path(path)?, options_of(options)?) };
            let open = || Ok(table::insert(Object::Volume(Disk::open(path, &options)?)));
            // SAFETY: as above.
            unsafe { store(volume, open) }
        }))
    }

    fn syncline_open_device(device: *const CallerDevice, options: *const c_char,
                            volume: *mut u64) -> c_int {
        status(without(|| {
            // SAFETY: the caller promises it.
            let device = unsafe { device.as_ref() }.ok_or_else(null)?;
            let device = Arc::new(Callbacks::new(*device)?);
            // SAFETY: the caller promises it.
            let options = unsafe { options_of(options) }?;
            let open = || Ok(table::insert(Object::Volume(Disk::on(device, &options)?)));
            // SAFETY: the caller promises it.
            unsafe { store(volume, open) }
        }))
    }

    fn syncline_close(volume: u64) -> c_int {
        status(table::remove(volume, |object| match object {
            Object::Volume(disk) => Some(disk.close()),
            _ => None,
        }))
    }

    fn syncline_sync(volume: u64) -> c_int {
        status(on_volume(volume, Disk::sync))
    }

    fn syncline_tick(volume: u64) -> i64 {
        count(on_volume(volume, Disk::tick))
    }

    fn syncline_report(volume: u64, report: *mut Report) -> c_int {
        status(on_volume(volume, |disk| {
            if !disk.is_open() {
                return Err(Error::new(9, "the volume is closed; open it again"));
            }
            let known = Report::of(disk.opened(), disk.is_replayed_in_memory());
            // SAFETY: the caller promises it.
            unsafe { store(report, || Ok(known)) }
        }))
    }

    fn syncline_statfs(volume: u64, space: *mut Space) -> c_int {
        status(on_volume(volume, |disk| {
            let known = disk.statfs()?;
            let known = Space {
                blocks: known.blocks,
                blocks_free: known.blocks_free,
                blocks_available: known.blocks_available,
                files: known.files,
                files_free: known.files_free,
                block_size: known.block_size,
                name_len: known.name_len,
            };
            // SAFETY: the caller promises it.
            unsafe { store(space, || Ok(known)) }
        }))
    }
}
