//! Cost of maps that are not all in RAM: zones, and single entries of DFTL.

use super::{SMALL, simulator};
use syncline_nand::{Counters, Simulator};

/// Pages of 4 KiB, 1,024 entries in a map page. Zones of 8 MiB have 2,048 units: two map pages.
fn device(options: &str) -> Simulator {
    let spec = format!("{SMALL},pages_per_block=64,streams=1,merge_kib=4,close_map_programs=0");
    simulator(&format!("{spec},over_provisioning_percent=20,{options}"), 32 << 20)
}

fn maps(c: &Counters) -> (u64, u64) {
    (c.map_reads, c.map_programs)
}

#[test]
fn a_zone_is_loaded_and_left_as_a_whole() {
    let mut s = device("mapping=zone,map_segment_kib=8192,map_cache_segments=1");
    s.read(0, 0, 4096);
    s.write(0, 8188 << 10, 4096, false); // the same zone
    assert_eq!(maps(&s.counters()), (2, 0));
    s.read(0, 8192 << 10, 4096); // the next: the changed one is programmed
    assert_eq!(maps(&s.counters()), (4, 2));
    s.read(0, 0, 4096); // back: what is left was not changed
    assert_eq!(maps(&s.counters()), (6, 2));
    s.write(0, 8188 << 10, 8192, false); // over the border
    assert_eq!(maps(&s.counters()), (8, 4));
    let mut two = device("mapping=zone,map_segment_kib=8192,map_cache_segments=2");
    for _ in 0..100 {
        two.write(0, 0, 4096, false);
        two.write(0, 8192 << 10, 4096, false);
    }
    assert_eq!(maps(&two.counters()), (4, 0), "two working zones stay loaded");
}

#[test]
fn dftl_loads_entries_and_programs_changed_ones_together() {
    let mut s = device("mapping=dftl,map_segment_kib=4096,map_cache_entries=3");
    for unit in [0, 1, 2, 1] {
        s.write(0, unit * 4096, 4096, false);
    }
    assert_eq!(maps(&s.counters()), (3, 0));
    s.read(0, 9 * 4096, 4096); // evicts 0, which was changed: its map page has 1 and 2 as well
    assert_eq!(maps(&s.counters()), (5, 1));
    s.read(0, 10 * 4096, 4096); // evicts 2, whose change is in flash already
    assert_eq!(maps(&s.counters()), (6, 1));
    s.read(0, 4096, 4096);
    assert_eq!(maps(&s.counters()), (6, 1), "still there");
}

/// A collection changes the maps of what it moves.
#[test]
fn collection_pays_for_maps_that_are_not_in_ram() {
    let run = |options: &str| {
        let mut s = device(options);
        s.precondition(90, 1);
        let mut unit = 0;
        for _ in 0..4000 {
            unit = (unit + 389) % 1000; // one map page; what is moved belongs to all eight
            s.write(0, unit * 4096, 4096, false);
        }
        s.check().unwrap();
        s.counters()
    };
    let all = run("mapping=page,map_cache_segments=0");
    let zone = run("mapping=zone,map_segment_kib=4096,map_cache_segments=1");
    let dftl = run("mapping=dftl,map_segment_kib=4096,map_cache_entries=1000");
    for c in [zone, dftl] {
        assert_eq!((c.gc_runs, c.gc_copies), (all.gc_runs, all.gc_copies), "the data is the same");
    }
    assert_eq!(all.map_programs, 0);
    let most = zone.gc_runs * 8;
    assert!(zone.map_programs > 0 && zone.map_programs <= most, "{zone:?}");
    assert!(dftl.map_programs > 0 && dftl.map_programs <= most, "{dftl:?}");
}
