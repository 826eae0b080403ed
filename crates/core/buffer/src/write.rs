//! Writes, discards, eviction and flushes: the choice between home block and log.
//!
//! ```text
//!   flush:   strict pages of RAM
//!              runs >= threshold -> home          the rest -> log, one batch
//!            one flush of what is below           none if the log batch was FUA and all there was
//!            overtaken copies in the ring?  -> one header that names them, durable
//! ```
//!
//! A copy in the log is overtaken if its home block was written directly. The record of that must
//! not be durable before the write is, or a power cut in between would show a version older than
//! both.

use syncline_device::{DeviceError, Op, Plug, Request};

use crate::buffer::{EVICT_PAGES, OWN, PAGE, State};
use crate::format::PAGE_BYTES;
use crate::ram::runs;
use crate::ring::Ring;

impl State {
    fn threshold_pages(&self) -> u64 {
        (self.options.threshold_bytes / PAGE).max(1)
    }

    /// One write: to its place if it is large and of whole pages, otherwise into RAM.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        from: &[&[u8]],
        len: u64,
        origin: syncline_device::Origin,
    ) -> Result<(), DeviceError> {
        let end = offset + len;
        let whole =
            offset % PAGE == 0 && (end % PAGE == 0 || end == self.home.geometry().size_bytes);
        if whole && len >= self.threshold_pages() * PAGE {
            let op = Op::Write { from: from.to_vec(), fua: false };
            self.home.submit(&mut [Request { offset_bytes: offset, op, origin }])?;
            self.placed(offset / PAGE..end.div_ceil(PAGE), len);
            self.ram.remove_range(offset / PAGE..end.div_ceil(PAGE));
            return Ok(());
        }
        let mut at = offset;
        for piece in from {
            let mut rest: &[u8] = piece;
            while !rest.is_empty() {
                let within = (at % PAGE) as usize;
                let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - within));
                self.ram.put(at / PAGE, within, now, origin, self.now);
                at += now.len() as u64;
                rest = later;
            }
        }
        Ok(())
    }

    /// These pages were written to their place.
    fn placed(&mut self, pages: std::ops::Range<u64>, bytes: u64) {
        self.home_owed = true;
        self.status.home_bytes += bytes;
        if let Some(log) = &mut self.log {
            log.overtake(pages);
        }
    }

    /// Whole pages of the range are given up everywhere; sectors of other pages stay as they are.
    pub(crate) fn discard(
        &mut self,
        request: &Request<'_>,
        len_bytes: u64,
    ) -> Result<(), DeviceError> {
        let (offset, end) = (request.offset_bytes, request.offset_bytes + len_bytes);
        let last = end == self.home.geometry().size_bytes;
        let pages = offset.div_ceil(PAGE)..if last { end.div_ceil(PAGE) } else { end / PAGE };
        if pages.is_empty() {
            return Ok(());
        }
        let start = pages.start * PAGE;
        let stop = (pages.end * PAGE).min(end);
        self.home.discard(start, stop - start, request.origin)?;
        self.placed(pages.clone(), 0);
        self.ram.remove_range(pages);
        Ok(())
    }

    /// FLUSH: everything strict that came before, or everything, is durable when this returns.
    pub(crate) fn flush(&mut self, relaxed_too: bool) -> Result<(), DeviceError> {
        self.status.flushes += 1;
        let covered = self.ram.pages.iter().filter(|(_, page)| relaxed_too || !page.relaxed());
        let covered: Vec<u64> = covered.map(|(&logical, _)| logical).collect();
        if covered.is_empty() && !self.owed() {
            self.status.flushes_saved += 1;
            return Ok(());
        }
        self.write_out(&covered, true)?;
        self.make_durable()
    }

    /// Everything in RAM, relaxed or not.
    pub(crate) fn write_out_all(&mut self) -> Result<(), DeviceError> {
        let all: Vec<u64> = self.ram.pages.keys().copied().collect();
        self.write_out(&all, false)
    }

    fn owed(&self) -> bool {
        self.home_owed
            || self.log.as_ref().is_some_and(|log| log.ring.owed || !log.overtaken.is_empty())
    }

    /// Makes all completed writes durable and records the overtaken pages in the log.
    fn make_durable(&mut self) -> Result<(), DeviceError> {
        let log_owed = self.log.as_ref().is_some_and(|log| log.ring.owed);
        if self.home_owed || log_owed && self.same_medium {
            self.home.flush(OWN)?;
            self.home_owed = false;
        }
        if let Some(log) = &mut self.log {
            if log.ring.owed && !self.same_medium {
                log.ring.device().flush(OWN)?;
            }
            log.ring.owed = false;
        }
        self.record_overtaken()
    }

    fn record_overtaken(&mut self) -> Result<(), DeviceError> {
        while self.log.as_ref().is_some_and(|log| !log.overtaken.is_empty()) {
            self.make_room(1)?;
            let Some(log) = &mut self.log else { break };
            let ranges = log.record();
            // Making room may have moved the tail beyond all of them.
            if ranges.is_empty() {
                break;
            }
            let fua = log.ring.device().geometry().fua;
            log.ring.append(&[], &ranges, fua)?;
            if !fua {
                log.ring.device().flush(OWN)?;
                log.ring.owed = false;
            }
            log.recorded(&ranges);
            self.status.header_pages += 1;
        }
        Ok(())
    }

    /// Keeps RAM within its limits.
    pub(crate) fn evict(&mut self) -> Result<(), DeviceError> {
        let pages = |bytes: u64| usize::try_from(bytes / PAGE).unwrap_or(usize::MAX);
        while self.ram.relaxed_pages() > pages(self.options.relaxed_bytes_max) {
            let victims = self.ram.victims(EVICT_PAGES, true);
            self.write_out(&victims, false)?;
        }
        while self.ram.pages.len() > pages(self.options.ram_bytes) {
            let victims = self.ram.victims(EVICT_PAGES, false);
            self.write_out(&victims, false)?;
        }
        Ok(())
    }

    /// After a change of the limits: RAM is within them, and no relaxed data waits that may not.
    pub(crate) fn shrink(&mut self) -> Result<(), DeviceError> {
        let had_relaxed = self.ram.relaxed_pages() > 0;
        if self.options.ram_bytes == 0 {
            self.write_out_all()?;
        } else {
            self.evict()?;
        }
        let none_may_wait = self.options.ram_bytes == 0 || self.options.relaxed_bytes_max == 0;
        if had_relaxed && none_may_wait { self.make_durable() } else { Ok(()) }
    }

    /// Relaxed data that has been here for `relaxed_expire` becomes durable.
    pub(crate) fn expire(&mut self) -> Result<(), DeviceError> {
        let due = |since| self.now.saturating_sub(since) >= self.options.relaxed_expire;
        let pages = &self.ram.pages;
        let due: Vec<u64> = pages
            .iter()
            .filter(|(_, page)| page.relaxed() && due(page.since))
            .map(|(&logical, _)| logical)
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        self.write_out(&due, false)?;
        self.make_durable()
    }

    /// A piece of the work for idle time; true if there is more.
    pub(crate) fn idle(&mut self) -> Result<bool, DeviceError> {
        if !self.ram.pages.is_empty() {
            let victims = self.ram.victims(EVICT_PAGES, false);
            self.write_out(&victims, false)?;
            return Ok(true);
        }
        if self.owed() {
            self.make_durable()?;
        }
        self.clean_when_idle()
    }

    pub(crate) fn drain(&mut self) -> Result<(), DeviceError> {
        self.write_out_all()?;
        self.make_durable()?;
        self.clean_all()
    }

    /// Writes pages of RAM, which lose their frames: runs of the threshold to their place, the
    /// others to the log if there is one. With `flushing` and nothing else to flush, the log's
    /// write is durable by itself.
    fn write_out(&mut self, pages: &[u64], flushing: bool) -> Result<(), DeviceError> {
        let (mut home, mut small) = (Vec::new(), Vec::new());
        let threshold = self.threshold_pages() as usize;
        for run in pages.chunk_by(|a, b| a + 1 == *b) {
            if self.log.is_none() || !self.options.log_writes || run.len() >= threshold {
                home.push(run);
            } else {
                small.extend_from_slice(run);
            }
        }
        let incomplete: Vec<u64> = (home.iter().flat_map(|run| run.iter()))
            .filter(|logical| self.log.as_ref().is_some_and(|l| l.map.contains_key(logical)))
            .chain(&small)
            .copied()
            .collect();
        self.complete(&incomplete)?;
        self.write_home(&home)?;
        let batch_pages = self.log.as_ref().map_or(1, |log| log.ring.batch_pages() as usize);
        let batches = small.len().div_ceil(batch_pages);
        for (index, batch) in small.chunks(batch_pages).enumerate() {
            self.write_log(batch, flushing && index + 1 == batches)?;
        }
        for &logical in pages {
            self.ram.remove(logical);
        }
        Ok(())
    }

    /// Fills the sectors that RAM lacks from below.
    fn complete(&mut self, pages: &[u64]) -> Result<(), DeviceError> {
        for &logical in pages {
            let full = self.full(logical);
            let Some(page) = self.ram.pages.get(&logical).filter(|page| page.valid != full) else {
                continue;
            };
            let mut below = vec![0; PAGE_BYTES];
            let valid = page.valid;
            self.read_below(logical..logical + 1, &mut below)?;
            let Some(page) = self.ram.pages.get_mut(&logical) else { continue };
            for (at, len) in runs(!valid) {
                page.bytes[at..at + len].copy_from_slice(&below[at..at + len]);
            }
            page.valid = full;
        }
        Ok(())
    }

    fn write_home(&mut self, home: &[&[u64]]) -> Result<(), DeviceError> {
        if home.is_empty() {
            return Ok(());
        }
        let mut plug = Plug::new();
        let mut bytes = 0;
        for logical in home.iter().flat_map(|run| run.iter()) {
            let Some(page) = self.ram.pages.get(logical) else { continue };
            for (at, len) in runs(page.valid) {
                plug.write(logical * PAGE + at as u64, &page.bytes[at..at + len], page.origin);
                bytes += len as u64;
            }
        }
        plug.submit(&*self.home)?;
        for run in home {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            self.placed(*first..last + 1, 0);
        }
        self.status.home_bytes += bytes;
        Ok(())
    }

    /// One batch into the log.
    fn write_log(&mut self, pages: &[u64], flushing: bool) -> Result<(), DeviceError> {
        self.make_room(pages.len() as u64 + 1)?;
        let home_owed = self.home_owed;
        let Some(log) = &mut self.log else { return Ok(()) };
        let contents: Vec<(u64, &[u8])> = pages
            .iter()
            .filter_map(|&logical| Some((logical, &self.ram.pages.get(&logical)?.bytes[..])))
            .collect();
        let nothing_else = !home_owed && !log.ring.owed && log.overtaken.is_empty();
        let fua = flushing && nothing_else && log.ring.device().geometry().fua;
        let cost = Ring::cost(&contents, &[]);
        let mapped = log.ring.append(&contents, &[], fua)?;
        self.status.logged_pages += mapped.len() as u64;
        self.status.header_pages += cost - mapped.len() as u64;
        self.status.opaque_pages +=
            mapped.iter().filter(|(_, mapped)| mapped.opaque.is_some()).count() as u64;
        log.appended(mapped);
        Ok(())
    }
}
