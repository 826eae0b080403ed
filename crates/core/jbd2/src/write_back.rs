//! Committed images that are not in place yet, and the one step of in-place writes under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use syncline_device::Origin;

use crate::buffer::Buffer;

/// The newest committed image of a block that is not in its place yet.
pub(crate) struct Pending {
    /// Transaction with this image.
    pub(crate) sequence: u32,
    /// Oldest transaction whose record recovery needs for this image. The tail does not pass it
    /// before the image is in place: with packed records the image is the end of a chain.
    pub(crate) chain: u32,
    /// First transaction that logged the block since the step that is writing it began.
    pub(crate) after_step: Option<u32>,
    pub(crate) image: Arc<[u8]>,
    /// Held so that the buffer is not evicted while the device has older contents; `None` for file
    /// data.
    pub(crate) buffer: Option<Arc<Buffer>>,
    pub(crate) origin: Origin,
}

/// Images to be written in place, and those being written.
#[derive(Default)]
pub(crate) struct WriteBack {
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// When the oldest of `pending` was committed, as `dirtied_when` of the block device's inode.
    pub(crate) dirtied_ns: Option<u64>,
    /// A step is running, of these blocks.
    pub(crate) stepping: bool,
    pub(crate) in_flight: BTreeSet<u64>,
}

impl WriteBack {
    /// True if the oldest image has waited for `expire_ns` at `now_ns`.
    pub(crate) fn is_expired(&self, now_ns: u64, expire_ns: u64) -> bool {
        self.dirtied_ns.is_some_and(|dirtied| now_ns >= dirtied.saturating_add(expire_ns))
    }

    /// Up to `most` blocks of the images for which `f` says so.
    pub(crate) fn select(&self, most: usize, f: impl Fn(&u64, &Pending) -> bool) -> Vec<u64> {
        let chosen = self.pending.iter().filter(|(block, pending)| f(block, pending));
        chosen.map(|(block, _)| *block).take(most).collect()
    }
}
