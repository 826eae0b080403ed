//! Atomic writes of a file: several pages become visible and durable together, or none does.
//!
//! ```text
//!   begin ──> AtomicWrite ── write, read ──> staged bytes, beside the page cache
//!                 |    \
//!                 |     drop: abort, nothing has happened
//!               commit
//!                 rwsem: earlier changes of the file durable (usually there are none)
//!                        staged bytes over the newest pages -> images
//!                 io:    plan -> one handle: extents, size, all images -> page cache
//!                 sync   one record, one flush
//! ```
//!
//! Promises
//! - Before the commit only [`crate::Volume::read_atomic`] shows staged bytes. They are in no
//!   cache, and neither write-back nor a sync of another handle touches them.
//! - The commit is one journal handle, so it is one dependency set of one transaction. Recovery,
//!   ours or a stock kernel's, gives all of it or nothing. It returns when the record is durable.
//! - Space for new blocks is reserved when they are staged. A write that would make the commit
//!   larger than one record fails there with [`FsError::AtomicTooBig`], and earlier staged bytes
//!   stay. The commit itself reports it only if free space is so fragmented that new blocks need
//!   more extents than foreseen.
//! - Bytes that were not staged are those of the file at the commit. Changes by other writers,
//!   truncation and punched holes count, and staged bytes are written over them.
//! - A commit that fails has changed nothing, or the volume is latched.
//!
//! Assumptions: `sync=eager` or `sync=periodic`, whose log takes file data. One atomic write of a
//! file at a time; a second one is [`FsError::Busy`]. Memory: the staged pages, bounded by a
//! quarter of the log. The semantics are those of f2fs (`f2fs_ioc_start_atomic_write`,
//! fs/f2fs/file.c), but for abort by another handle. Tested in `tests/it/atomic.rs` and by the
//! crash tests of `syncline-model`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_base::lockrank::WriteGuard;
use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::blocks::{check_regular, load_blocks, map_range};
use crate::data::evict::make_room;
use crate::data::flush::batch::out_pages;
use crate::data::flush::plan::first_unreached_block;
use crate::data::inline::move_out;
use crate::data::sync::fsync_file;
use crate::data::write::{clear_tail, cut, size_limit, touch_mtime};
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::reference::InodeRef;
use crate::map::extents::volume::map_credits;
use crate::pages::Outgoing;

/// Credits of an atomic write beside those of its blocks: the inode, and slack.
const CREDITS_BASE: usize = 8;

/// An atomic write that has begun. Dropping it aborts it.
///
/// It holds a reference to the file: see [`InodeRef`] for where it must not be dropped.
#[derive(Debug)]
pub struct AtomicWrite {
    inode: InodeRef,
    staged: BTreeMap<u64, Staged>,
    /// Byte after the last one that was staged; 0: none was.
    end: u64,
    /// Journal credits that a commit takes, at most.
    credits: usize,
    /// Blocks reserved for staged pages of holes.
    reserved: u64,
}

/// Staged bytes of one block.
#[derive(Debug)]
struct Staged {
    data: Box<[u8]>,
    /// Staged parts of `data`, ascending, none touching another.
    parts: Vec<Range<usize>>,
    /// It was a hole and has a reserved block.
    reserved: bool,
}

impl AtomicWrite {
    /// The file.
    pub fn inode(&self) -> &InodeRef {
        &self.inode
    }

    /// Size of the file as [`crate::Volume::read_atomic`] shows it, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.inode.state.read().size.max(self.end)
    }

    /// Bytes that a commit may have changed, as offset and length; (0, 0) if none is staged.
    pub fn span(&self) -> (u64, u64) {
        let block_size = self.inode.inodes().block_size() as u64;
        let first = self.staged.keys().next().map_or(0, |lblk| lblk * block_size);
        (first, self.end.saturating_sub(first))
    }
}

impl Drop for AtomicWrite {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.inode.inodes().balloc.release(self.reserved);
        }
        self.inode.has_atomic.store(false, Ordering::Release);
    }
}

