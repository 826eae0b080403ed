//! A day of a phone with its pauses: the wake-ups and the energy that each policy of a mount
//! costs, and the time that data waits in memory for it.
//!
//! ```text
//!   |<------------- the user is awake, 16 h ------------->|<--- night, on the charger, 8 h --->|
//!   |session|   away   |session|   away   | ... |<-battery|
//!                                                 low ---->
//! ```
//!
//! - 50 sessions of two minutes are between the 10 and 200 a day, of 10 to 250 s each, that users
//!   of smartphones differ in (Falaki et al., Diversity in Smartphone Usage, MobiSys 2010). An
//!   event of `android-day` happens every 4 s of a session.
//! - Away from it, one event every 15 min is the most that Android lets periodic work of an app
//!   happen (`PeriodicWorkRequest`).
//! - The battery lasts for the waking hours and is low for the last 15 %, Android's mark.
//!
//! Promises: policies are those of a mount, by the same [`Governor`], asked once a second of
//! virtual time; a run repeats exactly from its seed. Tested in `lab/tests/bench/runs.rs`.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use syncline_buffer::Buffer;
use syncline_control::{Governed, Governor, Power, Session};
use syncline_fs::{MountOptions, SyncMode};
use syncline_sqlite::seed_sqlite;

use super::{
    Begin, FSYNC_CONTROL, Fjord, FjordConfig, FjordPart, NATIVE, RELAXED_BOTH, Status, Timer,
    written_mb,
};
use crate::bench::runner::{Stack, TICKS_MAX};
use crate::bench::target::{Target, VolumeTarget};
use crate::bench::workloads::{Workload, find};
use crate::error::{LabError, Result};
use crate::observer::Observer;
use crate::report::{aligned, figure};

const SESSIONS: u64 = 50;
/// From the begin of a session to that of the next one: 50 of them are 16 hours.
const SLOT_S: u64 = 1152;
const SESSION_S: u64 = 120;
/// Between two events of a session.
const EVENT_S: u64 = 4;
/// Between two events of which the user knows nothing.
const WORK_S: u64 = 900;
/// Share of the waking hours at whose end the battery is low, per cent.
const LOW_PERCENT: u64 = 15;
const SECOND_NS: u64 = 1_000_000_000;
/// Pieces of work of a volume in one second.
const DEADLINES_MAX: u32 = 64;

/// Volume, buffer and policies of a day.
#[derive(Clone, Copy, Debug)]
pub struct DayConfig {
    /// Sync mode of the volume.
    pub sync: &'static str,
    /// Buffer, and durability of the files.
    pub stack: FjordConfig,
    /// Policies that are on, as a mount has them.
    pub policies: &'static [&'static str],
}

const fn day(
    sync: &'static str,
    stack: FjordConfig,
    policies: &'static [&'static str],
) -> DayConfig {
    DayConfig { sync, stack, policies }
}

/// Deferred files under each policy and under those that `relaxed=` switches on, beside what
/// defers nothing.
pub const DAY_CONFIGS: [DayConfig; 13] = [
    day("ordered", NATIVE, &[]),
    day("ordered", FSYNC_CONTROL, &[]),
    day("ordered", FSYNC_CONTROL, &["power", "session"]),
    day("ordered", RELAXED_BOTH, &[]),
    day("ordered", RELAXED_BOTH, &["power"]),
    day("ordered", RELAXED_BOTH, &["session"]),
    day("ordered", RELAXED_BOTH, &["auto-ram"]),
    day("ordered", RELAXED_BOTH, &["power", "session"]),
    day("periodic", NATIVE, &[]),
    day("periodic", NATIVE, &["session"]),
    day("eager", NATIVE, &[]),
    day("eager", FSYNC_CONTROL, &[]),
    day("eager", FSYNC_CONTROL, &["power", "session"]),
];

/// Seconds of a day in which data waits in memory that a power cut would take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRisk {
    /// All of them.
    pub day_s: u64,
    /// Of these while the user is away.
    pub away_s: u64,
    /// Of these while the battery is low.
    pub low_s: u64,
}

/// One day in one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DayRun {
    /// The profile with its overrides.
    pub device: String,
    /// Name of the configuration.
    pub config: String,
    /// Sync mode of the volume.
    pub sync: String,
    /// SQLite's journal mode.
    pub journal_mode: String,
    /// Policies that are on, with commas between them; `none`.
    pub policies: String,
    /// Length, percent of a day.
    pub scale_percent: u64,
    /// The day.
    pub run: FjordPart,
    /// Seconds at risk; none with eager sync, whose dirty pages are durable in the journal.
    pub at_risk: Option<AtRisk>,
    /// Counters of the buffer, where there is one.
    pub buffer: Option<Status>,
}

