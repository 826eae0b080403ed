//! The sizes of a new file system: blocks, inodes, groups, journal.
//!
//! The rules are those of mke2fs, in its order, because each depends on the results of those
//! before: a last group that is too short for its tables is dropped, and then all of them are
//! computed again ([`super::groups`]).

use syncline_ondisk::bytes::{le32, put_le16, put_le32};
use syncline_ondisk::superblock::{
    ENCODING_UTF8_12_1, FLAG_SIGNED_HASH, STATE_VALID, SUPERBLOCK_BYTES,
};
use syncline_ondisk::{
    CompatFeatures, Geometry, IncompatFeatures, RoCompatFeatures, Superblock, checksum,
};

use super::features::{Features, Usage};
use super::groups::{LAST_GROUP_SPARE, asked_descriptors, set_groups};
use super::options::{Options, invalid};
use crate::error::{FsError, Result};

/// Unit in which the size of a device is rounded down, as the page size for mke2fs.
const PAGE_BYTES: u64 = 4096;
/// `s_first_ino`: the inode of lost+found, the first that is not reserved.
pub(super) const FIRST_INO: u32 = 11;
/// Fewer blocks hold no file system: superblock, descriptors, two bitmaps, a table, root,
/// lost+found.
const MIN_BLOCKS: u64 = 8;
/// Default mount options `acl` and `user_xattr`.
const DEFAULT_MOUNT_OPTIONS: u32 = 0x4 | 0x8;
/// `s_def_hash_version`.
const HALF_MD4: u8 = 1;

const RAID_STRIDE: usize = 0x164;
const RAID_STRIPE_WIDTH: usize = 0x170;

/// The superblock's bytes as far as they are known before blocks are allocated, and its sizes.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) sb: Superblock,
    /// Bytes of the superblock, with the fields that [`Superblock`] has not.
    pub(super) raw: Vec<u8>,
    pub(super) geo: Geometry,
    /// Blocks of the journal without those for fast commits; 0 is no journal.
    pub(super) journal_blocks: u32,
    pub(super) fast_commit_blocks: u32,
}

pub(super) fn too_small<T>() -> Result<T> {
    invalid(
        "the device is too small for the file system; take a larger one or smaller blocks".into(),
    )
}

impl Sizes {
    pub(super) fn new(options: &Options, device_bytes: u64) -> Result<Self> {
        Self::with_last_group(options, device_bytes, LAST_GROUP_SPARE)
    }

    /// Sizes with a last group that has so many blocks beside its tables. `None`: its tables are
    /// in other groups.
    pub(super) fn with_last_group(
        options: &Options,
        device_bytes: u64,
        last_group: Option<u64>,
    ) -> Result<Self> {
        options.check()?;
        let usage = Usage::of(options, device_bytes)?;
        let features = Features::of(options)?;
        let block_bytes = u64::from(options.block_bytes.unwrap_or(usage.block_bytes));
        let blocks = device_bytes / PAGE_BYTES * PAGE_BYTES / block_bytes;
        let per_group = options.blocks_per_group;
        if let Some(bad) =
            per_group.filter(|n| *n % 8 != 0 || !(256..=8 * block_bytes).contains(&u64::from(*n)))
        {
            let most = 8 * block_bytes;
            return invalid(format!(
                "{bad} blocks per group are not a multiple of 8 in 256..={most}"
            ));
        }
        let mut sb = first_fields(options, features, block_bytes)?;
        sb.s_blocks_count = blocks;
        if blocks < MIN_BLOCKS {
            return too_small();
        }
        check_features(options, &mut sb, blocks)?;
        sb.s_inode_size = inode_bytes(options, &usage, &sb, block_bytes)?;
        let wanted = wanted_inodes(options, &usage, &sb, blocks * block_bytes)?;
        let reserved = options.reserved_percent * blocks as f64 / 100.0;
        sb.s_r_blocks_count = reserved as u64;
        set_flex(options, &mut sb)?;
        set_groups(options, &mut sb, (wanted, last_group), block_bytes)?;
        let mut raw = vec![0; SUPERBLOCK_BYTES];
        put_le16(&mut raw, RAID_STRIDE, options.stride);
        put_le32(&mut raw, RAID_STRIPE_WIDTH, options.stripe_width);
        let geo = Geometry::new(&sb, device_bytes)
            .map_err(|err| FsError::Invalid(format!("{err}; correct the sizes")))?;
        let mut sizes = Self { sb, raw, geo, journal_blocks: 0, fast_commit_blocks: 0 };
        sizes.set_journal(options)?;
        Ok(sizes)
    }

