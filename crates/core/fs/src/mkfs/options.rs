//! The options of mkfs, with the names and the syntax that mke2fs has for them.
//!
//! Texts (`-E`, `-J`, and `-O` and `-T` in [`super::features`]) are parsed here, so that every
//! adapter takes the same ones. Nothing is ignored: an option that is not made is refused with its
//! name. Tested below and in `tests/it/mkfs.rs`.

use crate::error::{FsError, Result};

/// Type of the file system: the features that it starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsType {
    /// Block maps, no journal.
    Ext2,
    /// Block maps and a journal.
    Ext3,
    /// The default: extents, checksums, 64 bits.
    #[default]
    Ext4,
}

/// A number of blocks, or of bytes where a unit was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Blocks of the file system.
    Blocks(u64),
    /// Bytes.
    Bytes(u64),
}

impl Amount {
    /// Parses a number of blocks, or a size with s, K, M, G or T.
    ///
    /// # Errors
    /// Not such a number.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let count: u64 = digits.parse().ok()?;
        let unit = match text.get(digits.len()..)? {
            "" | "b" => return Some(Self::Blocks(count)),
            "s" | "S" => 1 << 9,
            "k" | "K" => 1 << 10,
            "m" | "M" => 1 << 20,
            "g" | "G" => 1 << 30,
            "t" | "T" => 1 << 40,
            _ => return None,
        };
        count.checked_mul(unit).map(Self::Bytes)
    }

    /// In whole blocks.
    pub(super) fn blocks(self, block_bytes: u64) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Bytes(bytes) => bytes / block_bytes,
        }
    }
}

/// A file system to be made. `None` takes what mke2fs takes, from the built-in usage types.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `-t`.
    pub fs_type: FsType,
    /// `-T`: usage types, separated by commas; by the size where it is not given.
    pub usage: Option<String>,
    /// `-O`: features, separated by commas; `^name` removes one, `none` all.
    pub features: String,
    /// `-b`: bytes of a block.
    pub block_bytes: Option<u32>,
    /// `-N`: at least so many inodes.
    pub inodes: Option<u64>,
    /// `-i`: an inode for so many bytes.
    pub bytes_per_inode: Option<u32>,
    /// `-I`: bytes of an inode.
    pub inode_bytes: Option<u32>,
    /// `-m`: part of the blocks that is reserved for root, in percent.
    pub reserved_percent: f64,
    /// `-g`: blocks of a group.
    pub blocks_per_group: Option<u32>,
    /// `-G`: groups of a flexible group.
    pub flex_groups: Option<u32>,
    /// `-J size=`: MiB of the journal.
    pub journal_mib: Option<u32>,
    /// `-J fast_commit_size=`: KiB for fast commits.
    pub fast_commit_kib: Option<u32>,
    /// `-J location=`: first block of the journal, about.
    pub journal_location: Option<Amount>,
    /// `-L`: name of the volume, at most 16 bytes.
    pub label: Vec<u8>,
    /// `-M`: directory of the last mount, at most 64 bytes.
    pub last_mounted: Vec<u8>,
    /// `-e`: action on errors, 1 continue, 2 remount read-only, 3 panic.
    pub errors: u16,
    /// `-E stride=`: blocks of a RAID chunk.
    pub stride: u16,
    /// `-E stripe_width=`: blocks of a RAID stripe.
    pub stripe_width: u32,
    /// `-E lazy_itable_init=`: the kernel zeroes inode tables after the first mount.
    pub lazy_itable_init: bool,
    /// `-E lazy_journal_init=`: the journal keeps the old bytes of the device.
    pub lazy_journal_init: bool,
    /// `-E packed_meta_blocks=`: bitmaps, inode tables and journal at the start of the device.
    pub packed_meta_blocks: bool,
    /// `-E resize=`: size up to which the volume can grow while it is mounted.
    pub resize: Option<Amount>,
    /// `-E num_backup_sb=`: backups of the superblock with `sparse_super2`, at most 2.
    pub backup_superblocks: u8,
    /// `-E orphan_file_size=`.
    pub orphan_file: Option<Amount>,
    /// `-E root_owner=`: user and group of the root directory.
    pub root_owner: (u32, u32),
    /// `-E encoding=utf8`: directories can fold case, as with `-O casefold`.
    pub encoding: bool,
    /// `-E encoding_flags=strict`: names that fold case must be valid.
    pub strict_encoding: Option<bool>,
    /// `-E discard`: the device is told first that nothing on it is needed.
    pub discard: bool,
    /// `-E desc_size=`: bytes of a group descriptor with `64bit`.
    pub desc_bytes: Option<u16>,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Time of the file system, seconds since 1970.
    pub time_s: u64,
    /// The whole device reads as zeros: nothing has to be zeroed.
    pub zeroed: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs_type: FsType::Ext4,
            usage: None,
            features: String::new(),
            block_bytes: None,
            inodes: None,
            bytes_per_inode: None,
            inode_bytes: None,
            reserved_percent: 5.0,
            blocks_per_group: None,
            flex_groups: None,
            journal_mib: None,
            fast_commit_kib: None,
            journal_location: None,
            label: Vec::new(),
            last_mounted: Vec::new(),
            errors: 1,
            stride: 0,
            stripe_width: 0,
            lazy_itable_init: true,
            lazy_journal_init: false,
            packed_meta_blocks: false,
            resize: None,
            backup_superblocks: 2,
            orphan_file: None,
            root_owner: (0, 0),
            encoding: false,
            strict_encoding: None,
            discard: true,
            desc_bytes: None,
            uuid: [0; 16],
            hash_seed: [0; 16],
            time_s: 0,
            zeroed: false,
        }
    }
}

