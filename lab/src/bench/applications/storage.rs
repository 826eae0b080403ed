//! Storage of a phone: one device, or a combination of several.
//!
//! ```text
//!   submit ──> MemoryDevice (contents, by logical address)
//!        └───> route ──> Simulator, Simulator, fast region     each with its own time
//!                  clock.sleep_until(the last of them)
//! ```
//!
//! - One device: every request goes there.
//! - Stripes: pieces of 64 KiB go to one of two devices in turn, which work at the same time.
//! - Fast region: pages of the journal, of metadata, and of synchronous writes go to a small memory
//!   without garbage collection while it has room; its pages stay there.
//!
//! It also counts what chapter III of the informed-storage paper counts: the time in which the
//! storage was busy, and bytes in bursts longer than 128 sectors against the rest. Contents survive
//! as long as the process: the map of the fast region is in memory, so this estimates the benefit
//! of a second medium; it is not a driver for one. Tested here.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use syncline_device::{
    BURST_SECTORS, BlockDevice, Clock, DeviceError, Geometry, Kind, MemoryDevice, Op, Request,
    SECTOR_BYTES,
};
use syncline_nand::{NandError, Profile, Simulator};

/// Stripe of two devices.
const STRIPE_BYTES: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// Phase-change memory of 2012: 40 MB/s programmed, 400 MB/s read (Y. Choi and others, "A 20nm 1.8V
/// 8Gb PRAM with 40MB/s program bandwidth", ISSCC 2012).
const FAST_WRITE_NS_PER_PAGE: u64 = 102_400;
const FAST_READ_NS_PER_PAGE: u64 = 10_240;

/// Routing of requests to devices.
#[derive(Clone, Debug)]
pub(super) enum Layout {
    /// Everything to the first.
    One,
    /// Stripes over the first two.
    Stripes,
    /// Journal, metadata and awaited writes to a fast region of so many bytes, while it has room.
    FastRegion(u64),
}

/// Bytes by burst, and busy time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageCounts {
    /// Time with at least one request under way, ns.
    pub busy_ns: u64,
    /// Bytes written in bursts longer than 128 sectors.
    pub sequential_written_bytes: u64,
    /// Bytes written in others.
    pub random_written_bytes: u64,
    /// Bytes read in bursts longer than 128 sectors.
    pub sequential_read_bytes: u64,
    /// Bytes read in others.
    pub random_read_bytes: u64,
    /// Flash pages programmed, of all devices; the fast region has none.
    pub nand_page_programs: u64,
    /// Superblocks erased, of all devices.
    pub nand_erases: u64,
}

impl StorageCounts {
    /// Adds those of another run.
    pub fn add(&mut self, more: &StorageCounts) {
        self.busy_ns += more.busy_ns;
        self.sequential_written_bytes += more.sequential_written_bytes;
        self.random_written_bytes += more.random_written_bytes;
        self.sequential_read_bytes += more.sequential_read_bytes;
        self.random_read_bytes += more.random_read_bytes;
        self.nand_page_programs += more.nand_page_programs;
        self.nand_erases += more.nand_erases;
    }
}

impl std::ops::Sub for StorageCounts {
    type Output = StorageCounts;

    fn sub(self, before: StorageCounts) -> StorageCounts {
        StorageCounts {
            busy_ns: self.busy_ns - before.busy_ns,
            sequential_written_bytes: self.sequential_written_bytes
                - before.sequential_written_bytes,
            random_written_bytes: self.random_written_bytes - before.random_written_bytes,
            sequential_read_bytes: self.sequential_read_bytes - before.sequential_read_bytes,
            random_read_bytes: self.random_read_bytes - before.random_read_bytes,
            nand_page_programs: self.nand_page_programs - before.nand_page_programs,
            nand_erases: self.nand_erases - before.nand_erases,
        }
    }
}

/// Requests in one direction that continue each other.
#[derive(Debug, Default)]
struct Burst {
    end: u64,
    bytes: u64,
}

impl Burst {
    /// Takes a request; the burst before it goes to `sequential` or `random` if it ends here.
    fn take(&mut self, offset: u64, len: u64, sequential: &mut u64, random: &mut u64) {
        if offset != self.end {
            self.finish(sequential, random);
        }
        self.end = offset + len;
        self.bytes += len;
    }

    fn finish(&mut self, sequential: &mut u64, random: &mut u64) {
        let long = self.bytes > BURST_SECTORS * SECTOR_BYTES;
        *if long { sequential } else { random } += std::mem::take(&mut self.bytes);
        self.end = u64::MAX;
    }
}

struct State {
    members: Vec<Simulator>,
    /// Pages in the fast region.
    fast: HashSet<u64>,
    fast_free_ns: u64,
    counts: StorageCounts,
    written: Burst,
    read: Burst,
}

