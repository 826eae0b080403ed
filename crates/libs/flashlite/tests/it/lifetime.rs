//! Wear of a download: erases of default storage against FlashLite, rearranging included.
//!
//! ```text
//!   peers: packets, each at its own place -> buffer, then written and perhaps synced
//!     default    pages of the file, in place        FlashLite    the real library's log
//!   file system: directory, FAT or journal, once a second; the client's own .met files
//!   -> requests -> flash simulator: BAST, FAST, page mapping
//! ```
//! The paper (ch. IV, 4.4.2) has traces of eMule 0.49b fetching 3.3 GB to FAT32, replayed on its
//! emulator: 217,610 erases, with FlashLite 13,254. It does not tell peers, buffers or flash
//! blocks; the client's are eMule's own (parts of 9,728,000 bytes, requests of 180 KiB, packets of
//! 10 KiB, a buffer of 240 KiB). Blocks of 512 KiB are those at which the paper's 13,254 erases are
//! its 6.6 GB. The default is not charged for creating the file. Beside eMule's there are the
//! paper's BitTorrent, pieces of 256 KiB and no files of the client's own, and an eMule that
//! rewrites more of them. `cargo xtask run flashlite-lifetime` is the full form, on more devices,
//! with a sweep of what the paper does not tell.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Log, Options, Rearrange, Storage};
use syncline_nand::{Profile, Simulator};
use syncline_testkit::Random;

use crate::large::Forgetful;

pub const PAGE: u64 = 4096;

/// Way in which a client downloads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Client {
    name: &'static str,
    peers: usize,
    /// Bytes that a peer brings in a row.
    part: u64,
    /// Bytes of one packet.
    packet: u64,
    /// Bytes of packets that are written at once.
    buffer: u64,
    /// True if they are then synced.
    synced: bool,
    /// Files of the client's own that are replaced once a second, and pages of each.
    own_files: u64,
    own_pages: u64,
}

/// eMule: parts, packets and buffer are its own, one `.met` file.
const EMULE: Client = Client {
    name: "eMule",
    peers: 24,
    part: 9_728_000,
    packet: 10_240,
    buffer: 240 << 10,
    synced: true,
    own_files: 1,
    own_pages: 2,
};
/// BitTorrent with many peers: pieces of 256 KiB (4.4.2), blocks of 16 KiB written as they come.
const BITTORRENT: Client = Client {
    name: "BitTorrent",
    peers: 60,
    part: 256 << 10,
    packet: 16 << 10,
    buffer: 16 << 10,
    synced: false,
    own_files: 0,
    own_pages: 0,
};
/// eMule with lists of sources, statistics and preferences that change all the time.
const REWRITING: Client = Client { name: "rewriting", own_files: 8, own_pages: 4, ..EMULE };

/// Bytes downloaded between two updates of metadata: a second at 8 Mbit/s.
const SECOND: u64 = 1 << 20;
/// Dirty data that a file system keeps at most.
const DIRTY_MAX: usize = (16 << 20) / PAGE as usize;
/// A burst is sequential if it is longer than this.
const BURST_BYTES: u64 = 128 * 512;
/// Bytes of one request at most.
const REQUEST: u64 = 512 << 10;

/// File system below the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// Two copies of the table and the directory, all in place.
    Fat32,
    /// A journal, and inodes in place now and then.
    Ext4,
}

pub const META: u64 = 64 << 20;
const JOURNAL: u64 = 8 << 20;
const JOURNAL_BYTES: u64 = 32 << 20;
const MET: u64 = 48 << 20;

/// A device, and what reached it.
pub struct Disk {
    simulator: Simulator,
    now_ns: u64,
    format: Format,
    journal_at: u64,
    rounds: u64,
    burst: (u64, u64),
    /// Bytes in sequential bursts and all bytes: of the file or log, and of everything else.
    file: (u64, u64),
    rest: (u64, u64),
    requests: u64,
}

