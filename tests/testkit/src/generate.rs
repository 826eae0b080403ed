//! Seeded trees for interoperability tests.
//!
//! [`gen_tree`] makes deep and wide directories, names up to 255 bytes in several encodings, sparse
//! files, extended attributes in the inode and in a block, hard links, fast and slow symbolic
//! links, fifos, device files, odd modes and owners, and times before 1970 and past 2038.
//! [`gen_changes`] continues on a tree that was read back from any file system.
//!
//! Promises: same seed and options, same operations; every operation succeeds on a volume with
//! room; every path exists before it is used. Times are set last, so that they stay as set.
//! Tested below, and on a kernel by `tests/it/main.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{Time, TreeManifest, join};
use crate::rng::{Random, fill};
use crate::tree::TreeOp;

/// Properties of a generated tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// About how many names.
    pub names: usize,
    /// Device files, foreign owners and `trusted.` attributes.
    pub root: bool,
    /// Largest extended attribute value in bytes; above about 100 they do not fit into the inode.
    /// Keep it below the block size less 300.
    pub xattr_bytes_max: usize,
    /// Largest file written in one piece, in bytes.
    pub file_bytes_max: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { names: 500, root: false, xattr_bytes_max: 600, file_bytes_max: 64 * 1024 }
    }
}

/// Operations that build a tree on an empty volume.
#[must_use]
pub fn gen_tree(seed: u64, options: TreeOptions) -> Vec<TreeOp> {
    let mut maker = Maker::new(format!("t{seed:x}"), seed, options);
    maker.deep_chain();
    maker.wide_dir();
    while maker.made < options.names {
        maker.one_name();
    }
    maker.finish()
}

/// Operations that change about `count` names of a tree that exists: overwrites, truncations,
/// renames, removals, new names, attributes. Works on trees from anybody; each round of changes to
/// one tree takes another seed.
#[must_use]
pub fn gen_changes(
    seed: u64,
    tree: &TreeManifest,
    count: usize,
    options: TreeOptions,
) -> Vec<TreeOp> {
    let mut maker = Maker::new(format!("c{seed:x}"), seed, options);
    maker.dirs.clear();
    for (path, entry) in &tree.entries {
        if entry.is_dir() {
            maker.dirs.push(path.clone());
        } else if entry.is_file() {
            maker.files.push(path.clone());
        } else {
            maker.others.push(path.clone());
        }
        if entry.stat.nlink > 1 && !entry.is_dir() {
            maker.linked.insert(path.clone());
        }
    }
    for _ in 0..count {
        maker.one_change();
    }
    maker.finish()
}

/// The state of a generator: which names exist, so that every operation is legal.
struct Maker {
    random: Random,
    options: TreeOptions,
    ops: Vec<TreeOp>,
    dirs: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
    /// Links, fifos, devices.
    others: Vec<Vec<u8>>,
    /// Files that may have more than one name.
    linked: BTreeSet<Vec<u8>>,
    /// Paths whose time is set at the end.
    times: BTreeMap<Vec<u8>, Time>,
    made: usize,
    /// In each new name, together with the serial number: names never meet older ones.
    tag: String,
    serial: u64,
}

impl Maker {
    fn new(tag: String, seed: u64, options: TreeOptions) -> Self {
        Self {
            tag,
            random: Random::new(seed),
            options,
            ops: Vec::new(),
            dirs: vec![Vec::new()],
            files: Vec::new(),
            others: Vec::new(),
            linked: BTreeSet::new(),
            times: BTreeMap::new(),
            made: 0,
            serial: 0,
        }
    }

    fn finish(mut self) -> Vec<TreeOp> {
        let times = std::mem::take(&mut self.times);
        self.ops.extend(times.into_iter().map(|(path, mtime)| TreeOp::SetMtime { path, mtime }));
        self.ops
    }

