//! Repairs by kind of damage: e2fsck finds nothing afterwards, a second repair changes nothing, and
//! every file that the damage left has its name and its bytes.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_device::{
    BlockDevice, DeviceError, Geometry, Kind, MemoryDevice, Op, Origin, Request,
};
use syncline_fs::repair::Plan;
use syncline_testkit::{
    ImageSpec, Need, TempImage, debugfs, e2fsck_clean, files_of, mkfs, require,
};

use crate::bed::{Bed, names, owner};

const EXTENTS: &str = "metadata_csum,64bit";
const POINTERS: &str = "^metadata_csum,^64bit,^extent";

/// Damage: features, commands of debugfs, names that are gone afterwards or have other bytes, and
/// names that are new.
type Damage = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const DAMAGES: [Damage; 29] = [
    // Inodes.
    (EXTENTS, "sif /f mode 0\n", &["f"], &[]),
    (EXTENTS, "sif /f size 1\n", &["f"], &[]),
    (EXTENTS, "sif /f faddr 7\n", &[], &[]),
    (EXTENTS, "sif /f flags 0x10080000\n", &[], &[]),
    (EXTENTS, "sif /link size 9999\n", &["link"], &[]),
    (POINTERS, "sif /f flags 0x10000000\n", &["f"], &[]),
    (POINTERS, "sif /f file_acl 99999999\n", &[], &[]),
    (EXTENTS, "ea_set /f user.a b\nsif /f file_acl 5\n", &[], &[]),
    // Maps.
    (POINTERS, "sif /f block[1] 99999999\n", &["f"], &[]),
    (POINTERS, "sif /f block[IND] 99999999\n", &["f"], &[]),
    (EXTENTS, "sif /f block[0] 0\n", &["f"], &[]),
    (EXTENTS, "sif /f block[3] 77\n", &["f"], &[]),
    // Blocks with two owners: the table of inodes, and another file.
    (POINTERS, "sif /d/g block[0] 300\n", &["d/g"], &[]),
    (POINTERS, "sif /d/g block[0] 1\n", &["d/g"], &[]),
    // Directories.
    (
        POINTERS,
        "sif /d block[0] 0\n",
        &["d/g", "d/e/deep"],
        &["lost+found/#15", "lost+found/#14/deep"],
    ),
    (
        EXTENTS,
        "zap_block -f /d 0 -p 0x55 -o 24 -l 8\n",
        &["d/g", "d/e/deep"],
        &["lost+found/#15", "lost+found/#14/deep"],
    ),
    (EXTENTS, "zap_block -f /d 0 -p 0x55 -o 0 -l 12\n", &[], &[]),
    (EXTENTS, "sif /wide flags 0x81000\n", &[], &[]),
    // Of two names of a directory, `..` knows the right one, but for one below itself.
    (POINTERS, "ln /d/e /twice\n", &[], &[]),
    (POINTERS, "ln /d /d/e/again\nzap_block -f /d 0 -p 14 -o 12 -l 1\n", &[], &[]),
    (EXTENTS, "ln /d /again\n", &[], &[]),
    (EXTENTS, "unlink /f\nsif /f links_count 1\n", &["f"], &["lost+found/#12"]),
    (EXTENTS, "clri /d\n", &["d/g", "d/e/deep"], &["lost+found/#15", "lost+found/#14/deep"]),
    (EXTENTS, "unlink /lost+found\nclri <11>\nunlink /f\n", &["f"], &["lost+found/#12"]),
    // The file system's own.
    (EXTENTS, "clri <7>\n", &[], &[]),
    (EXTENTS, "clri <8>\n", &[], &[]),
    (EXTENTS, "set_bg 0 inode_table 1\n", &[], &[]),
    (EXTENTS, "zap_block -p 0 1\n", &[], &[]),
    (EXTENTS, "jo\njw -b 9000 /etc/passwd\njc\n", &[], &[]),
];

