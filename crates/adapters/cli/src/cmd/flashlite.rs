//! `flashlite`: the contents of a log, and its conversion to a plain file.

use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;
use syncline_device::SplitMix64;
use syncline_flashlite::{Error as FlashliteError, Log, Options, Progress, Rearrange};
use syncline_image::stoppable::Stoppable;

use crate::args::{
    FlashliteCommand, FlashliteInfo, FlashliteLog, FlashliteRearrange, FlashliteWrite,
};
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::progress::Bar;
use crate::{interrupt, progress};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Pieces that are shuffled, and the size of one.
const PIECES_MAX: u64 = 1 << 24;
const PIECE_BYTES_MAX: u64 = 64 << 20;

/// Runs one of the commands.
pub(crate) fn run(command: &FlashliteCommand) -> Result<()> {
    match command {
        FlashliteCommand::Info(args) => info(args),
        FlashliteCommand::Write(args) => write(args),
        FlashliteCommand::Cat(args) => cat(args).map_err(|failure| failure.at(args.log.display())),
        FlashliteCommand::Rearrange(args) => rearrange(args),
        FlashliteCommand::Check(args) => check(args),
    }
}

fn read(path: &Path) -> Result<Log> {
    Log::open_file_read_only(path).map_err(|err| Failure::from(err).at(path.display()))
}

/// Opens or makes the log, writes, and makes it durable.
fn write(args: &FlashliteWrite) -> Result<()> {
    let at_log = |err: FlashliteError| Failure::from(err).at(args.log.display());
    let log = if args.log.exists() {
        Log::open_file(&args.log, Options::default())
    } else {
        Log::create_file(&args.log, Options::default())
    };
    let log = log.map_err(at_log)?;
    if let Some(size) = args.size {
        log.set_len(size).map_err(at_log)?;
    }
    let written = match (&args.file, args.shuffle) {
        (Some(path), Some(piece)) => shuffled(args, &log, path, piece),
        (Some(path), None) => in_order(args, &log, path, Stoppable::open(path, interrupt::asked)),
        (None, _) => {
            let input = Stoppable::standard_input(interrupt::asked);
            in_order(args, &log, Path::new("standard input"), input)
        }
    };
    // What was written before a failure or Ctrl-C is kept.
    log.close().map_err(at_log)?;
    let mut out = Out::new();
    out.text(format!("{}: {} written\n", args.log.display(), format::size(written?)))?;
    out.flush()
}

fn in_order(
    args: &FlashliteWrite,
    log: &Log,
    path: &Path,
    from: io::Result<Stoppable>,
) -> Result<u64> {
    let mut from = from.map_err(|err| Failure::host(path, &err))?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    let mut at = args.offset;
    loop {
        interrupt::check()?;
        chunk.clear();
        let read = from.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
        if read.map_err(|err| Failure::host(path, &err))? == 0 {
            return Ok(at - args.offset);
        }
        log.write_at(&chunk, at)?;
        at += chunk.len() as u64;
    }
}

/// All pieces of a file, each once, in an order that the seed decides.
fn shuffled(args: &FlashliteWrite, log: &Log, path: &Path, piece: u64) -> Result<u64> {
    let failed = |err: io::Error| Failure::host(path, &err);
    let file = fs::File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let pieces = size.div_ceil(piece);
    if pieces > PIECES_MAX || piece > PIECE_BYTES_MAX {
        let text = format!(
            "{pieces} pieces of {piece} bytes; give --shuffle a size that makes {PIECES_MAX} \
             pieces of {} at most",
            format::size(PIECE_BYTES_MAX)
        );
        return Err(Failure::Usage(text));
    }
    let mut order: Vec<u64> = (0..pieces).collect();
    let mut random = SplitMix64::new(args.seed);
    for last in (1..order.len()).rev() {
        let other = usize::try_from(random.next_u64() % (last as u64 + 1)).unwrap_or(last);
        order.swap(last, other);
    }
    let mut bytes = vec![0; usize::try_from(piece.min(size)).unwrap_or(0)];
    for number in order {
        interrupt::check()?;
        let at = number * piece;
        let len = usize::try_from(piece.min(size - at)).unwrap_or(0);
        let part = bytes.get_mut(..len).unwrap_or_default();
        file.read_exact_at(part, at).map_err(failed)?;
        log.write_at(part, args.offset + at)?;
    }
    Ok(size)
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
fn follow(bar: &Bar) -> impl FnMut(Progress) -> ControlFlow<()> {
    move |now| {
        bar.set_done(now.done_bytes);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn check(args: &FlashliteLog) -> Result<()> {
    let log = read(&args.log)?;
    let bar = progress::bytes("checked", log.len());
    let checked = log.check(&mut follow(&bar));
    bar.clear();
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
    let bar = progress::bytes("rearranged", log.len());
    let options = Rearrange { release, ..Rearrange::default() };
    let done = log.rearrange_to_file(file, options, &mut follow(&bar));
    bar.clear();
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
