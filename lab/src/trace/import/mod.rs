//! Importers: the traces of others as records.
//!
//! ```text
//!   bytes ── gzip, zstd? ── first 64 KiB: which format? ── lines ── Parser ── Out ── Sink
//!                                                            |                 |
//!                                              bad lines counted       times from zero, sorted
//!                                              truncation noted        in a window, repeats
//! ```
//!
//! Promises: constant memory, whatever the length of the input (held are MobiGen's scripts, since
//! they are grouped by thread, and the list of files before ext4's events); bad lines are counted
//! and the first are kept with their numbers; what was cut short is imported as far as it is whole,
//! and the report says so; no input makes an importer panic. A new format is a file and a line of
//! [`FORMATS`].
//!
//! Tested in `lab/tests/trace/import.rs`, with small inputs written for it, and fuzzed there.

mod blkparse;
mod blktrace;
mod columns;
mod ext4;
mod fio;
mod ftrace;
mod input;
mod layouts;
mod lirs;
mod mobigen;
mod oracle;
mod out;
mod strace;
mod text;
mod tracefs;
mod vscsi;

use std::io::{BufRead, Read};

use crate::error::{LabError, Result};
use crate::trace::model::{Header, Names, Sink, TraceKind};
pub(crate) use blkparse::{rwbs, valid_request};
use columns::{Columns, Layout};
use input::{Input, LINE_BYTES_MAX};
use out::Out;

/// Bad lines that a report shows.
const SHOWN_BAD_LINES: usize = 5;

/// Error of a line, or of the whole input.
enum Bad {
    Line(String),
    Fatal(LabError),
}

impl From<&str> for Bad {
    fn from(text: &str) -> Bad {
        Bad::Line(text.to_owned())
    }
}

impl From<LabError> for Bad {
    fn from(err: LabError) -> Bad {
        Bad::Fatal(err)
    }
}

type Line = std::result::Result<(), Bad>;

/// Turns the lines of a format into records.
trait Parser {
    /// Takes one line, without its end.
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line;

    /// After the last line.
    fn end(&mut self, _: &mut Out<'_>) -> Result<()> {
        Ok(())
    }
}

/// The start of an input.
struct Sample<'a> {
    bytes: &'a [u8],
    lines: Vec<&'a str>,
}

impl Sample<'_> {
    /// True if at least half of the lines satisfy `test`.
    fn most(&self, test: impl Fn(&str) -> bool) -> bool {
        let good = self.lines.iter().filter(|line| test(line)).count();
        good > 0 && good * 2 >= self.lines.len()
    }
}

enum Reader {
    Lines(fn(&ImportOptions) -> Result<Box<dyn Parser>>),
    Columns(fn() -> Layout),
    Binary(fn(&mut dyn Read, &mut Out<'_>) -> Result<Option<String>>),
}

/// A format that is imported.
pub struct Format {
    /// Its name for `--format`.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Kind of its records.
    pub kind: TraceKind,
    detect: fn(&Sample<'_>) -> bool,
    reader: Reader,
}

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Name of the format; detected by content where it is not given.
    pub format: Option<String>,
    /// Columns of a text of no known format: `time_s,op,offset_sectors,len_bytes`.
    pub columns: Option<String>,
    /// Stop at the first bad line.
    pub strict: bool,
    /// Leave out requests that equal one of the 32 before in operation and range.
    pub drop_repeats: bool,
    /// Files that were open before the trace began: lines of path, inode, size, by tabs.
    pub preopen: Option<String>,
}

impl ImportOptions {
    /// True if the format does not follow from the content.
    pub(crate) fn is_named(&self) -> bool {
        self.format.is_some() || self.columns.is_some()
    }
}

/// Counts of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Name of the format.
    pub format: &'static str,
    /// Records made.
    pub records: u64,
    /// Lines, or records of a binary format, that could not be read.
    pub bad_lines: u64,
    /// The first of them: number from 1, start of the line, what is wrong.
    pub first_bad: Vec<(u64, String, String)>,
    /// Events that are no storage activity, or another stage of the same request.
    pub passed_over: u64,
    /// Repeats that were dropped.
    pub repeats: u64,
    /// Position and reason of an early end of the input.
    pub cut_short: Option<String>,
}

mod table;
pub use table::FORMATS;

/// An input whose format is known.
pub struct Import<'r> {
    input: Input<'r>,
    format: &'static Format,
    options: ImportOptions,
}

