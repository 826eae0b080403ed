//! Logs written block by block, to have them wrong in one chosen way.

use super::Volume;
use syncline_device::MemoryDevice;
use syncline_ondisk::jbd2::{
    CommitBlock, DescriptorBuilder, JournalChecksum, JournalSuperblock, Layout, RevokeBuilder,
    V1Checksum, escape, needs_escape,
};

/// Writes transactions into the log of a volume's image.
pub struct Crafter<'a> {
    pub volume: &'a Volume,
    pub image: MemoryDevice,
    pub layout: Layout,
    pub first: u32,
    pub end: u32,
    pub at: u32,
    pub sequence: u32,
    pub seconds: u64,
    v1: V1Checksum,
}

impl<'a> Crafter<'a> {
    /// An empty log with these checksums that starts at log block `at` with `sequence`.
    pub fn new(
        volume: &'a Volume,
        checksum: JournalChecksum,
        at: u32,
        sequence: u32,
        change: impl FnOnce(&mut JournalSuperblock),
    ) -> Self {
        let file = volume.crashed_file(&volume.image);
        let image = MemoryDevice::load(file.path()).unwrap();
        let offset = volume.log.physical(0).unwrap() * volume.block_size() as u64;
        let mut block = vec![0; volume.block_size()];
        image.read_at(offset, &mut block).unwrap();
        let mut superblock = JournalSuperblock::decode(&block).unwrap();
        superblock.set_checksum_kind(checksum);
        superblock.s_start = at;
        superblock.s_sequence = sequence;
        change(&mut superblock);
        superblock.encode_into(&mut block).unwrap();
        image.write_at(offset, &block).unwrap();
        let layout = Layout::new(&superblock).unwrap();
        let (first, end) = (superblock.s_first, superblock.log_end().unwrap());
        Crafter {
            volume,
            image,
            layout,
            first,
            end,
            at,
            sequence,
            seconds: 1_700_000_000,
            v1: V1Checksum::new(),
        }
    }

    /// Writes the next log block and says which one it is.
    pub fn put(&mut self, bytes: &[u8]) -> u32 {
        let log_block = self.at;
        self.overwrite(log_block, bytes);
        self.at = if log_block + 1 == self.end { self.first } else { log_block + 1 };
        log_block
    }

    pub fn overwrite(&self, log_block: u32, bytes: &[u8]) {
        let offset = self.volume.log.physical(log_block).unwrap() * bytes.len() as u64;
        self.image.write_at(offset, bytes).unwrap();
    }

    pub fn read(&self, log_block: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.layout.block_size];
        let offset = self.volume.log.physical(log_block).unwrap() * bytes.len() as u64;
        self.image.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// A descriptor and copies of blocks filled with a byte each. Returns the descriptor's place.
    pub fn copies(&mut self, blocks: &[(u64, u8)]) -> u32 {
        let size = self.layout.block_size;
        let mut descriptor = vec![0; size];
        let mut builder =
            DescriptorBuilder::new(&mut descriptor, &self.layout, self.sequence).unwrap();
        let mut copies = Vec::new();
        for (block, value) in blocks {
            let mut copy = vec![*value; size];
            let escaped = needs_escape(&copy);
            if escaped {
                escape(&mut copy);
            }
            builder.push(*block, escaped, self.layout.copy_csum(self.sequence, &copy)).unwrap();
            copies.push(copy);
        }
        builder.finish().unwrap();
        self.v1.update(&descriptor);
        let at = self.put(&descriptor);
        for copy in copies {
            self.v1.update(&copy);
            self.put(&copy);
        }
        at
    }

    pub fn revokes(&mut self, blocks: &[u64]) -> u32 {
        let mut bytes = vec![0; self.layout.block_size];
        let mut builder = RevokeBuilder::new(&mut bytes, &self.layout, self.sequence).unwrap();
        blocks.iter().for_each(|block| builder.push(*block).unwrap());
        builder.finish();
        self.put(&bytes)
    }

    /// Ends the transaction and starts the next one.
    pub fn commit(&mut self) -> u32 {
        let mut bytes = vec![0; self.layout.block_size];
        let time = (self.seconds, 0);
        CommitBlock::build(&mut bytes, &self.layout, self.sequence, time, self.v1).unwrap();
        self.sequence = self.sequence.wrapping_add(1);
        self.seconds += 1;
        self.v1 = V1Checksum::new();
        self.put(&bytes)
    }

    /// A whole transaction.
    pub fn transaction(&mut self, blocks: &[(u64, u8)]) -> u32 {
        let at = self.copies(blocks);
        self.commit();
        at
    }
}
