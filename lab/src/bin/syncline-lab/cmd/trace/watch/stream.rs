//! The files of one device, one after the other.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use syncline_lab::trace::{Header, Names, Record, Request, Sink, TraceKind, TraceWriter};
use syncline_lab::{LabError, Result};

use super::devices::{SECTOR_BYTES, Watched};
use super::names::Files;
use super::ring::boot_ns;
use super::state::{PARTIAL, State};
use syncline_cli::error::{Failure, Result as Done};

/// A power cut takes no more than what is younger than this.
const SEAL_NS: u64 = 60_000_000_000;
/// Row groups that end for that reason; a footer lists them all, so the file ends with the last.
const SEALS_MAX: u32 = 256;
/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A file on its way.
struct Segment {
    writer: TraceWriter<BufWriter<File>>,
    file: File,
    names: Names,
    partial: PathBuf,
    path: PathBuf,
    began_ns: u64,
    sealed_ns: u64,
    seals: u32,
    last_ns: u64,
    lost_before: u64,
}

/// When a file ends.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) age: Duration,
}

/// The files of a device.
pub(super) struct Stream {
    pub(super) device: Watched,
    limits: Limits,
    segment: Option<Segment>,
    /// Records so far.
    pub(super) records: u64,
    /// Whole files so far.
    pub(super) files: u64,
    /// The last of them.
    pub(super) last: Option<PathBuf>,
}

fn io(err: std::io::Error) -> LabError {
    LabError::io("trace file")(err)
}

impl Stream {
    pub(super) fn new(device: Watched, limits: Limits) -> Stream {
        Stream { device, limits, segment: None, records: 0, files: 0, last: None }
    }

    /// Begins a file if there is none.
    pub(super) fn begin(&mut self, state: &mut State, lost: u64) -> Done<()> {
        if self.segment.is_some() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = state.next(&self.device.name, now.as_secs())?;
        let made = Segment::new(path.clone(), now, lost);
        self.segment = Some(made.map_err(|err| Failure::from(err).at(path.display()))?);
        Ok(())
    }

    /// Writes a request, if it is to this device.
    pub(super) fn take(
        &mut self,
        request: &Request,
        files: &mut Files,
        state: &mut State,
        lost: u64,
    ) -> Done<()> {
        let record = &request.record;
        if !self.device.has(record.device, record.offset_bytes, record.len_bytes) {
            return Ok(());
        }
        self.begin(state, lost)?;
        let first_bytes = self.device.first.saturating_mul(SECTOR_BYTES);
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let written = segment.write(request, first_bytes, files);
        written.map_err(|err| Failure::from(err).at(segment.path.display()))?;
        self.records += 1;
        Ok(())
    }

    /// Ends a file that is old or long, and makes what is there safe now and then.
    pub(super) fn tick(&mut self, state: &State, lost: u64) -> Done<()> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let now_ns = boot_ns();
        let (age_ns, unsafe_ns) = (now_ns - segment.began_ns, now_ns - segment.sealed_ns);
        let full = segment.bytes() >= self.limits.bytes || segment.seals >= SEALS_MAX;
        if full || u128::from(age_ns) >= self.limits.age.as_nanos() {
            return self.finish(state, lost);
        }
        let kept = self.limits.age < Duration::MAX;
        let sealed = match kept && unsafe_ns >= SEAL_NS && !segment.writer.is_between_batches() {
            true => segment.seal(now_ns),
            false => Ok(()),
        };
        sealed.map_err(|err| Failure::from(err).at(segment.path.display()))
    }

    /// Ends the file.
    pub(super) fn finish(&mut self, state: &State, lost: u64) -> Done<()> {
        let Some(segment) = self.segment.take() else { return Ok(()) };
        let path = segment.path.clone();
        let finished = segment.finish(lost);
        finished.map_err(|err| Failure::from(err).at(path.display()))?;
        self.files += 1;
        self.last = Some(path);
        state.remove_old()
    }
}

impl Segment {
    fn new(path: PathBuf, now: Duration, lost: u64) -> Result<Segment> {
        let partial = path.with_added_extension(PARTIAL);
        // It has the names of all files that somebody used.
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let out = options.open(&partial).map_err(io)?;
        let file = out.try_clone().map_err(io)?;
        let header =
            Header { kind: TraceKind::Block, source: "syncline-lab trace watch".to_owned() };
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let mut writer = TraceWriter::new(out, &header)?;
        writer.started(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX >> 1));
        let began_ns = boot_ns();
        Ok(Segment {
            writer,
            file,
            names: Names::default(),
            partial,
            path,
            began_ns,
            sealed_ns: began_ns,
            seals: 0,
            last_ns: 0,
            lost_before: lost,
        })
    }

    fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }

    fn write(&mut self, request: &Request, first_bytes: u64, files: &mut Files) -> Result<()> {
        if self.writer.is_between_batches() {
            // Numbers of names hold within a batch.
            self.names = Names::default();
        }
        let record = &request.record;
        let file = files.name(request.volume, record.inode, record.process);
        // The first may have been issued before the file was made.
        let time_ns = record.time_ns.saturating_sub(self.began_ns).max(self.last_ns);
        self.last_ns = time_ns;
        let record = Record {
            time_ns,
            process_name: self.names.intern(&request.task()),
            file: self.names.intern(file),
            offset_bytes: record.offset_bytes.saturating_sub(first_bytes),
            ..*record
        };
        self.writer.record(&self.names, &record)
    }

    /// Makes a whole file of what is there, and makes it safe.
    fn seal(&mut self, now_ns: u64) -> Result<()> {
        self.sealed_ns = now_ns;
        self.seals += 1;
        let (place, footer) = self.writer.footer_so_far(&self.names)?;
        self.file.write_all_at(&footer, place).map_err(io)?;
        self.file.sync_data().map_err(io)
    }

    fn finish(mut self, lost: u64) -> Result<()> {
        let lost = lost - self.lost_before;
        if lost > 0 {
            self.writer.lost(lost);
        }
        self.writer.lasted(boot_ns().saturating_sub(self.began_ns));
        let mut out = self.writer.finish(&self.names)?;
        out.flush().map_err(io)?;
        // The last footer is not shorter than the one that it goes over.
        self.file.sync_data().map_err(io)?;
        std::fs::rename(&self.partial, &self.path).map_err(io)
    }
}
