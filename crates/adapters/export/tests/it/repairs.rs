//! Repair of what power cuts leave of a kernel's ext4, with a journal and without.
//!
//! Oracle: a repair ends, e2fsck finds nothing after it, a second one changes nothing, and each
//! file that `e2fsck -fy` keeps under its name is there with the same bytes. Fast commits are
//! replayed by the kernel first: e2fsck 1.47 stops at an earlier transaction. Bytes are not
//! compared then: the kernel leaves old blocks in the holes of a file whose inode was another
//! one's.
//!
//! `SYNCLINE_KERNEL_STATES=N` judges N states of each file system instead of the first 15.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::repair::Plan;
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, CrashState, Explorer, run};
use syncline_testkit::{ImageSpec, Need, Random, e2fsck_clean, files_of, mkfs, require};

use crate::kernel::ExportMount;

const SIZE_BYTES: u64 = 12 << 20;

/// Files and directories come and go; some are synced.
fn work(mount: &ExportMount, seed: u64) {
    let mut random = Random::new(seed);
    let name = |random: &mut Random| {
        let dir = random.below(4);
        format!("d{dir}/{}{}", "name-".repeat(1 + random.index(20)), random.below(60))
    };
    for dir in 0..4 {
        std::fs::create_dir(mount.path(&format!("d{dir}"))).unwrap();
    }
    for step in 0..400_u64 {
        let path = mount.path(&name(&mut random));
        let other = mount.path(&name(&mut random));
        match random.below(12) {
            0..=4 => {
                let file = File::options().write(true).create(true).truncate(false).open(&path);
                let mut bytes = vec![0; 100 + random.index(30_000)];
                syncline_testkit::fill(step, 0, &mut bytes);
                // A full file system is a case, too.
                let done = file.and_then(|file| {
                    file.write_all_at(&bytes, random.below(50_000))?;
                    if random.below(4) == 0 { file.sync_all() } else { Ok(()) }
                });
                let _ = done;
            }
            5 => drop(std::fs::rename(&path, &other)),
            6 => drop(std::fs::hard_link(&path, &other)),
            7 => drop(std::fs::remove_file(&path)),
            8 => drop(std::fs::create_dir(&path)),
            9 => drop(std::fs::remove_dir(&path)),
            10 => drop(std::os::unix::fs::symlink("target/".repeat(random.index(40)), &path)),
            _ => {
                let file = File::options().write(true).open(&path);
                drop(file.and_then(|file| file.set_len(random.below(40_000))));
            }
        }
        if step % 100 == 99 {
            rustix::fs::syncfs(File::open(mount.path("")).unwrap()).unwrap();
        }
    }
}

fn judge(state: &CrashState, fast_commit: bool) -> Result<(), String> {
    let dev: Arc<dyn BlockDevice> = Arc::new(state.image.snapshot());
    let dir = tempfile::tempdir().unwrap();
    let [own, stock, linux] = ["own", "stock", "linux"].map(|name| dir.path().join(name));
    let save = |dev: &dyn BlockDevice, path: &Path| {
        let mut bytes = vec![0; SIZE_BYTES as usize];
        let origin = syncline_device::Origin::new(syncline_device::Kind::Other, true);
        dev.read(0, &mut bytes, origin).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    save(&*dev, &stock);
    save(&*dev, &linux);
    let plan = Plan::new(&dev, &mut |_| true).map_err(|err| err.to_string())?;
    if !plan.after.is_clean() {
        return Err(format!("errors are left: {:?}", plan.after.findings));
    }
    plan.apply(&*dev).map_err(|err| err.to_string())?;
    let again = Plan::new(&dev, &mut |_| true).map_err(|err| err.to_string())?;
    if !again.changes.is_empty() {
        return Err("a second repair changes something".into());
    }
    save(&*dev, &own);
    e2fsck_clean(&own)?;
    if fast_commit && !crate::kernel::mounts_once(&stock) {
        // Linux 6.18 refuses some logs that it wrote itself.
        return Ok(());
    }
    let ran = Command::new("e2fsck").arg("-fy").arg(&stock).output();
    let said = ran.map_err(|err| err.to_string())?.stdout;
    // e2fsck 1.47.0 drops a transaction whose commit block is torn behind its first sector.
    let is_dropped = String::from_utf8_lossy(&said).contains("replay was aborted");
    let stock = if is_dropped && crate::kernel::mounts_once(&linux) { linux } else { stock };
    if e2fsck_clean(&stock).is_err() {
        return Ok(());
    }
    let found = files_of(&own);
    let stock = files_of(&stock).into_iter().filter(|(name, _)| !name.starts_with("lost+found/"));
    for (name, bytes) in stock {
        let is_kept = |own: &Vec<u8>| fast_commit || *own == bytes;
        if !found.get(&name).is_some_and(is_kept) {
            return Err(format!("{name} is lost, which e2fsck keeps"));
        }
    }
    Ok(())
}

#[test]
fn what_a_power_cut_leaves_of_a_kernels_ext4_is_mended() {
    let test = "what_a_power_cut_leaves_of_a_kernels_ext4_is_mended";
    if !require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck]) {
        return;
    }
    let states = std::env::var("SYNCLINE_KERNEL_STATES").map_or(15, |text| text.parse().unwrap());
    for (nr, (features, block_size_bytes, mode)) in (0..).zip([
        ("metadata_csum,64bit", 1024, "data=ordered"),
        ("^metadata_csum,fast_commit", 1024, "data=writeback"),
        ("metadata_csum,orphan_file", 1024, "data=journal"),
        ("^has_journal,^metadata_csum,^extent,^64bit", 1024, "rw"),
        ("^has_journal,metadata_csum,inline_data", 4096, "rw"),
    ]) {
        let journal_size_mib = (!features.contains("^has_journal")).then_some(2);
        let image = mkfs(&ImageSpec {
            size_bytes: SIZE_BYTES,
            block_size_bytes,
            features: features.into(),
            journal_size_mib,
            inode_count: Some(256),
            ..ImageSpec::default()
        });
        let base = MemoryDevice::from_bytes(&image.bytes());
        let medium = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
        let mount = ExportMount::new(medium.clone(), mode);
        work(&mount, nr);
        let explorer = Explorer::new(medium.log());
        drop(mount);
        let command = format!("cargo test -p syncline-export --test it {test}");
        let fast_commit = features.contains("fast_commit");
        let judge = |state: &CrashState| judge(state, fast_commit);
        let summary = run(&explorer, &Budget::new(states, nr), &command, judge);
        println!("{features}, {mode}: {}", summary.into_result().unwrap());
    }
}
