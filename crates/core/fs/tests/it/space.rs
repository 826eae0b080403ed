//! Space on real images: contiguity, ENOSPC, truncation, preallocation, holes; judged by e2fsck.

use crate::bed::{Bed, contents};
use syncline_fs::{FallocateMode, FsError};
use syncline_testkit::{ImageSpec, Need, require};

const MIB: u64 = 1 << 20;

fn can_run(test: &str) -> bool {
    require(test, &[Need::E2fsck])
}

#[test]
fn a_file_written_in_order_is_one_extent() {
    if !can_run("a_file_written_in_order_is_one_extent") {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(400 * MIB), 2).with("cache=4M");
    let vol = bed.mount("");
    let big = vol.iget(bed.inos[0]).unwrap();
    let data = vec![7; 1 << 20];
    for at in 0..200 {
        vol.write(&big, at * MIB, &data).unwrap();
    }
    vol.fsync(&big, false).unwrap();
    let extents = vol.fiemap(&big, 0, u64::MAX).unwrap();
    // An extent holds 128 MiB, and groups of 128 MiB begin with a few metadata blocks.
    assert!(extents.len() <= 3, "{extents:?}");
    let small = vol.iget(bed.inos[1]).unwrap();
    for at in 0..1000 {
        vol.write(&small, at * 4096, &data[..4096]).unwrap();
        vol.fsync(&small, true).unwrap();
    }
    let extents = vol.fiemap(&small, 0, u64::MAX).unwrap();
    assert!(extents.len() <= 2, "{extents:?}");
    assert!(extents.last().unwrap().last);
    drop((big, small));
    vol.unmount().unwrap();
    bed.judge("sequential writes");
}

#[test]
fn what_was_taken_can_be_written_back_when_the_volume_is_full() {
    if !can_run("what_was_taken_can_be_written_back_when_the_volume_is_full") {
        return;
    }
    for block_size_bytes in [1024, 4096] {
        let spec = ImageSpec { block_size_bytes, ..ImageSpec::with_size(24 * MIB) };
        let bed = Bed::new(&spec, 2).with("cache=4M");
        let vol = bed.mount("");
        let file = vol.iget(bed.inos[0]).unwrap();
        let free = vol.statfs().blocks_free;
        for round in 0..3 {
            let mut at = 0;
            // Every other block, so that the extents need many index blocks.
            let step = u64::from(block_size_bytes);
            let error = loop {
                match vol.write(&file, at * 2 * step, &[round; 700]) {
                    Ok(_) => at += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(error, FsError::NoSpace);
            assert!(at > 1000, "only {at} blocks");
            vol.fsync(&file, false).unwrap();
            vol.truncate(&file, 0).unwrap();
            vol.syncfs().unwrap();
            assert_eq!(vol.statfs().blocks_free, free, "round {round}");
        }
        drop(file);
        vol.unmount().unwrap();
        bed.judge("a full volume");
    }
}

#[test]
fn freed_blocks_are_not_used_before_their_commit() {
    if !can_run("freed_blocks_are_not_used_before_their_commit") {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(24 * MIB), 2).with("cache=4M");
    let vol = bed.mount("");
    let (a, b) = (vol.iget(bed.inos[0]).unwrap(), vol.iget(bed.inos[1]).unwrap());
    vol.write(&a, 0, &vec![1; 8 << 20]).unwrap();
    vol.fsync(&a, false).unwrap();
    let old: Vec<_> = vol.fiemap(&a, 0, u64::MAX).unwrap();
    vol.truncate(&a, 0).unwrap();
    vol.fallocate(&b, FallocateMode::Allocate, 0, 4 << 20).unwrap();
    for extent in vol.fiemap(&b, 0, u64::MAX).unwrap() {
        for gone in &old {
            let apart = extent.physical + extent.len <= gone.physical
                || gone.physical + gone.len <= extent.physical;
            assert!(apart, "{extent:?} over {gone:?} before the commit");
        }
    }
    drop((a, b));
    vol.unmount().unwrap();
    bed.judge("reuse");
}

#[test]
fn preallocation_is_counted_and_reads_as_zeros() {
    if !can_run("preallocation_is_counted_and_reads_as_zeros") {
        return;
    }
    let bed = Bed::new(&ImageSpec::with_size(64 * MIB), 1).with("cache=4M");
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    vol.fallocate(&file, FallocateMode::KeepSize, 0, 8 << 20).unwrap();
    assert_eq!(vol.getattr(&file).size, 0);
    assert_eq!(vol.getattr(&file).blocks, 16384);
    let extents = vol.fiemap(&file, 0, u64::MAX).unwrap();
    assert_eq!(extents.len(), 1, "{extents:?}");
    assert!(extents[0].unwritten && extents[0].last);
    vol.fallocate(&file, FallocateMode::Allocate, 0, 1 << 20).unwrap();
    assert_eq!(contents(&vol, &file), vec![0; 1 << 20]);
    assert_eq!(vol.seek_data(&file, 0), Err(FsError::NoSuchOffset));
    vol.write(&file, 300_000, b"here").unwrap();
    assert_eq!(vol.seek_data(&file, 0).unwrap(), 300_000 / 4096 * 4096);
    vol.fsync(&file, false).unwrap();
    assert_eq!(vol.seek_data(&file, 0).unwrap(), 300_000 / 4096 * 4096);
    assert_eq!(vol.seek_hole(&file, 300_000).unwrap(), 303_104);
    assert_eq!(vol.getattr(&file).blocks, 16384, "conversion allocates nothing");
    vol.truncate(&file, 1 << 20).unwrap();
    assert_eq!(vol.getattr(&file).blocks, 2048, "truncate frees what lies behind the end");
    drop(file);
    vol.unmount().unwrap();
    bed.judge("preallocation");
}

#[test]
fn arguments_without_sense_are_refused() {
    if !can_run("arguments_without_sense_are_refused") {
        return;
    }
    let bed = Bed::new(&ImageSpec::default(), 1).with("cache=4M");
    let vol = bed.mount("");
    let file = vol.iget(bed.inos[0]).unwrap();
    let mode = FallocateMode::Allocate;
    assert!(matches!(vol.fallocate(&file, mode, 5, 0), Err(FsError::Invalid(_))));
    assert_eq!(vol.fallocate(&file, mode, u64::MAX, 2), Err(FsError::TooBig));
    assert_eq!(vol.truncate(&file, u64::MAX), Err(FsError::TooBig));
    assert_eq!(vol.truncate(&file, (1 << 44) + 1), Err(FsError::TooBig));
    assert_eq!(vol.fallocate(&file, mode, 0, 1 << 40), Err(FsError::NoSpace));
    assert_eq!(vol.truncate(&vol.root().unwrap(), 0), Err(FsError::IsDir));
    vol.truncate(&file, 0).unwrap();
    vol.syncfs().unwrap();
    vol.truncate(&file, (1 << 44) - 4096).unwrap();
    vol.write(&file, (1 << 44) - 4097, b"z").unwrap();
    assert_eq!(vol.seek_data(&file, 0).unwrap(), (1 << 44) - 8192);
    drop(file);
    vol.unmount().unwrap();
    bed.judge("limits");
}
