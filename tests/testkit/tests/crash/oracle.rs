//! A toy write-ahead log as the subject: the honest one passes, every broken one is caught.
//!
//! Two sectors (0 and 1) must always hold the same number. An update writes both into the log
//! (sectors 10 and 11), flushes, commits (sector 12), flushes, acknowledges with a mark, writes in
//! place, flushes, clears the commit, flushes.

use std::sync::Arc;
use std::time::Instant;

use syncline_device::{
    BlockDevice, DeviceError, FailingDevice, Fault, FaultPlan, FileMirror, Kind, MemoryDevice,
    OpClass, Origin, Plug,
};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush, Summary, run, run_nested,
};

const LOG: Origin = Origin::new(Kind::Journal, true);
const COMMAND: &str = "cargo test -p syncline-testkit --test it oracle::";

fn write(device: &dyn BlockDevice, sector: u64, value: u8) -> Result<(), DeviceError> {
    device.write(sector * 512, &[value; 512], LOG)
}

fn pair(device: &dyn BlockDevice, sector: u64, value: u8) -> Result<(), DeviceError> {
    let content = [value; 512];
    let mut plug = Plug::new();
    // Different kinds keep the two apart, so that they can be reordered as requests.
    plug.write(sector * 512, &content, LOG);
    plug.write((sector + 1) * 512, &content, Origin::new(Kind::Metadata, true));
    plug.submit(device)
}

fn read(device: &dyn BlockDevice, sector: u64) -> u8 {
    let mut content = [0; 512];
    device.read(sector * 512, &mut content, LOG).unwrap();
    content[0]
}

fn update(device: &dyn BlockDevice, value: u8, mark: &dyn Fn(u64)) -> Result<(), DeviceError> {
    pair(device, 10, value)?;
    device.flush(LOG)?;
    write(device, 12, value)?;
    device.flush(LOG)?;
    mark(u64::from(value));
    pair(device, 0, value)?;
    device.flush(LOG)?;
    write(device, 12, 0)?;
    device.flush(LOG)
}

fn recover(device: &dyn BlockDevice, flush_before_clear: bool) -> Result<(), DeviceError> {
    if read(device, 12) != 0 {
        for sector in 0..2 {
            let value = read(device, 10 + sector);
            write(device, sector, value)?;
        }
        if flush_before_clear {
            device.flush(LOG)?;
        }
        write(device, 12, 0)?;
        device.flush(LOG)?;
    }
    Ok(())
}

fn judge(state: &CrashState) -> Result<(), String> {
    recover(&state.image, true).map_err(|e| e.to_string())?;
    let (a, b) = (read(&state.image, 0), read(&state.image, 1));
    let acknowledged = state.marks().last().copied().unwrap_or(0);
    if a != b {
        return Err(format!("half an update: {a} and {b}"));
    }
    if u64::from(a) < acknowledged {
        return Err(format!("{acknowledged} was acknowledged, {a} is there"));
    }
    Ok(())
}

fn workload(faulty: FaultyFlush) -> Explorer {
    let options = CrashOptions { faulty, ..CrashOptions::default() };
    let device = CrashDevice::new(&MemoryDevice::new(65536), options);
    for value in 1..=3 {
        update(&device, value, &|mark| device.mark(mark)).unwrap();
    }
    Explorer::new(device.log())
}

fn explore(explorer: &Explorer) -> Summary {
    run(explorer, &Budget::new(u64::MAX, 1), COMMAND, judge)
}

#[test]
fn the_honest_device_passes() {
    let summary = explore(&workload(FaultyFlush::None)).into_result().unwrap();
    assert!(summary.judged > 20, "{summary}");
    println!("{summary}");
}

