//! Latencies of `syncline-lab latency`: table, JSON document, page, beside the paper's Table 1.
//!
//! Source: write-latency paper, section 5 and Table 1. The caller gives each case its
//! histogram and its slowest calls. Tested below.

use std::fmt::Write;

use crate::report::{About, Chart, INTERRUPTED, Page, aligned};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::latency::LONGEST_NS;

/// Name of the document's form.
pub const LATENCY_SCHEMA: &str = "syncline.latency/1";

/// Slowest calls that are kept of a case.
pub const OUTLIERS_MAX: usize = 5;

/// Average and maximum in microseconds of the paper's Table 1, by call and background.
const PAPER: [(&str, bool, u64, u64); 4] = [
    ("fallocate", false, 141, 4299),
    ("fallocate", true, 813, 208_440),
    ("write", false, 178, 359),
    ("write", true, 181, 1043),
];

/// One of the slowest calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// Number of the call, from 0.
    pub call: u64,
    /// When it began, in nanoseconds of the measuring clock.
    pub start_ns: u64,
    /// Duration of the call.
    pub latency_us: f64,
    /// Cause that overlapped it, where one is known.
    pub cause: Option<String>,
}

/// A time in which a processor did not even run a thread of the highest priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// Number of the processor, as Linux counts.
    pub processor: usize,
    /// When the thread should have run, in nanoseconds of the measuring clock.
    pub from_ns: u64,
    /// When it did.
    pub to_ns: u64,
}

/// Stalls of a stretch of time, and what they mean for the calls in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Time for which stalls were watched, in seconds.
    pub watched_s: f64,
    /// Stalls of all processors.
    pub stalls: u64,
    /// The longest.
    pub stall_us_max: f64,
    /// Calls that overlap a stall.
    pub stalled_calls: u64,
    /// The slowest of the other calls.
    pub latency_us_max_unstalled: f64,
}

impl Machine {
    /// A stretch of time without calls.
    pub fn watched(watched_s: f64, stalls: &[Stall]) -> Self {
        let longest_ns = stalls.iter().map(|stall| stall.to_ns - stall.from_ns).max();
        Machine {
            watched_s,
            stalls: stalls.len() as u64,
            stall_us_max: longest_ns.unwrap_or(0) as f64 / 1e3,
            ..Machine::default()
        }
    }

    /// The same with calls, each by its start and its latency in nanoseconds.
    fn with_calls(mut self, stalls: &[Stall], calls: &[(u64, u64)]) -> Self {
        let mut stalls: Vec<(u64, u64)> = stalls.iter().map(|s| (s.from_ns, s.to_ns)).collect();
        stalls.sort_unstable();
        // The latest end of a stall that begins no later than this one.
        let mut latest_ns = 0;
        for (_, to_ns) in &mut stalls {
            latest_ns = latest_ns.max(*to_ns);
            *to_ns = latest_ns;
        }
        for (start_ns, latency_ns) in calls {
            let begun = stalls.partition_point(|(from_ns, _)| *from_ns < start_ns + latency_ns);
            if begun > 0 && stalls[begun - 1].1 > *start_ns {
                self.stalled_calls += 1;
            } else {
                let latency_us = *latency_ns as f64 / 1e3;
                self.latency_us_max_unstalled = self.latency_us_max_unstalled.max(latency_us);
            }
        }
        self
    }
}

/// One bar of a histogram: calls of at most `to_us` and more than the bar before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Upper end in microseconds.
    pub to_us: u64,
    /// Calls.
    pub calls: u64,
}

/// Calls of one kind, timed one by one.
pub struct Calls {
    histogram: Histogram<u64>,
    sum_ns: u64,
    outliers: Vec<Outlier>,
    /// Start and latency of each, in nanoseconds.
    calls: Vec<(u64, u64)>,
}

