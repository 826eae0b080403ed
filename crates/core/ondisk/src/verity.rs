//! fs-verity: the descriptor of a file whose contents are fixed, and the tree of its hashes.
//!
//! ```text
//!  data, i_size | to 64 KiB | root block, ..., leaves of the tree | to a block | descriptor | size
//!
//!  descriptor: 0x00 version 1, algorithm, log2 of a block, bytes of salt
//!              0x04 signature bytes u32   0x08 data bytes u64   0x10 root hash[64]
//!              0x50 salt[32]   0x70 zeros   0x100 signature
//! ```
//!
//! A block of the tree holds the hashes of consecutive blocks of the level below; the data is the
//! lowest level. A hash covers the salt, padded to the input block of the algorithm, and one block.
//! Linux: fs/verity/. Signatures are not checked. Tested here and in `syncline-fs`.

use sha2::{Digest, Sha256, Sha512};

use crate::bytes::{array_at, is_zero, le32, le64};
use crate::error::{OndiskError, Result};

const WHAT: &str = "verity descriptor";
/// Bytes of a descriptor without a signature.
pub const DESCRIPTOR_BYTES: usize = 256;
/// Most bytes of a descriptor with its signature, as in Linux.
pub const DESCRIPTOR_BYTES_MAX: usize = 16384;
const SALT: usize = 0x50;
const SALT_BYTES_MAX: usize = 32;
const RESERVED: usize = 0x70;
/// Smallest block of a tree.
const LOG_BLOCK_MIN: u8 = 10;
/// Most levels of a tree, as in Linux.
const LEVELS_MAX: usize = 8;

/// First byte of the tree of a file of `size` bytes.
#[must_use]
pub fn tree_start(size: u64) -> u64 {
    size.div_ceil(1 << 16).saturating_mul(1 << 16)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    fn digest_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The salt is padded to this.
    fn input_bytes(self) -> usize {
        2 * self.digest_bytes()
    }
}

/// A descriptor that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verity {
    algorithm: Algorithm,
    log_block: u32,
    /// Padded; empty without a salt.
    salt: Vec<u8>,
    root: [u8; 64],
    data_bytes: u64,
    /// First block, in the tree, of each level from the leaves on.
    levels: Vec<u64>,
}

impl Verity {
    /// Reads the descriptor of a file of `size` bytes in blocks of `block_size`. Corrupt: what
    /// Linux refuses.
    pub fn decode(bytes: &[u8], size: u64, block_size: usize) -> Result<Self> {
        let bad = |offset, detail: String| Err(OndiskError::corrupt_at(WHAT, offset, detail));
        if !(DESCRIPTOR_BYTES..=DESCRIPTOR_BYTES_MAX).contains(&bytes.len()) {
            return bad(0, format!("{} bytes", bytes.len()));
        }
        let [version, algorithm, log_block, salt_bytes] = array_at(bytes, 0);
        if version != 1 {
            return bad(0, format!("version {version}"));
        }
        let algorithm = match algorithm {
            1 => Algorithm::Sha256,
            2 => Algorithm::Sha512,
            other => return bad(1, format!("hash algorithm {other}")),
        };
        if log_block < LOG_BLOCK_MIN || u32::from(log_block) > block_size.trailing_zeros() {
            return bad(2, format!("hash blocks of 2^{log_block} bytes"));
        }
        let salt_bytes = usize::from(salt_bytes);
        if salt_bytes > SALT_BYTES_MAX {
            return bad(3, format!("a salt of {salt_bytes} bytes"));
        }
        if le32(bytes, 4) as usize > bytes.len() - DESCRIPTOR_BYTES {
            return bad(4, format!("a signature of {} bytes", le32(bytes, 4)));
        }
        if le64(bytes, 8) != size {
            return bad(8, format!("{} bytes of data in a file of {size}", le64(bytes, 8)));
        }
        if !bytes.get(RESERVED..DESCRIPTOR_BYTES).is_some_and(is_zero) {
            return bad(RESERVED, "reserved bytes are in use".into());
        }
        let mut salt = Vec::new();
        if salt_bytes > 0 {
            salt.extend_from_slice(bytes.get(SALT..SALT + salt_bytes).unwrap_or(&[]));
            salt.resize(algorithm.input_bytes(), 0);
        }
        let log_block = u32::from(log_block);
        let Some(levels) = levels(size, log_block, algorithm) else {
            return bad(8, format!("the tree of {size} bytes has too many levels"));
        };
        let root = array_at(bytes, 0x10);
        Ok(Self { algorithm, log_block, salt, root, data_bytes: size, levels })
    }

