//! Fast commits of a running kernel, applied: trees, cuts of the area, power cuts of the replay,
//! areas that nobody wrote. e2fsck is the judge. The running kernel makes images and never mounts
//! one that was cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{MountOptions, MountReport, Volume};
use syncline_model::{
    FuzzRounds, ImageSpec, KernelMount, Need, Random, TempImage, TreeManifest, VolumeTree,
    e2fsck_clean, mkfs, require,
};
use syncline_ondisk::fast_commit::{TAIL, frames};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer, run};

const BLOCK: usize = 4096;

/// Compared of a file: mode, links, size, SHA-256, seconds and nanoseconds of the last
/// change where the image was made here.
type Tree = BTreeMap<Vec<u8>, (u32, u64, u64, [u8; 32], Option<(i64, u32)>)>;

/// An image with live fast commits, and the trees after each of them.
struct Crashed {
    image: MemoryDevice,
    states: Vec<Tree>,
    timed: bool,
}

fn tree(manifest: &TreeManifest, timed: bool) -> Tree {
    // `log` grows with every step.
    let counts = |path: &[u8]| !path.is_empty() && path != b"log";
    let files = manifest.entries.iter().filter(|(path, _)| counts(path));
    let seen = files.map(|(path, entry)| {
        let stat = &entry.stat;
        let time = (timed && entry.is_file()).then_some((stat.mtime.seconds, stat.mtime.nanos));
        let size = if entry.is_file() { stat.size } else { 0 };
        (path.clone(), (stat.mode, stat.nlink, size, entry.content, time))
    });
    seen.collect()
}

/// Writes a file and syncs it.
fn write(path: impl AsRef<Path>, byte: u8, len: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(&vec![byte; len]).unwrap();
    file.sync_all().unwrap();
}

/// Makes the tree before the first fast commit.
fn set_up(at: &Path) {
    std::fs::create_dir(at.join("d")).unwrap();
    std::fs::create_dir(at.join("empty")).unwrap();
    for (nr, name) in (1u8..).zip(["old1", "old2", "old3", "old4", "old5", "log"]) {
        write(at.join(name), nr, 8 * BLOCK);
    }
    std::fs::hard_link(at.join("old5"), at.join("d/linked")).unwrap();
}

/// One operation of each kind that Linux 6.18 makes a fast commit of.
const STEPS: &[fn(&Path)] = &[
    |_| {},
    |at| write(at.join("new"), b'n', 5000),
    |at| std::fs::hard_link(at.join("new"), at.join("d/new2")).unwrap(),
    |at| std::fs::rename(at.join("old2"), at.join("d/moved")).unwrap(),
    |at| std::fs::rename(at.join("old3"), at.join("old4")).unwrap(),
    |at| std::fs::remove_file(at.join("d/linked")).unwrap(),
    |at| std::fs::create_dir(at.join("made")).unwrap(),
    |at| {
        std::fs::create_dir(at.join("made/inner")).unwrap();
        write(at.join("made/inner/file"), b'i', 9000);
    },
    |at| std::fs::File::options().write(true).open(at.join("old1")).unwrap().set_len(5000).unwrap(),
    |at| std::fs::remove_dir(at.join("empty")).unwrap(),
    |at| {
        let ran = Command::new("fallocate").args(["-l", "65536"]).arg(at.join("fal")).status();
        assert!(ran.unwrap().success());
    },
    |at| std::fs::remove_file(at.join("new")).unwrap(),
    |at| write(at.join("short"), b's', 100),
    |at| std::fs::rename(at.join("short"), at.join("d/long")).unwrap(),
    |at| write(at.join("short"), b't', 20000),
    |at| std::fs::remove_file(at.join("old5")).unwrap(),
];

/// Runs a step and syncs another file.
fn step(at: &Path, step: fn(&Path)) {
    step(at);
    let mut log = std::fs::File::options().append(true).open(at.join("log")).unwrap();
    log.write_all(&[b'.'; 3000]).unwrap();
    log.sync_all().unwrap();
}

/// Fast commits of the kernel that runs.
fn made_here(features: &str, steps: &[fn(&Path)]) -> Option<Crashed> {
    let has_feature = Path::new("/sys/fs/ext4/features/fast_commit").exists();
    let needs = [Need::E2fsck, Need::Root, Need::Loop];
    if !require("fast commits of the running kernel", &needs) || !has_feature {
        return None;
    }
    let image = fresh(features);
    let mount = KernelMount::new(image.path(), "commit=300").ok()?;
    set_up(mount.path());
    let synced = Command::new("sync").arg("-f").arg(mount.path()).status();
    assert!(synced.unwrap().success());
    let mut states = Vec::new();
    for run in steps {
        step(mount.path(), *run);
        states.push(tree(&TreeManifest::from_dir(mount.path()).unwrap(), true));
    }
    let image = MemoryDevice::load(mount.copy_live().path()).unwrap();
    mount.unmount().unwrap();
    Some(Crashed { image, states, timed: true })
}

