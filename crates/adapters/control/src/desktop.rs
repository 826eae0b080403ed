//! State of battery, sessions, shutdown and suspend, from the system's services: UPower and logind.
//!
//! Properties are asked for, once a second or so, and no signals awaited: an answer is never older
//! than that, and a service that is started later, or again, needs no care. A service that is not
//! there makes its part unknown.
//!
//! Sources: UPower's reference (`org.freedesktop.UPower.Device`, WarningLevel: 3 low, 4 critical, 5
//! action), org.freedesktop.login1(5).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::dbus::{Bus, Value};
use crate::sensor::Sensor;
use crate::{Power, Session};

const UPOWER: &str = "org.freedesktop.UPower";
const BATTERY: &str = "/org/freedesktop/UPower/devices/DisplayDevice";
const BATTERY_INTERFACE: &str = "org.freedesktop.UPower.Device";
const LOGIND: &str = "org.freedesktop.login1";
const MANAGER: &str = "/org/freedesktop/login1";
const MANAGER_INTERFACE: &str = "org.freedesktop.login1.Manager";
const OWN_SESSION: &str = "/org/freedesktop/login1/session/auto";
const SESSION_INTERFACE: &str = "org.freedesktop.login1.Session";
/// The first warning that means something.
const LOW: u32 = 3;

/// Time limit for an answer of the bus.
const PATIENCE: Duration = Duration::from_secs(5);
/// The bus of the system where no variable says another.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// The services of this machine, connected when they are asked for, and a program that takes
/// precedence.
#[derive(Default)]
pub struct Services {
    bus: Option<Bus<UnixStream>>,
    program: Option<PathBuf>,
    sensor: Option<Sensor>,
}

impl Services {
    /// With a program (`sensor.rs`), which is run from the first [`Services::look`] on.
    pub fn with(program: Option<PathBuf>) -> Services {
        Services { program, ..Services::default() }
    }

    /// Asks them; unknown is what they do not say.
    pub fn look(&mut self) -> (Session, Power) {
        if let Some(program) = self.program.take() {
            self.sensor = Some(Sensor::start(program));
        }
        match self.sensor.as_ref().map(Sensor::said).unwrap_or_default() {
            (Some(session), Some(power)) => (session, power),
            (session, power) => {
                let asked = self.ask();
                (session.unwrap_or(asked.0), power.unwrap_or(asked.1))
            }
        }
    }

    fn ask(&mut self) -> (Session, Power) {
        let bus = self.bus.take().or_else(connect);
        let Some((bus, seen)) = bus.and_then(|mut bus| look(&mut bus).ok().map(|seen| (bus, seen)))
        else {
            return Default::default();
        };
        self.bus = Some(bus);
        seen
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

/// Asks the services of the system's bus.
///
/// # Errors
/// The connection's: connect again.
pub fn look<S: Read + Write>(bus: &mut Bus<S>) -> io::Result<(Session, Power)> {
    let warning = bus.property(UPOWER, BATTERY, BATTERY_INTERFACE, "WarningLevel")?;
    let ending = bus.property(LOGIND, MANAGER, MANAGER_INTERFACE, "PreparingForShutdown")?;
    // True while logind waits for those that delay a suspend, such as screen lockers.
    let sleeping = bus.property(LOGIND, MANAGER, MANAGER_INTERFACE, "PreparingForSleep")?;
    let idle = bus.property(LOGIND, MANAGER, MANAGER_INTERFACE, "IdleHint")?;
    let locked = bus.property(LOGIND, OWN_SESSION, SESSION_INTERFACE, "LockedHint")?;
    let ends = |said: &Option<Value>| matches!(said, Some(Value::Bool(true)));
    let power = match (warning, ends(&ending) || ends(&sleeping)) {
        (_, true) => Power::Failing,
        (Some(Value::U32(level)), _) if level >= LOW => Power::Failing,
        (Some(Value::U32(level)), _) if level > 0 => Power::Good,
        _ => Power::Unknown,
    };
    let session = match (idle, locked) {
        (Some(Value::Bool(true)), _) | (_, Some(Value::Bool(true))) => Session::Away,
        (Some(Value::Bool(false)), _) => Session::Active,
        _ => Session::Unknown,
    };
    Ok((session, power))
}
