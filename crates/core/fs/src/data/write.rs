//! Writes: into the cache, with a reservation for every block that has none on disk yet.
//!
//! ```text
//!   for each run of blocks:
//!     cached          copy over the page (a new page if a reader or write-back holds the old one)
//!     not cached      hole -> reserve | written and only partly covered -> read it first
//!                     then one new page per block: a full one costs one copy and no zeroing
//!   i_size moves in the same step as the pages: write-back never sees one without the other
//! ```
//!
//! With `sync=periodic` the first bytes of a write, up to [`Engine::whole_write_bytes`], are one
//! change, so that no sync point divides them. Blocks for the holes, room in the running
//! transaction and room in the cache are reserved before the change, because a change must not
//! wait.
//!
//! The inode on disk changes here only if the coarse clock moved since the last change (mtime and
//! ctime, `inode/times.rs`) or set-id bits go: then one handle with one inode table block, as
//! `file_update_time` does it. Size and blocks follow at write-back.

use std::sync::Arc;

use syncline_ondisk::inode::{S_ISGID, S_ISUID, S_IXGRP, flags};

use crate::data::Files;
use crate::data::blocks::{Loaded, Run, check_regular_mode, load_blocks, map_range, zero_partial};
#[cfg(doc)]
use crate::data::engine::Engine;
use crate::data::evict::make_room;
use crate::data::flush::files::write_back_files;
use crate::data::inline::write_inline;
use crate::data::schedule::throttle::balance_dirty;
use crate::data::sync::fsync_file;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::delayed::Need;
use crate::inode::inline::is_inline;
use crate::inode::reference::InodeRef;
use crate::inode::table::{max_file_bytes, write_inode};
use crate::inode::times::{Stamp, keep_newer, stamp};
use crate::store::Store;

/// Blocks that one step takes.
const CHUNK_BLOCKS: u64 = 64;

impl crate::Volume {
    /// Writes `data` at `offset`; a gap before it becomes a hole. Returns the number of bytes
    /// written; fewer than given only if space or the largest file size ran out.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] and [`FsError::TooBig`] if no byte was written; [`FsError::IsDir`],
    /// [`FsError::Perm`] (immutable, or not at the end of an append-only file),
    /// [`FsError::ReadOnly`], [`FsError::Latched`], I/O errors.
    pub fn write(&self, inode: &InodeRef, offset: u64, data: &[u8]) -> Result<usize> {
        before_write(&self.0, inode)?;
        let _exclusive = inode.rwsem.write();
        write_exclusive(&self.0, inode, offset, data)
    }

    /// Appends `data` to the file. Returns the offset and the number of bytes written.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_append(&self, inode: &InodeRef, data: &[u8]) -> Result<(u64, usize)> {
        before_write(&self.0, inode)?;
        let _exclusive = inode.rwsem.write();
        let offset = inode.state.read().size;
        let done = write_exclusive(&self.0, inode, offset, data)?;
        Ok((offset, done))
    }

    /// Writes, and makes the written bytes durable before it returns (`O_SYNC`; with `datasync`
    /// `O_DSYNC`, `RWF_DSYNC`).
    ///
    /// # Errors
    /// As [`Self::write`] and [`Self::fsync`].
    pub fn write_sync(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        datasync: bool,
    ) -> Result<usize> {
        let done = self.write(inode, offset, data)?;
        fsync_file(&self.0, inode, offset, done as u64, datasync)?;
        Ok(done)
    }
}
/// Block, content, and whether it comes with a reserved block.
type NewPage = (u64, Arc<[u8]>, bool);

fn before_write(files: &Files, inode: &Inode) -> Result<()> {
    files.before_change()?;
    if files.pages.above_throttle() {
        balance_dirty(files, inode);
    }
    Ok(())
}

