//! Memory stays within `cache=` plus 64 MiB while a file of 4 GiB goes in and comes out again.
//!
//! Measured as the system sees it: the largest resident size of a process that runs nothing but
//! this test, so the test starts its program again for itself. The device keeps metadata only, so
//! that its own memory does not hide ours.

use std::process::Command;
use std::sync::Arc;

use syncline_device::{
    BlockDevice, DeviceError, Geometry, Kind, MemoryDevice, Op, Request, VirtualClock,
};
use syncline_fs::{Create, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Need};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 4096 * MIB;
const CACHE_BYTES: u64 = 64 * MIB;
const SLACK_BYTES: u64 = 64 * MIB;
/// Variable that tells the process started for the test from the one of all tests.
const ALONE: &str = "SYNCLINE_TEST_ALONE";

/// Stores metadata; file data is forgotten, and read as zeros.
struct Forgetful(MemoryDevice);

impl BlockDevice for Forgetful {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch {
            match (&mut request.op, request.origin.kind) {
                (Op::Read { into }, Kind::Data { .. }) => {
                    into.iter_mut().for_each(|part| part.fill(0));
                }
                (Op::Write { .. }, Kind::Data { .. }) => {}
                _ => self.0.submit(std::slice::from_mut(request))?,
            }
        }
        Ok(())
    }
}

/// A size of this process in bytes, by its name in `/proc/self/status`.
fn process_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[test]
fn a_large_copy_stays_within_the_cache() {
    const NAME: &str = "a_large_copy_stays_within_the_cache";
    if !syncline_testkit::require(NAME, &[Need::E2fsck]) {
        return;
    }
    if process_bytes("VmHWM").is_none() {
        return syncline_testkit::skip(NAME, "needs VmHWM in /proc/self/status");
    }
    if std::env::var_os(ALONE).is_none() {
        let program = std::env::current_exe().expect("Linux names the program");
        let test = format!("memory::{NAME}");
        let mut alone = Command::new(program);
        alone.args([&test, "--exact", "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().expect("the test starts").success());
        return;
    }
    let spec = ImageSpec {
        inode_count: Some(1024),
        journal_size_mib: Some(8),
        ..ImageSpec::with_size(FILE_BYTES + 256 * MIB)
    };
    let image = syncline_testkit::mkfs(&spec);
    let device = Arc::new(Forgetful(MemoryDevice::load(image.path()).unwrap()));
    let options = MountOptions::default().with(|options| options.cache_bytes = CACHE_BYTES);
    let clock = Arc::new(VirtualClock::default());
    let volume = Volume::mount(device.clone(), clock, options).unwrap();
    let file = volume.create(&volume.root().unwrap(), b"large", &Create::default()).unwrap();
    let mut piece = vec![0; MIB as usize];
    for offset in (0..FILE_BYTES).step_by(MIB as usize) {
        assert_eq!(volume.write(&file, offset, &piece).unwrap(), piece.len());
    }
    volume.fsync(&file, false).unwrap();
    for offset in (0..FILE_BYTES).step_by(MIB as usize) {
        assert_eq!(volume.read(&file, offset, &mut piece).unwrap(), piece.len());
    }
    let peak = process_bytes("VmHWM").unwrap();
    let limit = CACHE_BYTES + SLACK_BYTES + device.0.allocated_bytes();
    let stats = volume.cache_stats();
    println!("peak {} of {} MiB, {stats:?}", peak / MIB, limit / MIB);
    assert!(stats.pages_evicted > 0, "the file is larger than the cache: {stats:?}");
    assert!(peak <= limit, "{} MiB resident, {} MiB allowed", peak / MIB, limit / MIB);
    drop(file);
    volume.unmount().unwrap();
}
