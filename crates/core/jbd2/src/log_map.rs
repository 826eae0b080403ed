//! Place of the log on the device: the blocks of the journal inode in their order.
//!
//! ```text
//! log block   0    1 ............ n-1     0 is the journal superblock
//!             |    |
//! extents   (phys, len) (phys, len) ...   each run is contiguous on the device
//! ```

use crate::JournalError;

/// The blocks of the journal inode. Built by the file system from the inode's extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMap {
    /// Block size of the file system in bytes.
    pub block_size: u32,
    /// Runs of (first physical block, number of blocks) in logical order.
    pub extents: Vec<(u64, u32)>,
}

impl LogMap {
    /// Number of blocks in the log, its superblock included.
    pub fn len_blocks(&self) -> u32 {
        let sum: u64 = self.extents.iter().map(|&(_, len)| u64::from(len)).sum();
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// Checks shape and place: block size, no empty and no overlapping run, all on the device.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`].
    pub fn check(&self, device_bytes: u64) -> Result<(), JournalError> {
        let bs = u64::from(self.block_size);
        if !self.block_size.is_power_of_two() || !(1024..=65536).contains(&self.block_size) {
            return Err(JournalError::corrupt(0, format!("block size {bs}")));
        }
        let mut runs = self.extents.clone();
        runs.sort_unstable();
        let mut free_from = 0u64;
        for (physical, len) in runs {
            let end = physical.checked_add(u64::from(len)).filter(|e| *e <= device_bytes / bs);
            let end = end.ok_or_else(|| {
                JournalError::corrupt(0, format!("blocks from {physical} are not on the device"))
            })?;
            if len == 0 || physical == 0 && self.block_size > 1024 || physical < free_from {
                return Err(JournalError::corrupt(0, format!("bad run at block {physical}")));
            }
            free_from = end;
        }
        Ok(())
    }

    /// Device block of a log block.
    pub fn physical(&self, log_block: u32) -> Option<u64> {
        self.run(log_block).map(|(physical, _)| physical)
    }

    /// Device block of a log block and how many blocks from there on are contiguous.
    pub fn run(&self, log_block: u32) -> Option<(u64, u32)> {
        let mut before = 0u32;
        for &(physical, len) in &self.extents {
            let inside = log_block - before;
            if inside < len {
                return Some((physical.checked_add(u64::from(inside))?, len - inside));
            }
            before = before.checked_add(len)?;
        }
        None
    }

    /// True if a device block belongs to the log.
    pub fn contains(&self, physical: u64) -> bool {
        let inside = |&(first, len): &(u64, u32)| {
            physical.checked_sub(first).is_some_and(|d| d < u64::from(len))
        };
        self.extents.iter().any(inside)
    }

    /// Byte offset of a log block on the device.
    pub(crate) fn offset(&self, log_block: u32) -> Result<u64, JournalError> {
        self.physical(log_block)
            .and_then(|p| p.checked_mul(u64::from(self.block_size)))
            .ok_or_else(|| JournalError::corrupt(log_block, "outside of the journal inode"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> LogMap {
        LogMap { block_size: 4096, extents: vec![(100, 10), (50, 5), (200, 3)] }
    }

    #[test]
    fn maps_each_run_and_nothing_more() {
        let m = map();
        assert_eq!(m.len_blocks(), 18);
        assert_eq!(m.run(0), Some((100, 10)));
        assert_eq!(m.run(9), Some((109, 1)));
        assert_eq!(m.run(10), Some((50, 5)));
        assert_eq!(m.run(17), Some((202, 1)));
        assert_eq!(m.run(18), None);
        assert!(m.contains(54) && !m.contains(55) && !m.contains(99) && m.contains(202));
    }

    #[test]
    fn refuses_overlap_and_blocks_off_the_device() {
        assert!(map().check(203 * 4096).is_ok());
        assert!(map().check(202 * 4096).is_err());
        let overlap = LogMap { block_size: 4096, extents: vec![(100, 10), (109, 5)] };
        assert!(overlap.check(1 << 30).is_err());
        let huge = LogMap { block_size: 4096, extents: vec![(u64::MAX, 2)] };
        assert!(huge.check(1 << 30).is_err());
        assert!(LogMap { block_size: 1000, extents: vec![] }.check(1 << 30).is_err());
    }
}
