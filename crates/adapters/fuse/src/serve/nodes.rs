//! References of the kernel to each inode: lookups and opens.
//!
//! ```text
//!   lookup, create, readdirplus  +1      forget  -n       0 and not open: the entry goes
//!   open, create                 +1      release -1       open: a reference keeps the inode
//!   unlink of the last name              gone             a reference until the kernel forgets it
//! ```
//!
//! A name that the kernel merely knows costs a few bytes here and pins nothing in the volume's
//! caches, so that a `find` over millions of files stays within `cache=`. A reference is held for
//! open files, whose inode must stay loaded, and for files without a name, whose last reference
//! frees them.

use rustc_hash::FxHashMap;
use syncline_base::lockrank::Mutex;
use syncline_fs::InodeRef;

use crate::handle::CacheMode;
use crate::ranks;

/// Independent parts of the table.
const SHARDS: usize = 32;

#[derive(Default)]
struct Node {
    lookups: u64,
    opens: u32,
    /// Of them, those that write past the kernel's cache.
    bypassing: u32,
    gone: bool,
    held: Option<InodeRef>,
}

impl Node {
    fn is_unused(&self) -> bool {
        self.lookups == 0 && self.opens == 0
    }
}

/// The table; see the module.
pub(crate) struct Nodes {
    shards: [Mutex<FxHashMap<u32, Node>>; SHARDS],
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes { shards: std::array::from_fn(|_| Mutex::new(ranks::NODES, FxHashMap::default())) }
    }
}

impl Nodes {
    fn shard(&self, ino: u32) -> &Mutex<FxHashMap<u32, Node>> {
        &self.shards[ino as usize % SHARDS]
    }

    /// The kernel learns of the inode.
    pub(crate) fn looked_up(&self, ino: u32) {
        let mut shard = self.shard(ino).lock();
        let node = shard.entry(ino).or_default();
        node.lookups = node.lookups.saturating_add(1);
    }

    /// The kernel takes back `lookups`.
    pub(crate) fn forget(&self, ino: u32, lookups: u64) {
        let mut shard = self.shard(ino).lock();
        let Some(node) = shard.get_mut(&ino) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        let gone = if node.is_unused() { shard.remove(&ino) } else { None };
        // Dropping the last reference of an unlinked file frees it, which takes a while.
        drop(shard);
        drop(gone);
    }

    /// Counts a file that was created and opened in `mode`.
    pub(crate) fn create(&self, inode: &InodeRef, mode: CacheMode) {
        self.opened(inode, |node| node.bypassing = u32::from(mode == CacheMode::Bypassed));
    }

    /// Counts an open file. While another open file bypasses the page cache for writes, this one
    /// bypasses it also: a page that is read during such a write could be stale in the cache.
    pub(crate) fn open(&self, inode: &InodeRef, writes: bool) -> CacheMode {
        let mut mode = CacheMode::Cached;
        self.opened(inode, |node| {
            if node.bypassing > 0 {
                mode = CacheMode::Bypassed;
                node.bypassing = node.bypassing.saturating_add(u32::from(writes));
            }
        });
        mode
    }

    fn opened(&self, inode: &InodeRef, with: impl FnOnce(&mut Node)) {
        let mut shard = self.shard(inode.ino).lock();
        let node = shard.entry(inode.ino).or_default();
        node.opens = node.opens.saturating_add(1);
        if node.held.is_none() {
            node.held = Some(inode.clone());
        }
        with(node);
    }

    /// Counts one open file less; `bypassing`: it wrote and bypassed the page cache.
    pub(crate) fn release(&self, ino: u32, bypassing: bool) {
        let mut shard = self.shard(ino).lock();
        let Some(node) = shard.get_mut(&ino) else { return };
        node.opens = node.opens.saturating_sub(1);
        node.bypassing = node.bypassing.saturating_sub(u32::from(bypassing));
        let held = if node.opens == 0 && !node.gone { node.held.take() } else { None };
        let gone = if node.is_unused() { shard.remove(&ino) } else { None };
        drop(shard);
        drop((held, gone));
    }

    /// The last name went. The kernel may still ask for the inode by its number.
    pub(crate) fn unlinked(&self, inode: InodeRef) {
        let mut shard = self.shard(inode.ino).lock();
        let spare = match shard.get_mut(&inode.ino) {
            Some(node) => {
                node.gone = true;
                if node.held.is_none() {
                    node.held = Some(inode);
                    None
                } else {
                    Some(inode)
                }
            }
            None => Some(inode),
        };
        drop(shard);
        drop(spare);
    }

    /// It has a name, perhaps its first one.
    pub(crate) fn named(&self, ino: u32) {
        let mut shard = self.shard(ino).lock();
        let Some(node) = shard.get_mut(&ino) else { return };
        node.gone = false;
        let held = if node.opens == 0 { node.held.take() } else { None };
        drop(shard);
        drop(held);
    }

    /// Open files and directories.
    pub(crate) fn open_count(&self) -> u64 {
        let opens = |shard: &Mutex<FxHashMap<u32, Node>>| {
            shard.lock().values().map(|node| u64::from(node.opens)).sum::<u64>()
        };
        self.shards.iter().map(opens).sum()
    }

    /// Lets go of everything: the kernel is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.lock());
            drop(nodes);
        }
    }
}
