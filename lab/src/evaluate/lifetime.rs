//! A block trace on a simulated device for the wear it causes, by process and by file.
//!
//! Costs are exact: flash programs while a request runs, collection and merges included, are that
//! request's. A trace may run several times; each pass begins when the one before has ended.
//! Tested through `syncline-lab lifetime`.

use std::collections::BTreeMap;

use crate::trace::{Flags, NameId, Names, Op, Origin, Record};
use syncline_nand::{Profile, Simulator};

use crate::error::{LabError, Result};

/// Seed of preconditioning.
const SEED: u64 = 1;
/// Smallest device that a trace is put on, bytes.
const SIZE_MIN: u64 = 64 << 20;
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Times of a trace beyond this one (146 years) count as this one.
const TIME_NS_MAX: u64 = 1 << 62;

/// Replay of a trace on a simulated device: attributes wear to processes and files.
pub struct WearReplay {
    device: Simulator,
    /// Erases of each block before the trace.
    before: Vec<u32>,
    /// When the pass began.
    start_ns: u64,
    /// When its last request was done or sent.
    end_ns: u64,
    /// Time with a request under way.
    busy_ns: u64,
    processes: Shares,
    files: Shares,
    origins: Origins,
}

/// Bytes programmed into the flash for each kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The journal.
    pub journal: u64,
    /// Data of files whose program waited for it.
    pub synced_data: u64,
    /// Other data of files.
    pub other_data: u64,
    /// Metadata in its place.
    pub metadata: u64,
    /// Requests of which the trace does not say it.
    pub unknown: u64,
}

impl Origins {
    fn add(&mut self, record: &Record, programmed_bytes: u64) {
        let of = match record.origin {
            Origin::Journal => &mut self.journal,
            Origin::Data if record.flags.has(Flags::SYNC) => &mut self.synced_data,
            Origin::Data => &mut self.other_data,
            Origin::Metadata => &mut self.metadata,
            Origin::Unknown => &mut self.unknown,
        };
        *of += programmed_bytes;
    }
}

/// Cost of one originator's requests: programs while a request runs, collection and merges
/// included, are that request's.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Process or path.
    pub name: String,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes programmed into the flash.
    pub programmed_bytes: u64,
}

/// Name of the share of nobody in particular.
const NOT_KNOWN: &str = "not known";
/// Its key.
const UNKNOWN: (u64, NameId) = (0, NameId::NONE);
/// Rows of [`Shares::top`].
const SHARES_MAX: usize = 10;

/// By number and name of a process, by path of a file, or by its inode where that has no name.
#[derive(Default)]
pub struct Shares(BTreeMap<(u64, NameId), Share>);

impl Shares {
    fn add(&mut self, key: (u64, NameId), name: impl FnOnce() -> String, cost: (u64, u64)) {
        let share = self.0.entry(key).or_insert_with(|| Share { name: name(), ..Share::default() });
        share.written_bytes += cost.0;
        share.programmed_bytes += cost.1;
    }

    fn process(&mut self, record: &Record, names: &Names, cost: (u64, u64)) {
        let name = || match (names.get(record.process_name), record.process) {
            ("", 0) => NOT_KNOWN.to_owned(),
            ("", number) => number.to_string(),
            (name, 0) => name.to_owned(),
            (name, number) => format!("{name} ({number})"),
        };
        self.add((u64::from(record.process), record.process_name), name, cost);
    }

    fn file(&mut self, record: &Record, names: &Names, cost: (u64, u64)) {
        let inode = if record.file.is_some() { 0 } else { record.inode };
        let name = || match (names.get(record.file), inode) {
            ("", 0) => NOT_KNOWN.to_owned(),
            ("", inode) => inode.to_string(),
            (name, _) => name.to_owned(),
        };
        self.add((inode, record.file), name, cost);
    }

    /// The one that cost most, of those that are known.
    pub fn most(&self) -> Option<&Share> {
        let known = self.0.iter().filter(|(key, _)| **key != UNKNOWN).map(|(_, share)| share);
        known.max_by_key(|share| share.programmed_bytes)
    }

    /// Costs of processes by program: those of one name together.
    pub fn by_program(&self) -> Shares {
        let mut by = Shares::default();
        for ((number, name), share) in &self.0 {
            let number = if name.is_some() { 0 } else { *number };
            let program = share.name.rsplit_once(" (").filter(|_| name.is_some());
            let program = program.map_or(share.name.as_str(), |(program, _)| program);
            let cost = (share.written_bytes, share.programmed_bytes);
            by.add((number, *name), || program.to_owned(), cost);
        }
        by
    }

