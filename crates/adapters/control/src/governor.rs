//! Changes of a write buffer or a mount while it serves: settings by name, and policies.
//!
//! ```text
//!   ctl set DIR ram=32M auto-ram=on --> set --> Buffer::configure, Volume::set_live_limits, ...
//!   visit, all the time --> once a second: Observation --> Policies --> Change --> Governed
//!   watcher thread (first session= or power=) --> system bus --> latest (Session, Power)
//! ```
//!
//! This file is long because the settings of buffers and of mounts are parsed, checked and applied
//! as one step, all or none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use syncline_buffer::{Buffer, BufferOptions, PAGE_BYTES};
use syncline_fs::options::spec;
use syncline_fs::{LiveLimits, Volume};

use crate::{Change, Limits, Observation, POLICIES, Policies, Power, Services, Session};

/// Interval at which policies are asked.
const EVERY: Duration = Duration::from_secs(1);

type Latest = Mutex<(Session, Power)>;

/// Target of settings and policies: a buffer that is served, a mount, or a mount over a buffer.
#[derive(Clone, Copy)]
pub struct Governed<'a> {
    /// The buffer that is served, or below the mount.
    pub buffer: Option<&'a Buffer>,
    /// The volume that is mounted.
    pub volume: Option<&'a Volume>,
}

