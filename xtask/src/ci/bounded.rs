//! A command that ends in time, whatever it does.
//!
//! ```text
//!   start --- limit ---> SIGTERM --- term ---> SIGKILL --- kill ---> given up, and shown
//! ```
//!
//! The signals go to its process group and to every process that it has started. Output is read by
//! threads that are abandoned with a process which never closes it; ends are polled. So nothing
//! waits for a process in uninterruptible sleep. Processes that outlive a command which ended by
//! itself are ended, too, and make it fail.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::processes;

/// Lines that wait between a command and who reads them.
const LINES_MAX: usize = 1024;
/// Interval at which the end of a command is looked for.
const POLL: Duration = Duration::from_millis(20);
/// Interval at which processes that should end are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// The durations of a command's life.
#[derive(Clone, Copy)]
pub struct Limits {
    /// From its start to SIGTERM.
    pub run: Duration,
    /// From SIGTERM to SIGKILL.
    pub term: Duration,
    /// From SIGKILL until it is given up.
    pub kill: Duration,
    /// From its own end until processes that it has started must have ended.
    pub settle: Duration,
    /// Sends signals; tests stand for a process that no signal ends.
    signal: fn(Pid, &std::collections::BTreeSet<i32>, Signal),
}

impl Limits {
    /// The limits of a command that may take `run`.
    pub fn of(run: Duration) -> Self {
        let [term, kill, settle] = [20, 10, 10].map(Duration::from_secs);
        Self { run, term, kill, settle, signal: processes::signal }
    }
}

/// One line of output, its line end included.
pub struct Line {
    /// The line; bytes that are no text are replaced.
    pub text: String,
    /// It came from standard error.
    pub error: bool,
}

/// Runs the command; `each` takes its output. `interrupted` ends it before its time.
pub fn run(
    command: &mut Command,
    limits: &Limits,
    interrupted: &AtomicBool,
    each: &mut dyn FnMut(&Line),
) -> Result<ExitStatus, String> {
    let mark = mark();
    command.env(processes::MARK, &mark).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}\n"))?;
    let group = Pid::from_child(&child);
    let (send, lines) = sync_channel(LINES_MAX);
    read(child.stdout.take(), false, send.clone());
    read(child.stderr.take(), true, send);
    let mut follow = Follow { child: &mut child, lines, each };
    if let Some(status) = follow.until_end(limits.run, interrupted) {
        return settle(&mut follow, &mark, group, limits).map(|()| status);
    }
    let complaint = match interrupted.load(Ordering::Relaxed) {
        true => "interrupted:\n".to_owned(),
        false => format!("not done after {} s:\n", limits.run.as_secs()),
    };
    Err(complaint + &end(&mut follow, &mark, group, limits))
}

/// Unlike any other of this machine.
fn mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn read(from: Option<impl Read + Send + 'static>, error: bool, to: SyncSender<Line>) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if to.send(Line { text, error }).is_err() {
                break;
            }
            line.clear();
        }
    });
}

/// A running command and its output.
struct Follow<'a> {
    child: &'a mut Child,
    lines: Receiver<Line>,
    each: &'a mut dyn FnMut(&Line),
}

impl Follow<'_> {
    /// Passes output on until the command ends, the limit is over, or an interruption comes.
    fn until_end(&mut self, limit: Duration, interrupted: &AtomicBool) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            self.output(deadline.min(Instant::now() + POLL));
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline || interrupted.load(Ordering::Relaxed) {
                return None;
            }
        }
    }

    /// Passes output on until then, or until all of it has come; whether that is so.
    fn output(&mut self, until: Instant) -> bool {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(rest) {
                Ok(line) => (self.each)(&line),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => {
                    // A command that has closed its output is polled no faster.
                    std::thread::sleep(rest.min(POLL));
                    return true;
                }
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }
}

/// Waits for the rest of the output and for processes that the ended command has started.
fn settle(follow: &mut Follow, mark: &str, group: Pid, limits: &Limits) -> Result<(), String> {
    let deadline = Instant::now() + limits.settle;
    let mut pause = POLL;
    loop {
        let closed = follow.output(deadline.min(Instant::now() + pause));
        let left = processes::of(mark, group);
        if left.is_empty() && closed {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let complaint = "processes that it started outlived it:\n".to_owned();
            return Err(complaint + &end(follow, mark, group, limits));
        }
        pause = LOOK;
    }
}

