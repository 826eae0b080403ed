//! The three checksums of ext4 and jbd2.
//!
//! | what | polynomial | used by |
//! | --- | --- | --- |
//! | crc32c, raw (no final inversion) | 0x1EDC6F41 reflected | `metadata_csum`, journal v2 and v3 |
//! | CRC-16 (ANSI, reflected) | 0x8005 | group descriptors with `uninit_bg` (`gdt_csum`) |
//! | CRC-32/MPEG-2 | 0x04C11DB7 | journal checksum v1 (`COMPAT_CHECKSUM`) |
//!
//! Linux calls crc32c with a running value that is neither inverted before nor after, so values
//! chain: `crc32c(crc32c(seed, a), b) == crc32c(seed, a ++ b)`.

use std::sync::OnceLock;

use crate::bytes;

/// Linux's `crc32c(seed, data)`: raw, chains.
#[inline]
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !syncline_base::crc32c_append(!seed, data)
}

/// Linux's `crc16(seed, data)` (lib/crc16.c): raw, chains.
#[must_use]
pub fn crc16(seed: u16, data: &[u8]) -> u16 {
    let mut crc = seed;
    for byte in data {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
        }
    }
    crc
}

const CRC32_BE: crc::Crc<u32, crc::Table<16>> =
    crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_MPEG_2);

/// Linux's `crc32_be(seed, data)`; the journal starts it with `!0`. Chains.
#[must_use]
pub fn crc32_be(seed: u32, data: &[u8]) -> u32 {
    static CRC: crc::Crc<u32, crc::Table<16>> = CRC32_BE;
    // `crc` reflects a caller's initial value only for reflected algorithms; MPEG-2 is not one.
    let mut digest = CRC.digest_with_initial(seed);
    digest.update(data);
    digest.finalize()
}

/// Seed of every checksum of an inode and of what it owns: extent blocks, directory blocks, htree
/// nodes, orphan file blocks (`ei->i_csum_seed`).
#[must_use]
pub fn inode_seed(fs_seed: u32, ino: u32, generation: u32) -> u32 {
    crc32c(crc32c(fs_seed, &ino.to_le_bytes()), &generation.to_le_bytes())
}

/// crc32c of `data` as if the four bytes at `field` were zero.
#[must_use]
pub fn crc32c_skipping(seed: u32, data: &[u8], field: usize) -> u32 {
    let end = field.saturating_add(4);
    match (data.get(..field), data.get(end..)) {
        (Some(before), Some(after)) => {
            let crc = crc32c(crc32c(seed, before), &[0; 4]);
            crc32c(crc, after)
        }
        _ => crc32c(seed, data),
    }
}

/// Stores `crc` little-endian in `data` at `field`.
pub fn put_crc(data: &mut [u8], field: usize, crc: u32) {
    bytes::put_le32(data, field, crc);
}

/// Effect of each bit of a four-byte field, with `after` bytes behind it, on a crc32c, in echelon
/// form.
type Basis = [(u32, u32); 32];

/// The [`Basis`] for a field. The first one asked for is kept: that is the superblock's, which is
/// written with every change of the orphan list.
fn basis(after: usize) -> Basis {
    static FIRST: OnceLock<(usize, Basis)> = OnceLock::new();
    let (kept, basis) = FIRST.get_or_init(|| (after, make_basis(after)));
    if *kept == after { *basis } else { make_basis(after) }
}

fn make_basis(after: usize) -> Basis {
    const ZEROS: [u8; 1024] = [0; 1024];
    let mut basis = [(0u32, 0u32); 32];
    for bit in 0..32 {
        let mut effect = crc32c(0, &(1u32 << bit).to_le_bytes());
        let mut left = after;
        while left > 0 {
            let n = left.min(ZEROS.len());
            effect = crc32c(effect, &ZEROS[..n]);
            left -= n;
        }
        let mut bits = 1u32 << bit;
        while effect != 0 {
            let slot = &mut basis[effect.leading_zeros() as usize];
            if slot.0 == 0 {
                *slot = (effect, bits);
                break;
            }
            effect ^= slot.0;
            bits ^= slot.1;
        }
    }
    basis
}

/// Sets the four bytes at `field` so that the crc32c of `data` becomes `target`. A CRC is linear,
/// and any four adjacent bytes reach every value, so there is exactly one answer. False, and
/// nothing changed, if the field is outside of `data`.
pub fn steer_crc32c(seed: u32, data: &mut [u8], field: usize, target: u32) -> bool {
    let Some(after) = field.checked_add(4).and_then(|end| data.len().checked_sub(end)) else {
        return false;
    };
    let basis = basis(after);
    let mut wanted = crc32c(seed, data) ^ target;
    let mut bits = 0;
    while wanted != 0 {
        let (effect, own) = basis[wanted.leading_zeros() as usize];
        if effect == 0 {
            return false;
        }
        wanted ^= effect;
        bits ^= own;
    }
    bytes::put_le32(data, field, bytes::le32(data, field) ^ bits);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_steer_a_crc_anywhere() {
        let mut data = [0x5a_u8; 300];
        for (field, target) in [(0, 0), (7, 0xdead_beef), (296, 1), (100, u32::MAX)] {
            assert!(steer_crc32c(!0, &mut data, field, target));
            assert_eq!(crc32c(!0, &data), target);
        }
        let before = data;
        assert!(steer_crc32c(!0, &mut data, 100, u32::MAX));
        assert_eq!(data, before, "what fits stays");
        assert!(!steer_crc32c(!0, &mut data, 297, 0));
    }

    #[test]
    fn check_values_match_the_catalogue() {
        let check = b"123456789";
        assert_eq!(!crc32c(!0, check), 0xe306_9283, "CRC-32C");
        assert_eq!(crc32_be(!0, check), 0x0376_e6e7, "CRC-32/MPEG-2");
        assert_eq!(crc16(0, check), 0xbb3d, "CRC-16/ARC");
        assert_eq!(crc16(!0, check), 0x4b37, "CRC-16/MODBUS");
    }

    #[test]
    fn values_chain() {
        let (a, b) = (b"12345", b"6789");
        assert_eq!(crc32c(crc32c(7, a), b), crc32c(7, b"123456789"));
        assert_eq!(crc32_be(crc32_be(7, a), b), crc32_be(7, b"123456789"));
        assert_eq!(crc16(crc16(7, a), b), crc16(7, b"123456789"));
    }

    #[test]
    fn skipping_equals_a_zeroed_field() {
        let mut data = [0x5a_u8; 32];
        let crc = crc32c_skipping(1, &data, 8);
        data[8..12].fill(0);
        assert_eq!(crc, crc32c(1, &data));
    }
}
