//! Volume of a simulated run: a new image or a given one.
//!
//! A new image is made by stock mke2fs in a sparse temporary file, with its default features, and
//! with UUID, hash seed and time fixed, so that the same e2fsprogs gives the same bytes and a run
//! repeats exactly. It is loaded once; each run gets a snapshot that shares what it does not
//! change.

use std::path::PathBuf;
use std::process::Command;

use syncline_device::MemoryDevice;

use crate::error::{LabError, Result};

/// The volume UUID of every image made here.
const UUID: &str = "53796e63-6c69-4e65-8000-000000000001";
/// The directory hash seed of every image made here.
const HASH_SEED: &str = "53796e63-6c69-4e65-8000-000000000002";
/// Time for e2fsprogs: 2024-01-01, the start of the virtual clock.
const FAKE_TIME_S: &str = "1704067200";

/// Source of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// Stock mke2fs with default features and 4 KiB blocks.
    Mke2fs {
        /// Size of the volume in bytes.
        size_bytes: u64,
    },
    /// The same with four block groups in a flex group instead of sixteen: so 2 GiB have the flex
    /// groups of 8, and what is spread over them on a phone is spread here. For
    /// [`crate::bench::Aging`].
    ManyFlexGroups {
        /// Size of the volume in bytes.
        size_bytes: u64,
    },
    /// An image file. It is read, never written.
    File(PathBuf),
}

impl Default for ImageSource {
    /// 2 GiB, as the stored kernel figures were measured on.
    fn default() -> Self {
        ImageSource::Mke2fs { size_bytes: 2 << 30 }
    }
}

/// An image in memory, from which runs take their own copy.
#[derive(Debug)]
pub struct Image(MemoryDevice);

impl Image {
    /// Makes or reads the image.
    pub fn load(source: &ImageSource) -> Result<Image> {
        match source {
            ImageSource::File(path) => Ok(Image(MemoryDevice::load(path)?)),
            ImageSource::Mke2fs { size_bytes } => mke2fs(*size_bytes, &[]),
            ImageSource::ManyFlexGroups { size_bytes } => mke2fs(*size_bytes, &["-G", "4"]),
        }
    }

    /// A device of its own for one run. Unchanged content is shared.
    pub fn snapshot(&self) -> MemoryDevice {
        self.0.snapshot()
    }
}

fn mke2fs(size_bytes: u64, more: &[&str]) -> Result<Image> {
    let failed = |err: std::io::Error| LabError::host(std::env::temp_dir(), &err);
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    file.as_file().set_len(size_bytes).map_err(failed)?;
    let extended =
        format!("nodiscard,lazy_itable_init=0,lazy_journal_init=0,hash_seed={HASH_SEED}");
    // mke2fs may be in a directory that is not on the path of a user without privileges.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-U", UUID, "-E", &extended])
        .args(more)
        .arg(file.path())
        .env("PATH", path)
        .env("E2FSPROGS_FAKE_TIME", FAKE_TIME_S)
        .output();
    let made = made.map_err(|err| {
        LabError::Failed(format!("mke2fs: {err}; install e2fsprogs or give an image"))
    })?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).trim().replace('\n', "; ");
        return Err(LabError::Failed(format!("mke2fs: {said}; give an image of your own")));
    }
    Ok(Image(MemoryDevice::load(file.path())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_repeat_and_snapshots_are_apart() {
        let make = || Image::load(&ImageSource::Mke2fs { size_bytes: 16 << 20 }).unwrap();
        let (a, b) = (make(), make());
        assert_eq!(a.snapshot().first_difference(&b.snapshot()), None);
        let copy = a.snapshot();
        copy.write_at(0, &[1]).unwrap();
        assert_eq!(a.snapshot().first_difference(&b.snapshot()), None);
    }

    #[test]
    fn what_mke2fs_refuses_says_what_to_do() {
        let err = Image::load(&ImageSource::Mke2fs { size_bytes: 4096 }).unwrap_err().to_string();
        assert!(err.starts_with("mke2fs: ") && err.ends_with("give an image of your own"), "{err}");
    }
}
