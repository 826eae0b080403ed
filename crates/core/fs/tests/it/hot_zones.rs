//! Allocation policies on real images: who lies where, the same space with every policy, what is
//! learned, and files that are moved, judged by e2fsck, also after power cuts.

use crate::bed::{Bed, contents};
use std::sync::Arc;
use syncline_device::{
    BlockDevice, DeviceError, Geometry, Kind, MemoryDevice, RecordingDevice, Request, TraceOp,
    VirtualClock, WriteLife,
};
use syncline_fs::{Create, FsError, InodeRef, MountOptions, Volume, XattrFlags};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer, run};
use syncline_testkit::{ImageSpec, Need, TempImage, e2fsck_clean, e2fsck_preen, mkfs, require};

const MIB: u64 = 1 << 20;
const ZONE_MIB: u64 = 8;

fn bed(spec: &ImageSpec, list: &str) -> Bed {
    Bed::new(spec, 0).with(&format!("cache=4M,{list}"))
}

/// A file of `len` bytes that begin with `start`, on disk; its runs as first byte and end.
fn file(vol: &Volume, name: &str, start: &[u8], len: u64) -> (InodeRef, Vec<(u64, u64)>) {
    let inode = vol.create(&vol.root().unwrap(), name.as_bytes(), &Create::default()).unwrap();
    let mut data = vec![7; len as usize];
    data[..start.len()].copy_from_slice(start);
    vol.write(&inode, 0, &data).unwrap();
    vol.fsync(&inode, false).unwrap();
    let runs = runs(vol, &inode);
    (inode, runs)
}

fn runs(vol: &Volume, inode: &InodeRef) -> Vec<(u64, u64)> {
    let extents = vol.fiemap(inode, 0, u64::MAX).unwrap();
    extents.iter().map(|extent| (extent.physical, extent.physical + extent.len)).collect()
}

fn within(runs: &[(u64, u64)], zone: (u64, u64)) -> bool {
    runs.iter().all(|run| run.0 >= zone.0 && run.1 <= zone.1)
}

fn apart(runs: &[(u64, u64)], zone: (u64, u64)) -> bool {
    runs.iter().all(|run| run.1 <= zone.0 || run.0 >= zone.1)
}

#[test]
fn databases_lie_in_the_zone_and_others_outside() {
    if !require("databases_lie_in_the_zone_and_others_outside", &[Need::E2fsck]) {
        return;
    }
    let list = format!("hot_zones=4,hot_zone_size={ZONE_MIB}M,hot=*.cache");
    let bed = bed(&ImageSpec::with_size(200 * MIB), &list);
    let zone = {
        let vol = bed.mount("");
        let (photo, cold) = file(&vol, "photo.jpg", b"", 3 * MIB);
        let (_, first) = file(&vol, "app.db", b"", MIB);
        let zone = (first[0].0, first[0].0 + ZONE_MIB * MIB);
        assert!(apart(&cold, zone), "{cold:?} {zone:?}");
        let magic = file(&vol, "no-name", b"SQLite format 3\0", 40960).1;
        for (name, runs) in [
            ("app.db-wal", file(&vol, "app.db-wal", b"", 8192).1),
            ("x.cache", file(&vol, "x.cache", b"", 70_000).1),
            ("no-name", magic),
        ] {
            assert!(within(&runs, zone), "{name}: {runs:?} {zone:?}");
        }
        let small = file(&vol, "note.txt", b"", 100).1;
        assert!(apart(&small, zone), "{small:?}");
        let note = vol.create(&vol.root().unwrap(), b"later.tmp", &Create::default()).unwrap();
        let root = vol.root().unwrap();
        vol.rename(&root, b"later.tmp", &root, b"later.db", Default::default()).unwrap();
        vol.write(&note, 0, &[1; 9000]).unwrap();
        vol.fsync(&note, false).unwrap();
        assert!(within(&runs(&vol, &note), zone), "hot since it was renamed");
        drop((photo, note, root));
        vol.unmount().unwrap();
        zone
    };
    bed.judge("hot files");
    let vol = bed.mount("");
    let db = vol.lookup(&vol.root().unwrap(), b"app.db").unwrap();
    vol.write(&db, 2 * MIB, &vec![9; MIB as usize]).unwrap();
    vol.fsync(&db, false).unwrap();
    assert!(within(&runs(&vol, &db), zone), "after a remount");
    drop(db);
    vol.unmount().unwrap();
    bed.judge("a remount");
}