/// The device under the volume.
pub(super) struct Storage {
    contents: MemoryDevice,
    clock: Arc<dyn Clock>,
    layout: Layout,
    geometry: Geometry,
    state: Mutex<State>,
}

impl Storage {
    /// A device that holds `contents`, made of `profiles`: two for stripes, else one.
    pub(super) fn new(
        profiles: &[&Profile],
        layout: Layout,
        contents: MemoryDevice,
        clock: Arc<dyn Clock>,
    ) -> Result<Storage, NandError> {
        let below = contents.geometry();
        let members = profiles.iter().map(|profile| Simulator::new(profile, below.size_bytes));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let buffered = profiles.iter().any(|profile| profile.buffer.is_volatile());
        let fua =
            profiles.iter().all(|profile| profile.buffer.fua || !profile.buffer.is_volatile());
        let geometry = Geometry { volatile_cache: buffered, fua, discard: false, ..below };
        let state = State {
            members,
            fast: HashSet::new(),
            fast_free_ns: 0,
            counts: StorageCounts::default(),
            written: Burst::default(),
            read: Burst::default(),
        };
        Ok(Storage { contents, clock, layout, geometry, state: Mutex::new(state) })
    }

    /// Counts so far; a burst that has not ended counts as it is.
    pub(super) fn counts(&self) -> StorageCounts {
        let mut state = self.lock();
        let State { members, counts, written, read, .. } = &mut *state;
        written.finish(&mut counts.sequential_written_bytes, &mut counts.random_written_bytes);
        read.finish(&mut counts.sequential_read_bytes, &mut counts.random_read_bytes);
        let flash = || members.iter().map(Simulator::counters);
        counts.nand_page_programs = flash().map(|c| c.page_programs + c.map_programs).sum();
        counts.nand_erases = flash().map(|c| c.erases + c.map_erases).sum();
        *counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves counts and models whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for Storage {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.contents.submit(batch)?;
        let now_ns = self.clock.now_ns();
        let mut state = self.lock();
        let mut done_ns = now_ns;
        for request in batch.iter() {
            state.count(request);
            done_ns = done_ns.max(state.model(&self.layout, request, now_ns, self.geometry.fua));
        }
        state.counts.busy_ns += done_ns - now_ns;
        drop(state);
        self.clock.sleep_until(done_ns);
        Ok(())
    }
}

impl State {
    fn count(&mut self, request: &Request<'_>) {
        let (offset, len) = (request.offset_bytes, request.len_bytes());
        let StorageCounts {
            sequential_written_bytes,
            random_written_bytes,
            sequential_read_bytes,
            random_read_bytes,
            ..
        } = &mut self.counts;
        match request.op {
            Op::Read { .. } => {
                self.read.take(offset, len, sequential_read_bytes, random_read_bytes);
            }
            Op::Write { .. } => {
                self.written.take(offset, len, sequential_written_bytes, random_written_bytes);
            }
            Op::Flush | Op::Discard { .. } => {}
        }
    }

    /// Returns when a request is done.
    fn model(&mut self, layout: &Layout, request: &Request<'_>, now_ns: u64, fua: bool) -> u64 {
        let (offset, len) = (request.offset_bytes, request.len_bytes());
        match layout {
            Layout::FastRegion(bytes) if self.is_fast(request, *bytes) => {
                let pages = len.div_ceil(PAGE_BYTES);
                let each = match request.op {
                    Op::Write { .. } => FAST_WRITE_NS_PER_PAGE,
                    _ => FAST_READ_NS_PER_PAGE,
                };
                self.fast_free_ns = self.fast_free_ns.max(now_ns) + pages * each;
                return self.fast_free_ns;
            }
            Layout::Stripes if !matches!(request.op, Op::Flush) => {
                return self.striped(request, now_ns, fua);
            }
            _ => {}
        }
        let every = matches!(layout, Layout::Stripes);
        let members = if every { self.members.len() } else { 1 };
        let done = self.members.iter_mut().take(members);
        let done = done.map(|member| one(member, request, offset, len, now_ns, fua));
        done.max().unwrap_or(now_ns)
    }

    /// Reports whether all pages of a request are in the fast region; writes that belong there
    /// take room.
    fn is_fast(&mut self, request: &Request<'_>, bytes: u64) -> bool {
        let first = request.offset_bytes / PAGE_BYTES;
        let pages = first..(request.offset_bytes + request.len_bytes()).div_ceil(PAGE_BYTES);
        let here = match request.op {
            Op::Read { .. } => pages.clone().all(|page| self.fast.contains(&page)),
            Op::Write { .. } => {
                let origin = request.origin;
                let critical = matches!(origin.kind, Kind::Journal | Kind::Metadata) || origin.sync;
                let new = pages.clone().filter(|page| !self.fast.contains(page)).count() as u64;
                let room = (self.fast.len() as u64 + new) * PAGE_BYTES <= bytes;
                new == 0 || critical && room
            }
            Op::Flush | Op::Discard { .. } => false,
        };
        if matches!(request.op, Op::Write { .. }) {
            if here {
                self.fast.extend(pages);
            } else {
                // The newest copy is on the other medium now.
                for page in pages {
                    self.fast.remove(&page);
                }
            }
        }
        here
    }

