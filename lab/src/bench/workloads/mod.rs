//! The workloads, by the names of reports.
//!
//! A workload is prepared on one mount, opened and stepped on the next, so that what is measured
//! begins with an empty cache and a clean journal. One step is one operation; inside of it the
//! synchronous call is timed. Everything random comes from the seed.
//!
//! Adding one is a file here and a line in [`WORKLOADS`]. The shapes and default counts are those
//! of the stored kernel figures (`baselines/`), so that both can be compared.

mod android_day;
mod create;
mod fileio;
mod fjord;
mod mixed;
mod sqlite;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::latency::Timer;
pub use fjord::{APPLICATIONS, applications};
pub(crate) use sqlite::{DATABASE, close, connect_to};
pub use sqlite::{INSERT_NAME, JournalMode, Synchronous};
use syncline_sqlite::Barriers;

use crate::bench::target::Target;
use crate::error::{LabError, Result};

/// Parameters that vary between runs of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Steps; `None`: the workload's default.
    pub operations: Option<u64>,
    /// A run ends after this time of its clock.
    pub runtime_ns: Option<u64>,
    /// A run goes on until [`Parameters::runtime_ns`], whatever the number of steps.
    pub time_based: bool,
    /// Percentiles of the latency that are reported beside the usual ones, 0 to 100.
    pub percentiles: Vec<f64>,
    /// Of everything random.
    pub seed: u64,
    /// SQLite's journal mode.
    pub journal_mode: JournalMode,
    /// SQLite's `synchronous`.
    pub synchronous: Synchronous,
    /// SQLite calls fsync where it would call fdatasync, as builds without fdatasync do (Android's
    /// at the time of the papers). Simulated runs only.
    pub sqlite_fsync: bool,
    /// Syncs of SQLite that are barriers. Simulated runs only.
    pub barriers: Barriers,
    /// Power cuts whose losses are counted, of [`INSERT_NAME`] on a simulated device.
    pub cuts: u64,
    /// Length of the applications of `fjord`, percent of their public sizes.
    pub scale_percent: u64,
    /// Share of the blocks that weeks of use fill before the run, in per cent
    /// ([`crate::bench::Aging`]); `None`: the volume is new. Simulated runs only.
    pub fill_percent: Option<u32>,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            operations: None,
            runtime_ns: None,
            time_based: false,
            percentiles: Vec::new(),
            seed: 1,
            journal_mode: JournalMode::Delete,
            synchronous: Synchronous::Full,
            sqlite_fsync: false,
            barriers: Barriers::None,
            cuts: 0,
            scale_percent: 100,
            fill_percent: None,
        }
    }
}

/// One run of a workload.
pub trait Workload {
    /// On the first mount: makes what must be there. Not measured; the target is remounted after.
    fn prepare(&mut self, target: &dyn Target) -> Result<()>;

    /// On the second mount, not measured: opens, fills caches, runs what comes before.
    fn open(&mut self, target: &dyn Target) -> Result<()>;

    /// One measured operation. The synchronous call goes through `timer`.
    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()>;

    /// Closes everything.
    fn close(&mut self, target: &dyn Target) -> Result<()>;
}

/// A line of the table of workloads.
pub struct Entry {
    /// Name in reports, `group/test`.
    pub name: &'static str,
    /// Description of one operation.
    pub summary: &'static str,
    /// Operations unless told otherwise.
    pub operations: u64,
    /// True if it runs SQLite, so that the journal mode matters.
    pub sqlite: bool,
    /// True if [`Parameters::scale_percent`] shortens it by its number of operations.
    scales: bool,
    make: fn(&Parameters, u64) -> Box<dyn Workload>,
}

impl Entry {
    /// Operations of a run with these parameters.
    pub fn operations(&self, parameters: &Parameters) -> u64 {
        let percent = if self.scales { parameters.scale_percent } else { 100 };
        parameters.operations.unwrap_or(scaled(self.operations, percent))
    }

    /// The end of a run with these parameters.
    ///
    /// # Errors
    /// [`LabError::Usage`] if the workload cannot go on for so long.
    pub fn limits(&self, parameters: &Parameters) -> Result<Limits> {
        if parameters.time_based && self.name == sqlite::DELETE_NAME {
            let text = format!("{} ends with the last row; give it --operations", self.name);
            return Err(LabError::Usage(text));
        }
        let operations = if parameters.time_based { u64::MAX } else { self.operations(parameters) };
        Ok(Limits { operations, runtime_ns: parameters.runtime_ns })
    }

    /// A fresh workload.
    pub fn make(&self, parameters: &Parameters) -> Box<dyn Workload> {
        (self.make)(parameters, self.operations(parameters))
    }
}

/// The end of a run: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps.
    pub operations: u64,
    /// Nanoseconds of the run's clock since the first step.
    pub runtime_ns: Option<u64>,
}

