//! The figures of a trace.

mod text;

use crate::observer::Observer;
use crate::trace::{Gather, Header, Names, Record, Sink, Statistics};
use serde_json::{Value, json};

use crate::error::Result;
use crate::experiments::trace::Source;

/// Figures of a trace.
pub struct StatResult {
    /// Its kind and source.
    pub header: Header,
    /// Its figures.
    pub statistics: Statistics,
}

struct Both<'a> {
    gather: Gather,
    header: &'a Header,
    also: &'a mut dyn FnMut(&Header, &Record),
}

impl Sink for Both<'_> {
    fn record(&mut self, names: &Names, record: &Record) -> crate::error::Result<()> {
        (self.also)(self.header, record);
        self.gather.record(names, record)
    }
}

impl StatResult {
    /// Reads the trace; `also` gets every record.
    pub fn of(
        source: Source,
        also: &mut dyn FnMut(&Header, &Record),
        observer: &dyn Observer,
    ) -> Result<StatResult> {
        let header = source.header();
        let mut both = Both { gather: Gather::new(header.kind), header: &header, also };
        let (_, names) = source.read(&mut both, observer)?;
        let statistics = both.gather.finish(&names);
        Ok(StatResult { header, statistics })
    }

    /// The document of schema `syncline.trace-stat/1`.
    pub fn document(&self) -> Value {
        json!({
            "schema": "syncline.trace-stat/1",
            "trace": self.header,
            "statistics": self.statistics,
        })
    }
}