impl<'a> Governed<'a> {
    /// A buffer alone.
    pub fn buffer(buffer: &'a Buffer) -> Governed<'a> {
        Governed { buffer: Some(buffer), volume: None }
    }

    /// True if something was changed since the last sync point, or waits for write-back.
    pub fn is_behind(&self) -> bool {
        self.volume.is_some_and(|volume| match volume.sync_points() {
            Some(stats) => stats.is_behind,
            None => volume.cache_stats().dirty_pages > 0,
        })
    }
}

/// Options of what there is; nothing is changed before all settings have been read.
struct Wanted {
    buffer: Option<BufferOptions>,
    limits: Option<LiveLimits>,
    relaxed: Option<bool>,
}

#[derive(Default)]
struct State {
    policies: Policies,
    limits: Limits,
    /// Memory and its part for relaxed data, while a policy has switched the memory off.
    ram_before: Option<(u64, u64)>,
    /// State of `relaxed` before a policy made all files strict.
    relaxed_before: Option<bool>,
    looked: Option<Duration>,
    last_change: Option<String>,
    watching: bool,
    /// Policies that begin with the first data that is deferred, as words of `set`.
    later: Vec<&'static str>,
}

/// Asks the services of the machine.
type Look = dyn Fn() -> (Session, Power) + Send + Sync;

/// The settings of one server.
pub struct Governor {
    state: Mutex<State>,
    latest: Arc<Latest>,
    look: Arc<Look>,
}

impl Default for Governor {
    /// This process asks the services.
    fn default() -> Governor {
        let services = Mutex::new(Services::default());
        Governor::with(Arc::new(move || lock(&services).look()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One setting, read.
enum Setting {
    Ram(u64),
    Log(bool),
    Threshold(u64),
    RelaxedExpire(Duration),
    RelaxedMax(u64),
    IdleAfter(Duration),
    RamLimits(Limits),
    Policy(&'static str, bool),
    Relaxes(bool),
    DirtyExpire(Duration),
    DirtyRatio(u32),
    DirtyBackgroundRatio(u32),
}

/// The names, for messages.
const BUFFER_NAMES: &str =
    "ram, log, threshold, relaxed_expire, relaxed_max, idle_after, ram_limits, auto-ram, session";
const VOLUME_NAMES: &str = "relaxed, dirty_expire, dirty_ratio, dirty_background_ratio";

/// Returns the names of the settings that apply to `of`.
fn names(of: Governed<'_>) -> String {
    let session = of.buffer.is_none().then_some("session");
    let all =
        [of.buffer.map(|_| BUFFER_NAMES), of.volume.map(|_| VOLUME_NAMES), session, Some("power")];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl Setting {
    /// True if the setting applies to `of`.
    fn fits(&self, of: Governed<'_>) -> bool {
        match self {
            Setting::Policy("power" | "session", _) => true,
            Setting::Relaxes(_)
            | Setting::DirtyExpire(_)
            | Setting::DirtyRatio(_)
            | Setting::DirtyBackgroundRatio(_) => of.volume.is_some(),
            _ => of.buffer.is_some(),
        }
    }
}

/// Reads a setting that is one of these.
fn fitting(word: &str, of: Governed<'_>) -> Result<Setting, String> {
    let read = setting(word).map_err(|why| {
        why.unwrap_or_else(|| {
            let name = word.split('=').next().unwrap_or(word);
            format!("`{name}` is not a setting; there are {}", names(of))
        })
    })?;
    if read.fits(of) {
        return Ok(read);
    }
    let place = if of.buffer.is_some() {
        "is a setting of a mount, and this buffer has no mount"
    } else {
        "is a setting of a write buffer, and this mount has none (-o buffer_log=LOG)"
    };
    Err(format!("`{word}` {place}; there are {}", names(of)))
}

/// Memory of this machine in bytes. No buffer can use more.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel's own types differ between machines.
    #[allow(clippy::useless_conversion)]
    u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit))
}

/// A size of memory that this machine has.
fn within_memory(name: &str, bytes: u64) -> Result<u64, Option<String>> {
    let all = memory_bytes();
    if bytes <= all {
        return Ok(bytes);
    }
    let mib = all >> 20;
    Err(Some(format!("{name}: this machine has {mib} MiB of memory; give less, such as 64M")))
}

/// `Err(None)`: there is none of this name.
fn setting(word: &str) -> Result<Setting, Option<String>> {
    let (name, value) = word
        .split_once('=')
        .ok_or_else(|| Some(format!("`{word}` is not NAME=VALUE; write both")))?;
    let bad = |what: &str| Some(format!("{name}=`{value}` cannot be read; give {what}"));
    let size = || {
        let bytes = spec::size(value).filter(|bytes| *bytes > 0);
        bytes.ok_or_else(|| bad("a size like 2G, 512M or 65536"))
    };
    let size_or_off = || if value == "off" { Ok(0) } else { size() };
    let switch = || match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(bad("on or off")),
    };
    let seconds = || {
        let parsed = value.parse::<f64>().ok().filter(|s| (0.0..=86_400.0).contains(s));
        parsed.map(Duration::from_secs_f64).ok_or_else(|| bad("seconds, up to a day"))
    };
    let percent = |least: u32| {
        let parsed = value.parse::<u32>().ok().filter(|share| (least..=100).contains(share));
        parsed.ok_or_else(|| bad("per cent, up to 100"))
    };
    let expiry = || {
        let parsed = value.parse::<f64>().ok().filter(|s| (0.01..=3600.0).contains(s));
        parsed.map(Duration::from_secs_f64).ok_or_else(|| bad("seconds, 0.01 to 3600"))
    };
    if let Some((policy, _)) = POLICIES.iter().find(|(known, _)| *known == name) {
        return switch().map(|on| Setting::Policy(policy, on));
    }
    Ok(match name {
        "ram" => Setting::Ram(within_memory(name, size_or_off()?)?),
        "log" => Setting::Log(switch()?),
        "threshold" => Setting::Threshold(size()?),
        "relaxed_expire" => Setting::RelaxedExpire(seconds()?),
        "relaxed_max" => Setting::RelaxedMax(size_or_off()?),
        "idle_after" => Setting::IdleAfter(seconds()?),
        "relaxed" => Setting::Relaxes(switch()?),
        "dirty_expire" => Setting::DirtyExpire(expiry()?),
        "dirty_ratio" => Setting::DirtyRatio(percent(1)?),
        "dirty_background_ratio" => Setting::DirtyBackgroundRatio(percent(0)?),
        "ram_limits" => {
            let limits = value
                .split_once('-')
                .and_then(|(min, max)| Some((spec::size(min)?, spec::size(max)?)));
            let (min, max) =
                limits.filter(|(min, max)| min <= max).ok_or_else(|| bad("MIN-MAX like 4M-64M"))?;
            within_memory(name, max)?;
            Setting::RamLimits(Limits { ram_bytes_min: min, ram_bytes_max: max })
        }
        _ => return Err(None),
    })
}

impl Governor {
    /// Changes settings, all of them or, if one cannot be read, none.
    ///
    /// # Errors
    /// A sentence with the next step.
    pub fn set<'a>(
        &self,
        of: Governed<'_>,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let settings = words.map(|word| fitting(word, of)).collect::<Result<Vec<_>, _>>()?;
        if settings.is_empty() {
            return Err(format!("nothing to set; there are {}", names(of)));
        }
        let mut state = lock(&self.state);
        let mut wanted = Wanted::of(of);
        for setting in settings {
            self.apply(&mut state, &mut wanted, setting);
        }
        configure(of, wanted)
    }

    fn apply(&self, state: &mut State, wanted: &mut Wanted, setting: Setting) {
        if let Some(options) = &mut wanted.buffer {
            apply_to_buffer(state, options, &setting);
        }
        if let Some(limits) = &mut wanted.limits {
            apply_to_limits(limits, &setting);
        }
        match setting {
            Setting::Relaxes(on) => match &mut state.relaxed_before {
                Some(before) => *before = on,
                None => wanted.relaxed = Some(on),
            },
            Setting::RamLimits(limits) => {
                state.limits = limits;
                for name in state.policies.names() {
                    state.policies.switch(name, true, limits);
                }
            }
            Setting::Policy(name, on) => {
                // It stays as it was set.
                state.later.retain(|word| word.split('=').next() != Some(name));
                state.policies.switch(name, on, state.limits);
                if name == "power" && !on {
                    power_is_good(state, wanted);
                }
                if on && name != "auto-ram" && !std::mem::replace(&mut state.watching, true) {
                    let (latest, look) = (Arc::downgrade(&self.latest), Arc::clone(&self.look));
                    // Without the thread nothing is known, and nothing is switched.
                    let _ = std::thread::Builder::new()
                        .name("watcher".into())
                        .spawn(move || watch(&latest, &*look));
                }
            }
            _ => {}
        }
    }

    /// Settings whose policies know session and power supply from `look`.
    pub fn with(look: Arc<Look>) -> Governor {
        Governor { state: Mutex::default(), latest: Arc::default(), look }
    }

    /// Settings whose policies know session and power supply from [`Governor::tell`] alone: no
    /// thread asks anybody.
    pub fn told() -> Governor {
        let governor = Governor::with(Arc::new(Default::default));
        lock(&governor.state).watching = true;
        governor
    }

    /// Session and power supply for the next visits, until the services say something else.
    pub fn tell(&self, session: Session, power: Power) {
        *lock(&self.latest) = (session, power);
    }

    /// Policies that begin with [`Governor::guard`], as words of [`Governor::set`]: those that are
    /// not set until then.
    pub fn set_later(&self, words: Vec<&'static str>) {
        lock(&self.state).later = words;
    }

    /// Begins the policies of [`Governor::set_later`], since data is deferred now. Returns the line
    /// of a log about it, the first time and if there are any.
    pub fn guard(&self, of: Governed<'_>) -> Option<String> {
        let words = std::mem::take(&mut lock(&self.state).later);
        if words.is_empty() {
            return None;
        }
        Some(match self.set(of, words.iter().copied()) {
            Ok(()) => format!("policies begin, since files are relaxed: {}", words.join(", ")),
            Err(reason) => format!("{} cannot be set: {reason}", words.join(", ")),
        })
    }

    /// Asks the policies, at most once a second, and applies their changes.
    ///
    /// # Errors
    /// The error below; the buffer or the volume has latched.
    pub fn visit(&self, of: Governed<'_>, now: Duration) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.looked.is_some_and(|last| now.saturating_sub(last) < EVERY) {
            return Ok(());
        }
        state.looked = Some(now);
        let status = of.buffer.map(Buffer::status).unwrap_or_default();
        let mut wanted = Wanted::of(of);
        let (session, power) = *lock(&self.latest);
        let seen = Observation {
            now,
            ram_bytes: wanted.buffer.as_ref().map_or(0, |options| options.ram_bytes),
            ram_used_bytes: status.ram_pages * PAGE_BYTES as u64,
            holds_data: status.ram_pages + status.mapped_pages > 0 || of.is_behind(),
            session,
            power,
        };
        let Some((name, change)) = state.policies.decide(&seen) else { return Ok(()) };
        state.last_change = Some(format!("{name}: {change}"));
        match (change, &mut wanted.buffer) {
            (Change::Clean, _) => {
                if let Some(volume) = of.volume {
                    volume.sync().map_err(|err| err.to_string())?;
                }
                let drained = of.buffer.map_or(Ok(()), Buffer::drain);
                return drained.map_err(|err| err.to_string());
            }
            (Change::RamBytes(bytes), Some(options)) => options.ram_bytes = bytes,
            (Change::RamBytes(_), None) => {}
            (Change::RamOn(false), options) => {
                let taken = |o: &mut BufferOptions| {
                    (std::mem::take(&mut o.ram_bytes), std::mem::take(&mut o.relaxed_bytes_max))
                };
                state.ram_before = options.as_mut().map(taken);
                state.relaxed_before = of.volume.map(Volume::relaxed_enabled);
                wanted.relaxed = Some(false);
            }
            (Change::RamOn(true), _) => power_is_good(&mut state, &mut wanted),
        }
        configure(of, wanted)
    }

