//! CRC-32C (Castagnoli, reflected, inverted before and after), by the processor's instruction.
//!
//! Journals, logs and metadata are summed on every write and read, so this is on the way of each
//! byte. Rejected: `crc-fast`, which multiplies polynomials 512 bits at a time. It is twice as fast
//! on servers with AVX-512, gains nothing on the processors of phones and boards, needs a newer
//! compiler, and adds 0.7 MB of tables for other polynomials.
//!
//! Promises: the same value on every machine. Tested below against known answers, and bit by bit.

pub use crc32c::{crc32c, crc32c_append};

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
