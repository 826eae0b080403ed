//! Lifetime of a device at a measured rate of writing.
//!
//! ```text
//!   cycles a second = bytes programmed / bytes of flash / seconds      each byte once a cycle
//!   years           = rated cycles / cycles a second                   if all wear evenly
//!   years, worst    = years / (most worn superblock / mean)          until the first is worn out
//! ```
//!
//! An SLC write cache is worn apart: its programs do not count with the others, and
//! [`SlcWear::years`] is when its blocks reach their own rated cycles.
//!
//! Programs and not erases are counted, so that a short run says something before the first
//! superblock is erased again. The area of map pages counts with the data. Tested here.

use crate::counters::{Counters, Wear};
use crate::geometry::Layout;

/// Seconds of a year of 365.25 days.
const YEAR_S: f64 = 31_557_600.0;

/// Cost of a run for a device, and how long the device can take it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetime {
    /// Rated cycles that the run used of each block on average.
    pub cycles_used: f64,
    /// Most worn superblock against the mean, 1 or more; 1 if none was erased.
    pub wear_spread: f64,
    /// Host bytes until the rated cycles, if all blocks wear evenly, 10^12 bytes.
    pub written_tb: f64,
    /// Years until the rated cycles, if all blocks wear evenly.
    pub years_even: f64,
    /// Years until the most worn superblock reaches the rated cycles; none if nothing was erased,
    /// since then nothing tells how unevenly blocks wear.
    pub years_worst: Option<f64>,
}

impl Lifetime {
    /// Of a run of `elapsed_ns` that counted `counters`; `wear` is that of the run alone. `None` if
    /// nothing was programmed or no time passed: such a device lives for ever.
    pub fn of(
        layout: &Layout,
        rated_cycles: u32,
        counters: &Counters,
        wear: &Wear,
        elapsed_ns: u64,
    ) -> Option<Lifetime> {
        if elapsed_ns == 0 {
            return None;
        }
        let pages = u64::from(layout.blocks) * u64::from(layout.pages_per_block);
        let flash_bytes = (pages * layout.page_bytes()) as f64;
        let slc_bytes = counters.slc_programs * layout.page_bytes();
        let programmed_bytes = counters.programmed_bytes.saturating_sub(slc_bytes);
        let cycles_used = programmed_bytes as f64 / flash_bytes;
        if programmed_bytes == 0 {
            return None;
        }
        let runs = f64::from(rated_cycles) / cycles_used;
        let even = runs * elapsed_ns as f64 / 1e9 / YEAR_S;
        let spread = match wear.erases_mean > 0.0 {
            true => f64::from(wear.erases_max) / wear.erases_mean,
            false => 1.0,
        };
        Some(Lifetime {
            cycles_used,
            wear_spread: spread,
            written_tb: runs * counters.written_bytes as f64 / 1e12,
            years_even: even,
            years_worst: (wear.erases_mean > 0.0).then_some(even / spread),
        })
    }
}

/// Cost of a run for the SLC write cache, whose blocks are used in turn and so wear alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlcWear {
    /// Erases of each of its superblocks.
    pub erases_mean: f64,
    /// Years until their rated cycles at this rate; infinite if none was erased.
    pub years: f64,
}

impl SlcWear {
    /// Of `erases` in `elapsed_ns` on a cache of `blocks` superblocks.
    pub fn of(rated_cycles: u32, blocks: u64, erases: u64, elapsed_ns: u64) -> SlcWear {
        let erases_mean = erases as f64 / blocks.max(1) as f64;
        let years = f64::from(rated_cycles) / erases_mean * elapsed_ns as f64 / 1e9 / YEAR_S;
        SlcWear { erases_mean, years }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn a_full_write_a_day() {
        let layout = Profile::by_name("nexus7-emmc").unwrap().layout(64 << 20).unwrap();
        let pages = u64::from(layout.blocks) * u64::from(layout.pages_per_block);
        let flash = pages * layout.page_bytes();
        let counters =
            Counters { written_bytes: flash / 2, programmed_bytes: flash, ..Counters::default() };
        let wear = Wear { erases_min: 0, erases_mean: 2.0, erases_max: 5 };
        let day_ns = 86_400_000_000_000;
        let l = Lifetime::of(&layout, 3000, &counters, &wear, day_ns).unwrap();
        assert_eq!((l.cycles_used, l.wear_spread), (1.0, 2.5));
        assert!((l.years_even - 3000.0 / 365.25).abs() < 1e-9, "{l:?}");
        assert_eq!(l.years_worst, Some(l.years_even / 2.5));
        assert_eq!(l.written_tb, 1500.0 * flash as f64 / 1e12);
        // What an SLC cache programmed is not charged to the main blocks.
        let pages = flash / layout.page_bytes();
        let cached = Counters { programmed_bytes: 2 * flash, slc_programs: pages, ..counters };
        assert_eq!(Lifetime::of(&layout, 3000, &cached, &wear, day_ns).unwrap(), l);
        let slc = SlcWear::of(30_000, 10, 20, day_ns);
        assert_eq!(slc.erases_mean, 2.0);
        assert!((slc.years - 15_000.0 / 365.25).abs() < 1e-9, "{slc:?}");
        assert_eq!(SlcWear::of(1, 0, 0, 1).years, f64::INFINITY);
        let unworn = Wear::default();
        assert_eq!(Lifetime::of(&layout, 1, &counters, &unworn, 1).unwrap().wear_spread, 1.0);
        assert_eq!(Lifetime::of(&layout, 1, &Counters::default(), &unworn, 1), None);
        assert_eq!(Lifetime::of(&layout, 1, &counters, &unworn, 0), None);
    }
}
