//! Runs operations on a volume and on the reference, and compares every answer.
//!
//! Rules of comparison
//! - An operation that fails must fail with the same errno; one that works must give the same
//!   value.
//! - ENOSPC is an answer the reference never gives. It is accepted where the volume really is full
//!   (few blocks free, no inode free, attributes that cannot fit); then nothing may have changed
//!   except what Linux also leaves half done: a short write, a part of a zeroed range.
//! - fsync, syncfs and unmount never run out of space: what was accepted has its place.
//! - A crash is a volume that is dropped without unmount after a syncfs, with its handles.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use syncline_device::{Clock, MemoryDevice, VirtualClock};
use syncline_fs::{
    Create, FsError, InodeRef, MountOptions, RenameFlags, SetAttr, SetTime, Timestamp, Volume,
    XattrFlags,
};
use syncline_testkit::{ImageSpec, fill};

use crate::ops::{Falloc, ModelOp, OpOptions, Target};
use crate::reference::{Answer, NodeId, ROOT, Reference, RenameMode, XattrMode, errno, split};
use crate::tree_compare::{compare_file, compare_tree};
use crate::volume_tree::fallocate_mode;

const NS_PER_MS: u64 = 1_000_000;

/// One kind of run.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Name in the rerun command.
    pub name: &'static str,
    /// The image.
    pub spec: ImageSpec,
    /// Mount options.
    pub mount: MountOptions,
    /// The operations.
    pub ops: OpOptions,
}

/// First operation at which volume and reference differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Number of the operation.
    pub at: usize,
    /// Description of the difference.
    pub message: String,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Operations.
    pub ops: u64,
    /// Those that failed, as they should.
    pub refused: u64,
    /// Those that ran out of space or inodes.
    pub no_space: u64,
    /// Remounts.
    pub remounts: u64,
    /// Comparisons of the whole tree.
    pub compares: u64,
}

/// Runs `ops` on the image, which is changed, and unmounts. A panic of the volume is a mismatch.
pub fn run_ops(
    device: &Arc<MemoryDevice>,
    mount: &MountOptions,
    ops: &[ModelOp],
) -> Result<RunStats, Mismatch> {
    let mut at = 0;
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut runner = Runner::new(device.clone(), mount.clone())?;
        for op in ops {
            runner.apply(op)?;
            at += 1;
        }
        runner.finish()
    }));
    let result = run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    result.map_err(|message| Mismatch { at, message })
}

struct Runner {
    device: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    mount: MountOptions,
    volume: Option<Volume>,
    reference: Reference,
    slots: BTreeMap<u8, (InodeRef, NodeId)>,
    stats: RunStats,
    /// The volume has `ea_inode`.
    has_values: bool,
    /// Blocks of a cluster.
    cluster_blocks: u64,
}

type Step<T> = Result<T, String>;

impl Runner {
    fn new(device: Arc<MemoryDevice>, mount: MountOptions) -> Step<Self> {
        let clock = Arc::new(VirtualClock::default());
        let mut incompat = [0; 4];
        device.read_at(1024 + 96, &mut incompat).map_err(|e| format!("superblock: {e}"))?;
        let mut sizes = [0; 8];
        device.read_at(1024 + 24, &mut sizes).map_err(|e| format!("superblock: {e}"))?;
        let mut runner = Runner {
            cluster_blocks: 1 << (sizes[4] - sizes[0]),
            has_values: u32::from_le_bytes(incompat) & 0x400 != 0,
            device,
            clock,
            mount,
            volume: None,
            reference: Reference::default(),
            slots: BTreeMap::new(),
            stats: RunStats::default(),
        };
        runner.mount()?;
        Ok(runner)
    }

    fn mount(&mut self) -> Step<()> {
        let volume = Volume::mount(self.device.clone(), self.clock.clone(), self.mount.clone());
        self.volume = Some(volume.map_err(|e| format!("mount: {e}"))?);
        Ok(())
    }

    fn volume(&self) -> Volume {
        self.volume.clone().expect("mounted but for the moment of a remount")
    }

    fn finish(mut self) -> Step<RunStats> {
        self.compare()?;
        self.close_all();
        let volume = self.volume.take().expect("mounted but for the moment of a remount");
        volume.unmount().map_err(|e| format!("last unmount: {e}"))?;
        Ok(self.stats)
    }

