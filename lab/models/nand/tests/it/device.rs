//! The device with contents: each read returns the last write, flush and FUA survive power cuts,
//! what is lost falls back to a flushed version, refusals.

use proptest::prelude::*;
use std::sync::Arc;
use syncline_device::WriteLife::{Extreme, Long, Medium, NotSet, Short};
use syncline_device::{
    BlockDevice, Clock, DeviceError, Kind, MemoryDevice, Op, Origin, Request, VirtualClock,
};
use syncline_nand::{NandDevice, Profile};

const SECTOR: usize = 512;
const SECTORS: usize = 4096 + 3;
const ORIGIN: Origin = Origin::new(Kind::Other, true);

/// 1 MiB before the mapping scheme of a specification that ends in `+slc`.
const SLC: &str = "\n[slc]\nslc_mib = 1\nslc_dynamic_mib = 0\nslc_bits = 2\nslc_read_us = 25\n\
                   slc_program_us = 200\nslc_erase_us = 2000\nslc_idle_ms = 1\n\
                   slc_full = \"direct\"\nslc_rated_cycles = 30000\n";

fn device(spec: &str, sectors: usize) -> (NandDevice, Arc<VirtualClock>) {
    let profile = match spec.strip_suffix("+slc") {
        Some(main) => {
            let text = Profile::parse_built_in(main).unwrap().to_toml().unwrap() + SLC;
            Profile::from_toml(spec, &text).unwrap()
        }
        None => Profile::parse_built_in(spec).unwrap(),
    };
    let backing = Arc::new(MemoryDevice::new((sectors * SECTOR) as u64));
    let clock = Arc::new(VirtualClock::default());
    (NandDevice::with_power_cuts(&profile, backing, clock.clone()).unwrap(), clock)
}

fn write(d: &NandDevice, sector: usize, bytes: &[u8], fua: bool) -> Result<(), DeviceError> {
    let op = Op::Write { from: vec![bytes], fua };
    // A write of each lifetime now and then, for devices with handles.
    let life = [NotSet, Short, Medium, Long, Extreme][bytes[0] as usize % 5];
    let origin = Origin { life, ..ORIGIN };
    d.submit(&mut [Request { offset_bytes: (sector * SECTOR) as u64, op, origin }])
}

