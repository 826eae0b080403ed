//! Requests of the kernel, as descriptors and a file that has their data, and their answers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::Errno;
use syncline_device::BlockDevice;

use super::abi::{self, Command, DESCRIPTOR_BYTES, IO_BYTES_MAX, Job};
use crate::bytes::{ByteError, Bytes};

/// Answers to the requests of one device.
pub struct UblkRequests {
    bytes: Bytes,
    file: File,
}

impl UblkRequests {
    /// Requests to `device`. Their data is in `file`, for each tag at a place of its own: the
    /// character device, which anything that can be read and written stands in for.
    pub fn new(device: Arc<dyn BlockDevice>, file: File) -> UblkRequests {
        UblkRequests { bytes: Bytes::new(device), file }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Offset in the file of the data of a tag's request.
    pub fn data_offset(tag: u16) -> u64 {
        abi::data_offset(tag)
    }

    /// Does what the descriptor of a tag (`struct ublksrv_io_desc`) asks for: the bytes that were
    /// read or written, or the number of an error, negative. Any descriptor has an answer.
    pub fn answer(&self, tag: u16, descriptor: &[u8; DESCRIPTOR_BYTES]) -> i32 {
        let done = match abi::job(descriptor) {
            None => Err(Errno::OPNOTSUPP),
            Some(job) => self.execute(tag, job),
        };
        done.unwrap_or_else(|errno| -errno.raw_os_error())
    }

    fn execute(&self, tag: u16, job: Job) -> Result<i32, Errno> {
        let (Ok(length), Ok(result)) = (u32::try_from(job.length), i32::try_from(job.length))
        else {
            return Err(Errno::INVAL);
        };
        let failed = |err: io::Error| Errno::from_io_error(&err).unwrap_or(Errno::IO);
        let place = abi::data_offset(tag);
        // More was not offered, and each takes memory of its length.
        let copies = matches!(job.command, Command::Read | Command::Write { .. });
        if copies && length > IO_BYTES_MAX {
            return Err(Errno::INVAL);
        }
        match job.command {
            Command::Read => {
                let data = self.bytes.read(job.offset, length).map_err(number)?;
                if data.len() as u64 != job.length {
                    return Err(Errno::IO);
                }
                self.file.write_all_at(&data, place).map_err(failed)?;
            }
            Command::Write { fua } => {
                let mut data = vec![0; length as usize];
                self.file.read_exact_at(&mut data, place).map_err(failed)?;
                self.bytes.write(job.offset, &data, fua).map_err(number)?;
            }
            Command::Flush => self.bytes.flush().map_err(number)?,
            Command::Discard => self.bytes.discard(job.offset, job.length).map_err(number)?,
        }
        Ok(if copies { result } else { 0 })
    }
}

fn number(error: ByteError) -> Errno {
    match error {
        ByteError::TooBig | ByteError::BehindEnd => Errno::INVAL,
        ByteError::Device => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::{DeviceError, Geometry, Op, Request};

    /// 8 GiB, of which no request may want more than is offered.
    struct Large;

    impl BlockDevice for Large {
        fn geometry(&self) -> Geometry {
            Geometry {
                size_bytes: 8 << 30,
                max_request_bytes: 1 << 20,
                volatile_cache: false,
                fua: false,
                barrier: false,
                discard: true,
                read_only: false,
                zones: None,
                write_hints: false,
            }
        }

        fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
            for request in batch {
                if let Op::Read { into } = &request.op {
                    let bytes: usize = into.iter().map(|part| part.len()).sum();
                    assert!(bytes <= IO_BYTES_MAX as usize, "{bytes} bytes of memory");
                }
            }
            Ok(())
        }
    }

    #[test]
    fn a_request_larger_than_what_was_offered_takes_no_memory() {
        let requests = UblkRequests::new(Arc::new(Large), tempfile::tempfile().unwrap());
        let answer = |command: u8, sectors: u32| {
            let mut descriptor = [0; DESCRIPTOR_BYTES];
            descriptor[0] = command;
            descriptor[4..8].copy_from_slice(&sectors.to_ne_bytes());
            requests.answer(0, &descriptor)
        };
        assert_eq!(answer(0, 2048), 1 << 20);
        for command in [0, 1] {
            for sectors in [2049, 1 << 21, u32::MAX] {
                assert_eq!(answer(command, sectors), -Errno::INVAL.raw_os_error());
            }
        }
        assert_eq!((answer(3, 1 << 21), answer(2, u32::MAX), answer(9, 1)), (0, 0, -95));
    }
}
