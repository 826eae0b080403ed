//! The cleaner: a sweep over the map in logical order, paced by the writes.
//!
//! ```text
//!   ring   tail ......... boundary ........ head .......... tail + pages
//!          to be cleaned     younger than the sweep   free
//! ```
//!
//! Section 6.3.2 of the paper: one ring, no segments, nothing is moved within the log; the walk
//! goes on in logical order from where it stopped, so that what it writes is sorted. The paper
//! cleans when nothing is free; then the whole map would have to be walked before the oldest slot
//! is. Here a sweep begins when half of the ring is used and is through before the other half is:
//! each logged page pays for (pages to clean) / (free pages), which is about one and never rises.
//! Debt is paid in steps, so a foreground write waits for the steps of its own pages only.
//!
//! ```text
//!   due    o.o.......oo     gap of 1: the page between is written again with what it has
//!   sent   [ooo]      [oo]  gap of 7 and more pages: two requests
//! ```
//!
//! Size of a step and length of a gap follow from the costs of the device ([`Step::of`]). On a
//! device that takes long to go to an address, a run with small gaps takes less time than its
//! pieces, and wears the flash less, since a page of flash holds several of these pages. On a
//! simple card each step moves a block of flash aside, and the next write to the log moves one
//! again, so steps are long there. On a device that writes scattered pages as fast, gaps stay.
//!
//! A page that was logged again since the sweep began is left where it is, unless it fills a gap:
//! the tail stops in front of it.

use std::collections::BTreeMap;

use syncline_device::{Costs, DeviceError, Plug};

use crate::buffer::{OWN, PAGE, State};
use crate::format::PAGE_BYTES;
use crate::log::{Log, Step, Sweep};
use crate::ring::Mapped;

/// Pages of a step, at least and at most.
const STEP_PAGES: (f64, f64) = (8.0, 64.0);
/// A step has a page for each so many nanoseconds that going to an address takes: 8 pages on an
/// eMMC, the most on a simple card, where many bytes cost as little as few.
const STEP_PAGE_NS: f64 = 4e5;
/// Pages of a step with the run at its end and what fills gaps, at most.
const SENT_PAGES_MAX: usize = 128;
/// Longest gap that is filled.
const GAP_PAGES_MAX: f64 = 15.0;

impl Step {
    /// Steps on a device with these costs. A gap takes half of the time of going to an address at
    /// most, because its pages are read as well.
    fn of(costs: Costs) -> Step {
        let page_ns = (costs.byte_ns * PAGE as f64).max(1.0);
        Step {
            pages: (costs.run_ns / STEP_PAGE_NS).clamp(STEP_PAGES.0, STEP_PAGES.1) as usize,
            gap_pages: (costs.run_ns / page_ns / 2.0).min(GAP_PAGES_MAX) as u64,
        }
    }
}

