//! Legal outcomes for names: the trees of names that a crash may leave.
//!
//! ```text
//!   operations   1 create d/a    2 create e/b    3 rename d/a -> e/c    4 unlink e/b
//!   touch        d, a            e, b            d, e, a                e, b
//!   of d         1 ------------------------------ 3
//!   of e                         2 -------------- 3 -------------------- 4
//! ```
//!
//! Rules
//! - `Order::All` (`sync=ordered`): a prefix of all operations, since transactions are committed
//!   whole and in order.
//! - `Order::Linked` (`sync=eager`): an operation depends on every earlier one that touches one of
//!   its inodes: those of the directories it changes and those that gain, lose or change a name.
//!   Any set is legal that has, with an operation, all those it depends on. In other words: of
//!   each inode's operations a prefix, and each operation is in it for all of its inodes or none.
//!   Renames and links depend on all earlier renames and links as well, since programs publish by
//!   them without syncing directories; so do the removal of a name, whose file may have moved, and
//!   a new symbolic link, which may name what has moved.
//! - What was acknowledged is there. An acknowledgement names one operation; those it depends on
//!   follow from the rule.
//!
//! A prefix of one directory's operations is found by its listing, so the choices are few; they
//! are tried directory by directory. Inode numbers that are used again are one inode here: a
//! freed inode may be taken only when its deletion is durable.

use std::collections::{BTreeMap, BTreeSet};

use crate::crash::history::Recovered;

/// The root's number.
const ROOT: u32 = 2;

/// A name while the workload ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    pub ino: u32,
    /// `None` for a directory or link.
    pub file: Option<u32>,
    pub is_dir: bool,
    /// Of a symbolic link.
    pub target: Vec<u8>,
}

pub type Names = BTreeMap<String, Name>;

/// Operations that a crash may separate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// None: they are durable in the order they were made.
    #[default]
    All,
    /// Those that have nothing to do with each other.
    Linked,
}

/// Answer of the caller to a possible outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Taken,
    Next,
}

/// Acknowledged operations, counted from 1.
#[derive(Debug, Default)]
pub struct Acked {
    /// Everything up to here.
    all: usize,
    /// These, and what they depend on.
    ops: BTreeSet<usize>,
}

impl Acked {
    /// Operation `op` (0 for none), with `all` every earlier one as well.
    pub fn add(&mut self, op: usize, all: bool) {
        if all {
            self.all = self.all.max(op);
        } else if op > 0 {
            self.ops.insert(op);
        }
    }

    fn last(&self) -> usize {
        self.ops.last().copied().unwrap_or(0).max(self.all)
    }

    fn has(&self, op: usize) -> bool {
        op <= self.all || self.ops.contains(&op)
    }
}

/// Entries of a directory by name: inode, true for a directory, target of a link.
type Listing<'a> = BTreeMap<&'a str, (u32, bool, &'a [u8])>;

/// The outcomes of a history of names.
pub struct Outcomes<'a> {
    /// The tree before the first operation and after each.
    history: &'a [Names],
    order: Order,
    /// Of each inode its operations, counted from 1.
    of: BTreeMap<u32, Vec<usize>>,
    /// Inodes that are or were directories.
    dirs: BTreeSet<u32>,
    /// Operations that give a name to what had one: renames and links.
    moves: Vec<usize>,
    /// Operations that take a name away and do nothing else, or make a symbolic link.
    followers: Vec<usize>,
}

impl<'a> Outcomes<'a> {
    pub fn new(history: &'a [Names], order: Order) -> Self {
        let mut of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let (mut moves, mut followers) = (Vec::new(), Vec::new());
        for (at, pair) in history.windows(2).enumerate() {
            let new = || pair[1].iter().filter(|(path, name)| pair[0].get(*path) != Some(name));
            if new().any(|(_, name)| pair[0].values().any(|old| old.ino == name.ino)) {
                moves.push(at + 1);
            } else if new().all(|(_, name)| !name.target.is_empty()) {
                followers.push(at + 1);
            }
            for ino in touched(&pair[0], &pair[1]) {
                of.entry(ino).or_default().push(at + 1);
            }
        }
        let all = history.iter().flat_map(|names| names.values());
        let mut dirs: BTreeSet<u32> = all.filter(|n| n.is_dir).map(|n| n.ino).collect();
        dirs.insert(ROOT);
        Outcomes { history, order, of, dirs, moves, followers }
    }

