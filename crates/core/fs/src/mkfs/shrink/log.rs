//! Changes of blocks that are on the device together: through the journal. A file system that has
//! none gets one in free blocks for that time.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::{BlockDevice, VirtualClock};
use syncline_jbd2::{BufferCache, Checksums, Journal, JournalOptions, LogMap};
use syncline_ondisk::inode::S_IFREG;
use syncline_ondisk::superblock::JOURNAL_INO;
use syncline_ondisk::{CompatFeatures, Inode};

use super::super::builder::Builder;
use super::super::grow::block;
use super::super::map::FileMap;
use super::super::write::{ORIGIN, zero};
use super::Device;
use super::scan::{self, Slots};
use crate::error::Result;

/// Blocks that are cached for the journal.
const CACHE_BLOCKS: usize = 256;
/// Blocks of a journal that is there for this time only: the least that Linux takes.
const LENT_BLOCKS: u32 = 1024;

pub(super) struct Log {
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<Journal>>,
    /// The journal goes with this value.
    lent: bool,
    /// Blocks that change, as they will be.
    pending: BTreeMap<u64, Vec<u8>>,
}

impl Log {
    /// Opens the journal of a file system that is marked as not clean.
    pub(super) fn open(device: Device<'_>, of: &mut Builder) -> Result<Self> {
        let mut new = Self {
            device: Arc::clone(device),
            journal: None,
            lent: false,
            pending: BTreeMap::new(),
        };
        new.lent = !of.sb.has_journal();
        if new.lent && !lend(&**device, of)? {
            return Ok(new);
        }
        let raw = Inode::decode(Slots::new(&**device).get(of, of.sb.s_journal_inum)?)?;
        let pieces = scan::pieces(&**device, &of.geo, &raw)?;
        let size = of.geo.block_size;
        let extents = pieces.iter().map(|piece| (piece.start, piece.len)).collect();
        let options = JournalOptions {
            checksums: if of.geo.metadata_csum { Checksums::V3 } else { Checksums::None },
            is_64bit: of.sb.is_64bit(),
            keeps_fast_commit_area: of.sb.s_feature_compat.contains(CompatFeatures::FAST_COMMIT),
            ..JournalOptions::default()
        };
        let map = LogMap { block_size: size as u32, extents };
        let buffers = BufferCache::new(Arc::clone(device), size, CACHE_BLOCKS);
        let clock = Arc::new(VirtualClock::new(of.sb.s_wtime.saturating_mul(1_000_000_000)));
        of.write_unclean(&**device, true)?;
        new.journal = Some(Journal::open(Arc::clone(device), map, buffers, clock, options, None)?);
        Ok(new)
    }

    pub(super) fn is_journaled(&self) -> bool {
        self.journal.is_some()
    }

    /// True if so many more blocks fit into the next transaction.
    pub(super) fn has_room(&self, blocks: usize) -> bool {
        let most = self.journal.as_ref().map_or(usize::MAX, |log| log.max_credits() as usize);
        self.pending.len() + blocks <= most
    }

    /// Changes a block.
    pub(super) fn edit(
        &mut self,
        of: &Builder,
        at: u64,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if !self.pending.contains_key(&at) {
            self.pending.insert(at, block(&*self.device, &of.geo, at)?);
        }
        self.pending.get_mut(&at).map_or(Ok(()), |bytes| change(bytes))
    }

    /// Without a journal, what was changed so far is durable before the rest.
    pub(super) fn barrier(&mut self) -> Result<()> {
        if self.is_journaled() { Ok(()) } else { self.commit() }
    }

    /// Makes the changes durable, and writes them in place.
    pub(super) fn commit(&mut self) -> Result<()> {
        let mut left = std::mem::take(&mut self.pending).into_iter().peekable();
        let Some(journal) = &self.journal else {
            for (at, bytes) in left {
                self.device.write(at * bytes.len() as u64, &bytes, ORIGIN)?;
            }
            return Ok(self.device.flush(ORIGIN)?);
        };
        while left.peek().is_some() {
            let credits = journal.max_credits();
            let mut handle = journal.start(credits)?;
            for (at, bytes) in left.by_ref().take(credits as usize) {
                handle.create(at, |block| block.copy_from_slice(&bytes))?;
            }
            let tid = handle.tid();
            drop(handle);
            journal.commit(tid)?;
            journal.checkpoint_all()?;
        }
        Ok(())
    }

    /// Ends the use of the journal.
    pub(super) fn close(mut self, of: &mut Builder) -> Result<()> {
        self.commit()?;
        let Some(journal) = &self.journal else { return Ok(()) };
        journal.shutdown()?;
        if self.lent {
            of.sb.s_feature_compat.remove(CompatFeatures::HAS_JOURNAL);
            of.sb.s_journal_inum = 0;
        }
        of.write_unclean(&*self.device, false)?;
        if self.lent { put_journal_inode(&*self.device, of, None) } else { Ok(()) }
    }
}

/// Makes a journal in free blocks, which stay free in the bitmaps. False: there are not enough.
fn lend(device: &dyn BlockDevice, of: &mut Builder) -> Result<bool> {
    let mut scratch = of.clone();
    let mut map = FileMap::default();
    if map.fill(&mut scratch, JOURNAL_INO, 0, LENT_BLOCKS.into()).is_err() {
        return Ok(false);
    }
    let size = of.geo.block_size as u64;
    let mut inode = Inode::new(S_IFREG | 0o600, 0);
    inode.i_links_count = 1;
    inode.i_size = u64::from(LENT_BLOCKS) * size;
    let (data, own) = map.encode(&mut scratch, JOURNAL_INO, &mut inode)?;
    inode.i_blocks = scratch.sectors(data + own);
    for (start, count) in map.ranges() {
        zero(device, start * size, count * size)?;
    }
    let first =
        map.ranges().next().map(|(start, _)| (start, of.journal_superblock(LENT_BLOCKS, 0)));
    for (at, bytes) in scratch.blocks {
        device.write(at * size, &bytes, ORIGIN)?;
    }
    if let Some((at, bytes)) = first {
        device.write(at * size, &bytes?, ORIGIN)?;
    }
    put_journal_inode(device, of, Some(&inode))?;
    of.sb.s_feature_compat.insert(CompatFeatures::HAS_JOURNAL);
    of.sb.s_journal_inum = JOURNAL_INO;
    Ok(true)
}

fn put_journal_inode(device: &dyn BlockDevice, of: &Builder, inode: Option<&Inode>) -> Result<()> {
    let (at, byte) = of.inode_place(JOURNAL_INO);
    let mut bytes = block(device, &of.geo, at)?;
    let slot = &mut bytes[byte..byte + of.geo.inode_size];
    slot.fill(0);
    if let Some(inode) = inode {
        inode.encode_into(slot, of.geo.metadata_csum.then(|| of.inode_seed(JOURNAL_INO)))?;
    }
    device.write(at * of.geo.block_size as u64, &bytes, ORIGIN)?;
    Ok(device.flush(ORIGIN)?)
}
