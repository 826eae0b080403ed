//! Digests: `sha256:HEX` and `sha512:HEX`, checked while the bytes are read.

use std::fmt::{self, Display, Write};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest as _, Sha256, Sha512};

use super::{damaged, unsupported};
use crate::Result;

/// A digest whose hexadecimal digits have been checked, so that it is a safe file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    algorithm: &'static str,
    hex: String,
}

/// Names of algorithms, and the digits of their digests.
const ALGORITHMS: [(&str, usize); 2] = [("sha256", 64), ("sha512", 128)];

impl Digest {
    pub(super) fn parse(text: &str) -> Result<Digest> {
        let (name, hex) = text.split_once(':').unwrap_or_default();
        let Some((algorithm, digits)) = ALGORITHMS.into_iter().find(|known| known.0 == name) else {
            let shown = text.escape_debug();
            return Err(unsupported(format!(
                "the digest `{shown}` is neither sha256 nor sha512; copy the image with skopeo"
            )));
        };
        if hex.len() != digits || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(damaged(format!("`{}` is no digest", text.escape_debug())));
        }
        Ok(Digest { algorithm, hex: hex.to_owned() })
    }

    /// The path of its blob in a layout.
    pub(super) fn path(&self) -> Vec<u8> {
        format!("blobs/{}/{}", self.algorithm, self.hex).into_bytes()
    }

    /// The digest that a path of a blob, or the name of a configuration, has in it.
    pub(super) fn of_path(path: &str) -> Option<Digest> {
        let name = path.strip_prefix("blobs/sha256/").unwrap_or(path);
        Digest::parse(&format!("sha256:{}", name.strip_suffix(".json").unwrap_or(name))).ok()
    }

    fn hasher(&self) -> Hasher {
        match self.algorithm {
            "sha512" => Hasher::Sha512(Sha512::new()),
            _ => Hasher::Sha256(Sha256::new()),
        }
    }

    /// Fails if these are not its bytes.
    pub(super) fn check(&self, bytes: &[u8], what: &str) -> Result<()> {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        match hasher.hex() == self.hex {
            true => Ok(()),
            false => Err(damaged(format!("{what} {self} has another digest"))),
        }
    }
}

impl Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.algorithm, self.hex)
    }
}

enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn hex(self) -> String {
        let bytes = match self {
            Hasher::Sha256(hasher) => hasher.finalize().to_vec(),
            Hasher::Sha512(hasher) => hasher.finalize().to_vec(),
        };
        bytes.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// Bytes whose digest is checked at their end.
pub(super) struct Checked<R> {
    from: R,
    expected: Digest,
    /// None behind the end.
    hasher: Option<Hasher>,
    /// Owner of the bytes, for the error: "its", "its uncompressed".
    what: &'static str,
    verified: Arc<AtomicBool>,
}

impl<R: Read> Checked<R> {
    pub(super) fn new(from: R, expected: Digest, what: &'static str) -> Checked<R> {
        let hasher = Some(expected.hasher());
        Checked { from, expected, hasher, what, verified: Arc::default() }
    }

    /// True once the end was read and the digest is right.
    pub(super) fn verified(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.verified)
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        if read > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(into.get(..read).unwrap_or_default());
            }
        } else if !into.is_empty() {
            if let Some(hasher) = self.hasher.take() {
                if hasher.hex() != self.expected.hex {
                    let text = format!("{} digest is not {}", self.what, self.expected);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                self.verified.store(true, Ordering::Relaxed);
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn digests_are_hexadecimal_and_of_known_algorithms() {
        let empty = Digest::parse(EMPTY).unwrap();
        assert_eq!((empty.to_string(), empty.check(b"", "it").is_ok()), (EMPTY.to_owned(), true));
        assert!(empty.check(b"x", "it").is_err());
        let upper = EMPTY.to_uppercase().replace("SHA", "sha");
        for bad in ["", "sha256", "sha256:", "md5:00", "sha256:../../etc", &upper, &EMPTY[..70]] {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Digest::of_path(&format!("{}.json", &EMPTY[7..])), Some(empty.clone()));
        assert_eq!(Digest::of_path(&format!("blobs/sha256/{}", &EMPTY[7..])), Some(empty));
        assert_eq!(Digest::of_path("config.json"), None);
    }

    #[test]
    fn other_bytes_fail_at_their_end() {
        let mut text = String::new();
        let digest = Digest::parse(EMPTY).unwrap();
        let mut right = Checked::new(&b""[..], digest.clone(), "its");
        assert!(right.read_to_string(&mut text).is_ok() && right.verified.load(Ordering::Relaxed));
        let mut wrong = Checked::new(&b"a"[..], digest, "its");
        let err = wrong.read_to_string(&mut text).unwrap_err();
        assert!(err.to_string().starts_with("its digest is not sha256:e3b0"), "{err}");
        assert!(!wrong.verified.load(Ordering::Relaxed));
    }
}
