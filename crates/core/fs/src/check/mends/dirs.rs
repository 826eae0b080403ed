//! Directories: blocks in place where only entries are wrong, and all of them again where the index
//! or the names are.
//!
//! A directory that is written again keeps its blocks. It gets an index if it had one. The index
//! goes if there are fewer names than blocks, if names fold case (their hash is not computed here),
//! if no block is free for an index that needs one more, and where the next round adds or removes
//! names. Linux and e2fsck read a directory without an index as it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use syncline_ondisk::IncompatFeatures;
use syncline_ondisk::bytes::{le16, le32, put_bytes};
use syncline_ondisk::dir::{Entries, Filler, TAIL_BYTES, has_tail, rec_len_from_disk};
use syncline_ondisk::htree::{NodeKind, set_checksum};
use syncline_ondisk::inline;
use syncline_ondisk::inode::{I_BLOCK_BYTES, I_BLOCK_OFFSET, Inode, flags};
use syncline_ondisk::xattr::{Place, XattrSet};

use super::Mender;
use super::entries::{Chain, Mended};
use crate::check::Step;
use crate::check::dirs::Open;
use crate::check::index::{Index, Role};
use crate::check::kinds::{self as k, Kind};
use crate::check::marks::Runs;
use crate::mkfs::build::dirs::Shape;
use crate::store::dir_format::Fold;

const OF_INDEX: [Kind; 5] =
    [k::HTREE_ROOT, k::HTREE_NODE, k::HTREE_ORDER, k::HTREE_LEAF, k::HTREE_BLOCK];
pub(super) const OF_DIRS: [Kind; 16] = [
    k::HTREE_ROOT,
    k::HTREE_NODE,
    k::HTREE_ORDER,
    k::HTREE_LEAF,
    k::HTREE_BLOCK,
    k::DIR_CORRUPT,
    k::DIR_CSUM,
    k::DIR_INLINE_SIZE,
    k::DOT,
    k::DOTDOT,
    k::ENTRY_INODE,
    k::ENTRY_UNUSED,
    k::ENTRY_NAME,
    k::ENTRY_TYPE,
    k::ENTRY_TWICE,
    k::ENTRY_LINK,
];
pub(super) const OF_ENTRIES: [Kind; 2] = [k::ENTRY_ENCRYPTION, k::ENTRY_VALUE];
/// Most bytes of a directory that is written again.
const DIR_BYTES_MAX: u64 = 256 << 20;

/// Name, inode and type of an entry.
type Named = (Vec<u8>, u32, u8);

impl Mender<'_, '_> {
    pub(super) fn mend_dirs(&mut self) -> Step {
        if self.lingers(&[k::ENTRY_UNINIT, k::BLOCK_TWICE]) {
            return Ok(());
        }
        let mut inodes = self.inodes_with(&OF_DIRS);
        inodes.extend(self.inodes_with(&OF_ENTRIES));
        for ino in inodes {
            if self.c.dirs.contains_key(&ino) {
                let others = (take(&mut self.blocks), take(&mut self.slots));
                self.mend_dir(ino, false)?;
                let own = (take(&mut self.blocks), take(&mut self.slots));
                (self.blocks, self.slots) = others;
                self.blocks.extend(own.0);
                self.slots.extend(own.1);
            }
        }
        Ok(())
    }

    /// Writes a directory again, without its index.
    pub(super) fn drop_index(&mut self, ino: u32) -> Step {
        self.mend_dir(ino, true)
    }

    fn found_in(&self, ino: u32, kinds: &[Kind]) -> bool {
        let of_dir = self.errors.iter().filter(|found| found.inode == Some(ino));
        of_dir.into_iter().any(|found| super::is_of(found, kinds))
    }