impl Staged {
    fn new(block_size: usize, reserved: bool) -> Staged {
        Staged { data: vec![0; block_size].into(), parts: Vec::new(), reserved }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.data[at..end].copy_from_slice(bytes);
        let touches = |part: &Range<usize>| part.start <= end && at <= part.end;
        let mut merged = at..end;
        self.parts.retain(|part| {
            if touches(part) {
                merged = merged.start.min(part.start)..merged.end.max(part.end);
            }
            !touches(part)
        });
        let before = self.parts.partition_point(|part| part.start < merged.start);
        self.parts.insert(before, merged);
    }

    /// Copies the staged bytes over a part of the block that begins at `at`.
    fn overlay(&self, at: usize, into: &mut [u8]) {
        let end = at + into.len();
        for part in &self.parts {
            let (from, to) = (part.start.max(at), part.end.min(end));
            if from < to {
                into[from - at..to - at].copy_from_slice(&self.data[from..to]);
            }
        }
    }

    fn is_whole(&self) -> bool {
        matches!(&self.parts[..], [part] if part.len() == self.data.len())
    }
}

impl crate::Volume {
    /// Reports whether [`Self::begin_atomic`] is supported: not with `sync=ordered`, and not on
    /// volumes with `bigalloc`, whose space it would have to promise by the cluster.
    pub fn has_atomic_writes(&self) -> bool {
        self.0.engine.logs_data() && self.0.may_move_data()
    }

    /// Begins an atomic write of a file. Bytes that [`Self::write_atomic`] stages become visible
    /// and durable together at [`Self::commit_atomic`]. Dropping it, or a crash, undoes all of it.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] with `sync=ordered`, [`FsError::Busy`] if one has begun already,
    /// [`FsError::Invalid`] or [`FsError::IsDir`] if it is no regular file.
    pub fn begin_atomic(&self, inode: &InodeRef) -> Result<AtomicWrite> {
        self.0.check_writable()?;
        check_regular(inode)?;
        if !self.0.engine.logs_data() {
            return Err(FsError::NotSupported(
                "atomic writes need sync=eager, whose log takes file data".into(),
            ));
        }
        if !self.has_atomic_writes() {
            return Err(FsError::NotSupported("atomic writes on a volume with bigalloc".into()));
        }
        if inode.has_atomic.swap(true, Ordering::AcqRel) {
            return Err(FsError::Busy);
        }
        let atomic = AtomicWrite {
            inode: inode.clone(),
            staged: BTreeMap::new(),
            end: 0,
            credits: CREDITS_BASE,
            reserved: 0,
        };
        // From now on no write puts data into the inode.
        let _exclusive = inode.rwsem.write();
        move_out(&self.0, inode)?;
        Ok(atomic)
    }