/// The hours of a day, or of as large a part of one.
#[derive(Clone, Copy)]
struct Hours {
    awake_s: u64,
    day_s: u64,
}

impl Hours {
    fn of(scale_percent: u64) -> Hours {
        let awake_s = (SESSIONS * scale_percent / 100).max(1) * SLOT_S;
        Hours { awake_s, day_s: awake_s * 3 / 2 }
    }

    fn in_session(self, second: u64) -> bool {
        second < self.awake_s && second % SLOT_S < SESSION_S
    }

    fn is_low(self, second: u64) -> bool {
        second < self.awake_s && second >= self.awake_s - self.awake_s * LOW_PERCENT / 100
    }

    /// True if a program writes at this second.
    fn has_event(self, second: u64) -> bool {
        match self.in_session(second) {
            true => (second % SLOT_S).is_multiple_of(EVENT_S),
            false => second.is_multiple_of(WORK_S),
        }
    }

    fn tell(self, second: u64) -> (Session, Power) {
        let session = if self.in_session(second) { Session::Active } else { Session::Away };
        (session, if self.is_low(second) { Power::Failing } else { Power::Good })
    }
}

/// A stack while the day goes on.
struct Going<'a> {
    target: &'a VolumeTarget,
    buffer: Option<&'a Arc<Buffer>>,
    governor: Governor,
    at_risk: AtRisk,
    /// Time in which nothing was done.
    idle_ns: u64,
}

impl Going<'_> {
    fn governed(&self) -> Governed<'_> {
        let volume = Some(self.target.fs().volume());
        Governed { buffer: self.buffer.map(|buffer| &**buffer), volume }
    }

    fn sleep_until(&mut self, until_ns: u64) {
        let clock = self.target.fs().clock();
        self.idle_ns += until_ns.saturating_sub(clock.now_ns());
        clock.sleep_until(until_ns);
    }

    /// Time passes until then, with what a mount does meanwhile.
    fn rest(&mut self, until_ns: u64) -> Result<()> {
        let clock = Arc::clone(self.target.fs().clock());
        let volume = self.target.fs().volume().clone();
        for _ in 0..DEADLINES_MAX {
            let due_ns = volume.next_deadline_ns().filter(|due_ns| *due_ns <= until_ns);
            let Some(due_ns) = due_ns else { break };
            self.sleep_until(due_ns);
            volume.tick(clock.now_ns())?;
        }
        self.sleep_until(until_ns);
        for _ in 0..TICKS_MAX {
            let now = Duration::from_nanos(clock.now_ns());
            if !self.buffer.map_or(Ok(false), |buffer| buffer.tick(now))? {
                break;
            }
        }
        let now = Duration::from_nanos(clock.now_ns());
        self.governor.visit(self.governed(), now).map_err(LabError::Usage)
    }

    fn look(&mut self, hours: Hours, second: u64) {
        let staged = self.buffer.is_some_and(|buffer| buffer.status().ram_pages > 0);
        if staged || self.governed().is_behind() {
            self.at_risk.day_s += 1;
            self.at_risk.away_s += u64::from(!hours.in_session(second));
            self.at_risk.low_s += u64::from(hours.is_low(second));
        }
    }

    /// Lets the day pass. Returns the number of events.
    fn pass(
        &mut self,
        hours: Hours,
        workload: &mut dyn Workload,
        timer: &mut Timer,
        observer: &dyn Observer,
    ) -> Result<u64> {
        let (target, start_ns) = (self.target, self.target.now_ns());
        let mut events = 0;
        for second in 0..hours.day_s {
            if observer.stopped() {
                return Err(LabError::Interrupted);
            }
            let (session, power) = hours.tell(second);
            self.governor.tell(session, power);
            if hours.has_event(second) {
                workload.step(target, events, timer)?;
                events += 1;
            }
            self.rest(start_ns + (second + 1) * SECOND_NS)?;
            self.look(hours, second);
            observer.position(second + 1, hours.day_s);
        }
        Ok(events)
    }
}

