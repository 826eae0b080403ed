//! `trace watch`: the requests of block devices, from the kernel's events, into trace files.
//!
//! ```text
//!   kernel: events of the devices ── buffers ──> Ring ── requests ──> Stream of each device
//!                                                                      |  Files: inode -> name
//!                                                                      v
//!                                                   DIR/DEVICE-TIME-NUMBER.trace   (State)
//! ```
//!
//! One thread, which looks into the buffers four times a second. Where it may not have more of the
//! processor ([`Share`]) it rests; the kernel then overwrites the oldest events and counts them.
//! The requests of this program's own writes are in the trace, under its name.

mod devices;
mod names;
mod ring;
mod share;
mod state;
mod stream;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

pub(crate) use self::devices::Watched;
use self::names::Files;
use self::ring::Ring;
use self::share::Share;
use self::state::State;
use self::stream::{Limits, Stream};
use crate::args::{NameForm, TraceWatch};
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::Out;
use syncline_cli::interrupt;

/// Pause between two looks into the buffers.
const PAUSE: Duration = Duration::from_millis(250);

/// Records until it is stopped, then says what there is.
pub(crate) fn run(args: &TraceWatch) -> Result<()> {
    let devices = match &args.device {
        Some(node) => vec![Watched::of(node)?],
        None => Watched::all()?,
    };
    let limits = Limits { bytes: args.rotate_size, age: args.rotate };
    let watch = Watch {
        output: &args.output,
        limits,
        keep_bytes: args.keep,
        percent: args.cpu,
        names: args.names,
        time: args.time,
    };
    let seen = watch.run(devices)?;
    let mut out = Out::new();
    for stream in &seen.streams {
        let Stream { device, records, files, .. } = stream;
        out.text(format!("{}: {records} requests in {files} files\n", device.name))?;
    }
    out.text(format!(
        "{} events lost; {:.2} % of a processor in {:.0} s\n",
        seen.lost,
        seen.worked.as_secs_f64() * 100.0 / seen.passed.as_secs_f64().max(1e-9),
        seen.passed.as_secs_f64()
    ))?;
    out.flush()
}

/// Watches one device for a time, for `lifetime`. Returns its size and the trace in `dir`.
pub(crate) fn for_a_time(node: &Path, time: Duration, dir: &Path) -> Result<(u64, PathBuf)> {
    let device = Watched::of(node)?;
    let size_bytes = device.size_bytes;
    let watch = Watch {
        output: dir,
        limits: Limits { bytes: u64::MAX, age: Duration::MAX },
        keep_bytes: u64::MAX,
        percent: 100,
        names: NameForm::Plain,
        time: Some(time),
    };
    let mut seen = watch.run(vec![device])?;
    match seen.streams.pop().and_then(|stream| stream.last) {
        Some(path) => Ok((size_bytes, path)),
        None => Err(Failure::Failed(format!("{}: no trace; watch it again", node.display()))),
    }
}

struct Watch<'a> {
    output: &'a Path,
    limits: Limits,
    keep_bytes: u64,
    percent: u32,
    names: NameForm,
    time: Option<Duration>,
}

struct Seen {
    streams: Vec<Stream>,
    lost: u64,
    worked: Duration,
    passed: Duration,
}

/// Processor time of this process.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Watch<'_> {
    fn run(&self, devices: Vec<Watched>) -> Result<Seen> {
        // First what needs root: a user who has none gets no directory.
        let mut ring = Ring::new(&devices)?;
        let mut state = State::open(self.output, self.keep_bytes)?;
        let volumes = devices.iter().flat_map(|device| device.volumes.iter().copied()).collect();
        let mut files = Files::new(self.names, state.salt.clone(), volumes);
        let stream = |device| Stream::new(device, self.limits);
        let mut streams: Vec<Stream> = devices.into_iter().map(stream).collect();
        for stream in streams.iter_mut().filter(|_| self.limits.bytes == u64::MAX) {
            // One trace of the whole time, though nothing may happen in it.
            stream.begin(&mut state, ring.lost())?;
        }
        let (began, worked_before) = (Instant::now(), worked());
        let mut share = Share::new(self.percent);
        let (mut looked, mut worked_then) = (began, worked_before);
        loop {
            let over = interrupt::asked() || self.time.is_some_and(|time| began.elapsed() >= time);
            let lost = ring.lost();
            let mut failed = Ok(());
            let mut give = |request: &syncline_lab::trace::Request| {
                for stream in &mut streams {
                    if failed.is_ok() {
                        failed = stream.take(request, &mut files, &mut state, lost);
                    }
                }
            };
            match over {
                true => ring.end(&mut give)?,
                false => ring.drain(&mut give)?,
            }
            failed?;
            for stream in &mut streams {
                stream.tick(&state, ring.lost())?;
            }
            if over {
                break;
            }
            let (now, worked_now) = (Instant::now(), worked());
            let rest = share.rest(now - looked, worked_now - worked_then);
            (looked, worked_then) = (now, worked_now);
            pause(rest.max(PAUSE), self.time.map(|time| time.saturating_sub(began.elapsed())));
        }
        for stream in &mut streams {
            stream.finish(&state, ring.lost())?;
        }
        let (lost, passed) = (ring.lost(), began.elapsed());
        Ok(Seen { streams, lost, worked: worked().saturating_sub(worked_before), passed })
    }
}

/// Sleeps, but not past the end or a signal.
fn pause(rest: Duration, left: Option<Duration>) {
    let rest = left.map_or(rest, |left| rest.min(left));
    let until = Instant::now() + rest;
    while !interrupt::asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(PAUSE));
    }
}
