//! A block trace on a simulated device for the wear it causes, by process and by file.
//!
//! Costs are exact: flash programs while a request runs, collection and merges included, are that
//! request's. A trace may run several times; each pass begins when the one before has ended.
//! Tested through `syncline lifetime`.

use std::collections::BTreeMap;

use syncline_nand::{Profile, Simulator};
use syncline_trace::{Flags, NameId, Names, Op, Record};

use crate::error::{EvaluateError, Result};

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
    processes: Shares,
    files: Shares,
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

/// Rows of [`Shares::top`].
const SHARES_MAX: usize = 10;

/// By number and name of a process, or by inode and path of a file.
#[derive(Default)]
pub struct Shares(BTreeMap<(u64, NameId), Share>);

impl Shares {
    fn add(&mut self, number: u64, name: NameId, names: &Names, cost: (u64, u64)) {
        let share = self.0.entry((number, name)).or_insert_with(|| {
            let name = match (names.get(name), number) {
                ("", 0) => "not known".to_owned(),
                ("", number) => number.to_string(),
                (name, 0) => name.to_owned(),
                (name, number) => format!("{name} ({number})"),
            };
            Share { name, ..Share::default() }
        });
        share.written_bytes += cost.0;
        share.programmed_bytes += cost.1;
    }

    /// Those that cost most, if the trace knows any.
    pub fn top(&self) -> Vec<Share> {
        if self.0.keys().all(|key| *key == (0, NameId::NONE)) {
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
    ///
    /// # Errors
    /// A profile or a size that cannot be built.
    pub fn new(profile: &Profile, size_bytes: u64, used_percent: u32) -> Result<WearReplay> {
        let mut device = Simulator::new(profile, size_bytes)?;
        device.precondition(used_percent, SEED);
        let before = device.erases().to_vec();
        Ok(WearReplay {
            device,
            before,
            start_ns: 0,
            end_ns: 0,
            processes: Shares::default(),
            files: Shares::default(),
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

    /// Costs by process.
    pub fn processes(&self) -> &Shares {
        &self.processes
    }

    /// Costs by file.
    pub fn files(&self) -> &Shares {
        &self.files
    }

    /// Erases of each block by the trace.
    pub fn worn(&self) -> Vec<u32> {
        self.device.erases().iter().zip(&self.before).map(|(now, then)| now - then).collect()
    }

    /// Plays a request.
    ///
    /// # Errors
    /// [`EvaluateError::Usage`]: it ends beyond the end of the device.
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
            return Err(EvaluateError::Usage(text));
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
        self.end_ns = self.end_ns.max(done_ns);
        let c = self.device.counters().since(&before);
        let cost = (c.written_bytes, c.programmed_bytes);
        if cost != (0, 0) {
            self.processes.add(u64::from(record.process), record.process_name, names, cost);
            self.files.add(record.inode, record.file, names, cost);
        }
        Ok(())
    }
}
