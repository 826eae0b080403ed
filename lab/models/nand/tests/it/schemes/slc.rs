//! The SLC write cache: counts by hand, the cliff, the recovery, the dynamic size, no lost unit.

use super::{SMALL, simulator};
use syncline_device::SplitMix64;
use syncline_nand::{Counters, Profile, Simulator};

/// Cells of three bits: a superblock of the cache has 8 of 24 pages, 32 KiB.
const SLC: &str = "\n[slc]\nslc_mib = 0\nslc_dynamic_mib = 0\nslc_bits = 3\nslc_read_us = 25\n\
                   slc_program_us = 200\nslc_erase_us = 2000\nslc_idle_ms = 10\n\
                   slc_full = \"direct\"\nslc_rated_cycles = 30000\n";

const SCHEMES: [&str; 4] = [
    "mapping=page,streams=1,merge_kib=4,close_map_programs=0,map_cache_segments=0",
    "mapping=dftl,streams=1,merge_kib=4,close_map_programs=0,map_cache_entries=100",
    "mapping=bast,log_blocks=4",
    "mapping=fast,log_blocks=4",
];

fn device(options: &str, size_bytes: u64) -> Simulator {
    let base = Profile::parse_built_in(SMALL).unwrap();
    let text = base.to_toml().unwrap() + SLC;
    let spec = format!("./slc.toml:pages_per_block=24,{options}");
    let profile = Profile::parse_spec(&spec, &|_| Ok(text.clone())).unwrap();
    Simulator::new(&profile, size_bytes).unwrap()
}

/// Writes 4 KiB units; returns when the last is done.
fn write(s: &mut Simulator, now_ns: u64, units: impl Iterator<Item = u64>) -> u64 {
    units.fold(now_ns, |now_ns, unit| s.write(now_ns, unit * 4096, 4096, false))
}

const IDLE_NS: u64 = 1_000_000_000;

#[test]
fn one_mib_by_hand() {
    let mut s = device(&format!("{},slc_mib=1", SCHEMES[0]), 8 << 20);
    assert_eq!(s.slc_blocks(), 32);
    let end_ns = write(&mut s, 0, 0..256);
    let c = s.counters();
    assert_eq!((c.slc_programs, c.page_programs, c.slc_erases), (256, 0, 0));
    assert_eq!(c.programs(), 256);
    // It is full: the next unit goes past it.
    let before_ns = end_ns;
    let end_ns = write(&mut s, end_ns, 256..257);
    assert_eq!(s.counters().page_programs, 1);
    assert!(end_ns - before_ns >= 750_000, "{}", end_ns - before_ns);
    s.check().unwrap();
    // One overwritten while it is full: the copy in the cache is not folded.
    let end_ns = write(&mut s, end_ns, 7..8);
    // A long rest folds all of it.
    s.read(end_ns + 10 * IDLE_NS, 0, 4096);
    let c = s.counters();
    assert_eq!((c.slc_folded_units, c.slc_erases), (255, 32));
    assert_eq!((c.page_programs, c.host_units), (257, 258), "255 folded, two past the cache");
    s.check().unwrap();
}

#[test]
fn long_writes_meet_a_cliff_and_a_rest_removes_it() {
    for full in ["direct", "fold"] {
        let options = format!("{},slc_mib=2,slc_full={full}", SCHEMES[0]);
        let mut s = device(&options, 32 << 20);
        let cached_ns = write(&mut s, 0, 0..512);
        let beyond_ns = write(&mut s, cached_ns, 512..1024) - cached_ns;
        println!("{full}: {cached_ns} ns within, {beyond_ns} ns beyond");
        assert!(beyond_ns > cached_ns * 2, "{full}: {beyond_ns} against {cached_ns}");
        let rested_ns = cached_ns + beyond_ns + 10 * IDLE_NS;
        let again_ns = write(&mut s, rested_ns, 1024..1536) - rested_ns;
        assert!(again_ns < cached_ns * 11 / 10, "{full}: {again_ns} against {cached_ns}");
        // A rest that is shorter than the idle time changes nothing.
        let now_ns = rested_ns + again_ns + 9_000_000;
        let short_ns = write(&mut s, now_ns, 1536..1792) - now_ns;
        assert!(short_ns > cached_ns, "{full}: {short_ns} for half of {cached_ns}");
        s.check().unwrap();
    }
}

#[test]
fn a_command_in_the_idle_time_waits_for_one_step() {
    let mut s = device(&format!("{},slc_mib=2", SCHEMES[0]), 32 << 20);
    let now_ns = write(&mut s, 0, 0..512);
    // Folding began 10 ms after the last write; a page of it is a read and a program.
    let at_ns = now_ns + 50_000_000;
    let done_ns = s.write(at_ns, 1 << 20, 4096, false);
    assert!(s.counters().slc_folded_units > 10);
    assert!(s.counters().slc_folded_units < 200);
    assert!(done_ns - at_ns < 5_000_000, "{}", done_ns - at_ns);
}

