//! Cuts at every point of workloads that log, clean, wrap and overtake, and within recovery.
//!
//! Oracle, for each sector: what is there is a version that was written to it; not older than what
//! a flush acknowledged (strict sectors); after a recovery it does not change but by later writes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syncline_buffer::{Buffer, BufferOptions};
use syncline_device::{BlockDevice, MemoryDevice, Op, Request};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, ExploreOptions, Explorer, FaultyFlush, StateId, Summary,
    run, run_nested,
};

use crate::common::{CONFIGS, Config, RELAXED, SECTOR, STRICT, content, versions};

const PAGES: u64 = 96;
const SECTORS: u64 = PAGES * 8;
const HOME: u64 = SECTORS * SECTOR as u64;
/// Files of relaxed data lie here.
const RELAXED_FROM: u64 = 72 * 8;
/// States per configuration in a plain run.
const STATES: u64 = 1000;
/// Versions written after a first crash.
const LATER: u64 = 1 << 24;

fn states(configurations: u64) -> u64 {
    let long = std::env::var("SYNCLINE_CRASH_STATES").ok().and_then(|n| n.trim().parse().ok());
    long.map_or(STATES, |all: u64| all.div_ceil(configurations))
}

fn only() -> Option<StateId> {
    let text = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(text.parse().expect("SYNCLINE_CRASH_STATE holds a state id from a failure report"))
}

/// Writes so far, and those of them that were acknowledged as durable.
#[derive(Default)]
struct History {
    version: u64,
    newest: Vec<u64>,
    /// Versions that each sector ever had; zero stands for discarded too.
    known: Vec<BTreeSet<u64>>,
    /// By mark: the lowest version of each sector. A discarded sector has no lowest.
    acknowledged: Vec<Vec<u64>>,
    /// For each sector how many marks there were when it was discarded last.
    discarded: Vec<usize>,
}

impl History {
    fn new() -> History {
        let known = vec![BTreeSet::from([0]); SECTORS as usize];
        let (newest, discarded) = (vec![0; SECTORS as usize], vec![0; SECTORS as usize]);
        History { newest, known, discarded, ..History::default() }
    }

    fn check(&self, marks: &[u64], found: &[u64]) -> Result<(), String> {
        let lowest = marks.last().map(|&mark| &self.acknowledged[mark as usize]);
        for (sector, &version) in found.iter().enumerate() {
            if !self.known[sector].contains(&version) {
                return Err(format!("sector {sector} has version {version}, never written to it"));
            }
            let low = lowest.map_or(0, |lowest| lowest[sector]);
            let discarded = version == 0 && self.discarded[sector] > marks.len().saturating_sub(1);
            if (sector as u64) < RELAXED_FROM && version < low && !discarded {
                let what = format!("sector {sector} has version {version}, {low} was flushed");
                return Err(what);
            }
        }
        Ok(())
    }
}

struct Workload<'a> {
    config: Config,
    /// Sizes and parts change on the way.
    switching: bool,
    device: Arc<CrashDevice>,
    buffer: &'a Buffer,
    history: History,
    rng: ChaCha8Rng,
}

impl Workload<'_> {
    fn write(&mut self, at: u64, len: u64, fua: bool) {
        let len = len.min(SECTORS - at);
        self.history.version += 1;
        let version = self.history.version;
        let bytes: Vec<u8> = (at..at + len).flat_map(|sector| content(sector, version)).collect();
        for sector in at..at + len {
            self.history.newest[sector as usize] = version;
            self.history.known[sector as usize].insert(version);
        }
        let origin = if at >= RELAXED_FROM { RELAXED } else { STRICT };
        let op = Op::Write { from: vec![&bytes], fua };
        let offset_bytes = at * SECTOR as u64;
        self.buffer.submit(&mut [Request { offset_bytes, op, origin }]).unwrap();
        if fua {
            self.acknowledge();
        }
    }

    fn discard(&mut self, page: u64, pages: u64) {
        let pages = pages.min(RELAXED_FROM / 8 - page);
        self.buffer.discard(page * 4096, pages * 4096, STRICT).unwrap();
        for sector in page * 8..(page + pages) * 8 {
            // Undefined until it is written again: nothing of it is promised.
            self.history.newest[sector as usize] = 0;
            self.history.discarded[sector as usize] = self.history.acknowledged.len();
        }
    }

    fn acknowledge(&mut self) {
        let mark = self.history.acknowledged.len() as u64;
        self.history.acknowledged.push(self.history.newest.clone());
        self.device.mark(mark);
    }

    fn flush(&mut self) {
        self.buffer.flush(STRICT).unwrap();
        self.acknowledge();
    }

    /// Another size of RAM, threshold and limit of relaxed data, and the log on or off.
    fn switch(&mut self) {
        let options = self.config.options();
        let one_of = |rng: &mut ChaCha8Rng, most: u64| [0, most / 4, most][rng.random_range(0..3)];
        let options = BufferOptions {
            ram_bytes: one_of(&mut self.rng, options.ram_bytes),
            relaxed_bytes_max: one_of(&mut self.rng, options.relaxed_bytes_max),
            threshold_bytes: 4096 << self.rng.random_range(0..5),
            // Mostly on, so that the ring goes on wrapping.
            log_writes: self.rng.random_range(0..4) > 0,
            ..options
        };
        self.buffer.configure(options).unwrap();
    }

    /// Random operations; small pages lie close together, so that they are logged again.
    fn run(&mut self, rounds: u64) {
        for round in 0..rounds {
            for _ in 0..self.rng.random_range(1..4) {
                let page = self.rng.random_range(0..PAGES);
                match self.rng.random_range(0..20) {
                    0..12 => self.write(page * 8, 8, false),
                    12..15 => {
                        let at = page * 8 + self.rng.random_range(0..8);
                        let len = self.rng.random_range(1..12);
                        let end = if at < RELAXED_FROM { RELAXED_FROM } else { SECTORS };
                        self.write(at, len.min(end - at), false);
                    }
                    15..17 => {
                        let page = page % (RELAXED_FROM / 8 - 20);
                        let pages = self.rng.random_range(8..20);
                        self.write(page * 8, 8 * pages, false);
                    }
                    17 => {
                        let pages = self.rng.random_range(1..9);
                        self.discard(page % (RELAXED_FROM / 8), pages);
                    }
                    18 => self.write(page % (RELAXED_FROM / 8) * 8, 8, true),
                    _ => {
                        // Idle for a step.
                        self.buffer.tick(Duration::from_secs(round * 10)).unwrap();
                        self.buffer.tick(Duration::from_secs(round * 10 + 5)).unwrap();
                    }
                }
            }
            if self.switching && self.rng.random_range(0..3) == 0 {
                self.switch();
            }
            if self.rng.random_range(0..3) > 0 {
                self.flush();
            }
        }
    }
}

