//! Broken images: errors that name the place, never a panic, never a hang.
//!
//! The images have no checksums, so that what is broken reaches the code behind them. A failure
//! prints the seed; `SYNCLINE_SEED=n` reruns it.

use crate::bed::Bed;
use std::time::Instant;
use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::{FallocateMode, FsError, Volume};
use syncline_testkit::{FuzzRounds, ImageSpec, Need, Random, debugfs, require};

const MIB: u64 = 1 << 20;

/// A volume with one file of many extents, cleanly unmounted, and the file's inode number.
fn prepared(spec: &ImageSpec) -> (Bed, u32) {
    let bed = Bed::new(spec, 1).with("cache=4M");
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    for i in 0..600 {
        vol.write(&file, i * 2 * u64::from(spec.block_size_bytes), b"data").unwrap();
    }
    drop(file);
    vol.unmount().unwrap();
    bed.judge("the preparation");
    let ino = bed.inos[0];
    (bed, ino)
}

/// Byte offset of an inode on the device.
fn inode_offset(bed: &Bed, ino: u32, block_size: u64) -> u64 {
    let text = debugfs(bed.image.path(), &format!("imap <{ino}>\n"));
    let number = |key: &str| {
        let at = text.find(key).expect("debugfs says where") + key.len();
        let word = text[at..].split([',', '\n', ' ']).find(|w| !w.is_empty()).expect("a number");
        match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).expect("hex"),
            None => word.parse().expect("decimal"),
        }
    };
    number("located at block ") * block_size + number("offset ")
}

fn poke(dev: &MemoryDevice, at: u64, bytes: &[u8]) {
    let sector = at & !511;
    let mut buffer = vec![0; 1024];
    dev.read_at(sector, &mut buffer).unwrap();
    buffer[(at - sector) as usize..][..bytes.len()].copy_from_slice(bytes);
    dev.write_at(sector, &buffer).unwrap();
}

/// Everything that looks at or changes the space of a file.
fn exercise(vol: &Volume, ino: u32) -> Vec<FsError> {
    let Ok(file) = vol.iget(ino) else { return Vec::new() };
    let mut buffer = vec![0; 1 << 16];
    let mut errors = Vec::new();
    let mut note = |result: Result<(), FsError>| errors.extend(result.err());
    note(vol.fiemap(&file, 0, u64::MAX).map(|_| ()));
    note(vol.seek_data(&file, 0).map(|_| ()));
    note(vol.seek_hole(&file, 0).map(|_| ()));
    for at in 0..8 {
        note(vol.read(&file, at << 17, &mut buffer).map(|_| ()));
        note(vol.write(&file, (at << 17) + 5000, b"new").map(|_| ()));
    }
    note(vol.fsync(&file, false));
    note(vol.fallocate(&file, FallocateMode::PunchHole, 30_000, 90_000));
    note(vol.fallocate(&file, FallocateMode::ZeroRange, 200_000, 50_000));
    note(vol.truncate(&file, 400_000));
    note(vol.truncate(&file, 0));
    note(vol.syncfs());
    errors
}

