//! Descriptor blocks: one tag for each copy that follows in the log.
//!
//! ```text
//!  tag v3        blocknr u32 | flags u32 | blocknr_high u32 | crc32c u32
//!  tag v1, v2    blocknr u32 | crc u16 | flags u16 | 64bit: blocknr_high u32 | v2: 2 unused B
//!  each tag without SAME_UUID is followed by the journal's 16-byte UUID; the last tag has LAST
//! ```

use crate::bytes::{be16, be32, hi32, join32, lo32, put_be16, put_be32, put_bytes};
use crate::error::{OndiskError, Result};

use super::{BlockType, HEADER_BYTES, Header, JournalChecksum, Layout};

const WHAT: &str = "journal descriptor";
const UUID_BYTES: usize = 16;

/// Tag flag: the copy's first word was the magic and is zeroed.
const FLAG_ESCAPE: u32 = 1;
/// Tag flag: no UUID follows.
const FLAG_SAME_UUID: u32 = 2;
/// Tag flag: the block was deleted by this transaction; not used by Linux.
const FLAG_DELETED: u32 = 4;
/// Tag flag: no more tags.
const FLAG_LAST: u32 = 8;

/// One tag: where the next copy in the log belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// File system block.
    pub blocknr: u64,
    /// True if the first word of the copy must be restored.
    pub escaped: bool,
    /// True if the writer marked the block as deleted. Linux never sets it; the copy is skipped.
    pub deleted: bool,
    /// crc of the copy: 32 bits in v3, 16 in v2, else 0. Compare with [`Layout::copy_csum`].
    pub checksum: u32,
}

/// Iterator over the tags of a descriptor block, in log order. After an error it ends.
#[derive(Debug, Clone)]
pub struct Tags<'a> {
    block: &'a [u8],
    layout: Layout,
    at: usize,
    done: bool,
}

impl<'a> Tags<'a> {
    /// The tags of `block`, whose header the caller has seen. The tail checksum is not checked
    /// here: [`Layout::verify_tail_csum`].
    #[must_use]
    pub fn new(block: &'a [u8], layout: &Layout) -> Self {
        Self { block, layout: *layout, at: HEADER_BYTES, done: false }
    }

    fn tag(&mut self) -> Option<Tag> {
        let (block, at) = (self.block, self.at);
        let end = at + self.layout.tag_bytes();
        if end > self.layout.usable().min(block.len()) {
            self.done = true;
            return None;
        }
        let (flags, high_at, checksum) = match self.layout.checksum {
            JournalChecksum::V3 => (be32(block, at + 4), at + 8, be32(block, at + 12)),
            JournalChecksum::V2 => {
                (be16(block, at + 6).into(), at + 8, u32::from(be16(block, at + 4)))
            }
            _ => (be16(block, at + 6).into(), at + 8, 0),
        };
        let high = if self.layout.is_64bit { be32(block, high_at) } else { 0 };
        self.done = flags & FLAG_LAST != 0;
        self.at = end + if flags & FLAG_SAME_UUID == 0 { UUID_BYTES } else { 0 };
        Some(Tag {
            blocknr: join32(be32(block, at), high),
            escaped: flags & FLAG_ESCAPE != 0,
            deleted: flags & FLAG_DELETED != 0,
            checksum,
        })
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    /// As Linux, a block that ends without a last tag is not an error.
    fn next(&mut self) -> Option<Tag> {
        if self.done { None } else { self.tag() }
    }
}

/// Fills a descriptor block tag by tag.
#[derive(Debug)]
pub struct DescriptorBuilder<'a> {
    block: &'a mut [u8],
    layout: Layout,
    at: usize,
    last: Option<usize>,
    count: usize,
}

impl<'a> DescriptorBuilder<'a> {
    /// Starts a block of transaction `sequence`. Usage error: `block` is not one journal block.
    pub fn new(block: &'a mut [u8], layout: &Layout, sequence: u32) -> Result<Self> {
        if block.len() != layout.block_size {
            return Err(OndiskError::usage(WHAT, "the buffer is not one block"));
        }
        block.fill(0);
        Header { block_type: BlockType::Descriptor, sequence }.encode_into(block);
        Ok(Self { block, layout: *layout, at: HEADER_BYTES, last: None, count: 0 })
    }

