//! Seeded lists of operations on a volume, for the model test.
//!
//! Each operation stands for itself: it names paths and handle slots, never something that an
//! earlier one made. So any part of a list is a list, which is what shrinking needs; operations
//! whose path is not there must fail, and that is compared too. Names and directories are few, so
//! that operations meet.
//!
//! Promises: same seed, same list.

use crate::reference::{RenameMode, XattrMode};
use syncline_testkit::Random;

/// Handle slots.
pub const SLOTS: u8 = 4;

/// The file that an operation works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By path.
    Path(String),
    /// Through a handle, open or not.
    Slot(u8),
}

/// Mode of a fallocate operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Linux's")]
pub enum Falloc {
    Allocate,
    KeepSize,
    PunchHole,
    ZeroRange,
    ZeroRangeKeepSize,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the system call of its name")]
pub enum ModelOp {
    Create {
        path: String,
        mode: u16,
    },
    Mkdir {
        path: String,
        mode: u16,
    },
    Mknod {
        path: String,
        kind: u16,
        mode: u16,
    },
    Symlink {
        path: String,
        target_len: usize,
    },
    Link {
        existing: Target,
        path: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        mode: RenameMode,
    },
    Open {
        slot: u8,
        path: String,
    },
    Close {
        slot: u8,
    },
    Write {
        target: Target,
        offset: u64,
        len: usize,
        seed: u64,
    },
    Append {
        target: Target,
        len: usize,
        seed: u64,
    },
    Truncate {
        target: Target,
        size: u64,
    },
    Fallocate {
        target: Target,
        mode: Falloc,
        offset: u64,
        len: u64,
    },
    Read {
        target: Target,
        offset: u64,
        len: usize,
    },
    Seek {
        target: Target,
        offset: u64,
    },
    SetXattr {
        path: String,
        name: String,
        len: usize,
        seed: u64,
        mode: XattrMode,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Chmod {
        path: String,
        mode: u16,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetMtime {
        path: String,
        mtime_ns: u64,
    },
    Readdir {
        path: String,
    },
    Fsync {
        target: Target,
        datasync: bool,
    },
    Syncfs,
    /// Time passes, and the volume gets its tick.
    Tick {
        ms: u64,
    },
    /// The whole tree is compared.
    Compare,
    /// Unmount and mount, or everything synced, dropped and recovered.
    Remount {
        crash: bool,
    },
}

/// Parameters of a generated list of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpOptions {
    /// Operations.
    pub count: usize,
    /// Block size in bytes: offsets and lengths gather around its multiples.
    pub block_size: u64,
    /// Most writes are below this offset.
    pub reach_bytes: u64,
    /// More data and fewer removals, to run out of space.
    pub fill: bool,
    /// Values of attributes have fewer bytes.
    pub xattr_bytes: u64,
}

/// The list of a seed. It begins with a few directories and files and ends with a comparison.
#[must_use]
pub fn gen_ops(seed: u64, options: OpOptions) -> Vec<ModelOp> {
    let mut maker = OpMaker { random: Random::new(seed), options };
    let dirs = ["d", "e", "d/e", "d/d", "d/d/f"].map(str::to_owned);
    let mut ops: Vec<ModelOp> =
        dirs.map(|path| ModelOp::Mkdir { path, mode: 0o755 }).into_iter().collect();
    for dir in ["", "d/", "e/", "d/e/", "d/d/f/"] {
        ops.extend(
            ["a", "b", "c"].map(|n| ModelOp::Create { path: format!("{dir}{n}"), mode: 0o644 }),
        );
    }
    ops.extend((0..options.count).map(|_| maker.one()));
    ops.push(ModelOp::Compare);
    ops
}

struct OpMaker {
    random: Random,
    options: OpOptions,
}

const XATTRS: [&str; 7] = [
    "user.a",
    "user.b",
    "user.longer-name-of-an-attribute",
    "trusted.t",
    "security.s",
    "user.c",
    "trusted.u",
];

impl OpMaker {
    fn name(&mut self) -> String {
        let letter = char::from(b'a' + self.random.below(6) as u8);
        match self.random.below(40) {
            // Long names fill directory blocks and make index trees.
            0..=2 => format!("{letter}{}", "x".repeat(30 * self.random.index(8))),
            3 if self.random.one_in(6) => letter.to_string().repeat(255),
            4 if self.random.one_in(12) => letter.to_string().repeat(256),
            5..=8 => format!("{letter}{}", self.random.below(40)),
            _ => letter.to_string(),
        }
    }

