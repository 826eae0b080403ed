//! Calls of a hostile program: any order, any argument, each way of syncing, each kind of end.

use std::sync::{Arc, OnceLock};

use syncline_device::{Clock, MemoryDevice, VirtualClock};
use syncline_fs::{
    Create, FallocateMode, InodeRef, MountOptions, RenameFlags, Result, SetAttr, Volume, XattrFlags,
};
use syncline_testkit::{ImageSpec, mkfs};

use crate::bytes::Bytes;

/// Ways to mount.
const OPTIONS: [&str; 6] = [
    "sync=eager",
    "sync=ordered",
    "sync=periodic",
    "sync=eager,log=packed",
    "sync=periodic,log=packed",
    "sync=eager,eager_threshold=4,alloc=hot_zones,hot=a*",
];
/// Most calls of one input.
const CALLS_MAX: usize = 120;
/// Names that calls use.
const NAMES: [&[u8]; 7] = [b"a", b"b", b"a longer name than others", b"d", b"e", b".", b".."];
/// Longest write, in bytes.
const WRITE_BYTES_MAX: u64 = 300_000;

pub(crate) fn base() -> MemoryDevice {
    static BASE: OnceLock<MemoryDevice> = OnceLock::new();
    let made = BASE.get_or_init(|| {
        let spec = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(24 << 20) };
        MemoryDevice::load(mkfs(&spec).path()).expect("an image that was just made")
    });
    made.snapshot()
}

/// An input is a byte of options, one of the end, and calls. Afterwards, and after a crash then,
/// the volume keeps every rule of ext4.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let options = OPTIONS[usize::from(bytes.u8()) % OPTIONS.len()];
    let crashes = bytes.u8() % 2 == 1;
    let (device, clock) = (Arc::new(base()), Arc::new(VirtualClock::default()));
    let volume = mount(&device, &clock, options);
    let root = volume.root().expect("a root");
    let mut program = Program { volume: &volume, clock: &clock, held: vec![root] };
    for _ in 0..CALLS_MAX {
        if bytes.is_empty() {
            break;
        }
        // Errors are answers.
        let _ = program.call(&mut bytes);
    }
    drop(program);
    if crashes {
        let cut = Arc::new(device.snapshot());
        check(mount(&cut, &clock, options), options);
    }
    let volume = if volume.check_running().is_ok() {
        volume.unmount().expect("a device that never fails");
        mount(&device, &clock, options)
    } else {
        drop(volume);
        mount(&Arc::new(device.snapshot()), &clock, options)
    };
    check(volume, options);
}

pub(crate) fn mount(
    device: &Arc<MemoryDevice>,
    clock: &Arc<VirtualClock>,
    options: &str,
) -> Volume {
    let options = MountOptions::parse(options).expect("options of the table");
    let options = options.with(|options| options.cache_bytes = 4 << 20);
    Volume::mount(device.clone(), clock.clone(), options).expect("an image of ours")
}

pub(crate) fn check(volume: Volume, options: &str) {
    let report = volume.check(&mut |_| true).expect("readable");
    assert!(report.is_clean(), "{options}: {:?}", report.findings);
    volume.unmount().expect("a device that never fails");
}

/// Caller of the volume.
struct Program<'a> {
    volume: &'a Volume,
    clock: &'a VirtualClock,
    /// Open files and directories.
    held: Vec<InodeRef>,
}