    /// Calls `each` with the names of every legal outcome whose tree is this one, until one is
    /// taken. Two outcomes may differ in what file a name is.
    pub fn each(&self, tree: &Recovered, acked: &Acked, mut each: impl FnMut(Names) -> Choice) {
        match self.order {
            Order::All => {
                for names in self.history[acked.last()..].iter().rev() {
                    if same_names(names, tree) && each(names.clone()) == Choice::Taken {
                        return;
                    }
                }
            }
            Order::Linked => {
                let mut candidates = Vec::new();
                for &dir in &self.dirs {
                    let found = listing_found(tree, dir);
                    let mut fits = Vec::new();
                    for len in (0..=self.ops_of(dir).len()).rev() {
                        let names = self.names_at(dir, len);
                        if listing(names, dir) == found {
                            fits.push(len);
                        }
                    }
                    candidates.push((dir, fits));
                }
                // The directories with the fewest choices first.
                candidates.sort_by_key(|(_, fits)| fits.len());
                let mut taken = BTreeMap::new();
                self.choose(&candidates, &mut taken, acked, tree, &mut each);
            }
        }
    }

    fn ops_of(&self, ino: u32) -> &[usize] {
        self.of.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// A tree in which `dir` is as after so many of its operations.
    fn names_at(&self, dir: u32, len: usize) -> &'a Names {
        let op = len.checked_sub(1).map_or(0, |at| self.ops_of(dir)[at]);
        &self.history[op]
    }

    /// Chooses for the first of `left`, and goes on with the others.
    fn choose(
        &self,
        left: &[(u32, Vec<usize>)],
        taken: &mut BTreeMap<u32, usize>,
        acked: &Acked,
        tree: &Recovered,
        each: &mut impl FnMut(Names) -> Choice,
    ) -> Choice {
        let Some(((dir, fits), rest)) = left.split_first() else {
            return if self.is_legal(taken, acked) {
                each(self.names(taken, tree))
            } else {
                Choice::Next
            };
        };
        for &len in fits {
            if !self.agrees(*dir, len, taken, acked) {
                continue;
            }
            taken.insert(*dir, len);
            if self.choose(rest, taken, acked, tree, each) == Choice::Taken {
                return Choice::Taken;
            }
            taken.remove(dir);
        }
        Choice::Next
    }

    /// Checks the first `len` operations of `dir`: each must be present in the other directories
    /// chosen before, or absent from all of them, and no acknowledged operation may be missing.
    fn agrees(&self, dir: u32, len: usize, taken: &BTreeMap<u32, usize>, acked: &Acked) -> bool {
        let ops = self.ops_of(dir);
        if ops[len..].iter().any(|op| acked.has(*op)) {
            return false;
        }
        taken.iter().all(|(other, n)| {
            let others = self.ops_of(*other);
            (0..).zip(ops).all(|(i, op)| match others.binary_search(op) {
                Ok(at) => (i < len) == (at < *n),
                Err(_) => true,
            })
        })
    }

    /// Checks that the operations present are a prefix of those on each inode and of the renames
    /// and links. A removal must come with the renames and links before it.
    fn is_legal(&self, taken: &BTreeMap<u32, usize>, acked: &Acked) -> bool {
        let there: BTreeSet<usize> =
            taken.iter().flat_map(|(dir, len)| &self.ops_of(*dir)[..*len]).copied().collect();
        let gone = |op: &&usize| !there.contains(*op);
        let first_lost = self.moves.iter().find(gone).copied().unwrap_or(usize::MAX);
        if self.moves.iter().chain(&self.followers).any(|op| *op > first_lost && there.contains(op))
        {
            return false;
        }
        self.of.values().all(|ops| {
            let first_lost = ops.iter().position(|op| !there.contains(op)).unwrap_or(ops.len());
            let lost = &ops[first_lost..];
            !lost.iter().any(|op| there.contains(op) || acked.has(*op))
        })
    }

