//! strace's output: `strace -f -ttt -y -T -o FILE COMMAND`.
//!
//! ```text
//!   697 1700000000.123456 pwrite64(3</data/a.db>, "..."..., 4096, 8192) = 4096 <0.000021>
//!   697 1700000000.123500 fdatasync(3</data/a.db> <unfinished ...>
//!   698 1700000000.123510 close(5</data/b>) = 0 <0.000004>
//!   697 1700000000.125000 <... fdatasync resumed>) = 0 <0.001500>
//! ```
//!
//! | file | what |
//! |---|---|
//! | `parse` | a line: thread, time, call, arguments, result |
//! | `calls` | what each call does to files |
//! | `state` | processes: descriptors with their offsets, directories, known sizes |
//!
//! Offsets of read and write are followed through open, lseek, dup, fork and threads, from 0 for
//! what was open before. Only files count: pipes, sockets and what lies in /dev, /proc and /sys are
//! passed over, /dev/shm apart. A file that is looked at before it is written was there: its size
//! becomes a `present` record. Memory grows with the files that are open, not with the trace.

mod calls;
mod parse;
mod state;

use rustc_hash::FxHashMap;

use super::{ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use state::State;

/// Calls that wait for their second half.
const UNFINISHED_MAX: usize = 1 << 16;

/// True for the output of `strace -t` and `-tt`, whose times of day do not tell the day.
pub(super) fn has_times_of_day(sample: &Sample<'_>) -> bool {
    sample.most(parse::has_time_of_day)
}

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.most(|line| parse::head(line).is_some_and(|head| parse::looks_like_call(head.text)))
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Strace {
        state: State::default(),
        unfinished: FxHashMap::default(),
        elapsed_ns: 0,
    }))
}

/// Times below this, 1973, are none of a clock: `strace -r` writes the time since the line before.
const RELATIVE_NS_MAX: u64 = 100_000_000 * 1_000_000_000;

struct Strace {
    state: State,
    /// By thread: start and first half of its call.
    unfinished: FxHashMap<u32, (u64, String)>,
    /// Sum of the times so far, where they are relative.
    elapsed_ns: u64,
}

impl Parser for Strace {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let mut head =
            parse::head(line).ok_or("no time in seconds; record with strace -f -ttt -y")?;
        if head.time_ns < RELATIVE_NS_MAX {
            self.elapsed_ns = self.elapsed_ns.saturating_add(head.time_ns);
            head.time_ns = self.elapsed_ns;
        }
        if head.text.starts_with("+++") || head.text.starts_with("---") {
            if head.text.starts_with("+++") {
                self.state.exit(head.thread);
                self.unfinished.remove(&head.thread);
            }
            out.pass_over();
            return Ok(());
        }
        if let Some(start) = parse::unfinished(head.text) {
            if self.unfinished.len() < UNFINISHED_MAX {
                self.unfinished.insert(head.thread, (head.time_ns, start.to_owned()));
            }
            return Ok(());
        }
        let (time_ns, text) = match parse::resumed(head.text) {
            Some(rest) => match self.unfinished.remove(&head.thread) {
                Some((time_ns, start)) => (time_ns, start + rest),
                None => {
                    out.pass_over();
                    return Ok(());
                }
            },
            None => (head.time_ns, head.text.to_owned()),
        };
        let call = parse::call(&text).ok_or("no call of the form name(arguments) = result")?;
        calls::take(&mut self.state, head.thread, time_ns, &call, out)
    }
}
