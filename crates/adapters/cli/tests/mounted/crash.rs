//! The serving process is killed, the device fails: what programs were promised is there.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::mounted::Mounted;
use crate::support::serving::Serving;
use syncline_testkit::{ImageSpec, Need, Random, e2fsck_clean, e2fsck_preen, mkfs, require, skip};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

const CUT_NEEDS: [Need; 3] = [Need::Fuse, Need::E2fsck, Need::Root];

/// Kills or power cuts of each mode; each is some work, a recovery, a mount and a check. More with
/// `SYNCLINE_FAULTS`.
const FAULTS: u64 = 4;
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
        let synced = if next % 2 == 0 { file.sync_all() } else { file.sync_data() };
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

/// End of a mount by force.
enum Fault<'a> {
    /// The serving process is killed.
    Kill,
    /// The power of the device is cut, and everything that ran is gone.
    Cut(&'a Serving),
}

impl Fault<'_> {
    fn inject(&self, m: &Mounted) {
        if let Fault::Cut(serving) = self {
            serving.power("cut");
        }
        m.kill_serving();
    }

    /// Checks that a copy of the present image can be recovered.
    fn recoverable(&self, m: &Mounted, recover: Recover) -> Result<(), String> {
        let Fault::Cut(serving) = self else { return recover(m.image.duplicate().path()) };
        serving.power("on");
        let dir = support::scratch();
        let copy = dir.path().join("copy.img");
        fs::copy(serving.flash(), &copy).unwrap();
        recover(&copy)
    }
}

/// Recovers an image and checks that it is clean then.
type Recover = fn(&Path) -> Result<(), String>;

/// Recovers an image that stock tools may refuse; they find nothing to correct afterwards.
fn by_syncline(image: &Path) -> Result<(), String> {
    let ran = support::run(&["recover".as_ref(), image.as_os_str()]);
    if ran.code != 0 {
        return Err(format!("recover: {}", ran.err));
    }
    e2fsck_clean(image)
}

/// Counters over all faults.
#[derive(Default)]
struct Tally {
    /// Records whose fsync returned.
    acknowledged: u64,
    /// Reports of e2fsck on volumes that it had to correct.
    inconsistent: Vec<String>,
    /// Acknowledged records that were not there.
    lost: Vec<String>,
}

/// Mounts what is there, whatever has to be corrected before. True: nothing could be, so the volume
/// is a new one.
type Mount<'a> = dyn Fn(&mut Mounted) -> bool + 'a;

fn begin(m: &Mounted) {
    fs::create_dir(m.at("marks")).unwrap();
    File::open(m.at(".")).unwrap().sync_all().unwrap();
}

/// Writes, syncs and strikes, again and again on one volume.
fn strike(m: &mut Mounted, fault: &Fault, seed: u64, mount: &Mount, recover: Recover) -> Tally {
    let mut rng = Random::new(seed);
    let mut tally = Tally::default();
    mount(m);
    begin(m);
    let acked: [AtomicU64; FILES as usize] = Default::default();
    for nr in 0..faults() {
        let stop = AtomicBool::new(false);
        let pause = Duration::from_millis(5 + rng.below(150));
        std::thread::scope(|scope| {
            for nr in 0..FILES {
                let (m, stop, acked) = (&*m, &stop, &acked[nr as usize]);
                scope.spawn(move || work(m, nr, stop, acked));
            }
            std::thread::sleep(pause);
            fault.inject(m);
            stop.store(true, Ordering::Relaxed);
        });
        m.bury();
        if let Err(said) = fault.recoverable(m, recover) {
            tally.inconsistent.push(format!("seed {seed}, fault {nr}: {said}"));
        }
        if mount(m) {
            begin(m);
        }
        for (file, acked) in (0..).zip(&acked) {
            let count = acked.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            if let Err(said) = check(m, file, count) {
                tally.lost.push(format!("seed {seed}, fault {nr}: {said}"));
                tally.acknowledged += acked.swap(0, Ordering::Relaxed);
                let _ = fs::remove_file(m.at(format!("log-{file}")));
                continue;
            }
            // What was written but not acknowledged may be there: the next record goes behind what
            // was promised.
            let file = OpenOptions::new().write(true).open(m.at(format!("log-{file}")));
            file.unwrap().set_len(count * 512).unwrap();
        }
    }
    tally.acknowledged += acked.iter().map(|acked| acked.load(Ordering::Relaxed)).sum::<u64>();
    tally
}