/// Writes cold files until the volume is full; bytes that were taken.
fn fill(list: &str) -> u64 {
    let bed = bed(&ImageSpec::with_size(40 * MIB), list);
    let vol = bed.mount("");
    let (root, mut taken, chunk) = (vol.root().unwrap(), 0, vec![3; 65536]);
    'full: for index in 0.. {
        let name = format!("cold{index}");
        let file = vol.create(&root, name.as_bytes(), &Create::default()).unwrap();
        for at in 0..16 {
            match vol.write(&file, at * 65536, &chunk) {
                Ok(n) => taken += n as u64,
                Err(FsError::NoSpace) => break 'full,
                Err(err) => panic!("{err}"),
            }
        }
    }
    vol.syncfs().unwrap();
    drop(root);
    vol.unmount().unwrap();
    bed.judge("a full volume");
    taken
}

#[test]
fn a_full_volume_holds_as_much_with_zones_as_without() {
    if !require("a_full_volume_holds_as_much_with_zones_as_without", &[Need::E2fsck]) {
        return;
    }
    let without = fill("alloc=default");
    assert_eq!(fill("alloc=hot_zones,hot_zone_size=4M"), without);
    assert_eq!(fill("alloc=lifetime,hot_zone_size=4M"), without);
}

#[test]
fn inodes_of_hot_files_lie_in_front_of_their_zone() {
    if !require("inodes_of_hot_files_lie_in_front_of_their_zone", &[Need::E2fsck]) {
        return;
    }
    // Flex groups of 128 MiB, of which the second and later have no zone of their own.
    let spec = ImageSpec {
        block_size_bytes: 1024,
        blocks_per_group: Some(8192),
        ..ImageSpec::with_size(400 * MIB)
    };
    let bed = bed(&spec, "hot_zones=1,hot_zone_size=16M");
    let vol = bed.mount("");
    let top = vol.root().unwrap();
    let flex_inodes = 16 * vol.statfs().files / (400 / 8);
    let mut elsewhere = 0;
    for index in 0..8 {
        let name = format!("d{index}");
        let dir = vol.mkdir(&top, name.as_bytes(), &Create::default()).unwrap();
        let db = vol.create(&dir, b"app.db", &Create::default()).unwrap();
        let txt = vol.create(&dir, b"app.txt", &Create::default()).unwrap();
        assert!(u64::from(db.ino) <= flex_inodes, "inode {} of {flex_inodes}", db.ino);
        elsewhere += u32::from(u64::from(txt.ino) > flex_inodes);
    }
    assert!(elsewhere > 0, "directories spread over the flex groups");
    drop(top);
    vol.unmount().unwrap();
    bed.judge("inodes by zone");
}

#[test]
fn one_zone_is_filled_before_the_next_blocks_and_inodes_alike() {
    if !require("one_zone_is_filled_before_the_next_blocks_and_inodes_alike", &[Need::E2fsck]) {
        return;
    }
    // Flex groups of 128 MiB, the first two with a zone.
    const FLEX: u64 = 128 * MIB;
    let spec = ImageSpec {
        block_size_bytes: 1024,
        blocks_per_group: Some(8192),
        ..ImageSpec::with_size(512 * MIB)
    };
    // A file that is written back in pieces gets its blocks piece by piece.
    let bed = bed(&spec, "hot_zones=2,hot_zone_size=4M,writeback=file");
    let vol = bed.mount("");
    let top = vol.root().unwrap();
    let flex_inodes = vol.statfs().files / 4;
    let dirs = [0, 1, 2, 3]
        .map(|n| vol.mkdir(&top, format!("d{n}").as_bytes(), &Create::default()).unwrap());
    let place = |dir: &InodeRef, name: &str, len: usize| {
        let inode = vol.create(dir, name.as_bytes(), &Create::default()).unwrap();
        vol.write(&inode, 0, &vec![6; len]).unwrap();
        vol.fsync(&inode, false).unwrap();
        let at = runs(&vol, &inode);
        (u64::from(inode.ino - 1) / flex_inodes, at[0].0 / FLEX, at[at.len() - 1].0 / FLEX)
    };
    for dir in &dirs {
        assert_eq!(place(dir, "small.db", 100_000), (0, 0, 0), "whatever its directory");
    }
    assert_eq!(place(&dirs[0], "big.db", 5 << 20), (0, 0, 1), "more than the zone holds");
    for dir in &dirs {
        assert_eq!(place(dir, "next.db", 100_000), (1, 1, 1), "inode and blocks in the second");
    }
    drop((dirs, top));
    vol.unmount().unwrap();
    bed.judge("zones in turn");
}

