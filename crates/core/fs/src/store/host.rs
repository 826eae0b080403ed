//! Calls of the journal to the volume: an abort latches it, and the image of a block that many
//! files share is composed for one set of operations.
//!
//! The journal holds the store weakly, since the store holds the journal.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use syncline_jbd2::{Counters, Host, JournalError};

use crate::error::FsError;
use crate::store::Store;
use crate::store::group::apply_counters;

/// The journal's way back to the volume: latches it when the journal aborts by itself, and composes
/// what a block of shared metadata holds for one set of operations.
pub(crate) struct JournalHost(pub(crate) Weak<Store>);

impl Host for JournalHost {
    fn aborted(&self, err: &JournalError) {
        if let Some(store) = self.0.upgrade() {
            store.latch.set(&FsError::from(err.clone()));
        }
    }

    fn apply_counters(
        &self,
        block: u64,
        image: &mut [u8],
        groups: &BTreeMap<u32, Counters>,
        bitmap: &dyn Fn(u64) -> Option<Arc<[u8]>>,
    ) -> Option<()> {
        apply_counters(&*self.0.upgrade()?, block, image, groups, bitmap)
    }

    fn renew_checksum(&self, block: u64, image: &mut [u8]) {
        let Some(store) = self.0.upgrade() else { return };
        if let Some((blocks, Some(seed))) = store.orphan_file.get() {
            if blocks.contains(&block) {
                syncline_ondisk::orphan_file::set_checksum(image, block, *seed);
            }
        }
    }
}