fn base(config: Config) -> MemoryDevice {
    let memory = Arc::new(MemoryDevice::new(config.total_bytes(HOME)));
    let device: Arc<dyn BlockDevice> = memory.clone();
    config.format(&device, HOME);
    memory.snapshot()
}

fn recorded(config: Config, seed: u64, rounds: u64, options: CrashOptions) -> (Explorer, History) {
    recorded_as(config, seed, rounds, options, false)
}

fn recorded_as(
    config: Config,
    seed: u64,
    rounds: u64,
    options: CrashOptions,
    switching: bool,
) -> (Explorer, History) {
    let device = Arc::new(CrashDevice::new(&base(config), options));
    let below: Arc<dyn BlockDevice> = device.clone();
    let buffer = config.open(&below, HOME).unwrap();
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let history = History::new();
    let mut work =
        Workload { config, switching, device: device.clone(), buffer: &buffer, history, rng };
    work.run(rounds);
    let history = work.history;
    let status = buffer.status();
    if config.log_pages > 0 {
        assert!(status.sweeps > 1, "the ring has to wrap: {status:?}");
    }
    let options = ExploreOptions { samples: 6, ..ExploreOptions::default() };
    (Explorer::with_options(device.log(), options), history)
}

fn opened(config: Config, image: &MemoryDevice) -> Result<(Arc<dyn BlockDevice>, Buffer), String> {
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let buffer = config.open(&device, HOME).map_err(|e| e.to_string())?;
    Ok((device, buffer))
}

fn judge(
    config: Config,
    history: &History,
    marks: &[u64],
    image: &MemoryDevice,
) -> Result<(), String> {
    let (device, buffer) = opened(config, image)?;
    let found = versions(&buffer, SECTORS)?;
    history.check(marks, &found)?;
    drop(buffer);
    let buffer = config.open(&device, HOME).map_err(|e| e.to_string())?;
    if versions(&buffer, SECTORS)? != found {
        return Err("recovering twice differs".to_owned());
    }
    buffer.drain().map_err(|e| e.to_string())?;
    if versions(&device, SECTORS)? != found {
        return Err("the drained device differs".to_owned());
    }
    Ok(())
}

fn passes(summary: Summary) {
    println!("{summary}");
    if let Err(text) = summary.into_result() {
        panic!("{text}");
    }
}

fn command(name: &str) -> String {
    format!("cargo test -p syncline-buffer --test it {name}")
}

/// Rounds that wrap the ring of the configuration a few times.
fn rounds(config: Config) -> u64 {
    config.log_pages.max(80)
}

fn cuts(name: &str, config: Config, options: CrashOptions) {
    let (explorer, history) = recorded(config, 7, rounds(config), options);
    let budget = Budget::new(states(9), 1).with_only(only());
    passes(run(&explorer, &budget, &command(name), |state| {
        judge(config, &history, state.marks(), &state.image)
    }));
}

/// Sizes and parts of the buffer change while it works; the cut is judged with all of them on.
#[test]
fn cuts_while_parts_are_switched() {
    let config = CONFIGS[2];
    let (explorer, history) =
        recorded_as(config, 17, 3 * rounds(config), CrashOptions::default(), true);
    let budget = Budget::new(states(9), 1).with_only(only());
    passes(run(&explorer, &budget, &command("cuts_while_parts_are_switched"), |state| {
        judge(config, &history, state.marks(), &state.image)
    }));
}

