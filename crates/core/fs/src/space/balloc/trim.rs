//! Discard of free blocks (`FITRIM`): for flash that a file system without `discard` has filled.
//!
//! ```text
//!   group by group:   find a free run -> take it in memory -> discard -> give it back
//! ```
//!
//! Promises
//! - Only blocks are discarded that could be allocated and written in place: free in the newest
//!   commit, without a copy in the log. Blocks that are freed but not committed are left alone, and
//!   so are windows of files.
//! - A run that is being discarded is not allocated. An allocation that finds no other block waits
//!   for it, so no allocation fails because of a trim. One run, at most a group, is held at a time.
//!
//! As ext4, but blocks discarded before are discarded again. Linux: `ext4_trim_fs`. Tested in
//! `tests/it/trim.rs`.

use std::ops::Range as Bytes;

use syncline_device::{Kind, Origin};

use super::core::{Core, GroupSource, Range};
use crate::error::{FsError, Result};
use crate::space::Space;

impl crate::Volume {
    /// Discards the free blocks in a range of bytes of the device, for the sake of flash
    /// (`FITRIM`). Runs shorter than `least_bytes` are left out. Returns the bytes discarded.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a range outside of the volume or below a block, and for runs longer
    /// than a group; [`FsError::NotSupported`] without a discard of the device,
    /// [`FsError::ReadOnly`], [`FsError::Latched`], I/O.
    pub fn trim(&self, range: std::ops::Range<u64>, least_bytes: u64) -> Result<u64> {
        let space: &Space = &self.0;
        space.check_writable()?;
        if !space.dev.geometry().discard {
            return Err(FsError::NotSupported("the device has no discard".into()));
        }
        // In clusters.
        let shape = &space.balloc.core.shape;
        let bits = shape.block_bits;
        let least = (least_bytes >> bits).max(1);
        let blocks = (range.end.saturating_sub(range.start)) >> bits;
        let first = range.start >> bits;
        if least > u64::from(shape.blocks_per_group) || first >= shape.blocks_count || blocks == 0 {
            return Err(FsError::invalid(
                "a range outside of the volume, or runs longer than a group",
            ));
        }
        let end = first.saturating_add(blocks).min(shape.blocks_count);
        let first = first.max(shape.first_data_block);
        let mut discarded = 0;
        for group in 0..shape.groups {
            let start = shape.group_start(group);
            let len = u64::from(shape.group_len(group));
            let part = first.max(start)..end.min(start + len);
            if part.start < part.end {
                // Within a group, whose blocks are counted in 32 bits.
                let bits = (part.start - start) as u32..(part.end - start) as u32;
                discarded += trim_group(space, group, bits, least as u32)?;
            }
        }
        Ok(discarded << bits)
    }
}
/// Discards runs of at least `least` blocks among some blocks of a group; blocks discarded.
fn trim_group(space: &Space, group: u32, part: Bytes<u32>, least: u32) -> Result<u64> {
    let core = &space.balloc.core;
    let (mut at, mut discarded) = (part.start, 0);
    while let Some(run) = core.next_free(&*space.store, group, at..part.end, least)? {
        space.latch.check()?;
        at = run.end;
        discarded += core.aside(group, run, |range| {
            let origin = Origin::new(Kind::Metadata, false);
            let bits = core.shape.block_bits;
            let bytes = u64::from(range.len) << bits;
            space.dev.discard(range.start << bits, bytes, origin)?;
            Ok::<u64, FsError>(range.len.into())
        })?;
    }
    Ok(discarded)
}

impl Core {
    /// The first free run of `least` blocks or more in a part of a group.
    fn next_free(
        &self,
        source: &dyn GroupSource,
        group: u32,
        part: Bytes<u32>,
        least: u32,
    ) -> Result<Option<Bytes<u32>>> {
        let mut locked = self.lock(group, source)?;
        let Some(map) = locked.map() else { return Ok(None) };
        let bounds = (part.start, part.end);
        let start = map.find_within(bounds, part.start, least);
        Ok(start.map(|start| start..start + map.run_at(start, part.end - start)))
    }

    /// Takes what is free from the start of a run, does `work` on it and releases it. Returns the
    /// result of `work`, or 0 if the first block was allocated by then.
    fn aside(
        &self,
        group: u32,
        run: Bytes<u32>,
        work: impl FnOnce(Range) -> Result<u64>,
    ) -> Result<u64> {
        // An allocation that finds no room waits until the blocks are back.
        let _shared = self.gate.read();
        let Some(taken) = self.take_run(group, run) else { return Ok(0) };
        let done = work(taken);
        self.give(taken);
        done
    }
}