#[test]
fn an_extent_over_the_inode_table_is_refused() {
    if !require("an_extent_over_the_inode_table_is_refused", &[Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec { features: "^metadata_csum".into(), ..ImageSpec::with_size(16 * MIB) };
    let bed = Bed::new(&spec, 1).with("cache=4M");
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    vol.write(&file, 0, &[1; 5000]).unwrap();
    drop(file);
    vol.unmount().unwrap();
    bed.judge("the preparation");
    let inode = inode_offset(&bed, bed.inos[0], 4096);
    // First extent: i_block at 0x28, header 12 bytes, physical low 32 bits at 8 of the entry.
    poke(&bed.dev, inode + 0x28 + 12 + 8, &((inode / 4096) as u32).to_le_bytes());
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    let error = vol.read(&file, 0, &mut [0; 100]).unwrap_err();
    let FsError::Corrupt { inode: Some(ino), block: Some(block), .. } = error else {
        panic!("{error}");
    };
    assert_eq!((ino, block), (bed.inos[0], inode / 4096));
    assert!(matches!(vol.truncate(&file, 0), Err(FsError::Latched(_))));
}

#[test]
fn a_tree_of_blocks_in_the_group_descriptors_is_refused() {
    if !require("a_tree_of_blocks_in_the_group_descriptors_is_refused", &[Need::E2fsck]) {
        return;
    }
    let image = |features: &str| {
        let spec = ImageSpec { features: features.into(), ..ImageSpec::with_size(16 * MIB) };
        Bed::new(&spec, 1).with("cache=4M")
    };
    // The log is the first file that is read. One index entry, one level above the leaves, names
    // the block behind the superblock's.
    let bed = image("^metadata_csum");
    let log = inode_offset(&bed, 8, 4096);
    let root = [0x0a, 0xf3, 1, 0, 4, 0, 1, 0, 0, 0, 0, 0];
    poke(&bed.dev, log + 0x28, &root);
    poke(&bed.dev, log + 0x28 + 12, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let refused = Volume::mount(bed.dev.clone(), bed.clock.clone(), bed.parsed("")).err();
    let refused = refused.expect("a broken log").to_string();
    assert!(refused.contains("lies on file system metadata"), "{refused}");

    // A block map, of the first file that is read without a log.
    let bed = image("^metadata_csum,^extent,^64bit");
    let file = inode_offset(&bed, bed.inos[0], 4096);
    poke(&bed.dev, file + 4, &100_000_u32.to_le_bytes());
    poke(&bed.dev, file + 0x28 + 12 * 4, &1_u32.to_le_bytes());
    let vol = bed.mount("ro");
    let file = vol.iget(bed.inos[0]).unwrap();
    let refused = vol.read(&file, 60_000, &mut [0; 100]).unwrap_err().to_string();
    assert!(refused.contains("lies on file system metadata"), "{refused}");
}

#[test]
fn blocks_that_are_free_already_are_not_freed() {
    if !require("blocks_that_are_free_already_are_not_freed", &[Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec { features: "^metadata_csum".into(), ..ImageSpec::with_size(16 * MIB) };
    let bed = Bed::new(&spec, 1).with("cache=4M");
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    vol.write(&file, 0, &[1; 5000]).unwrap();
    drop(file);
    vol.unmount().unwrap();
    bed.judge("the preparation");
    let inode = inode_offset(&bed, bed.inos[0], 4096);
    poke(&bed.dev, inode + 0x28 + 12 + 8, &3900_u32.to_le_bytes());
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    let error = vol.truncate(&file, 0).unwrap_err();
    assert!(matches!(error, FsError::Corrupt { block: Some(3900), .. }), "{error}");
    assert!(matches!(vol.fsync(&file, false), Err(FsError::Latched(_))), "it is latched");
}

#[test]
fn mutated_metadata_neither_panics_nor_hangs() {
    if !require("mutated_metadata_neither_panics_nor_hangs", &[Need::E2fsck]) {
        return;
    }
    let seed = std::env::var("SYNCLINE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let mut images = 0;
    let kinds = [("ext4", "^metadata_csum,^orphan_file"), ("ext3", "")];
    let prepared: Vec<_> = kinds
        .iter()
        .map(|(fs_type, features)| {
            let spec = ImageSpec {
                block_size_bytes: 1024,
                fs_type,
                features: (*features).into(),
                ..ImageSpec::with_size(8 * MIB)
            };
            let (bed, ino) = prepared(&spec);
            let inode = inode_offset(&bed, ino, 1024);
            (bed, ino, inode)
        })
        .collect();
    for _ in FuzzRounds::at_least(2000) {
        let (bed, ino, inode) = &prepared[images % prepared.len()];
        images += 1;
        let clean = bed.dev.snapshot();
        let size = clean.geometry().size_bytes;
        for _ in 0..1 + random.below(6) {
            // Mostly the map in the inode, else an early block (descriptors, bitmaps, tables,
            // nodes).
            let at = match random.below(4) {
                0 => random.below(size / 8),
                1 => inode + random.below(128),
                _ => inode + 0x28 + random.below(60),
            };
            let value = [0, 1, 0xff, random.below(256) as u8][random.below(4) as usize];
            poke(&clean, at, &[value]);
        }
        let dev: std::sync::Arc<dyn BlockDevice> = std::sync::Arc::new(clean);
        let Ok(vol) = Volume::mount(dev, bed.clock.clone(), bed.parsed("")) else {
            continue;
        };
        let one = Instant::now();
        exercise(&vol, *ino);
        let _ = vol.unmount();
        assert!(one.elapsed().as_secs() < 60, "seed {seed}, image {images} hangs");
    }
    println!("seed {seed}: {images} images");
}
