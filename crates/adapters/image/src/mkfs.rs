//! New images, made by mke2fs: which features a volume should have is its business. A name that
//! ends in `.qcow2` gives a qcow2.
//!
//! With a time given, everything that would differ from run to run (identifier, hash seed, times)
//! is made from it, the size and the label.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::Estimate;
use crate::{ImageError, Result, qcow2};

/// Bytes that a volume needs beside its files: journal, tables, room for a few more.
const SPARE_BYTES: u64 = 24 << 20;
/// mke2fs makes an inode for each of these bytes.
const INODE_BYTES: u64 = 16 << 10;
/// Block size of volumes for trees. mke2fs takes 1 KiB below 512 MiB, in which an attribute or a
/// link's target of 2000 bytes does not fit.
const BLOCK_BYTES: u64 = 4096;
/// Below this a journal of 1024 such blocks would be too much of a volume whose size was given.
const SMALL_BYTES: u64 = 32 << 20;
/// Times that a volume which turned out too small is made again.
const ROUNDS_MAX: u32 = 8;

/// A volume to be made.
#[derive(Clone, Debug, Default)]
pub struct Mkfs {
    /// Size in bytes; that of an existing file or device where it is not given.
    pub size_bytes: Option<u64>,
    /// Name of the volume.
    pub label: Option<String>,
    /// Overwrite an existing file or device.
    pub force: bool,
    /// At least so many inodes.
    pub inodes: Option<u64>,
    /// Time of the volume, seconds since 1970: equal arguments give equal bytes.
    pub time_s: Option<u64>,
    /// More arguments of mke2fs.
    pub more: Vec<OsString>,
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
            self.inodes = Some(inodes);
        }
        self
    }

    /// A larger volume, if the new one has no room for the tree: mke2fs rounds as it likes.
    fn enlarged(&self, path: &Path) -> Result<Option<Mkfs>> {
        let Some((tree, may_grow)) = self.tree else { return Ok(None) };
        let sb = crate::superblock(&*crate::device(path, true)?, path)?;
        let free = sb.s_free_blocks_count.saturating_sub(sb.s_r_blocks_count);
        let bytes =
            tree.bytes.saturating_sub(free.saturating_mul(1024 << sb.s_log_block_size.min(16)));
        let inodes = tree.inodes.saturating_sub(sb.s_free_inodes_count.into());
        if inodes == 0 && (bytes == 0 || !may_grow) {
            return Ok(None);
        }
        let mut next = self.clone();
        if inodes > 0 {
            let had = self.inodes.unwrap_or_else(|| sb.s_inodes_count.into());
            next.inodes = Some(had.saturating_add(inodes + inodes / 8 + 64));
        }
        if may_grow {
            let tables = inodes.saturating_mul(300);
            let more = bytes.saturating_add(bytes / 8).saturating_add(tables + (1 << 20));
            next.size_bytes = self.size_bytes.map(|had| whole(had.saturating_add(more)));
        }
        Ok(Some(next))
    }

    /// Makes the volume.
    ///
    /// # Errors
    /// mke2fs is not there or fails; something is there already; no size.
    pub fn make(&self, path: &Path) -> Result<()> {
        let there = std::fs::metadata(path).ok();
        let empty = there.as_ref().is_none_or(|meta| meta.is_file() && meta.len() == 0);
        if !empty && !self.force {
            let text = "exists and would lose its contents; add --force to overwrite it";
            return Err(ImageError::Failed(text.into()).at(path.display()));
        }
        let program = find("mke2fs").ok_or_else(|| {
            let text = "mke2fs is not installed; install the package e2fsprogs";
            ImageError::Failed(text.into())
        })?;
        if qcow2::is_named(path) {
            return self.make_qcow2(path, there.is_some());
        }
        let plain = there.as_ref().is_none_or(std::fs::Metadata::is_file);
        if there.is_none() && self.size_bytes.is_some() {
            let made = crate::platform::create_private(path, self.mode, true);
            made.map_err(|err| ImageError::host(path, &err))?;
        }
        let mut done = self.make_raw(&program, path, plain, empty);
        let mut making = self.clone();
        for _ in 0..ROUNDS_MAX {
            let larger = done.and_then(|()| making.enlarged(path));
            let Ok(Some(next)) = larger else {
                done = larger.map(drop);
                break;
            };
            making = next;
            done = making.make_raw(&program, path, plain, empty);
        }
        if done.is_err() && there.is_none() {
            // Nothing half-made stays; the first error counts.
            let _ = std::fs::remove_file(path);
        }
        done
    }

    fn make_raw(&self, program: &Path, path: &Path, plain: bool, empty: bool) -> Result<()> {
        match self.size_bytes {
            Some(bytes) if plain => {
                // An old file's blocks are zeros again: equal arguments give equal bytes.
                let made = crate::platform::create_private(path, self.mode, false);
                let made = made.and_then(|file| file.set_len(bytes));
                made.map_err(|err| ImageError::host(path, &err))?;
            }
            None if empty => {
                let text = "the image is new; give its size, as --size 1G";
                return Err(ImageError::Usage(text.into()).at(path.display()));
            }
            _ => {}
        }
        self.run(program, path)
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

    fn run(&self, program: &Path, path: &Path) -> Result<()> {
        let mut command = Command::new(program);
        command.args(["-q", "-F", "-t", "ext4"]);
        if let Some(label) = &self.label {
            command.args(["-L", label]);
        }
        let large = self.size_bytes.is_some_and(|bytes| bytes >= SMALL_BYTES);
        if self.tree.is_some_and(|(_, may_grow)| may_grow || large) {
            command.arg("-b").arg(BLOCK_BYTES.to_string());
        }
        if let Some(inodes) = self.inodes {
            command.arg("-N").arg(inodes.to_string());
        }
        if let Some(time_s) = self.time_s {
            let id = identifier(time_s, self.size_bytes.unwrap_or(0), self.label.as_deref());
            command.args(["-U", &id, "-E", &format!("hash_seed={id}")]);
            command.env("E2FSPROGS_FAKE_TIME", time_s.to_string());
            command.env("SOURCE_DATE_EPOCH", time_s.to_string());
        }
        command.args(&self.more).arg(path);
        let ran = command.output().map_err(|err| ImageError::host(program, &err))?;
        if ran.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ran.stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        let text = format!("mke2fs failed: {}; correct the arguments", said.trim());
        Err(ImageError::Failed(text).at(path.display()))
    }
}

/// In whole MiB.
fn whole(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(1 << 20).unwrap_or(bytes)
}

/// A UUID of version 8 (RFC 9562: made as its maker likes) from what makes the volume.
fn identifier(time_s: u64, size_bytes: u64, label: Option<&str>) -> String {
    let seed = format!("{time_s} {size_bytes} {}", label.unwrap_or_default());
    // FNV-1a, 64 bits, twice.
    let hash = |start: u64| {
        seed.bytes().fold(0xcbf2_9ce4_8422_2325 ^ start, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let bits = u128::from(hash(0)) << 64 | u128::from(hash(0x5bd1_e995));
    let bits = bits & !(0xF << 76) & !(0x3 << 62) | 0x8 << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
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
        let id = identifier(1_700_000_000, 1 << 30, Some("root"));
        assert_eq!((id.len(), &id[8..9], &id[14..15]), (36, "-", "8"));
        assert!("89ab".contains(&id[19..20]), "{id}");
        assert_eq!(id, identifier(1_700_000_000, 1 << 30, Some("root")));
        assert_ne!(id, identifier(1_700_000_001, 1 << 30, Some("root")));
    }
}
