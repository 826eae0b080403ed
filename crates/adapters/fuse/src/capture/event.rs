//! Events in the queue: numbers, and names only where the kernel sends names.

use syncline_device::TraceEvent;
use syncline_fs::Attr;
use syncline_fs::bits::{S_IFDIR, S_IFMT, S_IFREG};
use syncline_trace::{Flags, Op};

use super::process::Process;

/// One thing that happened.
pub(crate) enum Event {
    /// A request of a program.
    Call(Call),
    /// A thread belongs to this process from now on.
    Thread { thread: u32, process: Process },
    /// The kernel has learned a name without a call of a program (readdirplus).
    Learned { dir: u32, name: Box<[u8]>, found: Found },
    /// The kernel has forgotten an inode, so many times.
    Forgot { ino: u32, lookups: u64 },
    /// A command to the device.
    Device { event: TraceEvent, latency_ns: u64, errno: Option<i32> },
    /// The last event. Without `keep` the files are removed.
    End { keep: bool, lost: u64 },
}

/// A request with its answer.
pub(crate) struct Call {
    pub begin_ns: u64,
    pub latency_ns: u64,
    /// The thread that asked; 0: the kernel on its own.
    pub thread: u32,
    /// Bytes or 0, or a negative errno.
    pub result: i64,
    pub detail: Detail,
}

/// The inode behind a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub ino: u32,
    pub size_bytes: u64,
    pub is_dir: bool,
    /// Contents in blocks: neither a directory nor a device, pipe, socket or link.
    pub is_file: bool,
}

impl From<&Attr> for Found {
    fn from(attr: &Attr) -> Found {
        Found {
            ino: attr.ino,
            size_bytes: attr.size,
            is_dir: attr.mode & S_IFMT == S_IFDIR,
            is_file: attr.mode & S_IFMT == S_IFREG,
        }
    }
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub ino: u32,
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

/// Kind of a request, with its arguments.
pub(crate) enum Detail {
    /// `op` of a range: read, write or fallocate.
    Range(Op, Range, Flags),
    Copy {
        from: Range,
        to: Range,
    },
    /// `op` of an open or known inode: open, close, stat, fsync, fdatasync.
    Inode(Op, u32),
    Truncate {
        ino: u32,
        size_bytes: u64,
    },
    /// `op` of a name.
    Name(Box<Named>),
}

/// A call with names.
#[derive(Debug)]
pub(crate) struct Named {
    pub op: Op,
    pub dir: u32,
    pub name: Box<[u8]>,
    /// The other name of a rename or link; the text of a symbolic link, in directory 0.
    pub to: Option<(u32, Box<[u8]>)>,
    /// The inode that was found, made or renamed.
    pub found: Option<Found>,
    /// The inode that an exchange puts in the other place.
    pub exchanged: Option<Found>,
}