/// A tree of files, in inodes that the table above knows.
fn image(features: &str) -> TempImage {
    let image = mkfs(&ImageSpec {
        size_bytes: 12 << 20,
        block_size_bytes: 1024,
        features: features.into(),
        inode_count: Some(512),
        ..ImageSpec::default()
    });
    let file = tempfile::NamedTempFile::new().expect("scratch space");
    let bytes: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(file.path(), bytes).expect("scratch space");
    let from = file.path().display();
    let mut tree = format!(
        "write {from} f\nmkdir d\nmkdir d/e\nwrite {from} d/g\nwrite {from} d/e/deep\n\
         symlink link target\nmkdir wide\n"
    );
    for nr in 0..120 {
        tree += &format!("write /dev/null wide/name-{nr}\n");
    }
    let _ = debugfs(image.path(), &tree);
    e2fsck_clean(image.path()).expect("the tree is sound");
    image
}

/// Repairs an image: e2fsck finds nothing then, and a second repair changes nothing.
pub(crate) fn repaired(image: &TempImage, what: &str) {
    let bytes = image.bytes();
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let plan = Plan::new(&dev, &mut |_| true).expect("it can be planned");
    assert!(!plan.changes.is_empty(), "{what}: no damage");
    assert!(plan.after.is_clean(), "{what}: left {:?}", plan.after.findings);
    plan.apply(&*dev).expect("memory");
    let again = Plan::new(&dev, &mut |_| true).expect("it can be planned");
    assert!(again.changes.is_empty(), "{what}: a second repair changes something");
    let mut mended = vec![0; bytes.len()];
    dev.read(0, &mut mended, Origin::new(Kind::Metadata, true)).expect("memory");
    fs::write(image.path(), mended).expect("scratch space");
    e2fsck_clean(image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
}

#[test]
fn each_kind_of_damage_is_mended_and_the_rest_is_kept() {
    if !require("each_kind_of_damage_is_mended_and_the_rest_is_kept", &[Need::E2fsck]) {
        return;
    }
    let sound = [EXTENTS, POINTERS].map(|features| (features, image(features)));
    let trees = sound.each_ref().map(|(_, image)| files_of(image.path()));
    for (features, commands, gone, new) in DAMAGES {
        let of = usize::from(features != EXTENTS);
        let image = sound[of].1.duplicate();
        let said = debugfs(image.path(), commands);
        let what = format!("{features}: {commands}");
        assert!(image.bytes() != sound[of].1.bytes(), "{what}: {said}");
        repaired(&image, &what);
        let found = files_of(image.path());
        for (name, bytes) in &trees[of] {
            let is_kept = found.get(name) == Some(bytes);
            assert_eq!(is_kept, !gone.contains(&name.as_str()), "{what}: {name}");
        }
        for name in new {
            assert!(found.contains_key(*name), "{what}: {name} is not in {:?}", found.keys());
        }
    }
}

#[test]
fn names_that_are_there_twice_are_renamed() {
    if !require("names_that_are_there_twice_are_renamed", &[Need::E2fsck]) {
        return;
    }
    let image = image(POINTERS);
    let commands = "write /etc/passwd aaaa\nwrite /etc/hosts aaab\n";
    let _ = debugfs(image.path(), commands);
    let before = files_of(image.path());
    let mut bytes = image.bytes();
    let at = bytes.windows(4).position(|part| part == b"aaab").expect("the name is in the root");
    bytes[at..at + 4].copy_from_slice(b"aaaa");
    fs::write(image.path(), &bytes).expect("scratch space");
    repaired(&image, "two names");
    let after = files_of(image.path());
    let mut both = [&after["aaaa"], &after["aa~0"]];
    both.sort();
    let mut want = [&before["aaaa"], &before["aaab"]];
    want.sort();
    assert_eq!(both, want);
}

#[test]
fn an_extent_out_of_order_costs_its_own_blocks_only() {
    if !require("an_extent_out_of_order_costs_its_own_blocks_only", &[Need::E2fsck]) {
        return;
    }
    let sound = image(EXTENTS);
    let file = tempfile::NamedTempFile::new().expect("scratch space");
    for nr in 0..4 {
        let at = nr * (4 << 10);
        std::os::unix::fs::FileExt::write_at(file.as_file(), &[b'x'; 1024], at)
            .expect("scratch space");
    }
    let _ = debugfs(sound.path(), &format!("write {} holes\n", file.path().display()));
    let before = &files_of(sound.path())["holes"];
    assert_eq!(before.len(), 13 << 10);
    let image = sound.duplicate();
    let _ = debugfs(image.path(), "sif /holes block[3] 4\nsif /holes block[6] 0\n");
    repaired(&image, "two extents in each other's place");
    assert!(files_of(image.path())["holes"] == *before, "both are kept");
    // The first blocks of the four extents are words 3, 6, 9 and 12 of `i_block`.
    for (nr, word) in [3, 6, 9].into_iter().enumerate() {
        for to in [99_999, 4_000_000_000, u32::MAX] {
            let image = sound.duplicate();
            let _ = debugfs(image.path(), &format!("sif /holes block[{word}] {to}\n"));
            repaired(&image, &format!("extent {nr} at {to}"));
            let mut want = before.clone();
            want[nr * (4 << 10)..][..1024].fill(0);
            assert!(files_of(image.path())["holes"] == want, "extent {nr} at {to}");
        }
    }
}

#[test]
fn an_empty_value_outside_of_its_area_costs_nothing() {
    if !require("an_empty_value_outside_of_its_area_costs_nothing", &[Need::E2fsck]) {
        return;
    }
    // In the inode of a file with inline data, and in a block behind a full inode.
    let values = format!("ea_set /f user.a {}\nea_set /f user.b {0}\n", "v".repeat(60));
    for (features, more) in [("metadata_csum,inline_data", ""), (EXTENTS, &*values)] {
        let image = image(features);
        let commands =
            format!("write /etc/hostname g\n{more}ea_set -f /dev/null FILE user.empty\n");
        let name = if more.is_empty() { "/g" } else { "/f" };
        let _ = debugfs(image.path(), &commands.replace("FILE", name));
        e2fsck_clean(image.path()).expect("the attributes are sound");
        let before = files_of(image.path());
        let mut bytes = image.bytes();
        let at = bytes.windows(5).position(|part| part == b"empty").expect("the attribute");
        bytes[at - 14..at - 12].copy_from_slice(&0x2000_u16.to_le_bytes());
        fs::write(image.path(), &bytes).expect("scratch space");
        repaired(&image, features);
        assert!(files_of(image.path()) == before, "{features}");
        let said = debugfs(image.path(), &format!("ea_list {name}\n"));
        assert!(said.contains("user.empty"), "{features}: {said}");
    }
}

#[test]
fn findings_that_are_refused_stay() {
    if !require("findings_that_are_refused_stay", &[Need::E2fsck]) {
        return;
    }
    let image = image(EXTENTS);
    let _ = debugfs(image.path(), "sif /f mode 0\nsif /d/g links_count 5\n");
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let mut asked = Vec::new();
    let plan = Plan::asking(&dev, &mut |_| true, &mut |finding| {
        asked.push(finding.name);
        finding.is_safe()
    });
    let plan = plan.expect("it can be planned");
    let is_mode = |finding: &syncline_fs::Finding| finding.name == "inode-mode-invalid";
    assert!(plan.after.findings.iter().any(is_mode), "a mend that was refused is made");
    let all: usize = asked.iter().filter(|name| **name == "inode-mode-invalid").count();
    assert_eq!(all, 1, "a question is asked once");
}

fn device(image: &TempImage) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::load(image.path()).unwrap())
}