    fn dir(&mut self) -> String {
        const DIRS: [&str; 8] = ["", "", "", "d", "d", "e", "d/e", "d/d/f"];
        match self.random.below(30) {
            0 => self.name(),
            _ => DIRS[self.random.index(DIRS.len())].to_owned(),
        }
    }

    fn path(&mut self) -> String {
        let (dir, name) = (self.dir(), self.name());
        if dir.is_empty() { name } else { format!("{dir}/{name}") }
    }

    fn target(&mut self) -> Target {
        if self.random.one_in(2) {
            Target::Slot(self.random.below(u64::from(SLOTS)) as u8)
        } else {
            Target::Path(self.path())
        }
    }

    fn dir_path(&mut self) -> String {
        const DIRS: [&str; 6] = ["d", "e", "d/e", "d/d", "d/d/f", "f"];
        if self.random.one_in(3) {
            self.path()
        } else {
            DIRS[self.random.index(DIRS.len())].to_owned()
        }
    }

    /// An offset or size, often at or beside a block border, now and then far away.
    fn offset(&mut self) -> u64 {
        let reach = match self.random.below(60) {
            0 => 1 << 32,
            1..=5 => self.options.reach_bytes * 16,
            6..=25 => self.options.block_size * 4,
            _ => self.options.reach_bytes,
        };
        let at = self.random.below(reach);
        let border = at / self.options.block_size * self.options.block_size;
        match self.random.below(6) {
            0 | 1 => border,
            2 => border + 1,
            3 => border.saturating_sub(1),
            _ => at,
        }
    }

    fn len(&mut self) -> usize {
        let block = self.options.block_size;
        let len = match self.random.below(16) {
            0 => 0,
            1..=4 => self.random.below(100),
            5..=8 => block,
            9 => block * (1 + self.random.below(if self.options.fill { 300 } else { 40 })),
            10 => block * 2 - 1,
            _ => self.random.below(block * 6),
        };
        len as usize
    }

    fn mode(&mut self) -> u16 {
        const MODES: [u16; 6] = [0o644, 0o600, 0o755, 0o4711, 0o1777, 0];
        MODES[self.random.index(MODES.len())]
    }

    fn one(&mut self) -> ModelOp {
        let removals = if self.options.fill { 3 } else { 7 };
        match self.random.below(100) {
            0..=9 => ModelOp::Create { path: self.path(), mode: self.mode() },
            10..=13 => ModelOp::Mkdir { path: self.dir_path(), mode: 0o700 | self.mode() & 0o777 },
            14 => ModelOp::Symlink {
                path: self.path(),
                target_len: [1, 20, 59, 60, 61, 300, 1000, 0][self.random.index(8)],
            },
            15 => ModelOp::Mknod {
                path: self.path(),
                kind: if self.random.one_in(2) { 0o010_000 } else { 0o140_000 },
                mode: self.mode(),
            },
            16..=17 => ModelOp::Link { existing: self.target(), path: self.path() },
            18..=24 if self.random.below(7) < removals => ModelOp::Unlink { path: self.path() },
            25 => ModelOp::Rmdir { path: self.dir_path() },
            26..=31 => self.rename(),
            32..=37 => ModelOp::Open { slot: self.slot(), path: self.path() },
            38..=39 => ModelOp::Close { slot: self.slot() },
            40..=55 => self.write(),
            56..=60 => {
                ModelOp::Append { target: self.target(), len: self.len(), seed: self.random.bits() }
            }
            61..=65 => ModelOp::Truncate { target: self.target(), size: self.offset() },
            66..=69 => self.fallocate(),
            70..=75 => {
                ModelOp::Read { target: self.target(), offset: self.offset(), len: self.len() }
            }
            76 => ModelOp::Seek { target: self.target(), offset: self.offset() },
            77..=80 => self.set_xattr(),
            81 => ModelOp::RemoveXattr { path: self.path(), name: self.xattr() },
            82..=84 => self.attributes(),
            85..=87 => ModelOp::Readdir { path: self.dir() },
            88..=92 => ModelOp::Fsync { target: self.target(), datasync: self.random.one_in(2) },
            93 => ModelOp::Syncfs,
            94..=97 => {
                let ms = [1, 3, 50, 900, 6000, 31_000][self.random.index(6)];
                ModelOp::Tick { ms }
            }
            98 if self.random.one_in(4) => ModelOp::Compare,
            99 if self.random.one_in(6) => ModelOp::Remount { crash: self.random.one_in(2) },
            _ => self.write(),
        }
    }

