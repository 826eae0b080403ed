//! Requests on their way to the volume, with what a capture wants to know of them.
//!
//! No request does anything else because it is recorded. A rename looks up what it renames first,
//! since the request has the names only.

use std::sync::Arc;

use syncline_fs::{Attr, FallocateMode, FsError, Result, SetAttr, StatFs, XattrFlags};
use syncline_trace::{Flags, Op};

use super::event::{Call, Event, Found, Named, Range, What};
use super::process::introduce;
use super::{CALLER, Tap};
use crate::ops::{Context, Entry, OpenHow, Operations, Way, WriteHow};

const S_IFMT: u16 = 0o170_000;
const S_IFREG: u16 = 0o100_000;
const S_IFDIR: u16 = 0o040_000;
/// The flag of renameat2.
const RENAME_EXCHANGE: u32 = 2;

/// `T`, and a capture that hears of its requests.
pub(crate) struct Captured<T> {
    inner: Arc<T>,
    tap: Arc<Tap>,
}

/// What an answer says of an inode.
fn found(attr: &Attr) -> Found {
    Found {
        ino: attr.ino,
        size_bytes: attr.size,
        is_dir: attr.mode & S_IFMT == S_IFDIR,
        is_file: attr.mode & S_IFMT == S_IFREG,
    }
}

fn number<T>(result: &Result<T>, bytes: impl FnOnce(&T) -> i64) -> i64 {
    match result {
        Ok(value) => bytes(value),
        Err(err) => -i64::from(err.errno()),
    }
}

impl<T: Operations> Captured<T> {
    pub(crate) fn new(inner: Arc<T>, tap: Arc<Tap>) -> Captured<T> {
        Captured { inner, tap }
    }

    fn send(&self, begin_ns: u64, result: i64, what: What) {
        let latency_ns = self.tap.now_ns().saturating_sub(begin_ns);
        let thread = CALLER.get();
        if let Some(process) = introduce(thread, begin_ns) {
            self.tap.send(Event::Thread { thread, process });
        }
        self.tap.send(Event::Call(Call { begin_ns, latency_ns, thread, result, what }));
    }

    /// Does `call`, whose answer is no number.
    fn plain<R>(&self, what: What, call: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let begin_ns = self.tap.now_ns();
        let done = call(&self.inner);
        self.send(begin_ns, number(&done, |_| 0), what);
        done
    }

    /// Does `call`, whose answer is a number of bytes.
    fn bytes(
        &self,
        (op, flags): (Op, Flags),
        (ino, offset, len): (u32, u64, usize),
        call: impl FnOnce(&T) -> Result<usize>,
    ) -> Result<usize> {
        let begin_ns = self.tap.now_ns();
        let done = call(&self.inner);
        let range = Range { ino, offset_bytes: offset, len_bytes: len as u64 };
        let result = number(&done, |n| i64::try_from(*n).unwrap_or(i64::MAX));
        self.send(begin_ns, result, What::Range(op, range, flags));
        done
    }

    /// Does `call`, which makes or finds a name.
    fn named(
        &self,
        op: Op,
        (dir, name): (u32, &[u8]),
        to: Option<(u32, &[u8])>,
        call: impl FnOnce(&T) -> Result<Attr>,
    ) -> Result<Attr> {
        let begin_ns = self.tap.now_ns();
        let done = call(&self.inner);
        let named = Named {
            op,
            dir,
            name: name.into(),
            to: to.map(|(dir, name)| (dir, name.into())),
            found: done.as_ref().ok().map(found),
            exchanged: None,
        };
        self.send(begin_ns, number(&done, |_| 0), What::Name(Box::new(named)));
        done
    }

    fn removed(
        &self,
        op: Op,
        (dir, name): (u32, &[u8]),
        call: impl FnOnce(&T) -> Result<()>,
    ) -> Result<()> {
        let named = Named { op, dir, name: name.into(), to: None, found: None, exchanged: None };
        self.plain(What::Name(Box::new(named)), call)
    }

    /// What a name means, without the kernel learning it.
    fn peek(&self, (dir, name): (u32, &[u8])) -> Option<Found> {
        let attr = self.inner.lookup(dir, name).ok()?;
        self.inner.forget(attr.ino, 1);
        Some(found(&attr))
    }
}

impl<T: Operations> Operations for Captured<T> {
    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr> {
        self.named(Op::Stat, (dir, name), None, |inner| inner.lookup(dir, name))
    }

    fn forget(&self, ino: u32, lookups: u64) {
        self.inner.forget(ino, lookups);
        self.tap.send(Event::Forgot { ino, lookups });
    }

    fn getattr(&self, ino: u32) -> Result<Attr> {
        self.plain(What::Inode(Op::Stat, ino), |inner| inner.getattr(ino))
    }

    fn setattr(&self, ino: u32, set: SetAttr) -> Result<Attr> {
        match set.size {
            Some(size_bytes) => {
                self.plain(What::Truncate { ino, size_bytes }, |inner| inner.setattr(ino, set))
            }
            None => self.inner.setattr(ino, set),
        }
    }

    fn readlink(&self, ino: u32) -> Result<Vec<u8>> {
        self.inner.readlink(ino)
    }

    fn mknod(
        &self,
        ctx: Context,
        dir: u32,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u64,
    ) -> Result<Attr> {
        // What is no file has no place in the model but its name.
        let op = if mode & u32::from(S_IFMT) == u32::from(S_IFREG) { Op::Create } else { Op::Stat };
        self.named(op, (dir, name), None, |inner| inner.mknod(ctx, dir, name, mode, umask, rdev))
    }

