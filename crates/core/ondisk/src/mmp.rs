//! The multiple mount protection block (feature `mmp`).
//!
//! ```text
//!  0x00 magic 004D4D50  seq u32  time u64 | 0x10 nodename[64]  0x50 bdevname[32]  0x70 interval
//!  0x3FC crc32c of what is before
//! ```
//!
//! A mounter that finds `seq` changing must stay away; a writer changes it every `check_interval`
//! seconds. The protocol itself is not here. Tested here.

use crate::bytes::{array_at, le16, le32, le64, put_bytes, put_le16, put_le32, put_le64};
use crate::checksum;
use crate::error::{OndiskError, Result};

const WHAT: &str = "MMP block";
/// Magic of the structure.
pub const MMP_MAGIC: u32 = 0x004d_4d50;
/// `mmp_seq`: cleanly unmounted.
pub const MMP_SEQ_CLEAN: u32 = 0xff4d_4d50;
/// `mmp_seq`: e2fsck is running.
pub const MMP_SEQ_FSCK: u32 = 0xe24d_4d50;
/// Largest sequence a mounter uses.
pub const MMP_SEQ_MAX: u32 = 0xe24d_4d4f;
const BYTES: usize = 1024;
const CHECKSUM: usize = 0x3fc;

/// The fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_field_names)]
pub struct Mmp {
    /// Changed at every beat, or one of the marks.
    pub mmp_seq: u32,
    /// Time of the last beat, seconds since 1970; for people only.
    pub mmp_time: u64,
    /// Host that mounted, zero-padded.
    pub mmp_nodename: [u8; 64],
    /// Device name there, zero-padded.
    pub mmp_bdevname: [u8; 32],
    /// Seconds between beats.
    pub mmp_check_interval: u16,
}

impl Mmp {
    /// Reads the block; `csum_seed` is given with `metadata_csum`. Corrupt: short, magic, checksum.
    pub fn decode(block: &[u8], csum_seed: Option<u32>) -> Result<Self> {
        let Some(covered) = block.get(..BYTES).and_then(|block| block.get(..CHECKSUM)) else {
            return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", block.len())));
        };
        if le32(block, 0) != MMP_MAGIC {
            return Err(OndiskError::corrupt_at(WHAT, 0, "no magic"));
        }
        if let Some(seed) = csum_seed {
            if checksum::crc32c(seed, covered) != le32(block, CHECKSUM) {
                return Err(OndiskError::corrupt_at(WHAT, CHECKSUM, "checksum does not match"));
            }
        }
        Ok(Self {
            mmp_seq: le32(block, 4),
            mmp_time: le64(block, 8),
            mmp_nodename: array_at(block, 0x10),
            mmp_bdevname: array_at(block, 0x50),
            mmp_check_interval: le16(block, 0x70),
        })
    }

    /// Writes the fields over `block`, and the checksum with `metadata_csum`. Usage error: short.
    pub fn encode_into(&self, block: &mut [u8], csum_seed: Option<u32>) -> Result<()> {
        if block.len() < BYTES {
            return Err(OndiskError::usage(WHAT, "the buffer is shorter than 1024 bytes"));
        }
        put_le32(block, 0, MMP_MAGIC);
        put_le32(block, 4, self.mmp_seq);
        put_le64(block, 8, self.mmp_time);
        put_bytes(block, 0x10, &self.mmp_nodename);
        put_bytes(block, 0x50, &self.mmp_bdevname);
        put_le16(block, 0x70, self.mmp_check_interval);
        if let Some(seed) = csum_seed {
            let crc = checksum::crc32c(seed, block.get(..CHECKSUM).unwrap_or(&[]));
            put_le32(block, CHECKSUM, crc);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_rejections() {
        let mmp = Mmp {
            mmp_seq: MMP_SEQ_CLEAN,
            mmp_time: 1 << 33,
            mmp_nodename: [b'n'; 64],
            mmp_bdevname: [b'd'; 32],
            mmp_check_interval: 5,
        };
        let mut block = vec![0; 1024];
        mmp.encode_into(&mut block, Some(3)).unwrap();
        assert_eq!(Mmp::decode(&block, Some(3)), Ok(mmp.clone()));
        assert!(Mmp::decode(&block, Some(4)).is_err());
        assert!(Mmp::decode(&block[..1000], None).is_err());
        assert!(mmp.encode_into(&mut block[..1000], None).is_err());
        block[0] = 0;
        assert!(Mmp::decode(&block, None).is_err());
    }
}
