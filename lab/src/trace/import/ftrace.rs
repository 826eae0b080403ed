//! Logs of a phone's file operations, printed by kernel probes through ftrace (the android-ext4
//! set): one event a line, fields after the mark by tabs.
//!
//! ```text
//!   <...>-22988 [000] ....  6939.922949: ext4_file_write: [W]  mmcblk0p28  115776  0  3994  0
//!   mark  fields
//!   [OP] [CR] [UN] [MD] [RD]  device, path, inode          [RN]  device, old, new, inode
//!   [W]   device, inode, offset, length, size before       [FS]  device, path, inode, datasync
//! ```
//!
//! Writes name the inode only: it is resolved through the events before and the list of files that
//! were open before the start (`--preopen`). [OP] prints a path of the phone, the others one of the
//! file system, which is mounted on `/data`; both become the former, with `/data/user/0` as
//! `/data/data`. Events of other devices than the phone's flash are passed over. Reads, truncation
//! and close were not recorded.

use rustc_hash::FxHashMap;

use super::text::{name_and_pid, number, scaled};
use super::{ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use crate::trace::model::{Flags, NameId, Op, Record};

const MARKS: [(&str, Op); 8] = [
    ("[OP]\t", Op::Open),
    ("[CR]\t", Op::Create),
    ("[W]\t", Op::Write),
    ("[FS]\t", Op::Fsync),
    ("[UN]\t", Op::Unlink),
    ("[RN]\t", Op::Rename),
    ("[MD]\t", Op::Mkdir),
    ("[RD]\t", Op::Rmdir),
];
/// The phone's flash, and the partition whose paths start below `/data`.
const FLASH: &str = "mmcblk";
const SYSTEM: &str = "mmcblk0p25";

fn mark(line: &str) -> Option<(&str, Op, &str)> {
    MARKS.iter().find_map(|(mark, op)| {
        let (before, after) = line.split_once(mark)?;
        Some((before, *op, after))
    })
}

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.most(|line| mark(line).is_some_and(|(before, ..)| before.contains('[')))
}

pub(super) fn parser(options: &ImportOptions) -> Result<Box<dyn Parser>> {
    let preopen = options.preopen.clone().unwrap_or_default();
    Ok(Box::new(Log { preopen: Some(preopen), files: FxHashMap::default() }))
}

struct Log {
    /// Until the first event.
    preopen: Option<String>,
    /// By device and inode.
    files: FxHashMap<(bool, u64), NameId>,
}

/// A path of the phone.
fn path(op: Op, device: &str, path: &str) -> String {
    let full = if op == Op::Open {
        path.to_owned()
    } else if device == SYSTEM {
        format!("/system{path}")
    } else {
        format!("/data{path}")
    };
    match full.strip_prefix("/data/user/0/") {
        Some(rest) => format!("/data/data/{rest}"),
        None => full,
    }
}

impl Log {
    /// Files that were open before the start: their inodes, names and sizes.
    fn populate(&mut self, time_ns: u64, out: &mut Out<'_>) -> Line {
        for line in self.preopen.take().unwrap_or_default().lines() {
            let fields: Vec<&str> = line.trim_end().split('\t').collect();
            let [name, inode, size] = fields.as_slice() else { continue };
            let (Some(inode), Some(size)) = (number(inode), number(size)) else { continue };
            let system = name.starts_with("/system/");
            if !system && !name.starts_with("/data/") {
                continue;
            }
            let file = out.names.intern(&path(Op::Open, "", name));
            self.files.insert((system, inode), file);
            let size_bytes = Some(size);
            out.push(Record { file, inode, size_bytes, ..Record::new(time_ns, Op::Present) })?;
        }
        Ok(())
    }
}

impl Parser for Log {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        let (before, op, after) = mark(line).ok_or("no event")?;
        let (task, stamp) = before.split_once('[').ok_or("no processor")?;
        let seconds = stamp
            .split_whitespace()
            .find_map(|word| word.strip_suffix(':').filter(|word| word.contains('.')))
            .ok_or("no time")?;
        let time_ns = scaled(seconds, 1_000_000_000).ok_or("the time is no number")?;
        if self.preopen.is_some() {
            self.populate(time_ns, out)?;
        }
        let fields: Vec<&str> = after.split('\t').map(str::trim).collect();
        let field = |at: usize| fields.get(at).copied().ok_or("fields are missing");
        let numeric = |at: usize| number(field(at)?).ok_or("a field is no number");
        let device = field(0)?;
        if !device.starts_with(FLASH) {
            out.pass_over();
            return Ok(());
        }
        let mut record = Record::new(time_ns, op);
        if let Some((name, pid)) = name_and_pid(task) {
            record.thread = pid;
            record.process_name = out.names.intern(if name == "<...>" { "" } else { name });
        }
        let inode_at = match op {
            Op::Write => 1,
            Op::Rename => 3,
            _ => 2,
        };
        record.inode = numeric(inode_at)?;
        let key = (device == SYSTEM, record.inode);
        if op == Op::Write {
            record = record.range(numeric(2)?, numeric(3)?);
            record.size_bytes = Some(numeric(4)?);
            let unnamed = || format!("/data/.unnamed/{}", record.inode);
            let known = self.files.get(&key).copied();
            record.file = known.unwrap_or_else(|| out.names.intern(&unnamed()));
            self.files.insert(key, record.file);
            return out.push(record);
        }
        record.file = out.names.intern(&path(op, device, field(1)?));
        match op {
            Op::Rename => {
                record.target = out.names.intern(&path(op, device, field(2)?));
                self.files.insert(key, record.target);
            }
            Op::Unlink | Op::Rmdir => {
                self.files.remove(&key);
            }
            _ => {
                self.files.insert(key, record.file);
            }
        }
        if op == Op::Fsync && numeric(3)? == 1 {
            record.op = Op::Fdatasync;
        }
        record.flags = Flags::NONE;
        out.push(record)
    }
}
