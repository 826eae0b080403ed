//! New ext4 file systems, as mke2fs 1.47 makes them.
//!
//! ```text
//!  block 0      1           1+D         1+D+R                               mid       last
//!  | superblock | D blocks  | reserved  | bitmaps and  | resize map, root, | journal | ...
//!  | of group 0 | of descs. | for more  | inode tables | lost+found        |         |
//!                                        of all groups of a flexible group
//!
//!  groups 1, 3, 5, 7, 9, 25, ...:  superblock | descriptors | reserved | data
//!
//!  options -> geometry -> tables and files in memory (`Plan`) -> device
//! ```
//!
//! Promises
//! - With equal UUID, hash seed, time and options, a file of zeros gets the bytes that mke2fs
//!   1.47.0 with its own mke2fs.conf gives it. This holds for the types ext2, ext3 and ext4, blocks
//!   of 1 to 64 KiB and all supported features. The differences are below.
//! - [`Plan::new`] refuses an unsupported option or feature by name, before a device is touched.
//! - The old superblock is cleared first and the new one is written last, after a flush. If a
//!   request fails, the device holds no file system.
//! - No clock, no random source and no file is read. /etc/mke2fs.conf is not read: equal options
//!   give equal bytes on every machine. Usage types (`-T`) are those of the stock file; features
//!   are those of its ext4 without `orphan_file` and `metadata_csum_seed`, as in Debian 12, because
//!   older e2fsck and GRUB refuse them.
//! - Memory is proportional to the groups (about 64 bytes each) and not to the blocks.
//!
//! Assumption: a device is zeroed only if [`Options::zeroed`] says so. Otherwise inode tables (the
//! used part, or all without lazy initialisation), the journal and the end of the device are
//! written as zeros.
//!
//! Differences from mke2fs
//!
//! | what | here | why |
//! | --- | --- | --- |
//! | times after 2038-01-19 | with their high bits | mke2fs stores 32 bits, read as 1901 |
//! | devices so small that they get 8 inodes | 16 | mke2fs fails: lost+found is inode 11 |
//! | `packed_meta_blocks` with `-G 1` | free blocks are right | mke2fs counts the tables twice |
//! | `inline_data` | lost+found has blocks from the start | its first block is not converted |
//! | a journal in more than 4 extent leaves | refused | only small groups (`-g`) cause it |
//! | `-E resize` for more than a group holds | refused | mke2fs combines it with `meta_bg` |
//! | labels above 16 bytes, unknown usage types | refused | mke2fs cuts and ignores them |
//! | sectors of a device above 1 KiB | `-b` has to be given | mke2fs raises the block size |
//! | directory hashes | always marked as signed | mke2fs asks the compiler's `char` |
//! | a BSD disk label in sector 0 | overwritten | labels of disks belong to whole disks |
//! | bigalloc, quota, mmp, encrypt, verity, journal_dev | refused | not written here |
//!
//! [`grow`] adds groups to a file system, [`shrink()`] removes some. Tested in `tests/it/grow.rs`
//! and `tests/it/shrink.rs`, and new file systems in `tests/it/mkfs.rs`: against stock mke2fs on
//! fixed sizes up to 1 TiB and on random sizes and options; with e2fsck and kernel mounts on
//! others; with failing devices; on devices full of old bytes.

pub mod build;
mod builder;
mod extents;
mod features;
mod files;
mod geometry;
mod groups;
mod grow;
mod map;
mod options;
mod shrink;
mod space;
mod tables;
mod traffic;
mod write;

pub use grow::grow;
pub use options::{Amount, FsType, Options, parse_uuid};
pub use shrink::shrink;

use syncline_device::BlockDevice;
use syncline_ondisk::group::{BLOCK_UNINIT, INODE_UNINIT};
use syncline_ondisk::{Geometry, Superblock};

use crate::error::Result;
use builder::Builder;
use geometry::Sizes;

/// A file system that is laid out and not written yet.
#[derive(Clone, Debug)]
pub struct Plan {
    builder: Builder,
    journal_blocks: u32,
}

impl Plan {
    /// Lays out a file system for a device of so many bytes.
    ///
    /// # Errors
    /// Invalid: options out of range, or that do not fit each other or the device. Unsupported: a
    /// feature or option that is not made.
    pub fn new(options: &Options, device_bytes: u64) -> Result<Self> {
        let sizes = Sizes::new(options, device_bytes)?;
        let mut builder = Builder::new(options, &sizes)?;
        sizes.check_journal_fits(options, builder.sb.s_free_blocks_count)?;
        builder.traffic.direct(3072);
        builder.allocate_tables()?;
        builder.sb.s_overhead_clusters = builder.used.count() as u32;
        builder.traffic.direct(1024);
        builder.init_inode_tables();
        builder.make_files(&sizes)?;
        builder.note_bitmaps();
        builder.sb.s_kbytes_written = builder.kbytes();
        Ok(Self { builder, journal_blocks: sizes.journal_blocks + sizes.fast_commit_blocks })
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.builder.sb
    }

    /// Sizes and layout.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.builder.geo
    }

    /// Blocks of the journal; 0 without one.
    #[must_use]
    pub fn journal_blocks(&self) -> u32 {
        if self.builder.sb.has_journal() { self.journal_blocks } else { 0 }
    }

    /// Writes the file system. If this fails, the device holds none.
    ///
    /// # Errors
    /// Io: the device failed.
    pub fn write(mut self, device: &(impl BlockDevice + ?Sized)) -> Result<()> {
        let done = self.builder.write(device);
        if done.is_err() {
            // The first error counts, and the device may be beyond help.
            let _ = write::clear(device);
        }
        done
    }
}

impl Builder {
    /// The bitmaps that are written before the count is taken.
    fn note_bitmaps(&mut self) {
        for desc in &self.groups {
            if desc.bg_flags & BLOCK_UNINIT == 0 {
                self.traffic.write(desc.bg_block_bitmap);
            }
            if desc.bg_flags & INODE_UNINIT == 0 {
                self.traffic.write(desc.bg_inode_bitmap);
            }
        }
    }

    /// What `s_kbytes_written` says; only kernels since ext4 keep it.
    fn kbytes(&self) -> u64 {
        use syncline_ondisk::RoCompatFeatures as Ro;
        let ro = Ro::HUGE_FILE
            .union(Ro::GDT_CSUM)
            .union(Ro::DIR_NLINK)
            .union(Ro::METADATA_CSUM)
            .union(Ro::EXTRA_ISIZE);
        let flex = syncline_ondisk::IncompatFeatures::FLEX_BG;
        if self.sb.s_feature_ro_compat.intersects(ro) || self.sb.s_feature_incompat.contains(flex) {
            self.traffic.kbytes(self.geo.gdt_blocks)
        } else {
            0
        }
    }
}
