//! Directories: blocks, index, entries, and the inodes that entries name.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use syncline_ondisk::dir::{Dirent, Entries, file_type};
use syncline_ondisk::htree;
use syncline_ondisk::superblock::ROOT_INO;

use super::index::{Index, Role};
use super::{Checker, Step};
use crate::inode::iget::iget_unlinked;
use crate::names::dir::dots;
use crate::names::dir::live::View;
use crate::names::dir::store::{BlockKind, DirRead};

impl Checker<'_> {
    /// Pass 3.
    pub(super) fn check_dirs(&mut self) -> Step {
        let all: Vec<u32> = self.dirs.keys().copied().collect();
        let total = all.len() as u64;
        for (done, ino) in (0..).zip(all) {
            self.tick("directories", done, total)?;
            if self.inodes.get(&self.vol.geo, ino).links == 0 {
                continue;
            }
            self.check_dir(ino)?;
        }
        Ok(())
    }

    fn check_dir(&mut self, ino: u32) -> Step {
        let vol = self.vol;
        let found = self.report.findings.len();
        let inode = iget_unlinked(vol, ino);
        let Some(inode) = self.keep(inode, Some(ino), None)? else {
            // The slot was looked at before: what is wrong with it is already noted.
            self.report.findings.truncate(found);
            return Ok(());
        };
        let st = inode.state.read();
        let view = View::new(vol, &inode, &st);
        let Some(view) = self.keep(view, Some(ino), None)? else { return Ok(()) };
        if view.blocks() == 0 {
            return Ok(());
        }
        self.check_dots(ino, &view)?;
        let index = if view.indexed() { self.walk_index(ino, &view)? } else { None };
        if view.indexed() && index.is_none() {
            return Ok(());
        }
        // A size beyond the volume is one finding, not one for each block of it.
        if u64::from(view.blocks()) > vol.geo.blocks_count {
            let what = format!("the directory claims {} blocks", view.blocks());
            self.note(Some(ino), None, what);
            return Ok(());
        }
        let mut names = Vec::new();
        for lblk in 0..view.blocks() {
            let role = match &index {
                None => None,
                Some(index) => match index.roles.get(&lblk) {
                    Some(Role::Node) => continue,
                    Some(leaf) => Some((*leaf, index)),
                    None => {
                        self.note(Some(ino), None, format!("block {lblk} is not in the index"));
                        continue;
                    }
                },
            };
            self.check_leaf(ino, &view, lblk, role, &mut names)?;
        }
        self.check_repeats(ino, &view, index.as_ref(), names)
    }

    fn check_dots(&mut self, ino: u32, view: &View<'_>) -> Step {
        let Some([dot, dotdot]) = self.keep(dots(view), Some(ino), None)? else { return Ok(()) };
        if dot.ino != ino {
            self.note(Some(ino), None, format!("`.` is inode {}", dot.ino));
        }
        for target in [dot.ino, dotdot.ino] {
            if let Some(known) = self.inodes.at(&self.vol.geo, target) {
                known.refs = known.refs.saturating_add(1);
            }
        }
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.dotdot = dotdot.ino;
        }
        Ok(())
    }

    fn check_leaf(
        &mut self,
        ino: u32,
        view: &View<'_>,
        lblk: u32,
        role: Option<(Role, &Index)>,
        names: &mut Vec<u64>,
    ) -> Step {
        let block = view.block(lblk, BlockKind::Leaf);
        let Some(bytes) = self.keep(block, Some(ino), None)? else { return Ok(()) };
        for (nth, entry) in Entries::new(&bytes, &view.params().format).enumerate() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(err) => return self.note_bad(err, Some(ino), None),
            };
            if entry.inode == 0 || lblk == 0 && nth < 2 {
                continue;
            }
            if let Some((role, index)) = role {
                let hash = htree::hash(&index.hash, entry.name).major;
                if !role.holds(hash) {
                    let what = format!("{} is in the wrong leaf {lblk}", shown(entry.name));
                    self.note(Some(ino), None, what);
                }
            }
            names.push(name_hash(entry.name));
            self.check_entry(ino, &entry);
        }
        Ok(())
    }

    fn check_entry(&mut self, ino: u32, entry: &Dirent<'_>) {
        let geo = &self.vol.geo;
        let (name, target) = (shown(entry.name), entry.inode);
        if !entry.has_valid_name() || entry.name == b"." || entry.name == b".." {
            self.note(Some(ino), None, format!("{name} is no name for an entry"));
        }
        if target == ROOT_INO || target < geo.first_ino {
            let what = format!("{name} is inode {target}, which can have no name");
            return self.note(Some(ino), None, what);
        }
        let known = self.inodes.get(geo, target);
        if !known.used || known.file_type == 0 {
            let what = format!("{name} is inode {target}, which is not in use");
            return self.note(Some(ino), None, what);
        }
        if known.system {
            let what = format!("{name} is inode {target}, which belongs to the file system");
            return self.note(Some(ino), None, what);
        }
        if self.holds_value(target) {
            let what = format!("{name} is inode {target}, which holds the value of an attribute");
            self.note(Some(ino), None, what);
        }
        if entry.file_type != file_type::UNKNOWN && entry.file_type != known.file_type {
            let what = format!(
                "{name} says type {}, inode {target} is of type {}",
                entry.file_type, known.file_type
            );
            self.note(Some(ino), None, what);
        }
        if let Some(known) = self.inodes.at(geo, target) {
            known.refs = known.refs.saturating_add(1);
        }
        let Some(dir) = self.dirs.get_mut(&target) else { return };
        if dir.parent != 0 {
            let what = format!("{name} is directory {target}, which inode {} has, too", dir.parent);
            return self.note(Some(ino), None, what);
        }
        dir.parent = ino;
    }

    /// Names that are there twice. Hashes alone are no proof, so names with equal ones are read
    /// again.
    fn check_repeats(
        &mut self,
        ino: u32,
        view: &View<'_>,
        index: Option<&Index>,
        mut names: Vec<u64>,
    ) -> Step {
        names.sort_unstable();
        let alike: BTreeSet<u64> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        if alike.is_empty() {
            return Ok(());
        }
        let mut counts: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for lblk in 0..view.blocks() {
            if index.is_some_and(|index| index.roles.get(&lblk) == Some(&Role::Node)) {
                continue;
            }
            let Ok(bytes) = view.block(lblk, BlockKind::Leaf) else { continue };
            for (nth, entry) in Entries::new(&bytes, &view.params().format).flatten().enumerate() {
                let counted = entry.inode != 0 && !(lblk == 0 && nth < 2);
                if counted && alike.contains(&name_hash(entry.name)) {
                    *counts.entry(entry.name.to_vec()).or_default() += 1;
                }
            }
        }
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
            self.note(Some(ino), None, format!("{} is there {count} times", shown(&name)));
        }
        Ok(())
    }
}

/// Equal for equal names; without a random seed.
fn name_hash(name: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}
