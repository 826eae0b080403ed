//! Files whose reads end when the work is to stop.
//!
//! A read of a pipe waits until a writer has bytes, and the first Ctrl-C does not end it. Here the
//! wait is a poll, which asks in between. Opening a FIFO does not wait for a writer either; the
//! first read does. Tested in `cli/tests/it/stopped.rs`, through the programs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::platform;

/// A file, pipe, socket or terminal that is read until the work is to stop.
pub struct Stoppable {
    file: File,
    /// A read may wait: it is no file.
    waits: bool,
    stopped: fn() -> bool,
}

impl Stoppable {
    /// Opens a file.
    ///
    /// # Errors
    /// As of open(2).
    pub fn open(path: &Path, stopped: fn() -> bool) -> io::Result<Stoppable> {
        Ok(Stoppable::new(platform::open_unwaiting(path)?, stopped))
    }

    /// Standard input, without the buffer of [`std::io::stdin`].
    ///
    /// # Errors
    /// It is closed.
    pub fn standard_input(stopped: fn() -> bool) -> io::Result<Stoppable> {
        Ok(Stoppable::new(platform::standard_input()?, stopped))
    }

    /// An open file.
    pub fn new(file: File, stopped: fn() -> bool) -> Stoppable {
        // Windows has no metadata of a pipe.
        let waits = !file.metadata().is_ok_and(|found| found.is_file());
        Stoppable { file, waits, stopped }
    }
}

impl Read for Stoppable {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.waits {
                platform::wait_readable(&self.file, self.stopped)?;
            }
            match self.file.read(into) {
                // Another reader of the pipe was faster.
                Err(err) if self.waits && err.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}