#[test]
fn cuts_with_the_log_alone() {
    cuts("cuts_with_the_log_alone", CONFIGS[0], CrashOptions::default());
}

#[test]
fn cuts_with_ram_alone() {
    cuts("cuts_with_ram_alone", CONFIGS[1], CrashOptions::default());
}

#[test]
fn cuts_with_ram_and_log() {
    cuts("cuts_with_ram_and_log", CONFIGS[2], CrashOptions::default());
}

#[test]
fn cuts_with_a_large_ram() {
    cuts("cuts_with_a_large_ram", CONFIGS[3], CrashOptions::default());
}

#[test]
fn cuts_on_a_device_without_fua() {
    let options = CrashOptions { fua: false, ..CrashOptions::default() };
    cuts("cuts_on_a_device_without_fua", CONFIGS[2], options);
}

/// A first crash, a recovery, more writes, a second crash: nothing that the first recovery did not
/// show comes back, and nothing it showed goes away.
fn two_crashes(name: &str, config: Config) {
    let (explorer, history) = recorded(config, 11, rounds(config), CrashOptions::default());
    let shown: RefCell<Vec<u64>> = RefCell::default();
    let known = RefCell::new(history.known.clone());
    let budget = Budget::new(states(9).div_ceil(12), 3).with_only(only());
    let inner = Budget::new(12, 5);
    let recover = |device: Arc<CrashDevice>| {
        let below: Arc<dyn BlockDevice> = device.clone();
        let buffer = config.open(&below, HOME).map_err(|e| e.to_string())?;
        let found = versions(&buffer, SECTORS)?;
        shown.replace(found);
        // Fewer pages than a torn batch may have left.
        for (index, page) in [3, 40, 41, 17].into_iter().enumerate() {
            let version = LATER + index as u64;
            let bytes: Vec<u8> =
                (page * 8..page * 8 + 8).flat_map(|sector| content(sector, version)).collect();
            for sector in page * 8..page * 8 + 8 {
                known.borrow_mut()[sector as usize].insert(version);
            }
            buffer.write(page * 4096, &bytes, STRICT).map_err(|e| e.to_string())?;
            if index != 1 {
                buffer.flush(STRICT).map_err(|e| e.to_string())?;
                device.mark(LATER + index as u64);
            }
        }
        Ok(())
    };
    let summary = run_nested(&explorer, &budget, &inner, &command(name), recover, |state| {
        let (_, buffer) = opened(config, &state.image)?;
        let found = versions(&buffer, SECTORS)?;
        let last = state.marks().last().copied().filter(|&mark| mark >= LATER);
        for (sector, (&now, &before)) in found.iter().zip(&*shown.borrow()).enumerate() {
            let page = sector as u64 / 8;
            let written = [3, 40, 41, 17].iter().position(|&p| p == page);
            let written = written.map(|index| LATER + index as u64);
            let acknowledged = written.is_some_and(|version| last.is_some_and(|l| version <= l));
            let legal = now == before && !acknowledged || Some(now) == written;
            if !legal {
                return Err(format!("sector {sector} is {now}, it was {before}; {last:?}"));
            }
        }
        Ok(())
    });
    passes(summary);
}

#[test]
fn two_crashes_with_the_log_alone() {
    two_crashes("two_crashes_with_the_log_alone", CONFIGS[0]);
}

#[test]
fn two_crashes_with_ram_and_log() {
    two_crashes("two_crashes_with_ram_and_log", CONFIGS[2]);
}

/// Recovery, drain and its end are cut as well.
#[test]
fn cuts_within_recovery_and_drain() {
    let config = CONFIGS[2];
    let (explorer, history) = recorded(config, 13, rounds(config), CrashOptions::default());
    let budget = Budget::new(states(9).div_ceil(12), 3).with_only(only());
    let recover = |device: Arc<CrashDevice>| {
        let below: Arc<dyn BlockDevice> = device;
        let buffer = config.open(&below, HOME).map_err(|e| e.to_string())?;
        buffer.drain().map_err(|e| e.to_string())
    };
    let name = command("cuts_within_recovery_and_drain");
    passes(run_nested(&explorer, &budget, &Budget::new(12, 1), &name, recover, |state| {
        judge(config, &history, state.marks(), &state.image)
    }));
}

#[test]
fn a_device_that_lies_about_flushes_is_caught() {
    let config = CONFIGS[1];
    let options = CrashOptions { faulty: FaultyFlush::EveryFlush, ..CrashOptions::default() };
    let (explorer, history) = recorded(config, 7, rounds(config), options);
    let summary = run(&explorer, &Budget::new(3000, 1), "", |state| {
        judge(config, &history, state.marks(), &state.image)
    });
    assert!(!summary.failures.is_empty(), "{summary}");
}