/// Repairs, and hands out the device.
fn mended(dev: Arc<dyn BlockDevice>, what: &str) -> Plan {
    let plan = Plan::new(&dev, &mut |_| true).expect("it can be planned");
    assert!(plan.after.is_clean(), "{what}: left {:?}", plan.after.findings);
    plan.apply(&*dev).expect("memory");
    let again = Plan::new(&dev, &mut |_| true).expect("it can be planned");
    assert!(again.changes.is_empty(), "{what}: a second repair changes something");
    plan
}

/// Bytes of a device in an image file, which e2fsck judges.
fn judged(dev: &dyn BlockDevice, image: &TempImage, what: &str) {
    let mut bytes = vec![0; image.bytes().len()];
    dev.read(0, &mut bytes, Origin::new(Kind::Metadata, true)).expect("memory");
    fs::write(image.path(), bytes).expect("scratch space");
    e2fsck_clean(image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
}

/// An index with as many levels as `count` names need, damaged and mended, has the same names.
#[test]
fn an_index_that_is_wrong_is_built_again() {
    if !require("an_index_that_is_wrong_is_built_again", &[Need::E2fsck]) {
        return;
    }
    for (features, count, block_size) in
        [(EXTENTS, 100, 1024), (POINTERS, 1200, 1024), (EXTENTS, 7000, 1024), (EXTENTS, 3000, 4096)]
    {
        let what = format!("{features}, {count} names, blocks of {block_size}");
        let bed = Bed::new(
            &ImageSpec {
                size_bytes: 24 << 20,
                block_size_bytes: block_size,
                features: features.into(),
                inode_count: Some(64),
                ..ImageSpec::default()
            },
            1,
        );
        let volume = bed.mount("");
        let root = volume.iget(2).expect("the root");
        let dir = volume.mkdir(&root, b"dir", &owner()).expect("room");
        for nr in 0..count {
            let name = format!("name-{nr:0width$}", width = 4 + nr % 40);
            volume.link(&bed.file(&volume, 0), &dir, name.as_bytes()).expect("room");
        }
        let names = |volume: &syncline_fs::Volume| {
            let dir = volume.lookup(&volume.iget(2).unwrap(), b"dir").expect("it is there");
            let mut list = names(volume, &dir);
            for name in &list {
                volume.lookup(&dir, name).expect("the index leads to it");
            }
            list.sort();
            list
        };
        let before = names(&volume);
        bed.unmount_and_judge(volume, &what);
        for damage in [
            // The hash of the second entry of the root, a count, the version of the hash.
            "zap_block -f /dir 0 -p 0xfe -o 40 -l 4\n",
            "zap_block -f /dir 0 -p 0x77 -o 34 -l 2\n",
            "zap_block -f /dir 0 -p 0x55 -o 28 -l 1\n",
        ] {
            let image = bed.image.duplicate();
            let _ = debugfs(image.path(), damage);
            let dev = device(&image);
            let plan = mended(dev.clone(), &what);
            assert!(plan.before.errors > 0, "{what}: {damage}: no damage");
            judged(&*dev, &image, &what);
            let stat = debugfs(image.path(), "stat /dir\n");
            let is_indexed = ["Flags: 0x1000", "Flags: 0x81000"].iter().any(|f| stat.contains(f));
            assert!(is_indexed, "{what}: {damage}: the index is gone: {stat}");
            let volume = bed.mount_on(dev, "ro");
            assert!(names(&volume) == before, "{what}: {damage}: names are gone");
        }
    }
}

/// The copies of superblock and descriptors are of use after a repair of anything else, and only
/// then are they written.
#[test]
fn backups_are_mended_with_the_rest() {
    if !require("backups_are_mended_with_the_rest", &[Need::E2fsck]) {
        return;
    }
    for features in [EXTENTS, POINTERS] {
        let image = image(features);
        let copy = 8193 * 1024..8195 * 1024;
        let mut bytes = image.bytes();
        bytes[copy].fill(0x5a);
        fs::write(image.path(), &bytes).expect("scratch space");
        let dev: Arc<dyn BlockDevice> = device(&image);
        let plan = Plan::new(&dev, &mut |_| true).expect("it can be planned");
        assert!(plan.changes.is_empty(), "{features}: a sound image is changed");
        let _ = debugfs(image.path(), "sif /f links_count 4\n");
        let dev = device(&image);
        mended(dev.clone(), features);
        judged(&*dev, &image, features);
        // The primary goes now: the backup alone leads to everything.
        let trees = files_of(image.path());
        let mut bytes = image.bytes();
        bytes[1024..4096].fill(0);
        fs::write(image.path(), &bytes).expect("scratch space");
        let dev = device(&image);
        mended(dev.clone(), features);
        judged(&*dev, &image, features);
        assert!(files_of(image.path()) == trees, "{features}: files are lost");
    }
}

/// Fails reads of some blocks of 1 KiB until they are written.
struct Worn {
    below: Arc<MemoryDevice>,
    bad: Mutex<BTreeSet<u64>>,
}

impl BlockDevice for Worn {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            let first = request.offset_bytes >> 10;
            let end = (request.offset_bytes + request.len_bytes()).div_ceil(1024);
            match request.op {
                Op::Write { .. } => {
                    self.bad.lock().retain(|block| !(first..end).contains(block));
                }
                _ if self.bad.lock().range(first..end).next().is_some() => {
                    return Err(DeviceError::Io {
                        op: "read",
                        offset_bytes: request.offset_bytes,
                        len_bytes: request.len_bytes(),
                        reason: "a bad block".into(),
                        errno: 5,
                    });
                }
                _ => {}
            }
        }
        self.below.submit(batch)
    }
}