/// Ends the processes of the command; the answer shows them.
fn end(follow: &mut Follow, mark: &str, group: Pid, limits: &Limits) -> String {
    let mut shown = String::new();
    for (signal, limit) in [(Signal::TERM, limits.term), (Signal::KILL, limits.kill)] {
        let left = processes::of(mark, group);
        if left.is_empty() {
            return shown;
        }
        shown += &processes::shown(&left);
        shown += if signal == Signal::TERM { "SIGTERM\n" } else { "SIGKILL\n" };
        (limits.signal)(group, &left, signal);
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline && !processes::of(mark, group).is_empty() {
            follow.until_end(LOOK, &AtomicBool::new(false));
        }
    }
    let left = processes::of(mark, group);
    if !left.is_empty() {
        shown += "given up; they still run:\n";
        shown += &processes::shown(&left);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(300);
    static NEVER: AtomicBool = AtomicBool::new(false);

    fn limits(run: Duration) -> Limits {
        Limits { run, term: SHORT, kill: SHORT, settle: SHORT, signal: processes::signal }
    }

    fn sh(script: &str, limits: &Limits) -> (Result<ExitStatus, String>, String, Duration) {
        let mut said = String::new();
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ended = run(&mut command, limits, &NEVER, &mut |line| said += &line.text);
        (ended, said, start.elapsed())
    }

    #[test]
    fn a_command_in_time_is_good_and_its_output_whole() {
        let script = "for i in 1 2 3; do echo $i; echo $i >&2; done; printf end";
        let (ended, mut said, _) = sh(script, &limits(Duration::from_secs(60)));
        assert!(ended.unwrap().success());
        said = said.replace('\n', "");
        assert_eq!(said.len(), "112233end".len(), "{said}");
        let (ended, ..) = sh("exit 3", &limits(Duration::from_secs(60)));
        assert_eq!(ended.unwrap().code(), Some(3));
        let ended = run(&mut Command::new("no-such-program"), &limits(SHORT), &NEVER, &mut |_| ());
        assert!(ended.unwrap_err().contains("cannot be run"));
    }

    #[test]
    fn a_command_that_ignores_sigterm_is_killed() {
        let script = "trap '' TERM; echo begun; while :; do sleep 0.05; done";
        let (ended, said, time) = sh(script, &limits(Duration::from_secs(1)));
        let complaint = ended.unwrap_err();
        assert_eq!(said, "begun\n");
        assert!(complaint.contains("SIGTERM") && complaint.contains("SIGKILL"), "{complaint}");
        assert!(complaint.contains(" sh "), "{complaint}");
        assert!(!complaint.contains("given up"), "{complaint}");
        assert!(time < Duration::from_secs(30), "{time:?}");
    }

    #[test]
    fn an_interruption_ends_the_command() {
        let (long, interrupted) = (limits(Duration::from_secs(3600)), AtomicBool::new(false));
        let mut interrupt = |_: &Line| interrupted.store(true, Ordering::Relaxed);
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 3600"]);
        let ended = run(&mut command, &long, &interrupted, &mut interrupt);
        assert!(ended.unwrap_err().starts_with("interrupted:\n"));
    }

    #[test]
    fn a_process_that_no_signal_ends_is_given_up() {
        let limits = Limits { signal: |_, _, _| (), ..limits(SHORT) };
        let (ended, said, time) = sh("echo $$; exec sleep 3600", &limits);
        let group = Pid::from_raw(said.trim().parse().unwrap()).unwrap();
        processes::signal(group, &[].into(), Signal::KILL);
        let complaint = ended.unwrap_err();
        assert!(complaint.contains("given up; they still run"), "{complaint}");
        assert!(complaint.matches(" sleep S ").count() == 3, "{complaint}");
        assert!(time < Duration::from_secs(30), "{time:?}");
    }

    #[test]
    fn a_daemon_that_outlives_its_command_is_a_failure() {
        let script = "setsid sleep 3600 & echo $!";
        let (ended, said, time) = sh(script, &limits(Duration::from_secs(60)));
        let complaint = ended.unwrap_err();
        assert!(complaint.contains("outlived it") && complaint.contains(" sleep "), "{complaint}");
        assert!(time < Duration::from_secs(30), "{time:?}");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", said.trim()));
        assert!(stat.is_err() || stat.unwrap().contains(") Z "));
    }
}
