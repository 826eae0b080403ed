//! Reading and writing regular files through the page cache.
//!
//! ```text
//!   read:   rwsem shared    -> cached pages, or one batch of device reads (readahead) -> copy out
//!   write:  rwsem exclusive -> reserve blocks -> copy into pages -> i_size     (no device I/O)
//! ```
//!
//! Promises
//! - A write waits for the device only for a block it changes in part and that is not cached, for
//!   the extent blocks that say where that is, or because too much is dirty (`throttle.rs`). It
//!   never waits for another file's fsync.
//! - Space is reserved when a block is first written to; ENOSPC comes from `write`, never later.
//! - Bytes past the end of a file are zero in every page that write-back sends.
//!
//! Tested in `tests/it/file_io.rs` against a byte-array model.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_device::Plug;
use syncline_ondisk::inode as disk;

use crate::data::verity::{check_blocks, is_verity};
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::store::Store;

/// Consecutive logical blocks that are in one state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// First logical block.
    pub lblk: u64,
    /// Number of blocks.
    pub len: u64,
    /// First physical block; 0 for a hole.
    pub pblk: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Run {
    /// True if no blocks are allocated.
    pub(crate) fn is_hole(&self) -> bool {
        self.pblk == 0
    }

    /// True if the blocks on the device are the content.
    pub(crate) fn holds_data(&self) -> bool {
        !self.is_hole() && !self.unwritten
    }
}

/// A block that was looked up on the device.
pub(crate) struct Loaded {
    /// Logical block.
    pub lblk: u64,
    /// `None`: a hole or an unwritten block, which reads as zeros.
    pub data: Option<Arc<[u8]>>,
}

/// Fails unless the inode is a regular file.
pub(crate) fn check_regular(inode: &Inode) -> Result<()> {
    check_regular_mode(inode.state.read().raw.i_mode)
}

/// As [`check_regular`], of an inode with this mode.
pub(crate) fn check_regular_mode(mode: u16) -> Result<()> {
    match mode & disk::S_IFMT {
        disk::S_IFREG => Ok(()),
        disk::S_IFDIR => Err(FsError::IsDir),
        _ => Err(FsError::invalid("not a regular file")),
    }
}

/// The states of the blocks `from..to`, in order and without gaps.
///
/// # Errors
/// I/O errors of extent blocks, and corruption found in them.
pub(crate) fn map_range(store: &Store, inode: &Inode, from: u64, to: u64) -> Result<Vec<Run>> {
    let st = inode.state.read();
    let mut runs = Vec::new();
    let mut lblk = from;
    while lblk < to {
        let at = u32::try_from(lblk).map_err(|_| FsError::TooBig)?;
        let max = u32::try_from(to - lblk).unwrap_or(u32::MAX);
        let run = match map_blocks(store, inode, &st, at, max)? {
            Mapping::Hole { len } => Run { lblk, len: u64::from(len), pblk: 0, unwritten: false },
            Mapping::Mapped { pblk, len, unwritten } => {
                Run { lblk, len: u64::from(len), pblk, unwritten }
            }
        };
        // A mapping of no blocks would never end.
        let run = Run { len: run.len.clamp(1, to - lblk), ..run };
        lblk += run.len;
        runs.push(run);
    }
    Ok(runs)
}

/// Reads the blocks `from..to`, none of which is cached, in one batch, and caches those that
/// hold data. The caller keeps the mapping from changing (`rwsem`, shared is enough).
///
/// # Errors
/// I/O errors, and corruption found in the extent tree.
pub(crate) fn load_blocks(
    inodes: &Inodes,
    inode: &Inode,
    from: u64,
    to: u64,
) -> Result<Vec<Loaded>> {
    let check = is_verity(&inode.state.read());
    load(inodes, inode, (from, to), check)
}

/// A block of a file with fs-verity, without a look at hashes; `None`: a hole.
///
/// # Errors
/// As [`load_blocks`].
pub(crate) fn load_unchecked(
    inodes: &Inodes,
    inode: &Inode,
    lblk: u64,
) -> Result<Option<Arc<[u8]>>> {
    let cached = inode.pages.lock().read(&inodes.pages, lblk);
    if cached.is_some() {
        return Ok(cached);
    }
    Ok(load(inodes, inode, (lblk, lblk + 1), false)?.pop().and_then(|block| block.data))
}

fn load(
    inodes: &Inodes,
    inode: &Inode,
    (from, to): (u64, u64),
    check: bool,
) -> Result<Vec<Loaded>> {
    let runs = map_range(inodes, inode, from, to)?;
    let mut pages: Vec<(u64, u64, Arc<[u8]>)> = Vec::new();
    for run in runs.iter().filter(|run| run.holds_data()) {
        for i in 0..run.len {
            pages.push((run.lblk + i, run.pblk + i, inodes.pages.page_to_fill()));
        }
    }
    if !pages.is_empty() {
        let origin = inode.origin(true);
        let mut plug = Plug::new();
        for (_, pblk, page) in &mut pages {
            // Nobody else has seen the page yet.
            let Some(into) = Arc::get_mut(page) else { continue };
            plug.read(inodes.block_offset(*pblk), into, origin);
        }
        plug.submit(&*inodes.dev)?;
        inodes.pages.read.fetch_add(pages.len() as u64, Ordering::Relaxed);
    }
    if check {
        let mut pages = pages.iter().peekable();
        let page = |lblk| (lblk, pages.next_if(|page| page.0 == lblk).map(|page| &*page.2));
        let load = |lblk| load_unchecked(inodes, inode, lblk);
        check_blocks(inodes, inode, &load, (from..to).map(page))?;
    }
    if !pages.is_empty() {
        let mut tree = inode.pages.lock();
        for (lblk, _, page) in &pages {
            tree.insert_clean(&inodes.pages, *lblk, Arc::clone(page));
        }
    }
    let mut loaded = Vec::with_capacity((to - from) as usize);
    let mut pages = pages.into_iter().peekable();
    for lblk in from..to {
        let data = pages.next_if(|page| page.0 == lblk).map(|page| page.2);
        loaded.push(Loaded { lblk, data });
    }
    Ok(loaded)
}

/// Zeroes `len` bytes from `offset` on, all inside one block, through the page cache: nothing
/// happens where the block is a hole or unwritten and nobody has written to it. For truncate
/// and fallocate, which hold `rwsem` exclusively and no `state` or handle (the block may have
/// to be read).
///
/// # Errors
/// As reading the block.
pub(crate) fn zero_partial(inodes: &Inodes, inode: &Inode, offset: u64, len: u64) -> Result<()> {
    let block_size = inodes.block_size() as u64;
    let (lblk, at) = (offset / block_size, offset % block_size);
    let to = (at + len).min(block_size) as usize;
    if len == 0 {
        return Ok(());
    }
    let missing = !inode.pages.lock().contains(lblk);
    let loaded = if missing { load_blocks(inodes, inode, lblk, lblk + 1)? } else { Vec::new() };
    let mut tree = inode.pages.lock();
    if !tree.zero(&inodes.pages, lblk, at as usize, to) {
        if let Some(Loaded { data: Some(data), .. }) = loaded.into_iter().next() {
            // Read, but evicted again at once.
            let mut page = data.to_vec();
            page[at as usize..to].fill(0);
            tree.insert_dirty(&inodes.pages, lblk, page.into(), false);
        }
    }
    tree.note_dirty(&inodes.pages, &*inodes.clock);
    Ok(())
}
