//! Events of the kernel's ext4, as `advise DIR` records them: what every program does to the files
//! of a directory.
//!
//! ```text
//!   present  inode  size  path      by tabs, before the events: a file, or a directory (size -)
//!   dd-13875   [000] ..... 44931.365690: ext4_da_write_end: dev 7,0 ino 12 pos 0 len 1 copied 1
//!
//!   ext4_*write_end              write; parts that a page's end divides are one
//!   ext4_sync_file_enter         fsync, fdatasync
//!   ext4_allocate_inode          create, mkdir
//!   ext4_begin_ordered_truncate  truncate to a smaller size
//!   ext4_fallocate_enter         fallocate
//!   ext4_evict_inode, nlink 0    unlink, rmdir
//!   ext4_sync_fs, wait 1         sync
//! ```
//!
//! The events have no names: a new file is named by its inode, in its directory. A rename is not
//! seen, only the end of the file that it replaced. Reads, looks and direct I/O are not seen.
//! Events of other inodes than those listed and those made in their directories are passed over.
//! The names of the list are held.

use rustc_hash::FxHashMap;

use super::text::{name_and_pid, number, scaled};
use super::{ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use crate::trace::model::{NameId, Op, Record};

/// Begins a line of the list. `advise` writes it.
const PRESENT: &str = "present\t";
/// Longest write that parts are joined to: as long as any that programs make.
const JOINED_BYTES_MAX: u64 = 1 << 20;
/// Type of a file in its mode, and that of a directory and of a regular file.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample
        .most(|line| line.starts_with(PRESENT) || line.contains(": ext4_") && event(line).is_some())
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Events { files: FxHashMap::default(), write: None }))
}

struct Events {
    files: FxHashMap<u64, File>,
    /// The last write, to which the next one may belong.
    write: Option<Record>,
}

struct File {
    path: Box<str>,
    is_dir: bool,
    /// Size of a file that was there and has no event yet.
    before_bytes: Option<u64>,
}

/// An event: the task with its process, the time in nanoseconds, the name, and the arguments.
fn event(line: &str) -> Option<(&str, u64, &str, &str)> {
    let (task, rest) = line.rsplit_once(" [")?;
    let (before, rest) = rest.split_once(": ")?;
    let seconds = before.split_whitespace().last()?;
    let (name, arguments) = rest.split_once(": ")?;
    Some((task, scaled(seconds, 1_000_000_000)?, name, arguments))
}

/// The word behind `name`.
fn word<'a>(arguments: &'a str, name: &str) -> Option<&'a str> {
    arguments.split_whitespace().skip_while(|word| *word != name).nth(1)
}

impl Events {
    fn present(&mut self, list: &str) -> Option<()> {
        let mut fields = list.splitn(3, '\t');
        let (inode, size, path) = (number(fields.next()?)?, fields.next()?, fields.next()?);
        let is_dir = size == "-";
        let before_bytes = if is_dir { None } else { Some(number(size)?) };
        self.files.insert(inode, File { path: path.into(), is_dir, before_bytes });
        Some(())
    }

    /// The number of the file's name. Says first that it was there, if it was.
    fn file(
        &mut self,
        record: &Record,
        out: &mut Out<'_>,
    ) -> std::result::Result<NameId, super::Bad> {
        let Some(known) = self.files.get_mut(&record.inode) else { return Ok(NameId::NONE) };
        let root = known.path.is_empty();
        let file = out.names.intern(if root { "/" } else { &known.path });
        if let Some(size) = known.before_bytes.take() {
            let inode = record.inode;
            let present = Record::new(record.time_ns, Op::Present);
            out.push(Record { file, inode, size_bytes: Some(size), ..present })?;
        }
        Ok(file)
    }

    /// Gives on the write that no other part follows.
    fn end_write(&mut self, out: &mut Out<'_>) -> Line {
        self.write.take().map_or(Ok(()), |write| out.push(write))
    }

