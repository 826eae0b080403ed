//! A log as something that is read, written and sought.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use crate::{Error, Log};

/// A position in a log, for code that expects a file. Any number of them share one log.
#[derive(Clone, Debug)]
pub struct Cursor {
    log: Arc<Log>,
    position: u64,
}

impl Cursor {
    /// At the start of the file.
    #[must_use]
    pub fn new(log: Arc<Log>) -> Cursor {
        Cursor { log, position: 0 }
    }

    /// The log behind it.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Full => io::ErrorKind::StorageFull,
            Error::NotALog | Error::Corrupt { .. } => io::ErrorKind::InvalidData,
            Error::Unsupported { .. } => io::ErrorKind::Unsupported,
            Error::Usage(_) => io::ErrorKind::InvalidInput,
            Error::Stopped => io::ErrorKind::Interrupted,
            Error::Latched | Error::Moved { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl Read for Cursor {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.log.read_at(into, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Write for Cursor {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.log.write_at(data, self.position)?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    /// [`Log::flush`]. Use [`Log::sync_data`] to make what was written durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.log.flush()?)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.log.len().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