    /// True if another tag fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let uuid = if self.last.is_none() { UUID_BYTES } else { 0 };
        self.at + self.layout.tag_bytes() + uuid <= self.layout.usable()
    }

    /// Number of tags so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there is no tag yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the tag of the next copy. `checksum` is [`Layout::copy_csum`] of the escaped copy.
    /// Full: no room. Usage error: a block number above 32 bits without 64bit.
    pub fn push(&mut self, blocknr: u64, escaped: bool, checksum: u32) -> Result<()> {
        if !self.has_room() {
            return Err(OndiskError::Full { what: WHAT });
        }
        if !self.layout.is_64bit && hi32(blocknr) != 0 {
            let detail = format!("block {blocknr} needs a journal with 64bit");
            return Err(OndiskError::usage(WHAT, detail));
        }
        let at = self.at;
        let mut flags = if escaped { FLAG_ESCAPE } else { 0 };
        if self.last.is_some() {
            flags |= FLAG_SAME_UUID;
        }
        put_be32(self.block, at, lo32(blocknr));
        self.put_flags(at, flags);
        match self.layout.checksum {
            JournalChecksum::V3 => put_be32(self.block, at + 12, checksum),
            JournalChecksum::V2 => put_be16(self.block, at + 4, crate::bytes::lo16(checksum)),
            JournalChecksum::V1 | JournalChecksum::None => {}
        }
        if self.layout.is_64bit {
            put_be32(self.block, at + 8, hi32(blocknr));
        }
        self.at += self.layout.tag_bytes();
        if self.last.is_none() {
            put_bytes(self.block, self.at, &self.layout.uuid);
            self.at += UUID_BYTES;
        }
        self.last = Some(at);
        self.count += 1;
        Ok(())
    }

    /// Marks the last tag and stores the tail checksum. Usage error: no tag was added.
    pub fn finish(mut self) -> Result<()> {
        let Some(at) = self.last else {
            return Err(OndiskError::usage(WHAT, "a descriptor needs at least one tag"));
        };
        let flags = match self.layout.checksum {
            JournalChecksum::V3 => be32(self.block, at + 4),
            _ => be16(self.block, at + 6).into(),
        };
        self.put_flags(at, flags | FLAG_LAST);
        self.layout.set_tail_csum(self.block);
        Ok(())
    }

    fn put_flags(&mut self, at: usize, flags: u32) {
        match self.layout.checksum {
            JournalChecksum::V3 => put_be32(self.block, at + 4, flags),
            _ => put_be16(self.block, at + 6, crate::bytes::lo16(flags)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(checksum: JournalChecksum, is_64bit: bool) -> Layout {
        Layout { block_size: 1024, is_64bit, checksum, seed: 99, uuid: *b"0123456789abcdef" }
    }

    #[test]
    fn round_trip_in_every_layout_until_full() {
        for checksum in
            [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3]
        {
            for wide in [false, true] {
                let layout = layout(checksum, wide);
                let mut block = vec![0xaa; 1024];
                let mut builder = DescriptorBuilder::new(&mut block, &layout, 7).unwrap();
                let mut want = Vec::new();
                while builder.has_room() {
                    let n = builder.len() as u64;
                    let blocknr = if wide { n << 33 | n } else { n };
                    let csum = match checksum {
                        JournalChecksum::V3 => 0xdead_0000 + n as u32,
                        JournalChecksum::V2 => n as u32,
                        _ => 0,
                    };
                    builder.push(blocknr, n % 3 == 0, csum).unwrap();
                    let escaped = n % 3 == 0;
                    want.push(Tag { blocknr, escaped, deleted: false, checksum: csum });
                }
                assert_eq!(builder.push(1, false, 0), Err(OndiskError::Full { what: WHAT }));
                assert_eq!(builder.len(), layout.tags_per_descriptor());
                builder.finish().unwrap();
                assert_eq!(layout.verify_tail_csum(&block), Ok(()));
                assert_eq!(Tags::new(&block, &layout).collect::<Vec<_>>(), want);
            }
        }
    }

    #[test]
    fn bytes_of_a_v1_descriptor() {
        let layout = layout(JournalChecksum::V1, true);
        let mut block = vec![0; 1024];
        let mut builder = DescriptorBuilder::new(&mut block, &layout, 2).unwrap();
        builder.push(0x1_0000_0005, true, 0).unwrap();
        builder.push(6, false, 0).unwrap();
        builder.finish().unwrap();
        let want = b"\xc0\x3b\x39\x98\0\0\0\x01\0\0\0\x02\
            \0\0\0\x05\0\0\0\x01\0\0\0\x010123456789abcdef\0\0\0\x06\0\0\0\x0a\0\0\0\0";
        assert_eq!(&block[..want.len()], want);
        assert!(block[want.len()..].iter().all(|b| *b == 0));
    }

    #[test]
    fn misuse_is_refused() {
        let narrow = layout(JournalChecksum::None, false);
        let mut block = vec![0; 1024];
        assert!(DescriptorBuilder::new(&mut block[..512], &narrow, 1).is_err());
        let mut builder = DescriptorBuilder::new(&mut block, &narrow, 1).unwrap();
        assert!(builder.push(1 << 32, false, 0).is_err());
        assert!(builder.finish().is_err(), "no tag");
    }

    #[test]
    fn a_block_without_last_flag_ends_at_its_end() {
        let layout = layout(JournalChecksum::V3, true);
        let block = vec![0x02; 1024];
        assert!(Tags::new(&block, &layout).count() <= 1012 / 16);
        assert_eq!(Tags::new(&block[..20], &layout).count(), 0);
    }
}
