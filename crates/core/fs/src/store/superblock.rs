//! The superblock in transactions: the head of the orphan list, and features that are set when they
//! are first needed. Errors that were found are noted past the transactions.
//!
//! Promises: whatever needs a feature is durable together with it or after it. The first operation
//! that needs one sets it in its own handle. Until that transaction is durable as a whole, every
//! other that needs it puts the superblock into its handle, too: an eager fsync makes some of a
//! transaction durable, those that share a block together.
//!
//! Tested in `tests/it/needed.rs`, with power cuts.

use std::sync::atomic::{AtomicU64, Ordering};

use syncline_device::{Kind, Origin};
use syncline_jbd2::{Handle, Tid};
use syncline_ondisk::Superblock;
use syncline_ondisk::run_time::{FoundError, FoundErrors, Needed};
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};

use crate::error::{FsError, Result};
use crate::options::OnError;
use crate::store::Store;
use crate::time::NS_PER_S;

/// The feature is on the device.
const PRESENT: u64 = u64::MAX;
/// The feature was not needed yet.
const MISSING: u64 = u64::MAX - 1;

/// One feature: present, missing, or the transaction that sets it.
pub(crate) struct NeededState(AtomicU64);

/// The features, as the superblock had them when the volume was opened.
pub(crate) struct NeededFeatures {
    ext_attr: NeededState,
    large_file: NeededState,
}

impl NeededFeatures {
    pub(crate) fn new(sb: &Superblock) -> NeededFeatures {
        let state =
            |needed| NeededState(AtomicU64::new(if sb.has(needed) { PRESENT } else { MISSING }));
        NeededFeatures { ext_attr: state(Needed::ExtAttr), large_file: state(Needed::LargeFile) }
    }

    fn of(&self, needed: Needed) -> &AtomicU64 {
        match needed {
            Needed::ExtAttr => &self.ext_attr.0,
            Needed::LargeFile => &self.large_file.0,
        }
    }
}

/// Sets a feature that the handle's operation needs. The superblock is one block for all handles of
/// a transaction: none of them reserves it.
///
/// # Errors
/// Whatever joining the transaction gives.
#[inline]
pub(crate) fn need_feature(store: &Store, h: &mut Handle, needed: Needed) -> Result<()> {
    let state = store.needed.of(needed);
    match state.load(Ordering::Acquire) {
        PRESENT => Ok(()),
        before => set_feature(store, h, needed, (state, before)),
    }
}

#[cold]
fn set_feature(
    store: &Store,
    h: &mut Handle,
    needed: Needed,
    (state, before): (&AtomicU64, u64),
) -> Result<()> {
    if before == MISSING {
        store.sb.lock().set(needed);
        write_superblock(store, h)?;
        let first = u64::from(h.tid());
        let _ = state.compare_exchange(MISSING, first, Ordering::AcqRel, Ordering::Acquire);
        return Ok(());
    }
    let tid = Tid::try_from(before).unwrap_or(h.tid());
    if tid != h.tid() && !store.journal()?.needs_commit(tid) {
        state.store(PRESENT, Ordering::Release);
        return Ok(());
    }
    write_superblock(store, h)
}

/// Puts the in-core superblock into its block, in the handle's transaction.
pub(crate) fn write_superblock(store: &Store, h: &mut Handle) -> Result<()> {
    let block = SUPERBLOCK_OFFSET >> store.geo.block_bits;
    let offset = (SUPERBLOCK_OFFSET - (block << store.geo.block_bits)) as usize;
    let sb = store.sb.lock();
    h.try_modify(block, |bytes| {
        let slot = bytes.get_mut(offset..offset + SUPERBLOCK_BYTES).ok_or(FsError::Stale)?;
        Ok(sb.encode_into(slot)?)
    })
}

/// Notes corruption for the superblock (`ext4_handle_error`), so that e2fsck checks everything.
/// With `errors=continue` the unmount writes the note; else nothing is written after this, and the
/// note alone goes to its place, past the log: no other change that is not committed does. A
/// failure is not another error.
pub(crate) fn note_error(store: &Store, (inode, block): (u32, u64)) {
    let error = FoundError { time_s: store.clock.now_ns() / NS_PER_S, inode, block };
    {
        let mut found = store.found.lock();
        let before = found.unwrap_or(FoundErrors { count: 0, ..error.into() });
        let count = before.count.saturating_add(1);
        *found = Some(FoundErrors { first: before.first, last: error, count });
    }
    if store.options.errors == OnError::RemountRo {
        let _ = put_note(store, |sb| sb.note_errors(&error.into()));
    }
}

fn put_note(store: &Store, note: impl FnOnce(&mut Superblock)) -> Result<()> {
    let origin = Origin::new(Kind::Metadata, true);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    store.dev.read(SUPERBLOCK_OFFSET, &mut bytes, origin)?;
    let mut sb = Superblock::decode(&bytes)?;
    note(&mut sb);
    sb.encode_into(&mut bytes)?;
    Ok(store.dev.write(SUPERBLOCK_OFFSET, &bytes, origin)?)
}
