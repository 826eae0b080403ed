//! The features and the defaults that a type, a use and a size give.

use syncline_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures};

use super::options::{FsType, Options, invalid};
use crate::error::{FsError, Result};

/// The three feature words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) compat: CompatFeatures,
    pub(super) incompat: IncompatFeatures,
    pub(super) ro_compat: RoCompatFeatures,
}

/// Features of all types, then those that each type adds.
const BASE: &str = "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
const EXT3: &str = "has_journal";
const EXT4: &str = "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize";
/// Features that are made.
const MADE: &str = "has_journal,ext_attr,resize_inode,dir_index,sparse_super2,fast_commit,\
     stable_inodes,orphan_file,filetype,meta_bg,extent,64bit,flex_bg,ea_inode,inline_data,\
     large_dir,metadata_csum_seed,casefold,sparse_super,large_file,huge_file,uninit_bg,dir_nlink,\
     extra_isize,metadata_csum,project";

impl Features {
    /// The features of the type, changed by `-O`.
    pub(super) fn of(options: &Options) -> Result<Self> {
        let mut set = Self {
            compat: CompatFeatures::default(),
            incompat: IncompatFeatures::default(),
            ro_compat: RoCompatFeatures::default(),
        };
        set.edit(BASE)?;
        match options.fs_type {
            FsType::Ext2 => {}
            FsType::Ext3 => set.edit(EXT3)?,
            FsType::Ext4 => set.edit(EXT4)?,
        }
        set.edit(&options.features)?;
        if options.encoding {
            set.incompat.insert(IncompatFeatures::CASEFOLD);
        }
        if options.strict_encoding.is_some() && !set.incompat.contains(IncompatFeatures::CASEFOLD) {
            return invalid("encoding_flags needs an encoding; add -E encoding=utf8".to_owned());
        }
        if set.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
            set.ro_compat.remove(RoCompatFeatures::GDT_CSUM);
        }
        Ok(set)
    }

    fn edit(&mut self, text: &str) -> Result<()> {
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let (name, on) = match part.strip_prefix(['^', '-']) {
                Some(name) => (name, false),
                None => (part.strip_prefix('+').unwrap_or(part), true),
            };
            let name = if name == "extents" { "extent" } else { name };
            if name == "none" {
                let (compat, incompat) = Default::default();
                *self = Self { compat, incompat, ro_compat: RoCompatFeatures::default() };
                continue;
            }
            let bit = |names: &[(u32, &str)]| {
                names.iter().find(|(_, known)| *known == name).map_or(0, |(bit, _)| *bit)
            };
            let compat = CompatFeatures::from_bits(bit(CompatFeatures::NAMES));
            let incompat = IncompatFeatures::from_bits(bit(IncompatFeatures::NAMES));
            let ro_compat = RoCompatFeatures::from_bits(bit(RoCompatFeatures::NAMES));
            if compat.is_empty() && incompat.is_empty() && ro_compat.is_empty() {
                return invalid(format!("{name} is not a feature of ext4; correct -O"));
            }
            if !on {
                self.compat.remove(compat);
                self.incompat.remove(incompat);
                self.ro_compat.remove(ro_compat);
                continue;
            }
            if !MADE.split(',').any(|made| made == name) {
                let text = format!("the feature {name} is not made here; use mke2fs -O {name}");
                return Err(FsError::Unsupported(text));
            }
            self.compat.insert(compat);
            self.incompat.insert(incompat);
            self.ro_compat.insert(ro_compat);
        }
        Ok(())
    }
}

/// Defaults that depend on the use or the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) block_bytes: u32,
    pub(super) bytes_per_inode: u32,
    pub(super) inode_bytes: u32,
}

impl Usage {
    /// The usage types of `-T`, or that of the size: as the mke2fs.conf that comes with mke2fs.
    pub(super) fn of(options: &Options, size_bytes: u64) -> Result<Self> {
        const MIB: u64 = 1 << 20;
        const TIB: u64 = 1 << 40;
        let by_size = match size_bytes {
            size if size < 3 * MIB => "floppy",
            size if size < 512 * MIB => "small",
            size if size < 4 * TIB => "default",
            size if size < 16 * TIB => "big",
            _ => "huge",
        };
        let mut usage = Self { block_bytes: 4096, bytes_per_inode: 16384, inode_bytes: 256 };
        for name in options.usage.as_deref().unwrap_or(by_size).split(',') {
            match name {
                "" | "default" => {}
                "floppy" => (usage.block_bytes, usage.bytes_per_inode) = (1024, 8192),
                "small" => (usage.block_bytes, usage.bytes_per_inode) = (1024, 4096),
                "big" => usage.bytes_per_inode = 32768,
                "huge" => usage.bytes_per_inode = 65536,
                "news" => usage.bytes_per_inode = 4096,
                "largefile" => (usage.block_bytes, usage.bytes_per_inode) = (4096, 1 << 20),
                "largefile4" => (usage.block_bytes, usage.bytes_per_inode) = (4096, 4 << 20),
                _ => {
                    let known = "floppy, small, big, huge, news, largefile, largefile4, default";
                    return invalid(format!("{name} is not a usage type; take one of {known}"));
                }
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_not_made_are_refused_by_name() {
        for name in ["bigalloc", "mmp", "quota", "encrypt", "verity", "journal_dev"] {
            let options = Options { features: name.to_owned(), ..Options::default() };
            let err = Features::of(&options).unwrap_err();
            assert_eq!(err.errno(), 95);
            assert!(err.to_string().contains(name), "{err}");
        }
        let options = Options { features: "nothing".to_owned(), ..Options::default() };
        assert!(Features::of(&options).unwrap_err().to_string().contains("nothing"));
    }

    #[test]
    fn features_are_edited_in_order() {
        let options = Options { features: "none,extents,^filetype".into(), ..Options::default() };
        let set = Features::of(&options).unwrap();
        assert_eq!((set.compat.bits(), set.ro_compat.bits()), (0, 0));
        assert_eq!(set.incompat, IncompatFeatures::EXTENTS);
        let set = Features::of(&Options::default()).unwrap();
        let bits = (set.compat.bits(), set.incompat.bits(), set.ro_compat.bits());
        assert_eq!(bits, (0x3c, 0x2c2, 0x46b));
    }
}