fn fresh(features: &str) -> TempImage {
    let features = format!("fast_commit{features}");
    mkfs(&ImageSpec { features, journal_size_mib: Some(5), ..ImageSpec::with_size(24 << 20) })
}

/// Fast commits of Linux 6.18.44, stored.
fn stored() -> Option<Crashed> {
    if !require("stored fast commits", &[Need::E2fsck]) {
        return None;
    }
    let packed: &[u8] = include_bytes!("fast_commit/linux-6.18.img.gz");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let dir = tempfile::tempdir().unwrap();
    set_up(dir.path());
    let states = STEPS.iter().map(|run| {
        step(dir.path(), *run);
        tree(&TreeManifest::from_dir(dir.path()).unwrap(), false)
    });
    Some(Crashed {
        image: MemoryDevice::from_bytes(&bytes),
        states: states.collect(),
        timed: false,
    })
}

fn mount(dev: Arc<dyn BlockDevice>) -> Result<(Volume, MountReport), String> {
    let clock = Arc::new(VirtualClock::default()) as Arc<dyn Clock>;
    let options = MountOptions::parse("cache=8M").unwrap();
    Volume::mount_report(dev, clock, options).map_err(|err| err.to_string())
}

fn bytes_of(image: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; image.geometry().size_bytes as usize];
    image.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The image as a file, for stock programs.
fn saved(image: &MemoryDevice) -> TempImage {
    let file = TempImage::zeroed(0);
    image.to_file(file.path()).unwrap();
    file
}

/// Mounts, reads the tree, unmounts, asks e2fsck.
fn recovered(
    image: &MemoryDevice,
    timed: bool,
    judge: bool,
) -> Result<(Tree, MountReport), String> {
    let dev = Arc::new(image.snapshot());
    let (volume, report) = mount(Arc::clone(&dev) as Arc<dyn BlockDevice>)?;
    let manifest = TreeManifest::from_source(&mut VolumeTree::new(volume.clone()))?;
    volume.unmount().map_err(|err| err.to_string())?;
    if judge {
        let file = saved(&dev);
        e2fsck_clean(file.path())?;
    }
    Ok((tree(&manifest, timed), report))
}

/// Bytes of the area, from its first block on.
fn area_of(image: &MemoryDevice) -> (u64, Vec<u8>) {
    let bytes = bytes_of(image);
    let head = [9, 0, 8, 0, 0, 0, 0, 0];
    let at = bytes.chunks(BLOCK).position(|block| block.starts_with(&head)).unwrap();
    let first = at * BLOCK;
    (first as u64, bytes[first..first + 30 * BLOCK].to_vec())
}

