//! The flash itself, without contents: what an operation takes, what it wears, what it counts.
//!
//! Promises: every program and erase of every mapping scheme passes through here, so that counters,
//! wear and time cannot disagree. Pages are numbered through all superblocks; page `p` belongs to
//! superblock `p / pages_per_block`. Map pages live in an area of their own that is not addressed,
//! only counted. Contents live in the backing of the device.

use crate::counters::Counters;
use crate::geometry::Layout;
use crate::profile::SlcParameters;
use crate::timing::{Schedule, Timing};

/// Dies, counters and wear of one device.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Derived sizes.
    pub layout: Layout,
    /// Totals; mapping schemes add their own events.
    pub counters: Counters,
    schedule: Schedule,
    erases: Vec<u32>,
    /// Map pages programmed since the last erase of the map area.
    map_pages: u32,
    /// Die of the next map page: round robin.
    map_next: u32,
}

impl Flash {
    /// Erased, unworn flash, and an SLC write cache with these times.
    pub fn new(timing: &Timing, slc: Option<&SlcParameters>, layout: Layout) -> Self {
        Flash {
            layout,
            counters: Counters::default(),
            schedule: Schedule::new(timing, slc, &layout),
            erases: vec![0; layout.blocks as usize],
            map_pages: 0,
            map_next: 0,
        }
    }

    /// Reads `bytes` of a page; returns when the controller has them.
    pub fn read(&mut self, page: u32, bytes: u64, at_ns: u64) -> u64 {
        self.counters.page_reads += 1;
        self.schedule.read(page, bytes, at_ns)
    }

    /// Programs a page whose data is in the controller at `ready_ns`; returns when it is done.
    pub fn program(&mut self, page: u32, ready_ns: u64) -> u64 {
        self.counters.page_programs += 1;
        self.counters.programmed_bytes += self.layout.page_bytes();
        self.schedule.program(page, ready_ns)
    }

    /// Reads `pages` pages and programs them elsewhere, spread evenly over the dies; returns when
    /// all are done.
    pub fn copy(&mut self, pages: u32, at_ns: u64) -> u64 {
        self.counters.page_reads += u64::from(pages);
        self.counters.page_programs += u64::from(pages);
        self.counters.programmed_bytes += u64::from(pages) * self.layout.page_bytes();
        self.schedule.copy(pages, at_ns)
    }

    /// Erases a superblock; returns when it is done.
    pub fn erase(&mut self, block: u32, at_ns: u64) -> u64 {
        self.counters.erases += 1;
        self.erases[block as usize] += 1;
        self.schedule.erase(at_ns)
    }

    /// Reads `bytes` of a page of the SLC write cache.
    pub fn slc_read(&mut self, page: u32, bytes: u64, at_ns: u64) -> u64 {
        self.counters.page_reads += 1;
        self.schedule.slc_read(page, bytes, at_ns)
    }

    /// Programs a page of the SLC write cache.
    pub fn slc_program(&mut self, page: u32, ready_ns: u64) -> u64 {
        self.counters.slc_programs += 1;
        self.counters.programmed_bytes += self.layout.page_bytes();
        self.schedule.slc_program(page, ready_ns)
    }

    /// Erases a superblock of the SLC write cache. They are used in turn, so all wear alike.
    pub fn slc_erase(&mut self, at_ns: u64) -> u64 {
        self.counters.slc_erases += 1;
        self.schedule.slc_erase(at_ns)
    }

    /// Reads the map page of a segment.
    pub fn map_read(&mut self, segment: u32, at_ns: u64) -> u64 {
        self.counters.map_reads += 1;
        self.schedule.read(segment, self.layout.page_bytes(), at_ns)
    }

    /// Programs a map page, and erases the map area when a superblock's worth was programmed.
    pub fn map_program(&mut self, at_ns: u64) -> u64 {
        self.counters.map_programs += 1;
        self.counters.programmed_bytes += self.layout.page_bytes();
        let mut done = self.schedule.program(self.map_next, at_ns);
        self.map_next = (self.map_next + 1) % self.layout.dies;
        self.map_pages += 1;
        if self.map_pages == self.layout.pages_per_block {
            self.map_pages = 0;
            self.counters.map_erases += 1;
            done = self.schedule.erase(done);
        }
        done
    }

    /// Erases of each superblock.
    pub fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// Forgets counts and pending work, keeps wear: what preconditioning did is not charged.
    pub fn reset_accounting(&mut self) {
        self.counters = Counters::default();
        self.schedule.reset();
    }
}
