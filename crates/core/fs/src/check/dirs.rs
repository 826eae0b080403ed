//! Directories: blocks, their checksums, and names that are there twice.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use syncline_ondisk::bytes::{le16, le32};
use syncline_ondisk::dir::{self, Entries, TAIL_BYTES, has_tail, rec_len_from_disk};
use syncline_ondisk::inode::{Inode, flags};
use syncline_ondisk::{IncompatFeatures, checksum, inline};

use super::encryption::Policy;
use super::index::{Index, Role};
use super::marks::Runs;
use super::report::At;
use super::{Checker, Step, kinds};
use crate::store::dir_format::Fold;

/// Bytes of an inline directory in `i_block`, and of its parent's number.
const INLINE_BYTES: usize = 60;
const PARENT_BYTES: usize = 4;

/// Directories, and blocks of each, that are read ahead.
const READ_AHEAD: usize = 16;
const READ_AHEAD_BLOCKS: usize = 4;

/// A directory under the check.
pub(super) struct Open {
    pub(super) ino: u32,
    pub(super) raw: Inode,
    pub(super) runs: Runs,
    pub(super) policy: Option<Policy>,
    /// How names fold, if they do.
    pub(super) fold: Option<Fold>,
    /// Entries hold the hash of their name (`casefold` and `encrypt`).
    pub(super) holds_hashes: bool,
    pub(super) seed: Option<u32>,
    /// Hash of each name.
    pub(super) names: Vec<u64>,
}

impl Open {
    /// A name as two are told apart.
    pub(super) fn distinct<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        self.fold.map_or(Cow::Borrowed(name), |fold| fold.distinct(name))
    }
}

/// A chain of entries.
pub(super) struct Chain<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) start: usize,
    pub(super) end: usize,
    /// It starts with `.` and `..`.
    pub(super) has_dots: bool,
    pub(super) role: Option<(Role, &'a Index)>,
    pub(super) lblk: u32,
}

