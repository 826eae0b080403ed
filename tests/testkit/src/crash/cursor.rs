//! Walks the log: the durable image so far, the writes since, and a hash of their content.
//!
//! Invariant: `pending` holds, in log order, every write that is not in `durable`. A durable (FUA)
//! write stays in `pending` behind older optional ones, marked `fixed`, so that an older write to
//! the same sector can never undo it.
//!
//! A durable write behind a barrier makes everything before that barrier `fixed`.
//!
//! Content is hashed per sector and summed relative to the base image, so that equal images get
//! equal sums however they came about; a sum costs the sectors of the pending writes.

use std::collections::{HashMap, HashSet};

use syncline_device::{MemoryDevice, SECTOR_BYTES};

use crate::crash::choices::Pick;
use crate::crash::{Content, CrashLog, Entry, LoggedWrite};

/// A write that the image does not have yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Entry and place in its batch.
    pub(crate) at: (usize, usize),
    /// Durable: is there whatever the choice.
    pub(crate) fixed: bool,
    /// Barriers in the log before it.
    pub(crate) barriers: usize,
}

/// Hashes of every sector of every logged write.
pub(crate) struct Hashes(Vec<Vec<Vec<u64>>>);

impl Hashes {
    pub(crate) fn new(log: &CrashLog) -> Self {
        let write = |w: &LoggedWrite| match &w.content {
            Content::Data(bytes) => bytes.chunks(SECTOR_BYTES as usize).map(hash).collect(),
            Content::Discard { .. } => Vec::new(),
        };
        let entry = |e: &Entry| match e {
            Entry::Batch(writes) => writes.iter().map(write).collect(),
            Entry::Flush | Entry::Barrier | Entry::Mark(_) => Vec::new(),
        };
        Hashes(log.entries.iter().map(entry).collect())
    }
}

/// A position in the log. Goes forward only.
pub(crate) struct Cursor {
    /// Entries passed.
    pub(crate) entries: usize,
    /// Marks and barriers passed.
    pub(crate) marks: usize,
    pub(crate) barriers: usize,
    pub(crate) pending: Vec<Pending>,
    durable: MemoryDevice,
    /// Hash of the durable content of each sector that was written or asked for. Looked up only,
    /// so its order does not matter.
    sectors: HashMap<u64, u64>,
    /// Sum over all sectors of `mix(now) - mix(base)`.
    sum: u64,
}

/// The logged write at a position that came from the log.
pub(crate) fn write_at(log: &CrashLog, (entry, index): (usize, usize)) -> Option<&LoggedWrite> {
    match log.entries.get(entry)? {
        Entry::Batch(writes) => writes.get(index),
        Entry::Flush | Entry::Barrier | Entry::Mark(_) => None,
    }
}

impl Cursor {
    /// Before the first entry.
    pub(crate) fn new(log: &CrashLog) -> Self {
        let durable = log.base.snapshot();
        let (pending, sectors) = (Vec::new(), HashMap::new());
        Cursor { entries: 0, marks: 0, barriers: 0, pending, durable, sectors, sum: 0 }
    }

    /// Goes on to the position after so many entries.
    pub(crate) fn advance_to(&mut self, log: &CrashLog, hashes: &Hashes, entries: usize) {
        while self.entries < entries.min(log.entries.len()) {
            let entry = self.entries;
            self.entries += 1;
            let settled = match &log.entries[entry] {
                Entry::Mark(_) => {
                    self.marks += 1;
                    0
                }
                Entry::Barrier => {
                    self.barriers += 1;
                    0
                }
                Entry::Flush => self.pending.len(),
                Entry::Batch(writes) => {
                    let barriers = self.barriers;
                    if writes.iter().any(|write| write.durable) {
                        let before = self.pending.iter_mut().filter(|p| p.barriers < barriers);
                        before.for_each(|pending| pending.fixed = true);
                    }
                    let new = writes.iter().enumerate();
                    self.pending.extend(new.map(|(i, w)| Pending {
                        at: (entry, i),
                        fixed: w.durable,
                        barriers,
                    }));
                    self.pending.iter().take_while(|p| p.fixed).count()
                }
            };
            let settled: Vec<Pending> = self.pending.drain(..settled).collect();
            for pending in settled {
                self.settle(log, hashes, pending);
            }
        }
    }

    /// Makes one write part of the durable image.
    fn settle(&mut self, log: &CrashLog, hashes: &Hashes, pending: Pending) {
        let Some(write) = write_at(log, pending.at) else { return };
        for_each_sector(write, hash_list(hashes, pending.at), |sector, new| {
            let old = self.sector_hash(sector);
            self.sum = self.sum.wrapping_add(mix(sector, new)).wrapping_sub(mix(sector, old));
            self.sectors.insert(sector, new);
        });
        apply(&self.durable, write, &Pick::Kept);
    }

