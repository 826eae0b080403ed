//! Broken images: walked, changed, checked, unmounted.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use syncline_device::{BlockDevice, MemoryDevice, VirtualClock};
use syncline_fs::repair::Plan;
use syncline_fs::{
    Create, FallocateMode, InodeRef, MountOptions, RenameFlags, Result, Volume, XattrFlags,
    check_device,
};
use syncline_testkit::{ImageSpec, Seal, debugfs, mkfs, scratch_dir};

use crate::bytes::Bytes;

/// Features of the images that inputs change. Without checksums every change gets past them.
const FEATURES: [&str; 3] = ["^metadata_csum", "^metadata_csum,^extent,^64bit", ""];
/// Bytes of a block of theirs.
const BLOCK: u64 = 1024;
/// First byte from which on an input changes an image of [`features_base`].
const OF_FEATURES_MIN: usize = 0xf0;
/// As [`OF_FEATURES_MIN`], of the one with clusters that can be written.
const OF_CLUSTERS_MIN: usize = 0xf8;
/// Most changes of one input.
const CHANGES_MAX: usize = 64;
/// Most inodes that are looked at, and names of a directory.
const INODES_MAX: usize = 100;
const NAMES_MAX: usize = 200;

const OWNER: Create = Create { mode: 0o755, uid: 1, gid: 1 };

/// A small image with something of each kind; the log has the newest of it, or is empty.
fn base(features: &str, clean: bool) -> MemoryDevice {
    let spec = ImageSpec {
        features: features.into(),
        block_size_bytes: BLOCK as u32,
        journal_size_mib: Some(1),
        inode_count: Some(64),
        ..ImageSpec::with_size(6 << 20)
    };
    let device = MemoryDevice::load(mkfs(&spec).path()).expect("an image that was just made");
    let device = Arc::new(device);
    let volume = mount(device.clone(), "rw").expect("a stock image");
    // Where files have block maps some of it is refused.
    let _ = populate(&volume);
    if clean {
        volume.unmount().expect("nothing is wrong yet");
    }
    device.snapshot()
}

fn populate(volume: &Volume) -> Result<()> {
    let root = volume.root()?;
    let dir = volume.mkdir(&root, b"dir", &OWNER)?;
    volume.symlink(&dir, b"link", &[b'x'; 100], &OWNER)?;
    volume.mknod(&root, b"pipe", &Create { mode: 0o010_600, ..OWNER }, 0)?;
    for nr in 0..12 {
        let file = volume.create(&dir, format!("a file {nr}").as_bytes(), &OWNER)?;
        volume.setxattr(&file, b"user.a", &[nr; 40], XattrFlags::Any)?;
        for piece in 0..6 {
            volume.write(&file, piece * 5000, &[nr; 1500])?;
        }
    }
    volume.syncfs()
}

fn mount(device: Arc<MemoryDevice>, options: &str) -> Result<Volume> {
    let options = MountOptions::parse(options)?.with(|options| options.cache_bytes = 4 << 20);
    Volume::mount(device, Arc::new(VirtualClock::default()), options)
}

/// Images that inputs change, and their blocks that are not zero.
fn bases() -> &'static [(MemoryDevice, Vec<u64>)] {
    static BASES: OnceLock<Vec<(MemoryDevice, Vec<u64>)>> = OnceLock::new();
    BASES.get_or_init(|| {
        let kinds = FEATURES.iter().flat_map(|features| [(features, false), (features, true)]);
        let written = kinds.map(|(features, clean)| base(features, clean));
        let inline = ["inline_data,ea_inode,^metadata_csum", "inline_data,^metadata_csum"];
        let features = [("bigalloc,", Some(4096)), ("encrypt,bigalloc,", Some(4096)), ("", None)];
        let made = inline.map(inline_base).into_iter().chain(features.map(features_base));
        written.chain(made).map(with_blocks).collect()
    })
}

/// An image with data in inodes.
fn inline_base(features: &str) -> MemoryDevice {
    let source = scratch_dir().join(format!("hostile-{}", std::process::id()));
    std::fs::create_dir_all(source.join("dir/inner")).expect("a scratch directory");
    for len in [5, 60, 90, 3000] {
        std::fs::write(source.join(format!("dir/{len}")), vec![7; len]).expect("written");
    }
    let spec = ImageSpec {
        features: features.into(),
        block_size_bytes: BLOCK as u32,
        inode_size_bytes: Some(256),
        journal_size_mib: Some(1),
        inode_count: Some(64),
        contents: Some(source.clone()),
        ..ImageSpec::with_size(6 << 20)
    };
    let image = mkfs(&spec);
    std::fs::remove_dir_all(source).expect("removed");
    MemoryDevice::load(image.path()).expect("an image that was just made")
}

