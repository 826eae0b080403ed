//! Geometry of the flash, and how a volume of a given size is laid over it.
//!
//! ```text
//!   superblock  = the blocks of equal number of all dies, erased together
//!   page        = planes x page_kib, programmed at once ("effective page")
//!   unit        = what one map entry covers; page = 1..n units
//!
//!          die 0    die 1    die 2    die 3          page p of a superblock is on die p mod dies,
//!   row 0 [page 0] [page 1] [page 2] [page 3]        die d hangs on channel d mod channels
//!   row 1 [page 4] [page 5] [page 6] [page 7]
//!   ...                                              row pages_per_block-1 is the last
//! ```
//!
//! The volume's size comes from the backing; the profile gives the shape and the over-provisioning,
//! so that small images can be used with every profile. Tested here and by `tests/it/ftl.rs`.

use crate::NandError;
use serde::{Deserialize, Serialize};

/// Largest number of units: map entries are `u32` and 0 means unmapped.
const UNITS_MAX: u64 = u32::MAX as u64 - 1;

/// Shape of the flash: the `[geometry]` table of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NandGeometry {
    /// Buses between controller and dies, 1 to 64.
    pub channels: u32,
    /// Dies on each bus, 1 to 64.
    pub dies_per_channel: u32,
    /// Planes programmed together, 1 to 8.
    pub planes: u32,
    /// Bytes of a page of one plane, KiB.
    pub page_kib: u32,
    /// Pages of one erase block (of one plane), 8 to 4096.
    pub pages_per_block: u32,
    /// Size that one map entry covers, KiB; divides the effective page. Smaller writes are
    /// read-modify-write.
    pub map_unit_kib: u32,
    /// Flash beyond the usable size, percent of the usable size, 1 to 400.
    pub over_provisioning_percent: u32,
    /// Erases that a block is rated for, 1 to 10^7. The model does not fail it there; lifetimes are
    /// computed from it.
    pub rated_cycles: u32,
}

impl NandGeometry {
    /// All dies.
    pub fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Bytes programmed at once: page of one plane x planes.
    pub fn page_bytes(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.page_kib) * 1024
    }

    /// Bytes of a superblock.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.pages_per_block) * u64::from(self.dies()) * self.page_bytes()
    }

    /// Refuses shapes outside of the documented ranges.
    pub fn validate(&self) -> Result<(), NandError> {
        check("channels", self.channels, 1, 64)?;
        check("dies_per_channel", self.dies_per_channel, 1, 64)?;
        check("planes", self.planes, 1, 8)?;
        check("page_kib", self.page_kib, 1, 64)?;
        check("pages_per_block", self.pages_per_block, 8, 4096)?;
        check("map_unit_kib", self.map_unit_kib, 1, 512)?;
        check("over_provisioning_percent", self.over_provisioning_percent, 1, 400)?;
        check("rated_cycles", self.rated_cycles, 1, 10_000_000)?;
        if !self.page_bytes().is_multiple_of(u64::from(self.map_unit_kib) * 1024) {
            let reason = format!("{} KiB does not divide the effective page", self.map_unit_kib);
            return Err(NandError::BadValue { key: "map_unit_kib", reason });
        }
        Ok(())
    }
}

/// Refuses a value outside of `min..=max`.
pub(crate) fn check(key: &'static str, value: u32, min: u32, max: u32) -> Result<(), NandError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(NandError::BadValue { key, reason: format!("{value} is not within {min} to {max}") })
}

/// Numbers derived from a shape and a volume size. Constant for the life of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a map unit.
    pub unit_bytes: u64,
    /// Units of one effective page.
    pub units_per_page: u32,
    /// Effective pages of one superblock.
    pub pages_per_block: u32,
    /// Units of one superblock.
    pub units_per_block: u32,
    /// Superblocks.
    pub blocks: u32,
    /// Units that the host can address (the last may be partly beyond the end).
    pub host_units: u32,
    /// Dies.
    pub dies: u32,
    /// Channels.
    pub channels: u32,
    /// Reclaim unit handles for which there are spare superblocks.
    pub handles: u32,
    /// Zones, which are the last superblocks of the address space and of the flash.
    pub zones: u32,
}

/// Superblocks kept free so that garbage collection always has a place to copy to.
pub const FREE_BLOCKS_MIN: u32 = 2;

