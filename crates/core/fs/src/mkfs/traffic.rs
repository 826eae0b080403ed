//! The bytes that mke2fs would write, for `s_kbytes_written`.
//!
//! mke2fs stores how much it had written before it closed the file system. Its library keeps the
//! eight blocks that it used last, writes one out when another takes its place, and writes all out
//! before a request of more than four blocks. So the figure depends on the order of single
//! reads and writes, which [`super::files`] repeats here. Nothing is read or written.

/// Blocks in the cache of the library.
const CACHE_BLOCKS: usize = 8;
/// Inodes in the cache of the library.
const CACHE_INODES: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    block: u64,
    used_at: u64,
    dirty: bool,
    held: bool,
}

/// Reads and writes of mke2fs so far.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    block_bytes: u64,
    slots: [Slot; CACHE_BLOCKS],
    now: u64,
    written_bytes: u64,
    inodes: [u32; CACHE_INODES],
    last_inode: usize,
    /// Block of the inode table that was used last.
    table_block: u64,
}

impl Traffic {
    pub(super) fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            slots: [Slot::default(); CACHE_BLOCKS],
            now: 0,
            written_bytes: 0,
            inodes: [0; CACHE_INODES],
            last_inode: CACHE_INODES - 1,
            table_block: 0,
        }
    }

    /// A write past the cache.
    pub(super) fn direct(&mut self, bytes: u64) {
        for slot in &mut self.slots {
            if slot.held && slot.dirty {
                self.written_bytes += self.block_bytes;
                *slot = Slot::default();
            }
        }
        self.written_bytes += bytes;
    }

    /// A block is taken into the cache, unless it is there; another one may be written out.
    fn touch(&mut self, block: u64) -> &mut Slot {
        self.now += 1;
        let found = self.slots.iter().position(|slot| slot.held && slot.block == block);
        let at = found.unwrap_or_else(|| {
            let mut oldest = 0;
            for (i, slot) in self.slots.iter().enumerate() {
                let key = |slot: &Slot| if slot.held { slot.used_at } else { 0 };
                if key(slot) < key(&self.slots[oldest]) {
                    oldest = i;
                }
            }
            oldest
        });
        let slot = &mut self.slots[at];
        if found.is_none() {
            if slot.held && slot.dirty {
                self.written_bytes += self.block_bytes;
            }
            *slot = Slot { block, held: true, ..Slot::default() };
        }
        slot.used_at = self.now;
        slot
    }

    pub(super) fn read(&mut self, block: u64) {
        self.touch(block);
    }

    pub(super) fn write(&mut self, block: u64) {
        self.touch(block).dirty = true;
    }

    /// An inode whose table block is `block` is read.
    pub(super) fn read_inode(&mut self, ino: u32, block: u64) {
        if self.inodes.contains(&ino) {
            return;
        }
        self.use_table(block);
        self.last_inode = (self.last_inode + 1) % CACHE_INODES;
        self.inodes[self.last_inode] = ino;
    }

    /// An inode is written, whole or its first 128 bytes.
    pub(super) fn write_inode(&mut self, ino: u32, block: u64, whole: bool) {
        if !whole {
            self.read_inode(ino, block);
        }
        self.use_table(block);
        self.write(block);
    }

    fn use_table(&mut self, block: u64) {
        if self.table_block != block {
            self.read(block);
            self.table_block = block;
        }
    }

    /// `s_kbytes_written` of a file system with so many descriptor blocks.
    pub(super) fn kbytes(&self, desc_blocks: u32) -> u64 {
        1 + self.written_bytes / 1024 + u64::from(desc_blocks + 1) / (self.block_bytes / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninth_block_writes_the_oldest_out() {
        let mut traffic = Traffic::new(4096);
        for block in 1..=8 {
            traffic.write(block);
        }
        traffic.read(1);
        traffic.read(9);
        assert_eq!(traffic.written_bytes, 4096, "block 2");
        traffic.read(10);
        traffic.read(1);
        assert_eq!(traffic.written_bytes, 2 * 4096);
        traffic.direct(512);
        assert_eq!(traffic.written_bytes, 8 * 4096 + 512, "the other six, and its own");
        assert_eq!(traffic.kbytes(3), 1 + 32 + 1);
    }
}
