//! Interface of replacement policies, and the table of all policies.
//!
//! A policy is written as an [`Order`]: plain data, `&mut self`. `Locked` makes a [`Policy`] of
//! it that any thread may call; a [`crate::Simulator`] runs the order itself, without locks and
//! with its calls inlined. So both run the same code.
//!
//! | file | source | spatial | tells clean from dirty |
//! | --- | --- | --- | --- |
//! | `clock`, `lru` | textbooks | no | no |
//! | `linux2q` | Linux 2.6 page cache | no | no |
//! | `cflru`, `lru_wsr`, `operation_aware` | flash papers | no | yes |
//! | `fab` | flash paper | blocks of 64 pages | no |
//! | `spatialclock` | informed-storage paper, section 5.3 | yes | no |
//! | `spatial_protected` | our own | yes | no |
//! | `block_clock` | our own | yes, blocks of 64 pages | yes |
//! | `spatial_blocks` | our own; order of write-back only | yes | no |
//! | `mglru` | Linux 6.12 page cache | no | no |
//! | `twoq`, `arc`, `s3fifo`, `sieve` | VLDB 1994, FAST 2003, SOSP 2023, NSDI 2024 | no | no |
//! | `min` | Belady 1966, the bound; simulation only | no | no |
//!
//! The informed-storage paper is H. Kim, *Informed Storage Management for Mobile Platforms*,
//! thesis, Georgia Institute of Technology, 2012.

pub mod arc;
pub mod block_clock;
pub mod cflru;
pub mod clock;
pub mod fab;
pub mod linux2q;
pub mod lru;
pub mod lru_wsr;
pub mod mglru;
pub mod min;
pub mod operation_aware;
pub mod s3fifo;
pub mod sieve;
pub mod spatial_blocks;
pub mod spatial_protected;
pub mod spatialclock;
pub mod twoq;

use std::fmt;
use std::str::FromStr;

use crate::simulator::{Engine, Run, Setup};
use crate::{CacheError, FrameId, Frames, PageKey};
use parking_lot::Mutex;

/// Victims that a caller of [`Policy::pick_victim`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Clean frames only: the caller cannot write back now.
    Clean,
    /// Clean and dirty frames: the caller writes a dirty victim back before it reuses the frame.
    Any,
    /// Dirty frames only: the caller wants to know which to write back next.
    Dirty,
}

/// Kind of an access to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The content is read.
    Read,
    /// The content is modified.
    Write,
}

/// A replacement policy: an order over the frames that are in use.
///
/// The owner guarantees, for each frame: `on_insert` comes first, then any of the others,
/// `on_remove` last; the flags in [`Frames`] are set before the call that tells of them. The policy
/// guarantees what [`Policy::pick_victim`] says. Methods take `&self`: a policy locks what it must
/// and calls nothing while it does.
pub trait Policy: Send + Sync {
    /// The name in [`POLICIES`].
    fn name(&self) -> &'static str;

    /// `frame` now holds a page. `access` is the access that brought it in.
    fn on_insert(&self, frames: &Frames, frame: FrameId, access: Access);

    /// The page in `frame` was used again.
    fn on_hit(&self, frames: &Frames, frame: FrameId, access: Access);

    /// The page in `frame` became dirty or clean; the flag in `frames` says which.
    fn on_dirty(&self, frames: &Frames, frame: FrameId);

    /// `frame` is about to be released; it still has its key.
    fn on_remove(&self, frames: &Frames, frame: FrameId);

    /// The frame to give up next among those that are not pinned and that `accept` allows. The
    /// frame stays in the order until `on_remove`; a caller that does not take it and asks again
    /// gets another one if there is another.
    fn pick_victim(&self, frames: &Frames, accept: Accept) -> Option<FrameId>;
}

/// A policy as data. The calls mean what those of [`Policy`] do.
pub trait Order: Send + 'static {
    /// The name in [`POLICIES`].
    const NAME: &'static str;

    /// A hit sets the frame's reference bit, and [`Order::hit`] is not called.
    const HIT_SETS_REFERENCE: bool = false;

    /// [`Order::foresee`] has to be called: the policy cannot run without a trace.
    const NEEDS_FUTURE: bool = false;

    /// For about `capacity` frames.
    fn new(capacity: usize) -> Self;

    /// See [`Policy::on_insert`].
    fn insert(&mut self, frames: &Frames, frame: FrameId, access: Access);

    /// See [`Policy::on_hit`].
    fn hit(&mut self, frames: &Frames, frame: FrameId, access: Access) {
        let _ = (frames, frame, access);
    }

    /// See [`Policy::on_dirty`].
    fn dirty(&mut self, frames: &Frames, frame: FrameId) {
        let _ = (frames, frame);
    }

    /// See [`Policy::on_remove`].
    fn remove(&mut self, frames: &Frames, frame: FrameId);

    /// See [`Policy::pick_victim`].
    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId>;

    /// Every page is going to leave: none is used again. An owner that does not know need not say
    /// it; the next insert ends it.
    fn empty(&mut self, frames: &Frames) {
        let _ = frames;
    }

    /// `key` was asked for and is not cached; room is made for it next. An owner that does not know
    /// need not say it: a policy that remembers pages that left then looks when they are inserted.
    fn miss(&mut self, key: PageKey) {
        let _ = key;
    }

    /// The page of the next `insert` or `hit` is used again at `next_use`, counted in accesses;
    /// `u64::MAX`: never.
    fn foresee(&mut self, next_use: u64) {
        let _ = next_use;
    }

    /// Memory of its own, in bytes, when it orders `frames`.
    fn memory_bytes(&self, frames: &Frames) -> usize;
}

