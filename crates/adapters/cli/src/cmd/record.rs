//! `record`: keeps the last records in memory, and around each fault writes them to a file.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::fs::Access;
use signal_hook::consts::SIGUSR1;
use syncline_device::{Clock, WallClock};
use syncline_fs::MountOptions;
use syncline_recorder::os::{
    Options, PaperStrategy, PoolStrategy, Recorder, UringStrategy, real_time,
};
use syncline_recorder::{Config, Producer, Report, Strategy, Trigger, VolumeStrategy};

use crate::args::Record;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::place::InProcess;
use crate::{complain, interrupt};

/// Options of the volume of `--image`: no page of a write waits for memory.
const MOUNT: &str = "sync=eager,noatime,lazytime,cache=64M,cache_reserve=64M";
/// Bytes that direct I/O is aligned to.
const DIRECT_BYTES: u32 = 4096;
/// Priority of the generator; the writer's is lower.
const PRIORITY: i32 = 20;
/// Interval at which reports are printed, and poll interval of a full ring.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const WAIT: Duration = Duration::from_millis(1);
/// Records of standard input that wait for room.
const READ_AHEAD: usize = 4;

/// Records until the input ends, `--records` are there, or a signal asks.
pub(crate) fn run(args: &Record) -> Result<()> {
    let clock = WallClock::new();
    let direct = args.strategy == "uring" && args.image.is_none();
    let config = Config {
        recorder: clock.now_ns(),
        payload_bytes_max: u32::try_from(args.record_size).unwrap_or(u32::MAX),
        pre_records: args.pre,
        post_records_max: args.post,
        slack_records: args.slack,
        events_max: args.events,
        slot_align_bytes: if direct { DIRECT_BYTES } else { 64 },
        ..Config::default()
    };
    config.check()?;
    let fault = Arc::<AtomicBool>::default();
    signal_hook::flag::register(SIGUSR1, Arc::clone(&fault)).map_err(|err| {
        Failure::Failed(format!("signals cannot be handled: {err}; check the environment"))
    })?;
    let Some(image) = &args.image else {
        let dir = args.dir.clone().unwrap_or_default();
        usable(&dir)?;
        let strategy: Arc<dyn Strategy> = match args.strategy.as_str() {
            "pool" => Arc::new(PoolStrategy::new(dir, &config)?),
            "uring" => Arc::new(UringStrategy::new(dir, &config)?),
            _ => Arc::new(PaperStrategy::new(dir, &config)),
        };
        return record(args, &config, strategy, &clock, &fault);
    };
    let device = crate::image::device(image, false)?;
    crate::image::superblock(&*device, image)?;
    let options = MountOptions::parse(MOUNT)?;
    let volume = InProcess::mount(device, Arc::new(WallClock::new()), options)?;
    let strategy = Arc::new(VolumeStrategy::new(volume, config.recorder, config.file_bytes_max()));
    let done = record(args, &config, Arc::clone(&strategy) as Arc<dyn Strategy>, &clock, &fault);
    // The recorder's threads have ended, and with them the other owners.
    let ended = Arc::into_inner(strategy).map_or(Ok(()), |s| s.into_volume().unmount());
    done.and(ended)
}

/// Fails if no file of an event could be made: a fault would find it out too late.
fn usable(dir: &Path) -> Result<()> {
    let there = std::fs::metadata(dir).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound => {
            let text = "no such directory; make it with mkdir";
            Failure::Failed(text.to_owned()).at(dir.display())
        }
        _ => Failure::host(dir, &err),
    })?;
    if !there.is_dir() {
        let text = "is not a directory; give a directory for the events";
        return Err(Failure::Failed(text.to_owned()).at(dir.display()));
    }
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(dir, rights).map_err(|err| Failure::host(dir, &err.into()))
}

/// Numbers of reports by kind.
#[derive(Default)]
struct Tally {
    finished: u64,
    volatile: u64,
    refused: u64,
    failed: u64,
}

impl Tally {
    fn print(&mut self, reports: &[Report], out: &mut Out) -> Result<()> {
        for report in reports {
            let line = match report {
                Report::Started { event, trigger_sequence } => {
                    format!("event {event}: fault at record {trigger_sequence}\n")
                }
                Report::Finished { event, records, durable } => {
                    self.finished += 1;
                    self.volatile += u64::from(!durable);
                    let kept = if *durable { "durable" } else { "not known to be durable" };
                    format!("event {event}: {records} records, {kept}\n")
                }
                Report::Refused { trigger_sequence, error } => {
                    self.refused += 1;
                    complain(&format!("fault at record {trigger_sequence} refused: {error}"));
                    continue;
                }
                Report::Failed { event, error } => {
                    self.failed += 1;
                    complain(&format!("event {event}: {error}"));
                    continue;
                }
                Report::Durable { .. } => continue,
            };
            out.text(line)?;
        }
        out.flush()
    }
}

