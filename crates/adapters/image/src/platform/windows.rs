//! Windows. Names are UTF-8 in an image; what has no such form is replaced by the mark for it.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// As of `CreateFile`.
pub(crate) fn open_unwaiting(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Standard input as a file.
///
/// # Errors
/// It is closed.
pub(crate) fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

/// Reads cannot be waited for here.
///
/// # Errors
/// None.
pub(crate) fn wait_readable(_: &File, _: fn() -> bool) -> io::Result<()> {
    Ok(())
}

/// True for the error of a wait that was to stop.
pub(crate) fn is_stop(_: &io::Error) -> bool {
    false
}

/// The bytes of a name or path.
pub(crate) fn bytes_of(name: &OsStr) -> Cow<'_, [u8]> {
    match name.to_string_lossy() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A name or path of these bytes.
pub(crate) fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// Reads from a place in a file: bytes read, 0 at the end.
///
/// # Errors
/// As of `ReadFile`.
pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(into, at)
}

/// Writes all to a place in a file.
///
/// # Errors
/// As of `WriteFile`.
pub(crate) fn write_all_at(file: &File, mut from: &[u8], mut at: u64) -> io::Result<()> {
    while !from.is_empty() {
        match file.seek_write(from, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                from = from.get(n..).unwrap_or_default();
                at += n as u64;
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

/// Makes a file anew, or empties it; who may read it is the directory's business.
///
/// # Errors
/// As of `CreateFile`.
pub(crate) fn create_private(path: &Path, _: Option<u32>, new: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(!new).create_new(new).truncate(!new).open(path)
}

/// Something that is equal for one file, in place of device and inode; none if it is not there.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let whole = std::fs::canonicalize(path).ok()?;
    let mut hasher = DefaultHasher::new();
    whole.hash(&mut hasher);
    Some((0, hasher.finish()))
}

/// Locks of QEMU, through descriptors: Linux only.
pub(crate) mod locks {
    use std::fs::File;

    pub(crate) fn take(_: &File, _: i64) -> bool {
        true
    }

    pub(crate) fn is_free(_: &File, _: i64) -> bool {
        true
    }
}
