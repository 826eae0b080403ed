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

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use syncline_device::{BlockDevice, Clock, FileDevice, FileOptions, WallClock};
use syncline_fs::FsError;
use syncline_fs::mkfs::{Options, Plan};

use crate::archive::Estimate;
use crate::{ImageError, Result, qcow2};

/// Bytes that a volume needs beside its files: journal, tables, room for a few more.
const SPARE_BYTES: u64 = 24 << 20;
/// There is an inode for each of these bytes.
const INODE_BYTES: u64 = 16 << 10;
/// Block size of volumes for trees. Volumes below 512 MiB have 1 KiB otherwise, in which an
/// attribute or a link's target of 2000 bytes does not fit.
const BLOCK_BYTES: u32 = 4096;
/// Below this a journal of 1024 such blocks would be too much of a volume whose size was given.
const SMALL_BYTES: u64 = 32 << 20;
/// Times that a volume which is too small is laid out again.
const ROUNDS_MAX: u32 = 8;

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
    /// The tree that has to find room, and whether the size may change for it: [`Mkfs::for_tree`].
    pub tree: Option<(Estimate, bool)>,
}

impl Mkfs {
    /// Size and inodes for a tree.
    #[must_use]
    pub fn for_tree(mut self, tree: Estimate) -> Mkfs {
        let inodes = tree.inodes.saturating_add(tree.inodes / 64 + 64);
        // Tables and bitmaps grow with the volume: a thirty-second part, and the inodes' 256 bytes.
        let parts = [tree.bytes, tree.bytes / 32, inodes.saturating_mul(256), SPARE_BYTES];
        let bytes = parts.into_iter().fold(0, u64::saturating_add);
        self.tree = Some((tree, self.size_bytes.is_none()));
        let size = *self.size_bytes.get_or_insert_with(|| whole(bytes));
        if inodes > size / INODE_BYTES {
            self.format.inodes = Some(inodes);
        }
        self
    }

    /// A larger volume, if this one has no room for the tree.
    fn enlarged(&self, plan: &Plan) -> Option<Mkfs> {
        let (tree, may_grow) = self.tree?;
        let sb = plan.superblock();
        let free = sb.s_free_blocks_count.saturating_sub(sb.s_r_blocks_count);
        let bytes =
            tree.bytes.saturating_sub(free.saturating_mul(plan.geometry().block_size as u64));
        let inodes = tree.inodes.saturating_sub(sb.s_free_inodes_count.into());
        if inodes == 0 && (bytes == 0 || !may_grow) {
            return None;
        }
        let mut next = self.clone();
        if inodes > 0 {
            let had = self.format.inodes.unwrap_or_else(|| sb.s_inodes_count.into());
            next.format.inodes = Some(had.saturating_add(inodes + inodes / 8 + 64));
        }
        if may_grow {
            let tables = inodes.saturating_mul(300);
            let more = bytes.saturating_add(bytes / 8).saturating_add(tables + (1 << 20));
            next.size_bytes = self.size_bytes.map(|had| whole(had.saturating_add(more)));
        }
        Some(next)
    }

    /// Lays the volume out, enlarged until the tree has room, and its size in bytes.
    ///
    /// # Errors
    /// Options that are refused.
    pub fn plan(&self, path: &Path) -> Result<(Plan, u64)> {
        let mut making = self.clone();
        let mut rounds = 0;
        loop {
            let size_bytes = making.size_of(path)?;
            let options = making.options(size_bytes)?;
            let plan = Plan::new(&options, size_bytes).map_err(|err| refused(err, path))?;
            rounds += 1;
            match making.enlarged(&plan).filter(|_| rounds < ROUNDS_MAX) {
                Some(next) => making = next,
                None => return Ok((plan, size_bytes)),
            }
        }
    }

