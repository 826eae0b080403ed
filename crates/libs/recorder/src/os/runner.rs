//! The threads of a recorder: a writer that looks at the ring every millisecond, and a lower one
//! for what may take long.
//!
//! The producer wakes nobody, since a wake-up is a system call; so the writer is at most one
//! interval late, for which the ring has slack. It has SCHED_FIFO and locked memory where that is
//! permitted, and [`Permitted`] says whether it is. Jobs are at most two for each event, so the
//! queue is bounded.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::sys;
use crate::config::Config;
use crate::error::{RecorderError, Result};
use crate::machine::{Machine, Outputs, Report};
use crate::ring::{Producer, Trigger, ring};
use crate::strategy::{Done, Job, Strategy};

/// Options of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Poll interval of the writer, in microseconds.
    pub interval_us: u64,
    /// Priority of the writer, 1 to 99; `None`: an ordinary thread.
    pub fifo_priority: Option<i32>,
    /// Lock the process's memory.
    pub lock_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { interval_us: 1000, fifo_priority: Some(10), lock_memory: true }
    }
}

/// Answers of the system to requests for privileges; `None`: not requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permitted {
    /// SCHED_FIFO for the writer, or why not.
    pub fifo: Option<std::result::Result<(), String>>,
    /// Locked memory, or why not.
    pub memory: Option<std::result::Result<(), String>>,
}

impl Permitted {
    /// One sentence for each that was refused.
    pub fn refusals(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let Some(Err(why)) = &self.fifo {
            said.push(format!("no real-time priority: {why}; run as root or allow RLIMIT_RTPRIO"));
        }
        if let Some(Err(why)) = &self.memory {
            said.push(format!("memory is not locked: {why}; run as root or raise RLIMIT_MEMLOCK"));
        }
        said
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    done: VecDeque<(Job, Result<Done>)>,
    reports: Vec<Report>,
    /// Events under way, as the writer knows.
    events: usize,
    /// The strategy may have something to get ready.
    unprepared: bool,
    stopping: bool,
    writer_over: bool,
}

#[derive(Default)]
struct Common {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Jobs and reports of a step, until the queue takes them.
#[derive(Default)]
struct Given {
    jobs: Vec<Job>,
    reports: Vec<Report>,
}

impl Outputs for Given {
    fn job(&mut self, job: Job) {
        self.jobs.push(job);
    }

    fn report(&mut self, report: Report) {
        self.reports.push(report);
    }
}

/// A running recorder. Dropping it ends the events under way first, as [`Recorder::finish`] does.
pub struct Recorder {
    trigger: Trigger,
    common: Arc<Common>,
    permitted: Permitted,
    threads: Vec<JoinHandle<()>>,
}

impl Recorder {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`RecorderError::Usage`] for the configuration, [`RecorderError::Io`] without threads.
    pub fn start(
        config: &Config,
        strategy: Arc<dyn Strategy>,
        options: Options,
    ) -> Result<(Producer, Recorder)> {
        let (producer, trigger, machine) = ring(config)?;
        let common = Arc::<Common>::default();
        let mut recorder = Recorder {
            trigger,
            common: Arc::clone(&common),
            permitted: Permitted::default(),
            threads: Vec::new(),
        };
        let plain = |result: io::Result<()>| result.map_err(|err| err.to_string());
        if options.lock_memory {
            recorder.permitted.memory = Some(plain(sys::lock_memory()));
        }
        let (tell, told) = std::sync::mpsc::channel();
        let (queue, lower) = (Arc::clone(&common), Arc::clone(&strategy));
        recorder.spawn("recorder-lower", move || lower_thread(&queue, &*lower))?;
        recorder.spawn("recorder-write", move || {
            // The starter waits for the answer.
            let _ = tell.send(options.fifo_priority.map(sys::real_time));
            write_thread(machine, &common, &*strategy, options.interval_us);
        })?;
        recorder.permitted.fifo = told.recv().ok().flatten().map(plain);
        Ok((producer, recorder))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|err| RecorderError::io("thread", &err))?);
        Ok(())
    }

    /// Returns the system's answers to requests for privileges.
    pub fn permitted(&self) -> &Permitted {
        &self.permitted
    }

    /// A handle that reports faults.
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// Returns the reports since the last call.
    pub fn reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.common.queue.lock().reports)
    }

    /// Ends the events under way with what was pushed so far, waits until they are durable, and
    /// returns the last reports.
    pub fn finish(mut self) -> Vec<Report> {
        self.join();
        self.reports()
    }

    fn join(&mut self) {
        self.common.queue.lock().stopping = true;
        self.common.changed.notify_all();
        for thread in self.threads.drain(..).rev() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.join();
    }
}

fn write_thread(mut machine: Machine, common: &Common, strategy: &dyn Strategy, interval_us: u64) {
    let mut given = Given::default();
    loop {
        // Before the step, which takes everything that was pushed before the stop.
        let stopping = common.queue.lock().stopping;
        let mut step = machine.step(strategy, &mut given);
        if stopping {
            machine.close(strategy, &mut given);
            step = machine.step(strategy, &mut given);
        }
        exchange(&mut machine, common, &mut given);
        if stopping && machine.events() == 0 {
            break;
        }
        if !step.more {
            std::thread::sleep(Duration::from_micros(interval_us));
        }
    }
    common.queue.lock().writer_over = true;
    common.changed.notify_all();
}

/// Hands over what the step gave, and takes what the lower thread did.
fn exchange(machine: &mut Machine, common: &Common, given: &mut Given) {
    let mut queue = common.queue.lock();
    if !given.jobs.is_empty() {
        queue.jobs.extend(given.jobs.drain(..));
        common.changed.notify_all();
    }
    while let Some((job, result)) = queue.done.pop_front() {
        machine.completed(&job, result, given);
    }
    queue.reports.append(&mut given.reports);
    let events = machine.events();
    if events == 0 && queue.events > 0 {
        queue.unprepared = true;
        common.changed.notify_all();
    }
    queue.events = events;
}

fn lower_thread(common: &Common, strategy: &dyn Strategy) {
    loop {
        let job = {
            let mut queue = common.queue.lock();
            loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break Some(job);
                }
                if queue.writer_over {
                    return;
                }
                if queue.unprepared && queue.events == 0 && !queue.stopping {
                    queue.unprepared = false;
                    break None;
                }
                common.changed.wait(&mut queue);
            }
        };
        match job {
            Some(job) => {
                let result = strategy.lower(&job);
                common.queue.lock().done.push_back((job, result));
            }
            // What cannot be got ready is missed by the next fault, which says so.
            None if strategy.prepare() == Ok(true) => common.queue.lock().unprepared = true,
            None => {}
        }
    }
}
