//! `buffer relax` and `buffer strict`: relaxed files of a kernel's ext4 over a write buffer.
//!
//! ```text
//!   relax FSID INODE:SECONDS:NANOSECONDS ...   --> one line each: relaxed, waiting, or why not
//!   EXT4_IOC_CHECKPOINT                            if any waits: the log is empty, they are taken
//! ```

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{fstatvfs, syncfs};
use serde_json::Value;
use syncline_control::hints::{HintError, Hinted, Timestamp};
use syncline_export::empty_journal;

use super::buffer::ask;
use crate::args::BufferFiles;
use crate::error::{Failure, Result};
use crate::{complain, interrupt};

/// Requests on the control socket.
pub(super) const RELAX: &str = "relax";
pub(super) const STRICT: &str = "strict";
/// Files of one request, which is a line of limited length.
const FILES_A_REQUEST: usize = 100;
/// Lines of an answer.
const RELAXED: &str = "relaxed";
const WAITING: &str = "waiting";

/// Answers a request: does `what` to each of its files.
pub(super) fn answer(
    hinted: &Hinted,
    files: &str,
    what: impl Fn(&Hinted, u64, u32, Timestamp) -> std::result::Result<bool, HintError>,
) -> std::result::Result<String, String> {
    let unread = || format!("`{files}` names no files; use `syncline buffer relax`");
    let (fsid, files) = files.split_once(' ').ok_or_else(unread)?;
    let fsid = fsid.parse().map_err(|_| unread())?;
    let mut lines = String::new();
    for file in files.split(' ') {
        let mut words = file.splitn(3, ':').map(str::parse::<i64>);
        let mut word = || words.next().and_then(std::result::Result::ok).ok_or_else(unread);
        let (ino, seconds, nanoseconds) = (word()?, word()?, word()?);
        let ino = u32::try_from(ino).map_err(|_| unread())?;
        let nanoseconds = u32::try_from(nanoseconds).map_err(|_| unread())?;
        match what(hinted, fsid, ino, Timestamp { seconds, nanoseconds }) {
            Ok(true) => lines += RELAXED,
            Ok(false) => lines += WAITING,
            Err(err @ HintError::File { .. }) => lines += &err.to_string().replace('\n', " "),
            Err(err) => return Err(err.to_string()),
        }
        lines.push('\n');
    }
    Ok(lines)
}

/// As [`Hinted::relax`], to make a file strict.
pub(super) fn harden(
    hinted: &Hinted,
    fsid: u64,
    ino: u32,
    _born: Timestamp,
) -> std::result::Result<bool, HintError> {
    hinted.harden(fsid, ino).map(|()| true)
}

/// Adds the relaxed files to the status of a buffer.
pub(super) fn describe(hinted: &Hinted, document: &mut Value) {
    let status = hinted.status();
    document["relaxed_files"] = status.relaxed_files.into();
    document["relaxed_file_bytes"] = status.relaxed_file_bytes.into();
    document["relaxed_ended"] = status.relaxed_ended.into();
}

/// The line of `buffer status` about them, if there is anything to say.
pub(super) fn line(document: &Value) -> String {
    let number = |name: &str| document[name].as_u64().unwrap_or(0);
    match (number("relaxed_files"), document["relaxed_ended"].as_str()) {
        (0, None) => String::new(),
        (0, Some(why)) => format!("strict   since {why}\n"),
        (files, _) => {
            format!("relaxed  {files} files, {} KiB\n", number("relaxed_file_bytes") / 1024)
        }
    }
}

pub(super) fn relax(args: &BufferFiles) -> Result<()> {
    each(args, RELAX)
}

pub(super) fn strict(args: &BufferFiles) -> Result<()> {
    each(args, STRICT)
}

fn each(args: &BufferFiles, request: &str) -> Result<()> {
    let mut files = Vec::new();
    for path in &args.paths {
        let about = std::fs::metadata(path).map_err(|err| Failure::host(path, &err))?;
        collect(path, &about, &mut files)?;
    }
    let mut refused = false;
    for some in files.chunks(FILES_A_REQUEST) {
        refused |= asked(&args.dir, some, request)?;
        interrupt::check()?;
    }
    if refused { Err(Failure::Said(1)) } else { Ok(()) }
}

/// A file, or the files in a directory and below on the same file system.
fn collect(path: &Path, about: &Metadata, files: &mut Vec<PathBuf>) -> Result<()> {
    if about.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let host = |err: std::io::Error| Failure::host(path, &err);
    for entry in std::fs::read_dir(path).map_err(host)? {
        let entry = entry.map_err(host)?;
        let inner = entry.metadata().map_err(host)?;
        if inner.dev() == about.dev() && (inner.is_file() || inner.is_dir()) {
            collect(&entry.path(), &inner, files)?;
        }
    }
    Ok(())
}

/// One request, twice if the log has to be emptied in between; true if a file was refused, which
/// was said.
fn asked(dir: &Path, paths: &[PathBuf], request: &str) -> Result<bool> {
    // Open until the end, so that no inode becomes another file.
    let mut opened = Vec::new();
    let mut line = request.to_owned();
    for path in paths {
        let host = |err: std::io::Error| Failure::host(path, &err);
        let file = File::open(path).map_err(host)?;
        let about = file.metadata().map_err(host)?;
        if opened.is_empty() {
            let about = fstatvfs(&file).map_err(|err| host(err.into()))?;
            line += &format!(" {}", about.f_fsid);
        }
        let born = about.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let born = born.unwrap_or_default();
        line += &format!(" {}:{}:{}", about.ino(), born.as_secs(), born.subsec_nanos());
        opened.push(file);
    }
    let Some(first) = opened.first() else { return Ok(false) };
    if request == RELAX {
        // What was written so far gets its blocks.
        syncfs(first).map_err(|err| Failure::host(&paths[0], &err.into()))?;
    }
    let mut answer = ask(dir, &line)?;
    if answer.lines().any(|said| said == WAITING) {
        empty_journal(first).map_err(|err| Failure::host(&paths[0], &err))?;
        answer = ask(dir, &line)?;
    }
    let mut refused = false;
    for (path, said) in paths.iter().zip(answer.lines()).filter(|(_, said)| *said != RELAXED) {
        refused = true;
        complain(&format!("{}: {said}", path.display()));
    }
    Ok(refused)
}