    /// Mends one directory; all of it is written again, without an index, if that is asked for.
    fn mend_dir(&mut self, ino: u32, drops_index: bool) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        let folds = raw.has_flag(flags::CASEFOLD);
        let policy = self.c.policies.of(ino);
        let mut dir = Mended {
            ino,
            policy,
            fold: Fold::of(&self.c.sb).filter(|_| folds && policy.is_none()),
            holds_hashes: folds && policy.is_some(),
            subdirs: BTreeSet::new(),
            is_renamed: false,
        };
        if raw.has_flag(flags::INLINE_DATA) && self.c.incompat(IncompatFeatures::INLINE_DATA) {
            return self.mend_inline_dir(&mut dir, &raw);
        }
        let runs = self.rewalk(ino, &raw)?.runs;
        let mut again = drops_index || self.found_in(ino, &OF_INDEX) || self.has_doubles(ino);
        let is_indexed = raw.has_flag(flags::INDEX);
        let index = if is_indexed && !again { self.index_of(ino, &raw, &runs)? } else { None };
        again |= is_indexed && index.is_none();
        for (lblk, block) in runs.blocks() {
            if !self.is_own(block) {
                continue;
            }
            let Some(mut bytes) = self.view(block)? else { continue };
            let role = index.as_ref().and_then(|index| index.roles.get(&lblk));
            if role == Some(&Role::Node) {
                self.mend_node(&mut dir, &raw, &mut bytes, lblk);
                self.put(block, bytes);
                continue;
            }
            if lblk > 0 && again && is_indexed && is_node(&bytes) {
                continue;
            }
            let mut end = bytes.len();
            if self.c.geo.metadata_csum {
                if has_tail(&bytes) {
                    end -= TAIL_BYTES;
                } else {
                    again = true;
                }
            }
            let has_dots = lblk == 0;
            self.mend_chain(&mut dir, &mut bytes, Chain { start: 0, end, has_dots });
            self.put_dir_block(ino, &raw, block, bytes);
        }
        if again || dir.is_renamed && is_indexed {
            let keeps_index = is_indexed && !drops_index;
            return self.write_dir(&dir, &raw, &runs, keeps_index);
        }
        Ok(())
    }

    fn has_doubles(&self, ino: u32) -> bool {
        self.found_in(ino, &[k::ENTRY_TWICE])
    }

    /// The index of a directory whose index has no findings.
    fn index_of(&mut self, ino: u32, raw: &Inode, runs: &Runs) -> Step<Option<Index>> {
        let open = Open {
            ino,
            raw: raw.clone(),
            runs: runs.clone(),
            policy: self.c.policies.of(ino),
            fold: None,
            holds_hashes: raw.has_flag(flags::CASEFOLD) && self.c.policies.of(ino).is_some(),
            seed: self.seed(ino, raw.i_generation),
            names: Vec::new(),
        };
        let report = take(&mut self.c.report);
        let index = self.c.walk_index(&open);
        self.c.report = report;
        index
    }

    /// A block of the index: its checksum, and the `.` and `..` of the root.
    fn mend_node(&mut self, dir: &mut Mended, raw: &Inode, bytes: &mut [u8], lblk: u32) {
        let kind = if lblk == 0 { NodeKind::Root } else { NodeKind::Inner };
        if lblk == 0 {
            let chain = Chain { start: 0, end: bytes.len(), has_dots: true };
            self.mend_chain(dir, bytes, chain);
        }
        if let Some(seed) = self.seed(dir.ino, raw.i_generation) {
            set_checksum(bytes, kind, seed);
        }
    }

    /// Writes all blocks again.
    fn write_dir(&mut self, dir: &Mended, raw: &Inode, runs: &Runs, keeps_index: bool) -> Step {
        let shared = runs.blocks().any(|(_, block)| !self.is_own(block));
        if dir.holds_hashes || shared || raw.i_size > DIR_BYTES_MAX {
            return Ok(());
        }
        let entries = self.entries_of(raw, runs)?;
        let entries = unique(entries, dir.fold, raw.has_flag(flags::ENCRYPT));
        let blocks: Vec<u64> = runs.blocks().map(|(_, block)| block).collect();
        let Some(first) = blocks.first() else { return Ok(()) };
        let old = self.view(*first)?.unwrap_or_default();
        let place = (dir.ino, self.dotdot_of(dir.ino, &old));
        let linear = self.fill(place, &entries, blocks.len());
        let hash = self.c.sb.hash_kind().ok().filter(|_| keeps_index && blocks.len() > 1);
        if let Some(hash) = hash {
            let (format, block_size) = (self.c.format, self.c.geo.block_size);
            let shape = Shape { format, hash, fold: dir.fold, block_size };
            let seed = self.seed(dir.ino, raw.i_generation).unwrap_or(0);
            let named: Vec<_> = entries.iter().map(|(name, ..)| &name[..]).zip(&entries).collect();
            let named: Vec<_> = named.iter().map(|(name, e)| (*name, e.1, e.2)).collect();
            if let Some(bytes) = shape.spread(place, &named, seed, blocks.len()) {
                for (block, bytes) in blocks.iter().zip(bytes.chunks(self.c.geo.block_size)) {
                    self.put(*block, bytes.to_vec());
                }
                return Ok(());
            }
            // The names fit, but not with the blocks of an index.
            if entries.len() >= blocks.len() && self.grow_instead(dir.ino)? {
                return Ok(());
            }
        }
        let Some(written) = linear else {
            // Checksums need room: it is there in the next round.
            self.grow_instead(dir.ino)?;
            return Ok(());
        };
        for (block, bytes) in blocks.into_iter().zip(written) {
            self.put_dir_block(dir.ino, raw, block, bytes);
        }
        self.change(dir.ino, |slot| {
            let left = le32(slot, 0x20) & !flags::INDEX;
            put_bytes(slot, 0x20, &left.to_le_bytes());
        })
    }

    /// Adds a block, and does nothing else with this directory. False: there is no room.
    fn grow_instead(&mut self, ino: u32) -> Step<bool> {
        self.blocks.clear();
        self.slots.clear();
        self.grow_dir(ino, 1)?;
        Ok(!self.blocks.is_empty())
    }

    /// Blocks of a directory without an index; `None` if the entries do not fit.
    fn fill(
        &self,
        (ino, parent): (u32, u32),
        entries: &[Named],
        count: usize,
    ) -> Option<Vec<Vec<u8>>> {
        let mut left = entries.iter().peekable();
        let mut written = Vec::new();
        for nr in 0..count {
            let mut bytes = vec![0; self.c.geo.block_size];
            let mut filler = if nr == 0 {
                Filler::with_dots(&mut bytes, &self.c.format, ino, parent)
            } else {
                Filler::new(&mut bytes, &self.c.format)
            };
            while left.next_if(|(name, ino, kind)| filler.push(name, *ino, *kind)).is_some() {}
            written.push(bytes);
        }
        left.peek().is_none().then_some(written)
    }

    /// The directory that `..` of a mended first block names.
    fn dotdot_of(&self, ino: u32, block: &[u8]) -> u32 {
        let at = rec_len_from_disk(le16(block, 4), self.c.geo.block_size);
        let said = le32(block, at);
        if said == 0 { self.parent_of(ino) } else { said }
    }

    /// Entries of mended blocks, without `.` and `..`.
    fn entries_of(&mut self, raw: &Inode, runs: &Runs) -> Step<Vec<Named>> {
        let format = syncline_ondisk::dir::DirFormat { tail: false, ..self.c.format };
        let mut found = Vec::new();
        for (lblk, block) in runs.blocks() {
            let Some(bytes) = self.view(block)? else { continue };
            if lblk > 0 && raw.has_flag(flags::INDEX) && is_node(&bytes) {
                continue;
            }
            let skipped = if lblk == 0 { 2 } else { 0 };
            for entry in Entries::new(&bytes, &format).skip(skipped) {
                let Ok(entry) = entry else { break };
                if entry.inode != 0 && !entry.name.is_empty() {
                    found.push((entry.name.to_vec(), entry.inode, entry.file_type));
                }
            }
        }
        Ok(found)
    }

    /// A directory in its inode: entries in `i_block`, and in an attribute.
    fn mend_inline_dir(&mut self, dir: &mut Mended, raw: &Inode) -> Step {
        let ino = dir.ino;
        let Some(slot) = self.slot(ino)?.map(|slot| slot.clone()) else { return Ok(()) };
        let Ok(mut data) = inline::stored(raw, &slot) else { return Ok(()) };
        let whole = data.len();
        let rest = whole.saturating_sub(I_BLOCK_BYTES) & !3;
        let kept = I_BLOCK_BYTES + if rest < 12 { 0 } else { rest };
        data.truncate(kept);
        let parent = le32(&data, 0);
        let known = self.c.inodes.get(&self.c.geo, parent);
        if !known.used || !self.c.dirs.contains_key(&parent) {
            let parent = self.parent_of(ino);
            put_bytes(&mut data, 0, &parent.to_le_bytes());
        }
        for (start, end) in [(4, I_BLOCK_BYTES), (I_BLOCK_BYTES, kept)] {
            self.mend_chain(dir, &mut data, Chain { start, end, has_dots: false });
        }
        let mut slot = slot;
        put_bytes(&mut slot, I_BLOCK_OFFSET, &data[..I_BLOCK_BYTES]);
        let Some(range) = raw.xattr_range(slot.len()) else { return Ok(()) };
        let Some(area) = slot.get_mut(range) else { return Ok(()) };
        let Ok(mut set) = XattrSet::decode(area, Place::Inode) else { return Ok(()) };
        if set.set(7, b"data", &data[I_BLOCK_BYTES..]).is_err() || set.encode_inode(area).is_err() {
            return Ok(());
        }
        self.slots.insert(ino, slot);
        if kept < whole {
            self.set_size(ino, kept as u64)?;
        }
        Ok(())
    }
}

