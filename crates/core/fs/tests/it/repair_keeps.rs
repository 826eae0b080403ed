//! Repairs that keep what `e2fsck -fy` keeps: names and bytes where something has to give way.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice};
use syncline_testkit::{
    ImageSpec, Need, TempImage, debugfs, e2fsck_clean, files_of, mkfs, require,
};

use crate::repair_kinds::repaired;

const EXTENTS: &str = "metadata_csum,64bit";
const POINTERS: &str = "^metadata_csum,^64bit,^extent";

fn empty(features: &str) -> TempImage {
    mkfs(&ImageSpec {
        size_bytes: 1 << 20,
        block_size_bytes: 1024,
        features: features.into(),
        inode_count: Some(128),
        ..ImageSpec::default()
    })
}

/// A file of `blocks` blocks, each with other bytes.
fn file(blocks: u32) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("scratch space");
    let bytes: Vec<u8> = (0..blocks * 256).flat_map(|nr| (nr + 1).to_le_bytes()).collect();
    fs::write(file.path(), bytes).expect("scratch space");
    file
}

/// Our repair keeps the names and bytes that e2fsck's keeps, and no others.
fn keeps_the_same(image: &TempImage, what: &str) -> BTreeMap<String, Vec<u8>> {
    let stock = image.duplicate();
    let ran = Command::new("e2fsck").arg("-fy").arg(stock.path()).output().expect("e2fsck runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    e2fsck_clean(stock.path()).unwrap_or_else(|left| panic!("{what}: {said}{left}"));
    repaired(image, what);
    let (own, stock) = (files_of(image.path()), files_of(stock.path()));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&own), names(&stock), "{what}: {said}");
    assert!(own == stock, "{what}: bytes differ; {said}");
    own
}

/// Last number that debugfs says.
fn number(said: &str) -> u64 {
    let mut words = said.split_whitespace().filter_map(|word| word.parse().ok());
    words.next_back().expect("debugfs answers with a number")
}

#[test]
fn equal_names_of_one_inode_become_those_of_e2fsck() {
    if !require("equal_names_of_one_inode_become_those_of_e2fsck", &[Need::E2fsck]) {
        return;
    }
    // The inodes of entries that get one name: links to three files.
    for links in ["111", "1111", "11111", "112", "122", "1122", "1212", "12312", "331122211"] {
        let image = empty(POINTERS);
        let source = file(2);
        let mut commands = String::new();
        for nr in 1..=3 {
            commands += &format!("write {} file{nr}\n", source.path().display());
        }
        for (nr, to) in links.chars().enumerate() {
            commands += &format!("ln file{to} same-name-{nr}\nsif file{to} links_count 9\n");
        }
        let _ = debugfs(image.path(), &commands);
        let mut bytes = image.bytes();
        for nr in 0..links.len() {
            let name = format!("same-name-{nr}");
            let at = bytes.windows(name.len()).position(|part| part == name.as_bytes());
            let at = at.expect("the name is in the root");
            bytes[at..at + name.len()].copy_from_slice(b"same-name-0");
        }
        fs::write(image.path(), &bytes).expect("scratch space");
        let kept = keeps_the_same(&image, links);
        assert!(kept.len() > 4, "{links}: {:?}", kept.keys());
    }
}

#[test]
fn of_files_that_share_blocks_on_a_full_volume_the_same_are_kept() {
    let test = "of_files_that_share_blocks_on_a_full_volume_the_same_are_kept";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    // Files that share their first block with file 1, and one that has a block twice.
    let damages: [(&[u32], Option<u32>); 5] =
        [(&[2], None), (&[2, 3], None), (&[2, 3, 4], None), (&[], Some(3)), (&[2, 4], Some(4))];
    let mut kept = BTreeMap::new();
    for features in [POINTERS, EXTENTS] {
        for free in 0..4 {
            for (sharing, doubled) in damages {
                if features == EXTENTS && doubled.is_some() {
                    // An extent names each of its blocks once.
                    continue;
                }
                let image = empty(features);
                let sources: Vec<_> = (1..=4).map(|nr| file(3 + nr)).collect();
                let commands: String = (1..=4)
                    .zip(&sources)
                    .map(|(nr, source)| format!("write {} file{nr}\n", source.path().display()))
                    .chain(sharing.iter().map(|nr| format!("punch file{nr} 0 0\n")))
                    .chain(doubled.map(|nr| format!("punch file{nr} 1 1\n")))
                    .collect();
                let _ = debugfs(image.path(), &commands);
                fill(&image, free);
                let first = block_of(&image, "file1", 0);
                let mut damage = String::new();
                for nr in sharing {
                    damage += &if features == EXTENTS {
                        format!("extent_open file{nr}\nroot\ninsert_node 0 1 {first}\nec\n")
                    } else {
                        format!("sif file{nr} block[0] {first}\n")
                    };
                }
                if let Some(nr) = doubled {
                    let own = block_of(&image, &format!("file{nr}"), 2);
                    damage += &format!("sif file{nr} block[1] {own}\n");
                }
                let _ = debugfs(image.path(), &damage);
                let what = format!("{features}, {free} free: {damage}");
                let files = keeps_the_same(&image, &what);
                let left = files.keys().filter(|name| name.starts_with("file")).count();
                kept.insert((features, free, sharing.len()), left);
            }
        }
    }
    // Some files had to go, and some had not.
    for features in [POINTERS, EXTENTS] {
        assert_eq!(kept[&(features, 0, 3)], 3, "{kept:?}");
        assert_eq!(kept[&(features, 3, 3)], 4, "{kept:?}");
    }
}

