//! Compares a whole volume with the reference: every name, attribute and byte.

use std::collections::{BTreeMap, BTreeSet};

use syncline_fs::{FileKind, FsError, InodeRef, Timestamp, Volume};

use crate::reference::{Kind, Node, NodeId, ROOT, Reference};

/// Files up to this size are also read as a whole; beyond it only their data ranges.
const READ_WHOLE_BYTES: u64 = 1 << 20;
const CHUNK: usize = 64 * 1024;

fn ns_of(time: Timestamp) -> Option<u64> {
    let seconds = u64::try_from(time.seconds).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::from(time.nanoseconds))
}

fn kind_of(mode: u16) -> FileKind {
    match mode & 0o170_000 {
        0o040_000 => FileKind::Directory,
        0o100_000 => FileKind::Regular,
        0o120_000 => FileKind::Symlink,
        0o010_000 => FileKind::Fifo,
        0o140_000 => FileKind::Socket,
        _ => FileKind::Unknown,
    }
}

struct Walk<'a> {
    volume: &'a Volume,
    reference: &'a Reference,
    /// Inode number of each node, collected during the comparison.
    inodes: BTreeMap<NodeId, u32>,
    nodes: BTreeMap<u32, NodeId>,
}

/// Compares everything that can be reached from the root, and what `open` holds.
pub fn compare_tree<'a>(
    volume: &Volume,
    reference: &Reference,
    open: impl Iterator<Item = (&'a InodeRef, NodeId)>,
) -> Result<(), String> {
    let (inodes, nodes) = (BTreeMap::new(), BTreeMap::new());
    let mut walk = Walk { volume, reference, inodes, nodes };
    let root = volume.root().map_err(|e| format!("root: {e}"))?;
    walk.dir(&root, ROOT, root.ino, "")?;
    for (inode, id) in open {
        walk.inode(inode, id, &format!("handle of inode {}", inode.ino))?;
    }
    Ok(())
}

impl Walk<'_> {
    fn dir(&mut self, dir: &InodeRef, id: NodeId, parent: u32, path: &str) -> Result<(), String> {
        self.inode(dir, id, path)?;
        let mut listed = BTreeMap::new();
        let mut twice = None;
        let read = self.volume.readdir(dir, 0, &mut |entry| {
            let (name, ino) = (entry.name.to_vec(), (entry.ino, entry.kind));
            if listed.insert(name.clone(), ino).is_some() {
                twice = Some(name);
            }
            true
        });
        read.map_err(|e| format!("readdir of /{path}: {e}"))?;
        if let Some(name) = twice {
            return Err(format!("/{path}: {} is listed twice", name.escape_ascii()));
        }
        for (dots, ino) in [(&b"."[..], dir.ino), (b"..", parent)] {
            // lost+found has no node in the reference; it is not walked.
            if listed.remove(dots) != Some((ino, FileKind::Directory)) {
                return Err(format!("/{path}: {} is wrong", dots.escape_ascii()));
            }
        }
        if path.is_empty() {
            listed.remove(&b"lost+found"[..]);
        }
        let wanted = self.reference.entries(id).map_err(|e| format!("/{path}: errno {e}"))?;
        if !listed.keys().eq(wanted.keys()) {
            let have: BTreeSet<_> = listed.keys().collect();
            let want: BTreeSet<_> = wanted.keys().collect();
            let lost: Vec<_> =
                want.difference(&have).map(|n| n.escape_ascii().to_string()).collect();
            let new: Vec<_> =
                have.difference(&want).map(|n| n.escape_ascii().to_string()).collect();
            return Err(format!("/{path}: names missing {lost:?}, too many {new:?}"));
        }
        for (name, child) in wanted {
            let below = format!("{path}/{}", name.escape_ascii());
            let inode =
                self.volume.lookup(dir, name).map_err(|e| format!("lookup {below}: {e}"))?;
            let node = self.reference.node(*child);
            let expected = (inode.ino, kind_of(node.st_mode()));
            if listed.get(name) != Some(&expected) {
                let listed = listed.get(name);
                return Err(format!("{below}: listed as {listed:?}, found {expected:?}"));
            }
            if matches!(node.kind, Kind::Dir(_)) {
                self.dir(&inode, *child, dir.ino, &below)?;
            } else {
                self.inode(&inode, *child, &below)?;
            }
        }
        Ok(())
    }

    fn inode(&mut self, inode: &InodeRef, id: NodeId, path: &str) -> Result<(), String> {
        let known = self.inodes.insert(id, inode.ino);
        let owner = self.nodes.insert(inode.ino, id);
        if known.is_some_and(|ino| ino != inode.ino) || owner.is_some_and(|node| node != id) {
            return Err(format!("{path}: inode {} is another file", inode.ino));
        }
        if known.is_some() {
            return Ok(());
        }
        let node = self.reference.node(id);
        self.attributes(inode, node, path, id == ROOT)?;
        self.xattrs(inode, node).map_err(|e| format!("{path}: {e}"))?;
        match &node.kind {
            Kind::Symlink(target) => match self.volume.readlink(inode) {
                Ok(found) if found == *target => Ok(()),
                other => Err(format!("{path}: link is {other:?}, not {} B", target.len())),
            },
            Kind::File(_) => {
                compare_file(self.volume, inode, node).map_err(|e| format!("{path}: {e}"))
            }
            Kind::Dir(_) | Kind::Special(_) => Ok(()),
        }
    }

    fn attributes(
        &self,
        inode: &InodeRef,
        node: &Node,
        path: &str,
        root: bool,
    ) -> Result<(), String> {
        let attr = self.volume.getattr(inode);
        let size = match &node.kind {
            Kind::File(bytes) => bytes.size(),
            Kind::Symlink(target) => target.len() as u64,
            Kind::Special(_) => 0,
            Kind::Dir(_) => attr.size,
        };
        // The root has lost+found, which the reference does not.
        let nlink = node.nlink + u32::from(root);
        let have = (attr.mode, attr.uid, attr.gid, attr.nlink, attr.size);
        let want = (node.st_mode(), node.uid, node.gid, nlink, size);
        if have != want {
            return Err(format!("{path}: (mode, uid, gid, nlink, size) {have:?}, not {want:?}"));
        }
        if (!root || node.mtime_ns != 0) && ns_of(attr.mtime) != Some(node.mtime_ns) {
            return Err(format!("{path}: mtime {:?}, not {} ns", attr.mtime, node.mtime_ns));
        }
        Ok(())
    }

    fn xattrs(&self, inode: &InodeRef, node: &Node) -> Result<(), String> {
        let names = self.volume.listxattr(inode).map_err(|e| format!("listxattr: {e}"))?;
        let have: BTreeSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let want: BTreeSet<&[u8]> = node.xattrs.keys().map(Vec::as_slice).collect();
        if have != want || names.len() != have.len() {
            let have: Vec<String> = names.iter().map(|n| n.escape_ascii().to_string()).collect();
            return Err(format!("attributes {have:?}, not {} of them", want.len()));
        }
        for (name, value) in &node.xattrs {
            let found = self.volume.getxattr(inode, name);
            if found.as_ref() != Ok(value) {
                return Err(format!("attribute {} differs", name.escape_ascii()));
            }
        }
        Ok(())
    }
}