fn faults() -> u64 {
    let wanted = std::env::var("SYNCLINE_FAULTS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(FAULTS)
}

/// Nothing that was acknowledged is lost, and e2fsck has nothing to correct.
fn survives(m: &mut Mounted, fault: &Fault, options: &str, seed: u64) {
    let mount = |m: &mut Mounted| {
        m.mount(options);
        false
    };
    let packed = options.contains("log=packed");
    let recover = if packed { by_syncline } else { e2fsck_preen };
    let tally = strike(m, fault, seed, &mount, recover);
    let said = [tally.inconsistent, tally.lost].concat();
    assert!(said.is_empty(), "{}", said.join("\n"));
    // A loaded machine may not even start to write before the first fault.
    println!("{} records acknowledged, {} faults, {options}", tally.acknowledged, faults());
}

fn killed_at_random_times(options: &str, seed: u64) {
    let mut m = Mounted::prepared(mkfs(&ImageSpec::with_size(64 << 20)), None);
    survives(&mut m, &Fault::Kill, options, seed);
    m.unmount_clean();
}

/// A volume on a served flash device.
fn on_flash() -> (Serving, Mounted) {
    let image = mkfs(&ImageSpec::with_size(64 << 20));
    let (serving, _) = Serving::start(&["--image", image.path().to_str().unwrap()]);
    let source = serving.flash();
    (serving, Mounted::prepared(image, Some(source)))
}

fn cut_at_random_times(options: &str, seed: u64) {
    let (serving, mut m) = on_flash();
    survives(&mut m, &Fault::Cut(&serving), options, seed);
    m.unmount_clean();
}

#[test]
fn a_killed_mount_keeps_every_acknowledged_fsync() {
    if require("a_killed_mount_keeps_every_acknowledged_fsync", &NEEDS) {
        killed_at_random_times("sync=ordered", 1);
    }
}

#[test]
fn a_killed_eager_mount_keeps_every_acknowledged_fsync() {
    if require("a_killed_eager_mount_keeps_every_acknowledged_fsync", &NEEDS) {
        killed_at_random_times("sync=eager", 2);
    }
}

#[test]
fn a_killed_packed_mount_keeps_every_acknowledged_fsync() {
    if require("a_killed_packed_mount_keeps_every_acknowledged_fsync", &NEEDS) {
        killed_at_random_times("sync=eager,log=packed", 5);
    }
}

#[test]
fn a_power_cut_keeps_every_acknowledged_fsync_packed() {
    if require("a_power_cut_keeps_every_acknowledged_fsync_packed", &CUT_NEEDS) {
        cut_at_random_times("sync=eager,log=packed", 6);
    }
}

#[test]
fn a_power_cut_keeps_every_acknowledged_fsync() {
    if require("a_power_cut_keeps_every_acknowledged_fsync", &CUT_NEEDS) {
        cut_at_random_times("sync=ordered", 3);
    }
}

#[test]
fn a_power_cut_keeps_every_acknowledged_fsync_eager() {
    if require("a_power_cut_keeps_every_acknowledged_fsync_eager", &CUT_NEEDS) {
        cut_at_random_times("sync=eager", 4);
    }
}

/// Not a test of ours: what the alternative does under the same faults, for the documents.
#[test]
#[ignore = "a comparison, part of `cargo xtask run mount-long`"]
fn the_same_faults_on_fuse2fs() {
    let name = "the_same_faults_on_fuse2fs";
    if !require(name, &CUT_NEEDS) {
        return;
    }
    if Command::new("fuse2fs").arg("--version").output().is_err() {
        return skip(name, "needs fuse2fs");
    }
    for kill in [true, false] {
        let (serving, mut m) = on_flash();
        let fault = if kill { Fault::Kill } else { Fault::Cut(&serving) };
        // It may refuse to mount even what `e2fsck -p` would mend without a question.
        let mount = |m: &mut Mounted| {
            let flash = serving.flash();
            let ran = |program: &str, flag: &str| {
                let done = Command::new(program).arg(flag).arg(&flash).output().unwrap();
                done.status.code().is_some_and(|code| code <= 1)
            };
            // A superblock torn in the middle has no copy on a volume of one group.
            let gone = !ran("e2fsck", "-fy") && !ran("e2fsck", "-fy");
            assert!(!gone || ran("mke2fs", "-Fq"), "a new volume");
            let mut command = Command::new("fuse2fs");
            command.args(["-f", "-o", "fakeroot"]);
            m.mount_by(command);
            gone
        };
        let tally = strike(&mut m, &fault, 5, &mount, e2fsck_preen);
        println!(
            "fuse2fs, {}: {} records acknowledged, {} faults, {} volumes inconsistent, {} files \
             with records lost",
            if kill { "killed" } else { "power cut" },
            tally.acknowledged,
            faults(),
            tally.inconsistent.len(),
            tally.lost.len()
        );
    }
}

/// Beside a killed server's mount, which still looks mounted, there is no second one.
#[test]
fn a_dead_mount_in_the_way_is_named() {
    if !require("a_dead_mount_in_the_way_is_named", &NEEDS) {
        return;
    }
    let mut m = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    m.kill_serving();
    let again = [OsStr::new("mount"), m.image.path().as_os_str(), m.dir.as_os_str()];
    let said = support::refused(1, &again);
    // By then the kernel may still show the directory as it remembers it.
    let dead = said.contains("is still there; run `syncline umount");
    assert!(dead || said.contains("already mounted on"), "{said}");
    m.bury();
    m.recoverable().unwrap();
}

/// The image is on a small tmpfs and sparse: once that is full, writes of the image fail.
#[test]
fn a_failing_device_gives_errors_and_can_be_unmounted() {
    let name = "a_failing_device_gives_errors_and_can_be_unmounted";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let small = support::scratch();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
        .arg(small.path())
        .status();
    assert!(mount.unwrap().success());
    let _unmount = Detach(small.path());
    let spec = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(128 << 20) };
    let (made, image) = (mkfs(&spec), small.path().join("image"));
    let copied = Command::new("cp").arg("--sparse=always").args([made.path(), &image]).status();
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
    assert!(syncline_device::mount_of(dir.path()).is_none(), "it is unmounted all the same");
}

struct Detach<'a>(&'a std::path::Path);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
