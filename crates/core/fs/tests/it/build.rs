//! New file systems with a tree in them: random trees judged by e2fsck and the kernel, sizes of
//! all kinds, full ones, failing devices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use syncline_device::{
    BlockDevice, FailingDevice, FaultPlan, FileDevice, FileOptions, MemoryDevice, OpClass,
    VirtualClock,
};
use syncline_fs::build::{Build, Built, NodeId, NodeMeta, ROOT, Size, Spare};
use syncline_fs::mkfs::{Options, Plan};
use syncline_fs::{Create, FsError, MountOptions, Timestamp, Volume, acl};
use syncline_testkit::{
    Compare, Entry, FuzzRounds, KernelMount, Need, Random, Time, TreeManifest, e2fsck_clean,
    fill as fill_bytes, require,
};

const TIME_S: u64 = 1_700_000_000;
const DIR: u16 = 0o040_000;
const FILE: u16 = 0o100_000;
const LINK: u16 = 0o120_000;
const CHARS: u16 = 0o020_000;
const FIFO: u16 = 0o010_000;

fn options(block_bytes: u32) -> Options {
    Options {
        uuid: [7; 16],
        hash_seed: [9; 16],
        time_s: TIME_S,
        zeroed: true,
        block_bytes: Some(block_bytes),
        ..Options::default()
    }
}

/// A sparse file that has room for any size.
struct File(PathBuf);

impl File {
    fn new(dir: &Path) -> File {
        let path = dir.join("image");
        let _ = std::fs::remove_file(&path);
        std::fs::File::create(&path).unwrap().set_len(1 << 42).unwrap();
        File(path)
    }

    fn device(&self) -> FileDevice {
        FileDevice::open(&self.0, FileOptions { direct: false, ..FileOptions::default() }).unwrap()
    }

    /// Cuts the file to its file system, which e2fsck has to find clean.
    fn checked(&self, built: &Built, what: &str) {
        let file = std::fs::File::options().write(true).open(&self.0).unwrap();
        file.set_len(built.size_bytes).unwrap();
        e2fsck_clean(&self.0).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
}

/// A tree that is built, and what a mount has to show of it.
struct Grown<D: BlockDevice> {
    build: Build<D>,
    expected: TreeManifest,
    dirs: Vec<(Vec<u8>, NodeId)>,
    files: Vec<(Vec<u8>, NodeId)>,
}

fn meta(random: &mut Random, kind: u16) -> NodeMeta {
    let time = |random: &mut Random| Timestamp {
        seconds: random.below(1 << 33) as i64 - (1 << 30),
        nanoseconds: random.below(1_000_000_000) as u32,
    };
    let permissions = if kind == LINK { 0o777 } else { random.below(0o10000) as u16 };
    NodeMeta {
        mode: kind | permissions,
        uid: random.bits() as u32 >> random.below(32),
        gid: random.bits() as u32 >> random.below(32),
        atime: time(random),
        mtime: time(random),
    }
}

impl<D: BlockDevice> Grown<D> {
    fn new(build: Build<D>) -> Self {
        let root = Entry::default();
        let expected = TreeManifest { entries: BTreeMap::from([(Vec::new(), root)]) };
        Self { build, expected, dirs: vec![(Vec::new(), ROOT)], files: Vec::new() }
    }

    fn expect(&mut self, path: &[u8], meta: NodeMeta) -> &mut Entry {
        let mut entry = Entry::default();
        entry.stat.mode = meta.mode.into();
        (entry.stat.uid, entry.stat.gid, entry.stat.nlink) = (meta.uid, meta.gid, 1);
        let time = meta.mtime;
        entry.stat.mtime = Time { seconds: time.seconds, nanos: time.nanoseconds };
        self.expected.entries.entry(path.to_vec()).or_insert(entry)
    }

    fn name(random: &mut Random, number: usize) -> Vec<u8> {
        let long = if random.one_in(9) { random.index(240) } else { random.index(12) };
        let mut name = format!("{number:x}").into_bytes();
        name.extend((0..long).map(|_| 1 + random.below(255) as u8));
        name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
        name
    }

