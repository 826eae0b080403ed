//! Memory of a volume, by use.

use crate::Volume;

/// Bytes that a volume holds. All but what the log still needs of `blocks` is bounded by `cache=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Cached pages of files.
    pub pages: u64,
    /// Memory of pages that were evicted, kept for new ones.
    pub spare_pages: u64,
    /// Cached inodes.
    pub inodes: u64,
    /// Cached names.
    pub names: u64,
    /// Cached blocks of metadata; those that are not at home yet are held until they are.
    pub blocks: u64,
}

impl Volume {
    /// Returns the memory that the volume holds, by use.
    pub fn memory_stats(&self) -> MemoryStats {
        let names = &self.0;
        let block_bytes = u64::from(self.statfs().block_size);
        MemoryStats {
            pages: names.pages.frames.len() as u64 * block_bytes,
            spare_pages: names.pages.spare_pages() as u64 * block_bytes,
            inodes: names.icache.bytes() as u64,
            names: names.dcache.bytes() as u64,
            blocks: names.buffers.len() as u64 * block_bytes,
        }
    }

    /// Frees the memory that is kept for new pages, except that of `cache_reserve`.
    pub fn release_spare_pages(&self) {
        self.0.pages.release_spare_pages();
    }
}