    fn sector_hash(&mut self, sector: u64) -> u64 {
        let durable = &self.durable;
        *self.sectors.entry(sector).or_insert_with(|| {
            let mut content = [0; SECTOR_BYTES as usize];
            // Sectors come from requests that the device accepted, so they are inside.
            let read = durable.read_at(sector * SECTOR_BYTES, &mut content);
            debug_assert!(read.is_ok());
            hash(&content)
        })
    }

    /// The image with these of the writes; `picks` pairs with `writes`.
    pub(crate) fn image(&self, log: &CrashLog, writes: &[Pending], picks: &[Pick]) -> MemoryDevice {
        let image = self.durable.snapshot();
        for (pending, pick) in writes.iter().zip(picks) {
            if let Some(write) = write_at(log, pending.at) {
                apply(&image, write, pick);
            }
        }
        image
    }

    /// The hash of [`Cursor::image`], without building it.
    pub(crate) fn content_sum(
        &mut self,
        log: &CrashLog,
        hashes: &Hashes,
        writes: &[Pending],
        picks: &[Pick],
    ) -> u64 {
        let mut sum = self.sum;
        let mut seen = HashSet::new();
        // Newest first: the first write that has the sector decides.
        for (pending, pick) in writes.iter().zip(picks).rev() {
            let Some(write) = write_at(log, pending.at) else { continue };
            let first = write.offset_bytes / SECTOR_BYTES;
            let discard = matches!(write.content, Content::Discard { .. });
            for_each_sector(write, hash_list(hashes, pending.at), |sector, new| {
                let there = match pick {
                    Pick::Lost => false,
                    Pick::Kept => true,
                    Pick::Torn(bits) => {
                        let index = if discard { 0 } else { (sector - first) as usize };
                        bits.get(index).copied().unwrap_or(false)
                    }
                };
                if there && seen.insert(sector) {
                    let old = self.sector_hash(sector);
                    sum = sum.wrapping_add(mix(sector, new)).wrapping_sub(mix(sector, old));
                }
            });
        }
        sum
    }
}

fn hash_list(hashes: &Hashes, (entry, index): (usize, usize)) -> &[u64] {
    hashes.0.get(entry).and_then(|e| e.get(index)).map_or(&[], Vec::as_slice)
}

/// Calls `each` with the number and the content hash of every sector of a write.
fn for_each_sector(write: &LoggedWrite, hashes: &[u64], mut each: impl FnMut(u64, u64)) {
    let first = write.offset_bytes / SECTOR_BYTES;
    match &write.content {
        Content::Data(_) => {
            for (sector, &hash) in (first..).zip(hashes) {
                each(sector, hash);
            }
        }
        Content::Discard { len_bytes } => {
            let zero = hash(&[0; SECTOR_BYTES as usize]);
            for sector in first..first + len_bytes / SECTOR_BYTES {
                each(sector, zero);
            }
        }
    }
}

/// Puts the picked part of a write into an image.
fn apply(image: &MemoryDevice, write: &LoggedWrite, pick: &Pick) {
    let at = write.offset_bytes;
    let result = match (&write.content, pick) {
        (_, Pick::Lost) => Ok(()),
        (Content::Data(bytes), Pick::Kept) => image.write_at(at, bytes),
        (Content::Data(bytes), Pick::Torn(bits)) => {
            let sectors = bytes.chunks(SECTOR_BYTES as usize).zip(bits).enumerate();
            sectors.filter(|(_, (_, there))| **there).try_for_each(|(i, (sector, _))| {
                image.write_at(at + i as u64 * SECTOR_BYTES, sector)
            })
        }
        (Content::Discard { len_bytes }, Pick::Kept) => image.zero_at(at, *len_bytes),
        (Content::Discard { len_bytes }, Pick::Torn(bits)) => {
            if bits.first() == Some(&true) {
                image.zero_at(at, *len_bytes)
            } else {
                Ok(())
            }
        }
    };
    // The device checked every request before it was logged, and images do not change size.
    debug_assert!(result.is_ok());
}

/// A fast 64-bit hash of a sector. Two states are taken for equal if their sums are; with a
/// million states the odds of a wrong match are below one in 10^7.
fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        state = (state.rotate_left(5) ^ u64::from_le_bytes(padded)).wrapping_mul(MULTIPLIER);
    }
    state ^ state >> 32
}

const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;

/// Ties a content to its place (the finisher of splitmix64).
fn mix(sector: u64, hash: u64) -> u64 {
    let mut x = hash ^ sector.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
