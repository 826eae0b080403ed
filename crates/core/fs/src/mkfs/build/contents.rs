//! Contents, in the order in which they come: block after block from the start of the device.
//!
//! ```text
//!   | superblock, descriptors | file | file | link | ... | backup of group 1 | file | ...
//! ```
//! A file is in one piece unless a backup of the superblock is in its way. Holes take nothing.

use syncline_device::BlockDevice;
use syncline_ondisk::extent::{Extent, INIT_MAX_LEN, LOGICAL_END};
use syncline_ondisk::{Geometry, Superblock};

use super::super::space::Used;
use super::super::write::{Writer, zero};
use crate::error::{FsError, Result};

/// Blocks of a file that follow each other, in the file and on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) block: u32,
    pub(super) len: u32,
    pub(super) start: u64,
}

impl Run {
    pub(super) fn extent(&self) -> Extent {
        Extent { block: self.block, len: self.len, start: self.start, unwritten: false }
    }
}

/// The device as far as it is filled.
pub(super) struct Contents<D: BlockDevice> {
    pub(super) to: Writer<D>,
    /// Blocks of contents, and those that no contents may take.
    pub(super) used: Used,
    /// Where the next file begins.
    next: u64,
    pub(super) block_size: usize,
    /// Runs of all files, each file's together.
    pub(super) runs: Vec<Run>,
    /// Last block of the open file, as far as it is not full.
    tail: Vec<u8>,
    tail_block: Option<u32>,
}

impl<D: BlockDevice> Contents<D> {
    pub(super) fn new(device: D, sb: &Superblock, geo: &Geometry) -> Self {
        let first = u64::from(geo.first_data_block);
        let mut used = Used::new(first, geo.blocks_count);
        for group in 0..geo.group_count {
            let base = geo.group_base_meta_blocks(sb, group);
            if base > 0 {
                used.insert(geo.group_first_block(group), base.into());
            }
        }
        Self {
            to: Writer::new(device),
            used,
            next: first,
            block_size: geo.block_size,
            runs: Vec::new(),
            tail: vec![0; geo.block_size],
            tail_block: None,
        }
    }

    /// Takes blocks that follow each other, at most `want`.
    pub(super) fn take(&mut self, want: u64) -> Result<(u64, u64)> {
        let (start, len) = self.used.next_range(self.next, want).ok_or(FsError::NoSpace)?;
        self.used.insert(start, len);
        self.next = start + len;
        Ok((start, len))
    }

    /// From now on gaps are used first: what was removed, and what no file takes.
    pub(super) fn fill_gaps(&mut self) {
        self.next = 0;
    }

    pub(super) fn put(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        self.to.put(block * self.block_size as u64, bytes)
    }

    /// Gives blocks back, without what was in them.
    pub(super) fn free(&mut self, (from, count): (u32, u32)) -> Result<()> {
        if count > 0 {
            self.to.send()?;
        }
        for run in &self.runs[from as usize..(from + count) as usize] {
            let (start, len) = (run.start, u64::from(run.len));
            self.used.remove(start, len);
            let size = self.block_size as u64;
            zero(self.to.device(), start * size, len * size)?;
        }
        Ok(())
    }

    /// Writes whole blocks of a file whose runs begin at `from`.
    pub(super) fn blocks(&mut self, from: u32, mut block: u32, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (start, len) = self.take((bytes.len() / self.block_size) as u64)?;
            let (part, rest) = bytes.split_at(len as usize * self.block_size);
            self.put(start, part)?;
            self.push(from, Run { block, len: len as u32, start })?;
            block += len as u32;
            bytes = rest;
        }
        Ok(())
    }

    /// Adds a run to the last file's, which begin at `from`, in extents that the format has.
    pub(super) fn push(&mut self, from: u32, mut run: Run) -> Result<()> {
        let open = self.runs.len() > from as usize;
        if let Some(last) = self.runs.last_mut().filter(|_| open) {
            let follows = last.block + last.len == run.block;
            if follows && last.start + u64::from(last.len) == run.start {
                let more = run.len.min(INIT_MAX_LEN - last.len);
                last.len += more;
                run.block += more;
                run.start += u64::from(more);
                run.len -= more;
            }
        }
        while run.len > 0 {
            let len = run.len.min(INIT_MAX_LEN);
            if u32::try_from(self.runs.len()).is_err() {
                return Err(FsError::NoSpace);
            }
            self.runs.push(Run { len, ..run });
            run.block = run.block.wrapping_add(len);
            run.start += u64::from(len);
            run.len -= len;
        }
        Ok(())
    }

    /// Writes bytes of the open file, behind all that were written before.
    pub(super) fn write(&mut self, from: u32, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        let size = self.block_size as u64;
        let end = at.checked_add(bytes.len() as u64).ok_or(FsError::TooBig)?;
        if end > size * (LOGICAL_END - 1) {
            return Err(FsError::TooBig);
        }
        while !bytes.is_empty() {
            let (block, inside) = ((at / size) as u32, (at % size) as usize);
            if self.tail_block.is_some_and(|tail| tail != block) {
                self.flush(from)?;
            }
            let whole = bytes.len() / self.block_size * self.block_size;
            let done = if inside == 0 && whole > 0 && self.tail_block.is_none() {
                self.blocks(from, block, &bytes[..whole])?;
                whole
            } else {
                if self.tail_block.is_none() {
                    self.tail.fill(0);
                    self.tail_block = Some(block);
                }
                let len = bytes.len().min(self.block_size - inside);
                self.tail[inside..inside + len].copy_from_slice(&bytes[..len]);
                if inside + len == self.block_size {
                    self.flush(from)?;
                }
                len
            };
            at += done as u64;
            bytes = &bytes[done..];
        }
        Ok(())
    }

    /// Writes the last block of the open file.
    pub(super) fn flush(&mut self, from: u32) -> Result<()> {
        let Some(block) = self.tail_block.take() else { return Ok(()) };
        let tail = std::mem::take(&mut self.tail);
        let done = self.blocks(from, block, &tail);
        self.tail = tail;
        done
    }
}