/// Writes under `rwsem`.
fn write_exclusive(files: &Files, inode: &Inode, offset: u64, data: &[u8]) -> Result<usize> {
    {
        let st = inode.state.read();
        check_regular_mode(st.raw.i_mode)?;
        if st.raw.i_flags & (flags::IMMUTABLE | flags::VERITY) != 0
            || (st.raw.i_flags & flags::APPEND != 0 && offset < st.size)
        {
            return Err(FsError::Perm);
        }
    }
    if data.is_empty() {
        return Ok(0);
    }
    let (size, limit) = {
        let st = inode.state.read();
        let has_extents = st.raw.i_flags & flags::EXTENTS != 0;
        (st.size, size_limit(files, has_extents || files.extents && is_inline(&st)))
    };
    let room = limit.checked_sub(offset).filter(|room| *room > 0).ok_or(FsError::TooBig)?;
    let data = &data[..room.min(data.len() as u64) as usize];
    touch_mtime(files, inode)?;
    if offset == 0 {
        files.hot.note_contents(inode, data);
    }
    if files.inline_data && write_inline(files, inode, offset, data)? {
        return Ok(data.len());
    }
    if offset + data.len() as u64 > size {
        let _change = files.pages.change();
        clear_tail(files, inode, size)?;
    }
    let mut done = 0;
    while done < data.len() {
        if files.pages.above_throttle() {
            balance_dirty(files, inode);
        }
        if files.balloc.is_crowded() {
            // What cannot be placed stays dirty, and its owner hears of it.
            let _ = write_back_files(files, false, |_, _| true);
        }
        match files
            .relieve_log()
            .and_then(|()| write_some(files, inode, offset + done as u64, &data[done..]))
        {
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(err) => return Err(err),
        }
    }
    Ok(done)
}

/// Largest size of a file in bytes: 2^32 - 1 blocks with extents, what three levels of indirect
/// blocks reach without; without `huge_file` no more than Linux can count (`ext4_max_size`).
pub(crate) fn size_limit(store: &Store, extents: bool) -> u64 {
    let per_block = store.block_size() as u64 / 4;
    let indirect = 12 + per_block + per_block.pow(2) + per_block.pow(3);
    let blocks = if extents { u64::MAX } else { indirect };
    let limit = max_file_bytes(store).min(blocks.saturating_mul(store.block_size() as u64));
    if store.huge_files {
        return limit;
    }
    // Sectors are counted in 32 bits.
    let sectors = u64::from(u32::MAX);
    limit.min(sectors >> (store.geo.block_bits - 9) << store.geo.block_bits)
}

/// Sets mtime and ctime if the coarse clock moved, and takes set-id bits away from files that
/// an unprivileged caller writes to (`file_modified`).
#[inline]
pub(crate) fn touch_mtime(inodes: &Inodes, inode: &Inode) -> Result<()> {
    let strip = {
        let st = inode.state.read();
        let keep = inodes.options.privileged || inodes.options.set_id_by_caller;
        let strip = if keep { 0 } else { set_id_bits(st.raw.i_mode) };
        if strip == 0 && stamp(inodes, inode, &st) == Stamp::Same {
            return Ok(());
        }
        strip
    };
    if strip == 0 && move_times_in_memory(inodes, inode) {
        return Ok(());
    }
    let mut h = inodes.start(1)?;
    let mut st = inode.state.write();
    if let Stamp::Slot(mtime, ctime) = stamp(inodes, inode, &st) {
        st.set_times(inode, mtime, ctime);
    }
    st.raw.i_mode &= !strip;
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Times)
}

/// Moves mtime and ctime, unless they must go to the slot of the inode table now.
fn move_times_in_memory(inodes: &Inodes, inode: &Inode) -> bool {
    let mut st = inode.state.write();
    match stamp(inodes, inode, &st) {
        Stamp::Same => {}
        Stamp::Memory(ns) => keep_newer(inodes, inode, &mut st, ns),
        Stamp::Slot(mtime, ctime) if inodes.options.lazytime => {
            st.set_times(inode, mtime, ctime);
            st.raw.fit_times();
            st.times_dirty = true;
        }
        Stamp::Slot(..) => return false,
    }
    true
}

/// Zeroes the last block behind the old end of the file, before the file grows over it. Another
/// writer of this image may have left any bytes there.
pub(crate) fn clear_tail(inodes: &Inodes, inode: &Inode, size: u64) -> Result<()> {
    let used = size % inodes.block_size() as u64;
    if used == 0 {
        return Ok(());
    }
    zero_partial(inodes, inode, size, inodes.block_size() as u64 - used)
}

