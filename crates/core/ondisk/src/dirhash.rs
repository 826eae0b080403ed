//! Directory hashes: legacy, half MD4 and TEA, over signed or unsigned chars.
//!
//! The hash of a name decides its leaf in an htree, so every bit must be as Linux computes it
//! (fs/ext4/hash.c). Whether chars are signed was once the CPU's choice and is now recorded in the
//! superblock's flags. The result's lowest bit is always 0: the index uses it as "continued" mark.
//! Tested in `tests/it/images.rs` against `debugfs -R dx_hash`.

use crate::error::{OndiskError, Result};

/// Hash function of a directory index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// 0: the original hash, signed chars.
    Legacy,
    /// 1: half MD4, signed chars.
    HalfMd4,
    /// 2: TEA, signed chars.
    Tea,
    /// 3: the original hash, unsigned chars.
    LegacyUnsigned,
    /// 4: half MD4, unsigned chars.
    HalfMd4Unsigned,
    /// 5: TEA, unsigned chars.
    TeaUnsigned,
    /// 6: SipHash with a key that is not known here; entries hold the hash of their name
    /// (`encrypt` and `casefold`).
    SipHash,
}

impl HashVersion {
    /// The hash that a root's or superblock's byte means. `unsigned` is the superblock's flag and
    /// applies to the first three. Unsupported: anything else (6 is SipHash, which only encrypted
    /// directories that fold case have).
    pub fn from_disk(version: u8, unsigned: bool) -> Result<Self> {
        Ok(match (version, unsigned) {
            (0, false) => Self::Legacy,
            (1, false) => Self::HalfMd4,
            (2, false) => Self::Tea,
            (0, true) | (3, _) => Self::LegacyUnsigned,
            (1, true) | (4, _) => Self::HalfMd4Unsigned,
            (2, true) | (5, _) => Self::TeaUnsigned,
            (other, _) => {
                return Err(OndiskError::unsupported(
                    format!("directory hash {other}"),
                    "only legacy, half_md4 and tea exist; run `e2fsck -D`",
                ));
            }
        })
    }

    /// The byte for a root or the superblock: 0, 1, 2 or 6.
    #[must_use]
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Legacy | Self::LegacyUnsigned => 0,
            Self::HalfMd4 | Self::HalfMd4Unsigned => 1,
            Self::Tea | Self::TeaUnsigned => 2,
            Self::SipHash => 6,
        }
    }

    fn is_unsigned(self) -> bool {
        matches!(self, Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned)
    }
}

/// Hash and seed of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKind {
    /// Hash function.
    pub version: HashVersion,
    /// `s_hash_seed`; all zero selects the built-in one.
    pub seed: [u32; 4],
}

/// A name's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// Hash that the index compares; bit 0 is clear.
    pub major: u32,
    /// Only orders names within one major hash.
    pub minor: u32,
}

/// Hash of `name` (`ext4fs_dirhash`); 0 for SipHash, which entries hold.
#[must_use]
pub fn hash(kind: &HashKind, name: &[u8]) -> NameHash {
    let unsigned = kind.version.is_unsigned();
    let mut buf = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    if kind.seed != [0; 4] {
        buf = kind.seed;
    }
    let (major, minor) = match kind.version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
        HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
            let mut rest = name;
            while !rest.is_empty() {
                half_md4(&mut buf, &words::<8>(rest, unsigned));
                rest = rest.get(32..).unwrap_or(&[]);
            }
            (buf[1], buf[2])
        }
        HashVersion::Tea | HashVersion::TeaUnsigned => {
            let mut rest = name;
            while !rest.is_empty() {
                tea(&mut buf, &words::<4>(rest, unsigned));
                rest = rest.get(16..).unwrap_or(&[]);
            }
            (buf[0], buf[1])
        }
        HashVersion::SipHash => (0, 0),
    };
    let major = major & !1;
    // 0xfffffffe is readdir's end-of-directory mark.
    NameHash { major: if major == 0xffff_fffe { 0xffff_fffc } else { major }, minor }
}

#[inline]
fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(byte) } else { i32::from(byte as i8) as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut hash0, mut hash1) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let product = widen(*byte, unsigned).wrapping_mul(7_152_373);
        let mut hash = hash1.wrapping_add(hash0 ^ product);
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7fff_ffff);
        }
        hash1 = hash0;
        hash0 = hash;
    }
    hash0 << 1
}

/// The next `4 * N` bytes of a name as words, padded with the length (`str2hashbuf`).
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let pad = length | length << 8;
    let pad = pad | pad << 16;
    let mut out = [pad; N];
    for (word, chunk) in out.iter_mut().zip(rest.chunks(4)) {
        for byte in chunk {
            *word = widen(*byte, unsigned).wrapping_add(*word << 8);
        }
    }
    out
}

fn half_md4(buf: &mut [u32; 4], input: &[u32; 8]) {
    const K2: u32 = 0x5a82_7999;
    const K3: u32 = 0x6ed9_eba1;
    const ROUND1: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    const ROUND2: [usize; 8] = [1, 3, 5, 7, 0, 2, 4, 6];
    const ROUND3: [usize; 8] = [3, 7, 2, 6, 1, 5, 0, 4];
    let f = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let g = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let h = |x: u32, y: u32, z: u32| x ^ y ^ z;

    let mut state = *buf;
    let mut round = |mix: &dyn Fn(u32, u32, u32) -> u32, order, key: u32, shifts: [u32; 4]| {
        let order: [usize; 8] = order;
        for (i, word) in order.into_iter().enumerate() {
            let [a, b, c, d] = state;
            let sum = a
                .wrapping_add(mix(b, c, d))
                .wrapping_add(input[word])
                .wrapping_add(key)
                .rotate_left(shifts[i % 4]);
            // The next step's (a, b, c, d) is this one's (d, a, b, c).
            state = [d, sum, b, c];
        }
    };
    round(&f, ROUND1, 0, [3, 7, 11, 19]);
    round(&g, ROUND2, K2, [3, 5, 9, 13]);
    round(&h, ROUND3, K3, [3, 9, 11, 15]);
    for (word, add) in buf.iter_mut().zip(state) {
        *word = word.wrapping_add(add);
    }
}

fn tea(buf: &mut [u32; 4], input: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [a, b, c, d] = *input;
    let (mut b0, mut b1) = (buf[0], buf[1]);
    let mut sum = 0u32;
    let mix = |x: u32, sum: u32, left: u32, right: u32| {
        (x << 4).wrapping_add(left) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(right)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        b0 = b0.wrapping_add(mix(b1, sum, a, b));
        b1 = b1.wrapping_add(mix(b0, sum, c, d));
    }
    buf[0] = buf[0].wrapping_add(b0);
    buf[1] = buf[1].wrapping_add(b1);
}
