//! What a download wears out: erases of default storage against FlashLite, rearranging included.
//!
//! ```text
//!   peers: packets of 10 KiB, each at its own place -> buffer of 240 KiB, then written and synced
//!     default    pages of the file, in place        FlashLite    the real library's log
//!   file system: directory, FAT or journal, once a second; the client's own .met files
//!   -> requests -> flash simulator: BAST, FAST, page mapping
//! ```
//! The paper (ch. IV, 4.4.2) has traces of eMule 0.49b fetching 3.3 GB to FAT32, replayed on its
//! emulator: 217,610 erases, with FlashLite 13,254. It does not tell peers, buffers or flash
//! blocks; the client's are eMule's own (parts of 9,728,000 bytes, requests of 180 KiB, packets of
//! 10 KiB, a buffer of 240 KiB). Blocks of 512 KiB are those at which the paper's 13,254 erases are
//! its 6.6 GB. The default is not charged for creating the file. `make flashlite-lifetime` is the
//! full form.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Log, Options, Rearrange, Storage};
use syncline_nand::{Profile, Simulator};
use syncline_testkit::Random;

use crate::large::Forgetful;

const PAGE: u64 = 4096;
const PART: u64 = 9_728_000;
const PACKET: u64 = 10_240;
const BUFFER: u64 = 240 << 10;
/// Bytes downloaded between two updates of metadata: a second at 8 Mbit/s.
const SECOND: u64 = 1 << 20;
/// Dirty data that a file system keeps at most.
const DIRTY_MAX: usize = (16 << 20) / PAGE as usize;
/// A burst is sequential if it is longer than this.
const BURST_BYTES: u64 = 128 * 512;
/// Bytes of one request at most.
const REQUEST: u64 = 512 << 10;

/// What is below the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    /// Two copies of the table and the directory, all in place.
    Fat32,
    /// A journal, and inodes in place now and then.
    Ext4,
}

const META: u64 = 64 << 20;
const JOURNAL: u64 = 8 << 20;
const JOURNAL_BYTES: u64 = 32 << 20;
const MET: u64 = 48 << 20;

/// A device, and what reached it.
struct Disk {
    simulator: Simulator,
    now_ns: u64,
    format: Format,
    journal_at: u64,
    rounds: u64,
    burst: (u64, u64),
    sequential: u64,
    written: u64,
    requests: u64,
}

impl Disk {
    /// A device that was filled once, as one that is in use.
    fn new(spec: &str, size: u64, format: Format) -> Disk {
        let profile = Profile::parse_built_in(spec).unwrap();
        let mut simulator = Simulator::new(&profile, size).unwrap();
        let mut now_ns = 0;
        for at in (0..size).step_by(REQUEST as usize) {
            now_ns = simulator.write(now_ns, at, REQUEST.min(size - at), false);
        }
        now_ns = simulator.flush(now_ns);
        Disk {
            simulator,
            now_ns,
            format,
            journal_at: 0,
            rounds: 0,
            burst: (0, 0),
            sequential: 0,
            written: 0,
            requests: 0,
        }
    }

    fn write(&mut self, at: u64, len: u64) {
        if self.burst.0 + self.burst.1 != at {
            self.end_burst();
            self.burst = (at, 0);
        }
        self.burst.1 += len;
        self.written += len;
        let mut done = 0;
        while done < len {
            let part = REQUEST.min(len - done);
            self.now_ns = self.simulator.write(self.now_ns, at + done, part, false);
            self.requests += 1;
            done += part;
        }
    }

    fn end_burst(&mut self) {
        if self.burst.1 > BURST_BYTES {
            self.sequential += self.burst.1;
        }
        self.burst = (0, 0);
    }

    fn flush(&mut self) {
        self.now_ns = self.simulator.flush(self.now_ns);
    }

