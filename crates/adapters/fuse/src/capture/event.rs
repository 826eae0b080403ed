//! Events of a capture: numbers, and names only where the kernel sends names.

use syncline_device::TraceEvent;
use syncline_fs::Attr;
use syncline_fs::bits::{S_IFDIR, S_IFMT, S_IFREG};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request of a program.
    Call(Call),
    /// A thread belongs to this process from now on.
    Thread {
        /// The thread.
        thread: u32,
        /// Its process.
        process: Process,
    },
    /// The kernel has learned a name without a call of a program (readdirplus).
    Learned {
        /// Inode of the directory.
        dir: u32,
        /// The name in it.
        name: Box<[u8]>,
        /// The inode behind the name.
        found: Found,
    },
    /// The kernel has dropped lookups of an inode.
    Forgot {
        /// The inode.
        ino: u32,
        /// How many lookups.
        lookups: u64,
    },
    /// A command to the device.
    Device {
        /// The command, with the time of its begin.
        event: TraceEvent,
        /// Its duration in nanoseconds.
        latency_ns: u64,
        /// The error, if it failed.
        errno: Option<i32>,
    },
    /// The last event of a file.
    End {
        /// Events that are missing in the file.
        lost: u64,
    },
}

/// A request with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Time of its begin on the clock of the volume, in nanoseconds.
    pub begin_ns: u64,
    /// Its duration in nanoseconds.
    pub latency_ns: u64,
    /// The thread that asked; 0: the kernel on its own.
    pub thread: u32,
    /// Bytes or 0, or a negative errno.
    pub result: i64,
    /// Its kind and arguments.
    pub detail: Detail,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: Box<str>,
}

macro_rules! call_ops {
    ($($(#[$doc:meta])* $op:ident = $number:literal,)*) => {
        /// The operation of a request. The numbers are those of the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum CallOp {
            $($(#[$doc])* $op = $number,)*
        }

        impl CallOp {
            /// The operation of that number.
            pub(super) fn by_number(number: u8) -> Option<CallOp> {
                match number {
                    $($number => Some(CallOp::$op),)*
                    _ => None,
                }
            }
        }
    };
}

call_ops! {
    /// read(2).
    Read = 0,
    /// write(2).
    Write = 1,
    /// fallocate(2) that allocates.
    Fallocate = 2,
    /// open(2) of a file that exists.
    Open = 3,
    /// The last close(2).
    Close = 4,
    /// stat(2), access(2) and lookups of names.
    Stat = 5,
    /// fsync(2).
    Fsync = 6,
    /// fdatasync(2).
    Fdatasync = 7,
    /// open(2) that makes the file, mknod(2).
    Create = 8,
    /// unlink(2).
    Unlink = 9,
    /// rename(2).
    Rename = 10,
    /// link(2).
    Link = 11,
    /// symlink(2).
    Symlink = 12,
    /// mkdir(2).
    Mkdir = 13,
    /// rmdir(2).
    Rmdir = 14,
}

/// Marks of a write, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFlags(pub u8);

impl CallFlags {
    /// O_SYNC or O_DSYNC.
    pub const SYNC: CallFlags = CallFlags(1);
    /// O_DIRECT.
    pub const DIRECT: CallFlags = CallFlags(2);
    /// O_APPEND.
    pub const APPEND: CallFlags = CallFlags(4);

    /// True if all bits of `other` are set.
    pub fn has(self, other: CallFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` if `set`.
    #[must_use]
    pub fn with(self, set: bool, other: CallFlags) -> CallFlags {
        if set { CallFlags(self.0 | other.0) } else { self }
    }
}

/// The inode behind a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The inode.
    pub ino: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// True for a directory.
    pub is_dir: bool,
    /// True for a regular file.
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
pub struct Range {
    /// The file's inode.
    pub ino: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// Kind of a request, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A read, write or fallocate of a range.
    Range(CallOp, Range, CallFlags),
    /// copy_file_range(2).
    Copy {
        /// The source.
        from: Range,
        /// The destination.
        to: Range,
    },
    /// An operation of an inode: open, close, stat, fsync, fdatasync.
    Inode(CallOp, u32),
    /// truncate(2).
    Truncate {
        /// The file's inode.
        ino: u32,
        /// The size after it.
        size_bytes: u64,
    },
    /// An operation of a name.
    Name(Box<Named>),
}

/// A call with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The operation.
    pub op: CallOp,
    /// Inode of the directory.
    pub dir: u32,
    /// The name in it.
    pub name: Box<[u8]>,
    /// The other name of a rename or link; the text of a symbolic link, in directory 0.
    pub to: Option<(u32, Box<[u8]>)>,
    /// The inode that was found, made or renamed.
    pub found: Option<Found>,
    /// The inode that an exchange puts in the other place.
    pub exchanged: Option<Found>,
}