#[derive(Clone, Debug)]
enum Step {
    Write { sector: usize, sectors: usize, value: u8, fua: bool },
    Read { sector: usize, sectors: usize },
    Discard { sector: usize, sectors: usize },
    Flush,
    Barrier,
    Cut,
    Wait { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..SECTORS - 1, 1usize..160)
        .prop_map(|(sector, n)| (sector, n.min(SECTORS - sector)))
        .boxed();
    prop_oneof![
        12 => (range.clone(), any::<u8>(), prop::bool::weighted(0.15)).prop_map(
            |((sector, sectors), value, fua)| Step::Write { sector, sectors, value, fua }),
        3 => range.clone().prop_map(|(sector, sectors)| Step::Read { sector, sectors }),
        2 => range.prop_map(|(sector, sectors)| Step::Discard { sector, sectors }),
        2 => Just(Step::Flush),
        3 => Just(Step::Barrier),
        1 => Just(Step::Cut),
        1 => (0u64..4).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// Content of each sector, and every value it may fall back to at a cut, with the number of
/// barriers before it.
struct Model {
    now: Vec<u8>,
    versions: Vec<Vec<(usize, u8)>>,
    /// Sectors that were discarded since the last flush: barriers do not order that.
    discarded: Vec<bool>,
    barriers: usize,
}

impl Model {
    fn new() -> Model {
        let (now, versions) = (vec![0; SECTORS], vec![vec![(0, 0)]; SECTORS]);
        Model { now, versions, discarded: vec![false; SECTORS], barriers: 0 }
    }

    fn set(&mut self, sector: usize, sectors: usize, value: u8, durable: bool) {
        for s in sector..sector + sectors {
            self.now[s] = value;
            if durable {
                self.versions[s].clear();
            }
            self.versions[s].push((self.barriers, value));
        }
    }

    fn discard(&mut self, sector: usize, sectors: usize) {
        self.set(sector, sectors, 0, false);
        self.discarded[sector..sector + sectors].fill(true);
    }

    fn flushed(&mut self) {
        for (versions, now) in self.versions.iter_mut().zip(&self.now) {
            *versions = vec![(0, *now)];
        }
        self.discarded.fill(false);
        self.barriers = 0;
    }

    /// True if after `barrier` everything written before it is there and nothing written after the
    /// next one.
    fn is_cut_between(&self, barrier: usize) -> bool {
        let ordered = self.discarded.iter().zip(&self.versions).zip(&self.now);
        ordered.filter(|((discarded, _), _)| !**discarded).all(|((_, versions), now)| {
            let before = versions.iter().rev().find(|(epoch, _)| *epoch < barrier);
            let there = versions.iter().filter(|(epoch, _)| *epoch == barrier);
            before.into_iter().chain(there).any(|(_, value)| value == now)
        })
    }

    /// Every sector is a value it had since the last flush, and whole; on a device with barriers
    /// all of them are of one time between two of those.
    fn after_cut(&mut self, d: &NandDevice) {
        let mut all = vec![0; SECTORS * SECTOR];
        d.read(0, &mut all, ORIGIN).unwrap();
        for (s, bytes) in all.chunks(SECTOR).enumerate() {
            assert!(bytes.iter().all(|b| *b == bytes[0]), "sector {s} is torn");
            let known = self.versions[s].iter().any(|(_, value)| *value == bytes[0]);
            assert!(known, "sector {s} holds {}", bytes[0]);
            self.now[s] = bytes[0];
        }
        if d.profile().buffer.barrier {
            assert!((0..=self.barriers).any(|n| self.is_cut_between(n)), "the order is broken");
        }
    }
}

fn run(spec: &str, steps: &[Step]) {
    let (d, clock) = device(spec, SECTORS);
    let mut m = Model::new();
    for step in steps {
        match *step {
            Step::Write { sector, sectors, value, fua } => {
                write(&d, sector, &vec![value; sectors * SECTOR], fua).unwrap();
                match fua && d.geometry().fua {
                    // Everything before is durable as well.
                    true if d.profile().buffer.barrier => {
                        m.set(sector, sectors, value, false);
                        m.flushed();
                    }
                    durable => m.set(sector, sectors, value, durable),
                }
            }
            Step::Read { sector, sectors } => {
                let mut into = vec![0; sectors * SECTOR];
                d.read((sector * SECTOR) as u64, &mut into, ORIGIN).unwrap();
                for (s, bytes) in into.chunks(SECTOR).enumerate() {
                    assert!(bytes.iter().all(|b| *b == m.now[sector + s]), "sector {}", sector + s);
                }
            }
            Step::Discard { sector, sectors } => {
                let (offset, len) = ((sector * SECTOR) as u64, (sectors * SECTOR) as u64);
                d.discard(offset, len, ORIGIN).unwrap();
                m.discard(sector, sectors);
            }
            Step::Barrier => {
                d.order(ORIGIN).unwrap();
                match d.profile().buffer.barrier {
                    true => m.barriers += 1,
                    false => m.flushed(),
                }
            }
            Step::Flush => {
                d.flush(ORIGIN).unwrap();
                m.flushed();
            }
            Step::Cut => {
                d.cut().unwrap();
                assert_eq!(d.read(0, &mut [0; SECTOR], ORIGIN), Err(DeviceError::PowerCut));
                d.power_on();
                m.after_cut(&d);
                m.flushed();
            }
            Step::Wait { ms } => clock.sleep_until(clock.now_ns() + ms * 1_000_000),
        }
    }
    d.check().unwrap();
    m.after_cut(&d);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn reads_return_the_last_write_and_cuts_only_lose_what_was_not_flushed(
        steps in prop::collection::vec(step(), 1..250),
        spec in prop::sample::select(vec![
            // Small superblocks, so that collection runs within these few megabytes.
            "nexus7-emmc:pages_per_block=8,over_provisioning_percent=1",
            "nexus7-emmc:pages_per_block=8,planes=4,fua=true,streams=5",
            "nexus7-emmc:buffer_kib=0,pages_per_block=8",
            "emmc-51:pages_per_block=8,over_provisioning_percent=1,barrier=true",
            "nexus7-emmc:pages_per_block=8,fua=true,streams=5,buffer_kib=512,barrier=true",
            "nexus7-emmc:pages_per_block=8,handles=2,over_provisioning_percent=50,barrier=true",
            "nexus7-emmc:pages_per_block=8,handles=2,over_provisioning_percent=50",
            "nexus7-emmc:pages_per_block=8,handles=4,streams=0,over_provisioning_percent=50",
            "generic-emmc:pages_per_block=8,map_unit_kib=16",
            "generic-emmc:pages_per_block=8,map_unit_kib=16,mapping=bast,log_blocks=2",
            "generic-emmc:pages_per_block=8,map_unit_kib=16,mapping=fast,buffer_kib=0",
            "generic-emmc:pages_per_block=8,map_unit_kib=16,mapping=block,buffer_kib=64",
            "nexus7-emmc:pages_per_block=8,over_provisioning_percent=1+slc",
            "nexus7-emmc:pages_per_block=8,protected=true",
            "nexus7-emmc:pages_per_block=8,protected=true+slc",
            "generic-emmc:pages_per_block=8,map_unit_kib=16,mapping=fast+slc",
        ]),
    ) {
        run(spec, &steps);
    }
}

/// The canary: an oracle that believes a flush which was never sent must complain.
#[test]
#[should_panic(expected = "sector 0 holds 0")]
fn the_oracle_notices_a_dropped_flush() {
    let (d, _) = device("nexus7-emmc", SECTORS);
    let mut m = Model::new();
    write(&d, 0, &[9; 4096], false).unwrap();
    m.set(0, 8, 9, false);
    m.flushed();
    d.cut().unwrap();
    d.power_on();
    m.after_cut(&d);
}

/// The canary: a barrier that keeps nothing in order.
#[test]
#[should_panic(expected = "the order is broken")]
fn the_oracle_notices_a_dropped_barrier() {
    let (d, clock) = device("nexus7-emmc:barrier=true", SECTORS);
    let mut m = Model::new();
    write(&d, 0, &[1; 4096], false).unwrap();
    m.set(0, 8, 1, false);
    m.barriers += 1;
    write(&d, 64, &[2; 8192], false).unwrap();
    m.set(64, 16, 2, false);
    clock.sleep_until(clock.now_ns() + 5_000_000);
    d.cut().unwrap();
    d.power_on();
    m.after_cut(&d);
}

#[test]
fn a_barrier_keeps_the_order_and_waits_for_nothing() {
    let (d, clock) = device("nexus7-emmc:barrier=true", SECTORS);
    let start = clock.now_ns();
    d.order(ORIGIN).unwrap();
    let command_ns = clock.now_ns() - start;
    write(&d, 0, &[1; 4096], false).unwrap();
    let written = clock.now_ns();
    d.order(ORIGIN).unwrap();
    assert_eq!(clock.now_ns() - written, command_ns, "a command, whatever the buffer holds");
    // In the cells long before the cut, but the unit before the barrier is not.
    write(&d, 64, &[2; 8192], false).unwrap();
    clock.sleep_until(clock.now_ns() + 5_000_000);
    assert_eq!(d.cut().unwrap(), 3);
    d.power_on();
    let mut into = [0; 8192];
    d.read(64 * 512, &mut into, ORIGIN).unwrap();
    assert_eq!(into, [0; 8192]);
    assert_eq!((d.counters().barriers, d.counters().flushes), (2, 0));
}

#[test]
fn a_copy_before_a_barrier_is_not_replaced_in_the_buffer() {
    for (barriers, coalesced) in [(false, 2), (true, 0)] {
        let (d, _) = device("emmc-51:barrier=true", SECTORS);
        for value in 1..4 {
            write(&d, 0, &[value; 4096], false).unwrap();
            if barriers {
                d.order(ORIGIN).unwrap();
            }
        }
        assert_eq!(d.counters().coalesced_units, coalesced);
    }
}

#[test]
fn a_device_without_barriers_flushes() {
    let (d, _) = device("nexus7-emmc", SECTORS);
    write(&d, 0, &[1; 4096], false).unwrap();
    d.order(ORIGIN).unwrap();
    assert_eq!(d.cut().unwrap(), 0);
    assert_eq!((d.counters().barriers, d.counters().flushes), (0, 1));
    for spec in ["sd-2012:barrier=true", "ufs-4:barrier=true"] {
        let refused = Profile::parse_built_in(spec).unwrap_err().to_string();
        assert!(refused.contains("barrier"), "{refused}");
    }
}

#[test]
fn a_cut_loses_the_buffer_and_a_flush_keeps_it() {
    let (d, _) = device("nexus7-emmc", SECTORS);
    write(&d, 0, &[1; 4096], false).unwrap();
    d.flush(ORIGIN).unwrap();
    write(&d, 0, &[2; 4096], false).unwrap();
    assert_eq!(d.cut().unwrap(), 1, "one unit was in the buffer only");
    d.power_on();
    let mut into = [0; 4096];
    d.read(0, &mut into, ORIGIN).unwrap();
    assert_eq!(into, [1; 4096]);
}

#[test]
fn what_was_programmed_in_time_survives_without_a_flush() {
    let (d, clock) = device("nexus7-emmc", SECTORS);
    write(&d, 0, &[1; 8192], false).unwrap(); // a full page: programmed at once
    clock.sleep_until(clock.now_ns() + 2_000_000);
    assert_eq!(d.cut().unwrap(), 0);
    let (d, _) = device("nexus7-emmc", SECTORS);
    write(&d, 0, &[1; 8192], false).unwrap();
    assert_eq!(d.cut().unwrap(), 2, "both units were still in flight");
}

#[test]
fn fua_is_durable_where_the_profile_has_it() {
    for (spec, lost) in [("nexus7-emmc:fua=true", 0), ("nexus7-emmc", 1)] {
        let (d, _) = device(spec, SECTORS);
        assert_eq!(d.geometry().fua, lost == 0);
        write(&d, 8, &[7; 4096], true).unwrap();
        assert_eq!(d.cut().unwrap(), lost, "{spec}");
    }
}

#[test]
fn without_a_buffer_nothing_is_volatile() {
    let (d, clock) = device("nexus7-emmc:buffer_kib=0", SECTORS);
    assert!(!d.geometry().volatile_cache && d.geometry().fua);
    let start = clock.now_ns();
    write(&d, 0, &[7; 4096], false).unwrap();
    assert!(clock.now_ns() - start > 890_000, "a write waits for its program");
    assert_eq!(d.cut().unwrap(), 0);
}

#[test]
fn a_protected_buffer_is_not_volatile() {
    for spec in ["nvme-plp", "nexus7-emmc:protected=true", "nexus7-emmc:protected=true+slc"] {
        let (d, _) = device(spec, SECTORS);
        assert!(!d.geometry().volatile_cache && d.geometry().fua, "{spec}");
        write(&d, 0, &[7; 4096], false).unwrap();
        assert_eq!(d.cut().unwrap(), 0, "{spec}");
        d.power_on();
        let mut into = [0; 4096];
        d.read(0, &mut into, ORIGIN).unwrap();
        assert_eq!(into, [7; 4096]);
        d.check().unwrap();
    }
}

#[test]
fn time_passes_in_the_clock_only() {
    let (d, clock) = device("nexus7-emmc", SECTORS);
    let start = clock.now_ns();
    write(&d, 0, &[7; 4096], false).unwrap();
    let written = clock.now_ns();
    d.flush(ORIGIN).unwrap();
    let flushed = clock.now_ns();
    let r = d.report();
    assert_eq!((r.write.count, r.flush.count, r.read.count), (1, 1, 0));
    let us = |ns: u64| ns as f64 / 1e3;
    assert!((r.write.latency_us_max / us(written - start) - 1.0).abs() < 0.01);
    assert!((r.flush.latency_us_max / us(flushed - written) - 1.0).abs() < 0.01);
    assert_eq!(r.counters.written_bytes, 4096);
    assert_eq!(r.counters.programmed_bytes, 8192, "half of the page is padding");
    d.reset_latencies();
    assert_eq!(d.report().write.count, 0);
}

#[test]
fn requests_that_are_refused() {
    let (d, clock) = device("nexus7-emmc", SECTORS);
    let start = clock.now_ns();
    let bytes = [0; 1024];
    for (sector, len) in [(SECTORS - 1, 1024), (SECTORS, 512), (0, 100)] {
        let got = write(&d, sector, &bytes[..len], false);
        assert!(matches!(got, Err(DeviceError::OutOfRange { .. })), "{sector} {len}");
    }
    let got = d.discard(u64::MAX - 511, 512, ORIGIN);
    assert!(matches!(got, Err(DeviceError::OutOfRange { .. })));
    assert_eq!((clock.now_ns(), d.counters().writes), (start, 0));

    let read_only = MemoryDevice::new(1 << 20).with_geometry(|g| g.read_only = true);
    let profile = Profile::by_name("nexus7-emmc").unwrap();
    let d = NandDevice::new(&profile, Arc::new(read_only), clock).unwrap();
    assert_eq!(write(&d, 0, &bytes, false), Err(DeviceError::ReadOnly));
    assert!(d.geometry().read_only);
}

#[test]
fn a_batch_overlaps_on_the_dies_and_one_by_one_does_not() {
    let time = |spec, batched: bool| {
        let (d, clock) = device(spec, SECTORS);
        write(&d, 0, &[1; 256 * 1024], false).unwrap();
        d.flush(ORIGIN).unwrap();
        let start = clock.now_ns();
        let mut buffers = [[0u8; 4096]; 8];
        let mut batch: Vec<Request<'_>> = (0u64..)
            .zip(buffers.iter_mut())
            .map(|(i, b)| {
                let op = Op::Read { into: vec![b.as_mut_slice()] };
                Request { offset_bytes: i * 16384, op, origin: ORIGIN }
            })
            .collect();
        if batched {
            d.submit(&mut batch).unwrap();
        } else {
            batch.into_iter().for_each(|r| d.submit(&mut [r]).unwrap());
        }
        clock.now_ns() - start
    };
    assert!(time("generic-emmc", true) * 2 < time("generic-emmc", false));
    assert_eq!(time("nexus7-emmc", true), time("nexus7-emmc", false), "queue depth 1");
}