    fn write(&mut self, part: Record, out: &mut Out<'_>) -> Line {
        if let Some(write) = &mut self.write {
            let len_bytes = write.len_bytes.saturating_add(part.len_bytes);
            let follows =
                write.offset_bytes.checked_add(write.len_bytes) == Some(part.offset_bytes);
            let same = (write.inode, write.thread) == (part.inode, part.thread);
            if same && follows && len_bytes <= JOINED_BYTES_MAX {
                write.len_bytes = len_bytes;
                return Ok(());
            }
        }
        self.end_write(out)?;
        self.write = Some(part);
        Ok(())
    }

    /// A new file or directory. Others are passed over.
    fn make(&mut self, mut record: Record, arguments: &str, out: &mut Out<'_>) -> Line {
        let dir = word(arguments, "dir").and_then(number).ok_or("no directory")?;
        let mode = word(arguments, "mode").and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let kind = mode.ok_or("no mode")? & TYPE;
        let is_dir = kind == DIRECTORY;
        let parent = self.files.get(&dir).filter(|_| is_dir || kind == REGULAR);
        let Some(parent) = parent else {
            out.pass_over();
            return Ok(());
        };
        let path: Box<str> = format!("{}/inode-{}", parent.path, record.inode).into();
        record.op = if is_dir { Op::Mkdir } else { Op::Create };
        record.file = out.names.intern(&path);
        self.files.insert(record.inode, File { path, is_dir, before_bytes: None });
        out.push(record)
    }
}

impl Parser for Events {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        if let Some(list) = line.strip_prefix(PRESENT) {
            self.present(list).ok_or("no inode, size and path")?;
            return Ok(());
        }
        if line.starts_with("CPU:") {
            // So many events of a processor were lost; the recorder says it.
            out.pass_over();
            return Ok(());
        }
        let (task, time_ns, name, arguments) = event(line).ok_or("no event")?;
        let numeric =
            |name: &str| word(arguments, name).and_then(number).ok_or("a number is missing");
        let mut record = Record::new(time_ns, Op::Sync);
        if let Some((name, pid)) = name_and_pid(task) {
            record.thread = pid;
            record.process_name = out.names.intern(if name == "<...>" { "" } else { name });
        }
        if name == "ext4_sync_fs" {
            self.end_write(out)?;
            if numeric("wait")? == 1 {
                return out.push(record);
            }
            // The first of two says only that the second one comes.
            out.pass_over();
            return Ok(());
        }
        record.inode = numeric("ino")?;
        if name == "ext4_allocate_inode" {
            self.end_write(out)?;
            return self.make(record, arguments, out);
        }
        if !self.files.contains_key(&record.inode) {
            out.pass_over();
            return Ok(());
        }
        let is_gone = name == "ext4_evict_inode" && numeric("nlink")? == 0;
        record.op = match name {
            "ext4_da_write_end" | "ext4_write_end" | "ext4_journalled_write_end" => Op::Write,
            "ext4_sync_file_enter" if numeric("datasync")? == 0 => Op::Fsync,
            "ext4_sync_file_enter" => Op::Fdatasync,
            "ext4_begin_ordered_truncate" => Op::Truncate,
            // Other kinds, as holes, have a name.
            "ext4_fallocate_enter" if word(arguments, "mode").is_none_or(|m| m == "KEEP_SIZE") => {
                Op::Fallocate
            }
            "ext4_evict_inode" if is_gone => Op::Unlink,
            _ => {
                out.pass_over();
                return Ok(());
            }
        };
        record.file = self.file(&record, out)?;
        match record.op {
            Op::Write => {
                let part = record.range(numeric("pos")?, numeric("copied")?);
                return self.write(part, out);
            }
            Op::Truncate => record.size_bytes = Some(numeric("new_size")?),
            Op::Fallocate => record = record.range(numeric("offset")?, numeric("len")?),
            Op::Unlink if self.files.get(&record.inode).is_some_and(|file| file.is_dir) => {
                record.op = Op::Rmdir;
            }
            _ => {}
        }
        self.end_write(out)?;
        if is_gone {
            self.files.remove(&record.inode);
        }
        out.push(record)
    }

    fn end(&mut self, out: &mut Out<'_>) -> Result<()> {
        match self.end_write(out) {
            Err(super::Bad::Fatal(err)) => return Err(err),
            // A number is too large.
            Err(super::Bad::Line(_)) => out.report.bad_lines += 1,
            Ok(()) => {}
        }
        Ok(())
    }
}
