//! Zones: write pointers, resets, what is programmed, power cuts.

use super::simulator;
use std::sync::Arc;
use syncline_device::{
    BlockDevice, DeviceError, Kind, MemoryDevice, Op, Origin, Request, SplitMix64, VirtualClock,
};
use syncline_nand::{NandDevice, Profile, Simulator};

/// Zones of eight pages of 16 KiB, behind half of the device.
const SPEC: &str = "ufs-zoned:conventional_percent=50,channels=1,dies_per_channel=1,planes=1,\
                    page_kib=16,pages_per_block=8,slc_mib=1,buffer_kib=64,open_zones=2";
const SIZE: u64 = 8 << 20;
const FIRST: u64 = SIZE / 2;
const ZONE: u64 = 128 << 10;
const UNIT: u64 = 4096;
const ORIGIN: Origin = Origin::new(Kind::Other, true);

fn write_units(device: &mut Simulator, from: u64, units: u64) {
    for unit in 0..units {
        device.write(0, from + unit * UNIT, UNIT, false);
    }
}

#[test]
fn a_zone_is_programmed_once_and_erased_by_its_reset() {
    let mut device = simulator(SPEC, SIZE);
    let zones = device.zones().unwrap();
    assert_eq!((zones.conventional_bytes, zones.zone_bytes), (FIRST, ZONE));
    for round in 1..4 {
        write_units(&mut device, FIRST, ZONE / UNIT);
        assert_eq!(device.pointer_bytes(0), FIRST + ZONE);
        // Full: nothing is done.
        device.write(0, FIRST + ZONE - UNIT, UNIT, false);
        device.flush(0);
        device.discard(0, FIRST, ZONE);
        assert_eq!(device.pointer_bytes(0), FIRST);
        let counters = device.counters();
        assert_eq!((counters.page_programs, counters.slc_programs), (8 * round, 0));
        assert_eq!((counters.erases, counters.slc_erases), (round, 0));
        device.check().unwrap();
    }
    // Superblocks are taken in turn.
    assert_eq!(device.erases().iter().max(), Some(&1));
}

#[test]
fn a_part_of_a_page_is_backed_up_by_a_flush_and_programmed_when_it_is_full() {
    let mut device = simulator(SPEC, SIZE);
    let programs = |device: &Simulator| {
        let counters = device.counters();
        (counters.page_programs, counters.slc_programs)
    };
    write_units(&mut device, FIRST, 1);
    assert_eq!(programs(&device), (0, 0));
    for _ in 0..2 {
        device.flush(0);
        assert_eq!(programs(&device), (0, 1));
    }
    write_units(&mut device, FIRST + UNIT, 2);
    device.write(0, FIRST + 3 * UNIT, UNIT, true);
    assert_eq!(programs(&device), (1, 1));
    device.write(0, FIRST + 4 * UNIT, UNIT, true);
    assert_eq!(programs(&device), (1, 2));
}

#[test]
fn of_more_zones_than_may_be_open_the_one_written_longest_ago_is_closed() {
    let mut device = simulator(SPEC, SIZE);
    for zone in 0..2 {
        write_units(&mut device, FIRST + zone * ZONE, 1);
    }
    assert_eq!(device.counters().slc_programs, 0);
    write_units(&mut device, FIRST + 2 * ZONE, 1);
    assert_eq!(device.counters().slc_programs, 1);
    // The closed one goes on where it was, and reads its part from the backup.
    let reads = device.counters().page_reads;
    write_units(&mut device, FIRST + UNIT, 3);
    let counters = device.counters();
    assert_eq!((counters.page_programs, counters.page_reads), (1, reads + 1));
    assert_eq!(counters.slc_programs, 2);
    device.check().unwrap();
}

#[test]
fn the_area_before_the_zones_is_a_device_of_its_size() {
    let mut zoned = simulator(SPEC, SIZE);
    let mut plain = simulator(&SPEC.replace("percent=50", "percent=100"), FIRST);
    let mut rng = SplitMix64::new(7);
    let mut now_ns = 0;
    for _ in 0..5000 {
        let offset = rng.below(FIRST / UNIT) * UNIT;
        let done_ns = zoned.write(now_ns, offset, UNIT, false);
        assert_eq!(done_ns, plain.write(now_ns, offset, UNIT, false));
        assert_eq!(zoned.read(done_ns, offset, UNIT), plain.read(done_ns, offset, UNIT));
        now_ns = zoned.flush(done_ns);
        plain.flush(done_ns);
    }
    assert_eq!(zoned.counters(), plain.counters());
    zoned.check().unwrap();
}

#[test]
fn zones_need_room_and_whole_units() {
    let profile = Profile::parse_built_in(SPEC).unwrap();
    assert_eq!(Simulator::new(&profile, ZONE).unwrap().zones(), None);
    let error = Simulator::new(&profile, SIZE + 512).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("map unit"), "{error}");
    let refused = |spec| Profile::parse_built_in(spec).unwrap_err().to_string();
    assert!(refused("ufs-zoned:conventional_percent=0").contains("not within 1 to 100"));
    assert!(refused("ufs-zoned:barrier=true").contains("[zones]"));
}

