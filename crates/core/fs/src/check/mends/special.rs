//! Reserved inodes, the root directory, and the MMP block.

use syncline_ondisk::RoCompatFeatures;
use syncline_ondisk::bytes::{put_le16, put_le32};
use syncline_ondisk::inode::S_IFREG;
use syncline_ondisk::mmp::{MMP_SEQ_CLEAN, Mmp};
use syncline_ondisk::superblock::ROOT_INO;

use super::Mender;
use crate::check::Step;
use crate::check::kinds as k;

impl Mender<'_, '_> {
    pub(super) fn mend_special(&mut self) -> Step {
        if self.mend_bad_blocks()? {
            return Ok(());
        }
        for finding in self.found(&[k::RESERVED_MODE]) {
            if let Some(ino) = finding.inode {
                self.change(ino, |slot| put_le16(slot, 0, 0))?;
            }
        }
        for finding in self.found(&[k::JOURNAL_UNUSED]) {
            if let Some(ino) = finding.inode {
                self.change(ino, |slot| slot.fill(0))?;
            }
        }
        self.mend_quota_inodes()?;
        self.mend_mmp()?;
        self.mend_resize_inode()?;
        self.mend_orphans()?;
        if self.has(&[k::ROOT]) {
            self.mend_root()?;
        }
        Ok(())
    }

    fn mend_quota_inodes(&mut self) -> Step {
        for finding in self.found(&[k::QUOTA_INODE]) {
            let quotas = self.c.quota_inodes();
            let Some(ino) = finding.inode else {
                // A number that no quota can have.
                for (at, ino) in [0x240, 0x244, 0x26c].into_iter().zip(quotas) {
                    if ino != 0 && (ino > self.c.geo.inodes_count || self.c.is_no_quota(ino)) {
                        self.change_super(|sb| put_le32(sb, at, 0))?;
                    }
                }
                continue;
            };
            if quotas.contains(&ino) && self.c.ro_compat(RoCompatFeatures::QUOTA) {
                self.change(ino, |slot| put_le16(slot, 0, S_IFREG))?;
            } else {
                self.change(ino, |slot| slot.fill(0))?;
            }
        }
        Ok(())
    }

    fn mend_mmp(&mut self) -> Step {
        if !self.has(&[k::MMP]) {
            return Ok(());
        }
        let block = self.c.sb.s_mmp_block;
        let seed = self.c.geo.metadata_csum.then(|| self.c.sb.csum_seed());
        if !self.c.in_volume(block) {
            return Ok(());
        }
        let Some(mut bytes) = self.view(block)? else { return Ok(()) };
        bytes.fill(0);
        put_le32(&mut bytes, 0, syncline_ondisk::mmp::MMP_MAGIC);
        put_le32(&mut bytes, 4, MMP_SEQ_CLEAN);
        let interval = self.c.sb.s_mmp_interval;
        put_le16(&mut bytes, 112, interval);
        if let Ok(mmp) = Mmp::decode(&bytes, None) {
            let _ = mmp.encode_into(&mut bytes, seed);
            self.put(block, bytes);
        }
        Ok(())
    }

    /// A root that is none is made again. What was in it goes to lost+found.
    fn mend_root(&mut self) -> Step {
        let Some(raw) = self.raw(ROOT_INO)? else { return Ok(()) };
        if raw.i_links_count > 0 && !raw.is_dir() {
            return self.clear_inode(ROOT_INO);
        }
        if raw.i_links_count == 0 && !self.new_dir(ROOT_INO, 0o755)? {
            self.slots.remove(&ROOT_INO);
        }
        Ok(())
    }
}
