//! Reads over mixed places: RAM over log over home.

use syncline_device::{DeviceError, Kind, Op, Origin, Plug, Request};

use crate::buffer::{PAGE, State};
use crate::format::PAGE_BYTES;
use crate::ram::runs;
use crate::ring::Mapped;

const READ: Origin = Origin::new(Kind::Other, true);

impl State {
    /// Fills `into` from consecutive sectors at `offset`.
    pub(crate) fn read(&self, offset: u64, into: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        let len: u64 = into.iter().map(|piece| piece.len() as u64).sum();
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        let in_ram = self.ram.pages.range(pages.clone()).next().is_some();
        let in_log =
            self.log.as_ref().is_some_and(|log| log.map.range(pages.clone()).next().is_some());
        if !in_ram && !in_log {
            let into = into.iter_mut().map(|piece| &mut **piece).collect();
            let op = Op::Read { into };
            return self.home.submit(&mut [Request { offset_bytes: offset, op, origin: READ }]);
        }
        // As far as addresses fit into memory: `into` is as long.
        let mut whole = vec![0; (pages.end - pages.start) as usize * PAGE_BYTES];
        self.read_pages(pages.clone(), &mut whole)?;
        let mut at = (offset - pages.start * PAGE) as usize;
        for piece in into.iter_mut() {
            piece.copy_from_slice(&whole[at..at + piece.len()]);
            at += piece.len();
        }
        Ok(())
    }

    /// The newest content of whole pages; past the end of the device it stays as it is.
    fn read_pages(&self, pages: std::ops::Range<u64>, into: &mut [u8]) -> Result<(), DeviceError> {
        self.read_below(pages.clone(), into)?;
        for (logical, page) in self.ram.pages.range(pages.clone()) {
            let base = (logical - pages.start) as usize * PAGE_BYTES;
            for (at, len) in runs(page.valid) {
                into[base + at..base + at + len].copy_from_slice(&page.bytes[at..at + len]);
            }
        }
        Ok(())
    }

    /// The same without RAM. Pages that RAM has whole are left out.
    pub(crate) fn read_below(
        &self,
        pages: std::ops::Range<u64>,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
        let size = self.home.geometry().size_bytes;
        let mut logged: Vec<(u64, Mapped)> = Vec::new();
        let mut home = Plug::new();
        for (logical, page) in pages.clone().zip(into.chunks_exact_mut(PAGE_BYTES)) {
            let whole = self.ram.pages.get(&logical).is_some_and(|p| p.valid == self.full(logical));
            let mapped = self.log.as_ref().and_then(|log| log.map.get(&logical));
            match mapped {
                _ if whole => {}
                Some(mapped) if !mapped.clean => logged.push((logical, *mapped)),
                _ => {
                    let there = size.saturating_sub(logical * PAGE).min(PAGE) as usize;
                    home.read(logical * PAGE, &mut page[..there], READ);
                }
            }
        }
        if !home.is_empty() {
            home.submit(&*self.home)?;
        }
        let Some(log) = &self.log else { return Ok(()) };
        if logged.is_empty() {
            return Ok(());
        }
        let mut found = vec![0; logged.len() * PAGE_BYTES];
        log.ring.read(&logged, &mut found)?;
        for ((logical, _), page) in logged.iter().zip(found.chunks_exact(PAGE_BYTES)) {
            let base = (logical - pages.start) as usize * PAGE_BYTES;
            into[base..base + PAGE_BYTES].copy_from_slice(page);
        }
        Ok(())
    }
}
