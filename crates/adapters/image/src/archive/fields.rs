//! Numbers in the fields of headers: octal text, or GNU's and star's base 256, which is signed.
//! Tested here.

use super::pax::bad;
use crate::Result;

/// Marks base 256 in the first byte, and its sign.
const BINARY: u8 = 0x80;
const NEGATIVE: u8 = 0x40;

/// The number in a field. Some writers leave fields empty: 0.
pub(super) fn signed(field: &[u8]) -> Result<i64> {
    let wrong = || bad("a field is no number");
    let Some(first) = field.first().copied().filter(|first| first & BINARY != 0) else {
        let text = field.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
        let digit = |value: i64, byte: &u8| match byte {
            b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
            _ => None,
        };
        return text.iter().try_fold(0, digit).ok_or_else(wrong);
    };
    let start: i128 = match first & NEGATIVE {
        0 => i128::from(first & !BINARY),
        _ => i128::from(first) - 256,
    };
    let shifted = |value: i128, byte: &u8| value.checked_mul(256)?.checked_add((*byte).into());
    let value = field.get(1..).unwrap_or_default().iter().try_fold(start, shifted);
    value.and_then(|value| i64::try_from(value).ok()).ok_or_else(wrong)
}

/// As [`signed`], for what cannot be negative.
pub(super) fn unsigned(field: &[u8]) -> Result<u64> {
    u64::try_from(signed(field)?).map_err(|_| bad("a negative number in an unsigned field"))
}

/// As [`unsigned`], for owners and devices.
pub(super) fn narrow(field: &[u8]) -> Result<u32> {
    u32::try_from(unsigned(field)?).map_err(|_| bad("a number of more than 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_and_base_256_with_signs() {
        for (field, value) in [
            (&b"0000644\0"[..], 0o644),
            (b"    644 ", 0o644),
            (b"\0\0\0", 0),
            (b"   ", 0),
            (b"777777777777", 0o7777_7777_7777),
            (b"12\0garbage", 0o12),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], 256),
            (&[0xFF; 12], -1),
            (
                &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFD, 0xF0, 0x5E, 0x00],
                -34_578_944,
            ),
            (&[0xFE, 0x00], -512),
        ] {
            assert_eq!(signed(field).unwrap(), value, "{field:?}");
        }
        assert!(unsigned(&[0xFF; 12]).is_err() && narrow(b"777777777777").is_err());
        let huge = [0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(signed(&huge).is_err() && signed(b"99").is_err() && signed(b"-1").is_err());
        assert!(signed(&[0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