#[test]
fn a_small_volume_gets_small_zones_and_says_so() {
    if !require("a_small_volume_gets_small_zones_and_says_so", &[Need::E2fsck]) {
        return;
    }
    let bed = bed(&ImageSpec::with_size(64 * MIB), "hot_zones=4");
    let (clock, options) = (bed.clock.clone(), bed.parsed(""));
    let dev: Arc<dyn syncline_device::BlockDevice> = bed.dev.clone();
    let (vol, report) = Volume::mount_report(dev, clock, options).unwrap();
    assert_eq!((report.hot_zones, report.hot_zone_bytes), (1, 8 * MIB), "an eighth");
    vol.unmount().unwrap();
}

#[test]
fn zones_grow_with_the_volume_unless_their_size_is_given() {
    let test = "zones_grow_with_the_volume_unless_their_size_is_given";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    // Flex groups of 128 MiB.
    let [small, middle, large] = [512, 2048, 3072].map(|size_mib| {
        let spec = ImageSpec {
            block_size_bytes: 1024,
            blocks_per_group: Some(8192),
            ..ImageSpec::with_size(size_mib * MIB)
        };
        Bed::new(&spec, 0).with("cache=4M")
    });
    let with = |bed: &Bed, list: &str| {
        let dev: Arc<dyn BlockDevice> = Arc::new(bed.dev.snapshot());
        let mounted = Volume::mount_report(dev, bed.clock.clone(), bed.parsed(list)).unwrap();
        mounted.0.unmount().unwrap();
        (mounted.1.hot_zones, mounted.1.hot_zone_bytes / MIB)
    };
    assert_eq!(with(&small, "alloc=hot_zones"), (4, 64));
    assert_eq!(with(&middle, "alloc=hot_zones"), (4, 256));
    assert_eq!(with(&large, "alloc=hot_zones"), (6, 384), "half of a flex group each");
    assert_eq!(with(&middle, "hot_zones=2"), (2, 128));
    assert_eq!(with(&middle, "alloc=hot_zones,hot_zone_size=8M"), (4, 32));
    assert_eq!(
        with(&middle, "hot_zones=4,hot_zone_size=1G"),
        (4, 256),
        "an eighth, of what was asked"
    );
    assert_eq!(with(&middle, "alloc=lifetime"), (1, 64), "one region");
    assert_eq!(with(&middle, ""), (0, 0));
}

#[test]
fn a_journal_that_is_made_again_keeps_its_blocks_beside_other_new_files() {
    let test = "a_journal_that_is_made_again_keeps_its_blocks_beside_other_new_files";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let bed = bed(&ImageSpec::with_size(200 * MIB), "sync=eager,alloc=hot_zones");
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let mut places = Vec::new();
    for index in 0..20 {
        let (journal, at) = file(&vol, "app.db-journal", b"", 12288);
        places.push((journal.ino, at));
        drop(journal);
        vol.unlink(&root, b"app.db-journal").unwrap();
        let note = format!("note{index}");
        vol.create(&root, note.as_bytes(), &Create::default()).unwrap();
    }
    places.dedup();
    assert_eq!(places.len(), 1, "{places:?}");
    drop(root);
    vol.unmount().unwrap();
    bed.judge("a journal made again");
}

const POLICIES: [&str; 2] = ["alloc=hot_zones,hot_zone_size=8M", "alloc=lifetime"];

/// Returns the place of a new database: the begin of the zone for such files, and 8 MiB of it.
fn hot_place(vol: &Volume) -> (u64, u64) {
    let (_, runs) = file(vol, "probe.db", b"", 4096);
    (runs[0].0, runs[0].0 + 8 * MIB)
}

