//! A program of the user that says what UPower and logind do not know: `sensor=PROGRAM`.
//!
//! ```text
//!   thread, every 10 s:  PROGRAM --> "power=good" "session=away" --> latest --> Services::look
//! ```
//!
//! Promises
//! - The program runs without arguments, as the user who mounted, in `/`, with empty input. It is
//!   killed after 5 s.
//! - Root runs only a program that nobody but root can change.
//! - Words of its output are separated by white space: `power=good`, `power=failing`,
//!   `session=active`, `session=away`, or `unknown` behind either. What it does not say is asked of
//!   the services.
//! - A program that cannot be started, fails, prints another word or takes too long says `unknown`
//!   for both until it works again: then no policy changes anything. It is run no more often than
//!   every 10 s, however fast it fails.
//! - Nobody waits for it: [`Sensor::said`] returns what it printed last.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use syncline_device::may_run;

use crate::{Power, Session};

const EVERY: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// Output that is read; a word behind it is none that is known.
const OUTPUT_BYTES_MAX: usize = 4096;

/// Words of a program; `None` is left to the services.
pub(crate) type Said = (Option<Session>, Option<Power>);

const FAILED: Said = (Some(Session::Unknown), Some(Power::Unknown));

/// A program that is run until this is dropped.
pub(crate) struct Sensor(Arc<Mutex<Said>>);

impl Sensor {
    /// Begins to run `program`.
    pub(crate) fn start(program: PathBuf) -> Sensor {
        let latest = Arc::new(Mutex::new(FAILED));
        let shared = Arc::downgrade(&latest);
        // Without the thread nothing is known, and nothing is switched.
        let _ = std::thread::Builder::new()
            .name("sensor".into())
            .spawn(move || run_while_wanted(&program, &shared));
        Sensor(latest)
    }

    /// Returns its last words; unknown before the first.
    pub(crate) fn said(&self) -> Said {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run_while_wanted(program: &Path, latest: &Weak<Mutex<Said>>) {
    loop {
        let said = run(program).unwrap_or(FAILED);
        match latest.upgrade() {
            Some(latest) => *latest.lock().unwrap_or_else(PoisonError::into_inner) = said,
            None => return,
        }
        let began = Instant::now();
        while began.elapsed() < EVERY {
            std::thread::sleep(Duration::from_millis(500));
            if latest.strong_count() == 0 {
                return;
            }
        }
    }
}

/// Runs it once; `None` if it failed.
fn run(program: &Path) -> Option<Said> {
    if !may_run(program) {
        return None;
    }
    let mut child = Command::new(program)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = File::from(OwnedFd::from(child.stdout.take()?));
    // A pipe holds more than is read, so a program that prints this much can end.
    if !ends_in_time(&mut child) {
        return None;
    }
    // What it left running may keep the pipe open.
    rustix::io::ioctl_fionbio(&output, true).ok()?;
    let mut text = [0; OUTPUT_BYTES_MAX];
    let mut len = 0;
    while let Ok(more @ 1..) = (&output).read(&mut text[len..]) {
        len += more;
    }
    read(std::str::from_utf8(&text[..len]).ok()?)
}

/// True if it ended well; it is gone in any case.
fn ends_in_time(child: &mut Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(POLL),
            Err(_) => break,
        }
    }
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ = child.wait();
    false
}

/// Reads what it printed; `None` for a word that is not known.
fn read(text: &str) -> Option<Said> {
    let mut said = (None, None);
    for word in text.split_whitespace() {
        match word {
            "power=good" => said.1 = Some(Power::Good),
            "power=failing" => said.1 = Some(Power::Failing),
            "power=unknown" => said.1 = Some(Power::Unknown),
            "session=active" => said.0 = Some(Session::Active),
            "session=away" => said.0 = Some(Session::Away),
            "session=unknown" => said.0 = Some(Session::Unknown),
            _ => return None,
        }
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(script: &str) -> tempfile::TempPath {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn what_it_prints_is_said_and_a_failure_is_unknown() {
        let (away, failing) = (Some(Session::Away), Some(Power::Failing));
        for (script, said) in [
            ("echo power=failing; echo session=away", Some((away, failing))),
            ("echo power=failing", Some((None, failing))),
            ("true", Some((None, None))),
            ("pwd | grep -qx / && ! read -r line && echo session=away", Some((away, None))),
            ("echo power=low", None),
            ("echo power=good; exit 1", None),
            ("yes power=good | head -c 20000", None),
            ("echo power=failing; sleep 9 & exit 0", Some((None, failing))),
        ] {
            assert_eq!(run(&program(script)), said, "{script}");
        }
        assert_eq!(run(Path::new("/nonexistent")), None);
    }

    #[test]
    fn root_runs_no_program_that_others_can_change() {
        let program = program("echo power=good");
        assert_eq!(run(&program), Some((None, Some(Power::Good))));
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(run(&program).is_none(), rustix::process::geteuid().is_root());
    }

    #[test]
    fn one_that_hangs_is_killed_and_nobody_waits_for_it() {
        let hangs = program("echo power=good; sleep 1000 & wait");
        let sensor = Sensor::start(hangs.to_path_buf());
        assert_eq!(sensor.said(), FAILED);
        let began = Instant::now();
        assert_eq!((run(&hangs), sensor.said()), (None, FAILED));
        assert!(began.elapsed() < Duration::from_secs(500));
    }
}
