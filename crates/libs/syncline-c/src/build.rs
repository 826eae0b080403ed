//! Images made of entries, one after the other.

use std::ffi::{c_char, c_int, c_void};

use parking_lot::Mutex;
use syncline::{Builder, Error, Make, Result, SetAttr};

use crate::files::Stat;
use crate::names::time_of;
use crate::pointers::{bytes_of, count, exports, null, slice_of, status, store, text_of};
use crate::table::{self, Object, end_build, on_build, without};
use crate::volumes::host_path;

/// Types of a mode.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// Devices, pipes and sockets.
const SPECIAL: [u32; 4] = [0o010_000, 0o020_000, 0o060_000, 0o140_000];
const PERMISSIONS: u32 = 0o7777;
/// Length of a UUID.
const UUID_BYTES: usize = 16;
/// Attributes of an entry: more than its inode and a block hold.
const XATTRS_MAX: usize = 1 << 16;

/// `struct syncline_build_options` of the header.
#[repr(C)]
pub struct BuildOptions {
    size_bytes: u64,
    spare_bytes: u64,
    spare_percent: u32,
    reserved: u32,
    inodes: u64,
    time_s: u64,
    label: *const c_char,
    uuid: *const u8,
    hash_seed: *const c_char,
}

impl BuildOptions {
    /// # Safety
    /// The pointers are null or as the header says.
    unsafe fn make(&self) -> Result<Make> {
        if self.reserved != 0 {
            return Err(Error::invalid(
                "`reserved` is not zero; fill the options with zeros first",
            ));
        }
        // SAFETY: the caller promises both.
        let (label, seed) = unsafe { (text_of(self.label)?, text_of(self.hash_seed)?) };
        // SAFETY: null, or the 16 bytes that the caller promises.
        let uuid = unsafe { self.uuid.cast::<[u8; UUID_BYTES]>().as_ref() };
        Ok(Make::default().with(|make| {
            make.size_bytes = (self.size_bytes > 0).then_some(self.size_bytes);
            make.spare_bytes = (self.spare_bytes > 0).then_some(self.spare_bytes);
            make.spare_percent = (self.spare_percent > 0).then_some(self.spare_percent);
            make.inodes = (self.inodes > 0).then_some(self.inodes);
            make.time_s = (self.time_s > 0).then_some(self.time_s);
            make.label = label.map(str::to_owned);
            make.uuid = uuid.copied();
            make.extended = seed.map(|seed| format!("hash_seed={seed}"));
        }))
    }
}

/// `struct syncline_xattr` of the header.
#[repr(C)]
pub struct Attribute {
    name: *const c_char,
    value: *const c_void,
    size: usize,
}

/// # Safety
/// `xattrs` is null or `count` such structures.
unsafe fn attributes<'a>(
    xattrs: *const Attribute,
    count: usize,
) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if xattrs.is_null() {
        return Err(null());
    }
    if count > XATTRS_MAX {
        return Err(Error::invalid("an entry cannot have so many attributes; pass their number"));
    }
    // SAFETY: not null, and the caller promises the rest.
    let xattrs = unsafe { std::slice::from_raw_parts(xattrs, count) };
    // SAFETY: the caller promises both.
    let pair =
        |one: &Attribute| unsafe { Ok((bytes_of(one.name)?, slice_of(one.value, one.size)?)) };
    xattrs.iter().map(pair).collect()
}

exports! {
    fn syncline_build_begin(path: *const c_char, options: *const BuildOptions,
                            build: *mut u64) -> c_int {
        status(without(|| {
            // SAFETY: the caller promises it.
            let path = unsafe { host_path(path) }?;
            // SAFETY: the caller promises it.
            let make = match unsafe { options.as_ref() } {
                // SAFETY: as above.
                Some(options) => unsafe { options.make() }?,
                None => Make::default(),
            };
            let begin = || {
                let builder = Builder::new(path, &make)?;
                Ok(table::insert(Object::Build(Box::new(Mutex::new(Some(builder))))))
            };
            // SAFETY: the caller promises it.
            unsafe { store(build, begin) }
        }))
    }

    fn syncline_build_add(build: u64, path: *const c_char, stat: *const Stat,
                          target: *const c_char, xattrs: *const Attribute,
                          count: usize) -> c_int {
        status(on_build(build, |builder| {
            // SAFETY: the caller promises all three.
            let (path, xattrs, stat) =
                unsafe { (bytes_of(path)?, attributes(xattrs, count)?, stat.as_ref()) };
            let stat = stat.ok_or_else(null)?;
            // SAFETY: these are references.
            let (atime, mtime) = unsafe { (time_of(&raw const stat.atime)?,
                                           time_of(&raw const stat.mtime)?) };
            let attr = SetAttr {
                // Other types than those below are refused.
                mode: Some(stat.mode as u16),
                uid: Some(stat.uid),
                gid: Some(stat.gid),
                atime,
                mtime,
                ..SetAttr::default()
            };
            match stat.mode & !PERMISSIONS {
                LINK => {
                    // SAFETY: the caller promises it.
                    builder.symlink(path, unsafe { bytes_of(target) }?, &attr, &xattrs)
                }
                _ if !target.is_null() => {
                    Err(Error::invalid("only a symbolic link has a target; pass NULL"))
                }
                DIRECTORY => builder.directory(path, &attr, &xattrs),
                FILE => builder.file(path, &attr, &xattrs),
                kind if SPECIAL.contains(&kind) => {
                    builder.special(path, stat.rdev, &attr, &xattrs)
                }
                _ => Err(Error::invalid("a mode has no type or other bits; add one of S_IFMT")),
            }
        }))
    }

    fn syncline_build_link(build: u64, from: *const c_char, to: *const c_char) -> c_int {
        status(on_build(build, |builder| {
            // SAFETY: the caller promises both.
            let (from, to) = unsafe { (bytes_of(from)?, bytes_of(to)?) };
            builder.link(to, from)
        }))
    }

    fn syncline_build_write(build: u64, from: *const c_void, len: usize) -> c_int {
        // SAFETY: the caller promises it.
        status(on_build(build, |builder| builder.write(unsafe { slice_of(from, len) }?)))
    }

    fn syncline_build_skip(build: u64, len: u64) -> c_int {
        status(on_build(build, |builder| builder.skip(len)))
    }

    fn syncline_build_finish(build: u64) -> i64 {
        count(end_build(build, Builder::finish))
    }

    fn syncline_build_cancel(build: u64) -> c_int {
        status(end_build(build, |builder| {
            drop(builder);
            Ok(())
        }))
    }
}