impl Calls {
    /// For so many calls.
    pub fn new(calls: usize) -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        let histogram = histogram.expect("the bounds and the precision are in range");
        let outliers = Vec::with_capacity(OUTLIERS_MAX + 1);
        Calls { histogram, sum_ns: 0, outliers, calls: Vec::with_capacity(calls) }
    }

    /// Notes a call. Allocates nothing up to the number of calls asked for.
    pub fn record(&mut self, start_ns: u64, latency_ns: u64) {
        let call = self.histogram.len();
        self.calls.push((start_ns, latency_ns));
        self.histogram.saturating_record(latency_ns.max(1));
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        let latency_us = latency_ns as f64 / 1e3;
        let at = self.outliers.partition_point(|known| known.latency_us >= latency_us);
        if at < OUTLIERS_MAX {
            self.outliers.truncate(OUTLIERS_MAX - 1);
            self.outliers.insert(at, Outlier { call, start_ns, latency_us, cause: None });
        }
    }

    /// Builds one case of the measured calls; `stalls`: seconds watched and what was seen in them.
    pub fn case(
        self,
        call: &'static str,
        background: bool,
        stalls: Option<(f64, &[Stall])>,
    ) -> LatencyCase {
        let calls = self.histogram.len();
        let machine = stalls.map(|(watched_s, stalls)| {
            Machine::watched(watched_s, stalls).with_calls(stalls, &self.calls)
        });
        let percentile = |p: f64| self.histogram.value_at_percentile(p) as f64 / 1e3;
        let mut histogram: Vec<Bucket> = Vec::new();
        // Powers of two of a microsecond.
        for value in self.histogram.iter_recorded() {
            let us = value.value_iterated_to().div_ceil(1000).max(1);
            let (to_us, calls) = (us.next_power_of_two(), value.count_since_last_iteration());
            match histogram.last_mut().filter(|bucket| bucket.to_us == to_us) {
                Some(bucket) => bucket.calls += calls,
                None => histogram.push(Bucket { to_us, calls }),
            }
        }
        let max_us = self.outliers.first().map_or(0.0, |outlier| outlier.latency_us);
        LatencyCase {
            call,
            background,
            calls,
            latency_us_mean: if calls == 0 { 0.0 } else { self.sum_ns as f64 / 1e3 / calls as f64 },
            latency_us_p50: percentile(50.0),
            latency_us_p99: percentile(99.0),
            latency_us_p999: percentile(99.9),
            latency_us_max: max_us,
            late_periods: 0,
            background_rounds: 0,
            machine,
            histogram,
            outliers: self.outliers,
        }
    }
}

/// Latencies of one call with or without the background.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyCase {
    /// `fallocate` or `write`.
    pub call: &'static str,
    /// True if another thread looped ftruncate and fsync on another file.
    pub background: bool,
    /// Calls measured.
    pub calls: u64,
    /// Mean in microseconds.
    pub latency_us_mean: f64,
    /// Median in microseconds.
    pub latency_us_p50: f64,
    /// 99 of 100 calls, in microseconds.
    pub latency_us_p99: f64,
    /// 999 of 1000 calls, in microseconds.
    pub latency_us_p999: f64,
    /// Slowest, in microseconds.
    pub latency_us_max: f64,
    /// Periods whose call began after the next period's start.
    pub late_periods: u64,
    /// ftruncate and fsync pairs that the background did.
    pub background_rounds: u64,
    /// True if the machine stood still meanwhile; none where it could not be watched.
    pub machine: Option<Machine>,
    /// Calls by powers of two.
    pub histogram: Vec<Bucket>,
    /// The slowest, slowest first.
    pub outliers: Vec<Outlier>,
}

/// Everything that one call of the command measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyDocument {
    /// [`LATENCY_SCHEMA`].
    pub schema: &'static str,
    /// Subject of the measurement: a directory, or a volume in process on a device.
    pub place: String,
    /// Stalls of the machine before the first case, with nothing of ours running.
    pub idle: Option<Machine>,
    /// True if cases are missing because the run was interrupted or failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Steps that could not be done, one sentence each: priorities, causes.
    pub remarks: Vec<String>,
    /// In the order of the paper's table.
    pub cases: Vec<LatencyCase>,
}

impl LatencyDocument {
    /// An empty document.
    pub fn new(place: String) -> Self {
        let (remarks, cases) = (Vec::new(), Vec::new());
        let (idle, interrupted) = (None, false);
        LatencyDocument { schema: LATENCY_SCHEMA, place, idle, interrupted, remarks, cases }
    }

    /// The document as JSON.
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists: nothing that has no form in JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let head = ["call", "background", "calls", "avg us", "p50 us", "p99 us", "p99.9 us"];
        let head = head.iter().chain(&[
            "max us",
            "late",
            "unstalled max us",
            "paper avg us",
            "paper max us",
        ]);
        let mut rows = vec![head.map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
        for case in &self.cases {
            let figure = |value: f64| format!("{value:.0}");
            let paper = PAPER.iter().find(|p| (p.0, p.1) == (case.call, case.background));
            let unstalled = case.machine.as_ref().map(|m| figure(m.latency_us_max_unstalled));
            let of_paper = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
            rows.push(vec![
                case.call.to_owned(),
                if case.background { "ftruncate + fsync" } else { "none" }.to_owned(),
                case.calls.to_string(),
                figure(case.latency_us_mean),
                figure(case.latency_us_p50),
                figure(case.latency_us_p99),
                figure(case.latency_us_p999),
                figure(case.latency_us_max),
                case.late_periods.to_string(),
                unstalled.unwrap_or_default(),
                of_paper(paper.map(|p| p.2)),
                of_paper(paper.map(|p| p.3)),
            ]);
        }
        rows
    }

