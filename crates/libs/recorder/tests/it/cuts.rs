//! Power cuts while events are recorded: on a file model of bytes, and on the eager volume.

use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, Kind, MemoryDevice, Origin, VirtualClock};
use syncline_fs::{MountOptions, Volume};
use syncline_recorder::format::{Header, file_name};
use syncline_recorder::{Config, Done, Job, RecorderError, Report, Result, Strategy};
use syncline_recorder::{VolumeStrategy, ring};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush, run,
};
use syncline_testkit::{ImageSpec, Need, mkfs, require};

use crate::support::{Files, Found, Kept, config, found, payload, volume_bytes};

const ORIGIN: Origin = Origin::new(Kind::Other, false);

fn states(usual: u64) -> u64 {
    let wanted = std::env::var("SYNCLINE_CRASH_STATES").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(usual)
}

fn only() -> Option<syncline_testkit::crash::StateId> {
    std::env::var("SYNCLINE_CRASH_STATE").ok().map(|id| id.parse().expect("an id of a state"))
}

/// Files as fixed regions of a device: a write is a write, a sync is a flush.
struct Regions {
    device: Arc<CrashDevice>,
    bytes: u64,
}

impl Regions {
    fn at(&self, event: u64) -> u64 {
        (event - 1) * self.bytes
    }
}

impl Strategy for Regions {
    fn begin(&self, event: u64) -> Result<()> {
        let fits = self.at(event + 1) <= self.device.geometry().size_bytes;
        if fits { Ok(()) } else { Err(RecorderError::io("begin", &"the device is full")) }
    }

    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        let written = self.device.write(self.at(event) + offset, slots, ORIGIN);
        written.map_err(|err| RecorderError::io("write", &err))
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        self.device.flush(ORIGIN).map_err(|err| RecorderError::io("flush", &err))?;
        match *job {
            Job::WriteBack { to, .. } => Ok(Done { durable_bytes: to }),
            Job::Finish { len_bytes, .. } => Ok(Done { durable_bytes: len_bytes }),
        }
    }
}

/// Records two events that overlap and marks what is reported durable.
fn record(config: &Config, strategy: &dyn Strategy, mark: &dyn Fn(u64), tick: &dyn Fn()) {
    let (mut producer, trigger, mut machine) = ring(config).unwrap();
    let mut kept = Kept::default();
    let mut told = 0;
    for n in 0..40 {
        if n == 12 || n == 20 {
            trigger.fire();
        }
        producer.push(n, &payload(n, record_len(n, config))).unwrap();
        machine.step(strategy, &mut kept);
        if n % 3 == 0 {
            kept.work(&mut machine, strategy);
            tick();
        }
        told = tell(&kept, told, mark);
    }
    kept.end(&mut machine, strategy);
    tell(&kept, told, mark);
    assert!(!kept.reports.iter().any(|r| matches!(r, Report::Failed { .. })), "{:?}", kept.reports);
}

fn record_len(n: u64, config: &Config) -> usize {
    (n as usize * 37) % (config.payload_bytes_max as usize + 1)
}

fn tell(kept: &Kept, told: usize, mark: &dyn Fn(u64)) -> usize {
    for report in &kept.reports[told..] {
        if let Report::Durable { event, records } = report {
            mark(event << 32 | records);
        }
    }
    kept.reports.len()
}

/// Records of event `event` that were reported durable before the cut.
fn durable(state: &CrashState, event: u64) -> usize {
    let marks = state.marks().iter().filter(|mark| **mark >> 32 == event);
    marks.map(|mark| (mark & 0xffff_ffff) as usize).max().unwrap_or(0)
}

/// First sequence of each event.
fn first(event: u64) -> u64 {
    if event == 1 { 4 } else { 12 }
}

fn judge_event(
    config: &Config,
    state: &CrashState,
    event: u64,
    found: &Found,
) -> std::result::Result<(), String> {
    for (sequence, bytes) in &found.records {
        if *bytes != payload(*sequence, record_len(*sequence, config)) {
            return Err(format!("event {event}, record {sequence} has other bytes"));
        }
    }
    let expected = first(event)..first(event) + durable(state, event) as u64;
    let there = |sequence: &u64| found.records.iter().any(|record| record.0 == *sequence);
    match expected.clone().find(|sequence| !there(sequence)) {
        Some(lost) => Err(format!("event {event}: {lost} of {expected:?} was durable and is lost")),
        None => Ok(()),
    }
}

fn small() -> Config {
    Config {
        payload_bytes_max: 1000,
        slot_align_bytes: 512,
        writeback_bytes: 4096,
        ..config(8, 10, 30)
    }
}

