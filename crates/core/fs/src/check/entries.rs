//! Entries of directories, and the inodes that they name.

use syncline_ondisk::bytes::{le16, le32, u8_at};
use syncline_ondisk::dir::{entry_bytes, file_type, rec_len_from_disk};
use syncline_ondisk::superblock::ROOT_INO;

use super::dirs::{Chain, Open, name_hash, shown};
use super::index::Hashes;
use super::report::At;
use super::{Checker, Step, kinds};
use crate::store::dir_format;

const HEADER_BYTES: usize = 8;
/// Bytes of a hash behind a name.
const HASH_BYTES: usize = 8;
/// Further names of directories that are compared with `..`, and steps up from each: they bound
/// memory and time. Of more, the first name counts.
const SECOND_NAMES_MAX: usize = 1 << 16;
const STEPS_MAX: usize = 1024;
/// Shortest encrypted name.
const ENCRYPTED_NAME_MIN: usize = 16;

/// One entry.
struct Entry<'a> {
    name: &'a [u8],
    inode: u32,
    file_type: u8,
    /// Hash that the entry holds.
    hash: u32,
}

impl Checker<'_> {
    /// Checks a chain of entries up to the first that breaks it.
    pub(super) fn check_chain(&mut self, dir: &mut Open, chain: &Chain<'_>) -> Step {
        let (bytes, mut at) = (chain.bytes, chain.start);
        let mut nth = if chain.has_dots { 0 } else { 2 };
        while at < chain.end {
            let extra = if nth > 1 && dir.holds_hashes { HASH_BYTES } else { 0 };
            let left = chain.end - at;
            let rec_len = rec_len_from_disk(le16(bytes, at + 4), self.geo.block_size);
            let name_len = usize::from(u8_at(bytes, at + 6));
            if left < HEADER_BYTES
                || rec_len > left
                || rec_len < entry_bytes(1) + extra
                || rec_len % 4 != 0
                || rec_len < entry_bytes(name_len) + extra
            {
                let what =
                    format!("directory block {}: the entry at byte {at} is broken", chain.lblk);
                self.note(kinds::DIR_CORRUPT, At::ino(dir.ino), what);
                return Ok(());
            }
            let name = bytes.get(at + HEADER_BYTES..at + HEADER_BYTES + name_len).unwrap_or(&[]);
            let entry = Entry {
                name,
                inode: le32(bytes, at),
                file_type: u8_at(bytes, at + 7),
                hash: if extra > 0 { le32(bytes, at + entry_bytes(name_len)) } else { 0 },
            };
            if nth < 2 {
                let after = u8_at(bytes, at + HEADER_BYTES + nth + 1);
                self.check_dot(dir, nth, &entry, after)?;
            } else if entry.inode != 0 {
                self.check_entry(dir, chain, &entry)?;
            }
            nth += 1;
            at += rec_len;
        }
        if chain.has_dots && nth < 2 {
            self.note(kinds::DOTDOT, At::ino(dir.ino), "there is no `..`");
        }
        Ok(())
    }

    /// `.` or `..`; `after` is the byte behind the name.
    fn check_dot(&mut self, dir: &Open, nth: usize, entry: &Entry<'_>, after: u8) -> Step {
        let (kind, want) = [(kinds::DOT, &b"."[..]), (kinds::DOTDOT, &b".."[..])][nth];
        let at = At::ino(dir.ino);
        if entry.inode == 0 || entry.name != want || after != 0 {
            let what = format!("{} is where `{}` belongs", shown(entry.name), shown(want));
            self.note(kind, at, what);
        }
        if nth == 0 && entry.inode != dir.ino {
            self.note(kind, at, format!("`.` is inode {}", entry.inode));
        }
        if entry.inode == 0 {
            return Ok(());
        }
        if nth == 1 {
            if let Some(known) = self.dirs.get_mut(&dir.ino) {
                known.dotdot = entry.inode;
            }
        }
        self.check_target(dir, entry).map(drop)
    }

    /// The `.` and `..` that an inline directory does not have.
    pub(super) fn check_dot_inode(&mut self, dir: &Open, parent: u32) -> Step {
        let file_type = if self.format.filetype { file_type::DIR } else { file_type::UNKNOWN };
        for (nth, (name, inode)) in
            [(&b"."[..], dir.ino), (&b".."[..], parent)].into_iter().enumerate()
        {
            self.check_dot(dir, nth, &Entry { name, inode, file_type, hash: 0 }, 0)?;
        }
        Ok(())
    }

    fn check_entry(&mut self, dir: &mut Open, chain: &Chain<'_>, entry: &Entry<'_>) -> Step {
        let at = At::ino(dir.ino);
        // Only an entry that is wrong is shown.
        let name = || shown(entry.name);
        if let Some((role, index)) = &chain.role {
            let hash = match index.hashes {
                Hashes::Of(kind) => {
                    Some(dir_format::name_hash(dir.fold.as_ref(), &kind, entry.name).major)
                }
                Hashes::Stored => Some(entry.hash & !1),
            };
            if hash.is_some_and(|hash| !role.holds(hash)) {
                let what = format!("{} is in the wrong leaf {}", name(), chain.lblk);
                self.note(kinds::HTREE_LEAF, at, what);
            }
        }
        let alike = name_hash(&dir.distinct(entry.name));
        dir.names.push(alike);
        self.check_name(dir, entry);
        if entry.inode == dir.ino {
            self.note(kinds::ENTRY_LINK, at, format!("{} is the directory itself", name()));
        }
        if !self.check_target(dir, entry)? {
            return Ok(());
        }
        let target = entry.inode;
        if self.holds_value(target) {
            let what =
                format!("{} is inode {target}, which holds the value of an attribute", name());
            self.note(kinds::ENTRY_VALUE, at, what);
        }
        if let Some(policy) = dir.policy {
            let kind = self.inodes.get(&self.geo, target).file_type;
            let needs = [file_type::REG_FILE, file_type::DIR, file_type::SYMLINK].contains(&kind);
            let has = self.policies.of(target);
            if has.is_some_and(|has| has != policy) || has.is_none() && needs {
                let what = format!("{} is not encrypted as its directory is", name());
                self.note(kinds::ENTRY_ENCRYPTION, at, what);
            }
        }
        let Some(known) = self.dirs.get_mut(&target) else { return Ok(()) };
        if known.parent == 0 {
            known.parent = dir.ino;
        } else if self.second_names.len() < SECOND_NAMES_MAX {
            self.second_names.push((target, dir.ino, name()));
        } else {
            self.note_second_name(dir.ino, &name(), target);
        }
        Ok(())
    }

    /// Of two directories that have a name for a third, its `..` tells the parent, and otherwise
    /// the first is it. It is never one below the third.
    pub(super) fn settle_parents(&mut self) {
        for (target, mut other, mut name) in std::mem::take(&mut self.second_names) {
            let Some(known) = self.dirs.get(&target) else { continue };
            let parent = known.parent;
            if other != parent && known.dotdot == other && !self.is_below(other, target) {
                self.dirs.entry(target).and_modify(|known| known.parent = other);
                (other, name) = (parent, "an entry".to_owned());
            }
            self.note_second_name(other, &name, target);
        }
    }

    fn note_second_name(&mut self, ino: u32, name: &str, target: u32) {
        let parent = self.dirs.get(&target).map_or(0, |known| known.parent);
        let what = format!("{name} is directory {target}, which inode {parent} has, too");
        self.note(kinds::ENTRY_LINK, At::ino(ino), what);
    }

    /// True if a directory is `top`, is below it, or has no way to the root that is short enough.
    fn is_below(&self, ino: u32, top: u32) -> bool {
        let mut at = Some(ino);
        for _ in 0..STEPS_MAX {
            match at {
                Some(at) if at == top => return true,
                None | Some(0 | ROOT_INO) => return false,
                Some(now) => at = self.dirs.get(&now).map(|dir| dir.parent),
            }
        }
        true
    }

    fn check_name(&mut self, dir: &Open, entry: &Entry<'_>) {
        let at = At::ino(dir.ino);
        let name = || shown(entry.name);
        let dots = entry.name == b"." || entry.name == b"..";
        if dir.policy.is_some() {
            if entry.name.len() < ENCRYPTED_NAME_MIN || dots {
                let what = format!("{} is too short for an encrypted name", name());
                self.note(kinds::ENTRY_ENCRYPTION, at, what);
            }
            return;
        }
        let illegal = entry.name.iter().any(|byte| *byte == b'/' || *byte == 0);
        if illegal || dots || entry.name.is_empty() {
            self.note(kinds::ENTRY_NAME, at, format!("{} is no name for an entry", name()));
        } else if dir.fold.is_some_and(|fold| fold.refused_at(entry.name).is_some()) {
            self.note(kinds::ENTRY_NAME, at, format!("{} is not valid UTF-8", name()));
        }
    }

    /// The inode of an entry, and its type; counts the reference. False if there is none.
    fn check_target(&mut self, dir: &Open, entry: &Entry<'_>) -> Step<bool> {
        let (at, target) = (At::ino(dir.ino), entry.inode);
        let name = || shown(entry.name);
        let dots = entry.name == b"." || entry.name == b"..";
        let known = self.inodes.get(&self.geo, target);
        if target != ROOT_INO && target < self.geo.first_ino
            || target > self.geo.inodes_count
            || self.is_system_file(target)
        {
            let what = format!("{} is inode {target}, which can have no name", name());
            self.note(kinds::ENTRY_INODE, at, what);
            return Ok(false);
        }
        if known.system && target >= self.geo.first_ino {
            let what = format!("{} is inode {target}, which is in a bad block", name());
            self.note(kinds::ENTRY_INODE, at, what);
            return Ok(false);
        }
        if target == ROOT_INO && !dots {
            let what = format!("{} is inode {target}, which can have no name", name());
            self.note(kinds::ENTRY_INODE, at, what);
        }
        let (group, index) = self.geo.inode_group(target).unwrap_or((0, 0));
        let scanned = self.scanned.get(group as usize).copied().unwrap_or(0);
        if index >= scanned {
            let what = format!("{} is inode {target}, in a part that was never used", name());
            self.note(kinds::ENTRY_UNINIT, at.right(target.into()), what);
        } else if !known.used {
            let what = format!("{} is inode {target}, which is not in use", name());
            self.note(kinds::ENTRY_UNUSED, at, what);
        } else if self.format.filetype
            && ![known.file_type, file_type::UNKNOWN].contains(&entry.file_type)
        {
            let what = format!(
                "{} says type {}, inode {target} is of type {}",
                name(),
                entry.file_type,
                known.file_type
            );
            self.note(kinds::ENTRY_TYPE, at, what);
        } else if !self.format.filetype && entry.file_type != 0 {
            let what = format!("{} says type {}, without filetype", name(), entry.file_type);
            self.note(kinds::ENTRY_TYPE, at, what);
        }
        if known.used {
            self.inodes.change(&self.geo, target, |known| {
                known.refs = known.refs.saturating_add(1);
            });
        }
        Ok(known.used)
    }
}