/// A block of metadata that cannot be read costs what was in it, and nothing else.
#[test]
fn blocks_that_cannot_be_read_are_written_and_mended() {
    if !require("blocks_that_cannot_be_read_are_written_and_mended", &[Need::E2fsck]) {
        return;
    }
    let sound = image(EXTENTS);
    let trees = files_of(sound.path());
    let stat = debugfs(sound.path(), "blocks /d\nblocks /wide\nimap /f\n");
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
    let blocks: Vec<u64> = stat.lines().filter_map(number).collect();
    let [dir, wide] = blocks[..2] else { panic!("debugfs names the blocks: {stat}") };
    // Superblock, descriptors, the superblock with them, a directory, one of several blocks.
    for bad in [vec![1], vec![2], vec![1, 2], vec![dir], vec![wide], vec![1, 2, dir, wide]] {
        let what = format!("blocks {bad:?}");
        let image = sound.duplicate();
        let below = device(&image);
        let dev =
            Arc::new(Worn { below: below.clone(), bad: Mutex::new(bad.iter().copied().collect()) });
        let above: Arc<dyn BlockDevice> = dev.clone();
        let safe = Plan::asking(&above, &mut |_| true, &mut |finding| finding.is_safe());
        assert!(!safe.expect("it can be planned").after.is_clean(), "{what}: preen forces a write");
        let undo = Plan::new(&above, &mut |_| true).expect("it can be planned");
        assert!(!undo.undo(&*above).is_empty());
        mended(above, &what);
        assert!(dev.bad.lock().is_empty(), "{what}: some are still bad");
        judged(&*below, &image, &what);
        let found = files_of(image.path());
        for (name, bytes) in &trees {
            let base = name.rsplit('/').next().unwrap_or(name);
            let is_kept = found.values().any(|other| other == bytes);
            assert!(is_kept, "{what}: the bytes of {base} are lost");
        }
    }
}