#[test]
fn by_lifetime_all_directories_share_one_region_and_the_rest_is_low() {
    let test = "by_lifetime_all_directories_share_one_region_and_the_rest_is_low";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    // Four flex groups of 128 MiB.
    let spec = ImageSpec {
        block_size_bytes: 1024,
        blocks_per_group: Some(8192),
        ..ImageSpec::with_size(512 * MIB)
    };
    for (list, gathered) in [("alloc=default", false), ("alloc=lifetime,hot_zones=1", true)] {
        let bed = bed(&spec, list);
        let vol = bed.mount("");
        let (top, mut databases, mut photos) = (vol.root().unwrap(), Vec::new(), Vec::new());
        for index in 0..8 {
            let name = format!("d{index}");
            let dir = vol.mkdir(&top, name.as_bytes(), &Create::default()).unwrap();
            for (name, list) in [("app.db", &mut databases), ("p.jpg", &mut photos)] {
                let inode = vol.create(&dir, name.as_bytes(), &Create::default()).unwrap();
                vol.write(&inode, 0, &vec![5; 600_000]).unwrap();
                vol.fsync(&inode, false).unwrap();
                list.extend(runs(&vol, &inode));
            }
        }
        let first = databases[0].0;
        let region = (first.saturating_sub(16 * MIB), first + 64 * MIB);
        assert_eq!(within(&databases, region), gathered, "{list}: {databases:?}");
        // Eight windows of 1 MiB behind the region, and nothing further up.
        let behind = (region.0, region.1 + 24 * MIB);
        assert_eq!(within(&photos, behind), gathered, "{list}: {photos:?}");
        drop(top);
        vol.unmount().unwrap();
        bed.judge(list);
    }
}

#[test]
fn a_file_that_is_written_over_moves_in_when_it_is_written_anew() {
    let test = "a_file_that_is_written_over_moves_in_when_it_is_written_anew";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for list in POLICIES {
        let bed = bed(&ImageSpec::with_size(200 * MIB), list);
        let vol = bed.mount("");
        let zone = hot_place(&vol);
        let (state, before) = file(&vol, "state.bin", b"", 40_960);
        let rewrite = |inode: &InodeRef| {
            vol.truncate(inode, 0).unwrap();
            vol.write(inode, 0, &[8; 40_960]).unwrap();
            vol.fsync(inode, false).unwrap();
            runs(&vol, inode)
        };
        assert!(apart(&before, zone) && apart(&rewrite(&state), zone), "{list}: not known yet");
        for round in 0..64 {
            vol.write(&state, round % 10 * 4096, &[round as u8; 4096]).unwrap();
            vol.fsync(&state, false).unwrap();
        }
        assert!(within(&rewrite(&state), zone), "{list}: {:?} {zone:?}", runs(&vol, &state));
        drop(state);
        vol.unmount().unwrap();
        bed.judge(list);
    }
}

#[test]
fn files_whose_ending_dies_young_go_to_the_zone_at_once() {
    if !require("files_whose_ending_dies_young_go_to_the_zone_at_once", &[Need::E2fsck]) {
        return;
    }
    for list in POLICIES {
        let bed = bed(&ImageSpec::with_size(200 * MIB), list);
        let vol = bed.mount("");
        let zone = hot_place(&vol);
        // Short-lived files have the front of the zone, before databases, with `alloc=lifetime`.
        let zone = (zone.0.saturating_sub(16 * MIB), zone.1);
        for index in 0..8 {
            let name = format!("{index}.part");
            let (inode, runs) = file(&vol, &name, b"", 8192);
            assert!(apart(&runs, zone), "{list}: {runs:?} is not known yet");
            drop(inode);
            vol.unlink(&vol.root().unwrap(), name.as_bytes()).unwrap();
        }
        let (_, runs) = file(&vol, "next.part", b"", 8192);
        assert!(within(&runs, zone), "{list}: {runs:?} {zone:?}");
        vol.unmount().unwrap();
        bed.judge(list);
    }
}

fn mixed_bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 * 7 + at % 251 + salt) as u8).collect()
}

