//! Names in encrypted directories as they are shown without the key (`fscrypt_nokey_name`).
//!
//! ```text
//!   base64url, without padding, of: hash u32, minor hash u32, ciphertext, at most 149 bytes
//!                                   [SHA-256 of the rest of a longer ciphertext]
//! ```
//!
//! The hashes are those of the directory's index, 0 where entries are read in the order of blocks.
//! Linux: fs/crypto/fname.c. Tested here and on a kernel in `syncline-fs`.

use sha2::{Digest, Sha256};

use crate::bytes::le32;

/// Bytes of a ciphertext that a shown name has in full.
const FULL_BYTES: usize = 149;
const HASH_BYTES: usize = 8;
const DIGEST_BYTES: usize = 32;
/// Shortest ciphertext of a name.
pub const CIPHERTEXT_BYTES_MIN: usize = 16;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A shown name, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKeyName {
    /// Hash and minor hash of the directory's index.
    pub hash: [u32; 2],
    bytes: Vec<u8>,
    digest: Option<[u8; DIGEST_BYTES]>,
}

impl NoKeyName {
    /// The parts of a shown name. `None`: no name is shown so.
    #[must_use]
    pub fn decode(name: &[u8]) -> Option<Self> {
        let all = from_base64url(name)?;
        let (hash, rest) = all.split_at_checked(HASH_BYTES)?;
        let (bytes, digest) = match rest.len() {
            0 => return None,
            1..=FULL_BYTES => (rest, None),
            _ => {
                let (bytes, digest) = rest.split_at(FULL_BYTES);
                (bytes, Some(digest.try_into().ok()?))
            }
        };
        Some(Self { hash: [le32(hash, 0), le32(hash, 4)], bytes: bytes.to_vec(), digest })
    }

    /// The name in the directory; `None` if it is longer than what is shown.
    #[must_use]
    pub fn ciphertext(&self) -> Option<&[u8]> {
        self.digest.is_none().then_some(&self.bytes)
    }

    /// True if it is the shown name of a ciphertext.
    #[must_use]
    pub fn is_of(&self, ciphertext: &[u8]) -> bool {
        let Some(digest) = &self.digest else { return ciphertext == self.bytes };
        match ciphertext.split_at_checked(FULL_BYTES) {
            Some((full, rest)) if !rest.is_empty() => {
                full == self.bytes && Sha256::digest(rest)[..] == digest[..]
            }
            _ => false,
        }
    }
}

/// The shown name of a ciphertext.
#[must_use]
pub fn encode(hash: [u32; 2], ciphertext: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(HASH_BYTES + FULL_BYTES + DIGEST_BYTES);
    for word in hash {
        all.extend(word.to_le_bytes());
    }
    let (full, rest) = ciphertext.split_at(ciphertext.len().min(FULL_BYTES));
    all.extend(full);
    if !rest.is_empty() {
        all.extend(Sha256::digest(rest));
    }
    to_base64url(&all)
}

/// Letters of the shown name of a ciphertext of `len` bytes.
#[must_use]
pub fn shown_len(len: u64) -> u64 {
    let rest = if len > FULL_BYTES as u64 { DIGEST_BYTES as u64 } else { 0 };
    ((len.min(FULL_BYTES as u64) + rest + HASH_BYTES as u64) * 4).div_ceil(3)
}

fn to_base64url(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity((bytes.len() * 4).div_ceil(3));
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for nth in 0..=chunk.len() {
            let letter = (word >> (18 - 6 * nth) & 63) as usize;
            text.push(LETTERS.get(letter).copied().unwrap_or(b'A'));
        }
    }
    text
}

/// `None`: a letter that is none, a length that cannot be, or bits behind the last byte.
fn from_base64url(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let mut word = 0u32;
        for letter in chunk {
            word = word << 6 | LETTERS.iter().position(|known| known == letter)? as u32;
        }
        let len = chunk.len() * 6 / 8;
        let spare = chunk.len() * 6 % 8;
        if len == 0 || word & ((1 << spare) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice((word >> spare << (8 * (4 - len))).to_be_bytes().get(..len)?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_that_of_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], &b""[..]),
            (b"f", b"Zg"),
            (b"fo", b"Zm8"),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg"),
            (b"\xff\xfe\xfb", b"__77"),
        ] {
            assert_eq!(to_base64url(bytes), text);
            assert_eq!(from_base64url(text).unwrap(), bytes);
        }
        for wrong in [&b"Z"[..], b"Zg==", b"Zh", b"Zm9vY", b"Zm+v", b"\xc3\xa4aa"] {
            assert_eq!(from_base64url(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_of_every_length_come_back() {
        for len in 16..=255 {
            let ciphertext: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let shown = encode([0x1234_5678, 9], &ciphertext);
            assert!(shown.len() <= 252 && shown.len() as u64 == shown_len(len));
            let name = NoKeyName::decode(&shown).unwrap();
            assert_eq!(name.hash, [0x1234_5678, 9]);
            assert_eq!(name.ciphertext(), (len <= 149).then_some(&ciphertext[..]));
            assert!(name.is_of(&ciphertext), "{len}");
            let mut other = ciphertext.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!name.is_of(&other) && !name.is_of(&ciphertext[1..]), "{len}");
        }
        assert_eq!(NoKeyName::decode(&to_base64url(&[1; 8])), None);
        assert_eq!(NoKeyName::decode(&to_base64url(&[1; 188])), None);
        assert_eq!(NoKeyName::decode(&to_base64url(&[1; 190])), None);
    }
}