    fn slot(&mut self) -> u8 {
        self.random.below(u64::from(SLOTS)) as u8
    }

    fn write(&mut self) -> ModelOp {
        let (target, offset) = (self.target(), self.offset());
        ModelOp::Write { target, offset, len: self.len(), seed: self.random.bits() }
    }

    fn rename(&mut self) -> ModelOp {
        let mode = match self.random.below(5) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let dirs = self.random.one_in(10);
        let (from, to) =
            if dirs { (self.dir_path(), self.dir_path()) } else { (self.path(), self.path()) };
        ModelOp::Rename { from, to, mode }
    }

    fn fallocate(&mut self) -> ModelOp {
        let mode = match self.random.below(7) {
            0 => Falloc::Allocate,
            1 => Falloc::KeepSize,
            2..=4 => Falloc::PunchHole,
            5 => Falloc::ZeroRange,
            _ => Falloc::ZeroRangeKeepSize,
        };
        let len = self.len() as u64;
        ModelOp::Fallocate { target: self.target(), mode, offset: self.offset(), len }
    }

    fn xattr(&mut self) -> String {
        XATTRS[self.random.index(XATTRS.len())].to_owned()
    }

    fn set_xattr(&mut self) -> ModelOp {
        let len = match self.random.below(6) {
            0 => 0,
            1..=3 => self.random.below(40),
            4 => self.random.below(200),
            _ => self.random.below(self.options.xattr_bytes),
        };
        ModelOp::SetXattr {
            path: self.path(),
            name: self.xattr(),
            len: len as usize,
            seed: self.random.bits(),
            mode: match self.random.below(6) {
                0 => XattrMode::Create,
                1 => XattrMode::Replace,
                _ => XattrMode::Any,
            },
        }
    }

    fn attributes(&mut self) -> ModelOp {
        let path = self.path();
        match self.random.below(3) {
            0 => ModelOp::Chmod { path, mode: self.mode() },
            1 => {
                let ids = [0, 1000, 65_536, 4_000_000_000];
                let (uid, gid) = (ids[self.random.index(4)], ids[self.random.index(4)]);
                ModelOp::Chown { path, uid, gid }
            }
            _ => ModelOp::SetMtime { path, mtime_ns: self.random.below(1 << 62) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_drawn() {
        let options = OpOptions {
            count: 20_000,
            block_size: 1024,
            reach_bytes: 1 << 18,
            fill: false,
            xattr_bytes: 512,
        };
        let ops = gen_ops(1, options);
        assert_eq!(ops, gen_ops(1, options));
        for name in [
            "Create",
            "Mkdir",
            "Mknod",
            "Symlink",
            "Link",
            "Unlink",
            "Rmdir",
            "Rename",
            "Open",
            "Close",
            "Write",
            "Append",
            "Truncate",
            "Fallocate",
            "Read",
            "Seek",
            "SetXattr",
            "RemoveXattr",
            "Chmod",
            "Chown",
            "SetMtime",
            "Readdir",
            "Fsync",
            "Syncfs",
            "Tick",
            "Compare",
            "Remount",
        ] {
            assert!(ops.iter().any(|op| format!("{op:?}").starts_with(name)), "{name}");
        }
    }
}
