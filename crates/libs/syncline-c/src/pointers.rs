//! Arguments from C as Rust's types, answers from Rust as C's.

use std::ffi::{CStr, c_char, c_int, c_void};

use syncline::{At, Error, Result};

/// Functions that C calls. The headers document them.
///
/// The caller promises of each function: a text is null or a C string; other memory is null or as
/// large as the header says, and no other thread changes or uses it during the call; a handle is
/// null or open; a function of the caller may be called with its context.
macro_rules! exports {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block
    )*) => {
        $(
            $(#[$doc])*
            /// As the header says.
            ///
            /// # Safety
            /// The header names the demands on pointers.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? $body
        )*
    };
}
pub(crate) use exports;

/// The flag of `SYNCLINE_NOFOLLOW`.
pub(crate) const NOFOLLOW: u32 = 128;

pub(crate) fn null() -> Error {
    Error::invalid("a pointer is null; pass what the header asks for")
}

pub(crate) fn unknown_flags() -> Error {
    Error::invalid("unknown flags; pass those of syncline.h")
}

/// 0, or the negative errno.
pub(crate) fn status(done: std::result::Result<(), i32>) -> c_int {
    done.map_or_else(|errno| -errno, |()| 0)
}

/// A count, or the negative errno.
pub(crate) fn count(done: std::result::Result<u64, i32>) -> i64 {
    // Counts are lengths of buffers or file offsets below 2^63.
    done.map_or_else(|errno| -i64::from(errno), |count| i64::try_from(count).unwrap_or(i64::MAX))
}

/// # Safety
/// `text` is null or a C string that lives as long as the result.
pub(crate) unsafe fn bytes_of<'a>(text: *const c_char) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: not null, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// # Safety
/// `text` is null or a C string that lives as long as the result.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let bytes = unsafe { bytes_of(text) }?;
    let text = std::str::from_utf8(bytes);
    text.map(Some).map_err(|_| Error::invalid("a text is not UTF-8; correct it"))
}

/// # Safety
/// `from` is null or has `len` bytes that nobody changes as long as the result lives.
pub(crate) unsafe fn slice_of<'a>(from: *const c_void, len: usize) -> Result<&'a [u8]> {
    check_len(len)?;
    if len == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(null());
    }
    // SAFETY: not null, no longer than a slice may be, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) })
}

/// # Safety
/// `into` is null or has room for `len` bytes that nobody else uses as long as the result lives.
/// The memory is C's: whatever it holds are bytes.
pub(crate) unsafe fn room_of<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    check_len(len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    if into.is_null() {
        return Err(null());
    }
    // SAFETY: not null, no longer than a slice may be, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), len) })
}

fn check_len(len: usize) -> Result<()> {
    if isize::try_from(len).is_ok() {
        return Ok(());
    }
    Err(Error::invalid("a length is larger than memory; pass the size of the buffer"))
}

/// Stores a result.
///
/// # Safety
/// `into` is null or may be written to.
pub(crate) unsafe fn store<T>(into: *mut T, value: impl FnOnce() -> Result<T>) -> Result<()> {
    if into.is_null() {
        return Err(null());
    }
    let value = value()?;
    // SAFETY: not null, and the caller promises the rest.
    unsafe { into.write(value) };
    Ok(())
}

/// Copies what is asked for with a size: 0 asks for the length only.
///
/// # Safety
/// As [`room_of`].
pub(crate) unsafe fn copy_out(value: &[u8], into: *mut c_void, size: usize) -> Result<u64> {
    if size > 0 {
        // SAFETY: the caller promises it.
        let room = unsafe { room_of(into, size) }?;
        let room = room.get_mut(..value.len()).ok_or_else(|| {
            let text = format!("the buffer is too small; {} bytes are needed", value.len());
            Error::new(34, text)
        })?;
        room.copy_from_slice(value);
    }
    Ok(value.len() as u64)
}

/// The flags of a function that takes only `SYNCLINE_NOFOLLOW`.
pub(crate) fn at(flags: u32) -> Result<At> {
    match flags {
        0 => Ok(At::Follow),
        NOFOLLOW => Ok(At::Link),
        _ => Err(unknown_flags()),
    }
}

/// Permission bits.
pub(crate) fn mode(mode: u32) -> Result<u16> {
    match u16::try_from(mode) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(Error::invalid("a mode has other bits than 07777; remove them")),
    }
}
