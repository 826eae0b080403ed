//! Pages of block traces: figures, and addresses against time (`trace stat --html`) or against the
//! number of the write, as the papers print them.

use crate::trace::{Op, Record};
use syncline_device::{Kind, Origin, TraceEvent, TraceOp};

use crate::report::page::{About, Page};

/// Accesses that are kept for a plot, at most.
const PICKED_MAX: usize = 40_000;

/// Every n-th access of a trace, so that the whole of it is kept in bounded memory.
#[derive(Debug)]
pub struct Picked {
    events: Vec<TraceEvent>,
    /// Of how many accesses one is kept.
    stride: u64,
    seen: u64,
}

impl Default for Picked {
    fn default() -> Picked {
        Picked { events: Vec::new(), stride: 1, seen: 0 }
    }
}

impl Picked {
    /// Takes an access of a device, of a file, or of a page. Files lie above one another, each at
    /// the next GiB, in the order of their names' numbers.
    pub fn record(&mut self, record: &Record) {
        let op = match record.op {
            Op::Read => TraceOp::Read,
            Op::Write => TraceOp::Write,
            _ => return,
        };
        self.seen += 1;
        if !self.seen.is_multiple_of(self.stride) {
            return;
        }
        let kind = match record.origin {
            crate::trace::Origin::Journal => Kind::Journal,
            crate::trace::Origin::Metadata => Kind::Metadata,
            _ => Kind::Data { inode: record.inode },
        };
        let base = record.file.index().map_or(0, |index| (index as u64) << 30);
        self.events.push(TraceEvent {
            time_ns: record.time_ns,
            op,
            offset_bytes: base.saturating_add(record.offset_bytes),
            len_bytes: record.len_bytes,
            origin: Origin::new(kind, false),
            fua: false,
        });
        if self.events.len() >= PICKED_MAX {
            let mut number = 0u32;
            self.events.retain(|_| {
                number += 1;
                number.is_multiple_of(2)
            });
            self.stride *= 2;
        }
    }
}

/// One file with the text of the figures and the plot.
pub fn trace_report(name: &str, text: &str, picked: &Picked, about: &About) -> String {
    let mut page = Page::new(&format!("syncline-lab trace, {name}"));
    page.text(text);
    page.addresses("addresses against time", &picked.events, 0);
    page.finish(about)
}

/// One plot of [`sequence_report`].
#[derive(Clone, Copy, Debug)]
pub struct SequencePlot<'a> {
    /// Content of the plot.
    pub title: &'a str,
    /// Commands in order; the writes are shown.
    pub events: &'a [TraceEvent],
    /// Commands that did not fit, at the end.
    pub events_lost: u64,
}

/// One file with the text of the figures and, for each trace that has writes, addresses against the
/// number of the write (informed-storage paper, Figures 7 and 10).
pub fn sequence_report(
    title: &str,
    text: &str,
    plots: &[SequencePlot<'_>],
    about: &About,
) -> String {
    let mut page = Page::new(title);
    page.text(text);
    for plot in plots {
        page.sequence(plot.title, plot.events, plot.events_lost);
    }
    page.finish(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_shows_writes_only() {
        let event = |op, offset_bytes| TraceEvent {
            time_ns: 0,
            op,
            offset_bytes,
            len_bytes: 4096,
            origin: Origin::new(Kind::Data { inode: 12 }, false),
            fua: false,
        };
        let events = [event(TraceOp::Write, 0), event(TraceOp::Read, 8192)];
        let plot = SequencePlot { title: "a & b", events: &events, events_lost: 2 };
        let none = SequencePlot { title: "not drawn", events: &events[1..], events_lost: 0 };
        let html = sequence_report("x", "1 < 2", &[plot, none], &About::default());
        for part in ["a &amp; b", "1 &lt; 2", "last 2 commands", "[0.0,0,4096]", "writes: data"] {
            assert!(html.contains(part), "{part} is missing");
        }
        assert!(!html.contains("not drawn") && !html.contains("8192,4096]"));
    }

    #[test]
    fn a_page_shows_all_of_a_long_trace() {
        let mut picked = Picked::default();
        for n in 0..200_000u64 {
            let op = if n % 3 == 0 { Op::Write } else { Op::Read };
            picked.record(&Record::new(n * 1000, op).range(n % 1000 * 4096, 4096));
        }
        assert!(picked.events.len() < PICKED_MAX && picked.stride == 8, "{}", picked.stride);
        assert!(picked.events.last().is_some_and(|event| event.time_ns > 199_000_000));
        let html = trace_report("<a>", "calls & more", &picked, &About::default());
        assert!(html.contains("&lt;a&gt;") && html.contains("calls &amp; more"));
        assert!(html.contains("\"reads\"") && html.contains("\"writes: data\""));
    }
}