/// An order behind a lock.
pub(crate) struct Locked<O>(Mutex<O>);

impl<O: Order> Policy for Locked<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn on_insert(&self, frames: &Frames, frame: FrameId, access: Access) {
        self.0.lock().insert(frames, frame, access);
    }

    #[inline]
    fn on_hit(&self, frames: &Frames, frame: FrameId, access: Access) {
        if O::HIT_SETS_REFERENCE {
            frames.reference(frame);
        } else {
            self.0.lock().hit(frames, frame, access);
        }
    }

    fn on_dirty(&self, frames: &Frames, frame: FrameId) {
        self.0.lock().dirty(frames, frame);
    }

    fn on_remove(&self, frames: &Frames, frame: FrameId) {
        self.0.lock().remove(frames, frame);
    }

    fn pick_victim(&self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        self.0.lock().pick(frames, accept)
    }
}

/// One policy of [`POLICIES`].
pub struct Entry {
    /// As it is written in options.
    pub name: &'static str,
    /// Description in a few words.
    pub summary: &'static str,
    /// It cannot run in a volume, see [`Order::NEEDS_FUTURE`].
    pub needs_future: bool,
    make: fn(usize) -> Box<dyn Policy>,
}

const fn of<O: Order>(summary: &'static str) -> Entry {
    Entry {
        name: O::NAME,
        summary,
        needs_future: O::NEEDS_FUTURE,
        make: |capacity| Box::new(Locked(Mutex::new(O::new(capacity)))),
    }
}

macro_rules! table {
    ($($order:ty: $summary:literal,)*) => {
        /// Every policy by name. The first is the default.
        pub const POLICIES: &[Entry] = &[$(of::<$order>($summary)),*];

        /// A simulation of a line of [`POLICIES`]. No pointer of the table leads here, so that
        /// programs without a [`crate::Simulator`] do not have one for each policy.
        pub(crate) fn simulation(entry: &Entry, setup: Setup) -> Box<dyn Run> {
            match entry.name {
                $(<$order>::NAME => Box::new(Engine::<$order>::new(setup)),)*
                name => unreachable!("{name} is a line of the table"),
            }
        }
    };
}

table! {
    clock::Clock: "second chance in the order of arrival",
    lru::Lru: "least recently used",
    linux2q::Linux2q: "active and inactive list, as Linux",
    cflru::Cflru: "LRU, clean pages first within the oldest quarter",
    lru_wsr::LruWsr: "LRU, dirty pages get a second chance",
    operation_aware::OperationAware: "weighs reads and writes by cost and distance",
    fab::Fab: "the block with the most cached pages goes whole",
    spatialclock::SpatialClock: "clock in the order of addresses",
    spatial_protected::SpatialProtected: "the same, new and frequent pages protected",
    block_clock::BlockClock: "clock in the order of addresses, by blocks of 64 pages",
    twoq::TwoQ: "2Q: LRU for pages that came twice",
    arc::Arc: "two LRU lists, whose shares follow the misses",
    mglru::Mglru: "generations, as Linux of today",
    s3fifo::S3Fifo: "a small queue for what comes once, a main one for what is used",
    sieve::Sieve: "first in first out, used pages stay in place",
    min::Min: "Belady's bound: the farthest next use goes",
}

fn known(wanted: impl Fn(&Entry) -> bool) -> String {
    let names = POLICIES.iter().filter(|entry| wanted(entry)).map(|entry| entry.name);
    names.collect::<Vec<_>>().join(", ")
}

/// Order in which a cache of about `capacity_frames` frames writes its dirty pages back, for any
/// thread: full blocks first, then along the addresses. It has the dirty frames only.
pub fn write_back_order(capacity_frames: usize) -> Box<dyn Policy> {
    Box::new(Locked(Mutex::new(spatial_blocks::SpatialBlocks::new(capacity_frames))))
}

/// The line of [`POLICIES`] called `name`.
///
/// # Errors
/// [`CacheError::UnknownPolicy`].
pub fn entry(name: &str) -> Result<&'static Entry, CacheError> {
    POLICIES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| CacheError::UnknownPolicy { name: name.to_owned(), known: known(|_| true) })
}