    /// Bytes of a block of the tree, and of data under one hash.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        1 << self.log_block
    }

    /// Bytes of the file.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Levels between the data and the root hash.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Place of the hash of block `index` of level `level`, 0 being the data: the level above, the
    /// index of the block there and its first byte in the tree. `None`: it is the root hash.
    #[must_use]
    pub fn parent(&self, level: usize, index: u64) -> Option<(usize, u64, u64)> {
        let start = self.levels.get(level)?;
        let above = index / self.hashes_per_block();
        Some((level + 1, above, start.saturating_add(above) << self.log_block))
    }

    fn hashes_per_block(&self) -> u64 {
        (self.block_bytes() / self.algorithm.digest_bytes()) as u64
    }

    /// True if `block`, number `index` of a level, has its hash in `parent`, a block of the level
    /// above, or without one if it has the root hash.
    #[must_use]
    pub fn matches(&self, block: &[u8], index: u64, parent: Option<&[u8]>) -> bool {
        let len = self.algorithm.digest_bytes();
        let expected = match parent {
            Some(parent) => {
                let at = (index % self.hashes_per_block()) as usize * len;
                parent.get(at..at + len)
            }
            None => self.root.get(..len),
        };
        let Some(expected) = expected else { return false };
        match self.algorithm {
            Algorithm::Sha256 => self.hash::<Sha256>(block)[..] == *expected,
            Algorithm::Sha512 => self.hash::<Sha512>(block)[..] == *expected,
        }
    }

    fn hash<D: Digest>(&self, block: &[u8]) -> sha2::digest::Output<D> {
        D::new().chain_update(&self.salt).chain_update(block).finalize()
    }
}

/// Starts of the levels, the leaves first; the root comes first on disk.
fn levels(size: u64, log_block: u32, algorithm: Algorithm) -> Option<Vec<u64>> {
    let per_block = (1u64 << log_block) / algorithm.digest_bytes() as u64;
    let mut blocks = size.div_ceil(1 << log_block);
    let mut counts = Vec::new();
    while blocks > 1 {
        blocks = blocks.div_ceil(per_block);
        counts.push(blocks);
        if counts.len() > LEVELS_MAX {
            return None;
        }
    }
    let mut start = 0;
    let mut starts = Vec::with_capacity(counts.len());
    for count in counts.iter().rev() {
        starts.push(start);
        start += count;
    }
    starts.reverse();
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(size: u64) -> Vec<u8> {
        let mut bytes = vec![0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&[1, 1, 12, 0]);
        bytes[8..16].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    #[test]
    fn levels_lie_as_in_linux() {
        let at = |size| Verity::decode(&descriptor(size), size, 4096).unwrap().levels;
        assert_eq!(at(0), [0; 0]);
        assert_eq!(at(4096), [0; 0]);
        assert_eq!(at(4097), [0]);
        assert_eq!(at(128 * 4096), [0]);
        assert_eq!(at(128 * 4096 + 1), [1, 0]);
        assert_eq!(at(128 * 128 * 4096 + 1), [3, 1, 0]);
        assert_eq!((tree_start(0), tree_start(1), tree_start(65_536)), (0, 65_536, 65_536));
        let verity = Verity::decode(&descriptor(1 << 20), 1 << 20, 4096).unwrap();
        assert_eq!(verity.parent(0, 200), Some((1, 1, 2 * 4096)));
        assert_eq!(verity.parent(1, 1), Some((2, 0, 0)));
        assert_eq!(verity.parent(2, 0), None);
    }

    #[test]
    fn damage_is_refused() {
        let good = descriptor(5000);
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            Verity::decode(&bytes, 5000, 4096).unwrap_err().to_string()
        };
        assert!(refused(&|b| b.truncate(255)).contains("255 bytes"));
        assert!(refused(&|b| b.resize(16_385, 0)).contains("16385 bytes"));
        assert!(refused(&|b| b[0] = 2).contains("version 2"));
        assert!(refused(&|b| b[1] = 3).contains("algorithm 3"));
        assert!(refused(&|b| b[2] = 9).contains("2^9"));
        assert!(refused(&|b| b[2] = 13).contains("2^13"));
        assert!(refused(&|b| b[3] = 33).contains("33 bytes"));
        assert!(refused(&|b| b[4] = 1).contains("signature of 1"));
        assert!(refused(&|b| b[8] = 1).contains("in a file of 5000"));
        assert!(refused(&|b| b[0xff] = 1).contains("reserved"));
        let huge = u64::MAX;
        let mut bytes = descriptor(huge);
        bytes[1..3].copy_from_slice(&[2, 10]);
        let said = Verity::decode(&bytes, huge, 4096).unwrap_err().to_string();
        assert!(said.contains("too many levels"), "{said}");
    }

    #[test]
    fn hashes_cover_salt_and_block() {
        let mut bytes = descriptor(4096);
        bytes[3] = 5;
        bytes[SALT..SALT + 5].copy_from_slice(b"salty");
        let mut padded = [0; 64];
        padded[..5].copy_from_slice(b"salty");
        let block = [7; 4096];
        let hash = Sha256::new().chain_update(padded).chain_update(block).finalize();
        bytes[0x10..0x30].copy_from_slice(&hash);
        let verity = Verity::decode(&bytes, 4096, 4096).unwrap();
        assert!(verity.matches(&block, 0, None));
        assert!(!verity.matches(&[8; 4096], 0, None));
        let mut parent = vec![0; 4096];
        parent[3 * 32..4 * 32].copy_from_slice(&hash);
        assert!(verity.matches(&block, 131, Some(&parent)));
        assert!(!verity.matches(&block, 130, Some(&parent)));
        assert!(!verity.matches(&block, 131, Some(&[])));
    }
}
