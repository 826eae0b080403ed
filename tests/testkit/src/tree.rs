//! Operations on trees: what interoperability tests write, on a kernel or on a volume of ours.
//!
//! A [`TreeOp`] is one system call with its arguments; [`apply`] runs a list of them on a
//! [`TreeSink`]: a kernel directory ([`crate::DirTree`]) or a volume of ours. `generate` makes
//! lists. Tested by `tests/it/main.rs`.

use std::fmt::Display;

use crate::manifest::Time;
use crate::rng::fill;

/// A tree that can be written. Paths are relative to its root, without a leading slash.
/// Symbolic links are not followed. Modes are exact: no umask.
#[allow(missing_docs, reason = "each method is the system call of its name")]
pub trait TreeSink {
    /// Its error.
    type Error: Display;

    fn mkdir(&mut self, path: &[u8], mode: u32) -> Result<(), Self::Error>;
    fn create(&mut self, path: &[u8], mode: u32) -> Result<(), Self::Error>;
    fn write(&mut self, path: &[u8], offset: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    fn truncate(&mut self, path: &[u8], size: u64) -> Result<(), Self::Error>;
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), Self::Error>;
    fn hard_link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), Self::Error>;
    fn fifo(&mut self, path: &[u8], mode: u32) -> Result<(), Self::Error>;
    /// `mode` has the type bits, `rdev` is (major, minor).
    fn device(&mut self, path: &[u8], mode: u32, rdev: (u32, u32)) -> Result<(), Self::Error>;
    fn set_xattr(&mut self, path: &[u8], name: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    fn remove_xattr(&mut self, path: &[u8], name: &[u8]) -> Result<(), Self::Error>;
    fn chmod(&mut self, path: &[u8], mode: u32) -> Result<(), Self::Error>;
    fn chown(&mut self, path: &[u8], uid: u32, gid: u32) -> Result<(), Self::Error>;
    fn set_mtime(&mut self, path: &[u8], mtime: Time) -> Result<(), Self::Error>;
    fn unlink(&mut self, path: &[u8]) -> Result<(), Self::Error>;
    fn rmdir(&mut self, path: &[u8]) -> Result<(), Self::Error>;
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Self::Error>;
}

/// One operation on a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the arguments of the system call")]
pub enum TreeOp {
    Mkdir {
        path: Vec<u8>,
        mode: u32,
    },
    Create {
        path: Vec<u8>,
        mode: u32,
    },
    /// Bytes `offset .. offset + len` of stream `seed`, see [`fill`].
    Write {
        path: Vec<u8>,
        offset: u64,
        len: usize,
        seed: u64,
    },
    Truncate {
        path: Vec<u8>,
        size: u64,
    },
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    HardLink {
        path: Vec<u8>,
        existing: Vec<u8>,
    },
    Fifo {
        path: Vec<u8>,
        mode: u32,
    },
    Device {
        path: Vec<u8>,
        mode: u32,
        rdev: (u32, u32),
    },
    SetXattr {
        path: Vec<u8>,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: Vec<u8>,
        name: Vec<u8>,
    },
    Chmod {
        path: Vec<u8>,
        mode: u32,
    },
    Chown {
        path: Vec<u8>,
        uid: u32,
        gid: u32,
    },
    SetMtime {
        path: Vec<u8>,
        mtime: Time,
    },
    Unlink {
        path: Vec<u8>,
    },
    Rmdir {
        path: Vec<u8>,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
    },
}

/// Runs the operations in order.
pub fn apply<S: TreeSink>(ops: &[TreeOp], sink: &mut S) -> Result<(), String> {
    let mut buffer = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        apply_one(op, sink, &mut buffer)
            .map_err(|error| format!("operation {number}, {op:?}: {error}"))?;
    }
    Ok(())
}

fn apply_one<S: TreeSink>(op: &TreeOp, to: &mut S, buffer: &mut Vec<u8>) -> Result<(), S::Error> {
    match op {
        TreeOp::Mkdir { path, mode } => to.mkdir(path, *mode),
        TreeOp::Create { path, mode } => to.create(path, *mode),
        TreeOp::Write { path, offset, len, seed } => {
            buffer.resize(*len, 0);
            fill(*seed, *offset, buffer);
            to.write(path, *offset, buffer)
        }
        TreeOp::Truncate { path, size } => to.truncate(path, *size),
        TreeOp::Symlink { path, target } => to.symlink(path, target),
        TreeOp::HardLink { path, existing } => to.hard_link(path, existing),
        TreeOp::Fifo { path, mode } => to.fifo(path, *mode),
        TreeOp::Device { path, mode, rdev } => to.device(path, *mode, *rdev),
        TreeOp::SetXattr { path, name, value } => to.set_xattr(path, name, value),
        TreeOp::RemoveXattr { path, name } => to.remove_xattr(path, name),
        TreeOp::Chmod { path, mode } => to.chmod(path, *mode),
        TreeOp::Chown { path, uid, gid } => to.chown(path, *uid, *gid),
        TreeOp::SetMtime { path, mtime } => to.set_mtime(path, *mtime),
        TreeOp::Unlink { path } => to.unlink(path),
        TreeOp::Rmdir { path } => to.rmdir(path),
        TreeOp::Rename { from, to: target } => to.rename(from, target),
    }
}