    /// A name that is new everywhere: it carries tag and serial number. At most 255 bytes.
    fn name(&mut self, dir: &[u8]) -> Vec<u8> {
        self.serial += 1;
        let stem = match self.random.below(8) {
            0 => "файл-",
            1 => "名前-",
            2 => "with space\n-",
            3 => ".hidden-",
            4 => "\u{1f980}-",
            _ => "file-",
        };
        let mut name = format!("{stem}{}-{:x}", self.tag, self.serial).into_bytes();
        if self.random.one_in(40) {
            name.extend_from_slice(b"\xff\xfe");
        }
        let room = 3500_usize.saturating_sub(dir.len()).clamp(name.len(), 255);
        if self.random.one_in(12) {
            name.resize(room, b'x');
        } else if self.random.one_in(6) {
            let len = name.len() + self.random.index(room - name.len() + 1);
            name.resize(len, b'-');
        }
        name
    }

    fn path(&mut self) -> Vec<u8> {
        let dir = self.dirs[self.random.index(self.dirs.len())].clone();
        let name = self.name(&dir);
        join(&dir, &name)
    }

    fn mode(&mut self) -> u32 {
        const MODES: [u32; 8] = [0o644, 0o600, 0o755, 0o4755, 0o2640, 0o1666, 0o000, 0o7777];
        MODES[self.random.index(MODES.len())]
    }

    /// Every range that ext4's 34 bits of seconds can hold: -2^31 is in 1901, the end in 2446.
    fn time(&mut self) -> Time {
        let seconds = match self.random.below(5) {
            0 => -(self.random.below(1 << 31) as i64) - 1,
            1 => (1 << 31) + self.random.below((1 << 34) - (1 << 32)) as i64,
            2 => [-(1 << 31), -1, 0, (1 << 31) - 1, 1 << 31, 15_032_385_535][self.random.index(6)],
            _ => 1_000_000_000 + self.random.below(1 << 29) as i64,
        };
        Time { seconds, nanos: self.random.below(1_000_000_000) as u32 }
    }

    fn deep_chain(&mut self) {
        let mut path = Vec::new();
        for level in 0..(self.options.names / 10).min(60) {
            path = join(&path, format!("d{level}").as_bytes());
            self.add_dir(path.clone());
        }
    }

    /// One directory with a fifth of all names: a hash tree, in two levels for small blocks.
    fn wide_dir(&mut self) {
        let dir = b"wide".to_vec();
        self.add_dir(dir.clone());
        for _ in 0..self.options.names / 5 {
            let name = self.name(&dir);
            self.add_file(join(&dir, &name), false);
        }
    }

    fn add_dir(&mut self, path: Vec<u8>) {
        self.made += 1;
        // The owner keeps all rights, so that a plain user can build below it.
        let mode = 0o700 | self.mode();
        self.ops.push(TreeOp::Mkdir { path: path.clone(), mode });
        self.attributes(&path, true);
        self.dirs.push(path);
    }

    fn add_file(&mut self, path: Vec<u8>, with_data: bool) {
        self.made += 1;
        // As above: readable and writable for its owner until the mode is set at last.
        let mode = 0o600 | self.mode();
        self.ops.push(TreeOp::Create { path: path.clone(), mode });
        if with_data {
            self.contents(&path);
        }
        self.attributes(&path, true);
        self.files.push(path);
    }