impl Program<'_> {
    fn inode(&self, bytes: &mut Bytes<'_>) -> InodeRef {
        self.held[usize::from(bytes.u8()) % self.held.len()].clone()
    }

    fn name<'b>(bytes: &mut Bytes<'b>) -> &'b [u8] {
        match usize::from(bytes.u8()) {
            nr if nr < 240 => NAMES[nr % NAMES.len()],
            nr => bytes.take((nr - 239) * 20),
        }
    }

    fn create(bytes: &mut Bytes<'_>) -> Create {
        Create { mode: bytes.u16(), uid: bytes.u8().into(), gid: bytes.u8().into() }
    }

    fn call(&mut self, bytes: &mut Bytes<'_>) -> Result<()> {
        match bytes.u8() % 4 {
            0 => self.names(bytes),
            1 => self.attributes(bytes),
            _ => self.data(bytes),
        }
    }

    fn names(&mut self, bytes: &mut Bytes<'_>) -> Result<()> {
        let (volume, nr) = (self.volume, bytes.u8());
        let (dir, name) = (self.inode(bytes), Self::name(bytes));
        let what = nr % 10;
        let made = match what {
            _ if nr >= 250 => volume.tmpfile(&dir, &Self::create(bytes), nr % 2 == 0)?,
            0 => volume.create(&dir, name, &Self::create(bytes))?,
            1 => volume.mkdir(&dir, name, &Self::create(bytes))?,
            2 => volume.mknod(&dir, name, &Self::create(bytes), bytes.size())?,
            3 => {
                let create = Self::create(bytes);
                let len = usize::from(bytes.u16() % 5000);
                volume.symlink(&dir, name, &vec![b'/'; len], &create)?
            }
            4 => volume.lookup(&dir, name)?,
            5 => return volume.unlink(&dir, name),
            6 => return volume.rmdir(&dir, name),
            7 => return volume.link(&self.inode(bytes), &dir, name),
            _ => {
                let (to, new, flags) = (self.inode(bytes), Self::name(bytes), bytes.u8());
                let how = RenameFlags::from_bits(u32::from(flags % 3))?;
                if what == 8 {
                    return volume.rename(&dir, name, &to, new, how);
                }
                let owner = Self::create(bytes);
                return volume.rename_whiteout((&dir, name), (&to, new), how, &owner);
            }
        };
        self.held.push(made);
        Ok(())
    }

    fn attributes(&mut self, bytes: &mut Bytes<'_>) -> Result<()> {
        let (volume, what) = (self.volume, bytes.u8() % 8);
        let inode = self.inode(bytes);
        let xattr = [&b"user.a"[..], b"user.b", b"trusted.c", b"security.d", b"user."];
        let xattr = xattr[usize::from(bytes.u8()) % xattr.len()];
        match what {
            0 => {
                let (mode, flags) = (Some(bytes.u16()), Some(u32::from(bytes.u8())));
                let flags = flags.filter(|flags| flags % 4 == 3);
                let ids = (Some(bytes.u8().into()), Some(bytes.u8().into()));
                let (uid, gid) = ids;
                let set = SetAttr { mode, uid, gid, flags, ..SetAttr::default() };
                volume.setattr(&inode, &set).map(drop)
            }
            1 | 2 => {
                let len = (bytes.size() % 70_000) as usize;
                volume.setxattr(&inode, xattr, &vec![7; len], XattrFlags::Any)
            }
            3 => volume.removexattr(&inode, xattr),
            4 => volume.getxattr(&inode, xattr).map(drop),
            5 if self.held.len() > 1 => {
                let nr = 1 + usize::from(bytes.u8()) % (self.held.len() - 1);
                let closed = self.held.swap_remove(nr);
                volume.close(&closed)
            }
            6 => {
                self.clock.sleep_until(self.clock.now_ns() + bytes.size() % 40_000_000_000);
                volume.tick(self.clock.now_ns())
            }
            _ => volume.readdir(&inode, bytes.size(), &mut |_| true),
        }
    }

    fn data(&mut self, bytes: &mut Bytes<'_>) -> Result<()> {
        let (volume, what) = (self.volume, bytes.u8() % 16);
        let (inode, at) = (self.inode(bytes), bytes.size());
        match what {
            0..=5 => {
                let data = vec![what + 1; (bytes.size() % WRITE_BYTES_MAX) as usize];
                volume.write(&inode, at, &data).map(drop)
            }
            6 => volume.read(&inode, at, &mut [0; 5000]).map(drop),
            7 => volume.truncate(&inode, at),
            8 | 9 => {
                let modes = [
                    FallocateMode::Allocate,
                    FallocateMode::KeepSize,
                    FallocateMode::PunchHole,
                    FallocateMode::ZeroRange,
                    FallocateMode::ZeroRangeKeepSize,
                ];
                let mode = modes[usize::from(bytes.u8()) % modes.len()];
                volume.fallocate(&inode, mode, at, bytes.size())
            }
            10 | 11 => volume.fsync(&inode, at % 2 == 0),
            12 => self.atomically(&inode, at, bytes),
            13 => volume.trim(at..at.saturating_add(bytes.size()), bytes.size()).map(drop),
            14 => volume.syncfs(),
            // Once in a while.
            _ if at % 64 == 63 => volume.shutdown(bytes.u8().is_multiple_of(2)),
            _ => volume.seek_data(&inode, at).map(drop),
        }
    }

    fn atomically(&self, inode: &InodeRef, at: u64, bytes: &mut Bytes<'_>) -> Result<()> {
        let mut atomic = self.volume.begin_atomic(inode)?;
        let staged = vec![9; (bytes.size() % 20_000) as usize];
        self.volume.write_atomic(&mut atomic, at, &staged)?;
        if bytes.u8().is_multiple_of(4) { Ok(()) } else { self.volume.commit_atomic(atomic) }
    }
}