impl Checker<'_> {
    /// Pass 4.
    pub(super) fn check_dirs(&mut self) -> Step {
        let all: Vec<u32> = self.dirs.keys().copied().collect();
        let total = all.len() as u64;
        for (done, ino) in (0..).zip(&all) {
            if done % READ_AHEAD == 0 {
                let ahead = all.iter().skip(done).take(READ_AHEAD);
                self.read_ahead(ahead.copied())?;
            }
            self.tick("directories", done as u64, total)?;
            // A removed directory that is still open has no entries.
            if self.inodes.get(&self.geo, *ino).links > 0 {
                self.check_dir(*ino)?;
                self.inodes.settle();
            }
        }
        self.settle_parents();
        Ok(())
    }

    /// Reads inodes and first blocks of directories at once.
    fn read_ahead(&mut self, dirs: impl Iterator<Item = u32>) -> Step {
        let mut blocks = Vec::new();
        for ino in dirs {
            blocks.extend(self.slot_place(ino)?.map(|(block, _)| block));
            if let Some(dir) = self.dirs.get(&ino) {
                blocks.extend(dir.runs.blocks().take(READ_AHEAD_BLOCKS).map(|(_, block)| block));
            }
        }
        self.buffers.prefetch(&blocks);
        Ok(())
    }

    fn check_dir(&mut self, ino: u32) -> Step {
        let Some(slot) = self.read_slot(ino)? else { return Ok(()) };
        let Ok(raw) = Inode::decode(&slot) else { return Ok(()) };
        let runs = self.dirs.get_mut(&ino).map(|dir| std::mem::take(&mut dir.runs));
        let folds = raw.has_flag(flags::CASEFOLD);
        let policy = self.policies.of(ino);
        let fold = Fold::of(&self.sb).filter(|_| folds && policy.is_none());
        let seed = checksum::inode_seed(self.sb.csum_seed(), ino, raw.i_generation);
        let mut dir = Open {
            ino,
            runs: runs.unwrap_or_default(),
            policy,
            fold,
            holds_hashes: folds && policy.is_some(),
            seed: self.geo.metadata_csum.then_some(seed),
            names: Vec::new(),
            raw,
        };
        if dir.raw.has_flag(flags::INLINE_DATA) && self.incompat(IncompatFeatures::INLINE_DATA) {
            return self.check_inline_dir(&mut dir, &slot);
        }
        let index = if dir.raw.has_flag(flags::INDEX) { self.walk_index(&dir)? } else { None };
        let runs = dir.runs.clone();
        for (lblk, block) in runs.blocks() {
            let Some(bytes) = self.read(block)? else { continue };
            self.check_dir_block(&mut dir, (lblk, block), &bytes, index.as_ref())?;
        }
        self.check_repeats(&mut dir, index.as_ref())
    }

    fn check_dir_block(
        &mut self,
        dir: &mut Open,
        (lblk, block): (u32, u64),
        bytes: &[u8],
        index: Option<&Index>,
    ) -> Step {
        let has_dots = lblk == 0;
        let role = match index {
            None => None,
            Some(index) => match index.roles.get(&lblk) {
                Some(Role::Node) if has_dots => Some((Role::Node, index)),
                Some(Role::Node) => return Ok(()),
                Some(leaf) => Some((*leaf, index)),
                None => {
                    let what = format!("block {lblk} is not in the index");
                    self.note(kinds::HTREE_BLOCK, At::ino(dir.ino).in_block(block), what);
                    None
                }
            },
        };
        let is_node = matches!(role, Some((Role::Node, _)))
            || dir.raw.has_flag(flags::INDEX) && index.is_none() && is_index_block(bytes, lblk);
        let mut end = bytes.len();
        if let Some(seed) = dir.seed.filter(|_| !is_node) {
            if let Err(err) = dir::verify_checksum(bytes, &self.format, seed) {
                self.note_bad(kinds::DIR_CSUM, At::ino(dir.ino).in_block(block), &err);
            }
            if has_tail(bytes) {
                end -= TAIL_BYTES;
            }
        }
        if is_node && !has_dots {
            return Ok(());
        }
        self.check_chain(dir, &Chain { bytes, start: 0, end, has_dots, role, lblk })
    }

    fn check_inline_dir(&mut self, dir: &mut Open, slot: &[u8]) -> Step {
        let at = At::ino(dir.ino);
        let Ok(data) = inline::stored(&dir.raw, slot) else { return Ok(()) };
        if data.len() % 4 != 0 || data.len() > INLINE_BYTES && data.len() < INLINE_BYTES + 12 {
            let what = format!("an inline directory of {} bytes", data.len());
            self.note(kinds::DIR_INLINE_SIZE, at, what);
        }
        let parent = le32(&data, 0);
        self.check_dot_inode(dir, parent)?;
        for (start, end) in [(PARENT_BYTES, INLINE_BYTES), (INLINE_BYTES, data.len())] {
            let chain = Chain { bytes: &data, start, end, has_dots: false, role: None, lblk: 0 };
            self.check_chain(dir, &chain)?;
        }
        Ok(())
    }

    /// Names that are there twice. Hashes alone are no proof, so names with equal ones are read
    /// again.
    fn check_repeats(&mut self, dir: &mut Open, index: Option<&Index>) -> Step {
        let names = &mut dir.names;
        names.sort_unstable();
        let alike: BTreeSet<u64> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        if alike.is_empty() {
            return Ok(());
        }
        let mut counts: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for (lblk, block) in dir.runs.blocks() {
            if index.is_some_and(|index| index.roles.get(&lblk) == Some(&Role::Node)) {
                continue;
            }
            let Some(bytes) = self.read(block)? else { continue };
            for (nth, entry) in Entries::new(&bytes, &self.format).flatten().enumerate() {
                let counted = entry.inode != 0 && !(lblk == 0 && nth < 2);
                let name = dir.distinct(entry.name);
                if counted && alike.contains(&name_hash(&name)) {
                    *counts.entry(name.into_owned()).or_default() += 1;
                }
            }
        }
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
            let what = format!("{} is there {count} times", shown(&name));
            self.note(kinds::ENTRY_TWICE, At::ino(dir.ino), what);
        }
        Ok(())
    }
}

/// True if a block looks like one of an index.
fn is_index_block(bytes: &[u8], lblk: u32) -> bool {
    let whole = rec_len_from_disk(le16(bytes, 4), bytes.len()) == bytes.len();
    lblk == 0 || le32(bytes, 0) == 0 && whole
}

/// Equal for equal names; without a random seed.
pub(super) fn name_hash(name: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

pub(super) fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}