impl<'r> Import<'r> {
    /// Looks at the start of `bytes`.
    pub fn open(bytes: impl BufRead + 'r, options: &ImportOptions) -> Result<Import<'r>> {
        let mut input = Input::open(Box::new(bytes))?;
        let format = match &options.format {
            _ if options.columns.is_some() => &table::GENERIC,
            Some(name) => by_name(name)?,
            None => detect(&input.sample()?)?,
        };
        Ok(Import { input, format, options: options.clone() })
    }

    /// Description of the trace.
    pub fn header(&self) -> Header {
        Header { kind: self.format.kind, source: self.format.name.to_owned() }
    }

    /// Reads everything.
    pub fn run(mut self, sink: &mut dyn Sink) -> Result<(Report, Names)> {
        let mut out = Out::new(sink, self.options.drop_repeats);
        out.report.format = self.format.name;
        let parser: Option<Box<dyn Parser>> = match &self.format.reader {
            Reader::Lines(make) => Some(make(&self.options)?),
            Reader::Columns(layout) => Some(Box::new(Columns::new(layout()))),
            Reader::Binary(read) => {
                out.report.cut_short = read(&mut self.input, &mut out)?;
                None
            }
        };
        if let Some(mut parser) = parser {
            lines(&mut self.input, &mut *parser, self.options.strict, &mut out)?;
            parser.end(&mut out)?;
        }
        if let Some(why) = self.input.damage() {
            out.report.cut_short = Some(why);
        }
        let (report, names) = out.finish()?;
        refuse_unreadable(&report)?;
        Ok((report, names))
    }
}

/// Fails where more could not be read than could: that is another format, or a damaged file.
fn refuse_unreadable(report: &Report) -> Result<()> {
    let read = report.records + report.passed_over + report.repeats;
    if report.bad_lines <= read {
        return Ok(());
    }
    let (bad, format) = (report.bad_lines, report.format);
    let first = report
        .first_bad
        .first()
        .map_or(String::new(), |(number, line, why)| format!("; line {number}, `{line}`: {why}"));
    Err(LabError::Corrupt(format!(
        "{bad} lines cannot be read as {format} and {read} can{first}; name the format with \
         --format"
    )))
}

/// The formats by name, for messages.
fn known() -> String {
    FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
}

fn by_name(name: &str) -> Result<&'static Format> {
    FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
        LabError::Usage(format!("unknown trace format `{name}`; choose of {}", known()))
    })
}

fn detect(sample: &Sample<'_>) -> Result<&'static Format> {
    if sample.bytes.is_empty() {
        return Err(LabError::Corrupt("the trace is empty; give one with records".into()));
    }
    if sample.bytes.get(257..262) == Some(b"ustar") {
        let text = "this is a tar archive; unpack it and import the files in it".to_owned();
        return Err(LabError::Unsupported(text));
    }
    if strace::has_times_of_day(sample) {
        let text = "this is strace with times of day, as -t and -tt write them; record with -ttt";
        return Err(LabError::Unsupported(text.to_owned()));
    }
    let fits = |format: &&Format| match &format.reader {
        Reader::Columns(layout) => layout().fits(sample),
        _ => (format.detect)(sample),
    };
    FORMATS.iter().find(fits).ok_or_else(|| {
        let text = "the content is of no known trace format; name it with --format, or describe \
                    its columns with --columns";
        LabError::Unsupported(text.to_owned())
    })
}

fn lines(
    input: &mut Input<'_>,
    parser: &mut dyn Parser,
    strict: bool,
    out: &mut Out<'_>,
) -> Result<()> {
    let mut number = 0u64;
    let mut bytes = Vec::new();
    while let Some(whole) = input.line(&mut bytes)? {
        number += 1;
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end_matches(['\r', '\n']);
        if line.trim().is_empty() {
            continue;
        }
        let done = if bytes.len() > LINE_BYTES_MAX {
            Err(Bad::from("the line is longer than 1 MiB"))
        } else {
            parser.line(line, out)
        };
        let why = match done {
            Ok(()) => continue,
            Err(Bad::Fatal(err)) => return Err(err),
            Err(Bad::Line(why)) => why,
        };
        if !whole && input.damage().is_none() {
            let text = format!("the last line, {number}, is not whole");
            out.report.cut_short = Some(text);
            continue;
        }
        if strict {
            let text = format!("line {number}: {why}; correct it, or import without --strict");
            return Err(LabError::Corrupt(text));
        }
        out.bad(number, line, why);
    }
    Ok(())
}
