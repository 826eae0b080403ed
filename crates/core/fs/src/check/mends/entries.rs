//! Entries of directories: chains that are broken are salvaged, and entries that can have no inode
//! are cleared, by the rules of e2fsck's pass 2.

use std::collections::BTreeSet;

use syncline_ondisk::bytes::{le16, le32, put_le16, put_le32, put_u8, u8_at};
use syncline_ondisk::dir::{entry_bytes, file_type, rec_len_from_disk, rec_len_to_disk};
use syncline_ondisk::superblock::ROOT_INO;

use super::Mender;
use crate::check::encryption::Policy;
use crate::store::dir_format::Fold;

const HEADER: usize = 8;
/// Bytes of a hash behind a name.
const HASH_BYTES: usize = 8;
const ENCRYPTED_NAME_MIN: usize = 16;

/// A directory under repair.
pub(super) struct Mended {
    pub(super) ino: u32,
    pub(super) policy: Option<Policy>,
    /// How names fold, if they do.
    pub(super) fold: Option<Fold>,
    /// Entries hold the hash of their name.
    pub(super) holds_hashes: bool,
    /// Directories that it has a name for.
    pub(super) subdirs: BTreeSet<u32>,
    /// A name was changed: its hash is another one.
    pub(super) is_renamed: bool,
}

/// A chain of entries from `start` to `end`; the first two are `.` and `..` if it has dots.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) has_dots: bool,
}

impl Mender<'_, '_> {
    /// Mends the entries of a chain.
    pub(super) fn mend_chain(&mut self, dir: &mut Mended, bytes: &mut [u8], chain: Chain) {
        let block_size = self.c.geo.block_size;
        let (mut at, mut prev) = (chain.start, None);
        let mut nth = if chain.has_dots { 0 } else { 2 };
        while at < chain.end {
            let extra = if nth > 1 && dir.holds_hashes { HASH_BYTES } else { 0 };
            let left = chain.end - at;
            let rec_len = rec_len_from_disk(le16(bytes, at + 4), block_size);
            let needs = entry_bytes(usize::from(u8_at(bytes, at + 6))) + extra;
            let least = entry_bytes(1) + extra;
            let is_broken = left < HEADER
                || rec_len > left
                || rec_len < least
                || rec_len % 4 != 0
                || rec_len < needs;
            if is_broken {
                match self.salvage(bytes, at, prev, chain.end, extra) {
                    Some(next) => at = next,
                    None => return,
                }
                continue;
            }
            if nth < 2 {
                self.mend_dot(dir, bytes, at, nth);
            } else if le32(bytes, at) != 0 && !self.mend_entry(dir, bytes, at) {
                put_le32(bytes, at, 0);
            }
            prev = Some(at);
            nth += 1;
            at += rec_len_from_disk(le16(bytes, at + 4), block_size).max(HEADER);
        }
        if chain.has_dots && nth == 1 {
            // One entry that takes all: it is split when its length is mended.
            self.split_dot(dir, bytes, chain.end);
        }
    }

    /// Makes something of the entry at `at`; where to go on, or `None` if nothing is left.
    fn salvage(
        &self,
        bytes: &mut [u8],
        at: usize,
        prev: Option<usize>,
        end: usize,
        extra: usize,
    ) -> Option<usize> {
        let size = self.c.geo.block_size;
        let room = end - at;
        let (name_len, rec_len) = if room < HEADER {
            (0, room)
        } else {
            (usize::from(u8_at(bytes, at + 6)), rec_len_from_disk(le16(bytes, at + 4), size))
        };
        // An entry of 8 bytes is covered by the rest.
        if rec_len == HEADER && room >= HEADER + entry_bytes(1) + extra {
            bytes.copy_within(at + HEADER..end, at);
            bytes[end - HEADER..end].fill(0);
            return Some(at);
        }
        let text = bytes.get(at + HEADER..(at + HEADER + name_len).min(end)).unwrap_or(&[]);
        let is_name = text.len() == name_len && !text.contains(&0);
        // One that runs past the end is cut.
        if rec_len > room
            && room > HEADER
            && entry_bytes(name_len) + extra <= room
            && le32(bytes, at) <= self.c.geo.inodes_count
            && is_name
            && room % 4 == 0
            && room >= entry_bytes(1) + extra
        {
            put_le16(bytes, at + 4, rec_len_to_disk(room, size));
            return Some(at);
        }
        let Some(prev) = prev else {
            if room < entry_bytes(1) + extra || room % 4 != 0 {
                return None;
            }
            put_le32(bytes, at, 0);
            put_le16(bytes, at + 4, rec_len_to_disk(room, size));
            put_le16(bytes, at + 6, 0);
            return Some(at);
        };
        // The entry before it takes it, or all that is left.
        let fits = rec_len != 0 && rec_len % 4 == 0 && rec_len <= room;
        let taken = if fits { rec_len } else { room };
        let before = rec_len_from_disk(le16(bytes, prev + 4), size);
        put_le16(bytes, prev + 4, rec_len_to_disk(before + taken, size));
        Some(at + taken)
    }

