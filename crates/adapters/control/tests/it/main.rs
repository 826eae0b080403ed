//! Observations through a real message bus, with services that the test plays.

use std::collections::HashMap;
use std::io::BufRead;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline_control::dbus::{Bus, METHOD_CALL, METHOD_RETURN, Message, put_string};
use syncline_control::{Power, Session, look};

/// dbus-daemon for one test, with a policy that allows everything.
struct Daemon {
    child: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Daemon {
    fn start(test: &str) -> Option<Daemon> {
        let dir = tempfile::tempdir().unwrap();
        let (config, socket) = (dir.path().join("config"), dir.path().join("bus"));
        let text = format!(
            "<busconfig><type>custom</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/>\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/></policy>\
             </busconfig>",
            socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let started = Command::new("dbus-daemon")
            .args(["--nofork", "--print-address=1", "--config-file"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            syncline_testkit::skip(test, "needs dbus-daemon; install dbus");
            return None;
        };
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.starts_with("unix:"), "{line}");
        Some(Daemon { child, socket, _dir: dir })
    }

    fn connect(&self) -> Bus<UnixStream> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Bus::connect(stream, rustix::process::geteuid().as_raw()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Property and its value: type and number.
type Properties = Arc<Mutex<HashMap<&'static str, (u8, u32)>>>;

/// Plays a service, in a thread that ends with the bus.
fn play(daemon: &Daemon, name: &str, properties: Properties) {
    let mut bus = daemon.connect();
    let mut body = Vec::new();
    put_string(&mut body, name);
    body.resize(body.len().next_multiple_of(4) + 4, 0);
    let own = "org.freedesktop.DBus";
    let owned = bus.call(own, "/org/freedesktop/DBus", own, "RequestName", ("su", body)).unwrap();
    assert!(owned.is_some());
    std::thread::spawn(move || {
        while let Ok((call, _)) = bus.receive() {
            if call.kind != METHOD_CALL {
                continue;
            }
            // Of "ss" the second string is the name of the property.
            let asked = String::from_utf8_lossy(&call.body).into_owned();
            let known =
                properties.lock().unwrap().iter().find_map(|(name, value)| {
                    asked.ends_with(&format!("{name}\0")).then_some(*value)
                });
            let mut answer = Message {
                kind: METHOD_RETURN,
                reply_serial: call.serial,
                destination: call.sender,
                ..Message::default()
            };
            match known {
                Some((kind, value)) => {
                    answer.signature = "v".into();
                    answer.body = [&[1, kind, 0, 0][..], &value.to_le_bytes()].concat();
                }
                // An empty answer is no property either.
                None => answer.body.clear(),
            }
            if bus.send(answer).is_err() {
                break;
            }
        }
    });
}

#[test]
fn battery_shutdown_and_sessions_as_the_services_say() {
    let test = "battery_shutdown_and_sessions_as_the_services_say";
    let Some(daemon) = Daemon::start(test) else { return };
    let mut bus = daemon.connect();
    assert_eq!(look(&mut bus).unwrap(), (Session::Unknown, Power::Unknown));
    let (upower, logind) = (Properties::default(), Properties::default());
    play(&daemon, "org.freedesktop.UPower", upower.clone());
    play(&daemon, "org.freedesktop.login1", logind.clone());
    let set = |of: &Properties, name, value| {
        of.lock().unwrap().insert(name, value);
    };
    for (level, power) in [
        (1, Power::Good),
        (2, Power::Good),
        (3, Power::Failing),
        (5, Power::Failing),
        (1, Power::Good),
        (0, Power::Unknown),
    ] {
        set(&upower, "WarningLevel", (b'u', level));
        assert_eq!(look(&mut bus).unwrap(), (Session::Unknown, power), "{level}");
    }
    set(&upower, "WarningLevel", (b'u', 1));
    set(&logind, "PreparingForShutdown", (b'b', 1));
    assert_eq!(look(&mut bus).unwrap().1, Power::Failing);
    set(&logind, "PreparingForShutdown", (b'b', 0));
    set(&logind, "PreparingForSleep", (b'b', 1));
    assert_eq!(look(&mut bus).unwrap().1, Power::Failing);
    set(&logind, "PreparingForSleep", (b'b', 0));
    set(&logind, "IdleHint", (b'b', 0));
    assert_eq!(look(&mut bus).unwrap(), (Session::Active, Power::Good));
    set(&logind, "LockedHint", (b'b', 1));
    assert_eq!(look(&mut bus).unwrap().0, Session::Away);
    set(&logind, "LockedHint", (b'b', 0));
    set(&logind, "IdleHint", (b'b', 1));
    assert_eq!(look(&mut bus).unwrap().0, Session::Away);
    drop(daemon);
    assert!(look(&mut bus).is_err());
}
