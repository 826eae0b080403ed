//! Revoke blocks: file system blocks whose copies in this and earlier transactions must not be
//! replayed.
//!
//! ```text
//!  header 12 B | r_count u32: bytes used, these 16 too | entries u32, 64bit: u64 | tail
//! ```

use crate::bytes::{be32, be64, hi32, lo32, put_be32, put_be64};
use crate::error::{OndiskError, Result};

use super::{BlockType, Header, Layout};

const WHAT: &str = "journal revoke block";
pub(super) const REVOKE_HEADER_BYTES: usize = 16;

/// Iterator over the blocks a revoke block names.
#[derive(Debug, Clone)]
pub struct Revokes<'a> {
    entries: &'a [u8],
    is_64bit: bool,
}

impl<'a> Revokes<'a> {
    /// The entries of `block`, whose header the caller has seen. Corrupt: `r_count` is out of
    /// range. The tail checksum is not checked here: [`Layout::verify_tail_csum`].
    pub fn new(block: &'a [u8], layout: &Layout) -> Result<Self> {
        let count = be32(block, 12);
        let entries = usize::try_from(count)
            .ok()
            .filter(|end| *end <= layout.usable())
            .and_then(|end| block.get(REVOKE_HEADER_BYTES..end));
        match entries {
            Some(entries) => Ok(Self { entries, is_64bit: layout.is_64bit }),
            None => {
                let detail = format!("{count} bytes do not fit the block");
                Err(OndiskError::corrupt_at(WHAT, 12, detail))
            }
        }
    }
}

impl Iterator for Revokes<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let size = if self.is_64bit { 8 } else { 4 };
        let rest = self.entries.get(size..)?;
        let block =
            if self.is_64bit { be64(self.entries, 0) } else { be32(self.entries, 0).into() };
        self.entries = rest;
        Some(block)
    }
}

/// Fills a revoke block entry by entry.
#[derive(Debug)]
pub struct RevokeBuilder<'a> {
    block: &'a mut [u8],
    layout: Layout,
    at: usize,
}

impl<'a> RevokeBuilder<'a> {
    /// Starts a block of transaction `sequence`. Usage error: `block` is not one journal block.
    pub fn new(block: &'a mut [u8], layout: &Layout, sequence: u32) -> Result<Self> {
        if block.len() != layout.block_size {
            return Err(OndiskError::usage(WHAT, "the buffer is not one block"));
        }
        block.fill(0);
        Header { block_type: BlockType::Revoke, sequence }.encode_into(block);
        Ok(Self { block, layout: *layout, at: REVOKE_HEADER_BYTES })
    }

    /// True if another entry fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.at + self.layout.revoke_entry_bytes() <= self.layout.usable()
    }

    /// Adds a block. Full: no room. Usage error: a number above 32 bits without 64bit.
    pub fn push(&mut self, blocknr: u64) -> Result<()> {
        if !self.has_room() {
            return Err(OndiskError::Full { what: WHAT });
        }
        if self.layout.is_64bit {
            put_be64(self.block, self.at, blocknr);
        } else if hi32(blocknr) == 0 {
            put_be32(self.block, self.at, lo32(blocknr));
        } else {
            let detail = format!("block {blocknr} needs a journal with 64bit");
            return Err(OndiskError::usage(WHAT, detail));
        }
        self.at += self.layout.revoke_entry_bytes();
        Ok(())
    }

    /// Stores the byte count and the tail checksum.
    pub fn finish(self) {
        put_be32(self.block, 12, u32::try_from(self.at).unwrap_or(u32::MAX));
        self.layout.set_tail_csum(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::super::JournalChecksum;
    use super::*;

    fn layout(checksum: JournalChecksum, is_64bit: bool) -> Layout {
        Layout { block_size: 1024, is_64bit, checksum, seed: 99, uuid: [0; 16] }
    }

    #[test]
    fn round_trip_until_full() {
        for (checksum, wide) in [
            (JournalChecksum::V1, false),
            (JournalChecksum::V1, true),
            (JournalChecksum::V3, false),
            (JournalChecksum::V3, true),
        ] {
            let layout = layout(checksum, wide);
            let mut block = vec![1; 1024];
            let mut builder = RevokeBuilder::new(&mut block, &layout, 3).unwrap();
            let mut want = Vec::new();
            while builder.has_room() {
                let n = want.len() as u64 + if wide { 1 << 40 } else { 0 };
                builder.push(n).unwrap();
                want.push(n);
            }
            assert_eq!(builder.push(1), Err(OndiskError::Full { what: WHAT }));
            builder.finish();
            assert_eq!(want.len(), layout.revokes_per_block());
            assert_eq!(layout.verify_tail_csum(&block), Ok(()));
            assert_eq!(Revokes::new(&block, &layout).unwrap().collect::<Vec<_>>(), want);
        }
    }

    #[test]
    fn bytes_of_a_revoke_block() {
        let layout = layout(JournalChecksum::V1, false);
        let mut block = vec![0; 1024];
        let mut builder = RevokeBuilder::new(&mut block, &layout, 3).unwrap();
        assert!(builder.push(1 << 32).is_err());
        builder.push(0x77).unwrap();
        builder.finish();
        assert_eq!(&block[..20], b"\xc0\x3b\x39\x98\0\0\0\x05\0\0\0\x03\0\0\0\x14\0\0\0\x77");
    }

    #[test]
    fn a_count_out_of_range_is_corrupt() {
        let layout = layout(JournalChecksum::V3, true);
        let mut block = vec![0; 1024];
        for (count, good) in [(15, false), (16, true), (1020, true), (1021, false)] {
            put_be32(&mut block, 12, count);
            assert_eq!(Revokes::new(&block, &layout).is_ok(), good, "{count}");
        }
        put_be32(&mut block, 12, u32::MAX);
        assert!(Revokes::new(&block, &layout).is_err());
    }
}