    /// Stages all bytes of `data`. Returns their number.
    ///
    /// # Errors
    /// [`FsError::AtomicTooBig`] for more than one record of the log holds, [`FsError::NoSpace`],
    /// [`FsError::TooBig`], [`FsError::Perm`]. Nothing of this call is staged then, and earlier
    /// staged bytes can still be committed.
    pub fn write_atomic(
        &self,
        atomic: &mut AtomicWrite,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let files: &Files = &self.0;
        files.check_writable()?;
        let inode = atomic.inode.clone();
        let _shared = inode.rwsem.read();
        let limit = {
            let st = inode.state.read();
            if st.raw.i_flags & (flags::IMMUTABLE | flags::APPEND | flags::VERITY) != 0 {
                return Err(FsError::Perm);
            }
            size_limit(files, st.raw.i_flags & flags::EXTENTS != 0)
        };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= limit);
        let end = end.ok_or(FsError::TooBig)?;
        if data.is_empty() {
            return Ok(0);
        }
        let block_size = files.block_size() as u64;
        let (first, last) = (offset / block_size, (end - 1) / block_size);
        stage(files, atomic, first, last + 1)?;
        let mut done = 0;
        while done < data.len() {
            let (lblk, at, n) = cut(offset + done as u64, data.len() - done, block_size as usize);
            if let Some(staged) = atomic.staged.get_mut(&lblk) {
                staged.write(at, &data[done..done + n]);
            }
            done += n;
        }
        atomic.end = atomic.end.max(end);
        Ok(done)
    }

    /// Reads the file as it would be after the commit.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_atomic(&self, atomic: &AtomicWrite, offset: u64, into: &mut [u8]) -> Result<usize> {
        let len = atomic.size().saturating_sub(offset).min(into.len() as u64) as usize;
        let into = &mut into[..len];
        let mut done = 0;
        while done < len {
            let next = offset + done as u64;
            match self.read(&atomic.inode, next, &mut into[done..])? {
                0 => break,
                n => done += n,
            }
        }
        // Behind the end of the file as others see it.
        into[done..].fill(0);
        let block_size = self.0.block_size();
        let mut at = 0;
        while at < len {
            let (lblk, skip, n) = cut(offset + at as u64, len - at, block_size);
            if let Some(staged) = atomic.staged.get(&lblk) {
                staged.overlay(skip, &mut into[at..at + n]);
            }
            at += n;
        }
        Ok(len)
    }

    /// Makes all staged bytes visible and durable together.
    ///
    /// # Errors
    /// For lack of space nothing has changed. I/O errors latch the volume; whether all of it or
    /// nothing is on the device is known after recovery.
    pub fn commit_atomic(&self, mut atomic: AtomicWrite) -> Result<()> {
        let files: &Files = &self.0;
        let inode = atomic.inode.clone();
        if atomic.staged.is_empty() {
            return fsync_file(files, &inode, 0, u64::MAX, true);
        }
        files.before_change()?;
        let exclusive = inode.rwsem.write();
        touch_mtime(files, &inode)?;
        let size = inode.state.read().size;
        if atomic.end > size {
            let _change = files.pages.change();
            clear_tail(files, &inode, size)?;
        }
        prepare_file(files, &inode)?;
        make_room(files, atomic.staged.len());
        let pages = images(files, &inode, &atomic.staged, size)?;
        let end = size.max(atomic.end);
        let _room = files.reserve_room(u32::try_from(atomic.credits).unwrap_or(u32::MAX))?;
        commit_pages(files, &inode, exclusive, pages, end, &mut atomic.reserved)?;
        files.engine.finish_atomic(files, &inode)
    }
}
/// Makes blocks `first..end` staged, with space and log room, or changes nothing.
fn stage(files: &Files, atomic: &mut AtomicWrite, first: u64, end: u64) -> Result<()> {
    let limit = files.journal()?.max_credits() as usize / 2;
    let too_big = || FsError::AtomicTooBig { limit_bytes: (limit * files.block_size()) as u64 };
    if end - first > limit as u64 {
        return Err(too_big());
    }
    let absent = |lblk: &u64| !atomic.staged.contains_key(lblk);
    let new: Vec<u64> = (first..end).filter(absent).collect();
    let per_run = map_credits(files, &atomic.inode.state.read()) as usize;
    let (mut fresh, mut credits, mut reserved) = (Vec::new(), atomic.credits, 0);
    for run in new.chunk_by(|a, b| a + 1 == *b) {
        for mapped in map_range(files, &atomic.inode, run[0], run[run.len() - 1] + 1)? {
            let is_hole = mapped.is_hole();
            let is_known = |lblk: u64| is_hole && !atomic.inode.pages.lock().contains(lblk);
            let before = mapped.lblk.checked_sub(1).and_then(|lblk| atomic.staged.get(&lblk));
            // New blocks behind new blocks are one extent with them, if there is room.
            let continues = is_hole && before.is_some_and(|staged| staged.reserved);
            credits += if mapped.holds_data() || continues { 0 } else { per_run };
            for lblk in mapped.lblk..mapped.lblk + mapped.len {
                let needs_block = is_known(lblk);
                reserved += u64::from(needs_block);
                fresh.push((lblk, Staged::new(files.block_size(), needs_block)));
            }
        }
    }
    credits += fresh.len();
    if credits > limit {
        return Err(too_big());
    }
    if reserved > 0 {
        files.balloc.reserve(reserved)?;
    }
    atomic.reserved += reserved;
    atomic.credits = credits;
    atomic.staged.extend(fresh);
    Ok(())
}

