//! A device of the caller: read, write and flush are C functions.

use std::ffi::{c_int, c_void};

use syncline::{BlockDevice, DeviceError, Error, Geometry, Op, Request, Result};

use crate::table::in_callback;

const SECTOR_BYTES: u64 = 512;
const REQUEST_BYTES_MAX: u64 = 512 << 10;

/// `struct syncline_device` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallerDevice {
    context: *mut c_void,
    size_bytes: u64,
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64) -> c_int>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize, u64) -> c_int>,
    flush: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// The device as the volume uses it.
pub(crate) struct Callbacks(CallerDevice);

// SAFETY: the header asks for functions that any thread may call, several at once, with `context`.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

impl Callbacks {
    pub(crate) fn new(device: CallerDevice) -> Result<Callbacks> {
        // Made first, so that a refused device is released too.
        let made = Callbacks(device);
        if device.read.is_none() {
            return Err(Error::invalid("the device has no read function; give one"));
        }
        if device.size_bytes == 0 || device.size_bytes % SECTOR_BYTES != 0 {
            return Err(Error::invalid("the device's size is no multiple of 512; correct it"));
        }
        Ok(made)
    }

    fn read_to(&self, into: &mut [u8], offset: u64) -> c_int {
        let (context, room) = (self.0.context, into.as_mut_ptr().cast());
        let read = self.0.read.expect("`new` refuses a device without it");
        // SAFETY: the header asks for a function that may be called so; `into` is that large.
        in_callback(|| unsafe { read(context, room, into.len(), offset) })
    }

    fn write_from(&self, from: &[u8], offset: u64) -> c_int {
        let write = self.0.write.expect("a device without it is read-only, which was checked");
        // SAFETY: as `read_to`.
        in_callback(|| unsafe { write(self.0.context, from.as_ptr().cast(), from.len(), offset) })
    }

    fn one(&self, request: &mut Request<'_>) -> c_int {
        let offset = request.offset_bytes;
        match &mut request.op {
            Op::Read { into } => match into.as_mut_slice() {
                [only] => self.read_to(only, offset),
                parts => {
                    let mut whole = vec![0; parts.iter().map(|part| part.len()).sum()];
                    let code = self.read_to(&mut whole, offset);
                    let mut rest = whole.as_slice();
                    for part in parts {
                        let (these, behind) = rest.split_at(part.len());
                        part.copy_from_slice(these);
                        rest = behind;
                    }
                    code
                }
            },
            Op::Write { from, .. } => match from.as_slice() {
                [only] => self.write_from(only, offset),
                parts => self.write_from(&parts.concat(), offset),
            },
            Op::Flush => match self.0.flush {
                // SAFETY: as `read_to`.
                Some(flush) => in_callback(|| unsafe { flush(self.0.context) }),
                None => 0,
            },
            Op::Discard { .. } => 0,
        }
    }
}

impl BlockDevice for Callbacks {
    fn geometry(&self) -> Geometry {
        Geometry {
            max_request_bytes: REQUEST_BYTES_MAX,
            volatile_cache: self.0.flush.is_some(),
            read_only: self.0.write.is_none(),
            ..Geometry::new(self.0.size_bytes)
        }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        let geometry = self.geometry();
        for request in batch.iter() {
            geometry.check(request)?;
        }
        for request in batch {
            let code = self.one(request);
            if code != 0 {
                return Err(DeviceError::Io {
                    op: request.name(),
                    offset_bytes: request.offset_bytes,
                    len_bytes: request.len_bytes(),
                    reason: format!("the device's function returned {code}"),
                    errno: code.checked_neg().filter(|errno| *errno > 0).unwrap_or(5),
                });
            }
        }
        Ok(())
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: as `read_to`; nothing is called after it.
            in_callback(|| unsafe { release(self.0.context) });
        }
    }
}
