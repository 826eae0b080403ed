//! `flashlite`: what is in a log, and the normal file that it becomes.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::json;
use syncline_flashlite::{Error as FlashliteError, Log, Options, Progress, Rearrange};

use crate::args::{FlashliteCommand, FlashliteInfo, FlashliteLog, FlashliteRearrange};
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::{interrupt, progress};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Runs one of the commands.
pub(crate) fn run(command: &FlashliteCommand) -> Result<()> {
    match command {
        FlashliteCommand::Info(args) => info(args),
        FlashliteCommand::Cat(args) => cat(args).map_err(|failure| failure.at(args.log.display())),
        FlashliteCommand::Rearrange(args) => rearrange(args),
        FlashliteCommand::Check(args) => check(args),
    }
}

fn read(path: &Path) -> Result<Log> {
    Log::open_file_read_only(path).map_err(|err| Failure::from(err).at(path.display()))
}

fn info(args: &FlashliteInfo) -> Result<()> {
    let log = read(&args.log)?;
    let (info, opened) = (log.info(), log.opened());
    let dropped = opened.dropped.as_ref();
    let mut out = Out::new();
    if args.json {
        let document = json!({
            "schema": "syncline.flashlite/1",
            "size_bytes": info.size_bytes,
            "log_bytes": info.log_bytes,
            "data_bytes": info.data_bytes,
            "records": info.records,
            "extents": info.extents,
            "durable_bytes": info.durable_bytes,
            "moved_bytes": info.moved_bytes,
            "released_bytes": info.released_bytes,
            "segment_bytes": info.segment_bytes,
            "page_bytes": info.page_bytes,
            "format_version": info.version,
            "opening": {
                "read_bytes": opened.read_bytes,
                "verified_bytes": opened.verified_bytes,
                "damaged_indexes": opened.damaged_indexes,
            },
            "dropped": dropped.map(|dropped| json!({
                "position": dropped.position,
                "bytes": dropped.bytes,
                "lost": dropped.lost,
            })),
        });
        out.text(format!("{document:#}\n"))?;
        return out.flush();
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("file", format::size(info.size_bytes)),
        row("log", format::size(info.log_bytes)),
        row("data in records", format::size(info.data_bytes)),
        row("records", info.records.to_string()),
        row("extents", info.extents.to_string()),
        row("durable part of the log", format::size(info.durable_bytes)),
    ];
    if info.moved_bytes > 0 {
        rows.push(row("rearranged", format::size(info.moved_bytes)));
    }
    if info.released_bytes > 0 {
        rows.push(row("of that released", format::size(info.released_bytes)));
    }
    if let Some(dropped) = dropped {
        let text = format!("{} B from byte {}", dropped.bytes, dropped.position);
        rows.push(row("torn off", text));
        for (offset, len) in &dropped.lost {
            rows.push(row("  lost write", format!("{len} B at {offset}")));
        }
    }
    out.text(format::table(&rows, &[]))?;
    out.flush()
}

fn cat(args: &FlashliteLog) -> Result<()> {
    let log = Log::open_file_read_only(&args.log)?;
    let mut out = Out::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        interrupt::check()?;
        let len = log.read_at(&mut chunk, at)?;
        if len == 0 {
            return out.flush();
        }
        out.bytes(chunk.get(..len).unwrap_or_default())?;
        at += len as u64;
    }
}

/// Moves a bar, and says whether to go on.
fn follow(bar: &indicatif::ProgressBar) -> impl FnMut(Progress) -> ControlFlow<()> {
    move |now| {
        bar.set_position(now.done_bytes);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn check(args: &FlashliteLog) -> Result<()> {
    let log = read(&args.log)?;
    let bar = progress::bar("checking", log.len());
    let checked = log.check(&mut follow(&bar));
    bar.finish_and_clear();
    let checked = checked?;
    let mut out = Out::new();
    for (offset, len) in &checked.damaged {
        out.text(format!("damaged: {len} B at {offset}\n"))?;
    }
    if let Some(dropped) = &log.opened().dropped {
        out.text(format!("torn off: {} B, none of them synced\n", dropped.bytes))?;
    }
    if checked.damaged.is_empty() {
        out.text(format!("{} B agree with their checksums\n", checked.good_bytes))?;
        return out.flush();
    }
    out.flush()?;
    let text = "data is damaged; download those ranges again";
    Err(Failure::Corrupt(text.into()).at(args.log.display()))
}

fn rearrange(args: &FlashliteRearrange) -> Result<()> {
    let file = args.file.as_ref().unwrap_or(&args.log);
    if !args.in_place && fs::symlink_metadata(file).is_ok() {
        let exists = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(Failure::host(file, &exists));
    }
    let release = args.release || args.in_place;
    let log = writable(&args.log, release)?;
    let bar = progress::bar("rearranging", log.len());
    let options = Rearrange { release, ..Rearrange::default() };
    let done = log.rearrange_to_file(file, options, &mut follow(&bar));
    bar.finish_and_clear();
    let done = done.map_err(|err| Failure::from(err).at(file.display()))?;
    if args.release {
        fs::remove_file(&args.log).map_err(|err| Failure::host(&args.log, &err))?;
    }
    let mut out = Out::new();
    out.text(format!("{}: {}", file.display(), format::size(done.size_bytes)))?;
    if done.resumed_at_bytes > 0 {
        out.text(format!(", from {} on", format::size(done.resumed_at_bytes)))?;
    }
    out.text("\n")?;
    out.flush()
}

/// A log that notes how far it is rearranged; one that may not be written does without the notes,
/// and starts again after a stop.
fn writable(path: &Path, release: bool) -> Result<Log> {
    match Log::open_file(path, Options::default()) {
        Err(FlashliteError::Io { source, .. })
            if !release
                && matches!(
                    source.kind(),
                    io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
                ) =>
        {
            read(path)
        }
        log => log.map_err(|err| Failure::from(err).at(path.display())),
    }
}