/// Puts the right checksums into all TAILs.
fn seal(area: &mut [u8]) {
    let mut crc = 0;
    for block in area.chunks_mut(BLOCK) {
        let mut sums = Vec::new();
        for frame in frames(block) {
            crc = frame.checksum(crc);
            if frame.tag == TAIL && frame.value.len() >= 8 {
                sums.push((frame.offset + 8, crc));
                crc = 0;
            }
        }
        for (at, crc) in sums {
            block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

fn whole(crashed: &Crashed) {
    let (seen, report) = recovered(&crashed.image, crashed.timed, true).unwrap();
    assert!(report.fast_commits > 0, "{report:?}");
    let last = crashed.states.last().unwrap();
    same(&seen, last).unwrap();
}

/// Names the first path that differs.
fn same(seen: &Tree, expected: &Tree) -> Result<(), String> {
    let paths: BTreeSet<&Vec<u8>> = seen.keys().chain(expected.keys()).collect();
    match paths.into_iter().find(|path| seen.get(*path) != expected.get(*path)) {
        None => Ok(()),
        Some(path) => {
            let (name, is) = (String::from_utf8_lossy(path), seen.get(path));
            Err(format!("{name} is {is:?}, not {:?}", expected.get(path)))
        }
    }
}

#[test]
fn fast_commits_of_the_running_kernel_are_applied() {
    for steps in 1..=STEPS.len() {
        let Some(crashed) = made_here("", &STEPS[..steps]) else { return };
        whole(&crashed);
    }
}

/// Small files and directories, which are in their inodes, and the way out of them.
const STEPS_IN_INODES: &[fn(&Path)] = &[
    |at| write(at.join("tiny"), b'n', 40),
    |at| write(at.join("small"), b'm', 110),
    |at| std::fs::create_dir(at.join("made")).unwrap(),
    |at| write(at.join("made/one"), b'o', 90),
    |at| append(at.join("tiny"), b'p', 50),
    |at| append(at.join("small"), b'q', 9000),
    |at| std::fs::rename(at.join("tiny"), at.join("made/two")).unwrap(),
    |at| {
        let file = std::fs::File::options().write(true).open(at.join("made/one")).unwrap();
        file.set_len(20).unwrap();
        file.sync_all().unwrap();
    },
    |at| write(at.join("empty/below"), b'b', 5),
    |at| std::fs::remove_file(at.join("made/two")).unwrap(),
];

/// Appends to a file and syncs it.
fn append(path: impl AsRef<Path>, byte: u8, len: usize) {
    let mut file = std::fs::File::options().append(true).open(path).unwrap();
    file.write_all(&vec![byte; len]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn fast_commits_of_data_in_inodes_are_applied() {
    for steps in 1..=STEPS_IN_INODES.len() {
        let Some(crashed) = made_here(",inline_data", &STEPS_IN_INODES[..steps]) else { return };
        let (seen, report) = recovered(&crashed.image, true, true).unwrap();
        same(&seen, crashed.states.last().unwrap())
            .unwrap_or_else(|said| panic!("{steps} steps, {report:?}: {said}"));
        assert!(steps > 1 || report.fast_commits > 0, "{report:?}");
    }
}

/// Parts of clusters come and go, and with the last part the cluster. A cluster has 16 blocks.
const STEPS_IN_CLUSTERS: &[fn(&Path)] = &[
    |at| write_at(at.join("new"), b'a', 3, 1),
    |at| write_at(at.join("new"), b'b', 7, 30),
    |at| write_at(at.join("new"), b'c', 1, 1),
    |at| punch(at.join("new"), 3, 2),
    |at| punch(at.join("new"), 20, 20),
    |at| punch(at.join("new"), 0, 18),
    |at| write_at(at.join("new"), b'd', 17, 3),
    |at| write_at(at.join("old1"), b'e', 60, 9),
    |at| write_at(at.join("old1"), b'f', 40, 21),
    |at| cut(at.join("old1"), 41),
    |at| punch(at.join("old1"), 0, 40),
    |at| write_at(at.join("old1"), b'g', 47, 2),
    |at| cut(at.join("old2"), 0),
    |at| write_at(at.join("old2"), b'h', 5, 20),
    |at| std::fs::remove_file(at.join("old1")).unwrap(),
    |at| write_at(at.join("other"), b'i', 9, 40),
];

/// Writes blocks of a file and syncs it.
fn write_at(path: impl AsRef<Path>, byte: u8, first: usize, blocks: usize) {
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(path);
    let file = file.unwrap();
    file.write_all_at(&vec![byte; blocks * BLOCK], (first * BLOCK) as u64).unwrap();
    file.sync_all().unwrap();
}

/// Makes a hole of blocks of a file.
fn punch(path: impl AsRef<Path>, first: usize, blocks: usize) {
    let place = [first, blocks].map(|blocks| (blocks * BLOCK).to_string());
    let args = ["-p", "-o", &place[0], "-l", &place[1]];
    let ran = Command::new("fallocate").args(args).arg(path.as_ref()).status();
    assert!(ran.unwrap().success());
}

/// Cuts a file to so many blocks.
fn cut(path: impl AsRef<Path>, blocks: usize) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len((blocks * BLOCK) as u64).unwrap();
}

#[test]
fn fast_commits_in_clusters_are_applied() {
    let mut applied = 0;
    for all in [STEPS, STEPS_IN_CLUSTERS] {
        for steps in 1..=all.len() {
            let Some(crashed) = made_here(",bigalloc", &all[..steps]) else { return };
            let (seen, report) = recovered(&crashed.image, true, true)
                .unwrap_or_else(|said| panic!("{steps} steps: {said}"));
            same(&seen, crashed.states.last().unwrap())
                .unwrap_or_else(|said| panic!("{steps} steps, {report:?}: {said}"));
            applied += report.fast_commits;
        }
    }
    assert!(applied > 100, "{applied}");
}

#[test]
fn stored_fast_commits_are_applied() {
    let Some(crashed) = stored() else { return };
    whole(&crashed);
    // The same as e2fsck's replay, as far as that goes.
    let (ours, _) = recovered(&crashed.image, false, true).unwrap();
    let file = saved(&crashed.image);
    let ran = Command::new("e2fsck").args(["-fy"]).arg(file.path()).output().unwrap();
    println!("{}", String::from_utf8_lossy(&ran.stdout));
    let theirs = MemoryDevice::load(file.path()).unwrap();
    let (theirs, report) = recovered(&theirs, false, true).unwrap();
    assert_eq!(report.fast_commits, 0);
    assert_eq!(ours, theirs);
}

#[test]
fn an_area_that_is_cut_is_a_state_that_was_synced() {
    let Some(crashed) = stored() else { return };
    let (first, area) = area_of(&crashed.image);
    let mut random = Random::new(5);
    let blocks = crashed.states.len() as u64;
    for nr in 0..60 {
        let sector = random.below(blocks * BLOCK as u64 / 512) as usize;
        let mut cut = area.clone();
        let junk = if nr % 2 == 0 { 0 } else { random.bits() as u8 };
        cut[sector * 512..].fill(junk);
        let image = crashed.image.snapshot();
        image.write_at(first, &cut).unwrap();
        let (seen, _) = recovered(&image, false, true)
            .unwrap_or_else(|error| panic!("cut {nr} at sector {sector}: {error}"));
        let is_synced = crashed.states.contains(&seen) || seen == before(&crashed);
        assert!(is_synced, "cut {nr} at sector {sector}");
    }
}

/// The tree without fast commits.
fn before(crashed: &Crashed) -> Tree {
    let image = crashed.image.snapshot();
    image.write_at(area_of(&image).0, &vec![0; BLOCK]).unwrap();
    // What follows the first block would be taken for damage.
    let (first, area) = area_of(&crashed.image);
    image.write_at(first, &vec![0; area.len()]).unwrap();
    recovered(&image, crashed.timed, true).unwrap().0
}

#[test]
fn a_replay_that_is_cut_is_done_again() {
    let Some(crashed) = stored() else { return };
    let options = CrashOptions { fua: false, ..CrashOptions::default() };
    let dev = Arc::new(CrashDevice::new(&crashed.image, options));
    let (volume, report) = mount(Arc::clone(&dev) as Arc<dyn BlockDevice>).unwrap();
    assert!(report.fast_commits > 0);
    volume.syncfs().unwrap();
    drop(volume);
    let last = crashed.states.last().unwrap();
    let command = "cargo test -p syncline-fs --test it fast_commit::a_replay_that_is_cut";
    let mut judged = 0;
    let summary = run(&Explorer::new(dev.log()), &Budget::new(300, 1), command, |state| {
        judged += 1;
        let (seen, _) = recovered(&state.image, false, judged % 10 == 0)?;
        same(&seen, last)
    });
    println!("{summary}");
    summary.into_result().unwrap();
    // e2fsck recovers what the cuts leave, too: the fast commits or the transaction.
    let summary = run(&Explorer::new(dev.log()), &Budget::new(25, 2), command, |state| {
        let file = saved(&state.image);
        let ran = Command::new("e2fsck").arg("-fy").arg(file.path()).output();
        let ran = ran.map_err(|err| err.to_string())?;
        let (seen, _) = recovered(&MemoryDevice::load(file.path()).unwrap(), false, true)?;
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        same(&seen, last).map_err(|error| format!("{error}: {said}"))
    });
    summary.into_result().unwrap();
}

#[test]
fn fuzz_areas_that_nobody_wrote() {
    let Some(crashed) = stored() else { return };
    let (first, area) = area_of(&crashed.image);
    let used = crashed.states.len() * BLOCK;
    let (mut seeds, mut applied, mut refused) = (FuzzRounds::at_least(500), 0u64, 0u64);
    for seed in &mut seeds {
        let mut random = Random::new(seed);
        let mut hostile = area.clone();
        // Values, not lengths: what has no right frames is not applied.
        let values: Vec<(usize, usize)> = hostile[..used]
            .chunks(BLOCK)
            .enumerate()
            .flat_map(|(nr, block)| {
                let in_block = frames(block).filter(|frame| frame.tag < TAIL);
                in_block.map(move |f| (nr * BLOCK + f.offset, f.bytes.len())).collect::<Vec<_>>()
            })
            .collect();
        for _ in 0..1 + random.below(4) {
            let (at, len) = values[random.index(values.len())];
            let place = at + 4 + random.index(len.min(60) - 4);
            match random.below(4) {
                0 => hostile[at] = 1 + random.below(6) as u8,
                1 => hostile[place] ^= 1 << random.below(8),
                2 => hostile[place] = random.bits() as u8,
                _ => hostile[at + 4..at + 8]
                    .copy_from_slice(&(random.below(40) as u32).to_le_bytes()),
            }
        }
        seal(&mut hostile);
        let image = crashed.image.snapshot();
        image.write_at(first, &hostile).unwrap();
        let judge = seed % 4 == 0;
        let answer = std::panic::catch_unwind(AssertUnwindSafe(|| recovered(&image, false, judge)));
        match answer.unwrap_or_else(|_| panic!("seed {seed} panics")) {
            Ok(_) => applied += 1,
            Err(error) => {
                assert!(!error.contains("e2fsck 1."), "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    println!("{} areas: {applied} applied, {refused} refused", seeds.begun());
    assert!(applied > 0 && refused > 0);
}
