//! The k-th write, flush or read below fails: nothing is acknowledged after it that is not there.

use std::sync::Arc;
use std::time::Duration;

use syncline_buffer::{Buffer, LogArea};
use syncline_device::{BlockDevice, FailingDevice, Fault, FaultPlan, MemoryDevice, OpClass};

use crate::common::{CONFIGS, Config, SECTOR, STRICT, content, versions};

const SECTORS: u64 = 96 * 8;
const HOME: u64 = SECTORS * SECTOR as u64;

struct Outcome {
    /// Lowest version of each sector that was acknowledged.
    acknowledged: Vec<u64>,
    failed: bool,
}

/// Writes and flushes that log, clean and overtake; stops at the first error.
fn workload(buffer: &Buffer) -> Outcome {
    let mut newest = vec![0; SECTORS as usize];
    let mut acknowledged = newest.clone();
    for version in 1..140_u64 {
        let (page, pages) = if version % 11 == 0 { (20, 16) } else { (version * 29 % 96, 1) };
        let sectors = page * 8..(page + pages) * 8;
        let bytes: Vec<u8> = sectors.clone().flat_map(|sector| content(sector, version)).collect();
        let written = buffer.write(page * 4096, &bytes, STRICT);
        let done = written.and_then(|()| {
            sectors.for_each(|sector| newest[sector as usize] = version);
            if version % 3 == 0 { buffer.flush(STRICT) } else { Ok(()) }
        });
        if done.is_err() {
            return Outcome { acknowledged, failed: true };
        }
        if version % 3 == 0 {
            acknowledged.clone_from(&newest);
        }
    }
    Outcome { acknowledged, failed: false }
}

fn one(config: Config, plan: FaultPlan) -> bool {
    let memory = Arc::new(MemoryDevice::new(config.total_bytes(HOME)));
    let good: Arc<dyn BlockDevice> = memory.clone();
    config.format(&good, HOME);
    let failing = Arc::new(FailingDevice::new(memory));
    let device: Arc<dyn BlockDevice> = failing.clone();
    let buffer = config.open(&device, HOME).unwrap();
    failing.arm(plan);
    let outcome = workload(&buffer);
    if !outcome.failed {
        return false;
    }
    failing.disarm();
    assert!(buffer.flush(STRICT).is_err(), "{plan:?}: a flush succeeds after an error");
    assert!(buffer.write(0, &[0; 4096], STRICT).is_err(), "{plan:?}");
    assert!(buffer.tick(Duration::from_secs(100)).is_err(), "{plan:?}");
    assert!(buffer.drain().is_err(), "{plan:?}");
    assert!(buffer.status().latched);
    versions(&buffer, SECTORS).expect("reads go on");
    drop(buffer);
    let buffer = config.open(&good, HOME).unwrap();
    let found = versions(&buffer, SECTORS).unwrap();
    for (sector, (found, low)) in found.iter().zip(&outcome.acknowledged).enumerate() {
        assert!(found >= low, "{plan:?}: sector {sector} is {found}, {low} was flushed");
    }
    true
}

#[test]
fn every_operation_below_fails_once() {
    for config in CONFIGS {
        for class in [OpClass::Write, OpClass::Flush] {
            let mut failures = 0;
            for at in 1.. {
                if !one(config, FaultPlan::once(class, at)) {
                    break;
                }
                failures += 1;
            }
            assert!(failures > 10, "{config:?} {class:?}: {failures}");
        }
        let short = Fault::Short { sectors: 3 };
        for at in [1, 5, 20] {
            let plan = FaultPlan { class: OpClass::Write, at, persistent: true, fault: short };
            assert!(one(config, plan), "{plan:?}");
        }
    }
}

#[test]
fn a_read_that_fails_is_that_readers_error() {
    let config = CONFIGS[2];
    let memory = Arc::new(MemoryDevice::new(config.total_bytes(HOME)));
    let device: Arc<dyn BlockDevice> = Arc::new(FailingDevice::new(memory));
    config.format(&device, HOME);
    let failing = Arc::new(FailingDevice::new(device));
    let below: Arc<dyn BlockDevice> = failing.clone();
    let buffer = config.open(&below, HOME).unwrap();
    let outcome = workload(&buffer);
    assert!(!outcome.failed);
    failing.arm(FaultPlan::from_then_on(OpClass::Read, 1));
    assert!(versions(&buffer, SECTORS).is_err());
    failing.disarm();
    buffer.flush(STRICT).unwrap();
    assert!(versions(&buffer, SECTORS).is_ok());
}

