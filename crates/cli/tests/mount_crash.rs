//! The serving process is killed, the device fails: what programs were promised is there.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::mounted::Mounted;
use syncline_testkit::{ImageSpec, Need, Random, mkfs, require};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

/// Kills of each mode; each is a mount, some work, a recovery and a check.
const KILLS: u64 = 20;
/// Files that the workers write to.
const FILES: u64 = 4;

/// One worker: appends numbered records to its file and says, after each fsync, how far it is.
/// Every eighth record a new file is made in a directory, as a commit mark would be.
fn work(m: &Mounted, nr: u64, stop: &AtomicBool, acked: &AtomicU64) {
    let open = OpenOptions::new().create(true).append(true).open(m.at(format!("log-{nr}")));
    let Ok(mut file) = open else { return };
    while !stop.load(Ordering::Relaxed) {
        let next = acked.load(Ordering::Relaxed);
        let mut record = [0; 512];
        record[..8].copy_from_slice(&next.to_le_bytes());
        if file.write_all(&record).is_err() {
            return;
        }
        let synced = if next.is_multiple_of(2) { file.sync_all() } else { file.sync_data() };
        if synced.is_err() {
            return;
        }
        if next % 8 == 7 {
            let mark = m.at(format!("marks/{nr}-{next}"));
            if File::create(mark).and_then(|mark| mark.sync_all()).is_err() {
                return;
            }
        }
        acked.store(next + 1, Ordering::Relaxed);
    }
}

fn check(m: &Mounted, nr: u64, acked: u64) -> Result<(), String> {
    let bytes = fs::read(m.at(format!("log-{nr}"))).map_err(|err| format!("log-{nr}: {err}"))?;
    for record in 0..acked {
        let at = record as usize * 512;
        if bytes.get(at..at + 8) != Some(&record.to_le_bytes()[..]) {
            return Err(format!("log-{nr}: record {record} of {acked} is lost"));
        }
        if record % 8 == 7 {
            fs::metadata(m.at(format!("marks/{nr}-{record}")))
                .map_err(|err| format!("mark {nr}-{record} of {acked}: {err}"))?;
        }
    }
    Ok(())
}

fn killed_at_random_moments(options: &str, seed: u64) {
    let mut rng = Random::new(seed);
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    let mut m = Mounted::new(image, options);
    fs::create_dir(m.at("marks")).unwrap();
    let acked: [AtomicU64; FILES as usize] = Default::default();
    for kill in 0..KILLS {
        let stop = AtomicBool::new(false);
        let pause = Duration::from_millis(5 + rng.below(150));
        std::thread::scope(|scope| {
            for nr in 0..FILES {
                let (m, stop, acked) = (&m, &stop, &acked[nr as usize]);
                scope.spawn(move || work(m, nr, stop, acked));
            }
            std::thread::sleep(pause);
            m.kill_serving();
            stop.store(true, Ordering::Relaxed);
        });
        if kill == 0 {
            let again = [OsStr::new("mount"), m.image.path().as_os_str(), m.dir.as_os_str()];
            let said = support::refused(1, &again);
            // By then the kernel may still show the directory as it remembers it.
            let dead = said.contains("is still there; run `syncline umount");
            assert!(dead || said.contains("already mounted on"), "{said}");
        }
        m.bury();
        m.recoverable().unwrap_or_else(|said| panic!("seed {seed}, kill {kill}: {said}"));
        m.mount(options);
        for (nr, acked) in (0..).zip(&acked) {
            let acked = acked.load(Ordering::Relaxed);
            if acked == 0 {
                continue;
            }
            check(&m, nr, acked).unwrap_or_else(|said| panic!("seed {seed}, kill {kill}: {said}"));
            // What was written but not acknowledged may be there: the next record goes behind what
            // was promised.
            let file = OpenOptions::new().write(true).open(m.at(format!("log-{nr}"))).unwrap();
            file.set_len(acked * 512).unwrap();
        }
    }
    let done: Vec<u64> = acked.iter().map(|acked| acked.load(Ordering::Relaxed)).collect();
    assert!(done.iter().sum::<u64>() > KILLS, "hardly anything was synced: {done:?}");
    m.unmount_clean();
}

#[test]
fn a_killed_mount_keeps_every_acknowledged_fsync() {
    if require("a_killed_mount_keeps_every_acknowledged_fsync", &NEEDS) {
        killed_at_random_moments("sync=ordered", 1);
    }
}

#[test]
fn a_killed_eager_mount_keeps_every_acknowledged_fsync() {
    if require("a_killed_eager_mount_keeps_every_acknowledged_fsync", &NEEDS) {
        killed_at_random_moments("sync=eager", 2);
    }
}

/// The image is on a small tmpfs and sparse: once that is full, writes of the image fail.
#[test]
fn a_failing_device_gives_errors_and_can_be_unmounted() {
    let name = "a_failing_device_gives_errors_and_can_be_unmounted";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let small = support::scratch();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
        .arg(small.path())
        .status();
    assert!(mount.unwrap().success());
    let _unmount = Detach(small.path());
    let spec = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(128 << 20) };
    let (made, image) = (mkfs(&spec), small.path().join("image"));
    let copied = std::process::Command::new("cp")
        .arg("--sparse=always")
        .args([made.path(), &image])
        .status();
    assert!(copied.unwrap().success());
    let dir = support::scratch();
    let here = [OsStr::new("mount"), image.as_os_str(), dir.path().as_os_str()];
    support::done(&here);
    let file = File::create(dir.path().join("f")).unwrap();
    let mut failed = None;
    for at in 0..100u64 {
        let step = file.write_all_at(&vec![1; 1 << 20], at << 20).and_then(|()| file.sync_data());
        if let Err(err) = step {
            failed = Some(err);
            break;
        }
    }
    // The medium is full, not the volume: an I/O error, from now on for every sync.
    assert_eq!(failed.expect("tmpfs has 16 MiB").raw_os_error(), Some(5));
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    assert!(fs::write(dir.path().join("g"), "x").is_err());
    let status = support::done(&[OsStr::new("status"), dir.path().as_os_str()]);
    assert!(status.contains("LATCHED"), "{status}");
    fs::read_dir(dir.path()).unwrap().for_each(drop);
    drop(file);
    let began = Instant::now();
    let said = loop {
        let said = support::refused(1, &[OsStr::new("umount"), dir.path().as_os_str()]);
        // A process that another test thread is just starting has our files open until its exec.
        if !said.contains("busy") || began.elapsed() > Duration::from_secs(120) {
            break said;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(said.contains("`syncline recover`"), "{said}");
    assert!(syncline_fuse::mount_of(dir.path()).is_none(), "it is unmounted all the same");
}

struct Detach<'a>(&'a std::path::Path);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
