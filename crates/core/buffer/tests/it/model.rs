//! Reads return the last write, in every configuration, over any sequence of operations.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use syncline_device::{BlockDevice, MemoryDevice, Op, Request};

use crate::common::{CONFIGS, Config, PAGE, RELAXED, SECTOR, STRICT, content, versions};

/// Not whole pages: the last one has three sectors.
const SECTORS: u64 = 200 * 8 + 3;
const HOME: u64 = SECTORS * SECTOR as u64;

#[derive(Clone, Debug)]
enum Step {
    /// Writes that do not overlap, in one batch.
    Write {
        at: u64,
        lens: Vec<u64>,
        gap: u64,
        fua: bool,
        relaxed: bool,
    },
    Read {
        at: u64,
        len: u64,
    },
    Discard {
        at: u64,
        len: u64,
    },
    Flush,
    Tick {
        ms: u64,
    },
    Drain,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![4 => 1_u64..9, 4 => Just(8_u64), 1 => 1_u64..200];
    let write = (0..SECTORS, prop::collection::vec(len, 1..6), 0_u64..20, 0..12, any::<bool>())
        .prop_map(|(at, lens, gap, fua, relaxed)| {
            // Whole pages more often than not.
            let at = if gap % 2 == 0 { at / 8 * 8 } else { at };
            Step::Write { at, lens, gap: gap / 2, fua: fua == 0, relaxed }
        });
    let step = prop_oneof![
        24 => write,
        6 => (0..SECTORS, 1_u64..300).prop_map(|(at, len)| Step::Read { at, len }),
        2 => (0..SECTORS, 1_u64..100).prop_map(|(at, len)| Step::Discard { at, len }),
        4 => Just(Step::Flush),
        3 => (0_u64..20_000).prop_map(|ms| Step::Tick { ms }),
        1 => Just(Step::Drain),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

struct Run {
    config: Config,
    device: Arc<dyn BlockDevice>,
    buffer: syncline_buffer::Buffer,
    model: Vec<u64>,
    version: u64,
    now: Duration,
}

impl Run {
    fn new(config: Config) -> Run {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(config.total_bytes(HOME)));
        config.format(&device, HOME);
        let buffer = config.open(&device, HOME).unwrap();
        let model = vec![0; SECTORS as usize];
        Run { config, device, buffer, model, version: 0, now: Duration::ZERO }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write { at, lens, gap, fua, relaxed } => {
                let origin = if *relaxed { RELAXED } else { STRICT };
                self.write(*at, lens, *gap, *fua, origin);
            }
            Step::Read { at, len } => self.check(*at, (*len).min(SECTORS - at)),
            Step::Discard { at, len } => {
                let end = (at + len).min(SECTORS);
                let sector = SECTOR as u64;
                self.buffer.discard(at * sector, (end - at) * sector, STRICT).unwrap();
                let last = if end == SECTORS { end } else { end / 8 * 8 };
                for gone in at.div_ceil(8) * 8..last {
                    self.model[gone as usize] = 0;
                }
            }
            Step::Flush => self.buffer.flush(STRICT).unwrap(),
            Step::Tick { ms } => {
                self.now += Duration::from_millis(*ms);
                self.buffer.tick(self.now).unwrap();
            }
            Step::Drain => {
                self.buffer.drain().unwrap();
                assert_eq!(versions(&self.device, SECTORS).unwrap(), self.model);
            }
            Step::Reopen => {
                // A machine that stops after everything relaxed has expired.
                self.now += Duration::from_secs(31);
                self.buffer.tick(self.now).unwrap();
                self.buffer.flush(STRICT).unwrap();
                self.buffer = self.config.open(&self.device, HOME).unwrap();
                self.check(0, SECTORS);
            }
        }
    }