    fn one(&mut self, random: &mut Random, number: usize, file_bytes: u64) {
        let (parent, dir) = self.dirs[random.index(self.dirs.len())].clone();
        let name = Self::name(random, number);
        let mut path = parent.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(&name);
        match random.below(12) {
            0 | 1 => {
                let meta = meta(random, DIR);
                let id = self.build.mkdir(dir, &name, meta).unwrap();
                self.expect(&path, meta).stat.nlink = 2;
                self.expected.entries.get_mut(&parent).unwrap().stat.nlink += 1;
                self.attributes(random, &path, id, true);
                self.dirs.push((path, id));
            }
            2 => {
                let meta = meta(random, LINK);
                let target = vec![b'x'; 1 + random.index(900)];
                self.build.symlink(dir, &name, meta, &target).unwrap();
                let entry = self.expect(&path, meta);
                entry.stat.size = target.len() as u64;
                entry.target = target;
            }
            3 => {
                let chars = random.one_in(2);
                let meta = meta(random, if chars { CHARS } else { FIFO });
                let (major, minor) = if chars { (5, random.below(1 << 20)) } else { (0, 0) };
                let rdev = major << 8 | minor & 0xff | (minor & !0xff) << 12;
                self.build.special(dir, &name, meta, rdev).unwrap();
                self.expect(&path, meta).stat.rdev = (major as u32, minor as u32);
            }
            4 if !self.files.is_empty() => {
                let (first, id) = self.files[random.index(self.files.len())].clone();
                self.build.link(id, dir, &name).unwrap();
                let mut entry = self.expected.entries[&first].clone();
                let group = entry.linked_to.clone().unwrap_or_else(|| first.clone());
                let least = group.clone().min(path.clone());
                entry.linked_to = Some(group.clone());
                self.expected.entries.insert(path.clone(), entry);
                for (name, entry) in &mut self.expected.entries {
                    if *name == group || entry.linked_to.as_deref() == Some(&group[..]) {
                        entry.stat.nlink += 1;
                        entry.linked_to = (*name != least).then(|| least.clone());
                    }
                }
                let links = self.expected.entries[&least].stat.nlink;
                self.expected.entries.get_mut(&path).unwrap().stat.nlink = links;
            }
            _ => self.new_file(random, (dir, &name), path, file_bytes),
        }
    }

    fn new_file(
        &mut self,
        random: &mut Random,
        (dir, name): (NodeId, &[u8]),
        path: Vec<u8>,
        file_bytes: u64,
    ) {
        let meta = meta(random, FILE);
        let id = self.build.file(dir, name, meta).unwrap();
        let mut contents = Vec::new();
        for _ in 0..1 + random.index(2) * random.index(30) {
            if random.one_in(3) {
                contents.resize(contents.len() + random.below(file_bytes) as usize, 0);
            }
            let at = contents.len();
            contents.resize(at + random.below(file_bytes) as usize, 0);
            fill_bytes(random.bits(), 0, &mut contents[at..]);
            self.build.write(id, at as u64, &contents[at..]).unwrap();
        }
        contents.resize(contents.len() + random.index(2) * random.index(99_999), 0);
        self.build.set_size(id, contents.len() as u64).unwrap();
        let entry = self.expect(&path, meta);
        entry.stat.size = contents.len() as u64;
        entry.content = Sha256::digest(&contents).into();
        self.attributes(random, &path, id, false);
        self.files.push((path, id));
    }

    fn attributes(&mut self, random: &mut Random, path: &[u8], id: NodeId, dir: bool) {
        let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for n in 0..random.index(2) * random.index(4) {
            // Few values, so that inodes share blocks.
            let value = vec![b'v'; [3, 40, 200][random.index(3)]];
            let space = ["user.", "trusted.", "security."][random.index(3)];
            xattrs.push((format!("{space}{n}").into_bytes(), value));
        }
        if dir && random.one_in(3) {
            let words: [u16; 12] =
                [1, 7, 0xffff, 0xffff, 4, 5, 0xffff, 0xffff, 0x20, 1, 0xffff, 0xffff];
            let mut value = 2_u32.to_le_bytes().to_vec();
            value.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            xattrs.push((acl::DEFAULT.to_vec(), value));
        }
        let borrowed: Vec<(&[u8], &[u8])> = xattrs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        self.build.set_xattrs(id, &borrowed).unwrap();
        self.expected.entries.get_mut(path).unwrap().xattrs = xattrs.into_iter().collect();
    }