/// Writes a part of `data`: one step, or as many bytes as the engine wants in one change. Returns
/// the number of bytes.
fn write_some(files: &Files, inode: &Inode, offset: u64, data: &[u8]) -> Result<usize> {
    let Some(most) = files.engine.whole_write_bytes(files)? else {
        return write_step(files, inode, offset, data, None);
    };
    let block_size = files.block_size() as u64;
    let end = offset.saturating_add(most);
    let whole = (end - end % block_size).max(offset - offset % block_size + block_size) - offset;
    let data = &data[..data.len().min(usize::try_from(whole).unwrap_or(usize::MAX))];
    let (first, to) = (offset / block_size, (offset + data.len() as u64).div_ceil(block_size));
    let _room = files.reserve_room(u32::try_from(to - first).unwrap_or(u32::MAX))?;
    let absent = absent_blocks(inode, first, to);
    make_room(files, absent.len());
    let mut reserved = reserve_absent(files, inode, &absent)?;
    let change = files.pages.change();
    let mut done = 0;
    let result = loop {
        if done == data.len() {
            break Ok(());
        }
        match write_step(files, inode, offset + done as u64, &data[done..], Some(&mut reserved)) {
            Ok(n) => done += n,
            Err(err) => break Err(err),
        }
    };
    drop(change);
    files.balloc.release(reserved);
    result.or_else(|err| if done > 0 { Ok(()) } else { Err(err) }).map(|()| done)
}

/// The blocks of `from..to` that are not cached.
fn absent_blocks(inode: &Inode, from: u64, to: u64) -> Vec<u64> {
    let tree = inode.pages.lock();
    (from..to).filter(|lblk| !tree.contains(*lblk)).collect()
}

/// Reserves a block for each of the blocks that is a hole. Returns how many: none if there are not
/// enough, and the write goes as far as the space does.
fn reserve_absent(files: &Files, inode: &Inode, absent: &[u64]) -> Result<u64> {
    let mut runs = Vec::new();
    for part in absent.chunk_by(|a, b| a + 1 == *b) {
        runs.extend(map_range(files, inode, part[0], part[part.len() - 1] + 1)?);
    }
    let need = Need::of(files, inode, holes(&runs))?;
    match need.promise(files, true) {
        Err(FsError::NoSpace) => Ok(0),
        other => other.map(|()| need.count),
    }
}

/// Does one step of a write: cached blocks, or else one run of blocks that are not cached.
/// `reserved`: the step is a part of a change, for which so many blocks were reserved.
fn write_step(
    files: &Files,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    reserved: Option<&mut u64>,
) -> Result<usize> {
    match write_cached(files, inode, offset, data, reserved.is_some()) {
        0 => write_absent(files, inode, offset, data, reserved),
        done => Ok(done),
    }
}

/// Copies over the leading blocks that are cached. Returns the bytes taken, maybe none.
fn write_cached(
    inodes: &Inodes,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    in_change: bool,
) -> usize {
    let block_size = inodes.block_size();
    let data = &data[..data.len().min(CHUNK_BLOCKS as usize * block_size)];
    let end = offset + data.len() as u64;
    let grows = end > inode.state.read().size;
    let _change = if in_change { None } else { inodes.pages.change() };
    let mut st = grows.then(|| inode.state.write());
    let mut tree = inode.pages.lock();
    let mut done = 0;
    while done < data.len() {
        let (lblk, skip, n) = cut(offset + done as u64, data.len() - done, block_size);
        if !tree.overwrite(&inodes.pages, lblk, skip, &data[done..done + n]) {
            break;
        }
        done += n;
    }
    if done > 0 {
        tree.note_dirty(&inodes.pages, &*inodes.clock);
        if let Some(st) = st.as_mut() {
            st.size = st.size.max(offset + done as u64);
        }
    }
    done
}