#[test]
fn every_dropped_flush_is_caught_and_its_command_reruns_it() {
    for k in 1..=11 {
        let explorer = workload(FaultyFlush::Flush(k));
        let summary = explore(&explorer);
        let failure = summary.failures.first().unwrap_or_else(|| panic!("flush {k} not missed"));
        assert_eq!(failure.rerun, format!("SYNCLINE_CRASH_STATE={} {COMMAND}", failure.id));
        let only = failure.id.to_string().parse().unwrap();
        let again = run(&explorer, &Budget::new(1, 0).with_only(Some(only)), COMMAND, judge);
        assert_eq!(again.failures, summary.failures);
        assert_eq!(again.judged, 1);
        assert!(again.into_result().unwrap_err().contains("rerun: SYNCLINE_CRASH_STATE="));
    }
    assert!(explore(&workload(FaultyFlush::EveryFlush)).into_result().is_err());
}

#[test]
fn a_flush_that_a_layer_above_swallows_is_caught() {
    let crash = Arc::new(CrashDevice::new(&MemoryDevice::new(65536), CrashOptions::default()));
    let device = FailingDevice::new(crash.clone());
    device.arm(FaultPlan {
        class: OpClass::Flush,
        at: 5,
        persistent: false,
        fault: Fault::FaultyFlush,
    });
    for value in 1..=3 {
        update(&device, value, &|mark| crash.mark(mark)).unwrap();
    }
    assert_eq!(device.hits(), 1);
    assert!(explore(&Explorer::new(crash.log())).into_result().is_err());
}

#[test]
fn fua_that_lies_is_caught() {
    for (faulty, caught) in [(FaultyFlush::None, false), (FaultyFlush::Fua, true)] {
        let options = CrashOptions { faulty, ..CrashOptions::default() };
        let device = CrashDevice::new(&MemoryDevice::new(65536), options);
        device.write_durable(0, &[1; 512], LOG).unwrap();
        device.mark(1);
        let judge = |state: &CrashState| match (state.marks(), read(&state.image, 0)) {
            ([1], 0) => Err("lost".to_string()),
            _ => Ok(()),
        };
        let summary = run(&Explorer::new(device.log()), &Budget::new(100, 1), COMMAND, judge);
        assert_eq!(!summary.failures.is_empty(), caught);
    }
}

#[test]
fn cuts_within_recovery_are_explored() {
    let explorer = workload(FaultyFlush::None);
    let everything = Budget::new(u64::MAX, 1);
    let nested = |good: bool, budget: &Budget| {
        let recover = |d: Arc<CrashDevice>| recover(&d, good).map_err(|e| e.to_string());
        run_nested(&explorer, budget, &everything, COMMAND, recover, judge)
    };
    let summary = nested(true, &everything).into_result().unwrap();
    let outer = summary.exploration.distinct;
    assert!(summary.judged > outer * 2, "{summary}");
    let broken = nested(false, &everything);
    let failure = broken.failures.first().expect("a missing flush in recovery goes unseen");
    assert!(failure.id.inner.is_some(), "{failure}");
    let only = failure.id.to_string().parse().unwrap();
    let again = nested(false, &everything.clone().with_only(Some(only)));
    assert_eq!(again.failures, broken.failures);
    let missing = "1:500:c0".parse().unwrap();
    assert!(nested(true, &everything.clone().with_only(Some(missing))).into_result().is_err());
}

/// `cargo test -p syncline-testkit --release --test it oracle:: -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let base = MemoryDevice::new(64 << 20);
    base.write_at(0, &vec![7; 8 << 20]).unwrap();
    let device = CrashDevice::new(&base, CrashOptions::default());
    for i in 0..2000u64 {
        let at = (i * 7919) % 16000 * 4096;
        device.write(at, &[i as u8; 4096], LOG).unwrap();
        if i % 4 == 3 {
            device.flush(LOG).unwrap();
            device.mark(i);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut mirror = FileMirror::create(&dir.path().join("image"), &base).unwrap();
    let explorer = Explorer::new(device.log());
    for mirrored in [false, true] {
        let start = Instant::now();
        let budget = Budget::new(20_000, 1);
        let mut bytes = 0;
        let summary = run(&explorer, &budget, COMMAND, |state| {
            if mirrored {
                bytes += mirror.update(&state.image).map_err(|e| e.to_string())?;
            }
            Ok(())
        });
        let rate = summary.judged as f64 / start.elapsed().as_secs_f64();
        println!("mirrored {mirrored}: {summary}: {rate:.0} states/s, {bytes} bytes");
    }
}
