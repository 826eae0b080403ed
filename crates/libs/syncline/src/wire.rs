//! Calls and answers between a library and its helper process (`helper.rs`, `serve.rs`).
//!
//! ```text
//!   call     bytes of the call (u32)   bytes of data (u32)   call   data
//!   answer   bytes (u32)               result (u8)           value, or errno and sentence
//! ```
//!
//! Numbers are little-endian, texts and lists have their length before them. Each side takes the
//! other for hostile: a length above its limit ends the connection before memory is asked for, and
//! bytes that are no call or no answer are `None`, never a panic. Tested in `hostile_tests.rs`.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use syncline_fs::{
    Attr, FallocateMode, FileKind, MountReport, RenameFlags, SetAttr, SetTime, StatFs, Timestamp,
    XattrFlags,
};

use crate::directory::Entry;
use crate::error::{EIO, Error};
use crate::file::Access;
use crate::names::At;

/// Calls under way at once.
pub(crate) const CONNECTIONS_MAX: usize = 16;
/// Most bytes of a file in one message; longer reads and writes are several calls.
pub(crate) const PART_BYTES: usize = 1 << 20;
/// Longest call without its data: two paths, or an attribute with its value.
pub(crate) const CALL_BYTES_MAX: usize = 256 << 10;
/// Longest answer but for the data of a read.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Longest sentence of an error.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Result of an answer.
pub(crate) const DONE: u8 = 0;
pub(crate) const FAILED: u8 = 1;

/// A value in a message.
pub(crate) trait Wire<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// Takes it from the front; `None` if it is not there.
    fn take(from: &mut &'a [u8]) -> Option<Self>;
}

/// The value that is all of `bytes`.
pub(crate) fn whole<'a, T: Wire<'a>>(mut bytes: &'a [u8]) -> Option<T> {
    T::take(&mut bytes).filter(|_| bytes.is_empty())
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Wire<'_> for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (number, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*number))
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64 i32 i64);

impl Wire<'_> for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl Wire<'_> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        // A length that does not fit is above every limit of a message.
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut &'a [u8]) -> Option<Self> {
        let len = usize::try_from(u32::take(from)?).ok()?;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(bytes)
    }
}

impl Wire<'_> for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_slice().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        <&[u8]>::take(from).map(<[u8]>::to_vec)
    }
}

impl Wire<'_> for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        <&[u8]>::take(from).map(|text| String::from_utf8_lossy(text).into_owned())
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut &'a [u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<'a, A: Wire<'a>, B: Wire<'a>> Wire<'a> for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut &'a [u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

/// A list of what takes at least one byte each, so that its memory is bounded by its message.
macro_rules! lists {
    ($($of:ty)*) => {$(
        impl Wire<'_> for Vec<$of> {
            fn put(&self, out: &mut Vec<u8>) {
                u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
                self.iter().for_each(|value| value.put(out));
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                (0..u32::take(from)?).map(|_| <$of>::take(from)).collect()
            }
        }
    )*};
}
lists!(Vec<u8> String Entry);

/// Structures, field by field.
macro_rules! structures {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Wire<'_> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                $(let $field = Wire::take(from)?;)*
                Some($name { $($field),* })
            }
        }
    )*};
}
structures! {
    Timestamp { seconds, nanoseconds }
    Attr {
        ino, mode, uid, gid, nlink, size, blocks, blksize, rdev, atime, mtime, ctime, crtime, flags,
        generation
    }
    SetAttr { mode, uid, gid, size, atime, mtime, ctime, flags }
    Access { read, write, append, sync, create, exclusive, truncate, nofollow }
}

/// Structures that other crates complete, field by field.
macro_rules! open_structures {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Wire<'_> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let mut of = $name::default();
                $(of.$field = Wire::take(from)?;)*
                Some(of)
            }
        }
    )*};
}
open_structures! {
    StatFs { block_size, blocks, blocks_free, blocks_available, files, files_free, name_len }
    MountReport {
        transactions_replayed, fast_commits, blocks_replayed, orphans, hot_zones, hot_zone_bytes
    }
}

/// Enumerations, by the place in a list.
macro_rules! choices {
    ($($name:ident [ $($choice:ident),* ])*) => {$(
        impl Wire<'_> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let all = [$($name::$choice),*];
                let at = all.iter().position(|choice| choice == self);
                // One that is not there is none when it arrives.
                out.push(at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX));
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                [$($name::$choice),*].get(usize::from(u8::take(from)?)).copied()
            }
        }
    )*};
}
choices! {
    At [Follow, Link]
    RenameFlags [NONE, NOREPLACE, EXCHANGE]
    XattrFlags [Any, Create, Replace, CreateReplace]
    FallocateMode [Allocate, KeepSize, PunchHole, ZeroRange, ZeroRangeKeepSize]
    FileKind [Unknown, Regular, Directory, CharDevice, BlockDevice, Fifo, Socket, Symlink]
}