#[test]
fn a_file_is_moved_on_demand_and_keeps_what_it_holds() {
    if !require("a_file_is_moved_on_demand_and_keeps_what_it_holds", &[Need::E2fsck]) {
        return;
    }
    for (list, sync) in POLICIES.iter().flat_map(|list| ["eager", "ordered"].map(|s| (list, s))) {
        let mut bed = bed(&ImageSpec::with_size(200 * MIB), "alloc=default");
        let bytes = mixed_bytes(1_500_000, 0);
        {
            let vol = bed.mount("");
            let (inode, _) = file(&vol, "old.bin", &bytes, bytes.len() as u64);
            // A hole, and blocks that were never written.
            vol.write(&inode, 3 * MIB, &bytes[..5000]).unwrap();
            let mode = syncline_fs::FallocateMode::KeepSize;
            vol.fallocate(&inode, mode, 2 * MIB, 65536).unwrap();
            vol.fsync(&inode, false).unwrap();
            let asked = vol.relocate(&inode);
            assert!(matches!(asked, Err(FsError::Invalid(_))), "no zones: {asked:?}");
            drop(inode);
            vol.unmount().unwrap();
        }
        bed.options = format!("cache=4M,{list},sync={sync}");
        let vol = bed.mount("");
        let root = vol.root().unwrap();
        let zone = hot_place(&vol);
        let inode = vol.lookup(&root, b"old.bin").unwrap();
        assert!(apart(&runs(&vol, &inode), zone));
        // Pages that are newer than the device.
        vol.write(&inode, 8192, b"changed").unwrap();
        vol.fsync(&inode, false).unwrap();
        vol.write(&inode, 40_000, b"not synced").unwrap();
        let mut expected = contents(&vol, &inode);
        let before = vol.getattr(&inode);
        let moved = vol.relocate(&inode).unwrap();
        assert_eq!(moved, 1_500_000_u64.div_ceil(4096) + 16 + 2, "{list} {sync}");
        assert!(within(&runs(&vol, &inode), zone), "{list} {sync}: {:?}", runs(&vol, &inode));
        assert_eq!(vol.relocate(&inode).unwrap(), 0, "it is there");
        let after = vol.getattr(&inode);
        assert_eq!((before.size, before.mtime), (after.size, after.mtime));
        assert_eq!(before.blocks, after.blocks);
        assert_eq!(contents(&vol, &inode), expected);
        vol.write(&inode, 100, b"after").unwrap();
        expected[100..105].copy_from_slice(b"after");
        vol.fsync(&inode, false).unwrap();
        drop((inode, root));
        vol.unmount().unwrap();
        bed.judge("a moved file");
        let vol = bed.mount("");
        let inode = vol.lookup(&vol.root().unwrap(), b"old.bin").unwrap();
        assert_eq!(contents(&vol, &inode), expected, "{list} {sync}: after a remount");
    }
}

#[test]
fn a_directory_is_moved_by_the_attribute_and_a_full_zone_is_no_error() {
    let test = "a_directory_is_moved_by_the_attribute_and_a_full_zone_is_no_error";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let bed = bed(&ImageSpec::with_size(200 * MIB), "alloc=hot_zones,hot_zone_size=1M");
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let dir = vol.mkdir(&root, b"d", &Create::default()).unwrap();
    let mut files = Vec::new();
    for index in 0..3 {
        let name = format!("{index}.bin");
        let inode = vol.create(&dir, name.as_bytes(), &Create::default()).unwrap();
        vol.write(&inode, 0, &mixed_bytes(400_000, index)).unwrap();
        vol.fsync(&inode, false).unwrap();
        files.push((runs(&vol, &inode), inode));
    }
    let attribute = b"user.syncline.relocate";
    vol.setxattr(&dir, attribute, b"now", XattrFlags::Any).unwrap();
    assert!(vol.listxattr(&dir).unwrap().is_empty(), "it is not stored");
    let moved: Vec<bool> = files.iter().map(|(before, i)| runs(&vol, i) != *before).collect();
    assert_eq!(moved, [true, true, true], "the third in part");
    let left = files.iter().filter(|(before, inode)| {
        runs(&vol, inode).iter().any(|run| before.iter().any(|b| b.0 <= run.0 && run.1 <= b.1))
    });
    assert_eq!(left.count(), 1, "1 MiB holds two and a part of the third");
    for (index, (_, inode)) in files.iter().enumerate() {
        assert_eq!(contents(&vol, inode), mixed_bytes(400_000, index));
    }
    let link = vol.symlink(&root, b"l", b"d", &Create::default()).unwrap();
    assert!(matches!(vol.relocate(&link), Err(FsError::NotSupported(_))));
    drop((files, dir, root, link));
    vol.unmount().unwrap();
    bed.judge("a moved directory");
}

