//! Location of file system metadata: no file block may be there (`fs/ext4/block_validity.c`).
//!
//! Superblock and descriptor copies, bitmaps and inode tables of all groups, as sorted runs. Built
//! once, from the verified descriptors. Tested here.

/// Sorted, disjoint runs of metadata blocks: start, end (exclusive).
#[derive(Clone, Debug, Default)]
pub(crate) struct Zone(Vec<(u64, u64)>);

impl Zone {
    /// Takes (start, length) runs in any order.
    pub(crate) fn new(mut runs: Vec<(u64, u64)>) -> Zone {
        runs.retain(|run| run.1 > 0);
        runs.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, len) in runs {
            let end = start.saturating_add(len);
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Zone(merged)
    }

    /// These runs and more.
    pub(crate) fn with(&self, more: &[(u64, u64)]) -> Zone {
        let runs = self.0.iter().map(|(start, end)| (*start, end - start));
        Zone::new(runs.chain(more.iter().copied()).collect())
    }

    /// As runs of clusters.
    pub(crate) fn in_clusters(&self, bits: u32) -> Zone {
        let run = |&(start, end): &(u64, u64)| {
            let first = start >> bits;
            (first, end.div_ceil(1 << bits) - first)
        };
        Zone::new(self.0.iter().map(run).collect())
    }

    /// Walks over `blocks` blocks from `start` on that are none of these, up to `limit` at most.
    /// Returns the end, and the number of blocks found.
    pub(crate) fn skip(&self, start: u64, blocks: u64, limit: u64) -> (u64, u64) {
        let (mut at, mut left) = (start, blocks);
        while left > 0 && at < limit {
            let free = self.first_in(at, left).map_or(left, |run| run - at).min(limit - at);
            left -= free;
            at = if left == 0 { at + free } else { self.end_at(at + free) };
        }
        (at.min(limit), blocks - left)
    }

    /// The first block at or behind `block` that is not metadata.
    pub(crate) fn end_at(&self, block: u64) -> u64 {
        let at = self.0.partition_point(|run| run.1 <= block);
        self.0.get(at).filter(|run| run.0 <= block).map_or(block, |run| run.1)
    }

    /// First block of `start..start + len` that is metadata.
    pub(crate) fn first_in(&self, start: u64, len: u64) -> Option<u64> {
        let at = self.0.partition_point(|run| run.1 <= start);
        let run = self.0.get(at)?;
        (run.0 < start.saturating_add(len)).then(|| run.0.max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_overlaps_are_found() {
        let zone = Zone::new(vec![(100, 10), (0, 5), (110, 2), (50, 0), (3, 4)]);
        assert_eq!(zone.0, [(0, 7), (100, 112)]);
        assert_eq!(zone.first_in(7, 93), None);
        assert_eq!(zone.first_in(7, 94), Some(100));
        assert_eq!(zone.first_in(111, 50), Some(111));
        assert_eq!(zone.first_in(112, u64::MAX), None);
        assert_eq!(zone.skip(7, 50, 1000), (57, 50));
        assert_eq!(zone.skip(90, 50, 1000), (152, 50), "over a run");
        assert_eq!(zone.skip(90, 50, 130), (130, 28), "as far as the limit");
        assert_eq!(zone.skip(90, 50, 105), (105, 10), "which is in a run");
        assert_eq!(zone.skip(900, 50, 800), (800, 0));
        assert_eq!(zone.in_clusters(0).0, zone.0);
        assert_eq!(zone.in_clusters(3).0, [(0, 1), (12, 14)]);
        let more = zone.with(&[(20, 5), (7, 3)]);
        assert_eq!(more.0, [(0, 10), (20, 25), (100, 112)]);
    }
}