    fn size_of(&self, path: &Path) -> Result<u64> {
        if let Some(bytes) = self.size_bytes {
            return Ok(bytes);
        }
        let bytes = match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => crate::image::raw(path, true)?.geometry().size_bytes,
            Err(_) => 0,
        };
        if bytes == 0 {
            let text = "the image is new; give its size, as --size 1G";
            return Err(ImageError::Usage(text.into()).at(path.display()));
        }
        Ok(bytes)
    }

    fn options(&self, size_bytes: u64) -> Result<Options> {
        let now_ns = WallClock::new().now_ns();
        let mut options = self.format.clone();
        options.time_s = self.time_s.unwrap_or(now_ns / 1_000_000_000);
        let made = self.time_s.map(|time_s| identifier(time_s, size_bytes, &options.label));
        options.uuid = match (self.identity, made) {
            (Identity::Given(id), _) => id,
            (Identity::Any, Some(made)) => made,
            (Identity::Time, _) => {
                version(u128::from(now_ns / 1_000_000) << 80 | random() >> 48, 7)
            }
            _ => version(random(), 4),
        };
        if options.hash_seed == [0; 16] {
            options.hash_seed = made.unwrap_or_else(|| version(random(), 4));
        }
        // Files are made empty first.
        options.zeroed |= options.discard;
        let large = size_bytes >= SMALL_BYTES;
        if self.tree.is_some_and(|(_, may_grow)| may_grow || large) {
            options.block_bytes.get_or_insert(BLOCK_BYTES);
        }
        Ok(options)
    }

    /// Makes the volume.
    ///
    /// # Errors
    /// Options that are refused; something is there already; no size; the host fails.
    pub fn make(&self, path: &Path) -> Result<()> {
        let there = std::fs::metadata(path).ok();
        let empty = there.as_ref().is_none_or(|meta| meta.is_file() && meta.len() == 0);
        if !empty && !self.force {
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
            // Nobody may have open what loses its contents.
            drop(crate::image::raw(path, false)?);
        }
        let made = crate::platform::create_private(path, self.mode, there.is_none());
        let file = made.map_err(|err| ImageError::host(path, &err))?;
        let sized = file.set_len(size_bytes);
        drop(file);
        let done = sized.map_err(|err| ImageError::host(path, &err)).and_then(|()| {
            let device = FileDevice::open(path, FileOptions::default())?;
            plan.write(&device).map_err(|err| failed(err, path))
        });
        if done.is_err() && there.is_none() {
            // Nothing half-made stays; the first error counts.
            let _ = std::fs::remove_file(path);
        }
        done
    }

    fn make_on_device(&self, path: &Path) -> Result<()> {
        let device = crate::image::raw(path, false)?;
        let size_bytes = device.geometry().size_bytes;
        let asked = self.size_bytes.unwrap_or(size_bytes);
        if asked > size_bytes {
            let text = format!("the device has {size_bytes} bytes, less than --size; lower it");
            return Err(ImageError::Failed(text).at(path.display()));
        }
        let mut options = self.options(asked)?;
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
        if there && std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
            // Nobody may have open what is replaced.
            drop(crate::image::raw(path, false)?);
        }
        let beside = |kind: &str| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!(".{name}.{}.{kind}", std::process::id()))
        };
        let (raw, packed) = (beside("raw"), beside("new"));
        let made = Mkfs { force: false, ..self.clone() }
            .make(&raw)
            .and_then(|()| qcow2::pack(&raw, &packed, self.mode))
            .and_then(|()| {
                std::fs::rename(&packed, path).map_err(|err| ImageError::host(path, &err))
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
fn failed(err: FsError, path: &Path) -> ImageError {
    match err {
        FsError::Io(err) => {
            let text = format!("{err}; no file system was made; look at the device or make room");
            ImageError::Failed(text).at(path.display())
        }
        other => refused(other, path),
    }
}

/// In whole MiB.
fn whole(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(1 << 20).unwrap_or(bytes)
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