fn judge_moved(image: &MemoryDevice, file: &TempImage, bytes: &[u8]) -> Result<(), String> {
    image.to_file(file.path()).map_err(|e| e.to_string())?;
    e2fsck_preen(file.path())?;
    e2fsck_clean(file.path())?;
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::load(file.path()).unwrap());
    let options = MountOptions::parse("ro").unwrap();
    let vol = Volume::mount(dev, Arc::new(VirtualClock::default()), options);
    let vol = vol.map_err(|e| e.to_string())?;
    let inode = vol.lookup(&vol.root().unwrap(), b"old.bin").map_err(|e| e.to_string())?;
    let found = contents(&vol, &inode);
    let differs = found.iter().zip(bytes).position(|(a, b)| a != b);
    match (found.len() == bytes.len(), differs) {
        (true, None) => Ok(()),
        (_, at) => Err(format!("{} bytes, the first wrong at {at:?}", found.len())),
    }
}

#[test]
fn a_power_cut_while_a_file_is_moved_loses_nothing() {
    if !require("a_power_cut_while_a_file_is_moved_loses_nothing", &[Need::E2fsck]) {
        return;
    }
    let states = std::env::var("SYNCLINE_CRASH_STATES").ok().and_then(|n| n.trim().parse().ok());
    let only = std::env::var("SYNCLINE_CRASH_STATE").ok();
    let only = only.map(|id| id.parse().expect("an id from a failure report"));
    let spec = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(16 * MIB) };
    let image = Arc::new(MemoryDevice::load(mkfs(&spec).path()).unwrap());
    let mount = |dev: Arc<dyn BlockDevice>, list: &str| {
        let options = MountOptions::parse(list).unwrap();
        Volume::mount(dev, Arc::new(VirtualClock::default()), options).unwrap()
    };
    let mut bytes = mixed_bytes(1_300_000, 3);
    let vol = mount(image.clone(), "cache=4M");
    // Where the zone will be.
    drop(file(&vol, "first", b"", 2_300_000));
    drop(file(&vol, "old.bin", &bytes, bytes.len() as u64));
    vol.unlink(&vol.root().unwrap(), b"first").unwrap();
    vol.unmount().unwrap();
    for sync in ["eager", "ordered"] {
        let device = Arc::new(CrashDevice::new(&image, CrashOptions::default()));
        let list = format!("cache=4M,sync={sync},alloc=hot_zones,hot_zone_size=2M");
        let vol = mount(device.clone(), &list);
        let inode = vol.lookup(&vol.root().unwrap(), b"old.bin").unwrap();
        let before = runs(&vol, &inode);
        for page in 0..12 {
            // In the log with sync=eager.
            let at = page * 9 * 4096;
            bytes[at..at + 4096].fill(page as u8);
            vol.write(&inode, at as u64, &bytes[at..at + 4096]).unwrap();
            vol.fsync(&inode, false).unwrap();
        }
        device.mark(1);
        assert_eq!(vol.relocate(&inode).unwrap(), 318);
        assert!(apart(&runs(&vol, &inode), (before[0].0, before[0].1)), "sync={sync}");
        vol.syncfs().unwrap();
        // The blocks that were freed are used again.
        for index in 0..3 {
            file(&vol, &format!("other{index}"), b"", 600_000);
        }
        // A machine that stops does not close its files.
        std::mem::forget(inode);
        let scratch = TempImage::zeroed(16 * MIB);
        let budget = Budget::new(states.unwrap_or(100), 3).with_only(only.clone());
        let command = "cargo test -p syncline-fs --test it hot_zones::a_power_cut_while";
        let summary =
            run(&Explorer::new(device.log()), &budget, command, |state| match state.marks() {
                [] => Ok(()),
                _ => judge_moved(&state.image, &scratch, &bytes),
            });
        println!("sync={sync}: {summary}");
        if let Err(text) = summary.into_result() {
            panic!("sync={sync}: {text}");
        }
    }
}

/// A device that says if it has a use for lifetimes.
struct WithHints {
    below: Arc<dyn BlockDevice>,
    write_hints: bool,
}

