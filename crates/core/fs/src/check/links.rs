//! Names against inodes: every file has a name, every count is right, every directory is below the
//! root.

use syncline_ondisk::RoCompatFeatures;
use syncline_ondisk::dir::file_type;
use syncline_ondisk::superblock::ROOT_INO;

use super::kinds::Kind;
use super::known::Known;
use super::report::At;
use super::{Checker, Step, kinds};

/// Most links of a directory that are counted.
pub(super) const LINKS_MAX: u16 = 65_000;

impl Checker<'_> {
    /// Pass 5.
    pub(super) fn check_links(&mut self) -> Step {
        self.tick("links", 0, 1)?;
        self.check_orphans()?;
        self.check_parents();
        self.check_reachable();
        let many = |known: &Known| known.file_type == file_type::DIR && known.refs > LINKS_MAX;
        let has_many = self.inodes.used(&self.geo).any(|(_, known)| many(&known));
        if has_many && !self.ro_compat(RoCompatFeatures::DIR_NLINK) {
            let what = "a directory has more links than are counted, without dir_nlink";
            self.note(kinds::DIR_NLINK, At::NOWHERE, what);
        }
        let wrong: Vec<(u32, Known)> = self
            .inodes
            .used(&self.geo)
            .filter(|(_, known)| !known.system && !known.imagic)
            .filter(|(_, known)| known.refs != known.links)
            .collect();
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
            // "More than fit" (`dir_nlink`), now or earlier.
            if is_dir && links == 1 && (refs > LINKS_MAX || refs > 1 && known.indexed) {
                continue;
            }
            if refs == 0 && links > 0 {
                let what = format!("has {links} links and no name");
                self.note(kinds::UNATTACHED, At::ino(ino), what);
            } else {
                let what = format!("has {links} links and {refs} names");
                self.note(kinds::LINKS, At::ino(ino).right(refs.into()), what);
            }
        }
        self.tick("links", 1, 1)
    }

    fn check_orphans(&mut self) -> Step {
        let free: Vec<u32> = self
            .orphans
            .iter()
            .filter(|ino| !self.inodes.get(&self.geo, **ino).used)
            .copied()
            .collect();
        for ino in free {
            // One that waits for its deletion has a mode; its slot says that it waits.
            if self.read_inode(ino)?.is_none_or(|raw| raw.i_mode == 0) {
                self.note(kinds::ORPHAN_INVALID, At::ino(ino), "an orphan that is not in use");
            }
        }
        Ok(())
    }

    fn check_parents(&mut self) {
        let wrong: Vec<(u32, Kind, String)> = self
            .dirs
            .iter()
            .filter(|(ino, _)| !self.orphans.contains(ino))
            .filter_map(|(ino, dir)| {
                let parent = if *ino == ROOT_INO { ROOT_INO } else { dir.parent };
                if parent == 0 {
                    let what = "a directory that is in no directory".to_owned();
                    return Some((*ino, kinds::DIR_UNCONNECTED, what));
                }
                let bad = dir.dotdot != 0 && dir.dotdot != parent;
                let what = format!("`..` is inode {}, it is in inode {parent}", dir.dotdot);
                bad.then_some((*ino, kinds::DIR_PARENT, what))
            })
            .collect();
        for (ino, kind, what) in wrong {
            self.note(kind, At::ino(ino), what);
        }
        if !self.dirs.contains_key(&ROOT_INO) {
            self.note(kinds::ROOT, At::ino(ROOT_INO), "there is no root directory");
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
            self.note(kinds::DIR_LOOP, At::ino(ino), "a directory that is below itself");
        }
    }
}