    /// The journal's size: by the number of blocks, or as it was asked for.
    fn set_journal(&mut self, options: &Options) -> Result<()> {
        if !self.sb.has_journal() {
            return Ok(());
        }
        let default = match self.sb.s_blocks_count {
            0..2048 => 0,
            2048..0x8000 => 1024,
            0x8000..0x4_0000 => 4096,
            0x4_0000..0x8_0000 => 8192,
            0x8_0000..0x40_0000 => 16384,
            0x40_0000..0x80_0000 => 32768,
            0x80_0000..0x100_0000 => 65536,
            0x100_0000..0x200_0000 => 131_072,
            _ => 262_144,
        };
        let fast = self.sb.s_feature_compat.contains(CompatFeatures::FAST_COMMIT);
        let block_bytes = self.geo.block_size as u64;
        let (mut blocks, mut fast_blocks) = (default, if fast { default / 64 } else { 0 });
        if default > 0
            && (options.journal_mib.is_some() || fast && options.fast_commit_kib.is_some())
        {
            if let Some(mib) = options.journal_mib {
                blocks = u64::from(mib) * (1 << 20) / block_bytes;
            }
            if let Some(kib) = options.fast_commit_kib.filter(|_| fast) {
                fast_blocks = u64::from(kib) * 1024 / block_bytes;
            }
            let total = blocks + fast_blocks;
            if blocks < 1024 || total > 10_240_000 {
                let range = "1024..=10240000";
                return invalid(format!(
                    "a journal of {total} blocks is not in {range}; correct -J"
                ));
            }
        }
        self.journal_blocks = blocks as u32;
        self.fast_commit_blocks = fast_blocks as u32;
        Ok(())
    }
}

/// All that does not depend on the size.
fn first_fields(options: &Options, features: Features, block_bytes: u64) -> Result<Superblock> {
    let mut start = vec![0; SUPERBLOCK_BYTES];
    put_le16(&mut start, 0x38, syncline_ondisk::superblock::EXT4_SUPER_MAGIC);
    let mut sb = Superblock::decode(&start)?;
    sb.s_feature_compat = features.compat;
    sb.s_feature_incompat = features.incompat;
    sb.s_feature_ro_compat = features.ro_compat;
    sb.s_log_block_size = block_bytes.trailing_zeros() - 10;
    sb.s_log_cluster_size = sb.s_log_block_size;
    sb.s_first_data_block = u32::from(sb.s_log_block_size == 0);
    sb.s_state = STATE_VALID;
    sb.s_errors = options.errors;
    sb.s_max_mnt_count = u16::MAX;
    sb.s_rev_level = 1;
    sb.s_first_ino = FIRST_INO;
    sb.s_mkfs_time = options.time_s;
    sb.s_lastcheck = options.time_s;
    sb.s_wtime = options.time_s;
    sb.s_default_mount_opts = DEFAULT_MOUNT_OPTIONS;
    sb.s_flags = FLAG_SIGNED_HASH;
    sb.s_def_hash_version = HALF_MD4;
    sb.s_uuid = options.uuid;
    sb.s_hash_seed = std::array::from_fn(|i| le32(&options.hash_seed, 4 * i));
    if sb.s_feature_incompat.contains(IncompatFeatures::CASEFOLD) {
        sb.s_encoding = ENCODING_UTF8_12_1;
        sb.s_encoding_flags = options.strict_encoding.unwrap_or_default().into();
    }
    padded(&mut sb.s_volume_name, &options.label);
    padded(&mut sb.s_last_mounted, &options.last_mounted);
    if sb.has_metadata_csum() {
        sb.s_checksum_type = 1;
    }
    if sb.s_feature_incompat.contains(IncompatFeatures::CSUM_SEED) {
        sb.s_checksum_seed = checksum::crc32c(!0, &sb.s_uuid);
    }
    if sb.is_64bit() {
        sb.s_desc_size = options.desc_bytes.unwrap_or(64);
        if !(64..=1024).contains(&sb.s_desc_size) || !sb.s_desc_size.is_power_of_two() {
            return invalid("desc_size is not a power of two in 64..=1024; correct it".into());
        }
    } else if options.desc_bytes.is_some() {
        return invalid("desc_size needs the feature 64bit; add -O 64bit".into());
    }
    Ok(sb)
}

fn padded(field: &mut [u8], text: &[u8]) {
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
}

