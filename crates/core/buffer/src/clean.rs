//! The cleaner: a sweep over the map in logical order, paced by what is written.
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
//! A page that was logged again since the sweep began is left where it is: the tail stops in front
//! of it.

use syncline_device::{DeviceError, Plug};

use crate::buffer::{OWN, PAGE, State};
use crate::format::PAGE_BYTES;
use crate::log::Sweep;
use crate::ring::Mapped;

/// Pages of a step; the run at its end is completed, up to [`RUN_PAGES_MAX`] in all.
const STEP_PAGES: usize = 16;
const RUN_PAGES_MAX: usize = 128;

impl State {
    /// Makes sure that `pages` can be appended, and pays for them.
    pub(crate) fn make_room(&mut self, pages: u64) -> Result<(), DeviceError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.sweep.is_none() && log.ring.used() + pages > log.ring.pages() / 2 {
            begin(log);
        }
        if let Some(sweep) = log.sweep {
            // The largest batch stays free, so that the end of the sweep is never waited for.
            let free = log.ring.free().saturating_sub(log.ring.batch_pages() + 1).max(1);
            log.debt += (sweep.remaining * pages).div_ceil(free).min(sweep.remaining);
            if sweep.remaining == 0 {
                log.debt = log.debt.max(STEP_PAGES as u64);
            }
        }
        while self.log.as_ref().is_some_and(|log| {
            log.sweep.is_some() && (log.debt >= STEP_PAGES as u64 || log.ring.free() < pages)
        }) {
            self.clean_step()?;
        }
        Ok(())
    }

    /// A step for idle time; true if there is more.
    pub(crate) fn clean_when_idle(&mut self) -> Result<bool, DeviceError> {
        let Some(log) = &mut self.log else { return Ok(false) };
        if log.sweep.is_none() {
            if log.ring.used() == 0 {
                return Ok(false);
            }
            begin(log);
        }
        self.clean_step()?;
        Ok(self.log.as_ref().is_some_and(|log| log.ring.used() > 0))
    }

    /// Everything to its place.
    pub(crate) fn clean_all(&mut self) -> Result<(), DeviceError> {
        while self.clean_when_idle()? {}
        Ok(())
    }

    /// Writes the next pages of the sweep to their place, or ends it.
    fn clean_step(&mut self) -> Result<(), DeviceError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let Some(sweep) = &mut log.sweep else { return Ok(()) };
        let pages = next_pages(&log.map, sweep, &mut log.hand);
        let count = pages.len() as u64;
        sweep.remaining = sweep.remaining.saturating_sub(count);
        log.debt = log.debt.saturating_sub(count.max(STEP_PAGES as u64));
        if pages.is_empty() {
            let boundary = sweep.boundary;
            return self.end_sweep(boundary);
        }
        let mut bytes = vec![0; pages.len() * PAGE_BYTES];
        log.ring.read(&pages, &mut bytes)?;
        let size = self.home.geometry().size_bytes;
        let mut plug = Plug::new();
        for ((logical, _), page) in pages.iter().zip(bytes.chunks_exact(PAGE_BYTES)) {
            let there = size.saturating_sub(logical * PAGE).min(PAGE) as usize;
            plug.write(logical * PAGE, &page[..there], OWN);
        }
        plug.submit(&*self.home)?;
        for (logical, _) in &pages {
            if let Some(mapped) = log.map.get_mut(logical) {
                mapped.clean = true;
            }
        }
        self.status.cleaned_pages += count;
        self.status.cleaned_runs += pages.chunk_by(|(a, _), (b, _)| a + 1 == *b).count() as u64;
        Ok(())
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

fn begin(log: &mut crate::log::Log) {
    let remaining = log.map.values().filter(|mapped| !mapped.clean).count() as u64;
    let (boundary, start) = (log.ring.head, log.hand);
    log.sweep = Some(Sweep { boundary, start, wrapped: false, remaining });
}

/// The next pages of the sweep in logical order, none at its end.
fn next_pages(
    map: &std::collections::BTreeMap<u64, Mapped>,
    sweep: &mut Sweep,
    hand: &mut u64,
) -> Vec<(u64, Mapped)> {
    let mut pages: Vec<(u64, Mapped)> = Vec::new();
    loop {
        let end = if sweep.wrapped { sweep.start } else { u64::MAX };
        let from = (*hand).min(end);
        for (&logical, mapped) in map.range(from..end) {
            let due = mapped.sequence < sweep.boundary && !mapped.clean;
            let in_run = pages.last().is_some_and(|&(last, _)| last + 1 == logical);
            if pages.len() >= RUN_PAGES_MAX || pages.len() >= STEP_PAGES && !(due && in_run) {
                *hand = logical;
                return pages;
            }
            if due {
                pages.push((logical, *mapped));
            }
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
