//! Fields, flags and sizes of inodes.

use syncline_ondisk::bytes::{le16, le32, put_bytes, put_le16, put_le32};
use syncline_ondisk::dir::{DirFormat, Entries};
use syncline_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode, S_IFDIR, flags};
use syncline_ondisk::superblock::RESIZE_INO;
use syncline_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, blockmap, inline};

use super::Mender;
use super::maps::OF_MAPS;
use crate::check::blocks::extent_header;
use crate::check::inodes::{I_BLOCK, IMAGIC, TIMES};
use crate::check::kinds as k;
use crate::check::{Finding, Step};

/// Most links of an inode that is not garbage.
const LINKS_MAX: u16 = 65_000;

/// Findings after which an inode is read in another way: what else was found in it does not count.
pub(super) const TURNS: [k::Kind; 5] =
    [k::EXTENT_FLAG, k::INODE_FLAG, k::INLINE_DATA, k::MODE_OF_DIR, k::EXTRA_ISIZE];

impl Mender<'_, '_> {
    pub(super) fn mend_inodes(&mut self) -> Step {
        self.clear_garbage()?;
        let turned = self.inodes_with(&TURNS);
        for finding in self.found(&[k::EXTENT_FLAG, k::INLINE_DATA]) {
            let is_inline = finding.name == k::INLINE_DATA.name;
            let feature =
                if is_inline { IncompatFeatures::INLINE_DATA } else { IncompatFeatures::EXTENTS };
            if let Some(ino) = finding.inode.filter(|_| !self.c.incompat(feature)) {
                self.mend_inode(ino, &finding)?;
            }
        }
        if !self.blocks.is_empty() {
            // A feature is set: all inodes are read in another way.
            return Ok(());
        }
        for finding in self.errors.clone() {
            let Some(ino) = finding.inode else { continue };
            if ino == 0 || ino > self.c.geo.inodes_count {
                continue;
            }
            let is_counted = super::is_of(&finding, &[k::INODE_CSUM, k::BLOCKS]);
            if ino == RESIZE_INO && !is_counted
                || turned.contains(&ino) && !super::is_of(&finding, &TURNS)
            {
                continue;
            }
            self.mend_inode(ino, &finding)?;
        }
        let ranges = self.c.report.findings.iter().filter(|it| super::is_of(it, &[k::TIME_RANGE]));
        for ino in ranges.filter_map(|finding| finding.inode).collect::<Vec<_>>() {
            self.change(ino, |slot| {
                for (low, extra) in TIMES {
                    let epoch = le32(slot, extra);
                    if slot.len() >= extra + 4 && le32(slot, low) >> 31 == 1 && epoch & 3 == 3 {
                        put_le32(slot, extra, epoch & !3);
                    }
                }
            })?;
        }
        self.mend_xattrs()?;
        self.mend_maps(&turned)
    }

    fn mend_inode(&mut self, ino: u32, finding: &Finding) -> Step {
        let name = finding.name;
        let is = |kinds: &[k::Kind]| kinds.iter().any(|kind| kind.name == name);
        if is(&[k::MODE, k::SPECIAL, k::ENCRYPTION, k::DIR_EMPTY, k::INODE_GARBAGE]) {
            return self.clear_inode(ino);
        } else if is(&[k::SYMLINK]) {
            // Without the blocks that are wrong it may be right.
            let is_torn = self.inodes_with(&OF_MAPS).contains(&ino);
            return if is_torn { Ok(()) } else { self.mend_symlink(ino) };
        } else if is(&[k::NOT_ENCRYPTED]) {
            return self.clear_flags(ino, flags::ENCRYPT);
        } else if is(&[k::INODE_CSUM]) {
            return self.change(ino, |_| {});
        } else if is(&[k::DTIME_SET]) {
            return self.change(ino, |slot| put_le32(slot, 0x14, 0));
        } else if is(&[k::DTIME_MISSING]) {
            let time = self.deletion_time();
            return self.change(ino, |slot| put_le32(slot, 0x14, time));
        } else if is(&[k::MODE_OF_DIR]) {
            return self.change(ino, |slot| {
                let mode = le16(slot, 0) & 0o7777 | S_IFDIR;
                put_le16(slot, 0, mode);
            });
        } else if is(&[k::INODE_FIELD]) {
            return self.mend_fields(ino);
        } else if is(&[k::INODE_FLAG]) {
            return self.mend_flags(ino);
        } else if is(&[k::EXTENT_FLAG]) {
            return self.mend_extent_flag(ino);
        } else if is(&[k::INLINE_DATA]) {
            return self.mend_inline(ino);
        } else if is(&[k::EXTRA_ISIZE]) {
            return self.mend_extra_size(ino);
        } else if is(&[k::SIZE]) {
            let is_cut = self.cut_dir(ino)?;
            return if is_cut { Ok(()) } else { self.mend_size(ino, finding.right) };
        } else if is(&[k::BLOCKS]) {
            return self.mend_block_count(ino, finding.right);
        }
        Ok(())
    }

