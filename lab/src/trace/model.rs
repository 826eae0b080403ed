//! The model: one record for what a program, a page cache or a device did.
//!
//! | kind | `op` | file | range |
//! |---|---|---|---|
//! | system calls | all | path, as the program sees it | bytes of the file |
//! | pages | read, write | path; none for addresses of a device | whole pages |
//! | block | read, write, flush, discard | none | bytes of the device |
//!
//! System calls are for replay and Tables 5.2 and 5.3 of the eager-sync paper, pages (before-cache)
//! for replacement policies, block requests (after-cache) for devices and wear.
//!
//! Promises: a [`Record`] is plain data and has the same meaning whatever it was imported from.
//! Times are nanoseconds since the start of the trace. Zero means "not known" for process, thread,
//! device and inode. Names are interned in [`Names`]: a record carries numbers.
//!
//! Assumes: ranges end below 2^63 bytes ([`Record::check`]).

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};

/// Kind of the records of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceKind {
    /// System calls of programs on files.
    Syscall,
    /// Accesses to pages, before a page cache.
    Page,
    /// Requests to a device, after the page cache.
    Block,
}

impl TraceKind {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            TraceKind::Syscall => "syscall",
            TraceKind::Page => "page",
            TraceKind::Block => "block",
        }
    }

    /// The kind of that name.
    pub fn by_name(name: &str) -> Option<TraceKind> {
        [TraceKind::Syscall, TraceKind::Page, TraceKind::Block]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident = $name:literal,)*) => {
        /// The operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        impl Op {
            /// Every operation.
            pub const ALL: &[Op] = &[$(Op::$op),*];

            /// Its name in files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Op::$op => $name,)*
                }
            }
        }
    };
}

ops! {
    /// Bytes read.
    Read = "read",
    /// Bytes written.
    Write = "write",
    /// A flush of the device's cache.
    Flush = "flush",
    /// The device forgets a range.
    Discard = "discard",
    /// Not an operation: the file was there, with this size, before the trace begins.
    Present = "present",
    /// A file was opened.
    Open = "open",
    /// A file was made.
    Create = "create",
    /// A file was closed.
    Close = "close",
    /// fsync.
    Fsync = "fsync",
    /// fdatasync.
    Fdatasync = "fdatasync",
    /// sync or syncfs.
    Sync = "sync",
    /// sync_file_range.
    SyncRange = "sync_file_range",
    /// The size was set, to `size_bytes`.
    Truncate = "truncate",
    /// Space was allocated.
    Fallocate = "fallocate",
    /// A name was removed.
    Unlink = "unlink",
    /// A name became another.
    Rename = "rename",
    /// A second name, `target`, was made.
    Link = "link",
    /// A symbolic link was made.
    Symlink = "symlink",
    /// A directory was made.
    Mkdir = "mkdir",
    /// A directory was removed.
    Rmdir = "rmdir",
    /// Attributes were read or names looked up: stat, access and their like.
    Stat = "stat",
}

impl Op {
    /// The operation of that name.
    pub fn by_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// True if the range of a record of it means something.
    pub fn has_range(self) -> bool {
        use Op::{Discard, Fallocate, Read, SyncRange, Write};
        matches!(self, Read | Write | Discard | Fallocate | SyncRange)
    }

    /// True if a caller waits until data is durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Op::Fsync | Op::Fdatasync | Op::Sync | Op::SyncRange)
    }
}

/// Marks of a record, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Somebody waits: REQ_SYNC of a request, O_SYNC or O_DSYNC of a write.
    pub const SYNC: Flags = Flags(1);
    /// Durable on completion.
    pub const FUA: Flags = Flags(2);
    /// The device's cache is flushed before.
    pub const PREFLUSH: Flags = Flags(4);
    /// Read ahead of need.
    pub const READAHEAD: Flags = Flags(8);
    /// Past the page cache (O_DIRECT).
    pub const DIRECT: Flags = Flags(16);
    /// At the end of the file (O_APPEND); `offset_bytes` is where that was, as far as known.
    pub const APPEND: Flags = Flags(32);

    /// True if all bits of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// `other` if `set`, else none.
    pub fn when(set: bool, other: Flags) -> Flags {
        if set { other } else { Flags::NONE }
    }
}

/// Content of a block request's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Not known.
    #[default]
    Unknown,
    /// The journal.
    Journal,
    /// Metadata in its place.
    Metadata,
    /// Contents of a file.
    Data,
}

