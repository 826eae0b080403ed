//! CRC-32C (Castagnoli, reflected, inverted before and after), as fast as the processor can.
//!
//! Journals, logs and metadata are summed on every write and read, so this is on the way of each
//! byte. Where a processor multiplies polynomials 512 bits at a time (x86-64 with VPCLMULQDQ and
//! AVX-512: servers since 2019) `crc-fast` does twice what the processor's CRC instruction can;
//! everywhere else `crc32c` uses that instruction, or tables. `crc-fast` with narrower
//! multiplication was slower than `crc32c` from 300 bytes to 2 KiB, so it is not used there
//! (`cargo bench -p syncline-base`). A compiler before Rust 1.89 gives it no 512 bits; there 1 KiB
//! takes a third longer than with `crc32c`, 16 KiB as long.
//!
//! The functions are not `#[inline]`: each crate that calls them would have a copy of both loops.
//!
//! Promises: the same value on every machine. Tested below against known answers, and bit by bit.

/// The checksum of `data`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if wide() {
        return crc_fast::crc32_iscsi(data);
    }
    crc32c::crc32c(data)
}

/// The checksum of some bytes and `data` behind them; `crc` is that of those bytes, 0 if none.
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if wide() {
        let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
        let mut digest = crc_fast::Digest::new_with_init_state(algorithm, u64::from(!crc));
        digest.update(data);
        // A checksum of 32 bits.
        return digest.finalize() as u32;
    }
    crc32c::crc32c_append(crc, data)
}

/// True if `crc-fast` is the faster crate on this processor.
#[cfg(target_arch = "x86_64")]
#[inline]
fn wide() -> bool {
    is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512vl")
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_append};

    /// The definition, a bit at a time.
    fn by_bits(crc: u32, data: &[u8]) -> u32 {
        !data.iter().fold(!crc, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 }
            })
        })
    }

    /// RFC 3720, B.4, and the check value of the catalogue of CRCs.
    #[test]
    fn known_answers() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (data, answer) in [
            (b"".as_slice(), 0),
            (b"123456789", 0xE306_9283),
            (&[0; 32], 0x8A91_36AA),
            (&[0xFF; 32], 0x62A8_AB43),
            (&ascending, 0x46DD_794E),
            (&descending, 0x113F_DB5C),
        ] {
            assert_eq!((crc32c(data), crc32c_append(0, data)), (answer, answer));
        }
    }

    /// Every length up to where the widest loops run, at every place in a cache line, in one piece
    /// and in two; and what the other crate says, which is asked on other machines.
    #[test]
    fn every_length_and_place_agrees_with_the_definition() {
        let bytes: Vec<u8> =
            (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for len in (0..1100).chain([2047, 2048, 2049, 4095, 4096, 4097, 4900]) {
            let data = &bytes[len % 64..][..len];
            let crc = by_bits(0, data);
            assert_eq!(crc32c(data), crc, "{len} bytes");
            assert_eq!(::crc32c::crc32c(data), crc, "{len} bytes");
            let (first, second) = data.split_at(len * 5 % 13 * len / 13);
            assert_eq!(crc32c_append(crc32c(first), second), crc, "{len} bytes in two");
            assert_eq!(crc32c_append(!7, data), by_bits(!7, data), "{len} bytes, another start");
        }
    }
}
