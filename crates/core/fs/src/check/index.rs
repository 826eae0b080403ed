//! The index of a directory: the kind of each block, and the hashes that belong in a leaf.

use std::collections::BTreeMap;

use syncline_ondisk::IncompatFeatures;
use syncline_ondisk::bytes::{le16, le32, u8_at};
use syncline_ondisk::htree::{HashKind, NodeKind, verify_checksum};

use super::dirs::Open;
use super::report::At;
use super::{Checker, Step, kinds};

/// Hash of encrypted directories that fold case: entries hold it.
const SIPHASH: u8 = 6;
/// Hashes that a root may name; those above are of unsigned chars, which the superblock says.
const SIGNED_HASHES: u8 = 3;
/// Offset of the header of a root, and of the entries of root and node.
const ROOT_INFO: usize = 24;
const NODE_ENTRIES: usize = 8;
const ENTRY_BYTES: usize = 8;
/// Bytes of a checksum behind the entries.
const TAIL_BYTES: usize = 8;
/// Linux keeps flags for merging in the top bits.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Role of a block in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A block of the index.
    Node,
    /// Names with hashes from the first to the second, that one not included unless it continues.
    Leaf(u32, Option<u32>),
}

/// Hashes of names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hashes {
    /// Computed.
    Of(HashKind),
    /// In the entries.
    Stored,
}

/// The index of one directory.
pub(super) struct Index {
    pub(super) hashes: Hashes,
    /// Role of each block.
    pub(super) roles: BTreeMap<u32, Role>,
}

/// A node to be walked.
struct Node {
    lblk: u32,
    /// Offset of its entries.
    entries_at: usize,
    kind: NodeKind,
    /// Levels of nodes below it.
    levels: u8,
    low: u32,
    high: Option<u32>,
}

impl Role {
    /// True if a leaf may hold a name with this hash.
    pub(super) fn holds(&self, hash: u32) -> bool {
        let Role::Leaf(low, high) = *self else { return false };
        let below = high.is_none_or(|high| hash < high & !1 || high & 1 != 0 && hash == high & !1);
        hash >= low & !1 && below
    }
}

impl Checker<'_> {
    /// Walks the index; `None` if its root is of no use.
    pub(super) fn walk_index(&mut self, dir: &Open) -> Step<Option<Index>> {
        let at = At::ino(dir.ino);
        let Some(block) = dir.runs.map(0) else {
            self.note(kinds::HTREE_ROOT, at, "an index without its first block");
            return Ok(None);
        };
        let Some(root) = self.read(block)? else { return Ok(None) };
        let (version, length) = (u8_at(&root, ROOT_INFO + 4), u8_at(&root, ROOT_INFO + 5));
        let (levels, flag) = (u8_at(&root, ROOT_INFO + 6), u8_at(&root, ROOT_INFO + 7));
        let hash = self.sb.hash_version_of(version).ok().filter(|_| version < SIGNED_HASHES);
        let hashes = match (hash, version, dir.holds_hashes) {
            (None, SIPHASH, true) => Some(Hashes::Stored),
            (Some(version), _, false) => {
                Some(Hashes::Of(HashKind { version, seed: self.sb.s_hash_seed }))
            }
            _ => None,
        };
        let most = if self.incompat(IncompatFeatures::LARGEDIR) { 2 } else { 1 };
        let problem = if le32(&root, ROOT_INFO) != 0 || length != 8 {
            Some(format!("htree node: a header of {length} bytes"))
        } else if hashes.is_none() {
            Some(format!("htree node: directory hash {version} is unknown"))
        } else if flag & 1 != 0 {
            Some("htree node: unknown flags are set".to_owned())
        } else if levels > most {
            Some(format!("htree node: {levels} levels, at most {most}"))
        } else {
            None
        };
        if let Some(what) = problem {
            self.note(kinds::HTREE_ROOT, at.in_block(block), what);
            return Ok(None);
        }
        let Some(hashes) = hashes else { return Ok(None) };
        let mut index = Index { hashes, roles: BTreeMap::from([(0, Role::Node)]) };
        let entries_at = ROOT_INFO + usize::from(length);
        let kind = NodeKind::Root;
        let root = Node { lblk: 0, entries_at, kind, levels, low: 0, high: None };
        self.walk_index_node(dir, &root, &mut index.roles)?;
        Ok(Some(index))
    }

    /// One node. A block that has a role is not entered.
    fn walk_index_node(
        &mut self,
        dir: &Open,
        node: &Node,
        roles: &mut BTreeMap<u32, Role>,
    ) -> Step {
        let at = At::ino(dir.ino);
        let Some(block) = dir.runs.map(node.lblk) else { return Ok(()) };
        let Some(bytes) = self.read(block)? else { return Ok(()) };
        if let Some(seed) = dir.seed {
            if let Err(err) = verify_checksum(&bytes, node.kind, seed) {
                self.note_bad(kinds::DIR_CSUM, at.in_block(block), &err);
            }
        }
        let tail = if self.geo.metadata_csum { TAIL_BYTES } else { 0 };
        let fits = (bytes.len() - node.entries_at - tail) / ENTRY_BYTES;
        let limit = usize::from(le16(&bytes, node.entries_at));
        let count = usize::from(le16(&bytes, node.entries_at + 2));
        if limit != fits || count > fits || count == 0 {
            let what = format!("htree node: {count} entries of {limit}, {fits} fit");
            self.note(kinds::HTREE_NODE, at.in_block(block), what);
        }
        let entry = |i: usize| {
            let at = node.entries_at + i * ENTRY_BYTES;
            let hash = if i == 0 { node.low } else { le32(&bytes, at) };
            (hash, le32(&bytes, at + 4) & BLOCK_MASK)
        };
        let count = count.min(fits);
        let mut before = node.low;
        for i in 0..count {
            let (from, child) = entry(i);
            let to = if i + 1 < count { Some(entry(i + 1).0) } else { node.high };
            if dir.runs.map(child).is_none() {
                let what = format!("htree node: block {child} is outside the directory");
                self.note(kinds::HTREE_NODE, at.in_block(block), what);
                continue;
            }
            if from & !1 < before & !1 || node.high.is_some_and(|high| from > high) {
                let what = format!("the index entry of block {child} is out of order");
                self.note(kinds::HTREE_ORDER, at, what);
            }
            before = from;
            if roles.contains_key(&child) {
                let what = format!("block {child} is twice in the index");
                self.note(kinds::HTREE_NODE, at, what);
                continue;
            }
            let role = if node.levels == 0 { Role::Leaf(from, to) } else { Role::Node };
            roles.insert(child, role);
            if node.levels > 0 {
                let child = Node {
                    lblk: child,
                    entries_at: NODE_ENTRIES,
                    kind: NodeKind::Inner,
                    levels: node.levels - 1,
                    low: from,
                    high: to,
                };
                self.walk_index_node(dir, &child, roles)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn a_leaf_holds_its_hashes_and_those_that_continue() {
        let leaf = Role::Leaf(10, Some(20));
        assert!(!leaf.holds(8) && leaf.holds(10) && leaf.holds(18) && !leaf.holds(20));
        let continued = Role::Leaf(11, Some(21));
        assert!(continued.holds(10) && continued.holds(20) && !continued.holds(22));
        assert!(Role::Leaf(10, None).holds(u32::MAX));
        assert!(!Role::Node.holds(10));
    }
}
