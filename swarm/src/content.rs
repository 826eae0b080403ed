//! Content of a download: random bytes that can be computed at any offset, and their torrent.

use sha1::{Digest, Sha1};
use sha2::Sha256;

/// Name of the file in the torrent.
const NAME: &str = "download";

/// Bytes from a seed, each word from its place alone, so that no peer has to store them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Seed of the bytes.
    pub seed: u64,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// Sebastiano Vigna's splitmix64: the output for the `n`-th state.
fn splitmix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Content {
    /// The bytes from `offset` on.
    pub fn fill(&self, offset: u64, into: &mut [u8]) {
        let mut at = offset;
        let mut left = into;
        while !left.is_empty() {
            let word = splitmix(self.seed, at / 8).to_le_bytes();
            let part = &word[(at % 8) as usize..];
            let len = part.len().min(left.len());
            let (now, rest) = left.split_at_mut(len);
            now.copy_from_slice(&part[..len]);
            left = rest;
            at += len as u64;
        }
    }
}

/// A torrent of one file.
#[derive(Clone, Debug)]
pub struct Torrent {
    /// The file's bytes.
    pub content: Content,
    /// Bytes of a piece; the last one may have fewer.
    pub piece_bytes: u64,
    /// Number of pieces.
    pub pieces: u32,
    /// The `.torrent` file (BEP 3).
    pub file: Vec<u8>,
    /// SHA-1 of its info dictionary.
    pub info_hash: [u8; 20],
    /// SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Torrent {
    /// Makes the torrent; reads all of the content once.
    #[must_use]
    pub fn new(content: Content, piece_bytes: u64) -> Torrent {
        let mut hashes = Vec::new();
        let mut whole = Sha256::new();
        let mut piece = vec![0; usize::try_from(piece_bytes).unwrap_or(usize::MAX)];
        for at in (0..content.size_bytes).step_by(piece.len()) {
            let len = (content.size_bytes - at).min(piece_bytes) as usize;
            content.fill(at, &mut piece[..len]);
            hashes.extend_from_slice(&Sha1::digest(&piece[..len]));
            whole.update(&piece[..len]);
        }
        let pieces = (hashes.len() / 20) as u32;
        // Keys in their order, as bencoding asks.
        let mut info = format!(
            "d6:lengthi{}e4:name{}:{NAME}12:piece lengthi{piece_bytes}e6:pieces{}:",
            content.size_bytes,
            NAME.len(),
            hashes.len()
        )
        .into_bytes();
        info.extend_from_slice(&hashes);
        info.push(b'e');
        let info_hash = Sha1::digest(&info).into();
        let file = [b"d4:info".as_slice(), &info, b"e"].concat();
        let sha256 = hex(&whole.finalize());
        Torrent { content, piece_bytes, pieces, file, info_hash, sha256 }
    }

    /// Name of the file in it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_from_any_place() {
        let content = Content { seed: 7, size_bytes: 100 };
        let mut whole = [0; 100];
        content.fill(0, &mut whole);
        for at in 0..100 {
            let mut rest = vec![0; 100 - at];
            content.fill(at as u64, &mut rest);
            assert_eq!(rest, whole[at..]);
        }
        assert!(whole.iter().filter(|byte| **byte == 0).count() < 8);
    }

    #[test]
    fn a_torrent_as_bytes() {
        let torrent = Torrent::new(Content { seed: 1, size_bytes: 40 << 10 }, 16 << 10);
        let text = String::from_utf8_lossy(&torrent.file);
        assert!(text.starts_with("d4:infod6:lengthi40960e4:name8:download12:piece lengthi16384e"));
        assert!(text.contains("e6:pieces60:") && torrent.file.ends_with(b"ee"));
        assert_eq!(torrent.pieces, 3);
    }
}