/// Where a field of the superblock is wrong, all else would be judged by it: a reserved inode would
/// get a name in lost+found. A backup has the field, or it can have one value only.
#[test]
fn fields_of_the_superblock_are_mended_before_anything_else() {
    let test = "fields_of_the_superblock_are_mended_before_anything_else";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let small = ImageSpec {
        block_size_bytes: 1024,
        features: POINTERS.into(),
        journal_size_mib: Some(1),
        ..ImageSpec::with_size(6 << 20)
    };
    for (sound, has_backup) in [(image(POINTERS), true), (mkfs(&small), false)] {
        let _ = debugfs(sound.path(), "mkdir new\n");
        e2fsck_clean(sound.path()).expect("it is sound");
        let before = files_of(sound.path());
        for (at, bytes, is_known) in [
            (0x54, &[0; 4][..], true),
            (0x54, &[0xff; 4], true),
            (0x08, &[0xff; 4], true),
            (0xfe, &[30, 0], true),
            // The blocks that are reserved for descriptors: no other field says how many.
            (0xce, &[0xff, 0xff], false),
        ] {
            let what = format!("{at:#x}: {bytes:?}, backup: {has_backup}");
            let dev = device(&sound);
            dev.write_at(1024 + at, bytes).expect("memory");
            if !has_backup && !is_known {
                let above: Arc<dyn BlockDevice> = dev.clone();
                let plan = Plan::new(&above, &mut |_| true).expect("it can be planned");
                assert!(plan.changes.is_empty() && !plan.after.is_clean(), "{what}");
                continue;
            }
            let plan = mended(dev.clone(), &what);
            let found = |name| plan.before.findings.iter().any(|found| found.name == name);
            assert!(found("superblock-field"), "{what}: {:?}", plan.before.findings);
            assert_eq!(found("superblock-backup-used"), has_backup, "{what}");
            let judge = sound.duplicate();
            judged(&*dev, &judge, &what);
            assert!(files_of(judge.path()) == before, "{what}: files have changed");
        }
        // A backup of an older file system, which has another UUID, is none.
        if has_backup {
            let dev = device(&sound);
            dev.write_at(1024 + 0x54, &[0; 4]).expect("memory");
            dev.write_at(8193 * 1024 + 0x68, &[7; 16]).expect("memory");
            let plan = mended(dev, "a foreign backup");
            assert!(plan.before.findings.iter().all(|f| f.name != "superblock-backup-used"));
        }
    }
}

