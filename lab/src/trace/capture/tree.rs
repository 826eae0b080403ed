//! Paths of inodes, from the names that the kernel learns.
//!
//! An inode is known from its first lookup until the kernel forgets it, so this holds what the
//! kernel holds. A directory is never forgotten before what is in it. An inode with several names
//! has the one learned last; one whose name was lost is called by its number.
//!
//! Tested below.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use syncline_fuse::Found;

/// The root directory.
const ROOT: u32 = 2;

/// Deepest path; what is deeper is called by its number.
const DEPTH_MAX: usize = 4096;

struct Node {
    dir: u32,
    name: Box<[u8]>,
    lookups: u64,
    found: Found,
    /// It was there before the capture, and no record says so yet.
    unsaid: bool,
    /// The path, as of that count of renamed directories.
    path: Option<(u64, Arc<str>)>,
}

/// The inodes that the kernel knows.
#[derive(Default)]
pub(super) struct Tree {
    nodes: FxHashMap<u32, Node>,
    /// Directories renamed so far: each makes all paths below it others.
    renamed: u64,
}

/// `name` in a directory with the path `dir`.
pub(super) fn join(dir: &str, name: &[u8]) -> Arc<str> {
    let slash = if dir.ends_with('/') { "" } else { "/" };
    format!("{dir}{slash}{}", String::from_utf8_lossy(name)).into()
}

impl Tree {
    /// The kernel has learned a name, or an inode has got another one. `made`: the call made it.
    pub(super) fn learned(&mut self, dir: u32, name: &[u8], found: Found, made: bool) {
        if found.ino == ROOT || found.ino == 0 {
            return;
        }
        let node = self.nodes.entry(found.ino).or_insert_with(|| Node {
            dir,
            name: name.into(),
            lookups: 0,
            found,
            unsaid: !made && found.is_file,
            path: None,
        });
        node.lookups += 1;
        node.unsaid &= !made;
        if node.found != found {
            node.found = found;
        }
        if (node.dir, node.name.as_ref()) != (dir, name) {
            (node.dir, node.name, node.path) = (dir, name.into(), None);
        }
    }

    /// An inode has got another name and the kernel knows it as often as before.
    pub(super) fn moved(&mut self, dir: u32, name: &[u8], found: Found) {
        self.learned(dir, name, found, false);
        if let Some(node) = self.nodes.get_mut(&found.ino) {
            // One that was not known until now stays so.
            node.lookups = node.lookups.saturating_sub(1);
        }
        self.renamed += u64::from(found.is_dir);
    }

    pub(super) fn forgot(&mut self, ino: u32, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// Its size so far, and whether that is to be said because it was there before; asked once.
    pub(super) fn present(&mut self, ino: u32) -> Option<u64> {
        let node = self.nodes.get_mut(&ino)?;
        std::mem::take(&mut node.unsaid).then_some(node.found.size_bytes)
    }

    pub(super) fn size_bytes(&self, ino: u32) -> Option<u64> {
        self.nodes.get(&ino).filter(|node| node.found.is_file).map(|node| node.found.size_bytes)
    }

    pub(super) fn set_size(&mut self, ino: u32, size_bytes: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.found.size_bytes = size_bytes;
        }
    }

    /// The path from the root of the mount.
    pub(super) fn path(&mut self, ino: u32) -> Arc<str> {
        let mut below = Vec::new();
        let mut at = ino;
        let mut path: Arc<str> = loop {
            if at == ROOT {
                break "/".into();
            }
            let Some(node) = self.nodes.get(&at).filter(|_| below.len() < DEPTH_MAX) else {
                break format!("/#{at}").into();
            };
            match &node.path {
                Some((renamed, path)) if *renamed == self.renamed => break Arc::clone(path),
                _ => below.push(at),
            }
            at = node.dir;
        };
        for ino in below.into_iter().rev() {
            let Some(node) = self.nodes.get_mut(&ino) else { break };
            path = join(&path, &node.name);
            node.path = Some((self.renamed, Arc::clone(&path)));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(ino: u32) -> Found {
        Found { ino, is_dir: true, ..Found::default() }
    }

    fn file(ino: u32, size_bytes: u64) -> Found {
        Found { ino, size_bytes, is_dir: false, is_file: true }
    }

    #[test]
    fn paths_follow_renames_of_what_is_above() {
        let mut tree = Tree::default();
        tree.learned(ROOT, b"a", dir(11), false);
        tree.learned(11, b"b", dir(12), false);
        tree.learned(12, b"f", file(13, 5), false);
        assert_eq!(&*tree.path(13), "/a/b/f");
        tree.moved(ROOT, b"c", dir(11));
        assert_eq!((&*tree.path(13), &*tree.path(12)), ("/c/b/f", "/c/b"));
        tree.moved(11, b"g", file(13, 5));
        assert_eq!(&*tree.path(13), "/c/g");
        assert_eq!(&*tree.path(ROOT), "/");
        assert_eq!(&*tree.path(99), "/#99");
    }

    #[test]
    fn what_the_kernel_forgets_is_forgotten() {
        let mut tree = Tree::default();
        tree.learned(ROOT, b"f", file(13, 5), false);
        tree.learned(ROOT, b"f", file(13, 5), false);
        tree.moved(ROOT, b"g", file(13, 5));
        tree.forgot(13, 1);
        assert_eq!(&*tree.path(13), "/g");
        tree.forgot(13, 1);
        assert_eq!((&*tree.path(13), tree.nodes.len()), ("/#13", 0));
    }

    #[test]
    fn only_what_was_there_is_said_and_once() {
        let mut tree = Tree::default();
        tree.learned(ROOT, b"old", file(13, 5), false);
        tree.learned(ROOT, b"new", file(14, 0), true);
        tree.learned(ROOT, b"new", file(14, 7), false);
        assert_eq!([13, 13, 14, 15].map(|ino| tree.present(ino)), [Some(5), None, None, None]);
        assert_eq!((tree.size_bytes(14), tree.size_bytes(15)), (Some(7), None));
    }

    /// A loop of directories cannot come from the kernel; it must end all the same.
    #[test]
    fn a_loop_ends() {
        let mut tree = Tree::default();
        tree.learned(12, b"a", dir(11), false);
        tree.learned(11, b"b", dir(12), false);
        assert!(tree.path(11).ends_with("/a"));
    }
}