impl Fjord<'_> {
    /// Runs a day on a fresh device as `config` says, with `mount`'s sync mode and other options.
    pub fn day(
        &self,
        config: &DayConfig,
        mount: &MountOptions,
        observer: &dyn Observer,
    ) -> Result<DayRun> {
        seed_sqlite(self.parameters.seed as u32 | 1);
        let stack = self.stack()?;
        let buffer = self.buffer(&stack, &config.stack)?;
        let mut mount = mount.clone();
        if config.stack.relaxed_fsync {
            mount.relaxed.push("*".to_owned());
        }
        let entry = find("android-day")?[0];
        let mut workload = entry.make(self.parameters);
        let target = self.mount(&stack, buffer.as_ref(), &config.stack, &mount)?;
        workload.prepare(&target)?;
        target.unmount()?;
        Stack::drain(buffer.as_ref())?;

        let target = self.mount(&stack, buffer.as_ref(), &config.stack, &mount)?;
        target.fs().always_fsync(self.parameters.sqlite_fsync);
        workload.open(&target)?;
        target.sync_all()?;
        let mut going = Going {
            target: &target,
            buffer: buffer.as_ref(),
            governor: Governor::told(),
            at_risk: AtRisk::default(),
            idle_ns: 0,
        };
        let words: Vec<String> = config.policies.iter().map(|name| format!("{name}=on")).collect();
        if !words.is_empty() {
            let set = going.governor.set(going.governed(), words.iter().map(String::as_str));
            set.map_err(LabError::Usage)?;
        }
        let (begin, mut timer) = (Begin::of(&stack, &target), Timer::default());
        let hours = Hours::of(self.parameters.scale_percent);
        let events = going.pass(hours, &mut *workload, &mut timer, observer)?;
        let (at_risk, idle_ns) = (going.at_risk, going.idle_ns);
        let run = self.part(&stack, &begin, target.app_bytes(), (events, &timer), idle_ns);
        let status = buffer.as_ref().map(|buffer| buffer.status());
        workload.close(&target)?;
        target.unmount()?;
        Ok(DayRun {
            device: self.profile.name.clone(),
            config: config.stack.name.to_owned(),
            sync: mount.sync.name().to_owned(),
            journal_mode: self.parameters.journal_mode.name().to_owned(),
            policies: if words.is_empty() { "none".to_owned() } else { config.policies.join(",") },
            scale_percent: self.parameters.scale_percent,
            run,
            at_risk: (mount.sync != SyncMode::Eager).then_some(at_risk),
            buffer: status,
        })
    }
}

const HEADER: [&str; 11] = [
    "device",
    "sync",
    "config",
    "policies",
    "wake-ups",
    "J",
    "MB",
    "flushes",
    "at risk, min",
    "away",
    "battery low",
];

/// A row for each day.
pub fn day_table(days: &[DayRun]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    for day in days {
        let minutes = |of: fn(AtRisk) -> u64| {
            day.at_risk.map_or("-".to_owned(), |at| figure(of(at) as f64 / 60.0))
        };
        let flushes = day.run.metrics.device.as_ref().map_or(0, |device| device.flushes);
        rows.push(vec![
            day.device.clone(),
            day.sync.clone(),
            day.config.clone(),
            day.policies.clone(),
            day.run.wakeups.to_string(),
            day.run.joules.map_or("-".to_owned(), figure),
            figure(written_mb(&day.run)),
            flushes.to_string(),
            minutes(|at| at.day_s),
            minutes(|at| at.away_s),
            minutes(|at| at.low_s),
        ]);
    }
    aligned(&rows, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_sessions_its_work_and_its_low_battery() {
        let hours = Hours::of(100);
        assert_eq!((hours.awake_s, hours.day_s), (16 * 3600, 24 * 3600));
        let seconds = |is: &dyn Fn(u64) -> bool| (0..hours.day_s).filter(|s| is(*s)).count();
        assert_eq!(seconds(&|s| hours.in_session(s)), 50 * 120);
        assert_eq!(seconds(&|s| hours.is_low(s)), 16 * 3600 * 15 / 100);
        assert_eq!(seconds(&|s| hours.has_event(s) && hours.in_session(s)), 1500);
        assert!(seconds(&|s| hours.has_event(s) && !hours.in_session(s)) > 32, "work at night");
        assert_eq!(hours.tell(hours.awake_s - 1), (Session::Away, Power::Failing));
        assert_eq!(hours.tell(hours.awake_s), (Session::Away, Power::Good));
        assert_eq!(Hours::of(1).awake_s, SLOT_S);
    }
}
