//! Extended headers: records of `LENGTH KEY=VALUE\n`, the length that of the whole record.

use crate::{ImageError, Result};

/// Keys with their values, in order.
pub(super) type Records = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn bad(why: &str) -> ImageError {
    ImageError::Corrupt(format!("the archive is damaged: {why}; make or copy it again"))
}

/// The records of an extended header.
pub(super) fn decode(mut bytes: &[u8]) -> Result<Records> {
    let mut records = Records::new();
    while !bytes.is_empty() && bytes[0] != 0 {
        let blank = bytes.iter().take(20).position(|byte| *byte == b' ');
        let blank = blank.ok_or_else(|| bad("an extended header without a length"))?;
        let len = number(&bytes[..blank]).and_then(|len| usize::try_from(len).ok());
        let record = len.filter(|len| *len > blank + 1).and_then(|len| bytes.get(..len));
        let record = record.ok_or_else(|| bad("an extended header of a wrong length"))?;
        let body = &record[blank + 1..record.len() - 1];
        let equals = body.iter().position(|byte| *byte == b'=');
        let equals = equals.ok_or_else(|| bad("an extended header without a value"))?;
        records.push((body[..equals].to_vec(), body[equals + 1..].to_vec()));
        bytes = &bytes[record.len()..];
    }
    Ok(records)
}

/// The bytes of records.
pub(super) fn encode(records: &Records) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        // A blank, an equals sign and the line's end; the length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() > len {
            len += 1;
        }
        bytes.extend_from_slice(format!("{len} ").as_bytes());
        bytes.extend_from_slice(key);
        bytes.push(b'=');
        bytes.extend_from_slice(value);
        bytes.push(b'\n');
    }
    bytes
}

/// A decimal number without a sign.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Seconds with a fraction, which may be negative.
pub(super) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanos > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos));
    }
    Some((seconds, nanos))
}

/// As [`time`] reads it.
pub(super) fn time_text((seconds, nanos): (i64, u32)) -> String {
    if seconds >= 0 || nanos == 0 {
        let text = format!("{seconds}.{nanos:09}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let (whole, part) = ((seconds + 1).unsigned_abs(), 1_000_000_000 - nanos);
    format!("-{whole}.{part:09}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_with_any_bytes_go_round() {
        let records: Records = vec![
            (b"mtime".to_vec(), b"1.5".to_vec()),
            (b"SCHILY.xattr.user.x".to_vec(), b"\n=\0 9 a=b\n".to_vec()),
            (b"path".to_vec(), vec![b'a'; 95]),
            (b"p".to_vec(), vec![b'a'; 993]),
        ];
        assert_eq!(decode(&encode(&records)).unwrap(), records);
        assert_eq!(encode(&vec![(b"a".to_vec(), b"b".to_vec())]), b"6 a=b\n");
        for damaged in [&b"99 a=b\n"[..], b"x a=b\n", b"6 ab=\n", b"2 \n", b"7 abcd\n", b"123"] {
            let found = decode(damaged);
            assert!(found.is_err() || damaged == b"6 ab=\n", "{damaged:?}: {found:?}");
        }
    }

    #[test]
    fn times_before_1970_and_fractions() {
        for at in [(0, 0), (1, 5), (1_700_000_000, 123_456_789), (-1, 0), (-2, 500_000_000)] {
            assert_eq!(time(time_text(at).as_bytes()), Some(at), "{}", time_text(at));
        }
        assert_eq!(time(b"1.25"), Some((1, 250_000_000)));
        assert_eq!((time(b"x"), time(b"1.x"), time(b"")), (None, None, None));
    }
}