    fn mkdir(&self, ctx: Context, dir: u32, name: &[u8], mode: u32, umask: u32) -> Result<Attr> {
        self.named(Op::Mkdir, (dir, name), None, |inner| inner.mkdir(ctx, dir, name, mode, umask))
    }

    fn symlink(&self, ctx: Context, dir: u32, name: &[u8], target: &[u8]) -> Result<Attr> {
        self.named(Op::Symlink, (dir, name), Some((0, target)), |inner| {
            inner.symlink(ctx, dir, name, target)
        })
    }

    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.removed(Op::Unlink, (dir, name), |inner| inner.unlink(dir, name))
    }

    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.removed(Op::Rmdir, (dir, name), |inner| inner.rmdir(dir, name))
    }

    fn rename(&self, from: (u32, &[u8]), to: (u32, &[u8]), flags: u32) -> Result<()> {
        let (old, new) = (self.peek(from), self.peek(to));
        let named = Named {
            op: Op::Rename,
            dir: from.0,
            name: from.1.into(),
            to: Some((to.0, to.1.into())),
            found: old,
            exchanged: new.filter(|_| flags & RENAME_EXCHANGE != 0),
        };
        self.plain(What::Name(Box::new(named)), |inner| inner.rename(from, to, flags))
    }

    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
        // The other way round than a rename: the inode is known, the name is new.
        self.named(Op::Link, (ino, b""), Some((dir, name)), |inner| inner.link(ino, dir, name))
    }

    fn create(
        &self,
        ctx: Context,
        dir: u32,
        name: &[u8],
        mode: (u32, u32),
        how: OpenHow,
    ) -> Result<(Attr, Way)> {
        let mut way = Way::Cached;
        let attr = self.named(Op::Create, (dir, name), None, |inner| {
            let (attr, opened) = inner.create(ctx, dir, name, mode, how)?;
            way = opened;
            Ok(attr)
        })?;
        Ok((attr, way))
    }

    fn open(&self, ino: u32, how: OpenHow) -> Result<Way> {
        self.plain(What::Inode(Op::Open, ino), |inner| inner.open(ino, how))
    }

    fn release(&self, ino: u32, past: bool) {
        let close = |inner: &T| {
            inner.release(ino, past);
            Ok::<(), FsError>(())
        };
        // The close of a file has no answer.
        let _ = self.plain(What::Inode(Op::Close, ino), close);
    }

    fn read(&self, ino: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
        let len = into.len();
        self.bytes((Op::Read, Flags::NONE), (ino, offset, len), |inner| {
            inner.read(ino, offset, into)
        })
    }

    fn write(&self, ino: u32, offset: u64, data: &[u8], how: WriteHow) -> Result<usize> {
        let flags = Flags::when(how.dsync || how.sync, Flags::SYNC)
            .with(Flags::when(how.direct, Flags::DIRECT))
            .with(Flags::when(how.append, Flags::APPEND));
        self.bytes((Op::Write, flags), (ino, offset, data.len()), |inner| {
            inner.write(ino, offset, data, how)
        })
    }

    fn fsync(&self, ino: u32, datasync: bool) -> Result<()> {
        let op = if datasync { Op::Fdatasync } else { Op::Fsync };
        self.plain(What::Inode(op, ino), |inner| inner.fsync(ino, datasync))
    }

    fn readdir(
        &self,
        dir: u32,
        cookie: u64,
        plus: bool,
        sink: &mut dyn FnMut(&Entry<'_>) -> bool,
    ) -> Result<()> {
        self.inner.readdir(dir, cookie, plus, &mut |entry| {
            let taken = sink(entry);
            if let Some(attr) = entry.attr.as_ref().filter(|_| taken) {
                let (name, found) = (entry.name.into(), found(attr));
                self.tap.send(Event::Learned { dir, name, found });
            }
            taken
        })
    }

    fn statfs(&self) -> StatFs {
        self.inner.statfs()
    }

    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.inner.setxattr(ino, name, value, flags)
    }

    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
        self.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: u32) -> Result<Vec<u8>> {
        self.inner.listxattr(ino)
    }

    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()> {
        self.inner.removexattr(ino, name)
    }

    fn fallocate(&self, ino: u32, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let allocates = matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize);
        if !allocates {
            // Holes and zeroes are not in the model.
            return self.inner.fallocate(ino, mode, offset, len);
        }
        let range = Range { ino, offset_bytes: offset, len_bytes: len };
        self.plain(What::Range(Op::Fallocate, range, Flags::NONE), |inner| {
            inner.fallocate(ino, mode, offset, len)
        })
    }

    fn seek(&self, ino: u32, offset: u64, data: bool) -> Result<u64> {
        self.inner.seek(ino, offset, data)
    }

    fn copy(&self, from: (u32, u64), to: (u32, u64), len: u64) -> Result<u64> {
        let begin_ns = self.tap.now_ns();
        let done = self.inner.copy(from, to, len);
        let range = |(ino, offset_bytes)| Range { ino, offset_bytes, len_bytes: len };
        let result = number(&done, |n| i64::try_from(*n).unwrap_or(i64::MAX));
        self.send(begin_ns, result, What::Copy { from: range(from), to: range(to) });
        done
    }

    fn set_flags(&self, ino: u32, flags: u32) -> Result<()> {
        self.inner.set_flags(ino, flags)
    }
}
