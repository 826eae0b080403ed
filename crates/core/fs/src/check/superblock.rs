//! The superblock, or a backup of it, and the geometry that it gives.
//!
//! What a mount refuses is a finding here as long as the numbers can be worked with.

use syncline_device::{BlockDevice, Kind as Traffic, Origin};
use syncline_ondisk::superblock::{
    ENCODING_UTF8_12_1, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use syncline_ondisk::{CompatFeatures, Geometry, IncompatFeatures, OndiskError, RoCompatFeatures};

use super::geometry::{fields, geometry, hints};
use super::kinds;
use super::report::{At, CheckReport};
use crate::error::{FsError, Result};

/// Features of the class incompat that a check knows.
const KNOWN: IncompatFeatures = IncompatFeatures::WRITABLE.union(IncompatFeatures::READABLE);

/// How many times more groups than the device has room for are looked at.
const GROUPS_FACTOR: u64 = 16;

/// A superblock with its geometry.
pub(super) struct Opened {
    pub(super) sb: Superblock,
    pub(super) geo: Geometry,
    /// log2 of the blocks of a cluster.
    pub(super) cluster_bits: u32,
    /// Group whose copy it is; 0 is the primary.
    pub(super) backup: u32,
}

impl Opened {
    /// The superblock of a mounted volume.
    pub(super) fn of_volume(sb: Superblock, bytes: u64, report: &mut CheckReport) -> Option<Self> {
        report.unreplayed = false;
        Self::new(sb, 0, bytes, report)
    }

    /// The superblock of a device; `None` if nothing can be checked, which is noted.
    ///
    /// # Errors
    /// I/O, if no copy can be read; features that cannot be checked.
    pub(super) fn of_device(
        dev: &dyn BlockDevice,
        report: &mut CheckReport,
    ) -> Result<Option<Self>> {
        let bytes = dev.geometry().size_bytes;
        if bytes < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
            let what = "the device is too small to hold an ext4 superblock";
            report.note(kinds::SUPERBLOCK, At::block(0), what.into());
            return Ok(None);
        }
        let primary = read_copy(dev, SUPERBLOCK_OFFSET);
        let refusal = match &primary {
            Ok(Ok(sb)) => match check_features(sb) {
                Ok(()) => geometry(sb, true).err(),
                Err(err) => return Err(err),
            },
            Ok(Err(err)) => Some(err.to_string()),
            Err(err) => Some(format!("cannot be read: {err}")),
        };
        let mut copy = None;
        if let Some(why) = refusal {
            report.note(kinds::SUPERBLOCK, At::block(0), why);
            copy = backup(dev);
        } else if let Ok(Ok(sb)) = &primary {
            let wrong = wrong_fields(sb);
            // One of an older file system is no copy of it.
            let is_copy = |(copy, _): &(Superblock, u32)| {
                copy.s_uuid == sb.s_uuid && copy.s_log_block_size == sb.s_log_block_size
            };
            copy = if wrong.is_empty() { None } else { backup(dev).filter(is_copy) };
            if copy.is_none() {
                report.unreplayed = sb.needs_recovery();
                return Ok(Self::new(sb.clone(), 0, bytes, report));
            }
            for what in wrong {
                report.note(kinds::SUPERBLOCK_FIELD, At::block(0), what);
            }
        }
        if let Some((sb, group)) = copy {
            if let Err(err) = &primary {
                let block = SUPERBLOCK_OFFSET >> (sb.s_log_block_size + 10);
                report.note(kinds::UNREADABLE, At::block(block), format!("cannot be read: {err}"));
            }
            let what = format!("the superblock of group {group} is used");
            report.note(kinds::BACKUP_SUPERBLOCK, At::group(group), what);
            report.unreplayed = sb.needs_recovery();
            return Ok(Self::new(sb, group, bytes, report));
        }
        let Ok(sb) = Superblock::decode(&read_bytes(dev, SUPERBLOCK_OFFSET)?) else {
            return Ok(None);
        };
        Ok(Self::new(sb, 0, bytes, report))
    }

    fn new(sb: Superblock, backup: u32, bytes: u64, report: &mut CheckReport) -> Option<Self> {
        let (geo, cluster_bits) = match geometry(&sb, false) {
            Ok(found) => found,
            Err(why) => {
                report.note(kinds::SUPERBLOCK, At::block(0), why);
                return None;
            }
        };
        for what in fields(&sb, &geo) {
            report.note(kinds::SUPERBLOCK_FIELD, At::block(0), what);
        }
        for what in hints(&sb) {
            report.note(kinds::SUPERBLOCK_HINT, At::block(0), what);
        }
        let device_blocks = bytes >> geo.block_bits;
        if geo.blocks_count > device_blocks {
            let what = format!(
                "the file system has {} blocks, the device only {device_blocks}",
                geo.blocks_count
            );
            report.note(kinds::DEVICE_TOO_SMALL, At::NOWHERE, what);
        }
        // Descriptors past the end of the device: nothing bounds the work, and nothing can be read.
        let table = u64::from(geo.gdt_blocks.min(geo.first_meta_bg));
        if table + u64::from(geo.first_data_block) + 1 > device_blocks {
            return None;
        }
        let groups = device_blocks.div_ceil(geo.blocks_per_group.into()).max(1);
        if u64::from(geo.group_count) > groups.saturating_mul(GROUPS_FACTOR) {
            return None;
        }
        Some(Self { sb, geo, cluster_bits, backup })
    }
}