fn device() -> (NandDevice, Arc<MemoryDevice>, Arc<VirtualClock>) {
    let profile = Profile::parse_built_in(SPEC).unwrap();
    let backing = Arc::new(MemoryDevice::new(SIZE));
    let clock = Arc::new(VirtualClock::default());
    let device = NandDevice::with_power_cuts(&profile, backing.clone(), clock.clone()).unwrap();
    (device, backing, clock)
}

#[test]
fn a_write_elsewhere_than_at_the_pointer_is_an_unaligned_write_command() {
    let (device, backing, _) = device();
    let page = [7; UNIT as usize];
    let refused = |op, offset_bytes, pointer_bytes| {
        Err(DeviceError::UnalignedWrite { op, offset_bytes, pointer_bytes })
    };
    let write = |offset, bytes: &[u8]| device.write(offset, bytes, ORIGIN);
    assert_eq!(write(FIRST + UNIT, &page), refused("write", FIRST + UNIT, FIRST));
    write(FIRST, &page).unwrap();
    assert_eq!(write(FIRST, &page), refused("write", FIRST, FIRST + UNIT));
    // Parts of a block, and writes over the end of a zone or the conventional area.
    let next = FIRST + UNIT;
    assert_eq!(write(next, &page[..512]), refused("write", next, next));
    assert_eq!(write(next, &[7; ZONE as usize]), refused("write", next, next));
    let last = FIRST - UNIT;
    assert_eq!(write(last, &[7; 2 * UNIT as usize]), refused("write", last, next));
    // A batch is refused before any of it is done, and is otherwise done in its order.
    let request = |offset_bytes| {
        let op = Op::Write { from: vec![&page[..]], fua: false };
        Request { offset_bytes, op, origin: ORIGIN }
    };
    let mut gap = [request(0), request(next), request(next + 2 * UNIT)];
    assert_eq!(device.submit(&mut gap), refused("write", next + 2 * UNIT, next));
    let mut read = [0; UNIT as usize];
    backing.read(0, &mut read, ORIGIN).unwrap();
    assert_eq!(read, [0; UNIT as usize]);
    device.submit(&mut [request(next), request(next + UNIT)]).unwrap();
    assert_eq!(device.pointer_bytes(0), next + 2 * UNIT);
    // A reset is one of a whole zone; the conventional area takes any discard.
    let discard = |offset, len| device.discard(offset, len, ORIGIN);
    assert_eq!(discard(next, UNIT), refused("discard", next, next + 2 * UNIT));
    discard(UNIT, UNIT).unwrap();
    discard(FIRST, ZONE).unwrap();
    write(FIRST, &page).unwrap();
}

/// Random appends, flushes, resets and cuts: each zone has what was flushed, nothing but what was
/// written, and goes on at its pointer.
#[test]
fn a_zone_falls_back_to_a_part_of_what_was_written() {
    const ZONES: usize = 4;
    let mut fell = 0;
    for seed in 0..40 {
        let (device, backing, _) = device();
        let mut rng = SplitMix64::new(seed);
        // Bytes of each unit of each zone, and how many of them a cut has to leave.
        let mut written: [Vec<u8>; ZONES] = Default::default();
        let mut durable = [0; ZONES];
        for step in 0..200u64 {
            let zone = rng.below(ZONES as u64) as usize;
            let start = FIRST + zone as u64 * ZONE;
            let at = written[zone].len() as u64;
            let room = ZONE / UNIT - at;
            match rng.below(16) {
                0 => {
                    device.flush(ORIGIN).unwrap();
                    durable = std::array::from_fn(|zone| written[zone].len());
                }
                1 => {
                    device.discard(start, ZONE, ORIGIN).unwrap();
                    written[zone].clear();
                    durable[zone] = 0;
                }
                2 => {
                    device.cut().unwrap();
                    device.power_on();
                    for zone in 0..ZONES {
                        let start = FIRST + zone as u64 * ZONE;
                        let left = (device.pointer_bytes(zone as u32) - start) / UNIT;
                        assert!(left as usize >= durable[zone], "seed {seed} step {step}");
                        fell += usize::from((left as usize) < written[zone].len());
                        written[zone].truncate(left as usize);
                        durable[zone] = written[zone].len();
                        let mut read = vec![0; (left * UNIT) as usize];
                        backing.read(start, &mut read, ORIGIN).unwrap();
                        for (unit, value) in read.chunks_exact(UNIT as usize).zip(&written[zone]) {
                            assert!(unit.iter().all(|b| b == value), "seed {seed} step {step}");
                        }
                    }
                }
                3 if room > 0 => {
                    device.write_durable(start + at * UNIT, &[9; UNIT as usize], ORIGIN).unwrap();
                    written[zone].push(9);
                    durable[zone] = written[zone].len();
                }
                _ if room > 0 => {
                    let value = step as u8;
                    let units = 1 + rng.below(room.min(12));
                    let bytes = vec![value; (units * UNIT) as usize];
                    device.write(start + at * UNIT, &bytes, ORIGIN).unwrap();
                    written[zone].extend(vec![value; units as usize]);
                }
                _ => {}
            }
            device.check().unwrap();
        }
    }
    assert!(fell > 100, "{fell} zones fell back");
}