    /// What the file system and the client write once a second; `grown` is where a file's space
    /// grew, if one did.
    fn metadata(&mut self, grown: Option<u64>) {
        self.rounds += 1;
        // The new .met file, at one of two places in turn.
        self.write(MET + self.rounds % 2 * (2 * PAGE), 2 * PAGE);
        match self.format {
            Format::Fat32 => {
                if let Some(grown) = grown {
                    // Four bytes for each cluster of 4 KiB, in both copies.
                    let page = grown / (PAGE * PAGE / 4) * PAGE;
                    self.write(page, PAGE);
                    self.write((4 << 20) + page, PAGE);
                }
                self.write(MET - PAGE, PAGE);
            }
            Format::Ext4 => {
                // Descriptor, inode and directory blocks, bitmap and group where space grew,
                // commit.
                let blocks = if grown.is_some() { 6 } else { 4 };
                if self.journal_at + blocks * PAGE > JOURNAL_BYTES {
                    self.journal_at = 0;
                }
                self.write(JOURNAL + self.journal_at, blocks * PAGE);
                self.journal_at += blocks * PAGE;
                if self.rounds.is_multiple_of(30) {
                    self.write(0, 2 * PAGE);
                    self.write(1 << 20, 2 * PAGE);
                }
            }
        }
        self.flush();
    }

    fn erases(&self) -> u64 {
        self.simulator.counters().erases
    }

    fn ratio(&mut self) -> f64 {
        self.end_burst();
        self.sequential as f64 / self.written as f64
    }
}

/// A file whose pages are at one stretch of the device. Contents other than zeros are kept.
struct OnDisk {
    disk: Arc<Mutex<Disk>>,
    base: u64,
    contents: Forgetful,
    dirty: Mutex<BTreeSet<u64>>,
}

impl OnDisk {
    fn new(disk: &Arc<Mutex<Disk>>, base: u64) -> Arc<OnDisk> {
        let (contents, dirty) = (Forgetful::default(), Mutex::default());
        Arc::new(OnDisk { disk: Arc::clone(disk), base, contents, dirty })
    }

    /// Marks pages; writes them out if there are too many.
    fn touch(&self, offset: u64, len: u64) {
        let mut dirty = self.dirty.lock();
        dirty.extend(offset / PAGE..(offset + len).div_ceil(PAGE));
        if dirty.len() >= DIRTY_MAX {
            self.write_back(&mut dirty);
        }
    }

    /// All dirty pages, ascending, those in a row together.
    fn write_back(&self, dirty: &mut BTreeSet<u64>) {
        let mut disk = self.disk.lock();
        let mut run: Option<(u64, u64)> = None;
        for page in std::mem::take(dirty) {
            match &mut run {
                Some((start, pages)) if *start + *pages == page => *pages += 1,
                _ => {
                    if let Some((start, pages)) = run.replace((page, 1)) {
                        disk.write(self.base + start * PAGE, pages * PAGE);
                    }
                }
            }
        }
        if let Some((start, pages)) = run {
            disk.write(self.base + start * PAGE, pages * PAGE);
        }
    }

    fn sync(&self) {
        self.write_back(&mut self.dirty.lock());
        self.disk.lock().flush();
    }
}

impl Storage for OnDisk {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.contents.read_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.touch(offset, parts.iter().map(|part| part.len() as u64).sum());
        self.contents.write_at(parts, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.contents.len()
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.contents.set_len(len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync();
        Ok(())
    }
}

/// The order in which the packets of a file arrive: offset and length.
struct Swarm {
    random: Random,
    size: u64,
    /// First bytes of parts that nobody fetches yet.
    parts: Vec<u64>,
    /// Of each peer the next byte and the end of its part.
    peers: Vec<(u64, u64)>,
}

impl Swarm {
    fn new(size: u64, peers: usize, seed: u64) -> Swarm {
        let mut random = Random::new(seed);
        let mut parts: Vec<u64> = (0..size).step_by(PART as usize).collect();
        for at in (1..parts.len()).rev() {
            parts.swap(at, random.index(at + 1));
        }
        Swarm { random, size, parts, peers: vec![(0, 0); peers] }
    }
}

impl Iterator for Swarm {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        while !self.peers.is_empty() {
            let peer = self.random.index(self.peers.len());
            let (at, end) = self.peers[peer];
            if at < end {
                let len = PACKET.min(end - at);
                self.peers[peer].0 += len;
                return Some((at, len));
            }
            match self.parts.pop() {
                Some(part) => self.peers[peer] = (part, (part + PART).min(self.size)),
                None => drop(self.peers.swap_remove(peer)),
            }
        }
        None
    }
}

/// What a download cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    erases: u64,
    written: u64,
    requests: u64,
    /// Of the download, without rearranging.
    sequential: f64,
}

const PEERS: usize = 24;

