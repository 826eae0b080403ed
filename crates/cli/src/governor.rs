//! What changes a write buffer while it serves: settings by name, and policies.
//!
//! ```text
//!   ctl set DIR ram=32M auto-ram=on --> set --> Buffer::configure
//!   visit, all the time --> once a second: Observation --> Policies --> Change --> Buffer
//!   watcher thread (first session= or power=) --> system bus --> latest (Session, Power)
//! ```

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use syncline_buffer::{Buffer, BufferOptions, PAGE_BYTES};
use syncline_control::dbus::Bus;
use syncline_control::{Change, Limits, Observation, POLICIES, Policies, Power, Session, look};
use syncline_device::DeviceError;

use crate::args::size_bytes;

/// How often policies look.
const EVERY: Duration = Duration::from_secs(1);
/// How long the bus may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The bus of the system where no variable says another.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

type Latest = Mutex<(Session, Power)>;

#[derive(Default)]
struct State {
    policies: Policies,
    limits: Limits,
    /// The size while the memory is switched off by a policy.
    ram_bytes_before: Option<u64>,
    looked: Option<Duration>,
    last_change: Option<String>,
    watching: bool,
}

/// The settings of one server.
#[derive(Default)]
pub(crate) struct Governor {
    state: Mutex<State>,
    latest: Arc<Latest>,
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
}

/// The names, for messages.
const NAMES: &str = "ram, log, threshold, relaxed_expire, relaxed_max, idle_after, ram_limits, \
                     auto-ram, session, power";

fn setting(word: &str) -> Result<Setting, String> {
    let (name, value) =
        word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=VALUE; write both"))?;
    let bad = |what: &str| format!("{name}=`{value}`: give {what}");
    let size = || size_bytes(value).map_err(|what| bad(&what));
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
    if let Some((policy, _)) = POLICIES.iter().find(|(known, _)| *known == name) {
        return switch().map(|on| Setting::Policy(policy, on));
    }
    Ok(match name {
        "ram" => Setting::Ram(size_or_off()?),
        "log" => Setting::Log(switch()?),
        "threshold" => Setting::Threshold(size()?),
        "relaxed_expire" => Setting::RelaxedExpire(seconds()?),
        "relaxed_max" => Setting::RelaxedMax(size_or_off()?),
        "idle_after" => Setting::IdleAfter(seconds()?),
        "ram_limits" => {
            let limits = value
                .split_once('-')
                .and_then(|(min, max)| Some((size_bytes(min).ok()?, size_bytes(max).ok()?)));
            let (min, max) =
                limits.filter(|(min, max)| min <= max).ok_or_else(|| bad("MIN-MAX like 4M-64M"))?;
            Setting::RamLimits(Limits { ram_bytes_min: min, ram_bytes_max: max })
        }
        _ => return Err(format!("`{name}` is no setting; there are {NAMES}")),
    })
}

