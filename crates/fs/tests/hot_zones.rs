//! Hot zones on real images: who lies where, the same space as without them, judged by e2fsck.

mod space_support;

use space_support::Bench;
use std::sync::Arc;
use syncline_fs::{Create, FsError, InodeRef, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Need, require};

const MIB: u64 = 1 << 20;
const ZONE_MIB: u64 = 8;

fn bench(spec: &ImageSpec, list: &str) -> Bench {
    let (mut bench, _) = Bench::new(spec, 0);
    bench.options = MountOptions::parse(&format!("cache=4M,{list}")).unwrap();
    bench
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
    let bench = bench(&ImageSpec::with_size(200 * MIB), &list);
    let zone = {
        let vol = bench.mount();
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
    bench.judge("hot files");
    let vol = bench.mount();
    let db = vol.lookup(&vol.root().unwrap(), b"app.db").unwrap();
    vol.write(&db, 2 * MIB, &vec![9; MIB as usize]).unwrap();
    vol.fsync(&db, false).unwrap();
    assert!(within(&runs(&vol, &db), zone), "after a remount");
    drop(db);
    vol.unmount().unwrap();
    bench.judge("a remount");
}

/// Writes cold files until the volume is full; bytes that were taken.
fn fill(list: &str) -> u64 {
    let bench = bench(&ImageSpec::with_size(40 * MIB), list);
    let vol = bench.mount();
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
    bench.judge("a full volume");
    taken
}

#[test]
fn a_full_volume_holds_as_much_with_zones_as_without() {
    if !require("a_full_volume_holds_as_much_with_zones_as_without", &[Need::E2fsck]) {
        return;
    }
    assert_eq!(fill("hot_zones=4,hot_zone_size=4M"), fill("hot_zones=0"));
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
    let bench = bench(&spec, "hot_zones=1,hot_zone_size=16M");
    let vol = bench.mount();
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
    bench.judge("inodes by zone");
}

#[test]
fn a_small_volume_gets_small_zones_and_says_so() {
    if !require("a_small_volume_gets_small_zones_and_says_so", &[Need::E2fsck]) {
        return;
    }
    let bench = bench(&ImageSpec::with_size(64 * MIB), "hot_zones=4");
    let (clock, options) = (bench.clock.clone(), bench.options.clone());
    let dev: Arc<dyn syncline_device::BlockDevice> = bench.dev.clone();
    let (vol, report) = Volume::mount_report(dev, clock, options).unwrap();
    assert_eq!(report.hot_zone_bytes, 8 * MIB, "an eighth");
    vol.unmount().unwrap();
}
