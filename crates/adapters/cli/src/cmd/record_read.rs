//! `record-read`: lists, verifies, extracts and follows the files of a recorder.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use syncline_recorder::RecorderError;
use syncline_recorder::os::{FileSource, event_files};
use syncline_recorder::reader::{self, Item, Reader, Summary};

use crate::args::RecordRead;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::interrupt;

/// Poll interval of a file that grows.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Does one of them.
pub(crate) fn run(args: &RecordRead) -> Result<()> {
    let mut files = Vec::new();
    for path in &args.paths {
        if path.is_dir() { files.extend(event_files(path)?) } else { files.push(path.clone()) }
    }
    if args.extract.is_some() || args.follow {
        let [file] = files.as_slice() else {
            let text = format!("{} files; give one file to extract or follow", files.len());
            return Err(Failure::Usage(text));
        };
        return if args.follow { follow(args, file) } else { extract(args, file) };
    }
    list(args, &files)
}

/// Summarizes a whole file; `None`: it is not a recorder's file.
fn survey(path: &Path) -> Result<Option<Summary>> {
    Ok(reader::read(&FileSource::open(path)?, &mut |_| Ok(()))?)
}

fn list(args: &RecordRead, files: &[PathBuf]) -> Result<()> {
    let head = ["file", "event", "fault", "records", "first", "last", "seconds", "missing"];
    let mut rows =
        vec![head.iter().chain(&["damaged", "state"]).map(|s| (*s).to_owned()).collect()];
    let (mut documents, mut bad) = (Vec::new(), 0);
    for path in files {
        interrupt::check()?;
        let Some(found) = survey(path)? else {
            // A directory may have files of a pool that hold no event yet.
            if args.paths.contains(path) {
                return Err(nothing(path));
            }
            continue;
        };
        bad += u64::from(!found.is_whole());
        rows.push(row(path, &found));
        documents.push(document(path, &found));
    }
    let mut out = Out::new();
    if args.json {
        let document = json!({ "schema": "syncline.events/1", "events": documents });
        out.text(format!("{document:#}\n"))?;
    } else {
        let right = [false, true, true, true, true, true, true, true, true, false];
        out.text(format::table(&rows, &right))?;
    }
    out.flush()?;
    if args.verify && bad > 0 {
        return Err(Failure::Corrupt(format!(
            "{bad} of {} events are incomplete, see the list; extract their records with --extract",
            documents.len()
        )));
    }
    Ok(())
}

fn state(found: &Summary) -> &'static str {
    match found.ended {
        Some(_) if found.is_whole() => "whole",
        Some(_) => "ended, with gaps",
        None => "no end mark: being recorded, or cut off",
    }
}

fn row(path: &Path, found: &Summary) -> Vec<String> {
    let (first, last) = found.sequences.unzip();
    let (from_ns, to_ns) = found.times_ns.unwrap_or_default();
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |v| v.to_string());
    vec![
        path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        found.event.to_string(),
        found.trigger_sequence.to_string(),
        found.records.to_string(),
        number(first),
        number(last),
        format!("{:.3}", to_ns.saturating_sub(from_ns) as f64 / 1e9),
        found.missing.to_string(),
        found.damaged.to_string(),
        state(found).to_owned(),
    ]
}

fn document(path: &Path, found: &Summary) -> serde_json::Value {
    let (first, last) = found.sequences.unzip();
    let (from_ns, to_ns) = found.times_ns.unzip();
    json!({
        "file": path.to_string_lossy(),
        "recorder": found.recorder,
        "event": found.event,
        "fault_record": found.trigger_sequence,
        "records": found.records,
        "first_record": first,
        "last_record": last,
        "first_ns": from_ns,
        "last_ns": to_ns,
        "gaps": found.gaps,
        "missing_records": found.missing,
        "damaged_slots": found.damaged,
        "written_records": found.ended,
        "whole": found.is_whole(),
    })
}

fn nothing(path: &Path) -> Failure {
    let path = path.display();
    Failure::Corrupt(format!("{path}: it has no records; give a file that `record` wrote"))
}

/// The records one after the other. Gaps are named on standard error, and the exit code says so.
fn extract(args: &RecordRead, path: &Path) -> Result<()> {
    let target = args.extract.as_deref().unwrap_or(Path::new("-"));
    let source = FileSource::open(path)?;
    let (mut bytes, mut gaps) = (Vec::new(), Vec::new());
    let summary = reader::read(&source, &mut |item| {
        match item {
            Item::Record(_, record) => bytes.extend_from_slice(record),
            other => gaps.extend(said(&other)),
        }
        Ok(())
    });
    let summary = summary?.ok_or_else(|| nothing(path))?;
    if target == Path::new("-") {
        let mut out = Out::new();
        out.bytes(&bytes)?;
        out.flush()?;
    } else {
        format::write_file(target, &bytes)?;
    }
    gaps.iter().for_each(|text| crate::complain(text));
    if summary.is_whole() {
        return Ok(());
    }
    let text = format!(
        "{}: {} records extracted, {}; the others are lost",
        path.display(),
        summary.records,
        state(&summary)
    );
    Err(Failure::Corrupt(text))
}

/// Describes a gap or damage; `None` for other items.
fn said(item: &Item<'_>) -> Option<String> {
    match item {
        Item::Gap { first, records } => Some(format!("gap: {records} records from {first} on")),
        Item::Damaged { offset } => Some(format!("damaged: the slot at byte {offset}")),
        Item::Record(..) | Item::End { .. } => None,
    }
}

/// One line for each record as it arrives, until the end mark or Ctrl-C.
fn follow(args: &RecordRead, path: &Path) -> Result<()> {
    let source = FileSource::open(path)?;
    let (mut reader, stdout) = (None, std::io::stdout());
    loop {
        if reader.is_none() {
            reader = Reader::new(&source)?;
        }
        let mut closed = false;
        if let Some(reader) = &mut reader {
            let mut print = |item: Item<'_>| {
                let mut out = stdout.lock();
                let written = match (&args.extract, item) {
                    (Some(_), Item::Record(_, bytes)) => out.write_all(bytes),
                    (None, Item::Record(header, bytes)) => {
                        let (sequence, time_ns) = (header.sequence, header.time_ns);
                        writeln!(out, "{sequence} {time_ns} ns, {} bytes", bytes.len())
                    }
                    (None, Item::End { records }) => writeln!(out, "end: {records} records"),
                    (_, other) => {
                        said(&other).iter().for_each(|text| crate::complain(text));
                        Ok(())
                    }
                };
                written.and_then(|()| out.flush()).map_err(|err| {
                    closed = err.kind() == std::io::ErrorKind::BrokenPipe;
                    RecorderError::io("standard output", &err)
                })
            };
            let read = reader.follow(&source, &mut print);
            if closed {
                return Err(Failure::PipeClosed);
            }
            read?;
            if reader.summary().ended.is_some() {
                return Ok(());
            }
        }
        interrupt::check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
}
