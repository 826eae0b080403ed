//! A new file as a device that grows with what is written to it.
//!
//! For writers who know the size at the end only. Requests go one by one through the page cache; a
//! flush is `fdatasync`. Nothing is locked: who makes the file sees to that. Tested here.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use parking_lot::Mutex;

use crate::{BlockDevice, DeviceError, Geometry, Op, Request};

/// A file that has no size yet.
pub struct GrowingFile(Mutex<File>);

impl GrowingFile {
    /// An empty file that is open for reading and writing.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self(Mutex::new(file))
    }
}

impl BlockDevice for GrowingFile {
    fn geometry(&self) -> Geometry {
        // As far as a file reaches.
        Geometry::new(i64::MAX as u64)
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let mut file = self.0.lock();
        for request in batch {
            self.geometry().check(request)?;
            let at = SeekFrom::Start(request.offset_bytes);
            let mut run = || -> io::Result<()> {
                match &mut request.op {
                    Op::Read { into } => {
                        file.seek(at)?;
                        into.iter_mut().try_for_each(|part| file.read_exact(part))
                    }
                    Op::Write { from, fua } => {
                        file.seek(at)?;
                        from.iter().try_for_each(|part| file.write_all(part))?;
                        if *fua { file.sync_data() } else { Ok(()) }
                    }
                    Op::Flush => file.sync_data(),
                    Op::Discard { .. } => Ok(()),
                }
            };
            run().map_err(|err| super::io_error(request, &err))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Origin};

    #[test]
    fn a_file_grows_and_keeps_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grown");
        let options = File::options().read(true).write(true).create_new(true).open(&path);
        let device = GrowingFile::new(options.unwrap());
        let origin = Origin::new(Kind::Other, true);
        device.write(1 << 20, &[7; 512], origin).unwrap();
        device.write(512, &[8; 1024], origin).unwrap();
        device.flush(origin).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (1 << 20) + 512);
        let mut back = [1; 2048];
        device.read(0, &mut back, origin).unwrap();
        assert_eq!((back[511], back[512], back[1535], back[1536]), (0, 8, 8, 0));
        assert!(device.read(1 << 30, &mut back, origin).is_err());
        assert!(device.write(1, &[0; 512], origin).is_err());
    }
}
