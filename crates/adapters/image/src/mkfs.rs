//! New images. The file system is that of [`syncline_fs::mkfs`]; here are its file or device, its
//! time and its identity. A name that ends in `.qcow2` gives a qcow2.
//!
//! Promises
//! - Options that are refused change nothing. What is there is kept without `force`.
//! - If writing fails, a new file is removed, and an old file or device holds no file system.
//! - With a time given, everything that would differ from run to run (identifier, hash seed, times)
//!   is made from it, the size and the label.
//!
//! Tested in `tests/it/mkfs.rs` and `cli/tests`.

use std::fs::Metadata;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use syncline_device::{BlockDevice, Clock, FileDevice, FileOptions, WallClock};
use syncline_fs::FsError;
use syncline_fs::build::Size;
use syncline_fs::mkfs::{Options, Plan};

use crate::error::sentence;
use crate::{ImageError, Result, qcow2};

/// Block size of volumes for trees. Volumes below 512 MiB have 1 KiB otherwise, in which an
/// attribute or a link's target of 2000 bytes does not fit.
const BLOCK_BYTES: u32 = 4096;
/// Below this a journal of 1024 such blocks would be too much of a volume whose size was given.
const SMALL_BYTES: u64 = 32 << 20;

/// A hash seed that is not given.
const NO_SEED: [u8; 16] = [0; 16];

/// Identity of a new volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// From time, size and label if a time is given, random otherwise.
    #[default]
    Any,
    /// Random.
    Random,
    /// Sorted by the time of this machine (version 7 of RFC 9562).
    Time,
    /// This one; all zeros are none.
    Given([u8; 16]),
}

/// A volume to be made.
#[derive(Clone, Debug, Default)]
pub struct Mkfs {
    /// Size in bytes; that of an existing file or device where it is not given.
    pub size_bytes: Option<u64>,
    /// Overwrite an existing file or device.
    pub force: bool,
    /// Time of the volume, seconds since 1970: equal arguments give equal bytes.
    pub time_s: Option<u64>,
    /// Identity of the volume.
    pub identity: Identity,
    /// Options of the file system. Time, identity and state of the device are set here, and the
    /// hash seed if it is zero.
    pub format: Options,
    /// Permissions of a new file; for its owner only where they are not given.
    pub mode: Option<u32>,
}

impl Mkfs {
    /// Lays the volume out, and its size in bytes.
    ///
    /// # Errors
    /// Options that are refused.
    pub fn plan(&self, path: &Path) -> Result<(Plan, u64)> {
        let size_bytes = self.size_of(path)?;
        let plan = Plan::new(&self.options(size_bytes), size_bytes);
        Ok((plan.map_err(|err| refused(err, path))?, size_bytes))
    }