impl Disk {
    /// A device that was filled once, as one that is in use.
    pub fn new(spec: &str, size: u64, format: Format) -> Disk {
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
            file: (0, 0),
            rest: (0, 0),
            requests: 0,
        }
    }

    fn write(&mut self, at: u64, len: u64) {
        if self.burst.0 + self.burst.1 != at {
            self.end_burst();
            self.burst = (at, 0);
        }
        self.burst.1 += len;
        let mut done = 0;
        while done < len {
            let part = REQUEST.min(len - done);
            self.now_ns = self.simulator.write(self.now_ns, at + done, part, false);
            self.requests += 1;
            done += part;
        }
    }

    pub fn read(&mut self, at: u64, len: u64) {
        self.now_ns = self.simulator.read(self.now_ns, at, len);
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn end_burst(&mut self) {
        let (start, len) = std::mem::take(&mut self.burst);
        // Everything that is no file or log lies before them.
        let bytes = if start < META { &mut self.rest } else { &mut self.file };
        bytes.0 += if len > BURST_BYTES { len } else { 0 };
        bytes.1 += len;
    }

    fn flush(&mut self) {
        self.now_ns = self.simulator.flush(self.now_ns);
    }

    /// Writes the metadata that file system and client write once a second. `grown` is the position
    /// at which a file's space grew, if one did.
    fn metadata(&mut self, client: &Client, grown: Option<u64>) {
        self.rounds += 1;
        // Each new file of the client's own, at one of two places in turn.
        for file in 0..client.own_files {
            let len = client.own_pages * PAGE;
            self.write(MET + (2 * file + self.rounds % 2) * len, len);
        }
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
                if self.rounds % 30 == 0 {
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

    /// Shares of bytes in sequential bursts: of all that was written, and of the file or log alone.
    fn ratios(&mut self) -> (f64, f64) {
        self.end_burst();
        let all = (self.file.0 + self.rest.0) as f64 / self.written() as f64;
        (all, self.file.0 as f64 / self.file.1 as f64)
    }

    fn written(&self) -> u64 {
        self.file.1 + self.rest.1 + self.burst.1
    }
}

/// A file whose pages are at one stretch of the device. Contents other than zeros are kept.
pub struct OnDisk {
    disk: Arc<Mutex<Disk>>,
    base: u64,
    contents: Forgetful,
    dirty: Mutex<BTreeSet<u64>>,
}

impl OnDisk {
    pub fn new(disk: &Arc<Mutex<Disk>>, base: u64) -> Arc<OnDisk> {
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
    client: Client,
    size: u64,
    /// First bytes of parts that nobody fetches yet.
    parts: Vec<u64>,
    /// Of each peer the next byte and the end of its part.
    peers: Vec<(u64, u64)>,
}

impl Swarm {
    fn new(client: Client, size: u64, seed: u64) -> Swarm {
        let mut random = Random::new(seed);
        let mut parts: Vec<u64> = (0..size).step_by(client.part as usize).collect();
        for at in (1..parts.len()).rev() {
            parts.swap(at, random.index(at + 1));
        }
        Swarm { random, client, size, parts, peers: vec![(0, 0); client.peers] }
    }
}

impl Iterator for Swarm {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        while !self.peers.is_empty() {
            let peer = self.random.index(self.peers.len());
            let (at, end) = self.peers[peer];
            if at < end {
                let len = self.client.packet.min(end - at);
                self.peers[peer].0 += len;
                return Some((at, len));
            }
            match self.parts.pop() {
                Some(part) => self.peers[peer] = (part, (part + self.client.part).min(self.size)),
                None => drop(self.peers.swap_remove(peer)),
            }
        }
        None
    }
}

/// Cost of a download.
#[derive(Clone, Copy, Debug)]
struct Cost {
    erases: u64,
    written: u64,
    requests: u64,
    /// Of the download, without rearranging: of all that was written, and of its file or log.
    sequential: f64,
    own_sequential: f64,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
struct Case {
    client: Client,
    spec: String,
    format: Format,
    size: u64,
    seed: u64,
    /// Of the log.
    page_bytes: u32,
    /// True if file system and client write their metadata too, none of which goes to the log.
    metadata: bool,
}

/// Default page size of a log, in bytes.
const LOG_PAGE: u32 = 4096;

/// Fetches a file; `log` says whether through FlashLite.
fn download(case: &Case, log: bool) -> Cost {
    let Case { client, format, size, .. } = *case;
    let file_space = (size + size / 8).next_multiple_of(4 << 20);
    let disk = Disk::new(&case.spec, META + 2 * file_space + (16 << 20), format);
    let before = disk.erases();
    let disk = Arc::new(Mutex::new(disk));
    let file = OnDisk::new(&disk, META);
    let storage = OnDisk::new(&disk, META + file_space);
    let options = Options { page_bytes: case.page_bytes, ..Options::default() };
    let through = log.then(|| Log::create(storage.clone(), options).unwrap());
    let packet = vec![0; client.packet as usize];
    let (mut fetched, mut buffered) = (0, Vec::new());
    let flush = |buffered: &mut Vec<(u64, u64)>| {
        for (offset, len) in buffered.drain(..) {
            match &through {
                Some(log) => log.write_at(&packet[..len as usize], offset).unwrap(),
                None => file.touch(offset, len),
            }
        }
    };
    let sync = || match &through {
        Some(log) => log.sync_data().unwrap(),
        None => file.sync(),
    };
    for (offset, len) in Swarm::new(client, size, case.seed) {
        buffered.push((offset, len));
        fetched += len;
        if buffered.len() as u64 * client.packet >= client.buffer {
            flush(&mut buffered);
            if client.synced {
                sync();
            }
        }
        if case.metadata && fetched / SECOND != (fetched - len) / SECOND {
            let grown = through.as_ref().map(|log| log.info().log_bytes);
            disk.lock().metadata(&client, grown);
        }
    }
    flush(&mut buffered);
    sync();
    assert_eq!(fetched, size);
    let (sequential, own_sequential) = disk.lock().ratios();
    if let Some(log) = &through {
        let mut next = SECOND;
        let mut tell = |now: syncline_flashlite::Progress| {
            // Space grows as the file does.
            while case.metadata && now.done_bytes >= next {
                next += 64 * SECOND;
                disk.lock().metadata(&client, Some(now.done_bytes));
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
        written: disk.written(),
        requests: disk.requests,
        sequential,
        own_sequential,
    }
}

/// Superblocks of so many KiB with this mapping, and log blocks for those that have them.
fn hybrid(mapping: &str, block_kib: u64, log_blocks: u64) -> String {
    format!(
        "generic-emmc:mapping={mapping},log_blocks={log_blocks},channels=1,dies_per_channel=1,\
         planes=1,page_kib=4,pages_per_block={}",
        block_kib / 4
    )
}

/// Blocks of 512 KiB, as said above, and 16 of them for the log.
fn usual(mapping: &str) -> String {
    hybrid(mapping, 512, 16)
}

fn compare(what: &str, case: &Case) -> (Cost, Cost, f64) {
    let (plain, log) = (download(case, false), download(case, true));
    let share = log.erases as f64 / plain.erases as f64;
    let figures = |name: &str, cost: &Cost| {
        let Cost { erases, written, requests, sequential, own_sequential } = cost;
        format!(
            r#""{name}_erases":{erases},"{name}_bytes":{written},"{name}_requests":{requests},"#
        ) + &format!(r#""{name}_sequential":{sequential},"{name}_own":{own_sequential}"#)
    };
    let Case { client, format, seed, page_bytes, metadata, .. } = case;
    let place = format!(
        r#""device":"{what}","client":"{}","format":"{format:?}","seed":"{seed}""#,
        client.name
    );
    println!(
        r#"{{{place},"log_page":"{page_bytes}","metadata":"{metadata}",{},{}}}"#,
        figures("plain", &plain),
        figures("log", &log)
    );
    (plain, log, share)
}

/// The bounds: on BAST at most 8 % of eMule's erases, elsewhere no more than all of them; a
/// download that is sequential, but for the client's own files.
fn hold(client: Client, mapping: &str, format: Format, size: u64) -> (u64, u64) {
    let case = Case {
        client,
        spec: usual(mapping),
        format,
        size,
        seed: 1,
        page_bytes: LOG_PAGE,
        metadata: true,
    };
    let (plain, log, share) = compare(mapping, &case);
    // The files that a client rewrites are no part of the log, and short.
    assert!(log.sequential >= if client == REWRITING { 0.85 } else { 0.95 }, "{log:?}");
    assert!(log.own_sequential >= 0.98, "{log:?}");
    if client == EMULE {
        assert!(plain.sequential < 0.5, "{plain:?}");
        assert!(share <= if mapping == "bast" { 0.08 } else { 1.0 }, "{share}");
    }
    (plain.erases, log.erases)
}

/// Compares the cost of the file alone on devices as they are sold. The metadata that file system
/// and client write beside it is the same for both, and most of the writes with FlashLite.
fn without_metadata(size: u64) {
    for profile in ["ssd-mtron", "sd-2012", "emmc-n900"] {
        let case = Case {
            client: EMULE,
            spec: profile.into(),
            format: Format::Fat32,
            size,
            seed: 1,
            page_bytes: LOG_PAGE,
            metadata: false,
        };
        let (.., share) = compare(profile, &case);
        assert!(share <= 0.08, "{profile}: {share}");
    }
}

/// Every client on devices as they are sold and on every mapping, then what the paper leaves open,
/// one thing at a time.
fn full(size: u64) {
    let format = Format::Fat32;
    for profile in ["ssd-mtron", "sd-2012", "emmc-n900"] {
        let spec = profile.into();
        let case = Case {
            client: EMULE,
            spec,
            format,
            size,
            seed: 1,
            page_bytes: 16 << 10,
            metadata: true,
        };
        compare(profile, &case);
    }
    without_metadata(size);
    for client in [EMULE, BITTORRENT, REWRITING] {
        for profile in ["ssd-mtron", "sd-2012", "emmc-n900", "ssd-850pro"] {
            compare(
                profile,
                &Case {
                    client,
                    spec: profile.into(),
                    format,
                    size,
                    seed: 1,
                    page_bytes: LOG_PAGE,
                    metadata: true,
                },
            );
        }
    }
    for client in [EMULE, BITTORRENT, REWRITING] {
        for format in [Format::Fat32, Format::Ext4] {
            for mapping in ["bast", "fast", "page"] {
                hold(client, mapping, format, size);
            }
        }
    }
    let size = size / 4;
    let mut cases = Vec::new();
    for log_blocks in [4, 8, 16, 32, 64] {
        let spec = hybrid("bast", 512, log_blocks);
        cases.push((format!("bast, {log_blocks} log blocks"), EMULE, spec, 1));
    }
    for block_kib in [128, 256, 1024, 2048] {
        cases.push((format!("bast, {block_kib} KiB"), EMULE, hybrid("bast", block_kib, 16), 1));
    }
    for peers in [4, 12, 48, 96] {
        let client = Client { peers, ..EMULE };
        cases.push((format!("bast, {peers} peers"), client, usual("bast"), 1));
    }
    for buffer_kib in [10, 60, 1024, 4096] {
        let client = Client { buffer: buffer_kib << 10, ..EMULE };
        cases.push((format!("bast, buffer {buffer_kib} KiB"), client, usual("bast"), 1));
    }
    for seed in 2..=5 {
        cases.push(("bast".into(), EMULE, usual("bast"), seed));
    }
    for (what, client, spec, seed) in cases {
        compare(
            &what,
            &Case { client, spec, format, size, seed, page_bytes: LOG_PAGE, metadata: true },
        );
    }
}

#[test]
fn lifetime_of_a_download() {
    let mib = std::env::var("SYNCLINE_FLASHLITE_LIFETIME_MIB").unwrap_or_default();
    if let Ok(mib) = mib.trim().parse::<u64>() {
        full(mib << 20);
        return;
    }
    let found = [("bast", Format::Fat32), ("fast", Format::Fat32), ("bast", Format::Ext4)]
        .map(|(mapping, format)| hold(EMULE, mapping, format, 256 << 20));
    assert_eq!(found, [(20_212, 1100), (2206, 1355), (20_257, 1101)]);
    without_metadata(64 << 20);
    hold(BITTORRENT, "bast", Format::Fat32, 128 << 20);
    hold(REWRITING, "bast", Format::Ext4, 128 << 20);
}
