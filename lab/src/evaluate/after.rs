//! The trace after the cache: pages become requests.
//!
//! Pages that the cache reads or writes one after the other, in the same direction and each where
//! the last ended, are one request of up to `pages_max`. A request ends with the access that caused
//! it, unless the next access continues it. With one page a request it is the informed-storage
//! paper's trace. Tested in `lab/tests/evaluate/run.rs`.

use crate::trace::{Flags, Names, Op, Origin, Record, Sink};
use syncline_cache::{Access, DeviceAccess};

use crate::error::Result;
use crate::evaluate::pages::PAGE_BYTES;

/// Makes requests of page accesses.
pub(crate) struct Merger {
    pages_max: u64,
    open: Option<Record>,
    names: Names,
}

impl Merger {
    pub(crate) fn new(pages_max: u64) -> Merger {
        Merger { pages_max: pages_max.max(1), open: None, names: Names::default() }
    }

    /// Takes what reached the device at `time_ns`.
    pub(crate) fn take(
        &mut self,
        access: &DeviceAccess,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let offset_bytes = access.key.index * PAGE_BYTES;
        let op = if access.access == Access::Write { Op::Write } else { Op::Read };
        if let Some(open) = &mut self.open {
            let end = open.offset_bytes + open.len_bytes;
            let fits = open.len_bytes < self.pages_max * PAGE_BYTES;
            if open.op == op && end == offset_bytes && fits {
                open.len_bytes += PAGE_BYTES;
                return Ok(());
            }
        }
        self.pass(sink)?;
        let mut record = Record::new(time_ns, op).range(offset_bytes, PAGE_BYTES);
        record.origin = Origin::Data;
        // Somebody waits for a page that is read.
        record.flags = Flags::when(op == Op::Read, Flags::SYNC);
        self.open = Some(record);
        Ok(())
    }

    /// Passes the last request on.
    pub(crate) fn pass(&mut self, sink: &mut dyn Sink) -> Result<()> {
        match self.open.take() {
            Some(record) => Ok(sink.record(&self.names, &record)?),
            None => Ok(()),
        }
    }

    /// A flush after everything before.
    pub(crate) fn flush(&mut self, time_ns: u64, sink: &mut dyn Sink) -> Result<()> {
        self.pass(sink)?;
        sink.record(&self.names, &Record::new(time_ns, Op::Flush))
    }
}