    fn close_all(&mut self) {
        for (_, (inode, id)) in std::mem::take(&mut self.slots) {
            drop(inode);
            self.reference.close(id);
        }
    }

    /// The time that ext4 stamps now.
    fn now_ns(&self) -> u64 {
        let now = self.clock.now_ns();
        now - now % (u64::from(self.mount.timer_tick_ms) * NS_PER_MS)
    }

    fn find(&self, path: &str) -> Result<InodeRef, FsError> {
        let volume = self.volume();
        let mut at = volume.root()?;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            // The VFS never looks for a name in something else.
            if !at.is_dir() {
                return Err(FsError::NotDir);
            }
            at = volume.lookup(&at, name.as_bytes())?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(InodeRef, &'p [u8]), FsError> {
        let (parent, name) = split(path);
        let dir = self.find(parent)?;
        if dir.is_dir() { Ok((dir, name)) } else { Err(FsError::NotDir) }
    }

    /// Both ends of a target; `None` if it is nowhere, on both sides alike.
    fn target(&mut self, target: &Target) -> Step<Option<(InodeRef, NodeId)>> {
        match target {
            Target::Slot(slot) => Ok(self.slots.get(slot).map(|(i, id)| (i.clone(), *id))),
            Target::Path(path) => {
                let found = self.find(path);
                match (found, self.reference.resolve(path)) {
                    (Ok(inode), Ok(id)) => Ok(Some((inode, id))),
                    (Err(err), Err(want)) if err.errno() == want => {
                        self.stats.refused += 1;
                        Ok(None)
                    }
                    (have, want) => Err(format!("{path}: found {have:?}, reference {want:?}")),
                }
            }
        }
    }

    /// True if ENOSPC is a legal answer to a request for this many bytes.
    fn is_full(&self, wanted_bytes: u64) -> bool {
        let stat = self.volume().statfs();
        // Index blocks, directory blocks and the pool that write-back needs in reserve.
        let margin = stat.blocks / 20 + 32 * self.cluster_blocks;
        let wanted = wanted_bytes / u64::from(stat.block_size);
        stat.files_free == 0 || stat.blocks_free < margin + wanted
    }

    /// After ENOSPC: modification times may have moved.
    fn adopt_mtime(&mut self, path: &str) {
        for path in [path, split(path).0] {
            if let (Ok(inode), Ok(id)) = (self.find(path), self.reference.resolve(path)) {
                self.adopt_mtime_of(&inode, id);
            }
        }
    }

    fn adopt_mtime_of(&mut self, inode: &InodeRef, id: NodeId) {
        let mtime = self.volume().getattr(inode).mtime;
        let ns = mtime.seconds as u64 * 1_000_000_000 + u64::from(mtime.nanoseconds);
        if id != ROOT || self.reference.node(ROOT).mtime_ns != 0 {
            self.reference.set_attr(id, None, None, Some(ns));
        }
    }

    /// Compares answers. `true`: both worked. On a fair ENOSPC `false`, and the reference must not
    /// have been changed: so it is asked only if the volume did not say ENOSPC.
    fn same<T: std::fmt::Debug>(
        &mut self,
        have: Result<T, FsError>,
        want: impl FnOnce(&mut Reference) -> Answer<()>,
        paths: &[&str],
        wanted_bytes: u64,
    ) -> Step<Option<T>> {
        if matches!(have, Err(FsError::NoSpace)) {
            if !self.is_full(wanted_bytes) {
                return Err(format!("ENOSPC with {:?}", self.volume().statfs()));
            }
            self.stats.no_space += 1;
            for path in paths {
                self.adopt_mtime(path);
            }
            return Ok(None);
        }
        match (have, want(&mut self.reference)) {
            (Ok(value), Ok(())) => Ok(Some(value)),
            (Err(err), Err(errno)) if err.errno() == errno => {
                self.stats.refused += 1;
                Ok(None)
            }
            (have, want) => Err(format!("the volume says {have:?}, the reference {want:?}")),
        }
    }

    fn apply(&mut self, op: &ModelOp) -> Step<()> {
        self.stats.ops += 1;
        match op {
            ModelOp::Create { .. }
            | ModelOp::Mkdir { .. }
            | ModelOp::Mknod { .. }
            | ModelOp::Symlink { .. } => self.make(op),
            ModelOp::Link { existing, path } => self.link(existing, path),
            ModelOp::Unlink { path } => {
                let now = self.now_ns();
                let have = self.parent(path).and_then(|(d, n)| self.volume().unlink(&d, n));
                self.same(have, |r| r.unlink(path, now), &[path], 0).map(drop)
            }
            ModelOp::Rmdir { path } => {
                let now = self.now_ns();
                let have = self.parent(path).and_then(|(d, n)| self.volume().rmdir(&d, n));
                self.same(have, |r| r.rmdir(path, now), &[path], 0).map(drop)
            }
            ModelOp::Rename { from, to, mode } => self.rename(from, to, *mode),
            ModelOp::Open { slot, path } => self.open(*slot, path),
            ModelOp::Close { slot } => {
                if let Some((inode, id)) = self.slots.remove(slot) {
                    drop(inode);
                    self.reference.close(id);
                }
                Ok(())
            }
            ModelOp::Write { target, offset, len, seed } => {
                self.write(target, Some(*offset), *len, *seed)
            }
            ModelOp::Append { target, len, seed } => self.write(target, None, *len, *seed),
            ModelOp::Truncate { target, size } => self.truncate(target, *size),
            ModelOp::Fallocate { target, mode, offset, len } => {
                self.fallocate(target, *mode, *offset, *len)
            }
            ModelOp::Read { target, offset, len } => self.read(target, *offset, *len),
            ModelOp::Seek { target, offset } => self.seek(target, *offset),
            ModelOp::SetXattr { .. } | ModelOp::RemoveXattr { .. } => self.xattr(op),
            ModelOp::Chmod { .. } | ModelOp::Chown { .. } | ModelOp::SetMtime { .. } => {
                self.set_attr(op)
            }
            ModelOp::Readdir { path } => self.readdir(path),
            ModelOp::Fsync { target, datasync } => {
                let Some((inode, _)) = self.target(target)? else { return Ok(()) };
                self.volume().fsync(&inode, *datasync).map_err(|e| format!("fsync: {e}"))
            }
            ModelOp::Syncfs => self.volume().syncfs().map_err(|e| format!("syncfs: {e}")),
            ModelOp::Tick { ms } => {
                let now = self.clock.now_ns() + ms * NS_PER_MS;
                self.clock.sleep_until(now);
                self.volume().tick(now).map_err(|e| format!("tick: {e}"))
            }
            ModelOp::Compare => self.compare(),
            ModelOp::Remount { crash } => self.remount(*crash),
        }
    }

    fn make(&mut self, op: &ModelOp) -> Step<()> {
        let (volume, now) = (self.volume(), self.now_ns());
        let create = |mode: u16| Create { mode, uid: 0, gid: 0 };
        match op {
            ModelOp::Create { path, mode } => {
                let made =
                    self.parent(path).and_then(|(d, n)| volume.create(&d, n, &create(*mode)));
                self.same(made, |r| r.create(path, *mode, now).map(drop), &[path], 0).map(drop)
            }
            ModelOp::Mkdir { path, mode } => {
                let made = self.parent(path).and_then(|(d, n)| volume.mkdir(&d, n, &create(*mode)));
                self.same(made, |r| r.mkdir(path, *mode, now).map(drop), &[path], 0).map(drop)
            }
            ModelOp::Mknod { path, kind, mode } => {
                let made = self
                    .parent(path)
                    .and_then(|(d, n)| volume.mknod(&d, n, &create(kind | mode), 0));
                let want = |r: &mut Reference| r.mknod(path, *kind, *mode, now).map(drop);
                self.same(made, want, &[path], 0).map(drop)
            }
            ModelOp::Symlink { path, target_len } => {
                let room = self.volume().statfs().block_size as usize - 1;
                let target = vec![b't'; (*target_len).min(room)];
                // Linux refuses an empty target before it looks at the path.
                let made = if target.is_empty() {
                    volume.root().and_then(|d| volume.symlink(&d, b"no", &target, &create(0)))
                } else {
                    self.parent(path).and_then(|(d, n)| volume.symlink(&d, n, &target, &create(0)))
                };
                let want = |r: &mut Reference| r.symlink(path, &target, now).map(drop);
                self.same(made, want, &[path], 0).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn link(&mut self, existing: &Target, path: &str) -> Step<()> {
        let Some((inode, id)) = self.target(existing)? else { return Ok(()) };
        let now = self.now_ns();
        let have = self.parent(path).and_then(|(d, n)| self.volume().link(&inode, &d, n));
        self.same(have, |r| r.link(id, path, now), &[path], 0).map(drop)
    }

    fn rename(&mut self, from: &str, to: &str, mode: RenameMode) -> Step<()> {
        let flags = match mode {
            RenameMode::Replace => RenameFlags::NONE,
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        let now = self.now_ns();
        let have = self.parent(from).and_then(|(od, on)| {
            let (nd, nn) = self.parent(to)?;
            self.volume().rename(&od, on, &nd, nn, flags)
        });
        self.same(have, |r| r.rename(from, to, mode, now), &[from, to], 0).map(drop)
    }

    fn open(&mut self, slot: u8, path: &str) -> Step<()> {
        let Some((inode, id)) = self.target(&Target::Path(path.to_owned()))? else {
            return Ok(());
        };
        self.reference.open(id);
        if let Some((old, old_id)) = self.slots.insert(slot, (inode, id)) {
            drop(old);
            self.reference.close(old_id);
        }
        Ok(())
    }

    fn write(&mut self, target: &Target, at: Option<u64>, len: usize, seed: u64) -> Step<()> {
        let Some((inode, id)) = self.target(target)? else { return Ok(()) };
        let mut data = vec![0; len];
        fill(seed, 0, &mut data);
        let volume = self.volume();
        let (offset, have) = match at {
            Some(offset) => (offset, volume.write(&inode, offset, &data)),
            None => match volume.write_append(&inode, &data) {
                Ok((offset, n)) => {
                    let size = self.reference.file(id).map(|f| f.size());
                    if size != Ok(offset) {
                        return Err(format!("append at {offset}, reference {size:?}"));
                    }
                    (offset, Ok(n))
                }
                Err(err) => (0, Err(err)),
            },
        };
        if matches!(have, Err(FsError::NoSpace)) {
            self.adopt_mtime_of(&inode, id);
        }
        let now = self.now_ns();
        let mtime = if len == 0 { self.reference.node(id).mtime_ns } else { now };
        let short = have.as_ref().is_ok_and(|n| *n < len);
        let done = *have.as_ref().unwrap_or(&0);
        let want = |r: &mut Reference| {
            r.file_mut(id, mtime)?.write(offset, &data[..done]);
            Ok(())
        };
        self.same(have, want, &[], len as u64)?;
        if short && !self.is_full(len as u64) {
            return Err(format!("{done} of {len} bytes taken: {:?}", self.volume().statfs()));
        }
        self.stats.no_space += u64::from(short);
        Ok(())
    }

    fn truncate(&mut self, target: &Target, size: u64) -> Step<()> {
        let Some((inode, id)) = self.target(target)? else { return Ok(()) };
        let now = self.now_ns();
        let have = self.volume().truncate(&inode, size);
        let same_size = self.reference.file(id).is_ok_and(|f| f.size() == size);
        let want = |r: &mut Reference| {
            r.file_mut(id, now)?.truncate(size);
            Ok(())
        };
        let done = self.same(have, want, &[], 0)?;
        // A size that stays: Linux moves the time for ftruncate and not for truncate.
        if done.is_none() || same_size {
            self.adopt_mtime_of(&inode, id);
        }
        Ok(())
    }

    fn fallocate(&mut self, target: &Target, mode: Falloc, offset: u64, len: u64) -> Step<()> {
        let Some((inode, id)) = self.target(target)? else { return Ok(()) };
        if self.reference.file(id).is_err() {
            return Ok(());
        }
        let now = self.now_ns();
        let have = self.volume().fallocate(&inode, fallocate_mode(mode), offset, len);
        let full = matches!(have, Err(FsError::NoSpace));
        let want = |r: &mut Reference| {
            if len == 0 {
                return Err(errno::EINVAL);
            }
            let file = r.file_mut(id, now)?;
            if !matches!(mode, Falloc::Allocate | Falloc::KeepSize) {
                file.zero(offset, len);
            }
            if matches!(mode, Falloc::Allocate | Falloc::ZeroRange) && offset + len > file.size() {
                file.truncate(offset + len);
            }
            Ok(())
        };
        self.same(have, want, &[], len)?;
        if full {
            self.adopt_mtime_of(&inode, id);
            self.adopt_zeros(&inode, id, mode, offset, len)?;
        }
        Ok(())
    }

    /// A zeroing that ran out of space: each byte of the range is as before or zero.
    fn adopt_zeros(
        &mut self,
        inode: &InodeRef,
        id: NodeId,
        mode: Falloc,
        offset: u64,
        len: u64,
    ) -> Step<()> {
        let mtime = self.reference.node(id).mtime_ns;
        let file = self.reference.file_mut(id, mtime).map_err(|e| format!("errno {e}"))?;
        let len = len.min(file.size().saturating_sub(offset)) as usize;
        let (mut have, mut want) = (vec![0; len], vec![0; len]);
        let volume = self.volume.clone().expect("mounted but for the moment of a remount");
        volume.read(inode, offset, &mut have).map_err(|e| format!("read: {e}"))?;
        file.read(offset, &mut want);
        let zeroing = !matches!(mode, Falloc::Allocate | Falloc::KeepSize);
        let fair = |(h, w): (&u8, &u8)| h == w || zeroing && *h == 0;
        if !have.iter().zip(&want).all(fair) {
            return Err("a range that could not be zeroed has other bytes".to_owned());
        }
        file.write(offset, &have);
        Ok(())
    }

    fn read(&mut self, target: &Target, offset: u64, len: usize) -> Step<()> {
        let Some((inode, id)) = self.target(target)? else { return Ok(()) };
        let (mut have, mut want) = (vec![0xEE; len], vec![0; len]);
        let got = self.volume().read(&inode, offset, &mut have);
        match (got, self.reference.file(id).map(|f| f.read(offset, &mut want))) {
            (Ok(n), Ok(m)) if n == m && have[..n] == want[..m] => Ok(()),
            (Ok(n), Ok(m)) if n == m => {
                let first = (0..n).find(|i| have[*i] != want[*i]).unwrap_or(0);
                let (have, want) = (have[first], want[first]);
                let first = offset + first as u64;
                Err(format!("byte {first} reads {have:#x}, not {want:#x}"))
            }
            (Err(err), Err(errno)) if err.errno() == errno => Ok(()),
            (have, want) => Err(format!("read gives {have:?}, reference {want:?}")),
        }
    }

    fn seek(&mut self, target: &Target, offset: u64) -> Step<()> {
        let Some((inode, id)) = self.target(target)? else { return Ok(()) };
        let volume = self.volume();
        let Ok(file) = self.reference.file(id) else { return Ok(()) };
        let size = file.size();
        match volume.seek_data(&inode, offset) {
            Ok(at) if at < offset || at >= size || !file.is_zero(offset, at) => {
                return Err(format!("seek_data({offset}) gives {at} of {size}"));
            }
            Err(FsError::NoSuchOffset) if !file.is_zero(offset, size) => {
                return Err(format!("seek_data({offset}) finds nothing"));
            }
            Ok(_) | Err(FsError::NoSuchOffset) => {}
            Err(err) => return Err(format!("seek_data: {err}")),
        }
        match volume.seek_hole(&inode, offset) {
            Ok(at) if at >= offset && at <= size => {
                let block = u64::from(volume.statfs().block_size);
                let end = (at / block + 1) * block;
                let hole = at == size || file.is_zero(at, end);
                if hole { Ok(()) } else { Err(format!("seek_hole({offset}): data at {at}")) }
            }
            Err(FsError::NoSuchOffset) if offset >= size => Ok(()),
            other => Err(format!("seek_hole({offset}) gives {other:?} of {size}")),
        }
    }

    fn xattr(&mut self, op: &ModelOp) -> Step<()> {
        let (ModelOp::SetXattr { path, .. } | ModelOp::RemoveXattr { path, .. }) = op else {
            return Ok(());
        };
        let Some((inode, id)) = self.target(&Target::Path(path.clone()))? else {
            return Ok(());
        };
        let volume = self.volume();
        let is_link = volume.readlink(&inode).is_ok();
        match op {
            // Of a link with a value outside e2fsck 1.47.0 takes the target for block numbers.
            ModelOp::SetXattr { len: 60.., .. } if self.has_values && is_link => Ok(()),
            ModelOp::SetXattr { name, len, seed, mode, .. } => {
                let mut value = vec![0; *len];
                fill(*seed, 0, &mut value);
                let flags = match mode {
                    XattrMode::Any => XattrFlags::Any,
                    XattrMode::Create => XattrFlags::Create,
                    XattrMode::Replace => XattrFlags::Replace,
                };
                let have = volume.setxattr(&inode, name.as_bytes(), &value, flags);
                let is_full = self.xattrs_full(id, *len) || self.is_full(*len as u64);
                if matches!(have, Err(FsError::NoSpace)) && is_full {
                    self.stats.no_space += 1;
                    return Ok(());
                }
                let want = |r: &mut Reference| r.set_xattr(id, name.as_bytes(), &value, *mode);
                self.same(have, want, &[], 0).map(drop)
            }
            ModelOp::RemoveXattr { name, .. } => {
                let have = volume.removexattr(&inode, name.as_bytes());
                self.same(have, |r| r.remove_xattr(id, name.as_bytes()), &[], 0).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// True if the attributes of an inode and one more may not fit into one block.
    fn xattrs_full(&self, id: NodeId, more: usize) -> bool {
        let entry = |name: usize, value: usize| 24 + name + value;
        let xattrs = &self.reference.node(id).xattrs;
        let used: usize = xattrs.iter().map(|(n, v)| entry(n.len(), v.len())).sum();
        used + entry(32, more) > self.volume().statfs().block_size as usize - 64
    }

    fn set_attr(&mut self, op: &ModelOp) -> Step<()> {
        let (ModelOp::Chmod { path, .. }
        | ModelOp::Chown { path, .. }
        | ModelOp::SetMtime { path, .. }) = op
        else {
            return Ok(());
        };
        let Some((inode, id)) = self.target(&Target::Path(path.clone()))? else {
            return Ok(());
        };
        let mut set = SetAttr::default();
        let (mut mode, mut owner, mut mtime) = (None, None, None);
        match op {
            ModelOp::Chmod { mode: m, .. } => (set.mode, mode) = (Some(*m), Some(*m)),
            ModelOp::Chown { uid, gid, .. } => {
                (set.uid, set.gid, owner) = (Some(*uid), Some(*gid), Some((*uid, *gid)));
            }
            ModelOp::SetMtime { mtime_ns, .. } => {
                let seconds = (mtime_ns / 1_000_000_000) as i64;
                let nanoseconds = (mtime_ns % 1_000_000_000) as u32;
                set.mtime = Some(SetTime::At(Timestamp { seconds, nanoseconds }));
                mtime = Some(*mtime_ns);
            }
            _ => {}
        }
        self.volume().setattr(&inode, &set).map_err(|e| format!("setattr: {e}"))?;
        self.reference.set_attr(id, mode, owner, mtime);
        Ok(())
    }

    /// Lists in pieces: each name once, also when reading stops after every entry.
    fn readdir(&mut self, path: &str) -> Step<()> {
        let Some((inode, id)) = self.target(&Target::Path(path.to_owned()))? else {
            return Ok(());
        };
        let Ok(wanted) = self.reference.entries(id) else { return Ok(()) };
        let volume = self.volume();
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let mut one = None;
            let read = volume.readdir(&inode, cookie, &mut |entry| {
                one = Some((entry.name.to_vec(), entry.next_cookie));
                false
            });
            read.map_err(|e| format!("readdir: {e}"))?;
            let Some((name, next)) = one else { break };
            cookie = next;
            names.push(name);
            if names.len() > wanted.len() + 3 {
                return Err("readdir does not end".to_owned());
            }
        }
        names.retain(|n| n != b"." && n != b".." && (!path.is_empty() || n != b"lost+found"));
        names.sort();
        if names.iter().eq(wanted.keys()) {
            return Ok(());
        }
        Err(format!("readdir gives {} names, not {}", names.len(), wanted.len()))
    }

    fn compare(&mut self) -> Step<()> {
        self.stats.compares += 1;
        let open = self.slots.values().map(|(inode, id)| (inode, *id));
        compare_tree(&self.volume(), &self.reference, open)?;
        for (inode, id) in self.slots.values() {
            if self.reference.file(*id).is_ok() {
                compare_file(&self.volume(), inode, self.reference.node(*id))?;
            }
        }
        Ok(())
    }

    fn remount(&mut self, crash: bool) -> Step<()> {
        self.stats.remounts += 1;
        if crash {
            self.volume().syncfs().map_err(|e| format!("syncfs: {e}"))?;
            for (_, (inode, id)) in std::mem::take(&mut self.slots) {
                // Not dropped: a machine that stops does not free its open files.
                std::mem::forget(inode);
                self.reference.close(id);
            }
            self.volume = None;
        } else {
            self.close_all();
            let volume = self.volume.take().expect("mounted but for the moment of a remount");
            volume.unmount().map_err(|e| format!("unmount: {e}"))?;
        }
        self.mount()?;
        self.compare()
    }
}