impl State {
    /// Makes sure that `pages` can be appended, and pays for them.
    pub(crate) fn make_room(&mut self, pages: u64) -> Result<(), DeviceError> {
        let is_half_full = |log: &Log| log.ring.used() + pages > log.ring.pages() / 2;
        if self.log.as_ref().is_some_and(|log| log.sweep.is_none() && is_half_full(log)) {
            self.begin();
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        if let Some(sweep) = log.sweep {
            // The largest batch stays free, so that the end of the sweep is never waited for.
            let free = log.ring.free().saturating_sub(log.ring.batch_pages() + 1).max(1);
            log.debt += (sweep.remaining * pages).div_ceil(free).min(sweep.remaining);
            if sweep.remaining == 0 {
                log.debt = log.debt.max(sweep.step.pages as u64);
            }
        }
        let is_due = |log: &Log, sweep: Sweep| {
            log.debt >= sweep.step.pages as u64 || log.ring.free() < pages
        };
        while self.log.as_ref().is_some_and(|log| log.sweep.is_some_and(|s| is_due(log, s))) {
            self.clean_step()?;
        }
        Ok(())
    }

    /// A step for idle time; true if there is more.
    pub(crate) fn clean_when_idle(&mut self) -> Result<bool, DeviceError> {
        let Some(log) = &self.log else { return Ok(false) };
        if log.sweep.is_none() {
            if log.ring.used() == 0 {
                return Ok(false);
            }
            self.begin();
        }
        self.clean_step()?;
        Ok(self.log.as_ref().is_some_and(|log| log.ring.used() > 0))
    }

    /// Everything to its place.
    pub(crate) fn clean_all(&mut self) -> Result<(), DeviceError> {
        while self.clean_when_idle()? {}
        Ok(())
    }

    /// Begins a sweep, with steps as the device wants them now.
    fn begin(&mut self) {
        let step = Step::of(self.costs());
        let Some(log) = &mut self.log else { return };
        let remaining = log.map.values().filter(|mapped| !mapped.clean).count() as u64;
        let (boundary, start) = (log.ring.head, log.hand);
        log.sweep = Some(Sweep { boundary, start, wrapped: false, remaining, step });
    }

    /// Writes the next pages of the sweep to their place, or ends it.
    fn clean_step(&mut self) -> Result<(), DeviceError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let Some(sweep) = &mut log.sweep else { return Ok(()) };
        let (boundary, step) = (sweep.boundary, sweep.step);
        let mut pages = next_pages(&log.map, sweep, &mut log.hand);
        let is_due = |mapped: &Mapped| mapped.sequence < boundary && !mapped.clean;
        let count = pages.iter().filter(|(_, mapped)| mapped.as_ref().is_some_and(is_due)).count();
        sweep.remaining = sweep.remaining.saturating_sub(count as u64);
        log.debt = log.debt.saturating_sub(count.max(step.pages) as u64);
        if pages.is_empty() {
            return self.end_sweep(boundary);
        }
        let bytes = self.newest(&mut pages)?;
        let mut plug = Plug::new();
        for ((logical, _), page) in pages.iter().zip(bytes.chunks_exact(PAGE_BYTES)) {
            plug.write(logical * PAGE, &page[..self.page_bytes(*logical)], OWN);
        }
        plug.submit(&*self.home)?;
        if let Some(log) = &mut self.log {
            for (logical, _) in &pages {
                if let Some(mapped) = log.map.get_mut(logical) {
                    mapped.clean = true;
                }
            }
        }
        self.status.cleaned_pages += count as u64;
        self.status.cleaned_runs += pages.chunk_by(|(a, _), (b, _)| a + 1 == *b).count() as u64;
        Ok(())
    }

    /// Bytes of a page that the device has: fewer in the last one.
    fn page_bytes(&self, logical: u64) -> usize {
        let left = self.home.geometry().size_bytes.saturating_sub(logical * PAGE);
        left.min(PAGE) as usize
    }

    /// Contents of these pages in the log, and of those that are not there in their place. If one
    /// of these cannot be read, all of them are left out: gaps stay then.
    fn newest(&self, pages: &mut Vec<(u64, Option<Mapped>)>) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; pages.len() * PAGE_BYTES];
        let mut plug = Plug::new();
        for ((logical, mapped), page) in pages.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            if mapped.is_none() {
                plug.read(logical * PAGE, &mut page[..self.page_bytes(*logical)], OWN);
            }
        }
        if plug.submit(&*self.home).is_err() {
            pages.retain(|(_, mapped)| mapped.is_some());
            return self.newest(pages);
        }
        let Some(log) = &self.log else { return Ok(bytes) };
        let logged: Vec<(u64, Mapped)> =
            pages.iter().filter_map(|(logical, mapped)| Some((*logical, (*mapped)?))).collect();
        let mut contents = vec![0; logged.len() * PAGE_BYTES];
        log.ring.read(&logged, &mut contents)?;
        let mut contents = contents.chunks_exact(PAGE_BYTES);
        for ((_, mapped), page) in pages.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            if mapped.is_some() {
                page.copy_from_slice(contents.next().unwrap_or(&[0; PAGE_BYTES]));
            }
        }
        Ok(bytes)
    }

    fn end_sweep(&mut self, boundary: u64) -> Result<(), DeviceError> {
        self.home.flush(OWN)?;
        self.home_owed = false;
        let Some(log) = &mut self.log else { return Ok(()) };
        if self.same_medium {
            log.ring.owed = false;
        }
        log.swept(boundary)?;
        log.debt = 0;
        self.status.sweeps += 1;
        Ok(())
    }
}

