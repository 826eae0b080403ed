//! Fast commits applied to a volume, as Linux's `ext4_fc_replay` does after the log was replayed.
//!
//! ```text
//!   tags ── claim    blocks that files get are taken, so that directories and trees do not
//!        └─ Replay   each tag in its order      inodes.rs  slots, numbers, links counted
//!                    end: inodes without names  names.rs   entries, new directories
//!                    go, blocks that nobody     blocks.rs  extents; whose a block is
//!                    has are free
//! ```
//!
//! The volume is one in memory over the device (`mount/fast_commits.rs`), with a journal of its own
//! that nobody sees. So a failure leaves the image as it was, and nothing here has to be atomic.
//!
//! A fast commit says less than the image needs. The rest is derived: `i_blocks`, link
//! counts, directory blocks, extent tree blocks, bitmaps and counters. Link counts are those that
//! the names add up to, so the result needs no e2fsck, also where Linux's replay does (it gives
//! new directories one link). A name that another inode has in the meantime is left alone, and so
//! is what a tag wants of a file that is gone: a later tag says so.
//!
//! Bounds: work for each tag is that of one operation; memory is that of the blocks that change.
//! Tested in `tests/it/fast_commit.rs`.

mod blocks;
mod inodes;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use syncline_jbd2::FastCommits;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::fast_commit::Tag;

use crate::error::{FsError, Result};
use crate::inode::evict::truncate_orphan;
use crate::inode::recovery::hold_orphans;
use crate::inode::reference::InodeRef;
use crate::names::Names;

pub(crate) use blocks::{Unowned, claim};

/// Tags of all fast commits, every value checked.
///
/// # Errors
/// [`FsError::Corrupt`], [`FsError::Unsupported`] for tags of later kernels.
pub(crate) fn decode(found: &FastCommits, inode_size: usize) -> Result<Vec<Tag<'_>>> {
    found.frames().map(|frame| Ok(Tag::decode(&frame, inode_size)?)).collect()
}

/// Applies all tags. `unowned` is the result of [`claim`] on the same image. Returns how many
/// orphans were finished.
///
/// # Errors
/// [`FsError::Corrupt`] for tags that contradict the image; the errors of the operations.
pub(crate) fn apply(names: &Names, tags: &[Tag<'_>], unowned: Unowned) -> Result<u32> {
    let orphans = hold_orphans(names)?;
    let count = orphans.len() as u32;
    let held = orphans.into_iter().map(|inode| (inode.ino, inode)).collect();
    let (added, unmade) = (Vec::new(), BTreeSet::new());
    let mut replay = Replay { names, held, unmade, added, unowned };
    for tag in tags {
        replay.tag(tag)?;
    }
    replay.finish()?;
    Ok(count)
}

/// A replay under way.
struct Replay<'a> {
    names: &'a Names,
    /// Inodes that were touched. Until the end none is freed: a later tag may name it again.
    held: BTreeMap<u32, InodeRef>,
    /// New directories without blocks and names.
    unmade: BTreeSet<u32>,
    /// Extents of the fast commit that is being read. They are mapped at its end: a block may be
    /// given to one file before it is taken from another.
    added: Vec<(u32, Extent)>,
    unowned: Unowned,
}

impl Replay<'_> {
    fn tag(&mut self, tag: &Tag<'_>) -> Result<()> {
        match *tag {
            Tag::AddRange { ino, extent } => self.add_range(ino, extent),
            Tag::DelRange { ino, first, end } => self.del_range(ino, first, end),
            Tag::Create(ref of) => self.link(of, true),
            Tag::Link(ref of) => self.link(of, false),
            Tag::Unlink(ref of) => self.unlink(of),
            Tag::Inode { ino, raw } => self.inode(ino, raw),
            Tag::Nothing => Ok(()),
            Tag::Tail => self.map_added(),
        }
    }

    /// Frees inodes without a name and blocks without an owner.
    fn finish(mut self) -> Result<()> {
        while let Some((ino, inode)) = self.held.pop_first() {
            let (links, is_orphan, size) = {
                let st = inode.state.read();
                (st.raw.i_links_count, st.orphan.is_some(), st.raw.i_size)
            };
            if links == 0 {
                self.held.insert(ino, inode);
                self.evict(ino)?;
            } else if is_orphan {
                truncate_orphan(self.names, inode.arc(), size)?;
            }
        }
        self.unowned.free(self.names)
    }
}

/// The area contradicts the image.
fn contradiction(names: &Names, ino: u32, what: &str) -> FsError {
    names.corrupt(Some(ino), None, None, format!("fast commit: {what}"))
}

/// The inodes of a volume, as what takes counted references wants them.
fn inodes(names: &Names) -> &Arc<crate::inode::Inodes> {
    &names.files.inodes
}