fn is_block_size(bytes: u32) -> bool {
    (1024..=65536).contains(&bytes) && bytes.is_power_of_two()
}

pub(super) fn invalid<T>(text: String) -> Result<T> {
    Err(FsError::Invalid(text))
}

/// The value of an option that needs one.
fn number<T: std::str::FromStr>(name: &str, value: Option<&str>) -> Result<T> {
    match value.and_then(|value| value.parse().ok()) {
        Some(number) => Ok(number),
        None => invalid(format!("{name} needs a number in range, as {name}=1")),
    }
}

/// An option that is on without a value, and with any number but 0.
fn switch(name: &str, value: Option<&str>) -> Result<bool> {
    Ok(value.is_none() || number::<u32>(name, value)? != 0)
}

fn amount(name: &str, value: Option<&str>) -> Result<Option<Amount>> {
    match value.and_then(Amount::parse) {
        Some(amount) => Ok(Some(amount)),
        None => invalid(format!("{name} needs blocks or a size, as {name}=64M")),
    }
}

fn parts(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| match part.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (part, None),
    })
}

/// Parses a UUID in its usual form.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let places = [8, 13, 18, 23];
    let dashes = text.match_indices('-').map(|(at, _)| at);
    let digits = text.replace('-', "");
    if text.len() != 36 || !dashes.eq(places) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

impl Options {
    /// Takes the options of `-E`.
    ///
    /// # Errors
    /// Invalid: an unknown option or a value out of range. Unsupported: one that is not made.
    pub fn set_extended(&mut self, text: &str) -> Result<()> {
        for (name, value) in parts(text) {
            match name {
                "stride" => self.stride = number(name, value)?,
                "stripe_width" | "stripe-width" => self.stripe_width = number(name, value)?,
                "lazy_itable_init" => self.lazy_itable_init = switch(name, value)?,
                "lazy_journal_init" => self.lazy_journal_init = switch(name, value)?,
                "packed_meta_blocks" => self.packed_meta_blocks = switch(name, value)?,
                "resize" => self.resize = amount(name, value)?,
                "orphan_file_size" => self.orphan_file = amount(name, value)?,
                "num_backup_sb" => self.backup_superblocks = number(name, value)?,
                "desc_size" | "desc-size" => self.desc_bytes = Some(number(name, value)?),
                "hash_seed" => self.hash_seed = seed(value)?,
                "root_owner" => self.root_owner = owner(value)?,
                "encoding" if matches!(value, Some("utf8" | "utf8-12.1")) => self.encoding = true,
                "encoding" => return invalid("the encoding is utf8; correct it".to_owned()),
                "encoding_flags" => self.strict_encoding = Some(is_strict(value)?),
                "discard" => self.discard = true,
                "nodiscard" => self.discard = false,
                "assume_storage_prezeroed" => self.zeroed |= switch(name, value)?,
                "quotatype"
                | "mmp_update_interval"
                | "android_sparse"
                | "offset"
                | "test_fs"
                | "no_copy_xattrs" => {
                    let text = format!("-E {name} is not made here; make the image with mke2fs");
                    return Err(FsError::Unsupported(text));
                }
                _ => return invalid(format!("-E {name} is not an option of mkfs; remove it")),
            }
        }
        if self.backup_superblocks > 2 {
            return invalid("num_backup_sb is 0, 1 or 2; correct it".to_owned());
        }
        Ok(())
    }

