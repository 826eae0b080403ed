//! Records of requests: the arguments before a request is served, its result and latency after.
//!
//! No request does anything else because it is recorded. A rename looks up what it renames first,
//! since the request has the names only.

use syncline_fs::bits::{S_IFMT, S_IFREG};
use syncline_fs::{Attr, Result, StatFs};

use super::Tap;
use super::event::{Call, CallFlags, CallOp, Detail, Event, Found, Named, Range};
use super::process::introduce;
use crate::handle::Handle;
use crate::serve::WriteHow;

/// The flag of renameat2.
const RENAME_EXCHANGE: u32 = 2;
/// Modes of fallocate(2) that allocate: plain, and with FALLOC_FL_KEEP_SIZE.
const ALLOCATES: std::ops::RangeInclusive<i32> = 0..=1;

/// A directory's inode, and a name in it.
type Name<'a> = (u32, &'a [u8]);

/// Serves a request and, with a tap, records it if `detail` gives a record.
pub(crate) fn recorded<T: Outcome>(
    tap: Option<&Tap>,
    thread: u32,
    detail: impl FnOnce() -> Option<Detail>,
    serve: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some((tap, mut detail)) = tap.and_then(|tap| Some((tap, detail()?))) else {
        return serve();
    };
    let begin_ns = tap.now_ns();
    let done = serve();
    if let (Detail::Name(named), Some(found)) = (&mut detail, done.as_ref().ok().and_then(T::found))
    {
        named.found = Some(found);
    }
    let result = done.as_ref().map_or_else(|err| -i64::from(err.errno()), T::number);
    let latency_ns = tap.now_ns().saturating_sub(begin_ns);
    if let Some(process) = introduce(&*tap.host, thread, begin_ns) {
        tap.send(&Event::Thread { thread, process });
    }
    tap.send(&Event::Call(Call { begin_ns, latency_ns, thread, result, detail }));
    done
}

/// Result of a request as a record shows it.
pub(crate) trait Outcome {
    /// Bytes that were moved, or 0; a negative errno for a name that does not exist.
    fn number(&self) -> i64 {
        0
    }

    /// The inode that a name means now.
    fn found(&self) -> Option<Found> {
        None
    }
}

impl Outcome for () {}
impl Outcome for Handle {}
impl Outcome for StatFs {}
impl Outcome for Vec<u8> {}

impl Outcome for Attr {
    fn found(&self) -> Option<Found> {
        Some(self.into())
    }
}

impl Outcome for (Attr, Handle) {
    fn found(&self) -> Option<Found> {
        self.0.found()
    }
}

impl Outcome for Option<Attr> {
    fn number(&self) -> i64 {
        let missing = -i64::from(syncline_fs::FsError::NotFound.errno());
        if self.is_some() { 0 } else { missing }
    }

    fn found(&self) -> Option<Found> {
        self.as_ref().map(Found::from)
    }
}

impl Outcome for usize {
    fn number(&self) -> i64 {
        i64::try_from(*self).unwrap_or(i64::MAX)
    }
}

impl Outcome for u64 {
    fn number(&self) -> i64 {
        i64::try_from(*self).unwrap_or(i64::MAX)
    }
}

impl Detail {
    pub(crate) fn inode(op: CallOp, ino: u32) -> Option<Detail> {
        Some(Detail::Inode(op, ino))
    }

    pub(crate) fn sync(ino: u32, datasync: bool) -> Option<Detail> {
        Detail::inode(if datasync { CallOp::Fdatasync } else { CallOp::Fsync }, ino)
    }

    /// `op` of one name.
    pub(crate) fn name(op: CallOp, (dir, name): Name<'_>) -> Option<Detail> {
        let name = name.into();
        let named = Named { op, dir, name, to: None, found: None, exchanged: None };
        Some(Detail::Name(Box::new(named)))
    }

    /// `op` of two names; the text of a symbolic link is one in directory 0.
    pub(crate) fn names(
        op: CallOp,
        (dir, name): Name<'_>,
        (to_dir, to): Name<'_>,
    ) -> Option<Detail> {
        let (name, to) = (name.into(), Some((to_dir, to.into())));
        Some(Detail::Name(Box::new(Named { op, dir, name, to, found: None, exchanged: None })))
    }

    /// The making of a file; anything else has no place in the model but its name.
    pub(crate) fn mknod(name: Name<'_>, mode: u32) -> Option<Detail> {
        Detail::name(
            if mode as u16 & S_IFMT == S_IFREG { CallOp::Create } else { CallOp::Stat },
            name,
        )
    }

    /// A rename; `peek` looks up a name without the kernel learning it.
    pub(crate) fn rename(
        from: Name<'_>,
        to: Name<'_>,
        flags: u32,
        peek: impl Fn(Name<'_>) -> Option<Attr>,
    ) -> Option<Detail> {
        let peek = |name| peek(name).as_ref().map(Found::from);
        let exchanged = peek(to).filter(|_| flags & RENAME_EXCHANGE != 0);
        let (op, name, to) = (CallOp::Rename, from.1.into(), Some((to.0, to.1.into())));
        let named = Named { op, dir: from.0, name, to, found: peek(from), exchanged };
        Some(Detail::Name(Box::new(named)))
    }

    fn range(op: CallOp, ino: u32, offset: u64, len: u64, flags: CallFlags) -> Option<Detail> {
        let range = Range { ino, offset_bytes: offset, len_bytes: len };
        Some(Detail::Range(op, range, flags))
    }

    pub(crate) fn read(ino: u32, offset: u64, len: u32) -> Option<Detail> {
        Detail::range(CallOp::Read, ino, offset, u64::from(len), CallFlags::default())
    }

    pub(crate) fn write(ino: u32, offset: u64, len: usize, how: WriteHow) -> Option<Detail> {
        let flags = CallFlags::default()
            .with(how.dsync || how.sync, CallFlags::SYNC)
            .with(how.direct, CallFlags::DIRECT)
            .with(how.append, CallFlags::APPEND);
        Detail::range(CallOp::Write, ino, offset, len as u64, flags)
    }

    /// None for a mode that makes holes or zeroes, which are not in the model.
    pub(crate) fn fallocate(ino: u32, mode: i32, offset: u64, len: u64) -> Option<Detail> {
        let allocates = ALLOCATES.contains(&mode);
        allocates
            .then(|| Detail::range(CallOp::Fallocate, ino, offset, len, CallFlags::default()))
            .flatten()
    }

    pub(crate) fn copy(from: (u32, u64), to: (u32, u64), len: u64) -> Option<Detail> {
        let range = |(ino, offset_bytes)| Range { ino, offset_bytes, len_bytes: len };
        Some(Detail::Copy { from: range(from), to: range(to) })
    }
}
