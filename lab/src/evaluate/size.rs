//! Sizes of caches on the command line: bytes, pages, or a share of the touched pages.

use crate::error::{LabError, Result};
use crate::evaluate::pages::PAGE_BYTES;

/// A cache's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// In pages.
    Pages(u64),
    /// In per cent of the distinct pages of the trace.
    Share(f64),
}

impl CacheSize {
    /// Reads `16M` (also K and G: bytes), `4096p` (pages) or `10%` (of the working set).
    pub fn parse(text: &str) -> Result<CacheSize> {
        let bad = || {
            LabError::Usage(format!(
                "`{text}` is no size of a cache; write 16M, 4096p (pages) or 10% (of the pages \
                 that the trace touches)"
            ))
        };
        if let Some(share) = text.strip_suffix('%') {
            let share: f64 = share.parse().map_err(|_| bad())?;
            return if share > 0.0 && share <= 100.0 {
                Ok(CacheSize::Share(share))
            } else {
                Err(bad())
            };
        }
        if let Some(pages) = text.strip_suffix(['p', 'P']) {
            let pages: u64 = pages.parse().map_err(|_| bad())?;
            return if pages > 0 { Ok(CacheSize::Pages(pages)) } else { Err(bad()) };
        }
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let shift = match unit.to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KIB" => 10,
            "M" | "MIB" => 20,
            "G" | "GIB" => 30,
            _ => return Err(bad()),
        };
        let bytes = digits.parse().ok().and_then(|n: u64| n.checked_mul(1 << shift));
        match bytes.map(|bytes| bytes / PAGE_BYTES) {
            Some(pages) if pages > 0 => Ok(CacheSize::Pages(pages)),
            _ => Err(bad()),
        }
    }

    /// The pages, one at least, for a trace that touches `working_set_pages`.
    pub fn pages(self, working_set_pages: u64) -> usize {
        let pages = match self {
            CacheSize::Pages(pages) => pages,
            // Rounded to the next page; both factors are small enough to be exact.
            CacheSize::Share(percent) => {
                (working_set_pages as f64 * percent / 100.0).round() as u64
            }
        };
        // A cache of more frames than a table can have holds every trace that can be read.
        usize::try_from(pages.max(1)).unwrap_or(usize::MAX).min(1 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_pages_and_shares() {
        let pages = |text: &str| CacheSize::parse(text).unwrap().pages(1000);
        assert_eq!([pages("4M"), pages("64K"), pages("1G")], [1024, 16, 262_144]);
        assert_eq!([pages("8192"), pages("77p"), pages("10%"), pages("0.01%")], [2, 77, 100, 1]);
        for bad in ["", "4X", "0", "100", "-1M", "0p", "101%", "0%", "x%", "99999999999G", "NaN%"] {
            let error = CacheSize::parse(bad).unwrap_err().to_string();
            assert!(error.contains("; write 16M"), "{bad}: {error}");
        }
    }
}