/// Compares the bytes of a file: the data ranges with the reference, the reference with zeros
/// between them, and all of it if it is short.
pub(crate) fn compare_file(volume: &Volume, inode: &InodeRef, node: &Node) -> Result<(), String> {
    let Kind::File(bytes) = &node.kind else { return Err("not a file".to_owned()) };
    let size = bytes.size();
    let mut at = 0;
    while at < size {
        let start = match volume.seek_data(inode, at) {
            Ok(start) => start,
            Err(FsError::NoSuchOffset) => size,
            Err(err) => return Err(format!("seek_data({at}): {err}")),
        };
        if start < at || !bytes.is_zero(at, start) {
            return Err(format!("bytes {at}..{start} are called a hole and should have data"));
        }
        if start >= size {
            break;
        }
        let end = volume.seek_hole(inode, start).map_err(|e| format!("seek_hole: {e}"))?;
        if end <= start || end > size {
            return Err(format!("seek_hole({start}) gives {end} in a file of {size} bytes"));
        }
        compare_range(volume, inode, bytes, start, end)?;
        at = end;
    }
    if size <= READ_WHOLE_BYTES {
        compare_range(volume, inode, bytes, 0, size)?;
    }
    Ok(())
}

fn compare_range(
    volume: &Volume,
    inode: &InodeRef,
    bytes: &crate::SparseBytes,
    start: u64,
    end: u64,
) -> Result<(), String> {
    let (mut have, mut want) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = start;
    while at < end {
        let len = (end - at).min(CHUNK as u64) as usize;
        let n = volume.read(inode, at, &mut have[..len]).map_err(|e| format!("read: {e}"))?;
        bytes.read(at, &mut want[..len]);
        if n != len {
            return Err(format!("read of {len} bytes at {at} gives {n}"));
        }
        if have[..len] != want[..len] {
            let first = (0..len).find(|i| have[*i] != want[*i]).unwrap_or(0);
            let (have, want) = (have[first], want[first]);
            let first = at + first as u64;
            return Err(format!("byte {first} is {have:#x}, not {want:#x}"));
        }
        at += len as u64;
    }
    Ok(())
}
