//! A part of a device (a partition) as a device.
//!
//! Promises: nothing outside of the part is ever touched. Errors name offsets of the whole device.
//! Tested below.

use crate::{BlockDevice, DeviceError, Geometry, Op, Request, SECTOR_BYTES};

/// `size_bytes` of `D` from `start_bytes`.
#[derive(Debug)]
pub struct OffsetDevice<D> {
    inner: D,
    start_bytes: u64,
    geometry: Geometry,
}

impl<D: BlockDevice> OffsetDevice<D> {
    /// The part of `inner` that begins at `start_bytes`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] where the part is unaligned, leaves the device or cuts a zone.
    pub fn new(inner: D, start_bytes: u64, size_bytes: u64) -> Result<Self, DeviceError> {
        let whole = inner.geometry();
        let end = start_bytes.checked_add(size_bytes);
        let inside = end.is_some_and(|end| {
            end <= whole.size_bytes && whole.zones.is_none_or(|z| z.is_whole(start_bytes, end))
        });
        if !inside || (start_bytes | size_bytes) % SECTOR_BYTES != 0 {
            let (offset_bytes, len_bytes) = (start_bytes, size_bytes);
            return Err(DeviceError::OutOfRange { op: "partition", offset_bytes, len_bytes });
        }
        let zones = whole.zones.map(|zones| zones.of_part(start_bytes));
        let zones = zones.filter(|zones| zones.conventional_bytes < size_bytes);
        Ok(OffsetDevice { inner, start_bytes, geometry: Geometry { size_bytes, zones, ..whole } })
    }
}

impl<D: BlockDevice> BlockDevice for OffsetDevice<D> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            self.geometry.check(request)?;
        }
        let has_offset = |r: &Request<'_>| !matches!(r.op, Op::Flush);
        for request in batch.iter_mut().filter(|r| has_offset(r)) {
            // Cannot overflow: the checked end is inside of the part, which is inside of the whole.
            request.offset_bytes += self.start_bytes;
        }
        let result = self.inner.submit(batch);
        for request in batch.iter_mut().filter(|r| has_offset(r)) {
            request.offset_bytes -= self.start_bytes;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice, Origin, Zones};

    #[test]
    fn a_part_stays_within_itself() {
        let origin = Origin::new(Kind::Other, true);
        let memory = std::sync::Arc::new(MemoryDevice::new(8192));
        let part = OffsetDevice::new(memory.clone(), 1024, 2048).unwrap();
        part.write(512, &[5; 512], origin).unwrap();
        part.flush(origin).unwrap();
        let mut sector = [0; 512];
        memory.read_at(1536, &mut sector).unwrap();
        assert_eq!(sector, [5; 512]);
        part.read(512, &mut sector, origin).unwrap();
        assert_eq!(sector, [5; 512]);
        assert!(part.write(2048, &sector, origin).is_err());
        assert!(OffsetDevice::new(memory.clone(), 7168, 2048).is_err());
        assert!(OffsetDevice::new(memory, 100, 512).is_err());
    }

    /// Zones from the second KiB on, without their rules.
    struct Zoned(MemoryDevice);

    impl BlockDevice for Zoned {
        fn geometry(&self) -> Geometry {
            let zones = Zones { conventional_bytes: 1024, zone_bytes: 2048 };
            Geometry { zones: Some(zones), ..self.0.geometry() }
        }

        fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
            self.0.submit(batch)
        }
    }

    #[test]
    fn a_part_has_the_zones_that_it_holds_and_cuts_none() {
        let device = Zoned(MemoryDevice::new(9216));
        let zones_of = |start, size| {
            OffsetDevice::new(&device, start, size).map(|part| {
                part.geometry().zones.map(|zones| (zones.conventional_bytes, zones.zone_bytes))
            })
        };
        assert_eq!(zones_of(512, 8704), Ok(Some((512, 2048))));
        assert_eq!(zones_of(512, 512), Ok(None));
        assert_eq!(zones_of(3072, 4096), Ok(Some((0, 2048))));
        assert!(zones_of(2048, 1024).is_err());
        assert!(zones_of(512, 1024).is_err());
    }
}
