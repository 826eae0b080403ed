//! System calls, and what paths and file names are made of, that differ between Linux, macOS and
//! Windows.

#[cfg(not(any(unix, windows)))]
mod other;
#[cfg(not(unix))]
mod ownerless;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(not(any(unix, windows)))]
pub(crate) use other::*;
#[cfg(not(unix))]
pub use ownerless::user;
#[cfg(not(unix))]
pub(crate) use ownerless::*;
#[cfg(unix)]
pub use unix::user;
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

#[cfg(any(unix, windows))]
use std::fs::File;
use std::io;
#[cfg(any(unix, windows))]
use std::path::PathBuf;

/// Bytes that are read at any place: those of a file, or of what a program has instead.
pub trait ReadAt: Send + Sync {
    /// Fills a buffer from a place.
    ///
    /// # Errors
    /// The read failed; the bytes end before.
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;
}

/// A path of this system.
#[cfg(any(unix, windows))]
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(os_string(bytes.to_vec()))
}

/// Reports whether a path leads to a directory, through links too.
#[cfg(any(unix, windows))]
pub(crate) fn is_dir(path: &[u8]) -> bool {
    path_of(path).is_dir()
}

#[cfg(any(unix, windows))]
impl ReadAt for File {
    fn read_exact_at(&self, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
        while !into.is_empty() {
            match read_at(self, into, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    into = into.get_mut(n..).unwrap_or_default();
                    at += n as u64;
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }
}

/// Reports whether a name of an image is one of Windows, and names a file in its own directory: no
/// `\` or `:` leads elsewhere, and it is not a device.
#[cfg(any(windows, test))]
pub(crate) fn is_windows_name(name: &[u8]) -> bool {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "COM", "LPT"];
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_ascii_uppercase();
    let device = DEVICES.iter().any(|device| match stem.strip_prefix(device) {
        Some(rest) if matches!(*device, "COM" | "LPT") => rest.chars().count() == 1,
        Some(rest) => rest.is_empty(),
        None => false,
    });
    let wrong = |c: char| c < ' ' || r#"\/:*?"<>|"#.contains(c);
    !device && !name.is_empty() && !name.contains(wrong) && !name.ends_with(['.', ' '])
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_on_windows_are_none() {
        for good in ["a", "note.txt", ".profile", "console", "com10", "lpt", "ä b"] {
            assert!(is_windows_name(good.as_bytes()), "{good}");
        }
        let bad = [
            "", "..", r"..\x", r"a\b", "C:x", "a:stream", "nul", "NUL.txt", "com1", "a ", "a.",
            "a?",
        ];
        for bad in bad {
            assert!(!is_windows_name(bad.as_bytes()), "{bad}");
        }
        assert!(!is_windows_name(b"\xff") && !is_windows_name(b"a\n"));
    }

    #[test]
    fn a_file_that_ends_early_is_an_error() {
        let mut file = tempfile();
        io::Write::write_all(&mut file, b"abcdef").unwrap();
        let mut four = [0; 4];
        ReadAt::read_exact_at(&file, &mut four, 2).unwrap();
        assert_eq!(&four, b"cdef");
        let early = ReadAt::read_exact_at(&file, &mut four, 3).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::UnexpectedEof);
    }

    fn tempfile() -> File {
        use rustix::fs::{MemfdFlags, memfd_create};
        memfd_create("read_exact_at", MemfdFlags::CLOEXEC).unwrap().into()
    }
}