    /// Pieces of a request on both members; each keeps its half at half the address.
    fn striped(&mut self, request: &Request<'_>, now_ns: u64, fua: bool) -> u64 {
        let (mut at, end) = (request.offset_bytes, request.offset_bytes + request.len_bytes());
        let count = self.members.len() as u64;
        let mut runs: Vec<Option<(u64, u64)>> = vec![None; self.members.len()];
        while at < end {
            let stripe = at / STRIPE_BYTES;
            let len = (STRIPE_BYTES - at % STRIPE_BYTES).min(end - at);
            let local = stripe / count * STRIPE_BYTES + at % STRIPE_BYTES;
            if let Some(run) = runs.get_mut((stripe % count) as usize) {
                // Stripes of one request follow each other on a member.
                let (start, had) = run.unwrap_or((local, 0));
                *run = Some((start, had + len));
            }
            at += len;
        }
        let done = self.members.iter_mut().zip(runs).filter_map(|(member, run)| {
            let (offset, len) = run?;
            Some(one(member, request, offset, len, now_ns, fua))
        });
        done.max().unwrap_or(now_ns)
    }
}

fn one(
    member: &mut Simulator,
    request: &Request<'_>,
    offset: u64,
    len: u64,
    now_ns: u64,
    with_fua: bool,
) -> u64 {
    match &request.op {
        Op::Read { .. } => member.read(now_ns, offset, len),
        Op::Write { fua, .. } => {
            let life = request.origin.life;
            member.write_with_life(now_ns, offset, len, *fua && with_fua, life)
        }
        Op::Flush => member.flush(now_ns),
        Op::Discard { .. } => now_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::{Origin, VirtualClock};

    fn storage(spec: &[&str], layout: Layout) -> (Storage, Arc<VirtualClock>) {
        let clock = Arc::new(VirtualClock::default());
        let profiles: Vec<Profile> =
            spec.iter().map(|name| Profile::parse_built_in(name).unwrap()).collect();
        let profiles: Vec<&Profile> = profiles.iter().collect();
        let contents = MemoryDevice::new(64 << 20);
        (Storage::new(&profiles, layout, contents, clock.clone()).unwrap(), clock)
    }

    const DATA: Origin = Origin::new(Kind::Data { inode: 7 }, false);

    #[test]
    fn bursts_are_told_from_scattered_requests() {
        let (storage, clock) = storage(&["emmc-nexus-s"], Layout::One);
        let start_ns = clock.now_ns();
        let long = vec![7; 96 << 10];
        storage.write(0, &long, DATA).unwrap();
        storage.write(1 << 20, &long[..4096], DATA).unwrap();
        let mut back = vec![0; 4096];
        storage.read(1 << 20, &mut back, DATA).unwrap();
        assert_eq!(back, long[..4096]);
        let counts = storage.counts();
        assert_eq!(counts.sequential_written_bytes, 96 << 10);
        assert_eq!((counts.random_written_bytes, counts.random_read_bytes), (4096, 4096));
        assert_eq!(counts.busy_ns, clock.now_ns() - start_ns, "nothing else takes time");
    }

    #[test]
    fn two_devices_write_long_requests_faster_than_one() {
        let time = |spec: &[&str], layout| {
            let (storage, clock) = storage(spec, layout);
            let start_ns = clock.now_ns();
            let piece = vec![1; 512 << 10];
            for n in 0..16 {
                storage.write(n * (512 << 10), &piece, DATA).unwrap();
            }
            clock.now_ns() - start_ns
        };
        let card = "emmc-nexus-s";
        let (one, two) = (time(&[card], Layout::One), time(&[card, card], Layout::Stripes));
        assert!(two * 10 < one * 7, "{two} of {one}");
    }

    #[test]
    fn what_somebody_waits_for_is_fast_while_there_is_room() {
        let (storage, clock) = storage(&["sd-2012"], Layout::FastRegion(8192));
        let page = vec![1; 4096];
        let journal = Origin::new(Kind::Journal, true);
        let time = |offset, origin| {
            let before = clock.now_ns();
            storage.write(offset, &page, origin).unwrap();
            clock.now_ns() - before
        };
        assert_eq!(time(0, journal), FAST_WRITE_NS_PER_PAGE);
        assert_eq!(time(0, DATA), FAST_WRITE_NS_PER_PAGE, "a page that is there stays");
        assert!(time(8 << 20, DATA) > FAST_WRITE_NS_PER_PAGE);
        assert_eq!(time(4096, journal), FAST_WRITE_NS_PER_PAGE);
        assert!(time(16 << 20, journal) > FAST_WRITE_NS_PER_PAGE, "no room");
    }
}