impl Wire<'_> for SetTime {
    fn put(&self, out: &mut Vec<u8>) {
        let at = match self {
            SetTime::Now => None,
            SetTime::At(at) => Some(*at),
        };
        at.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let at: Option<Timestamp> = Wire::take(from)?;
        Some(at.map_or(SetTime::Now, SetTime::At))
    }
}

impl Wire<'_> for Entry {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        self.ino.put(out);
        self.kind.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let name = Vec::<u8>::take(from)?;
        let plain = !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        let (ino, kind) = (Wire::take(from)?, Wire::take(from)?);
        plain.then_some(Entry { name, ino, kind })
    }
}

impl Wire<'_> for Error {
    fn put(&self, out: &mut Vec<u8>) {
        let mut len = self.text.len().min(TEXT_BYTES_MAX);
        while !self.text.is_char_boundary(len) {
            len -= 1;
        }
        self.errno.put(out);
        (&self.text.as_bytes()[..len]).put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (errno, text) = (i32::take(from)?, String::take(from)?);
        Some(Error::new(if (1..4096).contains(&errno) { errno } else { EIO }, text))
    }
}

macro_rules! calls {
    ($($number:literal $name:ident { $($field:ident: $type:ty),* })*) => {
        /// Calls of the library. Files and directories are numbers that the helper gave.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Call<'a> {
            $($name { $($field: $type),* },)*
        }

        impl<'a> Wire<'a> for Call<'a> {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Call::$name { $($field),* } => {
                        out.push($number);
                        $($field.put(out);)*
                    })*
                }
            }

            fn take(from: &mut &'a [u8]) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => Call::$name { $($field: Wire::take(from)?),* },)*
                    _ => return None,
                })
            }
        }
    };
}
calls! {
    0 Sync {}
    1 StatFs {}
    2 Tick {}
    3 Close {}
    4 OpenFile { path: &'a [u8], access: Access, mode: u16 }
    5 OpenDirectory { path: &'a [u8] }
    6 Stat { path: &'a [u8], follow: At }
    7 SetAttr { path: &'a [u8], follow: At, set: SetAttr }
    8 Mkdir { path: &'a [u8], mode: u16 }
    9 Unlink { path: &'a [u8] }
    10 Rmdir { path: &'a [u8] }
    11 Rename { from: &'a [u8], to: &'a [u8], flags: RenameFlags }
    12 Link { from: &'a [u8], to: &'a [u8] }
    13 Symlink { target: &'a [u8], path: &'a [u8] }
    14 Readlink { path: &'a [u8] }
    15 Getxattr { path: &'a [u8], follow: At, name: &'a [u8] }
    16 Setxattr { path: &'a [u8], follow: At, name: &'a [u8], value: &'a [u8], flags: XattrFlags }
    17 Listxattr { path: &'a [u8], follow: At }
    18 Removexattr { path: &'a [u8], follow: At, name: &'a [u8] }
    19 Read { file: u64, offset: u64, len: u32 }
    20 Write { file: u64, offset: Option<u64> }
    21 FileStat { file: u64 }
    22 Truncate { file: u64, size: u64 }
    23 Allocate { file: u64, mode: FallocateMode, offset: u64, len: u64 }
    24 FileSync { file: u64, data_only: bool }
    25 Barrier { file: u64 }
    26 SeekExtent { file: u64, offset: u64, data: bool }
    27 CloseFile { file: u64 }
    28 Forget { handle: u64 }
    29 Entries { directory: u64 }
}

/// First message of the library, with the connection and the files of the image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Of the library; the program has to be of the same.
    pub(crate) version: String,
    /// Mount options, each as it is given.
    pub(crate) options: Vec<String>,
    pub(crate) background: bool,
    pub(crate) size_bytes: u64,
    pub(crate) block_device: bool,
    /// Alignment that direct transfers want, in bytes, if there is a file for them.
    pub(crate) align_bytes: Option<u64>,
}
structures! { Hello { version, options, background, size_bytes, block_device, align_bytes } }

/// Answer to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) read_only: bool,
    pub(crate) in_memory: bool,
    pub(crate) report: MountReport,
}
structures! { Opened { read_only, in_memory, report } }

/// Sends all of both; a peer that is gone is an error, not a signal.
pub(crate) fn send_all(socket: impl AsFd, head: &[u8], data: &[u8]) -> io::Result<()> {
    let mut parts = [IoSlice::new(head), IoSlice::new(data)];
    let mut parts = &mut parts[..];
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let mut rights = SendAncillaryBuffer::default();
        match sendmsg(&socket, parts, &mut rights, SendFlags::NOSIGNAL) {
            Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// Fills `into`. False: the other end is closed, and nothing came.
pub(crate) fn receive_all(socket: impl AsFd, into: &mut [u8]) -> io::Result<bool> {
    let mut done = 0;
    while done < into.len() {
        match recv(&socket, &mut into[done..], RecvFlags::empty()) {
            Ok((0, _)) if done == 0 => return Ok(false),
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((got, _)) => done += got,
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(true)
}
