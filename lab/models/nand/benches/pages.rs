//! Page writes from a file on a plain page map, or BAST, for `lab/scripts/compare.py`,
//! `compare_femu.py` and `compare_flashsim.py`: no streams, no map cache, one 4 KiB unit a page,
//! greedy or first-in-first-out collection, one request at a time. A read takes 40 us, a program
//! 200 us and an erase 2 ms; transfers and commands take next to nothing.
//!
//! `pages FILE FILL WARM PAGES_PER_BLOCK OVER_PROVISIONING_PERCENT VICTIMS DIES`: FILE is a list of
//! page numbers, 32 bits each, little endian; the first FILL of them are the fill and name every
//! page of the device once, WARM more are played before anything is counted. VICTIMS `bast:N` is
//! BAST with N log blocks. Every die has a channel of its own. Prints one line of JSON.

use std::time::Instant;
use syncline_nand::{Profile, Simulator};

const PAGE_BYTES: u64 = 4096;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [file, fill, warm, pages_per_block, spare, victims, dies] = words.as_slice() else {
        println!("nothing to play; lab/scripts/compare.py run this");
        return;
    };
    let number = |word: &String| word.parse::<usize>().expect("a number");
    let bytes = std::fs::read(file).expect("the list of pages can be read");
    let word = |four: &[u8]| u64::from(u32::from_le_bytes(four.try_into().expect("of four bytes")));
    let pages: Vec<u64> = bytes.chunks_exact(4).map(word).collect();
    let (fill, warm) = (number(fill), number(warm));
    let scheme = match victims.strip_prefix("bast:") {
        Some(log_blocks) => format!("mapping=bast,log_blocks={log_blocks}"),
        None => format!("mapping=page,victims={victims}"),
    };
    let spec = format!(
        "generic-emmc:channels={dies},dies_per_channel=1,planes=1,page_kib=4,map_unit_kib=4,\
         pages_per_block={pages_per_block},over_provisioning_percent={spare},buffer_kib=0,\
         queue_depth=1,{scheme},streams=1,merge_kib=4,\
         close_map_programs=0,map_cache_segments=0,wear_gap=0,read_us=40,program_us=200,\
         erase_us=2000,channel_mb_per_s=100000,bus_mb_per_s=100000,command_us=0,request_us=0"
    );
    let profile = Profile::parse_built_in(&spec).expect("the profile above is valid");
    let mut device =
        Simulator::new(&profile, fill as u64 * PAGE_BYTES).expect("and so is its size");
    let play = |device: &mut Simulator, pages: &[u64], mut now_ns: u64| {
        for page in pages {
            now_ns = device.write(now_ns, page * PAGE_BYTES, PAGE_BYTES, false);
        }
        now_ns
    };
    let from_ns = play(&mut device, &pages[..fill + warm], 0);
    let (before, worn) = (device.counters(), device.erases().to_vec());
    let started = Instant::now();
    let to_ns = play(&mut device, &pages[fill + warm..], from_ns);
    let elapsed_s = started.elapsed().as_secs_f64();
    let c = device.counters().since(&before);
    let most = device.erases().iter().zip(&worn).map(|(now, then)| now - then).max();
    println!(
        "{{\"blocks\": {}, \"reserve\": {}, \"host_writes\": {}, \"programs\": {}, \"erases\": {}, \
         \"erases_max\": {}, \"device_s\": {}, \"elapsed_s\": {elapsed_s}}}",
        device.layout().blocks,
        syncline_nand::FREE_BLOCKS_MIN,
        c.host_units,
        c.programmed_bytes / PAGE_BYTES,
        c.erases,
        most.unwrap_or(0),
        (to_ns - from_ns) as f64 / 1e9,
    );
}