impl Governor {
    /// Changes settings, all of them or, if one cannot be read, none.
    ///
    /// # Errors
    /// A sentence with the next step.
    pub(crate) fn set<'a>(
        &self,
        buffer: &Buffer,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let settings = words.map(setting).collect::<Result<Vec<_>, _>>()?;
        if settings.is_empty() {
            return Err(format!("nothing to set; there are {NAMES}"));
        }
        let mut state = lock(&self.state);
        let mut options = buffer.options();
        for setting in settings {
            self.apply(&mut state, &mut options, setting);
        }
        self.configure(buffer, options).map_err(|err| {
            format!("the device failed ({err}); correct it, end the server and attach again")
        })
    }

    fn apply(&self, state: &mut State, options: &mut BufferOptions, setting: Setting) {
        match setting {
            Setting::Ram(bytes) => match &mut state.ram_bytes_before {
                Some(before) => *before = bytes,
                None => options.ram_bytes = bytes,
            },
            Setting::Log(on) => options.log_writes = on,
            Setting::Threshold(bytes) => options.threshold_bytes = bytes,
            Setting::RelaxedExpire(time) => options.relaxed_expire = time,
            Setting::RelaxedMax(bytes) => options.relaxed_bytes_max = bytes,
            Setting::IdleAfter(time) => options.idle_after = time,
            Setting::RamLimits(limits) => {
                state.limits = limits;
                for name in state.policies.names() {
                    state.policies.switch(name, true, limits);
                }
            }
            Setting::Policy(name, on) => {
                state.policies.switch(name, on, state.limits);
                if name == "power" && !on {
                    options.ram_bytes = state.ram_bytes_before.take().unwrap_or(options.ram_bytes);
                }
                if on && name != "auto-ram" && !std::mem::replace(&mut state.watching, true) {
                    let latest = Arc::downgrade(&self.latest);
                    // Without the thread nothing is known, and nothing is switched.
                    let _ = std::thread::Builder::new()
                        .name("watcher".into())
                        .spawn(move || watch(&latest));
                }
            }
        }
    }

    fn configure(&self, buffer: &Buffer, mut options: BufferOptions) -> Result<(), DeviceError> {
        options.relaxed_bytes_max = options.relaxed_bytes_max.min(options.ram_bytes);
        buffer.configure(options)
    }

    /// What the policies want, once a second.
    ///
    /// # Errors
    /// What failed below; the buffer has latched.
    pub(crate) fn visit(&self, buffer: &Buffer, now: Duration) -> Result<(), DeviceError> {
        let mut state = lock(&self.state);
        if state.looked.is_some_and(|last| now.saturating_sub(last) < EVERY) {
            return Ok(());
        }
        state.looked = Some(now);
        let (status, mut options) = (buffer.status(), buffer.options());
        let (session, power) = *lock(&self.latest);
        let seen = Observation {
            now,
            ram_bytes: options.ram_bytes,
            ram_used_bytes: status.ram_pages * PAGE_BYTES as u64,
            holds_data: status.ram_pages + status.mapped_pages > 0,
            session,
            power,
        };
        let Some((name, change)) = state.policies.decide(&seen) else { return Ok(()) };
        state.last_change = Some(format!("{name}: {change:?}"));
        match change {
            Change::Clean => return buffer.drain(),
            Change::RamBytes(bytes) => options.ram_bytes = bytes,
            Change::RamOn(false) => {
                state.ram_bytes_before = Some(std::mem::take(&mut options.ram_bytes));
            }
            Change::RamOn(true) => {
                options.ram_bytes = state.ram_bytes_before.take().unwrap_or(options.ram_bytes);
            }
        }
        self.configure(buffer, options)
    }

    /// Settings and policies now.
    pub(crate) fn document(&self, buffer: &Buffer) -> Value {
        let (state, options) = (lock(&self.state), buffer.options());
        let (session, power) = *lock(&self.latest);
        json!({
            "ram_bytes": options.ram_bytes,
            "ram_off_by_policy": state.ram_bytes_before.is_some(),
            "log": options.log_writes,
            "threshold_bytes": options.threshold_bytes,
            "relaxed_expire_s": options.relaxed_expire.as_secs_f64(),
            "relaxed_bytes_max": options.relaxed_bytes_max,
            "idle_after_s": options.idle_after.as_secs_f64(),
            "ram_bytes_min": state.limits.ram_bytes_min,
            "ram_bytes_max": state.limits.ram_bytes_max,
            "policies": state.policies.names(),
            "last_change": state.last_change,
            "session": format!("{session:?}"),
            "power": format!("{power:?}"),
        })
    }
}

/// Asks the services, once a second, as long as somebody wants to know.
fn watch(latest: &Weak<Latest>) {
    let mut bus = None;
    while let Some(shared) = latest.upgrade() {
        bus = bus.or_else(connect);
        let seen = bus.as_mut().and_then(|bus| look(bus).ok());
        if seen.is_none() {
            bus = None;
        }
        *lock(&shared) = seen.unwrap_or_default();
        drop(shared);
        std::thread::sleep(EVERY);
    }
}

fn connect() -> Option<Bus<UnixStream>> {
    let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
    let own = address.split([';', ',']).find_map(|part| part.strip_prefix("unix:path="));
    let path = own.map_or_else(|| PathBuf::from(SYSTEM_BUS), PathBuf::from);
    let stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Bus::connect(stream, rustix::process::geteuid().as_raw()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::MemoryDevice;

    fn buffer() -> Buffer {
        Buffer::open(Arc::new(MemoryDevice::new(1 << 20)), None, BufferOptions::default()).unwrap()
    }

    fn set(governor: &Governor, buffer: &Buffer, words: &str) -> Result<(), String> {
        governor.set(buffer, words.split_whitespace())
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
            ("ram=1M moon=on", "`moon` is no setting"),
            ("ram=1M log", "NAME=VALUE"),
            ("ram=1M log=yes", "on or off"),
            ("ram=x", "a size"),
            ("idle_after=-1", "seconds"),
            ("ram_limits=8M-4M", "MIN-MAX"),
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
    fn failing_power_switches_the_memory_off_and_back_to_what_was_set_meanwhile() {
        let (governor, buffer) = (Governor::default(), buffer());
        lock(&governor.state).watching = true;
        set(&governor, &buffer, "power=on auto-ram=on ram_limits=1M-64M").unwrap();
        let at = |second, power| {
            *lock(&governor.latest) = (Session::Unknown, power);
            governor.visit(&buffer, Duration::from_secs(second)).unwrap();
            buffer.options().ram_bytes >> 20
        };
        assert_eq!(at(0, Power::Good), 16);
        assert_eq!(at(1, Power::Failing), 0);
        set(&governor, &buffer, "ram=32M").unwrap();
        assert_eq!(at(2, Power::Failing), 0);
        assert_eq!(at(3, Power::Good), 0);
        assert_eq!(at(13, Power::Good), 32);
        // Empty for five seconds: half.
        assert_eq!((at(14, Power::Good), at(19, Power::Good)), (32, 16));
        assert_eq!(governor.document(&buffer)["last_change"], "auto-ram: RamBytes(16777216)");
    }
}
