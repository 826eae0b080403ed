//! One device command and its origin.
//!
//! A request borrows its buffers, so that pages of a cache form one command without a copy. It
//! promises nothing about its range: [`crate::Geometry::check`] decides, in every device. Exercised
//! by the tests of all devices.

/// Kind of the bytes of a request. "Informed storage": each layer passes on its knowledge with the
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The jbd2 log, its superblock included.
    Journal,
    /// File system metadata in its place: superblock, descriptors, bitmaps, inode tables,
    /// directory, extent and xattr blocks.
    Metadata,
    /// Contents of the file with this inode number.
    Data {
        /// Inode number.
        inode: u64,
    },
    /// Anything above that is not a file system.
    Other,
}

/// Durability that a completed, flushed write must have, or that a flush must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A flush makes it durable.
    Strict,
    /// May stay volatile across flushes (chosen files only). A flush that is `Relaxed` itself
    /// covers such data as well.
    Relaxed,
    /// Of a flush only: the device need not wait. After a power cut nothing that was written after
    /// it is there without everything that it covers. A device that knows nothing of it flushes.
    Ordered,
}

/// Expected lifetime of written bytes, in the words of `F_SET_RW_HINT` (`fcntl(2)`). A device with
/// write streams keeps bytes of different lifetimes in different erase blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteLife {
    /// Not known.
    NotSet,
    /// Replaced by the next turn of the log.
    Short,
    /// Discarded soon, with its file: journals of databases, temporary files.
    Medium,
    /// Written over in its place: metadata by checkpoints, databases by their programs.
    Long,
    /// Kept, as far as is known.
    Extreme,
}

/// Cause of a request: the kind of its bytes, whether a caller waits for it, the durability it
/// needs, and for how long its bytes are expected to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Kind of the bytes.
    pub kind: Kind,
    /// True if a caller waits for the request (fsync, read miss), as with `REQ_SYNC`.
    pub sync: bool,
    /// Durability that a flush must give it.
    pub durability: Durability,
    /// Expected lifetime of the bytes of a write.
    pub life: WriteLife,
}

/// Every request carries one.
const _: () = assert!(size_of::<Origin>() <= 24);

impl Origin {
    /// A strict origin, with the lifetime that the kind has.
    pub const fn new(kind: Kind, sync: bool) -> Self {
        let life = match kind {
            Kind::Journal => WriteLife::Short,
            Kind::Metadata => WriteLife::Long,
            Kind::Data { .. } | Kind::Other => WriteLife::NotSet,
        };
        Origin { kind, sync, durability: Durability::Strict, life }
    }
}

/// Operation of a request. Buffers are scattered so that pages need no copy to form one command.
#[derive(Debug)]
pub enum Op<'a> {
    /// Fill the buffers, one after the other, from consecutive sectors.
    Read {
        /// Total length is the length of the request.
        into: Vec<&'a mut [u8]>,
    },
    /// Write the buffers, one after the other, to consecutive sectors.
    Write {
        /// Total length is the length of the request.
        from: Vec<&'a [u8]>,
        /// Durable on completion.
        fua: bool,
    },
    /// Make all completed writes durable.
    Flush,
    /// The sectors are not needed any more.
    Discard {
        /// Length in bytes.
        len_bytes: u64,
    },
}

/// One device command.
#[derive(Debug)]
pub struct Request<'a> {
    /// First byte; a multiple of 512. Zero for a flush.
    pub offset_bytes: u64,
    /// Operation.
    pub op: Op<'a>,
    /// Origin of the request.
    pub origin: Origin,
}

impl Request<'_> {
    /// True for a flush that only has to order.
    pub fn is_barrier(&self) -> bool {
        matches!(self.op, Op::Flush) && self.origin.durability == Durability::Ordered
    }

    /// Length in bytes; zero for a flush.
    pub fn len_bytes(&self) -> u64 {
        match &self.op {
            Op::Read { into } => into.iter().map(|b| b.len() as u64).sum(),
            Op::Write { from, .. } => from.iter().map(|b| b.len() as u64).sum(),
            Op::Flush => 0,
            Op::Discard { len_bytes } => *len_bytes,
        }
    }

    /// `read`, `write`, `flush` or `discard`, for messages.
    pub fn name(&self) -> &'static str {
        match self.op {
            Op::Read { .. } => "read",
            Op::Write { .. } => "write",
            Op::Flush => "flush",
            Op::Discard { .. } => "discard",
        }
    }
}