    fn dir_type(&self) -> u8 {
        if self.c.format.filetype { file_type::DIR } else { file_type::UNKNOWN }
    }

    /// `.` or `..`.
    fn mend_dot(&mut self, dir: &Mended, bytes: &mut [u8], at: usize, nth: usize) {
        let want = [&b".\0"[..], &b"..\0"[..]][nth];
        let now = bytes.get(at + HEADER..at + HEADER + want.len());
        let is_there = le32(bytes, at) != 0
            && usize::from(u8_at(bytes, at + 6)) == nth + 1
            && now == Some(want);
        if !is_there {
            put_u8(bytes, at + 6, nth as u8 + 1);
            bytes[at + HEADER..at + HEADER + want.len()].copy_from_slice(want);
        }
        let kind = self.dir_type();
        put_u8(bytes, at + 7, kind);
        if nth == 1 {
            let target = le32(bytes, at);
            let known = self.c.inodes.get(&self.c.geo, target);
            if !is_there || !known.used || known.file_type != file_type::DIR {
                put_le32(bytes, at, self.parent_of(dir.ino));
            }
            return;
        }
        put_le32(bytes, at, dir.ino);
        let rec_len = rec_len_from_disk(le16(bytes, at + 4), self.c.geo.block_size);
        if rec_len > 24 {
            put_le16(bytes, at + 4, 12);
            let next = at + 12;
            if bytes.get(next + HEADER..next + HEADER + 3) != Some(&b"..\0"[..]) {
                put_le32(bytes, next, 0);
                put_le16(bytes, next + 4, rec_len_to_disk(rec_len - 12, self.c.geo.block_size));
                put_u8(bytes, next + 6, 0);
                put_u8(bytes, next + 7, kind);
            }
        }
    }

    /// `..` behind a `.` that was all of a chain too short to be split.
    fn split_dot(&self, dir: &Mended, bytes: &mut [u8], end: usize) {
        if end < 24 {
            return;
        }
        let size = self.c.geo.block_size;
        put_le16(bytes, 4, 12);
        put_le32(bytes, 12, self.parent_of(dir.ino));
        put_le16(bytes, 16, rec_len_to_disk(end - 12, size));
        put_u8(bytes, 18, 2);
        put_u8(bytes, 19, self.dir_type());
        bytes[20..23].copy_from_slice(b"..\0");
    }

    /// An entry that is not `.` or `..`; false if it is to be cleared.
    fn mend_entry(&mut self, dir: &mut Mended, bytes: &mut [u8], at: usize) -> bool {
        let target = le32(bytes, at);
        let len = usize::from(u8_at(bytes, at + 6));
        let Some(name) = bytes.get_mut(at + HEADER..at + HEADER + len) else { return false };
        let c = &*self.c;
        if target < c.geo.first_ino
            || target > c.geo.inodes_count
            || target == dir.ino
            || target == ROOT_INO
            || c.is_system_file(target)
            || c.holds_value(target)
            || name.is_empty()
            || *name == b"."[..]
            || *name == b".."[..]
        {
            return false;
        }
        let known = c.inodes.get(&c.geo, target);
        if !known.used || known.system {
            return false;
        }
        if let Some(policy) = dir.policy {
            let typed = [file_type::REG_FILE, file_type::DIR, file_type::SYMLINK];
            let has = c.policies.of(target);
            let differs = has.is_some_and(|has| has != policy);
            if name.len() < ENCRYPTED_NAME_MIN
                || differs
                || has.is_none() && typed.contains(&known.file_type)
            {
                return false;
            }
        } else {
            for byte in name.iter_mut().filter(|byte| **byte == b'/' || **byte == 0) {
                *byte = b'.';
                dir.is_renamed = true;
            }
            while let Some(at) = dir.fold.and_then(|fold| fold.refused_at(name)) {
                name[at] = b'.';
                dir.is_renamed = true;
            }
        }
        let kind = if c.format.filetype { known.file_type } else { file_type::UNKNOWN };
        if c.dirs.contains_key(&target) {
            let parent = c.dirs.get(&target).map_or(0, |dir| dir.parent);
            if parent != 0 && parent != dir.ino || !dir.subdirs.insert(target) {
                return false;
            }
        }
        put_u8(bytes, at + 7, kind);
        true
    }
}