/// Writes or logs earlier changes of the file, so that the commit holds nothing else.
fn prepare_file(files: &Files, inode: &InodeRef) -> Result<()> {
    let pages = inode.pages.lock().sync_dirty_in(0, u64::MAX).pages;
    if pages > 0 || first_unreached_block(files, inode) != u64::MAX {
        files.engine.prepare_sync(files, inode)?;
    }
    Ok(())
}

/// Makes the new contents of each staged block. The caller holds `rwsem`.
fn images(
    files: &Files,
    inode: &Inode,
    staged: &BTreeMap<u64, Staged>,
    size: u64,
) -> Result<Vec<Outgoing>> {
    let block_size = files.block_size();
    let mut pages = Vec::with_capacity(staged.len());
    for (&lblk, staged) in staged {
        let cached = inode.pages.lock().peek(lblk);
        let old = match cached {
            Some(old) => Some(old),
            None if staged.is_whole() => None,
            None => newest_block(files, inode, lblk)?,
        };
        let mut page = files.pages.page_to_fill();
        let own = Arc::make_mut(&mut page);
        match old {
            Some(old) => own.copy_from_slice(&old),
            None => own.fill(0),
        }
        let inside = size.saturating_sub(lblk * block_size as u64).min(block_size as u64);
        own[inside as usize..].fill(0);
        staged.overlay(0, own);
        let changes = inode.pages.lock().changes_to(&files.pages, lblk, &page);
        pages.push(Outgoing {
            lblk,
            data: page,
            delalloc: staged.reserved,
            sync_dirty: true,
            changes,
            fill: false,
        });
    }
    Ok(pages)
}

fn newest_block(inodes: &Inodes, inode: &Inode, lblk: u64) -> Result<Option<Arc<[u8]>>> {
    let loaded = load_blocks(inodes, inode, lblk, lblk + 1)?.into_iter().next();
    Ok(loaded.and_then(|loaded| loaded.data))
}

/// Logs the pages in one handle, puts them into the cache and makes them durable.
fn commit_pages(
    files: &Files,
    inode: &Inode,
    exclusive: WriteGuard<'_, ()>,
    pages: Vec<Outgoing>,
    size: u64,
    reserved: &mut u64,
) -> Result<()> {
    let change = files.pages.change();
    let io = inode.io.lock();
    // Installing a segment takes its blocks from those that the inode has reserved.
    let delayed = std::mem::take(reserved);
    inode.state.write().reserved_blocks += delayed;
    let mut pages = out_pages(pages);
    let seeds = match files.engine.log_together(files, inode, size, &mut pages) {
        Ok(seeds) => seeds,
        Err(err) => {
            let mut st = inode.state.write();
            st.reserved_blocks = st.reserved_blocks.saturating_sub(delayed);
            *reserved = delayed;
            return Err(err);
        }
    };
    {
        let mut st = inode.state.write();
        let mut tree = inode.pages.lock();
        for out in pages {
            tree.insert_logged(&files.pages, out.page.lblk, out.page.data);
        }
        tree.note_dirty(&files.pages, &*files.clock);
        st.size = st.size.max(size);
    }
    // Readers and writers need not wait for the device.
    drop((change, exclusive));
    files.engine.make_durable(files, &seeds)?;
    drop(io);
    files.latch.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_parts_merge_and_cover_only_themselves() {
        let mut staged = Staged::new(64, false);
        staged.write(10, &[1; 5]);
        staged.write(40, &[2; 4]);
        staged.write(15, &[3; 5]);
        assert_eq!(staged.parts, [10..20, 40..44]);
        staged.write(12, &[4; 30]);
        assert!(matches!(&staged.parts[..], [part] if *part == (10..44)));
        assert!(!staged.is_whole());
        let mut block = [9; 64];
        staged.overlay(0, &mut block);
        assert_eq!((block[9], block[10], block[12], block[43], block[44]), (9, 1, 4, 2, 9));
        let mut middle = [9; 4];
        staged.overlay(42, &mut middle);
        assert_eq!(middle, [2, 2, 9, 9]);
        staged.write(0, &[5; 64]);
        assert!(staged.is_whole());
    }
}
