//! A device in whose place another one can be put: a file that was opened to read is opened to
//! write.
//!
//! Promises: a request goes to one of the two. While they change places requests wait, and the
//! locks of the first are free before the second is opened. Tested below.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::{BlockDevice, DeviceError, Geometry, Request};

/// ENXIO: there is no device.
const NO_DEVICE: i32 = 6;

/// A device that can be replaced by another one of the same size.
pub struct SwapDevice {
    /// `None` after a change that failed both ways.
    inner: RwLock<Option<Arc<dyn BlockDevice>>>,
    geometry: Geometry,
}

impl SwapDevice {
    /// `inner` for now. The geometry is that of a device which can be written: until it can, writes
    /// fail with the error of `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> SwapDevice {
        let geometry = Geometry { read_only: false, ..inner.geometry() };
        SwapDevice { inner: RwLock::new(Some(inner)), geometry }
    }

    /// Lets go of the device, and puts what `open` gives in its place; where that fails, what
    /// `back` gives.
    ///
    /// # Errors
    /// The error of `open`. Without what `back` gives all requests fail from then on.
    pub fn replace<E>(
        &self,
        open: impl FnOnce() -> Result<Arc<dyn BlockDevice>, E>,
        back: impl FnOnce() -> Result<Arc<dyn BlockDevice>, E>,
    ) -> Result<(), E> {
        let mut inner = self.inner.write();
        *inner = None;
        match open() {
            Ok(device) => {
                *inner = Some(device);
                Ok(())
            }
            Err(err) => {
                *inner = back().ok();
                Err(err)
            }
        }
    }
}

impl BlockDevice for SwapDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        match &*self.inner.read() {
            Some(device) => device.submit(batch),
            None => Err(DeviceError::Io {
                op: "access",
                offset_bytes: 0,
                len_bytes: 0,
                reason: "the device could not be opened again".to_owned(),
                errno: NO_DEVICE,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice, Origin};

    const ORIGIN: Origin = Origin::new(Kind::Metadata, false);

    fn device(fill: u8) -> Arc<dyn BlockDevice> {
        let memory = MemoryDevice::new(4096);
        memory.write(0, &[fill; 512], ORIGIN).unwrap();
        Arc::new(memory)
    }

    fn first(swap: &SwapDevice) -> Result<u8, i32> {
        let mut bytes = [0; 512];
        match swap.read(0, &mut bytes, ORIGIN) {
            Ok(()) => Ok(bytes[0]),
            Err(DeviceError::Io { errno, .. }) => Err(errno),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn one_device_takes_the_place_of_another() {
        let before = device(1);
        let watched = Arc::downgrade(&before);
        let swap = SwapDevice::new(before);
        assert_eq!(first(&swap), Ok(1));
        let open = || {
            assert!(watched.upgrade().is_none(), "its locks are still held");
            Ok::<_, ()>(device(2))
        };
        assert_eq!(swap.replace(open, || unreachable!()), Ok(()));
        assert_eq!(first(&swap), Ok(2));
        assert_eq!(swap.replace(|| Err(3), || Ok(device(4))), Err(3));
        assert_eq!(first(&swap), Ok(4));
        assert_eq!(swap.replace(|| Err(5), || Err(6)), Err(5));
        assert_eq!(first(&swap), Err(NO_DEVICE));
    }
}
