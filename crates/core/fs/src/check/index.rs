//! The index of a directory: the kind of each block, and the hashes that belong in a leaf.

use std::collections::BTreeMap;

use syncline_ondisk::htree::{HashKind, HashVersion, Node, NodeKind, root_info};

use super::{Checker, Step};
use crate::names::dir::live::View;
use crate::names::dir::store::{BlockKind, DirRead, INNER, ROOT};

/// Role of a block in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A block of the index.
    Node,
    /// Names with hashes from the first to the second, that one not included unless it continues.
    Leaf(u32, Option<u32>),
}

/// The index of one directory.
pub(super) struct Index {
    /// Hash of this tree.
    pub(super) hash: HashKind,
    /// Role of each block.
    pub(super) roles: BTreeMap<u32, Role>,
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
    pub(super) fn walk_index(&mut self, ino: u32, view: &View<'_>) -> Step<Option<Index>> {
        let Some(root) = self.keep(view.block(0, ROOT), Some(ino), None)? else { return Ok(None) };
        let params = view.params();
        let info = root_info(&root, params.large_dir).and_then(|info| {
            Ok((
                info.indirect_levels,
                HashVersion::from_disk(info.hash_version, params.hash_unsigned)?,
            ))
        });
        let (levels, version) = match info {
            Ok(info) => info,
            Err(err) => return self.note_bad(err, Some(ino), None).map(|()| None),
        };
        let hash = HashKind { version, seed: params.hash.seed };
        let mut index = Index { hash, roles: BTreeMap::from([(0, Role::Node)]) };
        let range = (0, None);
        self.walk_index_node(ino, view, (0, ROOT), levels.into(), range, &mut index.roles)?;
        Ok(Some(index))
    }

    /// One node with `levels` levels of nodes below it. A block that has a role is not entered.
    fn walk_index_node(
        &mut self,
        ino: u32,
        view: &View<'_>,
        (lblk, kind): (u32, BlockKind),
        levels: u32,
        (low, high): (u32, Option<u32>),
        roles: &mut BTreeMap<u32, Role>,
    ) -> Step {
        let block = view.block(lblk, kind);
        let Some(bytes) = self.keep(block, Some(ino), None)? else { return Ok(()) };
        let node_kind = if kind == ROOT { NodeKind::Root } else { NodeKind::Inner };
        let node = match Node::parse_header(&bytes, node_kind, view.params().format.tail) {
            Ok(node) => node,
            Err(err) => return self.note_bad(err, Some(ino), None),
        };
        for i in 0..node.len() {
            let Some(entry) = node.entry(i) else { break };
            let from = if i == 0 { low } else { entry.hash };
            let to = node.entry(i + 1).map(|next| next.hash).or(high);
            if from < low || high.is_some_and(|high| from > high) {
                let what = format!("the index entry of block {} is out of order", entry.block);
                self.note(Some(ino), None, what);
            }
            let role = if levels == 0 { Role::Leaf(from, to) } else { Role::Node };
            if roles.contains_key(&entry.block) {
                let what = format!("block {} is twice in the index", entry.block);
                self.note(Some(ino), None, what);
                continue;
            }
            roles.insert(entry.block, role);
            if levels > 0 {
                let child = (entry.block, INNER);
                self.walk_index_node(ino, view, child, levels - 1, (from, to), roles)?;
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
