//! Reads: cached pages in parallel, misses in one batch with readahead, then the access time.
//!
//! Readahead is Linux's ("on-demand", `mm/readahead.c`) without the asynchronous part, since
//! nothing here runs in the background: a miss of a reader that continues where the last one ended
//! reads a window that doubles up to [`READAHEAD_BYTES_MAX`]; any other miss reads the requested
//! range.

use std::sync::atomic::Ordering;

use syncline_device::Plug;
use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::blocks::{Loaded, check_regular, load_blocks, load_unchecked, map_range};
use crate::data::evict::make_room;
use crate::data::verity::{descriptor, is_verity};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::inline::{is_inline, read_inline};
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::options::Atime;
use crate::store::Store;
use crate::time::Timestamp;

/// Largest window, in bytes (Linux: `read_ahead_kb`, 128 KiB, which large reads exceed too).
const READAHEAD_BYTES_MAX: u64 = 512 * 1024;

/// Blocks from which on a read goes straight into the caller's memory.
const THROUGH_BLOCKS_MIN: usize = 16;

/// Blocks looked up under one hold of the page lock.
const CHUNK_BLOCKS: usize = 128;

/// Access times older than this are moved by a read whatever the other times are (relatime).
const RELATIME_S: i64 = 24 * 60 * 60;

impl crate::Volume {
    /// Reads at `offset` into `into`. Returns the number of bytes; fewer than requested only at the
    /// end of the file.
    ///
    /// # Errors
    /// [`crate::FsError::IsDir`], I/O errors, and corruption found on the way to the blocks.
    pub fn read(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        read_and(&self.0, inode, offset, into, (true, true))
    }

    /// Says if a program may open the inode (`ext4_file_open`): a file with fs-verity only for
    /// reading, and only with a descriptor that is whole.
    ///
    /// # Errors
    /// [`FsError::Perm`], also for an immutable file and for one that is append-only, unless the
    /// program appends; [`FsError::NoKey`] for an encrypted file, [`FsError::Verity`], I/O.
    pub fn check_open(&self, inode: &InodeRef, writes: bool, appends: bool) -> Result<()> {
        let (flags, is_file) = {
            let st = inode.state.read();
            (st.raw.i_flags, st.raw.is_file())
        };
        let fixed = flags & flags::IMMUTABLE != 0 || flags & flags::APPEND != 0 && !appends;
        if writes && (fixed || is_file && flags & flags::VERITY != 0) {
            return Err(FsError::Perm);
        }
        if is_file && flags & flags::ENCRYPT != 0 {
            return Err(FsError::NoKey);
        }
        if is_file && flags & flags::VERITY != 0 {
            descriptor(&self.0, inode, &|lblk| load_unchecked(&self.0, inode, lblk))?;
        }
        Ok(())
    }

    /// As [`Self::read`] for a caller with its own cache: data of large reads is not cached here.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_once(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        read_and(&self.0, inode, offset, into, (false, true))
    }

    /// As [`Self::read_once`], without an update of the access time (`O_NOATIME`).
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_unseen(&self, inode: &InodeRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        read_and(&self.0, inode, offset, into, (false, false))
    }
}
fn read_and(
    files: &Files,
    inode: &InodeRef,
    offset: u64,
    into: &mut [u8],
    (keep, touch): (bool, bool),
) -> Result<usize> {
    check_regular(inode)?;
    files.check_running()?;
    let done = {
        let _shared = inode.rwsem.read();
        read_shared(files, inode, offset, into, keep)?
    };
    if touch && !into.is_empty() {
        touch_atime(files, inode);
    }
    Ok(done)
}

/// Reads under `rwsem`, without checks and access time. With `keep` all data from the device is
/// cached; without it large reads are not.
fn read_shared(
    files: &Files,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
    keep: bool,
) -> Result<usize> {
    let (size, inline, verity) = {
        let st = inode.state.read();
        if st.raw.has_flag(flags::ENCRYPT) {
            return Err(FsError::NoKey);
        }
        (st.size, is_inline(&st), is_verity(&st))
    };
    let len = size.saturating_sub(offset).min(into.len() as u64) as usize;
    if inline {
        read_inline(files, inode, &inode.state.read(), offset, &mut into[..len])?;
        return Ok(len);
    }
    let block_size = files.block_size() as u64;
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        if !verity {
            // Blocks that have to be checked go through pages.
            if let Some(n) = read_through(files, inode, at, &mut into[done..len], keep)? {
                done += n;
                continue;
            }
        }
        let first = at / block_size;
        let last = (offset + len as u64 - 1) / block_size;
        let want = (last - first + 1).min(CHUNK_BLOCKS as u64);
        let blocks = fetch_blocks(files, inode, first, first + want, size.div_ceil(block_size))?;
        for block in blocks {
            let skip = (offset + done as u64 - block.lblk * block_size) as usize;
            let n = (block_size as usize - skip).min(len - done);
            match block.data {
                Some(page) => into[done..done + n].copy_from_slice(&page[skip..skip + n]),
                None => into[done..done + n].fill(0),
            }
            done += n;
        }
    }
    Ok(len)
}