    /// Costs by directory: of files with a path, up to its last slash.
    pub fn by_directory(&self) -> Shares {
        let mut names = Names::default();
        let mut by = Shares::default();
        for share in self.0.values() {
            if let Some((directory, _)) = share.name.rsplit_once('/') {
                let directory = if directory.is_empty() { "/" } else { directory };
                let cost = (share.written_bytes, share.programmed_bytes);
                by.add((0, names.intern(directory)), || directory.to_owned(), cost);
            }
        }
        by
    }

    /// Those that cost most, if the trace knows any.
    pub fn top(&self) -> Vec<Share> {
        if self.0.keys().all(|key| *key == UNKNOWN) {
            return Vec::new();
        }
        let mut list: Vec<Share> = self.0.values().cloned().collect();
        list.sort_by_key(|share| std::cmp::Reverse(share.programmed_bytes));
        list.truncate(SHARES_MAX);
        list
    }
}

impl WearReplay {
    /// A device of `profile` that has been filled to `used_percent` and overwritten at random.
    pub fn new(profile: &Profile, size_bytes: u64, used_percent: u32) -> Result<WearReplay> {
        let mut device = Simulator::new(profile, size_bytes)?;
        device.precondition(used_percent, SEED);
        let before = device.erases().to_vec();
        Ok(WearReplay {
            device,
            before,
            start_ns: 0,
            end_ns: 0,
            busy_ns: 0,
            processes: Shares::default(),
            files: Shares::default(),
            origins: Origins::default(),
        })
    }

    /// Size of a device that holds a trace whose highest request ends at `end_bytes`.
    pub fn size_for(end_bytes: u64) -> u64 {
        end_bytes.next_power_of_two().max(SIZE_MIN)
    }

    /// Begins the next pass where the last ended.
    pub fn begin_pass(&mut self) {
        self.start_ns = self.end_ns;
    }

    /// Lets time pass until so long after the pass began: nothing happened at the end.
    pub fn idle_until(&mut self, duration_ns: u64) {
        let end_ns = self.start_ns.saturating_add(duration_ns).min(TIME_NS_MAX);
        self.end_ns = self.end_ns.max(end_ns);
    }

    /// The device.
    pub fn device(&self) -> &Simulator {
        &self.device
    }

    /// When the last request was done, nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Joules of the trace, if the profile has energy figures; see
    /// [`EnergyParameters::joules`](syncline_nand::EnergyParameters::joules).
    pub fn joules(&self, profile: &Profile) -> Option<f64> {
        let energy = profile.energy.as_ref()?;
        let busy_s = self.busy_ns as f64 / 1e9;
        Some(energy.joules(&self.device.counters(), profile.geometry.dies(), busy_s))
    }

    /// Costs by process.
    pub fn processes(&self) -> &Shares {
        &self.processes
    }

    /// Costs by file.
    pub fn files(&self) -> &Shares {
        &self.files
    }

    /// Bytes programmed for each kind of request.
    pub fn origins(&self) -> Origins {
        self.origins
    }

    /// Erases of each block by the trace.
    pub fn worn(&self) -> Vec<u32> {
        self.device.erases().iter().zip(&self.before).map(|(now, then)| now - then).collect()
    }

    /// Plays a request.
    pub fn record(&mut self, record: &Record, names: &Names) -> Result<()> {
        let before = self.device.counters();
        let now_ns = self.start_ns.saturating_add(record.time_ns).min(TIME_NS_MAX);
        // A device has whole sectors.
        let offset = record.offset_bytes / SECTOR * SECTOR;
        let end = record.offset_bytes.saturating_add(record.len_bytes);
        let len = (end.saturating_add(SECTOR - 1) / SECTOR * SECTOR).saturating_sub(offset);
        let size = self.device.size_bytes();
        if record.op.has_range() && end > size {
            let text = format!(
                "the trace goes to byte {end}, the device has {size}; give a larger --size or \
                 leave it out"
            );
            return Err(LabError::Usage(text));
        }
        let device = &mut self.device;
        let mut done_ns = now_ns;
        if record.flags.has(Flags::PREFLUSH) {
            done_ns = device.flush(now_ns);
        }
        done_ns = match record.op {
            Op::Read => device.read(done_ns, offset, len),
            Op::Write => device.write(done_ns, offset, len, record.flags.has(Flags::FUA)),
            Op::Flush => device.flush(done_ns),
            Op::Discard => device.discard(done_ns, offset, len),
            _ => done_ns,
        };
        self.busy_ns += done_ns.saturating_sub(self.end_ns.max(now_ns));
        self.end_ns = self.end_ns.max(done_ns);
        let c = self.device.counters().since(&before);
        let cost = (c.written_bytes, c.programmed_bytes);
        if cost != (0, 0) {
            self.processes.process(record, names, cost);
            self.files.file(record, names, cost);
            self.origins.add(record, cost.1);
        }
        Ok(())
    }
}
