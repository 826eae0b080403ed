//! Every geometry of a log that Linux mounts: after a cut at any lap the kernel recovers the image,
//! and goes on writing to it.

use std::path::Path;
use std::sync::Arc;

use syncline_device::MemoryDevice;
use syncline_fs::Volume;
use syncline_ondisk::jbd2::JournalSuperblock;
use syncline_testkit::{
    ImageSpec, KernelMount, Need, TempImage, debugfs, e2fsck_clean, e2fsck_preen, require,
};

use crate::bed::{Bed, bytes, contents, owner, spec};

/// Files without a name that are open when the power goes.
const ORPHANS: usize = 25;

/// First byte of the log, which lies in one piece.
fn log_at(bed: &Bed) -> u64 {
    let said = debugfs(bed.image.path(), "bmap <8> 0\n");
    let block: u64 = said.lines().find_map(|line| line.trim().parse().ok()).expect("a block");
    let stat = debugfs(bed.image.path(), "stats\n");
    let size = stat.lines().find_map(|line| line.strip_prefix("Block size:")).expect("a size");
    block * size.trim().parse::<u64>().expect("a number")
}

fn log_superblock(bed: &Bed, into: &mut [u8; 1024]) -> JournalSuperblock {
    bed.dev.read_at(log_at(bed), into).expect("memory reads");
    JournalSuperblock::decode(into).expect("a superblock")
}

/// Changes the journal superblock of an image that was never mounted.
fn edit_log(bed: &mut Bed, edit: impl FnOnce(&mut JournalSuperblock)) {
    let (at, mut found) = (log_at(bed), [0; 1024]);
    let mut fields = log_superblock(bed, &mut found);
    edit(&mut fields);
    fields.encode_into(&mut found).expect("1024 bytes");
    bed.dev.write_at(at, &found).expect("memory takes it");
}

fn geometries() -> Vec<(&'static str, Bed)> {
    let fast = |block_size, journal_mib| ImageSpec {
        features: "fast_commit".into(),
        journal_size_mib: Some(journal_mib),
        ..spec(block_size)
    };
    let plain = |block_size, journal_mib| ImageSpec {
        journal_size_mib: Some(journal_mib),
        ..spec(block_size)
    };
    let mut short = Bed::new(&plain(1024, 3), 0);
    edit_log(&mut short, |log| log.s_maxlen -= 700);
    let mut late = Bed::new(&plain(1024, 2), 0);
    edit_log(&mut late, |log| log.s_first = 300);
    let mut users = Bed::new(&plain(1024, 1), 0);
    edit_log(&mut users, |log| log.s_nr_users = 1);
    vec![
        ("fast_commit, 1 KiB", Bed::new(&fast(1024, 1), 0)),
        ("fast_commit, 4 KiB", Bed::new(&fast(4096, 5), 0)),
        ("s_maxlen shorter than the inode", short),
        ("s_first in the middle", late),
        ("the smallest log", users),
    ]
}

/// The image as the next boot would find it.
fn saved(device: &MemoryDevice) -> TempImage {
    let file = TempImage::zeroed(0);
    device.to_file(file.path()).expect("the image is writable");
    file
}

/// Linux mounts the image, finds `wanted` and writes more than a log holds.
fn kernel_goes_on(image: &Path, wanted: &[(String, Vec<u8>)]) -> Result<(), String> {
    let mount = KernelMount::new(image, "")?;
    let write = |round: usize| -> Result<(), std::io::Error> {
        let dir = mount.path().join(format!("kernel{round}"));
        std::fs::create_dir(&dir)?;
        for n in 0..60 {
            std::fs::write(dir.join(format!("{n}")), vec![n; 700])?;
        }
        rustix::fs::syncfs(std::fs::File::open(&dir)?)?;
        Ok(())
    };
    for (name, data) in wanted {
        let found = std::fs::read(mount.path().join(name)).map_err(|err| err.to_string())?;
        if found != *data {
            return Err(format!("{name} differs"));
        }
    }
    (0..12).try_for_each(write).map_err(|err| format!("Linux cannot write: {err}"))?;
    mount.unmount()?;
    e2fsck_clean(image)
}