/// An image with a sealed file and a directory that folds case, and `more` features. With `encrypt`
/// it can only be read, and one directory is encrypted as far as its flag says.
fn features_base((more, cluster_size_bytes): (&str, Option<u32>)) -> MemoryDevice {
    let source = tempfile::tempdir_in(scratch_dir()).expect("a scratch directory");
    for dir in ["folds", "secret"] {
        std::fs::create_dir(source.path().join(dir)).expect("made");
        for nr in 0..30 {
            let name = format!("{dir}/A Long Stra\u{df}e {nr}");
            std::fs::write(source.path().join(name), [nr; 2000]).expect("written");
        }
    }
    let spec = ImageSpec {
        features: format!("{more}verity,casefold,^metadata_csum"),
        extended: "encoding=utf8".into(),
        block_size_bytes: BLOCK as u32,
        cluster_size_bytes,
        journal_size_mib: Some(1),
        inode_count: Some(128),
        contents: Some(source.path().to_owned()),
        ..ImageSpec::with_size(6 << 20)
    };
    let image = mkfs(&spec);
    let seal = Seal { block_bytes: 1024, ..Seal::usual() };
    seal.add(image.path(), "sealed", &[9; 70_000], BLOCK as usize);
    let is_secret = more.contains("encrypt");
    let encrypts = if is_secret { "sif secret flags 0x80800\n" } else { "" };
    let _ = debugfs(image.path(), &format!("sif folds flags 0x40080000\n{encrypts}"));
    MemoryDevice::load(image.path()).expect("an image that was just made")
}

fn with_blocks(device: MemoryDevice) -> (MemoryDevice, Vec<u64>) {
    let mut block = [0; BLOCK as usize];
    let size = device.geometry().size_bytes;
    let used = (0..size / BLOCK).map(|nr| nr * BLOCK).filter(|at| {
        device.read_at(*at, &mut block).expect("inside");
        block.iter().any(|byte| *byte != 0)
    });
    let used = used.collect();
    (device, used)
}

/// An input is one byte that chooses an image, and changes: block, place in it, length, bytes.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let bases = bases();
    // The last three images came later: inputs keep theirs.
    let nr = match usize::from(bytes.u8()) {
        OF_CLUSTERS_MIN.. => bases.len() - 3,
        nr @ OF_FEATURES_MIN.. => bases.len() - 1 - nr % 2,
        nr => nr % (bases.len() - 3),
    };
    let (device, used) = &bases[nr];
    let image = device.snapshot();
    for _ in 0..CHANGES_MAX {
        if bytes.is_empty() {
            break;
        }
        let block = used[usize::from(bytes.u16()) % used.len()];
        let (at, len) = (u64::from(bytes.u16()) % BLOCK, usize::from(bytes.u8() % 16));
        let change = bytes.take(len);
        let change = &change[..change.len().min((BLOCK - at) as usize)];
        image.write_at(block + at, change).expect("inside");
    }
    judge(&image);
}

/// Opens an image for reading, past damage, and for writing; looks at everything, changes, checks
/// and unmounts it; checks it without a mount; repairs it, which a second time changes nothing.
pub(crate) fn judge(image: &MemoryDevice) {
    for options in ["ro", "undelete", "rw"] {
        if let Ok(volume) = mount(Arc::new(image.snapshot()), options) {
            exercise(&volume, options != "rw");
            let _ = volume.check(&mut |_| true);
            let _ = volume.unmount();
        }
    }
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let _ = check_device(&device, &mut |_| true);
    if let Ok(plan) = Plan::new(&device, &mut |_| true) {
        plan.apply(&*device).expect("memory");
        let again = Plan::new(&device, &mut |_| true).expect("it was planned before");
        assert!(again.changes.is_empty(), "a second repair changes {:?}", again.changes);
    }
}

/// Looks at everything, and changes some of it.
fn exercise(volume: &Volume, read_only: bool) {
    let (mut todo, mut seen) = (Vec::from_iter(volume.root().ok()), BTreeSet::new());
    while let Some(inode) = todo.pop() {
        if seen.len() >= INODES_MAX || !seen.insert(inode.ino) {
            continue;
        }
        let names = look_at(volume, &inode);
        for name in names.iter().filter(|name| **name != b"." && **name != b"..") {
            todo.extend(volume.lookup(&inode, name));
        }
        if !read_only && seen.len() % 3 == 0 {
            change(volume, &inode, names.last().map_or(b"none", Vec::as_slice));
        }
    }
}

fn look_at(volume: &Volume, inode: &InodeRef) -> Vec<Vec<u8>> {
    let attr = volume.getattr(inode);
    let mut buffer = vec![0; 8 << 10];
    for offset in [0, attr.size / 2, attr.size.saturating_sub(100)] {
        let _ = volume.read(inode, offset, &mut buffer);
    }
    let _ = volume.readlink(inode);
    let _ = volume.fiemap(inode, 0, u64::MAX);
    let _ = volume.seek_data(inode, 0).and_then(|data| volume.seek_hole(inode, data));
    for name in volume.listxattr(inode).unwrap_or_default() {
        let _ = volume.getxattr(inode, &name);
    }
    let mut names = Vec::new();
    let _ = volume.readdir(inode, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        names.len() < NAMES_MAX
    });
    names
}

fn change(volume: &Volume, inode: &InodeRef, name: &[u8]) {
    let _ = volume.write(inode, 9000, &[7; 3000]);
    let _ = volume.fallocate(inode, FallocateMode::PunchHole, 1000, 20_000);
    let _ = volume.setxattr(inode, b"user.fuzz", &[1; 300], XattrFlags::Any);
    let _ = volume.create(inode, b"fuzz", &OWNER);
    let _ = volume.rename(inode, name, inode, b"renamed", RenameFlags::NONE);
    let _ = volume.fsync(inode, false);
    let _ = volume.truncate(inode, 5);
    let _ = volume.unlink(inode, b"renamed");
    let _ = volume.rmdir(inode, b"renamed");
}