/// Reads a run of blocks that are not cached from the device into the caller's memory and from
/// there, with `keep`, into the cache: one copy less than through new pages. Returns the bytes;
/// `None` if the read is small, not at a block, or has something cached soon.
fn read_through(
    files: &Files,
    inode: &Inode,
    at: u64,
    into: &mut [u8],
    keep: bool,
) -> Result<Option<usize>> {
    let block_size = files.block_size();
    let whole = (into.len() / block_size).min(CHUNK_BLOCKS);
    if whole < THROUGH_BLOCKS_MIN || at % block_size as u64 != 0 {
        return Ok(None);
    }
    let first = at / block_size as u64;
    let end = {
        let mut tree = inode.pages.lock();
        let whole = first + whole as u64;
        let end = (first..whole).find(|lblk| tree.contains(*lblk)).unwrap_or(whole);
        if end - first < THROUGH_BLOCKS_MIN as u64 {
            return Ok(None);
        }
        tree.readahead.next_lblk = end;
        end
    };
    let blocks = (end - first) as usize;
    if keep {
        make_room(files, blocks);
    }
    let runs = map_range(files, inode, first, end)?;
    let into = &mut into[..blocks * block_size];
    let origin = inode.origin(true);
    let mut plug = Plug::new();
    let mut rest = &mut *into;
    for run in &runs {
        let (part, behind) = rest.split_at_mut(run.len as usize * block_size);
        rest = behind;
        if run.holds_data() {
            plug.read(files.block_offset(run.pblk), part, origin);
        } else {
            part.fill(0);
        }
    }
    plug.submit(&*files.dev)?;
    let mut tree = inode.pages.lock();
    for run in runs.iter().filter(|run| run.holds_data()) {
        files.pages.read.fetch_add(run.len, Ordering::Relaxed);
        if !keep {
            continue;
        }
        let from = (run.lblk - first) as usize * block_size;
        let bytes = &into[from..from + run.len as usize * block_size];
        for (lblk, page) in (run.lblk..).zip(bytes.chunks_exact(block_size)) {
            tree.insert_clean(&files.pages, lblk, files.pages.page(page));
        }
    }
    Ok(Some(into.len()))
}

/// Snapshots of the blocks `from..to`, or of a shorter run from `from` on if some had to be
/// read. `end` is the first block past the end of the file.
fn fetch_blocks(files: &Files, inode: &Inode, from: u64, to: u64, end: u64) -> Result<Vec<Loaded>> {
    let mut found = Vec::with_capacity((to - from) as usize);
    let window = {
        let mut tree = inode.pages.lock();
        for lblk in from..to {
            let Some(data) = tree.read(&files.pages, lblk) else { break };
            found.push(Loaded { lblk, data: Some(data) });
        }
        let missing = from + found.len() as u64;
        if missing == to {
            tree.readahead.next_lblk = to;
            return Ok(found);
        }
        if !found.is_empty() {
            // Hand out what is there; the rest comes with the next call.
            return Ok(found);
        }
        let sequential = tree.readahead.next_lblk == from;
        let window = readahead_window(files, sequential, tree.readahead.window, to - from);
        let mut stop = from + 1;
        while stop < end.min(from + window) && !tree.contains(stop) {
            stop += 1;
        }
        tree.readahead.window = window;
        tree.readahead.next_lblk = stop.min(to);
        from..stop
    };
    make_room(files, (window.end - window.start) as usize);
    let mut loaded = load_blocks(files, inode, window.start, window.end)?;
    loaded.truncate((to - from) as usize);
    Ok(loaded)
}

/// Blocks to read for a miss of `want` blocks, after a window of `last`.
fn readahead_window(store: &Store, sequential: bool, last: u64, want: u64) -> u64 {
    let max = (READAHEAD_BYTES_MAX >> store.geo.block_bits).max(1);
    if !sequential {
        return want;
    }
    let next = if last == 0 { want.saturating_mul(4) } else { last.saturating_mul(2) };
    next.min(max).max(want)
}

/// Updates the access time if the mount options and Linux's relatime rule require it. A failure is
/// ignored: the read has succeeded.
pub(crate) fn touch_atime(inodes: &Inodes, inode: &Inode) {
    if inodes.options.atime == Atime::Noatime || inodes.check_writable().is_err() {
        return;
    }
    let now = inodes.now();
    if !atime_due(inodes, inode, now) {
        return;
    }
    if inodes.options.lazytime {
        let mut st = inode.state.write();
        st.raw.i_atime = now;
        st.raw.fit_times();
        st.times_dirty = true;
        return;
    }
    if inodes.relieve_log().is_ok() {
        if let Ok(mut h) = inodes.start(1) {
            let mut st = inode.state.write();
            st.raw.i_atime = now;
            let _ = write_inode(inodes, &mut h, inode, &mut st, Dirty::Times);
        }
    }
}

fn atime_due(store: &Store, inode: &Inode, now: Timestamp) -> bool {
    let st = inode.state.read();
    let (atime, (mtime, ctime)) = (st.raw.i_atime, st.times());
    if st.raw.i_flags & flags::NOATIME != 0 || atime == now {
        return false;
    }
    store.options.atime == Atime::Strictatime
        || mtime >= atime
        || ctime >= atime
        || now.seconds.saturating_sub(atime.seconds) >= RELATIME_S
}
