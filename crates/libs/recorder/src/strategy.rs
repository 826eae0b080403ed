//! Strategies that bring an event to a file, one source file each: `os/paper.rs`, `os/pool.rs`,
//! `os/uring.rs`, `volume.rs`.

use crate::error::Result;

/// Work that may take long. At most two are open for an event: one write-back, one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Write the bytes `from..to` of the file back, so that memory stays bounded.
    WriteBack {
        /// Event.
        event: u64,
        /// First byte.
        from: u64,
        /// Byte after the last one.
        to: u64,
    },
    /// Nothing follows: cut the file to its length and make it durable.
    Finish {
        /// Event.
        event: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
}

impl Job {
    /// The event it is for.
    pub fn event(&self) -> u64 {
        match self {
            Job::WriteBack { event, .. } | Job::Finish { event, .. } => *event,
        }
    }
}

/// Results of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes from the start of the file that survive a power cut from now on.
    pub durable_bytes: u64,
}

/// A way to write events. Shared by the writer and the lower thread; no lock of an implementation
/// is held across I/O where the other thread could wait for it.
pub trait Strategy: Send + Sync {
    /// Makes the file of an event ready. On the critical path.
    ///
    /// # Errors
    /// The event is refused.
    fn begin(&self, event: u64) -> Result<()>;

    /// Writes at `offset`, always the end of what was written so far. On the critical path. Whole
    /// slots.
    ///
    /// # Errors
    /// The event ends here.
    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()>;

    /// Does a job, in the lower thread. After [`Job::Finish`] the event is over, whatever the
    /// result.
    ///
    /// # Errors
    /// The job failed, so what is not yet durable may be lost.
    fn lower(&self, job: &Job) -> Result<Done>;

    /// Gets ready for the next events, in the lower thread while no event is under way: one short
    /// piece of work, so that an event that begins meanwhile has the device to itself soon. Returns
    /// whether there is more.
    ///
    /// # Errors
    /// It cannot be done now; it is asked for again after the next event.
    fn prepare(&self) -> Result<bool> {
        Ok(false)
    }
}