    /// Takes the options of `-J`.
    ///
    /// # Errors
    /// As [`Options::set_extended`].
    pub fn set_journal(&mut self, text: &str) -> Result<()> {
        for (name, value) in parts(text) {
            match name {
                "size" => self.journal_mib = Some(number(name, value)?),
                "fast_commit_size" => self.fast_commit_kib = Some(number(name, value)?),
                "location" => self.journal_location = amount(name, value)?,
                "device" => {
                    let text = "a journal on another device is not made here; use mke2fs -J device";
                    return Err(FsError::Unsupported(text.to_owned()));
                }
                _ => return invalid(format!("-J {name} is not an option of mkfs; remove it")),
            }
        }
        Ok(())
    }

    /// Checks what does not depend on the size of the device.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(bytes) = self.block_bytes.filter(|bytes| !is_block_size(*bytes)) {
            return invalid(format!("block size {bytes} is not a power of two in 1024..=65536"));
        }
        if !(0.0..=50.0).contains(&self.reserved_percent) {
            let percent = self.reserved_percent;
            return invalid(format!("{percent} % reserved blocks are not in 0..=50"));
        }
        let ratios = 1024..=65536 * 1024;
        if let Some(bytes) = self.bytes_per_inode.filter(|bytes| !ratios.contains(bytes)) {
            return invalid(format!("{bytes} bytes per inode are not in 1024..=67108864"));
        }
        if let Some(groups) = self.flex_groups.filter(|groups| !groups.is_power_of_two()) {
            return invalid(format!("{groups} groups of a flexible group are not a power of two"));
        }
        if self.label.len() > 16 {
            return invalid("the label is longer than 16 bytes; shorten it".to_owned());
        }
        if self.last_mounted.len() > 64 {
            return invalid("the directory of -M is longer than 64 bytes; shorten it".to_owned());
        }
        Ok(())
    }
}

fn seed(value: Option<&str>) -> Result<[u8; 16]> {
    match value.and_then(parse_uuid) {
        Some(seed) => Ok(seed),
        None => invalid("hash_seed needs a UUID; correct it".to_owned()),
    }
}

fn owner(value: Option<&str>) -> Result<(u32, u32)> {
    let numbers = value.and_then(|value| value.split_once(':'));
    let numbers = numbers.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    match numbers {
        Some(owner) => Ok(owner),
        None => invalid("root_owner needs two numbers, as root_owner=0:0".to_owned()),
    }
}

/// Flags of an encoding, as mke2fs takes them: joined by `-`, the last one counts.
fn is_strict(value: Option<&str>) -> Result<bool> {
    let mut is_strict = false;
    for flag in value.unwrap_or_default().split('-').filter(|flag| !flag.is_empty()) {
        is_strict = match flag {
            "strict" => true,
            "nostrict" => false,
            _ => return invalid(format!("{flag} is no flag of an encoding; take strict")),
        };
    }
    Ok(is_strict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_or_refused_by_name() {
        let mut options = Options::default();
        options
            .set_extended("stride=16,stripe_width=64,lazy_itable_init=0,resize=4G,num_backup_sb=1")
            .unwrap();
        assert_eq!((options.stride, options.stripe_width, options.backup_superblocks), (16, 64, 1));
        assert_eq!(
            (options.resize, options.lazy_itable_init),
            (Some(Amount::Bytes(4 << 30)), false)
        );
        options.set_journal("size=8,location=0").unwrap();
        assert_eq!(options.journal_mib, Some(8));
        for (text, word) in [
            ("stride=x", "stride"),
            ("hash_seed=1", "hash_seed"),
            ("encoding=ascii", "utf8"),
            ("encoding_flags=loose", "loose"),
            ("num_backup_sb=3", "num_backup_sb"),
            ("root_owner=1", "root_owner"),
            ("quotatype=usrquota", "quotatype"),
            ("speed=9", "speed"),
        ] {
            let err = Options::default().set_extended(text).unwrap_err().to_string();
            assert!(err.contains(word), "{err}");
        }
    }

    #[test]
    fn uuids_have_one_form() {
        let id = parse_uuid("5c1e1f5e-0000-4000-8000-0000000000ff").unwrap();
        assert_eq!((id[0], id[15]), (0x5c, 0xff));
        for bad in
            ["", "5c1e1f5e0000-4000-8000-0000000000ff00", "5c1e1f5e-0000-4000-8000-00000000+0ff"]
        {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }
}
