//! Removes untouched pieces of an address space, so that a trace fits a small simulated device.
//!
//! ```text
//!   pieces of 4 MiB   [x][ ][ ][x][x][ ][x]   ->   [x][x][x][x]     order and places inside stay
//! ```
//!
//! 4 MiB is the allocation unit of the modelled cards (DEVICE-FACTS.md), so a unit of the device is
//! never split. Tested below.

use crate::evaluate::pages::PAGE_BYTES;

/// Pages of a piece.
const PIECE_PAGES: u64 = 1024;

/// Set of touched pieces, numbered without gaps. Call `touch` for every range, then `sort`,
/// then ask.
#[derive(Debug, Default)]
pub struct DenseAddresses {
    /// Numbers of touched pieces; ascending and each once after `sort`.
    pieces: Vec<u64>,
}

impl DenseAddresses {
    /// A range in bytes is used.
    pub fn touch(&mut self, offset_bytes: u64, len_bytes: u64) {
        let first = offset_bytes / PAGE_BYTES;
        let end = offset_bytes.saturating_add(len_bytes).div_ceil(PAGE_BYTES);
        self.touch_pages(first, end.saturating_sub(first));
    }

    /// A range of pages is used.
    pub(crate) fn touch_pages(&mut self, first: u64, pages: u64) {
        let last = first.saturating_add(pages.saturating_sub(1)) / PIECE_PAGES;
        for piece in first / PIECE_PAGES..=last {
            if self.pieces.last() != Some(&piece) {
                self.pieces.push(piece);
            }
        }
        // What repeats is dropped now and then, so that memory is that of the distinct ones.
        if self.pieces.len() >= 1 << 20 && self.pieces.len().is_power_of_two() {
            self.sort();
        }
    }

    /// Sorts the pieces and removes duplicates.
    pub fn sort(&mut self) {
        self.pieces.sort_unstable();
        self.pieces.dedup();
    }

    /// Returns the new number of a page. A page in a piece that is left out, and the end of all,
    /// gets the number of the next page that stays.
    pub(crate) fn page(&self, page: u64) -> u64 {
        let (piece, inside) = (page / PIECE_PAGES, page % PIECE_PAGES);
        match self.pieces.binary_search(&piece) {
            Ok(at) => at as u64 * PIECE_PAGES + inside,
            Err(at) => at as u64 * PIECE_PAGES,
        }
    }

    /// As `page`, for a byte.
    pub fn byte(&self, offset_bytes: u64) -> u64 {
        let inside = offset_bytes % PAGE_BYTES;
        let page = offset_bytes / PAGE_BYTES;
        let kept = self.pieces.binary_search(&(page / PIECE_PAGES)).is_ok();
        self.page(page) * PAGE_BYTES + if kept { inside } else { 0 }
    }

    /// Bytes that are left.
    pub fn end_bytes(&self) -> u64 {
        self.pieces.len() as u64 * PIECE_PAGES * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_and_the_places_inside_a_piece_stay() {
        let (mib, mut dense) = (1 << 20, DenseAddresses::default());
        for at in [900, 0, 901, 400, 0] {
            dense.touch(at * mib, 4096);
        }
        // Over the border of two pieces.
        dense.touch(408 * mib - 512, 1024);
        dense.sort();
        let to = [0, 400, 404, 408, 900, 901].map(|at| dense.byte(at * mib + 512));
        assert_eq!(to.map(|byte| byte / mib), [0, 4, 8, 12, 16, 17]);
        assert!(to.iter().all(|byte| byte % mib == 512));
        assert_eq!(dense.byte(500 * mib + 7), 16 * mib, "what is left out has no inside");
        assert_eq!(dense.end_bytes(), 20 * mib);
    }
}