    /// The tree's paths, each as it was in its directory.
    fn names(&self, taken: &BTreeMap<u32, usize>, tree: &Recovered) -> Names {
        let mut names = Names::new();
        for path in tree.0.keys() {
            let (dir, leaf) = path.rsplit_once('/').unwrap_or(("", path));
            let ino = if dir.is_empty() { ROOT } else { tree.0[dir].ino };
            let at = self.names_at(ino, taken[&ino]);
            let prefix = path_of(at, ino).unwrap_or_default();
            let old = if prefix.is_empty() { leaf.to_owned() } else { format!("{prefix}/{leaf}") };
            names.insert(path.clone(), at[&old].clone());
        }
        names
    }

    /// Why no outcome fits.
    pub fn explain(&self, tree: &Recovered, acked: &Acked) -> String {
        let ops = self.history.len() - 1;
        let mut text = String::new();
        if let Some(at) = self.history.iter().rposition(|names| same_names(names, tree)) {
            text = format!("; they are those after {at} of {ops}");
        }
        if self.order == Order::Linked {
            for &dir in &self.dirs {
                let found = listing_found(tree, dir);
                let lens = 0..=self.ops_of(dir).len();
                let fits: Vec<usize> =
                    lens.filter(|len| listing(self.names_at(dir, *len), dir) == found).collect();
                let of = self.ops_of(dir);
                text +=
                    &format!("\n directory {dir}, operations {of:?}, fits after {fits:?} of them");
            }
        }
        let describe = |names: &Names| -> Vec<String> {
            let lost = names.iter().filter(|(path, name)| {
                tree.0.get(*path).is_none_or(|s| s.ino != name.ino || s.is_dir() != name.is_dir)
            });
            let extra = tree.0.keys().filter(|path| !names.contains_key(*path));
            let lost = lost.map(|(path, name)| format!("-{path}({})", name.ino));
            lost.chain(extra.map(|path| format!("+{path}({})", tree.0[path].ino))).collect()
        };
        let nearest = (0..=ops).min_by_key(|n| describe(&self.history[*n]).len()).unwrap_or(0);
        format!(
            "the names are no legal outcome of {ops} operations \
             (acknowledged: all to {}, {:?}){text}; nearest after {nearest}: {:?}",
            acked.all,
            acked.ops,
            describe(&self.history[nearest])
        )
    }
}

/// Inodes whose names or listings differ.
fn touched(before: &Names, after: &Names) -> BTreeSet<u32> {
    let mut inos = BTreeSet::new();
    for (names, others) in [(before, after), (after, before)] {
        for (path, name) in names {
            if others.get(path) != Some(name) {
                inos.insert(name.ino);
                inos.insert(parent(names, path));
            }
        }
    }
    inos
}

fn parent(names: &Names, path: &str) -> u32 {
    path.rsplit_once('/').map_or(ROOT, |(dir, _)| names[dir].ino)
}

/// Returns the path of a directory; the root's is empty.
fn path_of(names: &Names, dir: u32) -> Option<&str> {
    if dir == ROOT {
        return Some("");
    }
    names.iter().find(|(_, name)| name.is_dir && name.ino == dir).map(|(path, _)| path.as_str())
}

/// `leaf` of a path in `dir`.
fn leaf_in<'a>(path: &'a str, dir: &str) -> Option<&'a str> {
    let leaf = if dir.is_empty() { path } else { path.strip_prefix(dir)?.strip_prefix('/')? };
    (!leaf.contains('/')).then_some(leaf)
}

/// Returns the entries of a directory; `None` if it is not there.
fn listing(names: &Names, dir: u32) -> Option<Listing<'_>> {
    let at = path_of(names, dir)?;
    let entries = names.iter().filter_map(|(path, name)| {
        Some((leaf_in(path, at)?, (name.ino, name.is_dir, name.target.as_slice())))
    });
    Some(entries.collect())
}

fn listing_found(tree: &Recovered, dir: u32) -> Option<Listing<'_>> {
    let is_it = |ino: u32, is_dir: bool| is_dir && ino == dir;
    let at = match dir {
        ROOT => "",
        _ => tree.0.iter().find(|(_, seen)| is_it(seen.ino, seen.is_dir()))?.0,
    };
    let entries = tree.0.iter().filter_map(|(path, seen)| {
        Some((leaf_in(path, at)?, (seen.ino, seen.is_dir(), seen.target.as_slice())))
    });
    Some(entries.collect())
}