const fn entry(
    name: &'static str,
    operations: u64,
    sqlite: bool,
    make: fn(&Parameters, u64) -> Box<dyn Workload>,
    summary: &'static str,
) -> Entry {
    Entry { name, summary, operations, sqlite, scales: false, make }
}

/// `count` at a scale, at least one.
fn scaled(count: u64, scale_percent: u64) -> u64 {
    (count * scale_percent / 100).max(1)
}

/// Every workload, in the order of reports.
pub const WORKLOADS: &[Entry] = &[
    entry("sqlite/insert", 300, true, sqlite::insert, "a row of 17 columns, its own transaction"),
    entry("sqlite/update", 300, true, sqlite::update, "four columns of a row, its own transaction"),
    entry(sqlite::DELETE_NAME, 300, true, sqlite::delete, "a row by key, its own transaction"),
    entry(
        "fileio/random-overwrite-fsync",
        2000,
        false,
        |p, n| fileio::overwrite(p, n, fileio::RANDOM_FSYNC),
        "4 KiB at a random place of 16 MiB, fsync",
    ),
    entry(
        "fileio/random-overwrite-fdatasync",
        2000,
        false,
        |p, n| fileio::overwrite(p, n, fileio::RANDOM_FDATASYNC),
        "4 KiB at a random place of 16 MiB, fdatasync",
    ),
    entry(
        "fileio/sequential-overwrite-fsync",
        2000,
        false,
        |p, n| fileio::overwrite(p, n, fileio::SEQUENTIAL_FSYNC),
        "the next 4 KiB of 16 MiB, fsync",
    ),
    entry(
        "fileio/sequential-256k-fsync",
        64,
        false,
        fileio::append_256k,
        "256 KiB appended to a new file, fsync",
    ),
    entry(
        "fileio/sequential-256k-overwrite-fsync",
        64,
        false,
        |p, n| fileio::overwrite(p, n, fileio::SEQUENTIAL_256K_FSYNC),
        "the next 256 KiB of 16 MiB, fsync",
    ),
    entry("fileio/random-read", 4096, false, fileio::random_read, "4 KiB of 16 MiB, not cached"),
    entry(
        "fileio/sequential-read",
        64,
        false,
        fileio::sequential_read,
        "the next 256 KiB of 16 MiB, not cached",
    ),
    entry("create/4k-fsync", 500, false, create::create, "a new file of 4 KiB, fsync"),
    entry(
        "sparse/4k-fsync",
        1400,
        false,
        fileio::sparse,
        "4 KiB at a random place of a new file of 32 MiB, fsync",
    ),
    entry(
        "mixed",
        300,
        true,
        mixed::mixed,
        "a transaction or a 4 KiB overwrite + fsync, beside files nobody syncs",
    ),
    entry(
        "android-day",
        1500,
        true,
        android_day::workload,
        "an event of a phone: a transaction of one of 24 apps, settings, caches, photos, updates",
    ),
];

/// The workloads that `name` means: one, or a whole group (`sqlite`, `fileio`, `create`).
pub fn find(name: &str) -> Result<Vec<&'static Entry>> {
    let in_group = |e: &&Entry| {
        e.name == name || e.name.split_once('/').is_some_and(|(group, _)| group == name)
    };
    let found: Vec<_> = WORKLOADS.iter().filter(in_group).collect();
    if found.is_empty() {
        let names: Vec<_> = WORKLOADS.iter().map(|e| e.name).collect();
        let names = names.join(", ");
        return Err(LabError::Usage(format!("unknown workload `{name}`; choose of {names}")));
    }
    Ok(found)
}

/// The random numbers of a workload; each gets its own, whatever else the run draws.
pub(crate) fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// `len` bytes that do not compress.
pub(crate) fn noise(rng: &mut ChaCha8Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A number below `limit`. The modulo bias is below one in a million for the limits used here.
pub(crate) fn below(rng: &mut ChaCha8Rng, limit: u64) -> u64 {
    rng.next_u64() % limit.max(1)
}

/// Error of a step before `open`.
fn not_open() -> LabError {
    LabError::Usage("the workload was not opened; call open before step".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_groups_are_found_and_others_refused() {
        let names = |name| find(name).unwrap().iter().map(|e| e.name).collect::<Vec<_>>();
        assert_eq!(names("sqlite"), ["sqlite/insert", "sqlite/update", "sqlite/delete"]);
        assert_eq!(names("create/4k-fsync"), ["create/4k-fsync"]);
        assert_eq!(names("mixed"), ["mixed"]);
        assert_eq!(names("fileio").len(), 7);
        for bad in ["", "sql", "sqlite/", "fileio/random"] {
            let err = find(bad).err().expect("refused").to_string();
            assert!(err.contains("choose of sqlite/insert"), "{err}");
        }
    }
}