/// Goes round the log, and cuts at ever other places of it, among them where a log that takes all
/// of its blocks would be in the area for fast commits.
fn laps(name: &str, bed: &Bed, options: &str) {
    let superblock = log_superblock(bed, &mut [0; 1024]);
    let lap = u64::from(superblock.s_maxlen - superblock.s_first);
    let in_area = |written: u64| written % lap + u64::from(superblock.s_num_fc_blks) >= lap;
    let volume = bed.mount(options);
    let root = volume.root().expect("a root");
    let open: Vec<_> = (0..ORPHANS)
        .map(|n| {
            let name = format!("gone{n}").into_bytes();
            let file = volume.create(&root, &name, &owner()).expect("created");
            volume.write(&file, 0, &bytes(1, 5000)).expect("written");
            volume.unlink(&root, &name).expect("unlinked");
            file
        })
        .collect();
    let log_blocks = volume.journal_stats().expect("writable").log_blocks;
    let (mut wanted, mut cuts): (Vec<(String, Vec<u8>)>, u64) = (Vec::new(), 0);
    for round in 0.. {
        let file_name = format!("file{}", round % 40);
        let data = bytes(round, 600 + (round % 7 * 900) as usize);
        let file = (volume.resolve(format!("/{file_name}")))
            .or_else(|_| volume.create(&root, file_name.as_bytes(), &owner()))
            .expect("there");
        volume.truncate(&file, 0).expect("cut");
        volume.write(&file, 0, &data).expect("written");
        volume.fsync(&file, false).expect("synced");
        wanted.retain(|(old, _)| *old != file_name);
        wanted.push((file_name, data));
        if options == "sync=periodic" {
            volume.sync().expect("a sync point");
        }
        let written = volume.journal_stats().expect("writable").log_blocks_written;
        if written * 5 < cuts * u64::from(log_blocks) && !in_area(written) {
            continue;
        }
        cuts = written * 5 / u64::from(log_blocks) + 1;
        let image = saved(&bed.dev.snapshot());
        if cuts % 3 == 0 {
            e2fsck_preen(image.path()).unwrap_or_else(|err| panic!("{name}, {options}: {err}"));
        }
        if let Err(err) = kernel_goes_on(image.path(), &wanted) {
            panic!("{name}, {options}, after {written} blocks of {log_blocks}: {err}");
        }
        if cuts > 9 {
            break;
        }
    }
    drop((open, root));
    bed.unmount_and_judge(volume, name);
    kernel_goes_on(bed.save(), &wanted).unwrap_or_else(|err| panic!("{name}, unmounted: {err}"));
}

#[test]
fn linux_recovers_every_geometry_and_goes_on_writing() {
    let test = "linux_recovers_every_geometry_and_goes_on_writing";
    if !require(test, &[Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    for (name, bed) in geometries() {
        laps(name, &bed, "sync=eager");
        laps(name, &bed, if name.contains("1 KiB") { "sync=periodic" } else { "sync=ordered" });
    }
}

/// A log of long ago on a volume that is clean: Linux empties it, so its blocks must not come back.
#[test]
fn a_log_that_is_not_needed_is_not_replayed() {
    let test = "a_log_that_is_not_needed_is_not_replayed";
    let image = ImageSpec { journal_size_mib: Some(1), ..spec(1024) };
    for options in ["sync=eager", "sync=ordered", "sync=eager,log=packed"] {
        let bed = Bed::new(&image, 1);
        let write = |volume: &Volume, seed| {
            let file = bed.file(volume, 0);
            volume.truncate(&file, 0).expect("cut");
            volume.write(&file, 0, &bytes(seed, 9000)).expect("written");
            volume.fsync(&file, false).expect("synced");
        };
        let volume = bed.mount(options);
        write(&volume, 1);
        let (at, mut log) = (log_at(&bed), vec![0; 1 << 20]);
        bed.dev.read_at(at, &mut log).expect("memory reads");
        write(&volume, 2);
        volume.unmount().expect("unmounted");
        bed.dev.write_at(at, &log).expect("memory takes it");
        let kernels = saved(&bed.dev.snapshot());

        let volume = bed.mount(options);
        assert_eq!(contents(&volume, &bed.file(&volume, 0)), bytes(2, 9000), "{options}");
        write(&volume, 3);
        let crashed = bed.mount_on(Arc::new(bed.dev.snapshot()), "");
        assert_eq!(contents(&crashed, &bed.file(&crashed, 0)), bytes(3, 9000), "{options}");
        bed.unmount_and_judge(volume, options);
        // A stock kernel refuses a journal of packed records before it looks at the flag.
        if !options.contains("packed") && require(test, &[Need::E2fsck, Need::Root, Need::Loop]) {
            let wanted = [("f0".to_owned(), bytes(2, 9000))];
            kernel_goes_on(kernels.path(), &wanted)
                .unwrap_or_else(|err| panic!("{options}: {err}"));
        }
    }
}