    fn contents(&mut self, path: &[u8]) {
        let max = self.options.file_bytes_max;
        match self.random.below(6) {
            0 => {}
            1 => {
                // Sparse: a few pieces far apart, perhaps a hole at the end.
                let reach = if self.random.one_in(20) { 1 << 23 } else { 1 << 18 };
                let mut end = 0;
                for _ in 0..=self.random.below(4) {
                    let offset = self.random.below(reach);
                    let len = 1 + self.random.below(9000);
                    self.write(path, offset, len);
                    end = end.max(offset + len);
                }
                if self.random.one_in(2) {
                    let size = end + self.random.below(1 << 17);
                    self.ops.push(TreeOp::Truncate { path: path.to_vec(), size });
                }
            }
            2 => {
                let len = 1 + self.random.below(max);
                self.write(path, 0, len);
                let size = self.random.below(len);
                self.ops.push(TreeOp::Truncate { path: path.to_vec(), size });
            }
            3 => {
                let len = 1 + self.random.below(max);
                self.write(path, 0, len);
            }
            _ => {
                let len = 1 + self.random.below(5000);
                self.write(path, 0, len);
            }
        }
    }

    fn write(&mut self, path: &[u8], offset: u64, len: u64) {
        let seed = self.random.bits();
        let len = usize::try_from(len).unwrap_or(1);
        self.ops.push(TreeOp::Write { path: path.to_vec(), offset, len, seed });
    }

    fn attributes(&mut self, path: &[u8], user_xattrs: bool) {
        let count = if self.random.one_in(5) { 1 + self.random.below(3) } else { 0 };
        let share = self.options.xattr_bytes_max / 3;
        for n in 0..count {
            let prefix = match (user_xattrs, self.options.root && self.random.one_in(4)) {
                (true, false) => "user",
                (_, true) => "trusted",
                (false, false) => continue,
            };
            let len = if self.random.one_in(2) { 12 } else { share };
            let mut value = vec![0; self.random.index(len + 1)];
            fill(self.random.bits(), 0, &mut value);
            let name = format!("{prefix}.attribute{n}").into_bytes();
            self.ops.push(TreeOp::SetXattr { path: path.to_vec(), name, value });
        }
        if self.options.root && self.random.one_in(4) {
            let pick = |r: &mut Random| [0, 1000, 65_534, 65_536, 4_000_000_000][r.index(5)];
            let (uid, gid) = (pick(&mut self.random), pick(&mut self.random));
            // chown clears the set-id bits, so the mode comes after it.
            let mode = 0o600 | self.mode();
            let is_link = self.others.last().is_some_and(|p| p == path);
            self.ops.push(TreeOp::Chown { path: path.to_vec(), uid, gid });
            if !is_link {
                self.ops.push(TreeOp::Chmod { path: path.to_vec(), mode });
            }
        }
        if !self.random.one_in(3) {
            let time = self.time();
            self.times.insert(path.to_vec(), time);
        }
    }

    fn add_other(&mut self, op: TreeOp, path: Vec<u8>) {
        self.made += 1;
        self.ops.push(op);
        self.others.push(path.clone());
        self.attributes(&path, false);
    }

    fn one_name(&mut self) {
        let path = self.path();
        match self.random.below(20) {
            0..=2 => self.add_dir(path),
            3 => {
                // 59 bytes are the longest that fit into the inode, 60 need a block.
                let len = [1, 20, 59, 60, 61, 300, 1000][self.random.index(7)];
                let target = vec![b'a' + self.random.below(26) as u8; len];
                let op = TreeOp::Symlink { path: path.clone(), target };
                self.add_other(op, path);
            }
            4 if !self.files.is_empty() => {
                let existing = self.files[self.random.index(self.files.len())].clone();
                self.made += 1;
                self.linked.insert(existing.clone());
                self.linked.insert(path.clone());
                self.ops.push(TreeOp::HardLink { path: path.clone(), existing });
                self.files.push(path);
            }
            5 => {
                let op = TreeOp::Fifo { path: path.clone(), mode: self.mode() };
                self.add_other(op, path);
            }
            6 if self.options.root => {
                let kind = if self.random.one_in(2) { 0o060_000 } else { 0o020_000 };
                let rdev = [(1, 3), (8, 1), (259, 5), (4095, 1_048_575)][self.random.index(4)];
                let op = TreeOp::Device { path: path.clone(), mode: kind | self.mode(), rdev };
                self.add_other(op, path);
            }
            _ => self.add_file(path, true),
        }
    }

