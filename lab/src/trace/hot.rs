//! Statistics of files: the ones that are updated often, and the lifetime of their data. Figure 1
//! of the hot-zones paper, for any trace.
//!
//! Definitions. A block is 4 KiB of a file. Each write of a block makes a version of it, which
//! lives until the block is written again, cut off or removed with its file; versions that live at
//! the end of the trace have no lifetime. An update is a write of a block that was written before.
//! In a trace without files, 64 MiB of a device stand for a file. A file is
//! - *updated* if it updated 64 blocks or more, and at least four times as many as it has;
//! - *short* if nine of ten versions ended, within 60 s on average, not all of them by updates;
//!
//! which are the rules by which a mount with `alloc=` learns. Blocks in memory are bounded
//! ([`BLOCKS_MAX`]); those beyond are counted and not followed. Tested in `lab/tests/trace/hot.rs`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::error::Result;
use crate::trace::model::{NameId, Names, Op, Record, Sink};

/// Distinct blocks that are followed.
pub const BLOCKS_MAX: usize = 1 << 21;
const BLOCK_BYTES: u64 = 4096;
/// Address range of a device that stands for a file.
const RANGE_BYTES: u64 = 64 << 20;
/// Blocks of one write that are followed, at most.
const BLOCKS_PER_WRITE_MAX: u64 = 1 << 14;
const UPDATES_MIN: u64 = 64;
const UPDATES_PER_BLOCK: u64 = 4;
const SHORT_NS: u64 = 60_000_000_000;

/// Effects of the writes to a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HotFile {
    /// Name, or the address range in a trace without names.
    pub name: String,
    /// Write calls or requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Distinct blocks written.
    pub blocks: u64,
    /// Writes of blocks that had been written before.
    pub updates: u64,
    /// Versions of blocks that ended within the trace.
    pub ended: u64,
    /// Their mean lifetime in milliseconds; none if none ended.
    pub lifetime_ms: Option<f64>,
    /// `updated`, `short` or nothing.
    pub expected: Option<&'static str>,
}

/// The table, files that were written most often first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HotFiles {
    /// Rows.
    pub files: Vec<HotFile>,
    /// Writes of blocks that were not followed, because there were too many.
    pub not_followed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    File(NameId),
    /// Device and number of the range.
    Range(u32, u64),
}

#[derive(Default)]
struct Written {
    writes: u64,
    bytes: u64,
    updates: u64,
    blocks: u64,
    ended: u64,
    lived_ns: u128,
    /// When the version that lives was written, by block.
    live: BTreeMap<u64, u64>,
}

impl Written {
    fn end(&mut self, from: u64, now_ns: u64) -> usize {
        let gone = self.live.split_off(&from);
        for written_ns in gone.values() {
            self.ended += 1;
            self.lived_ns += u128::from(now_ns.saturating_sub(*written_ns));
        }
        gone.len()
    }

    fn expected(&self) -> Option<&'static str> {
        let versions = self.ended + self.live.len() as u64;
        if self.updates >= UPDATES_MIN && self.updates >= UPDATES_PER_BLOCK * self.blocks {
            return Some("updated");
        }
        let removed = self.ended.saturating_sub(self.updates);
        let mostly = self.ended > 0 && self.ended * 10 >= versions * 9 && removed > 0;
        let young = self.lived_ns <= u128::from(SHORT_NS) * u128::from(self.ended);
        (mostly && young).then_some("short")
    }
}

/// Gathers [`HotFiles`]: a [`Sink`].
#[derive(Default)]
pub struct HotGather {
    files: FxHashMap<Key, Written>,
    followed: usize,
    not_followed: u64,
}

impl Sink for HotGather {
    fn record(&mut self, _: &Names, record: &Record) -> Result<()> {
        if record.failed() {
            return Ok(());
        }
        let key = Key::File(record.file);
        match record.op {
            Op::Write => self.write(record),
            Op::Truncate if record.file.is_some() => {
                let size = record.size_bytes.unwrap_or(record.len_bytes);
                self.end(key, size.div_ceil(BLOCK_BYTES), record.time_ns);
            }
            Op::Unlink if record.file.is_some() => self.end(key, 0, record.time_ns),
            Op::Rename if record.file.is_some() && record.target.is_some() => {
                let to = Key::File(record.target);
                self.end(to, 0, record.time_ns);
                if let Some(mut moved) = self.files.remove(&key) {
                    // The name had a life of its own before.
                    let target = self.files.entry(to).or_default();
                    target.live.append(&mut moved.live);
                    target.writes += moved.writes;
                    target.bytes += moved.bytes;
                    target.updates += moved.updates;
                    target.blocks += moved.blocks;
                    target.ended += moved.ended;
                    target.lived_ns += moved.lived_ns;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl HotGather {
    fn end(&mut self, key: Key, from: u64, now_ns: u64) {
        if let Some(written) = self.files.get_mut(&key) {
            self.followed -= written.end(from, now_ns);
        }
    }

    fn write(&mut self, record: &Record) {
        let key = if record.file.is_some() {
            Key::File(record.file)
        } else {
            Key::Range(record.device, record.offset_bytes / RANGE_BYTES)
        };
        let written = self.files.entry(key).or_default();
        written.writes += 1;
        written.bytes = written.bytes.saturating_add(record.len_bytes);
        if record.len_bytes == 0 {
            return;
        }
        let first = record.offset_bytes / BLOCK_BYTES;
        let last = record.offset_bytes.saturating_add(record.len_bytes - 1) / BLOCK_BYTES;
        let followed_last = last.min(first.saturating_add(BLOCKS_PER_WRITE_MAX - 1));
        self.not_followed += last - followed_last;
        for block in first..=followed_last {
            if let Some(at) = written.live.get_mut(&block) {
                written.updates += 1;
                written.ended += 1;
                written.lived_ns += u128::from(record.time_ns.saturating_sub(*at));
                *at = record.time_ns;
            } else if self.followed < BLOCKS_MAX {
                written.live.insert(block, record.time_ns);
                written.blocks += 1;
                self.followed += 1;
            } else {
                self.not_followed += 1;
            }
        }
    }

    /// The table.
    pub fn finish(self, names: &Names) -> HotFiles {
        let name = |key: &Key| match key {
            Key::File(file) => names.get(*file).to_owned(),
            Key::Range(device, range) => {
                let mib = range * (RANGE_BYTES >> 20);
                format!("device {device}, {mib} MiB to {} MiB", mib + (RANGE_BYTES >> 20))
            }
        };
        let row = |(key, written): (&Key, &Written)| HotFile {
            name: name(key),
            writes: written.writes,
            written_bytes: written.bytes,
            blocks: written.blocks,
            updates: written.updates,
            ended: written.ended,
            lifetime_ms: (written.ended > 0)
                .then(|| written.lived_ns as f64 / 1e6 / written.ended as f64),
            expected: written.expected(),
        };
        let mut files: Vec<HotFile> =
            self.files.iter().map(row).filter(|file| file.writes > 0).collect();
        files.sort_by(|a, b| b.writes.cmp(&a.writes).then_with(|| a.name.cmp(&b.name)));
        HotFiles { files, not_followed: self.not_followed }
    }
}