    /// The table, then a histogram of each case, the slowest calls and the remarks.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.place, aligned(&self.rows(), 2));
        if self.interrupted {
            text = format!("{INTERRUPTED}\n{text}");
        }
        if let Some(idle) = &self.idle {
            let _ = writeln!(text, "\nbefore it, idle: {}", stood_still(idle));
        }
        for case in &self.cases {
            let _ = writeln!(text, "\n{}", name(case));
            let most = case.histogram.iter().map(|bucket| bucket.calls).max().unwrap_or(1).max(1);
            for bucket in &case.histogram {
                let bar = "#".repeat((bucket.calls * 50).div_ceil(most) as usize);
                let _ = writeln!(text, "  {:>9} us {:>7}  {bar}", bucket.to_us, bucket.calls);
            }
            if let Some(machine) = &case.machine {
                let calls = machine.stalled_calls;
                let _ = writeln!(text, "  {}; {calls} calls overlap one", stood_still(machine));
            }
            for outlier in case.outliers.iter().filter(|outlier| outlier.cause.is_some()) {
                let cause = outlier.cause.as_deref().unwrap_or_default();
                let _ = writeln!(
                    text,
                    "  call {}: {:.0} us, during {cause}",
                    outlier.call, outlier.latency_us
                );
            }
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "\n{remark}");
        }
        text
    }

    /// A page with the table and a chart of each case.
    pub fn html(&self, about: &About) -> String {
        let mut page = Page::new("syncline-lab latency");
        if self.interrupted {
            page.paragraph(INTERRUPTED);
        }
        page.paragraph(&self.place);
        if let Some((header, lines)) = self.rows().split_first() {
            page.table(header, lines, 2);
        }
        for case in &self.cases {
            let buckets: Vec<_> = case.histogram.iter().map(|b| (b.to_us, b.calls)).collect();
            let title = format!("latency of {}", name(case));
            page.bars(&Chart::histogram(&title, "calls", &buckets));
        }
        if let Some(idle) = &self.idle {
            page.paragraph(&format!("before it, idle: {}", stood_still(idle)));
        }
        for remark in &self.remarks {
            page.paragraph(remark);
        }
        page.finish(about)
    }
}

fn stood_still(machine: &Machine) -> String {
    let Machine { watched_s, stalls, stall_us_max, .. } = machine;
    format!("{stalls} stalls of processors in {watched_s:.0} s, the longest {stall_us_max:.0} us")
}

fn name(case: &LatencyCase) -> String {
    let background = if case.background { " beside ftruncate + fsync" } else { "" };
    format!("{}{background}", case.call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_the_figures_of_its_calls() {
        let mut calls = Calls::new(1000);
        for n in 0..1000_u64 {
            calls.record(n * 5000, if n == 700 { 3_000_000 } else { 10_000 + n });
        }
        let stall = |processor, from_us: u64, to_us: u64| Stall {
            processor,
            from_ns: from_us * 1000,
            to_ns: to_us * 1000,
        };
        // The first lies within the second; during the last only call 700 is still running.
        let stalls = [stall(1, 5, 6), stall(0, 0, 900), stall(0, 3503, 5000), stall(1, 6000, 6500)];
        let case = calls.case("write", true, Some((5.0, &stalls)));
        assert_eq!((case.calls, case.latency_us_max), (1000, 3000.0));
        assert!((case.latency_us_mean - 13.49).abs() < 0.1, "{}", case.latency_us_mean);
        assert_eq!((case.outliers.len(), case.outliers[0].call), (OUTLIERS_MAX, 700));
        let buckets: Vec<_> = case.histogram.iter().map(|b| (b.to_us, b.calls)).collect();
        assert_eq!(buckets, [(16, 999), (4096, 1)]);
        let machine = case.machine.as_ref().unwrap();
        // One begins each 5 us: 180 in the first stall, from call 699 on all others in the third.
        assert_eq!((machine.stalled_calls, machine.latency_us_max_unstalled), (481, 10.698));
        assert_eq!((machine.stalls, machine.stall_us_max), (4, 1497.0));
        let mut document = LatencyDocument::new("here <there>".to_owned());
        document.remarks.push("no causes; run as root".to_owned());
        document.cases.push(case);
        let text = document.text();
        assert!(text.contains("1043") && text.contains("no causes; run as root"), "{text}");
        let html = document.html(&About::default());
        assert!(html.contains("here &lt;there&gt;") && html.contains("at most 16 us"));
        assert!(!text.contains("Interrupted") && !html.contains("Interrupted"));
        document.interrupted = true;
        let html = document.html(&About::default());
        assert!(document.text().starts_with("Interrupted: "), "{}", document.text());
        assert!(html.contains("</h1>\n<p>Interrupted: "));
        let json: serde_json::Value = serde_json::from_str(&document.to_json()).unwrap();
        assert_eq!((&json["schema"], &json["interrupted"]), (&LATENCY_SCHEMA.into(), &true.into()));
        assert_eq!(json["cases"][0]["latency_us_max"], 3000.0);
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        let case = Calls::new(0).case("fallocate", false, None);
        assert_eq!((case.calls, case.latency_us_mean, case.latency_us_max), (0, 0.0, 0.0));
        assert!(case.histogram.is_empty() && case.outliers.is_empty());
    }
}