fn read_bytes(dev: &dyn BlockDevice, at: u64) -> Result<[u8; SUPERBLOCK_BYTES]> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    dev.read(at, &mut bytes, Origin::new(Traffic::Metadata, true))?;
    Ok(bytes)
}

/// A copy of the superblock, with its checksum right.
fn read_copy(
    dev: &dyn BlockDevice,
    at: u64,
) -> Result<std::result::Result<Superblock, OndiskError>> {
    let bytes = read_bytes(dev, at)?;
    Ok(Superblock::decode(&bytes).and_then(|sb| sb.verify_checksum(&bytes).map(|()| sb)))
}

/// The first backup that can be used, as e2fsck looks for one: that of group 1, which every layout
/// but `sparse_super2` has, for each block size.
fn backup(dev: &dyn BlockDevice) -> Option<(Superblock, u32)> {
    for bits in 10..=16 {
        let first = u64::from(bits == 10);
        let at = (first + (8 << bits)) << bits;
        if at + SUPERBLOCK_BYTES as u64 > dev.geometry().size_bytes {
            continue;
        }
        let Ok(Ok(sb)) = read_copy(dev, at) else { continue };
        let fits = sb.s_log_block_size + 10 == bits && sb.s_blocks_per_group == 8 << bits;
        let is_sound = geometry(&sb, true).is_ok() && wrong_fields(&sb).is_empty();
        if fits && check_features(&sb).is_ok() && is_sound {
            return Some((sb, 1));
        }
    }
    None
}

/// Wrong fields of a superblock whose geometry can be worked with.
fn wrong_fields(sb: &Superblock) -> Vec<String> {
    geometry(sb, false).map(|(geo, _)| fields(sb, &geo)).unwrap_or_default()
}

fn check_features(sb: &Superblock) -> Result<()> {
    let (incompat, ro_compat) = (sb.s_feature_incompat, sb.s_feature_ro_compat);
    let own = IncompatFeatures::WRITE_LOG.union(IncompatFeatures::JOURNAL_DEV);
    if incompat.intersects(own) || sb.s_rev_level > 1 {
        return sb.check_features().map(drop).map_err(Into::into);
    }
    let compat = sb.s_feature_compat;
    let mut names: Vec<String> = incompat.without(KNOWN).names().collect();
    let snapshots = CompatFeatures::EXCLUDE_INODE.union(CompatFeatures::EXCLUDE_BITMAP);
    let refused = compat.unknown().union(snapshots).union(CompatFeatures::LAZY_BG);
    names.extend(compat.without(compat.without(refused)).names());
    // Linux mounts `btree_dir`. Nothing sets it, and e2fsck refuses it.
    let refused = RoCompatFeatures::HAS_SNAPSHOT.union(RoCompatFeatures::REPLICA);
    let refused = refused.union(RoCompatFeatures::BTREE_DIR).union(ro_compat.unknown());
    names.extend(ro_compat.without(ro_compat.without(refused)).names());
    if incompat.contains(IncompatFeatures::CASEFOLD) && sb.s_encoding != ENCODING_UTF8_12_1 {
        names.push(format!("casefold with encoding {}", sb.s_encoding));
    }
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    Err(FsError::Unsupported(format!("{names}: this file system cannot be checked")))
}