#[test]
fn a_damaged_page_of_the_log_is_an_error_and_damage_within_it_is_found() {
    let config = CONFIGS[2];
    let memory = Arc::new(MemoryDevice::new(config.total_bytes(HOME)));
    let device: Arc<dyn BlockDevice> = memory.clone();
    config.format(&device, HOME);
    let buffer = config.open(&device, HOME).unwrap();
    for page in [2, 5, 8] {
        buffer.write_durable(page * 4096, &content(page * 8, 1).repeat(8), STRICT).unwrap();
    }
    // The second of three batches, each of which was durable.
    memory.write_at(HOME + 3 * 4096 + 2000, b"?").unwrap();
    let error = buffer.read(5 * 4096, &mut [0; 4096], STRICT).unwrap_err().to_string();
    assert!(error.contains("fails its checksum"), "{error}");
    buffer.read(8 * 4096, &mut [0; 4096], STRICT).unwrap();
    drop(buffer);
    let error = config.open(&device, HOME).err().unwrap().to_string();
    assert!(error.contains("damaged at page 3: it was durable"), "{error}");
    // Two broken superblocks are damage; one is the tear of a cut.
    let copy = Arc::new(memory.snapshot());
    memory.write_at(HOME + 30, b"?").unwrap();
    memory.write_at(HOME + 4096 + 30, b"?").unwrap();
    let error = config.open(&device, HOME).err().unwrap().to_string();
    assert!(error.contains("no superblock"), "{error}");
    copy.write_at(HOME + 3 * 4096, &[0; 4096]).unwrap();
    copy.write_at(HOME + 4 * 4096, &[0; 4096]).unwrap();
    copy.write_at(HOME + 4096 + 30, b"?").unwrap();
    let copy: Arc<dyn BlockDevice> = copy;
    config.open(&copy, HOME).unwrap();
}

#[test]
fn a_log_on_another_device_is_flushed_as_well() {
    let home = Arc::new(MemoryDevice::new(HOME));
    let failing = Arc::new(FailingDevice::new(
        MemoryDevice::new(100 * 4096).with_geometry(|geometry| geometry.fua = false),
    ));
    let area = LogArea { device: failing.clone(), same_medium: false };
    Buffer::create_log(&area, HOME, [1; 16], false).unwrap();
    let options = CONFIGS[2].options();
    let buffer = Buffer::open(home.clone(), Some(area.clone()), options.clone()).unwrap();
    buffer.write(0, &content(0, 1).repeat(8), STRICT).unwrap();
    let before = failing.counts();
    buffer.flush(STRICT).unwrap();
    let after = failing.counts();
    assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 1));
    failing.arm(FaultPlan::once(OpClass::Flush, 1));
    buffer.write(4096, &content(8, 1).repeat(8), STRICT).unwrap();
    assert!(buffer.flush(STRICT).is_err());
    drop(buffer);
    let buffer = Buffer::open(home, Some(area), options).unwrap();
    assert_eq!(buffer.status().recovered_pages, 2);
}

/// Pages between two that are cleaned are written with them. One that cannot be read is not.
#[test]
fn a_gap_that_cannot_be_read_stays() {
    for fails in [false, true] {
        let home = Arc::new(FailingDevice::new(MemoryDevice::new(HOME)));
        let area = LogArea { device: Arc::new(MemoryDevice::new(100 * 4096)), same_medium: false };
        Buffer::create_log(&area, HOME, [1; 16], false).unwrap();
        let buffer = Buffer::open(home.clone(), Some(area), CONFIGS[2].options()).unwrap();
        for page in [10, 12] {
            let bytes: Vec<u8> = (page * 8..page * 8 + 8).flat_map(|at| content(at, 1)).collect();
            buffer.write(page * 4096, &bytes, STRICT).unwrap();
        }
        buffer.flush(STRICT).unwrap();
        let before = home.counts();
        if fails {
            home.arm(FaultPlan::once(OpClass::Read, 1));
        }
        buffer.drain().unwrap();
        let after = home.counts();
        assert_eq!(after.writes - before.writes, if fails { 2 } else { 1 });
        let found = versions(&*home, SECTORS).unwrap();
        let written = |page: u64| page == 10 || page == 12;
        assert!((0..SECTORS).all(|at| found[at as usize] == u64::from(written(at / 8))));
    }
}
