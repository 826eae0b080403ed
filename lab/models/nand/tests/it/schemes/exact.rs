//! Counts and times worked out by hand, for each scheme.

use super::{SMALL, simulator};
use syncline_nand::{Counters, Simulator};

/// A device of 8 superblocks of 8 units, written once from begin to end.
fn filled(options: &str) -> Simulator {
    let mut s = simulator(&format!("{SMALL},{options}"), 8 * 8 * 4096);
    write(&mut s, 0, 64);
    let c = s.counters();
    assert_eq!((c.page_programs, c.erases), (64, 0), "all in their places");
    s
}

fn write(s: &mut Simulator, unit: u64, units: u64) {
    s.write(0, unit * 4096, units * 4096, false);
    s.check().unwrap();
}

/// Merges (switch, partial, full), units copied, erases.
fn merges(c: &Counters) -> (u64, u64, u64, u64, u64) {
    (c.switch_merges, c.partial_merges, c.full_merges, c.merge_copies, c.erases)
}

#[test]
fn bast_merges_by_kind() {
    let mut s = filled("mapping=bast,log_blocks=2");
    write(&mut s, 0, 8); // superblock 0 in order: its log block is complete
    assert_eq!(merges(&s.counters()), (0, 0, 0, 0, 0));
    write(&mut s, 0, 1); // one more: the log block becomes the data block, the old one is erased
    assert_eq!(merges(&s.counters()), (1, 0, 0, 0, 1));
    write(&mut s, 8, 3); // superblock 1: places 0 to 2
    write(&mut s, 16 + 5, 1); // superblock 2 needs a log block: 0 has place 0 of 8, 7 are copied
    assert_eq!(merges(&s.counters()), (1, 1, 0, 7, 2));
    write(&mut s, 24 + 5, 1); // superblock 3 takes that of 1: 5 are copied
    assert_eq!(merges(&s.counters()), (1, 2, 0, 12, 3));
    write(&mut s, 32, 1); // superblock 4 takes that of 2: all 8 are copied, 2 erases
    assert_eq!(merges(&s.counters()), (1, 2, 1, 20, 5));
    assert_eq!(s.counters().page_programs, 64 + 8 + 1 + 3 + 1 + 1 + 1 + 20);
}

#[test]
fn fast_merges_by_kind() {
    let mut s = filled("mapping=fast,log_blocks=1");
    write(&mut s, 0, 8); // in the sequential log block, complete
    write(&mut s, 8, 3); // place 0 of another superblock: switch merge, then 3 in order
    assert_eq!(merges(&s.counters()), (1, 0, 0, 0, 1));
    write(&mut s, 8 + 5, 1); // out of order: partial merge with 5 copies, then into the ring
    assert_eq!(merges(&s.counters()), (1, 1, 0, 5, 2));
    for superblock in 2..8 {
        write(&mut s, superblock * 8 + 1, 1); // six more in the ring
    }
    write(&mut s, 2 * 8 + 1, 1); // a second copy of the first of them: the ring is full
    assert_eq!(merges(&s.counters()), (1, 1, 0, 5, 2));
    write(&mut s, 2 * 8 + 2, 1); // reclaims: superblocks 1 and 2 to 7, once each, and the log block
    assert_eq!(merges(&s.counters()), (1, 1, 7, 5 + 7 * 8, 2 + 7 + 1));
}

#[test]
fn block_mapping_copies_around_what_is_written() {
    let mut s = filled("mapping=block,log_blocks=1");
    write(&mut s, 2, 2); // copies 0 and 1
    assert_eq!(merges(&s.counters()), (0, 0, 0, 2, 0));
    write(&mut s, 6, 1); // copies 4 and 5
    write(&mut s, 3, 1); // backwards: copies 7, ends, and copies 0 to 2 anew
    assert_eq!(merges(&s.counters()), (0, 1, 0, 2 + 2 + 1 + 3, 1));
    write(&mut s, 8, 8); // ends it with copies of 4 to 7, and replaces superblock 1 as a whole
    assert_eq!(merges(&s.counters()), (0, 2, 0, 8 + 4, 2));
    write(&mut s, 16, 1);
    assert_eq!(merges(&s.counters()), (1, 2, 0, 12, 3));
}

/// A write of a part waits in a register for the rest; a flush reads and programs it.
#[test]
fn partial_units_are_completed_in_ram_or_read() {
    let spec = format!("{SMALL},mapping=bast,log_blocks=2,page_kib=16,map_unit_kib=16");
    let mut s = simulator(&spec.replace("buffer_kib=0", "buffer_kib=128"), 8 * 8 * 16384);
    let now = s.write(0, 0, 64 * 16384, false);
    let now = s.flush(now);
    let before = s.counters();
    let mut now = s.write(now, 4096, 4096, false);
    for part in [2, 3, 0] {
        now = s.write(now, part * 4096, 4096, false);
    }
    let c = s.counters().since(&before);
    assert_eq!((c.page_programs, c.rmw_reads, c.coalesced_units), (1, 0, 3));
    now = s.write(now, 16384, 4096, false);
    now = s.write(now, 16384 + 8192, 4096, false);
    now = s.flush(now);
    let c = s.counters().since(&before);
    assert_eq!((c.page_programs, c.rmw_reads, c.coalesced_units), (2, 1, 4), "a hole was read");
    // A third register: the oldest of the two is programmed for it.
    for unit in 2..5 {
        now = s.write(now, unit * 16384, 512, false);
    }
    assert_eq!(s.counters().since(&before).page_programs, 3);
    s.discard(now, 3 * 16384, 16384);
    s.flush(now);
    assert_eq!(s.counters().since(&before).page_programs, 4, "one was discarded in RAM");
    s.check().unwrap();
    assert_eq!(s.locate(3), None);
}

#[test]
fn discarded_superblocks_cost_no_copies() {
    for mapping in ["bast", "fast", "block"] {
        let mut s = filled(&format!("mapping={mapping},log_blocks=2"));
        s.discard(0, 0, 32 * 4096);
        s.check().unwrap();
        write(&mut s, 0, 32);
        let c = s.counters();
        assert_eq!((c.discarded_units, merges(&c)), (32, (0, 0, 0, 0, 4)), "{mapping}");
    }
}

/// The host waits for a merge: 8 units copied on one die, two erases.
#[test]
fn a_merge_takes_its_copies_and_erases() {
    let options = "mapping=bast,log_blocks=1,read_us=50,program_us=900,erase_us=3000,\
                   channel_mb_per_s=4096,bus_mb_per_s=4096,command_us=0,request_us=0,close_us=7";
    let mut s = filled(options);
    let now = s.write(10_000_000_000, 3 * 4096, 4096, false);
    let done = s.write(now, 11 * 4096, 4096, false);
    let copies = 8 * (50_000 + 2 * 1000 + 900_000);
    let expected = 1000 + copies + 3_000_000 + 7_000 + 3_000_000 + 1000 + 900_000;
    assert_eq!(done - now, expected);
}