    /// Clears inodes in blocks of the table of which more than half are no inodes at all.
    fn clear_garbage(&mut self) -> Step {
        let mut wrong: Vec<(u64, u32)> = Vec::new();
        for finding in self.found(&[k::INODE_CSUM]) {
            wrong.extend(finding.block.zip(finding.inode));
        }
        let per_block = self.c.geo.inodes_per_block as usize;
        for inodes in wrong.chunk_by(|one, other| one.0 == other.0) {
            let mut insane = 0;
            for (_, ino) in inodes {
                insane += usize::from(self.raw(*ino)?.is_some_and(|raw| self.is_insane(&raw)));
                self.slots.remove(ino);
            }
            if insane > per_block / 2 {
                for (_, ino) in inodes {
                    self.clear_inode(*ino)?;
                }
            }
        }
        Ok(())
    }

    /// True if the block numbers of an inode are those of no file, or its links are too many.
    fn is_insane(&self, raw: &Inode) -> bool {
        if raw.i_links_count > LINKS_MAX || raw.has_flag(flags::EXTENTS) {
            return raw.i_links_count > LINKS_MAX || extent_header(&raw.i_block).is_err();
        }
        let ea_inode = self.c.incompat(IncompatFeatures::EA_INODE);
        let is_fast = raw.is_fast_symlink(self.c.geo.cluster_bytes(), ea_inode);
        if raw.has_flag(flags::INLINE_DATA) || is_fast {
            return false;
        }
        let blocks = (0..15).filter_map(|at| blockmap::pointer(&raw.i_block, at));
        blocks.filter(|block| u64::from(*block) >= self.c.geo.blocks_count).count() > 0
    }

    /// Cuts blocks behind the size of a directory that are another's, or begin with no entry: one
    /// bit of the length of an extent adds thousands. False: there are none at the end.
    fn cut_dir(&mut self, ino: u32) -> Step<bool> {
        let Some(raw) = self.raw(ino)?.filter(Inode::is_dir) else { return Ok(false) };
        let size = raw.i_size / self.c.geo.block_size as u64;
        if size == 0 || raw.has_flag(flags::INLINE_DATA) {
            return Ok(false);
        }
        let format = DirFormat { tail: false, ..self.c.format };
        let mapped = self.rewalk(ino, &raw)?;
        let blocks: Vec<(u32, u64)> = mapped.runs.blocks().collect();
        let mut end = mapped.end;
        for (lblk, block) in blocks.into_iter().rev().filter(|(lblk, _)| u64::from(*lblk) >= size) {
            let bytes = if self.is_own(block) { self.view(block)? } else { None };
            if bytes
                .is_some_and(|bytes| matches!(Entries::new(&bytes, &format).next(), Some(Ok(_))))
            {
                break;
            }
            end = lblk.into();
        }
        if end < mapped.end {
            self.cut_at(ino, &raw, end)?;
        }
        Ok(end < mapped.end)
    }

