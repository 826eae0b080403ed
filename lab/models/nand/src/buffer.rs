//! The volatile write buffer: admission, what is in flight, and when all of it is in the cells.
//!
//! ```text
//!   host -> [ held: units of open pages | in flight: pages being programmed ] -> cells
//!            <--------------------------- capacity ------------------------->
//! ```
//!
//! A write command is done when its data is in the buffer. When the buffer is full the bus waits
//! for the page in flight that was sent first. What is held or in flight at a power cut is lost.
//! The scheme decides when an open page is programmed (full, flushed, or closed); the buffer only
//! accounts. Tested here and through `tests/it/device.rs`.

use std::collections::VecDeque;

/// Accounts for data between the host and the cells.
pub trait WriteCache: Send {
    /// One unit wants to enter at `at_ns`. Returns when there is room, or `None` when all room is
    /// taken by held units: the caller must program an open page first.
    fn admit(&mut self, at_ns: u64) -> Option<u64>;
    /// `units` held units are being programmed into `page` until `done_ns`.
    fn programmed(&mut self, page: u32, units: u32, done_ns: u64);
    /// When everything in flight at `at_ns` is in the cells; nothing is in flight afterwards.
    fn drained(&mut self, at_ns: u64) -> u64;
    /// True if `page` is still being programmed at `at_ns`.
    fn in_flight(&self, page: u32, at_ns: u64) -> bool;
    /// When everything in flight is in the cells.
    fn last_done(&self) -> u64;
    /// Forgets everything: a power cut.
    fn clear(&mut self);
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    page: u32,
    units: u32,
    done_ns: u64,
}

/// First in, first out, a fixed number of units.
#[derive(Clone, Debug)]
pub struct FifoBuffer {
    capacity_units: u32,
    used_units: u32,
    flights: VecDeque<Flight>,
}

impl FifoBuffer {
    /// Room for `capacity_units` (at least 1).
    pub fn new(capacity_units: u32) -> Self {
        let capacity_units = capacity_units.max(1);
        FifoBuffer { capacity_units, used_units: 0, flights: VecDeque::new() }
    }
}

impl WriteCache for FifoBuffer {
    fn admit(&mut self, at_ns: u64) -> Option<u64> {
        let mut at_ns = at_ns;
        while self.used_units >= self.capacity_units {
            let first = self.flights.pop_front()?;
            at_ns = at_ns.max(first.done_ns);
            self.used_units -= first.units.min(self.used_units);
        }
        self.used_units += 1;
        Some(at_ns)
    }

    fn programmed(&mut self, page: u32, units: u32, done_ns: u64) {
        self.flights.push_back(Flight { page, units, done_ns });
    }

    fn drained(&mut self, at_ns: u64) -> u64 {
        let mut done_ns = at_ns;
        for f in self.flights.drain(..) {
            done_ns = done_ns.max(f.done_ns);
            self.used_units -= f.units.min(self.used_units);
        }
        done_ns
    }

    fn in_flight(&self, page: u32, at_ns: u64) -> bool {
        self.flights.iter().any(|f| f.page == page && f.done_ns > at_ns)
    }

    fn last_done(&self) -> u64 {
        self.flights.iter().map(|f| f.done_ns).max().unwrap_or(0)
    }

    fn clear(&mut self) {
        self.flights.clear();
        self.used_units = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_waits_for_the_first_page_in_flight() {
        let mut b = FifoBuffer::new(4);
        for _ in 0..4 {
            assert_eq!(b.admit(10), Some(10));
        }
        assert_eq!(b.admit(10), None, "all held: nothing will make room by itself");
        b.programmed(7, 2, 500);
        b.programmed(8, 2, 900);
        assert!(b.in_flight(7, 499) && !b.in_flight(7, 500));
        assert_eq!(b.admit(10), Some(500));
        assert_eq!(b.admit(10), Some(10), "the page had two units");
        assert_eq!(b.admit(1000), Some(1000));
        assert_eq!(b.drained(10), 10, "nothing is in flight");
    }

    #[test]
    fn drained_is_when_the_last_page_is_done() {
        let mut b = FifoBuffer::new(8);
        b.admit(0);
        b.admit(0);
        b.programmed(1, 1, 700);
        b.programmed(2, 1, 300);
        assert_eq!(b.drained(100), 700);
        assert_eq!(b.drained(100), 100);
    }
}
