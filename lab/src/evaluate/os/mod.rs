//! The Workload Player on real devices: threads, the wall clock, O_DIRECT.
//!
//! ```text
//!   records -> play (one thread, sends in order) -> places (depth of them) -> workers -> device
//!                 waits for a free place                  one request each, pread/pwrite
//! ```
//!
//! Promises
//! - At most `depth` requests are under way. They are sent in the order of the trace; a flush, or
//!   a request with a preflush, is sent after all previous requests completed.
//! - A request that fails stops the run; its error is the answer.
//! - Writes are noise, equal in each run, so that no device can compress them.
//!
//! Assumes: the device does requests of several threads at once
//! ([`syncline_device::FileOptions::io_uring`] off, which serialises them). The caller decides
//! whether the device may be written to. Tested in `lab/tests/evaluate/os.rs`.

pub mod guard;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::trace::{Flags, Op, Record};
use parking_lot::{Condvar, Mutex};
use syncline_device::SplitMix64;
use syncline_device::{
    BlockDevice, Clock, DeviceError, Kind, Op as DeviceOp, Origin, Request, WallClock,
};

use crate::error::{LabError, Result};
use crate::evaluate::played::{Pace, Played, Tally, sectors, within};

/// Most requests under way at once.
pub const DEPTH_MAX: usize = 256;
/// Longest request; longer ones of a trace are sent in parts.
const PART_BYTES: usize = syncline_device::MAX_REQUEST_BYTES as usize;
const ORIGIN: Origin = Origin::new(Kind::Other, true);

struct Job {
    record: Record,
    /// When it was due or sent.
    from_ns: u64,
}

/// State that the workers share.
struct Shared<'d> {
    device: &'d dyn BlockDevice,
    clock: WallClock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    under_way: usize,
    tally: Tally,
    failed: Option<DeviceError>,
}

/// Sends requests.
pub struct Sender<'s, 'd> {
    shared: &'s Shared<'d>,
    jobs: SyncSender<Job>,
    pace: Pace,
    size_bytes: u64,
    start_ns: u64,
}

impl Sender<'_, '_> {
    /// Sends a request when it is its turn; what is none does nothing.
    pub fn play(&mut self, record: &Record) -> Result<()> {
        let known = matches!(record.op, Op::Read | Op::Write | Op::Flush | Op::Discard);
        if record.failed() || !known {
            return Ok(());
        }
        if record.op != Op::Flush {
            let (offset, len) = sectors(record);
            within(offset, len, self.size_bytes)?;
        }
        let due_ns = self.start_ns.saturating_add(record.time_ns);
        if self.pace.timing {
            self.shared.clock.sleep_until(due_ns);
        }
        let barrier = record.op == Op::Flush || record.flags.has(Flags::PREFLUSH);
        self.wait(if barrier { 0 } else { self.pace.depth - 1 })?;
        self.shared.state.lock().under_way += 1;
        let from_ns = if self.pace.timing { due_ns } else { self.shared.clock.now_ns() };
        // The workers live until the sender is gone, and there is room for each request under way.
        self.jobs.send(Job { record: *record, from_ns }).map_err(|_| stopped())
    }

    /// Waits until no more than `under_way` requests are.
    fn wait(&self, under_way: usize) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.under_way > under_way && state.failed.is_none() {
            self.shared.changed.wait(&mut state);
        }
        match &state.failed {
            Some(err) => Err(err.clone().into()),
            None => Ok(()),
        }
    }
}

fn stopped() -> LabError {
    LabError::Usage("the player has stopped; run the command again".to_owned())
}

/// Plays on `device` what `feed` passes to its sender. The time ends with a last flush, if there
/// was a write.
pub fn play_on(
    device: &dyn BlockDevice,
    pace: Pace,
    feed: impl FnOnce(&mut Sender<'_, '_>) -> Result<()>,
) -> Result<Played> {
    let pace = Pace { depth: pace.depth.clamp(1, DEPTH_MAX), ..pace };
    let clock = WallClock::new();
    let start_ns = clock.now_ns();
    let shared =
        Shared { device, clock, state: Mutex::new(State::default()), changed: Condvar::new() };
    let (jobs, receiver) = sync_channel(pace.depth);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..pace.depth {
            scope.spawn(|| work(&shared, &receiver));
        }
        let size_bytes = device.geometry().size_bytes;
        let mut sender = Sender { shared: &shared, jobs, pace, size_bytes, start_ns };
        feed(&mut sender)?;
        sender.wait(0)
    })?;
    let state = shared.state.into_inner();
    if state.tally.played.writes > 0 {
        device.flush(ORIGIN)?;
    }
    Ok(state.tally.finish(shared.clock.now_ns() - start_ns, None))
}

fn work(shared: &Shared<'_>, jobs: &Mutex<Receiver<Job>>) {
    let mut buffer = Vec::new();
    loop {
        let Ok(job) = jobs.lock().recv() else { return };
        let done = request(shared.device, &job.record, &mut buffer);
        let ns = shared.clock.now_ns().saturating_sub(job.from_ns);
        let mut state = shared.state.lock();
        state.under_way -= 1;
        match done {
            Ok(len) => state.tally.add(job.record.op, len, ns),
            Err(err) => state.failed = state.failed.take().or(Some(err)),
        }
        drop(state);
        shared.changed.notify_all();
    }
}

/// Noise to write, made when it is first needed.
fn fill(buffer: &mut Vec<u8>) {
    if buffer.is_empty() {
        let mut rng = SplitMix64::new(1);
        buffer.resize(PART_BYTES, 0);
        buffer
            .chunks_exact_mut(8)
            .for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()));
    }
}

/// Does one request; returns its length in bytes.
fn request(
    device: &dyn BlockDevice,
    record: &Record,
    buffer: &mut Vec<u8>,
) -> std::result::Result<u64, DeviceError> {
    if record.op == Op::Flush || record.flags.has(Flags::PREFLUSH) {
        device.flush(ORIGIN)?;
    }
    let (offset, len) = match record.op {
        Op::Flush => return Ok(0),
        _ => sectors(record),
    };
    if record.op == Op::Discard {
        device.discard(offset, len, ORIGIN)?;
        return Ok(len);
    }
    fill(buffer);
    let mut at = 0;
    while at < len {
        let part = (len - at).min(PART_BYTES as u64) as usize;
        let (offset_bytes, bytes) = (offset + at, &mut buffer[..part]);
        let op = match record.op {
            Op::Read => DeviceOp::Read { into: vec![bytes] },
            _ => DeviceOp::Write { from: vec![bytes], fua: record.flags.has(Flags::FUA) },
        };
        device.submit(&mut [Request { offset_bytes, op, origin: ORIGIN }])?;
        at += part as u64;
    }
    Ok(len)
}
