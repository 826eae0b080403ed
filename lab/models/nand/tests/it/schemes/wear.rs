//! Victims, wear levelling, memory: for every scheme that has them.

use super::{SMALL, simulator};
use crate::analysis::fifo_write_amplification;
use syncline_device::SplitMix64;
use syncline_nand::{Counters, Simulator, Wear};

const SCHEMES: [&str; 7] = [
    "mapping=page,victims=greedy",
    "mapping=page,victims=cost-benefit",
    "mapping=page,victims=fifo",
    "mapping=dftl,map_cache_entries=100",
    "mapping=bast,log_blocks=4",
    "mapping=fast,log_blocks=4",
    "mapping=block,log_blocks=4",
];

/// Blocks of 16 units, 10 % more flash than usable.
fn device(options: &str, size_bytes: u64) -> Simulator {
    let spec = format!("{SMALL},pages_per_block=16,streams=1,merge_kib=4,close_map_programs=0");
    let spec = format!("{spec},map_cache_segments=0,over_provisioning_percent=10,{options}");
    simulator(&spec, size_bytes)
}

/// Uniform random writes: units to write them to, how many.
fn random(s: &mut Simulator, units: u64, writes: u64, seed: u64) -> Counters {
    let mut rng = SplitMix64::new(seed);
    let before = s.counters();
    for _ in 0..writes {
        s.write(0, rng.below(units) * 4096, 4096, false);
    }
    s.check().unwrap();
    s.counters().since(&before)
}

/// Erases add up, and so do programs: host, copies; nothing else is in the cells.
#[test]
fn erases_and_programs_add_up() {
    for scheme in SCHEMES {
        for gap in ["wear_gap=0", "wear_gap=4"] {
            let mut s = device(&format!("{scheme},{gap}"), 4 << 20);
            let c = random(&mut s, 1024, 20_000, 5);
            let erases: u64 = s.erases().iter().map(|e| u64::from(*e)).sum();
            assert_eq!(c.erases, erases, "{scheme},{gap}");
            let moved = c.gc_copies + c.merge_copies;
            assert_eq!(c.page_programs, 20_000 + moved, "{scheme},{gap}");
            assert_eq!(c.map_programs > 0, scheme.contains("dftl"), "{scheme}");
        }
    }
}

/// A hot eighth, the rest written once: dynamic levelling leaves the cold blocks unworn.
#[test]
fn static_levelling_closes_the_gap() {
    let spread = |scheme: &str, gap: u32| {
        let mut s = device(&format!("{scheme},wear_gap={gap}"), 4 << 20);
        s.write(0, 0, 4 << 20, false);
        let c = random(&mut s, 128, 60_000, 9);
        (Wear::of(s.erases()), c)
    };
    for scheme in SCHEMES {
        let (uneven, without) = spread(scheme, 0);
        let (even, with) = spread(scheme, 8);
        println!("{scheme}: {uneven:?} without, {even:?} with {} moves", with.wear_moves);
        assert_eq!(without.wear_moves, 0);
        if !scheme.contains("fifo") {
            assert_eq!(uneven.erases_min, 0, "{scheme}: cold blocks stay");
            assert!(with.wear_moves > 0, "{scheme}");
        }
        assert!(even.erases_max - even.erases_min <= 16, "{scheme}: {even:?}");
        assert!(even.erases_max < uneven.erases_max || scheme.contains("fifo"), "{scheme}");
        let more = with.page_programs as f64 / without.page_programs as f64;
        assert!(more < 1.35, "{scheme}: levelling costs {more:.2} times the programs");
    }
}

#[test]
fn fifo_write_amplification_is_the_published_one() {
    for op in [15u64, 30] {
        let options = "mapping=page,victims=fifo,pages_per_block=64";
        let options = format!("{options},over_provisioning_percent={op}");
        let mut s = device(&options, 128 << 20);
        let (l, units) = (*s.layout(), (128u64 << 20) / 4096);
        s.write(0, 0, 128 << 20, false);
        random(&mut s, units, units * 5, op);
        let c = random(&mut s, units, units * 4, op + 1);
        let got = c.write_amplification();
        let total = f64::from(l.blocks - 3) * f64::from(l.units_per_block);
        let want = fifo_write_amplification(units as f64, total);
        println!("over-provisioning {op} %: {got:.3}, analysis {want:.3}");
        assert!((got / want - 1.0).abs() < 0.05, "{op} %: {got:.3}, analysis {want:.3}");
    }
}

/// Hot and cold data: cost-benefit copies less than greedy, which copies less than FIFO.
#[test]
fn cost_benefit_separates_hot_from_cold() {
    let copies = |victims: &str| {
        let mut s = device(&format!("mapping=page,victims={victims},pages_per_block=64"), 32 << 20);
        s.write(0, 0, 32 << 20, false);
        let mut rng = SplitMix64::new(4);
        for _ in 0..80_000 {
            // Nine of ten writes to a tenth of the space.
            let unit = match rng.below(10) {
                0 => 819 + rng.below(7373),
                _ => rng.below(819),
            };
            s.write(0, unit * 4096, 4096, false);
        }
        s.counters().gc_copies
    };
    let (cost_benefit, greedy, fifo) = (copies("cost-benefit"), copies("greedy"), copies("fifo"));
    println!("copies: cost-benefit {cost_benefit}, greedy {greedy}, fifo {fifo}");
    assert!(cost_benefit < greedy && greedy < fifo);
}

/// Under 16 bytes a flash page, and no more after a million writes.
#[test]
fn memory_is_bounded() {
    for scheme in SCHEMES {
        let mut s = device(&format!("{scheme},pages_per_block=128"), 256 << 20);
        let l = *s.layout();
        let pages = u64::from(l.blocks) * u64::from(l.pages_per_block);
        let before = s.memory_bytes();
        random(&mut s, 65_536, 100_000, 1);
        println!("{scheme}: {:.2} bytes a page", before as f64 / pages as f64);
        assert!(before < pages * 16 && s.memory_bytes() == before, "{scheme}");
    }
}