fn same_names(names: &Names, tree: &Recovered) -> bool {
    names.len() == tree.0.len()
        && names.iter().zip(&tree.0).all(|((path, name), (found, seen))| {
            path == found
                && name.ino == seen.ino
                && name.is_dir == seen.is_dir()
                && name.target == seen.target
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::history::Seen;

    fn name(ino: u32) -> Name {
        Name { ino, is_dir: ino < 20, ..Name::default() }
    }

    /// A history from steps: paths with an inode are set, those with 0 go.
    fn history(steps: &[&[(&str, u32)]]) -> Vec<Names> {
        let mut all = vec![Names::new()];
        for step in steps {
            let mut names = all[all.len() - 1].clone();
            for (path, ino) in *step {
                names.remove(*path);
                if *ino != 0 {
                    names.insert((*path).to_owned(), name(*ino));
                }
            }
            all.push(names);
        }
        all
    }

    fn tree(names: &[(&str, u32)]) -> Recovered {
        let seen = |ino: u32| Seen {
            ino,
            mode: if ino < 20 { 0o040_755 } else { 0o100_644 },
            nlink: 1,
            ..Seen::default()
        };
        Recovered(names.iter().map(|(path, ino)| ((*path).to_owned(), seen(*ino))).collect())
    }

    fn is_legal(history: &[Names], order: Order, names: &[(&str, u32)], acked: &[usize]) -> bool {
        let mut acks = Acked::default();
        acked.iter().for_each(|op| acks.add(*op, false));
        let mut legal = false;
        Outcomes::new(history, order).each(&tree(names), &acks, |found| {
            legal = same_names(&found, &tree(names));
            Choice::Taken
        });
        legal
    }

    /// Directories d and e, made first; then what the picture of the module shows.
    fn example() -> Vec<Names> {
        history(&[
            &[("d", 11)],
            &[("e", 12)],
            &[("d/a", 21)],
            &[("e/b", 22)],
            &[("d/a", 0), ("e/c", 21)],
            &[("e/b", 0)],
        ])
    }

    #[test]
    fn independent_operations_may_be_separated_in_eager_mode_only() {
        let steps = history(&[&[("d", 11)], &[("e", 12)], &[("d/a", 21)], &[("e/b", 22)]]);
        let second_alone = [("d", 11), ("e", 12), ("e/b", 22)];
        assert!(is_legal(&steps, Order::Linked, &second_alone, &[4]));
        assert!(!is_legal(&steps, Order::All, &second_alone, &[]));
        assert!(is_legal(&steps, Order::All, &[("d", 11), ("e", 12), ("d/a", 21)], &[]));
    }

    #[test]
    fn half_a_rename_is_refused() {
        let steps = example();
        let both = [("d", 11), ("d/a", 21), ("e", 12), ("e/b", 22), ("e/c", 21)];
        let neither = [("d", 11), ("e", 12), ("e/b", 22)];
        for order in [Order::All, Order::Linked] {
            assert!(!is_legal(&steps, order, &both, &[]));
            assert!(!is_legal(&steps, order, &neither, &[3, 4]), "the name was acknowledged");
        }
        // Without `a` ever made, the same tree is legal.
        assert!(is_legal(&steps, Order::Linked, &neither, &[]));
        assert!(is_legal(&steps, Order::Linked, &[("d", 11), ("e", 12), ("e/c", 21)], &[]));
    }

    #[test]
    fn an_operation_without_those_it_depends_on_is_refused() {
        let steps = example();
        // `b` goes after `c` came into the same directory.
        let early = [("d", 11), ("d/a", 21), ("e", 12)];
        assert!(is_legal(&steps, Order::Linked, &early, &[]), "b was never made");
        assert!(!is_legal(&steps, Order::Linked, &early, &[4]), "b was made and lost");
        assert!(is_legal(&steps, Order::Linked, &[("d", 11)], &[]));
        assert!(!is_legal(&steps, Order::Linked, &[("e", 12)], &[]), "d came first in the root");
        // What was made in a directory needs the mkdir, so no tree without e has b.
        assert!(!is_legal(&steps, Order::Linked, &[("d", 11), ("d/a", 21)], &[4]));
        assert!(!is_legal(&steps, Order::Linked, &[("d", 11), ("d/b", 22)], &[]));
    }

    #[test]
    fn operations_of_one_directory_are_not_reordered() {
        let steps = history(&[&[("a", 21)], &[("b", 22)], &[("a", 0)], &[("c", 23)]]);
        for order in [Order::All, Order::Linked] {
            assert!(!is_legal(&steps, order, &[("b", 22), ("a", 21), ("c", 23)], &[]));
            assert!(!is_legal(&steps, order, &[("c", 23)], &[]));
            assert!(!is_legal(&steps, order, &[("b", 99)], &[]));
            assert!(is_legal(&steps, order, &[("b", 22)], &[3]));
            assert!(!is_legal(&steps, order, &[("b", 22)], &[4]));
        }
    }

    /// An object is published by a rename, then the reference that names it, elsewhere.
    #[test]
    fn renames_and_links_are_not_reordered_and_removals_not_before_them() {
        let start: &[&[(&str, u32)]] = &[
            &[("d", 11), ("d/new", 21)],
            &[("e", 12), ("e/new", 22)],
            &[("f", 13), ("f/old", 23)],
        ];
        let before = [("d", 11), ("d/new", 21), ("e", 12), ("e/new", 22), ("f", 13), ("f/old", 23)];
        for publish in [&[("d/new", 0), ("d/object", 21)][..], &[("d/object", 21)]] {
            let then: [&[(&str, u32)]; 2] = [&[("e/new", 0), ("e/reference", 22)], &[("f/old", 0)]];
            let steps: Vec<_> = start.iter().copied().chain([publish, then[0], then[1]]).collect();
            let steps = history(&steps);
            let mut published = before.to_vec();
            published.retain(|(path, _)| publish[0].1 != 0 || *path != "d/new");
            published.push(("d/object", 21));
            let reference = |tree: &[(&'static str, u32)]| {
                let mut tree = tree.to_vec();
                tree.retain(|(path, _)| *path != "e/new");
                tree.push(("e/reference", 22));
                tree
            };
            let removed = |tree: &[(&'static str, u32)]| {
                let mut tree = tree.to_vec();
                tree.retain(|(path, _)| *path != "f/old");
                tree
            };
            let legal = |tree: &[(&str, u32)]| is_legal(&steps, Order::Linked, tree, &[1, 2, 3]);
            assert!(legal(&before) && legal(&published) && legal(&reference(&published)));
            assert!(legal(&removed(&reference(&published))));
            assert!(!legal(&reference(&before)), "the reference without its object");
            assert!(!legal(&removed(&before)) && !legal(&removed(&published)));
        }
    }

    /// A file with names in two directories links them: its second name needs the first.
    #[test]
    fn links_of_one_inode_keep_their_order() {
        let steps =
            history(&[&[("d", 11)], &[("e", 12)], &[("d/a", 21)], &[("e/a", 21)], &[("d/a", 0)]]);
        assert!(is_legal(&steps, Order::Linked, &[("d", 11), ("e", 12), ("e/a", 21)], &[]));
        assert!(is_legal(&steps, Order::Linked, &[("d", 11), ("d/a", 21), ("e", 12)], &[]));
        let steps = history(&[&[("d", 11)], &[("e", 12)], &[("d/a", 21)], &[("e/a", 21)]]);
        assert!(!is_legal(&steps, Order::Linked, &[("d", 11), ("e", 12), ("e/a", 21)], &[]));
    }

    #[test]
    fn everything_is_acknowledged_by_a_sync_of_all() {
        let steps = example();
        let mut acked = Acked::default();
        acked.add(4, true);
        let mut count = 0;
        let found = tree(&[("d", 11), ("d/a", 21), ("e", 12)]);
        Outcomes::new(&steps, Order::Linked).each(&found, &acked, |_| {
            count += 1;
            Choice::Next
        });
        assert_eq!(count, 0);
    }
}