    fn write(
        &mut self,
        at: u64,
        lens: &[u64],
        gap: u64,
        fua: bool,
        origin: syncline_device::Origin,
    ) {
        self.version += 1;
        let mut pieces = Vec::new();
        let mut at = at;
        for &len in lens {
            let len = len.min(SECTORS - at);
            let bytes: Vec<u8> =
                (at..at + len).flat_map(|sector| content(sector, self.version)).collect();
            for sector in at..at + len {
                self.model[sector as usize] = self.version;
            }
            pieces.push((at, bytes));
            at = (at + len + gap).min(SECTORS);
        }
        let mut batch: Vec<Request<'_>> = pieces
            .iter()
            .map(|(at, bytes)| {
                let (first, second) = bytes.split_at(bytes.len() / 2);
                let op = Op::Write { from: vec![first, second], fua };
                Request { offset_bytes: at * SECTOR as u64, op, origin }
            })
            .collect();
        self.buffer.submit(&mut batch).unwrap();
    }

    fn check(&self, at: u64, len: u64) {
        let mut bytes = vec![0; len as usize * SECTOR];
        self.buffer.read(at * SECTOR as u64, &mut bytes, STRICT).unwrap();
        for (sector, piece) in (at..).zip(bytes.chunks_exact(SECTOR)) {
            let expected = content(sector, self.model[sector as usize]);
            assert!(
                piece == expected,
                "sector {sector} is not version {}",
                self.model[sector as usize]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn reads_return_the_last_write(steps in steps(), config in 0..CONFIGS.len()) {
        let mut run = Run::new(CONFIGS[config]);
        for step in &steps {
            run.step(step);
        }
        run.check(0, SECTORS);
        run.step(&Step::Reopen);
        run.step(&Step::Drain);
        let status = run.buffer.status();
        prop_assert_eq!((status.ram_pages, status.ring_used_pages, status.latched), (0, 0, false));
    }
}

#[test]
fn what_is_idle_ends_in_its_place() {
    let config = CONFIGS[2];
    let mut run = Run::new(config);
    for at in 0..90 {
        run.write(at * 16, &[3, 5], 0, false, RELAXED);
        run.write(at * 16 + 8, &[8], 0, at % 7 == 0, STRICT);
    }
    run.now = Duration::from_secs(1);
    assert!(!run.buffer.tick(run.now).unwrap(), "requests came since the last tick");
    run.now = Duration::from_secs(2);
    let mut ticks = 0;
    while run.buffer.tick(run.now).unwrap() {
        ticks += 1;
        assert!(ticks < 100, "a tick that has nothing to do says so");
    }
    assert_eq!(versions(&run.device, SECTORS).unwrap(), run.model);
    let status = run.buffer.status();
    assert_eq!((status.ram_pages, status.ring_used_pages), (0, 0));
}

#[test]
fn relaxed_data_stays_within_its_limits() {
    let config = CONFIGS[3];
    let mut run = Run::new(config);
    let home = |run: &Run| versions(&run.device, SECTORS).unwrap();
    run.write(0, &[8], 0, false, RELAXED);
    run.write(64, &[8], 0, true, STRICT);
    assert_eq!(run.buffer.status().relaxed_pages, 1, "a barrier leaves it in RAM");
    run.buffer.tick(Duration::from_secs(29)).unwrap();
    run.buffer.flush(STRICT).unwrap();
    assert_eq!(run.buffer.status().relaxed_pages, 1);
    run.buffer.tick(Duration::from_secs(30)).unwrap();
    assert_eq!(run.buffer.status().relaxed_pages, 0, "30 s after it came");
    run.buffer = config.open(&run.device, HOME).unwrap();
    run.check(0, SECTORS);
    run.write(8, &[8], 0, false, RELAXED);
    run.buffer.flush(RELAXED).unwrap();
    assert_eq!(run.buffer.status().relaxed_pages, 0, "a relaxed flush covers it");
    for at in 0..150 {
        run.write(at * 8, &[8], 0, false, RELAXED);
    }
    run.buffer.flush(STRICT).unwrap();
    assert_eq!(run.buffer.status().relaxed_pages, 150);
    assert_ne!(home(&run), run.model);
    for at in 150..200 {
        run.write(at * 8, &[8], 0, false, RELAXED);
    }
    let most = config.options().relaxed_bytes_max / PAGE;
    assert!(run.buffer.status().relaxed_pages <= most, "{:?}", run.buffer.status());
    run.check(0, SECTORS);
}