    fn size_of(&self, path: &Path) -> Result<u64> {
        if let Some(bytes) = self.size_bytes {
            return Ok(bytes);
        }
        let bytes = match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => crate::files::raw(path, true)?.geometry().size_bytes,
            Err(_) => 0,
        };
        if bytes == 0 {
            let text = "the image is new; give its size, as --size 1G";
            return Err(ImageError::Usage(text.into()).at(path.display()));
        }
        Ok(bytes)
    }

    fn options(&self, size_bytes: u64) -> Options {
        let mut options = self.format.clone();
        options.time_s = self.time();
        (options.uuid, options.hash_seed) = self.identity(options.time_s, size_bytes);
        // Files are made empty first.
        options.zeroed |= options.discard;
        options
    }

    /// The options for a volume with a tree in it, whose identity is made when it is filled.
    pub(crate) fn tree_options(&self, size: Size) -> Options {
        let mut options = Options { time_s: self.time(), zeroed: true, ..self.format.clone() };
        if !matches!(size, Size::Bytes(bytes) if bytes < SMALL_BYTES) {
            options.block_bytes.get_or_insert(BLOCK_BYTES);
        }
        options
    }

    fn time(&self) -> u64 {
        self.time_s.unwrap_or_else(|| WallClock::new().now_ns() / 1_000_000_000)
    }

    /// Identifier and hash seed. `bytes`: its size, or that of the contents.
    pub(crate) fn identity(&self, time_s: u64, bytes: u64) -> ([u8; 16], [u8; 16]) {
        let made = self.time_s.map(|_| identifier(time_s, bytes, &self.format.label));
        let uuid = match (self.identity, made) {
            (Identity::Given(id), _) => id,
            (Identity::Any, Some(made)) => made,
            (Identity::Time, _) => {
                let now_ms = WallClock::new().now_ns() / 1_000_000;
                version(u128::from(now_ms) << 80 | random() >> 48, 7)
            }
            _ => version(random(), 4),
        };
        let seed = match self.format.hash_seed {
            NO_SEED => made.unwrap_or_else(|| version(random(), 4)),
            given => given,
        };
        (uuid, seed)
    }

    /// Makes the volume.
    ///
    /// # Errors
    /// Options that are refused; something is there already; no size; the host fails.
    pub fn make(&self, path: &Path) -> Result<()> {
        let there = std::fs::metadata(path).ok();
        let is_empty =
            |meta: &Metadata| meta.is_file() && (meta.len() == 0 || crate::platform::is_hole(path));
        if !there.as_ref().is_none_or(is_empty) && !self.force {
            let text = "exists and would lose its contents; add --force to overwrite it";
            return Err(ImageError::Failed(text.into()).at(path.display()));
        }
        if qcow2::is_named(path) {
            return self.make_qcow2(path, there.is_some());
        }
        if there.as_ref().is_some_and(|meta| !meta.is_file()) {
            return self.make_on_device(path);
        }
        let (plan, size_bytes) = self.plan(path)?;
        if there.is_some() {
            // Neither a program nor the kernel may have open what loses its contents.
            drop(crate::files::raw(path, false)?);
        }
        let made = crate::platform::create_private(path, self.mode, there.is_none());
        let file = made.map_err(|err| ImageError::host(path, &err))?;
        let sized = file.set_len(size_bytes);
        drop(file);
        let done = sized.map_err(|err| ImageError::host(path, &err)).and_then(|()| {
            let device = FileDevice::open_new(path, FileOptions::default())?;
            plan.write(&device).map_err(|err| failed(err, path))
        });
        if done.is_err() && there.is_none() {
            // Nothing half-made stays; the first error counts.
            let _ = std::fs::remove_file(path);
        }
        done
    }

    fn make_on_device(&self, path: &Path) -> Result<()> {
        let device = crate::files::raw(path, false)?;
        let size_bytes = device.geometry().size_bytes;
        let asked = self.size_bytes.unwrap_or(size_bytes);
        if asked > size_bytes {
            let text = format!("the device has {size_bytes} bytes, less than --size; lower it");
            return Err(ImageError::Failed(text).at(path.display()));
        }
        let mut options = self.options(asked);
        options.zeroed = self.format.zeroed;
        let plan = Plan::new(&options, asked).map_err(|err| refused(err, path))?;
        plan.write(&device).map_err(|err| failed(err, path))
    }

    /// Makes a raw image beside `path`, and a qcow2 of it, which takes the name at last.
    fn make_qcow2(&self, path: &Path, there: bool) -> Result<()> {
        if self.size_bytes.is_none() {
            let text = "a new qcow2 needs the size of its disk, as --size 1G";
            return Err(ImageError::Usage(text.into()).at(path.display()));
        }
        self.packed(path, there, |raw| Mkfs { force: false, ..self.clone() }.make(raw))
    }

    /// Has a raw image made beside `path`, and makes a qcow2 of it.
    pub(crate) fn packed<T>(
        &self,
        path: &Path,
        there: bool,
        make: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        if there && std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
            // Nobody may have open what is replaced.
            drop(crate::files::raw(path, false)?);
        }
        let beside = |kind: &str| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!(".{name}.{}.{kind}", std::process::id()))
        };
        let (raw, packed) = (beside("raw"), beside("new"));
        let made = make(&raw).and_then(|made| {
            qcow2::pack(&raw, &packed, self.mode)?;
            std::fs::rename(&packed, path).map_err(|err| ImageError::host(path, &err))?;
            Ok(made)
        });
        for left in [&raw, &packed] {
            // Removed already, or never made.
            let _ = std::fs::remove_file(left);
        }
        let shown = path.display().to_string();
        made.map_err(|err| {
            let err = err.naming(&raw.display().to_string(), &shown);
            err.naming(&packed.display().to_string(), &shown)
        })
    }
}

/// Options that are refused, with the exit code of mke2fs.
fn refused(err: FsError, path: &Path) -> ImageError {
    let text = match err {
        FsError::Invalid(text) | FsError::Unsupported(text) => text,
        other => return ImageError::from(other).at(path.display()),
    };
    ImageError::Failed(text).at(path.display())
}

/// A device that failed holds no volume to recover.
pub(crate) fn failed(err: FsError, path: &Path) -> ImageError {
    match err {
        FsError::Io(err) => {
            let text = format!(
                "{}; no file system was made; look at the device or make room",
                sentence(&err.to_string())
            );
            ImageError::Failed(text).at(path.display())
        }
        other => refused(other, path),
    }
}

/// Bits of this system's random source, by the seeds of hash tables.
fn random() -> u128 {
    let word = || std::hash::RandomState::new().build_hasher().finish();
    u128::from(word()) << 64 | u128::from(word())
}

/// A UUID of a version (RFC 9562) from these bits.
fn version(bits: u128, version: u128) -> [u8; 16] {
    (bits & !(0xF << 76) & !(0x3 << 62) | version << 76 | 0x2 << 62).to_be_bytes()
}

/// A UUID of version 8 (made as its maker likes) from what makes the volume.
fn identifier(time_s: u64, size_bytes: u64, label: &[u8]) -> [u8; 16] {
    let seed = [format!("{time_s} {size_bytes} ").as_bytes(), label].concat();
    // FNV-1a, 64 bits, twice.
    let hash = |start: u64| {
        seed.iter().fold(0xcbf2_9ce4_8422_2325 ^ start, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    version(u128::from(hash(0)) << 64 | u128::from(hash(0x5bd1_e995)), 8)
}

/// A system program, which may be outside of a plain user's path.
pub fn find(name: &str) -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    return syncline_device::find_program(name, &syncline_device::SBIN);
    #[cfg(not(target_os = "linux"))]
    {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_uuids_of_what_makes_the_volume() {
        let id = identifier(1_700_000_000, 1 << 30, b"root");
        assert_eq!((id[6] >> 4, id[8] >> 6), (8, 2));
        assert_eq!(id, identifier(1_700_000_000, 1 << 30, b"root"));
        assert_ne!(id, identifier(1_700_000_001, 1 << 30, b"root"));
        assert_ne!(version(random(), 4), version(random(), 4));
    }
}
