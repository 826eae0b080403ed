//! Reads and writes against a byte array: every content, every size, small caches, remounts.

use crate::bed::{Bed, assert_same, bytes, contents, random, spec};
use syncline_fs::{FsError, InodeRef, Volume};
use syncline_testkit::ImageSpec;

/// Largest size of a file in the model runs.
const FILE_BYTES_MAX: u64 = 3 << 20;

struct Model {
    files: Vec<Vec<u8>>,
}

impl Model {
    fn write(&mut self, n: usize, offset: usize, data: &[u8]) {
        let file = &mut self.files[n];
        // A write of nothing does not grow a file.
        if !data.is_empty() && file.len() < offset + data.len() {
            file.resize(offset + data.len(), 0);
        }
        for (at, byte) in data.iter().enumerate() {
            file[offset + at] = *byte;
        }
    }
}

/// One random operation on file `n` of both.
fn step(
    bed: &Bed,
    volume: &Volume,
    model: &mut Model,
    random: &mut syncline_testkit::Random,
    (n, file): (usize, &InodeRef),
) {
    let size = model.files[n].len() as u64;
    let near = |random: &mut syncline_testkit::Random| match random.below(4) {
        0 => random.below(FILE_BYTES_MAX / 2),
        1 => size,
        _ => random.below(size + 5000),
    };
    let len = match random.below(4) {
        0 => random.below(300_000),
        1 => random.below(200),
        _ => 4096 * random.below(5),
    };
    match random.below(100) {
        0..45 => {
            let offset = near(random).min(FILE_BYTES_MAX - 300_000);
            let data = bytes(random.bits(), len as usize);
            assert_eq!(volume.write(file, offset, &data).expect("write"), data.len());
            model.write(n, offset as usize, &data);
        }
        45..55 if size + len < FILE_BYTES_MAX => {
            let data = bytes(random.bits(), len as usize);
            let done = volume.write_append(file, &data).expect("append");
            assert_eq!(done, (size, data.len()));
            model.write(n, size as usize, &data);
        }
        55..80 => {
            let offset = near(random);
            let mut data = vec![0xAA; len as usize];
            let done = volume.read(file, offset, &mut data).expect("read");
            let from = (offset as usize).min(model.files[n].len());
            let to = (offset as usize + len as usize).min(model.files[n].len()).max(from);
            assert_same(&data[..done], &model.files[n][from..to], "read");
        }
        80..85 => {
            let size = near(random);
            volume.truncate(file, size).expect("truncate");
            model.files[n].resize(size as usize, 0);
        }
        85..89 => volume.fsync(file, false).expect("fsync"),
        89..93 => volume.fsync(file, true).expect("fdatasync"),
        93..94 => volume.syncfs().expect("syncfs"),
        _ => {
            bed.wait_ms(random.below(20_000));
            volume.tick(now(bed)).expect("tick");
        }
    }
}

fn now(bed: &Bed) -> u64 {
    syncline_device::Clock::now_ns(&*bed.clock)
}