    /// Settings and policies now.
    pub fn document(&self, of: Governed<'_>) -> Value {
        let state = lock(&self.state);
        let (session, power) = *lock(&self.latest);
        let mut document = json!({
            "policies": state.policies.names(),
            "last_change": state.last_change,
            "session": session.name(),
            "power": power.name(),
        });
        if let Some(options) = of.buffer.map(Buffer::options) {
            document["ram_bytes"] = options.ram_bytes.into();
            document["ram_off_by_policy"] = state.ram_before.is_some().into();
            document["log"] = options.log_writes.into();
            document["threshold_bytes"] = options.threshold_bytes.into();
            document["relaxed_expire_s"] = options.relaxed_expire.as_secs_f64().into();
            document["relaxed_bytes_max"] = options.relaxed_bytes_max.into();
            document["idle_after_s"] = options.idle_after.as_secs_f64().into();
            document["ram_bytes_min"] = state.limits.ram_bytes_min.into();
            document["ram_bytes_max"] = state.limits.ram_bytes_max.into();
        }
        if let Some(volume) = of.volume {
            let limits = volume.live_limits();
            document["relaxed"] = volume.relaxed_enabled().into();
            document["relaxed_off_by_policy"] = state.relaxed_before.is_some().into();
            document["dirty_expire_s"] = (f64::from(limits.dirty_expire_centisecs) / 100.0).into();
            document["dirty_ratio"] = limits.dirty_ratio.into();
            document["dirty_background_ratio"] = limits.dirty_background_ratio.into();
        }
        document
    }
}

impl Wanted {
    fn of(of: Governed<'_>) -> Wanted {
        let limits = of.volume.map(Volume::live_limits);
        Wanted { buffer: of.buffer.map(Buffer::options), limits, relaxed: None }
    }
}

fn apply_to_buffer(state: &mut State, options: &mut BufferOptions, setting: &Setting) {
    match *setting {
        Setting::Ram(bytes) => match &mut state.ram_before {
            Some((ram, _)) => *ram = bytes,
            None => options.ram_bytes = bytes,
        },
        Setting::Log(on) => options.log_writes = on,
        Setting::Threshold(bytes) => options.threshold_bytes = bytes,
        Setting::RelaxedExpire(time) => options.relaxed_expire = time,
        Setting::RelaxedMax(bytes) => match &mut state.ram_before {
            Some((_, relaxed)) => *relaxed = bytes,
            None => options.relaxed_bytes_max = bytes,
        },
        Setting::IdleAfter(time) => options.idle_after = time,
        _ => {}
    }
}

fn apply_to_limits(limits: &mut LiveLimits, setting: &Setting) {
    match *setting {
        // At most an hour, as it was read.
        Setting::DirtyExpire(time) => {
            limits.dirty_expire_centisecs = (time.as_secs_f64() * 100.0).round() as u32;
        }
        Setting::DirtyRatio(share) => limits.dirty_ratio = share,
        Setting::DirtyBackgroundRatio(share) => limits.dirty_background_ratio = share,
        _ => {}
    }
}

/// Restores the settings that a policy switched off, with any change made meanwhile.
fn power_is_good(state: &mut State, wanted: &mut Wanted) {
    if let (Some(options), Some(before)) = (&mut wanted.buffer, state.ram_before.take()) {
        (options.ram_bytes, options.relaxed_bytes_max) = before;
    }
    wanted.relaxed = state.relaxed_before.take().or(wanted.relaxed);
}

/// Changes what is wanted. Limits that are refused come first, so that nothing else changes then.
fn configure(of: Governed<'_>, wanted: Wanted) -> Result<(), String> {
    let failed = |err: &dyn std::fmt::Display| {
        format!("the device failed ({err}); correct it, end the server and start it again")
    };
    if let (Some(volume), Some(limits)) = (of.volume, wanted.limits) {
        volume.set_live_limits(limits).map_err(|err| err.to_string())?;
    }
    if let (Some(volume), Some(on)) = (of.volume, wanted.relaxed) {
        volume.set_relaxed_enabled(on).map_err(|err| failed(&err))?;
    }
    if let (Some(buffer), Some(mut options)) = (of.buffer, wanted.buffer) {
        options.relaxed_bytes_max = options.relaxed_bytes_max.min(options.ram_bytes);
        buffer.configure(options).map_err(|err| failed(&err))?;
    }
    Ok(())
}

/// Asks the services, once a second, as long as somebody wants to know.
fn watch(latest: &Weak<Latest>, look: &Look) {
    while let Some(shared) = latest.upgrade() {
        *lock(&shared) = look();
        drop(shared);
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::MemoryDevice;

    fn buffer() -> Buffer {
        Buffer::open(Arc::new(MemoryDevice::new(1 << 20)), None, BufferOptions::default()).unwrap()
    }

    fn set(governor: &Governor, buffer: &Buffer, words: &str) -> Result<(), String> {
        governor.set(Governed::buffer(buffer), words.split_whitespace())
    }

    #[test]
    fn settings_reach_the_buffer_all_or_none() {
        let (governor, buffer) = (Governor::default(), buffer());
        let words = "ram=8M log=off threshold=128K relaxed_expire=2.5 relaxed_max=1M idle_after=3";
        set(&governor, &buffer, words).unwrap();
        let options = buffer.options();
        assert_eq!((options.ram_bytes, options.threshold_bytes), (8 << 20, 128 << 10));
        assert_eq!((options.log_writes, options.relaxed_bytes_max), (false, 1 << 20));
        assert_eq!(options.relaxed_expire, Duration::from_millis(2500));
        for (bad, why) in [
            ("ram=1M moon=on", "`moon` is not a setting"),
            ("ram=1M log", "NAME=VALUE"),
            ("ram=1M log=yes", "on or off"),
            ("ram=x", "a size"),
            ("idle_after=-1", "seconds"),
            ("ram=99999G", "MiB of memory; give less"),
            ("ram_limits=4M-99999G", "MiB of memory; give less"),
            ("ram_limits=8M-4M", "MIN-MAX"),
            ("relaxed=off", "a setting of a mount"),
            ("", "nothing to set"),
        ] {
            let said = set(&governor, &buffer, bad).unwrap_err();
            assert!(said.contains(why) && said.contains([';', ':']), "{said}");
        }
        assert_eq!(buffer.options(), options);
        set(&governor, &buffer, "ram=off").unwrap();
        assert_eq!((buffer.options().ram_bytes, buffer.options().relaxed_bytes_max), (0, 0));
    }

    #[test]
    fn what_is_set_before_data_is_deferred_stays_as_it_was_set() {
        let (governor, buffer) = (Governor::told(), buffer());
        let of = Governed::buffer(&buffer);
        governor.set_later(vec!["power=on", "session=on"]);
        assert_eq!(governor.document(of)["policies"], json!([]));
        assert!(set(&governor, &buffer, "power=maybe").is_err());
        set(&governor, &buffer, "session=off").unwrap();
        assert_eq!(
            governor.guard(of).unwrap(),
            "policies begin, since files are relaxed: power=on"
        );
        assert_eq!(governor.document(of)["policies"], json!(["power"]));
        set(&governor, &buffer, "power=off").unwrap();
        assert_eq!(governor.guard(of), None, "once");
        assert_eq!(governor.document(of)["policies"], json!([]));
    }

    #[test]
    fn failing_power_switches_the_memory_off_and_back_to_what_was_set_meanwhile() {
        let (governor, buffer) = (Governor::told(), buffer());
        set(&governor, &buffer, "power=on auto-ram=on ram_limits=1M-64M").unwrap();
        let at = |second, power| {
            governor.tell(Session::Unknown, power);
            governor.visit(Governed::buffer(&buffer), Duration::from_secs(second)).unwrap();
            buffer.options().ram_bytes >> 20
        };
        assert_eq!(at(0, Power::Good), 16);
        assert_eq!(at(1, Power::Failing), 0);
        set(&governor, &buffer, "ram=32M").unwrap();
        assert_eq!(at(2, Power::Failing), 0);
        assert_eq!(buffer.options().relaxed_bytes_max, 0);
        assert_eq!(at(3, Power::Good), 0);
        assert_eq!(at(13, Power::Good), 32);
        assert_eq!(buffer.options().relaxed_bytes_max, BufferOptions::default().relaxed_bytes_max);
        // Empty for five seconds: half.
        assert_eq!((at(14, Power::Good), at(19, Power::Good)), (32, 16));
        assert_eq!(
            governor.document(Governed::buffer(&buffer))["last_change"],
            "auto-ram: ram_bytes=16777216"
        );
    }
}
