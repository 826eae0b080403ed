//! MobiGen's scripts (Jeong et al., "AndroStep", 2013): `thread microseconds call arguments`.
//!
//! The events are grouped by thread and are merged by time here, so a script is held in memory. A
//! path may be a placeholder, so a file is a path with its descriptor: `/data/data#36`. What
//! MobiGen opened itself, as `O_WRONLY|O_CREAT|O_TRUNC` at first use, and what then took writes of
//! up to 8 bytes only, is a pipe or an event descriptor, no file: its events are passed over.

use rustc_hash::FxHashMap;

use super::text::number;
use super::{Bad, ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use crate::trace::model::{Flags, NameId, Op, Record};

const CALLS: [&str; 12] = [
    "open", "close", "write", "read", "pwrite", "pread", "fsync", "fstat64", "access", "stat64",
    "lstat64", "unlink",
];
/// Flags with which MobiGen opens files that were already open when the trace began.
const INSERTED: &str = "O_WRONLY|O_CREAT|O_TRUNC";
/// Longest message to an event descriptor.
const MESSAGE_BYTES: u64 = 8;

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.most(|line| {
        let mut words = line.split_whitespace();
        let numbers = [words.next(), words.next()].map(|w| w.and_then(number).is_some());
        numbers == [true; 2] && words.next().is_some_and(|call| CALLS.contains(&call))
    })
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Script { events: Vec::new() }))
}

/// Result of a call that failed; its errno is not in the script.
const FAILED: &str = "-1";

struct Event {
    time_ns: u64,
    thread: u32,
    call: &'static str,
    /// Descriptor; 0 for calls on paths.
    fd: u64,
    path: NameId,
    inserted: bool,
    flags: Flags,
    creates: bool,
    offset: u64,
    len: u64,
}

struct Script {
    events: Vec<Event>,
}

impl Parser for Script {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or(Bad::from("arguments are missing"));
        let thread = next()?.parse().map_err(|_| Bad::from("no thread number"))?;
        let us = number(next()?).ok_or("no time")?;
        let time_ns = us.checked_mul(1000).ok_or("the time is too large")?;
        let name = next()?;
        let call = CALLS.iter().find(|call| **call == name).copied().ok_or("an unknown call")?;
        let mut event = Event {
            time_ns,
            thread,
            call,
            fd: 0,
            path: NameId::NONE,
            inserted: false,
            flags: Flags::NONE,
            creates: false,
            offset: 0,
            len: 0,
        };
        match call {
            "open" => {
                event.path = out.names.intern(next()?);
                let flags = next()?;
                event.inserted = flags.starts_with(INSERTED);
                event.creates = flags.contains("O_CREAT");
                event.flags = Flags::when(flags.contains("SYNC"), Flags::SYNC)
                    .with(Flags::when(flags.contains("O_APPEND"), Flags::APPEND));
                event.fd = number(next()?).ok_or("no descriptor")?;
            }
            "access" | "stat64" | "lstat64" | "unlink" => {
                event.path = out.names.intern(next()?.trim_matches('"'));
            }
            _ => {
                event.fd = number(next()?).ok_or("no descriptor")?;
                if call.starts_with('p') {
                    event.offset = number(next()?).ok_or("no offset")?;
                }
                if call.ends_with("read") || call.ends_with("write") {
                    let len = next()?;
                    if len == FAILED {
                        out.pass_over();
                        return Ok(());
                    }
                    event.len = number(len).ok_or("no length")?;
                }
            }
        }
        self.events.push(event);
        Ok(())
    }

    fn end(&mut self, out: &mut Out<'_>) -> Result<()> {
        self.events.sort_by_key(|event| event.time_ns);
        let pipes = pipes(&self.events);
        let mut open: FxHashMap<u64, Opened> = FxHashMap::default();
        for (at, event) in self.events.iter().enumerate() {
            if pipes.contains_key(&at) {
                out.pass_over();
                continue;
            }
            match play(event, &mut open, out) {
                Err(Bad::Fatal(err)) => return Err(err),
                Err(Bad::Line(_)) => out.report.bad_lines += 1,
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// Places of the events on descriptors that are no files.
fn pipes(events: &[Event]) -> FxHashMap<usize, ()> {
    struct Use {
        inserted: bool,
        messages: bool,
        places: Vec<usize>,
    }
    let mut uses: FxHashMap<u64, Use> = FxHashMap::default();
    let mut pipes = FxHashMap::default();
    let mut judge = |done: Use| {
        if done.inserted && done.messages && done.places.len() > 1 {
            pipes.extend(done.places.into_iter().map(|place| (place, ())));
        }
    };
    for (at, event) in events.iter().enumerate() {
        match event.call {
            "access" | "stat64" | "lstat64" | "unlink" => {}
            "open" => {
                let inserted = event.inserted;
                let new = Use { inserted, messages: true, places: vec![at] };
                if let Some(before) = uses.insert(event.fd, new) {
                    judge(before);
                }
            }
            call => {
                let Some(known) = uses.get_mut(&event.fd) else { continue };
                known.places.push(at);
                let message = matches!(call, "write" | "close") && event.len <= MESSAGE_BYTES;
                known.messages &= message;
            }
        }
    }
    uses.into_values().for_each(judge);
    pipes
}

/// A descriptor in use.
struct Opened {
    file: NameId,
    flags: Flags,
    offset: u64,
}

fn play(event: &Event, open: &mut FxHashMap<u64, Opened>, out: &mut Out<'_>) -> Line {
    let record = |op| Record { thread: event.thread, ..Record::new(event.time_ns, op) };
    let of_path = |op| Record { file: event.path, ..record(op) };
    match event.call {
        "open" => {
            let name = format!("{}#{}", out.names.get(event.path), event.fd);
            let file = out.names.intern(&name);
            // What MobiGen inserted was there before; what a program creates may be there.
            let op = if event.creates && !event.inserted { Op::Create } else { Op::Open };
            open.insert(event.fd, Opened { file, flags: event.flags, offset: 0 });
            out.push(Record { file, ..record(op) })
        }
        "unlink" => out.push(of_path(Op::Unlink)),
        "access" | "stat64" | "lstat64" => out.push(of_path(Op::Stat)),
        call => {
            let Some(opened) = open.get_mut(&event.fd) else {
                out.pass_over();
                return Ok(());
            };
            let on_file = |op| Record { file: opened.file, ..record(op) };
            match call {
                "close" => out.push(on_file(Op::Close))?,
                "fsync" => out.push(on_file(Op::Fsync))?,
                "fstat64" => out.push(on_file(Op::Stat))?,
                _ => {
                    let write = call.ends_with("write");
                    let at = if call.starts_with('p') { event.offset } else { opened.offset };
                    let flags = if write { opened.flags } else { Flags::NONE };
                    let op = if write { Op::Write } else { Op::Read };
                    let result = i64::try_from(event.len).ok();
                    out.push(Record { flags, result, ..on_file(op).range(at, event.len) })?;
                    if !call.starts_with('p') {
                        opened.offset = opened.offset.saturating_add(event.len);
                    }
                }
            }
            if call == "close" {
                open.remove(&event.fd);
            }
            Ok(())
        }
    }
}