/// Physical number of a block of a file.
fn block_of(image: &TempImage, name: &str, block: u32) -> u64 {
    number(&debugfs(image.path(), &format!("bmap {name} {block}\n")))
}

/// Writes files until so many blocks are free.
fn fill(image: &TempImage, free: u32) {
    for nr in 0.. {
        let sb = syncline_ondisk::Superblock::decode(&image.bytes()[1024..2048]);
        let now = sb.expect("it is sound").s_free_blocks_count as u32;
        if now <= free {
            assert_eq!(now, free, "a directory grew");
            return;
        }
        let source = file(12.min(now - free));
        let _ = debugfs(image.path(), &format!("write {} p{nr}\n", source.path().display()));
    }
}

#[test]
fn a_link_in_its_inode_keeps_attributes_that_it_shares() {
    let test = "a_link_in_its_inode_keeps_attributes_that_it_shares";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for features in ["metadata_csum,inline_data", "^metadata_csum,^64bit,^extent,inline_data"] {
        let image = empty(features);
        let (source, target, long) = (file(2), "t".repeat(80), "v".repeat(500));
        let commands = format!(
            "write {} f\nea_set f user.long {long}\nsymlink link {target}\n",
            source.path().display()
        );
        let _ = debugfs(image.path(), &commands);
        e2fsck_clean(image.path()).expect("the attribute is sound");
        let said = debugfs(image.path(), "stat link\nstat f\n");
        assert!(said.contains("Flags: 0x10000000"), "the target is in the inode: {said}");
        let block = said.split("File ACL: ").nth(2).expect("the file has a block of attributes");
        let block = block.split_whitespace().next().expect("a number");
        let _ = debugfs(image.path(), &format!("sif link file_acl {block}\nsif link blocks 2\n"));
        repaired(&image, features);
        assert_eq!(files_of(image.path())["link"], target.as_bytes(), "{features}");
        let said = debugfs(image.path(), "ea_list link\nea_list f\n");
        assert_eq!(said.matches("user.long (500)").count(), 2, "{features}: {said}");
    }
}

/// One bit of the length of an extent gives a directory blocks of others and of nobody.
#[test]
fn a_directory_with_an_extent_that_is_too_long_keeps_its_names() {
    let test = "a_directory_with_an_extent_that_is_too_long_keeps_its_names";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for features in [EXTENTS, "^metadata_csum,^64bit"] {
        let (image, source) = (empty(features), file(2));
        let mut commands = "mkdir d\ncd d\n".to_owned();
        for nr in 0..30 {
            commands += &format!("write {} name-{nr}\n", source.path().display());
        }
        let _ = debugfs(image.path(), &commands);
        let before = files_of(image.path());
        assert_eq!(before.len(), 30, "{features}");
        for len in ["0x0003", "0x0011", "0x0101", "0x0201"] {
            let image = image.duplicate();
            let _ = debugfs(image.path(), &format!("sif d block[4] {len}\n"));
            assert!(e2fsck_clean(image.path()).is_err(), "{features}, {len}");
            repaired(&image, len);
            assert!(files_of(image.path()) == before, "{features}, {len}");
        }
    }
}

#[test]
fn an_error_of_an_earlier_mount_is_forgotten() {
    if !require("an_error_of_an_earlier_mount_is_forgotten", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec {
        size_bytes: 12 << 20,
        block_size_bytes: 1024,
        features: POINTERS.into(),
        inode_count: Some(128),
        ..ImageSpec::default()
    });
    let journal = block_of(&image, "<8>", 0) as usize;
    for in_journal in [true, false] {
        let image = image.duplicate();
        let mut bytes = image.bytes();
        if in_journal {
            bytes[journal * 1024 + 0x20..][..4].copy_from_slice(&(-5_i32).to_be_bytes());
        } else {
            bytes[1024 + 0x3a] |= 2;
        }
        fs::write(image.path(), &bytes).expect("scratch space");
        let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let report = syncline_fs::check_device(&dev, &mut |_| true).expect("it can be checked");
        assert!(report.is_clean(), "{:?}", report.findings);
        assert_eq!(report.findings[0].name, "error-recorded");
        repaired(&image, "a recorded error");
        let after = image.bytes();
        assert_eq!(after[journal * 1024 + 0x20..][..4], [0; 4]);
        assert_eq!(after[1024 + 0x3a], 1, "the file system is clean and has no errors");
    }
}

#[test]
fn a_file_that_the_superblock_names_without_the_feature_is_kept() {
    let test = "a_file_that_the_superblock_names_without_the_feature_is_kept";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    // Numbers of the quotas of users and of projects, and of the orphan file.
    for at in [0x240, 0x26c, 0x280] {
        let image = empty(POINTERS);
        let source = file(2);
        let _ = debugfs(image.path(), &format!("write {} f\n", source.path().display()));
        let mut bytes = image.bytes();
        bytes[1024 + at..][..4].copy_from_slice(&12_u32.to_le_bytes());
        fs::write(image.path(), &bytes).expect("scratch space");
        assert!(e2fsck_clean(image.path()).is_err(), "e2fsck takes the file for its own");
        let before = files_of(image.path());
        repaired(&image, &format!("byte {at:#x}"));
        assert!(files_of(image.path()) == before && before.contains_key("f"), "byte {at:#x}");
    }
}