    fn grow(mut self, seed: u64, count: usize, file_bytes: u64) -> (Built, TreeManifest) {
        let mut random = Random::new(seed);
        let root = meta(&mut random, DIR);
        self.build.set_meta(ROOT, root);
        self.expected.entries.clear();
        // With lost+found, which a manifest leaves out.
        self.expect(b"", root).stat.nlink = 3;
        (0..count).for_each(|number| self.one(&mut random, number, file_bytes));
        (self.build.finish().unwrap(), self.expected)
    }
}

#[test]
fn random_trees_are_what_a_mount_shows() {
    let test = "random_trees_are_what_a_mount_shows";
    let dir = tempfile::tempdir().unwrap();
    let mounts = require(test, &[Need::Root, Need::Loop]);
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let rounds = FuzzRounds::at_least(200);
    for (seed, _) in (0..).zip(rounds) {
        let mut random = Random::new(seed);
        let block_bytes = 1024 << random.below(3);
        let size = [
            Size::Minimum,
            Size::Spare(Spare::Percent(20.0)),
            Size::Spare(Spare::Bytes(5 << 20)),
            Size::Bytes(900 << 20),
        ][random.index(4)];
        // Most of them are small: each takes as long as its mount.
        let (count, file_bytes) = match seed % 10 {
            0 => [(40, 400_000), (3000, 3000), (400, 30_000)][random.index(3)],
            _ => (60, 20_000),
        };
        let what = format!("seed {seed}, {size:?}, blocks of {block_bytes}, {count} names");
        let file = File::new(dir.path());
        let build = Build::new(file.device(), &options(block_bytes), size).unwrap();
        let (built, expected) = Grown::new(build).grow(seed, count, file_bytes);
        file.checked(&built, &what);
        if !mounts {
            continue;
        }
        let mount = KernelMount::new(&file.0, "ro").unwrap();
        let found = TreeManifest::from_dir(mount.path());
        mount.unmount().unwrap();
        expected.assert_same(&found.unwrap(), Compare::SAME_TREE, &what);
        println!("{what}: as expected");
    }
}

/// Files of `bytes` bytes each, in directories of at most a thousand.
fn fill(build: &mut Build<impl BlockDevice>, files: u32, bytes: usize) -> Result<(), FsError> {
    let (contents, meta) = (vec![b'c'; bytes], NodeMeta { mode: 0o755, ..NodeMeta::default() });
    let mut dir = ROOT;
    for n in 0..files {
        if n % 1000 == 0 {
            dir = build.mkdir(ROOT, format!("{n}").as_bytes(), meta)?;
        }
        let file = build.file(dir, format!("file{n}").as_bytes(), meta)?;
        build.write(file, 0, &contents)?;
    }
    Ok(())
}

#[test]
fn sizes_that_are_not_given_never_run_out() {
    if !require("sizes_that_are_not_given_never_run_out", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (block_bytes, files, bytes) in [
        (1024, 1, 0),
        (1024, 30_000, 1),
        (1024, 40_000, 0),
        (2048, 3000, 5000),
        (4096, 1, 0),
        (4096, 1, 200 << 20),
        (4096, 28_000, 10),
        (4096, 34_000, 0),
        (4096, 40_000, 1),
        (65536, 1, 1),
        (65536, 3000, 70_000),
        (65536, 100_000, 0),
    ] {
        for size in
            [Size::Minimum, Size::Spare(Spare::Bytes(1 << 20)), Size::Spare(Spare::Percent(20.0))]
        {
            let what = format!("{files} of {bytes}, {size:?}, blocks of {block_bytes}");
            let file = File::new(dir.path());
            let mut build = Build::new(file.device(), &options(block_bytes), size).unwrap();
            fill(&mut build, files, bytes).unwrap();
            let built = build.finish().unwrap_or_else(|err| panic!("{what}: {err}"));
            file.checked(&built, &what);
            let (free, spare) = (built.free_blocks * u64::from(block_bytes), 1 << 20);
            match size {
                // Groups have their full size, which many inodes without contents do not fill.
                Size::Minimum if files > (8 * block_bytes).min(65_000) && bytes == 0 => {}
                Size::Minimum => {
                    let kept = if built.size_bytes < 1 << 20 { 63 } else { 0 };
                    let most = (4096 / u64::from(block_bytes)).max(kept);
                    assert!(built.free_blocks <= most, "{what}: {built:?}");
                }
                Size::Spare(Spare::Bytes(_)) => assert!(free >= spare, "{what}: {built:?}"),
                _ => assert!(free as usize >= files as usize * bytes / 5, "{what}: {built:?}"),
            }
        }
    }
}

#[test]
fn random_trees_never_run_out() {
    if !require("random_trees_never_run_out", &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for seed in FuzzRounds::at_least(40) {
        let mut random = Random::new(seed);
        let block_bytes = 1024 << random.below(7);
        let (many, less) = (random.below(14), random.below(20));
        let files = 1 + random.below(1 << many) as u32;
        let most = 1 + (32 << 20) / u64::from(files);
        let bytes = random.below(most >> less.min(most.ilog2().into())) as usize;
        let spare = random.below(4 << 20);
        let size =
            [Size::Minimum, Size::Spare(Spare::Bytes(spare)), Size::Spare(Spare::Percent(7.5))]
                [random.index(3)];
        let what = format!("seed {seed}: {files} of {bytes}, {size:?}, blocks of {block_bytes}");
        let file = File::new(dir.path());
        let mut build = Build::new(file.device(), &options(block_bytes), size).unwrap();
        fill(&mut build, files, bytes).unwrap_or_else(|err| panic!("{what}: {err}"));
        let built = build.finish().unwrap_or_else(|err| panic!("{what}: {err}"));
        file.checked(&built, &what);
        let free = built.free_blocks * u64::from(block_bytes);
        match size {
            Size::Spare(Spare::Bytes(spare)) => assert!(free >= spare, "{what}: {built:?}"),
            Size::Spare(_) => {
                assert!(free >= u64::from(files) * bytes as u64 / 14, "{what}: {built:?}");
            }
            _ => {}
        }
    }
}

/// Fills a file system of so many bytes with one file; `None`: it does not fit.
fn with_file(size_bytes: u64, block_bytes: u32, file_bytes: u64) -> Option<(Built, MemoryDevice)> {
    let device = MemoryDevice::new(size_bytes);
    let options = options(block_bytes);
    let mut build = Build::new(&device, &options, Size::Bytes(size_bytes)).unwrap();
    let file = build.file(ROOT, b"file", NodeMeta::default()).unwrap();
    let contents = vec![1; 1 << 20];
    for at in (0..file_bytes).step_by(contents.len()) {
        let len = (file_bytes - at).min(contents.len() as u64) as usize;
        match build.write(file, at, &contents[..len]) {
            Err(FsError::NoSpace) => return None,
            done => done.unwrap(),
        }
    }
    match build.finish() {
        Err(FsError::NoSpace) => None,
        built => Some((built.unwrap(), device)),
    }
}

#[test]
fn a_full_image_has_no_block_to_spare() {
    let check = require("a_full_image_has_no_block_to_spare", &[Need::E2fsck]);
    let dir = tempfile::tempdir().unwrap();
    for (mib, block_bytes) in [(16, 1024), (64, 4096), (300, 4096), (260, 2048)] {
        let size_bytes = mib << 20;
        let (mut fits, mut too_much) = (0, size_bytes);
        while too_much - fits > u64::from(block_bytes) {
            let middle = fits.midpoint(too_much);
            match with_file(size_bytes, block_bytes, middle) {
                Some(_) => fits = middle,
                None => too_much = middle,
            }
        }
        let (built, device) = with_file(size_bytes, block_bytes, fits).unwrap();
        let data_blocks = built.free_blocks + fits / u64::from(block_bytes);
        let what = format!("{mib} MiB, blocks of {block_bytes}: {built:?}");
        assert!(built.free_blocks * 1000 <= data_blocks, "{what}");
        if check {
            let path = dir.path().join("full");
            let mut bytes = vec![0; size_bytes as usize];
            device.read_at(0, &mut bytes).unwrap();
            std::fs::write(&path, bytes).unwrap();
            e2fsck_clean(&path).unwrap_or_else(|said| panic!("{what}: {said}"));
        }
    }
}

#[test]
fn equal_trees_are_equal_bytes() {
    let bytes = |seed| {
        let device = MemoryDevice::new(256 << 20);
        let build = Build::new(&device, &options(4096), Size::Minimum).unwrap();
        let (built, _) = Grown::new(build).grow(seed, 500, 9000);
        let mut bytes = vec![0; built.size_bytes as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let first = bytes(1);
    assert!(first == bytes(1) && first != bytes(2));
}

#[test]
fn a_failed_request_leaves_no_tree() {
    let old = MemoryDevice::new(64 << 20);
    Plan::new(&options(4096), 64 << 20).unwrap().write(&old).unwrap();
    let options = Options { zeroed: false, ..options(4096) };
    for k in 1.. {
        let device = old.snapshot();
        let failing = FailingDevice::new(&device);
        failing.arm(FaultPlan::once(OpClass::Any, k));
        let done = Build::new(&failing, &options, Size::Minimum).and_then(|mut build| {
            fill(&mut build, 300, 20_000)?;
            build.finish()
        });
        let mut start = [0; 2048];
        device.read_at(0, &mut start).unwrap();
        assert_eq!(done.is_ok(), start[1024 + 0x38] != 0, "request {k}");
        if failing.hits() == 0 {
            done.unwrap();
            assert!(k > 10, "{k} requests");
            break;
        }
    }
}

/// An index of two levels, an extent tree of three, and a volume that goes on from there.
#[test]
fn a_volume_takes_what_was_built() {
    let check = require("a_volume_takes_what_was_built", &[Need::E2fsck]);
    let device = Arc::new(MemoryDevice::new(400 << 20));
    let size = Size::Spare(Spare::Bytes(64 << 20));
    let mut build = Build::new(Arc::clone(&device), &options(1024), size).unwrap();
    let meta = NodeMeta { mode: 0o755, ..NodeMeta::default() };
    let dir = build.mkdir(ROOT, b"d", meta).unwrap();
    let names: Vec<String> = (0..20_000).map(|n| format!("a name with a number {n}")).collect();
    for name in &names {
        build.file(dir, name.as_bytes(), meta).unwrap();
    }
    let runs = build.file(ROOT, b"runs", meta).unwrap();
    for at in 0..8000_u64 {
        build.write(runs, at * 2048, &at.to_le_bytes()).unwrap();
    }
    let built = build.finish().unwrap();
    let clock = Arc::new(VirtualClock::new(TIME_S * 1_000_000_000));
    let mount = || Volume::mount(device.clone(), clock.clone(), MountOptions::default());
    let volume = mount().unwrap();
    let report = volume.check(&mut |_| true).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let dir = volume.resolve("/d").unwrap();
    for name in names.iter().step_by(7) {
        volume.lookup(&dir, name.as_bytes()).unwrap();
    }
    let file = volume.resolve("/runs").unwrap();
    for at in (0..8000_u64).step_by(77) {
        let mut back = [0; 8];
        volume.read(&file, at * 2048, &mut back).unwrap();
        assert_eq!(back, at.to_le_bytes());
    }
    for n in 0..2000 {
        let name = format!("one more {n}");
        volume.create(&dir, name.as_bytes(), &Create { mode: 0o600, uid: 0, gid: 0 }).unwrap();
        volume.unlink(&dir, names[n * 9].as_bytes()).unwrap();
    }
    drop((dir, file));
    volume.unmount().unwrap();
    let grown = syncline_fs::mkfs::grow(&device, 390 << 20, true).unwrap();
    assert!(grown > built.size_bytes);
    let volume = mount().unwrap();
    assert!(volume.check(&mut |_| true).unwrap().is_clean());
    volume.unmount().unwrap();
    if check {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let mut bytes = vec![0; grown as usize];
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(&path, bytes).unwrap();
        e2fsck_clean(&path).unwrap();
    }
}

#[test]
fn calls_out_of_order_are_refused() {
    let device = MemoryDevice::new(64 << 20);
    let mut build = Build::new(&device, &options(4096), Size::Bytes(64 << 20)).unwrap();
    let meta = NodeMeta::default();
    let first = build.file(ROOT, b"a", meta).unwrap();
    build.write(first, 5000, b"x").unwrap();
    assert!(matches!(build.write(first, 0, b"x"), Err(FsError::Invalid(_))));
    assert!(matches!(build.set_size(first, 100), Err(FsError::Invalid(_))));
    assert_eq!(build.write(first, 1 << 50, b"x"), Err(FsError::TooBig));
    let second = build.file(ROOT, b"b", meta).unwrap();
    assert!(matches!(build.write(first, 9000, b"x"), Err(FsError::Invalid(_))));
    assert_eq!(build.file(ROOT, b"b", meta), Err(FsError::Exists));
    assert_eq!(build.unlink(ROOT, b"lost+found"), Err(FsError::Busy));
    assert!(matches!(build.special(ROOT, b"c", meta, 0), Err(FsError::Invalid(_))));
    assert_eq!(build.symlink(ROOT, b"c", meta, &[b'x'; 4096]), Err(FsError::NameTooLong));
    assert_eq!(build.set_xattrs(second, &[(b"user.a", &[0; 5000])]), Err((0, FsError::NoSpace)));
    build.unlink(ROOT, b"b").unwrap();
    for features in ["^extent,^64bit", "^flex_bg", "^dir_index", "sparse_super2"] {
        let options = Options { features: features.to_owned(), ..options(4096) };
        assert!(Build::new(&device, &options, Size::Minimum).is_err(), "{features}");
    }
    build.finish().unwrap();
}

/// A file that gets its name later, one that gets none, and a tree that goes.
fn unnamed(build: &mut Build<impl BlockDevice>) -> Result<(), FsError> {
    let meta = NodeMeta { mode: 0o644, ..NodeMeta::default() };
    let files = [build.unnamed_file(meta)?, build.unnamed_file(meta)?, build.unnamed_file(meta)?];
    for (file, byte) in files.into_iter().zip([0xA1, 0xB2, 0xC3]) {
        build.open_empty(file)?;
        build.write(file, 0, &[byte; 20_000])?;
    }
    let late = build.unnamed_file(meta)?;
    let above = build.mkdir(ROOT, b"d", meta)?;
    let below = build.mkdir(above, b"e", meta)?;
    build.link(files[0], below, b"gone")?;
    build.link(files[1], ROOT, b"kept")?;
    build.link(late, ROOT, b"late")?;
    build.open_empty(late)?;
    build.write(late, 0, &[0xD4; 5000])?;
    assert!(matches!(build.open_empty(files[1]), Err(FsError::Invalid(_))));
    assert!(matches!(build.open_empty(above), Err(FsError::Invalid(_))));
    assert_eq!(build.remove_tree(ROOT, b"lost+found"), Err(FsError::Busy));
    build.remove_tree(ROOT, b"d")?;
    assert!(build.is_named(late) && !build.is_named(files[2]));
    build.discard_unnamed()
}

#[test]
fn contents_without_a_name_are_not_in_the_image() {
    for k in 1.. {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let failing = FailingDevice::new(Arc::clone(&device));
        failing.arm(FaultPlan::once(OpClass::Any, k));
        let done = Build::new(&failing, &options(4096), Size::Minimum).and_then(|mut build| {
            unnamed(&mut build)?;
            build.finish()
        });
        let mut bytes = vec![0; 64 << 20];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(done.is_ok(), bytes[1024 + 0x38] != 0, "request {k}");
        if failing.hits() > 0 {
            continue;
        }
        done.unwrap();
        let has = |byte: u8| bytes.windows(64).any(|part| part.iter().all(|b| *b == byte));
        assert_eq!([0xA1, 0xB2, 0xC3, 0xD4].map(has), [false, true, false, true]);
        let clock = Arc::new(VirtualClock::new(0));
        let options = MountOptions::default().with(|options| options.read_only = true);
        let volume = Volume::mount(device, clock, options).unwrap();
        assert!(volume.check(&mut |_| true).unwrap().is_clean());
        assert!(volume.resolve("/d").is_err());
        let mut back = [0; 5000];
        let late = volume.resolve("/late").unwrap();
        assert_eq!(volume.read(&late, 0, &mut back), Ok(5000));
        assert_eq!(back, [0xD4; 5000]);
        break;
    }
}