/// True if a block behind the first looks like one of an index.
fn is_node(bytes: &[u8]) -> bool {
    le32(bytes, 0) == 0 && rec_len_from_disk(le16(bytes, 4), bytes.len()) == bytes.len()
}

/// Entries with names of their own, as e2fsck makes them. It takes the entries of one name by
/// inode, the highest first, and compares each with the one before. An entry of the same inode is
/// left out; the next one then has another inode before it. An entry of another inode is renamed;
/// the next one then has another name before it, and stays. So of three equal entries the third one
/// is renamed. That is repeated until all names differ. Encrypted names cannot be changed: such an
/// entry is left out.
fn unique(mut entries: Vec<Named>, fold: Option<Fold>, is_encrypted: bool) -> Vec<Named> {
    let key = |name: &[u8]| fold.map_or(name.to_vec(), |fold| fold.distinct(name).into_owned());
    let mut names: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (at, (name, ..)) in entries.iter().enumerate() {
        names.entry(key(name)).or_default().push(at);
    }
    let alike: Vec<Vec<usize>> = names.values().filter(|at| at.len() > 1).cloned().collect();
    for mut left in alike {
        left.sort_by_key(|at| Reverse(entries.get(*at).map_or(0, |(_, ino, _)| *ino)));
        while left.len() > 1 {
            // The inode of the entry before, if that still has the name.
            let mut before = None;
            left.retain(|at| {
                let Some((name, ino, _)) = entries.get_mut(*at) else { return false };
                match before {
                    None => before = Some(*ino),
                    Some(other) if other == *ino || is_encrypted => {
                        (before, *ino) = (Some(0), 0);
                        return false;
                    }
                    Some(_) => {
                        while names.contains_key(&key(name)) {
                            mutate(name);
                        }
                        names.insert(key(name), Vec::new());
                        before = None;
                        return false;
                    }
                }
                true
            });
        }
    }
    entries.retain(|(_, ino, _)| *ino != 0);
    entries
}

/// The next name that e2fsck tries: `name~0`, `name~1`, and so on.
fn mutate(name: &mut Vec<u8>) {
    let len = name.len();
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let is_mutated = digits > 0 && digits < len && name[len - digits - 1] == b'~';
    if !is_mutated {
        let grown = if (len - 1) % 4 < 2 { len + 2 } else { len.next_multiple_of(4) };
        let grown = grown.clamp(2, 255);
        name.resize(grown, 0);
        name[grown - 2..].copy_from_slice(b"~0");
        return;
    }
    for at in (len - digits..len).rev() {
        if name[at] != b'9' {
            name[at] += 1;
            return;
        }
        name[at] = b'0';
    }
    // One digit more: it takes the place of the byte before.
    let tilde = len - digits - 1;
    name[tilde] = b'1';
    match tilde {
        0 => name[0] = b'a',
        _ => name[tilde - 1] = b'~',
    }
}
