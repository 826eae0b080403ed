//! Both ways with stock tools: e2fsck replays what this crate wrote, and this crate replays what
//! debugfs and the kernel wrote, to the same blocks.

use crate::common::{Volume, difference, volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use syncline_device::{BlockDevice, MemoryDevice};
use syncline_jbd2::{Journal, JournalOptions, RecoverOptions, Recovery};
use syncline_model::{
    ImageSpec, KernelMount, Need, TempImage, debugfs, e2fsck_preen, mkfs, require,
};

fn recover(volume: &Volume, image: &MemoryDevice) -> Recovery {
    Journal::recover(image, &volume.log, RecoverOptions::default()).unwrap()
}

/// Lets e2fsck recover the file and gives back its contents.
fn stock_recovery(file: &TempImage) -> MemoryDevice {
    e2fsck_preen(file.path()).unwrap();
    MemoryDevice::load(file.path()).unwrap()
}

fn specs() -> Vec<(&'static str, ImageSpec)> {
    let spec = |block_size_bytes, features: &str| ImageSpec {
        block_size_bytes,
        features: features.into(),
        ..ImageSpec::default()
    };
    vec![
        ("default", spec(4096, "")),
        ("1 KiB blocks", spec(1024, "")),
        ("2 KiB blocks, 32 bit", spec(2048, "^64bit")),
        ("no checksums", spec(4096, "^metadata_csum")),
        ("no checksums, 32 bit", spec(1024, "^metadata_csum,^64bit")),
    ]
}

/// Returns the contents of a block; every eleventh value starts like a log block.
fn contents(block_size: usize, value: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = value.to_le_bytes().iter().copied().cycle().take(block_size).collect();
    if value % 11 == 0 {
        bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    }
    bytes
}

/// Random transactions over free blocks, with frees whose blocks become file data after the commit.
/// Returns what every block must hold when everything committed is replayed.
fn churn(
    volume: &Volume,
    journal: &Arc<Journal>,
    dev: &MemoryDevice,
    rng: &mut ChaCha8Rng,
    rounds: u32,
) -> BTreeMap<u64, Vec<u8>> {
    let size = volume.block_size();
    let mut expected: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for round in 0..rounds {
        let mut handle = journal.start(60).unwrap();
        let mut freed = Vec::new();
        for _ in 0..rng.random_range(1..60u32) {
            let block = volume.free + rng.random_range(0..300u64);
            let is_metadata = expected.get(&block).is_some_and(|b| b[size - 1] != 0xDA);
            if is_metadata && rng.random_range(0..4) == 0 {
                handle.forget(block).unwrap();
                freed.push(block);
                expected.remove(&block);
            } else if !freed.contains(&block) {
                let mut bytes = contents(size, rng.random());
                bytes[size - 1] = 0;
                handle.create(block, |b| b.copy_from_slice(&bytes)).unwrap();
                expected.insert(block, bytes);
            }
        }
        let tid = handle.tid();
        drop(handle);
        if round % 3 != 0 || !freed.is_empty() {
            journal.commit(tid).unwrap();
        }
        for block in freed {
            let data = vec![0xDA; size];
            dev.write_at(block * size as u64, &data).unwrap();
            expected.insert(block, data);
        }
        if rng.random_range(0..9) == 0 {
            journal.write_back().unwrap();
        }
    }
    if let Some(tid) = journal.running_tid() {
        journal.commit(tid).unwrap();
    }
    expected
}

#[test]
fn e2fsck_replays_what_was_committed() {
    if !require("jbd2 e2fsck", &[Need::E2fsck]) {
        return;
    }
    for (name, spec) in specs() {
        let volume = volume(&spec);
        for seed in 0..3u64 {
            println!("{name}, seed {seed}");
            let dev = Arc::new(volume.image.snapshot());
            let options = JournalOptions { checkpoint_step_blocks: 64, ..volume.options };
            let journal = volume.open_with(dev.clone(), options);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // The third run goes several times around the ring.
            let rounds = [5, 40, 500][seed as usize];
            let expected = churn(&volume, &journal, &dev, &mut rng, rounds);
            let ours = dev.snapshot();
            let theirs = stock_recovery(&volume.crashed_file(&ours));
            let recovery = recover(&volume, &ours);
            assert!(recovery.was_needed && !recovery.dropped_torn, "{recovery:?}");
            for (block, bytes) in &expected {
                assert_eq!(&volume.block(&theirs, *block), bytes, "e2fsck, block {block}");
                assert_eq!(&volume.block(&ours, *block), bytes, "ours, block {block}");
            }
            assert_eq!(difference(&volume.log, &ours, &theirs), None);
            let again = recover(&volume, &ours);
            assert!(!again.was_needed && again.next_sequence == recovery.next_sequence);
            journal.shutdown().unwrap();
            assert_eq!(difference(&volume.log, &ours, &dev), None);
            // After a shutdown the image is clean for everybody.
            let clean = TempImage::zeroed(spec.size_bytes);
            dev.to_file(clean.path()).unwrap();
            syncline_model::e2fsck_clean(clean.path()).unwrap();
        }
    }
}

#[test]
fn one_transaction_of_many_descriptors() {
    if !require("jbd2 descriptors", &[Need::E2fsck]) {
        return;
    }
    for block_size_bytes in [1024, 4096] {
        let spec = ImageSpec { block_size_bytes, size_bytes: 64 << 20, ..ImageSpec::default() };
        let volume = volume(&ImageSpec { journal_size_mib: Some(8), ..spec });
        let dev = Arc::new(volume.image.snapshot());
        let journal = volume.open(dev.clone());
        let count = 500u64;
        let mut handle = journal.start(500).unwrap();
        for i in 0..count {
            let bytes = contents(volume.block_size(), i as u32);
            handle.create(volume.free + i, |b| b.copy_from_slice(&bytes)).unwrap();
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        let ours = dev.snapshot();
        let theirs = stock_recovery(&volume.crashed_file(&ours));
        assert_eq!(recover(&volume, &ours).blocks_replayed, 500);
        for i in 0..count {
            let bytes = contents(volume.block_size(), i as u32);
            assert_eq!(volume.block(&theirs, volume.free + i), bytes);
        }
        assert_eq!(difference(&volume.log, &ours, &theirs), None);
    }
}

/// Runs debugfs journal requests and compares both recoveries.
fn same_as_e2fsck(volume: &Volume, commands: &str) -> (Recovery, MemoryDevice) {
    let file = TempImage::zeroed(volume.image.geometry().size_bytes);
    volume.image.to_file(file.path()).unwrap();
    let said = debugfs(file.path(), commands);
    assert!(!said.contains("not found") && !said.contains("rror"), "{said}");
    let ours = MemoryDevice::load(file.path()).unwrap();
    let recovery = recover(volume, &ours);
    let theirs = stock_recovery(&file);
    assert_eq!(difference(&volume.log, &ours, &theirs), None, "{commands}");
    (recovery, ours)
}

fn block_file(bytes: &[u8]) -> TempImage {
    let file = TempImage::zeroed(bytes.len() as u64);
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn jw(options: &str, file: &Path) -> String {
    format!("jw {options} {}\n", file.display())
}

#[test]
fn journals_made_by_debugfs() {
    if !require("jbd2 debugfs", &[Need::E2fsck]) {
        return;
    }
    for (name, spec) in specs() {
        println!("{name}");
        let volume = volume(&spec);
        let size = volume.block_size();
        let (a, b) = (volume.free, volume.free + 1);
        let old = block_file(&[[1; 4096], [1; 4096]].concat()[..2 * size]);
        let new = block_file(&[[2; 4096], [2; 4096]].concat()[..2 * size]);
        let both = format!("-b {a},{b}");
        let first = |image: &MemoryDevice, block| volume.block(image, block)[0];
        // Two transactions; the newer copies win.
        let script = format!("jo\n{}{}jc\n", jw(&both, old.path()), jw(&both, new.path()));
        let (recovery, image) = same_as_e2fsck(&volume, &script);
        assert_eq!((recovery.transactions, recovery.blocks_replayed), (2, 2));
        assert_eq!((first(&image, a), first(&image, b)), (2, 2));
        // A revoke in a later transaction covers the earlier one, not only its own.
        let revoke = format!("jw -r {a}\n");
        let script = format!("jo\n{}{revoke}jc\n", jw(&both, old.path()));
        let (recovery, image) = same_as_e2fsck(&volume, &script);
        assert_eq!(recovery.revoked, 1);
        assert_eq!((first(&image, a), first(&image, b)), (0, 1));
        // A copy newer than the revoke counts.
        let script = format!("jo\n{}{revoke}{}jc\n", jw(&both, old.path()), jw(&both, new.path()));
        let (_, image) = same_as_e2fsck(&volume, &script);
        assert_eq!(first(&image, a), 2);
        // A revoke kills the copy of its own transaction.
        let own = format!("-b {a},{b} -r {a}");
        let script = format!("jo\n{}jc\n", jw(&own, old.path()));
        let (_, image) = same_as_e2fsck(&volume, &script);
        assert_eq!((first(&image, a), first(&image, b)), (0, 1));
        // Without its commit block the last transaction does not count.
        let open = format!("-b {a},{b} -c");
        let script = format!("jo\n{}{}jc\n", jw(&both, old.path()), jw(&open, new.path()));
        let (recovery, image) = same_as_e2fsck(&volume, &script);
        assert!(recovery.dropped_torn);
        assert_eq!(first(&image, a), 1);
    }
}

#[test]
fn a_crash_image_of_the_running_kernel() {
    if !require("jbd2 kernel", &[Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    for (name, spec) in specs() {
        println!("{name}");
        let file = mkfs(&spec);
        let mount = KernelMount::new(file.path(), "").unwrap();
        for i in 0..200 {
            let dir = mount.path().join(format!("d{}", i % 7));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(format!("f{i}")), vec![i as u8; 3000]).unwrap();
            if i % 20 == 19 {
                std::fs::File::open(&dir).unwrap().sync_all().unwrap();
            }
            if i % 9 == 8 {
                std::fs::remove_file(mount.path().join(format!("d{}/f{}", (i - 4) % 7, i - 4)))
                    .unwrap();
            }
        }
        std::fs::remove_dir_all(mount.path().join("d3")).unwrap();
        std::fs::File::open(mount.path()).unwrap().sync_all().unwrap();
        let live = mount.copy_live();
        mount.unmount().unwrap();
        let ours = MemoryDevice::load(live.path()).unwrap();
        let log = crate::common::log_map(live.path(), spec.block_size_bytes);
        let options = RecoverOptions { dry_run: true, ..RecoverOptions::default() };
        let dry = Journal::recover(&ours, &log, options).unwrap();
        let recovery = Journal::recover(&ours, &log, RecoverOptions::default()).unwrap();
        assert!(recovery.transactions > 2 && dry == recovery, "{recovery:?}");
        // e2fsck replays both; what differs must be nothing but what its own checks renew in both.
        let replayed = TempImage::zeroed(spec.size_bytes);
        ours.to_file(replayed.path()).unwrap();
        let _ = debugfs(live.path(), "jr\n");
        let theirs = MemoryDevice::load(live.path()).unwrap();
        assert_eq!(difference(&log, &ours, &theirs), None);
        e2fsck_preen(replayed.path()).unwrap();
    }
}