/// The next pages of the sweep in logical order, none at its end, with what the log has of them.
fn next_pages(
    map: &BTreeMap<u64, Mapped>,
    sweep: &mut Sweep,
    hand: &mut u64,
) -> Vec<(u64, Option<Mapped>)> {
    let step = sweep.step;
    let (mut pages, mut due_pages) = (Vec::new(), 0);
    loop {
        let end = if sweep.wrapped { sweep.start } else { u64::MAX };
        let from = (*hand).min(end);
        let due = |mapped: &Mapped| mapped.sequence < sweep.boundary && !mapped.clean;
        for (&logical, mapped) in map.range(from..end).filter(|(_, mapped)| due(mapped)) {
            let last = pages.last().map(|&(last, _): &(u64, Option<Mapped>)| last);
            let gap = last.map(|last| last + 1..logical);
            let gap = gap.filter(|gap| gap.end - gap.start <= step.gap_pages);
            let filled = gap.as_ref().map_or(0, |gap| (gap.end - gap.start) as usize);
            let is_full = pages.len() + filled >= SENT_PAGES_MAX;
            if !pages.is_empty() && (is_full || due_pages >= step.pages && gap.is_none()) {
                *hand = logical;
                return pages;
            }
            pages.extend(gap.into_iter().flatten().map(|at| (at, map.get(&at).copied())));
            pages.push((logical, Some(*mapped)));
            due_pages += 1;
        }
        *hand = end;
        if sweep.wrapped {
            return pages;
        }
        sweep.wrapped = true;
        *hand = 0;
        if !pages.is_empty() {
            return pages;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMMC: Costs = Costs::ASSUMED;
    const CARD: Costs = Costs { byte_ns: 100.0, run_ns: 2e8, ..Costs::ASSUMED };
    const UFS: Costs = Costs { byte_ns: 20.0, run_ns: 0.0, ..Costs::ASSUMED };

    #[test]
    fn steps_are_long_and_gaps_filled_where_going_to_an_address_takes_long() {
        assert_eq!(Step::of(EMMC), Step { pages: 8, gap_pages: 7 });
        assert_eq!(Step::of(CARD), Step { pages: 64, gap_pages: 15 });
        assert_eq!(Step::of(UFS), Step { pages: 8, gap_pages: 0 });
        let nothing = Costs { byte_ns: 0.0, run_ns: 0.0, ..Costs::ASSUMED };
        assert_eq!(Step::of(nothing), Step { pages: 8, gap_pages: 0 });
    }

    /// Steps of a sweep with `step` over pages with these sequences, the boundary at 100.
    fn steps(step: Step, pages: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let mapped = |sequence| Mapped { sequence, opaque: None, clean: false };
        let map: BTreeMap<u64, Mapped> = pages.iter().map(|&(at, s)| (at, mapped(s))).collect();
        let mut sweep = Sweep { boundary: 100, start: 0, wrapped: false, remaining: 0, step };
        let mut hand = 0;
        let next = || Some(next_pages(&map, &mut sweep, &mut hand)).filter(|next| !next.is_empty());
        let steps = std::iter::from_fn(next);
        steps.map(|step| step.into_iter().map(|(logical, _)| logical).collect()).collect()
    }

    #[test]
    fn gaps_are_filled_with_what_is_there() {
        let step = Step { pages: 2, gap_pages: 2 };
        // 12 was logged after the sweep began; of 11 and 30 there is nothing in the log.
        let pages = [(10, 1), (12, 200), (13, 2), (20, 3), (23, 4), (29, 5), (31, 200), (32, 6)];
        let expected: [&[u64]; 3] = [&[10, 11, 12, 13], &[20, 21, 22, 23], &[29, 30, 31, 32]];
        assert_eq!(steps(step, &pages), expected);
        let none = Step { pages: 2, gap_pages: 0 };
        assert_eq!(steps(none, &pages), [[10, 13], [20, 23], [29, 32]]);
    }

    #[test]
    fn a_step_completes_its_run_within_its_limit() {
        let pages: Vec<(u64, u64)> = (0..300).map(|at| (at, at % 100)).collect();
        let step = Step { pages: 2, gap_pages: 0 };
        let lengths: Vec<usize> = steps(step, &pages).iter().map(Vec::len).collect();
        assert_eq!(lengths, [128, 128, 44]);
    }
}
