//! Every way to change a file beside every way to read it, from two processes.
//!
//! ```text
//!   this process                       the other one
//!     makes the file                     opens it, maps it; two threads read it all the time
//!     changes it in one way  --look-->   reads it through the old descriptor and through a new one
//!     compares          <-- digests --   and answers with a digest of each page
//! ```
//! A change that a call has reported as done is what every later read sees. Where a change goes
//! past a cache that reads fill meanwhile, a page of before may stay there: the threads of the
//! other process are there for that.

mod change;
mod look;
mod queue;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Random;

pub use change::Change;
pub use look::{Look, other_process};

/// Bytes of the file.
const FILE_BYTES: usize = 256 << 10;
/// Longest change, in bytes.
const PIECE_BYTES: u64 = 64 << 10;
/// Alignment of O_DIRECT, and unit of a digest, in bytes.
const PAGE_BYTES: usize = 4096;
/// Truncation ends behind this part, so that a mapping below it can be read meanwhile.
const KEPT_BYTES: usize = FILE_BYTES / 4 * 3;

/// A way to change, a way to read, and how the file came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Way in which the file is changed.
    pub change: Change,
    /// Way in which the file is read.
    pub look: Look,
    /// The process that changes it has made it, for writing only, and has it open since then.
    pub made: bool,
}

impl Cell {
    /// All of them.
    pub fn all() -> Vec<Cell> {
        let mut all = Vec::new();
        for change in Change::ALL {
            for look in Look::ALL {
                // A mapping wants a descriptor that can be read.
                let ways = if change == Change::Map { &[false][..] } else { &[false, true] };
                all.extend(ways.iter().map(|&made| Cell { change, look, made }));
            }
        }
        all
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let made = if self.made { "made by the writer" } else { "found" };
        write!(f, "{} beside {}, {made}", self.change.name(), self.look.name())
    }
}

/// Result of a cell.
#[derive(Debug)]
pub enum Seen {
    /// Every change, at once.
    Right,
    /// A page that was not what was written.
    Stale(String),
    /// The file system has no such call, or the kernel no such interface.
    Refused(String),
}

/// Changes a file in `dir` `rounds` times. `other` starts a process that calls [`other_process`].
pub fn run(dir: &Path, cell: Cell, rounds: u64, other: Command) -> Result<Seen, String> {
    let path = dir.join("matrix");
    let seen = changes(&path, cell, rounds, other);
    let removed = std::fs::remove_file(&path).map_err(|err| err.to_string());
    let seen = seen.map_err(|said| format!("{cell}: {said}"))?;
    removed.map(|()| seen)
}

fn changes(path: &Path, cell: Cell, rounds: u64, other: Command) -> Result<Seen, String> {
    let mut rng = Random::new(rounds);
    let mut model = vec![0; FILE_BYTES];
    let mut writer = match change::Writer::open(path, cell, &model) {
        Ok(writer) => writer,
        Err(refused) => return refused.seen(),
    };
    let mut beside = Beside::start(path, cell.look, other)?;
    for round in 0..rounds {
        if let Err(refused) = writer.change(&mut model, round, &mut rng) {
            return refused.seen();
        }
        let Some(digests) = beside.look()? else {
            return Ok(Seen::Refused("the reader cannot read that way".to_owned()));
        };
        let wanted = look::digests(&model);
        for (digests, how) in digests.iter().zip(["its old descriptor", "a new one"]) {
            if let Some(page) = digests.iter().zip(&wanted).position(|(got, wanted)| got != wanted)
            {
                return Ok(Seen::Stale(format!("round {round}: page {page} through {how}")));
            }
            if digests.len() != wanted.len() {
                return Ok(Seen::Stale(format!("round {round}: the end through {how}")));
            }
        }
    }
    Ok(Seen::Right)
}

/// The other process.
struct Beside {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Beside {
    fn start(path: &Path, look: Look, mut command: Command) -> Result<Beside, String> {
        command.env(look::PATH, path).env(look::HOW, look.name());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|err| format!("no second process: {err}"))?;
        let (Some(ask), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the second process has no pipes".to_owned());
        };
        Ok(Beside { child, ask, answers: BufReader::new(answers) })
    }

    /// Digests through the old descriptor and a new one; `None` if it cannot read that way.
    fn look(&mut self) -> Result<Option<[Vec<u64>; 2]>, String> {
        self.ask.write_all(b"\n").map_err(|err| format!("the second process is gone: {err}"))?;
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).map_err(|err| err.to_string())?;
            if read == 0 {
                return Err("the second process ended".to_owned());
            }
            // A test harness may say something of its own before.
            if let Some((_, answer)) = line.split_once(look::ANSWER) {
                return look::parse(answer);
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It has nothing to write.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
