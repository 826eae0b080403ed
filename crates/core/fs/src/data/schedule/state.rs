//! State of the write-back schedule: timers, live limits, the incremental write-back under way.

use std::sync::atomic::AtomicU64;

use syncline_base::lockrank::Mutex;

use crate::data::engine::route::Route;
use crate::options::{LiveLimits, MountOptions};
use crate::ranks;

/// Timers, limits and the incremental write-back under way. Times are nanoseconds of the volume's
/// clock; 0: not yet.
pub(crate) struct Schedule {
    /// Options that may change while mounted.
    pub(crate) live: Mutex<LiveLimits>,
    /// Start of the last periodic write-back.
    pub(crate) last_writeback_ns: AtomicU64,
    /// Start of the last write-back because of the background limit.
    pub(crate) last_background_ns: AtomicU64,
    /// When lazily kept timestamps were last written.
    pub(crate) lazy_since_ns: AtomicU64,
    /// Incremental write-back of eager mode that is under way.
    pub(crate) incremental: Mutex<Option<Incremental>>,
    /// `sync=periodic`: held while a sync point is made.
    pub(crate) sync_point: Mutex<()>,
    /// `sync=eager`: where the last sync wrote its data.
    pub(crate) route: Mutex<Route>,
    pub(crate) sync_point_stats: Mutex<SyncPointStats>,
    /// Sync points for which writes have stood still, and the last of these that is durable.
    pub(crate) sync_points_held: AtomicU64,
    pub(crate) sync_points_durable: AtomicU64,
}

impl Schedule {
    pub(crate) fn new(options: &MountOptions) -> Schedule {
        Schedule {
            live: Mutex::new(ranks::LIMITS, LiveLimits::of(options)),
            last_writeback_ns: AtomicU64::new(0),
            last_background_ns: AtomicU64::new(0),
            lazy_since_ns: AtomicU64::new(0),
            incremental: Mutex::new(ranks::INCREMENTAL, None),
            sync_point: Mutex::new(ranks::SYNC_POINT, ()),
            route: Mutex::new(ranks::ROUTE, Route::default()),
            sync_point_stats: Mutex::new(ranks::SYNC_POINT_STATS, SyncPointStats::default()),
            sync_points_held: AtomicU64::new(0),
            sync_points_durable: AtomicU64::new(0),
        }
    }
}

/// Figures of the sync points of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncPointStats {
    /// Sync points taken.
    pub count: u64,
    /// When the last durable one was, in nanoseconds of the volume's clock; the mount, before the
    /// first.
    pub last_ns: u64,
    /// Longest time for which writes stood still, in nanoseconds of the volume's clock.
    pub hold_ns_max: u64,
    /// Longest time from the start of a sync point until it was durable, in nanoseconds of the
    /// volume's clock: a cut takes no more than `commit=` and this.
    pub commit_ns_max: u64,
    /// True if something was changed since.
    pub is_behind: bool,
}

/// A pass under way.
pub(crate) struct Incremental {
    pub(crate) started_ns: u64,
    /// Pages that became dirty after this are left alone, above the background limit or not.
    pub(crate) before_ns: u64,
    /// For log space: all of the log's blocks, and only files that have some.
    pub(crate) for_space: bool,
    /// True if the journal's blocks are due, too.
    pub(crate) journal: bool,
    /// First transaction that is not written in place.
    pub(crate) upto: u32,
    /// The file it is at, in the order of (dirtied, inode), and the next block of it.
    pub(crate) file: Option<(u64, u32)>,
    pub(crate) next: u64,
    pub(crate) after: Option<(u64, u32)>,
    pub(crate) pages_done: bool,
    /// Pages go first that are next in an order of pages, until few are dirty.
    pub(crate) down: bool,
}