    fn one_change(&mut self) {
        let file = (!self.files.is_empty()).then(|| self.random.index(self.files.len()));
        match (self.random.below(10), file) {
            (0, Some(at)) => {
                let path = self.files.swap_remove(at);
                self.forget(&path);
                self.ops.push(TreeOp::Unlink { path });
            }
            (1, Some(at)) => {
                let to = self.path();
                let from = std::mem::replace(&mut self.files[at], to.clone());
                self.forget(&from);
                if self.linked.contains(&from) {
                    self.linked.insert(to.clone());
                }
                self.ops.push(TreeOp::Rename { from, to });
            }
            (2, Some(at)) => self.rename_over(at),
            (3..=4, Some(at)) => {
                let path = self.files[at].clone();
                self.contents(&path);
            }
            (5, Some(at)) => {
                let path = self.files[at].clone();
                let size = self.random.below(self.options.file_bytes_max);
                self.ops.push(TreeOp::Truncate { path, size });
            }
            (6, _) if !self.others.is_empty() => {
                let at = self.random.index(self.others.len());
                let path = self.others.swap_remove(at);
                self.forget(&path);
                self.ops.push(TreeOp::Unlink { path });
            }
            _ => self.one_name(),
        }
    }

    /// A rename onto a name that exists. Not between names that may be one inode: that is a no-op.
    fn rename_over(&mut self, at: usize) {
        let other = self.random.index(self.files.len());
        let (from, to) = (self.files[at].clone(), self.files[other].clone());
        if at == other || self.linked.contains(&from) {
            return;
        }
        self.files.swap_remove(at);
        self.forget(&from);
        self.forget(&to);
        self.linked.remove(&to);
        self.ops.push(TreeOp::Rename { from, to });
    }

    fn forget(&mut self, path: &[u8]) {
        self.times.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(op: &TreeOp, kind: &str) -> bool {
        format!("{op:?}").starts_with(kind)
    }

    #[test]
    fn same_seed_same_operations() {
        let options = TreeOptions { root: true, ..TreeOptions::default() };
        assert_eq!(gen_tree(1, options), gen_tree(1, options));
        assert_ne!(gen_tree(1, options), gen_tree(2, options));
    }

    #[test]
    fn a_tree_has_every_kind_of_thing() {
        let options = TreeOptions { names: 3000, root: true, ..TreeOptions::default() };
        let ops = gen_tree(3, options);
        for kind in ["Mkdir", "Create", "Write", "Truncate", "Symlink", "HardLink", "Fifo"] {
            assert!(ops.iter().any(|op| is(op, kind)), "{kind}");
        }
        for kind in ["Device", "SetXattr", "Chmod", "Chown", "SetMtime"] {
            assert!(ops.iter().any(|op| is(op, kind)), "{kind}");
        }
        let times: Vec<i64> = ops
            .iter()
            .filter_map(|op| match op {
                TreeOp::SetMtime { mtime, .. } => Some(mtime.seconds),
                _ => None,
            })
            .collect();
        assert!(times.iter().any(|t| *t < 0) && times.iter().any(|t| *t > 1 << 32));
        let longest = ops.iter().filter_map(|op| match op {
            TreeOp::Create { path, .. } => path.rsplit(|b| *b == b'/').next().map(<[u8]>::len),
            _ => None,
        });
        assert_eq!(longest.max(), Some(255));
    }

    #[test]
    fn a_plain_user_gets_nothing_that_needs_root() {
        let ops = gen_tree(4, TreeOptions { names: 2000, ..TreeOptions::default() });
        assert!(!ops.iter().any(|op| is(op, "Device") || is(op, "Chown")));
        assert!(
            !ops.iter().any(
                |op| matches!(op, TreeOp::SetXattr { name, .. } if name.starts_with(b"trusted"))
            )
        );
    }
}
