//! The RAM buffer: pages with a mask of valid sectors, in logical order, evicted by a clock hand.
//!
//! Section 6.4 of the paper with the order of SpatialClock (5.3): the hand walks logical pages, a
//! page that was written again since it passed gets another round. Knows no device.

use std::collections::BTreeMap;
use std::time::Duration;

use syncline_device::{Durability, Origin, SECTOR_BYTES};

use crate::format::PAGE_BYTES;

const SECTOR: usize = SECTOR_BYTES as usize;
/// Sectors of a page.
pub(crate) const SECTORS: usize = PAGE_BYTES / SECTOR;

pub(crate) struct RamPage {
    pub(crate) bytes: Box<[u8; PAGE_BYTES]>,
    /// Bit n: sector n was written.
    pub(crate) valid: u8,
    pub(crate) origin: Origin,
    /// When its oldest byte came.
    pub(crate) since: Duration,
    referenced: bool,
}

impl RamPage {
    pub(crate) fn relaxed(&self) -> bool {
        self.origin.durability == Durability::Relaxed
    }
}

#[derive(Default)]
pub(crate) struct Ram {
    pub(crate) pages: BTreeMap<u64, RamPage>,
    hand: u64,
    relaxed: usize,
}

impl Ram {
    pub(crate) fn relaxed_pages(&self) -> usize {
        self.relaxed
    }

    /// Puts sectors of one page. A page with strict bytes in it is strict as a whole.
    pub(crate) fn put(
        &mut self,
        logical: u64,
        at: usize,
        from: &[u8],
        origin: Origin,
        now: Duration,
    ) {
        let page = self.pages.entry(logical).or_insert_with(|| {
            self.relaxed += usize::from(origin.durability == Durability::Relaxed);
            let bytes = Box::new([0; PAGE_BYTES]);
            RamPage { bytes, valid: 0, origin, since: now, referenced: false }
        });
        page.referenced = page.valid != 0;
        if page.relaxed() && origin.durability == Durability::Strict {
            self.relaxed -= 1;
        }
        if origin.durability == Durability::Strict || page.relaxed() {
            page.origin = origin;
        }
        page.bytes[at..at + from.len()].copy_from_slice(from);
        for sector in at / SECTOR..(at + from.len()) / SECTOR {
            page.valid |= 1 << sector;
        }
    }

    /// Makes relaxed pages in this range strict.
    pub(crate) fn harden(&mut self, pages: std::ops::Range<u64>) {
        for (_, page) in self.pages.range_mut(pages).filter(|(_, page)| page.relaxed()) {
            page.origin.durability = Durability::Strict;
            self.relaxed -= 1;
        }
    }

    pub(crate) fn remove(&mut self, logical: u64) {
        if self.pages.remove(&logical).is_some_and(|page| page.relaxed()) {
            self.relaxed -= 1;
        }
    }

    /// Drops what lies in a range of whole pages.
    pub(crate) fn remove_range(&mut self, pages: std::ops::Range<u64>) {
        let gone: Vec<u64> = self.pages.range(pages).map(|(&logical, _)| logical).collect();
        for logical in gone {
            self.remove(logical);
        }
    }

    /// Up to `count` pages in the order of the hand, relaxed ones only if asked.
    pub(crate) fn victims(&mut self, count: usize, relaxed_only: bool) -> Vec<u64> {
        let mut chosen = Vec::new();
        let eligible = if relaxed_only { self.relaxed } else { self.pages.len() };
        let count = count.min(eligible);
        let mut hand = self.hand;
        // Two rounds at most: the first clears every reference.
        let mut steps = 2 * self.pages.len();
        while chosen.len() < count && steps > 0 {
            let Some((&logical, page)) = self.pages.range_mut(hand..).next() else {
                if hand == 0 {
                    break;
                }
                hand = 0;
                continue;
            };
            steps -= 1;
            hand = logical.saturating_add(1);
            if relaxed_only && !page.relaxed() {
                continue;
            }
            if page.referenced {
                page.referenced = false;
            } else if !chosen.contains(&logical) {
                chosen.push(logical);
            }
        }
        self.hand = hand;
        chosen.sort_unstable();
        chosen
    }
}

/// Offsets and lengths within a page of the runs of sectors in `valid`.
pub(crate) fn runs(valid: u8) -> impl Iterator<Item = (usize, usize)> {
    let is = move |sector: usize| sector < SECTORS && valid >> sector & 1 == 1;
    (0..SECTORS).filter(move |&sector| is(sector) && (sector == 0 || !is(sector - 1))).map(
        move |first| {
            let sectors = (first..SECTORS).take_while(|&sector| is(sector)).count();
            (first * SECTOR, sectors * SECTOR)
        },
    )
}

#[cfg(test)]
mod tests {
    use syncline_device::Kind;

    use super::*;

    const STRICT: Origin = Origin::new(Kind::Other, true);
    const RELAXED: Origin = Origin { durability: Durability::Relaxed, ..STRICT };

    fn put(ram: &mut Ram, logical: u64, origin: Origin) {
        ram.put(logical, 0, &[1; PAGE_BYTES], origin, Duration::ZERO);
    }

    #[test]
    fn the_hand_goes_in_logical_order_and_spares_what_was_written_again() {
        let mut ram = Ram::default();
        for logical in [9, 2, 5, 7] {
            put(&mut ram, logical, STRICT);
        }
        put(&mut ram, 2, STRICT);
        assert_eq!(ram.victims(2, false), [5, 7]);
        for logical in [5, 7] {
            ram.remove(logical);
        }
        put(&mut ram, 1, STRICT);
        assert_eq!(ram.victims(1, false), [9]);
        assert_eq!(ram.victims(9, false), [1, 2, 9]);
    }

    #[test]
    fn strict_bytes_make_a_page_strict() {
        let mut ram = Ram::default();
        put(&mut ram, 1, RELAXED);
        put(&mut ram, 2, RELAXED);
        put(&mut ram, 3, STRICT);
        assert_eq!(ram.relaxed_pages(), 2);
        put(&mut ram, 1, STRICT);
        put(&mut ram, 3, RELAXED);
        assert_eq!(ram.relaxed_pages(), 1);
        assert_eq!(ram.victims(9, true), [2]);
        put(&mut ram, 4, RELAXED);
        ram.harden(3..5);
        assert_eq!(ram.relaxed_pages(), 1);
        ram.remove_range(0..3);
        assert_eq!((ram.relaxed_pages(), ram.pages.len()), (0, 2));
    }

    #[test]
    fn runs_of_sectors() {
        assert_eq!(runs(0).count(), 0);
        assert_eq!(runs(0xff).collect::<Vec<_>>(), [(0, 4096)]);
        assert_eq!(runs(0b1001_1010).collect::<Vec<_>>(), [(512, 512), (1536, 1024), (3584, 512)]);
    }
}