fn model_run(seed: u64, spec: &ImageSpec, options: &str, steps: usize) {
    let bed = Bed::without_fua(spec, 3);
    let mut random = random(seed);
    let mut model = Model { files: vec![Vec::new(); 3] };
    for round in 0..3 {
        let volume = bed.mount(options);
        let files: Vec<InodeRef> = (0..3).map(|n| bed.file(&volume, n)).collect();
        for (n, file) in files.iter().enumerate() {
            assert_same(&contents(&volume, file), &model.files[n], "after the mount");
        }
        for i in 0..steps {
            let n = random.index(3);
            println!("seed {seed} round {round} step {i}");
            step(&bed, &volume, &mut model, &mut random, (n, &files[n]));
            let size = volume.getattr(&files[n]).size;
            assert_eq!(size, model.files[n].len() as u64, "seed {seed} step {i}: size");
            let stats = volume.cache_stats();
            assert!(stats.pages <= stats.pages_max + 64, "cache over its limit: {stats:?}");
        }
        for (n, file) in files.iter().enumerate() {
            assert_same(&contents(&volume, file), &model.files[n], "before the unmount");
        }
        drop(files);
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

#[test]
fn random_operations_match_a_byte_array_with_4k_blocks() {
    for seed in 1..=3 {
        model_run(seed, &spec(4096), "cache=1M", 300);
    }
}

#[test]
fn random_operations_match_a_byte_array_with_1k_blocks() {
    for seed in 11..=13 {
        model_run(seed, &spec(1024), "cache=1M,policy=lru", 200);
    }
}

#[test]
fn random_operations_match_with_a_roomy_cache_and_lazy_times() {
    model_run(21, &spec(4096), "cache=64M,lazytime,dirty_expire_centisecs=200", 300);
}

#[test]
fn a_file_larger_than_the_cache_comes_back_whole() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("cache=1M");
    let file = bed.file(&volume, 0);
    let data = bytes(5, 12 << 20);
    for (i, part) in data.chunks(1 << 20).enumerate() {
        assert_eq!(volume.write(&file, (i as u64) << 20, part).expect("write"), part.len());
        let stats = volume.cache_stats();
        assert!(stats.pages <= stats.pages_max + 64, "{stats:?}");
    }
    assert_same(&contents(&volume, &file), &data, "through the cache");
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
    let volume = bed.mount("ro");
    assert_same(&contents(&volume, &bed.file(&volume, 0)), &data, "after a remount");
}

#[test]
fn a_hole_before_a_write_reads_as_zeros() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    volume.write(&file, 100, b"start").expect("write");
    volume.write(&file, 1_000_000, b"end").expect("write");
    let mut expected = vec![0; 1_000_003];
    expected[100..105].copy_from_slice(b"start");
    expected[1_000_000..].copy_from_slice(b"end");
    assert_same(&contents(&volume, &file), &expected, "sparse");
    volume.fsync(&file, false).expect("fsync");
    assert!(volume.getattr(&file).blocks <= 16, "holes take no blocks");
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn out_of_space_is_said_by_write_and_everything_taken_is_kept() {
    let spec = ImageSpec { size_bytes: 8 << 20, ..spec(4096) };
    let spec = ImageSpec { block_size_bytes: 1024, ..spec };
    let bed = Bed::without_fua(&spec, 2);
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    let data = bytes(9, 64 << 10);
    let mut taken = 0u64;
    loop {
        match volume.write(&file, taken, &data) {
            Ok(n) => taken += n as u64,
            Err(FsError::NoSpace) => break,
            Err(err) => panic!("{err}"),
        }
        assert!(taken < 8 << 20, "the volume never fills");
    }
    assert!(matches!(volume.write(&bed.file(&volume, 1), 0, b"x"), Err(FsError::NoSpace)));
    volume.fsync(&file, false).expect("what was taken can be written");
    let found = contents(&volume, &file);
    assert_eq!(found.len() as u64, taken);
    for (i, part) in found.chunks(data.len()).enumerate() {
        assert_same(part, &data[..part.len()], &format!("piece {i}"));
    }
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn a_freed_file_makes_room_again_at_once() {
    let spec = ImageSpec { size_bytes: 16 << 20, journal_size_mib: Some(4), ..spec(4096) };
    let bed = Bed::without_fua(&spec, 1);
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    let data = bytes(3, 6 << 20);
    for _ in 0..4 {
        assert_eq!(volume.write(&file, 0, &data).expect("write"), data.len());
        volume.fsync(&file, true).expect("fdatasync");
        volume.truncate(&file, 0).expect("truncate");
    }
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn writes_past_the_largest_size_are_cut_or_refused() {
    let bed = Bed::without_fua(&spec(1024), 1);
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    let limit = u64::from(u32::MAX) * 1024;
    assert!(matches!(volume.write(&file, limit, b"x"), Err(FsError::TooBig)));
    assert!(matches!(volume.write(&file, u64::MAX - 1, b"xyz"), Err(FsError::TooBig)));
    assert_eq!(volume.write(&file, limit - 2, b"abc").expect("two fit"), 2);
    assert_eq!(volume.getattr(&file).size, limit);
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn directories_are_refused() {
    let bed = Bed::without_fua(&spec(4096), 0);
    let volume = bed.mount("");
    let root = volume.root().expect("root");
    assert!(matches!(volume.read(&root, 0, &mut [0; 4]), Err(FsError::IsDir)));
    assert!(matches!(volume.write(&root, 0, b"x"), Err(FsError::IsDir)));
    volume.fsync(&root, false).expect("a directory can be synced");
}

#[test]
fn a_read_only_mount_refuses_writes_and_writes_nothing() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let before = bed.dev.snapshot();
    let volume = bed.mount("ro");
    let file = bed.file(&volume, 0);
    assert!(matches!(volume.write(&file, 0, b"x"), Err(FsError::ReadOnly)));
    assert_eq!(volume.read(&file, 0, &mut [0; 4]).expect("read"), 0);
    volume.fsync(&file, false).expect("nothing to do");
    assert_eq!(bed.dev.first_difference(&before), None);
}

#[test]
fn access_times_follow_the_mount_option() {
    for (options, moves) in [("noatime", false), ("relatime", true), ("strictatime", true)] {
        let bed = Bed::without_fua(&spec(4096), 1);
        let volume = bed.mount(options);
        let file = bed.file(&volume, 0);
        volume.write(&file, 0, b"text").expect("write");
        bed.wait_ms(100);
        let before = volume.getattr(&file).atime;
        volume.read(&file, 0, &mut [0; 4]).expect("read");
        let first = volume.getattr(&file).atime;
        assert_eq!(first != before, moves, "{options}: first read");
        bed.wait_ms(100);
        volume.read(&file, 0, &mut [0; 4]).expect("read");
        let second = volume.getattr(&file).atime;
        assert_eq!(second != first, options == "strictatime", "{options}: second read");
    }
}

#[test]
fn access_times_of_directories_stay_with_nodiratime() {
    for (options, moves) in [("strictatime", true), ("strictatime,nodiratime", false)] {
        let bed = Bed::without_fua(&spec(4096), 1);
        let volume = bed.mount(options);
        let (root, file) = (volume.root().expect("root"), bed.file(&volume, 0));
        volume.write(&file, 0, b"text").expect("write");
        let before = (volume.getattr(&root).atime, volume.getattr(&file).atime);
        bed.wait_ms(100);
        volume.readdir(&root, 0, &mut |_| true).expect("readdir");
        volume.read(&file, 0, &mut [0; 4]).expect("read");
        assert_eq!(volume.getattr(&root).atime != before.0, moves, "{options}");
        assert_ne!(volume.getattr(&file).atime, before.1, "{options}: a file's moves");
    }
}
