//! Open directories.

use std::ffi::{c_char, c_int};

use parking_lot::Mutex;
use syncline::{Entry, FileKind};

use crate::pointers::{bytes_of, count, null, status, store};
use crate::table::{self, Object, on_directory, on_volume};

/// Bytes of a name with its zero byte.
const NAME_BYTES: usize = 256;

/// `struct syncline_entry` of the header.
#[repr(C)]
pub struct Name {
    ino: u32,
    kind: u32,
    name_len: u32,
    name: [u8; NAME_BYTES],
}

impl From<&Entry> for Name {
    fn from(entry: &Entry) -> Name {
        // Names on disk have at most 255 bytes, which their length field says.
        let len = entry.name.len().min(NAME_BYTES - 1);
        let mut name = [0; NAME_BYTES];
        name[..len].copy_from_slice(&entry.name[..len]);
        Name { ino: entry.ino, kind: type_bits(entry.kind), name_len: len as u32, name }
    }
}

/// Type bits of a mode.
fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
        FileKind::Unknown => 0,
    }
}

/// As the header says.
///
/// # Safety
/// `path` is null or a C string, `dir` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_dir_open(
    volume: u64,
    path: *const c_char,
    dir: *mut u64,
) -> c_int {
    status(on_volume(volume, |disk| {
        // SAFETY: the caller promises it.
        let path = unsafe { bytes_of(path) }?;
        let open = || {
            let directory = disk.open_directory(path)?;
            Ok(table::insert(Object::Directory(Mutex::new(directory))))
        };
        // SAFETY: the caller promises it.
        unsafe { store(dir, open) }
    }))
}

/// As the header says.
///
/// # Safety
/// `entry` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_dir_read(dir: u64, entry: *mut Name) -> c_int {
    let read = on_directory(dir, |directory| {
        if entry.is_null() {
            return Err(null());
        }
        let Some(next) = directory.next_entry()? else { return Ok(0) };
        // SAFETY: the caller promises it.
        unsafe { store(entry, || Ok(Name::from(&next))) }?;
        Ok(1)
    });
    // 0, 1 or a negative errno.
    count(read) as c_int
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_dir_close(dir: u64) -> c_int {
    status(table::remove(dir, |object| match object {
        Object::Directory(_) => Some(Ok(())),
        _ => None,
    }))
}
