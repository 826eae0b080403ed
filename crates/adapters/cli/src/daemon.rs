//! Commands that stay: they run in the background once they are ready.
//!
//! ```text
//!   syncline X ...            syncline X ... (same arguments, SYNCLINE_READY=1)
//!     starts ------------------> opens, mounts, checks; errors go to the same standard error
//!     waits for a line <-------- ready(): one line on the pipe, then a session of its own
//!     prints it, exit 0          serves
//!     or: pipe closed -> the exit code of the child
//! ```
//!
//! The child is a new process, not a fork, so that it may have threads. Its heap is asked for huge
//! pages: a page cache that fills for the first time costs a page fault for each 2 MiB then, not
//! for each 4 KiB.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Failure, Result};

/// Time after which Ctrl-C reaches the child.
const PASS_ON: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Set for the child.
const READY: &str = "SYNCLINE_READY";
/// Variable that makes glibc (2.35 and later) use transparent huge pages. A value set by the caller
/// is kept.
const HEAP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Asks for the heap that a process with a page cache wants.
pub fn with_huge_pages(command: &mut Command) {
    if std::env::var_os(HEAP.0).is_none() {
        command.env(HEAP.0, HEAP.1);
    }
}

/// Waits for a word of a process in the background, or its end. It has a session of its own: Ctrl-C
/// is passed on.
pub fn await_word(out: &ChildStdout, child: &Child) {
    let mut passed_on = false;
    loop {
        if crate::interrupt::asked() && !passed_on {
            // It may be at its end already.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            passed_on = true;
        }
        let mut wait = [PollFd::new(out, PollFlags::IN)];
        match poll(&mut wait, Some(&PASS_ON)) {
            Ok(0) | Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

/// True in the process that stays in the background.
pub fn is_child() -> bool {
    std::env::var_os(READY).is_some()
}

/// Starts this command again in the background and returns when it is ready, with what it said.
///
/// # Errors
/// [`Failure::Said`] with the child's exit code if it gave up: it has said why.
pub fn start() -> Result<String> {
    let failed = |err: std::io::Error| {
        Failure::Failed(format!("the background process did not start: {err}; try --foreground"))
    };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(std::env::args_os().skip(1)).env(READY, "1");
    with_huge_pages(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe).read_line(&mut line).map_err(failed)?;
    }
    if let Some(said) = line.strip_suffix('\n') {
        return Ok(said.to_owned());
    }
    let code = child.wait().map_err(failed)?.code().unwrap_or(1);
    Err(Failure::Said(u8::try_from(code).unwrap_or(1)))
}

/// Who waits until this process is ready.
pub struct Waiting(Option<File>);

impl Waiting {
    /// Leaves the session of the caller, whose terminal still gets errors. All that
    /// [`Waiting::ready`] needs is open then: the process may give up its rights in between.
    ///
    /// # Errors
    /// There is no `/dev/null`.
    pub fn new() -> Result<Waiting> {
        if !is_child() {
            return Ok(Waiting(None));
        }
        // Already a leader of a session: nothing to leave.
        let _ = rustix::process::setsid();
        let null = File::options().read(true).write(true).open("/dev/null");
        Ok(Waiting(Some(null.map_err(failed)?)))
    }

    /// Tells the waiting parent, if there is one, that everything works, with a line for its
    /// caller; then lets go of the terminal. In the foreground the line is printed, if there is
    /// one.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn ready(&self, line: &str) -> Result<()> {
        let Some(null) = &self.0 else {
            if !line.is_empty() {
                writeln!(std::io::stdout(), "{line}").map_err(failed)?;
            }
            return Ok(());
        };
        writeln!(std::io::stdout(), "{line}").map_err(failed)?;
        std::io::stdout().flush().map_err(failed)?;
        rustix::stdio::dup2_stdout(null).map_err(|err| failed(err.into()))?;
        rustix::stdio::dup2_stderr(null).map_err(|err| failed(err.into()))
    }
}

fn failed(err: std::io::Error) -> Failure {
    Failure::Failed(format!("cannot go to the background: {err}"))
}

/// As [`Waiting::ready`], for a process that keeps its rights.
///
/// # Errors
/// The parent is gone, or `/dev/null` is.
pub fn ready(line: &str) -> Result<()> {
    Waiting::new()?.ready(line)
}
