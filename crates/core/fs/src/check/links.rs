//! Names against inodes: every file has a name, every count is right, every directory is below the
//! root.

use syncline_ondisk::RoCompatFeatures;
use syncline_ondisk::dir::file_type;
use syncline_ondisk::superblock::ROOT_INO;

use super::marks::Known;
use super::{Checker, Step};

impl Checker<'_> {
    /// Pass 4.
    pub(super) fn check_links(&mut self) -> Step {
        self.tick("links", 0, 1)?;
        self.check_orphans();
        self.check_parents();
        self.check_reachable();
        let geo = &self.vol.geo;
        let wrong: Vec<(u32, Known)> = self
            .inodes
            .used(geo)
            .filter(|(_, known)| !known.system && known.file_type != 0)
            .filter(|(_, known)| known.refs != u32::from(known.links))
            .collect();
        let nlink = self.sb.s_feature_ro_compat.contains(RoCompatFeatures::DIR_NLINK);
        for (ino, known) in wrong {
            let Known { links, refs, .. } = known;
            if links == 1 && refs == 0 && self.holds_value(ino) {
                continue;
            }
            let is_dir = known.file_type == file_type::DIR;
            // A removed directory still names itself, and its parent, until it is freed.
            if is_dir && links == 0 && self.orphans.contains(&ino) {
                continue;
            }
            // "More than fit" (`dir_nlink`).
            if is_dir && links == 1 && nlink {
                continue;
            }
            let what = if refs == 0 && links > 0 {
                format!("has {links} links and no name")
            } else {
                format!("has {links} links and {refs} names")
            };
            self.note(Some(ino), None, what);
        }
        self.tick("links", 1, 1)
    }

    fn check_orphans(&mut self) {
        let free: Vec<u32> = self
            .orphans
            .iter()
            .filter(|ino| !self.inodes.get(&self.vol.geo, **ino).used)
            .copied()
            .collect();
        for ino in free {
            self.note(Some(ino), None, "an orphan that is not in use");
        }
    }

    fn check_parents(&mut self) {
        let wrong: Vec<(u32, String)> = self
            .dirs
            .iter()
            .filter(|(ino, _)| !self.orphans.contains(ino))
            .filter_map(|(ino, dir)| {
                let parent = if *ino == ROOT_INO { ROOT_INO } else { dir.parent };
                if parent == 0 {
                    return Some((*ino, "a directory that is in no directory".to_owned()));
                }
                let bad = dir.dotdot != 0 && dir.dotdot != parent;
                let what = format!("`..` is inode {}, it is in inode {parent}", dir.dotdot);
                bad.then_some((*ino, what))
            })
            .collect();
        for (ino, what) in wrong {
            self.note(Some(ino), None, what);
        }
        if !self.dirs.contains_key(&ROOT_INO) {
            self.note(Some(ROOT_INO), None, "there is no root directory");
        }
    }

    /// Follows parents to the root; what comes back to itself is a cycle.
    fn check_reachable(&mut self) {
        // Walks share what they found, so each directory is passed once.
        let mut seen = std::collections::BTreeMap::from([(ROOT_INO, 0_u32)]);
        let mut cycles = Vec::new();
        for (nth, start) in (1..).zip(self.dirs.keys()) {
            let mut at = *start;
            loop {
                match seen.get(&at) {
                    Some(walk) if *walk == nth => {
                        cycles.push(at);
                        break;
                    }
                    Some(_) => break,
                    None => {}
                }
                seen.insert(at, nth);
                match self.dirs.get(&at) {
                    Some(dir) if dir.parent != 0 => at = dir.parent,
                    _ => break,
                }
            }
        }
        for ino in cycles {
            self.note(Some(ino), None, "a directory that is below itself");
        }
    }
}