impl Origin {
    /// Its name in files; none for [`Origin::Unknown`].
    pub fn name(self) -> Option<&'static str> {
        match self {
            Origin::Unknown => None,
            Origin::Journal => Some("journal"),
            Origin::Metadata => Some("metadata"),
            Origin::Data => Some("data"),
        }
    }

    /// The origin of that name.
    pub fn by_name(name: &str) -> Option<Origin> {
        [Origin::Journal, Origin::Metadata, Origin::Data]
            .into_iter()
            .find(|origin| origin.name() == Some(name))
    }
}

/// The number of a name in [`Names`]; the default is "no name".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(u32);

impl NameId {
    /// No name.
    pub const NONE: NameId = NameId(0);

    /// From zero for the first name; none for no name.
    pub fn index(self) -> Option<usize> {
        self.0.checked_sub(1).map(|index| index as usize)
    }

    /// True if there is a name.
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// The distinct names of a trace: paths and names of processes.
#[derive(Debug, Default)]
pub struct Names {
    list: Vec<Box<str>>,
    numbers: FxHashMap<Box<str>, NameId>,
}

impl Names {
    /// The number of `name`, a new one if it is new. The empty name is no name, and so is every
    /// name after the 2^32 - 2 first.
    pub fn intern(&mut self, name: &str) -> NameId {
        if name.is_empty() {
            return NameId::NONE;
        }
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let Ok(number) = u32::try_from(self.list.len() + 1) else { return NameId::NONE };
        self.list.push(name.into());
        self.numbers.insert(name.into(), NameId(number));
        NameId(number)
    }

    /// The number of `name` if it is known.
    pub fn find(&self, name: &str) -> Option<NameId> {
        self.numbers.get(name).copied()
    }

    /// The name; empty for [`NameId::NONE`].
    pub fn get(&self, id: NameId) -> &str {
        id.index().and_then(|index| self.list.get(index)).map_or("", |name| name)
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the start of the trace.
    pub time_ns: u64,
    /// The operation.
    pub op: Op,
    /// Marks.
    pub flags: Flags,
    /// Content of a block request's bytes.
    pub origin: Origin,
    /// Process, 0: not known.
    pub process: u32,
    /// Thread, 0: not known.
    pub thread: u32,
    /// Device, 0: not known; of block traces of several devices.
    pub device: u32,
    /// Name of the process.
    pub process_name: NameId,
    /// Path of the file.
    pub file: NameId,
    /// The other path: of a rename, a link.
    pub target: NameId,
    /// Inode, 0: not known.
    pub inode: u64,
    /// First byte, of the file or of the device.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Size of the file before the operation; of truncate, after it.
    pub size_bytes: Option<u64>,
    /// Result of the call: bytes or 0, or a negative errno.
    pub result: Option<i64>,
    /// Duration of the operation, in nanoseconds.
    pub latency_ns: Option<u64>,
}

impl Record {
    /// A record of `op` at `time_ns` with nothing else known.
    pub fn new(time_ns: u64, op: Op) -> Record {
        Record {
            time_ns,
            op,
            flags: Flags::NONE,
            origin: Origin::Unknown,
            process: 0,
            thread: 0,
            device: 0,
            process_name: NameId::NONE,
            file: NameId::NONE,
            target: NameId::NONE,
            inode: 0,
            offset_bytes: 0,
            len_bytes: 0,
            size_bytes: None,
            result: None,
            latency_ns: None,
        }
    }

    /// With a range in bytes.
    #[must_use]
    pub fn range(self, offset_bytes: u64, len_bytes: u64) -> Record {
        Record { offset_bytes, len_bytes, ..self }
    }

    /// True if the call was refused.
    pub fn failed(&self) -> bool {
        self.result.is_some_and(|result| result < 0)
    }

    /// True if every number can be stored: below 2^63, also the end of the range.
    pub fn check(&self) -> Result<()> {
        let end = self.offset_bytes.checked_add(self.len_bytes);
        let numbers = [Some(self.time_ns), end, Some(self.inode), self.size_bytes, self.latency_ns];
        let fits = end.is_some()
            && numbers.into_iter().flatten().all(|number| i64::try_from(number).is_ok());
        if fits {
            return Ok(());
        }
        let text = "a record has a number of 2^63 or more; correct the trace".to_owned();
        Err(LabError::Usage(text))
    }
}

/// Description of a trace, beside its records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Kind of the records.
    pub kind: TraceKind,
    /// Its source: the name of a format or of a recorder.
    pub source: String,
}

/// Receiver of records.
pub trait Sink {
    /// Takes one. `names` has its names.
    ///
    /// After an error of the sink the trace is not read further.
    fn record(&mut self, names: &Names, record: &Record) -> Result<()>;
}

/// Keeps all, for short traces.
impl Sink for Vec<Record> {
    fn record(&mut self, _: &Names, record: &Record) -> Result<()> {
        self.push(*record);
        Ok(())
    }
}