impl Layout {
    /// Lays `size_bytes` over the shape: usable size, over-provisioning, and one superblock for
    /// each of `frontiers` write frontiers plus the collector's reserve.
    pub fn new(g: &NandGeometry, size_bytes: u64, frontiers: u32) -> Result<Self, NandError> {
        g.validate()?;
        let bad = |reason| NandError::BadSize { size_bytes, reason };
        if size_bytes == 0 {
            return Err(bad("it is empty; make the backing larger"));
        }
        let unit_bytes = u64::from(g.map_unit_kib) * 1024;
        let units_per_page = (g.page_bytes() / unit_bytes) as u32;
        let pages_per_block = g.pages_per_block * g.dies();
        let units_per_block = u64::from(pages_per_block) * u64::from(units_per_page);
        let host_units = size_bytes.div_ceil(unit_bytes);
        let flash =
            (u128::from(host_units) * u128::from(100 + g.over_provisioning_percent)).div_ceil(100);
        let blocks =
            flash.div_ceil(u128::from(units_per_block)) + u128::from(frontiers + FREE_BLOCKS_MIN);
        if blocks * u128::from(units_per_block) > u128::from(UNITS_MAX) {
            return Err(bad(
                "it has more units than a 32-bit map entry names; enlarge map_unit_kib",
            ));
        }
        Ok(Layout {
            unit_bytes,
            units_per_page,
            pages_per_block,
            units_per_block: units_per_block as u32,
            blocks: blocks as u32,
            host_units: host_units as u32,
            dies: g.dies(),
            channels: g.channels,
            handles: 1,
            zones: 0,
        })
    }

    /// The same and `zones` behind it, so that the device has `size_bytes`.
    pub fn with_zones(self, zones: u64, size_bytes: u64) -> Result<Layout, NandError> {
        let bad = |reason| Err(NandError::BadSize { size_bytes, reason });
        if zones > 0 && !size_bytes.is_multiple_of(self.unit_bytes) {
            return bad("zones start at a map unit; make it a multiple of map_unit_kib");
        }
        if (u64::from(self.blocks) + zones) * u64::from(self.units_per_block) > UNITS_MAX {
            return bad("it has more units than a 32-bit map entry names; enlarge map_unit_kib");
        }
        let zones = zones as u32;
        let host_units = self.host_units + zones * self.units_per_block;
        Ok(Layout { zones, host_units, blocks: self.blocks + zones, ..self })
    }

    /// Units before the zones.
    pub fn conventional_units(&self) -> u32 {
        self.host_units - self.zones * self.units_per_block
    }

    /// The same without its zones.
    pub fn conventional(&self) -> Layout {
        let (host_units, blocks) = (self.conventional_units(), self.blocks - self.zones);
        Layout { host_units, blocks, zones: 0, ..*self }
    }

    /// Bytes of a superblock, which is a zone.
    pub fn block_bytes(&self) -> u64 {
        self.unit_bytes * u64::from(self.units_per_block)
    }

    /// Bytes of an effective page.
    pub fn page_bytes(&self) -> u64 {
        self.unit_bytes * u64::from(self.units_per_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: NandGeometry = NandGeometry {
        channels: 1,
        dies_per_channel: 2,
        planes: 2,
        page_kib: 4,
        pages_per_block: 64,
        map_unit_kib: 4,
        over_provisioning_percent: 7,
        rated_cycles: 3000,
    };

    #[test]
    fn layout_counts() {
        let l = Layout::new(&SHAPE, 64 << 20, 3).unwrap();
        assert_eq!(l.units_per_page, 2);
        assert_eq!(l.pages_per_block, 128);
        assert_eq!(l.units_per_block, 256);
        assert_eq!(l.host_units, 16384);
        // 16384 * 1.07 = 17530.9 -> 17531 units -> 68.5 -> 69 superblocks, + 3 + 2
        assert_eq!(l.blocks, 74);
    }

    #[test]
    fn refusals_name_the_key() {
        let no_unit = NandGeometry { map_unit_kib: 3, ..SHAPE };
        assert!(matches!(no_unit.validate(), Err(NandError::BadValue { key: "map_unit_kib", .. })));
        let no_spare = NandGeometry { over_provisioning_percent: 0, ..SHAPE };
        assert!(matches!(
            Layout::new(&no_spare, 1 << 20, 2),
            Err(NandError::BadValue { key: "over_provisioning_percent", .. })
        ));
        assert!(matches!(Layout::new(&SHAPE, 0, 2), Err(NandError::BadSize { .. })));
        assert!(matches!(Layout::new(&SHAPE, u64::MAX, 2), Err(NandError::BadSize { .. })));
    }
}