fn record(
    args: &Record,
    config: &Config,
    strategy: Arc<dyn Strategy>,
    clock: &WallClock,
    fault: &AtomicBool,
) -> Result<()> {
    let (producer, recorder) = Recorder::start(config, strategy, Options::default())?;
    recorder.permitted().refusals().iter().for_each(|text| complain(text));
    let trigger = recorder.trigger();
    let mut source = Source { args, producer, trigger: trigger.clone(), clock, fault };
    let over = AtomicBool::new(false);
    let (pushed, tally) = std::thread::scope(|scope| {
        let reporter = scope.spawn(|| {
            let (mut tally, mut out, mut said) = (Tally::default(), Out::new(), Ok(()));
            while !over.load(Ordering::Acquire) {
                let printed = tally.print(&recorder.reports(), &mut out);
                said = said.and(printed);
                std::thread::sleep(POLL_INTERVAL);
            }
            said.map(|()| tally)
        });
        let pushed = source.run();
        over.store(true, Ordering::Release);
        let ended = || Failure::Failed("a thread ended early; please report it".to_owned());
        (pushed, reporter.join().unwrap_or_else(|_| Err(ended())))
    });
    let reports = recorder.finish();
    let (mut tally, mut out) = (tally?, Out::new());
    tally.print(&reports, &mut out)?;
    let (records, lost) = (source.producer.next_sequence(), source.producer.lost());
    out.text(format!(
        "{records} records, {lost} lost; {} events, {} faults refused; \
         {} of {} records of slack used\n",
        tally.finished,
        tally.refused,
        trigger.slack_used(),
        args.slack
    ))?;
    out.flush()?;
    pushed?;
    if lost > 0 {
        let text = format!("{lost} records were lost; give more --slack or a longer --period-us");
        return Err(Failure::Failed(text));
    }
    if tally.refused + tally.failed + tally.volatile > 0 {
        return Err(Failure::Said(1));
    }
    Ok(())
}

/// Source of records.
struct Source<'a> {
    args: &'a Record,
    producer: Producer,
    trigger: Trigger,
    clock: &'a WallClock,
    fault: &'a AtomicBool,
}

impl Source<'_> {
    fn run(&mut self) -> Result<()> {
        let done = if self.args.generate { self.generate() } else { self.read() };
        // A fault that no record follows.
        self.faults();
        done
    }

    fn wanted(&self) -> bool {
        let enough = self.args.records.is_some_and(|n| self.producer.next_sequence() >= n);
        !enough && !interrupt::asked()
    }

    /// Fires what is due before the next record.
    fn faults(&self) {
        let due = self.args.fault_at.contains(&self.producer.next_sequence());
        if due || self.fault.swap(false, Ordering::Relaxed) {
            self.trigger.fire();
        }
    }

    /// A record each period, with its number in front. One that is lost is counted.
    fn generate(&mut self) -> Result<()> {
        // The recorder said what is not permitted.
        let _ = real_time(PRIORITY);
        let mut record = vec![0xa5; usize::try_from(self.args.record_size).unwrap_or(0)];
        let start_ns = self.clock.now_ns();
        while self.wanted() {
            let sequence = self.producer.next_sequence();
            let due_ns = start_ns + sequence.saturating_mul(self.args.period_us * 1000);
            self.clock.sleep_until(due_ns);
            self.faults();
            let number = sequence.to_le_bytes();
            record.iter_mut().zip(number).for_each(|(into, from)| *into = from);
            // The producer counts it.
            let _ = self.producer.push(self.clock.now_ns(), &record);
        }
        Ok(())
    }

    /// Standard input in records of one size; the last one may be shorter. A pipe can wait, so
    /// nothing is lost.
    fn read(&mut self) -> Result<()> {
        let records = standard_input(usize::try_from(self.args.record_size).unwrap_or(0));
        while self.wanted() {
            let record = match records.recv_timeout(POLL_INTERVAL) {
                Ok(record) => {
                    record.map_err(|err| Failure::host(Path::new("standard input"), &err))?
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            while !self.producer.has_room() && !interrupt::asked() {
                std::thread::sleep(WAIT);
            }
            self.faults();
            // There is room, or the command was interrupted while there was none, which is counted.
            let _ = self.producer.push(self.clock.now_ns(), &record);
        }
        Ok(())
    }
}

/// Reads records in a thread of its own, because a read cannot be interrupted. It ends with the
/// input, or with the process.
fn standard_input(bytes: usize) -> Receiver<io::Result<Vec<u8>>> {
    let (send, records) = sync_channel(READ_AHEAD);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut record = Vec::with_capacity(bytes);
            let read = input.by_ref().take(bytes as u64).read_to_end(&mut record);
            let over = !matches!(read, Ok(n) if n == bytes);
            let empty = matches!(read, Ok(0));
            // Without a receiver the command has ended.
            if !empty && send.send(read.map(|_| record)).is_err() || over {
                return;
            }
        }
    });
    records
}
