//! Files with fs-verity: their blocks are checked when they come from the device.
//!
//! ```text
//!   load blocks -> hash of each, up the tree to a block that was checked -> page cache
//! ```
//!
//! Promises
//! - No byte of such a file is read that does not have the hash that the root hash stands for, and
//!   nothing writes to it. A damaged one fails reads with EIO; the volume is not latched.
//! - Blocks of the tree and the descriptor are read through the page cache of the file, where they
//!   lie behind its end. Of each level the block that was checked last stays.
//!
//! Linux: fs/verity/verify.c, fs/ext4/verity.c. Tested in `tests/it/verity.rs`.

use std::sync::Arc;

use syncline_ondisk::inode::flags;
use syncline_ondisk::verity::{DESCRIPTOR_BYTES_MAX, Verity, tree_start};

use crate::error::{FsError, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::Inodes;
use crate::map::extents::search::extents_end;
use crate::store::verity::{FileVerity, Newest};

/// Bytes of the size behind the descriptor.
const SIZE_BYTES: u64 = 4;

/// A block of a file that nothing has checked; `None`: a hole.
type Load<'a> = &'a dyn Fn(u64) -> Result<Option<Arc<[u8]>>>;

/// True if an inode has the flag.
pub(crate) fn is_verity(st: &InodeState) -> bool {
    st.raw.has_flag(flags::VERITY)
}

fn broken(inode: &Inode, what: impl Into<String>) -> FsError {
    FsError::Verity { inode: inode.ino, what: what.into() }
}

/// Fault of a file that has the flag and was never sealed, or not in this format.
pub(crate) const NO_DESCRIPTOR: &str = "it has no verity descriptor";

/// The descriptor of a file with the flag, read when it is first needed.
///
/// # Errors
/// [`FsError::Verity`] if there is none, or not one that is handled; I/O.
pub(crate) fn descriptor(
    inodes: &Inodes,
    inode: &Inode,
    load: Load<'_>,
) -> Result<Arc<FileVerity>> {
    if let Some(known) = inodes.verity.get(inode.ino) {
        return Ok(known);
    }
    let (size, end) = {
        let st = inode.state.read();
        let end = match st.raw.has_flag(flags::EXTENTS) {
            true => extents_end(inodes, inode, &st)?,
            false => 0,
        };
        (st.size, end << inodes.geo.block_bits)
    };
    let missing = || broken(inode, NO_DESCRIPTOR);
    let at = end.checked_sub(SIZE_BYTES).ok_or_else(missing)?;
    let len = bytes_at(inodes, load, at, SIZE_BYTES as usize)?;
    let len = u32::from_le_bytes(len.try_into().map_err(|_| missing())?);
    let start = at.checked_sub(len.into()).ok_or_else(missing)?;
    let start = start & !(inodes.geo.block_size as u64 - 1);
    if len as usize > DESCRIPTOR_BYTES_MAX || start < tree_start(size) {
        return Err(missing());
    }
    let bytes = bytes_at(inodes, load, start, len as usize)?;
    let verity = Verity::decode(&bytes, size, inodes.geo.block_size)
        .map_err(|err| broken(inode, err.to_string()))?;
    Ok(inodes.verity.put(inode.ino, verity))
}

/// Bytes behind the end of the file, which nothing has checked.
fn bytes_at(inodes: &Inodes, load: Load<'_>, offset: u64, len: usize) -> Result<Vec<u8>> {
    let block_size = inodes.geo.block_size as u64;
    let mut bytes = Vec::with_capacity(len);
    let mut at = offset;
    while bytes.len() < len {
        let lblk = at / block_size;
        let page = load(lblk)?;
        let skip = (at % block_size) as usize;
        let n = (block_size as usize - skip).min(len - bytes.len());
        match page.as_deref().and_then(|page| page.get(skip..skip + n)) {
            Some(part) => bytes.extend_from_slice(part),
            None => bytes.resize(bytes.len() + n, 0),
        }
        at += n as u64;
    }
    Ok(bytes)
}

/// Checks blocks of a file; `None`: a hole.
///
/// # Errors
/// [`FsError::Verity`] for the first that differs; I/O.
pub(crate) fn check_blocks<'p>(
    inodes: &Inodes,
    inode: &Inode,
    load: Load<'_>,
    blocks: impl Iterator<Item = (u64, Option<&'p [u8]>)>,
) -> Result<()> {
    let file = descriptor(inodes, inode, load)?;
    let verity = &file.verity;
    let mut newest = file.newest.lock().clone();
    let zeros = vec![0; inodes.geo.block_size];
    for (lblk, page) in blocks {
        let page = page.unwrap_or(&zeros);
        let mut offset = lblk << inodes.geo.block_bits;
        for block in page.chunks_exact(verity.block_bytes()) {
            let index = offset / verity.block_bytes() as u64;
            // Behind the end of the file there is no hash, and nothing is to be seen.
            let good = match offset < verity.data_bytes() {
                true => is_good(inodes, load, verity, &mut newest, (0, index, block))?,
                false => block.iter().all(|byte| *byte == 0),
            };
            if !good {
                let what = format!("the data at byte {offset} does not have its hash");
                return Err(broken(inode, what));
            }
            offset += verity.block_bytes() as u64;
        }
    }
    *file.newest.lock() = newest;
    Ok(())
}

/// True if a block of a level has the hash that the checked block above it says. The levels are
/// few ([`Verity::decode`]).
fn is_good(
    inodes: &Inodes,
    load: Load<'_>,
    verity: &Verity,
    newest: &mut Newest,
    (level, index, block): (usize, u64, &[u8]),
) -> Result<bool> {
    let Some((above, number, at)) = verity.parent(level, index) else {
        return Ok(verity.matches(block, index, None));
    };
    let known = newest.get(above).and_then(Option::as_ref).filter(|known| known.0 == number);
    let parent = match known {
        Some((_, parent)) => Arc::clone(parent),
        None => {
            let at = tree_start(verity.data_bytes()).saturating_add(at);
            let parent: Arc<[u8]> = bytes_at(inodes, load, at, verity.block_bytes())?.into();
            if !is_good(inodes, load, verity, newest, (above, number, &parent))? {
                return Ok(false);
            }
            if let Some(slot) = newest.get_mut(above) {
                *slot = Some((number, Arc::clone(&parent)));
            }
            parent
        }
    };
    Ok(verity.matches(block, index, Some(&parent)))
}
