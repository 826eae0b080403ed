//! Strategies in memory and on a volume, and a driver that does jobs when it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_fs::{Create, FallocateMode, FsError, InodeRef, Volume};
use syncline_recorder::reader::{self, Item, Summary};
use syncline_recorder::{
    Config, Done, EventVolume, Job, Machine, Outputs, RecorderError, Report, Result, Strategy,
};

/// A small recorder.
pub fn config(pre: u32, post: u32, slack: u32) -> Config {
    Config {
        recorder: 7,
        payload_bytes_max: 64,
        pre_records: pre,
        post_records_max: post,
        slack_records: slack,
        events_max: 3,
        slot_align_bytes: 64,
        writeback_bytes: 1024,
    }
}

/// The bytes of record `sequence`.
pub fn payload(sequence: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    syncline_testkit::fill(sequence, 0, &mut bytes);
    bytes
}

/// Files in memory. The k-th begin or append can be made to fail.
#[derive(Default)]
pub struct MemoryStrategy {
    pub files: Mutex<BTreeMap<u64, Vec<u8>>>,
    pub calls: Mutex<u64>,
    pub fail_at: Option<u64>,
}

impl MemoryStrategy {
    fn call(&self, what: &str) -> Result<()> {
        let mut calls = self.calls.lock();
        *calls += 1;
        if self.fail_at == Some(*calls) { Err(RecorderError::io(what, &"told to")) } else { Ok(()) }
    }
}

impl Strategy for MemoryStrategy {
    fn begin(&self, event: u64) -> Result<()> {
        self.call("begin")?;
        self.files.lock().insert(event, Vec::new());
        Ok(())
    }

    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        self.call("append")?;
        let mut files = self.files.lock();
        let file = files.get_mut(&event).expect("it was begun");
        assert_eq!(file.len() as u64, offset, "appends follow each other");
        file.extend_from_slice(slots);
        Ok(())
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        match *job {
            Job::WriteBack { to, .. } => Ok(Done { durable_bytes: to }),
            Job::Finish { len_bytes, .. } => Ok(Done { durable_bytes: len_bytes }),
        }
    }
}

/// Jobs that wait, and everything that was reported.
#[derive(Default)]
pub struct Kept {
    pub jobs: VecDeque<Job>,
    pub reports: Vec<Report>,
}

impl Outputs for Kept {
    fn job(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    fn report(&mut self, report: Report) {
        self.reports.push(report);
    }
}

impl Kept {
    /// Does the oldest job; false if there is none.
    pub fn work(&mut self, machine: &mut Machine, strategy: &dyn Strategy) -> bool {
        let Some(job) = self.jobs.pop_front() else { return false };
        let result = strategy.lower(&job);
        machine.completed(&job, result, self);
        true
    }

    /// Ends everything.
    pub fn end(&mut self, machine: &mut Machine, strategy: &dyn Strategy) {
        while machine.step(strategy, self).more {}
        machine.close(strategy, self);
        let mut rounds = 0;
        while machine.events() > 0 {
            machine.step(strategy, self);
            self.work(machine, strategy);
            rounds += 1;
            assert!(rounds < 100_000, "events do not end");
        }
    }
}

/// The records of an event file: sequence and bytes; the gaps; the summary.
pub struct Found {
    pub records: Vec<(u64, Vec<u8>)>,
    pub gaps: Vec<(u64, u64)>,
    pub summary: Summary,
}

/// Reads a file; `None` if there is nothing of a recorder in it.
pub fn found(bytes: &[u8]) -> Option<Found> {
    let (mut records, mut gaps) = (Vec::new(), Vec::new());
    let summary = reader::read(&bytes, &mut |item| {
        match item {
            Item::Record(header, payload) => records.push((header.sequence, payload.to_vec())),
            Item::Gap { first, records } => gaps.push((first, records)),
            Item::Damaged { .. } | Item::End { .. } => {}
        }
        Ok(())
    });
    let summary = summary.expect("memory reads")?;
    assert_eq!(summary.records, records.len() as u64);
    Some(Found { records, gaps, summary })
}

/// The files of a volume's root.
pub struct Files(pub Volume);

fn failed(err: FsError) -> RecorderError {
    RecorderError::io("volume", &err)
}

impl EventVolume for Files {
    type File = Arc<InodeRef>;

    fn create(&self, name: &str, bytes: u64) -> Result<Self::File> {
        let how = Create { mode: 0o644, uid: 0, gid: 0 };
        let root = self.0.root().map_err(failed)?;
        let file = self.0.create(&root, name.as_bytes(), &how).map_err(failed)?;
        self.0.fallocate(&file, FallocateMode::Allocate, 0, bytes).map_err(failed)?;
        Ok(Arc::new(file))
    }

    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.0.write(file, offset, data).map_err(failed)?;
        assert_eq!(written, data.len());
        Ok(())
    }

    fn truncate(&self, file: &Self::File, bytes: u64) -> Result<()> {
        self.0.truncate(file, bytes).map_err(failed)
    }

    fn sync(&self, file: &Self::File, datasync: bool) -> Result<()> {
        self.0.fsync(file, datasync).map_err(failed)
    }
}

/// The bytes of a file in the root of a volume.
pub fn volume_bytes(volume: &Volume, name: &str) -> Option<Vec<u8>> {
    let file = volume.resolve(format!("/{name}")).ok()?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let n = volume.read(&file, bytes.len() as u64, &mut piece).expect("the file is readable");
        if n == 0 {
            return Some(bytes);
        }
        bytes.extend_from_slice(&piece[..n]);
    }
}