#[test]
fn the_dynamic_part_shrinks_with_what_is_mapped() {
    let cached = |mapped_units: u64| {
        let options = format!("{},slc_dynamic_mib=4", SCHEMES[0]);
        let mut s = device(&options, 16 << 20);
        let now_ns = write(&mut s, 0, 0..mapped_units);
        s.read(now_ns + 60 * IDLE_NS, 0, 4096);
        let before = s.counters().slc_programs;
        write(&mut s, now_ns + 120 * IDLE_NS, 0..1024);
        s.check().unwrap();
        s.counters().slc_programs - before
    };
    let (empty, half, full) = (cached(1), cached(2048), cached(4096));
    println!("{empty} pages when empty, {half} when half mapped, {full} when all is");
    assert!(empty > 800 && (450..=520).contains(&half) && full <= 4);
}

/// Random writes, reads, discards, flushes and rests; every invariant, every scheme.
fn random_commands(s: &mut Simulator, units: u64, seed: u64) -> Counters {
    let mut rng = SplitMix64::new(seed);
    let (mut now_ns, mut mapped) = (0, vec![false; units as usize]);
    for step in 0..20_000 {
        let (unit, many) = (rng.below(units), 1 + rng.below(8));
        let many = many.min(units - unit);
        let (offset, len) = (unit * 4096, many * 4096);
        now_ns = match rng.below(24) {
            0..=15 => s.write(now_ns, offset, len, rng.below(8) == 0),
            16 => s.write(now_ns, offset + 512, 512, false),
            17..=19 => s.read(now_ns, offset, len),
            20 => s.flush(now_ns),
            21 => s.discard(now_ns, offset, len),
            _ => now_ns + rng.below(4) * 20_000_000,
        };
        if step % 1000 == 0 {
            s.check().unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
        }
    }
    now_ns = s.flush(now_ns);
    // What was written last is somewhere, once; what was discarded is nowhere.
    for unit in 0..units {
        now_ns = s.write(now_ns, unit * 4096, 4096, false);
        mapped[unit as usize] = unit % 3 != 0;
        if unit % 3 == 0 {
            now_ns = s.discard(now_ns, unit * 4096, 4096);
        }
    }
    s.flush(now_ns);
    let mut places: Vec<u32> = Vec::new();
    for (unit, mapped) in mapped.iter().enumerate() {
        let place = s.locate(unit as u32);
        assert_eq!(place.is_some(), *mapped, "seed {seed}, unit {unit}");
        places.extend(place);
    }
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count, "seed {seed}: two units at one place");
    s.check().unwrap();
    s.counters()
}

#[test]
fn no_unit_is_lost_under_random_commands() {
    for (seed, scheme) in SCHEMES.iter().enumerate() {
        for size in ["slc_mib=1", "slc_mib=1,slc_full=fold", "slc_dynamic_mib=2,slc_mib=1"] {
            let options = format!("{scheme},{size}");
            println!("{options}, seed {seed}");
            let mut s = device(&options, 6 << 20);
            let c = random_commands(&mut s, 1536, seed as u64);
            assert!(c.slc_erases > 100 && c.slc_folded_units > 1000, "{options}: {c:?}");
            // Each unit in cells is a host's, a copy, or padding.
            let written = c.host_units - c.coalesced_units + c.slc_folded_units + c.gc_copies;
            let written = written + c.merge_copies + c.padded_units;
            let programmed = c.page_programs + c.slc_programs;
            assert!(written.abs_diff(programmed) <= 1, "{options}: {written}, {programmed}");
            let mut again = device(&options, 6 << 20);
            assert_eq!(random_commands(&mut again, 1536, seed as u64), c, "{options}");
        }
    }
}

#[test]
fn an_aged_device_has_folded_its_cache() {
    let mut s = device(&format!("{},slc_mib=2", SCHEMES[0]), 16 << 20);
    s.precondition(80, 3);
    assert_eq!(s.counters(), Counters::default());
    // A superblock that was not full stays.
    let end_ns = write(&mut s, 0, 0..500);
    assert_eq!(s.counters().page_programs, 0, "all of it fits");
    assert!(end_ns < 500 * 500_000, "{end_ns}");
    let l = *s.layout();
    let pages = u64::from(l.blocks) * u64::from(l.pages_per_block);
    assert!(s.memory_bytes() < 16 * pages, "{} bytes, {pages} pages", s.memory_bytes());
}

#[test]
fn bad_caches_are_refused() {
    let text = simulator_text();
    for key in ["slc_bits=0", "slc_rated_cycles=0", "slc_full=later", "slc_mib=9999999"] {
        let refused = Profile::parse_spec(&format!("./a.toml:{key}"), &|_| Ok(text.clone()));
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(key.split('=').next().unwrap()) || said.contains("later"), "{said}");
    }
    let without = Profile::parse_built_in("generic-emmc:slc_mib=4").unwrap_err().to_string();
    assert!(without.contains("no parameter 'slc_mib'"), "{without}");
    assert_eq!(simulator("generic-emmc", 1 << 20).slc_blocks(), 0);
}

fn simulator_text() -> String {
    Profile::by_name("generic-emmc").unwrap().to_toml().unwrap() + SLC
}
