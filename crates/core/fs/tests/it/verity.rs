//! Files with fs-verity: read where data and tree agree, refused where they do not, and never
//! written. The kernel of the test machine may not have fs-verity, so the test seals the files.

use syncline_fs::{Create, FallocateMode, FsError, InodeRef, Volume};
use syncline_testkit::{ImageSpec, Need, Random, Seal, debugfs, e2fsck_clean, fill, require};

use crate::bed::{Bed, MIB, contents};

fn spec(block_size: u32) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        features: "verity".into(),
        ..ImageSpec::with_size(32 * MIB)
    }
}

fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, 0, &mut bytes);
    bytes
}

/// An image with one sealed file `f`, and its plain contents.
fn sealed(block_size: u32, seal: &Seal, len: usize) -> (Bed, Vec<u8>) {
    let mut bed = Bed::new(&spec(block_size), 0);
    let bytes = data(len as u64, len);
    seal.add(bed.image.path(), "f", &bytes, block_size as usize);
    e2fsck_clean(bed.image.path()).unwrap();
    bed.load();
    (bed, bytes)
}

/// Blocks of `f` on the device, in order.
fn blocks(bed: &Bed) -> Vec<u64> {
    let said = debugfs(bed.image.path(), "blocks f");
    said.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn flip(bed: &Bed, at: u64) {
    let mut byte = [0];
    bed.dev.read_at(at, &mut byte).unwrap();
    byte[0] ^= 0x40;
    bed.dev.write_at(at, &byte).unwrap();
}

fn refused(vol: &Volume, file: &InodeRef, at: u64) -> bool {
    matches!(vol.read(file, at, &mut [0; 100]), Err(FsError::Verity { .. }))
}

#[test]
fn sealed_files_are_read_and_never_written() {
    if !require("sealed_files_are_read_and_never_written", &[Need::E2fsck]) {
        return;
    }
    let mut random = Random::new(7);
    for (block_size, sha512, block_bytes, salt) in [
        (4096, false, 4096, 0),
        (4096, true, 4096, 32),
        (4096, false, 1024, 7),
        (1024, true, 1024, 9),
        (1024, false, 1024, 0),
    ] {
        for len in [0, 1, 4096, 4097, 70_000, 3_000_000] {
            let seal = Seal { sha512, block_bytes, salt: data(3, salt) };
            let what = format!("{len} bytes, blocks of {block_size}, {seal:?}");
            let (bed, bytes) = sealed(block_size, &seal, len);
            let vol = bed.mount("");
            let file = vol.resolve("f").unwrap();
            assert!(contents(&vol, &file) == bytes, "{what}");
            for _ in 0..20 {
                let at = random.below(len as u64 + 1) as usize;
                let mut some = vec![0; 100.min(len - at)];
                assert_eq!(vol.read(&file, at as u64, &mut some).unwrap(), some.len(), "{what}");
                assert!(some == bytes[at..at + some.len()], "{what}");
            }
            let refusals = [
                vol.write(&file, 0, b"x").map(drop),
                vol.write_append(&file, b"x").map(drop),
                vol.truncate(&file, len as u64),
                vol.truncate(&file, 0),
                vol.fallocate(&file, FallocateMode::PunchHole, 0, 4096),
                vol.fallocate(&file, FallocateMode::KeepSize, 0, 4096),
                vol.check_open(&file, true, true),
            ];
            assert!(
                refusals.iter().all(|done| *done == Err(FsError::Perm)),
                "{what}: {refusals:?}"
            );
            vol.check_open(&file, false, false).unwrap();
            let report = vol.check(&mut |_| true).unwrap();
            assert!(report.is_clean(), "{what}: {:#?}", report.findings);
            drop(file);
            // The volume is written otherwise, and the file goes with its tree.
            let root = vol.root().unwrap();
            let how = Create { mode: 0o644, uid: 0, gid: 0 };
            let other = vol.create(&root, b"g", &how).unwrap();
            vol.write(&other, 0, &bytes).unwrap();
            drop(other);
            let free = vol.statfs().blocks_free;
            vol.rename(&root, b"f", &root, b"h", Default::default()).unwrap();
            vol.unlink(&root, b"h").unwrap();
            vol.sync().unwrap();
            assert!(vol.statfs().blocks_free > free, "{what}");
            bed.unmount_and_judge(vol, &what);
        }
    }
}

#[test]
fn what_differs_from_its_hash_is_not_read() {
    if !require("what_differs_from_its_hash_is_not_read", &[Need::E2fsck]) {
        return;
    }
    let (bed, bytes) = sealed(4096, &Seal::usual(), 2_000_000);
    let places = blocks(&bed);
    let data_blocks = bytes.len().div_ceil(4096);
    let offset = |nr: usize| places[nr] * 4096;
    let verdict = |bed: &Bed| {
        let vol = bed.mount("ro");
        let report = vol.check(&mut |_| true).unwrap();
        let names: Vec<_> = report.findings.iter().map(|finding| finding.name).collect();
        // Without its size a descriptor is none.
        names == ["verity-hash"] && !report.is_clean()
            || names == ["verity-descriptor-missing"] && report.is_clean()
    };
    // One byte of the data: its block is lost, the others are not.
    flip(&bed, offset(100) + 77);
    let vol = bed.mount("");
    let file = vol.resolve("f").unwrap();
    assert!(refused(&vol, &file, 100 * 4096));
    assert!(!refused(&vol, &file, 99 * 4096 - 100) && !refused(&vol, &file, 101 * 4096));
    let said = vol.read(&file, 100 * 4096, &mut [0; 10]).unwrap_err();
    assert_eq!(said.errno(), 5);
    assert!(said.to_string().contains("the data at byte 409600"), "{said}");
    assert!(vol.latched().is_none());
    drop(file);
    bed.unmount_and_judge(vol, "a damaged byte was read");
    assert!(verdict(&bed));
    flip(&bed, offset(100) + 77);
    // One byte behind the end, in the last block.
    flip(&bed, offset(data_blocks - 1) + 4095);
    let vol = bed.mount("ro");
    assert!(refused(&vol, &vol.resolve("f").unwrap(), bytes.len() as u64 - 10));
    flip(&bed, offset(data_blocks - 1) + 4095);
    // Leaves and root of the tree, and the descriptor with its size: blocks behind the data.
    let behind = places.len() - data_blocks;
    assert_eq!(behind, 1 + 4 + 1, "a root, four leaves, a descriptor");
    for (nr, byte, first_good) in [(0, 3, None), (1, 3, Some(128)), (5, 0, None), (5, 4095, None)] {
        let at = offset(data_blocks + nr) + byte;
        flip(&bed, at);
        let vol = bed.mount("ro");
        let file = vol.resolve("f").unwrap();
        assert!(refused(&vol, &file, 0), "{nr}, {byte}");
        if let Some(good) = first_good {
            assert!(!refused(&vol, &file, good * 4096), "{nr}, {byte}");
        }
        let opens = vol.check_open(&file, false, false);
        assert_eq!(opens.is_err(), nr == 5, "{nr}, {byte}: {opens:?}");
        assert!(verdict(&bed), "{nr}, {byte}");
        flip(&bed, at);
    }
    assert!(!verdict(&bed), "all is as it was");
}

/// Descriptors of any bytes, and flags on files that were never sealed.
#[test]
fn damaged_descriptors_are_refused() {
    if !require("damaged_descriptors_are_refused", &[Need::E2fsck]) {
        return;
    }
    let (mut bed, bytes) = sealed(1024, &Seal { block_bytes: 1024, ..Seal::usual() }, 50_000);
    let places = blocks(&bed);
    let last = places[places.len() - 1] * 1024;
    let mut random = Random::new(11);
    for round in 0..300 {
        let mut block = [0; 1024];
        bed.dev.read_at(last, &mut block).unwrap();
        let old = block;
        for _ in 0..=random.below(3) {
            let at = if random.below(2) == 0 { random.below(32) } else { 1020 + random.below(4) };
            block[at as usize] = random.bits() as u8;
        }
        bed.dev.write_at(last, &block).unwrap();
        let vol = bed.mount("ro");
        let file = vol.resolve("f").unwrap();
        let mut some = [0; 10];
        match vol.read(&file, 0, &mut some) {
            // Another length in front of the same block is none of the hash's.
            Ok(_) => assert!(some == bytes[..10] && block[..48] == old[..48], "{round}"),
            Err(err) => assert!(matches!(err, FsError::Verity { .. }), "{round}: {err}"),
        }
        bed.dev.write_at(last, &old).unwrap();
    }
    let plain = "write /dev/null empty\nsif empty flags 0x180000\nwrite /dev/null mapped\n\
                 sif mapped flags 0x100000\nsif mapped size 100\n";
    let _ = debugfs(bed.image.path(), plain);
    bed.load();
    let vol = bed.mount("ro");
    for name in ["empty", "mapped"] {
        let file = vol.resolve(name).unwrap();
        let opens = vol.check_open(&file, false, false).unwrap_err().to_string();
        assert!(opens.contains("no verity descriptor"), "{opens}");
    }
    assert!(vol.read(&vol.resolve("mapped").unwrap(), 0, &mut [0; 10]).is_err());
    drop(vol);
    // e2fsck does not count a file that was never sealed.
    let (mut bed, _) = sealed(1024, &Seal { block_bytes: 1024, ..Seal::usual() }, 5000);
    let _ = debugfs(bed.image.path(), "write /etc/passwd never\nsif never flags 0x180000\n");
    bed.load();
    let report = bed.mount("ro").check(&mut |_| true).unwrap();
    let names: Vec<_> = report.findings.iter().map(|finding| finding.name).collect();
    assert!(report.is_clean() && names == ["verity-descriptor-missing"], "{names:?}");
}