/// Fetches a file; `log` says whether through FlashLite.
fn download(spec: &str, format: Format, size: u64, log: bool, seed: u64) -> Cost {
    let file_space = (size + size / 8).next_multiple_of(4 << 20);
    let disk = Disk::new(spec, META + 2 * file_space + (16 << 20), format);
    let before = disk.erases();
    let disk = Arc::new(Mutex::new(disk));
    let file = OnDisk::new(&disk, META);
    let storage = OnDisk::new(&disk, META + file_space);
    let through = log.then(|| Log::create(storage.clone(), Options::default()).unwrap());
    let packet = vec![0; PACKET as usize];
    let (mut fetched, mut buffered) = (0, Vec::new());
    let flush = |buffered: &mut Vec<(u64, u64)>| {
        for (offset, len) in buffered.drain(..) {
            match &through {
                Some(log) => log.write_at(&packet[..len as usize], offset).unwrap(),
                None => file.touch(offset, len),
            }
        }
        match &through {
            Some(log) => log.sync_data().unwrap(),
            None => file.sync(),
        }
    };
    for (offset, len) in Swarm::new(size, PEERS, seed) {
        buffered.push((offset, len));
        fetched += len;
        if buffered.len() as u64 * PACKET >= BUFFER {
            flush(&mut buffered);
        }
        if fetched / SECOND != (fetched - len) / SECOND {
            let grown = through.as_ref().map(|log| log.info().log_bytes);
            disk.lock().metadata(grown);
        }
    }
    flush(&mut buffered);
    assert_eq!(fetched, size);
    let sequential = disk.lock().ratio();
    if let Some(log) = &through {
        let mut next = SECOND;
        let mut tell = |now: syncline_flashlite::Progress| {
            // Space grows as the file does.
            while now.done_bytes >= next {
                next += 64 * SECOND;
                disk.lock().metadata(Some(now.done_bytes));
            }
            ControlFlow::Continue(())
        };
        log.rearrange_to(&*file, Rearrange::default(), &mut tell).unwrap();
        file.sync();
    }
    let disk = disk.lock();
    disk.simulator.check().unwrap();
    Cost {
        erases: disk.erases() - before,
        written: disk.written,
        requests: disk.requests,
        sequential,
    }
}

/// Blocks of 512 KiB, as said above.
const GEOMETRY: &str = "channels=1,dies_per_channel=1,planes=1,page_kib=4,pages_per_block=128";

fn spec(mapping: &str) -> String {
    format!("generic-emmc:mapping={mapping},log_blocks=16,{GEOMETRY}")
}

fn compare(mapping: &str, format: Format, size: u64) -> (Cost, Cost, f64) {
    let plain = download(&spec(mapping), format, size, false, 1);
    let log = download(&spec(mapping), format, size, true, 1);
    let share = log.erases as f64 / plain.erases as f64;
    println!(
        "{mapping:5} {format:?}: erases {} -> {} ({:.1} %), written {:.2} -> {:.2} MiB, \
         requests {} -> {}, sequential {:.1} -> {:.1} %",
        plain.erases,
        log.erases,
        share * 100.0,
        plain.written as f64 / f64::from(1 << 20),
        log.written as f64 / f64::from(1 << 20),
        plain.requests,
        log.requests,
        plain.sequential * 100.0,
        log.sequential * 100.0,
    );
    (plain, log, share)
}

/// The bounds: on BAST at most 8 % of the erases; everywhere a download that is sequential.
fn hold(mapping: &str, format: Format, size: u64) -> (u64, u64) {
    let (plain, log, share) = compare(mapping, format, size);
    assert!(log.sequential >= 0.95, "{log:?}");
    assert!(plain.sequential < 0.5, "{plain:?}");
    assert!(share <= if mapping == "bast" { 0.08 } else { 1.0 }, "{share}");
    (plain.erases, log.erases)
}

#[test]
fn lifetime_of_a_download() {
    let mib = std::env::var("SYNCLINE_FLASHLITE_LIFETIME_MIB").unwrap_or_default();
    if let Ok(mib) = mib.trim().parse::<u64>() {
        for format in [Format::Fat32, Format::Ext4] {
            for mapping in ["bast", "fast", "page"] {
                hold(mapping, format, mib << 20);
            }
        }
        return;
    }
    assert_eq!(hold("bast", Format::Fat32, 256 << 20), (20_212, 1100));
    assert_eq!(hold("fast", Format::Fat32, 256 << 20), (2206, 1353));
    assert_eq!(hold("bast", Format::Ext4, 256 << 20), (20_257, 1101));
}