fn regions(faulty: FaultyFlush) -> (Config, Arc<CrashDevice>) {
    let config = small();
    let options = CrashOptions { faulty, ..CrashOptions::default() };
    let size = config.file_bytes_max() * 2;
    let device = Arc::new(CrashDevice::new(&MemoryDevice::new(size), options));
    let strategy = Regions { device: Arc::clone(&device), bytes: config.file_bytes_max() };
    record(&config, &strategy, &|mark| device.mark(mark), &|| {});
    (config, device)
}

/// Finds exactly the whole slots, counted here from the bytes alone.
fn judge_regions(config: &Config, state: &CrashState) -> std::result::Result<(), String> {
    for event in 1..=2 {
        let mut bytes = vec![0; config.file_bytes_max() as usize];
        let at = (event - 1) * config.file_bytes_max();
        state.image.read_at(at, &mut bytes).map_err(|err| err.to_string())?;
        let slots = bytes.chunks_exact(config.slot_bytes() as usize);
        let whole = slots.filter_map(Header::decode_slot).filter(|slot| !slot.0.is_end()).count();
        let found = found(&bytes);
        let records = found.as_ref().map_or(0, |found| found.records.len());
        if records != whole {
            return Err(format!("event {event}: {records} records found of {whole}"));
        }
        match found {
            Some(found) => judge_event(config, state, event, &found)?,
            None if durable(state, event) > 0 => return Err(format!("event {event} is gone")),
            None => {}
        }
    }
    Ok(())
}

#[test]
fn a_cut_loses_only_what_was_not_reported_durable() {
    let (config, device) = regions(FaultyFlush::None);
    let command = "cargo test -p syncline-recorder --test it a_cut_loses_only";
    let budget = Budget::new(states(2000), 1).with_only(only());
    let judge = |state: &CrashState| judge_regions(&config, state);
    let summary = run(&Explorer::new(device.log()), &budget, command, judge);
    let summary = summary.into_result().unwrap_or_else(|text| panic!("{text}"));
    println!("{summary}");
    assert!(summary.judged > 150 || budget.only.is_some(), "{summary}");
}

#[test]
fn a_device_that_drops_flushes_is_noticed() {
    let (config, device) = regions(FaultyFlush::EveryFlush);
    let summary = run(&Explorer::new(device.log()), &Budget::new(500, 1), "canary", |state| {
        judge_regions(&config, state)
    });
    assert!(!summary.failures.is_empty(), "{summary}");
}

fn mounted(device: Arc<dyn BlockDevice>) -> syncline_fs::Result<(Volume, Arc<VirtualClock>)> {
    let clock = Arc::new(VirtualClock::default());
    let options = MountOptions::parse("sync=eager,noatime,lazytime")?;
    Ok((Volume::mount(device, clock.clone(), options)?, clock))
}

fn judge_volume(config: &Config, state: &CrashState) -> std::result::Result<(), String> {
    let image: Arc<dyn BlockDevice> = Arc::new(state.image.snapshot());
    let (volume, _) = mounted(image).map_err(|err| err.to_string())?;
    for event in 1..=2 {
        let bytes = volume_bytes(&volume, &file_name(config.recorder, event));
        match bytes.and_then(|bytes| found(&bytes)) {
            Some(found) => judge_event(config, state, event, &found)?,
            None if durable(state, event) > 0 => return Err(format!("event {event} is gone")),
            None => {}
        }
    }
    Ok(())
}

#[test]
fn a_cut_of_the_eager_volume_keeps_what_was_reported_durable() {
    let test = "a_cut_of_the_eager_volume_keeps_what_was_reported_durable";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let config = small();
    let image = mkfs(&ImageSpec {
        size_bytes: 16 << 20,
        journal_size_mib: Some(4),
        ..ImageSpec::default()
    });
    let base = MemoryDevice::from_bytes(&image.bytes());
    let device = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
    let (volume, clock) = mounted(device.clone()).unwrap();
    let strategy = VolumeStrategy::new(Files(volume), config.recorder, config.file_bytes_max());
    record(&config, &strategy, &|mark| device.mark(mark), &|| {
        clock.sleep_until(clock.now_ns() + 700_000_000);
        strategy.volume().0.tick(clock.now_ns()).unwrap();
    });
    let command = format!("cargo test -p syncline-recorder --test it {test}");
    let budget = Budget::new(states(250), 1).with_only(only());
    let judge = |state: &CrashState| judge_volume(&config, state);
    let summary = run(&Explorer::new(device.log()), &budget, &command, judge);
    let summary = summary.into_result().unwrap_or_else(|text| panic!("{text}"));
    println!("{summary}");
    assert!(summary.judged > 50 || budget.only.is_some(), "{summary}");
}