/// A log that waits is replayed also where only a backup of the superblock is left, or where its
/// mark is gone.
#[test]
fn a_log_is_replayed_whatever_the_superblock_says() {
    if !require("a_log_is_replayed_whatever_the_superblock_says", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&ImageSpec { block_size_bytes: 1024, ..ImageSpec::default() }, 0);
    let volume = bed.mount("sync=ordered");
    let root = volume.iget(2).expect("the root");
    for nr in 0..20 {
        volume.mkdir(&root, format!("dir-{nr}").as_bytes(), &owner()).expect("room");
    }
    volume.syncfs().expect("memory");
    let waiting = bed.dev.snapshot();
    drop(volume);
    for clears in [1024..2048, 0..0] {
        let dev = Arc::new(waiting.snapshot());
        if clears.is_empty() {
            // needs_recovery.
            let mut byte = [0];
            dev.read_at(1024 + 0x60, &mut byte).expect("memory");
            dev.write_at(1024 + 0x60, &[byte[0] & !4]).expect("memory");
        } else {
            dev.write_at(clears.start, &vec![0; 1024]).expect("memory");
        }
        let what = format!("{clears:?}");
        mended(dev.clone(), &what);
        judged(&*dev, &bed.image, &what);
        let listed = debugfs(bed.image.path(), "ls -p /\n");
        assert_eq!(listed.matches("/dir-").count(), 20, "{what}: {listed}");
    }
}

/// A header of a quota that e2fsck does not take is found, and the quota is written again.
#[test]
fn headers_of_quotas_are_checked() {
    if !require("headers_of_quotas_are_checked", &[Need::E2fsck]) {
        return;
    }
    let sound = mkfs(&ImageSpec {
        block_size_bytes: 1024,
        features: "quota".into(),
        ..ImageSpec::default()
    });
    let listed = debugfs(sound.path(), "blocks <3>\n");
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
    let block: usize = listed.lines().find_map(number).expect("debugfs names the blocks");
    // Blocks (6 here), the first free one, the first with a free entry, a reference in the tree.
    for (at, value) in
        [(20, 7), (20, 1000), (20, 2), (24, 6), (24, 1000), (28, 6), (28, 1000), (1024, 9)]
    {
        let what = format!("{value} at byte {at}");
        let image = sound.duplicate();
        let mut bytes = image.bytes();
        let at = block * 1024 + at;
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        fs::write(image.path(), bytes).expect("scratch space");
        e2fsck_clean(image.path()).expect_err(&what);
        let dev = device(&image);
        mended(dev.clone(), &what);
        judged(&*dev, &image, &what);
    }
    let image = sound.duplicate();
    let _ = debugfs(image.path(), "sif <3> size 8589940736\n");
    let dev = device(&image);
    mended(dev.clone(), "size");
    judged(&*dev, &image, "size");
}
