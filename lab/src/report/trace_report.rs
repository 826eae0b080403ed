//! The page of a block trace (`trace stat --html`): figures, and addresses against time.

use crate::trace::{Op, Record, TraceKind};
use syncline_device::{Kind, Origin, TraceEvent, TraceOp};

use crate::report::page::{About, Page};

/// Accesses that are kept for a plot, at most.
const PICKED_MAX: usize = 40_000;

/// Every n-th access of a trace, so that the whole of it is kept in bounded memory.
#[derive(Debug)]
pub struct Picked {
    events: Vec<TraceEvent>,
    /// The accesses are those of files, not of a device.
    of_files: bool,
    /// Of how many accesses one is kept.
    stride: u64,
    seen: u64,
}

impl Default for Picked {
    fn default() -> Picked {
        Picked { events: Vec::new(), of_files: false, stride: 1, seen: 0 }
    }
}

impl Picked {
    /// Takes an access of a device, of a file, or of a page. Files lie above one another, each at
    /// the next GiB, in the order of their names' numbers. A device has its own addresses; the file
    /// of a request only says whose it is.
    pub fn record(&mut self, kind: TraceKind, record: &Record) {
        let op = match record.op {
            Op::Read => TraceOp::Read,
            Op::Write => TraceOp::Write,
            _ => return,
        };
        self.seen += 1;
        if !self.seen.is_multiple_of(self.stride) {
            return;
        }
        let file = record.file.index().filter(|_| kind != TraceKind::Block);
        let base = file.map_or(0, |index| (index as u64) << 30);
        self.of_files |= file.is_some();
        let kind = match record.origin {
            crate::trace::Origin::Journal => Kind::Journal,
            crate::trace::Origin::Metadata => Kind::Metadata,
            _ => Kind::Data { inode: record.inode },
        };
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
    if picked.of_files {
        let title = "offsets in files against time, each file 1 GiB above the one before";
        page.offsets(title, &picked.events);
    } else {
        page.addresses("addresses against time", &picked.events, 0);
    }
    page.finish(about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Names;

    #[test]
    fn a_page_shows_all_of_a_long_trace() {
        let mut picked = Picked::default();
        for n in 0..200_000u64 {
            let op = if n % 3 == 0 { Op::Write } else { Op::Read };
            picked.record(TraceKind::Page, &Record::new(n * 1000, op).range(n % 1000 * 4096, 4096));
        }
        assert!(picked.events.len() < PICKED_MAX && picked.stride == 8, "{}", picked.stride);
        assert!(picked.events.last().is_some_and(|event| event.time_ns > 199_000_000));
        let html = trace_report("<a>", "calls & more", &picked, &About::default());
        assert!(html.contains("&lt;a&gt;") && html.contains("calls &amp; more"));
        assert!(html.contains("\"reads\"") && html.contains("\"writes: data\""));
    }

    #[test]
    fn blocks_stay_at_their_addresses_and_files_lie_above_one_another() {
        let mut names = Names::default();
        names.intern("/a");
        let record =
            Record { file: names.intern("/b"), ..Record::new(0, Op::Write).range(8192, 4096) };
        for (kind, offset_bytes) in [(TraceKind::Block, 8192), (TraceKind::Page, (1 << 30) + 8192)]
        {
            let mut picked = Picked::default();
            picked.record(kind, &record);
            assert_eq!(picked.events[0].offset_bytes, offset_bytes, "{}", kind.name());
            let html = trace_report("t", "", &picked, &About::default());
            let name = if kind == TraceKind::Block { "address" } else { "offset" };
            assert!(html.contains(&format!("\"y_name\":\"{name}\"")), "{}", kind.name());
        }
    }
}
