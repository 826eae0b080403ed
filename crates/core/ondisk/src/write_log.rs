//! The mark of an image whose newest data is in a write log.
//!
//! ```text
//!   first sector of the superblock      plain                     marked
//!   0x060 s_feature_incompat            ...                       ... | WRITE_LOG (bit 30)
//!   0x180 s_snapshot_inum               0                         bytes 0..4 of the log's id
//!   0x184 s_snapshot_id                 balances the checksum     balances the checksum
//!   0x188 s_snapshot_r_blocks_count     0                         bytes 4..12
//!   0x190 s_snapshot_list               0                         bytes 12..16
//! ```
//!
//! Without its log such an image is a mixture of old and new blocks. Every ext4 refuses a bit of
//! this word that it does not know, so neither the kernel nor e2fsck touches the image meanwhile.
//! All of it is in one sector, and the checksum in the other one stays as it is, so that no power
//! cut leaves half a mark. The snapshot fields belong to a feature that never came; an image that
//! uses them is not marked. Tested here, and through mounts in `fs/tests/it/relaxed.rs`.

use crate::bytes::{le32, put_le32};
use crate::checksum;
use crate::features::{IncompatFeatures, RoCompatFeatures};
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};

const INCOMPAT_AT: usize = 0x60;
const RO_COMPAT_AT: usize = 0x64;
const BALANCE_AT: usize = 0x184;
const CHECKSUM_AT: usize = 0x3fc;
/// Parts of the id: offset in the superblock, offset in the id, length.
const ID_PARTS: [(usize, usize, usize); 3] = [(0x180, 0, 4), (0x188, 4, 8), (0x190, 12, 4)];

/// Names a log.
pub type WriteLogId = [u8; 16];

/// The log that the superblock names; none if it is not marked.
#[must_use]
pub fn write_log_of(sb: &[u8; SUPERBLOCK_BYTES]) -> Option<WriteLogId> {
    (le32(sb, INCOMPAT_AT) & IncompatFeatures::WRITE_LOG.bits() != 0).then(|| id(sb))
}

fn id(sb: &[u8; SUPERBLOCK_BYTES]) -> WriteLogId {
    let mut id = WriteLogId::default();
    for (from, to, len) in ID_PARTS {
        id[to..to + len].copy_from_slice(&sb[from..from + len]);
    }
    id
}

/// Marks a superblock, or takes the mark away. A checksum that was right is right afterwards, a
/// wrong one stays wrong. False, and nothing changed, if its snapshot fields are in use.
pub fn set_write_log(sb: &mut [u8; SUPERBLOCK_BYTES], log: Option<WriteLogId>) -> bool {
    if write_log_of(sb).is_none() && id(sb) != WriteLogId::default() {
        return false;
    }
    let stored = le32(sb, CHECKSUM_AT);
    let has_checksum = le32(sb, RO_COMPAT_AT) & RoCompatFeatures::METADATA_CSUM.bits() != 0;
    let was_valid = has_checksum && Superblock::checksum_of(sb) == stored;
    let bit = IncompatFeatures::WRITE_LOG.bits();
    let others = le32(sb, INCOMPAT_AT) & !bit;
    put_le32(sb, INCOMPAT_AT, if log.is_some() { others | bit } else { others });
    let log = log.unwrap_or_default();
    for (to, from, len) in ID_PARTS {
        sb[to..to + len].copy_from_slice(&log[from..from + len]);
    }
    if was_valid {
        checksum::steer_crc32c(!0, &mut sb[..CHECKSUM_AT], BALANCE_AT, stored);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: WriteLogId = *b"0123456789abcdef";

    fn superblock(with_checksum: bool) -> [u8; SUPERBLOCK_BYTES] {
        let mut sb = [0; SUPERBLOCK_BYTES];
        for (index, byte) in sb.iter_mut().enumerate() {
            *byte = (index * 7) as u8;
        }
        sb[0x180..0x194].fill(0);
        put_le32(&mut sb, INCOMPAT_AT, 0x2c2);
        put_le32(&mut sb, RO_COMPAT_AT, if with_checksum { 0x46b } else { 0x7b });
        if with_checksum {
            let sum = Superblock::checksum_of(&sb);
            put_le32(&mut sb, CHECKSUM_AT, sum);
        }
        sb
    }

    #[test]
    fn a_mark_is_in_the_first_sector_and_comes_off_without_a_trace() {
        for with_checksum in [true, false] {
            let plain = superblock(with_checksum);
            let mut sb = plain;
            assert_eq!(write_log_of(&sb), None);
            assert!(set_write_log(&mut sb, Some(ID)));
            assert_eq!(write_log_of(&sb), Some(ID));
            assert_eq!(sb[512..], plain[512..], "the second sector stays");
            assert_eq!(
                Superblock::checksum_of(&sb) == le32(&sb, CHECKSUM_AT),
                with_checksum,
                "the checksum is still right"
            );
            assert!(set_write_log(&mut sb, Some([9; 16])), "another log");
            assert!(set_write_log(&mut sb, None));
            assert_eq!(sb, plain);
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_and_used_fields_are_left_alone() {
        let mut sb = superblock(true);
        sb[3] ^= 1;
        assert!(set_write_log(&mut sb, Some(ID)));
        assert_ne!(Superblock::checksum_of(&sb), le32(&sb, CHECKSUM_AT));
        let mut sb = superblock(true);
        sb[0x180] = 1;
        let before = sb;
        assert!(!set_write_log(&mut sb, Some(ID)) && sb == before);
    }
}
