//! The page of `trace stat --html`: the figures, and addresses against time.

use syncline_device::{Kind, Origin, TraceEvent, TraceOp};
use syncline_trace::{Op, Record};

use crate::report::STYLE;
use crate::svg::{escape, scatter};

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
            syncline_trace::Origin::Journal => Kind::Journal,
            syncline_trace::Origin::Metadata => Kind::Metadata,
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
pub fn trace_report(name: &str, text: &str, picked: &Picked) -> String {
    let title = format!("addresses against time, {name}");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>syncline trace</title><style>{STYLE}</style></head><body>\n\
         <h1>{}</h1>\n<pre>{}</pre>\n\
         <h3>{} <span class=\"key data\">writes</span> <span class=\"key read\">reads</span></h3>\n\
         {}</body></html>\n",
        escape(name),
        escape(text),
        escape(&title),
        scatter(&title, &picked.events)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_all_of_a_long_trace() {
        let mut picked = Picked::default();
        for n in 0..200_000u64 {
            let op = if n % 2 == 0 { Op::Write } else { Op::Read };
            picked.record(&Record::new(n * 1000, op).range(n % 1000 * 4096, 4096));
        }
        assert!(picked.events.len() < PICKED_MAX && picked.stride == 8, "{}", picked.stride);
        assert!(picked.events.last().is_some_and(|event| event.time_ns > 199_000_000));
        let html = trace_report("<a>", "calls & more", &picked);
        assert!(html.contains("&lt;a&gt;") && html.contains("calls &amp; more"));
        assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("http"));
    }
}
