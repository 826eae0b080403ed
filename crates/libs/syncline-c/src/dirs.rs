//! Open directories.

use std::ffi::{c_char, c_int};

use parking_lot::Mutex;
use syncline::Entry;

use crate::pointers::{bytes_of, count, exports, null, status, store};
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
        Name { ino: entry.ino, kind: entry.kind.type_bits().into(), name_len: len as u32, name }
    }
}

exports! {
    fn syncline_dir_open(volume: u64, path: *const c_char, dir: *mut u64) -> c_int {
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

    fn syncline_dir_read(dir: u64, entry: *mut Name) -> c_int {
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

    fn syncline_dir_close(dir: u64) -> c_int {
        status(table::remove(dir, |object| match object {
            Object::Directory(_) => Some(Ok(())),
            _ => None,
        }))
    }
}