/// Takes one run of blocks that are not cached (the first one is not).
fn write_absent(
    files: &Files,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    from: Option<&mut u64>,
) -> Result<usize> {
    let in_change = from.is_some();
    let block_size = files.block_size() as u64;
    let first = offset / block_size;
    let last = (offset + data.len() as u64 - 1) / block_size;
    let mut to = (last + 1).min(first + CHUNK_BLOCKS);
    {
        let tree = inode.pages.lock();
        to = (first + 1..to).find(|lblk| tree.contains(*lblk)).unwrap_or(to);
    }
    let mut runs = map_range(files, inode, first, to)?;
    let mut need = Need::of(files, inode, holes(&runs))?;
    if !take_reserved(&need, from) {
        match need.promise(files, !in_change) {
            Err(FsError::NoSpace) if to > first + 1 => {
                // As far as the space goes: block by block from here on.
                runs = map_range(files, inode, first, first + 1)?;
                to = first + 1;
                need = Need::of(files, inode, holes(&runs))?;
                need.promise(files, !in_change)?;
            }
            other => other?,
        }
    }
    let data = &data[..data.len().min((to * block_size - offset) as usize)];
    if !in_change {
        make_room(files, (to - first) as usize);
    }
    let pages = match build_pages(files, inode, &runs, offset, data) {
        Ok(pages) => pages,
        Err(err) => {
            files.balloc.release(need.count);
            return Err(err);
        }
    };
    let _change = if in_change { None } else { files.pages.change() };
    let mut st = inode.state.write();
    let mut tree = inode.pages.lock();
    for (lblk, page, delalloc) in pages {
        tree.insert_dirty(&files.pages, lblk, page, delalloc);
    }
    tree.note_dirty(&files.pages, &*files.clock);
    need.note(&mut st);
    st.size = st.size.max(offset + data.len() as u64);
    Ok(data.len())
}

/// First block and length of each hole.
fn holes(runs: &[Run]) -> impl Iterator<Item = (u64, u64)> + '_ {
    runs.iter().filter(|run| run.is_hole()).map(|run| (run.lblk, run.len))
}

/// Takes what is needed out of `from`, which was promised before, if that is enough.
fn take_reserved(need: &Need, from: Option<&mut u64>) -> bool {
    let Some(from) = from else { return false };
    match from.checked_sub(need.count) {
        Some(left) => {
            *from = left;
            true
        }
        None => false,
    }
}

/// Builds one page for each block of `runs`: `data`, and around it the old contents of the block or
/// zeros.
fn build_pages(
    inodes: &Inodes,
    inode: &Inode,
    runs: &[Run],
    offset: u64,
    data: &[u8],
) -> Result<Vec<NewPage>> {
    let block_size = inodes.block_size();
    let mut pages = Vec::with_capacity(CHUNK_BLOCKS as usize);
    let mut done = 0;
    for run in runs {
        for lblk in run.lblk..run.lblk + run.len {
            let (_, skip, n) = cut(offset + done as u64, data.len() - done, block_size);
            let bytes = &data[done..done + n];
            let page = if n == block_size {
                inodes.pages.page(bytes)
            } else {
                let old = old_block(inodes, inode, run, lblk)?;
                let mut page = inodes.pages.page_to_fill();
                let own = Arc::make_mut(&mut page);
                match old {
                    Some(old) => own.copy_from_slice(&old),
                    None => own.fill(0),
                }
                own[skip..skip + n].copy_from_slice(bytes);
                page
            };
            pages.push((lblk, page, run.is_hole()));
            done += n;
        }
    }
    Ok(pages)
}

fn old_block(inodes: &Inodes, inode: &Inode, run: &Run, lblk: u64) -> Result<Option<Arc<[u8]>>> {
    if !run.holds_data() {
        return Ok(None);
    }
    let loaded: Option<Loaded> = load_blocks(inodes, inode, lblk, lblk + 1)?.into_iter().next();
    Ok(loaded.and_then(|loaded| loaded.data))
}

/// Block, first byte in it and number of bytes of the first piece of a write.
pub(crate) fn cut(offset: u64, len: usize, block_size: usize) -> (u64, usize, usize) {
    let skip = (offset % block_size as u64) as usize;
    (offset / block_size as u64, skip, (block_size - skip).min(len))
}

/// The bits that a write takes away (`setattr_should_drop_suidgid`).
fn set_id_bits(mode: u16) -> u16 {
    let group = if mode & S_IXGRP != 0 { mode & S_ISGID } else { 0 };
    (mode & S_ISUID) | group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_blocks() {
        assert_eq!(cut(0, 10, 4096), (0, 0, 10));
        assert_eq!(cut(4090, 10, 4096), (0, 4090, 6));
        assert_eq!(cut(8192, 9000, 4096), (2, 0, 4096));
    }

    #[test]
    fn set_gid_without_group_execute_is_a_lock_mark_and_stays() {
        assert_eq!(set_id_bits(0o6755), 0o6000);
        assert_eq!(set_id_bits(0o6745), 0o4000);
        assert_eq!(set_id_bits(0o0755), 0);
    }
}