impl BlockDevice for WithHints {
    fn geometry(&self) -> Geometry {
        Geometry { write_hints: self.write_hints, ..self.below.geometry() }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.below.submit(batch)
    }
}

/// The writes of one workload: place, length and bytes are the device's own.
fn writes_of(options: &str, write_hints: bool) -> Vec<(u64, u64)> {
    let bed = bed(&ImageSpec::with_size(64 * MIB), options);
    let below = WithHints { below: bed.dev.clone(), write_hints };
    let dev = Arc::new(RecordingDevice::with_events(below, bed.clock.clone(), 1 << 16));
    let vol = bed.mount_on(dev.clone(), "");
    for round in 0..4 {
        for name in ["app.db", "app.db-journal", "note.txt", "photo.jpg"] {
            let name = format!("{round}-{name}");
            let (inode, _) = file(&vol, &name, b"SQLite format 3\0", 9000);
            vol.write(&inode, 0, &[round; 4096]).unwrap();
            vol.fsync(&inode, true).unwrap();
        }
    }
    vol.unmount().unwrap();
    bed.judge("hints");
    dev.take_events().iter().map(|event| (event.offset_bytes, event.len_bytes)).collect()
}

#[test]
fn lifetimes_for_a_device_change_no_request() {
    if !require("lifetimes_for_a_device_change_no_request", &[Need::E2fsck]) {
        return;
    }
    for options in ["sync=ordered", "sync=eager", "sync=eager,log=packed"] {
        assert_eq!(writes_of(options, false), writes_of(options, true), "{options}");
    }
}

/// Lifetimes that the device is told of the data of a file, of metadata and of the log.
#[test]
fn the_device_is_told_how_long_data_lives() {
    if !require("the_device_is_told_how_long_data_lives", &[Need::E2fsck]) {
        return;
    }
    for (options, write_hints, hot) in [
        ("alloc=hot_zones,sync=ordered", false, true),
        ("alloc=hot_zones,sync=eager", false, true),
        ("alloc=lifetime,sync=ordered", false, true),
        ("alloc=default,sync=ordered", false, false),
        ("alloc=default,sync=ordered", true, true),
        // In eager mode neighbours go in place as one command, with the lifetime of the first.
        ("alloc=lifetime,sync=eager", true, true),
    ] {
        let bed = bed(&ImageSpec::with_size(64 * MIB), options);
        let dev = Arc::new(RecordingDevice::with_events(
            WithHints { below: bed.dev.clone(), write_hints },
            bed.clock.clone(),
            1 << 16,
        ));
        let vol = bed.mount_on(dev.clone(), "");
        let cold = WriteLife::Extreme;
        let (updated, short) =
            if hot { (WriteLife::Long, WriteLife::Medium) } else { (cold, cold) };
        let files = [("app.db", updated), ("app.db-journal", short), ("photo.jpg", cold)];
        let files = files.map(|(name, life)| (file(&vol, name, b"", 40_960).0, name, life));
        for (inode, ..) in &files {
            // In eager mode these pages pass through the log.
            vol.write(inode, 4096, &[3; 4096]).unwrap();
            vol.fsync(inode, true).unwrap();
        }
        let numbers = files.each_ref().map(|(inode, name, life)| (inode.ino, *name, *life));
        drop(files);
        vol.unmount().unwrap();
        let events = dev.take_events();
        let writes = || events.iter().filter(|event| event.op == TraceOp::Write);
        for (ino, name, life) in numbers {
            let kind = Kind::Data { inode: u64::from(ino) };
            let told: Vec<_> = writes().filter(|event| event.origin.kind == kind).collect();
            assert!(!told.is_empty(), "{options}: {name}");
            assert!(told.iter().all(|event| event.origin.life == life), "{options}: {name}");
        }
        for (kind, life) in [(Kind::Journal, WriteLife::Short), (Kind::Metadata, WriteLife::Long)] {
            let told: Vec<_> = writes().filter(|event| event.origin.kind == kind).collect();
            assert!(!told.is_empty(), "{options}: {kind:?}");
            let told: Vec<_> = told.iter().map(|event| event.origin).collect();
            assert!(told.iter().all(|origin| origin.life == life), "{options}: {told:?}");
        }
    }
}