/// Refuses features that contradict each other or the size.
fn check_features(options: &Options, sb: &mut Superblock, blocks: u64) -> Result<()> {
    if asked_descriptors(options, sb)? > 0 {
        sb.s_feature_compat.insert(CompatFeatures::RESIZE_INODE);
    }
    if options.journal_mib.is_some() {
        sb.s_feature_compat.insert(CompatFeatures::HAS_JOURNAL);
    }
    let (compat, incompat) = (sb.s_feature_compat, sb.s_feature_incompat);
    let refuse = |text: &str| invalid(text.to_owned());
    if blocks > u32::MAX.into() {
        if !sb.is_64bit() {
            return refuse(
                "more than 2^32 blocks need the feature 64bit; add -O 64bit or raise -b",
            );
        }
        sb.s_feature_compat.remove(CompatFeatures::RESIZE_INODE);
    }
    if sb.is_64bit() && !incompat.contains(IncompatFeatures::EXTENTS) {
        return refuse("the feature 64bit needs extent; add -O extent or ^64bit");
    }
    let resize_inode = sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE);
    if resize_inode && incompat.contains(IncompatFeatures::META_BG) {
        return refuse("the features resize_inode and meta_bg exclude each other; remove one");
    }
    if resize_inode && !sb.s_feature_ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
        return refuse("the feature resize_inode needs sparse_super; add -O ^resize_inode");
    }
    if incompat.contains(IncompatFeatures::CSUM_SEED) && !sb.has_metadata_csum() {
        return refuse("the feature metadata_csum_seed needs metadata_csum; add or remove both");
    }
    if compat.contains(CompatFeatures::ORPHAN_FILE) && !sb.has_journal() {
        return refuse("the feature orphan_file needs has_journal; add or remove both");
    }
    Ok(())
}

fn inode_bytes(options: &Options, usage: &Usage, sb: &Superblock, block_bytes: u64) -> Result<u16> {
    let bytes = options.inode_bytes.unwrap_or(usage.inode_bytes);
    if !bytes.is_power_of_two() || bytes < 128 || u64::from(bytes) > block_bytes || bytes > 1 << 15
    {
        return invalid(format!("inode size {bytes} is not a power of two in 128..={block_bytes}"));
    }
    if bytes == 128 {
        for (needs, name) in [
            (sb.s_feature_incompat.contains(IncompatFeatures::INLINE_DATA), "inline_data"),
            (sb.s_feature_ro_compat.contains(RoCompatFeatures::PROJECT), "project"),
        ] {
            if needs {
                return invalid(format!("the feature {name} needs inodes of 256 bytes; raise -I"));
            }
        }
    }
    Ok(bytes as u16)
}

/// Inodes by `-N`, or by the bytes for each.
fn wanted_inodes(options: &Options, usage: &Usage, sb: &Superblock, bytes: u64) -> Result<u64> {
    let block_bytes = 1024 << sb.s_log_block_size;
    let ratio = options.bytes_per_inode.unwrap_or(usage.bytes_per_inode.max(block_bytes));
    let count = match options.inodes.filter(|count| *count > 0) {
        Some(count) if count > u32::MAX.into() => {
            return invalid(format!("{count} inodes are 2^32 or more; lower -N"));
        }
        Some(count) => count,
        None => match bytes / u64::from(ratio) {
            count if count > u32::MAX.into() && !sb.is_64bit() => {
                return invalid(format!("{count} inodes are 2^32 or more; raise -i"));
            }
            count => count.min(u32::MAX.into()),
        },
    };
    if count * u64::from(sb.s_inode_size) >= bytes {
        let size = sb.s_inode_size;
        let text = format!("{count} inodes of {size} bytes fill the device; lower -N or raise -i");
        return invalid(text);
    }
    Ok(count)
}

fn set_flex(options: &Options, sb: &mut Superblock) -> Result<()> {
    if sb.s_feature_incompat.contains(IncompatFeatures::FLEX_BG) {
        sb.s_log_groups_per_flex = options.flex_groups.unwrap_or(16).trailing_zeros() as u8;
    } else if options.flex_groups.is_some() {
        return invalid("-G needs the feature flex_bg; add -O flex_bg".into());
    }
    Ok(())
}

impl Sizes {
    /// Fails if half of the free blocks are not enough for a journal whose size was given.
    pub(super) fn check_journal_fits(&self, options: &Options, free_blocks: u64) -> Result<()> {
        let total = u64::from(self.journal_blocks) + u64::from(self.fast_commit_blocks);
        if options.journal_mib.is_some() && total > free_blocks / 2 {
            return Err(FsError::Invalid(
                "the journal is larger than half of the file system; lower -J size".into(),
            ));
        }
        Ok(())
    }
}