    /// A target in the inode with the flag of extents keeps it; another is cleared.
    fn mend_symlink(&mut self, ino: u32) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        let extents = self.c.incompat(IncompatFeatures::EXTENTS) && raw.has_flag(flags::EXTENTS);
        if extents && !crate::check::Checker::has_map(&raw) {
            return self.clear_flags(ino, flags::EXTENTS);
        }
        self.clear_inode(ino)
    }

    fn clear_flags(&mut self, ino: u32, gone: u32) -> Step {
        self.change(ino, |slot| {
            let left = le32(slot, 0x20) & !gone;
            put_le32(slot, 0x20, left);
        })
    }

    /// Fields without a meaning.
    fn mend_fields(&mut self, ino: u32) -> Step {
        let hurd = self.c.sb.s_creator_os == 1;
        let huge = self.c.ro_compat(RoCompatFeatures::HUGE_FILE);
        let (wide, large) = (self.c.sb.is_64bit(), self.c.incompat(IncompatFeatures::LARGEDIR));
        self.change(ino, |slot| {
            put_le32(slot, 0x70, 0);
            if !hurd && !huge {
                put_le16(slot, 0x74, 0);
            }
            if !hurd && !wide {
                put_le16(slot, 0x76, 0);
            }
            if le16(slot, 0) & 0xf000 == S_IFDIR && !large {
                put_le32(slot, 0x6c, 0);
            }
        })
    }

    /// Flags that contradict the type, the features or each other.
    fn mend_flags(&mut self, ino: u32) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        let c = &*self.c;
        let (is_dir, is_file) = (raw.is_dir(), raw.is_file());
        let has_blocks = raw.has_flag(flags::EXTENTS)
            || !raw.has_flag(flags::INLINE_DATA)
            || !c.incompat(IncompatFeatures::INLINE_DATA);
        let mut gone = 0;
        for (flag, is_right) in [
            (flags::CASEFOLD, is_dir && c.incompat(IncompatFeatures::CASEFOLD)),
            (flags::EA_INODE, is_file),
            (IMAGIC, c.compat(CompatFeatures::IMAGIC_INODES)),
            (flags::INDEX, is_dir && has_blocks && c.compat(CompatFeatures::DIR_INDEX)),
        ] {
            gone |= if is_right { 0 } else { flag };
        }
        if raw.has_flag(flags::INLINE_DATA) && raw.has_flag(flags::EXTENTS) {
            let numbers = (0..15).filter_map(|at| blockmap::pointer(&raw.i_block, at));
            let room = c.geo.inode_size.saturating_sub(128 + usize::from(raw.i_extra_isize));
            // Where the size of the extra fields is wrong, the room is not known.
            let fits =
                raw.i_size < 60 + room as u64 || self.inodes_with(&[k::EXTRA_ISIZE]).contains(&ino);
            if !is_file && !is_dir && !raw.is_symlink() {
                gone |= flags::EXTENTS | flags::INLINE_DATA;
            } else if extent_header(&raw.i_block).is_ok() {
                gone |= flags::INLINE_DATA;
            } else if fits {
                gone |= flags::EXTENTS;
            } else if numbers.map(u64::from).all(|block| block < c.geo.blocks_count) {
                gone |= flags::EXTENTS | flags::INLINE_DATA;
            } else {
                return self.clear_inode(ino);
            }
        }
        self.clear_flags(ino, gone)
    }

    /// The flag of extents where the header and the features say something else.
    fn mend_extent_flag(&mut self, ino: u32) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        let is_tree = extent_header(&raw.i_block).is_ok();
        if !raw.has_flag(flags::EXTENTS) {
            // It is set where the header is right; else another mend has cleared it.
            return if !is_tree {
                Ok(())
            } else {
                self.change(ino, |slot| {
                    let all = le32(slot, 0x20) | flags::EXTENTS;
                    put_le32(slot, 0x20, all);
                })
            };
        }
        if !is_tree {
            return self.clear_inode(ino);
        }
        self.set_incompat(IncompatFeatures::EXTENTS)
    }

    /// Data in the inode: without its attribute the file is empty.
    fn mend_inline(&mut self, ino: u32) -> Step {
        if self.raw(ino)?.is_some_and(|raw| raw.has_flag(flags::EXTENTS)) {
            self.mend_flags(ino)?;
        }
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        if !raw.has_flag(flags::INLINE_DATA) {
            return Ok(());
        }
        let Some(slot) = self.slot(ino)? else { return Ok(()) };
        let is_stored = inline::stored(&raw, slot).is_ok();
        if !self.c.incompat(IncompatFeatures::INLINE_DATA) {
            return if is_stored {
                self.set_incompat(IncompatFeatures::INLINE_DATA)
            } else {
                self.clear_inode(ino)
            };
        }
        if is_stored {
            return Ok(());
        }
        self.set_size(ino, 0)?;
        self.change(ino, |slot| slot[I_BLOCK].fill(0))?;
        self.clear_flags(ino, flags::INLINE_DATA)
    }

    fn mend_extra_size(&mut self, ino: u32) -> Step {
        let want = self.c.sb.s_want_extra_isize;
        let most = self.c.geo.inode_size.saturating_sub(GOOD_OLD_INODE_SIZE);
        self.change(ino, |slot| {
            let size = le16(slot, 0x80);
            let fits = (4..=most).contains(&usize::from(size));
            put_le16(slot, 0x80, if fits { size.next_multiple_of(4) } else { want });
        })
    }

    pub(super) fn set_size(&mut self, ino: u32, size: u64) -> Step {
        self.change(ino, |slot| {
            put_le32(slot, 0x04, (size & 0xffff_ffff) as u32);
            put_le32(slot, 0x6c, (size >> 32) as u32);
        })
    }

    fn mend_size(&mut self, ino: u32, right: Option<u64>) -> Step {
        let Some(right) = right else { return Ok(()) };
        self.set_size(ino, right)?;
        let inline = self.raw(ino)?.is_some_and(|raw| raw.has_flag(flags::INLINE_DATA));
        if right == 0 && inline {
            self.change(ino, |slot| put_bytes(slot, I_BLOCK.start, &[0; 60]))?;
            self.clear_flags(ino, flags::INLINE_DATA)?;
        }
        Ok(())
    }

    fn mend_block_count(&mut self, ino: u32, right: Option<u64>) -> Step {
        let huge = self.c.ro_compat(RoCompatFeatures::HUGE_FILE);
        let Some(right) = right else { return Ok(()) };
        self.change(ino, |slot| {
            put_le32(slot, 0x1c, (right & 0xffff_ffff) as u32);
            if huge {
                put_le16(slot, 0x74, (right >> 32 & 0xffff) as u16);
            }
        })
    }
}