/// A policy of [`POLICIES`] that runs without a trace; parsed from its name.
#[derive(Clone, Copy)]
pub struct VolumePolicy(&'static Entry);

impl VolumePolicy {
    /// Its name in [`POLICIES`].
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Makes the policy for about `capacity_frames` frames, for any thread.
    pub fn make(self, capacity_frames: usize) -> Box<dyn Policy> {
        (self.0.make)(capacity_frames)
    }
}

impl Default for VolumePolicy {
    fn default() -> Self {
        VolumePolicy(&POLICIES[0])
    }
}

impl fmt::Debug for VolumePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for VolumePolicy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for VolumePolicy {}

impl FromStr for VolumePolicy {
    type Err = CacheError;

    /// # Errors
    /// [`CacheError::UnknownPolicy`], [`CacheError::NeedsFuture`].
    fn from_str(name: &str) -> Result<Self, CacheError> {
        let known = || known(|entry| !entry.needs_future);
        match entry(name) {
            Ok(entry) if entry.needs_future => {
                Err(CacheError::NeedsFuture { name: name.to_owned(), known: known() })
            }
            Ok(entry) => Ok(VolumePolicy(entry)),
            Err(_) => Err(CacheError::UnknownPolicy { name: name.to_owned(), known: known() }),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Small caches for sequences worked by hand.

    use super::*;
    use crate::index::PageIndex;

    /// A cache of a few pages of file 0.
    pub(crate) struct Small<O> {
        pub frames: Frames,
        pub order: O,
        index: PageIndex,
        capacity: usize,
    }

    impl<O: Order> Small<O> {
        pub fn new(capacity: usize) -> Self {
            let (frames, index) = (Frames::new(capacity), PageIndex::default());
            Small { frames, order: O::new(capacity), index, capacity }
        }

        pub fn frame(&self, index: u64) -> FrameId {
            self.index.get(&self.frames, PageKey { file: 0, index }).expect("it is cached")
        }

        /// Uses pages: positive numbers are read, negative ones written. Returns the evicted.
        pub fn run(&mut self, pages: &[i64]) -> Vec<u64> {
            pages.iter().filter_map(|page| self.access(*page)).collect()
        }

        fn access(&mut self, page: i64) -> Option<u64> {
            let key = PageKey { file: 0, index: page.unsigned_abs() };
            let access = if page < 0 { Access::Write } else { Access::Read };
            if let Some(frame) = self.index.get(&self.frames, key) {
                if page < 0 && !self.frames.is_dirty(frame) {
                    self.frames.set_dirty(frame, true);
                    self.order.dirty(&self.frames, frame);
                }
                if O::HIT_SETS_REFERENCE {
                    self.frames.reference(frame);
                } else {
                    self.order.hit(&self.frames, frame, access);
                }
                return None;
            }
            self.order.miss(key);
            let evicted = (self.frames.len() >= self.capacity).then(|| self.evict()).flatten();
            let frame = self.frames.insert(key, page < 0).expect("there is room");
            self.order.insert(&self.frames, frame, access);
            self.index.insert(key, frame);
            evicted
        }

        /// Gives up one page.
        pub fn evict(&mut self) -> Option<u64> {
            let frame = self.order.pick(&self.frames, Accept::Any)?;
            let key = self.frames.key(frame)?;
            self.order.remove(&self.frames, frame);
            self.index.remove(key, frame);
            self.frames.release(frame);
            Some(key.index)
        }

        /// Gives up everything, in order.
        pub fn drain(&mut self) -> Vec<u64> {
            self.order.empty(&self.frames);
            std::iter::from_fn(|| self.evict()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_answers_to_its_name() {
        for entry in POLICIES.iter().filter(|entry| !entry.needs_future) {
            let policy: VolumePolicy = entry.name.parse().expect("it is in the table");
            assert_eq!((policy.name(), policy.make(8).name()), (entry.name, entry.name));
        }
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_names() {
        let error = "fifo".parse::<VolumePolicy>().expect_err("not in the table").to_string();
        assert!(error.contains("clock, lru") && !error.contains("min"), "{error}");
        let error = "min".parse::<VolumePolicy>().expect_err("needs a trace").to_string();
        assert!(error.contains("whole trace") && error.contains("clock, lru"), "{error}");
    }

    #[test]
    fn calls_for_frames_that_no_policy_knows_do_nothing() {
        let frames = Frames::new(4);
        for entry in POLICIES.iter().filter(|entry| !entry.needs_future) {
            let policy = (entry.make)(4);
            for frame in [FrameId(2), FrameId(u32::MAX)] {
                policy.on_hit(&frames, frame, Access::Write);
                policy.on_dirty(&frames, frame);
                policy.on_remove(&frames, frame);
            }
            assert_eq!(policy.pick_victim(&frames, Accept::Any), None, "{}", entry.name);
        }
    }
}
